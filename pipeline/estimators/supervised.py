"""What estimators with a target share: data, target and weights from any form in which users have them, decisions, labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.validation import _check_sample_weight

from ...storage import BlockStore, MemoryBlocks
from ...storage.data import NUMBERS, as_data, in_memory, is_store
from ...storage.value_types import UserData
from ..inputs.fit_warnings import numbers_as_classes
from ..inputs.labels import Inputs, checked_numbers
from ..inputs.scaling import as_scaled
from ..records.data_set import DataSet
from .base import MethodEstimator
from .inputs import Classifying, Column, Predicting, UserRows, check_labels, encoded, label_array, stored_target, warn_user
from .probabilities import ClassProbabilities


class SupervisedEstimator(MethodEstimator):
    """Base of estimators of rows with a target; a subclass says how it decides on rows in :meth:`_values`."""

    _is_classifier: ClassVar[bool] = True
    _needs_target: ClassVar[bool] = False  # whether arrays must come with a target although it is no classifier or regressor
    _frame_form: ClassVar[str] = "one-hot"  # what nominal columns of a frame become, as the record of an encoding says
    # Forms of matrices that are taken as they are, as scikit-learn names them.
    _forms: ClassVar[Mapping[str, Any]] = {"accept_sparse": "csr", "accept_large_sparse": False}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required |= self._needs_target
        return tags

    def _inputs(self, X: object, y: object, sample_weight: object = None) -> Inputs:
        """Return data, target and weights from any form of data."""
        if y is None and not is_store(X):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        data, y = self._data(X, y)
        target, classes = self._target(data, y)
        weight = self._weight(data, sample_weight, data.n_rows)
        return Inputs(as_scaled(self._config(), data, weight), target, classes, weight)

    def _data(self, X: object, y: object = None) -> tuple[Any, Any]:
        """Return the data set of a fit, and the target checked against it."""
        # Whether numbers are finite is seen by the look that also tells, when probabilities are asked for, whether rows were changed.
        finite = self._forms.get("ensure_all_finite", False)
        rows, y = self._read(X, y, ensure_all_finite=finite)
        if isinstance(rows, BlockStore):
            self._keep_store(rows)
            return rows, y
        data = self._blocks(rows)
        if not (finite or data.look.is_finite):
            self._checked(X)
        return data, y

    def _keep_store(self, store: BlockStore) -> None:
        """Keep how the features of a fit's store came from the columns of a table."""
        vars(self).pop("_is_frame_fit", None)
        self._source_columns = store.table
        self.n_features_in_, self._first_feature = store.n_cols, store.first_feature

    def _read(self, X: object, y: object = None, **options: Any) -> tuple[Any, Any]:
        """Return a store, or rows in memory as scikit-learn validates them, and the target (:func:`gramplane.storage.data.as_data`)."""
        more = {} if y is None else {"multi_output": False, "y_numeric": not self._is_classifier}
        return as_data(X, y, estimator=self, encode=encoded, dtype=NUMBERS, **{**self._forms, **more, **options})

    def _checked(self, X: object, **options: Any) -> Any:
        """Return rows in memory as scikit-learn validates them."""
        return self._read(X, **options)[0]

    def _blocks(self, X: object) -> MemoryBlocks:
        """Return validated rows as passes read them."""
        return MemoryBlocks(X)

    def _target(self, data: DataSet, y: UserData) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """Return the numbers that are fitted, and the classes in order (``None`` for regression)."""
        is_plain = type(y) is np.ndarray and y.ndim == 1 and y.dtype.kind in "biuf"  # what scikit-learn would look at last
        y = y if is_plain else stored_target(data) if y is None else label_array(column_or_1d(in_memory(y, "y"), warn=True))
        if len(y) != data.n_rows:
            where = "the data" if data.url == "memory" else data.url
            raise ValueError(f"y has {len(y)} entries, {where} has {data.n_rows} rows: inconsistent numbers of samples")
        if not self._is_classifier:
            return checked_numbers(np.asarray(y, np.float64)), None
        check_labels(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        doubt = numbers_as_classes(self.classes_)
        if doubt:
            warn_user(doubt)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}); a classifier needs samples of at least two classes")
        return codes, tuple(self.classes_.tolist())

    def _weight(self, data: DataSet, sample_weight: UserData, n: int) -> np.ndarray | None:
        if sample_weight is None and is_store(data) and data.has_table("weight"):
            sample_weight = data.row_table("weight")
        return None if sample_weight is None else checked_weight(sample_weight, n)

    def _values(self, X: object) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of any form of data."""
        raise NotImplementedError


class SupervisedClassifier(Classifying, ClassProbabilities, SupervisedEstimator):
    """What classifiers share: decisions, probabilities and labels."""

    def decision_function(self, X: UserRows) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: UserRows) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        return predicted_labels(self.decision_function(X), self.classes_)


class SupervisedRegressor(Predicting, SupervisedEstimator):
    """What regressors share: values."""

    _is_classifier = False

    def predict(self, X: UserRows) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._values(X)[:, 0]


def predicted_labels(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the labels that decision values speak for."""
    return classes[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]


def checked_weight(sample_weight: Column, n: int) -> np.ndarray:
    """Return the weights of n rows, refused where they are not as many, negative or not finite."""
    return _check_sample_weight(in_memory(sample_weight, "sample_weight"), np.empty((n, 0)), dtype=np.float64, ensure_non_negative=True)

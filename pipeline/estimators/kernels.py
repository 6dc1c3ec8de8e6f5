"""What estimators on kernels share: forms of data, parameters, contexts, history, decision values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ...kernels.grams.spec import KernelSpec
from ...storage import DataError, GramStore, MemoryBlocks
from ..grams.given import GivenGrams, as_stack
from ..grams.sources import TextRows
from ..inputs.kernels import kernel_texts
from ..inputs.labels import Inputs
from ..models.kernel import KernelModel
from ..models.kernel_predict import gram_decision_values, row_decision_values, scaled_rows
from .base import MethodEstimator
from .inputs import Classifying, Predicting, fan_out, fit_context, in_memory, is_store, opened_for, validated


class KernelEstimator(MethodEstimator):
    """Base of estimators on kernels: rows, strings or matrices in, decision values of a machine on kernels out."""

    _is_classifier: ClassVar[bool] = True
    _wider = {
        **MethodEstimator._wider,
        "kernels": (
            'list of KernelSpec, str or callable, or "precomputed", or None',
            Sequence[KernelSpec | str | Callable[..., Any]] | Literal["precomputed"] | None,
        ),
    }

    kernels: Any
    model_: KernelModel

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = not self._precomputed
        tags.input_tags.pairwise = self._precomputed
        return tags

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.kernels, str) and self.kernels == "precomputed"

    def _plain(self, given: dict[str, Any]) -> dict[str, Any]:
        if "kernels" in given:
            given["kernels"] = kernel_texts(given["kernels"])
        return super()._plain(given)

    # -- data ----------------------------------------------------------------------------------------------------------------------

    def _inputs(self, X: Any, y: Any, sample_weight: Any = None) -> Inputs:
        """Return data, target and weights from any form: arrays, sparse, Dask, strings, a block store, matrices, a Gram store."""
        if y is None and not is_store(X):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        data, y = self._data(X, y)
        target, classes = self._target(data, y)
        return Inputs(data, target, classes, self._weight(data, sample_weight))

    def _data(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """Return the data set of a fit, and the target checked against it."""
        if self._precomputed:
            return self._matrices(X, y)
        if is_store(X):
            store = opened_for(self, X)
            self.n_features_in_ = store.n_cols
            return store, y
        if is_text(X):
            self.n_features_in_ = 0
            return TextRows(X), y
        options = {} if y is None else {"y": y, "multi_output": False, "y_numeric": not self._is_classifier}
        checked = validated(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=False, **options)
        X, y = checked if y is not None else (checked, None)
        return MemoryBlocks(X), y

    def _matrices(self, X: Any, y: Any) -> tuple[GivenGrams, Any]:
        if isinstance(X, (GramStore, str)):
            data = GivenGrams(X if isinstance(X, GramStore) else GramStore.open(X))
        elif _is_stack(X):
            data = GivenGrams(as_stack(in_memory(X)))
        else:
            data = GivenGrams(np.asarray(_validated(self, X)))
        self.n_features_in_ = data.n_rows
        return data, y

    def _target(self, data: Any, y: Any) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        y = self._stored_target(data) if y is None else column_or_1d(y, warn=True)
        if len(y) != data.n_rows:
            raise ValueError(f"y has {len(y)} entries, the data has {data.n_rows} rows: inconsistent numbers of samples")
        if not self._is_classifier:
            target = np.asarray(y, np.float64)
            if not np.isfinite(target).all():
                raise ValueError("y holds NaN or infinity")
            return target, None
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}); a classifier needs samples of at least two classes")
        return codes, tuple(self.classes_.tolist())

    def _stored_target(self, data: Any) -> np.ndarray:
        if isinstance(data, GivenGrams) or not data.has_table("y"):
            raise DataError("there is no target; give y, or ingest a file that has one", data.url)
        labels, target = data.meta.labels, data.target()
        return target if labels is None else np.asarray(labels)[target.astype(np.int64)]

    def _weight(self, data: Any, sample_weight: Any) -> np.ndarray | None:
        if sample_weight is None and is_store(data) and data.has_table("weight"):
            sample_weight = data.row_table("weight")
        if sample_weight is None:
            return None
        rows = np.empty((data.n_rows, 0))
        return _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)

    # -- results -------------------------------------------------------------------------------------------------------------------

    @classmethod
    def _model_params(cls, model: Any, params: Mapping[str, Any]) -> Mapping[str, Any]:
        # A run on a Gram store of kernels over rows ends as a model of those kernels.
        return {**params, **({"kernels": json.loads(model.params_json)["kernels"]} if "kernels" in params else {})}

    def _values(self, X: Any) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of any form of data."""
        check_is_fitted(self, "model_")
        model = self.model_
        if model.precomputed:
            return gram_decision_values(model, self._test_matrices(X))
        if is_store(X):
            with fit_context(opened_for(self, X), self._place, fan_out(None, 0), 0) as ctx:
                return self._method.predictor(model).decision_values(model, ctx)
        if is_text(X):
            return row_decision_values(model, np.array(list(X), dtype=object))
        X = validated(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], accept_large_sparse=False, reset=False)
        return row_decision_values(model, scaled_rows(model, X))

    def _test_matrices(self, X: Any) -> np.ndarray:
        X = in_memory(X)
        if _is_stack(X):
            return as_stack(X)
        return as_stack(_validated(self, X, reset=False))


class KernelClassifier(Classifying, KernelEstimator):
    """What classifiers on kernels share: decisions and labels."""

    _left_out = ("epsilon",)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        values = self._values(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        return labelled(self.decision_function(X), self.classes_)


class KernelRegressor(Predicting, KernelEstimator):
    """What regressors on kernels share: values."""

    _left_out = ("class_weight",)
    _is_classifier = False

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._values(X)[:, 0]


def labelled(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the labels that decision values speak for."""
    return classes[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]


def _is_stack(X: Any) -> bool:
    if isinstance(X, (list, tuple)):
        return bool(X) and getattr(X[0], "ndim", 0) == 2
    return getattr(X, "ndim", 0) == 3


def _validated(estimator: Any, X: Any, **options: Any) -> Any:
    return validated(estimator, X, dtype=[np.float64, np.float32], **options)


def is_text(X: Any) -> bool:
    """Return whether ``X`` is a list or array of strings (one string is a path)."""
    if isinstance(X, (list, tuple)):
        return bool(X) and all(isinstance(row, str) for row in X)
    return isinstance(X, np.ndarray) and X.ndim == 1 and X.size > 0 and X.dtype.kind in "OU" and all(isinstance(row, str) for row in X)

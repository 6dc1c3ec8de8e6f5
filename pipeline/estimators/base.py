"""Estimator, Classifier, Regressor: the common behaviour of all estimators. Estimators and runs use the same engine and methods."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ...cluster.events import Sink
from ...kernels.jit import one_thread
from ...storage import BlockStore, MemoryBlocks
from ...storage.data import NUMBERS, as_data, in_memory, is_store
from ...storage.encoding.encoder import encoder_of
from ...storage.encoding.record import TableColumns
from ...storage.errors import UserData
from ..core.calibration import Fit, known_calibration
from ..core.engine import BOUNDS, GAPS, fit
from ..core.resources import Resources, RunContext
from ..core.result import State, ended_early
from ..core.search import hand_over
from ..inputs.fit_warnings import numbers_as_classes
from ..inputs.labels import Inputs, checked_numbers
from ..inputs.scaling import as_scaled
from ..models.calibration import Calibration, class_probabilities
from ..models.linear import row_decision_values
from ..models.model import Tables
from ..records.config import MethodConfig, make_config
from ..records.data_set import DataSet
from .frames import known_names
from .inputs import (
    Column,
    UserRows,
    check_labels,
    encoded,
    fan_out,
    fit_context,
    history_arrays,
    label_array,
    method_context,
    score_of,
    seed_of,
    shown_fit,
    stored_target,
    warn_user,
)
from .probabilities import LateModel, calibrate_now, late_calibration


def has_probabilities(estimator: Any) -> bool:
    """Return whether an estimator, with its parameters, can predict class probabilities."""
    return estimator._is_classifier and getattr(estimator, "probability", False) is not False


class Estimator(BaseEstimator):
    """Base of all estimators: validates parameters, reads data, fits, warns and loads models.

    A subclass names its method and sets fitted attributes in :meth:`_set_model`. It overrides :meth:`_inputs` if it takes more than a
    target and weights, and :meth:`_values` if its model has no feature weights.
    """

    _method: ClassVar[Any]
    _is_classifier: ClassVar[bool] = False
    _needs_target: ClassVar[bool] = False  # whether arrays must come with a target although it is no classifier or regressor
    _frame_form: ClassVar[str] = "one-hot"  # what nominal columns of a frame become, as the record of an encoding says
    # Forms of matrices that are taken as they are, as scikit-learn names them.
    _forms: ClassVar[Mapping[str, Any]] = {"accept_sparse": "csr", "accept_large_sparse": False}
    _takes_all_memory: ClassVar[bool] = False  # whether only a fit beyond this machine's memory is refused, not one beyond a driver's share

    cluster: Any
    random_state: Any
    verbose: Any
    callbacks: Any
    model_: Any
    _late: LateModel[Calibration] | None = None
    _source_columns: TableColumns | None = None  # of a frame that is encoded, or of a store made of a table
    n_features_in_: int
    classes_: np.ndarray
    converged_: bool
    stop_reason_: str | None

    @property
    def encoding_(self) -> Any:
        """Fitted scikit-learn encoders that turn a table into features; columns are matched by name. Exists only after a fit on a table."""
        if self._source_columns is None:
            raise AttributeError(f"this {type(self).__name__} has no attribute 'encoding_': it was not fitted on a table")
        return encoder_of(self._source_columns)

    def _config(self) -> Any:
        """Return the checked parameters."""
        fields = self._method.config.model_fields
        params = self._plain({name: value for name, value in self.get_params(deep=False).items() if name in fields})
        plain = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in params.items()}
        return make_config(self._method.config, plain)

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        """Return parameters in the form that the parameter model expects."""
        if isinstance(params.get("class_weight"), Mapping):
            params["class_weight"] = {str(key): value for key, value in params["class_weight"].items()}
        return params

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store, or its path. A store may contain target, weights and groups.
        y
            ``(n_samples,)`` target.
        sample_weight
            ``(n_samples,)`` factors of the losses; rows of weight 0 are ignored.

        Raises
        ------
        ValueError
            A parameter is out of range, data are not finite, the target has one class only, groups do not match the data, or iterates
            diverge.
        """
        config = self._config()
        self._fit(self._inputs(X, y, sample_weight, config=config), config)
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required |= self._needs_target
        return tags

    def _inputs(self, X: object, y: object, sample_weight: object = None, *, config: MethodConfig | None = None) -> Inputs:
        """Return data, target and weights from any supported form of data. ``config`` holds the checked parameters, if they are known
        already.
        """
        if y is None and not is_store(X):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        data, y = self._data(X, y)
        target, classes = self._target(data, y)
        weight = self._weight(data, sample_weight, data.n_rows)
        return Inputs(as_scaled(config or self._config(), data, weight), target, classes, weight)

    def _data(self, X: object, y: object = None) -> tuple[Any, Any]:
        """Return the data set of a fit, and the target after validation against the data set."""
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
        """Keep the encoding of the table that the store was made from."""
        vars(self).pop("_is_frame_fit", None)
        self._source_columns = store.table
        self.n_features_in_, self._first_feature = store.n_cols, store.first_feature

    def _read(self, X: object, y: object = None, **options: Any) -> tuple[Any, Any]:
        """Return rows and target: a store, or rows in memory validated by scikit-learn (:func:`gramplane.storage.data.as_data`)."""
        more = {} if y is None else {"multi_output": False, "y_numeric": not self._is_classifier}
        return as_data(X, y, estimator=self, encode=encoded, dtype=NUMBERS, **{**self._forms, **more, **options})

    def _checked(self, X: object, **options: Any) -> Any:
        """Return rows in memory, validated by scikit-learn."""
        return self._read(X, **options)[0]

    def _blocks(self, X: object) -> MemoryBlocks:
        """Return validated rows as blocks."""
        return MemoryBlocks(X)

    def _target(self, data: DataSet, y: UserData) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        """Return the target as numbers, and the sorted classes (``None`` for regression)."""
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

    @property
    def _place(self) -> str | None:
        """The cluster that passes run on, or ``None``."""
        return self.cluster

    def _fit_place(self, data: Any) -> str | None:
        """Return where the passes of a fit run. Matrices and strings in memory are always processed in this process."""
        return self._place if getattr(data, "travels", True) else "sync"

    def _shown(self) -> AbstractContextManager[Sink]:
        """Return a context manager that yields the progress display of a fit."""
        return shown_fit(self.verbose, type(self).__name__, self._config)

    @contextlib.contextmanager
    def _context(self, data: Any) -> Iterator[RunContext]:
        place, seed = self._fit_place(data), seed_of(self.random_state)
        with self._shown() as shown:
            emit = fan_out(self.callbacks, self.verbose, shown)
            with method_context(data, place, seed, self._takes_all_memory, emit, shown) as ctx:
                yield ctx

    @contextlib.contextmanager
    def _stored(self, X: object, *callbacks: Sink) -> Iterator[tuple[Any, Resources]]:
        """Yield the data of a store, and the resources with which passes over the store run."""
        with fit_context(as_data(X, estimator=self)[0], self._place, fan_out(callbacks, 0), 0) as ctx:
            yield ctx.data, ctx

    def _fit(self, inputs: Any, config: Any = None) -> State:
        """Run the method on inputs, set the fitted attributes and emit the method's warnings. Returns the final state."""
        config = self._config() if config is None else config
        with self._context(inputs.data) as ctx:
            fitted = fit(self._method, config, inputs, ctx)
            problem, outcome, result = fitted.problem, fitted.outcome, fitted.result
            known = problem.inputs if inputs.data is ctx.data else inputs  # not those of a store that goes with the context
            self._set_model(result.model)
            self._keep_run(problem, known, outcome.state)
            self._set_stop(result.stop)
            source = Fit(self._method, problem.config, known, grams=hand_over(None, problem))
            del fitted, problem  # what they hold makes room for the fits of a calibration
            calibrated = self._with_calibration(source, result.model, ctx)
            if calibrated is not result.model:
                self.model_ = calibrated
        self._set_history(outcome.history)
        for message in result.warnings:
            warn_user(message)
        if hasattr(self, "converged_"):  # (a path that is followed to its end has no tolerance to miss)
            self._warn_unfinished(self.converged_, ended_early(config) if result.unfinished is None else result.unfinished)
        return outcome.state

    def _keep_run(self, problem: Any, inputs: Any, state: State) -> None:
        """Keep parts of a fit that later calls need in addition to its model."""

    def _with_calibration(self, fit: Fit, model: Any, ctx: RunContext) -> Any:
        """Return the model, calibrated if the parameters request calibration during the fit. Otherwise keep references to the data for
        later.
        """
        vars(self).pop("_late", None)
        if not has_probabilities(self) or known_calibration(fit.method, model):
            return model
        if fit.config.calibrates:
            return replace(model, calibration=calibrate_now(fit, ctx))
        self._late = late_calibration(fit, self._fit_place(fit.inputs.data), ctx.seed, self._takes_all_memory)
        return model

    def _set_stop(self, stop: str | None) -> None:
        """Set the reason to stop. If the bounds of the optimum contradict each other, the fit has not converged and its gaps are NaN."""
        self.stop_reason_ = stop
        if stop == BOUNDS:
            self.converged_ = False
            for name in (f"{gap}_" for gap in ("dual_gap", *GAPS)):
                if name in vars(self):
                    setattr(self, name, np.nan * getattr(self, name))

    def _warn_unfinished(self, converged: bool, message: str) -> None:
        """Set ``converged_``. If it is False and ``message`` is not empty, emit a ConvergenceWarning."""
        self.converged_ = converged
        if message and not converged:
            warn_user(message, ConvergenceWarning)

    def _set_model(self, model: object) -> None:
        """Set the fitted attributes derived from the model; subclasses add their own."""
        self.model_ = model

    def _chart_tables(self) -> Tables:
        """Return the tables for the plots of :mod:`gramplane.plot`."""
        names = known_names(self)
        return self._method.tables(self.model_, None if names is None else [str(name) for name in names])

    def _set_history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Set ``history_``: one array per metric, with one entry per iteration."""
        self.history_ = history_arrays(rows)

    def _decide(self, X: object, **rows: Any) -> np.ndarray:
        """Return the decision values of rows. BLAS has one thread, because its number of threads would change the last bits."""
        with one_thread():
            return self._values(X, **rows)

    def _values(self, X: object) -> np.ndarray:
        """Return the decision values ``(n_samples, n_machines)`` for data in any supported form."""
        check_is_fitted(self)
        if is_store(X):
            with self._stored(X) as (data, resources):
                return self.model_.decision_values(data, resources)
        return row_decision_values(self.model_, self._checked(X, reset=False))

    def _probabilities(self, X: object, **rows: Any) -> np.ndarray:
        values = self._decide(X, **rows)
        found = known_calibration(self._method, self.model_) or (None if self._late is None else self._late.get())
        if found is None:
            raise ValueError(
                f"{type(self).__name__}: probabilities are not calibrated, and the training data are gone (after partial_fit, or in a "
                "copied or loaded model); fit again with probability='sigmoid' or 'isotonic', or call predict_proba before copying. "
                "If the estimator has a logistic loss, that loss needs no calibration"
            )
        return class_probabilities(found, values)

    def __getstate__(self) -> dict[str, Any]:
        # Copies carry no training data.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_training"}

    @classmethod
    def from_model(cls, model: Any, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        estimator = cls(**{name: value for name, value in cls._model_params(model, params).items() if name in cls().get_params()})
        classes = json.loads(getattr(model, "classes_json", "null"))
        if classes is not None:
            estimator.classes_ = np.asarray(classes)
        if hasattr(model, "n_features"):
            estimator.n_features_in_ = model.n_features
        estimator._set_model(model)
        estimator._set_history(list(history))
        return estimator

    @classmethod
    def _model_params(cls, model: object, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the parameters that a saved model was fitted with."""
        return params


class Classifier(ClassifierMixin, Estimator):
    """Base of classifiers. Subclasses with further inputs per row redefine the methods and pass these inputs on as ``**rows``."""

    _is_classifier = True

    def _labels(self, X: UserData, **rows: Any) -> np.ndarray:
        return predicted_labels(self.decision_function(X, **rows), self.classes_)

    def decision_function(self, X: UserRows) -> np.ndarray:
        """Return ``f(x)``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        return by_class(self._decide(X))

    def predict(self, X: UserRows) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        return self._labels(X)

    @available_if(has_probabilities)
    def predict_proba(self, X: UserRows) -> np.ndarray:
        """Return the class probabilities, ``(n_samples, n_classes)``, in the order of ``classes_``.

        :meth:`predict` uses decision values, so after calibration it may differ from the most probable class. With ``probability="auto"``
        and a loss other than the logistic one, the first call after a fit takes as long as about five fits.

        Raises ValueError if the data for the calibration are missing, or were changed since the fit.
        """
        return self._probabilities(X)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: UserRows) -> np.ndarray:
        """Return the logarithms of :meth:`predict_proba`, ``(n_samples, n_classes)``."""
        return log_of(self.predict_proba(X))

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None) -> float:
        """Return the accuracy. If ``X`` is a block store, ``y`` defaults to its target."""
        return score_of(True, X, y, self.predict(X), sample_weight)


class Regressor(RegressorMixin, Estimator):
    """Base of regressors."""

    def predict(self, X: UserRows) -> np.ndarray:
        """Return the predicted values, ``(n_samples,)``."""
        return self._decide(X)[:, 0]

    def score(self, X: UserRows, y: Column = None, sample_weight: Column = None) -> float:
        """Return the coefficient of determination, R2. If ``X`` is a block store, ``y`` defaults to its target."""
        return score_of(False, X, y, self.predict(X), sample_weight)


def by_class(values: np.ndarray) -> np.ndarray:
    """Return decision values in scikit-learn's shape: ``(n_samples,)`` if there is one column."""
    return values[:, 0] if values.shape[1] == 1 else values


def predicted_labels(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the labels predicted by decision values."""
    return classes[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]


def checked_weight(sample_weight: Column, n: int) -> np.ndarray:
    """Return the weights of n rows. Raises ValueError if there are not n weights, or if a weight is negative or not finite."""
    return _check_sample_weight(in_memory(sample_weight, "sample_weight"), np.empty((n, 0)), dtype=np.float64, ensure_non_negative=True)


def log_of(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms, with minus infinity for 0 and no warning."""
    with np.errstate(divide="ignore"):
        return np.log(probabilities)

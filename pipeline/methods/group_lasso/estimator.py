"""GroupLassoClassifier and GroupLassoRegressor: linear models with few groups of features, learned from a stream or as a batch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils import column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ....kernels.group_lasso.dual_averaging import Rows
from ....kernels.group_lasso.streams import StreamLearner
from ....storage import ColumnScale, DataError, MemoryBlocks
from ...estimators.inputs import (
    Classifying,
    OneThread,
    Predicting,
    fan_out,
    fit_context,
    history_arrays,
    in_memory,
    is_store,
    opened_for,
    seed_of,
    validated,
    warn_user,
)
from ...estimators.kernels import documented
from ...inputs.labels import class_factors
from ...loops.run import run_loop
from ...models.linear import LinearModel
from ...passes.scaling import inverse_row_norms
from ...records.validation import configured
from ...runs.predict import decision_values, product
from .config import GroupLassoConfig
from .group_lasso_texts import CLASS_WEIGHT, PARAMETERS, REST
from .inputs import GroupLassoInputs
from .method import engine_of, linear_model
from .rows import UNSCALED, plain_rows, scaled_rows
from .stream import Machine, StreamState, machine_of


def _streams(estimator: Any) -> bool:
    if estimator.algorithm == "fista":
        raise AttributeError("algorithm='fista' needs all rows at once; partial_fit takes algorithm='da' or 'fobos'")
    return True


class _GroupLasso(OneThread, BaseEstimator):
    """What classifier and regressor share."""

    _is_classifier: ClassVar[bool] = True

    groups: Any
    cluster: Any
    random_state: Any
    verbose: Any
    callbacks: Any
    n_features_in_: int
    classes_: np.ndarray
    _machine: Machine
    _stream: StreamLearner | None
    _model: LinearModel | None

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_model", None) is not None or getattr(self, "_stream", None) is not None

    # -- fitting -----------------------------------------------------------------------------------------------------------

    def _config(self) -> GroupLassoConfig:
        params = {name: value for name, value in self.get_params(deep=False).items() if name in GroupLassoConfig.model_fields}
        if isinstance(params.get("class_weight"), Mapping):
            params["class_weight"] = {str(key): value for key, value in params["class_weight"].items()}
        if isinstance(params["r"], np.ndarray):
            params["r"] = params["r"].tolist()
        return configured(GroupLassoConfig, {name: v.item() if isinstance(v, np.generic) else v for name, v in params.items()})

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays, a Dask array, or a block store (its path or object; ``y=None`` takes the stored target).

        Parameters
        ----------
        X
            ``(n_samples, n_features)`` array, CSR or CSC matrix, Dask array, or block store.
        y
            ``(n_samples,)`` class labels or numbers.
        sample_weight
            ``(n_samples,)`` factors of the losses; rows of weight 0 take part in no round.

        Raises
        ------
        ValueError
            A parameter out of range, non-finite data, fewer than two classes, groups that do not fit the data, iterates that diverge.
        """
        config = self._config()
        engine, inputs = engine_of(config), self._inputs(X, y, sample_weight)
        with fit_context(inputs.data, self.cluster, fan_out(self.callbacks, self.verbose), seed_of(self.random_state)) as ctx:
            loop = engine.build_loop(config, inputs, ctx)
            outcome = run_loop(loop, ctx, keep=False)
            self._set_model(engine.model_of(loop, outcome.state, ctx))
        self._set_history(outcome.history)
        if isinstance(outcome.state, StreamState) and inputs.data.scale.kind == "none":
            # A stream goes on from here with partial_fit; rows of a scaled store would not be those that come then.
            self._machine, self._stream = loop.machine, loop.machine.learner(outcome.state.point)
        self.converged_ = outcome.state.stop not in ("max_iter", "no_progress")
        if not self.converged_:
            reason = f"max_iter={config.max_iter}" if outcome.state.stop == "max_iter" else "round-off"
            warn_user(f"{reason} ended the fit at the gap {self.dual_gap_:.3g}", ConvergenceWarning)
        return self

    def _inputs(self, X: Any, y: Any, sample_weight: Any) -> GroupLassoInputs:
        if is_store(X):
            data = opened_for(self, X)
            self.n_features_in_ = data.n_cols
            target = self._stored_target(data) if y is None else column_or_1d(y)
            if len(target) != data.n_rows:
                raise ValueError(f"y has {len(target)} entries, {data.url} has {data.n_rows} rows")
            if sample_weight is None and data.has_table("weight"):
                sample_weight = data.row_table("weight")
        else:
            if y is None:
                raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
            X, target = self._validated(in_memory(X), y, reset=True)
            data = MemoryBlocks(X)
        weight = None if sample_weight is None else _weights(sample_weight, data.n_rows)
        groups = data.groups() if self.groups is None else self.groups
        return GroupLassoInputs(data, *self._encoded(target), weight, groups)

    def _stored_target(self, data: Any) -> np.ndarray:
        if not data.has_table("y"):
            raise DataError("there is no target; give y, or ingest a file that has one", data.url)
        labels, target = data.meta.labels, data.target()
        return target if labels is None else np.asarray(labels)[target.astype(np.int64)]

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Any, np.ndarray]:
        try:
            found: Any = validated(
                self, X, y, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], multi_output=False,
                y_numeric=not self._is_classifier,
            )  # fmt: skip
        except ValueError as error:
            bad = _first_bad_row(X)
            if bad is None:
                raise
            raise ValueError(f"{error}\nThe first such value is in row {bad}.") from error
        return found

    def _encoded(self, y: np.ndarray) -> tuple[np.ndarray, tuple[Any, ...] | None]:
        if not self._is_classifier:
            return np.asarray(y, np.float64), None
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}); a classifier needs samples of at least two classes")
        return codes, tuple(self.classes_.tolist())

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Self:
        """Learn rows in the order given; a round that is not full goes on with the next call."""
        first = getattr(self, "_stream", None) is None
        if first:
            self._begin(X, y, classes)
        elif classes is not None and not np.array_equal(classes, self.classes_) and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={list(classes)!r} is not the same as on the first call: {self.classes_.tolist()}")
        X = in_memory(X)
        rows = None if first else self._plain_rows(X, y)
        if rows is None:
            X, y = self._validated(X, y, reset=first)
            rows = scaled_rows(X, 0, UNSCALED)
        weight = np.ones(len(y)) if sample_weight is None else _weights(sample_weight, len(y))
        codes: Any = self._codes(y) if self._is_classifier else np.asarray(y, np.float64)
        if first:
            self._stream = self._new_learner(X.shape[1])
        assert self._stream is not None
        inputs = GroupLassoInputs(None, codes, tuple(self.classes_.tolist()) if self._is_classifier else None, weight)
        class_weight = getattr(self, "class_weight", None)
        if isinstance(class_weight, Mapping):
            factors = class_factors(self._config().class_weight or {}, inputs.labels, codes)
            weight = weight * factors[codes]
        self._stream.take(rows, inputs.targets, weight)
        self._model, self.n_iter_ = None, self._stream.rounds
        self.objective_ = self.dual_gap_ = float("nan")
        self.converged_, self.history_ = True, {}
        return self

    def _plain_rows(self, X: Any, y: Any) -> Rows | None:
        """Return rows that scikit-learn's validation would take as they are, without its costs per call; ``None`` where in doubt."""
        if type(y) is not np.ndarray or y.ndim != 1 or hasattr(self, "feature_names_in_"):
            return None
        if y.dtype.kind not in "iub" and not (y.dtype.kind == "f" and np.isfinite(y).all()):
            return None
        rows = plain_rows(X, self.n_features_in_)
        return rows if rows is not None and len(rows.order) == len(y) else None

    def _begin(self, X: Any, y: Any, classes: Any) -> None:
        config = self._config()
        if getattr(self, "_model", None) is not None:
            raise ValueError(
                "partial_fit cannot go on: where a stream stands is no part of a saved model, of a batch fit, or of a fit on scaled rows"
            )
        if not self._is_classifier:
            return
        if classes is None:
            raise ValueError("classes must be passed on the first call to partial_fit.")
        if config.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows at once; give a dict of factors to partial_fit")
        self.classes_ = np.unique(classes)
        if len(self.classes_) < 2:
            raise ValueError(f"classes={list(classes)!r}: a classifier needs at least two")

    def _codes(self, y: np.ndarray) -> np.ndarray:
        # Labels of another kind cannot be sorted in among the classes.
        alike = (np.asarray(y).dtype.kind in "OUS") == (self.classes_.dtype.kind in "OUS")
        codes: Any = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1) if alike else np.zeros(len(y), np.int64)
        unknown = np.flatnonzero(self.classes_[codes] != y) if alike else np.zeros(1, np.int64)
        if unknown.size:
            k = int(unknown[0])
            raise ValueError(f"y[{k}] is {np.asarray(y)[k]!r}, which is not one of the classes {self.classes_.tolist()}")
        return codes

    def _new_learner(self, n_features: int) -> StreamLearner:
        classes = tuple(self.classes_.tolist()) if self._is_classifier else None
        inputs = GroupLassoInputs(None, np.zeros(0, np.int64), classes, None, self.groups)
        self._machine = machine_of(self._config(), inputs, n_features)
        return self._machine.learner()

    def finish(self) -> Self:
        """Close the open round of ``partial_fit``, however few rows it has."""
        check_is_fitted(self)
        if self._stream is not None:
            self._stream.finish()
            self._model, self.n_iter_ = None, self._stream.rounds
        return self

    # -- results -----------------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> LinearModel:
        """The fitted model, a plain record."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet")
        if self._model is None:
            # Made when asked for: a call of partial_fit costs nothing of the width of the rows.
            assert self._stream is not None
            classes = tuple(self.classes_.tolist()) if self._is_classifier else None
            state = StreamState(0, None, 0, 0, 0, 0, self._stream.point())
            self._model = linear_model(self._machine, classes, _Plain(self._stream.penalty.n_features), state)
        return self._model

    def _set_model(self, model: LinearModel) -> None:
        self._model, self._stream = model, None
        self.objective_, self.dual_gap_ = model.figures["objective"], model.figures["gap"]
        self.n_iter_ = int(model.figures["rounds"])

    def _set_history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.history_ = history_arrays(rows)

    @property
    def coef_(self) -> Any:
        """Weights of every machine, ``(n_machines, n_features)``."""
        return self.model_.coef

    @property
    def intercept_(self) -> np.ndarray:
        """Intercept of every machine, ``(n_machines,)``."""
        return self.model_.intercepts

    @property
    def active_groups_(self) -> np.ndarray:
        """Labels of the groups with a weight in some machine."""
        return self.model_.arrays["active_groups"]

    @classmethod
    def from_model(cls, model: LinearModel, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> Self:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**{name: value for name, value in params.items() if name in cls().get_params()})
        if cls._is_classifier:
            estimator.classes_ = np.asarray(json.loads(model.classes_json))
        estimator.n_features_in_ = model.n_features
        estimator._set_model(model)
        estimator._set_history(list(history))
        estimator.converged_ = model.figures.get("converged", 1.0) > 0
        return estimator

    def _decide(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        model = self.model_
        if is_store(X):
            with fit_context(opened_for(self, X), self.cluster, fan_out(None, 0), 0) as ctx:
                return decision_values(model, ctx)
        X = validated(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        values = product(X, model.coef)
        return (values * inverse_row_norms(X)[:, None] if model.row_scaled else values) + model.intercepts


@dataclass(frozen=True)
class _Plain:
    """Data without scales, for a model of rows as they came."""

    n_cols: int
    scale: ColumnScale = UNSCALED


def _weights(sample_weight: Any, n: int) -> np.ndarray:
    return _check_sample_weight(sample_weight, np.empty((n, 0)), dtype=np.float64, ensure_non_negative=True)


def _first_bad_row(X: Any) -> int | None:
    """Return the first row with NaN or infinity, if that can be told."""
    if sp.issparse(X):
        entries: Any = sp.coo_array(X)
        rows = entries.coords[0][~np.isfinite(entries.data)]
        return int(rows.min()) if rows.size else None
    try:
        bad = ~np.isfinite(np.asarray(X, np.float64))
    except (TypeError, ValueError):
        return None
    return int(bad.any(axis=1).argmax()) if bad.ndim == 2 and bad.any() else None


@documented(PARAMETERS, REST, CLASS_WEIGHT)
class GroupLassoClassifier(Classifying, _GroupLasso):
    """Linear classifier with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    Minimises ``sum_i loss(y_i (<w, x_i> + b)) / n + Omega(w)``; several classes are fitted one against the rest, on the same stream.
    """

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1"] = "gl",
        lam: float = 0.01,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | Sequence[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal["da", "fobos", "fista"] = "da",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "logistic", "squared", "hinge"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @available_if(_streams)
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn rows in the order given; any cut of a stream into calls gives the same bits.

        A round that is not full at the end of a call goes on with the next; predictions use closed rounds (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` labels.
        classes
            All labels there will be; needed at the first call.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            A label that is none of the classes, non-finite data (the row is named), another width; nothing of the call is learned then.
        """
        return self._partial_fit(X, y, sample_weight, classes)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return ``f(x) = <w, x> + intercept_``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        values = self._decide(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]


@documented(PARAMETERS, REST)
class GroupLassoRegressor(Predicting, _GroupLasso):
    """Linear regression with few groups of features: online group lasso by dual averaging, FOBOS, or the batch optimum.

    Minimises ``sum_i loss(y_i, <w, x_i> + b) / n + Omega(w)``, the loss being ``(y - f)^2 / 2``.
    """

    _is_classifier = False

    def __init__(
        self,
        penalty: Literal["gl", "sgl", "egl", "l1"] = "gl",
        lam: float = 0.01,
        gamma: float = 1.0,
        groups: Any = None,
        r: float | Sequence[float] = 1.0,
        rho: float = 0.0,
        algorithm: Literal["da", "fobos", "fista"] = "da",
        epochs: int = 1,
        batch_size: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = True,
        average: bool = False,
        loss: Literal["auto", "squared"] = "auto",
        tol: float = 1e-4,
        max_iter: int = 1000,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.penalty = penalty
        self.lam = lam
        self.gamma = gamma
        self.groups = groups
        self.r = r
        self.rho = rho
        self.algorithm = algorithm
        self.epochs = epochs
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.average = average
        self.loss = loss
        self.tol = tol
        self.max_iter = max_iter
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    @available_if(_streams)
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn rows in the order given; any cut of a stream into calls gives the same bits.

        A round that is not full at the end of a call goes on with the next; predictions use closed rounds (see :meth:`finish`).

        Parameters
        ----------
        X, y
            ``(n, n_features)`` rows and ``(n,)`` numbers.
        sample_weight
            ``(n,)`` factors of the losses.

        Raises
        ------
        ValueError
            Non-finite data (the row is named), another width; nothing of the call is learned then.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted numbers, ``(n_samples,)``."""
        return self._decide(X)[:, 0]

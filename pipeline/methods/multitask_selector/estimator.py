"""MultiTaskSelector: linear models of many tasks that share their features, learned in rounds of one row per task or as a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ....kernels.group_lasso.task_selection import TaskStream
from ...estimators.inputs import Selection, fan_out, fit_context, in_memory, is_store, opened_for, validated
from ...estimators.kernels import is_text, labelled
from ...estimators.tasks import TaskEstimator
from ...inputs.labels import class_factors
from ...inputs.tasks import known_codes, task_codes
from ...models.linear import LinearModel
from ...passes.columns import fetch_columns
from ...passes.scaling import inverse_row_norms
from ...runs.predict import decision_values
from . import method as selector_run
from .batch import CUT_SHORT
from .config import SelectorConfig
from .inputs import task_rows
from .partial_fit import Learned, first_not_finite

ROWS: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "accept_large_sparse": False}
"""Forms of rows that are taken."""


def _classifies(estimator: Any) -> bool:
    return estimator.loss != "squared"


def _online(estimator: Any) -> bool:
    """Whether rows can be learnt one after the other; it is an attribute error to ask where not."""
    whole = {
        "algorithm": estimator.algorithm == "fista",
        "refit": estimator.refit is not None,
        "task_offset": estimator.task_offset is not None,
        "class_weight": isinstance(estimator.class_weight, str),
    }
    for name, needed in whole.items():
        if needed:
            raise AttributeError(f"{name}={getattr(estimator, name)!r} needs all rows at once, which only fit has")
    return True


class MultiTaskSelector(Selection, TaskEstimator):
    """Linear models of many tasks that choose their features together, learned online by dual averaging or as a batch.

    Minimises ``sum_q mean_i loss(y_qi, <w_q, x_qi> + b_q) + Omega(W)`` over tasks q, with a row W_j of the matrix of weights per feature:
    ``Omega = lam sum_jq |W_jq|`` (``"imtfs"``), ``lam sum_j ||W_j||_2`` (``"amtfs"``), or ``lam sum_j (||W_j||_2 + r ||W_j||_1)``
    (``"mtfts"``). Online, round t brings one row of each task, tasks that have run out give none, and the weights are
    ``argmin <mean subgradient, W> + Omega(W) + gamma / (2 sqrt(t)) ||W||^2``, in closed form. With ``loss="squared"`` it is a regressor,
    else a classifier of two classes.

    Parameters
    ----------
    penalty
        ``"imtfs"``: every task chooses by itself; ``"amtfs"``: all tasks have the same features; ``"mtfts"``: each has some of them.
    lam
        Weight of the penalty beside *mean* losses.
    gamma
        Dual averaging: weight of the proximity term; of the order of the rows' squared norms, or predictions grow without bound.
    r
        ``"mtfts"``: share of the l1 norm.
    loss
        ``"squared"`` (``(y - f)^2 / 2``, numbers), ``"logistic"`` or ``"hinge"`` (two classes).
    algorithm
        ``"da"``: dual averaging over rounds; ``"fista"``: the batch optimum with its duality gap.
    epochs
        Passes over the rows of ``fit``.
    shuffle
        Permute the rows of every task anew in every epoch, from ``random_state``; else the k-th rows of all tasks make up round k.
    fit_intercept
        Fit an intercept for every task, without penalty.
    task_offset
        Squared loss: what is subtracted from the target before the fit and added to predictions. ``"mean"``: the mean of all training rows;
        ``"shrunken"``: each task's own mean, shrunk towards it by what the task's rows can tell.
    refit
        Fit once more on the selected features alone, at this ``lam``: the selection is made by a strong penalty, the weights by a weak one.
    tol, max_iter
        Batch only: relative duality gap at which the fit ends; sweeps (squared), Newton steps (logistic) or proximal steps (hinge) at most.
    class_weight
        ``"balanced"`` or a dict of class factors of the loss; only a dict for ``partial_fit``.
    cluster
        Where the passes over a store run: ``None`` in-process, ``"local:4"``, ``"tls://..."`` ...
    random_state
        Seed of the orders.
    verbose
        Log one line per step.
    callbacks
        Functions called with an event record per step.

    Attributes
    ----------
    tasks_
        Names of the tasks.
    classes_
        The two classes.
    coef_, intercept_
        ``(n_tasks, n_features)``, sparse where wide, and ``(n_tasks,)``, offsets included.
    objective_, dual_gap_
        Value of the batch problem at the weights (of the second fit with ``refit``), and its distance to the optimum: NaN for ``"da"``.
    n_iter_, converged_, history_
        Rounds or sweeps, whether ``tol`` was reached, and one array per figure over the steps.

    Notes
    -----
    :meth:`partial_fit` takes rows in the order given: a round is complete when every task has given a row, or when a task comes a second
    time. Models speak of complete rounds only, so results do not depend on how the rows are cut into calls, to the bit.

    References
    ----------
    Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 4.
    """

    _config_type = SelectorConfig
    _method = selector_run
    kernels = None

    def __init__(
        self,
        penalty: Literal["imtfs", "amtfs", "mtfts"] = "mtfts",
        lam: float = 0.1,
        gamma: float = 1.0,
        r: float = 0.01,
        loss: Literal["squared", "logistic", "hinge"] = "squared",
        algorithm: Literal["da", "fista"] = "da",
        epochs: int = 1,
        shuffle: bool = True,
        fit_intercept: bool = False,
        task_offset: Literal["mean", "shrunken"] | None = None,
        refit: float | None = None,
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
        self.r = r
        self.loss = loss
        self.algorithm = algorithm
        self.epochs = epochs
        self.shuffle = shuffle
        self.fit_intercept = fit_intercept
        self.task_offset = task_offset
        self.refit = refit
        self.tol = tol
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.target_tags.required = True
        if _classifies(self):
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags(multi_class=False)
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        return tags

    @property
    def _is_classifier(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] (it depends on the loss)
        return _classifies(self)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model") or hasattr(self, "_learned")

    # -- fitting -------------------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, task: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays, sparse matrices, Dask arrays, or a block store.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; a block store may hold target and tasks itself.
        y
            ``(n_samples,)`` numbers, or labels of two classes.
        task
            ``(n_samples,)`` integers or strings that name the task of each row, in any order; ``None`` is a single task.
        sample_weight
            ``(n_samples,)`` factors of the loss; rows of weight 0 take no place in a round.

        Raises
        ------
        ValueError
            A parameter out of range, data that are not finite, more than two classes, an empty task, predictions without bound.
        """
        self._forget()
        config = self._config()
        inputs = self._task_inputs(X, y, task, sample_weight)
        state = self._fit(selector_run, config, inputs)
        # A stream goes on with rows as they come, so only from sums over rows that were taken as they are.
        if config.algorithm == "da" and config.refit is None and config.task_offset is None and inputs.data.scale.kind == "none":
            self._learned = Learned.after(config, state.stream)
        self._warn_unfinished(bool(self.model_.figures["converged"]), self._unfinished(state))
        return self

    def _unfinished(self, state: Any) -> str:
        ended = "rounding" if state.stop == "no_progress" else f"max_iter={self.max_iter}"
        if state.phase == CUT_SHORT:
            return f"{ended} ended the selection before tol={self.tol:g} was reached; the second fit is on the features it had by then"
        return f"{ended} ended the fit before tol={self.tol:g} was reached"

    def _data(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """Return the data set of a fit, and the target checked against it; the first row that is not finite is named."""
        if is_text(X):
            raise ValueError("X holds strings; features are numbers")
        return super()._data(X, y) if is_store(X) else self._named(X, lambda found: super(MultiTaskSelector, self)._data(found, y))

    def _named(self, X: Any, check: Callable[[Any], Any]) -> Any:
        """Return what a check of rows returns; the message of its error begins with the first row that is not finite."""
        X = in_memory(X)
        try:
            return check(X)
        except ValueError as error:
            row = first_not_finite(X)
            if row is None:
                raise
            raise ValueError(f"row {row}: {error}") from None

    def _forget(self) -> None:
        for name in ("_model", "_learned", "classes_"):
            if name in vars(self):
                delattr(self, name)

    @available_if(_online)
    def partial_fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None, *, tasks: Any = None, classes: Any = None) -> Self:
        """Learn from more rows, in the order given.

        Parameters
        ----------
        X, y, task, sample_weight
            As for :meth:`fit`, in memory.
        tasks, classes
            All tasks and both classes there will be; needed where the rows of the first call do not show them all.

        Raises
        ------
        ValueError
            Rows that are not finite, a task or class that is not known: no row of the call was learnt from. Predictions without bound.
        AttributeError
            Parameters that need all rows at once.
        """
        config = self._config()
        begun = hasattr(self, "_learned")
        if not begun and hasattr(self, "_model"):
            raise ValueError(
                "this estimator was loaded or fitted as a batch, or on a scaled store: it holds no stream to go on from; take a new one"
            )
        X, y = self._validated_rows(X, y, begun)
        weight = (
            np.ones(X.shape[0])
            if sample_weight is None
            else _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        )
        codes, target = self._codes(task, tasks, X.shape[0], begun), self._signs(y, classes, begun)
        if config.class_weight is not None:
            labels = (target > 0).astype(np.int64)
            weight = weight * class_factors(config.class_weight, self.classes_.tolist(), labels)[labels]
        if not begun:
            self._learned = Learned.after(config, TaskStream.empty(X.shape[1], len(self.tasks_)))
            self.history_, self.converged_ = {}, True
        vars(self).pop("_model", None)
        self._learned.learn(task_rows(X, codes, target, weight), self.tasks_.tolist())
        return self

    def _validated_rows(self, X: Any, y: Any, begun: bool) -> tuple[Any, np.ndarray]:
        options: Any = {"reset": not begun, "y_numeric": not self._is_classifier, **ROWS}
        return self._named(X, lambda found: validated(self, found, y, **options))

    def _codes(self, task: Any, tasks: Any, n: int, begun: bool) -> np.ndarray:
        if begun:
            return known_codes(task, tuple(self.tasks_.tolist()), n)
        if tasks is None:
            codes, names = task_codes(task, n)
        else:
            _, names = task_codes(np.asarray(tasks), len(tasks))
            codes = known_codes(task, names, n)
        self.tasks_ = np.asarray(names)
        return codes

    def _signs(self, y: np.ndarray, classes: Any, begun: bool) -> np.ndarray:
        if not self._is_classifier:
            return np.asarray(y, np.float64)
        if not begun:
            self.classes_ = np.unique(y if classes is None else column_or_1d(classes))
            if len(self.classes_) != 2:
                raise ValueError(f"classes={self.classes_.tolist()}: there must be two; name both in the first call of partial_fit")
        unknown = np.flatnonzero(~np.isin(y, self.classes_))
        if unknown.size:
            raise ValueError(f"row {unknown[0]}: label {y[unknown[0]].item()!r} is not among the classes {self.classes_.tolist()}")
        return np.where(y == self.classes_[1], 1.0, -1.0)

    # -- the model -----------------------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> LinearModel:  # pyright: ignore[reportIncompatibleVariableOverride] (made when it is asked for)
        """The fitted machines; after ``partial_fit`` made when first asked for, which takes a sweep over all weights."""
        if not hasattr(self, "_model"):
            check_is_fitted(self)
            self._model = self._current()
        return self._model

    @model_.setter
    def model_(self, model: LinearModel) -> None:
        self._model = model

    def _current(self) -> LinearModel:
        held = self._learned
        return selector_run.online_model(
            self._config(),
            held.rounds,
            held.stream,
            tuple(self.tasks_.tolist()),
            tuple(self.classes_.tolist()) if self._is_classifier else None,
        )

    def _set_model(self, model: LinearModel) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] (the record of this family)
        self.model_ = model
        self.tasks_ = np.asarray(model.tasks)
        self.converged_ = bool(model.figures["converged"])

    @property
    def coef_(self) -> np.ndarray | sp.csr_array:
        """``(n_tasks, n_features)`` weights."""
        return self.model_.coef

    @property
    def intercept_(self) -> np.ndarray:  # pyright: ignore[reportIncompatibleVariableOverride] (follows from the model)
        """``(n_tasks,)`` intercepts, offsets included."""
        return self.model_.intercepts

    @property
    def objective_(self) -> float:
        """Value of the batch problem at the weights."""
        return self.model_.figures["objective"]

    @property
    def dual_gap_(self) -> float:
        """Distance of the objective to the optimum at most; NaN for dual averaging, which has no bound."""
        return self.model_.figures["gap"]

    @property
    def n_iter_(self) -> int:
        """Rounds or sweeps."""
        return int(self.model_.figures["iterations"])

    # -- using it ------------------------------------------------------------------------------------------------------------------

    def _values(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``(n_samples, 1)`` decision values of any form of data."""
        check_is_fitted(self)
        model = self.model_
        if is_store(X):
            return self._store_values(model, X, task)
        X = validated(self, X, reset=False, **ROWS)
        codes, none = known_codes(task, tuple(self.tasks_.tolist()), X.shape[0]), np.zeros(X.shape[0])
        factor = inverse_row_norms(X) if model.row_scaled else np.ones(X.shape[0])
        weights = selector_run.chosen_weights(model)
        values = task_rows(X[:, model.features], codes, none, none).decide(weights, np.zeros(len(weights)))
        return (factor * values + model.intercepts[codes])[:, None]

    def _store_values(self, model: LinearModel, X: Any, task: Any) -> np.ndarray:
        with fit_context(opened_for(self, X), self.cluster, fan_out(None, 0), 0) as ctx:
            if task is None:
                return decision_values(model, ctx)
            codes = known_codes(task, tuple(self.tasks_.tolist()), ctx.data.n_rows)
            return np.take_along_axis(decision_values(replace(model, tasks_json="null"), ctx), codes[:, None], axis=1)

    @available_if(_classifies)
    def decision_function(self, X: Any, task: Any = None) -> np.ndarray:
        """Return ``f_t(x)`` of every row x of task t, ``(n_samples,)``; positive speaks for the second class."""
        return self._values(X, task)[:, 0]

    def predict(self, X: Any, task: Any = None) -> np.ndarray:
        """Return the predicted numbers or labels, ``(n_samples,)``."""
        values = self._values(X, task)[:, 0]
        return labelled(values, self.classes_) if self._is_classifier else values

    def score(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> float:
        """Return the share of right labels over all rows, or R2 of numbers."""
        measure: Any = accuracy_score if self._is_classifier else r2_score
        return float(measure(in_memory(y, "y"), self.predict(X, task), sample_weight=sample_weight))

    def transform(self, X: Any) -> Any:
        """Return the columns of features that some task has selected; raw ones, also of a store."""
        check_is_fitted(self)
        if not is_store(X):
            return super().transform(X)
        with fit_context(opened_for(self, X), self.cluster, fan_out(None, 0), 0) as ctx:
            return fetch_columns(ctx, self.model_.features)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        mask = np.zeros(self.n_features_in_, bool)
        mask[self.model_.features] = True
        return mask

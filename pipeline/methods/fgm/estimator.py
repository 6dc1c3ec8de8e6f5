"""FGMClassifier: feature selection and classification by the Feature Generating Machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from ....storage import MEMORY_STRIPE_BYTES, DataError, MemoryBlocks
from ...estimators.inputs import (
    Classifying,
    OneThread,
    Selection,
    fan_out,
    fit_context,
    history_arrays,
    is_store,
    opened_for,
    seed_of,
    validated,
    warn_user,
)
from ...inputs.labels import Inputs
from ...loops.run import run_loop
from ...records.context import RunContext
from ...records.validation import configured
from ...runs.predict import decided, decision_values, model_columns
from .config import FGMConfig
from .fgm_setup import build_loop, build_model, refit
from .loop import FGMLoop, FGMState
from .model import FGMModel, MachineState

NAN = float("nan")

WIDE = 50_000
"""From this many features ``coef_`` is a sparse row: a dense one would be mostly zeros."""

_NOT_PARAMETERS = ("groups", "cluster", "random_state", "verbose", "callbacks")


@dataclass(frozen=True)
class PathPoint:
    """The model after one round.

    Attributes
    ----------
    support
        ``(k,)`` coordinates with weight (features; ``(k, 2)`` pairs for ``poly2``).
    weights
        ``(k,)`` their weights.
    intercept
        Added to ``<weights, x>``.
    objective, gap, outer_gap
        F_t and its certificates.
    n_selected
        Distinct atoms so far.
    """

    support: np.ndarray
    weights: np.ndarray
    intercept: float
    objective: float
    gap: float
    outer_gap: float
    n_selected: int


class FGMClassifier(Selection, Classifying, OneThread, BaseEstimator):
    """Linear classifier on few features chosen by cutting planes (Feature Generating Machine).

    Solves ``min_{w, b} 1/2 ||w||_B^2 + sum_i loss_i(y_i (<w, x_i> + intercept))`` approximately, by ``max_rounds`` cuts of ``B`` features
    each; ``||w||_B`` is the k-support norm with k = B. The number of selected features is set by ``B`` and ``max_rounds``, the fit by
    ``C``.

    Parameters
    ----------
    B
        Features (groups, pairs) per cut; between ``B`` and ``B * max_rounds`` are selected. Clipped to the number there is, with a warning.
    C
        Loss weight. Squared hinge has ``C/2 sum xi^2``: ``C`` is twice ``LinearSVC``'s. Logistic has ``C sum log(1 + exp(-m))``, as
        ``LogisticRegression``.
    max_rounds
        Cuts at most. The early stop is what selects: near-exact solutions are denser and often less accurate.
    n_features_to_select
        Stop as soon as exactly this many distinct features (groups, pairs) are selected.
    loss
        ``"squared_hinge"`` or ``"logistic"``.
    fit_intercept
        Fit an unpenalised intercept, eliminated exactly.
    groups
        One label per feature (negative: in no group), or a list of index arrays: disjoint, nested or overlapping.
    group_weight
        ``"none"``, ``"1/size"`` or one weight per group; default none, ``1/size`` for nested groups.
    feature_map
        ``None``, ``"poly2"`` (kernel ``(gamma x'z + coef0)^2``, never materialised), ``"hik"`` (histogram intersection, non-negative
        features) or ``"additive_gaussian"`` (``sum_j exp(-gamma (x_j - z_j)^2)``).
    gamma, coef0, n_bins
        Parameters of the maps.
    solver
        ``"auto"`` (Newton on the active rows), ``"newton"``, ``"apg"`` (the paper's), ``"mkl"`` (slow reference).
    inner_tol
        Relative duality gap at which a sub-problem ends.
    max_inner
        Sub-problem steps per round at most; ``dual_gap_`` then tells what was left.
    outer_tol
        Stop when the outer test falls to this value; default: never.
    allow_repeat
        Let a cut take a feature again, as the exact method does. ``False`` gives ``B`` new features a round.
    debias
        Refit on the selected features with C = 20.
    outer_stop
        Outer test: ``"gap"``, the certified relative distance to the exact optimum, or ``"decrease"``, the paper's (38).
    class_weight
        ``"balanced"`` or a dict of class factors of ``C``.
    cluster
        Where passes run: ``None`` in-process, ``"local:4"``, ``"tls://..."``, ``"scheduler-file:PATH"`` …
    random_state
        Seed of :meth:`selection_stability`.
    verbose
        Log one line per round.
    callbacks
        Functions called with an event record per round.

    Attributes
    ----------
    selected_
        Sorted distinct feature ids (group ids; ``(k, 2)`` for ``poly2``, second id -1 for a linear term). With several classes their union.
    coef_
        ``(n_machines, n_features)``, a sparse array from 50,000 features; for maps ``(n_machines, k)`` aligned with the map's columns.
    intercept_
        ``(n_machines,)``.
    cuts_, cut_weights_
        Atoms of each cut and their kernel weights mu; lists per class when there are several.
    path_
        :class:`PathPoint` after every round (a list per class when there are several).
    objective_, dual_gap_, outer_gap_
        F_T, the absolute duality gap of the last sub-problem, and the distance to the exact optimum; sums over classes.
    n_iter_, converged_, history_
        Rounds, whether what was asked for was reached, and one array per figure over the rounds.
    classes_, n_features_in_

    References
    ----------
    Tan, Tsang, Wang: Towards Ultrahigh Dimensional Feature Selection for Big Data. JMLR 15 (2014), problems (7), (31), (37).
    """

    def __init__(
        self,
        B: int = 10,
        C: float = 10.0,
        max_rounds: int = 10,
        n_features_to_select: int | None = None,
        loss: str = "squared_hinge",
        fit_intercept: bool = False,
        groups: Any = None,
        group_weight: Any = None,
        feature_map: str | None = None,
        gamma: float = 1.0,
        coef0: float = 1.0,
        n_bins: int = 100,
        solver: str = "auto",
        inner_tol: float = 1e-3,
        max_inner: int | None = None,
        outer_tol: float | None = None,
        allow_repeat: bool = True,
        debias: bool = False,
        outer_stop: str = "gap",
        class_weight: Any = None,
        cluster: str | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Sequence[Callable[[Mapping[str, Any]], None]] | None = None,
    ) -> None:
        self.B = B
        self.C = C
        self.max_rounds = max_rounds
        self.n_features_to_select = n_features_to_select
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.groups = groups
        self.group_weight = group_weight
        self.feature_map = feature_map
        self.gamma = gamma
        self.coef0 = coef0
        self.n_bins = n_bins
        self.solver = solver
        self.inner_tol = inner_tol
        self.max_inner = max_inner
        self.outer_tol = outer_tol
        self.allow_repeat = allow_repeat
        self.debias = debias
        self.outer_stop = outer_stop
        self.class_weight = class_weight
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose
        self.callbacks = callbacks

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # -- fitting -----------------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit on arrays (in-process), a Dask array, or a block store (its path or object; ``y=None`` takes the stored target).

        Parameters
        ----------
        X
            ``(n_samples, n_features)`` array, CSR or CSC matrix, Dask array, or block store.
        y
            ``(n_samples,)`` class labels.
        sample_weight
            ``(n_samples,)`` factors of ``C``; a store's own weights and groups are used unless others are given.

        Returns
        -------
        FGMClassifier
            Itself.

        Raises
        ------
        ValueError
            A parameter out of range, non-finite data, fewer than two classes, groups that do not fit the data.
        """
        config = self._config()
        inputs = self._inputs(X, y, sample_weight)
        # Held once: every sub-problem would take hold of BLAS anew.
        with self._context(inputs.data) as ctx:
            loop = build_loop(config, inputs, warn=_warn)
            for note in loop.notes:
                _warn(note)
            outcome = run_loop(loop, ctx, keep=False)
            self._take(config, inputs, loop, outcome.state, ctx)
        self._history(outcome.history)
        self._report_convergence(config, outcome.state)
        return self

    def _config(self) -> FGMConfig:
        params = {name: value for name, value in self.get_params(deep=False).items() if name not in _NOT_PARAMETERS}
        weight = params["class_weight"]
        if isinstance(weight, Mapping):
            params["class_weight"] = {str(key): value for key, value in weight.items()}
        if isinstance(params["group_weight"], np.ndarray):
            params["group_weight"] = params["group_weight"].tolist()
        return configured(FGMConfig, {name: _plain(value) for name, value in params.items()})

    @contextlib.contextmanager
    def _context(self, data: Any) -> Iterator[RunContext]:
        seed = seed_of(self.random_state)
        with fit_context(data, self.cluster, fan_out(self.callbacks, self.verbose), seed) as ctx:
            yield ctx

    def _inputs(self, X: Any, y: Any, sample_weight: Any) -> Inputs:
        if is_store(X):
            return self._stored_inputs(X, y, sample_weight)
        X, y = validated(
            self, X, y, accept_sparse=["csc", "csr"], dtype=[np.float64, np.float32], accept_large_sparse=True, multi_output=False
        )
        check_classification_targets(y)
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        return self._encoded(MemoryBlocks(X, stripe_bytes=MEMORY_STRIPE_BYTES), y, weight, self.groups)

    def _stored_inputs(self, X: Any, y: Any, sample_weight: Any) -> Inputs:
        store = opened_for(self, X)
        if y is None and not store.has_table("y"):
            raise DataError("there is no target; give y, or ingest a file that has labels", store.url)
        labels = store.meta.labels
        target = store.target() if y is None else column_or_1d(y)
        if y is None and labels is not None:
            target = np.asarray(labels)[target.astype(np.int64)]
        if len(target) != store.n_rows:
            raise ValueError(f"y has {len(target)} entries, {store.url} has {store.n_rows} rows")
        check_classification_targets(target)
        self.n_features_in_ = store.n_cols
        if sample_weight is None and store.has_table("weight"):
            sample_weight = store.row_table("weight")
        rows = np.empty((store.n_rows, 0))
        weight = None if sample_weight is None else _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        groups = store.groups() if self.groups is None and self.feature_map is None else self.groups
        return self._encoded(store, target, weight, groups)

    def _encoded(self, data: Any, y: np.ndarray, weight: np.ndarray | None, groups: Any) -> Inputs:
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class only ({self.classes_.tolist()[0]!r}); a classifier needs samples of at least two classes")
        return Inputs(data, codes, tuple(self.classes_.tolist()), weight, groups)

    def _take(self, config: FGMConfig, inputs: Inputs, loop: FGMLoop, state: FGMState, ctx: RunContext) -> None:
        """Set the fitted attributes."""
        refitted = refit(loop, state, ctx) if config.debias else None
        model = build_model(config, inputs, loop, state, refitted)
        self._set_model(model)
        # Kept for selection_stability; dropped when the estimator is pickled.
        self._training = inputs

    def _set_model(self, model: FGMModel) -> None:
        self.model_ = model
        machines = model.machines
        self.selected_ = _union([machine.selected() for machine in machines], pairs=model.kind == "poly2")
        self.coef_ = _coef(model)
        self.intercept_ = np.array(
            [_raw_units(model, model.coordinates, w, b)[1] for w, b in zip(model.weights, model.intercepts, strict=True)]
        )
        self.objective_ = float(sum(machine.objective for machine in machines))
        self.dual_gap_ = float(sum(machine.gap for machine in machines))
        self.outer_gap_ = float(sum(machine.outer_gap for machine in machines))
        self.n_iter_ = max(len(machine.rounds) for machine in machines)
        self.cuts_ = _single([list(machine.cuts) for machine in machines])
        self.cut_weights_ = _single([machine.rounds[-1].cut_weights if machine.rounds else np.zeros(0) for machine in machines])
        self.path_ = _single([_path(model, machine) for machine in machines])

    def _history(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self.history_ = history_arrays(rows)

    def _report_convergence(self, config: FGMConfig, state: FGMState) -> None:
        self.converged_ = all(_reached(config, machine) for machine in state.machines)
        wanted = config.n_features_to_select
        if wanted is not None and any(machine.stop == "max_rounds" for machine in state.machines):
            _warn(
                f"max_rounds={config.max_rounds} ended the fit before n_features_to_select={wanted} features were selected; raise "
                "max_rounds or B, or set allow_repeat=False"
            )
        elif config.outer_tol is not None and any(machine.stop == "max_rounds" for machine in state.machines):
            _warn(f"max_rounds={config.max_rounds} ended the fit before outer_tol={config.outer_tol} was reached")

    @classmethod
    def from_model(cls, model: FGMModel, params: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> FGMClassifier:
        """Return the fitted estimator of a saved model."""
        estimator = cls(**{name: value for name, value in params.items() if name in cls().get_params()})
        estimator.classes_ = np.asarray(json.loads(model.classes_json))
        estimator.n_features_in_ = model.n_features
        estimator._set_model(model)
        estimator._history(list(history))
        config = estimator._config()
        estimator.converged_ = all(_reached(config, machine) for machine in model.machines)
        return estimator

    # -- using -------------------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> np.ndarray:
        """Return ``f(x) = <w, x> + intercept_``: ``(n_samples,)`` for two classes, else ``(n_samples, n_classes)``."""
        check_is_fitted(self, "model_")
        values = self._decide(X)
        return values[:, 0] if values.shape[1] == 1 else values

    def _decide(self, X: Any) -> np.ndarray:
        if is_store(X):
            with fit_context(opened_for(self, X), self.cluster, fan_out(None, 0), 0) as ctx:
                return decision_values(self.model_, ctx)
        return decided(self.model_, model_columns(self.model_, self._checked(X)))

    def _checked(self, X: Any) -> Any:
        return validated(self, X, accept_sparse=["csc", "csr"], dtype=[np.float64, np.float32], reset=False)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted class labels, ``(n_samples,)``."""
        values = self.decision_function(X)
        return self.classes_[(values > 0).astype(int) if values.ndim == 1 else values.argmax(axis=1)]

    def transform(self, X: Any) -> Any:
        """Return the selected columns of ``X``; for ``poly2`` the selected product columns ``(n_samples, k)``."""
        check_is_fitted(self, "model_")
        if self.model_.kind != "poly2":
            return super().transform(X)
        return model_columns(self.model_, self._checked(X))

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns of :meth:`transform`; products are called ``a*b``."""
        check_is_fitted(self, "model_")
        if self.model_.kind != "poly2":
            return super().get_feature_names_out(input_features)
        names = _input_names(self, input_features)
        return np.array([_pair_name(names, int(a), int(b)) for a, b in self.model_.coordinates], dtype=object)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "model_")
        mask = np.zeros(self.n_features_in_, dtype=bool)
        mask[self.model_.features] = True
        return mask

    def selection_stability(self, n_resamples: int = 50, X: Any = None, y: Any = None) -> np.ndarray:
        """Return how often each feature (group) is selected over bootstrap resamples of the training rows.

        All resamples share the passes of one loop; a resample is a row weight, the data is never copied.

        Parameters
        ----------
        n_resamples
            Number of bootstrap resamples.
        X, y
            Training data, needed only when the estimator was loaded from a file.

        Returns
        -------
        numpy.ndarray
            ``(n_features,)`` (``(n_groups,)``) frequencies in [0, 1]; for ``poly2`` aligned with ``selected_``.
        """
        from .stability import bootstrap_frequencies

        check_is_fitted(self, "model_")
        inputs = self._inputs(X, y, None) if X is not None else getattr(self, "_training", None)
        if inputs is None:
            raise ValueError("selection_stability needs X and y: the training data is not kept in a saved estimator")
        config = self._config()
        with self._context(inputs.data) as ctx:
            return bootstrap_frequencies(config, inputs, ctx, n_resamples, self.selected_)

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_training"}


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _warn(message: str) -> None:
    warn_user(message, ConvergenceWarning if "max_rounds" in message else UserWarning)


def _reached(config: FGMConfig, machine: MachineState) -> bool:
    if not machine.rounds:
        return True
    record = machine.rounds[-1]
    asked = config.n_features_to_select is not None or config.outer_tol is not None
    solved = record.gap <= config.inner_tol * max(abs(record.objective), 1e-300)
    return solved and not (asked and machine.stop == "max_rounds")


def _union(parts: Sequence[np.ndarray], pairs: bool) -> np.ndarray:
    filled = [part for part in parts if len(part)]
    if not filled:
        return np.zeros((0, 2) if pairs else 0, np.int64)
    return np.unique(np.concatenate(filled), axis=0)


def _single(per_machine: list[Any]) -> Any:
    return per_machine[0] if len(per_machine) == 1 else per_machine


def _path(model: FGMModel, machine: MachineState) -> list[PathPoint]:
    points = []
    for t, record in enumerate(machine.rounds, start=1):
        support, weights, bias = machine.weights(t)
        weights, intercept = _raw_units(model, support, weights, -bias)
        points.append(PathPoint(support, weights, intercept, record.objective, record.gap, record.outer_gap, record.n_selected))
    return points


def _raw_units(model: FGMModel, support: np.ndarray, weights: np.ndarray, intercept: float) -> tuple[np.ndarray, float]:
    """Return weights and intercept that belong to the columns as they were given: ``w s`` and ``b - sum w s mu`` (maps keep theirs)."""
    if model.kind not in ("linear", "groups"):
        return weights, intercept
    where = np.searchsorted(model.features, support)
    if model.scale.factor is not None:
        weights = weights * model.scale.factor[where]
    shift = 0.0 if model.scale.shift is None else float(weights @ model.scale.shift[where])
    return weights, float(intercept - shift)


def _coef(model: FGMModel) -> np.ndarray | sp.csr_array:
    if model.kind not in ("linear", "groups"):
        return model.weights.copy()
    weights = np.array([_raw_units(model, model.coordinates, row, 0.0)[0] for row in model.weights])
    if model.n_features < WIDE:
        dense = np.zeros((len(weights), model.n_features))
        dense[:, model.coordinates] = weights
        return dense
    rows = np.repeat(np.arange(len(weights)), weights.shape[1])
    where = np.tile(model.coordinates, len(weights))
    return sp.csr_array((weights.ravel(), (rows, where)), shape=(len(weights), model.n_features))


def _input_names(estimator: Any, given: Any) -> Sequence[str]:
    if given is not None:
        return list(given)
    known = getattr(estimator, "feature_names_in_", None)
    return list(known) if known is not None else [f"x{j}" for j in range(estimator.n_features_in_)]


def _pair_name(names: Sequence[str], a: int, b: int) -> str:
    return names[a] if b < 0 else f"{names[a]}*{names[b]}"

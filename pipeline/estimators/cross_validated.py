"""CrossValidated: an estimator that chooses some of its parameters by cross-validation, along paths that share passes and warm starts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import joblib
import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import NotFittedError

from ...storage.value_types import UserData
from ..calibration.fits import LOGISTIC
from ..calibration.paths import path_values
from ..method import Method
from ..records.config import MethodConfig, make_config
from ..records.context import RunContext
from .base import MethodEstimator, method_context
from .held_out import FoldScores, Split, row_splits
from .parameters import Parameter


@dataclass(frozen=True)
class Grid:
    """A parameter that is searched: its name, that of its values, their default, and what to say of them.

    The first of an estimator is followed along a path, and its values stand in the place of the parameter; others stand beside theirs.
    """

    name: str
    plural: str
    default: int | Sequence[float] | None
    text: str
    kind: str = "int or list of float"
    descending: bool = False  # whether the largest value comes first: that of the simplest model
    span: tuple[float, float] | None = None  # from where to where a number of values is spread, in the unit of the estimator


class Score(NamedTuple):
    """The score of one fit at one point of its path."""

    point: int
    fold: int
    further: dict[str, Any]  # parameters a fit would end there with
    value: float


class Start(NamedTuple):
    """Where a search begins."""

    config: UserData  # parameters of all points but for those searched
    inputs: UserData
    ctx: RunContext


MACHINE_C = Grid(
    "C",
    "Cs",
    10,
    "Values of C; a number of them is spread evenly in the logarithm from 1/10 to 1000, in standard deviations of a real target.",
    span=(0.1, 1e3),
)

SEARCH_PARAMETERS = (
    Parameter(
        "cv",
        None,
        "int, splitter, iterable or None",
        Any,
        "Folds: a number, drawn from ``random_state`` as ``tune`` draws them, in every class or, of many tasks, in every task; or a "
        "splitter of scikit-learn, to which tasks are groups, or pairs of indices to learn from and to score. ``None``: 5, fewer where a "
        "class or task has fewer rows.",
    ),
    Parameter(
        "scoring",
        None,
        "str, callable or None",
        Any,
        "Name of a scorer of scikit-learn, or a callable ``(estimator, X, y)``, where ``X`` numbers the rows held out and the estimator "
        "has decided on them; ``None``: accuracy, or R2. Rows count by their weights.",
    ),
    Parameter("refit", True, "bool", bool, "Fit on all rows with the parameters chosen; else there is no model, only the scores."),
    Parameter(
        "one_standard_error",
        False,
        "bool",
        bool,
        "Choose the simplest model within one standard error of the best score, not the best.",
    ),
    Parameter(
        "n_jobs",
        None,
        "int or None",
        int | None,
        "Processes among which the folds are dealt, -1: all processors; the same bits for any number. ``None`` is 1.",
    ),
)


class CrossValidated(MethodEstimator):
    r"""Base of estimators that choose parameters by cross-validation; stands before the estimator that is fitted.

    The parameters are chosen by their mean score on rows held out; then all rows are fitted with them. Rows held out have weight zero,
    nothing is copied: folds share passes over the data and Gram matrices, and the fits of a fold start from one another. Kernels are
    normalised over all rows, those held out included.

    Attributes
    ----------
    best_params_, best_score_, best_index_
        Parameters chosen, their mean score, and their place in ``cv_results_``.
    cv_results_
        Arrays with one entry a point, as ``GridSearchCV`` has them: ``params``, ``param_*``, ``split*_test_score``, ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``.
    n_splits_, scorer_
        Number of folds, and what scored them.
    """

    _grids: ClassVar[Sequence[Grid]] = ()
    _along: ClassVar[tuple[str, ...]] = ()  # further parameters that come with a path, such as the number of rounds
    # Of points with like scores that is the simplest of the smallest product of these parameters, of the next ones among equals; then the
    # first one.
    _simplest_by: ClassVar[Sequence[tuple[str, ...]]] = ()
    _chosen: MethodConfig | None = None  # parameters of the refit

    cv: UserData
    scoring: UserData
    refit: bool
    one_standard_error: bool
    n_jobs: int | None

    @classmethod
    def _parameters(cls) -> list[Parameter]:
        declared, grids = list[Parameter](), {grid.name: grid for grid in cls._grids}
        for item in super()._parameters():
            grid = grids.get(item.name)
            if grid is None or grid is not cls._grids[0]:
                declared.append(item)
            if grid is not None:
                declared.append(Parameter(grid.plural, grid.default, grid.kind, int | Sequence[float] | None, grid.text))
        edge = len(declared) - len(cls._run_parameters)
        return [*declared[:edge], *SEARCH_PARAMETERS, *declared[edge:]]

    def __sklearn_is_fitted__(self) -> bool:
        has_model = vars(self).get("model_", vars(self).get("_model")) is not None
        if not has_model and hasattr(self, "cv_results_"):
            raise NotFittedError(f"{type(self).__name__}: refit={self.refit!r} left no model, only cv_results_; set refit=True")
        return has_model

    def _config(self) -> UserData:
        return super()._config() if self._chosen is None else self._chosen

    def _fit(self, inputs: UserData, config: UserData = None) -> UserData:
        """Choose parameters, and fit all rows with them."""
        for name in ("_chosen", "model_", "_model"):
            vars(self).pop(name, None)
        with self._context(self._method.labelled(inputs).data) as ctx:
            best = self._search(Start(self._method.decided(self._config(), inputs, ctx), inputs, ctx))
        state = super()._fit(inputs, best) if self.refit else None
        self._chosen = best
        for name in (*(grid.name for grid in self._grids), *self._along):
            if not isinstance(getattr(type(self), f"{name}_", None), property):
                setattr(self, f"{name}_", getattr(best, name))
        return state

    # -- points ----------------------------------------------------------------------------------------------------------------

    def _unit(self, start: Start) -> float:
        """Return what the values of the first parameter are counted in: the standard deviation of a real target."""
        rows = self._method.labelled(start.inputs)
        if rows.classes is not None:
            return 1.0
        target = rows.target if rows.sample_weight is None else rows.target[rows.sample_weight > 0]
        return max(float(target.std()), np.finfo(float).tiny)

    def _default_values(self, grid: Grid, count: int, start: Start) -> np.ndarray:
        """Return so many values of a parameter. Raises ValueError: there is no rule for them."""
        if grid.span is None:
            raise ValueError(f"{grid.plural}={count!r}: must be a list of values, or None")
        low, high = grid.span
        return self._unit(start) * (np.geomspace(low, high, count) if count > 1 else np.array([(low * high) ** 0.5]))

    def _chains(self, start: Start) -> list[list[dict[str, Any]]]:
        """Return the points, path after path: all values of the first parameter for each combination of the others."""
        values = {grid.name: found for grid in self._grids if (found := self._values_of(grid, start)) is not None}
        first, *others = values
        fixed = [dict(zip(others, combination, strict=True)) for combination in itertools.product(*(values[name] for name in others))]
        return [[{first: value, **further} for value in values[first]] for further in fixed]

    def _values_of(self, grid: Grid, start: Start) -> list[Any] | None:
        """Return the values of a parameter in the order of its path: those given, or the ones that a number of them stands for."""
        given: UserData = getattr(self, grid.plural)
        if given is None and grid is not self._grids[0]:
            return None
        if isinstance(given, int | np.integer) and not isinstance(given, bool):
            if given < 1:
                raise ValueError(f"{grid.plural}={given!r}: a number of values must be at least 1")
            values = self._default_values(grid, int(given), start)
            setattr(self, f"{grid.plural}_", values)
            return values.tolist()
        numbers = np.asarray(given)
        if numbers.ndim != 1 or not numbers.size:
            raise ValueError(f"{grid.plural}={given!r}: must be a number of values, or a list of at least one value")
        plain = sorted(set(numbers.tolist()), reverse=grid.descending)
        for value in plain:
            self._point_config(start.config, {grid.name: value}, f"{grid.plural}={given!r}: ")
        setattr(self, f"{grid.plural}_", np.array(plain))
        return plain

    def _point_config(self, config: MethodConfig, point: Mapping[str, Any], place: str = "") -> MethodConfig:
        """Return parameters with those of a point. Raises ValueError: ``place``, and the value that is out of range."""
        try:
            return make_config(type(config), {**config.model_dump(), **point})
        except ValueError as error:
            raise ValueError(f"{place}{error}") from None

    # -- scores ----------------------------------------------------------------------------------------------------------------

    def _search(self, start: Start) -> MethodConfig:
        """Score all points, set what follows from the scores, and return the parameters of the point that is chosen."""
        (config, inputs, ctx), method = start, self._method
        rows = method.labelled(inputs)
        exact = LOGISTIC if rows.classes is not None and method.is_logistic(config) else None
        scores = FoldScores(self.scoring, rows, exact)
        self.scorer_, splits, points = scores.scorer(), row_splits(self.cv, rows, ctx.seed), self._chains(start)
        chains = [[self._point_config(config, point) for point in chain] for chain in points]
        plain, by_point = [point for chain in points for point in chain], dict[str, tuple[dict[str, Any], list[float]]]()
        for score in self._scored(chains, splits, scores, start):
            params = {**plain[score.point], **score.further}
            known = by_point.setdefault(repr((score.point, params)), (params, [np.nan] * len(splits)))[1]
            known[score.fold] = score.value
            ctx.emit({"event": "fold", "point": score.point + 1, "points": len(plain), "fold": score.fold + 1, "folds": len(splits)})
        self._set_results([params for params, _ in by_point.values()], np.array([known for _, known in by_point.values()]), config)
        return self._point_config(config, self.best_params_)

    def _scored(self, chains: list[list[MethodConfig]], splits: Sequence[Split], scores: FoldScores, start: Start) -> Iterator[Score]:
        """Yield the scores of all fits, their folds dealt among processes."""
        jobs = min(joblib.effective_n_jobs(1 if self.n_jobs is None else self.n_jobs), len(splits))
        ctx, work = start.ctx, (self._method, chains, start.inputs, splits, scores)
        if jobs == 1:
            yield from fold_scores(self._method, chains, start.inputs, splits, scores, range(len(splits)), ctx)
            return
        if ctx.executor.kind != "sync":
            raise ValueError(f"n_jobs={self.n_jobs!r}: passes run on cluster={self.cluster!r} already; leave n_jobs to None")
        where = ctx.seed, self._takes_all_memory
        parts = [part.tolist() for part in np.array_split(np.arange(len(splits)), jobs)]
        found: UserData = joblib.Parallel(n_jobs=jobs)(joblib.delayed(fold_scores_apart)(work, folds, *where) for folds in parts)
        yield from itertools.chain.from_iterable(found)

    def _set_results(self, params: list[dict[str, Any]], scores: np.ndarray, config: MethodConfig) -> None:
        """Set the table of scores ``(n_points, n_folds)``, and the point that is chosen."""
        means, names = scores.mean(axis=1), dict.fromkeys(name for point in params for name in point)
        if np.isnan(means).all():
            raise ValueError(f"scoring={self.scoring!r} is NaN for every point: no fold can be scored by it")
        ranks = rankdata(-np.where(np.isnan(means), -np.inf, means), method="min").astype(np.int32)
        splits = {f"split{k}_test_score": column for k, column in enumerate(scores.T)}
        summary = {"mean_test_score": means, "std_test_score": scores.std(axis=1), "rank_test_score": ranks}
        columns = {f"param_{name}": np.array([point[name] for point in params]) for name in names}
        self.cv_results_, self.n_splits_ = {**columns, "params": params, **splits, **summary}, scores.shape[1]
        top = int(np.nanargmax(means))
        least = means[top]
        if self.one_standard_error and scores.shape[1] > 1:
            least -= scores[top].std(ddof=1) / scores.shape[1] ** 0.5
        full = [{**config.model_dump(), **point} for point in params]
        sizes = [tuple(math.prod(point[name] for name in names) for names in self._simplest_by) for point in full]
        self.best_index_ = min(np.flatnonzero(means >= least).tolist(), key=lambda k: (sizes[k], k))
        self.best_params_, self.best_score_ = params[self.best_index_], float(means[self.best_index_])


def fold_scores(
    method: type[Method],
    chains: Sequence[Sequence[Any]],
    inputs: object,
    splits: Sequence[Split],
    scores: FoldScores,
    folds: Sequence[int],
    ctx: RunContext,
) -> Iterator[Score]:
    """Yield the scores of fits with the parameters of every chain, without the rows of some folds."""
    for found in path_values(method, chains, inputs, [splits[fold].left_out for fold in folds], ctx):
        fold = folds[found.fold]
        yield Score(found.point, fold, found.further, scores.of(found.values, splits[fold].test))


def fold_scores_apart(work: tuple[Any, ...], folds: Sequence[int], seed: int, all_memory: bool) -> list[Score]:
    """Return what :func:`fold_scores` yields, in a process of its own."""
    method, chains, inputs, splits, scores = work
    with method_context(method.labelled(inputs).data, None, seed, all_memory) as ctx:
        return list(fold_scores(method, chains, inputs, splits, scores, folds, ctx))

"""CrossValidated: estimators that choose parameters by cross-validation, along paths that share passes and warm starts."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import joblib
import numpy as np
from scipy.stats import rankdata
from sklearn.exceptions import NotFittedError
from sklearn.utils import column_or_1d

from ...storage.data import in_memory
from ...storage.errors import Json, UserData
from ..core.engine import placed
from ..core.resources import RunContext
from ..core.search import Score, fold_scores
from ..inputs.folds import Split, row_splits
from ..inputs.labels import Inputs
from ..models.held_out_scores import FoldRows, Scoring, default_scoring, read_scoring
from ..records.config import MethodConfig, make_config
from .base import Estimator
from .inputs import Column, UserRows, method_context


@dataclass(frozen=True)
class Grid:
    """A parameter to search, and the name of the argument that contains its values.

    The first grid of an estimator is the path: its argument replaces the parameter in the signature. Other grids are additional arguments.
    """

    name: str
    plural: str
    descending: bool = False  # whether the largest value comes first: that of the simplest model
    span: tuple[float, float] | None = None  # from where to where a number of values is spread, in the unit of the estimator


class Start(NamedTuple):
    """Parameters, inputs and context at the start of a search."""

    config: UserData  # parameters of all points but for those searched
    inputs: UserData
    ctx: RunContext


ROUNDING = 1e-12  # share of a mean of scores that the order of its folds may change
MARGIN_LOSS = "margin_loss"

MACHINE_C = Grid("C", "Cs", span=(0.1, 1e3))


class CrossValidated(Estimator):
    """Base of estimators that choose parameters by cross-validation. It is a mixin placed before the class of the fitted estimator.

    The chosen parameters have the best mean held-out score; all rows are then fitted with them. With few rows, scores are often equal; then
    the point with the least ``mean_margin_loss`` wins. This is the mean of ``max(0, 1 - m)``, where m is the margin of a held-out row's
    true class over the others.

    Held-out rows have weight zero, so nothing is copied. Folds share passes over the data and Gram matrices. Within a fold, each fit starts
    from the previous one. Kernels are normalised over all rows, including held-out ones.
    """

    _grids: ClassVar[Sequence[Grid]] = ()
    _row_groups: np.ndarray | None = None  # what rows are held out together by, during a fit
    _along: ClassVar[tuple[str, ...]] = ()  # further parameters that come with a path, such as the number of rounds
    # Of points within a standard error of the best that is the simplest of the smallest product of these parameters, of the next ones among
    # equals; then the first one.
    _simplest_by: ClassVar[Sequence[tuple[str, ...]]] = ()
    _chosen: MethodConfig | None = None  # parameters of the refit

    cv: UserData
    scoring: UserData
    refit: bool | str
    one_standard_error: bool
    n_jobs: int | None

    def __sklearn_is_fitted__(self) -> bool:
        has_model = vars(self).get("model_", vars(self).get("_model")) is not None
        if not has_model and hasattr(self, "cv_results_"):
            raise NotFittedError(f"{type(self).__name__}: refit={self.refit!r} left no model, only cv_results_; set refit=True")
        return has_model

    def _inputs(self, *args: UserData, **options: UserData) -> UserData:
        # What is decided of rows, such as their scaling, is decided as before the search.
        chosen, self._chosen = self._chosen, None
        try:
            return super()._inputs(*args, **{**options, "config": None})
        finally:
            self._chosen = chosen

    def _plain(self, params: dict[str, Any]) -> dict[str, Any]:
        return super()._plain({name: value for name, value in params.items() if name != "refit"})  # (that of the search)

    def _config(self) -> UserData:
        if self._chosen is not None:
            return self._chosen
        config: UserData = super()._config()
        # Where values are given, the parameter that stands for them is not left to the data; which one is no matter before the search.
        given, first = getattr(self, self._grids[0].plural), self._grids[0].name
        values = np.zeros(0) if given is None else np.asarray(given)
        return (
            config
            if values.ndim != 1 or not values.size
            else self._point_config(config, {first: values.tolist()[0]}, f"{self._grids[0].plural}={given!r}: ")
        )

    def fit(self, X: UserRows, y: Column = None, sample_weight: Column = None, *, groups: Column = None) -> Self:
        """Choose parameters by cross-validation, then fit all rows with them.

        Parameters
        ----------
        X, y, sample_weight
            As in the estimator without a search.
        groups
            ``(n_samples,)`` group of each row, such as its patient. Splitters that need groups hold out all rows of a group together.
        """
        with self._grouped(groups):
            return super().fit(X, y, sample_weight)

    @contextlib.contextmanager
    def _grouped(self, groups: Column) -> Iterator[None]:
        self._row_groups = None if groups is None else column_or_1d(in_memory(groups, "groups"))
        try:
            yield
        finally:
            del self._row_groups

    def _fit(self, inputs: UserData, config: UserData = None) -> UserData:
        """Choose parameters by cross-validation, then fit all rows with them."""
        for name in ("_chosen", "model_", "_model"):
            vars(self).pop(name, None)
        with self._context(inputs.labelled.data) as ctx:
            there = placed(inputs, ctx)
            best = self._search(Start(self._method.decided(self._config(), there, ctx), there, ctx))
        state = super()._fit(inputs, best) if self.refit else None
        self._chosen = best
        for name in (*(grid.name for grid in self._grids), *self._along):
            if not isinstance(getattr(type(self), f"{name}_", None), property):
                setattr(self, f"{name}_", getattr(best, name))
        return state

    def _search_rows(self) -> tuple[str, list[str], list[Json]]:
        """Return the name of the path's parameter, the names of all parameters that vary, and one row per point. A row has the parameters,
        the score, and whether the point was chosen.
        """
        results = self.cv_results_
        named = next(key for key in results if key.startswith("mean_test_")).removeprefix("mean_test_")
        means, deviations = results[f"mean_test_{named}"], results[f"std_test_{named}"]
        errors = deviations / max(self.n_splits_ - 1, 1) ** 0.5  # of the mean: deviations are those of the folds themselves
        measure = named if self._has_several else self.scoring if isinstance(self.scoring, str) else None
        measure = measure or ("score" if self.scoring is not None else "accuracy" if hasattr(self, "classes_") else "r2")
        rows = [
            {**point, "measure": measure, measure: float(mean), "standard_error": float(error), "chosen": k == self.best_index_}
            for k, (point, mean, error) in enumerate(zip(results["params"], means, errors, strict=True))
        ]
        names = list(dict.fromkeys(name for point in results["params"] for name in point))
        keys = [name for name in names if len({repr(point.get(name)) for point in results["params"]}) > 1]
        along = next((name for name in (*self._along, *keys) if name in keys), names[0])
        return along, keys or names[:1], rows

    # -- points ----------------------------------------------------------------------------------------------------------------

    def _unit(self, start: Start) -> float:
        """Return the unit of the first grid's default values. Subclasses whose parameter scales with the target override it."""
        return 1.0

    def _default_values(self, grid: Grid, count: int, start: Start) -> np.ndarray:
        """Return ``count`` default values of a parameter. Raises ValueError if it has no default range."""
        if grid.span is None:
            raise ValueError(f"{grid.plural}={count!r}: must be a list of values, or None")
        low, high = grid.span
        return self._unit(start) * (np.geomspace(low, high, count) if count > 1 else np.array([(low * high) ** 0.5]))

    def _chains(self, start: Start, known: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
        """Return the next points to score, one list per path; empty when the search is finished.

        The base class returns all combinations in its first call. ``known`` holds the points that are already scored.
        """
        if known:
            return []
        values = {grid.name: found for grid in self._grids if (found := self._values_of(grid, start)) is not None}
        first, *others = values
        fixed = [dict(zip(others, combination, strict=True)) for combination in itertools.product(*(values[name] for name in others))]
        return [[{first: value, **further} for value in values[first]] for further in fixed]

    def _values_of(self, grid: Grid, start: Start) -> list[Any] | None:
        """Return the values of a parameter in path order: the values from the argument, or that many default values if the argument is a
        number.
        """
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
        """Return ``config`` with the parameters of a point. If a value is out of range, raises ValueError with a message that begins with
        ``place``.
        """
        try:
            return make_config(type(config), {**config.model_dump(), **point})
        except ValueError as error:
            raise ValueError(f"{place}{error}") from None

    # -- scores ----------------------------------------------------------------------------------------------------------------

    def _search(self, start: Start) -> MethodConfig:
        """Score all points, set the attributes derived from the scores, and return the parameters of the chosen point."""
        config, inputs, ctx = start
        rows = FoldRows(inputs.truth, inputs.labelled)
        splits = row_splits(self.cv, rows.inputs, ctx.seed, self._row_groups)
        scoring, points, plain = self._scoring(rows.inputs), self._chains(start, []), list[dict[str, Any]]()
        by_point = dict[str, tuple[dict[str, Any], dict[str, list[float]]]]()
        while points:
            chains, before = [[self._point_config(config, point) for point in chain] for chain in points], len(plain)
            plain += [point for chain in points for point in chain]
            for score in self._scored(chains, splits, rows, scoring, start):
                point = before + score.point
                params = {**plain[point], **score.further}
                empty = {name: [np.nan] * len(splits) for name in (*scoring.names, MARGIN_LOSS)}
                known = by_point.setdefault(repr((point, params)), (params, empty))[1]
                for name, value in (*score.values.items(), (MARGIN_LOSS, score.margin_loss)):
                    known[name][score.fold] = value
                ctx.emit({"event": "fold", "point": point + 1, "points": len(plain), "fold": score.fold + 1, "folds": len(splits)})
            scores = {name: np.array([known[name] for _, known in by_point.values()]) for name in (*scoring.names, MARGIN_LOSS)}
            losses = scores.pop(MARGIN_LOSS).mean(axis=1)
            self._set_results([params for params, _ in by_point.values()], scores, losses, config)
            points = self._chains(start, plain)
        return self._point_config(config, self.best_params_)

    def _scoring(self, rows: Inputs) -> Scoring:
        """Return the scoring of the search. Raises ValueError if it is unknown, or does not suit the target."""
        scoring = read_scoring(self.scoring, self.refit if isinstance(self.refit, str) else None) or default_scoring(rows.classes)
        scoring.check(rows.classes, rows.target)
        scorers = {name: scoring.scorer(name) for name in scoring.names}
        self.scorer_ = scorers if self._has_several else scorers[scoring.names[0]]
        return scoring

    @property
    def _has_several(self) -> bool:
        """Whether ``scoring`` is a list or a dict. If so, column names in ``cv_results_`` contain the names of the scores, as in
        ``GridSearchCV``.
        """
        return not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring))

    def _scored(
        self, chains: list[list[MethodConfig]], splits: Sequence[Split], rows: FoldRows, scoring: Scoring, start: Start
    ) -> Iterator[Score]:
        """Yield the scores of all fits. Folds are distributed among processes."""
        jobs = min(joblib.effective_n_jobs(1 if self.n_jobs is None else self.n_jobs), len(splits))
        ctx, work = start.ctx, (self._method, chains, start.inputs, splits, rows, scoring)
        if jobs == 1:
            yield from fold_scores(*work, range(len(splits)), ctx)
            return
        if ctx.executor.kind != "sync":
            raise ValueError(f"n_jobs={self.n_jobs!r}: cluster={self.cluster!r} runs the passes in parallel already; set n_jobs=None")
        where = ctx.seed, self._takes_all_memory
        parts = [part.tolist() for part in np.array_split(np.arange(len(splits)), jobs)]
        found: UserData = joblib.Parallel(n_jobs=jobs)(joblib.delayed(fold_scores_apart)(work, folds, *where) for folds in parts)
        yield from itertools.chain.from_iterable(found)

    def _set_results(
        self, params: list[dict[str, Any]], scores: Mapping[str, np.ndarray], losses: np.ndarray, config: MethodConfig
    ) -> None:
        """Set ``cv_results_`` and the best point.

        The first score, an array ``(n_points, n_folds)``, chooses the point. Of points with equal means, the one with the least loss is
        chosen.
        """
        full = [{**config.model_dump(), **point} for point in params]
        names = list(dict.fromkeys(name for point in params for name in point))
        params = [{name: point[name] for name in names} for point in full]
        columns = {f"param_{name}": np.array([point[name] for point in params]) for name in names}
        self.cv_results_: dict[str, Any] = {**columns, "params": params}
        for name, values in scores.items():
            self.cv_results_ |= cv_columns("score" if not self._has_several else name, values)
        if np.isfinite(losses).any():
            self.cv_results_[f"mean_{MARGIN_LOSS}"] = losses
        first = next(iter(scores.values()))
        self.n_splits_, means = first.shape[1], first.mean(axis=1)
        if np.isnan(means).all():
            raise ValueError(f"scoring={self.scoring!r}: the mean score is NaN for every point of the grid; choose another score")
        top = int(np.nanargmax(means))
        least = means[top] - ROUNDING * abs(means[top])
        if self.one_standard_error and first.shape[1] > 1:
            least -= first[top].std(ddof=1) / first.shape[1] ** 0.5
            losses = np.zeros(len(means))
        sizes = [tuple(math.prod(point[name] for name in names) for names in self._simplest_by) for point in full]
        least_loss = np.where(np.isfinite(losses), losses, np.inf)
        self.best_index_ = min(np.flatnonzero(means >= least).tolist(), key=lambda k: (least_loss[k], sizes[k], k))
        self.best_params_, self.best_score_ = params[self.best_index_], float(means[self.best_index_])


def cv_columns(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    """Return the columns of one score ``(n_points, n_folds)``, named as in ``GridSearchCV``."""
    means = values.mean(axis=1)
    ranks = rankdata(-np.where(np.isnan(means), -np.inf, means), method="min").astype(np.int32)
    splits = {f"split{k}_test_{name}": column for k, column in enumerate(values.T)}
    return {**splits, f"mean_test_{name}": means, f"std_test_{name}": values.std(axis=1), f"rank_test_{name}": ranks}


def fold_scores_apart(work: tuple[Any, ...], folds: Sequence[int], seed: int, all_memory: bool) -> list[Score]:
    """Return the scores of :func:`fold_scores`, computed in a separate process."""
    method, chains, inputs, splits, rows, scoring = work
    with method_context(inputs.labelled.data, None, seed, all_memory) as ctx:
        return list(fold_scores(method, chains, inputs, splits, rows, scoring, folds, ctx))


class CrossValidatedTasks(CrossValidated):
    """Base of cross-validated estimators whose rows may belong to tasks."""

    def fit(self, X: UserRows, y: Column = None, task: Column = None, sample_weight: Column = None, *, groups: Column = None) -> Self:
        """Choose parameters by cross-validation, then fit all rows with them.

        Parameters
        ----------
        X, y, task, sample_weight
            As in the estimator without a search.
        groups
            ``(n_samples,)`` group of each row, such as its patient. Splitters that need groups hold out all rows of a group together.
        """
        with self._grouped(groups):
            return super(CrossValidated, self).fit(X, y, task, sample_weight)  # pyright: ignore[reportCallIssue] (of a task estimator)

"""Fits that each leave out some rows, and the scores of these fits, for parameter search and calibration. The fits share passes, matrices
and warm starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...cluster import MemoryBoundExceeded
from ...storage import RunStore
from ...storage.errors import Json
from .engine import iterate, placed
from .resources import Emit, RunContext, hush, ignore
from .result import State

if TYPE_CHECKING:
    from ..inputs.folds import Split
    from ..models.held_out_scores import FoldRows, Scoring
    from ..records.config import MethodConfig
    from .method import AnyMethod, PathValues, Problem

SQUARES = "neg_mean_squared_error"  # what a table of R2 has beside it, and a line of progress does not

Fits = Sequence[tuple[int, int]]  # what one problem stands for: numbers of parameters and of a fold


class Score(NamedTuple):
    """The held-out scores of one fit at one point of its path."""

    point: int  # its parameters, by number
    fold: int  # what it did not see
    further: dict[str, Any]  # parameters that it would end there with, such as the number of rounds
    values: dict[str, float]  # by the names of scores
    margin_loss: float  # what tells points of one score apart
    n_selected: float = 0.0  # how much it selected, where that is counted


class FoldRuns:
    """Fits that each leave out the rows of one mask.

    Fits that can share passes form one problem, or several problems if one would exceed the memory limit. Otherwise every fit is a problem
    of its own, and fits over the same kernels reuse the matrices of the first of them, or ``grams`` if given.
    """

    def __init__(
        self,
        method: AnyMethod,
        configs: Sequence[MethodConfig],
        inputs: Any,
        masks: Mapping[int, np.ndarray],
        ctx: RunContext,
        grams: object = None,
        emit: Emit = ignore,
    ) -> None:
        self.method, self.inputs, self.masks, self.grams = method, placed(inputs, ctx), masks, grams
        self.configs = [config.for_folds() for config in configs]
        # What is to be said of such a fit is said of the whole one.
        self.ctx = replace(ctx, emit=emit, doubt=hush, warn=hush)

    def of(self, points: Sequence[int]) -> Iterator[tuple[Fits, Problem]]:
        """Yield the problems for the given parameter points. Each problem comes with the list of fits that it solves."""
        shared = self.shared(points)
        if shared is not None:
            self.grams = hand_over(self.grams, shared)
            yield [(point, fold) for point in points for fold in self.masks], shared
        elif len(points) > 1:
            half = len(points) // 2
            yield from self.of(points[:half])
            yield from self.of(points[half:])
        else:
            for fold, mask in self.masks.items():
                problem = self.method.problem(self.configs[points[0]], self.method.without(self.inputs, mask), self.ctx)
                self.grams = hand_over(self.grams, problem)
                yield [(points[0], fold)], problem

    def shared(self, points: Sequence[int]) -> Problem | None:
        """Return one problem for all fits, or ``None`` if they cannot share passes or exceed the memory limit."""
        try:
            return self.method.shared_fits([self.configs[point] for point in points], self.inputs, list(self.masks.values()), self.ctx)
        except MemoryBoundExceeded:
            return None


@dataclass(frozen=True)
class FoldStore:
    """Folder of a search. Each problem has a subfolder with its checkpoints and, once finished, its scores; finished problems are not
    repeated.
    """

    folder: Path
    record: Mapping[str, Json]  # what the problems have in common
    points: Sequence[int]  # numbers of the parameters in the whole grid
    totals: tuple[int, int]  # how many points and folds there are
    emit: Emit = ignore  # hears of the steps of the fits, and of their scores

    def begin(self, fits: Fits, whole: bool = False) -> AbstractContextManager[RunStore]:
        """Lock and return the folder of a problem. ``whole`` selects the folder of the fit on all rows from which the problem starts."""
        return RunStore.begin(self._place(fits, whole), {**self.record, "fits": [[self.points[point], fold] for point, fold in fits]})

    def _place(self, fits: Fits, whole: bool = False) -> Path:
        (point, fold), more = fits[0], f"-and-{len(fits) - 1}" if len(fits) > 1 else ""
        return self.folder / f"cv-{self.points[point]}-{fold}{more}{'-whole' if whole else ''}"

    def scores(self, fits: Fits) -> list[Score] | None:
        """Return the scores of a finished problem, otherwise ``None``."""
        place = self._place(fits)
        found = RunStore.open(place).read_json("scores") if (place / "config.json").exists() else None
        return None if found is None else read_scores(found, self.points)

    def last_state(self, fits: Fits, kind: type[State]) -> State | None:
        """Return the final state of a problem. ``None`` if another process solved the problem, because such a process stores no states."""
        found = RunStore.open(self._place(fits)).load_checkpoint(kind)
        return None if found is None else found[1]

    def keep_all(self, scores: Sequence[Score]) -> None:
        """Write the scores of fits that another process computed, one file per fit."""
        for point, fold in dict.fromkeys((score.point, score.fold) for score in scores):
            with self.begin([(point, fold)]) as run:
                if run.read_json("scores") is None:
                    self.keep(run, [score for score in scores if (score.point, score.fold) == (point, fold)])

    def tell(self, scores: Sequence[Score]) -> None:
        """Emit one event per finished fit, with the scores at the end of its path."""
        n_points, n_folds = self.totals
        for (point, fold), last in {(score.point, score.fold): score for score in scores}.items():
            place = {"point": self.points[point] + 1, "points": n_points, "fold": fold + 1, "folds": n_folds}
            self.emit({"event": "fold", **place, **{name: known(value) for name, value in last.values.items() if name != SQUARES}})

    def keep(self, run: RunStore, scores: Sequence[Score]) -> None:
        run.drop_scratch()
        run.write_json("scores", write_scores(scores, self.points))


def write_scores(scores: Sequence[Score], points: Sequence[int]) -> list[Json]:
    """Return scores as JSON, with points numbered as in the whole grid; unknown scores become ``None``."""
    rows = (score._replace(point=points[score.point], values={name: known(x) for name, x in score.values.items()}) for score in scores)
    return [list(row._replace(margin_loss=known(row.margin_loss))) for row in rows]


def read_scores(rows: Sequence[Json], points: Sequence[int]) -> list[Score]:
    """Return the scores that :func:`write_scores` wrote."""
    own = {number: position for position, number in enumerate(points)}
    scores = (Score(own[point], *rest) for point, *rest in rows)
    return [
        score._replace(values={name: _number(x) for name, x in score.values.items()}, margin_loss=_number(score.margin_loss))
        for score in scores
    ]


def known(value: float) -> float | None:
    """Return a finite number unchanged, otherwise ``None``: JSON has no NaN."""
    return float(value) if np.isfinite(value) else None


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def fold_scores(
    method: AnyMethod,
    chains: Sequence[Sequence[MethodConfig]],
    inputs: Any,
    splits: Sequence[Split],
    rows: FoldRows,
    scoring: Scoring,
    folds: Sequence[int],
    ctx: RunContext,
    store: FoldStore | None = None,
    counts: bool = False,
) -> Iterator[Score]:
    """Yield the scores of fits, for the parameters of every chain and for each split in ``folds``. A fit leaves out the rows of its split.

    Within a chain, a fit starts from the previous one, or the fits share passes. Points are numbered consecutively over all chains. Results
    do not depend on which folds are computed together. With a ``store``, finished scores are read from it, and interrupted fits resume.
    With ``counts``, scores include the number of selected features, groups, kernels or rules.
    """
    configs = [config for chain in chains for config in chain]

    def scored(fits: Fits, path: Iterator[PathValues]) -> Iterator[Score]:
        for further, values, selected in path:
            sizes = [float(count) for count in selected()] if counts else [0.0] * len(fits)
            for (point, fold), part, size in zip(fits, values.reshape(len(fits), -1, values.shape[1]), sizes, strict=True):
                held_out = rows.of(splits[fold].test, configs[point].probability_kind)
                yield Score(point, fold, further, held_out.scores(scoring, part), held_out.margin_loss(part), size)

    masks, emit = {fold: splits[fold].left_out for fold in folds}, ignore if store is None else store.emit
    # Fits that share nothing but matrices are made fold after fold, so that no more than one keeps what the next one takes over.
    shares, grams = FoldRuns(method, configs, inputs, masks, ctx).shared([0]) is not None, None
    whole = _WholeFits(method, inputs) if method.starts_from_whole else None
    for part in [masks] if shares else [{fold: mask} for fold, mask in masks.items()]:
        runs = FoldRuns(method, configs, inputs, part, ctx, grams, emit)
        yield from _followed(runs, whole, scored, store)
        grams = runs.grams


def _followed(
    runs: FoldRuns, whole: _WholeFits | None, scored: Callable[[Fits, Iterator[PathValues]], Iterator[Score]], store: FoldStore | None
) -> Iterator[Score]:
    """Run the fits of all chains in order, each from a warm start if there is one, and yield their scores."""
    method = runs.method
    ends: dict[tuple[int, ...], tuple[str, Problem, Callable[[], State | None]]] = {}  # of the last fit on the same rows
    for fits, problem in runs.of(range(len(runs.configs))):
        config, place = runs.configs[fits[0][0]], tuple(fold for _, fold in fits)
        apart = config.off_path if config.path else ""
        before = ends.pop(place, None)
        if before is not None and before[0] != apart:
            before = None
        method.follow_path(problem, None if before is None else before[1])
        known = None if store is None else store.scores(fits)
        if store is not None and known is not None:
            store.tell(known)
            end = partial(store.last_state, fits, getattr(problem, "state_type", None) or method.state)
            yield from known
        else:
            with nullcontext() if store is None else store.begin(fits) as run:
                ctx = runs.ctx if run is None else replace(runs.ctx, scratch=run)
                start = None if whole is None or before is not None else partial(whole.start, problem, ctx, fits, store)
                last = None if before is None else before[2]()
                if before is not None and last is not None:
                    start = partial(_restarted, method, problem, ctx, before[1], last)
                state = iterate(method, problem, ctx, start=start, store=run).state
                found, end = scored(fits, method.path_values(problem, state, ctx)), partial(_itself, state)
                if store is None or run is None:
                    yield from found
                else:
                    found = list(found)
                    store.keep(run, found)
                    store.tell(found)
                    yield from found
        if apart:
            ends[place] = apart, problem, end


def _restarted(method: AnyMethod, problem: Problem, ctx: RunContext, before: Problem, last: State) -> State:
    return method.restart(problem, method.init(problem, ctx), before, last)


def _itself(state: State) -> State:
    return state


class _WholeFits:
    """Fits on all rows with the first parameters of a path. Each is computed once and serves as the warm start of the fits of all folds."""

    def __init__(self, method: AnyMethod, inputs: Any) -> None:
        self.method, self.inputs = method, inputs
        self._ends: dict[str, tuple[Problem, State]] = {}

    def start(self, problem: Problem, ctx: RunContext, fits: Fits, store: FoldStore | None) -> State:
        """Return the initial state of a fit with held-out rows, taken from the fit of all rows. The two fits share their matrices."""
        apart = problem.config.off_path
        if apart not in self._ends:
            whole = self.method.problem(problem.config, self.inputs, ctx)
            grams = hand_over(hand_over(None, problem), whole)
            with nullcontext() if store is None else store.begin(fits, whole=True) as run:
                own = ctx if run is None else replace(ctx, scratch=run)
                self._ends = {apart: (whole, iterate(self.method, whole, own, store=run).state)}
            hand_over(grams, problem)
        return _restarted(self.method, problem, ctx, *self._ends[apart])


def hand_over(grams: object, problem: object) -> object:
    """Let ``problem`` reuse ``grams``, the matrices of an earlier problem, if both have matrices. Return the matrices for the next problem
    to reuse.
    """
    from ..grams.grams import hand_over  # most fits of features have no matrices

    return hand_over(grams, problem)

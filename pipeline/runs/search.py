"""A search on a store: the points of a grid and their folds, in groups whose fits share passes, matrices or warm starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...cluster import Executor
from ...storage import BlockStore
from ...storage.errors import Json
from ..core.method import Problem
from ..core.resources import Emit, RunContext, hush
from ..core.search import SQUARES, FoldRuns, FoldStore, Score, fold_scores
from ..inputs.folds import Split, row_groups, row_splits
from ..models.held_out_scores import FoldRows, Scoring, default_scoring
from ..records.config import MethodConfig
from ..registry import MethodInfo

PLACES = ("grams", "gram_store")  # parameters that say where matrices lie; results do not depend on them


@dataclass(frozen=True)
class Search:
    """A grid and the scores that compare its points."""

    info: MethodInfo  # the method
    points: Sequence[Mapping[str, Any]]  # parameters as they were given
    configs: Sequence[MethodConfig]  # the same, checked
    data: BlockStore  # the store, scaled as the parameters say
    folds: int
    seed: int
    extra: Mapping[str, Any]  # further inputs of the fits, such as groups
    repeats: int = 1
    scoring: Scoring | None = None  # what points are compared by; None: accuracy, or R2
    column: str | None = None  # rows of one of its values are held out together

    @property
    def scored_by(self) -> list[str] | None:
        """Names of the requested scores."""
        return None if self.scoring is None else list(self.scoring.names)

    @property
    def record(self) -> dict[str, Json]:
        """Settings that all fits have in common, stored in their folders."""
        names = {} if self.scoring is None else {"scoring": self.scored_by}
        column = {} if self.column is None else {"group_column": self.column}
        return {"method": self.info.name, "folds": self.folds, "seed": self.seed, "data": self.data.digest, **names, **column}

    def context(self, executor: Executor, driver_memory: int, emit: Emit) -> RunContext:
        """Return the context of the fits."""
        return RunContext(executor, data=self.data, driver_memory=driver_memory, emit=emit, seed=self.seed, warn=hush)

    def groups(self, ctx: RunContext) -> list[Group]:
        """Return the points in groups. The inputs of a group are read once."""
        keys = dict[tuple[str, ...], list[int]]()
        for k, config in enumerate(self.configs):
            passes = [str(getattr(config, name, None)) for name in config.pass_parameters]
            keys.setdefault((*config.path, *passes), []).append(k)
        return [self._group([*points], ctx) for points in keys.values()]

    def _group(self, points: Sequence[int], ctx: RunContext) -> Group:
        method = self.info.method
        given = self.configs[points[0]]
        first, inputs = method.read_inputs(given, ctx, self.extra)
        first = method.decided(first, inputs, ctx)
        # Of what is decided they share what the features decide, such as the kernels; the rest is for fits that do not see all targets.
        same = {name: value for name in given.pass_parameters if (value := getattr(first, name, None)) != getattr(given, name, None)}
        decided = {k: self.configs[k].model_copy(update=same) for k in points}
        chains = _chains(decided)
        rows = FoldRows(inputs.truth, inputs.labelled)
        held_out = row_groups(ctx.data, self.column, self.folds)
        seeds = range(self.seed, self.seed + self.repeats)
        splits = [split for seed in seeds for split in row_splits(self.folds, rows.inputs, seed, held_out, "folds")]
        measures = default_scoring(rows.inputs.classes).names if rows.inputs.classes is not None else ("r2", SQUARES)
        scoring = Scoring(tuple(dict.fromkeys((*([] if self.scoring is None else self.scoring.names), *measures))))
        flat = [k for chain in chains for k in chain]
        return Group(self, flat, [[decided[k] for k in chain] for chain in chains], inputs, rows, splits, scoring)


def _chains(configs: Mapping[int, MethodConfig]) -> list[list[int]]:
    """Return points as chains, in which each fit is the warm start of the next. Within a chain, fits are ordered by the other path
    parameters (in the order in which their values first occur), then by the first path parameter.
    """
    first = next(iter(configs.values()))
    if not first.path:
        return [[k] for k in configs]
    name, *others = first.path
    chains, seen, places = dict[str, list[int]](), list[object](), dict[int, tuple[int, float]]()
    for k, config in configs.items():
        chains.setdefault(config.off_path, []).append(k)
        value, beside = getattr(config, name), [getattr(config, other) for other in others]
        seen += [] if beside in seen else [beside]
        places[k] = seen.index(beside), (-value if first.path_falls else value) if isinstance(value, int | float) else 0.0
    return [sorted(chain, key=lambda k: places[k]) for chain in chains.values()]


@dataclass(frozen=True)
class Group:
    """Points whose fits read the same inputs."""

    search: Search
    points: Sequence[int]  # their numbers in the grid, chain after chain
    chains: Sequence[Sequence[MethodConfig]]  # their parameters
    inputs: Any
    rows: FoldRows
    splits: Sequence[Split]  # of all repetitions
    scoring: Scoring  # what is asked for, and what every table has
    is_whole: bool = False  # whether each of its fits is one of its own, made here or by a worker, which share nothing with other folds

    @property
    def configs(self) -> list[MethodConfig]:
        """Parameters of all points, chain after chain."""
        return [config for chain in self.chains for config in chain]

    def problem(self, point: int, fold: int, ctx: RunContext) -> Problem:
        """Return the problem of one fit without running it."""
        method = self.search.info.method
        return method.problem(self.configs[point], method.without(self.inputs, self.splits[fold].left_out), ctx)

    def shares(self, ctx: RunContext) -> bool:
        """Whether fits share passes; this is judged by the fits on the folds of the first repetition."""
        masks = {k: split.left_out for k, split in enumerate(self.splits[: self.search.folds])}
        return FoldRuns(self.search.info.method, self.configs, self.inputs, masks, ctx).shared([0]) is not None

    def check(self, ctx: RunContext) -> None:
        """Prepare a fit of every point and fold without running it, so that errors are raised before work starts."""
        if self.search.scoring is not None:
            self.search.scoring.check(self.rows.inputs.classes, self.rows.inputs.target)
        for point in range(len(self.configs)):
            self.problem(point, 0, ctx)
        for fold in range(1, len(self.splits)):
            self.problem(0, fold, ctx)

    def store(self, folder: Path, emit: Emit) -> FoldStore:
        return FoldStore(folder, self.search.record, self.points, (len(self.search.points), len(self.splits)), emit)

    def scores(self, folds: Sequence[int], ctx: RunContext, store: FoldStore | None) -> Iterator[Score]:
        """Yield the scores of all points on some of the splits."""
        work = self.search.info.method, self.chains, self.inputs, self.splits, self.rows, self.scoring
        return fold_scores(*work, folds, ctx, store, counts=True)

    def all_scores(self, ctx: RunContext, folder: Path) -> Iterator[Score]:
        """Yield the scores of all points on all splits. Passes are shared within a repetition."""
        step, store = 1 if self.is_whole else self.search.folds, self.store(folder, ctx.emit)
        for first in range(0, len(self.splits), step):
            for score in self.scores(range(first, first + step), ctx, store):
                yield score._replace(point=self.points[score.point])

    def parts(self) -> list[Group]:
        """Return one group for each chain of points whose fits use one another as a warm start."""
        ends, parts = itertools.accumulate(map(len, self.chains), initial=0), []
        for first, chain in zip(ends, self.chains, strict=False):
            parts.append(replace(self, points=self.points[first : first + len(chain)], chains=[chain], is_whole=True))
        return parts

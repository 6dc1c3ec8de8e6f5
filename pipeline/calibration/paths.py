"""What fits along a path of parameters decide, each without the rows of a fold: passes, matrices and warm starts are shared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...storage.errors import UserData
from ..core.engine import iterate
from ..core.method import AnyMethod
from ..grams.grams import hand_over
from ..records.context import RunContext
from .fits import FoldRuns, kept_grams


class PathValues(NamedTuple):
    """What one fit decides on all labelled rows."""

    point: int  # its parameters, by number
    fold: int  # what it did not see
    further: dict[str, Any]  # parameters it would end there with, such as the number of rounds
    values: np.ndarray  # (n_machines, n_labelled)


class WholeFit:
    """The fit of all rows with the parameters that paths begin with, made once, where a method starts folds from it."""

    def __init__(self, method: AnyMethod, config: UserData, inputs: UserData) -> None:
        self.method, self.config, self.inputs = method, config, inputs
        self._end: tuple[Any, Any] | None = None

    def start(self, run: Any, ctx: RunContext) -> Any:
        """Return the state to begin with of a fit without some rows; matrices are shared with it."""
        if self._end is None:
            whole = self.method.problem(self.config.for_folds(), self.inputs, ctx)
            grams = hand_over(kept_grams(run), whole)
            self._end = whole, iterate(self.method, whole, ctx).state
            hand_over(grams, run)
        return self.method.fold_start(run, self.method.init(run, ctx), *self._end)


def path_values(
    method: AnyMethod, chains: Sequence[Sequence[Any]], inputs: object, masks: Sequence[np.ndarray], ctx: RunContext
) -> Iterator[PathValues]:
    """Yield what fits with the parameters of every chain, each without the rows of every mask, decide.

    Fits start from one another, chain after chain, or share passes. Points are counted through all chains. Nothing depends on which masks
    are given together.
    """
    if method.shares_points:
        chains = [[config for chain in chains for config in chain]]
    first = chains[0] if method.shares_points else chains[0][:1]
    # Fits that share nothing but matrices are made fold after fold, so that no more than one keeps what the next one takes over.
    shares, grams, count = FoldRuns(method, inputs, masks, ctx).shared(first) is not None, None, 0
    whole = WholeFit(method, first[0], inputs) if method.starts_from_whole else None
    for part in [list(masks)] if shares else [[mask] for mask in masks]:
        runs = FoldRuns(method, inputs, part, ctx, grams)
        for found in _followed(runs, chains, whole):
            yield found._replace(fold=count + found.fold)
        grams, count = runs.grams, count + len(part)


def _followed(runs: FoldRuns, chains: Sequence[Sequence[Any]], whole: WholeFit | None) -> Iterator[PathValues]:
    """Yield what fits decide that follow all chains."""
    method, before, first = runs.method, dict[Any, tuple[Any, Any]](), 0
    for chain in chains:
        steps = [list(chain)] if method.shares_points else [[config] for config in chain]
        for configs in steps:
            for fits, run in runs.of([config.for_folds() for config in configs]):
                known = before.get(tuple(fold for _, fold in fits))
                method.follow_path(run, None if known is None else known[0])
                start = None
                if known is not None:
                    start = method.warm_start(run, method.init(run, runs.ctx), *known)
                elif whole is not None:
                    start = whole.start(run, runs.ctx)
                state = iterate(method, run, runs.ctx, start=start).state
                before[tuple(fold for _, fold in fits)] = run, state
                for further, values in method.path_values(run, state, runs.ctx):
                    for (point, fold), part in zip(fits, values.reshape(len(fits), -1, values.shape[1]), strict=True):
                        yield PathValues(first + point, fold, further, part)
            first += len(configs)

"""What fits along a path of parameters decide, each without the rows of a fold: passes, matrices and warm starts are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple

import numpy as np

from ..loops.protocol import Loop, S, Step
from ..loops.run import run_loop
from ..method import Method
from ..records.context import RunContext
from .fits import FoldRuns


class PathValues(NamedTuple):
    """What one fit decides on all labelled rows."""

    point: int  # its parameters, by number
    fold: int  # what it did not see
    further: dict[str, Any]  # parameters it would end there with, such as the number of rounds
    values: np.ndarray  # (n_machines, n_labelled)


class Continued(Generic[S]):
    """A loop that begins where another one ended: at what ``start`` makes of its own first state."""

    def __init__(self, loop: Loop[S], start: Callable[[S], S]) -> None:
        self.loop, self.start, self.state_type = loop, start, loop.state_type

    def init(self, ctx: RunContext) -> S:
        """Return the state to begin with."""
        return self.start(self.loop.init(ctx))

    def step(self, state: S, ctx: RunContext) -> Step[S]:
        """Return the state after one more step."""
        return self.loop.step(state, ctx)


def path_values(
    method: type[Method], chains: Sequence[Sequence[Any]], inputs: object, masks: Sequence[np.ndarray], ctx: RunContext
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
    for part in [list(masks)] if shares else [[mask] for mask in masks]:
        runs = FoldRuns(method, inputs, part, ctx, grams)
        for found in _followed(runs, chains):
            yield found._replace(fold=count + found.fold)
        grams, count = runs.grams, count + len(part)


def _followed(runs: FoldRuns, chains: Sequence[Sequence[Any]]) -> Iterator[PathValues]:
    """Yield what fits decide that follow all chains."""
    before, first = dict[Any, tuple[Method, Any]](), 0
    for chain in chains:
        steps = [list(chain)] if runs.method.shares_points else [[config] for config in chain]
        for configs in steps:
            for fits, run in runs.of([runs.method.for_folds(config) for config in configs]):
                known = before.get(tuple(fold for _, fold in fits))
                run.follow_path(None if known is None else known[0])
                loop = run.loop if known is None else Continued(run.loop, lambda fresh, run=run, known=known: run.warm_start(fresh, *known))
                state = run_loop(loop, runs.ctx, keep=False).state
                before[tuple(fold for _, fold in fits)] = run, state
                for further, values in run.path_values(state, runs.ctx):
                    for (point, fold), part in zip(fits, values.reshape(len(fits), -1, values.shape[1]), strict=True):
                        yield PathValues(first + point, fold, further, part)
            first += len(configs)

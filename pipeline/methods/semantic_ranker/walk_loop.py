"""Scores by a random walk on a given similarity: power iteration in this process, or by passes where the matrix has no room there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.ranking.random_walk import (
    MIN_TOL,
    Walk,
    exact_scores,
    is_stochastic,
    max_walk_steps,
    step_walk,
    walk_error,
    walk_on,
)
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import Matrix
from ...core.result import Step
from ...grams.sources import READ, rows_of
from ...passes.blocks import scale_as_given
from ...records.context import RunContext
from .config import VisualRankConfig
from .walk_pass import is_stochastic_store, walk_product

PRODUCTS_PER_STEP = 16  # in this process; a pass is a step
DENSE_ENTRY, SPARSE_ENTRY = 16, 40  # bytes of an entry as read and as weights, while both are there


@dataclass(frozen=True)
class WalkState:
    """State of a power iteration."""

    record_name: ClassVar[str] = "WalkState"
    iteration: int
    scores: np.ndarray  # (n,)
    products: int  # with S
    change: float  # of the last product, as an l1 norm
    keeps_diagonal: bool
    stop: str | None = None  # "tol", "max_iter", "stalled" (by rounding) or "closed form"


class WalkLoop:
    """Scores of the rows of a similarity; ``in_memory``: the matrix is read into this process."""

    state_type = WalkState

    def __init__(self, config: VisualRankConfig, prior: np.ndarray, *, in_memory: bool) -> None:
        self.config, self.prior, self.in_memory = config, prior, in_memory
        self._walk: Walk | None = None

    @property
    def most(self) -> int:
        """Products at most."""
        config = self.config
        return min(max_walk_steps(config.damping, config.tol), config.max_iter or np.iinfo(np.int64).max)

    def init(self, ctx: RunContext) -> WalkState:
        """Return the prior, and whether the diagonal stays."""
        diagonal = self.config.diagonal
        keeps = diagonal == "keep" or (
            diagonal == "auto" and (is_stochastic(_matrix(ctx.data)) if self.in_memory else is_stochastic_store(ctx))
        )
        return WalkState(0, self.prior, 0, np.inf, bool(keeps))

    def step(self, state: WalkState, ctx: RunContext) -> Step[WalkState]:
        """Take some products, or solve at once."""
        new = self._solved(state, ctx) if self.config.solver == "exact" else self._walked(state, ctx)
        new = replace(new, iteration=state.iteration + 1)
        gap = self.error(new)
        return Step(new, {"products": new.products, "change": new.change, "gap": gap, "relative_gap": gap})

    def _solved(self, state: WalkState, ctx: RunContext) -> WalkState:
        scores = exact_scores(self._stochastic(state, ctx), self.prior, self.config.damping)
        return replace(state, scores=scores.values, change=0.0, stop="closed form")

    def _walked(self, state: WalkState, ctx: RunContext) -> WalkState:
        config, r, change, done = self.config, state.scores, state.change, state.products
        target, stop = max(config.tol, MIN_TOL), None
        while stop is None and done < state.products + (PRODUCTS_PER_STEP if self.in_memory else 1):
            r, change = step_walk(lambda v: self._product(v, state, ctx), r, self.prior, config.damping)
            done += 1
            if change < target:
                stop = "tol"
            elif done >= self.most:
                # A contraction is within its tolerance by then, but for rounding.
                stop = "max_iter" if config.max_iter is not None and done >= config.max_iter else "stalled"
        return replace(state, scores=r, products=done, change=change, stop=stop)

    def _product(self, r: np.ndarray, state: WalkState, ctx: RunContext) -> np.ndarray:
        if not self.in_memory:
            return walk_product(ctx, r, state.keeps_diagonal)
        return self._stochastic(state, ctx).product(r)

    def _stochastic(self, state: WalkState, ctx: RunContext) -> Walk:
        if self._walk is None:
            self._walk = walk_on(_matrix(ctx.data), "keep" if state.keeps_diagonal else "zero")
        return self._walk

    def error(self, state: WalkState) -> float:
        """Return the bound of the l1 distance of the scores from the exact ones."""
        return 0.0 if state.stop == "closed form" else walk_error(state.change, self.config.damping)


def _matrix(data: BlockStore | MemoryBlocks) -> Matrix:
    """Return the similarity that a data set holds, dense or CSR."""
    if isinstance(data, MemoryBlocks) and data.scale.kind == "none":
        return data.X
    parts = [rows_of(data, lo, min(lo + READ, data.n_rows), scale_as_given) for lo in range(0, data.n_rows, READ)]
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)

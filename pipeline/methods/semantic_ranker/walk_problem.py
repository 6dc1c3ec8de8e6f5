"""Scores by a random walk on a given similarity: power iteration in this process, or by passes if the matrix does not fit in the memory of
this process.

Passes take 4 to 5 times as long on dense similarities, and 1.1 to 1.5 times on sparse ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from ....kernels.ranking.random_walk import Walk, is_stochastic, max_walk_steps, normalise_prior, walk_error, walk_on
from ....storage import BlockStore, DataError, MemoryBlocks
from ....storage.errors import Matrix
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...grams.sources import READ, rows_of
from ...passes.blocks import scale_as_given
from ...passes.columns import entry_count
from ...records.data_set import Reads, require
from .config import VisualRankConfig
from .walk_pass import is_stochastic_store, walk_plan

DENSE_ENTRY, SPARSE_ENTRY = 16, 40  # bytes of an entry as read and as weights, while both are there


@dataclass(frozen=True)
class WalkInputs(Reads):
    """A square similarity of rows, and the prior of the walk, ``(n,)``, which sums to 1."""

    data: BlockStore | MemoryBlocks
    prior: np.ndarray

    @classmethod
    def read(cls, data: BlockStore | MemoryBlocks, prior: ArrayLike | None) -> Self:
        """Return the inputs with the given prior. The default prior is the weights of a store's rows; without weights, it is uniform.

        Raises ValueError for data that are not square, or an invalid prior.
        """
        require(data, "visual-rank", "columns")
        if data.n_rows != data.n_cols:
            where = "" if data.url == "memory" else data.url
            raise DataError(f"similarity: shape ({data.n_rows}, {data.n_cols}); it must be square, (n_samples, n_samples)", where)
        if prior is None and data.has_table("weight"):
            prior = data.row_table("weight")
        return cls(data, normalise_prior(prior, data.n_rows))


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


@dataclass(eq=False)
class WalkProblem:
    """Scores of the rows of a similarity."""

    config: VisualRankConfig
    inputs: WalkInputs
    in_memory: bool  # the matrix is read into this process
    _walk: Walk | None = None

    @property
    def most(self) -> int:
        """Largest number of products of S with a vector."""
        config = self.config
        return min(max_walk_steps(config.damping, config.tol), config.max_iter or np.iinfo(np.int64).max)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where products are computed, and the number of tasks of one product."""
        data, passes = self.inputs.data, {"tasks_per_pass": 0, "task_bytes": 0}
        if not self.in_memory:
            work = walk_plan(data, self.inputs.prior, False)
            passes = {"tasks_per_pass": work.n_tasks, "task_bytes": work.memory_bound}
        sizes = {"n_rows": data.n_rows, "products_on": "matrix" if self.in_memory else "passes"}
        products = 0 if self.config.solver == "exact" else self.most
        return {**driver_plan(self.driver_items), **sizes, "products_at_most": products, **passes}

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return () if self.in_memory else ("products with the similarity",)

    @property
    def driver_items(self) -> tuple[Item, ...]:
        system = (("matrix of the system, and its factors", 32 * self.inputs.data.n_rows**2),) if self.config.solver == "exact" else ()
        return (*walk_items(self.inputs.data, in_memory=self.in_memory), *system)

    def keeps_diagonal(self, resources: Resources) -> bool:
        """Return whether the diagonal of the similarity is kept, so that a row counts as similar to itself. ``"auto"`` keeps it if the
        columns are already non-negative and sum to 1.
        """
        if self.config.diagonal != "auto":
            return self.config.diagonal == "keep"
        data = self.inputs.data
        return bool(is_stochastic(_matrix(data)) if self.in_memory else is_stochastic_store(data, resources))

    def stochastic(self, state: WalkState, resources: Resources) -> Walk:
        """Return S, which is computed at the first call and kept in the memory of this process."""
        if self._walk is None:
            self._walk = walk_on(_matrix(self.inputs.data), "keep" if state.keeps_diagonal else "zero")
        return self._walk

    def error(self, state: WalkState) -> float:
        """Return an upper bound of the l1 distance of the scores to the exact scores."""
        return 0.0 if state.stop == "closed form" else walk_error(state.change, self.config.damping)


def walk_items(data: BlockStore | MemoryBlocks, *, in_memory: bool) -> tuple[Item, ...]:
    """Return the memory of the driver for a walk."""
    vectors = "scores and prior", 64 * data.n_rows
    if not in_memory:
        return (vectors,)
    nbytes = DENSE_ENTRY * data.n_rows**2 if data.meta.kind == "dense" else SPARSE_ENTRY * entry_count(data)
    return vectors, ("similarity, as read and as weights", nbytes)


def _matrix(data: BlockStore | MemoryBlocks) -> Matrix:
    """Return the similarity in a data set, dense or CSR."""
    if isinstance(data, MemoryBlocks) and data.scale.kind == "none":
        return data.X
    parts = [rows_of(data, lo, min(lo + READ, data.n_rows), scale_as_given) for lo in range(0, data.n_rows, READ)]
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)

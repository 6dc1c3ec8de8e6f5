"""The sub-problem with its rows left on the workers (docs/methods.md, "Rows on the workers"): the driver never holds ``Z``.

A task owns one fixed block of rows, builds the cuts' columns of these rows from the store (kept in the worker's cache) and runs one
operation of :data:`gramplane.kernels.mixed_norm.ROW_OPERATIONS`; partial sums are added in the tree the driver would use, so both ways give
the same bits.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.mixed_norm import ROW_BLOCK, ROW_OPERATIONS, BlockedRows, RowQuery, add_sums
from ....kernels.mixed_norm.row_block import RememberingBlock
from ....kernels.mixed_norm.rows_blocked import FAN_IN
from ....storage import BlockStore, MemoryBlocks, block_cache
from ...passes.blocks import Columns, Ref, scale_of, serial, source_of, table_of
from ...passes.columns import stack
from ...passes.scaling import scaled
from ...records.context import RunContext, Shared, resolve

Sums = tuple[np.ndarray, ...]

Combine = Callable[[Sequence[Sums]], Sums]

# Bytes of a step on a block of rows, per byte of its columns: as read, as built cut by cut and side by side, and the row form a sparse part
# is turned into.
PART_COPIES = 4


# Bytes of columns of sparse data by their number: the counts of a wide store are searched once for each.
_SPARSE_BYTES: weakref.WeakKeyDictionary[BlockStore | MemoryBlocks, dict[int, int]] = weakref.WeakKeyDictionary()


class ColumnMaker(Protocol):
    """Atoms as far as a worker needs them."""

    @property
    def centred(self) -> bool:
        """Whether an intercept centres the columns, see :func:`~gramplane.pipeline.passes.blocks.scale_of`."""
        ...

    @property
    def signature(self) -> str:
        """What tells these columns from others of the same coordinates and factors."""
        ...

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate of each column of the atoms and its factor."""
        ...

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the features behind atoms."""
        ...

    def build(self, data: BlockStore | MemoryBlocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the columns of atoms."""
        ...


@dataclass(frozen=True)
class DesignPart:
    """Rows ``lo:hi`` of the columns of some cuts, by name."""

    ref: Ref  # any block of the store
    token: str  # digest of all that decides the columns: the cuts, the atoms, and for arrays in memory which arrays
    rows: tuple[int, int]  # half-open range
    nbytes: int  # of the loaded part at most
    # How to build it:
    atoms: ColumnMaker = field(compare=False, repr=False)
    cuts: tuple[np.ndarray, ...] = field(compare=False, repr=False)

    def load(self) -> RememberingBlock:
        """Build the columns from the store, in the memory order the driver would hold them in: bits follow it."""
        data = source_of(self.ref)
        features = np.unique(np.concatenate([self.atoms.features(ids) for ids in self.cuts]))
        row_factor = None if data.scale.row_factor is None else data.scale.row_factor[slice(*self.rows)]
        raw = scaled(data.columns(features, self.rows), scale_of(data, features, centred=self.atoms.centred), row_factor)
        columns = stack([self.atoms.build(data, raw, features, ids) for ids in self.cuts])
        return RememberingBlock(np.asfortranarray(columns) if isinstance(columns, np.ndarray) else columns)


def rows_chunk(part: DesignPart, y: Shared, cost: Shared, name: str, query: RowQuery) -> Sums:
    """Run one operation on a block of rows (on a worker), or return its decision values."""
    block, span = block_cache().load(part), slice(*part.rows)
    if name == "decision":
        return (block.product(query.omega) - query.bias,)
    return ROW_OPERATIONS[name](block, resolve(y)[span], resolve(cost)[span], query)


def _concatenate(parts: Sequence[Sums]) -> Sums:
    return (np.concatenate([part[0] for part in parts]),)


class RemoteDesign:
    """Columns of the cuts, left where the rows are; the counterpart of :class:`gramplane.pipeline.methods.fgm.designs.Design`."""

    def __init__(self, ctx: RunContext, atoms: ColumnMaker) -> None:
        self._ctx, self._atoms = ctx, atoms
        self._cuts: list[np.ndarray] = []
        self._digest = hashlib.sha256(f"{serial(ctx.data)} {type(atoms).__name__} {atoms.signature} {atoms.centred}".encode())
        self.widths: list[int] = []

    def append(self, ids: np.ndarray) -> None:
        """Append the atoms of one more cut."""
        coordinates, factors = self._atoms.coordinates(ids)
        for part in (np.array(coordinates.shape), coordinates, factors):
            self._digest.update(np.ascontiguousarray(part).tobytes())
        self._cuts.append(ids)
        self.widths.append(len(factors))

    def rows(self, y: np.ndarray, cost: np.ndarray, loss: str) -> BlockedRows:
        """Return row access for the solver; every operation is one pass over the blocks of rows."""
        labels, costs = self._ctx.broadcast("labels", y), self._ctx.broadcast("costs", cost)

        def run(name: str, query: RowQuery, combine: Combine, result: int) -> Sums:
            return self._run(name, query, combine, result, labels, costs)

        def join(name: str, query: RowQuery) -> list[np.ndarray]:
            return list(run(name, query, _concatenate, 8 * len(y)))

        p = sum(self.widths)
        return BlockedRows(len(y), p, loss, lambda name, query: run(name, query, add_sums, 8 * (p * p + 2 * p + 3)), join)

    def decision_values(self, omega: np.ndarray, bias: float) -> np.ndarray:
        """Return the decision values ``Z omega - bias``, ``(n_samples,)``."""
        n = self._ctx.data.n_rows
        if not self.widths:
            return np.full(n, -bias)
        none = np.zeros(n)
        return self._run("decision", RowQuery("squared_hinge", omega, bias), _concatenate, 8 * n, none, none)[0]

    def _run(self, name: str, query: RowQuery, combine: Combine, result: int, y: Shared, cost: Shared) -> Sums:
        n, ref, token = self._ctx.data.n_rows, self._ctx.data.column_blocks()[0], self._digest.hexdigest()
        nbytes, cuts = 8 * min(ROW_BLOCK, n) * sum(self.widths), tuple(self._cuts)
        edges = [(lo, min(lo + ROW_BLOCK, n)) for lo in range(0, n, ROW_BLOCK)]
        parts = [DesignPart(ref, token, rows, nbytes, self._atoms, cuts) for rows in edges]
        joined = 2 * result if combine is _concatenate else None
        program = BlockProgram(f"rows-{name}", rows_chunk, combine, lambda part: PART_COPIES * part.nbytes, result, combine_bytes=joined)
        return self._ctx.run_pass(plan(program, parts, y, cost, name, query, split_every=FAN_IN))


def design_bytes(data: BlockStore | MemoryBlocks, columns: int) -> int:
    """Bound the bytes of ``columns`` columns of the data on the driver: dense, or the heaviest sparse ones by their counts."""
    if data.meta.kind == "dense":
        return 8 * data.n_rows * columns
    sizes = _SPARSE_BYTES.setdefault(data, {})
    if columns not in sizes:
        # The sum of the largest counts, of all where there are fewer: by how often each occurs, which takes no sorting.
        counts = table_of(data, "counts")
        frequencies = np.bincount(counts)[::-1]
        chosen = np.clip(columns - (np.cumsum(frequencies) - frequencies), 0, frequencies)
        largest = int(chosen @ np.arange(len(frequencies))[::-1])
        sizes[columns] = 12 * largest * max(1, columns // max(len(counts), 1))
    return sizes[columns]

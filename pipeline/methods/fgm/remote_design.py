"""The sub-problem with its rows left on the workers (docs/methods.md, "Rows on the workers"): the driver never holds ``Z``.

A task owns one fixed block of rows, builds the cuts' columns of these rows from the store (kept in the worker's cache) and runs one
operation of :data:`gramplane.kernels.mixed_norm.ROW_OPERATIONS`; partial sums are added in the tree the driver would use, so both ways give
the same bits.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.mixed_norm import ROW_BLOCK, ROW_OPERATIONS, BlockedRows, RowQuery, add_sums
from ....kernels.mixed_norm.row_block import RememberingBlock
from ....kernels.mixed_norm.rows_blocked import FAN_IN
from ....storage import BlockStore, MemoryBlocks, block_cache
from ...passes.blocks import Columns, Ref, scale_of, serial, source_of, table_of
from ...passes.columns import stack
from ...passes.scaling import scaled
from ...records.context import RunContext, received

Sums = tuple[np.ndarray, ...]


PART_COPIES = 4  # bytes of a step on a block of rows, per byte of its columns


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
    """Rows ``lo:hi`` of the columns of some cuts, by name.

    ``ref``: any block of the store; ``token``: digest of all that decides the columns: the cuts, the atoms, and for arrays in memory which
    arrays; ``rows``: half-open range; ``nbytes``: upper bound of the loaded part; ``atoms``, ``cuts``: how to build it.
    """

    ref: Ref
    token: str
    rows: tuple[int, int]
    nbytes: int
    atoms: ColumnMaker = field(compare=False, repr=False)
    cuts: tuple[np.ndarray, ...] = field(compare=False, repr=False)

    def load(self) -> RememberingBlock:
        """Build the columns from the store, in the memory order the driver would hold them in: bits follow it."""
        data = source_of(self.ref)
        features = np.unique(np.concatenate([self.atoms.features(ids) for ids in self.cuts]))
        scale = data.scale
        row_factor = None if scale.row_factor is None else scale.row_factor[slice(*self.rows)]
        raw = scaled(data.columns(features, self.rows), scale_of(data, features, centred=self.atoms.centred), row_factor)
        columns = stack([self.atoms.build(data, raw, features, ids) for ids in self.cuts])
        return RememberingBlock(np.asfortranarray(columns) if isinstance(columns, np.ndarray) else columns)


def _decision(block: RememberingBlock, y: np.ndarray, cost: np.ndarray, query: RowQuery) -> Sums:
    return (block.product(query.omega) - query.bias,)


_OPERATIONS = {**ROW_OPERATIONS, "decision": _decision}


def rows_chunk(part: DesignPart, y: Any, cost: Any, name: str, query: RowQuery) -> Sums:
    """Run one operation on a block of rows (on a worker)."""
    span = slice(*part.rows)
    return _OPERATIONS[name](block_cache().load(part), received(y)[span], received(cost)[span], query)


def _concatenate(parts: Sequence[Sums]) -> Sums:
    return (np.concatenate([part[0] for part in parts]),)


def _part_bytes(part: DesignPart) -> int:
    # Columns as read, as built cut by cut and side by side, and the row form a sparse part is turned into.
    return PART_COPIES * part.nbytes


class RemoteDesign:
    """Columns of the cuts, left where the rows are; the counterpart of :class:`gramplane.pipeline.methods.fgm.designs.Design`.

    ``ctx``: executor and store; ``atoms``: candidates.
    """

    def __init__(self, ctx: RunContext, atoms: ColumnMaker) -> None:
        self._ctx = ctx
        self._atoms = atoms
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
        labels, costs = self._ctx.share("labels", y), self._ctx.share("costs", cost)

        def run(name: str, query: RowQuery, combine: Any, result: int) -> Sums:
            return self._run(name, query, combine, result, labels, costs)

        p = sum(self.widths)
        return BlockedRows(
            len(y),
            p,
            loss,
            lambda name, query: run(name, query, add_sums, 8 * (p * p + 2 * p + 3)),
            lambda name, query: list(run(name, query, _concatenate, 8 * len(y))),
        )

    def decision_values(self, omega: np.ndarray, bias: float) -> np.ndarray:
        """Return the decision values ``Z omega - bias``, ``(n_samples,)``."""
        n = self._ctx.data.n_rows
        if not self.widths:
            return np.full(n, -bias)
        none = np.zeros(n)
        return self._run("decision", RowQuery("squared_hinge", omega, bias), _concatenate, 8 * n, none, none)[0]

    def _run(self, name: str, query: RowQuery, combine: Any, result: int, y: Any, cost: Any) -> Sums:
        joined = 2 * result if combine is _concatenate else None
        program = BlockProgram(f"rows-{name}", rows_chunk, combine, _part_bytes, result, combine_bytes=joined)
        return self._ctx.run_pass(plan(program, self._parts(), y, cost, name, query, split_every=FAN_IN))

    def _parts(self) -> list[DesignPart]:
        n, cuts = self._ctx.data.n_rows, tuple(self._cuts)
        token, ref = self._digest.hexdigest(), self._ctx.data.column_blocks()[0]
        nbytes = 8 * min(ROW_BLOCK, n) * sum(self.widths)
        edges = range(0, n, ROW_BLOCK)
        return [DesignPart(ref, token, (lo, min(lo + ROW_BLOCK, n)), nbytes, self._atoms, cuts) for lo in edges]


def design_bytes(data: BlockStore | MemoryBlocks, columns: int) -> int:
    """Bound the bytes of ``columns`` columns of the data on the driver: dense, or the heaviest sparse ones by their counts."""
    if data.meta.kind == "dense":
        return 8 * data.n_rows * columns
    sizes = _SPARSE_BYTES.setdefault(data, {})
    if columns not in sizes:
        counts = table_of(data, "counts")
        sizes[columns] = 12 * _sum_of_largest(counts, columns) * max(1, columns // max(len(counts), 1))
    return sizes[columns]


def _sum_of_largest(counts: np.ndarray, k: int) -> int:
    """Return the sum of the k largest counts, of all where there are fewer: by how often each occurs, which takes no sorting."""
    frequencies = np.bincount(counts)[::-1]
    chosen = np.clip(k - (np.cumsum(frequencies) - frequencies), 0, frequencies)
    return int(chosen @ np.arange(len(frequencies))[::-1])


_SPARSE_BYTES: weakref.WeakKeyDictionary[BlockStore | MemoryBlocks, dict[int, int]] = weakref.WeakKeyDictionary()
"""Bytes of columns of sparse data by their number: the counts of a wide store are searched once for each."""

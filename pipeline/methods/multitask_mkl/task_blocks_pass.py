"""Gram matrices within tasks: for every task, the square block of its own rows and columns, computed or read from any source.

Rows are sorted by task (row r of the sorted rows is row ``order[r]`` of the data), and no block contains rows of two tasks.
References of all types load bit-identical raw kernels ``(k, rows, columns)``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....cluster import bytes_text
from ....kernels.grams.blocks import gram_block
from ....kernels.grams.spec import KernelSpec
from ....storage import BlockStore, GramStore, MemoryBlocks, open_shared
from ....storage.errors import Matrix
from ....storage.grams.layout import GramLayout
from ...core.resources import BANK_SHARE, Resources
from ...grams.given import GivenGrams, StoredPair
from ...grams.settings import PLACES, GramSettings, Policy
from ...grams.sources import READ, TILE, RowData, TextRows, rows_of
from ...records.config import GramPolicy

BLOCK_BYTES = 32 << 20  # entries of one block pair, all kernels together
BATCH_BYTES = 64 << 20  # entries of the tasks that one step of a pass takes together; a larger task is a step of its own
MAX_READS = 16  # runs of rows that are read one by one
MAX_ROWS_READ = 4  # rows of a task are read with those between them up to this many times their number, else run by run


def task_layout(sizes: Sequence[int], k: int) -> GramLayout:
    """Return how the square matrices of the tasks are divided into blocks. They are not divided if k matrices of the largest task fit in
    ``BLOCK_BYTES``; otherwise they are divided evenly at multiples of 128 rows.
    """
    largest = max(sizes)
    longest = max(TILE, int((BLOCK_BYTES / (4 * max(1, k))) ** 0.5) // TILE * TILE)
    pieces = -(-largest // longest)
    block = largest if pieces == 1 else -(-largest // (pieces * TILE)) * TILE
    return GramLayout(sum(sizes), block, tuple(int(size) for size in sizes))


def entries_bytes(layout: GramLayout, k: int, dtype: str) -> int:
    return np.dtype(dtype).itemsize * k * sum(int(np.prod(layout.shape(i, j))) for i, j in layout.pairs())


def task_settings(
    ctx: Resources, layout: GramLayout, k: int, policy: GramPolicy, store: str | None, dtype: str, data: object
) -> GramSettings:
    """Return where the entries are kept, by their size or by ``policy``. Workers keep what they compute from the rows of a store, if passes
    over it are worth their cost. Raises ValueError for a store without a path.
    """
    if policy == "store" and store is None:
        raise ValueError("grams='store' needs a path for the Gram store")
    needed, budget = entries_bytes(layout, k, dtype), int(BANK_SHARE * ctx.driver_memory)
    sizes = f"{k} Gram matrices within {len(layout.groups)} tasks take {bytes_text(needed)}"
    if policy == "auto" and store is None and isinstance(data, BlockStore) and ctx.pays_on_workers(needed, -(-needed // BATCH_BYTES)):
        where = "computed by the workers, which keep them as far as there is room"
        return GramSettings("recompute", layout.block, None, f"{where}: {sizes}", dtype)
    sizes = f"{sizes}, the driver may give them {bytes_text(budget)}"
    auto: Policy = "memory" if needed <= budget else "recompute" if store is None else "store"
    chosen: Policy = auto if policy == "auto" else policy
    return GramSettings(chosen, layout.block, store, f"{PLACES[chosen]}{'' if policy == 'auto' else ', as asked for'}: {sizes}", dtype)


@dataclass(frozen=True)
class ComputedPair:
    """A block pair within a task that is computed when it is loaded."""

    url: str  # of the block store, or "memory"
    digest: str  # of its contents, or empty
    rows: tuple[int, int]  # ranges of the rows sorted by task; equal on the diagonal
    cols: tuple[int, int]
    specs: tuple[KernelSpec, ...] = field(repr=False, compare=False)
    width: int  # columns of the data
    key: str  # what identifies the kernels and the order of the rows
    left: np.ndarray = field(repr=False, compare=False)  # rows of the data they stand for, ascending
    right: np.ndarray = field(repr=False, compare=False)
    source: RowData | None = field(default=None, repr=False, compare=False)  # arrays in memory; such a reference stays in its process
    dtype: str = "float32"

    @property
    def nbytes(self) -> int:
        """Memory in bytes of the loaded block."""
        return np.dtype(self.dtype).itemsize * len(self.specs) * len(self.left) * len(self.right)

    @property
    def row_bytes(self) -> int:
        """Upper bound on the memory in bytes of the rows that are read, in float64."""
        return 8 * self.width * (MAX_ROWS_READ * (len(self.left) + len(self.right)) + READ)

    def load(self) -> np.ndarray:
        """Return the raw kernels ``(k, rows, columns)``, computed from the rows."""
        data = self.source or open_shared(self.url, self.digest)
        right = None if self.rows == self.cols else read_rows(data, self.right)
        return gram_block(self.specs, read_rows(data, self.left), right, dtype=self.dtype)


@dataclass(frozen=True)
class GivenTaskPair:
    """A block pair within a task, taken from precomputed matrices. Arrays stay in their process."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    positions: tuple[int, ...] = field(repr=False, compare=False)
    left: np.ndarray = field(repr=False, compare=False)
    right: np.ndarray = field(repr=False, compare=False)
    source: np.ndarray = field(repr=False, compare=False)
    dtype: str = "float32"

    row_bytes = 0

    @property
    def nbytes(self) -> int:
        """Memory in bytes of the loaded block."""
        return np.dtype(self.dtype).itemsize * len(self.positions) * len(self.left) * len(self.right)

    def load(self) -> np.ndarray:
        """Return the raw kernels ``(k, rows, columns)``. A block on the diagonal is made symmetric by mirroring its upper triangle."""
        block = np.asarray(self.source[np.ix_(np.array(self.positions), self.left, self.right)], self.dtype)
        if self.rows == self.cols:
            block = np.triu(block) + np.triu(block, 1).transpose(0, 2, 1)
        return np.ascontiguousarray(block)


@dataclass(frozen=True)
class LoadedPair:
    """A block pair in memory, normalised."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    block: np.ndarray = field(repr=False, compare=False)

    row_bytes = 0

    @property
    def nbytes(self) -> int:
        return self.block.nbytes

    def load(self) -> np.ndarray:
        """Return the kernels ``(k, rows, columns)``."""
        return self.block


TaskPair = ComputedPair | GivenTaskPair | LoadedPair | StoredPair


def task_pairs(
    data: RowData | GivenGrams, specs: Sequence[Any], layout: GramLayout, order: np.ndarray, dtype: str = "float32"
) -> Sequence[TaskPair]:
    """Return references to the block pairs of all tasks, task by task; ``order`` lists the rows of the data task by task."""
    spans = [(layout.span(i), layout.span(j)) for i, j in layout.pairs()]
    if isinstance(data, GivenGrams):
        source, positions = data.source, tuple(spec.position for spec in specs)
        if isinstance(source, GramStore):
            # It keeps pairs of rows of different tasks, which are of no use here.
            raise ValueError("a Gram store of whole matrices cannot be cut into tasks; give the matrices as an array (n_kernels, n, n)")
        return [GivenTaskPair(rows, cols, positions, order[slice(*rows)], order[slice(*cols)], source, dtype) for rows, cols in spans]
    data, order = _sort_rows(data, order)
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else ("", data)
    key = hashlib.sha256(repr(specs).encode() + np.ascontiguousarray(order, "<i8").tobytes()).hexdigest()
    about = tuple(specs), data.n_cols, key
    return [
        ComputedPair(data.url, digest, rows, cols, *about, order[slice(*rows)], order[slice(*cols)], source, dtype) for rows, cols in spans
    ]


def _sort_rows(data: RowData, order: np.ndarray) -> tuple[RowData, np.ndarray]:
    """Return data in memory with the rows of each task contiguous, and the new order. This makes at most one copy instead of one per
    task.
    """
    scattered = np.any(np.diff(order) != 1)
    if not (scattered and isinstance(data, MemoryBlocks) and data.scale.kind == "none"):
        return data, order
    X = sp.csr_array(data.X)[order] if sp.issparse(data.X) else data.X[order]
    return MemoryBlocks(X), np.arange(len(order))


def load_pairs(pairs: Sequence[TaskPair]) -> list[np.ndarray]:
    """Return the loaded block pairs. Adjacent squares of small tasks are computed as one square and cut out of it, which is faster and
    bit-identical.
    """
    blocks: list[np.ndarray] = []
    while len(blocks) < len(pairs):
        group = _small_squares(pairs, len(blocks))
        if len(group) < 2:
            blocks.append(pairs[len(blocks)].load())
            continue
        square = replace(group[0], left=np.concatenate([pair.left for pair in group])).load()
        start = group[0].rows[0]
        cuts = [slice(pair.rows[0] - start, pair.rows[1] - start) for pair in group]
        blocks += [np.ascontiguousarray(square[:, cut, cut]) for cut in cuts]
    return blocks


def _small_squares(pairs: Sequence[TaskPair], start: int) -> list[ComputedPair]:
    """Return the pairs from ``start`` on that may be computed together: diagonal blocks of consecutive tasks that together have at most
    ``TILE`` rows, and whose rows ascend in the data.
    """
    first = pairs[start]
    if not isinstance(first, ComputedPair) or first.rows != first.cols:
        return []
    group = [first]
    for pair in pairs[start + 1 :]:
        if not isinstance(pair, ComputedPair) or pair.rows != pair.cols or pair.rows[1] - first.rows[0] > TILE:
            break
        if pair.left[0] <= group[-1].left[-1]:
            break
        group.append(pair)
    return group


def read_rows(data: RowData, ids: np.ndarray) -> Matrix:
    """Return the scaled rows with the given ascending ids: an array, a CSR array, or strings."""
    if isinstance(data, TextRows):
        return data.texts[ids]
    lo, hi = int(ids[0]), int(ids[-1]) + 1
    if hi - lo == len(ids):
        return rows_of(data, lo, hi)
    if hi - lo <= MAX_ROWS_READ * len(ids):
        return rows_of(data, lo, hi)[ids - lo]
    # Runs of rows, or if these are many, ranges of rows with those between them: a read takes as long as some thousand rows.
    cuts = np.flatnonzero(np.diff(ids) > 1) + 1
    if len(cuts) > MAX_READS:
        cuts = np.flatnonzero(np.diff(ids // READ)) + 1
    spans = pairwise([0, *cuts.tolist(), len(ids)])
    parts = [rows_of(data, int(ids[a]), int(ids[b - 1]) + 1)[ids[a:b] - ids[a]] for a, b in spans]
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)

"""The pass over pairs of row blocks that finds the nearest neighbours of every row.

A task compares a block of rows with a larger block of candidates. The neighbour lists of a row are merged by a total order, so results are
bit-identical to :func:`gramplane.kernels.spectral.neighbors.nearest_rows` for any blocks and workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from ...cluster import BlockProgram, Plan, plan
from ...kernels.spectral.neighbors import TILE_COLUMNS, TILE_ROWS, Nearest, merge_nearest, nearest_between
from ...storage import BlockStore, MemoryBlocks, open_shared
from ..core.resources import Resources, Shared, resolve
from ..passes.blocks import join_lists
from .sources import FREED_BYTES, rows_of

Rows: TypeAlias = Any  # rows as a store gives them: an array or CSR

ROWS = 4096  # rows of a task: from the data alone, never from the number of workers
CANDIDATE_BYTES = 32 << 20  # bytes of the candidates of a task, in float64; at least ROWS of them
PAIRS = 8192  # pairs of rows whose differences are in memory at a time


@dataclass(frozen=True)
class Candidates:
    """A block of rows, and a block of candidates for their neighbours."""

    # url, digest: the block store, or `"memory"` and empty
    url: str
    digest: str
    # rows, cols: ranges of rows
    rows: tuple[int, int]
    cols: tuple[int, int]
    width: int  # columns of the data
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)  # arrays in memory; such a reference stays in its process

    @property
    def nbytes(self) -> int:
        return 8 * self.width * (self.rows[1] - self.rows[0] + self.cols[1] - self.cols[0])


@dataclass(frozen=True)
class Found:
    """The nearest candidates of a block of rows."""

    rows: tuple[int, int]
    nearest: Nearest


def candidates(data: BlockStore | MemoryBlocks) -> list[Candidates]:
    """Return the tasks of a pass, ordered by row block and then by candidates."""
    n, width = data.n_rows, data.n_cols
    wide = max(ROWS, CANDIDATE_BYTES // (8 * max(1, width)) // ROWS * ROWS)
    far = isinstance(data, BlockStore)
    digest, source = (data.digest, None) if far else ("", data)
    rows, cols = ([(lo, min(lo + size, n)) for lo in range(0, n, size)] for size in (ROWS, wide))
    return [Candidates(data.url, digest, a, b, width, source) for a in rows for b in cols]


def nearest_chunk(ref: Candidates, k: int) -> list[Found]:
    """Return the nearest neighbours of a block of rows among a block of candidates."""
    data = ref.source or open_shared(ref.url, ref.digest)
    left = rows_of(data, *ref.rows)
    right = left if ref.rows == ref.cols else rows_of(data, *ref.cols)
    return [Found(ref.rows, nearest_between(left, right, k, left_start=ref.rows[0], right_start=ref.cols[0]))]


@dataclass(frozen=True)
class _Merge:
    """Merges neighbour lists of the same rows."""

    k: int

    def __call__(self, parts: Sequence[list[Found]]) -> list[Found]:
        items = sorted((item for part in parts for item in part), key=lambda item: item.rows)
        groups = [list(group) for _, group in groupby(items, key=lambda item: item.rows)]
        return [replace(group[0], nearest=merge_nearest([item.nearest for item in group], self.k)) for group in groups]


def _pass(data: BlockStore | MemoryBlocks, k: int) -> Plan[list[Found]]:
    def task_bytes(ref: Candidates) -> int:
        # The rows as they are read and in float64, tiles of products, packed rows, lists while they are sorted, freed blocks.
        rows, cols = (hi - lo for lo, hi in (ref.rows, ref.cols))
        tile = min(TILE_ROWS, rows) * min(TILE_COLUMNS, cols)
        return 3 * ref.nbytes + 24 * tile + 64 * k * rows + FREED_BYTES

    size, whole = 16 * k * min(ROWS, data.n_rows) + 256, 16 * k * data.n_rows + 256
    program = BlockProgram("nearest-neighbours", nearest_chunk, _Merge(k), task_bytes, size, combine_bytes=4 * whole)
    return plan(program, candidates(data), k)


def nearest_neighbours(data: BlockStore | MemoryBlocks, resources: Resources, k: int) -> Nearest:
    """Return the ``k`` nearest other rows of every row, after scaling. One pass over pairs of row blocks.

    Raises ValueError if rows are not finite.
    """
    parts = [item.nearest for item in resources.run_pass(_pass(data, k))]
    return Nearest(np.concatenate([part.ids for part in parts]), np.concatenate([part.squares for part in parts]))


def distances_chunk(ref: Candidates, i: Shared, j: Shared) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the positions, in ``i`` and ``j``, of the pairs between two blocks of rows, and the squared distances of these pairs."""
    left, right = resolve(i), resolve(j)
    inside = (left >= ref.rows[0]) & (left < ref.rows[1]) & (right >= ref.cols[0]) & (right < ref.cols[1])
    places = np.flatnonzero(inside)
    if not len(places):
        return []
    data = ref.source or open_shared(ref.url, ref.digest)
    rows = rows_of(data, *ref.rows)
    others = rows if ref.rows == ref.cols else rows_of(data, *ref.cols)
    out = np.empty(len(places))
    for lo in range(0, len(places), PAIRS):
        part = places[lo : lo + PAIRS]
        out[lo : lo + PAIRS] = _squares(rows[left[part] - ref.rows[0]], others[right[part] - ref.cols[0]])
    return [(places, out)]


def _squares(left: Rows, right: Rows) -> np.ndarray:
    steps: Rows = left.astype(np.float64) - right.astype(np.float64)
    return np.asarray(steps.multiply(steps).sum(axis=1)).ravel() if sp.issparse(steps) else np.einsum("ij,ij->i", steps, steps)


def squared_distances(data: BlockStore | MemoryBlocks, resources: Resources, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the squared distances of pairs of rows, after scaling, in one pass over the row blocks that contain these pairs."""
    work = _distances_pass(data, np.minimum(i, j), np.maximum(i, j))
    shared = [resources.share(f"pairs-{name}", array, work.n_tasks) for name, array in zip("ij", work.broadcast, strict=True)]
    out = np.empty(len(i))
    for places, squares in resources.run_pass(replace(work, broadcast=tuple(shared))):
        out[places] = squares
    return out


def _distances_pass(data: BlockStore | MemoryBlocks, i: np.ndarray, j: np.ndarray) -> Plan[list[tuple[np.ndarray, np.ndarray]]]:
    n_blocks = -(-data.n_rows // ROWS)
    spans = [(lo, min(lo + ROWS, data.n_rows)) for lo in range(0, data.n_rows, ROWS)]
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else ("", data)
    held, counts = np.unique(i // ROWS * n_blocks + j // ROWS, return_counts=True)
    blocks = zip(held // n_blocks, held % n_blocks, strict=True)
    refs = [Candidates(data.url, digest, spans[a], spans[b], data.n_cols, source) for a, b in blocks]
    most, whole = int(counts.max(initial=1)), len(i)

    def task_bytes(ref: Candidates) -> int:
        return 2 * ref.nbytes + 32 * data.n_cols * min(PAIRS, most) + 40 * whole + FREED_BYTES

    program = BlockProgram("pair-distances", distances_chunk, join_lists, task_bytes, 16 * most + 256, combine_bytes=64 * whole + 256)
    return plan(program, refs, i, j)


def plan_distances(data: BlockStore | MemoryBlocks, i: np.ndarray, j: np.ndarray) -> dict[str, int]:
    """Return the number of tasks of the pass over pairs of rows, and the memory in bytes of a step."""
    work = _distances_pass(data, np.minimum(i, j), np.maximum(i, j))
    return {"tasks_per_pass": work.n_tasks, "task_bytes": work.memory_bound}


def plan_neighbours(data: BlockStore | MemoryBlocks, k: int) -> dict[str, int]:
    """Return the number of tasks of the neighbour search, and the memory in bytes of a step."""
    work = _pass(data, k)
    return {"tasks_per_pass": work.n_tasks, "task_bytes": work.memory_bound}


def load_programs() -> None:
    """Compile or load the code of a task, so that the measured memory of a worker includes it."""
    for rows in (np.eye(3), np.eye(3) * 0.5):
        nearest_between(rows, rows, 1)

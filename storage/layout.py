"""Planning of stripes and chunks, from counts, shapes and a byte budget alone.

Nothing here accesses a disk, and nothing depends on the number of workers: the same data give the same layout everywhere.
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .errors import SchemaError

STRIPE_BYTES = 4 << 20
"""Default size of the values of one stripe, in bytes."""

STRIPE_ENTRIES = 1 << 20
"""Default largest number of entries in one stripe."""

MEMORY_STRIPE_BYTES = 64 << 20
"""Stripe size for fits in one process. In memory, blocks are views, so fewer and larger stripes save work."""

TABLE_CHUNK = 1 << 20
"""Number of elements in one chunk of a table (a row or column vector stored with the data)."""

_INDEX_LIMIT = 2**31 - 1
_MIN_DENSE_COLUMNS = 16


@dataclass(frozen=True, eq=False)
class StripeLayout:
    """Division of a sparse matrix into stripes along one axis (columns for CSC, rows for CSR).

    Stripe s holds the columns (rows) ``edges[s]:edges[s + 1]`` with ``nnz[s]`` stored entries, in chunks of L = ``chunk`` elements.
    """

    edges: npt.NDArray[np.int64]
    nnz: npt.NDArray[np.int64]
    chunk: int

    @property
    def n_stripes(self) -> int:
        return len(self.nnz)

    @cached_property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Array int64 (n_stripes + 1,): stripe s owns the chunks ``offsets[s]:offsets[s + 1]`` exclusively."""
        return np.concatenate([[0], np.cumsum(-(-self.nnz // self.chunk))]).astype(np.int64)

    @property
    def n_chunks(self) -> int:
        """Number of chunks of the index array, and of the value array."""
        return int(self.offsets[-1])


@dataclass(frozen=True)
class DenseLayout:
    """A regular grid over a dense (n_rows, n_cols) array; a stripe is one column of the grid. Chunks at the far edges are padded."""

    shape: tuple[int, int]
    chunk: tuple[int, int]

    @property
    def grid(self) -> tuple[int, int]:
        """Number of chunks along rows and columns."""
        return -(-self.shape[0] // self.chunk[0]), -(-self.shape[1] // self.chunk[1])

    def cell(self, i: int, j: int) -> tuple[slice, slice]:
        """Return the rows and columns of chunk (i, j)."""
        (n, d), (r, k) = self.shape, self.chunk
        return slice(i * r, min(n, (i + 1) * r)), slice(j * k, min(d, (j + 1) * k))

    def edges(self, axis: int) -> npt.NDArray[np.int64]:
        """Return the cut positions along an axis, from 0 to its length."""
        length, step = self.shape[axis], self.chunk[axis]
        return np.append(np.arange(0, length, step, dtype=np.int64), length).astype(np.int64)


def _unit_ends(n: int, groups: npt.ArrayLike | None) -> npt.NDArray[np.int64]:
    """Return the positions where a cut is allowed: all of them, or only those between runs of equal group labels."""
    if groups is None:
        return np.arange(1, n + 1, dtype=np.int64)
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise SchemaError(f"groups has shape {labels.shape}; it must be ({n},), one label per column")
    return np.append(np.flatnonzero(labels[1:] != labels[:-1]) + 1, n).astype(np.int64)


def plan_stripes(
    counts: npt.ArrayLike,
    itemsize: int,
    *,
    stripe_bytes: int = STRIPE_BYTES,
    groups: npt.ArrayLike | None = None,
    entries: int = STRIPE_ENTRIES,
) -> StripeLayout:
    """Divide columns with ``counts`` (n_cols,) stored entries into stripes with about equal numbers of entries. For a row-wise layout, rows
    take the place of columns.

    The chunk length is L = min(entries, stripe_bytes / itemsize, number of entries needed). A stripe holds at most L entries. The exception
    is a column, or a run of columns with equal labels in ``groups`` (n_cols,), with more than L entries: it is not divided, but becomes one
    stripe with several chunks. Raises SchemaError if a stripe would hold 2^31 entries.
    """
    per_column = np.asarray(counts)
    if per_column.ndim != 1 or (per_column.size and int(per_column.min()) < 0):
        raise SchemaError("counts must be a vector of non-negative integers")
    if stripe_bytes < itemsize:
        raise SchemaError(f"stripe_bytes={stripe_bytes} is smaller than one value of {itemsize} bytes")
    n = per_column.size
    # Without groups every column is a unit: no index vectors, there may be 10^7 columns.
    ends = None if groups is None or not n else _unit_ends(n, groups)
    filled = running_sums(per_column)
    if ends is not None:
        filled = filled[ends - 1]
    total = int(filled[-1]) if n else 0
    chunk = max(1, min(entries, stripe_bytes // itemsize, total))
    cuts = _balanced_cuts(filled, chunk)
    reached = np.concatenate([[0], filled[cuts]]).astype(np.int64)
    nnz = np.diff(reached)
    if nnz.size and int(nnz.max()) > _INDEX_LIMIT:
        raise SchemaError(f"one stripe would hold {int(nnz.max())} entries; the limit is 2^31 - 1: divide the largest column or group")
    edges = np.concatenate([[0], cuts + 1 if ends is None else ends[cuts]])
    return StripeLayout(edges.astype(np.int64), nnz, chunk)


def running_sums(counts: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
    """Return the int64 cumulative sums of the counts."""
    # Converted first: summing and converting at once goes through a small buffer, at an eighth of the speed.
    sums = counts.astype(np.int64)
    return np.cumsum(sums, out=sums)


def _balanced_cuts(filled: npt.NDArray[np.int64], chunk: int) -> npt.NDArray[np.int64]:
    """Return the index of the last unit of each stripe. A stripe has at least one unit. Among the cuts at which the stripe fits in a chunk,
    the one that brings the stripe's entries nearest to an equal share is taken.
    """
    cuts: list[int] = []
    last, done, total = -1, 0, int(filled[-1]) if filled.size else 0
    while last < filled.size - 1:
        share = -(-(total - done) // max(1, -(-(total - done) // chunk)))
        fits = int(np.searchsorted(filled, done + chunk, side="right")) - 1
        nearest_cut = int(np.searchsorted(filled, done + share, side="right")) - 1
        if nearest_cut < fits and filled[nearest_cut + 1] - done - share < done + share - filled[max(nearest_cut, 0)]:
            nearest_cut = int(np.searchsorted(filled, filled[nearest_cut + 1], side="right")) - 1
        last = max(last + 1, min(nearest_cut, fits))
        done = int(filled[last])
        cuts.append(last)
    return np.asarray(cuts, dtype=np.int64)


def plan_dense(n_rows: int, n_cols: int, itemsize: int, *, stripe_bytes: int = STRIPE_BYTES) -> DenseLayout:
    """Divide a dense array into column stripes. A chunk holds whole columns if at least 16 of them (or all) fit in it, otherwise some rows
    of 16 columns.
    """
    per_chunk = max(1, stripe_bytes // itemsize)
    columns = max(1, min(n_cols, max(_MIN_DENSE_COLUMNS, per_chunk // max(1, n_rows))))
    rows = max(1, min(n_rows, per_chunk // columns))
    return DenseLayout((n_rows, n_cols), (rows, columns))


def plan_dense_rows(n_rows: int, n_cols: int, itemsize: int, *, stripe_bytes: int = STRIPE_BYTES) -> DenseLayout:
    """Divide a dense array into row blocks of all columns (the row-wise counterpart of `plan_dense`)."""
    twin = plan_dense(n_cols, n_rows, itemsize, stripe_bytes=stripe_bytes)
    return DenseLayout((n_rows, n_cols), (twin.chunk[1], twin.chunk[0]))


def table_chunk(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chunk shape of a table: the whole table if it is short, else 2^20 elements (whole rows of a 2-D table)."""
    width = int(np.prod(shape[1:], dtype=np.int64))
    return (max(1, min(shape[0], TABLE_CHUNK // max(1, width))), *(max(1, s) for s in shape[1:]))


BlockSpan = tuple[tuple[int, int], tuple[int, int], int, int]


def place_blocks(name: str, layout: StripeLayout | DenseLayout, shape: tuple[int, int], itemsize: int) -> list[BlockSpan]:
    """Return (rows, cols, nnz, bytes when loaded) of each block of the layout ``name`` ("columns" or "rows"), in order."""
    across = name == "columns"
    if isinstance(layout, DenseLayout):
        edges = layout.edges(1 if across else 0)
        nnz = np.diff(edges) * shape[0 if across else 1]
        nbytes = nnz * itemsize
    else:
        edges, nnz = layout.edges, layout.nnz
        nbytes = nnz * (4 + itemsize) + (np.diff(edges) + 1) * 4
    spans = pairwise(edges.tolist())
    places = [((0, shape[0]), span) if across else (span, (0, shape[1])) for span in spans]
    return [(rows, cols, count, size) for (rows, cols), count, size in zip(places, nnz.tolist(), nbytes.tolist(), strict=True)]

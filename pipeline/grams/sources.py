"""Block pairs of Gram matrices, computed from rows or read from a Gram store.

References of both kinds load bit-identical raw kernels ``(k, rows, columns)``, so passes treat them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ...kernels.grams.blocks import gram_block
from ...kernels.grams.normalization import Normalization
from ...kernels.grams.spec import KernelSpec
from ...storage import BlockStore, MemoryBlocks, block_cache, open_shared
from ...storage.errors import Matrix
from ..passes.blocks import TASK_BYTES, byte_groups, scale_of
from ..passes.scaling import scaled
from ..records.data_set import Kind
from ..records.joined import JoinedStores
from ..records.scale import FeatureScale
from .given import GivenGrams, GivenPair, StoredPair

BLOCK_BYTES = 16 << 20  # entries of one block pair, all kernels together
TILE = 128  # block edges are multiples of this, which the bits of quadratic forms rest on

# What the allocator of a process may keep of blocks that were freed: glibc gives back no less at a time once it has seen large ones.
FREED_BYTES = 32 << 20

SPARSE_BYTES = 48  # of a stored value while sparse rows are read: as the store has it, gathered, scaled, by rows
COLUMN_BYTES = 64  # of a column meanwhile: where its rows begin and end

TASKS = 16  # tasks at least, where there are as many block pairs
READ = 4096  # rows of a read, where all are read
LARGEST = 2048  # rows of a block at most: a wider one computes no faster, and its task needs more memory


def block_rows(n: int, n_kernels: int, itemsize: int = 4) -> int:
    """Return the number of rows of a block. It depends on the data alone, never on the number of workers."""
    fits = int((BLOCK_BYTES / (itemsize * max(1, n_kernels))) ** 0.5) // TILE * TILE
    # Blocks on the diagonal hold their entries twice: eight to a side keep that below an eighth.
    even = -(-n // (8 * TILE)) * TILE
    return max(TILE, min(fits, even, LARGEST))


def pairs(n: int, block: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the row and column ranges of the block pairs of the upper triangle, row by row."""
    spans = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
    return [(rows, cols) for i, rows in enumerate(spans) for cols in spans[i:]]


class TextRows:
    """Strings in memory as a data set."""

    url, n_cols = "memory", 0
    digest = ""
    holds: Kind = "strings"
    travels = False

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = np.array(list(texts), dtype=object)
        self.n_rows = len(self.texts)

    def feature_names(self) -> None:
        """Always ``None``: strings have no feature names."""

    def sequences(self, lo: int, hi: int) -> np.ndarray:
        """Return strings ``lo:hi``."""
        return self.texts[lo:hi]


RowData: TypeAlias = BlockStore | MemoryBlocks | TextRows  # rows of numbers or strings, wherever they lie


def rows_of(
    data: BlockStore | MemoryBlocks | JoinedStores | TextRows, lo: int, hi: int, scale: Callable[..., FeatureScale] = scale_of
) -> Matrix:
    """Return rows ``lo:hi`` after scaling: an array, a CSR array, or strings.

    Constant columns become zeros for kernels, which does not change distances. For models of the rows themselves, pass `scale_as_given` as
    ``scale``, which keeps constant columns. With several stores, a column is constant only if it is constant over all stores.
    """
    if isinstance(data, JoinedStores):
        return stacked([rows_of(store, *span, lambda _, features: scale(data, features)) for store, span in data.parts(lo, hi)])
    if isinstance(data, TextRows) or (isinstance(data, BlockStore) and data.n_cols == 0):
        return data.sequences(lo, hi)
    features = np.arange(data.n_cols)
    row_factor = None if data.scale.row_factor is None else data.scale.row_factor[lo:hi]
    raw = scaled(_unscaled(data, lo, hi), scale(data, features), row_factor)
    return sp.csr_array(raw) if sp.issparse(raw) else raw


def _unscaled(data: BlockStore | MemoryBlocks, lo: int, hi: int) -> np.ndarray | sp.csc_array:
    """Return all columns of rows ``lo:hi`` without scaling."""
    if isinstance(data, MemoryBlocks) or data.meta.kind == "dense" or (lo, hi) == (0, data.n_rows):
        return data.columns(np.arange(data.n_cols), (lo, hi))
    # A store looks for the rows of every single column; of all columns whole stripes are cut faster by orders of magnitude.
    parts = [cast("sp.csc_array", block_cache().load(ref))[lo:hi] for ref in data.column_blocks()]
    return sp.csc_array(sp.hstack(parts, format="csc"))


def stacked(parts: Sequence[Matrix]) -> Matrix:
    """Concatenate rows: an array, a CSR array, or strings."""
    if len(parts) == 1:
        return parts[0]
    return sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts)


def read_rows(data: BlockStore | MemoryBlocks | JoinedStores | TextRows) -> Matrix:
    """Return all rows after scaling: an array, a CSR array, or strings."""
    return stacked([rows_of(data, lo, min(lo + READ, data.n_rows)) for lo in range(0, data.n_rows, READ)])


def all_rows(data: BlockStore | MemoryBlocks | JoinedStores) -> Matrix:
    """Return all rows after scaling, float64: an array or a CSR array."""
    rows = read_rows(data)
    return sp.csr_array(rows, dtype=np.float64) if sp.issparse(rows) else rows.astype(np.float64)


def rows_at(data: BlockStore | MemoryBlocks, ids: np.ndarray) -> Matrix:
    """Return the rows ``ids`` in their order, after scaling, float64: an array or a CSR array.

    Only the blocks of a store that contain some of these rows are read.
    """
    order = np.argsort(ids, kind="stable")
    ranges, parts = np.asarray(ids)[order] // READ, []
    for k in np.unique(ranges).tolist():
        lo, hi = k * READ, min((k + 1) * READ, data.n_rows)
        inside = np.asarray(ids)[order[slice(*np.searchsorted(ranges, [k, k + 1]))]] - lo
        first, last = int(inside[0]), int(inside[-1]) + 1
        parts.append(rows_of(data, lo + first, min(lo + last, hi))[inside - first])
    whole = sp.csr_array(sp.vstack(parts), dtype=np.float64) if sp.issparse(parts[0]) else np.concatenate(parts).astype(np.float64)
    back = np.empty(len(order), np.int64)
    back[order] = np.arange(len(order))
    return whole if np.array_equal(back, np.arange(len(back))) else whole[back]


@dataclass(frozen=True)
class RowPair:
    """A block pair that is computed when it is loaded."""

    # url, digest: the block store, or `"memory"` and empty
    url: str
    digest: str
    # rows, cols: ranges; equal on the diagonal
    rows: tuple[int, int]
    cols: tuple[int, int]
    specs: tuple[KernelSpec, ...] = field(repr=False)  # kernels, in order
    width: int  # columns of the data
    # arrays in memory, with which a reference stays in its process, or several stores
    source: MemoryBlocks | TextRows | JoinedStores | None = field(default=None, repr=False, compare=False)
    entries: int | None = field(default=None, repr=False)  # stored values of all rows, where they are sparse

    @property
    def nbytes(self) -> int:
        return 4 * len(self.specs) * (self.rows[1] - self.rows[0]) * (self.cols[1] - self.cols[0])

    @property
    def row_bytes(self) -> int:
        """Upper bound on the memory in bytes of the rows: as dense float64, or as temporary copies of sparse rows."""
        dense = 8 * self.width * (self.rows[1] - self.rows[0] + self.cols[1] - self.cols[0])
        return dense if self.entries is None else min(dense, SPARSE_BYTES * self.entries + COLUMN_BYTES * self.width)

    def select(self, which: Sequence[int]) -> RowPair:
        """Return the same block pair for a subset of the kernels; only these are computed."""
        return replace(self, specs=tuple(self.specs[q] for q in which))

    def load(self) -> np.ndarray:
        """Compute the raw kernels, float32 ``(k, rows, columns)``. Passes that need them again call :func:`loaded`."""
        data = self.source or open_shared(self.url, self.digest)
        left = rows_of(data, *self.rows)
        right = None if self.rows == self.cols else rows_of(data, *self.cols)
        return gram_block(self.specs, left, right, dtype=np.float32)

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Compute entries of the block at the given rows and columns, which are positions in the block."""
        data = self.source or open_shared(self.url, self.digest)
        return gram_block(self.specs, rows_of(data, *self.rows)[rows], rows_of(data, *self.cols)[cols], dtype=np.float32)


PairRef = RowPair | StoredPair | GivenPair


def row_pairs(data: Any, specs: Sequence[Any], block: int) -> Sequence[PairRef]:
    """Return references to all block pairs of the kernels, computed from rows or taken from precomputed matrices."""
    if isinstance(data, GivenGrams):
        return data.pairs([spec.position for spec in specs], block)
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else (data.digest if isinstance(data, JoinedStores) else "", data)
    kernels, entries = tuple(specs), _stored_entries(data)
    return [RowPair(data.url, digest, *spans, kernels, data.n_cols, source, entries) for spans in pairs(data.n_rows, block)]


def _stored_entries(data: BlockStore | MemoryBlocks | JoinedStores | TextRows) -> int | None:
    """Return the number of stored values of sparse rows; ``None`` for other data."""
    stores = data.stores if isinstance(data, JoinedStores) else (data,)
    kept = [sum(ref.nnz for ref in one.column_blocks()) for one in stores if not isinstance(one, TextRows) and one.meta.kind == "sparse"]
    return sum(kept) if len(kept) == len(stores) else None


def loaded_bytes(refs: Sequence[Any]) -> int:
    """Return the memory in bytes of some block pairs after loading."""
    return sum(ref.nbytes for ref in refs)


def group_pairs(refs: Sequence[Any], least: int = 0) -> list[tuple[Any, ...]]:
    """Group block pairs into tasks by their bytes alone. Tasks have about ``least`` bytes or more; smaller tasks are not worth their
    overhead.
    """
    return byte_groups(refs, max(least, min(TASK_BYTES, -(-loaded_bytes(refs) // TASKS))))


def loaded(ref: PairRef) -> np.ndarray:
    """Return the raw kernels of a block pair. What is computed from the rows of a store stays in the cache of the process, as far as there
    is room: a worker computes it once.
    """
    return block_cache().load(ref) if isinstance(ref, RowPair) else ref.load()


def load_normalised(ref: PairRef, norms: Sequence[Normalization] | None) -> np.ndarray:
    """Load a block pair; with ``norms``, each kernel is centred and scaled."""
    return apply_norms(loaded(ref), norms, slice(*ref.rows), slice(*ref.cols))


def normalised_part(ref: PairRef, norms: Sequence[Normalization] | None, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Load entries of a block pair at the given rows and columns, which are indices in the data. With ``norms``, entries are normalised."""
    return apply_norms(ref.part(rows - ref.rows[0], cols - ref.cols[0]), norms, rows, cols)


def apply_norms(block: np.ndarray, norms: Sequence[Normalization] | None, rows: slice | np.ndarray, cols: slice | np.ndarray) -> np.ndarray:
    """Return the kernels of a block, centred and scaled by vectors over ``rows`` and ``cols``."""
    if norms is None:
        return block
    return np.stack([norm.apply_block(part, rows, cols) for norm, part in zip(norms, block, strict=True)])


def pair_bytes(ref: PairRef) -> int:
    """Return an upper bound on the memory in bytes of a task: the block, a float64 copy of it during normalisation, the rows of the data,
    and freed blocks.
    """
    return 4 * ref.nbytes + ref.row_bytes + FREED_BYTES

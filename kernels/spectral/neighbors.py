"""Exact nearest neighbours of rows, computed block by block, and graphs of neighbours.

Neighbours are ordered by ``(squared distance, id)``, a total order; this matters because integer data have many ties. A distance is the sum
of squared differences over the features in ascending order, so it depends on its two rows alone. Merging the lists of all blocks gives the
list for all rows, bit-identical for any division into blocks.

Rows of zeros and ones are packed, 64 to a word, and compared by counting bits. Other rows are screened by products: only candidates that
the error bound of ``|x|^2 + |z|^2 - 2 <x, z>`` does not exclude are computed term by term. These are about k (1 + log(n / k)) candidates
per row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from ..arrays import Array, FloatArray, IntArray
from ..features.views import flat, offer
from ..grams.rows import DENSE_COLUMNS, as_rows
from ..jit import compiled, one_thread
from ..rules.bits import pack_bits, popcount

TILE_ROWS, TILE_COLUMNS = 256, 2048  # Rows and columns of a tile of products or counts.

WORDS_PER_ENTRY = 4  # Sparse rows are packed while a row's words are at most so many times its entries.


class Nearest(NamedTuple):
    """The nearest candidates of n rows, ``(n, k)``, ordered by ``(squared distance, id)``. Missing candidates have id -1 and infinite
    distance.
    """

    ids: IntArray
    squares: FloatArray

    @property
    def distances(self) -> FloatArray:
        return np.sqrt(self.squares)


def nearest_rows(X: object, k: int) -> Nearest:
    """Return the ``k`` nearest other rows of each row of ``(n, d)`` data, dense or sparse; all other rows if there are fewer than k.

    Raises ValueError if rows are not numeric or not finite, or ``k`` is invalid.
    """
    rows = as_rows(X)
    if rows.ndim != 2:
        raise ValueError("X: is a list of strings; it must be a matrix of numbers")
    return nearest_between(rows, rows, k)


def nearest_between(left: Any, right: Any, k: int, *, left_start: int = 0, right_start: int = 0) -> Nearest:
    """Return the ``k`` nearest rows of ``right`` for each row of ``left``, excluding the row with the same id. ``left_start`` and
    ``right_start`` are the ids of the first rows of the two arrays.
    """
    if k < 1:
        raise ValueError(f"k={k}: must be at least 1")
    lists = _NeighbourLists.empty(left.shape[0], k)
    same = left is right
    x = _measure_rows(left)
    z = x if same else _measure_rows(right)
    if x.binary and z.binary and _is_worth_packing(left) and _is_worth_packing(right):
        a = _pack_rows(left)
        b = a if same else _pack_rows(right)
        for lo, hi in _spans(b.shape[1], TILE_COLUMNS):
            _scan_bits(a, np.ascontiguousarray(b[:, lo:hi]), left_start, right_start + lo, *lists)
    else:
        _search_numbers(x, z, left_start, right_start, lists)
    return lists.sorted()


def merge_nearest(parts: Sequence[Nearest], k: int) -> Nearest:
    """Merge the lists of the same rows over disjoint candidates; associative and commutative, because the order is total."""
    ids = np.concatenate([part.ids for part in parts], axis=1)
    squares = np.concatenate([part.squares for part in parts], axis=1)
    # Missing entries have the id -1: at an infinite distance they stand last all the same.
    order = np.lexsort((ids, squares), axis=1)[:, :k]
    return Nearest(np.take_along_axis(ids, order, 1), np.take_along_axis(squares, order, 1))


def neighbour_graph(ids: IntArray, kind: str = "mutual") -> sp.csr_array:
    """Return the symmetric affinity S of a graph of nearest neighbours: ``S_ij = 1`` if i and j are linked, with a zero diagonal. ``ids``
    is ``(n, k)``, -1 for none.

    ``"mutual"`` links two rows if each is a neighbour of the other, ``"union"`` if at least one is. Raises ValueError for another kind.
    """
    if kind not in ("mutual", "union"):
        raise ValueError(f"graph={kind!r}: must be 'mutual' or 'union'")
    n, k = ids.shape
    rows, cols = np.repeat(np.arange(n), k), ids.ravel()
    there = cols >= 0
    one_way = sp.csr_array((np.ones(int(there.sum())), (rows[there], cols[there])), shape=(n, n))
    graph = sp.csr_array(one_way.minimum(one_way.T) if kind == "mutual" else one_way.maximum(one_way.T))
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


def count_components(graph: sp.csr_array) -> int:
    """Return the number of connected components of a graph."""
    return int(sp.csgraph.connected_components(graph, directed=False, return_labels=False))


class _NeighbourLists(NamedTuple):
    """Bounded heaps, one per row, with minus the squared distance as key."""

    keys: Array
    ids: Array
    sizes: Array

    @classmethod
    def empty(cls, n: int, k: int) -> _NeighbourLists:
        return cls(np.zeros((n, k)), np.zeros((n, k), np.int64), np.zeros(n, np.int64))

    def sorted(self) -> Nearest:
        there = np.arange(self.keys.shape[1]) < self.sizes[:, None]
        squares = np.where(there, -self.keys, np.inf)
        ids = np.where(there, self.ids, -1)
        order = np.lexsort((ids, squares), axis=1)
        return Nearest(np.take_along_axis(ids, order, 1), np.take_along_axis(squares, order, 1) + 0.0)


def _spans(n: int, size: int) -> Iterator[tuple[int, int]]:
    yield from pairwise([*range(0, n, size), n]) if n else ()


def _is_worth_packing(rows: Any) -> bool:
    n, d = rows.shape
    return not sp.issparse(rows) or d <= DENSE_COLUMNS or -(-d // 64) * n <= WORDS_PER_ENTRY * rows.nnz


def _pack_rows(rows: Any) -> NDArray[np.uint64]:
    """Return rows of zeros and ones packed into words, ``(words, n)``."""
    n, d = rows.shape
    parts = []
    for lo, hi in _spans(n, TILE_COLUMNS):
        part = rows[lo:hi]
        parts.append(pack_bits((part.toarray() if sp.issparse(part) else part) != 0))
    return np.ascontiguousarray(np.concatenate(parts).T) if parts else np.zeros((max(1, -(-d // 64)), 0), np.uint64)


@compiled
def _scan_bits(left: Array, right: Array, left_start: int, right_start: int, keys: Array, ids: Array, sizes: Array) -> None:
    """Offer all rows of a tile to all lists. The rows hold zeros and ones, so their squared distances are bit counts."""
    words, width = right.shape
    counts, spare = np.empty(width, np.int64), np.zeros(keys.shape[1])
    for i in range(left.shape[1]):
        counts[:] = 0
        for w in range(words):
            mine, other = left[w, i], right[w]
            for j in range(width):
                counts[j] += popcount(mine ^ other[j])
        size = sizes[i]
        itself = left_start + i - right_start
        full = size == keys.shape[1]
        bar = np.int64(-keys[i, 0]) if full else np.int64(9223372036854775807)
        for j in range(width):
            if counts[j] <= bar and j != itself:
                size = offer(keys[i], ids[i], spare, size, -np.float64(counts[j]), right_start + j, 0.0)
                if size == keys.shape[1]:
                    bar = np.int64(-keys[i, 0])
        sizes[i] = size


class _MeasuredRows(NamedTuple):
    """Rows with their squared norms, which give bounds of distances."""

    rows: Any
    norms: Array
    binary: bool


def _measure_rows(rows: Any) -> _MeasuredRows:
    values = rows.data if sp.issparse(rows) else rows
    binary = bool(np.all((values == 0) | (values == 1)))
    n = rows.shape[0]
    norms = np.zeros(n)
    for lo, hi in _spans(n, TILE_COLUMNS):
        part = rows[lo:hi].astype(np.float64)
        norms[lo:hi] = np.asarray(part.multiply(part).sum(axis=1)).ravel() if sp.issparse(part) else np.einsum("ij,ij->i", part, part)
    if not np.isfinite(norms).all():
        raise ValueError(f"X: row {int(np.argmin(np.isfinite(norms)))} holds NaN, infinity, or numbers too large to be squared")
    return _MeasuredRows(rows, norms, binary)


def _search_numbers(x: _MeasuredRows, z: _MeasuredRows, left_start: int, right_start: int, lists: _NeighbourLists) -> None:
    n, d = x.rows.shape
    # Twice the bound of the rounding of both sums and of the product, per |x|^2 + |z|^2.
    slack = 4.0 * (d + 8) * np.finfo(float).eps
    dense = not sp.issparse(x.rows) or d <= DENSE_COLUMNS
    for a, b in _spans(z.rows.shape[0], TILE_COLUMNS):
        right = _read_tile(z.rows, a, b, dense)
        for lo, hi in _spans(n, TILE_ROWS):
            left = _read_tile(x.rows, lo, hi, dense)
            with one_thread():
                products = left @ right.T if dense else (left @ right.T).toarray()
            heaps = (lists.keys[lo:hi], lists.ids[lo:hi], lists.sizes[lo:hi])
            tile = (products, x.norms[lo:hi], z.norms[a:b], slack, left_start + lo, right_start + a)
            if dense:
                _scan(left, right, *tile, *heaps)
            else:
                _scan_sparse(_csr_parts(left), _csr_parts(right), *tile, *heaps)


def _csr_parts(rows: sp.csr_array) -> tuple[Array, Array, Array]:
    return flat(rows.data), flat(rows.indices), flat(rows.indptr)


def _read_tile(rows: Any, lo: int, hi: int, dense: bool) -> Any:
    part = rows[lo:hi].astype(np.float64)
    return np.ascontiguousarray(part.toarray() if sp.issparse(part) else part) if dense else part


@compiled
def _dense_square(x: Array, z: Array) -> float:
    """Return ||x - z||^2, summed in order."""
    total = 0.0
    for k in range(x.size):
        t = x[k] - z[k]
        total += t * t
    return total


@compiled
def _sparse_square(x: tuple[Array, Array, Array], i: int, z: tuple[Array, Array, Array], j: int) -> float:
    """Compute the same as _dense_square for CSR rows; the skipped terms are zeros."""
    p, last, q, end = x[2][i], x[2][i + 1], z[2][j], z[2][j + 1]
    total: Any = 0.0
    while p < last or q < end:
        t = 0.0
        if q == end or (p < last and x[1][p] < z[1][q]):
            t = x[0][p]
            p += 1
        elif p == last or z[1][q] < x[1][p]:
            t = z[0][q]
            q += 1
        else:
            t = x[0][p] - z[0][q]
            p += 1
            q += 1
        total += t * t
    return total


@compiled
def _scan(
    left: Array, right: Array, products: Array, x_norms: Array, z_norms: Array, slack: float, left_start: int, right_start: int,
    keys: Array, ids: Array, sizes: Array,
) -> None:  # fmt: skip
    """Offer the rows of a tile that the screening does not exclude."""
    spare = np.zeros(keys.shape[1])
    for i in range(x_norms.size):
        size, itself, mine, row = sizes[i], left_start + i - right_start, x_norms[i], products[i]
        bar = -keys[i, 0] if size == keys.shape[1] else np.inf
        for j in range(z_norms.size):
            both = mine + z_norms[j]
            if both - 2.0 * row[j] - slack * both <= bar and j != itself:
                square = _dense_square(left[i], right[j])
                size = offer(keys[i], ids[i], spare, size, -square, right_start + j, 0.0)
                if size == keys.shape[1]:
                    bar = -keys[i, 0]
        sizes[i] = size


@compiled
def _scan_sparse(
    left: tuple[Array, Array, Array], right: tuple[Array, Array, Array], products: Array, x_norms: Array, z_norms: Array, slack: float,
    left_start: int, right_start: int, keys: Array, ids: Array, sizes: Array,
) -> None:  # fmt: skip
    spare = np.zeros(keys.shape[1])
    for i in range(x_norms.size):
        size, itself, mine, row = sizes[i], left_start + i - right_start, x_norms[i], products[i]
        bar = -keys[i, 0] if size == keys.shape[1] else np.inf
        for j in range(z_norms.size):
            both = mine + z_norms[j]
            if both - 2.0 * row[j] - slack * both <= bar and j != itself:
                square = _sparse_square(left, i, right, j)
                size = offer(keys[i], ids[i], spare, size, -square, right_start + j, 0.0)
                if size == keys.shape[1]:
                    bar = -keys[i, 0]
        sizes[i] = size


MAX_DENSE_BASIS_ROWS = 1500  # Rows up to which the least eigenvectors of L come from a dense decomposition.


def smooth_basis(laplacian: sp.csr_array, size: int) -> np.ndarray:
    """Return the eigenvectors of L for the ``size`` smallest eigenvalues, ``(n, size)``."""
    n = laplacian.indptr.size - 1
    with one_thread():
        if n <= MAX_DENSE_BASIS_ROWS or size >= n - 1:
            return np.ascontiguousarray(eigh(laplacian.toarray(), subset_by_index=[0, size - 1])[1])
        # The eigenvalues of L lie in [0, 2]: its least are the largest of 2I - L.
        flipped = sp.csr_array(2.0 * sp.eye_array(n) - laplacian)
        vectors = eigsh(flipped, k=size, which="LA", v0=np.random.default_rng(0).normal(size=n), tol=1e-10)[1]  # pyright: ignore[reportArgumentType] (a float)
        return np.linalg.qr(vectors[:, ::-1])[0]

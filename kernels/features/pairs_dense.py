"""Search for the pairs of dense features whose product has the largest score, by symmetric matrix products and exact recomputation.

``G = X' diag(u) X`` splits by the sign of u into two matrices of the form ``A'A``, which BLAS computes at half the cost of a general
product (docs/theory/fgm.md, "Degree-2 coordinates"). BLAS rounds ``A'A`` differently from the fixed sums of
:mod:`gramplane.kernels.features.pairs`, and not all BLAS libraries round alike. Therefore ``A'A`` only *proposes* candidates: every
product of two features whose key plus error bound could reach the B-th largest key is summed again in the fixed order. The result is
bit-identical to the sparse search, for any tiles, any BLAS, and float32 or float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from ..arrays import Array
from ..jit import compiled, one_thread
from .pairs import PairBounds, PairMap, TopPairs, as_pairs, encode
from .scores import correlations
from .views import checked_dual, dense_view, offer, shape, top_b

Tile = tuple[int, int, int, int]

TILE = 1024  # Columns of a tile: its products take 8 MB.
ROWS = 2048  # Rows of one BLAS call; sums over more rows are added in float64.


def dense_tiles(n_features: int, width: int = TILE) -> list[Tile]:
    """Return the tiles ``(i0, i1, j0, j1)``, j0 <= i0, that cover all products. The tiles can be distributed over tasks in any way."""
    strips = [(a, b) for a, b in pairwise([*range(0, n_features, width), n_features]) if b > a]
    return [(*strips[i], *strips[j]) for i in range(len(strips)) for j in range(i + 1)]


@compiled
def _sums(x: Array, row_step: int, column_step: int, u: Array, first: Array, second: Array, out: Array) -> None:
    """Write to ``out[p]`` the sum of ``u_i (x[i, first] x[i, second])`` for pair p, over ascending rows: this is the fixed order."""
    for i in range(u.size):
        ui = u[i]
        if ui != 0.0:
            at = i * row_step
            for p in range(first.size):
                out[p] += ui * (np.float64(x[at + first[p] * column_step]) * np.float64(x[at + second[p] * column_step]))


def fixed_sums(X: Array, u: Array, first: Array, second: Array) -> Array:
    """Return ``sum_i u_i (x_i,first x_i,second)`` for pairs of columns in the fixed order of :mod:`gramplane.kernels.features.pairs`."""
    block, out = dense_view(X), np.zeros(len(first))
    for begin in range(0, len(first), 4096):
        part = slice(begin, begin + 4096)
        _sums(*block, checked_dual(u, shape(X)[0]), first[part], second[part], out[part])
    return out


def dense_bounds(X: Array, u: Array) -> PairBounds:
    """Return linear terms and squares of a dense stripe. The bounds are infinite, because dense columns are not screened."""
    every = np.arange(shape(X)[1])
    return PairBounds(np.full(every.size, np.inf), correlations(X, u), fixed_sums(X, u, every, every))


def _norms(X: Array, u: Array) -> Array:
    """Return ``h_j`` with ``h_j^2 = sum_i |u_i| x_ij^2``, at least 1e-150 for columns that are not zero."""
    every = np.arange(shape(X)[1])
    squares = fixed_sums(X, np.abs(u), every, every)
    if not np.isfinite(squares).all():
        raise ValueError(f"the sum of squares of column {int(np.argmin(np.isfinite(squares)))} overflows float64")
    # Squares of tiny values underflow: the floor keeps their norm below 1 after division, which is all the error bound needs.
    floor = np.where(np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0)) > 0, 1e-150, 0.0)
    return np.maximum(np.sqrt(squares), floor)


@compiled
def _weighted(x: Array, row_step: int, column_step: int, rows: Array, first: int, u: Array, inverse: Array, out: Array) -> None:
    """Write ``out[t, j] = sqrt|u_i| x[i, first + j] inverse[first + j]``, where i is the t-th of ``rows``. No temporaries are made, and
    each entry is rounded once to the type of ``out``.
    """
    for t in range(rows.size):
        root = math.sqrt(abs(u[rows[t]]))
        at = rows[t] * row_step + first * column_step
        for j in range(out.shape[1]):
            out[t, j] = root * np.float64(x[at + j * column_step]) * inverse[first + j]


def _approximate(X: Array, u: Array, h: Array, tile: Tile, dtype: type) -> Array:
    """Return ``G_ij / (h_i h_j)`` on a tile, float64, up to the error of :func:`_error`."""
    i0, i1, j0, j1 = tile
    block, out = dense_view(X), np.zeros((i1 - i0, j1 - j0))
    inverse = np.divide(1.0, h, out=np.zeros_like(h), where=h > 0)
    buffers = [np.empty((ROWS, w), dtype) for w in (out.shape if i0 != j0 else out.shape[:1])]
    for sign in (1.0, -1.0):
        signed = np.flatnonzero(sign * u > 0)
        for begin in range(0, signed.size, ROWS):
            rows = signed[begin : begin + ROWS]
            parts = [buffer[: rows.size] for buffer in buffers]
            for first, part in zip((i0, j0), parts, strict=False):
                _weighted(*block, rows, first, u, inverse, part)
            # The product of one object with itself is symmetric, and BLAS does half the work.
            out += sign * (parts[0].T @ parts[-1])
    return out


def _error(n: int, dtype: type) -> float:
    """Return a bound on the error of :func:`_approximate`, whose entries are inner products of unit vectors with a few roundings per
    factor.
    """
    unit = 0.5 * float(np.finfo(dtype).eps)
    return 1.01 * (min(n, ROWS) + 16) * unit + (n + 16) * 2.0**-52


@compiled
def _raise_bar(
    ratio: Array, hi: Array, hj: Array, diagonal: bool, error: float, bar: float, keys: Array, ids: Array, spare: Array
) -> float:
    """Push a lower bound of the key of each product of the tile onto the heap. Return the new threshold: the B-th largest bound once the
    heap is full, and never less than the old threshold.
    """
    size = int(np.int64(0))
    while size < keys.size and keys[size] > 0.0:
        size += 1
    for a in range(hi.size):
        for b in range(a if diagonal else hj.size):
            lower = (abs(ratio[a, b]) - error) * hi[a] * hj[b]
            if lower > bar:
                size = offer(keys, ids, spare, size, lower, int(np.int64(0)), 0.0)
                if size == keys.size:
                    bar = max(bar, keys[0])
    return bar


@compiled
def _candidates(ratio: Array, hi: Array, hj: Array, diagonal: bool, error: float, bar: float, positions: Array) -> int:
    """Return the number of the tile's products that may reach the threshold; write the first of them, up to q, to ``positions`` (q, 2)."""
    size = int(np.int64(0))
    for a in range(hi.size):
        for b in range(a if diagonal else hj.size):
            upper = (abs(ratio[a, b]) + error) * hi[a] * hj[b]
            if upper >= bar and upper > 0.0:
                if size < positions.shape[0]:
                    positions[size, 0], positions[size, 1] = a, b
                size += 1
    return size


def _proposed(X: Array, u: Array, B: int, bar: float, tiles: Iterable[Tile], dtype: type) -> Array:
    """Return the pairs of columns, int64 ``(q, 2)``, that may have one of the B largest ``|G|``."""
    h = _norms(X, u)
    keys, ids, spare = np.zeros(B), np.zeros(B, np.int64), np.zeros(B)
    error = _error(int(np.count_nonzero(u)), dtype)
    pairs, tops = [np.zeros((0, 2), np.int64)], [np.zeros(0)]
    for tile in tiles:
        ratio, diagonal = _approximate(X, u, h, tile, dtype), tile[0] == tile[2]
        left, right = h[tile[0] : tile[1]], h[tile[2] : tile[3]]
        bar = _raise_bar(ratio, left, right, diagonal, error, bar, keys, ids, spare)
        positions = np.empty((_candidates(ratio, left, right, diagonal, error, bar, np.empty((0, 2), np.int64)), 2), np.int64)
        _candidates(ratio, left, right, diagonal, error, bar, positions)
        tops.append((np.abs(ratio[positions[:, 0], positions[:, 1]]) + error) * left[positions[:, 0]] * right[positions[:, 1]])
        pairs.append(positions + np.array([tile[0], tile[2]]))
    top, pair = np.concatenate(tops), np.concatenate(pairs)
    return pair[top >= bar]


def dense_pairs(
    X: Array, u: Array, ids: Array, pair_map: PairMap, B: int, *, tiles: Iterable[Tile] | None = None, threshold: float = 0.0,
    dtype: type = np.float32,
) -> TopPairs:  # fmt: skip
    """Return the B best products of dense columns; ids, keys and values are bit-identical to the sparse search.

    Parameters
    ----------
    X, u
        ``(n, m)`` columns and ``(n,)`` dual vector.
    ids
        int64 ``(m,)`` feature ids, ascending.
    tiles
        Tiles of :func:`dense_tiles` to search [default: all].
    threshold
        A valid lower bound of the B-th key; smaller keys are skipped.
    dtype
        Type of the matrix products. float32 halves their time and gives the same result, with slightly more candidates to recompute (in one
        measurement, 107 for 100).
    """
    n, m = shape(X)
    u = checked_dual(u, n)
    tiles = dense_tiles(m) if tiles is None else tiles
    with one_thread():
        proposed = _proposed(X, u, B, threshold / pair_map.product * (1.0 - 2.0**-50), tiles, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        values = pair_map.product * fixed_sums(X, u, proposed[:, 0], proposed[:, 1])
    names = np.asarray(ids, np.int64)[np.sort(proposed, axis=1)]
    return as_pairs(top_b(np.abs(values), values, B, encode(names), threshold=threshold))

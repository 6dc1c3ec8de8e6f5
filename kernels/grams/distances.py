"""Sums over features of a function of two numbers, for a tile of pairs of rows: all kernels of numbers are functions of them.

Every sum runs over the features in ascending order in float64, term by term, so an entry depends on its two rows alone, not on its tile,
and swapping the rows changes no bit. Sparse rows visit only features where one of the two is not zero; the terms they skip are zeros,
except for the additive Gaussian, whose ones are counted.
"""

from __future__ import annotations

from ..arrays import Array, Entry
from ..jit import compiled
from .exponentials import decay

PRODUCTS, SQUARES, MANHATTAN, CHI2, MINIMA, CHI2_PRODUCTS, GAUSSIANS = range(7)
"""Terms x z; (x - z)^2; |x - z|; (x - z)^2 / (x + z); min(x, z); 2 x z / (x + z); exp(-gamma (x - z)^2)."""


Csr = tuple[Array, Array, Array]  # Values, columns and starts of sparse rows.


def dense_sums(kind: int, gamma: float, x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    """Fill the part of the tile ``out`` from row ``top``, column ``side`` on with the sums of all pairs. ``kind`` is one of the terms
    above, ``gamma`` belongs to the last one; ``x`` has at least ``height`` float64 rows, and ``z``, ``(d, w)``, those of the other side,
    transposed.
    """
    if kind == PRODUCTS:
        _sum_products(x, height, z, out, top, side)
    elif kind == SQUARES:
        _sum_squares(x, height, z, out, top, side)
    else:
        _sum_terms(kind, gamma, x, height, z, out, top, side)


# The usual terms in functions of their own: all seven together take three times as long to compile.


@compiled
def _sum_products(x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            for j in range(total.size):
                total[j] += a * b[j]


@compiled
def _sum_squares(x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            for j in range(total.size):
                t = a - b[j]
                total[j] += t * t


@compiled
def _sum_terms(kind: int, gamma: float, x: Array, height: int, z: Array, out: Array, top: int, side: int) -> None:
    for i in range(height):
        total = out[top + i, side : side + z.shape[1]]
        total[:] = 0.0
        width = total.size
        for k in range(z.shape[0]):
            a, b = x[i, k], z[k]
            if kind == MANHATTAN:
                for j in range(width):
                    total[j] += abs(a - b[j])
            elif kind == CHI2:
                for j in range(width):
                    s, t = a + b[j], a - b[j]
                    total[j] += t * t / (s if s > 0.0 else 1.0)
            elif kind == MINIMA:
                for j in range(width):
                    total[j] += min(a, b[j])
            elif kind == CHI2_PRODUCTS:
                for j in range(width):
                    s = a + b[j]
                    total[j] += 2.0 * (a * b[j]) / (s if s > 0.0 else 1.0)
            else:
                for j in range(width):
                    t = a - b[j]
                    total[j] += decay(-gamma * (t * t))


@compiled
def _pair_term(kind: int, gamma: float, a: Entry, b: Entry) -> float:
    """Return one term minus that of two zeros."""
    t, s = a - b, a + b
    if kind == PRODUCTS:
        return a * b
    if kind == SQUARES:
        return t * t
    if kind == MANHATTAN:
        return abs(t)
    if kind == CHI2:
        return t * t / (s if s > 0.0 else 1.0)
    if kind == MINIMA:
        return min(a, b)
    if kind == CHI2_PRODUCTS:
        return 2.0 * (a * b) / (s if s > 0.0 else 1.0)
    return decay(-gamma * (t * t)) - 1.0


@compiled
def sparse_sums(kind: int, gamma: float, x: Csr, z: Csr, part: tuple[int, int, int, int], constant: float, out: Array) -> None:
    """Fill a tile like :func:`dense_sums` from CSR rows ``(values, columns, starts)``. ``part`` has the first rows of x and of z and the
    numbers of both; ``constant`` is the sum of two rows of zeros.
    """
    x_first, z_first, height, width = part
    xv, xc, xs = x
    zv, zc, zs = z
    for i in range(height):
        first, last = xs[x_first + i], xs[x_first + i + 1]
        for j in range(width):
            p, q, end = first, zs[z_first + j], zs[z_first + j + 1]
            total = constant
            while p < last and q < end:
                if xc[p] == zc[q]:
                    total += _pair_term(kind, gamma, xv[p], zv[q])
                    p += 1
                    q += 1
                elif xc[p] < zc[q]:
                    total += _pair_term(kind, gamma, xv[p], 0.0)
                    p += 1
                else:
                    total += _pair_term(kind, gamma, 0.0, zv[q])
                    q += 1
            while p < last:
                total += _pair_term(kind, gamma, xv[p], 0.0)
                p += 1
            while q < end:
                total += _pair_term(kind, gamma, 0.0, zv[q])
                q += 1
            out[i, j] = total


@compiled(reassociate=True)
def dot_product(a: Array, b: Array) -> float:
    """Return the sum of a[k] b[k], in an order that the compiler chooses."""
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@compiled(reassociate=True)
def squared_norms(x: Array, out: Array) -> None:
    """Write ||x_i||^2 of every row of x (n, d) to out[i]."""
    for i in range(x.shape[0]):
        row, total = x[i], 0.0
        for k in range(row.size):
            total += row[k] * row[k]
        out[i] = total


@compiled
def squares_from_products(products: Array, x_norms: Array, z_norms: Array, out: Array, top: int, side: int) -> None:
    """Fill the part of a tile from row ``top``, column ``side`` on with max(0, ||x||^2 + ||z||^2 - 2 <x, z>), as far as there are norms."""
    for i in range(x_norms.size):
        a, p, d = x_norms[i], products[i], out[top + i, side : side + z_norms.size]
        for j in range(d.size):
            d[j] = max((a + z_norms[j]) - 2.0 * p[j], 0.0)


@compiled
def mirror_upper(tile: Array, n: int) -> None:
    """Copy the upper triangle of the first n rows and columns onto the lower one, in pieces that stay in the first cache."""
    for i in range(0, n, 16):
        for j in range(0, i + 1, 16):
            for a in range(i, min(i + 16, n)):
                to = tile[a]
                for b in range(j, min(j + 16, a)):
                    to[b] = tile[b, a]


@compiled
def transpose_tile(tile: Array, height: int, width: int, out: Array, side: int = 0) -> None:
    """Fill out with the transpose of the first rows of a tile from column ``side`` on, in whole squares of 8 x 8 entries."""
    for i in range(0, height, 8):
        for j in range(0, width, 8):
            for a in range(8):
                for b in range(8):
                    out[j + b, i + a] = tile[i + a, side + j + b]

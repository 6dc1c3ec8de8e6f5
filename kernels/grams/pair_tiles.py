"""Tiles of sums over pairs of rows, many kinds at once: dense rows through BLAS or term by term, sparse rows through their non-zeros."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from .distances import GAUSSIANS, PRODUCTS, SQUARES, dense_sums, sparse_sums, squares_from_products
from .rows import Side
from .tiles import BLAS_SIDE, Target, new_tile

MAX_DIRECT_COLUMNS = 16
"""Up to this number of features, inner products and distances are summed term by term: exact zeros, no cancellation, as fast as BLAS."""

Sums = dict[tuple[int, float], Array]
"""Sums of the pairs of a tile of rows, by kind and gamma, each from :func:`tiles.new_tile`; entries beyond the block mean nothing."""


class Tiles:
    """Tiles of ``size`` rows and columns for sums, used again by kernels over other features."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._made: list[Array] = []

    def __call__(self, number: int) -> Array:
        """Return one of them, with undefined entries."""
        while len(self._made) <= number:
            self._made.append(new_tile(self.size))
        return self._made[number]


class DenseSums:
    """Tiles of sums over dense rows. BLAS sees full squares only, so that no entry depends on where a block ends."""

    def __init__(self, x: Side, z: Side, sum_kinds: set[tuple[int, float]], tiles: Tiles) -> None:
        self._same = z is x
        self._rows = _pad_rows(x)
        others = self._rows if self._same else _pad_rows(z)
        self._transposed = _transpose_tiles(others)
        self._sums = {item: tiles(number) for number, item in enumerate(sum_kinds)}
        direct = x.shape[1] <= MAX_DIRECT_COLUMNS
        self._direct = [item for item in sum_kinds if direct or item[0] not in (PRODUCTS, SQUARES)]
        self._squares = (SQUARES, 0.0) in sum_kinds and not direct
        self._products = None if direct else self._sums.get((PRODUCTS, 0.0))
        if self._squares:
            self._one = np.empty((BLAS_SIDE, BLAS_SIDE))
            self._z_norms = _tile_norms(others, self._transposed)
            self._x_norms = self._z_norms if self._same else _tile_norms(self._rows, _transpose_tiles(self._rows))

    def __call__(self, to: Target) -> Sums:
        """Return the sums of one tile; the next one overwrites them."""
        for top in range(0, to.height, BLAS_SIDE):
            # A tile on the diagonal needs its upper triangle only.
            for side in range(top if self._same and to.i == to.j else 0, to.width, BLAS_SIDE):
                self._square(to, top, side)
        return self._sums

    def _square(self, to: Target, top: int, side: int) -> None:
        rows, transposed = self._rows[to.i + top : to.i + top + BLAS_SIDE], self._transposed[(to.j + side) // BLAS_SIDE]
        products = None if self._products is None else self._products[top : top + BLAS_SIDE, side : side + BLAS_SIDE]
        if self._squares:
            # One square stays in the cache; the tile does not.
            np.matmul(rows, transposed, out=self._one)
            norms = self._x_norms[to.i + top : to.i + top + BLAS_SIDE], self._z_norms[to.j + side : to.j + side + BLAS_SIDE]
            squares_from_products(self._one, *norms, self._sums[SQUARES, 0.0], top, side)
            if products is not None:
                products[:] = self._one
        elif products is not None:
            np.matmul(rows, transposed, out=products)
        for kind, gamma in self._direct:
            dense_sums(kind, gamma, rows, min(BLAS_SIDE, to.height - top), transposed, self._sums[kind, gamma], top, side)


def _pad_rows(side: Side) -> Array:
    n, c = side.shape
    rows = np.zeros((-(-n // BLAS_SIDE) * BLAS_SIDE, c))
    rows[:n] = side.entries
    return rows


def _split_tiles(rows: Array) -> Array:
    return rows.reshape(rows.shape[0] // BLAS_SIDE, BLAS_SIDE, rows.shape[1])


def _transpose_tiles(rows: Array) -> Array:
    return np.ascontiguousarray(_split_tiles(rows).transpose(0, 2, 1))


def _tile_norms(rows: Array, transposed: Array) -> Array:
    """Return squared norms by the same products as in distances, so that equal rows have distance zero exactly."""
    tiles = _split_tiles(rows)
    return np.concatenate([np.zeros(0), *(np.matmul(tile, other).diagonal() for tile, other in zip(tiles, transposed))])


class SparseSums:
    """Tiles of sums over sparse rows."""

    def __init__(self, x: Side, z: Side, sum_kinds: set[tuple[int, float]], tiles: Tiles) -> None:
        self._x, self._z = x, z
        self._transposed = sp.csr_array(z.values.T)
        self._strip: tuple[int, Array] = (-1, np.empty((0, 0)))
        self._products = tiles(len(sum_kinds))
        self._sums = {item: tiles(number) for number, item in enumerate(sum_kinds)}
        self._norms = np.zeros((2, tiles.size))

    def __call__(self, to: Target) -> Sums:
        """Return the sums of one tile; the next one overwrites them."""
        if any(kind in (PRODUCTS, SQUARES) for kind, _ in self._sums):
            self._multiply(to)
        for (kind, gamma), tile in self._sums.items():
            if kind == PRODUCTS:
                tile[:] = self._products
            elif kind == SQUARES:
                squares_from_products(self._products, self._norms[0], self._norms[1], tile, 0, 0)
            else:
                constant = float(self._x.shape[1]) if kind == GAUSSIANS else 0.0
                sparse_sums(kind, gamma, self._x.csr, self._z.csr, (to.i, to.j, to.height, to.width), constant, tile)
        return self._sums

    def _multiply(self, to: Target) -> None:
        if self._strip[0] != to.i:
            self._strip = to.i, (self._x.values[to.i : to.i + to.height] @ self._transposed).toarray()
        self._products[: to.height, : to.width] = self._strip[1][:, to.j : to.j + to.width]
        self._norms[0, : to.height] = self._x.norms[to.i : to.i + to.height]
        self._norms[1, : to.width] = self._z.norms[to.j : to.j + to.width]

"""Tiles of sums over pairs of rows, many kinds at once: dense rows through BLAS or term by term, sparse rows through their non-zeros."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .distances import GAUSSIANS, PRODUCTS, SQUARES, dense_sums, sparse_sums, squares_from_products
from .rows import Side
from .tiles import SQUARE, Target, new_tile

Array = np.ndarray

DIRECT = 16
"""Up to so many features, inner products and distances are summed term by term: exact zeros, no cancellation, and as fast as BLAS."""

Sums = dict[tuple[int, float], Array]
"""Sums of the pairs of a tile of rows, by kind and gamma, each from :func:`tiles.new_tile`; what lies beyond the block means nothing."""


class Tiles:
    """The tiles of one size that sums are computed in, used again by kernels over other features.

    Attributes
    ----------
    size : int
        Rows and columns.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._made: list[Array] = []

    def __call__(self, number: int) -> Array:
        """Return one of them; what stands in it means nothing."""
        while len(self._made) <= number:
            self._made.append(new_tile(self.size))
        return self._made[number]


class DenseSums:
    """Tiles of sums over dense rows. BLAS sees full squares only, so that no entry depends on where a block ends."""

    def __init__(self, x: Side, z: Side, wanted: set[tuple[int, float]], tiles: Tiles) -> None:
        self._same = z is x
        self._rows = _padded(x)
        others = self._rows if self._same else _padded(z)
        self._turned = _turned(others)
        self._sums = {item: tiles(number) for number, item in enumerate(wanted)}
        direct = x.shape[1] <= DIRECT
        self._direct = [item for item in wanted if direct or item[0] not in (PRODUCTS, SQUARES)]
        self._squares = (SQUARES, 0.0) in wanted and not direct
        self._products = None if direct else self._sums.get((PRODUCTS, 0.0))
        if self._squares:
            self._one = np.empty((SQUARE, SQUARE))
            self._z_norms = _norms(others, self._turned)
            self._x_norms = self._z_norms if self._same else _norms(self._rows, _turned(self._rows))

    def __call__(self, to: Target) -> Sums:
        """Return the sums of one tile; the arrays are used again for the next."""
        for top in range(0, to.height, SQUARE):
            # Of a tile on the diagonal the upper triangle will do.
            for side in range(top if self._same and to.i == to.j else 0, to.width, SQUARE):
                self._square(to, top, side)
        return self._sums

    def _square(self, to: Target, top: int, side: int) -> None:
        rows, turned = self._rows[to.i + top : to.i + top + SQUARE], self._turned[(to.j + side) // SQUARE]
        place = None if self._products is None else self._products[top : top + SQUARE, side : side + SQUARE]
        if self._squares:
            # Into one square that stays in the cache: the tile does not.
            np.matmul(rows, turned, out=self._one)
            norms = self._x_norms[to.i + top : to.i + top + SQUARE], self._z_norms[to.j + side : to.j + side + SQUARE]
            squares_from_products(self._one, *norms, self._sums[SQUARES, 0.0], top, side)
            if place is not None:
                place[:] = self._one
        elif place is not None:
            np.matmul(rows, turned, out=place)
        for kind, gamma in self._direct:
            dense_sums(kind, gamma, rows, min(SQUARE, to.height - top), turned, self._sums[kind, gamma], top, side)


def _padded(side: Side) -> Array:
    n, c = side.shape
    rows = np.zeros((-(-n // SQUARE) * SQUARE, c))
    rows[:n] = side.entries
    return rows


def _cut(rows: Array) -> Array:
    return rows.reshape(rows.shape[0] // SQUARE, SQUARE, rows.shape[1])


def _turned(rows: Array) -> Array:
    """Return the transposed tiles of padded rows, each by itself."""
    return np.ascontiguousarray(_cut(rows).transpose(0, 2, 1))


def _norms(rows: Array, turned: Array) -> Array:
    """Return squared norms by the products that distances subtract them from, so that equal rows are at distance zero exactly."""
    tiles = _cut(rows)
    return np.concatenate([np.zeros(0), *(np.matmul(tile, other).diagonal() for tile, other in zip(tiles, turned))])


class SparseSums:
    """Tiles of sums over sparse rows."""

    def __init__(self, x: Side, z: Side, wanted: set[tuple[int, float]], tiles: Tiles) -> None:
        self._x, self._z = x, z
        self._turned = sp.csr_array(z.values.T)
        self._strip: tuple[int, Array] = (-1, np.empty((0, 0)))
        self._products = tiles(len(wanted))
        self._sums = {item: tiles(number) for number, item in enumerate(wanted)}
        self._norms = np.zeros((2, tiles.size))

    def __call__(self, to: Target) -> Sums:
        """Return the sums of one tile; the arrays are used again for the next."""
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
            self._strip = to.i, (self._x.values[to.i : to.i + to.height] @ self._turned).toarray()
        self._products[: to.height, : to.width] = self._strip[1][:, to.j : to.j + to.width]
        self._norms[0, : to.height] = self._x.norms[to.i : to.i + to.height]
        self._norms[1, : to.width] = self._z.norms[to.j : to.j + to.width]

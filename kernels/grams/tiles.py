"""Compiled functions that compute the entries of many kernels from one tile of sums over pairs.

A strip of a few rows passes through all exponentials, squarings or powers while it is in the first-level cache. The mirror image of a tile
is written as another tile, from one transpose of the sums, because writing ten kernels transposed takes longer than their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from ..jit import compiled
from .distances import (
    GAUSSIANS,
    MIN_ENTRY,
    PRODUCTS,
    SQUARES,
    Chain,
    base_kernel,
    decay,
    dense_sums,
    single_decay,
    sparse_sums,
    square_strip,
    square_strip_twice,
    squares_from_products,
    transpose_tile,
)
from .rows import Side

BLAS_SIDE = 128  # Rows and columns that BLAS sees at a time.
MAX_TILE = 1024  # Greatest number of rows and columns of a tile, a multiple of BLAS_SIDE: long runs of entries are written faster.
SPARE_COLUMNS = 8  # Columns of a tile beyond its size: without them all entries of a column would share a few lines of the cache.
STRIP_ROWS = 2  # Rows of a strip.
MIRROR_ROWS = 64  # Rows of the mirror image of a float32 tile at a time.


# Compiled functions take whole C-ordered arrays and indices of the part in use: loops over slices with unknown strides do not vectorise.


@compiled
def _put_strip(strip: Array, rows: int, width: int, out: Array, i: int, j: int) -> None:
    for r in range(rows):
        e, to = strip[r], out[i + r, j : j + width]
        for c in range(to.size):
            to[c] = e[c]


@compiled
def _square_and_put(strip: Array, rows: int, width: int, out: Array, i: int, j: int) -> None:
    for r in range(rows):
        e, to = strip[r, :width], out[i + r, j : j + width]
        for c in range(to.size):
            v = e[c] * e[c]
            v = v if v > MIN_ENTRY else 0.0
            e[c] = v
            to[c] = v


@compiled
def _square_and_put_twice(strip: Array, rows: int, width: int, first: Array, second: Array, i: int, j: int) -> None:
    for r in range(rows):
        e, one, two = strip[r, :width], first[i + r, j : j + width], second[i + r, j : j + width]
        for c in range(e.size):
            v = e[c] * e[c]
            v = v if v > MIN_ENTRY else 0.0
            one[c] = v
            v = v * v
            v = v if v > MIN_ENTRY else 0.0
            two[c] = v
            e[c] = v


@compiled
def _square_times(strip: Array, rows: int, times: int) -> None:
    for _ in range(times // 2):
        square_strip_twice(strip, rows)
    if times % 2 == 1:
        square_strip(strip, rows)


@compiled
def _write_squarings(work: Array, rows: int, width: int, squarings: Array, slots: Array, out: Array, i: int, j: int) -> None:
    """Square a strip repeatedly, and write its powers 2^k for the ascending numbers k in ``squarings``."""
    done, q = 0, 0
    while q < slots.size:
        k = squarings[q]
        _square_times(work, rows, max(k - 1 - done, 0))
        if k == done:
            _put_strip(work, rows, width, out[slots[q]], i, j)
        elif q + 1 < slots.size and squarings[q + 1] == k + 1:
            _square_and_put_twice(work, rows, width, out[slots[q]], out[slots[q + 1]], i, j)
            q, k = q + 1, k + 1
        else:
            _square_and_put(work, rows, width, out[slots[q]], i, j)
        done, q = k, q + 1


@compiled
def _decay_tile(
    sums: Array, height: int, width: int, base: float, squarings: Array, slots: Array, out: Array, i: int, j: int, work: Array, keep: Array
) -> None:
    """Write the outputs of one base: the base kernel, squared repeatedly. If ``keep`` has rows, the base kernel is also copied to ``keep``.
    If ``base`` is 0, ``sums`` already holds the base kernel.
    """
    for r in range(0, height, STRIP_ROWS):
        rows = min(STRIP_ROWS, height - r)
        if base > 0.0:
            base_kernel(sums[r : r + rows], base, work)
        for a in range(rows):
            # Loops: assigning slices would compile the messages of errors about shapes.
            e, s = work[a], sums[r + a]
            if base == 0.0:
                for c in range(e.size):
                    e[c] = s[c]
            elif keep.shape[0] > 0:
                to = keep[r + a]
                for c in range(e.size):
                    to[c] = e[c]
        _write_squarings(work, rows, width, squarings, slots, out, i + r, j)


@compiled
def single_decays(
    sums: Array, height: int, width: int, gammas: Array, rates: Array, slots: Array, out: Array, i: int, j: int, rounded: Array
) -> None:
    """Write exp(-gamma sums) for several gammas to a float32 array; the sums are rounded once for all of them."""
    for r in range(height):
        s = sums[r]
        for c in range(rounded.size):
            rounded[c] = s[c]
        for q in range(slots.size):
            # Not in a function of their own, where a row has an unknown stride and takes a quarter longer.
            gamma, rate, to = gammas[q], rates[q], out[slots[q], i + r, j : j + width]
            if rate < 0.0:
                for c in range(to.size):
                    to[c] = single_decay(rounded[c], rate)
            else:
                for c in range(to.size):
                    v = decay(-gamma * s[c])
                    to[c] = v if v > MIN_ENTRY else 0.0


@compiled
def _power_tile(
    sums: Array, height: int, width: int, gamma: float, coef0: float, degrees: Array, slots: Array, out: Array, i: int, j: int, work: Array
) -> None:
    for r in range(0, height, STRIP_ROWS):
        rows = min(STRIP_ROWS, height - r)
        for a in range(rows):
            s, base, power = sums[r + a], work[STRIP_ROWS + a], work[a]
            for c in range(s.size):
                t = gamma * s[c] + coef0
                base[c] = t
                power[c] = t
        done = 1
        for q in range(degrees.size):
            while done < degrees[q]:
                for a in range(rows):
                    base, power = work[STRIP_ROWS + a], work[a]
                    for c in range(power.size):
                        power[c] *= base[c]
                done += 1
            _put_strip(work, rows, width, out[slots[q]], i + r, j)


def tile_size(n: int) -> int:
    """Return the number of rows of the square tiles of a block; n is the number of rows or of columns of the block, whichever is larger."""
    return min(MAX_TILE, -(-max(n, 1) // BLAS_SIDE) * BLAS_SIDE)


def new_tile(size: int) -> Array:
    """Return zeros for the sums of a tile of size x size."""
    return np.zeros((size, size + SPARE_COLUMNS))


@dataclass(frozen=True)
class Powers:
    """Kernels ``(gamma * sum + coef0)^p`` with one gamma and coef0: degrees p, ascending, and the position of each."""

    gamma: float
    coef0: float
    degrees: Array
    slots: Array


@dataclass(frozen=True)
class Target:
    """A part of the output: rows and columns of a tile that starts at (i, j), in ``out`` (n_kernels, n, m), float32 or float64, C order."""

    out: Array
    i: int
    j: int
    height: int
    width: int

    @property
    def mirrored(self) -> Target:
        """The transposed part."""
        return Target(self.out, self.j, self.i, self.width, self.height)


class Workspace:
    """Work space for tiles of size x size: strips and, for symmetric blocks, a base kernel and a transposed tile."""

    def __init__(self, size: int, symmetric: bool) -> None:
        self.strips = np.empty((2 * STRIP_ROWS, size + SPARE_COLUMNS))
        self.rounded = np.empty(size, np.float32)
        self.none = np.empty((0, size + SPARE_COLUMNS))
        self.base, self.transpose = (new_tile(size), new_tile(size)) if symmetric else (self.none, self.none)


def write_decays(sums: Array, chain: Chain, to: Target, mirror: bool, work: Workspace) -> None:
    """Write ``exp(-gamma sums)`` for each gamma of a chain to ``to`` and, with ``mirror``, also to the transposed part.

    ``sums`` is a tile of :func:`new_tile`. In float64 each exponential is computed once for both parts. With ``mirror`` the work space must
    be a symmetric one.
    """
    if to.out.itemsize == 4:
        _write_single_decays(sums, chain, to, mirror, work)
        return
    back = to.mirrored
    for b, base in enumerate(chain.bases):
        part = slice(chain.starts[b], chain.starts[b + 1])
        plan = chain.squarings[part], chain.slots[part], to.out
        stored = work.base if mirror else work.none
        _decay_tile(sums, to.height, to.width, base, *plan, to.i, to.j, work.strips, stored)
        if mirror:
            transpose_tile(stored, to.height, to.width, work.transpose)
            _decay_tile(work.transpose, back.height, back.width, 0.0, *plan, back.i, back.j, work.strips, work.none)


def _write_single_decays(sums: Array, chain: Chain, to: Target, mirror: bool, work: Workspace) -> None:
    plan, back = (chain.gammas, chain.rates, chain.slots, to.out), to.mirrored
    single_decays(sums, to.height, to.width, *plan, to.i, to.j, work.rounded)
    for top in range(0, back.height if mirror else 0, MIRROR_ROWS):
        # A few rows at a time: they are still in the cache when they are read.
        rows = min(MIRROR_ROWS, back.height - top)
        transpose_tile(sums, to.height, rows, work.transpose, top)
        single_decays(work.transpose, rows, back.width, *plan, back.i + top, back.j, work.rounded)


def write_powers(sums: Array, powers: Powers, to: Target, mirror: bool, work: Workspace) -> None:
    """Write ``(gamma sums + coef0)^p`` for all degrees p; otherwise like :func:`write_decays`."""
    plan = powers.gamma, powers.coef0, powers.degrees, powers.slots, to.out
    _power_tile(sums, to.height, to.width, *plan, to.i, to.j, work.strips)
    if mirror:
        transpose_tile(sums, to.height, to.width, work.transpose)
        _power_tile(work.transpose, to.width, to.height, *plan, to.j, to.i, work.strips)


# Tiles of sums over pairs of rows, many kinds at once: dense rows through BLAS or term by term, sparse rows through their non-zeros.

MAX_DIRECT_COLUMNS = 16
"""Up to this number of features, inner products and distances are summed term by term. This gives exact zeros, loses nothing to
cancellation, and is as fast as BLAS.
"""

Sums = dict[tuple[int, float], Array]
"""Sums over features for the pairs of rows of a tile, by kind and gamma, each from :func:`tiles.new_tile`; undefined beyond the block."""


class Tiles:
    """Tiles for sums, of ``size`` rows and columns, which are used again for kernels over other features."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._made: list[Array] = []

    def __call__(self, number: int) -> Array:
        """Return one of the tiles, with undefined entries."""
        while len(self._made) <= number:
            self._made.append(new_tile(self.size))
        return self._made[number]


class DenseSums:
    """Tiles of sums over dense rows. BLAS multiplies complete squares only, so that no entry depends on where a block ends."""

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
        """Return the sums of one tile; the next call overwrites them."""
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
    """Return squared norms, computed by the same products as the distances, so that equal rows have distance exactly zero."""
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
        """Return the sums of one tile; the next call overwrites them."""
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

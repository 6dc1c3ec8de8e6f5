"""Compiled writers: from one tile of sums of pairs to the entries of many kernels.

A strip of a few rows passes through all exponentials, squarings or powers while it is in the first cache. The mirror image of a tile is
written as another tile, from one transpose of the sums: writing ten kernels transposed costs more than their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Array
from ..jit import compiled
from .distances import transpose_tile
from .exponentials import MIN_ENTRY, Chain, base_kernel, decay, single_decay, square_strip, square_strip_twice

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
    """Write the powers 2^k of a strip, k ascending."""
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
    """Write one base kernel and its powers; it is copied to ``keep`` if that has rows, and read from ``sums`` if base is 0."""
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
    """Write exp(-gamma sums) of several gammas to a float32 array; the sums are rounded once for all of them."""
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
    """Return the rows and columns of the tiles of a block, n being the greater number of its rows and columns."""
    return min(MAX_TILE, -(-max(n, 1) // BLAS_SIDE) * BLAS_SIDE)


def new_tile(size: int) -> Array:
    """Return zeros for the sums of a tile of size x size."""
    return np.zeros((size, size + SPARE_COLUMNS))


@dataclass(frozen=True)
class Powers:
    """Kernels ``(gamma sum + coef0)^p`` of one gamma and coef0: degrees p ascending, and where each goes."""

    gamma: float
    coef0: float
    degrees: Array
    slots: Array


@dataclass(frozen=True)
class Target:
    """A part of the output: rows and columns of a tile from (i, j) on, in ``out`` (n_kernels, n, m), float32 or float64, C order."""

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
    """Work space of the writers for tiles of size x size: strips, and for symmetric blocks a base kernel and a transposed tile."""

    def __init__(self, size: int, symmetric: bool) -> None:
        self.strips = np.empty((2 * STRIP_ROWS, size + SPARE_COLUMNS))
        self.rounded = np.empty(size, np.float32)
        self.none = np.empty((0, size + SPARE_COLUMNS))
        self.base, self.transpose = (new_tile(size), new_tile(size)) if symmetric else (self.none, self.none)


def write_decays(sums: Array, chain: Chain, to: Target, mirror: bool, work: Workspace) -> None:
    """Write ``exp(-gamma sums)`` for every gamma of a chain to the part ``to``, and with ``mirror`` to the transposed part, too. ``sums``
    are a tile of :func:`new_tile`. In float64 each exponential is computed once for both parts. With ``mirror`` the work space must be a
    symmetric one.
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

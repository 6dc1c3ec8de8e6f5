"""Compiled writers: from one tile of sums of pairs to the entries of many kernels.

A tile is cut into strips of a few rows; a strip passes through all exponentials, squarings or powers while it lies in the first cache.
The mirror image of a tile is written like a tile of its own, from one transpose of what all its kernels start from: writing ten kernels
transposed costs more than their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..jit import compiled
from .distances import transposed
from .exponentials import TINY, Chain, base_kernel, decay, single_decay, square, square_twice

Array = np.ndarray

SQUARE = 128
"""Rows and columns that BLAS sees at a time."""

TILE = 1024
"""Most rows and columns of a tile, a multiple of SQUARE: so many entries are written at a stretch, which memory wants."""

SPARE = 8
"""Columns of a tile beyond its size: without them, transposing would fight for the same lines of the cache."""

STRIP = 2
"""Rows of a strip."""

TURNED = 64
"""Rows of the mirror image of a float32 tile at a time."""


# Compiled code takes whole C-ordered arrays and the part in use as numbers: loops over a slice with unknown strides do not vectorise.


@compiled
def _put(strip: Array, rows: int, width: int, out: Array, i: int, j: int) -> None:
    """Write a strip at (i, j) of a matrix."""
    for r in range(rows):
        e, to = strip[r], out[i + r, j : j + width]
        for c in range(to.size):
            to[c] = e[c]


@compiled
def _square_and_put(strip: Array, rows: int, width: int, out: Array, i: int, j: int) -> None:
    """As square, then _put, in one pass."""
    for r in range(rows):
        e, to = strip[r, :width], out[i + r, j : j + width]
        for c in range(to.size):
            v = e[c] * e[c]
            v = v if v > TINY else 0.0
            e[c] = v
            to[c] = v


@compiled
def _square_and_put_twice(strip: Array, rows: int, width: int, first: Array, second: Array, i: int, j: int) -> None:
    """As _square_and_put two times, in one pass."""
    for r in range(rows):
        e, one, two = strip[r, :width], first[i + r, j : j + width], second[i + r, j : j + width]
        for c in range(e.size):
            v = e[c] * e[c]
            v = v if v > TINY else 0.0
            one[c] = v
            v = v * v
            v = v if v > TINY else 0.0
            two[c] = v
            e[c] = v


@compiled
def _advance(strip: Array, rows: int, times: int) -> None:
    """Square a strip several times."""
    for _ in range(times // 2):
        square_twice(strip, rows)
    if times % 2 == 1:
        square(strip, rows)


@compiled
def _squarings(work: Array, rows: int, width: int, squarings: Array, slots: Array, out: Array, i: int, j: int) -> None:
    """Write the powers 2^k of a strip, k ascending."""
    done, q = 0, 0
    while q < slots.size:
        k = squarings[q]
        _advance(work, rows, max(k - 1 - done, 0))
        if k == done:
            _put(work, rows, width, out[slots[q]], i, j)
        elif q + 1 < slots.size and squarings[q + 1] == k + 1:
            _square_and_put_twice(work, rows, width, out[slots[q]], out[slots[q + 1]], i, j)
            q, k = q + 1, k + 1
        else:
            _square_and_put(work, rows, width, out[slots[q]], i, j)
        done, q = k, q + 1


@compiled
def _decays(
    sums: Array, height: int, width: int, base: float, squarings: Array, slots: Array, out: Array, i: int, j: int, work: Array, keep: Array
) -> None:
    """Write one base and its powers; the base kernel is kept where ``keep`` has rows, and is what ``sums`` holds if base is 0."""
    for r in range(0, height, STRIP):
        rows = min(STRIP, height - r)
        if base > 0.0:
            base_kernel(sums[r : r + rows], base, work)
        for a in range(rows):
            # Loops: copied as slices, they would have the texts of errors about shapes compiled.
            e, s = work[a], sums[r + a]
            if base == 0.0:
                for c in range(e.size):
                    e[c] = s[c]
            elif keep.shape[0] > 0:
                to = keep[r + a]
                for c in range(e.size):
                    to[c] = e[c]
        _squarings(work, rows, width, squarings, slots, out, i + r, j)


@compiled
def single_decays(
    sums: Array, height: int, width: int, gammas: Array, rates: Array, slots: Array, out: Array, i: int, j: int, rounded: Array
) -> None:
    """Write exp(-gamma sums) of several gammas to a float32 array, from sums that are rounded into a row once for all of them."""
    for r in range(height):
        s = sums[r]
        for c in range(rounded.size):
            rounded[c] = s[c]
        for q in range(slots.size):
            # Here and not in a function of their own: passed there, a row would be of unknown stride, and a quarter slower.
            gamma, rate, to = gammas[q], rates[q], out[slots[q], i + r, j : j + width]
            if rate < 0.0:
                for c in range(to.size):
                    to[c] = single_decay(rounded[c], rate)
            else:
                for c in range(to.size):
                    v = decay(-gamma * s[c])
                    to[c] = v if v > TINY else 0.0


@compiled
def _powers(
    sums: Array, height: int, width: int, gamma: float, coef0: float, degrees: Array, slots: Array, out: Array, i: int, j: int, work: Array
) -> None:
    for r in range(0, height, STRIP):
        rows = min(STRIP, height - r)
        for a in range(rows):
            s, base, power = sums[r + a], work[STRIP + a], work[a]
            for c in range(s.size):
                t = gamma * s[c] + coef0
                base[c] = t
                power[c] = t
        done = 1
        for q in range(degrees.size):
            while done < degrees[q]:
                for a in range(rows):
                    base, power = work[STRIP + a], work[a]
                    for c in range(power.size):
                        power[c] *= base[c]
                done += 1
            _put(work, rows, width, out[slots[q]], i + r, j)


def edge(n: int) -> int:
    """Return the rows and columns of the tiles of a block of n rows or columns, whichever are more."""
    return min(TILE, -(-max(n, 1) // SQUARE) * SQUARE)


def new_tile(size: int) -> Array:
    """Return zeros for the sums of a tile of size x size."""
    return np.zeros((size, size + SPARE))


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
    """Arrays the writers work in, for tiles of size x size: strips, and for symmetric blocks a tile and its transpose."""

    def __init__(self, size: int, symmetric: bool) -> None:
        self.strips = np.empty((2 * STRIP, size + SPARE))
        self.rounded = np.empty(size, np.float32)
        self.none = np.empty((0, size + SPARE))
        self.kept, self.turned = (new_tile(size), new_tile(size)) if symmetric else (self.none, self.none)


def write_decays(sums: Array, chain: Chain, to: Target, mirror: bool, work: Workspace) -> None:
    """Write ``exp(-gamma sums)`` for every gamma of a chain.

    Parameters
    ----------
    sums : ndarray of shape (size, size + SPARE)
        float64, C order; only the part ``to`` speaks of is written.
    chain : Chain
    to : Target
    mirror : bool
        Whether the transposed part is written, too; in float64 each exponential is then computed once for both.
    work : Workspace
        A symmetric one if ``mirror``.
    """
    if to.out.itemsize == 4:
        _write_single_decays(sums, chain, to, mirror, work)
        return
    back = to.mirrored
    for b, base in enumerate(chain.bases):
        part = slice(chain.starts[b], chain.starts[b + 1])
        plan = chain.squarings[part], chain.slots[part], to.out
        kept = work.kept if mirror else work.none
        _decays(sums, to.height, to.width, base, *plan, to.i, to.j, work.strips, kept)
        if mirror:
            transposed(kept, to.height, to.width, work.turned)
            _decays(work.turned, back.height, back.width, 0.0, *plan, back.i, back.j, work.strips, work.none)


def _write_single_decays(sums: Array, chain: Chain, to: Target, mirror: bool, work: Workspace) -> None:
    plan, back = (chain.gammas, chain.rates, chain.slots, to.out), to.mirrored
    single_decays(sums, to.height, to.width, *plan, to.i, to.j, work.rounded)
    for top in range(0, back.height if mirror else 0, TURNED):
        # Some rows at a time, which are still in the cache when they are read.
        rows = min(TURNED, back.height - top)
        transposed(sums, to.height, rows, work.turned, top)
        single_decays(work.turned, rows, back.width, *plan, back.i + top, back.j, work.rounded)


def write_powers(sums: Array, powers: Powers, to: Target, mirror: bool, work: Workspace) -> None:
    """Write ``(gamma sums + coef0)^p`` for all degrees p; the rest as in write_decays."""
    plan = powers.gamma, powers.coef0, powers.degrees, powers.slots, to.out
    _powers(sums, to.height, to.width, *plan, to.i, to.j, work.strips)
    if mirror:
        transposed(sums, to.height, to.width, work.turned)
        _powers(work.turned, to.width, to.height, *plan, to.j, to.i, work.strips)

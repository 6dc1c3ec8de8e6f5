"""Compiled writers: from one tile of sums of pairs to the entries of many kernels.

A tile is cut into strips of a few rows; a strip passes through all exponentials, squarings or powers while it lies in the first cache.
The mirror image of a tile is a tile of its own, its sums transposed once: writing ten kernels transposed costs more than their arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .exponentials import TINY, Chain, base_kernel, square
from .jit import compiled

Array = np.ndarray

SQUARE = 128
"""Rows and columns that BLAS sees at a time."""

TILE = 1024
"""Most rows and columns of a tile, a multiple of SQUARE: so many entries are written at a stretch, which memory wants."""

STRIP = 2
"""Rows of a strip."""


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
def _decays(
    sums: Array,
    height: int,
    width: int,
    bases: Array,
    starts: Array,
    squarings: Array,
    slots: Array,
    out: Array,
    i: int,
    j: int,
    work: Array,
) -> None:
    for r in range(0, height, STRIP):
        rows = min(STRIP, height - r)
        for b in range(bases.size):
            base_kernel(sums[r : r + rows], bases[b], work)
            done = 0
            for q in range(starts[b], starts[b + 1]):
                while done < squarings[q] - 1:
                    square(work, rows)
                    done += 1
                if done < squarings[q]:
                    _square_and_put(work, rows, width, out[slots[q]], i + r, j)
                    done += 1
                else:
                    _put(work, rows, width, out[slots[q]], i + r, j)


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


def workspace(size: int) -> Array:
    """Return the strips the writers work in, for tiles of size x size."""
    return np.empty((2 * STRIP, size))


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


def write_decays(sums: Array, chain: Chain, to: Target, work: Array) -> None:
    """Write ``exp(-gamma sums)`` for every gamma of a chain.

    Parameters
    ----------
    sums : ndarray of shape (size, size)
        float64, C order; only the part ``to`` speaks of is written.
    chain : Chain
    to : Target
    work : ndarray
        From :func:`workspace`.
    """
    _decays(sums, to.height, to.width, *chain, to.out, to.i, to.j, work)


def write_powers(sums: Array, base: tuple[float, float], degrees: Array, slots: Array, to: Target, work: Array) -> None:
    """Write ``(gamma sums + coef0)^p`` for ascending degrees p; ``base`` is (gamma, coef0), the rest as in write_decays."""
    _powers(sums, to.height, to.width, *base, degrees, slots, to.out, to.i, to.j, work)

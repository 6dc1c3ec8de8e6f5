"""Gaussian kernels that read one feature each, many of them: to the bits of :mod:`blocks`, without a tile of sums for every feature.

A wide table has thousands of them; where blocks are small, what surrounds the tile of a feature takes longer than the tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .distances import SQUARES
from .exponentials import MIN_ENTRY, decay, single_decay, single_rate
from .functions import kernel_family
from .rows import MAX_NUMBER, DenseColumns, Rows
from .spec import KernelSpec

FEWEST = 32  # features: those of fewer take no time, and no other function is compiled for them

Groups = dict[tuple[bool, tuple[int, ...] | None], list[int]]
"""Indices of kernels by whether they are no functions of sums over features, and by their features."""


Matrix = Rows | DenseColumns


class ColumnGaussians(NamedTuple):
    """Kernels by feature: those of the f-th have starts[f] to starts[f + 1] of gammas, rates, and slots, their places in the output."""

    columns: list[int]
    starts: IntArray
    gammas: FloatArray
    rates: Array
    slots: IntArray

    @classmethod
    def of(cls, specs: Sequence[KernelSpec], groups: Groups) -> ColumnGaussians:
        """Return the kernels of some groups, each of one feature."""
        slots = [slot for members in groups.values() for slot in members]
        gammas = [float(dict(specs[slot].params)["gamma"]) for slot in slots]  # pyright: ignore[reportArgumentType]
        starts = np.cumsum([0, *map(len, groups.values())], dtype=np.int64)
        rates = np.array([single_rate(gamma) for gamma in gammas], np.float32)
        return cls([columns[0] for _, columns in groups if columns], starts, np.array(gammas), rates, np.array(slots, np.int64))

    def write(self, left: FloatArray, right: FloatArray, out: Array) -> None:
        """Write the kernels of two sides, ``(n_features, n)`` and ``(n_features, m)``, to float32 ``(k, n, m)``."""
        _write_columns(left, right, self.starts, self.gammas, self.rates, self.slots, out)


def write_many_columns(specs: Sequence[KernelSpec], groups: Groups, left: Matrix, right: Matrix, out: Array) -> Groups:
    """Write the Gaussian kernels of one feature each to float32 ``(k, n, m)`` where there are many; return the groups that are left."""
    single = ((key, members, [kernel_family(specs[q].name) for q in members]) for key, members in groups.items() if len(key[1] or ()) == 1)
    own = {key: members for key, members, families in single if all(one.decays and one.pairing == SQUARES for one in families)}
    if out.dtype != np.float32 or len(own) < FEWEST:
        return groups
    gaussians = ColumnGaussians.of(specs, own)
    x = _features(left, gaussians.columns)
    z = x if right is left else _features(right, gaussians.columns)
    if x is None or z is None:
        return groups
    gaussians.write(x, z, out)
    return {key: members for key, members in groups.items() if key not in own}


def _features(rows: Matrix, columns: Sequence[int]) -> FloatArray | None:
    """Return features as rows; ``None`` of rows that are sparse or no numbers, and where a number may not be read, which tiles refuse."""
    if isinstance(rows, DenseColumns):
        found = rows.values.T[[rows.places[column] for column in columns]]
    elif isinstance(rows, np.ndarray) and rows.ndim == 2:
        found = rows.T[columns]
    else:
        return None
    found = np.ascontiguousarray(found, dtype=np.float64)
    return found if max(found.max(initial=0.0), -found.min(initial=0.0)) <= MAX_NUMBER else None


@compiled
def _write_columns(x: FloatArray, z: FloatArray, starts: IntArray, gammas: FloatArray, rates: Array, slots: IntArray, out: Array) -> None:
    squares, rounded = np.empty(z.shape[1]), np.empty(z.shape[1], np.float32)
    for f in range(len(x)):
        b = z[f]
        for i in range(x.shape[1]):
            a = x[f, i]
            for j in range(b.size):
                t = a - b[j]
                squares[j] = t * t
                rounded[j] = t * t
            for q in range(starts[f], starts[f + 1]):
                gamma, rate, to = gammas[q], rates[q], out[slots[q], i]
                if rate < 0.0:
                    for j in range(to.size):
                        to[j] = single_decay(rounded[j], rate)
                else:
                    for j in range(to.size):
                        v = decay(-gamma * squares[j])
                        to[j] = v if v > MIN_ENTRY else 0.0

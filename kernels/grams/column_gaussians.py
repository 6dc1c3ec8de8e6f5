"""Gaussian kernels that read one feature each, many of them: to the bits of :mod:`blocks`, without a tile of sums for every feature.

A wide table has thousands of them; where blocks are small, what surrounds the tile of a feature takes longer than the tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .distances import SQUARES
from .exponentials import single_rate
from .functions import kernel_family
from .rows import MAX_NUMBER, DenseColumns, Rows
from .spec import KernelSpec
from .tiles import STRIP_ROWS, single_decays

FEWEST = 32  # features: those of fewer take no time, and no other function is compiled for them

Groups = dict[tuple[bool, tuple[int, ...] | None], list[int]]
"""Indices of kernels by whether they are no functions of sums over features, and by their features."""


def write_many_columns(
    specs: Sequence[KernelSpec], groups: Groups, left: Rows | DenseColumns, right: Rows | DenseColumns, out: Array
) -> Groups:
    """Write the Gaussian kernels of one feature each to float32 ``(k, n, m)`` where there are many; return the groups that are left."""
    single = ((key, members, [kernel_family(specs[q].name) for q in members]) for key, members in groups.items() if len(key[1] or ()) == 1)
    own = {key: members for key, members, families in single if all(one.decays and one.pairing == SQUARES for one in families)}
    if out.dtype != np.float32 or len(own) < FEWEST:
        return groups
    columns = [key[1][0] for key in own if key[1]]
    x = _features(left, columns)
    z = x if right is left else _features(right, columns)
    if x is None or z is None:
        return groups
    slots = [slot for members in own.values() for slot in members]
    gammas = [float(specs[slot].arguments["gamma"]) for slot in slots]
    rates = np.array([single_rate(gamma) for gamma in gammas], np.float32)
    starts = np.cumsum([0, *map(len, own.values())], dtype=np.int64)
    _write_columns(x, z, starts, np.array(gammas), rates, np.array(slots, np.int64), out)
    return {key: members for key, members in groups.items() if key not in own}


def _features(rows: Rows | DenseColumns, columns: Sequence[int]) -> FloatArray | None:
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
    """Write the kernels of all features ``(f, n)``, ``(f, m)``; of feature f those from ``starts[f]`` to ``starts[f + 1]``."""
    width = z.shape[1]
    squares, rounded = np.empty((STRIP_ROWS, width)), np.empty(width, np.float32)
    for f in range(len(x)):
        own = slice(starts[f], starts[f + 1])
        for first in range(0, x.shape[1], STRIP_ROWS):
            rows = min(STRIP_ROWS, x.shape[1] - first)
            for r in range(rows):
                for j in range(width):
                    t = x[f, first + r] - z[f, j]
                    squares[r, j] = t * t
            single_decays(squares, rows, width, gammas[own], rates[own], slots[own], out, first, 0, rounded)

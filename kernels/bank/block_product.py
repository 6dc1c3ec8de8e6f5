"""Products of a symmetric matrix that lies in block pairs, one block at a time."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, FloatArray
from ..jit import compiled
from ..svm.dual import add_rows

Span = tuple[int, int]


def add_product(block: Array, rows: Span, cols: Span, v: FloatArray, out: FloatArray) -> None:
    """Add the share of one block ``(rows, columns)`` of K, with its mirror image, in ``K v`` to ``out``, both ``(n,)``, in float64."""
    left, right = slice(*rows), slice(*cols)
    _add_dots(block, v[right], out[left])
    if rows != cols:
        add_rows(out[right], block, np.flatnonzero(v[left]), v[left])


@compiled(reassociate=True)
def _add_dots(block: Array, weights: FloatArray, out: FloatArray) -> None:
    """Add sum over k of block[r, k] weights[k] to out[r]."""
    for r in range(len(block)):
        total = 0.0
        for k in range(weights.size):
            total += np.float64(block[r, k]) * weights[k]
        out[r] += total

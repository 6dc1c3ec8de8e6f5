"""Compiled loop of the second layer: the entries of many Gram matrices, weighted one by one and summed tile by tile."""

from __future__ import annotations

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled
from .loops import BAND


@compiled
def weight_entries(
    flat: Array, at: int, stride: int, first: int, rows: IntArray, weights: FloatArray, on_diagonal: bool, out: FloatArray
) -> None:
    """Write the share of every tile of a band in sum_ij K_q[i, j] weights[i, j] of symmetric matrices.

    Entry (r, c) of the band of kernel q is flat[q, at + r * stride + first + c], and weights[s, c] belongs to row rows[s]; the other rows
    have no weight. A tile is summed column by column over its rows, then over its columns, so its bits depend on nothing else. All tiles
    but the first of a band on the diagonal stand for their mirror images, too. out is (kernels, column tiles).
    """
    width = weights.shape[1]
    part = np.empty(BAND)
    for lo in range(0, width, BAND):
        size = min(BAND, width - lo)
        twice = 2.0 if lo > 0 or not on_diagonal else 1.0
        for q in range(flat.shape[0]):
            part[:size] = 0.0
            for s in range(rows.size):
                start = at + rows[s] * stride + first + lo
                entries, shares = flat[q, start : start + size], weights[s, lo : lo + size]
                for k in range(size):
                    part[k] += np.float64(entries[k]) * shares[k]
            total = 0.0
            for k in range(size):
                total += part[k]
            out[q, (first + lo) // BAND] = twice * total

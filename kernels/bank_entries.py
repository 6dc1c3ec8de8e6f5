"""Chosen entries of packed Gram matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .bank import PackedBank
from .bank_loops import BAND, count_packed


def bank_entries(bank: PackedBank, rows: ArrayLike, columns: ArrayLike) -> NDArray[np.float64]:
    """Return K_q[rows[i], columns[i]] of every kernel of a bank, shape (k, m).

    Raises
    ------
    ValueError
        If the lists differ in length or leave the matrices.
    """
    i, j = (np.asarray(ids, dtype=np.int64) for ids in (rows, columns))
    if i.ndim != 1 or i.shape != j.shape or (i.size and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < bank.n)):
        raise ValueError(f"rows, columns: must be two lists of equal length of numbers from 0 to {bank.n - 1}")
    upper, right = np.minimum(i, j), np.maximum(i, j)
    first = upper // BAND * BAND
    starts = np.array([count_packed(bank.n) - count_packed(bank.n - band) for band in range(0, bank.n, BAND)])
    place = starts[first // BAND] + (upper - first) * (bank.n - first) + right - first
    return bank.values[:, place] * bank.scale[:, None]

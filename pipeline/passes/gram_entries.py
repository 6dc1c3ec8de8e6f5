"""Gram matrices of which chosen entries are asked, kernel by kernel, beside sums and quadratic forms."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...kernels.bank_entries import bank_entries
from ..records.context import received
from .gram_source import PairRef, normalised
from .grams import Grams, Norms


class Entries(NamedTuple):
    """Chosen entries of one block pair on their way to the driver."""

    places: np.ndarray
    values: np.ndarray


def entries_chunk(ref: PairRef, wanted: Any, norms: Norms) -> list[Entries]:
    """Return the entries of one block pair among the wanted ones, ``(2, m)`` rows and columns in the upper triangle."""
    rows, columns = received(wanted)
    inside = (rows >= ref.rows[0]) & (rows < ref.rows[1]) & (columns >= ref.cols[0]) & (columns < ref.cols[1])
    places = np.flatnonzero(inside)
    block = normalised(ref, norms)
    return [Entries(places, block[:, rows[places] - ref.rows[0], columns[places] - ref.cols[0]])]


class EntryGrams(Grams):
    """:class:`Grams` that also answer for single entries."""

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return ``K_q[rows[i], columns[i]]`` of every kernel, float64 ``(k, m)``; at most one pass."""
        if self._bank is not None:
            return bank_entries(self._bank, rows, columns) * self.scale[:, None]
        wanted = np.stack([np.minimum(rows, columns), np.maximum(rows, columns)])
        raw = np.zeros((self.k, len(rows)))
        result = 4 * self.k * min(len(rows), self.settings.block**2) + 8 * len(rows)
        for found in self._pass("gram-entries", entries_chunk, result, self.ctx.share("entries", wanted), self._norms):
            raw[:, found.places] = found.values
        return raw * self.scale[:, None]

"""Signs of eigenvectors, which no equation decides: one rule everywhere, which rounding does not change."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray

TIE_TOLERANCE = 1e-6
"""Entries whose magnitudes differ by less, relative to the largest, count as equal: which is larger is up to the processor's rounding."""


def column_signs(vectors: FloatArray) -> FloatArray:
    """Return -1 or +1 for every column of ``(n, r)``, n > 0: the sign of its largest entry; of equal ones that of the first."""
    size = np.abs(vectors)
    first = np.argmax(size >= (1.0 - TIE_TOLERANCE) * size.max(axis=0), axis=0)
    return np.where(np.take_along_axis(vectors, first[None], axis=0)[0] < 0, -1.0, 1.0)

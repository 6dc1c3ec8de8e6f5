"""What is worth a warning, or a refusal, about the kernels of a fit once their sums are known, before any machine is solved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...kernels.grams.spec import KernelSpec
from ...storage import DataError
from ..grams.grams import Grams

SAMPLED = 1 << 13
"""Entries, spread over a given matrix, by which those that may be the same are found."""


def kernel_warnings(grams: Grams) -> list[str]:
    """Return what to say of kernels that add nothing, or nothing new.

    Raises
    ------
    DataError
        Every kernel is zero.
    """
    zero = [q for q in range(grams.k) if grams.sums[q].trace <= 0.0 or grams.normalizations[q].scale == 0.0]
    if len(zero) == grams.k:
        raise DataError(f"every kernel is zero (or constant) on the training rows, from {grams.specs[0]} on: there is nothing to combine")
    found = []
    if zero:
        named, those = _listed([str(grams.specs[q]) for q in zero]), "it adds" if len(zero) == 1 else "they add"
        found.append(f"kernel {named} is zero (or constant) on the training rows; {those} nothing")
    twins = _twins(grams, set(zero))
    if twins:
        pairs = _listed([f"{grams.specs[a]} and {grams.specs[b]} (positions {a}, {b})" for a, b in twins])
        found.append(f"kernels that are the same: {pairs}; every one keeps a weight of its own")
    return found


def _listed(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def _twins(grams: Grams, zero: set[int]) -> list[tuple[int, int]]:
    """Return kernels with the first one before them that is the same.

    Kernels over rows are compared by what they are: those of a grid may well agree on features of few values. Matrices that were given
    are compared by diagonal and row sums, scale included, or by all of their entries.
    """
    first: dict[Any, int] = {}
    found = []
    for q, spec in enumerate(grams.specs):
        if q in zero:
            continue
        key = spec if isinstance(spec, KernelSpec) else _contents(grams, q)
        if first.setdefault(key, q) != q and _agree(grams, first[key], q):
            found.append((first[key], q))
    return found


def _agree(grams: Grams, a: int, b: int) -> bool:
    """Return whether kernels of one key are the same: of matrices without sums it holds some entries only."""
    if isinstance(grams.specs[b], KernelSpec) or np.isfinite(grams.sums[b].total):
        return True
    return np.array_equal(grams.raw(a), grams.raw(b))


def _contents(grams: Grams, q: int) -> bytes:
    sums, scale = grams.sums[q], grams.normalizations[q].scale
    # Matrices that passes take as they were handed over have no sums of rows: then some of their entries tell which to compare.
    told = sums.row_sums * scale if np.isfinite(sums.total) else _spread(grams.raw(q))
    return hashlib.blake2b((sums.diagonal * scale).tobytes() + np.ascontiguousarray(told).tobytes()).digest()


def _spread(entries: np.ndarray) -> np.ndarray:
    """Return some entries from all over a matrix: a step that is odd meets every column."""
    return entries[:: max(1, len(entries) // SAMPLED) | 1]

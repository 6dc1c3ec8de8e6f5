"""Checks of the kernels of a fit, after their sums are known and before models are solved."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from ...kernels.grams.spec import KernelSpec
from ...storage import DataError
from ..core.resources import Resources
from ..grams.grams import Grams

N_SAMPLED_ENTRIES = 1 << 13  # entries, spread over a given matrix, by which those that may be the same are found


def kernel_warnings(grams: Grams) -> list[str]:
    """Return warnings about zero and duplicate kernels. Raises DataError if every kernel is zero."""
    zero = [q for q in range(grams.k) if grams.sums[q].trace <= 0.0 or grams.normalizations[q].scale == 0.0]
    if len(zero) == grams.k:
        raise DataError(
            f"every kernel (the first is {grams.specs[0]}) is zero or constant on the training rows: there is nothing to combine"
        )
    messages = []
    if zero:
        named, those = _join_names([str(grams.specs[q]) for q in zero]), "it adds" if len(zero) == 1 else "they add"
        messages.append(f"kernel {named} is zero (or constant) on the training rows; {those} nothing")
    twins = _find_twins(grams, set(zero))
    if twins:
        pairs = _join_names([f"{grams.specs[a]} and {grams.specs[b]} (positions {a}, {b})" for a, b in twins])
        messages.append(f"kernels that are the same: {pairs}; every one keeps a weight of its own")
    return messages


def emit_warnings(grams: Grams, resources: Resources) -> None:
    """Emit the warnings of :func:`kernel_warnings`, one event each."""
    for message in kernel_warnings(grams):
        resources.emit({"event": "warning", "message": message})


def _join_names(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _find_twins(grams: Grams, zero: set[int]) -> list[tuple[int, int]]:
    """Return pairs of equal kernels. Each pair consists of the first of several equal kernels, and one of its duplicates.

    Kernels that are computed from rows are compared by name and parameters, not by entries, because different kernels often have equal
    entries if features have few distinct values. Precomputed matrices are compared by scaled diagonal and row sums; if row sums are
    unknown, by all entries.
    """
    first: dict[KernelSpec | bytes, int] = {}
    twins = []
    for q, spec in enumerate(grams.specs):
        if q in zero:
            continue
        key = spec if isinstance(spec, KernelSpec) else _digest_contents(grams, q)
        if first.setdefault(key, q) == q:
            continue
        # The key of matrices without sums covers some entries only.
        is_certain = isinstance(spec, KernelSpec) or np.isfinite(grams.sums[q].total)
        if is_certain or np.array_equal(grams.raw(first[key]), grams.raw(q)):
            twins.append((first[key], q))
    return twins


def _digest_contents(grams: Grams, q: int) -> bytes:
    sums, scale = grams.sums[q], grams.normalizations[q].scale
    if np.isfinite(sums.total):
        sample = sums.row_sums * scale
    else:
        # Matrices that passes read as users hand them over have no sums of rows: then some entries, from all over (an odd step meets
        # every column), tell which ones to compare in full.
        entries = grams.raw(q)
        sample = entries[:: max(1, len(entries) // N_SAMPLED_ENTRIES) | 1]
    return hashlib.blake2b((sums.diagonal * scale).tobytes() + np.ascontiguousarray(sample).tobytes()).digest()

"""Proximal operators with closed forms."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray, IntArray


def group_norms(omega: FloatArray, starts: IntArray) -> FloatArray:
    """Return the norm of every group ``omega[starts[h]:starts[h + 1]]``, (n_groups,); no group is empty."""
    return np.sqrt(np.add.reduceat(omega * omega, starts[:-1]))


def prox_squared_mixed_norm(u: FloatArray, starts: IntArray, tau: float) -> tuple[FloatArray, float]:
    r"""Minimise tau/2 \|omega - u\|^2 + 1/2 (sum_h \|omega_h\|)^2.

    Every group is shrunk towards zero by the same length: omega_h = u_h max(0, 1 - threshold / \|u_h\|). The threshold, which is returned
    with omega, equals sum_h \|omega_h\| / tau, so the penalty comes for free. No group is empty (source: equation (34) and Algorithm 3 of
    Tan, Tsang and Wang, JMLR 15, 2014, with the indices corrected).
    """
    if not tau > 0:
        raise ValueError(f"tau={tau!r}: must be positive")
    norms = group_norms(u, starts)
    threshold = squared_sum_threshold(norms, tau)
    # Division only where the group survives: a zero group stays zero without 0/0.
    factor = np.zeros_like(norms)
    alive = norms > threshold
    factor[alive] = 1.0 - threshold / norms[alive]
    return u * np.repeat(factor, np.diff(starts)), threshold


def squared_sum_threshold(norms: FloatArray, tau: float) -> float:
    """Return the common shrinkage of non-negative numbers under 1/2 (sum)^2. With the numbers in descending order o, the threshold is
    sum_{i <= rho} o_i / (tau + rho) for the greatest rho with o_rho (tau + rho) > sum_{i <= rho} o_i, and 0 if all are zero (no
    cancellation, unlike the printed form).
    """
    ordered = np.sort(norms)[::-1]
    sums = np.cumsum(ordered)
    weights = tau + np.arange(1, len(ordered) + 1)
    shrunk = np.flatnonzero(ordered * weights > sums)
    return float(sums[shrunk[-1]] / weights[shrunk[-1]]) if shrunk.size else 0.0

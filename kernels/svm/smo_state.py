"""The first gradient, the least curvature, the bias and the certificate: what all SMO variants share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from .dual import DualProblem, DualSolution, Gram, Warm, certified_solution
from .smo_shrink import Ends
from .smo_steps import MAX_VIOLATION

CURVATURE_FLOORS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
"""Least curvature of a step over the mean diagonal: below it the difference of three entries is round-off."""


def curvature_floor(diag: FloatArray, dtype: np.dtype[Any]) -> float:
    """Return the least curvature of a step, positive even for a zero matrix."""
    return CURVATURE_FLOORS[dtype] * (float(diag.mean()) or 1.0)


def first_gradient(gram: Gram, problem: DualProblem, beta: FloatArray, warm: Warm, gradient: FloatArray | None) -> FloatArray:
    """Return (K + diag(ridge)) beta - c: from ``gradient`` = K beta - c at the warm start if beta is that, else computed.

    Raises ValueError if the gradient has another length or is not finite.
    """
    if gradient is not None and (np.shape(gradient) != (problem.n,) or not np.isfinite(gradient).all()):
        raise ValueError(f"gradient: shape {np.shape(gradient)}, must be ({problem.n},) with finite entries")
    before = np.zeros(problem.n) if warm is None else warm.beta if isinstance(warm, DualSolution) else warm
    if gradient is None or not np.array_equal(before, beta):
        return (gram.matvec(beta) if beta.any() else np.zeros(problem.n)) + problem.ridges() * beta - problem.c
    return gradient + problem.ridges() * beta


def kink_slopes(problem: DualProblem, beta: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the slopes of the kinks upwards and downwards, and which variables can rise and fall."""
    e = problem.l1_weight
    return np.where(beta >= 0, e, -e), np.where(beta > 0, e, -e), beta < problem.hi, beta > problem.lo


def compute_bias(problem: DualProblem, beta: FloatArray, g: FloatArray, ends: Ends) -> float:
    """Return b: minus the mean of g + kink slope over free variables; if none is free, minus the middle of m and M."""
    if problem.sum_constraint is None:
        return 0.0
    up, down, can_rise, can_fall = kink_slopes(problem, beta)
    free = can_rise & can_fall & (up == down)
    if free.any():
        return -float((g + up)[free].mean())
    known = [end for end in ends[:2] if abs(end) < MAX_VIOLATION]
    return -sum(known) / len(known) if known else 0.0


def finish_solve(
    problem: DualProblem,
    beta: FloatArray,
    g: FloatArray,
    ends: Ends,
    converged: bool,
    steps: int,
    worst: float,
    dtype: np.dtype[Any],
    **details: float,
) -> DualSolution:
    """Return the solution at (beta, g)."""
    return certified_solution(
        problem,
        beta,
        g + problem.c if problem.ridge is None else g + problem.c - problem.ridge * beta,
        compute_bias(problem, beta, g, ends),
        iterations=steps,
        converged=converged,
        violation=ends.violation,
        indefinite=bool(worst < -CURVATURE_FLOORS[dtype]),
        details=details,
    )

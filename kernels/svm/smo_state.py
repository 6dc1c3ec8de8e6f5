"""What every SMO variant does before the first step and after the last: gradient, curvature floor, bias, certificate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dual import DualProblem, DualSolution, Gram, Warm, solution
from .smo_shrink import Ends
from .smo_steps import OVERFLOW

FloatArray = NDArray[np.float64]

FLOORS = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-12}
"""Least curvature of a step over the mean diagonal: below it the difference of three entries is round-off."""


def curvature_floor(diag: FloatArray, dtype: np.dtype[Any]) -> float:
    """Return the least curvature of a step, positive even for a zero matrix."""
    return FLOORS[dtype] * (float(diag.mean()) or 1.0)


def first_gradient(gram: Gram, problem: DualProblem, beta: FloatArray, warm: Warm, given: FloatArray | None) -> FloatArray:
    """Return (K + diag(ridge)) beta - c: from the given K beta - c if that belongs to beta, else computed.

    Raises
    ------
    ValueError
        If the given gradient has another length or is not finite.
    """
    if given is not None and (np.shape(given) != (problem.n,) or not np.isfinite(given).all()):
        raise ValueError(f"gradient: shape {np.shape(given)}, must be ({problem.n},) with finite entries")
    before = np.zeros(problem.n) if warm is None else warm.beta if isinstance(warm, DualSolution) else warm
    if given is None or not np.array_equal(before, beta):
        return (gram.matvec(beta) if beta.any() else np.zeros(problem.n)) + problem.ridges() * beta - problem.c
    return given + problem.ridges() * beta


def offsets(problem: DualProblem, beta: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the slopes of the kink upwards and downwards, and which variables can move up and down."""
    e = problem.kink
    return np.where(beta >= 0, e, -e), np.where(beta > 0, e, -e), beta < problem.hi, beta > problem.lo


def bias_of(problem: DualProblem, beta: FloatArray, g: FloatArray, ends: Ends) -> float:
    """Return b: minus the mean of g + kink slope over free variables; if none is free, minus the middle of m and M."""
    if problem.total is None:
        return 0.0
    up, down, can_rise, can_fall = offsets(problem, beta)
    free = can_rise & can_fall & (up == down)
    if free.any():
        return -float((g + up)[free].mean())
    known = [end for end in ends[:2] if abs(end) < OVERFLOW]
    return -sum(known) / len(known) if known else 0.0


def finish(
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
    return solution(
        problem,
        beta,
        g + problem.c if problem.ridge is None else g + problem.c - problem.ridge * beta,
        bias_of(problem, beta, g, ends),
        iterations=steps,
        converged=converged,
        violation=ends.violation,
        indefinite=bool(worst < -FLOORS[dtype]),
        details=details,
    )

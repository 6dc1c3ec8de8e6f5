"""Sequential minimal optimisation for every dual of :mod:`gramplane.kernels.svm.dual`, with warm starts, shrinking and a certificate.

Matrices in memory are solved by the compiled steps of :mod:`gramplane.kernels.svm.smo_shrink`, all others by
:mod:`gramplane.kernels.svm.decomposition`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..mixed_norm.problem import checked_limits
from .decomposition import solve_decomposition
from .dual import DenseGram, DualProblem, DualSolution, Gram, Scratch, Warm, certified_solution
from .gram_access import RepeatedGram
from .ridge import solve_ridge
from .smo_shrink import CURVATURE_FLOORS, REFRESH_STEPS, ShrinkingSteps, curvature_floor, finish_solve, first_gradient, solve_grouped
from .smo_steps import BROKEN, CAPPED, SOLVED

MAX_STEPS = 10_000_000  # Steps without a cap of the caller: minutes.
GAP_PER_TOL, MAX_TIGHTENING = 0.5, 0.01  # A tolerance is tightened by this much of what the gap is to fall, and at most by that factor.
MAX_TIGHTENINGS = 8  # Greatest number of tighter tolerances in :func:`solve_to_gap`.


def solve_smo(
    gram: Gram,
    problem: DualProblem,
    *,
    warm: Warm = None,
    tol: float = 1e-3,
    max_iter: int | None = None,
    gradient: FloatArray | None = None,
) -> DualSolution:
    """Maximise c'beta - sum_i e_i |beta_i| - 1/2 beta'(K + diag(ridge)) beta over the box.

    Parameters
    ----------
    gram : Gram
        K, without the ridge.
    problem : DualProblem
    warm : DualSolution or ndarray of shape (n,), optional
        Initial beta, projected if it is not feasible [default: zero].
    tol : float
        Largest violation of the optimality conditions, measured like the gradient; the same as LIBSVM's ``tol``.
    max_iter : int, optional
        Largest number of steps. After these steps the last point is returned, which is the best so far.
    gradient : ndarray of shape (n,), optional
        K beta - c at the warm start, if known. It is not checked, and the certificate is only as exact as this vector.

    Raises
    ------
    ValueError
        If sizes do not match, the warm start is not valid, or the matrix is not finite.
    """
    base = gram.gram if isinstance(gram, RepeatedGram) else gram
    if not isinstance(base, DenseGram) or (base is not gram and problem.groups is not None):
        return solve_decomposition(gram, problem, warm=warm, tol=tol, max_iter=max_iter, gradient=gradient)
    problem.check_gram(gram)
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    beta = problem.start(warm)
    first = first_gradient(gram, problem, beta, warm, gradient)
    if problem.groups is not None:
        return solve_grouped(base, problem, beta, first, tol, limit)
    return _solve_dense(base, problem, beta, first, tol, limit, gram.places if isinstance(gram, RepeatedGram) else None)


def solve_to_gap(
    gram: Gram, problem: DualProblem, *, warm: Warm = None, tol: float, aim: Callable[[DualSolution], float], tighter: float = 0.25
) -> DualSolution:
    """Return a solution with a gap of at most ``aim(solution)``. The problem is solved repeatedly with smaller ``tol``, each time from the
    last point.
    """
    solution = solve_smo(gram, problem, warm=warm, tol=tol)
    for _ in range(MAX_TIGHTENINGS):
        wanted = aim(solution)
        if solution.gap <= wanted or not solution.converged:
            break
        # The gap falls about as the tolerance does, where few rows are free faster.
        tol *= max(min(tighter, GAP_PER_TOL * wanted / solution.gap), MAX_TIGHTENING)
        solution = solve_smo(gram, problem, warm=solution.beta, tol=tol, gradient=solution.decision - problem.c)
    return solution


def _solve_dense(
    base: DenseGram, problem: DualProblem, beta: FloatArray, g: FloatArray, tol: float, limit: int, places: IntArray | None
) -> DualSolution:
    dtype, ridge = base.array.dtype, problem.ridges()
    gram = base if places is None else RepeatedGram(base, places)
    diag = gram.diag() + ridge
    # Where rows share those of the matrix there is no copy of the whole to fall back on.
    buffer = base.scratch.take(int((0.5625 if places is None else 1.0) * gram.n**2) + 1, dtype)
    machine = ShrinkingSteps(problem, base.array, buffer, diag, curvature_floor(diag, dtype), places)
    steps = 0
    while True:
        done, state, ends = machine.run(beta, g, tol, min(REFRESH_STEPS, limit - steps))
        steps += done
        if state == BROKEN:
            raise ValueError("Gram matrix: the gradient is not finite: entries are NaN, infinite or overflow")
        if state != CAPPED or steps >= limit:
            return finish_solve(problem, beta, g, ends, state == SOLVED, steps, machine.worst < -CURVATURE_FLOORS[dtype])
        g = gram.matvec(beta) + ridge * beta - problem.c


# One machine among many: a small dual problem solved as exactly as the whole search needs it.

RIDGE_TOL = 1e-9


@dataclass(frozen=True)
class Accuracy:
    """Initial tolerance of the optimality conditions, and the gap at which the tolerance is no longer reduced."""

    tol: float
    aim: float


def solve_machine(matrix: Array, problem: DualProblem, warm: FloatArray, accuracy: Accuracy, scratch: Scratch) -> DualSolution:
    """Solve one model with the kernel ``matrix``, ``(m, m)``, from the coefficients ``warm``.

    Squared losses are solved exactly by one factorisation, others by sequential minimal optimisation. Rows with an empty box stay at zero,
    for example if all rows of a task have one label.
    """
    if not np.any(problem.hi > problem.lo):
        return certified_solution(problem, np.zeros(problem.n), np.zeros(problem.n), 0.0, iterations=0, converged=True)
    if problem.ridge is not None:
        return solve_ridge_exactly(matrix, problem)
    return solve_to_gap(DenseGram(matrix, scratch), problem, warm=warm, tol=accuracy.tol, aim=lambda _: accuracy.aim)


def solve_ridge_exactly(matrix: Array, problem: DualProblem) -> DualSolution:
    """Solve ``(K + diag(ridge)) beta + b 1 = c``, ``1'beta = 0`` over the rows used, by a Cholesky factor with two right-hand sides.

    The objective values of the solution are not computed; they are NaN.
    """
    used = np.flatnonzero(problem.hi > problem.lo)
    ridge, whole = problem.ridges(), len(used) == problem.n
    system = np.array(matrix if whole else matrix[np.ix_(used, used)], dtype=np.float64, order="F")
    system[np.diag_indices(len(used))] += ridge[used]
    right = np.stack([problem.c[used], np.ones(len(used))], axis=1)
    (posv,) = get_lapack_funcs(("posv",), (system,))
    _, answers, failed = posv(system, right, lower=1, overwrite_a=1)
    if failed:
        # A matrix that is indefinite by its rounding: products repair what the factor cannot.
        return solve_ridge(DenseGram(matrix), problem, tol=RIDGE_TOL)
    bias = float(answers[:, 0].sum() / answers[:, 1].sum())
    beta = np.zeros(problem.n)
    beta[used] = answers[:, 0] - bias * answers[:, 1]
    beta[used] -= beta[used].mean()
    # The search bounds all tasks together and needs no bounds of one machine.
    return DualSolution(beta, bias, np.nan, np.nan, np.nan, 1, True, matrix @ beta)

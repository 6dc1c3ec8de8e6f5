"""Sequential minimal optimisation for every dual of :mod:`gramplane.kernels.svm.dual`: warm starts, shrinking, certificate.

Matrices in memory are solved by the compiled steps of :mod:`gramplane.kernels.svm.smo_shrink`, all others by
:mod:`gramplane.kernels.svm.decomposition`.
"""

from __future__ import annotations

from collections.abc import Callable

from ..arrays import FloatArray, IntArray
from ..mixed_norm.problem import checked_limits
from .decomposition import solve_decomposition
from .dual import DenseGram, DualProblem, DualSolution, Gram, Warm
from .gram_access import RepeatedGram
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
        First beta, projected when it is not feasible; zero by default.
    tol : float
        Stop when the optimality conditions hold within it, in units of the gradient: LIBSVM's ``tol``.
    max_iter : int, optional
        Greatest number of steps; the last point, which is the best, is returned then too.
    gradient : ndarray of shape (n,), optional
        K beta - c at the warm start, where the caller knows it. It is not checked: the certificate is as exact as it is.

    Raises
    ------
    ValueError
        If sizes do not fit, the warm start is not valid, or the matrix is not finite.
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
    """Return a solution with a gap of at most ``aim(solution)``: solves with ever tighter ``tol``, each from the last point."""
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

"""One machine among many: a small dual problem solved as exactly as the whole search needs it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray
from .dual import DenseGram, DualProblem, DualSolution, Scratch, certified_solution
from .ridge import solve_ridge
from .smo import solve_to_gap

RIDGE_TOL = 1e-9


@dataclass(frozen=True)
class Accuracy:
    """First tolerance of the optimality conditions, and the machine's own gap at which its tightening ends."""

    tol: float
    aim: float


def solve_machine(matrix: Array, problem: DualProblem, warm: FloatArray, accuracy: Accuracy, scratch: Scratch) -> DualSolution:
    """Solve one machine with the kernel ``matrix``, ``(m, m)``, from the coefficients ``warm``. Squared losses are solved exactly by one
    factorisation, others by sequential minimal optimisation. Rows with an empty box (all rows of a task with one label) stay at zero.
    """
    if not np.any(problem.hi > problem.lo):
        return certified_solution(problem, np.zeros(problem.n), np.zeros(problem.n), 0.0, iterations=0, converged=True)
    if problem.ridge is not None:
        return solve_ridge_exactly(matrix, problem)
    return solve_to_gap(DenseGram(matrix, scratch), problem, warm=warm, tol=accuracy.tol, aim=lambda _: accuracy.aim)


def solve_ridge_exactly(matrix: Array, problem: DualProblem) -> DualSolution:
    """Solve ``(K + diag(ridge)) beta + b 1 = c``, ``1'beta = 0`` over the rows used, by a Cholesky factor with two right sides. The
    solution has no bounds of its own (NaN).
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

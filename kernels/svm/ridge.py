"""Kernel ridge regression: one linear system, solved by conjugate gradients preconditioned with a float32 Cholesky factor.

With A = K + diag(ridge) the dual optimum solves A beta + b 1 = c, 1'beta = 0 (without a bias: A beta = c). Projecting the preconditioner
keeps the equality (Gould, Hribar and Nocedal, "On the solution of equality constrained quadratic programming problems", 2001), so a step
costs one product. With groups, each group has its own equality and bias; the projection then needs one more solve per group with the
factor, done once. In a loop, the factor of one matrix is reused for the next matrices until the solution takes more than a few steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, get_blas_funcs, get_lapack_funcs

from ..arrays import Array, FloatArray, IntArray
from ..jit import one_thread
from ..mixed_norm.problem import checked_limits
from .decomposition import PartGram
from .dual import DenseGram, DualProblem, DualSolution, Gram, Warm, certified_solution
from .smo_shrink import grouped_solution

# A preconditioner for a matrix that is known by parts: some of its columns, and the diagonal of what they leave.
#
# With the columns C of r rows S, ``K ~ C K_SS^-1 C' = L L'`` (Nyström), and the rest of the diagonal in D, ``P = L L' + D`` is inverted
# with a system of order r (Woodbury). Where eigenvalues of K fall quickly, conjugate gradients then need tens of products in place of
# hundreds (Frangella, Tropp and Udell, "Randomized Nyström preconditioning", 2023).

MAX_COLUMNS = 1024  # columns at most: a system of that order takes a fraction of a pass
MIN_COLUMNS = 16  # below so many the diagonal alone serves
COLUMN_JITTERS = (1e-6, 1e-5, 1e-4, 1e-2)  # shares of the mean diagonal added in turn until the float32 factor of K_SS exists
STRIP = 4096  # rows of L that are taken to float64 at a time


def count_columns(gram: PartGram, n: int, n_groups: int) -> int:
    """Return the number of columns that fit in half of the allowed entries. The result is 0 if this is too few columns or the groups need
    too much memory.
    """
    count = min(MAX_COLUMNS, n // 4, gram.room // (2 * n))
    return count if count >= MIN_COLUMNS and 24 * n * n_groups <= gram.room else 0


class ColumnsFactor:
    """The preconditioner ``(L L' + D)^-1`` of K plus a ridge. L is computed from the columns of K at evenly spaced positions; ``diag``,
    ``(n,)``, is the diagonal of K.
    """

    def __init__(self, gram: PartGram, diag: FloatArray, ridge: FloatArray, count: int) -> None:
        n = len(diag)
        chosen = (np.arange(count) * n) // count
        columns = fetch_columns(gram, chosen, n)
        self._half = _whiten(columns, chosen)
        left = np.zeros(n)
        for lo in range(0, n, STRIP):
            left[lo : lo + STRIP] = (self._half[:, lo : lo + STRIP].astype(np.float64) ** 2).sum(axis=0)
        self._diag = np.maximum(diag - left, 0.0) + ridge + COLUMN_JITTERS[0] * (float(diag.mean()) or 1.0)
        inner = np.eye(count)
        for lo in range(0, n, STRIP):
            strip = self._half[:, lo : lo + STRIP].astype(np.float64)
            inner += (strip / self._diag[lo : lo + STRIP]) @ strip.T
        self._inner = cho_factor(inner)

    def __call__(self, r: FloatArray) -> FloatArray:
        """Return the preconditioned residual, ``(n,)`` or ``(n, m)``."""
        # Small residuals are scaled up so that they stay in the range of float32.
        size = float(np.abs(r).max()) or 1.0
        scaled = ((r / size).T / self._diag).T
        small = cho_solve(self._inner, (self._half @ scaled.astype(np.float32)).astype(np.float64))
        return size * (scaled - ((self._half.T @ small.astype(np.float32)).T / self._diag).T)


def fetch_columns(gram: PartGram, chosen: IntArray, n: int) -> NDArray[np.float32]:
    """Return columns of a matrix, ``(len(chosen), n)``."""
    ids = np.concatenate([chosen, np.setdiff1d(np.arange(n), chosen)])
    columns, count = np.zeros((len(chosen), n), np.float32), len(chosen)
    for rows, places, values in gram.between(chosen, ids[count:]):
        inside, across = rows < count, places < count
        columns[np.ix_(rows[inside], ids[places])] = values[inside]
        columns[np.ix_(places[across], ids[rows])] = values[:, across].T
    return columns


def _whiten(columns: NDArray[np.float32], chosen: IntArray) -> NDArray[np.float32]:
    """Return L' = ``F^-1 C'`` with ``F F' = K_SS``, overwriting the columns."""
    square: Array = columns[:, chosen]
    (potrf,) = get_lapack_funcs(("potrf",), (square,))
    (trsm,) = get_blas_funcs(("trsm",), (square,))
    mean = float(np.diagonal(square).mean()) or 1.0
    for jitter in COLUMN_JITTERS:
        factor, failed = potrf(square + np.float32(jitter * mean) * np.eye(len(square), dtype=np.float32), lower=1, clean=1)
        if not failed:
            # The columns in C order are their transpose in Fortran order, which is solved from the right in place.
            return trsm(1.0, factor, columns.T, side=1, lower=1, trans_a=1, overwrite_b=1).T
    return np.zeros_like(columns)


Apply = Callable[[FloatArray], FloatArray]

MAX_STALE_STEPS = 8  # Steps with the factor of an earlier matrix; a new factor is cheaper than more.
JITTERS = (0.0, 1e-6, 1e-4, 1e-2)  # Shares of the mean diagonal added in turn until the float32 factor exists; the steps make up for them.
MAX_STEPS = 10_000


class RidgeSolver:
    """A solver for a sequence of ridge problems that reuses the last factor; ``factorisations`` is the number of factorisations so far."""

    def __init__(self) -> None:
        self._factor: NDArray[np.float32] | None = None
        self.factorisations = 0

    def solve(self, gram: Gram, problem: DualProblem, *, warm: Warm = None, tol: float = 1e-6, max_iter: int | None = None) -> DualSolution:
        """Solve one problem; see :func:`solve_ridge`."""
        problem.check_gram(gram)
        if problem.has_l1_term or not problem.is_squared:
            raise ValueError("problem: l1_weight must be 0, and each variable must be unbounded or fixed at 0")
        limit = checked_limits(tol, max_iter, MAX_STEPS)
        with one_thread():
            return self._solve(gram, problem, problem.start(warm), tol, limit)

    def _solve(self, gram: Gram, problem: DualProblem, beta: FloatArray, tol: float, limit: int) -> DualSolution:
        if isinstance(gram, DenseGram):
            system = _System(gram, problem) if problem.groups is None else _GroupedSystem(gram, problem)
            beta, bias, violation, steps = self._with_factor(gram, problem, system, beta, tol, limit)
        else:
            beta, bias, violation, steps = self._by_products(gram, problem, beta, tol, limit)
        ended = {"iterations": steps, "converged": violation < tol, "violation": violation}
        details = {"factorisations": self.factorisations}
        if problem.groups is not None:
            return grouped_solution(problem, beta, gram.matvec(beta), details=details, **ended)
        return certified_solution(problem, beta, gram.matvec(beta), float(bias), details=details, **ended)

    @staticmethod
    def _by_products(gram: Gram, problem: DualProblem, beta: FloatArray, tol: float, limit: int) -> tuple[FloatArray, Any, float, int]:
        """Solve with a preconditioner. It is built from some columns if the matrix returns parts, otherwise from the diagonal."""
        groups, diag, ridge = problem.groups, gram.diag(), problem.ridges()
        count = count_columns(gram, problem.n, 0 if groups is None else int(groups.max()) + 1) if isinstance(gram, PartGram) else 0
        if count and isinstance(gram, PartGram):
            system = _System(gram, problem) if groups is None else _GroupedSystem(gram, problem)
            return system.run(beta, ColumnsFactor(gram, diag, ridge, count), tol, limit)
        whole = diag + ridge
        system = _System(gram, problem) if groups is None else _ScaledGroupedSystem(gram, problem, whole)
        return system.run(beta, lambda r: r / whole, tol, limit)

    def _with_factor(
        self, gram: DenseGram, problem: DualProblem, system: _System, beta: FloatArray, tol: float, limit: int
    ) -> tuple[FloatArray, Any, float, int]:
        steps = 0
        if self._factor is not None and len(self._factor) == gram.n:
            beta, bias, violation, steps = attempt = system.run(beta, self._apply, tol, min(limit, MAX_STALE_STEPS))
            if violation < tol or limit <= MAX_STALE_STEPS:
                return attempt
        self._factor = _factorise(gram, problem)
        self.factorisations += 1
        beta, bias, violation, more = system.run(beta, self._apply, tol, limit - steps)
        return beta, bias, violation, steps + more

    def _apply(self, r: FloatArray) -> FloatArray:
        factor = self._factor
        assert factor is not None
        # Small residuals are scaled up so that they stay in the range of float32; its round-off is relative.
        scale = float(np.abs(r).max()) or 1.0
        if r.ndim == 2:
            (many,) = get_blas_funcs(("trsm",), (factor,))
            half = many(1.0, factor, np.asfortranarray(r / scale, np.float32), lower=1)
            return scale * many(1.0, factor, half, lower=1, trans_a=1).astype(np.float64)
        # LAPACK's potrs packs the whole factor for one right side, which takes five times as long as two triangular solves.
        (solve,) = get_blas_funcs(("trsv",), (factor,))
        half = solve(factor, (r / scale).astype(np.float32), lower=1)
        return scale * solve(factor, half, lower=1, trans=1).astype(np.float64)


def solve_ridge(gram: Gram, problem: DualProblem, *, warm: Warm = None, tol: float = 1e-6, max_iter: int | None = None) -> DualSolution:
    """Solve a problem of :func:`gramplane.kernels.svm.dual.ridge_problem`; in a loop use one :class:`RidgeSolver`.

    Parameters
    ----------
    gram : Gram
        A matrix in memory is factorised in float32. Any other matrix is used through products, preconditioned by its diagonal or, if the
        matrix returns parts, by some of its columns.
    problem : DualProblem
        Boxes must be unbounded, or empty for rows left out.
    warm : DualSolution or ndarray of shape (n,), optional
    tol : float
        Largest allowed spread of c - A beta - b over the rows used.
    max_iter : int, optional
        Largest number of conjugate-gradient steps.

    Raises
    ------
    ValueError
        If the problem has another form, sizes do not match, or the matrix is not finite.
    """
    return RidgeSolver().solve(gram, problem, warm=warm, tol=tol, max_iter=max_iter)


class _System:
    """A beta + b 1 = c on the rows used, 1'beta = total."""

    def __init__(self, gram: Gram, problem: DualProblem) -> None:
        self._gram, self._c, self._ridge = gram, problem.c, problem.ridges()
        self._used = (problem.hi > problem.lo).astype(np.float64)
        self._paired = problem.sum_constraint is not None

    def expand(self, shift: Any) -> FloatArray:
        """Return the bias of each row."""
        return shift * self._used

    def product(self, v: FloatArray) -> FloatArray:
        return self._used * (self._gram.matvec(v) + self._ridge * v)

    def _solve_ones(self, precondition: Apply) -> FloatArray:
        return self._used * precondition(self._used)

    def run(self, beta: FloatArray, precondition: Apply, tol: float, limit: int) -> tuple[FloatArray, Any, float, int]:
        """Return beta, b, the spread of the residual, and the number of steps."""
        ones = self._solve_ones(precondition) if self._paired else None
        residual = self._used * self._c - self.product(beta)
        direction, before, steps, bias = np.zeros_like(beta), 1.0, 0, 0.0
        best: tuple[float, FloatArray, Any] = (np.inf, beta, 0.0)
        while True:
            step, shift = self._project(residual, precondition, ones)
            # With a large bias in the residual the float32 factor would not see the rest.
            residual, bias = residual - self.expand(shift), bias + shift
            violation = 2.0 * float(np.abs(residual).max())
            if not np.isfinite(violation):
                raise ValueError("Gram matrix: the residual is not finite: entries are NaN, infinite or overflow")
            if violation < best[0]:
                best = violation, beta, bias
            now = float(residual @ step)
            if violation < tol or steps >= limit or not now > 0:
                return best[1], best[2], best[0], steps
            direction = step + (now / before if steps else 0.0) * direction
            along = self.product(direction)
            curvature = float(direction @ along)
            if not curvature > 0:
                return best[1], best[2], best[0], steps
            beta, residual, before = beta + (now / curvature) * direction, residual - (now / curvature) * along, now
            steps += 1

    def _project(self, residual: FloatArray, precondition: Apply, ones: FloatArray | None) -> tuple[FloatArray, Any]:
        """Return the preconditioned residual with sum zero, and the corresponding shift of the residual."""
        plain = self._used * precondition(residual)
        if ones is None:
            return plain, 0.0
        shift = float(plain.sum() / ones.sum())
        step = plain - shift * ones
        return step - self._used * (step.sum() / self._used.sum()), shift


class _GroupedSystem(_System):
    """A beta + b_s 1_s = c on the rows used, 1_s'beta = 0 for every group s."""

    def __init__(self, gram: Gram, problem: DualProblem) -> None:
        super().__init__(gram, problem)
        assert problem.groups is not None
        self._groups, self._count = problem.groups, int(problem.groups.max()) + 1
        self._rows = np.maximum(self._sums(self._used), 1.0)

    def _sums(self, v: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(self._groups, v, self._count), np.float64)

    def expand(self, shift: Any) -> FloatArray:
        return shift[self._groups] * self._used

    def _solve_ones(self, precondition: Apply) -> FloatArray:
        indicators = self._used[:, None] * (self._groups[:, None] == np.arange(self._count))
        columns = self._used[:, None] * precondition(indicators)
        inner = indicators.T @ columns
        # A group without rows has no equality.
        self._inner = cho_factor(0.5 * (inner + inner.T) + np.diag((inner.diagonal() == 0).astype(np.float64)))
        return columns

    def _project(self, residual: FloatArray, precondition: Apply, ones: FloatArray | None) -> tuple[FloatArray, Any]:
        assert ones is not None
        plain = self._used * precondition(residual)
        shift = cho_solve(self._inner, self._sums(plain))
        step = plain - ones @ shift
        return step - self.expand(self._sums(step) / self._rows), shift


class _ScaledGroupedSystem(_GroupedSystem):
    def __init__(self, gram: Gram, problem: DualProblem, diag: FloatArray) -> None:
        super().__init__(gram, problem)
        self._inverse = self._used / diag

    def _solve_ones(self, precondition: Apply) -> FloatArray:
        sums = self._sums(self._inverse)
        return np.where(sums > 0, sums, 1.0)

    def _project(self, residual: FloatArray, precondition: Apply, ones: FloatArray | None) -> tuple[FloatArray, Any]:
        assert ones is not None
        plain = self._inverse * residual
        shift = self._sums(plain) / ones
        step = plain - self._inverse * shift[self._groups]
        return step - self.expand(self._sums(step) / self._rows), shift


def _factorise(gram: DenseGram, problem: DualProblem) -> NDArray[np.float32]:
    """Return the lower float32 Cholesky factor of A + jitter I for the first of JITTERS (relative to the mean diagonal) for which the
    factor exists. If none does, return the factor of the diagonal of A.
    """
    diag = gram.diag() + problem.ridges()
    factor: Array = np.empty((gram.n, gram.n), dtype=np.float32, order="F")
    (potrf,) = get_lapack_funcs(("potrf",), (factor,))
    for jitter in JITTERS:
        # The transpose of a symmetric matrix in C order is itself in Fortran order, and copies row by row.
        factor.T[...] = gram.array
        np.fill_diagonal(factor, diag + jitter * diag.mean())
        lower, failed = potrf(factor, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return lower
    return np.asfortranarray(np.diag(np.sqrt(np.where(diag > 0, diag, 1.0)).astype(np.float32)))

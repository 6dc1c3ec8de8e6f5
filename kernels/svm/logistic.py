"""Kernel logistic regression by Newton's method on W^(1/2) K W^(1/2) + I, with a certificate from the entropy dual.

min over (beta, b) of   P = 1/2 beta'K beta + sum_i C_i log(1 + exp(-y_i (f_i + b))),   f = K beta
max over alpha of       D = sum_i C_i H(alpha_i / C_i) - 1/2 beta'K beta,   beta = alpha y,  sum_i beta_i = 0,  H the entropy in nats

A Newton step solves (K + W^(-1)) beta + b 1 = z with W = C p (1 - p), z = f + b + W^(-1) (C y p_-) and p_- = 1 / (1 + exp(y (f + b))). In
the variables W^(-1/2) beta the system is well conditioned even if K is not (source: Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, section 3.4; the bias is projected out).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import get_lapack_funcs

from ..arrays import Array, FloatArray
from ..jit import one_thread
from ..losses import Logistic
from ..mixed_norm.line_search import solve_bias
from ..mixed_norm.problem import checked_limits
from ..target_unit import LABELS, TargetUnit
from .dual import DenseGram, DualSolution, Gram, Warm, check_cost, check_labels

MAX_STEPS = 100
INNER_RESIDUAL = 0.03  # Relative residual of the inner system.
MAX_INNER_STEPS = 60  # Inner steps of one Newton step; after more, a matrix in memory is factorised in the next one.
MIN_WEIGHT_SHARE = 1e-12  # Least W relative to C: a row far on its side has no curvature, and a division by it would overflow.
_LOSS = Logistic()


@dataclass(frozen=True)
class LogisticProblem:
    """Labels -1 and +1, costs C_i (0 leaves a row out), and whether there is a bias."""

    y: FloatArray
    cost: FloatArray
    bias: bool = True
    unit: ClassVar[TargetUnit] = LABELS

    @property
    def n(self) -> int:
        return len(self.y)

    @property
    def used(self) -> Array:
        """Mask of the rows with positive cost, ``(n,)``."""
        return self.cost > 0

    @property
    def sum_constraint(self) -> float | None:
        """The sum of beta; None if it is free, without a bias."""
        return 0.0 if self.bias else None

    def without(self, rows: Array) -> LogisticProblem:
        """Return the problem without the rows of a mask."""
        return replace(self, cost=np.where(rows, 0.0, self.cost))

    def utility(self, beta: FloatArray) -> float:
        """Return the dual value without the part of the kernel: sum_i C_i H(beta_i y_i / C_i)."""
        # A mean of dual points may exceed the costs by rounding, where the entropy would be minus infinity.
        return _LOSS.utility(np.clip(beta * self.y, 0.0, self.cost), self.cost)

    def weights(self, beta: FloatArray) -> FloatArray:
        """Return W_i = alpha_i (1 - alpha_i / C_i), 0 for rows left out. The dual has the curvature 1 / W_i beside that of K."""
        alpha = beta * self.y
        return np.maximum(alpha * (1.0 - np.divide(alpha, self.cost, out=np.zeros_like(alpha), where=self.used)), 0.0) * self.used


def logistic_problem(y: ArrayLike, C: ArrayLike, *, bias: bool = True) -> LogisticProblem:
    """Return the problem with primal 1/2 ||w||^2 + sum_i C_i log(1 + exp(-y_i (f_i + b))). A bias needs both classes."""
    cost = check_cost(C, np.asarray(y).shape[0] if np.ndim(y) else 0)
    return LogisticProblem(check_labels(y, cost, bias), cost, bias)


def solve_logistic(
    gram: Gram, problem: LogisticProblem, *, warm: Warm = None, tol: float = 1e-6, max_iter: int | None = None
) -> DualSolution:
    """Minimise 1/2 beta'K beta + sum_i C_i log(1 + exp(-y_i (f_i + b))) until the gap is at most tol times the upper value.

    K is used through products; if K is in memory and the inner system is ill conditioned, the system is factorised. After ``max_iter``
    Newton steps, the best certified point so far is returned. The solution has beta = alpha y, its ``violation`` is the relative gap, and
    its ``details`` count products and factorisations.
    """
    if gram.n != len(problem.y):
        raise ValueError(f"Gram matrix: has {gram.n} rows, but the problem has {len(problem.y)} rows")
    limit = checked_limits(tol, max_iter, MAX_STEPS)
    beta = np.zeros(gram.n) if warm is None else np.array(warm.beta if isinstance(warm, DualSolution) else warm, dtype=np.float64)
    if beta.shape != (gram.n,) or not np.isfinite(beta).all():
        raise ValueError(f"warm: shape {beta.shape}, must be ({gram.n},) with finite entries")
    with one_thread():
        return _Newton(gram, problem, beta * (problem.cost > 0)).run(tol, limit)


class _CertifiedPoint(NamedTuple):
    beta: FloatArray
    decision: FloatArray
    bias: float
    upper: float
    gap: float


class _Newton:
    def __init__(self, gram: Gram, problem: LogisticProblem, beta: FloatArray) -> None:
        self._gram, self._problem = gram, problem
        self._y, self._cost, self._used = problem.y, problem.cost, problem.cost > 0
        self._products = self._factorisations = 0
        self._direct = False
        self._start = 0.0
        self._beta, self._f = beta, self._product(beta) if beta.any() else np.zeros(gram.n)
        self._bias = self._solve_bias(self._f)

    def run(self, tol: float, limit: int) -> DualSolution:
        best, steps = self._certify(), 0
        while best.gap > tol * best.upper and steps < limit:
            if not self._step():
                break
            steps += 1
            certified = self._certify()
            if certified.gap < best.gap:
                best = certified
        relative = best.gap / best.upper if best.upper > 0 else 0.0
        counts = {"products": float(self._products), "factorisations": float(self._factorisations)}
        values = (best.beta, best.bias, best.upper - best.gap, best.upper, best.gap)
        return DualSolution(*values, steps, relative <= tol, best.decision, relative, False, counts)

    def _product(self, v: FloatArray) -> FloatArray:
        self._products += 1
        product = self._gram.matvec(v)
        if not np.isfinite(product).all():
            raise ValueError("Gram matrix: a product with it is not finite: entries are NaN, infinite or overflow")
        return product

    def _dual(self, f: FloatArray, bias: float) -> FloatArray:
        return _LOSS.dual(self._y, f + bias, self._cost)

    def _solve_bias(self, f: FloatArray) -> float:
        """Return the bias for which alpha y sums to zero; ``solve_bias`` returns b of f - b, which has the opposite sign."""
        if not self._problem.bias:
            return 0.0

        def sums(b: float) -> tuple[float, float, float]:
            alpha = self._dual(f, -b)
            share = alpha[self._used] / self._cost[self._used]
            return float(alpha @ self._y), float((alpha[self._used] * (1.0 - share)).sum()), float(alpha.sum())

        self._start = solve_bias(sums, self._start, 1.0)
        return -self._start

    def _value(self, beta: FloatArray, f: FloatArray, bias: float) -> float:
        return 0.5 * float(beta @ f) + _LOSS.value(self._y, f + bias, self._cost)

    def _certify(self) -> _CertifiedPoint:
        """Return the dual point of the current decision values, with its own primal value."""
        beta = self._dual(self._f, self._bias) * self._y
        f = self._product(beta)
        bias = self._solve_bias(f)
        upper = self._value(beta, f, bias)
        dual = _LOSS.utility(np.abs(beta), self._cost) - 0.5 * float(beta @ f)
        return _CertifiedPoint(beta, f, bias, upper, max(upper - dual, 0.0))

    def _step(self) -> bool:
        """Take a Newton step with backtracking on P; return whether P fell."""
        alpha = self._dual(self._f, self._bias)
        used = self._used
        weight = np.zeros_like(alpha)
        weight[used] = np.maximum(alpha[used] * (1.0 - alpha[used] / self._cost[used]), MIN_WEIGHT_SHARE * self._cost[used])
        # P has the gradient K (beta - alpha y) in beta; the step makes beta + W (K delta + shift) equal to alpha y.
        root = np.sqrt(weight)
        delta = root * self._solve(root, np.divide(alpha * self._y - self._beta, root, out=np.zeros_like(root), where=used))
        return self._search_line(delta, self._product(delta))

    def _search_line(self, delta: FloatArray, move: FloatArray) -> bool:
        value, step = self._value(self._beta, self._f, self._bias), 1.0
        for _ in range(40):
            beta, f = self._beta + step * delta, self._f + step * move
            bias = self._solve_bias(f)
            if self._value(beta, f, bias) < value:
                self._beta, self._f, self._bias = beta, f, bias
                return True
            step *= 0.5
        return False

    def _solve(self, root: FloatArray, right: FloatArray) -> FloatArray:
        """Return x with (I + R K R) x + shift R 1 = right and, with a bias, (R 1)'x = -sum beta; R = diag(root)."""
        norm, unit, start = np.linalg.norm(root), root / np.linalg.norm(root), np.zeros_like(root)
        bias = self._problem.bias
        if bias:
            # Restores the balance of beta; only a warm start needs it.
            start = -(self._beta.sum() / norm) * unit
        if self._direct and isinstance(self._gram, DenseGram):
            solution = self._direct_solve(self._gram, root, right, unit, start)
            if solution is not None:
                return solution
        return self._conjugate_gradients(root, right, unit if bias else None, start)

    def _conjugate_gradients(self, root: FloatArray, right: FloatArray, unit: FloatArray | None, x: FloatArray) -> FloatArray:
        def product(v: FloatArray) -> FloatArray:
            return v + root * self._product(root * v)

        def projected(v: FloatArray) -> FloatArray:
            return v if unit is None else v - (unit @ v) * unit

        residual = projected(right - product(x) if x.any() else right)
        direction, size = residual, float(residual @ residual)
        goal, steps = INNER_RESIDUAL**2 * size, 0
        while size > goal and size > 0 and steps < 10 * MAX_INNER_STEPS:
            along = projected(product(direction))
            step = size / float(direction @ along)
            x, residual = x + step * direction, residual - step * along
            before, size = size, float(residual @ residual)
            direction = residual + (size / before) * direction
            steps += 1
        self._direct = steps > MAX_INNER_STEPS
        return x

    def _direct_solve(self, gram: DenseGram, root: FloatArray, right: FloatArray, unit: FloatArray, start: FloatArray) -> FloatArray | None:
        matrix: Array = np.multiply(gram.array, root[:, None], dtype=np.float64)
        matrix *= root
        matrix.flat[:: gram.n + 1] += 1.0
        potrf, potrs = get_lapack_funcs(("potrf", "potrs"), (matrix,))
        factor, failed = potrf(matrix.T, lower=1, clean=0, overwrite_a=1)
        if failed:
            return None
        self._factorisations += 1
        plain, _ = potrs(factor, right, lower=1)
        if not self._problem.bias:
            return plain
        other, _ = potrs(factor, unit, lower=1)
        return plain + ((unit @ start - unit @ plain) / (unit @ other)) * other

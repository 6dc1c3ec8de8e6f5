r"""Unsupervised multiple kernel learning: kernel weights and local bases that reconstruct each point from its neighbours.

With points x_i, inner products P, squared distances M, kernels K = sum_t mu_t K_t and the set of bases B_i of point i,

.. math::

    J = \sum_i \Big[ \tfrac12 \big\| x_i - \sum_{j \in B_i} K_{ij} x_j \big\|^2 + \gamma_1 \sum_{j \in B_i} K_{ij} M_{ij}
        + \gamma_2 |B_i| \Big] .

For fixed bases J is a quadratic function of mu, :func:`weight_terms`. For fixed weights each point is a separate problem, which
:func:`greedy_bases` solves greedily (source: Zhuang, thesis, 2011, chapter 5; the factors in equations (5.4) and (5.6) of the thesis are
corrected here, and a point is never its own basis).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from ..arrays import Array, FloatArray
from ..jit import compiled, one_thread
from .domains import Simplex

BasisArray = NDArray[np.int32]

RIDGE_SHARE = 1e-12  # Share of its mean diagonal added to a singular system; ten times as much until it has a factor.
MAX_SWEEPS = 200  # Greatest number of sweeps over the coordinates of a sparse code.
LASSO_TOL = 1e-6  # Greatest step of the last sweep, in units of the point's length.
PENALTY_SHARE = 0.1  # Default penalty of a sparse code: this share of the least one that leaves no basis.
CHUNK_ENTRIES = 1 << 21  # Entries of one chunk of the quadratic term.


@dataclass(frozen=True)
class WeightTerms:
    """J(mu) = 1/2 mu'W mu + u'mu + constant for fixed bases.

    W, ``(k, k)``, holds the inner products of the kernels' reconstructions and is positive semi-definite. The constant is 1/2 trace P +
    gamma2 times the number of bases.
    """

    W: FloatArray
    u: FloatArray
    constant: float

    def __add__(self, other: WeightTerms) -> WeightTerms:
        """Return J of both sets of points together."""
        return WeightTerms(self.W + other.W, self.u + other.u, self.constant + other.constant)

    def value(self, mu: FloatArray) -> float:
        return float(0.5 * mu @ self.W @ mu + self.u @ mu + self.constant)


def weight_terms(entries: FloatArray, bases: BasisArray, inner: FloatArray, gamma1: float, gamma2: float) -> WeightTerms:
    """Return J for fixed bases, a quadratic function of the weights.

    * ``entries`` ``(k, n, B)``: K_t[i, bases[i, b]].
    * ``bases`` ``(n, B)``: -1 for missing bases.
    * ``inner``: the inner products P.
    """
    k, n, size = entries.shape
    present = bases >= 0
    at = np.where(present, bases, 0)
    squares = np.diag(inner)
    linear = linear_costs(present, squares, squares[at], inner[np.arange(n)[:, None], at], gamma1)
    values = np.where(present, entries, 0.0)
    W = np.zeros((k, k))
    step = max(1, CHUNK_ENTRIES // (size * max(k, size)))
    with one_thread():
        for lo in range(0, n, step):
            ids = at[lo : lo + step]
            W += rebuilt_products(values[:, lo : lo + step], inner[ids[:, :, None], ids[:, None, :]])
        u = values.reshape(k, -1) @ linear.ravel()
    return WeightTerms(0.5 * (W + W.T), u, 0.5 * float(squares.sum()) + gamma2 * int(present.sum()))


def linear_costs(present: NDArray[np.bool_], own: FloatArray, squares: FloatArray, across: FloatArray, gamma1: float) -> FloatArray:
    """Return ``gamma1 * M_ij - P_ij`` for each point and base, ``(n, B)``, 0 for missing bases.

    ``own`` ``(n,)`` holds the squared norms of the points, ``squares`` ``(n, B)`` the squared norms of their bases, and ``across``
    ``(n, B)`` the inner products of each point with its bases.
    """
    return np.where(present, gamma1 * (own[:, None] + squares - 2.0 * across) - across, 0.0)


def rebuilt_products(values: FloatArray, between: FloatArray) -> FloatArray:
    """Return the inner products of the kernels' reconstructions of some points, ``(k, k)``.

    ``values`` ``(k, n, B)`` are the kernel entries at the bases, 0 for missing ones; ``between`` ``(n, B, B)`` are the inner products of
    the bases of a point.
    """
    k = len(values)
    rebuilt = np.matmul(values.transpose(1, 0, 2), between).transpose(1, 0, 2)
    return rebuilt.reshape(k, -1) @ values.reshape(k, -1).T


@dataclass(frozen=True)
class SimplexSolution:
    """A minimiser of 1/2 mu'W mu + u'mu over the simplex. The gap, <gradient, mu> minus the smallest gradient entry, bounds how far the
    objective at this point is from the optimum.
    """

    weights: FloatArray
    value: float
    gap: float
    iterations: int


def solve_simplex_qp(W: FloatArray, u: FloatArray, warm: FloatArray | None = None, *, tol: float = 1e-10) -> SimplexSolution:
    """Minimise 1/2 mu'W mu + u'mu over mu >= 0, sum mu = 1 by a primal active-set method, from ``warm`` or the best vertex.

    W, ``(k, k)``, is symmetric positive semi-definite and may be singular. The search ends at a gap of ``tol``, relative to the largest of
    1/2 W_tt and u_t.
    """
    W, u = np.asarray(W, np.float64), np.asarray(u, np.float64)
    if u.ndim != 1 or not u.size or W.shape != (len(u), len(u)):
        raise ValueError(f"W of shape {W.shape} and u of shape {u.shape}: must be (k, k) and (k,), not empty")
    if not (np.isfinite(W).all() and np.isfinite(u).all()):
        raise ValueError("W and u must be finite")
    unit = max(float(np.abs(0.5 * np.diag(W)).max()), float(np.abs(u).max()), 1e-300)
    with one_thread():
        if warm is None:
            start = np.eye(1, len(u), int(np.argmin(0.5 * np.diag(W) + u)))[0]
        else:
            start = Simplex().project(np.asarray(warm, np.float64))
        return _solve_active_set(W, u, start, tol * unit)


def _solve_active_set(W: FloatArray, u: FloatArray, mu: FloatArray, tol: float) -> SimplexSolution:
    free, steps, entered = mu > 0, 0, -1
    for steps in range(1, 20 * len(u) + 51):  # noqa: B007
        target = _minimise_on_face(W, u, free)
        down = free & (target < 0)
        if down.any():
            ratios = np.where(down, mu / np.where(down, mu - target, 1.0), np.inf)
            blocking = int(np.argmin(ratios))
            mu = np.maximum(mu + ratios[blocking] * (target - mu), 0.0) * free
            mu[blocking] = 0.0
            free = free & (np.arange(len(u)) != blocking)
            if blocking == entered:
                # A kernel that leaves right after it entered lowers the value by less than round-off.
                break
            continue
        mu, entered = target, -1
        slopes = W @ mu + u
        if float(slopes @ mu - slopes.min()) <= tol or free[int(np.argmin(slopes))]:
            break
        entered = int(np.argmin(slopes))
        free = free.copy()
        free[entered] = True
    mu = mu / mu.sum()
    slopes = W @ mu + u
    return SimplexSolution(mu, float(0.5 * mu @ W @ mu + u @ mu), max(0.0, float(slopes @ mu - slopes.min())), steps)


def _minimise_on_face(W: FloatArray, u: FloatArray, free: NDArray[np.bool_]) -> FloatArray:
    """Return the minimiser with sum one in which only the weights ``free`` may be non-zero."""
    at = np.flatnonzero(free)
    both = _solve_with_ridge(W[np.ix_(at, at)], np.stack([-u[at], np.ones(len(at))], axis=1))
    share = (1.0 - both[:, 0].sum()) / both[:, 1].sum()
    out = np.zeros(len(u))
    out[at] = both[:, 0] + share * both[:, 1]
    return out


def _solve_with_ridge(matrix: FloatArray, right: FloatArray) -> FloatArray:
    mean = float(np.trace(matrix)) / len(matrix)
    ridge = RIDGE_SHARE * mean if mean > 0 else 1.0
    while True:
        try:
            return cho_solve(cho_factor(matrix + ridge * np.eye(len(matrix))), right)
        except LinAlgError:
            ridge *= 10.0


@compiled
def _choose_greedily(
    gram: Array, inner: FloatArray, gamma1: float, gamma2: float, by_gain: bool, bases: BasisArray, values: FloatArray
) -> None:
    n = len(inner)
    cost = np.empty(n)
    for i in range(n):
        row, products = gram[i], inner[i]
        for j in range(n):
            k = np.float64(row[j])
            far = products[i] + inner[j, j] - 2.0 * products[j]
            cost[j] = 0.5 * k * k * inner[j, j] + k * (gamma1 * far - products[j]) + gamma2
        cost[i] = np.inf
        value = 0.5 * products[i]
        for b in range(bases.shape[1]):
            best = np.argmin(cost)
            if by_gain and cost[best] >= 0.0:
                break
            value += cost[best]
            bases[i, b] = best
            k, other = np.float64(row[best]), inner[best]
            for j in range(n):
                cost[j] += k * np.float64(row[j]) * other[j]
            cost[best] = np.inf
        values[i] = value


@compiled
def _fill_basis_costs(gram: Array, inner: FloatArray, bases: BasisArray, gamma1: float, gamma2: float, values: FloatArray) -> None:
    for i in range(len(bases)):
        value = 0.5 * inner[i, i]
        for b in range(bases.shape[1]):
            j = bases[i, b]
            if j < 0:
                continue
            k = np.float64(gram[i, j])
            cost = 0.5 * k * k * inner[j, j] + k * (gamma1 * (inner[i, i] + inner[j, j] - 2.0 * inner[i, j]) - inner[i, j]) + gamma2
            for a in range(b):
                other = bases[i, a]
                if other >= 0:
                    cost += k * np.float64(gram[i, other]) * inner[j, other]
            value += cost
        values[i] = value


def greedy_bases(
    gram: Array, inner: FloatArray, size: int, gamma1: float, gamma2: float, *, stop: str = "size"
) -> tuple[BasisArray, FloatArray]:
    """Choose the bases of each point greedily: each time the base that lowers the point's share of J most. In a tie, the smallest index is
    chosen.

    K and P are ``(n, n)``. ``stop="size"`` takes exactly ``size`` < n bases; ``stop="gain"`` takes fewer if no further base lowers
    the cost. Returns the bases in the order of choice, ``(n, size)``, with -1 for bases not chosen, and the points' shares J_i of the
    objective, ``(n,)``.
    """
    n = len(inner)
    if gram.shape != (n, n) or inner.shape != (n, n):
        raise ValueError(f"gram of shape {gram.shape} and inner of shape {inner.shape}: must both be (n, n)")
    if not 1 <= size <= n - 1:
        raise ValueError(f"size={size}: must be between 1 and n - 1 = {n - 1}")
    bases, values = np.full((n, size), -1, np.int32), np.empty(n)
    _choose_greedily(gram, inner, float(gamma1), float(gamma2), stop == "gain", bases, values)
    return bases, values


@compiled
def code_point(inner: FloatArray, i: int, penalty: float, d: FloatArray, products: FloatArray) -> None:
    """Minimise ``1/2 ||x_i - sum_j d_j x_j||^2 + penalty ||d||_1`` over d with d_i = 0 by coordinate descent."""
    n = len(inner)
    d[:] = 0.0
    products[:] = 0.0
    for _ in range(MAX_SWEEPS):
        largest = 0.0
        for j in range(n):
            if j == i or inner[j, j] <= 0.0:
                continue
            pull = inner[i, j] - products[j] + inner[j, j] * d[j]
            value = (max(abs(pull) - penalty, 0.0) if pull > 0.0 else -max(abs(pull) - penalty, 0.0)) / inner[j, j]
            step = value - d[j]
            if step != 0.0:
                d[j] = value
                row = inner[j]
                for k in range(n):
                    products[k] += step * row[k]
                largest = max(largest, abs(step) * np.sqrt(inner[j, j]))
        if largest <= LASSO_TOL * np.sqrt(inner[i, i]):
            break


@compiled
def _choose_by_codes(inner: FloatArray, penalty: float, by_gain: bool, bases: BasisArray) -> None:
    n = len(inner)
    d, products, key = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        weight = penalty
        if penalty == 0.0:
            for j in range(n):
                weight = max(weight, PENALTY_SHARE * abs(inner[i, j]) if j != i else 0.0)
        code_point(inner, i, weight, d, products)
        for j in range(n):
            # After all points that code it come those that the residual is most correlated with.
            left = abs(inner[i, j] - products[j])
            key[j] = abs(d[j]) if d[j] != 0.0 else -1.0 if by_gain else left / (1.0 + left) - 2.0
        key[i] = -np.inf
        for b in range(bases.shape[1]):
            best = np.argmax(key)
            if by_gain and key[best] < 0.0:
                break
            bases[i, b] = best
            key[best] = -np.inf


def coded_bases(inner: FloatArray, size: int, penalty: float = 0.0, *, stop: str = "size") -> BasisArray:
    r"""Choose the bases of each point by sparse coding, without a kernel: those with the largest ``|d_j|`` in

    .. math:: \min_d \tfrac12 \big\| x_i - \sum_{j \ne i} d_j x_j \big\|^2 + \lambda \|d\|_1 .

    For a penalty of 0, lambda is PENALTY_SHARE of the largest inner product of the point with another one. ``stop="size"`` fills up to
    ``size`` < n bases with the points most correlated with the residual; ``stop="gain"`` takes only bases with ``d_j != 0``. Returns the
    bases in the order of ``|d_j|``, ``(n, size)``, -1 for missing ones.
    """
    n = len(inner)
    if not 1 <= size <= n - 1:
        raise ValueError(f"size={size}: must be between 1 and n - 1 = {n - 1}")
    bases = np.full((n, size), -1, np.int32)
    _choose_by_codes(inner, float(penalty), stop == "gain", bases)
    return bases


def basis_costs(gram: Array, inner: FloatArray, bases: BasisArray, gamma1: float, gamma2: float) -> FloatArray:
    """Return each point's share J_i of the objective for given bases, shape (n,)."""
    values = np.empty(len(bases))
    _fill_basis_costs(gram, inner, bases, float(gamma1), float(gamma2), values)
    return values

"""Sets of non-negative kernel weights bounded by a norm, and the cone of all non-negative weights.

Maximisers of a linear function have closed forms. Projections have a closed form (elastic net) or need a one-dimensional root (p-norm).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from scipy.special import wrightomega

from ..arrays import FloatArray
from ..jit import compiled

ROOT_OPTIONS: dict[str, Any] = {"xtol": 1e-300, "rtol": 8.9e-16, "maxiter": 500}  # The tightest tolerances of brentq.


@dataclass(frozen=True)
class ElasticNetSet:
    """Weights w >= 0 with v ||w||_1 + (1 - v) ||w||_2^2 <= 1, 0 <= v <= 1.

    v = 1 gives the simplex with sum at most one, v = 0 the non-negative part of the Euclidean ball (source: Yang, Xu, Ye, King, Lyu,
    "Efficient Sparse Generalized Multiple Kernel Learning", IEEE Trans. Neural Networks 22 (2011)).
    """

    v: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.v <= 1:
            raise ValueError(f"v={self.v!r}: must lie between 0 and 1")

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        return max(0.0, -float(w.min()), self.v * float(w.sum()) + (1.0 - self.v) * float(w @ w) - 1.0)

    def start(self, n: int) -> FloatArray:
        """Return equal weights on the boundary."""
        v = self.v
        return np.full(n, (2.0 / n) / (v + math.sqrt(v * v + 4.0 * (1.0 - v) / n)))

    def project(self, w: FloatArray) -> FloatArray:
        """Return the Euclidean projection max(0, (w - eta v) / (1 + 2 eta (1 - v))), where eta >= 0 is the root of a quadratic equation."""
        return project_elastic(np.ascontiguousarray(w, dtype=np.float64), self.v)

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return max over the set of <direction, w> and its maximiser; equal entries share the weight equally.

        For v < 1 the maximiser is w_q = max(0, z s_q - v) / (2 (1 - v)), with z such that the constraint is tight. Without a positive entry
        the maximum is 0; a zero direction gives the start.
        """
        return with_support(direction, elastic_response(np.ascontiguousarray(direction, dtype=np.float64), self.v), self)

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q, with 0/0 = 0; if all norms are zero, return the start.

        The solution satisfies 2 (1 - v) w^3 + v w^2 = kappa norms^2, with kappa such that the constraint is tight.
        """
        norms, top = scaled_norms(norms)
        if top == 0:
            return self.start(len(norms))
        a, v, square = 1.0 - self.v, self.v, norms * norms
        if a == 0:
            return norms / norms.sum()
        equal = float(self.start(len(norms))[0])

        def weights(kappa: float) -> FloatArray:
            return even_roots(v, 2.0 * a, 1.5, kappa * square)

        # The root is between the kappa of equal norms and that of a single norm.
        w = weights(find_root(lambda kappa: self._excess(weights(kappa)), (2.0 * a * equal + v) * equal * equal, 2.0 * a + v))
        # Moved along its ray onto the boundary.
        linear = v * w.sum()
        return w * (2.0 / (linear + math.sqrt(linear * linear + 4.0 * (a * float(w @ w)))))

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the x in the set that minimises ``step <grad, x> + sum_q (x_q log(x_q / w_q) - x_q + w_q)``; zeros of w stay zero."""
        a, v, log_free = 1.0 - self.v, self.v, log_step(w, grad, step)
        if a == 0:
            return _normalised_exp(log_free)

        def at(eta: float) -> FloatArray:
            # x = u exp(-eta (v + 2 a x)) through Lambert's function of a logarithm, which cannot overflow.
            return damped_root(log_free - eta * v, 2.0 * a * eta)

        return first_inside(at, lambda eta: self._excess(at(eta)), log_free)

    def _excess(self, x: FloatArray) -> float:
        return self.v * x.sum() + (1.0 - self.v) * (x @ x) - 1.0


@dataclass(frozen=True)
class LpBall:
    """Weights w >= 0 with ||w||_p <= 1, p >= 1 finite (Kloft, Brefeld, Sonnenburg, Zien, "lp-Norm Multiple Kernel Learning", JMLR 12
    (2011)).
    """

    p: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= self.p < math.inf:
            raise ValueError(f"p={self.p!r}: must be at least 1 and finite")

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        return max(0.0, -float(w.min()), _p_norm(np.abs(w), self.p) - 1.0)

    def start(self, n: int) -> FloatArray:
        """Return equal weights on the boundary."""
        return np.full(n, n ** (-1.0 / self.p))

    def project(self, w: FloatArray) -> FloatArray:
        """Return the Euclidean projection x, which solves x + mu x^(p - 1) = max(w, 0) with mu >= 0 such that the norm is at most one."""
        if self.p in (1.0, 2.0):
            return ElasticNetSet(2.0 - self.p).project(w)
        w = np.maximum(w, 0.0)
        if _p_norm(w, self.p) <= 1:
            return w

        def at(mu: float) -> FloatArray:
            return power_roots(w, mu, self.p - 1.0)

        mu = find_root(lambda mu: _p_norm(at(mu), self.p) - 1.0, 0.0, _p_norm(w, self.p / (self.p - 1.0)))
        return at(mu) / _p_norm(at(mu), self.p)

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return max over the set of <direction, w>, which is the dual norm of its positive part, and its maximiser.

        Special cases are as in :meth:`ElasticNetSet.support`.
        """
        return with_support(direction, power_response(np.ascontiguousarray(direction, dtype=np.float64), self.p), self)

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q: scaled norms^(2 / (p + 1)). If all norms are zero, return the start."""
        norms, top = scaled_norms(norms)
        if top == 0:
            return self.start(len(norms))
        powers = norms ** (2.0 / (self.p + 1.0))
        return powers / _p_norm(powers, self.p)

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the x in the set that minimises ``step <grad, x> + sum_q (x_q log(x_q / w_q) - x_q + w_q)``; zeros of w stay zero."""
        log_free, r = log_step(w, grad, step), self.p - 1.0
        if r == 0:
            return _normalised_exp(log_free)

        def at(eta: float) -> FloatArray:
            # t = x^(p - 1) solves t = u^(p - 1) exp(-eta p (p - 1) t).
            return damped_root(r * log_free, eta * self.p * r) ** (1.0 / r)

        return first_inside(at, lambda eta: _p_norm(at(eta), self.p) - 1.0, log_free)


@dataclass(frozen=True)
class NonNegative:
    """All weights w >= 0."""

    def violation(self, w: FloatArray) -> float:
        """Return the size of the most negative weight; 0 inside."""
        return max(0.0, -float(w.min()))

    def start(self, n: int) -> FloatArray:
        return np.ones(n)

    def project(self, w: FloatArray) -> FloatArray:
        return np.maximum(w, 0.0)

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return w exp(-step grad), the minimiser of ``step <grad, x> + sum_q (x_q log(x_q / w_q) - x_q + w_q)``.

        Raises ValueError if a weight overflows.
        """
        with np.errstate(over="ignore"):
            moved = w * np.exp(np.where(w > 0, -step * grad, 0.0))
        if not np.isfinite(moved).all():
            raise ValueError(f"step={step!r}: is too large, a weight overflows")
        return moved

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return 0 and a zero vector, or infinity and a ray of the set along which <direction, w> increases."""
        best = float(direction.max())
        if best <= 0:
            return 0.0, np.zeros(len(direction))
        return math.inf, shared_top(direction, best)


class HasStart(Protocol):
    """A set with a point in its middle."""

    def start(self, n: int) -> FloatArray: ...


def with_support(direction: FloatArray, best: FloatArray, domain: HasStart) -> tuple[float, FloatArray]:
    """Return the value of the maximiser ``best`` and ``best`` itself, or the start if no direction is better than another."""
    if not np.any(direction):
        return 0.0, domain.start(len(direction))
    # Only non-negative entries have weights, so no product is negative.
    return float(best @ direction), best


# Loops, because expressions of whole arrays take seconds to compile.


@compiled(deferred=True)
def greatest_entry(s: FloatArray) -> float:
    top = -np.inf
    for q in range(s.size):
        top = max(top, s[q])
    return top


@compiled(deferred=True)
def _sort_descending(s: FloatArray) -> FloatArray:
    """Return the entries in descending order by Shell sort. For hundreds of entries it is as fast as numba's sort, which takes two seconds
    to compile.
    """
    ordered, gap = s.copy(), 1
    while gap < s.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for q in range(gap, s.size):
            entry, at = ordered[q], q
            while at >= gap and ordered[at - gap] < entry:
                ordered[at] = ordered[at - gap]
                at -= gap
            ordered[at] = entry
        gap //= 3
    return ordered


@compiled(deferred=True)
def shared_top(s: FloatArray, top: float) -> FloatArray:
    """Return equal weights with sum one on the entries equal to the maximum."""
    best, count = np.zeros(s.size), 0
    for q in range(s.size):
        count += s[q] == top
    for q in range(s.size):
        if s[q] == top:
            best[q] = 1.0 / count
    return best


@compiled(deferred=True)
def elastic_response(s: FloatArray, v: float) -> FloatArray:
    """Return the maximiser of :meth:`ElasticNetSet.support`; zero if no entry is positive.

    With the entries in descending order, the first m are active, for the largest m with z_m s_(m) > v and z_m = sqrt((4 (1 - v) + m v^2) /
    sum_{i <= m} s_(i)^2).
    """
    top = greatest_entry(s)
    if top <= 0.0:
        return np.zeros(s.size)
    if v == 1.0:
        return shared_top(s, top)
    ordered = _sort_descending(s)
    square, z = 0.0, 0.0
    for m in range(s.size):
        entry = ordered[m] / top
        if entry <= 0.0:
            break
        square += entry * entry
        trial = math.sqrt((4.0 * (1.0 - v) + (m + 1) * v * v) / square)
        if trial * entry <= v:
            break
        z = trial
    # Near v = 1 the differences are round-off, so the point is moved back to the boundary along its ray.
    best, linear, quadratic = np.zeros(s.size), 0.0, 0.0
    for q in range(s.size):
        best[q] = max(z * (s[q] / top) - v, 0.0)
        linear += best[q]
        quadratic += best[q] * best[q]
    linear, quadratic = v * linear, (1.0 - v) * quadratic
    factor = 2.0 / (linear + math.sqrt(linear * linear + 4.0 * quadratic))
    for q in range(s.size):
        best[q] *= factor
    return best


@compiled(deferred=True)
def power_response(s: FloatArray, p: float) -> FloatArray:
    """Return the maximiser of :meth:`LpBall.support`, ``s_+^(1 / (p - 1))`` scaled to the boundary; zero if no entry is positive."""
    top = greatest_entry(s)
    if top <= 0.0:
        return np.zeros(s.size)
    if p == 1.0:
        return shared_top(s, top)
    best, total = np.zeros(s.size), 0.0
    for q in range(s.size):
        best[q] = max(s[q] / top, 0.0) ** (1.0 / (p - 1.0))
        total += best[q] ** p
    length = total ** (1.0 / p)
    for q in range(s.size):
        best[q] /= length
    return best


@compiled(deferred=True)
def project_elastic(w: FloatArray, v: float) -> FloatArray:
    """Return the projection of :meth:`ElasticNetSet.project`.

    With m active entries, a = 1 - v, their sum A and their sum of squares B, the constraint is the quadratic equation a eta^2 + eta = (v A
    + a B - 1) / (m v^2 + 4 a).
    """
    a = 1.0 - v
    inside, linear, quadratic = np.zeros(w.size), 0.0, 0.0
    for q in range(w.size):
        inside[q] = max(w[q], 0.0)
        linear += inside[q]
        quadratic += inside[q] * inside[q]
    if v * linear + a * quadratic <= 1.0:
        return inside
    ordered = _sort_descending(inside)
    total = square = eta = 0.0
    for m in range(w.size):
        total += ordered[m]
        square += ordered[m] * ordered[m]
        ratio = (v * total + a * square - 1.0) / ((m + 1) * v * v + 4.0 * a)
        # Before the first m whose entries reach the boundary the root is negative, or does not exist.
        trial = 2.0 * ratio / (1.0 + math.sqrt(1.0 + 4.0 * a * ratio)) if ratio > 0.0 else 0.0
        if ordered[m] <= v * trial:
            break
        eta = trial
    for q in range(w.size):
        inside[q] = max(inside[q] - eta * v, 0.0) / (1.0 + 2.0 * eta * a)
    return inside


def _p_norm(w: FloatArray, p: float) -> float:
    top = float(w.max())
    return top * float(np.sum((w / top) ** p)) ** (1.0 / p) if top > 0 else 0.0


def scaled_norms(norms: FloatArray) -> tuple[FloatArray, float]:
    """Return the norms divided by the largest norm, and the largest norm."""
    values = np.asarray(norms, dtype=np.float64)
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise ValueError("norms: must be finite and not negative")
    top = float(values.max())
    return (values / top if top > 0 else values), top


def find_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the root of a monotone function; with round-off it may be an end of the interval."""
    # Loaded on demand: it takes a third of a second, which every worker would pay.
    from scipy.optimize import brentq

    first, last = excess(low), excess(high)
    if first * last >= 0:
        return low if abs(first) <= abs(last) else high
    return float(cast("float", brentq(excess, low, high, **ROOT_OPTIONS)))


def first_inside(at: Callable[[float], FloatArray], excess: Callable[[float], float], log_free: FloatArray) -> FloatArray:
    """Return at(eta) for the smallest eta >= 0 at which the decreasing function ``excess`` is not positive; at(0) = exp(log_free)."""
    # No set contains a weight above one, and at(0) could overflow there.
    if log_free.max() <= 0 and excess(0.0) <= 0:
        return at(0.0)
    high = 1.0
    while excess(high) > 0:
        high *= 2.0
    low = 0.5 * high
    while excess(low) <= 0:
        low, high = 0.5 * low, low
    return at(find_root(excess, low, high))


def log_step(w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
    """Return the logarithm of w exp(-step grad); that of zero is minus infinity."""
    with np.errstate(divide="ignore"):
        return np.where(w > 0, np.log(w) - step * grad, -np.inf)


def damped_root(log_u: FloatArray, rate: float) -> FloatArray:
    """Return the root x of x = u exp(-rate x), given log u."""
    return wrightomega(log_u + math.log(rate)) / rate if rate > 0 else np.exp(log_u)


def _normalised_exp(log_free: FloatArray) -> FloatArray:
    """Return exp(log_free), divided by its sum if that is above one."""
    top = max(0.0, float(log_free.max()))
    weights = np.exp(log_free - top)
    return weights / max(weights.sum(), math.exp(-top))


@compiled
def convex_root(a: float, b: float, r: float, w: float) -> float:
    """Return the root of a x + b x^r = w for a, b, w >= 0 and r >= 1, by Newton steps from above."""
    if w <= 0.0:
        return 0.0
    x = np.inf
    if a > 0.0:
        x = w / a
    if b > 0.0:
        x = min(x, (w / b) ** (1.0 / r))
    for _ in range(100):
        power = b * x ** (r - 1.0)
        trial = x - (a * x + power * x - w) / (a + r * power)
        if not trial < x:
            break
        x = trial
    return x


@compiled
def even_roots(a: float, b: float, r: float, w: FloatArray) -> FloatArray:
    """Return the positive roots of a x^2 + b x^(2 r) = w for r >= 1, which are convex in x^2."""
    roots = np.empty(w.size)
    for k in range(w.size):
        roots[k] = math.sqrt(convex_root(a, b, r, w[k]))
    return roots


@compiled
def power_roots(w: FloatArray, mu: float, r: float) -> FloatArray:
    """Return the roots of x + mu x^r = w. For r < 1 the unknown is y = x^r, so that the function stays convex."""
    roots = np.empty(w.size)
    for k in range(w.size):
        roots[k] = convex_root(1.0, mu, r, w[k]) if r >= 1.0 else convex_root(mu, 1.0, 1.0 / r, w[k]) ** (1.0 / r)
    return roots

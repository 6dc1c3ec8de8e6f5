"""The set of kernel weights bounded by a sum of the 1-norm and the p-th power of the p-norm."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from ..jit import compiled
from .norm_sets import (
    convex_root,
    damped_root,
    even_roots,
    find_root,
    first_inside,
    greatest_entry,
    log_step,
    power_roots,
    scaled_norms,
    with_support,
)

ROOT_STEPS = 100
"""Greatest number of Newton or bisection steps to the multiplier of :meth:`L1LpSet.support`; about ten suffice."""


@dataclass(frozen=True)
class L1LpSet:
    """Weights w >= 0 with v sum_q w_q + (1 - v) sum_q w_q^p <= 1, 0 < v < 1 < p.

    p = 2 gives :class:`ElasticNetSet`, v -> 0 :class:`LpBall`, v -> 1 the simplex with sum at most one (source: Yang, "Sparse Learning
    Under Regularization Framework", PhD thesis, CUHK (2011), chapter 6).
    """

    v: float = 0.5
    p: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.v < 1:
            raise ValueError(f"v={self.v!r}: must lie between 0 and 1, both excluded; LpBall and ElasticNetSet are the ends")
        if not 1 < self.p < np.inf:
            raise ValueError(f"p={self.p!r}: must be above 1 and finite")

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        return max(0.0, -float(w.min()), self._excess(np.abs(w)))

    def start(self, n: int) -> FloatArray:
        """Return equal weights on the boundary."""
        return np.full(n, convex_root(self.v, 1.0 - self.v, self.p, 1.0 / n))

    def project(self, w: FloatArray) -> FloatArray:
        """Return the Euclidean projection x, which solves x + eta (v + (1 - v) p x^(p - 1)) = w where w > eta v, and is 0 elsewhere."""
        w = np.maximum(w, 0.0)
        if self._excess(w) <= 0:
            return w
        rate = (1.0 - self.v) * self.p

        def at(eta: float) -> FloatArray:
            return power_roots(np.maximum(w - eta * self.v, 0.0), eta * rate, self.p - 1.0)

        return self._onto_boundary(at(find_root(lambda eta: self._excess(at(eta)), 0.0, float(w.max()) / self.v)))

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return max over the set of <direction, w> and its maximiser ``w_q = ([t s_q - v]_+ / ((1 - v) p))^(1 / (p - 1))``, with t such
        that the constraint is tight.

        Special cases are as in :meth:`ElasticNetSet.support`.
        """
        return with_support(direction, l1_lp_response(np.ascontiguousarray(direction, dtype=np.float64), self.v, self.p), self)

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q, with 0/0 = 0; if all norms are zero, return the start.

        The solution satisfies v w^2 + (1 - v) p w^(p + 1) = kappa norms^2, with kappa such that the constraint is tight.
        """
        norms, top = scaled_norms(norms)
        if top == 0:
            return self.start(len(norms))
        v, rate, square = self.v, (1.0 - self.v) * self.p, norms * norms
        equal = float(self.start(len(norms))[0])

        def weights(kappa: float) -> FloatArray:
            return even_roots(v, rate, 0.5 * (self.p + 1.0), kappa * square)

        # The root is between the kappa of equal norms and that of a single norm.
        lowest = v * equal**2 + rate * equal ** (self.p + 1.0)
        return self._onto_boundary(weights(find_root(lambda kappa: self._excess(weights(kappa)), lowest, v + rate)))

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the x in the set that minimises ``step <grad, x> + sum_q (x_q log(x_q / w_q) - x_q + w_q)``; zeros of w stay zero."""
        log_free, r, rate = log_step(w, grad, step), self.p - 1.0, (1.0 - self.v) * self.p * (self.p - 1.0)

        def at(eta: float) -> FloatArray:
            # t = x^(p - 1) solves t = (u exp(-eta v))^(p - 1) exp(-eta (1 - v) p (p - 1) t).
            return damped_root(r * (log_free - eta * self.v), eta * rate) ** (1.0 / r)

        return first_inside(at, lambda eta: self._excess(at(eta)), log_free)

    def _excess(self, x: FloatArray) -> float:
        return float(self.v * x.sum() + (1.0 - self.v) * np.sum(x**self.p)) - 1.0

    def _onto_boundary(self, x: FloatArray) -> FloatArray:
        """Return a point near the boundary moved onto it along its ray, by a Newton step."""
        slope = self.v * x.sum() + self.p * (1.0 - self.v) * np.sum(x**self.p)
        return x * (1.0 - self._excess(x) / slope)


@compiled(deferred=True)
def l1_lp_response(s: FloatArray, v: float, p: float) -> FloatArray:
    """Return the maximiser of :meth:`L1LpSet.support`; zero if no entry is positive.

    With s scaled to a largest entry of one, the left side of the constraint rises in t from 0 at t = v to at least 1 at t = v + (1 - v) p.
    Newton steps that leave the bracket are replaced by bisection.
    """
    best, top = np.zeros(s.size), greatest_entry(s)
    if top <= 0.0:
        return best
    low, high, t = v, v + (1.0 - v) * p, v + (1.0 - v) * p
    for _ in range(ROOT_STEPS):
        value, slope, bend = 0.0, 0.0, 0.0
        for q in range(s.size):
            entry = s[q] / top
            over = t * entry - v
            best[q] = 0.0
            if over > 0.0:
                best[q] = (over / ((1.0 - v) * p)) ** (1.0 / (p - 1.0))
                value += best[q] * (v + over / p)
                slope += best[q] * (v + over)
                bend += best[q] * t * entry * entry / (over * (p - 1.0))
        low, high = (t, high) if value < 1.0 else (low, t)
        trial = t - (value - 1.0) / bend if bend > 0.0 else low
        if not low < trial < high:
            trial = 0.5 * (low + high)
        if abs(value - 1.0) < 1e-12 or trial <= low or trial >= high:
            break
        t = trial
    # The rest of the way to the boundary, along the ray.
    for q in range(s.size):
        best[q] *= 1.0 - (value - 1.0) / slope
    return best

"""The set of kernel weights of which none exceeds one, and their sum does not exceed B."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from .norm_sets import find_root, first_inside, log_step, scaled_norms, with_support


@dataclass(frozen=True)
class BoxSet:
    """Weights w with 0 <= w_q <= 1 and sum_q w_q <= B, for a whole number B >= 1.

    B = 1 gives the simplex with sum at most one; from B = n on, every weight may be one (source: Tan, Tsang, Wang, "Towards Ultrahigh
    Dimensional Feature Selection for Big Data", JMLR 15 (2014), section 6).
    """

    B: int = 1

    def __post_init__(self) -> None:
        if not self.B >= 1:
            raise ValueError(f"B={self.B!r}: must be at least 1")

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        return max(0.0, -float(w.min()), float(w.max()) - 1.0, float(w.sum()) - self.B)

    def start(self, n: int) -> FloatArray:
        """Return equal weights, as large as the set has them."""
        return np.full(n, min(1.0, self.B / n))

    def project(self, w: FloatArray) -> FloatArray:
        """Return the Euclidean projection: w - eta clipped to [0, 1], with the least eta >= 0 for which the sum is at most B."""

        def at(eta: float) -> FloatArray:
            return np.minimum(np.maximum(w - eta, 0.0), 1.0)

        if at(0.0).sum() <= self.B:
            return at(0.0)
        inside = at(find_root(lambda eta: float(at(eta).sum()) - self.B, 0.0, float(w.max())))
        return inside * min(1.0, self.B / float(inside.sum()))

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return the sum of the B largest positive entries, and their indicator; equal entries at the edge share what is left of B equally.

        Special cases are as in :meth:`ElasticNetSet.support`.
        """
        edge = max(0.0, float(np.partition(direction, -self.B)[-self.B])) if len(direction) >= self.B else 0.0
        best = np.where(direction > edge, 1.0, 0.0)
        if edge > 0.0:
            ties = direction == edge
            best[ties] = (self.B - best.sum()) / ties.sum()
        return with_support(direction, best, self)

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q, with 0/0 = 0: min(1, c norms). Norms of zero give the start."""
        norms, top = scaled_norms(norms)
        if top == 0:
            return self.start(len(norms))
        if np.count_nonzero(norms) <= self.B:
            return np.where(norms > 0, 1.0, 0.0)
        ordered = np.sort(norms)[::-1][: self.B]
        # With k weights at one, the others are c times their norms, c = (B - k) / the sum of these norms.
        rest = norms.sum() - np.cumsum(ordered) + ordered
        left = self.B - np.arange(self.B)
        first = int(np.argmax(left * ordered <= rest))
        return np.minimum(1.0, left[first] / rest[first] * norms)

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the x in the set that minimises ``step <grad, x> + sum_q (x_q log(x_q / w_q) - x_q + w_q)``; zeros of w stay zero."""
        log_free = log_step(w, grad, step)

        def at(eta: float) -> FloatArray:
            return np.exp(np.minimum(log_free - eta, 0.0))

        return first_inside(at, lambda eta: float(at(eta).sum()) - self.B, np.minimum(log_free, 0.0))

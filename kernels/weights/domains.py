"""Feasible sets of kernel weights, with the operations that optimisers need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..arrays import FloatArray
from .box import BoxSet
from .l1_lp import L1LpSet
from .norm_sets import ElasticNetSet, LpBall, NonNegative

__all__ = ["BoxSet", "Domain", "ElasticNetSet", "L1LpSet", "LpBall", "NonNegative", "NormDomain", "Simplex"]


class Domain(Protocol):
    """A convex set of kernel weights."""

    def start(self, n: int) -> FloatArray:
        """Return a point in the middle of the set, shape (n,)."""
        ...

    def project(self, w: FloatArray) -> FloatArray:
        """Return the nearest point of the set in Euclidean distance."""
        ...

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the minimiser over the set of step <grad, v> + KL(v, w)."""
        ...

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return the maximum over the set of <direction, v> and a maximiser."""
        ...

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        ...


class NormDomain(Domain, Protocol):
    """A bounded set of kernel weights with a closed form for the weight step of alternating optimisation."""

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q, with 0/0 = 0."""
        ...


@dataclass(frozen=True)
class Simplex:
    """Weights w >= 0 with sum one."""

    def start(self, n: int) -> FloatArray:
        """Return the uniform weights 1/n."""
        return np.full(n, 1.0 / n)

    def project(self, w: FloatArray) -> FloatArray:
        """Return the Euclidean projection of any finite w: max(w - theta, 0), with theta such that the sum is one."""
        ordered = np.sort(w)[::-1]
        excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(w) + 1)
        theta = excess[np.flatnonzero(ordered > excess)[-1]]
        return np.maximum(w - theta, 0.0)

    def mirror(self, w: FloatArray, grad: FloatArray, step: float) -> FloatArray:
        """Return the entropic step w exp(-step grad) from a point of the simplex, normalised to sum one; zeros stay zero."""
        exponent = -step * grad
        # Only differences of exponents matter; the greatest one of a positive weight becomes 0, so nothing overflows.
        moved = w * np.exp(np.minimum(exponent - exponent[w > 0].max(), 0.0))
        return moved / moved.sum()

    def support(self, direction: FloatArray) -> tuple[float, FloatArray]:
        """Return max(direction) and the vertex of its first largest entry."""
        best = int(np.argmax(direction))
        vertex = np.zeros(len(direction))
        vertex[best] = 1.0
        return float(direction[best]), vertex

    def violation(self, w: FloatArray) -> float:
        """Return the largest constraint violation of w; 0 inside the set."""
        return max(0.0, -float(w.min()), abs(float(w.sum()) - 1.0))

    def weights_from_norms(self, norms: FloatArray) -> FloatArray:
        """Return argmin over the set of 1/2 sum_q norms_q^2 / w_q, which is norms / sum(norms). If all norms are zero, return the start."""
        return LpBall(1.0).weights_from_norms(norms)


# Sets of positive semi-definite matrices, bounded by their traces: the spectrahedron and its relatives of a mixed norm.


@dataclass(frozen=True)
class TraceBall:
    """Matrices ``Q_1, ..., Q_k >= 0`` with ``sum_j trace(Q_j)^power <= 1``: for power 1, the spectrahedron of block diagonal matrices.

    Points are represented by their eigenvalues. A step of mirror descent with the entropy ``trace(Q log Q)`` has the eigenvectors of ``log
    Q - step * gradient`` and moves the eigenvalues. An infinite power bounds every trace by one. Raises ValueError if ``power`` is below 1.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        if not self.power >= 1:
            raise ValueError(f"power={self.power!r}: must be at least 1")

    def start(self, sizes: Sequence[int]) -> list[FloatArray]:
        """Return the log-eigenvalues of multiples of the identity with equal traces, on the boundary of the set."""
        trace = -np.log(len(sizes)) / self.power
        return [np.full(size, trace - np.log(size)) for size in sizes]

    def traces(self, logs: Sequence[FloatArray]) -> FloatArray:
        """Return the traces after a mirror step; ``logs`` are the log-eigenvalues before scaling.

        The traces minimise ``sum_j rho_j log rho_j - rho_j L_j``, ``L_j = 1 + log sum_l exp(logs_jl)``, over ``sum_j rho_j^power <= 1``.
        This is one scalar root, computed by the mirror step of the p-norm ball.
        """
        free = np.array([_log_sum(values) for values in logs])
        if np.isinf(self.power):
            return np.exp(np.minimum(free, 0.0))
        return LpBall(self.power).mirror(np.ones(len(free)), -free, 1.0)

    def mirror(self, logs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the log-eigenvalues after a mirror step; arguments as in :meth:`traces`."""
        # A trace of zero would stay zero.
        log_traces = np.log(np.maximum(self.traces(logs), np.finfo(float).tiny))
        return [values + trace - _log_sum(values) for values, trace in zip(logs, log_traces, strict=True)]

    def violation(self, logs: Sequence[FloatArray]) -> float:
        """Return by how much the traces exceed their bound; 0 inside the set."""
        traces = np.array([float(np.exp(_log_sum(values))) for values in logs])
        top = float(traces.max())
        norm = top if np.isinf(self.power) else top * float(np.sum((traces / top) ** self.power)) ** (1.0 / self.power)
        return max(0.0, norm - 1.0)


def _log_sum(values: FloatArray) -> float:
    top = float(values.max())
    return top + float(np.log(np.sum(np.exp(values - top))))

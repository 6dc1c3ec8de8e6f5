"""Sets of positive semi-definite matrices, bounded by their traces: the spectrahedron and its relatives of a mixed norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray
from .norm_sets import LpBall


@dataclass(frozen=True)
class TraceBall:
    """Matrices ``Q_1, ..., Q_k >= 0`` with ``sum_j trace(Q_j)^power <= 1``: for power 1 the spectrahedron of block diagonal matrices.
    Points are represented by their eigenvalues; a step of mirror descent with the entropy ``trace(Q log Q)`` has the eigenvectors of ``log
    Q - step * gradient`` and moves the eigenvalues. An infinite power bounds every trace by one. Raises ValueError if power is below 1.
    """

    power: float = 1.0

    def __post_init__(self) -> None:
        if not self.power >= 1:
            raise ValueError(f"power={self.power!r}: must be at least 1")

    def start(self, sizes: Sequence[int]) -> list[FloatArray]:
        """Return the logarithms of the eigenvalues of multiples of the identity with equal traces, on the boundary."""
        trace = -np.log(len(sizes)) / self.power
        return [np.full(size, trace - np.log(size)) for size in sizes]

    def traces(self, logs: Sequence[FloatArray]) -> FloatArray:
        """Return the traces after a mirror step; ``logs`` are the logarithms of the eigenvalues before they are scaled. The traces minimise
        ``sum_j rho_j log rho_j - rho_j L_j``, ``L_j = 1 + log sum_l exp(logs_jl)``, over ``sum_j rho_j^power <= 1``: one scalar root, which
        the ball of the same norm computes.
        """
        free = np.array([_log_sum(values) for values in logs])
        if np.isinf(self.power):
            return np.exp(np.minimum(free, 0.0))
        return LpBall(self.power).mirror(np.ones(len(free)), -free, 1.0)

    def mirror(self, logs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return the logarithms of the eigenvalues after a mirror step; arguments as in :meth:`traces`."""
        # A trace of zero would stay zero.
        log_traces = np.log(np.maximum(self.traces(logs), np.finfo(float).tiny))
        return [values + trace - _log_sum(values) for values, trace in zip(logs, log_traces, strict=True)]

    def violation(self, logs: Sequence[FloatArray]) -> float:
        """Return by how much the traces exceed their bound; 0 inside."""
        traces = np.array([float(np.exp(_log_sum(values))) for values in logs])
        top = float(traces.max())
        norm = top if np.isinf(self.power) else top * float(np.sum((traces / top) ** self.power)) ** (1.0 / self.power)
        return max(0.0, norm - 1.0)


def _log_sum(values: FloatArray) -> float:
    top = float(values.max())
    return top + float(np.log(np.sum(np.exp(values - top))))

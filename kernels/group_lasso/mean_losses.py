"""Mean losses of linear models: logistic, squared, hinge; their slopes, curvatures, dual utilities.

=========  =============================  ======================================  ===================================
name       loss of a row                  minus its slope, s                      dual utility U(s)
=========  =============================  ======================================  ===================================
logistic   log(1 + exp(-y f))             y / (1 + exp(y f))                      H(y s), the entropy of a coin in nats
squared    (y - f)^2 / 2                  y - f                                   y s - s^2 / 2
hinge      max(0, 1 - y f)                y max(0, min(1, (1 - y f) / mu))        y s, 0 <= y s <= 1
=========  =============================  ======================================  ===================================

The hinge is smoothed by mu > 0: ``max_a a (1 - y f) - mu a^2 / 2`` over 0 <= a <= 1 lies below the hinge by at most mu/2, and its slopes
are points of the hinge's own dual: the certificate is that of the hinge, whatever mu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, expit

FloatArray = NDArray[np.float64]
LossName = Literal["logistic", "squared", "hinge"]


@dataclass(frozen=True)
class MeanLoss:
    """Losses of rows by name.

    Attributes
    ----------
    name
        ``"logistic"``, ``"squared"`` or ``"hinge"``.
    mu
        Smoothing of the hinge.
    """

    name: LossName
    mu: float = 0.0

    def values(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the loss of every row, the hinge smoothed."""
        if self.name == "squared":
            return 0.5 * np.square(y - f)
        if self.name == "logistic":
            return np.logaddexp(0.0, -y * f)
        share = self.slopes(y, f) * y
        return share * (1.0 - y * f) - 0.5 * self.mu * share * share

    def exact(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the loss of every row, the hinge as it is."""
        return np.maximum(1.0 - y * f, 0.0) if self.name == "hinge" else self.values(y, f)

    def slopes(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return s, minus the derivative of every row's loss in f."""
        if self.name == "squared":
            return y - f
        if self.name == "logistic":
            return y * expit(-y * f)
        return y * np.clip((1.0 - y * f) / self.mu, 0.0, 1.0)

    def bends(self, y: FloatArray, f: FloatArray) -> FloatArray:
        """Return the second derivative of every row's loss in f."""
        if self.name == "squared":
            return np.ones_like(f)
        if self.name == "logistic":
            p = expit(f)
            return p * (1.0 - p)
        inside = (1.0 - y * f > 0.0) & (1.0 - y * f < self.mu)
        return inside / self.mu

    def utilities(self, y: FloatArray, s: FloatArray) -> FloatArray:
        """Return U(s) of every row, for slopes scaled towards 0."""
        if self.name == "squared":
            return y * s - 0.5 * s * s
        return entr(y * s) + entr(1.0 - y * s) if self.name == "logistic" else y * s

    def dual_value(self, y: FloatArray, cost: FloatArray, s: FloatArray, reach: float, lam: float) -> float:
        """Return the dual value ``sum c U(t s)`` of slopes scaled until ``t Omega*(sum c s x) <= lam``; with a bias ``sum c s`` must be 0.

        Parameters
        ----------
        y, cost, s
            Labels or targets, costs and slopes of the rows.
        reach
            ``Omega*(sum c s x)``.
        lam
            Bound on it.
        """
        bound = lam / reach if reach > 0.0 else np.inf
        if self.name == "squared":
            return best_dual(float(cost @ (s * s)), float(cost @ (y * s)), bound)
        return float(cost @ self.utilities(y, min(1.0, bound) * s))


def best_dual(rest: float, aligned: float, bound: float) -> float:
    """Return the largest dual value ``t aligned - t^2/2 rest`` of residuals scaled by ``|t| <= bound``.

    Parameters
    ----------
    rest, aligned
        ``sum c r^2`` and ``sum c y r`` (about the means with a bias).
    bound
        lam over ``Omega*(sum c r x)``.
    """
    scale = aligned / rest if rest > 0.0 else 1.0
    scale = min(max(scale, -bound), bound)
    return scale * aligned - 0.5 * scale * scale * rest

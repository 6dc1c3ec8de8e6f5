"""Losses of a margin, weighted by row: value, gradient, dual utility and dual bounds.

With labels y_i = +-1, decision values f_i, margins m_i = y_i f_i and costs C_i >= 0 (docs/methods.md, "Losses and duals"):

================  ===========================================  ============================  ==================================
name              loss P                                       dual variable alpha_i         dual utility U(alpha)
================  ===========================================  ============================  ==================================
squared_hinge     1/2 sum_i C_i max(0, 1 - m_i)^2              C_i max(0, 1 - m_i)           sum_i alpha_i - alpha_i^2 / (2 C_i)
logistic          sum_i C_i log(1 + exp(-m_i))                 C_i / (1 + exp(m_i))          sum_i C_i H(alpha_i / C_i)
================  ===========================================  ============================  ==================================

H is the entropy of a coin in nats. Rows with C_i = 0 do not exist: they add nothing anywhere. At any f the pair (f, alpha) satisfies
U(alpha) = P(f) + sum_i alpha_i m_i.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

FloatArray = NDArray[np.float64]


class Loss(Protocol):
    """What a method may ask of a loss.

    Attributes
    ----------
    name : str
        Key in :data:`LOSSES`.
    curvature : float
        Largest second derivative of one row's loss in its decision value, per unit of cost.
    """

    @property
    def name(self) -> str:
        """Key in :data:`LOSSES`."""
        ...

    @property
    def curvature(self) -> float:
        """Largest second derivative per unit of cost."""
        ...

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        ...

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha(f) of shape (n_samples,); the gradient of P in f is -alpha y."""
        ...

    def gradient(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return the gradient of P in f, shape (n_samples,)."""
        ...

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return U(alpha)."""
        ...

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least and greatest alpha of each row."""
        ...


@dataclass(frozen=True)
class SquaredHinge:
    """Squared hinge loss, P = 1/2 sum_i C_i max(0, 1 - y_i f_i)^2 (the 1/2 is that of Tan, Tsang and Wang, JMLR 15, 2014)."""

    name: str = "squared_hinge"
    curvature: float = 1.0

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        slack = np.maximum(1.0 - y * f, 0.0)
        return float(0.5 * np.sum(cost * slack * slack))

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha_i = C_i max(0, 1 - y_i f_i)."""
        return cost * np.maximum(1.0 - y * f, 0.0)

    def gradient(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return -alpha y."""
        return -self.dual(y, f, cost) * y

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return sum_i alpha_i - alpha_i^2 / (2 C_i) over the rows with C_i > 0."""
        used = cost > 0
        return float(np.sum(alpha[used] - alpha[used] ** 2 / (2.0 * cost[used])))

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 0 and infinity (0 where C_i = 0)."""
        return np.zeros_like(cost), np.where(cost > 0, np.inf, 0.0)


@dataclass(frozen=True)
class Logistic:
    """Logistic loss, P = sum_i C_i log(1 + exp(-y_i f_i)).

    The utility contains the constant n C log C that Tan, Tsang and Wang drop (docs/methods.md, "Losses and duals").
    """

    name: str = "logistic"
    curvature: float = 0.25

    def value(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> float:
        """Return P(f)."""
        return float(np.sum(cost * np.logaddexp(0.0, -y * f)))

    def dual(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return alpha_i = C_i / (1 + exp(y_i f_i))."""
        return cost * np.exp(-np.logaddexp(0.0, y * f))

    def gradient(self, y: FloatArray, f: FloatArray, cost: FloatArray) -> FloatArray:
        """Return -alpha y."""
        return -self.dual(y, f, cost) * y

    def utility(self, alpha: FloatArray, cost: FloatArray) -> float:
        """Return sum_i C_i H(alpha_i / C_i) over the rows with C_i > 0; minus infinity outside 0 <= alpha <= C."""
        used = cost > 0
        share = alpha[used] / cost[used]
        return float(np.sum(cost[used] * (entr(share) + entr(1.0 - share))))

    def dual_bounds(self, cost: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return 0 and C_i."""
        return np.zeros_like(cost), cost.astype(np.float64)


LOSSES: dict[str, Loss] = {"squared_hinge": SquaredHinge(), "logistic": Logistic()}


def loss_named(name: str) -> Loss:
    """Return the loss called `name`.

    Raises
    ------
    ValueError
        If there is none; the message lists the names there are.
    """
    if name not in LOSSES:
        raise ValueError(f"loss={name!r}: must be one of {', '.join(sorted(LOSSES))}")
    return LOSSES[name]

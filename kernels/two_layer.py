r"""Two-layer multiple kernel learning: a support vector machine on the exponential of a weighted sum of kernels.

With signed dual variables beta (alpha y) and K2(mu) = exp(sum_t mu_t K_t) entry by entry, the weights mu >= 0 minimise

.. math::

    F(\mu) = \lambda \sum_t \mu_t + \max_\beta \; c^T\beta - \tfrac12 \beta^T K_2(\mu) \beta, \qquad
    \frac{\partial F}{\partial \mu_t} = \lambda - \tfrac12 \beta^T (K_2(\mu) \circ K_t) \beta .

F is not convex, but bounded below, and F(0) bounds the sum of the best weights (source: Zhuang, thesis, 2011, chapter 4, (4.2) and (4.5);
the sign of its (4.7) is corrected here, and its objective J is -F).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from .bank import PackedBank
from .bank_loops import BAND, count_packed
from .jit import one_thread
from .solvers.dual import DenseGram, DualProblem, Scratch
from .solvers.smo import solve_smo

FloatArray = NDArray[np.float64]

LARGEST_EXPONENT = 50.0
"""Weights under which some entry of the inner sum is beyond this are refused: the machine would memorise, and later overflow."""

ARMIJO = 1e-4
HALVINGS = 40
MACHINE_TOL = 1e-6
BATCH_BYTES = 32 << 20

GRID = 13
"""Widths tried on the way to a new Gaussian kernel, log-spaced."""


@dataclass(frozen=True)
class TwoLayerPoint:
    """The machine at given weights.

    Attributes
    ----------
    mu : ndarray of shape (k,)
    value : float
        F(mu), infinite where the exponent is refused.
    slopes : ndarray of shape (k,)
        Its gradient.
    beta, bias : ndarray of shape (n,) and float
    """

    mu: FloatArray
    value: float
    slopes: FloatArray
    beta: FloatArray
    bias: float

    @property
    def violation(self) -> float:
        """Length of the projected gradient in its largest entry; 0 at a stationary point."""
        return float(np.abs(self.mu - np.maximum(self.mu - self.slopes, 0.0)).max())


def bank_inner(bank: PackedBank, weights: FloatArray) -> FloatArray:
    """Return ``sum_ij K_q[i, j] weights[i, j]`` of every kernel for symmetric weights (n, n), shape (k,)."""
    found, n = np.zeros(bank.k), bank.n
    with one_thread():
        for first in range(0, n, BAND):
            rows, width = min(BAND, n - first), n - first
            start = count_packed(n) - count_packed(width)
            part = np.array(weights[first : first + rows, first:], np.float64)
            # The square on the diagonal holds both halves, what is right of it stands for its mirror image, too.
            part[:, rows:] *= 2.0
            step = max(1, BATCH_BYTES // (8 * part.size))
            for q in range(0, bank.k, step):
                found[q : q + step] += bank.values[q : q + step, start : start + rows * width].astype(np.float64) @ part.ravel()
    return found * bank.scale


class TwoLayer:
    """F and its gradient on the kernels of a bank.

    Parameters
    ----------
    bank : PackedBank
        First-layer kernels.
    problem : DualProblem
        Labels and costs.
    penalty : float
        lambda, weight of the sum of the weights.
    """

    def __init__(self, bank: PackedBank, problem: DualProblem, penalty: float = 1.0) -> None:
        self.bank, self.problem, self.penalty = bank, problem, penalty
        self._scratch = Scratch()

    def kernel(self, mu: FloatArray) -> FloatArray | None:
        """Return K2(mu), or None where its largest exponent is refused."""
        inner = self.bank.combine(mu, np.empty((self.bank.n, self.bank.n)))
        return np.exp(inner, out=inner) if inner.max() <= LARGEST_EXPONENT else None

    def at(self, mu: FloatArray, warm: Any = None) -> TwoLayerPoint:
        """Solve the machine at given weights."""
        kernel = self.kernel(mu)
        if kernel is None:
            return TwoLayerPoint(mu, np.inf, np.zeros(len(mu)), np.zeros(self.bank.n), 0.0)
        found = solve_smo(DenseGram(kernel, self._scratch), self.problem, warm=warm, tol=MACHINE_TOL)
        kernel *= found.beta[:, None] * found.beta[None, :]
        slopes = self.penalty - 0.5 * bank_inner(self.bank, kernel)
        return TwoLayerPoint(mu, float(found.objective) + self.penalty * float(mu.sum()), slopes, found.beta, float(found.bias))

    def step(self, point: TwoLayerPoint, eta: float) -> tuple[TwoLayerPoint, float]:
        """Go along the projected gradient as far as F falls in proportion (Armijo).

        Returns
        -------
        point : TwoLayerPoint
            The same one when nothing along the arc is lower.
        eta : float
            The step that was taken; begin the next one at twice of it.
        """
        for _ in range(HALVINGS):
            mu = np.maximum(point.mu - eta * point.slopes, 0.0)
            trial = self.at(mu, point.beta)
            if trial.value <= point.value - ARMIJO * float(point.slopes @ (point.mu - mu)) and not np.array_equal(mu, point.mu):
                return trial, eta
            eta *= 0.5
        return point, eta


def first_step(point: TwoLayerPoint) -> float:
    """Return the length of the first step: the steepest weight moves by one."""
    return 1.0 / max(float(np.abs(point.slopes).max()), 1e-300)


def gaussian_costs(kernel: FloatArray, beta: FloatArray, distances: FloatArray, widths: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return the slope of F towards a new Gaussian kernel exp(-w Q), and its derivative in w, for several w.

    .. math::

        c(w) = 1 - \tfrac12 \beta^T (K_2 \circ e^{-wQ}) \beta, \qquad c'(w) = \tfrac12 \beta^T (K_2 \circ e^{-wQ} \circ Q) \beta .

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
        K2 at the present weights.
    beta : ndarray of shape (n,)
    distances : ndarray of shape (n, n)
        Squared distances Q.
    widths : ndarray of shape (m,)
    """
    held = np.flatnonzero(beta)
    part = np.ix_(held, held)
    weights, far = kernel[part] * np.outer(beta[held], beta[held]), distances[part]
    values, slopes = np.empty(len(widths)), np.empty(len(widths))
    for place, width in enumerate(widths):
        shares = weights * np.exp(-width * far)
        values[place], slopes[place] = 1.0 - 0.5 * shares.sum(), 0.5 * (shares * far).sum()
    return values, slopes


def best_gaussian(kernel: FloatArray, beta: FloatArray, distances: FloatArray, low: float, high: float) -> tuple[float, float]:
    """Return the w between ``low`` and ``high`` where F falls fastest towards exp(-w Q), and the slope: a grid, then Brent's method.

    The kernel helps at first order if the slope is negative. Bound w: as it grows the slope tends to that of the unit matrix, which lets a
    machine memorise.
    """
    grid = np.linspace(np.log(low), np.log(high), GRID)

    def cost(log_width: float) -> float:
        return float(gaussian_costs(kernel, beta, distances, np.exp([log_width]))[0][0])

    values, _ = gaussian_costs(kernel, beta, distances, np.exp(grid))
    best = int(np.argmin(values))
    bounds = (float(grid[max(best - 1, 0)]), float(grid[min(best + 1, GRID - 1)]))
    found: Any = minimize_scalar(cost, bounds=bounds, method="bounded")
    refined = float(found.x) if found.fun < values[best] else float(grid[best])
    return float(np.exp(refined)), cost(refined)

r"""Two-layer multiple kernel learning: a support vector machine on the exponential of a weighted sum of kernels.

With signed dual variables beta (alpha y) and K2(mu) = exp(sum_t mu_t K_t) entry by entry, the weights mu >= 0 minimise

.. math::

    F(\mu) = \lambda \sum_t \mu_t + \max_\beta \; c^T\beta - \tfrac12 \beta^T K_2(\mu) \beta, \qquad
    \frac{\partial F}{\partial \mu_t} = \lambda - \tfrac12 \beta^T (K_2(\mu) \circ K_t) \beta .

F is not convex, but bounded below, and F(0) bounds lambda times the sum of the best weights (source: Zhuang, thesis, 2011, chapter 4, (4.2)
and (4.5); its objective J is -F).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..svm.dual import DenseGram, DualProblem, Gram, Scratch
from ..svm.smo import solve_smo
from .bank import PackedBank
from .block_sums import Span, TileSums, total_forms
from .loops import BAND, combine_block
from .two_layer_loops import weigh_band

FloatArray = NDArray[np.float64]

LARGEST_EXPONENT = 50.0
"""Weights under which some entry of the inner sum is beyond this are refused: the machine would memorise, and later overflow."""

ARMIJO = 1e-4
MACHINE_TOL = 1e-6

MACHINE_STEPS = (5_000, 50)
"""A machine may take so many steps, or so many per row where that is more. With entries from 1 to e^50 it may never end: such weights are
refused like exponents that are too large."""

ROUND_OFF = 1e-13
"""A step that promises to lower F by less than this share of it cannot be told from round-off."""

START_HALVINGS = 100

STRETCH = 10.0
"""A step is at most so many times longer than the one before."""


# -- the second layer --------------------------------------------------------------------------------------------------------------


def exponential(inner: FloatArray) -> FloatArray:
    """Return exp of every entry, in place; entries beyond ``LARGEST_EXPONENT`` stay recognisable without overflow."""
    return np.exp(np.minimum(inner, LARGEST_EXPONENT + 1.0, out=inner), out=inner)


def refused(kernel: FloatArray) -> bool:
    """Return whether some exponent of a second layer is larger than allowed."""
    return bool(kernel.max() > np.exp(LARGEST_EXPONENT))


def block_layer(block: NDArray[Any], weights: FloatArray) -> FloatArray:
    """Return ``exp(sum_q weights_q K_q)`` of a block pair (k, rows, columns) in float64, to the bits of :class:`BankLayer`."""
    used = np.flatnonzero(weights)
    inner = np.zeros(block.shape[1] * block.shape[2])
    combine_block(np.ascontiguousarray(block), used, np.ascontiguousarray(weights[used], np.float64), inner)
    return exponential(inner.reshape(block.shape[1:]))


def block_sums(block: NDArray[Any], rows: Span, cols: Span, kernel: FloatArray, beta: FloatArray) -> TileSums:
    """Return the shares of a block pair in ``beta' (K2 o K_q) beta``.

    Parameters
    ----------
    block
        ``(k, rows, columns)`` first-layer kernels.
    rows, cols
        Its ranges; equal on the diagonal.
    kernel
        ``(rows, columns)`` entries of K2.
    beta
        ``(n,)`` of the whole.
    """
    flat = np.ascontiguousarray(block).reshape(len(block), -1)
    height, width = kernel.shape
    values = np.zeros((len(block), 1, -(-height // BAND), -(-width // BAND)))
    for band, top in enumerate(range(0, height, BAND)):
        first = top if rows == cols else 0
        part = kernel[top : top + BAND, first:]
        _weigh(flat, top * width, width, first, part, beta[rows[0] + top :], beta[cols[0] + first :], rows == cols, values[:, 0, band])
    return TileSums(rows, cols, values)


def bank_sums(bank: PackedBank, kernel: FloatArray, beta: FloatArray) -> FloatArray:
    """Return ``beta' (K2 o R_q) beta`` of the raw matrices of a bank, shape (k,)."""
    n, parts = bank.n, []
    for band, (at, stride) in enumerate(bank.bands):
        first = band * BAND
        values = np.zeros((bank.k, 1, 1, -(-(n - first) // BAND)))
        part = kernel[first : first + BAND, first:]
        _weigh(bank.frozen, at, stride, 0, part, beta[first:], beta[first:], True, values[:, 0, 0])
        parts.append(TileSums((first, min(first + BAND, n)), (first, n), values))
    return total_forms(parts)[:, 0]


def _weigh(
    flat: NDArray[Any],
    at: int,
    stride: int,
    first: int,
    kernel: FloatArray,
    left: FloatArray,
    right: FloatArray,
    on_diagonal: bool,
    out: FloatArray,
) -> None:
    """Weigh one band: rows where beta is zero are not read."""
    held = np.flatnonzero(left[: len(kernel)])
    weights = (kernel[held] * left[held][:, None]) * right[: kernel.shape[1]][None, :]
    weigh_band(flat, at, stride, first, held, weights, on_diagonal, out)


class Layer(Protocol):
    """First-layer kernels, asked for K2 and for what a change of the weights does to it."""

    def kernel(self, mu: FloatArray) -> FloatArray | Gram | None:
        """Return K2(mu), (n, n) float64 or what answers for it, None where its largest exponent is refused; the next call overwrites it."""
        ...

    def weigh(self, mu: FloatArray, kernel: Any, beta: FloatArray) -> FloatArray:
        """Return ``beta' (K2 o K_t) beta`` of every kernel, shape (k,), where ``kernel`` is K2(mu)."""
        ...


class BankLayer:
    """The kernels of a bank as a first layer.

    Parameters
    ----------
    bank : PackedBank
        First-layer kernels.
    """

    def __init__(self, bank: PackedBank) -> None:
        self.bank = bank
        self._matrix = np.empty((bank.n, bank.n))

    def kernel(self, mu: FloatArray) -> FloatArray | None:
        """Return K2(mu); see :class:`Layer`."""
        found = exponential(self.bank.combine(mu, self._matrix))
        return None if refused(found) else found

    def weigh(self, mu: FloatArray, kernel: FloatArray, beta: FloatArray) -> FloatArray:
        """Return the weighted sums; see :class:`Layer`."""
        return bank_sums(self.bank, kernel, beta) * self.bank.scale


# -- descent ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TwoLayerPoint:
    """The machine at given weights.

    Attributes
    ----------
    mu : ndarray of shape (k,)
    value : float
        F(mu) from the dual value of the machine: a lower bound, wrong by the square of the machine's tolerance only.
    gap : float
        Duality gap of the machine; ``value + gap`` is the primal value, an upper bound of F(mu).
    slopes : ndarray of shape (k,)
        Gradient of F.
    beta, bias : ndarray of shape (n,) and float
    decision : ndarray of shape (n,)
        K2 beta + bias.
    indefinite : bool
        The machine met negative curvature: round-off of single-precision entries between rows that are nearly the same, or no kernel.
    """

    mu: FloatArray
    value: float
    gap: float
    slopes: FloatArray
    beta: FloatArray
    bias: float
    decision: FloatArray
    indefinite: bool = False

    def violation(self, penalty: float) -> float:
        """Return the largest entry of the projected gradient in units of the penalty; 0 at a stationary point."""
        weights = penalty * self.mu
        return float(np.abs(weights - np.maximum(weights - self.slopes / penalty, 0.0)).max())


class TwoLayerObjective:
    """F and its gradient.

    Parameters
    ----------
    layer : Layer
        First-layer kernels.
    problem : DualProblem
        Labels and costs.
    penalty : float
        lambda, weight of the sum of the weights.
    scratch : Scratch, optional
        Buffer of the solver, shared by machines of one size.
    """

    def __init__(self, layer: Layer, problem: DualProblem, penalty: float = 1.0, scratch: Scratch | None = None) -> None:
        self.layer, self.problem, self.penalty = layer, problem, penalty
        self._scratch = scratch or Scratch()

    def at(self, mu: FloatArray, warm: Any = None, below: float = np.inf) -> TwoLayerPoint | None:
        """Return the machine at given weights.

        Parameters
        ----------
        mu : ndarray of shape (k,)
        warm : ndarray of shape (n,), optional
            First beta.
        below : float
            Greatest value that is of interest.

        Returns
        -------
        TwoLayerPoint or None
            None where the exponents are refused, the machine cannot be solved, or the value is larger than asked for.
        """
        kernel = self.layer.kernel(mu)
        if kernel is None:
            return None
        gram = DenseGram(kernel, self._scratch) if isinstance(kernel, np.ndarray) else kernel
        steps = max(MACHINE_STEPS[0], MACHINE_STEPS[1] * gram.n)
        found = solve_smo(gram, self.problem, warm=warm, tol=MACHINE_TOL, max_iter=steps)
        value = float(found.objective) + self.penalty * float(mu.sum())
        if not found.converged or value > below:
            return None
        slopes = self.penalty - 0.5 * self.layer.weigh(mu, kernel, found.beta)
        decision = found.decision + found.bias
        return TwoLayerPoint(mu, value, float(found.gap), slopes, found.beta, float(found.bias), decision, found.indefinite)

    def start(self, rng: np.random.Generator, diagonals: FloatArray) -> TwoLayerPoint:
        """Return the machine at random weights under which the diagonal of the inner sum is one on average.

        At zero the second layer has rank one and its machine cannot tell rows apart. Where a few rows are so long that the weights would be
        refused, all of them are halved until they are not.

        Parameters
        ----------
        rng : Generator
        diagonals : ndarray of shape (k, n)
            Of the first-layer kernels.

        Raises
        ------
        ValueError
            If no weights are small enough.
        """
        mu = rng.uniform(0.05, 1.0, len(diagonals))
        height = float(mu @ diagonals.mean(axis=1))
        mu = mu / height if height > 0.0 else mu
        for _ in range(START_HALVINGS):
            found = self.at(mu)
            if found is not None:
                return found
            mu = 0.5 * mu
        raise ValueError("the machine on exp(sum of the kernels) cannot be solved even at tiny weights; normalise the kernels (trace)")

    def step(self, point: TwoLayerPoint, eta: float, least: float = 0.0) -> tuple[TwoLayerPoint, float]:
        """Go along the projected gradient, halving the step until F falls in proportion (Armijo).

        Parameters
        ----------
        point : TwoLayerPoint
        eta : float
            Length tried first.
        least : float
            A step that promises to lower F by less than this share of it is not tried.

        Returns
        -------
        point : TwoLayerPoint
            The same one when nothing along the arc is lower.
        eta : float
            The length to be tried first in the next step.
        """
        while True:
            mu = np.maximum(point.mu - eta * point.slopes, 0.0)
            promised = float(point.slopes @ (point.mu - mu))
            if promised <= max(least, ROUND_OFF) * abs(point.value):
                return point, eta
            found = self.at(mu, point.beta, point.value - ARMIJO * promised)
            if found is not None:
                return found, next_length(point, found, eta)
            eta *= 0.5


def first_length(point: TwoLayerPoint, penalty: float = 1.0) -> float:
    """Return the length of the first step: the steepest weight moves by one unit of the penalised sum."""
    return 1.0 / max(penalty * float(np.abs(point.slopes).max()), 1e-300)


def next_length(old: TwoLayerPoint, new: TwoLayerPoint, eta: float) -> float:
    """Return the spectral length s's / s'r of the weights' change s and the gradient's r (Barzilai and Borwein, 1988).

    Twice the last one where the gradient tells of no curvature; never more than ten times as long or as short.
    """
    change = new.mu - old.mu
    curvature = float(change @ (new.slopes - old.slopes))
    if curvature <= 0.0:
        return 2.0 * eta
    return float(np.clip(float(change @ change) / curvature, eta / STRETCH, eta * STRETCH))

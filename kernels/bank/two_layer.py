r"""Two-layer multiple kernel learning: a support vector machine on the exponential of a weighted sum of kernels.

With signed dual variables beta (alpha y) and K2(mu) = exp(sum_t mu_t K_t) entry by entry, the weights mu >= 0 minimise

.. math::

    F(\mu) = \lambda \sum_t \mu_t + \max_\beta \; c^T\beta - \tfrac12 \beta^T K_2(\mu) \beta, \qquad
    \frac{\partial F}{\partial \mu_t} = \lambda - \tfrac12 \beta^T (K_2(\mu) \circ K_t) \beta .

F is not convex, but bounded below. For the best weights, lambda times their sum is at most F(0) (source: Zhuang, thesis, 2011, chapter 4,
(4.2) and (4.5); the objective J of that thesis is -F).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..arrays import Array, FloatArray
from ..svm.dual import DenseGram, DualProblem, Gram, Scratch, Warm
from ..svm.smo import solve_smo
from .bank import PackedBank
from .loops import BAND, weight_entries
from .products import Span, TileSums, combine_kernels, total_forms

LARGEST_EXPONENT = 50.0  # Greatest entry of the inner sum that weights may give: beyond it the machine would memorise, and later overflow.
ARMIJO_SHARE = 1e-4
MACHINE_TOL = 1e-6
MACHINE_STEPS = (5_000, 50)
"""Largest number of SVM steps, in total and per row; the larger limit applies. With entries from 1 to e^50 an SVM may never converge, and
such weights are rejected like exponents that are too large.
"""

MIN_DECREASE_SHARE = 1e-13  # Least share of F that a step must promise to lower it by: less is round-off.
START_HALVINGS = 100
MAX_STRETCH = 10.0  # Greatest ratio of the lengths of consecutive steps.


def exponentiate(inner: FloatArray) -> FloatArray:
    """Replace each entry by its exponential. Entries beyond ``LARGEST_EXPONENT`` do not overflow, but are not exact."""
    return np.exp(np.minimum(inner, LARGEST_EXPONENT + 1.0, out=inner), out=inner)


def is_refused(exponents: FloatArray) -> bool:
    """Return whether an exponent of the second layer is too large. ``exponents`` is the diagonal of the kernel sum. No other entry of the
    sum is larger than the largest of these, because the sum is positive semi-definite.
    """
    return bool(exponents.max() > LARGEST_EXPONENT)


def block_layer(block: Array, weights: FloatArray) -> FloatArray:
    """Return ``exp(sum_q weights_q K_q)`` of a block pair (k, rows, columns) in float64, bit-identical to :class:`BankLayer`."""
    return exponentiate(combine_kernels(block, weights, np.float64))


def block_sums(block: Array, rows: Span, cols: Span, kernel: FloatArray, beta: FloatArray) -> TileSums:
    """Return the contributions of a block pair ``(k, rows, columns)`` to ``beta' (K2 o K_q) beta``. ``kernel`` holds the entries of K2;
    beta has shape ``(n,)``.
    """
    flat = np.ascontiguousarray(block).reshape(len(block), -1)
    height, width = kernel.shape
    values = np.zeros((len(block), 1, -(-height // BAND), -(-width // BAND)))
    for band, top in enumerate(range(0, height, BAND)):
        first = top if rows == cols else 0
        part = kernel[top : top + BAND, first:]
        _weight_band(
            flat, top * width, width, first, part, beta[rows[0] + top :], beta[cols[0] + first :], rows == cols, values[:, 0, band]
        )
    return TileSums(rows, cols, values)


def bank_sums(bank: PackedBank, kernel: FloatArray, beta: FloatArray) -> FloatArray:
    """Return ``beta' (K2 o R_q) beta`` of the raw matrices of a bank, shape (k,)."""
    n, parts = bank.n, []
    for band, (at, stride) in enumerate(bank.bands):
        first = band * BAND
        values = np.zeros((bank.k, 1, 1, -(-(n - first) // BAND)))
        part = kernel[first : first + BAND, first:]
        _weight_band(bank.frozen, at, stride, 0, part, beta[first:], beta[first:], True, values[:, 0, 0])
        parts.append(TileSums((first, min(first + BAND, n)), (first, n), values))
    return total_forms(parts)[:, 0]


def _weight_band(
    flat: Array, at: int, stride: int, first: int, kernel: FloatArray, left: FloatArray, right: FloatArray, square: bool, out: FloatArray
) -> None:
    """Write the contributions of the tiles of one band; rows where beta is zero are skipped."""
    support = np.flatnonzero(left[: len(kernel)])
    weights = (kernel[support] * left[support][:, None]) * right[: kernel.shape[1]][None, :]
    weight_entries(flat, at, stride, first, support, weights, square, out)


class Layer(Protocol):
    """First-layer kernels, which determine K2 and its derivatives with respect to the weights."""

    def kernel(self, mu: FloatArray) -> FloatArray | Gram | None:
        """Return K2(mu), (n, n) float64 or a Gram, or None if its largest exponent is too large. The next call overwrites the matrix."""
        ...

    def weigh(self, mu: FloatArray, kernel: Any, beta: FloatArray) -> FloatArray:
        """Return ``beta' (K2 o K_t) beta`` of each kernel, shape (k,); ``kernel`` is K2(mu)."""
        ...


class BankLayer:
    """The kernels of a bank as the first layer."""

    def __init__(self, bank: PackedBank) -> None:
        self.bank = bank
        self._matrix = np.empty((bank.n, bank.n))

    def kernel(self, mu: FloatArray) -> FloatArray | None:
        kernel = self.bank.combine(mu, self._matrix, exponentiate)
        return None if is_refused(np.log(np.diagonal(kernel))) else kernel

    def weigh(self, mu: FloatArray, kernel: FloatArray, beta: FloatArray) -> FloatArray:
        return bank_sums(self.bank, kernel, beta) * self.bank.scale


@dataclass(frozen=True)
class TwoLayerPoint:
    """The SVM at given weights.

    * ``value``: F(mu) from the dual value of the SVM, a lower bound. Its error is of the order of the square of the SVM's tolerance.
    * ``gap``: ``value + gap`` is the primal value, an upper bound.
    * ``slopes``, ``(k,)``: the gradient of F.
    * ``decision``, ``(n,)``: ``K2 @ beta + bias``.
    * ``indefinite``: the SVM met negative curvature. Either the matrix is no kernel, or rounding of single-precision entries of nearly
      equal rows made it indefinite.
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
        """Return the largest entry of the projected gradient divided by the penalty; 0 at a stationary point."""
        weights = penalty * self.mu
        return float(np.abs(weights - np.maximum(weights - self.slopes / penalty, 0.0)).max())


class TwoLayerObjective:
    """The function F of the weights, and its gradient. ``penalty`` is lambda; SVMs of one size share the ``scratch``."""

    def __init__(self, layer: Layer, problem: DualProblem, penalty: float = 1.0, scratch: Scratch | None = None) -> None:
        self.layer, self.problem, self.penalty = layer, problem, penalty
        self._scratch = scratch or Scratch()

    def at(self, mu: FloatArray, warm: Warm = None, below: float = np.inf) -> TwoLayerPoint | None:
        """Return the SVM at weights ``mu``, started at the beta of ``warm``.

        Returns None if the exponents are too large, the SVM cannot be solved, or F is above ``below``.
        """
        kernel = self.layer.kernel(mu)
        if kernel is None:
            return None
        gram = DenseGram(kernel, self._scratch) if isinstance(kernel, np.ndarray) else kernel
        steps = max(MACHINE_STEPS[0], MACHINE_STEPS[1] * gram.n)
        machine = solve_smo(gram, self.problem, warm=warm, tol=MACHINE_TOL, max_iter=steps)
        value = float(machine.objective) + self.penalty * float(mu.sum())
        if not machine.converged or value > below:
            return None
        slopes = self.penalty - 0.5 * self.layer.weigh(mu, kernel, machine.beta)
        decision = machine.decision + machine.bias
        return TwoLayerPoint(mu, value, float(machine.gap), slopes, machine.beta, float(machine.bias), decision, machine.indefinite)

    def start(self, rng: np.random.Generator, heights: FloatArray) -> TwoLayerPoint:
        """Return the SVM at random weights for which the diagonal of the inner sum is one on average.

        ``heights``, ``(k,)``, are the means of the kernels' diagonals. The search does not start at zero, where the second layer has rank
        one and cannot distinguish rows. If the weights are rejected because of a few long rows, they are halved until they are accepted.
        """
        mu = rng.uniform(0.05, 1.0, len(heights))
        height = float(mu @ heights)
        mu = mu / height if height > 0.0 else mu
        for _ in range(START_HALVINGS):
            point = self.at(mu)
            if point is not None:
                return point
            mu = 0.5 * mu
        raise ValueError(
            "the SVM with the kernel exp(weighted sum of the kernels) cannot be solved even for tiny weights; set normalize='trace'"
        )

    def step(self, point: TwoLayerPoint, eta: float, min_decrease: float = 0.0) -> tuple[TwoLayerPoint, float]:
        """Take a step along the projected gradient; the length starts at ``eta`` and is halved until F falls sufficiently (Armijo).

        Steps whose predicted relative decrease of F is below ``min_decrease`` are not tried. Returns two results:

        * The new point, or the same point if no step was accepted.
        * The initial length of the next step.
        """
        while True:
            mu = np.maximum(point.mu - eta * point.slopes, 0.0)
            promised = float(point.slopes @ (point.mu - mu))
            if promised <= max(min_decrease, MIN_DECREASE_SHARE) * abs(point.value):
                return point, eta
            trial = self.at(mu, point.beta, point.value - ARMIJO_SHARE * promised)
            if trial is not None:
                return trial, next_length(point, trial, eta)
            eta *= 0.5


def first_length(point: TwoLayerPoint, penalty: float = 1.0) -> float:
    """Return the length of the first step, with which the weight of largest slope changes by ``1 / penalty``."""
    return 1.0 / max(penalty * float(np.abs(point.slopes).max()), 1e-300)


def next_length(old: TwoLayerPoint, new: TwoLayerPoint, eta: float) -> float:
    """Return the spectral length ``s's / s'r``, where s is the change of the weights and r the change of the gradient (Barzilai and
    Borwein, 1988).

    If the gradient shows no curvature, the result is twice the last length ``eta``. It is at most ten times the last length, and at least a
    tenth of it.
    """
    change = new.mu - old.mu
    curvature = float(change @ (new.slopes - old.slopes))
    if curvature <= 0.0:
        return 2.0 * eta
    return float(np.clip(float(change @ change) / curvature, eta / MAX_STRETCH, eta * MAX_STRETCH))

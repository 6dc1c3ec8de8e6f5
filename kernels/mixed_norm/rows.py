"""Access to the rows of a sub-problem (Z, y, C), through operations whose results do not grow with the number of rows.

A solver sees the loss only as a function of the weights: P(omega, g) = sum_i C_i loss(y_i, f_i) with f = Z omega + X g. X are q unpenalised
columns (a bias is a column of ones), and g is eliminated exactly. The rows can therefore be in this process
(:class:`gramplane.kernels.mixed_norm.rows_local.LocalRows`) or in blocks elsewhere
(:class:`gramplane.kernels.mixed_norm.rows_blocked.BlockedRows`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from ..loss_types import SumLoss
from ..losses import LossKind, TargetLoss, curvature_at_dual, margin_terms, sum_loss, target_curvature, target_terms
from .row_block import RowBlock


class Evaluation(NamedTuple):
    """The loss P at a point, the dual utility U(u), and ``c = Z'u``, the negative gradient of P in omega.

    ``free``, ``(q,)``, holds the coefficients of the unpenalised columns, a minimiser of P.
    """

    loss: float
    utility: float
    correlations: FloatArray
    free: FloatArray


class Curvature(NamedTuple):
    """Second derivatives of the loss at the current point: Z'DZ, Z'DX and X'DX, with unpenalised columns X. They are read-only.

    ``gram`` holds the lower triangle in Fortran order; entries above the diagonal are undefined.
    """

    gram: FloatArray
    cross: FloatArray
    bends: FloatArray


class LiveColumns(NamedTuple):
    """The columns of the groups that are non-zero at a point; every field has one entry per column, ``(q,)``.

    * ``columns``: positions in Z, ascending.
    * ``owner``: the group of each column.
    * ``unit``: v, the column's entry of omega_h / r_h.
    * ``stiffness``: gamma / r_h.
    """

    columns: IntArray
    owner: IntArray
    unit: FloatArray
    stiffness: FloatArray


class RowCurvature:
    """Second derivatives of the loss in factored form: the rows of Z with curvature, and the square roots of their curvatures.

    ``columns`` holds the unpenalised columns on these rows, ``cross`` is Z'DX, and ``bends`` is X'DX.
    """

    def __init__(self, block: RowBlock, weights: FloatArray, columns: FloatArray) -> None:
        self.block = block
        self.rows: IntArray = np.flatnonzero(weights)
        self.roots: FloatArray = np.sqrt(weights[self.rows])
        self.columns: FloatArray = columns[self.rows]
        bent = columns * weights[:, None]
        self.cross = np.stack([block.transposed(np.ascontiguousarray(x)) for x in bent.T], axis=1) if bent.size else np.zeros((block.p, 0))
        self.bends = columns.T @ bent

    def product(self, direction: FloatArray) -> FloatArray:
        """Return ``diag(sqrt d) Z @ direction`` on the rows with curvature; d are the curvatures."""
        return self.roots * self.block.product(direction)[self.rows]

    def transposed(self, x: FloatArray) -> FloatArray:
        """Return Z' diag(sqrt d) x."""
        u = np.zeros(self.block.n)
        u[self.rows] = self.roots * x
        return self.block.transposed(u)


class Rows(Protocol):
    """The ``n`` rows of one sub-problem with ``p`` columns and ``q`` unpenalised columns, a current point, and one direction from it."""

    n: int
    p: int
    q: int
    loss: SumLoss

    @property
    def class_cost(self) -> tuple[float, float]:
        """Total cost of the positive and of the negative rows."""
        ...

    def evaluate(self, omega: FloatArray, free: FloatArray) -> Evaluation:
        """Move to ``omega`` and recompute z; the search for the best g starts at ``free``, ``(q,)``."""
        ...

    def aim(self, direction: FloatArray, shift: FloatArray) -> None:
        """Set the search line omega + s direction, g + s shift from the current point."""
        ...

    def line(self, steps: FloatArray) -> FloatArray:
        """Return P and its first and second derivatives at each step on the line, shape (3, n_steps)."""
        ...

    def advance(self, step: float) -> Evaluation:
        """Move along the line and eliminate g there."""
        ...

    def curvature(self, live: int = 0) -> Curvature | RowCurvature:
        """Return the second derivatives at the current point; ``live`` is the number of columns that will be used."""
        ...

    def residual(self) -> FloatArray:
        """Return u at the current point, shape (n,)."""
        ...


def check_rows(
    y: FloatArray, cost: FloatArray, loss: SumLoss | str, columns: FloatArray | None = None
) -> tuple[FloatArray, FloatArray, SumLoss, FloatArray]:
    """Check labels or targets, costs and unpenalised columns. Return float64 copies of labels and costs, the loss, and the columns in C
    order.
    """
    law = sum_loss(loss) if isinstance(loss, str) else loss
    labels, costs = np.array(y, dtype=np.float64), np.array(cost, dtype=np.float64)
    if labels.shape != costs.shape or labels.ndim != 1:
        raise ValueError(f"y has shape {labels.shape} and cost {costs.shape}; they must be vectors of the same length")
    label, cost_row = first_invalid_row(labels, costs, law.of_labels)
    if label >= 0:
        raise ValueError(f"y[{label}]={labels[label]}: {'labels must be +1 or -1' if law.of_labels else 'targets must be finite'}")
    if cost_row >= 0:
        raise ValueError(f"cost[{cost_row}]={costs[cost_row]}: costs must be finite and not negative")
    further = np.zeros((len(labels), 0)) if columns is None else np.ascontiguousarray(columns, np.float64)
    if further.ndim != 2 or len(further) != len(labels):
        raise ValueError(f"columns has shape {further.shape}; it must be a matrix with one row for each of the {len(labels)} entries of y")
    return labels, costs, law, further


@compiled(deferred=True)
def first_invalid_row(labels: FloatArray, costs: FloatArray, of_labels: bool) -> tuple[int, int]:
    """Return two row numbers: the first row whose label is not +-1 (or whose target is not finite), and the first row whose cost is
    negative, infinite or NaN. Either is -1 if there is no such row.
    """
    label, cost = -1, -1
    for i in range(labels.size - 1, -1, -1):
        if (abs(labels[i]) != 1.0) if of_labels else not abs(labels[i]) < np.inf:
            label = i
        if not 0.0 <= costs[i] < np.inf:
            cost = i
    return label, cost


# One compiled pass over the rows each: loss, balance, line and curvature from decision values f.
#
# Losses of labels are told apart by their number, which does not change in a loop, so the compiler makes a loop of its own for every loss:
# that of the squared hinge has no exponentials and vectorises. Losses of real targets are one formula with two widths. Formulas stand in
# :mod:`gramplane.kernels.losses`.

STRIP = 512  # rows whose losses are written before they are summed


@dataclass(frozen=True)
class RowPasses:
    """The passes of one loss over decision values f, labels or targets y, and costs.

    * ``point(f, y, cost, residual)`` writes the signed dual variables u and returns the loss P.
    * ``balance(z, column, y, cost, g)`` returns ``sum_i w_i u_i`` at ``f = z + g * w``, its negative derivative in g, and
      ``sum_i |w_i u_i|``.
    * ``line(f, speed, y, cost, steps)`` returns P and its first and second derivatives at ``f + s * speed`` for each step s.
    * ``curvature(residual, cost, weights)`` writes the second derivatives of P in f, which depend on u alone.
    """

    point: Callable[[FloatArray, FloatArray, FloatArray, FloatArray], float]
    balance: Callable[[FloatArray, FloatArray, FloatArray, FloatArray, float], tuple[float, float, float]]
    line: Callable[[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]
    curvature: Callable[[FloatArray, FloatArray, FloatArray], None]


def passes_of(loss: SumLoss) -> RowPasses:
    if not isinstance(loss, TargetLoss):
        kind = int(loss.kind)
        steps = partial(point_pass, kind), partial(balance_pass, kind), partial(line_pass, kind), partial(curvature_pass, kind)
        return RowPasses(*steps)
    e, d = float(loss.epsilon), float(loss.delta)
    point, curvature = partial(target_point_pass, e, d), partial(target_curvature_pass, e, d)
    return RowPasses(point, partial(target_balance_pass, e, d), partial(target_line_pass, e, d), curvature)


@compiled(reassociate=True)
def point_pass(kind: int, f: FloatArray, y: FloatArray, cost: FloatArray, residual: FloatArray) -> float:
    """Write u = alpha y into ``residual`` and return P."""
    loss, values = 0.0, np.empty(min(f.size, STRIP))
    if kind == LossKind.SQUARED_HINGE:
        # Cheaper twice than kept.
        for i in range(f.size):
            residual[i] = margin_terms(kind, y[i] * f[i], cost[i])[1] * y[i]
        for i in range(f.size):
            loss += margin_terms(kind, y[i] * f[i], cost[i])[0]
        return loss
    for low in range(0, f.size, STRIP):
        rows = min(STRIP, f.size - low)
        for k in range(rows):
            i = low + k
            values[k], alpha, _ = margin_terms(kind, y[i] * f[i], cost[i])
            residual[i] = alpha * y[i]
        for k in range(rows):
            loss += values[k]
    return loss


# Below costs are factors of the sums: taken into the terms they would be kept apart from what they are multiplied with.


@compiled(reassociate=True)
def balance_pass(kind: int, z: FloatArray, column: FloatArray, y: FloatArray, cost: FloatArray, g: float) -> tuple[float, float, float]:
    """Return sum_i w_i u_i at ``z + g * w``, its negative derivative in g, and sum_i |w_i u_i|."""
    balance, slope, mass = 0.0, 0.0, 0.0
    for i in range(z.size):
        w = column[i]
        _, share, curvature = margin_terms(kind, y[i] * (z[i] + g * w), 1.0)
        balance += cost[i] * share * y[i] * w
        slope += cost[i] * curvature * w * w
        mass += cost[i] * share * abs(w)
    return balance, slope, mass


@compiled(reassociate=True)
def line_pass(kind: int, f: FloatArray, speed: FloatArray, y: FloatArray, cost: FloatArray, steps: FloatArray) -> FloatArray:
    """Return P and its first and second derivatives at ``f + s * speed`` for each step s, shape (3, n_steps)."""
    out = np.zeros((3, steps.size))
    for k in range(steps.size):
        step, loss, slope, curvature = steps[k], 0.0, 0.0, 0.0
        for i in range(f.size):
            value, share, bend = margin_terms(kind, y[i] * (f[i] + step * speed[i]), 1.0)
            loss += cost[i] * value
            slope -= cost[i] * share * y[i] * speed[i]
            curvature += cost[i] * bend * speed[i] * speed[i]
        out[0, k], out[1, k], out[2, k] = loss, slope, curvature
    return out


@compiled
def curvature_pass(kind: int, residual: FloatArray, cost: FloatArray, weights: FloatArray) -> None:
    """Write the second derivatives D of P into ``weights``."""
    for i in range(residual.size):
        alpha = abs(residual[i])
        weights[i] = curvature_at_dual(kind, alpha, cost[i]) if alpha > 0.0 else 0.0


@compiled(reassociate=True)
def target_point_pass(epsilon: float, delta: float, f: FloatArray, y: FloatArray, cost: FloatArray, residual: FloatArray) -> float:
    """Write u into ``residual`` and return P."""
    loss = 0.0
    for i in range(f.size):
        residual[i] = target_terms(y[i] - f[i], cost[i], epsilon, delta)[1]
    for i in range(f.size):
        loss += target_terms(y[i] - f[i], cost[i], epsilon, delta)[0]
    return loss


@compiled(reassociate=True)
def target_balance_pass(
    epsilon: float, delta: float, z: FloatArray, column: FloatArray, y: FloatArray, cost: FloatArray, g: float
) -> tuple[float, float, float]:
    """Return sum_i w_i u_i at ``z + g * w``, its negative derivative in g, and sum_i |w_i u_i|."""
    balance, slope, mass = 0.0, 0.0, 0.0
    for i in range(z.size):
        w = column[i]
        _, u, curvature = target_terms(y[i] - (z[i] + g * w), 1.0, epsilon, delta)
        balance += cost[i] * u * w
        slope += cost[i] * curvature * w * w
        mass += cost[i] * abs(u * w)
    return balance, slope, mass


@compiled(reassociate=True)
def target_line_pass(
    epsilon: float, delta: float, f: FloatArray, speed: FloatArray, y: FloatArray, cost: FloatArray, steps: FloatArray
) -> FloatArray:
    """Return P and its first and second derivatives at ``f + s * speed`` for each step s, shape (3, n_steps)."""
    out = np.zeros((3, steps.size))
    for k in range(steps.size):
        step, loss, slope, curvature = steps[k], 0.0, 0.0, 0.0
        for i in range(f.size):
            value, u, bend = target_terms(y[i] - (f[i] + step * speed[i]), 1.0, epsilon, delta)
            loss += cost[i] * value
            slope -= cost[i] * u * speed[i]
            curvature += cost[i] * bend * speed[i] * speed[i]
        out[0, k], out[1, k], out[2, k] = loss, slope, curvature
    return out


@compiled
def target_curvature_pass(epsilon: float, delta: float, residual: FloatArray, cost: FloatArray, weights: FloatArray) -> None:
    """Write the second derivatives D of P into ``weights``."""
    for i in range(residual.size):
        weights[i] = target_curvature(residual[i], cost[i], epsilon, delta)


@compiled(deferred=True)
def changed_rows(weights: FloatArray, summed: FloatArray) -> tuple[IntArray, FloatArray, int]:
    """Return the rows whose weights differ from those summed so far, the differences, and the number of non-zero weights."""
    changed, used = 0, 0
    for i in range(weights.size):
        changed += weights[i] != summed[i]
        used += weights[i] != 0.0
    rows, changes = np.empty(changed, np.int64), np.empty(changed)
    at = 0
    for i in range(weights.size):
        if weights[i] != summed[i]:
            rows[at], changes[at] = i, weights[i] - summed[i]
            at += 1
    return rows, changes, used

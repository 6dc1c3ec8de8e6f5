"""Exact elimination of unpenalised columns: a bias, which is a column of ones, and covariates.

For decision values z the best coefficients g minimise the convex function P(z + X g), so that X'u = 0. For one column, g is a root inside a
bracket. Several columns take Newton steps with S = X'DX and a line search; where the loss is linear, a majorant replaces S. For piecewise
quadratic losses the search ends after finitely many steps, and for the squared loss after one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import qr, solve_triangular

from ..arrays import FloatArray, IntArray
from ..jit import one_thread
from .line_search import BALANCE_TOL, Trial, descend, is_acceptable, solve_bias

MAX_STEPS = 200
MAX_IDLE_STEPS = 3  # Steps in a row that do not halve the imbalance after which it is called round-off.
STEADY_SHARE = 0.1  # While a step with the last S leaves at most this share of the imbalance, S is not computed anew.
FLAT = 1e-12  # Eigenvalues of S below this share of the largest one count as zero.
LEAST_FALL = 1e-12  # Relative decrease of P that counts.
MAX_DOUBLINGS = 60


class FreeSums(NamedTuple):
    """Sums over the rows at some coefficients of the unpenalised columns.

    * ``loss``: P.
    * ``pulls``, ``(q,)``: X'u, the negative gradient of P in the coefficients.
    * ``masses``, ``(q,)``: for each entry of ``pulls``, a norm of the terms in its sum.
    """

    loss: float
    pulls: FloatArray
    masses: FloatArray


class FreeRows(Protocol):
    """Rows at decision values z, with ``q`` unpenalised columns X."""

    @property
    def q(self) -> int: ...

    def balance(self, g: float) -> tuple[float, float, float]:
        """For a single column x, return x'u at ``z + g * x``, its negative derivative in g, and sum_i |x_i u_i|."""
        ...

    def free_sums(self, g: FloatArray) -> FreeSums:
        """Return the sums at z + X g."""
        ...

    def free_bends(self, g: FloatArray) -> FloatArray:
        """Return X'DX at z + X g, ``(q, q)``."""
        ...

    def free_majorant(self) -> FloatArray:
        """Return X'KX, where K holds upper bounds of the second derivatives, ``(q, q)``."""
        ...


def eliminate(rows: FreeRows, start: FloatArray, first_step: float) -> FloatArray:
    """Return the coefficients g that minimise P. If there is only one coefficient, the first step is at most ``first_step`` long."""
    if rows.q == 0:
        return start
    if rows.q == 1:
        # The balance rises with b = -g.
        return np.array([-solve_bias(lambda b: rows.balance(-b), -float(start[0]), first_step)])
    return _Search(rows, start).run()


def free_roots(bends: FloatArray) -> FloatArray:
    """Return K, ``(q, r)``, with K K' the pseudo-inverse of S = X'DX."""
    if not bends.size:
        return bends
    values, vectors = np.linalg.eigh(bends) if len(bends) > 1 else (bends.reshape(-1), np.ones(bends.shape))
    steep = values > FLAT * values.max(initial=0.0)
    return vectors[:, steep] / np.sqrt(values[steep])


class _Search:
    """Newton iteration for several coefficients."""

    def __init__(self, rows: FreeRows, start: FloatArray) -> None:
        self._rows, self._g, self._at = rows, np.array(start, np.float64), rows.free_sums(start)
        self._inverse: FloatArray | None = None
        self._falls = True

    def run(self) -> FloatArray:
        best, least, idle_steps = self._g, math.inf, 0
        for _ in range(MAX_STEPS):
            if np.all(np.abs(self._at.pulls) <= BALANCE_TOL * self._at.masses):
                return self._g
            imbalance = _largest(self._at.pulls)
            idle_steps = 0 if imbalance <= 0.5 * least else idle_steps + 1
            if imbalance < least:
                best, least = self._g, imbalance
            if idle_steps > MAX_IDLE_STEPS and not self._falls:
                break
            self._step()
        return best

    def _step(self) -> None:
        """Take a step with the previous S, or with a new S if the previous one is not accurate enough."""
        before, is_fresh = self._at, self._inverse is None
        inverse = self._invert() if self._inverse is None else self._inverse
        line = _FreeLine(self._rows, self._g, inverse @ before.pulls)
        origin = Trial(0.0, before.loss, -float(before.pulls @ line.step), math.inf)
        full = line.at([1.0])[0]
        if is_acceptable(full, origin):
            trial = _extended(line, full, origin)
        else:
            trial = descend(line, origin) if is_fresh else origin
        if trial.step > 0.0:
            self._g, self._at = self._g + trial.step * line.step, line.sums[trial.step]
        is_steady = trial.step == 1.0 and _largest(self._at.pulls) <= STEADY_SHARE * _largest(before.pulls)
        self._inverse = inverse if is_steady else None
        self._falls = not is_fresh or self._at.loss < before.loss * (1.0 - LEAST_FALL)

    def _invert(self) -> FloatArray:
        """Return the inverse of S. In directions where S is flat, return the inverse of the majorant.

        If S is steep in other directions, only the steep or only the flat directions are used, whichever have the larger gradient. A step
        along both would always be as short as the steep directions require.
        """
        values, vectors = np.linalg.eigh(self._rows.free_bends(self._g))
        majorant = self._rows.free_majorant()
        # Where all rows lie far out nothing bends: what is next to nothing beside the majorant is no model of P either.
        is_steep = values > FLAT * max(float(values[-1]), FLAT * float(np.trace(majorant)))
        steep, flat = vectors[:, is_steep], vectors[:, ~is_steep]
        pulls = self._at.pulls
        if np.linalg.norm(flat.T @ pulls) <= np.linalg.norm(steep.T @ pulls):
            return (steep / values[is_steep]) @ steep.T
        return np.asarray(flat @ np.linalg.pinv(flat.T @ majorant @ flat, hermitian=True) @ flat.T, np.float64)


def _largest(pulls: FloatArray) -> float:
    return float(np.max(np.abs(pulls)))


class _FreeLine:
    """The loss P along a step of the coefficients; ``sums`` stores the results at each step."""

    def __init__(self, rows: FreeRows, g: FloatArray, step: FloatArray) -> None:
        self._rows, self._g, self.step = rows, g, step
        self.sums: dict[float, FreeSums] = {}

    def at(self, steps: list[float]) -> list[Trial]:
        """Return value and slope at each step, without the curvature."""
        trials = []
        for step in steps:
            found = self.sums[step] = self._rows.free_sums(self._g + step * self.step)
            trials.append(Trial(step, found.loss, -float(found.pulls @ self.step), math.inf))
        return trials


def _extended(line: _FreeLine, trial: Trial, origin: Trial) -> Trial:
    """Return an acceptable step. It is doubled as long as the slope of P is at least half of the slope at the start, because the loss is
    then still linear.
    """
    for _ in range(MAX_DOUBLINGS):
        if trial.slope > 0.5 * origin.slope:
            break
        further = line.at([2.0 * trial.step])[0]
        if not further.value < trial.value:
            break
        trial = further
    return trial


# A basis of columns without a penalty in which systems are well conditioned, and what forbids that their coefficients are eliminated.
#
# Covariates may be years and incomes side by side. In their place solvers see orthogonal columns of mean square 1 that span the same, so
# that no tolerance depends on a unit; coefficients are turned back where they are told.

DEPENDENT = 1e-10  # Share of a column's length that others leave, below which it is called a combination of them.
SUSPICIOUS = 20.0  # Decision values of covariates alone beyond which it is looked whether they separate the classes.
SEPARATED = 1e-7  # Greatest margin of directions of length 1 that counts as separating.


class DependentColumns(ValueError):
    """Raised if some columns are linear combinations of others; ``columns`` lists them."""

    def __init__(self, columns: list[int]) -> None:
        super().__init__(f"columns {columns} are linear combinations of other columns")
        self.columns = columns


@dataclass(frozen=True)
class FreeBasis:
    """Basis of the unpenalised columns, ``(n, q)`` in C order: the bias, if there is one, and the given columns.

    * ``has_bias``: whether the first column is constant 1.
    * ``means``: the means of the given columns, which are subtracted if there is a bias.
    * ``to_given``, ``to_own``: maps from the coefficients of the columns after the bias to the coefficients of the given columns, and back.
    """

    columns: FloatArray
    has_bias: bool
    means: FloatArray
    to_given: FloatArray
    to_own: FloatArray

    @property
    def q(self) -> int:
        return self.columns.shape[1]

    @property
    def spans_constant(self) -> bool:
        """Whether a column of ones is a combination of the columns."""
        if self.has_bias or not self.q:
            return self.has_bias
        n = len(self.columns)
        left = 1.0 - self.columns @ (self.columns.sum(axis=0) / n)
        return bool(left @ left <= DEPENDENT**2 * n)

    def given(self, g: FloatArray) -> tuple[float, FloatArray]:
        """Return the constant and the coefficients of the given columns from the coefficients of the basis."""
        coef = self.to_given @ g[int(self.has_bias) :]
        return (float(g[0] - self.means @ coef) if self.has_bias else 0.0), coef

    def own(self, constant: float, coef: FloatArray) -> FloatArray:
        """Return the coefficients of the basis from a constant and the coefficients of the given columns."""
        turned = self.to_own @ coef
        return np.append(constant + self.means @ coef, turned) if self.has_bias else turned


@lru_cache(maxsize=4)
def bias_basis(n: int, has_bias: bool) -> FreeBasis:
    """Return the basis of a bias alone, or an empty basis, shared by all models of a fit."""
    none = np.zeros((0, 0))
    return FreeBasis(np.ones((n, int(has_bias))), has_bias, np.zeros(0), none, none)


def free_basis(given: FloatArray, has_bias: bool) -> FreeBasis:
    """Return the basis of given columns, ``(n, q)``. Raises DependentColumns if a column is a linear combination of others (with a bias,
    also of a constant).
    """
    n, q = given.shape
    roots, means = np.sqrt(n), given.mean(axis=0) if has_bias else np.zeros(q)
    centred = np.subtract(given, means, order="F")
    lengths, dependent, Q, R, order = _factor(centred, given)
    if dependent:
        raise DependentColumns(dependent)
    upper = R * lengths[order] / roots
    to_own, to_given = np.empty((q, q)), np.empty((q, q))
    to_own[:, order], to_given[order] = upper, solve_triangular(upper, np.eye(q))
    columns = np.empty((n, q + has_bias))
    columns[:, :has_bias] = 1.0
    np.multiply(Q, roots, out=columns[:, has_bias:])
    return FreeBasis(columns, has_bias, means, to_given, to_own)


def constant_columns(given: FloatArray) -> list[int]:
    """Return the columns with the same value in all rows."""
    return np.flatnonzero(given.min(axis=0) == given.max(axis=0)).tolist() if len(given) else []


def dependent_columns(given: FloatArray, has_bias: bool) -> list[int]:
    """Return the columns that are linear combinations of others (with a bias, also of a constant). They come last in a pivoted QR
    factorisation.
    """
    if not len(given):
        return list(range(given.shape[1]))
    means = given.mean(axis=0) if has_bias else np.zeros(given.shape[1])
    return _factor(np.subtract(given, means, order="F"), given)[1]


def _factor(centred: FloatArray, given: FloatArray) -> tuple[FloatArray, list[int], FloatArray, FloatArray, IntArray]:
    """Factorise columns in Fortran order, scaled to unit length. Q overwrites the columns. Return five results:

    * the lengths;
    * the dependent columns;
    * Q, R and the pivot order.
    """
    lengths = np.empty(centred.shape[1])
    for k, column in enumerate(centred.T):
        # By the greatest entry first: the square of a number may overflow.
        top = float(np.abs(column).max()) or 1.0
        column /= top
        lengths[k] = float(np.linalg.norm(column)) * top
        column /= (lengths[k] or 1.0) / top
    with one_thread():
        parts: Any = qr(centred, mode="economic", pivoting=True, check_finite=False, overwrite_a=True)
    Q, R, order = parts
    left = np.zeros(len(order))
    left[: len(R)] = np.abs(np.diag(R))
    flat = lengths[order] <= DEPENDENT * np.sqrt(len(given)) * np.abs(given).max(axis=0)[order]
    return lengths, sorted(order[(left <= DEPENDENT) | flat].tolist()), Q, R, order


def separates_alone(column: FloatArray, y: FloatArray, has_bias: bool) -> bool:
    """Return whether one column separates the labels by a threshold (0 without a bias), apart from rows exactly at the threshold."""
    up, down = column[y > 0], column[y < 0]
    if not has_bias:
        up, down = np.append(up, -down), np.zeros(1)
    return bool(up.min() >= down.max() or up.max() <= down.min())


def separating_direction(columns: FloatArray, y: FloatArray, cost: FloatArray) -> FloatArray | None:
    """Return coefficients d with y_i x_i'd >= 0 in all rows with positive cost, and > 0 in some of them. Return None if no such d exists.

    If d exists, logistic losses have no finite optimum. This solves a linear program and is called only if separation is likely.
    """
    from scipy.optimize import linprog  # loaded on demand: it takes a third of a second

    used = cost > 0
    margins = columns[used] * y[used, None]
    # Rows are divided by their lengths, which changes no sign.
    margins = margins / np.maximum(np.linalg.norm(margins, axis=1, keepdims=True), np.finfo(float).tiny)
    found = linprog(-margins.sum(axis=0), A_ub=-margins, b_ub=np.zeros(len(margins)), bounds=(-1.0, 1.0), method="highs")
    if found.x is None or float(np.max(margins @ found.x, initial=0.0)) <= SEPARATED:
        return None
    return np.asarray(found.x, np.float64)

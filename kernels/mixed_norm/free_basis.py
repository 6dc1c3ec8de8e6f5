"""A basis of columns without a penalty in which systems are well conditioned, and what forbids that their coefficients are eliminated.

Covariates may be years and incomes side by side. In their place solvers see orthogonal columns of mean square 1 that span the same, so that
no tolerance depends on a unit; coefficients are turned back where they are told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import qr, solve_triangular
from scipy.optimize import linprog

from ..arrays import FloatArray, IntArray
from ..jit import one_thread

DEPENDENT = 1e-10  # Share of a column's length that others leave, below which it is called a combination of them.
SUSPICIOUS = 20.0  # Decision values of covariates alone beyond which it is looked whether they separate the classes.
SEPARATED = 1e-7  # Greatest margin of directions of length 1 that counts as separating.


class DependentColumns(ValueError):
    """Columns are combinations of others; ``columns`` says which."""

    def __init__(self, columns: list[int]) -> None:
        super().__init__(f"columns {columns} are combinations of others")
        self.columns = columns


@dataclass(frozen=True)
class FreeBasis:
    """Columns without a penalty, ``(n, q)`` in C order, of ``bias + given coefficients``; the first is of ones where ``has_bias``.

    ``means``: of the given columns, which a bias takes out of them; ``to_given``, ``to_own``: coefficients of the columns behind the bias
    to those of the given ones, and back.
    """

    columns: FloatArray
    has_bias: bool
    means: FloatArray
    to_given: FloatArray
    to_own: FloatArray

    @property
    def q(self) -> int:
        """Number of columns."""
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
        """Return the constant and the coefficients of the given columns from those of the basis."""
        coef = self.to_given @ g[int(self.has_bias) :]
        return (float(g[0] - self.means @ coef) if self.has_bias else 0.0), coef

    def own(self, constant: float, coef: FloatArray) -> FloatArray:
        """Return the coefficients of the basis from a constant and those of the given columns."""
        turned = self.to_own @ coef
        return np.append(constant + self.means @ coef, turned) if self.has_bias else turned


@lru_cache(maxsize=4)
def bias_basis(n: int, has_bias: bool) -> FreeBasis:
    """Return the basis of a bias alone, or of nothing: one for all machines of a fit."""
    none = np.zeros((0, 0))
    return FreeBasis(np.ones((n, int(has_bias))), has_bias, np.zeros(0), none, none)


def free_basis(given: FloatArray, has_bias: bool) -> FreeBasis:
    """Return the basis of given columns, ``(n, q)``. Raises DependentColumns: some are combinations of others (and of a constant, beside a
    bias).
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
    """Return the columns with one value in all rows."""
    return np.flatnonzero(given.min(axis=0) == given.max(axis=0)).tolist() if len(given) else []


def dependent_columns(given: FloatArray, has_bias: bool) -> list[int]:
    """Return the columns that are combinations of others (and of a constant, beside a bias): those that a pivoted QR leaves for the end."""
    if not len(given):
        return list(range(given.shape[1]))
    means = given.mean(axis=0) if has_bias else np.zeros(given.shape[1])
    return _factor(np.subtract(given, means, order="F"), given)[1]


def _factor(centred: FloatArray, given: FloatArray) -> tuple[FloatArray, list[int], FloatArray, FloatArray, IntArray]:
    """Return the lengths of columns in Fortran order, which are those that depend on others, and Q, R and order of the columns divided by
    their lengths; Q takes their place.
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
    """Whether labels are a threshold of one column (of 0 without a bias), but for rows at the threshold."""
    up, down = column[y > 0], column[y < 0]
    if not has_bias:
        up, down = np.append(up, -down), np.zeros(1)
    return bool(up.min() >= down.max() or up.max() <= down.min())


def separating_direction(columns: FloatArray, y: FloatArray, cost: FloatArray) -> FloatArray | None:
    """Return coefficients d with y_i x_i'd >= 0 in all rows with a cost, > 0 in some, if there are any: logistic losses have no finite
    optimum then. A linear program, for the case of doubt.
    """
    used = cost > 0
    margins = columns[used] * y[used, None]
    # Rows are divided by their lengths, which changes no sign.
    margins = margins / np.maximum(np.linalg.norm(margins, axis=1, keepdims=True), np.finfo(float).tiny)
    found = linprog(-margins.sum(axis=0), A_ub=-margins, b_ub=np.zeros(len(margins)), bounds=(-1.0, 1.0), method="highs")
    if found.x is None or float(np.max(margins @ found.x, initial=0.0)) <= SEPARATED:
        return None
    return np.asarray(found.x, np.float64)

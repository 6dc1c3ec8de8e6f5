r"""The tri-class support vector machine: losses, assignments, and the convex problems that majorise its objective.

.. math::

    J(w, b) = \frac{\lambda}{2} \|w\|^2 + \sum_{y_i = \pm 1} r_i H_1(y_i f_i) + \sum_{y_i = 0} r_i I_\varepsilon(f_i)
    + \sum_{i \in U} r_i \min\{H_1(|f_i|), I_\varepsilon(f_i)\},

with :math:`f = w'\phi(x) + b`, :math:`H_1(u) = \max(0, 1 - u)` and :math:`I_\varepsilon(u) = \max(0, |u| - \varepsilon)`. Each row belongs
to one of two classes, to neither class, or to the set U of unlabelled rows, which may belong to a class or to neither (source: Yang,
"Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5, (5.2)). With
:math:`r_i = c_i \lambda` the costs :math:`c_i` are the costs of a support vector machine. All values here are divided by :math:`\lambda`,
like :math:`J / \lambda`.

The loss of an unlabelled row has three convex pieces, and an assignment t in {-1, 0, +1} picks one. For a given assignment, minimising J is
a dual of :mod:`gramplane.kernels.svm.dual` in signed variables: targets y or t, boxes by sign, and a kink for rows at 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from .decomposition import PartGram
from .dual import DualProblem
from .gram_access import Gram, RepeatedGram

# -- losses ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Points:
    """The rows of a fit with their labels and costs.

    * ``labels``, ``(n,)``: -1, +1, or 0 for rows of neither class and for unlabelled rows.
    * ``unlabelled``, ``(n,)``: marks the unlabelled rows.
    * ``cost``, ``(n,)``: c_i = r_i / lambda, where 0 leaves a row out.
    * ``eps``, 0 <= eps < 1: half the width of the tube.
    * ``all_relevant``: restricts the loss of unlabelled rows to ``H_1(|f|)``, a semi-supervised SVM without irrelevant rows (S3VM).
    * ``balance``: the required mean of f over the unlabelled rows.
    """

    labels: FloatArray
    unlabelled: NDArray[np.bool_]
    cost: FloatArray
    eps: float
    all_relevant: bool = False
    balance: float | None = None

    @property
    def n(self) -> int:
        return len(self.labels)


def crossing_point(eps: float) -> float:
    """Return the |f| at which the two losses of an unlabelled row are equal, (1 + eps) / 2."""
    return 0.5 * (1.0 + eps)


def min_loss(f: FloatArray, eps: float, all_relevant: bool = False) -> FloatArray:
    """Return min{H_1(|f|), I_eps(f)}, or H_1(|f|) alone if every row is relevant."""
    size = np.abs(f)
    hinge = np.maximum(1.0 - size, 0.0)
    return hinge if all_relevant else np.minimum(hinge, np.maximum(size - eps, 0.0))


def row_losses(points: Points, f: FloatArray) -> FloatArray:
    """Return the loss of each row, without its cost."""
    known = np.where(points.labels == 0.0, np.maximum(np.abs(f) - points.eps, 0.0), np.maximum(1.0 - points.labels * f, 0.0))
    return np.where(points.unlabelled, min_loss(f, points.eps, points.all_relevant), known)


def objective_value(points: Points, form: float, f: FloatArray) -> float:
    """Return J / lambda at decision values f; ``form`` is ||w||^2."""
    return 0.5 * form + float(points.cost @ row_losses(points, f))


def assign_labels(points: Points, f: FloatArray) -> FloatArray:
    """Return the labels. Unlabelled rows get the piece of smaller loss; in a tie, they get the hinge (5.5)."""
    sides = np.where(f >= 0.0, 1.0, -1.0)
    labels = sides if points.all_relevant else np.where(np.abs(f) >= crossing_point(points.eps), sides, 0.0)
    return np.where(points.unlabelled, labels, points.labels)


def three_way(f: FloatArray, eps: float) -> IntArray:
    """Return -1, 0 or +1 for values ``(n,)``: 0 where |f| < (1 + eps) / 2.

    For values ``(n, K)`` of K classes, one against the rest, return the class with the largest value, or -1 where every |f| is below.
    """
    if f.ndim == 2:
        return np.where(np.all(np.abs(f) < crossing_point(eps), axis=1), -1, f.argmax(axis=1))
    return np.where(np.abs(f) < crossing_point(eps), 0, np.where(f > 0, 1, -1)).astype(np.int64)


# -- convex problems -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convex:
    """A convex problem over the rows: beta is ``fixed`` plus the sum of each row's variables.

    * ``rows``, ``(N,)``: the row of each variable. The first n variables are the rows in order; the rest are second variables of some rows.
    * ``target``, ``(N,)``: the linear term.
    * ``lo``, ``hi``, ``(N,)``: the box.
    * ``kink``, ``(N,)``: the kink.
    * ``fixed``, ``(n,)``: the slopes of concave pieces.
    """

    rows: IntArray
    target: FloatArray
    lo: FloatArray
    hi: FloatArray
    kink: FloatArray
    fixed: FloatArray

    def beta(self, variables: FloatArray) -> FloatArray:
        """Return the coefficients of the rows, shape (n,)."""
        n = len(self.fixed)
        return self.fixed + (variables if len(variables) == n else np.bincount(self.rows, variables, n))

    def problem(self, product: FloatArray) -> DualProblem:
        """Return the dual problem; ``product`` is K fixed."""
        return DualProblem(self.target - product[self.rows], self.lo, self.hi, self.kink, -float(self.fixed.sum()))


def majorant(points: Points, labels: FloatArray) -> Convex:
    """Return the exact problem of an assignment: hinge losses for labels -1 and +1, tubes for 0."""
    cost = points.cost
    lo, hi = np.where(labels > 0, 0.0, -cost), np.where(labels < 0, 0.0, cost)
    return Convex(np.arange(points.n), labels.copy(), lo, hi, np.where(labels == 0.0, points.eps, 0.0), np.zeros(points.n))


def _with_tubes(points: Points, first: FloatArray, factor: float, second: FloatArray | None, slopes: FloatArray) -> Convex:
    """Return the problem with unlabelled rows as one tube of cost ``factor * r``, or two tubes of cost r, minus ``slopes * r * f``."""
    base, free = majorant(points, points.labels), np.flatnonzero(points.unlabelled)
    kink, lo, hi = base.kink.copy(), base.lo.copy(), base.hi.copy()
    kink[free], lo[free], hi[free] = first[free], -factor * points.cost[free], factor * points.cost[free]
    one = replace(base, lo=lo, hi=hi, kink=kink, fixed=np.where(points.unlabelled, points.cost * slopes, 0.0))
    if second is None:
        return one
    cost = points.cost[free]
    more = {"rows": free, "target": np.zeros(len(free)), "lo": -cost, "hi": cost, "kink": second[free]}
    return replace(one, **{name: np.concatenate([getattr(one, name), values]) for name, values in more.items()})


def concave_linearised(points: Points, labels: FloatArray) -> Convex:
    """Return the problem of the exact difference of convex functions, with the concave part linearised at an assignment.

    min{H_1(|u|), I_eps(u)} = (|u| - eps)_+ + (|u| - 1)_+ - 2 (|u| - c)_+ with c = (1 + eps) / 2; H_1(|u|) = (|u| - 1)_+ + 1 - |u|.
    """
    ones = np.ones(points.n)
    if points.all_relevant:
        return _with_tubes(points, ones, 1.0, None, labels)
    return _with_tubes(points, points.eps * ones, 1.0, ones, 2.0 * labels)


def relaxed_problem(points: Points, slopes: FloatArray, D: float) -> Convex:
    """Return the thesis' sub-problem (C.1) with its indicators d in [0, 1] eliminated.

    For a given f, the minimum over d of the four losses of a row is max(0, 2 |f| - (D - 1) - eps), a single tube, for every D >= 1 +
    eps.
    """
    return _with_tubes(points, np.full(points.n, 0.5 * (D - 1.0 + points.eps)), 2.0, None, slopes)


def with_indicators(points: Points, labels: FloatArray, D: float) -> Convex:
    """Return the thesis' sub-problem (C.1) for the fixed indicators d = |t| of an assignment: two tubes per row."""
    inside = labels == 0.0
    return _with_tubes(points, np.where(inside, points.eps, 1.0), 1.0, np.where(inside, D - 1.0, points.eps + D), labels)


# Matrices made of one that hands out parts: with repeated rows, and with the mean of some points as one more point.

Parts = Iterator[tuple[IntArray, IntArray, Array]]


class RepeatedParts(RepeatedGram):
    """A :class:`RepeatedGram` of a matrix that returns parts; it returns parts, too."""

    gram: PartGram

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.gram.dtype

    @property
    def room(self) -> int:
        """Number of entries, in the type of the matrix, that the caller may hold in memory."""
        return self.gram.room

    def between(self, new: IntArray, old: IntArray) -> Parts:
        """Yield entries as (row positions, column positions, values). Variables on the same row have equal entries."""
        yield from self.gram.between(self.places[new], self.places[old])


def repeated_gram(gram: Gram, places: IntArray) -> RepeatedGram:
    """Return the matrix with rows ``places`` of ``gram``; it returns parts if ``gram`` does."""
    return (RepeatedParts if isinstance(gram, PartGram) else RepeatedGram)(gram, places)


class MeanParts:
    """A matrix that returns parts, extended by the mean of the points ``chosen``, ``(n,)``, as its last point.

    The entries of the mean come from one product, ``(n,)`` numbers, and are rounded to the type of the parts like all other entries.
    """

    def __init__(self, gram: PartGram, chosen: NDArray[np.bool_]) -> None:
        weights = chosen / np.count_nonzero(chosen)
        row = gram.matvec(weights)
        self._gram, self.n, self.dtype = gram, gram.n + 1, gram.dtype
        self._row: Array = np.append(row, row @ weights).astype(gram.dtype)

    @property
    def room(self) -> int:
        """Number of entries, in the type of the matrix, that the caller may hold in memory."""
        return self._gram.room

    def diag(self) -> FloatArray:
        """Return the diagonal, shape (n + 1,)."""
        return np.append(self._gram.diag(), np.float64(self._row[-1]))

    def rows(self, idx: IntArray) -> Array:
        """Return rows ``idx``, shape (len(idx), n + 1), by products with unit vectors; meant for the few rows that a check needs."""
        return np.reshape([self.matvec(np.eye(1, self.n, int(i))[0]) for i in idx], (len(idx), self.n))

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v, shape (n + 1,)."""
        row = self._row.astype(np.float64)
        return np.append(self._gram.matvec(v[:-1]) + v[-1] * row[:-1], row @ v)

    def between(self, new: IntArray, old: IntArray) -> Parts:
        """Yield entries as (row positions, column positions, values), with the entries of the mean last."""
        ids, last = np.concatenate([new, old]), self.n - 1
        (mean,), places = (ids == last).nonzero(), np.flatnonzero(ids != last)
        if np.any(new != last):
            for rows, columns, values in self._gram.between(new[new != last], old[old != last]):
                yield places[rows], places[columns], values
        if len(mean):
            # As an old variable it has new ones for partners; the others it knows already.
            columns = np.arange(len(ids) if mean[0] < len(new) else len(new))
            yield mean, columns, self._row[ids[columns]][None]

"""Basic propositions about one column each: from training values to cuts and categories, and from values to truth.

A numeric column gives ``x <= t`` and ``x > t`` for cuts t at quantiles of its training values, a categorical one ``x = c`` and ``x != c``
for every training category c (one pair for two of them), a column with missing values ``x is missing``. A comparison with a missing value
is false, and so is every comparison of a category that training did not have. Constant columns give nothing. Source: Jawanpuria, "Learning
Kernels for Multiple Predictive Tasks", PhD thesis, 2014, section 5.4; positions of cuts are not stated there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray

AT_MOST, ABOVE, EQUAL, DIFFERENT, MISSING = range(5)
SIGNS = ("<=", ">", "=", "!=", "is missing")


@dataclass(frozen=True)
class Propositions:
    """Propositions with the categories that training knew."""

    record_name: ClassVar[str] = "Propositions"
    column: IntArray  # (p,) feature of each
    kind: IntArray  # (p,) AT_MOST, ABOVE, EQUAL, DIFFERENT or MISSING
    cut: FloatArray  # (p,) threshold or category; 0 for MISSING
    known_column: IntArray  # (c,) categorical columns and their training categories, by column, then value
    known_value: FloatArray

    @classmethod
    def none(cls) -> Propositions:
        """Return no propositions."""
        indices, numbers = np.zeros(0, np.int64), np.zeros(0)
        return cls(indices, indices, numbers, indices, numbers)

    @property
    def size(self) -> int:
        """Number of propositions."""
        return len(self.column)

    def take(self, ids: IntArray) -> Propositions:
        """Return some of them, and the categories of their columns."""
        mine = np.isin(self.known_column, self.column[ids])
        return Propositions(self.column[ids], self.kind[ids], self.cut[ids], self.known_column[mine], self.known_value[mine])

    @classmethod
    def joined_all(cls, parts: Sequence[Propositions]) -> Propositions:
        """Return the propositions of several lists, of different columns, one after the other."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def categories(self, column: int) -> FloatArray:
        """Return the training categories of a column; none for a numeric one."""
        return self.known_value[self.known_column == column]

    def flags(self, ids: IntArray, column: int, values: FloatArray) -> NDArray[np.bool_]:
        """Return which of some propositions about one column hold of its values, (len(ids), n)."""
        known = self.categories(column)
        comparable = np.isin(values, known) if len(known) else ~np.isnan(values)
        return np.stack([holds(int(self.kind[j]), float(self.cut[j]), values, comparable) for j in ids])

    def unseen(self, column: int, values: FloatArray) -> int:
        """Return how many values of a categorical column training did not have."""
        known = self.categories(column)
        return int(np.sum(~np.isin(values, known) & ~np.isnan(values))) if len(known) else 0


def holds(kind: int, cut: float, values: FloatArray, comparable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return where one proposition is true; ``comparable`` marks values that can be compared."""
    if kind == MISSING:
        return np.isnan(values)
    if kind == AT_MOST:
        return comparable & (values <= cut)
    if kind == ABOVE:
        return comparable & (values > cut)
    return comparable & ((values == cut) if kind == EQUAL else (values != cut))


def column_propositions(
    column: int, values: FloatArray, n_thresholds: int, categorical: bool, counts: FloatArray | None = None
) -> Propositions:
    """Return the propositions of one column from its training values ``(n,)``, NaN for missing ones. A numeric column with more than
    ``n_thresholds`` distinct values is cut at its quantiles 1 / (n_thresholds + 1), ..., one with fewer between all. The values of a
    categorical column are names; columns of two values are taken for that, too. ``counts`` ``(n,)``: how often values count.
    """
    missing = np.isnan(values)
    distinct = np.unique(values[~missing])
    kinds, cuts = [], []
    names = len(distinct) if categorical or len(distinct) == 2 else 0
    if names == 2:
        kinds, cuts = [EQUAL, EQUAL], distinct.tolist()
    elif names > 2:
        kinds, cuts = [EQUAL, DIFFERENT] * names, np.repeat(distinct, 2).tolist()
    elif names == 0 and len(distinct) > 2:
        thresholds = choose_cuts(distinct, values[~missing], n_thresholds, None if counts is None else counts[~missing])
        kinds, cuts = [AT_MOST, ABOVE] * len(thresholds), np.repeat(thresholds, 2).tolist()
    if missing.any() and not missing.all():
        kinds, cuts = [*kinds, MISSING], [*cuts, 0.0]
    known = (distinct if names >= 2 else distinct[:0]).astype(np.float64)
    columns = [np.full(len(each), column, np.int64) for each in (kinds, known)]
    return Propositions(columns[0], np.array(kinds, np.int64), np.array(cuts, np.float64), columns[1], known)


def choose_cuts(distinct: FloatArray, values: FloatArray, count: int, counts: FloatArray | None = None) -> FloatArray:
    """Return at most ``count`` cuts between distinct sorted values: at quantiles of ``values``, each as often as ``counts`` says,
    halfway to the next value above.
    """
    if len(distinct) - 1 <= count:
        below = np.arange(len(distinct) - 1)
    else:
        quantiles = np.quantile(values, np.arange(1, count + 1) / (count + 1), weights=counts, method="inverted_cdf")
        below = np.unique(np.searchsorted(distinct, quantiles))
        below = below[below < len(distinct) - 1]
    low, high = distinct[below], distinct[below + 1]
    middle = low + 0.5 * (high - low)
    # Neighbours without a number between them: the lower one itself still parts them.
    return np.where((middle > low) & (middle < high), middle, low)


def proposition_text(kind: int, cut: float, name: str, category: str | None = None) -> str:
    """Return a proposition as people read it, ``category`` being the name of a category. The number in it parts the same values."""
    if kind == MISSING:
        return f"{name} is missing"
    return f"{name} {SIGNS[kind]} {category if category is not None else _number_text(cut, is_exact=kind in (EQUAL, DIFFERENT))}"


def _number_text(cut: float, *, is_exact: bool) -> str:
    """Return a number in the fewest digits, six at least, that mean it; a cut lies halfway, so the rounding of its last bits is nothing."""
    rounding = 0.0 if is_exact else 2 * np.spacing(abs(cut))
    texts = (f"{cut:.{digits}g}" for digits in range(6, 18))
    return next(text for text in texts if abs(float(text) - cut) <= rounding)

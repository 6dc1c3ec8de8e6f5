"""Basic propositions about one column each: their cuts and categories from training values, and their truth for given values.

A numeric column gives ``x <= t`` and ``x > t`` for cuts t at quantiles of its training values. A categorical column gives ``x = c`` and
``x != c`` for each training category c (only one pair if there are two categories). A column with missing values also gives
``x is missing``. A comparison with a missing value is false, and so is any comparison of a category that was not in training. Constant
columns give no propositions. Source: Jawanpuria, "Learning Kernels for Multiple Predictive Tasks", PhD thesis, 2014, section 5.4, which
does not state the positions of cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from .row_losses import HINGE, RowLoss

AT_MOST, ABOVE, EQUAL, DIFFERENT, MISSING = range(5)
SIGNS = ("<=", ">", "=", "!=", "is missing")


@dataclass(frozen=True)
class Propositions:
    """Propositions with the categories that occurred in training."""

    record_name: ClassVar[str] = "Propositions"
    column: IntArray  # (p,) feature of each
    kind: IntArray  # (p,) AT_MOST, ABOVE, EQUAL, DIFFERENT or MISSING
    cut: FloatArray  # (p,) threshold or category; 0 for MISSING
    known_column: IntArray  # (c,) categorical columns and their training categories, by column, then value
    known_value: FloatArray

    @classmethod
    def none(cls) -> Propositions:
        indices, numbers = np.zeros(0, np.int64), np.zeros(0)
        return cls(indices, indices, numbers, indices, numbers)

    @property
    def size(self) -> int:
        return len(self.column)

    def take(self, ids: IntArray) -> Propositions:
        """Return some of the propositions, with the categories of their columns."""
        mine = np.isin(self.known_column, self.column[ids])
        return Propositions(self.column[ids], self.kind[ids], self.cut[ids], self.known_column[mine], self.known_value[mine])

    @classmethod
    def joined_all(cls, parts: Sequence[Propositions]) -> Propositions:
        """Return the propositions of several lists, about different columns, in one list."""
        return cls(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(cls)))

    def categories(self, column: int) -> FloatArray:
        """Return the training categories of a column; empty for a numeric one."""
        return self.known_value[self.known_column == column]

    def flags(self, ids: IntArray, column: int, values: FloatArray) -> NDArray[np.bool_]:
        """Return where propositions ``ids``, all about one column, hold for the column's values, (len(ids), n)."""
        known = self.categories(column)
        comparable = np.isin(values, known) if len(known) else ~np.isnan(values)
        return np.stack([holds(int(self.kind[j]), float(self.cut[j]), values, comparable) for j in ids])

    def unseen(self, column: int, values: FloatArray) -> int:
        """Return how many values of a categorical column were not in training."""
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
    """Return the propositions of one column from its training values ``(n,)``, NaN if missing.

    A numeric column is cut between all its distinct values if this takes at most ``n_thresholds`` cuts, otherwise at its quantiles k
    / (n_thresholds + 1) with k = 1, 2, ... In a categorical column, each distinct value is a category. A column of two distinct
    values is treated as categorical. ``counts`` ``(n,)`` is the multiplicity of each value.
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
    """Return at most ``count`` cuts between distinct sorted values: at quantiles of ``values``, weighted by ``counts``. Each cut is midway
    to the next larger value.
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
    """Return a proposition as readable text; ``category`` is the name of a category. The number shown divides the values in the same way as
    the cut.
    """
    if kind == MISSING:
        return f"{name} is missing"
    return f"{name} {SIGNS[kind]} {category if category is not None else _number_text(cut, is_exact=kind in (EQUAL, DIFFERENT))}"


def _number_text(cut: float, *, is_exact: bool) -> str:
    """Return a number with the fewest digits, at least six, that identify it. For a cut, which is a midpoint, the last bits do
    not matter.
    """
    rounding = 0.0 if is_exact else 2 * np.spacing(abs(cut))
    texts = (f"{cut:.{digits}g}" for digits in range(6, 18))
    return next(text for text in texts if abs(float(text) - cut) <= rounding)


# Cuts of rules moved to where the loss is least, all positions of a cut at once.
#
# With the machine fixed, the truth of one proposition ``x <= t`` adds G_i = sum of the weights of the rules it stands in, where their other
# propositions hold, to a row's decision. Sorted by x, the loss at every t is a running sum of what each row gains by being let in.

Flags = NDArray[np.uint8]


@dataclass(frozen=True)
class CutMachine:
    """A rule ensemble whose cuts may be moved."""

    items: Sequence[Sequence[int]]  # propositions of every rule
    weights: FloatArray  # (R, T)
    bias: FloatArray  # (T,)
    rows: Sequence[IntArray]  # of every task, as y and cost
    y: Sequence[FloatArray]
    cost: Sequence[FloatArray]
    row_loss: RowLoss = HINGE

    def loss(self, decisions: FloatArray) -> float:
        """Return the loss of decision values before the bias, (n, T)."""
        tasks, row = enumerate(zip(self.rows, self.y, self.cost, strict=True)), self.row_loss
        losses = ((cost * row.of_arguments(row.arguments(y, decisions[rows, t] - self.bias[t]))).sum() for t, (rows, y, cost) in tasks)
        return float(sum(losses))

    def decisions(self, flags: Flags) -> FloatArray:
        """Return sum_r w_r phi_r before the bias, (n, T)."""
        return np.asarray(np.stack([_rule_truth(flags, item) for item in self.items], axis=1) @ self.weights, np.float64)


def _rule_truth(flags: Flags, item: Sequence[int]) -> FloatArray:
    return np.logical_and.reduce(flags[list(item)], axis=0).astype(np.float64) if len(item) else np.ones(flags.shape[1])


def rule_gains(machine: CutMachine, flags: Flags, e: int) -> FloatArray:
    """Return the contribution of proposition e to the decision value of a row where it holds, ``(n, T)``.

    This is the sum of the weights of the rules that contain e and whose other propositions hold.
    """
    with_e = [r for r, item in enumerate(machine.items) if e in item]
    others = np.stack([_rule_truth(flags, [j for j in machine.items[r] if j != e]) for r in with_e], axis=1)
    return np.asarray(others @ machine.weights[with_e], np.float64)


def cut_changes(machine: CutMachine, flags: Flags, decisions: FloatArray, e: int) -> FloatArray:
    """Return by how much the loss of each row changes if proposition e becomes true for this row, ``(n,)``.

    ``flags`` are the truth values of the propositions, uint8 ``(p, n)``, and ``decisions`` ``(n, T)`` the corresponding decision values.
    """
    gain = rule_gains(machine, flags, e)
    without_e = decisions - gain * flags[e][:, None]
    change, loss = np.zeros(len(decisions)), machine.row_loss
    for t, (rows, y, cost) in enumerate(zip(machine.rows, machine.y, machine.cost, strict=True)):
        base = loss.arguments(y, without_e[rows, t] - machine.bias[t])
        # Rows of a task are distinct.
        change[rows] += cost * loss.of_arguments(base - loss.signs(y) * gain[rows, t]) - cost * loss.of_arguments(base)
    return change


def find_best_cut(change: FloatArray, kind: int, cut: float, values: FloatArray) -> float:
    """Return the cut with the lowest loss, or the present cut if no other is better.

    ``change`` comes from :func:`cut_changes`, ``kind`` is ``AT_MOST`` or ``ABOVE``, and ``values`` ``(n,)`` is the proposition's column,
    NaN if missing.
    """
    order = np.argsort(values, kind="stable")
    order = order[: int(np.sum(~np.isnan(values)))]
    ordered = values[order]
    # loss[i]: the first i rows in order are at most t.
    running = np.concatenate([[0.0], np.cumsum(change[order])])
    loss = running if kind == AT_MOST else running[-1] - running
    ends = np.flatnonzero(np.diff(ordered) > 0) + 1
    if not len(ends):
        return cut
    now = loss[int(np.searchsorted(ordered, cut, side="right"))]
    best = int(ends[np.argmin(loss[ends])])
    if not loss[best] < now - 1e-12 * (abs(now) + 1.0):
        return cut
    low, high = ordered[best - 1], ordered[best]
    middle = low + 0.5 * (high - low)
    return float(middle if low < middle < high else low)


class CutRows(Protocol):
    """Rows on which cuts are moved; each call receives the current cuts."""

    def changes(self, e: int, cuts: FloatArray) -> FloatArray:
        """Return :func:`cut_changes` of proposition e, ``(n,)``."""
        ...

    def column(self, e: int) -> FloatArray:
        """Return the values of the proposition's column, ``(n,)``."""
        ...


@dataclass
class LocalCutRows:
    """Rows in this process: truth values of the propositions, uint8 ``(p, n)``, and for each proposition the values ``(n,)`` of the column
    that it compares with its cut.
    """

    machine: CutMachine
    flags: Flags
    kinds: IntArray
    columns: Sequence[FloatArray]

    def __post_init__(self) -> None:
        self._decisions, self._cuts = self.machine.decisions(self.flags), None

    def changes(self, e: int, cuts: FloatArray) -> FloatArray:
        """Return :func:`cut_changes` of proposition e, ``(n,)``."""
        self.follow(cuts)
        return cut_changes(self.machine, self.flags, self._decisions, e)

    def follow(self, cuts: FloatArray) -> None:
        """Apply the cuts that were moved since the last call."""
        moved = np.flatnonzero(cuts != self._cuts) if self._cuts is not None else ()
        self._cuts = cuts.copy()
        for e in map(int, moved):
            holds = (self.columns[e] <= cuts[e]) if self.kinds[e] == AT_MOST else (self.columns[e] > cuts[e])
            change = holds.astype(np.float64) - self.flags[e]
            # Only rules it stands in decide otherwise, and only where it changed.
            self._decisions = self._decisions + change[:, None] * rule_gains(self.machine, self.flags, e)
            self.flags[e] = holds

    def column(self, e: int) -> FloatArray:
        """Return the values of the proposition's column, ``(n,)``."""
        return self.columns[e]


def move_cuts(rows: CutRows, items: Sequence[Sequence[int]], weights: FloatArray, kinds: IntArray, cuts: FloatArray) -> FloatArray:
    """Move each cut of rules with weights ``(R, T)`` in turn, starting with the rules of largest weight; return the cuts ``(p,)``."""
    cuts, sizes = cuts.copy(), np.abs(weights).sum(axis=1)
    heavy = np.array([sum(sizes[r] for r, item in enumerate(items) if e in item) for e in range(len(cuts))])
    for e in np.argsort(-heavy, kind="stable").tolist():
        if heavy[e] != 0 and kinds[e] in (AT_MOST, ABOVE):
            cuts[e] = find_best_cut(rows.changes(e, cuts), int(kinds[e]), float(cuts[e]), rows.column(e))
    return cuts


def refine_cuts(
    machine: CutMachine, flags: Flags, kinds: IntArray, cuts: FloatArray, columns: Sequence[FloatArray]
) -> tuple[FloatArray, Flags]:
    """Move each cut on rows in this process; return the cuts ``(p,)`` and the truth values of the propositions, uint8 ``(p, n)``.

    ``columns`` holds, for each proposition, the values ``(n,)`` of its column.
    """
    rows = LocalCutRows(machine, flags.copy(), kinds, columns)
    rows.follow(cuts)
    cuts = move_cuts(rows, machine.items, machine.weights, kinds, cuts)
    rows.follow(cuts)
    return cuts, rows.flags

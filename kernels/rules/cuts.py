"""Cuts of rules moved to where the loss is least, all positions of a cut at once.

With the machine fixed, the truth of one proposition ``x <= t`` adds G_i = sum of the weights of the rules it stands in, where their other
propositions hold, to a row's decision. Sorted by x, the loss at every t is a running sum of what each row gains by being let in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from .propositions import ABOVE, AT_MOST

Flags = NDArray[np.uint8]


@dataclass(frozen=True)
class CutMachine:
    """A machine on rules whose cuts may be moved."""

    items: Sequence[Sequence[int]]  # propositions of every rule
    weights: FloatArray  # (R, T)
    bias: FloatArray  # (T,)
    rows: Sequence[IntArray]  # of every task, as y and cost
    y: Sequence[FloatArray]
    cost: Sequence[FloatArray]

    def loss(self, decisions: FloatArray) -> float:
        """Return the hinge loss of decisions before the bias, (n, T)."""
        tasks = enumerate(zip(self.rows, self.y, self.cost, strict=True))
        losses = ((cost * np.maximum(1.0 - y * (decisions[rows, t] - self.bias[t]), 0.0)).sum() for t, (rows, y, cost) in tasks)
        return float(sum(losses))

    def decisions(self, flags: Flags) -> FloatArray:
        """Return sum_r w_r phi_r before the bias, (n, T)."""
        return np.asarray(np.stack([_rule_truth(flags, item) for item in self.items], axis=1) @ self.weights, np.float64)


def _rule_truth(flags: Flags, item: Sequence[int]) -> FloatArray:
    return np.logical_and.reduce(flags[list(item)], axis=0).astype(np.float64) if len(item) else np.ones(flags.shape[1])


def find_best_cut(machine: CutMachine, flags: Flags, decisions: FloatArray, e: int, kind: int, cut: float, values: FloatArray) -> float:
    """Return the cut of proposition e with the least loss; the one it has if none is better. ``flags`` are the truth of the propositions,
    uint8 ``(p, n)``, ``decisions`` ``(n, T)`` with that truth, ``kind`` is ``AT_MOST`` or ``ABOVE``, and ``values`` ``(n,)`` is the column
    of e, NaN for missing values.
    """
    with_e = [r for r, item in enumerate(machine.items) if e in item]
    others = np.stack([_rule_truth(flags, [j for j in machine.items[r] if j != e]) for r in with_e], axis=1)
    gain = others @ machine.weights[with_e]
    without_e = decisions - gain * flags[e][:, None]
    change = np.zeros(len(values))
    for t, (rows, y, cost) in enumerate(zip(machine.rows, machine.y, machine.cost, strict=True)):
        base = 1.0 - y * (without_e[rows, t] - machine.bias[t])
        np.add.at(change, rows, cost * np.maximum(base - y * gain[rows, t], 0.0) - cost * np.maximum(base, 0.0))
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


def refine_cuts(
    machine: CutMachine, flags: Flags, kinds: IntArray, cuts: FloatArray, columns: Sequence[FloatArray]
) -> tuple[FloatArray, Flags]:
    """Move every cut in turn, those of the heaviest rules first; returns cuts ``(p,)`` and the truth of the propositions, uint8 ``(p, n)``.
    ``columns`` holds the column ``(n,)`` of every proposition.
    """
    flags, cuts = flags.copy(), cuts.copy()
    sizes = np.abs(machine.weights).sum(axis=1)
    heavy = np.array([sum(sizes[r] for r, item in enumerate(machine.items) if e in item) for e in range(len(cuts))])
    decisions = machine.decisions(flags)
    for e in np.argsort(-heavy, kind="stable"):
        if heavy[e] == 0 or kinds[e] not in (AT_MOST, ABOVE):
            continue
        moved = find_best_cut(machine, flags, decisions, int(e), int(kinds[e]), float(cuts[e]), columns[int(e)])
        if moved != cuts[e]:
            cuts[e] = moved
            flags[e] = (columns[int(e)] <= moved) if kinds[e] == AT_MOST else (columns[int(e)] > moved)
            decisions = machine.decisions(flags)
    return cuts, flags

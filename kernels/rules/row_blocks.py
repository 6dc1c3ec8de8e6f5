"""The rows of a restricted problem in fixed blocks, which may be in other processes.

The solver holds one number per row for labels, costs, decision values and multipliers; only the blocks know which conjunctions hold on a
row. A block answers four kinds of requests:

* the decision values Phi_b f of its rows;
* its part of Phi'u;
* for each two conjunctions, the number of its zone rows on which both hold (zone: the rows in the quadratic part of the smoothed hinge);
* its rows of a small zone.

Decision values and rows are concatenated, sums are added in the fixed tree of a pass, and counts are integers. The results therefore
depend, bit for bit, only on the division into blocks. With one block, they are bit-identical to
:class:`gramplane.kernels.rules.row_blocks.LocalRows`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from .bits import Bytes, Words, apply_columns, apply_transpose, pack_bits, weighted_gram, zone_columns
from .newton import (
    MAX_PLANES,
    MIN_DECREASE_SHARE,
    NEGLIGIBLE_SHARE,
    cost_planes,
    half_square,
    inner,
    is_short,
    newton_direction,
    search_line,
    take_newton_steps,
    zone_curvature,
    zone_direction,
)
from .row_losses import HINGE, RowLoss

# Rows of a restricted problem, task by task: what a solver knows of them, and the products it asks for.
#
# A solver holds labels, costs and decisions of every row; the conjunctions that hold on a row it reaches through products alone. So these
# may lie in this process (:class:`LocalRows`) or in blocks elsewhere (:class:`gramplane.kernels.rules.row_blocks.BlockedRows`), to the same
# bits where there is one block.

MERGE_RATIO = 4  # Rows are merged when the different ones are so many times fewer.


class TaskRows:
    """Labels and costs of one task. Rows that agree in all conjunctions and in the label may be merged; their costs are added.

    Rows with real targets are merged whatever their targets: the merged row has their mean, and the squared loss has a constant more.
    """

    y: FloatArray
    cost: FloatArray
    member: IntArray  # (n,) merged row of every row
    share: FloatArray  # (n,) a row's share of the merged cost
    within: FloatArray | float  # (n,) what a row's multiplier has beside its share: its cost times its distance from the mean
    scatter: float  # twice the squared loss of the rows around the targets of their merged rows

    @cached_property
    def planes(self) -> tuple[IntArray, float]:
        """Costs as integers with their unit, for Hessians."""
        return cost_planes(self.cost)

    def spread(self, alpha: FloatArray) -> FloatArray:
        """Return multipliers of all rows from the multipliers of the merged rows."""
        return alpha[self.member] * self.share + self.within


def merge_rows(rows: Bytes, positive: Bytes) -> tuple[IntArray, IntArray] | None:
    """Return the first row of each kind, and the kind of each row. Rows are of one kind if they agree in all conjunctions and in the label.

    Returns ``None`` if there are too many kinds for merging to pay off.
    """
    keys = np.ascontiguousarray(np.column_stack([rows, positive]))
    _, first, member = np.unique(keys.view(f"V{keys.shape[1]}").reshape(-1), return_index=True, return_inverse=True)
    return None if MERGE_RATIO * len(first) > len(rows) else (first, member.reshape(-1).astype(np.int64))


def merged_costs(cost: FloatArray, member: IntArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the total cost of the merged rows, ``(count,)``, and the share of each row in the total of its merged row, ``(n,)``."""
    total = np.bincount(member, cost, minlength=count).astype(np.float64)
    return total, cost / np.maximum(total[member], np.finfo(float).tiny)


Columns = tuple[FloatArray, FloatArray, IntArray, FloatArray, FloatArray | float, float]  # the fields of TaskRows


def merged_columns(y: FloatArray, cost: FloatArray, kind: tuple[IntArray, IntArray] | None, loss: RowLoss) -> Columns:
    """Return the fields of :class:`TaskRows`; ``kind`` is the result of :func:`merge_rows`."""
    if kind is None:
        return y, cost, np.arange(len(y)), np.ones(len(y)), np.zeros(len(y)) if loss.is_number else 0.0, 0.0
    first, member = kind
    total, share = merged_costs(cost, member, len(first))
    if not loss.is_number:
        return y[first], total, member, share, 0.0, 0.0
    mean = np.bincount(member, share * y, minlength=len(first)).astype(np.float64)
    apart = y - mean[member]
    return mean, total, member, share, cost * apart, float(cost @ (apart * apart))


@dataclass(frozen=True)
class MergedRows(TaskRows):
    """Rows of one task, with the conjunctions that hold on them."""

    rows: Bytes  # (m, ceil(W / 8))
    y: FloatArray
    cost: FloatArray
    member: IntArray
    share: FloatArray
    within: FloatArray | float = 0.0
    scatter: float = 0.0

    @classmethod
    def of(cls, rows: Bytes, y: FloatArray, cost: FloatArray, loss: RowLoss = HINGE) -> MergedRows:
        """Return the rows, merged if that pays off."""
        kind = merge_rows(rows, (loss.signs(y) > 0).astype(np.uint8)) if loss.can_merge else None
        return cls(rows if kind is None else rows[kind[0]], *merged_columns(y, cost, kind, loss))


class NewtonStart(NamedTuple):
    """Start of one task's Newton steps: weights of its ridge, coefficients, bias."""

    delta: FloatArray  # (W,)
    f: FloatArray  # (W,)
    bias: float


class NewtonEnd(NamedTuple):
    """End of one task's Newton steps.

    * ``f``, ``bias``: coefficients and bias.
    * ``F``: the decision values before the bias.
    * ``steps``: the number of steps.
    """

    f: FloatArray
    bias: float
    F: FloatArray
    steps: int


@dataclass(frozen=True)
class LocalRows:
    """Rows in this process: products of all tasks' rows with the conjunctions of a hull. Every list has one entry per task.

    With few rows, :class:`BlockedRows` with one block would take 1.3 to 1.5 times as long.
    """

    tasks: Sequence[MergedRows]

    def products(self, coefs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return Phi coef for coefficients ``(W,)``."""
        return [apply_columns(task.rows, coef) for task, coef in zip(self.tasks, coefs, strict=True)]

    def sums(self, vectors: Sequence[FloatArray], size: int) -> list[FloatArray]:
        """Return Phi'u, ``(size,)``, for vectors over the rows."""
        return [apply_transpose(task.rows, vector, size) for task, vector in zip(self.tasks, vectors, strict=True)]

    def curvatures(self, zones: Sequence[IntArray], h: float, keep: IntArray) -> list[FloatArray]:
        """Return Phi_Z' diag(c / h) Phi_Z of some columns over rows Z, with the bias eliminated."""
        parts = zip(self.tasks, zones, strict=True)
        return [zone_curvature(task.rows, task.planes[0], task.planes[1] / h, zone, keep) for task, zone in parts]

    def newton_steps(self, starts: Sequence[NewtonStart], loss: RowLoss, steps: int) -> list[NewtonEnd]:
        """Take up to ``steps`` Newton steps in each task."""
        parts = zip(self.tasks, starts, strict=True)
        return [NewtonEnd(*take_newton_steps(task.rows, *task.planes, task.y, task.cost, *start, loss, steps)) for task, start in parts]


Counts = NDArray[np.uint32]
PRODUCT, SUMS, COUNTS, ROWS = "product", "sums", "counts", "rows"
SIDE_BY_SIDE = (PRODUCT, ROWS)
"""Kinds of requests whose answers from the blocks are concatenated; the answers to other requests are added."""
OF_ZONE = (COUNTS, ROWS)
"""Kinds of requests about a zone; the other requests contain a vector."""
NO_ROWS, NO_COLUMNS = np.zeros(0), np.zeros(0, np.int64)


class HullRequest(NamedTuple):
    """A request about the rows of one task."""

    kind: str  # PRODUCT: decisions of a vector (W,); SUMS: Phi'u of a vector over the rows; COUNTS: shared rows of a zone; ROWS: its rows
    task: int
    vector: FloatArray = NO_ROWS
    zone: Bytes = np.zeros(0, np.uint8)  # over the rows: the cost as an integer (of ROWS: 1), 0 outside the zone
    keep: IntArray = NO_COLUMNS  # columns that are counted
    planes: tuple[int, ...] = ()  # bits of these integers that occur


Ask = Callable[[Sequence[HullRequest]], list[Any]]  # an answer for each
Walk = Generator[list[HullRequest], list[Any], NewtonEnd]


def answer(rows: Bytes, size: int, request: HullRequest) -> FloatArray | Counts | Bytes:
    """Answer a request for the rows of one block, ``(m, ceil(W / 8))``, with ``size`` conjunctions. The vectors of the request cover
    only these rows.
    """
    if request.kind == PRODUCT:
        return apply_columns(rows, request.vector)
    if request.kind == SUMS:
        return apply_transpose(rows, request.vector, size)
    if request.kind == ROWS:
        return rows[np.flatnonzero(request.zone)]
    return count_zone(rows, request.zone, request.keep, request.planes)


def count_zone(rows: Bytes, zone: Bytes, keep: IntArray, planes: Sequence[int]) -> Counts:
    """Return, for each plane, the number of zone rows that each two columns share, uint32 ``(planes, k + 1, k + 1)``. The first column
    is added and holds on all zone rows.
    """
    places, size = np.flatnonzero(zone), len(keep) + 1
    counts, plane = np.zeros((len(planes), size, size), np.uint32), np.empty((size, size))
    if not len(places):
        return counts
    columns: Words = np.concatenate([pack_bits(np.ones((1, len(places)), np.uint8)), zone_columns(rows, places, keep)])
    for out, q in zip(counts, planes, strict=True):
        weighted_gram(columns, pack_bits(((zone[places] >> q) & 1).astype(np.uint8)[None, :]), np.ones(1), plane)
        out[:] = plane
    return counts


def curvature_of(counts: Counts, weights: Sequence[float]) -> FloatArray:
    """Return Phi_Z' diag(c) Phi_Z with the bias eliminated, from the counts of planes and their weights, as
    :func:`gramplane.kernels.rules.newton.zone_curvature` does.
    """
    full = np.zeros(counts.shape[1:])
    for weight, plane in zip(weights, counts, strict=True):
        full += weight * plane
    cross = full[0, 1:]
    return full[1:, 1:] - cross[:, None] * cross[None, :] / max(float(full[0, 0]), 1e-300)


@dataclass(frozen=True)
class SpreadRows(TaskRows):
    """Labels and costs of one task; only the blocks know which conjunctions hold on its rows."""

    y: FloatArray
    cost: FloatArray
    member: IntArray
    share: FloatArray
    within: FloatArray | float = 0.0
    scatter: float = 0.0

    @classmethod
    def of(
        cls, y: FloatArray, cost: FloatArray, merged: Sequence[tuple[int, tuple[IntArray, IntArray] | None]], loss: RowLoss = HINGE
    ) -> SpreadRows:
        """Return the rows from labels and costs ``(n,)``. ``merged`` has one entry per block: the number of rows of the block, and its
        merged rows, if any.
        """
        parts, at, kinds = [], 0, 0
        for n, kind in merged:
            labels, costs, member, *rest = merged_columns(y[at : at + n], cost[at : at + n], kind, loss)
            parts.append((labels, costs, kinds + member, *rest))
            at, kinds = at + n, kinds + len(labels)
        *columns, within, scatter = zip(*parts, strict=True)
        labels, costs, member, share = map(np.concatenate, columns)
        return cls(labels, costs, member, share, np.concatenate(within) if loss.is_number else 0.0, float(sum(scatter)))

    def zone_request(self, task: int, zone: IntArray, keep: IntArray) -> HullRequest:
        """Return the request for the number of zone rows that each two columns of ``keep`` share."""
        multiples = np.zeros(len(self.y), np.uint8)
        multiples[zone] = self.planes[0][zone]
        bits = int(np.bitwise_or.reduce(multiples, initial=0))
        return HullRequest(COUNTS, task, zone=multiples, keep=keep, planes=tuple(q for q in range(MAX_PLANES) if bits >> q & 1))

    def rows_request(self, task: int, zone: IntArray) -> HullRequest:
        places = np.zeros(len(self.y), np.uint8)
        places[zone] = 1
        return HullRequest(ROWS, task, zone=places)


@dataclass(frozen=True)
class BlockedRows:
    """Rows accessed through a function that queries all blocks at once; ``size`` is the number of conjunctions."""

    tasks: Sequence[SpreadRows]
    ask: Ask

    def products(self, coefs: Sequence[FloatArray]) -> list[FloatArray]:
        """Return Phi coef for coefficients ``(W,)``."""
        return self.ask([HullRequest(PRODUCT, t, coef) for t, coef in enumerate(coefs)])

    def sums(self, vectors: Sequence[FloatArray], size: int) -> list[FloatArray]:
        """Return Phi'u, ``(size,)``, for vectors over the rows."""
        return self.ask([HullRequest(SUMS, t, vector) for t, vector in enumerate(vectors)])

    def curvatures(self, zones: Sequence[IntArray], h: float, keep: IntArray) -> list[FloatArray]:
        """Return Phi_Z' diag(c / h) Phi_Z of some columns over rows Z, with the bias eliminated."""
        requests = [task.zone_request(t, zone, keep) for t, (task, zone) in enumerate(zip(self.tasks, zones, strict=True))]
        return [curvature_of(counts, self._weights(request, h)) for counts, request in zip(self.ask(requests), requests, strict=True)]

    def _weights(self, request: HullRequest, h: float) -> list[float]:
        unit = self.tasks[request.task].planes[1] / h
        return [unit * (1 << q) for q in request.planes]

    def newton_steps(self, starts: Sequence[NewtonStart], loss: RowLoss, steps: int) -> list[NewtonEnd]:
        """Take up to ``steps`` Newton steps in all tasks simultaneously; requests of several tasks are combined into one."""
        walks = {t: self._walk(t, start, loss, steps) for t, start in enumerate(starts)}
        ends: dict[int, NewtonEnd] = {}
        asked = {t: next(walk) for t, walk in walks.items()}
        while asked:
            answers = iter(self.ask([request for requests in asked.values() for request in requests]))
            replies = {t: [next(answers) for _ in requests] for t, requests in asked.items()}
            asked = {}
            for t, reply in replies.items():
                try:
                    asked[t] = walks[t].send(reply)
                except StopIteration as end:
                    ends[t] = end.value
        return [ends[t] for t in range(len(starts))]

    def _walk(self, t: int, start: NewtonStart, loss: RowLoss, steps: int) -> Walk:
        """Take the steps of :func:`gramplane.kernels.rules.newton.take_newton_steps`, one by one."""
        task, (delta, f, b) = self.tasks[t], start
        y, cost, keep = task.y, task.cost, np.flatnonzero(delta > NEGLIGIBLE_SHARE * delta.max())
        D = np.sqrt(delta[keep])
        g = f[keep] / D
        (F,) = yield [HullRequest(PRODUCT, t, _scattered(f[keep], keep, f.size))]
        b = loss.bias(F, y, cost, b)
        value, taken, signs, h = half_square(g) + loss.value(F, y, cost, b), 0, loss.signs(y), loss.h
        for _ in range(steps):
            zone = loss.zone(F, y, cost, b)
            request = task.rows_request(t, zone) if is_short(zone, keep) else task.zone_request(t, zone, keep)
            sums, found = yield [HullRequest(SUMS, t, signs * loss.multipliers(F, y, cost, b)), request]
            gradient = g - D * sums[keep]
            if request.kind == ROWS:
                direction = zone_direction(found, task.planes[0][zone] * (task.planes[1] / h), keep, D, gradient)
            else:
                direction = newton_direction(curvature_of(found, self._weights(request, h)), D, gradient)
            slope = inner(gradient, direction)
            (dF,) = yield [HullRequest(PRODUCT, t, _scattered(D * direction, keep, f.size))]
            trial_F, trial_b, trial_g, trial = search_line(F, dF, g, direction, b, value, slope, y, cost, loss)
            taken += 1
            if not trial < value:
                break
            decrease = value - trial
            F, b, g, value = trial_F, trial_b, trial_g, trial
            if decrease <= MIN_DECREASE_SHARE * value:
                break
        return NewtonEnd(_scattered(D * g, keep, f.size), b, F, taken)


def _scattered(values: FloatArray, keep: IntArray, size: int) -> FloatArray:
    out = np.zeros(size)
    out[keep] = values
    return out

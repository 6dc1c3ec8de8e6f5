"""Learners of a stream: one or several linear models on the same rows, by dual averaging or forward-backward splitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..arrays import Array
from ..losses import LossKind, named_loss
from .dual_averaging import N_TOTALS, ActiveGroups, Rows, Rule, activate_groups, advance_average, advance_fobos
from .penalty import GroupPenalty, Groups, add_shrunken, mark_active, stream_groups
from .step_lengths import StepWatch

Algorithm = Literal["da", "fobos"]

REQUIRES = ("steepness",)  # What a stream needs of a loss, beside a branch in :func:`gramplane.kernels.losses.value_and_slope`.


@dataclass(frozen=True)
class StreamPoint:
    """The state of a learner: everything needed to continue with bit-identical results.

    * ``sums``, ``(n_machines, n_features)``: sums of the rounds' mean subgradients (FOBOS: the weights).
    * ``counts``: the number of closed rounds, and the number of rows in the open round.
    * ``totals``, ``(n_machines, N_TOTALS)``: the bias; the sum of the losses; the sum of the row weights; the sum of the biases over all
      rounds; the sum of the squared mean row weights of the rounds; the row weight of the open round.
    * ``means``, ``(n_machines, n_features)``: sums of the model's weights over all rounds; no columns if averaging is off.
    * ``indptr``, ``indices``, ``values``: the rows of the open round.
    * ``slopes``, ``(n_machines, n_rows)``: the slopes of the loss at these rows.
    """

    record_name: ClassVar[str] = "StreamPoint"
    record_version: ClassVar[int] = 2

    sums: Array
    counts: Array
    totals: Array
    means: Array
    indptr: Array
    indices: Array
    values: Array
    slopes: Array


class StreamLearner:
    """Linear models on one stream of rows; `take` changes them in place.

    * ``penalty``: the groups and their weights; ``lam`` is the overall weight of the penalty.
    * ``loss``: ``"logistic"``, ``"squared"`` or ``"hinge"``.
    * ``gamma``: the weight of the proximal term; ``rho``: the relative weight of its l1 part.
    * ``batch``: the number of rows per round.
    * ``average``: whether to keep the mean of all iterates.
    * ``groups``, if given: the penalty times ``lam`` in the form that compiled loops read.
    """

    def __init__(
        self, penalty: GroupPenalty, lam: float, n_machines: int = 1, *, loss: str, gamma: float, rho: float = 0.0, batch: int = 1,
        intercept: bool = True, average: bool = False, algorithm: Algorithm = "da", groups: Groups | None = None,
    ) -> None:  # fmt: skip
        self.penalty, n_features = penalty, penalty.n_features
        self.groups, self.algorithm, self._lam = groups or stream_groups(penalty, lam), algorithm, lam
        self._norm = penalty.power if self.groups.cost.size else None
        if algorithm == "fobos" and penalty.overlapping:
            raise ValueError("groups overlap, but algorithm='fobos' needs a partition of the features; use algorithm='da'")
        law = named_loss(loss, "a stream", *REQUIRES)
        self.rule = Rule(int(law.kind), int(batch), float(gamma), float(rho * gamma), bool(intercept), law.steepness)
        self._sums, self._means = np.zeros((n_machines, n_features)), np.zeros((n_machines, n_features if average else 0))
        self._flags = np.zeros((n_machines, n_features // 8 + 1), np.uint8)
        self._scales = np.zeros((n_machines, self.groups.cost.size, 2))
        self._counts, self._totals = np.zeros(2, np.int64), np.zeros((n_machines, N_TOTALS))
        self._open, self._spare = _OpenRows(n_machines), np.zeros(n_features if algorithm == "fobos" else 0)
        self.watch = StepWatch(float(gamma))

    # -- the stream ------------------------------------------------------------------------------------------------------------------

    def take(self, rows: Rows, targets: Array, weight: Array, finish: bool = False) -> None:
        """Process rows in CSR form, with targets ``(n_machines, n)`` and weights ``(n,)``; rows of weight 0 are skipped.

        ``finish`` closes the open round, even if it is incomplete. Raises ValueError if the loss is no longer finite because the iterates
        diverge.
        """
        before, slopes, first = self._counts, np.empty(targets.shape), 0
        totals = self._totals.copy()
        for k in range(len(self._sums)):
            self._counts = before.copy()
            first = self._advance(k, rows, targets[k], weight, slopes[k], finish)
        if first >= 0:
            self._open.clear()
        self._open.append(rows, max(first, 0), slopes)
        if not np.isfinite(self._totals).all():
            sign = f"the loss of the stream is not finite after {int(self._counts[0])} rounds: the iterates diverge"
            raise ValueError(f"{sign}; {self.watch.remedy(rows.indptr, rows.values, weight)}")
        if self.rule.loss == LossKind.SQUARED:
            learnt = self._totals - totals
            self.watch.remember(rows.indptr, rows.values, weight)
            if self.watch.look(learnt[:, 1], learnt[0, 2], targets):
                self.watch.tell(rows.indptr, rows.values, weight)

    def _advance(self, k: int, rows: Rows, target: Array, weight: Array, slopes: Array, finish: bool) -> int:
        open_rows, open_slopes = self._open.rows, self._open.slopes(k)
        if self.algorithm == "fobos":
            state = (self._sums[k], self._counts, self._totals[k], slopes, self._spare, finish, self._norm)
            return advance_fobos(rows, target, weight, open_rows, open_slopes, self.rule, self.groups, *state)
        active = ActiveGroups(self._flags[k], self._scales[k])
        state = (self._sums[k], active, self._counts, self._totals[k], slopes, self._means[k], finish, self._norm)
        return advance_average(rows, target, weight, open_rows, open_slopes, self.rule, self.groups, *state)

    def finish(self) -> None:
        """Close the open round, if it has rows."""
        none = np.zeros(0)
        rows = Rows(np.zeros(1, np.int64), np.zeros(0, np.int32), none, np.zeros(0, np.int64))
        self.take(rows, np.zeros((len(self._sums), 0)), none, finish=True)

    # -- what was learned ------------------------------------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        return int(self._counts[0])

    @property
    def losses(self) -> Array:
        """The sum of the losses of each model, ``(n_machines,)``. Each loss is computed before the model learns from the row."""
        return self._totals[:, 1].copy()

    @property
    def weight(self) -> float:
        """Sum of the weights of all rows."""
        return float(self._totals[0, 2])

    def weights(self, average: bool = False) -> tuple[Array, Array, Array]:
        """Return ``(weights (n_machines, n_features), biases, Omega of each model)`` of the latest round, or of the mean of all
        iterates.
        """
        t = self.rounds
        if average:
            share = 1.0 / max(t, 1)
            weights = self._means * share
            return weights, self._totals[:, 3] * share, self._penalties(weights)
        weights, omega = np.zeros(self._sums.shape), np.zeros(len(self._sums))
        if t == 0:
            return weights, omega.copy(), omega
        if self.algorithm == "fobos":
            return self._sums.copy(), self._totals[:, 0].copy(), self._penalties(self._sums)
        root = self.rule.gamma * np.sqrt(float(t))
        for k, sums in enumerate(self._sums):
            omega[k] = add_shrunken(sums, self.groups, float(t), self.rule.fade * np.sqrt(float(t)), -1.0 / root, weights[k], self._norm)
        return weights, self._totals[:, 0].copy(), omega

    def active(self) -> Array:
        """Return which groups have a non-zero weight in some model in the latest round, bool ``(n_groups,)``."""
        active, t = np.zeros(self.penalty.n_groups, bool), float(self.rounds)
        factor = t if self.algorithm == "da" else 0.0
        for sums in self._sums if t else ():
            mark_active(sums, self.groups, factor, self.rule.fade * np.sqrt(factor), active, self._norm)
        return active

    def _penalties(self, weights: Array) -> Array:
        """Return Omega of the weights. Return NaN if groups overlap and the copies are not known."""
        if self.penalty.overlapping:
            return np.full(len(weights), np.nan)
        return np.array([self._lam * self.penalty.value(row[None, self.penalty.members]) for row in weights])

    # -- the state -------------------------------------------------------------------------------------------------------------------

    def point(self, copy: bool = True) -> StreamPoint:
        """Return a copy of the state. With ``copy=False`` return the state itself, for a learner that takes no more rows."""
        open_rows = self._open.rows
        state = np.array(self._sums, copy=copy), self._counts.copy(), self._totals.copy(), np.array(self._means, copy=copy)
        slopes = np.stack([self._open.slopes(k) for k in range(len(self._sums))])
        return StreamPoint(*state, open_rows.indptr.copy(), open_rows.indices.copy(), open_rows.values.copy(), slopes)

    def restore(self, point: StreamPoint) -> StreamLearner:
        """Take over a state. Information about the groups is recomputed; later results are bit-identical."""
        self._sums, self._counts, self._totals = np.array(point.sums), point.counts.copy(), point.totals.copy()
        self._means, self._open = point.means.copy(), _OpenRows(len(point.sums))
        self._scales[:], self._flags[:] = 0.0, 0
        for k, sums in enumerate(self._sums if self.algorithm == "da" else ()):
            activate_groups(sums, self.groups, self.rule, float(self.rounds), ActiveGroups(self._flags[k], self._scales[k]))
        order = np.arange(len(point.indptr) - 1, dtype=np.int64)
        self._open.append(Rows(point.indptr, point.indices, point.values, order), 0, point.slopes)
        return self


class _OpenRows:
    """Rows of the open round, in buffers that grow by doubling so that rows arriving one by one are not copied repeatedly."""

    def __init__(self, n_machines: int) -> None:
        self._indptr, self._order = np.zeros(16, np.int64), np.arange(15, dtype=np.int64)
        self._indices, self._values = np.zeros(64, np.int32), np.zeros(64)
        self._slopes, self._n = np.zeros((n_machines, 15)), 0

    @property
    def rows(self) -> Rows:
        """The rows, in order of arrival."""
        end = int(self._indptr[self._n])
        return Rows(self._indptr[: self._n + 1], self._indices[:end], self._values[:end], self._order[: self._n])

    def slopes(self, k: int) -> Array:
        """Return the slopes of model ``k``."""
        return self._slopes[k, : self._n]

    def clear(self) -> None:
        self._n = 0

    def append(self, rows: Rows, first: int, slopes: Array) -> None:
        """Append the rows whose position in the order of processing is ``first`` or later."""
        chosen = rows.order[first:]
        if not len(chosen):
            return
        n, m = self._n, self._n + len(chosen)
        starts, lengths = rows.indptr[chosen], rows.indptr[chosen + 1] - rows.indptr[chosen]
        at = int(self._indptr[n])
        ends = at + np.cumsum(lengths)
        self._reserve(m, int(ends[-1]))
        self._indptr[n + 1 : m + 1] = ends
        taken = np.repeat(starts - (ends - lengths), lengths) + np.arange(at, ends[-1])
        self._indices[at : ends[-1]], self._values[at : ends[-1]] = rows.indices[taken], rows.values[taken]
        self._slopes[:, n:m] = slopes[:, first:]
        self._n = m

    def _reserve(self, n: int, nnz: int) -> None:
        if n >= len(self._order):
            self._indptr, self._order = np.resize(self._indptr, 2 * n + 1), np.arange(2 * n, dtype=np.int64)
            grown = np.zeros((len(self._slopes), 2 * n))
            grown[:, : self._slopes.shape[1]] = self._slopes
            self._slopes = grown
        if nnz > len(self._indices):
            self._indices, self._values = np.resize(self._indices, 2 * nnz), np.resize(self._values, 2 * nnz)

r"""Feature selection over many tasks by dual averaging, with penalties on the rows of W and one compiled kernel for the rounds.

W is ``(d, Q)``: column q is task q, row j is feature j. A round has at most one row of data per task; column q of G is task q's
subgradient, zero without a row. With the mean :math:`\bar G` of the matrices G of all t rounds so far, the next weights are

.. math:: W_{t+1} = \arg\min_W \langle \bar G, W \rangle + \Omega(W) + \frac{\gamma}{2 \sqrt t} \|W\|_F^2, \qquad
          \Omega(W) = \sum_j ( \rho \|W_{j\cdot}\|_2 + \tau \|W_{j\cdot}\|_1 ).

This minimum has a closed form. ``imtfs``: rho = 0, tau = lam; ``amtfs``: rho = lam, tau = 0; ``mtfts``: rho = lam, tau = lam r. The
intercept of each task has its own steps (`gramplane.kernels.group_lasso.step_lengths`), over the rounds with a row of the task.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 4: Algorithm
2, Theorem 3; the subgradient of the hinge loss corrects its equation (4.9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, Entry, FloatArray, IntArray
from ..jit import compiled
from ..losses import LossKind, named_loss, value_and_slope
from .lp_norms import prox_entry, prox_size
from .penalty import GroupPenalty, single_features
from .step_lengths import intercept_after

CLOSE = -1  # Among the rows to read: closes the open round.
NORM_MARGIN = 1e-6  # Share of its threshold by which a maintained norm must stay below it to be trusted; rounding has moved it by far less.
ROUNDS_PER_SUM = 1 << 20  # Rounds after which maintained norms are summed anew.
REQUIRES = ("steepness",)  # What rounds need of a loss, beside a branch in :func:`gramplane.kernels.losses.value_and_slope`.
MAX_PREDICTION = 1e100  # A prediction beyond this means that the weights diverge.


def task_penalty(name: str, n_features: int, r: float, p: float = 2.0) -> GroupPenalty:
    """Return the penalty ``imtfs`` (4.4), ``amtfs`` (4.5), ``mtfts`` (4.6, inner ratio ``r``) or ``lp1`` (L_p norms of the rows of W); each
    feature is a group over all tasks.
    """
    if name == "lp1":
        return single_features(n_features, 0.0, 1.0) if p == 1.0 else single_features(n_features, p=p)
    kappa, inner = {"imtfs": (0.0, 1.0), "amtfs": (1.0, 0.0), "mtfts": (1.0, r)}[name]
    return single_features(n_features, kappa, inner)


@dataclass
class TaskStream:
    """State of dual averaging between rounds: sums of subgradients, from which weights follow at any time.

    * ``t``: the number of closed rounds.
    * ``bias``, ``(Q,)``: the intercepts.
    * ``paid``, ``(Q,)``: the sums of the squared weights of each task's rows.
    * ``norms``, ``(d,)``: the squared norms of the rows of ``sums``, ``(d, Q)``, updated entry by entry.
    """

    t: int
    sums: FloatArray
    bias: FloatArray
    paid: FloatArray
    norms: FloatArray
    _cache: tuple[Rounds, FloatArray, IntArray] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def empty(cls, n_features: int, n_tasks: int) -> TaskStream:
        return cls(0, np.zeros((n_features, n_tasks)), np.zeros(n_tasks), np.zeros(n_tasks), np.zeros(n_features))

    def copy(self) -> TaskStream:
        """Return a copy that shares no memory with this state."""
        return TaskStream(self.t, self.sums.copy(), self.bias.copy(), self.paid.copy(), self.norms.copy())

    def factors(self, rounds: Rounds) -> tuple[FloatArray, IntArray]:
        """Return the two arrays in which the compiled loop caches a factor for each row of W, and the round of each factor. They are
        reused, so that no array of length d is made per call.
        """
        if self._cache is None or self._cache[0] is not rounds:
            self._cache = rounds, np.empty(len(self.norms)), np.full(len(self.norms), -1, np.int64)
        return self._cache[1:]


@dataclass(frozen=True)
class TaskRows:
    """Rows of data in CSR form, with the task, target (-1 and +1 for classes) and loss weight of each row."""

    indptr: IntArray
    indices: NDArray[np.int32]
    values: FloatArray
    codes: IntArray
    target: FloatArray
    weight: FloatArray

    @property
    def n(self) -> int:
        return len(self.codes)

    @cached_property
    def _owners(self) -> IntArray:
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    def decide(self, weights: FloatArray, intercepts: FloatArray) -> FloatArray:
        """Return the prediction of each row, ``(n,)``, from weights ``(Q, d)`` and intercepts ``(Q,)``."""
        products = self.values * weights[self.codes[self._owners], self.indices]
        return np.bincount(self._owners, products, self.n) + intercepts[self.codes]

    def chosen(self, which: IntArray) -> TaskRows:
        """Return some of the rows, in the order given."""
        counts = np.diff(self.indptr)[which]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        entries = np.repeat(self.indptr[which] - starts[:-1], counts) + np.arange(starts[-1])
        labels = self.codes[which], self.target[which], self.weight[which]
        return TaskRows(starts, self.indices[entries], self.values[entries], *labels)

    def followed_by(self, other: TaskRows) -> TaskRows:
        """Return these rows followed by the rows of ``other``."""
        indptr = np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]])
        names = ("indices", "values", "codes", "target", "weight")
        return TaskRows(indptr, *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


@dataclass(frozen=True)
class OpenRound:
    """Rows that were read but whose round is incomplete, in order of arrival, with the slopes of the loss at their prediction."""

    rows: IntArray
    slopes: FloatArray

    @classmethod
    def none(cls) -> OpenRound:
        return cls(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Rounds:
    """Settings of the rounds.

    * ``penalty``: a penalty of :func:`task_penalty`.
    * ``lam``: the weight of the penalty; ``gamma``: the weight of the proximal term.
    * ``loss``: a loss of :mod:`gramplane.kernels.losses`.
    * ``kept``, ``(d,)``: the features that may have weights; ``None`` means all.
    * ``algorithm``: ``da``, or ``fobos``: ``W = prox_{eta Omega}(W - eta G)`` with ``eta = 1 / (gamma sqrt(t))`` (4.10). The sums of a
      stream are then the weights themselves.
    """

    penalty: GroupPenalty
    lam: float
    gamma: float
    loss: str
    fit_intercept: bool = False
    kept: NDArray[np.bool_] | None = None
    algorithm: str = "da"

    @cached_property
    def entries(self) -> FloatArray:
        """Threshold for the entries of every feature, ``(d,)``; infinite for features that must have weight zero."""
        thresholds = self.lam * self.penalty.inner
        return thresholds if self.kept is None else np.where(self.kept, thresholds, np.inf)

    @property
    def kinds(self) -> tuple[float | None, bool | None]:
        """The p of the norms of rows of W if it is not 2, and True for FOBOS; else None, for which compiled code has no part."""
        return self.penalty.power, True if self.algorithm == "fobos" else None

    def weights(self, stream: TaskStream) -> FloatArray:
        r"""Return the weights ``(Q, d)`` after the rounds so far, with exact zeros, in closed form (Theorem 3).

        With :math:`C_j = S(\bar G_j, \tau)`, elementwise, :math:`W_j = - \frac{\sqrt t}{\gamma} [1 - \rho / \|C_j\|_2]_+ C_j`.
        """
        if stream.t == 0:
            return np.zeros(stream.sums.shape[::-1])
        if self.algorithm == "fobos":
            return np.ascontiguousarray(stream.sums.T) + 0.0
        weights = self.penalty.prox(stream.sums.T / stream.t, self.lam) * (-np.sqrt(stream.t) / self.gamma)
        if self.kept is not None:
            weights[:, ~self.kept] = 0.0
        # Adding zero turns -0.0 into 0.0.
        return weights + 0.0

    def intercepts(self, stream: TaskStream) -> FloatArray:
        """Return the intercepts ``(Q,)`` after the rounds so far."""
        return stream.bias + 0.0


@dataclass(frozen=True)
class Progress:
    """Progress of the rounds.

    * ``loss``: the sum of the losses; each loss is computed before the model learns from the row.
    * ``weight``: the sum of the weights of the rows read.
    * ``open``: the open round.
    """

    loss: float
    weight: float
    open: OpenRound


class Diverged(ArithmeticError):
    """Raised if predictions grow without bound; ``row`` is the row at which this was noticed."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}: predictions grow without bound")
        self.row = row


def run_rounds(stream: TaskStream, rows: TaskRows, order: IntArray, rounds: Rounds, opened: OpenRound) -> Progress:
    """Read rows in the given order and learn from each round that closes; ``stream`` is changed in place.

    A round takes at most one row of each task. It closes when every task has contributed a row, before a second row of a task, or
    where ``CLOSE`` occurs in ``order``. The cost is proportional to the number of non-zeros of the rows, plus Q for each feature of
    the round whose norm is large enough to matter. Results are bit-identical if an order is split into several calls. Raises
    :class:`Diverged` if a prediction is not finite or exceeds 1e100.
    """
    n_tasks, count = stream.sums.shape[1], len(opened.rows)
    pending, slopes, is_pending = np.zeros(n_tasks, np.int64), np.zeros(n_tasks), np.zeros(n_tasks, np.bool_)
    pending[:count], slopes[:count] = opened.rows, opened.slopes
    is_pending[rows.codes[opened.rows]] = True
    data = _Rows(rows.indptr, rows.indices, rows.values, rows.codes, rows.target, rows.weight)
    state = _State(stream.sums, stream.bias, stream.paid, stream.norms, pending, slopes, is_pending, *stream.factors(rounds))
    law, threshold = named_loss(rounds.loss, "the selector", *REQUIRES), float(rounds.lam * rounds.penalty.kappa.max(initial=0.0))
    rule = _Rule(threshold, float(rounds.gamma), int(law.kind), bool(rounds.fit_intercept), law.steepness)
    stream.t, count, diverged, loss, weight = _advance(data, order, rounds.entries, rule, state, stream.t, count, *rounds.kinds)
    if diverged >= 0:
        raise Diverged(diverged)
    return Progress(loss, weight, OpenRound(pending[:count].copy(), slopes[:count].copy()))


class _Rows(NamedTuple):
    """:class:`TaskRows` in the form that compiled loops read."""

    indptr: Array
    indices: Array
    values: Array
    codes: Array
    target: Array
    weight: Array


class _Rule(NamedTuple):
    """Settings in compiled form: the threshold per round for the norm of a row of W, gamma, the number of the loss, whether there are
    intercepts, and the steepness of their steps.
    """

    threshold: float
    gamma: float
    loss: int
    intercept: bool
    steepness: float


class _State(NamedTuple):
    """State changed by rounds: the arrays of :class:`TaskStream`, the open round, and for each row of W a cached factor and the round of
    this factor.

    The open round has rows ``pending`` with their ``slopes``, in order of arrival, and tasks ``is_pending``.
    """

    sums: Array
    bias: Array
    paid: Array
    norms: Array
    pending: Array
    slopes: Array
    is_pending: Array
    scale: Array
    stamp: Array


@compiled
def _advance(
    rows: _Rows, order: Array, entries: Array, rule: _Rule, state: _State, t: int, count: int, norm: float | None, fobos: bool | None
) -> tuple[int, int, Entry, Entry, Entry]:
    """Read rows. ``norm`` and ``fobos`` are those of :attr:`Rounds.kinds`. Return five results:

    * the number of closed rounds;
    * the number of rows in the open round;
    * the row where predictions diverge, or -1;
    * the sum of the losses;
    * the sum of the weights.
    """
    # Arrays are named once: reaching into a tuple of arrays for every row counts references each time.
    indptr, indices, values, codes, target, weight = rows
    sums, bias, paid, norms, pending, slopes, is_pending, scale, stamp = state
    n_tasks, losses, weights = sums.shape[1], 0.0, 0.0
    step = 1.0 / (rule.gamma * np.sqrt(t)) if t > 0 else 0.0
    for i in order:
        if count > 0 and (count == n_tasks or i < 0 or is_pending[codes[i]]):
            step = 1.0 / (rule.gamma * np.sqrt(t + 1))
            t, count = _close_round(rows, rule, state, t, count, 1.0 if fobos is None else -step), 0
            if fobos is not None:
                _shrink_rows(sums, norms, entries, rule.threshold, step, norm)
        if i < 0:
            continue
        q = codes[i]
        f = bias[q]
        if fobos is not None:
            for p in range(indptr[i], indptr[i + 1]):
                f += values[p] * sums[indices[p], q]
        elif t > 0 and norm is not None:
            f = _add_lp_product(
                f, indices, values, indptr[i], indptr[i + 1], sums, norms, q, entries, rule.threshold, t, step, scale, stamp, norm
            )
        elif t > 0:
            f = _add_product(f, indices, values, indptr[i], indptr[i + 1], sums, norms, q, entries, rule.threshold, t, step, scale, stamp)
        if not abs(f) < MAX_PREDICTION:
            return t, count, i, losses, weights
        loss, slope = value_and_slope(rule.loss, target[i], f)
        if rule.intercept and rule.loss == LossKind.SQUARED and paid[q] == 0.0:
            # The first row of a task: learning begins at its target.
            slope = 0.0
        losses += weight[i] * loss
        weights += weight[i]
        pending[count], slopes[count], is_pending[q] = i, weight[i] * slope, True
        count += 1
    if count == n_tasks:
        step = 1.0 / (rule.gamma * np.sqrt(t + 1))
        t, count = _close_round(rows, rule, state, t, count, 1.0 if fobos is None else -step), 0
        if fobos is not None:
            _shrink_rows(sums, norms, entries, rule.threshold, step, norm)
    return t, count, -1, losses, weights


@compiled(inline=True)
def _close_round(rows: _Rows, rule: _Rule, state: _State, t: int, count: int, pace: float) -> int:
    """Add ``pace`` times the slopes of the open round and return the number of rounds. The rows wait until the round closes because sums
    must not change within a round.
    """
    indptr, indices, values, codes, target, weight = rows
    sums, bias, paid, norms, pending, slopes, is_pending, _, _ = state
    for k in range(count):
        i, slope = pending[k], slopes[k]
        q = codes[i]
        is_pending[q] = False
        if rule.intercept:
            # A stream of numbers begins at the first of them.
            before = target[i] if rule.loss == LossKind.SQUARED and paid[q] == 0.0 else bias[q]
            paid[q] += weight[i] * weight[i]
            bias[q] = intercept_after(before, slope, rule.steepness, paid[q], rule.loss != LossKind.SQUARED)
        _add_row(indices, values, indptr[i], indptr[i + 1], pace * slope, sums, norms, q)
    if (t + 1) % ROUNDS_PER_SUM == 0:
        _sum_norms(sums, norms)
    return t + 1


@compiled(inline=True)
def _add_row(indices: Array, values: Array, first: Entry, last: Entry, slope: Entry, sums: Array, norms: Array, q: Entry) -> None:
    """Add ``slope x`` to the sums of task q and update the squared norms."""
    for p in range(first, last):
        j = indices[p]
        before = sums[j, q]
        sums[j, q] = before + slope * values[p]
        # The difference of squares of what is stored, so that rounding does not pile up.
        norms[j] += (sums[j, q] - before) * (sums[j, q] + before)


@compiled
def _sum_norms(sums: Array, norms: Array) -> None:
    for j in range(len(norms)):
        norms[j] = 0.0
        for q in range(sums.shape[1]):
            norms[j] += sums[j, q] * sums[j, q]


@compiled(inline=True)
def _add_product(
    f: Entry, indices: Array, values: Array, first: Entry, last: Entry, sums: Array, norms: Array, q: Entry,
    entries: Array, row: float, t: int, step: float, scale: Array, stamp: Array,
) -> Entry:  # fmt: skip
    """Return ``f + <w_q, x>`` after t rounds. Rows of W that are zero because of their small norm are skipped."""
    for p in range(first, last):
        j = indices[p]
        tau = t * entries[j]
        bound = t * row + tau
        if norms[j] <= bound * bound * (1.0 - NORM_MARGIN):
            continue
        if stamp[j] != t:
            stamp[j], scale[j] = t, step * _shrinkage(sums, j, tau, t * row) if row > 0.0 else step
        excess = abs(sums[j, q]) - tau
        if excess > 0.0:
            f -= values[p] * scale[j] * (excess if sums[j, q] > 0.0 else -excess)
    return f


@compiled(inline=True)
def _shrinkage(sums: Array, j: Entry, tau: Entry, threshold: float) -> float:
    """Return ``[1 - threshold / ||S(s_j, tau)||]_+`` of a row of sums."""
    square = 0.0
    for q in range(sums.shape[1]):
        excess = abs(sums[j, q]) - tau
        if excess > 0.0:
            square += excess * excess
    norm = np.sqrt(square)
    return 1.0 - threshold / norm if norm > threshold else 0.0


@compiled
def _add_lp_product(
    f: Entry, indices: Array, values: Array, first: Entry, last: Entry, sums: Array, norms: Array, q: Entry,
    entries: Array, row: float, t: int, step: float, scale: Array, stamp: Array, norm: float,
) -> Entry:  # fmt: skip
    """Return ``f + <w_q, x>`` for rows of W under L_p norms, p = ``norm``; the factor of a row is its ``||W_j||_p`` over ``step``."""
    n_tasks, every = sums.shape[1], np.zeros(0, np.int64)
    spread = n_tasks ** max(0.5 - 1.0 / norm, 0.0)
    for p in range(first, last):
        j = indices[p]
        bar = t * (row + entries[j])
        if norms[j] * spread * spread <= bar * bar * (1.0 - NORM_MARGIN):
            continue
        if stamp[j] != t:
            stamp[j], scale[j] = t, prox_size(sums[j], every, 0, n_tasks, bar, norm)
        f -= values[p] * step * prox_entry(sums[j, q], scale[j], bar, norm)
    return f


@compiled
def _shrink_rows(weights: Array, norms: Array, entries: Array, threshold: float, step: float, norm: float | None) -> None:
    """Take the proximal step of ``step Omega`` on all rows of W (FOBOS)."""
    n_tasks, every = weights.shape[1], np.zeros(0, np.int64)
    for j in range(norms.size):
        bar, norms[j] = step * (threshold + entries[j]), 0.0
        if norm is not None:
            size = prox_size(weights[j], every, 0, n_tasks, bar, norm)
        else:
            size = _shrinkage(weights, j, step * entries[j], step * threshold)
        for q in range(n_tasks):
            if norm is not None:
                weights[j, q] = prox_entry(weights[j, q], size, bar, norm)
            else:
                weights[j, q] = size * np.copysign(max(abs(weights[j, q]) - step * entries[j], 0.0), weights[j, q])
            norms[j] += weights[j, q] * weights[j, q]

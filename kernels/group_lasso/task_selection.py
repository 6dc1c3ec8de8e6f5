r"""Feature selection over many tasks by dual averaging: penalties on the rows of W, one compiled kernel of rounds.

W is ``(d, Q)``: column q is task q, row j is feature j. Every round brings at most one row of data per task; column q of G is task q's
subgradient, zero without a row. After t rounds with the mean :math:`\bar G` of the G of all rounds

.. math:: W_{t+1} = \arg\min_W \langle \bar G, W \rangle + \Omega(W) + \frac{\gamma}{2 \sqrt t} \|W\|_F^2, \qquad
          \Omega(W) = \sum_j ( \rho \|W_{j\cdot}\|_2 + \tau \|W_{j\cdot}\|_1 ),

in closed form. ``imtfs``: rho = 0, tau = lam; ``amtfs``: rho = lam, tau = 0; ``mtfts``: rho = lam, tau = lam r. The intercept of every task
has steps of its own (`gramplane.kernels.group_lasso.intercepts`), over the rounds that bring a row of the task.

References
----------
Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 4: Algorithm 2,
Theorem 3; the subgradient of the hinge loss corrects its equation (4.9).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .intercepts import STEEPNESS, intercept_after
from .penalty import GroupPenalty, single_features

Array = np.ndarray
FloatArray = NDArray[np.float64]

LOSSES = {"squared": 0, "logistic": 1, "hinge": 2}
"""Numbers of the losses in compiled code."""

CLOSE = -1
"""Among the rows to read: closes the open round."""

MARGIN = 1e-6
"""Share of its threshold by which a maintained norm must stay below it to be trusted; rounding has moved it by far less."""

REBUILD = 1 << 20
"""Rounds after which maintained norms are summed anew."""

LARGEST = 1e100
"""A prediction beyond this means that the weights diverge."""


def task_penalty(name: str, n_features: int, r: float) -> GroupPenalty:
    """Return ``imtfs`` (4.4), ``amtfs`` (4.5) or ``mtfts`` (4.6, inner ratio ``r``): every feature is a group, over all tasks."""
    kappa, inner = {"imtfs": (0.0, 1.0), "amtfs": (1.0, 0.0), "mtfts": (1.0, r)}[name]
    return single_features(n_features, kappa, inner)


@dataclass
class TaskStream:
    """What dual averaging keeps between rounds: sums of subgradients, from which weights follow at any time.

    Attributes
    ----------
    t
        Closed rounds.
    sums
        ``(d, Q)`` sums of subgradients.
    bias
        ``(Q,)`` the intercepts.
    paid
        ``(Q,)`` sums of the squared weights of the rows of every task.
    norms
        ``(d,)`` squared norms of the rows of ``sums``, kept up to date entry by entry.
    """

    t: int
    sums: FloatArray
    bias: FloatArray
    paid: FloatArray
    norms: FloatArray
    _cache: tuple[Rounds, FloatArray, NDArray[np.int64]] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def empty(cls, n_features: int, n_tasks: int) -> TaskStream:
        """Return the state before the first round."""
        return cls(0, np.zeros((n_features, n_tasks)), np.zeros(n_tasks), np.zeros(n_tasks), np.zeros(n_features))

    def copy(self) -> TaskStream:
        """Return a state that shares nothing with this one."""
        return TaskStream(self.t, self.sums.copy(), self.bias.copy(), self.paid.copy(), self.norms.copy())

    def factors(self, rounds: Rounds) -> tuple[FloatArray, NDArray[np.int64]]:
        """Return where the compiled loop keeps factors of rows of W, and the rounds they are of; nothing of length d is made per call."""
        if self._cache is None or self._cache[0] is not rounds:
            self._cache = rounds, np.empty(len(self.norms)), np.full(len(self.norms), -1, np.int64)
        return self._cache[1:]


@dataclass(frozen=True)
class TaskRows:
    """Rows of data with their tasks, as compressed sparse rows.

    Attributes
    ----------
    indptr, indices, values
        int64 ``(n + 1,)``, int32, float64.
    codes
        ``(n,)`` task of every row.
    target
        ``(n,)``: -1 and +1 for classes.
    weight
        ``(n,)`` factors of the loss.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    values: FloatArray
    codes: NDArray[np.int64]
    target: FloatArray
    weight: FloatArray

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.codes)

    @cached_property
    def _owners(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self.n), np.diff(self.indptr))

    def decide(self, weights: FloatArray, intercepts: FloatArray) -> FloatArray:
        """Return the prediction of every row from weights ``(Q, d)`` and intercepts ``(Q,)``, ``(n,)``."""
        products = self.values * weights[self.codes[self._owners], self.indices]
        return np.bincount(self._owners, products, self.n) + intercepts[self.codes]

    def chosen(self, which: NDArray[np.int64]) -> TaskRows:
        """Return some of the rows, in the order given."""
        counts = np.diff(self.indptr)[which]
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        entries = np.repeat(self.indptr[which] - starts[:-1], counts) + np.arange(starts[-1])
        rest = self.codes[which], self.target[which], self.weight[which]
        return TaskRows(starts, self.indices[entries], self.values[entries], *rest)

    def followed_by(self, other: TaskRows) -> TaskRows:
        """Return these rows and then those of another set."""
        indptr = np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]])
        names = ("indices", "values", "codes", "target", "weight")
        return TaskRows(indptr, *(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))


@dataclass(frozen=True)
class OpenRound:
    """Rows that were read but whose round is not complete.

    Attributes
    ----------
    rows
        ``(k,)`` which rows of the data, in the order of arrival.
    slopes
        ``(k,)`` derivative of the loss at their prediction.
    """

    rows: NDArray[np.int64]
    slopes: FloatArray

    @classmethod
    def none(cls) -> OpenRound:
        """Return the round without rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0))


@dataclass(frozen=True)
class Rounds:
    """What the steps of a stream minimise.

    Attributes
    ----------
    penalty
        ``imtfs``, ``amtfs`` or ``mtfts`` as groups of one feature each.
    lam, gamma
        Weights of penalty and proximity term.
    loss
        A name of ``LOSSES``.
    fit_intercept
        Whether every task has an intercept.
    kept
        ``(d,)`` features that may have weights; ``None``: all.
    """

    penalty: GroupPenalty
    lam: float
    gamma: float
    loss: str
    fit_intercept: bool = False
    kept: NDArray[np.bool_] | None = None

    @cached_property
    def entries(self) -> FloatArray:
        """Thresholds of entries by feature ``(d,)``: infinite, so that there is no weight, for features that are not kept."""
        found = self.lam * self.penalty.inner
        return found if self.kept is None else np.where(self.kept, found, np.inf)

    def weights(self, stream: TaskStream) -> FloatArray:
        r"""Return the weights ``(Q, d)`` after the rounds so far, with exact zeros: the step in closed form (Theorem 3).

        With :math:`C_j = S(\bar G_j, \tau)`, elementwise, :math:`W_j = - \frac{\sqrt t}{\gamma} [1 - \rho / \|C_j\|_2]_+ C_j`.
        """
        if stream.t == 0:
            return np.zeros(stream.sums.shape[::-1])
        found = self.penalty.prox(stream.sums.T / stream.t, self.lam) * (-np.sqrt(stream.t) / self.gamma)
        if self.kept is not None:
            found[:, ~self.kept] = 0.0
        # Adding zero turns -0.0 into 0.0.
        return found + 0.0

    def intercepts(self, stream: TaskStream) -> FloatArray:
        """Return the intercepts ``(Q,)`` after the rounds so far."""
        return stream.bias + 0.0


@dataclass(frozen=True)
class Progress:
    """How far rows were read.

    Attributes
    ----------
    loss, weight
        Sum of the losses, each before its row was learnt from, and of the rows' weights.
    open
        The round left open.
    """

    loss: float
    weight: float
    open: OpenRound


class Diverged(ArithmeticError):
    """Predictions grow without bound; ``row`` is where it was noticed."""

    def __init__(self, row: int) -> None:
        super().__init__(f"row {row}: predictions grow without bound")
        self.row = row


def run_rounds(stream: TaskStream, rows: TaskRows, order: NDArray[np.int64], rounds: Rounds, opened: OpenRound) -> Progress:
    """Read rows in an order and learn from every round that closes; ``stream`` is changed in place.

    A round takes one row of each task: it closes when all tasks have given one, when a task comes a second time, and at ``CLOSE``. Costs
    follow the non-zeros of the rows, and Q for every feature of the round whose norm is large enough to matter; results do not depend on
    how an order is cut into calls, to the bit.

    Raises
    ------
    Diverged
        A prediction is not finite or beyond 1e100.
    """
    n_tasks, count = stream.sums.shape[1], len(opened.rows)
    pending, slopes = np.zeros(n_tasks, np.int64), np.zeros(n_tasks)
    pending[:count], slopes[:count] = opened.rows, opened.slopes
    counters, totals, taken = np.array([stream.t, count, -1]), np.zeros(2), np.zeros(n_tasks, np.int64)
    weights = np.array([rounds.lam * rounds.penalty.kappa.max(initial=0.0), rounds.gamma, STEEPNESS[rounds.loss]])
    kinds = np.array([LOSSES[rounds.loss], int(rounds.fit_intercept)])
    data = (order, rows.indptr, rows.indices, rows.values, rows.codes, rows.target, rows.weight)
    state = (stream.sums, stream.bias, stream.paid, stream.norms, pending, slopes)
    _rounds(*data, rounds.entries, weights, kinds, *state, *stream.factors(rounds), taken, counters, totals)
    stream.t = int(counters[0])
    if counters[2] >= 0:
        raise Diverged(int(counters[2]))
    left = OpenRound(pending[: counters[1]].copy(), slopes[: counters[1]].copy())
    return Progress(float(totals[0]), float(totals[1]), left)


@compiled
def _rounds(
    order: Array,
    indptr: Array,
    indices: Array,
    values: Array,
    codes: Array,
    target: Array,
    weight: Array,
    entries: Array,
    weights: Array,
    kinds: Array,
    sums: Array,
    bias: Array,
    paid: Array,
    norms: Array,
    pending: Array,
    slopes: Array,
    scale: Array,
    stamp: Array,
    taken: Array,
    counters: Array,
    totals: Array,
) -> None:
    row, gamma, steepness, loss, with_bias = weights[0], weights[1], weights[2], kinds[0], kinds[1] == 1
    t, count = counters[0], counters[1]
    n_tasks = sums.shape[1]
    for k in range(count):
        taken[codes[pending[k]]] = 1
    step = 1.0 / (gamma * np.sqrt(t)) if t > 0 else 0.0
    for place in range(len(order) + 1):
        ended = place == len(order)
        i = CLOSE if ended else order[place]
        if count == n_tasks or (count > 0 and not ended and (i < 0 or taken[codes[i]] == 1)):
            # The sums do not change within a round, so its rows wait until it closes; they are added in the order of arrival.
            for k in range(count):
                a, u = pending[k], slopes[k]
                q = codes[a]
                taken[q] = 0
                if with_bias:
                    # A stream of numbers begins at the first of them.
                    before = target[a] if loss == 0 and paid[q] == 0.0 else bias[q]
                    paid[q] += weight[a] * weight[a]
                    bias[q] = intercept_after(before, u, steepness, paid[q], loss != 0)
                for p in range(indptr[a], indptr[a + 1]):
                    j = indices[p]
                    old = sums[j, q]
                    sums[j, q] = old + u * values[p]
                    # The difference of squares of what is stored, so that rounding does not pile up.
                    norms[j] += (sums[j, q] - old) * (sums[j, q] + old)
            t, count = t + 1, 0
            step = 1.0 / (gamma * np.sqrt(t))
            if t % REBUILD == 0:
                for j in range(len(norms)):
                    norms[j] = 0.0
                    for q in range(n_tasks):
                        norms[j] += sums[j, q] * sums[j, q]
        if i < 0:
            continue
        q, y = codes[i], target[i]
        f = bias[q]
        if t > 0:
            for p in range(indptr[i], indptr[i + 1]):
                j = indices[p]
                tau = t * entries[j]
                bound = t * row + tau
                if norms[j] <= bound * bound * (1.0 - MARGIN):
                    continue
                if stamp[j] != t:
                    stamp[j], scale[j] = t, step
                    if row > 0.0:
                        square = 0.0
                        for s in range(n_tasks):
                            over = abs(sums[j, s]) - tau
                            if over > 0.0:
                                square += over * over
                        norm = np.sqrt(square)
                        scale[j] = step * (1.0 - t * row / norm) if norm > t * row else 0.0
                over = abs(sums[j, q]) - tau
                if over > 0.0:
                    f -= values[p] * scale[j] * (over if sums[j, q] > 0.0 else -over)
        if not abs(f) < LARGEST:
            counters[0], counters[1], counters[2] = t, count, i
            return
        if loss == 0:
            u, told = 0.0 if with_bias and paid[q] == 0.0 else f - y, 0.5 * (f - y) * (f - y)
        elif loss == 1:
            e = np.exp(-abs(f))
            told = np.log1p(e) + max(-y * f, 0.0)
            u = -y * (e / (1.0 + e) if y * f > 0.0 else 1.0 / (1.0 + e))
        else:
            told = max(1.0 - y * f, 0.0)
            u = -y if told > 0.0 else 0.0
        totals[0] += weight[i] * told
        totals[1] += weight[i]
        pending[count], slopes[count] = i, weight[i] * u
        taken[q] = 1
        count += 1
    counters[0], counters[1] = t, count

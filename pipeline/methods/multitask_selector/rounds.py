"""Feature selection over many tasks by dual averaging: rounds of one row per task, epochs in seeded orders, a second fit on the selection.

Arithmetic and references: :mod:`gramplane.kernels.group_lasso.task_selection`. A step of the loop is a number of whole epochs, or of whole
rounds of a long one, fixed by the data alone; its state holds sums of subgradients, from which the weights follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.mean_losses import MeanLoss
from ....kernels.group_lasso.task_selection import CLOSE, Diverged, OpenRound, Rounds, TaskStream, run_rounds, task_penalty
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import SelectorConfig
from .inputs import SelectorData, without_bound

STEP_ENTRIES = 1 << 17
"""Entries of rows that a step reads at most; more where the weights alone have more."""

STEPS = 20
"""A fit of few rows and many epochs takes about this many steps, so that its course can be seen."""


@dataclass(frozen=True)
class SelectorState:
    """State of the stream.

    Attributes
    ----------
    iteration
        Steps so far.
    phase
        0 while features are selected, 1 while they are fitted again.
    epoch, part
        Finished epochs of this phase, and finished parts of the next one.
    t, sums, bias, paid, norms
        See :class:`gramplane.kernels.group_lasso.task_selection.TaskStream`.
    kept
        ``(d,)`` features that may have weights.
    along
        ``(n_steps, 6)``: phase, rows, rounds, sum of losses, penalty at the end, features with a weight.
    stop
        Why it ended, or ``None``.
    """

    record_name: ClassVar[str] = "SelectorState"
    record_version: ClassVar[int] = 2

    iteration: int
    phase: int
    epoch: int
    part: int
    t: int
    sums: np.ndarray
    bias: np.ndarray
    paid: np.ndarray
    norms: np.ndarray
    kept: np.ndarray
    along: np.ndarray
    stop: str | None = None

    @property
    def stream(self) -> TaskStream:
        """The sums, to be changed in place."""
        return TaskStream(self.t, self.sums.copy(), self.bias.copy(), self.paid.copy(), self.norms.copy())


@dataclass(frozen=True)
class Solution:
    """Weights of scaled features and what they cost.

    Attributes
    ----------
    weights, intercepts
        ``(Q, d)`` and ``(Q,)``, without offsets.
    objective, gap
        Mean losses of the tasks and penalty (4.3); distance to the optimum, NaN where nothing bounds it.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    objective: float
    gap: float


def objective(config: SelectorConfig, data: SelectorData, lam: float, weights: np.ndarray, values: np.ndarray) -> float:
    """Return the sum over tasks of their mean losses, and the penalty (4.3)."""
    penalty = task_penalty(config.penalty, data.n_features, config.r)
    return float(data.mean_weights @ MeanLoss(config.loss).exact(data.rows.target, values)) + lam * penalty.value(weights)


def lam_of(config: SelectorConfig, phase: int) -> float:
    """Return the weight of the penalty while features are selected (phase 0), and when they are fitted again."""
    return config.lam if phase == 0 or config.refit is None else config.refit


class RoundsLoop:
    """Rounds of one row per task, epoch after epoch.

    Parameters
    ----------
    config
        Parameters.
    data
        Rows of the fit.
    seed
        Root of the orders.
    fits
        The fit whose accuracy or R2 is followed.
    """

    state_type = SelectorState

    def __init__(self, config: SelectorConfig, data: SelectorData, seed: int, fits: Sequence[AccuracyTracker | R2Tracker] = ()) -> None:
        self.config, self.data, self.seed, self.fits = config, data, seed, tuple(fits)

    def init(self, ctx: RunContext) -> SelectorState:
        """Return the state before the first round."""
        return self._fresh(0, 0, self.data.kept, np.zeros((0, 6)))

    def _fresh(self, iteration: int, phase: int, kept: np.ndarray, along: np.ndarray) -> SelectorState:
        found = TaskStream.empty(self.data.n_features, self.data.n_tasks)
        return SelectorState(iteration, phase, 0, 0, found.t, found.sums, found.bias, found.paid, found.norms, kept, along)

    def rounds(self, state: SelectorState) -> Rounds:
        """Return what the steps of this phase minimise."""
        config = self.config
        penalty = task_penalty(config.penalty, self.data.n_features, config.r)
        kept = None if state.kept.all() else state.kept
        return Rounds(penalty, lam_of(config, state.phase), config.gamma, config.loss, config.fit_intercept, kept)

    def step(self, state: SelectorState, ctx: RunContext) -> Step[SelectorState]:
        """Read the next epochs, or the next part of one."""
        stream, rounds = state.stream, self.rounds(state)
        order, epoch, part = self.next_rows(state.epoch, state.part)
        try:
            progress = run_rounds(stream, self.data.rows, order, rounds, OpenRound.none())
        except Diverged as error:
            raise ValueError(self._diverged(error.row, stream.t)) from None
        moved = replace(state, iteration=state.iteration + 1, epoch=epoch, part=part, t=stream.t, sums=stream.sums)
        moved = replace(moved, bias=stream.bias, paid=stream.paid, norms=stream.norms)
        weights = rounds.weights(stream)
        metrics = self._metrics(moved, weights, rounds, progress.loss / progress.weight)
        newest = [state.phase, progress.weight, stream.t - state.t, progress.loss, metrics["penalty"], metrics["n_selected"]]
        return Step(self._turned(replace(moved, along=np.vstack([state.along, newest])), weights), metrics)

    def _diverged(self, row: int, t: int) -> str:
        name = self.data.names[int(self.data.rows.codes[row])]
        return without_bound(self.config.gamma, row, name, f"round {t + 1}, ")

    def _turned(self, state: SelectorState, weights: np.ndarray) -> SelectorState:
        """Return the state with its reason to stop, or turned to the second fit."""
        if state.epoch < self.config.epochs:
            return state
        if state.phase == 0 and self.config.refit is not None:
            return self._fresh(state.iteration, 1, np.asarray(weights.any(axis=0)), state.along)
        return replace(state, stop="epochs")

    def _metrics(self, state: SelectorState, weights: np.ndarray, rounds: Rounds, loss: float) -> dict[str, Any]:
        chosen = weights.any(axis=0)
        figures = {"epoch": state.epoch, "phase": state.phase, "rounds": state.t, "loss": loss}
        penalty = rounds.lam * rounds.penalty.value(weights)
        counts = {"penalty": penalty, "n_selected": int(chosen.sum()), "nonzeros": int(np.count_nonzero(weights))}
        return {**figures, **counts, **self._evaluated(state, weights, rounds)}

    def _evaluated(self, state: SelectorState, weights: np.ndarray, rounds: Rounds) -> dict[str, Any]:
        """Return objective and scores after whole epochs: they cost a pass over the rows."""
        if state.part:
            return {"objective": np.nan, **dict.fromkeys(accuracy_metrics(self.fits, self._zeros), np.nan)}
        values = self.data.rows.decide(weights, rounds.intercepts(state.stream))
        return {
            "objective": objective(self.config, self.data, rounds.lam, weights, values),
            **accuracy_metrics(self.fits, {0: values + self.data.offsets[self.data.rows.codes]}),
        }

    @property
    def _zeros(self) -> Mapping[int, np.ndarray]:
        return {0: np.zeros(self.data.rows.n)}

    def solution(self, state: SelectorState) -> Solution:
        """Return the weights of the last round and their objective."""
        stream, rounds = state.stream, self.rounds(state)
        weights, intercepts = rounds.weights(stream), rounds.intercepts(stream)
        value = objective(self.config, self.data, rounds.lam, weights, self.data.rows.decide(weights, intercepts))
        return Solution(weights, intercepts, value, float("nan"))

    # -- orders --------------------------------------------------------------------------------------------------------------------

    @cached_property
    def _used(self) -> np.ndarray:
        """Rows of positive weight, task by task, those of a task ascending."""
        used = np.flatnonzero(self.data.rows.weight > 0)
        return used[np.argsort(self.data.rows.codes[used], kind="stable")]

    @cached_property
    def _codes(self) -> np.ndarray:
        """Tasks of the rows in the narrowest type: numbers of two bytes are sorted by counting."""
        return self.data.rows.codes.astype(np.min_scalar_type(self.data.n_tasks))

    @cached_property
    def _ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Where the rows of every round stand in ``_used``, round after round, and where the rounds begin, ``(n_rounds + 1,)``."""
        counts = np.bincount(self.data.rows.codes[self._used], minlength=self.data.n_tasks)
        ranks = np.arange(len(self._used)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.argsort(ranks, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(ranks))])

    @property
    def n_rounds(self) -> int:
        """Rounds of an epoch: the rows of the largest task."""
        return len(self._ranks[1]) - 1

    @cached_property
    def plan(self) -> tuple[int, int]:
        """Return ``(epochs of a step, parts of an epoch)``; one of them is 1."""
        indptr = self.data.rows.indptr
        entries = max(int(np.diff(indptr)[self._used].sum()), 1)
        limit = max(STEP_ENTRIES, self.data.n_features * self.data.n_tasks)
        return max(min(limit // entries, -(-self.config.epochs // STEPS)), 1), min(-(-entries // limit), self.n_rounds)

    def epoch_order(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch, round after round; the k-th rows of all tasks make up round k.

        The rows of every task are permuted anew from ``(seed, epoch)``, unless ``shuffle`` is off.
        """
        used = self._used
        if self.config.shuffle:
            shuffled = np.random.default_rng(np.random.SeedSequence((self.seed, 0x57EA, epoch))).permutation(used)
            used = shuffled[np.argsort(self._codes[shuffled], kind="stable")]
        return used[self._ranks[0]]

    def next_rows(self, epoch: int, part: int) -> tuple[np.ndarray, int, int]:
        """Return the rows of the step that begins at a place, with ``CLOSE`` where a round must end, and the place after it."""
        epochs, parts = self.plan
        if parts == 1:
            last = min(epoch + epochs, self.config.epochs)
            return np.concatenate([np.append(self.epoch_order(k), CLOSE) for k in range(epoch, last)]), last, 0
        edges = self._ranks[1]
        lo, hi = (edges[k * (len(edges) - 1) // parts] for k in (part, part + 1))
        ended = part + 1 == parts
        return np.append(self.epoch_order(epoch)[lo:hi], CLOSE), epoch + ended, 0 if ended else part + 1

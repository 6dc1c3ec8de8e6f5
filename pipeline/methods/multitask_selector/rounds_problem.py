"""Feature selection over many tasks by dual averaging or FOBOS: rounds of one row per task, epochs in seeded orders, a refit.

Arithmetic and references: :mod:`gramplane.kernels.group_lasso.task_selection`. A step consists of whole epochs, or of whole rounds of a
long epoch; their number depends on the data alone. The state holds sums of subgradients, from which the weights follow; with FOBOS it holds
the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.group_lasso.step_lengths import StepWatch
from ....kernels.group_lasso.task_selection import CLOSE, Diverged, OpenRound, Rounds, TaskStream, run_rounds
from ....kernels.losses import mean_loss
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.scores import accuracy_metrics
from ...inputs.tasks import TaskInputs
from .config import SelectorConfig
from .inputs import Solution, divergence_message, look_at, objective_value, penalty_of, penalty_weight
from .problem import SelectorProblem, Way
from .rows import BlockRows, MemoryRows

N_STEPS = 20  # a fit of few rows and many epochs takes about this many steps, so that its progress can be seen


@dataclass(frozen=True)
class SelectorState:
    """State of the stream. ``sums``, ``bias``, ``paid`` and ``norms`` are the fields of a TaskStream after ``t`` rounds."""

    record_name: ClassVar[str] = "SelectorState"
    record_version: ClassVar[int] = 2

    iteration: int
    phase: int  # 0 while features are selected, 1 while they are fitted again
    epoch: int  # finished epochs of this phase
    part: int  # finished parts of the next one
    t: int
    sums: np.ndarray
    bias: np.ndarray
    paid: np.ndarray
    norms: np.ndarray
    kept: np.ndarray  # (d,) features that may have weights
    along: np.ndarray  # (n_steps, 6): phase, rows, rounds, sum of losses, penalty at the end, features with a weight
    stop: str | None = None

    @property
    def stream(self) -> TaskStream:
        """The sums, which may be changed in place."""
        return TaskStream(self.t, self.sums.copy(), self.bias.copy(), self.paid.copy(), self.norms.copy())


class RoundsProblem(SelectorProblem):
    """Rounds of one row per task, epoch after epoch, in orders drawn from the seed.

    The rows come from memory or from blocks. This affects how the fit is divided into steps, and its memory, but not the weights.
    """

    state_type = SelectorState
    counter = "rounds"

    def __init__(self, config: SelectorConfig, inputs: TaskInputs, resources: Resources, way: Way) -> None:
        super().__init__(config, inputs, resources, way)
        self.source: BlockRows | MemoryRows = BlockRows(self.data, resources.driver_memory) if way == "blocks" else MemoryRows(self.data)
        self._order: tuple[int, np.ndarray] = (-1, np.zeros(0, np.int64))
        self.watch = StepWatch(config.gamma)

    def penalties(self, state: SelectorState) -> tuple[float, float]:
        """Return the weight of the penalty, and NaN: the smallest weight that selects nothing is not computed."""
        return float(self.config.lam), np.nan

    def init(self, resources: Resources) -> SelectorState:
        """Return the initial state, before the first round."""
        return self._start_phase(0, 0, self.data.selectable, np.zeros((0, 6)))

    def _start_phase(self, iteration: int, phase: int, selectable: np.ndarray, along: np.ndarray) -> SelectorState:
        empty = TaskStream.empty(self.data.n_features, self.data.n_tasks)
        return SelectorState(iteration, phase, 0, 0, empty.t, empty.sums, empty.bias, empty.paid, empty.norms, selectable, along)

    def rounds(self, state: SelectorState) -> Rounds:
        """Return the objective that the steps of this phase minimise."""
        config, selectable = self.config, None if state.kept.all() else state.kept
        penalty = penalty_of(config, self.data.n_features)
        terms = penalty_weight(config, state.phase), config.gamma, config.loss, config.fit_intercept
        return Rounds(penalty, *terms, selectable, config.algorithm)

    def step(self, state: SelectorState, resources: Resources) -> Step[SelectorState]:
        """Learn the rows of the next epochs, or of the next part of an epoch."""
        stream, rounds = state.stream, self.rounds(state)
        order, epoch, part = self.next_rows(state.epoch, state.part)
        rows, places = self.source.take(order, *self._window(state.epoch, state.part))
        try:
            progress = run_rounds(stream, rows, places, rounds, OpenRound.none())
        except Diverged as error:
            row = self.source.row_number(order, error.row)
            name = self.data.names[int(self.data.codes[row])]
            raise ValueError(
                divergence_message(self.watch, rows.chosen(places[places >= 0]), row, name, f"round {stream.t + 1}, ")
            ) from None
        look_at(self.watch, rounds, progress, rows, places)
        after = replace(state, iteration=state.iteration + 1, epoch=epoch, part=part, t=stream.t, sums=stream.sums)
        after = replace(after, bias=stream.bias, paid=stream.paid, norms=stream.norms)
        weights = rounds.weights(stream)
        metrics = self._metrics(after, weights, rounds, progress.loss / progress.weight)
        newest = [state.phase, progress.weight, stream.t - state.t, progress.loss, metrics["penalty"], metrics["n_selected"]]
        return Step(self._next_phase(replace(after, along=np.vstack([state.along, newest])), weights), metrics)

    def _next_phase(self, state: SelectorState, weights: np.ndarray) -> SelectorState:
        """Return the state with its reason to stop, or the initial state of the refit."""
        if state.epoch < self.config.epochs:
            return state
        if state.phase == 0 and self.config.refit is not None:
            return self._start_phase(state.iteration, 1, np.asarray(weights.any(axis=0)), state.along)
        return replace(state, stop="epochs")

    def _metrics(self, state: SelectorState, weights: np.ndarray, rounds: Rounds, loss: float) -> dict[str, Any]:
        selected = weights.any(axis=0)
        figures = {"epoch": state.epoch, "phase": state.phase, "rounds": state.t, "loss": loss}
        penalty = rounds.lam * rounds.penalty.value(weights)
        counts = {"penalty": penalty, "n_selected": int(selected.sum()), "nonzeros": int(np.count_nonzero(weights))}
        return {**figures, **counts, **self._evaluate(state, weights, rounds)}

    def _evaluate(self, state: SelectorState, weights: np.ndarray, rounds: Rounds) -> dict[str, Any]:
        """Return objective and scores. They are computed only after whole epochs, because they cost a pass over the rows."""
        if state.part:
            zeros = {0: np.zeros(len(self.data.codes))}
            return {"objective": np.nan, **dict.fromkeys(accuracy_metrics(self.trackers, zeros), np.nan)}
        values = self.source.decide(weights, rounds.intercepts(state.stream))
        return {
            "objective": objective_value(self.config, self.data, rounds.lam, weights, values),
            **accuracy_metrics(self.trackers, {0: values + self.data.offsets[self.data.codes]}),
        }

    def solution(self, state: SelectorState) -> Solution:
        """Return the weights of the last round and their objective."""
        stream, rounds = state.stream, self.rounds(state)
        weights, intercepts = rounds.weights(stream), rounds.intercepts(stream)
        value = objective_value(self.config, self.data, rounds.lam, weights, self.source.decide(weights, intercepts))
        return Solution(weights, intercepts, value, float("nan"))

    def regret_curve(self, state: SelectorState) -> list[dict[str, Any]]:
        """Return a table row per step of a finished stream: number of rows so far, mean loss of the step, mean loss so far, average regret,
        and number of features.

        The average regret per row is the cost so far (losses before learning, and penalties at the ends of steps) minus the cost of the
        last model on the same rows: the joint form of Theorem 4 over the tasks. With a refit, it is the regret of the refit.
        """
        along, last = state.along, state.along[:, 0] == state.phase
        rows, totals = np.cumsum(along[:, 1]), np.cumsum(along[:, 3])
        regrets = np.full(len(along), np.nan)
        paid = along[last, 3] + along[last, 2] * along[last, 4]
        fixed = self._last_losses(state, int(last.sum())) + along[last, 2] * along[-1, 4]
        regrets[last] = np.cumsum(paid - fixed) / np.cumsum(along[last, 1])
        return [
            {
                "rows": float(rows[k]),
                "loss": float(along[k, 3] / along[k, 1]),
                "mean_loss": float(totals[k] / rows[k]),
                "regret": float(regrets[k]) if last[k] else None,
                "features": int(along[k, 5]),
            }
            for k in range(len(along))
        ]

    def _last_losses(self, state: SelectorState, n_steps: int) -> np.ndarray:
        """Return, for every step of the last fit, the sum of the losses of the last model over the rows of that step, ``(n_steps,)``."""
        data, rounds, stream = self.data, self.rounds(state), state.stream
        values = self.source.decide(rounds.weights(stream), rounds.intercepts(stream))
        losses = data.weight * mean_loss(self.config.loss).values(data.target, values)
        sums, epoch, part = np.zeros(n_steps), 0, 0
        for k in range(n_steps):
            order, epoch, part = self.next_rows(epoch, part)
            sums[k] = losses[order[order >= 0]].sum()
        return sums

    @cached_property
    def _ranks(self) -> tuple[np.ndarray, np.ndarray]:
        """Indices into the used rows, round by round, and the boundaries of the rounds, ``(n_rounds + 1,)``."""
        codes = self.data.codes[self.data.used_rows]
        counts = np.bincount(codes, minlength=self.data.n_tasks)
        ranks = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.argsort(ranks, kind="stable"), np.concatenate([[0], np.cumsum(np.bincount(ranks))])

    @property
    def n_rounds(self) -> int:
        """Number of rounds per epoch, which is the number of rows of the largest task."""
        return len(self._ranks[1]) - 1

    @cached_property
    def schedule(self) -> tuple[int, int]:
        """Return ``(epochs per step, parts per epoch)``; one of them is 1."""
        entries, limit = self.source.step_entries()
        return max(min(limit // entries, -(-self.config.epochs // N_STEPS)), 1), min(-(-entries // limit), self.n_rounds)

    def steps_plan(self) -> dict[str, Any]:
        """Return the numbers of rounds, steps and epochs."""
        epochs, parts = self.schedule
        return {"rounds_per_epoch": self.n_rounds, "epochs_per_step": epochs, "steps_per_epoch": parts, "epochs": self.config.epochs}

    def epoch_order(self, epoch: int) -> np.ndarray:
        """Return the rows of an epoch, round after round; round k consists of the k-th rows of all tasks.

        The rows of every task are permuted anew from ``(seed, epoch)``, unless ``shuffle`` is off.
        """
        if self._order[0] != epoch:
            self._order = epoch, self._drawn_order(epoch)
        return self._order[1]

    def _drawn_order(self, epoch: int) -> np.ndarray:
        used = self.data.used_rows
        if self.config.shuffle:
            shuffled = np.random.default_rng(np.random.SeedSequence((self.planned.seed, 0x57EA, epoch))).permutation(used)
            # Numbers of two bytes are sorted by counting.
            codes = self.data.codes.astype(np.min_scalar_type(self.data.n_tasks))
            used = shuffled[np.argsort(codes[shuffled], kind="stable")]
        return used[self._ranks[0]]

    def next_rows(self, epoch: int, part: int) -> tuple[np.ndarray, int, int]:
        """Return the rows of the step that begins at a part of an epoch, with ``CLOSE`` where a round must end. Also return the epoch and
        the part at which the next step begins.
        """
        epochs, parts = self.schedule
        if parts == 1:
            last = min(epoch + epochs, self.config.epochs)
            return np.concatenate([np.append(self.epoch_order(k), CLOSE) for k in range(epoch, last)]), last, 0
        ends_epoch = part + 1 == parts
        rows = self._rows_of_parts(epoch, part, part + 1)
        return np.append(rows, CLOSE), epoch + ends_epoch, 0 if ends_epoch else part + 1

    def _rows_of_parts(self, epoch: int, first: int, last: int) -> np.ndarray:
        """Return the rows of parts ``first`` to ``last`` of an epoch, round after round."""
        edges, parts = self._ranks[1], self.schedule[1]
        lo, hi = (edges[k * (len(edges) - 1) // parts] for k in (first, last))
        return self.epoch_order(epoch)[lo:hi]

    def _window(self, epoch: int, part: int) -> tuple[tuple[int, int], Callable[[], np.ndarray]]:
        """Return an identifier of the window that contains a step, and a function that returns the rows of the window. A window consists of
        some parts of an epoch, or of whole epochs.
        """
        parts = self.schedule[1]
        if parts == 1:
            return (-1, 0), lambda: self.data.used_rows
        count = self.source.windows(parts)
        first = part // count * count
        return (epoch, first), lambda: self._rows_of_parts(epoch, first, min(first + count, parts))

"""The batch optimum of feature selection over many tasks, with its duality gap: what the rounds are compared with.

Solvers and certificate: :mod:`gramplane.kernels.group_lasso.on_rows`, every feature being a group over all tasks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.bounds import sound_gap
from ....kernels.group_lasso import on_rows as batch
from ....kernels.group_lasso.row_problem import RowProblem, TaskRows
from ....kernels.group_lasso.task_selection import task_penalty
from ....kernels.losses import mean_loss
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.scores import accuracy_metrics
from .inputs import Solution, auto_lam, objective_value
from .memory import moments_fit
from .problem import SelectorProblem

STEP_LIMITS = {"squared": 500, "logistic": 5, "hinge": 100}  # sweeps, Newton steps or steps on the path of a step of the loop, by loss
CUT_SHORT = 2  # phase of a second fit after a selection that max_iter ended: however it ends, the fit is unfinished


@dataclass(frozen=True)
class BatchState:
    """State of the batch solver."""

    record_name: ClassVar[str] = "BatchState"
    iteration: int
    phase: int  # 0 while features are selected, 1 while they are fitted again, or CUT_SHORT
    sweeps: int  # sweeps, Newton steps or proximal steps of this phase
    weights: np.ndarray  # (Q, d)
    intercepts: np.ndarray  # (Q,)
    objective: float  # primal value
    gap: float  # its distance to the dual value
    kept: np.ndarray  # (d,) features that may have weights
    stop: str | None = None
    lam: float = math.nan  # weight of the penalty of the selection, and the least that selects nothing; NaN where the data did not decide
    lambda_max: float = math.nan


class BatchProblem(SelectorProblem):
    """Descends until the gap closes; then, with ``refit``, on the selected features alone."""

    state_type = BatchState

    def init(self, resources: Resources) -> BatchState:
        """Return weights of zero, and the weight of the penalty where it follows from the data."""
        start = self._empty(0, 0, self.data.selectable)
        if self.config.lam != "auto":
            return start
        largest = batch.lambda_max(self.rows_problem(replace(start, lam=1.0)))
        return replace(start, lam=auto_lam(self.data, largest), lambda_max=largest)

    def _empty(self, iteration: int, phase: int, selectable: np.ndarray) -> BatchState:
        weights = np.zeros((self.data.n_tasks, self.data.n_features))
        return BatchState(iteration, phase, 0, weights, np.zeros(self.data.n_tasks), np.inf, np.inf, selectable)

    @cached_property
    def _sorted_rows(self) -> sp.csr_array:
        rows = self.data.rows
        return sp.csr_array((rows.values, rows.indices, rows.indptr), shape=(rows.n, self.data.n_features))[self.data.used_rows]

    def rows_problem(self, state: BatchState) -> RowProblem:
        """Return the problem of a phase, over the features that may have weights."""
        config, rows, order = self.config, self.data.rows, self.data.used_rows
        edges = np.concatenate([[0], np.cumsum(np.bincount(rows.codes[order], minlength=self.data.n_tasks))]).astype(np.int64)
        X = self._sorted_rows if state.kept.all() else self._sorted_rows[:, np.flatnonzero(state.kept)]
        penalty = task_penalty(config.penalty, int(np.count_nonzero(state.kept)), config.r)
        losses = rows.target[order], self.data.mean_weights[order], mean_loss(config.loss)
        return RowProblem(TaskRows(X, edges), *losses, penalty, self.penalties(state)[0], config.fit_intercept)

    def steps_plan(self) -> dict[str, Any]:
        """Return the bytes of the moments of all tasks, and sweeps of both fits."""
        fits = 1 if self.config.refit is None else 2
        return {"moment_bytes": 8 * self.data.n_tasks * (self.data.n_features + 2) ** 2, "sweeps_at_most": self.config.max_iter * fits}

    def step(self, state: BatchState, resources: Resources) -> Step[BatchState]:
        """Descend until the gap closes, or a fixed number of times."""
        config, columns = self.config, np.flatnonzero(state.kept)
        method = "auto" if moments_fit(self.data.n_features, self.data.n_tasks, resources.driver_memory) else "fista"
        limit = min(STEP_LIMITS[config.loss], config.max_iter - state.sweeps)
        warm = {"warm": state.weights[:, columns], "biases": state.intercepts}
        solution = batch.solve_rows(self.rows_problem(state), **warm, tol=config.tol, max_iter=limit, method=method)
        weights = np.zeros_like(state.weights)
        weights[:, columns] = solution.copies
        after = replace(state, iteration=state.iteration + 1, sweeps=state.sweeps + solution.steps, weights=weights)
        after = replace(after, intercepts=solution.biases, objective=solution.objective, gap=solution.gap)
        return Step(self._next_phase(after, solution.stop), self._metrics(after))

    def _next_phase(self, state: BatchState, reason: str) -> BatchState:
        """Return the state with its reason to stop, or that of the second fit before its first step."""
        if reason == "max_iter" and state.sweeps < self.config.max_iter:
            return state
        # A model without the second fit is of another problem. Where round-off forbids the tolerance the selection is as good as it gets.
        if state.phase == 0 and self.config.refit is not None and state.weights.any():
            second = self._empty(state.iteration, CUT_SHORT if reason == "max_iter" else 1, np.asarray(state.weights.any(axis=0)))
            return replace(second, lam=state.lam, lambda_max=state.lambda_max)
        if state.phase == CUT_SHORT:
            return replace(state, stop="max_iter")
        return replace(state, stop="tol" if reason == "gap" else reason)

    def _metrics(self, state: BatchState) -> dict[str, Any]:
        selected = state.weights.any(axis=0)
        values = self.data.rows.decide(state.weights, state.intercepts) + self.data.offsets[self.data.codes]
        return {
            "phase": min(state.phase, 1),
            "objective": state.objective,
            "gap": state.gap,
            "sweeps": state.sweeps,
            "n_selected": int(selected.sum()),
            "nonzeros": int(np.count_nonzero(state.weights)),
            **accuracy_metrics(self.trackers, {0: values}),
        }

    def solution(self, state: BatchState) -> Solution:
        """Return the weights with their objective, summed anew over the rows, and their gap."""
        values = self.data.rows.decide(state.weights, state.intercepts)
        value = objective_value(self.config, self.data, self.penalties(state)[0], state.weights, values)
        return Solution(state.weights, state.intercepts, value, sound_gap(state.gap, state.objective))

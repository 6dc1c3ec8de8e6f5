"""The batch optimum out of core: a working set of features in the driver, all others by passes over the column stripes.

A step solves the problem of the working set. Of the other features, it then evaluates those whose gradient's dual norm may have risen above
lam since the last evaluation, and adds the features with the largest violations. Before a fit ends, the norms of all features are computed
at one point, so that the gap is exact.

Solver: :mod:`gramplane.kernels.group_lasso.on_rows`; bound of the changes: :mod:`gramplane.kernels.group_lasso.task_gradients`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.bounds import sound_gap
from ....kernels.group_lasso.on_moments import WorkingColumns
from ....kernels.group_lasso.on_rows import RowSolution, solve_rows
from ....kernels.group_lasso.row_problem import RowProblem
from ....kernels.group_lasso.task_gradients import norm_move
from ....kernels.losses import mean_loss
from ...core.memory import refuse
from ...core.resources import Resources
from ...core.result import Step
from ...inputs.scores import accuracy_metrics
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...passes.scaling import fetch_scaled
from .inputs import Solution, auto_lam, penalty_of
from .norms_pass import norms_pass, task_norms
from .problem import CUT_SHORT, FEWER_COLUMNS, STEP_LIMITS, SelectorProblem, first_features, moments_fit, set_items

MORE_FEATURES = 10  # features that may join a later set at least; it may also double
INNER_TOL_SHARE = 0.3  # a set's problem is solved to this share of the tolerance
TIGHTENING = 0.1  # factor of that share where no feature is left to join
LEAST_TOL_SHARE = 1e-5  # of the tolerance: where a set's problem is closed to this share, only rounding keeps the gap open
GAP_SHARE = 0.1  # a set's problem is not solved closer than to this share of the whole problem's last gap, but for the squared loss
BOUND_SLACK = 1e-9  # relative round-off granted to the bound of a feature's norm


@dataclass(frozen=True)
class WorkingState:
    """State of the solver: weights and bounds, and the known norms of features outside the working set."""

    record_name: ClassVar[str] = "SelectorWorkingState"
    iteration: int
    phase: int  # 0 while features are selected, 1 while they are fitted again, or CUT_SHORT
    sweeps: int  # sweeps, Newton steps or steps on the path of this phase
    features: np.ndarray  # int64 features of the working set, in the order they joined
    joined: np.ndarray  # int64 how many joined at a time
    weights: np.ndarray  # (Q, p) of the working set
    intercepts: np.ndarray  # (Q,)
    slopes: np.ndarray  # (n,) minus the derivatives of the losses, task by task, at which the bounds hold
    bounds: np.ndarray  # (d,) of the dual norms of the features' gradients; infinite before they are known
    reaches: np.ndarray  # (d,) how far a norm can move, see the kernel
    objective: float  # primal value
    lower: float  # best dual value of this phase
    inner_tol: float  # relative gap to which the set's problem is solved
    kept: np.ndarray  # (d,) features that may have weights
    stop: str | None = None
    lam: float = math.nan  # weight of the penalty of the selection, and the least that selects nothing; NaN where the data did not decide
    lambda_max: float = math.nan

    @property
    def gap(self) -> float:
        """Distance of the objective to the best dual value. Negative values, which are rounding errors, are set to 0."""
        return sound_gap(self.objective - self.lower, self.objective)


class WorkingProblem(SelectorProblem):
    """Descends on a working set until the gap over all features closes; then, with ``refit``, on the selected features alone."""

    state_type = WorkingState
    distributed = ("gradients of the tasks, feature by feature",)
    _columns: tuple[int, WorkingColumns] | None = None

    def init(self, resources: Resources) -> WorkingState:
        """Return the initial state with an empty working set. If the weight of the penalty is derived from the data, a pass over all
        features computes it.
        """
        start = self._start_phase(0, 0, self.data.selectable, np.zeros(0, np.int64), np.zeros((self.data.n_tasks, 0)))
        if self.config.lam != "auto":
            return start
        slopes = self._solve(replace(start, lam=1.0), self._working_columns(start, resources), resources).slopes
        known = self._look(replace(start, slopes=slopes), start.kept, resources)
        largest = float(known.bounds[known.kept].max(initial=0.0))
        return replace(known, lam=auto_lam(self.data, largest), lambda_max=largest)

    def _start_phase(self, iteration: int, phase: int, kept: np.ndarray, features: np.ndarray, weights: np.ndarray) -> WorkingState:
        n, d, n_tasks = len(self.data.codes), self.data.n_features, self.data.n_tasks
        joined = np.array([len(features)] if len(features) else [], np.int64)
        known, tol = (np.zeros(n), np.where(kept, np.inf, 0.0), np.zeros(d)), INNER_TOL_SHARE * self.config.tol
        return WorkingState(iteration, phase, 0, features, joined, weights, np.zeros(n_tasks), *known, np.inf, -np.inf, tol, kept)

    # -- rows, task by task --------------------------------------------------------------------------------------------------

    @cached_property
    def order(self) -> np.ndarray:
        """``(n,)`` all rows task by task, ascending within a task."""
        return np.argsort(self.data.codes, kind="stable")

    @cached_property
    def edges(self) -> np.ndarray:
        """Positions at which the tasks begin in the order, ``(n_tasks + 1,)``."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.data.codes, minlength=self.data.n_tasks))]).astype(np.int64)

    @cached_property
    def _n_first(self) -> int:
        return first_features(self.data.data, self.data.n_tasks, self.config, self.planned.driver_memory)

    @cached_property
    def _target(self) -> np.ndarray:
        return self.data.target[self.order]

    @cached_property
    def _cost(self) -> np.ndarray:
        return self.data.mean_weights[self.order]

    def _working_columns(self, state: WorkingState, resources: Resources) -> WorkingColumns:
        """Return the columns of the working set. Missing columns are fetched in the order in which they were added."""
        if self._columns is None or self._columns[0] != state.phase:
            self._columns = state.phase, WorkingColumns(self._cost, self.config.fit_intercept, self.edges)
        columns, ends = self._columns[1], np.cumsum(state.joined)
        for lo, hi in zip((ends - state.joined)[columns.n_batches :], ends[columns.n_batches :], strict=True):
            items = set_items(self.data.data, np.sort(state.features[:hi]), self.data.n_tasks, resources.driver_memory)
            refuse("multitask-selector", items, resources.fit_limit, FEWER_COLUMNS)
            fetched = fetch_scaled(self.data.data, resources, state.features[lo:hi])
            rows = fetched if isinstance(fetched, np.ndarray) else sp.csr_array(fetched)
            columns.append(state.features[lo:hi], rows[self.order])
        return columns

    # -- steps ---------------------------------------------------------------------------------------------------------------

    def step(self, state: WorkingState, resources: Resources) -> Step[WorkingState]:
        """Solve the problem of the working set, evaluate the features that can violate the dual, and add the worst of them."""
        columns = self._working_columns(state, resources)
        solution = self._solve(state, columns, resources)
        intercepts = solution.biases - solution.copies @ columns.means
        after = replace(state, iteration=state.iteration + 1, sweeps=state.sweeps + solution.steps, weights=solution.copies)
        after = replace(after, intercepts=intercepts, objective=solution.objective)
        certified, n_looked_at = self._certify(after, solution.slopes, resources)
        metrics = {**self._metrics(certified, n_looked_at), **self._scores(certified, columns)}
        return Step(self._next(certified, solution.stop), metrics)

    def _solve(self, state: WorkingState, columns: WorkingColumns, resources: Resources) -> RowSolution:
        config, p, tol = self.config, len(state.features), state.inner_tol
        if config.loss != "squared" and np.isfinite(state.objective) and np.isfinite(state.gap):
            # Far from the optimum a set is not worth a close solution: it will grow.
            tol = max(tol, GAP_SHARE * state.gap / state.objective)
        loss, penalty = mean_loss(config.loss), penalty_of(config, p)
        problem = RowProblem(columns, self._target, self._cost, loss, penalty, self.penalties(state)[0], config.fit_intercept)
        method = "auto" if moments_fit(p, self.data.n_tasks, resources.driver_memory) else "fista"
        limit = max(min(STEP_LIMITS[config.loss], config.max_iter - state.sweeps), 0)
        warm = {"warm": state.weights, "biases": state.intercepts + state.weights @ columns.means}
        return solve_rows(problem, **warm, tol=tol, max_iter=limit, method=method)

    def _certify(self, state: WorkingState, slopes: np.ndarray, resources: Resources) -> tuple[WorkingState, int]:
        """Return the state at new ``slopes``, with its bounds and its dual value, and the number of features evaluated."""
        lam, penalty = self.penalties(state)[0], penalty_of(self.config, 1)
        moved = replace(
            state,
            bounds=state.bounds + norm_move(penalty, self._cost, state.slopes, slopes, self.data.n_tasks) * state.reaches,
            slopes=slopes,
        )
        can_violate = state.kept & (moved.bounds * (1.0 + BOUND_SLACK) > lam)
        looked_at = [can_violate]
        after = self._with_dual(self._look(moved, can_violate, resources))
        if self._is_closed(after) and (state.kept & ~can_violate).any():
            looked_at.append(state.kept & ~can_violate)
            after = self._with_dual(self._look(after, looked_at[1], resources))
        return after, int(sum(mask.sum() for mask in looked_at))

    def _look(self, state: WorkingState, which: np.ndarray, resources: Resources) -> WorkingState:
        """Return the state with the norms of the given features instead of their bounds, by a pass over the stripes that contain them."""
        features = np.flatnonzero(which)
        if not len(features):
            return state
        slopes, codes, data = np.empty_like(state.slopes), self.data.codes, self.data
        slopes[self.order] = state.slopes
        is_first = bool(np.isinf(state.bounds[features]).any())
        penalty = penalty_of(self.config, 1)
        norms, reaches = task_norms(data.data, resources, features, slopes, data.mean_weights, codes, data.n_tasks, penalty, is_first)
        bounds, known = state.bounds.copy(), state.reaches.copy()
        bounds[features] = norms
        if is_first:
            known[features] = reaches
        return replace(state, bounds=bounds, reaches=known)

    def _with_dual(self, state: WorkingState) -> WorkingState:
        """Return the state with its dual value, at its slopes after they are scaled so that no bound exceeds lam."""
        loss, lam = mean_loss(self.config.loss), self.penalties(state)[0]
        largest = float(state.bounds[state.kept].max(initial=0.0))
        return replace(state, lower=max(state.lower, loss.dual_value(self._target, self._cost, state.slopes, largest, lam)))

    def _is_closed(self, state: WorkingState) -> bool:
        return state.gap <= self.config.tol * state.objective

    def _next(self, state: WorkingState, inner_stop: str) -> WorkingState:
        """Return the next state: with a reason to stop, with features to add, or the initial state of the refit."""
        if self._is_closed(state):
            return self._end_phase(state, "gap")
        violates = state.kept & (state.bounds > self.penalties(state)[0])
        violates[state.features] = False
        ids = np.flatnonzero(violates)
        limit = max(MORE_FEATURES, len(state.features)) if len(state.features) else self._n_first
        new = np.sort(ids[np.lexsort((ids, -state.bounds[ids]))][:limit])
        if state.sweeps >= self.config.max_iter:
            return self._end_phase(state, "max_iter")
        if not len(new):
            is_rounding = state.inner_tol <= LEAST_TOL_SHARE * self.config.tol
            if inner_stop == "no_progress" or (inner_stop == "gap" and is_rounding):
                return self._end_phase(state, "no_progress")
            return replace(state, inner_tol=TIGHTENING * state.inner_tol) if inner_stop == "gap" else state
        weights = np.concatenate([state.weights, np.zeros((self.data.n_tasks, len(new)))], axis=1)
        return replace(state, features=np.concatenate([state.features, new]), joined=np.append(state.joined, len(new)), weights=weights)

    def _end_phase(self, state: WorkingState, reason: str) -> WorkingState:
        # A model without the second fit is of another problem. Where round-off forbids the tolerance the selection is as good as it gets.
        alive = state.weights.any(axis=0)
        if state.phase == 0 and self.config.refit is not None and alive.any():
            order = np.argsort(state.features[alive])
            features, weights = state.features[alive][order], state.weights[:, alive][:, order]
            kept = np.zeros(self.data.n_features, bool)
            kept[features] = True
            second = self._start_phase(state.iteration, CUT_SHORT if reason == "max_iter" else 1, kept, features, weights)
            return replace(second, lam=state.lam, lambda_max=state.lambda_max)
        if state.phase == CUT_SHORT:
            return replace(state, stop="max_iter")
        return replace(state, stop="tol" if reason == "gap" else reason)

    # -- figures -------------------------------------------------------------------------------------------------------------

    def _metrics(self, state: WorkingState, n_looked_at: int) -> dict[str, Any]:
        selected = int(state.weights.any(axis=0).sum())
        counts = {"sweeps": state.sweeps, "n_selected": selected, "nonzeros": int(np.count_nonzero(state.weights))}
        sizes = {"n_working": len(state.features), "n_looked_at": n_looked_at}
        return {"phase": min(state.phase, 1), "objective": state.objective, "gap": state.gap, **counts, **sizes}

    def _scores(self, state: WorkingState, columns: WorkingColumns) -> dict[str, Any]:
        if not self.trackers:
            return {}
        values, codes = np.empty(len(self.order)), self.data.codes
        values[self.order] = columns.decide(state.weights)
        biases = state.intercepts + state.weights @ columns.means + self.data.offsets
        return accuracy_metrics(self.trackers, {0: values + biases[codes]})

    def steps_plan(self) -> dict[str, Any]:
        """Return the number of tasks of a pass over all features, the bytes that the tasks read, the memory of a task in bytes, and the
        largest number of sweeps of the fit and the refit together.
        """
        data, tasks = self.data.data, column_tasks(self.data.data)
        passes = {"tasks_per_pass": len(tasks), "bytes_read_per_pass": int(sum(ref.nbytes for task in tasks for ref in task))}
        fits = 1 if self.config.refit is None else 2
        norms = norms_pass(tasks, data.n_rows, self.data.n_tasks, data.n_cols)
        # A set may come to all columns that the driver may hold twice.
        memory = max(norms.memory_bound, columns_bytes(data, data.n_cols, self.planned.driver_memory // 2))
        return {**passes, "task_bytes": memory, "sweeps_at_most": self.config.max_iter * fits}

    def solution(self, state: WorkingState) -> Solution:
        """Return the weights with their objective and gap."""
        weights = np.zeros((self.data.n_tasks, self.data.n_features))
        weights[:, state.features] = state.weights
        return Solution(weights, state.intercepts, state.objective, state.gap)

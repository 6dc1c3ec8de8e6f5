"""The loop of batch group lasso: the optimum over all rows, with its duality gap, for one target or for one machine per class.

    min  sum_i c_i loss(y_i, x_i'w + b) + lam Omega(v),  w = scatter(v)        (docs/theory/group_lasso.md, "The batch problem")

Three engines end at the same optimum; ``auto`` takes the first that suits:

* ``gram`` (squared loss, few columns): one pass sums the second moments of the rows; nothing of the rows is kept.
* ``working_set``: machines are solved on the columns of some groups; a pass over all columns gives the gap of the whole problem and the
  groups that violate the dual most, which join.
* ``fista``: all columns are held, steps are accelerated proximal gradients (of smooth losses). Kept as a comparison.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.group_lasso.on_moments import Moments, WorkingColumns, solve_moments, target_moments
from ....kernels.group_lasso.on_rows import RowSolution, lambda_max, share_of_largest, solve_rows
from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.group_lasso.row_problem import RowProblem
from ....kernels.losses import mean_loss
from ...core.memory import refuse
from ...core.result import Step
from ...inputs.scores import NAN, R2Tracker, accuracy_metrics
from ...passes.scaling import fetch_scaled
from ...records.context import RunContext
from .batch_problem import BatchMachine, BatchProblem, BatchResult, BatchState
from .memory import FEWER_COLUMNS, FIRST_GROUPS, resolve_engine, working_set_columns
from .moments_pass import decision_values, feature_slopes, moments_pass

MORE_GROUPS = 10  # groups that may join a later set at least; it may also double
MAX_IDLE_SHARE = 2  # a set that a loop takes over may be that much larger than its groups with weights
INNER_TOL_SHARE = 0.3  # a set's problem is solved to this share of the tolerance
TIGHTENING = 0.1  # factor of that share where no group is left to join
GAP_SHARE = 0.1  # where steps read the rows, a set's problem is not solved closer than to this share of the whole problem's last gap
# Steps of a machine within one step of the loop: sweeps on moments of all columns, and on those of a set; for other losses.
SWEEPS, SET_SWEEPS, NEWTON_STEPS, PATH_STEPS, PROXIMAL_STEPS = 25, 5000, 50, 100, 300


class BatchLoop:
    """Iteration of batch group lasso; a step is one round of every machine that has not stopped. A group's default label is its number."""

    state_type = BatchState

    def __init__(self, problem: BatchProblem, labels: np.ndarray | None = None) -> None:
        self.problem = problem
        self.labels = np.arange(problem.penalty.n_groups) if labels is None else labels
        self._moments: list[Moments] | None = None
        self._columns: dict[int, WorkingColumns] = {}

    def init(self, ctx: RunContext) -> BatchState:
        """Return the state before the first step: zeros, over no groups or over all."""
        problem = self.problem
        engine = resolve_engine(problem.engine, problem.loss, ctx.data, len(problem.targets), ctx.driver_memory)
        has_all = engine != "working_set"
        groups = np.arange(problem.penalty.n_groups if has_all else 0, dtype=np.int64)
        joined, copies = np.full(1 if has_all else 0, len(groups)), np.zeros((1, problem.penalty.n_copies if has_all else 0))
        start = BatchMachine(groups, joined, copies, np.zeros(1), np.inf, -np.inf, NAN, INNER_TOL_SHARE * problem.tol)
        return BatchState(0, engine, (start,) * len(problem.targets), NAN if problem.lam is None else problem.lam)

    def take_over(self, loop: BatchLoop) -> None:
        """Take over the moments and columns of a loop over the same rows."""
        self._moments, self._columns = loop._moments, dict(loop._columns)

    def continued(self, fresh: BatchState, last: BatchState) -> BatchState:
        """Return the state to begin with where a loop over the same rows ended with another weight of the penalty: its set is the first
        one, or the groups that have weights there, if most have none.
        """
        penalty, machines = self.problem.penalty, []
        for m, (machine, found) in enumerate(zip(fresh.machines, last.machines, strict=True)):
            active = self._active_groups(found)
            first: dict[str, Any] = {"groups": found.groups, "joined": found.joined, "copies": found.copies}
            if fresh.engine == "working_set" and len(found.groups) > MAX_IDLE_SHARE * (len(active) + MORE_GROUPS):
                copies = np.zeros((1, penalty.n_copies))
                copies[:, penalty.copies_of(found.groups)] = found.copies
                first = {"groups": active, "joined": np.array([len(active)]), "copies": copies[:, penalty.copies_of(active)]}
                self._columns.pop(m, None)
            machines.append(replace(machine, **first, biases=found.biases, lambda_max=found.lambda_max))
        # The first step of a loop looks at zeros.
        return replace(fresh, iteration=1, machines=tuple(machines))

    def step(self, state: BatchState, ctx: RunContext) -> Step[BatchState]:
        """Return the state after one more round."""
        state = state if self.problem.lam is None else replace(state, lam=self.problem.lam)
        running = [m for m, machine in enumerate(state.machines) if machine.stop is None]
        machines = list(state.machines)
        advance = self._step_on_moments if state.engine == "gram" else self._step_on_rows
        lam, stepped = advance(running, state, ctx)
        for m, machine in zip(running, stepped, strict=True):
            is_out_of_steps = machine.stop is None and state.iteration + 1 >= self.problem.max_iter
            machines[m] = replace(machine, stop="max_iter") if is_out_of_steps else machine
        after = BatchState(state.iteration + 1, state.engine, tuple(machines), lam)
        return Step(after, {**self._metrics(after), **self._scores(after, ctx)})

    def decision_values(self, state: BatchState, ctx: RunContext) -> np.ndarray:
        """Return what the machines decide on all rows, ``(n_machines, n_samples)``: of the columns of their sets, where these are held."""
        result = self.result(state)
        if state.engine != "working_set" or len(self._columns) < len(state.machines):
            return decision_values(ctx, result.weights, result.biases)
        parts = zip(self._columns.values(), result.weights, result.biases, strict=True)
        return np.stack([rows.decide(w[None, rows.features]) + (b + w[rows.features] @ rows.means) for rows, w, b in parts])

    def explained_share(self, state: BatchState) -> float | None:
        """Return the share of the target's variance that the single machine of a regression explains, of the moments of rows of weight one;
        ``None`` where there are no moments.
        """
        if self._moments is None:
            return None
        moments, weights, spread = self._moments[0], self.result(state).weights[0], float(np.var(self.problem.targets[0]))
        square = moments.square - weights @ (2.0 * moments.cross[0] - moments.gram[0] @ weights)
        return 1.0 - float(square) / spread if spread > 0.0 else NAN

    def _metrics(self, state: BatchState) -> dict[str, Any]:
        machines = state.machines
        n_groups, n_working = sum(len(self._active_groups(m)) for m in machines), sum(len(m.groups) for m in machines)
        certificate = {"objective": sum(m.objective for m in machines), "gap": sum(m.gap for m in machines)}
        sizes = {"n_groups": n_groups, "n_working": n_working, "lambda_max": max(m.lambda_max for m in machines)}
        return {**certificate, **sizes, "lam": state.lam, "engine": state.engine}

    def _scores(self, state: BatchState, ctx: RunContext) -> dict[str, Any]:
        """Return accuracies (R2) of the last model: what a run shows, and folds are compared by."""
        tracker = self.problem.tracker
        if tracker is None or (ctx.scratch is None and tracker.held_out is None):
            return {}
        if state.stop is None:
            name = "r2" if isinstance(tracker, R2Tracker) else "accuracy"
            return {f"train_{name}": NAN, f"test_{name}": NAN}
        result = self.result(state)
        return accuracy_metrics([tracker], dict(enumerate(decision_values(ctx, result.weights, result.biases))))

    # -- moments -------------------------------------------------------------------------------------------------------------

    def _lam(self, state: BatchState, largest: Sequence[float]) -> float:
        """Return the weight of the penalty; ``largest``: the least without any feature, of every machine."""
        problem = self.problem
        if not math.isnan(state.lam):
            return state.lam
        return share_of_largest(problem.lam_share, max(largest), problem.targets, problem.cost)

    def _step_on_moments(self, which: Sequence[int], state: BatchState, ctx: RunContext) -> tuple[float, list[BatchMachine]]:
        # Moments are not part of the state: a resumed run sums them again, to the same bits.
        if self._moments is None:
            problem, n_targets = self.problem, len(self.problem.targets)
            raw, shift = moments_pass(ctx, np.ascontiguousarray(problem.targets.T), problem.cost, centre=problem.fit_bias)
            moments = [target_moments(raw, problem.fit_bias, m, n_targets) for m in range(n_targets)]
            self._moments = moments if shift is None else [replace(one, means=one.means + shift) for one in moments]
        largest = [float(self.problem.penalty.dual_norms(one.cross).max(initial=0.0)) for one in self._moments]
        lam = self._lam(state, largest)
        return lam, [self._descend(replace(state.machines[m], lambda_max=largest[m]), self._moments[m], lam) for m in which]

    def _descend(self, machine: BatchMachine, moments: Moments, lam: float) -> BatchMachine:
        problem = self.problem
        # The first step is the pass, and shows how far from the optimum zeros are.
        limit = SWEEPS if np.isfinite(machine.objective) else 0
        solution = solve_moments(moments, problem.penalty, lam, warm=machine.copies, tol=problem.tol, max_sweeps=limit)
        biases = moments.biases(problem.penalty.scatter(solution.copies))
        after = replace(machine, copies=solution.copies, biases=biases, objective=solution.objective)
        after = replace(after, lower=max(machine.lower, solution.objective - solution.gap))
        return replace(after, stop="gap") if solution.stop == "gap" else after

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def _step_on_rows(self, which: Sequence[int], state: BatchState, ctx: RunContext) -> tuple[float, list[BatchMachine]]:
        machines, lam = [state.machines[m] for m in which], state.lam
        if state.engine == "fista" and state.iteration == 0:
            every, columns = np.arange(self.problem.penalty.n_groups), [self._working_columns(m, state.machines[m], ctx) for m in which]
            whole = [self.problem.penalty.restricted(every, rows.features) for rows in columns]
            largest = [lambda_max(self._rows_problem(*parts, 1.0)) for parts in zip(which, columns, whole, strict=True)]
            machines = [replace(machine, lambda_max=value) for machine, value in zip(machines, largest, strict=True)]
            lam = self._lam(state, largest)
        # (Where lam is not known yet the sets are empty, and it takes no part.)
        solved = [self._solve(m, state, lam, ctx) for m in which]
        U = np.stack([self.problem.cost * solution.slopes for _, solution in solved])
        if state.engine == "fista":
            slopes = [self._feature_slopes(rows, u) for (rows, _), u in zip(solved, U, strict=True)]
        else:
            slopes = list(feature_slopes(ctx, U)[:, None])
            if state.iteration == 0:
                norms = [float(self.problem.penalty.dual_norms(z).max(initial=0.0)) for z in slopes]
                machines = [replace(machine, lambda_max=value) for machine, value in zip(machines, norms, strict=True)]
                lam = self._lam(state, norms)
        solutions = [solution for _, solution in solved]
        return lam, [self._certify(*parts, lam) for parts in zip(machines, which, solutions, slopes, strict=True)]

    def _feature_slopes(self, rows: WorkingColumns, u: np.ndarray) -> np.ndarray:
        """Return ``X'u`` over all features, ``(1, n_features)``, of columns in memory."""
        slopes = np.zeros((1, self.problem.penalty.n_features))
        slopes[:, rows.features] = rows.slopes(u)
        return slopes

    def _solve(self, m: int, state: BatchState, lam: float, ctx: RunContext) -> tuple[WorkingColumns, RowSolution]:
        """Solve the problem of a machine's working set."""
        machine, loss = state.machines[m], self.problem.loss
        rows = self._working_columns(m, machine, ctx)
        small = self._rows_problem(m, rows, self.problem.penalty.restricted(machine.groups, rows.features), lam)
        method = "fista" if state.engine == "fista" else "auto"
        limits = {"squared": SET_SWEEPS, "logistic": NEWTON_STEPS, "hinge": PATH_STEPS}
        limit = PROXIMAL_STEPS if method == "fista" and loss != "hinge" else limits[loss]
        tol = machine.inner_tol
        if loss != "squared" and np.isfinite(machine.objective):
            # Far from the optimum a set is not worth a close solution: it will grow.
            tol = max(tol, GAP_SHARE * machine.gap / machine.objective)
        solution = solve_rows(small, warm=machine.copies, biases=machine.biases, tol=tol, max_iter=limit, method=method)
        # Columns are centred here: the bias of raw ones is another.
        return rows, solution._replace(biases=solution.biases - small.penalty.scatter(solution.copies) @ rows.means)

    def _rows_problem(self, m: int, rows: WorkingColumns, penalty: GroupPenalty, lam: float) -> RowProblem:
        problem = self.problem
        return RowProblem(rows, problem.targets[m], problem.cost, mean_loss(problem.loss), penalty, lam, problem.fit_bias)

    def _working_columns(self, m: int, machine: BatchMachine, ctx: RunContext) -> WorkingColumns:
        """Return the columns of a machine's set; those that are missing are fetched, as they joined."""
        penalty, problem = self.problem.penalty, self.problem
        columns = self._columns.setdefault(m, WorkingColumns(problem.cost, problem.fit_bias))
        ends = np.cumsum(machine.joined)
        for lo, hi in zip((ends - machine.joined)[columns.n_batches :], ends[columns.n_batches :], strict=True):
            members = np.unique(penalty.members[penalty.copies_of(machine.groups[lo:hi])])
            new = np.setdiff1d(members, columns.features)
            holding = working_set_columns(ctx.data, np.concatenate([columns.features, new]))
            refuse("group-lasso", [holding], ctx.fit_limit, FEWER_COLUMNS)
            columns.append(new, fetch_scaled(ctx.data, ctx, new))
        return columns

    def _certify(self, machine: BatchMachine, m: int, solution: RowSolution, z: np.ndarray, lam: float) -> BatchMachine:
        """Return a machine with the certificate over all groups, and with the groups that violate it most."""
        problem = self.problem
        norms = problem.penalty.dual_norms(z)
        loss, max_norm = mean_loss(problem.loss), float(norms.max(initial=0.0))
        lower = max(machine.lower, loss.dual_value(problem.targets[m], problem.cost, solution.slopes, max_norm, lam))
        point = {"copies": solution.copies, "biases": solution.biases, "objective": solution.objective}
        return self._grow(replace(machine, **point, lower=lower), norms, solution.stop, lam)

    def _grow(self, machine: BatchMachine, norms: np.ndarray, inner_stop: str, lam: float) -> BatchMachine:
        """Return a machine with its reason to stop, or with the violating groups of greatest norm in its set."""
        problem = self.problem
        if machine.gap <= problem.tol * machine.objective:
            return replace(machine, stop="gap")
        violates = norms > lam
        violates[machine.groups] = False
        ids = np.flatnonzero(violates)
        limit = max(MORE_GROUPS, len(machine.groups)) if len(machine.groups) else FIRST_GROUPS
        new = np.sort(ids[np.lexsort((ids, -norms[ids]))][:limit])
        if not len(new):
            if inner_stop == "no_progress":
                return replace(machine, stop="no_progress")
            return replace(machine, inner_tol=TIGHTENING * machine.inner_tol) if inner_stop == "gap" else machine
        sizes = int(np.diff(problem.penalty.indptr)[new].sum())
        copies = np.concatenate([machine.copies, np.zeros((1, sizes))], axis=1)
        return replace(machine, groups=np.concatenate([machine.groups, new]), joined=np.append(machine.joined, len(new)), copies=copies)

    def _active_groups(self, machine: BatchMachine) -> np.ndarray:
        alive = machine.copies.any(axis=0)
        owners = np.repeat(machine.groups, np.diff(self.problem.penalty.indptr)[machine.groups])
        return np.unique(owners[alive])

    def result(self, state: BatchState) -> BatchResult:
        """Return the fit of the last state."""
        machines, penalty, weights = state.machines, self.problem.penalty, []
        for machine in machines:
            copies = np.zeros((1, penalty.n_copies))
            copies[:, penalty.copies_of(machine.groups)] = machine.copies
            weights.append(penalty.scatter(copies))
        active = tuple(self._active_groups(machine) for machine in machines)
        figures = {name: value for name, value in self._metrics(state).items() if name in BatchResult._fields}
        converged, biases = all(machine.stop == "gap" for machine in machines), np.concatenate([machine.biases for machine in machines])
        return BatchResult(np.concatenate(weights), biases, active, converged=converged, **figures)

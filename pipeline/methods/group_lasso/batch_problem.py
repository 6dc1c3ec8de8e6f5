"""Batch group lasso: the optimum over all rows with its duality gap, for one target or for one binary problem per class.

    min  sum_i c_i loss(y_i, x_i'w + b) + lam Omega(v),  w = scatter(v)        (docs/theory/group_lasso.md, "The batch problem")

Three engines reach the same optimum; ``auto`` takes the first that is suitable:

* ``gram`` (squared loss, few columns): one pass sums the second moments of the rows; the rows are not kept in memory.
* ``working_set``: problems are solved on the columns of some groups. A pass over all columns then computes the gap of the whole problem,
  and the groups that violate the dual constraints most are added.
* ``fista``: all columns are in memory, and steps are accelerated proximal gradient steps (smooth losses only). Serves for comparison.

Source: Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, section 3.3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ....kernels.group_lasso.on_moments import Moments, WorkingColumns, solve_moments, target_moments
from ....kernels.group_lasso.on_rows import RowSolution, check_solvable, lambda_max, share_of_largest, solve_rows
from ....kernels.group_lasso.penalty import GroupPenalty
from ....kernels.group_lasso.row_problem import RowProblem
from ....kernels.losses import mean_loss
from ...core.memory import check_memory, driver_plan, refuse
from ...core.resources import Resources
from ...core.result import Result, Step
from ...inputs.labels import Inputs, row_weights
from ...inputs.scores import NAN, R2Tracker, accuracy_metrics, fit_tracker, scores_of
from ...models.linear import LinearModel
from ...models.model import Tables
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...passes.scaling import fetch_scaled
from .batch_terms import BatchMachine, BatchSolution, BatchState, BatchTerms, auto_share
from .config import GroupLassoConfig
from .inputs import build_penalty, fit_loss, machine_targets
from .learners import build_model, group_arrays, selected_figures
from .memory import FEWER_COLUMNS, FIRST_GROUPS, batch_items, resolve_engine, working_set_columns
from .moments_pass import (
    columns_at_once,
    decision_values,
    feature_slopes,
    moment_bytes,
    moments_pass,
    raw_moments_pass,
    row_refs,
    slopes_pass,
)

MORE_GROUPS = 10  # groups that may join a later set at least; it may also double
MAX_IDLE_SHARE = 2  # a set that a fit takes over may be that much larger than its groups with weights
INNER_TOL_SHARE = 0.3  # a set's problem is solved to this share of the tolerance
TIGHTENING = 0.1  # factor of that share where no group is left to join
GAP_SHARE = 0.1  # where steps read the rows, a set's problem is not solved closer than to this share of the whole problem's last gap
# Steps of a machine within one step of a fit: sweeps on moments of all columns, and on those of a set; for other losses.
SWEEPS, SET_SWEEPS, NEWTON_STEPS, PATH_STEPS, PROXIMAL_STEPS = 25, 5000, 50, 100, 300


@dataclass(eq=False)
class BatchProblem:
    """``algorithm="fista"``: the optimum over all rows. A step is one round of every problem that has not stopped."""

    state_type = BatchState

    config: GroupLassoConfig
    inputs: Inputs
    terms: BatchTerms
    labels: np.ndarray  # of the groups
    planned: Resources  # where it was made

    def __post_init__(self) -> None:
        self.data = self.inputs.data
        self._moments: list[Moments] | None = None
        self._columns: dict[int, WorkingColumns] = {}

    @classmethod
    def of(cls, config: GroupLassoConfig, inputs: Inputs, resources: Resources) -> BatchProblem:
        """Return the problem of a fit. Raises an error for unsuitable parameters, and if weights, vectors and first columns exceed the
        memory.
        """
        penalty, labels = build_penalty(config, int(inputs.data.n_cols), inputs.groups)
        weight, loss = row_weights(config, inputs), fit_loss(config, inputs.classes)
        check_solvable(loss, penalty)
        if config.lam == 0:
            raise ValueError(f"lam={config.lam!r}: algorithm='fista' needs a penalty; without one there is no certificate")
        targets, cost, tracker = machine_targets(inputs), weight / weight.sum(), fit_tracker(inputs, inputs.held_out)
        limits = config.fit_intercept, config.tol, config.max_iter
        lam, share = (None, auto_share(weight.sum(), penalty.n_groups)) if config.lam == "auto" else (config.lam, math.nan)
        terms = BatchTerms(targets, cost, loss, penalty, lam, *limits, lam_share=share, tracker=tracker)
        made = cls(config, inputs, terms, labels, resources)
        check_memory("group-lasso", batch_items(inputs.data, inputs.n_machines, made.engine), resources, FEWER_COLUMNS)
        return made

    @cached_property
    def engine(self) -> str:
        """Name of the engine that runs."""
        return resolve_engine(self.terms.engine, self.terms.loss, self.data, len(self.terms.targets), self.planned.driver_memory)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Engine, number of tasks per pass, bytes read, and memory of a task in bytes."""
        data, machines = self.data, len(self.terms.targets)
        rows, columns = row_refs(data), column_tasks(data)
        nbytes = int(sum(ref.nbytes for task in columns for ref in task))
        method = {"algorithm": "fista", "engine": self.engine, "machines": machines, "groups": self.terms.penalty.n_groups}
        plan = {**driver_plan(batch_items(data, machines, self.engine)), **method}
        if self.engine == "gram":
            passes = {"passes_at_most": 1, "tasks_per_pass": len(rows), "bytes_read_per_pass": nbytes}
            return {**plan, **passes, "task_bytes": self._task_bytes(), "moment_bytes": moment_bytes(data, machines)}
        passes = {"passes_at_most": self.terms.max_iter, "tasks_per_pass": len(columns), "bytes_read_per_pass": nbytes}
        return {**plan, **passes, "task_bytes": self._task_bytes()}

    def _task_bytes(self) -> int:
        """Return the memory in bytes of the largest step: one that computes moments or slopes, or one that fetches columns."""
        data, machines = self.data, len(self.terms.targets)
        # A set may come to all columns that the driver may hold twice; decisions fetch those with weights some at a time.
        count, most = data.n_cols, self.planned.fit_limit // 2
        if self.engine == "gram":
            count = columns_at_once(data.n_rows, self.planned.driver_memory)
        work = raw_moments_pass(data, machines) if self.engine == "gram" else slopes_pass(data, machines)
        return max(0 if self.engine == "fista" else work.memory_bound, columns_bytes(data, count, most))

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return ("second moments of rows",) if self.engine == "gram" else ("gradients of features",)

    def init(self, resources: Resources) -> BatchState:
        """Return the initial state: zero weights, with an empty working set or all groups."""
        terms, engine = self.terms, self.engine
        has_all = engine != "working_set"
        groups = np.arange(terms.penalty.n_groups if has_all else 0, dtype=np.int64)
        joined, copies = np.full(1 if has_all else 0, len(groups)), np.zeros((1, terms.penalty.n_copies if has_all else 0))
        start = BatchMachine(groups, joined, copies, np.zeros(1), np.inf, -np.inf, NAN, INNER_TOL_SHARE * terms.tol)
        return BatchState(0, engine, (start,) * len(terms.targets), NAN if terms.lam is None else terms.lam)

    def take_over(self, before: BatchProblem) -> None:
        """Reuse the moments and columns of a problem with the same rows."""
        self._moments, self._columns = before._moments, dict(before._columns)

    def continued(self, fresh: BatchState, last: BatchState) -> BatchState:
        """Return the initial state of a fit that starts from ``last``, the final state of a fit of the same rows with another ``lam``.

        The working set is that of the earlier fit. If most of its groups have zero weights, it is reduced to the groups with non-zero
        weights.
        """
        penalty, machines = self.terms.penalty, []
        for m, (machine, found) in enumerate(zip(fresh.machines, last.machines, strict=True)):
            active = self._active_groups(found)
            first: dict[str, Any] = {"groups": found.groups, "joined": found.joined, "copies": found.copies}
            if fresh.engine == "working_set" and len(found.groups) > MAX_IDLE_SHARE * (len(active) + MORE_GROUPS):
                copies = np.zeros((1, penalty.n_copies))
                copies[:, penalty.copies_of(found.groups)] = found.copies
                first = {"groups": active, "joined": np.array([len(active)]), "copies": copies[:, penalty.copies_of(active)]}
                self._columns.pop(m, None)
            machines.append(replace(machine, **first, biases=found.biases, lambda_max=found.lambda_max))
        # The first step of a fit looks at zeros.
        return replace(fresh, iteration=1, machines=tuple(machines))

    def step(self, state: BatchState, resources: Resources) -> Step[BatchState]:
        """Return the state after one more round."""
        state = state if self.terms.lam is None else replace(state, lam=self.terms.lam)
        running = [m for m, machine in enumerate(state.machines) if machine.stop is None]
        machines = list(state.machines)
        advance = self._step_on_moments if state.engine == "gram" else self._step_on_rows
        lam, stepped = advance(running, state, resources)
        for m, machine in zip(running, stepped, strict=True):
            is_out_of_steps = machine.stop is None and state.iteration + 1 >= self.terms.max_iter
            machines[m] = replace(machine, stop="max_iter") if is_out_of_steps else machine
        after = BatchState(state.iteration + 1, state.engine, tuple(machines), lam)
        return Step(after, {**self._metrics(after), **self._scores(after, resources)})

    def decision_values(self, state: BatchState, resources: Resources) -> np.ndarray:
        """Return the decision values of the problems on all rows, ``(n_machines, n_samples)``. They are computed from the columns of the
        working sets if these are held.
        """
        result = self.solution(state)
        if state.engine != "working_set" or len(self._columns) < len(state.machines):
            return decision_values(self.data, resources, result.weights, result.biases)
        parts = zip(self._columns.values(), result.weights, result.biases, strict=True)
        return np.stack([rows.decide(w[None, rows.features]) + (b + w[rows.features] @ rows.means) for rows, w, b in parts])

    def result(self, state: BatchState, resources: Resources) -> Result[LinearModel]:
        """Return the model of the last state, with coefficients of unscaled columns, and its certificate."""
        found = self.solution(state)
        figures = {"objective": found.objective, "gap": found.gap, "lambda_max": found.lambda_max, "lam": found.lam}
        figures |= {"rounds": float(state.iteration), "converged": float(found.converged)}
        groups = group_arrays(self.terms.penalty, self.labels, np.unique(np.concatenate(found.active)), found.weights)
        model = build_model(self.config, self.inputs.classes, self.data.scale, found.weights, found.biases, figures, groups)
        reason = f"max_iter={self.config.max_iter}" if state.stop == "max_iter" else "round-off"
        nothing = f"nothing is selected: lam={found.lam:g}, and lam_max={found.lambda_max:g} is the least that selects nothing"
        engine = {"lambda_max": figures["lambda_max"], "lam": figures["lam"], "engine": state.engine}
        return Result(
            model,
            "tol" if state.stop == "gap" else state.stop,
            objective=figures["objective"],
            gap=figures["gap"],
            certified_over="all groups",
            figures={**engine, **selected_figures(model)},
            warnings=[] if len(model.features) else [nothing],
            unfinished=f"{reason} ended the fit at the gap {found.gap:.3g}",
            scores=partial(self._scores_at_hand, state, model, resources),
        )

    def _scores_at_hand(self, state: BatchState, model: LinearModel, resources: Resources) -> dict[str, Any]:
        """Return R2 from the moments of the rows, if these are held and the rows have equal weights. Otherwise return scores from the
        decision values of all rows.
        """
        if self._moments is None or self.inputs.classes is not None or self.inputs.sample_weight is not None:
            return scores_of(self.inputs.labelled, self.decision_values(state, resources))
        moments, weights, spread = self._moments[0], self.solution(state).weights[0], float(np.var(self.terms.targets[0]))
        square = moments.square - weights @ (2.0 * moments.cross[0] - moments.gram[0] @ weights)
        explained = 1.0 - float(square) / spread if spread > 0.0 else NAN
        return {"train_r2": explained, "n_answers": 2 if len(model.features) else 1}

    def tables(self, state: BatchState, model: LinearModel) -> Tables:
        """Return the certificate of every class."""
        classes = json.loads(model.classes_json)
        labels = classes if classes is not None and len(state.machines) > 1 else [None] * len(state.machines)
        rows: list[dict[str, Any]] = []
        for label, machine in zip(labels, state.machines, strict=True):
            certificate = {"objective": machine.objective, "gap": machine.gap, "lambda_max": machine.lambda_max}
            end = {"groups in the set": len(machine.groups), "stop": machine.stop}
            rows.append({**({} if label is None else {"class": label}), **certificate, **end})
        return {"certificates": rows}

    def _metrics(self, state: BatchState) -> dict[str, Any]:
        machines = state.machines
        n_groups, n_working = sum(len(self._active_groups(m)) for m in machines), sum(len(m.groups) for m in machines)
        certificate = {"objective": sum(m.objective for m in machines), "gap": sum(m.gap for m in machines)}
        sizes = {"n_groups": n_groups, "n_working": n_working, "lambda_max": max(m.lambda_max for m in machines)}
        return {**certificate, **sizes, "lam": state.lam, "engine": state.engine}

    def _scores(self, state: BatchState, resources: Resources) -> dict[str, Any]:
        """Return the accuracy or R2 of the current model; NaN until the fit stops, and empty if no scores are needed."""
        tracker = self.terms.tracker
        if tracker is None or (resources.scratch is None and tracker.held_out is None):
            return {}
        if state.stop is None:
            name = "r2" if isinstance(tracker, R2Tracker) else "accuracy"
            return {f"train_{name}": NAN, f"test_{name}": NAN}
        result = self.solution(state)
        return accuracy_metrics([tracker], dict(enumerate(decision_values(self.data, resources, result.weights, result.biases))))

    # -- moments -------------------------------------------------------------------------------------------------------------

    def _lam(self, state: BatchState, largest: Sequence[float]) -> float:
        """Return the weight of the penalty. ``largest``: for every problem, the smallest ``lam`` that selects nothing."""
        terms = self.terms
        if not math.isnan(state.lam):
            return state.lam
        return share_of_largest(terms.lam_share, max(largest), terms.targets, terms.cost)

    def _step_on_moments(self, which: Sequence[int], state: BatchState, resources: Resources) -> tuple[float, list[BatchMachine]]:
        # Moments are not part of the state: a resumed run sums them again, to the same bits.
        if self._moments is None:
            terms, n_targets = self.terms, len(self.terms.targets)
            raw, shift = moments_pass(self.data, resources, np.ascontiguousarray(terms.targets.T), terms.cost, centre=terms.fit_bias)
            moments = [target_moments(raw, terms.fit_bias, m, n_targets) for m in range(n_targets)]
            self._moments = moments if shift is None else [replace(one, means=one.means + shift) for one in moments]
        largest = [float(self.terms.penalty.dual_norms(one.cross).max(initial=0.0)) for one in self._moments]
        lam = self._lam(state, largest)
        return lam, [self._descend(replace(state.machines[m], lambda_max=largest[m]), self._moments[m], lam) for m in which]

    def _descend(self, machine: BatchMachine, moments: Moments, lam: float) -> BatchMachine:
        terms = self.terms
        # The first step is the pass, and shows how far from the optimum zeros are.
        limit = SWEEPS if np.isfinite(machine.objective) else 0
        solution = solve_moments(moments, terms.penalty, lam, warm=machine.copies, tol=terms.tol, max_sweeps=limit)
        biases = moments.biases(terms.penalty.scatter(solution.copies))
        after = replace(machine, copies=solution.copies, biases=biases, objective=solution.objective)
        after = replace(after, lower=max(machine.lower, solution.objective - solution.gap))
        return replace(after, stop="gap") if solution.stop == "gap" else after

    # -- rows ----------------------------------------------------------------------------------------------------------------

    def _step_on_rows(self, which: Sequence[int], state: BatchState, resources: Resources) -> tuple[float, list[BatchMachine]]:
        machines, lam = [state.machines[m] for m in which], state.lam
        if state.engine == "fista" and state.iteration == 0:
            every, columns = np.arange(self.terms.penalty.n_groups), [self._working_columns(m, state.machines[m], resources) for m in which]
            whole = [self.terms.penalty.restricted(every, rows.features) for rows in columns]
            largest = [lambda_max(self._rows_problem(*parts, 1.0)) for parts in zip(which, columns, whole, strict=True)]
            machines = [replace(machine, lambda_max=value) for machine, value in zip(machines, largest, strict=True)]
            lam = self._lam(state, largest)
        # (Where lam is not known yet the sets are empty, and it takes no part.)
        solved = [self._solve(m, state, lam, resources) for m in which]
        U = np.stack([self.terms.cost * solution.slopes for _, solution in solved])
        if state.engine == "fista":
            slopes = [self._feature_slopes(rows, u) for (rows, _), u in zip(solved, U, strict=True)]
        else:
            slopes = list(feature_slopes(self.data, resources, U)[:, None])
            if state.iteration == 0:
                norms = [float(self.terms.penalty.dual_norms(z).max(initial=0.0)) for z in slopes]
                machines = [replace(machine, lambda_max=value) for machine, value in zip(machines, norms, strict=True)]
                lam = self._lam(state, norms)
        solutions = [solution for _, solution in solved]
        return lam, [self._certify(*parts, lam) for parts in zip(machines, which, solutions, slopes, strict=True)]

    def _feature_slopes(self, rows: WorkingColumns, u: np.ndarray) -> np.ndarray:
        """Return ``X'u`` over all features, ``(1, n_features)``, for columns in memory."""
        slopes = np.zeros((1, self.terms.penalty.n_features))
        slopes[:, rows.features] = rows.slopes(u)
        return slopes

    def _solve(self, m: int, state: BatchState, lam: float, resources: Resources) -> tuple[WorkingColumns, RowSolution]:
        machine, loss = state.machines[m], self.terms.loss
        rows = self._working_columns(m, machine, resources)
        small = self._rows_problem(m, rows, self.terms.penalty.restricted(machine.groups, rows.features), lam)
        method = "fista" if state.engine == "fista" else "auto"
        limits = {"squared": SET_SWEEPS, "hinge": PATH_STEPS}  # others have second derivatives
        limit = PROXIMAL_STEPS if method == "fista" and loss != "hinge" else limits.get(loss, NEWTON_STEPS)
        tol = machine.inner_tol
        if loss != "squared" and np.isfinite(machine.objective):
            # Far from the optimum a set is not worth a close solution: it will grow.
            tol = max(tol, GAP_SHARE * machine.gap / machine.objective)
        solution = solve_rows(small, warm=machine.copies, biases=machine.biases, tol=tol, max_iter=limit, method=method)
        # Columns are centred here: the bias of raw ones is another.
        return rows, solution._replace(biases=solution.biases - small.penalty.scatter(solution.copies) @ rows.means)

    def _rows_problem(self, m: int, rows: WorkingColumns, penalty: GroupPenalty, lam: float) -> RowProblem:
        terms = self.terms
        return RowProblem(rows, terms.targets[m], terms.cost, mean_loss(terms.loss), penalty, lam, terms.fit_bias)

    def _working_columns(self, m: int, machine: BatchMachine, resources: Resources) -> WorkingColumns:
        """Return the columns of a problem's working set. Missing columns are fetched in the order in which they were added."""
        penalty, terms = self.terms.penalty, self.terms
        columns = self._columns.setdefault(m, WorkingColumns(terms.cost, terms.fit_bias))
        ends = np.cumsum(machine.joined)
        for lo, hi in zip((ends - machine.joined)[columns.n_batches :], ends[columns.n_batches :], strict=True):
            members = np.unique(penalty.members[penalty.copies_of(machine.groups[lo:hi])])
            new = np.setdiff1d(members, columns.features)
            holding = working_set_columns(self.data, np.concatenate([columns.features, new]))
            refuse("group-lasso", [holding], resources.fit_limit, FEWER_COLUMNS)
            columns.append(new, fetch_scaled(self.data, resources, new))
        return columns

    def _certify(self, machine: BatchMachine, m: int, solution: RowSolution, z: np.ndarray, lam: float) -> BatchMachine:
        """Return the state of a problem with the certificate over all groups. The groups that violate the certificate most join the working
        set.
        """
        terms = self.terms
        norms = terms.penalty.dual_norms(z)
        loss, max_norm = mean_loss(terms.loss), float(norms.max(initial=0.0))
        lower = max(machine.lower, loss.dual_value(terms.targets[m], terms.cost, solution.slopes, max_norm, lam))
        point = {"copies": solution.copies, "biases": solution.biases, "objective": solution.objective}
        return self._grow(replace(machine, **point, lower=lower), norms, solution.stop, lam)

    def _grow(self, machine: BatchMachine, norms: np.ndarray, inner_stop: str, lam: float) -> BatchMachine:
        """Return the state of a problem with its reason to stop, or with the violating groups of largest norm added to its working set."""
        terms = self.terms
        if machine.gap <= terms.tol * machine.objective:
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
        sizes = int(np.diff(terms.penalty.indptr)[new].sum())
        copies = np.concatenate([machine.copies, np.zeros((1, sizes))], axis=1)
        return replace(machine, groups=np.concatenate([machine.groups, new]), joined=np.append(machine.joined, len(new)), copies=copies)

    def _active_groups(self, machine: BatchMachine) -> np.ndarray:
        alive = machine.copies.any(axis=0)
        owners = np.repeat(machine.groups, np.diff(self.terms.penalty.indptr)[machine.groups])
        return np.unique(owners[alive])

    def solution(self, state: BatchState) -> BatchSolution:
        """Return the weights, active groups and bounds of the given state."""
        machines, penalty, weights = state.machines, self.terms.penalty, []
        for machine in machines:
            copies = np.zeros((1, penalty.n_copies))
            copies[:, penalty.copies_of(machine.groups)] = machine.copies
            weights.append(penalty.scatter(copies))
        active = tuple(self._active_groups(machine) for machine in machines)
        figures = {name: value for name, value in self._metrics(state).items() if name in BatchSolution._fields}
        converged, biases = all(machine.stop == "gap" for machine in machines), np.concatenate([machine.biases for machine in machines])
        return BatchSolution(np.concatenate(weights), biases, active, converged=converged, **figures)

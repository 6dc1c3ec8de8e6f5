"""Rule ensembles on the lattice of conjunctions (Jawanpuria, PhD thesis, 2014, section 5.4).

The fit begins with the active set (:mod:`gramplane.pipeline.loops.active_set`). Rules on a hull are fitted by joint re-weighting. One walk
over packed columns searches the frontier; then branch and bound searches all conjunctions. Separate steps then move the thresholds of the
selected rules to the training values with the smallest loss, and fit the rules again on their hull.

=============  ==================================================
symbol         name
=============  ==================================================
W, d           ``RuleState.active.nodes``
f = G L'       ``RuleMaster.weights``
alpha          ``RuleMaster.alpha``
certificate    ``ActiveState.certificate``
=============  ==================================================
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....kernels.rules.row_losses import HINGE, SQUARED, tube_loss
from ....kernels.target_unit import LABELS, in_machine_unit
from ....storage.data import column_numbers
from ...core.memory import check_memory
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.labels import labels_of, refuse_idle_classes, resolve_loss, row_costs, row_weights, store_inputs
from ...inputs.scores import accuracy_metrics, fit_tracker, held_out_rows, scores_of
from ...inputs.tasks import TaskInputs, checked_task_kernel, refuse_more_classes, store_tasks, with_tasks
from ...loops.active_set import FINISHED, ActiveState, active_step, unchanged_figures
from ...models.model import Tables
from .config import RuleConfig
from .data import REMEDY, RuleInputs, RuleTask, driver_items
from .lattice_problem import LatticeProblem
from .model import RuleModel, rule_certificate, rule_table
from .problem import RuleMaster, RulesProblem, RuleState
from .refinement import build_rule_model, is_better, prune_rules, refine_rules

MACHINE_C, MAX_C = 10.0, 50.0  # of C="auto", for every machine and at most (docs/theory/defaults.md)

# What ended a fit before its tolerance was reached.
STOPS = {"max_rounds": "max_rounds={0.max_rounds}", "max_nodes": "max_rules={0.max_rules}", "stalled": "a standstill"}
MAX_SWEEPS = 6  # times that cuts are moved and rules fitted again


class Rule(Method[RuleConfig, RulesProblem, RuleState, RuleModel]):
    """A model of readable rules, selected from all conjunctions jointly."""

    name = "rule-ensemble"
    config = RuleConfig
    state = RuleState
    models = (RuleModel,)
    programs = "methods.rule_ensemble.blocked_rules"

    def read_inputs(self, config: RuleConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[RuleConfig, RuleInputs]:
        """Return the parameters, and the target, weights and tasks of a store; ``extra`` may contain ``test_share``.

        Raises DataError for a task without rows.
        """
        data, rows = resources.data, store_inputs(resources, self.name)
        tasks = store_tasks(data)
        rows = rows if tasks is None else with_tasks(rows, tasks, data.url)
        rows = rows.without(held_out_rows(extra, rows.target, resources.seed, rows.classes))
        return config, RuleInputs.of(rows, data.feature_names(), data.encoding)

    def decided(self, config: RuleConfig, inputs: RuleInputs, resources: Resources) -> RuleConfig:
        """Return the parameters with ``C`` resolved."""
        return config if config.C != "auto" else config.model_copy(update={"C": min(MACHINE_C * inputs.rows.n_machines, MAX_C)})

    def problem(self, config: RuleConfig, inputs: RuleInputs, resources: Resources) -> RulesProblem:
        """Return the problem of a fit.

        Raises ValueError for a similarity that does not match the tasks, or a categorical column that does not exist; DataError for a
        class without a row of positive weight; MemoryBoundExceeded if even a single proposition, with hulls of ``max_rules``
        conjunctions, exceeds the driver's memory.
        """
        config = self.decided(config, inputs, resources)
        rows, cost = inputs.rows, row_costs(config, inputs.rows)
        n, n_cols = len(rows.target), inputs.data.n_cols
        chosen = [entry for entry in column_numbers(config.categorical or (), n_cols, "categorical") if entry not in inputs.nominal]
        categorical = sorted({*categorical_columns(chosen, n_cols, inputs.names), *inputs.categories})
        kind = resolve_loss(config.loss, rows.classes, ("squared", "epsilon_insensitive"), ("hinge",))
        loss = {"hinge": HINGE, "squared": SQUARED}.get(kind) or tube_loss(config.epsilon)
        numbers, unit = None, LABELS
        if rows.classes is None:
            numbers, unit = in_machine_unit(rows.target, row_weights(config, rows), centred=True)
        codes = rows.codes if isinstance(rows, TaskInputs) else None
        if isinstance(rows, TaskInputs):
            refuse_more_classes(rows)
            machines = _task_machines(rows, cost, rows.signs() if numbers is None else numbers)
        else:
            if rows.classes is not None:
                refuse_idle_classes(rows.labels, rows.target, cost)
            used = np.flatnonzero(cost > 0)
            counts = None if rows.sample_weight is None else rows.sample_weight[used]
            targets = [numbers] if numbers is not None else [labels_of(rows, machine) for machine in range(rows.n_machines)]
            machines = [RuleTask(used, target[used], cost[used], counts) for target in targets]
        similarity = task_similarity(config.task_kernel, len(machines), codes is not None)
        fits = (fit_tracker(rows, rows.held_out),)
        problem = RulesProblem(config, inputs, tuple(machines), similarity, tuple(categorical), resources, fits, codes, loss, unit)
        # How many propositions there are is known after the first pass, which looks again.
        check_memory(self.name, driver_items(config, 1, n, 1, len(machines), problem.in_blocks), resources, REMEDY)
        return problem

    def init(self, problem: RulesProblem, resources: Resources) -> RuleState:
        """Return the initial state: the empty conjunction and the best single propositions."""
        lattice = problem.rules(resources).lattice
        nodes = lattice.start(problem.config.add)
        weights = np.zeros((nodes.size, lattice.root.shape[1]))
        master = RuleMaster(weights, np.zeros(len(problem.tasks)), np.zeros(sum(len(task.rows) for task in problem.tasks)))
        return RuleState(0, ActiveState(nodes), master)

    def step(self, problem: RulesProblem, state: RuleState, resources: Resources) -> Step[RuleState]:
        """Return the state after one round of the active set, or after one sweep over the thresholds."""
        new, figures = (self._grow if state.active.stop is None else self._refine)(problem, state, resources)
        prune = problem.config.prune
        if new.kept is not None:
            n_selected = len(new.kept.above(prune)[0])
        else:
            sizes = np.sqrt(np.sum(new.master.weights**2, axis=1))
            n_selected = int(np.sum(sizes > prune * sizes.max(initial=0.0)))
        accuracy = accuracy_metrics(problem.fits, dict(enumerate(problem.row_values(new, resources).T))) if problem.fits else {}
        return Step(new, {**problem.unit.figures(figures), "newton_steps": new.master.steps, "n_selected": n_selected, **accuracy})

    def _grow(self, problem: RulesProblem, state: RuleState, resources: Resources) -> tuple[RuleState, dict[str, Any]]:
        config, data = problem.config, problem.rules(resources)
        active, master, figures = active_step(state.active, state.master, LatticeProblem(data.lattice, config), problem.rule, resources)
        state = RuleState(state.iteration + 1, active, master)
        if active.stop is not None:
            is_last = not (config.refine_cuts or config.refit)
            rules = prune_rules(state.hull_rules(data), data.lattice, config.prune, is_last)
            state = replace(state, kept=rules, stop=active.stop if is_last else None)
        return state, {"phase": "grow", **figures, "refit_objective": float("nan")}

    def _refine(self, problem: RulesProblem, state: RuleState, resources: Resources) -> tuple[RuleState, dict[str, Any]]:
        config, active, old = problem.config, state.active, state.kept
        assert old is not None
        rules = refine_rules(old, problem, resources)
        is_last = not config.refine_cuts or rules.sweep >= MAX_SWEEPS or not is_better(old, rules, config.tol)
        if old.sweep > 0 and rules.objective > old.objective:
            rules = old
        figures = {**unchanged_figures(active), "n_nodes": rules.nodes.size, "refit_objective": rules.objective}
        state = RuleState(state.iteration + 1, active, state.master, rules, active.stop if is_last else None)
        return state, {"phase": "refine", **figures}

    def result(self, problem: RulesProblem, state: RuleState, resources: Resources) -> Result[RuleModel]:
        """Return the model: the selected rules, the active set from which they were selected, and the certificate of the active set."""
        model = build_rule_model(problem, state, resources)
        certificate = rule_certificate(model)
        depth, has_gap = certificate["depth"], not np.isnan(certificate["gap"])
        bounded = f"rules of at most {depth} conditions" if depth else "none: rules next to the working set were looked at only"
        reason, gap = STOPS.get(str(state.active.stop), "").format(problem.config), certificate["restricted_gap"]
        ended = f"{reason} ended the fit before rules next to the active set were quiet; the gap on the active set is {gap:.2g}"
        return Result(
            model,
            state.active.stop,
            objective=model.figures["objective"],
            gap=certificate["gap"] if has_gap else None,
            certified_over="all rules" if certificate["complete"] else bounded,
            figures={
                "relative_gap": certificate["relative_gap"] if has_gap else None,
                "restricted_gap": certificate["restricted_gap"],
                "rounds": state.active.rounds,
                "n_selected": model.n_rules,
                "mean_length": float(model.lengths.mean()) if model.n_rules else 0.0,
                "n_nodes": state.active.nodes.size,
                "classes": json.loads(model.classes_json),
            },
            unfinished="" if state.active.stop in FINISHED else ended,
            scores=lambda: scores_of(problem.inputs.rows, self.decision_values(problem, state, resources)),
        )

    def decision_values(self, problem: RulesProblem, state: RuleState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``; with tasks one value per row, by the model of its task."""
        return problem.row_values(state, resources).T

    def tables(self, model: RuleModel, names: Sequence[str] | None = None, fit: tuple[RulesProblem, RuleState] | None = None) -> Tables:
        """Return the rules in descending order of weight."""
        return {"rules": rule_table(model)}

    def follow_path(self, problem: RulesProblem, before: RulesProblem | None) -> None:
        """Reuse the propositions of the previous fit, and skip the refinement along the path."""
        problem.fits = ()
        if before is not None:
            problem.take_over(before)

    def restart(self, problem: RulesProblem, fresh: RuleState, before: RulesProblem, last: RuleState) -> RuleState:
        """Return the state with the conjunctions of the previous fit that have non-zero weight. The whole active set of that fit is not
        used, because an active set only grows.
        """
        return problem.continued(fresh, last)


def _task_machines(inputs: TaskInputs, cost: np.ndarray, target: np.ndarray) -> list[RuleTask]:
    machines = []
    for t in range(inputs.n_tasks):
        rows = inputs.rows(t)
        rows = rows[cost[rows] > 0]
        counts = None if inputs.sample_weight is None else inputs.sample_weight[rows]
        machines.append(RuleTask(rows, target[rows], cost[rows], counts))
    return machines


def task_similarity(kernel: Sequence[Sequence[float]] | None, n_tasks: int, has_tasks: bool) -> np.ndarray:
    """Return the similarity of the tasks; if none is given, the identity.

    Raises ValueError if the similarity is not a positive semi-definite matrix of the tasks with a positive diagonal, or if the fit has no
    tasks.
    """
    if kernel is not None and not has_tasks:
        raise ValueError("task_kernel needs tasks, and this fit has none")
    matrix = checked_task_kernel(kernel, n_tasks)
    if matrix is None:
        return np.eye(n_tasks)
    if np.any(np.diag(matrix) <= 0):
        raise ValueError(f"task_kernel: its diagonal must be positive; the least entry is {np.diag(matrix).min():.3g}")
    return matrix


def categorical_columns(entries: Sequence[int | str] | None, n_cols: int, names: Sequence[str] | None) -> list[int]:
    """Return the indices of columns given by number or name. Raises ValueError for a column that does not exist."""
    number = {} if names is None else {str(name): j for j, name in enumerate(names)}
    columns = set()
    for entry in entries or ():
        column = number.get(entry, -1) if isinstance(entry, str) else int(entry)
        if not 0 <= column < n_cols:
            also = " and no such name" if number else ""
            raise ValueError(f"categorical: column {entry!r} does not exist; the data has columns 0 to {n_cols - 1}{also}")
        columns.add(column)
    return sorted(columns)

"""Rule ensembles as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ....storage import DataError
from ....storage.data import column_numbers
from ...core.memory import check_memory, driver_plan
from ...inputs.labels import labels_of, refuse_idle_classes, row_costs, store_inputs
from ...inputs.scores import AccuracyTracker, held_out_rows
from ...inputs.tasks import TaskInputs, checked_task_kernel, refuse_more_classes, store_tasks, task_fit, with_tasks
from ...method import Method
from ...passes.blocks import column_tasks
from ...passes.columns import columns_bytes
from ...records.context import RunContext
from .blocked_lattice import block_rows, fits_a_task, largest_step
from .config import RuleConfig
from .data import REMEDY, RuleInputs, RuleTask, driver_items, lies_in_blocks, most_propositions
from .loop import RuleLoop
from .model import RuleModel, rule_certificate, rule_table
from .model_build import build_rule_model
from .predict import RulePredictor
from .proposition_pass import outline_pass, pack_pass
from .state import RuleState

MACHINE_C, MAX_C = 10.0, 50.0  # of C="auto", for every machine and at most (docs/defaults.md)


class Rule(Method):
    """A classifier of readable rules, chosen from all conjunctions at once."""

    name = "rule-ensemble"
    config_type = RuleConfig
    models = {RuleModel: RulePredictor()}
    fold_tols = {"tol": 1e-2, "rest": 1e-2}
    programs = "methods.rule_ensemble.blocked_rules"

    config: RuleConfig
    inputs: RuleInputs
    loop: RuleLoop

    @classmethod
    def read_inputs(cls, config: RuleConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[RuleConfig, RuleInputs]:
        """Return parameters, and classes, weights and tasks of a store; ``extra`` may hold ``test_share``.

        Raises DataError: the target is real-valued, or a task is empty.
        """
        rows, tasks = store_inputs(ctx, cls.name), store_tasks(ctx.data)
        if rows.classes is None:
            raise DataError("the target is real-valued; rule-ensemble separates classes (ingest with --task classification)", ctx.data.url)
        rows = rows if tasks is None else with_tasks(rows, tasks, ctx.data.url)
        rows = rows.without(held_out_rows(extra, rows.target, ctx.seed, rows.classes))
        return config, RuleInputs.of(rows, ctx.data.feature_names(), ctx.data.encoding)

    @classmethod
    def decided(cls, config: RuleConfig, inputs: RuleInputs, ctx: RunContext) -> RuleConfig:
        """Return parameters with the weight of the losses."""
        return config if config.C != "auto" else config.model_copy(update={"C": min(MACHINE_C * inputs.rows.n_machines, MAX_C)})

    @classmethod
    def build_loop(cls, config: RuleConfig, inputs: RuleInputs, ctx: RunContext) -> RuleLoop:
        """Return the loop of a fit.

        Raises ValueError: a similarity that does not suit the tasks, or a categorical column that is not there; DataError: a class without
        a row of positive weight; MemoryBoundExceeded: even a single proposition, with hulls of ``max_rules`` conjunctions, is more than the
        driver may hold.
        """
        rows, cost = inputs.rows, row_costs(config, inputs.rows)
        n, n_cols = len(rows.target), inputs.data.n_cols
        chosen = [entry for entry in column_numbers(config.categorical or (), n_cols, "categorical") if entry not in inputs.nominal]
        categorical = sorted({*categorical_columns(chosen, n_cols, inputs.names), *inputs.categories})
        if isinstance(rows, TaskInputs):
            refuse_more_classes(rows)
            machines, fit, codes = _task_machines(rows, cost), task_fit(rows), rows.codes
        else:
            refuse_idle_classes(rows.labels, rows.target, cost)
            used = np.flatnonzero(cost > 0)
            counts = None if rows.sample_weight is None else rows.sample_weight[used]
            machines = [RuleTask(used, labels_of(rows, machine)[used], cost[used], counts) for machine in range(rows.n_machines)]
            fit, codes = AccuracyTracker(0, len(machines), rows.target, rows.held_out), None
        similarity = task_similarity(config.task_kernel, len(machines), codes is not None)
        # How many propositions there are is known after the first pass, which looks again.
        is_blocked = lies_in_blocks(config, n, n_cols, len(machines), ctx.driver_memory)
        check_memory(cls.name, driver_items(config, 1, n, 1, len(machines), is_blocked), ctx, REMEDY)
        return RuleLoop(config, machines, similarity, categorical, n, (fit,), codes)

    @cached_property
    def _in_blocks(self) -> bool:
        data = self.ctx.data
        return lies_in_blocks(self.config, data.n_rows, data.n_cols, len(self.loop.tasks), self.ctx.driver_memory)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Tasks of a pass over columns, and of one over rows where these lie in blocks; memory of a task, and of the driver, with as many
        propositions as there may be.
        """
        config, data, machines = self.config, self.ctx.data, len(self.loop.tasks)
        tasks, n, d = column_tasks(data), data.n_rows, data.n_cols
        most = most_propositions(config, d, n)
        figures: dict[str, Any] = {"machines": machines, "rows": "blocks" if self._in_blocks else "driver", "tasks_per_pass": len(tasks)}
        if self._in_blocks:
            rows = block_rows(most, n)
            figures |= {"rows_per_block": rows, "row_blocks": -(-n // rows)}
            # Of the values of rules a column at a time comes to the driver.
            propositions, columns = outline_pass(tasks, n, config.n_thresholds), 1
            others = largest_step(most, n, machines, config.max_rules, config.max_visits)
        else:
            propositions, columns, others = pack_pass(tasks, n, config.n_thresholds), config.max_rules, 0
        step = max(propositions.memory_bound, columns_bytes(data, columns), others)
        held = driver_plan(driver_items(config, most, n, d, machines, self._in_blocks))
        return {**figures, "task_bytes": step, **held, "max_rules": config.max_rules, "max_visits": config.max_visits}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        if not self._in_blocks:
            return ("propositions of features",)
        most, n = most_propositions(self.config, self.ctx.data.n_cols, self.ctx.data.n_rows), self.ctx.data.n_rows
        search = "searches below single propositions" if fits_a_task(most, n) else "sums of candidates over blocks of rows"
        return ("propositions of features", "sums and counts of conjunctions over blocks of rows", search, "changes of cuts")

    def follow_path(self, before: Rule | None) -> None:
        """Take over the propositions, and leave what is decided to the end."""
        self.loop.fits = ()
        if before is not None:
            self.loop.take_over(before.loop)

    def warm_start(self, fresh: RuleState, before: Rule, last: RuleState) -> RuleState:
        """Return the conjunctions with weight of the fit before; not its active set, which only grows."""
        return self.loop.continued(fresh, last, self.ctx)

    def decision_values(self, state: RuleState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``; of tasks one, that of each row's task."""
        return self.loop.row_values(state, ctx).T

    def model(self, state: RuleState, ctx: RunContext) -> RuleModel:
        """Return the model of the last state: the selected rules, and the active set they came from."""
        return build_rule_model(self.config, self.inputs, self.loop.data(ctx), state, ctx)

    def summary(self, state: RuleState, model: RuleModel) -> dict[str, Any]:
        """Return the certificate, and how many rules of which length were selected."""
        certificate = rule_certificate(model)
        depth, has_gap = certificate["depth"], not np.isnan(certificate["gap"])
        bounded = f"rules of at most {depth} conditions" if depth else "none: rules next to the working set were looked at only"
        gaps = {name: certificate[name] if has_gap else None for name in ("gap", "relative_gap")}
        scope = {"restricted_gap": certificate["restricted_gap"], "certified_over": "all rules" if certificate["complete"] else bounded}
        mean_length = float(model.lengths.mean()) if model.n_rules else 0.0
        rules = {"rounds": state.active.rounds, "n_selected": model.n_rules, "mean_length": mean_length}
        last = {"n_nodes": state.active.nodes.size, "stop": state.active.stop, "classes": json.loads(model.classes_json)}
        return {"objective": model.figures["objective"], **gaps, **scope, **rules, **last}

    def tables(self, state: RuleState, model: RuleModel) -> dict[str, list[dict[str, Any]]]:
        """Return the rules, largest weight first."""
        return self.model_tables(model)

    @classmethod
    def model_tables(cls, model: RuleModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does."""
        return {"rules": rule_table(model)}


def _task_machines(inputs: TaskInputs, cost: np.ndarray) -> list[RuleTask]:
    signs, machines = inputs.signs(), []
    for t in range(inputs.n_tasks):
        rows = inputs.rows(t)
        rows = rows[cost[rows] > 0]
        counts = None if inputs.sample_weight is None else inputs.sample_weight[rows]
        machines.append(RuleTask(rows, signs[rows], cost[rows], counts))
    return machines


def task_similarity(kernel: Sequence[Sequence[float]] | None, n_tasks: int, has_tasks: bool) -> np.ndarray:
    """Return the similarity of the tasks; the identity for none.

    Raises ValueError: not a kernel of the tasks with a positive diagonal, or one for a fit without tasks.
    """
    if kernel is not None and not has_tasks:
        raise ValueError("task_kernel needs tasks: classes are fitted one against the rest, without shared weight")
    matrix = checked_task_kernel(kernel, n_tasks)
    if matrix is None:
        return np.eye(n_tasks)
    if np.any(np.diag(matrix) <= 0):
        raise ValueError(f"task_kernel: its diagonal must be positive; the least entry is {np.diag(matrix).min():.3g}")
    return matrix


def categorical_columns(entries: Sequence[int | str] | None, n_cols: int, names: Sequence[str] | None) -> list[int]:
    """Return the numbers of columns that are named by number or name; ValueError for a column that is not there."""
    number = {} if names is None else {str(name): j for j, name in enumerate(names)}
    columns = set()
    for entry in entries or ():
        column = number.get(entry, -1) if isinstance(entry, str) else int(entry)
        if not 0 <= column < n_cols:
            also = " and no such name" if number else ""
            raise ValueError(f"categorical names column {entry!r}; the data has columns 0 to {n_cols - 1}{also}")
        columns.add(column)
    return sorted(columns)

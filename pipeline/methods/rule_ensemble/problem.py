"""The problem of a rule ensemble: one machine for two classes, one per class for more, or one per task, on the lattice of conjunctions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ....kernels.rules.bits import MAX_UNPACKED_BYTES
from ....kernels.rules.lattice import RuleLattice
from ...core.memory import driver_plan
from ...core.resources import Resources
from ...inputs.scores import AccuracyTracker, R2Tracker
from ...loops.active_set import ActiveRule
from ...passes.blocks import Blocks, column_tasks
from ...passes.columns import columns_bytes
from .blocked_lattice import BlockedLattice, block_rows, fits_a_task, largest_step
from .blocked_rules import BlockedRules
from .config import RuleConfig
from .data import RuleData, RuleInputs, RuleTask, driver_items, lies_in_blocks, most_propositions, raw_columns, read_rule_data, rule_flags
from .proposition_pass import outline_pass, pack_pass
from .state import RuleState

KEPT_SHARE = 1e-3  # conjunctions below this share of the largest weight do not go on to another C


@dataclass(eq=False)
class RulesProblem:
    """Rules that are to be chosen; propositions and lattice are made by a pass when they are first asked for."""

    config: RuleConfig
    inputs: RuleInputs
    tasks: tuple[RuleTask, ...]
    similarity: np.ndarray
    categorical: tuple[int, ...]
    planned: Resources  # where it was made
    fits: tuple[AccuracyTracker | R2Tracker, ...] = ()  # the classifier whose accuracy is followed, if any
    task_codes: np.ndarray | None = None  # (n_samples,) machine that decides a row; None: all do

    def __post_init__(self) -> None:
        config = self.config
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_rules, config.add, True, config.rest)
        self._rules: RuleData | None = None

    @property
    def data(self) -> Blocks:
        """The rows."""
        return self.inputs.data

    def rules(self, resources: Resources) -> RuleData:
        """Return propositions and lattice, made by a pass at the first call."""
        if self._rules is None:
            self._rules = read_rule_data(self.data, resources, self.config, self.tasks, self.similarity, self.categorical)
        return self._rules

    def take_over(self, before: RulesProblem) -> None:
        """Take over the propositions of a problem over the same rows, where they lie in memory."""
        if before._rules is not None and isinstance(before._rules.lattice, RuleLattice):
            lattice = replace(before._rules.lattice, cost=tuple(task.cost for task in self.tasks))
            self._rules = replace(before._rules, lattice=lattice)

    @cached_property
    def in_blocks(self) -> bool:
        """Whether what holds on the rows lies in blocks, which passes ask."""
        data = self.data
        return lies_in_blocks(self.config, data.n_rows, data.n_cols, len(self.tasks), self.planned.driver_memory)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Tasks of a pass over columns, and of one over rows where these lie in blocks; memory of a task, and of the driver, with as many
        propositions as there may be.
        """
        config, data, machines = self.config, self.data, len(self.tasks)
        tasks, n, d = column_tasks(data), data.n_rows, data.n_cols
        most = most_propositions(config, d, n)
        figures: dict[str, Any] = {"machines": machines, "rows": "blocks" if self.in_blocks else "driver", "tasks_per_pass": len(tasks)}
        if self.in_blocks:
            rows = block_rows(most, n)
            figures |= {"rows_per_block": rows, "row_blocks": -(-n // rows)}
            # Of the values of rules a column at a time comes to the driver.
            propositions, columns = outline_pass(tasks, n, config.n_thresholds), 1
            others = largest_step(most, n, machines, config.max_rules, config.max_visits)
        else:
            propositions, columns, others = pack_pass(tasks, n, config.n_thresholds), config.max_rules, 0
        step = max(propositions.memory_bound, columns_bytes(data, columns), others)
        held = driver_plan(driver_items(config, most, n, d, machines, self.in_blocks))
        return {**figures, "task_bytes": step, **held, "max_rules": config.max_rules, "max_visits": config.max_visits}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        if not self.in_blocks:
            return ("propositions of features",)
        n = self.data.n_rows
        most = most_propositions(self.config, self.data.n_cols, n)
        search = "searches below single propositions" if fits_a_task(most, n) else "sums of candidates over blocks of rows"
        return ("propositions of features", "sums and counts of conjunctions over blocks of rows", search, "changes of cuts")

    def continued(self, fresh: RuleState, last: RuleState) -> RuleState:
        """Return the state to begin with where a fit of the same rows ended with another C: the conjunctions with weight there, with
        their hull, and the best single propositions.
        """
        lattice, old = self.rules(self.planned).lattice, last.active.nodes
        sizes = np.sqrt(np.sum(last.master.weights**2, axis=1))
        used = np.flatnonzero(sizes > KEPT_SHARE * sizes.max(initial=0.0))
        nodes = fresh.active.nodes.with_hulls(old.keys[used], lattice.parents, lattice.penalties, self.config.max_rules)
        weights = np.zeros((nodes.size, last.master.weights.shape[1]))
        for key, row in zip(old.keys, last.master.weights, strict=True):
            place = nodes.place(key)
            if place >= 0:
                weights[place] = row
        master = replace(fresh.master, weights=weights, bias=last.master.bias)
        return replace(fresh, active=replace(fresh.active, nodes=nodes), master=master)

    def row_values(self, state: RuleState, resources: Resources) -> np.ndarray:
        """Return the decision values of all machines, or of each row's task, ``(n_samples, n_machines)``."""
        values = self.rule_values(state, resources)
        return values if self.task_codes is None else values[np.arange(len(values)), self.task_codes][:, None]

    def rule_values(self, state: RuleState, resources: Resources) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of the rules so far."""
        found = self.rules(resources)
        rules, share = (state.hull_rules(found), 0.0) if state.kept is None else (state.kept, self.config.prune)
        items, n, (positions, weights) = rules.items(), self.data.n_rows, rules.above(share)
        chosen = [items[r] for r in positions]
        if isinstance(found.lattice, BlockedLattice):
            return BlockedRules.of(found.lattice, rules.propositions, chosen, weights).decision_values() - rules.bias
        columns = rules.columns_above(share)
        raw = raw_columns(self.data, resources, columns)
        flags = rule_flags(rules.propositions, chosen, columns, raw, n)
        # Some rows at a time: as numbers they take eight times as much.
        step = max(MAX_UNPACKED_BYTES // (8 * max(len(positions), 1)), 1)
        parts = [flags[lo : lo + step].astype(np.float64) @ weights for lo in range(0, n, step)]
        return np.concatenate(parts) - rules.bias

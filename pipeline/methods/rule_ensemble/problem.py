"""The problem of a rule ensemble (one model for two classes, one per class, or one per task), its states, and mirror descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.graphs.hulls import NodeSet
from ....kernels.graphs.norms import dual_exponent, log_psi, log_zeta, psi_gradient
from ....kernels.jit import one_thread
from ....kernels.rules.bits import MAX_UNPACKED_BYTES, set_bits
from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.machine import RulePoint, RuleProblem, RuleSearch
from ....kernels.rules.propositions import Propositions
from ....kernels.rules.row_losses import HINGE, RowLoss
from ....kernels.target_unit import LABELS, TargetUnit
from ....kernels.weights.domains import Simplex
from ...core.memory import driver_plan
from ...core.resources import Resources
from ...inputs.scores import AccuracyTracker, R2Tracker
from ...loops.active_set import ActiveRule, ActiveState
from ...loops.weight_steps import mirror_step
from ...passes.blocks import Blocks, column_tasks
from ...passes.columns import columns_bytes
from .blocked_lattice import BlockedLattice, block_rows, fits_a_task, largest_step
from .blocked_rules import BlockedRules
from .config import RuleConfig
from .data import RuleData, RuleInputs, RuleTask, driver_items, lies_in_blocks, most_propositions, raw_columns, read_rule_data, rule_flags
from .proposition_pass import propositions_pass


@dataclass(frozen=True)
class RuleMaster:
    """Solution of the restricted problem."""

    record_name: ClassVar[str] = "RuleMaster"
    weights: np.ndarray  # (W, r) G of :class:`.RulePoint`
    bias: np.ndarray  # (T,)
    alpha: np.ndarray  # multipliers of all tasks, one task after the other
    steps: int = 0  # Newton steps so far


@dataclass(frozen=True)
class SelectedRules:
    """Rules selected from the active set."""

    record_name: ClassVar[str] = "Kept"
    propositions: Propositions  # with their moved cuts
    nodes: NodeSet  # hull of the selected rules on these propositions
    weights: np.ndarray  # (W, T)
    bias: np.ndarray  # (T,)
    objective: float  # primal value
    sweep: int  # times the cuts were moved

    def items(self) -> list[list[int]]:
        """Return the propositions of every node of the hull."""
        return set_bits(self.nodes.keys)

    def above(self, share: float) -> tuple[list[int], np.ndarray]:
        """Return the rules with a weight above a share of the largest weight, as positions in the hull, and their weights. The empty rule
        is excluded.
        """
        sizes = np.where(self.nodes.keys.any(axis=1), np.abs(self.weights).max(axis=1, initial=0.0), 0.0)
        positions = np.flatnonzero(sizes > share * sizes.max(initial=0.0))
        return positions.tolist(), self.weights[positions]

    def columns_above(self, share: float) -> np.ndarray:
        """Return the indices of the features that occur in rules with a weight above a share of the largest weight, ascending."""
        items = self.items()
        return np.unique(self.propositions.column[sorted({j for r in self.above(share)[0] for j in items[r]})])


@dataclass(frozen=True)
class RuleState:
    """State of the fit: the active set, then the rules selected from it."""

    record_name: ClassVar[str] = "RuleState"
    iteration: int
    active: ActiveState
    master: RuleMaster
    kept: SelectedRules | None = None
    stop: str | None = None

    def hull_rules(self, data: RuleData) -> SelectedRules:
        """Return all conjunctions of the active set as rules."""
        weights = self.master.weights @ data.lattice.root.T
        return SelectedRules(data.propositions, self.active.nodes, weights, self.master.bias, self.active.upper, 0)


MAX_INNER_STEPS = 30  # closed steps of theta at given shares, at most
INNER_TOL_SHARE = 0.3  # share of the tolerance to which a machine is solved at given shares
MIN_SHARE = 1e-12  # least share of a node


def solve_mirror(problem: RuleProblem, *, tol: float = 1e-3, max_iter: int = 200) -> RulePoint:
    """Minimise on the hull until the duality gap is at most tol times the objective, or for ``max_iter`` mirror steps."""
    with one_thread():
        search, eta = RuleSearch(problem), np.full(problem.hull.size, 1.0 / problem.hull.size)
        for move in range(1, max_iter + 1):
            if _solve_machine(search, eta, tol):
                break
            _, slopes = psi_gradient(problem.hull, eta, search.forms, problem.rho)
            eta = np.maximum(mirror_step(Simplex(), eta, -0.5 * slopes, move), MIN_SHARE)
            eta /= eta.sum()
        return search.best


def _solve_machine(search: RuleSearch, eta: np.ndarray, tol: float) -> bool:
    """Solve the SVM at given shares; return whether the whole gap is closed."""
    problem, power = search.problem, dual_exponent(search.problem.rho)
    scale = np.exp(log_zeta(problem.hull, eta, problem.rho) / power)
    for inner in range(MAX_INNER_STEPS):
        delta = scale * _shares(search.norms, scale, problem.rho, inner)
        point = search.update_bounds(search.move(delta), tol, eta)
        if point.converged:
            return True
        value = np.exp(log_psi(problem.hull, eta, search.forms, problem.rho) / power)
        # At the machine's optimum sum Q^2 / delta is psi^(1/rhobar) of its multipliers.
        attained = float(np.sum(search.norms[delta > 0] ** 2 / delta[delta > 0]))
        if abs(attained - value) <= INNER_TOL_SHARE * tol * point.objective:
            break
    return False


def _shares(norms: np.ndarray, scale: np.ndarray, rho: float, inner: int) -> np.ndarray:
    """Return theta: the minimiser of sum_w Q_w^2 / (scale_w theta_w) over the ball of exponent rhohat = rho / (2 - rho)."""
    if rho >= 2.0:
        return np.ones(len(norms))
    power, largest = rho / (2.0 - rho), float(norms.max(initial=0.0))
    if largest == 0.0:
        return np.full(len(norms), len(norms) ** (-1.0 / power))
    smooth = norms**2 + (0.1 * 0.5**inner * largest) ** 2
    theta = (smooth / scale / (smooth / scale).max()) ** (1.0 / (power + 1.0))
    return theta / np.sum(theta**power) ** (1.0 / power)


KEPT_SHARE = 1e-3  # conjunctions below this share of the largest weight do not go on to another C


@dataclass(eq=False)
class RulesProblem:
    """The selection of rules. Propositions and lattice are computed by a pass at the first access."""

    config: RuleConfig
    inputs: RuleInputs
    tasks: tuple[RuleTask, ...]
    similarity: np.ndarray
    categorical: tuple[int, ...]
    planned: Resources  # where it was made
    fits: tuple[AccuracyTracker | R2Tracker, ...] = ()  # the classifier whose accuracy is followed, if any
    task_codes: np.ndarray | None = None  # (n_samples,) machine that decides a row; None: all do
    loss: RowLoss = HINGE
    unit: TargetUnit = LABELS  # of a real target

    def __post_init__(self) -> None:
        config = self.config
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_rules, config.add, True, config.rest)
        self._rules: RuleData | None = None

    @property
    def data(self) -> Blocks:
        """Data of the training rows."""
        return self.inputs.data

    def rules(self, resources: Resources) -> RuleData:
        """Return propositions and lattice, computed by a pass at the first call."""
        if self._rules is None:
            self._rules = read_rule_data(self.data, resources, self.config, self.tasks, self.similarity, self.categorical, self.loss)
        return self._rules

    def take_over(self, before: RulesProblem) -> None:
        """Reuse the propositions of a problem with the same rows, if they are in memory."""
        if before._rules is not None and isinstance(before._rules.lattice, RuleLattice):
            lattice = replace(before._rules.lattice, cost=tuple(task.cost for task in self.tasks))
            self._rules = replace(before._rules, lattice=lattice)

    @cached_property
    def in_blocks(self) -> bool:
        """True if the bits of the propositions are kept in blocks, which passes read."""
        data = self.data
        return lies_in_blocks(self.config, data.n_rows, data.n_cols, len(self.tasks), self.planned.driver_memory)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Number of tasks of a pass over columns and, if rows are in blocks, of a pass over rows; memory of a task and of the driver in
        bytes, with the largest possible number of propositions.
        """
        config, data, machines = self.config, self.data, len(self.tasks)
        tasks, n, d = column_tasks(data), data.n_rows, data.n_cols
        most = most_propositions(config, d, n)
        figures: dict[str, Any] = {"machines": machines, "rows": "blocks" if self.in_blocks else "driver", "tasks_per_pass": len(tasks)}
        if self.in_blocks:
            rows = block_rows(most, n)
            figures |= {"rows_per_block": rows, "row_blocks": -(-n // rows)}
            # Of the values of rules a column at a time comes to the driver.
            columns, others = 1, largest_step(most, n, machines, config.max_rules, config.max_visits)
        else:
            columns, others = config.max_rules, 0
        propositions = propositions_pass(tasks, n, config.n_thresholds, not self.in_blocks)
        step = max(propositions.memory_bound, columns_bytes(data, columns), others)
        held = driver_plan(driver_items(config, most, n, d, machines, self.in_blocks))
        return {**figures, "task_bytes": step, **held, "max_rules": config.max_rules, "max_visits": config.max_visits}

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        if not self.in_blocks:
            return ("propositions of features",)
        n = self.data.n_rows
        most = most_propositions(self.config, self.data.n_cols, n)
        search = "searches below single propositions" if fits_a_task(most, n) else "sums of candidates over blocks of rows"
        return ("propositions of features", "sums and counts of conjunctions over blocks of rows", search, "changes of cuts")

    def continued(self, fresh: RuleState, last: RuleState) -> RuleState:
        """Return the initial state after a fit of the same rows with another C: the conjunctions with non-zero weight in that fit, with
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
        """Return the decision values of all models, or of each row's task, ``(n_samples, n_machines)``, in the unit of the target."""
        values = self.unit.values(self.rule_values(state, resources))
        return values if self.task_codes is None else values[np.arange(len(values)), self.task_codes][:, None]

    def rule_values(self, state: RuleState, resources: Resources) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of the current rules, in the solver's unit."""
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

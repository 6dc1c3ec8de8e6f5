"""Rule ensembles on the lattice of conjunctions (Jawanpuria, PhD thesis, 2014, section 5.4): the loop.

First the active set (:mod:`gramplane.pipeline.loops.active_set`): rules on a hull by joint re-weighting, the frontier by one walk over
packed columns, then all conjunctions by branch and bound. Then, in steps of their own, the cuts of the kept rules move to the training
values with the least loss, and the rules are fitted again on the hull of what is kept.

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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.graphs.hulls import NodeSet
from ....kernels.graphs.norms import DualPoint
from ....kernels.rules.bits import UNPACKED, conjunctions, pack, unpack
from ....kernels.rules.cuts import CutMachine, refined_cuts
from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.machine import RulePoint, solve_rules
from ....kernels.rules.newton import bias_root
from ....kernels.rules.propositions import ABOVE, AT_MOST, Propositions
from ....kernels.rules.search import DEPTHS, Search
from ...inputs.scores import Fit, accuracy_metrics
from ...loops.active_set import EVERYWHERE, ActiveRule, ActiveState, Restricted, Violations, active_step
from ...loops.protocol import Step
from ...passes.columns import fetch_columns
from ...records.context import RunContext
from ...records.holdings import refuse_beyond
from .config import RuleConfig
from .memory import REMEDY, driver_held
from .mirror import solve_mirror
from .proposition_pass import dense_column, packed_propositions

SWEEPS = 6
"""Times that cuts are moved and rules fitted again, at most."""

MASTER_STEPS = 100
"""Re-weightings of one solve at most."""

BIAS_SMOOTHING = 1e-2
"""Width of the hinge's parabola where the bias alone is fitted."""

ROUND_OFF = 1e-12
"""Share of the largest weight below which that of the empty conjunction, which the bias stands for, is round-off."""

FIRST_DEPTH = 2


@dataclass(frozen=True)
class RuleMaster:
    """The restricted problem's solution.

    Attributes
    ----------
    weights
        ``(W, r)`` G of :class:`.RulePoint`.
    bias
        ``(T,)``.
    alpha
        Multipliers of all tasks, one task after the other.
    steps
        Newton steps so far.
    """

    record_name: ClassVar[str] = "RuleMaster"
    weights: np.ndarray
    bias: np.ndarray
    alpha: np.ndarray
    steps: int = 0


@dataclass(frozen=True)
class Kept:
    """Rules after selection.

    Attributes
    ----------
    propositions
        With their moved cuts.
    nodes
        Hull of the kept rules on these propositions.
    weights, bias
        ``(W, T)`` and ``(T,)`` of the machine.
    objective
        Its primal value.
    sweep
        Times the cuts were moved.
    """

    record_name: ClassVar[str] = "Kept"
    propositions: Propositions
    nodes: NodeSet
    weights: np.ndarray
    bias: np.ndarray
    objective: float
    sweep: int


@dataclass(frozen=True)
class RuleState:
    """State of the loop: the active set, then what is kept of it."""

    record_name: ClassVar[str] = "RuleState"
    iteration: int
    active: ActiveState
    master: RuleMaster
    kept: Kept | None = None
    stop: str | None = None


@dataclass(frozen=True)
class Task:
    """Rows of one machine: their numbers among all samples, labels and costs."""

    rows: np.ndarray
    y: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class Grounds:
    """What follows from the data once: propositions, lattice, rows in use."""

    propositions: Propositions
    lattice: RuleLattice
    rows: np.ndarray


class RuleLoop:
    """The loop of a rule ensemble.

    Parameters
    ----------
    config
        Parameters.
    tasks
        Machines: one for two classes, one per class for more, or one per task.
    similarity
        ``(T, T)`` similarity of the tasks.
    categorical
        Columns whose values are names.
    n_samples
        Rows of the data.
    fit
        Classifier whose accuracy is followed, or ``None``.
    task_codes
        ``(n_samples,)`` machine that decides a row, or ``None`` where all machines do.
    """

    state_type = RuleState

    def __init__(
        self,
        config: RuleConfig,
        tasks: Sequence[Task],
        similarity: np.ndarray,
        categorical: Sequence[int],
        n_samples: int,
        fit: Fit | None = None,
        task_codes: np.ndarray | None = None,
    ) -> None:
        self.config, self.tasks, self.similarity, self.fit = config, tuple(tasks), similarity, fit
        self._categorical, self._n, self._codes = tuple(categorical), n_samples, task_codes
        self._grounds: Grounds | None = None

    # -- what follows from the data ----------------------------------------------------------------------------------------

    def grounds(self, ctx: RunContext) -> Grounds:
        """Return propositions and lattice, found by a pass when first asked for."""
        if self._grounds is None:
            used = np.zeros(self._n, bool)
            for task in self.tasks:
                used[task.rows] = True
            packed = packed_propositions(ctx, used, self.config.n_thresholds, self._categorical)
            # What was planned is the most there may be; what there is decides, before anything of its size is made of it.
            held = driver_held(self.config, packed.propositions.size, int(used.sum()), ctx.data.n_cols, len(self.tasks))
            refuse_beyond(held, ctx.driver_memory, "rule-ensemble", REMEDY)
            place = np.cumsum(used) - 1
            lattice = RuleLattice(
                packed.columns,
                int(used.sum()),
                tuple(place[task.rows] for task in self.tasks),
                tuple(task.y for task in self.tasks),
                tuple(task.cost for task in self.tasks),
                self.similarity,
                self.config.a,
                self.config.skip_implied,
            )
            self._grounds = Grounds(packed.propositions, lattice, np.flatnonzero(used))
        return self._grounds

    @property
    def rule(self) -> ActiveRule:
        """How the active set grows and ends."""
        config = self.config
        return ActiveRule(tol=config.tol, max_rounds=config.max_rounds, max_nodes=config.max_rules, add=config.add, stall_tol=config.rest)

    # -- the loop ----------------------------------------------------------------------------------------------------------

    def init(self, ctx: RunContext) -> RuleState:
        """Return the state before the first step: the empty conjunction and the best single propositions."""
        nodes = self.grounds(ctx).lattice.start(self.config.add)
        lattice = self.grounds(ctx).lattice
        master = RuleMaster(
            np.zeros((nodes.size, lattice.root.shape[1])), np.zeros(len(self.tasks)), np.zeros(sum(len(t.rows) for t in self.tasks))
        )
        return RuleState(0, ActiveState(nodes), master)

    def step(self, state: RuleState, ctx: RunContext) -> Step[RuleState]:
        """Return the state after one round of the active set, or one move of the cuts."""
        if state.active.stop is None:
            new, figures = self._grow(state, ctx)
        else:
            new, figures = self._refine(state, ctx)
        return Step(new, {**figures, **self._accuracy(new, ctx)})

    def _grow(self, state: RuleState, ctx: RunContext) -> tuple[RuleState, dict[str, Any]]:
        problem = _Lattice(self.grounds(ctx).lattice, self.config)
        active, master, figures = active_step(state.active, state.master, problem, self.rule, ctx)
        new = RuleState(state.iteration + 1, active, master)
        if active.stop is not None:
            new = replace(new, kept=self._selected(new, ctx), stop=None if self._goes_on() else active.stop)
        told = {"newton_steps": master.steps, "n_selected": self._count(new), "refit_objective": float("nan")}
        return new, {"phase": "grow", **figures, **told}

    def _goes_on(self) -> bool:
        return self.config.refine_cuts or self.config.refit

    def _count(self, state: RuleState) -> int:
        if state.kept is None:
            weights = state.master.weights
            sizes = np.sqrt(np.sum(weights**2, axis=1))
            return int(np.sum(sizes > self.config.prune * sizes.max(initial=0.0)))
        return len(chosen(state.kept, self.config.prune)[0])

    def _selected(self, state: RuleState, ctx: RunContext) -> Kept:
        lattice = self.grounds(ctx).lattice
        weights = state.master.weights @ lattice.root.T
        found = Kept(self.grounds(ctx).propositions, state.active.nodes, weights, state.master.bias, state.active.upper, 0)
        return _pruned(found, lattice, self.config.prune, last=not (self.config.refine_cuts or self.config.refit))

    def _refine(self, state: RuleState, ctx: RunContext) -> tuple[RuleState, dict[str, Any]]:
        kept = state.kept
        assert kept is not None
        config, grounds = self.config, self.grounds(ctx)
        smaller, lattice = _on_own_propositions(kept, grounds, config, self._values(ctx, kept, grounds))
        values = self._values(ctx, smaller, grounds)
        if config.refine_cuts:
            smaller, lattice = _moved(smaller, lattice, values)
        found = _fitted(smaller, lattice, config)
        done = not config.refine_cuts or found.sweep >= SWEEPS or not _better(kept, found, config)
        if kept.sweep > 0 and found.objective > kept.objective:
            found = kept
        new = RuleState(state.iteration + 1, state.active, state.master, found, state.active.stop if done else None)
        figures = {
            "phase": "refine",
            "objective": state.active.upper,
            "gap": _known(state.active.certificate),
            "restricted_gap": state.active.upper - state.active.lower,
            "relative_gap": _known(state.active.certificate) / max(abs(state.active.upper), 1e-300),
            "bound": state.active.bound,
            "worst_outside": state.active.worst,
            "n_nodes": found.nodes.size,
            "n_added": 0,
            "looked_at": 0,
            "round": state.active.rounds,
            "newton_steps": state.master.steps,
            "n_selected": self._count(new),
            "refit_objective": found.objective,
        }
        return new, figures

    def _values(self, ctx: RunContext, kept: Kept, grounds: Grounds) -> dict[int, np.ndarray]:
        """Return the raw training values of the columns of the kept rules."""
        items = items_of(kept)
        used = sorted({j for r in chosen(kept, self.config.prune)[0] for j in items[r]})
        columns = np.unique(kept.propositions.column[used])
        if not len(columns):
            return {}
        raw = fetch_columns(ctx, columns)
        return {int(column): dense_column(raw, k)[grounds.rows] for k, column in enumerate(columns)}

    def _accuracy(self, state: RuleState, ctx: RunContext) -> dict[str, Any]:
        if self.fit is None:
            return {}
        values = self.decisions(state, ctx)
        if self._codes is not None:
            values = values[np.arange(len(values)), self._codes][:, None]
        return accuracy_metrics((self.fit,), {k: values[:, k] for k in range(values.shape[1])})

    def decisions(self, state: RuleState, ctx: RunContext) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values of the rules so far."""
        kept = state.kept
        if kept is None:
            lattice = self.grounds(ctx).lattice
            nodes = state.active.nodes
            weights = state.master.weights @ lattice.root.T
            kept = Kept(self.grounds(ctx).propositions, nodes, weights, state.master.bias, 0.0, 0)
        items = items_of(kept)
        rules, weights = chosen(kept, 0.0 if state.kept is None else self.config.prune)
        columns = np.unique(kept.propositions.column[sorted({j for r in rules for j in items[r]})])
        raw = fetch_columns(ctx, columns) if len(columns) else np.zeros((self._n, 0))
        flags = rule_flags(kept.propositions, [items[r] for r in rules], columns, raw, self._n)
        # Some rows at a time: as numbers they take eight times as much.
        step = max(UNPACKED // (8 * max(len(rules), 1)), 1)
        parts = [flags[lo : lo + step].astype(np.float64) @ weights for lo in range(0, self._n, step)]
        return np.concatenate(parts) - kept.bias


def rule_flags(propositions: Propositions, items: Sequence[Sequence[int]], columns: np.ndarray, raw: Any, n: int) -> np.ndarray:
    """Return which rows satisfy which rule, ``(n, n_rules)`` booleans.

    Parameters
    ----------
    propositions, items
        Rules as lists of propositions.
    columns, raw
        Features, ascending, and their raw values ``(n, len(columns))``.
    n
        Number of rows.
    """
    truth: dict[int, np.ndarray] = {}
    used = np.array(sorted({j for item in items for j in item}), np.int64)
    for k, column in enumerate(columns):
        mine = used[propositions.column[used] == column]
        if len(mine):
            truth.update(zip(mine.tolist(), propositions.flags(mine, int(column), dense_column(raw, k)), strict=True))
    out = np.ones((n, len(items)), bool)
    for r, item in enumerate(items):
        for j in item:
            out[:, r] &= truth[int(j)]
    return out


def chosen(kept: Kept, prune: float) -> tuple[list[int], np.ndarray]:
    """Return the rules that stay, by their place in the hull, and their weights: not the empty one, none below the share ``prune``."""
    sizes = np.abs(kept.weights).max(axis=1, initial=0.0)
    lengths = np.bitwise_count(kept.nodes.keys).sum(axis=1)
    sizes = np.where(lengths > 0, sizes, 0.0)
    places = np.flatnonzero(sizes > prune * sizes.max(initial=0.0))
    return places.tolist(), kept.weights[places]


def items_of(kept: Kept) -> list[list[int]]:
    """Return the propositions of every node of the hull."""
    width = 64 * kept.nodes.keys.shape[1]
    return [np.flatnonzero(row).tolist() for row in unpack(kept.nodes.keys, width)] if kept.nodes.size else []


def _known(value: float) -> float:
    return value if np.isfinite(value) else float("nan")


class _Lattice:
    """The lattice as the active-set loop sees it."""

    def __init__(self, lattice: RuleLattice, config: RuleConfig) -> None:
        self._lattice, self._config = lattice, config
        self.parents, self.penalties = lattice.parents, lattice.penalties

    def solve(self, nodes: NodeSet, master: RuleMaster, tol: float, ctx: RunContext) -> tuple[RuleMaster, Restricted]:
        """Solve the restricted problem."""
        problem = self._lattice.problem(nodes, self._config.rho)
        if self._config.solver == "mirror":
            point = solve_mirror(problem, tol=tol)
        else:
            point = solve_rules(problem, warm=(master.weights, master.bias), tol=tol, max_iter=MASTER_STEPS)
        found = RuleMaster(point.G, point.bias, np.concatenate(point.alpha), master.steps + point.steps)
        return found, Restricted(point.objective, DualPoint(point.linear, 0.0, point.reach), point.bound)

    def _alpha(self, master: RuleMaster) -> list[np.ndarray]:
        edges = np.cumsum([len(rows) for rows in self._lattice.rows])[:-1]
        return np.split(master.alpha, edges)

    def frontier(self, nodes: NodeSet, master: RuleMaster, threshold: float, ctx: RunContext) -> Violations:
        """Look at the children of the hull."""
        found = self._lattice.outside(nodes, self._alpha(master), threshold, frontier=True)
        return self._violations(found, threshold, None, found.visits)

    def everywhere(self, nodes: NodeSet, master: RuleMaster, threshold: float, ctx: RunContext) -> Violations:
        """Look at all conjunctions, longer and longer ones while the visits last."""
        left, reached, seen = self._config.max_visits, None, 0
        rows = self._lattice.signed(self._alpha(master))
        for depth in range(FIRST_DEPTH, DEPTHS + 1):
            found = self._lattice.outside(nodes, (), threshold, frontier=False, depth=depth, visits=left - seen, rows=rows)
            seen += found.visits
            if not found.finished:
                if len(found.values) and reached is None:
                    return self._violations(found, threshold, None, seen)
                break
            reached = EVERYWHERE if found.whole else depth
            if len(found.values) or found.whole:
                return self._violations(found, threshold, reached, seen)
        empty = Violations(self._lattice.named([]), np.zeros(0), threshold, reached, seen)
        return empty

    def _violations(self, found: Search, threshold: float, depth: int | None, seen: int) -> Violations:
        items = [row[row >= 0].tolist() for row in found.items]
        worst = max(float(found.values.max(initial=0.0)), threshold)
        return Violations(self._lattice.named(items), found.values, worst, depth, seen)

    def enlarged(self, master: RuleMaster, before: NodeSet, after: NodeSet) -> RuleMaster:
        """Return the master with zero weights for the nodes that joined."""
        more = np.zeros((after.size - before.size, master.weights.shape[1]))
        return replace(master, weights=np.concatenate([master.weights, more]))


# -- after selection -------------------------------------------------------------------------------------------------------


def _on_own_propositions(kept: Kept, grounds: Grounds, config: RuleConfig, values: dict[int, np.ndarray]) -> tuple[Kept, RuleLattice]:
    """Return the kept rules on the propositions that occur in them, with the lattice of these."""
    items, (places, weights) = items_of(kept), chosen(kept, config.prune)
    used = np.array(sorted({j for r in places for j in items[r]}), np.int64)
    new = {int(j): k for k, j in enumerate(used)}
    propositions = kept.propositions.take(used)
    flags = np.zeros((len(used), grounds.lattice.n), bool)
    for column, found in values.items():
        mine = np.flatnonzero(propositions.column == column)
        if len(mine):
            flags[mine] = propositions.flags(mine, column, found)
    lattice = replace(grounds.lattice, columns=pack(flags.astype(np.uint8)))
    own = [[new[j] for j in items[r]] for r in places]
    nodes = lattice.hull(lattice.named([[], *own]))
    spread = np.zeros((nodes.size, kept.weights.shape[1]))
    for name, row in zip(lattice.named(own), weights, strict=True):
        spread[nodes.place(name)] = row
    return Kept(propositions, nodes, spread, kept.bias, kept.objective, kept.sweep), lattice


def _moved(kept: Kept, lattice: RuleLattice, values: dict[int, np.ndarray]) -> tuple[Kept, RuleLattice]:
    items, props = items_of(kept), kept.propositions
    if not np.isin(props.kind, (AT_MOST, ABOVE)).any():
        return kept, lattice
    machine = CutMachine(items, kept.weights, kept.bias, lattice.rows, lattice.y, lattice.cost)
    flags = unpack(lattice.columns, lattice.n)
    columns = [values[int(column)] for column in props.column]
    cuts, flags = refined_cuts(machine, flags, props.kind, props.cut, columns)
    return replace(kept, propositions=replace(props, cut=cuts)), lattice.moved(pack(flags))


def _fitted(kept: Kept, lattice: RuleLattice, config: RuleConfig) -> Kept:
    if not config.refit and not config.refine_cuts:
        return kept
    warm = (np.asarray(kept.weights @ np.linalg.pinv(lattice.root).T, np.float64), kept.bias)
    point: RulePoint = solve_rules(lattice.problem(kept.nodes, config.rho), warm=warm, tol=config.tol, max_iter=MASTER_STEPS)
    found = replace(kept, weights=point.G @ lattice.root.T, bias=point.bias, objective=point.objective, sweep=kept.sweep + 1)
    return _pruned(found, lattice, config.prune)


def _pruned(kept: Kept, lattice: RuleLattice, prune: float, last: bool = False) -> Kept:
    """Return the machine without small weights, the bias of every task anew.

    The ``last`` machine, which is not fitted again, keeps its own where nothing is dropped: that is what its objective is of.
    """
    places, weights = chosen(kept, prune)
    clean = np.zeros_like(kept.weights)
    clean[places] = weights
    if last and np.abs(kept.weights - clean).max(initial=0.0) <= ROUND_OFF * np.abs(clean).max(initial=0.0):
        return replace(kept, weights=clean)
    items = items_of(kept)
    flags = unpack(conjunctions([items[r] for r in places], lattice.columns, lattice.n), lattice.n)
    bias = np.empty(len(kept.bias))
    for t, (rows, y, cost) in enumerate(zip(lattice.rows, lattice.y, lattice.cost, strict=True)):
        F = np.zeros(len(rows)) if not places else flags.T[rows].astype(np.float64) @ np.ascontiguousarray(weights[:, t])
        bias[t] = bias_root(F, y, cost, BIAS_SMOOTHING, float(kept.bias[t]))
    return replace(kept, weights=clean, bias=bias)


def _better(old: Kept, new: Kept, config: RuleConfig) -> bool:
    return old.sweep == 0 or new.objective < old.objective - config.tol * abs(old.objective)

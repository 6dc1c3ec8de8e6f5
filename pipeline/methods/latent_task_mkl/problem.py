"""Multiple kernel learning on latent task structure: selects the kernels that each group of tasks shares, over all groups.

Problem (docs/theory/latent_task_mkl.md):
``min 1/2 Omega(f)^2 + C sum of losses`` over functions ``f_tw = h_0w + h_tw`` of every group w and task t in
it, ``Omega = sum_v d_v ( sum_{w >= v} ||Theta_w||_p^q )^(1/q)`` (Jawanpuria, 2014, chapter 6). Everything that depends on the rows is,
for each kernel, ``A_j[s, t] = beta_s' K_j beta_t``: the quadratic forms of groups, the weights and the certificate need no further pass. A
step solves the joint SVM on ``sum_j S_j[s, t] K_j`` and computes the best weights for its functions. A search over all groups adds those
that keep the gap from closing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.bounds import sound_gap
from ....kernels.graphs.norms import NodeSet, dual_bound, dual_exponent, dual_shares, gauge, joint_weights, start_weights
from ....kernels.svm.dual import DualProblem, DualSolution, Gram
from ....kernels.svm.ridge import solve_ridge
from ....kernels.svm.smo import solve_to_gap
from ....kernels.tasks.group_search import GroupSearch, TaskLattice, group_forms, kernel_norms, kernel_shares, pair_weights, search_groups
from ....storage import DataError
from ...core.memory import Item, driver_plan
from ...core.one_vs_rest import JointState
from ...core.resources import Resources
from ...grams.grams import Grams
from ...grams.plans import GramPasses, sum_plan
from ...grams.settings import GramSettings, machines_items, task_forms_items
from ...inputs.tasks import PooledTasks
from ...loops.active_set import EVERYWHERE, FINISHED, ActiveRule, ActiveState, Restricted, Violations, dual_point
from ...loops.protocol import OverActiveSet
from .config import LatentTaskConfig

MAX_ADDED = 60  # groups that join at a time, without their ancestors
NEW_WEIGHT_SHARE = 0.03  # weight of a group that joins, as a share of the median
SMOOTHING = 1e-3  # norms are smoothed by this share of the greatest, half of it after every step: a weight of zero never grows again
MAX_STEPS = 60  # machines solved between two looks outside, at most
MACHINE_SHARE = 0.05  # own gap of a machine, as a share of the one that is asked for
ROUND_OFF = 1e-5  # forms of single-precision kernels below zero by more than this, relative to the size of their terms, are no rounding
RIDGE_TOL = 1e-6  # residual of squared-loss machines, as a share of the greatest target


@dataclass(frozen=True)
class Certificate:
    """Certificate of a fit over all groups of tasks.

    * ``gap``: an upper bound of the distance of the objective to the optimum over all groups.
    * ``relative_gap``: ``gap`` divided by the objective.
    * ``complete``: whether the search found every group above the threshold, and no limit of the search or of the fit cut it short.
    * ``sufficient``: the relative gap that the sufficient condition of the thesis (6.6) gives. The condition sums over descendants of the
      groups next to the working set, and this gap is usually too large to be useful.
    * ``visits``: the number of groups that the last search visited, out of ``2^T - 1``.
    """

    gap: float
    relative_gap: float
    complete: bool
    sufficient: float
    visits: int

    @classmethod
    def of(cls, figures: Mapping[str, float]) -> Certificate:
        """Return the certificate that a model stores in its figures."""
        gaps, complete = (figures["certified_gap"], figures["certified_relative_gap"]), bool(figures["certificate_complete"])
        return cls(*gaps, complete, figures["sufficient_relative_gap"], int(figures["search_visits"]))


@dataclass(frozen=True)
class GroupMachine:
    """The joint SVM over the W groups of the working set: its latest point, and its best point so far."""

    record_name: ClassVar[str] = "GroupMachine"
    weights: np.ndarray  # (W, k) to be tried next
    beta: np.ndarray  # (n,) newest dual point
    forms: np.ndarray  # (k, n_learned, n_learned) its forms A_j
    solves: int  # machines solved,
    steps: int  # and of these since groups joined
    upper: float  # least primal value, attained by the next four
    best_weights: np.ndarray  # (W, k)
    best_beta: np.ndarray  # (n,)
    biases: np.ndarray  # (T,)
    decision: np.ndarray  # (n,) decision values of all rows


@dataclass(frozen=True)
class LatentState(OverActiveSet):
    """The working set of groups, and the joint SVM over it."""

    record_name: ClassVar[str] = "LatentState"
    active: ActiveState
    machine: GroupMachine


@dataclass(frozen=True)
class LatentClassesState(JointState[LatentState]):
    """States of the one-vs-rest models of several classes."""

    record_name: ClassVar[str] = "LatentClassesState"
    parts: tuple[LatentState, ...]


class LatentProblem(PooledTasks):
    """The search for groups of tasks and the weights of their kernels; tasks with a single label belong to no group."""

    config: LatentTaskConfig

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        # With constants alone, one of them stands for a lattice without work.
        learned = np.flatnonzero(self.constants == 0)
        self.learned = learned if len(learned) else np.zeros(1, np.int64)
        self.lattice = TaskLattice(len(self.learned), config.a, config.inverted is True)
        self.parents, self.penalties = self.lattice.parents, self.lattice.penalties
        stall_tol = 0.1 * config.tol if config.stop_at_rest else None
        self.rule = ActiveRule(config.tol, config.max_rounds, config.max_groups, MAX_ADDED, True, stall_tol)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, number of tasks per pass, and memory of a task in bytes."""
        n, k = self.inputs.data.n_rows, len(self.specs)
        passes = GramPasses(self.inputs.data, self.specs, self.settings, self.planned)
        return {
            **self.settings.describe(n, k),
            **driver_plan(driver_items(self.settings, n, k, self.n_tasks, self.planned.driver_memory)),
            "learning_tasks": self.n_tasks,
            "groups": 2.0 ** len(self.learned) - 1.0,
            "iterations_at_most": self.config.max_iter,
            **sum_plan(passes, passes.task_forms(1, self.n_tasks)),
        }

    def first_machine(self) -> tuple[NodeSet, GroupMachine]:
        """Return the sources of the lattice, with equal weights."""
        lattice, k, zeros = self.lattice, len(self.specs), np.zeros(self.dual.n)
        nodes = NodeSet.empty(lattice.width, np.uint64).with_hulls(lattice.sources(), lattice.parents, lattice.penalties)
        weights = start_weights(nodes.hull)[:, None] * kernel_shares(np.zeros((nodes.size, k)), self.config.p)
        forms = np.zeros((k, lattice.n_tasks, lattice.n_tasks))
        return nodes, GroupMachine(weights, zeros, forms, 0, 0, np.inf, weights, zeros, self.constants, zeros)

    # -- what the active-set loop asks for -----------------------------------------------------------------------------------------

    def solve(self, nodes: NodeSet, master: GroupMachine, tol: float, ctx: Resources) -> tuple[GroupMachine, Restricted]:
        """Solve the joint SVM at the latest weights and compute the best weights for its functions."""
        config, grams = self.config, self.grams(ctx)
        gram = grams.combine_tasks(self.pair_weights(nodes, master.weights), self.codes)
        solution = solve_machine(gram, self.dual, master.beta, min(tol, 0.1) * MACHINE_SHARE)
        forms = grams.task_forms(solution.beta, self.codes, self.n_tasks)
        refuse_negative(grams, forms, solution, self.codes)
        forms = forms[:, self.learned[:, None], self.learned]
        squares = group_forms(self.lattice.groups(nodes.keys), forms, config.mu)
        norms = master.weights * np.sqrt(squares)
        group_norms = kernel_norms(norms, config.p)
        loss = solution.upper - 0.5 * float(solution.beta @ solution.decision)
        upper = 0.5 * gauge(nodes.hull, group_norms, config.q) ** 2 + max(loss, 0.0)
        shares = dual_shares(nodes.hull, group_norms, config.q)
        bound = dual_bound(nodes.hull, kernel_norms(squares, dual_exponent(config.p)), config.q, shares)
        machine = replace(master, beta=solution.beta, forms=forms, solves=master.solves + 1, steps=master.steps + 1)
        if upper < master.upper:
            machine = self._with_best(machine, upper, solution)
        machine = replace(machine, weights=self._best_weights(nodes, norms, master.steps))
        point = dual_point(self.dual, solution.beta)
        is_last = machine.steps >= MAX_STEPS or machine.solves >= config.max_iter
        done = is_last or machine.upper - point.value(bound.value) <= tol * machine.upper
        return machine, Restricted(machine.upper, point, bound.value, done)

    def _with_best(self, machine: GroupMachine, upper: float, solution: DualSolution) -> GroupMachine:
        """Return the state whose best point is the latest point: ``solution``, and the weights at which it was found."""
        assert solution.biases is not None
        biases = np.where(self.constants != 0, self.constants, solution.biases)
        decision = solution.decision + biases[self.codes]
        return replace(machine, upper=upper, best_weights=machine.weights, best_beta=solution.beta, biases=biases, decision=decision)

    def frontier(self, nodes: NodeSet, master: GroupMachine, threshold: float, ctx: Resources) -> Violations:
        """Search all groups outside the working set by branch and bound; if the search is cut short, bound the groups that it did not
        visit.
        """
        search = self.search(nodes, master, threshold)
        keys = self.lattice.keys(search.groups)
        outside = ~nodes.holds(keys)
        worst = max(float(search.values[outside].max(initial=0.0)), search.bound)
        return Violations(keys[outside], search.values[outside], worst, EVERYWHERE, search.visits)

    everywhere = frontier

    def search(self, nodes: NodeSet, master: GroupMachine, threshold: float) -> GroupSearch:
        """Return the groups above a threshold, including those of the working set."""
        # Of so many, as many as may join are not in the working set.
        count, config = MAX_ADDED + nodes.size, self.config
        return search_groups(self.lattice, master.forms, config.mu, config.p, threshold, count, config.max_size)

    def enlarged(self, master: GroupMachine, before: NodeSet, after: NodeSet) -> GroupMachine:
        """Return the state with weights for added groups: a fraction of the median weight, divided among the kernels according to their
        quadratic forms.
        """
        config, new = self.config, slice(before.size, after.size)
        squares = group_forms(self.lattice.groups(after.keys[new]), master.forms, config.mu)
        # At the optimum norms of functions are as forms to the power 1 / (2 (p - 1)).
        largest = squares.max(axis=1, initial=0.0)
        shares = kernel_shares((squares / np.where(largest > 0, largest, 1.0)[:, None]) ** (0.5 / (config.p - 1.0)), config.p)
        typical = NEW_WEIGHT_SHARE * np.median(master.weights.max(axis=1) * before.hull.d**2)
        added = typical / after.hull.d[new, None] ** 2 * shares
        return replace(
            master, weights=np.vstack([master.weights, added]), best_weights=np.vstack([master.best_weights, np.zeros_like(added)]), steps=0
        )

    def pair_weights(self, nodes: NodeSet, weights: np.ndarray) -> np.ndarray:
        """Return the weight of every kernel between pairs of tasks, ``(k, T, T)``, from weights ``(W, k)`` of groups."""
        pairs = np.zeros((weights.shape[1], self.n_tasks, self.n_tasks))
        pairs[:, self.learned[:, None], self.learned] = pair_weights(self.lattice.groups(nodes.keys), weights, self.config.mu)
        return pairs

    def certify(self, state: LatentState) -> Certificate:
        """Return the certificate of a state. It depends on the state alone, so that a resumed run returns the same certificate."""
        active, machine, config, lattice = state.active, state.machine, self.config, self.lattice
        nodes = active.nodes
        norms = kernel_norms(group_forms(lattice.groups(nodes.keys), machine.forms, config.mu), dual_exponent(config.p))
        bound = dual_bound(nodes.hull, norms, config.q, np.full(nodes.size, 1.0 / nodes.size), passes=200).value
        search = self.search(nodes, machine, max(bound, active.worst))
        outside = ~nodes.holds(lattice.keys(search.groups))
        frontier = lattice.groups(lattice.frontier(nodes.keys))
        sums = lattice.descendant_bounds(frontier, machine.forms.sum(axis=0), config.mu)
        lower = dual_point(self.dual, machine.beta).value(max(bound, float(sums.max(initial=0.0))))
        scale = machine.upper if machine.upper > 0 else 1.0
        gap = sound_gap(machine.upper - active.certified if np.isfinite(active.certified) else machine.upper, machine.upper)
        complete = search.complete and not outside.any() and active.stop in FINISHED
        return Certificate(gap, gap / scale, complete, sound_gap(machine.upper - lower, machine.upper) / scale, search.visits)

    def ranked_groups(self, state: LatentState) -> tuple[np.ndarray, np.ndarray]:
        """Return the groups with a weight above ``threshold`` times the largest weight, as ``(n_groups, T)`` in descending order of weight,
        and the weights of their kernels ``(n_groups, k)``.
        """
        nodes, weights = state.active.nodes, state.machine.best_weights
        totals = weights.sum(axis=1)
        heavy = np.flatnonzero(totals > self.config.threshold * totals.max(initial=0.0))
        order = heavy[np.argsort(-totals[heavy], kind="stable")]
        groups = np.zeros((len(order), self.n_tasks), bool)
        groups[:, self.learned] = self.lattice.groups(nodes.keys[order])
        return groups, weights[order]

    def _best_weights(self, nodes: NodeSet, norms: np.ndarray, steps: int) -> np.ndarray:
        """Return the best weights for functions with given norms ``(W, k)``, after slight smoothing."""
        smooth = SMOOTHING * 0.5**steps * float(norms.max(initial=0.0))
        norms = np.hypot(norms, smooth)
        group_norms = kernel_norms(norms, self.config.p)
        return joint_weights(nodes.hull, group_norms, self.config.q)[:, None] * kernel_shares(norms, self.config.p)


def refuse_negative(grams: Grams, forms: np.ndarray, solution: DualSolution, codes: np.ndarray) -> None:
    """Raise DataError if ``forms`` ``(k, T, T)`` show that a kernel is not positive semi-definite. The message names the kernel if its
    quadratic form over the rows of a single task is negative.
    """
    sums = np.bincount(codes, np.abs(solution.beta), forms.shape[1])
    diagonal = np.diagonal(forms, axis1=1, axis2=2)
    negative = diagonal < -ROUND_OFF * np.abs(grams.diagonals()).max(axis=1)[:, None] * sums**2
    if negative.any():
        j, t = np.argwhere(negative)[0]
        form = diagonal[j, t]
        raise DataError(f"kernel {grams.specs[j]} is not positive semi-definite: beta'K beta = {form:.3g} over the rows of one task")
    if solution.indefinite:
        raise DataError("a kernel is not positive semi-definite: the weighted sum of all kernels has negative curvature")


def solve_machine(gram: Gram, problem: DualProblem, warm: np.ndarray, share: float) -> DualSolution:
    """Solve an SVM until its duality gap is at most ``share`` of its value."""
    if not np.isfinite(problem.hi).all():  # squared loss
        return solve_ridge(gram, problem, warm=warm, tol=RIDGE_TOL * max(float(np.abs(problem.c).max()), 1e-300))
    return solve_to_gap(gram, problem, warm=warm, tol=min(0.1, 10.0 * share), aim=lambda solution: share * abs(solution.upper))


def driver_items(settings: GramSettings, n: int, k: int, n_tasks: int, driver_memory: int) -> tuple[Item, ...]:
    """Return the memory of the driver: kernels, a pooled sum or the solver's part of it, the joint SVM, and forms of pairs of tasks."""
    return *machines_items(settings, n, k, 1, driver_memory), *task_forms_items(n, k, n_tasks, settings.policy)

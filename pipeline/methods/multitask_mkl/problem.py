"""Multiple kernel learning for many tasks (MK-MTFL): one search for kernel weights and the tasks' shares in them.

Problem, closed forms and certificate: :mod:`gramplane.kernels.tasks.multitask` and docs/theory/multitask_mkl.md.
One step solves the SVMs of all tasks at the current weights. Shares and weights then follow in closed form from the quadratic forms, and
the primal and dual values bound the optimum. For p > 2 the optimum is a saddle point, so that no value decreases monotonically. The best
primal and the best dual point are kept, and the gap between them ends the search.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.svm.dual import DualProblem
from ....kernels.target_unit import TargetUnit
from ....kernels.tasks import multitask
from ....kernels.weights.domains import Simplex
from ....storage.grams.layout import GramLayout
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...grams.grams import LazyGrams
from ...grams.settings import GramSettings, vectors_item
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...inputs.tasks import TaskInputs, TaskProblem
from ...loops.kernel_weights import best_multiple
from ...loops.protocol import Bounded, joint_stop
from ...loops.weight_steps import mirror_step
from ...models.kernel import is_selected
from .config import MultiTaskMKLConfig
from .grams import TaskGrams, TaskMachines
from .solve_pass import largest_step, split_batches
from .task_blocks_pass import BATCH_BYTES, entries_bytes, task_pairs

UNFINISHED = ("max_iter",)  # reasons of a stop before the tolerance was reached
FIRST_TOL = 1e-2  # tolerance at which a machine is first solved, in units of the slope of its dual
GAP_SHARE = 0.02  # a machine is solved on until its own gap is below its part of this share of the gap
SHARE_SLACK = 0.1  # least shares of tasks may cost this share of the tolerance
NESTED_TOL = 1e-6  # nested search: machines and shares alternate until their value changes by less than this share (the thesis')
FIRST_EXPONENT = 1.0  # exponent of the first closed-form step: twice the plain one, which is too careful in all we measured
RETURNING = 0.01  # share of equal weights in those that a fit takes over from another one
MAX_SLOW_STEPS = 20  # closed-form steps in a row without a better bound, after which mirror descent takes over from the best point


@dataclass(frozen=True)
class TaskSearch(Bounded):
    """State of the search of one fit."""

    record_name: ClassVar[str] = "TaskSearch"
    weights: np.ndarray  # (k,) gamma to be tried next
    shares: np.ndarray  # (k, T) lambda to be tried next
    beta: np.ndarray  # (n,) newest coefficients, rows sorted by task
    path: np.ndarray  # (t, k) weights tried
    upper: float  # bounds of the optimum
    lower: float
    best_weights: np.ndarray  # the point whose primal value is upper
    best_shares: np.ndarray
    best_beta: np.ndarray
    best_bias: np.ndarray
    best_decision: np.ndarray
    dual_beta: np.ndarray  # coefficients and forms of the point whose dual value is lower, up to a factor
    dual_forms: np.ndarray
    paces: np.ndarray  # exponents of closed-form steps by kernel, see multitask.damped_weights
    sides: np.ndarray
    slow: int = 0  # steps in a row that moved neither bound
    nested: bool = False  # whether mirror descent chooses the weights
    moves: int = 0  # its steps
    value: float = np.inf  # of the newest machines while shares and machines alternate; infinite after the weights moved
    stop: str | None = None  # why it ended

    def machine_aim(self, tol: float) -> float:
        """Return the total duality gap to which the SVMs of the next step are solved. It is infinite before the first step, unless an
        earlier result gives a bound.
        """
        if self.nested:
            return NESTED_TOL * self.upper
        if np.isfinite(self.upper):
            return GAP_SHARE * max(self.gap, tol * self.upper)
        return GAP_SHARE * tol * self.lower if self.lower > 0 else np.inf

    def continued(self, last: TaskSearch, problem: DualProblem, scale: float, bounds: bool) -> TaskSearch:
        """Return the initial search of a fit from the last search of a fit with another C. ``scale`` is the new C divided by the old C.

        Kernels with zero weight get a small weight again. If C grows, the best dual point remains feasible. ``bounds`` says whether its
        dual value remains a valid bound, which is the case if only C has changed.
        """
        weights = (1.0 - RETURNING) * last.best_weights + RETURNING * self.weights
        beta = best_multiple(problem, last.best_beta, last.best_decision, scale)
        first = replace(self, weights=weights, shares=last.best_shares, beta=beta)
        if scale < 1:
            return first
        return replace(first, dual_beta=last.dual_beta, dual_forms=last.dual_forms, lower=last.lower if bounds else 0.0)


@dataclass(frozen=True)
class MultiTaskState:
    """One search per fit."""

    record_name: ClassVar[str] = "MultiTaskState"
    iteration: int
    searches: tuple[TaskSearch, ...]

    @property
    def stop(self) -> str | None:
        """Reason for stopping if all searches have stopped, otherwise None."""
        return joint_stop([search.stop for search in self.searches], UNFINISHED)


@dataclass(eq=False)
class MultiTaskProblem:
    """The search for kernel weights of one or several fits on the same tasks. Each fit has its own parameters and losses."""

    config: MultiTaskMKLConfig  # what concerns the matrices is the same for all fits
    inputs: TaskInputs
    specs: tuple[Any, ...]
    losses: tuple[TaskProblem, ...]  # rows task by task
    settings: GramSettings
    layout: GramLayout
    planned: Resources  # where it was made: what decides the passes
    fits: tuple[AccuracyTracker | R2Tracker, ...]
    configs: tuple[MultiTaskMKLConfig, ...]

    def __post_init__(self) -> None:
        self.grams = LazyGrams(
            lambda resources: TaskGrams(self.inputs.data, self.specs, self.layout, self.inputs.order, self.settings, resources)
        )

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where the matrix entries are kept, number of tasks per pass, and memory of a step in bytes."""
        settings, layout, k, n_tasks = self.settings, self.layout, len(self.specs), self.inputs.n_tasks
        batches = split_batches(task_pairs(self.inputs.data, self.specs, layout, self.inputs.order, settings.dtype), layout)
        return {
            **driver_plan(driver_items(settings, layout, k, len(self.losses))),
            "grams": settings.policy,
            "gram_reason": settings.reason,
            "gram_block_rows": layout.block,
            "kernels": k,
            "gram_bytes": entries_bytes(layout, k, settings.dtype),
            "gram_store": settings.store,
            "learning_tasks": n_tasks,
            "machines": n_tasks * len(self.losses),
            "iterations_at_most": self.config.max_iter,
            "tasks_per_pass": 0 if settings.policy == "memory" else len(batches),
            "task_bytes": largest_step(batches, k, settings.policy),
        }

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return () if self.settings.policy == "memory" else ("Gram blocks of tasks", "solves of tasks")

    @property
    def unit(self) -> TargetUnit:
        """Unit of the target, used for coefficients and decision values of the model."""
        return self.losses[0].problem.unit

    def decision_values(self, state: MultiTaskState) -> np.ndarray:
        """Return the decision values of the best SVMs on all rows, ``(n_searches, n_samples)``, in the order and unit of the data."""
        values = np.empty((len(state.searches), self.layout.n))
        for row, losses, search in zip(values, self.losses, state.searches, strict=True):
            row[self.inputs.order] = losses.problem.unit.values(search.best_decision)
        return values

    def initial_search(self, config: MultiTaskMKLConfig) -> TaskSearch:
        """Return a search with equal weights and shares."""
        k, n_tasks, zeros = len(self.specs), self.inputs.n_tasks, np.zeros(self.layout.n)
        weights, shares = multitask.even_weights(k, config.q), multitask.even_shares(k, n_tasks, config.p)
        best, dual = (weights, shares, zeros, np.zeros(n_tasks), zeros), (zeros, np.zeros_like(shares))
        paces, nested = np.full(k, FIRST_EXPONENT), config.solver == "mirror"
        return TaskSearch(weights, shares, zeros, np.zeros((0, k)), np.inf, 0.0, *best, *dual, paces, np.zeros(k), nested=nested)

    def advance(self, m: int, search: TaskSearch, machines: TaskMachines, iteration: int) -> TaskSearch:
        """Return a search after its SVMs were solved, with bounds and either the next weights or a reason to stop."""
        config, losses = self.configs[m], self.losses[m]
        search = choose_next(self._with_bounds(search, config, losses, machines), config, losses, machines)
        if search.gap <= config.tol * search.upper:
            return replace(search, stop="tol")
        return replace(search, stop="max_iter") if iteration >= config.max_iter else search

    def _with_bounds(self, search: TaskSearch, config: MultiTaskMKLConfig, losses: TaskProblem, machines: TaskMachines) -> TaskSearch:
        """Return the search with updated bounds and best point."""
        weights, edges = multitask.task_kernel_weights(search.weights, search.shares), self.inputs.edges
        solution, p, q = (machines.beta, machines.decision, machines.forms), config.p, config.q
        bounds = multitask.certify_machine(losses.problem, edges, *solution, weights, p, q)
        forms = search.dual_forms, machines.forms, machines.joint
        mixed = multitask.mixed_dual(losses.problem, search.dual_beta, machines.beta, forms, p, q)
        better, raised = bounds.primal < search.upper, mixed.value > search.lower
        slow = 0 if better or raised else search.slow + 1
        search = replace(search, beta=machines.beta, path=np.vstack([search.path, search.weights]), slow=slow)
        if raised:
            search = replace(search, lower=mixed.value, dual_beta=mixed.beta, dual_forms=mixed.forms)
        if not better:
            return search
        bias = np.where(losses.constants != 0, losses.constants, bounds.biases)
        decision = machines.decision + np.repeat(bias, np.diff(edges))
        search = replace(search, upper=bounds.primal, best_weights=search.weights, best_shares=search.shares)
        return replace(search, best_beta=machines.beta, best_bias=bias, best_decision=decision)

    def selected(self, state: MultiTaskState) -> list[int]:
        """Return, for every fit, the number of kernels with non-zero weight; with several one-vs-rest models, the largest number."""
        pairs = zip(state.searches, self.configs, strict=True)
        counts = [int(np.sum(is_selected(one.best_weights, config.threshold))) for one, config in pairs]
        return [max(counts[m] for m in fit.machines) for fit in self.fits]

    def metrics(self, state: MultiTaskState, running: int) -> dict[str, Any]:
        """Return the quantities that a step records."""
        searches = state.searches
        units = [losses.problem.unit for losses in self.losses]
        upper = sum(unit.size**2 * search.upper for unit, search in zip(units, searches, strict=True))
        lower = sum(unit.size**2 * search.lower for unit, search in zip(units, searches, strict=True))
        figures = {"objective": upper, "gap": upper - lower, "lower_bound": lower, "upper_bound": upper}
        decisions = dict(enumerate(self.decision_values(state)))
        return {
            **figures,
            "relative_gap": max(search.relative_gap for search in searches),
            "n_selected": max(self.selected(state)),
            "machines": running * self.inputs.n_tasks,
            **accuracy_metrics(self.fits, decisions),
        }


def choose_next(search: TaskSearch, config: MultiTaskMKLConfig, losses: TaskProblem, machines: TaskMachines) -> TaskSearch:
    """Return the search after it has chosen its next kernel weights and task shares."""
    shares = multitask.task_shares(machines.forms, config.p, SHARE_SLACK * config.tol)
    strengths = multitask.kernel_strengths(machines.forms, config.p)
    if search.nested:
        return _nested_step(search, config, losses, machines, shares, strengths)
    if search.slow >= MAX_SLOW_STEPS:
        return replace(search, nested=True, weights=search.best_weights, shares=search.best_shares, moves=MAX_SLOW_STEPS)
    if config.q > 1:
        return replace(search, weights=multitask.next_weights(search.weights, strengths, config.q), shares=shares)
    weights, paces, sides = multitask.damped_weights(search.weights, strengths, search.paces, search.sides)
    return replace(search, weights=weights, shares=shares, paces=paces, sides=sides)


def _nested_step(
    search: TaskSearch, config: MultiTaskMKLConfig, losses: TaskProblem, machines: TaskMachines, shares: np.ndarray, strengths: np.ndarray
) -> TaskSearch:
    """Alternate SVM solves and share updates until the value converges, then update the weights (q = 1: a mirror step on the simplex).

    For 1 < q < 2 the thesis alternates in the other order: weights and SVMs converge for given shares, then the shares are updated.
    """
    problem, beta = losses.problem, machines.beta
    linear = problem.linear(beta) - float(0.5 * (problem.ridges() * beta) @ beta)
    inner = strengths if config.q == 1 else np.sum(machines.forms / search.shares, axis=1)
    value = linear - 0.5 * float(search.weights @ inner)
    settled = abs(value - search.value) <= NESTED_TOL * abs(value) or (config.q == 1 and config.p == 2)
    search = replace(search, value=np.inf if settled else value)
    if config.q > 1 and not settled:
        return replace(search, weights=multitask.next_weights(search.weights, inner, config.q))
    if config.q > 1 or not settled:
        return replace(search, shares=shares)
    weights = mirror_step(Simplex(), search.weights, -0.5 * strengths, search.moves + 1)
    return replace(search, weights=weights, shares=shares, moves=search.moves + 1)


def driver_items(settings: GramSettings, layout: GramLayout, k: int, fits: int) -> tuple[Item, ...]:
    """Return the memory of the driver for k kernels within tasks: the matrix entries (all, or those of one step), the weighted sum of the
    matrices of one task, and vectors.
    """
    b, whole, largest = np.dtype(settings.dtype).itemsize, entries_bytes(layout, k, settings.dtype), max(layout.groups)
    one_step = "kernels of the tasks of one step", min(whole, max(BATCH_BYTES, b * k * largest**2))
    return (
        ("kernels within the tasks", whole) if settings.policy == "memory" else one_step,
        ("weighted sum of the largest task, and the solver's copy of it", 2 * b * largest**2),
        ("weights of kernels in tasks, forms, and copies of them", 64 * k * len(layout.groups) * fits),
        vectors_item(sum(layout.groups), fits),
    )

"""Multiple kernel learning with a subspace that tasks share (MK-MTSFL): the search for couplings of tasks.

The problem, its closed forms and its certificate are described in :mod:`gramplane.kernels.tasks.shared_subspace` and
docs/theory/shared_subspace_mkl.md. One step solves the joint SVM of all tasks at the couplings ``D_j``. Primal and dual values bound the
optimum, and the next couplings follow from the quadratic forms of pairs of tasks. Long steps may increase the objective, so the best point
is kept. When neither bound has improved for some steps, the search returns to the best point and takes the steps of the alternation, which
always decrease the objective. After a number of steps, the search switches to an interior-point path
(:mod:`gramplane.kernels.tasks.subspace_interior`), unless there are too many rows for its linear systems. ``tol`` only decides when the
search ends, not which points it visits. A smaller ``tol`` therefore continues where a larger one would have ended, and is never worse. The
thesis' searches, in coordinates of the pooled feature space, are in :mod:`gramplane.pipeline.methods.shared_subspace_mkl.baselines`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ....kernels.svm.dual import DenseGram, DualSolution, Gram
from ....kernels.svm.ridge import RidgeSolver
from ....kernels.svm.smo import solve_to_gap
from ....kernels.tasks import shared_subspace as subspace
from ....kernels.tasks.multitask import power_norm
from ....kernels.tasks.subspace_interior import InteriorPath, InteriorPoint, PointView
from ...core.memory import Item, driver_plan
from ...core.one_vs_rest import JointState
from ...grams.grams import Grams
from ...grams.plans import GramPasses, sum_plan
from ...grams.settings import GramSettings, machines_items, task_forms_items
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.tasks import PooledTasks
from ...loops.protocol import Bounded
from .config import SharedSubspaceConfig

MAX_SYSTEM_ROWS = 4000  # rows beyond which a system of the interior path, cubic in them, takes longer than many machines


def interior_fits(n: int, k: int, n_tasks: int, driver_memory: int) -> bool:
    """Return whether there are few enough rows for the interior-point path, and its linear system fits in the driver's memory together with
    the matrices of the SVM.
    """
    return n <= MAX_SYSTEM_ROWS and interior_bytes(n, k, n_tasks) <= MATRIX_SHARE * driver_memory


def interior_bytes(n: int, k: int, n_tasks: int) -> int:
    """Return the memory in bytes of the linear system of an interior-point step."""
    return 8 * (6 * n**2 + 5 * k * n * n_tasks)


@dataclass(frozen=True)
class PathMatrices:
    """Passes over the Gram matrices for the interior-point path."""

    grams: Grams
    codes: np.ndarray  # (n,) tasks of the rows
    n_tasks: int
    task_forms: Callable[[np.ndarray], np.ndarray]

    def forms(self, beta: np.ndarray) -> np.ndarray:
        """Return the quadratic forms of pairs of tasks, ``(k, T, T)``."""
        return self.task_forms(beta)

    def products(self, beta: np.ndarray) -> np.ndarray:
        """Return the product of every kernel with the coefficients of every task, ``(k, n, T)``."""
        member = np.arange(self.n_tasks) == self.codes[:, None]
        columns = self.grams.products(member * beta[:, None], np.ones(member.shape, bool))
        return np.ascontiguousarray(columns.transpose(0, 2, 1))

    def matrix(self, coupling: np.ndarray) -> np.ndarray:
        """Return the kernel of the pooled SVM, in float64."""
        gram = self.grams.combine_tasks(coupling, self.codes)
        assert isinstance(gram, DenseGram), "the path begins where its system fits the driver"
        return gram.array.astype(np.float64)


UNFINISHED = ("max_iter",)  # reasons of a stop before the tolerance was reached
FIRST_TOL = 1e-2  # tolerance at which a machine is first solved, in units of the slope of its dual
GAP_SHARE = 0.1  # a machine is solved on until its own gap is below this share of the gap
RIDGE_TOL = 1e-8  # tolerance of the linear system of the squared loss, in units of the greatest target
MAX_REFINEMENTS = 50  # steps that refine a linear system at most; a few suffice, and none helps where round-off is reached
FIRST_SMOOTHING, SMOOTHING_DECAY = 1e-2, 0.6  # smoothing of the first step, and its decay
SMOOTHING_GAP_SHARE = 0.1  # and its end in units of gap / T: what it adds to all traces stays below the gap
MEAN_SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85, 1.0)  # of the newest machine in means tried for losses without curvature
PACE_CUT = 0.25  # factor of the lengths of long steps after one that led uphill
MAX_SEARCH_STEPS = 24  # steps of the search, after which the interior path takes over, which begins anew
MAX_DEAR_SEARCH_STEPS = 60  # and where a step of the path takes as long as many of the search
MANY_TASKS = 32  # tasks from which on it does: of 139 tasks of 15 rows 2.5 s and 0.2 s
NEVER = 2**31  # no step
MAX_SLOW_STEPS = 6  # steps in a row that moved neither bound, after which the search goes back to its best point and takes short steps

no_entries = partial(np.zeros, 0)


@dataclass(frozen=True)
class SubspaceState(Bounded):
    """State of the search over m kernels; m is 1 for the average kernel."""

    record_name: ClassVar[str] = "SubspaceState"
    record_version: ClassVar[int] = 2

    iteration: int
    coupling: np.ndarray  # (m, T, T) D to be tried next
    beta: np.ndarray  # (n,) newest coefficients
    upper: float  # bounds of the optimum
    lower: float
    best_coupling: np.ndarray  # the point whose primal value is upper
    best_beta: np.ndarray
    best_bias: np.ndarray
    best_decision: np.ndarray
    pace: np.ndarray  # (m,) lengths of long steps
    slack: np.ndarray  # (m,) how far D is from the best one of its forms
    slow: int = 0  # steps in a row that moved neither bound
    value: float = np.inf  # primal value of the newest machine
    short: bool = False  # whether steps are those of the alternation
    since: int = 0  # step at which the smoothing began anew
    # Mirror descent: what its steps have added up, and the constants of the logarithms.
    sums: np.ndarray = field(default_factory=no_entries)
    constants: np.ndarray = field(default_factory=no_entries)
    # Mean of machines with the best dual value, for losses without curvature, and its forms; mirror descent: weighted by its steps.
    average: np.ndarray = field(default_factory=no_entries)
    average_forms: np.ndarray = field(default_factory=no_entries)
    length: float = 0.0  # mirror descent: sum of the lengths of the steps
    part: np.ndarray = field(default_factory=no_entries)  # (r, T) alternation in the pooled space: W
    takeover: int = NEVER  # step after which the interior path takes over
    interior: InteriorPoint | None = None  # its next point
    stop: str | None = None  # why it ended


@dataclass(frozen=True)
class SubspaceClassesState(JointState[SubspaceState]):
    """States of the one-vs-rest models of several classes."""

    record_name: ClassVar[str] = "SubspaceClassesState"
    parts: tuple[SubspaceState, ...]


class SubspaceProblem(PooledTasks):
    """The search for couplings of T tasks."""

    config: SharedSubspaceConfig

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Where the entries are kept, and the memory of the driver in bytes."""
        n, k, n_tasks, memory = self.inputs.data.n_rows, len(self.specs), self.n_tasks, self.planned.driver_memory
        passes = GramPasses(self.inputs.data, self.specs, self.settings, self.planned)
        # Losses without curvature ask for the forms of two machines; the interior path for products of every task.
        forms = passes.task_forms(1 if self.dual.ridge is not None else 2, n_tasks)
        has_path = self.config.solver == "auto" and interior_fits(n, k, n_tasks, memory)
        return {
            **self.settings.describe(n, k),
            **driver_plan(driver_items(self.config, self.settings, n, k, n_tasks, memory)),
            **sum_plan(passes, forms, passes.products(n_tasks) if has_path else 0),
            "learning_tasks": n_tasks,
            "pooled_matrix_bytes": 4 * n**2,
            "iterations_at_most": self.config.max_iter,
        }

    @property
    def mix(self) -> np.ndarray:
        """Coefficients ``(m, k)`` that express the m kernels of the search as weighted sums of the k kernels of the fit."""
        return np.eye(len(self.specs))

    def first_state(self, grams: Grams) -> SubspaceState:
        """Return the initial state: uncoupled tasks, and kernels with equal traces."""
        m, n = len(self.mix), self.dual.n
        start, zeros = subspace.even_coupling(m, self.n_tasks, self.config.q), np.zeros(n)
        steps = MAX_SEARCH_STEPS if self.n_tasks < MANY_TASKS else MAX_DEAR_SEARCH_STEPS
        bias, takeover = np.zeros(self.n_tasks), steps if interior_fits(n, m, self.n_tasks, self.planned.driver_memory) else NEVER
        best = (start, zeros, bias, zeros)
        return SubspaceState(0, start, zeros, np.inf, 0.0, *best, pace=np.ones(m), slack=np.full(m, np.inf), takeover=takeover)

    def advance(self, state: SubspaceState, grams: Grams) -> tuple[SubspaceState, float]:
        """Return the state after the next solve of the joint SVM, with bounds and couplings, and the time of the solve in seconds."""
        if state.iteration >= state.takeover:
            return self._interior_step(state, grams)
        solution, seconds = self.solve_coupled(state, state.coupling, grams)
        is_mixed = self.dual.ridge is None
        vectors = [solution.beta, state.average + solution.beta] if is_mixed and state.average.size else [solution.beta]
        forms, *joint = self.several_forms(vectors, grams)
        state = self.with_solution(state, state.coupling, solution, forms)
        if is_mixed:
            state = self._mix_machines(state, forms, *joint)
        return self._choose_next(state, forms), seconds

    def _interior_step(self, state: SubspaceState, grams: Grams) -> tuple[SubspaceState, float]:
        """Return the state after a step of the interior-point path, and the time of its linear system in seconds. If the path cannot take a
        step, the search continues without it from the best couplings.
        """
        matrices = PathMatrices(grams, self.codes, self.n_tasks, partial(self.forms, grams=grams))
        path = InteriorPath(self.dual, self.n_tasks, self.config.q, matrices)
        began = time.perf_counter()
        point = path.start(state.beta) if state.interior is None else state.interior
        view = path.view(point)
        following = path.advance(point, view)
        seconds = time.perf_counter() - began
        state = self._with_view(state, view, grams)
        if following is None:
            return replace(state, interior=None, takeover=NEVER, coupling=state.best_coupling, short=True), seconds
        return replace(state, interior=following), seconds

    def _with_view(self, state: SubspaceState, view: PointView, grams: Grams) -> SubspaceState:
        """Return the state with the bounds of a point of the path, after scaling its couplings to norm one and making its coefficients sum
        to zero.
        """
        size, q = subspace.coupling_size(view.coupling, self.config.q), self.config.q
        beta = self.dual.feasible(view.beta)
        forms = view.forms if np.array_equal(beta, view.beta) else self.forms(beta, grams)
        coupling, decision = view.coupling / size, view.decision / size
        primal, biases = subspace.machine_value(self.dual, decision, float(power_norm(subspace.nuclear_norms(coupling, view.forms), q)))
        limits = subspace.SubspaceBounds(primal, subspace.dual_value(self.dual, beta, forms, q), biases)
        return self.with_bounds(replace(state, beta=beta), coupling, view.beta, decision, limits)

    def _mix_machines(self, state: SubspaceState, forms: np.ndarray, joint: np.ndarray | None = None) -> SubspaceState:
        """Return the state with the best dual value on the line between the latest SVM and the best mean of earlier SVMs, if there are any.
        ``joint`` holds the quadratic forms of the sum of the latest SVM and this mean.

        If the loss has no curvature, successive SVMs jump between corners of the box. A mean helps because the dual value is concave.
        """
        if joint is None:
            return replace(state, average=state.beta, average_forms=forms)
        before, before_forms = state.average, state.average_forms
        cross = joint - before_forms - forms
        tried = []
        for new in MEAN_SHARES:
            old = 1.0 - new
            mean = old * before + new * state.beta, old**2 * before_forms + old * new * cross + new**2 * forms
            tried.append((subspace.dual_value(self.dual, *mean, self.config.q), *mean))
        lower, average, average_forms = max(tried, key=lambda one: one[0])
        slow = 0 if lower > state.lower else state.slow
        return replace(state, average=average, average_forms=average_forms, slow=slow, lower=max(lower, state.lower))

    def solve_coupled(self, state: SubspaceState, coupling: np.ndarray, grams: Grams) -> tuple[DualSolution, float]:
        """Return the joint SVM at a coupling, and the time of its solve in seconds."""
        gram = grams.combine_tasks(np.einsum("mk,mst->kst", self.mix, coupling), self.codes)
        began = time.perf_counter()
        solution = self.solve(gram, state)
        return solution, time.perf_counter() - began

    def forms(self, beta: np.ndarray, grams: Grams) -> np.ndarray:
        """Return the quadratic forms A of coefficients, ``(m, T, T)``."""
        return self.several_forms([beta], grams)[0]

    def several_forms(self, vectors: Sequence[np.ndarray], grams: Grams) -> list[np.ndarray]:
        """Return the quadratic forms of several vectors of coefficients from one pass."""
        return [np.einsum("mk,kst->mst", self.mix, forms) for forms in grams.task_forms(np.stack(vectors), self.codes, self.n_tasks)]

    def solve(self, gram: Gram, state: SubspaceState) -> DualSolution:
        """Return the SVM on a matrix, solved as accurately as the gap of the search requires."""
        if self.dual.ridge is not None:
            scale = float(np.abs(self.dual.c).max()) or 1.0
            limit = MAX_REFINEMENTS if isinstance(gram, DenseGram) else None
            return RidgeSolver().solve(gram, self.dual, warm=state.beta, tol=RIDGE_TOL * scale, max_iter=limit)

        def aim(solution: DualSolution) -> float:
            return GAP_SHARE * (state.gap if np.isfinite(state.gap) else solution.upper)

        return solve_to_gap(gram, self.dual, warm=state.beta, tol=FIRST_TOL, aim=aim)

    def with_solution(self, state: SubspaceState, coupling: np.ndarray, solution: DualSolution, forms: np.ndarray) -> SubspaceState:
        """Return the state with the SVM at a coupling, and with updated bounds and best point."""
        limits = subspace.subspace_bounds(self.dual, solution.beta, solution.decision, forms, coupling, self.config.q)
        return self.with_bounds(replace(state, beta=solution.beta), coupling, solution.beta, solution.decision, limits)

    def with_bounds(
        self, state: SubspaceState, coupling: np.ndarray, beta: np.ndarray, decision: np.ndarray, limits: subspace.SubspaceBounds
    ) -> SubspaceState:
        """Return the state with the bounds of a point, and with the point itself if it is the best so far."""
        better = limits.primal < state.upper
        slow = 0 if better or limits.dual > state.lower else state.slow + 1
        state = replace(state, slow=slow, lower=max(state.lower, limits.dual), value=limits.primal)
        if not better:
            return state
        bias = np.where(self.constants != 0, self.constants, limits.biases)
        point = {"best_coupling": coupling, "best_beta": beta, "best_bias": bias, "best_decision": decision + bias[self.codes]}
        return replace(state, upper=limits.primal, **point)

    def _choose_next(self, state: SubspaceState, forms: np.ndarray) -> SubspaceState:
        smoothing, q = self.smoothing(state), self.config.q
        if state.slow >= MAX_SLOW_STEPS:
            # Directions that long steps gave up get another chance.
            state = replace(state, slow=0, since=state.iteration)
            return state if state.short else replace(state, coupling=state.best_coupling, short=True)
        if state.short:
            return replace(state, coupling=subspace.best_coupling(subspace.coupling_roots(state.coupling, forms, smoothing), q))
        slack = subspace.coupling_slack(state.coupling, forms)
        pace = np.maximum(PACE_CUT * state.pace, 1.0)
        if state.value <= state.upper:
            pace = subspace.next_lengths(state.pace, slack, state.slack)
        return replace(state, coupling=subspace.long_step(state.coupling, forms, pace, q, smoothing), pace=pace, slack=slack)

    def smoothing(self, state: SubspaceState) -> float:
        """Return the smoothing parameter of a step, relative to the largest singular value."""
        last = SMOOTHING_GAP_SHARE * min(state.relative_gap, 1.0) / self.n_tasks
        return max(FIRST_SMOOTHING * SMOOTHING_DECAY ** (state.iteration - state.since), last)

    def finish(self, state: SubspaceState, grams: Grams) -> SubspaceState:
        """Return the state with its reason to stop, if there is one."""
        if state.gap <= self.config.tol * state.upper:
            return replace(state, stop="tol")
        return replace(state, stop="max_iter") if state.iteration >= self.config.max_iter else state


def driver_items(
    config: SharedSubspaceConfig, settings: GramSettings, n: int, k: int, n_tasks: int, driver_memory: int
) -> tuple[Item, ...]:
    """Return the memory of the driver: kernels, the pooled sum and its SVM, couplings, and the memory that the chosen solver adds."""
    forms = task_forms_items(n, k, n_tasks, settings.policy)
    couplings = "couplings of tasks, and copies of them", 96 * k * n_tasks**2
    common = (*machines_items(settings, n, k, 1, driver_memory), *forms, couplings)
    if config.solver != "auto":
        kernels = k if config.solver == "mirror" else 1
        return (*common, ("factors of the pooled kernels", 8 * n * n * (2 * kernels + 3)))
    if not interior_fits(n, k, n_tasks, driver_memory):
        return common
    return (*common, ("system of the interior path", interior_bytes(n, k, n_tasks)))

"""The problem of generalized multiple kernel learning: SVMs on a weighted sum of kernels with learnt weights.

Problem (docs/theory/mkl.md): ``min over theta in Theta of J(theta)``, where J is the value of a support vector machine with the kernel
``sum_q theta_q K_q``. The set Theta of weights is an elastic net, a simplex, or an lp ball (Yang, Xu, Ye, King, Lyu, 2011). One-vs-rest
SVMs have their own weights and share the passes over the Gram matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.dual import squared_hinge_problem, target_problem
from ....kernels.svm.logistic import LogisticProblem, logistic_problem
from ....kernels.svm.weight_model import is_model_cheaper
from ....kernels.weights.domains import BoxSet, ElasticNetSet, L1LpSet, LpBall, NormDomain
from ....storage import DataError
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...grams.grams import Grams, lazy_grams
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...grams.settings import GramSettings, machines_items
from ...grams.weighted_sum import fits_driver
from ...inputs.labels import Inputs, checked_costs, dual_problems, labels_of, resolve_loss, row_costs
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.kernel_weights import (
    GAP_SHARE,
    MIN_KERNELS_TO_SHRINK,
    STEPS_BEFORE_LEVEL,
    ModelProblem,
    Trial,
    WeightState,
    add_cut,
    make_trial,
    shrink_working_set,
    solve_fixed,
    solve_machine,
    with_best,
)
from ...loops.protocol import joint_stop
from ...loops.weight_steps import STEPPERS, TRIES_LAST_WEIGHTS, WeightSearch, uses_model
from ...models.kernel import is_selected
from ...records.data_set import DataSet
from .config import MKLConfig
from .forms import Solved, certify_with_all_kernels, cuts_at_once, quadratic_forms, with_second_order_model

UNFINISHED = ("max_iter", "flat")  # reasons of a stop before the tolerance was reached
SLOW_STEP_SHARE = 0.7  # a step that leaves more of the gap than this is slow: after some of them in a row the level method takes a step
MODEL_RISE_SHARE = 0.5  # a second-order model is made where J is above its smallest value so far by at most this share of the gap
# Own gap of a machine, as a share of the gap, for methods that compare values of machines or trust their slopes.
GAP_SHARES = {"auto": 0.05, "fgm": 0.05, "simplemkl": 0.02}
N_CHECKED_ROWS = 512  # rows of the matrices whose eigenvalues tell which kernel is not positive semi-definite


@dataclass(frozen=True)
class MKLState:
    """One search for weights per SVM; with ``solver="single"``, the scores of the kernels so far."""

    record_name: ClassVar[str] = "MKLState"
    iteration: int
    machines: tuple[WeightState, ...]
    scores: np.ndarray = field(default_factory=lambda: np.zeros(0))  # (iteration,) validation scores: accuracy, or R^2 for regression

    @property
    def stop(self) -> str | None:
        """Reason for stopping if all one-vs-rest models have stopped, otherwise None."""
        return joint_stop([machine.stop for machine in self.machines], UNFINISHED)


def weight_set(config: MKLConfig) -> NormDomain:
    """Return the constraint set of the weights."""
    if config.constraint == "lp" or (config.constraint == "l1_lp" and config.v == 0):
        return LpBall(config.p)
    if config.constraint == "box" and config.B > 1:
        return BoxSet(config.B)
    if config.constraint in ("l1_lp", "box"):
        # An elastic net where it is one: its maximisers are closed forms, and second-order steps know it.
        is_elastic = config.on_simplex or config.p == 2
        return ElasticNetSet(1.0 if config.on_simplex else config.v) if is_elastic else L1LpSet(config.v, config.p)
    return ElasticNetSet({"elastic_net": config.v, "simplex": 1.0, "l2": 0.0}[config.constraint])


def model_problems(config: MKLConfig, inputs: Inputs) -> list[ModelProblem]:
    """Return one dual problem per binary model, of the parameter ``loss``.

    Raises ValueError for a loss that does not suit the target, DataError if a class has no row of positive weight.
    """
    loss = resolve_loss(config.loss, inputs.classes, ("epsilon_insensitive", "squared"), ("hinge", "squared_hinge", "logistic"))
    if loss in ("hinge", "epsilon_insensitive"):
        return list(dual_problems(config, inputs, config.epsilon))
    cost = checked_costs(row_costs(config, inputs), inputs)
    if loss == "squared":
        return [target_problem(loss, inputs.target, config.epsilon, cost)]
    labels = [labels_of(inputs, machine) for machine in range(inputs.n_machines)]
    if loss == "logistic":
        return [logistic_problem(one, cost) for one in labels]
    # The parameter C multiplies half the squares, the cost of the dual problem whole squares.
    return [squared_hinge_problem(one, 0.5 * cost) for one in labels]


@dataclass(eq=False)
class MKLProblem:
    """SVMs that share the passes over Gram matrices. There is one SVM per class, fold and grid point, each with its own weights."""

    config: MKLConfig  # what concerns the matrices is the same for all machines
    inputs: Inputs
    specs: tuple[KernelSpec, ...]
    problems: tuple[ModelProblem, ...]
    settings: GramSettings
    planned: Resources  # where it was made: what decides the passes
    fits: tuple[AccuracyTracker | R2Tracker, ...] = ()  # classifiers and regressions whose accuracy, or R2, is followed
    configs: tuple[MKLConfig, ...] = ()  # of each machine, where they differ

    def __post_init__(self) -> None:
        self.configs = self.configs or (self.config,) * len(self.problems)
        self.domains = tuple(weight_set(one) for one in self.configs)
        self.grams = lazy_grams(self.data, self.specs, self.settings)

    @property
    def data(self) -> DataSet:
        """Data of the kernels: rows, or precomputed matrices."""
        return self.inputs.data

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, number of tasks per pass, and memory of a task in bytes."""
        n, k = self.data.n_rows, len(self.specs)
        passes = GramPasses(self.data, self.specs, self.settings, self.planned)
        return {
            **self.settings.describe(n, k),
            **driver_plan(self.memory_items),
            "machines": len(self.problems),
            "iterations_at_most": self.config.max_iter,
            **sum_plan(passes, *self._form_bytes(passes)),
        }

    @cached_property
    def memory_items(self) -> tuple[Item, ...]:
        """The driver's memory items: those of the hinge, and the float64 matrices over all rows that other losses need."""
        n, k, memory, first = self.data.n_rows, len(self.specs), self.planned.driver_memory, self.problems[0]
        items, is_logistic = machines_items(self.settings, n, k, len(self.problems), memory), isinstance(first, LogisticProblem)
        if not fits_driver(n, memory) or not (isinstance(first, LogisticProblem) or first.ridge is not None):
            return items
        models = self._n_models if is_model_cheaper(n, n, k) else 0
        return *items, ("a Newton step, and second-order models of all rows", 8 * n * n * (is_logistic + models))

    @property
    def _n_models(self) -> int:
        """Number of SVMs whose solver makes second-order models."""
        return sum(uses_model(config.solver, domain) for config, domain in zip(self.configs, self.domains, strict=True))

    def _form_bytes(self, passes: GramPasses) -> list[int]:
        """Return the sizes in bytes of the results of the passes:

        * forms of all SVMs;
        * forms of cuts, if kernels may be outside the working set;
        * products for second-order models.
        """
        vectors = [len(self.problems)]
        if len(self.specs) >= MIN_KERNELS_TO_SHRINK:
            vectors.append(min(cuts_at_once(passes.k, passes.n), max(config.max_iter for config in self.configs)))
        models = self._n_models if passes.holds_sum else 0
        return [*map(passes.forms, vectors), *([passes.products(models)] if models else [])]

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return sum_work(self.settings, self.data.n_rows, self.planned.driver_memory)

    def decision_values(self, state: MKLState) -> np.ndarray:
        """Return the decision values of the best SVMs on all rows, ``(n_machines, n_samples)``, in the unit of the target."""
        return np.stack([problem.unit.values(one.best_decision) for problem, one in zip(self.problems, state.machines, strict=True)])

    def advance(self, grams: Grams, m: int, before: WeightState, trial: Trial, iteration: int) -> WeightState:
        """Return the state of an SVM after a trial: one more cut, and the next weights or a reason to stop."""
        problem, config, domain = self.problems[m], self.configs[m], self.domains[m]
        state = self._choose_weights(grams, m, before, trial)
        if state.stop is None and iteration >= config.max_iter:
            state = replace(state, stop="max_iter")
        if state.stop == "tol" and config.solver in TRIES_LAST_WEIGHTS:
            # For its upper bound alone.
            last = self.solve(grams, m, state, state.theta).solution
            state = with_best(state, make_trial(problem, state.theta, last, np.zeros(len(state.theta))))
        elif state.stop is not None and not state.whole:
            # The bound over all kernels is reported, and the search stops all the same.
            state = replace(certify_with_all_kernels(grams, state, problem, domain), stop=state.stop)
        if state.widened and not before.widened:
            return replace(state, slow=0)
        slow = before.slow + 1 if state.gap > SLOW_STEP_SHARE * before.gap else 0
        return shrink_working_set(replace(state, slow=slow), trial.s, domain)

    def _choose_weights(self, grams: Grams, m: int, before: WeightState, trial: Trial) -> WeightState:
        """Return the state with one more cut and its next weights. The search stops with reason ``tol`` only if the tolerance is certified
        over all kernels.
        """
        config, domain = self.configs[m], self.domains[m]
        state = self._step(grams, m, before, add_cut(before, trial, domain), trial)
        while state.stop == "tol" and not state.whole:
            state = certify_with_all_kernels(grams, state, self.problems[m], domain)
            if state.stop == "tol":
                break
            if uses_model(config.solver, domain):
                return replace(state, theta=state.best_theta, beta=state.best_beta)
            state = self._step(grams, m, before, state, replace(trial, s=np.nan_to_num(state.cut_forms[-1]), root=None))
        return state

    def _step(self, grams: Grams, m: int, before: WeightState, state: WeightState, trial: Trial) -> WeightState:
        config, problem = self.configs[m], self.problems[m]

        def evaluate(theta: np.ndarray, warm: np.ndarray) -> Trial:
            start = replace(before, active=state.active, theta=theta, beta=warm)
            return quadratic_forms(grams, [start], [problem], [replace(self.solve(grams, m, start, theta), matrix=None)])[0]

        return STEPPERS[config.solver](state, trial, WeightSearch(self.domains[m], config.tau, config.tol, evaluate))

    def solve(self, grams: Grams, m: int, state: WeightState, theta: np.ndarray) -> Solved:
        """Return the solution of an SVM at the given weights."""
        config, problem, gram = self.configs[m], self.problems[m], grams.combine(theta)
        if config.solver == "uniform":
            solution = solve_fixed(gram, problem, config.tol)
        else:
            solution = solve_machine(gram, problem, state, config.tol, GAP_SHARES.get(config.solver, GAP_SHARE))
        if solution.indefinite:
            _refuse_indefinite(grams)
        is_low = not np.isfinite(state.gap) or solution.upper < state.upper + MODEL_RISE_SHARE * state.gap
        if not (is_low and state.slow % (STEPS_BEFORE_LEVEL + 1) < STEPS_BEFORE_LEVEL and uses_model(config.solver, self.domains[m])):
            return Solved(solution)
        return with_second_order_model(gram, problem, solution, int(state.active.sum()))

    def selected(self, state: MKLState) -> list[int]:
        """Return, for every fit, the number of kernels with non-zero weight; with several one-vs-rest models, the largest number."""
        pairs = zip(state.machines, self.configs, strict=True)
        counts = [int(np.sum(is_selected(one.best_theta, config.threshold))) for one, config in pairs]
        return [max(counts[m] for m in fit.machines) for fit in self.fits]

    def metrics(self, state: MKLState, running: Sequence[int]) -> dict[str, Any]:
        """Return the quantities that a step records."""
        machines = state.machines
        units = [problem.unit for problem in self.problems]
        areas = [unit.size**2 for unit in units]
        upper = sum(area * machine.upper for area, machine in zip(areas, machines, strict=True))
        lower = sum(area * machine.lower for area, machine in zip(areas, machines, strict=True))
        decisions = {m: unit.values(machine.best_decision) for m, (unit, machine) in enumerate(zip(units, machines, strict=True))}
        return {
            "objective": upper,
            "gap": upper - lower,
            "lower_bound": lower,
            "upper_bound": upper,
            "relative_gap": max((machine.upper - machine.lower) / max(abs(machine.upper), 1.0) for machine in machines),
            "working_gap": max(machine.relative_gap for machine in machines),
            "working_kernels": max(int(machines[m].active.sum()) for m in running),
            "n_selected": max(self.selected(state)),
            "machines": len(running),
            **accuracy_metrics(self.fits, decisions),
        }


def _refuse_indefinite(grams: Grams) -> None:
    """Raise a DataError that names the kernel that is not positive semi-definite."""
    block = grams.corner(N_CHECKED_ROWS)
    lowest = [float(np.linalg.eigvalsh(gram.astype(np.float64))[0]) for gram in block]
    q = int(np.argmin(lowest))
    name = f"kernel {grams.specs[q]}" if lowest[q] < 0 else "a kernel"
    raise DataError(f"{name} is not positive semi-definite: least eigenvalue {lowest[q]:.3g} on the first {block.shape[1]} rows")

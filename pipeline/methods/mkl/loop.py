"""Generalized multiple kernel learning: one machine on a weighted sum of kernels whose weights are learnt with it.

Problem (docs/theory/mkl.md): ``min over theta in Theta of J(theta)``, J the value of a support vector machine with the kernel
``sum_q theta_q K_q``, over an elastic net, a simplex, or an lp ball of weights (Yang, Xu, Ye, King, Lyu, 2011). Machines one-vs-rest have
their own weights and share the passes over the Gram matrices.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.dual import DualProblem
from ....kernels.weights.domains import ElasticNetSet, LpBall, NormDomain
from ....storage import DataError
from ...grams.given import GivenGrams
from ...grams.grams import Grams
from ...grams.lazy import lazy_grams
from ...grams.settings import GramSettings
from ...inputs.kernel_checks import emit_warnings
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics
from ...loops.kernel_weights import (
    GAP_SHARE,
    STEPS_BEFORE_LEVEL,
    Trial,
    WeightState,
    add_cut,
    initial_state,
    make_trial,
    shrink_working_set,
    solve_fixed,
    solve_machine,
    with_best,
)
from ...loops.protocol import Step, joint_stop
from ...loops.weight_steps import STEPPERS, TRIES_LAST_WEIGHTS, WeightSearch, uses_model
from ...models.kernel import is_selected
from ...records.context import RunContext
from .config import MKLConfig
from .forms import Solved, certify_with_all_kernels, quadratic_forms, with_second_order_model

UNFINISHED = ("max_iter", "flat")  # reasons of a stop before the tolerance was reached
SLOW_STEP_SHARE = 0.7  # a step that leaves more of the gap than this is slow: after some of them in a row the level method takes a step
MODEL_RISE_SHARE = 0.5  # a second-order model is made where J is above its smallest value so far by at most this share of the gap
# Own gap of a machine, as a share of the gap, for methods that compare values of machines or trust their slopes.
GAP_SHARES = {"auto": 0.05, "simplemkl": 0.02}
N_CHECKED_ROWS = 512  # rows of the matrices whose eigenvalues tell which kernel is not positive semi-definite


@dataclass(frozen=True)
class MKLState:
    """State of the loop: one search for weights per machine."""

    record_name: ClassVar[str] = "MKLState"
    iteration: int
    machines: tuple[WeightState, ...]

    @property
    def stop(self) -> str | None:
        """Reason why every machine has stopped, or ``None``."""
        return joint_stop([machine.stop for machine in self.machines], UNFINISHED)


def weight_set(config: MKLConfig) -> NormDomain:
    """Return the set of weights."""
    if config.constraint == "lp":
        return LpBall(config.p)
    return ElasticNetSet({"elastic_net": config.v, "simplex": 1.0, "l2": 0.0}[config.constraint])


class MKLLoop:
    """The search for kernel weights of one or several machines.

    The policy of the Gram matrices is decided from sizes where no ``settings`` are given. ``fits`` are classifiers and regressions whose
    accuracy, or R2, is followed; ``data`` precomputed matrices, which the kernels are over in place of the run's data set; ``configs`` the
    parameters of each machine, where they differ: what concerns the matrices is ``config``'s.
    """

    state_type = MKLState

    def __init__(
        self,
        config: MKLConfig,
        specs: Sequence[KernelSpec],
        problems: Sequence[DualProblem],
        settings: GramSettings | None = None,
        fits: Sequence[AccuracyTracker | R2Tracker] = (),
        data: GivenGrams | None = None,
        configs: Sequence[MKLConfig] | None = None,
    ) -> None:
        self.config, self.specs, self.problems = config, tuple(specs), tuple(problems)
        self.settings, self.fits, self.data = settings, tuple(fits), data
        self.configs = tuple([config] * len(self.problems) if configs is None else configs)
        self.domains = tuple(weight_set(one) for one in self.configs)
        self.grams = lazy_grams(self.specs, settings, data)

    def init(self, ctx: RunContext) -> MKLState:
        """Return equal weights for every machine."""
        grams = self.grams(ctx)
        emit_warnings(grams, ctx)
        return MKLState(0, tuple(initial_state(domain, grams.k, grams.n) for domain in self.domains))

    def step(self, state: MKLState, ctx: RunContext) -> Step[MKLState]:
        """Solve every running machine at its weights, add the cuts, and choose the next weights."""
        began = time.perf_counter()
        grams, machines = self.grams(ctx), list(state.machines)
        running = [m for m, machine in enumerate(machines) if machine.stop is None]
        solved = [self._solve(grams, m, machines[m], machines[m].theta) for m in running]
        after_machines = time.perf_counter()
        trials = quadratic_forms(grams, [machines[m] for m in running], [self.problems[m] for m in running], solved)
        after_forms = time.perf_counter()
        for m, trial in zip(running, trials, strict=True):
            machines[m] = self._advance(grams, m, machines[m], trial, state.iteration + 1)
        new = MKLState(state.iteration + 1, tuple(machines))
        seconds = {
            "seconds_machine": after_machines - began,
            "seconds_forms": after_forms - after_machines,
            "seconds_weights": time.perf_counter() - after_forms,
        }
        return Step(new, {**self._metrics(new, running), **seconds})

    def decision_values(self, state: MKLState) -> np.ndarray:
        """Return what the best machines decide on all rows, ``(n_machines, n_samples)``, in the unit of the target."""
        return np.stack([problem.unit.values(one.best_decision) for problem, one in zip(self.problems, state.machines, strict=True)])

    def _advance(self, grams: Grams, m: int, before: WeightState, trial: Trial, iteration: int) -> WeightState:
        """Return a machine's state after a trial: one more cut, and the next weights or a reason to stop."""
        problem, config, domain = self.problems[m], self.configs[m], self.domains[m]
        state = self._choose_weights(grams, m, before, trial)
        if state.stop is None and iteration >= config.max_iter:
            state = replace(state, stop="max_iter")
        if state.stop == "tol" and config.solver in TRIES_LAST_WEIGHTS:
            # For its upper bound alone.
            last = self._solve(grams, m, state, state.theta).solution
            state = with_best(state, make_trial(problem, state.theta, last, np.zeros(len(state.theta))))
        elif state.stop is not None and not state.whole:
            # The bound over all kernels is reported, and the search stops all the same.
            state = replace(certify_with_all_kernels(grams, state, problem, domain), stop=state.stop)
        if state.widened and not before.widened:
            return replace(state, slow=0)
        slow = before.slow + 1 if state.gap > SLOW_STEP_SHARE * before.gap else 0
        return shrink_working_set(replace(state, slow=slow), trial.s, domain)

    def _choose_weights(self, grams: Grams, m: int, before: WeightState, trial: Trial) -> WeightState:
        """Return the state with one more cut and its next weights; it stops with ``tol`` only if that is certified over all kernels."""
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
            return quadratic_forms(grams, [start], [problem], [replace(self._solve(grams, m, start, theta), matrix=None)])[0]

        return STEPPERS[config.solver](state, trial, WeightSearch(self.domains[m], config.tau, config.tol, evaluate))

    def _solve(self, grams: Grams, m: int, state: WeightState, theta: np.ndarray) -> Solved:
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

    def _metrics(self, state: MKLState, running: Sequence[int]) -> dict[str, Any]:
        machines = state.machines
        units = [problem.unit for problem in self.problems]
        areas = [unit.size**2 for unit in units]
        upper = sum(area * machine.upper for area, machine in zip(areas, machines, strict=True))
        lower = sum(area * machine.lower for area, machine in zip(areas, machines, strict=True))
        decisions = {m: unit.values(machine.best_decision) for m, (unit, machine) in enumerate(zip(units, machines, strict=True))}
        counts = [int(np.sum(is_selected(one.best_theta, config.threshold))) for one, config in zip(machines, self.configs, strict=True)]
        return {
            "objective": upper,
            "gap": upper - lower,
            "lower_bound": lower,
            "upper_bound": upper,
            "relative_gap": max((machine.upper - machine.lower) / max(abs(machine.upper), 1.0) for machine in machines),
            "working_gap": max(machine.relative_gap for machine in machines),
            "working_kernels": max(int(machines[m].active.sum()) for m in running),
            "n_selected": max(counts),
            **({"selected": [max(counts[m] for m in fit.machines) for fit in self.fits]} if len(self.fits) > 1 else {}),
            "machines": len(running),
            **accuracy_metrics(self.fits, decisions),
        }


def _refuse_indefinite(grams: Grams) -> None:
    """Raise the ``DataError`` that names the kernel that is not positive semi-definite."""
    block = grams.corner(N_CHECKED_ROWS)
    lowest = [float(np.linalg.eigvalsh(gram.astype(np.float64))[0]) for gram in block]
    q = int(np.argmin(lowest))
    name = f"kernel {grams.specs[q]}" if lowest[q] < 0 else "a kernel"
    raise DataError(f"{name} is not positive semi-definite: least eigenvalue {lowest[q]:.3g} on the first {block.shape[1]} rows")

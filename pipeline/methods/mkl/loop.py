"""Generalized multiple kernel learning: one machine on a weighted sum of kernels whose weights are learnt with it.

Problem (docs/methods.md): ``min over theta in Theta of J(theta)``, J the value of a support vector machine with the kernel
``sum_q theta_q K_q``, over an elastic net, a simplex, or an lp ball of weights (Yang, Xu, Ye, King, Lyu, 2011). Machines one-vs-rest have
their own weights and share the passes over the Gram matrices.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.svm.dual import DualProblem
from ....kernels.weights.domains import ElasticNetSet, LpBall, NormDomain
from ....storage import DataError
from ...grams.grams import Grams
from ...grams.held import held_grams
from ...grams.settings import GramSettings
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.scores import Fit, TargetFit, accuracy_metrics
from ...loops.kernel_weights import GAP_SHARE, Trial, WeightState, absorbed, fresh, narrowed, solve_fixed, solve_machine, with_best
from ...loops.protocol import Step
from ...loops.weight_steps import POLISHED, STEPPERS, modellable
from ...models.kernel import selected
from ...records.context import RunContext
from .config import MKLConfig
from .forms import Solved, evaluate_only, formed, modelled, with_all_kernels

UNFINISHED = ("max_iter", "flat")
"""Reasons of a stop before the tolerance was reached."""

SLOW = 0.7
"""A step that leaves more of the gap than this is slow: after every third one in a row the level method takes a step."""

NEARLY = 0.5
"""A second-order model is made where J is above its least value so far by at most this share of the gap."""

SHARES = {"auto": 0.05, "simplemkl": 0.02}
"""Own gap of a machine, as a share of the gap, for methods that compare values of machines or trust their slopes."""

LOOKED_AT = 512
"""Rows of a matrix looked at to tell which kernel is not positive semi-definite."""


@dataclass(frozen=True)
class MKLState:
    """State of the loop: one search for weights per machine."""

    record_name: ClassVar[str] = "MKLState"
    iteration: int
    machines: tuple[WeightState, ...]

    @property
    def stop(self) -> str | None:
        """Reason why every machine has stopped, or ``None``."""
        reasons = [machine.stop for machine in self.machines]
        if None in reasons:
            return None
        return next((reason for reason in UNFINISHED if reason in reasons), str(reasons[-1]))


def domain_of(config: MKLConfig) -> NormDomain:
    """Return the set of weights."""
    if config.constraint == "lp":
        return LpBall(config.p)
    return ElasticNetSet({"elastic_net": config.v, "simplex": 1.0, "l2": 0.0}[config.constraint])


class MKLLoop:
    """The search for kernel weights of one or several machines.

    Parameters
    ----------
    config
        Parameters.
    specs
        Kernels.
    problems
        Dual problem of each machine.
    settings
        Where Gram matrices lie; decided from sizes by default.
    fits
        Classifiers and regressions whose accuracy, or R2, is followed.
    data
        What the kernels are over, where that is not the data set of the run: matrices that were given.
    configs
        Parameters of each machine, where they differ; what concerns the matrices is ``config``'s.
    """

    state_type = MKLState

    def __init__(
        self,
        config: MKLConfig,
        specs: Sequence[Any],
        problems: Sequence[DualProblem],
        settings: GramSettings | None = None,
        fits: Sequence[Fit | TargetFit] = (),
        data: Any = None,
        configs: Sequence[MKLConfig] | None = None,
    ) -> None:
        self.config, self.specs, self.problems = config, tuple(specs), tuple(problems)
        self.settings, self.fits, self.data = settings, tuple(fits), data
        self.configs = tuple([config] * len(self.problems) if configs is None else configs)
        self.domains = tuple(domain_of(one) for one in self.configs)
        self.grams = held_grams(self.specs, settings, data)

    def init(self, ctx: RunContext) -> MKLState:
        """Return equal weights for every machine."""
        grams = self.grams(ctx)
        for message in kernel_warnings(grams):
            ctx.emit({"event": "warning", "message": message})
        return MKLState(0, tuple(fresh(domain, grams.k, grams.n) for domain in self.domains))

    def step(self, state: MKLState, ctx: RunContext) -> Step[MKLState]:
        """Solve every running machine at its weights, add the cuts, and choose the next weights."""
        began = time.perf_counter()
        grams, machines = self.grams(ctx), list(state.machines)
        running = [m for m, machine in enumerate(machines) if machine.stop is None]
        solved = [self._solve(grams, m, machines[m], machines[m].theta) for m in running]
        done = time.perf_counter()
        found = formed(grams, [machines[m] for m in running], [self.problems[m] for m in running], solved)
        passed = time.perf_counter()
        for m, trial in zip(running, found, strict=True):
            machines[m] = self._next(ctx, m, machines[m], trial, state.iteration + 1)
        new = MKLState(state.iteration + 1, tuple(machines))
        seconds = {"seconds_machine": done - began, "seconds_forms": passed - done, "seconds_weights": time.perf_counter() - passed}
        return Step(new, {**self._metrics(new, running), **seconds})

    def _next(self, ctx: RunContext, m: int, before: WeightState, found: Trial, iteration: int) -> WeightState:
        grams, problem, config, domain = self.grams(ctx), self.problems[m], self.configs[m], self.domains[m]

        def evaluate(theta: np.ndarray, warm: np.ndarray) -> Trial:
            at = replace(before, active=state.active, theta=theta, beta=warm)
            return formed(grams, [at], [problem], [replace(self._solve(grams, m, at, theta), matrix=None)])[0]

        def step(state: WeightState, found: Trial) -> WeightState:
            return STEPPERS[config.solver](state, found, domain, config.tau, config.tol, evaluate)

        state = absorbed(before, found, domain)
        state = step(state, found)
        while state.stop == "tol" and not state.whole:
            state = with_all_kernels(grams, state, problem, domain)
            if state.stop == "tol":
                break
            if modellable(config.solver, domain):
                state = replace(state, theta=state.best_theta, beta=state.best_beta)
                break
            state = step(state, replace(found, s=np.nan_to_num(state.cut_forms[-1]), root=None))
        if state.stop is None and iteration >= config.max_iter:
            state = replace(state, stop="max_iter")
        if state.stop == "tol" and config.solver in POLISHED:
            state = with_best(state, evaluate_only(problem, state.theta, self._solve(grams, m, state, state.theta).solution))
        elif state.stop is not None and not state.whole:
            state = replace(with_all_kernels(grams, state, problem, domain), stop=state.stop)
        if state.widened and not before.widened:
            return replace(state, slow=0)
        return narrowed(replace(state, slow=before.slow + 1 if state.gap > SLOW * before.gap else 0), found.s, domain)

    def _solve(self, grams: Grams, m: int, state: WeightState, theta: np.ndarray) -> Solved:
        config, problem, gram = self.configs[m], self.problems[m], grams.combine(theta)
        if config.solver == "uniform":
            solution = solve_fixed(gram, problem, config.tol)
        else:
            solution = solve_machine(gram, problem, state, config.tol, SHARES.get(config.solver, GAP_SHARE))
        if solution.indefinite:
            _explain_indefinite(grams)
        near = not np.isfinite(state.gap) or solution.upper < state.upper + NEARLY * state.gap
        wanted = near and state.slow % 4 < 3 and modellable(config.solver, self.domains[m])
        return modelled(gram, problem, solution, int(state.active.sum())) if wanted else Solved(solution)

    def _metrics(self, state: MKLState, running: Sequence[int]) -> dict[str, Any]:
        machines = state.machines
        upper, lower = sum(machine.upper for machine in machines), sum(machine.lower for machine in machines)
        counts = [int(np.sum(selected(one.best_theta, config.threshold))) for one, config in zip(machines, self.configs, strict=True)]
        figures = {"objective": upper, "gap": upper - lower, "lower_bound": lower, "upper_bound": upper}
        relative = max((machine.upper - machine.lower) / max(abs(machine.upper), 1.0) for machine in machines)
        working = max(int(machines[m].active.sum()) for m in running)
        shown = {"relative_gap": relative, "working_gap": max(machine.relative_gap for machine in machines), "working_kernels": working}
        several = {"selected": [max(counts[m] for m in fit.machines) for fit in self.fits]} if len(self.fits) > 1 else {}
        return {**figures, **shown, "n_selected": max(counts), **several, "machines": len(running), **self._accuracy(machines)}

    def _accuracy(self, machines: Sequence[WeightState]) -> Mapping[str, Any]:
        decisions = {m: machine.best_decision for m, machine in enumerate(machines)}
        return accuracy_metrics(self.fits, decisions)


def _explain_indefinite(grams: Grams) -> None:
    """Name the kernel that is not positive semi-definite.

    Raises
    ------
    DataError
        Always.
    """
    block = grams.corner(LOOKED_AT)
    lowest = [float(np.linalg.eigvalsh(gram.astype(np.float64))[0]) for gram in block]
    q = int(np.argmin(lowest))
    name = f"kernel {grams.specs[q]}" if lowest[q] < 0 else "a kernel"
    raise DataError(f"{name} is not positive semi-definite: least eigenvalue {lowest[q]:.3g} on the first {block.shape[1]} rows")


__all__ = ["UNFINISHED", "MKLLoop", "MKLState", "domain_of", "selected"]

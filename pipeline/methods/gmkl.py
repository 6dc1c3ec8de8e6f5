"""Generalized multiple kernel learning: one machine on a weighted sum of kernels whose weights are learnt with it.

Problem (docs/methods.md): ``min over theta in Theta of J(theta)``, J the value of a support vector machine with the kernel
``sum_q theta_q K_q``, over an elastic net, a simplex, or an lp ball of weights (Yang, Xu, Ye, King, Lyu, 2011). Machines one-vs-rest have
their own weights and share the passes over the Gram matrices.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...kernels.domains import ElasticNetSet, LpBall, NormDomain
from ...kernels.solvers.dual import DualProblem, DualSolution
from ...storage import DataError
from ..loops.protocol import Step
from ..loops.steppers import STEPPERS
from ..loops.weights import GAP_SHARE, LINE_SHARE, Trial, WeightState, absorbed, fresh, solve_machine, trial
from ..passes.grams import Grams, GramSettings
from ..records.config_kernels import MKLConfig
from ..records.context import RunContext
from .fgm_scoring import Fit, accuracy_metrics
from .kernel_checks import doubtful
from .kernel_setup import needs_centring

UNFINISHED = ("max_iter", "flat")
"""Reasons of a stop before the tolerance was reached."""

LOOKED_AT = 512
"""Rows of a matrix looked at to tell which kernel is not positive semi-definite."""


@dataclass(frozen=True)
class MKLState:
    """State of the loop: one search for weights per machine."""

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
        Classifiers whose accuracy is followed.
    data
        What the kernels are over, where that is not the data set of the run: matrices that were given.
    """

    state_type = MKLState

    def __init__(
        self,
        config: MKLConfig,
        specs: Sequence[Any],
        problems: Sequence[DualProblem],
        settings: GramSettings | None = None,
        fits: Sequence[Fit] = (),
        data: Any = None,
    ) -> None:
        self.config, self.specs, self.problems = config, tuple(specs), tuple(problems)
        self.domain, self.settings, self.fits, self.data = domain_of(config), settings, tuple(fits), data
        self._grams: Grams | None = None

    def grams(self, ctx: RunContext) -> Grams:
        """Return the Gram matrices: a function of data and settings, made anew after a resume."""
        ctx = ctx if self.data is None else replace(ctx, data=self.data)
        if self._grams is None:
            self._grams = Grams(ctx, self.specs, self.settings, centre=needs_centring(self.specs))
        self._grams.ctx = ctx
        return self._grams

    def init(self, ctx: RunContext) -> MKLState:
        """Return equal weights for every machine."""
        grams = self.grams(ctx)
        for message in doubtful(grams):
            ctx.emit({"event": "warning", "message": message})
        return MKLState(0, tuple(fresh(self.domain, grams.k, grams.n) for _ in self.problems))

    def step(self, state: MKLState, ctx: RunContext) -> Step[MKLState]:
        """Solve every running machine at its weights, add the cuts, and choose the next weights."""
        began = time.perf_counter()
        grams, machines = self.grams(ctx), list(state.machines)
        running = [m for m, machine in enumerate(machines) if machine.stop is None]
        solutions = [self._solve(grams, m, machines[m], machines[m].theta) for m in running]
        solved = time.perf_counter()
        forms = grams.forms(np.stack([solution.beta for solution in solutions], axis=1))
        formed = time.perf_counter()
        for place, m in enumerate(running):
            found = trial(self.problems[m], machines[m].theta, solutions[place], forms[:, place])
            machines[m] = self._next(ctx, m, absorbed(machines[m], found, self.domain), found, state.iteration + 1)
        new = MKLState(state.iteration + 1, tuple(machines))
        seconds = {"seconds_machine": solved - began, "seconds_forms": formed - solved, "seconds_weights": time.perf_counter() - formed}
        return Step(new, {**self._metrics(new, len(running)), **seconds})

    def _next(self, ctx: RunContext, m: int, state: WeightState, found: Trial, iteration: int) -> WeightState:
        config, grams = self.config, self.grams(ctx)

        def evaluate(theta: np.ndarray, warm: np.ndarray) -> Trial:
            solution = self._solve(grams, m, replace(state, beta=warm), theta)
            return trial(self.problems[m], theta, solution, grams.forms(solution.beta))

        state = STEPPERS[config.solver](state, found, self.domain, config.tau, config.tol, evaluate)
        return replace(state, stop="max_iter") if state.stop is None and iteration >= config.max_iter else state

    def _solve(self, grams: Grams, m: int, state: WeightState, theta: np.ndarray) -> DualSolution:
        share = LINE_SHARE if self.config.solver == "simplemkl" else GAP_SHARE
        solution = solve_machine(grams.combine(theta), self.problems[m], state, self.config.tol, share)
        if solution.indefinite:
            _explain_indefinite(grams)
        return solution

    def _metrics(self, state: MKLState, running: int) -> dict[str, Any]:
        machines = state.machines
        upper, lower = sum(machine.upper for machine in machines), sum(machine.lower for machine in machines)
        counts = [int(np.sum(selected(machine.best_theta, self.config.threshold))) for machine in machines]
        figures = {"objective": upper, "gap": upper - lower, "lower_bound": lower, "upper_bound": upper}
        relative = max(machine.relative_gap for machine in machines)
        return {**figures, "relative_gap": relative, "n_selected": max(counts), "machines": running, **self._accuracy(machines)}

    def _accuracy(self, machines: Sequence[WeightState]) -> Mapping[str, Any]:
        decisions = {m: machine.best_decision for m, machine in enumerate(machines)}
        return accuracy_metrics(self.fits, decisions)


def selected(theta: np.ndarray, threshold: float) -> np.ndarray:
    """Return which weights are above ``threshold`` times the largest."""
    return theta > threshold * max(float(theta.max(initial=0.0)), 0.0)


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

"""Two-layer multiple kernel learning (Zhuang, thesis, 2011, chapter 4): projected gradient steps on the weights of the first layer.

Objective, gradient and step are those of :mod:`gramplane.kernels.bank.two_layer`. Machines one-vs-rest, and random starts of each, go side
by side. When all of them rest the best start of each machine is kept; with ``infinite`` a Gaussian kernel towards which the objective falls
is then added (:mod:`gramplane.pipeline.methods.two_layer_mkl.new_kernels`), and the steps go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.bank.two_layer import TwoLayer, TwoLayerPoint, first_length
from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.dual import DualProblem, Scratch
from ....storage import DataError
from ...grams.settings import GramSettings
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.scores import Fit, accuracy_metrics
from ...loops.protocol import Step
from ...records.context import RunContext
from .config import TwoLayerConfig
from .layer_pass import LayerGrams
from .new_kernels import Candidate, best_candidate

UNFINISHED = ("max_iter", "flat")
"""Reasons of a stop before a tolerance was reached."""

LOOKED_AT = 512
NEGATIVE = 1e-5
"""Rows of a matrix looked at when a machine met negative curvature, and the share of the largest eigenvalue that is no round-off."""

PENALTY_SHARE = 0.1
"""Default penalty, in units of the trace that kernels are normalised to. Of 1 (the thesis'), 1/3, 1/10, 1/30 and 1/n the third was least
often below a single layer at C = 1: larger ones leave no kernel a weight on sets that are hard to separate, smaller ones memorise."""

PROMISE = 0.1
"""A step is not tried when it promises less than this share of the decrease at which a fit ends."""

SAME_WIDTH = 1e-2
"""Gaussians whose widths differ by less than this share are one kernel."""

SMALL = 1e-3
"""First weight of a new kernel towards which the objective does not fall at once, in units of the sum of the others."""


@dataclass(frozen=True)
class LayerState:
    """One machine from one start: its point, and how it goes on.

    Attributes
    ----------
    mu, slopes
        ``(k,)`` weights, and the gradient of the objective there.
    beta, decision
        ``(n,)`` signed coefficients, and decision values.
    bias, value, gap
        Bias, objective by the dual value of the machine, and its duality gap: ``value + gap`` is the primal objective.
    eta
        Length the next step tries first.
    still, steps
        Steps in a row that lowered the objective by next to nothing, and steps with the present kernels.
    path
        ``(t, k)`` weights after every step.
    stop
        Why it rests, or ``None``.
    """

    record_name: ClassVar[str] = "LayerState"
    mu: np.ndarray
    slopes: np.ndarray
    beta: np.ndarray
    decision: np.ndarray
    bias: float
    value: float
    gap: float
    eta: float
    still: int
    steps: int
    path: np.ndarray
    stop: str | None = None

    @classmethod
    def begun(cls, point: TwoLayerPoint, eta: float, path: np.ndarray) -> LayerState:
        """Return the state at a point from where steps begin."""
        return cls(point.mu, point.slopes, point.beta, point.decision, point.bias, point.value, point.gap, eta, 0, 0, path)

    def point(self) -> TwoLayerPoint:
        """Return the point."""
        return TwoLayerPoint(self.mu, self.value, self.gap, self.slopes, self.beta, self.bias, self.decision)


@dataclass(frozen=True)
class TwoLayerState:
    """State of the loop.

    Attributes
    ----------
    iteration
        Steps done.
    machines
        One per binary problem and start, starts of one problem together; one per problem once they rest.
    widths
        gamma of the Gaussians added.
    stop
        Why the loop ended.
    """

    record_name: ClassVar[str] = "TwoLayerState"
    iteration: int
    machines: tuple[LayerState, ...]
    widths: np.ndarray
    stop: str | None = None


class TwoLayerLoop:
    """Steps of all machines side by side.

    Parameters
    ----------
    config
        Parameters.
    specs
        First kernels.
    problems
        Dual problem of each machine.
    settings
        Where Gram matrices lie.
    fits
        Classifiers whose accuracy is followed.
    data
        What the kernels are over, where that is not the data set of the run: matrices that were given.
    apart
        The second layer is beyond the driver's memory: passes answer for it.
    """

    state_type = TwoLayerState

    def __init__(
        self,
        config: TwoLayerConfig,
        specs: Sequence[Any],
        problems: Sequence[DualProblem],
        settings: GramSettings,
        fits: Sequence[Fit] = (),
        data: Any = None,
        apart: bool = False,
    ) -> None:
        self.config, self.specs, self.problems = config, tuple(specs), tuple(problems)
        self.penalty = penalty_of(config, self.problems[0])
        self.settings, self.fits, self.data, self.apart = settings, tuple(fits), data, apart
        self._grams: LayerGrams | None = None
        self._scratch, self._looked = Scratch(), False

    # -- kernels -------------------------------------------------------------------------------------------------------------------

    def kernels(self, widths: np.ndarray) -> tuple[Any, ...]:
        """Return all kernels, added ones last."""
        return (*self.specs, *(KernelSpec("rbf", (("gamma", float(width)),), None, self.config.normalize) for width in widths))

    def grams(self, widths: np.ndarray, ctx: RunContext) -> LayerGrams:
        """Return the Gram matrices of all kernels: a function of data and settings, made anew after a resume."""
        specs = self.kernels(widths)
        ctx = ctx if self.data is None else replace(ctx, data=self.data)
        if self._grams is None or self._grams.specs != specs:
            self._grams = None
            self._grams = LayerGrams(ctx, specs, self.settings, centre=True)
            self._grams.apart = self.apart
        self._grams.ctx = ctx
        return self._grams

    def machine(self, place: int, count: int, widths: np.ndarray, ctx: RunContext) -> TwoLayer:
        """Return objective and gradient of the machine at ``place`` among ``count``, starts of one problem together."""
        problem = self.problems[place * len(self.problems) // count]
        return TwoLayer(self.grams(widths, ctx), problem, self.penalty, self._scratch)

    @property
    def rows(self) -> np.ndarray:
        """Rows with a cost, which are the same for all machines."""
        return np.flatnonzero(self.problems[0].hi > self.problems[0].lo)

    # -- steps ---------------------------------------------------------------------------------------------------------------------

    def init(self, ctx: RunContext) -> TwoLayerState:
        """Return the machines at random weights."""
        rng, grams = np.random.default_rng(ctx.seed), self.grams(np.zeros(0), ctx)
        for message in kernel_warnings(grams):
            ctx.emit({"event": "warning", "message": message})
        count, none, rows = len(self.problems) * self.config.n_restarts, np.zeros(0), self.rows
        diagonals = grams.diagonals() if len(rows) == grams.n else np.ascontiguousarray(grams.diagonals()[:, rows])
        machines = []
        for place in range(count):
            point = self.machine(place, count, none, ctx).start(rng, diagonals)
            self._check(point, grams)
            machines.append(LayerState.begun(point, first_length(point, self.penalty), np.zeros((0, grams.k))))
        return TwoLayerState(0, tuple(machines), none)

    def step(self, state: TwoLayerState, ctx: RunContext) -> Step[TwoLayerState]:
        """Take one step with every machine that moves; when none does, keep the best starts and look for a new kernel."""
        count = len(state.machines)
        machines = tuple(
            machine if machine.stop else self._moved(machine, self.machine(place, count, state.widths, ctx))
            for place, machine in enumerate(state.machines)
        )
        new = replace(state, iteration=state.iteration + 1, machines=machines)
        metrics = self._metrics(new)
        return Step(self._settled(new, ctx) if all(machine.stop for machine in machines) else new, metrics)

    def _moved(self, machine: LayerState, problem: TwoLayer) -> LayerState:
        config, old = self.config, machine.point()
        point, eta, tried = self._step(problem, old, machine.eta)
        self._check(point, problem.layer)
        still = machine.still + 1 if old.value - point.value <= config.decrease_tol * abs(old.value) else 0
        new = replace(LayerState.begun(point, eta, np.vstack([machine.path, point.mu])), still=still, steps=machine.steps + 1)
        return replace(new, stop=self._reason(new, point is old, tried))

    def _step(self, problem: TwoLayer, old: TwoLayerPoint, eta: float) -> tuple[TwoLayerPoint, float, bool]:
        """Return the next point, the next first length, and whether any step promised enough to be tried."""
        least = PROMISE * self.config.decrease_tol
        point, found = problem.step(old, eta, least)
        if point is old and found == eta:
            # The last steps may have been short for a reason of their own.
            eta = max(eta, first_length(old, self.penalty))
            point, found = problem.step(old, eta, least)
        return point, found, point is not old or found != eta

    def _reason(self, machine: LayerState, stuck: bool, tried: bool) -> str | None:
        if machine.point().violation(self.penalty) <= self.config.tol:
            return "tol"
        if stuck and tried:
            return "flat"
        if stuck or machine.still >= 2:
            return "decrease"
        return "max_iter" if machine.steps >= self.config.max_iter else None

    def _check(self, point: TwoLayerPoint, grams: Any) -> None:
        if point.indefinite and not self._looked:
            self._looked = True
            refuse_indefinite(grams)

    # -- rounds --------------------------------------------------------------------------------------------------------------------

    def best(self, state: TwoLayerState) -> tuple[LayerState, ...]:
        """Return the start with the smallest objective of every machine."""
        starts = len(state.machines) // len(self.problems)
        groups = [state.machines[first : first + starts] for first in range(0, len(state.machines), starts)]
        return tuple(min(group, key=lambda machine: machine.value) for group in groups)

    def _settled(self, state: TwoLayerState, ctx: RunContext) -> TwoLayerState:
        state = replace(state, machines=self.best(state))
        reasons = [str(machine.stop) for machine in state.machines]
        reason = next((reason for reason in UNFINISHED if reason in reasons), reasons[-1])
        if not self.config.infinite:
            return replace(state, stop=reason)
        room = self.config.max_new_kernels - len(state.widths)
        chosen = self._chosen(state, ctx)[:room] if room > 0 else []
        if not chosen:
            return replace(state, stop=reason)
        return self._grown(state, chosen, ctx)

    def _chosen(self, state: TwoLayerState, ctx: RunContext) -> list[float]:
        """Return the widths that help some machine, the most helpful first; none when the last one that was added found no weight."""
        if len(state.widths) and not any(machine.mu[-1] > 0.0 for machine in state.machines):
            return []
        found = [self._search(place, state, ctx) for place in range(len(state.machines))]
        helpful = sorted((one for one in found if one is not None), key=lambda one: (-one.gain, one.width))
        # Where a machine could not be brought to rest, a kernel that is there already may seem to help.
        new = [one.width for one in helpful if not np.isclose(one.width, state.widths, rtol=SAME_WIDTH).any()]
        return list(dict.fromkeys(new))

    def _search(self, place: int, state: TwoLayerState, ctx: RunContext) -> Candidate | None:
        machine = state.machines[place]
        found = best_candidate(self.config, self.penalty, self.grams(state.widths, ctx), machine.point(), self.rows)
        return found if found is not None and found.gain > self.config.tol * self.penalty else None

    def _grown(self, state: TwoLayerState, added: list[float], ctx: RunContext) -> TwoLayerState:
        widths, count = np.append(state.widths, added), len(state.machines)
        machines = [
            self._widened(machine, len(added), self.machine(place, count, widths, ctx)) for place, machine in enumerate(state.machines)
        ]
        return replace(state, widths=widths, machines=tuple(machines))

    def _widened(self, machine: LayerState, added: int, problem: TwoLayer) -> LayerState:
        """Return a machine with new kernels of weight zero, or of a small one where that is needed and does no harm."""
        mu = np.append(machine.mu, np.zeros(added))
        kernel = problem.layer.kernel(mu)
        assert kernel is not None  # the sum has not changed
        slopes = self.penalty - 0.5 * problem.layer.weigh(mu, kernel, machine.beta)
        point = replace(machine.point(), mu=mu, slopes=slopes)
        if self.config.rule == "thesis" and slopes[-added:].min() >= 0.0:
            tried = problem.at(np.append(machine.mu, np.full(added, SMALL * machine.mu.sum())), machine.beta)
            point = tried if tried is not None and tried.value <= point.value else point
        path = np.hstack([machine.path, np.zeros((len(machine.path), added))])
        return LayerState.begun(point, first_length(point, self.penalty), path)

    # -- figures -------------------------------------------------------------------------------------------------------------------

    def _metrics(self, state: TwoLayerState) -> dict[str, Any]:
        machines = self.best(state)
        return {
            "objective": float(sum(machine.value + machine.gap for machine in machines)),
            "gap": float(sum(machine.gap for machine in machines)),
            "violation": max(machine.point().violation(self.penalty) for machine in machines),
            "weight_sum": float(sum(machine.mu.sum() for machine in machines)),
            "n_selected": max(int(np.count_nonzero(machine.mu)) for machine in machines),
            "n_kernels": len(self.specs) + len(state.widths),
            "machines": sum(machine.stop is None for machine in state.machines),
            **accuracy_metrics(self.fits, {m: machine.decision for m, machine in enumerate(machines)}),
        }


def penalty_of(config: TwoLayerConfig, problem: DualProblem) -> float:
    """Return the weight of the sum of the kernel weights: the one asked for, or a tenth of the trace of a normalised kernel.

    Rows without a cost (held out, or of weight zero) do not count.
    """
    if config.penalty is not None:
        return config.penalty
    return PENALTY_SHARE * (1 if config.normalize == "unit_trace" else int(np.count_nonzero(problem.hi > problem.lo)))


def refuse_indefinite(grams: LayerGrams) -> None:
    """Name a kernel that is not positive semi-definite beyond round-off on the rows looked at.

    Raises
    ------
    DataError
        If there is one.
    """
    for spec, gram in zip(grams.specs, grams.corner(LOOKED_AT), strict=True):
        values = np.linalg.eigvalsh(gram.astype(np.float64))
        if values[0] < -NEGATIVE * max(float(values[-1]), -float(values[0])):
            raise DataError(f"kernel {spec} is not positive semi-definite: least eigenvalue {values[0]:.3g} on the first {len(gram)} rows")

"""Two-layer multiple kernel learning (Zhuang, thesis, 2011, chapter 4): projected gradient steps on the weights of the first layer.

Objective, gradient and step are those of :mod:`gramplane.kernels.bank.two_layer`. Machines one-vs-rest, and random starts of each, go side
by side. When all of them have stopped the best start of each machine is kept; with ``infinite`` a Gaussian kernel towards which the
objective falls is then added (:mod:`gramplane.pipeline.methods.two_layer_mkl.new_kernels`), and the steps go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.bank.two_layer import Layer, TwoLayerObjective, TwoLayerPoint, first_length
from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.dual import DualProblem, Scratch
from ....storage import DataError
from ...core.result import Step
from ...grams.given import GivenGrams
from ...grams.settings import GramSettings
from ...inputs.kernel_checks import emit_warnings
from ...inputs.scores import AccuracyTracker, accuracy_metrics
from ...loops.protocol import joint_stop
from ...records.context import RunContext
from .config import TwoLayerConfig
from .layer_pass import LayerGrams
from .new_kernels import best_candidate

UNFINISHED = ("max_iter", "flat")  # reasons of a stop before a tolerance was reached
N_CHECKED_ROWS = 512  # rows of a matrix whose eigenvalues are computed when a machine met negative curvature
MIN_NEGATIVE_SHARE = 1e-5  # a negative eigenvalue beyond this share of the largest one is no round-off
# Default penalty, in units of the trace that kernels are normalised to. Of 1 (the thesis'), 1/3, 1/10, 1/30 and 1/n the third was least
# often below a single layer at C = 1: larger ones leave no kernel a weight on sets that are hard to separate, smaller ones memorise.
PENALTY_SHARE = 0.1
MIN_PROMISE_SHARE = 0.1  # a step is not tried when it promises less than this share of the decrease at which a fit ends
SAME_WIDTH_TOL = 1e-2  # Gaussians whose widths differ by less than this share are one kernel
FIRST_WEIGHT_SHARE = 1e-3  # of the sum of the others: weight of a new kernel towards which the objective does not fall at once


@dataclass(frozen=True)
class LayerState:
    """One machine from one start: its point, and how it goes on."""

    record_name: ClassVar[str] = "LayerState"
    mu: np.ndarray  # (k,) weights
    slopes: np.ndarray  # (k,) gradient of the objective there
    beta: np.ndarray  # (n,) signed coefficients
    decision: np.ndarray  # (n,)
    bias: float
    value: float  # objective by the dual value of the machine: value + gap is the primal objective
    gap: float  # duality gap of the machine
    eta: float  # length the next step tries first
    still: int  # steps in a row that lowered the objective by next to nothing
    steps: int  # with the present kernels
    path: np.ndarray  # (t, k) weights after every step
    stop: str | None = None  # why it stopped

    @classmethod
    def at(cls, point: TwoLayerPoint, eta: float, path: np.ndarray) -> LayerState:
        """Return the state of a machine that has taken no step from a point yet."""
        return cls(point.mu, point.slopes, point.beta, point.decision, point.bias, point.value, point.gap, eta, 0, 0, path)

    def point(self) -> TwoLayerPoint:
        """Return the point."""
        return TwoLayerPoint(self.mu, self.value, self.gap, self.slopes, self.beta, self.bias, self.decision)


@dataclass(frozen=True)
class TwoLayerState:
    """State of the loop."""

    record_name: ClassVar[str] = "TwoLayerState"
    iteration: int
    machines: tuple[LayerState, ...]  # one per binary problem and start, starts together; one per problem once all have stopped
    widths: np.ndarray  # gamma of the Gaussians added
    stop: str | None = None


class TwoLayerLoop:
    """Steps of all machines side by side, from the kernels ``specs``.

    ``fits``: classifiers whose accuracy is followed; ``data``: precomputed matrices, which the kernels are over in place of the run's data
    set; ``layer_by_passes``: the second layer is beyond the driver's memory: passes answer for it; ``weight``: how often rows count,
    ``(n,)``, those held out not at all.
    """

    state_type = TwoLayerState

    def __init__(
        self,
        config: TwoLayerConfig,
        specs: Sequence[KernelSpec],
        problems: Sequence[DualProblem],
        settings: GramSettings,
        fits: Sequence[AccuracyTracker] = (),
        data: GivenGrams | None = None,
        layer_by_passes: bool = False,
        weight: np.ndarray | None = None,
    ) -> None:
        self.config, self.specs, self.problems = config, tuple(specs), tuple(problems)
        self.weight, self.penalty = weight, resolve_penalty(config, self.problems[0].n if weight is None else float(weight.sum()))
        self.settings, self.fits, self.data, self.layer_by_passes = settings, tuple(fits), data, layer_by_passes
        self._grams: LayerGrams | None = None
        self._scratch, self._kernels_checked = Scratch(), False

    def kernels(self, widths: np.ndarray) -> tuple[KernelSpec, ...]:
        """Return all kernels, added ones last."""
        return (*self.specs, *(KernelSpec("rbf", (("gamma", float(width)),), None, self.config.normalize) for width in widths))

    def grams(self, widths: np.ndarray, ctx: RunContext) -> LayerGrams:
        """Return the Gram matrices of all kernels: a function of data and settings, made anew after a resume."""
        specs = self.kernels(widths)
        ctx = ctx if self.data is None else replace(ctx, data=self.data)
        if self._grams is None or self._grams.specs != specs:
            self._grams = None  # frees the old ones first
            self._grams = LayerGrams(ctx, specs, self.settings, centre=True)
            self._grams.layer_by_passes = self.layer_by_passes
        self._grams.ctx = ctx
        return self._grams

    def machine(self, index: int, count: int, widths: np.ndarray, ctx: RunContext) -> TwoLayerObjective:
        """Return objective and gradient of one machine of ``count``, starts of one problem together."""
        problem = self.problems[index * len(self.problems) // count]
        return TwoLayerObjective(self.grams(widths, ctx), problem, self.penalty, self._scratch)

    def init(self, ctx: RunContext) -> TwoLayerState:
        """Return the machines at random weights."""
        rng, grams = np.random.default_rng(ctx.seed), self.grams(np.zeros(0), ctx)
        emit_warnings(grams, ctx)
        count, none = len(self.problems) * self.config.n_restarts, np.zeros(0)
        heights = np.average(grams.diagonals(), axis=1, weights=self.weight)
        machines = []
        for index in range(count):
            point = self.machine(index, count, none, ctx).start(rng, heights)
            self._check(point, grams)
            machines.append(LayerState.at(point, first_length(point, self.penalty), np.zeros((0, grams.k))))
        return TwoLayerState(0, tuple(machines), none)

    def step(self, state: TwoLayerState, ctx: RunContext) -> Step[TwoLayerState]:
        """Take one step with every machine that moves; when none does, keep the best starts and look for a new kernel."""
        count = len(state.machines)
        machines = tuple(
            machine if machine.stop else self._move(machine, self.machine(index, count, state.widths, ctx))
            for index, machine in enumerate(state.machines)
        )
        new = replace(state, iteration=state.iteration + 1, machines=machines)
        metrics = self._metrics(new)
        return Step(self._end_round(new, ctx) if all(machine.stop for machine in machines) else new, metrics)

    def _move(self, machine: LayerState, problem: TwoLayerObjective) -> LayerState:
        config, old = self.config, machine.point()
        point, eta, tried = self._descend(problem, old, machine.eta)
        self._check(point, problem.layer)
        still = machine.still + 1 if old.value - point.value <= config.decrease_tol * abs(old.value) else 0
        new = replace(LayerState.at(point, eta, np.vstack([machine.path, point.mu])), still=still, steps=machine.steps + 1)
        return replace(new, stop=self._stop_reason(new, point is old, tried))

    def _descend(self, problem: TwoLayerObjective, old: TwoLayerPoint, eta: float) -> tuple[TwoLayerPoint, float, bool]:
        """Return the next point, the next first length, and whether any step promised enough to be tried."""
        min_decrease = MIN_PROMISE_SHARE * self.config.decrease_tol
        point, length = problem.step(old, eta, min_decrease)
        if point is old and length == eta:
            # The last steps may have been short for a reason of their own.
            eta = max(eta, first_length(old, self.penalty))
            point, length = problem.step(old, eta, min_decrease)
        return point, length, point is not old or length != eta

    def _stop_reason(self, machine: LayerState, is_stuck: bool, tried: bool) -> str | None:
        if machine.point().violation(self.penalty) <= self.config.tol:
            return "tol"
        if is_stuck and tried:
            return "flat"
        if is_stuck or machine.still >= 2:
            return "decrease"
        return "max_iter" if machine.steps >= self.config.max_iter else None

    def _check(self, point: TwoLayerPoint, layer: Layer) -> None:
        if point.indefinite and not self._kernels_checked:
            self._kernels_checked = True
            assert isinstance(layer, LayerGrams)
            refuse_indefinite(layer)

    def best(self, state: TwoLayerState) -> tuple[LayerState, ...]:
        """Return the start with the smallest objective of every machine."""
        starts = len(state.machines) // len(self.problems)
        groups = [state.machines[first : first + starts] for first in range(0, len(state.machines), starts)]
        return tuple(min(group, key=lambda machine: machine.value) for group in groups)

    def _end_round(self, state: TwoLayerState, ctx: RunContext) -> TwoLayerState:
        """Keep the best starts, and stop or add kernels."""
        state = replace(state, machines=self.best(state))
        count = self.config.max_new_kernels - len(state.widths) if self.config.infinite else 0
        widths = self._choose_widths(state, ctx)[:count] if count > 0 else []
        if widths:
            return self._add_kernels(state, widths, ctx)
        return replace(state, stop=joint_stop([machine.stop for machine in state.machines], UNFINISHED))

    def _choose_widths(self, state: TwoLayerState, ctx: RunContext) -> list[float]:
        """Return the widths that help some machine, the most helpful first; none when the one added last got no weight."""
        if len(state.widths) and not any(machine.mu[-1] > 0.0 for machine in state.machines):
            return []
        grams = self.grams(state.widths, ctx)
        candidates = [best_candidate(self.config, self.penalty, grams, machine.point(), self.weight) for machine in state.machines]
        helpful = [one for one in candidates if one is not None and one.gain > self.config.tol * self.penalty]
        widths = [one.width for one in sorted(helpful, key=lambda one: (-one.gain, one.width))]
        # A kernel that is there already may seem to help a machine that stopped before its optimum.
        return list(dict.fromkeys(width for width in widths if not np.isclose(width, state.widths, rtol=SAME_WIDTH_TOL).any()))

    def _add_kernels(self, state: TwoLayerState, added: list[float], ctx: RunContext) -> TwoLayerState:
        widths, count = np.append(state.widths, added), len(state.machines)
        machines = [
            self._add_to_machine(machine, len(added), self.machine(index, count, widths, ctx))
            for index, machine in enumerate(state.machines)
        ]
        return replace(state, widths=widths, machines=tuple(machines))

    def _add_to_machine(self, machine: LayerState, added: int, problem: TwoLayerObjective) -> LayerState:
        """Return a machine with new kernels of weight zero, or of a small one where that is needed and does no harm."""
        mu = np.append(machine.mu, np.zeros(added))
        kernel = problem.layer.kernel(mu)
        assert kernel is not None  # the sum has not changed
        slopes = self.penalty - 0.5 * problem.layer.weigh(mu, kernel, machine.beta)
        point = replace(machine.point(), mu=mu, slopes=slopes)
        if self.config.rule == "thesis" and slopes[-added:].min() >= 0.0:
            tried = problem.at(np.append(machine.mu, np.full(added, FIRST_WEIGHT_SHARE * machine.mu.sum())), machine.beta)
            point = tried if tried is not None and tried.value <= point.value else point
        path = np.hstack([machine.path, np.zeros((len(machine.path), added))])
        return LayerState.at(point, first_length(point, self.penalty), path)

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


def resolve_penalty(config: TwoLayerConfig, n_rows: float) -> float:
    """Return the weight of the sum of the kernel weights: ``config.penalty``, or a tenth of the trace of a normalised kernel over the rows
    learnt from.
    """
    return PENALTY_SHARE * (1 if config.normalize == "unit_trace" else n_rows) if config.penalty is None else config.penalty


def refuse_indefinite(grams: LayerGrams) -> None:
    """Name a kernel that is not positive semi-definite beyond round-off on some rows. Raises DataError if there is one."""
    for spec, gram in zip(grams.specs, grams.corner(N_CHECKED_ROWS), strict=True):
        values = np.linalg.eigvalsh(gram.astype(np.float64))
        if values[0] < -MIN_NEGATIVE_SHARE * max(float(values[-1]), -float(values[0])):
            raise DataError(f"kernel {spec} is not positive semi-definite: least eigenvalue {values[0]:.3g} on the first {len(gram)} rows")

"""Two-layer multiple kernel learning (Zhuang, thesis, 2011, chapter 4): projected gradient steps on the weights of the first layer.

Objective, gradient and step are those of :mod:`gramplane.kernels.bank.two_layer`. One-vs-rest SVMs, and the random starts of each, advance
in parallel. When all have stopped, the best start of each is kept. With ``infinite``, a Gaussian kernel that decreases the objective is
then added (:mod:`gramplane.pipeline.methods.two_layer_mkl.new_kernels`), and the steps continue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ....kernels.bank.two_layer import Layer, TwoLayerObjective, TwoLayerPoint, first_length
from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.dual import DualProblem, Scratch
from ....storage import DataError
from ...core.memory import Item, driver_plan
from ...core.resources import Resources
from ...grams.plans import BLOCKS_WORK, SUM_WORK, GramPasses
from ...grams.settings import GramSettings, vectors_item
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.labels import Inputs
from ...inputs.scores import accuracy_metrics, fit_tracker
from ...loops.protocol import joint_stop
from .config import TwoLayerConfig
from .layer_pass import LayerGrams, layer_pass_bytes
from .new_kernels import N_WIDTHS, best_candidate

LAYER_WORK = ("second layer", "sums of the kernels weighted by it")
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
    """State of one SVM from one start: its point, step size and history."""

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
        """Return the state at a point, before the first step."""
        return cls(point.mu, point.slopes, point.beta, point.decision, point.bias, point.value, point.gap, eta, 0, 0, path)

    def point(self) -> TwoLayerPoint:
        return TwoLayerPoint(self.mu, self.value, self.gap, self.slopes, self.beta, self.bias, self.decision)


@dataclass(frozen=True)
class TwoLayerState:
    """State of the fit between two steps."""

    record_name: ClassVar[str] = "TwoLayerState"
    iteration: int
    machines: tuple[LayerState, ...]  # one per binary problem and start, starts together; one per problem once all have stopped
    widths: np.ndarray  # gamma of the Gaussians added
    stop: str | None = None


@dataclass(eq=False)
class TwoLayerProblem:
    """SVMs that advance in parallel on the exponential of a weighted sum of the kernels ``specs``, and of added kernels."""

    config: TwoLayerConfig
    inputs: Inputs
    specs: tuple[KernelSpec, ...]
    problems: tuple[DualProblem, ...]
    settings: GramSettings
    layer_by_passes: bool  # the second layer is beyond the driver's memory: passes answer for it
    planned: Resources  # where it was made: what decides the passes

    def __post_init__(self) -> None:
        inputs = self.inputs
        self.fits = (fit_tracker(inputs, inputs.held_out),)
        # How often rows count, those held out not at all.
        self.weight, rows = inputs.sample_weight, inputs.data.n_rows
        self.penalty = resolve_penalty(self.config, rows if self.weight is None else float(self.weight.sum()))
        self.n_new = most_new_kernels(self.config)
        self._grams: LayerGrams | None = None
        self._scratch, self._kernels_checked = Scratch(), False

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, number of tasks per pass, memory of a task and of the driver in bytes."""
        config, n = self.config, self.inputs.data.n_rows
        # Over the first layer with as many new kernels as it may have.
        passes = GramPasses(self.inputs.data, self.kernels(np.ones(self.n_new)), self.settings, self.planned)
        return {
            **self.settings.describe(n, len(self.specs)),
            **driver_plan(self.driver_items()),
            "machines": len(self.problems) * config.n_restarts,
            "penalty": self.penalty,
            "new_kernels_at_most": config.max_new_kernels if config.infinite else 0,
            "iterations_at_most_per_round": config.max_iter,
            "tasks_per_pass": len(passes.refs),
            "task_bytes": max(self._steps(passes)),
            "second_layer": "by passes" if self.layer_by_passes else "on the driver",
            "second_layer_bytes": layer_bytes(n),
        }

    def _steps(self, passes: GramPasses) -> list[int]:
        """Return the memory in bytes of each step: computing both layers, summing their entries, trying new kernels, and reading for the
        solver.
        """
        refs, block = passes.refs, passes.settings.block
        steps = [passes.load(), passes.solver() if self.layer_by_passes else 0]
        if self.n_new:
            steps.append(replace(passes, settings=replace(self.settings, policy="recompute")).load())
        if self.n_new or not passes.is_here:
            steps.append(layer_pass_bytes(refs, passes.k, block, whole=not (self.layer_by_passes or passes.is_here)))
        return steps

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        if self.settings.policy == "memory":
            return (BLOCKS_WORK,)
        return (BLOCKS_WORK, *LAYER_WORK, *(SUM_WORK if self.layer_by_passes else ()))

    def driver_items(self) -> tuple[Item, ...]:
        """Return the memory of the driver: entries of the kernels of the first layer, the second layer, and vectors of the SVMs."""
        n, k, memory = self.inputs.data.n_rows, len(self.specs) + self.n_new, self.planned.driver_memory
        working_set = "a solver's working set of the second layer", int(MATRIX_SHARE * memory)
        whole = "second layer in double precision, and the solver's copy of it", layer_bytes(n)
        vectors = vectors_item(n, len(self.problems) * self.config.n_restarts)
        return self.settings.items(n, k, memory)[0], working_set if self.layer_by_passes else whole, vectors

    def kernels(self, widths: np.ndarray) -> tuple[KernelSpec, ...]:
        """Return all kernels, added kernels last."""
        return (*self.specs, *(KernelSpec("rbf", (("gamma", float(width)),), None, self.config.normalize) for width in widths))

    def grams(self, widths: np.ndarray, resources: Resources) -> LayerGrams:
        """Return the Gram matrices of all kernels. They follow from data and settings, and are computed again after a resume."""
        specs = self.kernels(widths)
        if self._grams is None or self._grams.specs != specs:
            self._grams = None  # frees the old ones first
            self._grams = LayerGrams(self.inputs.data, specs, self.settings, resources, centre=True)
            self._grams.layer_by_passes = self.layer_by_passes
        self._grams.resources = resources
        return self._grams

    def machine(self, index: int, count: int, widths: np.ndarray, resources: Resources) -> TwoLayerObjective:
        """Return objective and gradient of SVM ``index`` out of ``count``; the random starts of a problem are consecutive."""
        problem = self.problems[index * len(self.problems) // count]
        return TwoLayerObjective(self.grams(widths, resources), problem, self.penalty, self._scratch)

    def move(self, machine: LayerState, problem: TwoLayerObjective) -> LayerState:
        """Return the state of an SVM after one step."""
        config, old = self.config, machine.point()
        point, eta, tried = self._descend(problem, old, machine.eta)
        self.check(point, problem.layer)
        still = machine.still + 1 if old.value - point.value <= config.decrease_tol * abs(old.value) else 0
        new = replace(LayerState.at(point, eta, np.vstack([machine.path, point.mu])), still=still, steps=machine.steps + 1)
        return replace(new, stop=self._stop_reason(new, point is old, tried))

    def _descend(self, problem: TwoLayerObjective, old: TwoLayerPoint, eta: float) -> tuple[TwoLayerPoint, float, bool]:
        """Return the next point, the next initial step length, and whether any step was promising enough to be tried."""
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

    def check(self, point: TwoLayerPoint, layer: Layer) -> None:
        """Raise an error for a kernel that is not positive semi-definite, if the solver met negative curvature."""
        if point.indefinite and not self._kernels_checked:
            self._kernels_checked = True
            assert isinstance(layer, LayerGrams)
            refuse_indefinite(layer)

    def best(self, state: TwoLayerState) -> tuple[LayerState, ...]:
        """Return the start with the smallest objective for every one-vs-rest SVM."""
        starts = len(state.machines) // len(self.problems)
        groups = [state.machines[first : first + starts] for first in range(0, len(state.machines), starts)]
        return tuple(min(group, key=lambda machine: machine.value) for group in groups)

    def end_round(self, state: TwoLayerState, resources: Resources) -> TwoLayerState:
        """Keep the best starts, and stop or add kernels."""
        state = replace(state, machines=self.best(state))
        count = self.config.max_new_kernels - len(state.widths) if self.config.infinite else 0
        widths = self._choose_widths(state, resources)[:count] if count > 0 else []
        if widths:
            return self._add_kernels(state, widths, resources)
        return replace(state, stop=joint_stop([machine.stop for machine in state.machines], UNFINISHED))

    def _choose_widths(self, state: TwoLayerState, resources: Resources) -> list[float]:
        """Return the widths that improve any SVM, in descending order of gain. Return an empty list if the last added kernel has weight
        zero in all SVMs.
        """
        if len(state.widths) and not any(machine.mu[-1] > 0.0 for machine in state.machines):
            return []
        grams = self.grams(state.widths, resources)
        candidates = [best_candidate(self.config, self.penalty, grams, machine.point(), self.weight) for machine in state.machines]
        helpful = [one for one in candidates if one is not None and one.gain > self.config.tol * self.penalty]
        widths = [one.width for one in sorted(helpful, key=lambda one: (-one.gain, one.width))]
        # A kernel that is there already may seem to help a machine that stopped before its optimum.
        return list(dict.fromkeys(width for width in widths if not np.isclose(width, state.widths, rtol=SAME_WIDTH_TOL).any()))

    def _add_kernels(self, state: TwoLayerState, added: list[float], resources: Resources) -> TwoLayerState:
        widths, count = np.append(state.widths, added), len(state.machines)
        machines = [
            self._add_to_machine(machine, len(added), self.machine(index, count, widths, resources))
            for index, machine in enumerate(state.machines)
        ]
        return replace(state, widths=widths, machines=tuple(machines))

    def _add_to_machine(self, machine: LayerState, added: int, problem: TwoLayerObjective) -> LayerState:
        """Return the state with the new kernels added at weight zero. With ``rule="thesis"``, if the objective does not decrease from these
        weights, the new kernels get a small weight, unless this increases the objective.
        """
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

    def metrics(self, state: TwoLayerState) -> dict[str, Any]:
        """Return the quantities that a step records."""
        machines, unit = self.best(state), self.problems[0].unit
        figures = {
            "objective": float(sum(machine.value + machine.gap for machine in machines)),
            "gap": float(sum(machine.gap for machine in machines)),
            "violation": max(machine.point().violation(self.penalty) for machine in machines),
            "weight_sum": float(sum(machine.mu.sum() for machine in machines)),
            "n_selected": max(int(np.count_nonzero(machine.mu)) for machine in machines),
            "n_kernels": len(self.specs) + len(state.widths),
            "machines": sum(machine.stop is None for machine in state.machines),
            **accuracy_metrics(self.fits, {m: unit.values(machine.decision) for m, machine in enumerate(machines)}),
        }
        return unit.figures(figures)


def most_new_kernels(config: TwoLayerConfig) -> int:
    """Return the largest number of kernels that may be added, including those that are only tried."""
    return config.max_new_kernels + N_WIDTHS if config.infinite else 0


def layer_bytes(n: int) -> int:
    """Return the memory in bytes of the second layer of n rows in double precision, and of the solver's copy."""
    return 16 * n * n


def resolve_penalty(config: TwoLayerConfig, n_rows: float) -> float:
    """Return the weight of the sum of the kernel weights: ``config.penalty``, or a tenth of the trace of a normalised kernel over the
    training rows.
    """
    return PENALTY_SHARE * (1 if config.normalize == "unit_trace" else n_rows) if config.penalty is None else config.penalty


def refuse_indefinite(grams: LayerGrams) -> None:
    """Raise a DataError if a kernel is not positive semi-definite, beyond rounding, on some rows; the message names the kernel."""
    for spec, gram in zip(grams.specs, grams.corner(N_CHECKED_ROWS), strict=True):
        values = np.linalg.eigvalsh(gram.astype(np.float64))
        if values[0] < -MIN_NEGATIVE_SHARE * max(float(values[-1]), -float(values[0])):
            raise DataError(f"kernel {spec} is not positive semi-definite: least eigenvalue {values[0]:.3g} on the first {len(gram)} rows")

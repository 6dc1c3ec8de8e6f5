"""Two-layer multiple kernel learning as a method: problem from a store, model, summary and tables from the final state."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....kernels.bank.two_layer import first_length
from ...core.method import Method
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step, ended_early
from ...grams.settings import PLACES, check_machines
from ...inputs.kernel_checks import emit_warnings, kernel_warnings
from ...inputs.kernels import gram_settings, resolved_kernels, with_decided_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.scores import held_out_rows, scores_of
from ...models.build import build_model
from ...models.kernel import KernelModel
from ...models.model import Tables
from ...models.tables import followed_tables
from .config import TwoLayerConfig
from .problem import UNFINISHED, LayerState, TwoLayerProblem, TwoLayerState, layer_bytes, most_new_kernels

LAYER_SHARE = 0.5  # share of the driver's memory for the second layer and the solver's copy of it; beyond it passes answer for the layer


class TwoLayer(Method[TwoLayerConfig, TwoLayerProblem, TwoLayerState, KernelModel]):
    """Support vector machines on the exponential of a weighted sum of kernels, with learnt weights."""

    name = "two-layer-mkl"
    config = TwoLayerConfig
    state = TwoLayerState
    models = (KernelModel,)

    def read_inputs(self, config: TwoLayerConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[TwoLayerConfig, Inputs]:
        """Return the parameters, and the target and weights of a store; ``extra`` may contain ``test_share``."""
        config, inputs = with_gram_store(config, store_inputs(resources, self.name))
        return config, inputs.without(held_out_rows(extra, inputs.target, resources.seed, inputs.classes))

    def problem(self, config: TwoLayerConfig, inputs: Inputs, resources: Resources) -> TwoLayerProblem:
        """Return the problem of a fit. Raises ValueError for kernels that do not suit the data, and MemoryBoundExceeded if kernels or rows
        exceed the memory.
        """
        config, data = with_decided_kernels(config, inputs.data, resources, inputs.counts), inputs.data
        if config.infinite and data.holds != "columns":
            raise ValueError("infinite=True computes Gaussian kernels from features; strings and given matrices have none")
        specs, n = tuple(resolved_kernels(config.kernels, data, config.normalize)), data.n_rows
        # Blocks are small enough for all the kernels that there may be at the end.
        all_specs = [*specs, *specs[:1] * most_new_kernels(config)]
        settings = gram_settings(config, all_specs, data, resources, inputs.counts)
        by_passes = layer_bytes(n) > LAYER_SHARE * resources.fit_limit
        if by_passes and settings.policy == "memory":
            # Passes go over block pairs, of which a bank has none.
            reason = f"{PLACES['recompute']}: the second layer is beyond the driver's memory"
            settings = replace(settings, policy="recompute", reason=reason)
        problem = TwoLayerProblem(
            config, inputs, specs, tuple(dual_problems(config, inputs, config.epsilon)), settings, by_passes, resources
        )
        check_machines(settings, problem.driver_items(), n, len(all_specs), resources, self.name)
        return problem

    def init(self, problem: TwoLayerProblem, resources: Resources) -> TwoLayerState:
        """Return the initial state: the SVMs at random weights."""
        none, rng = np.zeros(0), np.random.default_rng(resources.seed)
        grams, count = problem.grams(none, resources), len(problem.problems) * problem.config.n_restarts
        emit_warnings(grams, resources)
        heights = np.average(grams.diagonals(), axis=1, weights=problem.weight)
        machines = []
        for index in range(count):
            point = problem.machine(index, count, none, resources).start(rng, heights)
            problem.check(point, grams)
            machines.append(LayerState.at(point, first_length(point, problem.penalty), np.zeros((0, grams.k))))
        return TwoLayerState(0, tuple(machines), none)

    def step(self, problem: TwoLayerProblem, state: TwoLayerState, resources: Resources) -> Step[TwoLayerState]:
        """Take one step from every start that has not ended. When all have ended, keep the best starts and search for a new kernel."""
        count = len(state.machines)
        machines = tuple(
            machine if machine.stop else problem.move(machine, problem.machine(index, count, state.widths, resources))
            for index, machine in enumerate(state.machines)
        )
        new = replace(state, iteration=state.iteration + 1, machines=machines)
        metrics = problem.metrics(new)
        return Step(problem.end_round(new, resources) if all(machine.stop for machine in machines) else new, metrics)

    def result(self, problem: TwoLayerProblem, state: TwoLayerState, resources: Resources) -> Result[KernelModel]:
        """Return the model with the last weights, which are the best weights, with certificates and the numbers of selected kernels and
        rows.
        """
        machines, idle = problem.best(state), _idle_machines(problem, state)
        for message in idle:
            resources.emit({"event": "warning", "message": message})
        unit = problem.problems[0].unit
        figures: dict[str, float] = {
            "objective": float(sum(machine.value + machine.gap for machine in machines)),
            "machine_gap": float(sum(machine.gap for machine in machines)),
            "violation": max(machine.point().violation(problem.penalty) for machine in machines),
            "penalty": problem.penalty,
            "iterations": float(state.iteration),
            "converged": float(state.stop not in UNFINISHED),
        }
        grams, bias = problem.grams(state.widths, resources), np.array([machine.bias for machine in machines])
        mu, beta = np.stack([machine.mu for machine in machines]), np.stack([machine.beta for machine in machines])
        arrays = {**{f"weights_path_{m}": machine.path for m, machine in enumerate(machines)}, "new_gammas": state.widths}
        figures = {**unit.figures(figures), "machine_gap": unit.size**2 * figures["machine_gap"]}
        model = replace(
            build_model(problem.config, problem.inputs, grams, mu, beta, bias, {}, arrays, unit=unit), layers=2, figures=figures
        )
        reason = "a line search that found nothing lower" if state.stop == "flat" else "max_iter={0.max_iter}"
        return Result(
            model,
            state.stop,
            objective=figures["objective"],
            gap=figures["machine_gap"],
            certified_over="the SVMs, at these weights of the kernels",
            figures={
                "violation": figures["violation"],
                "penalty": problem.penalty,
                "n_selected": len(model.used),
                "n_kernels": int(model.theta.shape[1]),
                "n_new_kernels": len(state.widths),
                "n_support": len(model.support_ids),
                "classes": json.loads(model.classes_json),
            },
            warnings=[*kernel_warnings(grams), *idle],
            unfinished=f"{ended_early(problem.config, reason)}; the projected gradient is {figures['violation']:.2g}",
            scores=partial(self._scores, problem, state, resources),
        )

    def _scores(self, problem: TwoLayerProblem, state: TwoLayerState, resources: Resources) -> dict[str, Any]:
        return scores_of(problem.inputs, self.decision_values(problem, state, resources))

    def decision_values(self, problem: TwoLayerProblem, state: TwoLayerState, resources: Resources) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return problem.problems[0].unit.values(np.stack([machine.decision for machine in problem.best(state)]))

    def tables(
        self, model: KernelModel, names: Sequence[str] | None = None, fit: tuple[TwoLayerProblem, TwoLayerState] | None = None
    ) -> Tables:
        """Return the kernels by weight, and the largest weights along the iterations; if there are several classes, for each class."""
        return followed_tables(model, names)


def _idle_machines(problem: TwoLayerProblem, state: TwoLayerState) -> list[str]:
    """Return a warning if models have no kernel with non-zero weight, so that every row gets the same decision value."""
    idle = [m for m, machine in enumerate(problem.best(state)) if not machine.mu.any()]
    if not idle:
        return []
    answer = "prediction" if problem.inputs.classes is None else "decision value"
    which = "" if len(problem.problems) == 1 else f" for class {', '.join(repr(problem.inputs.labels[m]) for m in idle)}"
    return [
        f"no kernel has a weight{which}: penalty={problem.penalty:g} is too large for C={problem.config.C:g}, so every row gets the same "
        f"{answer}; raise C or lower penalty"
    ]

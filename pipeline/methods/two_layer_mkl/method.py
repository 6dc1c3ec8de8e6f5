"""Two-layer multiple kernel learning as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ....storage import DataError
from ...core.memory import Item, driver_plan
from ...grams.plans import BLOCKS_WORK, SUM_WORK, GramPasses
from ...grams.settings import PLACES, GramSettings
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import check_machines, vectors_item
from ...inputs.scores import AccuracyTracker, held_out_rows
from ...method import Method, followed_tables
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...records.context import RunContext
from .config import TwoLayerConfig
from .layer_pass import layer_pass_bytes
from .loop import UNFINISHED, TwoLayerLoop, TwoLayerState
from .new_kernels import N_WIDTHS

LAYER_WORK = ("second layer", "sums of the kernels weighted by it")
LAYER_SHARE = 0.5  # share of the driver's memory for the second layer and the solver's copy of it; beyond it passes answer for the layer


class TwoLayer(Method):
    """Support vector machines on the exponential of a weighted sum of kernels, weights learnt with them."""

    name = "two-layer-mkl"
    config_type = TwoLayerConfig
    models = {KernelModel: KernelPredictor()}

    config: TwoLayerConfig
    inputs: Inputs
    loop: TwoLayerLoop

    @classmethod
    def read_inputs(cls, config: TwoLayerConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[TwoLayerConfig, Inputs]:
        """Return parameters, and target and weights of a store; ``extra`` may hold ``test_share``. Raises DataError: the target is
        real-valued.
        """
        config, inputs = with_gram_store(config, store_inputs(ctx, cls.name))
        if inputs.classes is None:
            raise DataError(f"the target is real-valued; {cls.name} separates classes (ingest with --task classification)", ctx.data.url)
        return config, inputs.without(held_out_rows(extra, inputs.target, ctx.seed, inputs.classes))

    @classmethod
    def build_loop(cls, config: TwoLayerConfig, inputs: Inputs, ctx: RunContext) -> TwoLayerLoop:
        """Return the loop of a fit. Raises ValueError: kernels that do not suit the data; MemoryBoundExceeded: more kernels or rows than
        the memory allows.
        """
        data = inputs.data
        if config.infinite and data.holds != "columns":
            raise ValueError("infinite=True computes Gaussian kernels from features; strings and given matrices have none")
        specs, n = resolved_kernels(config.kernels, data, config.normalize), data.n_rows
        # Blocks are small enough for all the kernels that there may be at the end.
        all_specs = [*specs, *specs[:1] * _max_new_kernels(config)]
        settings = gram_settings(config, all_specs, data, ctx, inputs.counts)
        by_passes = _layer_bytes(n) > LAYER_SHARE * ctx.fit_limit
        if by_passes and settings.policy == "memory":
            # Passes go over block pairs, of which a bank has none.
            reason = f"{PLACES['recompute']}: the second layer is beyond the driver's memory"
            settings = replace(settings, policy="recompute", reason=reason)
        items = _driver_items(settings, n, len(all_specs), inputs.n_machines * config.n_restarts, by_passes, ctx.driver_memory)
        check_machines(settings, items, n, len(all_specs), ctx, cls.name)
        trackers = (AccuracyTracker(0, inputs.n_machines, inputs.target, inputs.held_out),)
        problems, given = dual_problems(config, inputs), given_grams_or_none(data)
        return TwoLayerLoop(config, specs, problems, settings, trackers, given, by_passes, inputs.sample_weight)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task and of the driver."""
        config, loop, n = self.config, self.loop, self.ctx.data.n_rows
        n_machines, n_new = len(loop.problems) * config.n_restarts, _max_new_kernels(config)
        items = _driver_items(loop.settings, n, len(loop.specs) + n_new, n_machines, loop.layer_by_passes, self.ctx.driver_memory)
        passes = self._passes(n_new)
        return {
            **loop.settings.describe(n, len(loop.specs)),
            **driver_plan(items),
            "machines": n_machines,
            "penalty": loop.penalty,
            "new_kernels_at_most": config.max_new_kernels if config.infinite else 0,
            "iterations_at_most_per_round": config.max_iter,
            "tasks_per_pass": len(passes.refs),
            "task_bytes": max(self._steps(passes, n_new)),
            "second_layer": "by passes" if loop.layer_by_passes else "on the driver",
            "second_layer_bytes": _layer_bytes(n),
        }

    def _passes(self, n_new: int) -> GramPasses:
        """Return the passes over the first layer with as many new kernels as it may have, those that are only tried among them."""
        loop = self.loop
        ctx = self.ctx if loop.data is None else replace(self.ctx, data=loop.data)
        return GramPasses(ctx, loop.kernels(np.ones(n_new)), loop.settings)

    def _steps(self, passes: GramPasses, n_new: int) -> list[int]:
        """Return the bytes of what makes both layers, asks them, tries new kernels, and answers a solver."""
        loop, refs, block = self.loop, passes.refs, passes.settings.block
        steps = [passes.load(), passes.solver() if loop.layer_by_passes else 0]
        if n_new:
            steps.append(replace(passes, settings=replace(loop.settings, policy="recompute")).load())
        if n_new or not passes.is_here:
            steps.append(layer_pass_bytes(refs, passes.k, block, whole=not (loop.layer_by_passes or passes.is_here)))
        return steps

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        if self.loop.settings.policy == "memory":
            return (BLOCKS_WORK,)
        return (BLOCKS_WORK, *LAYER_WORK, *(SUM_WORK if self.loop.layer_by_passes else ()))

    def model(self, state: TwoLayerState, ctx: RunContext) -> KernelModel:
        """Return the model of the last weights, which are the best."""
        loop, machines = self.loop, self.loop.best(state)
        for message in self._idle_machines(state):
            ctx.emit({"event": "warning", "message": message})
        figures = {
            "objective": float(sum(machine.value + machine.gap for machine in machines)),
            "machine_gap": float(sum(machine.gap for machine in machines)),
            "violation": max(machine.point().violation(loop.penalty) for machine in machines),
            "penalty": loop.penalty,
            "iterations": float(state.iteration),
            "converged": float(state.stop not in UNFINISHED),
        }
        grams, bias = loop.grams(state.widths, ctx), np.array([machine.bias for machine in machines])
        mu, beta = np.stack([machine.mu for machine in machines]), np.stack([machine.beta for machine in machines])
        arrays = {**{f"weights_path_{m}": machine.path for m, machine in enumerate(machines)}, "new_gammas": state.widths}
        return replace(build_model(self.config, self.inputs, grams, mu, beta, bias, figures, arrays), layers=2)

    def decision_values(self, state: TwoLayerState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return np.stack([machine.decision for machine in self.loop.best(state)])

    def warnings(self, state: TwoLayerState, model: KernelModel, ctx: RunContext) -> list[str]:
        """Return which kernels add nothing, or nothing new, and which machines have no kernel."""
        return [*kernel_warnings(self.loop.grams(state.widths, ctx)), *self._idle_machines(state)]

    def _idle_machines(self, state: TwoLayerState) -> list[str]:
        """Return a message where machines have no kernel with a weight: they give every row the same decision."""
        loop, labels = self.loop, self.inputs.labels
        names = [repr(labels[m]) for m, machine in enumerate(loop.best(state)) if not machine.mu.any()]
        if not names:
            return []
        which = "" if len(loop.problems) == 1 else f" for class {', '.join(names)}"
        return [
            f"no kernel has a weight{which}: penalty={loop.penalty:g} is too large for C={self.config.C:g}, and all rows get one decision; "
            "raise C or lower penalty"
        ]

    def summary(self, state: TwoLayerState, model: KernelModel) -> dict[str, Any]:
        """Return objective and certificates, and how many kernels and rows were selected."""
        return {
            "objective": model.figures["objective"],
            "gap": model.figures["machine_gap"],
            "certified_over": "the machines, at these weights of the kernels",
            "violation": model.figures["violation"],
            "penalty": model.figures["penalty"],
            "n_selected": len(model.used),
            "n_kernels": int(model.theta.shape[1]),
            "n_new_kernels": len(state.widths),
            "n_support": len(model.support_ids),
            "stop": state.stop,
            "classes": json.loads(model.classes_json),
        }

    def tables(self, state: TwoLayerState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and the weights of the heaviest along the iterations; by class for several."""
        return self.model_tables(model, self.column_names)

    @classmethod
    def model_tables(cls, model: KernelModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does."""
        return followed_tables(model, names)


def _max_new_kernels(config: TwoLayerConfig) -> int:
    return config.max_new_kernels + N_WIDTHS if config.infinite else 0


def _layer_bytes(n: int) -> int:
    """Return the bytes of the second layer of n rows in double precision, and of the solver's copy of it."""
    return 16 * n * n


def _driver_items(settings: GramSettings, n: int, k: int, machines: int, by_passes: bool, driver_memory: int) -> tuple[Item, ...]:
    """Return what the driver holds of k kernels in the first layer: their entries, the second layer, vectors of the machines."""
    working_set = "a solver's working set of the second layer", int(MATRIX_SHARE * driver_memory)
    layer = working_set if by_passes else ("second layer in double precision, and the solver's copy of it", _layer_bytes(n))
    return settings.items(n, k, driver_memory)[0], layer, vectors_item(n, machines)

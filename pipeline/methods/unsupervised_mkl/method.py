"""Unsupervised multiple kernel learning as a method: from rows to a loop, from its state to kernel principal components and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...core.memory import check_memory, driver_plan
from ...grams.grams import Grams
from ...grams.plans import GramPasses
from ...inputs.kernels import gram_settings, resolved_kernels
from ...inputs.labels import Inputs
from ...method import Method, kernel_rows, weight_tables
from ...models.kernel import KernelModel, kernel_names
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...records.context import RunContext
from ...records.data_set import DataSet
from .components import Components, components_by_passes, principal_components
from .config import UMKLConfig
from .loop import UMKLLoop, UMKLState
from .memory import choose_way
from .sums_pass import PassGrams
from .sweeps import largest_step, pass_figures


@dataclass(frozen=True)
class UMKLInputs:
    """The rows; there is no target."""

    data: DataSet


class UMKL(Method):
    """Kernel weights under which every row is rebuilt from a few similar ones."""

    name = "unsupervised-mkl"
    config_type = UMKLConfig
    models = {KernelModel: KernelPredictor()}
    programs = "methods.unsupervised_mkl.strips_pass"

    config: UMKLConfig
    inputs: UMKLInputs
    loop: UMKLLoop

    @classmethod
    def read_inputs(cls, config: UMKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[UMKLConfig, UMKLInputs]:
        """Return parameters and rows; a target is not read."""
        return config, UMKLInputs(ctx.data)

    @classmethod
    def build_loop(cls, config: UMKLConfig, inputs: UMKLInputs, ctx: RunContext) -> UMKLLoop:
        """Return the loop of a fit. Raises ValueError: data without coordinates (strings, matrices), or fewer than two rows;
        MemoryBoundExceeded: more rows than the driver's memory allows.
        """
        data = ctx.data
        if data.holds != "columns":
            raise ValueError(
                "unsupervised MKL rebuilds samples from others, so it needs their features: no strings, no precomputed kernels"
            )
        if data.n_rows < 2:
            raise ValueError(f"n_samples={data.n_rows}: every sample is rebuilt from others, so there must be at least 2")
        n_bases = min(config.n_bases, data.n_rows - 1)
        if n_bases < config.n_bases:
            ctx.doubt(f"n_bases={config.n_bases} exceeds the {n_bases} other samples")
        specs = resolved_kernels(config.kernels, data, "none" if config.normalize == "column_sum" else config.normalize)
        way = choose_way(config, gram_settings(config, specs, data, ctx), data, len(specs), n_bases, ctx.driver_memory)
        check_memory(cls.name, way.items, ctx, "fewer rows or kernels")
        return UMKLLoop(config, specs, way.settings, n_bases, way.by_passes)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task."""
        loop, ctx, n = self.loop, self.ctx, self.ctx.data.n_rows
        way = choose_way(self.config, loop.settings, ctx.data, len(loop.specs), loop.n_bases, ctx.driver_memory)
        passes = GramPasses(ctx, loop.specs, loop.settings)
        return {
            **loop.settings.describe(n, len(loop.specs)),
            **driver_plan(way.items),
            "points": "by passes" if loop.by_passes else "in this process",
            "n_bases": loop.n_bases,
            "iterations_at_most": self.config.max_iter,
            **(pass_figures(self.config, passes, loop.n_bases) if loop.by_passes else self._whole_figures(passes)),
        }

    def _whole_figures(self, passes: GramPasses) -> dict[str, int]:
        """Return tasks of a pass, and the memory of the largest step, where whole matrices are in this process."""
        n_bases, largest = self.loop.n_bases, 0
        if self.config.normalize == "column_sum":
            largest = largest_step(passes, n_bases)
        steps = (passes.load(), passes.sum(), passes.entries(passes.n * n_bases), largest)
        return {"tasks_per_pass": len(passes.refs), "task_bytes": max(steps)}

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        by_passes = "bases of the points and terms of the weights", "products for the components"
        return ("Gram blocks", *(by_passes if self.loop.by_passes else ()))

    def model(self, state: UMKLState, ctx: RunContext) -> KernelModel:
        """Return the model: one machine per principal component of the learnt kernel."""
        grams, weights = self.loop.grams(ctx), state.weights * self.loop.factors(ctx)
        found, count = self._components(grams, weights), self.config.n_components
        figures = {"objective": float(state.objective), "qp_gap": float(state.qp_gap), "iterations": float(state.iteration)}
        figures["converged"] = float(state.stop != "max_iter")
        figures |= {"component_residual": found.residual} if self.loop.by_passes else {}
        inputs = Inputs(ctx.data, np.zeros(grams.n), None)
        arrays = {"weights": state.weights, "bases": state.bases, "eigenvalues": found.eigenvalues}
        return build_model(self.config, inputs, grams, np.tile(weights, (count, 1)), found.beta, found.intercepts, figures, arrays)

    def _components(self, grams: Grams, weights: np.ndarray) -> Components:
        if isinstance(grams, PassGrams):
            return components_by_passes(grams.total(weights), self.config.n_components)
        return principal_components(grams, weights, self.config.n_components)

    def summary(self, state: UMKLState, model: KernelModel) -> dict[str, Any]:
        """Return the objective, and how many kernels have a weight."""
        return {
            "objective": float(state.objective),
            "gap": float(state.qp_gap),
            "certified_over": "the weights, for these bases",
            "n_selected": int(np.count_nonzero(state.weights)),
            "n_kernels": len(state.weights),
            "stop": state.stop,
        }

    def tables(self, state: UMKLState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and the weights of the heaviest along the rounds."""
        return weight_tables(kernel_names(model, self.column_names), [0], state.weights[None], [state.path])

    @classmethod
    def model_tables(cls, model: KernelModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight."""
        return {"kernels": kernel_rows(kernel_names(model, names), [0], model.arrays["weights"][None])}

"""Multiple kernel learning as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from ...core.memory import driver_plan
from ...grams.plans import GramPasses, sum_plan, sum_work
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import check_machines, machines_items
from ...inputs.scores import AccuracyTracker, R2Tracker, held_out_rows, with_held_out
from ...loops.kernel_weights import MIN_KERNELS_TO_SHRINK, continue_search
from ...loops.weight_steps import uses_model
from ...method import Method, bound_figures, bounds_summary, followed_tables
from ...models.kernel import KernelModel, is_selected
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...records.context import RunContext
from .config import MKLConfig
from .forms import cuts_at_once
from .loop import UNFINISHED, MKLLoop, MKLState
from .single_kernel_loop import SingleLoop


class MKL(Method):
    """Support vector machines on a weighted sum of kernels, weights learnt with them."""

    name = "mkl"
    config_type = MKLConfig
    models = {KernelModel: KernelPredictor()}
    starts_from_whole = True
    fold_tols = {"tol": 1e-2}

    config: MKLConfig
    inputs: Inputs
    loop: MKLLoop

    @classmethod
    def read_inputs(cls, config: MKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[MKLConfig, Inputs]:
        """Return parameters, and target and weights of a store; ``extra`` may hold ``test_share``."""
        config, inputs = with_gram_store(config, store_inputs(ctx, cls.name))
        return config, with_held_out(inputs, held_out_rows(extra, inputs.target, ctx.seed, inputs.classes))

    @classmethod
    def build_loop(cls, config: MKLConfig, inputs: Inputs, ctx: RunContext) -> MKLLoop:
        """Return the loop of a fit. Raises ValueError: kernels that do not suit the data; MemoryBoundExceeded: more of them than the memory
        allows.
        """
        return shared_loop(ctx, [config], inputs, [inputs.held_out])

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task."""
        loop, n, machines = self.loop, self.ctx.data.n_rows, len(self.loop.problems)
        settings = loop.settings
        assert settings is not None
        passes = GramPasses(loop.grams.over(self.ctx), loop.specs, settings)
        return {
            **settings.describe(n, len(loop.specs)),
            **driver_plan(machines_items(settings, n, len(loop.specs), machines, self.ctx.driver_memory)),
            "machines": machines,
            "iterations_at_most": self.config.max_iter,
            **sum_plan(passes, *self._form_bytes(passes)),
        }

    def _form_bytes(self, passes: GramPasses) -> list[int]:
        """Return the bytes of forms of all machines, of cuts where kernels may have left, and of products where models may be made."""
        loop = self.loop
        vectors = [len(loop.problems)]
        if len(loop.specs) >= MIN_KERNELS_TO_SHRINK:
            vectors.append(min(cuts_at_once(passes.k, passes.n), max(config.max_iter for config in loop.configs)))
        pairs = zip(loop.configs, loop.domains, strict=True)
        models = sum(uses_model(config.solver, domain) for config, domain in pairs) if passes.holds_sum else 0
        return [*map(passes.forms, vectors), *([passes.products(models)] if models else [])]

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        settings = self.loop.settings
        assert settings is not None
        return sum_work(settings, self.ctx.data.n_rows, self.ctx.driver_memory)

    @classmethod
    def shared_fits(cls, configs: Sequence[MKLConfig], inputs: Inputs, masks: Sequence[np.ndarray], ctx: RunContext) -> Self | None:
        """Return one run of fits without the rows of every mask: they share Gram matrices and passes. Fits that choose one kernel by folds
        of their own do not.
        """
        if any(config.solver == "single" for config in configs):
            return None
        return cls(configs[0], inputs, shared_loop(ctx, configs, inputs, masks), ctx)

    def warm_start(self, fresh: MKLState, before: MKL, last: MKLState) -> MKLState:
        """Return what the searches before ended with, as far as it holds for another C."""
        if self.config.solver == "uniform":
            return fresh
        scale, parts = self.config.C / before.config.C, zip(fresh.machines, last.machines, self.loop.problems, strict=True)
        return replace(fresh, machines=tuple(continue_search(one, end, problem, scale) for one, end, problem in parts))

    def fold_start(self, fresh: MKLState, whole: MKL, last: MKLState) -> MKLState:
        """Return the weights and coefficients of all rows."""
        if self.config.solver in ("uniform", "single"):
            return fresh
        ends = last.machines * (len(fresh.machines) // len(last.machines))
        pairs = zip(fresh.machines, ends, strict=True)
        return replace(fresh, machines=tuple(replace(one, theta=end.best_theta, beta=end.best_beta) for one, end in pairs))

    def model(self, state: MKLState, ctx: RunContext) -> KernelModel:
        """Return the model of the best weights."""
        machines = state.machines
        figures = bound_figures(machines, state, UNFINISHED)
        theta, beta = np.stack([one.best_theta for one in machines]), np.stack([one.best_beta for one in machines])
        paths, biases = {f"weights_path_{m}": one.path for m, one in enumerate(machines)}, np.array([one.best_bias for one in machines])
        unit = self.loop.problems[0].unit
        return build_model(self.config, self.inputs, self.loop.grams(ctx), theta, beta, biases, figures, paths, unit=unit)

    def decision_values(self, state: MKLState, ctx: RunContext) -> np.ndarray:
        """Return the decision values of all rows, ``(n_machines, n_samples)``."""
        return self.loop.decision_values(state)

    def warnings(self, state: MKLState, model: KernelModel, ctx: RunContext) -> list[str]:
        """Return which kernels add nothing, or nothing new."""
        return kernel_warnings(self.loop.grams(ctx))

    def summary(self, state: MKLState, model: KernelModel) -> dict[str, Any]:
        """Return bounds, and how many kernels and rows were selected."""
        return {
            **bounds_summary(model, "all kernels"),
            "n_selected": int(np.sum(np.any([is_selected(row, self.config.threshold) for row in model.theta], axis=0))),
            "n_kernels": int(model.theta.shape[1]),
            "n_support": len(model.support_ids),
            "stop": state.stop,
            "classes": json.loads(model.classes_json),
        }

    def tables(self, state: MKLState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and the weights of the heaviest along the iterations; by class, where several."""
        return self.model_tables(model, self.column_names)

    @classmethod
    def model_tables(cls, model: KernelModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does."""
        return followed_tables(model, names)


def shared_loop(ctx: RunContext, configs: Sequence[MKLConfig], inputs: Inputs, masks: Sequence[np.ndarray | None]) -> MKLLoop:
    """Return one loop for the fits with all parameters on all masks of rows held out; they share Gram matrices and passes."""
    first = configs[0]
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    settings = gram_settings(first, specs, inputs.data, ctx, inputs.counts)
    problems, trackers, machine_configs = [], [], []
    for config in configs:
        for mask in masks:
            machines = dual_problems(config, with_held_out(inputs, mask), config.epsilon)
            if inputs.classes is None:
                trackers.append(R2Tracker(len(problems), inputs.target, mask))
            else:
                trackers.append(AccuracyTracker(len(problems), len(machines), inputs.target, mask))
            problems += machines
            machine_configs += [config] * len(machines)
    items = machines_items(settings, ctx.data.n_rows, len(specs), len(problems), ctx.driver_memory)
    check_machines(settings, items, ctx.data.n_rows, len(specs), ctx, MKL.name)
    kind = SingleLoop if first.solver == "single" else MKLLoop
    return kind(first, specs, problems, settings, trackers, given_grams_or_none(inputs.data), machine_configs)

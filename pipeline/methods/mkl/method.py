"""Multiple kernel learning as a method: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...grams.grams import pass_groups
from ...grams.sources import pair_bytes, row_pairs
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import HELD, machines_held, refuse_machines
from ...inputs.scores import AccuracyTracker, R2Tracker, held_out_rows, with_held_out
from ...method import Method
from ...models.kernel import KernelModel, is_selected
from ...models.kernel_build import build_model
from ...models.kernel_predict import KernelPredictor
from ...records.context import RunContext
from ...records.holdings import holdings_plan
from .config import MKLConfig
from .loop import UNFINISHED, MKLLoop, MKLState
from .single_kernel_loop import SingleLoop

N_SHOWN = 20  # kernels whose weights a report follows along the iterations


class MKL(Method):
    """Support vector machines on a weighted sum of kernels, weights learnt with them."""

    name = "mkl"
    config_type = MKLConfig
    models = {KernelModel: KernelPredictor()}
    held = HELD

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
        """Return the loop of a fit.

        Raises ValueError: kernels that do not suit the data; MemoryBoundExceeded: more of them than the memory allows.
        """
        return shared_loop(ctx, [config], inputs, [inputs.held_out], ctx.fit_limit)

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Gram policy, tasks of a pass, memory of a task."""
        loop, n, machines = self.loop, self.ctx.data.n_rows, len(self.loop.problems)
        settings = loop.settings
        assert settings is not None
        refs = row_pairs(self.ctx.data if loop.data is None else loop.data, loop.specs, settings.block)
        return {
            **settings.describe(n, len(loop.specs)),
            **holdings_plan(machines_held(settings, n, len(loop.specs), machines, self.ctx.driver_memory)),
            "machines": machines,
            "iterations_at_most": self.config.max_iter,
            "tasks_per_pass": len(pass_groups(refs)),
            "task_bytes": int(max(pair_bytes(ref) for ref in refs)) + 8 * n * machines,
        }

    def model(self, state: MKLState, ctx: RunContext) -> KernelModel:
        """Return the model of the best weights."""
        machines = state.machines
        figures = {
            "lower_bound": float(sum(machine.lower for machine in machines)),
            "upper_bound": float(sum(machine.upper for machine in machines)),
            "iterations": float(state.iteration),
            "converged": float(state.stop not in UNFINISHED),
        }
        return build_model(
            self.config,
            self.inputs,
            self.loop.grams(ctx),
            np.stack([machine.best_theta for machine in machines]),
            np.stack([machine.best_beta for machine in machines]),
            np.array([machine.best_bias for machine in machines]),
            figures,
            {f"weights_path_{m}": machine.path for m, machine in enumerate(machines)},
        )

    def warnings(self, state: MKLState, model: KernelModel, ctx: RunContext) -> list[str]:
        """Return which kernels add nothing, or nothing new."""
        return kernel_warnings(self.loop.grams(ctx))

    def summary(self, state: MKLState, model: KernelModel) -> dict[str, Any]:
        """Return bounds, and how many kernels and rows were selected."""
        upper, lower = model.figures["upper_bound"], model.figures["lower_bound"]
        return {
            "objective": upper,
            "gap": upper - lower,
            "certified_over": "all kernels",
            "lower_bound": lower,
            "upper_bound": upper,
            "n_selected": int(np.sum(np.any([is_selected(row, self.config.threshold) for row in model.theta], axis=0))),
            "n_kernels": int(model.theta.shape[1]),
            "n_support": len(model.support_ids),
            "stop": state.stop,
            "classes": json.loads(model.classes_json),
        }

    def tables(self, state: MKLState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels by weight, and the weights of the heaviest along the iterations; by class, where several."""
        machines = [str(label) for label in self.inputs.classes or ()] if len(state.machines) > 1 else [""]
        theta = np.stack([machine.best_theta for machine in state.machines])
        order = np.lexsort((np.arange(theta.shape[1]), -theta.max(axis=0)))
        order = order[theta.max(axis=0)[order] > 0]
        names = [str(spec) for spec in self.loop.specs]
        kernels = [{"kernel": names[q], **_weights(theta[:, q], machines)} for q in order]
        path = [
            {"machine": name, "iteration": t + 1, **{names[q]: float(row[q]) for q in order[:N_SHOWN]}}
            for name, machine in zip(machines, state.machines, strict=True)
            for t, row in enumerate(machine.path)
        ]
        return {"kernels": kernels, "weights": path}


def shared_loop(ctx: RunContext, configs: Sequence[MKLConfig], inputs: Inputs, masks: Sequence[np.ndarray | None], limit: int) -> MKLLoop:
    """Return one loop for the fits with all parameters on all masks of rows held out; they share Gram matrices and passes.

    ``limit`` bounds the bytes of matrices in memory, and of one block pair of all kernels.
    """
    first = configs[0]
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    settings = gram_settings(first, specs, inputs.data, ctx)
    problems, trackers, machine_configs = [], [], []
    for config in configs:
        for mask in masks:
            machines = dual_problems(config, with_held_out(inputs, mask), config.epsilon)
            trackers.append(
                R2Tracker(len(problems), inputs.target, mask)
                if inputs.classes is None
                else AccuracyTracker(len(problems), len(machines), inputs.target, mask)
            )
            problems += machines
            machine_configs += [config] * len(machines)
    holdings = machines_held(settings, ctx.data.n_rows, len(specs), len(problems), ctx.driver_memory)
    refuse_machines(settings, holdings, ctx.data.n_rows, len(specs), limit, MKL.name)
    kind = SingleLoop if first.solver == "single" else MKLLoop
    return kind(first, specs, problems, settings, trackers, given_grams_or_none(inputs.data), machine_configs)


def _weights(column: np.ndarray, machines: Sequence[str]) -> dict[str, float]:
    if len(column) == 1:
        return {"weight": float(column[0])}
    return {f"weight[{name}]": float(value) for name, value in zip(machines, column, strict=True)}

"""Two-layer multiple kernel learning as a method of the runner: from a store to a loop, from its state to model, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....storage import DataError
from ...grams.memory import BLOCKS, IN_PLACE, PACKED
from ...grams.settings import PLACES, GramSettings
from ...grams.sources import row_pairs
from ...grams.weighted_sum import MATRIX_SHARE
from ...inputs.kernel_checks import kernel_warnings
from ...inputs.kernels import given_grams_or_none, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import MACHINES, refuse_machines, vectors_held
from ...inputs.scores import Fit, held_out_rows, with_held_out
from ...loops.prepared import Prepared
from ...models.kernel import KernelModel
from ...models.kernel_build import build_model
from ...records.context import RunContext
from ...records.holdings import Held, Holding, holdings_plan
from .config import TwoLayerConfig
from .layer_pass import layer_bytes
from .loop import UNFINISHED, TwoLayerLoop, TwoLayerState
from .new_kernels import GRID

SHOWN = 20
"""Kernels whose weights a report follows along the iterations."""

LAYER_SHARE = 0.5
"""Share of the driver's memory for the second layer and the solver's copy of it; beyond it passes answer for the layer."""


def build_loop(
    config: TwoLayerConfig, inputs: Inputs, ctx: RunContext, held_out: np.ndarray | None = None, budget: int | None = None
) -> TwoLayerLoop:
    """Return the loop of a fit.

    Parameters
    ----------
    config, inputs
        Parameters and data.
    ctx
        Where it will run.
    held_out
        ``(n_samples,)`` mask of rows to measure accuracy on.
    budget
        Bytes that matrices in memory, and one block pair of all kernels, may take; by default the driver's memory.

    Raises
    ------
    ValueError
        Kernels that do not suit the data.
    gramplane.cluster.MemoryBoundExceeded
        More kernels or rows than the memory allows.
    """
    data = inputs.data
    if config.infinite and (given_grams_or_none(data) is not None or data.n_cols == 0):
        raise ValueError("infinite=True computes Gaussian kernels from features; strings and given matrices have none")
    specs, n = resolved_kernels(config.kernels, data, config.normalize), data.n_rows
    room = ctx.driver_memory if budget is None else budget
    # Blocks are as small as the most kernels there may be need them.
    most = [*specs, *specs[:1] * _new_kernels(config)]
    settings = gram_settings(config, most, data, ctx)
    apart_layer = layer_bytes_of(n) > LAYER_SHARE * room
    if apart_layer and settings.policy == "memory":
        # Passes go over block pairs, of which a bank has none.
        settings = replace(settings, policy="recompute", reason=f"{PLACES['recompute']}: the second layer is beyond the driver's memory")
    machines = inputs.n_machines * config.n_restarts
    held = driver_held(settings, n, len(most), machines, apart_layer, ctx.driver_memory)
    refuse_machines(settings, held, n, len(most), room, "two-layer-mkl")
    assert inputs.classes is not None  # both callers have seen to it
    fits = (Fit(0, inputs.n_machines, inputs.target, held_out),)
    return TwoLayerLoop(config, specs, dual_problems(config, inputs), settings, fits, given_grams_or_none(data), apart_layer)


def _new_kernels(config: TwoLayerConfig) -> int:
    return config.max_new_kernels + GRID if config.infinite else 0


LAYER = Held("second layer in double precision, and the solver's copy of it", "16 n^2", f"within {LAYER_SHARE:g} L")
LAYER_SET = Held("a solver's working set of the second layer", f"{MATRIX_SHARE:g} L", "where that is larger")

HELD = (PACKED, IN_PLACE, BLOCKS, LAYER, LAYER_SET, MACHINES)
"""What the driver may hold."""


def driver_held(settings: GramSettings, n: int, k: int, machines: int, apart_layer: bool, driver_memory: int) -> tuple[Holding, ...]:
    """Return what the driver holds of k kernels in the first layer: their entries, the second layer, vectors of T machines."""
    layer = LAYER_SET.of(L=driver_memory) if apart_layer else LAYER.of(n=n)
    return settings.held(n, k, driver_memory)[0], layer, vectors_held(n, machines)


def layer_bytes_of(n: int) -> int:
    """Return the bytes of the second layer of n rows in double precision, and of the solver's copy of it."""
    return 16 * n * n


def prepare(config: TwoLayerConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra`` may hold ``test_share``.

    Raises
    ------
    DataError
        The target is real-valued.
    """
    config, inputs = with_gram_store(config, store_inputs(ctx, "two-layer-mkl"))
    if inputs.classes is None:
        raise DataError("the target is real-valued; two-layer-mkl separates classes (ingest with --task classification)", ctx.data.url)
    held_out = held_out_rows(extra, inputs.target, ctx.seed, inputs.classes)
    inputs = with_held_out(inputs, held_out)
    loop = build_loop(config, inputs, ctx, held_out)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, inputs, loop, state, ctx),
        summary=summary,
        tables=lambda state, model: tables(state, loop, inputs.classes or ()),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: TwoLayerConfig, loop: TwoLayerLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: Gram policy, tasks of a pass, memory of a task and of the driver."""
    refs = row_pairs(ctx.data if loop.data is None else loop.data, loop.specs, loop.settings.block)
    return {
        **loop.settings.describe(ctx.data.n_rows, len(loop.specs)),
        **holdings_plan(
            driver_held(
                loop.settings,
                ctx.data.n_rows,
                len(loop.specs) + _new_kernels(config),
                len(loop.problems) * config.n_restarts,
                loop.apart,
                ctx.driver_memory,
            )
        ),
        "machines": len(loop.problems) * config.n_restarts,
        "penalty": loop.penalty,
        "new_kernels_at_most": config.max_new_kernels if config.infinite else 0,
        "iterations_at_most_per_round": config.max_iter,
        "tasks_per_pass": len(refs),
        "task_bytes": int(max(layer_bytes(ref) for ref in refs)) + 8 * ctx.data.n_rows,
        "second_layer": "by passes" if loop.apart else "on the driver",
        "second_layer_bytes": layer_bytes_of(ctx.data.n_rows),
    }


def model_of(config: TwoLayerConfig, inputs: Inputs, loop: TwoLayerLoop, state: TwoLayerState, ctx: RunContext) -> KernelModel:
    """Return the model of the last weights, which are the best."""
    for message in idle(state, loop, inputs.classes or ()):
        ctx.emit({"event": "warning", "message": message})
    machines = loop.best(state)
    figures = {
        "objective": float(sum(machine.value + machine.gap for machine in machines)),
        "machine_gap": float(sum(machine.gap for machine in machines)),
        "violation": max(machine.point().violation(loop.penalty) for machine in machines),
        "penalty": loop.penalty,
        "iterations": float(state.iteration),
        "converged": float(state.stop not in UNFINISHED),
    }
    theta, beta = np.stack([machine.mu for machine in machines]), np.stack([machine.beta for machine in machines])
    arrays = {f"weights_path_{m}": machine.path for m, machine in enumerate(machines)}
    biases = np.array([machine.bias for machine in machines])
    found = build_model(config, inputs, loop.grams(state.widths, ctx), theta, beta, biases, figures, {**arrays, "new_gammas": state.widths})
    return replace(found, layers=2)


def remarks(loop: TwoLayerLoop, state: TwoLayerState, inputs: Inputs, ctx: RunContext) -> list[str]:
    """Return what the user should know of a fit: kernels that add nothing, machines without kernels."""
    return [*kernel_warnings(loop.grams(state.widths, ctx)), *idle(state, loop, inputs.classes or ())]


def idle(state: TwoLayerState, loop: TwoLayerLoop, classes: Sequence[Any]) -> list[str]:
    """Return what to say of machines that no kernel has a weight for: they give every row the same decision."""
    names = [repr(classes[m]) for m, machine in enumerate(loop.best(state)) if not machine.mu.any()]
    if not names:
        return []
    which = "" if len(loop.problems) == 1 else f" for class {', '.join(names)}"
    text = f"no kernel has a weight{which}: penalty={loop.penalty:g} is too large for C={loop.config.C:g}, and all rows get one decision"
    return [f"{text}; raise C or lower penalty"]


def summary(state: TwoLayerState, model: KernelModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
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


def tables(state: TwoLayerState, loop: TwoLayerLoop, classes: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: kernels by weight, and the weights of the heaviest along the iterations; by class for several."""
    machines = loop.best(state)
    labels = [str(label) for label in classes] if len(machines) > 1 else [""]
    theta = np.stack([machine.mu for machine in machines])
    order = np.lexsort((np.arange(theta.shape[1]), -theta.max(axis=0)))
    order = order[theta.max(axis=0)[order] > 0]
    names = [str(spec) for spec in loop.kernels(state.widths)]
    chosen = [{"kernel": names[q], **weight_columns(theta[:, q], labels)} for q in order]
    along = [
        {"machine": label, "iteration": t + 1, **{names[q]: float(row[q]) for q in order[:SHOWN]}}
        for label, machine in zip(labels, machines, strict=True)
        for t, row in enumerate(machine.path)
    ]
    return {"kernels": chosen, "weights": along}


def weight_columns(column: np.ndarray, labels: Sequence[str]) -> dict[str, float]:
    """Return the weights of one kernel by column name: one, or one per class."""
    if len(column) == 1:
        return {"weight": float(column[0])}
    return {f"weight[{label}]": float(value) for label, value in zip(labels, column, strict=True)}

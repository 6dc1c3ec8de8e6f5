"""Non-parametric kernel learning as a method of the runner: from a store and constraints to a loop, from its state to model and tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....kernels.spectral.constraints import closed, pair_constraints
from ....kernels.spectral.dual_ascent import SpectralState
from ....kernels.spectral.problem import cap_used
from ...grams.given import GivenGrams
from ...grams.neighbours import plan_neighbours
from ...loops.prepared import Prepared
from ...models.spectral import SpectralModel
from ...records.context import RunContext
from ...records.holdings import holdings_plan, refuse_beyond
from .config import NPKLConfig
from .loop import NPKLLoop, Setting

ACTIVE_CAP = 1.0 - 1e-6
"""Share of the cap from which it counts as active."""


def build_loop(config: NPKLConfig, data: Any, constraints: Any, ctx: RunContext, warn: Callable[[str], None]) -> NPKLLoop:
    """Return the loop of a fit.

    Raises
    ------
    ValueError
        Data without coordinates, fewer than two rows, constraints that are none, sizes that cannot be.
    gramplane.cluster.MemoryBoundExceeded
        Graph, constraints and the least eigenpairs are more than the driver may hold.
    """
    if isinstance(data, GivenGrams) or data.n_cols == 0:
        raise ValueError("npkl links rows to their nearest neighbours, so it needs their features: no strings, no precomputed kernels")
    n = data.n_rows
    if n < 2:
        raise ValueError(f"n_samples={n}: a kernel over pairs of rows needs at least 2")
    if config.n_neighbors >= n:
        warn(f"n_neighbors={config.n_neighbors} exceeds the {n - 1} other rows")
    if config.base is not None and config.base > n:
        raise ValueError(f"base={config.base}: there are {n} rows, and no more functions on them")
    given = pair_constraints(constraints, n)
    loop = NPKLLoop(config, closed(given) if config.closure else given, min(config.n_neighbors, n - 1), ctx.seed)
    refuse_beyond(loop.driver_held(n), ctx.driver_memory, "npkl", "fewer rows, fewer constraints or a smaller base")
    return loop


def _refuse(message: str) -> None:
    raise ValueError(message)


def prepare(config: NPKLConfig, ctx: RunContext, extra: Mapping[str, Any]) -> Prepared:
    """Return the method ready to run on ``ctx.data``; ``extra["constraints"]`` has triples ``(m, 3)``: i, j, +1 or -1."""
    loop = build_loop(config, ctx.data, extra.get("constraints"), ctx, _refuse)
    return Prepared(
        loop=loop,
        model=lambda state, ctx: model_of(config, loop, state, ctx),
        summary=summary,
        tables=lambda state, model: tables(model),
        plan=plan_of(config, loop, ctx),
    )


def plan_of(config: NPKLConfig, loop: NPKLLoop, ctx: RunContext) -> dict[str, Any]:
    """Return what the run will do: the graph's pass, and decompositions in this process."""
    return {
        **plan_neighbours(ctx.data, loop.n_neighbors),
        **holdings_plan(loop.driver_held(ctx.data.n_rows)),
        "n_rows": ctx.data.n_rows,
        "n_neighbors": loop.n_neighbors,
        "constraints": loop.given.size,
        "iterations_at_most": 1 if config.loss == "linear" else config.max_iter,
    }


def model_of(config: NPKLConfig, loop: NPKLLoop, state: SpectralState, ctx: RunContext) -> SpectralModel:
    """Return the kernel of the least objective."""
    found, setting = loop.kernel(state, ctx), loop.setting(ctx)
    kept = found.spectrum > 0
    dual = max(state.best_dual, found.dual)
    figures = {
        "objective": found.primal,
        "dual": dual,
        "gap": max(found.primal - dual, 0.0),
        "iterations": float(state.iteration),
        "converged": float(state.converged),
        "cap_used": cap_used(setting.problem, found),
        "isolated": float(setting.isolated.sum()),
        "isolated_alone": float(_alone(setting)),
        "components": float(setting.components),
    }
    arrays = {"constraints": setting.constraints.triples(), "alpha": state.best_alpha, "entries": setting.constraints.signs * found.forms}
    vectors = np.ascontiguousarray(found.part.vectors[:, kept])
    digest = getattr(ctx.data, "digest", "") if ctx.data.url != "memory" else ""
    return SpectralModel(config.model_dump_json(), digest, ctx.data.n_rows, vectors, found.spectrum[kept], figures, arrays)


def _alone(setting: Setting) -> int:
    """Return the number of rows with neither a neighbour nor a constraint: their rows of K are zero."""
    return int(np.sum(setting.isolated & (setting.constraints.counts == 0)))


def remarks(model: SpectralModel) -> list[str]:
    """Return what the user should know of a fit."""
    figures, told = model.figures, []
    if figures["isolated"]:
        told.append(
            f"{figures['isolated']:.0f} of {model.n_rows} rows have no neighbour in the graph, {figures['isolated_alone']:.0f} of these no "
            "constraint either, so that the kernel is zero there; graph='union' or more n_neighbors link them"
        )
    if not len(model.eigenvalues):
        told.append("the kernel is zero: the constraints weigh too little against the graph; raise C")
    elif figures["cap_used"] < ACTIVE_CAP:
        told.append(f"the cap B is not active: tr K^p is {figures['cap_used']:.3g} of it; a larger B changes nothing")
    return told


def summary(state: SpectralState, model: SpectralModel) -> dict[str, Any]:
    """Return the figures of a finished run as a small JSON object."""
    counts = satisfied(model)
    told = remarks(model)
    return {
        "objective": model.figures["objective"],
        "gap": model.figures["gap"],
        "certified_over": "all kernel matrices" if json.loads(model.config_json)["base"] is None else "kernel matrices on the base",
        "rank": len(model.eigenvalues),
        "constraints": len(model.arrays["constraints"]),
        "satisfied": int(sum(row["satisfied"] for row in counts)),
        "stop": state.stop,
        **({"remark": "; ".join(told)} if told else {}),
    }


def satisfied(model: SpectralModel) -> list[dict[str, Any]]:
    """Return how many constraints of either kind the kernel agrees with: an entry with the sign of the constraint."""
    signs, entries = model.arrays["constraints"][:, 2], model.arrays["entries"]
    rows = []
    for name, sign in (("together", 1), ("apart", -1)):
        own = signs == sign
        right = int(np.sum(own & (signs * entries > 0)))
        mean = float(entries[own].mean()) if own.any() else None
        given = int(own.sum())
        rows.append({"constraints": name, "given": given, "satisfied": right, "violated": given - right, "mean_entry": mean})
    return rows


def tables(model: SpectralModel) -> dict[str, list[dict[str, Any]]]:
    """Return the report's tables: constraints by kind, and the eigenvalues of the kernel."""
    return {
        "constraints": satisfied(model),
        "spectrum": [{"rank": k, "eigenvalue": float(value)} for k, value in enumerate(model.eigenvalues, 1)],
    }

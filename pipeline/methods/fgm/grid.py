"""Grids and folds of the Feature Generating Machine: every (parameters, fold) is a set of machines, and all share the passes of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...inputs.folds import SharedLoop, draw_masks, group_by_parameters, row_groups
from ...records.context import RunContext
from .config import FGMConfig, resolve_config
from .method import FGM, shared_problem

# Parameters that change the candidates or how they are read: points that differ in them cannot share a pass.
ATOM_PARAMETERS = ("feature_map", "gamma", "coef0", "n_bins", "group_weight", "fit_intercept")


def shared_loops(
    ctx: RunContext, grid: Sequence[FGMConfig], extra: Mapping[str, Any], folds: int, seed: int, column: str | None = None
) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks."""
    _, inputs = FGM().read_inputs(grid[0], ctx, {name: extra.get(name) for name in ("groups", "covariates")})
    masks = draw_masks(inputs, folds, seed, row_groups(inputs.data, column, folds))
    loops = []
    for points in group_by_parameters([resolve_config(config, inputs) for config in grid], ATOM_PARAMETERS):
        problem = shared_problem([resolve_config(grid[k], inputs) for k in points], inputs, masks, ctx)
        problem.follow(list(masks) * len(points))
        problem.goes_all_rounds = True
        loops.append(SharedLoop(points, problem))
    return loops


def table_rows(
    shared: SharedLoop, grid: Sequence[FGMConfig], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per grid point and round: accuracy, of a real target R2 and mean square error, over the folds, and features."""
    rows, measure = [], "r2" if "test_r2" in history[-1] else "accuracy"
    for k, point in enumerate(shared.points):
        config, part = grid[point], slice(k * folds, (k + 1) * folds)
        for entry in history[: config.most_rounds]:
            scores = np.array(_as_list(entry[f"test_{measure}"])[part], dtype=float)
            parameters = {"point": point, **{name: getattr(config, name) for name in names}, "rounds": int(entry["iteration"])}
            selected = float(np.mean(_as_list(entry.get("selected", entry["n_selected"]))[part]))
            figures = {measure: float(scores.mean())}
            if measure == "r2":
                known = [(fit.target[fit.held_out].var(), r2) for fit, r2 in zip(shared.loop.trackers[part], scores, strict=True)]
                figures["mse"] = float(np.mean([(1.0 - r2) * variance for variance, r2 in known]))
            figures |= {"deviation": float(scores.std(ddof=1)) if folds > 1 else 0.0, "selected": selected}
            rows.append({**parameters, **figures, "folds": scores.tolist()})
    return rows


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

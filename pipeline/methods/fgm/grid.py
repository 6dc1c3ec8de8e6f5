"""Grids and folds of the Feature Generating Machine: every (parameters, fold) is a set of machines, and all share the passes of a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...inputs.folds import Shared, alike, fold_masks
from ...inputs.labels import Inputs
from ...inputs.scores import AccuracyTracker, with_held_out
from ...records.context import RunContext
from .config import FGMConfig
from .designs import driver_held, refuse_columns
from .fgm_setup import build_atoms, build_machines, map_notes
from .loop import FGMLoop
from .method import store_inputs

ATOM_PARAMETERS = ("feature_map", "gamma", "coef0", "n_bins", "group_weight", "fit_intercept")
"""Parameters that change the candidates or how they are read: points that differ in them cannot share a pass."""


def shared_loops(ctx: RunContext, grid: Sequence[FGMConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks."""
    inputs = store_inputs(ctx, extra)
    masks = fold_masks(inputs.target, inputs.classes, folds, seed)
    return [_shared(points, grid, inputs, masks, ctx.driver_memory) for points in alike(grid, ATOM_PARAMETERS)]


def _shared(points: tuple[int, ...], grid: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray], driver_memory: int) -> Shared:
    atoms, available = build_atoms(grid[points[0]], inputs)
    machines, fits = [], []
    for k in points:
        config = grid[k].model_copy(update={"B": min(grid[k].B, available)})
        for mask in masks:
            own = build_machines(config, with_held_out(inputs, mask))
            fits.append(AccuracyTracker(len(machines), len(own), inputs.target, mask))
            machines += own
    loop = FGMLoop(atoms, machines, fits, map_notes(grid[points[0]], inputs.data))
    refuse_columns(driver_held(inputs.data, *loop.columns, len(machines), driver_memory), driver_memory)
    return Shared(points, loop)


def table_rows(
    shared: Shared, grid: Sequence[FGMConfig], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict]:
    """Return one row per grid point and round: accuracy over the folds (mean, standard deviation) and features."""
    rows = []
    for place, point in enumerate(shared.points):
        config, part = grid[point], slice(place * folds, (place + 1) * folds)
        for entry in history[: config.max_rounds]:
            accuracy = np.array(_listed(entry["test_accuracy"])[part], dtype=float)
            rows.append(
                {
                    "point": point,
                    **{name: getattr(config, name) for name in names},
                    "rounds": int(entry["iteration"]),
                    "accuracy": float(accuracy.mean()),
                    "deviation": float(accuracy.std(ddof=1)) if folds > 1 else 0.0,
                    "selected": float(np.mean(_listed(entry.get("selected", entry["n_selected"]))[part])),
                    "folds": accuracy.tolist(),
                }
            )
    return rows


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]

"""Grids and folds of multiple kernel learning: every (parameters, fold) is a set of machines, and all share Gram matrices and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..records.config_kernels import MKLConfig
from ..records.context import RunContext
from .gmkl import MKLLoop
from .gmkl_run import check_memory
from .grids import Shared, alike, fold_masks
from .kernel_setup import apart, dual_problems, gram_settings, resolved_kernels, store_inputs, with_gram_store
from .scoring import Fit, TargetFit, with_held_out

GRAM_PARAMETERS = ("kernels", "normalize", "grams", "gram_store")
"""Parameters that change the matrices: points that differ in them cannot share a pass."""


def shared_loops(ctx: RunContext, grid: Sequence[MKLConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks.

    Raises
    ------
    ValueError
        The method chooses among kernels by folds of its own.
    """
    if any(config.solver == "single" for config in grid):
        raise ValueError("solver='single' chooses its kernel by folds of its own; run it once per setting")
    return [_shared(ctx, points, grid, folds, seed) for points in alike(grid, GRAM_PARAMETERS)]


def _shared(ctx: RunContext, points: tuple[int, ...], grid: Sequence[MKLConfig], folds: int, seed: int) -> Shared:
    first, inputs = with_gram_store(grid[points[0]], store_inputs(ctx, "mkl"))
    masks = fold_masks(inputs.target, inputs.classes, folds, seed)
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    settings = gram_settings(first, specs, inputs.data, ctx)
    check_memory(len(specs), ctx.data.n_rows, settings, ctx.driver_memory)
    problems, configs, fits = [], [], []
    for k in points:
        for mask in masks:
            own = dual_problems(grid[k], with_held_out(inputs, mask), grid[k].epsilon)
            place = len(problems)
            fits.append(TargetFit(place, inputs.target, mask) if inputs.classes is None else Fit(place, len(own), inputs.target, mask))
            problems += own
            configs += [grid[k]] * len(own)
    return Shared(points, MKLLoop(first, specs, problems, settings, fits, apart(inputs.data), configs))


def table_rows(
    shared: Shared, grid: Sequence[MKLConfig], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per grid point: accuracy (of a regression R2 and mean square error) over the folds, and kernels."""
    rows, last = [], history[-1]
    for place, point in enumerate(shared.points):
        part = slice(place * folds, (place + 1) * folds)
        measure = "r2" if "test_r2" in last else "accuracy"
        found = np.array(last[f"test_{measure}"][part], dtype=float)
        rows.append(
            {
                "point": point,
                **{name: getattr(grid[point], name) for name in names},
                measure: float(found.mean()),
                **({"mse": _error(shared.loop.fits[part], found)} if measure == "r2" else {}),
                "deviation": float(found.std(ddof=1)),
                "selected": float(np.mean(last["selected"][part])),
                "folds": found.tolist(),
            }
        )
    return rows


def _error(fits: Sequence[TargetFit], found: np.ndarray) -> float:
    """Return the mean square error over folds of known R2."""
    return float(np.mean([(1.0 - r2) * fit.target[fit.held_out].var() for fit, r2 in zip(fits, found, strict=True)]))

"""Grids and folds of multiple kernel learning: every (parameters, fold) is a set of machines, and all share Gram matrices and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...storage import DataError
from ..records.config_kernels import MKLConfig
from ..records.context import RunContext
from .gmkl import MKLLoop
from .gmkl_run import check_memory
from .grids import Shared, alike, fold_masks
from .kernel_setup import apart, dual_problems, gram_settings, resolved_kernels, store_inputs, with_gram_store
from .scoring import Fit, with_held_out

GRAM_PARAMETERS = ("kernels", "normalize", "grams", "gram_store")
"""Parameters that change the matrices: points that differ in them cannot share a pass."""


def shared_loops(ctx: RunContext, grid: Sequence[MKLConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks.

    Raises
    ------
    DataError
        The target is real-valued: there is no accuracy to compare.
    """
    if any(config.solver == "single" for config in grid):
        raise ValueError("solver='single' chooses its kernel by folds of its own; run it once per setting")
    return [_shared(ctx, points, grid, folds, seed) for points in alike(grid, GRAM_PARAMETERS)]


def _shared(ctx: RunContext, points: tuple[int, ...], grid: Sequence[MKLConfig], folds: int, seed: int) -> Shared:
    first, inputs = with_gram_store(grid[points[0]], store_inputs(ctx, "mkl"))
    if inputs.classes is None:
        raise DataError("the target holds real numbers; grids are compared by accuracy, which needs classes", ctx.data.url)
    masks = fold_masks(inputs.target, inputs.classes, folds, seed)
    specs = resolved_kernels(first.kernels, inputs.data, first.normalize)
    settings = gram_settings(first, specs, inputs.data, ctx)
    check_memory(len(specs), ctx.data.n_rows, settings, ctx.driver_memory)
    problems, configs, fits = [], [], []
    for k in points:
        for mask in masks:
            own = dual_problems(grid[k], with_held_out(inputs, mask), grid[k].epsilon)
            fits.append(Fit(len(problems), len(own), inputs.target, mask))
            problems += own
            configs += [grid[k]] * len(own)
    return Shared(points, MKLLoop(first, specs, problems, settings, fits, apart(inputs.data), configs))


def table_rows(
    shared: Shared, grid: Sequence[MKLConfig], folds: int, history: Sequence[Mapping[str, Any]], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Return one row per grid point: accuracy over the folds (mean, standard deviation) and kernels."""
    rows, last = [], history[-1]
    for place, point in enumerate(shared.points):
        part = slice(place * folds, (place + 1) * folds)
        accuracy = np.array(last["test_accuracy"][part], dtype=float)
        rows.append(
            {
                "point": point,
                **{name: getattr(grid[point], name) for name in names},
                "accuracy": float(accuracy.mean()),
                "deviation": float(accuracy.std(ddof=1)),
                "selected": float(np.mean(last["selected"][part])),
                "folds": accuracy.tolist(),
            }
        )
    return rows

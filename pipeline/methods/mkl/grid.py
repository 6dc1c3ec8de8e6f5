"""Grids and folds of multiple kernel learning: every (parameters, fold) is a set of machines, and all share Gram matrices and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs.folds import GRAM_PARAMETERS, Shared, alike, fold_masks, table_rows
from ...inputs.kernels import apart, gram_settings, resolved_kernels, with_gram_store
from ...inputs.labels import dual_problems, store_inputs
from ...inputs.memory import machines_held, refuse_machines
from ...inputs.scores import Fit, TargetFit, with_held_out
from ...records.context import RunContext
from .config import MKLConfig
from .loop import MKLLoop


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
    problems, configs, fits = [], [], []
    for k in points:
        for mask in masks:
            own = dual_problems(grid[k], with_held_out(inputs, mask), grid[k].epsilon)
            place = len(problems)
            fits.append(TargetFit(place, inputs.target, mask) if inputs.classes is None else Fit(place, len(own), inputs.target, mask))
            problems += own
            configs += [grid[k]] * len(own)
    held = machines_held(settings, ctx.data.n_rows, len(specs), len(problems), ctx.driver_memory)
    refuse_machines(settings, held, ctx.data.n_rows, len(specs), ctx.driver_memory, "mkl")
    return Shared(points, MKLLoop(first, specs, problems, settings, fits, apart(inputs.data), configs))


__all__ = ["shared_loops", "table_rows"]

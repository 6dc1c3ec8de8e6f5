"""Grids and folds of multiple kernel learning for many tasks: every (parameters, fold) is a search of one loop on shared matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...inputs.folds import GRAM_PARAMETERS, Shared, alike, table_rows, task_folds
from ...inputs.scores import Fit, TargetFit, with_held_out
from ...inputs.tasks import TaskInputs, store_task_inputs
from ...records.context import RunContext
from .config import MultiTaskMKLConfig
from .method import build_loop, task_problem


def shared_loops(ctx: RunContext, grid: Sequence[MultiTaskMKLConfig], extra: Mapping[str, Any], folds: int, seed: int) -> list[Shared]:
    """Return the loops that evaluate a grid by cross-validation on row masks, folds stratified by task.

    Raises
    ------
    ValueError
        Fewer than two folds.
    DataError
        A task with fewer rows than folds.
    """
    inputs = store_task_inputs(ctx, "multitask-mkl")
    masks = task_folds(inputs, folds, seed)
    return [_shared(ctx, points, grid, inputs, masks) for points in alike(grid, GRAM_PARAMETERS)]


def _shared(
    ctx: RunContext, points: tuple[int, ...], grid: Sequence[MultiTaskMKLConfig], inputs: TaskInputs, masks: Sequence[np.ndarray]
) -> Shared:
    problems, configs, fits = [], [], []
    for k in points:
        for mask in masks:
            place = len(problems)
            fits.append(TargetFit(place, inputs.target, mask) if inputs.classes is None else Fit(place, 1, inputs.target, mask))
            problems.append(task_problem(grid[k], with_held_out(inputs, mask)))
            configs.append(grid[k])
    return Shared(points, build_loop(grid[points[0]], inputs, ctx, fits, problems, configs))


__all__ = ["shared_loops", "table_rows"]

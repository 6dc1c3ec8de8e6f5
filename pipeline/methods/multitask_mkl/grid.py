"""Grids and folds of multiple kernel learning for many tasks: every (parameters, fold) is a search of one loop on shared matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs.folds import GRAM_PARAMETERS, SharedLoop, draw_masks, group_by_parameters, row_groups, table_rows
from ...inputs.tasks import store_task_inputs
from ...records.context import RunContext
from .config import MultiTaskMKLConfig
from .method import MultiTaskMKL, shared_loop


def shared_loops(
    ctx: RunContext, grid: Sequence[MultiTaskMKLConfig], extra: Mapping[str, Any], folds: int, seed: int, column: str | None = None
) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks, folds stratified by task. Raises ValueError: fewer than two
    folds; DataError: a task with fewer rows than folds.
    """
    inputs = store_task_inputs(ctx, MultiTaskMKL.name)
    masks = draw_masks(inputs, folds, seed, row_groups(inputs.data, column, folds))
    shared = []
    for points in group_by_parameters(grid, GRAM_PARAMETERS):
        first = MultiTaskMKL.decided(grid[points[0]], inputs, ctx)
        loop = shared_loop(ctx, [first, *(grid[point] for point in points[1:])], inputs, masks)
        shared.append(SharedLoop(points, loop, lambda state, ctx, loop=loop: list(loop.decision_values(state))))
    return shared


__all__ = ["shared_loops", "table_rows"]

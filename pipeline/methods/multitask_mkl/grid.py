"""Grids and folds of multiple kernel learning for many tasks: every (parameters, fold) is a search of one problem on shared matrices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs.folds import GRAM_PARAMETERS, SharedLoop, draw_masks, group_by_parameters, row_groups, table_rows
from ...inputs.tasks import store_task_inputs
from ...records.context import RunContext
from .config import MultiTaskMKLConfig
from .method import MultiTaskMKL


def shared_loops(
    ctx: RunContext, grid: Sequence[MultiTaskMKLConfig], extra: Mapping[str, Any], folds: int, seed: int, column: str | None = None
) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks, folds stratified by task. Raises ValueError: fewer than two
    folds; DataError: a task with fewer rows than folds.
    """
    method = MultiTaskMKL()
    inputs = store_task_inputs(ctx, method.name)
    masks = draw_masks(inputs, folds, seed, row_groups(inputs.data, column, folds))
    shared = []
    for points in group_by_parameters(grid, GRAM_PARAMETERS):
        first = method.decided(grid[points[0]], inputs, ctx)
        problem = method.shared_fits([first, *(grid[point] for point in points[1:])], inputs, masks, ctx)
        shared.append(SharedLoop(points, problem, lambda state, ctx, problem=problem: list(problem.decision_values(state))))
    return shared


__all__ = ["shared_loops", "table_rows"]

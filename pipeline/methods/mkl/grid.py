"""Grids and folds of multiple kernel learning: every (parameters, fold) is a set of machines, and all share Gram matrices and passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs.folds import GRAM_PARAMETERS, SharedLoop, draw_masks, group_by_parameters, row_groups, table_rows
from ...records.context import RunContext
from .config import MKLConfig
from .method import MKL, shared_problem


def shared_loops(
    ctx: RunContext, grid: Sequence[MKLConfig], extra: Mapping[str, Any], folds: int, seed: int, column: str | None = None
) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks. Raises ValueError: the method chooses among kernels by folds
    of its own.
    """
    if any(config.solver == "single" for config in grid):
        raise ValueError("solver='single' chooses its kernel by folds of its own; run it once per setting")
    shared = []
    for points in group_by_parameters(grid, GRAM_PARAMETERS):
        first, inputs = MKL().read_inputs(grid[points[0]], ctx, {})
        first = MKL().decided(first, inputs, ctx)
        masks = draw_masks(inputs, folds, seed, row_groups(inputs.data, column, folds))
        problem = shared_problem([first, *(grid[k] for k in points[1:])], inputs, masks, ctx)
        shared.append(SharedLoop(points, problem, lambda state, ctx, problem=problem: list(problem.decision_values(state))))
    return shared


__all__ = ["shared_loops", "table_rows"]

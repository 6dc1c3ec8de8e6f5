"""Grids and folds of the group lasso on a stream: one learner per (parameters, fold), and every block of rows is read once for all.

On a cluster every fit is a job (`pipeline/runs/jobs.py`) over the same blocks in the same order, and has the bits that it has here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...inputs.folds import SharedLoop, draw_masks, group_by_parameters, row_groups, table_rows
from ...records.context import RunContext
from .config import GroupLassoConfig
from .grid_problem import GridProblem, fits_in_a_pass, grid_fits
from .inputs import read_store
from .learners import LearnerFactory

PASS_PARAMETERS = ("epochs", "shuffle")  # parameters that change which rows come when: points that differ in them cannot share a pass
ON_ONE_PROCESS = True  # rows that are learned one after another are no pass; on a cluster every fit is a job of its own


def shares(grid: Sequence[GroupLassoConfig]) -> bool:
    """Return whether the fits of a grid share passes: those of streams do, batch fits are done one after another."""
    return all(config.resolved().algorithm != "fista" for config in grid)


def shared_loops(
    ctx: RunContext, grid: Sequence[GroupLassoConfig], extra: Mapping[str, Any], folds: int, seed: int, column: str | None = None
) -> list[SharedLoop]:
    """Return the loops that evaluate a grid by cross-validation on row masks."""
    inputs = read_store(ctx, extra)
    masks = draw_masks(inputs, folds, seed, row_groups(inputs.data, column, folds))
    factories = [LearnerFactory.create(config, inputs, int(inputs.data.n_cols)) for config in grid]
    fits, loops = [grid_fits(learners, inputs, masks) for learners in factories], []
    for points in group_by_parameters(grid, PASS_PARAMETERS):
        count = max(1, fits_in_a_pass(max(factories[k].state_bytes for k in points), folds, ctx.driver_memory))
        for part in (points[k : k + count] for k in range(0, len(points), count)):
            problem = GridProblem([fit for k in part for fit in fits[k]], inputs, ctx.driver_memory)
            loops.append(SharedLoop(part, problem, lambda state, ctx, problem=problem: list(problem.decision_values(state, ctx))))
    return loops


__all__ = ["shared_loops", "shares", "table_rows"]

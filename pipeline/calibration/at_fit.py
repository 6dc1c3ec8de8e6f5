"""The calibration that is part of a run: planned with it, done behind its fit, with checkpoints of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..core.method import AnyMethod, Problem
from ..models.calibration import Calibration
from ..records.context import RunContext
from .fits import Fit, calibrate, fold_runs
from .folds import Folds

SCRATCH = "calibration"  # folder of a run, below what it needs only while it computes


def fold_plan(fit: Fit, ctx: RunContext, folds: Folds) -> dict[str, Any]:
    """Return the plan of the first of the fits of a calibration: all of them, where they share passes."""
    return next(fold_runs(fit, ctx, folds))[1].plan


def full_plan(method: AnyMethod, ready: Problem, ctx: RunContext) -> dict[str, Any]:
    """Return the plan of a run with what the calibration takes that is part of it: nothing of the fit itself is held meanwhile.

    Raises ValueError: a target without classes; DataError: a class with a single row.
    """
    config, plan = ready.config, ready.plan
    fit = Fit(method, config, ready.inputs)
    if fit.rows.classes is None:
        raise ValueError(f"probability={config.probability!r}: the target holds real numbers, there are no classes")
    folds = fit.folds(ctx.seed)
    other = fold_plan(fit, ctx, folds)
    larger = other if other["driver_bytes"] > plan["driver_bytes"] else plan
    memory = {name: larger[name] for name in ("driver_bytes", "driver_holds")}
    return {**plan, **memory, "task_bytes": max(plan["task_bytes"], other["task_bytes"]), "calibration": folds.cost}


def calibrate_run(fit: Fit, ctx: RunContext) -> Calibration:
    """Return the calibration of a fit in a run directory, where it goes on from the checkpoints of its fits; without one in memory."""
    folds = fit.folds(ctx.seed)
    if folds.message:
        ctx.emit({"event": "warning", "message": folds.message})
    place: Path | None = None if ctx.scratch is None else ctx.scratch.scratch / SCRATCH
    return calibrate(fit, ctx, folds, place)

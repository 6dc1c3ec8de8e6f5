"""Calibration of probabilities by cross-fitting: decision values come from fits that leave out a fold."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...storage import DataError, RunStore
from ..inputs.folds import fold_masks
from ..inputs.labels import Inputs
from ..inputs.tasks import TaskInputs
from ..models.calibration import Calibration, fit_calibration
from .engine import iterate
from .method import AnyMethod, Problem
from .resources import RunContext, ignore
from .search import FoldRuns

log = logging.getLogger("gramplane.calibration")
FOLDS = 5
LOGISTIC = Calibration("logistic")
SCRATCH = "calibration"  # folder of a run, below what it needs only while it computes


@dataclass(frozen=True)
class Folds:
    """The folds of a calibration: which rows each fit leaves out."""

    masks: tuple[np.ndarray, ...]  # `(n,)` each, disjoint
    message: str = ""  # what the user should know

    @property
    def count(self) -> int:
        return len(self.masks)

    @property
    def rows(self) -> np.ndarray:
        """``(n,)`` indices of the rows that some fold holds out."""
        return np.any(self.masks, axis=0)

    @property
    def cost(self) -> str:
        """The cost of the calibration, as text for users."""
        return f"{self.count} folds, about {self.count} fits"


def draw_folds(rows: Inputs, seed: int) -> Folds:
    """Return ``FOLDS`` stratified folds over the rows with non-zero weight; fewer if the smallest class has fewer than ``FOLDS`` rows.

    With several tasks, every fit has training rows of every task: if a fold would hold out all rows of a task, no fit leaves these rows
    out.

    Raises DataError if a class has a single row; the message names the class.
    """
    used = np.flatnonzero(np.ones(len(rows.target), bool) if rows.sample_weight is None else rows.sample_weight > 0)
    counts = np.bincount(rows.target[used], minlength=len(rows.labels))
    least = int(counts.argmin())
    if counts[least] < 2:
        raise DataError(
            f"class {rows.labels[least]!r} has one row, but calibrating probabilities needs at least two rows of every class; "
            "add rows, or set probability=False"
        )
    count = min(FOLDS, int(counts[least]))
    message = "" if count == FOLDS else f"class {rows.labels[least]!r} has {count} rows: probabilities are calibrated on {count} folds"
    if isinstance(rows, TaskInputs):
        parts = _task_parts(rows, used, count, seed)
    else:
        parts = [used[part] for part in fold_masks(rows.target[used], rows.labels, count, seed)]
    return Folds(tuple(np.isin(np.arange(len(rows.target)), part) for part in parts), message)


def _task_parts(rows: TaskInputs, used: np.ndarray, count: int, seed: int) -> list[np.ndarray]:
    """Return the rows of every fold. The rows of a class are shuffled, sorted by task, and then distributed over the folds in turn."""
    drawn = np.random.default_rng(np.random.SeedSequence((seed, 0xCA11))).permutation(used)
    fold = np.full(len(rows.target), -1)
    for code in np.unique(rows.target[used]):
        own = drawn[rows.target[drawn] == code]
        own = own[np.argsort(rows.codes[own], kind="stable")]
        fold[own] = np.arange(len(own)) % count
    for task in np.unique(rows.codes[used]):
        own = used[rows.codes[used] == task]
        if np.all(fold[own] == fold[own[0]]):
            fold[own] = -1
    return [np.flatnonzero(fold == k) for k in range(count)]


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit whose probabilities are to be calibrated: its parameters, and references to its inputs."""

    method: AnyMethod
    config: Any
    inputs: Any
    grams: Any = field(default=None, repr=False)  # matrices that it has made already, for fits without a fold to read

    @property
    def rows(self) -> Inputs:
        return self.inputs.labelled

    @property
    def kind(self) -> str:
        """The kind of calibration: the function fitted to the decision values."""
        return "isotonic" if self.config.probability == "isotonic" else "sigmoid"

    def folds(self, seed: int) -> Folds:
        """Return the folds, drawn with the seed of the fit. Raises DataError if a class has a single row."""
        return draw_folds(self.rows, seed)


def known_calibration(method: AnyMethod, model: Any) -> Calibration | None:
    """Return the calibration of a model if it needs no further fits: already fitted, or exact for its loss. Otherwise ``None``."""
    fitted: Calibration | None = getattr(model, "calibration", None)
    if fitted is not None or getattr(model, "classes_json", "null") == "null":
        return fitted
    config = method.config.model_validate_json(model.params_json)
    return LOGISTIC if getattr(config, "probability", False) == "auto" and config.is_logistic else None


def calibrate(fit: Fit, ctx: RunContext, folds: Folds, place: Path | None = None) -> Calibration:
    """Return the calibration of a fit, from the decision values of fits that each leave out one fold.

    These fits write their own checkpoints below ``place``; without it they are kept in memory.
    """
    log.info("probabilities are calibrated: %s", folds.cost)
    ctx.emit({"event": "calibration", "folds": folds.count, "cost": folds.cost})
    rows, used = fit.rows, folds.rows
    values = fold_values(fit, ctx, folds, place)[:, used]
    weight = np.ones(len(used)) if rows.sample_weight is None else rows.sample_weight
    return fit_calibration(fit.kind, folds.count, values, rows.target[used], weight[used])


def fold_values(fit: Fit, ctx: RunContext, folds: Folds, place: Path | None = None) -> np.ndarray:
    """Return decision values ``(n_machines, n_labelled)``: for each row the values of the fit that left it out, and 0 for rows in no
    fold.
    """
    quiet, values = replace(ctx, emit=ignore), np.zeros((0, 0))
    for number, (indices, ready) in enumerate(fold_runs(fit, quiet, folds)):
        found = _finished(fit, ready, quiet, None if place is None else place / f"fit-{number}")
        count = len(found) // len(indices)
        values = values if values.size else np.zeros((count, found.shape[1]))
        for position, k in enumerate(indices):
            mask = folds.masks[k]
            values[:, mask] = found[position * count : (position + 1) * count][:, mask]
    return values


def fold_runs(fit: Fit, ctx: RunContext, folds: Folds) -> Iterator[tuple[Sequence[int], Any]]:
    """Yield the runs that leave out folds, each with the indices of its folds. One run covers several folds if they share passes."""
    runs = FoldRuns(fit.method, [fit.config], fit.inputs, dict(enumerate(folds.masks)), ctx, fit.grams)
    for pairs, run in runs.of([0]):
        yield [fold for _, fold in pairs], run


def _finished(fit: Fit, ready: Problem, ctx: RunContext, place: Path | None) -> np.ndarray:
    """Return the decision values at the end of a run. With ``place``, the run resumes from the checkpoints in this folder."""
    if place is None:
        return fit.method.decision_values(ready, iterate(fit.method, ready, ctx).state, ctx)
    with RunStore.begin(place, {"calibration": fit.method.name, "data": str(ctx.data.digest), "seed": ctx.seed}) as run:
        inner = replace(ctx, scratch=run)
        found = fit.method.decision_values(ready, iterate(fit.method, ready, inner, store=run).state, inner)
        run.drop_scratch()
    return found


def fold_plan(fit: Fit, ctx: RunContext, folds: Folds) -> dict[str, Any]:
    """Return the plan of the first calibration fit. If the folds share passes, this plan covers all folds."""
    return next(fold_runs(fit, ctx, folds))[1].plan


def full_plan(method: AnyMethod, ready: Problem, ctx: RunContext) -> dict[str, Any]:
    """Return the plan of a run that calibrates during the fit. The calibration starts after the fit has released its memory, so the driver
    needs the larger of the two amounts, not their sum.

    Raises ValueError if the target has no classes, and DataError if a class has a single row.
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
    """Return the calibration of a fit. In a run directory, calibration fits resume from checkpoints; otherwise they run in memory."""
    folds = fit.folds(ctx.seed)
    if folds.message:
        ctx.emit({"event": "warning", "message": folds.message})
    place: Path | None = None if ctx.scratch is None else ctx.scratch.scratch / SCRATCH
    return calibrate(fit, ctx, folds, place)

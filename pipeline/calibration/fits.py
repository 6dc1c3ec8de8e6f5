"""Fits without the rows of a fold, and the calibration that is fitted to what they decide on these rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...storage import RunStore
from ..core.engine import iterate
from ..core.method import AnyMethod, Problem
from ..core.resources import ignore
from ..core.search import FoldRuns
from ..inputs.labels import Inputs
from ..models.calibration import Calibration, fit_calibration
from ..records.context import RunContext
from .folds import Folds, draw_folds

log = logging.getLogger("gramplane.calibration")

LOGISTIC = Calibration("logistic")


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit whose probabilities are to be calibrated: its parameters, and references to what it learnt from."""

    method: AnyMethod
    config: Any
    inputs: Any
    grams: Any = field(default=None, repr=False)  # matrices that it has made already, for fits without a fold to read

    @property
    def rows(self) -> Inputs:
        """The labelled rows."""
        return self.inputs.labelled

    @property
    def kind(self) -> str:
        """What is fitted to the decision values."""
        return "isotonic" if self.config.probability == "isotonic" else "sigmoid"

    def folds(self, seed: int) -> Folds:
        """Return the folds, drawn from the seed of the fit. Raises DataError: a class with a single row."""
        return draw_folds(self.rows, seed)


def known_calibration(method: AnyMethod, model: Any) -> Calibration | None:
    """Return how the decision values of a model become probabilities, if that is known: fitted, or exact for its loss."""
    fitted: Calibration | None = getattr(model, "calibration", None)
    if fitted is not None or getattr(model, "classes_json", "null") == "null":
        return fitted
    config = method.config_type.model_validate_json(model.params_json)
    return LOGISTIC if getattr(config, "probability", False) == "auto" and config.is_logistic else None


def calibrate(fit: Fit, ctx: RunContext, folds: Folds, place: Path | None = None) -> Calibration:
    """Return the calibration of a fit, from decision values of fits without a fold each, in ``place`` with checkpoints of their own."""
    log.info("probabilities are calibrated: %s", folds.cost)
    ctx.emit({"event": "calibration", "folds": folds.count, "cost": folds.cost})
    rows, used = fit.rows, folds.rows
    values = fold_values(fit, ctx, folds, place)[:, used]
    weight = np.ones(len(used)) if rows.sample_weight is None else rows.sample_weight
    return fit_calibration(fit.kind, folds.count, values, rows.target[used], weight[used])


def fold_values(fit: Fit, ctx: RunContext, folds: Folds, place: Path | None = None) -> np.ndarray:
    """Return decision values ``(n_machines, n_labelled)``: of each row by the fit without its fold, 0 of rows in none."""
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
    """Yield the runs of a fit without the rows of a fold, each with the folds that it stands for."""
    runs = FoldRuns(fit.method, [fit.config], fit.inputs, dict(enumerate(folds.masks)), ctx, fit.grams)
    for pairs, run in runs.of([0]):
        yield [fold for _, fold in pairs], run


def _finished(fit: Fit, ready: Problem, ctx: RunContext, place: Path | None) -> np.ndarray:
    """Return what a run decides at its end; in a folder it goes on from its checkpoints."""
    if place is None:
        return fit.method.decision_values(ready, iterate(fit.method, ready, ctx).state, ctx)
    with RunStore.begin(place, {"calibration": fit.method.name, "data": str(ctx.data.digest), "seed": ctx.seed}) as run:
        inner = replace(ctx, scratch=run)
        found = fit.method.decision_values(ready, iterate(fit.method, ready, inner, store=run).state, inner)
        run.drop_scratch()
    return found

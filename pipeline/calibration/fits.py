"""Fits without the rows of a fold, and the calibration that is fitted to what they decide on these rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...cluster import MemoryBoundExceeded
from ...storage import RunStore
from ..inputs.labels import Inputs
from ..loops.run import run_loop
from ..method import Method
from ..models.calibration import Calibration, fit_calibration
from ..records.context import RunContext, hush, ignore
from .folds import Folds, draw_folds

log = logging.getLogger("gramplane.calibration")

LOGISTIC = Calibration("logistic")

Decide = Callable[[Method, Any, RunContext], np.ndarray]  # `decide(run, state, ctx)`: as `Method.decision_values`


def decision_values(run: Method, state: Any, ctx: RunContext) -> np.ndarray:
    """Return what the model of a run decides on all labelled rows."""
    return run.decision_values(state, ctx)


@dataclass(frozen=True, eq=False)
class Fit:
    """A fit whose probabilities are to be calibrated: its parameters, and references to what it learnt from."""

    method: type[Method]
    config: Any
    inputs: Any
    decide: Decide = decision_values
    grams: Any = field(default=None, repr=False)  # matrices that it has made already, for fits without a fold to read

    @property
    def rows(self) -> Inputs:
        """The labelled rows."""
        return self.method.labelled(self.inputs)

    @property
    def kind(self) -> str:
        """What is fitted to the decision values."""
        return "isotonic" if self.config.probability == "isotonic" else "sigmoid"

    def folds(self, seed: int) -> Folds:
        """Return the folds, drawn from the seed of the fit. Raises DataError: a class with a single row."""
        return draw_folds(self.rows, seed)


def kept_grams(loop: object) -> Any:
    """Return the matrices that a loop keeps, for others over the same kernels."""
    from ..grams.lazy import hand_over  # most fits of features have no matrices

    return hand_over(None, loop)


def known_calibration(method: type[Method], model: Any) -> Calibration | None:
    """Return how the decision values of a model become probabilities, if that is known: fitted, or exact for its loss."""
    fitted: Calibration | None = getattr(model, "calibration", None)
    if fitted is not None or getattr(model, "classes_json", "null") == "null":
        return fitted
    config = method.config_type.model_validate_json(model.params_json)
    return LOGISTIC if getattr(config, "probability", False) == "auto" and method.is_logistic(config) else None


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


def fold_runs(fit: Fit, ctx: RunContext, folds: Folds) -> Iterator[tuple[Sequence[int], Method]]:
    """Yield runs without the rows of a fold, each with the folds that it stands for: one run for all where they share passes, and together
    fit the memory.
    """
    from ..grams.lazy import hand_over

    method, config, inputs, grams = fit.method, fit.method.for_folds(fit.config), fit.inputs, fit.grams
    ctx = replace(ctx, tell=hush)  # what is to be told of such a fit was told of the whole one
    try:
        shared = method.shared_folds(config, inputs, folds.masks, ctx)
    except MemoryBoundExceeded:
        shared = None
    if shared is not None:
        hand_over(grams, shared.loop)
        yield range(folds.count), shared
        return
    for k, mask in enumerate(folds.masks):
        ready = method.start(config, method.without(inputs, mask), ctx)
        grams = hand_over(grams, ready.loop)
        yield [k], ready


def _finished(fit: Fit, ready: Method, ctx: RunContext, place: Path | None) -> np.ndarray:
    """Return what a run decides at its end; in a folder it goes on from its checkpoints."""
    if place is None:
        return fit.decide(ready, run_loop(ready.loop, ctx, keep=False).state, ctx)
    with RunStore.begin(place, {"calibration": fit.method.name, "data": str(ctx.data.digest), "seed": ctx.seed}) as run:
        inner = replace(ctx, run=run)
        found = fit.decide(ready, run_loop(ready.loop, inner).state, inner)
        run.drop_scratch()
    return found

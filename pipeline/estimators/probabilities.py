"""Probabilities of classes: exact where the loss says them, otherwise calibrated at fit, or of the data of the fit when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...storage import MemoryBlocks
from ...storage.blocks.tables import look
from ..core.calibration import Fit, calibrate
from ..core.resources import RunContext
from ..models.calibration import Calibration
from .inputs import method_context, warn_user


class LateCalibration:
    """A calibration that is made when it is first asked for: then it refers to the data of the fit, which it does not copy.

    Its owner holds the same object before and after, and copies of it have the calibration, if there is one, but no data.
    """

    def __init__(self, make: Callable[[], Calibration] | None) -> None:
        self._make, self._calibration = make, None

    def get(self) -> Calibration | None:
        """Return the calibration, or ``None`` of a copy without data."""
        if self._calibration is None and self._make is not None:
            self._calibration = self._make()
            self._make = None
        return self._calibration

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": None, "_calibration": self._calibration}


def late_calibration(fit: Fit, place: str | None, seed: int, all_memory: bool) -> LateCalibration:
    """Return the calibration of a fit in memory, to be made where and from the seed that the fit was."""
    return LateCalibration(partial(_calibrate_later, fit, place, seed, all_memory, _marks(fit, anew=False)))


def _calibrate_later(fit: Fit, place: str | None, seed: int, all_memory: bool, marks: dict[str, bytes]) -> Calibration:
    changed = [name for name, mark in _marks(fit, anew=True).items() if mark != marks[name]]
    if changed:
        raise ValueError(
            f"{changed[0]} was changed after fit, in place: probability='auto' calibrates from the data of the fit when probabilities are "
            "first asked for; fit again, or with probability='sigmoid', which calibrates at fit"
        )
    getattr(fit.inputs.data, "confirm", tuple)()
    with method_context(fit.inputs.data, place, seed=seed, all_memory=all_memory) as ctx:
        return calibrate_now(fit, ctx)


def calibrate_now(fit: Fit, ctx: RunContext) -> Calibration:
    """Return the calibration of a fit, and warn where it has few folds."""
    folds = fit.folds(ctx.seed)
    if folds.message:
        warn_user(folds.message)
    return calibrate(fit, ctx, folds)


def _marks(fit: Fit, *, anew: bool) -> dict[str, bytes]:
    """Return marks of what a fit shares with its user, by the names of the arguments; stores cannot change. Unless ``anew`` rows have the
    mark that a fit saw when it looked at them.
    """
    data, weight, marks = fit.inputs.data, fit.rows.sample_weight, {}
    given = getattr(data, "source", None)
    if isinstance(data, MemoryBlocks):
        marks["X"] = (look(data.X) if anew else data.look).mark
    elif isinstance(given, np.ndarray):
        marks["X"] = look(given).mark
    if weight is not None:
        marks["sample_weight"] = look(weight).mark
    return marks

"""Class probabilities: exact for losses that define them; otherwise calibrated during the fit or at the first request."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np

from ...storage import MemoryBlocks
from ...storage.blocks.tables import look
from ..core.calibration import Fit, calibrate
from ..core.resources import RunContext
from ..models.calibration import Calibration
from .inputs import method_context, warn_user

M = TypeVar("M")


class LateModel(Generic[M]):
    """A model, such as a calibration, that is computed when first requested, from references to the training data.

    The result is cached. Copies contain a finished model, but never the data.
    """

    def __init__(self, make: Callable[[], M] | None) -> None:
        self._make, self._made = make, None

    def get(self) -> M | None:
        """Return the model, or ``None`` for a copy made before the model was computed."""
        if self._made is None and self._make is not None:
            self._made = self._make()
            self._make = None
        return self._made

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": None, "_made": self._made}


def late_calibration(fit: Fit, place: str | None, seed: int, all_memory: bool) -> LateModel[Calibration]:
    """Return a calibration that is computed at the first request, for a fit in memory. It uses the fit's cluster (``place``) and seed."""
    return LateModel(partial(_calibrate_later, fit, place, seed, all_memory, _marks(fit, anew=False)))


def _calibrate_later(fit: Fit, place: str | None, seed: int, all_memory: bool, marks: dict[str, bytes]) -> Calibration:
    changed = [name for name, mark in _marks(fit, anew=True).items() if mark != marks[name]]
    if changed:
        raise ValueError(
            f"{changed[0]} was changed in place after fit, but with probability='auto' probabilities are calibrated from it later; set "
            "probability='sigmoid' to calibrate during fit, and fit again"
        )
    getattr(fit.inputs.data, "confirm", tuple)()
    with method_context(fit.inputs.data, place, seed=seed, all_memory=all_memory) as ctx:
        return calibrate_now(fit, ctx)


def calibrate_now(fit: Fit, ctx: RunContext) -> Calibration:
    """Return the calibration of a fit; warn if it has few folds."""
    folds = fit.folds(ctx.seed)
    if folds.message:
        warn_user(folds.message)
    return calibrate(fit, ctx, folds)


def _marks(fit: Fit, *, anew: bool) -> dict[str, bytes]:
    """Return checksums, by argument name, of the arrays that a fit shares with its user. If a checksum changes later, the user has modified
    the array in place.

    With ``anew``, checksums of the rows are recomputed; otherwise those computed during the fit are returned.
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

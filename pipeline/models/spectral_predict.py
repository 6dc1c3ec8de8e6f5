"""What transductive methods say of the rows that they were fitted on."""

from __future__ import annotations

import numpy as np

from ...storage import DataError
from ..records.context import RunContext
from .predictor import Predictor
from .spectral import SpectralModel


class SpectralPredictor(Predictor):
    """Scores or coordinates of the rows of the fit; other rows are refused."""

    by_passes = False

    def decision_values(self, model: SpectralModel, ctx: RunContext) -> np.ndarray:
        """Return what the model says of each row. Raises DataError: the data are not the rows of the fit."""
        if not model.data_digest or ctx.data.digest != model.data_digest:
            raise DataError(
                "this method knows only the rows that it was fitted on, and this is another store; fit it on all rows together",
                ctx.data.url,
            )
        return model.predictions()

    def n_values(self, model: SpectralModel) -> int:
        """Return the scores, or coordinates, of a row."""
        return model.predictions().shape[1]

"""Scores of the images of a store by a fitted ranking, whether it has seen them or not."""

from __future__ import annotations

import numpy as np

from ....storage import BlockStore, MemoryBlocks
from ...grams.sources import READ
from ...models.kernel_predict import spans
from ...models.predictor import refuse_width
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...records.context import RunContext
from ...records.holdings import Held, Holding
from .unseen import UnseenImages

IMAGES = Held("rows of the store, as read", "16 n d", "`semantic-ranker`, images that are new to it")


class RankerPredictor(SpectralPredictor):
    """Scores of the images of the fit, and of unseen ones by their likeness to these."""

    held = (IMAGES,)

    def decision_values(self, model: SpectralModel, ctx: RunContext) -> np.ndarray:
        """Return ``(n, 1)`` scores of a store's images: those of the fit on its own store, else those of unseen images.

        Raises ValueError: another number of features.
        """
        data = ctx.data
        if is_fitted_store(model, data):
            return model.predictions()
        unseen = UnseenImages(model)
        refuse_width(data, unseen.rows.shape[1])
        parts = [data.columns(np.arange(data.n_cols), span) for span in spans(data.n_rows, READ)]
        return np.concatenate([unseen.scores(unseen.scale_rows(part)) for part in parts])[:, None]

    def holdings(self, model: SpectralModel, data: BlockStore) -> list[Holding]:
        """Return the rows of a store of unseen images."""
        return [] if is_fitted_store(model, data) else [IMAGES.of(n=data.n_rows, d=data.n_cols)]


def is_fitted_store(model: SpectralModel, data: BlockStore | MemoryBlocks) -> bool:
    """Return whether a store has the images that the model was fitted on."""
    return bool(model.data_digest) and data.digest == model.data_digest

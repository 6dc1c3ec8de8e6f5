"""Scores of images by a fitted ranking, whether it has seen them or not."""

from __future__ import annotations

import json
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block
from ....kernels.grams.spec import KernelSpec
from ....kernels.ranking.pair_ranking import Warp, build_warp
from ....storage import BlockStore, MemoryBlocks
from ....storage.errors import Matrix
from ...core.memory import Item
from ...grams.sources import READ
from ...models.kernel_predict import spans
from ...models.predictor import check_width
from ...models.spectral import SpectralModel
from ...models.spectral_predict import SpectralPredictor
from ...passes.scaling import inverse_row_norms, scaled
from ...records.context import RunContext
from ...records.scale import FeatureScale
from .config import RankerConfig

BATCH_ROWS = 1024  # unseen images that are scored at a time


def model_images(model: SpectralModel) -> Matrix:
    """Return the images of a model as they were, ``(n, d)``."""
    arrays = model.arrays
    if "images" in arrays:
        return arrays["images"]
    shape = tuple(arrays["images_shape"].tolist())
    return sp.csr_array((arrays["images_data"], arrays["images_indices"], arrays["images_indptr"]), shape=shape)


class UnseenImages:
    r"""A fitted ranking on images it has not seen.

    Their kernel with the fitted images is a Gaussian warped by what was learnt. The score of an image x is one step of the walk from x: the
    mean score of where it leads,

    .. math::

        r(x) = \lambda \sum_j \frac{w(x, x_j)}{\sum_i w(x, x_i)} r_j + \frac{1 - \lambda}{n}, \qquad w = \max(\tilde k, 0).

    (A step towards x, from the fitted images, would favour images in dense places, whatever the scores there.)
    """

    def __init__(self, model: SpectralModel) -> None:
        self.model, self.rows = model, model_images(model)
        self.config = RankerConfig.model_validate(json.loads(model.config_json))
        self.spec = KernelSpec("rbf", (("gamma", self.config.gamma / model.figures["mean_distance"]),))

    def scale_rows(self, raw: Matrix) -> Matrix:
        """Return features ``(m, d)`` as the images of the model are: scaled, float64, dense or CSR."""
        scale = FeatureScale(self.model.arrays.get("scale_factor"), self.model.arrays.get("scale_shift"))
        rows: Matrix = raw.astype(np.float64)
        if sp.issparse(rows):
            # A shift leaves no zeros to leave out.
            rows = sp.csc_array(rows) if scale.shift is None else rows.toarray()
        rows = scaled(rows, scale, inverse_row_norms(rows) if self.model.figures["row_scaled"] else None)
        if "images" not in self.model.arrays:
            return sp.csr_array(rows)
        return rows.toarray() if sp.issparse(rows) else rows

    def gaussian(self, left: Matrix, right: Matrix | None = None) -> np.ndarray:
        """Return the kernel before it is warped, ``(a, b)``; with the fitted images by default."""
        return gram_block([self.spec], left, self.rows if right is None else right, dtype=np.float64)[0]

    @cached_property
    def warp(self) -> Warp:
        """The warp, which takes one factorisation of an ``(n, n)`` matrix."""
        return build_warp(self.gaussian(self.rows), self.model.factor, self.config.warp)

    def kernel(self, left: Matrix, right: Matrix | None = None) -> np.ndarray:
        """Return the warped kernel between rows, ``(a, b)``; with the fitted images by default."""
        to_fitted = self.gaussian(left)
        if right is None:
            return self.warp.block(to_fitted, to_fitted, self.gaussian(self.rows))
        return self.warp.block(self.gaussian(left, right), to_fitted, self.gaussian(right))

    def scores(self, rows: Matrix) -> np.ndarray:
        """Return the scores of images, ``(m,)``; an image that is like no other gets the mean score."""
        scores, damping = self.model.arrays["scores"], self.config.damping
        means = np.empty(rows.shape[0])
        for lo, hi in spans(len(means), BATCH_ROWS):
            weights = np.maximum(self.kernel(rows[lo:hi]), 0.0)
            # Row by row, where a matrix product may round a row differently in other company.
            totals, sums = weights.sum(axis=1), (weights * scores).sum(axis=1)
            means[lo:hi] = np.divide(sums, totals, out=np.full(hi - lo, scores.mean()), where=totals > 0)
        return damping * means + (1.0 - damping) / self.model.n_rows


class RankerPredictor(SpectralPredictor):
    """Scores of the images of the fit, and of unseen ones by their likeness to these."""

    def decision_values(self, model: SpectralModel, ctx: RunContext) -> np.ndarray:
        """Return ``(n, 1)`` scores of a store's images: those of the fit on its own store, else those of unseen images.

        Raises ValueError: another number of features.
        """
        data = ctx.data
        if is_fitted_store(model, data):
            return model.predictions()
        unseen = UnseenImages(model)
        check_width(unseen.rows.shape[1], False, data)
        parts = [data.columns(np.arange(data.n_cols), span) for span in spans(data.n_rows, READ)]
        return np.concatenate([unseen.scores(unseen.scale_rows(part)) for part in parts])[:, None]

    def items(self, model: SpectralModel, data: BlockStore) -> list[Item]:
        """Return the rows of a store of unseen images."""
        return [] if is_fitted_store(model, data) else [("rows of the store, as read", 16 * data.n_rows * data.n_cols)]


def is_fitted_store(model: SpectralModel, data: BlockStore | MemoryBlocks) -> bool:
    """Return whether a store has the images that the model was fitted on."""
    return bool(model.data_digest) and data.digest == model.data_digest

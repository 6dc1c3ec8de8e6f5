"""Fitted rankings of the rows of a store: for one query (also for unseen images), for many queries, or by a given similarity.

The models are plain records, saved without pickle.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block
from ....kernels.grams.spec import KernelSpec
from ....kernels.ranking.pair_ranking import Warp, build_warp
from ....storage import BlockStore
from ....storage.errors import Matrix
from ...core.memory import Item
from ...core.resources import Resources
from ...grams.sources import READ
from ...models.kernel import spans
from ...models.model import check_width
from ...models.spectral import SpectralModel, Transductive
from ...passes.blocks import Blocks
from ...passes.scaling import inverse_row_norms, scaled
from ...records.scale import FeatureScale
from .config import RankerConfig

BATCH_ROWS = 1024  # unseen images that are scored at a time


@dataclass(frozen=True)
class RankingModel(Transductive):
    """Scores of rows, query by query, with their certificates. A row may belong to several queries or to none.

    Query q has the entries ``starts[q]:starts[q + 1]`` of rows, scores and prior. The scores of a query sum to 1.
    """

    record_name: ClassVar[str] = "RankingModel"
    config_json: str  # the method's parameters
    data_digest: str  # digest of the store; empty for rows that were given as an array
    n_rows: int  # rows of the store
    queries: tuple[str, ...]  # names, in order of first appearance; one without a name where all rows are one query
    starts: np.ndarray  # (Q + 1,)
    rows: np.ndarray  # (m,)
    scores: np.ndarray  # (m,)
    prior: np.ndarray  # (m,)
    lines: np.ndarray  # (m,) the line of the table of queries that every entry stands in
    figures: dict[str, float] = field(default_factory=dict)  # objective, gap and the like, of all queries together
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # figures of every query (Q,), and pairs and dual variables of all

    def span(self, query: int) -> slice:
        """Return the positions of the entries of a query."""
        return slice(int(self.starts[query]), int(self.starts[query + 1]))

    def predictions(self) -> np.ndarray:
        """Return the scores ``(m, 1)`` in the order of the table's rows."""
        out = np.empty((len(self.scores), 1))
        out[self.lines, 0] = self.scores
        return out


@dataclass(frozen=True)
class RankerModel(SpectralModel):
    """The ranking of one query: scores of the training images, and of unseen images by their similarity to these."""

    record_name: ClassVar[str] = "SpectralModel"

    def decision_values(self, data: Blocks, resources: Resources, **rows: Any) -> np.ndarray:
        """Return ``(n, 1)`` scores of a store's images: the fitted scores for the training store, else scores of unseen images.

        Raises ValueError if the number of features differs from that of the training images.
        """
        if self.is_fitted_on(data):
            return self.predictions()
        unseen = UnseenImages(self)
        check_width(unseen.rows.shape[1], False, data)
        parts = [data.columns(np.arange(data.n_cols), span) for span in spans(data.n_rows, READ)]
        return np.concatenate([unseen.scores(unseen.scale_rows(part)) for part in parts])[:, None]

    def memory(self, data: BlockStore) -> list[Item]:
        """Return the memory that the rows of a store take while they are scored; an empty list for the training store."""
        return [] if self.is_fitted_on(data) else [("rows of the store, as read", 16 * data.n_rows * data.n_cols)]


def model_images(model: RankerModel) -> Matrix:
    """Return the unscaled images of a model, ``(n, d)``."""
    arrays = model.arrays
    if "images" in arrays:
        return arrays["images"]
    shape = tuple(arrays["images_shape"].tolist())
    return sp.csr_array((arrays["images_data"], arrays["images_indices"], arrays["images_indptr"]), shape=shape)


class UnseenImages:
    r"""Scores of unseen images by a fitted ranking.

    The kernel between unseen and training images is a Gaussian, warped by the learnt kernel. The score of an image x is the expected score
    after one step of the walk from x,

    .. math::

        r(x) = \lambda \sum_j \frac{w(x, x_j)}{\sum_i w(x, x_i)} r_j + \frac{1 - \lambda}{n}, \qquad w = \max(\tilde k, 0).

    (A step towards x, from the training images, would favour images in dense regions, whatever the scores there.)
    """

    def __init__(self, model: RankerModel) -> None:
        self.model, self.rows = model, model_images(model)
        self.config = RankerConfig.model_validate(json.loads(model.config_json))
        self.spec = KernelSpec("rbf", (("gamma", self.config.gamma / model.figures["mean_distance"]),))

    def scale_rows(self, raw: Matrix) -> Matrix:
        """Return features ``(m, d)`` in the form of the model's images: scaled, float64, dense or CSR."""
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
        """Return the Gaussian kernel before warping between the rows of ``left`` and ``right``, ``(a, b)``; ``right`` defaults to the
        training images.
        """
        return gram_block([self.spec], left, self.rows if right is None else right, dtype=np.float64)[0]

    @cached_property
    def warp(self) -> Warp:
        """The warp, which needs one factorisation of an ``(n, n)`` matrix."""
        return build_warp(self.gaussian(self.rows), self.model.factor, self.config.warp)

    def kernel(self, left: Matrix, right: Matrix | None = None) -> np.ndarray:
        """Return the warped kernel between the rows of ``left`` and ``right``, ``(a, b)``; ``right`` defaults to the training images."""
        to_fitted = self.gaussian(left)
        if right is None:
            return self.warp.block(to_fitted, to_fitted, self.gaussian(self.rows))
        return self.warp.block(self.gaussian(left, right), to_fitted, self.gaussian(right))

    def scores(self, rows: Matrix) -> np.ndarray:
        """Return the scores of images, ``(m,)``; an image without positive similarity to any other gets the mean score."""
        scores, damping = self.model.arrays["scores"], self.config.damping
        means = np.empty(rows.shape[0])
        for lo, hi in spans(len(means), BATCH_ROWS):
            weights = np.maximum(self.kernel(rows[lo:hi]), 0.0)
            # Row by row, where a matrix product may round a row differently in other company.
            totals, sums = weights.sum(axis=1), (weights * scores).sum(axis=1)
            means[lo:hi] = np.divide(sums, totals, out=np.full(hi - lo, scores.mean()), where=totals > 0)
        return damping * means + (1.0 - damping) / self.model.n_rows

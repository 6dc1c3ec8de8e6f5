"""A fitted model of the strength of ties: a plain record, saved without pickle, that can score new users."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import kernel_from_json
from ....kernels.ranking.user_kernels import PairSum, row_factors, scaled_block
from ....storage import BlockStore, MemoryBlocks, open_shared
from ....storage.errors import Matrix
from ...core.memory import Item
from ...core.resources import Resources
from ...grams.sources import TextRows, rows_of
from ...models.kernel import ROWS, row_spans, spans
from ...models.model import Model, check_width
from ...passes.blocks import Blocks
from ...records.scale import FeatureScale
from .config import SocialConfig
from .score_pass import BLOCK_ENTRIES

BATCH_USERS = 256  # users that are scored at a time


@dataclass(frozen=True)
class SocialModel(Model):
    """``f(u, v) = sum_i a_i k((u, v), (u_i, v_i))`` over pairs of users, and the strength of a tie ``1 / (1 + exp(-f))``.

    For the similarity kernel ``f = offset + sum_t view_weights_t K^t(u, v)``. For other pair kernels, ``view_weights`` are zero and
    ``strengths`` is empty.
    """

    record_name: ClassVar[str] = "SocialModel"
    by_passes = False
    params_json: str
    kernels_json: str  # all views in order, as a list of records
    n_features: int  # 0 for strings
    n_train: int  # users
    precomputed: bool  # whether the views were given as matrices
    theta: np.ndarray  # (k,) weights of the views, l2 norm 1
    factors: np.ndarray  # (k, n) of rows: with the shifts they make a view of a raw matrix
    shifts: np.ndarray  # (k,)
    norms: tuple[Normalization, ...]  # of the raw matrices
    rows: np.ndarray | sp.csr_array | None  # the users' features, scaling applied; none for strings and matrices
    texts: tuple[str, ...]
    pairs: np.ndarray  # (m, 2) with a coefficient
    coef: np.ndarray  # a, (m,)
    view_weights: np.ndarray  # (k,)
    offset: float
    kernel: np.ndarray  # (n, n) float32, sum_t theta_t K^t
    strengths: np.ndarray  # (n, n) float32, sum_t view_weights_t K^t
    scale: FeatureScale = field(default_factory=FeatureScale)
    row_scaled: bool = False  # whether rows are divided by their norm before use
    figures: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    # data_url, data_digest: of a model by blocks the store that has its users, whose rows it does not hold; empty where `rows` are here
    data_url: str = ""
    data_digest: str = ""

    @property
    def by_blocks(self) -> bool:
        """True if scores are computed on demand from the users' rows or sparse similarities, without a stored matrix."""
        return not self.kernel.size

    @property
    def classes_json(self) -> str:
        """JSON null: users have no classes."""
        return "null"

    @property
    def features(self) -> None:
        """None: all features are read."""
        return

    def decision_values(self, data: Blocks, resources: Resources, **rows: Any) -> np.ndarray:
        """Return f(x, v) of the users x of a store and the model's users v, ``(n_rows, n_users)``.

        Raises ValueError if the views were given as matrices, or if the store has another number of features.
        """
        if self.precomputed:
            raise ValueError("the model was fitted on matrices, so it cannot predict rows; for users of the fit see SocialStrengthRanker")
        check_width(self.n_features, False, data)
        specs = [kernel_from_json(record) for record in json.loads(self.kernels_json)]
        parts = [np.zeros((0, self.n_train))]
        for span in row_spans(data, self.n_features):
            read = span.load(self)  # pyright: ignore[reportArgumentType] (it reads the scaling alone)
            for lo, hi in spans(read.shape[0], _batch_users(self)):
                batch = read[lo:hi]
                parts.append(new_user_scores(self, _raw_kernels(self, specs, batch), gram_diagonal(specs, batch)))
        return np.concatenate(parts)

    @property
    def n_values(self) -> int:
        """Number of the model's users."""
        return self.n_train

    def memory(self, data: BlockStore) -> list[Item]:
        """Return the memory of a batch of rows, and of their kernels with the model's users."""
        n_kernels = self.kernels_json.count('"name"') or 1
        return [
            ("rows at hand, as read and scaled", 16 * min(ROWS, data.n_rows) * self.n_features),
            ("kernels between some users and those of the model", 16 * _batch_users(self) * self.n_train * n_kernels),
        ]


def _batch_users(model: SocialModel) -> int:
    """Return the number of new users that are scored at a time."""
    return min(BATCH_USERS, max(1, BLOCK_ENTRIES // model.n_train)) if model.by_blocks else BATCH_USERS


def _raw_kernels(model: SocialModel, specs: list[Any], rows: Matrix) -> np.ndarray:
    """Return the raw kernels between new rows and the model's users, ``(k, rows, n)``; users of a store are read range by range."""
    if not model.by_blocks:
        return gram_block(specs, rows, model.rows if model.rows is not None else np.array(model.texts, dtype=object))
    data = users_of(model)
    return np.concatenate([gram_block(specs, rows, rows_of(data, lo, hi)) for lo, hi in spans(model.n_train, ROWS)], axis=2)


def pair_sum(model: SocialModel) -> PairSum:
    """Return the sums over pairs that define the scores."""
    return PairSum(model.pairs, model.coef, model.n_train, pair_kernel_of(model))


def pair_kernel_of(model: SocialModel) -> str:
    return SocialConfig.model_validate_json(model.params_json).pair_kernel


def users_of(model: SocialModel) -> Any:
    """Return the users of a model that was fitted by blocks, as a data set: the training store, or the rows that the model contains. Raises
    StorageError if the store no longer exists.
    """
    if model.data_url:
        return open_shared(model.data_url, model.data_digest)
    return TextRows(model.texts) if model.rows is None else MemoryBlocks(model.rows)


def new_user_scores(model: SocialModel, grams: np.ndarray, diagonals: np.ndarray | None = None) -> np.ndarray:
    """Return f(x, v) of new users x and the model's users v, ``(m, n)``, from ``(k, m, n)`` raw similarities between them.

    ``diagonals`` are ``(k, m)`` raw similarities of the new users with themselves. They count in the maxima of rows, and cosines require
    them.
    """
    config = SocialConfig.model_validate_json(model.params_json)
    is_similarity = config.pair_kernel == "similarity"
    theta, total = (model.view_weights if is_similarity else model.theta), np.zeros(grams.shape[1:])
    for q, weight in enumerate(theta):
        diagonal = None if diagonals is None else np.asarray(diagonals[q], np.float64)
        raw = np.asarray(grams[q], np.float64)
        block = model.norms[q].apply_test(raw, diagonal=diagonal)
        if config.normalize == "row_max":
            maxima = block.max(axis=1)
            if diagonal is not None:
                # The normalised similarity of new users with themselves.
                norm = model.norms[q]
                centred = diagonal if norm.row_mean is None else diagonal - 2.0 * raw.mean(axis=1) + norm.mean
                maxima = np.maximum(maxima, norm.scale * (centred if norm.diag_root is None else (centred > 0.0).astype(np.float64)))
            block = scaled_block(block, row_factors(maxima), model.factors[q])
        total += weight * block
    return model.offset + total if is_similarity else pair_sum(model).rows(total, model.kernel)

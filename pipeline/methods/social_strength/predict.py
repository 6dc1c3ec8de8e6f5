"""Scores of the users of a store, as new ones, against all users of a model."""

from __future__ import annotations

import json

import numpy as np

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.products import kernel_from_json
from ....storage import BlockStore
from ...models.kernel_predict import ROWS, row_spans, spans
from ...models.predictor import Predictor, check_width
from ...records.context import RunContext
from ...records.holdings import Held, Holding
from .model import SocialModel
from .scores import BATCH_USERS, new_user_scores

USERS_ROWS = Held("rows at hand, as read and scaled", "16 u d", "`social-strength`; u users")
KERNELS = Held("kernels between some users and those of the model", "16 u t k", "`social-strength`; t users of the model")


class SocialPredictor(Predictor):
    """Scores of a store's users, who count as new ones, where the views are kernels over their features."""

    held = (USERS_ROWS, KERNELS)
    by_passes = False

    def decision_values(self, model: SocialModel, ctx: RunContext) -> np.ndarray:
        """Return f(x, v) of the users x of a store and the model's users v, ``(n_rows, n_users)``.

        Raises ValueError: the views were given as matrices, or the store has another width.
        """
        data = ctx.data
        if model.precomputed:
            raise ValueError("the views were given as matrices; recommendations are for the users of those (SocialStrengthRanker)")
        check_width(model.n_features, False, data)
        specs = [kernel_from_json(record) for record in json.loads(model.kernels_json)]
        users = model.rows if model.rows is not None else np.array(model.texts, dtype=object)
        parts = [np.zeros((0, model.n_train))]
        for span in row_spans(data, model.n_features):
            rows = span.load(model)  # pyright: ignore[reportArgumentType] (it reads the scaling alone)
            for lo, hi in spans(rows.shape[0], BATCH_USERS):
                batch = rows[lo:hi]
                parts.append(new_user_scores(model, gram_block(specs, batch, users), gram_diagonal(specs, batch)))
        return np.concatenate(parts)

    def n_values(self, model: SocialModel) -> int:
        """Return the number of the model's users."""
        return model.n_train

    def holdings(self, model: SocialModel, data: BlockStore) -> list[Holding]:
        """Return some rows, and their kernels with the model's users."""
        n_kernels = model.kernels_json.count('"name"') or 1
        return [USERS_ROWS.of(u=min(ROWS, data.n_rows), d=model.n_features), KERNELS.of(u=BATCH_USERS, t=model.n_train, k=n_kernels)]

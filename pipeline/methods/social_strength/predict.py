"""Scores of the users of a store, as new ones, against all users of a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.products import kernel_from_json
from ....storage import BlockStore
from ....storage.errors import Matrix
from ...core.memory import Item
from ...grams.sources import rows_of
from ...models.kernel_predict import ROWS, row_spans, spans
from ...models.predictor import Predictor, check_width
from ...records.context import RunContext
from .model import SocialModel
from .recommend import best_groups_of_users, best_users, incidence, spread_labels
from .score_pass import BLOCK_ENTRIES
from .scores import BATCH_USERS, new_user_scores, tie_strengths, users_of


@dataclass(frozen=True)
class Recommendation:
    """What is recommended to every user: other users, or groups by their members."""

    first: int  # candidates of a user
    members: Sequence[Sequence[Any]] | None = None  # lines of a group and a user in it
    strengths: bool = False  # groups by sums of strengths, which are not negative, in place of scores
    n_popular: int = 1000  # groups with the most members that are candidates


class SocialPredictor(Predictor):
    """Scores of a store's users, who count as new ones, where the views are kernels over their features."""

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
        parts = [np.zeros((0, model.n_train))]
        for span in row_spans(data, model.n_features):
            rows = span.load(model)  # pyright: ignore[reportArgumentType] (it reads the scaling alone)
            for lo, hi in spans(rows.shape[0], _batch_users(model)):
                batch = rows[lo:hi]
                parts.append(new_user_scores(model, _raw_kernels(model, specs, batch), gram_diagonal(specs, batch)))
        return np.concatenate(parts)

    def recommend(self, model: SocialModel, ctx: RunContext, asked: Recommendation) -> dict[str, np.ndarray]:
        """Return candidates of every user as the columns of a table, ``first`` lines each or fewer; ``ctx.data`` are these users."""
        if asked.members is None:
            lists, name = best_users(model, ctx, asked.first), "candidate"
        else:
            ids, groups = (np.array([line[k] for line in asked.members], dtype=object) for k in (1, 0))
            names, codes = np.unique(groups.astype(str), return_inverse=True)
            members, name = incidence(codes, ids.astype(np.int64), model.n_train, len(names)), "group"
            lists = best_groups_of_users(model, ctx, members, asked.first, strengths=asked.strengths, n_popular=asked.n_popular)
        users, ranks = np.nonzero(lists.ids >= 0)
        found = lists.ids[users, ranks]
        table = {"user": users, "rank": ranks + 1, name: found if asked.members is None else names[found]}
        scores = lists.scores[users, ranks]
        return {**table, "decision": scores, **({} if asked.members is not None else {"strength": tie_strengths(scores)})}

    def label(self, model: SocialModel, ctx: RunContext, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return a label of every user, and the values ``(n, classes)`` of the harmonic functions; ``texts`` are empty where unknown.

        Raises ValueError: fewer than two labels, or a user that no tie links to a labelled one.
        """
        given = np.array([text.strip() for text in texts])
        names, codes = np.unique(given[given != ""], return_inverse=True)
        if len(names) < 2:
            raise ValueError(f"labels: {len(names)} different ones are given; two or more are needed")
        values = np.full((len(given), len(names)), np.nan)
        values[given != ""] = np.eye(len(names))[codes]
        fit = spread_labels(model, ctx, values)
        if not fit.converged:
            ctx.emit(
                {"event": "warning", "message": f"labels: the largest number of steps left an error of {fit.error:.1e} in their values"}
            )
        return names[np.argmax(fit.values, axis=1)], fit.values

    def use_items(self, model: SocialModel, asked: Recommendation | None, n_labels: int = 0) -> list[Item]:
        """Return what the driver holds of candidates, or of labels."""
        n = model.n_train
        if asked is not None:
            scores = [] if model.by_blocks else [("scores of some users with all", 24 * BATCH_USERS * n)]
            members = [] if asked.members is None else [("members of groups, as read and by users", 160 * len(asked.members))]
            return [*scores, ("candidates of all users, and their table", 320 * n * asked.first), *members]
        if model.by_blocks:
            return [("values of labels, and vectors of the steps", 120 * n * n_labels)]
        return [("graph of strengths with its links in sparse form, its system and factor", 48 * n * n)]

    def n_values(self, model: SocialModel) -> int:
        """Return the number of the model's users."""
        return model.n_train

    def items(self, model: SocialModel, data: BlockStore) -> list[Item]:
        """Return some rows, and their kernels with the model's users."""
        n_kernels = model.kernels_json.count('"name"') or 1
        return [
            ("rows at hand, as read and scaled", 16 * min(ROWS, data.n_rows) * model.n_features),
            ("kernels between some users and those of the model", 16 * _batch_users(model) * model.n_train * n_kernels),
        ]


def _batch_users(model: SocialModel) -> int:
    """Return how many new users are scored at a time."""
    return min(BATCH_USERS, max(1, BLOCK_ENTRIES // model.n_train)) if model.by_blocks else BATCH_USERS


def _raw_kernels(model: SocialModel, specs: list[Any], rows: Matrix) -> np.ndarray:
    """Return the raw kernels between new rows and the model's users, ``(k, rows, n)``: of a store range by range."""
    if not model.by_blocks:
        return gram_block(specs, rows, model.rows if model.rows is not None else np.array(model.texts, dtype=object))
    data = users_of(model)
    return np.concatenate([gram_block(specs, rows, rows_of(data, lo, hi)) for lo, hi in spans(model.n_train, ROWS)], axis=2)

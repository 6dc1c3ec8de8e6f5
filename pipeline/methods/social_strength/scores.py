"""What a fitted model of ties says: scores of pairs and users, recommendations, labels carried over, users it has not seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.blocks import gram_block, gram_diagonal
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import kernel_of
from ....kernels.ranking.pair_kernels import PairSum
from ....kernels.ranking.user_kernels import row_factors, scaled_block
from ...models.kernel_predict import row_spans, spans
from ...records.context import RunContext
from .config import SocialConfig
from .model import SocialModel

USERS = 256
"""Users scored at a time."""

FIRST = 10
"""The largest m of the table of hits among the first m."""

Score = Callable[[np.ndarray], np.ndarray]
"""``score(users)`` returns the values of some users against all, ``(len(users), n)``."""


def _sum(model: SocialModel) -> PairSum:
    return PairSum(model.pairs, model.coef, model.n_train, kind_of(model))


def kind_of(model: SocialModel) -> str:
    """Return the pair kernel of a model."""
    return SocialConfig.model_validate_json(model.params_json).pair_kernel


def pair_scores(model: SocialModel, pairs: np.ndarray) -> np.ndarray:
    """Return f of pairs of the model's users, ``(m,)``."""
    if kind_of(model) == "similarity":
        return model.offset + model.strengths[pairs[:, 0], pairs[:, 1]].astype(np.float64)
    return _sum(model).at(model.kernel, pairs)


def user_scores(model: SocialModel) -> Score:
    """Return the function that gives f(u, v) of some users u and all v."""
    if kind_of(model) == "similarity":
        return lambda users: model.offset + model.strengths[users].astype(np.float64)
    total = _sum(model)
    return lambda users: total.rows(model.kernel[users], model.kernel)


def direct_scores(model: SocialModel) -> Score:
    """Return the same without learning to rank: the weighted sum of the views itself."""
    return lambda users: model.kernel[users].astype(np.float64)


def strengths(values: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-f))``."""
    return np.exp(-np.logaddexp(0.0, -values))


def first_of(values: np.ndarray, left_out: np.ndarray, k: int) -> np.ndarray:
    """Return the k places of largest value that are not left out, equal ones in order of their number."""
    order = np.argsort(-values, kind="stable")
    return order[~np.isin(order, left_out)][:k]


# -- measures ------------------------------------------------------------------------------------------------------------------


def hits(score: Score, linked: Any, users: np.ndarray, first: int = FIRST) -> np.ndarray:
    """Return the mean share of linked users among the first 1 to m candidates, ``(m,)``; a user is no candidate of himself.

    Parameters
    ----------
    score
        As :func:`user_scores` returns it.
    linked
        ``(n, n)`` not zero for a link, dense or sparse.
    users
        Whose candidates are looked at.
    first
        m; the number of candidates at most.
    """
    links = sp.csr_array(linked)
    first = min(first, len(links.indptr) - 2)
    found = np.zeros(first)
    for lo, hi in spans(len(users), USERS):
        values = score(users[lo:hi])
        for u, row in zip(users[lo:hi].tolist(), values, strict=True):
            best = first_of(row, np.array([u]), first)
            right = np.isin(best, links.indices[slice(*links.indptr[u : u + 2])])
            found += np.cumsum(right) / np.arange(1, first + 1)
    return found / max(len(users), 1)


def hit_table(model: SocialModel, links: Any) -> list[dict[str, Any]]:
    """Return the share of training links among the first m candidates, learnt and direct, and what chance would give."""
    pairs = links.pairs[links.z == 1]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    n = model.n_train
    linked = sp.csr_array((np.ones(len(both)), tuple(both.T)), shape=(n, n))
    linked.sum_duplicates()
    users = np.flatnonzero(np.diff(linked.indptr))
    chance = float(np.diff(linked.indptr)[users].mean() / (n - 1))
    learnt, direct = (hits(score, linked, users) for score in (user_scores(model), direct_scores(model)))
    rows = zip(learnt.tolist(), direct.tolist(), strict=True)
    return [{"first": m, "learnt": a, "direct": b, "chance": chance} for m, (a, b) in enumerate(rows, 1)]


# -- groups --------------------------------------------------------------------------------------------------------------------


def group_scores(values: np.ndarray, membership: Any) -> np.ndarray:
    """Return ``score(g) = sum over the members v of g of f(u, v)``, ``(n_groups,)``, of one user's values ``(n,)``."""
    return membership.T @ values


def popular(membership: Any, most: int) -> np.ndarray:
    """Return the groups with the most members, ascending numbers."""
    sizes = np.bincount(membership.indices, minlength=membership.shape[1])
    return np.sort(np.lexsort((np.arange(len(sizes)), -sizes))[:most])


# -- users that were not there -------------------------------------------------------------------------------------------------


def new_user_scores(model: SocialModel, grams: np.ndarray, diagonals: np.ndarray | None = None) -> np.ndarray:
    """Return f(x, v) of new users x and the model's users v, ``(m, n)``.

    Parameters
    ----------
    grams
        ``(k, m, n)`` raw similarities between new users and the model's.
    diagonals
        ``(k, m)`` raw similarities of the new users with themselves, among which a row's maximum is looked for; needed for cosines.
    """
    config = SocialConfig.model_validate_json(model.params_json)
    similar = config.pair_kernel == "similarity"
    theta, total = (model.view_weights if similar else model.theta), np.zeros(grams.shape[1:])
    for q, weight in enumerate(theta):
        own = None if diagonals is None else np.asarray(diagonals[q], np.float64)
        raw = np.asarray(grams[q], np.float64)
        block = model.norms[q].apply_test(raw, diagonal=own)
        if config.normalize == "row_max":
            top = block.max(axis=1) if own is None else np.maximum(block.max(axis=1), _own_entries(model.norms[q], raw, own))
            block = scaled_block(block, row_factors(top), model.factors[q])
        total += weight * block
    return model.offset + total if similar else _sum(model).rows(total, model.kernel)


def _own_entries(norm: Normalization, raw: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the normalised similarity of new users with themselves."""
    left = own if norm.row_mean is None else own - 2.0 * raw.mean(axis=1) + norm.mean
    return norm.scale * (left if norm.diag_root is None else (left > 0.0).astype(np.float64))


def decide_users(model: SocialModel, ctx: RunContext) -> np.ndarray:
    """Return f(x, v) of the users x of a store and the model's users v, ``(n_rows, n)``; the store's users count as new ones.

    Raises
    ------
    ValueError
        The views were given as matrices, or the store has another width.
    """
    data = ctx.data
    if model.precomputed:
        raise ValueError("the views were given as matrices; recommendations are for the users of those (SocialStrengthRanker)")
    if data.n_cols != model.n_features:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {model.n_features}; ingest the file with --like "
            "TRAINING_STORE"
        )
    found = list(_decided(model, data))
    return np.concatenate(found) if found else np.zeros((0, model.n_train))


def _decided(model: SocialModel, data: Any) -> Iterator[np.ndarray]:
    specs = [kernel_of(record) for record in json.loads(model.kernels_json)]
    users = model.rows if model.rows is not None else np.array(model.texts, dtype=object)
    for span in row_spans(data, model.n_features):
        every: Any = span.load(model)  # pyright: ignore[reportArgumentType] (it reads the scaling alone)
        for lo, hi in spans(every.shape[0], USERS):
            part = every[lo:hi]
            yield new_user_scores(model, gram_block(specs, part, users), gram_diagonal(specs, part))

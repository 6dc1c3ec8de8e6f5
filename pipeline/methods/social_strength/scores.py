"""What a fitted model of ties says: scores of pairs and users, recommendations, labels carried over, users it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.ranking.pair_kernels import PairSum
from ....kernels.ranking.user_kernels import row_factors, scaled_block
from ...models.kernel_predict import spans
from .config import SocialConfig
from .links import Links, link_matrix
from .model import SocialModel

BATCH_USERS = 256  # users that are scored at a time
TOP_SIZE = 10  # the largest m of the table of hits among the first m
Score = Callable[[np.ndarray], np.ndarray]  # `score(users)` returns the values of some users against all, `(len(users), n)`


def _pair_sum(model: SocialModel) -> PairSum:
    return PairSum(model.pairs, model.coef, model.n_train, pair_kernel_of(model))


def pair_kernel_of(model: SocialModel) -> str:
    """Return the pair kernel of a model."""
    return SocialConfig.model_validate_json(model.params_json).pair_kernel


def pair_scores(model: SocialModel, pairs: np.ndarray) -> np.ndarray:
    """Return f of pairs of the model's users, ``(m,)``."""
    if pair_kernel_of(model) == "similarity":
        return model.offset + model.strengths[pairs[:, 0], pairs[:, 1]].astype(np.float64)
    return _pair_sum(model).at(model.kernel, pairs)


def user_scores(model: SocialModel) -> Score:
    """Return the function that gives f(u, v) of some users u and all v."""
    if pair_kernel_of(model) == "similarity":
        return lambda users: model.offset + model.strengths[users].astype(np.float64)
    total = _pair_sum(model)
    return lambda users: total.rows(model.kernel[users], model.kernel)


def direct_scores(model: SocialModel) -> Score:
    """Return the same without learning to rank: the weighted sum of the views itself."""
    return lambda users: model.kernel[users].astype(np.float64)


def tie_strengths(values: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-f))``."""
    return np.exp(-np.logaddexp(0.0, -values))


def top_ranked(values: np.ndarray, excluded: np.ndarray, k: int) -> np.ndarray:
    """Return the k indices of largest value that are not left out, equal ones in order of their number."""
    order = np.argsort(-values, kind="stable")
    return order[~np.isin(order, excluded)][:k]


def hit_rates(score: Score, linked: object, users: np.ndarray, first: int = TOP_SIZE) -> np.ndarray:
    """Return the mean share of linked users among the top 1 to m candidates of some users, ``(m,)``; a user is no candidate of himself.

    ``linked`` is ``(n, n)``, not zero for a link; m is ``first``, or the number of candidates if that is less.
    """
    links: Any = sp.csr_array(linked)
    first = min(first, len(links.indptr) - 2)
    sums = np.zeros(first)
    for lo, hi in spans(len(users), BATCH_USERS):
        values = score(users[lo:hi])
        for u, row in zip(users[lo:hi].tolist(), values, strict=True):
            best = top_ranked(row, np.array([u]), first)
            is_linked = np.isin(best, links.indices[slice(*links.indptr[u : u + 2])])
            sums += np.cumsum(is_linked) / np.arange(1, first + 1)
    return sums / max(len(users), 1)


def hit_table(model: SocialModel, links: Links) -> list[dict[str, Any]]:
    """Return the share of training links among the first m candidates, learnt and direct, and what chance would give."""
    n = model.n_train
    linked = link_matrix(links.pairs[links.z == 1], n)
    users = np.flatnonzero(np.diff(linked.indptr))
    chance = float(np.diff(linked.indptr)[users].mean() / (n - 1))
    learnt, direct = (hit_rates(score, linked, users) for score in (user_scores(model), direct_scores(model)))
    rows = zip(learnt.tolist(), direct.tolist(), strict=True)
    return [{"first": m, "learnt": a, "direct": b, "chance": chance} for m, (a, b) in enumerate(rows, 1)]


def largest_groups(membership: Any, count: int) -> np.ndarray:
    """Return the groups with the most members, ascending numbers."""
    sizes = np.bincount(membership.indices, minlength=membership.shape[1])
    return np.sort(np.lexsort((np.arange(len(sizes)), -sizes))[:count])


def new_user_scores(model: SocialModel, grams: np.ndarray, diagonals: np.ndarray | None = None) -> np.ndarray:
    """Return f(x, v) of new users x and the model's users v, ``(m, n)``, from ``(k, m, n)`` raw similarities between them.

    ``diagonals`` are ``(k, m)`` raw similarities of the new users with themselves, which count for the maxima of rows; needed for cosines.
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
    return model.offset + total if is_similarity else _pair_sum(model).rows(total, model.kernel)

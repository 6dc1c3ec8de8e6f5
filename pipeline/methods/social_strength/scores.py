"""Predictions of a fitted model of ties: scores of pairs and users, recommendations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.grams.products import kernel_from_json
from ....kernels.ranking.tags import TopLists
from ....storage.errors import SparseMatrix
from ...grams.given import GivenKernel
from ...models.kernel import spans
from .block_pass import Normal
from .links import Links, link_matrix
from .model import BATCH_USERS, SocialModel, pair_kernel_of, pair_sum, users_of
from .score_pass import BLOCK_ENTRIES, Scorer, logistic, raw_between

TOP_SIZE = 10  # the largest m of the table of hits among the first m
Score = Callable[[np.ndarray], np.ndarray]  # `score(users)` returns the values of some users against all, `(len(users), n)`


def pair_scores(model: SocialModel, pairs: np.ndarray) -> np.ndarray:
    """Return f for pairs of the model's users, ``(m,)``."""
    if model.by_blocks:
        return _block_pair_scores(model, pairs)
    if pair_kernel_of(model) == "similarity":
        return model.offset + model.strengths[pairs[:, 0], pairs[:, 1]].astype(np.float64)
    return pair_sum(model).at(model.kernel, pairs)


def user_scores(model: SocialModel) -> Score:
    """Return the function that computes f(u, v) of the given users u and all users v."""
    if model.by_blocks:
        return lambda users: _block_rows(model, scorer_of(model), users)
    if pair_kernel_of(model) == "similarity":
        return lambda users: model.offset + model.strengths[users].astype(np.float64)
    total = pair_sum(model)
    return lambda users: total.rows(model.kernel[users], model.kernel)


def direct_scores(model: SocialModel) -> Score:
    """Return the function that computes the weighted sum of the views for the given users u and all users v, without learning to rank."""
    if model.by_blocks:
        return lambda users: _block_rows(model, scorer_of(model, direct=True), users)
    return lambda users: model.kernel[users].astype(np.float64)


def tie_strengths(values: np.ndarray) -> np.ndarray:
    """Return the strengths of ties, ``1 / (1 + exp(-f))``, from scores f."""
    return logistic(values)


def specs_of(model: SocialModel) -> list[Any]:
    records = json.loads(model.kernels_json)
    if not model.precomputed:
        return [kernel_from_json(record) for record in records]
    return [GivenKernel(item["position"], item["label"], item["normalize"], item["centre"]) for item in records]


def scorer_of(model: SocialModel, *, direct: bool = False) -> Scorer:
    """Return a scorer of blocks of a model's users; with ``direct``, scores are the weighted sums of the views alone."""
    normal, scale = Normal.of(model.norms)
    weights, offset = (model.theta, 0.0) if direct else (model.view_weights, model.offset)
    return Scorer(normal, model.factors * scale[:, None], model.shifts, weights[None], np.array([offset]))


def _block_rows(model: SocialModel, scorer: Scorer, users: np.ndarray) -> np.ndarray:
    data, specs, n = users_of(model), specs_of(model), model.n_train
    out = np.empty((len(users), n))
    for lo, hi in spans(n, max(1, BLOCK_ENTRIES // max(1, len(users) * len(specs)))):
        others = np.arange(lo, hi)
        out[:, lo:hi] = scorer.block(raw_between(data, specs, users, others), users, others)[0]
    return out


def _block_pair_scores(model: SocialModel, pairs: np.ndarray) -> np.ndarray:
    data, specs, scorer, out = users_of(model), specs_of(model), scorer_of(model), np.empty(len(pairs))
    order = np.argsort(pairs[:, 0], kind="stable")
    for lo, hi in spans(len(pairs), BATCH_USERS):
        inside = order[lo:hi]
        users, rows = np.unique(pairs[inside, 0], return_inverse=True)
        others, cols = np.unique(pairs[inside, 1], return_inverse=True)
        out[inside] = scorer.block(raw_between(data, specs, users, others), users, others)[0][rows, cols]
    return out


def top_ranked(values: np.ndarray, excluded: np.ndarray, k: int) -> np.ndarray:
    """Return the k indices with the largest values that are not excluded; ties are ordered by number."""
    order = np.argsort(-values, kind="stable")
    return order[~np.isin(order, excluded)][:k]


def hit_rates(score: Score, linked: object, users: np.ndarray, first: int = TOP_SIZE) -> np.ndarray:
    """Return the mean share of linked users among the top 1 to m candidates of the given users, ``(m,)``; users are not their own
    candidates.

    ``linked`` is ``(n, n)``, non-zero for a link; m is ``first``, or the number of candidates if that is less.
    """
    links: SparseMatrix = sp.csr_array(linked)
    lists = TopLists.empty(len(users), min(first, len(links.indptr) - 2))
    for lo, hi in spans(len(users), BATCH_USERS):
        lists.part(lo, hi).offer(score(users[lo:hi]), 0, users[lo:hi])
    return _list_hit_rates(lists.ids, links, users)


def _list_hit_rates(lists: np.ndarray, linked: SparseMatrix, users: np.ndarray) -> np.ndarray:
    """Return the result of :func:`hit_rates`, from the candidates of the users, best first, ``(len(users), m)``."""
    sums = np.zeros(lists.shape[1])
    for u, best in zip(users.tolist(), lists, strict=True):
        is_linked = np.isin(best, linked.indices[slice(*linked.indptr[u : u + 2])])
        sums += np.cumsum(is_linked) / np.arange(1, len(best) + 1)
    return sums / max(len(users), 1)


def train_hits(lists: Sequence[TopLists], links: Links, n: int) -> np.ndarray:
    """Return the hit rates of the training links, computed from the candidate lists of all users: one row for the learnt ranking, one for
    the direct ranking.
    """
    linked, users = _training_links(links, n)
    return np.array([_list_hit_rates(one.ids[users], linked, users) for one in lists])


def _training_links(links: Links, n: int) -> tuple[sp.csr_array, np.ndarray]:
    linked = link_matrix(links.pairs[links.z == 1], n)
    return linked, np.flatnonzero(np.diff(linked.indptr))


def hit_table(model: SocialModel, links: Links) -> list[dict[str, Any]]:
    """Return the share of training links among the top m candidates for the learnt and the direct ranking, and the share expected by
    chance.
    """
    n = model.n_train
    linked, users = _training_links(links, n)
    chance = float(np.diff(linked.indptr)[users].mean() / (n - 1))
    if model.by_blocks:
        learnt, direct = model.arrays["hits"]
    else:
        learnt, direct = (hit_rates(score, linked, users) for score in (user_scores(model), direct_scores(model)))
    rows = zip(learnt.tolist(), direct.tolist(), strict=True)
    return [{"first": m, "learnt": a, "direct": b, "chance": chance} for m, (a, b) in enumerate(rows, 1)]


def largest_groups(membership: SparseMatrix, count: int) -> np.ndarray:
    """Return the groups with the most members, ascending numbers."""
    sizes = np.bincount(membership.indices, minlength=membership.shape[1])
    return np.sort(np.lexsort((np.arange(len(sizes)), -sizes))[:count])

"""Uses of a fitted model of ties for all of its users: candidates, groups, labels. By blocks these are passes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....kernels.ranking.random_walk import HarmonicValues, harmonic_by_products, harmonic_values, strength_graph
from ....kernels.ranking.tags import TopLists
from ....storage.errors import SparseMatrix
from ...models.kernel_predict import spans
from ...records.context import RunContext
from .model import SocialModel
from .score_pass import best_groups, group_lists, strength_products, top_lists
from .scores import BATCH_USERS, largest_groups, scorer_of, specs_of, tie_strengths, user_scores

LABEL_TOL, LABEL_STEPS = 1e-6, 1000  # error of a label's value at which the steps end by blocks, and steps at most


def best_users(model: SocialModel, ctx: RunContext, first: int) -> TopLists:
    """Return the users of strongest tie with every user, strongest first, never himself; ``ctx.data`` are the users of the fit."""
    n, first = model.n_train, min(first, model.n_train - 1)
    if model.by_blocks:
        return top_lists(ctx, specs_of(model), scorer_of(model), first)[0]
    lists, score = TopLists.empty(n, first), user_scores(model)
    for lo, hi in spans(n, BATCH_USERS):
        users = np.arange(lo, hi)
        lists.part(lo, hi).offer(score(users), 0, users)
    return lists


def incidence(groups: np.ndarray, users: np.ndarray, n: int, width: int) -> SparseMatrix:
    """Return members of groups, by pairs of a group and a user, as a binary CSR matrix ``(n, width)``."""
    members: SparseMatrix = sp.csr_array((np.ones(len(users)), (users, groups)), shape=(n, width))
    members.sum_duplicates()
    members.data[:] = 1.0
    return members


def popular_groups(members: SparseMatrix, n_popular: int) -> tuple[SparseMatrix, np.ndarray]:
    """Return the columns of the groups with the most members, and their numbers."""
    chosen = largest_groups(members, n_popular)
    columns: SparseMatrix = sp.csr_array(sp.csc_array(members)[:, chosen])
    columns.sort_indices()
    return columns, chosen


def best_groups_of_users(
    model: SocialModel, ctx: RunContext, members: SparseMatrix, first: int, *, strengths: bool, n_popular: int
) -> TopLists:
    """Return for every user the groups whose members have the strongest ties with him; those joined already are left out.

    ``members``: binary CSR ``(n, groups)``; ``strengths``: sums of strengths, which are not negative, in place of scores; ``n_popular``: of
    so many groups with the most members.
    """
    candidates, numbers = popular_groups(members, n_popular)
    first = min(first, candidates.shape[1])
    if model.by_blocks:
        lists = group_lists(ctx, specs_of(model), scorer_of(model), candidates, first, strengths=strengths)
    else:
        lists, score = TopLists.empty(model.n_train, first), user_scores(model)
        for lo, hi in spans(model.n_train, BATCH_USERS):
            values = score(np.arange(lo, hi))
            found = best_groups((tie_strengths(values) if strengths else values) @ candidates, candidates[lo:hi], first)
            part = lists.part(lo, hi)
            part.ids[:], part.scores[:] = found
    return TopLists(np.where(lists.ids < 0, -1, numbers[lists.ids]), lists.scores)


def spread_labels(
    model: SocialModel, ctx: RunContext, labels: np.ndarray, *, tol: float = LABEL_TOL, max_iter: int = LABEL_STEPS
) -> HarmonicValues:
    """Return labels ``(n, m)`` of all users by the harmonic functions on the strengths of ties; given ones stay, NaN is unknown."""
    if not model.by_blocks:
        n, score = model.n_train, user_scores(model)
        strengths = strength_graph(np.concatenate([tie_strengths(score(np.arange(lo, hi))) for lo, hi in spans(n, BATCH_USERS)]))
        return HarmonicValues(harmonic_values(strengths, labels), 0.0, 0, converged=True)
    specs, scorer = specs_of(model), scorer_of(model)
    return harmonic_by_products(lambda vectors: strength_products(ctx, specs, scorer, vectors), labels, tol=tol, max_iter=max_iter)

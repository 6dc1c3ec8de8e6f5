"""Applications of a fitted model of ties to all its users: candidates, groups, labels. For a model fitted by blocks, they are computed by
passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....kernels.ranking.random_walk import HarmonicValues, harmonic_by_products, harmonic_values, strength_graph
from ....kernels.ranking.tags import TopLists
from ....storage.errors import SparseMatrix
from ...core.memory import Item
from ...core.resources import Resources
from ...models.kernel import spans
from ...records.data_set import DataSet
from .model import BATCH_USERS, SocialModel
from .score_pass import best_groups, group_lists, strength_products, top_lists
from .scores import largest_groups, scorer_of, specs_of, tie_strengths, user_scores

LABEL_TOL, LABEL_STEPS = 1e-6, 1000  # error of a label's value at which the steps end by blocks, and steps at most


@dataclass(frozen=True)
class Recommendation:
    """What is recommended to every user: other users, or groups, ranked by their members."""

    first: int  # candidates of a user
    members: Sequence[Sequence[Any]] | None = None  # lines of a group and a user in it
    strengths: bool = False  # groups by sums of strengths, which are not negative, in place of scores
    n_popular: int = 1000  # groups with the most members that are candidates


def best_users(model: SocialModel, data: DataSet, resources: Resources, first: int) -> TopLists:
    """Return, for every user, the other users with the strongest ties to this user, strongest first; ``data`` are the users of the fit."""
    n, first = model.n_train, min(first, model.n_train - 1)
    if model.by_blocks:
        return top_lists(data, resources, specs_of(model), scorer_of(model), first)[0]
    lists, score = TopLists.empty(n, first), user_scores(model)
    for lo, hi in spans(n, BATCH_USERS):
        users = np.arange(lo, hi)
        lists.part(lo, hi).offer(score(users), 0, users)
    return lists


def incidence(groups: np.ndarray, users: np.ndarray, n: int, width: int) -> SparseMatrix:
    """Return the members of groups, given as pairs of a group and a user, as a binary CSR matrix ``(n, width)``."""
    members: SparseMatrix = sp.csr_array((np.ones(len(users)), (users, groups)), shape=(n, width))
    members.sum_duplicates()
    members.data[:] = 1.0
    return members


def popular_groups(members: SparseMatrix, n_popular: int) -> tuple[SparseMatrix, np.ndarray]:
    """Return the columns of ``members`` for the ``n_popular`` groups with the most members, and the indices of these columns."""
    chosen = largest_groups(members, n_popular)
    columns: SparseMatrix = sp.csr_array(sp.csc_array(members)[:, chosen])
    columns.sort_indices()
    return columns, chosen


def best_groups_of_users(
    model: SocialModel, data: DataSet, resources: Resources, members: SparseMatrix, first: int, *, strengths: bool, n_popular: int
) -> TopLists:
    """Return, for every user, the groups whose members have the strongest ties with the user; groups of the user are excluded.

    ``members`` is binary CSR ``(n, groups)``. ``strengths``: sum strengths, which are non-negative, instead of scores. ``n_popular``:
    consider only this many groups, those with the most members.
    """
    candidates, numbers = popular_groups(members, n_popular)
    first = min(first, candidates.shape[1])
    if model.by_blocks:
        lists = group_lists(data, resources, specs_of(model), scorer_of(model), candidates, first, strengths=strengths)
    else:
        lists, score = TopLists.empty(model.n_train, first), user_scores(model)
        for lo, hi in spans(model.n_train, BATCH_USERS):
            values = score(np.arange(lo, hi))
            found = best_groups((tie_strengths(values) if strengths else values) @ candidates, candidates[lo:hi], first)
            part = lists.part(lo, hi)
            part.ids[:], part.scores[:] = found
    return TopLists(np.where(lists.ids < 0, -1, numbers[lists.ids]), lists.scores)


def spread_labels(
    model: SocialModel, data: DataSet, resources: Resources, labels: np.ndarray, *, tol: float = LABEL_TOL, max_iter: int = LABEL_STEPS
) -> HarmonicValues:
    """Return labels ``(n, m)`` of all users by the harmonic functions on the strengths of ties. Given labels do not change; NaN is
    unknown.
    """
    if not model.by_blocks:
        return HarmonicValues(spread_here(model, labels), 0.0, 0, converged=True)
    specs, scorer = specs_of(model), scorer_of(model)
    return harmonic_by_products(
        lambda vectors: strength_products(data, resources, specs, scorer, vectors), labels, tol=tol, max_iter=max_iter
    )


def spread_here(model: SocialModel, labels: np.ndarray) -> np.ndarray:
    """Return the result of :func:`spread_labels` for a model that stores its matrices; one label ``(n,)`` or several."""
    score = user_scores(model)
    parts = [tie_strengths(score(np.arange(lo, hi))) for lo, hi in spans(model.n_train, BATCH_USERS)]
    return harmonic_values(strength_graph(np.concatenate(parts)), labels)


def recommended(model: SocialModel, data: DataSet, resources: Resources, asked: Recommendation) -> dict[str, np.ndarray]:
    """Return the candidates of every user as the columns of a table, with up to ``first`` candidates per user. ``data`` are the users of
    the fit.
    """
    if asked.members is None:
        lists, name = best_users(model, data, resources, asked.first), "candidate"
    else:
        ids, groups = (np.array([line[k] for line in asked.members], dtype=object) for k in (1, 0))
        names, codes = np.unique(groups.astype(str), return_inverse=True)
        members, name = incidence(codes, ids.astype(np.int64), model.n_train, len(names)), "group"
        lists = best_groups_of_users(model, data, resources, members, asked.first, strengths=asked.strengths, n_popular=asked.n_popular)
    users, ranks = np.nonzero(lists.ids >= 0)
    found = lists.ids[users, ranks]
    table = {"user": users, "rank": ranks + 1, name: found if asked.members is None else names[found]}
    scores = lists.scores[users, ranks]
    return {**table, "decision": scores, **({} if asked.members is not None else {"strength": tie_strengths(scores)})}


def labelled(model: SocialModel, data: DataSet, resources: Resources, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return a label of every user, and the values ``(n, classes)`` of the harmonic functions; an empty text is an unknown label.

    Raises ValueError for fewer than two labels, and for a user that no tie links to a labelled one.
    """
    given = np.array([text.strip() for text in texts])
    names, codes = np.unique(given[given != ""], return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"labels: at least two different labels are needed, found {len(names)}")
    values = np.full((len(given), len(names)), np.nan)
    values[given != ""] = np.eye(len(names))[codes]
    fit = spread_labels(model, data, resources, values)
    if not fit.converged:
        resources.emit(
            {"event": "warning", "message": f"labels: the largest number of steps left an error of {fit.error:.1e} in their values"}
        )
    return names[np.argmax(fit.values, axis=1)], fit.values


def use_items(model: SocialModel, asked: Recommendation | None, n_labels: int = 0) -> list[Item]:
    """Return the memory of the driver for candidates or labels."""
    n = model.n_train
    if asked is not None:
        scores = [] if model.by_blocks else [("scores of some users with all", 24 * BATCH_USERS * n)]
        members = [] if asked.members is None else [("members of groups, as read and by users", 160 * len(asked.members))]
        return [*scores, ("candidates of all users, and their table", 320 * n * asked.first), *members]
    if model.by_blocks:
        return [("values of labels, and vectors of the steps", 120 * n * n_labels)]
    return [("graph of strengths with its links in sparse form, its system and factor", 48 * n * n)]

"""Training pairs of users out of contacts, comments and similarities."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from ..arrays import IntArray


def training_pairs(
    contacts: object, comments: object, views: ArrayLike, *, per_user: int | None = None, users: ArrayLike | None = None, seed: int = 0
) -> tuple[IntArray, IntArray]:
    """Return pairs ``(m, 2)`` of users and z ``(m,)``: for every user contacts with many comments, and as many least similar others.

    Linked pairs of u are the contacts with the most comments. The others are users that are among the N least similar of u under every
    view, N the least number that gives as many as there are linked ones (Zhuang: Kernel learning, thesis, 2011, section 7.3.2, which says
    "top" and means this end). Users who are equally similar are drawn from at random.

    ``contacts`` ``(n, n)``, dense or sparse, are not zero for a contact, ``comments`` ``(n, n)`` the numbers of comments, and ``views``
    ``(k, n, n)`` similarities. At most ``per_user`` linked pairs of a user are taken (all by default), of some ``users`` at both ends (all
    by default).
    """
    stack = np.asarray(views)
    if stack.ndim != 3 or stack.shape[1] != stack.shape[2]:
        raise ValueError(f"views have shape {stack.shape}; they must be (n_views, n_users, n_users)")
    linked, counts = sp.csr_array(contacts), sp.csr_array(comments, dtype=np.float64)
    if linked.shape != stack.shape[1:] or counts.shape != stack.shape[1:]:
        raise ValueError(f"contacts have shape {linked.shape} and comments {counts.shape}; the views are of {stack.shape[1]} users")
    chosen = np.arange(len(stack[0])) if users is None else np.asarray(users, dtype=np.int64)
    rng, rows = np.random.default_rng(seed), []
    for u in chosen.tolist():
        row = slice(*linked.indptr[u : u + 2])
        friends = np.intersect1d(linked.indices[row][linked.data[row] != 0], chosen)
        friends = friends[friends != u]
        closest = friends[np.lexsort((friends, -counts[[u]].toarray().ravel()[friends]))][:per_user]
        others = np.setdiff1d(chosen, np.append(friends, u))
        far = _least_similar(stack[:, u, others], rng)
        rows += [(u, v, 1) for v in closest.tolist()] + [(u, v, 0) for v in others[far][: len(closest)].tolist()]
    table = np.array(rows, dtype=np.int64).reshape(len(rows), 3)
    return np.ascontiguousarray(table[:, :2]), np.ascontiguousarray(table[:, 2])


def _least_similar(similarity: NDArray[Any], rng: np.random.Generator) -> IntArray:
    """Return candidates by their worst rank among the views, ``similarity`` (k, m); the first N are least similar under every view."""
    worst = np.zeros(similarity.shape[1], dtype=np.int64)
    for row in similarity:
        # Equal entries share the least of their ranks: no view prefers one of them.
        worst = np.maximum(worst, np.searchsorted(np.sort(row), row, side="left"))
    return np.lexsort((rng.random(len(worst)), worst))

"""Small communities with known circles, pairs to learn from, and what identifies a fitted model of ties."""

import numpy as np
import scipy.sparse as sp

from gramplane.kernels.ranking.user_kernels import comment_kernel, incidence_kernel, row_factors, scaled_block
from tests.support.oracles import social as oracle


def raw_views(n=24, seed=0):
    """Counts and similarities of users in three circles; the second is indefinite."""
    rng = np.random.default_rng(seed)
    circle = np.resize(np.arange(3), n)
    groups = rng.random((n, 30)) < 0.1 + 0.4 * (circle[:, None] == np.resize(np.arange(3), 30))
    groups[:, 0] = True
    comments = rng.poisson(0.3 + 1.5 * (circle[:, None] == circle))
    return np.stack([incidence_kernel(groups), comment_kernel(comments), incidence_kernel(rng.random((n, 40)) < 0.3)]), circle


def some_pairs(circle, m=60, seed=0):
    rng = np.random.default_rng(seed)
    pairs = np.array([rng.choice(len(circle), 2, replace=False) for _ in range(m)])
    z = (circle[pairs[:, 0]] == circle[pairs[:, 1]]).astype(int)
    return pairs, np.where(rng.random(m) < 0.1, 1 - z, z)


def problem(n=24, seed=0):
    views, circle = raw_views(n, seed)
    return (views, *some_pairs(circle, seed=seed))


def links(pairs, z, n):
    Y = np.eye(n)
    for (u, v), one in zip(pairs, z):
        if one:
            Y[u, v] = Y[v, u] = 1.0
    return Y


def numbers(machine):
    model = machine.model_
    return [np.asarray(part).tobytes() for part in (model.theta, model.coef, model.kernel, model.strengths, model.factors, model.shifts)]


def normalise_row_maximum(gram):
    """Return a matrix with rows divided by their maxima, made symmetric and positive semi-definite; ``(n, n)``, a copy."""
    raw = np.asarray(gram, dtype=np.float64)
    factors = row_factors(raw.max(axis=1))
    return oracle.shifted(scaled_block(raw, factors, factors))


def training_pairs(contacts, comments, views, *, per_user=None, users=None, seed=0):
    """Return pairs ``(m, 2)`` of users and z ``(m,)``: for every user contacts with many comments, and as many least similar others.

    Linked pairs of u are the contacts with the most comments. The others are users that are among the N least similar of u under every
    view, N the least number that gives as many as there are linked ones (Zhuang: Kernel learning, thesis, 2011, section 7.3.2, which says
    "top" and means this end). Users who are equally similar are drawn from at random.

    ``contacts`` ``(n, n)``, dense or sparse, are not zero for a contact, ``comments`` ``(n, n)`` the numbers of comments, and ``views``
    ``(k, n, n)`` similarities. At most ``per_user`` linked pairs of a user are taken (all by default), of some ``users`` at both ends (all
    by default).
    """
    stack = np.asarray(views)
    linked, counts = sp.csr_array(contacts), sp.csr_array(comments, dtype=np.float64)
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


def _least_similar(similarity, rng):
    """Return candidates by their worst rank among the views, ``similarity`` (k, m); the first N are least similar under every view."""
    worst = np.zeros(similarity.shape[1], dtype=np.int64)
    for row in similarity:
        # Equal entries share the least of their ranks: no view prefers one of them.
        worst = np.maximum(worst, np.searchsorted(np.sort(row), row, side="left"))
    return np.lexsort((rng.random(len(worst)), worst))

"""Small communities with known circles, and what identifies a fitted model of ties."""

import numpy as np

from gramplane.kernels.ranking.user_kernels import comment_kernel, incidence_kernel


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

"""Synthetic communities of users: contacts, comments, tags, groups and places that follow known hidden memberships."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...kernels.ranking.user_kernels import comment_kernel, incidence_kernel, text_kernel, visual_kernel

VIEWS = ("visual", "text", "comment", "group", "contact", "location", "fave")

# Items, mean count of a user, and signal-to-noise ratio of the views that follow the communities' profiles.
COUNTED = {"text": (300, 60.0, 1.0), "group": (200, 20.0, 0.8), "location": (100, 10.0, 0.4)}


@dataclass(frozen=True)
class SocialGraph:
    """Users in seven views, and the truth about their ties.

    ``views``: ``(7, n, n)`` raw similarities in the order of ``VIEWS``. ``contacts``: ``(n, n)`` symmetric, True for contacts.
    ``comments``: ``(n, n)`` number of comments by the row's user on the column user's photos. ``groups``: ``(n, n_groups)`` True for groups
    that a user joined. ``communities``: ``(n, n_communities)`` hidden shares; rows sum to 1. ``held_out``: ``(n,)`` True for users whose
    ties are test data.
    """

    views: np.ndarray
    contacts: np.ndarray
    comments: np.ndarray
    groups: np.ndarray
    communities: np.ndarray
    held_out: np.ndarray


def social_graph(n: int = 240, n_communities: int = 8, n_test: int = 60, *, noise: float = 9.0 / 8.0, seed: int = 0) -> SocialGraph:
    """Return a community in which comments and tags depend on ties, and pictures and favourites do not.

    User u belongs to communities with proportions pi_u ~ Dirichlet(0.2). Ties depend on s_uv = <pi_u, pi_v>: contacts have probability
    ``s/4 + .003``. Comments are Poisson(3 s) on a quarter of the contacts, Poisson(.02) on all pairs, and Poisson(3) by users on their own
    photos. Counts of tags, groups and places are Poisson; their means are the mean total of a user times
    ``(snr pi profile + 1/V) / (1 + snr)``, for V different tags (groups, places). Favourites are pure noise, and the mean visual words are
    pi + N(0, noise).

    Examples
    --------
    >>> from gramplane.datasets import social_graph
    >>> community = social_graph(n=40)
    >>> community.views.shape
    (7, 40, 40)
    """
    rng = np.random.default_rng(seed)
    pi = rng.dirichlet(np.full(n_communities, 0.2), n)
    s = pi @ pi.T
    upper = np.triu(rng.random((n, n)) < 0.25 * s + 0.003, 1)
    contacts = upper | upper.T
    # All on the upper triangle: a kernel looks at both directions together.
    talking = upper & (rng.random(s.shape) < 0.25)
    between = np.triu(np.where(talking, rng.poisson(3.0 * s), 0) + rng.poisson(0.02, s.shape), 1)
    comments = between + np.diag(rng.poisson(3.0, n))
    counts = {name: _counts(rng, pi, *options) for name, options in COUNTED.items()}
    faves = rng.random((n, 300)) < 0.03
    words = pi + rng.normal(0.0, np.sqrt(noise), pi.shape)
    made = {
        "visual": visual_kernel(words),
        "text": text_kernel(counts["text"]),
        "comment": comment_kernel(comments),
        "group": incidence_kernel(counts["group"]),
        "contact": incidence_kernel(contacts),
        "location": incidence_kernel(counts["location"]),
        "fave": incidence_kernel(faves),
    }
    is_test = np.arange(n) >= n - n_test
    return SocialGraph(np.stack([made[name] for name in VIEWS]), contacts, comments, counts["group"] > 0, pi, is_test)


def _counts(rng: np.random.Generator, pi: np.ndarray, items: int, mean: float, snr: float) -> np.ndarray:
    profiles = rng.dirichlet(np.full(items, 0.05), pi.shape[1])
    return rng.poisson(mean * (snr * (pi @ profiles) + 1.0 / items) / (1.0 + snr))

"""Synthetic images of a query with features, tags and known relevance; a substitute for images from a web search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WIDTH = 10  # visual features
TAGS = 60  # tags; the first is the query's own, on every image


@dataclass(frozen=True)
class PlantedImages:
    """The images that a search returned for one query.

    ``X``: ``(n, 10)`` visual features. ``tags``: ``(n, 60)``, 1 if an image has a tag. ``relevant``: ``(n,)`` whether an image is relevant
    to the query. ``text_scores``: ``(n,)`` scores of the search engine, of any sign, hardly better than chance.
    """

    X: np.ndarray
    tags: np.ndarray
    relevant: np.ndarray
    text_scores: np.ndarray

    def tag_lines(self) -> list[str]:
        """Return one line of tags per image, in the format of a tag file."""
        return [" ".join(f"tag{j}" for j in np.flatnonzero(row)) for row in self.tags]


def planted_images(n: int = 120, *, share: float = 0.45, n_relevant: int = 2, n_scattered: int = 25, seed: int = 0) -> PlantedImages:
    """Return images of one query: relevant ones in few clusters, irrelevant ones scattered over many.

    Features are the sum of a cluster centre, drawn from N(0, 1), and noise from N(0, 1.05^2). A cluster has each tag with probability 0.12;
    relevant clusters always have tags 1 to 5. Images have the tags of their cluster, but 30 % of the entries of ``tags`` are replaced by
    noise, which is 1 with probability 0.1. All images have tag 0. With few irrelevant clusters (such as 5), both kinds of images have
    similar features, and a kernel without a prior cannot distinguish majority from minority.

    ``n``: images. ``share``: share of relevant images. ``n_relevant``, ``n_scattered``: numbers of clusters of relevant and of irrelevant
    images. ``seed``: random seed.

    Examples
    --------
    >>> from gramplane.datasets import planted_images
    >>> images = planted_images(n=60)
    >>> images.X.shape, images.tags.shape
    ((60, 10), (60, 60))
    """
    rng = np.random.default_rng(seed)
    relevant = rng.permutation(np.arange(n) < round(share * n))
    clusters = n_relevant + n_scattered
    cluster = np.where(relevant, rng.integers(0, n_relevant, n), n_relevant + rng.integers(0, n_scattered, n))
    X = rng.normal(size=(clusters, WIDTH))[cluster] + 1.05 * rng.normal(size=(n, WIDTH))
    profiles = rng.random((clusters, TAGS)) < 0.12
    profiles[:n_relevant, :6] = True
    noise = rng.random((n, TAGS)) < 0.1
    tags = np.where(rng.random((n, TAGS)) < 0.3, noise, profiles[cluster])
    tags[:, 0] = True
    return PlantedImages(X, tags.astype(np.float64), relevant, rng.normal(size=n) + 0.3 * relevant)

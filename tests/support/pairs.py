"""Small degree-2 problems, and what a search over all their coordinates finds."""

from __future__ import annotations

import numpy as np

from gramplane.kernels.features.pairs import PairMap, TopPairs
from tests.support.oracles.selection import Ranked, ordered_pairs

MAP = PairMap(gamma=0.5, coef0=2.0)


def problem(seed: int, whole: bool, n: int = 24, d: int = 13) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very uneven frequency; whole numbers tie often."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, d)) * (rng.random((n, d)) < 0.9 / (1 + np.arange(d) / 3))
    X = X[:, rng.permutation(d)].astype(np.float64)
    u = rng.integers(-2, 3, n).astype(np.float64)
    return (X, u) if whole else (X * rng.normal(size=(n, d)), u * rng.normal(size=n))


def everything(X: np.ndarray, u: np.ndarray, pair_map: PairMap = MAP) -> Ranked:
    """Every coordinate with its value."""
    return ordered_pairs(X, u, pair_map.linear, pair_map.square, pair_map.product)


def as_list(top: TopPairs) -> Ranked:
    """A found list in the form of the oracle's."""
    assert np.array_equal(top.keys, np.abs(top.values))
    return [((int(a), int(b)), float(v)) for (a, b), v in zip(top.ids, top.values, strict=True)]

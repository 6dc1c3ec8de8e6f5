"""docs/theory/corrections.md, the group lasso on a stream: printed statements fail here, what stands in their place holds."""

from math import comb

import numpy as np
import pytest

from gramplane.kernels.group_lasso.penalty import single_features
from gramplane.kernels.group_lasso.streams import StreamLearner
from tests.kernels.group_lasso.test_streams import rows_of


def averaged_losses(slopes, gamma=1.0):
    """Average regret against w = 0 of dual averaging on l_t(w) = u_t w with lam = 0, and the largest |mean slope| on the way."""
    total, w, paid, mean = 0.0, 0.0, 0.0, []
    for t, u in enumerate(slopes, start=1):
        paid += u * w
        total += u
        mean.append(abs(total / t))
        w = -np.sqrt(t) / gamma * total / t
    return paid / len(slopes), max(mean)


def test_averaged_slopes_that_are_bounded_bound_no_regret():
    regrets = []
    for T in (10, 100, 1000):
        regret, largest = averaged_losses([(-1) ** t * t for t in range(1, T + 1)])
        assert largest <= 1.0
        regrets.append(regret)
        assert regret > (1.0 + 1.0) / np.sqrt(T)  # (gamma D^2 + L^2 / gamma) / sqrt T with D = L = 1 bounding the mean
    assert regrets[0] < regrets[1] / 10 < regrets[2] / 100
    # With every |u_t| <= 1 the bound holds.
    for seed in range(5):
        slopes = np.random.default_rng(seed).uniform(-1, 1, 400)
        assert averaged_losses(slopes)[0] <= 2 / np.sqrt(400)


def test_the_sum_of_slope_bounds_is_not_that_of_the_analysis_it_cites():
    """Its first two proximity coefficients are equal: 1 + sum_{t < T} 1/sqrt t, at least sum_{t <= T}; both stay within 2 sqrt T."""
    for T in (1, 2, 10, 1000):
        printed = np.sum(1 / np.sqrt(np.arange(1, T + 1)))
        cited = 1 + np.sum(1 / np.sqrt(np.arange(1, T)))
        assert cited >= printed and (cited > printed) == (T > 1)
        assert cited <= 2 * np.sqrt(T)


def test_sums_and_means_of_losses_need_different_penalties():
    """One feature, x = y = 1, N = 4 rows: sum_i 1/2 (1 - w)^2 + lam w is least at 1 - lam / N, the mean at 1 - lam."""
    N, lam = 4, 0.4
    grid = np.linspace(0, 1, 100_001)
    total = grid[np.argmin(N * 0.5 * (1 - grid) ** 2 + lam * grid)]
    mean = grid[np.argmin(0.5 * (1 - grid) ** 2 + lam * grid)]
    assert (total, mean) == (pytest.approx(1 - lam / N, abs=1e-5), pytest.approx(1 - lam, abs=1e-5))
    # Ours is the mean: the threshold of a stream of equal rows does not depend on their number.
    for n in (3, 30):
        stream = StreamLearner(single_features(1), 0.9, loss="squared", gamma=1e9, intercept=False)
        stream.take(rows_of(np.ones((n, 1))), np.ones((1, n)), np.ones(n))
        assert stream.weights()[0][0, 0] > 0
        stream = StreamLearner(single_features(1), 1.1, loss="squared", gamma=1e9, intercept=False)
        stream.take(rows_of(np.ones((n, 1))), np.ones((1, n)), np.ones(n))
        assert stream.weights()[0][0, 0] == 0.0


def test_terms_of_the_splice_sites():
    groups = comb(7, 1) + comb(7, 2) + comb(7, 3)
    assert groups == 63 and 7 * 4 + 21 * 16 + 35 * 64 == 2604  # "64 terms" counts the intercept

"""docs/theory/corrections.md, feature selection over tasks: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.group_lasso.task_selection import Rounds, TaskStream, task_penalty
from gramplane.kernels.losses import LossKind, value_and_slope
from tests.support.oracles.dual_averaging import slope_and_loss


def weights(mean, name="amtfs", lam=0.0, r=0.3, gamma=1.0, t=1):
    d, Q = mean.shape
    stream = TaskStream(t, t * mean, np.zeros(Q), np.zeros(Q), np.square(t * mean).sum(axis=1))
    return Rounds(task_penalty(name, d, r), lam, gamma, "squared").weights(stream).T


def test_averaged_slopes_that_are_bounded_bound_no_regret():
    """Theorem 4 as printed, on one feature and one task: G_t = (-1)^t t, no penalty."""
    regrets = []
    for T in (10, 100, 1000):
        G, paid, W = 0.0, 0.0, 0.0
        for t in range(1, T + 1):
            slope = (-1) ** t * t
            paid += slope * W
            G += slope
            assert abs(G / t) <= 1.0
            W = weights(np.array([[G / t]]), t=t)[0, 0]
        regrets.append(paid / T)
        assert regrets[-1] > 2 / np.sqrt(T)
    assert regrets[2] > 50 * regrets[1] / 10 > regrets[0]


@pytest.mark.parametrize(("x", "y"), [(2.0, 1.0), (2.0, -1.0), (-3.0, 1.0)])
def test_the_slope_of_the_hinge(x, y):
    def loss(w):
        return max(0.0, 1 - y * w * x)

    for w in (-2.0, 0.1, 5.0):
        slope = (loss(w + 1e-7) - loss(w - 1e-7)) / 2e-7
        right = -y * x if y * w * x < 1 else 0.0
        assert slope == pytest.approx(right, abs=1e-6)
        assert value_and_slope(int(LossKind.HINGE), y, w * x)[1] * x == pytest.approx(right)
    printed = max(0.0, -y * x)
    assert any(abs(printed - (-y * x if y * w * x < 1 else 0.0)) > 1 for w in (-2.0, 0.1, 5.0))


def test_the_product_of_matrices_is_a_trace():
    rng = np.random.default_rng(0)
    G, W = rng.normal(size=(2, 4, 3))
    assert (G.T @ W).shape == (3, 3)  # (4.8) adds it to numbers
    least = weights(G, lam=0.5, gamma=2.0, t=4)

    def upsilon(W):
        return np.trace(G.T @ W) + 0.5 * np.linalg.norm(W, axis=1).sum() + 2.0 / 2.0 * 0.5 * np.square(W).sum()

    for _ in range(50):
        assert upsilon(least) <= upsilon(least + 0.3 * rng.normal(size=W.shape)) + 1e-12


def test_the_penalty_is_no_sum_over_tasks():
    """(4.15) charges every task Omega of its column: sqrt 2 for a row (1, 1) becomes 2. The regret is a joint one."""
    row = np.array([[1.0, 1.0]])
    assert np.linalg.norm(row) == pytest.approx(np.sqrt(2)) and sum(np.linalg.norm(column) for column in row.T) == 2.0


def test_one_task_and_not_one_round_makes_the_norm_that_of_the_lasso():
    mean = np.array([[0.9], [-0.3], [0.5]])
    np.testing.assert_allclose(weights(mean, lam=0.4), weights(mean, "imtfs", lam=0.4))
    both = np.hstack([mean, mean])
    assert np.abs(weights(both, lam=0.4) - weights(both, "imtfs", lam=0.4)).max() > 0.1  # Q = 2, T = 1


def selected(name, seed=26, lam=0.6, r=0.3):
    """Two tasks, two features, squared loss, gamma = 1: how many weights there are after four rounds."""
    rng, G, W = np.random.default_rng(seed), np.zeros((2, 2)), np.zeros((2, 2))
    for t in range(1, 5):
        X, y = rng.normal(size=(2, 2)), rng.normal(size=2) * 2
        G += np.stack([slope_and_loss("squared", y[q], X[q] @ W[:, q])[0] * X[q] for q in range(2)], axis=1)
        W = weights(G / t, name, lam=lam, r=r, t=t)
    return np.count_nonzero(W)


def test_fewer_features_at_the_same_slopes_only():
    """At one mean slope MTFTS has a subset of the entries of aMTFS; Table 4.2 has 1,816 for it against 1,800."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        mean = rng.normal(size=(6, 4))
        one, other = (weights(mean, name, lam=0.9, r=0.2) != 0 for name in ("mtfts", "amtfs"))
        assert np.all(one <= other)
    # Along a stream the slopes differ, and more may be selected.
    assert selected("mtfts") > selected("amtfs")


def test_an_instance_of_zeros_moves_the_weights_of_its_task():
    """Remark 9: a round without the task has slope 0, but its mean shrinks by (t - 1)/t while sqrt t grows."""
    mean = np.array([[0.8], [0.3]])
    before, after = weights(mean, lam=0.1, t=9), weights(mean * 0.9, lam=0.1, t=10)
    assert np.abs(after - before).max() > 0.05


def test_reduction_ratios_of_table_4_3():
    old, new = np.array([1.30, 0.162]), np.array([0.99, 0.115])
    np.testing.assert_allclose((old - new) / old, [0.238, 0.290], atol=1e-3)
    np.testing.assert_allclose((old - new) / new, [0.313, 0.409], atol=1e-3)  # printed: 34.3 and 40.9 per cent

"""docs/theory/corrections.md, shared subspaces: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest
from scipy.special import logsumexp

from gramplane.kernels.tasks.shared_subspace import best_coupling
from tests.kernels.tasks.test_shared_subspace import QS, trace_norm


@pytest.mark.parametrize("q", [1.3, 1.5])
def test_couplings_fill_the_ball_of_their_norm(q):
    """Below (4.5), "= 1": the middle of two matrices of the set has 2^(1 - qbar) < 1. The optimum lies on the sphere all the same."""
    qbar = q / (2 - q)
    one, other = np.zeros((2, 3, 3)), np.zeros((2, 3, 3))
    one[0, 0, 0] = other[1, 0, 0] = 1.0
    sums = [np.sum(np.trace(Q, axis1=1, axis2=2) ** qbar) for Q in (one, other, (one + other) / 2)]
    assert sums[:2] == [1.0, 1.0] and sums[2] == pytest.approx(2 ** (1 - qbar)) and sums[2] < 0.9
    best = best_coupling(np.abs(np.random.default_rng(0).normal(size=(2, 3, 3))) + np.eye(3), q)
    assert trace_norm(best, q) == pytest.approx(1.0)


@pytest.mark.parametrize("q", QS)
def test_the_step_takes_the_logarithm_of_its_shares(q):
    """Sum of pibar (pi + log pibar) = -logsumexp(-pi); the printed log(pi) is not even defined where a slope is negative."""
    pi = np.random.default_rng(1).normal(size=5)
    share = np.exp(-pi) / np.exp(-pi).sum()
    assert share @ (pi + np.log(share)) == pytest.approx(-logsumexp(-pi))
    assert (pi < 0).any()
    positive = np.abs(pi)
    share = np.exp(-positive) / np.exp(-positive).sum()
    printed = share @ (positive + np.log(positive))
    rho = 0.7  # min over theta of sum theta = rho of sum theta log theta + theta pi = rho log rho + rho (-logsumexp(-pi))
    theta = rho * share
    value = theta @ (np.log(theta) + positive)
    assert value == pytest.approx(rho * np.log(rho) - rho * logsumexp(-positive))
    assert abs(value - (rho * np.log(rho) + rho * printed)) > 0.05


def test_multipliers_balance_the_labels_of_their_task():
    """A task of one row x = 1, y = 1: the bias is free, the optimum 0. Without y'alpha = 0 the "dual" is max a - a^2/2 = 1/2 > 0."""
    a = np.linspace(0, 1, 1001)
    assert np.max(a - a**2 / 2) == pytest.approx(0.5)
    w, b = 0.0, 1.0
    assert 0.5 * w**2 + max(0.0, 1 - (w * 1.0 + b)) == 0.0

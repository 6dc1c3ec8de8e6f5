"""Losses: written-out values, differences, duality."""

import numpy as np
import pytest

from gramplane.kernels.mixed_norm.losses import LOSSES, loss_named
from tests.support.oracles import fgm_subproblem as oracle


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    cost = rng.random(30) * (rng.random(30) < 0.8)
    return y, 3 * rng.normal(size=30), cost


@pytest.mark.parametrize("name", LOSSES)
def test_value_and_utility_are_the_written_out_ones(name, rows):
    y, f, cost = rows
    loss = LOSSES[name]
    assert loss.name == name
    assert loss.value(y, f, cost) == pytest.approx(oracle.loss_value(name, y, f, cost))
    alpha = loss.dual(y, f, cost)
    assert loss.utility(alpha, cost) == pytest.approx(oracle.utility(name, alpha, cost))
    low, high = loss.dual_bounds(cost)
    assert (low <= alpha).all()
    assert (alpha <= high).all()


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_is_the_difference_and_curvature_bounds_it(name, rows):
    y, f, cost = rows
    loss, eps = LOSSES[name], 1e-6
    steps = eps * np.eye(30)
    slopes = np.array([(loss.value(y, f + e, cost) - loss.value(y, f - e, cost)) / (2 * eps) for e in steps])
    np.testing.assert_allclose(loss.gradient(y, f, cost), slopes, atol=1e-7)
    g = np.linspace(-4, 4, 30)
    change = np.abs(loss.gradient(y, g, cost) - loss.gradient(y, f, cost))
    assert (change <= loss.curvature * cost * np.abs(g - f) + 1e-12).all()


@pytest.mark.parametrize("name", LOSSES)
def test_fenchel_equality_holds_at_the_pair_and_inequality_elsewhere(name, rows):
    y, f, cost = rows
    loss = LOSSES[name]
    alpha = loss.dual(y, f, cost)
    assert loss.utility(alpha, cost) == pytest.approx(loss.value(y, f, cost) + alpha @ (y * f))
    for other in (0.5 * alpha, loss.dual(y, f + 1.0, cost)):
        assert loss.utility(other, cost) <= loss.value(y, f, cost) + other @ (y * f)


def test_unknown_loss_is_named():
    with pytest.raises(ValueError, match="loss='absolute': must be one of logistic, squared_hinge"):
        loss_named("absolute")

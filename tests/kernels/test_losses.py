"""Losses: written-out values, differences, duality, and compiled rows against classes."""

import numpy as np
import pytest

from gramplane.kernels.group_lasso.on_rows import solve_rows
from gramplane.kernels.group_lasso.penalty import single_features
from gramplane.kernels.group_lasso.row_problem import RowProblem, TaskRows
from gramplane.kernels.group_lasso.streams import StreamLearner
from gramplane.kernels.group_lasso.task_selection import OpenRound, Rounds, TaskStream, run_rounds, task_penalty
from gramplane.kernels.group_lasso.task_selection import TaskRows as RoundRows
from gramplane.kernels.jit import compiled
from gramplane.kernels.loss_types import MarginLoss, RowLoss
from gramplane.kernels.losses import (
    LOSSES,
    LossKind,
    TargetLoss,
    curvature_at_dual,
    margin_terms,
    mean_loss,
    sum_loss,
    target_curvature,
    target_terms,
    value_and_slope,
)
from gramplane.kernels.mixed_norm import rows_for
from tests.support.oracles import fgm_subproblem as oracle

MARGIN_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, MarginLoss)]
TARGET_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, TargetLoss)]
ROW_LOSSES = [name for name, loss in LOSSES.items() if isinstance(loss, RowLoss)]


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    cost = rng.random(30) * (rng.random(30) < 0.8)
    return y, 3 * rng.normal(size=30), cost


def test_every_number_is_that_of_one_loss_and_every_loss_of_margins_has_its_oracle():
    assert [loss.kind for loss in LOSSES.values()] == list(LossKind)
    assert [loss.name.upper() for loss in LOSSES.values()] == [kind.name for kind in LossKind]
    assert set(MARGIN_LOSSES) == set(oracle.LOSSES)
    assert set(TARGET_LOSSES) == set(oracle.TARGETS)


# -- losses of margins -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_value_and_utility_are_the_written_out_ones(name, rows):
    y, f, cost = rows
    loss = sum_loss(name)
    assert loss.name == name
    assert loss.value(y, f, cost) == pytest.approx(oracle.loss_value(name, y, f, cost))
    alpha = loss.dual(y, f, cost)
    assert loss.utility(alpha, cost) == pytest.approx(oracle.utility(name, y, y * alpha, cost))
    np.testing.assert_array_equal(loss.residual(y, f, cost), alpha * y)
    low, high = loss.dual_bounds(cost)
    assert (low <= alpha).all()
    assert (alpha <= high).all()


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_gradient_is_the_difference_and_curvature_bounds_it(name, rows):
    y, f, cost = rows
    loss, eps = sum_loss(name), 1e-6
    steps = eps * np.eye(30)
    slopes = np.array([(loss.value(y, f + e, cost) - loss.value(y, f - e, cost)) / (2 * eps) for e in steps])
    np.testing.assert_allclose(loss.gradient(y, f, cost), slopes, atol=1e-7)
    g = np.linspace(-4, 4, 30)
    change = np.abs(loss.gradient(y, g, cost) - loss.gradient(y, f, cost))
    assert (change <= loss.max_curvature * cost * np.abs(g - f) + 1e-12).all()


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_fenchel_equality_holds_at_the_pair_and_inequality_elsewhere(name, rows):
    y, f, cost = rows
    loss = sum_loss(name)
    alpha = loss.dual(y, f, cost)
    assert loss.utility(alpha, cost) == pytest.approx(loss.value(y, f, cost) + alpha @ (y * f))
    for other in (0.5 * alpha, loss.dual(y, f + 1.0, cost)):
        assert loss.utility(other, cost) <= loss.value(y, f, cost) + other @ (y * f)


@compiled
def all_margin_terms(kind, margin, cost, out):
    for i in range(margin.size):
        out[0, i], out[1, i], out[2, i] = margin_terms(kind, margin[i], cost[i])
        out[3, i] = curvature_at_dual(kind, out[1, i], cost[i]) if out[1, i] > 0.0 else 0.0


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_compiled_rows_are_those_of_the_class(name, rows):
    y, f, cost = rows
    loss, out, eps = sum_loss(name), np.empty((4, 30)), 1e-5
    all_margin_terms(int(loss.kind), y * f, cost, out)
    one = np.ones(1)
    np.testing.assert_allclose(out[0], [loss.value(one * a, one * b, one * c) for a, b, c in zip(y, f, cost)], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(out[1], loss.dual(y, f, cost), rtol=1e-12)
    bends = (loss.gradient(y, f + eps, cost) - loss.gradient(y, f - eps, cost)) / (2 * eps)
    np.testing.assert_allclose(out[2], bends, rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(out[3], out[2], rtol=1e-9, atol=1e-12)


def test_a_number_without_a_loss_is_answered_by_nan():
    out = np.zeros((4, 1))
    all_margin_terms(99, np.ones(1), np.ones(1), out)
    assert np.isnan(out[:3]).all()
    assert np.isnan(value_and_slope(99, 1.0, 0.5)).all()


@pytest.mark.parametrize("name", MARGIN_LOSSES)
@pytest.mark.parametrize(("positive", "negative"), [(3.0, 1.0), (0.2, 5.0), (2.0, 2.0)])
def test_the_best_constant_is_where_its_value_is_least(name, positive, negative):
    loss = sum_loss(name)
    f = loss.best_constant(positive, negative)
    assert f == pytest.approx(MarginLoss.best_constant(loss, positive, negative), abs=1e-12)
    values = [loss.constant_value(positive, negative, f + step) for step in (-1e-3, 0.0, 1e-3)]
    assert values[1] == min(values)
    for at in (0.0, f):
        assert loss.constant_value(positive, negative, at) == pytest.approx(MarginLoss.constant_value(loss, positive, negative, at))


@pytest.mark.parametrize("name", MARGIN_LOSSES)
@pytest.mark.parametrize("norm2", [1e-3, 1.0, 50.0])
def test_the_best_scaled_dual_is_the_best_of_many(name, norm2, rows):
    y, f, cost = rows
    loss = sum_loss(name)
    alpha = loss.dual(y, f, cost)
    ends = loss.dual_bounds(cost)[1][alpha > 0] / alpha[alpha > 0]
    scales = np.linspace(0.0, min(float(ends.min()), 5.0), 5_001)[1:]
    best = max(loss.utility(s * alpha, cost) - 0.5 * s * s * norm2 for s in scales)
    for found in (loss.best_scaled_dual(alpha, cost, norm2), MarginLoss.best_scaled_dual(loss, alpha, cost, norm2)):
        assert best * (1 - 1e-12) <= found == pytest.approx(best, rel=1e-5)
    assert loss.best_bound(alpha, cost, norm2) == pytest.approx(MarginLoss.best_bound(loss, alpha, cost, norm2))
    assert loss.best_scaled_dual(0.0 * alpha, cost, norm2) == MarginLoss.best_scaled_dual(loss, 0.0 * alpha, cost, norm2) == 0.0
    assert loss.bound(y, alpha * y, cost, norm2) == loss.best_bound(alpha, cost, norm2)


# -- losses of real targets ------------------------------------------------------------------------------------------------


@pytest.fixture
def targets():
    rng = np.random.default_rng(1)
    cost = rng.random(40) * (rng.random(40) < 0.8)
    y, f = 2 * rng.normal(size=(2, 40))
    y[:4] = f[:4] + np.array([0.0, 0.1, -1.35, 0.05])
    return y, f, cost


@pytest.mark.parametrize("name", TARGET_LOSSES)
def test_value_dual_and_utility_of_targets_are_the_written_out_ones(name, targets):
    y, f, cost = targets
    loss, eps = sum_loss(name), 1e-6
    assert not loss.of_labels
    assert loss.value(y, f, cost) == pytest.approx(oracle.loss_value(name, y, f, cost))
    u = loss.residual(y, f, cost)
    np.testing.assert_allclose(u, oracle.loss_residual(name, y, f, cost), atol=1e-15)
    slopes = [(loss.value(y, f + e, cost) - loss.value(y, f - e, cost)) / (2 * eps) for e in eps * np.eye(40)]
    np.testing.assert_allclose(-u, slopes, atol=1e-6)
    assert loss.utility(y, u, cost) == pytest.approx(oracle.utility(name, y, u, cost))
    assert loss.utility(y, u, cost) == pytest.approx(loss.value(y, f, cost) + u @ f)
    for other in (0.5 * u, loss.residual(y, f + 1.0, cost)):
        assert loss.utility(y, other, cost) <= loss.value(y, f, cost) + other @ f


@pytest.mark.parametrize("name", TARGET_LOSSES)
@pytest.mark.parametrize("norm2", [0.0, 1e-3, 1.0, 50.0])
@pytest.mark.parametrize("share", [1.0, 0.2, -0.5])
def test_the_bound_of_targets_is_the_best_of_many_scalings(name, norm2, share, targets):
    y, f, cost = targets
    loss = sum_loss(name)
    u = share * loss.residual(y, f, cost)
    most = np.min(cost[u != 0] * oracle.TARGETS[name].most / np.abs(u[u != 0]))
    scales = np.linspace(0.0, min(most, 8.0), 8_001)
    best = max(oracle.utility(name, y, s * u, cost) - 0.5 * s * s * norm2 for s in scales)
    assert best * (1 - 1e-12) <= loss.bound(y, u, cost, norm2) <= best + 1e-6 * abs(best) + 1e-4
    assert loss.bound(y, 0.0 * u, cost, norm2) == 0.0


@compiled
def all_target_terms(residual, cost, epsilon, delta, out):
    for i in range(residual.size):
        out[0, i], out[1, i], out[2, i] = target_terms(residual[i], cost[i], epsilon, delta)
        out[3, i] = target_curvature(out[1, i], cost[i], epsilon, delta)


@pytest.mark.parametrize("name", TARGET_LOSSES)
def test_compiled_rows_of_targets_are_those_of_the_class(name, targets):
    y, f, cost = targets
    loss, out, one = sum_loss(name), np.empty((4, 40)), np.ones(1)
    all_target_terms(y - f, cost, loss.epsilon, loss.delta, out)
    np.testing.assert_allclose(out[0], [loss.value(one * a, one * b, one * c) for a, b, c in zip(y, f, cost)], rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(out[1], loss.residual(y, f, cost), rtol=1e-12, atol=1e-300)
    np.testing.assert_array_equal(out[2][4:], oracle.loss_bends(name, y, f, cost)[4:])
    np.testing.assert_array_equal(out[3][cost > 0], out[2][cost > 0])
    assert not out[3][cost == 0].any()


def test_widths_are_those_that_were_asked_for():
    assert sum_loss("huber", epsilon=0.3, delta=2.0).delta == 2.0
    assert sum_loss("huber", epsilon=0.3).epsilon == 0.0
    assert sum_loss("squared_epsilon_insensitive", epsilon=0.3, delta=2.0).epsilon == 0.3
    assert sum_loss("squared", epsilon=0.3, delta=2.0) == LOSSES["squared"]


# -- losses of rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_compiled_values_and_slopes_are_those_of_the_class(name, rows):
    y, f, _ = rows
    loss = mean_loss(name)
    found = np.array([value_and_slope(int(loss.kind), a, b) for a, b in zip(y, f)])
    np.testing.assert_allclose(found[:, 0], loss.values(y, f), rtol=1e-12)
    np.testing.assert_allclose(found[:, 1], -loss.slopes(y, f), rtol=1e-12)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_slopes_bends_and_utilities_belong_together(name, rows):
    y, f, _ = rows
    loss, eps = mean_loss(name), 1e-6
    np.testing.assert_allclose(loss.slopes(y, f), -(loss.values(y, f + eps) - loss.values(y, f - eps)) / (2 * eps), atol=1e-7)
    if name != "hinge":
        np.testing.assert_allclose(loss.bends(y, f), -(loss.slopes(y, f + eps) - loss.slopes(y, f - eps)) / (2 * eps), atol=1e-7)
        assert (loss.bends(y, f) <= loss.max_curvature + 1e-12).all()
    s = loss.slopes(y, f)
    np.testing.assert_allclose(loss.utilities(y, s) - s * f, loss.values(y, f), atol=1e-12)


# -- solvers say what they need --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absolute", "hinge"])
def test_a_loss_that_is_unknown_or_no_sum_over_rows_is_named(name):
    with pytest.raises(ValueError, match=f"loss='{name}': must be one of huber, logistic, .*squared_hinge"):
        sum_loss(name)


def test_a_mismatch_names_the_loss_and_the_solver():
    Z, one = np.ones((2, 1)), np.ones(2)
    with pytest.raises(
        ValueError,
        match=r"loss='hinge': .*; the sub-problem of the Feature Generating Machine needs a loss with residual and bound",
    ):
        rows_for(Z, one, one, "hinge")
    with pytest.raises(
        ValueError, match="loss='squared_hinge': must be one of hinge, logistic, squared; a stream needs a loss with steepness"
    ):
        StreamLearner(single_features(1), 1.0, loss="squared_hinge", gamma=1.0)
    rounds = Rounds(task_penalty("amtfs", 1, 0.0), 1.0, 1.0, "squared_hinge")
    none = RoundRows(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    with pytest.raises(ValueError, match=r"loss='squared_hinge': .*; the selector needs a loss with steepness"):
        run_rounds(TaskStream.empty(1, 1), none, np.zeros(0, np.int64), rounds, OpenRound.none())
    problem = RowProblem(TaskRows(Z, np.array([0, 2])), one, one, sum_loss("squared_hinge"), single_features(1), 1.0, False)
    with pytest.raises(
        ValueError, match=r"loss='squared_hinge': .*; the group lasso on rows needs a loss with values and slopes and bends"
    ):
        solve_rows(problem)
    with pytest.raises(ValueError, match=r"loss='squared_hinge': .*; a group lasso needs a loss with"):
        mean_loss("squared_hinge")

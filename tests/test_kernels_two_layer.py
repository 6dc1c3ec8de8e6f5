"""Two-layer MKL: closed forms of two points, finite differences, descent, stationarity, new Gaussian kernels."""

import numpy as np
import pytest

from gramplane.kernels.bank import PackedBank
from gramplane.kernels.solvers.dual import svc_problem
from gramplane.kernels.two_layer import TwoLayer, bank_inner, best_gaussian, first_step, gaussian_costs


def problem(seed=0, n=30, C=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    Q = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    linear = X @ X.T
    grams = np.stack([np.exp(-0.3 * Q), np.exp(-2.0 * Q), linear / np.trace(linear) * n])
    return grams, y, Q, TwoLayer(PackedBank.from_dense(grams, np.float64), svc_problem(y, C))


def solved(machine, mu, steps=200):
    point = machine.at(np.asarray(mu, np.float64))
    eta, values = first_step(point), [point.value]
    for _ in range(steps):
        point, eta = machine.step(point, 2 * eta)
        values.append(point.value)
        if point.violation < 1e-4 or values[-1] == values[-2]:
            break
    return point, values


@pytest.mark.parametrize("n", [5, 128, 300])
def test_inner_products_with_a_packed_bank(n):
    rng = np.random.default_rng(n)
    grams = rng.normal(size=(3, n, n))
    grams += grams.transpose(0, 2, 1)
    weights = rng.normal(size=(n, n))
    weights += weights.T
    bank = PackedBank.from_dense(grams, np.float64)
    bank.scale[:] = (1.0, 2.0, 0.5)
    expected = (grams * weights).sum(axis=(1, 2)) * bank.scale
    np.testing.assert_allclose(bank_inner(bank, weights), expected, rtol=1e-9, atol=1e-9 * n)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_two_points_have_a_closed_form(mu):
    s = 0.3
    bank = PackedBank.from_dense(np.array([[[1.0, s], [s, 1.0]]]), np.float64)
    spread, turn = np.exp(mu) - np.exp(mu * s), np.exp(mu) - s * np.exp(mu * s)
    large = TwoLayer(bank, svc_problem([1.0, -1.0], 1e4)).at(np.array([mu]))
    np.testing.assert_allclose(np.abs(large.beta), 1 / spread, rtol=1e-6)
    assert large.value == pytest.approx(1 / spread + mu, rel=1e-9)
    assert large.slopes[0] == pytest.approx(1 - turn / spread**2, rel=1e-5, abs=1e-6)
    C = 0.01
    small = TwoLayer(bank, svc_problem([1.0, -1.0], C)).at(np.array([mu]))
    assert small.value == pytest.approx(2 * C - C**2 * spread + mu, rel=1e-9)


def test_at_zero_the_value_is_known():
    _, y, _, machine = problem(C=0.7)
    assert machine.at(np.zeros(3)).value == pytest.approx(2 * 0.7 * min((y > 0).sum(), (y < 0).sum()), rel=1e-6)


def test_the_gradient_against_differences():
    _, _, _, machine = problem(1, n=14)
    mu = np.array([0.4, 0.9, 0.2])
    slopes = machine.at(mu).slopes
    for t in range(3):
        ahead, behind = (machine.at(mu + sign * 1e-4 * np.eye(3)[t]).value for sign in (1, -1))
        assert slopes[t] == pytest.approx((ahead - behind) / 2e-4, abs=2e-4)


@pytest.mark.parametrize("seed", range(3))
def test_steps_descend_to_a_stationary_point_inside_the_known_bound(seed):
    _, y, _, machine = problem(seed)
    point, values = solved(machine, [0.5, 0.3, 0.2])
    assert (np.diff(values) <= 0).all()
    assert point.violation < 1e-2
    assert (point.mu >= 0).all()
    assert point.mu.sum() <= 2 * min((y > 0).sum(), (y < 0).sum())


def test_copies_permutations_and_flipped_labels():
    grams, y, _, machine = problem(3)
    base, _ = solved(machine, [0.4, 0.4, 0.2])
    flipped, _ = solved(TwoLayer(machine.bank, svc_problem(-y, 1.0)), [0.4, 0.4, 0.2])
    assert flipped.value == pytest.approx(base.value, rel=1e-4)
    turned, _ = solved(TwoLayer(PackedBank.from_dense(grams[::-1], np.float64), svc_problem(y, 1.0)), [0.2, 0.4, 0.4])
    np.testing.assert_allclose(turned.mu[::-1], base.mu, atol=1e-2)
    twice, _ = solved(TwoLayer(PackedBank.from_dense(np.concatenate([grams, grams]), np.float64), svc_problem(y, 1.0)), [0.2, 0.2, 0.1] * 2)
    assert twice.value == pytest.approx(base.value, rel=1e-3)
    none = np.concatenate([grams, np.zeros((1, 30, 30))])
    found, _ = solved(TwoLayer(PackedBank.from_dense(none, np.float64), svc_problem(y, 1.0)), [0.4, 0.4, 0.2, 0.1])
    assert found.value == pytest.approx(base.value, rel=1e-3)
    assert found.mu[3] <= 1e-6


def test_an_exponent_beyond_the_bound_is_refused():
    _, _, _, machine = problem()
    assert machine.kernel(np.array([60.0, 0.0, 0.0])) is None
    assert machine.at(np.array([60.0, 0.0, 0.0])).value == np.inf


def test_the_cost_of_a_new_kernel_its_derivative_and_its_minimum():
    _, _, Q, machine = problem(2)
    point = machine.at(np.array([0.3, 0.0, 0.1]))
    kernel = machine.kernel(point.mu)
    widths = np.array([0.1, 0.3, 2.0])
    values, slopes = gaussian_costs(kernel, point.beta, Q, widths)
    np.testing.assert_allclose(values[1:], point.slopes[:2], rtol=1e-8)
    ahead, behind = (gaussian_costs(kernel, point.beta, Q, widths + sign * 1e-5)[0] for sign in (1, -1))
    np.testing.assert_allclose(slopes, (ahead - behind) / 2e-5, rtol=1e-5)
    width, cost = best_gaussian(kernel, point.beta, Q, 0.05, 5.0)
    fine = gaussian_costs(kernel, point.beta, Q, np.geomspace(0.05, 5.0, 500))[0]
    assert 0.05 <= width <= 5.0
    assert cost <= fine.min() + 1e-5 * np.abs(fine).max()

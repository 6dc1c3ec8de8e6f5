"""Two-layer MKL: closed forms of two points, finite differences, descent, stationarity, new Gaussian kernels."""

import numpy as np
import pytest

from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.bank.products import total_forms
from gramplane.kernels.bank.two_layer import BankLayer, TwoLayerObjective, bank_sums, block_layer, block_sums, first_length, next_length
from gramplane.kernels.svm.dual import svc_problem
from tests.support.oracles import two_layer as oracle


def layered(grams, y, C=1.0, penalty=1.0):
    return TwoLayerObjective(BankLayer(PackedBank.from_dense(np.asarray(grams), np.float64)), svc_problem(y, C), penalty)


def problem(seed=0, n=30, C=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=n) > 0, 1.0, -1.0)
    Q = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    linear = X @ X.T
    grams = np.stack([np.exp(-0.3 * Q), np.exp(-2.0 * Q), linear / np.trace(linear) * n])
    return grams, y, Q, layered(grams, y, C)


def solved(machine, mu, steps=200):
    point = machine.at(np.asarray(mu, np.float64))
    eta, values = first_length(point), [point.value]
    for _ in range(steps):
        point, eta = machine.step(point, eta)
        values.append(point.value)
        if point.violation(1.0) < 1e-5 or values[-1] == values[-2]:
            break
    return point, values


@pytest.mark.parametrize("n", [5, 128, 300])
@pytest.mark.parametrize("block", [128, 256])
def test_weighted_sums_of_a_bank_and_of_blocks_have_the_same_bits(n, block):
    rng = np.random.default_rng(n)
    grams = rng.random(size=(3, n, n)).astype(np.float32)
    grams = np.triu(grams) + np.triu(grams, 1).transpose(0, 2, 1)
    theta, beta = np.array([0.5, 0.0, 2.0]), rng.normal(size=n) * (rng.random(n) < 0.6)
    bank = PackedBank.from_dense(grams)
    kernel = BankLayer(bank).kernel(theta)
    np.testing.assert_allclose(kernel, np.exp(np.tensordot(theta, grams.astype(float), 1)), rtol=1e-12)
    np.testing.assert_array_equal(kernel, kernel.T)
    found = bank_sums(bank, kernel, beta)
    np.testing.assert_allclose(found, (grams * kernel * np.outer(beta, beta)).sum(axis=(1, 2)), rtol=1e-9)
    spans = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
    parts = []
    for i, rows in enumerate(spans):
        for cols in spans[i:]:
            part = np.ascontiguousarray(grams[:, slice(*rows), slice(*cols)])
            layer = block_layer(part, theta)
            assert layer.tobytes() == np.ascontiguousarray(kernel[slice(*rows), slice(*cols)]).tobytes()
            parts.append(block_sums(part, rows, cols, layer, beta))
    assert total_forms(parts[::-1])[:, 0].tobytes() == found.tobytes()
    bank.scale[:] = (1.0, 2.0, 0.5)
    np.testing.assert_array_equal(BankLayer(bank).weigh(theta, kernel, beta), found * bank.scale)


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_two_points_have_a_closed_form(mu):
    s = 0.3
    gram = np.array([[[1.0, s], [s, 1.0]]])
    spread, turn = np.exp(mu) - np.exp(mu * s), np.exp(mu) - s * np.exp(mu * s)
    large = layered(gram, [1.0, -1.0], 1e4).at(np.array([mu]))
    np.testing.assert_allclose(np.abs(large.beta), 1 / spread, rtol=1e-6)
    assert large.value == pytest.approx(1 / spread + mu, rel=1e-9)
    assert large.slopes[0] == pytest.approx(1 - turn / spread**2, rel=1e-5, abs=1e-6)
    C = 0.01
    small = layered(gram, [1.0, -1.0], C).at(np.array([mu]))
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
    assert point.violation(1.0) < 1e-2
    assert (point.mu >= 0).all()
    assert point.mu.sum() <= 2 * min((y > 0).sum(), (y < 0).sum())


def test_copies_permutations_and_flipped_labels():
    grams, y, _, machine = problem(3)
    base, _ = solved(machine, [0.4, 0.4, 0.2])
    flipped, _ = solved(layered(grams, -y), [0.4, 0.4, 0.2])
    assert flipped.value == pytest.approx(base.value, rel=1e-4)
    turned, _ = solved(layered(grams[::-1], y), [0.2, 0.4, 0.4])
    np.testing.assert_allclose(turned.mu[::-1], base.mu, atol=1e-2)
    twice, _ = solved(layered(np.concatenate([grams, grams]), y), [0.2, 0.2, 0.1] * 2)
    assert twice.value == pytest.approx(base.value, rel=1e-3)
    none = np.concatenate([grams, np.zeros((1, 30, 30))])
    found, _ = solved(layered(none, y), [0.4, 0.4, 0.2, 0.1])
    assert found.value == pytest.approx(base.value, rel=1e-3)
    assert found.mu[3] <= 1e-6


def test_an_exponent_beyond_the_bound_is_refused():
    _, _, _, machine = problem()
    assert machine.layer.kernel(np.array([60.0, 0.0, 0.0])) is None
    assert machine.layer.kernel(np.array([49.0, 0.0, 0.0])) is not None
    assert machine.at(np.array([60.0, 0.0, 0.0])) is None


def test_second_layer_is_positive_definite_multiplicative_and_constant_at_zero():
    _, _, _, machine = problem(4)
    mu, nu = np.array([0.3, 0.2, 0.4]), np.array([0.1, 0.5, 0.0])
    K = {name: machine.layer.kernel(w).copy() for name, w in (("mu", mu), ("nu", nu), ("sum", mu + nu), ("zero", np.zeros(3)))}
    np.testing.assert_array_equal(K["zero"], 1.0)
    np.testing.assert_allclose(K["sum"], K["mu"] * K["nu"], rtol=1e-12)
    assert all((gram > 0).all() for gram in K.values())
    assert np.linalg.eigvalsh(K["mu"])[0] > 0


def test_value_and_minimum_against_a_general_solver():
    grams, y, _, machine = problem(5, n=12)
    mu = np.array([0.6, 0.3, 0.2])
    point = machine.at(mu)
    assert point.value == pytest.approx(oracle.value(grams, y, 1.0, mu), rel=1e-5)
    assert 0 <= point.gap <= 1e-5
    free = (np.abs(point.beta) > 1e-3) & (np.abs(point.beta) < 1.0 - 1e-3)
    np.testing.assert_allclose((y * point.decision)[free], 1.0, atol=1e-4)
    assert free.sum() >= 5 and abs(point.bias) > 0.1
    found, _ = solved(machine, mu)
    best = oracle.minimum(grams, y, 1.0, mu)
    assert found.value <= best + 2e-3 * abs(best)


def test_penalty_and_scale_of_the_kernels_are_one_freedom():
    """Kernels divided by n with penalty 1/n: weights times n, the same values."""
    grams, y, _, machine = problem(6, n=32)
    small = layered(grams / 32, y, penalty=1 / 32)
    a, first = solved(machine, [0.4, 0.3, 0.2], steps=15)
    point, eta, values = small.at(32 * np.array([0.4, 0.3, 0.2])), None, []
    eta, values = first_length(point, 1 / 32), [point.value]
    for _ in range(len(first) - 1):
        point, eta = small.step(point, eta)
        values.append(point.value)
    np.testing.assert_allclose(values, first, rtol=1e-9)
    np.testing.assert_allclose(point.mu, 32 * a.mu, rtol=1e-6)
    assert point.violation(1 / 32) == pytest.approx(a.violation(1.0), rel=1e-4, abs=1e-9)


def test_a_constant_kernel_multiplies_the_second_layer():
    grams, _, _, machine = problem(7)
    with_constant = layered(np.concatenate([grams, np.ones((1, 30, 30))]), np.where(np.arange(30) % 2, 1.0, -1.0))
    mu = np.array([0.3, 0.1, 0.2])
    np.testing.assert_allclose(with_constant.layer.kernel(np.append(mu, 0.7)), np.exp(0.7) * machine.layer.kernel(mu), rtol=1e-12)


def test_start_is_random_balanced_and_never_zero():
    grams, _, _, machine = problem(8)
    heights = np.array([np.diagonal(gram).mean() for gram in grams])
    a, b = (machine.start(np.random.default_rng(seed), heights) for seed in (0, 1))
    assert not np.array_equal(a.mu, b.mu) and (a.mu > 0).all()
    assert a.mu @ heights == pytest.approx(1.0)
    long = grams * np.where(np.arange(30) == 3, 30.0, 1.0)[:, None] * np.where(np.arange(30) == 3, 30.0, 1.0)[None, :]
    found = layered(long, machine.problem.c).start(np.random.default_rng(0), np.array([np.diagonal(gram).mean() for gram in long]))
    assert (found.mu > 0).all() and found.mu @ np.array([gram[3, 3] for gram in long]) <= 50


def test_spectral_length_follows_the_curvature_within_its_bounds():
    _, _, _, machine = problem(9)
    old = machine.at(np.array([0.4, 0.3, 0.2]))
    new = machine.step(old, first_length(old))[0]
    change, turn = new.mu - old.mu, new.slopes - old.slopes
    assert change @ turn > 0
    assert next_length(old, new, 1.0) == pytest.approx(np.clip(change @ change / (change @ turn), 0.1, 10.0))
    assert next_length(old, old, 0.3) == 0.6

"""Gauges on graphs of kernels: closed forms against definitions, differences and a general-purpose solver; hulls."""

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import (
    DualPoint,
    Hull,
    NodeSet,
    descendant_norms,
    dual_bound,
    dual_shares,
    effective_weights,
    gauge,
    joint_weights,
    log_psi,
    log_slopes,
    log_zeta,
    psi_gradient,
)
from tests.support.oracles.hierarchy import (
    descendant_form,
    gauge_gradient,
    lattice,
    omega,
    outside_bound,
    pairs,
    psi,
    random_graph,
    squared_dual_gauge,
)

RHOS = (2.0, 1.5, 1.1)
every = pytest.mark.parametrize("rho", RHOS)


def drawn(seed=0, n=9):
    rng = np.random.default_rng(seed)
    hull = random_graph(rng, n, 2.0)
    return hull, rng.uniform(0.1, 2.0, n), rng.uniform(0.0, 3.0, n) ** 2, rng.dirichlet(np.ones(n))


@every
def test_gauge_and_its_gradient(rho):
    hull, norms, _, _ = drawn()
    assert gauge(hull, norms, rho) == pytest.approx(omega(hull, norms, rho), rel=1e-13)
    step = 1e-6 * np.eye(hull.size)
    slope = [(omega(hull, norms + h, rho) ** 2 - omega(hull, norms - h, rho) ** 2) / 4e-6 for h in step]
    np.testing.assert_allclose(gauge_gradient(hull, norms, rho), slope, rtol=1e-7)


@every
def test_joint_weights_reach_the_gauge_and_nothing_reaches_below(rho):
    hull, norms, _, _ = drawn(1)
    delta = joint_weights(hull, norms, rho)
    assert np.sum(norms**2 / delta) == pytest.approx(gauge(hull, norms, rho) ** 2, rel=1e-13)
    rng = np.random.default_rng(0)
    for _ in range(50):
        # The weights of other norms: 1/2 sum Q^2/delta bounds 1/2 Omega^2 from above at every one of them.
        other = joint_weights(hull, norms * np.exp(rng.normal(0, 0.5, hull.size)), rho)
        assert np.sum(norms**2 / other) >= gauge(hull, norms, rho) ** 2 * (1 - 1e-12)


def test_zero_norms():
    hull = lattice(2)
    assert joint_weights(hull, np.zeros(4), 1.5).tolist() == (1 / (4 * hull.d**2)).tolist()
    for rho in RHOS:
        delta = joint_weights(hull, np.array([1.0, 1.0, 0.0, 0.0]), rho)
        assert (delta[:2] > 0).all()
        assert (delta[2:] == 0).all()
    assert descendant_norms(hull, np.zeros(4), 1.5).tolist() == [0, 0, 0, 0]


@every
def test_psi_zeta_and_slopes(rho):
    hull, _, forms, eta = drawn(2)
    value, zeta = psi(hull, eta, forms, rho)
    assert np.exp(log_psi(hull, eta, forms, rho)) == pytest.approx(value, rel=1e-11)
    np.testing.assert_allclose(np.exp(log_zeta(hull, eta, rho)), zeta, rtol=1e-12)
    step = 1e-6 * np.diag(eta)
    slope = [(psi(hull, eta + h, forms, rho)[0] - psi(hull, eta - h, forms, rho)[0]) / (2 * h.max()) for h in step]
    np.testing.assert_allclose(np.exp(log_slopes(hull, eta, forms, rho)), slope, rtol=1e-5, atol=1e-7 * max(slope))
    # Euler: psi is homogeneous of degree one.
    assert eta @ np.exp(log_slopes(hull, eta, forms, rho)) == pytest.approx(value, rel=1e-11)


@every
def test_shares_of_the_proof_give_the_slopes(rho):
    hull, _, forms, eta = drawn(3)
    power, zeta, above = rho / (2 * (rho - 1)), np.exp(log_zeta(hull, eta, rho)), pairs(hull)
    kappa = above * (hull.d**rho * eta ** (1 - rho))[None, :] * zeta[:, None] ** (rho - 1)
    np.testing.assert_allclose(kappa.sum(axis=1), 1.0, rtol=1e-12)
    found = hull.d ** (-2 * power) * np.sum((kappa**2 * forms[:, None]) ** power, axis=0)
    np.testing.assert_allclose(found, np.exp(log_slopes(hull, eta, forms, rho)), rtol=1e-10)


@every
def test_gradient_of_the_machine_value(rho):
    hull, _, forms, eta = drawn(4)
    power, step = rho / (2 * (rho - 1)), 1e-6 * np.diag(eta)
    slope = [
        (psi(hull, eta + h, forms, rho)[0] ** (1 / power) - psi(hull, eta - h, forms, rho)[0] ** (1 / power)) / (2 * h.max()) for h in step
    ]
    value, gradient = psi_gradient(hull, eta, forms, rho)
    assert value == pytest.approx(psi(hull, eta, forms, rho)[0] ** (1 / power), rel=1e-11)
    np.testing.assert_allclose(gradient, slope, rtol=1e-4, atol=1e-7 * max(slope))
    mu = effective_weights(hull, eta, forms, rho)
    assert mu @ forms == pytest.approx(value, rel=1e-11)
    if rho == 2:
        np.testing.assert_allclose(mu, 1 / (pairs(hull) @ (hull.d**2 / eta)), rtol=1e-12)


@pytest.mark.parametrize("rho", [2.0, 1.5, 1.2])
@pytest.mark.parametrize("seed", [0, 1])
def test_dual_bound_is_the_dual_of_the_gauge(rho, seed):
    hull, _, forms, _ = drawn(seed, 6)
    exact = squared_dual_gauge(hull, forms, rho)
    found = dual_bound(hull, forms, rho, np.ones(hull.size), passes=3000, tight=1e-9)
    assert found.attained <= found.value
    assert found.value == pytest.approx(exact, rel=1e-4)
    assert found.value >= exact * (1 - 1e-9)
    quick = dual_bound(hull, forms, rho, np.ones(hull.size))
    assert exact * (1 - 1e-9) <= quick.value <= 1.1 * exact


def test_dual_bound_starts_at_the_maximiser_for_matching_norms():
    hull, norms, _, _ = drawn(5)
    for rho in (2.0, 1.5, 1.1, 1.01):
        forms = gauge_gradient(hull, norms, rho) ** 2
        found = dual_bound(hull, forms, rho, dual_shares(hull, norms, rho), passes=0)
        assert found.value == pytest.approx(gauge(hull, norms, rho) ** 2, rel=1e-10)


def test_powers_near_rho_one_stay_finite():
    hull, rng = lattice(9, depth=3), np.random.default_rng(0)
    forms = np.where(rng.random(hull.size) < 0.5, 0.0, 10.0 ** rng.uniform(-12, 12, hull.size))
    found = dual_bound(hull, forms, 1.01, np.full(hull.size, 1.0 / hull.size))
    assert outside_bound(forms, hull.ancestor_sums(hull.d)) * (1 - 1e-9) <= found.value
    assert found.value <= np.sum(forms / hull.d**2)
    norms = np.where(rng.random(hull.size) < 0.5, 0.0, 10.0 ** rng.uniform(-9, 9, hull.size))
    assert np.isfinite(joint_weights(hull, norms, 1.01)).all()
    assert np.isfinite(psi_gradient(hull, found.eta, forms, 1.01)[1]).all()
    assert dual_bound(hull, np.zeros(hull.size), 1.01, found.eta).value == 0.0
    assert psi_gradient(hull, found.eta, np.zeros(hull.size), 1.5) == (0.0, pytest.approx(0.0))


def test_without_edges_it_is_a_sum_and_alone_a_norm():
    for rho in RHOS:
        flat = Hull().joined([1.0, 2.0, 3.0], [[], [], []])
        assert gauge(flat, np.ones(3), rho) == pytest.approx(6.0)
        assert dual_bound(flat, np.array([1.0, 9.0, 4.0]), rho, np.ones(3), 2000).value == pytest.approx(2.25, rel=1e-5)
        single = Hull().joined([3.0], [[]])
        assert dual_bound(single, np.array([4.0]), rho, np.ones(1)).value == pytest.approx(4 / 9)


@every
def test_both_certificates_bound_the_whole_graph(rho):
    whole, rng = lattice(4), np.random.default_rng(7)
    for _ in range(5):
        forms = rng.uniform(0, 1, whole.size) ** 4 * whole.d**2
        inside = 5 + rng.integers(6)
        # Subsets stand by size: every first part of the list is a hull.
        part = Hull(whole.d[:inside], whole.indptr[: inside + 1], whole.indices[: whole.indptr[inside]])
        true = dual_bound(whole, forms, rho, np.ones(whole.size), 500).attained
        within = dual_bound(part, forms[:inside], rho, np.ones(inside), 500).value
        sources = [u for u in range(inside, whole.size) if (whole.ancestors(u)[:-1] < inside).all()]
        assert max(within, outside_bound(forms[inside:], whole.d[inside:])) >= true
        assert max(within, max(descendant_form(whole, u, forms) for u in sources)) >= true
    assert outside_bound(np.zeros(0), np.zeros(0)) == 0.0


def test_scaled_dual_points():
    point = DualPoint(3.0, 1.0, 2.0)
    for bound in (0.0, 0.2, 5.0):
        t = np.linspace(0, 2, 20001)
        assert point.value(bound) == pytest.approx(np.max(3 * t - t * t * (1 + bound) / 2), rel=1e-7)
    assert DualPoint(3.0, 0.0, 2.0).value(0.0) == 6.0
    assert DualPoint(-1.0, 0.0, 2.0).value(1.0) == 0.0
    for linear in (-1.0, 3.0):
        assert DualPoint(linear, 0.0, 2.0).value(np.inf) == 0.0


# -- hulls -----------------------------------------------------------------------------------------------------------------


def test_hulls_grow_to_what_they_would_be_at_once():
    whole = lattice(3)
    steps = Hull()
    assert steps.indptr.tolist() == [0]
    assert steps.transposed.rows.size == steps.transposed.indptr[-1] == 0
    for w in range(whole.size):
        steps = steps.joined([whole.d[w]], [list(whole.ancestors(w)[:-1])])
    for name in ("d", "indptr", "indices"):
        np.testing.assert_array_equal(getattr(steps, name), getattr(whole, name))
    assert whole.descendants(0).tolist() == list(range(8))
    assert whole.descendants(1).tolist() == [1, 4, 5, 7]
    assert whole.joined([], []).size == 8
    np.testing.assert_array_equal(whole.ancestor_sums(whole.d), pairs(whole) @ whole.d)
    np.testing.assert_array_equal(whole.descendant_sums(whole.d), pairs(whole).T @ whole.d)


@pytest.mark.parametrize(
    ("d", "parents", "words"),
    [([0.0], [[]], "d=0.0"), ([np.inf], [[]], "d=inf"), ([1.0, 1.0], [[1], []], "parents"), ([1.0], [], "parents has 0 lists")],
)
def test_hulls_refuse(d, parents, words):
    with pytest.raises(ValueError, match=words):
        Hull().joined(d, parents)


def _below(key):
    return (
        np.stack([np.where(np.arange(len(key)) == j, key - 1, key) for j in np.flatnonzero(key)])
        if key.any()
        else np.zeros((0, len(key)), int)
    )


def test_sets_of_nodes_take_whole_hulls_or_nothing():
    def penalty(keys):
        return 2.0 ** keys.sum(axis=1)

    found = NodeSet.empty(2).with_hulls(np.array([[1, 1]]), _below, penalty)
    assert found.size == 4
    assert found.hull.ancestors(3).tolist() == [0, 1, 2, 3]
    assert found.keys[0].tolist() == [0, 0]
    more = found.with_hulls(np.array([[3, 0], [2, 0], [0, 1]]), _below, penalty, limit=5)
    assert more.keys[4:].tolist() == [[2, 0]]
    assert more.hull.d[4] == 4.0
    assert more.holds(np.array([[2, 0], [3, 0]])).tolist() == [True, False]
    assert more.with_hulls(np.zeros((0, 2), int), _below, penalty) is more

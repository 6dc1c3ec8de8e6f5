"""docs/theory/corrections.md, kernels on a graph: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import effective_weights, gauge, joint_weights
from tests.kernels.graphs.test_hierarchy import drawn, every
from tests.support.oracles.hierarchy import pairs, psi


@every
def test_sums_of_squares_over_shares_are_squared_norms(rho):
    """A.1.2, first display: exponent 1/rho for 2/rho. With norms twice as long the right side grows fourfold, the printed left twofold."""
    hull, norms, _, _ = drawn(1)
    for scale in (1.0, 2.0):
        delta = joint_weights(hull, scale * norms, rho)
        assert np.sum((scale * norms) ** 2 / delta) == pytest.approx(gauge(hull, scale * norms, rho) ** 2)
        share = norms ** (2 - rho) / np.sum(norms**rho) ** ((2 - rho) / rho)  # of one node: lambda at the minimum
        value = np.sum((scale * norms) ** 2 / share)
        assert value == pytest.approx(np.sum((scale * norms) ** rho) ** (2 / rho))
        assert value != pytest.approx(np.sum((scale * norms) ** rho) ** (1 / rho), rel=0.1)


@every
def test_shares_of_an_ancestor_sum_to_one(rho):
    """Lemma A.1.2 over sum z <= 1 is 0, at z = 0; over sum z = 1 it is the printed value, which is zeta in (A.7)."""
    rng, r = np.random.default_rng(0), rho / (rho - 1)
    a = rng.uniform(0.5, 2.0, 4)
    value = np.sum(a ** (1 / (1 - r))) ** (1 - r)
    z = a ** (1 / (1 - r)) / np.sum(a ** (1 / (1 - r)))
    assert a @ z**r == pytest.approx(value) and value > 0 == a @ np.zeros(4) ** r
    for other in rng.dirichlet(np.ones(4), 200):
        assert a @ other**r >= value * (1 - 1e-12)


@pytest.mark.parametrize("rho", [1.5, 1.1])
def test_kernels_are_scaled_by_the_conjugate_root(rho):
    """Section 5.2.3, Algorithm 2: zeta^(1 / rhohat). (A.12) and (5.11) need zeta^(1 / rhobar): only these give psi^(1 / rhobar)."""
    hull, _, forms, eta = drawn(4)
    hat, bar = rho / (2 - rho), rho / (2 * (rho - 1))
    value, zeta = psi(hull, eta, forms, rho)
    right, printed = (np.sum((zeta ** (1 / e) * forms) ** bar) ** (1 / bar) for e in (bar, hat))
    assert right == pytest.approx(value ** (1 / bar)) == pytest.approx(effective_weights(hull, eta, forms, rho) @ forms)
    assert abs(printed - right) > 0.05 * right


@pytest.mark.parametrize("rho", [1.5, 1.1])
def test_weights_of_prediction_have_the_exponent_of_the_norms(rho):
    """A.1.9: thetabar with outer exponent 1 / rhobar has sum theta c = ||c||_rhobar only at rhobar - 1."""
    hull, _, forms, eta = drawn(4)
    bar = rho / (2 * (rho - 1))
    _, zeta = psi(hull, eta, forms, rho)
    c = zeta ** (1 / bar) * forms
    size = np.sum(c**bar) ** (1 / bar)
    right, printed = (c / size) ** (bar - 1), (c / size) ** (1 / bar)
    np.testing.assert_allclose(right * zeta ** (1 / bar), effective_weights(hull, eta, forms, rho), rtol=1e-9)
    assert right @ c == pytest.approx(size) and np.sum(right ** (rho / (2 - rho))) == pytest.approx(1.0)
    assert abs(printed @ c - size) > 0.1 * size


def test_shares_outside_go_over_the_ancestors_of_the_descendant():
    """A.1.7: kappa_vw = d_v / sum of d over A(w) outside W. With A(v), as printed, the shares of one w do not sum to one."""
    hull, _, _, _ = drawn(3)
    above = pairs(hull)  # row w: A(w)
    outside = np.ones(hull.size)
    outside[0] = 0.0
    w = int(np.argmax(above @ outside))
    mine = np.flatnonzero(above[w] * outside)
    assert len(mine) > 2
    right = hull.d[mine] / hull.d[mine].sum()
    printed = np.array([hull.d[v] / (hull.d * above[v] * outside).sum() for v in mine])
    assert right.sum() == pytest.approx(1.0) and printed.sum() > 1.2


def test_predictions_compare_the_new_point_with_the_rows_of_the_multipliers():
    """Below (5.8): k(x_t1i, x_t2j) is of rows i of the predicted task, with the multipliers of t2; k(x_t2i, x_t1j) - b is <f, phi> - b."""
    rng, T, m, mu, b = np.random.default_rng(0), 2, 4, 0.5, 0.3
    phi, coef = rng.normal(size=(T, m, 3)), rng.normal(size=(T, m))  # coef: delta alpha y
    B = np.eye(T) + 1 / mu
    mean = sum(coef[t] @ phi[t] for t in range(T))  # mu f0 = sum of the tasks' sums
    for t in range(T):
        f = mean / mu + coef[t] @ phi[t]
        for j in range(m):
            value = phi[t, j] @ f - b
            right = sum(coef[s] @ phi[s] @ phi[t, j] * B[t, s] for s in range(T)) - b
            printed = sum(coef[s] @ phi[t] @ phi[s, j] * B[t, s] for s in range(T))
            assert right == pytest.approx(value) and abs(printed - value) > 0.05


def test_multipliers_within_a_box_are_at_most_so_long():
    """A.1.6: sqrt(mTC) for sqrt(mT) C; the bound after it has mT C^2. Four multipliers of 4 are 8 long, sqrt(4 . 4) = 4."""
    alpha = np.full(4, 4.0)
    assert np.linalg.norm(alpha) == 8.0 == np.sqrt(4) * 4.0 and np.sqrt(4 * 4.0) < 8.0

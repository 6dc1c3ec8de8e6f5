"""docs/theory/corrections.md, latent groups of tasks: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import NodeSet, gauge, psi_gradient
from gramplane.kernels.tasks.group_search import TaskLattice, kernel_norms
from gramplane.pipeline import LatentTaskMKLRegressor
from tests.support.oracles import latent_tasks as oracle
from tests.support.oracles.hierarchy import psi


def groups_of(T, a=1.5):
    lattice = TaskLattice(T, a)
    return NodeSet.empty(1, np.uint64).with_hulls(lattice.keys(oracle.all_groups(T)), lattice.parents, lattice.penalties)


def test_the_norm_is_halved():
    """One task, one linear kernel x = (-1, 1), y = x, a = 1, mu -> infinity: 1/2 w^2 + C 2 (w - 1)^2 is least at w = 4C / (1 + 4C)."""
    x, C = np.array([[-1.0], [1.0]]), 0.25
    machine = LatentTaskMKLRegressor(["linear"], normalize="none", C=C, a=1.0, mu=1e9, loss="squared", tol=1e-6, scale=None)
    found = machine.fit(x, x[:, 0], np.zeros(2, int))
    w = np.linspace(0, 1, 100_001)
    halved, printed = (np.min(half * w**2 + 2 * C * (w - 1) ** 2) for half in (0.5, 1.0))
    assert found.objective_ == pytest.approx(halved, rel=1e-4) and printed > 1.2 * halved


def test_the_gauge_grows_with_its_functions():
    """A.2.1, first display: the norm of a group is to the power q inside its node; with the power 1 Omega is not homogeneous."""
    nodes, rng, p, q = groups_of(3), np.random.default_rng(0), 1.4, 1.6
    theta = rng.uniform(0.2, 1.0, (7, 2))

    def written(theta, inner):
        norms = np.sum(theta**p, axis=1) ** (inner / p)
        return float(nodes.hull.d @ nodes.hull.descendant_sums(norms) ** (1 / q))

    assert written(2 * theta, q) == pytest.approx(2 * written(theta, q))
    assert written(theta, q) == pytest.approx(gauge(nodes.hull, np.sum(theta**p, axis=1) ** (1 / p), q))
    assert written(2 * theta, 1) < 1.6 * written(theta, 1)


def test_the_dual_is_of_degree_one_in_the_kernels():
    """(6.5), Theorem 6.4.1: outer exponent 1 / qbar. With qbar / pbar a kernel of twice the size does not double the value."""
    nodes, rng, p, q = groups_of(3), np.random.default_rng(1), 1.8, 1.2
    pbar, qbar = p / (2 * (p - 1)), q / (2 * (q - 1))
    forms, eta = rng.uniform(0.2, 1.0, (7, 2)), rng.dirichlet(np.ones(7))
    value = [psi(nodes.hull, eta, kernel_norms(scale * forms, pbar), q)[0] for scale in (1.0, 2.0)]
    assert value[1] ** (1 / qbar) == pytest.approx(2 * value[0] ** (1 / qbar))
    assert value[1] ** (qbar / pbar) != pytest.approx(2 * value[0] ** (qbar / pbar), rel=0.1)
    assert psi_gradient(nodes.hull, eta, kernel_norms(forms, pbar), q)[0] == pytest.approx(value[0] ** (1 / qbar))


def test_the_gradient_has_the_exponent_of_the_dual():
    """Below Theorem 6.4.1: psi^(1 / qbar - 1) times the sum over D(i), to the power one."""
    nodes, rng, p, q = groups_of(2), np.random.default_rng(2), 1.8, 1.2
    pbar, qbar = p / (2 * (p - 1)), q / (2 * (q - 1))
    norms, eta = kernel_norms(rng.uniform(0.2, 1.0, (3, 2)), pbar), rng.dirichlet(np.ones(3))
    value, zeta = psi(nodes.hull, eta, norms, q)
    inner = nodes.hull.d**q * eta**-q * nodes.hull.descendant_sums(zeta**q * norms**qbar)
    right, printed = (value ** (e - 1) * inner / qbar for e in (1 / qbar, qbar / pbar))
    ends = [[psi(nodes.hull, eta + h, norms, q)[0] ** (1 / qbar) for h in sign * 1e-6 * np.eye(3)] for sign in (1, -1)]
    slope = (np.array(ends[0]) - ends[1]) / 2e-6
    np.testing.assert_allclose(right, slope, rtol=1e-6)
    np.testing.assert_allclose(psi_gradient(nodes.hull, eta, norms, q)[1], slope, rtol=1e-6)
    assert np.abs(printed - slope).max() > 0.1 * np.max(slope)


def test_shares_of_kernels_belong_to_groups_and_are_summed_over():
    """A.2.1: ||f_w||^2 / sigma_w^j leaves j free; the sum over j of ||f_w^j||^2 / sigma_w^j is ||f_w||_p^2 at best."""
    p, theta = 1.4, np.array([0.3, 1.0, 0.5])
    share = (theta / np.sum(theta**p) ** (1 / p)) ** (2 - p)
    assert np.sum(share ** (p / (2 - p))) == pytest.approx(1.0)
    assert np.sum(theta**2 / share) == pytest.approx(np.sum(theta**p) ** (2 / p))
    assert np.ptp(np.sum(theta**2) / share) > 1.0  # another value for every j


def test_the_group_of_no_task_is_no_node():
    """A dummy root makes 2^T nodes, not 2^T - 1, and adds a term of all groups to Omega."""
    T, q = 3, 1.6
    nodes = groups_of(T)
    norms = np.random.default_rng(3).uniform(0.2, 1.0, 7)
    assert nodes.hull.size == 2**T - 1 and TaskLattice(T).groups(nodes.keys).any(axis=1).all()
    with_root = 1.0 * np.sum(norms**q) ** (1 / q) + gauge(nodes.hull, norms, q)
    assert with_root > 1.1 * gauge(nodes.hull, norms, q)


def test_rounds_and_steps_belong_to_the_cost():
    """One solve costs (Tm)^3 (Wn)^2 by the thesis' own estimate: that is the printed total, without W rounds of log W steps."""
    T, m, W, n = 7, 50, 20, 5
    solve, printed = (T * m) ** 3 * (W * n) ** 2, n**2 * W**2 * m**3 * T**3
    assert solve == printed and solve * W * np.log(W) > 50 * printed

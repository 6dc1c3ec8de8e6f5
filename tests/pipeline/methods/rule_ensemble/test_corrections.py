"""docs/theory/corrections.md, rules: printed statements fail here, what stands in their place holds."""

import numpy as np
import pytest

from gramplane.kernels.graphs.norms import psi_gradient
from gramplane.kernels.rules.bits import pack_bits
from gramplane.kernels.rules.lattice import RuleLattice
from tests.kernels.graphs.test_hierarchy import drawn
from tests.support.oracles.hierarchy import pairs


def test_the_bound_over_descendants_is_loose_with_complements():
    """A.1.7: "not loose for rules". Two rows, 30 propositions and their complements: no M / d^2 exceeds 1/4, the bound is 21 times that."""
    half = (np.arange(30) % 2).astype(np.uint8)
    flags = np.array([np.concatenate([half, 1 - half]), np.concatenate([1 - half, half])]).T  # (60, 2)
    rows = (np.arange(2),)
    lattice = RuleLattice(pack_bits(flags), 2, rows, (np.array([1.0, -1.0]),), (np.ones(2),), np.eye(1), 2.0, False)
    inside = lattice.hull(lattice.named([[]]))
    found = lattice.descendant_bound(inside, [np.ones(2)])
    greatest = 1 / 4  # a conjunction is true of one row or none: M <= 1, d >= 2
    assert found == pytest.approx(greatest * (10 / 9) ** 29) and found > 20 * greatest
    assert lattice.outside(inside, [np.ones(2)], greatest * 1.001, frontier=False, depth=3).values.size == 0


def test_kernels_of_rules_have_zero_eigenvalues_and_the_dual_is_smooth_all_the_same():
    """Theorem 5.3.1 asks for eigenvalues other than zero; phi phi' has one. The slope is bounded without: psi is homogeneous."""
    phi = np.array([1.0, 0.0, 1.0])
    assert np.linalg.matrix_rank(np.outer(phi, phi)) == 1
    rng = np.random.default_rng(0)
    for rho in (2.0, 1.5, 1.2):
        bar = rho / (2 * (rho - 1))
        for seed in range(10):
            hull, _, _, eta = drawn(seed)
            eta = 0.9 * eta + 0.1 / hull.size
            forms = np.where(rng.random(hull.size) < 0.5, 0.0, rng.random(hull.size) ** 8)  # the least eigenvalue bounds them by 0
            forms[0] = max(forms[0], 1e-9)
            _, slopes = psi_gradient(hull, eta, forms, rho)
            least = np.min((pairs(hull) @ hull.d**rho) ** (1 / (1 - rho))) * 0.1 / hull.size
            bound = np.min(hull.d) ** (rho / (1 - rho)) * least ** (1 / bar - 1) * np.sum(forms**bar) ** (1 / bar) / bar
            assert slopes.max() <= bound * (1 + 1e-9)

"""What the theory of the kernel selection path says, at the estimator: weights, active sets, excess, limits, alignments."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.alignment.path import DIVERGENCES, EUCLIDEAN, AlignmentProblem, threshold
from gramplane.kernels.alignment.path_weights import weight_derivatives
from gramplane.pipeline import KTASelectionPath
from tests.support.fgm_problems import planted
from tests.support.oracles import kta

CASES = [("euclidean", 0.0), ("euclidean", 0.1), ("kl", 0.2)]
X, Y = planted(20, d=30)


def fitted(data: Any = X, y: Any = Y, sample_weight: Any = None, **options: Any) -> KTASelectionPath:
    return KTASelectionPath(n_machines=1, **options).fit(data, y, sample_weight)


def problem(machine: Any) -> AlignmentProblem:
    return AlignmentProblem(machine.lam1_, machine.lam2_, DIVERGENCES[machine.divergence], machine.eta0)


@pytest.mark.parametrize("divergence,eta0", CASES)
def test_weights_are_the_roots_and_the_closed_forms(divergence, eta0):
    machine = fitted(divergence=divergence, eta0=eta0)
    a, lam1, lam2 = machine.alignments_, machine.lam1_, machine.lam2_
    for p in (2.0, 1.5, 1.25, 1.0):
        found = machine.weights_at(p)
        exact = np.array([kta.weight(value, p, lam1, lam2, divergence, eta0) for value in a])
        np.testing.assert_allclose(found, np.where(exact > machine.eps, exact, 0.0), rtol=1e-9, atol=1e-12)
        on_grid = machine.weights_path_[[int(np.argmin(np.abs(machine.p_grid_ - p)))]].toarray()[0]
        np.testing.assert_allclose(on_grid, found, rtol=1e-10)
    if divergence == "euclidean":
        np.testing.assert_allclose(machine.weights_at(2.0), (a + 2 * lam1 * eta0) / (2 * (lam1 + lam2)), rtol=1e-12)
        expected = np.maximum(0.0, eta0 + (a - lam2) / (2 * lam1))
        np.testing.assert_allclose(machine.weights_at(1.0), np.where(expected > machine.eps, expected, 0.0), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("divergence,eta0", CASES)
@pytest.mark.parametrize("eps", [1e-4, 0.1])
def test_small_weights_fall_large_ones_rise_and_screening_needs_no_path(divergence, eta0, eps):
    machine = fitted(divergence=divergence, eta0=eta0, eps=eps)
    eta, p = machine.weights_path_.toarray(), machine.p_grid_
    for k in range(1, len(p)):
        small, large = eta[k - 1] < np.exp(-1), eta[k - 1] > np.exp(-1 / p[k - 1])
        assert (eta[k][small] <= eta[k - 1][small] + 1e-9).all()
        assert (eta[k][large] >= eta[k - 1][large] - 1e-9).all()
        tau = threshold(problem(machine), float(p[k]), eps)
        np.testing.assert_array_equal(machine.active_at(p[k]), np.flatnonzero(problem(machine).loads(machine.alignments_) > tau))
    assert (np.diff(machine.n_active_) <= 0).all()
    assert machine.n_active_[0] > machine.n_active_[-1] > 0


def test_junctures_are_where_kernels_leave():
    machine = fitted(eps=0.05)
    inside = np.flatnonzero((machine.junctures_ > 1.0) & (machine.junctures_ < 2.0))
    assert len(inside) > 3
    for i in inside:
        assert i in machine.active_at(machine.junctures_[i] + 1e-9)
        assert i not in machine.active_at(machine.junctures_[i] - 1e-9)
        assert machine.weights_at(machine.junctures_[i] + 1e-9)[i] == pytest.approx(0.05, rel=1e-5)


def test_copies_of_a_feature_weigh_the_same_and_order_is_that_of_alignments():
    machine = fitted(np.concatenate([X, X[:, :5]], axis=1))
    eta, order = machine.weights_path_.toarray(), np.argsort(machine.alignments_, kind="stable")
    np.testing.assert_array_equal(eta[:, :5], eta[:, 30:])
    assert (np.diff(eta[:, order], axis=1) >= 0).all()


def test_orders_agree_and_the_second_takes_the_fewest_steps():
    paths = [fitted(order=order) for order in (0, 1, 2)]
    steps = [machine.model_.arrays["newton_steps"].sum() for machine in paths]
    assert steps[0] > steps[1] > steps[2]
    for other in paths[1:]:
        np.testing.assert_allclose(other.weights_path_.toarray(), paths[0].weights_path_.toarray(), rtol=1e-10)


def test_the_excess_of_the_objective_keeps_its_bound():
    excesses = []
    for eps in (0.3, 0.1, 0.01):
        machine = fitted(eps=eps, lam1=5.0, lam2=20.0)
        a, worst = machine.alignments_, 0.0
        for k in range(0, 101, 25):
            p, eta = float(machine.p_grid_[k]), machine.weights_path_[[k]].toarray()[0]
            exact = np.array([kta.weight(value, p, 5.0, 20.0, "euclidean", 0.0) for value in a])
            found, least = (kta.objective(w, a, p, 5.0, 20.0, "euclidean", 0.0) for w in (eta, exact))
            excess = found - least
            assert -1e-9 <= excess <= int((eta == 0).sum()) * kta.removal_cost(eps, p, 5.0, 20.0, "euclidean") + 1e-9
            worst = max(worst, excess)
        excesses.append(worst)
    assert excesses[0] >= excesses[1] >= excesses[2] and excesses[0] > excesses[2]


def test_the_limit_at_one_and_the_scale_of_the_alignments():
    machine = fitted(lam1=5.0, lam2=20.0)
    np.testing.assert_allclose(machine.weights_at(1.0005), machine.weights_at(1.0), atol=0.02)
    doubled = fitted(lam1=10.0, lam2=40.0, sample_weight=np.full(len(Y), 2.0))
    np.testing.assert_allclose(doubled.alignments_, 2.0 * machine.alignments_, rtol=1e-6)
    np.testing.assert_allclose(doubled.weights_path_.toarray(), machine.weights_path_.toarray(), rtol=1e-5, atol=1e-9)


def test_the_special_cases_of_one_term():
    machine = fitted(lam1=0.0, lam2=3.0, p_end=1.2)
    for p in (2.0, 1.5, 1.2):
        exact = (machine.alignments_ / (3.0 * p)) ** (1 / (p - 1))
        np.testing.assert_allclose(machine.weights_at(p), np.where(exact > 1e-4, exact, 0.0), rtol=1e-9)
    still = fitted(lam1=3.0, lam2=0.0, eta0=0.1)
    for p in (2.0, 1.5, 1.0):
        np.testing.assert_allclose(still.weights_at(p), 0.1 + still.alignments_ / 6.0, rtol=1e-12)


def test_derivatives_along_the_path():
    machine = fitted()
    p, step = 1.6, 1e-5
    eta = machine.weights_at(p)
    held = machine.weights_at(p - 0.1) > 0
    first, second = weight_derivatives(AlignmentProblem(machine.lam1_, machine.lam2_, EUCLIDEAN), eta[held], p)
    before, after = machine.weights_at(p - step)[held], machine.weights_at(p + step)[held]
    np.testing.assert_allclose((after - before) / (2 * step), first, rtol=1e-5, atol=1e-8)
    before, after = machine.weights_at(p - 1e-3)[held], machine.weights_at(p + 1e-3)[held]
    np.testing.assert_allclose((after - 2 * eta[held] + before) / 1e-6, second, rtol=1e-3, atol=1e-5)


# --- weights of rows --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("kind", ["many", "few", "sparse"])
def test_a_weight_is_a_number_of_equal_rows(kernel, kind):
    rng = np.random.default_rng(0)
    data = {"many": X, "few": np.round(X), "sparse": X * (rng.random(X.shape) < 0.3)}[kind]
    times = rng.integers(0, 4, len(Y))
    form = sp.csr_array if kind == "sparse" else np.asarray
    one = fitted(form(data), Y, times.astype(float), kernel=kernel)
    two = fitted(form(np.repeat(data, times, axis=0)), np.repeat(Y, times), kernel=kernel)
    np.testing.assert_allclose(one.alignments_, two.alignments_, rtol=2e-5, atol=1e-4)
    np.testing.assert_allclose(one.widths_, two.widths_, rtol=1e-2)
    np.testing.assert_array_equal(one.n_active_, two.n_active_)
    np.testing.assert_allclose(one.decision_function(form(data)), two.decision_function(form(data)), atol=2e-2)


def test_weights_on_matrices_and_class_weights():
    times, G = np.random.default_rng(1).integers(0, 3, len(Y)), np.stack([np.outer(x, x) for x in X.T])
    given = fitted(G, Y, times.astype(float), kernel="precomputed")
    np.testing.assert_allclose(given.alignments_, fitted(X, Y, times.astype(float), kernel="linear").alignments_, rtol=1e-4, atol=1e-3)
    heavy, plain = fitted(class_weight={1: 50.0, -1: 1.0}, C=0.01), fitted(C=0.01)
    np.testing.assert_array_equal(heavy.alignments_, plain.alignments_)
    assert (heavy.predict(X) == 1).mean() > (plain.predict(X) == 1).mean() + 0.1 or (heavy.predict(X) == 1).all()
    with pytest.raises(ValueError, match="sample_weight"):
        fitted(X, Y, np.full(len(Y), -1.0))
    with pytest.raises(ValueError, match="at least one non-zero number"):
        fitted(X, Y, np.zeros(len(Y)))

"""Duals with one equality per group: a generic QP solver, exact biases, certificates, the single equality as a special case."""

from dataclasses import replace

import numpy as np
import pytest

from gramplane.kernels.svm.decomposition import solve_decomposition
from gramplane.kernels.svm.dual import (
    DenseGram,
    DualProblem,
    best_response,
    certify,
    ridge_problem,
    squared_hinge_problem,
    svc_problem,
    svr_problem,
)
from gramplane.kernels.svm.ridge import ColumnsFactor, count_columns, fetch_columns, solve_ridge
from gramplane.kernels.svm.smo import solve_smo
from gramplane.kernels.svm.smo_shrink import group_biases
from tests.kernels.svm.test_smo import Parts, Rows
from tests.support.oracles import svm_dual as oracle

KINDS = ("svc", "svr", "squared_hinge", "ridge", "weighted")


def case(kind, n, groups, seed=0, mixed=True):
    """Tasks that share half of their kernel; the last has one label only where there are labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    codes = np.arange(n) % groups if mixed else np.arange(n) * groups // n
    z = np.sin(2 * X[:, 0]) + X[:, 1] * (codes % 2) + 0.3 * rng.normal(size=n) + codes
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    K = (K + K.T) / 2 * np.where(codes[:, None] == codes, 1.0, 0.5)
    y = np.where(z - codes > 0, 1.0, -1.0)
    y[codes == groups - 1] = 1.0
    cost = rng.uniform(0.0, 3.0, n) * (rng.random(n) < 0.8)
    made = {
        "svc": lambda: svc_problem(y, 1.5),
        "svr": lambda: svr_problem(z, 0.2, 2.0),
        "squared_hinge": lambda: squared_hinge_problem(y, 2.0),
        "ridge": lambda: ridge_problem(z, 2.0),
        "weighted": lambda: svr_problem(z, 0.1, cost),
    }
    return K, replace(made[kind](), groups=codes)


def solve(kind, K, problem, tol, **options):
    return (solve_ridge if kind == "ridge" else solve_smo)(DenseGram(K), problem, tol=tol, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_is_that_of_a_generic_solver(kind):
    K, problem = case(kind, 15, 3)
    found = solve(kind, K, problem, 1e-9)
    best, _ = oracle.qp_optimum(K, problem.c, problem.lo, problem.hi, problem.l1_weight, 0.0, problem.ridge, groups=problem.groups)
    assert found.converged and found.objective == pytest.approx(best, rel=1e-6) and found.upper == pytest.approx(best, rel=1e-6)
    np.testing.assert_allclose(np.bincount(problem.groups, found.beta), 0.0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mixed", [True, False])
def test_the_certificate_holds_and_closes(kind, mixed):
    K, problem = case(kind, 120, 6, 1, mixed)
    best = solve(kind, K, problem, 1e-9)
    assert best.gap <= 1e-7 * abs(best.objective)
    for tol in (1.0, 1e-2):
        found = solve(kind, K.astype(np.float32), problem, tol)
        assert found.objective <= best.upper * (1 + 1e-6) and found.upper >= best.objective * (1 - 1e-6)
        np.testing.assert_allclose(np.bincount(problem.groups, found.beta), 0.0, atol=1e-10)
    assert found.gap < 0.02 * best.upper
    warm = solve(kind, K, problem, 1e-3, warm=best)
    assert warm.iterations <= 2 and warm.gap <= 1e-6 * best.upper


@pytest.mark.parametrize("kind", ["svc", "svr", "squared_hinge", "ridge"])
def test_one_group_is_the_single_equality(kind):
    K, problem = case(kind, 80, 2, 2)
    one = replace(problem, groups=np.zeros(80, np.int64))
    single = solve(kind, K, replace(problem, groups=None), 1e-8)
    found = solve(kind, K, one, 1e-8)
    assert found.objective == pytest.approx(single.objective, rel=1e-9) and found.biases.shape == (1,)
    assert found.biases[0] == pytest.approx(single.bias, abs=1e-5)
    np.testing.assert_allclose(found.beta, single.beta, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_without_common_entries_are_separate_problems(kind):
    K, problem = case(kind, 60, 3, 3)
    codes = problem.groups
    K = K * (codes[:, None] == codes)
    found = solve(kind, K, problem, 1e-8)
    for group in range(3):
        own = codes == group
        part = DualProblem(problem.c[own], problem.lo[own], problem.hi[own], problem.l1_weight, 0.0, problem.ridges()[own])
        alone = solve(kind, K[np.ix_(own, own)], part, 1e-8)
        np.testing.assert_allclose(found.beta[own], alone.beta, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_no_other_bias_gives_a_smaller_primal_value(kind):
    K, problem = case(kind, 40, 4, 4)
    decision = K @ np.random.default_rng(0).normal(size=40)
    biases = group_biases(problem, decision)

    def losses(shift):
        slope = problem.c - decision - (biases + shift)[problem.groups]
        t = best_response(slope, problem)
        return np.bincount(problem.groups, (slope - 0.5 * problem.ridges() * t) * t - problem.l1_weight * np.abs(t))

    assert all((losses(shift) >= losses(0.0) - 1e-9).all() for shift in (-1.0, -1e-3, 1e-3, 1.0))


def test_the_bias_is_the_middle_of_an_interval_though_costs_cancel_but_for_rounding():
    problem = replace(svc_problem(np.array([1.0, 1.0, -1.0]), np.array([0.1, 0.2, 0.3])), groups=np.zeros(3, np.int64))
    assert group_biases(problem, np.zeros(3)) == 0.0


def test_a_group_of_one_class_has_no_coefficients_and_the_sign_of_its_class():
    K, problem = case("svc", 60, 3, 5)
    found = solve_smo(DenseGram(K), problem, tol=1e-8)
    last = problem.groups == 2
    assert not found.beta[last].any() and (found.decision[last] + found.biases[2] >= 1 - 1e-9).all()
    assert (found.decision[last] + found.biases[2]).min() == pytest.approx(1.0)


@pytest.mark.parametrize("refresh", [15, 1000])
def test_a_caps_last_point_is_feasible_and_said_not_to_be_converged(monkeypatch, refresh):
    monkeypatch.setattr("gramplane.kernels.svm.smo_shrink.REFRESH_STEPS", refresh)
    K, problem = case("svr", 100, 5, 6)
    found = solve_smo(DenseGram(K), problem, tol=1e-10, max_iter=40)
    assert not found.converged and found.iterations <= 40 and found.gap > 0
    np.testing.assert_allclose(np.bincount(problem.groups, found.beta), 0.0, atol=1e-12)
    objective, gap = certify(problem, found.beta, K @ found.beta, found.biases)
    assert objective == pytest.approx(found.objective) and gap == pytest.approx(found.gap)


def test_of_groups_that_violate_alike_the_first_is_moved_first():
    K = np.kron(np.eye(3), np.array([[1.0, 0.2], [0.2, 1.0]]))
    problem = replace(svc_problem(np.array([1.0, -1.0] * 3), 2.0), groups=np.repeat(np.arange(3), 2))
    for steps in (1, 2):
        moved = solve_smo(DenseGram(K), problem, tol=1e-9, max_iter=steps).beta.reshape(3, 2)
        np.testing.assert_array_equal(moved.any(axis=1), np.arange(3) < steps)


def test_an_infeasible_start_is_balanced_group_by_group():
    _, problem = case("svr", 30, 3, 7)
    beta = problem.feasible(np.full(30, 1.7))
    np.testing.assert_allclose(np.bincount(problem.groups, beta), 0.0, atol=1e-12)
    kept = np.where(np.arange(30) < 3, 1.0, np.where(np.arange(30) < 6, -1.0, 0.0))
    np.testing.assert_array_equal(problem.feasible(kept), kept)


@pytest.mark.parametrize(
    ("groups", "options", "message"),
    [
        (np.zeros(3, np.int64), {}, r"groups: shape \(3,\)"),
        (np.array([0, 1, -1, 0]), {}, "whole numbers from 0"),
        (np.array([0.0, 1, 1, 0]), {}, "of float64"),
        (np.array([0, 0, 1, 1]), {"sum_constraint": 1.0}, "sum_constraint=1.0: must be 0"),
        (np.array([0, 0, 1, 1]), {"lo": np.array([-1, -1, 0.5, 0.0])}, "in group 1 ranges from 0.5 to 2.0; the range must contain 0"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups, options, message):
    given = {"c": np.ones(4), "lo": -np.ones(4), "hi": np.ones(4), **options}
    with pytest.raises(ValueError, match=message):
        DualProblem(**given, groups=groups)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("working", [3, 12, 70, None])
def test_decomposition_finds_the_optimum_of_the_matrix_in_memory(kind, working):
    """By rows and by parts, with sets that hold less than a group, and so few that ties between groups could leave it without a pair."""
    K, problem = case(kind, 120, 6, 1)
    best = solve(kind, K, problem, 1e-8)
    for gram in (Parts(K), Rows(K)):
        options = {} if kind == "ridge" else {"working": working}
        found = (solve_ridge if kind == "ridge" else solve_decomposition)(gram, problem, tol=1e-6, **options)
        assert found.converged and found.biases.shape == (6,) and not found.indefinite
        assert found.objective == pytest.approx(best.objective, rel=1e-6) and found.upper == pytest.approx(best.upper, rel=1e-5)
        np.testing.assert_allclose(np.bincount(problem.groups, found.beta), 0.0, atol=1e-10)
        objective, gap = certify(problem, found.beta, K @ found.beta, found.biases)
        assert objective == pytest.approx(found.objective, rel=1e-9) and gap == pytest.approx(found.gap, abs=1e-7 * abs(objective))
        if working is not None and kind != "ridge":
            assert found.details["working"] == working
        warm = solve_smo(gram, problem, warm=found, tol=1e-4) if kind != "ridge" else solve_ridge(gram, problem, warm=found, tol=1e-4)
        assert warm.iterations == 0


def test_decomposition_says_that_a_matrix_is_not_positive_semi_definite():
    K, problem = case("svr", 60, 3)
    K = K - 0.7 * np.eye(60)
    assert solve_decomposition(Parts(K), problem, tol=1e-3, max_iter=2000).indefinite


def test_entries_of_a_group_that_are_not_finite_are_told():
    K, problem = case("svr", 60, 3)
    K[7, 20] = K[20, 7] = np.nan
    with pytest.raises(ValueError, match=r"not finite|NaN"):
        solve_decomposition(Parts(K), problem)


def test_some_columns_save_most_products_of_a_ridge_machine_known_by_parts():
    K, problem = case("ridge", 400, 4, 2)
    K = K**0.1  # wide kernels: their eigenvalues fall quickly
    found = [solve_ridge(Parts(K, room), problem, tol=1e-8) for room in (10**9, 10**3)]
    assert all(one.converged for one in found) and found[0].iterations < 0.6 * found[1].iterations
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-12)


def test_the_factor_of_some_columns_inverts_what_they_stand_for():
    K, problem = case("ridge", 200, 4, 3)
    gram, chosen = Parts(K.astype(np.float32)), (np.arange(40) * 200) // 40
    np.testing.assert_array_equal(fetch_columns(gram, chosen, 200), K.astype(np.float32)[chosen])
    left = np.linalg.solve(np.linalg.cholesky(K[np.ix_(chosen, chosen)] + 1e-6 * np.eye(40)), K[chosen])
    whole = left.T @ left
    rest = np.maximum(np.diagonal(K) - np.diagonal(whole), 0.0) + problem.ridge
    expected = np.linalg.inv(whole + np.diag(rest))
    factor = ColumnsFactor(gram, gram.diag().astype(float), problem.ridge, 40)
    np.testing.assert_allclose(factor(np.eye(200)), expected, atol=1e-3 * np.abs(expected).max())
    v = np.random.default_rng(0).normal(size=200)
    np.testing.assert_allclose(factor(1e-30 * v), 1e-30 * (expected @ v), atol=1e-3 * np.abs(expected @ v).max() * 1e-30)


def test_too_many_groups_or_too_little_room_leave_the_diagonal():
    assert count_columns(Parts(np.eye(100)), 100, 3) == 25
    assert count_columns(Parts(np.eye(100), 3200), 100, 0) == 16 and count_columns(Parts(np.eye(100), 3100), 100, 0) == 0
    assert count_columns(Parts(np.eye(100), 10_000), 100, 5) == 0

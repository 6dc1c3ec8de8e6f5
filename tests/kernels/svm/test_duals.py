"""Ridge, logistic and squared-hinge duals: closed forms, general-purpose optimisers, certificates, loops, bad input."""

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge

from gramplane.kernels.svm import logistic as logistic_dual
from gramplane.kernels.svm.decomposition import solve_decomposition
from gramplane.kernels.svm.dual import DenseGram, ridge_problem, squared_hinge_problem, svc_problem
from gramplane.kernels.svm.logistic import logistic_problem, solve_logistic
from gramplane.kernels.svm.ridge import RidgeSolver, solve_ridge
from gramplane.kernels.svm.smo import solve_smo
from tests.kernels.svm.test_smo import Rows, gaussian, labels, points
from tests.support.oracles import svm_dual as oracle


def data(n=80, seed=0, gamma=0.2):
    X, z = points(n, seed)
    return gaussian(X, gamma), z, labels(z)


def bordered(K, target, C):
    n = len(K)
    A = np.block([[K + np.diag(0.5 / C), np.ones((n, 1))], [np.ones((1, n)), np.zeros((1, 1))]])
    found = np.linalg.solve(A, np.append(target, 0.0))
    return found[:n], found[n]


@pytest.mark.parametrize("make", [DenseGram, Rows, lambda K: DenseGram(K.astype(np.float32))])
@pytest.mark.parametrize("C", [0.01, 1.0, 1e4])
def test_ridge_solves_the_bordered_system(C, make):
    K, z, _ = data()
    gram = make(K)
    exact = K.astype(np.float32).astype(float) if getattr(gram, "array", K).dtype == np.float32 else K
    s = solve_ridge(gram, ridge_problem(z, C), tol=1e-9)
    beta, bias = bordered(exact, z, np.full(80, C))
    assert s.converged
    np.testing.assert_allclose(s.beta, beta, atol=1e-6 * np.abs(beta).max())
    assert s.bias == pytest.approx(bias, abs=1e-7)
    assert abs(s.beta.sum()) <= 1e-10 * np.abs(s.beta).sum()
    primal = 0.5 * s.beta @ exact @ s.beta + C * ((z - exact @ s.beta - s.bias) ** 2).sum()
    assert s.upper == pytest.approx(primal, rel=1e-8)
    assert 0 <= s.gap <= 1e-8 * s.upper


@pytest.mark.parametrize("alpha", [1e-3, 1.0])
def test_ridge_without_bias_is_kernel_ridge(alpha):
    K, z, _ = data()
    s = solve_ridge(DenseGram(K), ridge_problem(z, 0.5 / alpha, bias=False), tol=1e-10)
    peer = KernelRidge(alpha=alpha, kernel="precomputed").fit(K, z)
    np.testing.assert_allclose(s.beta, peer.dual_coef_, atol=1e-8 * np.abs(peer.dual_coef_).max())
    assert s.bias == 0.0


def test_ridge_leaves_rows_out():
    K, z, _ = data()
    cost = np.full(80, 2.0)
    cost[::5] = 0
    keep = cost > 0
    s = solve_ridge(DenseGram(K), ridge_problem(z, cost), tol=1e-10)
    beta, bias = bordered(K[np.ix_(keep, keep)], z[keep], cost[keep])
    np.testing.assert_allclose(s.beta[keep], beta, atol=1e-7)
    assert not s.beta[~keep].any()
    assert s.bias == pytest.approx(bias)


def test_ridge_loop_keeps_its_factor_and_makes_another_when_it_is_stale():
    K, z, _ = data(200)
    other = gaussian(points(200)[0], 1.0)
    solver, problem = RidgeSolver(), ridge_problem(z, 5.0)
    warm = None
    for t in range(6):
        mixed = (1 - 0.01 * t) * K + 0.01 * t * other
        warm = solver.solve(DenseGram(mixed), problem, warm=warm, tol=1e-8)
        np.testing.assert_allclose(warm.beta, bordered(mixed, z, np.full(200, 5.0))[0], atol=1e-6)
        assert warm.iterations <= 8
    assert solver.factorisations == 1
    far = solver.solve(DenseGram(0.01 * other), ridge_problem(z, 5e4), tol=1e-8)
    assert solver.factorisations == 2
    assert far.converged


def test_ridge_of_a_singular_matrix_far_beyond_float32():
    K, z, _ = data(60, gamma=1e-4)
    s = solve_ridge(DenseGram(K), ridge_problem(z, 1e9), tol=1e-3, max_iter=3000)
    assert np.isfinite(s.upper)
    assert s.gap >= 0
    zero = solve_ridge(DenseGram(np.zeros((3, 3))), ridge_problem([1.0, 2.0, 6.0], 0.5))
    assert zero.bias == pytest.approx(3.0)


def test_a_ridge_solve_has_converged_below_its_tolerance_only():
    K, z, _ = data(120)
    few = solve_ridge(Rows(K), ridge_problem(z, 5.0), tol=1e-12, max_iter=3)
    for tol, converged in ((few.violation, False), (np.nextafter(few.violation, np.inf), True)):
        again = solve_ridge(Rows(K), ridge_problem(z, 5.0), tol=tol, max_iter=3)
        assert (again.violation, again.converged) == (few.violation, converged)


def test_ridge_reports_too_few_steps():
    K, z, _ = data()
    s = solve_ridge(Rows(K), ridge_problem(z, 10.0), max_iter=2)
    assert not s.converged
    assert s.iterations == 2
    exact = solve_ridge(DenseGram(K), ridge_problem(z, 10.0), tol=1e-10).objective
    assert s.objective <= exact <= s.upper


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("C", [0.1, 1.0, 100.0])
@pytest.mark.parametrize("make", [DenseGram, Rows])
def test_logistic_reaches_the_optimum_of_a_general_purpose_solver(C, bias, make):
    K, _, y = data()
    s = solve_logistic(make(K), logistic_problem(y, C, bias=bias), tol=1e-9)
    wanted = oracle.logistic_optimum(K, y, np.full(80, C), bias)
    assert s.converged
    assert s.upper == pytest.approx(wanted, rel=1e-6)
    assert s.objective <= wanted * (1 + 1e-8)
    assert s.objective == pytest.approx(oracle.logistic_dual(K, y, np.full(80, C), s.beta), rel=1e-9)
    assert s.upper == pytest.approx(0.5 * s.beta @ K @ s.beta + C * np.logaddexp(0, -y * (K @ s.beta + s.bias)).sum(), rel=1e-9)
    if bias:
        assert abs(s.beta.sum()) <= 1e-9 * np.abs(s.beta).sum()
    else:
        assert s.bias == 0.0


def test_logistic_loose_and_capped_solves_are_bracketed():
    K, _, y = data(120)
    problem = logistic_problem(y, 20.0)
    exact = solve_logistic(DenseGram(K), problem, tol=1e-11).upper
    for tol, cap in ((1e-2, None), (1e-9, 0), (1e-9, 1)):
        s = solve_logistic(DenseGram(K), problem, tol=tol, max_iter=cap)
        assert s.objective <= exact * (1 + 1e-9)
        assert exact <= s.upper * (1 + 1e-9)
        assert s.converged == (s.gap <= tol * s.upper)


def test_logistic_weights_labels_and_warm_start():
    K, _, y = data(120)
    cost = np.random.default_rng(1).uniform(0.5, 3, 120)
    cost[::6] = 0
    keep = cost > 0
    s = solve_logistic(DenseGram(K), logistic_problem(y, cost), tol=1e-10)
    part = solve_logistic(DenseGram(K[np.ix_(keep, keep)]), logistic_problem(y[keep], cost[keep]), tol=1e-10)
    assert s.upper == pytest.approx(part.upper, rel=1e-9)
    flipped = solve_logistic(DenseGram(K), logistic_problem(-y, cost), tol=1e-10)
    assert flipped.upper == pytest.approx(s.upper, rel=1e-9)
    assert flipped.bias == pytest.approx(-s.bias, abs=1e-6)
    warm = solve_logistic(DenseGram(K), logistic_problem(y, cost), tol=1e-9, warm=s)
    assert warm.iterations <= 1
    odd = solve_logistic(DenseGram(K), logistic_problem(y, cost), tol=1e-9, warm=np.ones(120))
    assert odd.upper == pytest.approx(s.upper, rel=1e-8)


@pytest.mark.parametrize("bias", [True, False])
def test_logistic_factorises_where_products_are_many(monkeypatch, bias):
    K, _, y = data(150)
    problem = logistic_problem(y, 100.0, bias=bias)
    iterated = solve_logistic(DenseGram(K), problem, tol=1e-9)
    monkeypatch.setattr(logistic_dual, "MAX_INNER_STEPS", 5)
    s = solve_logistic(DenseGram(K.astype(np.float32)), problem, tol=1e-9)
    assert s.converged
    assert s.details["factorisations"] > 0
    assert iterated.details["factorisations"] == 0
    assert s.upper == pytest.approx(iterated.upper, rel=1e-5)


def test_squared_hinge_is_the_hinge_of_a_larger_diagonal():
    K, _, y = data()
    a = solve_smo(DenseGram(K), squared_hinge_problem(y, 2.0), tol=1e-9)
    b = solve_smo(DenseGram(K + 0.25 * np.eye(80)), svc_problem(y, 1e4), tol=1e-9)
    assert a.objective == pytest.approx(b.objective, rel=1e-10)
    np.testing.assert_allclose(a.beta, b.beta, atol=1e-7)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: solve_ridge(DenseGram(np.eye(2)), svc_problem([1, -1], 1.0)), "l1_weight must be 0"),
        (lambda: solve_ridge(DenseGram(np.eye(3)), ridge_problem([1.0, 2.0], 1.0)), "has 3 rows"),
        (lambda: solve_ridge(DenseGram(np.array([[1.0, np.nan], [np.nan, 1.0]])), ridge_problem([1.0, 2.0], 1.0)), "Gram matrix"),
        (lambda: ridge_problem([1.0, np.nan], 1.0), "c: must be finite"),
        (lambda: ridge_problem([1.0, 2.0], 0.0), "C=0.0"),
        (lambda: logistic_problem([1, 1], 1.0), "one class"),
        (lambda: logistic_problem([1, -1], -2.0), "C=-2.0"),
        (lambda: solve_logistic(DenseGram(np.eye(3)), logistic_problem([1, -1], 1.0)), "has 3 rows"),
        (lambda: solve_logistic(DenseGram(np.eye(2)), logistic_problem([1, -1], 1.0), warm=np.ones(3)), "warm"),
        (lambda: solve_logistic(DenseGram(np.array([[1.0, np.nan], [np.nan, 1.0]])), logistic_problem([1, -1], 1.0)), "Gram matrix"),
    ],
)
def test_bad_input_is_named(call, text):
    with pytest.raises(ValueError, match=text):
        call()


@pytest.mark.parametrize("solve", [solve_smo, solve_decomposition, solve_ridge, solve_logistic])
def test_every_solver_returns_a_certified_point_and_repeats_its_bits(solve):
    K, z, y = data()
    problem = {solve_ridge: ridge_problem(z, 1.0), solve_logistic: logistic_problem(y, 1.0)}.get(solve, svc_problem(y, 1.0))
    first, again = (solve(DenseGram(K), problem, warm=None, tol=1e-3, max_iter=None) for _ in range(2))
    assert first.beta.tobytes() == again.beta.tobytes()
    assert first.bias == again.bias
    assert first.converged
    assert 0 <= first.gap == pytest.approx(first.upper - first.objective, abs=1e-12 * first.upper)
    np.testing.assert_allclose(first.decision, K @ first.beta, atol=1e-10)
    with pytest.raises(ValueError, match="tol"):
        solve(DenseGram(K), problem, tol=np.nan)

"""Second-order models of J: the Hessian against differences of gradients, the minimiser against a general solver."""

import numpy as np
import pytest
from scipy.optimize import minimize

from gramplane.kernels.svm.dual import DenseGram, svc_problem, svr_problem
from gramplane.kernels.svm.smo import solve_smo
from gramplane.kernels.svm.weight_model import curvature_root, free_part, free_rows, is_model_cheaper, minimise_model
from gramplane.kernels.weights.domains import ElasticNetSet


def kernels(n=40, k=5):
    rng = np.random.default_rng(0)
    X, gammas = rng.normal(size=(n, 2)), np.geomspace(0.1, 5.0, k)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.exp(-gammas[:, None, None] * D), np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=n)


@pytest.mark.parametrize("kind", ["svc", "svc without bias", "svr"])
def test_the_hessian_is_that_of_the_machines_value(kind):
    K, target = kernels()
    bias = kind != "svc without bias"
    problem = svr_problem(target, 0.1, 1.0) if kind == "svr" else svc_problem(np.where(target > 0, 1.0, -1.0), 1.0, bias=bias)
    theta = np.linspace(0.2, 0.6, len(K))

    def at(weights):
        return solve_smo(DenseGram(np.tensordot(weights, K, 1)), problem, tol=1e-11)

    def slopes(weights):
        return -0.5 * np.einsum("i,qij,j->q", at(weights).beta, K, at(weights).beta)

    beta = at(theta).beta
    free = free_rows(problem, beta)
    assert len(free) > 1 and ((np.abs(beta[free]) < 1.0) & (beta[free] != 0)).all()
    root = curvature_root(np.tensordot(theta, K, 1)[np.ix_(free, free)], (K @ beta)[:, free], problem.sum_constraint is not None)
    assert len(root) <= len(K)
    step = 1e-5
    found = np.stack([(slopes(theta + step * e) - slopes(theta - step * e)) / (2 * step) for e in np.eye(len(K))])
    # The model leans on a diagonal that is larger by a millionth.
    np.testing.assert_allclose(root.T @ root, found, atol=2e-3 * np.abs(found).max())


@pytest.mark.parametrize(("least", "share"), [(1.0, 1e-6), (-1e-5, 1e-4), (-1e-3, 1e-2)])
def test_a_matrix_that_has_no_factor_gets_more_on_its_diagonal(least, share):
    rng = np.random.default_rng(2)
    Q = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    A = (Q * np.r_[least, np.full(29, 1.0)]) @ Q.T
    A, U = 0.5 * (A + A.T), rng.normal(size=(4, 30))
    lifted = A + share * np.diagonal(A).mean() * np.eye(30)
    root = curvature_root(A.copy(), U, False)
    np.testing.assert_allclose(root.T @ root, U @ np.linalg.solve(lifted, U.T), rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_part_of_the_free_rows(dtype):
    rng = np.random.default_rng(4)
    A, free, ridges = rng.normal(size=(9, 9)).astype(dtype), np.array([1, 2, 7]), rng.random(9)
    np.testing.assert_array_equal(free_part(A, free, ridges), A[np.ix_(free, free)].astype(np.float64) + np.diag(ridges[free]))


@pytest.mark.parametrize("v", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("rank", [0, 3, 8])
def test_the_minimiser_is_that_of_a_general_solver(v, rank):
    rng = np.random.default_rng(rank)
    domain, root, s = ElasticNetSet(v), rng.normal(size=(rank, 6)), rng.random(6)
    theta = domain.start(6)

    def model(x):
        return -0.5 * s @ (x - theta) + 0.5 * np.sum((root @ (x - theta)) ** 2)

    found = minimise_model(theta, s, root, v, 1e-9)
    assert domain.violation(found) <= 1e-12
    inside = {"type": "ineq", "fun": lambda x: 1.0 - v * x.sum() - (1.0 - v) * (x @ x)}
    expected = minimize(model, theta, bounds=[(0, None)] * 6, constraints=[inside], method="SLSQP", options={"ftol": 1e-14, "maxiter": 500})
    assert model(found) <= expected.fun + 1e-7


@pytest.mark.parametrize("v", [0.5, 1.0])
def test_a_curvature_that_is_rounding_is_none(v):
    s = np.random.default_rng(1).random(17)
    found = minimise_model(ElasticNetSet(v).start(17), s, np.full((1, 17), 1e-16), v, 1e-6)
    expected = minimise_model(ElasticNetSet(v).start(17), s, np.zeros((0, 17)), v, 1e-6)
    assert ElasticNetSet(v).violation(found) <= 1e-9
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_a_model_is_not_made_where_its_arithmetic_outweighs_passes():
    assert is_model_cheaper(2000, 800, 100)
    assert not is_model_cheaper(2000, 2000, 1)
    assert not is_model_cheaper(100, 100, 3000)

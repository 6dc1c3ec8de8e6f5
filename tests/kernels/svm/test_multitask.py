"""Closed forms of MK-MTFL against their definitions."""

import numpy as np
import pytest

from gramplane.kernels.svm.dual import Scratch, best_response, ridge_problem, svc_problem, svr_problem
from gramplane.kernels.svm.smo import Accuracy, solve_machine, solve_ridge_exactly
from gramplane.kernels.tasks.multitask import (
    damped_weights,
    dual_norm,
    dual_value,
    even_shares,
    even_weights,
    kernel_strengths,
    mixed_dual,
    next_weights,
    squared_norm,
    task_biases,
    task_kernel_weights,
    task_shares,
)

EXPONENTS = [(2.0, 1.0), (6.0, 1.0), (8.67, 1.0), (4.0, 1.5), (2.0, 1.5), (3.0, 2.0)]


def forms(seed, k=4, T=5):
    return np.random.default_rng(seed).gamma(1.0, size=(k, T))


@pytest.mark.parametrize("p", [2.0, 2.5, 6.0, 8.67, 100.0])
def test_shares_are_the_best_point_of_their_ball(p):
    M = forms(0)
    shares = task_shares(M, p)
    assert np.allclose(np.sum(M / shares, axis=1), kernel_strengths(M, p), rtol=1e-12)
    if p > 2:
        hat = p / (p - 2)
        assert np.allclose(np.sum(shares**hat, axis=1), 1.0)
        rng = np.random.default_rng(1)
        for _ in range(20):
            other = rng.random(M.shape)
            other /= np.sum(other**hat, axis=1, keepdims=True) ** (1 / hat)
            assert (np.sum(M / other, axis=1) >= kernel_strengths(M, p) * (1 - 1e-12)).all()


@pytest.mark.parametrize(("p", "q"), EXPONENTS)
def test_norm_is_the_saddle_value_of_the_variational_form(p, q):
    norms = np.sqrt(forms(2))
    inner = np.sum(norms**p, axis=1) ** (2 / p)
    hat = np.inf if q == 2 else q / (2 - q)
    gamma = np.ones(len(inner)) if q == 2 else inner ** (1 / (hat + 1)) / np.sum(inner ** (hat / (hat + 1))) ** (1 / hat)
    assert squared_norm(norms**2, np.ones_like(norms), p, q) == pytest.approx(float(np.sum(inner / gamma)), rel=1e-12)


@pytest.mark.parametrize("q", [1.0, 1.2, 1.5, 1.99, 2.0])
def test_even_weights_and_next_weights_lie_on_the_sphere(q):
    strengths = np.append(forms(3, k=1)[0], 0.0)
    for weights in (even_weights(6, q), next_weights(even_weights(6, q), strengths, q) if q > 1 else even_weights(6, q)):
        assert (weights >= 0).all()
        assert (np.sum(weights ** (q / (2 - q))) if q < 2 else weights.max()) == pytest.approx(1.0)


def test_paced_steps_stay_on_the_simplex_and_let_resting_kernels_come_back():
    weights, paces, sides = even_weights(3, 1.0), np.ones(3), np.zeros(3)
    for strengths in (np.array([1.0, 0.5, 0.0]), np.array([1.0, 0.6, 0.0]), np.array([0.9, 1.2, 3.0])):
        weights, paces, sides = damped_weights(weights, strengths, paces, sides)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights > 0).all()
    assert (paces >= 0.25).all()
    assert (paces <= 8.0).all()


@pytest.mark.parametrize("T", [1, 4])
def test_even_shares(T):
    assert np.allclose(np.sum(even_shares(2, T, 6.0) ** 1.5, axis=1), 1.0)
    assert np.allclose(task_kernel_weights(even_weights(2, 1.0), even_shares(2, T, 6.0)), 0.5 * T ** (1 / 1.5))


def test_norms_of_extreme_numbers_do_not_overflow():
    M = np.array([[1e200, 1e-200], [0.0, 0.0]])
    assert np.isfinite(kernel_strengths(M, 8.67)).all()
    assert np.isfinite(task_shares(M, 8.67)).all()
    assert dual_norm(np.array([1e200, 1e-200]), 1.0001) == pytest.approx(1e200)


def loss(problem, slope):
    t = best_response(slope, problem)
    return float(np.sum((slope - 0.5 * problem.ridges() * t) * t - problem.l1_weight * np.abs(t)))


@pytest.mark.parametrize("kind", ["hinge", "tube", "square"])
def test_biases_minimise_the_loss_of_their_task(kind):
    rng = np.random.default_rng(4)
    edges, n = np.array([0, 5, 6, 13]), 13
    cost, y = rng.random(n) + 0.1, np.tile([1.0, -1.0], 7)[:n]
    made = {
        "hinge": svc_problem(y, cost),
        "tube": svr_problem(rng.normal(size=n), 0.2, cost),
        "square": ridge_problem(rng.normal(size=n), cost),
    }
    problem, decision = made[kind], rng.normal(size=n)
    biases = task_biases(problem, edges, decision)
    for t in range(3):
        rows = np.zeros(n, bool)
        rows[edges[t] : edges[t + 1]] = True

        def total(b, rows=rows):
            return loss(problem, np.where(rows, problem.c - decision - b, 0.0))

        grid = biases[t] + np.linspace(-3, 3, 301)
        assert total(biases[t]) <= min(total(b) for b in grid) + 1e-12


def test_bias_is_the_middle_of_its_interval():
    problem = svc_problem([1.0, -1.0], 1.0)
    assert task_biases(problem, np.array([0, 2]), np.array([2.0, -4.0]))[0] == pytest.approx(0.5 * (-1.0 + 3.0))


def test_mixed_dual_is_no_worse_than_both_ends():
    rng = np.random.default_rng(5)
    K = np.array([[F @ F.T for F in rng.normal(size=(2, 4, 3))] for _ in range(3)])
    problem, betas = (
        svc_problem([1, -1, 1, -1, 1, 1, -1, -1], 1.0),
        [np.array([0.5, -0.5, 0, 0, 0.1, 0, -0.1, 0]), np.array([0, 0, 0.3, -0.3, 0, 0.2, 0, -0.2])],
    )

    def of(beta):
        return np.array([[part @ G @ part for part, G in zip((beta[:4], beta[4:]), row, strict=True)] for row in K])

    found = mixed_dual(problem, *betas, (of(betas[0]), of(betas[1]), of(betas[0] + betas[1])), 6.0, 1.0)
    assert found.value >= max(dual_value(problem, beta, of(beta), 6.0, 1.0) for beta in betas)
    assert np.allclose(of(found.beta), found.forms)
    assert found.value == pytest.approx(dual_value(problem, found.beta, of(found.beta), 6.0, 1.0))


def test_exact_ridge_solves_its_system_and_leaves_rows_out():
    rng = np.random.default_rng(6)
    F = rng.normal(size=(7, 3))
    K, cost = (F @ F.T).astype(np.float32), np.array([1.0, 2.0, 0.0, 1.0, 0.5, 3.0, 1.0])
    problem = ridge_problem(rng.normal(size=7), cost)
    found, used = solve_ridge_exactly(K, problem), cost > 0
    assert abs(found.beta.sum()) < 1e-12
    assert found.beta[2] == 0.0
    residual = problem.c - K @ found.beta - problem.ridges() * found.beta - found.bias
    assert np.abs(residual[used]).max() < 1e-6
    assert np.allclose(found.decision, K @ found.beta)


def test_rows_without_a_box_are_left_at_zero():
    problem = svc_problem([1.0, -1.0], 1.0)
    closed = type(problem)(problem.c, 0 * problem.lo, 0 * problem.hi)
    found = solve_machine(np.eye(2, dtype=np.float32), closed, np.zeros(2), Accuracy(1e-2, 0.0), Scratch())
    assert not found.beta.any()
    assert found.gap == 0.0

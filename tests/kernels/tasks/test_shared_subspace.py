"""Shared subspaces: closed forms against their problems, both formulations against one another, the set of matrices of bounded traces."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import logsumexp

from gramplane.kernels.svm.dual import DenseGram, ridge_problem, svc_problem
from gramplane.kernels.svm.ridge import solve_ridge
from gramplane.kernels.tasks.multitask import power_norm
from gramplane.kernels.tasks.shared_subspace import (
    Half,
    Squares,
    alternating_half,
    best_coupling,
    coupling_norm,
    coupling_roots,
    coupling_slack,
    dual_value,
    even_coupling,
    factor_products,
    independent_kernel,
    long_step,
    mirror_point,
    nuclear_norms,
    pair_forms,
    part_norms,
    part_roots,
    pooled_factor,
    scatter_by_task,
    start_constants,
    subspace_bounds,
)
from gramplane.kernels.tasks.subspace_interior import InteriorPath, _NewtonSystem
from gramplane.kernels.weights.domains import TraceBall
from tests.support.oracles import shared_subspace as oracle

T, K = 4, 3
QS = (1.0, 1.3, 1.5, 2.0)


def psd(rng, rank=T, size=T, k=K):
    half = rng.normal(size=(k, size, rank))
    return half @ half.transpose(0, 2, 1)


def trace_norm(coupling, q):
    return float(power_norm(np.trace(coupling, axis1=1, axis2=2), np.inf if q == 2 else q / (2 - q)))


def tiny(seed=0, n=20):
    """Features of three kernels, a target with a bias per task, tasks in no order."""
    rng = np.random.default_rng(seed)
    features = [rng.normal(size=(n, d)) for d in (2, 3, 2)]
    codes = rng.permutation(np.arange(n) % T)
    return features, features[0] @ [1.0, -1.0] * (1 + 0.2 * codes) + codes + 0.1 * rng.normal(size=n), codes


def best_multiple(beta, features, y, codes, q):
    found = minimize_scalar(lambda s: -oracle.dual(s * beta, features, y, codes, q, 0.7), (0.0, 1.0))
    return -found.fun if found.x > 0 else 0.0


class Written:
    """What an interior path asks of kernels, from whole matrices."""

    def __init__(self, grams, codes):
        self.grams, self.codes, self.spread = grams, codes, np.eye(T)[codes]

    def products(self, beta):
        return self.grams @ (self.spread * beta[:, None])

    def forms(self, beta):
        return (self.spread * beta[:, None]).T @ self.products(beta)

    def matrix(self, coupling):
        return (coupling[:, self.codes][:, :, self.codes] * self.grams).sum(axis=0)


def test_a_step_out_of_balance_is_balanced_anywhere_on_the_interior_path():
    features, _, codes = tiny(0, 24)
    y = np.where(features[0] @ [1.0, -1.0] + 0.3 * np.random.default_rng(0).normal(size=24) > 0, 1.0, -1.0)
    problem = replace(svc_problem(y, 1.0), groups=codes)
    path = InteriorPath(problem, T, 1.5, Written(np.stack([F @ F.T for F in features]), codes))
    point, first = path.start(problem.feasible(0.3 * y)), np.zeros(24)
    first[np.unique(codes, return_index=True)[1]] = 1.0
    for _ in range(13):
        view = path.view(point)
        step = _NewtonSystem(path, point, view, point.levels[:, None, None] * np.eye(T) - view.forms)._balanced(first)
        np.testing.assert_allclose(path.member.T @ (view.beta + step), 0.0, atol=1e-12)
        assert (step <= first).all()
        point = path.advance(point, view)


@pytest.mark.parametrize("q", QS)
def test_the_best_coupling_is_feasible_and_no_other_has_a_smaller_value(q):
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=(5, T)) for _ in range(K)]
    gram = np.stack([W.T @ W for W in parts])
    best = best_coupling(part_roots(parts), q)
    assert trace_norm(best, q) == pytest.approx(1.0) and np.linalg.eigvalsh(best).min() > 0

    def value(coupling):
        return sum(np.trace(np.linalg.solve(D, G)) for D, G in zip(coupling, gram))

    assert value(best) == pytest.approx(oracle.omega(parts, q) ** 2)
    for _ in range(20):
        other = best + 0.05 * psd(rng) * rng.random((K, 1, 1))
        assert value(other / trace_norm(other, q)) >= value(best) - 1e-9


@pytest.mark.parametrize("q", QS)
def test_the_dual_norm_is_the_greatest_value_over_couplings(q):
    rng = np.random.default_rng(2)
    forms = psd(rng, 2)
    top = coupling_norm(forms, q)
    tried = [psd(rng, 1) for _ in range(200)]
    assert max(float(np.sum(D * forms)) / trace_norm(D, q) for D in tried) <= top * (1 + 1e-12)
    values, vectors = np.linalg.eigh(forms)
    leading = np.einsum("ks,kt->kst", vectors[:, :, -1], vectors[:, :, -1])
    traces = values[:, -1] == values[:, -1].max() if q == 1 else values[:, -1] ** (1e9 if q == 1 else (2 - q) / (2 * (q - 1)))
    best = leading * np.asarray(traces, float)[:, None, None]
    assert float(np.sum(best * forms)) / trace_norm(best, q) == pytest.approx(top)


def test_the_slope_in_the_coupling_is_that_of_finite_differences():
    features, y, codes = tiny()
    grams = np.stack([F @ F.T for F in features])
    problem = replace(ridge_problem(y, 0.7), groups=codes)
    coupling = psd(np.random.default_rng(3)) / 10

    def solved(D):
        return solve_ridge(DenseGram(np.einsum("kil,kil->il", D[:, codes][:, :, codes], grams)), problem, tol=1e-12)

    beta = solved(coupling).beta
    slope = -0.5 * np.einsum("is,kil,lt->kst", scatter_by_task(beta, codes, T), grams, scatter_by_task(beta, codes, T))
    move = psd(np.random.default_rng(4))
    ahead, behind = (solved(coupling + h * move).objective for h in (1e-5, -1e-5))
    assert (ahead - behind) / 2e-5 == pytest.approx(float(np.sum(slope * move)), rel=1e-5)


@pytest.mark.parametrize("q", QS)
def test_steps_stay_in_the_set_and_long_ones_stand_still_where_the_short_do(q):
    rng = np.random.default_rng(5)
    coupling, forms = best_coupling(psd(rng), q), psd(rng)
    for step in (best_coupling(coupling_roots(coupling, forms, 0.01), q), long_step(coupling, forms, np.full(K, 3.0), q, 0.01)):
        assert trace_norm(step, q) == pytest.approx(1.0) and np.linalg.eigvalsh(step).min() > 0
        np.testing.assert_array_equal(step, step.transpose(0, 2, 1))
    # Forms that are a multiple of the identity on every kernel, best for the traces: D stays.
    traces = np.trace(coupling, axis1=1, axis2=2)
    level = traces ** ((2 * q - 2) / (2 - q)) if q < 2 else np.ones(K)
    still = level[:, None, None] * np.eye(T)
    for step in (best_coupling(coupling_roots(coupling, still), q), long_step(coupling, still, np.full(K, 3.0), q, 0.0)):
        np.testing.assert_allclose(step, coupling, atol=1e-7)
    np.testing.assert_allclose(coupling_slack(coupling, still), 0.0, atol=1e-12)
    none = np.zeros((K, T, T))
    np.testing.assert_array_equal(best_coupling(none, q), even_coupling(K, T, q))


def test_norms_of_singular_parts_keep_small_singular_values():
    W = np.diag([1.0, 1e-6, 0.0, 0.0])
    coupling = np.eye(T)[None]
    assert nuclear_norms(coupling, (W.T @ W)[None])[0] == pytest.approx(1 + 1e-6, abs=1e-12)


@pytest.mark.parametrize("q", QS)
def test_bounds_are_those_of_explicit_weights(q):
    features, y, codes = tiny(6)
    grams = np.stack([F @ F.T for F in features])
    problem = replace(ridge_problem(y, 0.7), groups=codes)
    coupling = best_coupling(psd(np.random.default_rng(7)), q)
    found = solve_ridge(DenseGram(np.einsum("kil,kil->il", coupling[:, codes][:, :, codes], grams)), problem, tol=1e-10)
    apart = scatter_by_task(found.beta, codes, T)
    forms = np.einsum("is,kil,lt->kst", apart, grams, apart)
    told = subspace_bounds(problem, found.beta, found.decision, forms, coupling, q)
    parts = [F.T @ apart @ D for F, D in zip(features, coupling)]
    assert told.primal == pytest.approx(oracle.primal(parts, told.biases, features, y, codes, q, 0.7))
    assert told.dual == pytest.approx(best_multiple(found.beta, features, y, codes, q), rel=1e-6) and told.dual <= told.primal
    assert part_norms(parts, q) == pytest.approx(float(power_norm(nuclear_norms(coupling, forms), q)))


# -- the pooled space --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("power", [1.0, 1.0202, 3.0, np.inf])
def test_traces_after_a_mirror_step_minimise_their_problem(power):
    rng = np.random.default_rng(8)
    logs = [rng.normal(size=size) + 1 for size in (3, 5, 2, 4)]
    ball = TraceBall(power)
    found = ball.traces(logs)
    free = np.array([1 + logsumexp(values) for values in logs])

    def value(rho):
        return float(np.sum(rho * np.log(np.maximum(rho, 1e-300)) - rho * free))

    bounded = {"type": "ineq", "fun": lambda rho: 1 - (rho.max() if np.isinf(power) else np.sum(rho**power))}
    best = minimize(value, np.full(4, 0.2), bounds=[(1e-9, 1)] * 4, constraints=[bounded], method="SLSQP", options={"ftol": 1e-14})
    assert value(found) <= best.fun + 1e-7
    np.testing.assert_allclose(found, best.x, atol=1e-4)
    moved = ball.mirror(logs)
    assert ball.violation(moved) < 1e-12
    np.testing.assert_allclose([np.exp(values).sum() for values in moved], found)
    for values, before in zip(moved, logs):
        np.testing.assert_allclose(values - before, values[0] - before[0])


def test_a_mirror_step_from_the_boundary_without_a_gradient_stays_there_and_large_ones_do_not_overflow():
    for power in (1.0, 1.0202, 3.0, np.inf):
        ball = TraceBall(power)
        start = ball.start([3, 4])
        assert ball.violation(start) < 1e-14
        for a, b in zip(ball.mirror(start), start):
            np.testing.assert_allclose(a, b, atol=1e-12)
        far = ball.mirror([np.array([0.0, 5000.0]), np.array([4000.0, -1e4])])
        assert all(np.isfinite(values).all() for values in far) and ball.violation(far) < 1e-9
    with pytest.raises(ValueError, match=r"power=0.5: must be at least 1"):
        TraceBall(0.5)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
def test_mirror_descent_from_sums_is_that_of_matrix_logarithms(q):
    features, _, codes = tiny(9)
    factors = [pooled_factor(F @ F.T) for F in features]
    squares, rng = Squares(codes), np.random.default_rng(10)
    ball = TraceBall(np.inf if q == 2 else q / (2 - q))
    constants = start_constants(factors, q)
    logs = [np.eye(F.shape[1]) * c for F, c in zip(factors, constants)]
    sums = np.zeros(squares.size)
    for step in (0.5, 0.25):
        beta = rng.normal(size=len(codes))
        G = factor_products(factors, scatter_by_task(beta, codes, T))
        sums = sums + step * squares.outer(beta)
        point = mirror_point(factors, squares, sums, constants, q)
        constants = point.constants
        found = [np.linalg.eigh(L + 0.5 * step * part @ part.T) for L, part in zip(logs, G)]
        moved = ball.mirror([values for values, _ in found])
        logs = [(vectors * values) @ vectors.T for (_, vectors), values in zip(found, moved)]
        for half, (_, vectors), values in zip(point.halves, found, moved):
            np.testing.assert_allclose(half.factor @ half.factor.T, (vectors * np.exp(values)) @ vectors.T, atol=1e-10)


def test_independent_machines_have_the_kernel_of_their_task_alone():
    features, _, codes = tiny(11)
    factors = [pooled_factor(F @ F.T) for F in features]
    for F, factor in zip(features, factors):
        np.testing.assert_allclose(factor @ factor.T, F @ F.T, atol=1e-10)
    halves = [Half(np.random.default_rng(3).normal(size=(F.shape[1], 2)), base) for F, base in zip(factors, (0.0, 0.3, 1.0))]
    whole = sum(F @ half.part(F.T) for F, half in zip(factors, halves))
    np.testing.assert_allclose(independent_kernel(factors, halves, codes), whole * (codes[:, None] == codes), atol=1e-12)


def test_the_half_of_the_alternation_is_the_root_of_its_parts():
    W = np.random.default_rng(4).normal(size=(6, 3))
    Q = alternating_half(W, 6, 0.1)
    values, vectors = np.linalg.eigh(W @ W.T)
    expected = (vectors * np.sqrt(np.maximum(values, 0) + 0.01 * values[-1])) @ vectors.T
    np.testing.assert_allclose(Q.part(np.eye(6)), expected / np.trace(expected), atol=1e-12)
    np.testing.assert_allclose(alternating_half(np.zeros(0), 4, 0.1).part(np.eye(4)), np.eye(4) / 4)


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0])
def test_both_formulations_have_one_dual(q):
    features, y, codes = tiny(12)
    beta = np.random.default_rng(5).normal(size=len(y))
    beta -= (np.bincount(codes, beta) / np.bincount(codes))[codes]
    problem = replace(ridge_problem(y, 0.7), groups=codes)
    factors = [pooled_factor(F @ F.T) for F in features]
    forms = pair_forms(factor_products(factors, scatter_by_task(beta, codes, T)))
    assert dual_value(problem, beta, forms, q) == pytest.approx(best_multiple(beta, features, y, codes, q), rel=1e-6, abs=1e-9)

"""Group lasso on rows: every loss and method against a general solver of the dual, its certificate, and descent."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.group_lasso.on_moments import WorkingColumns
from gramplane.kernels.group_lasso.on_rows import solve_rows
from gramplane.kernels.group_lasso.penalty import single_features
from gramplane.kernels.group_lasso.row_problem import RowProblem, TaskRows
from gramplane.kernels.losses import mean_loss
from tests.kernels.group_lasso.test_group_lasso import penalty_of, tasks_of
from tests.support.oracles import group_lasso as oracle


def problem_of(loss, kind="sgl", n_tasks=1, bias=True, share=0.3):
    penalty, groups = penalty_of(kind)
    tasks = tasks_of(n_tasks)
    if loss != "squared":
        tasks = [(X, np.where(y > np.median(y), 1.0, -1.0), cost) for X, y, cost in tasks]
    X, y, cost = (np.concatenate([task[k] for task in tasks]) for k in range(3))
    edges = np.concatenate(([0], np.cumsum([len(task[1]) for task in tasks])))
    problem = RowProblem(TaskRows(X, edges), y, cost, mean_loss(loss), penalty, 1e6, bias)
    nothing = solve_rows(problem)
    largest = penalty.dual_norms(problem.rows.slopes(cost * nothing.slopes)).max()
    return replace(problem, lam=share * largest), tasks, groups


@pytest.mark.parametrize(
    ("loss", "method", "kind", "n_tasks", "bias"),
    [
        ("squared", "auto", "sgl", 1, True),
        ("squared", "fista", "overlap", 2, True),
        ("logistic", "auto", "sgl", 1, True),
        ("logistic", "auto", "overlap sgl", 1, False),
        ("logistic", "auto", "rows and entries", 2, True),
        ("logistic", "fista", "gl", 1, True),
        ("logistic", "fista", "entries", 2, False),
        ("logistic", "auto", "rows p=inf", 2, True),
        ("logistic", "fista", "rows p=1.5", 2, True),
        ("squared", "fista", "groups p=inf", 1, True),
        ("hinge", "auto", "gl", 1, False),
        ("hinge", "auto", "sgl", 1, True),
        ("hinge", "auto", "overlap sgl", 1, True),
        ("hinge", "auto", "rows and entries", 2, True),
        ("hinge", "auto", "entries", 2, False),
    ],
)
def test_the_objective_is_that_of_a_general_solver(loss, method, kind, n_tasks, bias):
    problem, tasks, groups = problem_of(loss, kind, n_tasks, bias)
    found = solve_rows(problem, tol=1e-8, max_iter=20_000, method=method)
    assert found.stop == "gap"
    penalty, weights = problem.penalty, problem.penalty.scatter(found.copies)
    parts = [found.copies[:, a:b].ravel() for a, b in pairwise(penalty.indptr)]
    exact = oracle.primal(tasks, loss, problem.lam, weights, found.biases, parts, penalty.kappa, penalty.inner, penalty.p)
    np.testing.assert_allclose(found.objective, exact, rtol=1e-10)
    best = oracle.dual_optimum(tasks, groups, penalty.kappa, penalty.inner, problem.lam, loss, bias, penalty.p)
    assert -1e-6 * best <= found.objective - best <= found.gap + 1e-6 * best


def test_newton_steps_stay_few_where_most_rows_lie_far_from_their_margin():
    """Their curvature is small; were it raised, steps would be as short as those of a gradient."""
    rng = np.random.default_rng(0)
    X = (rng.random((4000, 12)) < 0.1).astype(float)
    z = X @ rng.normal(0.0, 4.0, 12)
    y = np.where(z - np.quantile(z, 0.98) + 0.5 * rng.logistic(size=len(z)) > 0.0, 1.0, -1.0)
    cost = np.full(len(y), 1.0 / len(y))
    problem = RowProblem(TaskRows(X, np.array([0, len(y)])), y, cost, mean_loss("logistic"), single_features(12), 1e-6, True)
    found = solve_rows(problem, tol=1e-4)
    assert found.stop == "gap"
    assert found.steps <= 20


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_same_features_are_left_out_whatever_the_unit_of_the_objective(unit):
    """Interior points have no zeros: which features are zero is decided at the end, by shares of the objective."""
    problem, _, _ = problem_of("hinge", "gl", bias=True)
    found, scaled = solve_rows(problem, tol=1e-6), solve_rows(replace(problem, cost=unit * problem.cost, lam=unit * problem.lam), tol=1e-6)
    np.testing.assert_array_equal(found.copies != 0, scaled.copies != 0)
    assert found.copies.any() and not found.copies.all()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_fista_never_goes_uphill_and_its_gap_bounds_what_is_left(loss):
    problem, _, _ = problem_of(loss, share=0.3)
    best = solve_rows(problem, tol=1e-3, max_iter=5000)
    best = best.objective - best.gap
    runs = [solve_rows(problem, tol=1e-12, max_iter=k, method="fista") for k in (0, 1, 2, 5, 9)]
    assert all(run.objective - best <= run.gap + 1e-9 for run in runs)
    assert all(b.objective <= a.objective * (1 + 1e-12) for a, b in pairwise(runs))


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_lambda_max_is_that_of_the_intercept_only_fit(loss):
    problem, _, _ = problem_of(loss, share=1.0)
    assert not solve_rows(replace(problem, lam=problem.lam * 1.000001), tol=1e-9).copies.any()
    assert solve_rows(replace(problem, lam=0.999 * problem.lam), tol=1e-9).copies.any()


def test_sparse_rows_give_the_dense_answer():
    problem, _, _ = problem_of("logistic")
    sparse = replace(problem, rows=TaskRows(sp.csr_array(problem.rows.X), problem.rows.edges))
    for method in ("auto", "fista"):
        a, b = (solve_rows(p, tol=1e-9, method=method, max_iter=5000) for p in (problem, sparse))
        np.testing.assert_allclose(a.copies, b.copies, atol=1e-6)


def test_separable_rows_and_useless_columns_end_finitely():
    problem, _, _ = problem_of("logistic", share=1e-4)
    X = problem.rows.X.copy()
    X[:, 0], X[:, 1], X[:, 2] = 10 * problem.y, 0.0, 5.0
    found = solve_rows(replace(problem, rows=TaskRows(X, problem.rows.edges)), tol=1e-6)
    assert found.stop == "gap"
    assert np.isfinite(found.copies).all()


def test_a_step_that_overflows_is_not_taken():
    problem, tasks, _ = problem_of("hinge", "entries", 3)
    X = np.concatenate([task[0] for task in tasks])
    X[: problem.rows.edges[1], 0] *= 1e150
    found = solve_rows(replace(problem, rows=TaskRows(X, problem.rows.edges)), tol=1e-6, max_iter=60)
    assert found.stop == "no_progress"
    assert np.isfinite(found.copies).all() and np.isfinite(found.objective)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("even", [False, True])
def test_columns_that_join_in_batches_have_the_moments_of_all(sparse, even):
    problem, _, _ = problem_of("logistic")
    X, n = problem.rows.X, len(problem.y)
    cost = np.full(n, 1.0 / n) if even else np.where(np.arange(n) == 3, 0.0, problem.cost)
    rows, order = WorkingColumns(cost, True), np.array([5, 6, 0, 7, 1])
    for batch in (order[:2], order[2:4], order[4:]):
        rows.append(batch, sp.csr_array(X[:, batch]) if sparse else X[:, batch])
        whole = TaskRows(X[:, rows.features], problem.rows.edges)
        for weights in (cost, cost * (1.0 + problem.y / 2)):
            found, known = rows.moments(problem.y, weights, True), whole.moments(problem.y, weights, True)
            np.testing.assert_allclose(found.gram, known.gram, atol=1e-12)
            np.testing.assert_allclose(found.cross, known.cross, atol=1e-12)
            np.testing.assert_allclose(found.means + rows.means, known.means, atol=1e-12)
    w = np.arange(5.0)[None]
    np.testing.assert_allclose(rows.decide(w) + w @ rows.means, X[:, rows.features] @ w[0], atol=1e-12)
    assert sparse == (not rows.means.any())

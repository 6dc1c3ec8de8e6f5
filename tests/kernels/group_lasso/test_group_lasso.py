"""Group lasso on moments: against a general solver of the dual, its certificate, and what must not change it."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.features.groups import build_groups
from gramplane.kernels.group_lasso.on_moments import row_moments, solve_moments, target_moments
from gramplane.kernels.group_lasso.penalty import GroupPenalty, group_penalty, single_features
from gramplane.kernels.losses import best_dual
from tests.support.oracles import group_lasso as oracle

OVERLAPPING = [[0, 1, 2], [2, 3, 4], [4, 5, 6, 7], [0, 7]]
DISJOINT = [[3, 0, 1], [2], [4, 5, 6, 7]]
KINDS = {
    "gl": (DISJOINT, None, 0.0),
    "sgl": (DISJOINT, None, [0.3, 1.0, 0.5]),
    "overlap": (OVERLAPPING, None, 0.0),
    "overlap sgl": (OVERLAPPING, None, 0.2),
    "entries": ([[j] for j in range(8)], 0.0, 1.0),
    "rows and entries": ([[j] for j in range(8)], 1.0, 0.4),
    "groups p=inf": (DISJOINT, None, 0.0, np.inf),
    "overlap p=4": (OVERLAPPING, None, 0.0, 4.0),
    "rows p=1.5": ([[j] for j in range(8)], 1.0, 0.0, 1.5),
    "rows p=3": ([[j] for j in range(8)], 1.0, 0.0, 3.0),
    "rows p=inf": ([[j] for j in range(8)], 1.0, 0.0, np.inf),
}


def penalty_of(kind: str) -> tuple[GroupPenalty, list[list[int]]]:
    groups, kappa, inner, *norm = KINDS[kind]
    index = build_groups([np.array(g) for g in groups], 8)
    made = group_penalty(index, np.sqrt(index.sizes) if kappa is None else kappa, np.array(inner))
    return replace(made, p=norm[0] if norm else 2.0), groups


def tasks_of(n_tasks: int, n: int = 12, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng, tasks = np.random.default_rng(seed), []
    for q in range(n_tasks):
        X = rng.normal(size=(n + q, 8)) @ (np.eye(8) + 0.3) + rng.normal(size=8)
        cost = rng.uniform(0.5, 1.5, n + q)
        tasks.append((X, X[:, 0] - X[:, 4] + 0.3 * rng.normal(size=n + q) + 2.0, cost / cost.sum()))
    return tasks


def moments_of(tasks, bias: bool):
    X, y, cost = (np.concatenate([task[k] for task in tasks]) for k in range(3))
    codes = np.repeat(np.arange(len(tasks)), [len(task[1]) for task in tasks])
    return target_moments(row_moments(X, y, cost, codes=codes, n_tasks=len(tasks)), bias)


def dual_norm(penalty, moments) -> float:
    return float(penalty.dual_norms(moments.cross).max())


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("kind", "n_tasks"),
    [
        *[("gl", 1), ("sgl", 1), ("overlap", 1), ("overlap sgl", 2), ("entries", 2), ("rows and entries", 3)],
        *[("groups p=inf", 1), ("overlap p=4", 2), ("rows p=1.5", 3), ("rows p=3", 2), ("rows p=inf", 3)],
    ],
)
def test_the_objective_is_that_of_a_general_solver(kind, n_tasks, bias):
    penalty, groups = penalty_of(kind)
    tasks = tasks_of(n_tasks)
    moments = moments_of(tasks, bias)
    lam = 0.15 * dual_norm(penalty, moments)
    found = solve_moments(moments, penalty, lam, tol=1e-10)
    assert found.stop == "gap"
    weights = penalty.scatter(found.copies)
    parts = [found.copies[:, a:b].ravel() for a, b in pairwise(penalty.indptr)]
    exact = oracle.primal(tasks, "squared", lam, weights, moments.biases(weights), parts, penalty.kappa, penalty.inner, penalty.p)
    np.testing.assert_allclose(found.objective, exact, rtol=1e-11)
    best = oracle.dual_optimum(tasks, groups, penalty.kappa, penalty.inner, lam, "squared", bias, penalty.p)
    np.testing.assert_allclose(found.objective, best, rtol=2e-7)


@pytest.mark.parametrize("kind", list(KINDS))
def test_zero_is_the_solution_from_lambda_max_on(kind):
    penalty, _ = penalty_of(kind)
    moments = moments_of(tasks_of(2), True)
    largest = dual_norm(penalty, moments)
    at = solve_moments(moments, penalty, largest * (1 + 1e-9), tol=1e-9)
    assert at.sweeps == 0
    assert not at.copies.any()
    assert solve_moments(moments, penalty, 0.999 * largest, tol=1e-12).copies.any()


def test_the_dual_norm_solves_its_equation():
    rng = np.random.default_rng(1)
    index = build_groups(np.arange(40) // 7, 40)
    penalty = group_penalty(index, np.sqrt(index.sizes), np.array([0.0, 0.1, 1.0, 5.0, 0.3, 0.2]))
    z = rng.normal(size=(2, 40)) * rng.uniform(0, 3, 40)
    z[:, 35:] = 0.0
    roots = penalty.dual_norms(z)
    for g, s in enumerate(roots):
        part = z[:, penalty.members[penalty.indptr[g] : penalty.indptr[g + 1]]]
        shrunk = np.maximum(np.abs(part) - s * penalty.inner[g], 0.0)
        np.testing.assert_allclose(np.linalg.norm(shrunk), s * penalty.kappa[g], rtol=1e-12)
    assert roots[-1] == 0.0


def test_every_gap_bounds_the_distance_to_the_optimum():
    penalty, _ = penalty_of("overlap sgl")
    moments = moments_of(tasks_of(2), True)
    lam = 0.05 * dual_norm(penalty, moments)
    best = solve_moments(moments, penalty, lam, tol=1e-11).objective
    runs = [solve_moments(moments, penalty, lam, tol=1e-13, max_sweeps=5 * k) for k in range(6)]
    for run in runs:
        assert run.objective - best <= run.gap * (1 + 1e-9) + 1e-12
    assert all(b.objective <= a.objective + 1e-14 for a, b in pairwise(runs))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_gap_of_a_ten_thousandth_is_asked_for_by_default(kind):
    penalty, _ = penalty_of(kind)
    moments = moments_of(tasks_of(2), True)
    for share in (0.05, 0.01, 0.001):
        found = solve_moments(moments, penalty, share * dual_norm(penalty, moments))
        assert found.stop == "gap" and found.gap <= 1e-4 * found.objective


def test_steps_continue_where_the_last_ones_ended():
    penalty, _ = penalty_of("sgl")
    moments = moments_of(tasks_of(1), True)
    lam = 0.02 * dual_norm(penalty, moments)
    whole = solve_moments(moments, penalty, lam, tol=1e-12, max_sweeps=40)
    half = solve_moments(moments, penalty, lam, tol=1e-12, max_sweeps=20)
    rest = solve_moments(moments, penalty, lam, warm=half.copies, tol=1e-12, max_sweeps=20)
    assert (rest.copies == whole.copies).all()


def test_empty_constant_and_repeated_columns_are_legal():
    X, y, cost = tasks_of(1)[0]
    X = X.copy()
    X[:, 2], X[:, 5], X[:, 7] = 0.0, 3.0, X[:, 4]
    penalty, _ = penalty_of("gl")
    found = solve_moments(moments_of([(X, y, cost)], True), penalty, 1e-3, tol=1e-8)
    assert found.stop == "gap"
    assert penalty.scatter(found.copies)[0, 2] == 0.0


def test_moments_do_not_depend_on_form_and_add_up():
    rng = np.random.default_rng(2)
    X = np.where(rng.random((300, 5)) < 0.4, rng.normal(size=(300, 5)), 0.0)
    y, cost, codes = rng.normal(size=300), rng.random(300), rng.integers(0, 3, 300)
    raw = row_moments(X, y, cost, codes=codes, n_tasks=3)
    for form in (np.asfortranarray(X), sp.csr_array(X), sp.csc_array(X)):
        assert (row_moments(form, y, cost, codes=codes, n_tasks=3) == raw).all()
    single = X.astype(np.float32)
    assert (row_moments(single, y, np.ones(300)) == row_moments(single.astype(np.float64), y, np.ones(300))).all()
    rows = np.column_stack([X, y, np.ones(300)])
    for q in range(3):
        np.testing.assert_allclose(raw[q], (rows * (cost * (codes == q))[:, None]).T @ rows, atol=1e-12)
    shift = rng.normal(size=5)
    # Sums about zero, of sums about a shift of the columns.
    move = np.eye(raw.shape[-1])
    move[: len(shift), -1] = shift
    np.testing.assert_allclose(move @ row_moments(X, y, cost, shift=shift, codes=codes, n_tasks=3) @ move.T, raw, atol=1e-12)


def test_large_means_cost_no_digits_about_a_shift():
    X, y, cost = tasks_of(1)[0]
    penalty, _ = penalty_of("gl")
    near = solve_moments(target_moments(row_moments(X, y, cost), True), penalty, 0.1, tol=1e-12)
    far = solve_moments(target_moments(row_moments(X + 1e7, y, cost, shift=np.full(8, 1e7)), True), penalty, 0.1, tol=1e-12)
    np.testing.assert_allclose(far.copies, near.copies, atol=1e-7)


def test_the_dual_value_is_the_best_along_the_residual():
    ts = np.linspace(-3, 3, 4001)
    for rest, aligned, reach, lam in ((2.0, 1.5, 0.1, 5.0), (2.0, 1.5, 4.0, 1.0), (0.0, 0.0, 0.0, 1.0)):
        allowed = ts[np.abs(ts) * reach <= lam]
        best = (allowed * aligned - 0.5 * allowed**2 * rest).max()
        np.testing.assert_allclose(best_dual(rest, aligned, lam / reach if reach else np.inf), best, atol=2e-3)


def test_weights_that_penalise_nothing_are_refused():
    index = build_groups([np.array([0, 1]), np.array([2])], 3)
    with pytest.raises(ValueError, match=r"group 1 has the weights kappa=0.0, r=0.0"):
        group_penalty(index, np.array([1.0, 0.0]))
    assert single_features(3).value(np.array([[1.0, -2.0, 0.0]])) == 3.0

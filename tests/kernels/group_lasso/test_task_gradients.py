"""Gradients of many tasks against plain sums; the bound of their moves; columns of a working set with many tasks; groups of edges."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.group_lasso.on_moments import WorkingColumns
from gramplane.kernels.group_lasso.on_rows import solve_rows
from gramplane.kernels.group_lasso.penalty import edge_groups
from gramplane.kernels.group_lasso.row_problem import RowProblem, TaskRows
from gramplane.kernels.group_lasso.task_gradients import feature_norms, feature_reaches, norm_move, task_sums
from gramplane.kernels.group_lasso.task_selection import task_penalty
from gramplane.kernels.losses import mean_loss

N, D, TASKS = 60, 23, 4


def rows(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5)
    return X, rng.integers(0, TASKS, N), rng.normal(size=N) * (rng.random(N) < 0.9), rng.random(N) / N


def by_task(X, codes, weight):
    return np.stack([(weight[codes == q][:, None] * X[codes == q]).sum(axis=0) for q in range(TASKS)])


@pytest.mark.parametrize("squares", [False, True])
def test_sums_of_tasks_have_the_same_bits_in_every_form(squares):
    X, codes, weight, _ = rows()
    forms = [X, np.asfortranarray(X), sp.csc_array(X), np.repeat(X, 2, axis=1)[:, ::2]]
    sums = [task_sums(form, weight, codes, TASKS, squares=squares) for form in forms]
    np.testing.assert_allclose(sums[0], by_task(X**2 if squares else X, codes, weight), atol=1e-13)
    assert all((other == sums[0]).all() for other in sums[1:])
    parts = [task_sums(X[:, lo : lo + 7], weight, codes, TASKS, squares=squares) for lo in range(0, D, 7)]
    assert (np.concatenate(parts, axis=1) == sums[0]).all()
    frozen = codes.copy()
    frozen.flags.writeable = False
    assert (task_sums(X.astype(np.float32), weight, frozen, TASKS).shape, task_sums(X[:, :0], weight, codes, TASKS).shape) == (
        (4, D),
        (4, 0),
    )


@pytest.mark.parametrize("name", ["imtfs", "amtfs", "mtfts"])
def test_norms_and_reaches_are_those_of_scaled_columns(name, monkeypatch):
    X, codes, weight, cost = rows(1)
    penalty, shift, factor = task_penalty(name, D, 0.3), np.linspace(-1, 1, D), np.linspace(0.5, 2, D)
    scaled = (X - shift) * factor
    expected = penalty.dual_norms(by_task(scaled, codes, weight))
    more = {"shift": shift, "factor": factor}
    np.testing.assert_allclose(feature_norms(X, weight, codes, TASKS, penalty, **more), expected, rtol=1e-11)
    reaches = feature_reaches(X, cost, codes, TASKS, **more)
    np.testing.assert_allclose(reaches, np.sqrt(by_task(scaled**2, codes, cost).max(axis=0)), rtol=1e-11)
    monkeypatch.setattr("gramplane.kernels.group_lasso.task_gradients.BATCH_BYTES", 8 * TASKS * 5)
    assert (feature_reaches(X, cost, codes, TASKS, **more) == reaches).all()


@pytest.mark.parametrize("name", ["imtfs", "amtfs", "mtfts"])
def test_no_norm_moves_further_than_its_bound_and_some_move_that_far(name):
    X, codes, _, cost = rows(2)
    penalty, rng, shares = task_penalty(name, D, 0.3), np.random.default_rng(3), []
    reaches = feature_reaches(X, cost, codes, TASKS, shift=None, factor=None)

    def norms(s):
        return penalty.dual_norms(by_task(X, codes, cost * s))

    for _ in range(20):
        before, after = rng.normal(size=(2, N))
        bound = norm_move(penalty, cost, before, after) * reaches
        assert (np.abs(norms(after) - norms(before)) <= bound * (1 + 1e-12)).all()
    # Along a column of the task that it reaches furthest in, from zero: of a single entry nothing is lost but what Omega has more.
    for j in range(D):
        q = int(np.argmax([cost[codes == t] @ X[codes == t, j] ** 2 for t in range(TASKS)]))
        step = np.where(codes == q, X[:, j], 0.0)
        shares.append(norms(step)[j] / (norm_move(penalty, cost, np.zeros(N), step) * reaches[j]))
    np.testing.assert_allclose(shares, 1.0, rtol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_working_columns_of_many_tasks_are_rows_of_many_tasks(form, loss):
    X, codes, _, cost = rows(4)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(TASKS + 1))
    X, cost, rng = X[order] + (form is np.asarray), cost[order], np.random.default_rng(5)
    y = X[:, 0] + rng.normal(size=N)
    y = y if loss == "squared" else np.where(y > np.median(y), 1.0, -1.0)
    columns = WorkingColumns(cost, True, edges)
    for batch in ([0, 3, 4], [1, 7]):
        columns.append(np.array(batch), form(X[:, batch]))
    chosen = [0, 3, 4, 1, 7]
    whole = TaskRows(X[:, chosen] - columns.means, edges)
    W, u = rng.normal(size=(TASKS, 5)), rng.normal(size=N)
    np.testing.assert_allclose(columns.decide(W), whole.decide(W), atol=1e-12)
    np.testing.assert_allclose(columns.slopes(u), whole.slopes(u), atol=1e-12)
    for weight in (cost, cost + 0.01):
        ours, theirs = (one.moments(y, weight, True) for one in (columns, whole))
        np.testing.assert_allclose(ours.gram, theirs.gram, atol=1e-12)
        np.testing.assert_allclose(ours.cross, theirs.cross, atol=1e-12)
        assert ours.square == pytest.approx(theirs.square)
    problem = RowProblem(columns, y, cost, mean_loss(loss), task_penalty("mtfts", 5, 0.2), 0.02, True)
    found, best = (solve_rows(RowProblem(one, *list(vars(problem).values())[1:]), tol=1e-10) for one in (columns, whole))
    assert found.stop == "gap" and found.objective == pytest.approx(best.objective, rel=1e-9)


def test_edges_are_groups_and_features_without_one_are_by_themselves():
    indptr, members = edge_groups([[4, 1], [1, 2]], 6)
    groups = [members[a:b].tolist() for a, b in itertools.pairwise(indptr)]
    assert groups == [[1, 4], [1, 2], [0], [3], [5]]
    indptr, members = edge_groups(np.array([[0, 1]]), 2)
    assert indptr.tolist() == [0, 2] and members.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("edges", "words"),
    [
        ([[0, 1], [2, 2]], r"edges\[1\] is \[2, 2\]: an edge must join two different features"),
        ([[0, 6]], r"edges\[0\] is \[0, 6\]: features are 0 to 5"),
        ([[-1, 2]], r"features are 0 to 5"),
        ([[0, 1], [2, 3], [1, 0]], r"edges\[2\] is \[1, 0\]: this edge occurs earlier in the list"),
        ([], r"integer array \(m, 2\)"),
        ([[0.0, 1.0]], "edges has shape .* and type float64"),
        ([[0, 1, 2]], r"shape \(1, 3\)"),
    ],
)
def test_bad_edges_are_named(edges, words):
    with pytest.raises(ValueError, match=words):
        edge_groups(edges, 6)

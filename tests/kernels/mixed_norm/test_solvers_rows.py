"""Access to rows: values against plain NumPy, derivatives against differences, layouts, updates, and blocks against one piece."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gramplane.kernels.losses import sum_loss
from gramplane.kernels.mixed_norm import (
    ROW_OPERATIONS,
    BlockedRows,
    GroupProblem,
    LocalRows,
    RowData,
    add_sums,
    rows_blocked,
    rows_for,
    rows_local,
    solve_newton,
    tree_sum,
)
from gramplane.kernels.mixed_norm.hessian import live_groups, newton_direction
from gramplane.kernels.mixed_norm.line_search import solve_bias
from gramplane.kernels.mixed_norm.problem import certify
from gramplane.kernels.mixed_norm.row_block import RememberingBlock, row_block
from gramplane.kernels.mixed_norm.rows import RowCurvature
from tests.support.oracles import fgm_subproblem as oracle
from tests.support.subproblems import ALL_LOSSES, FREE, KINDS, instance

LOSSES = tuple(oracle.LOSSES)
CASES = [(loss, free) for loss in ALL_LOSSES for free in FREE]


def in_blocks(*rows):
    """As rows_for does for many rows, with blocks of five."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_blocked, "ROW_BLOCK", 5)
        return rows_blocked.blocks_in_process(*rows)


MAKERS = {"local": LocalRows, "blocked": in_blocks}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_the_loss_its_gradient_and_its_dual(kind, loss, free, make):
    case = instance(kind, n=23, scale=2.0)
    rows, Z, X, y = case.rows(loss, free, make), case.dense, case.columns(free), case.y(loss)
    omega = np.random.default_rng(1).normal(size=rows.p) * 0.5
    found = rows.evaluate(omega, np.full(rows.q, 0.3))

    def loss_at(w, g):
        return oracle.loss_value(loss, y, Z @ w + X @ g, case.cost)

    assert found.loss == pytest.approx(loss_at(omega, found.free), rel=1e-12)
    assert found.utility == pytest.approx(oracle.utility(loss, y, rows.residual(), case.cost), rel=1e-9, abs=1e-9)
    eps, u = 1e-6, np.abs(rows.residual())
    slopes = [(loss_at(omega + eps * e, found.free) - loss_at(omega - eps * e, found.free)) / (2 * eps) for e in np.eye(rows.p)]
    np.testing.assert_allclose(found.correlations, -np.array(slopes), atol=1e-5)
    for k in range(rows.q):
        assert min(loss_at(omega, found.free + step * np.eye(rows.q)[k]) for step in (-1e-3, 1e-3)) >= found.loss
        assert abs(X[:, k] @ rows.residual()) <= 1e-12 * (np.abs(X[:, k]) @ u)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", ["plain", "sparse", "float32", "rowwise"])
def test_line_is_the_loss_with_its_derivatives_and_advancing_is_evaluating(kind, loss, free, make):
    case = instance(kind, n=23)
    rows, rng, X, y = case.rows(loss, free, make), np.random.default_rng(2), case.columns(free), case.y(loss)
    omega, direction, shift = rng.normal(size=rows.p) * 0.3, rng.normal(size=rows.p) * 0.3, np.full(rows.q, 0.2)
    g = rows.evaluate(omega, np.zeros(rows.q)).free
    rows.aim(direction, shift)
    steps = np.array([0.0, 0.7, 2.0])
    found = rows.line(steps)

    def loss_at(s):
        return oracle.loss_value(loss, y, case.dense @ (omega + s * direction) + X @ (g + s * shift), case.cost)

    np.testing.assert_allclose(found[0], [loss_at(s) for s in steps], rtol=1e-12)
    np.testing.assert_allclose(found[1], [(loss_at(s + 1e-6) - loss_at(s - 1e-6)) / 2e-6 for s in steps], atol=1e-6)
    np.testing.assert_allclose(found[2], [(loss_at(s + 1e-4) - 2 * loss_at(s) + loss_at(s - 1e-4)) / 1e-8 for s in steps], rtol=1e-2)
    moved = rows.advance(0.7)
    afresh = case.rows(loss, free, make).evaluate(omega + 0.7 * direction, moved.free)
    assert moved.loss == pytest.approx(afresh.loss, rel=1e-12)
    np.testing.assert_allclose(moved.correlations, afresh.correlations, atol=1e-11)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_curvature_after_moves_is_the_one_written_out(kind, loss, free, make):
    case = instance(kind, n=57, scale=3.0)
    rows, Z, X, rng = case.rows(loss, free, make), case.dense, case.columns(free), np.random.default_rng(3)
    omega = 0.5 * rng.normal(size=rows.p)
    at = rows.evaluate(omega, np.zeros(rows.q))
    for _ in range(4):
        found, u = rows.curvature(), rows.residual()
        f = Z @ omega + X @ at.free
        weights, y = np.zeros(57), case.y(loss)
        used = case.cost > 0
        weights[used] = oracle.loss_bends(loss, y[used], f[used], case.cost[used])
        np.testing.assert_allclose(u, oracle.loss_residual(loss, y, f, case.cost), atol=1e-9)
        np.testing.assert_allclose(np.tril(found.gram), np.tril((Z * weights[:, None]).T @ Z), atol=1e-9)
        np.testing.assert_allclose(found.cross, Z.T @ (X * weights[:, None]), atol=1e-9)
        np.testing.assert_allclose(found.bends, X.T @ (X * weights[:, None]), atol=1e-9)
        direction = 0.15 * rng.normal(size=rows.p)
        rows.aim(direction, np.zeros(rows.q))
        omega, at = omega + direction, rows.advance(1.0)


def test_few_changed_rows_update_the_curvature_and_many_rebuild_it(monkeypatch):
    case = instance("plain", n=200)
    rows = case.rows("squared_hinge", "none")
    summed = []
    add = rows._block.add_gram
    monkeypatch.setattr(rows._block, "add_gram", lambda part, *rest: (summed.append(len(part)), add(part, *rest)))
    rows.evaluate(np.zeros(12), np.zeros(0))
    rows.curvature()
    rows.aim(np.full(12, 0.2), np.zeros(0))
    rows.advance(1.0)
    rows.curvature()
    rows.curvature()
    assert summed[0] == 200
    assert 0 < summed[1] < 100
    assert summed[2] == 0


LAYOUTS = {
    "columns": np.asfortranarray,
    "rows": np.ascontiguousarray,
    "rows of columns": lambda Z: np.asfortranarray(np.vstack([Z, Z]))[: len(Z)],
    "rows of rows": lambda Z: np.ascontiguousarray(np.vstack([Z, Z]))[len(Z) :],
    "columns of rows": lambda Z: np.ascontiguousarray(np.hstack([Z, Z]))[:, : Z.shape[1]],
    "every other row": lambda Z: np.asfortranarray(np.repeat(Z, 2, axis=0))[::2],
    "reversed": lambda Z: np.asfortranarray(Z[::-1])[::-1],
    "read-only": lambda Z: np.frombuffer(Z.tobytes()).reshape(Z.shape),
    "csc": sp.csc_array,
    "csr": sp.csr_array,
    "csr unsorted": lambda Z: sp.csr_array(Z[:, ::-1])[:, ::-1],
    "csc int64": lambda Z: sp.csc_array(
        (sp.csc_array(Z).data, sp.csc_array(Z).indices.astype(np.int64), sp.csc_array(Z).indptr.astype(np.int64)), Z.shape
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(40, 9), (1, 5), (6, 1), (1, 1), (1300, 6)])
def test_every_layout_gives_the_same_products(layout, shape):
    rng = np.random.default_rng(4)
    Z = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    block = row_block(LAYOUTS[layout](Z))
    n, p = shape
    omega, u, rows = rng.normal(size=p), rng.normal(size=n) * (rng.random(n) < 0.5), rng.permutation(n)[: max(1, n // 2)]
    weights = rng.normal(size=len(rows))
    np.testing.assert_allclose(block.product(omega), Z @ omega, atol=1e-12)
    for some in (u, u * (rng.random(n) < 0.2)):
        np.testing.assert_allclose(block.transposed(some), Z.T @ some, atol=1e-12)
    gram, columns, cross = np.asfortranarray(np.tril(np.ones((p, p)))), rng.normal(size=(n, 2)), np.ones((p, 2))
    block.add_gram(rows, weights, gram, columns, cross)
    np.testing.assert_allclose(np.tril(gram), np.tril(1 + (Z[rows] * weights[:, None]).T @ Z[rows]), atol=1e-11)
    np.testing.assert_allclose(cross, 1 + (Z[rows] * weights[:, None]).T @ columns[rows], atol=1e-11)


def test_dense_columns_are_not_copied():
    Z = np.asfortranarray(np.random.default_rng(5).normal(size=(30, 4)))
    block = row_block(Z[10:20])
    Z[10:20] = 1.0
    np.testing.assert_array_equal(block.product(np.ones(4)), 4.0)


def test_remembered_products_are_the_blocks_own():
    Z = np.random.default_rng(6).normal(size=(30, 4))
    plain, remembering, asked = row_block(Z), row_block(RememberingBlock(Z)), []
    own = remembering._block.product
    remembering._block.product = lambda omega: (asked.append(1), own(omega))[1]
    points = np.random.default_rng(7).normal(size=(3, 4))
    for k in (0, 0, 1, 0, 1, 2, 1, 0):
        assert remembering.product(points[k]).tobytes() == plain.product(points[k]).tobytes()
    assert len(asked) == 4


def test_float32_sums_are_float64():
    Z = np.full((100_000, 1), 0.1, dtype=np.float32, order="F")
    exact = 100_000 * float(np.float32(0.1))
    for matrix in (Z, sp.csc_array(Z)):
        assert row_block(matrix).transposed(np.ones(100_000))[0] == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", ["plain", "sparse", "float32", "weighted"])
def test_blocks_solve_like_one_piece(kind, loss, free):
    case = instance(kind, n=61, groups=5)
    whole = solve_newton(case.problem(loss, free), tol=1e-8)
    parts = solve_newton(case.problem(loss, free, in_blocks), tol=1e-8)
    assert parts.iterations == whole.iterations
    assert parts.objective == pytest.approx(whole.objective, rel=1e-10)
    np.testing.assert_allclose(parts.omega, whole.omega, atol=1e-8)
    np.testing.assert_allclose(parts.residual, whole.residual, atol=1e-8)


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_order_and_place_of_execution_leave_every_bit(loss, free):
    case = instance("plain", n=83, groups=5)
    cuts, columns, law = [slice(low, low + 5) for low in range(0, 83, 5)], case.columns(free), sum_loss(loss)

    def solve(order):
        def work(name, query):
            done = {}
            for k in order:
                data = RowData(*(part[cuts[k]].copy() for part in (case.y(loss), case.cost, columns)))
                done[k] = ROW_OPERATIONS[name](np.asfortranarray(case.Z[cuts[k]]), data, query)
            return [done[k] for k in range(len(cuts))]

        passes = lambda *ask: tree_sum(work(*ask)), lambda *ask: [part[0] for part in work(*ask)]
        return solve_newton(GroupProblem(BlockedRows(83, 15, law, *passes, columns.shape[1]), case.starts), tol=1e-8)

    straight, shuffled = solve(range(len(cuts))), solve(np.random.default_rng(0).permutation(len(cuts)).tolist())
    own = solve_newton(case.problem(loss, free, in_blocks), tol=1e-8)
    for other in (shuffled, own):
        for name in ("omega", "free", "correlations", "residual", "weights"):
            assert getattr(other, name).tobytes() == getattr(straight, name).tobytes()
        assert (other.objective, other.gap) == (straight.objective, straight.gap)


@pytest.mark.parametrize("loss", ["logistic", "huber"])
def test_operations_leave_their_input_alone(loss):
    case = instance("plain", n=20)
    for free in ("bias", "covariates"):
        data = RowData(case.y(loss), case.cost, case.columns(free))
        ones = np.ones(data.columns.shape[1])
        query = rows_blocked.RowQuery(sum_loss(loss), np.ones(12), 0.1 * ones, np.ones(12), 0.1 * ones, np.ones(2))
        arrays = (case.Z, *data, query.omega, query.direction, query.free, query.shift)
        before = [array.tobytes() for array in arrays]
        for name in sorted({*ROW_OPERATIONS} - ({"balance"} if free == "covariates" else set())):
            first, second = (ROW_OPERATIONS[name](case.Z, data, query) for _ in range(2))
            assert [a.tobytes() for a in first] == [a.tobytes() for a in second]
        assert [array.tobytes() for array in arrays] == before


def test_tree_adds_eight_at_a_time():
    parts = [(np.array([10.0**-k]), np.array([float(k)])) for k in range(20)]
    nodes = [add_sums(parts[start : start + 8]) for start in (0, 8, 16)]
    assert [a.tobytes() for a in tree_sum(parts)] == [a.tobytes() for a in add_sums(nodes)]
    assert tree_sum(parts)[1][0] == 190.0
    assert parts[0][0][0] == 1.0


def test_rows_go_to_blocks_when_there_are_many(monkeypatch):
    monkeypatch.setattr(rows_blocked, "ROW_BLOCK", 24)
    case, larger = instance("plain", n=24), instance("plain", n=25)
    assert isinstance(rows_for(case.Z, case.labels, case.cost, "logistic"), LocalRows)
    assert isinstance(rows_for(larger.Z, larger.labels, larger.cost, "logistic"), BlockedRows)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-50, 50), st.booleans(), st.floats(1e-3, 1e3)), min_size=1, max_size=12),
    st.floats(-1e3, 1e3),
    st.sampled_from(ALL_LOSSES),
)
def test_bias_balances_the_rows_from_any_start(numbers, start, loss):
    z, positive, cost = (np.array(values, dtype=float) for values in zip(*numbers, (0.0, True, 1.0), (0.5, False, 1.0)))
    y = 2 * positive - 1 if loss in LOSSES else np.round(z[::-1], 3)
    rows = LocalRows(z[:, None], y, cost, loss, np.ones((len(z), 1)))
    found = rows.evaluate(np.ones(1), np.array([start]))
    u = rows.residual()
    # Residuals that vanish are round-off of numbers of the size of the targets.
    assert abs(u.sum()) <= 1e-11 * np.abs(u).sum() + 1e-13 * np.abs(cost * y).sum() * (loss not in LOSSES)
    assert np.abs(np.concatenate([z, y])).max() * 2 + 60 >= abs(found.free[0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(-30, 30), st.sampled_from(ALL_LOSSES), st.integers(5, 30), st.floats(1e-3, 1e3))
@example(317_000, 0.0, "logistic", 5, 290.0)  # no row bends at the start
@example(343_878, 24.4, "huber", 22, 134.5)  # bent in some directions, straight in others
@example(818_532, 0.0, "huber", 5, 652.1278714938844)  # and a line that is straight to the last digit
def test_several_columns_balance_the_rows_from_any_start(seed, start, loss, n, scale):
    rng = np.random.default_rng(seed)
    X = np.linalg.qr(np.hstack([np.ones((n, 1)), rng.normal(size=(n, 3)) ** 3]))[0] * np.sqrt(n)
    z, cost = scale ** rng.random() * rng.normal(size=n), 10.0 ** rng.uniform(-2, 2, n) * (rng.random(n) < 0.9)
    y = rng.normal(size=n) ** 3
    if loss in LOSSES:
        # Every sign pattern of the columns occurs in both classes, so that none separates them.
        X, z, cost = np.vstack([X, X]), np.concatenate([z, z]), np.maximum(np.concatenate([cost, cost]), 1e-2)
        y = np.repeat([1.0, -1.0], n)
    # Columns that depend on each other where rows have a weight are refused before there are rows.
    assume(np.linalg.svd(X[cost > 0], compute_uv=False)[3:].min(initial=np.inf) > 1e-2 and np.count_nonzero(cost) >= 4)
    rows = LocalRows(z[:, None], y, cost, loss, X)
    found = rows.evaluate(np.ones(1), np.full(4, start))
    u, pulls = rows.residual(), X.T @ rows.residual()
    assert (np.abs(pulls) <= 1e-10 * (np.abs(X).T @ np.abs(u)) + 1e-12 * (np.abs(X).T @ (cost * (np.abs(y) + np.abs(z))))).all()
    assert found.loss <= oracle.loss_value(loss, y, z, cost) * (1 + 1e-12)


def test_bias_stays_where_only_round_off_is_out_of_balance():
    assert solve_bias(lambda b: (1e-17, 0.0, 1e-17), 0.4, np.inf) == 0.4


@pytest.mark.parametrize("balance", [1e-11, -1e-11])
def test_bias_stays_where_the_step_is_too_small_for_a_number(balance):
    assert solve_bias(lambda b: (balance, 1e9, 1e-4), -0.4, np.inf) == -0.4


def test_bias_search_takes_one_step_on_a_line():
    asked = []

    def sums(b):
        asked.append(b)
        return 2.0 * (b - 3.0), 2.0, 1.0

    assert solve_bias(sums, 0.0, np.inf) == 3.0
    assert len(asked) == 2


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.arange(24.0)}, r"y\[0\]=0.0: labels must be \+1 or -1"),
        ({"y": np.append(np.zeros(23), np.inf), "loss": "huber"}, r"y\[23\]=inf: targets must be finite"),
        ({"cost": np.full(24, -1.0)}, r"cost\[0\]=-1.0: costs must be finite and not negative"),
        ({"cost": np.append(np.ones(23), np.nan)}, r"cost\[23\]=nan"),
        ({"cost": np.ones(23)}, "vectors of the same length"),
        ({"loss": "hinge"}, "loss='hinge': must be one of"),
    ],
)
def test_bad_rows_are_refused(make, change, message):
    case = instance("plain")
    parts = {"y": case.labels, "cost": case.cost, "loss": "logistic"} | change
    with pytest.raises(ValueError, match=message):
        make(case.Z, parts["y"], parts["cost"], parts["loss"])


def test_wrong_length_and_type_are_refused():
    case = instance("plain")
    with pytest.raises(ValueError, match="Z has 23 rows; it needs one for each of the 24 entries of y"):
        LocalRows(case.Z[1:], case.labels, case.cost, "logistic")
    with pytest.raises(ValueError, match=r"columns has shape \(23, 1\); it must be a matrix with one row for each of the 24 entries of y"):
        LocalRows(case.Z, case.labels, case.cost, "logistic", np.ones((23, 1)))
    with pytest.raises(TypeError, match="Z has dtype int64"):
        row_block(np.ones((2, 2), dtype=np.int64))


@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("kind", KINDS)
def test_a_direction_from_the_rows_is_the_one_from_the_columns(kind, free, monkeypatch):
    """Newton directions and whole solutions, where many columns are live on few rows, beside the matrix of the columns written out."""
    case = instance(kind, n=14, groups=6, size=5, scale=3.0)
    starts = case.starts
    omega = np.random.default_rng(4).normal(size=len(case.dense.T))
    if len(starts) > 2:
        omega[starts[-2] :] = 0.0

    def directions(least):
        monkeypatch.setattr(rows_local, "MANY_COLUMNS", least)
        rows = case.rows("squared_hinge", free)
        problem = GroupProblem(rows, starts)
        at = certify(problem, omega, rows.evaluate(omega, np.zeros(rows.q)))
        live, gradient = live_groups(omega, at.evaluation.correlations, at.norms, at.gamma, starts)
        curvature = rows.curvature(len(live.columns))
        assert isinstance(curvature, RowCurvature) is (least == 1)
        found = [newton_direction(curvature, live, gradient, blend) for blend in (1e-3, 0.3, 1.0)]
        return found, solve_newton(problem, tol=1e-10)

    monkeypatch.setattr(rows_local, "COLUMNS_A_ROW", 0)
    (columns, whole), (rows, few) = directions(1000), directions(1)
    for ours, theirs in zip(rows, columns, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9 * np.abs(theirs).max())
    assert few.objective == pytest.approx(whole.objective, rel=1e-9)
    assert few.gap <= 1e-10 * few.objective


@pytest.mark.parametrize("free", FREE)
def test_a_start_beyond_all_margins_is_left(free, monkeypatch):
    """No row has curvature there, so that the system of the rows is empty."""
    rng = np.random.default_rng(0)
    Z, y, starts = rng.random((20, 60)), np.where(rng.random(20) < 0.5, 1.0, -1.0), np.arange(0, 61, 10)
    far, found = np.linalg.lstsq(Z, 3.0 * y, rcond=None)[0], []
    columns = rng.normal(size=(20, FREE.index(free)))
    for least in (1000, 1):
        monkeypatch.setattr(rows_local, "MANY_COLUMNS", least)
        problem = GroupProblem(LocalRows(Z, y, np.ones(20), "squared_hinge", columns), starts)
        found.append(solve_newton(problem, warm=(far, np.zeros(columns.shape[1])), tol=1e-9))
    assert found[1].gap <= 1e-9 * found[1].objective
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-8)

"""Access to rows: values against plain NumPy, derivatives against differences, layouts, updates, and blocks against one piece."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.mixed_norm import (
    ROW_OPERATIONS,
    BlockedRows,
    GroupProblem,
    LocalRows,
    add_sums,
    rows_blocked,
    rows_for,
    rows_local,
    solve_newton,
    tree_sum,
)
from gramplane.kernels.mixed_norm.bias import solve_bias
from gramplane.kernels.mixed_norm.hessian import live_groups, newton_direction
from gramplane.kernels.mixed_norm.problem import certify
from gramplane.kernels.mixed_norm.row_block import RememberingBlock, row_block
from gramplane.kernels.mixed_norm.rows import RowCurvature
from tests.support.oracles import fgm_subproblem as oracle
from tests.support.subproblems import KINDS, instance

LOSSES = tuple(oracle.LOSSES)
CASES = [(loss, fit_bias) for loss in LOSSES for fit_bias in (False, True)]


def in_blocks(Z, y, cost, loss):
    """As rows_for does for many rows, with blocks of five."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_blocked, "ROW_BLOCK", 5)
        return rows_blocked.blocks_in_process(Z, y, cost, loss)


MAKERS = {"local": LocalRows, "blocked": in_blocks}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "fit_bias"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_is_the_loss_its_gradient_and_its_dual(kind, loss, fit_bias, make):
    case = instance(kind, n=23, scale=2.0)
    rows, Z = make(case.Z, case.y, case.cost, loss), case.dense
    omega = np.random.default_rng(1).normal(size=rows.p) * 0.5
    found = rows.evaluate(omega, 0.3 if fit_bias else None)

    def loss_at(w, b):
        return oracle.loss_value(loss, case.y, Z @ w - b, case.cost)

    assert found.loss == pytest.approx(loss_at(omega, found.bias), rel=1e-12)
    assert found.utility == pytest.approx(oracle.utility(loss, rows.residual() * case.y, case.cost), rel=1e-9, abs=1e-9)
    eps = 1e-6
    slopes = [(loss_at(omega + eps * e, found.bias) - loss_at(omega - eps * e, found.bias)) / (2 * eps) for e in np.eye(rows.p)]
    np.testing.assert_allclose(found.correlations, -np.array(slopes), atol=1e-5)
    if fit_bias:
        assert min(loss_at(omega, found.bias + step) for step in (-1e-3, 1e-3)) >= found.loss
        assert abs(rows.residual().sum()) <= 1e-12 * np.abs(rows.residual()).sum()
    else:
        assert found.bias == 0.0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "fit_bias"), CASES)
@pytest.mark.parametrize("kind", ["plain", "sparse", "float32", "rowwise"])
def test_line_is_the_loss_with_its_derivatives_and_advancing_is_evaluating(kind, loss, fit_bias, make):
    case = instance(kind, n=23)
    rows, rng = make(case.Z, case.y, case.cost, loss), np.random.default_rng(2)
    omega, direction, shift = rng.normal(size=rows.p) * 0.3, rng.normal(size=rows.p) * 0.3, 0.2 if fit_bias else 0.0
    bias = rows.evaluate(omega, 0.0 if fit_bias else None).bias
    rows.aim(direction, shift)
    steps = np.array([0.0, 0.7, 2.0])
    found = rows.line(steps)

    def loss_at(s):
        return oracle.loss_value(loss, case.y, case.dense @ (omega + s * direction) - bias - s * shift, case.cost)

    np.testing.assert_allclose(found[0], [loss_at(s) for s in steps], rtol=1e-12)
    np.testing.assert_allclose(found[1], [(loss_at(s + 1e-6) - loss_at(s - 1e-6)) / 2e-6 for s in steps], atol=1e-6)
    np.testing.assert_allclose(found[2], [(loss_at(s + 1e-4) - 2 * loss_at(s) + loss_at(s - 1e-4)) / 1e-8 for s in steps], rtol=1e-2)
    moved = rows.advance(0.7)
    afresh = make(case.Z, case.y, case.cost, loss).evaluate(omega + 0.7 * direction, moved.bias if fit_bias else None)
    assert moved.loss == pytest.approx(afresh.loss, rel=1e-12)
    np.testing.assert_allclose(moved.correlations, afresh.correlations, atol=1e-11)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(("loss", "fit_bias"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_curvature_after_moves_is_the_one_written_out(kind, loss, fit_bias, make):
    case = instance(kind, n=57, scale=3.0)
    rows, Z, rng = make(case.Z, case.y, case.cost, loss), case.dense, np.random.default_rng(3)
    rows.evaluate(rng.normal(size=rows.p), 0.0 if fit_bias else None)
    for _ in range(4):
        found, u = rows.curvature(), rows.residual()
        alpha, used = u * case.y, case.cost > 0
        weights = np.zeros(57)
        weights[used] = case.cost[used] * oracle.LOSSES[loss].curvature(alpha[used] / case.cost[used])
        np.testing.assert_allclose(np.tril(found.gram), np.tril((Z * weights[:, None]).T @ Z), atol=1e-10)
        np.testing.assert_allclose(found.sums, Z.T @ weights, atol=1e-10)
        assert found.total == pytest.approx(weights.sum())
        rows.aim(0.15 * rng.normal(size=rows.p), 0.0)
        rows.advance(1.0)


def test_few_changed_rows_update_the_curvature_and_many_rebuild_it(monkeypatch):
    case = instance("plain", n=200)
    rows = LocalRows(case.Z, case.y, case.cost, "squared_hinge")
    summed = []
    add = rows._block.add_gram
    monkeypatch.setattr(rows._block, "add_gram", lambda part, *rest: (summed.append(len(part)), add(part, *rest)))
    rows.evaluate(np.zeros(12), None)
    rows.curvature()
    rows.aim(np.full(12, 0.2), 0.0)
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
    np.testing.assert_allclose(block.transposed(u), Z.T @ u, atol=1e-12)
    gram, sums = np.asfortranarray(np.tril(np.ones((p, p)))), np.ones(p)
    block.add_gram(rows, weights, gram, sums)
    np.testing.assert_allclose(np.tril(gram), np.tril(1 + (Z[rows] * weights[:, None]).T @ Z[rows]), atol=1e-11)
    np.testing.assert_allclose(sums, 1 + Z[rows].T @ weights, atol=1e-11)


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


@pytest.mark.parametrize(("loss", "fit_bias"), CASES)
@pytest.mark.parametrize("kind", ["plain", "sparse", "float32", "weighted"])
def test_blocks_solve_like_one_piece(kind, loss, fit_bias):
    case = instance(kind, n=61, groups=5)
    whole = solve_newton(case.problem(loss, fit_bias), tol=1e-8)
    parts = solve_newton(case.problem(loss, fit_bias, in_blocks), tol=1e-8)
    assert parts.iterations == whole.iterations
    assert parts.objective == pytest.approx(whole.objective, rel=1e-10)
    np.testing.assert_allclose(parts.omega, whole.omega, atol=1e-8)
    np.testing.assert_allclose(parts.residual, whole.residual, atol=1e-8)


@pytest.mark.parametrize(("loss", "fit_bias"), CASES)
def test_order_and_place_of_execution_leave_every_bit(loss, fit_bias):
    case = instance("plain", n=83, groups=5)
    cuts = [slice(low, low + 5) for low in range(0, 83, 5)]

    def solve(order):
        def work(name, query):
            done = {}
            for k in order:
                cut = cuts[k]
                done[k] = ROW_OPERATIONS[name](np.asfortranarray(case.Z[cut]), case.y[cut], case.cost[cut], query)
            return [done[k] for k in range(len(cuts))]

        rows = BlockedRows(83, 15, loss, lambda *ask: tree_sum(work(*ask)), lambda *ask: [part[0] for part in work(*ask)])
        return solve_newton(GroupProblem(rows, case.starts, loss, fit_bias), tol=1e-8)

    straight, shuffled = solve(range(len(cuts))), solve(np.random.default_rng(0).permutation(len(cuts)).tolist())
    own = solve_newton(case.problem(loss, fit_bias, in_blocks), tol=1e-8)
    for other in (shuffled, own):
        for name in ("omega", "correlations", "residual", "weights"):
            assert getattr(other, name).tobytes() == getattr(straight, name).tobytes()
        assert (other.bias, other.objective, other.gap) == (straight.bias, straight.objective, straight.gap)


def test_operations_leave_their_input_alone():
    case = instance("plain", n=20)
    query = rows_blocked.RowQuery("logistic", np.ones(12), 0.1, np.ones(12), 0.1, np.ones(2))
    before = [array.tobytes() for array in (case.Z, case.y, case.cost, query.omega, query.direction)]
    for operation in ROW_OPERATIONS.values():
        first, second = (operation(case.Z, case.y, case.cost, query) for _ in range(2))
        assert [a.tobytes() for a in first] == [a.tobytes() for a in second]
    assert [array.tobytes() for array in (case.Z, case.y, case.cost, query.omega, query.direction)] == before


def test_tree_adds_eight_at_a_time():
    parts = [(np.array([10.0**-k]), np.array([float(k)])) for k in range(20)]
    nodes = [add_sums(parts[start : start + 8]) for start in (0, 8, 16)]
    assert [a.tobytes() for a in tree_sum(parts)] == [a.tobytes() for a in add_sums(nodes)]
    assert tree_sum(parts)[1][0] == 190.0
    assert parts[0][0][0] == 1.0


def test_rows_go_to_blocks_when_there_are_many(monkeypatch):
    monkeypatch.setattr(rows_blocked, "ROW_BLOCK", 24)
    case, larger = instance("plain", n=24), instance("plain", n=25)
    assert isinstance(rows_for(case.Z, case.y, case.cost, "logistic"), LocalRows)
    assert isinstance(rows_for(larger.Z, larger.y, larger.cost, "logistic"), BlockedRows)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-50, 50), st.booleans(), st.floats(1e-3, 1e3)), min_size=1, max_size=12),
    st.floats(-1e3, 1e3),
    st.sampled_from(LOSSES),
)
def test_bias_balances_the_classes_from_any_start(numbers, start, loss):
    z, positive, cost = (np.array(values, dtype=float) for values in zip(*numbers, (0.0, True, 1.0), (0.5, False, 1.0)))
    y = 2 * positive - 1
    rows = LocalRows(z[:, None], y, cost, loss)
    found = rows.evaluate(np.ones(1), start)
    u = rows.residual()
    assert abs(u.sum()) <= 1e-11 * np.abs(u).sum()
    assert z.min() - 60 <= found.bias <= z.max() + 60


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
        ({"y": np.arange(24.0)}, r"y\[0\]=0.0: labels are \+1 or -1"),
        ({"cost": np.full(24, -1.0)}, r"cost\[0\]=-1.0: costs are finite and not negative"),
        ({"cost": np.append(np.ones(23), np.nan)}, r"cost\[23\]=nan"),
        ({"cost": np.ones(23)}, "vectors of the same length"),
        ({"loss": "hinge"}, "loss='hinge': must be one of"),
    ],
)
def test_bad_rows_are_refused(make, change, message):
    case = instance("plain")
    parts = {"y": case.y, "cost": case.cost, "loss": "logistic"} | change
    with pytest.raises(ValueError, match=message):
        make(case.Z, parts["y"], parts["cost"], parts["loss"])


def test_wrong_length_and_type_are_refused():
    case = instance("plain")
    with pytest.raises(ValueError, match="Z has 23 rows and y 24"):
        LocalRows(case.Z[1:], case.y, case.cost, "logistic")
    with pytest.raises(TypeError, match="Z has dtype int64"):
        row_block(np.ones((2, 2), dtype=np.int64))


@pytest.mark.parametrize("fit_bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_direction_from_the_rows_is_the_one_from_the_columns(kind, fit_bias, monkeypatch):
    """Newton directions and whole solutions, where many columns are live on few rows, beside the matrix of the columns written out."""
    case = instance(kind, n=14, groups=6, size=5, scale=3.0)
    starts = case.starts
    omega = np.random.default_rng(4).normal(size=len(case.dense.T))
    if len(starts) > 2:
        omega[starts[-2] :] = 0.0

    def directions(least):
        monkeypatch.setattr(rows_local, "MANY_COLUMNS", least)
        rows = LocalRows(case.Z, case.y, case.cost, "squared_hinge")
        problem = GroupProblem(rows, starts, "squared_hinge", fit_bias)
        at = certify(problem, omega, rows.evaluate(omega, 0.0 if fit_bias else None))
        live, gradient = live_groups(omega, at.evaluation.correlations, at.norms, at.gamma, starts)
        curvature = rows.curvature(len(live.columns))
        assert isinstance(curvature, RowCurvature) is (least == 1)
        found = [newton_direction(curvature, live, gradient, fit_bias, blend) for blend in (1e-3, 0.3, 1.0)]
        return found, solve_newton(problem, tol=1e-10)

    monkeypatch.setattr(rows_local, "COLUMNS_A_ROW", 0)
    (columns, whole), (rows, few) = directions(1000), directions(1)
    for ours, theirs in zip(rows, columns, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9 * np.abs(theirs).max())
    assert few.objective == pytest.approx(whole.objective, rel=1e-9)
    assert few.gap <= 1e-10 * few.objective


@pytest.mark.parametrize("fit_bias", [False, True])
def test_a_start_beyond_all_margins_is_left(fit_bias, monkeypatch):
    """No row has curvature there, so that the system of the rows is empty."""
    rng = np.random.default_rng(0)
    Z, y, starts = rng.random((20, 60)), np.where(rng.random(20) < 0.5, 1.0, -1.0), np.arange(0, 61, 10)
    far = np.linalg.lstsq(Z, 3.0 * y, rcond=None)[0]
    found = []
    for least in (1000, 1):
        monkeypatch.setattr(rows_local, "MANY_COLUMNS", least)
        problem = GroupProblem(LocalRows(Z, y, np.ones(20), "squared_hinge"), starts, "squared_hinge", fit_bias)
        found.append(solve_newton(problem, warm=(far, 0.0), tol=1e-9))
    assert found[1].gap <= 1e-9 * found[1].objective
    assert found[1].objective == pytest.approx(found[0].objective, rel=1e-8)

"""The solvers of the FGM sub-problem against each other, general-purpose optimisers and the optimality conditions."""

from itertools import pairwise

import numpy as np
import pytest
import threadpoolctl

from gramplane.kernels.mixed_norm import SOLVERS, GroupProblem, LocalRows, solve_apg, solve_newton
from tests.support.oracles import fgm_subproblem as oracle
from tests.support.subproblems import ALL_LOSSES, FREE, KINDS, instance

LOSSES = tuple(oracle.LOSSES)
CASES = [(loss, free) for loss in ALL_LOSSES for free in FREE]
TIGHT = 1e-10


def solved(case, loss, free, solver=solve_newton, **options):
    return solver(case.problem(loss, free), **{"tol": TIGHT, **options})


def decided(case, s, free):
    """Decision values of a solution."""
    return case.dense @ s.omega + case.columns(free) @ s.free


@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_newton_reaches_the_optimum_of_a_general_purpose_solver(kind, loss, free):
    case = instance(kind, n=16, groups=3, size=2, scale=2.0)
    found = solved(case, loss, free)
    wanted = oracle.dual_optimum(case.dense, case.y(loss), case.cost, case.starts, loss, case.columns(free))
    assert found.stop == "gap"
    assert found.objective == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("scale", [0.05, 30.0])
@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_all_solvers_agree(kind, loss, free, scale):
    case = instance(kind, seed=1, scale=scale)
    found = {name: solved(case, loss, free, solver, tol=1e-7) for name, solver in SOLVERS.items()}
    assert found["newton"].stop == "gap"
    for name, other in found.items():
        assert other.objective == pytest.approx(found["newton"].objective, rel=1e-6), name
        assert 0 <= other.gap + 1e-12 * other.objective <= 2e-6 * other.objective, name


@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("budget", [1, 2, 3])
def test_all_cuts_together_solve_the_relaxation(budget, loss, free):
    case = instance("plain", n=20, groups=1, size=5)
    X, y, cost, columns = case.Z, case.y(loss), case.cost, case.columns(free)
    Z, starts = oracle.every_cut(X, budget)
    found = solve_newton(GroupProblem(LocalRows(Z, y, cost, loss, columns), starts), tol=1e-9)
    assert found.objective == pytest.approx(oracle.relaxed_optimum(X, y, cost, budget, loss, columns), rel=1e-6)


@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("kind", KINDS)
def test_solution_satisfies_the_optimality_conditions(kind, loss, free):
    case = instance(kind, seed=2, n=60, groups=5)
    s = solved(case, loss, free)
    u = oracle.loss_residual(loss, case.y(loss), decided(case, s, free), case.cost)
    np.testing.assert_allclose(s.residual, u, atol=1e-9)
    np.testing.assert_allclose(s.correlations, case.dense.T @ s.residual, atol=1e-8)
    np.testing.assert_allclose(s.omega, np.repeat(s.weights, np.diff(case.starts)) * s.correlations, atol=1e-4 * s.gamma)
    pulls = np.array([np.linalg.norm(s.correlations[a:b]) for a, b in pairwise(case.starts)])
    assert (pulls <= s.gamma * (1 + 1e-4)).all()
    np.testing.assert_allclose(pulls[s.group_norms > 1e-4 * s.gamma], s.gamma, rtol=1e-4)
    assert s.weights.min() >= 0
    assert s.weights.sum() == pytest.approx(1.0)
    columns = case.columns(free)
    assert (np.abs(columns.T @ s.residual) <= 1e-11 * (np.abs(columns).T @ np.abs(s.residual))).all()


@pytest.mark.parametrize(("loss", "free"), CASES)
@pytest.mark.parametrize("name", SOLVERS)
def test_reported_numbers_belong_to_the_returned_point(name, loss, free):
    case = instance("weighted", seed=3, n=40)
    s = solved(case, loss, free, SOLVERS[name], tol=1e-2, max_iter=2)
    y, offset = case.y(loss), case.columns(free) @ s.free
    assert s.objective == pytest.approx(oracle.objective(case.Z, y, case.cost, case.starts, loss, s.omega, offset), rel=1e-12)
    worst = max(np.linalg.norm(s.correlations[a:b]) for a, b in pairwise(case.starts))
    dual = oracle.utility(loss, y, s.residual, case.cost) - worst**2 / 2
    assert s.gap == pytest.approx(s.objective - dual, rel=1e-9, abs=1e-11 * s.objective)
    exact = solved(case, loss, free).objective
    assert -1e-9 * exact <= s.objective - exact <= s.gap + 1e-9 * exact


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_single_group_is_ridge(loss):
    case = instance("single", seed=4, n=50, size=6)
    s = solved(case, loss, "none")
    Z, y, eps = case.dense, case.y(loss), 1e-6

    def loss_at(omega):
        return oracle.loss_value(loss, y, Z @ omega, case.cost)

    gradient = [(loss_at(s.omega + eps * e) - loss_at(s.omega - eps * e)) / (2 * eps) for e in np.eye(6)]
    np.testing.assert_allclose(s.omega, -np.array(gradient), atol=1e-5)
    np.testing.assert_allclose(s.omega, s.correlations, atol=1e-5)


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_groups_of_one_column_are_squared_l1(loss, free):
    case = instance("plain", seed=5, n=40, groups=8, size=1, scale=3.0)
    s = solved(case, loss, free)
    value = oracle.loss_value(loss, case.y(loss), decided(case, s, free), case.cost)
    assert s.objective == pytest.approx(value + 0.5 * np.abs(s.omega).sum() ** 2)


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_another_cut_never_raises_the_objective_and_a_repeated_one_leaves_it(loss, free):
    rng, case = np.random.default_rng(6), instance("plain", seed=6, n=80, groups=1, size=20)
    X, y, further = case.Z, case.y(loss) + (0.0 if loss in LOSSES else rng.normal(size=80)), case.columns(free)
    columns, warm, previous = [], None, np.inf
    for cut in ([0, 5, 6], [1, 2, 7], [3, 0, 9], [3, 0, 9]):
        columns += cut
        starts = np.arange(0, len(columns) + 1, 3)
        start = None if warm is None else (np.append(warm.omega, np.zeros(3)), warm.free)
        warm = solve_newton(GroupProblem(LocalRows(X[:, columns], y, np.ones(80), loss, further), starts), warm=start, tol=1e-8)
        assert warm.objective <= previous * (1 + 1e-12)
        last, previous = previous, warm.objective
    assert previous == pytest.approx(last, rel=1e-7)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(("loss", "free"), CASES)
def test_result_depends_on_nothing_but_the_arguments(name, loss, free):
    case = instance("plain", seed=7, n=70, groups=5)
    problem = case.problem(loss, free)
    warm = (np.random.default_rng(1).normal(size=15) * 0.1, np.full(case.columns(free).shape[1], 0.2))
    first = SOLVERS[name](problem, warm=warm, tol=1e-5)
    SOLVERS[name](problem, tol=1e-9, max_iter=3)
    for again in (SOLVERS[name](problem, warm=warm, tol=1e-5), SOLVERS[name](case.problem(loss, free), warm=warm, tol=1e-5)):
        assert again.omega.tobytes() == first.omega.tobytes()
        assert again.residual.tobytes() == first.residual.tobytes()
        assert (again.free.tobytes(), again.objective, again.gap) == (first.free.tobytes(), first.objective, first.gap)
    assert warm[0].tobytes() == (np.random.default_rng(1).normal(size=15) * 0.1).tobytes()


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_label_flip_and_scale_law(loss, free):
    case = instance("plain", seed=8, n=50)
    s = solved(case, loss, free)
    y, columns = case.y(loss), case.columns(free)
    flipped = solve_newton(GroupProblem(LocalRows(case.Z, -y, case.cost, loss, columns), case.starts), tol=TIGHT)
    np.testing.assert_allclose(flipped.omega, -s.omega, atol=1e-5 * s.gamma)
    np.testing.assert_allclose(flipped.free, -s.free, atol=1e-5)
    factor = 8.0
    scaled = solve_newton(GroupProblem(LocalRows(factor * case.Z, y, case.cost / factor**2, loss, columns), case.starts), tol=TIGHT)
    np.testing.assert_allclose(scaled.omega * factor, s.omega, atol=1e-5 * s.gamma)
    assert scaled.objective * factor**2 == pytest.approx(s.objective, rel=1e-9)


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_row_of_no_cost_does_not_exist_and_integer_costs_repeat_rows(loss, free):
    case = instance("plain", seed=9, n=30)
    times = np.random.default_rng(0).integers(0, 3, size=30)
    times[:2] = 1
    parts = case.Z, case.y(loss), case.columns(free)
    Z, y, columns = (np.repeat(part, times, axis=0) for part in parts)
    weighted = GroupProblem(LocalRows(*parts[:2], times.astype(float), loss, parts[2]), case.starts)
    repeated = GroupProblem(LocalRows(Z, y, np.ones(times.sum()), loss, columns), case.starts)
    a, b = solve_newton(weighted, tol=TIGHT), solve_newton(repeated, tol=TIGHT)
    assert a.objective == pytest.approx(b.objective, rel=1e-9)
    assert (a.residual[times == 0] == 0).all()


@pytest.mark.parametrize("loss", ["squared_hinge", "huber"])
def test_order_of_groups_and_rows_does_not_matter(loss):
    case = instance("plain", seed=10, n=40)
    s = solved(case, loss, "covariates")
    rows = np.random.default_rng(0).permutation(40)
    columns = np.concatenate([np.arange(9, 12), np.arange(0, 9)])
    parts = case.y(loss)[rows], case.cost[rows], loss, case.columns("covariates")[rows]
    moved = solve_newton(GroupProblem(LocalRows(case.Z[rows][:, columns], *parts), case.starts), tol=TIGHT)
    assert moved.objective == pytest.approx(s.objective, rel=1e-9)
    np.testing.assert_allclose(moved.omega, s.omega[columns], atol=1e-5 * s.gamma)


@pytest.mark.parametrize("name", SOLVERS)
def test_nothing_to_learn_gives_zero_weights_on_the_simplex(name):
    case = instance("plain", seed=11)
    for Z, cost in ((np.zeros_like(case.Z), case.cost), (case.Z, np.zeros(24))):
        s = SOLVERS[name](GroupProblem(LocalRows(Z, case.labels, cost, "squared_hinge"), case.starts))
        assert not s.omega.any()
        assert s.stop == "gap"
        np.testing.assert_allclose(s.weights, 0.25)


@pytest.mark.parametrize("loss", LOSSES)
def test_separable_rows_with_large_costs_are_solved(loss):
    rng = np.random.default_rng(12)
    Z = rng.normal(size=(30, 40))
    y = np.where(rng.random(30) < 0.5, 1.0, -1.0)
    s = solve_newton(GroupProblem(LocalRows(Z, y, np.full(30, 1e5), loss, np.ones((30, 1))), np.arange(0, 41, 4)), tol=1e-8)
    assert s.stop == "gap"
    assert (y * (Z @ s.omega + s.free[0]) > 0.9).all()


@pytest.mark.threads
@pytest.mark.parametrize("name", SOLVERS)
def test_blas_has_one_thread_inside_whatever_the_caller_set(name, monkeypatch):
    seen, evaluate = [], LocalRows.evaluate

    def watched(rows, omega, free):
        seen.extend(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")
        return evaluate(rows, omega, free)

    monkeypatch.setattr(LocalRows, "evaluate", watched)
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        solved(instance("plain"), "logistic", "bias", SOLVERS[name], tol=1e-3)
    assert set(seen) == {1}


def test_cap_and_impossible_tolerance_are_named():
    case = instance("plain", seed=13, n=60, groups=6)
    capped = solved(case, "squared_hinge", "none", max_iter=1)
    assert (capped.stop, capped.iterations) == ("max_iter", 1)
    assert capped.gap > TIGHT * capped.objective
    assert solved(case, "squared_hinge", "none", max_iter=0).iterations == 0
    endless = solved(case, "squared_hinge", "none", tol=0.0)
    assert endless.stop in ("gap", "no_progress")
    assert endless.gap <= 1e-9 * endless.objective


def test_steps_that_leave_the_objective_as_it_is_end_a_search():
    found = [solved(instance("plain", seed, n=60, groups=6), *case, tol=0.0) for seed in range(4) for case in CASES]
    assert {s.stop for s in found} == {"gap", "no_progress"}
    assert max(s.iterations for s in found) <= 40


def test_short_steps_are_followed_by_few():
    cases = [instance(kind, seed, scale=0.05) for kind in ("sparse", "weighted", "sparse32") for seed in range(8)]
    assert sum(solved(case, *options, tol=1e-9).iterations for case in cases for options in CASES) <= 200 * len(CASES)


def test_paper_rule_of_apg_stops_early_and_says_so():
    case = instance("plain", seed=14, n=200, groups=8, size=4, scale=10.0)
    early = solved(case, "squared_hinge", "none", solve_apg, tol=1e-2, until="decrease")
    late = solved(case, "squared_hinge", "none", solve_apg, tol=1e-6)
    assert early.stop == "decrease"
    assert early.iterations < late.iterations
    assert late.objective <= early.objective


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"starts": np.array([0, 3, 3, 12])}, "starts=.*must increase strictly"),
        ({"starts": np.array([0, 3, 6])}, "must increase strictly from 0 to 12, the number of columns"),
    ],
)
def test_problem_that_does_not_fit_together_is_refused(change, message):
    case = instance("plain")
    parts = {"starts": case.starts} | change
    with pytest.raises(ValueError, match=message):
        GroupProblem(LocalRows(case.Z, case.labels, case.cost, "squared_hinge"), **parts)


@pytest.mark.parametrize("loss", LOSSES)
def test_bias_without_a_class_is_refused_by_name(loss):
    case = instance("plain")
    with pytest.raises(ValueError, match=r"to fit a bias, both classes need a row with positive cost"):
        GroupProblem(LocalRows(case.Z, case.labels, np.where(case.labels > 0, 1.0, 0.0), loss, np.ones((24, 1))), case.starts)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tol": -1.0}, "tol=-1.0"),
        ({"tol": np.nan}, "tol=nan"),
        ({"max_iter": -1}, "max_iter=-1"),
        ({"warm": (np.zeros(3), np.zeros(0))}, r"must be \(12,\) and \(0,\)"),
        ({"warm": (np.full(12, np.nan), np.zeros(0))}, "must be finite"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        solved(instance("plain"), "squared_hinge", "none", SOLVERS[name], **options)


def test_bad_rule_of_apg_is_refused():
    with pytest.raises(ValueError, match="until='never'"):
        solved(instance("plain"), "logistic", "none", solve_apg, until="never")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("loss", ["squared_hinge", *oracle.TARGETS])
@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_values_that_are_not_numbers_are_named(name, loss, value):
    case = instance("plain")
    Z = case.Z.copy()
    Z[3, 4] = value
    with pytest.raises(ValueError, match="Z holds NaN or infinity, or numbers whose products overflow"):
        SOLVERS[name](GroupProblem(LocalRows(Z, case.y(loss), case.cost, loss), case.starts))

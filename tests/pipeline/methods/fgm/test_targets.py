"""Real targets, and columns without a penalty: limits against generic solvers, certificates, units, and what is refused."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.metrics import r2_score

from gramplane.kernels.mixed_norm.elimination import separating_direction
from gramplane.pipeline import FGMClassifier, FGMRegressor
from tests.support.fgm_problems import bits, dense, forms, same_cuts
from tests.support.fgm_targets import ALL_LOSSES, CASES, FREE, LIMIT, columns, decided, deviation, fitted, problem
from tests.support.oracles import fgm_exact as exact
from tests.support.oracles import fgm_subproblem as oracle
from tests.support.oracles.fgm_subproblem import TARGETS

CLOSE = 1e-6
TIGHT = {"inner_tol": 1e-11}
TARGET_CASES = [(loss, free) for loss, free in CASES if loss in TARGETS]


def limit(X, y, Z, loss, free, weight=None, **params):
    """A fit that is run until its certificate closes."""
    machine = fitted(X, y, Z, loss, free, weight, **{**LIMIT, **params})
    assert machine.outer_gap_ <= 1e-9 * machine.objective_
    return machine


# --- the limit --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("B", "seed"), [(2, 0), (4, 1)])
@pytest.mark.parametrize(("loss", "free"), CASES)
def test_limit_is_the_relaxation_and_what_is_published_has_its_value(loss, free, B, seed):
    X, y, Z = problem(loss, seed)
    machine, cost = limit(X, y, Z, loss, free, B=B), np.ones(len(y))
    assert machine.objective_ == pytest.approx(oracle.relaxed_optimum(X, y, cost, B, loss, columns(Z, free)), rel=CLOSE)
    f = decided(machine, X, Z)
    value = 0.5 * exact.norm_squared(machine.coef_[0], B) + oracle.loss_value(loss, y, f, cost)
    assert value == pytest.approx(machine.objective_, rel=1e-8)
    given = {"covariates": Z} if free == "covariates" else {}
    np.testing.assert_allclose(f, machine._values(X, **given)[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", ["newton", "apg", "mkl"])
@pytest.mark.parametrize(("loss", "free"), CASES)
def test_every_solver_leads_to_the_same_limit(loss, free, solver):
    X, y, Z = problem(loss, 4, m=5)
    rough = {"max_rounds": 40, "inner_tol": 1e-7, "outer_tol": 3e-7}
    machine = fitted(X, y, Z, loss, free, B=2, solver=solver, **rough)
    assert machine.converged_
    wanted = oracle.relaxed_optimum(X, y, np.ones(len(y)), 2, loss, columns(Z, free))
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize("C", [0.05, 30.0])
@pytest.mark.parametrize(("loss", "free"), CASES)
def test_limit_under_weights_of_rows(loss, free, C):
    X, y, Z = problem(loss, 11)
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y)) * (np.arange(len(y)) % 5 > 0)
    machine, used = limit(X, y, Z, loss, free, weight, B=2, C=C), weight > 0
    wanted = oracle.relaxed_optimum(X[used], y[used], C * weight[used], 2, loss, columns(Z, free)[used])
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


GROUPS = {
    "disjoint": [[0, 3], [1], [2, 4, 6], [5]],
    "overlap": [[0, 1, 2], [2, 3, 4], [4, 5, 0], [6], [1, 6]],
    "tree": [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2], [0, 1], [3, 4], [5, 6]],
}


@pytest.mark.parametrize("family", GROUPS)
@pytest.mark.parametrize(("loss", "free"), [*TARGET_CASES, ("squared_hinge", "covariates"), ("logistic", "covariates")])
def test_groups_equal_all_sets_of_groups_with_copied_columns(loss, free, family):
    X, y, Z = problem(loss, 5)
    groups = GROUPS[family]
    eta = 1.0 / np.array([len(group) for group in groups]) if family == "tree" else np.ones(len(groups))
    machine = limit(X, y, Z, loss, free, B=2, groups=[np.array(group) for group in groups])
    wanted = exact.groups_optimum(X, y, np.ones(len(y)), groups, eta, 2, loss, columns(Z, free))
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize(("loss", "free"), [*TARGET_CASES, ("squared_hinge", "covariates"), ("logistic", "covariates")])
def test_degree_2_limit_is_that_of_its_explicit_map(loss, free, form):
    X, y, Z = problem(loss, 2, m=3)
    machine = limit(forms(X)[form], y, Z, loss, free, B=2, feature_map="poly2", gamma=0.3, coef0=1.0)
    mapped, _ = exact.poly2_map(X, 0.3, 1.0)
    wanted = oracle.relaxed_optimum(mapped, y, np.ones(len(y)), 2, loss, columns(Z, free))
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize(("loss", "free"), [("huber", "covariates"), ("squared", "bias"), ("squared_hinge", "covariates")])
def test_intersection_kernel_limit_is_that_of_groups_of_unary_columns(loss, free):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, size=(24, 4)) / 4.0
    X[0] = 1.0
    _, y, Z = problem(loss, 7)
    machine = limit(X, y, Z, loss, free, B=2, feature_map="hik", n_bins=4)
    blocks = np.hstack([exact.unary_map(X[:, j], 4) for j in range(4)])
    groups = np.arange(16).reshape(4, 4).tolist()
    wanted = exact.groups_optimum(blocks, y, np.ones(24), groups, np.ones(4), 2, loss, columns(Z, free))
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


def test_widths_at_their_ends_give_the_squared_loss():
    X, y, Z = problem("squared", 3)
    squared = FGMRegressor(B=2, **TIGHT).fit(X, y, covariates=Z)
    for other in ({"loss": "huber", "delta": 1e9}, {"loss": "squared_epsilon_insensitive", "epsilon": 0.0}):
        assert bits(FGMRegressor(B=2, **other, **TIGHT).fit(X, y, covariates=Z)) == bits(squared)


# --- certificates -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9),
    case=st.sampled_from(CASES),
    B=st.integers(1, 3),
    C=st.sampled_from([0.01, 1.0, 100.0]),
    max_inner=st.sampled_from([1, 2, None]),
    solver=st.sampled_from(["newton", "apg"]),
)
def test_brackets_hold_however_roughly_the_sub_problems_are_solved(seed, case, B, C, max_inner, solver):
    loss, free = case
    X, y, Z = problem(loss, seed, n=16, m=5)
    # Covariates that separate the classes leave the logistic loss without an optimum; they are refused.
    assume(loss != "logistic" or free != "covariates" or separating_direction(columns(Z, free), y, np.ones(16)) is None)
    exact_value = oracle.relaxed_optimum(X, y, np.full(16, C), B, loss, columns(Z, free))
    slack = 2e-6 * exact_value
    machine = fitted(X, y, Z, loss, free, B=B, C=C, max_rounds=5, max_inner=max_inner, solver=solver, inner_tol=1e-2)
    for point in machine.path_:
        assert point.objective >= exact_value - slack
        assert point.objective - exact_value - slack <= point.outer_gap <= point.objective
        assert point.gap >= -slack


@pytest.mark.parametrize(("solver", "max_inner"), [("newton", None), ("newton", 1), ("apg", 2)])
@pytest.mark.parametrize(("loss", "free"), CASES)
def test_objective_never_rises_and_bounds_never_fall(loss, free, solver, max_inner):
    X, y, Z = problem(loss, 1, n=80, m=60)
    machine = fitted(X, y, Z, loss, free, B=4, max_rounds=8, solver=solver, max_inner=max_inner)
    objectives = np.array([point.objective for point in machine.path_])
    bounds = objectives - [point.outer_gap for point in machine.path_]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    assert np.all(np.diff(bounds) >= -1e-12 * objectives[0])


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_what_bears_no_penalty_is_balanced_in_every_round(loss, free):
    X, y, Z = problem(loss, 6, n=60, m=30)
    machine, A = fitted(X, y, Z, loss, free, B=3, max_rounds=4), columns(Z, free)
    for point in machine.path_:
        f = X[:, point.support] @ point.weights + point.intercept
        f = f + (Z @ point.covariate_coef if free == "covariates" else 0.0)
        u = oracle.loss_residual(loss, y, f, np.ones(len(y)))
        assert (np.abs(A.T @ u) <= 1e-9 * (np.abs(A).T @ np.abs(u))).all()


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_every_cut_is_the_best_for_the_dual_before_it(loss, free):
    X, y, Z = problem(loss, 4, n=60, m=30)
    machine, cost = fitted(X, y, Z, loss, free, B=3, max_rounds=4), np.ones(len(y))
    _, _, g = exact.ridge_optimum(np.zeros((len(y), 1)), y, cost, loss, columns(Z, free))
    decisions = [columns(Z, free) @ g]
    for point in machine.path_:
        f = X[:, point.support] @ point.weights + point.intercept
        decisions.append(f + (Z @ point.covariate_coef if free == "covariates" else 0.0))
    for cut, f in zip(machine.cuts_, decisions, strict=False):
        scores = np.abs(X.T @ oracle.loss_residual(loss, y, f, cost))
        np.testing.assert_array_equal(cut, np.argsort(-scores, kind="stable")[:3])


# --- units and symmetries ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("factor", "shift"), [(2.0**20, 0.0), (1e-3, -7.0), (1e6, 1e7), (-2.0, 5.0)])
@pytest.mark.parametrize(("loss", "free"), TARGET_CASES)
def test_the_unit_of_the_target_changes_nothing_else(loss, free, factor, shift):
    X, y, Z = problem(loss, 2, n=60, m=30)
    shift = 0.0 if free == "none" else shift
    params = {"loss": loss, "fit_intercept": free != "none", "B": 3, "max_rounds": 4, **TIGHT}
    given = {"covariates": Z} if free == "covariates" else {}
    a, b = FGMRegressor(**params).fit(X, y, **given), FGMRegressor(**params).fit(X, factor * y + shift, **given)
    assert same_cuts(a, b)
    np.testing.assert_allclose(b.coef_, factor * a.coef_, rtol=1e-5, atol=1e-7 * abs(factor))
    np.testing.assert_allclose(b.covariate_coef_, factor * a.covariate_coef_, rtol=1e-5)
    np.testing.assert_allclose(b.intercept_, factor * a.intercept_ + shift, rtol=1e-6, atol=1e-6 * abs(factor))
    assert b.objective_ == pytest.approx(factor**2 * a.objective_, rel=1e-8)
    assert b.outer_gap_ == pytest.approx(factor**2 * a.outer_gap_, rel=1e-6)
    if shift == 0.0 and factor == 2.0**20:
        np.testing.assert_array_equal(b.coef_, factor * a.coef_)
        assert b.objective_ == factor**2 * a.objective_


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_units_and_a_new_basis_of_covariates_change_nothing_else(loss):
    X, y, Z = problem(loss, 3, n=60, m=30)
    turned = Z @ np.array([[1e6, -1.0], [3.0, 1e-4]]) + np.array([5.0, -2e3])
    a, b = (fitted(X, y, C, loss, "covariates", B=3, max_rounds=4, **TIGHT) for C in (Z, turned))
    assert same_cuts(a, b)
    np.testing.assert_allclose(b.coef_, a.coef_, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(decided(b, X, turned), decided(a, X, Z), rtol=1e-6, atol=1e-6)
    assert b.objective_ == pytest.approx(a.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_scale_of_the_columns_with_C(loss):
    X, y, Z = problem(loss, 4, n=60, m=30)
    a = fitted(X, y, Z, loss, "covariates", B=3, max_rounds=4, **TIGHT)
    b = fitted(8.0 * X, y, Z, loss, "covariates", B=3, max_rounds=4, C=1.0 / 64, **TIGHT)
    assert same_cuts(a, b)
    np.testing.assert_allclose(8.0 * b.coef_, a.coef_, rtol=1e-6, atol=1e-8)
    assert 64 * b.objective_ == pytest.approx(a.objective_, rel=1e-9)


@pytest.mark.parametrize("loss", ALL_LOSSES)
def test_order_of_rows_weights_and_repeated_rows(loss):
    X, y, Z = problem(loss, 5, n=60, m=30)
    order, times = np.random.default_rng(0).permutation(60), np.random.default_rng(1).integers(0, 3, 60)
    a = fitted(X, y, Z, loss, "covariates", B=3, max_rounds=4, **TIGHT)
    b = fitted(X[order], y[order], Z[order], loss, "covariates", B=3, max_rounds=4, **TIGHT)
    weighted = fitted(X, y, Z, loss, "covariates", times.astype(float), B=3, max_rounds=4, **TIGHT)
    repeated = fitted(*(np.repeat(part, times, axis=0) for part in (X, y, Z)), loss, "covariates", B=3, max_rounds=4, **TIGHT)
    for one, two in ((a, b), (weighted, repeated)):
        assert same_cuts(one, two)
        np.testing.assert_allclose(one.coef_, two.coef_, rtol=1e-5, atol=1e-7)
        assert one.objective_ == pytest.approx(two.objective_, rel=1e-8)


@pytest.mark.parametrize(("loss", "free"), CASES)
def test_forms_of_input_agree_to_round_off_and_sparse_ones_bit_for_bit(loss, free):
    X, y, Z = problem(loss, 6, n=60, m=30)
    X = X * (np.random.default_rng(2).random(X.shape) < 0.4)
    found = {name: fitted(form, y, Z, loss, free, B=3, max_rounds=3) for name, form in forms(X).items()}
    for machine in found.values():
        assert same_cuts(machine, found["dense"])
        np.testing.assert_allclose(dense(machine.coef_), found["dense"].coef_, rtol=1e-6, atol=1e-8)
    assert len({tuple(bits(machine)) for name, machine in found.items() if name.startswith("cs")}) == 1
    assert bits(found["dense"]) == bits(found["fortran"])


@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("map_", [None, "poly2", "hik", "additive_gaussian", "groups"])
def test_path_is_exactly_what_shorter_fits_find(map_, free):
    X, y, Z = problem("huber", 8, n=60, m=12)
    X = np.abs(X) / 2 if map_ in ("hik", "additive_gaussian") else X
    more = {"groups": np.arange(12) // 3} if map_ == "groups" else {"feature_map": map_, "n_bins": 8, "gamma": 0.2}
    machine = fitted(X, y, Z, "huber", free, B=2, max_rounds=4, **more)
    for t, point in enumerate(machine.path_, start=1):
        last = fitted(X, y, Z, "huber", free, B=2, max_rounds=t, **more).path_[-1]
        for name in ("support", "weights", "covariate_coef"):
            np.testing.assert_array_equal(getattr(point, name), getattr(last, name))
        assert (point.intercept, point.objective, point.outer_gap) == (last.intercept, last.objective, last.outer_gap)


# --- the regressor ----------------------------------------------------------------------------------------------------------------


def test_widths_are_in_weighted_standard_deviations():
    X, y, Z = problem("huber", 9, n=60, m=30)
    weight = np.random.default_rng(3).uniform(0.0, 2.0, 60)
    s, params = deviation(y, weight), {"B": 3, "max_rounds": 3, "C": 2.0, **TIGHT}
    for loss, width, name in (("huber", 0.7, "delta"), ("squared_epsilon_insensitive", 0.3, "epsilon")):
        machine = FGMRegressor(loss=loss, **{name: width}, **params).fit(X, y, weight, covariates=Z)
        rest = np.abs(y - machine.predict(X, covariates=Z))
        if name == "delta":
            values = np.where(rest <= width * s, rest**2 / 2, width * s * rest - (width * s) ** 2 / 2)
        else:
            values = np.maximum(rest - width * s, 0.0) ** 2 / 2
        state = machine.model_.machines[0]
        norms = [np.linalg.norm(part) for part in np.split(state.omega, np.cumsum(state.widths)[:-1])]
        assert machine.objective_ == pytest.approx(0.5 * np.sum(norms) ** 2 + 2.0 * weight @ values, rel=1e-9)


def test_score_is_r2_and_predictions_are_in_the_unit_of_the_target():
    X, y, Z = problem("squared", 10, n=200, m=20)
    machine = FGMRegressor(B=3, max_rounds=4).fit(X, y, covariates=Z)
    values = machine.predict(X, covariates=Z)
    assert values.shape == (200,)
    weight = np.random.default_rng(0).random(200)
    assert machine.score(X, y, covariates=Z) == r2_score(y, values) > 0.8
    assert machine.score(X, y, weight, covariates=Z) == r2_score(y, values, sample_weight=weight)
    assert not hasattr(machine, "classes_") and not hasattr(machine, "decision_function")


@pytest.mark.parametrize("free", FREE)
@pytest.mark.parametrize("target", ["constant", "zero", "without signal"])
def test_targets_that_features_tell_nothing_of(target, free):
    X, _, Z = problem("squared", 11)
    if target == "without signal":
        X = np.zeros_like(X)
        y = np.arange(24.0)
    else:
        y = np.full(24, 0.0 if target == "zero" else 7.0)
    for loss in TARGETS:
        machine = FGMRegressor(B=2, loss=loss, fit_intercept=free != "none")
        machine.fit(X, y, covariates=Z if free == "covariates" else None)
        if free != "none" and target != "without signal":
            assert machine.objective_ == pytest.approx(0.0, abs=1e-20) and len(machine.selected_) == 0
            np.testing.assert_allclose(machine.predict(X, **({"covariates": Z} if free == "covariates" else {})), y, atol=1e-9)
        assert np.isfinite(machine.objective_) and machine.outer_gap_ >= 0


def test_a_refit_is_ridge_on_the_selection():
    X, y, Z = problem("squared", 12, n=60, m=30)
    for loss, free in TARGET_CASES:
        machine = fitted(X, y, Z, loss, free, B=3, max_rounds=2, debias=True, inner_tol=1e-11)
        chosen = machine.selected_
        _, w, g = exact.ridge_optimum(X[:, chosen], y, np.full(60, 20.0), loss, columns(Z, free))
        np.testing.assert_allclose(machine.coef_[0][chosen], w, atol=2e-4)
        f = X[:, chosen] @ w + columns(Z, free) @ g
        np.testing.assert_allclose(decided(machine, X, Z), f, atol=2e-3)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_several_classes_share_covariates_and_passes(loss):
    X, _, Z = problem("squared", 13, n=90, m=20)
    codes = np.arange(90) % 3
    X[:, :3] += 1.5 * np.eye(3)[codes]
    events = []
    machine = FGMClassifier(B=2, max_rounds=3, loss=loss, fit_intercept=True, callbacks=[events.append]).fit(X, codes, covariates=Z)
    assert machine.covariate_coef_.shape == (3, 2)
    assert max(event["tasks"] for event in events if event["event"] == "iteration") <= 2
    for k in range(3):
        one = FGMClassifier(B=2, max_rounds=3, loss=loss, fit_intercept=True).fit(X, codes == k, covariates=Z)
        np.testing.assert_array_equal(machine.coef_[k], one.coef_[0])
        np.testing.assert_array_equal(machine.covariate_coef_[k], one.covariate_coef_[0])
    values = machine.decision_function(X, covariates=Z)
    np.testing.assert_array_equal(machine.predict(X, covariates=Z), values.argmax(axis=1))
    assert machine.score(X, codes, covariates=Z) == np.mean(values.argmax(axis=1) == codes)


@pytest.mark.parametrize("free", FREE)
def test_stability_is_the_frequency_over_bootstrap_resamples(free):
    X, y, Z = problem("squared", 14, n=60, m=20)
    Z[:, 1] = np.arange(60) < 3  # absent from one resample in twenty
    machine = fitted(X, y, Z, "squared", free, B=3, max_rounds=2, random_state=5)
    found, given = machine.selection_stability(40), {"covariates": Z} if free == "covariates" else {}
    seed, counts, used = np.random.RandomState(5).randint(2**31 - 1), np.zeros(20), 0
    for child in np.random.SeedSequence(seed).spawn(40):
        weight = np.random.default_rng(child).multinomial(60, np.full(60, 1 / 60)).astype(float)
        if free == "covariates" and not (weight * Z[:, 1]).any():
            continue
        counts[clone(machine).fit(X, y, weight, **given).selected_] += 1
        used += 1
    np.testing.assert_allclose(found, counts / used)
    assert free != "covariates" or used < 40
    copy = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(copy.selection_stability(40, X, y, **given), found)


# --- what is refused --------------------------------------------------------------------------------------------------------------


def refused(kind, Z, message, loss=None, y=None, X=None, **params):
    X, own, _ = problem("squared" if kind is FGMRegressor else "logistic", 0) if X is None else (X, y, None)
    options = {"loss": loss} if loss else {}
    with pytest.raises(ValueError, match=message):
        kind(B=2, fit_intercept=True, **options, **params).fit(X, own if y is None else y, covariates=Z)


@pytest.mark.parametrize("kind", [FGMRegressor, FGMClassifier])
def test_covariates_that_cannot_be_fitted_are_named(kind):
    _, _, Z = problem("squared", 0)
    n = len(Z)
    refused(kind, np.c_[Z, np.full(n, 3.0)], r"covariates: 'z2' has a single value, like the intercept")
    refused(kind, np.c_[Z, Z[:, 0] - 4 * Z[:, 1] + 1], r"covariates: 'z\d' is a combination of the others and the intercept")
    refused(kind, np.random.default_rng(0).normal(size=(n, n)), r"covariates: 'z\d+' is a combination of the others")
    refused(kind, np.c_[Z, np.where(np.arange(n) == 5, np.nan, 1.0)], r"covariates: row 5 of 'z2' is nan, must be finite")
    refused(kind, Z[1:], r"covariates has shape \(23, 2\): must have a row for each of the 24 rows")
    refused(kind, np.zeros((n, 101)), "covariates has 101 columns: must be 1 to 100")
    refused(kind, np.zeros((n, 0)), "covariates has 0 columns")
    refused(kind, np.full((n, 1), "a"), "covariates: must be numbers")
    refused(kind, sp.csr_array(Z), "covariates is a sparse matrix")


def test_a_constant_covariate_is_an_intercept_where_there_is_none():
    X, y, Z = problem("squared", 1)
    a = FGMRegressor(B=2, fit_intercept=False, scale=None, **TIGHT).fit(X, y, covariates=np.c_[Z, np.ones(24)])
    b = FGMRegressor(B=2, scale=None, **TIGHT).fit(X, y, covariates=Z)
    assert same_cuts(a, b) and a.intercept_[0] == 0.0
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-6)
    assert a.covariate_coef_[0, 2] == pytest.approx(b.intercept_[0], rel=1e-5)
    # A constant feature tells nothing then, as beside an intercept.
    flat = np.c_[X, np.full(24, 2.0)]
    assert 7 not in FGMRegressor(B=8, fit_intercept=False).fit(flat, y, covariates=np.c_[Z, np.ones(24)]).selected_
    assert 7 in FGMRegressor(B=8, fit_intercept=False).fit(flat, y + 5).selected_


def test_covariates_that_are_dependent_where_rows_count_are_named():
    X, y, Z = problem("squared", 2)
    site = np.c_[Z, np.arange(24) < 2]
    weight = (np.arange(24) >= 2).astype(float)
    with pytest.raises(ValueError, match="'z2' has a single value in the rows that are learned from"):
        FGMRegressor(B=2).fit(X, y, weight, covariates=site)
    with pytest.raises(ValueError, match="'z2' is a combination of the others in the rows that are learned from"):
        FGMRegressor(B=2, fit_intercept=False).fit(X, y, weight, covariates=site)


def test_covariates_that_separate_the_classes_are_named():
    X, y, Z = problem("logistic", 3)
    almost = np.where(y > 0, 1.0, 0.0) * (np.arange(24) % 3 == 0)  # 1 in some rows of one class only
    for bad in (np.c_[Z, y + 0.1 * Z[:, 1]], np.c_[Z, almost]):
        refused(FGMClassifier, bad, r"covariates separate the classes \(above all 'z2'\).*loss='squared_hinge'", "logistic", y, X)
        machine = FGMClassifier(B=2, fit_intercept=True).fit(X, y, covariates=bad)
        assert machine.dual_gap_ <= 1e-3 * machine.objective_ + 1e-12
    # Far apart but overlapping is no separation.
    far = np.where(np.isin(np.arange(24), [np.argmax(y), np.argmin(y)]), -1.0, 1.0) * y * 1e3
    FGMClassifier(B=2, loss="logistic", fit_intercept=True).fit(X, y, covariates=far)


@pytest.mark.parametrize("kind", [FGMRegressor, FGMClassifier])
def test_covariates_are_asked_for_where_the_fit_had_some_and_only_there(kind):
    X, y, Z = problem("squared" if kind is FGMRegressor else "logistic", 4)
    with_some, without = kind(B=2).fit(X, y, covariates=Z), kind(B=2).fit(X, y)
    for name in ("predict", "decision_function") if kind is FGMClassifier else ("predict",):
        with pytest.raises(ValueError, match=r"the model was fitted with 2 covariates \(z0, z1\); give their values for these rows"):
            getattr(with_some, name)(X)
        with pytest.raises(ValueError, match=r"the model was fitted without covariates, but the rows have 2 covariates \(z0, z1\)"):
            getattr(without, name)(X, covariates=Z)
        with pytest.raises(ValueError, match=r"covariates has 1 columns, the model was fitted with 2 covariates"):
            getattr(with_some, name)(X, covariates=Z[:, :1])
        with pytest.raises(ValueError, match="must have a row for each of the 3 rows"):
            getattr(with_some, name)(X[:3], covariates=Z)
    with pytest.raises(ValueError, match="give their values for these rows"):
        with_some.score(X, y)


def test_names_of_covariates_are_compared():
    pd = pytest.importorskip("pandas")
    X, y, Z = problem("squared", 5)
    frame = pd.DataFrame(Z, columns=["age", "dose"])
    machine = FGMRegressor(B=2).fit(X, y, covariates=frame)
    assert machine.model_.covariate_names == ("age", "dose")
    np.testing.assert_array_equal(machine.predict(X, covariates=frame), machine.predict(X, covariates=Z))
    with pytest.raises(ValueError, match=r"covariates are \[dose, age\]; the model needs \[age, dose\], in this order"):
        machine.predict(X, covariates=frame[["dose", "age"]])
    with pytest.raises(ValueError, match="'dose' is a combination of the others"):
        FGMRegressor(B=2).fit(X, y, covariates=frame.assign(dose=2 * frame["age"]))
    column = FGMRegressor(B=2).fit(X, y, covariates=frame["age"].to_numpy())
    assert column.covariate_coef_.shape == (1, 1)


def test_losses_and_targets_that_do_not_suit_are_named():
    X, y, _ = problem("squared", 6)
    with pytest.raises(ValueError, match="loss='logistic': the target holds real numbers; use 'squared'"):
        FGMRegressor(loss="logistic").fit(X, y)
    with pytest.raises(ValueError, match="loss='huber': the target holds classes; use 'squared_hinge'"):
        FGMClassifier(loss="huber").fit(X, y > y.mean())
    with pytest.raises(ValueError, match=r"epsilon=-1\.0"):
        FGMRegressor(epsilon=-1.0).fit(X, y)
    with pytest.raises(ValueError, match=r"delta=0\.0"):
        FGMRegressor(delta=0.0).fit(X, y)
    with pytest.raises(ValueError, match="at least one non-zero"):
        FGMRegressor().fit(X, y, np.zeros(24))

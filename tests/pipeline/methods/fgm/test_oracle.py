"""The cutting plane run to its end against generic solvers, on problems small enough to enumerate every cut."""

import warnings

import numpy as np
import pytest
from sklearn.kernel_approximation import AdditiveChi2Sampler

from gramplane.pipeline import FGMClassifier
from tests.support.oracles import fgm_exact as exact
from tests.support.oracles.fgm_subproblem import LOSSES, dual_optimum, every_cut, loss_value, relaxed_optimum

CASES = [(loss, bias) for loss in LOSSES for bias in (False, True)]
LIMIT = {"max_rounds": 80, "inner_tol": 1e-12, "outer_tol": 1e-10}
CLOSE = 1e-6


def problem(seed, n=22, m=7):
    """Unbalanced labels, so that the intercept matters."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * rng.uniform(0.4, 2.0, m)
    y = np.where(X @ rng.normal(size=m) + 0.8 * rng.normal(size=n) + 0.7 > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def limit(X, y, B, loss, bias, *, sample_weight=None, **params):
    """The machine run until its certificate closes."""
    machine = FGMClassifier(B=B, loss=loss, fit_intercept=bias, **{"C": 1.0, "scale": None, **LIMIT, **params}).fit(X, y, sample_weight)
    assert machine.outer_gap_ <= 1e-9 * machine.objective_
    return machine


def weights_of(machine):
    return machine.coef_[0], float(machine.intercept_[0])


# --- every cut enumerated ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "B", "seed"), [(6, 2, 0), (6, 2, 1), (7, 4, 2), (8, 3, 3)])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_limit_is_the_relaxation_and_the_qcqp_of_all_cuts(loss, bias, m, B, seed):
    X, y = problem(seed, m=m)
    cost = np.ones(len(y))
    machine = limit(X, y, B, loss, bias)
    Z, starts = every_cut(X, B)
    assert machine.objective_ == pytest.approx(relaxed_optimum(X, y, cost, B, loss, bias), rel=CLOSE)
    assert machine.objective_ == pytest.approx(dual_optimum(Z, y, cost, starts, loss, bias), rel=CLOSE)


@pytest.mark.parametrize("C", [0.05, 30.0])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_limit_under_weights_of_rows_and_classes(loss, bias, C):
    X, y = problem(11)
    weight = np.random.default_rng(0).uniform(0.0, 2.0, len(y)) * (np.arange(len(y)) % 5 > 0)
    machine = limit(X, y, 2, loss, bias, C=C, class_weight={"-1.0": 2.0, "1.0": 0.5}, sample_weight=weight)
    cost = C * weight * np.where(y > 0, 0.5, 2.0)
    used = cost > 0
    wanted = relaxed_optimum(X[used], y[used], cost[used], 2, loss, bias)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize("solver", ["newton", "apg", "mkl"])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_every_solver_leads_to_the_same_limit(loss, bias, solver):
    X, y = problem(4, m=5)
    machine = FGMClassifier(
        B=2, C=1.0, loss=loss, fit_intercept=bias, solver=solver, max_rounds=40, inner_tol=1e-7, outer_tol=3e-7, scale=None
    )
    machine.fit(X, y)
    assert machine.converged_
    assert machine.objective_ == pytest.approx(relaxed_optimum(X, y, np.ones(len(y)), 2, loss, bias), rel=CLOSE)


def test_barring_used_features_loses_optimality():
    losses = []
    for seed in range(4):
        X, y = problem(seed, m=6)
        barred = FGMClassifier(B=2, C=1.0, allow_repeat=False, fit_intercept=False, **LIMIT, scale=None).fit(X, y)
        losses.append(barred.objective_ - limit(X, y, 2, "squared_hinge", False).objective_)
    assert min(losses) >= -1e-9
    assert max(losses) > 1e-2


# --- the norm ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", [0, 1, 2, 3])
def test_closed_form_of_the_norm_in_every_case(r):
    rng = np.random.default_rng(r)
    found = 0
    while found < 3:
        w = rng.normal(size=7) * rng.choice([0.05, 1.0, 4.0], 7)
        if exact.norm_case(w, 4) == r:
            found += 1
            assert exact.norm_squared(w, 4) == pytest.approx(exact.norm_squared_by_solver(w, 4), rel=1e-6)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_objective_at_the_limit_is_that_of_the_norm(loss, bias):
    cases = set()
    for seed in range(4):
        X, y = problem(seed)
        machine = limit(X, y, 3, loss, bias)
        w, intercept = weights_of(machine)
        cases.add(exact.norm_case(w, 3))
        assert exact.exact_objective(X, y, np.ones(len(y)), 3, loss, w, intercept) == pytest.approx(machine.objective_, rel=1e-8)
    assert len(cases) > 1


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_objective_before_the_limit_is_never_below_that_of_the_norm(loss, bias):
    X, y = problem(8)
    machine = limit(X, y, 2, loss, bias)
    for point in machine.path_:
        w = np.zeros(X.shape[1])
        w[point.support] = point.weights
        value = exact.exact_objective(X, y, np.ones(len(y)), 2, loss, w, point.intercept)
        assert value <= point.objective * (1 + 1e-10)
    assert machine.path_[0].objective > machine.objective_


# --- ends of the range of B -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_a_budget_of_all_features_is_ridge_after_one_cut(loss, bias, seed):
    X, y = problem(seed)
    machine = limit(X, y, 7, loss, bias)
    value, w, intercept = exact.ridge_optimum(X, y, np.ones(len(y)), loss, bias)
    assert machine.n_iter_ == 1
    assert machine.objective_ == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(machine.coef_[0], w, atol=1e-4)
    assert machine.intercept_[0] == pytest.approx(intercept, abs=1e-4)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_a_budget_of_one_is_half_the_squared_l1_norm(loss, bias, seed):
    X, y = problem(seed)
    machine = limit(X, y, 1, loss, bias)
    wanted = exact.half_squared_l1_optimum(X, y, np.ones(len(y)), loss, bias)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)
    w, intercept = weights_of(machine)
    f = X @ w + intercept
    assert machine.objective_ == pytest.approx(0.5 * np.abs(w).sum() ** 2 + loss_value(loss, y, f, np.ones(len(y))), rel=1e-9)


# --- groups -----------------------------------------------------------------------------------------------------------------------

FAMILIES = {
    "disjoint": [[0, 3], [1], [2, 4, 6], [5, 7]],
    "overlap": [[0, 1, 2], [2, 3, 4], [4, 5, 0], [6, 7], [1, 6]],
    "tree": [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2], [0, 1], [3, 4], [5, 6, 7]],
}


@pytest.mark.parametrize("B", [1, 2, 3])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
@pytest.mark.parametrize("family", FAMILIES)
def test_groups_equal_all_sets_of_groups_with_copied_columns(family, loss, bias, B):
    X, y = problem(5, m=8)
    groups = FAMILIES[family]
    eta = 1.0 / np.array([len(group) for group in groups]) if family == "tree" else np.ones(len(groups))
    machine = limit(X, y, B, loss, bias, groups=[np.array(group) for group in groups])
    wanted = exact.groups_optimum(X, y, np.ones(len(y)), groups, eta, B, loss, bias)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)
    f = X @ machine.coef_[0] + machine.intercept_[0]
    np.testing.assert_allclose(machine.decision_function(X), f, atol=1e-12)
    state = machine.model_.machines[0]
    gamma = sum(np.linalg.norm(part) for part in np.split(state.omega, np.cumsum(state.widths)[:-1]))
    assert machine.objective_ == pytest.approx(0.5 * gamma**2 + loss_value(loss, y, f, np.ones(len(y))), rel=1e-9)


@pytest.mark.parametrize("weight", ["1/size", "none", [0.2, 3.0, 1.0, 0.7, 1.5]])
def test_weights_of_groups_scale_their_columns(weight):
    X, y = problem(6, m=8)
    groups = FAMILIES["overlap"]
    sizes = np.array([len(group) for group in groups])
    eta = {"1/size": 1.0 / sizes, "none": np.ones(5)}.get(weight, np.array(weight)) if isinstance(weight, str) else np.array(weight)
    machine = limit(X, y, 2, "squared_hinge", True, groups=[np.array(group) for group in groups], group_weight=weight)
    wanted = exact.groups_optimum(X, y, np.ones(len(y)), groups, eta, 2, "squared_hinge", True)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


# --- maps -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "coef0"), [(1.0, 1.0), (0.3, 0.0), (2.0, 0.5)])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
def test_degree_2_limit_is_that_of_its_explicit_map(loss, bias, gamma, coef0):
    X, y = problem(2, m=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "all . features are selected|training accuracy")
        machine = limit(X, y, 2, loss, bias, feature_map="poly2", gamma=gamma, coef0=coef0)
    mapped, _ = exact.poly2_map(X, gamma, coef0)
    mapped = mapped[:, np.any(mapped != 0, axis=0)]
    assert machine.objective_ == pytest.approx(relaxed_optimum(mapped, y, np.ones(len(y)), 2, loss, bias), rel=CLOSE)


@pytest.mark.parametrize("exponent", [None, 0.5])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
def test_intersection_kernel_limit_is_that_of_groups_of_unary_columns(loss, bias, exponent):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, size=(24, 4)) / 4.0
    X[0] = 1.0
    y = np.where(X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.normal(size=24) > 0, 1.0, -1.0)
    X = X if exponent is None else np.where(rng.random(X.shape) < 0.5, -X, X)
    blocks = [exact.unary_map(X[:, j], 4, exponent) for j in range(4)]
    groups = np.arange(16).reshape(4, 4).tolist()
    machine = limit(X, y, 2, loss, bias, feature_map="hik", n_bins=4, exponent=exponent)
    wanted = exact.groups_optimum(np.hstack(blocks), y, np.ones(24), groups, np.ones(4), 2, loss, bias)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)


@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
def test_chi_squared_limit_is_that_of_groups_of_sampled_columns(loss, bias):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 5, size=(24, 4)) / 4.0
    y = np.where(X[:, 0] - X[:, 1] ** 2 + 0.3 * rng.normal(size=24) > 0, 1.0, -1.0)
    mapped = AdditiveChi2Sampler(sample_steps=2).fit_transform(X)  # column h of feature j is column 4 h + j
    machine = limit(X, y, 2, loss, bias, feature_map="additive_chi2")
    groups = np.arange(12).reshape(3, 4).T.tolist()
    wanted = exact.groups_optimum(mapped, y, np.ones(24), groups, np.ones(4), 2, loss, bias)
    assert machine.objective_ == pytest.approx(wanted, rel=CLOSE)

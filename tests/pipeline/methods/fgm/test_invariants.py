"""What must hold of every FGM fit: certificates, optimality at the limit, symmetries of the problem, the path."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.pipeline import FGMClassifier
from tests.support.fgm_problems import CASES, bits, dense, forms, planted, same_cuts
from tests.support.oracles import fgm_exact as exact
from tests.support.oracles.fgm_subproblem import relaxed_optimum, utility

TIGHT = {"inner_tol": 1e-11}


def fitted(X, y, loss="squared_hinge", bias=False, sample_weight=None, **params):
    return FGMClassifier(loss=loss, fit_intercept=bias, **{"B": 4, "C": 1.0, "max_rounds": 6, "scale": None, **params}).fit(
        X, y, sample_weight
    )


def duals(machine, X, y, cost):
    """alpha of the fitted model, and c = X'(alpha y)."""
    u = -exact.loss_slope(machine.loss, y, machine.decision_function(X), cost)
    return u * y, X.T @ u


# --- certificates -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("solver", "max_inner"), [("newton", None), ("newton", 1), ("apg", None), ("apg", 2)])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_objective_never_rises_and_bounds_never_fall(loss, bias, solver, max_inner):
    """Each sub-problem starts from the model before it, so this holds however few steps it gets."""
    X, y = planted(1)
    machine = fitted(X, y, loss, bias, max_rounds=12, solver=solver, max_inner=max_inner)
    objectives = np.array([point.objective for point in machine.path_])
    bounds = objectives - [point.outer_gap for point in machine.path_]
    assert np.all(np.diff(objectives) <= 1e-12 * objectives[0])
    assert np.all(np.diff(bounds) >= -1e-12 * objectives[0])
    assert objectives[-1] < objectives[0]
    assert bounds[-1] > bounds[0]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 9),
    case=st.sampled_from(CASES),
    B=st.integers(1, 3),
    C=st.sampled_from([0.01, 1.0, 100.0]),
    max_inner=st.sampled_from([1, 2, None]),
    solver=st.sampled_from(["newton", "apg"]),
)
def test_brackets_hold_however_roughly_the_sub_problems_are_solved(seed, case, B, C, max_inner, solver):
    X, y = planted(seed, n=14, d=5, relevant=3)
    loss, bias = case
    exact_value = relaxed_optimum(X, y, np.full(14, C), B, loss, bias)
    slack = 1e-6 * exact_value
    machine = fitted(X, y, loss, bias, B=B, C=C, max_rounds=5, max_inner=max_inner, solver=solver, inner_tol=1e-2)
    for point in machine.path_:
        assert point.objective >= exact_value - slack
        assert point.objective - exact_value - slack <= point.outer_gap <= point.objective
        assert point.gap >= -slack


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_dual_of_the_model_certifies_its_sub_problem(loss, bias):
    X, y = planted(2)
    machine = fitted(X, y, loss, bias, **TIGHT)
    alpha, c = duals(machine, X, y, np.ones(len(y)))
    state = machine.model_.machines[0]
    pulls = np.array([np.linalg.norm(c[cut]) for cut in machine.cuts_])
    norms = np.array([np.linalg.norm(part) for part in np.split(state.omega, np.cumsum(state.widths)[:-1])])
    assert alpha.min() >= 0
    assert loss == "squared_hinge" or alpha.max() <= 1.0
    assert not bias or abs(np.sum(alpha * y)) <= 1e-9 * alpha.sum()
    np.testing.assert_allclose(pulls[norms > 1e-3 * norms.sum()], norms.sum(), rtol=1e-4)
    assert pulls.max() <= norms.sum() * (1 + 1e-4)
    np.testing.assert_allclose(machine.cut_weights_, norms / norms.sum(), rtol=1e-12)
    assert utility(loss, y, alpha * y, np.ones(len(y))) - 0.5 * norms.sum() ** 2 == pytest.approx(machine.objective_, rel=1e-6)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_outer_gap_is_the_distance_to_the_best_bound_seen(loss, bias):
    """Delta_t = 1/2 (sum of the B best c_j^2 - gamma^2) of section 7, and the bound of the best multiple of alpha."""
    X, y = planted(3)
    cost, B = np.ones(len(y)), 4
    machine = fitted(X, y, loss, bias, B=B, max_rounds=1, **TIGHT)
    alpha, c = duals(machine, X, y, cost)
    norm2 = np.sort(c**2)[-B:].sum()
    scales = np.linspace(0.0, 1.0, 20_001)[1:]
    bound = max(utility(loss, y, s * alpha * y, cost) - 0.5 * s * s * norm2 for s in scales)
    assert machine.outer_gap_ == pytest.approx(machine.objective_ - bound, rel=1e-5)
    plain = 0.5 * (norm2 - np.linalg.norm(machine.coef_) ** 2)
    assert machine.outer_gap_ <= plain * (1 + 1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_every_cut_is_the_best_for_the_dual_before_it(loss, bias, weighted):
    """The first for the dual at w = 0 with the best intercept, the next for those of the path's models."""
    X, y = planted(4)
    X = X + np.linspace(0.0, 2.0, X.shape[1])
    cost = np.random.default_rng(0).uniform(0.2, 3.0, len(y)) if weighted else np.ones(len(y))
    machine = fitted(X, y, loss, bias, cost)
    start = exact.ridge_optimum(np.zeros((len(y), 1)), y, cost, loss, bias)[2]
    decisions = [np.full(len(y), start), *(X[:, point.support] @ point.weights + point.intercept for point in machine.path_)]
    for cut, f in zip(machine.cuts_, decisions, strict=False):
        scores = np.abs(X.T @ exact.loss_slope(loss, y, f, cost))
        np.testing.assert_array_equal(cut, np.argsort(-scores, kind="stable")[:4])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_weights_at_the_limit_are_d_times_c(loss, bias, seed):
    X, y = planted(seed, n=24, d=7, relevant=3)
    B = 3
    machine = fitted(X, y, loss, bias, B=B, max_rounds=80, inner_tol=1e-12, outer_tol=1e-11)
    _, c = duals(machine, X, y, np.ones(len(y)))
    d = np.zeros(7)
    for cut, weight in zip(machine.cuts_, machine.cut_weights_, strict=True):
        d[cut] += weight
    assert d.sum() == pytest.approx(B)
    assert d.min() >= 0
    assert d.max() <= 1 + 1e-12
    np.testing.assert_allclose(machine.coef_[0], d * c, atol=2e-4 * np.abs(c).max())
    level, inside = np.abs(c), (d > 1e-3) & (d < 1 - 1e-3)
    if inside.any():
        np.testing.assert_allclose(level[inside], level[inside].mean(), rtol=1e-3)
    assert level[d > 1e-3].min() >= level[d <= 1e-3].max() * (1 - 1e-3)
    assert not (d >= 1 - 1e-3).any() or level[d >= 1 - 1e-3].min() >= level[inside].max(initial=0.0) * (1 - 1e-3)


def test_rows_without_dual_weight_do_not_matter_at_the_limit():
    X, y = planted(5, n=40, d=8, relevant=3)
    params = {"B": 2, "max_rounds": 80, "inner_tol": 1e-12, "outer_tol": 1e-11}
    machine = fitted(X, y, **params)
    alpha, _ = duals(machine, X, y, np.ones(len(y)))
    kept = alpha > 1e-9
    assert 0 < kept.sum() < len(y)
    assert fitted(X[kept], y[kept], **params).objective_ == pytest.approx(machine.objective_, rel=1e-9)


# --- symmetries -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.25, 8.0])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_scale_law(loss, bias, scale):
    X, y = planted(4)
    a = fitted(X, y, loss, bias, **TIGHT)
    b = fitted(scale * X, y, loss, bias, C=1.0 / scale**2, **TIGHT)
    assert same_cuts(a, b)
    np.testing.assert_allclose(scale * b.coef_, a.coef_, atol=1e-7)
    np.testing.assert_allclose(b.intercept_, a.intercept_, atol=1e-7)
    assert scale**2 * b.objective_ == pytest.approx(a.objective_, rel=1e-9)
    assert scale**2 * b.outer_gap_ == pytest.approx(a.outer_gap_, rel=1e-6)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_label_flip_turns_the_model_around(loss, bias):
    X, y = planted(5)
    a, b = fitted(X, y, loss, bias), fitted(X, -y, loss, bias)
    assert same_cuts(a, b)
    np.testing.assert_allclose(a.coef_, -b.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.intercept_, -b.intercept_, rtol=1e-9, atol=1e-12)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-12)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_order_of_rows_does_not_matter(loss, bias):
    X, y = planted(6)
    order = np.random.default_rng(0).permutation(len(y))
    a, b = fitted(X, y, loss, bias, **TIGHT), fitted(X[order], y[order], loss, bias, **TIGHT)
    assert same_cuts(a, b)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-7)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-9)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_order_of_features_does_not_matter(loss, bias):
    X, y = planted(7)
    order = np.random.default_rng(1).permutation(X.shape[1])
    a, b = fitted(X, y, loss, bias), fitted(X[:, order], y, loss, bias)
    assert all(np.array_equal(one, order[two]) for one, two in zip(a.cuts_, b.cuts_, strict=True))
    np.testing.assert_array_equal(a.coef_[0][order], b.coef_[0])


@pytest.mark.parametrize("labels", [True, False])
def test_groups_of_one_feature_are_features(labels):
    X, y = planted(8)
    names = np.arange(X.shape[1])
    groups = names if labels else [np.array([j]) for j in names]
    a, b = fitted(X, y), fitted(X, y, groups=groups)
    assert [set(cut) for cut in a.cuts_] == [set(cut) for cut in b.cuts_]
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(a.selected_, b.selected_)


@pytest.mark.parametrize("form", ["dense", "csc_array"])
def test_equal_columns_tie_and_the_lower_index_comes_first(form):
    X, y = planted(9, d=20)
    best = fitted(X, y, B=1, max_rounds=1).selected_[0]
    twins = np.hstack([X, X[:, [best, best]]])
    machine = fitted(forms(twins)[form], y, B=3, max_rounds=1)
    assert machine.cuts_[0].tolist() == [best, 20, 21]
    weights = dense(machine.coef_)[0][[best, 20, 21]]
    np.testing.assert_allclose(weights, weights[0], rtol=1e-9)
    assert fitted(forms(twins)[form], y, B=2, max_rounds=1).cuts_[0].tolist() == [best, 20]


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_forms_of_input_agree_to_round_off_and_sparse_ones_bit_for_bit(density):
    X, y = planted(10, density=density)
    found = {name: fitted(A, y, "logistic", True) for name, A in forms(X).items()}
    for name, machine in found.items():
        assert same_cuts(machine, found["dense"]), name
        np.testing.assert_allclose(machine.coef_, found["dense"].coef_, rtol=1e-6, atol=1e-8)
    assert len({tuple(bits(machine)) for name, machine in found.items() if name.startswith("cs")}) == 1
    assert bits(found["dense"]) == bits(found["fortran"])


def test_float32_values_are_computed_in_double():
    X, y = planted(11)
    X = X.astype(np.float32)
    for single, double in ((X, X.astype(np.float64)), (sp.csc_array(X), sp.csc_array(X.astype(np.float64)))):
        a, b = fitted(single, y), fitted(double, y)
        assert same_cuts(a, b)
        np.testing.assert_allclose(a.coef_, b.coef_, rtol=1e-6, atol=1e-8)


# --- weights of rows and classes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr_array"])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_weight_zero_is_the_row_left_out(loss, bias, form):
    X, y = planted(12)
    weight = np.random.default_rng(2).uniform(0.5, 2.0, len(y)) * (np.arange(len(y)) % 4 > 0)
    used = weight > 0
    a = fitted(forms(X)[form], y, loss, bias, weight, **TIGHT)
    b = fitted(forms(X[used])[form], y[used], loss, bias, weight[used], **TIGHT)
    assert same_cuts(a, b)
    np.testing.assert_allclose(dense(a.coef_), dense(b.coef_), atol=1e-7)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-9)
    assert a.outer_gap_ == pytest.approx(b.outer_gap_, rel=1e-6)


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_whole_weights_are_repeated_rows(loss, bias):
    X, y = planted(13)
    counts = np.random.default_rng(3).integers(0, 4, len(y))
    a = fitted(X, y, loss, bias, counts.astype(float), **TIGHT)
    b = fitted(np.repeat(X, counts, axis=0), np.repeat(y, counts), loss, bias, **TIGHT)
    assert same_cuts(a, b)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-7)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_balanced_classes_weigh_the_same(weighted):
    X, y = planted(14)
    weight = np.random.default_rng(4).uniform(0.5, 2.0, len(y)) if weighted else np.ones(len(y))
    mass = {label: weight[y == label].sum() for label in (-1, 1)}
    factors = {label: weight.sum() / (2 * mass[label]) for label in (-1, 1)}
    a = fitted(X, y, sample_weight=weight, class_weight="balanced")
    b = fitted(X, y, sample_weight=weight, class_weight=factors)
    c = fitted(X, y, sample_weight=weight * np.where(y > 0, factors[1], factors[-1]))
    for other in (b, c):
        np.testing.assert_allclose(a.coef_, other.coef_, rtol=1e-9, atol=1e-12)
        assert a.objective_ == pytest.approx(other.objective_, rel=1e-12)
    assert a.objective_ != pytest.approx(fitted(X, y, sample_weight=weight).objective_, rel=1e-3)


# --- the path ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("map_", [None, "poly2", "hik", "additive_gaussian", "groups"])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
def test_path_is_exactly_what_shorter_fits_find(loss, bias, map_):
    X, y = planted(15, d=24, density=0.5)
    X = np.abs(X) if map_ == "hik" else X
    more = {"groups": np.arange(24) // 3} if map_ == "groups" else {"feature_map": map_, "n_bins": 8}
    machine = fitted(X, y, loss, bias, max_rounds=5, **more)
    assert machine.n_iter_ == len(machine.path_) == len(machine.history_["objective"]) == 5
    for t, point in enumerate(machine.path_, start=1):
        short = fitted(X, y, loss, bias, max_rounds=t, **more)
        last = short.path_[-1]
        np.testing.assert_array_equal(point.support, last.support)
        np.testing.assert_array_equal(point.weights, last.weights)
        assert (point.intercept, point.objective, point.gap, point.n_selected) == (
            last.intercept,
            last.objective,
            last.gap,
            last.n_selected,
        )
        assert point.outer_gap == last.outer_gap
        assert machine.history_["objective"][t - 1] == short.objective_
    if map_ in (None, "groups"):
        np.testing.assert_array_equal(machine.coef_[0][machine.path_[-1].support], machine.path_[-1].weights)
    assert machine.intercept_[0] == machine.path_[-1].intercept


def test_between_B_and_B_times_rounds_features_are_selected_and_precision_matters_little():
    X, y = planted(16, n=200, d=200, relevant=30)
    for B in (5, 10):
        rough, fine = (fitted(X, y, B=B, C=10.0, max_rounds=8, inner_tol=tol) for tol in (1e-3, 1e-6))
        assert B <= len(rough.selected_) <= 8 * B
        assert abs(rough.objective_ - fine.objective_) <= 0.1 * fine.objective_
        assert rough.dual_gap_ <= 1e-3 * rough.objective_
        assert fine.dual_gap_ <= 1e-6 * fine.objective_

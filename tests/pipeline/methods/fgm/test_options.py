"""What the parameters of an FGM fit promise: maps, exact counts, refit, stops; and data that give nothing to select."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from gramplane.pipeline import FGMClassifier, run_method, selection_stability
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import CASES, bits, classes, dense, forms, planted, same_cuts
from tests.support.oracles import fgm_exact as exact


def fitted(X, y, loss="squared_hinge", bias=False, sample_weight=None, **params):
    return FGMClassifier(loss=loss, fit_intercept=bias, **{"B": 4, "C": 1.0, "max_rounds": 6, "scale": None, **params}).fit(
        X, y, sample_weight
    )


# --- maps -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
@pytest.mark.parametrize("coef0", [0.0, 1.0])
def test_degree_2_path_is_that_of_the_explicit_map(coef0, loss, bias, form):
    X, y = planted(1, d=12, density=0.4)
    mapped, names = exact.poly2_map(X, 0.5, coef0)
    a = fitted(forms(X)[form], y, loss, bias, feature_map="poly2", gamma=0.5, coef0=coef0)
    b = fitted(mapped, y, loss, bias)
    assert [set(map(tuple, cut)) for cut in a.cuts_] == [set(map(tuple, names[cut])) for cut in b.cuts_]
    for one, two in zip(a.path_, b.path_, strict=True):
        assert one.objective == pytest.approx(two.objective, rel=1e-9)
        assert one.outer_gap == pytest.approx(two.outer_gap, rel=1e-6)
    assert {tuple(pair) for pair in a.selected_} == {tuple(pair) for pair in names[b.selected_]}
    np.testing.assert_allclose(a.decision_function(forms(X)[form]), b.decision_function(mapped), rtol=1e-6, atol=1e-8)
    columns = a.transform(forms(X)[form])
    found = [names.tolist().index(pair) for pair in a.selected_.tolist()]
    np.testing.assert_allclose(columns.toarray() if sp.issparse(columns) else columns, mapped[:, found], rtol=1e-12)
    assert a.coef_.shape == (1, len(a.selected_))
    np.testing.assert_allclose(a.coef_[0], b.coef_[0][found], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("form", ["dense", "csr_array"])
def test_intersection_kernel_path_is_that_of_kernel_scores(form):
    """One round by hand: the best B of u'K_j u with K_j the matrix of minima, and the machine on the unary columns."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 9, size=(60, 15)) / 8.0 * (rng.random((60, 15)) < 0.7)
    X[0] = 1.0
    y = np.where(X[:, 2] + X[:, 5] ** 2 - X[:, 7] + 0.3 * rng.normal(size=60) > 0.4, 1, -1)
    machine = fitted(forms(X)[form], y, feature_map="hik", n_bins=8, B=3, max_rounds=4, inner_tol=1e-11)
    u = y.astype(float)
    for t, cut in enumerate(machine.cuts_, start=1):
        scores = np.array([u @ np.minimum.outer(X[:, j], X[:, j]) @ u for j in range(15)])
        assert sorted(cut) == sorted(np.argsort(-scores, kind="stable")[:3])
        short = fitted(forms(X)[form], y, feature_map="hik", n_bins=8, B=3, max_rounds=t, inner_tol=1e-11)
        u = -exact.loss_slope("squared_hinge", y, short.decision_function(forms(X)[form]), np.ones(60))
    blocks = np.hstack([exact.unary_map(X[:, j], 8) for j in range(15)])
    explicit = fitted(blocks, y, groups=np.repeat(np.arange(15), 8), B=3, max_rounds=4, inner_tol=1e-11)
    assert machine.objective_ == pytest.approx(explicit.objective_, rel=1e-9)
    np.testing.assert_array_equal(machine.selected_, explicit.selected_)
    np.testing.assert_allclose(machine.decision_function(forms(X)[form]), explicit.decision_function(blocks), atol=1e-6)


@pytest.mark.parametrize("form", ["dense", "csc_array"])
def test_additive_gaussian_decides_by_its_kernel(form):
    """The decision is sum over chosen j, rows i of mu d_j u_i exp(-gamma (x_ij - z_j)^2), to the accuracy of the map."""
    X, y = planted(3, n=50, d=8)
    X = np.clip(X, -1.0, 1.0)
    machine = fitted(forms(X)[form], y, feature_map="additive_gaussian", gamma=0.5, B=2, max_rounds=3, inner_tol=1e-12)
    Z = np.clip(np.random.default_rng(5).normal(size=(20, 8)), -1.0, 1.0)
    u = -exact.loss_slope("squared_hinge", y, machine.decision_function(forms(X)[form]), np.ones(50))
    wanted = np.zeros(20)
    for cut, weight in zip(machine.cuts_, machine.cut_weights_, strict=True):
        for j in cut:
            wanted += weight * np.exp(-0.5 * np.subtract.outer(Z[:, j], X[:, j]) ** 2) @ u
    np.testing.assert_allclose(machine.decision_function(forms(Z)[form]), wanted, atol=2e-4 * np.abs(wanted).max())


def test_ranges_too_wide_for_the_gaussian_map_are_told_once(tmp_path):
    X, y = planted(3, n=50, d=8)
    X = np.clip(X, -1.0, 1.0)
    X[:, 5] *= 3
    settings = {"B": 2, "C": 1.0, "max_rounds": 2, "feature_map": "additive_gaussian", "gamma": 0.5, "scale": None}
    told = r"inaccurate on 1 of 8 features: .* at most 15\.4 .*feature x5 has range 6 and gamma \* range\^2 = 18 .*gamma <= 0\.426"
    with pytest.warns(UserWarning, match=told) as caught:
        FGMClassifier(**settings).fit(X, y)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FGMClassifier(**{**settings, "gamma": 0.426}).fit(X, y)
    ingest((X, y), tmp_path / "store", names=list("abcdefgh"))
    events = []
    run_method("fgm", settings, data=str(tmp_path / "store"), run=str(tmp_path / "run"), on_event=events.append)
    (message,) = [event["message"] for event in events if event["event"] == "warning"]
    assert "feature f has range 6" in message


def test_values_beyond_the_training_range_are_taken_at_its_ends():
    X, y = planted(4, d=6, relevant=3)
    X = np.abs(X)
    machine = fitted(X, y, feature_map="hik", n_bins=10)
    np.testing.assert_array_equal(machine.decision_function(10 * X + 100), machine.decision_function(np.tile(X.max(axis=0), (80, 1))))


# --- how many features ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"groups": np.arange(60) // 2}, {"feature_map": "poly2"}])
def test_without_repeats_every_round_brings_B_new_ones(more):
    X, y = planted(5)
    machine = fitted(X, y, allow_repeat=False, max_rounds=5, **more)
    assert len(machine.selected_) == 20
    assert [point.n_selected for point in machine.path_] == [4, 8, 12, 16, 20]
    assert len(np.unique(np.concatenate(machine.cuts_), axis=0)) == 20


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("form", ["dense", "csc_array"])
def test_without_repeats_a_cut_is_the_best_of_what_is_left(form, seed):
    X, y = planted(seed, n=30, d=14, relevant=3)
    machine = fitted(forms(X)[form], y, B=3, max_rounds=4, allow_repeat=False)
    repeats = 0
    for t in range(1, 4):
        point = machine.path_[t - 1]
        f = X[:, point.support] @ point.weights + point.intercept
        scores = np.abs(X.T @ -exact.loss_slope("squared_hinge", y, f, np.ones(30)))
        repeats += bool(set(np.argsort(-scores)[:3]) & set(np.concatenate(machine.cuts_[:t])))
        scores[np.concatenate(machine.cuts_[:t])] = -1.0
        assert machine.cuts_[t].tolist() == np.argsort(-scores, kind="stable")[:3].tolist()
    assert repeats, "used features score well here, so barring them matters"


@pytest.mark.parametrize(
    ("seed", "more", "extra"),
    [
        (2, {}, {}),
        (2, {"debias": True}, {"groups": (np.arange(60) // 2).tolist()}),
        (1, {"feature_map": "poly2"}, {}),
        (2, {"feature_map": "hik", "n_bins": 4}, {}),
    ],
    ids=["linear", "groups", "pairs", "map"],
)
def test_what_a_cut_took_and_left_without_weight_is_not_selected(seed, more, extra, tmp_path):
    """Near the optimum later cuts take all the weight of earlier ones."""
    X, y = planted(seed)
    X = np.abs(X)
    params = {"scale": None, "B": 2, "C": 1.0, "max_rounds": 20, "inner_tol": 1e-10, "fit_intercept": False, **more}
    groups = None if not extra else [np.flatnonzero(np.equal(extra["groups"], g)) for g in range(30)]
    machine = FGMClassifier(groups=groups, **params).fit(X, y)
    final = machine.model_.machines[0].weights()
    assert 0 < len(machine.selected_) < len(np.unique(np.concatenate(machine.cuts_), axis=0))
    width = {"groups": 2, "map": 4}.get("groups" if extra else "map" if "n_bins" in more else "", 1)
    with_weight = final.coordinates[final.values != 0] if "debias" not in more else np.flatnonzero(machine.coef_[0])
    assert np.array_equal(np.unique(with_weight // width if width > 1 else with_weight, axis=0), machine.selected_)
    assert machine.path_[-1].n_selected == len(machine.selected_)
    assert machine.transform(X).shape[1] == len(machine.get_feature_names_out()) == len(machine.selected_) * (2 if extra else 1)
    ingest((X, y), tmp_path / "store")
    done = run_method("fgm", params, data=str(tmp_path / "store"), run=str(tmp_path / "run"), extra=extra)
    assert done.summary["n_selected"] == selection_stability(str(tmp_path / "run"), n_resamples=2)["n_selected"]


def test_without_repeats_the_certificate_still_counts_used_features():
    X, y = planted(6, n=20, d=6, relevant=3)
    params = {"B": 2, "inner_tol": 1e-10, "max_rounds": 3}
    free = fitted(X, y, **{**params, "max_rounds": 80, "outer_tol": 1e-9})
    barred = fitted(X, y, allow_repeat=False, **params)
    assert barred.objective_ - barred.outer_gap_ <= free.objective_ * (1 + 1e-9)
    assert barred.outer_gap_ >= barred.objective_ - free.objective_ - 1e-9


def test_without_repeats_a_fit_ends_when_no_feature_is_left():
    X, y = planted(7, d=10)
    machine = fitted(X, y, allow_repeat=False, max_rounds=9)
    assert machine.n_iter_ == 3
    assert [len(cut) for cut in machine.cuts_] == [4, 4, 2]
    assert len(machine.selected_) == 10


@pytest.mark.parametrize("wanted", [1, 3, 4, 6, 13])
@pytest.mark.parametrize("repeat", [True, False])
@pytest.mark.parametrize("more", [{}, {"groups": np.arange(60) // 3}, {"feature_map": "poly2"}])
def test_the_number_of_features_asked_for_is_exact(more, repeat, wanted):
    X, y = planted(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        machine = fitted(X, y, n_features_to_select=wanted, allow_repeat=repeat, max_rounds=30, **more)
    assert len(machine.selected_) == wanted
    assert machine.converged_
    free = fitted(X, y, allow_repeat=repeat, max_rounds=machine.n_iter_, **more)
    for one, two in zip(machine.cuts_[:-1], free.cuts_, strict=False):
        np.testing.assert_array_equal(one, two)
    last = len(machine.cuts_[-1])
    np.testing.assert_array_equal(machine.cuts_[-1], free.cuts_[machine.n_iter_ - 1][:last])


def test_too_few_rounds_for_the_number_asked_for_are_reported():
    X, y = planted(9)
    with pytest.warns(ConvergenceWarning, match=r"max_rounds=2 .* n_features_to_select=50"):
        machine = fitted(X, y, n_features_to_select=50, max_rounds=2)
    assert not machine.converged_
    assert len(machine.selected_) <= 8


def test_a_budget_beyond_the_features_is_cut_with_a_warning():
    X, y = planted(10, d=5, relevant=3)
    with pytest.warns(UserWarning, match=r"B=9 exceeds the 5 .*at most B=5 can be used"):
        machine = fitted(X, y, B=9)
    assert bits(machine) == bits(fitted(X, y, B=5))
    with pytest.warns(UserWarning, match=r"B=9 exceeds the 2 "):
        assert len(fitted(X, y, B=9, groups=[0, 0, 1, 1, 1]).selected_) == 2


# --- refit ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_debias_is_ridge_on_the_selected_features(loss, bias, weighted):
    X, y = planted(11, n=120)
    weight = np.random.default_rng(0).uniform(0.2, 2.0, len(y)) if weighted else np.ones(len(y))
    plain = fitted(X, y, loss, bias, weight, inner_tol=1e-10)
    machine = fitted(X, y, loss, bias, weight, inner_tol=1e-10, debias=True)
    assert same_cuts(plain, machine)
    chosen = machine.selected_
    _, w, intercept = exact.ridge_optimum(X[:, chosen], y, 20.0 * weight, loss, bias)
    np.testing.assert_allclose(machine.coef_[0][chosen], w, atol=2e-4 * np.abs(w).max())
    np.testing.assert_array_equal(np.delete(machine.coef_[0], chosen), 0.0)
    assert machine.intercept_[0] == pytest.approx(intercept, abs=2e-4 * np.abs(w).max())
    assert machine.objective_ == plain.objective_


@pytest.mark.parametrize("C", [0.25, 4.0])
def test_debias_takes_its_own_cost_whatever_that_of_the_machine(C):
    X, y = planted(11, n=120)
    machine = fitted(X, y, C=C, inner_tol=1e-10, debias=True)
    _, w, _ = exact.ridge_optimum(X[:, machine.selected_], y, np.full(len(y), 20.0), "squared_hinge", False)
    np.testing.assert_allclose(machine.coef_[0][machine.selected_], w, atol=2e-4 * np.abs(w).max())


def test_debias_on_overlapping_groups_is_ridge_on_their_weighted_columns():
    X, y = planted(20, d=10)
    groups, eta = [np.arange(5), np.arange(3, 8), np.arange(6, 10)], np.array([1.0, 2.0, 0.5])
    machine = fitted(X, y, B=2, max_rounds=2, groups=groups, group_weight=eta, inner_tol=1e-10, debias=True)
    shared = np.sqrt([sum(eta[g] for g in machine.selected_ if j in groups[g]) for j in range(10)])
    _, w, _ = exact.ridge_optimum(X * shared, y, np.full(80, 20.0), "squared_hinge", False)
    np.testing.assert_allclose(machine.coef_[0], shared * w, atol=2e-4 * np.abs(w).max())


def test_debias_on_products_is_ridge_on_their_columns():
    X, y = planted(12, d=10)
    machine = fitted(X, y, "logistic", True, feature_map="poly2", inner_tol=1e-10, debias=True)
    _, w, _ = exact.ridge_optimum(machine.transform(X), y, np.full(len(y), 20.0), "logistic", True)
    np.testing.assert_allclose(machine.coef_[0], w, atol=2e-4 * np.abs(w).max())


# --- stops ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_outer_stop_by_decrease_is_the_papers(loss, bias):
    X, y = planted(13)
    full = fitted(X, y, loss, bias, max_rounds=12)
    at_zero = fitted(np.zeros((80, 3)), y, loss, bias, B=1).objective_
    objectives = np.array([at_zero, *(point.objective for point in full.path_)])
    falls = -np.diff(objectives) / at_zero
    tol = float(falls[4] * 1.0001)
    machine = fitted(X, y, loss, bias, max_rounds=12, outer_tol=tol, outer_stop="decrease")
    assert machine.n_iter_ == 1 + int(np.argmax(falls <= tol))
    assert machine.model_.machines[0].stop == "outer_tol"
    assert machine.converged_


@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_outer_stop_by_gap_is_the_first_round_below(loss, bias):
    X, y = planted(14, d=12)
    full = fitted(X, y, loss, bias, max_rounds=20, B=3)
    relative = np.array([point.outer_gap / point.objective for point in full.path_])
    tol = float(np.sort(relative)[len(relative) // 2]) * (1 + 1e-12)
    machine = fitted(X, y, loss, bias, max_rounds=20, B=3, outer_tol=tol)
    assert machine.n_iter_ == 1 + int(np.argmax(relative <= tol))
    assert machine.outer_gap_ <= tol * machine.objective_ * (1 + 1e-12)


def test_outer_tolerance_not_reached_is_reported():
    X, y = planted(15)
    with pytest.warns(ConvergenceWarning, match=r"max_rounds=2 .* outer_tol=1e-09"):
        machine = fitted(X, y, outer_tol=1e-9, max_rounds=2)
    assert not machine.converged_


@pytest.mark.parametrize("solver", ["newton", "apg"])
def test_steps_cut_short_report_the_gap_they_leave(solver):
    X, y = planted(16, n=150, d=100, relevant=20)
    params = {"B": 10, "C": 10.0, "solver": solver, "max_rounds": 5}
    short, full = fitted(X, y, max_inner=1, inner_tol=1e-8, **params), fitted(X, y, inner_tol=1e-8, **params)
    assert set(short.history_["inner_steps"]) == {1}
    assert short.dual_gap_ > 1e-8 * short.objective_
    assert not short.converged_
    assert full.converged_ or solver == "apg"
    first = fitted(X, y, **{**params, "max_rounds": 1, "max_inner": 1, "inner_tol": 1e-8})
    exactly = fitted(X, y, **{**params, "max_rounds": 1, "inner_tol": 1e-8})
    assert first.objective_ - first.dual_gap_ <= exactly.objective_ <= first.objective_


def test_a_solved_problem_ends_early():
    X, y = planted(17, d=6, relevant=3)
    machine = fitted(X, y, B=6, max_rounds=10)
    assert machine.n_iter_ == 1
    assert machine.model_.machines[0].stop == "optimal"


# --- nothing to select ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csc_array", "csr_matrix"])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_empty_columns_are_never_selected_and_constant_ones_only_without_an_intercept(loss, bias, form):
    X, y = planted(18, d=8, relevant=3)
    X[:, [1, 6]], X[:, 3] = 0.0, 5.0
    machine = fitted(forms(X)[form], y, loss, bias, B=8)
    silent = [1, 3, 6] if bias else [1, 6]
    assert machine.selected_.tolist() == np.delete(np.arange(8), silent).tolist()
    assert not machine.coef_[0][silent].any()
    kept = np.delete(X, silent, axis=1)
    other = fitted(kept, y, loss, bias, B=kept.shape[1])
    np.testing.assert_allclose(machine.decision_function(forms(X)[form]), other.decision_function(kept))


@pytest.mark.parametrize(
    "more", [{"groups": [0, 0, 0, 1, 1, 1]}, {"feature_map": "additive_gaussian"}, {"feature_map": "hik"}, {"feature_map": "poly2"}]
)
@pytest.mark.parametrize("form", ["dense", "csc_array"])
def test_constant_columns_weigh_nothing_in_groups_and_maps_beside_an_intercept(form, more):
    X, y = planted(22, d=6, relevant=3)
    X = np.abs(X)
    X[:, 1], X[:, 4] = 3.0, 0.0
    test = np.abs(planted(23, d=6, relevant=3)[0])
    machine = fitted(forms(X)[form], y, bias=True, B=2 if "groups" in more else 6, **more)
    other = test.copy()
    other[:, [1, 4]] += 1.0
    assert machine.decision_function(forms(test)[form]).std() > 0.01
    np.testing.assert_array_equal(machine.decision_function(forms(test)[form]), machine.decision_function(forms(other)[form]))
    assert "groups" in more or not {1, 4} & set(machine.selected_.ravel())


@pytest.mark.parametrize("more", [{}, {"groups": [0, 0, 1]}, {"feature_map": "poly2"}, {"feature_map": "hik"}])
@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize(("loss", "bias"), CASES)
def test_data_without_signal_give_the_best_constant(loss, bias, form, more):
    _, y = planted(19, n=50)
    X = forms(np.zeros((50, 3)))[form]
    machine = fitted(X, y, loss, bias, B=2, **more)
    assert len(machine.selected_) == machine.n_iter_ == len(machine.path_) == len(machine.cuts_) == 0
    value, _, intercept = exact.ridge_optimum(np.zeros((50, 1)), y, np.ones(50), loss, bias)
    assert machine.objective_ == pytest.approx(value, rel=1e-9)
    assert machine.intercept_[0] == pytest.approx(intercept, abs=1e-4)
    assert machine.dual_gap_ == machine.outer_gap_ == 0.0
    assert machine.converged_
    np.testing.assert_array_equal(machine.decision_function(X), np.full(50, machine.intercept_[0]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No features were selected")
        assert machine.transform(X).shape == (50, 0)


# --- several classes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr_array"])
@pytest.mark.parametrize(("loss", "bias"), [CASES[0], CASES[3]])
def test_classes_are_machines_against_the_rest(loss, bias, form):
    X, codes = classes(density=0.6)
    names = np.array(["red", "green", "blue"])
    machine = fitted(forms(X)[form], names[codes], loss, bias, B=3, max_rounds=3)
    assert machine.classes_.tolist() == ["blue", "green", "red"]
    assert machine.coef_.shape == (3, X.shape[1])
    decisions = machine.decision_function(forms(X)[form])
    for k, name in enumerate(machine.classes_):
        single = fitted(forms(X)[form], names[codes] == name, loss, bias, B=3, max_rounds=3)
        np.testing.assert_array_equal(machine.coef_[k], single.coef_[0])
        assert machine.intercept_[k] == single.intercept_[0]
        np.testing.assert_array_equal(np.concatenate(machine.cuts_[k]), np.concatenate(single.cuts_))
        np.testing.assert_allclose(decisions[:, k], single.decision_function(forms(X)[form]), atol=1e-12)
        np.testing.assert_array_equal(machine.cut_weights_[k], single.cut_weights_)
        np.testing.assert_array_equal(machine.path_[k][1].weights, single.path_[1].weights)
    assert machine.predict(forms(X)[form]).tolist() == machine.classes_[decisions.argmax(axis=1)].tolist()
    assert machine.score(forms(X)[form], names[codes]) > 0.8
    np.testing.assert_array_equal(machine.selected_, np.unique(np.concatenate([np.concatenate(cuts) for cuts in machine.cuts_])))
    assert set(np.flatnonzero(dense(machine.coef_).any(axis=0))) <= set(machine.selected_)


def test_a_class_without_signal_gets_the_best_constant():
    codes = np.arange(60) % 3
    X = np.where(codes == 0, 1.0, np.where(codes == 1, -1.0, 0.0))[:, None] * [1.0, 2.0]
    machine = fitted(X, codes, bias=True, B=2)
    assert [len(cuts) for cuts in machine.cuts_] == [len(weights) for weights in machine.cut_weights_] == [1, 1, 0]
    assert machine.intercept_[2] == pytest.approx(-1 / 3)
    assert machine.history_["objective"][-1] == machine.objective_
    assert machine.objective_ > 0.5 * 20 * (4 / 3) ** 2
    assert machine.score(X, codes) == 1.0


def test_a_class_that_stops_early_does_not_hold_up_the_others():
    X, codes = classes(n=90, d=30)
    X[codes == 2] *= 0.1
    machine = fitted(X, codes, B=2, max_rounds=12, outer_tol=0.3)
    rounds = [len(cuts) for cuts in machine.cuts_]
    assert min(rounds) < max(rounds)
    for k in range(3):
        single = fitted(X, codes == k, B=2, max_rounds=12, outer_tol=0.3)
        assert rounds[k] == single.n_iter_
        np.testing.assert_array_equal(machine.coef_[k], single.coef_[0])

"""Constant columns: beside an intercept they tell nothing; a machine without one reads them like any other."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.features import expansions
from gramplane.pipeline import FGMClassifier, MKLClassifier, run_method, score_store, tune
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import CASES, bits, forms
from tests.support.oracles import fgm_exact as exact
from tests.support.oracles.fgm_subproblem import relaxed_optimum

CONSTANT, EMPTY = 3, 4
LIMIT = {"C": 1.0, "scale": None, "max_rounds": 80, "inner_tol": 1e-12, "outer_tol": 1e-10}
ONES = np.ones(24)


def table(seed=0, kind="normal"):
    """24 rows, three ordinary columns, a constant and an empty one; most labels are alike, which the constant tells."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(24, 5)) if kind == "normal" else rng.integers(0, 5, size=(24, 5)) / 4.0
    X[0, :CONSTANT] = 1.0
    X[:, CONSTANT], X[:, EMPTY] = 1.0, 0.0
    y = np.where(np.arange(24) % 4 > 0, 1.0, -1.0)
    return X, np.where(X[:, 0] > np.sort(X[:, 0])[-3], 1.0, y)


def fitted(X, y, loss="squared_hinge", bias=False, **params):
    return FGMClassifier(loss=loss, fit_intercept=bias, **{"B": 2, **LIMIT, **params}).fit(X, y)


def best_of_the_first_round(columns, y, loss, B):
    """By the scores of the dual vector at w = 0, which is C y for the squared hinge and C y / 2 for the logistic loss."""
    return set(np.argsort(-np.abs(columns.T @ y), kind="stable")[:B].tolist())


# --- every kind of atom against generic solvers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csc_array", "csr_matrix"])
@pytest.mark.parametrize("B", [1, 2])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_the_constant_is_chosen_where_it_scores_best(loss, B, form):
    X, y = table()
    machine = fitted(forms(X)[form], y, loss, B=B)
    assert set(machine.cuts_[0].tolist()) == best_of_the_first_round(X, y, loss, B)
    assert CONSTANT in machine.cuts_[0] and EMPTY not in machine.selected_
    assert machine.coef_[0, CONSTANT] > 0
    assert machine.objective_ == pytest.approx(relaxed_optimum(np.delete(X, EMPTY, 1), y, ONES, B, loss, False), rel=1e-6)
    np.testing.assert_allclose(machine.decision_function(forms(X)[form]), X @ machine.coef_[0], atol=1e-12)


@pytest.mark.parametrize("solver", ["newton", "apg", "mkl"])
def test_every_solver_takes_it(solver):
    X, y = table(1)
    machine = fitted(X, y, solver=solver, max_rounds=40, inner_tol=1e-7, outer_tol=3e-7)
    assert machine.converged_ and CONSTANT in machine.selected_
    assert machine.objective_ == pytest.approx(relaxed_optimum(np.delete(X, EMPTY, 1), y, ONES, 2, "squared_hinge", False), rel=1e-6)


@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize(
    "groups", [[[0, CONSTANT], [1], [2, EMPTY]], [[0, 1, 2, 3, 4], [0, 1], [2, CONSTANT]], [[0, CONSTANT], [CONSTANT, 1], [2, EMPTY]]]
)
def test_groups_hold_it_with_its_values(groups, form):
    X, y = table(2)
    nested = len(groups[0]) == 5
    eta = 1.0 / np.array([len(group) for group in groups]) if nested else np.ones(3)
    machine = fitted(forms(X)[form], y, groups=[np.array(group) for group in groups])
    assert machine.objective_ == pytest.approx(exact.groups_optimum(X, y, ONES, groups, eta, 2, "squared_hinge", False), rel=1e-6)
    assert machine.coef_[0, CONSTANT] != 0
    np.testing.assert_allclose(machine.decision_function(forms(X)[form]), X @ machine.coef_[0], atol=1e-12)


@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_products_with_it_are_products(loss, form):
    X, y = table(3)
    machine = fitted(forms(X)[form], y, loss, feature_map="poly2", gamma=0.5, coef0=0.7)
    mapped, names = exact.poly2_map(X, 0.5, 0.7)
    kept = np.any(mapped != 0, axis=0)
    assert machine.objective_ == pytest.approx(relaxed_optimum(mapped[:, kept], y, ONES, 2, loss, False), rel=1e-6)
    assert {tuple(pair) for pair in machine.cuts_[0].tolist()} == {
        tuple(names[kept][k]) for k in best_of_the_first_round(mapped[:, kept], y, loss, 2)
    }
    assert CONSTANT in np.concatenate(machine.cuts_) and EMPTY not in machine.selected_


@pytest.mark.parametrize("form", ["dense", "csc_array"])
@pytest.mark.parametrize("name", ["hik", "additive_gaussian"])
def test_maps_of_it_are_columns(name, form):
    X, y = table(4, "quarters")
    machine = fitted(forms(X)[form], y, feature_map=name, n_bins=4, gamma=0.5)
    blocks = [exact.unary_map(X[:, j], 4) for j in range(CONSTANT + 1)]
    if name == "additive_gaussian":
        told = expansions.Expansion("additive_gaussian", gamma=0.5)
        blocks = [expansions.expand(X[:, [j]], told, X[:, [j]].min(0), X[:, [j]].max(0)) for j in range(CONSTANT + 1)]
    width = blocks[0].shape[1]
    groups = np.arange(4 * width).reshape(4, width).tolist()
    wanted = exact.groups_optimum(np.hstack(blocks), y, ONES, groups, np.ones(4), 2, "squared_hinge", False)
    assert machine.objective_ == pytest.approx(wanted, rel=1e-6)
    assert CONSTANT in np.concatenate(machine.cuts_) and EMPTY not in machine.selected_


def test_debias_keeps_it():
    X, y = table(5)
    machine = fitted(X, y, debias=True)
    _, w, _ = exact.ridge_optimum(X[:, machine.selected_], y, np.full(24, 20.0), "squared_hinge", False)
    assert CONSTANT in machine.selected_
    np.testing.assert_allclose(machine.coef_[0, machine.selected_], w, rtol=1e-4)


@pytest.mark.parametrize("more", [{}, {"groups": [0, 1, 2, 3, 4]}, {"feature_map": "poly2"}, {"feature_map": "hik"}])
def test_beside_an_intercept_it_is_never_chosen(more):
    X, y = table(6, "quarters")
    machine = fitted(X, y, bias=True, B=3, **more)
    assert not {CONSTANT, EMPTY} & set(machine.selected_.ravel().tolist())


def test_points_of_a_grid_read_it_each_in_its_own_way(tmp_path):
    """Points with and without an intercept cannot share candidates: here the constant alone tells anything."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=(60, 2)), np.ones(60)]
    data = ingest((X, np.where(np.arange(60) % 5 > 0, 1, -1)), tmp_path / "s").url
    given = {"data": data, "folds": 3, "params": {"B": 1, "C": 1.0, "max_rounds": 1, "scale": None}}
    tune("fgm", {"fit_intercept": [True, False]}, run=str(tmp_path / "r"), **given)
    told = {row["fit_intercept"]: row["accuracy"] for row in json.loads((tmp_path / "r" / "tune.json").read_text())["rows"]}
    assert told[True] == told[False] == pytest.approx(0.8)


# --- scales and routes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("loss", "bias"), CASES)
@pytest.mark.parametrize("scale", ["none", "unit-column", "standard", "unit-row"])
def test_scales_of_stores(tmp_path, scale, loss, bias, sparse):
    """What neither an intercept nor a scaling centres is chosen; what a scaling of rows has made vary, beside an intercept, too."""
    X, y = table(8)
    y = np.where(np.linalg.norm(X, axis=1) > np.quantile(np.linalg.norm(X, axis=1), 0.3), 1.0, -1.0)
    rows = {"unit-row": X / np.linalg.norm(X, axis=1)[:, None], "unit-column": X / np.maximum(np.linalg.norm(X, axis=0), 1e-300)}.get(
        scale, X
    )
    ingest((sp.csr_array(X) if sparse else X, y), tmp_path / "s", scale=scale)
    machine = fitted(tmp_path / "s", None, loss, bias, B=1)
    chosen = scale == "unit-row" or (scale != "standard" and not bias)
    assert (CONSTANT in machine.selected_) == chosen
    if scale != "standard":
        used = np.delete(rows, EMPTY if chosen else [CONSTANT, EMPTY], 1)
        assert machine.objective_ == pytest.approx(relaxed_optimum(used, y, ONES, 1, loss, bias), rel=1e-6)
    factor = 1.0 / np.linalg.norm(X, axis=1) if scale == "unit-row" else 1.0
    np.testing.assert_allclose(machine.decision_function(X), factor * (X @ machine.coef_[0]) + machine.intercept_[0], atol=1e-9)


def test_rows_of_equal_norms_leave_a_constant_constant(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.choice([-0.3, 0.3], size=(40, 5))
    X[:, CONSTANT] = 0.3
    ingest((X, np.where(X[:, 0] + 0.1 * rng.normal(size=40) > 0, 1, -1)), tmp_path / "s", scale="unit-row")
    assert CONSTANT not in fitted(tmp_path / "s", None, bias=True, B=4, max_rounds=3).selected_
    assert CONSTANT in fitted(tmp_path / "s", None, bias=False, B=5, max_rounds=3).selected_


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"groups": [0, 0, 1, 1, 2]},
        {"groups": [[0, 1, 2, 3, 4], [0, 1], [2, 3]]},
        {"feature_map": "poly2"},
        {"feature_map": "additive_gaussian"},
    ],
    ids=["linear", "groups", "tree", "poly2", "gaussian"],
)
def test_arrays_and_stores_give_the_same_bits(tmp_path, more, sparse):
    X, y = table(9)
    X = sp.csr_array(X) if sparse else X
    data = ingest((X, y), tmp_path / "s").url
    near = fitted(X, y, max_rounds=4, **more)
    assert bits(fitted(data, None, max_rounds=4, **more)) == bits(near)
    assert CONSTANT in near.selected_ or near.coef_[0, CONSTANT] != 0


def test_kernels_of_rows_scaled_to_unit_norm_see_it(tmp_path):
    """Divided by norms of their own, equal values are distances like any other."""
    X, y = table(10)
    X[:, CONSTANT] = 3.0
    ingest((X, y), tmp_path / "s", scale="unit-row")
    kernels = ["rbf(gamma=1.0)", "linear[0,3] trace"]
    rows = X / np.linalg.norm(X, axis=1)[:, None]
    one, two = (MKLClassifier(kernels, C=1.0, tol=1e-6, scale=None).fit(*given) for given in ((tmp_path / "s", None), (rows, y)))
    assert one.objective_ == pytest.approx(two.objective_, rel=1e-5)
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(rows), atol=1e-3)


def test_a_model_without_features_is_scored(tmp_path):
    store, run = str(tmp_path / "store"), str(tmp_path / "run")
    ingest((np.zeros((30, 3)), np.where(np.arange(30) % 3, "sick", "well")), store)
    assert run_method("fgm", {"B": 2, "fit_intercept": True}, data=store, run=run).summary["n_selected"] == 0
    scores = score_store(run, store)
    assert scores["accuracy"] == 20 / 30 and scores["path"] == []

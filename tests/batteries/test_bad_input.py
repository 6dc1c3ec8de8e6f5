"""Bad input is refused before work starts, by a message that names argument, value and rule."""

import json
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import Limits
from gramplane.kernels.features.pairs import PairLimits
from gramplane.pipeline import FGMClassifier, cross_validate, load_model, predict_store, resume_run, run_method, score_store, tune
from gramplane.pipeline.records.compute import ComputeOptions
from gramplane.pipeline.records.names import nearest
from gramplane.storage import DataError, MissingBlock, RunStore, SchemaError, StorageError
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import forms, planted

X, Y = planted(0, d=12)
PARAMS = {"B": 2, "C": 1.0, "max_rounds": 2, "scale": None}


def refused(message, A=X, y=Y, sample_weight=None, kind=ValueError, **params):
    """Fitting raises ``kind`` with the message, and no warning of arithmetic."""
    with pytest.raises(kind, match=message):
        FGMClassifier(**{**PARAMS, **params}).fit(A, y, sample_weight)


def with_value(value, form="dense"):
    A = X.copy()
    A[3, 4] = value
    return forms(A)[form]


# --- data -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "csr_array", "csc_matrix"])
@pytest.mark.parametrize(("value", "named"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
def test_values_that_are_not_finite(form, value, named):
    refused(rf"(?i)input X contains {named}", with_value(value, form))
    machine = FGMClassifier(**PARAMS).fit(X, Y)
    for ask in (machine.predict, machine.decision_function, machine.transform):
        with pytest.raises(ValueError, match=rf"(?i)X contains {named}"):
            ask(with_value(value, form))


@pytest.mark.parametrize("value", [1e200, 1e308])
@pytest.mark.parametrize("more", [{}, {"groups": np.arange(12) // 3}, {"feature_map": "poly2"}])
def test_numbers_whose_products_overflow(value, more):
    refused(r"overflow|not finite", with_value(value), **more)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.ones(80), r"one class only \(1\.0\)"),
        (np.full(80, "a"), r"one class only \('a'\)"),
        (np.linspace(0.1, 5.0, 80), r"Unknown label type: continuous"),
        (Y[:-1], r"inconsistent numbers of samples: \[80, 79\]"),
        (np.where(np.arange(80) == 5, np.nan, 1.0), r"(?i)y contains NaN"),
        (np.stack([Y, Y], axis=1), r"y should be a 1d array"),
        (None, r"requires y to be passed"),
    ],
)
def test_labels(y, message):
    refused(message, y=y)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-np.ones(80), r"(?i)negative"),
        (np.ones(79), r"sample_weight.*\(79,\).*\(80,\)"),
        (np.full(80, np.nan), r"(?i)sample_weight contains NaN"),
        (np.where(Y > 0, 1.0, 0.0), r"class -1 has no sample with positive weight"),
        (np.zeros(80), r"must contain at least one non-zero|no sample with positive weight"),
    ],
)
def test_weights_of_rows(weight, message):
    refused(message, sample_weight=weight)


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (np.zeros((80, 0)), r"0 feature\(s\)"),
        (np.zeros((0, 12)), r"0 sample\(s\)"),
        (np.zeros(80), r"Expected 2D array"),
        (X.astype(complex), r"Complex data not supported"),
        (np.full((80, 2), "a"), r"could not convert string"),
    ],
)
def test_shapes_and_types(A, message):
    refused(message, A, Y[: len(A)])


@pytest.mark.parametrize("form", ["dense", "csr_array"])
def test_another_width_at_prediction(form):
    machine = FGMClassifier(**PARAMS).fit(forms(X)[form], Y)
    for ask in (machine.predict, machine.decision_function, machine.transform):
        with pytest.raises(ValueError, match=r"X has 11 features, but FGMClassifier is expecting 12 features"):
            ask(forms(X[:, :11].copy())[form])


# --- parameters -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("B", 0, "at least 1"),
        ("B", 2.5, "whole number"),
        ("B", "many", "whole number"),
        ("C", 0.0, "greater than 0"),
        ("C", -1.0, "greater than 0"),
        ("C", np.inf, "finite"),
        ("C", np.nan, "greater than 0|finite"),
        ("max_rounds", 0, "at least 1"),
        ("n_features_to_select", 0, "at least 1"),
        ("loss", "hinge", "'auto', 'squared_hinge', 'logistic', 'squared'"),
        ("group_weight", "size", "'none' or '1/size'|valid list"),
        ("feature_map", "poly3", "'poly2', 'hik', 'additive_gaussian' or 'additive_chi2'"),
        ("gamma", 0.0, "greater than 0"),
        ("coef0", -1.0, "at least 0"),
        ("n_bins", 0, "at least 1"),
        ("n_bins", 20_000, "at most 10000"),
        ("exponent", 0, "greater than 0"),
        ("solver", "lbfgs", "'auto', 'newton', 'apg' or 'mkl'"),
        ("inner_tol", 0.0, "greater than 0"),
        ("max_inner", 0, "at least 1"),
        ("outer_tol", -1e-3, "greater than 0"),
        ("outer_stop", "never", "'gap' or 'decrease'"),
        ("class_weight", "equal", "'balanced'|valid dict"),
        ("class_weight", {1: -1.0}, "greater than 0"),
        ("class_weight", {1: 0.0}, "greater than 0"),
        ("class_weight", {1: np.nan}, "finite|greater than"),
        ("allow_repeat", "perhaps", "true or false"),
    ],
)
def test_parameters_by_name_value_and_rule(name, value, rule, tmp_path):
    with pytest.raises(ValueError, match=rf"{name}=.*({rule})") as caught:
        FGMClassifier(**{**PARAMS, name: value}).fit(X, Y)
    shown = [value, *(value.values() if isinstance(value, dict) else [])]
    assert any(repr(part) in str(caught.value) for part in shown)
    ingest((X, Y), tmp_path / "a.zarr")
    if name != "class_weight":
        with pytest.raises(ValueError, match=rf"{name}=.*({rule})"):
            run_method("fgm", {name: value}, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"lambda": 1.0}, r"parameter 'lambda' does not exist; known: B, C, max_rounds, "),
        ({"MAX_ROUNDS": 3}, r"parameter 'MAX_ROUNDS' does not exist; did you mean 'max_rounds'\?"),
        ({"b": 3}, r"parameter 'b' does not exist; did you mean 'B'\?"),
        ({"max_round": 3}, r"parameter 'max_round' does not exist; did you mean 'max_rounds'\?"),
        ({"feature_mapp": "poly2"}, r"'feature_mapp' does not exist; did you mean 'feature_map'\?"),
    ],
)
def test_unknown_parameters_are_refused_with_the_nearest_name(params, message, tmp_path):
    ingest((X, Y), tmp_path / "a.zarr")
    for call in (
        lambda: run_method("fgm", params, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run")),
        lambda: cross_validate("fgm", params, data=str(tmp_path / "a.zarr")),
        lambda: tune("fgm", {name: [value] for name, value in params.items()}, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "t")),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    assert not (tmp_path / "run").exists()


def test_nearest_names_or_lists():
    assert nearest("max_round", ["B", "max_rounds"]) == "; did you mean 'max_rounds'?"
    assert nearest("b", ["B", "C"]) == "; did you mean 'B'?"
    assert nearest("zzz", ["B", "C"]) == "; known: B, C"
    assert nearest("zzz", []) == ""


def test_unknown_methods_are_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(ValueError, match=r"method 'fgn' does not exist; did you mean 'fgm'\?"):
        run_method("fgn", {}, data=str(tmp_path / "none"), run=str(tmp_path / "run"))


def test_classes_that_do_not_exist_have_no_weight():
    refused(r"class_weight names class '3'; the classes are \[-1, 1\]", class_weight={3: 1.0})


# --- groups and maps --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([np.arange(5), np.arange(6, 12)], r"groups leaves out 1 features, the first is feature 5"),
        ([np.arange(12), [12]], r"groups\[1\] names feature 12; features are 0 to 11"),
        ([np.arange(12), [-1]], r"groups\[1\] names feature -1"),
        ([np.arange(12), []], r"groups\[1\] is empty"),
        ([np.arange(12), [3, 3]], r"groups\[1\] names a feature twice"),
        ([np.arange(12), [0.5]], r"groups\[1\] is a 1-dimensional float64"),
        (np.arange(11), r"groups has 11 labels; it needs one for each of the 12 features"),
        (np.full(12, -1), r"every label is negative"),
        (np.linspace(0, 1, 12), r"labels must be one integer per feature"),
        ([], r"groups is an empty list"),
    ],
)
def test_groups(groups, message):
    refused(message, groups=groups)


@pytest.mark.parametrize(
    ("weight", "message"),
    [([1.0, 2.0], r"needs one number for each of the 3 groups"), ([1.0, 0.0, 1.0], r"group weight\[1\] is 0\.0; weights must be positive")],
)
def test_weights_of_groups(weight, message):
    refused(message, groups=np.arange(12) // 4, group_weight=weight)


def test_groups_and_maps_exclude_each_other():
    refused(r"groups cannot be combined with feature_map='poly2'", groups=np.arange(12), feature_map="poly2")
    refused(r"group_weight='1/size' needs groups, which feature_map='hik' excludes", group_weight="1/size", feature_map="hik")


def test_weights_of_groups_need_groups():
    refused(r"group_weight='1/size' needs groups", group_weight="1/size")


@pytest.mark.parametrize("form", ["dense", "csr_array"])
@pytest.mark.parametrize(("name", "remedy"), [("hik", "set exponent=1 to use absolute values"), ("additive_chi2", "take another map")])
def test_negative_values_under_a_kernel_of_values_that_are_not(form, name, remedy):
    A = np.abs(X)
    A[5, 7] = -0.25
    refused(
        rf"feature_map='{name}' needs non-negative features; column 7 has the minimum .*-0\.25.*; .*{remedy}",
        forms(A)[form],
        kind=DataError,
        feature_map=name,
    )


# --- stores and runs --------------------------------------------------------------------------------------------------------------


def refused_run(tmp_path, message, params=None, kind=ValueError, **options):
    """The run is refused, and nothing stands where it should be."""
    with pytest.raises(kind, match=message):
        run_method("fgm", {**PARAMS, **(params or {})}, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"), **options)
    assert not (tmp_path / "run" / "summary.json").exists()


def test_a_budget_beyond_the_features_is_refused_on_a_run(tmp_path):
    ingest((X, Y), tmp_path / "a.zarr")
    refused_run(tmp_path, r"B=13 exceeds the 12 ", {"B": 13})
    assert not (tmp_path / "run").exists()


def test_a_default_budget_beyond_the_features_becomes_their_number(tmp_path):
    ingest((X[:, :3], Y), tmp_path / "a.zarr")
    seen = []
    run_method("fgm", {}, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"), on_event=seen.append)
    assert any("B: the default of 10 exceeds the 3 available features" in str(event.get("message", "")) for event in seen)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["decided"]["B"] == 3
    with pytest.raises(ValueError, match="B=10 exceeds the 3 "):
        run_method("fgm", {"B": 10}, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "other"))


def test_a_real_valued_target_is_refused(tmp_path):
    ingest((X, X[:, 0]), tmp_path / "a.zarr", task="regression")
    refused_run(tmp_path, "loss='logistic': the target holds real numbers; use 'squared'", {"loss": "logistic"})
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match=r"Unknown label type: continuous|real-valued"):
        FGMClassifier(**PARAMS).fit(str(tmp_path / "a.zarr"))


def test_a_store_of_one_class_is_refused(tmp_path):
    ingest((X, np.full(80, "spam")), tmp_path / "a.zarr")
    refused_run(tmp_path, r"a\.zarr: the target holds one class only \('spam'\); fgm needs at least two", kind=DataError)


def test_a_store_without_target_is_refused(tmp_path):
    ingest(X, tmp_path / "a.zarr", task="regression")
    refused_run(tmp_path, r"a\.zarr: there is no target; fgm needs one", kind=DataError)
    with pytest.raises(DataError, match=r"a\.zarr: there is no target; give y"):
        FGMClassifier(**PARAMS).fit(str(tmp_path / "a.zarr"))
    assert FGMClassifier(**PARAMS).fit(str(tmp_path / "a.zarr"), Y).n_features_in_ == 12


def test_labels_of_another_length_than_the_store(tmp_path):
    store = ingest((X, Y), tmp_path / "a.zarr")
    with pytest.raises(ValueError, match=r"y has 79 entries, .*a\.zarr has 80 rows"):
        FGMClassifier(**PARAMS).fit(store, Y[:-1])
    with pytest.raises(ValueError, match=r"sample_weight.*\(79,\).*\(80,\)"):
        FGMClassifier(**PARAMS).fit(store, Y, np.ones(79))
    with pytest.raises(ValueError, match=r"(?i)negative"):
        FGMClassifier(**PARAMS).fit(store, Y, -np.ones(80))


def test_rows_of_unit_norm_have_no_additive_map(tmp_path):
    ingest((np.abs(X), Y), tmp_path / "a.zarr", scale="unit-row")
    refused_run(tmp_path, r"feature_map='hik' cannot be used on rows scaled to unit norm", {"feature_map": "hik"})


def test_a_class_missing_from_a_fold_is_refused_by_name(tmp_path):
    y = np.where(np.arange(80) < 2, "rare", "common")
    ingest((X, y), tmp_path / "a.zarr")
    with pytest.raises(DataError, match=r"class .*rare.* has 2 rows, too few"):
        cross_validate("fgm", PARAMS, data=str(tmp_path / "a.zarr"), folds=3)
    refused_run(tmp_path, r"class .*rare.* has 2 rows, too few", extra={"test_share": 0.1}, kind=DataError)


@pytest.mark.parametrize("folds", [1, 0, -2, 81])
def test_folds(tmp_path, folds):
    ingest((X, Y), tmp_path / "a.zarr")
    with pytest.raises(ValueError, match=rf"folds={folds}|too few"):
        cross_validate("fgm", PARAMS, data=str(tmp_path / "a.zarr"), folds=folds)


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, "half"])
def test_shares_of_held_out_rows(tmp_path, share):
    ingest((X, Y), tmp_path / "a.zarr")
    refused_run(tmp_path, r"test_share=.*at least 0 and below 1", extra={"test_share": share})


@pytest.mark.parametrize("grid", [{"C": []}, {"C": 1.0}])
def test_grids(tmp_path, grid):
    ingest((X, Y), tmp_path / "a.zarr")
    with pytest.raises(ValueError, match=r"grid"):
        tune("fgm", grid, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))


def test_stores_and_runs_that_are_not_there(tmp_path):
    with pytest.raises((StorageError, FileNotFoundError), match="none"):
        run_method("fgm", PARAMS, data=str(tmp_path / "none"), run=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    with pytest.raises((StorageError, FileNotFoundError), match="none"):
        FGMClassifier(**PARAMS).fit(str(tmp_path / "none"))
    for call in (load_model, resume_run):
        with pytest.raises(MissingBlock, match="holds no run"):
            call(str(tmp_path / "nothing"))


def test_predictions_need_the_width_a_known_ending_and_a_finished_run(tmp_path):
    ingest((X, Y), tmp_path / "a.zarr")
    ingest((X[:, :11], Y), tmp_path / "b.zarr")
    ingest((X, X[:, 0]), tmp_path / "c.zarr", task="regression")
    run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    run = str(tmp_path / "run")
    with pytest.raises(ValueError, match=r"b\.zarr has 11 features, the model was trained on 12; .*--like"):
        predict_store(run, str(tmp_path / "b.zarr"), str(tmp_path / "out.npz"))
    with pytest.raises(ValueError, match=r"out=.*out\.txt.*\.npz, \.csv, \.parquet, \.zarr"):
        predict_store(run, str(tmp_path / "a.zarr"), str(tmp_path / "out.txt"))
    with pytest.raises(DataError, match=r"c\.zarr: the target is real-valued"):
        score_store(run, str(tmp_path / "c.zarr"))
    ingest(X, tmp_path / "d.zarr", task="regression")
    with pytest.raises(DataError, match=r"d\.zarr: there is no target, so nothing to compare"):
        score_store(run, str(tmp_path / "d.zarr"))
    assert predict_store(run, str(tmp_path / "d.zarr"), str(tmp_path / "d.npz"))["rows"] == 80
    (tmp_path / "run" / "summary.json").unlink()
    for call in (
        lambda: score_store(run, str(tmp_path / "a.zarr")),
        lambda: predict_store(run, str(tmp_path / "a.zarr"), str(tmp_path / "out.npz")),
    ):
        with pytest.raises(StorageError, match="not finished"):
            call()
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(("method", "params"), [("fgm", PARAMS), ("group-lasso", {})])
def test_models_of_unit_rows_need_row_factors_and_their_width(tmp_path, method, params):
    ingest((X, Y), tmp_path / "a.zarr", scale="unit-row")
    ingest((X, Y), tmp_path / "b.zarr")
    ingest((np.column_stack([X, X]), Y), tmp_path / "c.zarr", scale="unit-row")
    run_method(method, params, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    for name, told in (
        ("b", r"b\.zarr has the scale .*unit norm.*--like"),
        ("c", "c\\.zarr has 24 features, the model was trained on 12; .*--like"),
    ):
        with pytest.raises(ValueError, match=told):
            predict_store(str(tmp_path / "run"), str(tmp_path / f"{name}.zarr"), str(tmp_path / "out.npz"))


def test_a_run_prepared_but_never_started_says_so(tmp_path):
    RunStore.create(tmp_path / "run", {"method": "fgm", "params": {}, "driver_memory": 1, "seed": 0, "extra": {}, "data_digest": "0"})
    with pytest.raises(StorageError, match="never started"):
        resume_run(str(tmp_path / "run"))


def test_a_folder_of_something_else_is_no_run(tmp_path):
    ingest((X, Y), tmp_path / "a.zarr")
    with pytest.raises(SchemaError, match="not a run"):
        run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "a.zarr"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "everywhere"}, r"everywhere"),
        ({"cluster": "local:0"}, r"local:0"),
        ({"driver_memory": "lots"}, r"lots"),
        ({"worker_memory": "-1GiB"}, r"-1GiB"),
        ({"stall_timeout": 0}, r"stall_timeout=0: must be a positive number of seconds"),
        ({"stall_timeout": float("nan")}, r"stall_timeout=nan: must be a positive number of seconds"),
    ],
)
def test_places(tmp_path, options, message):
    ingest((X, Y), tmp_path / "a.zarr")
    refused_run(tmp_path, message, **options)
    assert not (tmp_path / "run").exists()


def test_the_stall_timeout_given_stands_above_the_environment(monkeypatch):
    monkeypatch.setenv("GRAMPLANE_STALL_TIMEOUT", "30")
    assert ComputeOptions("local:2").config().limits == Limits(stall_timeout=30.0)
    assert ComputeOptions("local:2", stall_timeout=60).config().limits == Limits(stall_timeout=60.0)


def test_dense_pairs_beyond_the_budget_are_refused(monkeypatch):
    wide = sp.csr_array(np.eye(4, 3))
    assert FGMClassifier(B=2, feature_map="poly2", scale=None).fit(wide, [0, 1, 0, 1]).n_features_in_ == 3
    monkeypatch.setattr("gramplane.kernels.features.pairs.PairLimits", partial(PairLimits, budget=1))
    refused(r"features over 80 rows take .*; the budget is", feature_map="poly2")

"""Covariates of arrays, stores and files: the same fits everywhere, resumed, tuned, loaded, and routed by scikit-learn."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.model_selection import cross_validate as validate_there

from gramplane.pipeline import (
    FGMClassifier,
    FGMRegressor,
    cross_validate,
    load_model,
    predict_store,
    run_method,
    score_store,
    tune,
)
from gramplane.pipeline.core.calibration import draw_folds
from gramplane.pipeline.inputs.folds import fold_masks
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.models.calibration import class_probabilities, fit_calibration
from gramplane.storage import DataError, columns_file
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import bits
from tests.support.fgm_targets import problem

PARAMS = {"B": 3, "C": 1.0, "scale": None, "max_rounds": 3}
ATOMS = {
    "linear": {},
    "groups": {"groups": np.arange(24) // 5},
    "overlap": {"groups": [np.arange(j, min(j + 9, 24)) for j in range(0, 24, 6)]},
    "tree": {"groups": [np.arange(24), np.arange(12), np.arange(5, 9), np.arange(12, 24)]},
    "poly2": {"feature_map": "poly2", "gamma": 0.5},
    "additive_gaussian": {"feature_map": "additive_gaussian", "gamma": 0.3},
}


def data(target, seed=0, n=90):
    X, y, Z = problem("squared" if target == "real" else "logistic", seed, n=n, m=24)
    X[np.random.default_rng(seed).random(X.shape) < 0.5] = 0.0
    return sp.csr_array(X), (y if target == "real" else (y > 0).astype(int)), pd.DataFrame(Z, columns=["age", "dose"])


def kind(target):
    return FGMRegressor if target == "real" else FGMClassifier


def task(target):
    return {"task": "regression"} if target == "real" else {}


def written(Z, path):
    Z.to_csv(path, index=False, float_format="%.17g")
    return str(path)


@pytest.fixture(params=["real", "classes"])
def target(request):
    return request.param


# --- one fit everywhere -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("atoms", ATOMS)
def test_arrays_stores_and_files_give_the_same_bits(tmp_path, monkeypatch, target, atoms):
    X, y, Z = data(target)
    estimator = kind(target)(**PARAMS, fit_intercept=True, **ATOMS[atoms])
    expected = bits(clone(estimator).fit(X, y, covariates=Z))
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 256)
    kept = ingest((X, y), tmp_path / "kept.zarr", covariates=Z, **task(target))
    plain = ingest((X, y), tmp_path / "plain.zarr", **task(target))
    assert len(plain.column_blocks()) > 1
    assert bits(clone(estimator).fit(kept)) == expected
    assert bits(clone(estimator).fit(plain, covariates=Z.to_numpy())) == expected
    params = {**PARAMS, "fit_intercept": True, **{k: v for k, v in ATOMS[atoms].items() if k != "groups"}}
    extra = {k: v for k, v in ATOMS[atoms].items() if k == "groups"}
    run_method("fgm", params, data=kept.url, run=str(tmp_path / "kept"), extra=extra)
    file = columns_file(written(Z, tmp_path / "z.csv"), 90)
    run_method("fgm", params, data=plain.url, run=str(tmp_path / "file"), extra={**extra, "covariates": file})
    for name in ("kept", "file"):
        found = load_model(tmp_path / name)
        assert bits(found) == expected, name
        assert found.model_.covariate_names == ("age", "dose")
    with pytest.raises(DataError, match=r"covariates are given, but the store already has 2 covariates \(age, dose\); leave out"):
        clone(estimator).fit(kept, covariates=Z)


def test_a_loaded_model_predicts_and_scores_stores_with_their_covariates(tmp_path, target):
    X, y, Z = data(target)
    train = ingest((X, y), tmp_path / "train.zarr", covariates=Z, **task(target))
    run_method("fgm", {**PARAMS, "fit_intercept": True}, data=train.url, run=str(tmp_path / "run"))
    machine = load_model(tmp_path / "run")
    A, b, V = data(target, seed=1, n=40)
    kept = ingest((A, b), tmp_path / "kept.zarr", covariates=V, like=train.url)
    plain = ingest((A, b), tmp_path / "plain.zarr", **task(target))
    wanted = machine.predict(A, covariates=V)
    measure, name = (r2_score, "r2") if target == "real" else (accuracy_score, "accuracy")
    np.testing.assert_allclose(machine.predict(kept), wanted, rtol=1e-12)
    np.testing.assert_allclose(machine.predict(plain, covariates=V), wanted, rtol=1e-12)
    path = written(V, tmp_path / "v.csv")
    for place, given in ((kept, {}), (plain, {"covariates": path}), (plain, {"covariates": V})):
        assert score_store(str(tmp_path / "run"), place.url, **given)[name] == pytest.approx(measure(b, wanted))
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        predict_store(str(tmp_path / "run"), place.url, str(out), **given)
        np.testing.assert_allclose(pd.read_parquet(out)["prediction"], wanted, rtol=1e-12)
    for call in (
        lambda **g: score_store(str(tmp_path / "run"), plain.url, **g),
        lambda **g: predict_store(str(tmp_path / "run"), plain.url, str(tmp_path / "no.parquet"), **g),
        lambda **g: machine.predict(plain, **g),
    ):
        with pytest.raises(ValueError, match=r"fitted with 2 covariates \(age, dose\); give their values for these rows"):
            call()
        with pytest.raises(ValueError, match=r"covariates are \[dose, age\]; the model needs \[age, dose\], in this order"):
            call(covariates=V[["dose", "age"]])
    run_method("fgm", PARAMS, data=ingest((X, y), tmp_path / "t.zarr", **task(target)).url, run=str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"the model was fitted without covariates, but the rows have 2 covariates \(age, dose\)"):
        score_store(str(tmp_path / "none"), kept.url)


def test_models_without_covariates_take_none(tmp_path):
    X, y, Z = data("classes")
    store = ingest((X, y), tmp_path / "a.zarr")
    run_method("group-lasso", {}, data=store.url, run=str(tmp_path / "run"))
    with pytest.raises(ValueError, match="covariates: GroupLassoClassifier does not use covariates"):
        score_store(str(tmp_path / "run"), store.url, covariates=Z)


def test_methods_without_covariates_say_that_they_leave_those_of_a_store(tmp_path):
    X, y, Z = data("classes")
    store, events = ingest((X, y), tmp_path / "a.zarr", covariates=Z), []
    run_method("group-lasso", {}, data=store.url, run=str(tmp_path / "run"), on_event=events.append)
    told = [event["message"] for event in events if event["event"] == "warning"]
    assert "the store keeps covariates, which group-lasso does not use" in told
    events.clear()
    run_method("fgm", PARAMS, data=store.url, run=str(tmp_path / "fgm"), on_event=events.append)
    assert not [event for event in events if event["event"] == "warning"]


def test_plans_count_covariates(tmp_path):
    X, y, Z = data("real", n=1000)
    store = ingest((X, y), tmp_path / "a.zarr", task="regression")
    wide = np.random.default_rng(0).normal(size=(1000, 50))
    run = {"data": store.url, "run": str(tmp_path / "run"), "dry_run": True}
    plain, some, many = (run_method("fgm", PARAMS, **run, extra=extra).plan for extra in ({}, {"covariates": Z}, {"covariates": wide}))
    assert "covariates" not in plain and some["covariates"] == 2 and many["covariates"] == 50
    assert many["driver_bytes"] - some["driver_bytes"] == 32 * 1000 * 48
    run_method("fgm", PARAMS, data=store.url, run=str(tmp_path / "real"), extra={"covariates": wide})
    told = [
        predict_store(str(tmp_path / "real"), store.url, str(tmp_path / "p.csv"), covariates=wide, dry_run=True),
        score_store(str(tmp_path / "real"), store.url, covariates=wide, dry_run=True),
    ]
    assert all(plan["driver_bytes"] >= 16 * 1000 * 50 for plan in told)


# --- grids ------------------------------------------------------------------------------------------------------------------------


def test_a_grid_is_fits_on_the_other_folds(tmp_path, target):
    X, y, Z = data(target)
    store = ingest((X, y), tmp_path / "a.zarr", covariates=Z, **task(target))
    params, measure = {"B": 3, "max_rounds": 2, "fit_intercept": True, "scale": None}, "r2" if target == "real" else "accuracy"
    masks = fold_masks(y, None if target == "real" else (0, 1), 3, 5)
    table = cross_validate("fgm", params, data=store.url, folds=3, seed=5)
    assert [row["rounds"] for row in table] == [1, 2]
    for row in table:
        for held, value in zip(masks, row["folds"], strict=True):
            machine = kind(target)(**{**params, "max_rounds": row["rounds"]}).fit(X, y, (~held).astype(float), covariates=Z)
            assert value == pytest.approx(machine.score(X[held], y[held], covariates=Z[held]), abs=1e-9)
            # What is held out is not looked at.
            part = kind(target)(**{**params, "max_rounds": row["rounds"]}).fit(X[~held], y[~held], covariates=Z[~held])
            np.testing.assert_allclose(part.covariate_coef_, machine.covariate_coef_, rtol=1e-3)
        assert row[measure] == pytest.approx(np.mean(row["folds"]))


def test_tuning_takes_the_best_point_and_fits_it_with_its_covariates(tmp_path, target):
    X, y, Z = data(target)
    store = ingest((X, y), tmp_path / "a.zarr", covariates=Z, **task(target))
    grid, params, options = {"C": [0.01, 1.0]}, {"B": 3, "max_rounds": 2, "fit_intercept": True, "scale": None}, {"folds": 3, "seed": 5}
    measure = "r2" if target == "real" else "accuracy"
    done = tune("fgm", grid, data=store.url, run=str(tmp_path / "run"), params=params, **options)
    alone = [row for C in grid["C"] for row in cross_validate("fgm", {**params, "C": C}, data=store.url, **options)]
    assert done.summary[measure] == max(row[measure] for row in alone)
    assert bits(load_model(tmp_path / "run")) == bits(kind(target)(**{**params, **done.summary["best"]}).fit(X, y, covariates=Z))
    extra = {"covariates": columns_file(written(Z, tmp_path / "z.csv"), 90)}
    plain = ingest((X, y), tmp_path / "b.zarr", **task(target))
    again = tune("fgm", grid, data=plain.url, run=str(tmp_path / "again"), params=params, extra=extra, **options)
    assert again.summary[measure] == done.summary[measure]
    assert bits(load_model(tmp_path / "again")) == bits(load_model(tmp_path / "run"))


# --- probabilities ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sigmoid", "isotonic"])
def test_probabilities_are_calibrated_on_folds_with_their_covariates(tmp_path, kind):
    """The same by hand: a fit with weight zero for every fold, and what it decides there, with the covariates of both."""
    X, y, Z = data("classes")
    params = {"B": 3, "max_rounds": 2, "fit_intercept": True, "scale": None}
    at_fit = FGMClassifier(**params, probability=kind).fit(X, y, covariates=Z)
    values = np.zeros((1, len(y)))
    for mask in draw_folds(Inputs(None, y, (0, 1)), 0).masks:
        part = FGMClassifier(**params).fit(X, y, np.where(mask, 0.0, 1.0), covariates=Z)
        values[0, mask] = part.decision_function(X[mask], covariates=Z[mask])
    calibration = fit_calibration(kind, 5, values, y, np.ones(len(y)))
    expected = class_probabilities(calibration, at_fit.decision_function(X, covariates=Z)[:, None])
    found = at_fit.predict_proba(X, covariates=Z)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(np.exp(at_fit.predict_log_proba(X, covariates=Z)), found, atol=1e-12)
    with pytest.raises(ValueError, match="give their values for these rows"):
        at_fit.predict_proba(X)
    kept = ingest((X, y), tmp_path / "kept.zarr", covariates=Z)
    plain, file = ingest((X, y), tmp_path / "plain.zarr"), written(Z, tmp_path / "z.csv")
    for store, extra, given in ((kept, {}, {}), (plain, {"covariates": columns_file(file, 90)}, {"covariates": file})):
        run = str(tmp_path / f"run-{len(extra)}")
        run_method("fgm", {**params, "probability": kind}, data=store.url, run=run, extra=extra)
        np.testing.assert_array_equal(load_model(run).predict_proba(X, covariates=Z), found)
        predict_store(run, store.url, f"{run}.npz", **given)
        np.testing.assert_allclose(np.load(f"{run}.npz")["probability"], found, rtol=1e-12)
        assert "brier_score" in score_store(run, store.url, **given)


@pytest.mark.parametrize("held", ["store", "file"])
def test_probabilities_of_a_run_are_calibrated_when_asked_for(tmp_path, held):
    X, y, Z = data("classes")
    params, file = {"B": 3, "max_rounds": 2, "fit_intercept": True, "scale": None}, written(Z, tmp_path / "z.csv")
    store = ingest((X, y), tmp_path / "a.zarr", covariates=Z if held == "store" else None)
    extra, given = ({}, {}) if held == "store" else ({"covariates": columns_file(file, 90)}, {"covariates": file})
    late = FGMClassifier(**params).fit(X, y, covariates=Z).predict_proba(X, covariates=Z)
    run = str(tmp_path / "run")
    run_method("fgm", params, data=store.url, run=run, extra=extra)
    assert predict_store(run, store.url, str(tmp_path / "p.npz"), proba=True, dry_run=True, **given)["calibration"]
    predict_store(run, store.url, str(tmp_path / "p.npz"), proba=True, **given)
    np.testing.assert_allclose(np.load(tmp_path / "p.npz")["probability"], late, rtol=1e-12)
    np.testing.assert_array_equal(load_model(run).predict_proba(X, covariates=Z), late)


def test_real_targets_have_no_probabilities(tmp_path):
    X, y, Z = data("real")
    machine = FGMRegressor(**PARAMS).fit(X, y, covariates=Z)
    assert not {"probability", "class_weight"} & set(machine.get_params())
    assert not any(hasattr(machine, name) for name in ("predict_proba", "predict_log_proba", "decision_function", "classes_"))
    store = ingest((X, y), tmp_path / "a.zarr", covariates=Z, task="regression")
    with pytest.raises(ValueError, match="probability='sigmoid': the target holds real numbers, there are no classes"):
        run_method("fgm", {**PARAMS, "probability": "sigmoid"}, data=store.url, run=str(tmp_path / "run"))


# --- scikit-learn -----------------------------------------------------------------------------------------------------------------


def test_covariates_are_routed(target):
    X, y, Z = data(target)
    estimator = kind(target)(B=3, max_rounds=2, fit_intercept=True)
    folds = KFold(3)
    wanted = [
        clone(estimator).fit(X[a], y[a], covariates=Z.to_numpy()[a]).score(X[b], y[b], covariates=Z.to_numpy()[b])
        for a, b in folds.split(y)
    ]
    with sklearn.config_context(enable_metadata_routing=True):
        routed = clone(estimator).set_fit_request(covariates=True).set_score_request(covariates=True)
        routed = routed.set_predict_request(covariates=True)
        found = cross_val_score(routed, X, y, cv=folds, params={"covariates": Z.to_numpy()})
        np.testing.assert_allclose(found, wanted)
        search = GridSearchCV(routed, {"C": [0.01, 1.0]}, cv=folds).fit(X, y, covariates=Z.to_numpy())
        assert search.best_estimator_.covariate_coef_.shape == (1, 2)
        assert "test_score" in validate_there(routed, X, y, cv=folds, params={"covariates": Z.to_numpy()})
        plain = clone(estimator).set_fit_request(covariates=False)
        assert plain.get_metadata_routing().fit.requests["covariates"] is False

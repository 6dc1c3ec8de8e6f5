"""scale: a fit of raw columns is a fit of columns scaled by hand, whose model is for raw rows; stores, arrays and workers agree."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import gramplane.pipeline as api
from gramplane.pipeline import METHODS, load_model, run_method, tune
from gramplane.pipeline.runs.gram_stores import build_grams, repair_grams
from gramplane.storage import BlockStore, DigestMismatch, MemoryBlocks, memory
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.tables import columns

RNG = np.random.default_rng(0)
N = 90
Z = RNG.normal(size=(N, 5))
X = Z * [1.0, 30.0, 0.01, 400.0, 5.0] + [0.0, 7.0, 1.0, -300.0, 2.0]
NUMBERS = Z[:, 0] - Z[:, 2] + 0.3 * RNG.normal(size=N)
LABELS = np.where(NUMBERS > 0, "up", "down")
S = sp.csr_array(np.where(RNG.random((N, 5)) < 0.5, np.abs(X), 0.0))
NAMES = sorted(name for info in METHODS.values() if "scale" in info.config.model_fields for name in info.estimators if name)
METHOD_OF = {name: info.name for info in METHODS.values() for name in info.estimators}
WITH_AUTO = {"FGMClassifier", "FGMRegressor", "GroupLassoClassifier", "GroupLassoRegressor", "MultiTaskSelector"}  # and those below
WITH_AUTO |= {name for name in NAMES if "SharedSubspace" in name or "Latent" in name}
GIVEN = {"C": 0.7, "lam": 0.02, "kernels": ["linear", "rbf(gamma=0.1)"], "kernel": "rbf(gamma=0.1)", "dag": "subsets(gaussian; depth=1)"}
LINEAR = ("FGMClassifier", "FGMRegressor", "GroupLassoClassifier", "GroupLassoRegressor", "MultiTaskSelector")
SMALL = {
    "TriClassSVC": {"irrelevant_label": None},
    "HierarchicalKernelClassifier": {"max_nodes": 20},
    "HierarchicalKernelRegressor": {"max_nodes": 20},
    "FGMClassifier": {"B": 2},
    "FGMRegressor": {"B": 2},
    "TwoLayerMKLClassifier": {"max_iter": 20},
    "TwoLayerMKLRegressor": {"max_iter": 20},
}


def model(name, **params):
    return getattr(api, name)(**SMALL.get(name, {}), **params)


def target(name):
    return NUMBERS if "Regressor" in name or name == "MultiTaskSelector" else LABELS


def decide(estimator, rows):
    return getattr(estimator, "decision_function", estimator.predict)(rows)


def fit(name, rows, **params):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model(name, **params).fit(rows, target(name))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_fit_is_that_of_columns_scaled_by_hand(name, form):
    rows, scaler = (X, StandardScaler()) if form == "dense" else (S, MaxAbsScaler())
    by_itself = fit(name, rows)
    by_hand = make_pipeline(scaler, model(name, scale=None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_hand.fit(rows, target(name))
    expected = decide(by_hand, rows)
    np.testing.assert_allclose(decide(by_itself, rows), expected, atol=2e-2 * np.abs(expected).max())
    if name in LINEAR:
        weights, inner = np.ravel(by_itself.coef_), np.ravel(by_hand[-1].coef_)
        np.testing.assert_allclose(np.ravel(rows @ weights) + by_itself.intercept_, np.ravel(decide(by_itself, rows)), rtol=1e-9, atol=1e-9)
        if weights.size == 5 and inner.size == 5:
            np.testing.assert_allclose(weights * scaler.scale_, inner, atol=1e-3 * np.abs(inner).max())


@pytest.mark.parametrize("name", NAMES)
def test_the_units_of_columns_do_not_matter(name):
    powers = 2.0 ** np.array([8, -6, 0, 11, -3])
    np.testing.assert_allclose(decide(fit(name, X), X), decide(fit(name, X * powers), X * powers), atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_stores_and_runs_agree_to_the_bit(name, tmp_path):
    for form, rows, kind in (("dense", X, "standard"), ("sparse", S, "max-abs")):
        task = "regression" if target(name) is NUMBERS else "classification"
        expected = decide(fit(name, rows), rows)
        for scale in ("none", kind):
            kept = tmp_path / f"{form}-{scale}"
            ingest((rows, target(name)), kept, scale=scale, task=task, progress=None)
            of_store = model(name)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                of_store.fit(kept)
            np.testing.assert_array_equal(decide(of_store, rows), expected)
            np.testing.assert_array_equal(decide(of_store, kept), decide(of_store, kept))
        run = tmp_path / f"{form}-run"
        run_method(METHOD_OF[name], SMALL.get(name, {}), data=str(tmp_path / f"{form}-none"), run=str(run))
        np.testing.assert_array_equal(decide(load_model(run), rows), expected)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("scale", ["standard", "max-abs", "unit-column"])
@pytest.mark.parametrize("weighted", ["all alike", "apart", "some zero"])
def test_a_store_shows_the_factors_that_arrays_have(form, scale, weighted, tmp_path):
    rows = X if form == "dense" else S
    weight = {"all alike": None, "apart": RNG.uniform(0.5, 2, N), "some zero": np.where(np.arange(N) % 3, 1.5, 0.0)}[weighted]
    more = {} if weight is None else {"weight_column": weight}
    raw = ingest((rows, LABELS), tmp_path / "raw", progress=None, **more)
    store = raw.with_scale(scale)
    assert raw.scale.factor is None and ":" not in raw.digest
    again = BlockStore.open(store.url, store.digest)
    there = ingest((rows, LABELS), tmp_path / "scaled", scale=scale, progress=None, **more)
    expected = MemoryBlocks(rows).with_scale(scale, weight=weight).scale
    for name in ("factor", "shift"):
        for seen in (store, again, there):
            np.testing.assert_array_equal(getattr(seen.scale, name), getattr(expected, name))


@pytest.mark.parametrize("name", NAMES)
def test_what_auto_came_to_changes_nothing_when_it_is_given(name):
    by_itself = fit(name, X)
    left = {key for key, value in by_itself.get_params().items() if key != "scale" and isinstance(value, str) and value == "auto"}
    given = {key: getattr(by_itself, f"{key}_") for key in left if isinstance(getattr(by_itself, f"{key}_", None), float)}
    assert bool(given) == (name in WITH_AUTO)
    for more in (given, {key: value for key, value in GIVEN.items() if key in by_itself.get_params()}):
        again = fit(name, X, **more)
        scale = getattr(again.model_, "scale", None)
        assert scale is None or scale.shift is not None
        if more is given:
            np.testing.assert_allclose(decide(again, X), decide(by_itself, X), rtol=1e-9, atol=1e-9)


def test_the_c_that_auto_chose_selects_the_same_features():
    rows, labels = load_breast_cancer(return_X_y=True)
    left = api.FGMClassifier(B=2, max_rounds=3).fit(rows, labels)
    given = api.FGMClassifier(B=2, max_rounds=3, C=left.C_).fit(rows, labels)
    np.testing.assert_array_equal(given.selected_, left.selected_)


@pytest.mark.parametrize(
    ("method", "params", "kind"),
    [
        ("fgm", {}, "standard"),
        ("fgm", {"fit_intercept": False}, "max-abs"),
        ("fgm", {"feature_map": "poly2", "C": 1.0}, "max-abs"),
        ("fgm", {"feature_map": "hik"}, "max-abs"),
        ("fgm", {"feature_map": "additive_chi2"}, "max-abs"),
        ("fgm", {"feature_map": "additive_gaussian"}, "standard"),
        ("mkl", {"kernels": ["rbf(gamma=0.1)", "linear[hik]", "poly(degree=2)"]}, "standard"),
        ("mkl", {"kernels": ["rbf(gamma=0.1)", "hik"]}, "max-abs"),
        ("mkl", {"kernels": ["chi2(gamma=1.0)[0:3]"]}, "max-abs"),
        ("tri-class-svm", {"kernel": "additive_chi2"}, "max-abs"),
        ("group-lasso", {"lam": 0.1}, "standard"),
        ("group-lasso", {"algorithm": "da"}, None),
        ("multitask-selector", {"gamma": 2.0}, None),
    ],
)
def test_what_auto_stands_for(method, params, kind):
    assert METHODS[method].config(**params).auto_scale == kind


@pytest.mark.parametrize("name", ["GroupLassoClassifier", "GroupLassoRegressor", "MultiTaskSelector"])
def test_streams_are_not_scaled_and_columns_in_units_far_apart_are_told_by_both_names(name):
    def said(rows, **params):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(name, algorithm="da", **params).fit(rows, target(name))
        return [item for item in caught if "columns differ in scale" in str(item.message)]

    found = said(X / 400)
    assert len(found) == 1 and "x3 spans" in str(found[0].message) and "x2 spans" in str(found[0].message) and found[0].filename == __file__
    assert not said(X / 400, scale=None) and not said(X, scale="standard") and not said(Z)


@pytest.mark.parametrize("name", ["FGMClassifier", "MKLClassifier", "GroupLassoClassifier"])
def test_rows_of_weight_zero_do_not_move_the_scaling(name):
    far = np.vstack([X, 1e3 * np.ones((3, 5))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with_far = model(name).fit(far, np.r_[LABELS, LABELS[:3]], sample_weight=np.r_[np.ones(N), np.zeros(3)])
    if name == "MKLClassifier":  # (normalised kernels know all rows)
        np.testing.assert_allclose(with_far.model_.scale.factor, fit(name, X).model_.scale.factor, rtol=1e-12)
    else:
        np.testing.assert_allclose(decide(with_far, X), decide(fit(name, X), X), atol=2e-2)


def test_sparse_rows_stay_sparse_and_values_where_they_are():
    scaled = MemoryBlocks(S).with_scale("max-abs")
    assert scaled.scale.shift is None and np.shares_memory(scaled.X.data, S.data)
    assert fit("MKLClassifier", S).model_.scale.shift is None
    assert sp.issparse(fit("MKLClassifier", S).model_.rows)


@pytest.mark.parametrize("scale", ["unit-row", "minmax", 1, True])
def test_a_scaling_that_does_not_exist_is_refused(scale):
    with pytest.raises(ValueError, match="scale="):
        fit("FGMClassifier", X, scale=scale)


def test_a_store_takes_the_scaling_that_it_was_ingested_with_and_no_second_one(tmp_path):
    ingest((X, LABELS), tmp_path / "raw", progress=None)
    ingest((X, LABELS), tmp_path / "scaled", scale="max-abs", progress=None)
    for scale in ("auto", None, "max-abs"):
        assert api.FGMClassifier(scale=scale).fit(tmp_path / "scaled").model_.scale.shift is None
    with pytest.raises(ValueError, match="has the scaling 'max-abs' already"):
        api.FGMClassifier(scale="standard").fit(tmp_path / "scaled")
    with pytest.raises(ValueError, match="has the scaling 'max-abs' already"):
        run_method("fgm", {"scale": "standard"}, data=str(tmp_path / "scaled"), run=str(tmp_path / "run"))
    np.testing.assert_array_equal(fit("FGMClassifier", tmp_path / "raw").coef_, fit("FGMClassifier", X).coef_)
    assert clone(api.FGMClassifier(scale=None)).scale is None


def test_matrices_of_a_gram_store_are_those_of_its_scaling(tmp_path):
    store, grams = str(ingest((X, LABELS), tmp_path / "raw", progress=None).url), str(tmp_path / "grams")
    params = {"kernels": ["rbf(gamma=0.1)", "linear"], "grams": "store", "gram_store": grams}
    assert build_grams(store, params["kernels"], grams).figures["blocks_computed"]
    assert not build_grams(store, params["kernels"], grams, scale="standard").figures["blocks_computed"]
    run_method("mkl", params, data=store, run=str(tmp_path / "run"))
    run_method("mkl", {**params, "kernels": "precomputed"}, data=store, run=str(tmp_path / "given"))
    expected = decide(fit("MKLClassifier", X, kernels=params["kernels"]), X)
    for run in ("run", "given"):
        np.testing.assert_array_equal(decide(load_model(tmp_path / run), X), expected)
    with pytest.raises(DigestMismatch, match="the scaling that the stored digest ends with"):
        run_method("mkl", {**params, "scale": None}, data=store, run=str(tmp_path / "other"))
    assert repair_grams(grams, store).status == "already-done"


def test_points_of_a_grid_under_different_scalings_are_not_compared(tmp_path):
    store = str(ingest((X, LABELS), tmp_path / "raw", progress=None).url)
    with pytest.raises(ValueError, match="set different scalings of columns"):
        tune("mkl", {"scale": [None, "standard"]}, data=store, run=str(tmp_path / "run"))
    tune("fgm", {"C": [0.1, 1.0]}, data=store, run=str(tmp_path / "tuned"), params={"B": 2, "max_rounds": 2, "scale": "max-abs"}, folds=2)
    best = load_model(tmp_path / "tuned")
    assert best.scale == "max-abs" and best.model_.scale.shift is None


def test_unlabelled_rows_of_another_store_are_scaled_with_the_labelled_ones(tmp_path):
    rest = RNG.normal(size=(40, 5)) * [1.0, 30.0, 0.01, 400.0, 5.0]
    ingest((X, LABELS), tmp_path / "labelled", progress=None)
    ingest(rest, tmp_path / "unlabelled", task="regression", progress=None)
    for scale in ("auto", "max-abs", "unit-column"):
        together = api.TriClassSVC(scale=scale, **SMALL["TriClassSVC"]).fit(X, LABELS, X_unlabelled=rest)
        apart = api.TriClassSVC(scale=scale, **SMALL["TriClassSVC"]).fit(tmp_path / "labelled", X_unlabelled=tmp_path / "unlabelled")
        params, more = {**SMALL["TriClassSVC"], "scale": scale}, {"unlabelled": str(tmp_path / "unlabelled")}
        run_method("tri-class-svm", params, data=str(tmp_path / "labelled"), run=str(tmp_path / scale), extra=more)
        for other in (apart, load_model(tmp_path / scale)):
            np.testing.assert_allclose(other.model_.scale.factor, together.model_.scale.factor, rtol=1e-12)
            np.testing.assert_allclose(decide(other, X), decide(together, X), atol=1e-6)


@pytest.mark.parametrize("scale", ["standard", None])
def test_a_fit_looks_once_at_its_matrix_for_each_purpose(scale, monkeypatch):
    seen = dict.fromkeys(("statistics", "look", "columns"), 0)

    def count(where, name, size):
        made = getattr(where, name)

        def counted(*given, **how):
            seen[size[0]] += size[1](*given)
            return made(*given, **how)

        monkeypatch.setattr(where, name, counted)

    count(columns, "dense_tables", ("statistics", lambda x, *rest: x.size))
    count(memory, "look", ("look", lambda x: x.size))
    count(MemoryBlocks, "columns", ("columns", lambda self, ids: len(ids)))
    found = api.FGMClassifier(B=2, max_rounds=2, C=1.0, scale=scale).fit(X, LABELS)
    # The columns of each cut are fetched once, and what is said after the fit is said from them.
    cuts = sum(len(cut) for cut in found.cuts_)
    assert seen == {"statistics": X.size if scale else 0, "look": X.size, "columns": cuts}

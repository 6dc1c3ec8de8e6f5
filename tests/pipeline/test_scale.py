"""scale: a fit of raw columns is a fit of columns scaled by hand, whose model is for raw rows; stores, arrays and workers agree."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

import gramplane.pipeline as api
from gramplane.pipeline import METHODS, load_model, run_method
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest

RNG = np.random.default_rng(0)
N = 90
Z = RNG.normal(size=(N, 5))
X = Z * [1.0, 30.0, 0.01, 400.0, 5.0] + [0.0, 7.0, 1.0, -300.0, 2.0]
NUMBERS = Z[:, 0] - Z[:, 2] + 0.3 * RNG.normal(size=N)
LABELS = np.where(NUMBERS > 0, "up", "down")
S = sp.csr_array(np.where(RNG.random((N, 5)) < 0.5, np.abs(X), 0.0))
NAMES = sorted(name for info in METHODS.values() if info.config.scale_matters for name in info.estimators if name)
LINEAR = ("FGMClassifier", "FGMRegressor", "GroupLassoClassifier", "GroupLassoRegressor", "MultiTaskSelector")
SMALL = {
    "TriClassSVC": {"irrelevant_label": None},
    "HierarchicalKernelClassifier": {"max_nodes": 20},
    "HierarchicalKernelRegressor": {"max_nodes": 20},
    "FGMClassifier": {"B": 2},
    "FGMRegressor": {"B": 2},
    "TwoLayerMKLClassifier": {"max_iter": 20},
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
def test_a_store_of_that_scaling_gives_the_same_bits_and_is_left_as_it_is(name, tmp_path):
    for form, rows, kind in (("dense", X, "standard"), ("sparse", S, "max-abs")):
        kept = tmp_path / form
        ingest((rows, target(name)), kept, scale=kind, task="regression" if target(name) is NUMBERS else "classification", progress=None)
        of_store = model(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            of_store.fit(kept)
        np.testing.assert_array_equal(decide(of_store, rows), decide(fit(name, rows), rows))
        np.testing.assert_array_equal(decide(of_store, kept), decide(of_store, kept))


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["FGMClassifier", "GroupLassoRegressor", "MKLRegressor"])
def test_workers_give_the_same_bits(name):
    for rows in (X, S):
        np.testing.assert_array_equal(decide(fit(name, rows), rows), decide(fit(name, rows, cluster="local:2"), rows))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_given_decides_whether_auto_scales(name):
    given = {"C": 1.0} if name.startswith("FGM") else {"lam": 0.01} if name in LINEAR else {"kernels": ["linear", "rbf(gamma=0.1)"]}
    given = {"kernel": "rbf(gamma=0.1)"} if name == "TriClassSVC" else {"dag": "subsets(gaussian; depth=1)"} if "Hier" in name else given
    small = Z + np.array([0, 1, 0, 2, 0])
    plain, left, scaled = (decide(fit(name, small, **given, scale=scale), small) for scale in (None, "auto", "standard"))
    np.testing.assert_array_equal(plain, left)
    # Gaussians of single features have a width of their own.
    assert "Hier" in name or not np.allclose(plain, scaled, rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_columns_in_units_far_apart_are_told_by_both_names_where_they_are_not_scaled(name, tmp_path):
    given = {"C": 1.0} if name.startswith("FGM") else {"lam": 0.01} if name in LINEAR else {"kernels": ["linear"]}
    given = {"kernel": "rbf(gamma=0.1)"} if name == "TriClassSVC" else {"dag": "subsets(gaussian; depth=1)"} if "Hier" in name else given

    def said(rows, **params):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model(name, **params).fit(rows, target(name))
        return [item for item in caught if "very different widths" in str(item.message)]

    found = said(X, **given)
    assert len(found) == 1 and "x3 (" in str(found[0].message) and "x2 (" in str(found[0].message) and found[0].filename == __file__
    assert not said(X, **given, scale=None) and not said(X, **given, scale="standard") and not said(Z, **given)


def test_a_run_tells_it_too(tmp_path):
    ingest((X, LABELS), tmp_path / "raw", progress=None)
    ingest((X, LABELS), tmp_path / "scaled", scale="standard", progress=None)
    for name in ("raw", "scaled"):
        events = []
        run_method("fgm", {"B": 2}, data=str(tmp_path / name), run=str(tmp_path / f"run-{name}"), on_event=events.append)
        told = [event["message"] for event in events if "widths" in event.get("message", "")]
        assert bool(told) == (name == "raw") and all("x3 (" in text and "x2 (" in text for text in told)
    loaded = load_model(tmp_path / "run-scaled")
    np.testing.assert_allclose(loaded.decision_function(X), fit("FGMClassifier", X).decision_function(X), rtol=1e-9)


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


def test_a_store_takes_the_scaling_that_it_was_ingested_with(tmp_path):
    ingest((X, LABELS), tmp_path / "raw", progress=None)
    with pytest.raises(ValueError, match="--scale standard"):
        api.FGMClassifier(scale="standard").fit(tmp_path / "raw")
    assert clone(api.FGMClassifier(scale=None)).scale is None

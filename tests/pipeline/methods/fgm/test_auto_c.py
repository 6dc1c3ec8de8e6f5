"""C of the losses that follows from the data: its formula, its invariances, and runs with it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import scale

from gramplane import FGMClassifier, FGMRegressor, load_model, resume_run, run_method
from gramplane.storage.ingest import ingest


class Stopped(Exception):
    """The run is ended from outside."""


def stop_after_two(event):
    if event["event"] == "iteration" and event["iteration"] == 2:
        raise Stopped


def rows(n=120, d=30, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = scale(rng.normal(size=(n, d)))
    return X, np.digitize(X[:, 0] - X[:, 1] + 0.5 * rng.normal(size=n), [0.0] if classes == 2 else [-0.5, 0.5])


def by_formula(X, residual, B):
    """n / (log(2 d) Lambda), Lambda = sum of the B largest squares of X'r over r'r."""
    scores = np.sort(np.square(X.T @ residual))[::-1][:B]
    return len(X) / np.log(2.0 * X.shape[1]) * np.square(residual).sum() / scores.sum()


@pytest.mark.parametrize(("loss", "curvature"), [("squared_hinge", 1.0), ("logistic", 0.25)])
def test_of_two_classes_it_is_that_of_the_centred_labels(loss, curvature):
    X, y = rows()
    model = FGMClassifier(B=5, max_rounds=2, loss=loss).fit(X, y)
    np.testing.assert_allclose(model.C_, by_formula(X, y - y.mean(), 5) / curvature, rtol=1e-6)
    given = FGMClassifier(B=5, max_rounds=2, loss=loss, C=model.C_, scale="standard").fit(X, y)
    np.testing.assert_array_equal(model.coef_, given.coef_)
    assert (model.objective_, model.outer_gap_, given.C_) == (given.objective_, given.outer_gap_, model.C_)


def test_without_an_intercept_it_is_that_of_the_labels():
    X, y = rows()
    model = FGMClassifier(B=5, max_rounds=2, fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(model.C_, by_formula(X / np.abs(X).max(axis=0), 2.0 * y - 1.0, 5), rtol=1e-6)
    model = FGMClassifier(B=5, max_rounds=2, fit_intercept=False, scale=None).fit(X, y)
    np.testing.assert_allclose(model.C_, by_formula(X, 2.0 * y - 1.0, 5), rtol=1e-6)


def test_of_a_target_it_is_that_of_the_deviations_whatever_their_unit():
    X, _ = rows()
    z = X[:, 2] + 0.1 * X[:, 3] ** 2
    models = [FGMRegressor(B=5, max_rounds=2).fit(X, unit * z + 7.0) for unit in (1.0, 1e-6, 1e9)]
    for model in models:
        np.testing.assert_allclose(model.C_, by_formula(X, z - z.mean(), 5), rtol=1e-6)
        np.testing.assert_array_equal(model.selected_, models[0].selected_)


def test_of_several_classes_each_has_its_own():
    X, y = rows(classes=3)
    model = FGMClassifier(B=4, max_rounds=2).fit(X, y)
    alone = [FGMClassifier(B=4, max_rounds=2).fit(X, y == k).C_ for k in range(3)]
    np.testing.assert_allclose(model.C_, alone, rtol=1e-12)


@pytest.mark.parametrize("scaling", ["auto", None])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_unit_of_the_columns_changes_no_decision(form, scaling):
    X, y = rows()
    plain, scaled = (FGMClassifier(B=5, scale=scaling).fit(form(unit * X), y) for unit in (1.0, 1024.0))
    np.testing.assert_allclose(plain.C_, (1024.0**2 if scaling is None else 1.0) * scaled.C_, rtol=1e-6)
    np.testing.assert_array_equal(plain.selected_, scaled.selected_)
    np.testing.assert_allclose(plain.decision_function(form(X)), scaled.decision_function(form(1024.0 * X)), atol=1e-6)


def test_a_weight_of_two_is_a_row_that_is_there_twice():
    X, y = rows()
    twice = FGMClassifier(B=5, max_rounds=2).fit(np.vstack([X, X]), np.concatenate([y, y]))
    weighted = FGMClassifier(B=5, max_rounds=2).fit(X, y, sample_weight=np.full(len(y), 2.0))
    np.testing.assert_allclose(twice.C_, weighted.C_, rtol=1e-6)
    np.testing.assert_allclose(twice.decision_function(X), weighted.decision_function(X), atol=1e-4)


def test_a_run_keeps_it_and_resumes_with_it(tmp_path):
    X, y = rows()
    store = ingest((X, y), tmp_path / "data").url
    params = {"B": 5, "max_rounds": 4}
    straight = run_method("fgm", params, data=store, run=str(tmp_path / "straight"))
    with pytest.raises(Stopped):
        run_method("fgm", params, data=store, run=str(tmp_path / "killed"), on_event=stop_after_two)
    resume_run(str(tmp_path / "killed"))
    models = [load_model(tmp_path / name) for name in ("straight", "killed")]
    assert models[0].C_ == models[1].C_ == straight.summary["C"]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)
    assert models[0].get_params()["C"] == "auto"

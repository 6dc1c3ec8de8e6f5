"""Two layers for a real target: objective and stationarity by their definitions, units, added kernels, runs."""

import json

import numpy as np
import pytest
from sklearn.svm import SVR

from gramplane.pipeline import TwoLayerMKLRegressor, cross_validate, load_model, score_store
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.pipeline.methods.two_layer_mkl.test_two_layer import KERNELS, coefficients, normalised
from tests.support.oracles import two_layer as oracle

GIVEN = {"C": 2.0, "scale": None, "decrease_tol": 0.0}


def rows(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    return X, 40.0 + 5.0 * X[:, 0] * X[:, 1] + np.sin(2 * X[:, 2]) + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return TwoLayerMKLRegressor(KERNELS, **GIVEN).fit(X, y), X, y


def value(grams, y, mu):
    """F at given weights by another solver, and the regression."""
    layer = oracle.second_layer(grams, mu)
    peer = SVR(kernel="precomputed", C=2.0, epsilon=0.1, tol=1e-6).fit(layer, y)
    beta = np.zeros(len(y))
    beta[peer.support_] = peer.dual_coef_[0]
    return beta @ y - 0.1 * np.abs(beta).sum() - 0.5 * beta @ layer @ beta + 0.1 * len(y) * mu.sum(), peer


def test_objective_weights_and_decisions_are_those_of_the_definition(fitted):
    model, X, y = fitted
    grams, scaled, mu = normalised(KERNELS, X), (y - y.mean()) / y.std(), model.kernel_weights_
    least, peer = value(grams, scaled, mu)
    assert model.objective_ == pytest.approx(y.var() * least, rel=1e-4) and 0 <= model.machine_gap_ <= 1e-3 * model.objective_
    np.testing.assert_allclose(model.predict(X), y.mean() + y.std() * peer.predict(oracle.second_layer(grams, mu)), atol=0.02 * y.std())
    beta = coefficients(model, len(y)) / y.std()
    layer = oracle.second_layer(grams, mu)
    slopes = 0.1 * len(y) - 0.5 * np.array([beta @ (layer * gram) @ beta for gram in grams])
    assert np.abs(slopes[mu > 0]).max() <= 0.01 * len(y) and slopes[mu == 0].min(initial=1.0) >= -0.01 * len(y)
    for q in range(len(mu)):
        assert value(grams, scaled, mu + 0.05 * np.eye(len(mu))[q])[0] >= least * (1 - 1e-4)


def test_the_unit_of_the_target_is_that_of_values_and_objective(fitted):
    model, X, y = fitted
    other = TwoLayerMKLRegressor(KERNELS, **GIVEN).fit(X, 1000.0 * y - 7.0)
    np.testing.assert_allclose(other.kernel_weights_, model.kernel_weights_, rtol=1e-6)
    np.testing.assert_allclose(other.predict(X), 1000.0 * model.predict(X) - 7.0, rtol=1e-6)
    for name in ("objective", "gap"):
        np.testing.assert_allclose(other.history_[name], 1e6 * model.history_[name], rtol=1e-3, atol=10.0)
    assert other.violation_ == pytest.approx(model.violation_, rel=1e-3) and other.penalty_ == model.penalty_


def test_an_added_gaussian_lowers_the_objective(fitted):
    _, X, y = fitted
    plain = TwoLayerMKLRegressor(["linear"], **GIVEN).fit(X, y)
    grown = TwoLayerMKLRegressor(["linear"], **GIVEN, infinite=True, max_new_kernels=1).fit(X, y)
    assert len(grown.kernels_) == 2 and grown.objective_ < 0.99 * plain.objective_


def test_a_run_is_the_estimator_and_its_score_is_r2(tmp_path, fitted):
    _, X, y = fitted
    train, run = str(tmp_path / "data.zarr"), str(tmp_path / "run")
    ingest((X, y), train, task="regression")
    words = ['--set=kernels=["linear", "rbf(gamma=0.3)"]', "--set=max_iter=5"]
    assert main(["fit", "two-layer-mkl", "--data", train, "--run", run, "--quiet", *words]) in (0, 4)
    model, direct = load_model(run), TwoLayerMKLRegressor(["linear", "rbf(gamma=0.3)"], max_iter=5).fit(train)
    assert isinstance(model, TwoLayerMKLRegressor) and model.predict(X).tobytes() == direct.predict(X).tobytes()
    assert score_store(run, train)["r2"] == pytest.approx(direct.score(X, y), abs=1e-6)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["train_r2"] == pytest.approx(direct.score(X, y), abs=1e-6)
    low, high = (cross_validate("two-layer-mkl", {"kernels": ["rbf(gamma=0.3)"], "C": C}, data=train, folds=2)[0] for C in (1e-3, 10.0))
    assert high["r2"] > max(low["r2"], 0.0) and high["mse"] < min(low["mse"], y.var())


def test_a_model_without_kernels_is_told(fitted):
    _, X, y = fitted
    with pytest.warns(UserWarning, match=r"no kernel has a weight: penalty=1e\+06 is too large"):
        model = TwoLayerMKLRegressor(["linear"], penalty=1e6).fit(X, y)
    assert np.ptp(model.predict(X)) <= 1e-6 * y.std()

"""The kernel selection path of a real target: alignments, the SVM at a point, units, runs."""

import numpy as np
import pytest
from sklearn.svm import SVR

from gramplane.pipeline import KTASelectionPathRegressor, load_model, score_store
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.pipeline.methods.kta_path.test_path import centred, gaussian
from tests.support.oracles import kta as oracle


def rows(n=90, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 40.0 + 3.0 * X[:, 1] - 2.0 * np.sin(2 * X[:, 4]) + 0.3 * rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return KTASelectionPathRegressor(dp=0.05).fit(X, y), X, y


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_alignments_are_those_of_the_centred_and_scaled_target(kernel, fitted):
    _, X, y = fitted
    model, scaled = KTASelectionPathRegressor(kernel=kernel, dp=0.5).fit(X, y), (y - y.mean()) / y.std()
    for i in range(12):
        value, trace = oracle.alignment(X[:, i], scaled, kernel, model.widths_[i] or 1.0)
        np.testing.assert_allclose([model.alignments_[i], model.traces_[i]], [value, trace], rtol=1e-5, atol=1e-4)
    assert set(np.argsort(-model.alignments_)[:2].tolist()) == {1, 4} or kernel == "linear"


def test_the_model_at_a_point_is_the_svr_of_the_centred_unit_trace_kernels(fitted):
    path, X, y = fitted
    weights, K = path.weights_at(1.3), np.zeros((90, 90))
    for i in path.active_at(1.3):
        own = centred(gaussian(X[:, i], path.widths_[i]))
        K += weights[i] * own / np.trace(own)
    K *= 90 / weights.sum()
    peer = SVR(kernel="precomputed", C=3.0, epsilon=0.1, tol=1e-6).fit(K, (y - y.mean()) / y.std())
    machine = path.svm_at(1.3, 3.0)
    np.testing.assert_allclose(machine.predict(X), y.mean() + y.std() * peer.predict(K), atol=5e-3 * y.std())
    np.testing.assert_array_equal(machine.training_values().shape, (90,))
    with pytest.raises(ValueError, match="no probabilities"):
        machine.predict_proba(X)


def test_the_unit_of_the_target_moves_nothing_but_values_and_objective(fitted):
    path, X, y = fitted
    other = KTASelectionPathRegressor(dp=0.05).fit(X, 1000.0 * y - 7.0)
    np.testing.assert_allclose(other.alignments_, path.alignments_, rtol=1e-9)
    assert other.n_active_.tolist() == path.n_active_.tolist() and other.p_ == path.p_
    np.testing.assert_allclose(other.predict(X), 1000.0 * path.predict(X) - 7.0, rtol=1e-6)
    np.testing.assert_allclose(other.path_scores_["train_r2"], path.path_scores_["train_r2"], atol=1e-6)
    for name in ("objective", "gap"):
        assert other.model_.figures[name] == pytest.approx(1e6 * path.model_.figures[name], rel=1e-4)


def test_a_run_is_the_estimator_and_its_path_has_r2(tmp_path, fitted):
    _, X, y = fitted
    train, run = str(tmp_path / "data.zarr"), str(tmp_path / "run")
    ingest((X, y), train, task="regression")
    assert main(["fit", "kta-path", "--data", train, "--run", run, "--set", "dp=0.1", "--test-share", "0.2", "--quiet"]) == 0
    model = load_model(run)
    assert isinstance(model, KTASelectionPathRegressor) and model.path_scores_["train_r2"].min() > 0.3
    told = score_store(run, train)
    assert told["rows"] == 18 and 0.5 < told["r2"] < 1
    assert main(["report", run, "--out", str(tmp_path / "report"), "--quiet"]) == 0
    assert "R2 against number of kernels along p" in (tmp_path / "report" / "report.html").read_text()
    assert "train_r2" in (tmp_path / "report" / "path.csv").read_text().splitlines()[0]
    whole = KTASelectionPathRegressor(dp=0.1).fit(train)
    assert whole.predict(X).tobytes() == KTASelectionPathRegressor(dp=0.1).fit(X, y).predict(X).tobytes()


def test_a_constant_target_is_refused():
    with pytest.raises(ValueError, match="y is constant"):
        KTASelectionPathRegressor().fit(rows()[0], np.full(90, 2.0))

"""The batch optimum of the group lasso as a user types it: fit, certificate, score, predict, report, tune; and on worker processes."""

import numpy as np
import pytest

from gramplane.pipeline import GroupLassoClassifier, GroupLassoRegressor, load_model
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.commands import result

GROUPS = np.arange(12) // 3


def data(n=90, real=True):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 12))
    y = 2 * X[:, 3] - X[:, 4] + 0.5 * X[:, 9] + 0.3 * rng.normal(size=n)
    return X, y if real else np.array(["low", "mid", "high"])[np.digitize(y, [-1, 1])]


def fit(store, run, *settings, options=()):
    chosen = ("algorithm=fista", *settings)
    return ["fit", "group-lasso", "--data", store, "--run", run, *options, *(word for one in chosen for word in ("--set", one))]


@pytest.mark.parametrize("real", [True, False])
def test_fit_score_predict_report_and_load(tmp_path, capsys, real):
    X, y = data(real=real)
    store, run = tmp_path / "store", tmp_path / "run"
    ingest((X, y), store, task="regression" if real else "classification", groups=GROUPS, scale="standard")
    settings = ["lam=0.05", "tol=1e-6"]
    planned = result(fit(store, run, *settings, options=["--dry-run"]), capsys)
    assert planned["plan"]["engine"] == ("gram" if real else "working_set")
    done = result(fit(store, run, *settings, options=["--test-share", "0.2"]), capsys)["summary"]
    assert done["stop"] == "tol"
    assert 0 <= done["gap"] <= 1e-6 * done["objective"]
    assert done["lambda_max"] > 0.05
    assert 0 < done["n_groups"] < 4
    last = RunStore.open(run).history()[-1]
    assert last["test_r2" if real else "test_accuracy"] > (0.9 if real else 0.6)
    scores = result(["score", run, store], capsys)
    assert scores["r2" if real else "accuracy"] > (0.9 if real else 0.6)
    result(["predict", run, store, tmp_path / "out.csv"], capsys)
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 91
    result(["report", run], capsys)
    assert "lambda_max" in (run / "report.html").read_text()
    model = load_model(str(run))
    assert isinstance(model, GroupLassoRegressor if real else GroupLassoClassifier)
    assert model.converged_
    assert model.predict(X).shape == y.shape


def test_a_store_and_arrays_have_one_optimum(tmp_path):
    X, y = data()
    store = ingest((X, y), tmp_path / "store", task="regression", groups=GROUPS)
    made = GroupLassoRegressor(algorithm="fista", lam=0.1, penalty="sgl", r=0.3, tol=1e-8, scale=None)
    there, here = made.fit(store), GroupLassoRegressor(**{**made.get_params(), "groups": GROUPS}).fit(X, y)
    assert (there.coef_ == here.coef_).all()
    assert there.objective_ == here.objective_
    f = here.predict(X)
    norms = np.linalg.norm(here.coef_.reshape(4, 3), axis=1)
    exact = np.mean((y - f) ** 2) / 2 + 0.1 * (np.sqrt(3) * norms.sum() + 0.3 * np.abs(here.coef_).sum())
    np.testing.assert_allclose(here.objective_, exact, rtol=1e-10)


def test_tune_compares_penalties_on_folds(tmp_path, capsys):
    X, y = data()
    ingest((X, y), tmp_path / "store", task="regression", groups=GROUPS)
    words = ["tune", "group-lasso", "--data", tmp_path / "store", "--run", tmp_path / "tuned", "--folds", "3"]
    found = result([*words, "--set", "algorithm=fista", "--grid", "lam=0.02,0.5"], capsys)["summary"]
    assert found["best"]["lam"] == 0.02


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["lam=0"], "algorithm='fista' needs a penalty; without one there is no certificate"),
        (["loss=hinge"], "loss='hinge': the target holds real numbers\nhelp: use 'squared'"),
        (["lam=-1"], "lam"),
        (["tol=0"], "tol"),
    ],
)
def test_what_does_not_suit_is_refused_before_work(tmp_path, capsys, settings, message):
    X, y = data()
    ingest((X, y), tmp_path / "store", task="regression", groups=GROUPS)
    assert main([str(word) for word in fit(tmp_path / "store", tmp_path / "run", *settings)]) == 2
    assert message in capsys.readouterr().err


def test_a_batch_has_no_partial_fit():
    X, y = data()
    made = GroupLassoRegressor(algorithm="fista", lam=0.1, scale=None).fit(X, y)
    assert not hasattr(made, "partial_fit")
    with pytest.raises(AttributeError) as found:
        made.partial_fit(X, y)
    assert "needs all rows at once; partial_fit takes algorithm='da' or 'fobos'" in str(found.value.__cause__)
    assert hasattr(made.set_params(algorithm="fobos"), "partial_fit")


def test_sample_weights_count_rows():
    X, y = data(real=False)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    made = GroupLassoClassifier(algorithm="fista", groups=GROUPS, lam=0.05, tol=1e-9, scale=None)
    repeated = np.repeat(np.arange(len(y)), weight)
    one = made.fit(X, y, sample_weight=weight).coef_.copy()
    np.testing.assert_allclose(made.fit(X[repeated], y[repeated]).coef_, one, atol=1e-5)

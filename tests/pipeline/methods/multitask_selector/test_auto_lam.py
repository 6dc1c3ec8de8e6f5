"""lam of feature selection over many tasks where it follows from the data: its formula, both ways of a fit, weights, resume."""

import numpy as np
import pytest

from gramplane import MultiTaskSelector, load_model, resume_run, run_method
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest


class Stopped(Exception):
    """The run is ended from outside."""


def rows(n=240, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X, task = rng.normal(size=(n, d)), np.arange(n) % 3
    return X, X[:, 0] * (1.0 + task) + (task == 1) * X[:, 3] + rng.normal(size=n) + 5.0, task


def by_formula(X, y, task, penalty="amtfs"):
    """1.2 Q log(2 d) / n of the largest norm over tasks of the gradients about each task's mean."""
    pulls = np.stack([X[task == t].T @ (y[task == t] - y[task == t].mean()) / np.sum(task == t) for t in np.unique(task)])
    return 1.2 * len(pulls) * np.log(2.0 * X.shape[1]) / len(X) * np.linalg.norm(pulls, axis=0).max()


def test_it_is_that_of_the_gradients_about_the_means():
    X, y, task = rows()
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    model = MultiTaskSelector(penalty="amtfs").fit(X, y, task)
    np.testing.assert_allclose(model.lam_, by_formula(X, y, task), rtol=1e-10)
    given = MultiTaskSelector(penalty="amtfs", lam=model.lam_, scale="standard").fit(X, y, task)
    np.testing.assert_array_equal(model.coef_, given.coef_)
    assert given.lam_ == model.lam_ and np.isfinite(model.dual_gap_)


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_out_of_core_it_is_the_same(tmp_path, loss):
    X, y, task = rows()
    y = y if loss == "squared" else (y > 5.0).astype(int)
    store = ingest((X, y), tmp_path / "s", task_column=task, task="regression" if loss == "squared" else "classification").url
    params = {"loss": loss, "tol": 1e-6, "max_iter": 5000}
    found = []
    for name, memory in (("memory", "1GiB"), ("core", 120_000)):
        run_method("multitask-selector", params, data=store, run=str(tmp_path / name), driver_memory=memory)
        found.append(load_model(tmp_path / name))
    assert RunStore.open(tmp_path / "core").read_json("decisions")["engine"] == "working_set"
    np.testing.assert_allclose(found[0].lam_, found[1].lam_, rtol=1e-10)
    np.testing.assert_allclose(found[0].coef_, found[1].coef_, atol=1e-2)


def test_the_unit_of_the_target_and_rows_that_are_there_twice():
    X, y, task = rows()
    plain = MultiTaskSelector(penalty="amtfs").fit(X, y, task)
    scaled = MultiTaskSelector(penalty="amtfs").fit(X, 64.0 * y, task)
    np.testing.assert_allclose(scaled.coef_, 64.0 * plain.coef_, rtol=1e-9)
    twice = MultiTaskSelector(penalty="amtfs").fit(np.vstack([X, X]), np.tile(y, 2), np.tile(task, 2))
    weighted = MultiTaskSelector(penalty="amtfs").fit(X, y, task, np.full(len(y), 2.0))
    np.testing.assert_allclose(twice.lam_, weighted.lam_, rtol=1e-10)
    np.testing.assert_allclose(twice.lam_, plain.lam_ / 2.0, rtol=1e-10)


def test_a_killed_run_goes_on_with_it(tmp_path):
    X, y, task = rows()
    store = ingest((X, (y > 5.0).astype(int)), tmp_path / "s", task_column=task).url
    params = {"loss": "logistic", "refit": 0.01, "tol": 1e-8}

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 1:
            raise Stopped

    run_method("multitask-selector", params, data=store, run=str(tmp_path / "straight"))
    with pytest.raises(Stopped):
        run_method("multitask-selector", params, data=store, run=str(tmp_path / "killed"), on_event=stop)
    resume_run(str(tmp_path / "killed"))
    straight, killed = (load_model(tmp_path / name) for name in ("straight", "killed"))
    np.testing.assert_array_equal(straight.coef_, killed.coef_)
    assert straight.lam_ == killed.lam_ == 0.01, "of the second fit"


def test_without_a_signal_nothing_is_selected_and_zero_is_a_stream():
    X, _, task = rows()
    with pytest.warns(UserWarning, match="selects no feature"):
        model = MultiTaskSelector().fit(X, np.full(len(X), 3.0), task)
    assert not model.coef_.any() and model.lam_ > 0
    assert np.isnan(MultiTaskSelector(lam=0.0, gamma=50.0).fit(*rows()).dual_gap_)


def test_a_stream_after_a_batch_fit_begins_anew_and_says_so():
    X, y, task = rows()
    machine = MultiTaskSelector(gamma=1.0).fit(X, y, task)
    with pytest.warns(UserWarning, match="partial_fit begins anew"):
        machine.partial_fit(X[:30] / 10.0, y[:30] / 10.0, task[:30])
    expected = MultiTaskSelector().partial_fit(X[:30] / 10.0, y[:30] / 10.0, task[:30])
    np.testing.assert_array_equal(machine.coef_, expected.coef_)

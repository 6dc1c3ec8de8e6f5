"""Norms over tasks from 1 to infinity, and forward-backward splitting: estimators, runs out of core, the command line."""

import numpy as np
import pytest

from gramplane import MultiTaskSelector
from gramplane.pipeline import load_model, run_method
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support.commands import result
from tests.support.oracles import group_lasso as oracle
from tests.support.oracles.lp_norms import dual_power, norm

D, TASKS = 8, 3
FEW = {"lam": 0.05, "gamma": 30.0, "epochs": 2}


def problem(n=60):
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(n, D)), np.arange(n) % TASKS
    W = np.zeros((TASKS, D))
    W[:, :3] = rng.normal(size=(TASKS, 3)) + 1.0
    return X, (X * W[codes]).sum(axis=1) + 0.3 * rng.normal(size=n) + codes, codes


def bits(model):
    return model.coef_.tobytes() + model.intercept_.tobytes()


@pytest.mark.parametrize("algorithm", ["da", "fobos", "fista"])
@pytest.mark.parametrize(("p", "name"), [(1, "imtfs"), (2, "amtfs")])
def test_the_norms_1_and_2_are_imtfs_and_amtfs(p, name, algorithm):
    X, y, codes = problem()
    params = FEW if algorithm != "fista" else {"lam": 0.2}
    one = MultiTaskSelector(penalty="lp1", p=p, algorithm=algorithm, **params).fit(X, y, codes)
    assert bits(one) == bits(MultiTaskSelector(penalty=name, algorithm=algorithm, **params).fit(X, y, codes))
    assert one.coef_.any()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("p", [1.5, 4.0, np.inf])
def test_the_optimum_is_that_of_a_general_solver(p, loss):
    X, y, codes = problem()
    signs = np.where(y > np.median(y), 1.0, -1.0)
    target = y if loss == "squared" else signs
    model = MultiTaskSelector(penalty="lp1", p=p, loss=loss, lam=0.1, tol=1e-8, scale=None, fit_intercept=False).fit(X, target, codes)
    tasks = [(X[codes == q], target[codes == q], np.full(20, 1 / 20)) for q in range(TASKS)]
    best = oracle.dual_optimum(tasks, [[j] for j in range(D)], np.ones(D), np.zeros(D), 0.1, loss, False, p)
    assert -1e-7 <= model.objective_ - best <= model.dual_gap_ + 2e-6 * best
    assert model.converged_ and len(model.get_support(indices=True))
    values = [X_q @ w for (X_q, _, _), w in zip(tasks, model.coef_, strict=True)]
    told = sum(np.mean(oracle.losses(loss, y_q, f)) for (_, y_q, _), f in zip(tasks, values, strict=True))
    assert model.objective_ == pytest.approx(told + 0.1 * sum(norm(w, p) for w in model.coef_.T))
    null = np.stack([X_q.T @ (y_q if loss == "squared" else 0.5 * y_q) / 20 for X_q, y_q, _ in tasks])
    largest = max(norm(z, dual_power(p)) for z in null.T)
    for factor, is_empty in ((1.001, True), (0.99, False)):
        assert model.set_params(lam=factor * largest).fit(X, target, codes).coef_.any() != is_empty
    auto = model.set_params(lam="auto").fit(X, target, codes)
    assert auto.model_.figures["lambda_max"] == pytest.approx(largest)


@pytest.mark.parametrize("p", [1.5, 5.0, np.inf])
def test_a_working_set_ends_at_the_same_optimum(tmp_path, monkeypatch, p):
    monkeypatch.setattr("gramplane.pipeline.methods.multitask_selector.working_problem.first_features", lambda *sizes: 2)
    monkeypatch.setattr("gramplane.pipeline.methods.multitask_selector.working_problem.MORE_FEATURES", 2)
    X, y, codes = problem(240)
    X = np.hstack([X, 0.3 * np.random.default_rng(1).normal(size=(240, 62))])
    store = ingest((X, y), tmp_path / "data", task_column=codes, task="regression")
    params = {"penalty": "lp1", "p": p, "lam": 0.1, "tol": 1e-7, "scale": None}
    done = run_method("multitask-selector", params, data=store.url, run=str(tmp_path / "run"), driver_memory=400 << 10).summary
    assert RunStore.open(tmp_path / "run").read_json("decisions")["engine"] == "working_set"
    whole = MultiTaskSelector(**params).fit(X, y, codes)
    assert abs(done["objective"] - whole.objective_) <= done["gap"] + whole.dual_gap_ + 1e-12
    assert done["certified_over"] == "all features" and done["gap"] <= 1e-7 * done["objective"]


@pytest.mark.parametrize("penalty", [{"penalty": "lp1", "p": np.inf}, {"penalty": "mtfts"}])
def test_splitting_learns_the_same_in_pieces(penalty):
    X, y, codes = problem()
    params = {**penalty, "algorithm": "fobos", "lam": 0.05, "gamma": 30.0, "shuffle": False}
    whole, pieces = MultiTaskSelector(**params).fit(X, y, codes), MultiTaskSelector(**params)
    for lo, hi in ((0, 1), (1, 32), (32, 60)):
        pieces.partial_fit(X[lo:hi], y[lo:hi], codes[lo:hi], tasks=np.arange(TASKS))
    assert bits(pieces) == bits(whole) and np.isnan(whole.dual_gap_)
    long = MultiTaskSelector(**{**params, "gamma": 5.0, "epochs": 400}).fit(X, y, codes)
    best = MultiTaskSelector(**penalty, lam=0.05, scale=None).fit(X, y, codes)
    assert best.objective_ <= long.objective_ <= 1.001 * best.objective_ < 0.5 * whole.objective_


def test_a_command_takes_an_infinite_norm(tmp_path, capsys):
    X, y, codes = problem()
    store = ingest((X, y), tmp_path / "data", task_column=codes, task="regression")
    typed = ["fit", "multitask-selector", "--data", store.url, "--run", tmp_path / "run", "--penalty", "lp1", "--p", "inf", "--lam", "0.1"]
    assert result(typed, capsys)["summary"]["n_selected"] > 0
    result(typed, capsys)
    expected = MultiTaskSelector(penalty="lp1", p=np.inf, lam=0.1).fit(X, y, codes)
    assert load_model(tmp_path / "run").coef_.tobytes() == expected.coef_.tobytes()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"p": 3.0}, r"p=3\.0 needs penalty='lp1', here it is 'mtfts'"),
        ({"penalty": "lp1", "p": 0.5}, "p=0.5.*at least 1"),
        ({"penalty": "lp1", "p": np.nan}, "p=nan.*finite"),
        ({"penalty": "lp1", "p": 3.0, "loss": "hinge"}, "loss='hinge' .* p=3 has no batch solver; use loss='logistic', or algorithm='da'"),
    ],
)
def test_what_does_not_go_together_is_refused(params, words):
    X, y, codes = problem()
    with pytest.raises(ValueError, match=words):
        MultiTaskSelector(**params).fit(X, np.where(y > 0, 1, -1) if "loss" in params else y, codes)

"""Rules of real targets through every door: certificates, units, rules, missing cells, categories, tasks, runs."""

import csv
import json
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from gramplane.kernels.rules.bits import pack_bits
from gramplane.kernels.rules.lattice import RuleLattice
from gramplane.kernels.rules.machine import solve_rules
from gramplane.kernels.rules.row_losses import SQUARED, tube_loss
from gramplane.pipeline import RuleEnsembleClassifier, RuleEnsembleRegressor, load_model, run_method, score_store
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main

QUICK = {"n_thresholds": 3, "max_visits": 20_000}


def planted(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    return X, 40.0 + 6.0 * ((X[:, 0] > 0.3) & (X[:, 1] <= 0.1)) - 3.0 * (X[:, 2] > 0) + rng.normal(size=n)


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return RuleEnsembleRegressor(**QUICK).fit(X, y), X, y


@pytest.mark.parametrize("loss", ["squared", "epsilon_insensitive"])
def test_the_certificate_is_that_of_all_conjunctions(loss):
    rng = np.random.default_rng(1)
    flags = rng.random((3, 70)) < 0.5
    y = 10.0 * (flags[0] & flags[1]) + 2.0 * rng.normal(size=70)
    model = RuleEnsembleRegressor(C=0.5, loss=loss, refine_cuts=False, skip_implied=False, tol=1e-2).fit(flags.T.astype(float), y)
    # In the unit of the target: a hull of all 2^6 conjunctions of the three columns and their complements.
    size, both = y.std(), np.concatenate([flags, ~flags]).astype(np.uint8)
    kind = SQUARED if loss == "squared" else tube_loss(0.1)
    lattice = RuleLattice(pack_bits(both), 70, (np.arange(70),), ((y - y.mean()) / size,), (np.full(70, 0.5),), np.eye(1), 2.0, False, kind)
    every = [list(item) for k in range(7) for item in combinations(range(6), k)]
    point = solve_rules(lattice.problem(lattice.hull(lattice.named(every)), 1.1), tol=1e-4)
    assert model.certificate_["complete"]
    assert model.objective_ - model.dual_gap_ <= size**2 * point.objective * (1 + 1e-9)
    assert size**2 * point.dual <= model.objective_ * (1 + 1e-9) and 0 < model.dual_gap_ <= 1e-2 * model.objective_


def test_predictions_are_the_intercept_and_the_weights_of_the_rules_that_hold(fitted):
    model, X, y = fitted
    weights = np.array([rule["weight"] for rule in model.rules_])
    np.testing.assert_allclose(model.predict(X), model.intercept_[0] + model.transform(X) @ weights, rtol=1e-12)
    assert [rule["vote"] for rule in model.rules_] == np.sign(weights).tolist()
    assert (np.diff(np.abs(weights)) <= 0).all() and model.score(X, y) > 0.8
    first = model.rules_[0]
    assert first["columns"] == [0, 1] and first["vote"] == 1 and first["weight"] > 2.0
    assert model.coef_[0].tolist() == weights.tolist()


def test_the_unit_of_the_target_is_that_of_weights_and_objective(fitted):
    model, X, y = fitted
    other = RuleEnsembleRegressor(**QUICK).fit(X, 1000.0 * y - 7.0)
    assert [rule["text"] for rule in other.rules_] == [rule["text"] for rule in model.rules_]
    np.testing.assert_allclose(other.coef_, 1000.0 * model.coef_, rtol=1e-6)
    np.testing.assert_allclose(other.predict(X), 1000.0 * model.predict(X) - 7.0, rtol=1e-6)
    for name in ("objective", "gap", "restricted_gap", "refit_objective"):
        np.testing.assert_allclose(other.history_[name], 1e6 * model.history_[name], rtol=1e-5)
    assert other.dual_gap_ == pytest.approx(1e6 * model.dual_gap_, rel=1e-3)


def test_a_constant_target_has_no_rules():
    model = RuleEnsembleRegressor(**QUICK).fit(planted()[0], np.full(200, 3.5))
    assert model.rules_ == [] and model.predict(np.zeros((2, 4))).tolist() == [3.5, 3.5]


def test_missing_cells_categories_and_tasks_are_as_for_classes():
    rng = np.random.default_rng(0)
    age, ward, task = rng.uniform(20, 80, 240).round(), rng.choice(["north", "east", "west"], 240), np.arange(240) % 2
    age[rng.random(240) < 0.2] = np.nan
    y = 5.0 * np.isnan(age) + 4.0 * (ward == "east") * (task == 0) - 4.0 * (ward == "east") * (task == 1) + 0.1 * rng.normal(size=240)
    frame = pd.DataFrame({"age": age, "ward": ward})
    model = RuleEnsembleRegressor(n_thresholds=3).fit(frame, y, task)
    weights = {rule["text"]: rule["weights"] for rule in model.rules_}
    assert weights["age is missing"]["0"] > 1 and weights["age is missing"]["1"] > 1
    assert weights["ward = east"]["0"] > 1 and weights["ward = east"]["1"] < -1
    assert model.score(frame, y, task) > 0.9


def test_a_run_is_the_estimator_and_its_score_is_r2(tmp_path, fitted):
    _, X, y = fitted
    train, run = str(tmp_path / "data.zarr"), str(tmp_path / "run")
    ingest((X, y), train, task="regression", names=["age", "size", "c", "d"])
    words = [f"--set={name}={value}" for name, value in QUICK.items()]
    assert main(["fit", "rule-ensemble", "--data", train, "--run", run, "--quiet", *words]) == 0
    model, direct = load_model(run), RuleEnsembleRegressor(**QUICK).fit(train)
    assert isinstance(model, RuleEnsembleRegressor) and model.rules_ == direct.rules_
    assert score_store(run, train)["r2"] == pytest.approx(direct.score(X, y))
    assert main(["report", run, "--out", str(tmp_path / "report"), "--quiet"]) == 0
    rows = list(csv.DictReader((tmp_path / "report" / "rules.csv").open()))
    assert [float(row["weight"]) for row in rows] == pytest.approx([rule["weight"] for rule in model.rules_])
    page = (tmp_path / "report" / "report.html").read_text()
    assert "what each adds to the prediction" in page and "predicts" not in page.split("Rules by weight")[0][-2000:]
    assert json.loads(model.to_json())["classes"] is None


def test_losses_and_class_weights_that_do_not_suit_the_target_are_named(tmp_path):
    X, y = planted(40)
    for name, target in (("numbers", y), ("classes", y > y.mean())):
        ingest((X, target), tmp_path / name, task="regression" if name == "numbers" else "classification")
    with pytest.raises(ValueError, match=r"loss='squared': the target holds classes; use 'hinge'"):
        run_method("rule-ensemble", {"loss": "squared"}, data=str(tmp_path / "classes"), run=str(tmp_path / "a"))
    with pytest.raises(ValueError, match="there are no classes"):
        run_method("rule-ensemble", {"class_weight": "balanced"}, data=str(tmp_path / "numbers"), run=str(tmp_path / "b"))
    with pytest.raises(ValueError, match="Unknown label type"):
        RuleEnsembleClassifier().fit(X, y)

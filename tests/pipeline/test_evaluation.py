"""What a score keeps for its report: figures beside the obvious ones, small tables, and which rows they are of."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, balanced_accuracy_score, confusion_matrix

from gramplane.pipeline import run_method, score_store
from gramplane.pipeline.inputs.curves import wilson_interval
from gramplane.pipeline.runs.data import training_facts
from gramplane.pipeline.runs.evaluation import DRAWN, MAX_CURVES, MAX_POINTS, evaluate_classes, evaluate_numbers, told_figures
from gramplane.storage import RunStore
from gramplane.storage.errors import plain_json
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import classes, planted


def test_figures_of_two_classes_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    truth = (rng.random(500) < 0.2).astype(int)
    values = rng.normal(size=500) + 2 * truth - 1
    chance = 1 / (1 + np.exp(-values))
    found = evaluate_classes(truth, values[:, None], ["no", "yes"], np.column_stack([1 - chance, chance]))
    codes = (values > 0).astype(int)
    assert found["majority"] == np.mean(truth == 0) and found["majority_class"] == "no"
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, codes))
    assert found["average_precision"] == pytest.approx(average_precision_score(truth, values))
    assert found["accuracy_interval"] == wilson_interval(int(np.sum(codes == truth)), 500)
    table = {(row["true"], row["predicted"]): row["rows"] for row in found["confusion"]}
    known = confusion_matrix(truth, codes)
    assert table == {(a, b): known[i, j] for i, a in enumerate(("no", "yes")) for j, b in enumerate(("no", "yes")) if known[i, j]}
    assert {row["class"] for row in found["roc"]} == {"yes"} and {"probability", "share", "rows"} <= set(found["calibration"][0])
    assert "decision" in evaluate_classes(truth, values[:, None], ["no", "yes"])["calibration"][0]


def test_many_classes_have_curves_for_the_commonest():
    rng = np.random.default_rng(1)
    truth = np.concatenate([np.repeat(np.arange(11), 9), [11]])
    values = rng.normal(size=(100, 12)) + 3 * (truth[:, None] == np.arange(12))
    found = evaluate_classes(truth, values, list(range(12)))
    assert len({row["class"] for row in found["roc"]}) == MAX_CURVES and 11 not in {row["class"] for row in found["roc"]}
    assert sum(row["rows"] for row in found["confusion"]) == 100 and "calibration" not in found


def test_labels_that_the_fit_does_not_know_are_told_apart():
    found = evaluate_classes(np.array([-1, 0, 1, 1]), np.array([[1.0], [-1.0], [1.0], [-1.0]]), ["a", "b"])
    assert {(row["true"], row["predicted"]) for row in found["confusion"]} == {("another label", "b"), ("a", "a"), ("b", "b"), ("b", "a")}
    assert (found["majority"], found["majority_class"]) == (0.5, "b")


def test_one_class_has_no_curve():
    found = evaluate_classes(np.zeros(5, int), np.linspace(-1, 1, 5)[:, None], ["a", "b"])
    assert not {"roc", "precision_recall", "calibration", "auc_interval"} & set(found) and found["confusion"]


def test_numbers_have_their_baseline_and_few_points():
    rng = np.random.default_rng(2)
    truth = rng.normal(size=3000)
    found = evaluate_numbers(truth, truth + 0.1 * rng.normal(size=3000))
    assert found["rmse_of_mean"] == truth.std() and len(found["predictions"]) == MAX_POINTS
    shown = [row["truth"] for row in found["predictions"]]
    assert shown == sorted(shown) and (shown[0], shown[-1]) == (truth.min(), truth.max())
    low, high = found["r2_interval"]
    assert 0.98 < low < high < 1


def test_tables_are_small_whatever_the_rows():
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 30, 20_000)
    found = evaluate_classes(truth, rng.normal(size=(20_000, 30)), list(range(30)))
    assert len(json.dumps(plain_json(found))) < 300_000
    assert set(told_figures(found)) == {"accuracy_interval", "balanced_accuracy", "majority", "majority_class"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scores")
    (X, y), (Z, z) = planted(2, 90, d=12), planted(3, 60, d=12)
    X[:, 3] *= 1e5
    return ingest((X, y), str(folder / "a")), ingest((Z, z), str(folder / "b"), like=str(folder / "a"))


def test_a_score_says_which_rows_it_is_of(stores, tmp_path):
    train, other = stores
    for run, extra, which, rows in (("all", {}, "training rows", 90), ("part", {"test_share": 0.3}, "rows held out of the fit", None)):
        run_method("fgm", {"B": 3, "max_rounds": 2, "loss": "logistic"}, data=train.url, run=str(tmp_path / run), extra=extra)
        score = score_store(str(tmp_path / run), train.url)
        assert score["rows_are"] == which and score["data_digest"] == train.digest and (rows is None or score["rows"] == rows)
        assert score_store(str(tmp_path / run), other.url)["rows_are"] == "rows of another store"
        assert {"brier_score", "log_loss"} <= set(score), "of a logistic loss probabilities are exact"
        assert set(DRAWN) - {"predictions"} <= set(score)
        low, high = score["auc_interval"]
        assert low <= score["auc"] <= high


def test_scores_are_the_same_bits_every_time(stores, tmp_path):
    train, other = stores
    run_method("fgm", {"B": 3, "max_rounds": 2}, data=train.url, run=str(tmp_path / "run"))
    assert score_store(str(tmp_path / "run"), other.url) == score_store(str(tmp_path / "run"), other.url)
    assert "brier_score" not in score_store(str(tmp_path / "run"), other.url), "a hinge has no probabilities"


def test_what_is_known_of_the_training_data(stores, tmp_path):
    train, _ = stores
    run_method("fgm", {"B": 3, "max_rounds": 2, "scale": None}, data=train.url, run=str(tmp_path / "run"))
    facts = training_facts(RunStore.open(str(tmp_path / "run")))
    assert (facts["rows"], facts["columns"]) == (90, 12) and sum(facts["classes"].values()) == 90
    assert facts["widths"][1]["feature"] == "x3" and facts["widths"][1]["width"] > 1e4 * facts["widths"][0]["width"]
    run = RunStore.open(str(tmp_path / "run"))
    run.write_json("where", {"cluster": "sync", "data": str(tmp_path / "gone")})
    assert training_facts(run) == {}


def test_scaled_and_sparse_data_have_no_widths(tmp_path):
    import scipy.sparse as sp

    X, codes = classes(n=60)
    for name, data, options in (("scaled", X, {"scale": "standard"}), ("sparse", sp.csr_array(X), {})):
        store = ingest((data, codes), str(tmp_path / name), **options)
        run_method("fgm", {"B": 2, "max_rounds": 1}, data=store.url, run=str(tmp_path / f"{name}-run"))
        facts = training_facts(RunStore.open(str(tmp_path / f"{name}-run")))
        assert "widths" not in facts and len(facts["classes"]) == 3

"""Stores with missing values: the rule ensemble works on them as on arrays, everything else refuses them before work starts."""

import csv
import json
from inspect import signature
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.utils import get_tags

from gramplane import pipeline
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import (
    METHODS,
    FGMClassifier,
    MKLClassifier,
    MultiTaskMKLClassifier,
    RuleEnsembleClassifier,
    cross_validate,
    load_model,
    predict_store,
    resume_run,
    run_method,
    score_store,
    tune,
)
from gramplane.pipeline.passes import blocks
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.storage import DataError, DigestMismatch, SchemaError
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.clusters import CommandCluster

PARAMS = {"C": 3.0, "n_thresholds": 2, "max_visits": 2000, "max_rounds": 3}
RULE = "does not accept missing values, only rule-ensemble does"
N = 120


def table(seed=0):
    """Twenty columns of float32 numbers, some missing in every third; the class follows from what is missing in f0 and from f1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 20)).astype(np.float32).astype(np.float64)
    X[:, ::3] = np.where(rng.random((N, 7)) < 0.35, np.nan, X[:, ::3])
    X[:, 9] = np.nan
    return pd.DataFrame(X, columns=[f"f{k}" for k in range(20)]), np.where(np.isnan(X[:, 0]) | (X[:, 1] > 0.8), "yes", "no")


def bits(machine):
    """Everything a rule ensemble found."""
    parts = (machine.coef_, machine.intercept_, np.array(machine.objective_), machine.model_.propositions.cut, machine.model_.support)
    return [rule["text"] for rule in machine.rules_], [part.tobytes() for part in parts]


@pytest.fixture(scope="module")
def there(tmp_path_factory):
    """A folder with training and test stores, the fit of the arrays in memory, and a run."""
    folder = tmp_path_factory.mktemp("missing")
    (X, y), (Z, z) = table(), table(1)
    store = ingest((X, y), folder / "train", missing="keep")
    ingest((Z, z), folder / "test", missing="keep", like=store.url)
    with one_thread():
        machine = RuleEnsembleClassifier(**PARAMS).fit(X, y)
        run_method("rule-ensemble", PARAMS, data=str(folder / "train"), run=str(folder / "run"))
    return folder, machine, (X, y), (Z, z)


def decisions(run, store, out, **where):
    predict_store(str(run), str(store), str(out), **where)
    return np.load(out)["decision"][:, 0].tobytes()


def test_a_run_on_a_store_is_the_fit_of_the_array(there, tmp_path):
    folder, machine, _, (Z, z) = there
    found = load_model(folder / "run")
    assert bits(found) == bits(machine)
    assert any("f0 is missing" in rule["text"] for rule in found.rules_)
    assert decisions(folder / "run", folder / "test", tmp_path / "p.npz") == machine.decision_function(Z).tobytes()
    assert score_store(str(folder / "run"), str(folder / "test"))["accuracy"] == machine.score(Z, z) > 0.8
    direct = RuleEnsembleClassifier(**PARAMS).fit(str(folder / "train"))
    assert bits(direct) == bits(machine)
    assert direct.decision_function(str(folder / "test")).tobytes() == machine.decision_function(Z).tobytes()
    assert np.array_equal(direct.transform(folder / "test"), machine.transform(Z))


def stop_after(steps):
    """An event sink that ends a run."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == steps:
            raise KeyboardInterrupt

    return sink


def test_a_stopped_run_goes_on_to_the_same_bits(there, tmp_path):
    folder, machine, _, _ = there
    with pytest.raises(KeyboardInterrupt):
        run_method("rule-ensemble", PARAMS, data=str(folder / "train"), run=str(tmp_path / "run"), on_event=stop_after(2))
    assert resume_run(str(tmp_path / "run")).status == "done"
    assert bits(load_model(tmp_path / "run")) == bits(machine)


@pytest.mark.slow
@pytest.mark.cluster
def test_one_worker_and_two_give_the_same_bits(there, tmp_path, monkeypatch):
    folder, machine, (X, y), (Z, _) = there
    real = blocks.byte_groups
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 600)
    monkeypatch.setattr(blocks, "byte_groups", lambda refs, limit=0: real(refs, 2500))
    assert len(blocks.column_tasks(ingest((X, y), tmp_path / "train", missing="keep"))) == 2
    with CommandCluster(tmp_path, workers=1) as cluster:
        for count in (1, 2):
            run, where = tmp_path / f"run-{count}", {"cluster": cluster.config}
            with pytest.raises(KeyboardInterrupt):
                run_method("rule-ensemble", PARAMS, data=str(tmp_path / "train"), run=str(run), on_event=stop_after(count), **where)
            assert resume_run(str(run)).status == "done"
            assert bits(load_model(run)) == bits(machine)
            assert decisions(run, folder / "test", tmp_path / "p.npz", **where) == machine.decision_function(Z).tobytes()
            assert score_store(str(run), str(folder / "test"), **where) == score_store(str(run), str(folder / "test"))
            if count == 1:
                cluster.start_worker()
        # Arrays in memory reach the workers through a store.
        assert bits(RuleEnsembleClassifier(**PARAMS, cluster=cluster.config).fit(X, y)) == bits(machine)


def test_settings_of_rules_are_compared_on_such_a_store(there, tmp_path):
    folder, *_ = there
    params = {**PARAMS, "max_rounds": 2, "refine_cuts": False}
    (row,) = cross_validate("rule-ensemble", params, data=str(folder / "train"), folds=2)
    assert row["accuracy"] > 0.8


# -- everything else -------------------------------------------------------------------------------------------------------------------

PLACE = r"train: column 9 \('f9'\) has 120 missing values \(\d+ in all columns\); "


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"rule-ensemble"}))
def test_other_methods_refuse_the_store_before_there_is_a_folder(there, tmp_path, method):
    folder, *_ = there
    data, run = str(folder / "train"), tmp_path / "run"
    told = f"{PLACE}{method} {RULE}"
    for dry_run in (True, False):
        with pytest.raises(DataError, match=told):
            run_method(method, {}, data=data, run=str(run), dry_run=dry_run)
    if METHODS[method].config.has_scores:
        with pytest.raises(DataError, match=told):
            tune(method, {}, data=data, run=str(run))
        with pytest.raises(DataError, match=told):
            cross_validate(method, {}, data=data)
    assert not run.exists()


def test_estimators_say_the_same_as_the_registry(there):
    folder, *_ = there
    for name, info in METHODS.items():
        for kind in (*info.estimators, *info.cross_validated):
            estimator = getattr(pipeline, kind)()
            assert get_tags(estimator).input_tags.allow_nan == info.config.takes_missing == (name == "rule-ensemble")
            # Ties between users are learnt from matrices; their stores are refused as runs.
            if not info.config.takes_missing and "X" in signature(estimator.fit).parameters:
                with pytest.raises(DataError, match=f"{PLACE}{type(estimator).__name__} {RULE}"):
                    estimator.fit(str(folder / "train"))


def test_models_of_other_methods_refuse_it_too(there, tmp_path):
    folder, _, (X, y), _ = there
    ingest((np.nan_to_num(X), y), tmp_path / "whole")
    run_method("fgm", {"B": 2, "max_rounds": 1}, data=str(tmp_path / "whole"), run=str(tmp_path / "run"))
    for use in (predict_store, score_store):
        out = [str(tmp_path / "p.csv")] if use is predict_store else []
        with pytest.raises(DataError, match=f"{PLACE}fgm {RULE}"):
            use(str(tmp_path / "run"), str(folder / "train"), *out)
    assert not (tmp_path / "p.csv").exists()
    for machine in (FGMClassifier(), MKLClassifier(), MultiTaskMKLClassifier()):
        machine.model_ = SimpleNamespace(precomputed=False)
        with pytest.raises(DataError, match=f"{PLACE}{type(machine).__name__} {RULE}"):
            machine.predict(str(folder / "train"))


def test_gram_stores_refuse_it(there, tmp_path):
    folder, *_ = there
    for dry_run in (True, False):
        with pytest.raises(DataError, match=f"{PLACE}gram {RULE}"):
            build_grams(str(folder / "train"), ["linear"], str(tmp_path / "grams"), dry_run=dry_run)
    assert not (tmp_path / "grams").exists()


def test_a_run_whose_store_got_missing_values_is_not_resumed(tmp_path):
    X, y = table()
    ingest((np.nan_to_num(X), y), tmp_path / "data")
    with pytest.raises(KeyboardInterrupt):
        run_method("fgm", {"B": 2, "max_rounds": 3}, data=str(tmp_path / "data"), run=str(tmp_path / "run"), on_event=stop_after(1))
    ingest((X, y), tmp_path / "data", missing="keep", overwrite=True)
    with pytest.raises(DigestMismatch, match="the store was replaced"):
        resume_run(str(tmp_path / "run"))


# -- as typed --------------------------------------------------------------------------------------------------------------------------


def told(capsys, *words):
    capsys.readouterr()
    code = main([*map(str, words), "--json"])
    return code, json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])


def write_csv(path, X, y):
    X.assign(label=y).to_csv(path, index=False)
    assert ",," in path.read_text()


def test_the_command_line_from_a_table_with_empty_cells_to_predictions(there, tmp_path, capsys):
    _, machine, (X, y), (Z, z) = there
    write_csv(tmp_path / "train.csv", X, y)
    write_csv(tmp_path / "test.csv", Z, z)
    code, found = told(capsys, "ingest", tmp_path / "train.csv", tmp_path / "train", "--target", "label")
    assert code == 3 and "train.csv:2:" in found["error"] and "--missing keep" in found["error"] and not (tmp_path / "train").exists()
    code, found = told(capsys, "ingest", tmp_path / "train.csv", tmp_path / "train", "--target", "label", "--missing", "keep")
    assert code == 0 and found["missing"] == X.isna().sum().sum()
    more = ["--target", "label", "--like", tmp_path / "train", "--missing", "keep"]
    assert told(capsys, "ingest", tmp_path / "test.csv", tmp_path / "test", *more)[0] == 0
    assert main(["inspect", str(tmp_path / "train")]) == 0 and "missing values" in capsys.readouterr().out
    assert told(capsys, "verify", tmp_path / "train")[0] == 0
    words = [word for key, value in PARAMS.items() for word in ("--set", f"{key}={value}")]
    assert told(capsys, "fit", "rule-ensemble", "--data", tmp_path / "train", "--run", tmp_path / "run", *words)[0] == 0
    assert bits(load_model(tmp_path / "run")) == bits(machine)
    assert told(capsys, "predict", tmp_path / "run", tmp_path / "test", tmp_path / "p.csv")[0] == 0
    with (tmp_path / "p.csv").open() as file:
        assert [row["prediction"] for row in csv.DictReader(file)] == machine.predict(Z).tolist()
    assert told(capsys, "score", tmp_path / "run", tmp_path / "test")[1]["accuracy"] == machine.score(Z, z)
    for refused in (
        ("fit", "fgm", "--data", tmp_path / "train", "--run", tmp_path / "other"),
        ("fit", "mkl", "--data", tmp_path / "train", "--run", tmp_path / "other", "--dry-run"),
        ("gram", tmp_path / "train", "--kernels", "linear", "--out", tmp_path / "other"),
    ):
        code, found = told(capsys, *refused)
        assert code == 3 and RULE in found["error"] and "column 9 ('f9') has 120 missing values" in found["error"]
    assert not (tmp_path / "other").exists()


def test_refusals_of_the_command_line(tmp_path, capsys):
    (tmp_path / "a.svm").write_text("1 1:2\n")
    (tmp_path / "a.csv").write_text("a,y\n,1\n2,0\n")
    code, found = told(capsys, "ingest", tmp_path / "a.svm", tmp_path / "S", "--missing", "keep")
    assert code == 3 and "--missing keep" in found["error"] and "sparse" in found["error"]
    code, found = told(capsys, "ingest", tmp_path / "a.csv", tmp_path / "S", "--missing", "keep", "--scale", "standard")
    assert code == 3 and "scale is 'standard' with missing='keep' (--missing keep)" in found["error"]
    code, found = told(capsys, "ingest", tmp_path / "a.csv", tmp_path / "S", "--missing", "drop")
    assert code == 2 and "--missing" in found["error"] and "'keep'" in found["error"]
    with pytest.raises(SchemaError):
        ingest(tmp_path / "a.csv", tmp_path / "S", missing="keep", scale="unit-row")
    assert not (tmp_path / "S").exists()


def test_a_workflow_keeps_missing_values(tmp_path, capsys):
    X, y = table()
    write_csv(tmp_path / "train.csv", X, y)
    (tmp_path / "wf.yaml").write_text(
        "schema: gramplane.workflow/1\nname: rules\nstore: data\nsteps:\n"
        "  - {id: data, do: ingest, with: {source: train.csv, target: label, missing: keep}}\n"
        "  - {id: fit, do: fit, needs: [data], with: {method: rule-ensemble, C: 3, n_thresholds: 2, max_visits: 2000, max_rounds: 2}}\n"
    )
    assert told(capsys, "run", tmp_path / "wf.yaml")[0] == 0
    (tmp_path / "wf.yaml").write_text((tmp_path / "wf.yaml").read_text().replace("missing: keep", "missing: drop"))
    code, found = told(capsys, "run", tmp_path / "wf.yaml")
    assert code == 2 and "wf.yaml:5:" in found["error"] and "missing" in found["error"]

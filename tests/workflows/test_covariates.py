"""Real targets and covariates as a user types them: kept in the store, or in a file beside it; and in workflows."""

import csv
import json

import numpy as np
import pandas as pd
import pytest

from gramplane import FGMClassifier
from gramplane.pipeline import load_model
from gramplane.storage import BlockStore
from gramplane.workflows.cli import main
from gramplane.workflows.schema import ResultLine

BESIDE = ["age", "dose"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 10))
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(10)])
    frame["age"], frame["dose"] = 50.0 + rng.integers(0, 30, 120), 1e-3 * rng.normal(size=120)
    frame["y"] = X[:, 2] - 2 * X[:, 7] + 0.2 * frame["age"] + 900 * frame["dose"] + 0.1 * rng.normal(size=120)
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.drop(columns=BESIDE).to_csv(tmp_path / "plain.csv", index=False)
    return frame


def result(words, capsys, code=0):
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    line = capsys.readouterr().out.rstrip("\n").rpartition("\n")[2]
    return ResultLine.model_validate(json.loads(line)).model_dump()


def written(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npy":
        np.save(path, frame.to_numpy())
    elif path.suffix == ".npz":
        np.savez(path, X=frame.to_numpy())
    else:
        frame.to_csv(path, index=False)
    return path


REGRESSION = ("--target", "y", "--task", "regression")
FIT = ("--set", "B=1", "--set", "max_rounds=4")


def test_a_store_that_keeps_them(table, tmp_path, capsys):
    store, run = tmp_path / "store", tmp_path / "run"
    told = result(["ingest", tmp_path / "train.csv", store, *REGRESSION, "--covariates", "age,dose"], capsys)
    assert told["covariates"] == BESIDE and (told["rows"], told["columns"]) == (120, 10)
    assert BlockStore.open(store).meta.covariates == ("age", "dose")
    assert main(["inspect", str(store)]) == 0
    assert "covariates" in capsys.readouterr().out
    grid = ["tune", "fgm", "--data", store, "--run", run, "--task", "regression", "--grid", "C=0.01,10", *FIT, "--folds", "3"]
    plan = result([*grid, "--dry-run"], capsys)["plan"]
    assert plan["first_fit"]["covariates"] == 2
    summary = result(grid, capsys)["summary"]
    assert summary["best"]["C"] == 10 and summary["r2"] > 0.95
    fit = ["fit", "fgm", "--data", store, "--run", tmp_path / "share", "--test-share", "0.25", *FIT]
    found = result(fit, capsys)["summary"]
    assert found["covariates"] == 2 and found["test_r2"] > 0.95 and found["train_r2"] > 0.95
    assert result(["score", tmp_path / "share", store], capsys)["r2"] == pytest.approx(found["test_r2"], abs=1e-9)
    unseen = table.assign(y=table["y"] + 1)
    unseen.to_csv(tmp_path / "new.csv", index=False)
    result(["ingest", tmp_path / "new.csv", tmp_path / "new", "--like", store], capsys)
    told = result(["score", run, tmp_path / "new"], capsys)
    machine = load_model(run)
    assert told["r2"] == pytest.approx(machine.score(table.iloc[:, :10].to_numpy(), unseen["y"], covariates=table[BESIDE]))
    assert [point["r2"] for point in told["path"]][-1] == told["r2"]
    result(["predict", run, tmp_path / "new", tmp_path / "p.csv"], capsys)
    with open(tmp_path / "p.csv", newline="") as text:
        values = [float(row["prediction"]) for row in csv.DictReader(text)]
    np.testing.assert_allclose(values, machine.predict(table.iloc[:, :10].to_numpy(), covariates=table[BESIDE]), rtol=1e-9)
    result(["report", run, "--out", tmp_path / "report"], capsys)
    page = next((tmp_path / "report").glob("*.html")).read_text()
    assert "R2 along the path" in page and "Columns without a penalty" in page and "dose" in page


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".npz", ".parquet"])
def test_a_file_beside_the_store(table, tmp_path, capsys, suffix):
    store, run, file = tmp_path / "store", tmp_path / "run", written(table[BESIDE], tmp_path / f"z{suffix}")
    result(["ingest", tmp_path / "plain.csv", store, *REGRESSION], capsys)
    fit = ["fit", "fgm", "--data", store, "--run", run, "--covariates", file, *FIT]
    assert result([*fit, "--dry-run"], capsys)["plan"]["covariates"] == 2 and not run.exists()
    result(fit, capsys)
    machine = load_model(run)
    assert machine.model_.covariate_names == (("age", "dose") if suffix in (".csv", ".parquet") else ("z0", "z1"))
    np.testing.assert_allclose(machine.covariate_coef_[0], [0.2, 900.0], rtol=0.1)
    assert "give their values for these rows" in result(["score", run, store], capsys, 2)["error"]
    assert result(["score", run, store, "--covariates", file], capsys)["r2"] > 0.95
    result(["predict", run, store, tmp_path / "p.csv", "--covariates", file], capsys)
    short = written(table[BESIDE].iloc[1:], tmp_path / f"short{suffix}")
    error = result(["predict", run, store, tmp_path / "q.csv", "--covariates", short], capsys, 3)["error"]
    assert "has 119 rows; there must be one for each of the 120 rows of the store" in error
    other = written(table[BESIDE] + 1.0, tmp_path / f"other{suffix}")
    error = result([*fit[:6], "--covariates", other, *FIT], capsys, 2)["error"]
    assert "belongs to another configuration" in error and "covariates" in error
    grid = ["tune", "fgm", "--data", store, "--run", tmp_path / "tuned", "--covariates", file, "--grid", "C=0.1,10", *FIT, "--folds", "2"]
    assert result(grid, capsys)["summary"]["r2"] > 0.9
    assert "none.csv" in result(["score", run, store, "--covariates", tmp_path / "none.csv"], capsys, 2)["error"]


def test_what_comes_after_a_fit_of_classes_takes_the_file(table, tmp_path, capsys):
    store, run, file = tmp_path / "store", tmp_path / "run", written(table[BESIDE], tmp_path / "z.csv")
    labelled = table.drop(columns=BESIDE).assign(y=np.where(table["y"] > table["y"].mean(), "hi", "lo"))
    labelled.to_csv(tmp_path / "labelled.csv", index=False)
    result(["ingest", tmp_path / "labelled.csv", store, "--target", "y"], capsys)
    result(["fit", "fgm", "--data", store, "--run", run, "--covariates", file, *FIT, "--set", "fit_intercept=true"], capsys)
    steady = result(["stability", run, "--resamples", "5"], capsys)
    assert steady["resamples"] == 5 and {row["feature"] for row in steady["features"][:2]} == {"g2", "g7"}
    predict = ["predict", run, store, tmp_path / "p.csv", "--proba"]
    assert "give their values for these rows" in result(predict, capsys, 2)["error"]
    result([*predict, "--covariates", file], capsys)
    found = pd.read_csv(tmp_path / "p.csv")
    expected = load_model(run).predict_proba(labelled.drop(columns="y").to_numpy(), covariates=table[BESIDE])
    np.testing.assert_allclose(found[["probability[hi]", "probability[lo]"]], expected, rtol=1e-9)
    score = result(["score", run, store, "--covariates", file], capsys)
    assert score["accuracy"] > 0.9 and score["brier_score"] < 0.1 and len(score["path"]) > 2


def test_a_target_of_one_value_has_no_r2(table, tmp_path, capsys):
    store, other, run = tmp_path / "store", tmp_path / "other", tmp_path / "run"
    result(["ingest", tmp_path / "train.csv", store, *REGRESSION, "--covariates", "age,dose"], capsys)
    result(["fit", "fgm", "--data", store, "--run", run, *FIT], capsys)
    table.assign(y=1.0).to_csv(tmp_path / "one.csv", index=False)
    result(["ingest", tmp_path / "one.csv", other, "--like", store], capsys)
    told = result(["score", run, other], capsys)
    rounds = len(load_model(run).path_)
    assert told["r2"] is None and [point["r2"] for point in told["path"]] == [None] * rounds
    result(["report", run, "--out", tmp_path / "report"], capsys)


def test_the_task_is_checked(table, tmp_path, capsys):
    store = tmp_path / "store"
    result(["ingest", tmp_path / "plain.csv", store, *REGRESSION], capsys)
    fit = ["fit", "fgm", "--data", store, "--run", tmp_path / "run", *FIT]
    assert "holds real numbers; ingest the data again" in result([*fit, "--task", "classification"], capsys, 2)["error"]
    assert result([*fit, "--task", "regression"], capsys)["summary"]["stop"]
    error = result([*fit[:4], "--run", tmp_path / "no", "--set", "loss=logistic"], capsys, 2)["error"]
    assert "loss='logistic': the target holds real numbers; use 'squared'" in error


def test_other_methods_take_none(table, tmp_path, capsys):
    store, file = tmp_path / "store", written(table[BESIDE], tmp_path / "z.csv")
    result(["ingest", tmp_path / "plain.csv", store, *REGRESSION], capsys)
    fit = ["fit", "group-lasso", "--data", store, "--run", tmp_path / "run"]
    assert "covariates" in result([*fit, "--covariates", file], capsys, 2)["error"]
    result(fit, capsys)
    assert "does not use covariates" in result(["score", tmp_path / "run", store, "--covariates", file], capsys, 2)["error"]


WORKFLOW = """schema: gramplane.workflow/1
name: covariates
store: store
runs: runs
steps:
  - {{id: data, do: ingest, with: {{source: {source}, target: y, task: regression{kept}}}}}
  - {{id: fit, do: fit, needs: [data], with: {{method: fgm, task: regression, B: 1, max_rounds: 3{file}}}}}
  - {{id: grid, do: tune, needs: [data], with: {{method: fgm, B: 1, max_rounds: 3, folds: 2, grid: {{C: [0.1, 10]}}{file}}}}}
  - {{id: score, do: score, needs: [fit], with: {{store: store{file}}}}}
  - {{id: predict, do: predict, needs: [fit], with: {{store: store, out: p.csv{file}}}}}
  - {{id: report, do: report, needs: [fit, score]}}
"""


@pytest.mark.parametrize("held", ["store", "file"])
def test_a_workflow(table, tmp_path, capsys, held):
    file = written(table[BESIDE], tmp_path / "z.csv")
    given = {"source": "train.csv", "kept": ", covariates: [age, dose]", "file": ""}
    if held == "file":
        given = {"source": "plain.csv", "kept": "", "file": ", covariates: z.csv"}
    path = tmp_path / "flow.yaml"
    path.write_text(WORKFLOW.format(**given))
    done = result(["run", path], capsys)
    assert set(done["steps"].values()) == {"done"}
    again = result(["run", path], capsys)
    assert set(again["steps"].values()) == {"already-done"}
    if held == "file":
        # What is read is a part of what results depend on: another run.
        written(table[BESIDE] * 2.0, file)
        moved = result(["run", path], capsys)["steps"]
        assert moved["fit"] == moved["score"] == moved["predict"] == "done"


# --- beside names, ids and gaps -----------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path):
    """A mixed table, and a second one with its columns in another order, a level that the first does not know, and no dose column."""
    rng = np.random.default_rng(1)
    n = 200
    frame = pd.DataFrame({"patient": [f"P{i:03d}" for i in range(n)], "ward": rng.choice(["north", "south", "west"], n)})
    frame["pressure"], frame["noise"] = rng.normal(140, 15, n), rng.normal(size=n)
    frame["age, years"], frame["dose"] = 20.0 + rng.integers(0, 60, n), rng.normal(size=n)
    decision = 2.0 * (frame["ward"] == "south") + 0.05 * (frame["age, years"] - 50) + frame["dose"] + 0.03 * (frame["pressure"] - 140)
    frame["outcome"] = np.where(decision + 0.2 * rng.normal(size=n) > 0.5, "ill", "well")
    train, test = frame.iloc[:140], frame.iloc[140:].reset_index(drop=True)
    test.loc[3, "ward"] = "east"
    train.assign(pressure=train["pressure"].where(rng.random(140) > 0.1)).to_csv(tmp_path / "train.csv", index=False)
    test[test.columns[::-1]].to_csv(tmp_path / "test.csv", index=False)
    return pd.read_csv(tmp_path / "train.csv"), pd.read_csv(tmp_path / "test.csv")


NAMES = ["age, years", "dose"]
ROLES = ("--target", "outcome", "--id-column", "patient", "--covariates", '"age, years",dose')


def features(frame, mean):
    wards = pd.DataFrame({f"ward={ward}": 1.0 * (frame["ward"] == ward) for ward in ("north", "south", "west")})
    return np.column_stack([wards, frame["pressure"].fillna(mean), frame["pressure"].isna(), frame["noise"]])


def test_a_mixed_table_from_ingest_to_score(mixed, tmp_path, capsys):
    train, test = mixed
    store, run, out = tmp_path / "store", tmp_path / "run", tmp_path / "p.csv"
    made = result(["ingest", tmp_path / "train.csv", store, *ROLES, "--missing", "indicator"], capsys)
    assert made["covariates"] == NAMES and made["ids"] and (made["rows"], made["columns"]) == (140, 6)
    opened = BlockStore.open(store)
    assert [column.name for column in opened.encoding.columns] == ["patient", "ward", "pressure", "noise"]
    np.testing.assert_array_equal(opened.row_table("covariates"), train[NAMES])
    assert opened.ids()[:2].tolist() == ["P000", "P001"]
    result(["fit", "fgm", "--data", store, "--run", run, "--set", "C=1", *FIT, "--set", "fit_intercept=true"], capsys)
    result(["predict", run, tmp_path / "test.csv", out], capsys)
    # By hand: levels, means and gaps as columns of numbers, and the covariates beside them.
    mean = float(np.float32(train["pressure"].mean()))
    mean = mean if opened.meta.dtype == "float32" else train["pressure"].mean()
    by_hand = FGMClassifier(C=1.0, B=1, max_rounds=4, fit_intercept=True)
    by_hand.fit(features(train, mean), train["outcome"], covariates=train[NAMES])
    found, machine = pd.read_csv(out), load_model(run)
    np.testing.assert_allclose(machine.covariate_coef_, by_hand.covariate_coef_, rtol=1e-4)
    expected = by_hand.decision_function(features(test, mean), covariates=test[NAMES])
    np.testing.assert_allclose(found["decision"], expected, rtol=1e-4, atol=1e-6)
    assert found["id"].tolist() == test["patient"].tolist() and set(found["prediction"]) == {"ill", "well"}
    told = result(["score", run, tmp_path / "test.csv"], capsys)
    assert told["accuracy"] == pytest.approx(np.mean(found["prediction"] == test["outcome"])) and told["accuracy"] > 0.85
    with pytest.warns(UserWarning, match=r"column 'ward' has 1 values .* 'east'"):
        values = machine.decision_function(test, covariates=test[NAMES])
    np.testing.assert_allclose(values, found["decision"], rtol=1e-9)
    # A store like the first one says the same as the file.
    result(["ingest", tmp_path / "test.csv", tmp_path / "like", "--like", store], capsys)
    result(["predict", run, tmp_path / "like", tmp_path / "q.csv"], capsys)
    assert (tmp_path / "q.csv").read_bytes() == out.read_bytes()
    # Without a covariate in the file there is nothing to decide by; --covariates gives them.
    test.drop(columns="dose").to_csv(tmp_path / "less.csv", index=False)
    assert "give their values for these rows" in result(["predict", run, tmp_path / "less.csv", tmp_path / "r.csv"], capsys, 2)["error"]
    beside = written(test[NAMES], tmp_path / "z.csv")
    result(["predict", run, tmp_path / "less.csv", tmp_path / "r.csv", "--covariates", beside], capsys)
    assert (tmp_path / "r.csv").read_bytes() == out.read_bytes()


def test_columns_and_drop_leave_covariates_alone(mixed, tmp_path, capsys):
    train, _ = mixed
    source, options = tmp_path / "train.csv", [*ROLES, "--missing", "mean"]
    for k, chosen in enumerate((["--columns", "ward"], ["--drop", "pressure,noise"])):
        store = tmp_path / f"store{k}"
        assert result(["ingest", source, store, *options, *chosen], capsys)["columns"] == 3
        np.testing.assert_array_equal(BlockStore.open(store).row_table("covariates"), train[NAMES])
    error = result(["ingest", source, tmp_path / "no", *options, "--drop", "dose"], capsys, 3)["error"]
    assert "column 'dose' is no feature: it has the target, tasks, weights, ids or covariates" in error


@pytest.mark.parametrize(
    ("name", "found"), [("ward", "covariate ward 'north' is not a finite number"), ("pressure", "covariate pressure nan")]
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_names_and_gaps_are_no_covariates(mixed, tmp_path, capsys, name, found, suffix):
    source = written(mixed[0].assign(ward="north"), tmp_path / f"bad{suffix}")
    error = result(["ingest", source, tmp_path / "no", "--target", "outcome", "--covariates", name, "--missing", "mean"], capsys, 3)[
        "error"
    ]
    assert f"column '{name}': {found}" in error and "covariates are numbers, none missing: fill them in" in error

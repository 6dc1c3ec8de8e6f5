"""Grids as a user types them, of a method whose fits are done one after another."""

import json
from pathlib import Path

import numpy as np
import pytest

from gramplane.cluster.events import headline
from gramplane.pipeline.inputs.scores import plain_folds
from gramplane.storage import BlockStore
from gramplane.workflows.cli import main
from tests.pipeline.methods.multitask_mkl.test_workflow import ingested, result


def words(data, run, *more, method="shared-subspace-mkl"):
    return ["tune", method, "--data", data, "--run", run, *more]


KERNELS = ("--kernels", "rbf(gamma=0.5); linear")


def test_a_grid_fitted_one_after_another(tmp_path, capsys):
    data, run = ingested(tmp_path / "train", capsys, "--task", "regression", real=True), tmp_path / "tuned"
    given = words(data, run, "--grid", "C=0.001,10", "--set", "tol=0.05", "--set", "loss=squared", *KERNELS, "--folds", "2")
    plan = result([*given, "--dry-run"], capsys)["plan"]
    assert (plan["points"], plan["fits"], plan["first_fit"]["learning_tasks"]) == (2, 4, 3) and not run.exists()
    assert main([*map(str, given), "--json"]) == 0
    told = capsys.readouterr()
    summary = json.loads(told.out.rstrip("\n").rpartition("\n")[2])["summary"]
    assert summary["best"]["C"] == 10 and summary["r2"] > 0.5 and summary["standard_error"] == pytest.approx(summary["deviation"] / 2**0.5)
    lines = [json.loads(line) for line in told.err.splitlines()]
    folds = [line for line in lines if line.get("event") == "fold"]
    assert sorted((line["point"], line["fold"]) for line in folds) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert headline(folds[0]) == f"point 1 of 2, fold 1 of 2  r2 {folds[0]['r2']:.4g}"
    assert result(given, capsys)["status"] == "already-done"
    assert result(["status", run], capsys)["state"] == "done"
    assert result(["score", run, data], capsys)["r2"] > 0.7
    error = result([*given[:-1], "3"], capsys, 2)["error"]
    assert "belongs to another configuration: folds is 2 there and 3 here. Choose another run directory" in error


def test_what_cannot_be_compared_is_refused(tmp_path, capsys):
    data, run = ingested(tmp_path / "train", capsys), tmp_path / "bad"
    for more, method, text in [
        (("--grid", "grams=memory,recompute"), "latent-task-mkl", "grams only sets where matrices are stored"),
        (("--grid", "n_bases=2,3", "--dry-run"), "unsupervised-mkl", "has no score on rows held out"),
        (("--grid", "CC=1,2"), "rule-ensemble", "--grid CC"),
        (("--grid", "C=0,2"), "hierarchical-kernels", "--grid C: must be greater than 0, not 0"),
        (("--grid", "C=[]", "--dry-run"), "two-layer-mkl", "--grid C has no value"),
    ]:
        assert text in result(words(data, run, *more, method=method), capsys, 2)["error"]
        assert not run.exists()


def test_a_share_of_a_regression_is_held_out_by_a_shared_subspace(tmp_path, capsys):
    data, run = ingested(tmp_path / "train", capsys, "--task", "regression", real=True), tmp_path / "run"
    fit = ["fit", "shared-subspace-mkl", "--data", data, "--run", run, "--set", "loss=squared", "--set", "tol=0.05", *KERNELS]
    summary = result([*fit, "--test-share", "0.2"], capsys)["summary"]
    found = result(["score", run, data], capsys)
    assert found["rows"] == 18 and found["r2"] == pytest.approx(summary["test_r2"], abs=1e-6) and summary["train_r2"] > summary["test_r2"]
    # The machine has no coefficient on a row that was held out.
    from gramplane.pipeline import load_model

    store = BlockStore.open(str(data))
    held = plain_folds(store.n_rows, 0, [0.2])[0]
    assert held.sum() == 18 and not np.intersect1d(load_model(run).model_.support_ids, np.flatnonzero(held)).size


def test_scores_are_named_on_the_command_line_and_in_workflows(tmp_path, capsys):
    data, run = ingested(tmp_path / "train", capsys), tmp_path / "tuned"
    given = words(data, run, "--grid", "C=0.001,10", "--set", "tol=0.05", *KERNELS, "--folds", "2", method="latent-task-mkl")
    assert "--scoring='f1_makro' does not exist; did you mean 'f1_macro'?" in result([*given, "--scoring", "f1_makro"], capsys, 2)["error"]
    assert "--refit='f1' chooses one of several scores" in result([*given, "--refit", "f1"], capsys, 2)["error"]
    assert "'r2': the target holds" in result([*given, "--scoring", "r2"], capsys, 2)["error"] and not run.exists()
    summary = result([*given, "--scoring", "roc_auc,f1", "--scoring", "accuracy", "--refit", "f1"], capsys)["summary"]
    assert summary["measure"] == "f1" and {"f1", "roc_auc", "accuracy"} < set(summary)
    page = Path(result(["report", run], capsys)["report"]).read_text()
    assert f"f1 {summary['f1']:.3g} on average over 2 folds" in page and "roc_auc_deviation" in page


def test_scores_are_named_in_workflows(tmp_path, capsys):
    data, file = ingested(tmp_path / "train", capsys), tmp_path / "scores.yaml"

    def written(scores):
        step = f"{{method: mkl, grid: {{C: [0.1, 1.0]}}, kernels: [linear], folds: 2, {scores}}}"
        head = f"schema: gramplane.workflow/1\nname: scores\nstore: {data}\nruns: runs\nsteps:\n"
        file.write_text(f"{head}  - {{id: search, do: tune, with: {step}}}\n")
        return file

    for scores, words in (
        ("scoring: f1_makro", "'f1_makro' does not exist; did you mean 'f1_macro'?"),
        ("refit: f1", "refit='f1' chooses one of several"),
    ):
        assert words in result(["run", written(scores), "--check"], capsys, 2)["error"]
    result(["run", written("scoring: [f1, accuracy], refit: accuracy")], capsys)
    (table,) = tmp_path.glob("runs/**/tune.json")
    row = json.loads(table.read_text())["rows"][0]
    assert row["measure"] == "accuracy" and "f1_folds" in row

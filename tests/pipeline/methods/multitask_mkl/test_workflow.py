"""Multiple kernel learning for many tasks as a user types it: ingest with tasks, fit, score by task, predict, report; the example."""

import shutil

import numpy as np
import pytest

from gramplane.pipeline import load_model, run_method, tune
from gramplane.pipeline.core import resources
from gramplane.pipeline.methods.multitask_mkl import task_blocks_pass
from gramplane.storage import DataError, block_cache
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


def table(path, real=False, tasks=(4, 7, 9)):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    score = X[:, 0] + np.sin(2 * X[:, 1])
    y = [f"{value:.4f}" for value in score] if real else np.where(score > 0, "up", "down")
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{tasks[i * 5 % 3]},{label}" for i, ((a, b, c), label) in enumerate(zip(X, y, strict=True))]
    path.write_text("\n".join(["a,b,c,task,y", *lines]) + "\n")
    return path


def ingested(path, capsys, *more, **options):
    source = table(path.with_suffix(".csv"), **options)
    result(["ingest", source, path, "--target", "y", "--task-column", "task", *more], capsys)
    return path


def fit(data, run, *settings):
    return ["fit", "multitask-mkl", "--data", data, "--run", run, *(word for one in settings for word in ("--set", one))]


KERNELS = 'kernels=["rbf(gamma=0.5)", "linear", "rbf(gamma=2)[1]"]'


def test_from_a_table_with_tasks_to_scores_by_task(tmp_path, capsys):
    data = ingested(tmp_path / "train", capsys)
    summary = result([*fit(data, tmp_path / "run", KERNELS, "p=6"), "--test-share", "0.2"], capsys)["summary"]
    assert summary["n_tasks"] == 3
    assert summary["gap"] <= 1e-3 * summary["objective"]
    assert "test_accuracy" in summary
    found = result(["score", tmp_path / "run", data], capsys)
    assert found["rows"] == 18
    assert [row["task"] for row in found["tasks"]] == [4, 7, 9]
    assert found["mean_accuracy"] == pytest.approx(np.mean([row["accuracy"] for row in found["tasks"]]))
    assert main(["score", str(tmp_path / "run"), str(data)]) == 0
    assert "by task:\n  task  rows  accuracy" in capsys.readouterr().out
    told = result(["predict", tmp_path / "run", data, tmp_path / "p.csv"], capsys)
    assert told["rows"] == 90
    result(["report", tmp_path / "run", "--out", tmp_path / "report"], capsys)
    text = (tmp_path / "report" / "report.html").read_text()
    for words in ("Kernels by task", "Bounds", "rbf(gamma="):
        assert words in text
    other = ingested(tmp_path / "other", capsys, "--like", data, tasks=(4, 7, 11))
    error = result(["predict", tmp_path / "run", other, tmp_path / "q.csv"], capsys, 2)["error"]
    assert "task 11 was not there at fit; the 3 tasks are 4, 7, 9" in error


def test_real_targets_are_explained_by_task(tmp_path, capsys):
    data = ingested(tmp_path / "train", capsys, "--task", "regression", real=True)
    result(fit(data, tmp_path / "run", KERNELS, "loss=squared", "C=10", "q=1.5"), capsys)
    found = result(["score", tmp_path / "run", data], capsys)
    assert found["r2"] > 0.8
    assert found["mean_r2"] == pytest.approx(np.mean([row["r2"] for row in found["tasks"]]))
    assert "median_r2" in found


def test_workers_keep_the_matrices_where_passes_over_them_are_worth_it(tmp_path, capsys, monkeypatch):
    data, params = ingested(tmp_path / "train", capsys), {"kernels": ["rbf(gamma=0.5)", "linear"], "max_iter": 4}
    planned = {"data": str(data), "run": str(tmp_path / "dry"), "dry_run": True}
    plan = run_method("multitask-mkl", params, cluster="local:2", **planned).plan
    assert plan["distributed"] == [] and plan["grams"] == "memory"
    here = run_method("multitask-mkl", params, data=str(data), run=str(tmp_path / "here"))
    monkeypatch.setattr(resources, "BYTES_PER_SECOND", 1.0)
    plan = run_method("multitask-mkl", params, cluster="local:2", **planned).plan
    assert plan["distributed"] == ["Gram blocks of tasks", "solves of tasks"] and "by the workers, which keep them" in plan["gram_reason"]
    assert run_method("multitask-mkl", params, **planned).plan["grams"] == "memory"
    computed, compute = [], task_blocks_pass.gram_block
    monkeypatch.setattr(task_blocks_pass, "gram_block", lambda *args, **given: computed.append(args) or compute(*args, **given))
    block_cache().clear()
    run_method("multitask-mkl", {**params, "grams": "recompute"}, data=str(data), run=str(tmp_path / "passes"))
    assert len(computed) == 3  # once for each task, however many passes follow
    found = [load_model(path) for path in (here.run, tmp_path / "passes")]
    assert found[0].model_.beta.tobytes() == found[1].model_.beta.tobytes()


@pytest.mark.parametrize("real", [False, True])
def test_grids_share_matrices_and_fold_by_task(tmp_path, capsys, real):
    data = ingested(tmp_path / "train", capsys, *(("--task", "regression") if real else ()), real=real)
    grid, kernels = {"C": [0.01, 1.0], "p": [2.0, 6.0]}, ["rbf(gamma=0.5)", "linear"]
    found = tune("multitask-mkl", grid, data=str(data), run=str(tmp_path / "tuned"), params={"kernels": kernels}, folds=3)
    assert found.summary["best"]["C"] == 1.0
    assert found.summary["r2" if real else "accuracy"] > 0.6
    assert load_model(tmp_path / "tuned").C == 1.0
    with pytest.raises(DataError, match="task 4 has 30 rows, too few for 40 folds"):
        tune("multitask-mkl", grid, data=str(data), run=str(tmp_path / "none"), params={"kernels": kernels}, folds=40)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("p=1.5", "--set p: must be at least 2, not 1.5"),
        ("q=3", "--set q: must be at most 2"),
        ("solver=level", "solver"),
        ("kernels=precomputed", "kernels='precomputed'"),
    ],
)
def test_bad_settings_are_refused_before_work_starts(tmp_path, capsys, setting, words):
    data = ingested(tmp_path / "train", capsys)
    assert words in result(fit(data, tmp_path / "bad", setting), capsys, 2)["error"]
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_the_example_runs(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    table(tmp_path / "data" / "train.csv")
    shutil.copy(WORKFLOWS / "multitask_mkl.yaml", tmp_path / "w.yaml")
    assert set(result(["run", tmp_path / "w.yaml", "--cluster", "sync"], capsys)["steps"].values()) == {"done"}
    (report,) = tmp_path.rglob("report.html")
    assert "Kernels by task" in report.read_text()

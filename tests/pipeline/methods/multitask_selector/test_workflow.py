"""Feature selection over many tasks as a user types it: ingest with tasks, fit, resume, score by task, predict, report; the example."""

import shutil

import numpy as np
import pytest

from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


def table(path, real=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    score = X[:, 0] - X[:, 1]
    y = [f"{value:.4f}" for value in score] if real else np.where(score > 0, "up", "down")
    lines = [
        ",".join([*(f"{value:.4f}" for value in row), str(i % 3), str(label)]) for i, (row, label) in enumerate(zip(X, y, strict=True))
    ]
    path.write_text("\n".join(["a,b,c,d,task,y", *lines]) + "\n")
    return path


def ingested(path, capsys, *more, real=False):
    result(["ingest", table(path.with_suffix(".csv"), real), path, "--target", "y", "--task-column", "task", *more], capsys)
    return path


def fit(data, run, *settings):
    return ["fit", "multitask-selector", "--data", data, "--run", run, *(word for one in settings for word in ("--set", one))]


def test_from_a_table_with_tasks_to_a_map_of_features(tmp_path, capsys):
    data = ingested(tmp_path / "train", capsys, "--task", "regression", real=True)
    settings = ("lam=0.3", "gamma=5", "epochs=10", "task_offset=shrunken", "refit=0.01")
    summary = result([*fit(data, tmp_path / "run", *settings), "--test-share", "0.2"], capsys)["summary"]
    assert (summary["n_tasks"], summary["n_selected"], summary["nonzeros"], summary["stop"]) == (3, 2, 6, "epochs")
    assert summary["test_r2"] > 0.8
    assert summary["rounds"] in range(240, 301, 10)
    found = result(["score", tmp_path / "run", data], capsys)
    assert found["rows"] == 18
    assert [row["task"] for row in found["tasks"]] == [0, 1, 2]
    assert result(["predict", tmp_path / "run", data, tmp_path / "p.csv"], capsys)["rows"] == 90
    assert result(["resume", tmp_path / "run"], capsys)["status"] == "already-done"
    result(["report", tmp_path / "run", "--out", tmp_path / "report"], capsys)
    page = (tmp_path / "report" / "report.html").read_text()
    for words in ("Features by task", "Loss along the stream", "Selected features", "Feature selection over many tasks"):
        assert words in page
    lines = (tmp_path / "report" / "selected.csv").read_text().splitlines()
    assert sorted(line.split(",")[1] for line in lines[1:]) == ["a", "b"]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("penalty=l1", "--set penalty"),
        ("gamma=0", "--set gamma: must be greater than 0"),
        ("loss=squared", "the target holds classes; use 'logistic' or 'hinge'"),
        ("task_offset=mean", "task_offset='mean' is subtracted from numbers"),
    ],
)
def test_bad_settings_are_refused_before_work_starts(tmp_path, capsys, setting, words):
    data = ingested(tmp_path / "train", capsys)
    assert (
        words in result(fit(data, tmp_path / "bad", *({"loss=hinge", setting} if "loss" not in setting else {setting})), capsys, 2)["error"]
    )
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_the_example_runs(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    table(tmp_path / "data" / "train.csv")
    shutil.copy(WORKFLOWS / "multitask_selector.yaml", tmp_path / "w.yaml")
    assert set(result(["run", tmp_path / "w.yaml"], capsys)["steps"].values()) == {"done"}
    (report,) = tmp_path.rglob("report.html")
    assert "Features by task" in report.read_text()

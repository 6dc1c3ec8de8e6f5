"""Groups of tasks as a user types it: ingest with a task column, fit, predict, score, report."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gramplane.pipeline import LatentTaskMKLRegressor, load_model
from gramplane.workflows.cli import main
from gramplane.workflows.report import view_run
from tests.support.commands import result
from tests.workflows.report.pages import pictures


def table(path: Path, seed: int, rows: int = 10, tasks: int = 4) -> None:
    rng = np.random.default_rng(seed)
    task, X = rng.permutation(np.repeat(np.arange(tasks), rows)), rng.normal(size=(rows * tasks, 4))
    y = np.where(task < 2, X[:, 0] - X[:, 1], X[:, 2] + X[:, 3]) + 0.1 * rng.normal(size=len(task))
    lines = ["school,score,a,b,c,d", *(",".join(map(str, [t, v, *row])) for t, v, row in zip(task, y, X.tolist(), strict=True))]
    path.write_text("\n".join(lines) + "\n")


def test_from_a_table_to_groups_on_a_page(tmp_path: Path, capsys):
    for name, seed in (("train", 0), ("test", 1)):
        table(tmp_path / f"{name}.csv", seed)
    table(tmp_path / "other.csv", 2, tasks=5)
    given = ["--task", "regression", "--target", "score", "--task-column", "school"]
    assert main(["ingest", str(tmp_path / "train.csv"), str(tmp_path / "train"), *given, "--quiet"]) == 0
    for name in ("test", "other"):
        words = ["ingest", tmp_path / f"{name}.csv", tmp_path / name, *given, "--like", tmp_path / "train", "--quiet"]
        assert main([*map(str, words)]) == 0
    kernels = "linear[0:2];linear[2:4];linear"
    fit = ["fit", "latent-task-mkl", "--data", tmp_path / "train", "--run", tmp_path / "run", "--kernels", kernels]
    done = result([*fit, "--set", "mu=0.1", "--set", "C=1", "--set", "loss=squared"], capsys)["summary"]
    assert done["certificate_complete"] and done["relative_gap"] <= 1e-2 and done["n_tasks"] == 4
    model = load_model(tmp_path / "run")
    assert isinstance(model, LatentTaskMKLRegressor)
    assert {(0, 1), (2, 3)} == {tuple(map(int, group.tasks)) for group in [g for g in model.groups_ if len(g.tasks) > 1][:2]}
    assert result(["score", tmp_path / "run", tmp_path / "test"], capsys)["r2"] > 0.9
    assert result(["predict", tmp_path / "run", tmp_path / "test", tmp_path / "out.csv"], capsys)["rows"] == 40
    assert main(["predict", str(tmp_path / "run"), str(tmp_path / "other"), str(tmp_path / "no.csv"), "--quiet"]) in (2, 3)
    assert "task 4 was not there at fit" in capsys.readouterr().err
    titles = [picture.title for picture in pictures([view_run(tmp_path / "run")])]
    assert {"Certificate", "Kernels by task", "Tasks that learn together"} <= set(titles)
    page = Path(result(["report", tmp_path / "run", "--out", tmp_path / "report"], capsys)["report"]).read_text()
    assert "Groups of tasks by weight" in page
    with (tmp_path / "report" / "groups.csv").open() as file:
        listed = list(csv.DictReader(file))
    assert [float(row["weight"]) for row in listed] == pytest.approx([group.weight for group in model.groups_])


def test_what_is_wrong_is_told_before_work_starts(tmp_path: Path, capsys):
    table(tmp_path / "train.csv", 0)
    given = ["--task", "regression", "--target", "score", "--task-column", "school"]
    assert main(["ingest", str(tmp_path / "train.csv"), str(tmp_path / "train"), *given, "--quiet"]) == 0
    fit = ["fit", "latent-task-mkl", "--data", str(tmp_path / "train"), "--run", str(tmp_path / "run"), "--kernels", "linear", "--quiet"]
    for setting, told in (("p=1", "greater than 1"), ("q=3", "at most 2"), ("loss=hinge", "real numbers")):
        assert main([*fit, "--set", setting]) in (2, 3)
        assert told in capsys.readouterr().err
        assert not (tmp_path / "run").exists()

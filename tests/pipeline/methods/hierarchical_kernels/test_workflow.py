"""Hierarchical kernel learning as a user types it: graphs by text, list and file, from the fit to the report."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from gramplane.pipeline import load_model
from gramplane.storage.ingest import ingest
from gramplane.workflows.report import view_run
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"
LISTED = '[{name: a, kernel: "rbf(gamma=0.5)[0]"}, {name: b, kernel: "rbf(gamma=0.5)[0] * linear[1]", parents: [a], d: 3}]'
CYCLE = "[{name: a, kernel: linear, parents: [b]}, {name: b, kernel: linear, parents: [a]}]"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of labelled rows, with and without tasks."""
    folder = tmp_path_factory.mktemp("hkl")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, "up", "down")
    ingest((X, y), folder / "train")
    ingest((X, y), folder / "tasks", task_column=np.arange(60) % 2)
    return folder


def fit(place, run, *settings, data="train"):
    return [
        "fit",
        "hierarchical-kernels",
        "--data",
        place / data,
        "--run",
        place / run,
        *(word for one in settings for word in ("--set", one)),
    ]


def test_a_fit_its_figures_its_report_and_its_predictions(place, capsys, tmp_path):
    summary = result([*fit(place, "text", "dag=subsets(gaussian; depth=2)", "C=10", "tol=0.01"), "--test-share", "0.25"], capsys)["summary"]
    assert summary["stop"] == "certified"
    assert summary["certified_over"] == "all nodes"
    assert summary["gap"] <= 0.01 * summary["objective"]
    assert summary["graph_nodes"] == 7
    view = view_run(place / "text")
    assert [row["depth"] for row in view.tables["depths"]] == [0, 1, 2][: len(view.tables["depths"])]
    assert view.kernels[0]["weight"] >= view.kernels[-1]["weight"] > 0
    scored = result(["score", place / "text", place / "train"], capsys)
    machine = load_model(place / "text")
    assert 0.5 < scored["accuracy"] <= 1
    assert machine.certificate_ <= 0.01
    assert result(["predict", place / "text", place / "train", tmp_path / "p.csv"], capsys)
    assert (tmp_path / "p.csv").exists()


def test_a_graph_written_out_and_tasks(place, capsys):
    summary = result(fit(place, "listed", f"dag={LISTED}", "tol=0.01"), capsys)["summary"]
    assert summary["graph_nodes"] == 2
    assert load_model(place / "listed").active_set_[0] == "rbf(gamma=0.5)[0]"
    planned = result([*fit(place, "planned", "dag=subsets(gaussian)"), "--dry-run"], capsys)["plan"]
    assert planned["graph_nodes"] == 8
    done = result(fit(place, "tasks-run", "dag=subsets(gaussian; depth=1)", "task_kernel=1.0", "tol=0.01", data="tasks"), capsys)
    assert done["status"] == "done"
    assert load_model(place / "tasks-run").tasks_.tolist() == [0, 1]
    assert result(["score", place / "tasks-run", place / "tasks"], capsys)["accuracy"] > 0.4


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (f"dag={CYCLE}", "a -> b -> a"),
        ("dag=tree(linear)", "must be of the form"),
        ("dag=[{name: a, kernel: linear, parents: [z]}]", "no parent 'z'"),
        ("rho=1", "rho"),
        ("rho=3", "rho"),
        ("a=0", "a"),
        ("task_kernel=-1", "task_kernel"),
    ],
)
def test_bad_settings_are_refused_before_work_starts(place, capsys, setting, words):
    error = result(fit(place, "bad", setting), capsys, 2)["error"]
    assert words in error
    assert not (place / "bad").exists()


def test_the_example_can_be_read(tmp_path, capsys):
    shutil.copy(WORKFLOWS / "hierarchical_kernels.yaml", tmp_path / "w.yaml")
    assert result(["run", tmp_path / "w.yaml", "--check"], capsys)["status"] == "checked"


@pytest.mark.slow
def test_the_example_runs(tmp_path, capsys):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    rows = [f"{int(np.sign(x[0] * x[1]))} " + " ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(x)) for x in X]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.svm").write_text("\n".join(rows) + "\n")
    shutil.copy(WORKFLOWS / "hierarchical_kernels.yaml", tmp_path / "w.yaml")
    assert set(result(["run", tmp_path / "w.yaml", "--cluster", "sync"], capsys)["steps"].values()) == {"done"}
    (report,) = tmp_path.rglob("report.html")
    text = report.read_text()
    for words in ("Kernels by depth", "Kernels by weight", "rbf(gamma=", "Certificate"):
        assert words in text

"""Figures of the kernel selection path and of unsupervised learning: from real runs, and from odd tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import run_method
from gramplane.pipeline.methods.kta_path.charts import path_accuracy, path_weights
from gramplane.pipeline.methods.unsupervised_mkl.charts import changed_bases
from gramplane.pipeline.records.charts import Chart
from gramplane.storage.ingest import ingest
from gramplane.workflows.report import RunView, svg, write_report
from gramplane.workflows.report.collect import view_run
from tests.support.fgm_problems import planted
from tests.workflows.report.pages import pictures


def image(chart) -> str:
    """Return the drawing of a chart, or of a figure of a page."""
    return (svg.picture(chart) if isinstance(chart, Chart) else chart).svg


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("path-report")
    X, y = planted(0, d=30)
    store = ingest((X, y), folder / "data.zarr")
    kernels = ["rbf(gamma=0.1)", "rbf(gamma=1)", "linear", "poly(degree=2)"]
    given = {
        "kta-path": ({"dp": 0.1, "n_machines": 5}, {"test_share": 0.25}),
        "unsupervised-mkl": ({"kernels": kernels, "n_bases": 4, "gamma1": 0.01}, {}),
    }
    with one_thread():
        for method, (params, extra) in given.items():
            run_method(method, params, data=store.url, run=str(folder / method), extra=extra)
    return {method: folder / method for method in given}


def test_the_path_is_drawn(runs):
    view = view_run(runs["kta-path"])
    titles = [picture.title for picture in pictures([view])]
    for title in ("Accuracy against number of kernels along p", "Weights along p", "Kernels by weight"):
        assert titles.count(title) == 1, title
    assert sum(title.startswith("Accuracy") for title in titles) == 1
    accuracy, weights = (found[0] for found in (path_accuracy([view]), path_weights(view)))
    assert "held-out rows" in image(accuracy) and "training rows" in image(accuracy)
    best = view.tables["kernels"][0]["kernel"]
    assert f">{best}<" in image(weights)
    scored = [row for row in view.tables["path"] if "test_accuracy" in row]
    assert len(scored) == 5 and all(0 <= row["test_accuracy"] <= 1 for row in scored)


def test_unsupervised_learning_is_drawn(runs):
    view = view_run(runs["unsupervised-mkl"])
    titles = [picture.title for picture in pictures([view])]
    for title in ("Objective", "Bases", "Weights along the rounds", "Kernels by weight"):
        assert titles.count(title) == 1, title
    weights = list(view.tables["weights"])
    assert len(weights) == len(view.history)
    assert sum(value for key, value in weights[-1].items() if key not in ("machine", "iteration")) == pytest.approx(1.0)


def test_both_stand_side_by_side_and_in_csv(runs, tmp_path):
    written = write_report(list(runs.values()), tmp_path / "out")
    names = {Path(table).name for table in written.tables}
    assert {"path.csv", "path_weights.csv", "kernels.csv", "weights.csv"} <= names
    text = written.page.read_text(encoding="utf-8")
    assert "kta-path: Weights along p" in text and "Bases" in text


def test_runs_without_a_path_draw_nothing():
    empty = RunView(name="a", path="/a", method="kta-path", title="t", tables={"path": [], "path_weights": []})
    assert path_accuracy([empty]) == changed_bases([empty]) == path_weights(empty) == []
    odd = RunView(name="a", path="/a", method="x", title="t", tables={"path": [{"p": 2.0, "n_active": 0}], "path_weights": [{"p": 2.0}]})
    assert path_accuracy([odd]) == pictures([odd]) == []

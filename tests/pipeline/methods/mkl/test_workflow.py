"""Multiple kernel learning as a user types it: kernels by file, text or Gram store, from the fit to the report."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gramplane.pipeline import load_model
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from gramplane.workflows.report import view_run
from gramplane.workflows.report.render import summary_rows
from gramplane.workflows.report.words import lead
from tests.support.commands import result
from tests.workflows.report.pages import pictures

GRID = "- grid: {widths: [0.5, 2.0], degrees: [1]}\n"


def rows(seed: int = 0, n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 4))
    return X, np.digitize(np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n), [-0.5, 0.5])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of training and test rows, a kernel file, a Gram store of its kernels, and a finished run of three classes."""
    folder = tmp_path_factory.mktemp("mkl")
    ingest(rows(), folder / "train")
    ingest(rows(1), folder / "test", like=str(folder / "train"))
    (folder / "kernels.yaml").write_text(GRID)
    assert main(["gram", str(folder / "train"), "--kernels", str(folder / "kernels.yaml"), "--out", str(folder / "grams"), "--quiet"]) == 0
    words = ["fit", "mkl", "--data", folder / "train", "--run", folder / "run", "--kernels", folder / "kernels.yaml", "--set", "C=3"]
    assert main([*map(str, words), "--test-share", "0.25", "--quiet"]) == 0
    return folder


def test_file_text_and_gram_store_name_the_same_kernels(place: Path, tmp_path: Path, capsys):
    fit = ["fit", "mkl", "--data", place / "train", "--set", "C=3", "--test-share", "0.25"]
    texts = ";".join(load_model(place / "run").kernels)
    kernels = result([*fit, "--run", tmp_path / "text", "--kernels", texts], capsys)
    grams = result([*fit, "--run", tmp_path / "grams", "--kernels", "precomputed", "--gram-store", place / "grams"], capsys)
    assert kernels["summary"]["n_kernels"] == grams["summary"]["n_kernels"] == 15
    assert RunStore.open(tmp_path / "grams").read_json("decisions")["grams"] == "store"
    models = [load_model(run) for run in (place / "run", tmp_path / "text", tmp_path / "grams")]
    assert len({model.dual_coef_.tobytes() for model in models}) == 1
    both = result([*fit, "--run", tmp_path / "both", "--kernels", "linear", "--grams", "store", "--gram-store", tmp_path / "new"], capsys)
    assert both["summary"]["n_kernels"] == 1 and result(["inspect", tmp_path / "new"], capsys)["kernels"] == 1


def test_a_logistic_fit_predicts_probabilities_without_calibration(place: Path, tmp_path: Path, capsys):
    fit = ["fit", "mkl", "--data", place / "train", "--kernels", "rbf;linear", "--loss", "logistic", "--test-share", "0.25"]
    summary = result([*fit, "--run", tmp_path / "run"], capsys)["summary"]
    assert summary["stop"] == "tol" and 0 <= summary["gap"] <= 1e-3 * summary["objective"]
    result(["predict", tmp_path / "run", place / "test", tmp_path / "out.csv", "--proba"], capsys)
    with (tmp_path / "out.csv").open() as file:
        given = list(csv.DictReader(file))
    shares = np.array([[float(row[f"probability[{label}]"]) for label in "012"] for row in given])
    np.testing.assert_allclose(shares.sum(axis=1), 1.0, atol=1e-6)
    assert not (tmp_path / "run" / "calibration").exists() and load_model(tmp_path / "run").model_.calibration is None


def test_a_grid_takes_kernels_and_gram_stores_as_a_fit_does(place: Path, tmp_path: Path, capsys):
    words = ["tune", "mkl", "--data", place / "train", "--grid", "C=1,3", "--folds", "2"]
    grams = result([*words, "--run", tmp_path / "a", "--kernels", "precomputed", "--gram-store", place / "grams"], capsys)
    kernels = result([*words, "--run", tmp_path / "b", "--kernels", place / "kernels.yaml"], capsys)
    assert grams["summary"]["accuracy"] == kernels["summary"]["accuracy"] > 0.6
    assert grams["summary"]["fit"]["n_kernels"] == kernels["summary"]["fit"]["n_kernels"] == 15
    assert result([*words, "--run", tmp_path / "c", "--kernels", "linear[7]"], capsys, 2)["error"].startswith("--kernels: kernels[0]")


def test_predict_score_and_report(place: Path, tmp_path: Path, capsys):
    table = result(["score", place / "run", place / "test"], capsys)
    assert table["accuracy"] > 0.6 and [row["label"] for row in table["classes"]] == [0, 1, 2]
    assert main(["score", str(place / "run"), str(place / "test"), "--quiet"]) == 0
    assert "path" not in capsys.readouterr().out
    assert result(["predict", place / "run", place / "test", tmp_path / "out.csv"], capsys)["rows"] == 120
    page = Path(result(["report", place / "run", "--out", tmp_path / "report"], capsys)["report"])
    text, model = page.read_text(), load_model(place / "run")
    for word in ("Bounds", "Weights along the rounds, class 2", "Kernels by weight", "kernels in all", "upper bound"):
        assert word in text
    with (tmp_path / "report" / "kernels.csv").open() as file:
        listed = {row["kernel"]: [float(row[f"weight[{label}]"]) for label in (0, 1, 2)] for row in csv.DictReader(file)}
    names = [f"{kernel} trace" for kernel in model.kernels]
    np.testing.assert_allclose([listed.get(name, [0.0] * 3) for name in names], model.kernel_weights_.T, atol=1e-15)
    with (tmp_path / "report" / "weights.csv").open() as file:
        along = list(csv.DictReader(file))
    assert {row["machine"] for row in along} == {"0", "1", "2"} and len(along) >= 3 * 2


def test_what_a_report_draws(place: Path):
    view = view_run(place / "run", "a")
    titles = [picture.title for picture in pictures([view])]
    assert {"Accuracy against number of kernels", "Bounds", "Gap between the bounds"} <= set(titles)
    assert "Kernels by weight" in titles and sum(title.startswith("Weights along the rounds, class") for title in titles) == 3
    assert "Objective" not in titles and "Gaps" not in titles
    assert "of 15 kernels selected." in " ".join(lead(view))
    summary = {row["name"]: row["values"] for row in summary_rows([view, view])}
    assert float(summary["lower bound"][0]) <= float(summary["upper bound"][0])


WORKFLOW = """schema: gramplane.workflow/1
name: views
store: train
steps:
  - {id: by-file, do: fit, with: {method: mkl, kernels: kernels.yaml}}
  - id: by-list
    do: fit
    with: {method: mkl, kernels: [linear, {name: rbf, params: {gamma: 2.0}, columns: [0, 1]}, {grid: {degrees: []}}]}
  - {id: by-store, do: fit, with: {method: mkl, kernels: precomputed, gram_store: grams, constraint: simplex}}
  - {id: held, do: score, needs: [by-store], with: {store: test}}
  - {id: page, do: report, needs: [by-file, by-list, by-store, held]}
"""


def test_a_workflow_names_kernels_in_every_way(place: Path, capsys):
    (place / "views.yaml").write_text(WORKFLOW)
    assert result(["run", place / "views.yaml", "--check"], capsys)["status"]
    assert result(["run", place / "views.yaml", "--dry-run"], capsys)["status"] == "planned"
    found = result(["run", place / "views.yaml"], capsys)
    assert set(found["steps"].values()) == {"done"}
    folder = Path(found["folder"])
    counts = [load_model(folder / step).kernel_weights_.shape[1] for step in ("by-file", "by-list", "by-store")]
    assert counts == [15, 2 + 50, 15]
    text = next(folder.rglob("report.html")).read_text()
    assert "Side by side" in text and "by-store" in text
    assert result(["run", place / "views.yaml"], capsys)["status"] == "already-done"
    (place / "kernels.yaml").write_text(GRID + "- linear\n")
    changed = result(["run", place / "views.yaml", "--check"], capsys)
    assert changed["run_id"] != found["run_id"]
    (place / "kernels.yaml").write_text(GRID)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "C=0"], 2, "--set C"),
        (["--set", "v=1.5"], 2, "--set v"),
        (["--set", "constraint=lp", "--set", "p=0.5"], 2, "--set p"),
        (["--kernels", "rbf(gama=1)"], 2, "--kernels: kernels[0]: kernel 'rbf(gama=1)'"),
        (["--kernels", "linear[0:9]"], 2, "column 8 is outside the data"),
        (["--kernels", "absent.yaml"], 2, "kernel file absent.yaml does not exist"),
        (["--kernels", "linear", "--set", "kernels=[linear]"], 2, "--kernels is also given by --set kernels"),
        (["--kernels", "chi2"], 3, "kernel chi2 needs values >= 0; column"),
        (["--kernels", "spectrum(k=2)"], 3, "reads strings; the data set holds numbers"),
        (["--kernels", "precomputed", "--gram-store", "nowhere"], 6, "nowhere"),
        (["--set", "solver=simplemkl"], 2, "needs constraint='simplex'"),
        (["--loss", "squared"], 2, "the target holds classes; use 'hinge' or 'squared_hinge' or 'logistic'"),
    ],
)
def test_what_is_wrong_is_named(place: Path, tmp_path: Path, capsys, words: list[str], code: int, message: str):
    error = result(["fit", "mkl", "--data", place / "train", "--run", tmp_path / "run", *words], capsys, code)["error"]
    assert message in error
    assert not (tmp_path / "run" / "config.json").exists()

"""Shared-subspace kernel learning as a user types it: fit, score by task, report; the example; what is refused."""

import shutil

import numpy as np
import pytest

from tests.pipeline.methods.multitask_mkl.test_workflow import WORKFLOWS, ingested, result, table


def fit(data, run, *settings):
    return ["fit", "shared-subspace-mkl", "--data", data, "--run", run, *(word for one in settings for word in ("--set", one))]


KERNELS = 'kernels=["rbf(gamma=0.5)", "linear"]'


def test_from_a_table_with_tasks_to_a_report(tmp_path, capsys):
    data = ingested(tmp_path / "train", capsys)
    summary = result([*fit(data, tmp_path / "run", KERNELS, "q=1.2", "tol=0.01"), "--test-share", "0.2"], capsys)["summary"]
    assert summary["n_tasks"] == 3 and summary["gap"] <= 1e-2 * summary["objective"] and "test_accuracy" in summary
    found = result(["score", tmp_path / "run", data], capsys)
    assert found["rows"] == 18
    assert found["mean_accuracy"] == pytest.approx(np.mean([row["accuracy"] for row in found["tasks"]]))
    result(["report", tmp_path / "run", "--out", tmp_path / "report"], capsys)
    text = (tmp_path / "report" / "report.html").read_text()
    for words in ("Tasks that learn together", "Bounds", "Eigenvalues between tasks"):
        assert words in text


@pytest.mark.parametrize(("setting", "words"), [("q=3", "--set q: must be at most 2"), ("solver=level", "'auto', 'mirror' or 'alternate'")])
def test_bad_settings_are_refused_before_work_starts(tmp_path, capsys, setting, words):
    data = ingested(tmp_path / "train", capsys)
    assert words in result(fit(data, tmp_path / "bad", setting), capsys, 2)["error"]
    assert not (tmp_path / "bad").exists()


def test_more_rows_than_the_driver_holds_are_refused_before_work_starts(tmp_path, capsys):
    data = ingested(tmp_path / "train", capsys)
    error = result([*fit(data, tmp_path / "bad", KERNELS, "solver=mirror"), "--driver-memory", "64KiB"], capsys, 5)["error"]
    assert "shared-subspace-mkl" in error and "driver_memory=64 KiB" in error
    assert not (tmp_path / "bad").exists()


@pytest.mark.slow
def test_the_example_runs(tmp_path, capsys):
    (tmp_path / "data").mkdir()
    table(tmp_path / "data" / "train.csv", real=True)
    shutil.copy(WORKFLOWS / "shared_subspace.yaml", tmp_path / "w.yaml")
    assert set(result(["run", tmp_path / "w.yaml", "--cluster", "sync"], capsys)["steps"].values()) == {"done"}
    (report,) = tmp_path.rglob("report.html")
    assert "Tasks that learn together" in report.read_text()

"""npkl on the command line and in a workflow: the example file, reports, messages with file and line."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


def write_data(folder: Path) -> None:
    """Write 150 rows of two groups, and 80 pairs of them with their sign."""
    rng = np.random.default_rng(0)
    y = np.arange(150) % 2
    (folder / "data").mkdir()
    dump_svmlight_file(rng.normal(size=(150, 4)) + 2 * y[:, None], y, str(folder / "data" / "rows.svm"), zero_based=False)
    pairs = [rng.choice(150, 2, replace=False) for _ in range(80)]
    lines = [f"{i},{j},{1 if y[i] == y[j] else -1}" for i, j in pairs]
    (folder / "data" / "constraints.csv").write_text("\n".join(["i,j,sign", *lines]) + "\n")


@pytest.mark.slow
def test_the_example_workflow(tmp_path, capsys, monkeypatch):
    write_data(tmp_path)
    shutil.copy(WORKFLOWS / "npkl.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert result(["run", tmp_path / "npkl.yaml", "--check"], capsys)["status"] == "checked"
    assert result(["run", tmp_path / "npkl.yaml"], capsys)["status"] == "done"
    table = (tmp_path / "coordinates.csv").read_text().splitlines()
    assert len(table) == 151
    assert table[0].startswith("row,component_0,component_1")
    pages = list(tmp_path.rglob("report.html"))
    assert pages
    text = pages[0].read_text()
    assert "together" in text
    assert "Spectrum of the kernel" in text
    assert result(["run", tmp_path / "npkl.yaml"], capsys)["status"] == "already-done"


@pytest.mark.parametrize(
    ("line", "message"),
    [("3,3,1", "constraints.csv:3"), ("3,999,1", "constraints.csv:3"), ("3,4,2", "constraints.csv:3"), ("1,0,-1", "constraints.csv:3")],
)
def test_bad_lines_are_named(tmp_path, capsys, line, message):
    write_data(tmp_path)
    assert main(["ingest", str(tmp_path / "data" / "rows.svm"), str(tmp_path / "store")]) == 0
    bad = tmp_path / "constraints.csv"
    bad.write_text(f"i,j,sign\n0,1,1\n{line}\n")
    capsys.readouterr()
    fit = ["fit", "npkl", "--data", str(tmp_path / "store"), "--constraints", str(bad), "--run", str(tmp_path / "run"), "--set", "C=0.2"]
    assert main(fit) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()

"""The demonstration: what a new user runs first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from gramplane.workflows.cli import main
from gramplane.workflows.demo import count_candidates, write_digits, write_workflow


def run(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert main(["demo", "--out", str(folder), "--json", "--quiet", *words]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


def model_bytes(folder: Path) -> bytes:
    (file,) = folder.glob("runs/*/pairs/model/manifest.json")
    return file.read_bytes()


def test_the_digits_are_split_once(tmp_path: Path):
    write_digits(tmp_path)
    train, test = np.load(tmp_path / "train.npz"), np.load(tmp_path / "test.npz")
    assert (train["X"].shape, test["X"].shape) == ((249, 64), (108, 64))
    assert set(train["y"]) == set(test["y"]) == {3, 8}
    assert not {row.tobytes() for row in train["X"]} & {row.tobytes() for row in test["X"]}, "no test digit was trained on"
    assert (tmp_path / "pixels.txt").read_text().split()[:2] == ["pixel_0_0", "pixel_0_1"]
    before = (tmp_path / "train.npz").stat().st_mtime_ns
    write_digits(tmp_path)
    assert (tmp_path / "train.npz").stat().st_mtime_ns == before


def test_candidates_are_columns_squares_and_products():
    assert [count_candidates(width) for width in (1, 2, 64)] == [2, 5, 2144]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_demo_tells_3_from_8_on_a_cluster_and_in_process_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = run(tmp_path / "cluster", capsys)
    assert (found["status"], found["candidates"]) == ("done", 2144)
    assert found["accuracy"] >= 0.97 and 5 <= found["n_selected"] <= 40
    page = Path(found["report"]).read_text(encoding="utf-8")
    assert "Pixels used" in page and "Accuracy along the path" in page and len(page) < 2 << 20
    with (tmp_path / "cluster" / "predictions.csv").open() as file:
        assert {row["prediction"] for row in csv.DictReader(file)} == {"3", "8"}

    again = run(tmp_path / "cluster", capsys)
    assert set(again["steps"].values()) == {"already-done"} and again["accuracy"] == found["accuracy"]

    alone = run(tmp_path / "alone", capsys, "--cluster", "sync")
    assert alone["accuracy"] == found["accuracy"]
    assert model_bytes(tmp_path / "alone") == model_bytes(tmp_path / "cluster")


def test_an_edited_workflow_stays(tmp_path: Path):
    told: list[dict] = []
    write_workflow(tmp_path / "demo.yaml", told.append)
    first = (tmp_path / "demo.yaml").read_text()
    write_workflow(tmp_path / "demo.yaml", told.append)
    assert not told and first.startswith("#")
    (tmp_path / "demo.yaml").write_text(first + "# mine\n")
    write_workflow(tmp_path / "demo.yaml", told.append)
    assert "was edited and is run as it is" in told[0]["message"] and (tmp_path / "demo.yaml").read_text().endswith("# mine\n")

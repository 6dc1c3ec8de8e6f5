"""Ties between users as a user types them: the example with its data, import vectors, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import load_model
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.delenv("GRAMPLANE_STORE", raising=False)
    monkeypatch.delenv("GRAMPLANE_RUNS", raising=False)
    with one_thread():
        yield


def community(folder: Path, n: int = 40) -> Path:
    """Users of two circles: counts of tags and groups that differ between these, and a place that does not."""
    rng = np.random.default_rng(5)
    circle = np.arange(n) % 2
    counts = rng.poisson(0.3 + 1.2 * (circle[:, None] == np.arange(80) // 4 % 2))
    X = np.hstack([counts, rng.normal(size=(n, 2))])
    rows = [" ".join(f"{j + 1}:{value:.4g}" for j, value in enumerate(row) if value) for row in X]
    (folder / "data").mkdir()
    (folder / "data" / "users.svm").write_text("".join(f"{row}\n" for row in rows))
    pairs = [(u, int(v)) for u in range(n) for v in rng.choice(n, 5, replace=False) if u != v]
    ties = [f"{u},{v},{int(circle[u] == circle[v])}" for u, v in pairs]
    (folder / "data" / "pairs.csv").write_text("user,other,z\n" + "".join(f"{tie}\n" for tie in ties))
    (folder / "data" / "labels.txt").write_text("".join(f"{'' if u > 9 else ['red', 'blue'][circle[u]]}\n" for u in range(n)))
    return folder


@pytest.mark.slow
def test_the_example_runs_as_it_is(tmp_path, capsys):
    community(tmp_path)
    shutil.copy(WORKFLOWS / "social_strength.yaml", tmp_path)
    assert result(["run", tmp_path / "social_strength.yaml", "--check"], capsys)["status"] == "checked"
    assert result(["run", tmp_path / "social_strength.yaml"], capsys)["status"] == "done"
    (page,) = (tmp_path / "runs").rglob("report.html")
    assert "Kernels by weight" in page.read_text() and "linear[0:40]" in page.read_text()
    (rankings,) = page.parent.rglob("*rankings.csv")
    assert rankings.read_text().count("direct") == 2
    (few,) = (tmp_path / "runs").rglob("few")
    machine = load_model(few)
    assert len(machine.coef_) <= 30 and machine.pair_kernel == "tensor-symmetric"
    circle = np.arange(40) % 2
    for user in (0, 7):
        assert np.mean(circle[machine.recommend(user, 8)] == circle[user]) > 0.8
    rows = np.genfromtxt(tmp_path / "candidates.csv", delimiter=",", names=True)
    assert len(rows) == 200 and np.array_equal(np.unique(rows["rank"]), np.arange(1, 6))
    assert np.mean(circle[rows["candidate"].astype(int)] == circle[rows["user"].astype(int)]) > 0.8
    labels = [line.split(",")[1] for line in (tmp_path / "labels.csv").read_text().splitlines()[1:]]
    assert np.mean(np.array(labels) == np.array(["red", "blue"])[circle]) > 0.9
    assert result(["run", tmp_path / "social_strength.yaml"], capsys)["status"] == "already-done"


@pytest.fixture(scope="module")
def ties(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ties")
    data = community(folder) / "data"
    for words in (["ingest", data / "users.svm", folder / "s", "--no-labels"], fit(folder)):
        assert main([*map(str, words)]) == 0
    return folder


def fit(folder):
    words = ["fit", "social-strength", "--data", folder / "s", "--pairs", folder / "data" / "pairs.csv", "--kernels", "linear"]
    return [*words, "--run", folder / "run", "--set", "C=0.01"]


def test_groups_are_recommended_by_their_members(ties, tmp_path, capsys):
    (tmp_path / "members.csv").write_text("group,user\n" + "".join(f"{'even' if u % 2 == 0 else 'odd'},{u}\n" for u in range(10)))
    words = ["predict", ties / "run", ties / "s", tmp_path / "groups.csv", "--recommend", 1, "--members", tmp_path / "members.csv"]
    assert result([*words, "--dry-run"], capsys)["plan"]["rows"] == 40 and not (tmp_path / "groups.csv").exists()
    assert result(words, capsys)["rows"] == 40
    lines = [line.split(",") for line in (tmp_path / "groups.csv").read_text().splitlines()[1:]]
    right = [name == ("even" if int(user) % 2 == 0 else "odd") for user, _, name, _ in lines if int(user) >= 10]
    assert len(right) == 30 and np.mean(right) > 0.8


@pytest.mark.parametrize(
    ("words", "text", "code", "told"),
    [
        (["--recommend", "2", "--members", "FILE"], "g1,3\ng1,40\n", 3, "given:2: row 40 is not in the store, whose rows are 0 to 39"),
        (["--recommend", "2", "--members", "FILE"], "g1,3\n7\n", 3, "given:2: '7' must be a name and a row"),
        (["--recommend", "2", "--members", "FILE"], "g1,3,1\n", 3, "given:1: 'g1 3 1' must be a name and a row"),
        (["--members", "FILE"], "g1,3\n", 2, "members: needs the number of candidates"),
        (["--user-labels", "FILE"], "a\nb\n", 3, "given:3: the file has 2 lines; there must be one for each of the 40 rows"),
        (["--user-labels", "FILE"], "a\n" * 40, 3, "given: number of different labels: 1; at least two are needed"),
        (["--user-labels", "FILE", "--recommend", "2"], "", 2, "recommend and user-labels exclude each other"),
        (["--recommend", "2", "--three-way"], "", 2, "three-way is for predicted classes"),
    ],
)
def test_questions_that_are_none_are_named(ties, tmp_path, capsys, words, text, code, told):
    (tmp_path / "given").write_text(text)
    words = [str(tmp_path / "given") if word == "FILE" else word for word in words]
    assert main(["predict", str(ties / "run"), str(ties / "s"), str(tmp_path / "out.csv"), *words]) == code
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(
    ("line", "words", "code", "told"),
    [
        ("3,4,2", [], 3, "pairs.csv:5: the value of a pair is 2; it must be one of 0, 1"),
        ("3,77,1", [], 3, "pairs.csv:5: row 77 is not in the store"),
        ("", ["--set", "pair_kernel=product"], 2, "pair_kernel"),
        ("", ["--set", "n_import=0"], 2, "n_import"),
    ],
)
def test_what_is_wrong_is_named_before_there_is_a_run(tmp_path, capsys, line, words, code, told):
    data = community(tmp_path) / "data"
    lines = (data / "pairs.csv").read_text().splitlines()
    (data / "pairs.csv").write_text("\n".join([*lines[:4], *([line] if line else []), *lines[4:]]) + "\n")
    result(["ingest", data / "users.svm", tmp_path / "s", "--no-labels"], capsys)
    typed = [
        "fit",
        "social-strength",
        "--data",
        tmp_path / "s",
        "--pairs",
        data / "pairs.csv",
        "--kernels",
        "linear",
        "--run",
        tmp_path / "r",
    ]
    assert main([*map(str, typed), *words]) == code
    assert told in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_pairs_that_are_all_ties_and_runs_without_views_are_refused(tmp_path, capsys):
    data = community(tmp_path) / "data"
    result(["ingest", data / "users.svm", tmp_path / "s", "--no-labels"], capsys)
    typed = ["fit", "social-strength", "--data", tmp_path / "s", "--pairs", data / "pairs.csv", "--run", tmp_path / "r"]
    assert main([*map(str, typed)]) in (2, 3)
    assert "social-strength needs views" in capsys.readouterr().err
    (data / "pairs.csv").write_text("0,1,1\n2,3,1\n")
    assert main([*map(str, typed), "--kernels", "linear"]) == 3
    assert "all 2 pairs have z=1; linked and unlinked pairs are needed" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()

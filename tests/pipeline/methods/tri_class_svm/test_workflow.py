"""The tri-class machine as a user types it: ingest, fit with unlabelled rows, resume, predict three ways, score, report; the example."""

import csv
import gc
import shutil

import numpy as np
import pytest

from gramplane.pipeline import run_method
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"


def text(path, n, seed, labelled=True, classes=(-1, 0, 1)):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.resize(classes, n))
    X = rng.normal(size=(n, 4)) + 1.3 * y[:, None] * np.array([1, 1, 0, 0])
    rows = [" ".join(f"{j + 1}:{value:.4f}" for j, value in enumerate(row)) for row in X]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{label:+d} {row}\n" if labelled else f"{row}\n" for label, row in zip(y, rows, strict=True)))
    return path


@pytest.fixture
def stores(tmp_path, capsys):
    result(["ingest", text(tmp_path / "a.svm", 48, 0), tmp_path / "train"], capsys)
    result(
        ["ingest", text(tmp_path / "b.svm", 90, 1, labelled=False), tmp_path / "more", "--like", tmp_path / "train", "--no-labels"], capsys
    )
    return tmp_path


def more(folder, seed, capsys, *words):
    """Write the unlabelled store."""
    source = text(folder / "b.svm", 90, seed, labelled=False)
    result(["ingest", source, folder / "more", "--like", folder / "train", "--no-labels", *words], capsys)


def fit(folder, run, *more):
    return ["fit", "tri-class-svm", "--data", folder / "train", "--unlabelled", folder / "more", "--run", folder / run, *more]


def test_from_two_stores_to_a_report(stores, capsys):
    words = fit(stores, "run", "--set", "C=2", "--set", "validation=3", "--test-share", "0.25")
    plan = result([*words, "--dry-run"], capsys)["plan"]
    assert (plan["labelled"], plan["unlabelled"], plan["starts"]) == (48, 90, ["usvm", "svm3", "s3vm", "random-0"])
    summary = result(words, capsys)["summary"]
    assert summary["minus"] + summary["zero"] + summary["plus"] == 90
    assert summary["test_accuracy"] > 0.7 and set(summary["validation"]) == {"SVM", "U-SVM", "3C-SVM"}
    assert result(["resume", stores / "run"], capsys)["status"] == "already-done"
    found = result(["predict", stores / "run", stores / "more", stores / "p.csv", "--three-way"], capsys)
    assert found["predicted"] == {"-1": summary["minus"], "0": summary["zero"], "1": summary["plus"]}
    rows = list(csv.DictReader((stores / "p.csv").open()))
    assert all((row["prediction"] == "0") == (abs(float(row["decision"])) < 0.55) for row in rows)
    plain = result(["predict", stores / "run", stores / "more", stores / "q.csv"], capsys)["predicted"]
    assert set(plain) == {"-1", "1"}
    scores = result(["score", stores / "run", stores / "train"], capsys)
    assert scores["rows"] + scores["rows_of_neither"] == 12 and 0 <= scores["three_way_accuracy"] <= 1
    assert scores["accuracy"] == pytest.approx(summary["test_accuracy"])


def test_zero_beside_three_labels_is_refused_until_it_is_told_apart(stores, capsys):
    lines = (stores / "a.svm").read_text().splitlines()
    lines[7] = "+2 " + lines[7].partition(" ")[2]
    (stores / "a.svm").write_text("\n".join(lines) + "\n")
    result(["ingest", stores / "a.svm", stores / "bad"], capsys)
    assert main(["fit", "tri-class-svm", "--data", str(stores / "bad"), "--run", str(stores / "r")]) == 3
    assert "if 0 is a class, set irrelevant_label=None (--irrelevant-label null)" in capsys.readouterr().err
    assert not (stores / "r").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--set", "eps=1"], "eps"),
        (["--set", "kernel=rbff(gamma=1)"], "rbff"),
        (["--set", "balance=mean"], "balance"),
        (["--set", "D=1.05"], "D=1.05: must be at least 1 + eps"),
    ],
)
def test_parameters_are_refused_before_there_is_a_run(stores, capsys, words, told):
    assert main([*map(str, fit(stores, "r", *words))]) in (2, 3)
    assert told in capsys.readouterr().err
    assert not (stores / "r").exists()


def test_unlabelled_rows_that_do_not_go_with_the_others_are_refused(stores, capsys):
    assert main(["fit", "mkl", *map(str, fit(stores, "r")[2:])]) == 2
    assert "mkl has no option --unlabelled: it belongs to tri-class-svm" in capsys.readouterr().err
    with pytest.raises(ValueError, match="unlabelled: mkl does not take a store of rows without a label; methods that do: tri-class-svm"):
        run_method("mkl", {}, data=str(stores / "train"), run=str(stores / "r"), extra={"unlabelled": str(stores / "train")})
    wide = stores / "c.svm"
    wide.write_text("1:1 9:1\n")
    result(["ingest", wide, stores / "wide", "--no-labels"], capsys)
    words = ["fit", "tri-class-svm", "--data", stores / "train", "--unlabelled", stores / "wide", "--run", stores / "r"]
    assert main([*map(str, words)]) == 3
    assert "has 9 features" in capsys.readouterr().err
    words[5] = stores / "none"
    assert main([*map(str, words)]) == 2
    assert "unlabelled: store" in capsys.readouterr().err
    assert not (stores / "r").exists()


def test_a_run_keeps_to_the_unlabelled_rows_it_began_with(stores, capsys):
    result(fit(stores, "run", "--set", "max_iter=2"), capsys)
    (stores / "run" / "summary.json").unlink()
    gc.collect()  # in this process nobody reads the rows of the run any more, so that they go
    more(stores, 5, capsys, "--overwrite")
    assert main(["resume", str(stores / "run")]) == 6
    assert "the store was replaced" in capsys.readouterr().err


@pytest.mark.slow
def test_the_example_runs_as_it_is(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("GRAMPLANE_STORE", raising=False)
    monkeypatch.delenv("GRAMPLANE_RUNS", raising=False)
    text(tmp_path / "data" / "train.svm", 40, 0)
    text(tmp_path / "data" / "unlabelled.svm", 60, 1, labelled=False)
    shutil.copy(WORKFLOWS / "triclass.yaml", tmp_path)
    assert result(["run", tmp_path / "triclass.yaml", "--check"], capsys)["status"] == "checked"
    assert result(["run", tmp_path / "triclass.yaml"], capsys)["status"] == "done"
    assert (tmp_path / "answers.csv").read_text().startswith("row,prediction,decision")
    (page,) = (path.read_text() for path in (tmp_path / "runs").rglob("report.html"))
    for said in ("Objective by start", "Unlabelled rows", "U-SVM", "Starts"):
        assert said in page
    assert result(["run", tmp_path / "triclass.yaml"], capsys)["status"] == "already-done"

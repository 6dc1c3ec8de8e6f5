"""What commands print for a reader, as it is typed and read."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gramplane.datasets import patients
from gramplane.pipeline.records.run_view import TRAINING_ROWS
from gramplane.workflows.cli import main
from gramplane.workflows.console import table_lines
from gramplane.workflows.texts import quality_lines, score_text
from tests.support.places import ROOT
from tests.workflows.report.pages import view


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the patients, a store of them, a run of rules and a grid of feature generating machines on wide rows."""
    folder = tmp_path_factory.mktemp("typed")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patients().to_csv("patients.csv", "new.csv")
        more = ["--id-column", "patient", "--drop", "admitted", "--categorical", "zip", "--missing", "keep", "--quiet"]
        assert main(["ingest", "patients.csv", "stores/train", "--target", "outcome", *more]) == 0
        assert main(["fit", "rule-ensemble", "--data", "stores/train", "--run", "runs/rules", "--quiet"]) == 0
    return folder


@pytest.fixture
def typed(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Return what a command line prints on stdout."""
    monkeypatch.chdir(folder)

    def run(line: str) -> str:
        capsys.readouterr()
        assert main([*line.split(), "--quiet"]) == 0
        return capsys.readouterr().out

    return run


def test_a_fit_ends_with_what_it_found_how_well_it_does_and_what_comes_next(typed):
    text = typed("status runs/rules")
    assert re.match(r"runs/rules: done in [\d.]+ s \(\d+ rounds; the objective stopped falling\)\n\n", text)
    assert re.search(r"rule +predicts +rows +weight\n +age > 60.5 and smoker = yes +ill +133 ", text)
    assert re.search(r"\naccuracy 9\d.\d % on training rows \(optimistic\); most frequent class: \d\d.\d %\ncertified within", text)
    assert "next: gramplane score runs/rules TEST" in text and text.endswith("gramplane report runs/rules\n")
    again = typed("fit rule-ensemble --data stores/train --run runs/rules")
    assert again.partition("\n\n")[2] == text.partition("\n\n")[2] and again.startswith("runs/rules: done already")


def test_a_score_says_how_many_rows_are_right_and_what_always_one_class_gets(typed):
    text = typed("score runs/rules new.csv")
    shown = r"18\d of 200 correct \(9\d\.\d %, 95 % CI [\d.]+–[\d.]+ %\); most frequent class: 62\.0 %\n"
    shown += r"scored on: 200 rows of new\.csv\n"
    assert re.match(shown, text)
    assert re.search(r"by class:\n  class +precision +recall +f1 +rows\n  ill +\d", text)


def test_a_score_of_numbers_stands_beside_always_predicting_the_mean():
    score = {"rows_are": TRAINING_ROWS, "rows": 1200, "r2": 0.91, "rmse": 0.964, "mae": 0.75, "rmse_of_mean": 3.265, "path": []}
    assert score_text(score, "s").splitlines() == [
        "R2 0.910; root mean squared error 0.964 (always predicting the mean: 3.27)",
        "scored on: 1,200 training rows (optimistic)",
        "",
        "mean absolute error  0.75",
    ]


def test_fewer_features_that_do_better_are_told_with_the_command_that_finds_them():
    history = [{"iteration": t, "n_selected": 10 * t, "train_accuracy": 1.0, "test_accuracy": 0.8 - 0.02 * t} for t in range(1, 11)]
    lines = quality_lines(view(history=history, settings={"data": "stores/g"}, params={"B": 10}, path="runs/g"))
    assert lines[2:] == [
        "fewer features do better: 10 features 78.0 %, 100 features 60.0 %",
        "help: gramplane tune fgm --data stores/g --run runs/g-tuned --grid B=2,5,10",
    ]
    assert len(quality_lines(view(history=history[:1]))) == 2


def test_a_table_has_numbers_to_the_right_and_no_more_digits_than_are_meant():
    rows = [{"feature": "a", "weight": -0.4, "rows": 1200, "gap": 2e-16}, {"feature": "long", "weight": 10.25, "rows": 3, "gap": np.nan}]
    assert table_lines([*rows, {"feature": "b", "none": None}], digits=3)[0] == "  feature  weight   rows    gap"
    assert table_lines(rows) == ["  feature  weight   rows    gap", "  a        -0.400  1,200  2e-16", "  long       10.2      3"]


def test_a_workflow_has_a_line_for_each_step_with_what_it_came_to_and_its_file(typed, folder, capsys):
    for name in ("smoke.yaml", "smoke.svm"):
        shutil.copy(ROOT / "workflows" / name, folder / name)
    lines = typed("run smoke.yaml").splitlines()
    assert re.fullmatch(r"smoke: smoke/runs/smoke-\w+", lines[0]) and len(lines) == 7
    assert re.fullmatch(r"  data +done +[\d.]+ s +160 rows, 24 columns  smoke/store", lines[1])
    assert re.fullmatch(r"  score +done +[\d.]+ s +accuracy 100.0 % \(most frequent class: 50.0 %\)", lines[4])
    assert re.fullmatch(r"  report +done +[\d.]+ s +smoke/runs/smoke-\w+/report/report.html", lines[6])
    assert main(["run", "smoke.yaml"]) == 0
    said = capsys.readouterr()
    assert said.err == "step check\n" and said.out.count("already done") == 5


def test_an_error_says_what_where_and_one_thing_to_do_in_colour_on_a_terminal_alone(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    words = ["ingest", "patients.csv", "stores/train", "--target", "outcome", "--missing", "keep"]
    assert main(words) == 3
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "error: stores/train holds a different store, made from another source or with other options",
        "help: choose another path, or set overwrite to replace it (--overwrite)",
    ]
    assert main(["fit", "fgm", "--data", "stores/train", "--run", "r", "--B", "three"]) == 2
    assert capsys.readouterr().err == "error: --B: must be a whole number, not 'three'\nhelp: gramplane fit fgm --help\n"
    assert main(["fit", "fgm", "--data", "nowhere", "--run", "r"]) == 2
    assert capsys.readouterr().err == "error: store nowhere does not exist\n"
    assert main(["fit", "fgm", "--data", "stores/train", "--bees", "3"]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "help: gramplane fit fgm --help"
    (folder / "bad.yaml").write_text((ROOT / "workflows" / "smoke.yaml").read_text().replace("smoke.svm", "none.svm"))
    assert main(["run", "bad.yaml"]) == 2
    assert capsys.readouterr().err.startswith("error: source ")


@pytest.mark.parametrize(("more", "is_coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_errors_have_colour_on_a_terminal_unless_it_is_not_wanted(more, is_coloured):
    ours, theirs = pty.openpty()
    environ = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | more
    subprocess.run([sys.executable, "-m", "gramplane.workflows.cli", "status", "nowhere"], stderr=theirs, env=environ, check=False)
    os.close(theirs)
    shown = os.read(ours, 1 << 12)
    os.close(ours)
    assert b"error:" in shown and (b"\x1b[" in shown) == is_coloured

"""Kernels over the rows of one store as a user types them: pairs from files, resume, predict, report; what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from gramplane.pipeline import load_model
from gramplane.workflows.cli import main
from tests.support.commands import result


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def rows(tmp_path, capsys):
    """Forty rows around two centres, pairs of some of them and ties."""
    rng = np.random.default_rng(4)
    side = np.arange(40) % 2
    X = rng.normal(size=(40, 5)) + 2.5 * side[:, None]
    table = [f"{side[i]}," + ",".join(f"{value:.4f}" for value in X[i]) for i in range(40)]
    written(tmp_path / "rows.csv", ["label,a,b,c,d,e", *table])
    pairs = [(i, i + k) for i in range(30) for k in (2, 3)]
    written(tmp_path / "pairs.csv", ["row,other,value", *(f"{i},{j},{1 if side[i] == side[j] else -1}" for i, j in pairs)])
    written(tmp_path / "ties.csv", [f"{i} {j} {int(side[i] == side[j])}" for i, j in pairs])
    result(["ingest", tmp_path / "rows.csv", tmp_path / "s", "--target", "label"], capsys)
    return tmp_path


def fit(folder: Path, method: str, *more: object) -> list[object]:
    return ["fit", method, "--data", folder / "s", *more]


def npkl(folder: Path, run: str, *more: object) -> list[object]:
    return fit(folder, "npkl", "--constraints", folder / "pairs.csv", "--run", folder / run, "--set", "C=0.3", "--set", "B=40", *more)


def test_a_kernel_from_pairs_to_a_report(rows, capsys):
    words = npkl(rows, "run", "--set", "loss=squared_hinge")
    plan = result([*words, "--dry-run"], capsys)["plan"]
    assert (plan["constraints"], plan["n_rows"]) == (60, 40) and not (rows / "run").exists()
    summary = result(words, capsys)["summary"]
    assert summary["satisfied"] == 60 and summary["relative_gap"] <= 1e-4
    assert result(["resume", rows / "run"], capsys)["status"] == "already-done"
    found = result(["predict", rows / "run", rows / "s", rows / "p.csv"], capsys)
    with (rows / "p.csv").open(encoding="utf-8") as file:
        points = np.array([[float(value) for value in row[1:]] for row in list(csv.reader(file))[1:]])
    assert points.shape == (40, found["columns"])
    near = points @ points.T
    assert np.mean(near[::2, ::2]) > 0.1 and np.mean(near[::2, 1::2]) < -0.1
    page = Path(result(["report", rows / "run"], capsys)["report"]).read_text(encoding="utf-8")
    assert "Spectrum of the kernel" in page and "Primal and dual" in page


def test_other_rows_get_coordinates_and_no_score(rows, capsys):
    result(npkl(rows, "run"), capsys)
    result(["ingest", rows / "rows.csv", rows / "other", "--target", "label", "--scale", "standard"], capsys)
    assert result(["predict", rows / "run", rows / "other", rows / "p.csv"], capsys)["rows"] == 40
    assert main(["score", str(rows / "run"), str(rows / "s")]) in (2, 3)
    assert "nothing to score" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["npkl"], 2, "npkl needs pairs of rows that belong together (+1) or apart (-1) (--constraints FILE)"),
        (["npkl", "--constraints", "none.csv"], 2, "none.csv"),
        (["npkl", "--constraints", "bad.csv"], 3, "bad.csv:2: row 77 is not in the store, whose rows are 0 to 39"),
        (["npkl", "--constraints", "torn.csv"], 3, "torn.csv:2: rows 4 and 1 have the value -1 here and 1 in line 1"),
        (["npkl", "--constraints", "pairs.csv", "--set", "C=0"], 2, "C"),
        (["npkl", "--constraints", "pairs.csv", "--set", "p=0.5"], 2, "p"),
        (["mkl", "--tags", "tags.txt"], 2, "mkl has no option --tags: it belongs to semantic-ranker"),
        (["semantic-ranker", "--tags", "bad.csv"], 3, "bad.csv:3: the file has 2 lines; there must be one for each of the 40 rows"),
        (["social-strength", "--pairs", "pairs.csv", "--kernels", "linear"], 3, "the value of a pair is -1; it must be one of 0, 1"),
    ],
)
def test_bad_input_is_told_before_there_is_a_run(rows, capsys, monkeypatch, words, code, told):
    monkeypatch.chdir(rows)
    written(rows / "bad.csv", ["1,2,1", "1,77,1"])
    written(rows / "tags.txt", ["sea"] * 40)
    written(rows / "torn.csv", ["1,4,1", "4,1,-1"])
    assert main([*map(str, fit(rows, *words)), "--run", "run"]) == code
    assert told in capsys.readouterr().err
    assert not (rows / "run").exists()


# -- selection and clusters ----------------------------------------------------------------------------------------------------------


def test_constraints_are_selected_actively(rows, capsys):
    fit = fit_words(rows)
    every = result([*fit, "--run", rows / "all"], capsys)["summary"]
    active = result([*fit, "--set", "selection=active", "--set", "n_select=6", "--run", rows / "active"], capsys)["summary"]
    drawn = result([*fit, "--set", "selection=random", "--set", "n_select=6", "--seed", "3", "--run", rows / "drawn"], capsys)["summary"]
    assert every["constraints"] == every["constraints_given"] == active["constraints_given"] == 60
    assert 6 <= active["constraints"] == drawn["constraints"] < 60


def fit_words(folder: Path) -> list[object]:
    return fit(folder, "npkl", "--constraints", folder / "pairs.csv", "--set", "C=0.4", "--set", "graph=union")


def test_rows_of_a_run_are_clustered(rows, capsys):
    result([*fit_words(rows), "--run", rows / "run"], capsys)
    found = result(["cluster", rows / "run", rows / "c.csv", "--n-clusters", "2", "--store", rows / "s", "--normalize"], capsys)
    with (rows / "c.csv").open(encoding="utf-8") as file:
        labels = [int(row["prediction"]) for row in csv.DictReader(file)]
    model = load_model(rows / "run")
    np.testing.assert_array_equal(labels, model.set_params(random_state=0).cluster(2, normalize=True))
    assert found["clusters"] == {str(k): labels.count(k) for k in (0, 1)} and found["rand_accuracy"] > 0.6
    result(["cluster", rows / "run", rows / "c.csv", "--n-clusters", "3", "--seed", "1"], capsys)  # predictions are replaced
    assert set(np.loadtxt(rows / "c.csv", skiprows=1, delimiter=",")[:, 1]) == {0, 1, 2}


def test_what_cannot_be_clustered_is_told(rows, capsys):
    result([*fit_words(rows), "--run", rows / "run"], capsys)
    result(["ingest", rows / "rows.csv", rows / "other", "--target", "label", "--scale", "standard"], capsys)
    result(fit(rows, "mve", "--set", "max_iter=1", "--set", "graph=union", "--run", rows / "map"), capsys)
    cases = (
        (["run", "c.csv", "--n-clusters", "41"], "n_clusters=41: must be a whole number from 1 to the number of rows, 40"),
        (["run", "c.txt", "--n-clusters", "2"], "the file extension must be one of"),
        (["map", "c.csv", "--n-clusters", "2"], "a fit of mve has no clusters; cluster needs a fit of npkl"),
        (["run", "c.csv", "--n-clusters", "2", "--store", "other"], "is not the store that the run was fitted on"),
        (["run", "c.csv", "--n-clusters", "2", "--driver-memory", "1KiB"], "cluster: this process would hold"),
    )
    for words, told in cases:
        given = [str(rows / word) if (rows / word).exists() or word.startswith("c.") else word for word in words]
        assert main(["cluster", *given]) != 0
        assert told in capsys.readouterr().err

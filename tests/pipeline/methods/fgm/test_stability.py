"""How steady a selection is, as a command, a step of a workflow and a table of the report; the paper's test of inner steps."""

import csv
import json

import numpy as np
import pytest

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.mixed_norm import apg
from gramplane.pipeline import FGMClassifier, run_method, selection_stability, tune
from gramplane.storage import DigestMismatch, RunStore, StorageError
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.commands import result
from tests.support.fgm_problems import classes, planted

PARAMS = {"B": 3, "max_rounds": 2, "scale": None}
NAMES = [f"gene-{j}" for j in range(12)]


@pytest.fixture
def place(tmp_path):
    """A store of 12 named features and a finished run, seed 5."""
    X, y = planted(8, d=12)
    ingest((X, y), tmp_path / "data", names=NAMES)
    run_method("fgm", PARAMS, data=str(tmp_path / "data"), run=str(tmp_path / "run"), seed=5)
    return tmp_path


def test_a_run_tells_what_resamples_of_its_rows_select(place, capsys):
    """Fits to every resample alone, drawn by hand."""
    X, y = planted(8, d=12)
    counts, chosen = np.zeros(12), FGMClassifier(**PARAMS).fit(X, y).selected_
    for child in np.random.SeedSequence(5).spawn(6):
        weight = np.random.default_rng(child).multinomial(80, np.full(80, 1 / 80)).astype(float)
        counts[FGMClassifier(**PARAMS).fit(X, y, weight).selected_] += 1
    plan = result(["stability", place / "run", "--resamples", "6", "--dry-run"], capsys)["plan"]
    assert plan["machines"] == 6 and plan["driver_bytes"] > 0 and not (place / "run" / "stability.json").exists()
    found = result(["stability", place / "run", "--resamples", "6"], capsys)
    rows = {row["feature"]: row for row in found["features"]}
    assert set(rows) == {NAMES[j] for j in {*np.flatnonzero(counts), *chosen}}
    for j in range(12):
        assert rows.get(NAMES[j], {"frequency": 0.0})["frequency"] == pytest.approx(counts[j] / 6)
        assert rows.get(NAMES[j], {"in_the_fit": False})["in_the_fit"] == (j in chosen)
    assert [row["frequency"] for row in found["features"]] == sorted((row["frequency"] for row in rows.values()), reverse=True)
    assert (found["resamples"], found["n_selected"], found["ever_selected"]) == (6, len(chosen), np.count_nonzero(counts))
    assert found["steady"] == np.sum(counts >= 0.8 * 6) and found["mean_frequency"] == pytest.approx(counts[chosen].mean() / 6)
    other = result(["stability", place / "run", "--resamples", "6", "--seed", "9"], capsys)
    assert other["features"] != found["features"]
    assert RunStore.open(place / "run").read_json("stability")["features"] == other["features"]


def test_the_report_shows_it(place, capsys):
    assert main(["report", str(place / "run")]) == 0 and "Selection stability" not in (place / "run" / "report.html").read_text()
    result(["stability", place / "run", "--resamples", "3"], capsys)
    assert main(["report", str(place / "run")]) == 0
    assert "Selection stability" in (place / "run" / "report.html").read_text()
    rows = list(csv.DictReader((place / "run" / "stability.csv").open()))
    assert {row["feature"] for row in rows} <= set(NAMES) and {row["in_the_fit"] for row in rows} <= {"True", "False"}


def test_it_is_a_step_of_a_workflow_that_needs_a_fit(place, capsys):
    text = """schema: gramplane.workflow/1
name: steady
store: data
steps:
  - {id: select, do: fit, with: {method: fgm, B: 3, max_rounds: 2, scale: null, seed: 5}}
  - {id: steady, do: stability, needs: [select], with: {resamples: 4}}
  - {id: page, do: report, needs: [select, steady]}
"""
    (place / "w.yaml").write_text(text)
    assert result(["run", place / "w.yaml", "--check"], capsys)["status"] == "checked"
    assert result(["run", place / "w.yaml"], capsys)["status"] == "done"
    (file,) = (place / "runs").rglob("steady/stability.json")
    found, expected = json.loads(file.read_text()), selection_stability(str(place / "run"), n_resamples=4)
    assert found["features"] == expected["features"] and found["resamples"] == 4
    (page,) = (path.read_text() for path in (place / "runs").rglob("report.html"))
    assert "Selection stability" in page
    assert result(["run", place / "w.yaml"], capsys)["status"] == "already-done"
    (place / "w.yaml").write_text(text.replace("needs: [select], ", ""))
    assert main(["run", str(place / "w.yaml"), "--check"]) == 2
    assert "uses a model, but its needs list no fit or tune step" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["poly2", "groups", "classes", "tuned"])
def test_products_groups_classes_and_the_best_of_a_grid(form, tmp_path, capsys):
    X, y = classes(density=0.5) if form == "classes" else planted(8, d=12)
    ingest((X, y), tmp_path / "data", **({"groups": np.arange(12) // 2} if form == "groups" else {}))
    params = {**PARAMS, **({"feature_map": "poly2"} if form == "poly2" else {})}
    where = {"data": str(tmp_path / "data"), "run": str(tmp_path / "run")}
    if form == "tuned":
        tune("fgm", {"C": [1.0, 10.0]}, params=params, folds=2, **where)
    else:
        run_method("fgm", params, **where)
    found = result(["stability", tmp_path / "run", "--resamples", "4"], capsys)
    names = [row["feature"] for row in found["features"]]
    assert all(0 <= row["frequency"] <= 1 for row in found["features"]) and found["resamples"] == 4
    assert any(row["in_the_fit"] and row["frequency"] > 0 for row in found["features"])
    assert (form != "groups") or all(name.startswith("group ") for name in names)
    assert (form != "poly2") or any("*" in name for name in names)


def test_what_has_no_selection_to_measure_is_refused(place, tmp_path, capsys):
    run_method("mkl", {"kernels": ["linear"]}, data=str(place / "data"), run=str(tmp_path / "mkl"))
    with pytest.raises(ValueError, match="the stability of mkl cannot be measured, only that of fgm"):
        selection_stability(str(tmp_path / "mkl"))
    with pytest.raises(ValueError, match="n_resamples=0: must be at least 1"):
        selection_stability(str(place / "run"), n_resamples=0)
    with pytest.raises(MemoryBoundExceeded, match=r"fgm: .*a smaller B or max_rounds, fewer rows"):
        selection_stability(str(place / "run"), driver_memory="20KiB")
    X, y = planted(9, d=12)
    ingest((X, y), place / "data", overwrite=True)
    with pytest.raises(DigestMismatch):
        selection_stability(str(place / "run"), n_resamples=2)
    (place / "run" / "where.json").unlink()
    with pytest.raises(StorageError, match=r"where\.json, which names the data of the run, is missing"):
        selection_stability(str(place / "run"))
    (place / "run" / "summary.json").unlink()
    with pytest.raises(StorageError, match="not finished"):
        selection_stability(str(place / "run"))


# -- the paper's inner stop ------------------------------------------------------------------------------------------------------------


def test_the_inner_stop_of_the_paper_ends_steps_by_their_decrease(monkeypatch):
    X, y = planted(8, n=300, d=40)
    seen = []
    solve = apg.solve_apg

    def watched(*given, **options):
        seen.append(options["until"])
        return solve(*given, **options)

    monkeypatch.setattr("gramplane.kernels.mixed_norm.SOLVERS", {"apg": watched})
    monkeypatch.setattr("gramplane.pipeline.methods.fgm.method.SOLVERS", {"apg": watched})
    params = {"B": 4, "max_rounds": 4, "inner_tol": 1e-3}
    by_gap, by_decrease = (FGMClassifier(**params, solver="apg", inner_stop=stop).fit(X, y) for stop in ("gap", "decrease"))
    auto = FGMClassifier(**params, inner_stop="decrease").fit(X, y)
    assert set(seen) == {"gap", "decrease"} and auto.objective_ == by_decrease.objective_
    assert by_gap.dual_gap_ <= 1e-3 * by_gap.objective_ < by_decrease.dual_gap_
    assert by_gap.converged_ and not by_decrease.converged_
    steps = [machine.history_["inner_steps"].sum() for machine in (by_gap, by_decrease)]
    assert steps[1] < steps[0]
    # The gap that is left is told honestly: the last sub-problem's optimum is within it.
    tight = FGMClassifier(**{**params, "inner_tol": 1e-9}, solver="apg", inner_stop="decrease").fit(X, y)
    assert tight.dual_gap_ <= 1e-3 * tight.objective_
    with pytest.raises(ValueError, match="inner_stop='decrease' needs solver='apg' or 'auto', not 'newton'"):
        FGMClassifier(inner_stop="decrease", solver="newton").fit(X, y)

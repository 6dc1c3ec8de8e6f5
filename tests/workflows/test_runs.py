"""Commands and workflows on real data: the smoke workflow's file, small enough for every test."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gramplane.workflows.checking import ConfigError
from gramplane.workflows.cli import main
from gramplane.workflows.commands.options import ComputeOptions
from gramplane.workflows.runner import default_run_id, merge_compute, run_workflow
from gramplane.workflows.schema import ResultLine, read_workflow
from tests.support.clusters import import_path
from tests.support.places import ROOT

WORKFLOWS = ROOT / "workflows"
STEPS = {"data": "done", "check": "done", "select": "done", "score": "done", "predict": "done", "report": "done"}
AGAIN = {**dict.fromkeys(STEPS, "already-done"), "check": "done"}
"""``verify`` looks again every time: what was sound yesterday says nothing about today."""


@pytest.fixture
def smoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the smoke workflow in a folder of its own; the process works elsewhere."""
    for name in ("smoke.yaml", "smoke.svm"):
        shutil.copy(WORKFLOWS / name, tmp_path / name)
    monkeypatch.delenv("GRAMPLANE_SMOKE", raising=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "smoke.yaml"


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store and a finished run on it. Tests that change it take a copy."""
    folder = tmp_path_factory.mktemp("fitted")
    assert main(["ingest", str(WORKFLOWS / "smoke.svm"), str(folder / "store"), "--quiet"]) == 0
    words = ["--set", "B=2", "--set", "max_rounds=3", "--test-share", "0.25", "--quiet"]
    assert main(["fit", "fgm", "--data", str(folder / "store"), "--run", str(folder / "run"), *words]) == 0
    return folder


@pytest.fixture
def copy(fitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(fitted, tmp_path / "copy"))


def result(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code
    line = capsys.readouterr().out.rstrip("\n").rpartition("\n")[2]
    assert len(line.encode()) <= 4096
    found = ResultLine.model_validate(json.loads(line)).model_dump()
    assert found["exit"] == code
    return found


# -- single commands -------------------------------------------------------------------------------------------------


def test_ingest_tells_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ["ingest", WORKFLOWS / "smoke.svm", tmp_path / "store", "--labels", "-1,1", "--scale", "unit-row"]
    found = result(words, capsys)
    assert (found["rows"], found["columns"], found["kind"], found["labels"], found["scale"]) == (160, 24, "sparse", [-1, 1], "unit-row")
    assert found["digest"] == result(words, capsys)["digest"], "the same again changes nothing"
    other = ["ingest", WORKFLOWS / "smoke.svm", tmp_path / "store", "--scale", "none"]
    assert "set overwrite" in result(other, capsys, 3)["error"]
    assert result([*other, "--overwrite"], capsys)["scale"] == "none"


@pytest.mark.parametrize(("words", "labels"), [("02,01", ["01", "02"]), ("2,1", [1, 2]), ("1.0,1", ["1", "1.0"])])
def test_labels_are_numbers_where_all_read_back_as_they_were_written(words: str, labels: list, tmp_path: Path, capsys):
    text = "x,y\n" + "".join(f"{k},{words.split(',')[k % 2]}\n" for k in range(6))
    found = result(["ingest", _written(tmp_path / "a.csv", text), tmp_path / "store", "--target", "y", "--labels", words], capsys)
    assert found["labels"] == labels


def test_bad_input_is_told_with_line_and_column(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "bad.svm").write_text("1 1:2\n-1 2:1 1:3\n")
    found = result(["ingest", tmp_path / "bad.svm", tmp_path / "store"], capsys, 3)
    assert "bad.svm:2:8" in found["error"]
    assert "--zero-based" in result(["ingest", _written(tmp_path / "zero.svm", "1 0:2\n"), tmp_path / "store"], capsys, 3)["error"]


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_finished_fit_is_left_alone_and_another_one_refused(fitted: Path, capsys: pytest.CaptureFixture[str]):
    words = ["fit", "fgm", "--data", fitted / "store", "--run", fitted / "run", "--test-share", "0.25", "--set", "max_rounds=3"]
    before = (fitted / "run" / "summary.json").stat().st_mtime_ns
    assert result([*words, "--set", "B=2"], capsys)["status"] == "already-done"
    assert result(["resume", fitted / "run"], capsys)["status"] == "already-done"
    assert (fitted / "run" / "summary.json").stat().st_mtime_ns == before
    told = result([*words, "--set", "B=3", "--set", "C=2"], capsys, 2)["error"]
    assert "params.B" in told and "params.C" in told and "max_rounds" not in told


def test_dry_run_plans_and_writes_nothing(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    found = result(["fit", "fgm", "--data", fitted / "store", "--run", tmp_path / "run", "--set", "B=2", "--dry-run"], capsys)
    assert found["status"] == "planned" and not (tmp_path / "run").exists()
    assert {"tasks_per_pass", "bytes_read_per_pass", "task_bytes"} <= set(found["plan"])


@pytest.mark.parametrize("suffix", ["csv", "npz", "parquet", "zarr"])
def test_predict_writes_by_the_ending(fitted: Path, tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]):
    found = result(["predict", fitted / "run", fitted / "store", tmp_path / f"out.{suffix}"], capsys)
    assert found["rows"] == 160 and sum(found["predicted"].values()) == 160
    assert (tmp_path / f"out.{suffix}").exists()


def test_predict_refuses_an_unknown_ending(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert ".npz" in result(["predict", fitted / "run", fitted / "store", tmp_path / "out.xls"], capsys, 2)["error"]


def test_score_is_kept_for_the_report(copy: Path, capsys: pytest.CaptureFixture[str]):
    found = result(["score", copy / "run", copy / "store"], capsys)
    assert 0.8 < found["accuracy"] <= 1 and len(found["classes"]) == 2
    page = Path(result(["report", copy / "run"], capsys)["report"]).read_text()
    assert page.count('<td class="text">store</td>') == 3, "the score, and one row for each class"
    assert "test rows correct" in page and "Confusion matrix" in page
    assert "score" not in result(["status", copy / "run"], capsys)["state"]


def test_a_dashboard_needs_a_cluster(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for option in (["--dashboard"], ["--performance-report", tmp_path / "report.html"]):
        told = result(["score", fitted / "run", fitted / "store", *option], capsys, 2)["error"]
        assert told == "a dashboard and a performance report need a cluster; add --cluster local:N, or another cluster"
    assert not (tmp_path / "report.html").exists()


def test_status_and_history_tell_how_far_a_run_is(fitted: Path, capsys: pytest.CaptureFixture[str]):
    found = result(["status", fitted / "run"], capsys)
    assert (found["status"], found["state"], found["rounds"], found["method"]) == ("done", "done", 3, "fgm")
    assert result(["history", fitted / "run"], capsys)["rounds"] == 3
    assert main(["history", str(fitted / "run"), "--lines"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3]
    assert main(["history", str(fitted / "run")]) == 0
    assert capsys.readouterr().out.split()[:3] == ["iteration", "objective", "gap"]


def test_a_stopped_run_says_how_to_go_on(copy: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("summary.json", "tables.json"):
        (copy / "run" / name).unlink()
    found = result(["status", copy / "run"], capsys)
    assert (found["state"], found["next"]) == ("stopped", f"gramplane resume {copy / 'run'}")
    assert "resume" in result(["predict", copy / "run", copy / "store", copy / "p.csv"], capsys, 2)["error"]
    assert result(["resume", copy / "run"], capsys)["status"] == "done"


def test_a_resumed_run_is_bit_equal(copy: Path, fitted: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("summary.json", "tables.json"):
        (copy / "run" / name).unlink()
    for file in (copy / "run" / "checkpoints").glob("*3.*"):
        file.unlink()
    shutil.rmtree(copy / "run" / "model")
    assert result(["resume", copy / "run"], capsys)["status"] == "done"
    same = [(folder / "run" / "model" / "manifest.json").read_bytes() for folder in (copy, fitted)]
    assert same[0] == same[1]


def test_inspect_knows_stores_and_runs(fitted: Path, capsys: pytest.CaptureFixture[str]):
    store = result(["inspect", fitted / "store"], capsys)
    assert (store["rows"], store["tables"], store["layouts"]) == (160, ["y"], ["columns"])
    assert result(["inspect", fitted / "run"], capsys)["kind"] == "run"
    assert main(["inspect", str(fitted / "store")]) == 0
    assert "1,344" in capsys.readouterr().out


def test_verify_finds_damage_and_names_it(copy: Path, capsys: pytest.CaptureFixture[str]):
    assert result(["verify", copy / "store"], capsys)["status"] == "ok"
    victim = copy / "store" / "v1" / "columns" / "values" / "c" / "0"
    data = bytearray(victim.read_bytes())
    data[100] ^= 1
    victim.write_bytes(data)
    found = result(["verify", copy / "store"], capsys, 6)
    assert (found["status"], found["n_damaged"]) == ("damaged", 1)
    assert found["damaged"][0]["object"] == "columns/values/c/0"


def test_a_damaged_store_ends_a_fit_with_6(copy: Path, capsys: pytest.CaptureFixture[str]):
    (copy / "store" / "v1" / "columns" / "values" / "c" / "0").unlink()
    words = ["fit", "fgm", "--data", copy / "store", "--run", copy / "new", "--set", "B=2"]
    assert "columns/values" in result(words, capsys, 6)["error"]


def test_a_held_run_is_99(copy: Path, capsys: pytest.CaptureFixture[str]):
    from gramplane.storage import RunStore

    (copy / "run" / "summary.json").unlink()
    with RunStore.open(copy / "run").lock():
        assert "is held by process" in result(["resume", copy / "run"], capsys, 99)["error"]
        assert result(["status", copy / "run"], capsys)["state"] == "running"


def test_clean_lists_before_it_removes(copy: Path, capsys: pytest.CaptureFixture[str]):
    import os

    orphan, fresh = copy / "store" / "v1" / "columns" / "values" / "c" / "9", copy / "store" / "v1" / "columns" / "values" / "c" / "10"
    for file in (orphan, fresh):
        file.write_bytes(b"left over")
    os.utime(orphan, (1, 1))
    found = result(["clean", copy], capsys)
    assert (found["status"], found["files"], orphan.exists()) == ("planned", [str(orphan)], True)
    assert result(["clean", copy, "--yes"], capsys)["removed"] is True
    assert (orphan.exists(), fresh.exists()) == (False, True), "a young file may belong to a writer at work"
    assert result(["verify", copy / "store"], capsys)["status"] == "ok"
    assert result(["clean", copy], capsys)["n_files"] == 0


def test_tune_keeps_the_best_and_others_use_it(copy: Path, capsys: pytest.CaptureFixture[str]):
    words = [
        "tune",
        "fgm",
        "--data",
        copy / "store",
        "--run",
        copy / "tuned",
        "--grid",
        "C=0.1,10",
        "--set",
        "B=2",
        "--set",
        "max_rounds=2",
    ]
    plan = result([*words, "--dry-run"], capsys)["plan"]
    assert (plan["points"], plan["folds"], plan["first_fit"]["rounds_at_most"]) == (2, 5, 2) and not (copy / "tuned").exists()
    assert "group column 'who'" in result([*words, "--group-column", "who"], capsys, 3)["error"]
    found = result([*words, "--folds", "3"], capsys)
    assert found["summary"]["best"]["C"] in (0.1, 10)
    assert result([*words, "--folds", "3"], capsys)["status"] == "already-done"
    assert result(["status", copy / "tuned"], capsys)["state"] == "done"
    assert result(["score", copy / "tuned", copy / "store"], capsys)["accuracy"] > 0.7
    page = Path(result(["report", copy / "tuned"], capsys)["report"]).read_text()
    assert "Cross-validation" in page
    assert "tune command again" in result(["resume", copy / "tuned"], capsys, 2)["error"]


def test_config_show_and_schema(smoke: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    assert result(["config", "show", "fgm", "--set", "C=1e2"], capsys)["config"] == {"C": 100.0}
    assert result(["config", "show", "fgm", "--resolved"], capsys)["config"]["max_rounds"] == "auto"
    monkeypatch.setenv("GRAMPLANE_CLUSTER", "local:7")
    shown = result(["config", "show", smoke, "--resolved"], capsys)["config"]
    assert shown["cluster"] == "local:7" and shown["store"] == "smoke/store"
    assert shown["steps"][2]["with"]["inner_tol"] == 0.001
    assert main(["config", "schema", "fgm"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["B"]["minimum"] == 1
    for target in ("workflow", "result"):
        assert main(["config", "schema", target]) == 0
        assert "properties" in json.loads(capsys.readouterr().out)


# -- workflows -------------------------------------------------------------------------------------------------------


def test_a_workflow_runs_once(smoke: Path, capsys: pytest.CaptureFixture[str]):
    first = result(["run", smoke], capsys)
    assert (first["status"], first["steps"]) == ("done", STEPS)
    folder = Path(first["folder"])
    assert folder.parent == smoke.parent / "smoke" / "runs", "paths start at the file's folder"
    assert (folder / "report" / "report.html").stat().st_size > 20_000
    assert (smoke.parent / "smoke" / "predictions.csv").read_text().startswith("row,prediction,decision\n0,")
    again = result(["run", smoke], capsys)
    assert (again["run_id"], again["steps"]) == (first["run_id"], AGAIN)
    assert again["results"]["select"] == first["results"]["select"]


def test_progress_in_a_pipe_is_lines_for_people(smoke: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(smoke)]) == 0
    said = capsys.readouterr()
    lines = said.err.splitlines()
    rounds = [line for line in lines if line.startswith("round ")]
    assert [line.split()[1] for line in rounds] == ["1", "3"] and "objective" in rounds[0] and "selected 2" in rounds[0]
    assert lines[0] == "step data" and lines[-1] == "step report"
    assert "{" not in said.err + said.out
    assert main(["run", str(smoke), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_progress_with_json_is_one_json_line_per_round_on_stderr(smoke: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["run", str(smoke), "--json"]) == 0
    said = capsys.readouterr()
    events = [json.loads(line) for line in said.err.splitlines()]
    rounds = [event for event in events if event["event"] == "iteration"]
    assert [event["iteration"] for event in rounds] == [1, 2, 3]
    assert {"objective", "gap", "outer_gap", "n_selected", "seconds"} <= set(rounds[0])
    assert json.loads(said.out.splitlines()[-1])["status"] == "done"


def test_steps_run_one_by_one_as_a_scheduler_does(smoke: Path, capsys: pytest.CaptureFixture[str]):
    assert "needs 'data', which is not done" in result(["run", smoke, "--step", "select"], capsys, 2)["error"]
    for step in STEPS:
        found = result(["run", smoke, "--step", step], capsys)
        assert found["steps"] == {step: "done"}
    assert result(["run", smoke, "--step", "select"], capsys)["n_selected"] == 5
    assert result(["run", smoke], capsys)["steps"] == AGAIN
    assert "did you mean 'select'?" in result(["run", smoke, "--step", "selct"], capsys, 2)["error"]


def test_what_changed_is_done_again_in_a_run_of_its_own(smoke: Path, capsys: pytest.CaptureFixture[str]):
    first = result(["run", smoke], capsys)
    smoke.write_text(smoke.read_text().replace("max_rounds: 3", "max_rounds: 2"))
    second = result(["run", smoke], capsys)
    assert second["run_id"] != first["run_id"] and second["results"]["select"]["n_selected"] == 4
    assert (Path(first["folder"]) / "select" / "summary.json").exists(), "the old run stays"


def test_a_run_id_of_the_user_refuses_another_configuration(smoke: Path, capsys: pytest.CaptureFixture[str]):
    assert result(["run", smoke, "--run-id", "2026-11-21"], capsys)["run_id"] == "2026-11-21"
    smoke.write_text(smoke.read_text().replace("max_rounds: 3", "max_rounds: 2"))
    told = result(["run", smoke, "--run-id", "2026-11-21"], capsys, 2)["error"]
    assert "params.max_rounds" in told and "step select of" in told
    assert "--run-id" in result(["run", smoke, "--run-id", "../up"], capsys, 2)["error"]


def test_templates_get_their_values_from_the_command_line(smoke: Path, capsys: pytest.CaptureFixture[str]):
    smoke.write_text(smoke.read_text().replace("source: smoke.svm", "source: 'smoke{{ ds }}.svm'"))
    assert "has no value" in result(["run", smoke, "--check"], capsys, 2)["error"]
    assert "write NAME=VALUE" in result(["run", smoke, "--template", "ds"], capsys, 2)["error"]
    assert result(["run", smoke, "--step", "data", "--template", "ds="], capsys)["steps"] == {"data": "done"}


def test_a_lost_output_is_made_again(smoke: Path, capsys: pytest.CaptureFixture[str]):
    folder = Path(result(["run", smoke], capsys)["folder"])
    (folder / "report" / "report.html").unlink()
    (smoke.parent / "smoke" / "predictions.csv").write_text("damaged")
    found = result(["run", smoke], capsys)
    assert found["steps"] == {**AGAIN, "report": "done", "predict": "done"}


def test_a_failed_step_is_told_and_done_next_time(smoke: Path, capsys: pytest.CaptureFixture[str]):
    good = (smoke.parent / "smoke.svm").read_text()
    (smoke.parent / "smoke.svm").write_text(f"{good}oops\n")
    found = result(["run", smoke, "--run-id", "x"], capsys, 3)
    assert "smoke.svm:162:1" in found["error"] and "step data of" in found["error"]
    assert json.loads((smoke.parent / "smoke" / "runs" / "x" / ".steps" / "data.json").read_text())["status"] == "failed"
    (smoke.parent / "smoke.svm").write_text(good)
    assert result(["run", smoke, "--run-id", "x"], capsys)["steps"] == STEPS


def test_a_score_beyond_its_bound_ends_the_run_with_7(smoke: Path, capsys: pytest.CaptureFixture[str]):
    text, bound = smoke.read_text(), '  - {id: good, do: check, needs: [score], with: {accuracy: "> 0.5", %s}}\n  - {id: predict,'

    def run(more: str, code: int) -> dict:
        smoke.write_text(text.replace("  - {id: predict,", bound % more))
        return result(["run", smoke], capsys, code)

    failed = run('auc: "< 0.5", r2: "> 0"', 7)
    assert failed["error"] == f"step good of {smoke}:\nauc is 1, but must be < 0.5, and r2 is not among the scores, but must be > 0"
    assert failed["kind"] == "CheckFailed" and not (smoke.parent / "smoke" / "predictions.csv").exists()
    again = run('auc: "< 0.5", r2: "> 0"', 7)
    passed = run('auc: ">= 0.5"', 0)
    assert again["error"] == failed["error"] and passed["results"]["good"] == {"accuracy": 1.0, "auc": 1.0}
    assert {passed["steps"][step] for step in ("data", "select", "score")} == {"already-done"}, "a new bound fits nothing again"
    assert run('auc: ">= 0.5"', 0)["steps"]["good"] == "already-done"


def test_a_held_step_is_99_and_the_others_go_on(smoke: Path, capsys: pytest.CaptureFixture[str]):
    from gramplane.storage.locks import file_lock

    folder = Path(result(["run", smoke, "--step", "data"], capsys)["folder"])
    with file_lock(folder / ".steps" / "select.lock"):
        assert result(["run", smoke, "--step", "select"], capsys, 99)["kind"] == "RunLocked"
        assert result(["run", smoke, "--step", "check"], capsys)["steps"] == {"check": "done"}
    assert result(["run", smoke, "--step", "select"], capsys)["steps"] == {"select": "done"}


def test_check_and_dry_run_change_nothing(smoke: Path, capsys: pytest.CaptureFixture[str]):
    assert result(["run", smoke, "--check"], capsys)["status"] == "checked"
    planned = result(["run", smoke, "--dry-run"], capsys)
    assert (planned["status"], set(planned["steps"].values())) == ("planned", {"planned"})
    assert not (smoke.parent / "smoke").exists()
    assert set(planned["plans"]) == {"data"} and planned["plans"]["data"]["process_bytes"] > 0
    result(["run", smoke, "--step", "data"], capsys)
    planned = result(["run", smoke, "--dry-run"], capsys)
    assert planned["steps"]["data"] == "already-done"
    assert set(planned["plans"]) == {"select"} and planned["plans"]["select"]["rounds_at_most"] == 3
    result(["run", smoke, "--step", "select"], capsys)
    plans = result(["run", smoke, "--dry-run"], capsys)["plans"]
    assert set(plans) == {"score", "predict"} and plans["predict"]["out"].endswith("predictions.csv")
    for plan in plans.values():
        assert plan["driver_bytes"] == sum(row["bytes"] for row in plan["driver_holds"]) <= plan["process_bytes"]
    assert not list((smoke.parent / "smoke").rglob("predictions.csv")) and not list((smoke.parent / "smoke").rglob("score*.json"))


def test_a_dry_run_plans_searches_and_refuses_what_the_steps_would(smoke: Path, capsys: pytest.CaptureFixture[str]):
    text = (
        smoke.read_text()
        .replace("do: fit", "do: tune")
        .replace("max_rounds: 3, test_share: 0.25", "max_rounds: 3, folds: 2, grid: {v: [0, 1]}")
    )
    smoke.write_text(text.replace("v: [0, 1]", "loss: [squared_hinge, logistic]"))
    result(["run", smoke, "--step", "data"], capsys)
    plan = result(["run", smoke, "--dry-run"], capsys)["plans"]["select"]
    assert (plan["points"], plan["fits_sharing_passes"], plan["first_fit"]["rounds_at_most"]) == (2, 4, 3)
    told = result(["run", smoke, "--dry-run", "--driver-memory", "1KiB"], capsys, 5)
    assert "fgm: this process would hold" in told["error"]


def test_the_run_id_follows_what_results_depend_on(smoke: Path, monkeypatch: pytest.MonkeyPatch):
    def name(text: str) -> str:
        smoke.write_text(text)
        return default_run_id(read_workflow(smoke))

    good = smoke.read_text()
    first = name(good)
    assert first.startswith("smoke-") and first == name(f"# a comment\n{good}")
    assert first == name(good.replace("cluster: ${GRAMPLANE_SMOKE_CLUSTER:-sync}", "cluster: local:2"))
    for where in ("stall_timeout: 7", "driver_memory: 3GiB", "worker_memory: 3GiB"):
        assert first == name(good.replace("steps:", f"{where}\nsteps:", 1)), where
    assert first != name(good.replace("B: 2", "B: 3"))
    source = smoke.parent / "smoke.svm"
    source.write_text(source.read_text())
    assert first != name(good), "a source that was written again counts as changed, as for make"


def test_environment_and_options_stand_above_the_file(smoke: Path):
    read = read_workflow(smoke)
    assert merge_compute(read, ComputeOptions()).cluster == "sync"
    assert merge_compute(read, ComputeOptions(cluster="local:2")).cluster == "local:2"
    smoke.write_text(smoke.read_text().replace("steps:", "stall_timeout: 7\nsteps:", 1))
    read = read_workflow(smoke)
    assert merge_compute(read, ComputeOptions()).arguments()["stall_timeout"] == 7.0
    assert merge_compute(read, ComputeOptions(stall_timeout=9.0)).arguments()["stall_timeout"] == 9.0


def test_outcome_of_one_step_holds_its_figures(smoke: Path):
    events: list = []
    outcome = run_workflow(read_workflow(smoke), only="data", sink=events.append)
    assert outcome.last["rows"] == 160
    assert [event["status"] for event in events if event["event"] == "step"] == ["started", "done"]


@pytest.mark.parametrize("dry_run", [False, True])
def test_rows_to_predict_that_are_missing_are_told_before_the_first_step(smoke: Path, dry_run: bool):
    smoke.write_text(smoke.read_text().replace('{store: "${GRAMPLANE_SMOKE:-smoke}/store", out:', "{store: tonight.csv, out:"))
    with pytest.raises(ConfigError, match=r"store .*tonight\.csv does not exist") as caught:
        run_workflow(read_workflow(smoke), dry_run=dry_run)
    assert caught.value.__notes__ == [f"step predict of {smoke}"] and not (smoke.parent / "smoke").exists()


def test_a_url_or_missing_source_is_told(smoke: Path):
    (smoke.parent / "smoke.svm").unlink()
    with pytest.raises(ConfigError, match=r"source .*smoke\.svm does not exist"):
        run_workflow(read_workflow(smoke))


@pytest.mark.slow
def test_the_cron_line_runs_as_it_stands(smoke: Path, tmp_path: Path):
    """The line of crontab.example, by /bin/sh, with the three names set as cron would; then while another process holds the step."""
    import os
    import subprocess
    import sys

    from gramplane.storage.locks import file_lock

    text = (WORKFLOWS / "crontab.example").read_text().splitlines()
    names = dict(line.split("=", 1) for line in text if line and line.split("=")[0].isupper() and not line.startswith("#"))
    assert set(names) == {"SHELL", "JOBS", "GRAMPLANE"}
    (line,) = [line for line in text if "run smoke.yaml" in line]
    command = line.split(None, 5)[5].replace("\\%", "%")
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JOBS": str(tmp_path), "GRAMPLANE": str(_script(tmp_path, sys.executable))}

    def cron() -> subprocess.CompletedProcess[str]:
        return subprocess.run([names["SHELL"], "-c", command], env=env, capture_output=True, text=True, timeout=120, cwd="/")

    ran = cron()
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    (log,) = (tmp_path / "logs").glob("smoke-20??-??-??.log")
    assert json.loads(log.read_text().splitlines()[-1])["status"] == "done"
    (folder,) = (tmp_path / "smoke" / "runs").glob("20??-??-??")
    with file_lock(folder / ".steps" / "data.lock"):
        held = cron()
    assert (held.returncode, held.stdout) == (0, ""), "a run that is still going is no news"
    (tmp_path / "smoke.yaml").write_text("schema: nope\n")
    failed = cron()
    assert failed.returncode == 2 and "smoke: exit 2, see" in failed.stdout


def _script(folder: Path, python: str) -> Path:
    """The ``gramplane`` command of this environment, installed or not."""
    script = folder / "gramplane"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{import_path()}" exec "{python}" -m gramplane.workflows.cli "$@"\n')
    script.chmod(0o755)
    return script


def test_every_line_of_the_crontab_has_five_times_and_escapes_percent():
    lines = [line for line in (WORKFLOWS / "crontab.example").read_text().splitlines() if line[:1] in set("*0123456789")]
    assert len(lines) == 4
    for line in lines:
        assert len(line.split(None, 5)) == 6
        assert line.count("%") == line.count("\\%")


def test_warmup_compiles_every_kind(capsys: pytest.CaptureFixture[str]):
    seconds = result(["warmup"], capsys)["seconds"]
    assert len(seconds) >= 8 and all(np.isfinite(list(seconds.values())))

"""What every method of the registry must do in a run directory: resume to the same bits, refuse another configuration, rest when done."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from gramplane.cluster import MemoryBoundExceeded, default_driver_memory
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS, ConfigMismatch, load_model, resume_run, run_method
from gramplane.pipeline.models.spectral import SpectralModel
from gramplane.pipeline.registry import MethodInfo
from gramplane.storage import DigestMismatch, RunLocked, RunStore, StorageError
from gramplane.workflows.exits import exit_code
from gramplane.workflows.report.glossary import explained, stop_text
from tests.support.methods import CASES


class Stopped(Exception):
    """What the event sink raises to end a run."""


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module", params=sorted(CASES))
def case(request, tmp_path_factory):
    """A case with its store and one undisturbed run."""
    chosen = CASES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    chosen.data(folder / "data.zarr")
    with one_thread():
        start(chosen, folder, folder / "straight")
    return chosen, folder


def start(case, folder, run, params=None, **options):
    given = {"seed": 3, "extra": case.extra, **options}
    return run_method(case.method, params or case.params, data=str(folder / "data.zarr"), run=str(run), **given)


def stop_after(steps):
    """An event sink that ends the run once ``steps`` steps are checkpointed."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == steps:
            raise Stopped

    return sink


def rounds(folder):
    return [row["iteration"] for row in RunStore.open(folder / "straight").history()]


def untimed(value):
    """A record without what it took: seconds, and the tasks of a resume, which fetches the columns of all cuts again."""
    return {name: item for name, item in value.items() if not name.startswith("seconds") and name not in ("tasks", "bytes", "retries")}


def model_bytes(run):
    files = sorted(path for path in (Path(run) / "model").rglob("*") if path.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def equal_runs(a, b):
    """Model files byte for byte, history and summary but for their seconds, tables."""
    one, two = RunStore.open(a), RunStore.open(b)
    assert model_bytes(a) == model_bytes(b)
    np.testing.assert_equal([untimed(row) for row in one.history()], [untimed(row) for row in two.history()])
    assert untimed(one.read_json("summary")) == untimed(two.read_json("summary"))
    assert one.read_json("tables") == two.read_json("tables")


def snapshot(run):
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in Path(run).rglob("*") if path.name != "lock"}


def test_every_method_has_a_case():
    assert {case.method for case in CASES.values()} == set(METHODS)
    assert all(isinstance(info, MethodInfo) and info.name == name for name, info in METHODS.items())


def test_figures_have_the_same_names_in_every_method_and_are_explained(case):
    folder = case[1]
    run = RunStore.open(folder / "straight")
    summary = run.read_json("summary")
    common = {"method", "objective", "gap", "certified_over", "relative_gap", "iterations", "stop", "classes", "seconds"}
    assert common <= set(summary) and not {"certificate", "n_rules", "active_set", "working_set"} & set(summary)
    assert summary["iterations"] == rounds(folder)[-1] and stop_text(summary["stop"]) != summary["stop"]
    assert (summary["gap"] is None) == (summary["relative_gap"] is None)
    assert summary["gap"] is None or isinstance(summary["certified_over"], str)
    headings = {name for row in run.history() for name in row} | set(run.read_json("decisions"))
    assert [name for name in sorted(headings) if not explained(name)] == []


def test_gaps_of_every_row_are_non_negative_and_relative_to_the_objective(case):
    """Up to the rounding of two sums, of which a gap is the difference."""
    run = RunStore.open(case[1] / "straight")
    for row in [*run.history(), run.read_json("summary")]:
        size = 1e-9 * max(abs(row.get("objective") or 0.0), 1.0)
        for name in ("gap", "restricted_gap"):
            assert row.get(name) is None or np.isnan(row[name]) or row[name] >= -size, (name, row)
        if row.get("gap") is not None and row.get("restricted_gap") is not None and np.isfinite([row["gap"], row["restricted_gap"]]).all():
            assert row["restricted_gap"] <= row["gap"] + size, row


def test_a_run_stopped_after_a_step_resumes_to_the_same_bits(case, tmp_path):
    """The first two, one amid and the last; the test below stops at every one."""
    chosen, folder = case
    every = rounds(folder)
    assert len(every) >= 2
    for steps in sorted({*every[:2], every[len(every) // 2], every[-1]}):
        run = tmp_path / str(steps)
        with pytest.raises(Stopped):
            start(chosen, folder, run, on_event=stop_after(steps))
        with pytest.raises(StorageError, match=r"not finished.*gramplane resume"):
            load_model(run)
        events = []
        done = resume_run(str(run), on_event=events.append) if steps % 2 else start(chosen, folder, run, on_event=events.append)
        assert done.status == "done"
        assert {"event": "resume", "iteration": steps} in events
        assert [event["iteration"] for event in events if event["event"] == "iteration"] == rounds(folder)[steps:]
        equal_runs(run, folder / "straight")


def test_a_run_stopped_at_every_step_in_turn_ends_the_same(case, tmp_path):
    chosen, folder = case
    for steps in rounds(folder):
        with pytest.raises(Stopped):
            start(chosen, folder, tmp_path / "run", on_event=stop_after(steps))
    assert resume_run(str(tmp_path / "run")).status == "done"
    equal_runs(tmp_path / "run", folder / "straight")


def test_a_kill_between_history_and_checkpoint_leaves_no_trace(case, tmp_path, monkeypatch):
    chosen, folder = case
    save = RunStore.save_checkpoint

    def killed(self, iteration, state, *more):
        if iteration == 2:
            raise Stopped
        return save(self, iteration, state, *more)

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "save_checkpoint", killed)
        with pytest.raises(Stopped):
            start(chosen, folder, tmp_path / "run")
    assert [row["iteration"] for row in RunStore.open(tmp_path / "run").history()] == [1, 2]
    start(chosen, folder, tmp_path / "run")
    equal_runs(tmp_path / "run", folder / "straight")


def test_a_damaged_checkpoint_falls_back_to_the_one_before(case, tmp_path):
    chosen, folder = case
    steps = rounds(folder)[-1]
    with pytest.raises(Stopped):
        start(chosen, folder, tmp_path / "run", on_event=stop_after(steps))
    newest = max((tmp_path / "run" / "checkpoints").glob("*.npz"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    events = []
    start(chosen, folder, tmp_path / "run", on_event=events.append)
    assert {"event": "resume", "iteration": steps - 1} in events
    equal_runs(tmp_path / "run", folder / "straight")


def test_a_kill_before_the_summary_writes_the_model_again(case, tmp_path):
    _, folder = case
    shutil.copytree(folder / "straight", tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    assert resume_run(str(tmp_path / "run")).status == "done"
    equal_runs(tmp_path / "run", folder / "straight")


def test_a_finished_run_is_left_alone(case):
    chosen, folder = case
    before = snapshot(folder / "straight")
    events = []
    for again in (
        start(chosen, folder, folder / "straight", on_event=events.append),
        resume_run(str(folder / "straight"), on_event=events.append),
    ):
        assert again.status == "already-done"
        assert again.summary == RunStore.open(folder / "straight").read_json("summary")
    assert snapshot(folder / "straight") == before
    assert events == []


def test_another_configuration_is_refused_key_by_key(case):
    chosen, folder = case
    params, name = chosen.other
    before = snapshot(folder / "straight")
    with pytest.raises(ConfigMismatch, match=rf"{folder / 'straight'} belongs to another configuration.*params\.{name} is .* there and"):
        start(chosen, folder, folder / "straight", {**chosen.params, name: params[name]})
    with pytest.raises(ConfigMismatch, match=r"seed is 3 there and 4 here") as caught:
        start(chosen, folder, folder / "straight", seed=4, driver_memory="1GiB")
    assert f"driver_memory is {default_driver_memory()} there and 1073741824 here" in str(caught.value)
    with pytest.raises(ConfigMismatch, match=r"extra\.new is None there and 1 here"):
        start(chosen, folder, folder / "straight", extra={**chosen.extra, "new": 1})
    assert snapshot(folder / "straight") == before


def test_other_data_are_refused(case, tmp_path):
    chosen, folder = case
    shutil.copytree(folder / "straight", tmp_path / "run")
    X = np.random.default_rng(0).normal(size=(20, 30))
    from gramplane.storage.ingest import ingest

    ingest((X, np.arange(20) % 2), tmp_path / "data.zarr")
    with pytest.raises(ConfigMismatch, match=r"data_digest is '\w+' there and '\w+' here"):
        run_method(chosen.method, chosen.params, data=str(tmp_path / "data.zarr"), run=str(tmp_path / "run"), seed=3, extra=chosen.extra)
    # A finished run is left alone wherever its data are; one to be continued looks at them.
    (tmp_path / "run" / "summary.json").unlink()
    RunStore.open(tmp_path / "run").write_json("where", {"cluster": "sync", "data": str(tmp_path / "data.zarr")})
    with pytest.raises(DigestMismatch, match="the store was replaced"):
        resume_run(str(tmp_path / "run"))


def test_one_process_at_a_time(case, tmp_path):
    chosen, folder = case
    with pytest.raises(Stopped):
        start(chosen, folder, tmp_path / "run", on_event=stop_after(1))
    with RunStore.open(tmp_path / "run").lock(), pytest.raises(RunLocked):
        start(chosen, folder, tmp_path / "run")


def test_a_dry_run_tells_the_plan_and_writes_nothing(case, tmp_path):
    chosen, folder = case
    told = start(chosen, folder, tmp_path / "run", dry_run=True)
    assert told.status == "planned"
    assert not (tmp_path / "run").exists()
    assert told.plan["method"] == chosen.method
    json.dumps(told.plan)
    assert RunStore.open(folder / "straight").read_json("decisions").items() <= told.plan.items()


def test_loaded_estimators_decide_like_the_store(case):
    chosen, folder = case
    model = load_model(folder / "straight")
    info = METHODS[chosen.method]
    named = info.estimator if hasattr(model, "classes_") or info.regressor is None else info.regressor
    assert type(model).__name__ == named
    assert len(model.history_["iteration"]) == len(rounds(folder))
    assert {name: value for name, value in model.get_params().items() if name in chosen.params} == chosen.params
    # What has no target gives coordinates in the place of decisions, a regression numbers.
    decide = next((getattr(model, name) for name in ("decision_function", "transform", "predict") if hasattr(model, name)), None)
    # What knows only its own rows has something to say of each of them.
    transductive = isinstance(model.model_, SpectralModel)
    assert np.isfinite(model.model_.predictions() if transductive else decide(folder / "data.zarr")).all()


def test_every_state_survives_the_trip_through_a_checkpoint(case, tmp_path):
    chosen, folder = case
    with pytest.raises(Stopped):
        start(chosen, folder, tmp_path / "run", on_event=stop_after(1))
    newest = max((tmp_path / "run" / "checkpoints").glob("*.npz"))
    with np.load(newest, allow_pickle=False) as content:
        assert all(content[name].dtype != object for name in content.files)


def test_the_plan_lists_what_the_driver_holds_and_too_little_memory_is_refused_before_work(case, tmp_path):
    """A method without a list, a sum that is not one, or a refusal that comes late or names nothing, ends here."""
    chosen, folder = case
    plan = start(chosen, folder, tmp_path / "run", dry_run=True).plan
    rows = plan["driver_holds"]
    assert all(set(row) == {"what", "formula", "bytes"} and row["what"] and row["formula"] and row["bytes"] >= 0 for row in rows)
    assert plan["driver_bytes"] == sum(row["bytes"] for row in rows) > 0
    assert plan["process_bytes"] >= plan["driver_bytes"] + plan["task_bytes"]
    declared = [(item.formula, item.what) for item in METHODS[chosen.method].driver_holds()]
    assert all(any(row["formula"] == formula and row["what"].endswith(what) for formula, what in declared) for row in rows)
    events = []
    with pytest.raises(MemoryBoundExceeded) as caught:
        start(chosen, folder, tmp_path / "run", driver_memory="1KiB", on_event=events.append)
    told = str(caught.value)
    assert told.startswith(f"{chosen.method}: this process would hold ") and "it may hold driver_memory=1 KiB: " in told
    assert told.endswith(", or give it more (--driver-memory)") and not told.endswith("1 KiB: , or give it more (--driver-memory)")
    assert exit_code(caught.value) == 5
    assert not [event for event in events if event["event"] == "iteration"] and not (tmp_path / "run").exists()

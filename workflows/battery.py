"""Checks that every method must pass in one process; use ``gramplane.testing.check_method`` for your own method.

A :class:`MethodCase` is a method with parameters and a small data set. Each check runs the method in separate folders, and raises
``AssertionError`` if the run directory, plan, estimator or command of the method does not behave as promised.
"""

import contextlib
import copy
import importlib
import json
import math
import pickle
import pkgutil
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from sklearn.base import BaseEstimator, clone

from ..cluster import MemoryBoundExceeded, default_driver_memory, open_executor, parse_bytes
from ..pipeline import METHODS, ConfigMismatch, load_model, resume_run, run_method
from ..pipeline.core.engine import iterate
from ..pipeline.core.resources import RunContext
from ..pipeline.inputs.scaling import as_scaled
from ..pipeline.records.data_set import source_names
from ..pipeline.runs.run import RunOutcome, open_data
from ..storage import BlockStore, DigestMismatch, RunLocked, RunStore, StorageError
from ..storage.errors import plain_json
from ..storage.ingest import ingest
from .exits import exit_code
from .report.glossary import explain_heading, stop_text

COMMON_FIGURES = {"method", "objective", "gap", "certified_over", "relative_gap", "iterations", "stop", "classes", "seconds"}
"""Names that the summary of every method contains."""

SEED = 3

MAX_SLACK = 4
"""Largest allowed ratio of the planned to the actual memory of a step. Plans state the maximum for data of a given size."""


@dataclass(frozen=True)
class MethodCase:
    """A method on a small data set.

    ``method``, ``params``, ``extra``: as in :func:`~gramplane.pipeline.run_method`. ``data``: function that writes the store to a path.
    ``other``: the parameters with the value of one of them changed, and the name of this parameter. ``driver_memory``: a limit so small
    that rows or matrices do not fit in this process, to test the distributed code. ``sizes``: temporary values of module attributes, by
    dotted name, so that small data have several blocks.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest
    >>> from gramplane.testing import MethodCase
    >>> data = load_iris(return_X_y=True)
    >>> case = MethodCase(
    ...     "fgm", {"B": 2}, lambda path: ingest(data, path), ({"B": 1}, "B")
    ... )
    >>> case.method
    'fgm'
    """

    method: str
    params: dict[str, Any]
    data: Callable[[Path], BlockStore]
    other: tuple[dict[str, Any], str]
    extra: dict[str, Any] = field(default_factory=dict)
    driver_memory: str | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)


@contextlib.contextmanager
def changed_sizes(sizes: Mapping[str, Any]) -> Iterator[None]:
    """Temporarily set attributes of modules, by dotted name."""
    places = [(pkgutil.resolve_name(name.rpartition(".")[0]), name.rpartition(".")[2], value) for name, value in sizes.items()]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, value in places:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


class Stopped(Exception):
    """Raised by the event sink to end a run."""


@dataclass(frozen=True)
class Bench:
    """A case with the store of its data, one uninterrupted run, and a folder for further runs."""

    case: MethodCase
    folder: Path
    scratch: Path

    @property
    def straight(self) -> Path:
        """The folder of the uninterrupted run."""
        return self.folder / "straight"

    @property
    def data(self) -> str:
        """The path of the store."""
        return str(self.folder / "data.zarr")

    def start(self, run: Path, params: Mapping[str, Any] | None = None, **options: Any) -> RunOutcome:
        """Start or resume a run."""
        case = self.case
        limit = {} if case.driver_memory is None else {"driver_memory": case.driver_memory}
        chosen = {"data": self.data, "seed": SEED, "extra": case.extra, **limit, **options}
        with changed_sizes(case.sizes):
            return run_method(case.method, params or case.params, run=str(run), **chosen)

    def resume(self, run: Path, **options: Any) -> RunOutcome:
        """Resume a run, given only its folder."""
        with changed_sizes(self.case.sizes):
            return resume_run(str(run), **options)

    def start_and_stop(self, run: Path, steps: int) -> None:
        """Start or resume a run, and stop it after ``steps`` steps have checkpoints."""

        def emit(event: Mapping[str, Any]) -> None:
            if event["event"] == "iteration" and event["iteration"] == steps:
                raise Stopped

        with expect_error(Stopped):
            self.start(run, on_event=emit)

    def steps(self) -> list[int]:
        """Return the steps of the uninterrupted run."""
        return [row["iteration"] for row in RunStore.open(str(self.straight)).history()]


def prepare_case(case: MethodCase, folder: Path) -> Path:
    """Write the store of a case and run it once; returns the folder."""
    with changed_sizes(case.sizes):
        case.data(folder / "data.zarr")
    Bench(case, folder, folder).start(folder / "straight")
    return folder


@contextlib.contextmanager
def expect_error(kind: type[BaseException], pattern: str = "") -> Iterator[list[BaseException]]:
    """Expect an error whose message matches ``pattern``. Yields a list that contains the error after the block."""
    caught: list[BaseException] = []
    try:
        yield caught
    except kind as error:
        caught.append(error)
        assert re.search(pattern, str(error)), f"{error} does not say {pattern!r}"
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def without_times(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record without seconds and task counts. A resume changes the task counts, because it fetches the columns of all cuts
    again.
    """
    return {name: item for name, item in value.items() if not name.startswith("seconds") and name not in ("tasks", "bytes", "retries")}


def model_bytes(run: str | Path) -> dict[str, bytes]:
    """Return the contents of a model's files by name."""
    files = sorted(path for path in (Path(run) / "model").rglob("*") if path.is_file())
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


def assert_equal_runs(one: Path, two: Path, *, texts: bool = True) -> None:
    """Compare two runs: model files byte by byte (``texts``: including JSON files), history and summary without seconds, and tables."""
    left, right = RunStore.open(str(one)), RunStore.open(str(two))
    models = [{name: data for name, data in model_bytes(run).items() if texts or not name.endswith(".json")} for run in (one, two)]
    assert models[0] == models[1], "the models differ"
    # NaN equals NaN as text.
    histories = [repr([without_times(row) for row in run.history()]) for run in (left, right)]
    assert histories[0] == histories[1], "the histories differ"
    summaries = [repr(without_times(run.read_json("summary") or {})) for run in (left, right)]
    assert summaries[0] == summaries[1], "the summaries differ"
    assert left.read_json("tables") == right.read_json("tables"), "the tables differ"


def _snapshot(run: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in run.rglob("*") if path.name != "lock"}


def figures_have_common_names_and_are_explained(bench: Bench) -> None:
    """The summary contains the names in `COMMON_FIGURES`, and every column of history and plan is explained in the glossary."""
    run = RunStore.open(str(bench.straight))
    summary = run.read_json("summary") or {}
    assert set(summary) >= COMMON_FIGURES and not {"certificate", "n_rules", "active_set", "working_set"} & set(summary)
    assert summary["iterations"] == bench.steps()[-1] and stop_text(summary["stop"]) != summary["stop"]
    assert (summary["gap"] is None) == (summary["relative_gap"] is None)
    assert summary["gap"] is None or isinstance(summary["certified_over"], str)
    headings = {name for row in run.history() for name in row} | set(run.read_json("decisions") or {})
    unexplained = [name for name in sorted(headings) if not explain_heading(name)]
    assert not unexplained, f"no glossary entry for {unexplained}: workflows/report/figures.txt, or glossary in the charts.py of the method"


def gaps_are_not_negative(bench: Bench) -> None:
    """Gaps are non-negative up to rounding, and the gap of the working set does not exceed the gap of the whole problem."""
    run = RunStore.open(str(bench.straight))
    for row in [*run.history(), run.read_json("summary") or {}]:
        slack = 1e-9 * max(abs(row.get("objective") or 0.0), 1.0)
        figures = {name: row.get(name) for name in ("gap", "restricted_gap")}
        gaps = {name: value for name, value in figures.items() if isinstance(value, int | float) and math.isfinite(value)}
        assert all(value >= -slack for value in gaps.values()), row
        assert len(gaps) < 2 or gaps["restricted_gap"] <= gaps["gap"] + slack, row


def certificates_hold(bench: Bench) -> None:
    """The objective of a more accurate solution is not below the certified lower bound of the whole problem."""
    run, params = RunStore.open(str(bench.straight)), bench.case.params
    summary, field = run.read_json("summary") or {}, METHODS[bench.case.method].config.model_fields.get("tol")
    if field is None or summary["gap"] is None or not str(summary["certified_over"]).startswith(("all", "the whole")):
        return
    finer = {**params, "tol": 0.01 * float(params.get("tol", field.default))}
    objective = bench.start(bench.scratch / "finer", finer).summary["objective"]
    slack = 1e-9 * max(abs(summary["objective"]), 1.0)
    assert objective >= summary["objective"] - summary["gap"] - slack, f"{objective} is below {summary['objective']} - {summary['gap']}"


def resumes_to_the_same_bits(bench: Bench) -> None:
    """Runs that stop after the first, second, a middle or the last step resume to the same bits."""
    every = bench.steps()
    assert len(every) >= 2, "a case needs at least two steps"
    for steps in sorted({*every[:2], every[len(every) // 2], every[-1]}):
        run = bench.scratch / str(steps)
        bench.start_and_stop(run, steps)
        with expect_error(StorageError, "not finished.*gramplane resume"):
            load_model(str(run))
        events: list[Any] = []
        done = bench.resume(run, on_event=events.append) if steps % 2 else bench.start(run, on_event=events.append)
        assert done.status == "done" and {"event": "resume", "iteration": steps} in events
        assert [event["iteration"] for event in events if event["event"] == "iteration"] == every[steps:]
        assert_equal_runs(run, bench.straight)


def resumes_at_every_step_in_turn(bench: Bench) -> None:
    """A run that is stopped and resumed at every step ends with the same bits. A larger memory limit at a resume changes no decision."""
    run = bench.scratch / "run"
    for steps in bench.steps():
        bench.start_and_stop(run, steps)
    more = 4 * RunStore.open(str(run)).config["driver_memory"]
    assert bench.resume(run, driver_memory=more).status == "done"
    assert (RunStore.open(str(run)).read_json("where") or {})["driver_memory"] == more
    assert_equal_runs(run, bench.straight)


def a_kill_between_history_and_checkpoint_leaves_no_trace(bench: Bench) -> None:
    """A run that was killed after it wrote the history of the second step, but before the checkpoint, resumes to the same bits."""
    save, run, store = RunStore.save_checkpoint, bench.scratch / "run", cast("Any", RunStore)

    def killed(store: RunStore, iteration: int, *more: Any) -> Any:
        if iteration == 2:
            raise Stopped
        return save(store, iteration, *more)

    store.save_checkpoint = killed
    try:
        with expect_error(Stopped):
            bench.start(run)
    finally:
        store.save_checkpoint = save
    assert [row["iteration"] for row in RunStore.open(str(run)).history()] == [1, 2]
    bench.start(run)
    assert_equal_runs(run, bench.straight)


def a_damaged_checkpoint_falls_back_to_the_one_before(bench: Bench) -> None:
    """If one bit of the newest checkpoint is flipped, the run resumes from the previous checkpoint, and ends with the same bits."""
    steps, run = bench.steps()[-1], bench.scratch / "run"
    bench.start_and_stop(run, steps)
    newest = max((run / "checkpoints").glob("*.npz"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    events: list[Any] = []
    bench.start(run, on_event=events.append)
    assert {"event": "resume", "iteration": steps - 1} in events
    assert_equal_runs(run, bench.straight)


def a_kill_before_the_summary_writes_the_model_again(bench: Bench) -> None:
    """A run in which only the summary is missing (a summary marks a run as finished) resumes and ends with the same files."""
    run = bench.scratch / "run"
    shutil.copytree(bench.straight, run)
    (run / "summary.json").unlink()
    assert bench.resume(run).status == "done"
    assert_equal_runs(run, bench.straight)


def rows_left_out_are_not_looked_at(bench: Bench) -> None:
    """Rows with weight zero do not influence a fit, whatever their target."""
    case, info, decided = bench.case, METHODS[bench.case.method], []
    if not info.config.has_scores:
        return
    config, store = info.config(**case.params), open_data(bench.data, info, case.extra)
    extra = {name: value for name, value in case.extra.items() if name != "test_share"}  # (drawn by the target)
    mask, target = np.arange(store.n_rows) % 7 == 3, store.target()
    others = target + 1 if store.meta.labels is None else (target + 1) % len(store.meta.labels)
    memory = default_driver_memory() if case.driver_memory is None else parse_bytes(case.driver_memory)
    with changed_sizes(case.sizes), open_executor() as executor:
        for y in (target, np.where(mask, others, target)):
            data = copy.copy(as_scaled(config, store))
            data.target = lambda y=y: y
            ctx = RunContext(executor, data=data, seed=SEED, driver_memory=memory)
            own, inputs = info.method.read_inputs(config, ctx, extra)
            problem = info.method.problem(own, info.method.without(inputs, mask), ctx)
            decided.append(info.method.decision_values(problem, iterate(info.method, problem, ctx).state, ctx))
    one, other = decided
    assert np.allclose(one, other, rtol=0.0, atol=1e-6 * np.abs(one).max()), "fits differ by the target of rows that they leave out"


def rows_held_out_are_scored(bench: Bench) -> None:
    """``--test-share`` excludes rows from the fit, and the history or the table of the path contains the score on these rows."""
    case, info = bench.case, METHODS[bench.case.method]
    if not info.config.has_scores:
        return
    run = bench.scratch / "run"
    bench.start(run, extra={**case.extra, "test_share": 0.25})
    kept = RunStore.open(str(run))
    told = {key for row in (kept.history()[-1], *(kept.read_json("tables") or {}).get("path", ())) for key in row}
    assert {"test_accuracy", "test_r2"} & told, "neither history nor path has test_accuracy or test_r2 of the rows held out"


def states_are_plain_arrays(bench: Bench) -> None:
    """States contain nothing that needs pickle."""
    run = bench.scratch / "run"
    bench.start_and_stop(run, 1)
    with np.load(max((run / "checkpoints").glob("*.npz")), allow_pickle=False) as content:
        assert all(content[name].dtype != object for name in content.files)


def a_finished_run_is_left_alone(bench: Bench) -> None:
    """Starting or resuming a finished run changes no file and emits no events."""
    before, events = _snapshot(bench.straight), list[Any]()
    for again in (bench.start(bench.straight, on_event=events.append), bench.resume(bench.straight, on_event=events.append)):
        assert again.status == "already-done"
        assert again.summary == RunStore.open(str(bench.straight)).read_json("summary")
    assert _snapshot(bench.straight) == before and not events


def another_configuration_is_refused_key_by_key(bench: Bench) -> None:
    """If a parameter, the seed, the memory limit or an input differs, the error names the key that differs."""
    params, name = bench.case.other
    before, run = _snapshot(bench.straight), re.escape(str(bench.straight))
    with expect_error(ConfigMismatch, rf"{run} belongs to another configuration.*params\.{name} is .* there and"):
        bench.start(bench.straight, {**bench.case.params, name: params[name]})
    given = bench.case.driver_memory
    memory = f"driver_memory is {default_driver_memory() if given is None else parse_bytes(given)} there and 1024 here"
    with expect_error(ConfigMismatch, f"{memory}.*seed is {SEED} there and 4 here"):
        bench.start(bench.straight, seed=4, driver_memory="1KiB")
    with expect_error(ConfigMismatch, r"extra\.new is None there and 1 here"):
        bench.start(bench.straight, extra={**bench.case.extra, "new": 1})
    assert _snapshot(bench.straight) == before


def other_data_are_refused(bench: Bench) -> None:
    """Starting or resuming a run with another store raises an error, whether the path is another one or the store at the path was
    replaced.
    """
    run, other = bench.scratch / "run", bench.scratch / "data.zarr"
    shutil.copytree(bench.straight, run)
    ingest(([[float(i * j % 7) for j in range(30)] for i in range(20)], [i % 2 for i in range(20)]), str(other))
    with expect_error(ConfigMismatch, r"data_digest is '[\w:-]+' there and '[\w:-]+' here"):
        bench.start(run, data=str(other))
    # A finished run is left alone wherever its data are; one to be continued looks at them.
    (run / "summary.json").unlink()
    RunStore.open(str(run)).write_json("where", {"cluster": "sync", "data": str(other)})
    with expect_error(DigestMismatch, "the store was replaced"):
        bench.resume(run)


def one_process_at_a_time(bench: Bench) -> None:
    """A run directory that another process holds raises an error."""
    run = bench.scratch / "run"
    bench.start_and_stop(run, 1)
    with RunStore.open(str(run)).lock(), expect_error(RunLocked):
        bench.start(run)


def a_dry_run_tells_the_plan_and_writes_nothing(bench: Bench) -> None:
    """The plan is JSON and contains the decisions of the run."""
    outcome = bench.start(bench.scratch / "run", dry_run=True)
    assert outcome.status == "planned" and not (bench.scratch / "run").exists()
    plan = outcome.plan or {}
    assert plan["method"] == bench.case.method
    json.dumps(plan)
    assert (RunStore.open(str(bench.straight)).read_json("decisions") or {}).items() <= plan.items()


def no_pass_takes_more_than_the_plan_says(bench: Bench) -> None:
    """No step of any pass exceeds the plan's ``task_bytes``, and ``task_bytes`` is at most ``MAX_SLACK`` times the largest step.

    A fit that is never distributed has no passes, but may plan ``task_bytes`` for similar steps in this process. For example, a fit with
    task kernels in memory processes tasks in the same batches.
    """
    bounds: dict[str, int] = {}

    def emit(event: Mapping[str, Any]) -> None:
        if event["event"] == "plan":
            bounds[event["program"]] = max(bounds.get(event["program"], 0), event["memory_bound"])

    with changed_sizes(_without_freed_bytes()):
        plan = bench.start(bench.scratch / "run", dry_run=True).plan or {}
        bench.start(bench.scratch / "run", on_event=emit)
    # The rank of a matrix shows as its eigenpairs are found: before, a plan has the least of a step on them, and the most.
    most, largest = plan.get("task_bytes_at_most", plan["task_bytes"]), max(bounds.values(), default=0)
    over = {name: nbytes for name, nbytes in bounds.items() if nbytes > most}
    assert not over, f"the plan says {most} bytes a task at most; steps of passes take {over}"
    if bounds:
        assert plan["distributed"], f"the plan calls nothing distributed; there are passes: {sorted(bounds)}"
        coarse = f"the plan says {plan['task_bytes']} bytes a task, more than {MAX_SLACK} times what the largest step of a pass takes"
        assert plan["task_bytes"] <= MAX_SLACK * largest, f"{coarse}, {largest}: {bounds}"


def _without_freed_bytes() -> dict[str, int]:
    """Return ``sizes`` that set the allowance for freed memory to 0, because it would be most of the memory of a step of few rows."""
    package = importlib.import_module("..pipeline", __package__)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(info.name)  # none may come later, and take the changed size for good
    modules = [name for name, module in sys.modules.items() if name.startswith(f"{package.__name__}.") and hasattr(module, "FREED_BYTES")]
    return {f"{name}.FREED_BYTES": 0 for name in modules}


def the_plan_lists_what_the_driver_holds(bench: Bench) -> None:
    """The plan states the bytes of every memory item of the driver, and their total."""
    plan = bench.start(bench.scratch / "run", dry_run=True).plan or {}
    rows = plan["driver_holds"]
    assert all(set(row) == {"what", "bytes"} and row["what"] and row["bytes"] >= 0 for row in rows)
    assert plan["driver_bytes"] == sum(row["bytes"] for row in rows) > 0
    assert plan["process_bytes"] >= plan["driver_bytes"] + plan["task_bytes"]


def too_little_memory_is_refused_before_work(bench: Bench) -> None:
    """If the memory limit is too low, the error names the memory needed, the limit and a remedy, and nothing is written."""
    events, run = list[Any](), bench.scratch / "run"
    with expect_error(MemoryBoundExceeded, f"^{bench.case.method}: this process would hold .*its limit is driver_memory=1 KiB: ") as caught:
        bench.start(run, driver_memory="1KiB", on_event=events.append)
    message = str(caught[0])
    assert message.endswith(", or raise the limit (--driver-memory)") and "1 KiB: , or" not in message
    assert exit_code(caught[0]) == 5
    assert not [event for event in events if event["event"] == "iteration"] and not run.exists()


def the_loaded_estimator_decides_on_the_store(bench: Bench) -> None:
    """The loaded model is an estimator with the run's parameters and history, and predicts the store's rows."""
    model, info = load_model(str(bench.straight)), METHODS[bench.case.method]
    name = info.estimator if hasattr(model, "classes_") or info.regressor is None else info.regressor
    assert type(model).__name__ == name and len(model.history_["iteration"]) == len(bench.steps())
    assert {key: value for key, value in model.get_params().items() if key in bench.case.params} == bench.case.params
    # What has no target gives coordinates in the place of decisions, a regression numbers; what knows its own rows only, theirs.
    if hasattr(model.model_, "predictions"):
        values = model.model_.predictions()
    else:
        values = getattr(model, next(key for key in ("decision_function", "predict", "transform") if hasattr(model, key)))(bench.data)
    assert np.isfinite(values.toarray() if hasattr(values, "toarray") else values).all()


def tables_of_a_model_are_those_of_its_run(bench: Bench) -> None:
    """Plots of an estimator and of its run use the same tables, apart from further columns in the tables of the run."""
    model, run = load_model(str(bench.straight)), RunStore.open(str(bench.straight))
    names, stored = source_names(BlockStore.open(bench.data)), run.read_json("tables") or {}
    for name, rows in plain_json(type(model)._method.tables(model.model_, names)).items():
        assert len(rows) == len(stored[name]), name
        assert all(row.items() <= known.items() for row, known in zip(rows, stored[name], strict=True)), f"the tables {name} differ"


def the_estimator_is_one_of_scikit_learn(bench: Bench) -> None:
    """The estimator can be cloned, and a clone gives the same predictions."""
    model = load_model(str(bench.straight))
    fresh = cast("BaseEstimator", clone(model))
    assert repr(fresh.get_params()) == repr(model.get_params()) and not hasattr(fresh, "model_")
    copied = pickle.loads(pickle.dumps(model))  # noqa: S301 (made here)
    assert repr(copied.get_params()) == repr(model.get_params())
    decide = next((name for name in ("decision_function", "predict") if hasattr(model, name)), None)
    if decide is not None and not hasattr(model.model_, "predictions"):
        np.testing.assert_array_equal(getattr(copied, decide)(bench.data), getattr(model, decide)(bench.data))


def the_command_fits_the_same_bits(bench: Bench) -> None:
    """``gramplane fit`` with the parameters of the case gives the same bits; the plan and the report of this command work."""
    from .cli import main

    if set(bench.case.extra) - {"test_share"}:
        return  # (what lies in files has tests of its own)
    run, share = bench.scratch / "run", bench.case.extra.get("test_share")
    settings = [word for key, value in bench.case.params.items() for word in ("--set", f"{key}={json.dumps(value)}")]
    words = ["fit", bench.case.method, "--data", bench.data, "--run", str(run), "--seed", str(SEED), "--quiet", *settings]
    words += [] if share is None else ["--test-share", str(share)]
    words += [] if bench.case.driver_memory is None else ["--driver-memory", bench.case.driver_memory]
    with changed_sizes(bench.case.sizes):
        assert main([*words, "--dry-run"]) == 0 and not run.exists()
        assert main(words) == 0
    # Kernels are spelled in one way by commands, as they were given by functions.
    assert_equal_runs(run, bench.straight, texts=False)
    assert main(["report", str(run), "--out", str(bench.scratch / "report.html"), "--quiet"]) == 0


CHECKS: tuple[Callable[[Bench], None], ...] = (
    figures_have_common_names_and_are_explained,
    gaps_are_not_negative,
    certificates_hold,
    resumes_to_the_same_bits,
    resumes_at_every_step_in_turn,
    a_kill_between_history_and_checkpoint_leaves_no_trace,
    a_damaged_checkpoint_falls_back_to_the_one_before,
    a_kill_before_the_summary_writes_the_model_again,
    rows_left_out_are_not_looked_at,
    rows_held_out_are_scored,
    states_are_plain_arrays,
    a_finished_run_is_left_alone,
    another_configuration_is_refused_key_by_key,
    other_data_are_refused,
    one_process_at_a_time,
    a_dry_run_tells_the_plan_and_writes_nothing,
    no_pass_takes_more_than_the_plan_says,
    the_plan_lists_what_the_driver_holds,
    too_little_memory_is_refused_before_work,
    the_loaded_estimator_decides_on_the_store,
    tables_of_a_model_are_those_of_its_run,
    the_estimator_is_one_of_scikit_learn,
    the_command_fits_the_same_bits,
)
"""All checks in one process."""

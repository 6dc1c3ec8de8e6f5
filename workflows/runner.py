"""Running a workflow: steps in order of needs, finished ones skipped, one alone for a scheduler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checking import ConfigError, Loc, choose
from .commands.actions import sized
from .commands.options import Where, method_config
from .console import plain, version_text
from .kernel_files import kernel_entries, kernel_specs, names_file
from .progress import Sink, silent
from .schema import FitStep, GramStep, IngestStep, TuneStep, Workflow
from .steps import ACTIONS, Place, fingerprint, gram_kernels, kernel_file, source_of, step_values

if TYPE_CHECKING:
    from ..storage import StepManifest

_HIDDEN = ".steps"
"""Folder of manifests and locks inside a run of a workflow; no step can be called so."""


@dataclass(frozen=True)
class WorkflowOutcome:
    """How a run of a workflow ended.

    Attributes
    ----------
    status
        ``done``, ``already-done`` (nothing was left to do), ``checked`` or ``planned``.
    run_id, folder
        The run, and where it lies.
    steps
        State of each step looked at.
    last
        Figures of the steps that ran: ``results`` by step, or those of the only step.
    """

    status: str
    run_id: str
    folder: Path
    steps: Mapping[str, str]
    last: Mapping[str, Any] = field(default_factory=dict)


def placed(read: Workflow, where: Where) -> Where:
    """Return cluster and memory: options and environment first, then the file."""
    spec = read.spec
    names = ("worker_memory", "driver_memory", "allow_plaintext", "stall_timeout")
    return where.over(cluster=read.cluster(), **{name: getattr(spec, name) for name in names})


def _in_step(read: Workflow, index: int, *more: str | int) -> Any:
    return lambda loc: read.document.place(("steps", index, "with", *more, *loc))


def _check_method(read: Workflow, index: int, step: Any) -> None:
    from ..pipeline import METHODS

    place: Loc = ("steps", index, "with", "method")
    try:
        choose(step.args.method, METHODS, "method")
    except ConfigError as error:
        raise ConfigError(f"{read.document.place(place)}: {error}") from None
    method_config(step.args.method, step_values(read, step), _in_step(read, index))
    for key, values in getattr(step.args, "grid", {}).items():
        for value in values:
            method_config(step.args.method, {**step_values(read, step), key: value}, _in_step(read, index, "grid"))


def _check_kernels(read: Workflow, index: int, step: GramStep) -> None:
    """Check the kernels of a gram step as far as it can be done without the data: a grid takes its number of features from there."""
    where = read.document.place(("steps", index, "with", "kernels"))
    given = gram_kernels(read, step)
    entries, place = kernel_entries(given) if isinstance(given, str) else (given, where)
    kernel_specs(entries, None, where if place == "--kernels" else place, width=1)


def check_workflow(read: Workflow, where: Where) -> None:
    """Check what the file's form does not show: methods, their parameters, sizes.

    Raises
    ------
    ConfigError
        With ``file:line:column`` and the nearest known name.
    """
    for key in ("worker_memory", "driver_memory"):
        sized(getattr(read.spec, key), read.document.place((key,)))
    for key in ("worker_memory", "driver_memory"):
        sized(getattr(where, key), f"--{key.replace('_', '-')}")
    for index, step in enumerate(read.spec.steps):
        if isinstance(step, FitStep | TuneStep):
            _check_method(read, index, step)
        elif isinstance(step, GramStep):
            _check_kernels(read, index, step)
        elif isinstance(step, IngestStep):
            sized(step.args.budget, read.document.place(("steps", index, "with", "budget")))


def resolved_params(read: Workflow, step: Any) -> dict[str, Any]:
    """Return every parameter of a fit or tune step, defaults filled in; nothing for other steps."""
    if not isinstance(step, FitStep | TuneStep):
        return {}
    return method_config(step.args.method, step_values(read, step)).model_dump(mode="json")


def default_run_id(read: Workflow, where: Where) -> str:
    """Return ``NAME-HASH`` of what the results depend on: the file, its sources, and the version of gramplane.

    A changed parameter or source gives another run; the cluster does not count, since results do not depend on it.
    """
    place = {"cluster", "worker_memory", "driver_memory", "allow_plaintext", "stall_timeout", "runs"}
    spec = read.spec.model_dump(mode="json", exclude=place)
    sources = [fingerprint(source_of(read, step)) for step in read.spec.steps if isinstance(step, IngestStep)]
    grams = [gram_kernels(read, step) for step in read.spec.steps if isinstance(step, GramStep)]
    sources += [fingerprint(given) for given in grams if isinstance(given, str) and names_file(given)]
    files = [kernel_file(read, step) for step in read.spec.steps if isinstance(step, FitStep | TuneStep)]
    sources += [fingerprint(file) for file in files if file is not None]
    text = json.dumps([spec, sources, where.driver_memory, version_text()], sort_keys=True)
    return f"{read.spec.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def run_workflow(
    read: Workflow,
    *,
    run_id: str | None = None,
    only: str | None = None,
    check: bool = False,
    dry_run: bool = False,
    where: Where | None = None,
    sink: Sink = silent,
) -> WorkflowOutcome:
    """Run the steps that are not done.

    Parameters
    ----------
    read
        The workflow.
    run_id
        Name of the run; see `default_run_id`.
    only
        Run this step alone; the steps it needs must be done.
    check
        Check the file; run nothing.
    dry_run
        Show which steps would run, and the plan of fits whose data are there.
    where
        Cluster and memory that go before the file's.
    sink
        Takes progress events.

    Raises
    ------
    ConfigError
        For anything wrong with the file, before the first step starts.
    """
    place_where = placed(read, where or Where())
    check_workflow(read, place_where)
    steps = read.order() if only is None else [read.step(only)]
    if check:
        return WorkflowOutcome("checked", run_id or "", Path(read.path(read.spec.runs)), {step.id: step.do for step in steps})
    name = _safe(run_id) if run_id else default_run_id(read, place_where)
    place = Place(read, Path(read.path(read.spec.runs)) / name, place_where, sink)
    if dry_run:
        return _planned(place, name, steps)
    if only is not None:
        _need_done(place, steps[0])
    states, results = {}, {}
    for step in steps:
        states[step.id], results[step.id] = run_step(place, step)
    last = results[only] if only is not None else {"results": results}
    status = "already-done" if set(states.values()) == {"already-done"} else "done"
    return WorkflowOutcome(status, name, place.folder, states, last)


def _safe(run_id: str) -> str:
    from .schema import ID

    if not ID.fullmatch(run_id):
        raise ConfigError(f"--run-id {run_id!r}: letters, digits, dot, dash and underscore only, at most 128")
    return run_id


def _record(place: Place, step: str) -> Path:
    return place.folder / _HIDDEN / f"{step}.json"


def _need_done(place: Place, step: Any) -> None:
    from ..storage import StepManifest

    for need in step.needs:
        found = StepManifest.read(_record(place, need))
        if found is None or found.status != "done":
            raise ConfigError(f"step {step.id!r} needs {need!r}, which is not done in {place.folder}; run it first")


def _wanted(place: Place, step: Any) -> StepManifest:
    from ..storage import StepManifest

    params = {"do": step.do, **step.args.model_dump(mode="json")}
    return StepManifest.begin(step.id, ACTIONS[step.do].inputs(place, step), params)


def run_step(place: Place, step: Any) -> tuple[str, dict[str, Any]]:
    """Run one step unless its manifest shows the same inputs and parameters and complete outputs.

    Returns
    -------
    tuple
        ``"done"`` or ``"already-done"``, and the step's figures.

    Raises
    ------
    RunLocked
        If another process runs this step.
    """
    from ..storage.locks import lock_unless_done

    record = _record(place, step.id)
    record.parent.mkdir(parents=True, exist_ok=True)
    try:
        wanted = _wanted(place, step)
        with lock_unless_done(record.with_suffix(".lock"), lambda: _covers(record, wanted)):
            if _covers(record, wanted):
                place.sink({"event": "step", "step": step.id, "status": "already-done"})
                return "already-done", _kept_figures(record)
            return "done", _work(place, step, wanted, record)
    except Exception as error:
        error.add_note(f"step {step.id} of {place.read.document.path}")
        raise


def _covers(record: Path, wanted: StepManifest) -> bool:
    from ..storage import StepManifest

    found = StepManifest.read(record)
    return found is not None and found.covers(wanted)


def _work(place: Place, step: Any, wanted: StepManifest, record: Path) -> dict[str, Any]:
    from ..storage import StepManifest
    from ..storage.runs.step_record import write_sealed

    place.sink({"event": "step", "step": step.id, "status": "started"})
    # What an earlier try wrote is this step's own, whatever became of it: it may be replaced.
    before = StepManifest.read(record)
    wanted = replace(wanted, outputs={} if before is None else before.outputs)
    place = replace(place, written=frozenset(wanted.outputs))
    wanted.write(record)
    try:
        done = ACTIONS[step.do].work(place, step)
        _refuse_changed(place, step, wanted)
    except Exception as error:
        wanted.failed(str(error)).write(record)
        raise
    write_sealed(_figures_of(record), plain(done.figures))
    # Written last: a step is done when its manifest says so.
    wanted.done(done.outputs).write(record)
    place.sink({"event": "step", "step": step.id, "status": "done"})
    return dict(done.figures)


def _refuse_changed(place: Place, step: Any, wanted: StepManifest) -> None:
    """Refuse what a step made if what it read was replaced meanwhile: nobody could say which of both it was made from.

    Raises
    ------
    DigestMismatch
        Naming the first input that changed.
    """
    from ..storage import DigestMismatch

    if step.do == "verify":  # its input is the time
        return
    found = ACTIONS[step.do].inputs(place, step)
    changed = [path for path, digest in wanted.inputs.items() if found.get(path) != digest]
    if changed:
        raise DigestMismatch(f"{changed[0]} was replaced while step {step.id!r} read it; run the workflow again")


def _kept_figures(record: Path) -> dict[str, Any]:
    from ..storage.runs.step_record import read_step_json

    return read_step_json(_figures_of(record)) or {}


def _figures_of(record: Path) -> Path:
    return record.with_suffix(".figures.json")


def _planned(place: Place, name: str, steps: list[Any]) -> WorkflowOutcome:
    states, plans = {}, {}
    for step in steps:
        states[step.id] = "already-done" if _is_done(place, step) else "planned"
        if states[step.id] == "planned" and (plan := _plan(place, step)) is not None:
            plans[step.id] = plan
    return WorkflowOutcome("planned", name, place.folder, states, {"plans": plans})


def _is_done(place: Place, step: Any) -> bool:
    from ..storage import MissingBlock

    record = _record(place, step.id)
    try:
        return record.exists() and _covers(record, _wanted(place, step))
    except (ConfigError, MissingBlock):
        return False


def _plan(place: Place, step: Any) -> dict[str, Any] | None:
    """Return the plan of a step; ``None`` where it has none, or where what it reads is not there yet: an earlier step makes it."""
    from ..storage import MissingBlock

    action = ACTIONS[step.do]
    if action.plan is None:
        return None
    try:
        action.inputs(place, step)
    except (ConfigError, MissingBlock):
        if all(_is_done(place, place.read.step(need)) for need in step.needs):
            raise
        return None
    return action.plan(place, step)

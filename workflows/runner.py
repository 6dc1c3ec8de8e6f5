"""Runs a workflow: its steps in an order in which each comes after those it needs, except finished ones; or a single step for a
scheduler.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster import share_local_clusters
from ..storage.errors import plain_json
from ..storage.places import is_local
from .checking import ConfigError, Loc, Locator, choose
from .commands.actions import parse_size, require_path
from .commands.options import ComputeOptions, method_config
from .console import Emit, ignore_event, version_text
from .kernel_files import kernel_entries, kernel_specs, names_file
from .schema import ID, FitStep, GramStep, IngestStep, PredictStep, ScoreStep, Step, TuneStep, Workflow
from .steps import ACTIONS, StepContext, fit_files, gram_kernels, source_mark, source_of, step_values

if TYPE_CHECKING:
    from ..storage import StepManifest

_HIDDEN = ".steps"  # folder of manifests and locks inside a run of a workflow; no step can be called so
_FIGURES = ".figures.json"


@dataclass(frozen=True)
class WorkflowOutcome:
    """The result of running a workflow.

    Attributes
    ----------
    status
        ``done``, ``already-done`` (nothing was left to do), ``checked`` or ``planned``.
    run_id, folder
        Name and folder of the run.
    steps
        State of each step that was checked.
    last
        The results of all steps, by step, as ``{"results": …}``; if only one step was requested, the results of this step.
    seconds
        Seconds of each step that ran.
    """

    status: str
    run_id: str
    folder: Path
    steps: Mapping[str, str]
    last: Mapping[str, Any] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)


def merge_compute(read: Workflow, compute: ComputeOptions) -> ComputeOptions:
    """Return the settings of cluster and memory; options and environment variables override the file."""
    spec = read.spec
    names = ("worker_memory", "driver_memory", "allow_plaintext", "stall_timeout")
    return compute.over(cluster=read.cluster(), **{name: getattr(spec, name) for name in names})


def _in_step(read: Workflow, index: int, *more: str | int) -> Locator:
    return lambda loc: read.document.place(("steps", index, "with", *more, *loc))


def _check_method(read: Workflow, index: int, step: FitStep | TuneStep) -> None:
    from ..pipeline import METHODS

    location: Loc = ("steps", index, "with", "method")
    try:
        choose(step.args.method, METHODS, "method")
    except ConfigError as error:
        raise ConfigError(f"{read.document.place(location)}: {error}") from None
    method_config(step.args.method, step_values(read, step), _in_step(read, index))
    for key, values in getattr(step.args, "grid", {}).items():
        for value in values:
            method_config(step.args.method, {**step_values(read, step), key: value}, _in_step(read, index, "grid"))


def _check_kernels(read: Workflow, index: int, step: GramStep) -> None:
    """Check the kernels of a gram step as far as possible without the data; the number of features in a grid is known only from the
    data.
    """
    location = read.document.place(("steps", index, "with", "kernels"))
    kernels = gram_kernels(read, step)
    entries, source = kernel_entries(kernels) if isinstance(kernels, str) else (kernels, location)
    kernel_specs(entries, None, location if source == "--kernels" else source, width=1)


def check_workflow(read: Workflow, compute: ComputeOptions) -> None:
    """Check methods, parameters and sizes. Raises ConfigError with ``file:line:column`` and the closest known name."""
    sizes = ("worker_memory", "driver_memory")
    for key in sizes:
        parse_size(getattr(read.spec, key), read.document.place((key,)))
    for key in sizes:
        parse_size(getattr(compute, key), f"--{key.replace('_', '-')}")
    for index, step in enumerate(read.spec.steps):
        if isinstance(step, FitStep | TuneStep):
            _check_method(read, index, step)
        elif isinstance(step, GramStep):
            _check_kernels(read, index, step)
        elif isinstance(step, IngestStep):
            parse_size(step.args.budget, read.document.place(("steps", index, "with", "budget")))


def resolved_params(read: Workflow, step: Step) -> dict[str, Any]:
    """Return every parameter of a fit or tune step, including defaults; empty for other steps."""
    if not isinstance(step, FitStep | TuneStep):
        return {}
    return method_config(step.args.method, step_values(read, step)).model_dump(mode="json")


def default_run_id(read: Workflow) -> str:
    """Return ``NAME-HASH``, with a hash of the file, the sources that it names, and the version of gramplane.

    A changed parameter or source gives another run. The hash does not include the cluster, because results do not depend on it. It does not
    include memory limits either, so that a run that failed for lack of memory resumes with a larger limit.
    """
    settings = {"cluster", "worker_memory", "driver_memory", "allow_plaintext", "stall_timeout", "runs"}
    spec = read.spec.model_dump(mode="json", exclude=settings)
    spec["steps"] = [step for step in spec["steps"] if step["do"] != "check"]  # another bound is no reason to fit again
    sources = [source_mark(source_of(read, step)) for step in read.spec.steps if isinstance(step, IngestStep)]
    grams = [gram_kernels(read, step) for step in read.spec.steps if isinstance(step, GramStep)]
    sources += [source_mark(path) for path in grams if isinstance(path, str) and names_file(path)]
    files = [file for step in read.spec.steps if isinstance(step, FitStep | TuneStep) for file in fit_files(read, step)]
    # A store that another step makes is told by what that step reads; a file that is missing is told by the step.
    sources += [source_mark(file) for file in files if Path(file).is_file()]
    text = json.dumps([spec, sources, version_text()], sort_keys=True)
    return f"{read.spec.name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def run_workflow(
    read: Workflow,
    *,
    run_id: str | None = None,
    only: str | None = None,
    check: bool = False,
    dry_run: bool = False,
    where: ComputeOptions | None = None,
    sink: Emit = ignore_event,
) -> WorkflowOutcome:
    """Run the steps that are not done.

    Parameters
    ----------
    read
        The workflow.
    run_id
        Name of the run; see `default_run_id`.
    only
        Run only this step; the steps that it needs must be done.
    check
        Check the file without running anything.
    dry_run
        Show which steps would run, and the plan of fits whose data exist.
    where
        Cluster and memory; they override the file.
    sink
        Function that receives progress events.

    Raises
    ------
    ConfigError
        For any error in the file, before the first step starts.
    """
    compute = merge_compute(read, where or ComputeOptions())
    check_workflow(read, compute)
    steps = read.order() if only is None else [read.step(only)]
    if check:
        return WorkflowOutcome("checked", run_id or "", Path(read.path(read.spec.runs)), {step.id: step.do for step in steps})
    if run_id and not ID.fullmatch(run_id):
        raise ConfigError(f"--run-id {run_id!r}: use letters, digits, dot, dash and underscore only, at most 128")
    name = run_id or default_run_id(read)
    context = StepContext(read, Path(read.path(read.spec.runs)) / name, compute, sink)
    if only is not None and not dry_run:
        _need_done(context, steps[0])
    _refuse_missing_stores(context, steps)
    if dry_run:
        return _plan_steps(context, name, steps)
    states, results, seconds = {}, {}, {}
    with share_local_clusters():
        for step in steps:
            began = time.perf_counter()
            states[step.id], results[step.id] = run_step(context, step)
            seconds[step.id] = time.perf_counter() - began
    last = results[only] if only is not None else {"results": results}
    status = "already-done" if set(states.values()) == {"already-done"} else "done"
    return WorkflowOutcome(status, name, context.folder, states, last, seconds)


def _record_path(context: StepContext, step: str) -> Path:
    return context.folder / _HIDDEN / f"{step}.json"


def _need_done(context: StepContext, step: Step) -> None:
    from ..storage import StepManifest

    for need in step.needs:
        record = StepManifest.read(_record_path(context, need))
        if record is None or record.status != "done":
            raise ConfigError(f"step {step.id!r} needs {need!r}, which is not done in {context.folder}; run the step {need!r} first")


def _refuse_missing_stores(context: StepContext, steps: list[Step]) -> None:
    """Check that rows to predict or score exist, unless another step makes them. Otherwise the error could come only after a fit of several
    hours.

    Raises ConfigError with the path and the step.
    """
    made = {context.store(step) for step in context.read.spec.steps if isinstance(step, IngestStep)}
    for step in steps:
        if isinstance(step, PredictStep | ScoreStep) and (store := context.store(step)) not in made and is_local(store):
            try:
                require_path(store, "store")
            except ConfigError as error:
                error.add_note(_place_of(context, step))
                raise


def _place_of(context: StepContext, step: Step) -> str:
    return f"step {step.id} of {context.read.document.path}"


def _requested_manifest(context: StepContext, step: Step) -> StepManifest:
    from ..storage import StepManifest

    params = {"do": step.do, **step.args.model_dump(mode="json")}
    return StepManifest.begin(step.id, ACTIONS[step.do].inputs(context, step), params)


def run_step(context: StepContext, step: Step) -> tuple[str, dict[str, Any]]:
    """Run one step, unless its manifest has the same inputs and parameters and complete outputs.

    Returns ``"done"`` or ``"already-done"``, and the step's results. Raises RunLocked if another process runs this step.
    """
    from ..storage.locks import lock_unless_done
    from ..storage.runs.files import read_step_json

    record = _record_path(context, step.id)
    record.parent.mkdir(parents=True, exist_ok=True)
    try:
        requested = _requested_manifest(context, step)
        with lock_unless_done(record.with_suffix(".lock"), lambda: _is_covered(record, requested)):
            if _is_covered(record, requested):
                context.emit({"event": "step", "step": step.id, "status": "already-done"})
                return "already-done", read_step_json(record.with_suffix(_FIGURES)) or {}
            return "done", _run_action(context, step, requested, record)
    except Exception as error:
        error.add_note(_place_of(context, step))
        raise


def _is_covered(record: Path, manifest: StepManifest) -> bool:
    from ..storage import StepManifest

    earlier = StepManifest.read(record)
    return earlier is not None and earlier.covers(manifest)


def _run_action(context: StepContext, step: Step, manifest: StepManifest, record: Path) -> dict[str, Any]:
    from ..storage import StepManifest
    from ..storage.runs.files import write_sealed

    context.emit({"event": "step", "step": step.id, "status": "started"})
    # What an earlier try wrote is this step's own, whatever became of it: it may be replaced.
    before = StepManifest.read(record)
    manifest = replace(manifest, outputs={} if before is None else before.outputs)
    context = replace(context, written=frozenset(manifest.outputs))
    manifest.write(record)
    try:
        done = ACTIONS[step.do].work(context, step)
        _refuse_changed(context, step, manifest)
    except Exception as error:
        manifest.failed(str(error)).write(record)
        raise
    write_sealed(record.with_suffix(_FIGURES), plain_json(done.figures))
    # Written last: a step is done when its manifest says so.
    manifest.done(done.outputs).write(record)
    context.emit({"event": "step", "step": step.id, "status": "done"})
    return dict(done.figures)


def _refuse_changed(context: StepContext, step: Step, manifest: StepManifest) -> None:
    """Check that the inputs of a step were not replaced while the step ran, because then its outputs could come from either version of an
    input.

    Raises DigestMismatch, which names the first changed input.
    """
    from ..storage import DigestMismatch

    if step.do == "verify":  # its input is the time
        return
    digests = ACTIONS[step.do].inputs(context, step)
    changed = [path for path, digest in manifest.inputs.items() if digests.get(path) != digest]
    if changed:
        raise DigestMismatch(f"{changed[0]} was replaced while step {step.id!r} read it; run the workflow again")


def _plan_steps(context: StepContext, name: str, steps: list[Step]) -> WorkflowOutcome:
    states, plans = {}, {}
    for step in steps:
        states[step.id] = "already-done" if _is_done(context, step) else "planned"
        if states[step.id] == "planned" and (plan := _plan_step(context, step)) is not None:
            plans[step.id] = plan
    return WorkflowOutcome("planned", name, context.folder, states, {"plans": plans})


def _is_done(context: StepContext, step: Step) -> bool:
    from ..storage import MissingBlock

    record = _record_path(context, step.id)
    try:
        return record.exists() and _is_covered(record, _requested_manifest(context, step))
    except (ConfigError, MissingBlock):
        return False


def _plan_step(context: StepContext, step: Step) -> dict[str, Any] | None:
    """Return the plan of a step; ``None`` if steps of this kind have no plan, or if an earlier step has not made the inputs yet."""
    from ..storage import MissingBlock

    action = ACTIONS[step.do]
    if not action.has_plan:
        return None
    try:
        action.inputs(context, step)
    except (ConfigError, MissingBlock):
        if all(_is_done(context, context.read.step(need)) for need in step.needs):
            raise
        return None
    return dict(action.work(context, step, dry_run=True).figures)

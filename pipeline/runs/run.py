"""``run_method``: runs a method on a store in a run directory, from the first check to the saved model.

The configuration of a run directory never changes: its ``config.json`` contains method, parameters, digest of the data, and decisions
of the run. Calling ``run_method`` again resumes the run; a finished run is left unchanged.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...cluster import Executor, TLSFiles, open_executor, tee
from ...kernels.jit import one_thread, watch_compilation
from ...storage import BlockStore, RunStore, StorageError, cached_bytes, set_cache_limit
from ...storage.data import opened
from ...storage.errors import Json
from ...storage.places import check_place
from ...storage.temporary import sweep_folders
from ..core.calibration import Fit, calibrate_run, full_plan
from ..core.engine import BOUNDS, begin_event, iterate, result_of
from ..core.memory import CACHE_SHARE, Memory, few_blocks_kept, process_bytes, process_plan, refuse_step, tight_worker_notes
from ..core.method import Problem
from ..core.resources import Emit, RunContext, Tally, ignore, once, warn_once
from ..core.result import Outcome
from ..core.search import hand_over
from ..inputs.scaling import as_scaled
from ..models.tables import with_facts
from ..records.compute import ComputeOptions
from ..records.config import MethodConfig, make_config
from ..records.data_set import source_names
from ..records.names import nearest
from ..registry import METHODS, MethodInfo


class ConfigMismatch(ValueError):
    """The run directory belongs to another configuration; the message lists the keys that differ."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of a run.

    ``status``: ``done``, ``already-done`` or ``planned``. ``summary``: small JSON object with the main results. ``plan``: plan of a dry
    run. ``run``: the run directory.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> outcome.status
    'done'
    >>> outcome.summary["n_selected"]
    4
    """

    status: str
    summary: dict[str, Any]
    plan: dict[str, Any] | None = None
    run: str | None = None


def method_named(name: str) -> MethodInfo:
    """Return a method by name. Raises ValueError for an unknown name, with the closest known one."""
    if name not in METHODS:
        raise ValueError(f"method {name!r} does not exist{nearest(name, METHODS)}")
    return METHODS[name]


def open_data(url: Any, info: MethodInfo, extra: Mapping[str, Any] | None = None, digest: str | None = None) -> Any:
    """Return the store that a method works on, or the text file that it reads as a stream (``extra["stream"]``).

    An open store is returned unchanged. With ``digest``, the store is opened in that version, even if it has been replaced since. Raises
    ValueError if a text file is given and the method cannot read streams; DigestMismatch if the version is missing; DataError if there are
    missing values and the method does not accept them.
    """
    stream = (extra or {}).get("stream")
    if stream is not None:
        url = check_place(url, "stream", "stream")
        if not info.config.takes_streams:
            raise ValueError(f"method {info.name!r} needs a store, it does not learn from a stream; ingest the text first")
        return info.module("text").TextData(url, stream)
    return opened(url, "" if info.config.takes_missing else info.name, digest)


def _check_place(where: ComputeOptions, extra: Mapping[str, Any] | None) -> None:
    if (extra or {}).get("stream") is not None and where.config().kind != "sync":
        raise ValueError(f"cluster={where.cluster!r}: a stream is read by one process; leave the cluster out")


def store_digest(url: str, digest: str) -> str:
    """Return the digest of the version of a store that a run uses, after reading it again. The preflight check runs this function on every
    worker.
    """
    return BlockStore.open(url, digest).digest


@contextlib.contextmanager
def executing(where: ComputeOptions, data: BlockStore, emit: Emit, passes: str = "methods.fgm.score_pass") -> Iterator[Executor]:
    """Open the executor of a run, check that all workers see the same store, and set the size of the workers' block caches.

    ``passes`` is the module of the passes to run; a worker loads this module before the memory of the worker is measured. BLAS is limited
    to one thread while the executor is open.
    """
    sweep_folders()
    with one_thread(), open_executor(where.config(), events=emit, preflight=partial(store_digest, data.url, data.digest)) as executor:
        if executor.kind != "sync":
            executor.reserved = int(CACHE_SHARE * executor.worker_memory)
            executor.run_on_workers(set_cache_limit, executor.reserved)
            executor.measure(partial(kept_bytes, passes))
        with watch_compilation(lambda function: emit({"event": "compile", "function": function})):
            yield executor


def kept_bytes(passes: str = "methods.fgm.score_pass") -> int:
    """Return the size in bytes of the blocks that this process caches. On a worker, the code of the passes is loaded first."""
    module = importlib.import_module(f"..{passes}", __package__)
    getattr(module, "load_programs", int)()
    return cached_bytes()


def run_method(
    method: str,
    params: Mapping[str, Any],
    *,
    data: str | BlockStore,
    run: str,
    cluster: str = "sync",
    worker_memory: str | int | None = None,
    driver_memory: str | int | None = None,
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    dry_run: bool = False,
    on_event: Emit | None = None,
    seed: int = 0,
    extra: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """Run a method on a store. If the run directory exists, the run resumes.

    Parameters
    ----------
    method, params
        Name of the method, and its parameters.
    data, run
        Block store and run directory.
    cluster, worker_memory, driver_memory, allow_plaintext, tls
        Where passes run (``sync``, ``local:4``, ``tls://…``), and memory limits; see :class:`ComputeOptions`. A run may resume with a
        larger ``driver_memory``; decisions that were based on the earlier limit remain.
    stall_timeout
        Seconds without a finished task before the run is aborted. ``None``: as set by the environment, otherwise 300.
    dry_run, on_event
        Whether to return the plan without writing anything; function that receives event records.
    seed, extra
        Root seed of the run; further inputs such as ``groups`` and ``test_share``.

    Raises
    ------
    ValueError
        Invalid parameters, or (as :class:`ConfigMismatch`) a run directory of another configuration.
    gramplane.storage.RunLocked
        Another process is using the run directory.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> outcome.status
    'done'
    >>> run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... ).status
    'already-done'
    """
    options = ComputeOptions(cluster, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout)
    run = check_place(run, "run", "run")
    info = method_named(method)
    config = make_config(info.config, params)
    store = as_scaled(config, open_data(data, info, extra))
    _check_place(options, extra)
    record = {"method": info.name, "params": config.model_dump(mode="json"), "data_digest": store.digest, "seed": seed}
    record |= {"extra": jsonable(extra or {}), "driver_memory": options.driver_bytes}
    place = options.config()
    if dry_run:
        ready = _prepare(info, config, store, record, place.kind)
        refuse_step(info.name, Memory.planned(ready.plan), record["driver_memory"], place.kind)
        kept = ready.plan["gram_bytes"] if ready.plan.get("grams") in ("store", "recompute") else 0
        # Of eigenpairs, whose number shows only on the way, the most that the limit lets it hold.
        driver = max(ready.plan["driver_bytes"], min(ready.plan.get("driver_bytes_at_most", 0), record["driver_memory"]))
        here = process_plan(driver, ready.plan["task_bytes"], store, record["driver_memory"], place.kind, kept)
        step = ready.plan.get("task_bytes_at_most", ready.plan["task_bytes"])
        most, notes = process_bytes(place, step), [*ready.plan.get("notes", ()), *tight_worker_notes(place, step)]
        sizes = {"cluster": options.cluster, "driver_memory": record["driver_memory"], "process_bytes_at_most": most, **here}
        about = {"method": info.name, "data": store.url, "distributed": list(ready.problem.distributed)}
        return RunOutcome("planned", {}, {**about, **sizes, **ready.plan, **({"notes": notes} if notes else {})})
    fresh, stored = not (Path(run) / "config.json").exists(), dict[str, Any]()
    if not fresh:
        record["driver_memory"], options = _raise_memory(RunStore.open(run), options)
        stored = RunStore.open(run).config
    # What does not fit the data is refused before there is a folder: its configuration could not be changed any more.
    prepared = [_prepare(info, config, store, record, place.kind)] if fresh else []
    if prepared:
        refuse_step(info.name, Memory.planned(prepared[0].plan), record["driver_memory"], place.kind)
    # What the parameters left to the data is decided once: what a run has written down stays.
    decided = config.decisions_of(prepared[0].problem.config) if prepared else stored.get("decided")
    record |= {"decided": decided} if decided else {}
    same_as_before(run, record)
    with RunStore.begin(run, record) as folder, _withdrawn_unless_begun(folder), one_thread():
        if not folder.born:
            # What was planned without the folder holds as long as nobody else wrote down decisions meanwhile.
            prepared.clear()
        config = prepared[0].problem.config if prepared else config.model_copy(update=folder.config.get("decided", {}))
        return _run(info, config, store, folder, options, on_event or ignore, prepared)


@contextlib.contextmanager
def _withdrawn_unless_begun(folder: RunStore) -> Iterator[None]:
    # A cluster that does not answer must not tie the folder to this configuration, either.
    try:
        yield
    except BaseException:
        if folder.born and folder.history() == []:
            folder.withdraw()
        raise


def resume_run(
    run: str,
    *,
    cluster: str | None = None,
    worker_memory: str | int | None = None,
    driver_memory: str | int | None = None,
    allow_plaintext: bool = False,
    tls: TLSFiles | None = None,
    stall_timeout: float | None = None,
    on_event: Emit | None = None,
) -> RunOutcome:
    """Resume a run from its last checkpoint. A finished run is left unchanged.

    The cluster may differ from before, and ``driver_memory`` may be larger; decisions that were based on the earlier limit remain. Raises
    ConfigMismatch if ``driver_memory`` is smaller.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest, resume_run, run_method
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> outcome = run_method(
    ...     "fgm", {"B": 2, "max_rounds": 2}, data="stores/iris", run="runs/iris"
    ... )
    >>> resume_run("runs/iris").status
    'already-done'
    """
    folder = RunStore.open(run)
    with folder.lock(), one_thread():
        done = folder.read_json("summary")
        if done is not None:
            return RunOutcome("already-done", done, run=str(folder.path))
        record, origin = folder.config, folder.read_json("where") or {}
        there = cluster or origin.get("cluster", "sync")
        options = _raise_memory(folder, ComputeOptions(there, worker_memory, driver_memory, allow_plaintext, tls, stall_timeout))[1]
        info = method_named(record["method"])
        if "data" not in origin:
            raise StorageError(f"{run}: the run was prepared but never started; start it again with `gramplane fit`")
        store = open_data(origin["data"], info, record["extra"], record["data_digest"])
        _check_place(options, record["extra"])
        same_as_before(run, {**record, "data_digest": store.digest, "driver_memory": min(record["driver_memory"], options.driver_bytes)})
        config = make_config(info.config, record["params"]).model_copy(update=record.get("decided", {}))
        return _run(info, config, store, folder, options, on_event or ignore, [])


def jsonable(value: Json) -> Json:
    """Return ``value`` with arrays as lists."""
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def same_as_before(run: str, record: Mapping[str, Any]) -> None:
    """Check that a run directory has the same configuration. The cluster may differ, because results do not depend on it.

    Raises ConfigMismatch with the differing keys and both values.
    """
    if not (Path(run) / "config.json").exists():
        return
    differing = list(_differences(RunStore.open(run).config, json.loads(json.dumps(record))))
    if differing:
        raise ConfigMismatch(f"{run} belongs to another configuration: {'; '.join(differing)}. Choose another run directory")


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            yield f"{prefix}{key} is {a!r} there and {b!r} here"


def _raise_memory(folder: RunStore, options: ComputeOptions) -> tuple[int, ComputeOptions]:
    """Return the memory on which the decisions of an existing run are based, and the options with the current memory limit.

    The current limit is the one in ``options``, or else the last one of the run. If the current limit is below the memory on which
    decisions are based, the current limit is returned instead, so that the configuration differs.
    """
    decided = int(folder.config.get("driver_memory", options.driver_bytes))
    last = int((folder.read_json("where") or {}).get("driver_memory", decided))
    limit = last if options.driver_memory is None else options.driver_bytes
    return min(decided, limit), replace(options, driver_memory=limit)


def _context(
    executor: Executor, store: BlockStore, folder: RunStore | None, record: Mapping[str, Any], emit: Emit, limit: int | None = None
) -> RunContext:
    return RunContext(
        executor, data=store, scratch=folder, driver_memory=int(record["driver_memory"]), emit=emit, seed=int(record["seed"]), limit=limit
    )


@dataclass(frozen=True)
class _Ready:
    """A problem and the plan of its run, with messages."""

    problem: Problem
    plan: dict[str, Any]


def _prepare(info: MethodInfo, config: MethodConfig, store: BlockStore, record: Mapping[str, Any], kind: str) -> _Ready:
    """Return the problem and its plan, computed in this process without writing. Passes will run on a cluster of the given kind."""
    with one_thread(), open_executor(None) as executor:
        if kind != "sync":
            executor.kind = kind
        return _plan(info, config, _context(executor, store, None, record, ignore), record)


def _plan(info: MethodInfo, config: MethodConfig, ctx: RunContext, record: Mapping[str, Any]) -> _Ready:
    told: list[str] = []
    ready = info.prepare(config, replace(ctx, warn=once(told.append)), record["extra"])
    plan = full_plan(info.method, ready, ctx) if config.calibrates else ready.plan
    return _Ready(ready, {**plan, "notes": told} if told else plan)


def _run(
    info: MethodInfo,
    config: MethodConfig,
    store: BlockStore,
    folder: RunStore,
    where: ComputeOptions,
    emit: Emit,
    prepared: list[_Ready],
) -> RunOutcome:
    """Run a method to its end. The entry of ``prepared`` is removed from the list, so that its memory can be freed."""
    done = folder.read_json("summary")
    if done is not None:
        return RunOutcome("already-done", done, run=str(folder.path))
    folder.write_json("where", {"cluster": where.cluster, "data": store.url, "driver_memory": where.driver_bytes})
    began, record, tally, emit = time.perf_counter(), folder.config, Tally(), warn_once(emit)
    with executing(where, store, tee((emit, tally.listen)), info.method.programs) as executor:
        ctx = replace(_context(executor, store, folder, record, emit, where.driver_bytes), tally=tally)
        begun = prepared.pop() if prepared else _plan(info, config, ctx, record)
        problem, plan = begun.problem, begun.plan
        del begun
        for message in plan.get("notes", ()):
            emit({"event": "warning", "message": message})
        if folder.read_json("decisions") is None:
            folder.write_json("decisions", jsonable(plan))
        if store.has_table("covariates") and "covariates" not in (item.name for item in info.extra_inputs):
            emit({"event": "warning", "message": f"the store keeps covariates, which {info.name} does not use"})
        if executor.kind != "sync" and not problem.distributed:
            emit({"event": "warning", "message": alone_text(info.name, where.cluster)})
        ctx = replace(ctx, beside=getattr(problem, "beside", ()))
        memory = Memory.planned(plan)
        refuse_step(info.name, memory, ctx.fit_limit, executor.kind)
        with few_blocks_kept(memory, ctx.fit_limit, executor.kind):
            emit(begin_event(info.name, problem.config))
            outcome = iterate(info.method, problem, ctx, store=folder)
            result = result_of(info.method, problem, outcome, ctx)
            model, own = result.model, result.summary
            tables = info.method.tables(model, source_names(store), (problem, outcome.state))
            doubts = [*([result.unfinished] if result.stop == BOUNDS else []), *result.warnings]
            del result
            fit = Fit(info.method, problem.config, problem.inputs, grams=hand_over(None, problem))
            del problem  # what it holds makes room for the fits of a calibration
            model = replace(model, calibration=calibrate_run(fit, ctx)) if config.calibrates else model
        ctx.confirm()
    folder.write_model(model)
    folder.drop_scratch()  # what a model is made of may lie there
    folder.write_source(store.whole_source())
    folder.write_json("tables", with_facts(tables, store))
    figures = {**common_figures(own, outcome), **({"calibration": plan["calibration"]} if "calibration" in plan else {})}
    for message in doubts:
        emit({"event": "warning", "message": message})
    told = {"warnings": doubts} if doubts else {}
    summary = {"method": info.name, **figures, **told, **tally.notes(), "seconds": time.perf_counter() - began}
    # Written last: a run is finished when its summary stands.
    folder.write_json("summary", summary)
    emit({"event": "done", **summary})
    return RunOutcome("done", summary, run=str(folder.path))


def alone_text(method: str, cluster: str | None) -> str:
    """Return the message that a method does not use the cluster."""
    return f"nothing of this {method} is distributed: this process does all of it, and the workers of cluster={cluster!r} none"


def common_figures(own: Mapping[str, Any], outcome: Outcome[Any]) -> dict[str, Any]:
    """Return the summary of a run, including the quantities common to all methods.

    The common quantities are ``iterations`` (number of steps), ``objective``, ``gap`` (absolute; ``None`` without a certificate),
    ``certified_over`` (the problem to which the certificate applies), ``relative_gap`` (the value that the last step compared with the
    tolerance, or else the gap divided by the absolute value of the objective), ``stop``, ``classes`` (``None`` for regression), and the
    accuracies or R2 of the last step, if measured.
    """
    names = ("objective", "gap", "certified_over", "relative_gap", "stop", "classes")
    figures = {**dict.fromkeys(names), "relative_gap": _relative(own, outcome.history), **own}
    row = outcome.history[-1] if outcome.history else {}
    scores = {key: row.get(key) for key in ("train_accuracy", "test_accuracy", "train_r2", "test_r2")}
    # NaN while the run goes on, None once read back from the history file.
    known = {key: value for key, value in scores.items() if value is not None and value == value}
    return {**figures, "iterations": outcome.state.iteration, **known}


def _relative(own: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> float | None:
    gap, objective = own.get("gap"), own.get("objective")
    if gap is None or gap != gap:
        return None
    known = history[-1].get("relative_gap") if history else None
    if known is not None and known == known:
        return float(known)
    return None if not objective or objective != objective else float(gap / abs(objective))

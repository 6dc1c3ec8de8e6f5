"""A plan as a Dask graph: one node per chunk step and per combine step, with keys made of program and position."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from typing import Any, cast

from dask._task_spec import Task, TaskRef
from distributed import KilledWorker, get_worker
from distributed.core import clean_exception, error_message
from distributed.protocol import deserialize, serialize
from distributed.scheduler import NoValidWorkerError, NoWorkerError

from ..arithmetic import arithmetic, fingerprint
from ..config import Limits, peak_bytes
from ..errors import BlockFailure, ClusterError, ClusterLost, TaskFailed, VersionMismatch, WorkersKilled, bytes_text, shorten_text
from ..program import Done, Plan, Step, run_chunk, run_combine
from ..versions import own_version

INLINE_BYTES = 1 << 20
"""Size in bytes above which shared arguments are better stored as an object, because otherwise every task carries its own copy."""

Key = tuple[str, int] | tuple[str, int, int]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _WorkerPreference:
    """Preferred workers of tasks in Dask's format: for each key a list of addresses; an empty list allows any worker."""

    addresses: Mapping[Key, str]

    def __call__(self, key: Key) -> list[str]:
        home = self.addresses.get(key)
        return [home] if home else []


class _Node(Task):
    """A task that is identified by its key, which is unique. Dask would otherwise look at every number of its arguments."""

    __slots__ = ()

    def __dask_tokenize__(self) -> str:
        return str(self.key)


@dataclass(frozen=True)
class Graph:
    """Graph of one run. ``leaves``: keys of the chunk steps, in the order of the references. ``root``: key of the result."""

    tasks: dict[Key, _Node]
    leaves: list[Key]
    root: Key

    def homes(self, workers: list[str]) -> _WorkerPreference:
        """Return the preferred workers of the chunk steps."""
        return _WorkerPreference(dict(zip(self.leaves, workers, strict=True)))


def build_graph(plan: Plan[Any], limits: Limits) -> Graph:
    """Return the graph of ``plan`` with unique keys: two runs never share a task."""
    _check_broadcast(plan)
    step = replace(Step.of(plan, limits), arithmetic=fingerprint())
    token = uuid.uuid4().hex
    leaves: list[Key] = [(f"{step.name}-{token}", i) for i in range(plan.n_tasks)]
    tasks = {key: _Node(key, _chunk_on_worker, step, i, ref) for i, (key, ref) in enumerate(zip(leaves, plan.refs, strict=True))}
    merge = replace(step, broadcast=())
    keys = leaves
    for depth, level in enumerate(plan.levels, 1):
        below, keys = keys, []
        for i, (lo, hi) in enumerate(level):
            if hi - lo == 1:
                keys.append(below[lo])
                continue
            keys.append((f"{step.name}-combine-{token}", depth, i))
            tasks[keys[-1]] = _Node(keys[-1], _combine_on_worker, merge, *(TaskRef(key) for key in below[lo:hi]))
    return Graph(tasks, leaves, keys[0])


def _check_broadcast(plan: Plan[Any]) -> None:
    try:
        _, frames = serialize(plan.broadcast, on_error="raise")
    except TypeError as error:
        raise TypeError(f"plan '{plan.program.name}': its shared arguments cannot be sent to workers: {error}") from error
    size = sum(memoryview(frame).nbytes for frame in frames)
    if size > INLINE_BYTES:
        advice = "write them to the run store and pass the reference"
        logger.warning("plan '%s' carries %s of shared arguments in every task; %s", plan.program.name, bytes_text(size), advice)


def _chunk_on_worker(step: Step, ordinal: int, ref: object) -> Done:
    """Run one chunk step as a Dask task. Raises VersionMismatch on a worker that joined later with another version."""
    worker = get_worker().address
    if own_version() != step.version:
        raise VersionMismatch(
            f"worker {worker} runs gramplane {own_version()}, the driver gramplane {step.version}; install the same version on both"
        )
    done = _send_safely(run_chunk, step, ordinal, ref, worker)
    other = None if fingerprint() == step.arithmetic else arithmetic()
    return Done(done.value, (done.reports[0]._replace(peak=peak_bytes(), arithmetic=other),))


def _combine_on_worker(step: Step, *parts: Done) -> Done:
    return _send_safely(run_combine, step, parts, get_worker().address)


def _send_safely(function: Callable[..., Done], *args: object) -> Done:
    try:
        return function(*args)
    except BlockFailure as failure:
        arrived = clean_exception(error_message(failure)["exception"].data)[1]
        if not isinstance(arrived, BlockFailure) or type(arrived.__cause__) is not type(failure.__cause__):
            _strip_cause(failure)
        raise


def _strip_cause(failure: BlockFailure) -> None:
    # One attribute that cannot be sent (a lock, an open file) would cost the whole exception its type; it is sent as text instead.
    cause = failure.__cause__
    assert cause is not None
    for name, value in list(vars(cause).items()):
        if not _can_travel(value):
            setattr(cause, name, repr(value))
    cause.args = tuple(arg if _can_travel(arg) else repr(arg) for arg in cause.args)
    cause.__cause__ = cause.__context__ = None


def _can_travel(value: object) -> bool:
    # Serialising runs whatever code the value brings, so it may fail in any way; it then travels as text.
    try:
        deserialize(*serialize(value, on_error="raise"))
    except Exception:
        return False
    return True


def translate_error(
    error: BaseException, plan: Plan[Any], graph: Graph, worker_memory: int, *, connected: bool = True, hung: str = ""
) -> ClusterError:
    """Return the error to raise for a failed future of ``graph``. ``hung``: text about workers that were excluded."""
    if isinstance(error, BlockFailure):
        return error.as_task_failed(plan.program.name)
    if isinstance(error, ClusterError):
        return error
    if isinstance(error, KilledWorker):
        key, leaves = cast(Key, error.task), list(graph.leaves)
        task = f"task {leaves.index(key) + 1}" if key in leaves else "joining the results"
        losses = f"lost its worker {error.allowed_failures + 1} times (last: {error.last_worker.address})"
        return WorkersKilled(f"{task} of '{plan.program.name}' {losses}; {memory_plan(plan, worker_memory)}")
    if isinstance(error, (NoWorkerError, NoValidWorkerError)):
        return ClusterLost(f"no workers were left for '{plan.program.name}' (no_workers_timeout): {error}{hung}")
    if not connected:
        return ClusterLost(f"the cluster was lost while '{plan.program.name}' ran: the connection to its scheduler broke")
    if isinstance(error, CancelledError):  # its text is the key of a task
        return ClusterLost(f"the cluster was lost while '{plan.program.name}' ran: its tasks were cancelled{hung}")
    if isinstance(error, OSError):
        return ClusterLost(f"the cluster was lost while '{plan.program.name}' ran: {error}")
    return TaskFailed(f"a task of '{plan.program.name}' failed outside of its own code: {type(error).__name__}: {shorten_text(str(error))}")


def original_cause(error: BaseException) -> BaseException:
    """Return the exception for ``raise … from``: the original exception of a failed task, otherwise ``error`` itself."""
    return error.__cause__ if isinstance(error, BlockFailure) and error.__cause__ is not None else error


def memory_plan(plan: Plan[Any], worker_memory: int) -> str:
    """Return the sentence about memory for messages about dead workers."""
    sizes = f"a step was planned to need up to {bytes_text(plan.memory_bound)}, and a worker has {bytes_text(worker_memory)}"
    return f"the usual cause is too little memory: {sizes}; the workers' logs say more"

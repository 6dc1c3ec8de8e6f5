"""What Dask reports, in this layer's own errors."""

from __future__ import annotations

from concurrent.futures import CancelledError
from typing import Any, cast

from distributed import KilledWorker
from distributed.scheduler import NoValidWorkerError, NoWorkerError

from ..errors import BlockFailure, ClusterError, ClusterLost, TaskFailed, WorkersKilled, bytes_text, shorten_text
from ..program import Plan
from .graph import Graph, Key


def translate_error(
    error: BaseException, plan: Plan[Any], graph: Graph, worker_memory: int, *, connected: bool = True, hung: str = ""
) -> ClusterError:
    """Return the error to raise for what a future of ``graph`` holds; ``hung``: what to say of workers that were left out."""
    if isinstance(error, BlockFailure):
        return error.as_task_failed(plan.program.name)
    if isinstance(error, ClusterError):
        return error
    if isinstance(error, KilledWorker):
        return WorkersKilled(_killed_message(error, plan, graph, worker_memory))
    if isinstance(error, (NoWorkerError, NoValidWorkerError)):
        return ClusterLost(f"no workers were left for '{plan.program.name}' (no_workers_timeout): {error}{hung}")
    if not connected:
        return ClusterLost(f"the cluster was lost while '{plan.program.name}' ran: the connection to its scheduler broke")
    if isinstance(error, (CancelledError, OSError)):
        return ClusterLost(f"the cluster was lost while '{plan.program.name}' ran: {error}")
    return TaskFailed(f"a task of '{plan.program.name}' failed outside of its own code: {type(error).__name__}: {shorten_text(str(error))}")


def original_cause(error: BaseException) -> BaseException:
    """Return what ``raise … from`` should name: the original exception of a failed task, else the report itself."""
    return error.__cause__ if isinstance(error, BlockFailure) and error.__cause__ is not None else error


def _killed_message(error: KilledWorker, plan: Plan[Any], graph: Graph, worker_memory: int) -> str:
    key, leaves = cast(Key, error.task), list(graph.leaves)
    task = f"task {leaves.index(key) + 1}" if key in leaves else "joining the results"
    return (
        f"{task} of '{plan.program.name}' lost its worker {error.allowed_failures + 1} times "
        f"(last: {error.last_worker.address}); {memory_plan(plan, worker_memory)}"
    )


def memory_plan(plan: Plan[Any], worker_memory: int) -> str:
    """Return what a message about dead workers should say of memory."""
    return (
        f"the usual cause is memory: planned at most {bytes_text(plan.memory_bound)} a step, worker memory {bytes_text(worker_memory)}; "
        "the workers' logs say more"
    )

"""Executors of plans. This module runs them in this process, `gramplane.cluster.workers` on workers. Both combine results in the same tree,
so the bits are equal.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from .config import Limits, machine_memory, own_bytes, peak_bytes, reset_peak
from .errors import BlockFailure, MemoryBoundExceeded, bytes_text
from .events import Sink, ignore_event
from .program import Done, Plan, fold_plan

SECONDS_PER_EVENT = 1.0  # between two events that tell how far a pass is


class Executor:
    """Runs plans; this base class runs them in this process.

    ``reserved``: memory in bytes that every worker needs for other purposes, such as a cache of blocks. The caller sets ``reserved``, and
    :meth:`check` takes it into account.
    """

    kind: str = "sync"

    def __init__(self, *, worker_memory: int | None = None, limits: Limits | None = None, events: Sink | None = None) -> None:
        self.reserved = 0
        self._base = 0
        self._worker_memory = worker_memory
        self._limits = limits or Limits()
        self._emit: Sink = events or ignore_event

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def is_heard(self) -> bool:
        """Whether the events of this executor have a listener."""
        return self._emit is not ignore_event

    @property
    def n_workers(self) -> int:
        """Current number of workers."""
        return 1

    @property
    def worker_memory(self) -> int:
        """Memory of the smallest worker in bytes."""
        return self._worker_memory or machine_memory()

    @property
    def task_memory(self) -> int:
        """Memory in bytes that one step may use on the smallest worker."""
        return max(0, self.worker_memory - self.reserved)

    @property
    def threads(self) -> int:
        """Number of concurrent tasks in a worker process."""
        return 1

    @property
    def base_memory(self) -> int:
        """Memory in bytes of an idle worker process, as measured by :meth:`measure`."""
        return self._base

    def measure(self, held: Callable[[], int]) -> None:
        """Measure the memory of idle worker processes, without the ``held()`` bytes of caches."""
        self._base = own_bytes(held)

    def planned_peak(self, step: int) -> int:
        """Return the peak memory in bytes of a worker process: idle memory, reserved memory, and for each thread one step of ``step``
        bytes.
        """
        return self.base_memory + self.reserved + self.threads * step

    def check(self, plan: Plan[Any]) -> None:
        """Compare the memory bound of a plan with the memory of workers. Raises MemoryBoundExceeded with both numbers and a remedy."""
        needed, available = plan.memory_bound, self.task_memory
        if needed > available:
            room = f"a worker has only {bytes_text(available)} for a step ({self._memory_text()})"
            sizes = f"needs up to {bytes_text(needed)} a step, but {room}"
            advice = "give workers more memory (--worker-memory) or fewer threads, or use smaller blocks (ingest --budget)"
            raise MemoryBoundExceeded(f"plan '{plan.program.name}' {sizes}; {advice}", needed, available)

    def run(self, plan: Plan[Any]) -> Any:
        """Run a plan and return its finalized result.

        Raises MemoryBoundExceeded before anything runs; TaskFailed, caused by the exception of a chunk or combine function; and on a
        cluster ClusterLost.
        """
        self.check(plan)
        if not self.is_heard:  # what nobody hears is not put together
            return plan.program.finalize(self._compute(plan).value)
        self._emit({"event": "plan", **plan.describe(), "planned_peak": self.planned_peak(plan.memory_bound)})
        self._emit({"event": "start", "program": plan.program.name, "n_tasks": plan.n_tasks})
        began = time.perf_counter()
        try:
            done = self._compute(plan)
        except BaseException as error:
            self._emit({"event": "finish", **_outcome_fields(plan, began), "error": f"{type(error).__name__}: {error}"})
            raise
        self._emit({"event": "finish", **_outcome_fields(plan, began), **_summary_fields(done)})
        return plan.program.finalize(done.value)

    def run_on_workers(self, function: Callable[..., Any], *args: object) -> None:
        """Call ``function(*args)`` in every worker process, including workers that join later (here: in this process).

        Another call with the same function replaces the earlier arguments.
        """
        function(*args)

    def peak_memory(self, *, reset: bool = False) -> dict[str, int]:
        """Return the peak resident memory of every worker process in bytes, since its start or the last ``reset``."""
        peaks = {"driver": peak_bytes()}
        if reset:
            reset_peak()
        return peaks

    def close(self) -> None:
        """Release all resources; the executor cannot run plans afterwards."""

    def _compute(self, plan: Plan[Any]) -> Done:
        try:
            return fold_plan(plan, self._limits, self._tasks_told(plan))
        except BlockFailure as failure:
            raise failure.as_task_failed(plan.program.name) from failure.__cause__

    def _tasks_told(self, plan: Plan[Any]) -> Callable[[], None]:
        """Return a function to call after every step of the plan; it counts the calls and regularly emits their number."""
        done, at = 0, time.monotonic() + SECONDS_PER_EVENT

        def count() -> None:
            nonlocal done, at
            done += 1
            if time.monotonic() > at:
                at = time.monotonic() + SECONDS_PER_EVENT
                self._emit({"event": "tasks", "program": plan.program.name, "done": min(done, plan.n_tasks), "n_tasks": plan.n_tasks})

        return count

    def _memory_text(self) -> str:
        text = f"worker memory {bytes_text(self.worker_memory)}"
        return f"{text}, of which {bytes_text(self.reserved)} are reserved" if self.reserved else text


def _outcome_fields(plan: Plan[Any], began: float) -> dict[str, Any]:
    return {"program": plan.program.name, "n_tasks": plan.n_tasks, "n_combines": plan.n_combines, "seconds": time.perf_counter() - began}


def _summary_fields(done: Done) -> dict[str, Any]:
    reports = done.reports
    seconds = [report.seconds for report in reports]
    times = {"task_seconds_max": max(seconds), "task_seconds_median": statistics.median(seconds)}
    workers = {"workers_used": len({report.worker for report in reports}), "peak_memory": max(report.peak for report in reports) or None}
    return {"retries": sum(report.attempts - 1 for report in reports), **times, **workers}

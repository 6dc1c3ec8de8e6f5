"""The watchdog of a run. It detects failures that no future reports: missing workers, silence, stalls and full disks."""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..config import Limits
from ..errors import ClusterLost, Stalled, WorkerDiskFull, bytes_text
from ..events import Sink

if TYPE_CHECKING:
    from distributed import Worker

    from .link import Link

T = TypeVar("T")

SILENCE_SECONDS = 30.0
"""Seconds without an answer after which a scheduler counts as lost; Dask's own limit for a silent connection."""

STANDSTILL_SECONDS = 30.0
"""Seconds without a finished task after which the stacks of all threads are logged."""

logger = logging.getLogger(__name__)


def thread_stacks() -> str:
    """Return the current stacks of all threads of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    stacks = {names.get(number, str(number)): traceback.format_stack(frame) for number, frame in sys._current_frames().items()}  # pyright: ignore[reportPrivateUsage] (its documented name)
    return "\n".join(f"thread {name}:\n{''.join(stack)}" for name, stack in stacks.items())


def free_disk(dask_worker: Worker) -> int:
    """Return the free bytes on the disk with the worker's files."""
    return shutil.disk_usage(dask_worker.local_directory).free


def waiting_event(scheduler: str, limits: Limits) -> dict[str, str]:
    """Return the event of a run that waits for workers."""
    patience = f"at most {limits.no_workers_timeout:g} s (no_workers_timeout)"
    return {"event": "waiting", "message": f"waiting for workers: scheduler {scheduler} has none; {patience}"}


class Stranded(Exception):
    """Tasks wait for workers that will not return; the message gives the reason."""


class Watchdog:
    """Checks the cluster if no task has finished for a while. ``keys``: tasks with a preferred worker."""

    def __init__(self, link: Link, limits: Limits, keys: Sequence[Any], emit: Sink) -> None:
        self._link, self._limits, self._keys, self._emit = link, limits, keys, emit
        self._stranded = 0
        self._is_waiting = False
        self.progressed()

    def progressed(self) -> None:
        """Record that a task finished."""
        self._progress = self._answer = self._staffed = time.monotonic()
        self._is_logged = False

    def check(self) -> None:
        """Check the cluster once.

        Raises ClusterLost if for too long the scheduler has not answered or there have been no workers; WorkerDiskFull if workers are
        paused by a full disk; Stranded if the plan must be submitted again; Stalled if no task finishes for too long and none of these
        causes applies.
        """
        # Fetching a result goes on trying for half a minute after that.
        if not self._link.connected:
            raise ClusterLost(f"the connection to scheduler {self._link.address} was lost")
        looked = self._answered(self._link.look)
        if looked is None:
            return
        workers, silent = looked
        # What a hung worker holds or was to compute is needed again, and others may wait for it to send something: the whole plan is
        # submitted anew, so that nothing of it is left to wait for.
        if silent:
            raise Stranded(f"lost worker {silent[-1]}, which stopped responding")
        self._check_stranded(workers)
        self._check_staffed(workers)
        idle = time.monotonic() - self._progress
        if workers and idle >= STANDSTILL_SECONDS and not self._is_logged:
            self._log_stacks(idle)
        if idle >= self._limits.full_disk_timeout and any(worker["status"] == "paused" for worker in workers.values()):
            self._check_disks(idle)
        if idle >= self._limits.stall_timeout:
            self._check_disks(idle)
            limit = f"stall_timeout={self._limits.stall_timeout:g} s"
            raise Stalled(f"no task finished for {idle:.0f} s ({limit}); {_describe_workers(workers)}")

    def _answered(self, question: Callable[[], T]) -> T | None:
        try:
            answer = question()
        except (OSError, TimeoutError) as error:
            silent = time.monotonic() - self._answer
            if silent > SILENCE_SECONDS:
                raise ClusterLost(f"scheduler {self._link.address} gave no answer for {silent:.0f} s") from error
            return None
        self._answer = time.monotonic()
        return answer

    def _check_stranded(self, workers: Mapping[str, Any]) -> None:
        # When all workers are gone at once, the scheduler keeps tasks with a preferred worker waiting for its return, although they may
        # run anywhere (distributed 2026.8, bulk_schedule_unrunnable_after_adding_worker). Twice, because new workers may be just joining.
        is_running = any(worker["status"] == "running" for worker in workers.values())
        is_waiting = is_running and self._answered(lambda: self._link.has_stranded(self._keys))
        self._stranded = self._stranded + 1 if is_waiting else 0
        if self._stranded > 1:
            raise Stranded("lost all its workers")

    def _check_staffed(self, workers: Mapping[str, Any]) -> None:
        now = time.monotonic()
        if workers:
            self._staffed, self._is_waiting = now, False
        elif not self._is_waiting:
            self._is_waiting = True
            self._emit(waiting_event(self._link.address, self._limits))
        elif now - self._staffed > self._limits.no_workers_timeout:
            waited = now - self._staffed
            raise ClusterLost(f"scheduler {self._link.address} has had no workers for {waited:.0f} s (no_workers_timeout){self._link.hung}")

    def _log_stacks(self, idle: float) -> None:
        self._is_logged = True
        stacks = {"this process": thread_stacks(), **self._link.ask(thread_stacks)}
        told = "\n".join(f"{process}: {text}" for process, text in stacks.items())
        logger.warning("no task finished for %.0f s; the stacks of all threads follow\n%s", idle, told)

    def _check_disks(self, idle: float) -> None:
        answers, limit = self._link.ask(free_disk), self._limits.free_disk
        full = {worker: free for worker, free in answers.items() if isinstance(free, int) and free < limit}
        if full:
            listed = ", ".join(f"{worker} ({bytes_text(free)} free)" for worker, free in full.items())
            advice = f"free at least {bytes_text(limit)}, or set Dask's temporary-directory or TMPDIR to another disk"
            raise WorkerDiskFull(f"no task finished for {idle:.0f} s and the disk of Dask's temporary files is full on {listed}; {advice}")


def _describe_workers(workers: Mapping[str, Any]) -> str:
    now = time.time()
    words = [f"{worker}: {fact['status']}, last heard {max(0.0, now - fact['last_seen']):.0f} s ago" for worker, fact in workers.items()]
    return "workers: " + ("; ".join(words) or "none")

"""Checks before the first task: all workers have the same software, arithmetic and data as the driver, and enough memory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..arithmetic import Arithmetic, arithmetic
from ..config import machine_memory, resident_bytes
from ..errors import PreflightFailed, VersionMismatch
from ..versions import find_conflict, list_differences, software_versions

if TYPE_CHECKING:
    from distributed import Worker

_IDLE_AT_MOST = 512 << 20

TERMINATE_SHARE = 0.95
"""Share of the worker's memory limit above which Dask kills the worker."""


@dataclass(frozen=True)
class WorkerFacts:
    """Facts that a worker reports. ``pause``: share of its memory limit above which the worker accepts no tasks."""

    versions: dict[str, str]
    memory_limit: int
    threads: int
    resident: int
    pause: float
    arithmetic: Arithmetic = field(default_factory=dict)


def worker_facts(dask_worker: Worker) -> WorkerFacts:
    """Return the facts of the worker that runs this function."""
    manager = dask_worker.memory_manager
    # Dask does not see limits of Slurm and systemd.
    limit, pause = min(manager.memory_limit or math.inf, machine_memory()), manager.memory_pause_fraction or TERMINATE_SHARE
    # Asked before what the process computes with: that loads SciPy's BLAS.
    resident = resident_bytes()
    threads, share = dask_worker.state.nthreads, min(float(pause), TERMINATE_SHARE)
    return WorkerFacts(software_versions(), int(limit), threads, resident, share, arithmetic())


@dataclass(frozen=True)
class Capacity:
    """Smallest memory limit and largest number of threads of the workers, and the memory in bytes of an idle worker process.

    ``share``: share of its memory that a worker may use. Dask pauses a worker above this share, and the memory of cached data never
    shrinks.
    """

    memory: int
    threads: int
    idle: int
    share: float


def weakest_capacity(found: Mapping[str, WorkerFacts | BaseException]) -> Capacity:
    """Return the capacity of the weakest worker, which bounds every task."""
    facts = [fact for fact in found.values() if isinstance(fact, WorkerFacts)]
    memory, threads = min(fact.memory_limit for fact in facts), max(fact.threads for fact in facts)
    # A worker that served an earlier run still holds cached blocks; those are not what an idle process takes.
    idle = min(max(fact.resident for fact in facts), _IDLE_AT_MOST)
    return Capacity(memory, threads, idle, share=min(fact.pause for fact in facts))


def _check_version(who: str, ours: dict[str, str], theirs: dict[str, str] | BaseException) -> str | None:
    if isinstance(theirs, BaseException):
        raise VersionMismatch(f"{who} cannot run gramplane {ours['gramplane']}, the driver's version: {theirs!r}") from theirs
    if clash := find_conflict(ours, theirs):
        raise VersionMismatch(f"{who} runs {clash}; install the same on both")
    other = ", ".join(list_differences(ours, theirs))
    return f"{who} has other versions (there/here): {other}; results may differ in the last bits" if other else None


def check_versions(scheduler: object, workers: Mapping[str, WorkerFacts | BaseException]) -> list[str]:
    """Check that all workers answered and have compatible software. Returns the differences that need a warning.

    The scheduler must be able to import the functions that pass through it. If the scheduler does not answer, its versions are not checked.
    """
    ours = software_versions()
    warnings = []
    if isinstance(scheduler, (dict, ImportError, AttributeError)):
        warnings.append(_check_version("the scheduler", ours, scheduler))
    for worker, fact in workers.items():
        theirs = fact if isinstance(fact, BaseException) else fact.versions
        warnings.append(_check_version(f"worker {worker}", ours, theirs))
    return [warning for warning in warnings if warning]


def check_agreement(expected: object, found: Mapping[str, Any]) -> None:
    """Check that every worker's result equals the driver's. Raises PreflightFailed with both results and the worker."""
    for worker, value in found.items():
        if isinstance(value, BaseException):
            raise PreflightFailed(f"worker {worker} failed the check before the run: {value!r}") from value
        if value != expected:
            raise PreflightFailed(
                f"worker {worker} found {value!r}, the driver found {expected!r}: their data differ; give a path that all workers can read"
            )

"""Checks before the first task: every worker runs the same software, has memory, and sees the same data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil

from .errors import PreflightFailed, VersionMismatch
from .process import resident_bytes
from .versions import conflict, differences, versions

if TYPE_CHECKING:
    from distributed import Worker

_IDLE_AT_MOST = 512 << 20


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself.

    Attributes
    ----------
    versions
        Of the software it runs.
    memory_limit
        Bytes it may use.
    threads
        Tasks at a time.
    resident
        Bytes it uses now.
    """

    versions: dict[str, str]
    memory_limit: int
    threads: int
    resident: int


def worker_facts(dask_worker: Worker) -> WorkerFacts:
    """Describe the worker this runs on."""
    limit = dask_worker.memory_manager.memory_limit or psutil.virtual_memory().total
    return WorkerFacts(versions(), int(limit), dask_worker.state.nthreads, resident_bytes())


@dataclass(frozen=True)
class Capacity:
    """Memory and threads of the weakest worker.

    Attributes
    ----------
    memory
        Smallest memory limit, bytes.
    threads
        Largest number of tasks at a time.
    idle
        Bytes the process itself takes.
    """

    memory: int
    threads: int
    idle: int


def capacity(facts: Mapping[str, WorkerFacts]) -> Capacity:
    """Return what a task can count on at the weakest worker."""
    return Capacity(
        memory=min(fact.memory_limit for fact in facts.values()),
        threads=max(fact.threads for fact in facts.values()),
        # A worker that served an earlier run still holds cached blocks; those are not what an idle process takes.
        idle=min(max(fact.resident for fact in facts.values()), _IDLE_AT_MOST),
    )


def check_versions(found: Mapping[str, WorkerFacts | BaseException]) -> tuple[dict[str, WorkerFacts], list[str]]:
    """Refuse workers with other software; return the facts and the differences worth a warning.

    Raises
    ------
    VersionMismatch
        Naming the worker and both versions.
    """
    ours = versions()
    facts: dict[str, WorkerFacts] = {}
    warnings = []
    for worker, fact in found.items():
        if isinstance(fact, BaseException):
            raise VersionMismatch(f"worker {worker} cannot run gramplane {ours['gramplane']} as the driver does: {fact!r}") from fact
        if clash := conflict(ours, fact.versions):
            raise VersionMismatch(f"worker {worker} runs {clash}; install the same on both")
        facts[worker] = fact
        if other := differences(ours, fact.versions):
            warnings.append(f"worker {worker} has other versions (worker/driver): {', '.join(other)}; results may differ in the last bits")
    return facts, warnings


def check_agreement(expected: Any, found: Mapping[str, Any]) -> None:
    """Compare what every worker found with what the driver found.

    Raises
    ------
    PreflightFailed
        Naming the worker, what it found and what the driver found.
    """
    for worker, value in found.items():
        if isinstance(value, BaseException):
            raise PreflightFailed(f"worker {worker} failed the check before the run: {value!r}") from value
        if value != expected:
            raise PreflightFailed(f"worker {worker} found {value!r}, the driver {expected!r}: they do not see the same data")

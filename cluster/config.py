"""Cluster configuration: the texts that describe a cluster, and the limits of a run."""

from __future__ import annotations

import functools
import math
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import psutil

from .errors import ClusterConfigError
from .security import TLSFiles, check_plaintext

Kind = Literal["sync", "local", "address", "scheduler-file", "factory"]

FORMS = "sync, local:N, local:NxT, tcp://HOST:PORT, tls://HOST:PORT, scheduler-file:PATH, factory:PACKAGE.MODULE:CALLABLE"
_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@dataclass(frozen=True)
class Limits:
    """Time and retry limits of a run; times in seconds."""

    retries: int = 3  # further attempts of a task whose storage failed (an ``OSError`` that can pass); nothing else is tried again
    retry_wait: float = 0.1  # before the first further attempt; doubled each time
    allowed_failures: int = 10  # worker deaths a task survives (clusters started here; elsewhere the scheduler's own setting holds)
    connect_timeout: float = 10.0  # for the first answer of a scheduler elsewhere
    no_workers_timeout: float = 300.0  # without any worker, after which the cluster counts as lost
    # Without a sign of life, after which a worker is left out; longer than any call that keeps Python from running other threads.
    silent_worker_timeout: float = 60.0
    stall_timeout: float = 300.0  # without a finished task, after which the run is given up
    full_disk_timeout: float = 30.0  # without a finished task, after which paused workers with a full disk end the run
    free_disk: int = 64 << 20  # bytes free below which a disk counts as full

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Limits:
        """Return the limits set by environment variables such as ``GRAMPLANE_NO_WORKERS_TIMEOUT=20``, one per attribute."""
        source = os.environ if environment is None else environment
        variables = {limit.name: f"GRAMPLANE_{limit.name.upper()}" for limit in fields(cls)}
        return cls(**{name: _read_limit(name, variable, source[variable]) for name, variable in variables.items() if variable in source})


_LOCAL_SHARE = 0.9
"""Share of this computer's memory for its local workers; the driver keeps the rest."""


@dataclass(frozen=True)
class ClusterConfig:
    """A parsed cluster text and its options."""

    kind: Kind = "sync"
    target: str = ""  # address, path or dotted name
    workers: int = 1  # processes of a local cluster
    threads: int = 1  # tasks at a time in each
    worker_memory: int | None = None  # limit of local workers, the most a plan may count on elsewhere; None: what there is
    tls: TLSFiles | None = None  # None: those of the environment or of Dask's configuration
    allow_plaintext: bool = False  # whether an unencrypted connection may leave this machine
    limits: Limits = field(default_factory=Limits)
    dashboard: bool = False  # whether to show the address of Dask's dashboard, and to start one on this computer
    report: str | None = None  # file for Dask's report on the tasks that ran since `report_since`
    report_since: float = 0.0

    def __str__(self) -> str:
        if self.kind == "sync":
            return "sync"
        if self.kind == "local":
            return f"local:{self.workers}" + (f"x{self.threads}" if self.threads > 1 else "")
        return self.target if self.kind == "address" else f"{self.kind}:{self.target}"

    @property
    def memory_per_worker(self) -> int | None:
        """Memory limit of a worker process in bytes; ``None`` if only the workers know it."""
        if self.worker_memory is not None or self.kind != "local":
            return self.worker_memory
        return int(_LOCAL_SHARE * machine_memory() / self.workers)


def driver_bytes(value: str | int | None) -> int:
    """Return the driver's memory limit in bytes: ``value`` or, by default, half the memory of the computer or container."""
    return default_driver_memory() if value is None else parse_bytes(value)


def parse_bytes(value: int | str) -> int:
    """Return the bytes of ``268435456``, ``"256MiB"``, ``"1.5 GB"``; units without ``i`` are powers of 1000.

    >>> parse_bytes("256MiB")
    268435456
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?(?:e\d+)?)\s*([kmgt]?)(i?)b?\s*", str(value), re.IGNORECASE)
    number = float(match[1]) * (1024 if match[3] else 1000) ** _UNITS[match[2].lower()] if match else 0.0
    if not 1 <= number < math.inf:
        raise ClusterConfigError(f"{value!r} is not a number of bytes; give a positive number with an optional unit, such as '2GiB'")
    return int(number)


def _read_limit(name: str, variable: str, text: str) -> Any:
    form = {"free_disk": parse_bytes, "retries": int, "allowed_failures": int}.get(name, float)
    try:
        value = form(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        kinds: dict[object, str] = {parse_bytes: "a number of bytes", int: "a whole number, at least 0"}
        what = kinds.get(form, "a number of seconds, at least 0")
        raise ClusterConfigError(f"{variable}={text!r}: must be {what}")
    return value


def _refuse_text(text: str, rule: str) -> ClusterConfigError:
    shown = re.sub(r"(//[^/:@]*):[^/]*@", r"\1:***@", text)  # a password is not for logs
    return ClusterConfigError(f"cluster={shown!r}: {rule}; allowed forms: {FORMS}")


def _parse_local(text: str) -> ClusterConfig:
    match = re.fullmatch(r"local:(\d{1,5})(?:x(\d{1,5}))?", text)
    workers, threads = (int(match[1]), int(match[2] or 1)) if match else (0, 0)
    if workers < 1 or threads < 1:
        raise _refuse_text(text, "N and T must be positive whole numbers")
    return ClusterConfig(kind="local", workers=workers, threads=threads)


def _parse_address(text: str) -> ClusterConfig:
    try:
        parts = urlsplit(text)
        valid = bool(parts.hostname and parts.port) and not (parts.path.strip("/") or parts.query or parts.fragment or parts.username)
    except ValueError:
        valid = False
    if not valid:
        raise _refuse_text(text, "an address has the form SCHEME://HOST:PORT")
    return ClusterConfig(kind="address", target=text.rstrip("/"))


def _parse_scheduler_file(text: str) -> ClusterConfig:
    path = text.partition(":")[2]
    if not path:
        raise _refuse_text(text, "the path is missing")
    return ClusterConfig(kind="scheduler-file", target=str(Path(path).expanduser()))


def _parse_factory(text: str) -> ClusterConfig:
    target = text.partition(":")[2]
    module, _, name = target.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise _refuse_text(text, "a factory has the form factory:PACKAGE.MODULE:CALLABLE")
    return ClusterConfig(kind="factory", target=target)


_PARSERS: dict[str, Callable[[str], ClusterConfig]] = {
    "local:": _parse_local,
    "tcp://": _parse_address,
    "tls://": _parse_address,
    "scheduler-file:": _parse_scheduler_file,
    "factory:": _parse_factory,
}


def parse_cluster(
    text: str | None,
    *,
    allow_plaintext: bool = False,
    allow_code: bool = True,
    worker_memory: int | str | None = None,
    tls: TLSFiles | None = None,
    limits: Limits | None = None,
) -> ClusterConfig:
    """Parse a cluster text.

    Forms: ``sync`` (also ``None``; in this process), ``local:N`` (N worker processes on this computer), ``local:NxT`` (with T threads
    each), ``tcp://HOST:PORT``, ``tls://HOST:PORT``, ``scheduler-file:PATH``, or ``factory:PACKAGE.MODULE:CALLABLE``, a function without
    arguments that returns a Dask cluster or client.

    ``allow_plaintext``: allow an unencrypted connection to another computer; if it is false, such a connection raises PlaintextRefused.
    ``allow_code``: allow ``factory:`` to import and call code; pass False for texts from data files. ``worker_memory``: bytes, or a text
    with a unit. ``limits``: by default those of the environment. Raises ClusterConfigError with the value and the allowed forms.
    """
    name = text or "sync"
    parser = next((parser for prefix, parser in _PARSERS.items() if name.startswith(prefix)), None)
    if parser is None and name != "sync":
        raise _refuse_text(name, "unknown form")
    config = ClusterConfig() if parser is None else parser(name)
    if config.kind == "factory" and not allow_code:
        raise ClusterConfigError(f"cluster={text!r}: a factory runs code, which a file may not do; give the factory on the command line")
    if config.kind == "address":
        check_plaintext(config.target, allow_plaintext)
    memory = None if worker_memory is None else parse_bytes(worker_memory)
    files = tls.check() if tls else None
    return replace(config, worker_memory=memory, tls=files, allow_plaintext=allow_plaintext, limits=limits or Limits.from_environment())


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_ROOT = Path("/")
_GROUP_LIMITS = {"memory": ("memory", ("memory.limit_in_bytes",)), "": ("", ("memory.max", "memory.high"))}
"""Where control groups store memory limits: by the controller named in ``/proc/self/cgroup``, the folder below ``/sys/fs/cgroup`` and the
names of the files. Version 2 names no controller.
"""


@functools.cache
def machine_memory() -> int:
    """Return the memory of this computer in bytes, or the limit of an enclosing control group if that is smaller.

    Containers, Slurm and systemd limit memory by control groups. The smallest limit counts, among the process's own group and all enclosing
    ones.
    """
    return min([psutil.virtual_memory().total, *_control_group_limits()])


def _control_group_limits() -> Iterator[int]:
    with suppress(OSError):
        for line in (_ROOT / "proc/self/cgroup").read_text().splitlines():
            controllers, path = line.split(":", 2)[1:]
            for controller in _GROUP_LIMITS.keys() & controllers.split(","):
                below, files = _GROUP_LIMITS[controller]
                group = _ROOT / "sys/fs/cgroup" / below
                # Inside of a container the path may be the one outside; then what is mounted is the container's own group.
                for part in ("", *(part for part in path.split("/") if part not in {"", ".."})):
                    group /= part
                    yield from (int(limit) for file in files if (limit := _text_of(group / file)).isdigit())


def _text_of(file: Path) -> str:
    with suppress(OSError):
        return file.read_text().strip()
    return ""


def default_driver_memory() -> int:
    """Return the default memory limit of a driver: half the memory of the computer or container."""
    return machine_memory() // 2


def resident_bytes() -> int:
    return psutil.Process().memory_info().rss


def own_bytes(held: Callable[[], int]) -> int:
    """Return the resident memory of this process minus ``held()``, the bytes that caches take."""
    # Asked first: the question may load programs, which are the process's own.
    cached = held()
    return max(0, resident_bytes() - cached)


def peak_bytes() -> int:
    """Return the peak resident memory of this process, since its start or the last :func:`reset_peak`."""
    # getrusage would also count the process this one was forked from, so it is only the fallback.
    with suppress(OSError):
        for line in _STATUS.read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def reset_peak() -> bool:
    """Reset the peak that :func:`peak_bytes` returns. Return ``False`` where that is impossible: on systems other than Linux."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True

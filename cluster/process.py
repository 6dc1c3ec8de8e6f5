"""Memory of this process and this machine, as the operating system counts it."""

from __future__ import annotations

import functools
import resource
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where the limit of a container stands (version 2, version 1)."""


@functools.cache
def machine_memory() -> int:
    """Return the memory of this machine in bytes, or of the container around this process if that is less."""
    total = psutil.virtual_memory().total
    for path in _CGROUP_LIMITS:
        with suppress(OSError):
            if (text := path.read_text().strip()).isdigit():
                total = min(total, int(text))
    return total


def default_driver_memory() -> int:
    """Return the memory that a driver may hold where nothing else is asked for: half of that of the machine or its container."""
    return machine_memory() // 2


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return psutil.Process().memory_info().rss


def own_bytes(held: Callable[[], int]) -> int:
    """Return the resident memory of this process without the ``held()`` bytes that are kept only to save work."""
    # Asked first: the question may load programs, which are the process's own.
    cached = held()
    return max(0, resident_bytes() - cached)


def peak_bytes() -> int:
    """Return the largest resident memory of this process so far, or since :func:`reset_peak`."""
    # getrusage would also count the process this one was forked from, so it is only the fallback.
    with suppress(OSError):
        for line in _STATUS.read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10


def reset_peak() -> bool:
    """Forget the peak so far; ``False`` where the system cannot (anything but Linux)."""
    try:
        _CLEAR.write_text("5")
    except OSError:
        return False
    return True

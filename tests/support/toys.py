"""Small block programs whose functions worker processes can import: sums, failures by table, deaths, waits."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np

from gramplane.cluster import BlockProgram

_held: set[int] = set()


def program(chunk, combine=None, *, name="toy", task_bytes=1000, result_bytes=8, **kwargs) -> BlockProgram:
    return BlockProgram(
        name=name, chunk=chunk, combine=combine or add, task_bytes=lambda ref: task_bytes, result_bytes=result_bytes, **kwargs
    )


def add(parts):
    return sum(parts[1:], parts[0])


def join(parts):
    return [item for part in parts for item in part]


def nest(parts):
    return tuple(parts)


def listed_ones(ref, nbytes):
    return [np.ones(nbytes, np.uint8)]


def own(ref):
    return [ref]


def rough_sum(ref, seed, longest):
    """A vector whose sum depends on the order of addition, after a random wait."""
    time.sleep(random.random() * longest)
    return np.random.default_rng((seed, ref)).standard_normal(7) * 10.0 ** np.arange(7)


def process_id(ref):
    return os.getpid()


def slow(ref, seconds):
    time.sleep(seconds)
    return ref


def note(folder, ref) -> int:
    """Note one more attempt at ``ref`` and return how many there were; safe across processes."""
    path = Path(folder) / f"{ref}.attempts"
    with open(path, "ab") as file:
        file.write(b".")
    return path.stat().st_size


def attempts(folder) -> dict[str, int]:
    return {path.stem: path.stat().st_size for path in Path(folder).glob("*.attempts")}


class FlakyError(OSError):
    pass


class CustomError(ValueError):
    """Takes other arguments than it hands to its base class, and carries attributes."""

    def __init__(self, file, *, line):
        super().__init__(f"{file}:{line}: bad")
        self.file = file
        self.line = line


def flaky(ref, folder, table, kind=FlakyError):
    """Fail the first ``table[ref]`` attempts."""
    if note(folder, ref) <= table.get(ref, 0):
        raise kind(f"attempt at {ref}")
    return 1


def noted_slow(ref, folder, seconds):
    note(folder, ref)
    time.sleep(seconds)
    return 1


def custom_error(ref, with_lock):
    error = CustomError("train.svm", line=12 + ref)
    if with_lock:
        error.lock = threading.Lock()
    raise error


def deadly(ref, folder, table):
    """Kill the own process at the first ``table[ref]`` attempts."""
    if note(folder, ref) <= table.get(ref, 0):
        os.kill(os.getpid(), signal.SIGKILL)
    return 1


def cached(ref, folder):
    """Note a read of ``ref`` unless this process holds it already."""
    if ref not in _held:
        _held.add(ref)
        note(folder, ref)
    time.sleep(0.02)
    return 1


def allocate(ref, nbytes):
    return float(np.ones(nbytes // 8).sum())


def writeable(ref, array):
    return [bool(array.flags.writeable), array.flags.f_contiguous]


def bad_combine(parts):
    raise CustomError("merge", line=len(parts))

"""One step of a plan, wherever it runs: attempts, timing, failures that name their block; and the fold of a plan in this process."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .config import Limits
from .errors import BlockFailure
from .program import Plan
from .versions import own_version

if TYPE_CHECKING:
    from .arithmetic import Arithmetic

_PERMANENT = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_PERMANENT_CODES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG})


class TaskReport(NamedTuple):
    """What the chunk step of one reference took on a worker, all attempts together; ``peak`` bytes and arithmetic as found there."""

    ordinal: int
    worker: str
    seconds: float
    attempts: int
    peak: int = 0  # largest resident memory of the process so far; 0 when not looked at
    arithmetic: Arithmetic | None = None  # where it is not what the driver computes with


class Done(NamedTuple):
    """A partial result and the reports of the chunk steps behind it."""

    value: Any
    reports: tuple[TaskReport, ...]


@dataclass(frozen=True)
class Step:
    """What all tasks of a plan share: its program and arguments, retries and version of the driver."""

    name: str
    chunk: Callable[..., Any]
    combine: Callable[[Sequence[Any]], Any]
    broadcast: tuple[Any, ...]
    retries: int
    wait: float
    version: str
    arithmetic: str = ""  # fingerprint of the driver's; empty where all tasks run there

    @classmethod
    def of(cls, plan: Plan[Any], limits: Limits) -> Step:
        """Return the shared part of ``plan``."""
        program = plan.program
        return cls(program.name, program.chunk, program.combine, plan.broadcast, limits.retries, limits.retry_wait, own_version())


def is_transient(error: Exception) -> bool:
    """Tell whether trying again can help: storage and network errors, but not missing files, missing rights or a full disk."""
    return isinstance(error, OSError) and not isinstance(error, _PERMANENT) and error.errno not in _PERMANENT_CODES


def run_chunk(step: Step, ordinal: int, ref: object, worker: str) -> Done:
    """Run one chunk step, again if its storage failed; BlockFailure names the block, and its cause is what the chunk raised last."""
    began = time.perf_counter()
    for attempt in itertools.count(1):
        try:
            value = step.chunk(ref, *step.broadcast)
            break
        except Exception as error:
            if attempt > step.retries or not is_transient(error):
                raise BlockFailure(f"task {ordinal + 1}", repr(ref), attempt, worker) from error
        time.sleep(step.wait * 2 ** (attempt - 1))
    return Done(value, (TaskReport(ordinal, worker, time.perf_counter() - began, attempt),))


def run_combine(step: Step, parts: Sequence[Done], worker: str) -> Done:
    """Combine partial results in the order given; BlockFailure names the blocks by the range of their places."""
    reports = tuple(itertools.chain.from_iterable(part.reports for part in parts))
    try:
        return Done(step.combine([part.value for part in parts]), reports)
    except Exception as error:
        places = [report.ordinal for report in reports]
        joined = f"{min(places) + 1} to {max(places) + 1}"
        raise BlockFailure(f"joining the results of tasks {joined}", f"blocks {joined}", 1, worker) from error


def fold_plan(plan: Plan[Any], limits: Limits) -> Done:
    """Run a plan in this process: depth first, in the order of its tree, with at most ``split_every`` parts held per level."""
    step = Step.of(plan, limits)

    def node(level: int, index: int) -> Done:
        if level == 0:
            return run_chunk(step, index, plan.refs[index], "driver")
        lo, hi = plan.levels[level - 1][index]
        parts = [node(level - 1, child) for child in range(lo, hi)]
        return parts[0] if hi - lo == 1 else run_combine(step, parts, "driver")

    return node(len(plan.levels), 0)

"""Distributed computations described as data: a chunk step, a combine step, and the memory of each in bytes, known before anything runs."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

from .arithmetic import Arithmetic
from .config import Limits
from .errors import BlockFailure, bytes_text
from .versions import own_version

R = TypeVar("R")


def identity(value: R) -> R:
    return value


@dataclass(frozen=True)
class BlockProgram(Generic[R]):
    """A computation ``finalize(combine over blocks of chunk(block))``. Its name appears in task keys, events and errors.

    ``chunk(ref, *broadcast) -> R`` and ``combine(parts) -> R`` run on a worker. ``ref`` is an item of the plan's references: one block
    reference, or a tuple of them. ``combine`` is associative and called on two or more parts, in a fixed tree order. ``finalize`` is
    applied to the last ``R`` on the driver.

    ``task_bytes(ref)`` bounds the memory of one chunk step, and ``result_bytes`` the memory of one ``R``. ``combine_bytes`` bounds the
    memory of one combine step; set it if the bound is less than the default, the memory of fan-in + 1 results (as for programs that
    concatenate). ``patient``: a chunk step (such as a whole solve) may take any time; otherwise a run in which no task finishes for
    ``stall_timeout`` seconds is aborted.
    """

    name: str
    chunk: Callable[..., R]
    combine: Callable[[Sequence[R]], R]
    task_bytes: Callable[[Any], int]
    result_bytes: int
    finalize: Callable[[R], Any] = identity
    combine_bytes: int | None = None
    patient: bool = False


def combine_tree(n_tasks: int, split_every: int) -> list[list[tuple[int, int]]]:
    """Return the levels of the combine tree: each level lists the ranges ``(lo, hi)`` of items of the level below, each of which becomes
    one item.

    A range of one item is passed on unchanged. The tree, and therefore the bits of a sum, depends on the number of tasks alone.

    >>> combine_tree(5, 2)
    [[(0, 2), (2, 4), (4, 5)], [(0, 2), (2, 3)], [(0, 2)]]
    """
    levels = []
    while n_tasks > 1:
        levels.append([(lo, min(lo + split_every, n_tasks)) for lo in range(0, n_tasks, split_every)])
        n_tasks = len(levels[-1])
    return levels


@dataclass(frozen=True, eq=False)
class Plan(Generic[R]):
    """A program, its references and its small shared arguments; everything is known before anything runs.

    ``broadcast`` is sent with every task, so it must be small (about a megabyte). ``split_every``: fan-in of the combine tree.
    """

    program: BlockProgram[R]
    refs: tuple[Any, ...]
    broadcast: tuple[Any, ...]
    split_every: int

    @property
    def n_tasks(self) -> int:
        """Number of chunk steps."""
        return len(self.refs)

    @cached_property
    def levels(self) -> list[list[tuple[int, int]]]:
        """The combine tree; see :func:`combine_tree`."""
        return combine_tree(self.n_tasks, self.split_every)

    @property
    def n_combines(self) -> int:
        """Number of combine steps."""
        return sum(hi - lo > 1 for level in self.levels for lo, hi in level)

    @cached_property
    def task_weights(self) -> tuple[int, ...]:
        """Memory in bytes of each chunk step."""
        return tuple(int(self.program.task_bytes(ref)) for ref in self.refs)

    @cached_property
    def memory_bound(self) -> int:
        """Upper bound on the memory in bytes of any step: of the largest chunk step, and of a combine step with its inputs and its
        output.
        """
        fan_in = min(self.split_every, self.n_tasks)
        merging = self.program.combine_bytes or (fan_in + 1) * self.program.result_bytes if fan_in > 1 else 0
        return max(max(self.task_weights), merging)

    def describe(self) -> dict[str, Any]:
        """Return the numbers of steps and the memory bounds of the plan as a small record."""
        counts = {"n_tasks": self.n_tasks, "n_combines": self.n_combines, "split_every": self.split_every}
        return {"program": self.program.name, **counts, "memory_bound": self.memory_bound, "result_bytes": self.program.result_bytes}

    def __str__(self) -> str:
        return f"{self.program.name}: {self.n_tasks} tasks, {self.n_combines} combines, at most {bytes_text(self.memory_bound)} a step"


def plan(program: BlockProgram[R], refs: Sequence[Any], *broadcast: object, split_every: int = 8) -> Plan[R]:
    """Return the plan of a program over references (blocks, or tuples of blocks); ``broadcast`` are further arguments of every chunk
    step.
    """
    if not refs:
        raise ValueError(f"plan of '{program.name}': refs is empty, at least one block is needed")
    if split_every < 2:
        raise ValueError(f"plan of '{program.name}': split_every={split_every}, must be at least 2")
    return Plan(program, tuple(refs), broadcast, split_every)


_PERMANENT = (FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_PERMANENT_CODES = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENAMETOOLONG, errno.EFBIG})


class TaskReport(NamedTuple):
    """Cost of the chunk step of one reference, over all attempts. ``peak`` (bytes) and ``arithmetic`` describe the whole worker process."""

    ordinal: int
    worker: str
    seconds: float
    attempts: int
    peak: int = 0  # largest resident memory of the process so far; 0 when not looked at
    arithmetic: Arithmetic | None = None  # where it is not what the driver computes with


class Done(NamedTuple):
    """A partial result, and the reports of its chunk steps."""

    value: Any
    reports: tuple[TaskReport, ...]


@dataclass(frozen=True)
class Step:
    """Common data of all tasks of a plan: program, arguments, retries, and the driver's version."""

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
        program = plan.program
        return cls(program.name, program.chunk, program.combine, plan.broadcast, limits.retries, limits.retry_wait, own_version())


def is_transient(error: Exception) -> bool:
    """Return whether a retry may help. It may help for storage and network errors, but not for missing files, missing rights or a full
    disk.
    """
    return isinstance(error, OSError) and not isinstance(error, _PERMANENT) and error.errno not in _PERMANENT_CODES


def run_chunk(step: Step, ordinal: int, ref: object, worker: str) -> Done:
    """Run one chunk step, with retries after storage errors. Raises BlockFailure with the block, caused by the last exception."""
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
    """Combine partial results in the given order. Raises BlockFailure with the range of the blocks."""
    reports = tuple(itertools.chain.from_iterable(part.reports for part in parts))
    try:
        return Done(step.combine([part.value for part in parts]), reports)
    except Exception as error:
        places = [report.ordinal for report in reports]
        joined = f"{min(places) + 1} to {max(places) + 1}"
        raise BlockFailure(f"joining the results of tasks {joined}", f"blocks {joined}", 1, worker) from error


def fold_plan(plan: Plan[Any], limits: Limits, count: Callable[[], object] = tuple) -> Done:
    """Run a plan in this process: depth first, in tree order, with at most ``split_every`` partial results in memory per level.

    ``count`` is called after every task.
    """
    step = Step.of(plan, limits)

    def node(level: int, index: int) -> Done:
        if level == 0:
            done = run_chunk(step, index, plan.refs[index], "driver")
            count()
            return done
        lo, hi = plan.levels[level - 1][index]
        parts = [node(level - 1, child) for child in range(lo, hi)]
        return parts[0] if hi - lo == 1 else run_combine(step, parts, "driver")

    return node(len(plan.levels), 0)

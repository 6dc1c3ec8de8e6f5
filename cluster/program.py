"""Distributed quantities as data: a chunk step, a combine step, and the bytes each needs; planned before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from .errors import bytes_text

R = TypeVar("R")


def identity(value: R) -> R:
    """Return ``value``."""
    return value


@dataclass(frozen=True)
class BlockProgram(Generic[R]):
    """A quantity ``finalize(combine over blocks of chunk(block))``; the name is shown in task keys, events and errors.

    ``chunk(ref, *broadcast) -> R`` and ``combine(parts) -> R`` run on a worker. ``ref`` is whatever stands in the plan's references: one
    block reference, or a tuple of them. ``combine`` is associative and called on two or more parts, in a fixed tree order. ``task_bytes``
    bounds the memory of one chunk step from the reference alone, ``result_bytes`` one ``R``, and ``combine_bytes`` one combine step where
    it is less than fan-in + 1 results, as for programs that concatenate. ``finalize`` is applied to the last ``R`` on the driver.
    """

    name: str
    chunk: Callable[..., R]
    combine: Callable[[Sequence[R]], R]
    task_bytes: Callable[[Any], int]
    result_bytes: int
    finalize: Callable[[R], Any] = identity
    combine_bytes: int | None = None


def combine_tree(n_tasks: int, split_every: int) -> list[list[tuple[int, int]]]:
    """Return the levels of the combine tree: per level the ranges ``(lo, hi)`` of items of the level below that become one item.

    A range of one item is passed on as it is. The tree depends on the number of tasks alone, hence so do the bits of a sum.

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
    """A program, its references and its small shared arguments: everything known before anything runs.

    ``broadcast`` travels with every task, so it must be small (about a megabyte); ``split_every``: fan-in of the combine tree.
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
        """The combine tree, see :func:`combine_tree`."""
        return combine_tree(self.n_tasks, self.split_every)

    @property
    def n_combines(self) -> int:
        """Number of combine steps."""
        return sum(hi - lo > 1 for level in self.levels for lo, hi in level)

    @cached_property
    def task_weights(self) -> tuple[int, ...]:
        """Bytes of each chunk step."""
        return tuple(int(self.program.task_bytes(ref)) for ref in self.refs)

    @cached_property
    def memory_bound(self) -> int:
        """Upper bound in bytes of the memory of any one step: the largest chunk step, or a combine with its inputs and its output."""
        fan_in = min(self.split_every, self.n_tasks)
        merging = self.program.combine_bytes or (fan_in + 1) * self.program.result_bytes if fan_in > 1 else 0
        return max(max(self.task_weights), merging)

    def describe(self) -> dict[str, Any]:
        """Return the figures of the plan as a small record."""
        return {
            "program": self.program.name,
            "n_tasks": self.n_tasks,
            "n_combines": self.n_combines,
            "split_every": self.split_every,
            "memory_bound": self.memory_bound,
            "result_bytes": self.program.result_bytes,
        }

    def __str__(self) -> str:
        return f"{self.program.name}: {self.n_tasks} tasks, {self.n_combines} combines, at most {bytes_text(self.memory_bound)} a step"


def plan(program: BlockProgram[R], refs: Sequence[Any], *broadcast: object, split_every: int = 8) -> Plan[R]:
    """Plan a program over references (blocks, or tuples of blocks) with further arguments of every chunk step; nothing runs."""
    if not refs:
        raise ValueError(f"plan of '{program.name}': refs is empty, at least one block is needed")
    if split_every < 2:
        raise ValueError(f"plan of '{program.name}': split_every={split_every}, must be at least 2")
    return Plan(program, tuple(refs), broadcast, split_every)

"""What can go wrong with machines: a short tree, and what each leaf means for the command line's exit code."""

from __future__ import annotations

import re


class ClusterError(Exception):
    """Root of every error of this layer; its first argument is the message."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ClusterConfigError(ClusterError, ValueError):
    """A cluster was described wrongly: the message names the value and the allowed forms (exit code 2)."""


class PlaintextRefused(ClusterConfigError):
    """The connection would leave this machine without encryption (exit code 2)."""


class VersionMismatch(ClusterError):
    """A worker runs other software than the driver; both versions are named (exit code 2)."""


class PreflightFailed(ClusterError):
    """A worker cannot do what the run needs, such as opening the same store (exit code 2)."""


class ClusterLost(ClusterError):
    """The scheduler or all workers are gone; a checkpoint, if there is one, stays valid (exit code 4)."""


class ClusterUnreachable(ClusterLost):
    """No scheduler answered in time (exit code 4)."""


class WorkersKilled(ClusterLost):
    """A task lost its worker too often; the usual cause is memory (exit code 4)."""


class Stalled(ClusterLost):
    """No task finished for too long (exit code 4)."""


class WorkerDiskFull(ClusterError):
    """Workers stand still and the disk of their local directories is full (exit code 5)."""


class MemoryBoundExceeded(ClusterError):
    """A plan needs more memory than a worker has: bytes that one task may take, and those a worker can give it (exit code 5)."""

    def __init__(self, message: str, needed: int, available: int) -> None:
        super().__init__(message, needed, available)
        self.needed, self.available = needed, available


class TaskFailed(ClusterError):
    """One task raised; ``__cause__`` is the original exception with its attributes (exit code: that of the cause).

    ``block``: ``repr`` of the reference the task was given, for programs: no part of the message; ``worker``: where it failed last.
    """

    def __init__(self, message: str, block: str = "", attempts: int = 1, worker: str = "") -> None:
        super().__init__(message, block, attempts, worker)
        self.block, self.attempts, self.worker = block, attempts, worker


class BlockFailure(Exception):
    """How a failed task travels from worker to driver: which one, its block, how often tried, where; the original is ``__cause__``."""

    def __init__(self, task: str, block: str, attempts: int, worker: str) -> None:
        super().__init__(task, block, attempts, worker)
        self.task, self.block, self.attempts, self.worker = task, block, attempts, worker

    def as_task_failed(self, program: str) -> TaskFailed:
        """Return what the caller of a run sees."""
        cause = self.__cause__
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        message = f"{self.task} of '{program}' failed on {self.worker}{tries}: {type(cause).__name__}: {cause}"
        return TaskFailed(message, self.block, self.attempts, self.worker)


def shorten_text(text: str) -> str:
    """Return a text for messages, cut in the middle when it is long."""
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"


_REMEDY = re.compile(
    "[;:] (?=(?:add|allow|ask|choose|continue|did you mean|drop|fill|free|give|ingest|install|leave|lower|make|pass|put|raise|remove|"
    "repair|replace|run (?:again|it|the)|save|say|set|take|try|use|wait|write)\\b)|; (?=(?:call|keep|map|name|split|start)\\b)"
)


def split_remedy(message: str) -> tuple[str, str]:
    """Return what is wrong, and what to do about it: the clause after a semicolon or colon that begins with an imperative.

    Examples
    --------
    >>> split_remedy("stores/a holds another store; choose another path, or add --overwrite")
    ('stores/a holds another store', 'choose another path, or add --overwrite')
    >>> split_remedy("rows: 3; 4 were expected")
    ('rows: 3; 4 were expected', '')
    """
    what, *remedy = _REMEDY.split(message, maxsplit=1)
    return (message, "") if not remedy or "\n" in message else (what, remedy[0])


def bytes_text(nbytes: float, digits: int = 4) -> str:
    """Return ``1.5 GiB`` for people.

    >>> bytes_text(3 << 29)
    '1.5 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.{max(digits, len(f'{nbytes:.0f}'))}g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.{digits}g} TiB"

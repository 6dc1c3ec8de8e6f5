"""Errors of clusters, with the exit code of each on the command line."""

from __future__ import annotations

import re


class ClusterError(Exception):
    """Base of all errors of this layer; its first argument is the message."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class ClusterConfigError(ClusterError, ValueError):
    """A cluster text or option is invalid; the message names the value and the allowed forms (exit code 2)."""


class PlaintextRefused(ClusterConfigError):
    """A connection to another computer would be unencrypted (exit code 2)."""


class VersionMismatch(ClusterError):
    """A worker runs another version of the software than the driver; the message names both (exit code 2)."""


class PreflightFailed(ClusterError):
    """A worker failed a check before the run, such as opening the same store (exit code 2)."""


class ClusterLost(ClusterError):
    """The scheduler or all workers are gone; existing checkpoints remain valid (exit code 4)."""


class ClusterUnreachable(ClusterLost):
    """No scheduler answered in time (exit code 4)."""


class WorkersKilled(ClusterLost):
    """The workers that ran a task died too often; the usual cause is too little memory (exit code 4)."""


class Stalled(ClusterLost):
    """No task finished within the time limit (exit code 4)."""


class WorkerDiskFull(ClusterError):
    """Workers are paused because the disk with their local directories is full (exit code 5)."""


class MemoryBoundExceeded(ClusterError):
    """A plan needs more memory than a worker has. Attributes: bytes needed by a task, and bytes available (exit code 5)."""

    def __init__(self, message: str, needed: int, available: int) -> None:
        super().__init__(message, needed, available)
        self.needed, self.available = needed, available


class TaskFailed(ClusterError):
    """A task raised an exception, which is ``__cause__`` (exit code: that of the cause).

    ``block``: ``repr`` of the task's reference, for programs; not part of the message. ``worker``: the worker on which the task failed
    last.
    """

    def __init__(self, message: str, block: str = "", attempts: int = 1, worker: str = "") -> None:
        super().__init__(message, block, attempts, worker)
        self.block, self.attempts, self.worker = block, attempts, worker


class BlockFailure(Exception):
    """A failed task as sent from worker to driver: task, block, attempts, worker. The original exception is ``__cause__``."""

    def __init__(self, task: str, block: str, attempts: int, worker: str) -> None:
        super().__init__(task, block, attempts, worker)
        self.task, self.block, self.attempts, self.worker = task, block, attempts, worker

    def as_task_failed(self, program: str) -> TaskFailed:
        """Return the error to raise for the caller of a run."""
        cause = self.__cause__
        tries = f" after {self.attempts} attempts" if self.attempts > 1 else ""
        message = f"{self.task} of '{program}' failed on {self.worker}{tries}: {type(cause).__name__}: {cause}"
        return TaskFailed(message, self.block, self.attempts, self.worker)


def shorten_text(text: str) -> str:
    """Shorten a long text for messages by cutting its middle."""
    return text if len(text) <= 400 else f"{text[:200]} … {text[-200:]}"


_REMEDY = re.compile(
    "[;:] (?=(?:add|allow|ask|choose|continue|did you mean|drop|fill|free|give|ingest|install|leave|lower|make|pass|put|raise|remove|"
    "repair|replace|run (?:again|it|the)|save|say|set|take|try|use|wait|write)\\b)|; (?=(?:call|keep|map|name|split|start)\\b)"
)


def split_remedy(message: str) -> tuple[str, str]:
    """Split a message into the problem and the remedy: the clause after a semicolon or colon that begins with an imperative.

    Examples
    --------
    >>> split_remedy(
    ...     "stores/a holds another store; choose another path, or add --overwrite"
    ... )
    ('stores/a holds another store', 'choose another path, or add --overwrite')
    >>> split_remedy("rows: 3; 4 were expected")
    ('rows: 3; 4 were expected', '')
    """
    what, *remedy = _REMEDY.split(message, maxsplit=1)
    return (message, "") if not remedy or "\n" in message else (what, remedy[0])


def bytes_text(nbytes: float, digits: int = 4) -> str:
    """Return a size in readable units, such as ``1.5 GiB``.

    >>> bytes_text(3 << 29)
    '1.5 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.{max(digits, len(f'{nbytes:.0f}'))}g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.{digits}g} TiB"

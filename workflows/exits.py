"""Exit codes: the table from exceptions to the codes that the shell, cron and Airflow see."""

import errno
from enum import IntEnum


class Exit(IntEnum):
    """Exit code of a process."""

    DONE = 0
    BUG = 1
    USAGE = 2
    DATA = 3
    CLUSTER_LOST = 4
    OUT_OF_SPACE = 5
    DAMAGED = 6
    UNMET = 7
    HELD = 99
    INTERRUPTED = 130
    PIPE_CLOSED = 141
    TERMINATED = 143


MEANING: dict[Exit, str] = {
    Exit.DONE: "done, or was done already",
    Exit.BUG: "a bug of gramplane; run again with --debug and report it",
    Exit.USAGE: "usage or configuration; the message says what to change",
    Exit.DATA: "input data is invalid, or not what the method needs",
    Exit.CLUSTER_LOST: "cluster or object store lost or not reached; a valid checkpoint is left, run the same command again",
    Exit.OUT_OF_SPACE: "out of disk or memory; free some and run the same command again",
    Exit.DAMAGED: "a store is damaged: bytes differ from its manifest, or are gone",
    Exit.UNMET: "a score is beyond the bound of a check step: the model is not good enough",
    Exit.HELD: "another process holds this run or store (Airflow reads 99 as skipped)",
    Exit.INTERRUPTED: "interrupted by SIGINT; the checkpoint of the last finished round stands",
    Exit.PIPE_CLOSED: "the program that read the output ended before all of it was written",
    Exit.TERMINATED: "terminated by SIGTERM; the checkpoint of the last finished round stands",
}

EXIT_CODES: dict[str, Exit] = {
    "click.exceptions:ClickException": Exit.USAGE,
    "click.exceptions:Abort": Exit.INTERRUPTED,
    "builtins:KeyboardInterrupt": Exit.INTERRUPTED,
    "builtins:MemoryError": Exit.OUT_OF_SPACE,
    "builtins:OSError": Exit.USAGE,
    "builtins:ConnectionError": Exit.CLUSTER_LOST,
    "builtins:TimeoutError": Exit.CLUSTER_LOST,
    "gramplane.workflows.console:OutputClosed": Exit.PIPE_CLOSED,
    "gramplane.workflows.checking:ConfigError": Exit.USAGE,
    "gramplane.pipeline.runs.run:ConfigMismatch": Exit.USAGE,
    "gramplane.workflows.checking:CheckFailed": Exit.UNMET,
    "builtins:ValueError": Exit.USAGE,
    "gramplane.storage.errors:StorageError": Exit.USAGE,
    "gramplane.storage.errors:UrlError": Exit.USAGE,
    "gramplane.storage.errors:Unreachable": Exit.CLUSTER_LOST,
    "gramplane.storage.errors:SchemaError": Exit.DATA,
    "gramplane.storage.errors:OtherRun": Exit.USAGE,
    "gramplane.storage.errors:DataError": Exit.DATA,
    "gramplane.storage.errors:OutOfSpace": Exit.OUT_OF_SPACE,
    "gramplane.storage.errors:DigestMismatch": Exit.DAMAGED,
    "gramplane.storage.errors:MissingBlock": Exit.DAMAGED,
    "gramplane.storage.errors:RunLocked": Exit.HELD,
    "gramplane.cluster.errors:ClusterLost": Exit.CLUSTER_LOST,
    "gramplane.cluster.errors:MemoryBoundExceeded": Exit.OUT_OF_SPACE,
    "gramplane.cluster.errors:WorkerDiskFull": Exit.OUT_OF_SPACE,
    "gramplane.cluster.errors:ClusterConfigError": Exit.USAGE,
    "gramplane.cluster.errors:VersionMismatch": Exit.USAGE,
    "gramplane.cluster.errors:PreflightFailed": Exit.USAGE,
}
"""Exit code by class path. Names instead of classes avoid imports; the module of a raised exception is already loaded."""

_BY_NUMBER = {**dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM), Exit.OUT_OF_SPACE), errno.EIO: Exit.DAMAGED}
"""Exit codes of operating system errors that have the same code wherever they occur, by error number."""


def _own_code(error: BaseException) -> Exit | None:
    signum = getattr(error, "signum", None)
    if signum is not None:
        return Exit(128 + int(signum))
    if isinstance(error, OSError) and error.errno in _BY_NUMBER:
        return _BY_NUMBER[error.errno]
    for cls in type(error).__mro__:
        code = EXIT_CODES.get(f"{cls.__module__}:{cls.__qualname__}")
        if code is not None:
            return code
    return None


def exit_code(error: BaseException) -> Exit:
    """Return the exit code of the exception that ended a command.

    `EXIT_CODES` is searched for the class of the exception and its base classes, closest first, then in the same way for the exceptions
    that caused it. If no class is listed, the exception is a bug.
    """
    seen: BaseException | None = error
    while seen is not None:
        code = _own_code(seen)
        if code is not None:
            return code
        seen = seen.__cause__
    return Exit.BUG

"""A cluster of this machine, started here: a scheduler in this process, worker processes that are kept alive, strangers kept out."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Generator
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, cast

import dask
from distributed import Client, LocalCluster, Security
from distributed.utils import LoopRunner
from tornado.ioloop import IOLoop

from ...storage.temporary import temporary_folder
from ..config import ClusterConfig
from ..errors import ClusterLost, MemoryBoundExceeded, bytes_text
from ..events import Sink
from ..security import make_security
from .keepers import Keepers

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Read by BLAS libraries when they load, hence set before a worker process starts."""

_PROCESS_BYTES = 160 << 20
"""Bytes without which a worker process ends over its first imports; it takes 125 MiB before it has work."""

_CLOSE_TIMEOUT = 2.0
_HERE: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tls://", "silence_logs": logging.ERROR}


def open_local(config: ClusterConfig, emit: Sink, stack: contextlib.ExitStack) -> Client:
    """Return a client of a new cluster; ``stack`` ends all of it: client, workers, scheduler, and the folder with files and key."""
    _refuse_too_small(config)
    folder = stack.enter_context(temporary_folder(dask.config.get("temporary-directory", None)))
    security = make_security(folder / "tls")
    stack.enter_context(_restore_environment())
    loop = _start_deaf_loop(stack)
    settings = {"temporary-directory": str(folder), "distributed.nanny.pre-spawn-environ": _spawn_environment()}
    with _defer_signals():
        cluster = _start_scheduler(config, folder, loop, security)
        stack.callback(close_in_time, cluster)
        keepers = Keepers(config.workers, str(cluster.scheduler_address), _worker_options(config, folder, security), settings, loop)
        stack.callback(keepers.end)
    with _restore_environment():
        os.environ.update(dict.fromkeys(THREAD_LIMITS, "1"))
        keepers.start(config, emit)
    # Results come straight from their worker: those that pass through a scheduler are copied into one byte string there and back.
    client = Client(cluster, set_as_default=False, direct_to_workers=True)
    stack.callback(close_in_time, client)
    return client


def _refuse_too_small(config: ClusterConfig) -> None:
    memory = config.memory_per_worker
    if memory is not None and memory < _PROCESS_BYTES:
        sizes = f"each worker would have {bytes_text(memory)}, and its process alone needs {bytes_text(_PROCESS_BYTES)}"
        advice = "use fewer workers, or give them more (--worker-memory)"
        raise MemoryBoundExceeded(f"cluster '{config}': {sizes}; {advice}", _PROCESS_BYTES, memory)


def close_in_time(thing: Client | Any) -> None:
    """Close a client or cluster; a lost scheduler cannot say goodbye, and waiting for it must not hold up the end of the run."""
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        thing.close(timeout=_CLOSE_TIMEOUT)


def _start_scheduler(config: ClusterConfig, folder: Path, loop: IOLoop, security: Security) -> LocalCluster:
    try:
        # The scheduler, too, makes files there; by default under a fixed name in the common temporary directory.
        with dask.config.set({"temporary-directory": str(folder)}):
            workers: dict[str, Any] = {"n_workers": 0, "threads_per_worker": config.threads, "processes": True, "security": security}
            scheduler = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
            return LocalCluster(**workers, dashboard_address=cast(str, None), scheduler_kwargs=scheduler, loop=loop, **_HERE)
    except (RuntimeError, OSError, TimeoutError) as error:
        raise ClusterLost(f"cluster '{config}' did not start: {error}") from error


def _worker_options(config: ClusterConfig, folder: Path, security: Security) -> dict[str, Any]:
    environment = {"NUMBA_NUM_THREADS": "1", **dict.fromkeys(THREAD_LIMITS, "1")}
    limits = {"nthreads": config.threads, "memory_limit": config.memory_per_worker, "env": environment}
    return {**limits, "local_directory": str(folder), "security": security, "dashboard": False, "dashboard_address": None, **_HERE}


def _spawn_environment() -> dict[str, Any]:
    return {**dask.config.get("distributed.nanny.pre-spawn-environ"), **dict.fromkeys(THREAD_LIMITS, "1")}


@contextlib.contextmanager
def _restore_environment() -> Generator[None]:
    # Starting a worker, at the beginning or after a death, leaves its variables behind in this process.
    saved = {name: os.environ.get(name) for name in (*_spawn_environment(), "PYTHONHASHSEED")}
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start_deaf_loop(stack: contextlib.ExitStack) -> IOLoop:
    # Ctrl-C reaches the whole group of processes; only this one shall answer, and end the others. Processes inherit which signals the
    # thread that starts them blocks, from before their first import on, and that is a thread of this loop, for restarted workers too.
    runner = LoopRunner()
    # It would unblock the signal again in the thread that first needs it.
    resource_tracker.ensure_running()
    masked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        runner.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, masked)
    stack.callback(runner.stop)
    return cast(IOLoop, runner.loop)


@contextlib.contextmanager
def _defer_signals() -> Generator[None]:
    # Half a cluster cannot be closed in order, so a first signal waits until it is there; a second one does not.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    met: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        met.append(number)
        if len(met) > 1:
            restore()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in before.items():
            if callable(handler):
                signal.signal(number, handler)

    for number, handler in before.items():
        if callable(handler):
            signal.signal(number, defer)
    try:
        yield
    finally:
        restore()
        if len(met) == 1:
            signal.raise_signal(met[0])

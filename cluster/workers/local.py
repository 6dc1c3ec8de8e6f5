"""A cluster on this computer: a scheduler in this process, worker processes that are restarted if they die, and encryption."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Generator, Mapping
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType
from typing import Any, cast

import dask
import psutil
from distributed import Client, LocalCluster, Nanny, Security
from distributed.core import Status
from distributed.utils import LoopRunner
from tornado.ioloop import IOLoop

from ...storage.temporary import temporary_folder
from ..config import ClusterConfig
from ..errors import ClusterLost, MemoryBoundExceeded, bytes_text
from ..events import Sink
from ..security import make_security

THREAD_LIMITS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Environment variables that BLAS libraries read when they are loaded; they are set before a worker process starts."""

_PROCESS_BYTES = 160 << 20
"""Smallest memory in bytes of a worker process; with less memory, a process dies during its imports, which take 125 MiB."""

_CLOSE_TIMEOUT = 2.0
_HERE: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tls://", "silence_logs": logging.ERROR}

_POLL = 0.02
_PAUSE = 0.5
"""Seconds to wait before a worker is started again, after the loss of a worker that its nanny does not restart."""

_ATTEMPTS = 3
"""Number of starts that may fail with an error of the worker. Workers that were killed are restarted until the time limit."""

_START_AT_LEAST = 60.0
"""Smallest time limit in seconds for a first start. A slow start, for example while a busy computer loads libraries, is no failure."""

_END_TIMEOUT = 5.0


def open_local(config: ClusterConfig, emit: Sink, stack: contextlib.ExitStack) -> Client:
    """Return a client of a new cluster. Closing ``stack`` ends client, workers and scheduler, and removes their folder."""
    _refuse_too_small(config)
    folder = stack.enter_context(temporary_folder(dask.config.get("temporary-directory", None)))
    security = make_security()
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
        advice = "use fewer workers, or give each more memory (--worker-memory)"
        raise MemoryBoundExceeded(f"cluster '{config}': {sizes}; {advice}", _PROCESS_BYTES, memory)


def close_in_time(thing: Client | Any) -> None:
    """Close a client or cluster with a time limit, because a lost scheduler does not respond."""
    with contextlib.suppress(OSError, TimeoutError, RuntimeError):
        thing.close(timeout=_CLOSE_TIMEOUT)


def _start_scheduler(config: ClusterConfig, folder: Path, loop: IOLoop, security: Security) -> LocalCluster:
    try:
        # The scheduler, too, makes files there; by default under a fixed name in the common temporary directory.
        with dask.config.set({"temporary-directory": str(folder)}):
            workers: dict[str, Any] = {"n_workers": 0, "threads_per_worker": config.threads, "processes": True, "security": security}
            scheduler = {"dashboard": config.dashboard, "dashboard_address": "127.0.0.1:0"}
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


# Worker processes, kept: one that is lost is started again, in its first start as in the middle of a run.


class _Nanny(Nanny):
    """A nanny that records how its worker process ended."""

    exit_code: int | None = None

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.exit_code = exitcode
        super()._on_worker_exit_sync(exitcode)


class _Keeper:
    """Keeps one worker alive. Dask's nanny restarts a process that dies; if the nanny gives up, a new nanny replaces it.

    A nanny gives up if its process dies during its first start, fails during a restart, or receives the scheduler's order to leave.
    ``settings``: Dask settings that a nanny reads when it is created.
    """

    def __init__(self, scheduler: str, options: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self._scheduler, self._options, self._settings = scheduler, dict(options), dict(settings)
        self._nanny: _Nanny | None = None
        self._ended = False
        self.failure = ""
        self.lost_at: float | None = None

    @property
    def running(self) -> bool:
        return self._nanny is not None and self._nanny.status == Status.running and self._nanny.is_alive()

    async def keep(self) -> None:
        errors = 0
        while not self._ended:
            with dask.config.set(self._settings):
                nanny = self._nanny = _Nanny(self._scheduler, **self._options)
            try:
                await nanny
                if nanny.is_alive():
                    errors = 0
                    await nanny.finished()
            except Exception as error:
                errors += not _was_killed(nanny, error)
                # A worker that did not reach the scheduler in time may the next time; one that cannot load its modules never will.
                can_pass = _was_killed(nanny, error) or isinstance(_root_cause(error), OSError)
                if not can_pass or errors >= _ATTEMPTS:
                    cause, silent = _root_cause(error), f"a worker process ended by itself, with status {nanny.exit_code}"
                    self.failure = silent if _ended_without_a_word(error) else f"{type(cause).__name__}: {cause}"
                    return
            self.lost_at = self.lost_at or time.monotonic()
            await self._close(nanny)
            if not self._ended:
                await asyncio.sleep(_PAUSE)

    async def end(self) -> None:
        """Kill the worker and close its nanny.

        Tasks are pure, so killing loses nothing. A regular shutdown takes a second, and a worker may not notice it during a long task.
        """
        self._ended = True
        if self._nanny is None:
            return
        closing = asyncio.ensure_future(self._close(self._nanny))
        while not closing.done():
            # A process that is only just being started has no number yet.
            if pid := self._nanny.pid:
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(pid).kill()
            await asyncio.wait([closing], timeout=_POLL)

    async def _close(self, nanny: Nanny) -> None:
        # What a nanny that failed says at its end is of no use, and its process is gone.
        with contextlib.suppress(Exception):
            await nanny.close(timeout=_END_TIMEOUT)


def _was_killed(nanny: _Nanny, error: BaseException) -> bool:
    # A worker that told its error is ended by its nanny, with a signal, too.
    return _ended_without_a_word(error) and nanny.exit_code is not None and nanny.exit_code < 0


def _ended_without_a_word(error: BaseException) -> bool:
    return "failed to start worker process" in str(_root_cause(error))


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


class Keepers:
    """All workers of a cluster. Their processes are started from the thread of ``loop``."""

    def __init__(self, count: int, scheduler: str, options: Mapping[str, Any], settings: Mapping[str, Any], loop: IOLoop) -> None:
        self._keepers = [_Keeper(scheduler, options, settings) for _ in range(count)]
        self._loop = cast(Any, loop).asyncio_loop

    def start(self, config: ClusterConfig, emit: Sink) -> None:
        """Start all workers. Wait for the first worker as long as the limits allow, and for the others until they count as hanging."""
        for keeper in self._keepers:
            asyncio.run_coroutine_threadsafe(keeper.keep(), self._loop)
        began = time.monotonic()
        while (running := sum(keeper.running for keeper in self._keepers)) < len(self._keepers):
            waited = time.monotonic() - began
            failures = [keeper.failure for keeper in self._keepers if keeper.failure]
            if running and (running + len(failures) == len(self._keepers) or waited > config.limits.silent_worker_timeout):
                why = failures[0] if failures else f"the others did not start within {waited:.0f} s (silent_worker_timeout)"
                message = f"cluster '{config}' begins with {running} of {config.workers} workers: {why}"
                emit({"event": "warning", "message": message})
                return
            if len(failures) == len(self._keepers):
                hint = "a script that starts a local cluster needs `if __name__ == '__main__':`"
                raise ClusterLost(f"cluster '{config}' did not start: {failures[0]} ({hint})")
            lost, timeout = [k.lost_at for k in self._keepers if k.lost_at is not None], config.limits.no_workers_timeout
            if time.monotonic() > (min(lost) + timeout if lost else began + max(timeout, _START_AT_LEAST)):
                raise ClusterLost(f"cluster '{config}' did not start: no worker started within {waited:.0f} s (no_workers_timeout)")
            time.sleep(_POLL)

    def end(self) -> None:
        async def end() -> None:
            await asyncio.gather(*(keeper.end() for keeper in self._keepers))

        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(_END_TIMEOUT)

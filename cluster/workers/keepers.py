"""Worker processes of this machine, kept: one that is lost is started again, in its first start as in the middle of a run."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from typing import Any, cast

import dask
import psutil
from distributed import Nanny
from distributed.core import Status
from tornado.ioloop import IOLoop

from ..config import ClusterConfig
from ..errors import ClusterLost
from ..events import Sink

_POLL = 0.02
_PAUSE = 0.5
"""Seconds between the loss of a worker that its nanny does not replace and the next start."""

_ATTEMPTS = 3
"""Starts that may fail by an error of the worker itself; a worker that was killed is started again as long as there is time."""

_START_AT_LEAST = 60.0
"""Seconds that a first start may take where nothing was lost: processes that load libraries on a busy machine are no lost workers."""

_END_TIMEOUT = 5.0


class _Nanny(Nanny):
    """Remembers how its worker process ended."""

    exit_code: int | None = None

    def _on_worker_exit_sync(self, exitcode: int) -> None:
        self.exit_code = exitcode
        super()._on_worker_exit_sync(exitcode)


class _Keeper:
    """Keeps one worker: Dask's nanny restarts a process that dies; what the nanny itself does not survive, a new one follows.

    A nanny gives up on a process that dies in its first start, on one that fails while it starts again, and on one that the scheduler told
    to leave. ``settings``: of Dask, that nannies read where they are made.
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
        """Kill the worker and close its nanny. Tasks are pure, so nothing is lost by killing it, while a worker takes a second to say
        goodbye, and in the middle of a long task may not hear that it should.
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
    """All workers of a cluster; their processes are started from the thread of ``loop``."""

    def __init__(self, count: int, scheduler: str, options: Mapping[str, Any], settings: Mapping[str, Any], loop: IOLoop) -> None:
        self._keepers = [_Keeper(scheduler, options, settings) for _ in range(count)]
        self._loop = cast(Any, loop).asyncio_loop

    def start(self, config: ClusterConfig, emit: Sink) -> None:
        """Start all workers and wait: for the first as long as the limits allow, for further ones until they count as hung."""
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
                hint = "a script that opens one needs `if __name__ == '__main__':`"
                raise ClusterLost(f"cluster '{config}' did not start: {failures[0]} ({hint})")
            lost, timeout = [k.lost_at for k in self._keepers if k.lost_at is not None], config.limits.no_workers_timeout
            if time.monotonic() > (min(lost) + timeout if lost else began + max(timeout, _START_AT_LEAST)):
                raise ClusterLost(f"cluster '{config}' did not start: no worker within {waited:.0f} s (no_workers_timeout)")
            time.sleep(_POLL)

    def end(self) -> None:
        """End all workers."""

        async def end() -> None:
            await asyncio.gather(*(keeper.end() for keeper in self._keepers))

        with contextlib.suppress(TimeoutError, RuntimeError):
            asyncio.run_coroutine_threadsafe(end(), self._loop).result(_END_TIMEOUT)

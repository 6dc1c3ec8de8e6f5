"""Requests to a scheduler and its workers, each with a time limit. Workers that do not respond are excluded."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping, Sequence, Set
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

from distributed.comm import CommClosedError

from ..config import Limits
from ..errors import ClusterLost

if TYPE_CHECKING:
    from distributed import Client, WorkerPlugin

T = TypeVar("T")
ANSWER_SECONDS = 10.0
"""Time limit of a request in seconds."""

_POLL = 1.0


def is_connection_trouble(answer: object) -> bool:
    """Return whether an exception indicates a lost connection: the worker did not answer and may be gone."""
    # Dask tells of an address that nobody answers at with a plain OSError of a text alone.
    is_unreached = type(answer) is OSError and answer.errno is None
    return is_unreached or isinstance(answer, (CommClosedError, ConnectionError, TimeoutError))


class Link:
    """Sends requests through a client. ``left_out``: workers that were excluded because they did not respond."""

    def __init__(self, client: Client, limits: Limits | None = None) -> None:
        self.client = client
        self.left_out: list[str] = []
        self._listed: set[str] = set()
        self._limits = limits or Limits()
        self._silence = Silence(self._limits.silent_worker_timeout)

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        scheduler = self.client.scheduler
        return str(scheduler.address) if scheduler is not None else "(closed)"

    @property
    def hung(self) -> str:
        """The sentence about excluded workers, for messages about missing workers."""
        if not self.left_out:
            return ""
        limit = self._limits.silent_worker_timeout
        return f"; left out, without an answer for {limit:g} s (silent_worker_timeout): {', '.join(self.left_out)}"

    @property
    def connected(self) -> bool:
        """Whether the connection is open. A client that reconnects has lost its futures, so a run treats the scheduler as lost."""
        return self.client.scheduler is not None and self.client.status == "running"

    def look(self) -> tuple[Mapping[str, Any], list[str]]:
        """Return the scheduler's information on each worker (``status``, ``last_seen``, ``nthreads``, …), and the workers excluded by this
        call.

        Hanging workers are removed from the scheduler's list, so that their tasks go to others. The silence of a worker is measured between
        calls of this method, so it must be called regularly.
        """
        return self._wait(self._look, ANSWER_SECONDS)

    async def _look(self) -> tuple[Mapping[str, Any], list[str]]:
        workers = (await self._scheduler().identity(n_workers=-1))["workers"]
        silent = self._silence.of(workers)
        for worker in silent:
            # Whoever waits for an answer of it, in the scheduler, hears that the connection is closed.
            await self._scheduler().unregister(address=worker, stimulus_id=f"gramplane-silent-worker-{time.time()}")
            self.left_out.append(worker)
        self._drop_all_but(workers.keys() - silent)
        return workers, silent

    def _drop_all_but(self, workers: Set[str]) -> None:
        # Whoever waits here for an answer of a lost worker hears that the connection is closed: Dask goes on for half a minute to connect
        # to a port that nobody listens at.
        self._listed |= workers
        for lost in self._listed - workers:
            self.client.rpc.remove(lost)

    def has_stranded(self, keys: Sequence[Any]) -> bool:
        """Return whether one of the tasks has no worker to run on."""

        async def states() -> Mapping[Any, str]:
            return await self._scheduler().get_task_status(keys=list(keys))

        return "no-worker" in self._wait(states, ANSWER_SECONDS).values()

    def ask(self, function: Callable[..., Any], *args: object, timeout: float = ANSWER_SECONDS, one_alone: bool = False) -> dict[str, Any]:
        """Run ``function`` on every worker, or with ``one_alone`` on a single one. If the call fails on a worker, the answer of this worker
        is the exception.

        Each worker gets its own request, so a hanging worker does not delay the answers of others. A worker that hangs too long is
        excluded. A live worker that does not answer within ``timeout`` seconds gets a ``TimeoutError`` as its answer.
        """

        async def one(worker: str) -> object:
            return (await self.client.run(function, *args, workers=[worker], on_error="return"))[worker]

        async def run() -> dict[str, Any]:
            workers = sorted(await self._ncores())[: 1 if one_alone else None]
            requests = {worker: asyncio.ensure_future(one(worker)) for worker in workers}
            await self._patiently(requests.values(), timeout)
            return {worker: _task_answer(task, timeout) for worker, task in requests.items()}

        with self._answering():
            return self._wait(run, timeout + 2 * ANSWER_SECONDS)

    async def _patiently(self, tasks: Iterable[asyncio.Future[Any]], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        pending = set(tasks)
        while pending and (left := deadline - time.monotonic()) > 0:
            _, pending = await asyncio.wait(pending, timeout=min(_POLL, left))
            if pending:
                await asyncio.wait_for(self._look(), ANSWER_SECONDS)
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending, timeout=_POLL)

    def ask_scheduler(self, function: Callable[[], Any]) -> object:
        """Run ``function`` on the scheduler and return its result or its exception."""

        async def run() -> object:
            return await self.client.run_on_scheduler(function)

        try:
            return self._wait(run, ANSWER_SECONDS)
        except Exception as error:
            return error

    def register(self, plugin: WorkerPlugin, name: str) -> None:
        """Register a plugin on every worker, including workers that join later. Raises ClusterLost if workers keep being lost during the
        registration.
        """
        patience = self._limits.no_workers_timeout
        deadline = time.monotonic() + patience

        async def run() -> None:
            task = asyncio.ensure_future(cast(Awaitable[Any], self.client.register_plugin(plugin, name=name)))
            await self._patiently([task], patience)
            answer = _task_answer(task, patience)
            if isinstance(answer, BaseException):
                raise answer

        while True:
            try:
                return self._wait(run, patience + 2 * ANSWER_SECONDS)
            except OSError as error:
                if not is_connection_trouble(error):
                    raise
                # A worker that died in the middle of it is no longer asked the next time.
                if time.monotonic() > deadline or not self.connected:
                    raise ClusterLost(f"scheduler {self.address} could not set up its workers: {error}") from error
            time.sleep(_POLL)

    def forget(self, plugin: str, *, timeout: float = 2.0) -> None:
        """Remove the plugin with this name from the workers."""

        async def unregister() -> None:
            self._scheduler()
            await self.client.unregister_worker_plugin(plugin)

        self._wait(unregister, timeout)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every running worker."""
        with self._answering():
            return dict(self._wait(self._ncores, ANSWER_SECONDS))

    async def _ncores(self) -> dict[str, int]:
        threads = await self._scheduler().ncores(workers=None)
        self._drop_all_but(threads.keys())
        return threads

    @contextmanager
    def _answering(self) -> Generator[None]:
        try:
            yield
        except (OSError, TimeoutError) as error:
            raise ClusterLost(f"scheduler {self.address} does not answer") from error

    def _scheduler(self) -> Any:
        if not self.connected:
            raise ConnectionError(f"the connection to the scheduler is {self.client.status}")
        return self.client.scheduler

    def _wait(self, question: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        try:
            return cast(T, self.client.sync(question, callback_timeout=timeout))
        except (CancelledError, RuntimeError) as error:
            # A closed event loop or a call that was cut off: the connection went away under the question.
            raise ConnectionError(str(error)) from error


def _task_answer(task: asyncio.Future[Any], timeout: float) -> object:
    if not task.done() or task.cancelled():
        return TimeoutError(f"no answer within {timeout:g} s")
    error = task.exception()
    # A worker that left between two questions is missing in the answer to the second.
    return ConnectionError("it is gone") if isinstance(error, KeyError) else error or task.result()


_AT_LEAST = 2.0
"""Smallest time limit for silent workers, in seconds. Workers send a heartbeat once or twice a second; on large clusters, one every few
seconds.
"""
_STEP = 2.0
"""Largest number of seconds that count as silence between two calls, even if more time has passed."""


class Silence:
    """Counts how long the scheduler has not heard from each worker.

    At most two seconds count between two calls. After a long pause of this process (a stopped process, a sleeping laptop, a busy driver)
    the scheduler has not heard from anyone, which does not mean that workers hang. Clocks of different computers are never compared.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = max(limit, _AT_LEAST)
        self._clock = clock
        self._looked = clock()
        self._heard: dict[str, tuple[Any, float]] = {}

    def of(self, workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the workers that hang, by their ``last_seen`` in the scheduler's information."""
        now = self._clock()
        step, self._looked = min(now - self._looked, _STEP), now
        heard = {}
        for worker, facts in workers.items():
            last, silent = self._heard.get(worker, (None, 0.0))
            heard[worker] = (facts["last_seen"], silent + step if last == facts["last_seen"] else 0.0)
        self._heard = heard
        return [worker for worker, (_, silent) in heard.items() if silent >= self._limit]

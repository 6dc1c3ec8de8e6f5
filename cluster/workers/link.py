"""Questions to a scheduler and its workers, each with a time limit; a worker that gives no sign of life is left out."""

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
"""Seconds a question may take."""

_POLL = 1.0


def is_connection_trouble(answer: object) -> bool:
    """Tell whether what came instead of an answer speaks of the connection: the worker said nothing, and may be gone in a moment."""
    # Dask tells of an address that nobody answers at with a plain OSError of a text alone.
    is_unreached = type(answer) is OSError and answer.errno is None
    return is_unreached or isinstance(answer, (CommClosedError, ConnectionError, TimeoutError))


class Link:
    """A client, seen as someone to ask; ``left_out``: workers that were left out, as they gave no sign of life."""

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
        """What a message about missing workers should say of those that were left out."""
        if not self.left_out:
            return ""
        limit = self._limits.silent_worker_timeout
        return f"; left out, without a sign of life for {limit:g} s (silent_worker_timeout): {', '.join(self.left_out)}"

    @property
    def connected(self) -> bool:
        """Whether the connection stands; a client that is connecting again has forgotten its futures: for a run the scheduler is gone."""
        return self.client.scheduler is not None and self.client.status == "running"

    def look(self) -> tuple[Mapping[str, Any], list[str]]:
        """Return what the scheduler knows of each worker (``status``, ``last_seen``, ``nthreads``, …), and those left out by this look.

        Workers that hang are taken from the scheduler's list, so that their tasks go to others. What counts is silence from one look to
        the next, so look again and again.
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
        """Tell whether one of the tasks has no worker to run on."""

        async def states() -> Mapping[Any, str]:
            return await self._scheduler().get_task_status(keys=list(keys))

        return "no-worker" in self._wait(states, ANSWER_SECONDS).values()

    def ask(self, function: Callable[..., Any], *args: object, timeout: float = ANSWER_SECONDS, one_alone: bool = False) -> dict[str, Any]:
        """Run ``function`` on every worker, or on one alone; where it fails its exception stands in place of the answer.

        Each worker is asked by itself: one that hangs keeps the answers of the others from nobody, and is left out when it has given no
        sign of life for too long. One that lives and has not answered within ``timeout`` seconds has a ``TimeoutError`` for an answer.
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
        """Run ``function`` on the scheduler and return its answer or its exception."""

        async def run() -> object:
            return await self.client.run_on_scheduler(function)

        try:
            return self._wait(run, ANSWER_SECONDS)
        except Exception as error:
            return error

    def register(self, plugin: WorkerPlugin, name: str) -> None:
        """Set up a plugin on every worker, now and on each that joins later; ClusterLost if workers keep dying over it."""
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
        """Take back what was registered on the workers under a name."""

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
"""Seconds: workers say that they live once or twice a second, on large clusters every few seconds."""
_STEP = 2.0
"""Seconds that count from one look to the next, whatever the clock says."""


class Silence:
    """Counts how long the scheduler has heard nothing of each worker.

    Time counts only while somebody looks, at most two seconds for a look: after a process that was stopped with all its workers, a laptop
    that slept or a driver that was busy for minutes, the scheduler has heard nothing of anybody, and that says nothing of the workers. The
    clock of another machine is never compared with ours.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = max(limit, _AT_LEAST)
        self._clock = clock
        self._looked = clock()
        self._heard: dict[str, tuple[Any, float]] = {}

    def of(self, workers: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Return the workers that hang, by ``last_seen`` of what the scheduler knows of each."""
        now = self._clock()
        step, self._looked = min(now - self._looked, _STEP), now
        heard = {}
        for worker, facts in workers.items():
            last, silent = self._heard.get(worker, (None, 0.0))
            heard[worker] = (facts["last_seen"], silent + step if last == facts["last_seen"] else 0.0)
        self._heard = heard
        return [worker for worker, (_, silent) in heard.items() if silent >= self._limit]

"""Questions to a scheduler and its workers, each with a time limit."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from .errors import ClusterLost

if TYPE_CHECKING:
    from distributed import Client, WorkerPlugin

ANSWER = 10.0
"""Seconds a question may take."""

_REGISTRATIONS = 4


class Link:
    """A client, seen as someone to ask."""

    def __init__(self, client: Client) -> None:
        self.client = client

    @property
    def address(self) -> str:
        """Address of the scheduler."""
        scheduler = self.client.scheduler
        return str(scheduler.address) if scheduler is not None else "(closed)"

    @property
    def connected(self) -> bool:
        """Whether the connection stands; a client that is connecting again has forgotten its futures: for a run the scheduler is gone."""
        return self.client.scheduler is not None and self.client.status == "running"

    def workers(self) -> Mapping[str, Any]:
        """Return what the scheduler knows of each worker: ``status``, ``last_seen``, ``nthreads``, ``memory_limit``, …

        Raises
        ------
        OSError, TimeoutError
            No answer.
        """

        async def identity() -> Any:
            return await self._scheduler().identity(n_workers=-1)

        return self._wait(identity, ANSWER)["workers"]

    def has_stranded(self, keys: Sequence[Any]) -> bool:
        """Tell whether one of the tasks has no worker to run on.

        Raises
        ------
        OSError, TimeoutError
            No answer.
        """

        async def states() -> Any:
            return await self._scheduler().get_task_status(keys=list(keys))

        return "no-worker" in self._wait(states, ANSWER).values()

    def ask(self, function: Callable[..., Any], *args: Any, timeout: float = ANSWER) -> dict[str, Any]:
        """Run ``function`` on every worker; where it fails its exception stands in place of the answer.

        Raises
        ------
        ClusterLost
            The scheduler did not answer in time.
        """

        async def run() -> Any:
            return await self.client.run(function, *args, on_error="return")

        try:
            return self._wait(run, timeout)
        except (OSError, TimeoutError) as error:
            raise ClusterLost(f"scheduler {self.address} did not pass on a question to its workers within {timeout:g} s") from error

    def ask_scheduler(self, function: Callable[[], Any], *, timeout: float = ANSWER) -> Any:
        """Run ``function`` on the scheduler and return its answer or its exception."""

        async def run() -> Any:
            return await self.client.run_on_scheduler(function)

        try:
            return self._wait(run, timeout)
        except Exception as error:
            return error

    def register(self, plugin: WorkerPlugin, name: str) -> None:
        """Set up a plugin on every worker, now and on each that joins later.

        Raises
        ------
        ClusterLost
            Workers kept dying over it, or the scheduler is gone.
        """
        for attempt in range(_REGISTRATIONS):
            try:
                self.client.register_plugin(plugin, name=name)
                return
            except (OSError, TimeoutError) as error:
                # A worker that died in the middle of it is no longer asked the next time.
                if attempt + 1 == _REGISTRATIONS:
                    raise ClusterLost(f"scheduler {self.address} could not set up its workers: {error}") from error
                time.sleep(1.0)

    def forget(self, plugin: str, *, timeout: float = 2.0) -> None:
        """Take back what was registered on the workers under a name.

        Raises
        ------
        OSError, TimeoutError
            No answer: with the scheduler it is gone anyway.
        """

        async def unregister() -> None:
            self._scheduler()
            await self.client.unregister_worker_plugin(plugin)

        self._wait(unregister, timeout)

    def threads(self) -> dict[str, int]:
        """Return the number of threads of every running worker.

        Raises
        ------
        ClusterLost
            The scheduler does not answer.
        """

        async def ncores() -> Any:
            return await self._scheduler().ncores(workers=None)

        try:
            return dict(self._wait(ncores, ANSWER))
        except (OSError, TimeoutError) as error:
            raise ClusterLost(f"scheduler {self.address} does not answer") from error

    def _scheduler(self) -> Any:
        if not self.connected:
            raise ConnectionError(f"the connection to the scheduler is {self.client.status}")
        return self.client.scheduler

    def _wait(self, question: Callable[[], Coroutine[Any, Any, Any]], timeout: float) -> Any:
        try:
            return self.client.sync(question, callback_timeout=timeout)
        except (CancelledError, RuntimeError) as error:
            # A closed event loop or a call that was cut off: the connection went away under the question.
            raise ConnectionError(str(error)) from error

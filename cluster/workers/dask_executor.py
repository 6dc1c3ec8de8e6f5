"""The executor on a Dask client: checks, placement of tasks, waiting with a watchdog, and cleanup."""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any, cast

import dask
from distributed import Client, Future, Worker, WorkerPlugin

from ..arithmetic import Arithmetic, arithmetic, describe_mixture
from ..config import ClusterConfig, own_bytes, peak_bytes, reset_peak
from ..errors import ClusterLost, WorkersKilled, bytes_text
from ..events import Sink
from ..executor import Executor
from ..program import Done, Plan
from ..versions import software_versions
from .affinity import Affinity
from .graph import Graph, build_graph, memory_plan, original_cause, translate_error
from .link import Link, is_connection_trouble
from .preflight import Capacity, WorkerFacts, check_agreement, check_versions, weakest_capacity, worker_facts
from .watch import Stranded, Watchdog, waiting_event

_POLL = 1.0
_FETCH_POLL = 0.25
"""Seconds between two checks of the cluster while a result is fetched. Fetching is quick unless the worker is lost."""
_PAUSE = 0.5
_PREFLIGHT_TIMEOUT = 120.0
_UNSURE = 30.0
"""Seconds for which a listed worker may be unreachable; longer than the scheduler needs to notice that a worker is gone."""


class _Setup(WorkerPlugin):
    """Calls a function in every worker process, in a thread, so that the event loop stays free to answer the scheduler."""

    def __init__(self, name: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.name, self._function, self._args = name, function, args

    async def setup(self, worker: Worker) -> None:
        await worker.loop.run_in_executor(None, self._function, *self._args)


class DaskExecutor(Executor):
    """Runs plans on the workers of a Dask client; it never closes the client. ``kind``: how the client was made."""

    def __init__(
        self, client: Client, settings: ClusterConfig, *, kind: str, events: Sink | None, preflight: Callable[[], Any] | None
    ) -> None:
        super().__init__(worker_memory=settings.worker_memory, limits=settings.limits, events=events)
        self.kind = kind
        self._link = Link(client, settings.limits)
        self._affinity = Affinity()
        self._plugins: set[str] = set()
        self._computing: dict[str, Arithmetic] = {}
        self._known = set(self._wait_for_workers(self._patience()))
        self._capacity = self._preflight(preflight)

    @property
    def n_workers(self) -> int:
        """Current number of workers."""
        return len(self._link.threads())

    @property
    def worker_memory(self) -> int:
        """Memory limit of the smallest worker in bytes, or the caller's limit if that is smaller."""
        return min(self._capacity.memory, self._worker_memory or self._capacity.memory)

    @property
    def threads(self) -> int:
        """Number of concurrent tasks in a worker process."""
        return self._capacity.threads

    @property
    def base_memory(self) -> int:
        """Memory in bytes of an idle worker process, the largest over all workers."""
        return self._capacity.idle

    def measure(self, held: Callable[[], int]) -> None:
        # The question may compile what it loads, on a machine where that was never done: one does, the others load it from disk.
        self._link.ask(own_bytes, held, timeout=_PREFLIGHT_TIMEOUT, one_alone=True)
        answers = self._link.ask(own_bytes, held, timeout=_PREFLIGHT_TIMEOUT)
        sizes = [size for size in answers.values() if isinstance(size, int)]
        if sizes:
            self._capacity = replace(self._capacity, idle=max(sizes))

    @property
    def task_memory(self) -> int:
        """Memory in bytes that one step may use: the limit above which Dask pauses a worker, minus idle and reserved memory, divided by the
        worker's number of threads.
        """
        budget = int(self._capacity.share * self.worker_memory) - self._capacity.idle - self.reserved
        return max(0, budget // self._capacity.threads)

    def announce(self, seconds: float) -> None:
        """Emit the event that describes the cluster."""
        facts = {"kind": self.kind, "n_workers": self.n_workers, "worker_memory": self.worker_memory, "seconds": seconds}
        self._emit({"event": "phase", "phase": "cluster", **facts})

    def run_on_workers(self, function: Callable[..., Any], *args: object) -> None:
        """Call ``function(*args)`` in every worker process, including workers that join later."""
        name = f"gramplane-{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', repr(function))}"
        self._plugins.add(name)
        self._link.register(_Setup(name, function, args), name)

    def peak_memory(self, *, reset: bool = False) -> dict[str, int]:
        """Return the peak resident memory of every worker process in bytes, since its start or the last ``reset``."""
        peaks = self._link.ask(peak_bytes)
        if reset:
            self._link.ask(reset_peak)
        return {worker: peak for worker, peak in peaks.items() if isinstance(peak, int)}

    def close(self) -> None:
        """Remove the plugins that were registered on the workers."""
        for name in self._plugins:
            with contextlib.suppress(OSError, TimeoutError, ValueError):
                self._link.forget(name)
        self._plugins.clear()

    def _patience(self) -> float:
        return time.monotonic() + self._limits.no_workers_timeout

    def _wait_for_workers(self, deadline: float) -> dict[str, int]:
        told = time.monotonic() + _POLL
        while not (workers := self._link.threads()):
            if time.monotonic() > told:
                told = math.inf
                self._emit(waiting_event(self._link.address, self._limits))
            if time.monotonic() > deadline:
                waited = f"{self._limits.no_workers_timeout:g} s (no_workers_timeout)"
                raise ClusterLost(f"scheduler {self._link.address} has no workers after {waited}{self._link.hung}")
            time.sleep(0.1)
        return workers

    def _preflight(self, probe: Callable[[], Any] | None) -> Capacity:
        facts = self._answers(worker_facts)
        for message in check_versions(self._link.ask_scheduler(software_versions), facts):
            self._emit({"event": "warning", "message": message})
        self._compare({worker: fact.arithmetic for worker, fact in facts.items() if isinstance(fact, WorkerFacts)})
        if probe is not None:
            check_agreement(probe(), self._answers(probe))
        measured = weakest_capacity(facts)
        if self._worker_memory and measured.memory < self._worker_memory:
            requested, limit = bytes_text(self._worker_memory), bytes_text(measured.memory)
            self._emit({"event": "warning", "message": f"worker memory of {requested} was asked for, the smallest worker has {limit}"})
        return measured

    def _compare(self, found: Mapping[str, Arithmetic]) -> None:
        """Warn if the arithmetic of some workers differs from the driver's or from each other's."""
        self._computing |= found
        if found and (message := describe_mixture(arithmetic(), self._computing)):
            self._emit({"event": "warning", "message": message, "mixture": message})

    def _answers(self, question: Callable[..., Any]) -> dict[str, Any]:
        """Ask again until every present worker has answered. (A worker that dies may stay listed for a moment, and may be replaced by a new
        one.)
        """
        deadline, unsure_since = self._patience(), time.monotonic()
        while True:
            self._wait_for_workers(deadline)
            answers = self._link.ask(question, timeout=max(_PREFLIGHT_TIMEOUT, 2 * self._limits.silent_worker_timeout))
            answered = {worker: answer for worker, answer in answers.items() if not is_connection_trouble(answer)}
            living = self._link.threads()
            unsure = {worker: answer for worker, answer in answers.items() if worker in living and worker not in answered}
            if answered and not unsure:
                self._known |= set(answered)
                return answered
            if unsure and time.monotonic() - unsure_since > _UNSURE:
                named = "; ".join(f"{worker}: {answer!r}" for worker, answer in unsure.items())
                raise ClusterLost(f"scheduler {self._link.address} has workers that are alive but do not answer: {named}")
            if not unsure:
                unsure_since = time.monotonic()
            time.sleep(_PAUSE)

    def _memory_text(self) -> str:
        measured = self._capacity
        process = f"an idle worker takes {bytes_text(measured.idle)}, {measured.threads} task(s) run at a time"
        return f"{super()._memory_text()}; {process}, and Dask pauses a worker at {measured.share:.0%} of its memory"

    def _compute(self, plan: Plan[Any]) -> Done:
        for _ in range(self._limits.allowed_failures + 1):
            try:
                done = self._submit(plan)
            except Stranded as reason:
                self._emit({"event": "warning", "message": f"'{plan.program.name}' {reason}, and starts again"})
                continue
            others = {report.worker: report.arithmetic for report in done.reports if report.arithmetic is not None}
            self._compare({worker: facts for worker, facts in others.items() if worker not in self._computing})
            for report in done.reports:
                self._affinity.learn(plan.refs[report.ordinal], report.worker, plan.task_weights[report.ordinal])
            return done
        times = self._limits.allowed_failures + 1
        raise WorkersKilled(f"'{plan.program.name}' lost its workers {times} times; {memory_plan(plan, self.worker_memory)}")

    def _submit(self, plan: Plan[Any]) -> Done:
        graph = build_graph(plan, self._limits)
        with self._placed(plan, graph):
            futures = cast("list[Future[Any]]", self._link.client.get(graph.tasks, [*graph.leaves, graph.root], sync=False))
        limits = replace(self._limits, stall_timeout=math.inf) if plan.program.patient else self._limits
        try:
            return _Run(futures, Watchdog(self._link, limits, graph.leaves, self._emit), self._tasks_told(plan)).result()
        except _Reported as report:
            connected, hung = self._link.connected, self._link.hung
            error = translate_error(report.error, plan, graph, self.worker_memory, connected=connected, hung=hung)
            raise error from original_cause(report.error)
        finally:
            # The scheduler drops what nobody wants. Client.cancel is no way to do it: its handler fails on the combine tasks, which no
            # client ever asked for, and takes the connection down (distributed 2026.8, Scheduler.stimulus_cancel).
            for future in futures:
                future.release()

    def _placed(self, plan: Plan[Any], graph: Graph) -> contextlib.AbstractContextManager[Any]:
        workers = self._workers_now()
        if len(workers) < 2:
            return contextlib.nullcontext()
        homes = self._affinity.assign(plan.refs, plan.task_weights, workers)
        return dask.annotate(workers=graph.homes(homes), allow_other_workers=True)

    def _workers_now(self) -> dict[str, int]:
        workers = self._link.threads()
        for lost in sorted(self._known - set(workers)):
            hung = f"gave no answer for {self._limits.silent_worker_timeout:g} s (silent_worker_timeout) and is left out"
            fate = hung if lost in self._link.left_out else "was lost"
            self._emit({"event": "warning", "message": f"worker {lost} {fate}; its blocks move to the others"})
        self._known = set(workers)
        return workers


class _Reported(Exception):
    """An error that came from the cluster, not from this process."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class _Run:
    """Waits for the futures of one run, in any order."""

    def __init__(self, futures: list[Future[Any]], watchdog: Watchdog, count: Callable[[], None]) -> None:
        self._news: queue.SimpleQueue[Future[Any] | Done | _Reported] = queue.SimpleQueue()
        self._watchdog, self._count, self._poll = watchdog, count, _POLL
        self._root = futures[-1]
        for future in dict.fromkeys(futures):
            future.add_done_callback(self._news.put)

    def result(self) -> Done:
        while True:
            try:
                item = self._news.get(timeout=self._poll)
            except queue.Empty:
                self._watchdog.check()
                continue
            self._watchdog.progressed()
            if isinstance(item, Done):
                return item
            if isinstance(item, _Reported):
                raise item
            self._finished(item)

    def _finished(self, future: Future[Any]) -> None:
        if future.status == "error":
            raise _Reported(cast(BaseException, future.exception()))
        if future.status == "cancelled":
            raise _Reported(_why_cancelled(future))
        self._count()
        if future.key == self._root.key:
            self._poll = _FETCH_POLL
            threading.Thread(target=self._gather, name="gramplane-gather", daemon=True).start()
        else:
            # The workers keep it as long as a combine needs it.
            future.release()

    def _gather(self) -> None:
        try:
            self._news.put(self._root.result())
        except Exception as error:
            self._news.put(_Reported(error))


def _why_cancelled(future: Future[Any]) -> BaseException:
    try:
        future.result(timeout=_POLL)
    except (CancelledError, OSError, TimeoutError) as error:
        return error
    return ConnectionError("its tasks were cancelled by someone else")

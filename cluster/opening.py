"""Opens the executor for a configuration or a client. Dask is imported only if it is needed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .config import ClusterConfig, Limits, parse_bytes, parse_cluster
from .events import Sink, ignore_event
from .executor import Executor

if TYPE_CHECKING:
    from distributed import Client


_SHARED: ContextVar[tuple[dict[ClusterConfig, Client], contextlib.ExitStack] | None] = ContextVar("gramplane_clusters", default=None)


@contextlib.contextmanager
def share_local_clusters() -> Generator[None]:
    """Let executors opened inside the ``with`` block share local worker processes if their settings are equal.

    Starting processes takes seconds; the shared processes end with the block.
    """
    with contextlib.ExitStack() as stack:
        token = _SHARED.set(({}, stack))
        stack.callback(_SHARED.reset, token)
        yield


@contextlib.contextmanager
def open_executor(
    config: ClusterConfig | str | None = None,
    *,
    events: Sink | None = None,
    preflight: Callable[[], Any] | None = None,
    worker_memory: int | str | None = None,
    connect_timeout: float | None = None,
) -> Generator[Executor]:
    """Open the executor for ``config`` (see :func:`~gramplane.cluster.config.parse_cluster`); on exit, close everything that was started.

    ``None`` or ``"sync"`` runs in this process, without a graph and without Dask. ``preflight``: called on every worker and in this process
    before anything runs; all results must be equal, for instance the digest of the store's manifest. ``worker_memory`` (bytes) and
    ``connect_timeout`` (seconds) override those of ``config``. Raises ClusterUnreachable if no scheduler answers in time; ClusterLost if
    there are no workers; VersionMismatch or PreflightFailed if a worker would compute something else.
    """
    if not isinstance(config, ClusterConfig):
        settings = parse_cluster(config, worker_memory=worker_memory)
    else:
        settings = config if worker_memory is None else replace(config, worker_memory=parse_bytes(worker_memory))
    if settings.kind == "sync":
        yield Executor(worker_memory=settings.worker_memory, limits=settings.limits, events=events)
        return
    from .workers.dask_executor import DaskExecutor

    began = time.perf_counter()
    patience = settings.limits.connect_timeout if connect_timeout is None else connect_timeout
    with (
        _client(settings, patience, events or ignore_event) as client,
        DaskExecutor(client, settings, kind=settings.kind, events=events, preflight=preflight) as executor,
    ):
        executor.announce(time.perf_counter() - began)
        yield executor


@contextlib.contextmanager
def _client(settings: ClusterConfig, patience: float, events: Sink) -> Generator[Client]:
    from .workers.connect import open_client

    shared = _SHARED.get()
    if shared is None or settings.kind != "local":
        with open_client(settings, patience, events) as client:
            yield client
        return
    clients, stack = shared
    if settings not in clients:
        clients[settings] = stack.enter_context(open_client(settings, patience, events))
    yield clients[settings]


def executor_for_client(
    client: Client,
    *,
    events: Sink | None = None,
    preflight: Callable[[], Any] | None = None,
    worker_memory: int | str | None = None,
    limits: Limits | None = None,
) -> Executor:
    """Return an executor on an existing client. Closing the executor does not close the client."""
    from .workers.dask_executor import DaskExecutor

    settings = ClusterConfig(worker_memory=parse_bytes(worker_memory) if worker_memory else None, limits=limits or Limits())
    return DaskExecutor(client, settings, kind="client", events=events, preflight=preflight)

"""Opens the executor for a configuration or a client. Dask is imported only if it is needed."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Generator
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .config import ClusterConfig, Limits, parse_bytes, parse_cluster
from .errors import ClusterConfigError
from .events import Sink, ignore_event
from .executor import Executor

if TYPE_CHECKING:
    from distributed import Client


_SHARED: ContextVar[tuple[dict[ClusterConfig, Client], contextlib.ExitStack] | None] = ContextVar("gramplane_clusters", default=None)


_WATCHED: ContextVar[dict[str, Any] | None] = ContextVar("gramplane_watched", default=None)


@contextlib.contextmanager
def watch_clusters(dashboard: bool = False, report: str | None = None) -> Generator[None]:
    """Show the address of the dashboard of every cluster that is opened inside the ``with`` block, and write Dask's performance report on
    all that they did to the file ``report``.

    Inside the block, :func:`open_executor` raises ClusterConfigError for a configuration without a cluster, or if the scheduler's
    environment has no bokeh.
    """
    token = _WATCHED.set({"dashboard": dashboard, "report": report, "report_since": time.time()})
    try:
        with share_local_clusters():
            yield
    finally:
        _WATCHED.reset(token)


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
    is_run = isinstance(config, ClusterConfig)
    watched = _WATCHED.get() if is_run else None
    if settings.kind == "sync":
        if watched is not None:
            raise ClusterConfigError("a dashboard and a performance report need a cluster; add --cluster local:N, or another cluster")
        if is_run and "distributed" in sys.modules:
            warn_of_unused_client()
        yield Executor(worker_memory=settings.worker_memory, limits=settings.limits, events=events)
        return
    from .workers.dask_executor import DaskExecutor

    settings = replace(settings, **(watched or {}))
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


_told = set[str]()


def warn_of_unused_client() -> None:
    """Warn, once per client, if there is an active Dask client, because without a cluster everything runs in this process."""
    with contextlib.suppress(ValueError):  # there is none
        client = sys.modules["distributed"].default_client()
        if client.id not in _told:
            _told.add(client.id)
            hint = "set cluster to the address of its scheduler, or fit in `with gramplane.use_client(client):`"
            warnings.warn(f"the active Dask client is not used, because cluster is not given; {hint}", stacklevel=2)


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

"""Opens clusters (on this computer, elsewhere, or made by a factory) and their clients, and closes both in order."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import json
import logging
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import dask
from distributed import Client, Security
from distributed.comm import connect

from ..config import ClusterConfig
from ..errors import ClusterConfigError, ClusterError, ClusterUnreachable
from ..events import Sink
from ..security import check_plaintext, choose_security
from .link import Link
from .local import close_in_time, open_local
from .preflight import TERMINATE_SHARE

_CONNECTION_LOGS = ("client", "utils_comm", "core", "comm", "batched", "nanny", "scheduler")


def _dask_settings(config: ClusterConfig) -> dict[str, Any]:
    limits, is_watched = config.limits, config.dashboard or config.report is not None
    routes = ["distributed.http.health", *(["distributed.http.statics"] if config.dashboard else [])]
    return {
        # A worker that does not answer is dead or hangs; what it holds is computed again sooner than it is asked again.
        "distributed.comm.retry.count": 0,
        "distributed.scheduler.allowed-failures": limits.allowed_failures,
        "distributed.scheduler.no-workers-timeout": limits.no_workers_timeout,
        # Plans fill a worker up to where it would be killed. Paused before, it would wait for memory that kept blocks hold.
        "distributed.worker.memory.pause": TERMINATE_SHARE,
        # Kept blocks count, too, where Dask decides to write results to disk: it would write and read back results that the plan has
        # room for, and takes up to three copies of each while it does.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        # Sampling every 10 ms costs time and serves only the dashboard and the report.
        "distributed.worker.profile.enabled": is_watched,
        # The HTTP servers know no users, and some of their pages change the cluster.
        "distributed.scheduler.http.routes": routes,
        "distributed.worker.http.routes": ["distributed.http.health"],
    }


@contextlib.contextmanager
def open_client(config: ClusterConfig, connect_timeout: float, emit: Sink) -> Generator[Client]:
    """Yield a client of the cluster described by ``config``. On exit, everything that was started here is stopped."""
    openers = {"address": _open_address, "scheduler-file": _open_scheduler_file, "factory": _open_factory}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet_connections())
        stack.enter_context(dask.config.set(_dask_settings(config)))
        if config.kind == "local":
            client = open_local(config, emit, stack)
        else:
            client = openers[config.kind](config, connect_timeout, emit, stack)
        if config.dashboard or config.report is not None:
            stack.enter_context(_watch(client, config, emit))
        yield client


@contextlib.contextmanager
def _watch(client: Client, config: ClusterConfig, emit: Sink) -> Generator[None]:
    """Show the address of the dashboard, and write the report at the end."""
    link = Link(client)
    if link.ask_scheduler(_has_bokeh) is not True:
        raise ClusterConfigError(f"scheduler {link.address} lacks bokeh, which draws the figures; install gramplane[dashboard] there")
    if config.dashboard:
        emit({"event": "dashboard", "message": f"dashboard: {client.dashboard_link}"})
    if config.report is None:
        yield
        return
    Path(config.report).touch()  # a path that cannot be written is told now
    client.get_task_stream(count=1)  # from now on, the scheduler records tasks
    try:
        yield
    finally:
        with contextlib.suppress(OSError, TimeoutError):  # a lost cluster is the run's own error
            options = {"start": config.report_since, "last_count": 0, "code": "", "mode": "inline"}
            Path(config.report).write_text(
                cast(str, client.sync(cast(Any, client.scheduler).performance_report, **options)), encoding="utf-8"
            )


def _has_bokeh() -> bool:
    return importlib.util.find_spec("bokeh") is not None


@contextlib.contextmanager
def _quiet_connections() -> Generator[None]:
    # What Dask logs of a lost scheduler or worker, tracebacks and all, the run's own error tells in one sentence.
    logs = [logging.getLogger(f"distributed.{name}") for name in _CONNECTION_LOGS]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _open_address(config: ClusterConfig, connect_timeout: float, emit: Sink, stack: contextlib.ExitStack) -> Client:
    address = config.target
    if warning := check_plaintext(address, config.allow_plaintext):
        emit({"event": "warning", "message": warning})
    security = choose_security(address, config.tls)
    try:
        _greet_scheduler(address, security, connect_timeout)
        client = Client(address, security=security, timeout=connect_timeout, set_as_default=False)
    except TypeError as error:
        raise ClusterConfigError(f"cluster {address!r}: TLS settings are incomplete: {error}") from error
    except Exception as error:
        # Anything may listen there: a web server's answer, read as lengths of Dask frames, is a MemoryError.
        raise ClusterUnreachable(_why_unreachable(address, connect_timeout, error)) from error
    stack.callback(close_in_time, client)
    return client


def _greet_scheduler(address: str, security: Security | None, connect_timeout: float) -> None:
    # A client waits for ever for the greeting of a server that accepts connections and says nothing, such as a stopped scheduler.
    async def greet() -> None:
        arguments = (security or Security()).get_connection_args("client")
        comm = await connect(address, timeout=connect_timeout, **arguments)
        await comm.close()

    async def greet_in_time() -> None:
        await asyncio.wait_for(greet(), connect_timeout + 1.0)

    # In a thread, because the caller's may be running an event loop (notebooks do).
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, greet_in_time()).result()


def _why_unreachable(address: str, connect_timeout: float, error: Exception) -> str:
    reasons = []
    cause: BaseException | None = error
    while cause is not None:
        reasons.append(str(cause) or type(cause).__name__)
        cause = cause.__cause__
    hint = "is it running, and is this the address of a Dask scheduler?"
    if any("ssl" in reason.lower() or "certificate" in reason.lower() for reason in reasons):
        hint = "the scheduler and this client do not accept each other's certificates"
    elif address.startswith("tcp://") and any("closed" in reason for reason in reasons):
        hint = "the scheduler closed the connection: does it speak TLS (tls://)?"
    return f"no scheduler at {address} within {connect_timeout:g} s: {hint} ({'; '.join(dict.fromkeys(reasons))})"


def _open_scheduler_file(config: ClusterConfig, connect_timeout: float, emit: Sink, stack: contextlib.ExitStack) -> Client:
    path = Path(config.target)
    began = time.monotonic()
    address = _read_scheduler_file(path, connect_timeout)
    age = time.time() - path.stat().st_mtime
    try:
        return _open_address(replace(config, target=address), max(1.0, connect_timeout - (time.monotonic() - began)), emit, stack)
    except ClusterUnreachable as error:
        raise ClusterUnreachable(f"scheduler file {str(path)!r}, written {age:.0f} s ago, may be stale: {error}") from error


def _read_scheduler_file(path: Path, connect_timeout: float) -> str:
    deadline = time.monotonic() + connect_timeout
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError) as error:
            problem = error  # it may be half written
        if time.monotonic() > deadline:
            raise ClusterUnreachable(f"scheduler file {str(path)!r} could not be read in {connect_timeout:g} s: {problem!r}") from problem
        time.sleep(0.1)


def _open_factory(config: ClusterConfig, connect_timeout: float, emit: Sink, stack: contextlib.ExitStack) -> Client:
    made = _call_factory(config.target)
    if isinstance(made, Client):
        client = made
        if client.cluster is not None:
            stack.callback(close_in_time, client.cluster)
    elif hasattr(made, "scheduler_address"):
        stack.callback(close_in_time, made)
        client = Client(made, timeout=connect_timeout, set_as_default=False)
    else:
        raise ClusterConfigError(f"cluster='factory:{config.target}': it returned {type(made).__name__}, not a Dask cluster or client")
    stack.callback(close_in_time, client)
    if warning := check_plaintext(Link(client).address, config.allow_plaintext):
        emit({"event": "warning", "message": warning})
    return client


def _call_factory(target: str) -> Any:
    module, _, name = target.partition(":")
    try:
        make = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ClusterConfigError(f"cluster='factory:{target}': {error}") from error
    if not callable(make):
        raise ClusterConfigError(f"cluster='factory:{target}': {name} is not callable")
    try:
        return make()
    except (ClusterError, OSError):
        raise
    except Exception as error:
        failed = f"calling it without arguments failed: {type(error).__name__}: {error}"
        raise ClusterConfigError(f"cluster='factory:{target}': {failed}") from error

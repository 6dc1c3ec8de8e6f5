"""Clusters elsewhere that lose workers, all workers, the scheduler, the network; and who may connect."""

import logging
import os
import signal
import socket
import stat
import threading
import time
from concurrent.futures import CancelledError
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gramplane.cluster import (
    ClusterConfigError,
    ClusterLost,
    ClusterUnreachable,
    Limits,
    MemorySink,
    PlaintextRefused,
    TaskFailed,
    WorkerDiskFull,
    WorkersKilled,
    make_certificates,
    open_executor,
    parse_cluster,
    plan,
)
from gramplane.cluster.workers.graph import build_graph, translate_error
from gramplane.cluster.workers.watch import Watchdog
from gramplane.workflows.exits import Exit, exit_code
from tests.support import toys
from tests.support.clusters import CommandCluster, wait_until

pytestmark = pytest.mark.cluster

QUICK = {"scheduler.allowed-failures": 1}


def rough(n, longest):
    return plan(toys.program(toys.rough_sum), list(range(n)), 3, longest, split_every=4)


def expected(n):
    with open_executor() as executor:
        return executor.run(rough(n, 0.0)).tobytes()


def after(seconds, function, *args):
    timer = threading.Timer(seconds, function, args)
    timer.daemon = True
    timer.start()
    return timer


@pytest.mark.slow
def test_worker_killed_all_workers_killed_scheduler_killed(tmp_path):
    sink = MemorySink()
    with CommandCluster(tmp_path, workers=3) as cluster:
        config = parse_cluster(cluster.config, limits=Limits(no_workers_timeout=60.0))
        with open_executor(config, events=sink) as executor:
            assert (executor.kind, executor.n_workers) == ("scheduler-file", 3)

            after(0.4, cluster.kill_worker, 0)
            assert executor.run(rough(60, 0.05)).tobytes() == expected(60)
            wait_until(lambda: executor.n_workers == 2, 10, "scheduler notices")

            def replace_all():
                cluster.kill_worker(1)
                cluster.kill_worker(2)
                cluster.start_worker()
                cluster.start_worker()

            after(0.4, replace_all)
            assert executor.run(rough(60, 0.05)).tobytes() == expected(60)
            assert executor.n_workers == 2
            assert executor.run(rough(9, 0.0)).tobytes() == expected(9)
            assert len([event for event in sink.named("warning") if "was lost" in event["message"]]) == 3

            after(0.5, cluster.kill_scheduler)
            began = time.monotonic()
            with pytest.raises(ClusterLost, match=r"lost while 'toy' ran|connection to scheduler \S+ was lost"):
                executor.run(rough(200, 0.2))
            assert time.monotonic() - began < 10
            with pytest.raises(ClusterLost):
                executor.run(rough(2, 0.0))
            began = time.monotonic()
        assert time.monotonic() - began < 10
        began = time.monotonic()
        with (
            pytest.raises(ClusterUnreachable, match=r"scheduler file .*written \d+ s ago, may be stale"),
            open_executor(config, connect_timeout=1.0),
        ):
            pass
        assert time.monotonic() - began < 5


def test_a_lost_connection_ends_a_run_at_once_whatever_the_client_says_of_its_tasks():
    link = SimpleNamespace(connected=False, address="tcp://127.0.0.1:1")
    with pytest.raises(ClusterLost, match=r"connection to scheduler tcp://127\.0\.0\.1:1 was lost"):
        Watchdog(cast(Any, link), Limits(), [], MemorySink()).check()
    work = rough(3, 0.0)
    graph, report = build_graph(work, Limits()), RuntimeError("ConnectionPool is closed")
    assert type(translate_error(report, work, graph, 1)) is TaskFailed
    cancelled = translate_error(CancelledError(graph.root), work, graph, 1)
    assert str(cancelled) == "the cluster was lost while 'toy' ran: its tasks were cancelled" and type(cancelled) is ClusterLost
    lost = translate_error(report, work, graph, 1, connected=False)
    assert type(lost) is ClusterLost and exit_code(lost) == Exit.CLUSTER_LOST


def test_logs_of_connections_are_silent_only_while_a_cluster_is_open(tmp_path):
    names = ("distributed.client", "distributed.utils_comm", "distributed.core", "distributed.comm.tcp", "distributed.batched")
    before = [logging.getLogger(name).getEffectiveLevel() for name in names]
    with CommandCluster(tmp_path, workers=1) as cluster, open_executor(cluster.config):
        assert not any(logging.getLogger(name).isEnabledFor(logging.ERROR) for name in names)
        assert logging.getLogger("gramplane.cluster").isEnabledFor(logging.WARNING)
    assert [logging.getLogger(name).getEffectiveLevel() for name in names] == before


def test_one_worker_plain_connections_failing_tasks_and_its_end(tmp_path, monkeypatch):
    from gramplane.cluster import security

    sink = MemorySink()
    with CommandCluster(tmp_path, workers=1) as cluster:
        config = parse_cluster(cluster.config, allow_plaintext=True, limits=Limits(no_workers_timeout=1.5))
        with monkeypatch.context() as patch:
            patch.setattr(security, "is_loopback", lambda host: False)
            with pytest.raises(PlaintextRefused), open_executor(cluster.config):
                pass
            with open_executor(config, events=sink) as executor:
                with pytest.raises(TaskFailed):
                    executor.run(plan(toys.program(toys.custom_error), range(3), False))
                assert executor.run(rough(9, 0.0)).tobytes() == expected(9)
        assert "not encrypted" in sink.named("warning")[0]["message"]
        with open_executor(config) as executor:
            after(0.3, cluster.kill_worker, 0)
            began = time.monotonic()
            with pytest.raises(ClusterLost, match="no workers"):
                executor.run(rough(100, 0.2))
            assert time.monotonic() - began < 1.5 + 5
        with pytest.raises(ClusterLost, match=r"has no workers after 1\.5 s"), open_executor(config):
            pass


@pytest.mark.slow
def test_a_block_that_kills_its_workers_ends_the_run_with_its_memory_plan(tmp_path):
    folder = tmp_path / "attempts"
    folder.mkdir()
    with (
        CommandCluster(tmp_path, workers=1, nanny=True, settings=QUICK, memory_limit="700MiB") as cluster,
        open_executor(cluster.config) as executor,
        pytest.raises(WorkersKilled, match=r"^task \d+ of 'toy' lost its worker 2 times.*up to 1000 B, and a worker has 700 MiB"),
    ):
        executor.run(plan(toys.program(toys.deadly), ["bad"], folder, {"bad": 99}))
    assert toys.attempts(folder) == {"bad": 2}


def test_only_holders_of_the_certificate_get_in(tmp_path, monkeypatch):
    own, foreign = (make_certificates(tmp_path / name) for name in ("own", "foreign"))
    with CommandCluster(tmp_path, workers=1, tls=own) as cluster:
        assert cluster.address.startswith("tls://127.0.0.1:")
        assert stat.S_IMODE(os.stat(cluster.scheduler_file).st_mode) == 0o600
        for config in (cluster.config, cluster.address):
            with open_executor(parse_cluster(config, tls=own)) as executor:
                assert executor.run(rough(9, 0.0)).tobytes() == expected(9)
        with pytest.raises(ClusterUnreachable, match="certificates"), open_executor(parse_cluster(cluster.address, tls=foreign)):
            pass
        with pytest.raises(ClusterConfigError, match=r"no certificates are set.*--tls-ca.*GRAMPLANE_TLS_CA"), open_executor(cluster.config):
            pass
        with pytest.raises(ClusterUnreachable, match=r"does it speak TLS"), open_executor(cluster.address.replace("tls://", "tcp://")):
            pass
        for name in ("ca", "cert", "key"):
            monkeypatch.setenv(f"GRAMPLANE_TLS_{name.upper()}", getattr(own, name))
        with open_executor(cluster.config) as executor:
            assert executor.n_workers == 1


def test_an_expired_certificate_is_refused(tmp_path, monkeypatch):
    class LastYear(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) - timedelta(days=366)

    with monkeypatch.context() as patch:
        patch.setattr("distributed.security.datetime", SimpleNamespace(datetime=LastYear, timezone=UTC, timedelta=timedelta))
        expired = make_certificates(tmp_path / "tls")
    with CommandCluster(tmp_path, workers=0, tls=expired) as cluster:
        config = parse_cluster(cluster.config, tls=expired)
        with pytest.raises(ClusterUnreachable, match="expired"), open_executor(config, connect_timeout=3.0):
            pass


def web_server(server):
    while True:
        connection, _ = server.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 3)


@pytest.mark.parametrize("listener", ["nobody", "silent", "web server"])
def test_an_address_without_a_scheduler(listener):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if listener != "nobody":
            server.listen()
        if listener == "web server":
            threading.Thread(target=web_server, args=(server,), daemon=True).start()
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(ClusterUnreachable, match=f"no scheduler at {address} within 1 s"), open_executor(address, connect_timeout=1.0):
            pass
        assert time.monotonic() - began < 4


def test_scheduler_files(tmp_path):
    path = tmp_path / "scheduler.json"
    with (
        pytest.raises(ClusterUnreachable, match=r"could not be read in 0\.3 s.*FileNotFound"),
        open_executor(f"scheduler-file:{path}", connect_timeout=0.3),
    ):
        pass
    path.write_text("{")
    with pytest.raises(ClusterUnreachable, match="could not be read"), open_executor(f"scheduler-file:{path}", connect_timeout=0.3):
        pass
    path.write_text('{"address": "tcp://10.255.255.1:8786"}')
    with pytest.raises(PlaintextRefused, match=r"10\.255\.255\.1.*--allow-plaintext"), open_executor(f"scheduler-file:{path}"):
        pass


@pytest.mark.slow
def test_a_stopped_scheduler_is_noticed(tmp_path):
    """B5: a scheduler that is silent rather than dead."""
    with CommandCluster(tmp_path, workers=1) as cluster, open_executor(cluster.config) as executor:
        after(0.5, cluster.kill_scheduler, signal.SIGSTOP)
        began = time.monotonic()
        with pytest.raises(ClusterLost, match="gave no answer"):
            executor.run(rough(100, 0.2))
        assert time.monotonic() - began < 60
        cluster.kill_scheduler(signal.SIGCONT)


def big(ref, nbytes):
    time.sleep(0.05)
    return [bytes([ref % 256]) * nbytes]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_spill_directory_ends_the_run(tmp_path):
    """B8: results go to a disk of 4 MiB; Dask alone would hang."""
    import subprocess

    spill = tmp_path / "worker-0"
    spill.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(spill)], check=True)
    try:
        with CommandCluster(tmp_path, workers=1, memory_limit="400MiB") as cluster:
            config = parse_cluster(cluster.config, limits=Limits(full_disk_timeout=10.0))
            with open_executor(config) as executor:
                began = time.monotonic()
                with pytest.raises(WorkerDiskFull, match="disk of Dask's temporary files is full"):
                    executor.run(plan(toys.program(big, toys.join), range(64), 8 << 20, split_every=64))
                assert time.monotonic() - began < 60
    finally:
        subprocess.run(["umount", "-l", str(spill)], check=True)

"""Workers that hang, or are lost before the first task: left out, replaced, waited for; the run goes on to the same bits."""

import asyncio
import logging
import os
import signal
import threading
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import dask
import psutil
import pytest
from distributed.comm import connect

from gramplane.cluster import ClusterLost, Limits, MemorySink, open_executor, parse_cluster, plan
from gramplane.cluster.events import headline
from gramplane.cluster.workers import connect as connect_module
from gramplane.cluster.workers import watch
from gramplane.cluster.workers.link import Silence, is_connection_trouble
from gramplane.workflows.exits import Exit, exit_code
from tests.support import toys
from tests.support.clusters import CommandCluster, children, killed_holders, wait_until

pytestmark = pytest.mark.cluster

QUICK = Limits(silent_worker_timeout=2.0, no_workers_timeout=60.0, stall_timeout=120.0)


def rough(n, longest):
    return plan(toys.program(toys.rough_sum), list(range(n)), 3, longest, split_every=4)


def expected(n):
    with open_executor() as executor:
        return executor.run(rough(n, 0.0)).tobytes()


def local(n, limits=QUICK):
    return parse_cluster(f"local:{n}", worker_memory=1 << 30, limits=limits)


def stop(process):
    process.send_signal(signal.SIGSTOP)
    # In the middle of a system call it may stop a little later.
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, 10, "the stop")


# -- counting silence ------------------------------------------------------------------------------------------------------------


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def looked(silence, clock, step, **last_seen):
    clock.now += step
    return silence.of({worker: {"last_seen": seen} for worker, seen in last_seen.items()})


def test_a_worker_without_a_sign_of_life_hangs_after_the_limit_and_not_before():
    clock = Clock()
    silence = Silence(10.0, clock)
    assert looked(silence, clock, 1.0, a=1.0, b=1.0) == []
    for second in range(9):
        assert looked(silence, clock, 1.0, a=1.0, b=2.0 + second) == []
    assert looked(silence, clock, 1.0, a=1.0, b=99.0) == ["a"]


def test_a_sign_of_life_starts_the_count_again_and_a_newcomer_starts_at_nothing():
    clock = Clock()
    silence = Silence(4.0, clock)
    for seen in (1.0, 1.0, 1.0, 2.0, 2.0, 2.0):
        assert looked(silence, clock, 1.0, a=seen) == []
    assert looked(silence, clock, 1.0, a=2.0, b=0.0) == []
    assert looked(silence, clock, 1.0, a=2.0, b=0.0) == ["a"]


def test_time_when_nobody_looked_says_nothing_of_the_workers():
    """A driver that was stopped or busy for an hour hears of nobody at first."""
    clock = Clock()
    silence = Silence(10.0, clock)
    for _ in range(5):
        assert looked(silence, clock, 3600.0, a=1.0, b=1.0) == []
    assert looked(silence, clock, 3600.0, a=1.0, b=2.0) == ["a"]


def test_clocks_of_other_machines_do_not_matter():
    clock = Clock()
    silence = Silence(3.0, clock)
    assert not any(looked(silence, clock, 1.0, a=-1e9 + beat, b=1e12 + beat) for beat in range(50))


# -- hung workers ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_hung_worker_is_left_out_of_a_pass_and_comes_back_without_harm():
    sink = MemorySink()
    before = {process.pid for process in children()}
    with open_executor(local(2), events=sink) as executor:
        hung = next(process for process in children() if process.pid not in before)
        timer = threading.Timer(0.5, stop, (hung,))
        timer.start()
        assert executor.run(rough(60, 0.1)).tobytes() == expected(60)
        assert executor.n_workers == 1
        assert any("stopped responding" in event["message"] for event in sink.named("warning"))
        # What it has computed meanwhile belongs to a plan that nobody waits for; it leaves, and another takes its place.
        hung.send_signal(signal.SIGCONT)
        assert executor.run(rough(60, 0.1)).tobytes() == expected(60)
        wait_until(lambda: executor.n_workers == 2, 60, "a worker again")
        assert executor.run(rough(60, 0.05)).tobytes() == expected(60)


@pytest.mark.slow
def test_one_of_one_hung_is_waited_for_and_named():
    limits = Limits(silent_worker_timeout=2.0, no_workers_timeout=3.0)
    before = {process.pid for process in children()}
    with open_executor(local(1, limits)) as executor:
        (hung,) = [process for process in children() if process.pid not in before]
        address = next(iter(executor._link.threads()))
        stop(hung)
        told = r"no.workers.*without an answer for 2 s \(silent_worker_timeout\): "
        with pytest.raises(ClusterLost, match=told + address) as caught:
            executor.run(rough(20, 0.05))
        assert exit_code(caught.value) == Exit.CLUSTER_LOST
    assert not hung.is_running()


@pytest.mark.slow
def test_one_of_one_that_goes_on_in_time_lets_the_run_go_on():
    before = {process.pid for process in children()}
    with open_executor(local(1)) as executor:
        (hung,) = [process for process in children() if process.pid not in before]
        stop(hung)
        threading.Timer(6.0, hung.send_signal, (signal.SIGCONT,)).start()
        assert executor.run(rough(20, 0.05)).tobytes() == expected(20)


def nothing():
    return None


@pytest.mark.slow
def test_a_worker_that_hung_before_does_not_hide_the_others(tmp_path):
    """Preflight, setting up, measuring: each question goes on without it; `did not pass on a question` hid the whole list."""
    with CommandCluster(tmp_path, workers=2) as cluster:
        stop(psutil.Process(cluster.workers[0].pid))
        config = parse_cluster(cluster.config, limits=QUICK)
        with open_executor(config, preflight=nothing) as executor:
            assert executor.n_workers == 1
            executor.run_on_workers(nothing)
            assert executor.run(rough(20, 0.0)).tobytes() == expected(20)
        cluster.kill_worker(0, signal.SIGCONT)
        wait_until(lambda: 0 not in cluster.living, 30, "the worker that was left out leaves")


@pytest.mark.slow
def test_a_worker_that_hangs_while_it_is_set_up_is_left_out(tmp_path):
    with CommandCluster(tmp_path, workers=2) as cluster, open_executor(parse_cluster(cluster.config, limits=QUICK)) as executor:
        stop(psutil.Process(cluster.workers[0].pid))
        executor.run_on_workers(nothing)
        assert executor.n_workers == 1
        assert len(executor.peak_memory()) == 1


# -- a worker that is lost between the end of a pass and the fetch of its result ---------------------------------------------------------


@pytest.mark.slow
def test_the_holder_of_a_result_may_die_before_the_result_is_fetched(monkeypatch, caplog):
    """An address that no longer answers was tried for minutes, one connection after another; here that would be longer than a stall."""
    sink = MemorySink()
    monkeypatch.setattr(connect_module, "_CONNECTION_LOGS", ())
    caplog.set_level(logging.INFO, "distributed.utils_comm")
    with (
        killed_holders(1, 3) as lost,
        dask.config.set({"distributed.comm.timeouts.connect": "600s"}),
        open_executor(local(2, Limits(stall_timeout=60.0)), events=sink) as executor,
    ):
        for _ in range(3):
            assert executor.run(rough(20, 0.0)).tobytes() == expected(20)
    assert len(lost) == 2 and not [record for record in caplog.records if "Retrying" in record.getMessage()]
    assert [event for event in sink.named("warning") if f"worker {lost[0]} was lost" in event["message"]]


def test_a_run_says_that_it_waits_for_workers_and_the_log_where_it_stands_still(monkeypatch, caplog):
    listed, sink = {}, MemorySink()
    link = SimpleNamespace(connected=True, address="tcp://127.0.0.1:1", hung="", look=lambda: (listed, []))
    link.has_stranded, link.ask = lambda keys: False, lambda question: {"tcp://127.0.0.1:2": question()}
    monkeypatch.setattr(watch, "STANDSTILL_SECONDS", 0.0)
    dog = watch.Watchdog(cast(Any, link), Limits(), [], sink)
    for workers in ({}, {}, {"tcp://127.0.0.1:2": {"status": "running"}}, {}):
        listed = workers
        dog.check()
    assert [event["message"].partition(":")[0] for event in sink.events] == ["waiting for workers"] * 2
    assert "at most 300 s (no_workers_timeout)" in headline(sink.events[0])
    (record,) = caplog.records
    assert record.getMessage().count("test_a_run_says_that_it_waits") == 2 and "\ntcp://127.0.0.1:2: thread " in record.getMessage()


# -- workers that are lost before the first task -------------------------------------------------------------------------------------


def kill_at_start(count, before):
    """Kill the first processes that appear, as soon as they do."""
    killed = []

    def hunt():
        deadline = time.monotonic() + 60
        while len(killed) < count and time.monotonic() < deadline:
            for process in children():
                if process.pid not in before and process.pid not in killed and len(killed) < count:
                    process.kill()
                    killed.append(process.pid)
            time.sleep(0.01)

    thread = threading.Thread(target=hunt, daemon=True)
    thread.start()
    return thread, killed


@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(5, marks=pytest.mark.slow)])
def test_workers_killed_while_they_start_are_replaced(count):
    before = {process.pid for process in children()}
    thread, killed = kill_at_start(count, before)
    with open_executor(local(2)) as executor:
        thread.join()
        assert len(killed) == count
        wait_until(lambda: executor.n_workers == 2, 60, "both workers")
        assert executor.run(rough(20, 0.0)).tobytes() == expected(20)


def deadly_once(folder, driver):
    if os.getpid() != driver:
        try:
            os.close(os.open(os.path.join(folder, "died"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return "same"
        os.kill(os.getpid(), signal.SIGKILL)
    return "same"


def deadly_always(driver):
    if os.getpid() != driver:
        os.kill(os.getpid(), signal.SIGKILL)
    return "same"


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_worker_that_dies_over_the_preflight_is_replaced_or_done_without(tmp_path, workers):
    with open_executor(local(workers), preflight=partial(deadly_once, str(tmp_path), os.getpid())) as executor:
        assert (tmp_path / "died").exists()
        assert executor.run(rough(20, 0.0)).tobytes() == expected(20)


@pytest.mark.slow
def test_workers_that_go_on_dying_end_the_start_after_the_timeout_with_its_name():
    limits = Limits(no_workers_timeout=4.0)
    began = time.monotonic()
    with (
        pytest.raises(ClusterLost, match="no_workers_timeout"),
        open_executor(local(1, limits), preflight=partial(deadly_always, os.getpid())),
    ):
        pass
    assert 4 < time.monotonic() - began < 60


def test_a_worker_that_cannot_start_ends_it_at_once(monkeypatch):
    """Its own error is no loss: it would come again."""
    from gramplane.cluster.workers import local as module

    real = module._worker_options
    monkeypatch.setattr(module, "_worker_options", lambda *args: {**real(*args), "preload": ["no_such_module_anywhere"]})
    began = time.monotonic()
    with pytest.raises(ClusterLost, match=r"did not start: ModuleNotFoundError: .*no_such_module_anywhere"), open_executor(local(1)):
        pass
    assert time.monotonic() - began < 60


def test_an_address_that_nobody_answers_at_says_nothing_of_a_worker():
    """A worker that was killed may be listed for a moment: it is asked again, or gone, and never taken for one with other software."""

    async def reach():
        return await connect("tcp://127.0.0.1:9", timeout=0.2)

    with pytest.raises(OSError, match="Timed out trying to connect") as refused:
        asyncio.run(reach())
    assert is_connection_trouble(refused.value)
    assert not is_connection_trouble(FileNotFoundError(2, "no such file")) and not is_connection_trouble(OSError(28, "no space left"))
    assert not is_connection_trouble({"gramplane": "0.3.0"})

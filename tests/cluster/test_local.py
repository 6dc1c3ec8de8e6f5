"""Clusters started here: same bits as in-process, exact counts, attempts, failures, placement, hygiene."""

import _thread
import os
import random
import stat
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest

from gramplane.cluster import (
    ClusterLost,
    Limits,
    MemoryBoundExceeded,
    MemorySink,
    PreflightFailed,
    Stalled,
    TaskFailed,
    VersionMismatch,
    WorkerDiskFull,
    executor_for_client,
    open_executor,
    parse_cluster,
    plan,
    share_local_clusters,
)
from gramplane.cluster.config import own_bytes
from gramplane.cluster.workers.link import Link
from gramplane.cluster.workers.preflight import Capacity, WorkerFacts, weakest_capacity
from tests.support import toys
from tests.support.clusters import children, import_path, wait_until

pytestmark = pytest.mark.cluster

LIMITS = Limits(retry_wait=0.01, allowed_failures=2, stall_timeout=60.0)
MEMORY = 1 << 30


def local(n, **limits):
    return parse_cluster(f"local:{n}", worker_memory=MEMORY, limits=Limits(**{**vars(LIMITS), **limits}))


def make_cluster():
    from distributed import LocalCluster

    return LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None)


IN_PROCESS = f"factory:{__name__}:make_cluster"


@pytest.fixture(scope="module")
def pair():
    with open_executor(local(2)) as executor:
        yield executor


def everything(executor):
    work = plan(toys.program(toys.rough_sum), list(range(45)), 7, 0.01, split_every=3)
    return executor.run(work).tobytes()


def test_bits_do_not_depend_on_the_number_of_workers_or_on_the_order_of_completion(pair):
    with open_executor() as executor:
        expected = everything(executor)
    found = [everything(pair) for _ in range(3)]
    for cluster in (local(3), IN_PROCESS):
        with open_executor(cluster) as executor:
            found.append(everything(executor))
    assert set(found) == {expected}


def test_the_sum_of_that_test_depends_on_its_order():
    parts = [toys.rough_sum(ref, 7, 0.0) for ref in range(45)]
    random.Random(0).shuffle(parts)
    with open_executor() as executor:
        assert toys.add(parts).tobytes() != everything(executor)


@pytest.mark.parametrize(("n", "split_every"), [(1, 8), (2, 2), (9, 8), (10, 3)])
def test_the_tree_is_the_one_of_the_plan(pair, n, split_every):
    work = plan(toys.program(toys.slow, toys.nest), list(range(n)), 0.0, split_every=split_every)
    with open_executor() as executor:
        assert pair.run(work) == executor.run(work)


def test_task_counts_are_exact(pair, tmp_path):
    from distributed import SchedulerPlugin

    class Count(SchedulerPlugin):
        def __init__(self):
            self.keys = []

        def transition(self, key, start, finish, *args, **kwargs):
            if finish == "memory":
                self.keys.append(key[0].rsplit("-", 1)[0])

    counter = Count()
    scheduler = pair._link.client.cluster.scheduler
    scheduler.add_plugin(counter, name="count")
    try:
        assert pair.run(plan(toys.program(toys.flaky, name="counted-pass"), range(40), tmp_path, {})) == 40
    finally:
        scheduler.remove_plugin(name="count")
    assert counter.keys.count("counted-pass") == 40
    assert counter.keys.count("counted-pass-combine") == 6
    assert len(counter.keys) == 46
    assert toys.attempts(tmp_path) == {str(i): 1 for i in range(40)}


def test_runs_do_not_share_tasks_and_leave_none(pair, tmp_path):
    work = plan(toys.program(toys.flaky), range(5), tmp_path, {})
    assert pair.run(work) == pair.run(work) == 5
    assert set(toys.attempts(tmp_path).values()) == {2}
    wait_until(lambda: not pair._link.client.cluster.scheduler.tasks, 5, "scheduler empty")


@pytest.mark.parametrize("table", [{}, {1: 1, 4: 3}, {0: 2, 1: 2, 2: 2, 3: 2, 4: 2}])
def test_flaky_storage_is_tried_again(pair, tmp_path, table):
    assert pair.run(plan(toys.program(toys.flaky), range(5), tmp_path, table)) == 5
    assert toys.attempts(tmp_path) == {str(i): 1 + table.get(i, 0) for i in range(5)}


def test_attempts_are_limited_and_the_block_is_named(pair, tmp_path):
    with pytest.raises(TaskFailed, match=r"^task 4 of 'toy' failed on tls://127.0.0.1:\d+ after 4 attempts: FlakyError") as caught:
        pair.run(plan(toys.program(toys.flaky), range(5), tmp_path, {3: 99}))
    assert toys.attempts(tmp_path)["3"] == 4
    assert caught.value.block == "3"


def test_lasting_errors_are_not_tried_again(pair, tmp_path):
    with pytest.raises(TaskFailed) as caught:
        pair.run(plan(toys.program(toys.flaky), range(5), tmp_path, {3: 99}, KeyError))
    assert toys.attempts(tmp_path)["3"] == 1
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("with_lock", [False, True])
def test_exceptions_arrive_with_type_and_attributes(pair, with_lock):
    with pytest.raises(TaskFailed, match=r"train\.svm:12: bad") as caught:
        pair.run(plan(toys.program(toys.custom_error), [0], with_lock))
    cause = caught.value.__cause__
    assert type(cause) is toys.CustomError
    assert (cause.file, cause.line, str(cause)) == ("train.svm", 12, "train.svm:12: bad")
    assert ("lock" in str(getattr(cause, "lock", ""))) is with_lock


def test_a_failing_combine_is_named(pair):
    with pytest.raises(TaskFailed, match="joining the results of tasks 1 to 8 of 'toy' failed") as caught:
        pair.run(plan(toys.program(toys.slow, toys.bad_combine), range(9), 0.0))
    assert caught.value.__cause__.line == 8


def test_the_executor_is_usable_after_a_failure(pair):
    assert pair.run(plan(toys.program(toys.slow), range(5), 0.0)) == 10


def test_a_task_that_kills_its_worker_once_runs_elsewhere(pair, tmp_path):
    assert pair.run(plan(toys.program(toys.deadly), range(6), tmp_path, {2: 1})) == 6
    assert toys.attempts(tmp_path)["2"] >= 2
    wait_until(lambda: pair.n_workers == 2, 20, "nanny's new worker")


def test_memory_refusal_counts_the_process_itself(pair):
    assert pair._capacity.share == 0.95
    assert 0.95 * MEMORY - (512 << 20) < pair.task_memory < 0.95 * MEMORY - (40 << 20)
    with pytest.raises(MemoryBoundExceeded, match=r"worker memory 1 GiB; an idle worker takes .* MiB.*--worker-memory") as caught:
        pair.run(plan(toys.program(toys.slow, task_bytes=1 << 30), range(3), 0.0))
    assert caught.value.needed == 1 << 30


def test_workers_that_would_not_live_through_their_start_are_refused():
    """They were started again and again for five minutes."""
    with (
        pytest.raises(MemoryBoundExceeded, match=r"each worker would have 135 MiB.*--worker-memory"),
        open_executor("local:2", worker_memory="135MiB"),
    ):
        pass


def test_plans_stay_below_where_the_first_worker_pauses():
    facts = [WorkerFacts({}, 1 << 30, 1, 100 << 20, 0.95), WorkerFacts({}, 2 << 30, 2, 50 << 20, 0.8)]
    assert weakest_capacity(dict(zip("ab", facts, strict=True))) == Capacity(1 << 30, 2, 100 << 20, 0.8)


def test_threads_share_the_memory_of_their_worker_and_give_the_same_bits():
    with open_executor("local:1x2", worker_memory=MEMORY) as executor, open_executor() as driver:
        assert executor.task_memory < 0.5 * MEMORY
        assert everything(executor) == everything(driver)


def test_measured_memory_stays_within_the_plan(pair):
    nbytes = 128 << 20
    work = plan(toys.program(toys.allocate, task_bytes=nbytes), [f"memory-{i}" for i in range(4)], nbytes)
    assert pair.run(work) == 4 * nbytes / 8
    used = pair.peak_memory(reset=True)
    resting = pair.peak_memory()
    assert all(resting[worker] < used[worker] - nbytes / 2 for worker in used)
    assert pair.run(work) == 4 * nbytes / 8
    grown = [peak - resting[worker] for worker, peak in pair.peak_memory().items()]
    assert all(0.9 * nbytes < growth <= 1.05 * work.memory_bound for growth in grown)


def test_results_lie_once_in_the_worker_that_joins_them(pair):
    """Pickled into one byte string, or written to disk for want of memory that kept blocks take, they would lie there twice or more."""
    nbytes = 32 << 20
    work = plan(toys.program(toys.listed_ones, toys.join, result_bytes=nbytes), range(4), nbytes)
    pair.peak_memory(reset=True)
    resting = pair.peak_memory()
    assert sum(part.sum() for part in pair.run(work)) == 4 * nbytes
    grown = max(peak - resting[worker] for worker, peak in pair.peak_memory().items())
    assert 3 * nbytes < grown < 5 * nbytes


def test_what_the_measuring_question_loads_belongs_to_the_process():
    loaded = []
    assert own_bytes(lambda: 0) + (60 << 20) < own_bytes(lambda: loaded.append(np.ones(64 << 17)) or 0)


def test_shared_arguments_arrive_writeable_and_in_their_order(pair):
    array = np.asfortranarray(np.ones((50, 30)))
    assert pair.run(plan(toys.program(toys.writeable, toys.join), range(2), array)) == [True, True, True, True]


def test_shared_arguments_that_cannot_travel_are_refused(pair):
    with pytest.raises(TypeError, match="plan 'toy': its shared arguments cannot be sent to workers"):
        pair.run(plan(toys.program(toys.slow), range(2), threading.Lock()))


def test_large_shared_arguments_are_logged(pair, caplog):
    pair.run(plan(toys.program(toys.writeable, toys.join), range(2), np.zeros(1 << 17)))
    assert not caplog.records
    pair.run(plan(toys.program(toys.writeable, toys.join), range(2), np.zeros((1 << 17) + 100)))
    assert "1 MiB of shared arguments in every task" in caplog.text


def test_blocks_stay_on_the_worker_that_read_them(pair, tmp_path):
    refs = [f"stay-{i}" for i in range(16)]
    for _ in range(4):
        assert pair.run(plan(toys.program(toys.cached), refs, tmp_path)) == 16
    reads = sum(toys.attempts(tmp_path).values())
    # Every block is read once; a few may move at the start or when one worker is late.
    assert 16 <= reads <= 22


def set_environment(name, value):
    os.environ[name] = value


def read_environment(ref, names):
    return [tuple(os.environ.get(name) for name in names)]


def test_setup_runs_on_workers_that_join_later_too(pair, tmp_path):
    pair.run_on_workers(set_environment, "GRAMPLANE_TEST_SETUP", "first")
    pair.run_on_workers(set_environment, "GRAMPLANE_TEST_SETUP", "second")
    pids = {process.pid for process in children()}
    assert pair.run(plan(toys.program(toys.deadly), range(2), tmp_path, {0: 1})) == 2
    wait_until(lambda: pair.n_workers == 2 and {p.pid for p in children()} != pids, 20, "new worker")
    found = pair.run(plan(toys.program(read_environment, toys.join), range(8), ["GRAMPLANE_TEST_SETUP"]))
    assert set(found) == {("second",)}
    assert "GRAMPLANE_TEST_SETUP" not in os.environ


def fail_setup():
    raise toys.CustomError("cache", line=3)


def test_a_failing_setup_is_reported(pair):
    with pytest.raises(toys.CustomError, match="cache:3"):
        pair.run_on_workers(fail_setup)


def listening(process):
    return [connection.laddr.ip for connection in process.net_connections() if connection.status == psutil.CONN_LISTEN]


THREADS = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"]


def test_a_local_cluster_from_start_to_end(tmp_path, monkeypatch):
    """Private folders, loopback only, one thread each whatever the caller set, events, busy workers ended, nothing left behind."""
    import dask

    for name in THREADS:
        monkeypatch.setenv(name, "7")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("__DASK")}
    before = {process.pid for process in children()}
    attempts = tmp_path / "attempts"
    attempts.mkdir()
    sink = MemorySink()
    with (
        dask.config.set({"temporary-directory": str(tmp_path)}),
        open_executor(local(2, stall_timeout=2.0), events=sink) as executor,
    ):
        assert {name: value for name, value in os.environ.items() if not name.startswith("__DASK")} == environment
        made = [path for path in tmp_path.iterdir() if path != attempts]
        assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700]
        started = [process for process in children() if process.pid not in before]
        assert len(started) == 2
        assert {address for process in [psutil.Process(), *started] for address in listening(process)} == {"127.0.0.1"}
        assert set(executor.run(plan(toys.program(read_environment, toys.join), range(4), THREADS))) == {("1",) * 4}
        assert executor.run(plan(toys.program(toys.flaky), range(5), attempts, {1: 1})) == 5
        with pytest.raises(Stalled, match=r"no task finished.*stall_timeout.*running"):
            executor.run(plan(toys.program(toys.slow), range(2), 60.0))
    assert [path for path in tmp_path.iterdir() if path != attempts] == []
    assert {process.pid for process in children()} <= before
    opened = sink.events[0]
    assert (opened["event"], opened["kind"], opened["n_workers"], opened["worker_memory"]) == ("phase", "local", 2, MEMORY)
    finish = sink.named("finish")[1]
    assert (finish["n_tasks"], finish["retries"]) == (5, 1)
    assert 20 << 20 < finish["peak_memory"] < MEMORY


def test_a_full_disk_is_told_from_a_standstill(pair):
    limits = Limits(stall_timeout=0.5, free_disk=1 << 60)
    with (
        executor_for_client(pair._link.client, limits=limits) as executor,
        pytest.raises(WorkerDiskFull, match=r"disk of Dask's temporary files is full on tls://.*free"),
    ):
        executor.run(plan(toys.program(toys.slow), range(2), 2.5))


def test_an_interrupt_cancels_the_run(pair, tmp_path):
    threading.Timer(0.6, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        pair.run(plan(toys.program(toys.noted_slow), range(40), tmp_path, 0.3))
    wait_until(lambda: not pair._link.client.cluster.scheduler.tasks, 5, "scheduler empty")
    time.sleep(0.5)
    ran = len(toys.attempts(tmp_path))
    time.sleep(0.7)
    assert len(toys.attempts(tmp_path)) == ran < 20
    assert pair.run(plan(toys.program(toys.slow), range(5), 0.0)) == 10


def digest():
    return "same"


def different_digest():
    return os.getpid()


def fail_elsewhere(pid):
    if os.getpid() != pid:
        fail_setup()


def test_workers_must_agree_with_the_driver(pair):
    client = pair._link.client
    with executor_for_client(client, preflight=digest) as executor:
        assert executor.kind == "client"
    with pytest.raises(PreflightFailed, match=r"worker tls://\S+ found \d+, the driver found \d+"):
        executor_for_client(client, preflight=different_digest)
    with pytest.raises(PreflightFailed, match=r"worker tls://\S+ failed the check.*cache:3"):
        executor_for_client(client, preflight=partial(fail_elsewhere, os.getpid()))
    with pytest.raises(toys.CustomError):
        executor_for_client(client, preflight=fail_setup)
    assert client.status == "running"


@pytest.mark.parametrize("blocked", [False, True])
@pytest.mark.parametrize("package", ["gramplane", "numpy"])
def test_workers_with_other_software_are_refused(pair, monkeypatch, package, blocked):
    from gramplane.cluster.workers import preflight

    real = preflight.software_versions()
    monkeypatch.setattr(preflight, "software_versions", lambda: {**real, package: "99.1"})
    if blocked:
        monkeypatch.setattr(Link, "ask_scheduler", lambda self, function: ValueError("not allowed"))
    who = "worker tls://.*" if blocked else "the scheduler"
    with pytest.raises(VersionMismatch, match=f"{who} runs {package} {real[package]}, the driver {package} 99.1"):
        executor_for_client(pair._link.client)


def test_other_differences_are_a_warning(pair, monkeypatch):
    from gramplane.cluster.workers import preflight

    real = preflight.software_versions()
    monkeypatch.setattr(preflight, "software_versions", lambda: {**real, "scipy": "99.1"})
    sink = MemorySink()
    executor = executor_for_client(pair._link.client, events=sink, worker_memory="2GiB")
    *versions, memory = [event["message"] for event in sink.named("warning")]
    assert len(versions) == 3
    assert all(f"scipy {real['scipy']}/99.1" in message for message in versions)
    assert memory == "worker memory of 2 GiB was asked for, the smallest worker has 1 GiB"
    assert executor.worker_memory == MEMORY


def test_workers_that_joined_later_with_other_software_are_refused(pair, monkeypatch):
    from gramplane.cluster import program

    monkeypatch.setattr(program, "own_version", lambda: "99.1")
    with pytest.raises(VersionMismatch, match=r"runs gramplane .*, the driver gramplane 99\.1"):
        pair.run(plan(toys.program(toys.slow), range(3), 0.0))


def test_a_factory_makes_the_cluster():
    with open_executor(IN_PROCESS) as executor:
        assert (executor.kind, executor.n_workers) == ("factory", 1)
        assert executor.run(plan(toys.program(toys.slow), range(3), 0.0)) == 3
        cluster = executor._link.client.cluster
    assert cluster.status.name == "closed"


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("os:getcwd", "returned str"),
        ("os:nothing", "nothing"),
        ("no_such_module:f", "no_such_module"),
        ("os:sep", "not callable"),
        ("json:loads", "TypeError: loads"),
    ],
)
def test_bad_factories_are_named(target, reason):
    with pytest.raises(ValueError, match=reason), open_executor(f"factory:{target}"):
        pass


def test_a_closed_cluster_is_lost():
    with open_executor(IN_PROCESS) as executor:
        threading.Timer(0.5, executor._link.client.cluster.close).start()
        with pytest.raises(ClusterLost):
            executor.run(plan(toys.program(toys.slow), range(200), 0.1))


def test_executors_inside_a_shared_block_have_the_same_worker_processes_and_end_with_it():
    pids = []
    with share_local_clusters():
        for config in (local(1), local(1), local(1, stall_timeout=50.0)):
            with open_executor(config) as executor:
                pids.append(executor.run(plan(toys.program(toys.process_id), [0])))
        processes = [psutil.Process(pid) for pid in set(pids)]
        assert pids[0] == pids[1] != pids[2]
        assert all(process.is_running() for process in processes)
    assert not psutil.wait_procs(processes, timeout=15)[1]


SCRIPT = """
import sys, time
from gramplane.cluster import open_executor, plan
from tests.support import toys
if __name__ == "__main__":
    with open_executor("local:1", worker_memory="1GiB") as executor:
        print("ready", flush=True)
        executor.run(plan(toys.program(toys.slow), range(100), 0.5))
"""


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["SIGINT", "SIGKILL"])
def test_a_driver_that_ends_takes_its_workers_along(tmp_path, sign):
    import signal

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": import_path(), "TMPDIR": str(tmp_path / "tmp")}
    Path(env["TMPDIR"]).mkdir()
    with open(tmp_path / "stderr", "wb") as said:
        driver = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=said, env=env, start_new_session=True)
    assert driver.stdout is not None
    assert driver.stdout.readline() == b"ready\n"
    time.sleep(0.7)
    workers = children(driver.pid)
    assert len(workers) == 1
    if sign == "SIGINT":
        # As a terminal does: to the whole group.
        os.killpg(driver.pid, signal.SIGINT)
    else:
        driver.kill()
    assert driver.wait(15) != 0
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert not alive
    if sign == "SIGINT":
        assert list(Path(env["TMPDIR"]).iterdir()) == []
        # Workers do not hear the signal: the one traceback is the driver's own.
        messages = (tmp_path / "stderr").read_text()
        assert (messages.count("Traceback"), messages.rstrip().splitlines()[-1]) == (1, "KeyboardInterrupt"), messages

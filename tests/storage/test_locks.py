"""Locks: one owner at a time, named when in the way, free at once when killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gramplane.storage import RunLocked, RunStore
from gramplane.storage.locks import Lease, file_lock
from gramplane.storage.temporary import locked_files

HOLD = """
import os, sys, time
from gramplane.storage import RunStore, RunLocked
try:
    with RunStore.open(sys.argv[1]).lock():
        if "fork" in sys.argv and os.fork() == 0:
            print("child", os.getpid(), flush=True)
            time.sleep(60)
        if "fork" not in sys.argv:
            print("held", flush=True)
        time.sleep(60 if "once" not in sys.argv else 1.5)
except RunLocked as error:
    print("locked", error, flush=True)
    sys.exit(99)
"""


@pytest.fixture
def run(tmp_path):
    return RunStore.create(tmp_path / "run", {})


def holder(run, *flags):
    return subprocess.Popen([sys.executable, "-c", HOLD, str(run.path), *flags], stdout=subprocess.PIPE, text=True)


def test_a_lock_is_free_although_a_process_that_starts_has_its_file_open(tmp_path):
    """Between fork and exec a child has every file of its parent open, and a lock belongs to the open file."""
    before = set(locked_files)
    with file_lock(tmp_path / "lock"):
        (held,) = locked_files - before
        of_child = os.dup(held)
    try:
        with file_lock(tmp_path / "lock"):
            pass
    finally:
        os.close(of_child)


def test_second_owner_is_refused_and_told_who_holds_it(run):
    process = holder(run)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    with pytest.raises(RunLocked, match=rf"process {process.pid} on {os.uname().nodename} since 20\d\d-"), run.lock():
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    with run.lock(), pytest.raises(RunLocked, match=str(os.getpid())), RunStore.open(run.path).lock():
        pass
    with run.lock():
        pass


def test_a_forked_child_does_not_keep_the_lock_of_a_killed_owner(run):
    process = holder(run, "fork")
    assert process.stdout is not None
    word, child = process.stdout.readline().split()
    assert word == "child"
    try:
        process.send_signal(signal.SIGKILL)
        process.wait()
        with run.lock():
            pass
    finally:
        os.kill(int(child), signal.SIGKILL)


def test_of_many_starts_exactly_one_works(run):
    processes = [holder(run, "once") for _ in range(4)]
    codes = [process.wait() for process in processes]
    for process in processes:
        process.stdout.close()
    assert sorted(codes) == [0, 99, 99, 99]


def test_lock_sweeps_orphans_and_survives_an_unreadable_holder(run):
    (run.path / "checkpoints").mkdir()
    orphan = run.path / "checkpoints/.0000000001.npz.0123456789abcdef.tmp"
    orphan.write_bytes(b"x")
    (run.path / "lock").write_bytes(b"\xff not json")
    with run.lock():
        assert not orphan.exists()
        (run.path / "lock").write_bytes(b"\xff")
        with pytest.raises(RunLocked, match="process unknown"), run.lock():
            pass


# -- leases ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bucket():
    return pytest.importorskip("obstore.store").MemoryStore()


def test_lease_excludes_renews_and_is_released(bucket):
    with Lease(bucket, "runs/a", beat=0.05).held() as lease:
        for wait in (False, True):  # a living holder is never robbed, however long one waits
            with pytest.raises(RunLocked, match=f"process {os.getpid()}"), Lease(bucket, "runs/a", beat=0.05).held(wait=wait):
                pass
        time.sleep(0.2)
        lease.check()
        with Lease(bucket, "runs/b", beat=0.05).held():
            pass
    with Lease(bucket, "runs/a").held():
        pass


def test_silent_lease_is_taken_over_by_exactly_one(bucket, monkeypatch):
    dead = Lease(bucket, "k", beat=0.05)
    dead._acquire(False)  # a holder that was killed: no heartbeat
    together = threading.Barrier(3)

    def take():
        together.wait()
        try:
            with Lease(bucket, "k", beat=0.05).held(wait=True):
                time.sleep(0.5)
                return 1
        except RunLocked:
            return 0

    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(lambda _: take(), range(3))) == 1


def test_robbed_owner_notices(bucket):
    with Lease(bucket, "k", beat=0.05).held() as lease:
        bucket.put("k", b'{"pid": 7, "host": "far", "since": "now"}')
        time.sleep(0.2)
        with pytest.raises(RunLocked, match="process 7 on far"):
            lease.check()
    assert b"far" in bytes(bucket.get("k").bytes())  # the other one's lease is left alone


def test_lease_on_a_store_that_only_creates(tmp_path):
    store = pytest.importorskip("obstore.store").LocalStore(tmp_path)
    with Lease(store, "k", beat=60).held(), pytest.raises(RunLocked), Lease(store, "k", beat=60).held():
        pass
    assert not list(tmp_path.iterdir())

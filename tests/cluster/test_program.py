"""Plans and the in-process executor: tree order, counts, memory bound, attempts, failures, events."""

import errno
import json
import logging
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gramplane.cluster import (
    BlockProgram,
    Limits,
    LogSink,
    MemoryBoundExceeded,
    MemorySink,
    TaskFailed,
    combine_tree,
    open_executor,
    parse_cluster,
    plan,
    tee,
)
from tests.support import toys

FAST = parse_cluster("sync", limits=Limits(retry_wait=0.0))


def flat(nested):
    return [nested] if not isinstance(nested, tuple) else [leaf for part in nested for leaf in flat(part)]


def by_levels(n, split_every):
    """The tree written out: group neighbours level by level."""
    items = list(range(n))
    while len(items) > 1:
        groups = [items[i : i + split_every] for i in range(0, len(items), split_every)]
        items = [group[0] if len(group) == 1 else tuple(group) for group in groups]
    return items[0]


def count_nodes(nested):
    return 0 if not isinstance(nested, tuple) else 1 + sum(count_nodes(part) for part in nested)


@given(st.integers(1, 300), st.integers(2, 12))
def test_fold_follows_the_tree(n, split_every):
    work = plan(toys.program(identity, toys.nest), list(range(n)), split_every=split_every)
    with open_executor() as executor:
        found = executor.run(work)
    assert found == by_levels(n, split_every)
    assert flat(found) == list(range(n))
    assert work.n_combines == count_nodes(found)


def identity(ref):
    return ref


@given(st.integers(0, 2000), st.integers(2, 16))
def test_levels_cover_everything_once(n, split_every):
    width = n
    for level in combine_tree(n, split_every):
        assert [lo for lo, _ in level] == [0, *[hi for _, hi in level[:-1]]]
        assert level[-1][1] == width
        assert all(1 <= hi - lo <= split_every for lo, hi in level)
        width = len(level)
    assert width == min(n, 1)


def test_counts_of_the_documented_example():
    work = plan(toys.program(identity), range(40))
    assert (work.n_tasks, work.n_combines) == (40, 6)
    assert work.describe() == {
        "program": "toy",
        "n_tasks": 40,
        "n_combines": 6,
        "split_every": 8,
        "memory_bound": 1000,
        "result_bytes": 8,
    }
    assert "40 tasks" in str(work)


def test_planning_runs_nothing():
    def never(*args):
        raise AssertionError("called")

    work = plan(toys.program(never, never), range(9), "argument")
    assert (work.n_tasks, work.n_combines, work.memory_bound) == (9, 2, 1000)


def test_memory_bound_is_the_largest_step():
    sizes = {"a": 10, "b": 500}
    program = BlockProgram("x", identity, toys.add, sizes.__getitem__, result_bytes=100)
    assert plan(program, ["a", "b"]).memory_bound == 500
    assert plan(program, ["a"]).memory_bound == 10
    assert plan(program, ["a"] * 20).memory_bound == 900
    assert plan(program, ["a"] * 20, split_every=2).memory_bound == 300


def test_empty_plans_and_flat_trees_are_refused():
    with pytest.raises(ValueError, match="plan of 'toy': refs is empty"):
        plan(toys.program(identity), [])
    with pytest.raises(ValueError, match="split_every=1"):
        plan(toys.program(identity), [1], split_every=1)


def test_tuples_are_handed_to_the_chunk_as_they_are():
    with open_executor() as executor:
        assert executor.run(plan(toys.program(toys.own, toys.join), [(1, 2), (3,)])) == [(1, 2), (3,)]


def test_finalize_runs_on_the_driver():
    with open_executor() as executor:
        assert executor.run(plan(toys.program(identity, finalize=str), range(5))) == "10"


def test_memory_refusal_gives_both_numbers_and_a_way_out():
    work = plan(toys.program(identity, task_bytes=3 << 20), range(5))
    with open_executor("sync", worker_memory="2MiB") as executor:
        with pytest.raises(MemoryBoundExceeded, match=r"3 MiB a step.*2 MiB.*--worker-memory.*--budget") as caught:
            executor.run(work)
        assert (caught.value.needed, caught.value.available) == (3 << 20, 2 << 20)
    with open_executor("sync", worker_memory="4MiB") as executor:
        assert executor.run(work) == 10
        executor.reserved = 2 << 20
        with pytest.raises(MemoryBoundExceeded, match="2 MiB are reserved"):
            executor.run(work)


def test_memory_is_checked_before_anything_runs(tmp_path):
    work = plan(toys.program(toys.flaky, task_bytes=3 << 20), range(5), tmp_path, {})
    with open_executor("sync", worker_memory="2MiB") as executor, pytest.raises(MemoryBoundExceeded):
        executor.run(work)
    assert toys.attempts(tmp_path) == {}


@pytest.mark.parametrize(
    ("table", "expected"),
    [({}, {"0": 1, "1": 1, "2": 1}), ({1: 1}, {"0": 1, "1": 2, "2": 1}), ({0: 3, 2: 2}, {"0": 4, "1": 1, "2": 3})],
)
def test_flaky_storage_is_tried_again(tmp_path, table, expected):
    sink = MemorySink()
    with open_executor(FAST, events=sink) as executor:
        assert executor.run(plan(toys.program(toys.flaky), range(3), tmp_path, table)) == 3
    assert toys.attempts(tmp_path) == expected
    assert sink.named("finish")[0]["retries"] == sum(expected.values()) - 3


def test_attempts_are_limited_and_the_block_is_named(tmp_path):
    with (
        open_executor(FAST) as executor,
        pytest.raises(TaskFailed, match=r"^task 2 of 'toy' failed on driver after 4 attempts: FlakyError") as caught,
    ):
        executor.run(plan(toys.program(toys.flaky), range(3), tmp_path, {1: 9}))
    assert toys.attempts(tmp_path) == {"0": 1, "1": 4}
    assert (caught.value.block, caught.value.attempts) == ("1", 4)
    assert isinstance(caught.value.__cause__, toys.FlakyError)


@pytest.mark.parametrize("kind", [ValueError, KeyError, FileNotFoundError, PermissionError, MemoryError, ZeroDivisionError])
def test_lasting_errors_are_not_tried_again(tmp_path, kind):
    with open_executor(FAST) as executor, pytest.raises(TaskFailed) as caught:
        executor.run(plan(toys.program(toys.flaky), range(3), tmp_path, {1: 1}, kind))
    assert toys.attempts(tmp_path)["1"] == 1
    assert type(caught.value.__cause__) is kind


def out_of_space(ref, folder):
    toys.note(folder, ref)
    raise OSError(errno.ENOSPC, "No space left on device", "/store/chunk")


def test_a_full_disk_is_not_tried_again(tmp_path):
    with open_executor(FAST) as executor, pytest.raises(TaskFailed) as caught:
        executor.run(plan(toys.program(out_of_space), range(3), tmp_path))
    assert toys.attempts(tmp_path) == {"0": 1}
    assert isinstance(caught.value.__cause__, OSError)
    assert (caught.value.__cause__.errno, caught.value.__cause__.filename) == (errno.ENOSPC, "/store/chunk")


def test_a_failing_combine_is_named():
    with (
        open_executor() as executor,
        pytest.raises(TaskFailed, match="joining the results of tasks 1 to 8 of 'toy' failed") as caught,
    ):
        executor.run(plan(toys.program(identity, toys.bad_combine), range(9)))
    assert caught.value.__cause__.line == 8


def test_waits_between_attempts_grow(tmp_path):
    config = parse_cluster("sync", limits=Limits(retry_wait=0.02))
    began = time.perf_counter()
    with open_executor(config) as executor:
        executor.run(plan(toys.program(toys.flaky), [0], tmp_path, {0: 3}))
    assert time.perf_counter() - began >= 0.02 + 0.04 + 0.08


def test_events_of_a_run():
    sink = MemorySink()
    with open_executor(events=sink) as executor:
        executor.run(plan(toys.program(identity), range(9)))
        with pytest.raises(TaskFailed):
            executor.run(plan(toys.program(identity, toys.bad_combine), range(9)))
    assert [event["event"] for event in sink.events] == ["plan", "start", "finish", "plan", "start", "finish"]
    good, bad = sink.named("finish")
    assert (good["program"], good["n_tasks"], good["n_combines"], good["retries"]) == ("toy", 9, 2, 0)
    assert 0 <= good["task_seconds_median"] <= good["task_seconds_max"] <= good["seconds"]
    assert bad["error"].startswith("TaskFailed: ")
    json.dumps(sink.events)


def test_sinks(caplog):
    kept: list[object] = []
    send = tee([kept.append, MemorySink(), LogSink()])
    with caplog.at_level(logging.DEBUG, "gramplane.cluster"):
        send({"event": "plan", "n_tasks": 3})
        send({"event": "warning", "message": "careful"})
    assert kept == [{"event": "plan", "n_tasks": 3}, {"event": "warning", "message": "careful"}]
    assert [record.levelname for record in caplog.records] == ["DEBUG", "WARNING"]


def test_in_process_hooks():
    seen = []
    with open_executor() as executor:
        executor.run_on_workers(seen.append, 5)
        assert seen == [5]
        assert (executor.kind, executor.n_workers) == ("sync", 1)
        assert executor.peak_memory()["driver"] > 1 << 20
        assert executor.worker_memory > 1 << 20


def test_peak_memory_can_be_reset():
    with open_executor() as executor:
        block = np.ones(16 << 20)
        before = executor.peak_memory()["driver"]
        del block
        executor.peak_memory(reset=True)
        assert executor.peak_memory()["driver"] < before - (64 << 20)


def test_the_in_process_executor_needs_no_dask():
    code = (
        "import sys; from gramplane.cluster import *; from tests.support import toys\n"
        "with open_executor('sync') as e: assert e.run(plan(toys.program(toys.own, toys.join), [1, 2])) == [1, 2]\n"
        "heavy = {'dask', 'distributed', 'zarr', 'numba', 'sklearn', 'cryptography'} & set(sys.modules); assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr

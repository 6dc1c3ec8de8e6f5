"""What all tests share: a draw of cases for the gate, no walks through the suite for garbage, one BLAS thread, and Ctrl-C that is heard."""

import gc
import os
import signal
import tempfile
import zlib
from collections import defaultdict
from pathlib import Path

import hypothesis
import pytest
import threadpoolctl

from gramplane.kernels.jit import one_thread

# The gate draws the same examples every time: what it says is about the change. HYPOTHESIS_PROFILE=drawn looks for new ones.
hypothesis.settings.register_profile("gate", derandomize=True)
hypothesis.settings.register_profile("drawn")
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


def pytest_configure():
    """Hear interrupts, as their children do then: a shell starts what it puts into the background with interrupts ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect the tests without looking for garbage, set what stands then aside for good, and let BLAS work in one thread.

    Modules and thousands of tests are some 400,000 objects: walking through them took a quarter of the time of collecting the tests, and a
    fourteenth of the time of tests that compile. Two threads of BLAS in each of two processes on two cores wait for one another most of
    the time: general solvers of small problems took ten times as long. By then every test module has loaded its BLAS; a test that is about
    threads asks for more.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
        threadpoolctl.threadpool_limits(1, user_api="blas")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """Of a test over several lists of values the gate runs a fixed draw, in which every value of every list is; the others are slow."""
    seen = defaultdict(set)
    for item in items:
        values = _values_of(item)
        if len(values) < 2 or item.get_closest_marker("slow"):
            continue
        known = seen[item.nodeid.partition("[")[0]]
        if values <= known and zlib.crc32(item.nodeid.encode()) % 8:
            item.add_marker(pytest.mark.slow)
        known |= values


def _values_of(item: pytest.Item) -> set[tuple[object, ...]]:
    """The values of a case: one of every list that its test is over, and of every fixture with several."""
    if not hasattr(item, "callspec"):
        return set()
    left, values = dict(item.callspec.params), set()
    for mark in item.iter_markers("parametrize"):
        names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else mark.args[0]
        values.add((str(names), *(id(left.pop(name)) for name in names if name in left)))
    return values | {(name, id(value)) for name, value in left.items()}


@pytest.fixture(autouse=True)
def _one_thread(request: pytest.FixtureRequest):
    """Hold BLAS to one thread for the whole of a test, as fits do: each sub-problem would take hold of it anew. Marked ``threads``: not."""
    if request.node.get_closest_marker("threads"):
        yield
        return
    with one_thread():
        yield


@pytest.fixture
def quick_path(tmp_path):
    """An empty folder in memory where there is one: what is flushed to a disk thousands of times says nothing more here."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="gramplane-walk-", dir="/dev/shm") as folder:
        yield Path(folder)

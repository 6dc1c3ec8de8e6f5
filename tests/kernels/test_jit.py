"""Compilation options and the BLAS thread limit."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import threadpoolctl

from gramplane.kernels.jit import compiled, one_thread

pytestmark = pytest.mark.threads


def blas_threads():
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


@pytest.fixture
def two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if max(blas_threads()) < 2:
            pytest.skip("BLAS here has one thread only")
        yield


@compiled
def plain(x):
    return x / 0.0


@compiled(reassociate=True)
def total(x):
    s = 0.0
    for v in x:
        s += v
    return s


def test_compiled_code_divides_as_ieee_and_is_cached_without_the_interpreter_lock():
    assert plain(1.0) == np.inf
    options = plain.targetoptions
    assert options["nogil"]
    assert "fastmath" not in options
    assert total.targetoptions["fastmath"] == {"reassoc"}
    assert plain._cache.cache_path.startswith(os.environ.get("NUMBA_CACHE_DIR", str(Path(__file__).parent / "__pycache__")))


def test_reassociated_sums_keep_infinity_and_nan():
    assert np.isnan(total(np.array([1.0, np.nan, 2.0, 3.0])))
    assert total(np.array([np.inf] + [1.0] * 9)) == np.inf


def test_one_thread_inside_and_the_callers_setting_after(two_threads):
    with one_thread():
        assert set(blas_threads()) == {1}
        with one_thread():
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert max(blas_threads()) == 2


def test_setting_comes_back_after_an_error(two_threads):
    with pytest.raises(KeyError), one_thread():
        raise KeyError
    assert max(blas_threads()) == 2


def test_limit_holds_in_a_thread_that_was_not_the_first_to_set_one(two_threads):
    seen = []

    def look():
        with one_thread():
            seen.append(set(blas_threads()))
        seen.append(max(blas_threads()))

    worker = threading.Thread(target=look, daemon=True)
    worker.start()
    worker.join()
    assert seen == [{1}, 2]


def test_last_of_several_threads_restores(two_threads):
    inside, leave = threading.Barrier(3), threading.Event()

    def hold():
        with one_thread():
            inside.wait()
            leave.wait()

    workers = [threading.Thread(target=hold, daemon=True) for _ in range(2)]
    for worker in workers:
        worker.start()
    with one_thread():
        inside.wait()
    assert set(blas_threads()) == {1}
    leave.set()
    for worker in workers:
        worker.join()
    assert max(blas_threads()) == 2


def test_entering_again_is_cheap():
    with one_thread():
        seconds = []
        for _ in range(50):
            start = time.perf_counter()
            for _ in range(20):
                with one_thread():
                    pass
            seconds.append((time.perf_counter() - start) / 20)
    assert min(seconds) < 20e-6


def test_processes_name_what_they_compile_apart():
    """Names of cached code hold a number of the process that compiled it; two processes that count from 1 give one name to two things."""
    program = "import gramplane.kernels.jit; from numba.core.bytecode import FunctionIdentity as f; print(next(f._unique_ids))"
    first, second = (int(subprocess.check_output([sys.executable, "-c", program])) for _ in range(2))
    assert min(first, second) > 1 << 20
    assert abs(first - second) > 1 << 20


@pytest.mark.slow
def test_a_cache_that_names_a_class_that_is_no_more_is_written_anew(tmp_path):
    text = "from typing import NamedTuple\nfrom gramplane.kernels.jit import compiled\nclass Old(NamedTuple):\n    x: float\n"
    text += "@compiled\ndef twice(a):\n    return 2.0 * a.x\nprint(twice(Old(2.0)), sum(twice.stats.cache_hits.values()))\n"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    said = []
    for name in ("Old", "", "New", ""):
        if name:
            (tmp_path / "example.py").write_text(text.replace("Old", name))
        done = subprocess.run([sys.executable, "-c", "import example"], env=environment, capture_output=True, text=True, check=True)
        said.append(done.stdout.split())
    assert said == [["4.0", "0"], ["4.0", "1"]] * 2


@pytest.mark.slow
def test_a_change_of_a_file_is_noticed_by_functions_of_others_that_call_what_it_compiles(tmp_path):
    head = "from gramplane.kernels.jit import compiled\n"
    (tmp_path / "middle.py").write_text(head + "from lowest import one\n@compiled\ndef two():\n    return 2.0 * one()\n")
    (tmp_path / "highest.py").write_text(head + "from middle import two\n@compiled\ndef three():\n    return two()\nprint(three())\n")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    said = []
    for value in ("1.0", "21.00"):
        (tmp_path / "lowest.py").write_text(head + f"@compiled\ndef one():\n    return {value}\n")
        command = [sys.executable, "-c", "import highest; print(sum(highest.three.stats.cache_hits.values()))"]
        for _ in range(2):
            said.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split())
    assert said == [["2.0", "0"], ["2.0", "1"], ["42.0", "0"], ["42.0", "1"]]

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

"""What all tests share: no walks through the suite for garbage, and one BLAS thread for oracles as for solvers."""

import gc

import pytest
import threadpoolctl

gc.disable()  # Until the tests are collected: nothing of what is imported and listed there is garbage.


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Set what stands aside for good, and let BLAS work in one thread until a test asks for more.

    Modules and thousands of tests are some 400,000 objects: walking through them took a quarter of the time of collecting the tests, and a
    fourteenth of the time of tests that compile. Two threads of BLAS in each of two processes on two cores wait for one another most of
    the time: general solvers of small problems took ten times as long. By then every test module has loaded its BLAS.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    threadpoolctl.threadpool_limits(1, user_api="blas")

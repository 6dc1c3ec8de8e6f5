"""Every method on real worker processes: the bits of a run in this process on one and on two of them, whoever is killed meanwhile."""

from contextlib import ExitStack
from dataclasses import replace

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS
from gramplane.workflows import battery
from gramplane.workflows.battery import Bench
from gramplane.workflows.worker_battery import (
    a_killed_driver_resumes_on_workers,
    a_worker_killed_within_a_pass_changes_nothing,
    workers_find_the_same_bits,
)
from tests.support.clusters import CommandCluster
from tests.support.distributed import DISTRIBUTED, SMALL
from tests.support.methods import CASES, of_several_blocks

pytestmark = pytest.mark.cluster

QUICK = ("fgm-sparse", "mkl-passes")
"""By columns, and by pairs of rows: the two ways in which passes are divided."""

EVERY = {**{name: replace(of_several_blocks(case), sizes=SMALL) for name, case in CASES.items()}, **DISTRIBUTED}
PARAMS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(EVERY)]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Clusters of one and of two workers, for the whole module."""
    with ExitStack() as stack:
        yield [stack.enter_context(CommandCluster(tmp_path_factory.mktemp("cluster"), workers=k, nanny=k == 2)) for k in (1, 2)]


@pytest.fixture(scope="module")
def joined():
    """The workers that the cluster of two should have seen by now: each that was killed comes back."""
    return [2]


@pytest.fixture(scope="module", params=PARAMS)
def prepared(request, tmp_path_factory):
    """A case with its store and one undisturbed run."""
    case = EVERY[request.param]
    with one_thread():
        return case, battery.prepare_case(case, tmp_path_factory.mktemp(request.param))


def test_one_worker_and_a_killed_driver(prepared, clusters, tmp_path):
    bench = Bench(*prepared, tmp_path)
    workers_find_the_same_bits(bench, clusters[0].config)
    a_killed_driver_resumes_on_workers(bench, clusters[0].config)


def test_two_workers_of_which_one_is_killed_within_a_pass(prepared, clusters, joined, tmp_path):
    bench, pair = Bench(*prepared, tmp_path), clusters[1]
    pair.wait_for_workers(joined[0])
    joined[0] += a_worker_killed_within_a_pass_changes_nothing(bench, pair.config)


def test_every_method_is_here():
    assert {case.method for case in EVERY.values()} == set(METHODS)

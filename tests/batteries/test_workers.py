"""Every method on real worker processes: the bits of a run in this process on one and on two of them, whoever is killed meanwhile."""

from contextlib import ExitStack

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS
from gramplane.workflows import battery
from gramplane.workflows.battery import Bench, a_killed_driver_resumes_on_workers, workers_find_the_same_bits
from tests.support.clusters import CommandCluster
from tests.support.methods import CASES, of_several_blocks

pytestmark = pytest.mark.cluster

FIRST = {case.method: name for name, case in sorted(CASES.items(), key=lambda item: "recompute" in item[0])}
"""One case of every method, that computes blocks anew where there is one; the others are many more of the same kind."""

PARAMS = [name if name in FIRST.values() else pytest.param(name, marks=pytest.mark.slow) for name in sorted(CASES)]


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    """Clusters of one and of two workers, for the whole module."""
    with ExitStack() as stack:
        yield [stack.enter_context(CommandCluster(tmp_path_factory.mktemp("cluster"), workers=k, nanny=k == 2)) for k in (1, 2)]


@pytest.fixture(scope="module", autouse=True)
def small_tasks():
    """Stripes, Gram blocks and tasks so small that every pass has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 600)
        patch.setattr("gramplane.pipeline.passes.blocks.TASK_BYTES", 2500)
        patch.setattr("gramplane.pipeline.grams.sources.TASK_BYTES", 1)
        patch.setattr("gramplane.pipeline.grams.grams.PASS_BYTES", 1)
        patch.setattr("gramplane.pipeline.grams.neighbours.ROWS", 64)
        patch.setattr("gramplane.pipeline.grams.settings.block_rows", lambda n, k: 128)
        yield


@pytest.fixture(scope="module", params=PARAMS)
def prepared(request, tmp_path_factory):
    """A case with its store and one undisturbed run."""
    case = of_several_blocks(CASES[request.param])
    with one_thread():
        return case, battery.prepare_case(case, tmp_path_factory.mktemp(request.param))


def test_two_workers_of_which_one_is_killed(prepared, clusters, tmp_path):
    case, folder = prepared
    pair = clusters[1]
    joined = pair.n_joined()
    if workers_find_the_same_bits(Bench(case, folder, tmp_path), pair.config, lambda: pair.kill_worker(0, with_nanny=False)):
        pair.wait_for_workers(joined + 1)


def test_one_worker_and_a_killed_driver(prepared, clusters, tmp_path):
    case, folder = prepared
    workers_find_the_same_bits(Bench(case, folder, tmp_path), clusters[0].config)
    a_killed_driver_resumes_on_workers(Bench(case, folder, tmp_path), clusters[0].config)


def test_every_method_is_here():
    assert set(FIRST) == set(METHODS)

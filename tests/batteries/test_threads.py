"""BLAS has one thread in every fit, run and pass, however many the process or a worker has: their number would change last bits."""

import json
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pytest
import threadpoolctl

import gramplane.pipeline
from gramplane.cluster import BlockProgram, open_executor, plan
from gramplane.pipeline import FGMClassifier, GroupLassoClassifier, resume_run, run_method
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.pipeline.runs.predict_and_score import predict_store
from gramplane.pipeline.runs.tune import tune
from tests.batteries.test_objectives import estimators
from tests.support.clusters import CommandCluster
from tests.support.methods import CASES
from tests.support.processors import said

pytestmark = pytest.mark.threads


def blas_threads(*_):
    """The most threads that a BLAS of this process would use."""
    return max(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")


@pytest.fixture(autouse=True)
def _two_threads():
    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        if blas_threads() < 2:
            pytest.skip("BLAS here has one thread only")
        yield
        assert blas_threads() == 2


class Watch:
    """A sink of events that notes how many threads BLAS has meanwhile."""

    def __init__(self):
        self.seen = {}

    def __call__(self, event):
        self.seen.setdefault(event["event"], set()).add(blas_threads())


class Stopped(Exception):
    """What a sink raises to end a run."""


@pytest.mark.parametrize("name", ["fgm-sparse", "group-lasso-batch-classes", "mkl-two"])
def test_runs_hold_one_thread_before_and_after_a_resume(name, tmp_path):
    case, before, after = CASES[name], Watch(), Watch()
    case.data(tmp_path / "data.zarr")

    def stop(event):
        before(event)
        if event["event"] == "iteration":
            raise Stopped

    with pytest.raises(Stopped):
        run_method(case.method, case.params, data=str(tmp_path / "data.zarr"), run=str(tmp_path / "run"), extra=case.extra, on_event=stop)
    assert resume_run(str(tmp_path / "run"), on_event=after).status == "done"
    assert "iteration" in before.seen and {"resume", "done"} <= set(after.seen)
    assert set().union(*before.seen.values(), *after.seen.values()) == {1}


def test_grids_predictions_and_gram_stores_hold_one_thread(tmp_path):
    data, watch = str(tmp_path / "data.zarr"), Watch()
    CASES["fgm-sparse"].data(tmp_path / "data.zarr")
    tune("fgm", {"C": [1.0, 2.0]}, params={"B": 3, "max_rounds": 2}, data=data, run=str(tmp_path / "grid"), folds=2, on_event=watch)
    predict_store(str(tmp_path / "grid"), data, str(tmp_path / "out.npz"), on_event=watch)
    build_grams(data, ["rbf(gamma=0.5)", "linear"], str(tmp_path / "grams.zarr"), on_event=watch)
    assert "finish" in watch.seen and set().union(*watch.seen.values()) == {1}


def test_fits_of_arrays_hold_one_thread():
    watch, rng = Watch(), np.random.default_rng(0)
    X, y = rng.standard_normal((40, 12)), np.resize([-1, 1], 40)
    FGMClassifier(B=3, callbacks=[watch]).fit(X, y)
    assert "iteration" in watch.seen and set().union(*watch.seen.values()) == {1}


def test_a_fit_has_the_same_bits_for_any_number_of_threads():
    """Inner products of more than 10,000 numbers, which OpenBLAS shares among its threads."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30_000, 12))
    y = np.where(X @ rng.standard_normal(12) + 3 * rng.standard_normal(30_000) > 0, 1, -1)
    found = []
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            fit = GroupLassoClassifier(groups=np.arange(12) // 3, algorithm="fista", lam=0.05, scale=None).fit(X, y)
        found.append((fit.coef_.tobytes(), fit.objective_, fit.dual_gap_))
    assert found[0] == found[1]


@dataclass(frozen=True)
class Ref:
    nbytes: int = 8


@pytest.mark.slow
@pytest.mark.cluster
def test_steps_of_passes_hold_one_thread_on_workers_that_have_more(tmp_path):
    program = BlockProgram("threads", blas_threads, max, attrgetter("nbytes"), 8)
    with CommandCluster(tmp_path, workers=0) as cluster:
        cluster.start_worker(OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="2")
        with open_executor(cluster.config) as executor:
            assert executor.run(plan(program, [Ref()] * 3)) == 2
            assert RunContext(executor, data=None).run_pass(plan(program, [Ref()] * 3)) == 1


def bits_with(threads):
    done = said(
        "from tests.support.thread_bits import kernels, wide; import json, warnings; warnings.simplefilter('ignore'); "
        "print(json.dumps(wide() | kernels()))",
        OPENBLAS_NUM_THREADS=threads,
        OMP_NUM_THREADS=threads,
    )
    return json.loads(done)


@pytest.mark.slow
def test_predictions_of_arrays_have_the_same_bits_for_any_number_of_threads():
    """From 700 columns on OpenBLAS divides a product by its threads: linear machines on arrays followed their number."""
    one, two = bits_with("1"), bits_with("2")
    assert one == two and len(one) == 10


@pytest.mark.parametrize(
    "name", sorted(name for name in estimators() - {"SocialStrengthRanker"} if hasattr(getattr(gramplane.pipeline, name), "predict"))
)
def test_what_an_estimator_decides_it_decides_with_one_thread(name):
    cls, seen = getattr(gramplane.pipeline, name), []

    def values(self, X, **rows):
        seen.append(blas_threads())
        raise Stopped

    model = type(name, (cls,), {"_values": values})()
    calls = [call for call in ("decision_function", "predict", "predict_proba", "score") if hasattr(model, call)]
    for call in calls:
        with pytest.raises(Stopped):
            getattr(model, call)(None)
    assert seen == [1] * len(calls)

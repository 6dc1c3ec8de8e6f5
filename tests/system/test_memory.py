"""What a run says of memory beforehand holds while it runs: every worker process stays within its planned peak."""

import numpy as np
import pytest

from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.svm.dual import svc_problem
from gramplane.kernels.svm.smo import solve_smo
from gramplane.pipeline import run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.pipeline.records.compute import ComputeOptions
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.pipeline.runs.run import executing
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support.commands import wide_store

pytestmark = pytest.mark.cluster

LIMIT = 640 << 20
PARAMS = {"B": 8, "C": 1.0, "max_rounds": 3}
CASES = {
    "features": PARAMS,
    "debiased": {**PARAMS, "debias": True},
    "logistic": {**PARAMS, "loss": "logistic", "fit_intercept": True},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """400 MB of dense columns: more than the cache of a worker may keep."""
    return wide_store(tmp_path_factory.mktemp("memory") / "store", n=4096, d=24_576)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["features", *(pytest.param(case, marks=pytest.mark.slow) for case in ("debiased", "logistic"))])
def test_every_worker_stays_within_the_peak_planned_for_it(store, tmp_path, case):
    events = []
    where = {"cluster": "local:2", "worker_memory": LIMIT}
    said = run_method("fgm", CASES[case], data=str(store), run=str(tmp_path / "dry"), dry_run=True, **where).plan
    run_method("fgm", CASES[case], data=str(store), run=str(tmp_path / "run"), on_event=events.append, **where)
    planned = max(event["planned_peak"] for event in events if event["event"] == "plan")
    measured = max(event["peak_memory"] for event in events if event["event"] == "finish")
    print(f"{case}: measured {measured >> 20} MiB, planned {planned >> 20} MiB, dry run {said['process_bytes_at_most'] >> 20} MiB")
    assert measured <= planned <= LIMIT
    # Not vacuous: the workers held what the plan reserves for blocks.
    assert measured >= 0.25 * LIMIT
    assert measured <= said["process_bytes_at_most"] <= 1.5 * LIMIT


@pytest.mark.slow
def test_gram_matrices_stay_within_the_peak_planned_for_their_workers(tmp_path):
    """Built, read for forms, summed and used by a machine: 300 MB of matrices, which two workers keep."""
    n, limit, events = 3000, 1 << 30, []
    X = np.random.default_rng(0).standard_normal((n, 10)).astype(np.float32)
    data = ingest((X, np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1)), tmp_path / "data")
    kernels = [f"rbf(gamma={0.001 * 2**q})" for q in range(16)]
    said = build_grams(data.url, kernels, str(tmp_path / "g"), cluster="local:2", worker_memory=limit, dry_run=True).figures
    with executing(ComputeOptions("local:2", limit), data, events.append, "grams") as executor:
        resources = Resources(executor, scratch=RunStore.create(tmp_path / "run", {}), driver_memory=40 << 20)
        specs = as_specs(kernels, 10)
        grams = Grams(data, specs, GramSettings.of(data, resources, specs, "store", str(tmp_path / "g")), resources)
        grams.forms(np.ones(n))
        found = solve_smo(grams.combine(np.full(16, 0.0625)), svc_problem(np.where(data.target() > 0, 1.0, -1.0), 1.0), tol=1e-2)
    assert found.converged and found.details["working"] < n
    planned = max(event["planned_peak"] for event in events if event["event"] == "plan")
    measured = max(event["peak_memory"] for event in events if event["event"] == "finish")
    print(f"measured {measured >> 20} MiB, planned {planned >> 20} MiB, dry run {said['process_bytes_at_most'] >> 20} MiB")
    assert measured <= planned <= limit
    assert measured >= 0.25 * limit
    assert measured <= said["process_bytes_at_most"] <= 2 * limit

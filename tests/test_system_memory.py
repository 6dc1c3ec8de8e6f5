"""What a run says of memory beforehand holds while it runs: every worker process stays within its planned peak."""

import pytest

from gramplane.pipeline import run_method
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


@pytest.mark.parametrize("case", CASES)
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

"""MK-MTFL on worker processes: matrices in a store and nowhere, a worker killed in mid-run, one worker left; always the same bits."""

import numpy as np
import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import predict_store, run_method, score_store
from gramplane.pipeline.methods.multitask_mkl import solve_pass as task_solves
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.battery import model_bytes, without_times
from tests.support.clusters import CommandCluster, wait_until

pytestmark = pytest.mark.cluster

PARAMS = {"kernels": ["rbf(gamma=0.5)", "rbf(gamma=1)[0:3]", "linear", "linear cosine"], "p": 6.0, "tol": 1e-3}


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setattr(task_solves, "BATCH_BYTES", 200_000)
    with one_thread():
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A store of six tasks in mixed order, and the run in this process."""
    folder, rng = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    X, task = rng.normal(size=(480, 6)), rng.integers(0, 6, 480)
    y = np.where(X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.normal(size=480) > 0, "yes", "no")
    ingest((X, y), folder / "store", task_column=task)
    with one_thread():
        run_method("multitask-mkl", PARAMS, data=str(folder / "store"), run=str(folder / "straight"))
    return folder


def run_on(place, run, cluster, policy, on_event=None):
    params = {**PARAMS, "grams": policy, **({"gram_store": str(place / f"grams-{run.name}")} if policy == "store" else {})}
    run_method("multitask-mkl", params, data=str(place / "store"), run=str(run), cluster=cluster, on_event=on_event)


def same(place, run):
    """Every bit of the model but for the parameters that say where matrices lie, and every figure on the way."""
    one, two = (RunStore.open(folder) for folder in (run, place / "straight"))
    arrays = [{name: part for name, part in model_bytes(folder).items() if "/c/" in name} for folder in (run, place / "straight")]
    assert arrays[0] == arrays[1]
    assert len(arrays[0]) > 5
    assert [without_times(row) for row in one.history()] == [without_times(row) for row in two.history()]


def test_the_same_bits_on_workers_with_one_killed_and_with_one_left(place, tmp_path, tmp_path_factory):
    killed, passes = [], []

    def kill_in_second_pass(event):
        if event["event"] == "start" and event["program"] == "task-solves":
            passes.append(event)
            if len(passes) == 2:
                killed.append(cluster.living[0])
                cluster.kill_worker(killed[0])

    with CommandCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        events = []
        run_on(place, tmp_path / "recompute", cluster.config, "recompute", events.append)
        same(place, tmp_path / "recompute")
        starts = [event for event in events if event["event"] == "start" and event["program"] == "task-solves"]
        assert all(event["n_tasks"] > 2 for event in starts)
        run_on(place, tmp_path / "store", cluster.config, "store", kill_in_second_pass)
        wait_until(lambda: killed and killed[0] not in cluster.living, 10, "the kill")
        same(place, tmp_path / "store")
        run_on(place, tmp_path / "alone", cluster.config, "store")
        same(place, tmp_path / "alone")
        far = predict_store(str(tmp_path / "store"), str(place / "store"), str(tmp_path / "far.npz"), cluster=cluster.config)
    near = predict_store(str(tmp_path / "store"), str(place / "store"), str(tmp_path / "near.npz"))
    assert far["predicted"] == near["predicted"]
    assert (tmp_path / "far.npz").read_bytes() == (tmp_path / "near.npz").read_bytes()
    assert score_store(str(tmp_path / "store"), str(place / "store"))["accuracy"] > 0.8

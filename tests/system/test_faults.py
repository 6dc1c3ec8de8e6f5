"""Commands that lose all workers or the scheduler for good, or are killed at any moment: the run goes on elsewhere to the same bits.

Workers and drivers killed at a step of every method: `tests/batteries/test_workers.py`; signals: `tests/workflows/test_signals.py`.
"""

import random
import re
import shutil
import time

import numpy as np
import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import MKLClassifier, resume_run, run_method
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.storage import BlockStore
from gramplane.storage.ingest import ingest
from tests.support.clusters import CommandCluster, wait_until
from tests.support.commands import PARAMS, at_random, equal_runs, fit_words, is_resumable, rounds, start, wait_for_rounds, wide_store
from tests.support.fgm_problems import planted

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a store of three tasks a pass, and the run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("faults")
    wide_store(folder / "store")
    with one_thread():
        done = run_method("fgm", PARAMS, data=str(folder / "store"), run=str(folder / "straight"))
    assert done.summary["rounds"] == PARAMS["max_rounds"]
    return folder


def test_no_workers_come_back(place, tmp_path):
    """Exit 4 once the timeout is over; the run goes on in one process."""
    run = tmp_path / "run"
    with CommandCluster(tmp_path, workers=1) as cluster:
        words = [*fit_words(place / "store", run), "--cluster", cluster.config]
        command = start(words, tmp_path, GRAMPLANE_NO_WORKERS_TIMEOUT="2")
        wait_for_rounds(command, run, 3)
        for number in cluster.living:
            cluster.kill_worker(number)
        assert command.wait() == 4, command.messages
    assert "no_workers_timeout" in command.result["error"]
    assert 3 <= is_resumable(run) < PARAMS["max_rounds"]
    assert resume_run(str(run), cluster="sync").status == "done"
    equal_runs(run, place / "straight")


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [5])
def test_the_scheduler_killed(place, tmp_path, times):
    """Exit 4 and a sound checkpoint; the run goes on on a new cluster."""
    rng = random.Random(times)
    for i in range(times):
        run, folders = tmp_path / f"run-{i}", [tmp_path / f"{name}-{i}" for name in ("first", "next")]
        for folder in folders:
            folder.mkdir()
        with CommandCluster(folders[0], workers=1) as first:
            command = start([*fit_words(place / "store", run), "--cluster", first.config], tmp_path)
            wait_for_rounds(command, run, 2)
            at_random(rng, command, run, 12)
            first.kill_scheduler()
            assert command.wait() == 4, command.messages
            assert "lost" in command.result["error"] or "does not answer" in command.result["error"]
            # Where nothing finishes for long, the stacks of all threads are told: of Dask's files, but neither an error nor a log of Dask.
            assert "Traceback (most recent call last)" not in command.messages
            assert not re.search(r"^.*distributed[\w.]* - ", command.messages, re.MULTILINE), command.messages
            assert is_resumable(run) >= 2
            wait_until(lambda first=first: not first.living, 60, "workers give up")
        with CommandCluster(folders[1], workers=1) as following:
            assert resume_run(str(run), cluster=following.config).status == "done"
        equal_runs(run, place / "straight")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_driver_killed_at_random_moments(place, tmp_path):
    """Killed again and again, continued on other numbers of workers, at most one round lost each time."""
    rng, run, last = random.Random(10), tmp_path / "run", PARAMS["max_rounds"]
    with CommandCluster(tmp_path, workers=2) as cluster:
        for _ in range(10):
            if (run / "summary.json").exists():
                equal_runs(run, place / "straight")
                shutil.rmtree(run)
            where = rng.choice(["sync", cluster.config, "local:1"])
            command = start([*fit_words(place / "store", run), "--cluster", where], tmp_path)
            wait_for_rounds(command, run, rounds(run) + 1)
            done = at_random(rng, command, run, min(last, rounds(run) + 8))
            command.kill()
            if not (run / "config.json").exists():
                assert command.process.returncode == 4, command.messages  # no cluster came up, as on a machine that is busy: nothing began
            elif not (run / "summary.json").exists():
                assert is_resumable(run) >= done - 1
        assert resume_run(str(run), cluster=cluster.config).status in ("done", "already-done")
    equal_runs(run, place / "straight")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_driver_killed_while_it_writes(tmp_path):
    """Rounds of milliseconds on few data: most of the time goes into history and checkpoints, so most kills hit the writing of one."""
    ingest(planted(1, d=300), tmp_path / "store")
    params = {"B": 1, "C": 100.0, "max_rounds": 60, "max_inner": 1, "outer_tol": 1e-9}

    def finish(run):
        with one_thread():
            assert run_method("fgm", params, data=str(tmp_path / "store"), run=str(run)).status in ("done", "already-done")

    finish(tmp_path / "straight")
    rng, last = random.Random(15), rounds(tmp_path / "straight")
    for i in range(15):
        run = tmp_path / f"run-{i}"
        command = start(fit_words(tmp_path / "store", run, params), tmp_path)
        wait_for_rounds(command, run, rng.randint(1, last - 10), pause=0.002)
        time.sleep(rng.uniform(0.0, 0.02))
        command.kill()
        finish(run)
        equal_runs(run, tmp_path / "straight")


def test_a_fit_on_a_given_gram_store_runs_on_workers(tmp_path):
    """An estimator with matrices in a store and a cluster: the passes run there, the model is that of one process."""
    X = np.random.default_rng(0).standard_normal((600, 20)).astype(np.float32)
    ingest((X, np.where(X[:, 0] + X[:, 1] * X[:, 2] > 0, 1, -1)), tmp_path / "store")
    build_grams(str(tmp_path / "store"), ["rbf(gamma=0.01)", "rbf(gamma=0.1)"], str(tmp_path / "grams"))
    y = BlockStore.open(tmp_path / "store").target()
    near, far = (
        MKLClassifier("precomputed", solver="uniform", grams="recompute", tol=0.1, cluster=where).fit(str(tmp_path / "grams"), y)
        for where in ("sync", "local:2")
    )
    assert near.dual_coef_.tobytes() == far.dual_coef_.tobytes()

"""Fits that lose workers, the cluster, or their own process in the middle: what is left can be continued, and ends in the same bits."""

import random
import shutil
import signal
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from gramplane.kernels.grams.spec import as_specs
from gramplane.kernels.jit import one_thread
from gramplane.kernels.svm.dual import svc_problem
from gramplane.kernels.svm.smo import solve_smo
from gramplane.pipeline import MKLClassifier, resume_run, run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams.grams import Grams
from gramplane.pipeline.grams.settings import GramSettings
from gramplane.pipeline.records.compute import ComputeOptions
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.pipeline.runs.run import executing
from gramplane.storage import BlockStore, GramStore, RunLocked, RunStore
from gramplane.storage.ingest import ingest
from tests.support.clusters import CommandCluster, children, wait_until
from tests.support.commands import (
    PARAMS,
    START,
    at_random,
    equal_runs,
    fit_words,
    gramplane,
    is_resumable,
    rounds,
    start,
    tree_bytes,
    wait_for_rounds,
    wide_store,
)
from tests.support.fgm_problems import planted

pytestmark = pytest.mark.cluster

ROUNDS = PARAMS["max_rounds"]


def repeated(normal, slow):
    """The same test a few times, and many times where minutes are allowed."""
    return pytest.mark.parametrize("times", [normal, pytest.param(slow, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a store of three tasks a pass, and the run that nothing disturbed."""
    folder = tmp_path_factory.mktemp("faults")
    wide_store(folder / "store")
    with one_thread():
        done = run_method("fgm", PARAMS, data=str(folder / "store"), run=str(folder / "straight"))
    assert done.summary["rounds"] == ROUNDS
    return folder


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    with CommandCluster(tmp_path_factory.mktemp("cluster"), workers=0) as cluster:
        yield cluster


@pytest.fixture
def cluster(scheduler):
    """A scheduler and two workers, whatever the test before did to them."""
    for _ in range(2 - len(scheduler.living)):
        scheduler.start_worker()
    return scheduler


def fit(place, run, cluster, on_event=None):
    """Fit in this process on a cluster; seconds it took."""
    began = time.monotonic()
    with one_thread():
        run_method("fgm", PARAMS, data=str(place / "store"), run=str(run), cluster=cluster.config, on_event=on_event)
    return time.monotonic() - began


def in_pass(number, delay, action):
    """An event sink that calls ``action`` ``delay`` seconds after the start of the ``number``-th scoring pass."""
    seen = []

    def sink(event):
        if event["event"] == "start" and event["program"] == "feature-scores":
            seen.append(event)
            if len(seen) == number:
                threading.Timer(delay, action).start()

    return sink


# -- workers ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [20])
def test_a_worker_killed_during_a_round(place, cluster, tmp_path, times):
    """B1: bit-equal, at most 15 s more."""
    rng = random.Random(times)
    undisturbed = fit(place, tmp_path / "undisturbed", cluster)
    for i in range(times):
        run, number = tmp_path / str(i), rng.choice(cluster.living)
        sink = in_pass(rng.randint(1, ROUNDS), rng.uniform(0.0, 0.1), lambda number=number: cluster.kill_worker(number))
        seconds = fit(place, run, cluster, sink)
        wait_until(lambda number=number: number not in cluster.living, 10, "the kill")
        equal_runs(run, place / "straight")
        assert seconds < undisturbed + 15
        cluster.start_worker()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [5])
def test_all_workers_killed_and_new_ones_started(place, cluster, tmp_path, times):
    """B2: bit-equal, at most 30 s after workers are back."""
    rng = random.Random(times)
    for i in range(times):
        back = []

        def replace(back=back):
            for number in cluster.living:
                cluster.kill_worker(number)
            cluster.start_worker()
            cluster.start_worker()
            back.append(time.monotonic())

        fit(place, tmp_path / str(i), cluster, in_pass(rng.randint(1, ROUNDS), rng.uniform(0.0, 0.1), replace))
        assert time.monotonic() - back[0] < 30
        equal_runs(tmp_path / str(i), place / "straight")


@pytest.mark.slow
def test_no_workers_come_back(place, cluster, tmp_path):
    """B2: exit 4 within the timeout and 5 s; the run goes on in one process."""
    run = tmp_path / "run"
    words = [*fit_words(place / "store", run), "--cluster", cluster.config]
    command = start(words, tmp_path, GRAMPLANE_NO_WORKERS_TIMEOUT="2")
    wait_for_rounds(command, run, 3)
    for number in cluster.living:
        cluster.kill_worker(number)
    began = time.monotonic()
    assert command.wait() == 4, command.messages
    assert time.monotonic() - began < 2 + 5
    assert "no_workers_timeout" in command.result["error"]
    assert 3 <= is_resumable(run) < ROUNDS
    assert resume_run(str(run), cluster="sync").status == "done"
    equal_runs(run, place / "straight")


# -- the scheduler -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [5])
def test_the_scheduler_killed(place, cluster, tmp_path, times):
    """B5: exit 4 within 10 s and a sound checkpoint; the run goes on on a new cluster."""
    rng = random.Random(times)
    for i in range(times):
        run = tmp_path / f"run-{i}"
        folder = tmp_path / f"cluster-{i}"
        folder.mkdir()
        with CommandCluster(folder, workers=1) as first:
            command = start([*fit_words(place / "store", run), "--cluster", first.config], tmp_path)
            wait_for_rounds(command, run, 2)
            at_random(rng, command, run, 12)
            first.kill_scheduler()
            began = time.monotonic()
            assert command.wait() == 4, command.messages
            assert time.monotonic() - began < 10
            assert "lost" in command.result["error"] or "does not answer" in command.result["error"]
            assert "Traceback" not in command.messages and "distributed" not in command.messages
            assert is_resumable(run) >= 2
            wait_until(lambda first=first: not first.living, 60, "workers give up")
        assert resume_run(str(run), cluster=cluster.config).status == "done"
        equal_runs(run, place / "straight")


# -- the driver --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [25])
def test_the_driver_killed_at_random_moments(place, cluster, tmp_path, times):
    """B4: killed again and again, continued on other numbers of workers, at most one round lost each time."""
    rng = random.Random(times)
    run = tmp_path / "run"
    words = fit_words(place / "store", run)
    for _ in range(times):
        if (run / "summary.json").exists():
            equal_runs(run, place / "straight")
            shutil.rmtree(run)
        where = rng.choice(["sync", cluster.config, "local:1"])
        command = start([*words, "--cluster", where], tmp_path)
        wait_for_rounds(command, run, rounds(run) + 1)
        done = at_random(rng, command, run, min(ROUNDS, rounds(run) + 8))
        command.kill()
        if not (run / "summary.json").exists():
            assert is_resumable(run) >= done - 1
    assert resume_run(str(run), cluster=cluster.config).status in ("done", "already-done")
    equal_runs(run, place / "straight")


@repeated(2, 50)
def test_the_driver_killed_while_it_writes(tmp_path, times):
    """Rounds of milliseconds on few data: most of the time goes into history and checkpoints, so most kills hit the writing of one."""
    ingest(planted(1, d=300), tmp_path / "store")
    params = {"B": 1, "C": 100.0, "max_rounds": 60, "max_inner": 1, "outer_tol": 1e-9}

    def finish(run):
        with one_thread():
            assert run_method("fgm", params, data=str(tmp_path / "store"), run=str(run)).status in ("done", "already-done")

    finish(tmp_path / "straight")
    last = rounds(tmp_path / "straight")
    rng, hits = random.Random(times), 0
    for i in range(times):
        run = tmp_path / f"run-{i}"
        command = start(fit_words(tmp_path / "store", run, params), tmp_path)
        wait_for_rounds(command, run, rng.randint(1, last - 10), pause=0.002)
        time.sleep(rng.uniform(0.0, 0.02))
        command.kill()
        hits += any(run.rglob("*.tmp")) or _ahead(run)
        finish(run)
        equal_runs(run, tmp_path / "straight")
    print(f"{hits} of {times} kills hit the writing of a checkpoint", file=sys.stderr)


def _ahead(run):
    """Whether the history is ahead of the checkpoint: killed between the two."""
    names = sorted(path.stem for path in (run / "checkpoints").glob("*.json"))
    return rounds(run) > int(names[-1]) if names else True


@pytest.mark.slow
def test_a_killed_driver_leaves_no_workers_behind_and_frees_the_lock(place, tmp_path):
    run = tmp_path / "run"
    command = start([*fit_words(place / "store", run), "--cluster", "local:2"], tmp_path)
    wait_for_rounds(command, run, 2)
    workers = children(command.process.pid)
    assert len(workers) >= 2
    with pytest.raises(RunLocked, match=f"process {command.process.pid}"), RunStore.open(run).lock():
        pass
    command.kill()
    began = time.monotonic()
    with RunStore.open(run).lock():
        assert time.monotonic() - began < 0.5
    _, alive = psutil.wait_procs(workers, timeout=15)
    assert alive == []


# -- Gram matrices -----------------------------------------------------------------------------------------------------------


GRAM_ROWS, GRAM_KERNELS = 2000, [f"rbf(gamma={0.01 * 2**q})" for q in range(8)]
"""36 block pairs of 2 MiB: enough to be in the middle of them."""


@pytest.fixture(scope="module")
def matrices(tmp_path_factory):
    """A store of points, and the Gram store that nothing disturbed, with a machine on its sum."""
    folder = tmp_path_factory.mktemp("matrices")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((GRAM_ROWS, 20)).astype(np.float32)
    ingest((X, np.where(X[:, 0] + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(GRAM_ROWS) > 0, 1, -1)), folder / "store")
    with one_thread():
        assert build_grams(str(folder / "store"), GRAM_KERNELS, str(folder / "grams")).figures["blocks_computed"] == 36
        return folder, machine_on(folder, folder / "grams", folder / "run", "sync")


def machine_on(folder, grams, run, cluster, on_event=None):
    """Solve on the sum of the stored kernels, of which the driver may hold a small part; forms and coefficients as bytes."""
    data, specs = BlockStore.open(folder / "store").with_scale("standard", centred=True), as_specs(GRAM_KERNELS, 20)
    y = np.where(data.target() > 0, 1.0, -1.0)
    with one_thread(), executing(ComputeOptions(cluster), data, on_event or (lambda event: None)) as executor:
        resources = Resources(executor, scratch=RunStore.create(run, {}), driver_memory=15 << 20)
        found = Grams(data, specs, GramSettings.of(data, resources, specs, "store", str(grams)), resources)
        solution = solve_smo(found.combine(np.full(8, 0.125)), svc_problem(y, 1.0))
        forms = found.forms(solution.beta)
    assert solution.converged and solution.gap < 1e-3 * solution.upper and solution.details["working"] < GRAM_ROWS / 2
    return solution.beta.tobytes() + forms.tobytes()


def stored(grams):
    """The bytes of a Gram store, but for its lock and for the temporary file of a worker killed while it wrote, which ``clean`` drops."""
    return {name: value for name, value in tree_bytes(grams).items() if name != "lock" and not name.endswith(".tmp")}


def recorded(grams):
    """Block pairs that count so far."""
    return sum("/records/c/" in str(path) and path.is_file() for path in grams.rglob("*"))


@pytest.mark.slow
def test_a_gram_build_survives_its_driver_and_a_worker(matrices, cluster, tmp_path):
    """The driver killed in the middle, then a worker of the build that goes on: the bytes of a build in one process."""
    folder, _ = matrices
    grams = tmp_path / "grams"
    words = ["gram", folder / "store", "--kernels", "; ".join(GRAM_KERNELS), "--out", grams, "--cluster", cluster.config]
    command = start(words, tmp_path)
    wait_until(lambda: recorded(grams) or command.ended(), START, "a block", pause=0.02)
    command.kill()
    left = len(GramStore.open(grams).missing())
    assert 0 < left < 36
    killed = []

    def kill():
        wait_until(lambda: recorded(grams) > 36 - left, 60, "a further block", pause=0.01)
        killed.append(cluster.living[0])
        cluster.kill_worker(killed[0])

    def sink(event):
        if event["event"] == "start" and event["program"] == "gram-build":
            threading.Thread(target=kill).start()

    with one_thread():
        done = build_grams(str(folder / "store"), GRAM_KERNELS, str(grams), cluster=cluster.config, on_event=sink)
    assert 0 < done.figures["blocks_computed"] <= left
    wait_until(lambda: killed and killed[0] not in cluster.living, 10, "the kill")
    assert stored(grams) == stored(folder / "grams")


@pytest.mark.slow
def test_a_machine_beyond_the_driver_survives_a_worker(matrices, cluster, tmp_path):
    """On two workers of which one is killed, and on the one that is left: the bits of one process."""
    folder, expected = matrices
    killed = []

    def sink(event):
        if event["event"] == "start" and event["program"] == "gram-product" and not killed:
            killed.append(cluster.living[0])
            cluster.kill_worker(killed[0])

    assert machine_on(folder, folder / "grams", tmp_path / "two", cluster.config, sink) == expected
    assert killed[0] not in cluster.living and len(cluster.living) == 1
    assert machine_on(folder, folder / "grams", tmp_path / "one", cluster.config) == expected


def test_a_fit_on_a_given_gram_store_runs_on_workers(matrices, cluster):
    """An estimator with matrices in a store and a cluster: the passes run there, the model is that of one process."""
    folder, _ = matrices
    y = BlockStore.open(folder / "store").target()
    near, far = (
        MKLClassifier("precomputed", solver="uniform", grams="recompute", tol=0.1, cluster=where).fit(str(folder / "grams"), y)
        for where in ("sync", cluster.config)
    )
    assert near.dual_coef_.tobytes() == far.dual_coef_.tobytes()


# -- signals -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@repeated(1, 10)
def test_interrupted(place, cluster, tmp_path, number, code, times):
    """B17: the exit code within 10 s, no process, no temporary file; the run goes on."""
    rng = random.Random(times + code)
    for i in range(times):
        run, where = tmp_path / f"run-{i}", "local:2" if number == signal.SIGINT else cluster.config
        command = start([*fit_words(place / "store", run), "--cluster", where], tmp_path, TMPDIR=str(tmp_path))
        wait_for_rounds(command, run, 1)
        at_random(rng, command, run, 12)
        below = children(command.process.pid)
        began = time.monotonic()
        command.kill(number)
        assert command.wait() == code, command.messages
        assert time.monotonic() - began < 10
        assert psutil.wait_procs(below, timeout=0.5)[1] == []
        assert "Traceback" not in command.messages
        assert not list(tmp_path.glob("gramplane-*"))
        assert not list(run.rglob("*.tmp"))
        assert is_resumable(run) >= 1
    assert resume_run(str(run), cluster=cluster.config).status == "done"
    equal_runs(run, place / "straight")


@pytest.mark.slow
def test_a_second_signal_ends_at_once(place, tmp_path):
    run = tmp_path / "run"
    command = start([*fit_words(place / "store", run), "--cluster", "local:1"], tmp_path)
    wait_for_rounds(command, run, 2)
    below = children(command.process.pid)
    began = time.monotonic()
    while not command.ended():
        # Not two at once: equal signals that wait together count as one.
        command.kill(signal.SIGTERM)
        time.sleep(0.05)
    assert command.wait() == 143
    assert time.monotonic() - began < 1
    assert psutil.wait_procs(below, timeout=15)[1] == []
    assert is_resumable(run) >= 2


# -- ingest and locks ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """An SVMlight file that takes seconds to read, and its store."""
    folder = tmp_path_factory.mktemp("text")
    write_text(folder / "data.svm")
    began = time.monotonic()
    code, _ = gramplane(["ingest", folder / "data.svm", folder / "store", "--budget", "16MiB"], folder)
    assert code == 0
    return folder, time.monotonic() - began


def write_text(path, n_rows=40_000, width=100):
    """Write 4 million entries of a wide matrix, 40 MB."""
    rng = random.Random(1)
    with path.open("w") as file:
        for _ in range(n_rows // 100):
            start_at = rng.randint(1, 1000)
            entries = " ".join(f"{start_at + 13 * k}:{rng.randint(1, 999) / 100}" for k in range(width))
            file.writelines(f"{rng.choice((1, -1))} {entries}\n" for _ in range(100))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [20])
def test_ingest_killed_at_random_moments(text, tmp_path, times):
    """Killed again and again and started anew: the same bytes, and no scratch left."""
    folder, seconds = text
    rng = random.Random(times)
    words = ["ingest", folder / "data.svm", tmp_path / "store", "--budget", "16MiB"]
    for _ in range(times):
        command = start(words, tmp_path)
        begun = wait_until_begun(command, tmp_path)
        time.sleep(rng.uniform(0.0, seconds / 2) if begun else 0)
        command.kill()
        if command.process.returncode == 0:
            assert tree_bytes(tmp_path / "store") == tree_bytes(folder / "store")
            shutil.rmtree(tmp_path / "store")
    assert gramplane(words, tmp_path)[0] == 0
    assert tree_bytes(tmp_path / "store") == tree_bytes(folder / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".logs", "store"]


def wait_until_begun(command, folder):
    """Wait until an ingest has made a scratch folder."""
    wait_until(lambda: list(folder.glob("*.ingest")) or command.ended(), 60, "the ingest begins")
    return not command.ended()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("times", [8])
def test_one_of_several_processes_works(place, tmp_path, times):
    """B12: they start the same run at once; one works, the others end with 99 within 5 s of seeing it."""
    run = tmp_path / "run"
    commands = [start(fit_words(place / "store", run), tmp_path) for _ in range(times)]
    codes = sorted(command.wait() for command in commands)
    assert codes == [0] + [99] * (times - 1), [command.messages for command in commands]
    for command in commands:
        if command.process.returncode == 99:
            assert "is held by process" in command.result["error"]
    equal_runs(run, place / "straight")

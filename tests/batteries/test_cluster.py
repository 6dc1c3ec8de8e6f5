"""Whole fits on worker processes: the bits of a fit in this process, exact task counts, planned memory."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemorySink, open_executor, plan
from gramplane.kernels.mixed_norm import ROW_BLOCK
from gramplane.pipeline import (
    FGMClassifier,
    cross_validate,
    load_model,
    predict_store,
    resume_run,
    run_method,
    score_store,
    tune,
    use_client,
)
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import INLINE_BYTES, RunContext
from gramplane.pipeline.methods.fgm.config import FGMConfig
from gramplane.pipeline.methods.fgm.method import FGM
from gramplane.pipeline.methods.fgm.score_pass import Query, score_program
from gramplane.pipeline.passes import blocks
from gramplane.storage import RunStore, set_cache_limit
from gramplane.storage.ingest import ingest
from tests.support.clusters import CommandCluster
from tests.support.fgm_problems import bits, classes, forms, planted

pytestmark = pytest.mark.cluster

PARAMS = {"B": 4, "C": 1.0, "max_rounds": 3}
MEMORY = 1 << 30
TREE = [np.arange(60), np.arange(20), np.arange(5, 9), np.arange(20, 60), np.arange(30, 50), np.arange(33, 37)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Scheduler and two workers for the whole module; calls connect to it by its file."""
    with CommandCluster(tmp_path_factory.mktemp("cluster"), workers=2) as started:
        yield started.config


@pytest.fixture(scope="module")
def pair(cluster):
    """One executor on it, with its events."""
    sink = MemorySink()
    with open_executor(cluster, events=sink, worker_memory=MEMORY) as executor:
        yield executor, sink


@pytest.fixture
def small_tasks(monkeypatch):
    """Stripes and tasks so small that every pass has several."""
    real = blocks.byte_groups
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 600)
    monkeypatch.setattr(blocks, "byte_groups", lambda refs, limit=0: real(refs, 2500))


def stored(path, X, y, **options):
    return ingest((X, y), path, **options)


def machine(executor, store, folder, groups=None, memory=2 << 30, **params):
    """Everything a fit on an executor finds, and its model."""
    config = FGMConfig(**{**PARAMS, **params})
    ctx = RunContext(executor, data=store, scratch=RunStore.create(folder, {}), driver_memory=memory, limit=1 << 40)
    method = FGM()
    problem = method.problem(*method.read_inputs(config, ctx, {"groups": groups}), ctx)
    return method.result(problem, iterate(method, problem, ctx, store=ctx.scratch).state, ctx).model


def everything(model):
    arrays = [model.weights, model.intercepts, model.coordinates, model.features]
    for state in model.machines:
        arrays += [*state.cuts, state.pending_ids, np.array(state.lower_bound)]
        arrays += [np.array([r.bias, r.objective, r.gap, r.outer_gap, *r.omega, *r.cut_weights]) for r in state.rounds]
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


def in_process(store, folder, **options):
    with open_executor() as executor:
        return machine(executor, store, folder, **options)


# --- the same bits ----------------------------------------------------------------------------------------------------------------

CASES = {
    "linear": {},
    "logistic": {"loss": "logistic", "fit_intercept": True},
    "groups": {"groups": np.arange(60) // 7},
    "overlap": {"groups": [np.arange(j, min(j + 9, 60)) for j in range(0, 60, 6)]},
    "tree": {"groups": TREE},
    "poly2": {"feature_map": "poly2"},
    "hik": {"feature_map": "hik", "n_bins": 8},
    "additive_chi2": {"feature_map": "additive_chi2"},
    "additive_gaussian": {"feature_map": "additive_gaussian"},
    "new features": {"allow_repeat": False},
}


@pytest.mark.parametrize("form", ["csr_array", "dense"])
@pytest.mark.parametrize("case", CASES)
def test_workers_find_the_bits_of_this_process(pair, small_tasks, tmp_path, case, form):
    executor, sink = pair
    X, y = planted(1, density=0.4)
    store = stored(tmp_path / "a.zarr", forms(np.abs(X) if case in ("hik", "additive_chi2") else X)[form], y)
    sink.events.clear()
    found = machine(executor, store, tmp_path / "run", **CASES[case])
    assert max(event["n_tasks"] for event in sink.named("plan")) > 2
    assert {event["retries"] for event in sink.named("finish")} == {0}
    assert everything(found) == everything(in_process(store, tmp_path / "alone", **CASES[case]))


@pytest.mark.parametrize("form", ["csr_array", "dense"])
@pytest.mark.parametrize("case", ["linear", "groups", "tree", "poly2"])
def test_workers_read_constant_columns_as_this_process_does(pair, small_tasks, tmp_path, case, form):
    X, y = planted(1, density=0.4)
    X[:, 7] = 2.0
    store = stored(tmp_path / "a.zarr", forms(X)[form], y)
    # Beside an intercept a constant column tells nothing.
    found = machine(pair[0], store, tmp_path / "run", fit_intercept=False, **CASES[case])
    assert 7 in found.features
    assert everything(found) == everything(in_process(store, tmp_path / "alone", fit_intercept=False, **CASES[case]))


@pytest.mark.parametrize("scale", ["unit-column", "unit-row", "standard"])
def test_classes_on_scaled_stores(pair, small_tasks, tmp_path, scale):
    X, codes = classes(density=0.5)
    store = stored(tmp_path / "a.zarr", X, codes, scale=scale)
    found = machine(pair[0], store, tmp_path / "run", fit_intercept=True)
    assert len(found.machines) == 3
    assert everything(found) == everything(in_process(store, tmp_path / "alone", fit_intercept=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["linear", "overlap", "poly2"])
def test_rows_on_workers_find_the_bits_of_this_process(pair, tmp_path, case):
    n = ROW_BLOCK + 300
    rng = np.random.default_rng(0)
    X = sp.random_array((n, 10), density=0.05, rng=rng, format="csr")
    y = (X @ rng.normal(size=10) + 0.1 * rng.normal(size=n) > 0).astype(int)
    store = stored(tmp_path / "a.zarr", X, y)
    groups = [np.arange(4), np.arange(2, 7), np.arange(6, 10)] if case == "overlap" else None
    options = {"B": 2, "max_rounds": 2, "groups": groups, "feature_map": "poly2" if case == "poly2" else None}
    executor, sink = pair
    sink.events.clear()
    found = machine(executor, store, tmp_path / "far", memory=1000, **options)
    rows = [event for event in sink.named("plan") if event["program"].startswith("rows-")]
    assert {event["n_tasks"] for event in rows} == {2}
    assert 8 * n > INLINE_BYTES
    assert any((tmp_path / "far").rglob("*dual*")), "the dual vector goes through the run store"
    assert everything(found) == everything(in_process(store, tmp_path / "near", **options))
    assert everything(found) == everything(in_process(store, tmp_path / "alone", memory=1000, **options))


def test_a_large_group_index_goes_through_the_run_store(pair, tmp_path):
    d = 40_000
    X = sp.random_array((60, d), density=2e-3, rng=np.random.default_rng(1), format="csr")
    labels = np.arange(d) // 5
    assert 8 * d > INLINE_BYTES
    store = stored(tmp_path / "a.zarr", X, np.arange(60) % 2)
    found = machine(pair[0], store, tmp_path / "run", groups=labels)
    assert any((tmp_path / "run").rglob("*groups-members*"))
    assert everything(found) == everything(in_process(store, tmp_path / "alone", groups=labels))


# --- counts and memory ------------------------------------------------------------------------------------------------------------


def test_every_pass_has_the_tasks_of_the_plan(pair, small_tasks, tmp_path):
    executor, sink = pair
    X, y = planted(2, density=0.4)
    store = stored(tmp_path / "a.zarr", sp.csr_array(X), y)
    tasks = len(blocks.column_tasks(store))
    told = run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "dry"), dry_run=True).plan
    assert told["tasks_per_pass"] == tasks > 2
    sink.events.clear()
    machine(executor, store, tmp_path / "run")
    plans = sink.named("plan")
    scores = [event["n_tasks"] for event in plans if event["program"] == "feature-scores"]
    columns = [event["n_tasks"] for event in plans if event["program"] == "columns"]
    assert scores == [tasks] * told["passes_at_most"]
    assert len(columns) == PARAMS["max_rounds"]
    assert all(1 <= count <= min(tasks, PARAMS["B"]) for count in columns)
    assert len(plans) == len(scores) + len(columns)
    assert len(sink.named("finish")) == len(plans)


def test_classes_share_the_passes(pair, small_tasks, tmp_path):
    executor, sink = pair
    X, codes = classes(density=0.5)
    store = stored(tmp_path / "a.zarr", sp.csr_array(X), codes)
    sink.events.clear()
    machine(executor, store, tmp_path / "run")
    programs = [event["program"] for event in sink.named("plan")]
    assert programs.count("feature-scores") == PARAMS["max_rounds"] + 1
    assert programs.count("columns") == PARAMS["max_rounds"]


def test_workers_stay_within_the_memory_of_the_plan(pair, tmp_path):
    executor, _ = pair
    X = np.random.default_rng(0).normal(size=(40_000, 300)).astype(np.float32)
    store = stored(tmp_path / "a.zarr", X, np.arange(40_000) % 2)
    atoms = FGMConfig(B=4)
    queries = (Query(atoms.B),)
    ctx = RunContext(executor, data=store, scratch=RunStore.create(tmp_path / "run", {}))
    problem = FGM().problem(*FGM().read_inputs(atoms, ctx, {}), ctx)
    work = plan(score_program(queries, store.n_rows), blocks.column_tasks(store), problem.atoms, np.ones((1, 40_000)), queries)
    assert X.nbytes > 2 * work.memory_bound
    executor.run_on_workers(set_cache_limit, 0)
    try:
        executor.run(work)
        before = executor.peak_memory(reset=True)
        now = executor.peak_memory()
        for _ in range(3):
            executor.run(work)
        after = executor.peak_memory()
    finally:
        executor.run_on_workers(set_cache_limit, 256 << 20)
    assert set(now) == set(before)
    for worker, base in now.items():
        assert after[worker] - base <= work.memory_bound + (8 << 20), worker


# --- the ways in ------------------------------------------------------------------------------------------------------------------


def test_a_run_may_change_its_cluster_in_the_middle(cluster, small_tasks, tmp_path):
    class Stopped(Exception):
        pass

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == 2:
            raise Stopped

    X, y = planted(3, density=0.4)
    data = stored(tmp_path / "a.zarr", sp.csr_array(X), y).url

    def run(name, **options):
        return run_method("fgm", PARAMS, data=data, run=str(tmp_path / name), **options)

    run("straight")
    for name, first, second in (("there", cluster, "sync"), ("back", "sync", cluster)):
        with pytest.raises(Stopped):
            run(name, cluster=first, on_event=stop)
        events = []
        assert resume_run(str(tmp_path / name), cluster=second, on_event=events.append).status == "done"
        assert {"event": "resume", "iteration": 2} in events
        assert bits(load_model(tmp_path / name)) == bits(load_model(tmp_path / "straight"))


def test_predictions_scores_and_folds_on_a_cluster(cluster, small_tasks, tmp_path):
    X, y = planted(4, n=90, density=0.4)
    data = stored(tmp_path / "a.zarr", sp.csr_array(X), y).url
    run = str(tmp_path / "run")
    run_method("fgm", PARAMS, data=data, run=run)
    for where, name in (("sync", "a.npz"), (cluster, "b.npz")):
        predict_store(run, data, str(tmp_path / name), cluster=where)
    assert np.load(tmp_path / "a.npz")["decision"].tobytes() == np.load(tmp_path / "b.npz")["decision"].tobytes()
    assert score_store(run, data, cluster=cluster) == score_store(run, data)
    params = {**PARAMS, "max_rounds": 2}
    assert cross_validate("fgm", params, data=data, folds=3, cluster=cluster) == cross_validate("fgm", params, data=data, folds=3)
    found = [
        tune("fgm", {"C": [0.1, 1.0]}, data=data, run=str(tmp_path / name), params=params, folds=2, cluster=where)
        for name, where in (("t1", cluster), ("t2", "sync"))
    ]
    assert found[0].summary["best"] == found[1].summary["best"]
    assert bits(load_model(tmp_path / "t1")) == bits(load_model(tmp_path / "t2"))


def test_estimators_on_a_cluster_and_on_a_client(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    X, y = planted(5, density=0.4)
    for form in ("dense", "csr_array"):
        expected = FGMClassifier(**PARAMS).fit(forms(X)[form], y)
        there = FGMClassifier(**PARAMS, cluster=cluster).fit(forms(X)[form], y)
        assert bits(there) == bits(expected)
    from distributed import Client

    with Client(scheduler_file=cluster.partition(":")[2]) as client, use_client(client):
        seen = []
        machine = FGMClassifier(**PARAMS, callbacks=[seen.append]).fit(sp.csr_array(X), y)
        store = stored(tmp_path / "b.zarr", sp.csr_array(X), y)
        on_store = FGMClassifier(**PARAMS).fit(store)
        np.testing.assert_array_equal(on_store.decision_function(store), machine.decision_function(sp.csr_array(X)))
    assert bits(machine) == bits(FGMClassifier(**PARAMS).fit(sp.csr_array(X), y)) == bits(on_store)
    assert [event["iteration"] for event in seen if event["event"] == "iteration"] == [1, 2, 3]
    assert not list(tmp_path.glob("gramplane-*")), "temporary stores are removed"


@pytest.mark.slow
@pytest.mark.parametrize("where", ["local:1", "local:2"])
def test_local_clusters_of_an_estimator(where):
    X, y = planted(6, density=0.4)
    there = FGMClassifier(**PARAMS, cluster=where).fit(sp.csr_array(X), y)
    assert bits(there) == bits(FGMClassifier(**PARAMS).fit(sp.csr_array(X), y))


# --- whole fits, and passes of many tasks -----------------------------------------------------------------------------------------


def in_tasks(path, **options):
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(150, 40)), rng.integers(0, 3, 150)
    X[:, 20:] *= 0.1
    return ingest((X, X[:, :4].sum(axis=1) * (1 + 0.2 * codes)), path, task="regression", task_column=codes, **options)


def weights_of(run):
    model = load_model(run)
    return model.coef_.tobytes(), model.intercept_.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["group-lasso", "multitask-selector"])
def test_grids_of_streams_are_whole_fits_on_workers(cluster, tmp_path, method):
    events, X = [], planted(7, n=90, density=0.4)
    if method == "group-lasso":
        data, grid, params = stored(tmp_path / "a.zarr", sp.csr_array(X[0]), X[1], layout="both").url, {"gamma": [0.5, 2.0]}, {"lam": 0.02}
    else:
        data, grid, params = in_tasks(tmp_path / "a.zarr").url, {"lam": [0.05, 0.5]}, {"gamma": 30.0, "refit": 0.01}
    for where, name in (("sync", "here"), (cluster, "there")):
        place = {"params": params, "folds": 3, "cluster": where, "on_event": events.append}
        tune(method, grid, data=data, run=str(tmp_path / name), **place)
    plans = [event for event in events if event["event"] in ("plan", "finish") and event["program"] == "fits"]
    assert [event["n_tasks"] for event in plans] == [6, 6] and plans[1]["workers_used"] == 2
    assert (tmp_path / "here" / "tune.json").read_bytes() == (tmp_path / "there" / "tune.json").read_bytes()
    assert weights_of(tmp_path / "here") == weights_of(tmp_path / "there")
    assert any("nothing of this" in event["message"] for event in events if event["event"] == "warning"), "one fit is one process"

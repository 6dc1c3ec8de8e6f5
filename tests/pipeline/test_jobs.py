"""Whole fits as tasks: what a worker is told, what it keeps, what is left to the driver. Real workers: tests/batteries/test_cluster.py."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import BlockProgram, MemorySink, open_executor, plan
from gramplane.pipeline import METHODS, tune
from gramplane.pipeline.core.memory import OVERHEAD
from gramplane.pipeline.records.context import RunContext
from gramplane.pipeline.runs import folds, jobs
from gramplane.pipeline.runs.tune import plan_search
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support.methods import CASES, SELECTOR

GRID = {"lam": [0.02, 0.2], "gamma": [0.5, 2.0]}


def rows(folder, **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 12)) * (rng.random((90, 12)) < 0.6)
    return ingest((sp.csr_array(X), np.where(X[:, 0] + X[:, 1] > 0, 1, -1)), folder, groups=np.arange(12) // 3, **options)


class Workers:
    """An executor that runs plans in this process, but as workers would: through what they are sent."""

    kind = "local"

    def __init__(self, memory=1 << 40):
        self.task_memory, self.plans = memory, []

    def run(self, work):
        self.plans.append(work)
        program, parts = work.program, [work.program.chunk(ref, *work.broadcast) for ref in work.refs]
        return program.finalize(program.combine(parts) if len(parts) > 1 else parts[0])


def search(store, points, method="group-lasso", n_folds=3, **context):
    ctx = RunContext(context.pop("executor", Workers()), data=store, seed=1, **context)
    info = METHODS[method]
    return folds.build_search(ctx, info, [info.config(**point) for point in points], points, {}, n_folds, 1), ctx


POINTS = [{"lam": lam, "epochs": 2} for lam in (0.02, 0.2)]


def test_a_job_has_the_figures_that_this_process_has(tmp_path):
    store = rows(tmp_path / "data")
    one, ctx = search(store, POINTS)
    done = jobs.run_jobs(one, ctx, tmp_path / "jobs")
    assert set(done) == {(point, fold) for point in range(2) for fold in range(3)}
    with open_executor(None) as executor:
        for point, fold in done:
            here = folds.fit_fold(one, point, fold, RunContext(executor, data=store, seed=1), tmp_path / "here")
            assert json.dumps(here) == json.dumps(done[point, fold])
            assert RunStore.open(tmp_path / "jobs" / f"cv-{point}-{fold}").read_json("summary") == json.loads(json.dumps(here))


def test_what_is_done_is_not_done_again_and_what_was_begun_goes_on(tmp_path, monkeypatch):
    store = rows(tmp_path / "data")
    one, ctx = search(store, POINTS)
    whole = jobs.run_jobs(one, ctx, tmp_path / "whole")
    with open_executor(None) as executor:
        folds.fit_fold(one, 0, 1, RunContext(executor, data=store, seed=1), tmp_path / "jobs")

    class Stopped(Exception):
        pass

    def kill(run, name, value):
        if name == "summary":
            raise Stopped
        return write(run, name, value)

    write = RunStore.write_json

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(RunStore, "write_json", kill)
        jobs.run_jobs(one, ctx, tmp_path / "jobs")
    assert list((tmp_path / "jobs" / "cv-0-0" / "checkpoints").iterdir())
    resumed = []
    load = RunStore.load_checkpoint
    monkeypatch.setattr(RunStore, "load_checkpoint", lambda run, kind: resumed.append(load(run, kind)) or resumed[-1])
    left = jobs.run_jobs(one, ctx, tmp_path / "jobs")
    assert set(whole) - set(left) == {(0, 1)} and all(json.dumps(whole[key]) == json.dumps(left[key]) for key in left)
    assert [found is not None for found in resumed] == [True, False, False, False, False]


def test_a_folder_that_another_worker_holds_is_left_to_it(tmp_path):
    store = rows(tmp_path / "data")
    one, ctx = search(store, POINTS[:1])
    record = {**one.record, "point": POINTS[0], "fold": 2}
    with RunStore.begin(tmp_path / "jobs" / "cv-0-2", record):
        done = jobs.run_jobs(one, ctx, tmp_path / "jobs")
    assert not folds.is_done(tmp_path / "jobs", 0, 2) and folds.is_done(tmp_path / "jobs", 0, 1)
    assert json.dumps(done[0, 2]) == json.dumps(jobs.run_jobs(one, ctx, tmp_path / "other")[0, 2])


def test_fits_that_no_worker_can_hold_stay_here_and_say_so(tmp_path):
    store, told = rows(tmp_path / "data"), []
    one, ctx = search(store, POINTS, executor=Workers(OVERHEAD), emit=told.append)
    assert not jobs.run_jobs(one, ctx, tmp_path / "jobs") and not ctx.executor.plans
    assert [event["event"] for event in told] == ["warning"] and "fits run in this process one after another" in told[0]["message"]
    ready = one.prepared(0, 0, ctx)
    one, ctx = search(store, POINTS, executor=Workers(jobs.job_bytes(ready)))
    assert len(jobs.run_jobs(one, ctx, tmp_path / "jobs")) == 6
    (work,) = ctx.executor.plans
    assert work.n_tasks == 6 and set(work.task_weights) == {jobs.job_bytes(ready)} and work.program.patient


def test_fits_whose_passes_are_distributed_are_no_jobs(tmp_path):
    store = rows(tmp_path / "data")
    points = [{"lam": 0.1, "algorithm": "fista"}, {"lam": 0.1, "algorithm": "da"}]
    one, ctx = search(store, points)
    assert set(jobs.run_jobs(one, ctx, tmp_path / "jobs")) == {(1, 0), (1, 1), (1, 2)}
    with open_executor(None) as executor:
        assert jobs.run_jobs(one, RunContext(executor, data=store, seed=1), tmp_path / "sync") == {}


def test_what_jobs_share_travels_as_an_array(tmp_path):
    store = rows(tmp_path / "data")
    one, ctx = search(store, POINTS)
    told = json.loads(jobs._order(one, ctx, Path("jobs")).tobytes())
    assert told["params"] == [config.model_dump(mode="json") for config in one.configs]
    assert told["driver_memory"] == ctx.driver_memory and told["digest"] == store.digest and Path(told["folder"]).is_absolute()


def test_a_plan_of_a_grid_names_what_workers_do(tmp_path):
    data = rows(tmp_path / "data").url

    def planned(method, grid, **more):
        return plan_search(method, grid, data=data, folds=3, **more)

    streams = planned("group-lasso", GRID)
    assert streams["distributed"] == [jobs.FITS] and streams["fits_sharing_passes"] == 12 and streams["job_bytes"] > OVERHEAD
    assert planned("group-lasso", GRID, cluster="local:2")["fits"] == 12
    both = planned("group-lasso", {"algorithm": ["fista", "da"]}, params={"scale": None})
    assert both["distributed"] == ["gradients of features", jobs.FITS]
    batch = planned("group-lasso", {"lam": [0.1, 0.2]}, params={"algorithm": "fista"})
    assert batch["distributed"] == ["gradients of features"] and "job_bytes" not in batch
    assert jobs.FITS not in planned("fgm", {"C": [0.1, 1.0]}, params={"B": 2}, cluster="local:2")["distributed"]


def test_group_lasso_streams_have_one_table_whichever_way_they_go(tmp_path, monkeypatch):
    """Fits that share the rows in one process, and fits as jobs: the same table, byte for byte."""
    store = rows(tmp_path / "data", layout="both")
    place = {"data": store.url, "folds": 3, "params": {"epochs": 2}}
    tune("group-lasso", GRID, run=str(tmp_path / "shared"), **place)
    monkeypatch.setattr("gramplane.pipeline.runs.tune._sharing", lambda grid, kind: None)
    tune("group-lasso", GRID, run=str(tmp_path / "alone"), **place)
    assert (tmp_path / "shared" / "tune.json").read_bytes() == (tmp_path / "alone" / "tune.json").read_bytes()


def test_repetitions_draw_folds_anew_in_one_table(tmp_path, monkeypatch):
    store = rows(tmp_path / "data", layout="both")
    place, table = {"data": store.url, "folds": 3, "params": {"epochs": 2}, "seed": 4}, {}
    for name, split in (("first", {"seed": 4}), ("second", {"seed": 5}), ("both", {"repeats": 2})):
        # (rows are drawn from the seed of the run, masks from that of the repetition)
        drawn = {**place, **split, "params": {**place["params"], "shuffle": False}}
        tune("group-lasso", GRID, run=str(tmp_path / name), **drawn)
        table[name] = RunStore.open(tmp_path / name).read_json("tune")
    for one, two, both in zip(*table.values(), strict=True):
        scores = one["folds"] + two["folds"]
        assert both["folds"] == scores and both["accuracy"] == pytest.approx(np.mean(scores))
        assert both["deviation"] == pytest.approx(np.std(scores, ddof=1)) and both["selected"] == pytest.approx(
            (one["selected"] + two["selected"]) / 2
        )
        assert both["standard_error"] == pytest.approx(both["deviation"] / 6**0.5)
    assert plan_search("group-lasso", GRID, data=store.url, folds=3, repeats=2)["fits_sharing_passes"] == 24
    monkeypatch.setattr("gramplane.pipeline.runs.tune._sharing", lambda grid, kind: None)
    drawn["run"] = str(tmp_path / "alone")
    tune("group-lasso", GRID, **drawn)
    assert (tmp_path / "both" / "tune.json").read_bytes() == (tmp_path / "alone" / "tune.json").read_bytes()
    one, ctx = search(store, POINTS[:1])
    again = folds.build_search(ctx, one.info, one.configs, one.points, {}, 3, 1, 2)
    done = jobs.run_jobs(again, ctx, tmp_path / "jobs")
    assert len(done) == len(again.masks) == 6 and not (again.masks[0] == again.masks[3]).all()
    assert all(done[key] == figures for key, figures in jobs.run_jobs(one, ctx, tmp_path / "once").items())
    with pytest.raises(ValueError, match="repeats=0: must be at least 1"):
        tune("group-lasso", GRID, run=str(tmp_path / "none"), **{**place, "repeats": 0})


def test_a_selector_as_a_job_keeps_its_tasks(tmp_path):
    store = CASES["multitask-selector-classes"].data(tmp_path / "data")
    one, ctx = search(store, [SELECTOR], "multitask-selector", 2)
    done = jobs.run_jobs(one, ctx, tmp_path / "jobs")
    assert [figures["n_tasks"] for figures in done.values()] == [3, 3] and len(one.masks) == 2


def _sleep(ref, seconds):
    import time

    time.sleep(seconds)
    return ref


@pytest.mark.cluster
@pytest.mark.slow
def test_a_patient_plan_may_take_longer_than_the_stall_timeout(tmp_path):
    from gramplane.cluster import ClusterConfig, Limits, Stalled

    config = ClusterConfig("local", workers=1, limits=Limits(stall_timeout=1.0))
    with open_executor(config, events=MemorySink()) as executor:
        work = BlockProgram("sleep", _sleep, max, lambda ref: 1, 8, patient=True)
        assert executor.run(plan(work, [7], 4.0)) == 7
        with pytest.raises(Stalled):
            executor.run(plan(BlockProgram("sleep", _sleep, max, lambda ref: 1, 8), [7], 10.0))

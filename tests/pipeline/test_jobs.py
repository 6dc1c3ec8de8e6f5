"""Whole fits as tasks: what a worker is told, what it keeps, what is left to the driver. Real workers: tests/batteries/test_cluster.py."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import BlockProgram, MemorySink, open_executor, plan
from gramplane.pipeline import METHODS, tune
from gramplane.pipeline.core.memory import OVERHEAD
from gramplane.pipeline.core.resources import ignore
from gramplane.pipeline.methods.group_lasso.method import GroupLasso
from gramplane.pipeline.runs import jobs
from gramplane.pipeline.runs.search import Search
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


def search(store, points, method="group-lasso", n_folds=3, repeats=1):
    info = METHODS[method]
    return Search(info, points, [info.config(**point) for point in points], store, n_folds, 1, {}, repeats)


def run_jobs(one, folder, executor=None, emit=ignore):
    """Run the jobs of a search; return its context, and the scores in the folders of its fits, each alone."""
    ctx = one.context(executor or Workers(), 1 << 30, emit)
    parts = jobs.run_jobs(one, one.groups(ctx), ctx, folder)
    places = {(int(name.split("-")[1]), int(name.split("-")[2])): name for name in names(folder)}
    return ctx, parts, {key: RunStore.open(folder / name).read_json("scores") for key, name in places.items()}


def names(folder):
    return sorted(path.name for path in folder.glob("cv-*")) if folder.exists() else []


POINTS = [{"lam": lam, "epochs": 2} for lam in (0.02, 0.2)]


def test_a_job_has_the_scores_that_this_process_has(tmp_path):
    one = search(rows(tmp_path / "data"), POINTS)
    _, parts, done = run_jobs(one, tmp_path / "jobs")
    assert set(done) == {(point, fold) for point in range(2) for fold in range(3)} and all(done.values())
    with open_executor(None) as executor:
        ctx = one.context(executor, 1 << 30, ignore)
        for part in parts:
            for score in part.scores(range(3), ctx, None):
                ((*_, found),) = [[row] for row in done[part.points[0], score.fold]]
                assert found[3:] == list(score)[3:]


def test_what_is_done_is_not_done_again_and_what_was_begun_goes_on(tmp_path, monkeypatch):
    one = search(rows(tmp_path / "data"), POINTS)
    _, _, whole = run_jobs(one, tmp_path / "whole")
    ctx = one.context(Workers(), 1 << 30, ignore)
    (group,) = one.groups(ctx)
    first = group.parts()[0]
    assert [*first.scores([1], ctx, first.store(tmp_path / "jobs", ignore))]

    class Stopped(Exception):
        pass

    def kill(run, name, value):
        if name == "scores":
            raise Stopped
        return write(run, name, value)

    write = RunStore.write_json

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(RunStore, "write_json", kill)
        run_jobs(one, tmp_path / "jobs")
    assert list((tmp_path / "jobs" / "cv-0-0" / "checkpoints").iterdir())
    resumed = []
    load = RunStore.load_checkpoint
    monkeypatch.setattr(RunStore, "load_checkpoint", lambda run, kind: resumed.append(load(run, kind)) or resumed[-1])
    assert run_jobs(one, tmp_path / "jobs")[2] == whole
    assert [found is not None for found in resumed] == [True, False, False, False, False]


def test_a_folder_that_another_worker_holds_is_left_to_it(tmp_path):
    one = search(rows(tmp_path / "data"), POINTS[:1])
    order = jobs._order(one, one.context(Workers(), 1 << 30, ignore), tmp_path / "jobs")
    job = jobs.FitJob((0,), 2, 0, 0)
    with RunStore.begin(tmp_path / "jobs" / "cv-0-2", {**one.record, "fits": [[0, 2]]}) as held:
        (found,) = jobs.run_job(job, one.info, order)
        assert held.read_json("scores") is None
    assert found == run_jobs(one, tmp_path / "other")[2][0, 2] == jobs.run_job(job, one.info, order)[0]


def test_fits_that_no_worker_can_hold_stay_here_and_say_so(tmp_path):
    one, told = search(rows(tmp_path / "data"), POINTS), []
    ctx, parts, done = run_jobs(one, tmp_path / "jobs", Workers(OVERHEAD), told.append)
    assert not done and not ctx.executor.plans and [part.points for part in parts] == [[0], [1]]
    assert [event["event"] for event in told] == ["warning"] and "fits run in this process one after another" in told[0]["message"]
    need = jobs.job_bytes(parts[0].problem(0, 0, ctx))
    ctx, _, done = run_jobs(one, tmp_path / "jobs", Workers(need))
    assert len(done) == 6
    (work,) = ctx.executor.plans
    assert work.n_tasks == 6 and set(work.task_weights) == {need} and work.program.patient


def test_fits_whose_passes_are_distributed_are_no_jobs(tmp_path):
    one = search(rows(tmp_path / "data"), [{"lam": 0.1, "algorithm": "fista"}, {"lam": 0.1, "algorithm": "da"}])
    assert set(run_jobs(one, tmp_path / "jobs")[2]) == {(1, 0), (1, 1), (1, 2)}
    with open_executor(None) as executor:
        assert run_jobs(one, tmp_path / "sync", executor)[2] == {}


def test_fits_that_start_from_one_another_are_one_job(tmp_path):
    """Matrices that one process holds: the values of C are a path, in their order; each fold is a job."""
    X = np.random.default_rng(0).normal(size=(60, 4))
    store = ingest((X, np.where(X[:, 0] > 0, 1, -1)), tmp_path / "data", task_column=np.arange(60) % 2)
    points = [{"C": C, "kernels": ["linear"], "grams": "memory"} for C in (10.0, 0.1)]
    one = search(store, points, "multitask-mkl", 2)
    ctx, parts, done = run_jobs(one, tmp_path / "jobs")
    assert [part.points for part in parts] == [[1, 0]] and [job.fold for job in ctx.executor.plans[0].refs] == [0, 1] and len(done) == 4
    with open_executor(None) as executor:
        here = tmp_path / "here"
        ctx = one.context(executor, 1 << 30, ignore)
        shared = [*one.groups(ctx)[0].all_scores(ctx, here)]
    for score in shared:
        assert done[score.point, score.fold][0][3] == pytest.approx(score.values)


def test_what_jobs_share_travels_as_an_array(tmp_path):
    one = search(rows(tmp_path / "data"), POINTS)
    told = json.loads(jobs._order(one, one.context(Workers(), 1 << 30, ignore), Path("jobs")).tobytes())
    assert told["params"] == [config.model_dump(mode="json") for config in one.configs]
    assert told["driver_memory"] == 1 << 30 and told["digest"] == one.data.digest and Path(told["folder"]).is_absolute()


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
    monkeypatch.setattr(GroupLasso, "shared_fits", lambda *args: None)
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
    monkeypatch.setattr(GroupLasso, "shared_fits", lambda *args: None)
    drawn["run"] = str(tmp_path / "alone")
    tune("group-lasso", GRID, **drawn)
    assert (tmp_path / "both" / "tune.json").read_bytes() == (tmp_path / "alone" / "tune.json").read_bytes()
    _, (part,), done = run_jobs(search(store, POINTS[:1], repeats=2), tmp_path / "jobs")
    assert len(done) == len(part.splits) == 6 and not (part.splits[0].test == part.splits[3].test).all()
    assert all(done[key] == scores for key, scores in run_jobs(search(store, POINTS[:1]), tmp_path / "once")[2].items())
    with pytest.raises(ValueError, match="repeats=0: must be at least 1"):
        tune("group-lasso", GRID, run=str(tmp_path / "none"), **{**place, "repeats": 0})


def test_a_selector_as_a_job_keeps_its_tasks(tmp_path):
    store = CASES["multitask-selector-classes"].data(tmp_path / "data")
    _, (part,), done = run_jobs(search(store, [SELECTOR], "multitask-selector", 2), tmp_path / "jobs")
    assert len(part.inputs.names) == 3 and len(done) == len(part.splits) == 2


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

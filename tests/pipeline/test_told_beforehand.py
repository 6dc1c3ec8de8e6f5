"""What a fit that holds much says before it starts, and a driver's memory that is raised where a run goes on."""

import json
import warnings

import numpy as np
import pytest

from gramplane.cluster import MemoryBoundExceeded
from gramplane.pipeline import (
    ConfigMismatch,
    HierarchicalKernelClassifier,
    LatentTaskMKLClassifier,
    MKLClassifier,
    resume_run,
    run_method,
)
from gramplane.pipeline.core import memory
from gramplane.pipeline.core.memory import check_memory
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.runs import run as runs
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest


def rows(n=40, d=4, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (np.digitize(X[:, 0], [0.0] if classes == 2 else [-0.4, 0.4]))


def said(fit):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
    return [(str(one.message), one.filename) for one in caught]


# --- memory --------------------------------------------------------------------------------------------------------------------------


def test_a_driver_that_holds_much_is_told_and_one_beyond_its_limit_refused():
    told, held = [], [("kernels", 80 * 9000**2), ("rows", 72000)]
    check_memory("mkl", held, RunContext(None, data=None, driver_memory=1 << 40, warn=told.append), "fewer rows")
    assert len(told) == 1 and told[0].startswith("mkl: this process may need up to 6.035 GiB (kernels 6.035 GiB")
    assert told[0].endswith("fewer rows, or a smaller driver_memory")
    check_memory("mkl", held[1:], RunContext(None, data=None, warn=told.append), "fewer rows")
    with pytest.raises(MemoryBoundExceeded, match=r"would hold 6.035 GiB .* its limit is driver_memory=1 GiB"):
        check_memory("mkl", held, RunContext(None, data=None, driver_memory=1 << 30, warn=told.append), "fewer rows")
    assert len(told) == 1


@pytest.mark.parametrize("kind", [MKLClassifier, LatentTaskMKLClassifier])
def test_machines_of_several_classes_say_it_once(kind, monkeypatch):
    X, y = rows(classes=3)
    monkeypatch.setattr(memory, "MUCH_BYTES", 1)
    more = (np.arange(len(y)) % 2,) if kind is LatentTaskMKLClassifier else ()
    texts = [text for text, _ in said(lambda: kind(max_iter=2).fit(X, y, *more)) if "may need up to" in text]
    assert len(texts) == len(set(texts)) <= 2 and "kernels" in texts[0]


def test_a_plan_notes_much_memory_and_a_run_tells_and_keeps_it(tmp_path, monkeypatch):
    store, events = ingest(rows(), tmp_path / "data"), []
    monkeypatch.setattr(memory, "MUCH_BYTES", 1)
    plan = run_method("mkl", {"max_iter": 2}, data=str(store.url), run=str(tmp_path / "run"), dry_run=True).plan
    assert len(plan["notes"]) == 1 and "this process may need up to" in plan["notes"][0]
    run_method("mkl", {"max_iter": 2}, data=str(store.url), run=str(tmp_path / "run"), on_event=events.append)
    told = [event["message"] for event in events if event["event"] == "warning"]
    first = next(k for k, event in enumerate(events) if event["event"] == "iteration")
    assert plan["notes"][0] in told and events.index({"event": "warning", "message": plan["notes"][0]}) < first
    assert (RunStore.open(str(tmp_path / "run")).read_json("decisions") or {})["notes"] == plan["notes"]


# --- graphs over many features -------------------------------------------------------------------------------------------------------


def test_hierarchical_kernels_over_many_features_take_single_ones_and_say_so(tmp_path):
    X, y = rows(50, 140)
    fitted = HierarchicalKernelClassifier(max_rounds=3)
    texts = [text for text, _ in said(lambda: fitted.fit(X, y)) if text.startswith("dag:")]
    assert len(texts) == 1 and "products of 140 features" in texts[0] and "dag='subsets(gaussian)'" in texts[0]
    named = HierarchicalKernelClassifier("subsets(gaussian; depth=1)", max_rounds=3, scale="standard")
    assert not [text for text, _ in said(lambda: named.fit(X, y)) if text.startswith("dag:")]
    np.testing.assert_array_equal(named.decision_function(X), fitted.decision_function(X))
    store = ingest((X, y), tmp_path / "data")
    run_method("hierarchical-kernels", {"max_rounds": 3}, data=str(store.url), run=str(tmp_path / "run"))
    assert RunStore.open(str(tmp_path / "run")).config["decided"] == {"dag": "subsets(gaussian; depth=1)", "max_visits": 20_000}


def test_features_beyond_the_hull_are_looked_at_before_they_join():
    X, y = rows(80, 60)
    X = X[:, ::-1]  # what matters is the last column
    fitted = HierarchicalKernelClassifier("subsets(gaussian; depth=1)", max_nodes=10, max_rounds=3, scale=None)
    said(lambda: fitted.fit(X, y))
    assert fitted.model_.arrays["nodes"].sum(axis=0)[-1] == 1 and fitted.score(X, y) > 0.9


# --- a limit that is raised ----------------------------------------------------------------------------------------------------------


def stop_after(steps):
    def listen(event):
        if event["event"] == "iteration" and event["iteration"] == steps:
            raise KeyboardInterrupt

    return listen


def test_memory_is_raised_where_a_run_goes_on_never_lowered(tmp_path):
    store, run = ingest(rows(200), tmp_path / "data"), str(tmp_path / "run")
    given = {"data": str(store.url), "run": run}
    with pytest.raises(KeyboardInterrupt):
        run_method("mkl", {}, driver_memory="1GiB", on_event=stop_after(1), **given)
    for again in (lambda: resume_run(run, driver_memory="1MiB"), lambda: run_method("mkl", {}, driver_memory="1MiB", **given)):
        with pytest.raises(ConfigMismatch, match="driver_memory is 1073741824 there and 1048576 here"):
            again()
    with pytest.raises(KeyboardInterrupt):
        resume_run(run, driver_memory="2GiB", on_event=stop_after(2))
    where = lambda: json.loads((tmp_path / "run" / "where.json").read_text())["driver_memory"]  # noqa: E731
    assert where() == 2 << 30 and RunStore.open(run).config["driver_memory"] == 1 << 30
    with pytest.raises(KeyboardInterrupt):
        resume_run(run, on_event=stop_after(3))
    assert where() == 2 << 30
    assert run_method("mkl", {}, driver_memory="3GiB", **given).status == "done" and where() == 3 << 30
    assert run_method("mkl", {}, **given).status == "already-done"


def test_decisions_follow_the_memory_that_a_run_began_with_and_refusals_the_newest(tmp_path, monkeypatch):
    store, run, seen = ingest(rows(60), tmp_path / "data"), str(tmp_path / "run"), []
    inner = runs.iterate

    def look(method, problem, ctx, **more):
        seen.append((ctx.driver_memory >> 30, ctx.fit_limit >> 30))
        return inner(method, problem, ctx, **more)

    monkeypatch.setattr(runs, "iterate", look)
    with pytest.raises(KeyboardInterrupt):
        run_method("mkl", {}, data=str(store.url), run=run, driver_memory="1GiB", on_event=stop_after(1))
    assert resume_run(run, driver_memory="2GiB").status == "done" and seen == [(1, 1), (1, 2)]


def test_a_plan_names_the_memory_it_is_made_for(tmp_path):
    store = ingest(rows(), tmp_path / "data")
    plan = run_method("mkl", {}, data=str(store.url), run=str(tmp_path / "run"), driver_memory="1GiB", dry_run=True).plan
    assert plan["driver_memory"] == 1 << 30

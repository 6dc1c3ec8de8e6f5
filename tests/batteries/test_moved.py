"""Runs that go on where processes compute otherwise: one line says so, and the run keeps it; elsewhere nothing is said."""

import json
import subprocess
import sys

import pytest

from gramplane.cluster.arithmetic import arithmetic, describe_change
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import resume_run, run_method, tune
from gramplane.pipeline.records import began
from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from tests.support.commands import tree_bytes
from tests.support.fgm_problems import planted
from tests.support.processors import another_coretype, environment

FGM = {"B": 2, "max_rounds": 5}
HERE = {"processor": "znver4", "vectors": "avx2 fma", "compiler": "as it comes", "blas": "openblas Zen", "numpy": "V3", "libc": "glibc 2"}
THERE = {**HERE, "blas": "openblas Haswell"}


class Stopped(Exception):
    """What the event sink raises to end a run."""


def until(number, events=None):
    def sink(event):
        if events is not None:
            events.append(event)
        if event["event"] == "iteration" and event["iteration"] == number:
            raise Stopped

    return sink


@pytest.fixture
def data(tmp_path):
    ingest(planted(2, d=30), tmp_path / "data")
    return str(tmp_path / "data")


def started(data, run, number=2):
    with pytest.raises(Stopped), one_thread():
        run_method("fgm", FGM, data=data, run=str(run), on_event=until(number))


def computing(monkeypatch, found):
    monkeypatch.setattr(began, "arithmetic", lambda: dict(found))


def told(events):
    return [event["message"] for event in events if event["event"] == "warning" and "moved" in event]


def summary(run):
    return RunStore.open(run).read_json("summary")


def resumed_by_command(run, **variables):
    words = [sys.executable, "-m", "gramplane.workflows.cli", "resume", str(run)]
    done = subprocess.run(words, env=environment(**variables), capture_output=True, text=True, cwd=run.parent, timeout=240)
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if "with another processor or other kernels" in line]


@pytest.mark.slow
def test_a_resume_with_other_kernels_of_blas_says_so_once_and_keeps_it(data, tmp_path):
    coretype = another_coretype()
    started(data, tmp_path / "run")
    (line,) = resumed_by_command(tmp_path / "run", OPENBLAS_CORETYPE=coretype)
    assert coretype in line.partition("; then: ")[2] and coretype not in line.partition("; then: ")[0]
    assert summary(tmp_path / "run")["moved"] in line


@pytest.mark.slow
def test_a_resume_on_the_same_kind_with_any_number_of_threads_says_nothing_and_changes_no_bit(data, tmp_path):
    with one_thread():
        run_method("fgm", FGM, data=data, run=str(tmp_path / "straight"))
    for threads in ("1", "2"):
        run = tmp_path / threads
        started(data, run)
        assert resumed_by_command(run, OPENBLAS_NUM_THREADS=threads, OMP_NUM_THREADS=threads) == []
        assert "moved" not in summary(run)
        assert tree_bytes(run / "model") == tree_bytes(tmp_path / "straight" / "model")


def test_a_run_that_comes_back_still_says_where_it_was(data, tmp_path, monkeypatch):
    computing(monkeypatch, HERE)
    started(data, tmp_path / "run", 1)
    events = []
    for found, number in ((THERE, 2), (HERE, 3)):
        computing(monkeypatch, found)
        with pytest.raises(Stopped):
            resume_run(str(tmp_path / "run"), on_event=until(number, events))
    resume_run(str(tmp_path / "run"), on_event=events.append)
    assert len(told(events)) == 3 and len(set(told(events))) == 1
    assert told(events)[0] == describe_change([HERE, THERE]) == summary(tmp_path / "run")["moved"]
    assert "blas openblas Zen" in told(events)[0] and "avx2" not in told(events)[0], "only what differs is named"


def test_what_was_stopped_before_its_first_step_has_nothing_of_the_other_kind(data, tmp_path, monkeypatch):
    computing(monkeypatch, HERE)

    def at_once(event):
        if event["event"] == "plan":
            raise Stopped

    with pytest.raises(Stopped):
        run_method("fgm", FGM, data=data, run=str(tmp_path / "run"), on_event=at_once)
    computing(monkeypatch, THERE)
    events = []
    run_method("fgm", FGM, data=data, run=str(tmp_path / "run"), on_event=events.append)
    assert not told(events) and "moved" not in summary(tmp_path / "run")


def test_folds_of_a_grid_say_so_too(data, tmp_path, monkeypatch):
    given = {"data": data, "run": str(tmp_path / "grid"), "params": FGM, "folds": 2}
    computing(monkeypatch, HERE)
    with pytest.raises(Stopped):
        tune("fgm", {"C": [0.5, 2.0]}, on_event=until(2), **given)
    computing(monkeypatch, THERE)
    events = []
    tune("fgm", {"C": [0.5, 2.0]}, on_event=events.append, **given)
    assert told(events) == [describe_change([HERE, THERE])]


def test_a_run_of_an_earlier_version_notes_what_it_goes_on_with(data, tmp_path):
    """There is nothing to compare with: it is not told that it moved."""
    started(data, tmp_path / "run")
    (tmp_path / "run" / "began.json").unlink()
    events = []
    resume_run(str(tmp_path / "run"), on_event=events.append)
    assert not told(events)
    assert json.loads((tmp_path / "run" / "began.json").read_text())["arithmetic"] == [arithmetic()]

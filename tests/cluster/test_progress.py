"""What is shown of a fit: a bar on a screen, lines in a pipe, and the time that is left."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import time

import pytest
from rich.console import Console

from gramplane.cluster import events
from gramplane.cluster.events import COMPILING, LineSink, Pace, headline, progress_bar, shown_progress

FIT = """
import numpy as np
from gramplane import FGMClassifier
X = np.random.default_rng(0).normal(size=(60, 8))
FGMClassifier(B=1, verbose=1).fit(X, X[:, 0] + X[:, 1] + X[:, 2] > 0)
"""


def begun(**params):
    return {"event": "begin", "rounds_at_most": 10, "tol": None, **params}


def rounds(pace, gaps, monkeypatch, seconds=2.0):
    """Let rounds of so many seconds pass."""
    clock = iter(100.0 + seconds * k for k in range(100))
    monkeypatch.setattr(events.time, "monotonic", lambda: next(clock))
    for k, gap in enumerate(gaps, 1):
        pace.take({"event": "iteration", "iteration": k, "relative_gap": gap})


def test_time_left_by_the_number_of_rounds(monkeypatch):
    pace = Pace()
    pace.take(begun())
    rounds(pace, [None], monkeypatch)
    assert pace.left(1) == "", "the first round compiles"
    pace.take(begun())
    rounds(pace, [None] * 4, monkeypatch)
    assert pace.left(4) == "at most 12 s left" and pace.left(10) == ""


def test_time_left_by_the_gap(monkeypatch):
    pace = Pace()
    pace.take(begun(tol=1e-4, rounds_at_most=1000))
    rounds(pace, [1.0, 0.1, 0.01], monkeypatch)
    assert pace.left(3) == "", "less than ten seconds are not told"
    pace.take(begun(tol=1e-8, rounds_at_most=1000))
    rounds(pace, [1.0, 0.1, 0.01], monkeypatch)
    assert pace.left(3) == "about 12 s left"
    pace.take(begun(tol=1e-9, rounds_at_most=9))
    rounds(pace, [1.0, 0.9, 0.8], monkeypatch)
    assert pace.left(3) == "at most 12 s left", "the limit of rounds comes first"
    pace.take(begun(tol=1e-9))
    rounds(pace, [0.8, 0.9, 0.9], monkeypatch)
    assert pace.left(3) == "", "a gap that does not fall says nothing"


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.5, ""), (1.7, "at most 11 s left"), (20.0, "at most 2 min left"), (3600.0, "at most 6 h left")]
)
def test_units_of_time(monkeypatch, seconds, text):
    pace = Pace()
    pace.take(begun())
    rounds(pace, [None] * 4, monkeypatch, seconds)
    assert pace.left(4) == text


def test_lines_say_once_that_they_compile():
    lines = []
    sink = LineSink(lines.append, "Fit")
    for event in (
        begun(),
        {"event": "compile", "function": "f"},
        {"event": "compile", "function": "g"},
        {"event": "iteration", "iteration": 1, "objective": 2.0, "gap": 0.5},
        {"event": "phase", "phase": "not for a log"},
        {"event": "tasks", "program": "scores", "done": 1, "n_tasks": 9},
    ):
        sink(event)
    assert lines == [f"Fit: {COMPILING}", "Fit: round 1 of at most 10  objective 2  gap 5.0e-01"]


def test_fast_rounds_share_a_line_and_the_last_has_its_own(monkeypatch):
    lines, now = [], [0.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    with contextlib.closing(LineSink(lines.append)) as sink:
        for k in range(1, 10):
            sink({"event": "iteration", "iteration": k, "objective": 2.0})
            now[0] += 2.0
        sink({"event": "warning", "message": "w"})
    assert [line.partition("  ")[0] for line in lines] == ["round 1", "round 4", "round 7", "warning: w", "round 9"]


def test_long_passes_say_how_far_they_are(monkeypatch):
    lines, now = [], [0.0]
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    sink = LineSink(lines.append)
    for done in range(1, 41):
        now[0] += 1.0
        sink({"event": "tasks", "program": "scores", "done": done, "n_tasks": 40})
    assert lines == ["scores: task 11 of 40", "scores: task 22 of 40", "scores: task 33 of 40"]


def test_executors_tell_how_far_a_pass_is(monkeypatch):
    from gramplane.cluster import executor, open_executor, plan
    from gramplane.cluster.program import BlockProgram

    monkeypatch.setattr(executor, "SECONDS_PER_EVENT", -1.0)
    events = []
    with open_executor(None, events=events.append) as here:
        program = BlockProgram("sums", lambda ref: ref, sum, lambda ref: 1, 8)
        assert here.run(plan(program, [1, 2, 3])) == 6
    told = [(event["done"], event["n_tasks"]) for event in events if event["event"] == "tasks"]
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert headline({"event": "tasks", "program": "sums", "done": 1, "n_tasks": 3}) == "sums: task 1 of 3"


def test_what_is_not_known_yet_is_left_out():
    event = {"event": "iteration", "iteration": 1, "objective": 2.5, "gap": float("nan"), "outer_gap": float("inf"), "n_selected": 3}
    assert headline(event) == "round 1  objective 2.5  selected 3"
    assert headline({**event, "gap": 0.25}) == "round 1  objective 2.5  gap 2.5e-01  selected 3"


def test_a_bar_on_a_terminal():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with progress_bar("Fit", console) as emit:
        emit(begun(rounds_at_most=2))
        emit({"event": "compile", "function": "scores"})
        time.sleep(0.3)
        emit({"event": "iteration", "iteration": 1, "objective": 2.0})
        time.sleep(0.3)
    shown = text.getvalue()
    assert f"{COMPILING}: scores" in shown and "round 1  objective 2" in shown and "\x1b[" in shown and "━" in shown
    after = shown[shown.index("round 1  objective 2") :]
    assert "starting" not in after and "round 1 of at most 2" in after


def test_quiet_fits_show_nothing(capfd):
    with shown_progress(0) as emit:
        emit({"event": "warning", "message": "no"})
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_fit_in_a_pipe_writes_lines_without_control_characters(tmp_path):
    environ = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", FIT], capture_output=True, text=True, env=environ, check=True)
    lines = done.stderr.splitlines()
    assert done.stdout == "" and all(line.isprintable() for line in lines)
    assert lines.count(f"FGMClassifier: {COMPILING}") == 1
    assert [line.split("  ")[0] for line in lines if "round" in line] == [f"FGMClassifier: round {k} of at most 10" for k in (1, 3)]


@pytest.mark.slow
def test_a_fit_on_a_terminal_draws_a_bar():
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", FIT], stderr=theirs, stdout=subprocess.PIPE, env=os.environ | {"TERM": "xterm"}
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:  # the other end is closed
            pass
        assert process.stdout is not None and process.stdout.read() == b""
    os.close(ours)
    assert process.returncode == 0 and b"\x1b[" in shown and "━".encode() in shown and b"round 3" in shown
    assert shown.rstrip().endswith(b"\x1b[2K"), "the bar goes when all is done"

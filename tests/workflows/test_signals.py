"""Being interrupted: one signal leaves in order and can be continued, a second one leaves at once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from gramplane.workflows.cli import main
from gramplane.workflows.signals import Interrupted, interruptible
from tests.support.places import ROOT

SMOKE = ROOT / "workflows" / "smoke.svm"
_SLEEPER = """
import sys, time, gramplane.pipeline
from gramplane.workflows import signals
from gramplane.workflows.cli import main
signals.interruptible.__wrapped__.__defaults__ = (float(sys.argv[2]),)

def run_method(*args, on_event, **more):
    try:
        on_event({"event": "iteration", "iteration": 1})
        time.sleep(60)
    finally:
        if sys.argv[1] == "stubborn":
            on_event({"event": "iteration", "iteration": 2})
            time.sleep(60)

gramplane.pipeline.run_method = run_method
sys.exit(main(["fit", "fgm", "--data", ".", "--run", "r", "--json"]))
"""


def start(kind: str, folder: Path, grace: float = 1.0) -> subprocess.Popen[str]:
    as_usual = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)  # who runs the tests may have ignored it (nohup)
    words = [sys.executable, "-c", _SLEEPER, kind, str(grace)]
    process = subprocess.Popen(words, cwd=folder, stdout=-1, stderr=-1, text=True, preexec_fn=as_usual)
    assert process.stderr is not None
    assert json.loads(process.stderr.readline())["iteration"] == 1
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_leaves_with_its_code_and_one_message(number: signal.Signals, code: int, tmp_path: Path):
    process = start("obedient", tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert f"stopped by {number.name}" in err and "Traceback" not in err
    assert json.loads(out.splitlines()[-1])["exit"] == code


def test_a_second_signal_leaves_at_once(tmp_path: Path):
    process = start("stubborn", tmp_path, grace=300.0)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=50)  # it would sleep for 60 seconds
    assert process.returncode == 130


def test_what_does_not_close_is_left_behind(tmp_path: Path):
    process = start("stubborn", tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back():
    before = signal.getsignal(signal.SIGTERM)
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_interrupt_is_no_exception_to_recover_from():
    assert not issubclass(Interrupted, Exception)


@pytest.mark.slow
@pytest.mark.cluster
def test_a_terminated_fit_on_a_cluster_leaves_nothing_behind_and_continues(tmp_path: Path):
    assert main(["ingest", str(SMOKE), str(tmp_path / "store"), "--quiet"]) == 0
    words = ["fit", "fgm", "--data", str(tmp_path / "store"), "--set", "B=1", "--set", "max_rounds=400", "--set", "C=100"]
    assert main([*words, "--run", str(tmp_path / "whole"), "--quiet"]) == 0
    rounds = len((tmp_path / "whole" / "history.jsonl").read_text().splitlines())
    assert rounds > 10

    cut = [sys.executable, "-m", "gramplane.workflows.cli", *words, "--run", str(tmp_path / "cut"), "--cluster", "local:2", "--json"]
    with subprocess.Popen(
        cut, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("{") and json.loads(line).get("iteration", 0) >= 3:
                break
        children = psutil.Process(process.pid).children(recursive=True)
        assert children, "the workers"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == 143
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    done = len((tmp_path / "cut" / "history.jsonl").read_text().splitlines())
    assert 3 <= done < rounds
    shutil.copytree(tmp_path / "cut", tmp_path / "again")
    assert main(["resume", str(tmp_path / "again"), "--cluster", "sync", "--quiet"]) == 0
    same = [(tmp_path / name / "model" / "manifest.json").read_bytes() for name in ("whole", "again")]
    assert same[0] == same[1]


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_what_is_said_before_the_first_round_is_said_afterwards_too(command: str, tmp_path: Path, monkeypatch, capsys):
    """The message of Ctrl-C said `what is finished is kept … to continue` of a run that `status` and `resume` then knew nothing of."""
    from gramplane.pipeline.runs import run as running
    from gramplane.pipeline.runs import tune as tuning

    def interrupted(*args: object, **more: object) -> None:
        raise Interrupted(signal.SIGINT)

    assert main(["ingest", str(SMOKE), str(tmp_path / "store"), "--quiet"]) == 0
    # A fit has made its folder by then; a tune is stopped before.
    monkeypatch.setattr(*((running, "executing") if command == "fit" else (tuning, "same_as_before")), interrupted)
    words = [
        command,
        "fgm",
        "--data",
        str(tmp_path / "store"),
        "--run",
        str(tmp_path / "run"),
        *(["--grid", "C=1,2"] if command == "tune" else []),
    ]
    assert main(words) == 130
    told = f"run {tmp_path / 'run'} was stopped before it saved anything; run the same command again"
    told = told.replace("; run the", "\nhelp: run the")
    assert capsys.readouterr().err.endswith(f"error: stopped by SIGINT; {told}\n")
    for later in ("status", "history", "resume") if command == "fit" else ():
        assert main([later, str(tmp_path / "run")]) == 2
        assert told in capsys.readouterr().err
    monkeypatch.undo()
    if command == "fit":
        assert main([*words, "--set", "max_rounds=2", "--quiet"]) == 0


def test_what_is_said_after_the_first_round_is_said_afterwards_too(tmp_path: Path, monkeypatch, capsys):
    from gramplane.pipeline.runs import run as running

    real = running.iterate

    def interrupted(*given: Any, **more: Any) -> None:
        real(*given, **more)
        raise Interrupted(signal.SIGINT)

    assert main(["ingest", str(SMOKE), str(tmp_path / "store"), "--quiet"]) == 0
    monkeypatch.setattr(running, "iterate", interrupted)
    assert main(["fit", "fgm", "--data", str(tmp_path / "store"), "--run", str(tmp_path / "run"), "--set", "max_rounds=2"]) == 130
    assert "what is finished is kept, run the same command again to continue" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["status", str(tmp_path / "run")]) == 0
    assert "gramplane resume" in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0

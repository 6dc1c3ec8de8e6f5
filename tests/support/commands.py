"""The command line, typed in this process or in processes of its own: started from anywhere, watched, killed, and compared."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gramplane.storage import RunStore
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.clusters import ROOT, wait_until

START = 180.0
"""Seconds a process may take to begin its work on a busy machine."""


@dataclass
class Command:
    """A running ``gramplane`` process.

    Attributes
    ----------
    process
        It.
    out, err
        Files its output goes to.
    """

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self, timeout: float = 120.0) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout:g} s:\n{self.messages}") from None

    def kill(self, sign: int = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end if none can be survived."""
        self.process.send_signal(sign)
        if sign == signal.SIGKILL:
            self.process.wait(10)

    def ended(self) -> bool:
        """Tell whether the process is gone."""
        return self.process.poll() is not None

    @property
    def messages(self) -> str:
        """What stands on its stderr."""
        return self.err.read_text()

    @property
    def result(self) -> dict[str, Any]:
        """The last line of stdout."""
        return json.loads(self.out.read_text().rstrip("\n").rpartition("\n")[2])


def start(words: list[Any], folder: Path, prefix: Sequence[Any] = (), **environment: str) -> Command:
    """Start ``PREFIX gramplane WORDS --json`` in ``folder``, whose subfolder ``.logs`` takes its output."""
    logs = folder / ".logs"
    logs.mkdir(parents=True, exist_ok=True)
    number = len(list(logs.iterdir()))
    out, err = logs / f"{number}.out", logs / f"{number}.err"
    env = {name: value for name, value in os.environ.items() if not name.startswith("GRAMPLANE_")}
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(_import_root())]))
    command = [*map(str, prefix), sys.executable, "-m", "gramplane.workflows.cli", *map(str, words), "--json"]
    with out.open("wb") as stdout, err.open("wb") as stderr:
        return Command(subprocess.Popen(command, cwd=folder, stdout=stdout, stderr=stderr, env={**env, **environment}), out, err)


def _import_root() -> Path:
    # Where a bare checkout finds its own packages; behind an installed gramplane it changes nothing.
    return ROOT / "tests" / "support" / "_bare"


def gramplane(words: list[Any], folder: Path, prefix: Sequence[Any] = (), **environment: str) -> tuple[int, dict[str, Any]]:
    """Run ``PREFIX gramplane WORDS --json`` to its end; return exit code and result."""
    command = start(words, folder, prefix, **environment)
    code = command.wait()
    assert "Traceback" not in command.messages, command.messages
    return code, command.result


# -- a problem whose passes have several tasks ---------------------------------------------------------------------------

PARAMS = {"B": 3, "C": 10.0, "max_rounds": 24}
"""Long enough to be disturbed: about a tenth of a second a round."""


def wide_store(url: Path, n: int = 2048, d: int = 24_576, seed: int = 0) -> Path:
    """A dense store of 192 MiB, that is three tasks a pass, whose labels depend on 60 columns."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    w = rng.standard_normal(60)
    ingest((X, np.where(X[:, :60] @ w + rng.standard_normal(n) > 0, 1, -1)), url)
    return url


def fit_words(store: Path, run: Path, params: dict[str, Any] | None = None) -> list[Any]:
    """The words of a fit."""
    settings = [word for key, value in (params or PARAMS).items() for word in ("--set", f"{key}={value}")]
    return ["fit", "fgm", "--data", store, "--run", run, *settings]


# -- run directories --------------------------------------------------------------------------------------------------------


def rounds(run: Path) -> int:
    """Lines of the history so far."""
    try:
        return (run / "history.jsonl").read_bytes().count(b"\n")
    except FileNotFoundError:
        return 0


def wait_for_rounds(command: Command, run: Path, count: int, pause: float = 0.05) -> None:
    """Wait until a running command has finished ``count`` rounds, or has ended; look every ``pause`` seconds."""
    wait_until(lambda: rounds(run) >= count or command.ended(), START, f"{count} rounds of {run}:\n{command.messages}", pause)


def at_random(rng: random.Random, command: Command, run: Path, last: int) -> int:
    """Wait for a random moment of a run: a little after one of its rounds up to ``last``; return the rounds done by then."""
    wait_for_rounds(command, run, rng.randint(0, last))
    time.sleep(rng.uniform(0.0, 0.2))
    return rounds(run)


def equal_runs(a: Path, b: Path) -> None:
    """Compare two finished runs: model files and last checkpoints byte for byte, history and summary but for their seconds."""
    one, two = RunStore.open(a), RunStore.open(b)
    np.testing.assert_equal([_untimed(row) for row in one.history()], [_untimed(row) for row in two.history()])
    assert _untimed(one.read_json("summary")) == _untimed(two.read_json("summary"))
    assert one.read_json("tables") == two.read_json("tables")
    for folder in ("model", "checkpoints"):
        assert tree_bytes(a / folder) == tree_bytes(b / folder)


def _untimed(row: dict[str, Any]) -> dict[str, Any]:
    # Seconds, and the tasks of a resume, which fetches the columns of all cuts again, are what a run took, not what it found.
    return {name: value for name, value in row.items() if not name.startswith("seconds") and name not in ("tasks", "bytes", "retries")}


def tree_bytes(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def is_resumable(run: Path) -> int:
    """Check that a stopped run has a sound checkpoint, no summary and no half-written files; return the checkpoint's round."""
    from gramplane.pipeline.methods.fgm.method import FGMState

    store = RunStore.open(run)
    assert store.read_json("summary") is None
    found = store.load_checkpoint(FGMState)
    assert found is not None
    return found[0]


def result(words: Sequence[object], capsys: pytest.CaptureFixture[str], code: int = 0) -> Any:
    """Run a command with ``--json``, see that it ends with ``code``, and return the record on the last line of its output."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])

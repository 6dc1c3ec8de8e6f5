"""What a killed driver left in the temporary folder goes with the next start; what Ctrl-C says before the first round holds afterwards."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

from gramplane.pipeline import run_method
from tests.reliability.defect_13_lost_workers import PARAMS, begun, fit_words
from tests.reliability.walks import walk
from tests.support.clusters import children, wait_until
from tests.support.commands import START, gramplane, start


def made(folder: Path) -> list[Path]:
    """Folders of gramplane in the temporary folder of a walk."""
    return [path for path in (folder / "tmp").iterdir() if path.name.startswith("gramplane-")]


@walk(16, "the folder and the key of a killed driver are gone after the next start, by lock and not by age")
def swept(folder: Path) -> None:
    store, _ = begun(folder)
    (folder / "tmp").mkdir()
    command = start([*fit_words(store, folder / "run", PARAMS), "--cluster", "local:1"], folder, TMPDIR=str(folder / "tmp"))
    wait_until(lambda: command.ended() or list(folder.glob("tmp/*/tls/key.pem")), START, "the key")
    found = children(command.process.pid)
    command.kill()
    assert len(made(folder)) == 1
    assert gramplane(fit_words(store, folder / "next", PARAMS), folder, TMPDIR=str(folder / "tmp"))[0] == 0
    assert made(folder) == []
    wait_until(lambda: not any(process.is_running() for process in found), 30, "the workers follow their driver")


@walk(16, "drivers killed at random moments, in all places where a folder is made, leave nothing after the next start", quick=False)
def swept_at_random(folder: Path) -> None:
    store, _ = begun(folder)
    (folder / "tmp").mkdir()
    rng = random.Random(16)
    for trial in range(12):
        command = start([*fit_words(store, folder / f"run-{trial}", PARAMS), "--cluster", "local:2"], folder, TMPDIR=str(folder / "tmp"))
        time.sleep(rng.uniform(0.5, 9.0))
        command.kill()
        assert len(made(folder)) <= 1
        if trial % 3 == 2:
            assert gramplane(fit_words(store, folder / f"next-{trial}", PARAMS), folder, TMPDIR=str(folder / "tmp"))[0] == 0
            assert made(folder) == []


@walk(16, "after Ctrl-C before the first round the message and what status and resume say agree")
def interrupted(folder: Path) -> None:
    store, _ = begun(folder)
    run = folder / "run"
    command = start([*fit_words(store, run, PARAMS), "--cluster", "local:1"], folder)
    wait_until(lambda: command.ended() or (run / "where.json").exists(), START, "the folder of the run")
    command.kill(signal.SIGINT)
    assert command.wait(60) == 130, command.messages
    told = f"run {run} was stopped before it began, so nothing of it is kept; run the same command again"
    assert told in command.messages
    for later in ("status", "resume"):
        code, result = gramplane([later, run], folder)
        assert (code, result["error"]) == (2, told), result
    assert run_method("fgm", PARAMS, data=str(store), run=str(run)).status == "done"

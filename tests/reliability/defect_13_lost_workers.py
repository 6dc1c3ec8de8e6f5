"""Workers that are lost while a run starts are replaced; one that hangs is left out; the bits are the same."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from gramplane.pipeline import run_method
from gramplane.storage.ingest import ingest
from tests.reliability.walks import walk
from tests.support.clusters import ROOT, children, wait_until
from tests.support.commands import START, Command, equal_runs, fit_words, start

PARAMS = {"B": 2, "C": 10.0, "max_rounds": 4}
TRIALS = 30


def begun(folder: Path) -> tuple[Path, Path]:
    """Return a store, and the run on it that nothing disturbed."""
    ingest(ROOT / "workflows" / "smoke.svm", folder / "store", progress=None)
    run_method("fgm", PARAMS, data=str(folder / "store"), run=str(folder / "straight"))
    return folder / "store", folder / "straight"


def on_workers(folder: Path, run: Path, store: Path, **environment: str) -> Command:
    return start([*fit_words(store, run, PARAMS), "--cluster", "local:2"], folder, **environment)


def workers(command: Command, count: int) -> list[psutil.Process]:
    """Wait until a command has started some processes, or has ended; return those there are."""

    def there() -> bool:
        return command.ended() or len(children(command.process.pid)) >= count

    wait_until(there, START, "worker processes")
    return [] if command.ended() else children(command.process.pid)


def killed(found: list[psutil.Process]) -> None:
    for process in found:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


@walk(13, "one worker or all, killed at random moments of start and preflight: the run ends in the same bits", quick=False)
def at_random(folder: Path) -> None:
    store, straight = begun(folder)
    rng = random.Random(13)
    for trial in range(TRIALS):
        run = folder / f"run-{trial}"
        command = on_workers(folder, run, store)
        workers(command, 2)
        time.sleep(rng.uniform(0.0, 6.0))
        choose: Callable[[list[psutil.Process]], list[psutil.Process]] = list if trial % 3 == 0 else lambda found: found[:1]
        killed(choose(children(command.process.pid)) if not command.ended() else [])
        assert command.wait(300) == 0, (trial, command.messages)
        equal_runs(run, straight)

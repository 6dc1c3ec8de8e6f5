"""Many starts of one run at the same moment: processes that wait for one another, start it together, and tell their exit codes."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from gramplane.storage.ingest import ingest

PATIENCE = 300.0
"""Seconds the slowest process may need to be ready on a busy machine."""


def small_store(url: Path) -> Path:
    """A store on which a fit of two rounds takes some hundredths of a second."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6))
    ingest((X, np.where(X[:, 0] + X[:, 1] > 0, 1, -1)), url)
    return url


def exit_codes(store: Path, folder: Path, starters: int, starts: int) -> Counter[int]:
    """Start run after run in ``folder``, each ``starters`` times at once, until there were ``starts``; count the exit codes."""
    rounds = -(-starts // starters)
    spawned = multiprocessing.get_context("spawn")
    gate, told = spawned.Barrier(starters), spawned.Queue()
    made = [spawned.Process(target=_race, args=(gate, told, str(store), str(folder), rounds)) for _ in range(starters)]
    for process in made:
        process.start()
    found = Counter(code for _ in made for code in told.get(timeout=PATIENCE + rounds))
    for process in made:
        process.join(PATIENCE)
    return found


def _race(gate: Barrier, told: multiprocessing.Queue[list[int]], store: str, folder: str, rounds: int) -> None:
    # One fit compiles and loads what the first would otherwise do inside the race.
    _started(store, f"{folder}/warm-{multiprocessing.current_process().name}")
    codes = []
    for number in range(rounds):
        gate.wait(PATIENCE)
        codes.append(_started(store, f"{folder}/run-{number}"))
    told.put(codes)


def _started(store: str, run: str) -> int:
    from gramplane.pipeline import run_method
    from gramplane.workflows.exits import exit_code

    try:
        run_method("fgm", {"B": 1, "max_rounds": 2}, data=store, run=run)
    except Exception as error:  # whatever it is, its code is what is counted
        return int(exit_code(error))
    return 0

"""Defect 7: data that are replaced while a run reads them."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np

from tests.reliability.walks import walk
from tests.support.commands import START, Command, gramplane, start, tree_bytes, wait_for_rounds


def _table(place: Path, seed: int, n: int = 400, d: int = 20_000) -> Path:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d), dtype=np.float32)
    y = np.where(X[:, :40].sum(axis=1) + 3 * rng.standard_normal(n) > 0, 1, -1)
    np.savez(place, X=X, y=y)
    return place


def _stores(folder: Path, **size: int) -> tuple[Path, Path]:
    """A store from one table, and another table of the same shape."""
    one, other = (_table(folder / f"{name}.npz", seed, **size) for seed, name in enumerate(("one", "other")))
    assert gramplane(["ingest", one, folder / "store"], folder)[0] == 0
    return folder / "store", other


def _stopped(words: list[object], folder: Path, run: Path) -> Command:
    """A fit that stands still after its first round."""
    command = start(words, folder)
    wait_for_rounds(command, run, 1, pause=0.002)
    command.kill(signal.SIGSTOP)
    assert not command.ended(), command.messages
    return command


def _continued(command: Command) -> int:
    command.kill(signal.SIGCONT)
    return command.wait(START)


def _same_model(run: Path, straight: Path) -> None:
    assert tree_bytes(run / "model") == tree_bytes(straight / "model"), "the model is not that of the data the run began with"


@walk(7, "A Gram store replaced under a running fit gives the model of the kernels it began with", quick=False)
def replaced_grams(folder: Path) -> None:
    store, other = _stores(folder, n=1500, d=40)
    kernels = "; ".join(f"rbf(gamma={2.0**-k})" for k in range(3, 9)) + "; " + "; ".join(f"linear[{j}]" for j in range(24))
    assert gramplane(["gram", store, "--kernels", kernels, "--out", folder / "grams"], folder)[0] == 0
    words = ["fit", "mkl", "--data", store, "--kernels", "precomputed", "--gram-store", folder / "grams", "--set", "tol=1e-9", "--run"]
    assert gramplane([*words, folder / "straight"], folder)[0] == 0
    command = _stopped([*words, folder / "run"], folder, folder / "run")
    assert gramplane(["ingest", other, folder / "store-2"], folder)[0] == 0
    code, _ = gramplane(["gram", folder / "store-2", "--kernels", kernels, "--out", folder / "grams", "--overwrite"], folder)
    assert code == 0
    assert _continued(command) == 0, command.messages
    _same_model(folder / "run", folder / "straight")

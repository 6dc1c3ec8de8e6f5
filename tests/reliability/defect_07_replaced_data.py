"""Defect 7: data that are replaced while a run reads them."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np

from tests.reliability.walks import walk
from tests.support.clusters import wait_until
from tests.support.commands import START, Command, gramplane, rounds, start, tree_bytes, wait_for_rounds

ROUNDS = 120


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


@walk(7, "A store replaced under a running fit gives the model of the data it began with")
def replaced_store(folder: Path) -> None:
    store, other = _stores(folder)
    words = ["fit", "fgm", "--data", store, "--set", "B=2", "--set", f"max_rounds={ROUNDS}", "--set", "outer_tol=1e-12", "--run"]
    assert gramplane([*words, folder / "straight"], folder)[0] == 0
    command = _stopped([*words, folder / "run"], folder, folder / "run")
    code, found = gramplane(["ingest", other, store, "--overwrite"], folder)
    assert code == 0
    assert _continued(command) == 0, command.messages
    _same_model(folder / "run", folder / "straight")
    code, told = gramplane(["status", folder / "run"], folder)
    assert code == 0 and "was replaced" in told["data_replaced"] and found["digest"] in told["data_replaced"]
    assert gramplane(["clean", store, "--yes"], folder)[0] == 0
    assert [path.name for path in (folder / "store").glob("v*")] == ["v2"], "nobody reads the old version any more"


@walk(7, "A Gram store replaced under a running fit gives the model of the kernels it began with", quick=False)
def replaced_grams(folder: Path) -> None:
    store, other = _stores(folder, n=1500, d=40)
    kernels = "; ".join(f"rbf(gamma={2.0**-k})" for k in range(3, 9)) + "; " + "; ".join(f"linear[{j}]" for j in range(24))
    assert gramplane(["gram", store, "--kernels", kernels, "--out", folder / "grams"], folder)[0] == 0
    words = ["fit", "mkl", "--data", store, "--grams", folder / "grams", "--set", "tol=1e-9", "--run"]
    assert gramplane([*words, folder / "straight"], folder)[0] == 0
    command = _stopped([*words, folder / "run"], folder, folder / "run")
    assert gramplane(["ingest", other, folder / "store-2"], folder)[0] == 0
    code, _ = gramplane(["gram", folder / "store-2", "--kernels", kernels, "--out", folder / "grams", "--overwrite"], folder)
    assert code == 0
    assert _continued(command) == 0, command.messages
    _same_model(folder / "run", folder / "straight")


def _text(place: Path, seed: int, n: int = 400_000) -> Path:
    rng = np.random.default_rng(seed)
    cols = np.sort(rng.random((n, 8)).argsort(axis=1), axis=1)[:, :6] * 10 + 1 + rng.integers(0, 10, (n, 6))
    signs = np.where(rng.random(n) < 0.5, "+1", "-1")
    lines = np.concatenate([cols, rng.integers(0, 99_999, (n, 6))], axis=1)[:, [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]]
    form = " ".join(["%d:0.%05d"] * 6)
    place.write_text("".join(f"{sign} {form % tuple(row)}\n" for sign, row in zip(signs, lines.tolist(), strict=True)))
    return place


@walk(7, "A text changed in place between a kill and the resume is refused by name (6)")
def changed_text(folder: Path) -> None:
    text = _text(folder / "rows.svm", 0)
    words = ["fit", "group-lasso", "--stream", text, "--n-features", 100, "--set", "lam=0.001", "--run", folder / "run"]
    command = start(words, folder)
    checkpoints = folder / "run" / "checkpoints"
    wait_until(lambda: any(checkpoints.glob("*.json")) or command.ended(), START, "the first checkpoint", 0.002)
    command.kill()
    assert rounds(folder / "run") < 3, "the whole text was read before the kill"
    size = text.stat().st_size
    with text.open("r+b") as file:
        data = bytearray(file.read(4096))
        at = data.index(b":0.") + 3
        data[at : at + 1] = b"5" if data[at : at + 1] != b"5" else b"6"
        file.seek(0)
        file.write(data)
    assert text.stat().st_size == size
    code, told = gramplane(["resume", folder / "run"], folder)
    assert code == 6 and "the text was changed" in told["error"], (code, told)
    assert not (folder / "run" / "model").exists()


@walk(16, "--overwrite refuses to remove files that the store did not write")
def foreign_files(folder: Path) -> None:
    store, other = _stores(folder, n=20, d=3)
    (store / "thesis.tex").write_text("years of work")
    code, told = gramplane(["ingest", other, store, "--overwrite"], folder)
    assert code == 3 and "thesis.tex" in told["error"], (code, told)
    assert (store / "thesis.tex").read_text() == "years of work" and gramplane(["verify", store], folder)[0] == 0

"""What faults are put into: one of every thing gramplane writes, and every command with the things it reads and writes."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from gramplane.workflows.commands.methods import MethodGroup
from tests.support.fault_runner import run_words

FLOW = """schema: gramplane.workflow/1
name: it
store: flow-store
runs: flow-runs
steps:
  - {id: data, do: ingest, with: {source: data.svm, format: svmlight}}
  - {id: select, do: fit, needs: [data], with: {method: fgm, B: 1, max_rounds: 2}}
  - {id: scores, do: score, needs: [select], with: {model: select, store: flow-store}}
"""


@dataclass(frozen=True)
class Case:
    """A command: its words (``@`` stands for the folder of the bench), the things it reads, and the one it writes."""

    words: tuple[str, ...]
    reads: tuple[str, ...] = ()
    writes: str | None = None

    def at(self, bench: Path) -> list[str]:
        """Return the words for a bench."""
        return [word.replace("@", str(bench)) for word in self.words]


def _case(text: str, reads: str = "", writes: str | None = None) -> Case:
    return Case((*text.split(), "--json"), tuple(reads.split()), writes)


FIT = "--set B=1 --set max_rounds=2"
CASES: dict[str, tuple[Case, ...]] = {
    "demo": (_case("demo --out @/demo --cluster sync", "demo", "demo"),),
    "ingest": (_case("ingest @/data.svm @/new", "data.svm", "new"), _case("ingest @/data.npz @/new", "data.npz", "new")),
    "gram": (
        _case("gram @/store --kernels linear --out @/new", "store", "new"),
        _case("gram @/store --kernels linear --out @/grams", "grams", "grams"),
    ),
    "fit": (
        _case(f"fit fgm --data @/store --run @/new {FIT}", "store", "new"),
        _case(f"fit fgm --data @/store --run @/run {FIT}", "run", "run"),
        _case("fit mkl --data @/store --gram-store @/grams --kernels precomputed --run @/new", "grams", "new"),
        _case(f"fit fgm --data @/store --groups @/groups.json --run @/new {FIT}", "groups.json", "new"),
    ),
    "tune": (
        _case(f"tune fgm --data @/store --run @/new --folds 2 --grid C=1,10 {FIT}", "store", "new"),
        _case(f"tune fgm --data @/store --run @/grid --folds 2 --grid C=1,10 {FIT}", "grid", "grid"),
    ),
    "resume": (_case("resume @/stopped", "stopped store", "stopped"), _case("resume @/run", "run")),
    "predict": (
        _case("predict @/run @/store @/new.csv", "run store", "new.csv"),
        _case("predict @/grid @/store @/new.npz", "grid", "new.npz"),
    ),
    "cluster": (_case("cluster @/kernel @/new.csv --n-clusters 2 --store @/store", "kernel store", "new.csv"),),
    "score": (_case("score @/run @/store", "run store", "run"),),
    "stability": (_case("stability @/run --resamples 2", "run store", "run"),),
    "report": (_case("report @/run", "run", "run"), _case("report @/grid @/run --out @/new", "grid", "new")),
    "status": (_case("status @/run", "run"), _case("status @/stopped", "stopped"), _case("status @/grid", "grid")),
    "history": (_case("history @/run", "run"),),
    "run": (_case("run @/flow.yaml --run-id one", "flow.yaml data.svm flow-runs flow-store", "flow-runs"),),
    "config show": (_case("config show @/flow.yaml --resolved", "flow.yaml"), _case("config show fgm")),
    "config schema": (_case("config schema fgm"),),
    "inspect": (_case("inspect @/store", "store"), _case("inspect @/grams", "grams"), _case("inspect @/run", "run")),
    "verify": (_case("verify @/store", "store"), _case("verify @/grams", "grams")),
    "repair": (_case("repair @/grams @/store", "grams store", "grams"),),
    "clean": (
        _case("clean @/store --yes", "store", "store"),
        _case("clean @/grams --yes", "grams", "grams"),
        _case("clean @/run --yes", "run", "run"),
    ),
    "warmup": (_case("warmup"),),
    "completion": (_case("completion bash"),),
    "help": (_case("help exit-codes"), _case("help running")),
}
"""Every command of ``gramplane`` by its words; a command that is not here fails the test of this table."""

LONG = ("demo", "warmup")
"""Commands that take seconds even where nothing is wrong; they walk the shorter tables only."""


def leaf_commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    """Yield every command of a click group by its words."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group) and not isinstance(command, MethodGroup):
            yield from leaf_commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name


def make_bench(folder: Path) -> Path:
    """Write one of every thing into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((24, 4)).round(3)
    y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
    rows = [f"{label} " + " ".join(f"{j + 1}:{value}" for j, value in enumerate(row)) for label, row in zip(y, X, strict=True)]
    (folder / "data.svm").write_text("\n".join(rows) + "\n")
    np.savez(folder / "data.npz", X=X, y=y)
    (folder / "groups.json").write_text("[[0, 1], [2, 3]]")
    (folder / "pairs.csv").write_text("".join(f"{i},{i + 3},{1 if y[i] == y[i + 3] else -1}\n" for i in range(21)))
    (folder / "flow.yaml").write_text(FLOW)
    for text in (
        "ingest @/data.svm @/store",
        f"fit fgm --data @/store --run @/run {FIT}",
        f"tune fgm --data @/store --run @/grid --folds 2 --grid C=1,10 {FIT}",
        "gram @/store --kernels linear --out @/grams",
        "fit npkl --data @/store --constraints @/pairs.csv --run @/kernel --set graph=union",
        "run @/flow.yaml --run-id one",
        "score @/run @/store",
    ):
        ended = run_words(_case(text).at(folder))
        assert ended.code == 0, ended.err
    shutil.copytree(folder / "run", folder / "stopped")
    for name in ("summary.json", "tables.json", "scores.json"):
        (folder / "stopped" / name).unlink()
    shutil.rmtree(folder / "stopped" / "model")
    return folder


# -- damage to one file ------------------------------------------------------------------------------------------------------


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes() or b"\0")
    data[len(data) // 2] ^= 4
    file.write_bytes(data)


def _replaced(file: Path, content: bytes) -> None:
    file.unlink()
    file.write_bytes(content)


def _folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def _link(file: Path, target: str) -> None:
    file.unlink()
    os.symlink(target, file)


DAMAGE: dict[str, Callable[[Path], None]] = {
    "flipped": _flip,
    "cut short": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file: file.write_bytes(b""),
    "garbage": lambda file: _replaced(file, bytes(range(256)) * 8),
    "nested too deep": lambda file: _replaced(file, b"[" * 200_000),
    "deep object": lambda file: _replaced(file, b'{"a":' * 100_000),
    "another object": lambda file: _replaced(file, b'{"format": 1, "attributes": []}'),
    "a folder": _folder,
    "absent": lambda file: file.unlink(),
    "a link to itself": lambda file: _link(file, file.name),
    "a link to nothing": lambda file: _link(file, "/nowhere/at/all"),
}
"""What can be wrong with a file."""


def files_of(bench: Path, item: str) -> list[Path]:
    """Return every file of a thing, its locks too."""
    place = bench / item
    return [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())


# -- paths that are not what was meant -----------------------------------------------------------------------------------------


def _made(path: Path, make: Callable[[Path], object]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)
    return str(path)


PATHS: dict[str, Callable[[Path], str]] = {
    "absent": lambda odd: str(odd / "not" / "there"),
    "empty text": lambda odd: "",
    "a NUL": lambda odd: f"{odd}/a\0b",
    "very long": lambda odd: f"{odd}/{'x' * 300}",
    "much too long": lambda odd: f"{odd}/" + "/".join(["y" * 200] * 30),
    "not UTF-8": lambda odd: _made(Path(os.fsdecode(os.fsencode(odd) + b"/\xff\xfe")), lambda path: path.mkdir()),
    "a file": lambda odd: _made(odd / "file", lambda path: path.write_text("text\n")),
    "an empty file": lambda odd: _made(odd / "nothing", lambda path: path.touch()),
    "a folder": lambda odd: _made(odd / "folder" / "notes.txt", lambda path: path.write_text("mine"))[: -len("/notes.txt")],
    "below a file": lambda odd: _made(odd / "file2", lambda path: path.write_text("text\n")) + "/below",
    "a link to itself": lambda odd: _made(odd / "loop", lambda path: path.symlink_to(path)),
    "a link to nothing": lambda odd: _made(odd / "dangling", lambda path: path.symlink_to("/nowhere/at/all")),
    "an unknown scheme": lambda odd: "ftp://host/path",
}
"""Texts that stand where a path is expected; each is made below an empty folder."""


# -- for walks, each with a folder of its own ------------------------------------------------------------------------------------


@functools.cache
def _first() -> tempfile.TemporaryDirectory[str]:
    # Records of stores and runs name the paths they were made at, so the first bench stays till the end of the process.
    folder = tempfile.TemporaryDirectory(prefix="gramplane-bench-")
    make_bench(Path(folder.name) / "good")
    return folder


def bench_in(folder: Path) -> Path:
    """Return a bench in a folder, a copy of the one that this process made first."""
    return Path(shutil.copytree(Path(_first().name) / "good", folder / "bench", symlinks=True))


def data_chunk(bench: Path) -> Path:
    """Return an object of the bench's store that every fit reads."""
    return next(path for path in files_of(bench, "store") if "columns/values/c/" in path.as_posix())

"""Defect 14: faults of disks and files ended as bugs, or under another name than theirs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.reliability.walks import Skipped, walk
from tests.support.clusters import ROOT
from tests.support.disks import NotPermitted, read_only
from tests.support.fault_bench import CASES, DAMAGE, FIT, LONG, bench_in, data_chunk, files_of
from tests.support.fault_runner import Ended, run_elsewhere, run_words

SHORT = [case for name, cases in CASES.items() if name not in LONG for case in cases]


def ended(text: str, bench: Path) -> Ended:
    return run_words([*text.replace("@", str(bench)).split(), "--json"])


def told(found: Ended, code: int, *parts: str) -> None:
    assert found.code == code, f"exit {found.code}, not {code}: {found.err}"
    for part in parts:
        assert part in found.err, f"{part!r} is not in: {found.err}"


@walk(14, "on a read-only disk a finished run is left alone (0), and everything that would write ends with 2 and the path")
def read_only_disk(folder: Path) -> None:
    bench = bench_in(folder)
    try:
        prefix = read_only(bench)
    except NotPermitted:
        raise Skipped("mounting is not permitted here") from None
    texts = {
        f"fit fgm --data @/store --run @/run {FIT}": 0,
        "resume @/run": 0,
        "status @/run": 0,
        "verify @/store": 0,
        "resume @/stopped": 2,
        f"fit fgm --data @/store --run @/new {FIT}": 2,
        "report @/run": 2,
        "score @/run @/store": 2,
        "predict @/run @/store @/new.csv": 2,
        "ingest @/data.svm @/new": 2,
    }
    words = [text.replace("@", str(bench)).split() for text in texts]
    for (text, code), found in zip(texts.items(), run_elsewhere(words, folder, prefix), strict=True):
        assert found.code == code, f"{text}: {found.code}\n{found.err}"
        assert code == 0 or (str(bench) in found.err and "read-only file system" in found.err), found.err


@walk(14, "flipped, deep and missing records of a run, linked locks and folders in place of chunks end with 6 or 2 and say what to do")
def records(folder: Path) -> None:
    bench = bench_in(folder)
    for record in ("history.jsonl", "tables.json", "summary.json", "where.json", "decisions.json"):
        for kind in ("flipped", "nested too deep"):
            place = Path(shutil.copytree(bench / "run", bench / "damaged"))
            DAMAGE[kind](place / record)
            for text in ("status @/damaged", "report @/damaged", "resume @/damaged"):
                told(ended(text, bench), 6, str(place / record), "remove it" if record != "history.jsonl" else "keeps the rows")
            shutil.rmtree(place)
    (bench / "run" / "lock").unlink()
    (bench / "run" / "lock").symlink_to(bench / "data.svm")
    told(ended("resume @/run", bench), 2, f"{bench / 'run' / 'lock'} is a symbolic link")
    chunk = data_chunk(bench)
    DAMAGE["a folder"](chunk)
    told(ended(f"fit fgm --data @/store --run @/new {FIT}", bench), 6, str(chunk))


@walk(14, "every command on every damaged file of everything it reads: never a bug, always a message", quick=False)
def everything(folder: Path) -> None:
    bench = bench_in(folder)
    for case in SHORT:
        for item in case.reads:
            for file in files_of(bench, item):
                for kind, damage in DAMAGE.items():
                    place = Path(shutil.copytree(bench, folder / "damaged"))
                    damage(place / file.relative_to(bench))
                    found = run_words(case.at(place))
                    what = f"{case.words}: {file.relative_to(bench)} {kind}: exit {found.code}\n{found.err}"
                    assert found.code != 1 and "Traceback" not in found.err, what
                    shutil.rmtree(place)


@walk(14, "a reader that went away ends a real process with 141, a closed standard input with 3")
def streams(folder: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'tests' / 'support' / '_bare'}{os.pathsep}{ROOT}"}
    words = [sys.executable, "-m", "gramplane.workflows.cli"]
    read, write = os.pipe()
    os.close(read)
    gone = subprocess.run([*words, "config", "schema", "fgm"], env=env, cwd=folder, stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *words, "ingest", "-", folder / "new", "--format", "svmlight"]
    shut = subprocess.run(closed, env=env, cwd=folder, capture_output=True, text=True)
    for done, code in ((gone, 141), (shut, 3)):
        assert done.returncode == code, (done.returncode, done.stderr)
        assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr

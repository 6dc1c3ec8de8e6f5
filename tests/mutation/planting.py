"""Planting: a copy of the checkout for each job, one mutant at a time, the nearest tests first, until one of them fails."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.mutation.choice import ImportGraph, chosen_mutants, is_compiled
from tests.mutation.mutants import Mutant
from tests.mutation.reached import FOLDER, Reached
from tests.mutation.results import Line, Results

BATCH = 40
"""Tests of the first process, where it is known which call the function that was changed; the second has nine times as many."""

NEAR = 2
"""Imports between a file with compiled code and the test files that are run as a whole."""

GROUP = 60_000
"""Bytes of test files that go to one pytest process: starting one costs some seconds."""


def plant_all(root: Path, results: Results, chosen: argparse.Namespace) -> None:
    """Plant what is left of the list that was drawn at the commit of its first line, or its survivors, until the minutes are over."""
    commit, lines = _git(root, "rev-parse", "HEAD"), results.lines()
    drawn = next((line.commit for line in results.all_lines()), commit)
    if chosen.part == "again":
        todo = [Mutant(**line.mutant) for line in lines.values() if line.verdict == "survived" and line.name not in results.argued()]
    else:
        with tempfile.TemporaryDirectory(prefix="gramplane-mutants-") as folder:
            _export(root, drawn, Path(folder) / "copy")
            todo = [mutant for mutant in chosen_mutants(Path(folder) / "copy", chosen.count, chosen.seed) if mutant.name not in lines]
    queue: Queue[Mutant] = Queue()
    for mutant in todo:
        queue.put(mutant)
    deadline, lock = time.monotonic() + 60 * chosen.minutes, threading.Lock()
    jobs = [
        threading.Thread(target=_job, args=(root, commit, drawn, queue, deadline, chosen.limit, results, lock)) for _ in range(chosen.jobs)
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


def map_tests(root: Path, results: Results, chosen: argparse.Namespace) -> None:
    """Run the suite of this commit once, and write down which functions each test calls."""
    with tempfile.TemporaryDirectory(prefix="gramplane-mutants-") as folder:
        copy, parts = Path(folder) / "copy", Path(folder) / "parts"
        _export(root, _git(root, "rev-parse", "HEAD"), copy)
        parts.mkdir()
        words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.reached", "-n", str(chosen.jobs)]
        paths = os.pathsep.join([str(copy / "tests" / "support" / "_bare"), str(copy)])
        subprocess.run([*words, "--dist", "worksteal", "tests"], cwd=copy, env={**os.environ, "PYTHONPATH": paths, FOLDER: str(parts)})
        Reached.written(parts, copy, results.reached)


def _job(
    root: Path, commit: str, drawn: str, queue: Queue[Mutant], deadline: float, limit: float, results: Results, lock: threading.Lock
) -> None:
    with tempfile.TemporaryDirectory(prefix="gramplane-mutants-") as folder:
        copy = Path(folder) / "copy"
        _export(root, commit, copy)
        graph, reached, warm = ImportGraph(copy), Reached(results.reached, copy), Path(folder) / "compiled"
        while time.monotonic() < deadline:
            try:
                mutant = queue.get_nowait()
            except Empty:
                return
            before = _git(root, "show", f"{drawn}:{mutant.file}", strip=False)
            line = _planted(copy, graph, reached, warm, mutant, before, commit, limit)
            with lock:
                results.add(line)
                print(f"{line.verdict:<9}{line.seconds:6.0f} s  {mutant}{'  by ' + line.by if line.by else ''}", flush=True)


def _planted(copy: Path, graph: ImportGraph, reached: Reached, warm: Path, mutant: Mutant, before: str, commit: str, limit: float) -> Line:
    """Plant a fault; ``before`` is the file that it was drawn from: the copy may hold a later state."""
    path, began = copy / mutant.file, time.monotonic()
    if not path.exists():
        return Line(mutant.name, asdict(mutant), commit, "stale", f"{mutant.file} is not there", 0.0)
    source = path.read_text()
    # Compiled callers are cached with what they call, and a cache does not see that its callee changed: an empty one for such a mutant.
    cache = Path(tempfile.mkdtemp(dir=copy.parent)) if is_compiled(graph, mutant.file) else warm
    try:
        moved = mutant.moved(before, source)
        path.write_text(moved.applied(source))
        seen = reached.tests_of(mutant.file, source.count("\n", 0, moved.start) + 1)
        groups = _batches(seen) or _groups(graph.tests_of(mutant.file))
        if seen and cache != warm:  # who calls compiled code from compiled code is not seen
            groups += _groups(graph.tests_of(mutant.file, NEAR))
        verdict, by = _first_failure(copy, groups, reached.failing, cache, limit)
    except ValueError as reason:
        verdict, by = "stale", str(reason)
    finally:
        path.write_text(source)
        if cache != warm:
            shutil.rmtree(cache, ignore_errors=True)
    return Line(mutant.name, asdict(mutant), commit, verdict, by, round(time.monotonic() - began, 1))


def _first_failure(copy: Path, groups: list[list[Any]], failing: list[str], cache: Path, limit: float) -> tuple[str, str]:
    end = time.monotonic() + limit
    for group in groups:
        if time.monotonic() > end:
            break
        failed = _run(copy, group, failing, cache, max(60.0, end - time.monotonic()))
        if failed:
            return "killed", failed
    return "survived", ""


def _batches(tests: list[str]) -> list[list[str]]:
    """Tests one by one, few first: most faults show at once."""
    return [part for part in (tests[:BATCH], tests[BATCH : 10 * BATCH], tests[10 * BATCH :]) if part]


def _groups(tests: list[Path]) -> list[list[Path]]:
    groups: list[list[Path]] = []
    room = 0
    for test in tests:
        room -= test.stat().st_size
        if room < 0:
            groups.append([])
            room = GROUP - test.stat().st_size
        groups[-1].append(test)
    return groups


def _run(copy: Path, tests: list[Any], failing: list[str], cache: Path, seconds: float) -> str:
    """Return the test that failed, ``""`` where all passed or the time was over with none failing."""
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--timeout=120", *map(str, tests)]
    words += [f"--deselect={test}" for test in failing]
    paths = os.pathsep.join([str(copy / "tests" / "support" / "_bare"), str(copy)])
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(
        words, cwd=copy, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        told, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        told = process.communicate()[0]
        return ""
    if process.returncode in (0, 5) or (process.returncode == 4 and "ERROR collecting" not in told):  # no test, no test of that name
        return ""
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", told, re.MULTILINE)
    return found[0] if found else f"exit {process.returncode}: {told.strip().splitlines()[-1][:160] if told.strip() else 'no word'}"


def _export(root: Path, commit: str, copy: Path) -> None:
    copy.mkdir()
    archive = subprocess.run(["git", "-C", str(root), "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(copy)], input=archive, check=True)


def _git(root: Path, *words: str, strip: bool = True) -> str:
    told = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=True).stdout
    return told.strip() if strip else told

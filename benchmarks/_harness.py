"""What every benchmark shares: one thread, alternating runs, medians, a table with targets, one JSON line.

A full run is also written to ``results/``, from which the tables of the documentation are made (``python -m benchmarks.tables``). Import it
before NumPy: it fixes the thread counts of BLAS and numba for this process and its children.
"""

from __future__ import annotations

import benchmarks._one_thread  # noqa: F401  # isort: skip
import argparse
import ctypes
import datetime
import gc
import importlib.metadata
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil

PACKAGES = ("gramplane", "numpy", "scipy", "scikit-learn", "numba", "dask", "distributed", "zarr")
MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
"""One JSON file for every report of a full run: the latest one."""


def arguments(doc: str, **options: Any) -> argparse.ArgumentParser:
    """Return a parser with the options every benchmark has; each keyword adds ``--name DEFAULT`` of the default's type."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5, help="alternating repetitions; medians are reported")
    parser.add_argument("--tiny", action="store_true", help="sizes that run in seconds: a check of the program, not of the targets")
    for name, default in options.items():
        kind: dict[str, Any] = {"action": "store_true"} if default is False else {"type": str if default is None else type(default)}
        parser.add_argument(f"--{name.replace('_', '-')}", default=default, **kind)
    return parser


Program = Callable[["Report", argparse.Namespace], None]
"""It names its report and fills it. If it makes reports of its own, which it shows, the given one stays empty."""
PROGRAMS: dict[str, tuple[Program, dict[str, Any]]] = {}
"""Programs of the files that are imported, by name, with their options."""


def program(**options: Any) -> Callable[[Program], Program]:
    """Make a function the program of its name: ``python -m benchmarks.FILE NAME``. A keyword is an option, with its default or with
    (default, what ``--tiny`` takes).
    """

    def keep(function: Program) -> Program:
        PROGRAMS[function.__name__] = function, options
        return function

    return keep


def run() -> None:
    """Run the program of this file that the command line names, or serve its functions to the process that started this one.

    The only program of a file needs no name, and the file's docstring is its. What fits have to say in warnings is said by figures.
    """
    warnings.simplefilter("ignore")
    serve()
    own = {name: known for name, known in PROGRAMS.items() if known[0].__module__ == "__main__"}
    words = sys.argv[1:] if len(own) > 1 else [*own, *sys.argv[1:]]
    if not words or words[0] not in own:
        lines = [f"  {name:24} {str(function.__doc__).splitlines()[0]}" for name, (function, _) in own.items()]
        raise SystemExit("\n".join([f"usage: python -m {module_of(sys.argv[0])} NAME [options], NAME one of", *lines]))
    function, known = own[words[0]]
    pairs = {name: value if isinstance(value, tuple) else (value,) for name, value in known.items()}
    doc = function.__doc__ or sys.modules["__main__"].__doc__ or ""
    parser = arguments(doc, **{name: pair[0] for name, pair in pairs.items() if name != "reps"})
    parser.prog = f"python -m {module_of(sys.argv[0])}" + (f" {words[0]}" if len(own) > 1 else "")
    parser.set_defaults(reps=pairs.get("reps", (5,))[0])
    options = parser.parse_args(words[1:])
    if options.tiny:
        vars(options).update({name: pair[1] for name, pair in pairs.items() if len(pair) > 1})
    options.program = function.__name__
    report = Report("", options)
    function(report, options)
    if report.lines:
        report.show()


def run_parts(text: str, known: Mapping[str, Program], report: Report, options: argparse.Namespace) -> None:
    """Run the parts of a program that are named, separated by commas."""
    for name in chosen(text, tuple(known)):
        known[name](report, options)


def chosen(text: str, known: Sequence[str]) -> list[str]:
    """Return names separated by commas; the program ends where one is not known."""
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"{unknown[0]!r} is not one of {', '.join(known)}")
    return names


def has_data(name: str) -> bool:
    """Return whether the folder of the real data sets is named and has a set."""
    return (Path(os.environ.get("GRAMPLANE_DATA") or "/nowhere") / f"{name}.npz").exists()


def arrays(name: str) -> dict[str, np.ndarray]:
    """Return the arrays of a real data set; the program ends where no folder of them is named."""
    if not (folder := os.environ.get("GRAMPLANE_DATA")):
        raise SystemExit("set GRAMPLANE_DATA to the folder of real data sets")
    with np.load(Path(folder) / f"{name}.npz", allow_pickle=False) as held:
        return dict(held)


# -- time ------------------------------------------------------------------------------------------------------------------


@dataclass
class Timing:
    """Seconds of the repetitions of one call, and what the last one returned."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        """Median wall time, seconds."""
        return statistics.median(self.wall)

    @property
    def cpu_median(self) -> float:
        """Median processor time of this process, seconds; on a busy machine the steadier of the two."""
        return statistics.median(self.cpu)

    def over(self, count: float) -> Timing:
        """Return the times of one of ``count`` equal calls."""
        return Timing([seconds / count for seconds in self.wall], [seconds / count for seconds in self.cpu], self.result)

    def __str__(self) -> str:
        middle, low, high, cpu = map(seconds_text, (self.median, min(self.wall), max(self.wall), self.cpu_median))
        return f"{middle} ({low} … {high}; cpu {cpu})"


def seconds_text(seconds: float) -> str:
    """Return seconds with three digits."""
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def alternate(calls: Mapping[str, Callable[[], Any]], reps: int, warm: int = 1) -> dict[str, Timing]:
    """Run every call ``reps`` times in turn, so that outside load meets all of them alike; ``warm`` rounds before are not counted."""
    timings = {name: Timing() for name in calls}
    for rep in range(-warm, reps):
        for name, call in calls.items():
            clock, result = clocked(call)
            if rep >= 0:
                timings[name].wall.append(clock["seconds"])
                timings[name].cpu.append(clock["cpu"])
                timings[name].result = result
    return timings


def clocked(call: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Return ``{"seconds": wall, "cpu": processor}`` of one call, and its result: for calls inside a :class:`Child`."""
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    result = call()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"seconds": wall, "cpu": cpu}, result


def timing_of(rows: Sequence[Mapping[str, Any]]) -> Timing:
    return Timing([row["seconds"] for row in rows], [row.get("cpu", row["seconds"]) for row in rows], rows[-1])


def alternate_batches(calls: Mapping[str, Callable[[], Any]], reps: int, batch: int) -> dict[str, Timing]:
    """Return the times of single calls that are too short to be timed alone: a repetition makes ``batch`` of each."""
    timings = alternate({name: lambda call=call: [call() for _ in range(batch)][-1] for name, call in calls.items()}, reps)
    return {name: timing.over(batch) for name, timing in timings.items()}


def stopwatch() -> Callable[[], float]:
    start = time.perf_counter()
    return lambda: time.perf_counter() - start


# -- memory ----------------------------------------------------------------------------------------------------------------


def _status(pid: int | str, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def peak_memory() -> int:
    """Return the greatest resident size of this process so far, bytes (its own, not that of what it was forked from)."""
    return _status("self", "VmHWM")


def extra_memory(call: Callable[[], Any]) -> tuple[int, Any]:
    """Return by how many bytes the resident size rises at most during a call, and the call's result."""
    gc.collect()
    # Hand memory freed earlier back, or its reuse would hide what the call needs.
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("self", "VmRSS")
    # Lets the kernel's high-water mark start anew.
    Path("/proc/self/clear_refs").write_text("5")
    result = call()
    return peak_memory() - before, result


class PeakWatch(threading.Thread):
    """Peak resident size of every process below this one, by sampling the kernel's high-water marks."""

    def __init__(self, interval: float = 0.05) -> None:
        super().__init__(daemon=True)
        self._peaks: dict[int, int] = {}
        self._interval, self._over = interval, threading.Event()

    def run(self) -> None:
        """Sample until closed."""
        while not self._over.wait(self._interval):
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error, OSError):
                    self._peaks[process.pid] = _status(process.pid, "VmHWM")

    def __enter__(self) -> PeakWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def worst(self) -> int:
        """Return the greatest peak of any child process, bytes."""
        return max(self._peaks.values(), default=0)


def read_bandwidth(nbytes: int = 256 * MIB, reps: int = 5) -> float:
    """Return how many bytes per second one thread reads from memory (best of some plain sums)."""
    return nbytes / best_read(np.ones(nbytes // 8), reps)


def best_read(array: np.ndarray, reps: int = 5) -> float:
    """Return the seconds of the fastest plain read of a contiguous array where it lies."""
    words = array.reshape(-1).view(np.int64) if array.nbytes % 8 == 0 else array.reshape(-1)
    seconds = []
    for _ in range(reps):
        start = time.perf_counter()
        np.add.reduce(words)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


# -- processes of their own ------------------------------------------------------------------------------------------------


def module_of(script: str) -> str:
    """Return the name by which ``python -m`` starts a program of this folder."""
    path = Path(script).resolve().with_suffix("")
    return ".".join(path.relative_to(ROOT).parts) if path.is_relative_to(ROOT) else path.name


HELD: dict[str, Any] = {}
"""Data that a child process keeps between calls."""


class Child:
    """A process of its own that keeps its data between calls: ``python -m PROGRAM --serve``, one JSON object per line each way."""

    def __init__(self, script: str, python: str = sys.executable, **environment: str) -> None:
        words, variables = [python, "-m", module_of(script), "--serve"], {**os.environ, **environment}
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=variables)

    def __call__(self, function: str, **given: Any) -> dict[str, Any]:
        """Call a served function; its dictionary, with ``seconds`` (of the call, if it gave none) and ``peak`` (bytes, so far)."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, given]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that ran {function} ended with code {self._process.wait()}")
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def once(script: str, function: str, **given: Any) -> dict[str, Any]:
    """Call a served function in a process of its own."""
    with Child(script) as child:
        return child(function, **given)


def elsewhere(variable: str, code: str, *words: str, **given: Any) -> Any:
    """Return what code prints last, as JSON, under the python that an environment variable names; its arrays are a file, its first word.

    ``None`` where the variable names none.
    """
    if not (python := os.environ.get(variable, "")):
        return None
    with scratch() as folder:
        np.savez(folder / "given.npz", **given)
        done = subprocess.run([python, "-c", code, str(folder / "given.npz"), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the environment of {variable} failed: {done.stderr[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def serve() -> None:
    """Answer the calls of :class:`Child` by functions of this program until its input ends, if this process was started to do so."""
    if "--serve" not in sys.argv:
        return
    known = vars(sys.modules["__main__"])
    # Whatever a library prints must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, given = json.loads(line)
        start = time.perf_counter()
        found = known[name](**given) or {}
        answers.write(json.dumps(plain({"seconds": time.perf_counter() - start, **found, "peak": peak_memory()})) + "\n")
        answers.flush()
    raise SystemExit(0)


@contextmanager
def scratch(folder: str | None = None) -> Iterator[Path]:
    """Yield a folder that is removed at the end."""
    path = tempfile.mkdtemp(prefix="gramplane-bench-", dir=folder)
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def kept_or_scratch(folder: str | None) -> Iterator[Path]:
    """Yield a folder given by name, which is kept, or one that is removed at the end."""
    if not folder:
        with scratch() as made:
            yield made
        return
    Path(folder).mkdir(parents=True, exist_ok=True)
    yield Path(folder)


class Parts:
    """What the parts of a long program measured, kept in a file of a line each, with its commit: a program that was ended goes on there.

    Without a file nothing is kept. ``settings`` decide the results: a file of others is refused.
    """

    def __init__(self, path: str | None, settings: dict[str, Any]) -> None:
        self._path, self._known, self.commits = Path(path) if path else None, {}, {commit()}
        if self._path is None:
            return
        if not self._path.exists():
            self._append("settings", plain(settings))
        # A line that was cut off by a kill is measured again.
        whole = [line for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        lines = [json.loads(line) for line in whole]
        self._known, self.commits = {name: value for name, value, _ in lines}, {one for _, _, one in lines} | self.commits
        if self._known.get("settings") != plain(settings):
            raise SystemExit(f"{path} holds parts of another run, {self._known.get('settings')}; this one is {plain(settings)}")
        self._path.write_text("".join(whole))

    def has(self, name: str) -> bool:
        return name in self._known

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        """Return what a part has measured, as JSON has it; it is measured now if it is not known."""
        if name not in self._known:
            self._known[name] = json.loads(json.dumps(plain(measure())))
            self._append(name, self._known[name])
        return self._known[name]

    def _append(self, name: str, value: Any) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps([name, value, commit()]) + "\n")


def parse_size(text: str) -> int:
    """Return the bytes of ``"1GiB"`` or ``"512MiB"``."""
    units = {"GiB": 1 << 30, "MiB": 1 << 20}
    return int(float(text[:-3]) * units[text[-3:]])


# -- report ----------------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float] | np.ndarray, form: str = ".1f", sign: str = "±") -> str:
    """Return mean and standard deviation, 0 of a single value."""
    return f"{np.mean(values):{form}} {sign} {deviation(values):{form}}"


def deviation(values: Sequence[float] | np.ndarray) -> float:
    """Return the standard deviation of a sample, 0 of a single value."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def plain(value: Any) -> Any:
    """Return a value as JSON can hold it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Timing):
        return {"median": value.median, "cpu_median": value.cpu_median, "wall": value.wall}
    return value.tolist() if isinstance(value, (np.generic, np.ndarray)) else value


def machine() -> dict[str, Any]:
    """Return what the figures were made on."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), "?")
    memory = psutil.virtual_memory().total
    return {"cpu": model, "processors": os.cpu_count(), "memory_gib": round(memory / 2**30, 1), "load": os.getloadavg()[0]}


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Return the commit of this checkout, with a ``+`` where files other than results differ from it."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)

    changed = git("diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results").returncode
    return (git("rev-parse", "--short=10", "HEAD").stdout.strip() or "?") + "+" * bool(changed)


@dataclass
class Report:
    """Figures with their targets, printed as one table and one JSON line, and kept as a file of ``results/`` unless the run was tiny.

    ``title`` names the workload; ``packages`` are versions of a peer's environment, shown beside those of this one.
    """

    title: str
    options: argparse.Namespace
    lines: list[tuple[str, str, str, str]] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    packages: dict[str, str] = field(default_factory=dict)
    started_at: float = field(default_factory=lambda: os.getloadavg()[0])

    def time(self, name: str, timing: Timing) -> None:
        self.figures[name] = timing
        self.lines.append((name, str(timing), "", ""))

    def times(self, timings: Mapping[str, Timing], prefix: str = "") -> None:
        for name, timing in timings.items():
            self.time(f"{prefix}{name}", timing)

    def value(self, name: str, value: float, target: str = "", *, unit: str = "", form: str = ".4g") -> None:
        """Add a figure; ``target`` is ``"<= X"`` or ``">= X"``."""
        self.figures[name] = value
        self.line(name, f"{value:{form}}{unit}", value, target, unit=unit)

    def line(self, name: str, shown: str, value: float, target: str = "", *, unit: str = "") -> None:
        """Add a line of words of its own; ``value`` is what is held to the target."""
        self.lines.append((name, shown, f"{target}{unit}" if target else "", self._verdict(value, target)))

    def ratio(self, name: str, ours: Timing, peer: Timing, target: float | None, *, cpu: bool = True) -> None:
        """Add the ratio of two median times, which should not exceed ``target`` if there is one.

        The ratio of processor times stands beside it, unless other processes do a part of the work.
        """
        value = ours.median / peer.median
        self.figures[name] = value
        shown = f"{value:.3f} = 1/{1 / value:.2f}"
        if cpu:
            beside = self.figures[f"{name} (cpu)"] = ours.cpu_median / max(peer.cpu_median, 1e-9)
            shown += f" (cpu {beside:.3f} = 1/{1 / max(beside, 1e-9):.2f})"
        wanted, verdict = ("", "") if target is None else (f"<= {target:.3f} = 1/{1 / target:.3g}", self._verdict(value, f"<= {target}"))
        self.lines.append((name, shown, wanted, verdict))

    def gain(self, name: str, ours: Sequence[float], theirs: Sequence[float], target: str = "") -> None:
        """Add the mean difference of pairs; a note has its standard error, and in how many it is above 0."""
        gains = np.subtract(ours, theirs)
        self.value(name, float(gains.mean()), target, form="+.4f")
        error = deviation(gains) / np.sqrt(len(gains))
        self.note(f"{name}: standard error {error:.4f}, {len(gains)} pairs, above 0 in {np.count_nonzero(gains > 0)}")

    def means(
        self, rows: Sequence[Mapping[str, float]], prefix: str = "", suffix: str = "", targets: Mapping[str, str] | None = None
    ) -> None:
        """Add the mean over some rows of every figure that they have."""
        for name in rows[0]:
            self.value(f"{prefix}{name}{suffix}", float(np.mean([row[name] for row in rows])), (targets or {}).get(name, ""))

    def values(self, row: Mapping[str, float], **given: Any) -> None:
        for name, value in row.items():
            self.value(name, value, **given)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def _verdict(self, value: float, target: str) -> str:
        if not target:
            return ""
        if self.options.tiny:
            return "not judged (tiny)"
        sense, bound = target.split()
        return "met" if (value <= float(bound) if sense == "<=" else value >= float(bound)) else "MISSED"

    def show(self, *, keep: bool = True) -> None:
        """Print everything; a part of a run is not to be kept."""
        print(f"\n### {self.title}\n\n| figure | value | target | verdict |\n|---|---|---|---|")
        for line in self.lines:
            print("| " + " | ".join(line) + " |")
        print()
        for text in self.notes:
            print(f"* {text}")
        where, found = machine(), {**versions(), **self.packages}
        where["load_at_start"] = self.started_at
        today = datetime.date.today().isoformat()
        command = " ".join(["python -m", module_of(sys.argv[0]), *sys.argv[1:]])
        print(f"* `{command}`, {today}; {where['cpu']}, {where['processors']} processors, load {self.started_at:.1f} … {where['load']:.1f}")
        print("* " + ", ".join(f"{name} {version}" for name, version in found.items()) + "\n")
        program = getattr(self.options, "program", Path(sys.argv[0]).stem)
        record = {
            "program": program,
            "benchmark": self.title,
            "command": command,
            "date": today,
            "commit": commit(),
            "options": vars(self.options),
            "lines": self.lines,
            "notes": self.notes,
            "figures": self.figures,
            "machine": where,
            "versions": found,
        }
        if keep and not self.options.tiny:
            self._keep(program, plain(record))
        print(json.dumps(plain(record)))

    def _keep(self, program: str, record: dict[str, Any]) -> None:
        """Write the record where the tables of the documentation are made from, in place of the run before."""
        RESULTS.mkdir(exist_ok=True)
        title = re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")
        path = RESULTS / f"{program}--{title}.json"
        # Folders of the machine are nobody's business.
        path.write_text(re.sub(r"(?<![\w.~-])/(?:[\w.@-]+/)+", "FOLDER/", json.dumps(record, indent=1)) + "\n")
        print(f"* written to {path}")

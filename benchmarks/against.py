"""Processor time of fits and predictions in memory beside an earlier revision of gramplane: what every issue is held against.

    python -m benchmarks.against REVISION [--only PATTERN] [--rounds N]

The revision is built from git into a folder of its own (kept between runs in the temporary folder, by commit); this checkout is taken as it
is installed here. Each has one process; they take turns, and the least processor time of each counts. Rows are those of
``_against_rows.py``, some of them by ``--only``, a regular expression; a whole run is kept in ``results/``. A row above 1 is measured in
three more paired runs, whose ratios are shown: up to ``NOISE`` above 1 it is noise if one of them is not above 1. The earlier revision may
not scale columns where this one does by default: such a row is held against the same fit without a scale, by the seconds it takes more.
A row that one version cannot run says so.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import benchmarks._against_rows as rows

NOISE = 0.05
PAIRED = 3
LONG = 1.0  # seconds of a call that is repeated less often
MORE = 0.02  # seconds that a scale may take more: one reading of the largest matrix at the speed of memory

Pair = tuple[list[float], list[float]]
"""Processor seconds of calls: now, and before."""


def commit_of(revision: str) -> str:
    """Return the commit of a revision. Raises SystemExit: git knows none of that name here."""
    words = ["git", "-C", str(bench.ROOT), "rev-parse", "--quiet", "--verify", f"{revision}^{{commit}}"]
    found = subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()
    if not found:
        raise SystemExit(f"REVISION {revision!r} is no commit of {bench.ROOT.name}; `git log --oneline` lists them")
    return found


def built(commit: str) -> Path:
    """Return the folder in which a commit is installed, without its dependencies; it is installed if it is not there."""
    place = Path(tempfile.gettempdir()) / f"gramplane-against-{os.getuid()}-{commit[:12]}"
    if not place.exists():
        with bench.scratch() as folder:
            archive = subprocess.run(["git", "-C", str(bench.ROOT), "archive", commit], stdout=subprocess.PIPE, check=True).stdout
            (folder / "source").mkdir()
            subprocess.run(["tar", "-x", "-C", str(folder / "source")], input=archive, check=True)
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
            partial = place.with_suffix(f".{os.getpid()}")
            subprocess.run([*pip, "--target", str(partial), str(folder / "source")], check=True)
            partial.rename(place)
    return place


def measured(row: str, now: bench.Child, before: bench.Child, rounds: int) -> Pair | str:
    """Return the seconds of a row in alternating calls, the first of each not counted, or what says why it cannot be run."""
    for name, child in (("now", now), ("before", before)):
        first = child("measure", row=row)
        if "refused" in first:
            return f"{name}: {first['refused']}"
    if first["cpu"] > LONG:
        rounds = min(rounds, max(3, rounds // 3))
    taken: Pair = ([], [])
    for _ in range(rounds):
        for seconds, child in zip(taken, (now, before), strict=True):
            seconds.append(child("measure", row=row)["cpu"])
    return taken


def least(runs: Sequence[Pair]) -> float:
    return min(min(now) for now, _ in runs)


def ratio(runs: Sequence[Pair]) -> float:
    """Return the least time now over the least time before, of all runs."""
    return least(runs) / min(min(before) for _, before in runs)


def judged(runs: Sequence[Pair]) -> float:
    """Return the ratio that is held to the target: 1 where it is above it by noise only."""
    whole, parts = ratio(runs), [ratio([run]) for run in runs]
    return 1.0 if 1.0 < whole <= 1.0 + NOISE and min(parts) <= 1.0 else whole


def told(runs: Sequence[Pair]) -> str:
    """Return the cell of a row: both times, their ratio, and the ratios of paired runs if there are several."""
    now, before = (bench.seconds_text(min(min(run[k]) for run in runs)) for k in (0, 1))
    parts = sorted(ratio([run]) for run in runs)
    return f"{now} : {before} = {ratio(runs):.2f}" + (f" ({parts[0]:.2f} … {parts[-1]:.2f})" if len(runs) > 1 else "")


def weigh(report: bench.Report, row: str, now: bench.Child, before: bench.Child, rounds: int) -> None:
    first = measured(row, now, before, rounds)
    if isinstance(first, str):
        report.figures[row] = first
        report.lines.append((row, first.replace("|", "/").replace("\n", " "), "", "cannot be compared"))
        return
    runs = [first]
    unscaled = report.figures.get(row.removesuffix(rows.SCALED)) if row.endswith(rows.SCALED) else None
    without = min(map(min, unscaled["now"])) if unscaled else None
    while len(runs) <= PAIRED and (ratio(runs[:1]) > 1.0 if without is None else least(runs) - without > MORE):
        again = measured(row, now, before, rounds)
        assert not isinstance(again, str), again
        runs.append(again)
    report.figures[row] = {"now": [run[0] for run in runs], "before": [run[1] for run in runs], "ratio": ratio(runs)}
    if without is None:
        report.line(row, told(runs), judged(runs), "<= 1.0")
    else:
        more = least(runs) - without
        report.line(row, f"{told(runs)}; {bench.seconds_text(more)} more than without a scale", more, f"<= {MORE}", unit=" s more")
    print(f"{row}: {told(runs)}", file=sys.stderr, flush=True)


def main() -> None:
    parser = bench.arguments(__doc__ or "", only="", rounds=10)
    parser.add_argument("revision", help="commit, tag or branch of this repository")
    options = parser.parse_args()
    commit = commit_of(options.revision)
    place = built(commit)
    report = bench.Report(f"Processor time now and at {commit[:8]}", options)
    with bench.Child(rows.__file__) as now, bench.Child(rows.__file__, PYTHONPATH=str(place)) as before:
        where: Any = before("version")["file"]
        if not Path(where).is_relative_to(place):
            raise SystemExit(f"the process of {options.revision} imports {where}: gramplane of this environment stands before PYTHONPATH")
        for part in rows.PARTS:
            known = now("prepare", part=part.__name__)["rows"]
            chosen = [row for row in known if re.search(options.only, row)]
            if chosen:
                before("prepare", part=part.__name__)
            for row in chosen:
                weigh(report, row, now, before, 1 if options.tiny else options.rounds)
    if not report.lines:
        raise SystemExit(f"--only {options.only}: no row has it in its name")
    report.note(f"least processor seconds of {options.rounds} alternating calls each; the ratio of paired runs in brackets")
    report.show(keep=not options.only)


if __name__ == "__main__":
    main()

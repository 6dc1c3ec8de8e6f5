"""Every benchmark runs at its smallest size and prints its table: a program nobody can run proves nothing."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tables
from tests.support.places import ROOT

FOLDER = ROOT / "benchmarks"
FILES = {name: file for name, file in tables.programs().items() if name != file}
STARTS_WORKERS = {name for name, file in FILES.items() if file == "scale"}


def run(module: str, *arguments: str) -> str:
    words = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, cwd=ROOT)
    if "set GRAMPLANE_DATA" in done.stderr:
        pytest.skip("GRAMPLANE_DATA names no folder of real data sets")
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.cluster) if name in STARTS_WORKERS else name for name in FILES])
def test_prints_its_table_and_one_json_line(name: str) -> None:
    text = run(FILES[name], name, "--tiny")
    assert "| figure | value | target | verdict |" in text
    record = json.loads(text.splitlines()[-1])
    assert record["figures"]
    # Verdicts are left open; some programs only report.
    assert not {"| met |", "| MISSED |"} & {f"| {line.split(' | ')[-1]}" for line in text.splitlines()}
    assert {"cpu", "processors", "memory_gib"} <= record["machine"].keys()
    assert "gramplane" in record["versions"]


def test_parts_that_are_kept_are_not_measured_again(tmp_path: Path) -> None:
    parts = importlib.import_module("benchmarks._harness").Parts
    path, measured = tmp_path / "kept", []
    assert parts(str(path), {"n": 3})("a", lambda: (measured.append("a"), 1.5)) == [None, 1.5]
    path.write_text(path.read_text() + '["b", 2')  # a kill
    again = parts(str(path), {"n": 3})
    assert again("a", lambda: measured.append("again")) == [None, 1.5] and again("b", lambda: 2) == 2
    assert measured == ["a"] and parts(str(path), {"n": 3})("b", lambda: 3) == 2
    with pytest.raises(SystemExit, match=r"holds parts of another run, {'n': 3}; this one is {'n': 4}"):
        parts(str(path), {"n": 4})
    assert parts(None, {})("a", lambda: 7) == 7


def test_a_row_against_an_earlier_revision_is_judged_by_least_times(bench: Any) -> None:
    against = importlib.import_module("benchmarks.against")
    faster, close, slower = [([3.0, 1.0], [2.0, 4.0])], [([1.04], [1.0]), ([1.03], [1.04])], [([1.5], [1.0]), ([0.6], [0.5])]
    assert [against.ratio(runs) for runs in (faster, close, slower)] == [0.5, 1.03, 1.2]
    assert [against.judged(runs) for runs in (faster, close, slower)] == [0.5, 1.0, 1.2]
    assert against.judged([([1.04], [1.0])]) == 1.04, "noise is shown by a paired run that is not above 1"
    assert against.told(faster) == "1 s : 2 s = 0.50" and against.told(slower) == "600 ms : 500 ms = 1.20 (1.20 … 1.50)"
    options = bench.arguments("").parse_args([])
    report = bench.Report("title", options)

    class Child:
        def __init__(self, **answer: Any) -> None:
            self.answer = answer

        def __call__(self, function: str, row: str) -> dict[str, Any]:
            return self.answer

    for other in (Child(cpu=2.0), Child(cpu=0.5), Child(refused="TypeError: no | such\nparameter")):
        against.weigh(report, "fit" if other.answer.get("cpu") else "refused", Child(cpu=1.0), other, 2)
    assert [line[3] for line in report.lines] == ["met", "MISSED", "cannot be compared"]
    assert report.lines[1][1] == "1 s : 500 ms = 2.00 (2.00 … 2.00)" and report.lines[2][1] == "before: TypeError: no / such parameter"
    for seconds, verdict in ((1.015, "met"), (1.1, "MISSED")):
        against.weigh(report, "fit, default scale", Child(cpu=seconds), Child(cpu=0.5), 2)
        assert report.lines[-1][3] == verdict, "a scale is held against the fit without it"
    with pytest.raises(SystemExit, match="REVISION 'no-such-thing' is no commit of"):
        against.commit_of("no-such-thing")


def test_tables_of_the_documentation_are_those_of_the_kept_runs() -> None:
    assert "all pages are up to date" in run("tables", "--check")


def test_programs_that_documents_name_exist() -> None:
    """As a path or as a module, with its program; a name ends where the sentence goes on."""
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), *FOLDER.glob("*.md")]
    named: dict[str, str] = {}
    for page in pages:
        for file, name in re.findall(r"`[^`]*python -m benchmarks\.(\w+) (\w+)", page.read_text(encoding="utf-8")):
            assert FILES.get(name, file) == file and (name in FILES or file in tables.programs()), (page.name, file, name)
        for name in re.findall(r"\bbenchmarks[./]\w[\w./]*", page.read_text(encoding="utf-8")):
            place = name.rstrip("./")
            if "/" not in place and not place.endswith(".md"):
                place = f"{place.replace('.', '/')}.py"
            if not place.endswith(".md"):
                named[place] = page.name
    assert len(named) > 15
    assert not {place: page for place, page in named.items() if not (ROOT / place).exists()}


def test_every_missed_figure_is_accounted_for() -> None:
    reasons = (FOLDER / "MISSED.md").read_text()
    missed = [
        (record["benchmark"], figure)
        for _, record in tables.kept_runs()
        for figure, _, _, verdict in record["lines"]
        if verdict == "MISSED"
    ]
    assert missed and [entry for entry in missed if f"**{entry[0]}**" not in reasons or entry[1] not in reasons] == []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The shared module; it fixes thread counts in the environment, which other tests must not inherit."""
    before = dict(os.environ)
    yield importlib.import_module("benchmarks._harness")
    os.environ.clear()
    os.environ.update(before)


def test_a_full_run_is_kept_and_its_tables_made_anew(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(FOLDER / "linear_speed.py"), "fgm_small", "--reps", "1"])
    report = bench.Report("A workload, n=3", bench.arguments("doc").parse_args(["--reps", "1"]))
    report.options.program = "fgm_small"
    report.ratio("ours : peer", bench.Timing([2.0], [2.0]), bench.Timing([8.0], [8.0]), 1 / 3)
    report.note("a remark")
    report.show()
    record = json.loads((tmp_path / "fgm_small--a-workload-n-3.json").read_text())
    assert record["command"] == "python -m benchmarks.linear_speed fgm_small --reps 1" and record["program"] == "fgm_small"
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    row = tables.Headline("w", "p", "fgm_small--a-workload-n-3", "{ours : peer | speed}", "as {ours : peer | faster} says", is_short=True)
    monkeypatch.setattr(tables, "HEADLINES", (row,))
    runs = tables.kept_runs()
    page = tables.made_anew("# Words\n<!-- made from results: short -->\nold\n<!-- end -->\nmore", runs)
    assert "| w | p | 4× faster | as 4× says |\n<!-- end -->" in page and "old" not in page
    assert "| A workload, n=3 | ours : peer | 0.250 = 1/4.00" in tables.state_of_rows(runs) and "| met |" in tables.state_of_rows(runs)
    assert "* a remark" in tables.all_runs(runs) and "`fgm_small`" not in tables.not_run(runs) and "`fgm_dense`" in tables.not_run(runs)


def test_verdicts_follow_the_targets(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    report = bench.Report("a workload", bench.arguments("doc").parse_args([]))
    report.value("small enough", 1.0, "<= 1")
    report.value("too large", 1.1, "<= 1")
    report.value("large enough", 2.0, ">= 1.5")
    report.ratio("too slow", bench.Timing([3.0, 1.0, 2.0], [1.0]), bench.Timing([4.0], [1.0]), 1 / 4)
    report.show()
    verdicts = {
        line.split("|")[1].strip(): line.split("|")[4].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("| ")
    }
    assert verdicts | {"figure": ""} == {
        "figure": "",
        "small enough": "met",
        "too large": "MISSED",
        "large enough": "met",
        "too slow": "MISSED",
    }
    assert report.figures["too slow"] == 0.5


def test_calls_alternate_and_warm_rounds_are_not_counted(bench: Any) -> None:
    order: list[str] = []
    timings = bench.alternate({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, reps=2, warm=1)
    assert order == ["a", "b"] * 3
    assert [len(timing.wall) for timing in timings.values()] == [2, 2]

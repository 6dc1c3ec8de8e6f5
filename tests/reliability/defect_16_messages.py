"""Defect 16: what messages said of paths and tasks, and what was replaced that gramplane had not written."""

from __future__ import annotations

from pathlib import Path

from tests.reliability.walks import walk
from tests.support.fault_bench import DAMAGE, FIT, bench_in, data_chunk
from tests.support.fault_runner import run_words


@walk(16, "a failed task is told by its number, and what it says, not by its repr")
def failed_task(folder: Path) -> None:
    bench = bench_in(folder)
    chunk = data_chunk(bench)
    DAMAGE["flipped"](chunk)
    for text in (f"fit fgm --data @/store --run @/new {FIT}", "predict @/run @/store @/new.csv"):
        found = run_words(text.replace("@", str(bench)).split())
        assert found.code == 6, found.err
        assert "Ref(" not in found.err and "digest=" not in found.err and "object at 0x" not in found.err, found.err

"""Defect 16: what messages said of paths and tasks, and what was replaced that gramplane had not written."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.reliability.walks import Skipped, walk
from tests.support.disks import NotPermitted, SmallDisk
from tests.support.fault_bench import DAMAGE, FIT, bench_in, data_chunk
from tests.support.fault_runner import run_elsewhere, run_words


@walk(16, "the path of a full disk keeps its letters")
def full_disk(folder: Path) -> None:
    bench, place = bench_in(folder), folder / "Disk With Capitals"
    place.mkdir()
    try:
        disk = SmallDisk(place, 1 << 20)
    except NotPermitted:
        raise Skipped("mounting a small file system is not permitted here") from None
    with disk:
        disk.fill(0)
        words = [
            ["ingest", bench / "data.svm", place / "New Store"],
            ["predict", bench / "run", bench / "store", place / "New.csv"],
            ["report", bench / "run", "--out", place / "Page"],
        ]
        for found in run_elsewhere(words, folder, disk.prefix):
            assert found.code == 5 and str(place) in found.err, found.err


@walk(16, "a failed task is told by its number, and what it says, not by its repr")
def failed_task(folder: Path) -> None:
    bench = bench_in(folder)
    chunk = data_chunk(bench)
    DAMAGE["flipped"](chunk)
    for text in (f"fit fgm --data @/store --run @/new {FIT}", "predict @/run @/store @/new.csv"):
        found = run_words(text.replace("@", str(bench)).split())
        assert found.code == 6, found.err
        assert "Ref(" not in found.err and "digest=" not in found.err and "object at 0x" not in found.err, found.err


@walk(16, "predictions and reports replace nothing that gramplane did not write")
def foreign_files(folder: Path) -> None:
    bench = bench_in(folder)
    (bench / "mine.csv").write_text("name,phone\n")
    shutil.copytree(bench / "store", bench / "mine.zarr")
    (bench / "page").mkdir()
    (bench / "page" / "summary.csv").write_text("mine\n")
    before = {path: path.read_bytes() for path in bench.rglob("*") if path.is_file()}
    for text in ("predict @/run @/store @/mine.csv", "predict @/run @/store @/mine.zarr", "report @/run --out @/page"):
        found = run_words(text.replace("@", str(bench)).split())
        assert found.code == 2 and "is not replaced" in found.err, found.err
    assert {path: path.read_bytes() for path in bench.rglob("*") if path.is_file()} == before

"""Defect 11: starts of one run at the same moment ended with "files that are not a run"."""

from __future__ import annotations

from pathlib import Path

from tests.reliability.walks import walk
from tests.support.commands import start
from tests.support.racing import exit_codes, small_store


@walk(11, "of 500 racing starts each ends with 0 or 99", quick=False)
def race_long(folder: Path) -> None:
    found = exit_codes(small_store(folder / "store"), folder, starters=8, starts=500)
    assert set(found) <= {0, 99} and found[0] >= 63, found


@walk(11, "of 40 racing command lines each ends with 0 or 99", quick=False)
def race_command_lines(folder: Path) -> None:
    store, codes = small_store(folder / "store"), []
    for number in range(5):
        words = ["fit", "fgm", "--data", store, "--run", folder / f"run-{number}", "--set", "B=1", "--set", "max_rounds=2"]
        # Eight processes share two cores here: each takes its time to load, and their first steps mix all the same.
        begun = [start(words, folder) for _ in range(8)]
        codes += [command.wait(600) for command in begun]
    assert set(codes) <= {0, 99} and codes.count(0) >= 5, codes

"""Ingest stays within its budget whatever the form of the source, or refuses before it takes the memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.reliability.walks import walk
from tests.support.budget_sources import SOURCES, memory_of
from tests.support.commands import gramplane

BUDGET, SLACK = 32 << 20, 64 << 20


@walk(12, "a .npz by columns and a Parquet of long words stay within the budget")
def two_sources(folder: Path) -> None:
    """Measure two of the sources."""
    _measure(folder, ["npz by columns", "parquet of long words"])


@walk(12, "a CSV of 3,000,000 columns and a Parquet footer beyond the budget are refused with 3 before they take memory")
def refused(folder: Path) -> None:
    """Type the commands."""
    (folder / "a.csv").write_text("\n".join([",".join(["c"] * 3_000_000), ",".join(["1"] * 3_000_000)]))
    code, told = gramplane(["ingest", "a.csv", "s"], folder)
    assert code == 3 and "header of 3000000 columns" in json.dumps(told), (code, told)
    pq.write_table(pa.table({f"f{k}": np.zeros(1) for k in range(3000)}), folder / "a.parquet")
    code, told = gramplane(["ingest", "a.parquet", "s", "--budget", "8MiB"], folder)
    assert code == 3 and "has a footer of" in json.dumps(told), (code, told)


@walk(12, "every source stays within the budget", quick=False)
def every_source(folder: Path) -> None:
    """Measure all of them."""
    _measure(folder, list(SOURCES))


def _measure(folder: Path, names: list[str]) -> None:
    for name in names:
        taken, _, ended = memory_of(name, folder, BUDGET)
        assert ended == "done" and taken < BUDGET + SLACK, f"{name}: {taken / 2**20:.0f} MiB, {ended}"

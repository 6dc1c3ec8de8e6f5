"""Scaling of a run on a store from one worker to two, beside what the memory bus allows.

Run with ``python -m benchmarks.fgm.fgm_scaling``. The same run in this process (``sync``), on one worker and on two; the times of the
rounds alone, without starting the cluster. Two processes that read memory at the same time tell how much a second processor can give here.
"""

from __future__ import annotations

import benchmarks._harness as bench  # isort: skip
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fgm import fgm_out_of_core

PLACES = ("sync", "local:1", "local:2")


def read(megabytes: int, seconds: float) -> dict[str, Any]:
    """Read memory for a while; bytes per second."""
    array, passes = np.ones(megabytes * bench.MIB // 8), 0
    clock = bench.stopwatch()
    while clock() < seconds:
        np.add.reduce(array)
        passes += 1
    return {"rate": passes * array.nbytes / clock()}


def read_rate(processes: int, megabytes: int = 128, seconds: float = 1.0) -> float:
    """Return the bytes per second that some processes read together."""
    rates: list[float] = []
    children = [bench.Child(__file__) for _ in range(processes)]

    def ask(child: bench.Child) -> None:
        rates.append(child("read", megabytes=megabytes, seconds=seconds)["rate"])

    for child in children:
        child("read", megabytes=1, seconds=0.0)
    threads = [threading.Thread(target=ask, args=(child,)) for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for child in children:
        child.close()
    return sum(rates)


def run_places(options, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Alternate the places; every run in a process of its own."""
    given = {
        "params": {"B": options.B, "C": 100.0, "max_rounds": options.rounds, "fit_intercept": False},
        "worker_memory": "1GiB",
        "n": options.n,
        "n_test": 0,
    }
    found: dict[str, list[dict[str, Any]]] = {place: [] for place in PLACES}
    for rep in range(options.reps):
        for place in PLACES:
            with bench.Child(fgm_out_of_core.__file__) as child:
                child("configure", d=options.d)
                found[place].append(child("ours", folder=str(folder), run=f"run{place[-1]}{rep}", cluster=place, **given))
    return found


def main() -> None:
    parser = bench.arguments(__doc__, n=300_000, d=3_000_000, per_row=114, offset=500.0, relevant=300, B=20, rounds=10)
    parser.add_argument("--folder", help="where rows and store go; a folder that holds them already is used again and kept")
    options = parser.parse_args()
    options.n_test, options.seed, options.budget = 0, 0, 256 << 20
    if options.tiny:
        options.n, options.d, options.per_row, options.relevant, options.B, options.rounds, options.reps = 3000, 20_000, 20, 20, 3, 3, 1
    report = bench.Report(f"FGM on 1 and 2 workers, store of {options.n} x {options.d}, B={options.B}, T={options.rounds}", options)
    with bench.kept_or_scratch(options.folder) as folder:
        if not (folder / "store").exists():
            fgm_out_of_core.make_data(report, options, str(folder))
        found = run_places(options, folder)
    for place, rows in found.items():
        report.time(f"{place}, whole run", bench.timing_of(rows))
        for key in ("rounds alone", "in score", "in columns", "in solve", "in starting the cluster"):
            report.value(f"{place}: {key}", float(np.median([row[key] for row in rows])), unit=" s")
    one, two = ({key: float(np.median([row[key] for row in found[place]])) for key in ("rounds alone", "in score")} for place in PLACES[1:])
    report.value("rounds, one worker : two workers", one["rounds alone"] / two["rounds alone"], unit="x")
    report.value("scoring, one worker : two workers", one["in score"] / two["in score"], unit="x")
    report.value("memory read by two processes : by one", read_rate(2) / read_rate(1), unit="x")
    report.show()


if __name__ == "__main__":
    bench.serve(read)
    main()

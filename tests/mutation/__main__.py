"""Plant faults into copies of the product and see which of them the tests notice.

- ``python -m tests.mutation map`` runs the suite once and writes down which tests call which functions (``reached.json``, not committed);
  with it those are run first.
- ``run [--count 300] [--seed 0] [--minutes 45] [--jobs 2]`` goes on where the last part ended and appends a line for each mutant to
  ``tests/mutation/results.jsonl``; ``again`` plants those that survived. Both plant into the commit that is checked out, where the lines of
  a mutant are now.
- ``report`` sums up and lists the survivors. ``equivalent.json`` there argues why some change nothing that anybody could see.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.mutation.planting import map_tests, plant_all
from tests.mutation.results import Results

ROOT = Path(__file__).resolve().parents[2]


def main(words: list[str] | None = None) -> int:
    """Run a part, or report; 1 where the goal is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=["map", "run", "again", "report"])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=45.0, help="no mutant is begun after this time")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=420.0, help="seconds of tests for one mutant; a survivor has seen all of them")
    chosen = parser.parse_args(words)
    results = Results(Path(__file__).parent)
    if chosen.part == "map":
        map_tests(ROOT, results, chosen)
    elif chosen.part != "report":
        plant_all(ROOT, results, chosen)
    print(results.summary())
    return 0 if results.goal_met() else 1


if __name__ == "__main__":
    sys.exit(main())

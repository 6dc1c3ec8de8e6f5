"""``python -m tests.reliability defects [--quick] [NUMBER ...]``: a line for each defect that was reported; 1 when one came back."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("gramplane") is None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "support" / "_bare"))


def main(words: list[str] | None = None) -> int:
    """Walk the chosen defects and print how each ended."""
    from tests.reliability.walks import every_walk, outcomes

    parser = argparse.ArgumentParser(prog="python -m tests.reliability", description=__doc__)
    parser.add_argument("part", choices=["defects"])
    parser.add_argument("numbers", nargs="*", type=int, metavar="NUMBER", help="only these (default: all)")
    parser.add_argument("--quick", action="store_true", help="only the part that the gate walks, about a minute")
    chosen = parser.parse_args(words)
    walks = [item for item in every_walk() if (item.quick or not chosen.quick) and (not chosen.numbers or item.number in chosen.numbers)]
    failed = 0
    for outcome in outcomes(walks):
        print(outcome, flush=True)
        failed += outcome.verdict == "FAILED"
    print(f"{len(walks)} walks, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

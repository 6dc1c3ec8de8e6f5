"""The page ``memory.md``, from what methods declare."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gramplane import METHODS
from gramplane.pipeline.core.memory import OVERHEAD
from gramplane.pipeline.records.holdings import Held

PAGE = Path(__file__).with_name("memory.md")
HEAD = f"""# What the driver holds

These are the formulas that plans (`--dry-run`) and refusals use.

`--driver-memory`, L below, is what the process that starts a run may hold beside its programs; by default half of the memory of machine
or container. More than that ends with 5 before any work; [the guide](guides/memory_and_blocks.md#memory-of-the-driver) tells how. A
plan has the sum as `driver_bytes`, and each thing as a row of `driver_holds`.

Without workers (`--cluster sync`) the tasks run in this process, too: one step of a pass (`task_bytes`), and blocks that are kept from
one pass to the next as far as L leaves room for them, up to 256 MiB. `process_bytes` is the sum of all three; where the
number of eigenpairs shows only on the way, with the most that may be held within L (`driver_bytes_at_most`). Measured peaks stay within
it and {OVERHEAD >> 20} MiB, above the process after imports and compilation: stacks of threads, buffers of reading and writing, small
arrays on their way. A step that takes more than these {OVERHEAD >> 20} MiB is held against L with the rest.

"""


# Letters that mean the same in every formula; a thing explains its own.
SYMBOLS = {
    "n": "rows",
    "d": "features",
    "k": "kernels",
    "T": "machines, or tasks",
    "L": "bytes of `--driver-memory`",
    "stored": "bytes of the rows or columns meant, as the store has them",
    "entries": "values of a sparse store, or n d of a dense one",
    "model": "bytes of the arrays of a model",
}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _row(item: Held) -> str:
    when = item.when[:1].upper() + item.when[1:] if item.when[:1].isalpha() and item.when[1:2].isalpha() else item.when
    return f"| {_cell(item.what[:1].upper() + item.what[1:])} | `{item.formula}` | {_cell(when)} |"


def _table(title: str, held: tuple[Held, ...]) -> Iterator[str]:
    yield from (f"## {title}", "", "| what | bytes | when |", "|---|---|---|")
    yield from map(_row, held)
    yield ""


def _tables() -> Iterator[str]:
    """Yield the tables, one for all methods that hold the same."""
    same: dict[tuple[Held, ...], list[str]] = {}
    for name, info in METHODS.items():
        same.setdefault(info.driver_holds(), []).append(name)
    for held, names in same.items():
        if held:
            yield from _table(", ".join(names), held)


def page() -> str:
    """Return the page."""
    symbols = [f"| {name} | {what} |" for name, what in SYMBOLS.items()]
    lines = ["| symbol | means |", "|---|---|", *symbols, "", "What stands side by side is multiplied; `^` is a power.", "", *_tables()]
    return HEAD + "\n".join(lines).rstrip() + "\n"

"""The page ``memory.md``: what plans say of every method at three sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp

from gramplane import METHODS, ingest, run_method
from gramplane.cluster import MemoryBoundExceeded, bytes_text
from gramplane.pipeline.core.memory import OVERHEAD

PAGE = Path(__file__).with_name("memory.md")
SIZES, FEATURES, TASKS, LIMIT = (1_000, 10_000, 100_000), 100, 10, "8GiB"
HEAD = f"""---
orphan: true
---

# Memory use of each method

`--driver-memory` limits what the process that starts a run holds beside its programs. The default is half of the memory of the computer or
container. A fit that needs more ends with exit code 5 before any work; see [the guide](guides/larger_than_memory.md#set-a-limit).
`--dry-run` lists every item of your fit (`driver_holds`) with the sum (`driver_bytes`).

Without workers (`--cluster sync`) tasks run in this process, too: add one step of a pass (`task_bytes`), and blocks that are kept from one
pass to the next where the limit leaves room, up to 256 MiB. `process_bytes` is the sum of all three. Measured peaks stay within it and
{OVERHEAD >> 20} MiB, which cover stacks of threads, buffers and small arrays. A larger step counts against the limit.

The table has `driver_bytes` of fits with default parameters and `--driver-memory {LIMIT}` on dense data of {FEATURES} features and two
classes, with {TASKS} tasks where a method learns tasks. *Refused*: the fit would need more than the limit. Near the limit many methods take
another way (passes in place of matrices), so figures need not grow with the rows.

"""


def _pairs(n: int) -> list[list[int]]:
    return [[i, (i + 1) % n, i % 2] for i in range(n)]


EXTRA: dict[str, Callable[[int], dict[str, Any]]] = {
    "npkl": lambda n: {"constraints": [[i, j, 1 - 2 * sign] for i, j, sign in _pairs(n)]},
    "semantic-ranker": lambda n: {"tags": [f"t{i % 7} t{i % 11}" for i in range(n)]},
    "social-strength": lambda n: {"pairs": _pairs(n)},
    "spe": lambda n: {"graph": [[i, (i + 1) % n] for i in range(n)]},
}
PARAMS: dict[str, dict[str, Any]] = {"multitask-selector": {"loss": "logistic"}, "social-strength": {"kernels": ["linear"]}}
NEED_TASKS = ("latent-task-mkl", "multitask-mkl", "multitask-selector", "shared-subspace-mkl")


def _stores(folder: Path, n: int) -> dict[str, str]:
    """Write what the methods read: rows, rows of tasks, and a sparse similarity of rows."""
    X = np.random.default_rng(0).normal(size=(n, FEATURES)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    links = sp.diags_array([1.0] * 7, offsets=range(-3, 4), shape=(n, n), format="csr", dtype=np.float32)
    sources = {"rows": ((X, y), {}), "tasks": ((X, y), {"task_column": np.arange(n) % TASKS}), "links": (links, {})}
    return {name: str(ingest(source, folder / name, progress=None, **options).url) for name, (source, options) in sources.items()}


def _cell(method: str, store: str, n: int, folder: Path) -> str:
    params, extra = PARAMS.get(method, {}), EXTRA.get(method, lambda n: {})(n)
    try:
        plan = run_method(method, params, data=store, run=str(folder / "run"), extra=extra, driver_memory=LIMIT, dry_run=True).plan or {}
        return bytes_text(plan["driver_bytes"])
    except MemoryBoundExceeded as error:
        return f"{bytes_text(error.needed)}, refused"


def _rows() -> Iterator[str]:
    cells: dict[str, list[str]] = {name: [] for name in METHODS}
    for n in SIZES:
        with TemporaryDirectory() as place:
            folder = Path(place)
            stores = _stores(folder, n)
            for name, row in cells.items():
                kind = "tasks" if name in NEED_TASKS else "links" if name == "visual-rank" else "rows"
                row.append(_cell(name, stores[kind], n, folder))
    yield from (f"| {name} | {' | '.join(row)} |" for name, row in cells.items())


def page() -> str:
    """Return the page."""
    titles = " | ".join(f"{n:,} rows" for n in SIZES)
    return HEAD + "\n".join([f"| method | {titles} |", f"|---|{'---|' * len(SIZES)}", *_rows()]) + "\n"

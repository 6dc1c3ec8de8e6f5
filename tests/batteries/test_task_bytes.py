"""Every pass of every fit within the bytes that its plan says of a task, in this process and as on workers, on the way for large data."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gramplane.kernels.jit import one_thread
from gramplane.pipeline import METHODS
from gramplane.storage.cache import block_cache
from gramplane.workflows.battery import Bench, MethodCase, changed_sizes, no_pass_takes_more_than_the_plan_says
from tests.support.distributed import DISTRIBUTED, KERNELS, MAPS, PAIRS, PLACE, SMALL, TILES, rows
from tests.support.methods import CASES, of_several_blocks

FIRST = {case.method: name for name, case in reversed(DISTRIBUTED.items())}
"""One case of every method; the others are many more of the same kind."""

IN_PIECES = {
    **{f"gramplane.kernels.eigen.column_block.{name}": 64 for name in ("TILE_ROWS", "TILE_COLUMNS")},
    **{f"gramplane.pipeline.grams.eigen_steps.{name}": 64 for name in ("TILE_ROWS", "TILE_COLUMNS", "ROW_STEP", "RANDOM_ROWS")},
    **{f"gramplane.pipeline.grams.eigen_blocks.{name}": 64 for name in ("TILE_COLUMNS", "RANDOM_ROWS")},
    "gramplane.kernels.eigen.column_block.RANDOM_ROWS": 64,
}
"""The block of an eigensolver in tiles of a few rows and columns."""

ROW_PASSES = {f"{PLACE}embeddings.rows_pass.WHOLE_ROWS": 32}
MANY = [f"rbf(gamma={0.01 * q})" for q in range(1, 41)]


def _case(method: str, params: dict, memory: str | None = None, extra: dict | None = None, sizes: dict | None = None, **data) -> MethodCase:
    return MethodCase(method, params, partial(rows, **data), (params, ""), extra or {}, memory, {**SMALL, **(sizes or {})})


RARE: dict[str, MethodCase] = {
    "fgm-pair-fallback": replace(
        of_several_blocks(CASES["fgm-pairs"]),
        sizes={**SMALL, "gramplane.kernels.features.pairs.PairLimits.__init__.__defaults__": (4, 8, 1 << 40)},
    ),
    "mkl-many-kernels": _case("mkl", {"kernels": MANY, "max_iter": 4, "tol": 1e-3}, "3MiB"),
    "mkl-store": _case("mkl", {"kernels": KERNELS, "max_iter": 3, "grams": "store", "gram_store": ""}, "128KiB"),
    "multitask-mkl-store": _case(
        "multitask-mkl", {"kernels": [*KERNELS, "linear cosine"], "max_iter": 2, "grams": "store", "gram_store": ""}, kind="tasks"
    ),
    "unsupervised-mkl-column-sums": _case(
        "unsupervised-mkl", {"kernels": KERNELS, "n_bases": 4, "max_iter": 2, "normalize": "column_sum"}, "768KiB"
    ),
    "npkl-tiles-beyond-memory": _case(
        "npkl",
        {"C": 5.0, "graph": "union"},
        "12MiB",
        {"constraints": [[i, (i + 7 * k) % 900, 1 if k % 2 else -1] for k in (1, 2) for i in range(0, 900, 3)]},
        {**TILES, **IN_PIECES},
        n=900,
    ),
    "npkl-tiles-in-pieces": replace(DISTRIBUTED["npkl-tiles"], sizes={**DISTRIBUTED["npkl-tiles"].sizes, **IN_PIECES}),
    "npkl-selected": _case("npkl", {"graph": "union", "selection": "active"}, extra=PAIRS),
    "mve-rows": _case("mve", {"graph": "union", "tol": 0.5, "max_iter": 1}, n=100, sizes=ROW_PASSES),
    "mve-rows-by-iteration": _case(
        "mve",
        {"graph": "union", "tol": 0.5, "max_iter": 1},
        n=100,
        sizes={**ROW_PASSES, f"{PLACE}embeddings.rows_pass.MAX_SCATTER_COLUMNS": 3},
    ),
    "colored-mvu-graph": _case(
        "colored-mvu", {"tol": 0.5, "max_iter": 1}, extra={"graph": [[i, i + k] for k in (1, 2) for i in range(98)]}, n=100, sizes=MAPS
    ),
}
"""Ways that no other case takes."""

SEVERAL = {name: replace(of_several_blocks(case), sizes=SMALL) for name, case in CASES.items()}
EVERY = {**SEVERAL, **DISTRIBUTED, **RARE}
QUICK = {*FIRST.values(), "fgm-pair-fallback", "fgm-rows-covariates"}
AS_ON_WORKERS = {"gramplane.cluster.executor.Executor.kind": "pretended"}
"""This process does what workers would: blocks of kernels and of eigenvectors go their way, whatever they are."""


@pytest.fixture
def kept():
    """Blocks are kept afterwards as they were before; workers have limits of their own."""
    before = block_cache().limit
    yield
    block_cache().set_limit(before)


@pytest.mark.parametrize("sizes", [{}, AS_ON_WORKERS], ids=["here", "as-on-workers"])
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EVERY])
def test_no_pass_takes_more_than_its_plan_says(name, sizes, tmp_path, kept):
    case = _with_store(EVERY[name], tmp_path)
    case = replace(case, sizes={**case.sizes, **sizes})
    with one_thread():
        with changed_sizes(case.sizes):
            case.data(tmp_path / "data.zarr")
        no_pass_takes_more_than_the_plan_says(Bench(case, tmp_path, tmp_path))


def _with_store(case: MethodCase, folder: Path) -> MethodCase:
    """Return a case whose kernels lie in a store, with its place."""
    store = {"gram_store": str(folder / "grams")} if "gram_store" in case.params else {}
    return replace(case, params={**case.params, **store})


def test_every_method_is_here():
    assert set(FIRST) == set(METHODS), "DISTRIBUTED in tests/support/distributed.py has cases of every method"

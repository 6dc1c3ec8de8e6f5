"""The eigensolver's block in tiles: the bits of the block in memory, whatever its parts, starts and sizes; resumed runs; memory."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.linalg import block_diag

from gramplane.cluster import MemoryBoundExceeded, MemorySink, open_executor
from gramplane.kernels.eigen import column_block
from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.eigen.positive_part import as_array, positive_part
from gramplane.pipeline import load_model, resume_run, run_method
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams import eigen_blocks, eigen_steps
from gramplane.pipeline.grams.eigen_blocks import WorkerEngine
from gramplane.storage import RunStore, TiledMatrix
from gramplane.storage.ingest import ingest
from tests.support.oracles.spectral import graph_problem

SMALL = "gramplane.kernels.eigen.positive_part"


@pytest.fixture
def in_pieces(monkeypatch):
    """Rows, columns and tiles so small that every pass has several tasks."""
    column_names, step_names = ("TILE_ROWS", "TILE_COLUMNS", "RANDOM_ROWS"), ("TILE_ROWS", "TILE_COLUMNS", "ROW_STEP")
    for module, names in ((column_block, column_names), (eigen_blocks, ("TILE_COLUMNS", "RANDOM_ROWS")), (eigen_steps, step_names)):
        for name in names:
            monkeypatch.setattr(module, name, 64)
    monkeypatch.setattr(eigen_blocks, "TASK_PRODUCTS", 0)
    monkeypatch.setattr(f"{SMALL}.MAX_DENSE_ROWS", 100)


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine that takes every block, on 330 rows in this process, with its events."""
    monkeypatch.setattr(WorkerEngine, "takes", lambda *_: True)
    sink = MemorySink()
    with open_executor(None, events=sink) as executor:
        run = RunStore.create(tmp_path / "run", {})
        yield WorkerEngine(Resources(executor, scratch=run), run, 330, 1 << 30, keeps_blocks=True), sink


def in_parts(seed: int = 0) -> SymmetricOperator:
    """Parts of 200 and 120 rows, which are filtered, one of 8, which is not, and two rows without an entry."""
    blocks = [graph_problem(n, seed=seed + k, neighbours=3)[0] for k, n in enumerate((200, 120, 8))]
    order = np.random.default_rng(1).permutation(330)
    return SymmetricOperator(sp.csr_array(block_diag(*blocks, np.zeros((2, 2)))[np.ix_(order, order)]))


def same(one, other) -> bool:
    vectors = np.array_equal(as_array(one.vectors), as_array(other.vectors))
    return vectors and np.array_equal(one.values, other.values) and one.error == other.error and one.method == other.method


@pytest.mark.parametrize("max_rank", [None, 7])
def test_tiles_have_the_bits_of_memory(engine, in_pieces, max_rank):
    engine, sink = engine
    first = [positive_part(in_parts(), max_rank=max_rank, engine=given) for given in (None, engine)]
    assert isinstance(first[1].vectors, TiledMatrix) and same(*first)
    block = first[1].block
    np.testing.assert_array_equal(block.rows(np.arange(330)), first[0].block)
    # A matrix nearby, from either block; what a block in tiles starts from is found again by its name.
    moved = in_parts()
    moved = replace(moved, sparse=sp.csr_array(moved.sparse + 0.01 * moved.sparse @ moved.sparse))
    starts = ((first[0].block, None), (first[0].block, engine), (engine.stored(block.name), engine), (block, None))
    warm = [positive_part(moved, start=start, max_rank=max_rank, engine=given) for start, given in starts]
    assert all(same(warm[0], other) for other in warm[1:])
    tasks = {event["program"]: event["n_tasks"] for event in sink.named("plan")}
    assert {"block-filter", "block-inner", "block-solve", "block-rotate", "block-place", "block-columns"} <= set(tasks)
    assert tasks["block-solve"] > 1 and (tasks["block-filter"] > 1 or max_rank == 7)


def test_a_low_rank_part_goes_along(engine, in_pieces):
    rng = np.random.default_rng(3)
    factor = rng.normal(size=(330, 3)) * (rng.random((330, 3)) < 0.5)
    for given in (factor, sp.csr_array(factor)):
        made = SymmetricOperator(in_parts().sparse, given, np.array([1.0, -0.5, 2.0]), True)
        assert same(positive_part(made), positive_part(made, engine=engine[0]))


def test_a_block_that_is_too_narrow_grows_in_tiles_as_in_memory(engine, in_pieces, monkeypatch):
    real = column_block.ArrayBlock.begin
    widened = []
    monkeypatch.setattr(column_block.ArrayBlock, "widen", _told(column_block.ArrayBlock.widen, widened))
    monkeypatch.setattr(eigen_blocks.TiledBlock, "widen", _told(eigen_blocks.TiledBlock.widen, widened))
    monkeypatch.setattr("gramplane.kernels.eigen.chebyshev.SPARE_COLUMNS", 0)
    monkeypatch.setattr("gramplane.kernels.eigen.chebyshev.RANK_MARGINS", (0.5,))
    assert same(positive_part(in_parts()), positive_part(in_parts(), engine=engine[0]))
    assert len(widened) >= 2 and real is column_block.ArrayBlock.begin


def _told(plain, calls):
    return lambda *args: calls.append(1) or plain(*args)


# -- runs --------------------------------------------------------------------------------------------------------------------------

SHARP = {"loss": "squared_hinge", "B": 300.0, "C": 0.4, "graph": "union", "tol": 1e-3}


def problem(folder: Path, n: int = 300) -> tuple[str, dict]:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    store = ingest(rng.normal(size=(n, 4)) + 2 * np.eye(4)[y], folder / "data.zarr")
    pairs = [(int(i), int(j), 1 if y[i] == y[j] else -1) for i, j in rng.integers(0, n, (n, 2)) if i // 2 != j // 2]
    return store.url, {"constraints": sorted({(min(i, j), max(i, j), s) for i, j, s in pairs})}


class Stop(RuntimeError):
    """An interruption."""


@pytest.mark.parametrize("params", [{"C": 0.4, "graph": "union"}, SHARP])
def test_a_run_in_tiles_is_the_run_in_memory_also_when_it_is_cut(tmp_path, monkeypatch, in_pieces, params):
    data, extra = problem(tmp_path)
    run_method("npkl", params, data=data, run=str(tmp_path / "memory"), extra=extra)
    monkeypatch.setattr(WorkerEngine, "takes", lambda *_: True)
    run_method("npkl", params, data=data, run=str(tmp_path / "tiles"), extra=extra)

    def stop(event):
        if event["event"] == "iteration" and event["iteration"] == min(2, steps):
            raise Stop

    steps = len(load_model(tmp_path / "memory").history_["objective"])
    assert steps > 3 or "loss" not in params
    with pytest.raises(Stop):
        run_method("npkl", params, data=data, run=str(tmp_path / "cut"), extra=extra, on_event=stop)
    assert resume_run(str(tmp_path / "cut")).status == "done"
    models = [load_model(tmp_path / name) for name in ("memory", "tiles", "cut")]
    for other in models[1:]:
        np.testing.assert_array_equal(other.eigenvectors_, models[0].eigenvectors_)
        np.testing.assert_array_equal(other.history_["objective"], models[0].history_["objective"])
        assert other.dual_gap_ == models[0].dual_gap_
    assert not (tmp_path / "tiles" / "scratch").exists()


def test_a_block_beyond_the_memory_goes_to_tiles_before_anything_is_refused(tmp_path, monkeypatch):
    data, extra = problem(tmp_path, 2000)
    monkeypatch.setattr(eigen_steps, "FREED_BYTES", 0)
    whole = run_method("npkl", {"C": 0.5, "graph": "union"}, data=data, run=str(tmp_path / "whole"), extra=extra)
    calls, plain = [], eigen_blocks.TiledBlock.filter
    monkeypatch.setattr(eigen_blocks.TiledBlock, "filter", _told(plain, calls))
    small = run_method("npkl", {"C": 0.5, "graph": "union"}, data=data, run=str(tmp_path / "small"), extra=extra, driver_memory="26MiB")
    assert calls and small.summary["objective"] == whole.summary["objective"] and whole.summary["rank"] > 100
    with pytest.raises(MemoryError, match="block of"):
        run_method("npkl", {"C": 0.5, "graph": "union"}, data=data, run=str(tmp_path / "no"), extra=extra, driver_memory="9MiB")


def test_a_plan_says_what_workers_do_and_what_a_task_takes(tmp_path, monkeypatch):
    data, extra = problem(tmp_path, 300)
    options = {"data": data, "extra": extra, "dry_run": True}
    few = run_method("npkl", {}, run=str(tmp_path / "a"), **options).plan
    monkeypatch.setattr(eigen_blocks, "WORKER_ROWS", 200)
    monkeypatch.setattr(f"{SMALL}.MAX_DENSE_ROWS", 100)
    many = run_method("npkl", {}, run=str(tmp_path / "a"), **options).plan
    based = run_method("npkl", {"base": 5}, run=str(tmp_path / "a"), **options).plan
    assert few["distributed"] == based["distributed"] == ["neighbours"]
    assert len(many["distributed"]) == 2 and "eigensolver" in many["distributed"][1]
    assert many["task_bytes"] >= few["task_bytes"] and json.dumps(many)
    assert any("tiles" in row["what"] for row in many["driver_holds"]) and not any("tiles" in row["what"] for row in few["driver_holds"])


def test_a_step_takes_no_more_than_it_says(engine, in_pieces, monkeypatch):
    """Every pass on a block is planned within the bound that the driver's memory is checked against."""
    engine, sink = engine
    for module in (eigen_blocks, eigen_steps):
        monkeypatch.setattr(module, "FREED_BYTES", 0)
    made = in_parts()
    columns = positive_part(made, engine=engine).block.tiles.shape[1]
    matrix, wide = eigen_steps.matrix_bytes(330, made.sparse.nnz, 0), eigen_steps.task_columns(columns, here=True)
    steps = {event["program"]: event["memory_bound"] for event in sink.named("plan")}
    assert steps["block-inner"] <= max(steps.values()) <= eigen_steps.Shape(330, columns).most(matrix, wide, 16 * 8 * 8)


def test_memory_that_even_tiles_exceed_is_refused_by_the_plan(tmp_path):
    data, extra = problem(tmp_path, 300)
    with pytest.raises(MemoryBoundExceeded, match="npkl: this process would hold"):
        run_method("npkl", {}, data=data, run=str(tmp_path / "run"), extra=extra, driver_memory="100KiB")

"""What a plan promises of the eigensolver is what a run can do."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded
from gramplane.kernels.eigen.block_lanczos import dense_bytes
from gramplane.kernels.eigen.operator import SymmetricOperator
from gramplane.kernels.eigen.positive_part import positive_part
from gramplane.pipeline import run_method
from gramplane.pipeline.grams import eigen_blocks
from gramplane.pipeline.grams.eigen_plan import WORK
from gramplane.storage.ingest import ingest
from tests.support.oracles.spectral import graph_problem

N = 600


def stored(folder, n: int, pairs: int) -> dict:
    rng = np.random.default_rng(0)
    url = ingest(rng.normal(size=(n, 3)), folder / f"data{n}").url
    return {"data": url, "extra": {"constraints": [[i, i + 1, 1 - 2 * (i % 2)] for i in range(pairs)]}}


def test_memory_for_one_eigenpair_does_not_do_for_rows_that_are_all_linked(tmp_path):
    given = {**stored(tmp_path, N, 300), "run": str(tmp_path / "run")}
    told = r"a small matrix as a dense one 10\.99 MiB"
    for dry_run in (True, False):
        with pytest.raises(MemoryBoundExceeded, match=told):
            run_method("npkl", {"graph": "union"}, driver_memory="3MiB", dry_run=dry_run, **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("pairs", [7, 300])
def test_constraints_bound_the_rank(tmp_path, pairs):
    given = {**stored(tmp_path, N, pairs), "run": str(tmp_path / "run")}
    plan = run_method("npkl", {"graph": "union", "C": 5.0}, dry_run=True, **given).plan
    rank = run_method("npkl", {"graph": "union", "C": 5.0}, **given).summary["rank"]
    assert 0 < rank <= plan["eigenpairs_at_most"] == pairs
    ascent = run_method("npkl", {"graph": "union", "loss": "square"}, dry_run=True, **given).plan
    assert ascent["eigenpairs_at_most"] == N and ascent["driver_bytes_at_most"] == ascent["driver_bytes"]


def test_the_most_that_a_plan_names_grows_with_the_constraints(tmp_path, monkeypatch):
    few, many, all_rows = (
        run_method("npkl", {}, dry_run=True, run=str(tmp_path / "run"), **stored(tmp_path / f"{m}", 2000, m)).plan for m in (10, 600, 1999)
    )
    assert few["driver_bytes"] < few["driver_bytes_at_most"] < many["driver_bytes_at_most"] < all_rows["driver_bytes_at_most"]
    assert all_rows["driver_bytes_at_most"] > dense_bytes(2000)
    given = {"run": str(tmp_path / "run"), "driver_memory": many["driver_bytes_at_most"], **stored(tmp_path / "600", 2000, 600)}
    assert run_method("npkl", {}, **given).status == "done"
    monkeypatch.setattr(eigen_blocks, "WORKER_ROWS", 1000)
    tiles = run_method("npkl", {}, dry_run=True, **given).plan
    assert tiles["driver_bytes_at_most"] < many["driver_bytes_at_most"]


def test_tiles_are_named_where_the_memory_may_not_do(tmp_path):
    given = {**stored(tmp_path, 2000, 600), "run": str(tmp_path / "run"), "dry_run": True}
    here = run_method("npkl", {}, **given).plan
    beyond = run_method("npkl", {}, driver_memory="9MiB", **given).plan
    assert here["distributed"] == ["neighbours"] and here["eigensolver"] == "in this process"
    assert beyond["distributed"] == ["neighbours", f"{WORK}, where it is more than the driver may hold"]
    assert "in tiles" in beyond["eigensolver"] and beyond["task_bytes"] >= here["task_bytes"]


def test_less_memory_of_the_driver_bounds_what_tasks_add_of_known_eigenvectors(tmp_path):
    given = {**stored(tmp_path, 12_000, 600), "run": str(tmp_path / "run"), "dry_run": True}
    little, much = (run_method("npkl", {"loss": "square"}, driver_memory=memory, **given).plan for memory in ("64MiB", "1GiB"))
    assert little["eigenpairs_at_most"] == much["eigenpairs_at_most"] == 12_000
    assert little["task_bytes_at_most"] < 0.7 * much["task_bytes_at_most"]


def test_a_block_is_tried_where_a_dense_matrix_would_be_too_large():
    matrix = SymmetricOperator(sp.csr_array(graph_problem(300, seed=0, neighbours=3)[0] - 0.6 * np.eye(300)))
    whole = positive_part(matrix)
    assert whole.method == "dense"
    less = positive_part(matrix, memory=dense_bytes(300) // 3)
    assert less.method == "chebyshev"
    np.testing.assert_allclose(less.values, whole.values, rtol=0, atol=1e-4 * whole.values[0])
    with pytest.raises(MemoryError, match=r"a block of \d+ columns of 29\d rows"):
        positive_part(matrix, memory=dense_bytes(300) // 20)

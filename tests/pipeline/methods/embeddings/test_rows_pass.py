"""Embeddings by passes over rows: geometry, distances along a graph, triples; the search in one piece has the same bits."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemorySink, open_executor
from gramplane.kernels.spectral.embeddings import leading_directions
from gramplane.kernels.spectral.triple_losses import worst_triples
from gramplane.pipeline import run_method
from gramplane.pipeline.core.resources import Resources, RunContext
from gramplane.pipeline.grams import neighbours
from gramplane.pipeline.grams.eigen_plan import WORK
from gramplane.pipeline.grams.neighbours import squared_distances
from gramplane.pipeline.methods.embeddings import rows_pass
from gramplane.pipeline.methods.embeddings.estimator import MinimumVolumeEmbedding
from gramplane.pipeline.methods.embeddings.rows_pass import GeometryPasses, TriplesPass, row_geometry
from gramplane.storage import MemoryBlocks
from gramplane.storage.ingest import ingest


def rows(n=90, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.linspace(3, 1, d) + rng.normal(size=d)


@pytest.fixture
def executor():
    sink = MemorySink()
    with open_executor(None, events=sink) as executor:
        yield executor, sink


@pytest.mark.parametrize("kind", ["scatter", "wide", "sparse"])
@pytest.mark.parametrize("count", [0, 2])
def test_geometry_by_blocks_is_that_of_all_rows(executor, monkeypatch, kind, count):
    X = rows(d=200) if kind == "wide" else np.where(np.abs(rows()) < 1, 0, rows())
    data = MemoryBlocks(sp.csr_array(X) if kind == "sparse" else X)
    norm2, directions = leading_directions(data.X if kind == "sparse" else X, 2)
    ctx = RunContext(executor[0], data=data)
    whole = row_geometry(data, ctx, count)
    assert whole[0] == norm2 and np.array_equal(whole[1], directions[:, :count])
    monkeypatch.setattr(rows_pass, "WHOLE_ROWS", 32)
    monkeypatch.setattr(rows_pass, "MAX_SCATTER_COLUMNS", 6)
    found = row_geometry(data, ctx, count)
    assert found[0] == pytest.approx(norm2, rel=1e-10) and found[1].shape == (90, count)
    if count:
        np.testing.assert_allclose(found[1] @ found[1].T, directions @ directions.T, atol=1e-5)


def test_the_pass_over_all_rows_says_what_comes_back():
    work = GeometryPasses(MemoryBlocks(rows(400)), 5).directions(5)
    ((_, directions),) = work.program.chunk(*work.refs, *work.broadcast)
    assert directions.nbytes <= work.describe()["result_bytes"] <= directions.nbytes + 1024


def test_distances_of_pairs_by_blocks(executor, monkeypatch, tmp_path):
    X = np.where(np.abs(rows(50)) < 1, 0, rows(50))
    i, j = np.random.default_rng(1).integers(0, 50, (2, 70))
    expected = np.sum((X[i] - X[j]) ** 2, axis=1)
    for form in (X, sp.csr_array(X)):
        for data in (MemoryBlocks(form), ingest(form, tmp_path / type(form).__name__)):
            monkeypatch.setattr(neighbours, "ROWS", 4096)
            whole = squared_distances(data, Resources(executor[0]), i, j)
            np.testing.assert_allclose(whole, expected, rtol=1e-12)
            monkeypatch.setattr(neighbours, "ROWS", 16)
            monkeypatch.setattr(neighbours, "PAIRS", 7)
            np.testing.assert_array_equal(squared_distances(data, Resources(executor[0]), i, j), whole)


def test_triples_by_rows_have_the_bits_of_one_piece(executor, monkeypatch):
    rng = np.random.default_rng(2)
    factor, graph = rng.normal(size=(150, 3)), sp.random_array((150, 150), density=0.05, rng=rng, format="csr")
    starts, ids = graph.indptr.astype(np.int64), np.sort(graph.indices.astype(np.int64))
    whole = worst_triples(factor, starts, ids)
    monkeypatch.setattr(rows_pass, "TRIPLE_WORK", 1)
    found = TriplesPass(RunContext(executor[0], data=MemoryBlocks(factor)))(factor, starts, ids)
    assert [event["n_tasks"] for event in executor[1].named("plan")] == [3]
    np.testing.assert_array_equal(found[0], whole[0])
    np.testing.assert_array_equal(found[1], whole[1])


def test_a_map_by_blocks_is_the_map_of_all_rows(monkeypatch):
    X = rows(80, 3)
    one = MinimumVolumeEmbedding(graph="union", tol=1e-2).fit(X)
    monkeypatch.setattr(neighbours, "ROWS", 32)
    monkeypatch.setattr(neighbours, "CANDIDATE_BYTES", 1)
    monkeypatch.setattr(rows_pass, "WHOLE_ROWS", 32)
    other = MinimumVolumeEmbedding(graph="union", tol=1e-2).fit(X)
    np.testing.assert_array_equal(other.edges_, one.edges_)
    assert other.unit_ == one.unit_ and other.cap_ == pytest.approx(one.cap_, rel=1e-12)
    assert other.objective_ == pytest.approx(one.objective_, rel=1e-2)


def test_projected_gradients_on_many_rows_are_those_in_tiles(monkeypatch, tmp_path):
    """Beyond Newton's rows the eigensolver's block may lie in tiles: the same map."""
    from gramplane.pipeline.grams.eigen_blocks import WorkerEngine

    store = ingest((rows(150, 3), np.arange(150) % 2), tmp_path / "data").url
    monkeypatch.setattr("gramplane.kernels.spectral.embeddings.MAX_NEWTON_ROWS", 100)
    monkeypatch.setattr("gramplane.pipeline.methods.embeddings.problem.MAX_NEWTON_ROWS", 100)
    monkeypatch.setattr("gramplane.kernels.eigen.positive_part.MAX_DENSE_ROWS", 100)
    monkeypatch.setattr("gramplane.kernels.eigen.positive_part.MAX_BLOCK_SHARE", 0.9)
    params, filtered = {"graph": "union", "tol": 0.05, "B": 1e4}, []
    objectives = []
    for name in ("memory", "tiles"):
        if name == "tiles":
            monkeypatch.setattr(WorkerEngine, "takes", lambda *_: True)
        told = lambda event: filtered.append(event.get("program"))  # noqa: E731
        objectives.append(run_method("colored-mvu", params, data=store, run=str(tmp_path / name), on_event=told).summary["objective"])
    assert objectives[0] == objectives[1] and "block-filter" in filtered


def test_a_plan_names_the_passes_of_its_configuration(tmp_path):
    store = ingest((rows(60, 3), np.arange(60) % 2), tmp_path / "data").url
    options = {"data": store, "run": str(tmp_path / "run"), "dry_run": True}
    plans = {name: run_method(name, {}, **options).plan for name in ("colored-mvu", "mve", "spe")}
    assert [plans[name]["distributed"][0] for name in plans] == ["neighbours"] * 3
    assert "the most violated triple of every row" in plans["spe"]["distributed"]
    assert not any("eigensolver" in plan for plan in plans.values())
    given = run_method("mve", {}, **options, extra={"graph": [[0, 1], [5, 2]]}).plan
    assert given["distributed"][0] == "distances along the graph" and given["graph"] == "given"
    assert all(plan["task_bytes"] > 0 and plan["driver_bytes"] > 0 for plan in (*plans.values(), given))


def test_a_plan_beyond_newtons_rows_says_where_the_eigensolver_works(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.pipeline.methods.embeddings.problem.MAX_NEWTON_ROWS", 100)
    store = ingest((rows(900, 3), np.arange(900) % 2), tmp_path / "data").url
    options = {"data": store, "run": str(tmp_path / "run"), "dry_run": True}
    here, beyond = (run_method("mve", {}, driver_memory=memory, **options).plan for memory in ("1GiB", "20MiB"))
    monkeypatch.setattr("gramplane.pipeline.grams.eigen_blocks.WORKER_ROWS", 900)
    tiles = run_method("mve", {}, **options).plan
    works = [plan["distributed"][2:] for plan in (here, beyond, tiles)]
    assert works == [[], [f"{WORK}, where it is more than the driver may hold"], [WORK]]
    assert any("tiles" in row["what"] for row in tiles["driver_holds"])

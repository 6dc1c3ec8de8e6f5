"""Embeddings as estimators and as runs: forms of data, labels, held-out rows, resume, warnings, bad input, scikit-learn's checks."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.methods.embeddings.config import ColoredMVUConfig, MVEConfig, SPEConfig
from gramplane.pipeline.methods.embeddings.estimator import ColoredMVU, MinimumVolumeEmbedding, StructurePreservingEmbedding
from gramplane.pipeline.methods.embeddings.labels import neighbour_accuracy, read_labels
from gramplane.pipeline.methods.embeddings.method import MVE, SPE
from gramplane.pipeline.methods.embeddings.method import ColoredMVU as ColoredMVUMethod
from gramplane.pipeline.methods.embeddings.problem import EmbeddingInputs, edge_squares
from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.ingest import ingest

ALL = {"colored": ColoredMVU, "volume": MinimumVolumeEmbedding, "structure": StructurePreservingEmbedding}
METHODS = {"colored": ColoredMVUMethod(), "volume": MVE(), "structure": SPE()}


def blobs(seed=0, n=24, d=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return rng.normal(size=(n, d)) + 1.5 * y[:, None], y


def fitted(name, X, y, **options):
    return ALL[name](graph="union", n_neighbors=4, **options).fit(X, y)


@pytest.mark.parametrize("name", ALL)
def test_dense_sparse_and_stores_agree(name, tmp_path):
    X, y = blobs()
    X = np.where(np.abs(X) < 0.3, 0.0, X)
    store = ingest((X, y), tmp_path / "data.zarr")
    a, b, c = fitted(name, X, y), fitted(name, sp.csr_matrix(X), y), fitted(name, store, None if name == "colored" else y)
    for other in (b, c):
        assert other.objective_ == pytest.approx(a.objective_, rel=2e-3)
        np.testing.assert_array_equal(other.edges_, a.edges_)
    assert a.converged_ and 0 <= a.dual_gap_ <= 2e-3 * abs(a.objective_)
    assert a.embedding_.shape == (24, 2)
    np.testing.assert_allclose(a.embedding_.mean(axis=0), 0.0, atol=1e-8 * np.abs(a.embedding_).max())
    K = (a.eigenvectors_ * a.eigenvalues_) @ a.eigenvectors_.T
    np.testing.assert_allclose(a.embedding_**2, a.eigenvectors_[:, :2] ** 2 * a.eigenvalues_[:2] * a.unit_, rtol=1e-9)
    assert np.sum(K * K) == pytest.approx(a.cap_used_ * a.cap_, rel=1e-9)
    assert a.map_share_ == pytest.approx(a.eigenvalues_[:2].sum() / np.trace(K))
    np.testing.assert_array_equal(fitted(name, X, y).embedding_, a.fit_transform(X, y))


def test_neighbours_keep_their_distances_and_the_map_takes_the_trace():
    """A bent strip in three dimensions unfolds: squared distances of neighbours stay within a few per cent of their mean."""
    t = np.linspace(0, 4.0, 30)
    X = np.column_stack([np.cos(t), np.sin(t), 0.1 * np.sin(9 * t)])
    found = MinimumVolumeEmbedding(n_neighbors=2, graph="union", C=1000.0).fit(X)
    i, j = found.edges_.T
    before, after = (np.sum((rows[i] - rows[j]) ** 2, axis=1) for rows in (X, found.embedding_))
    assert np.abs(after - before).max() < 0.3 * before.mean()
    assert found.map_share_ > 0.99
    ends = np.linalg.norm(found.embedding_[0] - found.embedding_[-1])
    assert ends > 1.2 * np.linalg.norm(X[0] - X[-1])


def test_labels_order_the_map_and_rows_without_one_are_placed_by_their_neighbours():
    X, y = blobs(1, 40)
    hidden = np.where(np.arange(40) % 4 == 3, -1, y)
    every, part = fitted("colored", X, y), fitted("colored", X, hidden)
    for found, labels in ((every, y), (part, y)):
        side = found.embedding_[:, 0] > 0
        right = np.mean(side == labels)
        assert max(right, 1 - right) > 0.8
    assert part.objective_ != every.objective_
    named = np.array(["b", "c"], dtype=object)[y]
    named[hidden == -1] = None
    np.testing.assert_array_equal(fitted("colored", X, named).embedding_, part.embedding_)
    with_nan = np.where(hidden == -1, np.nan, y)
    np.testing.assert_array_equal(fitted("colored", X, with_nan).embedding_, part.embedding_)


def test_minus_one_is_a_class_where_the_only_other_label_is_one():
    X, y = blobs(2)
    np.testing.assert_array_equal(fitted("colored", X, 2 * y - 1).embedding_, fitted("colored", X, y).embedding_)
    assert read_labels(np.array([-1, 1, 2, 1])).codes.tolist() == [-1, 0, 1, 0]
    assert read_labels(np.array([-1.0, 1.0, np.nan])).codes.tolist() == [0, 1, -1]


def test_real_targets_order_the_map():
    X, _ = blobs(3, 30)
    y = X[:, 0] + 0.01
    found = fitted("colored", X, y)
    assert abs(np.corrcoef(found.embedding_[:, 0], y)[0, 1]) > 0.8
    np.testing.assert_allclose(np.abs(fitted("colored", X, 5 - 3 * y).embedding_), np.abs(found.embedding_), atol=1e-6)


def context(store, run=None, seed=0):
    return RunContext(open_executor("sync").__enter__(), data=store, scratch=run, seed=seed)


def test_every_state_of_a_working_set_has_a_dual_variable_per_triple():
    X, _ = blobs(4)
    ctx = context(MemoryBlocks(X))
    spe = METHODS["structure"]
    problem = spe.problem(SPEConfig(graph="union", n_neighbors=3, tol=1e-5), EmbeddingInputs(ctx.data, None), ctx)
    states = [spe.init(problem, ctx)]
    while states[-1].stop is None:
        states.append(spe.step(problem, states[-1], ctx).state)
    assert len(states) > 2 and [len(state.alpha) for state in states] == [len(state.triples) for state in states]


@pytest.mark.parametrize("name", ALL)
def test_summary_and_tables_of_a_run(name, tmp_path):
    X, y = blobs(5, 40)
    store = ingest((X, np.array(["no", "yes"])[y]), tmp_path / "data.zarr")
    ctx = context(store)
    method = METHODS[name]
    problem = method.problem(*method.read_inputs(method.config(graph="union"), ctx, {"test_share": 0.25}), ctx)
    outcome = iterate(method, problem, ctx)
    found = method.result(problem, outcome.state, ctx)
    model, summary, tables = found.model, found.summary, method.tables(found.model, fit=(problem, outcome.state))
    assert summary["classes"] == ["no", "yes"] and summary["graph_components"] == 1 and summary["isolated_rows"] == 0
    assert 0.5 <= summary["test_accuracy"] <= 1 and 0.5 <= summary["train_accuracy"] <= 1
    assert sum(row["held_out"] for row in tables["embedding"]) == 10
    assert [row["label"] for row in tables["embedding"]] == np.array(["no", "yes"])[y].tolist()
    np.testing.assert_array_equal([[row["component_0"], row["component_1"]] for row in tables["embedding"]], model.predictions())
    assert sum(row["share"] for row in tables["spectrum"]) == pytest.approx(1, abs=1e-6)
    assert summary["edges"] == len(model.arrays["edges"]) and problem.plan["tasks_per_pass"] == 1
    estimator = ALL[name].from_model(model, {}, outcome.history)
    np.testing.assert_array_equal(estimator.embedding_, model.predictions())
    assert estimator.graph == "union" and estimator.n_iter_ == outcome.state.iteration


def test_the_fit_does_not_see_labels_held_out(tmp_path):
    X, y = blobs(6, 40)
    store = ingest((X, y), tmp_path / "data.zarr")
    mask = np.arange(40) % 5 == 0
    moved = ingest((X, np.where(mask, 1 - y, y)), tmp_path / "other.zarr")
    models = []
    for data in (store, moved):
        ctx = context(data)
        config, inputs = METHODS["colored"].read_inputs(ColoredMVUConfig(graph="union"), ctx, {})
        problem = METHODS["colored"].problem(config, replace(inputs, labels=replace(inputs.labels, held_out=mask)), ctx)
        models.append(METHODS["colored"].result(problem, iterate(METHODS["colored"], problem, ctx).state, ctx).model)
    np.testing.assert_array_equal(models[0].arrays["scores"], models[1].arrays["scores"])


def test_edges_have_their_squared_distances():
    X, _ = blobs(7)
    found = fitted("volume", X, None)
    i, j = found.edges_.T
    assert found.unit_ == pytest.approx(np.sum((X[i] - X[j]) ** 2, axis=1).mean())
    from gramplane.kernels.spectral.neighbors import nearest_rows

    np.testing.assert_allclose(edge_squares(nearest_rows(X, 4), i, j), np.sum((X[i] - X[j]) ** 2, axis=1))


def test_neighbours_vote():
    line, codes = np.arange(6.0)[:, None], np.array([0, 0, 0, 1, 1, 1])
    known = np.array([True, True, False, False, True, True])
    assert neighbour_accuracy(line, codes, known, ~known, 1) == 1.0
    assert neighbour_accuracy(line, codes, known, known, 1) == 1.0
    assert neighbour_accuracy(line, 1 - codes, known, known, 3) == 0.0
    assert np.isnan(neighbour_accuracy(line, codes, known, np.zeros(6, bool), 1))


def test_a_graph_in_parts_warns():
    X = np.concatenate([np.random.default_rng(0).normal(size=(8, 2)) + np.array([shift, 0.0]) for shift in (0.0, 100.0)])
    with pytest.warns(UserWarning, match=r"the neighbour graph has 2 components whose distances only the cap B limits.*graph='union'"):
        StructurePreservingEmbedding(n_neighbors=4).fit(X)
    far = np.concatenate([X[:8], [[50.0, 50.0]]])
    with pytest.warns(UserWarning, match=r"2 components, 1 of them single rows"):
        StructurePreservingEmbedding(n_neighbors=4).fit(far)
    with pytest.warns(UserWarning, match=r"n_neighbors=9 exceeds the 7 other rows"):
        MinimumVolumeEmbedding(n_neighbors=9).fit(X[:8])


@pytest.mark.parametrize("name", ALL)
def test_the_limit_of_steps_warns(name):
    X, y = blobs(8)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 ended the fit before tol=1e-09 was reached"):
        found = fitted(name, X, y, max_iter=1, tol=1e-9)
    assert not found.converged_ and np.isfinite(found.embedding_).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 0}, "n_components=0: .*at least 1"),
        ({"n_neighbors": 0}, "n_neighbors=0"),
        ({"graph": "both"}, "graph='both'"),
        ({"C": 0.0}, r"C=0.0: .*greater than 0"),
        ({"B": -1.0}, r"B=-1.0: .*greater than 0"),
        ({"tol": float("nan")}, "tol=nan"),
    ],
)
@pytest.mark.parametrize("name", ALL)
def test_bad_parameters_are_named(name, params, message):
    X, y = blobs()
    with pytest.raises(ValueError, match=message):
        ALL[name](**params).fit(X, y)


def test_bad_data_is_refused(tmp_path):
    X, y = blobs()
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        ColoredMVU().fit(X)
    with pytest.raises(ValueError, match="y: the labelled rows have 1 class; colored-mvu needs at least two"):
        ColoredMVU(graph="union").fit(X, np.ones(24, int))
    with pytest.raises(ValueError, match="no row has a label"):
        ColoredMVU().fit(X, np.full(24, -1))
    with pytest.raises(ValueError, match="all labelled rows have the same value"):
        ColoredMVU(graph="union").fit(X, np.full(24, 0.5))
    with pytest.raises(ValueError, match=r"y has shape \(23,\), the data has 24 rows"):
        ColoredMVU().fit(X, y[:-1])
    with pytest.raises(ValueError, match="n_samples=2: an embedding needs at least 3 rows"):
        MinimumVolumeEmbedding().fit(X[:2])
    with pytest.raises(ValueError, match="mve takes rows of numeric features; these data are strings"):
        MinimumVolumeEmbedding().fit(["abc", "abd", "bcd"])
    with pytest.raises(ValueError, match="NaN"):
        MinimumVolumeEmbedding().fit(np.full((5, 4), np.nan))
    with pytest.raises(MemoryBoundExceeded, match=r"mve: this process would hold 84.* KiB .*matrices of a decomposition 27 KiB"):
        METHODS["volume"].problem(
            MVEConfig(), EmbeddingInputs(MemoryBlocks(X), None), replace(context(MemoryBlocks(X)), driver_memory=1 << 10)
        )
    with pytest.raises(DataError, match="there is no target; colored-mvu needs one"):
        METHODS["colored"].read_inputs(ColoredMVUConfig(), context(ingest(X, tmp_path / "plain.zarr")), {})

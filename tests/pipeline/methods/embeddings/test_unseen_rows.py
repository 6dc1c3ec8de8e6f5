"""`transform` of learnt kernels and maps: kernel ridge regression of the coordinates of the training rows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.spatial.distance import pdist

from gramplane import ColoredMVU, MinimumVolumeEmbedding, SimpleNPKL, StructurePreservingEmbedding
from gramplane.cluster import MemoryBoundExceeded
from gramplane.pipeline import load_model, predict_store, run_method
from gramplane.pipeline.estimators.inputs import method_context
from gramplane.pipeline.models.row_map import fit_kernel_map
from gramplane.storage import DataError, MemoryBlocks
from gramplane.storage.ingest import ingest

FITS = {
    "npkl": lambda X, y: SimpleNPKL(B=30.0).fit(X, [(i, j, 1 if y[i] == y[j] else -1) for i in range(20) for j in (i + 3, i + 4)]),
    "colored-mvu": lambda X, y: ColoredMVU(graph="union", tol=1e-2).fit(X, y),
    "mve": lambda X, y: MinimumVolumeEmbedding(graph="union", tol=1e-1).fit(X),
    "spe": lambda X, y: StructurePreservingEmbedding(graph="union", tol=1e-1, max_iter=5).fit(X),
}


def rows(n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    y = np.arange(n) % 2
    return rng.normal(size=(n, 4)) + 2.0 * y[:, None], y


def by_formula(X, Z, unseen):
    """z(x) = Z'(K + rho I)^-1 k(x), with the rho that fits without one row each like best; and the share of their squared errors."""
    distances = pdist(X, "sqeuclidean")
    gamma = 0.5 / np.median(distances)
    kernel, test = (np.exp(-gamma * ((left[:, None] - X) ** 2).sum(axis=2)) for left in (X, unseen))
    errors, ridges = [], np.logspace(-6, 0, 13)
    for ridge in ridges:
        inverse = np.linalg.inv(kernel + ridge * np.eye(len(X)))
        errors.append((((inverse @ Z) / np.diag(inverse)[:, None]) ** 2).sum() / (Z**2).sum())
    best = ridges[int(np.argmin(errors))]
    return test @ np.linalg.solve(kernel + best * np.eye(len(X)), Z), min(errors)


@pytest.mark.parametrize("name", FITS)
def test_coordinates_are_those_of_the_formula_in_every_form(name, tmp_path):
    X, y = rows()
    model = FITS[name](X[:30], y[:30])
    before = model.kernel_block().tobytes()
    wanted, error = by_formula(X[:30], model.model_.predictions(), X[30:])
    found = model.transform(X[30:])
    assert found.shape == (10, model.model_.n_values) and np.allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    assert model.transform_error_ == pytest.approx(error, rel=1e-4)
    assert np.allclose(model.transform(sp.csr_array(X[30:])), found) and model.kernel_block().tobytes() == before
    assert np.array_equal(model.transform(ingest(X[30:], tmp_path / "new.zarr").url), found)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).transform(X[30:]), found)
    assert np.array_equal(np.concatenate([model.transform(X[30:33]), model.transform(X[33:])]), found)


@pytest.mark.parametrize("scale", ["none", "standard"])
def test_a_run_maps_other_rows_as_its_loaded_model_does(scale, tmp_path):
    X, y = rows()
    store, other = ingest((X[:30], y[:30]), tmp_path / "a.zarr", scale=scale), ingest(X[30:], tmp_path / "b.zarr")
    run, out = str(tmp_path / "run"), str(tmp_path / "out.npz")
    run_method("colored-mvu", {"graph": "union", "tol": 0.01}, data=store.url, run=run)
    found = load_model(run).transform(X[30:])
    peer = ColoredMVU(graph="union", tol=1e-2).fit(store)
    assert np.array_equal(peer.transform(X[30:]), found) and peer.transform_error_ == load_model(run).transform_error_
    plan = predict_store(run, other.url, out, dry_run=True)
    assert plan["rows"] == 10 and plan["decision_values_per_row"] == 2 and plan["tasks_per_pass"] == 1
    assert predict_store(run, other.url, out)["columns"] == 2
    written = np.load(out)
    assert np.array_equal(np.column_stack([written["component_0"], written["component_1"]]), found)
    predict_store(run, store.url, out)
    assert np.array_equal(np.load(out)["component_0"], peer.embedding_[:, 0])


def test_what_cannot_be_mapped_is_refused_by_name():
    X, y = rows()
    ring = np.eye(8, k=1) + np.eye(8, k=-7)
    alone = StructurePreservingEmbedding(max_iter=2, tol=0.5).fit(None, graph=sp.csr_array(ring + ring.T))
    with pytest.raises(DataError, match="spe: the training rows are all equal, as in a fit on a graph alone"):
        alone.transform(np.zeros((1, 1)))
    model = FITS["mve"](X, y)
    with pytest.raises(ValueError, match=r"MinimumVolumeEmbedding: transform needs the training rows.*call transform once before copying"):
        pickle.loads(pickle.dumps(model)).transform(X)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.transform(X[:, :3])
    told = r"mve: coordinates of unseen rows: .*Gaussian kernel .* 50(\.0)? KiB.*fewer training"
    with method_context(MemoryBlocks(X), "sync", 0) as ctx, pytest.raises(MemoryBoundExceeded, match=told):
        fit_kernel_map("mve", model._config(), model.model_, ctx.data, replace(ctx, driver_memory=20_000))


def test_rows_changed_after_the_fit_are_not_learnt_from():
    X, y = rows()
    model = FITS["colored-mvu"](X, y)
    X[0] += 1.0
    with pytest.raises(ValueError, match="X was changed in place after fit"):
        model.transform(X)

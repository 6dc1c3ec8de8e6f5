"""Cells: AnnData as far as it goes without the library. What has its parts is read as it is; the library itself runs in an environment."""

import importlib.util
import json
import subprocess
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import zarr

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest, reading
from gramplane.storage.urls import has_cells
from gramplane.workflows.cli import main
from tests.support.environments import own_environment
from tests.support.places import ROOT

SMALL = 8 << 20


def frame(names, **columns):
    return pd.DataFrame(columns, index=names)


def draw(n=40, d=12, seed=0, **parts):
    """An object with the parts of an AnnData."""
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.4, format="csr", random_state=seed, dtype=np.float32)
    obs = frame(
        [f"c{k}" for k in range(n)], kind=pd.Categorical(rng.choice(["B", "T"], n)), age=rng.random(n), batch=rng.choice(["x", "y"], n)
    )
    var = frame([f"ENSG{j}" for j in range(d)], symbol=[f"G{j}" for j in range(d)])
    return SimpleNamespace(**{"X": X, "obs": obs, "var": var, "layers": {}, "raw": None, "isbacked": False, **parts})


def stored_in_file(folder, X, form):
    """X as an array of Zarr, or as the three arrays of a sparse matrix in the form that anndata gives them."""
    root = zarr.open_group(folder, mode="w")
    if form == "dense":
        return root.create_array("X", data=X.toarray(), chunks=(700, 50))
    X = X.asformat(form)
    for part in ("data", "indices", "indptr"):
        root.create_array(part, data=getattr(X, part), chunks=(max(1, len(getattr(X, part)) // 3),))
    return SimpleNamespace(group=root, format=form, shape=X.shape)


def dense(store):
    X = store.columns(np.arange(store.n_cols))
    return X if isinstance(X, np.ndarray) else X.toarray()


def test_rows_are_cells_and_columns_are_genes(tmp_path):
    adata = draw()
    options = {"target": "obs:kind", "task_column": "obs:batch", "covariates": ["obs:age"]}
    store = ingest(adata, tmp_path / "S", **options)
    np.testing.assert_array_equal(dense(store), adata.X.toarray())
    assert store.meta.kind == "sparse" and store.meta.dtype == "float32" and store.source.format == "array"
    assert store.feature_names() == list(adata.var.index) and list(store.ids()) == list(adata.obs.index)
    assert store.meta.labels == ("B", "T") and store.meta.task_names == ("x", "y") and store.meta.covariates == ("obs:age",)
    np.testing.assert_array_equal(store.row_table("y"), adata.obs.kind == "T")
    np.testing.assert_array_equal(store.row_table("covariates").ravel(), adata.obs.age)
    assert ingest(adata, tmp_path / "S", **options).digest == store.digest  # nothing to do
    adata.obs["age"] += 1
    with pytest.raises(SchemaError, match="different store"):
        ingest(adata, tmp_path / "S", **options)


def test_a_layer_and_a_column_of_names(tmp_path):
    adata = draw()
    adata.layers = {"norm": adata.X.toarray() / 2, "counts": adata.X.tocsc()}
    adata.raw = SimpleNamespace(X=adata.X * 3, var=adata.var)
    for layer, factor in (("norm", 0.5), ("counts", 1), ("raw", 3), ("X", 1)):
        store = ingest(adata, tmp_path / layer, layer=layer, names="var:symbol")
        np.testing.assert_array_equal(dense(store), adata.X.toarray() * np.float32(factor))
        assert store.meta.kind == ("dense" if layer == "norm" else "sparse")
        assert store.feature_names() == [f"G{j}" for j in range(12)]
    adata.raw.var = frame([*adata.var.index[:3], "ENSG99"])
    with pytest.raises(DataError, match=r"raw and X have different genes \(4 and 12; number 4 is ENSG99 and ENSG3\).*raw.to_adata"):
        ingest(adata, tmp_path / "S", layer="raw")
    np.testing.assert_array_equal(dense(ingest(adata, tmp_path / "S")), adata.X.toarray())


@pytest.mark.parametrize("form", ["csr", "csc", "dense"])
def test_a_file_in_pieces_as_at_once(tmp_path, form, monkeypatch):
    adata = draw(3000, 90)
    whole = ingest(adata, tmp_path / "whole", target="obs:kind")
    adata.X = stored_in_file(tmp_path / "f", adata.X, form)
    monkeypatch.setattr("gramplane.storage.ingest.turning.PIECE_SHARE", SMALL // 1000)
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 40)  # all on scratch
    plan = ingest(adata, tmp_path / "S", target="obs:kind", budget=SMALL, dry_run=True)
    assert (plan["rows"], plan["columns"], plan["kind"]) == (3000, 90, "dense" if form == "dense" else "sparse")
    store = ingest(adata, tmp_path / "S", target="obs:kind", budget=SMALL)
    np.testing.assert_array_equal(dense(store), dense(whole))
    np.testing.assert_array_equal(store.row_table("y"), whole.row_table("y"))
    with pytest.raises(SchemaError, match=r"a chunk of X.* takes .* of the budget of 8388608; .*smaller chunks"):
        monkeypatch.setattr("gramplane.storage.ingest.tables.cells.CHUNK_SHARE", 1 << 22)
        ingest(adata, tmp_path / "T", budget=SMALL)
    with pytest.raises(SchemaError, match="names and columns of obs take"):
        monkeypatch.setattr("gramplane.storage.ingest.tables.cells.CELL_BYTES", 1 << 20)
        monkeypatch.setattr("gramplane.storage.ingest.tables.cells.CHUNK_SHARE", 1)
        ingest(adata, tmp_path / "T", budget=SMALL)


def test_genes_of_a_further_file_are_found_by_name(tmp_path):
    train, later = draw(), draw(20, 15, 1)
    kept = ingest(train, tmp_path / "A", target="obs:kind", names="var:symbol", scale="max-abs")
    order = np.random.default_rng(0).permutation(15)
    later.X, later.var = later.X[:, order], later.var.iloc[order]
    for name, X in (("sparse", later.X), ("dense", later.X.toarray())):
        later.X = X
        with pytest.warns(UserWarning, match="3 genes that are not in the training data are left out"):
            store = ingest(later, tmp_path / name, like=tmp_path / "A")
        np.testing.assert_array_equal(dense(store), draw(20, 15, 1).X.toarray()[:, :12])
        np.testing.assert_array_equal(store.scale.factor, kept.scale.factor)
        assert store.feature_names() == kept.feature_names() and store.meta.labels == ("B", "T")
    later.var = later.var.replace("G3", "other")
    with pytest.raises(DataError, match="has no gene G3, which the training data have"):
        ingest(later, tmp_path / "C", like=tmp_path / "A")
    layered = draw(layers={"norm": 2 * train.X})
    ingest(layered, tmp_path / "B", layer="norm")
    assert BlockStore.open(tmp_path / "B").source.options["layer"] == "norm"
    np.testing.assert_array_equal(dense(ingest(layered, tmp_path / "B2", like=tmp_path / "B")), 2 * train.X.toarray())
    with pytest.raises(SchemaError, match=r"has no layer 'norm' \(--layer\); it has X$"):
        ingest(train, tmp_path / "B3", like=tmp_path / "B")
    ingest(train, tmp_path / "B3", like=tmp_path / "B", layer="X")


@pytest.mark.parametrize(
    "values,options,is_told",
    [
        ([1, 51], {"target": "obs:kind"}, True),
        ([1, 50], {"target": "obs:kind"}, False),
        ([1.5, 51], {"target": "obs:kind"}, False),
        ([-1, 51], {"target": "obs:kind"}, False),
        ([1, 51], {}, False),
        ([1, 51], {"target": "obs:kind", "layer": "X"}, False),
        ([1, 51], {"target": "obs:kind", "scale": "unit-row"}, False),
    ],
)
@pytest.mark.parametrize("form", ["csr", "dense"])
def test_raw_counts_alone_are_told(tmp_path, values, options, is_told, form):
    adata = draw()
    adata.X.data[:] = values[0]
    adata.X.data[-1] = values[1]
    adata.X = adata.X if form == "csr" else adata.X.toarray()
    told = []
    ingest(adata, tmp_path / "S", warn=told.append, **options)
    assert told == ["<SimpleNamespace>: X has whole numbers such as 51, which look like raw counts; divide by the total of each cell, "
                    "take logarithms, and name that layer (--layer), or scale (--scale)"] * is_told  # fmt: skip


WRONG = {
    "a gene twice": (
        {"var": frame(["A", "B", "A"])},
        {},
        "gene A occurs twice, as number 1 and 3;.*--names var:NAME.*var_names_make_unique",
    ),
    "a gene without name": ({"var": frame(["A", "", "C"])}, {}, "gene 2 has no name"),
    "a name twice": (
        {"var": frame(list("ABC"), s=list("XYY"))},
        {"names": "var:s"},
        "gene Y occurs twice, as number 2 and 3; name another",
    ),
    "a name missing": ({"var": frame(list("ABC"), s=["X", None, "Y"])}, {"names": "var:s"}, "gene 2 has no name"),
    "a cell twice": ({"obs": frame(["a", "a"])}, {}, "cell a occurs twice, as number 1 and 2; .*obs_names_make_unique"),
    "a gene too few": ({"var": frame(["A", "B"])}, {}, "X has 2 rows and 3 columns, but obs names 2 cells and var 2 genes"),
    "a cell too many": ({"obs": frame(list("abc"))}, {}, "X has 2 rows and 3 columns, but obs names 3 cells"),
    "no X": ({"X": None}, {}, r"has no layer 'X' \(--layer\); it has none"),
    "no layer": ({"layers": {"n": 1}}, {"layer": "m"}, r"has no layer 'm' \(--layer\); it has X, n"),
    "no column": ({}, {"target": "obs:cell_typ"}, "obs has no column 'cell_typ'; the nearest are cell_type"),
    "no name like it": ({}, {"target": "obs:zz"}, "obs has no column 'zz'; it has cell_type, when, dose"),
    "no prefix": ({}, {"target": "cell_type"}, r"target is 'cell_type'; columns of obs are named obs:NAME \(it has cell_type"),
    "no column of names": ({}, {"names": "var:symbol"}, "var has no column 'symbol'"),
    "dates": ({}, {"target": "obs:when"}, "obs:when: the values have the type .*numbers or texts are expected"),
    "a missing label": ({}, {"target": "obs:cell_type"}, "cell b: the label is missing; --drop-missing-targets"),
    "a missing covariate": ({}, {"covariates": "obs:dose"}, "cell b: covariate obs:dose nan is not finite"),
    "not finite": ({"X": np.array([[1, 2, 3], [4, 5, np.inf]])}, {}, "cell b, gene C: value inf is not finite"),
    "no numbers": ({"X": np.array([list("abc")] * 2)}, {}, "has the type <U1; features must be real numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_by_name(tmp_path, name):
    parts, options, message = WRONG[name]
    obs = frame(["a", "b"], cell_type=["T", None], when=pd.to_datetime(["2026-01-01"] * 2), dose=[1.0, np.nan])
    whole = {"X": np.ones((2, 3)), "obs": obs, "var": frame(list("ABC")), "layers": {}, "raw": None, "isbacked": False}
    with pytest.raises((DataError, SchemaError), match=message):
        ingest(SimpleNamespace(**{**whole, **parts}), tmp_path / "S", **options)
    assert not (tmp_path / "S").exists()


def test_a_file_is_known_by_its_first_bytes(tmp_path, monkeypatch):
    path = tmp_path / "cells.h5ad"
    path.write_bytes(b"PK\x03\x04")
    with pytest.raises(DataError, match=r"cells.h5ad: is no HDF5 file: it begins with the bytes 50 4b 03 04, not 89 48 44 46"):
        ingest(path, tmp_path / "S")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    path.write_bytes(b"\x89HDF\r\n\x1a\n")
    folder = tmp_path / "cells.zarr"
    folder.mkdir()
    (folder / "zarr.json").write_text(json.dumps({"attributes": {"encoding-type": "anndata"}}))
    assert has_cells(folder) and not has_cells(tmp_path)
    for source in (path, folder):
        with pytest.raises(SchemaError, match=r'cells need anndata: pip install "gramplane\[cells\]"'):
            ingest(source, tmp_path / "S")
        assert main(["ingest", str(source), str(tmp_path / "S"), "--layer", "counts"]) == 3
    with pytest.raises(SchemaError, match="is a folder, but not a block store"):
        BlockStore.open(folder)


def test_layers_and_columns_of_var_are_of_cells_alone(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("a,y\n1,0\n2,1\n")
    for options, message in (({"layer": "X"}, "layer is 'X', which is for AnnData; .* is csv"), ({"names": "var:a"}, "names is 'var:a'")):
        with pytest.raises(SchemaError, match=message):
            ingest(table, tmp_path / "S", **options)
    assert "layer" not in ingest(table, tmp_path / "S").meta.info["options"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_anndata_in_an_environment_of_its_own(tmp_path):
    python = own_environment(tmp_path / "env", f"{ROOT}[cells]", "pytest", "pytest-timeout", "hypothesis")
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/storage/ingest/cells_with_anndata.py"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]

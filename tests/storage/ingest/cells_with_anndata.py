"""Cells read by anndata. `test_cells.py` runs this file in an environment of its own, as anndata pins versions of other libraries."""

import csv
import json
import os
import subprocess
import sys

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from gramplane.storage import BlockStore, DataError
from gramplane.storage.ingest import ingest, reading
from gramplane.workflows.cli import main
from tests.support.budget_sources import PROGRAM
from tests.support.places import ROOT
from tests.workflows.pages import blocks, is_printed, shell


def draw(n=60, d=15, seed=0):
    rng = np.random.default_rng(seed)
    X = sp.random(n, d, 0.4, format="csr", random_state=seed, dtype=np.float32)
    obs = pd.DataFrame(index=[f"cell{k}" for k in range(n)])
    obs["kind"] = pd.Categorical(np.where(X[:, [3]].toarray().ravel() > 0.2, "T", "B"))
    obs["batch"], obs["age"], obs["n"] = rng.choice(["x", "y"], n), rng.random(n), pd.array([1, None] * (n // 2), dtype="Int64")
    var = pd.DataFrame({"symbol": [f"G{j}" for j in range(d)]}, index=[f"ENSG{j}" for j in range(d)])
    layers = {"columns": X.tocsc(), "dense": X.toarray(), "counts": sp.csr_matrix(np.rint(X.toarray() * 100).astype(np.uint16))}
    adata = anndata.AnnData(X, obs=obs, var=var, layers=layers)
    adata.raw = adata.copy()
    return adata


@pytest.fixture
def adata():
    return draw()


def sources(adata, folder):
    """The same cells as a file, packed, in folders of both versions of Zarr, backed, as a view and in memory."""
    adata.write_h5ad(folder / "a.h5ad")
    adata.write_h5ad(folder / "packed.h5ad", compression="gzip")
    for version in (2, 3):
        anndata.settings.zarr_write_format = version
        adata.write_zarr(folder / f"v{version}.zarr")
    files = [folder / name for name in ("a.h5ad", "packed.h5ad", "v2.zarr", "v3.zarr")]
    return [*files, anndata.read_h5ad(files[0], backed="r"), adata[:], adata]


def dense(store):
    X = store.columns(np.arange(store.n_cols))
    return X if isinstance(X, np.ndarray) else X.toarray()


def test_every_form_gives_the_same_rows(adata, tmp_path):
    options = {"target": "obs:kind", "task_column": "obs:batch", "covariates": ["obs:age"], "names": "var:symbol"}
    for k, source in enumerate(sources(adata, tmp_path)):
        for layer in ("X", "columns", "dense", "counts", "raw"):
            store = ingest(source, tmp_path / f"S{k}{layer}", layer=layer, **options)
            X = adata.layers["counts"] if layer == "counts" else adata.X
            np.testing.assert_array_equal(dense(store), X.toarray())
            assert store.meta.kind == ("dense" if layer == "dense" else "sparse")
            assert store.feature_names() == list(adata.var["symbol"]) and list(store.ids()) == list(adata.obs_names)
            assert store.meta.labels == ("B", "T") and store.meta.task_names == ("x", "y")
            np.testing.assert_array_equal(store.row_table("y"), adata.obs["kind"] == "T")
            np.testing.assert_array_equal(store.row_table("covariates").ravel(), adata.obs["age"])
            assert ingest(source, tmp_path / f"S{k}{layer}", layer=layer, **options).digest == store.digest  # nothing to do
        with pytest.raises(DataError, match=r"cell cell1: .*nan is not finite"):
            ingest(source, tmp_path / "T", target="obs:n", task="classification")
        few = ingest(source, tmp_path / f"D{k}", target="obs:n", task="regression", drop_missing_targets=True, warn=str)
        assert few.n_rows == 30 and set(few.row_table("y").tolist()) == {1.0}


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("layer", ["X", "columns", "dense"])
def test_killed_and_resumed(adata, tmp_path, monkeypatch, layer):
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 40)  # all on scratch
    path = sources(adata, tmp_path)[1]
    straight = ingest(path, tmp_path / "straight", layer=layer)

    def end(done, total, now):
        if now in ("sort", "tables"):
            raise Killed

    with pytest.raises(Killed):
        ingest(path, tmp_path / "S", layer=layer, progress=end)
    assert (tmp_path / "S.ingest").exists()
    assert ingest(path, tmp_path / "S", layer=layer).digest == straight.digest


def test_a_subset_of_a_backed_file(adata, tmp_path):
    adata.write_h5ad(tmp_path / "a.h5ad")
    part = anndata.read_h5ad(tmp_path / "a.h5ad", backed="r")[10:20, 3:]
    np.testing.assert_array_equal(dense(ingest(part, tmp_path / "S")), adata.X.toarray()[10:20, 3:])


def edit(path, change):
    with h5py.File(path, "r+") as file:
        change(file)


def put(part, place, value):
    def change(file):
        file[part][place] = value

    return change


def reshape(*shape):
    return lambda file: file["X"].attrs.update(shape=shape)


DAMAGE = {
    "no AnnData": (lambda file: file.attrs.pop("encoding-type"), "is no AnnData: the encoding-type of its root is None, not 'anndata'"),
    "no obs": (lambda file: file.pop("obs"), "has no obs, which every AnnData has"),
    "a pointer": (put("X/indptr", 3, 10**6), r"X/indptr\[4\] is \d+ after 1000000; pointers never fall"),
    "an index": (put("X/indices", 3, 99), r"X/indices\[3\] is 99"),
    "a size": (reshape(60, 14), "X has 60 rows and 14 columns, but obs names 60 cells and var 15 genes"),
    "more rows": (reshape(61, 15), "X/indptr has the shape .*62 entries are expected"),
    "a part": (lambda file: file["X"].pop("data"), "cannot be read as .h5ad: .*data"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_named(adata, tmp_path, name):
    change, message = DAMAGE[name]
    path = tmp_path / "a.h5ad"
    adata.write_h5ad(path)
    edit(path, change)
    with pytest.raises(DataError, match=f"a.h5ad: {message}"):
        ingest(path, tmp_path / "S")
    os.truncate(path, path.stat().st_size - 999)
    with pytest.raises(DataError, match=r"a.h5ad: cannot be read as .h5ad: .*truncated file"):
        ingest(path, tmp_path / "S")
    assert not (tmp_path / "S").exists()


def test_a_run_reads_further_files(adata, tmp_path, capsys):
    later = draw(30, 15, 1)[:, np.random.default_rng(0).permutation(15)].copy()
    adata.write_h5ad(tmp_path / "a.h5ad")
    later.write_h5ad(tmp_path / "later.h5ad")
    later.write_zarr(tmp_path / "later.zarr")
    words = ["--target", "obs:kind", "--layer", "dense", "--names", "var:symbol"]
    assert main(["ingest", str(tmp_path / "a.h5ad"), str(tmp_path / "S"), *words]) == 0
    run = str(tmp_path / "run")
    assert main(["fit", "fgm", "--data", str(tmp_path / "S"), "--run", run, "--set", "B=1", "--set", "max_rounds=1"]) == 0
    for name in ("later.h5ad", "later.zarr"):
        assert main(["predict", run, str(tmp_path / name), str(tmp_path / "out.csv")]) == 0
        assert main(["score", run, str(tmp_path / name)]) == 0
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [row["id"] for row in rows] == list(later.obs_names)
        assert np.mean([row["prediction"] for row in rows] == later.obs["kind"]) > 0.9
    given = ", ".join(f"{key[2:]}: '{value}'" for key, value in zip(words[::2], words[1::2], strict=True))
    step = f"  - id: i\n    do: ingest\n    with: {{source: a.h5ad, {given}}}\n"
    (tmp_path / "w.yaml").write_text(f"schema: gramplane.workflow/1\nname: w\nstore: W\nsteps:\n{step}")
    assert main(["run", str(tmp_path / "w.yaml")]) == 0
    assert BlockStore.open(tmp_path / "W").feature_names() == list(adata.var["symbol"])
    capsys.readouterr()


@pytest.mark.parametrize("form", ["csr", "csc", "dense", "zarr"])
def test_an_ingest_takes_no_more_than_its_plan(tmp_path, form):
    budget, kind = 32 << 20, "zarr" if form == "zarr" else "h5ad"
    for name, n in (("small", 50), ("large", 20_000)):
        X = sp.random(n, 2000, 0.2, format="csc" if form == "csc" else "csr", random_state=0, dtype=np.float32)
        adata = anndata.AnnData(
            X.toarray() if form == "dense" else X, obs=pd.DataFrame({"y": np.arange(n) % 2}, index=[f"c{k}" for k in range(n)])
        )
        adata.write_zarr(tmp_path / f"{name}.zarr") if kind == "zarr" else adata.write_h5ad(tmp_path / f"{name}.h5ad")
        del adata, X
    paths = [str(tmp_path / f"{name}.{kind}") for name in ("small", "large")]
    words = [sys.executable, "-c", PROGRAM, *paths, str(tmp_path), str(budget), json.dumps({"target": "obs:y"})]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    taken, ended = json.loads(done.stdout.splitlines()[-1])
    plan = ingest(paths[1], tmp_path / "planned", dry_run=True, budget=budget, target="obs:y")
    print(f"{form}: {taken / 2**20:.0f} MiB taken, {plan['process_bytes'] / 2**20:.0f} MiB planned")
    assert ended == "done" and taken < plan["process_bytes"] + (16 << 20)


def test_the_guide_runs(tmp_path):
    environment = shell(tmp_path)
    for block in blocks(ROOT / "docs" / "guides" / "cells.md"):
        words = ["python", "-c", block.text] if block.language == "python" else ["bash", "-ec", block.text]
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280)
        assert done.returncode == 0, block.text + done.stderr[-2000:]
        assert is_printed(block.output, done.stdout), f"{block.text}\nprints\n{done.stdout}"

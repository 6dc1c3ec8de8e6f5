"""Covariates kept apart: from every form of source, in the order of the rows, with their names; and tables in files beside a store."""

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.storage import BlockStore, DataError, DigestMismatch, SchemaError, columns_file, load_columns
from gramplane.storage.ingest import ingest

N = 30


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": rng.normal(size=N),
            "age": 40.0 + rng.integers(0, 30, N),
            "b": rng.normal(size=N),
            "y": rng.normal(size=N),
            "dose": 1e-3 * rng.normal(size=N),
        }
    )


def written(table, path):
    if path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)
    return str(path)


def expect(store, table, names):
    assert store.meta.covariates == tuple(names)
    np.testing.assert_array_equal(store.row_table("covariates"), table[list(names)].to_numpy(float))
    assert BlockStore.open(store.url).meta.covariates == tuple(names)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", "frame"])
@pytest.mark.parametrize("names", [["age", "dose"], ["dose", "age"], "dose"])
def test_named_columns_of_tables_are_no_features(table, tmp_path, suffix, names):
    source = table if suffix == "frame" else written(table, tmp_path / f"t{suffix}")
    store = ingest(source, tmp_path / "s.zarr", target="y", task="regression", covariates=names)
    asked = [names] if isinstance(names, str) else names
    expect(store, table, asked)
    assert store.feature_names() == [name for name in ("a", "age", "b", "dose") if name not in asked]
    np.testing.assert_array_equal(store.row_table("y"), table["y"])
    # The features are those of a store without the columns.
    plain = ingest(table[["a", "b"] + [c for c in ("age", "dose") if c not in asked]], tmp_path / "p.zarr", target=table["y"].to_numpy())
    assert plain.meta.covariates is None and not plain.has_table("covariates")
    assert plain.n_cols == store.n_cols


def test_rows_too_wide_for_a_reader_of_columns(table, tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.tables.csv_text.is_too_wide", lambda *_: True)
    store = ingest(written(table, tmp_path / "t.csv"), tmp_path / "s.zarr", target="y", task="regression", covariates=["dose", "age"])
    expect(store, table, ["dose", "age"])
    assert store.feature_names() == ["a", "b"]


@pytest.mark.parametrize("form", ["array", "frame", "vector"])
def test_arrays_beside_arrays(table, tmp_path, form):
    Z = table[["age", "dose"]]
    given = {"array": Z.to_numpy(), "frame": Z, "vector": Z["age"].to_numpy()}[form]
    X = sp.csr_array(table[["a", "b"]].to_numpy())
    store = ingest((X, table["y"].to_numpy()), tmp_path / "s.zarr", task="regression", covariates=given)
    assert store.meta.covariates == {"array": ("z0", "z1"), "frame": ("age", "dose"), "vector": ("z0",)}[form]
    np.testing.assert_array_equal(store.row_table("covariates"), Z.to_numpy()[:, : len(store.meta.covariates)])


@pytest.mark.parametrize("kind", ["npz", "mat"])
def test_variables_of_files_of_arrays(table, tmp_path, kind):
    arrays = {"X": table[["a", "b"]].to_numpy(), "y": table["y"].to_numpy(), "Z": table[["age", "dose"]].to_numpy()}
    path = tmp_path / f"t.{kind}"
    np.savez(path, **arrays) if kind == "npz" else scipy.io.savemat(path, arrays)
    store = ingest(path, tmp_path / "s.zarr", target="y", task="regression", covariates=["Z"])
    assert store.meta.covariates == ("Z[0]", "Z[1]")
    np.testing.assert_array_equal(store.row_table("covariates"), arrays["Z"])
    assert store.n_cols == 2


def test_a_store_like_another_keeps_its_covariates(table, tmp_path):
    train = ingest(written(table, tmp_path / "t.csv"), tmp_path / "s.zarr", target="y", task="regression", covariates=["age", "dose"])
    other = table.assign(age=table["age"] + 1)
    like = ingest(written(other, tmp_path / "u.csv"), tmp_path / "u.zarr", like=train.url)
    expect(like, other, ["age", "dose"])
    assert like.n_cols == train.n_cols


def test_what_is_no_covariate_is_named(table, tmp_path):
    path = written(table, tmp_path / "t.csv")

    def refused(message, source=path, kind=SchemaError, **options):
        with pytest.raises(kind, match=message):
            ingest(source, tmp_path / "s.zarr", **{"target": "y", "task": "regression", **options})

    refused("the target 'y' must not be among them", covariates=["age", "y"])
    refused("each once", covariates=["age", "age"])
    refused("each once", covariates=[])
    refused("'size'", covariates=["size"], kind=(SchemaError, DataError))
    refused(r"covariates has the shape \(3, 2, 2\)", covariates=np.zeros((3, 2, 2)))
    bad = table.astype({"dose": object})
    bad.loc[7, "dose"] = "much"
    refused("much", written(bad, tmp_path / "bad.csv"), DataError, covariates=["dose"])
    gap = table.copy()
    gap.loc[4, "age"] = np.nan
    refused("age", written(gap, tmp_path / "gap.parquet"), DataError, covariates=["age"])
    arrays = (table[["a", "b"]].to_numpy(), table["y"].to_numpy())
    refused(r"covariate:z0 has the shape \(29,\); it must be \(30,\)", arrays, target=None, covariates=np.zeros((N - 1, 2)))
    (tmp_path / "t.svm").write_text("1 1:2\n-1 2:3\n")
    text = {"target": None, "task": "classification"}
    refused("covariates names a column of a table; SVMlight", str(tmp_path / "t.svm"), covariates=["age"], **text)
    (tmp_path / "t.fa").write_text(">one label=1\nACG\n>two label=-1\nT\n")
    refused("covariates are columns of a table, and the format is 'fasta'", str(tmp_path / "t.fa"), covariates=["age"], **text)


def test_a_plan_counts_them(table, tmp_path):
    path = written(table, tmp_path / "t.parquet")
    one = ingest(path, tmp_path / "s.zarr", target="y", task="regression", covariates=["age", "dose"], dry_run=True)
    other = ingest(path, tmp_path / "s.zarr", target="y", task="regression", dry_run=True)
    assert one != other, (one, other)


# --- tables in files beside a store -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npy", ".npz", ".mat"])
def test_tables_in_files(table, tmp_path, suffix):
    Z, path = table[["age", "dose"]], tmp_path / f"z{suffix}"
    if suffix == ".npy":
        np.save(path, Z.to_numpy())
    elif suffix == ".npz":
        np.savez(path, X=Z.to_numpy())
    elif suffix == ".mat":
        scipy.io.savemat(path, {"X": Z.to_numpy()})
    elif suffix == ".tsv":
        Z.to_csv(path, index=False, sep="\t")
    else:
        written(Z, path)
    record = columns_file(str(path), N)
    values, names = load_columns(record)
    assert values.dtype == np.float64 and values.flags.c_contiguous
    np.testing.assert_array_equal(values, Z.to_numpy())
    assert names == (["age", "dose"] if suffix in (".csv", ".tsv", ".parquet") else None)
    with pytest.raises(DataError, match="has 30 rows; there must be one for each of the 31 rows"):
        columns_file(str(path), N + 1)


def test_a_file_that_was_changed_is_not_read(table, tmp_path):
    path = tmp_path / "z.csv"
    record = columns_file(written(table[["age"]], path), N)
    written(table[["dose"]], path)
    with pytest.raises(DigestMismatch, match=r"z\.csv is not the file that the run began with"):
        load_columns(record)


def test_files_that_are_no_tables_of_numbers_are_named(table, tmp_path):
    (tmp_path / "z.txt").write_text("1\n")
    with pytest.raises(DataError, match=r"must end with one of \.csv"):
        columns_file(str(tmp_path / "z.txt"), 1)
    (tmp_path / "z.csv").write_text("age,sex\n1,f\n2,m\n")
    with pytest.raises(DataError, match=r"z\.csv: column 'sex' holds texts; covariates are numbers, none missing"):
        columns_file(str(tmp_path / "z.csv"), 2)
    (tmp_path / "z.csv").write_text("age,sex\n1,0\n,1\n")
    with pytest.raises(DataError, match=r"z\.csv:3:1: column 'age': value nan is not finite; covariates are numbers, none missing"):
        columns_file(str(tmp_path / "z.csv"), 2)
    with pytest.raises((DataError, OSError), match=r"none\.csv"):
        columns_file(str(tmp_path / "none.csv"), 2)

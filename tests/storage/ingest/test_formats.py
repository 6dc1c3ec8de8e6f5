"""Every form of input gives the same store; faults in each are named by row and column."""

import gzip
import io
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.pipeline.inputs.tasks import store_tasks
from gramplane.pipeline.models.task import store_codes
from gramplane.storage import DataError, SchemaError
from gramplane.storage.ingest import ingest, reading
from gramplane.storage.ingest.options import MIN_BUDGET
from tests.support.svmlight_files import check_store, labels_for, random_csr, to_text

N, D = 60, 13


@pytest.fixture
def data():
    X = random_csr(5, N, D, density=0.3)
    return X, X.toarray(), labels_for(5, N)


def frame_of(A, y):
    frame = pd.DataFrame(A, columns=[f"f{k}" for k in range(A.shape[1])])
    frame.insert(3, "label", y.astype(int))
    return frame


def as_csv(folder, X, A, y):
    frame_of(A, y).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv", {"target": "label"}


def as_packed_csv(folder, X, A, y):
    path, options = as_csv(folder, X, A, y)
    (folder / "b.csv.gz").write_bytes(gzip.compress(path.read_bytes().replace(b",", b";")))
    return folder / "b.csv.gz", options


def as_parquet(folder, X, A, y):
    frame_of(A, y).to_parquet(folder / "a.parquet", row_group_size=17)
    return folder / "a.parquet", {"target": "label"}


def as_frame(folder, X, A, y):
    return frame_of(A, y), {"target": "label"}


def as_npy(folder, X, A, y):
    np.save(folder / "a.npy", A)
    return folder / "a.npy", {"target": y}


def as_npz(folder, X, A, y):
    np.savez_compressed(folder / "a.npz", X=A, y=y)
    return folder / "a.npz", {}


def as_mat(folder, X, A, y):
    scipy.io.savemat(folder / "a.mat", {"X": A, "Y": y[:, None]})
    return folder / "a.mat", {}


def as_old_mat(folder, X, A, y):
    scipy.io.savemat(folder / "a.mat", {"X": A, "Y": y[:, None]}, format="4")
    return folder / "a.mat", {}


def as_array(folder, X, A, y):
    return (A, y), {}


def as_read_only(folder, X, A, y):
    A = np.asfortranarray(A)
    A.flags.writeable = False
    return A, {"target": y.tolist()}


def as_dask(folder, X, A, y):
    return (da.from_array(A, chunks=(23, 5)), da.from_array(y, chunks=11)), {}


def as_dask_of_unknown_sizes(folder, X, A, y):
    rows = da.from_array(A, chunks=(23, 5))
    return rows[da.from_array(np.ones(N, bool), chunks=23)], {"target": y}


DENSE = [v for k, v in list(globals().items()) if k.startswith("as_")]


def sparse_text(folder, X, A, y):
    (folder / "a.t").write_bytes(to_text(X, y))
    return folder / "a.t", {"n_features": D}


def sparse_csr(folder, X, A, y):
    return (X, y), {}


def sparse_csc_matrix(folder, X, A, y):
    return sp.csc_matrix(X), {"target": y}


def sparse_with_zeros_and_duplicates(folder, X, A, y):
    i, j = np.repeat(np.arange(N), np.diff(X.indptr)), X.indices
    half = X.data / 2
    rows = np.concatenate([i[::-1], i[::-1], [7]])
    order = np.argsort(rows, kind="stable")
    data, indices = np.concatenate([half[::-1], half[::-1], [0.0]])[order], np.concatenate([j[::-1], j[::-1], [2]])[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=N))])
    return (sp.csr_array((data, indices, indptr), shape=(N, D)), y), {}


def sparse_scipy_file(folder, X, A, y):
    sp.save_npz(folder / "a.npz", sp.csc_array(X))
    return folder / "a.npz", {"target": y}


def sparse_named_parts(folder, X, A, y):
    np.savez(folder / "b.npz", X_data=X.data, X_indices=X.indices, X_indptr=X.indptr, X_shape=X.shape, y=y)
    return folder / "b.npz", {}


def sparse_old_mat(folder, X, A, y):
    scipy.io.savemat(folder / "a.mat", {"X": sp.csc_matrix(X), "Y": y[:, None]}, format="4")
    return folder / "a.mat", {}


def sparse_mat(folder, X, A, y):
    scipy.io.savemat(folder / "a.mat", {"X": sp.csc_matrix(X), "y": y})
    return folder / "a.mat", {}


def sparse_dask(folder, X, A, y):
    blocks = da.from_array(A, chunks=(20, 7)).map_blocks(sp.csr_matrix)
    return (blocks, y), {}


SPARSE = [v for k, v in list(globals().items()) if k.startswith("sparse_")]


@pytest.mark.parametrize("spill", [False, True], ids=["held", "spilled"])
@pytest.mark.parametrize("make", [*DENSE, *SPARSE], ids=lambda make: make.__name__)
def test_every_form_gives_the_same_store(make, tmp_path, data, spill, monkeypatch):
    X, A, y = data
    source, options = make(tmp_path, X, A, y)
    if spill:
        monkeypatch.setattr(reading, "hold_block", None)
        monkeypatch.setattr(reading, "HELD_SHARE", 1 << 50)
        monkeypatch.setattr("gramplane.storage.ingest.text.text._TEXT_TO_MEMORY", 1 << 50)
        options["budget"] = MIN_BUDGET
    store = ingest(source, tmp_path / "S", layout="both", **options)
    assert store.meta.kind == ("dense" if make in DENSE else "sparse")
    assert store.meta.dtype == "float64"
    assert not (tmp_path / "S.ingest").exists()
    check_store(store, A if make in DENSE else X, y, rows=True)


@pytest.mark.parametrize("make", DENSE, ids=lambda make: make.__name__)
def test_dense_data_are_centred_for_the_standard_scale(make, tmp_path, data):
    X, A, y = data
    A = A + 3.0
    A[:, 4] = 0.1
    source, options = make(tmp_path, X, A, y)
    scale = ingest(source, tmp_path / "S", scale="standard", **options).scale
    assert np.allclose(scale.shift, A.mean(axis=0), rtol=1e-14)
    varied = A.std(axis=0) > 1e-9
    assert not varied[4]
    assert np.allclose(scale.factor[varied], 1 / A[:, varied].std(axis=0), rtol=1e-12)
    assert (scale.shift[4], scale.factor[4]) == (0.1, 0.0)


def test_wide_and_tall_dense_data_in_several_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 2048)
    rng = np.random.default_rng(0)
    for k, shape in enumerate([(700, 40), (3, 900)]):
        A = rng.normal(size=shape).astype(np.float32)
        y = labels_for(0, shape[0])
        np.save(tmp_path / "a.npy", A)
        store = ingest(tmp_path / "a.npy", tmp_path / f"S{k}", target=y, layout="both", scale="unit-row")
        assert store.meta.dtype == "float32"
        assert len(store.column_blocks()) > 1
        check_store(store, A, y, rows=True)
        assert np.allclose(store.scale.row_factor, 1 / np.linalg.norm(A.astype(float), axis=1), rtol=1e-13)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64, np.float16, np.float32, bool])
def test_types_of_numbers(tmp_path, kind):
    A = (np.arange(24).reshape(6, 4) % 5).astype(kind)
    store = ingest((A, labels_for(0, 6)), tmp_path / "S")
    assert store.meta.dtype == "float32"
    assert np.array_equal(store.columns(np.arange(4)), A.astype(np.float32))


# -- tables of rows ----------------------------------------------------------------------------------------------------


def test_row_tables_by_name_and_by_array(tmp_path, data):
    _, A, y = data
    frame = frame_of(A, y).assign(task=np.arange(N) % 3, weight=np.linspace(0, 1, N))
    by_name = ingest(frame, tmp_path / "A", target="label", task_column="task", weight_column="weight")
    by_array = ingest(A, tmp_path / "B", target=y, task_column=frame["task"].to_numpy(), weight_column=frame["weight"].tolist())
    for store in (by_name, by_array):
        check_store(store, A, y)
        assert np.array_equal(store.row_table("task"), np.arange(N) % 3)
        assert store.row_table("task").dtype == np.int64
        assert np.array_equal(store.row_table("weight"), np.linspace(0, 1, N))
    assert by_name.feature_names() == [f"f{k}" for k in range(D)]
    assert by_array.feature_names() is None


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "array"])
def test_labels_as_text(tmp_path, kind):
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "who": ["b", "a", "ü", "b"]})
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        frame.to_csv(path, index=False)
    if kind == "parquet":
        frame.to_parquet(path)
    source, target = {"frame": (frame, "who"), "array": (frame[["x"]].to_numpy(), frame["who"].to_numpy())}.get(kind, (path, "who"))
    store = ingest(source, tmp_path / "S", target=target)
    assert store.meta.labels == ("a", "b", "ü")
    assert store.target().tolist() == [1, 0, 2, 1]
    assert ingest(source, tmp_path / "T", target=target, labels=["ü", "b", "a", "c"]).target().tolist() == [1, 0, 3, 1]
    with pytest.raises(DataError, match="label 'a' is not one of the declared labels 'b', 'ü'"):
        ingest(source, tmp_path / "U", target=target, labels=["b", "ü"])


def test_texts_of_a_real_target_are_numbers_however_they_are_written(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,+1\n2,-1\n3,1.0\n4,-1\n")
    assert ingest(tmp_path / "a.csv", tmp_path / "T", target="y", task="regression").target().tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz", "frame", "array"])
def test_tasks_by_name(tmp_path, kind):
    """Names of any table, ascending; what was met first does not matter."""
    frame = pd.DataFrame({"x": [1.0, 2, 3, 4], "label": [0, 1, 1, 0], "site": ["süd", "Nord", "10", "süd"]})
    path, given = tmp_path / f"t.{kind}", {"target": "label", "task_column": "site"}
    if kind == "csv":
        frame.to_csv(path, index=False)
    if kind == "parquet":
        frame.to_parquet(path)
    if kind == "npz":
        np.savez(path, X=frame[["x"]].to_numpy(), label=frame["label"], site=frame["site"].to_numpy(str))
    source = frame if kind == "frame" else path
    if kind == "array":
        source, given = frame[["x"]].to_numpy(), {"target": frame["label"], "task_column": frame["site"].tolist()}
    store = ingest(source, tmp_path / "S", **given)
    assert store.meta.task_names == ("10", "Nord", "süd") and store.row_table("task").tolist() == [2, 1, 0, 2]
    assert store.row_table("task").dtype == np.int64 and store_tasks(store).tolist() == ["süd", "Nord", "10", "süd"]
    known = SimpleNamespace(tasks=("10", "Mitte", "Nord", "süd"))
    assert store_codes(known, store).tolist() == [3, 2, 0, 3]
    alone = ingest((frame[["x"]].to_numpy(), frame["label"]), tmp_path / "U", task_column=[10] * 4)
    assert store_codes(known, alone).tolist() == [0] * 4
    with pytest.raises(ValueError, match="task 'Nord' was not there at fit"):
        store_codes(SimpleNamespace(tasks=("10", "süd")), store)


def test_text_tasks_that_are_missing_or_fractions(tmp_path):
    for cell, why in (("", "the task is missing"), ("0.5", "task 0.5 is not an integer"), ("nan", "the task 'nan' is missing")):
        (tmp_path / "b.csv").write_text(f"x,y,t\n1,1,3\n2,0,{cell}\n")
        with pytest.raises(DataError, match=f"b.csv:3:3: column 't': {why}"):
            ingest(tmp_path / "b.csv", tmp_path / "T", target="y", task_column="t")


def test_without_a_target(tmp_path, data):
    _, A, _ = data
    store = ingest(A, tmp_path / "S")
    assert not store.has_table("y")
    assert store.meta.labels is None


def test_arrays_the_source_may_reuse_are_not_changed(tmp_path, data):
    X, *_ = data
    shuffled = X.copy()
    shuffled.indices[: X.indptr[1]] = X.indices[: X.indptr[1]][::-1].copy()
    shuffled.has_sorted_indices = False
    before = [part.copy() for part in (shuffled.data, shuffled.indices, shuffled.indptr)]
    ingest(shuffled, tmp_path / "S")
    assert all(np.array_equal(a, b) for a, b in zip(before, (shuffled.data, shuffled.indices, shuffled.indptr), strict=True))


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("make", [*DENSE, *SPARSE], ids=lambda make: make.__name__)
def test_missing_and_infinite_values_are_named_by_row_and_column(make, tmp_path, data, bad):
    X, A, y = data
    row, column = N - 2, int(X.indices[X.indptr[N - 2]])
    X.data[X.indptr[row]] = A[row, column] = bad
    source, options = make(tmp_path, X, A, y)
    with pytest.raises(DataError) as caught:
        ingest(source, tmp_path / "S", **options)
    message = str(caught.value)
    if "csv" in make.__name__:
        shift = column + 2 if column >= 3 else column + 1
        assert (caught.value.line, caught.value.column) == (row + 2, shift)
    elif make is sparse_text:
        assert caught.value.line == row + 1
    else:
        assert f"row {row + 1}, column {column + 1}" in message or f"row {row + 1}, column 'f{column}'" in message
    assert "finite" in message
    assert not (tmp_path / "S").exists()
    assert not (tmp_path / "S.ingest").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("column", ["target", "task_column", "weight_column"])
def test_bad_row_tables(tmp_path, data, column, bad):
    _, A, y = data
    values = y.copy()
    values[17] = bad
    with pytest.raises(DataError, match=r"row 18: .* is not finite"):
        ingest(A, tmp_path / "S", **{column: values})
    wrong = {
        "target": (None, ""),
        "task_column": (0.5, "row 18: task 0.5 is not an integer"),
        "weight_column": (-1, "row 18: weight -1.0 is negative"),
    }
    value, message = wrong[column]
    if value is not None:
        values[17] = value
        values[:17] = np.abs(values[:17])
        with pytest.raises(DataError, match=message):
            ingest(A, tmp_path / "S", **{column: values})
    with pytest.raises(SchemaError, match="entr"):
        ingest(A, tmp_path / "S", **{column: y[:-1]})


CSV_FAULTS = [
    ("a,b\n1,2\n3,x\n", 3, 2, "column 'b': value 'x' is not a finite number"),
    ("a,b\n1,2\n3,1_000\n", 3, 2, "'1_000'"),
    ("a,b\n1,2\n3,1e999\n", 3, 2, "column 'b'"),
    ("a,b\n1,2\n3,\n", 3, 2, "column 'b'"),
    ("a,b\n1,2\n\n3\n", 4, None, "the row has 1 fields; the header has 2"),
    ("a,b\n1,2,3\n", 2, None, "the row has 3 fields; the header has 2"),
    ('a,b\n"1\n",2\n3,z\n', 4, 2, "'z'"),
    ("1,2\n3,4\n", 1, None, "the first line must name the columns"),
    ("", 1, None, "the first line must name the columns"),
    ("a\xff,\n", 1, 2, "the byte 0xff is no text"),
    ("a,b\n1,2\n3,4\r5\n", 4, None, "the row has 1 fields"),
]


@pytest.mark.parametrize(("content", "line", "column", "message"), CSV_FAULTS)
def test_csv_faults(tmp_path, content, line, column, message):
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError) as caught:
        ingest(path, tmp_path / "S")
    assert (caught.value.file, caught.value.line, caught.value.column) == (str(path), line, column)
    assert message in str(caught.value)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_table_columns_must_exist_and_differ(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b,a\n1,2,3\n")
    with pytest.raises(SchemaError, match="'a' occurs twice"):
        ingest(path, tmp_path / "S")
    path.write_text("a,b\n1,2\n")
    with pytest.raises(SchemaError, match=r"no column 'z'; it has a, b"):
        ingest(path, tmp_path / "S", target="z")
    path.write_text("a\n1\n")
    with pytest.raises(SchemaError, match="no column left for features"):
        ingest(path, tmp_path / "S", target="a")
    path.write_text("a,b\n")
    with pytest.raises(DataError, match="0 rows"):
        ingest(path, tmp_path / "S")


def test_parquet_faults(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(DataError, match=r"a\.parquet: cannot be read as Parquet"):
        ingest(path, tmp_path / "S")
    pq.write_table(pa.table({"x": [1.0, 2.0], "when": [[1], [2]]}), path)
    with pytest.raises(DataError, match="column 'when': the values have the type list"):
        ingest(path, tmp_path / "S")
    pq.write_table(pa.table({"x": [1, None, 3]}), path)
    with pytest.raises(DataError, match="row 2, column 'x': value nan is not finite"):
        ingest(path, tmp_path / "S")
    pq.write_table(pa.table({"x": [1, 2**53 + 1]}), path)
    with pytest.raises(DataError, match=r"row 2, column 'x': value 9007199254740993 is beyond 2\^53"):
        ingest(path, tmp_path / "S")


def bad_files():
    def savez(**arrays):
        out = io.BytesIO()
        np.savez(out, **arrays)
        return out.getvalue()

    good = {"X_data": np.ones(2), "X_indices": np.array([0, 1]), "X_indptr": np.array([0, 1, 2]), "X_shape": np.array([2, 2])}
    pickled = io.BytesIO()
    np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    yield "a.npz", savez(z=np.ones(3)), "has no features"
    yield "a.npz", savez(**{**good, "X_indices": np.array([0, 9])}), r"a\.npz: X_indices\[1\] is 9, in row 1; it must be in 0 … 1"
    yield "a.npz", savez(**{**good, "X_indices": np.array([0, -1])}), r"X_indices\[1\] is -1, in row 1; it must be in 0 … 1"
    yield "a.npz", savez(**{**good, "X_indptr": np.array([0, 5, 2])}), r"X_indptr\[2\] is 2 after 5; pointers never fall"
    yield "a.npz", savez(**{**good, "X_format": np.array("bsr")}), "csr or csc"
    for form in ("dia", "coo", "bsr"):
        saved = io.BytesIO()
        sp.save_npz(saved, sp.eye_array(4).asformat(form))
        yield "a.npz", saved.getvalue(), f"format is '{form}'; csr or csc is expected"
    yield "a.npz", savez(**good)[:150], "cannot be read"
    yield "a.npz", savez(X=np.array([["a", "b"]])), "real numbers"
    yield "a.npz", savez(X=np.ones(3)), "must be a matrix"
    yield "a.npz", savez(X=np.ones((2, 2)), y=np.ones(3)), "one entry per row"
    yield "a.npy", pickled.getvalue(), "cannot be read"
    yield "a.npy", b"\x93NUMPY\x01\x00", "cannot be read"
    yield "a.mat", b"MATLAB 5.0 MAT-file" + bytes(200), "cannot be read"
    yield "a.mat", b"", "cannot be read"


@pytest.mark.parametrize(("name", "content", "message"), list(bad_files()))
def test_bad_array_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DataError, SchemaError), match=message):
        ingest(tmp_path / name, tmp_path / "S")
    assert os.listdir(tmp_path) == [name]


def mutated(rng, content, limit=None):
    changed = bytearray(content)
    for at in rng.integers(0, min(len(content), limit or len(content)), rng.integers(1, 4)):
        changed[at] = rng.integers(256) if rng.random() < 0.5 else rng.choice(list(b'0123456789.,-e"\n\r xn;'))
    return bytes(changed)


@pytest.mark.parametrize(("kind", "times"), [("npz", 60), ("npy", 60), ("mat", 4), ("csv", 150), ("parquet", 80)])
def test_mutated_files_raise_only_our_errors(tmp_path, kind, times):
    rng = np.random.default_rng(0)
    X = random_csr(1, 20, 9)
    good, bad = tmp_path / f"good.{kind}", tmp_path / f"bad.{kind}"
    y = np.ones(20)
    if kind == "npz":
        sp.save_npz(good, X, compressed=False)
    elif kind == "npy":
        np.save(good, X.toarray())
    elif kind == "mat":
        scipy.io.savemat(good, {"X": X.toarray(), "y": y})
    else:
        frame = frame_of(X.toarray(), y)
        frame.to_csv(good, index=False) if kind == "csv" else frame.to_parquet(good)
    refused = 0
    for _ in range(times):
        # The headers of array files are short, and elsewhere any byte is as good as another.
        bad.write_bytes(mutated(rng, good.read_bytes(), 400 if kind in ("npz", "npy", "mat") else None))
        target = {"npz": y, "npy": y, "mat": "y"}.get(kind, "label")
        try:
            ingest(bad, tmp_path / "S", target=target, overwrite=True)
        except (DataError, SchemaError) as error:
            assert str(error)
            refused += 1
    assert refused >= times // 4


def test_bad_objects(tmp_path, data):
    X, A, y = data
    broken = X.copy()
    broken.indices[3] = 10**6
    for source, options, message in [
        (np.ones(3), {}, "must be a matrix"),
        ([["a"]], {}, "real numbers"),
        (A.astype(complex), {}, "real numbers"),
        (broken, {}, r"indices\[3\] is 1000000, in row \d+; it must be in 0 … 12"),
        ((A, y), {"target": y}, "leave the option target out"),
        ((A, y, y), {}, r"\(X, y\)"),
        (A, {"target": "label"}, "no column names"),
        (A, {"n_features": D + 1}, "13 columns"),
        (X, {"n_features": D - 1}, "13 columns"),
        (A, {"format": "csv"}, "not a file"),
        (da.ones(3), {}, "matrix"),
        (da.from_array(A, chunks=20), {"target": y[:50]}, "at least"),
        (A, {"names": ["a"]}, "names has 1 entries"),
        (A, {"groups": [1.5] * D}, "integers or texts"),
    ]:
        with pytest.raises((SchemaError, DataError), match=message):
            ingest(source, tmp_path / "S", **options)
    assert os.listdir(tmp_path) == []


def test_a_sparse_matrix_may_be_widened(tmp_path, data):
    X, _, y = data
    store = ingest((X, y), tmp_path / "S", n_features=D + 4)
    assert store.meta.n_cols == D + 4
    assert store.column_table("counts")[D:].tolist() == [0] * 4


def test_like_compares_the_names_of_columns(tmp_path, data):
    _, A, y = data
    frame = frame_of(A, y)
    train = ingest(frame, tmp_path / "A", target="label", scale="standard")
    test = ingest(frame[:20], tmp_path / "B", target="label", like=train.url)
    assert np.array_equal(test.scale.shift, train.scale.shift)
    moved = ingest(frame[frame.columns[::-1]][:20], tmp_path / "C", target="label", like=train.url)
    assert np.array_equal(moved.columns(range(D)), test.columns(range(D))) and moved.feature_names() == train.feature_names()
    with pytest.raises(SchemaError, match=r"has no column 'f1', which the training store has"):
        ingest(frame.rename(columns={"f1": "g"}), tmp_path / "E", target="label", like=train.url)
    named = ingest(A, tmp_path / "F", target=y, names=[f"n{k}" for k in range(D)])
    with pytest.raises(SchemaError, match="column 0 is named 'f0', but 'n0' in"):
        ingest(frame, tmp_path / "G", target="label", like=named.url)
    with pytest.raises(SchemaError, match="sparse and cannot be centred"):
        ingest(sp.csr_array(A), tmp_path / "G", target=y, like=train.url)


def test_pyarrow_is_imported_for_tables_only_scikit_learn_for_names_and_dask_never(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "b.csv").write_text("a\nred\n")
    (tmp_path / "a.svm").write_text("1 1:1\n")
    code = f"""
    import sys
    from gramplane.storage.ingest import ingest
    for name in ("a.svm", "a.csv", "b.csv"):
        ingest({str(tmp_path)!r} + f"/{{name}}", {str(tmp_path)!r} + f"/{{name}}.store")
        print("pyarrow" in sys.modules, "sklearn" in sys.modules, "dask" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False False False", "True False False", "True True False"]


def test_like_takes_the_roles_of_columns(tmp_path):
    """Test data need no option said twice: columns are what they are in the store to follow, where they are there at all."""
    (tmp_path / "a.csv").write_text("x,label,site,w,z\n1,yes,n,1,0\n2,no,s,2,3\n")
    (tmp_path / "b.csv").write_text("x,label,site,w,z\n5,no,n,1,7\n")
    (tmp_path / "c.csv").write_text("x,z\n5,7\n")
    ingest(tmp_path / "a.csv", tmp_path / "A", target="label", task_column="site", weight_column="w")
    store = ingest(tmp_path / "b.csv", tmp_path / "B", like=tmp_path / "A")
    assert store.feature_names() == ["x", "z"] and store.meta.labels == ("no", "yes") and store.target().tolist() == [0]
    assert store.meta.task_names == ("n",) and store.row_table("weight").tolist() == [1]
    bare = ingest(tmp_path / "c.csv", tmp_path / "C", like=tmp_path / "A")
    assert bare.feature_names() == ["x", "z"] and not bare.has_table("y") and not bare.has_table("task")
    assert ingest(tmp_path / "c.csv", tmp_path / "C", like=tmp_path / "A").digest == bare.digest

"""Every source stays within its budget, whatever its form and whatever it declares; read by pieces or whole, the store is the same."""

import os
import re
import struct
import tracemalloc
import weakref
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.buckets import Column
from gramplane.storage.ingest.files import release_pages
from gramplane.storage.ingest.tables import arrays, groups
from gramplane.storage.ingest.tables.row_tables import array_digest
from tests.support.budget_sources import SOURCES, memory_of

BUDGET, SLACK = 32 << 20, 64 << 20
QUICK = ("npz by columns", "parquet of one row group", "csv of many columns")
SMALL = 8 << 20


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SOURCES])
def test_memory_stays_within_the_budget(tmp_path, name):
    taken, size, ended = memory_of(name, tmp_path, BUDGET)
    print(f"{name}: {taken / 2**20:.0f} MiB above the process for a file of {size / 2**20:.1f} MiB")
    assert ended == "done"
    assert taken < BUDGET + SLACK, (taken / 2**20, size / 2**20)


def held(store):
    """Everything a store holds, apart from how it is cut."""
    X = store.columns(np.arange(store.n_cols))
    return (X.toarray() if sp.issparse(X) else X), store.target(), store.meta.labels, store.meta.dtype, store.meta.kind


def same(path, tmp_path, **options):
    """Ingest a file whole and by pieces; the stores hold the same."""
    one = held(ingest(str(path), str(tmp_path / "one"), budget=1 << 30, **options))
    two = held(ingest(str(path), str(tmp_path / "two"), budget=SMALL, **options))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])
    assert one[2:] == two[2:]
    return two


def rows(n=4000, d=900, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.05)
    X[5], X[:, 7] = 0.0, 0.0
    return X.astype(dtype), rng.integers(0, 3, n)


def test_a_piece_of_a_dense_file_takes_a_32nd_of_the_budget(tmp_path, monkeypatch):
    steps, real = [], arrays.by_rows
    monkeypatch.setattr(arrays, "by_rows", lambda x, step, *rest: steps.append(step) or real(x, step, *rest))
    np.save(tmp_path / "a.npy", np.ones((300, 900)))
    ingest(str(tmp_path / "a.npy"), str(tmp_path / "S"), budget=SMALL)
    assert steps == [SMALL // 32 // (8 * 900)]


@pytest.mark.parametrize("form", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_sparse_npz(tmp_path, form, dtype):
    X, y = rows(dtype=np.float64)
    X = np.round(10 * X).astype(dtype) if dtype == np.int16 else X.astype(dtype)
    S = getattr(sp, f"{form}_array")(X)
    np.savez(tmp_path / "a.npz", X_data=S.data, X_indices=S.indices, X_indptr=S.indptr, X_shape=S.shape, format=form, y=y)
    found, target, *_ = same(tmp_path / "a.npz", tmp_path)
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(target, y)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(2000, 300), (7, 90_000)])
@pytest.mark.parametrize("form", ["npz", "npy", "mat"])
def test_dense_files(tmp_path, order, shape, form):
    X, y = np.asarray(np.random.default_rng(1).normal(size=shape), order=order), np.arange(shape[0]) % 2
    path, options = tmp_path / f"a.{form}", {}
    if form == "npz":
        np.savez_compressed(path, X=X, y=y)
    elif form == "npy":
        np.save(path, X)
        options = {"target": y}
    else:
        scipy.io.savemat(path, {"X": X, "y": y}, do_compression=order == "C")
    np.testing.assert_array_equal(same(path, tmp_path, **options)[0], X)


@pytest.mark.parametrize("packed", [True, False])
def test_sparse_mat_and_smaller_types_inside_it(tmp_path, packed):
    X, y = rows()
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"X": sp.csc_matrix(X), "y": y, "name": "text", "cell": np.array([1, "a"], object)}, do_compression=packed)
    np.testing.assert_array_equal(same(path, tmp_path)[0], X)
    scipy.io.savemat(path, {"X": np.arange(60.0).reshape(20, 3), "y": np.array(["one ", "two "] * 10)})
    found = held(ingest(str(path), str(tmp_path / "texts")))
    assert found[2] == ("one", "two") and found[0][7, 2] == 23.0


def test_parquet_row_groups_of_every_kind(tmp_path):
    n, d = 3000, 400
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    table = {f"f{k}": X[:, k] for k in range(d)}
    table["f3"] = np.arange(n)
    table["y"] = np.array(["left", "right"])[np.arange(n) % 2]
    for group in (n, 900):
        pq.write_table(pa.table(table), tmp_path / f"{group}.parquet", row_group_size=group)
        (tmp_path / str(group)).mkdir()
        found = same(tmp_path / f"{group}.parquet", tmp_path / str(group), target="y")
        np.testing.assert_array_equal(found[0][:, 5], X[:, 5])
        np.testing.assert_array_equal(found[1], np.arange(n) % 2)


def test_a_fault_in_a_large_row_group_is_named_by_row_and_column(tmp_path):
    n, d = 3000, 400
    table = {f"f{k}": np.ones(n) for k in range(d)}
    table["f377"] = np.where(np.arange(n) == 2111, np.nan, np.random.default_rng(0).normal(size=n))
    pq.write_table(pa.table(table), tmp_path / "a.parquet", use_dictionary=False)
    with pytest.raises(DataError, match=r"row 2112, column 'f377': value nan"):
        ingest(str(tmp_path / "a.parquet"), str(tmp_path / "s"), budget=SMALL, task="regression")
    table["f377"] = np.where(np.arange(n) == 2111, 2**53 + 1, 1)
    pq.write_table(pa.table(table), tmp_path / "a.parquet", use_dictionary=False)
    with pytest.raises(DataError, match=r"row 2112, column 'f377': value 9007199254740993"):
        ingest(str(tmp_path / "a.parquet"), str(tmp_path / "s"), budget=SMALL, task="regression")


def test_wide_csv_in_parts(tmp_path):
    n, d = 7, 3000
    X = np.random.default_rng(0).normal(size=(n, d))
    lines = [",".join([*map(repr, row[:1500].tolist()), "ab"[k % 2], *map(repr, row[1500:].tolist())]) for k, row in enumerate(X)]
    head = ",".join([*(f"c{k}" for k in range(1500)), "label", *(f"c{k}" for k in range(1500, d))])
    path = tmp_path / "a.csv"
    path.write_text("\r\n".join([head, *lines[:3], "", *lines[3:]]))
    np.testing.assert_array_equal(same(path, tmp_path, target="label")[0], X)
    cells = lines[4].split(",")
    cells[77] = "x"
    path.write_text("\n".join([head, *lines[:4], ",".join(cells)]))
    with pytest.raises(DataError, match=r"a\.csv:6:78: column 'c77': value 'x' is not a finite number"):
        ingest(str(path), str(tmp_path / "s"), budget=SMALL, target="label")
    path.write_text("\n".join([head, lines[0] + ",1"]))
    with pytest.raises(DataError, match=r"a\.csv:2: the row has 3002 fields"):
        ingest(str(path), str(tmp_path / "s"), budget=SMALL, target="label")


@pytest.mark.parametrize("form, n", [("dense", 700_000), ("sparse", 1_200_000)])
def test_no_array_has_all_rows_of_a_tall_table(tmp_path, monkeypatch, form, n):
    monkeypatch.setattr("gramplane.storage.layout.TABLE_CHUNK", 1 << 14)  # a chunk of a table is written whole
    rows = np.arange(n)
    table = {"x": rows / 8.0, "y": rows % 2, "w": rows % 3 * 0.1, "t": rows % 5, "z": rows * 0.5}
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    path, options = tmp_path / "a.parquet", {"weight_column": "w", "task_column": "t", "covariates": ["z"], "target": "y"}
    if form == "sparse":
        path, options = tmp_path / "a.svm", {}
        path.write_text("".join(f"{k % 2} 1:1 {k % 7 + 2}:{k % 9 + 1}\n" for k in range(n)))
    ingest(str(path), str(tmp_path / "warm"), **options)
    tracemalloc.start()
    # The parser of text takes some MiB, however long it is.
    after = lambda done, total, phase: tracemalloc.reset_peak() if phase == "read" else None  # noqa: E731
    store = ingest(str(path), str(tmp_path / "S"), budget=SMALL, progress=after, **options)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < 8 * n
    other = BlockStore.open(str(tmp_path / "warm"))
    for name in ("counts", "norm1", "sumsq", "minimum", "maximum", "standard"):
        np.testing.assert_array_equal(store.column_table(name), other.column_table(name))


def test_ids_of_a_large_row_group_are_read_some_rows_at_a_time(tmp_path):
    n, width = 40_000, 400
    table = {"x": np.arange(n) / 8, "k": [f"patient {k:{width}d}" for k in range(n)], "y": np.arange(n) % 2}
    pq.write_table(pa.table(table).slice(0, 9), tmp_path / "small.parquet")
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=n)
    ingest(str(tmp_path / "small.parquet"), str(tmp_path / "warm"), budget=SMALL, target="y", id_column="k")
    tracemalloc.start()
    store = ingest(str(tmp_path / "a.parquet"), str(tmp_path / "S"), budget=SMALL, target="y", id_column="k")
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < n * width // 3
    assert store.ids()[-1] == table["k"][-1]


def test_the_identity_of_arrays_does_not_hold_all_of_them():
    alive = []

    def arrays():
        for k in range(4):
            alive.append(weakref.ref(made := np.full(9, k)))
            assert sum(one() is not None for one in alive) <= 2
            yield f"a{k}", made
            del made

    assert array_digest(arrays()) == array_digest([(f"a{k}", np.full(9, k)) for k in range(4)])


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="the system does not tell which pages of a file are in memory")
@pytest.mark.parametrize("form", ["npy", "feather"])
def test_pages_of_mapped_files_do_not_stay_in_memory(tmp_path, form, monkeypatch):
    n, resident, options = 400_000, set(), {}
    values = {"X": np.arange(2.0 * n).reshape(n, 2), "y": np.arange(n) % 2.0}
    if form == "npy":
        for name, array in values.items():
            np.save(tmp_path / f"{name}.npy", array)
        source = tuple(np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy")
    else:
        table = pa.table({"a": values["X"][:, 0], "b": values["X"][:, 1], "y": values["y"]})
        pyarrow.feather.write_feather(table, tmp_path / "a.feather", compression="uncompressed", chunksize=n)
        source, options = tmp_path / "a.feather", {"target": "y"}

    def look():
        maps = Path("/proc/self/smaps").read_text()
        resident.update(re.findall(rf"{re.escape(str(tmp_path))}/(\w+\.{form})\n(?:.*\n)*?Rss: +(\d+) kB", maps))

    monkeypatch.setattr(groups, "release_pages", lambda mapped: release_pages(mapped) or look())
    store = ingest(source, tmp_path / "S", budget=SMALL, **options)
    look()
    assert len({name for name, _ in resident}) == (2 if form == "npy" else 1)
    assert all(int(pages) < n // 1024 for _, pages in resident)
    assert held(store)[0][-1].tolist() == values["X"][-1].tolist()


def test_pages_that_hold_changes_of_their_own_stay(tmp_path):
    np.save(tmp_path / "X.npy", np.arange(9.0).reshape(3, 3))
    own = np.load(tmp_path / "X.npy", mmap_mode="c")
    own[1] = 7.0
    release_pages(own[1:])
    assert own[1].tolist() == [7.0, 7.0, 7.0]


def test_the_sum_of_a_long_column_has_the_bits_of_numpy(tmp_path):
    values = np.random.default_rng(0).normal(size=300_007)
    for path in (None, tmp_path / "a.bin"):
        column = Column(values.size, np.float64, path)
        column.put(0, values)
        assert column.sum() == values.sum()


# -- what a file declares ------------------------------------------------------------------------------------------------------


def test_three_million_columns_of_csv_are_refused_before_they_take_memory(tmp_path):
    d = 3_000_000
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join(["c"] * d), ",".join(["1"] * d)]))
    with pytest.raises(SchemaError, match=r"header of at least 3000000 columns.*more than the budget"):
        ingest(str(path), str(tmp_path / "s"))


def test_a_shape_that_nothing_stands_for_is_refused(tmp_path):
    parts = {"data": np.ones(1), "indices": np.zeros(1, "i4"), "indptr": np.array([0, 1], "i4"), "y": np.ones(1)}
    np.savez(tmp_path / "a.npz", **parts, shape=np.array([1, 2**31 - 2]))
    with pytest.raises(DataError, match=r"has 2147483646 columns, whose tables take"):
        ingest(str(tmp_path / "a.npz"), str(tmp_path / "s"))


@pytest.mark.parametrize("n, options", [(SMALL // 8 + 1, {}), (SMALL // 12, {"weight_column": "w"})])
def test_a_packed_record_batch_that_the_budget_does_not_hold_is_refused(tmp_path, n, options):
    table = {"x": np.zeros(n), "y": np.arange(n) % 2.0, "w": np.ones(n)}
    pyarrow.feather.write_feather(pa.table(table), tmp_path / "a.feather", compression="lz4", chunksize=n)
    told = rf"a\.feather: the columns of record batch 1 \({n} rows\) take {8 * n * (1 + len(options))} bytes when unpacked.*--budget"
    with pytest.raises(SchemaError, match=told):
        ingest(str(tmp_path / "a.feather"), str(tmp_path / "s"), budget=SMALL, target="y", **options)


@pytest.mark.parametrize("kind", ["npz", "npy"])
def test_a_header_that_declares_more_than_is_there_is_refused(tmp_path, kind):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"
    header += b" " * (117 - len(header)) + b"\n"
    raw = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(800)
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        path.write_bytes(raw)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", raw)
    with pytest.raises(DataError, match=r"declares 8000000000000 bytes of values, but the file has 800"):
        ingest(str(path), str(tmp_path / "s"))


def test_a_bomb_in_a_npz_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", b"\x93NUMPY")
    raw = bytearray((tmp_path / "a.npz").read_bytes())
    at = raw.find(b"PK\x01\x02")
    raw[at + 24 : at + 28] = struct.pack("<I", 2**32 - 2)
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(DataError, match="declares 4294967294 bytes of arrays, more than 1000 times the size"):
        ingest(str(tmp_path / "a.npz"), str(tmp_path / "s"))


def mat_element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def mat_file(path, element):
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + element)


def matrix(dims, numbers, declared=None):
    flags, size = mat_element(6, struct.pack("<II", 6, 0)), mat_element(5, struct.pack("<ii", *dims))
    body = flags + size + mat_element(1, b"X") + struct.pack("<II", 9, len(numbers) if declared is None else declared) + numbers
    return struct.pack("<II", 14, len(body)) + body


@pytest.mark.parametrize("packed", [True, False])
def test_lengths_of_a_mat_file_are_held_against_its_bytes(tmp_path, packed):
    path = tmp_path / "a.mat"
    for element, message in [
        (matrix((2, 2), bytes(32), declared=2**31), "the data end inside an element"),
        (matrix((2000, 2000), bytes(32)), r"X has the shape \(2000, 2000\) and 4 values"),
    ]:
        mat_file(path, mat_element(15, zlib.compress(element)) if packed else element)
        with pytest.raises(DataError, match=message):
            ingest(str(path), str(tmp_path / "s"))


def test_a_packed_variable_that_expands_without_end_is_refused(tmp_path):
    body = zlib.compress(matrix((2, 1 << 27), bytes(1 << 27), declared=1 << 31), 9)
    mat_file(tmp_path / "a.mat", mat_element(15, body))
    with pytest.raises(DataError, match=r"end inside an element|more than 1000 to 1"):
        ingest(str(tmp_path / "a.mat"), str(tmp_path / "s"))


def test_a_long_footer_of_parquet_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({f"f{k}": np.zeros(1) for k in range(3000)}), path)
    with pytest.raises(SchemaError, match=r"has a footer of \d+ bytes, and reading it takes about"):
        ingest(str(path), str(tmp_path / "s"), budget=SMALL, task="regression")
    raw = path.read_bytes()
    path.write_bytes(raw[:-8] + struct.pack("<I", 2**31) + b"PAR1")
    with pytest.raises(DataError, match="the footer at its end is missing"):
        ingest(str(path), str(tmp_path / "s"), task="regression")

"""Missing values in block stores: which input keeps them, what the store says of them, and what is refused."""

import json
import shutil

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.storage import BlockMeta, BlockStore, DataError, MemoryBlocks, SchemaError
from gramplane.storage.blocks.tables import COLUMN_TABLES
from gramplane.storage.ingest import ingest, reading
from gramplane.storage.ingest.options import MIN_BUDGET

N, D = 40, 5
NAMES = [f"f{k}" for k in range(D)]


@pytest.fixture
def data():
    """Eighths, which float32 holds; column 1 is all missing, column 2 has every value, column 4 is whole numbers."""
    rng = np.random.default_rng(3)
    A = np.round(8 * rng.normal(size=(N, D))) / 8
    A[:, 4] = rng.integers(-9, 9, N)
    A[rng.random((N, D)) < 0.3] = np.nan
    A[:, 1], A[:, 2] = np.nan, np.arange(N)
    return A, np.arange(N) % 2


def frame_of(A, y):
    return pd.DataFrame({**dict(zip(NAMES, A.T, strict=True)), "label": y})


def as_csv(folder, A, y):
    frame_of(A, y).to_csv(folder / "a.csv", index=False)
    return folder / "a.csv", {"target": "label"}


def as_csv_of_words(folder, A, y):
    frame_of(A, y).to_csv(folder / "b.csv", index=False, sep=";", na_rep="NaN")
    return folder / "b.csv", {"target": "label"}


def as_parquet(folder, A, y):
    columns = {name: pa.array(column, mask=np.isnan(column)) for name, column in zip(NAMES, A.T, strict=True)}
    whole = pa.array(np.nan_to_num(A[:, 4]).astype(np.int64), mask=np.isnan(A[:, 4]))
    pq.write_table(pa.table({**columns, "f1": pa.nulls(N), "f4": whole, "label": y}), folder / "a.parquet", row_group_size=17)
    return folder / "a.parquet", {"target": "label"}


def as_frame(folder, A, y):
    return frame_of(A, y), {"target": "label"}


def as_frame_of_masked_types(folder, A, y):
    return frame_of(A, y).astype({"f0": "Float64", "f1": "Float32", "f4": "Int64"}), {"target": "label"}


def as_npz(folder, A, y):
    np.savez(folder / "a.npz", X=A, y=y)
    return folder / "a.npz", {}


def as_npy(folder, A, y):
    np.save(folder / "a.npy", A)
    return folder / "a.npy", {"target": y}


def as_mat(folder, A, y):
    scipy.io.savemat(folder / "a.mat", {"X": A, "Y": y[:, None]})
    return folder / "a.mat", {}


def as_array(folder, A, y):
    return (A.astype(np.float32), y), {}


def as_masked_array(folder, A, y):
    return (np.ma.masked_invalid(A), y), {}


def as_dask(folder, A, y):
    return (da.from_array(A, chunks=(17, 2)), y), {}


def as_masked_dask(folder, A, y):
    hidden = np.ma.masked_array(np.nan_to_num(A, nan=7.0, posinf=np.inf), np.isnan(A))
    return (da.from_array(hidden, chunks=(17, 2)), da.from_array(y, chunks=11)), {}


FORMS = [make for name, make in list(globals().items()) if name.startswith("as_")]


@pytest.mark.parametrize("spill", [False, True], ids=["held", "spilled"])
@pytest.mark.parametrize("make", FORMS, ids=lambda make: make.__name__)
def test_every_dense_form_keeps_missing_values(make, tmp_path, data, spill, monkeypatch):
    A, y = data
    source, options = make(tmp_path, A, y)
    if spill:
        monkeypatch.setattr(reading, "hold_block", None)
        monkeypatch.setattr(reading, "HELD_SHARE", 1 << 50)
    store = ingest(source, tmp_path / "S", missing="keep", layout="both", budget=MIN_BUDGET, **options)
    assert store.meta.dtype == "float32" and store.meta.n_missing == np.isnan(A).sum()
    found = np.hstack([ref.load() for ref in store.column_blocks()])
    assert found.tobytes() == A.astype(np.float32).tobytes()
    assert np.vstack([ref.load() for ref in store.row_blocks()]).tobytes() == found.tobytes()
    assert np.array_equal(store.columns([4, 0]), A[:, [4, 0]], equal_nan=True)
    assert np.array_equal(store.target(), y) and store.verify().ok
    if make is as_mat:
        return  # each reading is a process of its own
    assert ingest(source, tmp_path / "S", missing="keep", layout="both", budget=MIN_BUDGET, **options).digest == store.digest
    with pytest.raises(SchemaError, match="other options"):
        ingest(source, tmp_path / "S", layout="both", budget=MIN_BUDGET, **options)


def test_column_tables_speak_of_the_values_that_are_there(tmp_path, data, monkeypatch):
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 4 * N)
    A, y = np.tile(data[0], 10), data[1]
    store = ingest((A, y), tmp_path / "S", missing="keep")
    assert len(store.column_blocks()) == 4
    expected = {
        "missing": np.isnan(A).sum(axis=0),
        "counts": ((A != 0) & ~np.isnan(A)).sum(axis=0),
        "sumsq": np.nansum(A * A, axis=0),
        "minimum": [min(there, default=0.0) for there in (a[~np.isnan(a)] for a in A.T)],
        "maximum": [max(there, default=0.0) for there in (a[~np.isnan(a)] for a in A.T)],
    }
    for name, values in expected.items():
        np.testing.assert_array_equal(store.column_table(name), values, err_msg=name)
    norm1 = np.nansum(np.abs(A), axis=0)
    assert (store.column_table("norm1") >= norm1).all() and np.allclose(store.column_table("norm1"), norm1)
    held = MemoryBlocks(A.astype(np.float32))
    for name in COLUMN_TABLES:
        np.testing.assert_array_equal(held.column_table(name), store.column_table(name), err_msg=name)


def test_the_type_follows_from_the_values_that_are_there(tmp_path, data):
    A, _ = data
    assert ingest(A, tmp_path / "single", missing="keep").meta.dtype == "float32"
    A[0, 2] = 0.1
    store = ingest(A, tmp_path / "double", missing="keep")
    assert store.meta.dtype == "float64" and store.columns(range(D)).tobytes() == A.tobytes()
    forced = ingest(A, tmp_path / "forced", missing="keep", dtype="float32")
    assert forced.columns(range(D)).tobytes() == A.astype(np.float32).tobytes()
    with pytest.raises(DataError, match=r"row 1, column 3: value 1e\+300 is beyond the range of float32"):
        ingest(np.where(A == 0.1, 1e300, A), tmp_path / "far", missing="keep", dtype="float32")


def test_one_missing_value_looks_like_another(tmp_path, data):
    A, _ = data
    other = A.copy()
    other[np.isnan(A)] = -np.float64(np.nan)
    other.view(np.uint64)[np.isnan(A)] |= np.uint64(12345)
    assert other.tobytes() != A.tobytes()
    found = [ingest(X, tmp_path / name, missing="keep").columns(range(D)).tobytes() for name, X in (("a", A), ("b", other))]
    assert found[0] == found[1]


def test_a_store_says_whether_values_are_missing(tmp_path, data):
    A, y = data
    store = ingest((A, y), tmp_path / "some", missing="keep")
    assert store.has_table("missing", of="columns") and BlockStore.open(tmp_path / "some").meta.n_missing == int(np.isnan(A).sum())
    for name, missing in (("none", "keep"), ("plain", "refuse")):
        whole = ingest((np.nan_to_num(A), y), tmp_path / name, missing=missing)
        assert whole.meta.n_missing == 0 and not whole.has_table("missing", of="columns")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"n_missing": True}, "n_missing is True"),
        ({"n_missing": None}, "n_missing is None"),
        ({"n_missing": 10**6}, "n_missing is 1000000"),
        (
            {"schema": "gramplane.blocks/4"},
            "this version reads 'gramplane.blocks/6': run `gramplane ingest` again",
        ),
        ({"task_names": []}, "task_names is"),
        ({"kind": "sparse"}, "n_missing is 4"),
    ],
)
def test_descriptions_that_cannot_be(change, told):
    good = BlockMeta(5, 2, "dense", "float32", n_missing=4).attributes()["gramplane"]
    plain = json.loads(json.dumps(good))
    assert BlockMeta.from_attributes({"gramplane": plain}, "", "S").n_missing == 4
    with pytest.raises(SchemaError, match=told):
        BlockMeta.from_attributes({"gramplane": {**plain, **change}}, "", "S")


def test_a_killed_ingest_goes_on(tmp_path, data, monkeypatch):
    A, y = data
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 50)
    monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", 4 * N)
    whole = ingest((A, y), tmp_path / "whole", missing="keep")

    def killed(done, total, phase):
        if phase == "tables":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest((A, y), tmp_path / "S", missing="keep", progress=killed)
    assert (tmp_path / "S.ingest").exists()
    store = ingest((A, y), tmp_path / "S", missing="keep")
    assert store.digest == whole.digest and store.meta.n_missing == np.isnan(A).sum()


# -- what is refused -------------------------------------------------------------------------------------------------------------


def test_sparse_input_and_sequences_have_no_missing_values(tmp_path, data):
    A, y = data
    (tmp_path / "a.svm").write_text("1 1:nan\n")
    (tmp_path / "a.fasta").write_text(">a\nACGT\n")
    sp.save_npz(tmp_path / "a.npz", sp.csr_array(A))
    blocks = da.from_array(A, chunks=(20, 5)).map_blocks(sp.csr_matrix)
    for source in (tmp_path / "a.svm", tmp_path / "a.npz", sp.csc_array(A), (blocks, y)):
        with pytest.raises(SchemaError, match=r"missing is 'keep' \(--missing keep\), but .* is sparse; only dense input"):
            ingest(source, tmp_path / "S", missing="keep")
    for source in (tmp_path / "a.fasta", ["AC", "GT"]):
        with pytest.raises(SchemaError, match=r"missing is 'keep', but .* holds sequences"):
            ingest(source, tmp_path / "S", missing="keep")
    assert not (tmp_path / "S").exists() and not (tmp_path / "S.ingest").exists()


@pytest.mark.parametrize("scale", ["unit-column", "standard", "unit-row"])
def test_scaling_and_missing_values_do_not_go_together(tmp_path, data, scale):
    A, y = data
    with pytest.raises(SchemaError, match=rf"scale is '{scale}' with missing='keep' \(--missing keep\)"):
        ingest((A, y), tmp_path / "S", missing="keep", scale=scale)
    guide = ingest((np.nan_to_num(A), y), tmp_path / "guide", scale=scale)
    with pytest.raises(SchemaError, match=f"missing is 'keep' .* has the scale '{scale}'"):
        ingest((A, y), tmp_path / "S", missing="keep", like=guide.url)


def test_without_the_option_the_message_names_it_and_infinity_is_never_kept(tmp_path, data):
    A, y = data
    A[:3] = 1.0
    A[3, 2] = np.inf
    for make in (as_csv, as_parquet, as_frame_of_masked_types, as_npz, as_array, as_masked_array, as_dask):
        source, options = make(tmp_path, A, y)
        with pytest.raises(
            DataError,
            match=r"(value nan is not finite|is missing); missing and infinite values are rejected; .*--missing mean, .*--missing keep",
        ):
            ingest(source, tmp_path / "S", **options)
        if make is not as_masked_array:  # which masks infinity, too
            with pytest.raises(DataError, match="value inf is not finite; infinite values are rejected"):
                ingest(source, tmp_path / "S", missing="keep", **options)
    with pytest.raises(DataError, match=r"value nan is not finite; missing and infinite values are rejected$"):
        ingest(sp.csr_array(np.where(np.isinf(A), 0, A)), tmp_path / "S")
    with pytest.raises(SchemaError, match="missing is 'drop'; it must be one of refuse, keep"):
        ingest(A, tmp_path / "S", missing="drop")
    assert not (tmp_path / "S").exists()


@pytest.mark.parametrize("column", ["target", "task_column", "weight_column", "id_column", "covariates"])
def test_masked_entries_of_row_tables_are_missing(tmp_path, data, column):
    A, y = np.nan_to_num(data[0]), data[1]
    values = np.ma.masked_array(np.arange(N) % 2, np.arange(N) == 17)
    for X in (A, da.from_array(A, chunks=(17, D)), pd.DataFrame(A, columns=NAMES)):
        for given in (values, da.from_array(values, chunks=11)) if isinstance(X, da.Array) and column != "covariates" else (values,):
            with pytest.raises(DataError, match=r"row 18: .*(nan is not finite|is missing)"):
                ingest(X, tmp_path / "S", **{"target": y, column: given})


@pytest.mark.parametrize("column", ["target", "task_column", "weight_column"])
def test_row_tables_have_no_missing_values(tmp_path, data, column):
    A, y = data
    frame = frame_of(A, y).assign(other=np.where(np.arange(N) == 17, np.nan, 1.0))
    for place in (tmp_path / "a.parquet", tmp_path / "a.csv"):
        frame.astype({"other": "Int64"}).to_parquet(place) if place.suffix == ".parquet" else frame.to_csv(place, index=False)
        with pytest.raises(DataError, match=r"row 18.*nan is not finite|a\.csv:19:7: .*(nan is not finite|the (label|task) is missing)"):
            ingest(place, tmp_path / "S", missing="keep", **{column: "other"})
    with pytest.raises(DataError, match=r"row 18.*nan is not finite"):
        ingest(frame.astype({"other": "Int64"}), tmp_path / "S", missing="keep", **{column: "other"})


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1,x", r"a\.csv:4:2: column 'b': value 'x' is not a finite number, in a column of numbers; .*--categorical b"),
        ("-inf,1", r"a\.csv:4:1: column 'a': value -inf is not finite; infinite values are rejected"),
        ("1", r"a\.csv:4: the row has 1 fields; the header has 2"),
    ],
)
def test_faults_behind_empty_cells_are_found(tmp_path, row, told):
    (tmp_path / "a.csv").write_text(f"a,b\n,2\nnan,\n{row}\n")
    with pytest.raises(DataError, match=told):
        ingest(tmp_path / "a.csv", tmp_path / "S", missing="keep")


def test_an_empty_line_is_a_missing_value_where_there_is_one_column(tmp_path):
    (tmp_path / "a.csv").write_text("a\n1\n\n3\n")
    assert ingest(tmp_path / "a.csv", tmp_path / "one", missing="keep").columns([0]).tolist()[::2] == [[1.0], [3.0]]
    assert BlockStore.open(tmp_path / "one").meta.n_missing == 1
    (tmp_path / "a.csv").write_text("a\n1\n\nx\n")
    with pytest.raises(DataError, match=r"a\.csv:4:1: column 'a': value 'x'"):
        ingest(tmp_path / "a.csv", tmp_path / "two", missing="keep")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n\n3,4\n")
    assert ingest(tmp_path / "a.csv", tmp_path / "three", missing="keep").columns([0, 1]).tolist() == [[1, 2], [3, 4]]


def test_whole_numbers_beside_missing_ones_are_not_rounded(tmp_path):
    large = 2**53 + 1
    pq.write_table(pa.table({"x": pa.array([None, large], pa.int64())}), tmp_path / "a.parquet")
    frame = pd.DataFrame({"x": pd.array([None, large], dtype="Int64")})
    masked = np.ma.MaskedArray(np.array([[0], [large]]), [[True], [False]])
    for source in (tmp_path / "a.parquet", frame, masked):
        with pytest.raises(DataError, match=rf"row 2, column .*: value {large} is beyond 2\^53"):
            ingest(source, tmp_path / "S", missing="keep")
    pq.write_table(pa.table({"x": [True, None, False]}), tmp_path / "a.parquet")
    for source in (tmp_path / "a.parquet", pd.DataFrame({"x": pd.array([True, None, False], dtype="boolean")})):
        found = ingest(source, tmp_path / "S", missing="keep")
        assert np.array_equal(found.columns([0])[:, 0], [1.0, np.nan, 0.0], equal_nan=True)
        shutil.rmtree(tmp_path / "S")

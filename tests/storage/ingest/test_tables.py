"""Tables whose columns are not all numbers: what becomes of every kind of column, in every format, and what is refused."""

import bz2
import csv
import gzip
import io

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pytest
from sklearn.impute import SimpleImputer

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest, reading
from gramplane.storage.ingest.options import MIN_BUDGET
from gramplane.storage.source import Source

N = 90
NUMBERS, NOMINAL = ["age", "dose"], ["colour", "ward"]


def table(n=N, seed=0, missing=True):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "patient": [f"p{k:03d}" for k in range(n)],
            "age": np.round(8 * rng.normal(50, 12, n)) / 8,
            "colour": rng.choice(["rot", "grün", "blau", 'sky "blue", light'], n),
            "well": rng.random(n) < 0.5,
            "dose": rng.integers(0, 4, n).astype(float),
            "ward": rng.choice(["north", "south"], n),
            "outcome": rng.choice(["yes", "no"], n),
        }
    )
    if missing:
        for name in (*NUMBERS, *NOMINAL):
            frame.loc[rng.choice(n, n // 6, replace=False), name] = None
    return frame


def oracle(frame, missing):
    """What scikit-learn and pandas make of the same columns."""
    columns = {}
    for name in ("age", "colour", "well", "dose", "ward"):
        if name in NOMINAL:
            dummies = pd.get_dummies(frame[name], prefix=name, prefix_sep="=", dtype=float)
            columns |= {column: dummies[column].to_numpy() for column in dummies}
        else:
            imputer = SimpleImputer(strategy="median" if missing == "median" else "mean", keep_empty_features=True)
            columns[name] = imputer.fit_transform(frame[[name]].astype(float))[:, 0]
        if missing == "indicator" and frame[name].isna().any():
            columns[f"{name} is missing"] = frame[name].isna().to_numpy(float)
    return columns


def dense(store):
    X = store.columns(np.arange(store.n_cols))
    return X if isinstance(X, np.ndarray) else X.toarray()


OPTIONS = {"target": "outcome", "id_column": "patient"}


@pytest.mark.parametrize("spill", [False, True], ids=["held", "spilled"])
@pytest.mark.parametrize("missing", ["mean", "median", "indicator"])
def test_features_are_what_pandas_and_scikit_learn_make_of_them(tmp_path, missing, spill, monkeypatch):
    frame = table()
    if spill:
        monkeypatch.setattr(reading, "hold_block", None)
        monkeypatch.setattr(reading, "HELD_SHARE", 1 << 50)
    frame.to_csv(tmp_path / "a.csv", index=False)
    store = ingest(tmp_path / "a.csv", tmp_path / "S", missing=missing, budget=MIN_BUDGET, layout="both", **OPTIONS)
    expected = oracle(frame, missing)
    assert store.feature_names() == list(expected) == store.encoding.feature_names
    np.testing.assert_allclose(dense(store), np.column_stack(list(expected.values())), rtol=1e-6)
    assert store.meta.labels == ("no", "yes") and store.ids().tolist() == frame["patient"].tolist()
    assert store.ids(3, 5).tolist() == ["p003", "p004"] and store.verify().ok
    assert np.array_equal(np.vstack([ref.load() for ref in store.row_blocks()]), dense(store))
    again = ingest(tmp_path / "a.csv", tmp_path / "S", missing=missing, budget=MIN_BUDGET, layout="both", **OPTIONS)
    assert again.digest == store.digest
    assert not (tmp_path / "S.ingest").exists()


def as_csv(folder, frame):
    frame.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def as_words(folder, frame):
    frame.to_csv(folder / "b.csv", index=False, sep=";", quoting=csv.QUOTE_ALL)
    return folder / "b.csv"


def as_tsv(folder, frame):
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    return folder / "a.tsv"


def as_gz(folder, frame):
    (folder / "a.csv.gz").write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    return folder / "a.csv.gz"


def as_bz2(folder, frame):
    (folder / "a.tsv.bz2").write_bytes(bz2.compress(frame.to_csv(index=False, sep="\t").encode()))
    return folder / "a.tsv.bz2"


def as_zst(folder, frame):
    with pa.CompressedOutputStream(str(folder / "a.csv.zst"), "zstd") as file:
        file.write(frame.to_csv(index=False).encode())
    return folder / "a.csv.zst"


def as_parquet(folder, frame):
    frame.to_parquet(folder / "a.parquet", row_group_size=17)
    return folder / "a.parquet"


def as_parquet_of_categories(folder, frame):
    frame.astype({"colour": "category", "ward": "category"}).to_parquet(folder / "c.pq")
    return folder / "c.pq"


def as_folder(folder, frame):
    (folder / "parts").mkdir()
    (folder / "parts" / "_SUCCESS").write_text("")
    for k, lo in enumerate(range(0, len(frame), 37)):
        frame[lo : lo + 37].to_parquet(folder / "parts" / f"part-{k}.parquet")
    return folder / "parts"


def as_feather(folder, frame):
    pyarrow.feather.write_feather(frame, folder / "a.feather")
    return folder / "a.feather"


def as_arrow(folder, frame):
    pyarrow.feather.write_feather(frame, folder / "a.arrow", compression="zstd", chunksize=19)
    return folder / "a.arrow"


def as_arrow_stream(folder, frame):
    made = pyarrow.Table.from_pandas(frame, preserve_index=False)
    with pyarrow.OSFile(str(folder / "a.arrows"), "wb") as file, pyarrow.ipc.new_stream(file, made.schema) as stream:
        stream.write_table(made, max_chunksize=19)
    return folder / "a.arrows"


def as_frame(folder, frame):
    return frame


def as_frame_of_masked_types(folder, frame):
    return frame.astype({"age": "Float64", "dose": "Int64", "well": "boolean", "colour": "string", "ward": "category"})


def as_frame_of_objects(folder, frame):
    return frame.astype(object).where(frame.notna(), None)


def as_table(folder, frame):
    return pa.Table.from_pandas(frame)


def as_stream(folder, frame):
    return pa.Table.from_pandas(frame).to_reader(max_chunksize=23)


def as_dask(folder, frame):
    return dd.from_pandas(frame, npartitions=4)


def as_polars(folder, frame):
    return pytest.importorskip("polars").from_pandas(frame)


def as_polars_plan(folder, frame):
    return as_polars(folder, frame).lazy()


def as_polars_of_categories(folder, frame):
    polars = pytest.importorskip("polars")
    return polars.from_pandas(frame).with_columns(polars.col("colour").cast(polars.Categorical))


def as_xarray(folder, frame):
    return pytest.importorskip("xarray").Dataset.from_dataframe(frame)


FORMS = [make for name, make in list(globals().items()) if name.startswith("as_")]


@pytest.mark.parametrize("missing", ["indicator", "keep"])
@pytest.mark.parametrize("make", FORMS, ids=lambda make: make.__name__)
def test_every_format_gives_the_same_store(tmp_path, make, missing):
    frame = table()
    (tmp_path / "f").mkdir()
    first = ingest(as_csv(tmp_path, frame), tmp_path / "S", missing=missing, **OPTIONS)
    store = ingest(make(tmp_path / "f", frame), tmp_path / "T", missing=missing, budget=MIN_BUDGET, **OPTIONS)
    assert store.encoding == first.encoding and store.meta.dtype == first.meta.dtype == "float32"
    assert dense(store).tobytes() == dense(first).tobytes() and store.feature_names() == first.feature_names()
    assert store.ids().tolist() == first.ids().tolist() and np.array_equal(store.target(), first.target())
    assert (store.meta.n_missing, store.meta.n_coded) == (first.meta.n_missing, first.meta.n_coded)


def test_xarray_arrays_and_plain_streams(tmp_path):
    xarray = pytest.importorskip("xarray")
    A = np.arange(12.0).reshape(4, 3)
    named = xarray.DataArray(A, dims=("row", "gene"), coords={"gene": ["a", "b", "c"]})
    for name, source in (("N", named), ("D", named.chunk({"row": 2}))):
        store = ingest((source, [0, 1, 0, 1]), tmp_path / name)
        assert np.array_equal(dense(store), A) and store.feature_names() == ["a", "b", "c"]
    with pytest.raises(SchemaError, match="variable 'm' has 2 dimensions; all columns of a table must share one dimension"):
        ingest(xarray.Dataset({"m": (("a", "b"), A)}), tmp_path / "X")


# -- what stores hold --------------------------------------------------------------------------------------------------------------


def test_kept_missing_values_are_numbers_of_levels_for_rules(tmp_path):
    frame = table()
    store = ingest(frame, tmp_path / "S", missing="keep", **OPTIONS)
    assert store.feature_names() == ["age", "colour", "well", "dose", "ward"] and store.meta.kind == "dense"
    codes = pd.Categorical(frame["colour"]).codes.astype(float)
    assert np.array_equal(dense(store)[:, 1], np.where(codes < 0, np.nan, codes), equal_nan=True)
    assert store.encoding.coded_levels == {1: tuple(sorted(set(frame["colour"].dropna()))), 4: ("north", "south")}
    assert BlockStore.open(tmp_path / "S").meta.n_coded == 2
    whole = ingest(table(missing=False)[["age", "colour"]], tmp_path / "T", missing="keep")
    assert whole.meta.n_missing == 0 and whole.meta.n_coded == 1


def test_numbers_alone_need_no_encoding(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2, 3], "b": [4, 5, 6]})
    store = ingest(frame, tmp_path / "S")
    assert store.encoding is None and [column.name for column in store.table.columns] == ["a", "b"]


def test_many_levels_go_to_the_sparse_layout(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"shop": rng.choice([f"shop {k}" for k in range(300)], 2000), "x": rng.normal(size=2000).astype("f4")})
    store = ingest(frame, tmp_path / "S", layout="both", budget=MIN_BUDGET)
    assert store.meta.kind == "sparse" and store.encoding.is_sparse
    expected = pd.get_dummies(frame["shop"], prefix="shop", prefix_sep="=", dtype=float)
    assert store.feature_names() == [*expected, "x"]
    assert np.array_equal(dense(store)[:, :-1], expected) and np.array_equal(dense(store)[:, -1], frame["x"])
    test = ingest(frame[:9].assign(shop="other"), tmp_path / "T", like=store.url, warn=lambda message: None)
    assert test.meta.kind == "sparse" and not dense(test)[:, :-1].any()


@pytest.mark.parametrize("kind", ["frame", "parquet", "polars"])
def test_levels_stand_in_order_and_may_be_empty(tmp_path, kind):
    sizes = pd.Categorical(["small", "large", None, "small"], categories=["small", "medium", "large"], ordered=True)
    frame = pd.DataFrame({"size": sizes, "other": pd.Categorical(["b", "a", "b", "b"], categories=["b", "c", "a"])})
    source = frame
    if kind == "parquet":
        source = as_parquet(tmp_path, frame)
    if kind == "polars":
        polars = pytest.importorskip("polars")
        columns = [polars.Series("size", ["small", "large", None, "small"], dtype=polars.Enum(["small", "medium", "large"]))]
        source = polars.DataFrame([*columns, polars.Series("other", ["b", "a", "b", "b"], dtype=polars.Enum(["a", "b", "c"]))])
    store = ingest(source, tmp_path / "S", missing="mean")
    expected = pd.get_dummies(frame, prefix_sep="=", dtype=float)
    order = ["size=small", "size=medium", "size=large", "other=a", "other=b", "other=c"]
    assert store.feature_names() == order and np.array_equal(dense(store), expected[order])


def test_columns_whose_values_are_names_although_they_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("zip,x\n010,1\n9,2\n010,3\n100,4\n")
    store = ingest(tmp_path / "a.csv", tmp_path / "S", categorical=["zip"])
    assert store.feature_names() == ["zip=9", "zip=010", "zip=100", "x"]
    for source in (pd.DataFrame({"zip": [10, 9, None]}), pa.table({"zip": [10, 9, None]})):
        store = ingest(source, tmp_path / "T", categorical=["zip"], missing="indicator", overwrite=True)
        assert store.feature_names() == ["zip=9", "zip=10", "zip is missing"]
        assert dense(store).tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_words_for_missing_numbers_and_texts_that_are_numbers(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,c\nNA,?,NA\n1,null,x\n,3,NA\n")
    store = ingest(tmp_path / "a.csv", tmp_path / "S", missing="indicator")
    assert store.feature_names() == ["a", "a is missing", "b", "b is missing", "c=NA", "c=x"]
    assert dense(store).tolist() == [[1, 1, 3, 1, 1, 0], [1, 0, 3, 1, 0, 1], [1, 1, 3, 0, 1, 0]]
    texts = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    assert dense(ingest(texts, tmp_path / "T", missing="indicator")).tolist() == dense(store).tolist()
    (tmp_path / "b.csv").write_text("a,c\n" + "NA,\n" * 5 + "NA,false\n4,TRUE\n")
    store = ingest(tmp_path / "b.csv", tmp_path / "U", missing="keep")
    assert np.array_equal(dense(store)[-2:], [[np.nan, 0], [4, 1]], equal_nan=True) and store.meta.n_missing == 11
    with pytest.raises(DataError, match=r"b.csv:2:1: column 'a': value nan is not finite; missing and infinite values are rejected"):
        ingest(tmp_path / "b.csv", tmp_path / "V", columns=["a"])
    with pytest.raises(DataError, match=r"row 1, column 'a': the value is missing; missing and infinite values are rejected"):
        ingest(pd.read_csv(tmp_path / "b.csv", dtype=str, keep_default_na=False), tmp_path / "V", columns=["a"])


def test_the_fill_is_of_the_training_table_and_float32_stays(tmp_path):
    train, test = pd.DataFrame({"x": [1.0, 2.0, None, 4.5]}), pd.DataFrame({"x": [None, 100.0]})
    store = ingest(train, tmp_path / "S", missing="mean")
    assert store.meta.dtype == "float32" and store.encoding.sources[0].fill == float(np.float32(2.5))
    assert dense(ingest(test, tmp_path / "T", like=store.url)).tolist() == [[2.5], [100.0]]
    exact = ingest(pd.DataFrame({"x": [0.1, None, 0.2, 0.4]}), tmp_path / "U", missing="median")
    assert exact.meta.dtype == "float64" and dense(exact)[1, 0] == 0.2
    nothing = ingest(pd.DataFrame({"x": [None, None], "y": [1.0, 2.0]}), tmp_path / "V", missing="median")
    assert dense(nothing)[:, 0].tolist() == [0, 0]


def test_arrays_are_filled_in_as_well(tmp_path):
    A = np.array([[1.0, np.nan, 3], [4, np.nan, 6], [7, 8, np.nan]])
    expected = SimpleImputer(add_indicator=True).fit_transform(A)
    store = ingest((A, [0, 1, 0]), tmp_path / "S", missing="indicator")
    assert store.feature_names() == ["x0", "x1", "x1 is missing", "x2", "x2 is missing"]
    np.testing.assert_allclose(dense(store)[:, [0, 1, 3, 2, 4]], expected, rtol=1e-6)
    with pytest.raises(SchemaError, match=r"is no table, but the training store has 3 columns; give a table with the same"):
        ingest(dense(store), tmp_path / "U", like=store.url)
    np.save(tmp_path / "b.npy", A[:2])
    np.testing.assert_allclose(dense(ingest(tmp_path / "b.npy", tmp_path / "T", like=store.url)), dense(store)[:2], rtol=1e-6)


def test_ids_are_whole_numbers_or_texts(tmp_path):
    frame = pd.DataFrame({"x": [1.0, 2, 3], "k": [7, -1, 12]})
    assert ingest(frame, tmp_path / "A", id_column="k").ids().dtype == np.int64
    assert ingest(frame.astype({"k": float}), tmp_path / "B", id_column="k").ids().tolist() == [7, -1, 12]
    assert ingest(frame.assign(k=["7", "007", "8"]), tmp_path / "C", id_column="k").ids().tolist() == ["7", "007", "8"]
    assert ingest(np.ones((2, 2)), tmp_path / "D", id_column=["ä", "b"]).ids().tolist() == ["ä", "b"]
    assert ingest(frame, tmp_path / "E").ids() is None
    with pytest.raises(DataError, match=r"row 2.*the id is missing"):
        ingest(frame.assign(k=["a", None, "b"]), tmp_path / "F", id_column="k")


def test_columns_and_drop_choose_the_features(tmp_path):
    frame = table(missing=False)
    store = ingest(frame, tmp_path / "S", columns=["dose", "age"], **OPTIONS)
    assert store.feature_names() == ["age", "dose"]
    kinds = {column.name: column.kind for column in store.encoding.columns}
    assert kinds == {"patient": "id", "age": "numeric", "colour": "dropped", "well": "dropped", "dose": "numeric", "ward": "dropped"}
    fewer = ingest(frame, tmp_path / "T", drop=["colour", "ward", "well"], **OPTIONS)
    assert dense(fewer).tobytes() == dense(store).tobytes()
    follow = ingest(frame[frame.columns[::-1]], tmp_path / "U", like=store.url)
    assert dense(follow).tobytes() == dense(store).tobytes() and follow.ids().tolist() == store.ids().tolist()


# -- a store to follow -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["mean", "indicator", "keep"])
def test_test_data_follow_the_training_store_by_name(tmp_path, missing):
    train, test = table(), table(30, seed=1)
    store = ingest(train, tmp_path / "S", missing=missing, **OPTIONS)
    other = test.assign(extra=1.0)[["extra", *test.columns[::-1]]]
    said = []
    made = ingest(as_csv(tmp_path, other), tmp_path / "T", like=store.url, warn=said.append)
    assert said == ["a.csv: columns that are not in the training store are left out: 'extra'"]
    assert made.encoding == store.encoding and made.feature_names() == store.feature_names()
    assert made.ids().tolist() == test["patient"].tolist() and made.meta.labels == store.meta.labels
    both = ingest(pd.concat([train, test]), tmp_path / "U", missing="keep", **OPTIONS)
    known = dense(both)[N:]  # of all rows: levels are the same
    if missing == "keep":
        assert np.array_equal(dense(made), known, equal_nan=True)
    else:
        fill = SimpleImputer().fit(train[NUMBERS].astype(float)).statistics_
        column = store.feature_names().index("age")
        np.testing.assert_allclose(dense(made)[:, column], np.where(np.isnan(known[:, 0]), fill[0], known[:, 0]), rtol=1e-6)


def test_levels_that_are_new_are_counted_and_said(tmp_path):
    train = pd.DataFrame({"colour": ["red", "blue", "red"], "x": [1.0, 2, 3]})
    store = ingest(train, tmp_path / "S")
    test = pd.DataFrame({"x": [4.0, 5, 6, 7], "colour": ["pink", "red", "pink", "black"]})
    with pytest.warns(
        UserWarning, match=r"column 'colour' has 3 values of levels that were not there at fit: 'pink' \(2\), 'black' \(1\); all of"
    ):
        made = ingest(test, tmp_path / "T", like=store.url)
    assert dense(made).tolist() == [[0, 0, 4], [0, 1, 5], [0, 0, 6], [0, 0, 7]]
    kept = ingest(train, tmp_path / "U", missing="keep")
    with pytest.warns(UserWarning, match="every comparison with them is false"):
        assert dense(ingest(test, tmp_path / "V", like=kept.url))[:, 0].tolist() == [-1, 1, -1, -1]


def test_task_and_missing_are_inherited(tmp_path):
    train = pd.DataFrame({"x": [1.0, None, 3], "y": [0.5, 1.5, 2.5]})
    store = ingest(train, tmp_path / "S", target="y", task="regression", missing="median")
    made = ingest(train[:2], tmp_path / "T", like=store.url)
    assert made.meta.labels is None and made.target().tolist() == [0.5, 1.5] and dense(made).tolist() == [[1], [2]]
    assert dict(made.meta.info)["options"]["missing"] == "median"
    bare = ingest(train[["x"]], tmp_path / "U", like=store.url)
    assert not bare.has_table("y")
    plain = ingest(train[:1], tmp_path / "V", target="y", task="regression")
    with pytest.raises(DataError, match=r"row 2, column 'x'.*is not finite"):
        ingest(train, tmp_path / "W", like=plain.url)
    assert ingest(train, tmp_path / "W", like=plain.url, missing="keep").meta.n_missing == 1
    for options, why in [
        ({"missing": "mean"}, "missing is 'mean', but .* was made with 'median'"),
        ({"drop": ["x"]}, "drop is given, but .* defines the columns; leave drop out"),
        ({"categorical": ["x"]}, "categorical is given"),
    ]:
        with pytest.raises(SchemaError, match=why):
            ingest(train, tmp_path / "X", like=store.url, **options)


def test_columns_that_are_missing_or_of_another_kind_are_refused(tmp_path):
    store = ingest(table(), tmp_path / "S", missing="indicator", **OPTIONS)
    test = table(5, seed=2)
    with pytest.raises(SchemaError, match=r"has no column 'age' and 1 more, which the training store has"):
        ingest(test.drop(columns=["age", "ward"]), tmp_path / "T", like=store.url)
    (tmp_path / "a.csv").write_text(test.to_csv(index=False).replace("p002,", "p002,x"))
    with pytest.raises(DataError, match=r"a\.csv:4:2: column 'age': value 'x.*' is not a finite number"):
        ingest(tmp_path / "a.csv", tmp_path / "T", like=store.url)
    with pytest.raises(DataError, match="row 1, column 'well': value 'maybe' is neither true nor false"):
        ingest(test.assign(well="maybe"), tmp_path / "T", like=store.url)
    numbers = ingest(pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), tmp_path / "U")
    with pytest.raises(DataError, match="row 2, column 'a': value 'x' is not a finite number"):
        ingest(pd.DataFrame({"b": [1.0, 2], "a": ["1", "x"]}), tmp_path / "V", like=numbers.url)


# -- what is refused ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("when,x\n2024-01-31,1\n2024-02-01,2\n", {}, r"a\.csv:2:1: column 'when': the values are dates such as '2024-01-31'.*--drop when"),
        ("when,x\n31/12/24,1\n", {}, "dates such as '31/12/24'"),
        ("a,x\nred,1\n7,2\n", {}, r"a\.csv:3:1: column 'a': value '7' is a number among texts such as 'red'; .*--categorical a"),
        ("a,x\n7,1\nred,2\n", {}, r"a\.csv:3:1: column 'a': value 'red' is not a finite number, in a column of numbers; .*--categorical a"),
        ("a,x\ntrue,1\nred,2\n", {}, r"a\.csv:3:1: column 'a': value 'red' is neither true nor false; .*--categorical a"),
        (
            "a,x\nred,1\n,2\n",
            {},
            r"a\.csv:3:1: column 'a': the value is missing; missing and infinite values are rejected; .*--missing mean",
        ),
        ("a,x\nred,1\nblue,\n", {}, r"a\.csv:3:2: column 'x': value nan is not finite; missing"),
        ("a,x\nred,1\nblue,inf\n", {"missing": "mean"}, r"a\.csv:3:2: column 'x': value inf is not finite; infinite"),
        ("a,x\nred,1\n", {"drop": ["b"]}, r"has no column 'b'; it has a, x"),
        ("a,x\nred,1\n", {"columns": ["x"], "drop": ["x"]}, r"drop names 'x', which is also in columns"),
        ("a,x\nred,1\n", {"target": "a", "drop": ["a"]}, "column 'a' is no feature: it has the target"),
        ("a,x\nred,1\n", {"drop": ["a", "x"]}, "no column left for features"),
        ("a,x\nred,1\n", {"categorical": ["a", "a"]}, "categorical names 'a' twice"),
        ("a,x\nred,1\n", {"n_features": 5}, "has 2 columns as 2 features; n_features .* requires 5"),
        ("a,a\n1,2\n", {}, "the column name 'a' occurs twice"),
        ("a,x\n\nred\n", {}, r"a\.csv:3: the row has 1 fields; the header has 2"),
    ],
)
def test_faults_of_tables(tmp_path, text, options, why):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises((DataError, SchemaError), match=why):
        ingest(tmp_path / "a.csv", tmp_path / "S", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


@pytest.mark.parametrize("missing", ["refuse", "mean"])
def test_dates_and_other_types_are_refused_by_name(tmp_path, missing):
    when = pd.date_range("2024-01-01", periods=3)
    frame = pd.DataFrame({"x": [1.0, 2, 3], "when": when})
    for source in (
        frame,
        as_parquet(tmp_path, frame),
        pa.Table.from_pandas(frame),
        frame.assign(when=list(when.date)),
        dd.from_pandas(frame),
    ):
        with pytest.raises(DataError, match=r"column 'when': the values are dates or times.*leave the column out \(--drop when\)"):
            ingest(source, tmp_path / "S", missing=missing)
    assert ingest(frame, tmp_path / "T", drop=["when"]).feature_names() == ["x"]
    assert ingest(frame.astype({"when": str}), tmp_path / "U", categorical=["when"]).n_cols == 4
    with pytest.raises(DataError, match="column 'o': argument must be a string or a real number, not dict"):
        ingest(pd.DataFrame({"o": [{}, 1]}), tmp_path / "V")
    with pytest.raises(DataError, match="column 'z': the values have the type complex128"):
        ingest(pd.DataFrame({"z": [1j, 2]}), tmp_path / "V")


def test_too_many_levels_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.encoding.columns.MAX_LEVELS", 50)
    frame = pd.DataFrame({"name": [f"n{k}" for k in range(60)], "x": 1.0})
    with pytest.raises(DataError, match=r"row 51, column 'name': more than 50 categories.*\(--drop name\).*--id-column name"):
        ingest(frame, tmp_path / "S")
    monkeypatch.undo()
    long = pd.DataFrame({"note": ["a" * (MIN_BUDGET // 16), "b"]})
    with pytest.raises(DataError, match="more than 524288 bytes of category names"):
        ingest(long, tmp_path / "S", budget=MIN_BUDGET)


def test_formats_by_name(tmp_path):
    frame = pd.DataFrame({"a": [1.0, 2], "b": [3.0, 4]})
    frame.to_parquet(tmp_path / "a.csv")
    assert np.array_equal(dense(ingest(tmp_path / "a.csv", tmp_path / "S", format="parquet")), frame)
    frame.to_csv(tmp_path / "b.parquet", index=False)
    assert np.array_equal(dense(ingest(tmp_path / "b.parquet", tmp_path / "T", format="csv")), frame)
    (tmp_path / "c.xlsx").write_text("")
    with pytest.raises(
        SchemaError, match=r"c.xlsx has the unknown file extension '.xlsx'; known are svmlight .*parquet \(.parquet .pq\).*--format svm"
    ):
        ingest(tmp_path / "c.xlsx", tmp_path / "U")
    (tmp_path / "d.tsv").write_text("a,b\tc\n1\t2\n")
    assert ingest(tmp_path / "d.tsv", tmp_path / "V").feature_names() == ["a,b", "c"]
    for place, why in ((tmp_path / "S", "it is a folder without Parquet files"), (tmp_path / "nested", "Parquet files in subfolders")):
        if place.name == "nested":
            (place / "year=2024").mkdir(parents=True)
            frame.to_parquet(place / "year=2024" / "a.parquet")
        with pytest.raises((DataError, SchemaError), match=why):
            ingest(place, tmp_path / "W")


@pytest.mark.parametrize("kind", ["feather", "stream", "zst", "folder"])
def test_damaged_and_odd_files(tmp_path, kind):
    frame = table(400)
    if kind == "folder":
        path = as_folder(tmp_path, frame)
        frame[["age"]].to_parquet(path / "z.parquet")
        with pytest.raises(DataError, match=r"z.parquet: either this file or .*part-0.parquet lacks column 'colour'"):
            ingest(path, tmp_path / "S", missing="mean", **OPTIONS)
        frame.assign(age=frame["age"].fillna(1).where(np.arange(400) != 60, np.inf)).to_parquet(path / "z.parquet")
        with pytest.raises(DataError, match=r"z.parquet: row 61, column 'age': value inf is not finite"):
            ingest(path, tmp_path / "S", missing="mean", **OPTIONS)
        return
    path = {"feather": as_arrow, "stream": as_arrow_stream, "zst": as_zst}[kind](tmp_path, frame)
    good, rng = path.read_bytes(), np.random.default_rng(0)
    path.write_bytes(good[: len(good) // 2])
    with pytest.raises((DataError, SchemaError), match=r"cannot be read as an Arrow|zstd data damaged or cut short"):
        ingest(path, tmp_path / "S", missing="mean", **OPTIONS)
    for _ in range(40):
        bad = bytearray(good)
        bad[int(rng.integers(len(bad)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(bad))
        try:
            ingest(path, tmp_path / "T", missing="mean", overwrite=True, **OPTIONS)
        except (DataError, SchemaError) as error:
            assert str(error)


def test_what_is_no_table_has_no_columns(tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2\n")
    for source in (tmp_path / "a.svm", np.ones((2, 2))):
        for name in ("categorical", "drop", "columns"):
            with pytest.raises(SchemaError, match=f"{name} names columns of a table"):
                ingest(source, tmp_path / "S", **{name: ["a"]})
    with pytest.raises(SchemaError, match="id_column names a column of a table; SVMlight"):
        ingest(tmp_path / "a.svm", tmp_path / "S", id_column="a")
    with pytest.raises(SchemaError, match=r"missing is 'mean' \(--missing mean\), but .* is sparse; only dense input"):
        ingest(tmp_path / "a.svm", tmp_path / "S", missing="mean")


# -- on the way --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", ["read", "columns", "tables"])
def test_a_killed_ingest_goes_on(tmp_path, monkeypatch, phase):
    monkeypatch.setattr(reading, "HELD_SHARE", 1 << 50)
    path = as_csv(tmp_path, table(3000))
    options = {**OPTIONS, "missing": "indicator", "budget": MIN_BUDGET}
    whole = ingest(path, tmp_path / "whole", **options)
    calls = []

    def killed(done, total, now):
        calls.append(now)
        # The second part that is read is that of the features.
        if now == phase and (phase != "read" or calls.count("read") > 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(path, tmp_path / "S", progress=killed, **options)
    assert (tmp_path / "S.ingest").exists()
    store = ingest(path, tmp_path / "S", **options)
    assert store.digest == whole.digest and store.encoding == whole.encoding


def test_large_row_groups_go_by_columns(tmp_path):
    rng = np.random.default_rng(0)
    n, d = 3000, 60
    frame = pd.DataFrame(rng.normal(size=(n, d)), columns=[f"f{k}" for k in range(d)])
    for k in range(0, d, 7):
        frame[f"f{k}"] = rng.choice(["aa", "bb", None], n)
    frame["y"] = rng.integers(0, 2, n)
    for name, save in (("a.parquet", frame.to_parquet), ("a.feather", lambda path: pyarrow.feather.write_feather(frame, path))):
        save(tmp_path / name)
        options = {"target": "y", "missing": "indicator"}
        whole = ingest(tmp_path / name, tmp_path / "whole", budget=1 << 30, overwrite=True, **options)
        parts = ingest(tmp_path / name, tmp_path / "parts", budget=MIN_BUDGET, overwrite=True, **options)
        assert dense(whole).tobytes() == dense(parts).tobytes() and whole.encoding == parts.encoding


def test_the_record_is_read_back(tmp_path):
    store = ingest(table(), tmp_path / "S", missing="indicator", **OPTIONS)
    assert Source.from_json(store.source.to_json(), "here").to_json() == store.source.to_json()
    assert store.source.encoding == store.encoding
    for text, why in ((b"[", "here is not valid JSON"), (b"{}", "record has the format None")):
        with pytest.raises(SchemaError, match=why):
            Source.from_json(text, "here")
    damaged = tmp_path / "S" / "v1" / "source.json"
    damaged.write_bytes(damaged.read_bytes().replace(b"rot", b"ROT"))
    assert not BlockStore.open(tmp_path / "S").verify().ok


def test_the_plan_of_a_table(tmp_path):
    path = as_csv(tmp_path, table())
    plan = ingest(path, tmp_path / "S", missing="mean", dry_run=True, **OPTIONS)
    assert plan["columns"] is None and plan["process_bytes"] > 0 and not (tmp_path / "S").exists()
    store = ingest(path, tmp_path / "S", missing="mean", **OPTIONS)
    followed = ingest(path, tmp_path / "T", like=store.url, dry_run=True)
    assert followed["columns"] == store.n_cols
    for source in (table(), pa.Table.from_pandas(table()), dd.from_pandas(table(), npartitions=2), as_folder(tmp_path, table())):
        assert ingest(source, tmp_path / "U", missing="mean", dry_run=True, **OPTIONS)["kind"] == "dense"


def test_standard_input_is_read_once(tmp_path, monkeypatch):
    class Stdin:
        buffer = io.BytesIO(table().to_csv(index=False).encode())

    monkeypatch.setattr("sys.stdin", Stdin)
    store = ingest("-", tmp_path / "S", format="csv", missing="median", **OPTIONS)
    assert dense(store).tobytes() == dense(ingest(as_csv(tmp_path, table()), tmp_path / "T", missing="median", **OPTIONS)).tobytes()

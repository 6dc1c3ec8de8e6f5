"""One rule for numbers, by every way in: what is a number, what is a name, and what is missing."""

from contextlib import nullcontext

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow.feather
import pytest
import scipy.io
import scipy.sparse as sp

from gramplane.storage import DataError, SchemaError, columns_file, load_columns
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.options import MIN_BUDGET

SNOMED = ["900000000000207008", "900000000000207009", "900000000000207010"]


def of_csv(folder, frame):
    frame.to_csv(folder / "a.csv", index=False)
    return folder / "a.csv"


def of_tsv(folder, frame):
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    return folder / "a.tsv"


def of_parquet(folder, frame):
    frame.to_parquet(folder / "a.parquet")
    return folder / "a.parquet"


def of_feather(folder, frame):
    pyarrow.feather.write_feather(frame, folder / "a.feather")
    return folder / "a.feather"


def of_frame(folder, frame):
    return frame


def of_dask(folder, frame):
    return dd.from_pandas(frame, npartitions=2)


def of_npz(folder, frame):
    rows = frame[[name for name in frame if name not in ("y", "task")]].to_numpy()
    there = {name: frame[name].to_numpy() for name in ("y", "task") if name in frame}
    np.savez(folder / "a.npz", X=rows, **{name: values.astype(str) if values.dtype == object else values for name, values in there.items()})
    return folder / "a.npz"


def of_mat(folder, frame):
    there = {name: frame[name].to_numpy()[:, None] for name in ("y", "task") if name in frame}  # texts as cells
    scipy.io.savemat(folder / "a.mat", {"X": frame[["a", "b"]].to_numpy(), **there})
    return folder / "a.mat"


TABLES = [of_csv, of_tsv, of_parquet, of_feather, of_frame, of_dask]
WAYS = [*TABLES, of_npz, of_mat]
TYPED = WAYS[2:]
FILES = [of_csv, of_tsv]


def rows(n=12, **columns):
    rng = np.random.default_rng(0)
    values = {name: np.array(column)[np.arange(n) % len(column)] for name, column in columns.items()}
    values = {name: column.astype(object) if column.dtype.kind == "U" else column for name, column in values.items()}
    return pd.DataFrame({"a": rng.standard_normal(n), "b": rng.standard_normal(n), **values})


NAMES = [
    (["007", "7", "12"], ("007", "12", "7")),
    (["1.10", "1.1", "1.9"], ("1.1", "1.10", "1.9")),
    (["1.0", "1", "2"], ("1", "1.0", "2")),
    (["+1", "-1"], ("+1", "-1")),
    (["1e3", "2"], ("1e3", "2")),
    (SNOMED, tuple(SNOMED)),
    (["9", "NA", "yes"], ("9", "NA", "yes")),
    (["0.5", "1", "2.5"], (0.5, 1, 2.5)),
    (["1.0", "0.0"], (0, 1)),
    (["10", "9", "-1"], (-1, 9, 10)),
]


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("texts", "labels"), NAMES, ids=lambda value: ",".join(map(str, value)))
def test_labels_are_numbers_only_if_all_read_back(make, texts, labels, tmp_path):
    frame = rows(y=texts)
    store = ingest(make(tmp_path, frame), tmp_path / "S", target="y")
    assert store.meta.labels == labels and list(map(type, store.meta.labels)) == list(map(type, labels))
    wanted = [str(label) for label in labels] if isinstance(labels[0], str) else [float(label) for label in labels]
    read = frame["y"] if isinstance(labels[0], str) else frame["y"].astype(float)
    assert store.target().tolist() == [wanted.index(value) for value in read]


@pytest.mark.parametrize("make", TYPED, ids=lambda make: make.__name__)
def test_integers_beyond_2_53_are_names_that_stay_apart(make, tmp_path):
    numbers = np.array(SNOMED).astype(np.int64)
    frame = rows(y=numbers, task=numbers[::-1])
    store = ingest(make(tmp_path, frame), tmp_path / "S", target="y", task_column="task")
    assert store.meta.labels == store.meta.task_names == tuple(SNOMED)
    assert [SNOMED[int(code)] for code in store.target()] == [str(value) for value in frame["y"]]
    assert [SNOMED[code] for code in store.row_table("task")] == [str(value) for value in frame["task"]]


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("texts", "names"),
    [
        (["10", "9", "-1"], None),
        (["1", "1.0"], ("1", "1.0")),
        (["007", "7"], ("007", "7")),
        (SNOMED, tuple(SNOMED)),
        (["x", "1"], ("1", "x")),
    ],
    ids=lambda value: str(value),
)
def test_tasks_are_numbers_only_if_all_read_back(make, texts, names, tmp_path):
    frame = rows(y=[0, 1], task=texts)
    store = ingest(make(tmp_path, frame), tmp_path / "S", target="y", task_column="task")
    assert store.meta.task_names == names
    tasks = store.row_table("task")
    assert [str(task) if names is None else names[task] for task in tasks] == frame["task"].tolist()


def test_later_files_follow_the_record(tmp_path):
    """Among numbers 1.0 is 1; among names 7 is not 007."""
    first = ingest(of_csv(tmp_path, rows(y=["0", "1"], task=["5", "6"])), tmp_path / "S", target="y", task_column="task")
    later = ingest(of_csv(tmp_path, rows(y=["1.0", "0.0"], task=["6.0", "5.0"])), tmp_path / "T", like=first.url)
    assert later.meta.labels == (0, 1) and later.target()[:2].tolist() == [1, 0]
    assert later.meta.task_names is None and later.row_table("task")[:2].tolist() == [6, 5]
    names = ingest(of_csv(tmp_path, rows(y=["007", "7"], task=["01", "1"])), tmp_path / "U", target="y", task_column="task")
    later = ingest(of_frame(tmp_path, rows(y=[7], task=[1])), tmp_path / "V", like=names.url)
    assert later.target()[0] == 1 and later.meta.task_names == ("1",)
    with pytest.raises(DataError, match=r"line 2|:2.*label '1' is not one of the declared labels '007', '7'"):
        ingest(of_csv(tmp_path, rows(y=["1"], task=["1"])), tmp_path / "W", like=names.url)


@pytest.mark.parametrize("word", ["NA", "nan", "?", "null", "None", "."])
@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_a_missing_word_among_numbers_is_no_class_and_no_task(make, word, tmp_path):
    numbers = ["0", "1", "0", "1", word, "0"]
    for table, texts in (("y", {"y": numbers, "task": ["1"]}), ("task", {"y": ["0", "1"], "task": numbers})):
        what = "label" if table == "y" else "task"
        place = rf"a\.[ct]sv:6:\d: column '{table}': " if make in FILES else "row 5"
        with pytest.raises(DataError, match=rf"{place}.*the {what} {f'.{word}. ' if word else ''}is missing".replace("?", r"\?")):
            ingest(make(tmp_path, rows(**texts)), tmp_path / "S", target="y", task_column="task")


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
def test_a_feature_beyond_2_53_is_refused_by_name(make, tmp_path):
    frame = rows(y=[0, 1])
    codes = np.array(SNOMED).astype(np.int64)[np.arange(len(frame)) % 3]
    place = "code"
    if make in (of_npz, of_mat):  # a matrix of one type
        frame, place = frame[["y"]], "column 2"
        save = np.savez if make is of_npz else lambda path, **arrays: scipy.io.savemat(path, arrays)
        source = tmp_path / f"a.{make.__name__[3:]}"
        save(source, X=np.column_stack([np.arange(len(frame)), codes]), y=frame["y"].to_numpy())
    else:
        source = make(tmp_path, frame.assign(code=codes))
    with pytest.raises(DataError, match=rf"{place}.*is beyond 2\^53 and cannot be stored exactly"):
        ingest(source, tmp_path / "S", **({} if make is of_mat else {"target": "y"}))


@pytest.mark.parametrize("text", ["900000000000207008", " 9007199254740993"])
def test_wide_rows_refuse_what_others_refuse(text, tmp_path):
    width = 1200
    (tmp_path / "a.csv").write_text(f"{','.join(f'c{k}' for k in range(width))}\n{','.join(['007'] * width)}\n{text}{',1' * (width - 1)}\n")
    with pytest.raises(DataError, match=r"a\.csv:3:1: .*is beyond 2\^53"):
        ingest(tmp_path / "a.csv", tmp_path / "S", budget=MIN_BUDGET)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(("number", "value"), [("007", 7), ("-01.50", -1.5), (" +08", 8)])
def test_zeros_in_front_of_a_feature_are_said_once(make, number, value, tmp_path):
    frame, told = rows(y=["0", "1"], code=["12", number, "5"]), []
    store = ingest(make(tmp_path, frame), tmp_path / "S", target="y", warn=told.append)
    assert store.columns([2]).reshape(-1)[:3].tolist() == [12, value, 5]
    assert len(told) == 1 and f"'code': values such as '{number}' are numbers here" in told[0] and "--categorical code" in told[0]
    store = ingest(make(tmp_path, frame), tmp_path / "T", target="y", categorical=["code"], warn=told.append)
    assert len(told) == 1 and f"code={number}" in store.feature_names()


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (lambda k: f"{k},5", "--decimal ,"),
        (lambda k: f"{k}%", "write them plainly"),
        (lambda k: f"€{k}.5", "write them plainly"),
        (lambda k: f"{k}.5D+00", "write them plainly"),
        (lambda k: "abcdefghijklmnopqrstuvwxyzABCDEFGHI"[k], "--drop code"),
    ],
    ids=["comma", "percent", "currency", "fortran", "names"],
)
def test_a_level_for_nearly_every_row_is_said(make, texts, advice, tmp_path):
    frame, told = rows(35, y=["0", "1"]), []
    frame["code"] = [texts(k) for k in range(35)]
    ingest(make(tmp_path, frame), tmp_path / "S", target="y", warn=told.append)
    assert len(told) == 1 and "'code' has 35 categories in 35 rows" in told[0] and advice in told[0]
    ingest(make(tmp_path, frame), tmp_path / "T", target="y", categorical=["code"], warn=told.append)
    assert len(told) == 1, "the user says that these are names"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("make", ["csv", "tsv", "again.csv", "parquet"])
def test_the_index_of_a_frame_is_no_feature(make, first, tmp_path):
    frame, told, path = rows(y=[0, 1]), [], tmp_path / f"t.{make}"
    frame.index = list(range(first, first + len(frame)))
    if make == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, sep="\t" if make == "tsv" else ",", index_label="Unnamed: 0" if make == "again.csv" else None)
    store = ingest(path, tmp_path / "S", target="y", warn=told.append)
    assert store.feature_names() == ["a", "b"] and len(told) == 1 and "it is left out" in told[0]
    later = ingest(path, tmp_path / "T", like=store.url, warn=told.append)
    assert later.feature_names() == ["a", "b"] and len(told) == 1
    if make != "parquet":
        frame.iloc[::-1].to_csv(path, sep="\t" if make == "tsv" else ",")  # these numbers say something
        assert ingest(path, tmp_path / "U", target="y", warn=told.append).n_cols == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_index_of_a_frame_is_no_covariate(ending, tmp_path):
    frame = pd.DataFrame({"age": [50.0, 40.5, 30.0]}, index=[0, 1, 2])
    frame.to_csv(tmp_path / "z.csv") if ending == "csv" else frame.to_parquet(tmp_path / "z.parquet")
    with pytest.warns(UserWarning, match="left out") if ending == "csv" else nullcontext():
        values, names = load_columns(columns_file(str(tmp_path / f"z.{ending}"), 3))
    assert names == ["age"] and values.tolist() == [[50.0], [40.5], [30.0]]


@pytest.mark.parametrize("target", [3, np.int64(3), "3"])
def test_columns_called_by_numbers(target, tmp_path):
    frame = pd.DataFrame(np.c_[np.random.default_rng(0).standard_normal((12, 3)), np.arange(12) % 2])
    store = ingest(frame, tmp_path / "S", target=target)
    assert store.meta.labels == (0, 1) and store.feature_names() == ["0", "1", "2"]
    with pytest.raises(SchemaError, match="<DataFrame> has no column '7'; it has 0, 1, 2, 3"):
        ingest(frame, tmp_path / "T", target=7)


@pytest.mark.parametrize("compressed", [False, True])
def test_cells_of_matlab_are_texts(compressed, tmp_path):
    texts = np.array(["süd", "Nord", "", "x" * 300], dtype=object)
    for values in (texts[:2, None], texts[None, [1, 0]]):
        scipy.io.savemat(tmp_path / "a.mat", {"X": np.eye(2), "y": values, "other": texts[:, None]}, do_compression=compressed)
        assert ingest(tmp_path / "a.mat", tmp_path / "S", overwrite=True).meta.labels == ("Nord", "süd")
    scipy.io.savemat(tmp_path / "a.mat", {"X": np.eye(4), "y": texts[:, None]}, do_compression=compressed)
    with pytest.raises(DataError, match=r"row 3.*the label is missing"):
        ingest(tmp_path / "a.mat", tmp_path / "T")


@pytest.mark.parametrize("make", WAYS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("gone", ["", "NA", "?"])
def test_rows_without_a_target_are_dropped_on_demand(make, task, gone, tmp_path):
    texts = ["0", "1", gone, "1", "0", gone]
    frame, told = rows(y=texts, task=["a", "b"]), []
    given = {"target": "y", "task_column": "task", "task": task, "warn": told.append}
    with pytest.raises(DataError, match=r"(a\.[ct]sv:4:|row 3).*is missing.*; --drop-missing-targets"):
        ingest(make(tmp_path, frame), tmp_path / "S", **given)
    store = ingest(make(tmp_path, frame), tmp_path / "S", drop_missing_targets=True, **given)
    kept = frame[frame["y"] != gone]
    assert told == [f"{tmp_path.name if make is None else dict(store.meta.info)['source']['name']}: 4 rows without a target are left out"]
    assert store.target().tolist() == kept["y"].astype(float).tolist() and store.n_rows == 8
    assert store.row_table("task").tolist() == [0 if name == "a" else 1 for name in kept["task"]]
    np.testing.assert_array_equal(store.columns([0, 1]), kept[["a", "b"]].to_numpy())


@pytest.mark.parametrize("source", ["frame", "sparse"])
def test_rows_are_dropped_with_all_that_is_theirs(source, tmp_path):
    y, ids = np.array([0.0, np.nan, 1.0, np.nan, 1.0]), ["one", "second", "3", "vierte", ""]
    X = np.array([[1.0, 0], [2, 3], [0, 4], [5, 6], [0, 0]])
    given = {"target": y, "weight_column": np.arange(5.0), "id_column": [*ids[:4], "e"], "drop_missing_targets": True, "warn": str}
    store = ingest(pd.DataFrame(X, columns=["a", "b"]) if source == "frame" else sp.csr_array(X), tmp_path / "S", **given)
    columns = store.columns([0, 1])
    assert (columns if source == "frame" else columns.toarray()).tolist() == X[[0, 2, 4]].tolist()
    assert (
        store.target().tolist() == [0, 1, 1]
        and store.row_table("weight").tolist() == [0, 2, 4]
        and store.ids().tolist() == ["one", "3", "e"]
    )


def test_what_may_be_a_name_is_not_dropped(tmp_path):
    for texts in (["NA", "yes", "no"], ["yes", "NA", "no"]):
        source = of_csv(tmp_path, rows(y=texts))
        with pytest.raises(DataError, match=r"a\.csv:[23]:3: column 'y': the label 'NA' among names.*--missing-words NA"):
            ingest(source, tmp_path / "S", target="y", drop_missing_targets=True)
        assert ingest(source, tmp_path / "T", target="y", overwrite=True).meta.labels == ("NA", "no", "yes")
    store = ingest(source, tmp_path / "U", target="y", drop_missing_targets=True, missing_words=["NA"], warn=str)
    assert store.meta.labels == ("no", "yes") and store.n_rows == 8
    (tmp_path / "a.svm").write_text("1 1:1\n")
    with pytest.raises(SchemaError, match="drop_missing_targets is for tables and arrays"):
        ingest(tmp_path / "a.svm", tmp_path / "V", drop_missing_targets=True)


@pytest.mark.parametrize("make", TABLES, ids=lambda make: make.__name__)
def test_words_that_stand_for_missing_values(make, tmp_path):
    frame = rows(y=["yes", "no"], code=["1", "unknown", "2"], name=["a", "NA", "unknown"])
    source = make(tmp_path, frame)
    with pytest.raises(DataError, match=r"'code'.*value 'unknown' is not a finite number"):
        ingest(source, tmp_path / "S", target="y", missing="indicator")
    store = ingest(source, tmp_path / "S", target="y", missing="indicator", missing_words=["unknown"])
    assert store.feature_names() == ["a", "b", "code", "code is missing", "name=NA", "name=a", "name is missing"]
    later = ingest(of_csv(tmp_path, frame), tmp_path / "T", like=store.url)
    assert np.array_equal(later.columns([2, 3, 4, 5, 6]), store.columns([2, 3, 4, 5, 6])), "words belong to what was learnt"
    with pytest.raises(SchemaError, match=r"missing_words is .*leave missing_words out"):
        ingest(source, tmp_path / "U", like=store.url, missing_words=["other"])
    with pytest.raises(DataError, match="the label is missing"):
        ingest(source, tmp_path / "U", target="y", drop=["code", "name"], missing_words=["no"])


@pytest.mark.parametrize("ending", ["csv", "tsv", "wide"])
def test_decimal_commas(ending, tmp_path):
    width = 1200 if ending == "wide" else 2
    frame = rows(30, **({} if ending == "wide" else {"word": ["x, y", "1,5b", "z"]}))
    more = {**{f"c{k}": 0.5 for k in range(2, width)}, "y": np.arange(30) / 4}
    frame = pd.concat([frame, pd.DataFrame(more)], axis=1)
    path = tmp_path / f"a.{'tsv' if ending == 'tsv' else 'csv'}"
    frame.to_csv(path, index=False, sep="\t" if ending == "tsv" else ";", decimal=",")
    options = {"target": "y", "task": "regression", "budget": MIN_BUDGET}
    store = ingest(path, tmp_path / "S", decimal=",", **options)
    assert store.feature_names()[:2] == ["a", "b"] and store.target().tolist() == frame["y"].tolist()
    np.testing.assert_array_equal(store.columns([0, 1]), frame[["a", "b"]].to_numpy())
    assert ending == "wide" or store.feature_names()[2:] == ["word=1,5b", "word=x, y", "word=z"]
    assert np.array_equal(ingest(path, tmp_path / "T", like=store.url).target(), store.target()), "the sign belongs to what was learnt"
    with pytest.raises(SchemaError, match="decimal is ';'; it must be one of"):
        ingest(path, tmp_path / "U", decimal=";", **options)

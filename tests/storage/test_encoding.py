"""Odd tables: whatever the columns hold, they become what the obvious reading of them makes, or are refused by name."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gramplane.storage import DataError, SchemaError
from gramplane.storage.encoding.chunks import chunk_of_objects
from gramplane.storage.encoding.columns import ColumnReader
from gramplane.storage.encoding.encoder import encode, encoder_of
from gramplane.storage.encoding.frames import open_frame
from gramplane.storage.encoding.record import (
    MISSING_WORDS,
    ColumnEncoding,
    TableColumns,
    first_difference,
    is_missing_word,
    is_number_like,
    make_encoding,
)
from gramplane.storage.encoding.table import TableReader, summarise
from gramplane.storage.records import from_arrays, to_arrays

LETTERS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8) | st.sampled_from(
    ['a"b', "a,b", "ß", "日本", "x" * 3000, " ", "=", "NA"]
)
NUMBERS = st.sampled_from(["1", "2.5", "-3", "1e3", "0", "007", " 4", "inf", "1e999"])
CELLS = st.one_of(LETTERS, NUMBERS, st.sampled_from([*sorted(MISSING_WORDS), "true", "False"]))


def refuse(reason, row):
    return ValueError(f"{row}: {reason}")


def read(values, pieces=1, **rules):
    """The numbers of a column that is read in pieces, and its reader."""
    reader, parts = ColumnReader("c", refuses=False, **rules), []
    for part in np.array_split(np.array(values, dtype=object), pieces):
        parts.append(reader.read(chunk_of_objects(part), refuse))
    reader.check_end(refuse)
    return reader.final(np.concatenate(parts), 0), reader


def obvious(values):
    """The same by the rule itself: kind, and what stands in every row; an error where a cell does not fit the first one."""
    there = [value for value in values if value is not None and not is_missing_word(value)]
    is_gone = [value is None or is_missing_word(value) for value in values]
    if not there or is_number_like(there[0]):
        if any(not is_number_like(value) for value in there):
            raise ValueError
        return "numeric", [np.nan if gone else float(value) for value, gone in zip(values, is_gone, strict=True)]
    if there[0].strip().lower() in ("true", "false"):
        if any(value.strip() not in ("true", "True", "TRUE", "false", "False", "FALSE") for value in there):
            raise ValueError
        return "boolean", [np.nan if gone else float(value.strip().lower() == "true") for value, gone in zip(values, is_gone, strict=True)]
    return "nominal", [None if value in (None, "") else value for value in values]


@given(st.lists(st.none() | CELLS, max_size=9), st.integers(1, 4))
@settings(max_examples=400, deadline=None)
def test_a_column_of_texts_is_read_by_the_rule_in_any_pieces(values, pieces):
    try:
        kind, expected = obvious(values)
    except ValueError:
        with pytest.raises(ValueError, match=r"--categorical c|is a number among|dates"):
            read(values, pieces)
        return
    try:
        found, reader = read(values, pieces)
    except ValueError as error:
        assert kind == "nominal" and ("number among texts" in str(error) or "dates" in str(error))
        return
    assert reader.final_kind == kind
    if kind != "nominal":
        np.testing.assert_array_equal(found, np.array(expected, float))
        return
    levels = reader.sorted_levels()
    assert levels == sorted({value for value in expected if value is not None})
    assert [None if np.isnan(code) else levels[int(code)] for code in found] == expected


@given(st.lists(st.none() | CELLS, max_size=9), st.integers(1, 4))
@settings(max_examples=150, deadline=None)
def test_a_column_that_is_named_has_the_levels_that_stand_in_it(values, pieces):
    found, reader = read(values, pieces, is_named=True)
    levels = reader.sorted_levels()
    expected = [None if value in (None, "") else value for value in values]
    assert sorted(levels) == sorted({value for value in expected if value is not None})
    assert [None if np.isnan(code) else levels[int(code)] for code in found] == expected
    again = ColumnReader("c")
    again.restore(reader.to_json())
    assert again.sorted_levels() == levels


FRAMES = st.integers(1, 6).flatmap(
    lambda n: st.lists(
        st.one_of(
            st.lists(st.none() | st.sampled_from(["a", "b", 'q"u', "日"]), min_size=n, max_size=n).map(
                lambda v: pd.Series(v, dtype=object)
            ),
            st.lists(st.none() | st.sampled_from([0.0, 1.5, -2.25]), min_size=n, max_size=n).map(lambda v: pd.Series(v, dtype=float)),
            st.lists(st.none() | st.booleans(), min_size=n, max_size=n).map(lambda v: pd.Series(v, dtype="boolean")),
            st.lists(st.none() | st.sampled_from("xy"), min_size=n, max_size=n).map(lambda v: pd.Series(pd.Categorical(v, list("xyz")))),
        ),
        min_size=1,
        max_size=4,
    )
)
NAMES = st.sampled_from(["a", "a=b", "b is missing", "=", "日 本", 'q"', "a=b (2)"])


@given(FRAMES, st.data(), st.sampled_from(["keep", "mean", "median", "indicator"]))
@settings(max_examples=60, deadline=None)
def test_frames_become_dummies_and_imputed_numbers(columns, data, missing):
    names = data.draw(st.lists(NAMES, min_size=len(columns), max_size=len(columns), unique=True))
    frame = open_frame(pd.DataFrame(dict(zip(names, columns, strict=True))))
    reader = TableReader(frame.columns, frame.numbers, missing=missing)
    coded = np.array([reader.read(k, frame.chunk(k, 0, frame.n_rows), refuse) for k in range(len(names))])
    coded = reader.final(coded, 0)
    summaries = {} if missing == "keep" else {k: summarise(values, missing) for k, values in enumerate(coded)}
    encoding = reader.encoding(summaries)
    X = encode(replace(encoding, is_sparse=False), coded).T
    assert len(X) == encoding.n_features == len(set(encoding.feature_names))
    at = 0
    for series, column in zip(columns, encoding.sources, strict=True):
        values, part = series.to_numpy(dtype=object, na_value=None), X[at : at + len(column.features)]
        gone = np.array([value is None or value != value for value in values])
        if column.kind == "nominal":
            assert [list(part[k]) for k in range(len(column.levels))] == [[float(v == level) for v in values] for level in column.levels]
        else:
            there = np.array([float(value) for value, g in zip(values, gone, strict=True) if not g])
            fill = np.nan if missing == "keep" else 0.0 if not len(there) else (np.median if missing == "median" else np.mean)(there)
            np.testing.assert_allclose(part[0], [fill if g else float(v) for v, g in zip(values, gone, strict=True)], rtol=1e-12)
        assert column.has_indicator == (missing == "indicator" and bool(gone.any()))
        if column.has_indicator:
            assert part[-1].tolist() == gone.tolist()
        at += len(column.features)
    if missing != "keep":
        rows = encode(replace(encoding, is_sparse=True), coded)
        assert sp.issparse(rows) and rows.has_canonical_format and not (rows.data == 0).any()
        np.testing.assert_array_equal(rows.toarray(), X.T)
    else:  # as rules read it: numbers of levels, -1 for one that is not known
        new = np.where(
            [[column.kind == "nominal"] for column in encoding.sources], np.where(np.arange(coded.shape[1]) == 0, -1, coded), coded
        )
        np.testing.assert_array_equal(encode(make_encoding(encoding.columns, "codes"), new).T, new)
        are_levels = [column.kind == "nominal" for column in encoding.sources for _ in column.features]
        assert not encode(replace(encoding, is_sparse=False), new)[0, are_levels].any()
    assert from_arrays(TableColumns, *to_arrays(encoding)) == encoding
    # Rows of another table are read by it, and these as they were.
    follow = TableReader(frame.columns, known=encoding, missing="keep")
    again = follow.final(np.array([follow.read(k, frame.chunk(k, 0, frame.n_rows), refuse) for k in range(len(names))]), 0)
    np.testing.assert_array_equal(encode(replace(encoding, is_sparse=False), again).T, X)
    assert [*encoder_of(encoding).get_feature_names_out()] == encoding.feature_names
    assert follow.messages() == []


def test_differences_of_encodings_are_named():
    one = make_encoding([ColumnEncoding("a", "nominal", ("x", "y")), ColumnEncoding("b", "numeric", fill=1.0)], "one-hot")
    assert first_difference(one, one) is None
    other = make_encoding([ColumnEncoding("a", "nominal", ("x", "z")), ColumnEncoding("b", "numeric", fill=1.0)], "one-hot")
    assert first_difference(one, other) == "column 'a': levels ('x', 'y') and ('x', 'z')"
    filled = make_encoding([ColumnEncoding("a", "nominal", ("x", "y")), ColumnEncoding("b", "numeric", fill=2.0)], "one-hot")
    assert first_difference(one, filled) == "column 'b': fill 1.0 and 2.0"
    fewer = make_encoding([ColumnEncoding("a", "nominal", ("x", "y"))], "one-hot")
    assert first_difference(one, fewer) == "column 'b' is in one of them only"
    assert first_difference(one, make_encoding(one.columns, "codes")) == "nominal columns as one-hot and as codes"


def test_feature_names_never_stand_twice():
    columns = [ColumnEncoding("a=b", "numeric"), ColumnEncoding("a", "nominal", ("b", "c")), ColumnEncoding("a=b (2)", "numeric")]
    assert make_encoding(columns, "one-hot").feature_names == ["a=b", "a=b (2)", "a=c", "a=b (2) (2)"]


@given(st.binary(max_size=60) | st.text('ab,;"\n1. NAtrue', max_size=60).map(str.encode))
@settings(max_examples=150, deadline=None)
@example(b"\x1c0")
@example(b"a,b\n1,\x1c0\n2,\x1c1\n")
def test_any_bytes_are_a_table_or_refused(tmp_path_factory, content):
    from gramplane.storage.ingest import ingest

    folder = tmp_path_factory.mktemp("bytes")
    (folder / "a.csv").write_bytes(content)
    try:
        store = ingest(folder / "a.csv", folder / "S", missing="indicator")
    except (DataError, SchemaError) as error:
        assert str(error)
        return
    X = store.columns(range(store.n_cols))
    assert (
        store.verify().ok and np.isfinite(X if isinstance(X, np.ndarray) else X.data).all() and len(store.feature_names()) == store.n_cols
    )

"""Rows too wide for a reader of columns: read in parts of any size they are the same numbers, and what is wrong is told by line."""

from io import BytesIO

import numpy as np
import pytest

from gramplane.storage.errors import DataError
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.tables import csv_text
from gramplane.storage.ingest.tables.csv_text import WideRows

CELLS = np.random.default_rng(0).normal(size=(5, 40)).round(3)


def text_of(cells, end="\n", last="\n"):
    return (end.join(",".join(map(str, row)) for row in cells.tolist()) + last).encode()


def rows_of(text, columns=40, texts=(), delimiter=","):
    return list(WideRows(BytesIO(text), delimiter, columns, set(texts), 1, "w.csv", lambda name, cells: cells))


@pytest.mark.parametrize("options", [{}, {"drop": ["sex"]}, {"columns": ["g1", "sex"]}, {"categorical": ["code"]}, {"missing": "keep"}])
def test_a_table_too_wide_for_the_reader_of_columns_is_the_same_table(tmp_path, monkeypatch, options):
    lines = [f"{'mfm'[k % 3]},{k % 2 + 1},{k / 8},{'NA' if k == 4 and options.get('missing') else k},{'uv'[k % 2]}" for k in range(30)]
    (tmp_path / "x.csv").write_text("sex,code,g1,g2,outcome\n" + "\n".join(lines) + "\n")
    plain = ingest(tmp_path / "x.csv", tmp_path / "plain", target="outcome", **options)
    monkeypatch.setattr("gramplane.storage.ingest.tables.csv_text.COLUMN_BYTES", 1 << 40)
    wide = ingest(tmp_path / "x.csv", tmp_path / "wide", target="outcome", **options)
    assert wide.digest == plain.digest and wide.feature_names() == plain.feature_names()
    (tmp_path / "x.csv").write_text("sex,code,g1,g2,outcome\n" + "\n".join([*lines, "m,1,a,3,u"]) + "\n")
    if "g1" in plain.feature_names():
        with pytest.raises(DataError, match=r"x\.csv:32:3: column 'g1': value 'a' is not a finite number; .*--categorical g1"):
            ingest(tmp_path / "x.csv", tmp_path / "late", target="outcome", **options)


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize(("end", "last"), [("\n", "\n"), ("\n", ""), ("\r\n", "\r\n"), ("\r\n", "")])
def test_parts_of_any_size_give_the_same_rows(monkeypatch, size, end, last):
    monkeypatch.setattr(csv_text, "_LEAST", size)
    found = rows_of(text_of(CELLS, end, last))
    np.testing.assert_array_equal([row.values for row in found], CELLS)
    assert [row.texts for row in found] == [{}] * 5


@pytest.mark.parametrize("size", [5, 1 << 20])
def test_texts_are_kept_by_column_and_blank_lines_passed_over(monkeypatch, size):
    monkeypatch.setattr(csv_text, "_LEAST", size)
    found = rows_of(b"1,red,3\n\n4,blue,\n", 3, {1})
    assert [row.texts for row in found] == [{1: "red"}, {1: "blue"}]
    np.testing.assert_array_equal([row.values for row in found], [[1, 0, 3], [4, 0, np.nan]])


@pytest.mark.parametrize("size", [5, 1 << 20])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"1,2,3\n1,2\n", "w.csv:3.*the row has 2 fields or more; the header has 3"),
        (b"1,2,3\n1,2,3,4\n", "w.csv:3.*the row has 4 fields or more; the header has 3"),
        (b"1,2,3\n\n1,x,3\n", "w.csv:4.*x"),
        (b'1,2,3\n1,"2",3\n', "w.csv:3.*quoted"),
    ],
)
def test_what_is_wrong_is_told_by_line(monkeypatch, size, text, words):
    monkeypatch.setattr(csv_text, "_LEAST", size)
    with pytest.raises(DataError, match=words):
        rows_of(text, 3)


def test_a_cell_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr(csv_text, "_LEAST", 100)
    monkeypatch.setattr(csv_text, "_LONGEST", 1000)
    stream = BytesIO(b"1," + b"9" * 10**6)
    with pytest.raises(DataError, match=r"w\.csv:2.*a cell has more than 1000 bytes"):
        list(WideRows(stream, ",", 2, set(), 1, "w.csv", lambda name, cells: cells))
    assert stream.tell() < 2000

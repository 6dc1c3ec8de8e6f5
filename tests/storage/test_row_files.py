"""Files that say something of the rows of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import DataError, read_edges, read_pairs, read_row_texts


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "pairs.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_pairs_in_any_common_form(tmp_path):
    text = "row,other,sign\n0,2,1\n\n3 1 -1  # apart\n2;0;1\n4\t5\t-1\n"
    assert read_pairs(written(tmp_path, text), 6, (-1, 1)).tolist() == [[0, 2, 1], [1, 3, -1], [4, 5, -1]]


def test_order_counts_where_it_is_asked_for(tmp_path):
    text = "0,2,1\n2,0,0\n"
    assert read_pairs(written(tmp_path, text), 3, (0, 1), ordered=True).tolist() == [[0, 2, 1], [2, 0, 0]]
    assert read_pairs(written(tmp_path, "1,0,1"), 3, (0, 1), ordered=True).dtype == np.int64


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0,1,1\n0,9,1\n", r"pairs.csv:2: row 9 is not in the store, whose rows are 0 to 5"),
        ("0,1,1\n-1,2,1\n", r"pairs.csv:2: row -1 is not in the store"),
        ("0,1,1\n\n1,0,-1\n", r"pairs.csv:3: rows 1 and 0 have the value -1 here and 1 in line 1"),
        ("0,1,2\n", r"pairs.csv:1: the value of a pair is 2; it must be one of -1, 1"),
        ("3,3,1\n", r"pairs.csv:1: row 3 is paired with itself"),
        ("0,1\n", r"pairs.csv:1: '0 1' must be three integers: row, row, value"),
        ("a,b,c\n0,1,x\n", r"pairs.csv:2: '0 1 x' must be three integers"),
        ("i,j,sign\n", r"pairs.csv: holds no pairs; write one per line"),
        ("", r"pairs.csv: holds no pairs"),
    ],
)
def test_bad_pairs_are_told_with_their_line(tmp_path, text, told):
    with pytest.raises(DataError, match=told):
        read_pairs(written(tmp_path, text), 6, (-1, 1))


def test_one_text_per_row(tmp_path):
    path = written(tmp_path, "sun sea\n\nsea\n")
    assert read_row_texts(path, 3) == ["sun sea", "", "sea"]
    with pytest.raises(DataError, match=r"pairs.csv:4: the file has 3 lines; there must be one for each of the 5 rows of the store"):
        read_row_texts(path, 5)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(DataError, match="cannot be read: No such file"):
        read_pairs(str(tmp_path / "none.csv"), 3, (0, 1))
    (tmp_path / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.txt:1:4: the byte 0xe9 is no text in utf-8; write the file in UTF-8"):
        read_row_texts(str(tmp_path / "latin.txt"))


def test_edges_in_any_common_form(tmp_path):
    text = "from,to\n0,2\n\n3 1 # apart\n4\t5\n"
    assert read_edges(written(tmp_path, text), 6).tolist() == [[0, 2], [1, 3], [4, 5]]
    assert read_edges(written(tmp_path, "7,90")).tolist() == [[7, 90]]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("0,1\n0,9\n", r"pairs.csv:2: feature 9 does not exist, features are 0 to 5"),
        ("-1,2\n", r"pairs.csv:1: feature -1 does not exist"),
        ("3,3\n", r"pairs.csv:1: feature 3 has an edge to itself"),
        ("0,2\n\n2;0\n", r"pairs.csv:3: the edge of features 2 and 0 is both here and in line 1"),
        ("0,2\n1,2\n0,2\n", r"pairs.csv:3: the edge of features 0 and 2 is both here and in line 1"),
        ("0,1,1\n", r"pairs.csv:1: '0 1 1' must be two integers: feature, feature"),
        ("i,j\n", r"pairs.csv: holds no edges; write one per line: feature,feature"),
    ],
)
def test_bad_edges_are_told_with_their_line(tmp_path, text, told):
    with pytest.raises(DataError, match=told):
        read_edges(written(tmp_path, text), 6)

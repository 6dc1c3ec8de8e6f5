"""One reader of text: marks, encodings, line ends, packers, and what is refused; for data and for every file beside them."""

import bz2
import codecs
import gzip
import io
import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from gramplane.storage import DataError, SchemaError
from gramplane.storage.blocks.row_files import read_edges, read_named_rows, read_pairs, read_row_texts
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.options import read_groups, read_names
from gramplane.storage.text import open_text as text_module
from gramplane.storage.text.open_text import open_text, read_lines
from gramplane.workflows.commands.actions import read_groups as read_groups_file

FORMS = {
    "plain": lambda text: text.encode(),
    "mark": lambda text: codecs.BOM_UTF8 + text.encode(),
    "utf-16-le": lambda text: codecs.BOM_UTF16_LE + text.encode("utf-16-le"),
    "utf-16-be": lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    "windows": lambda text: text.replace("\n", "\r\n").encode(),
    "old mac": lambda text: text.replace("\n", "\r").encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "mark in bzip2": lambda text: bz2.compress(codecs.BOM_UTF8 + text.encode()),
}


def written(path: Path, text: str, form: str) -> Path:
    path.write_bytes(FORMS[form](text))
    return path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", [1, 3, 1 << 20])
def test_every_form_is_the_same_text(tmp_path, monkeypatch, form, piece):
    monkeypatch.setattr(text_module, "_PIECE", piece)
    text = "Größe\tα\nz wei\u2028\x0b\n\nlast"
    assert read_lines(written(tmp_path / "x.txt", text, form)) == text.split("\n")
    assert read_lines(written(tmp_path / "x.txt", text + "\n", form)) == text.split("\n")


def test_an_encoding_without_a_mark_is_named(tmp_path):
    (tmp_path / "x.csv").write_bytes("größe;y\n1;a\n2;b\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"x\.csv:1:3: the byte 0xf6 is no text in utf-8; name the encoding .*--encoding latin-1"):
        ingest(tmp_path / "x.csv", tmp_path / "s", target="y")
    store = ingest(tmp_path / "x.csv", tmp_path / "s", target="y", encoding="latin-1")
    assert store.feature_names() == ["größe"] and store.source.options["encoding"] == "iso8859-1"
    assert ingest(tmp_path / "x.csv", tmp_path / "t", like=store.url).feature_names() == ["größe"]
    with pytest.raises(SchemaError, match=r"encoding is 'latin-99'; it must be the name of an encoding"):
        ingest(tmp_path / "x.csv", tmp_path / "u", target="y", encoding="latin-99")


@pytest.mark.parametrize("piece", [2, 1 << 20])
def test_bytes_that_are_no_text_are_refused_by_line_and_column(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(text_module, "_PIECE", piece)
    cases = {
        b"ab\nc\0d\n": ":2:2: a zero byte",
        b"ab\n\xc3\xa4\xff\n": ":2:2: the byte 0xff is no text",
        b"a\nb\xc3": ":2:2: the byte 0xc3",
    }
    for data, told in cases.items():
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(DataError, match=told):
            read_lines(tmp_path / "x")


SVMLIGHT, CSV, FASTA = "1 1:0.5 3:2\n-1 2:1\n1 1:4\n", "a,b,y\n1,2,u\n3,4,v\n5,6,u\n", ">s1 label=1\nACGT\n>s2 label=0\nTT\nTT\n"
TSV = CSV.replace(",", "\t")
DATA = {"x.svm": (SVMLIGHT, {}), "x.csv": (CSV, {"target": "y"}), "x.fasta": (FASTA, {}), "x.tsv": (TSV, {"target": "y"})}


@pytest.mark.parametrize("form", [form for form in FORMS if form != "plain"])
@pytest.mark.parametrize("name", DATA)
def test_data_in_every_form(tmp_path, name, form):
    text, options = DATA[name]
    (tmp_path / "plain").mkdir()
    places = [written(tmp_path / place / name, text, kind) for place, kind in (("plain", "plain"), ("", form))]
    stores = [ingest(place, tmp_path / f"s{k}", **options) for k, place in enumerate(places)]
    blocks = [[block.load() for block in store.column_blocks()] for store in stores]
    assert all((a != b).sum() == 0 for a, b in zip(*blocks, strict=True)) and stores[0].meta.labels == stores[1].meta.labels
    letters = [None if store.sequences() is None else store.sequences().tolist() for store in stores]
    assert letters[0] == letters[1] and stores[0].target().tolist() == stores[1].target().tolist()


BESIDE = {
    "groups": ("a\na\nb\n", lambda path: read_groups(path).tolist()),
    "groups as JSON": ("[[0, 1],\n [2, 3]]", lambda path: read_groups_file(str(path))),
    "names": ("age\nGröße\n", read_names),
    "edges": ("0,1\n1,2\n", lambda path: read_edges(str(path)).tolist()),
    "pairs": ("0,1,1\n1,2,-1\n", lambda path: read_pairs(str(path), 3, (1, -1)).tolist()),
    "tags": ("red blue\n\nred\n", lambda path: read_row_texts(str(path), 3)),
    "queries": ("q1,0\nq1,2\n", lambda path: read_named_rows(str(path), 3)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", BESIDE)
def test_files_beside_the_data_in_every_form(tmp_path, what, form):
    text, read = BESIDE[what]
    name = "x.json" if "JSON" in what else "x.txt"
    (tmp_path / "plain").mkdir()
    assert read(written(tmp_path / name, text, form)) == read(written(tmp_path / "plain" / name, text, "plain"))


def test_standard_input_in_pieces_of_one_byte(monkeypatch):
    class OneByte(io.BytesIO):
        def readinto(self, out):
            return super().readinto(memoryview(out)[:1])

        def read(self, size=-1):
            return super().read(1)

    class Stdin:
        buffer = OneByte(codecs.BOM_UTF8 + b"a\r\nb\r")

    monkeypatch.setattr("sys.stdin", Stdin)
    with open_text("-", "<stdin>").stream as stream:
        assert stream.readall() == b"a\nb\n"
    assert not Stdin.buffer.closed


def test_a_pipe_is_read_to_its_end_and_closed(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(b"a\nb",))
    writer.start()
    opened, real = [], text_module.open_file
    monkeypatch.setattr(text_module, "open_file", lambda path: opened.append(real(path)) or opened[0])
    with open_text(tmp_path / "pipe", "pipe").stream as stream:
        assert stream.readall() == b"a\nb"
    writer.join()
    assert opened[0].closed


def test_a_line_end_within_quotes_of_the_header(tmp_path):
    (tmp_path / "x.csv").write_text('"age\n(years)",b,y\n1,2,u\n3,4,v\n')
    assert ingest(tmp_path / "x.csv", tmp_path / "s", target="y").feature_names() == ["age\n(years)", "b"]


def test_names_and_groups_that_cannot_be(tmp_path):
    (tmp_path / "n.txt").write_text("TBX1\nTBX1\nABCF1\n")
    with pytest.raises(SchemaError, match="names has 'TBX1' twice"):
        ingest(np.ones((4, 3)), tmp_path / "s", names=tmp_path / "n.txt")
    (tmp_path / "g.csv").write_text("f0,a\nf1,a\nf2,b\n")
    with pytest.raises(DataError, match=r"g\.csv:1: 'f0,a': a line has two cells"):
        ingest(np.ones((4, 3)), tmp_path / "s", groups=tmp_path / "g.csv")
    (tmp_path / "g.json").write_text(json.dumps(["a", "a", "b"]))
    assert read_groups_file(str(tmp_path / "g.json")).tolist() == [0, 0, 1] and not (tmp_path / "s").exists()

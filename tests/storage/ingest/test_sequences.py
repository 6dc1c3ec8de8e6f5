"""Sequences: FASTA, strings and lists become the same store; faults are named by file, line and column."""

import gzip
import io
import os
import subprocess
import sys

import numpy as np
import pytest

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest
from tests.support.places import ROOT

TEXTS = ["ACGTAC", "GATTACA", "A", "CCCGGG"]
FASTA = (
    ">one label=1 task=3 weight=0.5\nACG\nTAC\n\n>two other label=-1 task=3 weight=2\nGATTACA\n;remark\n"
    ">three label=-1 task=4 weight=1\nA\n>4 label=1 task=4 weight=1\nCCCG\nGG"
)
STRINGS = "1\tACGTAC\n-1\tGATTACA\r\n-1\tA\n1\tCCCGGG"


def check(store, labels=(-1, 1)):
    assert list(store.sequences()) == TEXTS and store.shape == (4, 0) and store.meta.labels == labels
    assert store.sequences().dtype == object and list(store.sequences(1, 3)) == TEXTS[1:3] and list(store.sequences(4)) == []
    if labels is not None:
        assert store.target().tolist() == [1, 0, 0, 1]
    assert store.verify().ok and store.source.kind == "sequences"


@pytest.mark.parametrize("form", ["fasta", "strings"])
def test_files_of_either_form(tmp_path, form):
    text = FASTA if form == "fasta" else STRINGS
    path = tmp_path / ("x.fasta" if form == "fasta" else "x.txt")
    path.write_bytes(text.encode())
    check(ingest(path, tmp_path / "s", format="auto" if form == "fasta" else "strings"))
    check(BlockStore.open(tmp_path / "s"))
    packed = tmp_path / "x.fa.gz"
    packed.write_bytes(gzip.compress(text.encode()))
    check(ingest(packed, tmp_path / "t", format=form))
    assert BlockStore.open(tmp_path / "s").sequences(2)[0] == "A"


def test_all_forms_store_the_same_letters(tmp_path):
    (tmp_path / "a.fa").write_text(FASTA)
    (tmp_path / "b.txt").write_text(STRINGS)
    y = np.array([1, -1, -1, 1])
    stores = [
        ingest(tmp_path / "a.fa", tmp_path / "1"),
        ingest(tmp_path / "b.txt", tmp_path / "2", format="strings"),
        ingest((TEXTS, y), tmp_path / "3"),
        ingest(np.array(TEXTS), tmp_path / "4", target=y),
        ingest(np.array(TEXTS, dtype=object), tmp_path / "5", target=y),
    ]
    for store in stores:
        check(store)
    for name in ("sequences/letters", "sequences/offsets", "y"):
        found = {b"".join(p.read_bytes() for p in sorted((tmp_path / str(k) / name).rglob("*")) if p.is_file()) for k in range(1, 6)}
        assert len(found) == 1


def test_further_words_of_headers_become_tables(tmp_path):
    (tmp_path / "a.fa").write_text(FASTA)
    store = ingest(tmp_path / "a.fa", tmp_path / "s", task_column="task", weight_column="weight")
    assert store.row_table("task").tolist() == [3, 3, 4, 4] and store.row_table("weight").tolist() == [0.5, 2, 1, 1]
    other = ingest(tmp_path / "a.fa", tmp_path / "t", target="weight", task="regression")
    assert other.target().tolist() == [0.5, 2, 1, 1] and other.meta.labels is None


def test_sequences_without_labels(tmp_path):
    (tmp_path / "a.txt").write_text("\n".join(TEXTS) + "\n\n\n")
    store = ingest(tmp_path / "a.txt", tmp_path / "s", format="strings")
    check(store, None)
    assert not store.has_table("y")
    labelled = ingest(tmp_path / "a.txt", tmp_path / "t", format="strings", target=np.array(["p", "q", "q", "p"]))
    assert labelled.meta.labels == ("p", "q") and labelled.target().tolist() == [0, 1, 1, 0]


def test_text_labels_and_letters_beyond_ascii(tmp_path):
    (tmp_path / "a.txt").write_text("ja\tgrün\nnein\tblau\n", encoding="utf-8")
    store = ingest(tmp_path / "a.txt", tmp_path / "s", format="strings")
    assert list(store.sequences()) == ["grün", "blau"] and store.meta.labels == ("ja", "nein") and list(store.sequences(1)) == ["blau"]


def test_a_store_to_follow_gives_labels(tmp_path):
    train = ingest((TEXTS, ["b", "a", "a", "c"]), tmp_path / "train")
    (tmp_path / "test.txt").write_text("c\tGGA\nb\tTTT")
    test = ingest(tmp_path / "test.txt", tmp_path / "test", format="strings", like=tmp_path / "train")
    assert test.meta.labels == train.meta.labels == ("a", "b", "c") and test.target().tolist() == [2, 1]
    (tmp_path / "other.txt").write_text("d\tGGA")
    with pytest.raises(DataError, match="'d'"):
        ingest(tmp_path / "other.txt", tmp_path / "other", format="strings", like=tmp_path / "train")
    plain = ingest(["GG", "TT"], tmp_path / "plain", like=tmp_path / "train")
    assert plain.meta.labels is None or not plain.has_table("y")
    ingest((TEXTS, [0.5, 1.0, 2.0, 3.0]), tmp_path / "real", task="regression")
    assert ingest((["GG"], [4.5]), tmp_path / "more", like=tmp_path / "real").target().tolist() == [4.5]


def test_a_store_to_follow_must_hold_sequences_too(tmp_path):
    ingest((TEXTS, [1, -1, -1, 1]), tmp_path / "texts")
    ingest((np.eye(2), [0, 1]), tmp_path / "numbers")
    with pytest.raises(SchemaError, match=r"holds sequences; .* holds numbers"):
        ingest((np.eye(2), [0, 1]), tmp_path / "a", like=tmp_path / "texts")
    with pytest.raises(SchemaError, match=r"store\) is 2, but .* holds sequences"):
        ingest((TEXTS, [1, -1, -1, 1]), tmp_path / "b", like=tmp_path / "numbers")


def test_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(FASTA.encode())))
    check(ingest("-", tmp_path / "s", format="fasta"))


def test_a_finished_store_is_recognised_and_another_refused(tmp_path):
    (tmp_path / "a.fa").write_text(FASTA)
    first = ingest(tmp_path / "a.fa", tmp_path / "s")
    assert ingest(tmp_path / "a.fa", tmp_path / "s").digest == first.digest
    (tmp_path / "a.fa").write_text(FASTA.replace("GATTACA", "GATTACC"))
    with pytest.raises(SchemaError, match="overwrite"):
        ingest(tmp_path / "a.fa", tmp_path / "s")
    assert list(ingest(tmp_path / "a.fa", tmp_path / "s", overwrite=True).sequences(1, 2)) == ["GATTACC"]


def test_other_stores_have_no_sequences(tmp_path):
    assert ingest(np.ones((2, 2)), tmp_path / "s").sequences() is None


@pytest.mark.parametrize(
    ("form", "text", "words"),
    [
        ("fasta", "ACG\n>a\nA", r":1:1: letters before the first header"),
        ("fasta", ">a\nAC1G\n", r":2:3: b'1' is not a letter"),
        ("fasta", ">a\nAC G\n", r":2:3: b' ' is not a letter"),
        ("fasta", ">a label=1\nA\n>b\nC\n", r":3: the sequence has no label, but that of line 1 has one"),
        ("fasta", ">a\n>b\nC\n", r":1: the sequence has no letters"),
        ("fasta", ">a\nC\n>b", r":3: the sequence has no letters"),
        ("strings", "1\tACG\nACG\n", r":2: the line must have a label and a tab"),
        ("strings", "ACG\n1\tACG\n", r":2: the line must have no tab"),
        ("strings", "1\t2\tACG\n", r":1: the line must be LABEL, one tab and a string"),
        ("strings", "1\t\n", r":1: the line must be LABEL"),
        ("strings", "ACG\n\nACG\n", r":2: the line is empty"),
        ("strings", "ACG\nA\udcffG\n", r":2:2: the byte 0xff is no text in utf-8"),
        ("fasta", "", r"the source has 0 rows"),
        ("strings", "\n\n", r"the source has 0 rows"),
    ],
)
def test_faults_are_named_by_line_and_column(tmp_path, form, text, words):
    path = tmp_path / "bad.txt"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=words):
        ingest(path, tmp_path / "s", format=form)
    assert sorted(os.listdir(tmp_path)) == ["bad.txt"]


def test_targets_must_be_numbers_for_regression(tmp_path):
    (tmp_path / "a.txt").write_text("1.5\tA\nx\tC\n")
    with pytest.raises(DataError, match=r"a\.txt:2: target 'x' is not a finite number"):
        ingest(tmp_path / "a.txt", tmp_path / "s", format="strings", task="regression")


@pytest.mark.parametrize(
    ("options", "words"),
    [({"scale": "standard"}, "scale"), ({"n_features": 4}, "n_features"), ({"layout": "both"}, "layout"), ({"target": "y"}, "tab")],
)
def test_options_without_meaning_are_refused(tmp_path, options, words):
    (tmp_path / "a.txt").write_text("ACG\n")
    with pytest.raises(SchemaError, match=words):
        ingest(tmp_path / "a.txt", tmp_path / "s", format="strings", **options)


def test_lists_must_hold_texts_and_lengths_must_agree(tmp_path):
    with pytest.raises(DataError, match="row 2: 3 is not a text"):
        ingest(["A", 3], tmp_path / "s")
    with pytest.raises(SchemaError, match="3 entries"):
        ingest((["A", "C"], [1, 2, 3]), tmp_path / "s")


def many(path, n=60_000):
    rng = np.random.default_rng(0)
    letters = np.array(list("ACGT"))[rng.integers(0, 4, (n, 100))]
    with path.open("w") as file:
        file.writelines(f">s{k} label={k % 3}\n{''.join(row)}\n" for k, row in enumerate(letters))


def test_memory_and_scratch_give_the_same_store_and_kills_are_survived(tmp_path):
    many(tmp_path / "a.fa")
    held = ingest(tmp_path / "a.fa", tmp_path / "h")
    assert held.shape == (60_000, 0) and len(held.sequences(59_999)[0]) == 100

    class Killed(BaseException):
        pass

    def stop(done, total, phase):
        if phase == "letters":
            raise Killed

    with pytest.raises(Killed):
        ingest(tmp_path / "a.fa", tmp_path / "s", budget=16 << 20, progress=stop)
    store = ingest(tmp_path / "a.fa", tmp_path / "s", budget=16 << 20)
    for name in ("letters", "offsets"):
        a, b = (b"".join(p.read_bytes() for p in sorted((tmp_path / s / "sequences" / name).rglob("*")) if p.is_file()) for s in "hs")
        assert a == b
    assert np.array_equal(store.target(), held.target()) and not (tmp_path / "s.ingest").exists()


def test_a_sequence_longer_than_an_eighth_of_the_budget_is_refused(tmp_path):
    (tmp_path / "a.fa").write_text(">a label=1\n" + ("A" * 1000 + "\n") * 1100)
    with pytest.raises(DataError, match=r"a\.fa:1: the sequence has more than 1048576 letters"):
        ingest(tmp_path / "a.fa", tmp_path / "s", budget=8 << 20)
    (tmp_path / "b.txt").write_text("A" * 1_100_000)
    with pytest.raises(DataError, match=r"b\.txt:1: the line has more than 1048576 bytes"):
        ingest(tmp_path / "b.txt", tmp_path / "s", format="strings", budget=8 << 20)


@pytest.mark.slow
def test_memory_is_bounded_by_the_budget(tmp_path):
    many(tmp_path / "a.fa", 600_000)
    code = (
        "import sys; from gramplane.cluster.config import peak_bytes; from gramplane.storage.ingest import ingest\n"
        "before = peak_bytes()\n"
        "ingest(sys.argv[1], sys.argv[2], budget=16 << 20)\n"
        "print((peak_bytes() - before) >> 20)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "a.fa", tmp_path / "s"], capture_output=True, text=True, cwd=ROOT)
    assert int(run.stdout) < 64, run.stderr

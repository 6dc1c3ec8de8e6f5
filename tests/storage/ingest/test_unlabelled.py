"""SVMlight text without labels: the same columns, no target; predictions work on it, scores are refused by name."""

import gzip
import json
import re

import numpy as np
import pytest

from gramplane.storage import BlockStore, DataError, SchemaError
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.text import spool, text
from gramplane.workflows.cli import main
from tests.support.svmlight_files import dense as dense_columns
from tests.support.svmlight_files import write_file


@pytest.fixture(params=["held", "pieces"])
def anywhere(request, monkeypatch):
    """In memory, or by ranges of 700 bytes in the scratch folder."""
    if request.param == "pieces":
        monkeypatch.setattr(spool, "PIECE", 700)
        monkeypatch.setattr(text, "PIECE", 700)
        monkeypatch.setattr(text, "_TEXT_TO_MEMORY", 1 << 40)


def dense(store):
    return dense_columns(store.columns(np.arange(store.n_cols)))


def stripped(path, label=""):
    """The text with every label replaced; rows without entries keep a placeholder."""
    lines = path.read_text().splitlines()
    rest = [re.sub(r"^\s*\S+", label, line).strip() if line.split("#")[0].strip() else line for line in lines]
    return "\n".join(line or "?" for line in rest) + "\n"


@pytest.mark.parametrize("label", ["", "0", "?", "spam,ham", "nan"])
@pytest.mark.parametrize("packed", [False, True])
def test_entries_are_those_of_the_labelled_text(tmp_path, anywhere, label, packed):
    path = tmp_path / "data.svm"
    X, _ = write_file(path)
    content = stripped(path, label).encode()
    bare = tmp_path / ("bare.svm.gz" if packed else "bare.svm")
    bare.write_bytes(gzip.compress(content) if packed else content)
    store = ingest(bare, tmp_path / "S", no_labels=True, layout="both", n_features=X.shape[1])
    assert np.array_equal(dense(store), X.toarray())
    assert store.meta.labels is None and not store.has_table("y")
    assert ingest(bare, tmp_path / "S", no_labels=True, layout="both", n_features=X.shape[1]).digest == store.digest


def test_a_colon_tells_an_entry_from_a_label(tmp_path):
    (tmp_path / "a.svm").write_text("1:1 3:2\n\n7 2:5\n# nothing\n  2:1 # 3:1\nlabel\n")
    store = ingest(tmp_path / "a.svm", tmp_path / "S", no_labels=True)
    assert dense(store).tolist() == [[1, 0, 2], [0, 5, 0], [0, 1, 0], [0, 0, 0]]
    (tmp_path / "q.svm").write_text("qid:4 1:1\n3 qid:4 2:1\n")
    assert dense(ingest(tmp_path / "q.svm", tmp_path / "Q", no_labels=True, qid="ignore")).tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("line", "place"),
    [("1 2 3:1", "2:3: '2' has no colon"), ("a:1", "2:1: 'a:1' does not start with an index"), ("2:1 1:1", "2:5: index 1 comes after 2")],
)
def test_faults_keep_their_places(tmp_path, line, place):
    (tmp_path / "a.svm").write_text(f"1:1\n{line}\n")
    with pytest.raises(DataError, match=re.escape(place)):
        ingest(tmp_path / "a.svm", tmp_path / "S", no_labels=True)
    assert not (tmp_path / "S").exists()


def test_without_the_option_a_missing_label_is_an_error(tmp_path):
    (tmp_path / "a.svm").write_text("1:1\n")
    with pytest.raises(DataError, match=r"a\.svm:1:1: label '1:1' is not a decimal number.*--no-labels"):
        ingest(tmp_path / "a.svm", tmp_path / "S")


def test_options_that_speak_of_labels_or_other_formats_are_refused(tmp_path):
    (tmp_path / "a.svm").write_text("1:1\n")
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SchemaError, match="no_labels and labels exclude each other"):
        ingest(tmp_path / "a.svm", tmp_path / "S", no_labels=True, labels=[1, 2])
    for source, kind in ((tmp_path / "a.csv", "csv"), (np.ones((2, 2)), "array")):
        with pytest.raises(SchemaError, match=f"no_labels is for SVMlight text, and the format is '{kind}'"):
            ingest(source, tmp_path / "S", no_labels=True)


def test_predictions_of_unlabelled_rows_and_no_scores(tmp_path, capsys):
    def told(*words):
        capsys.readouterr()
        code = main([*map(str, words), "--json"])
        return code, json.loads(capsys.readouterr().out.rstrip("\n").rpartition("\n")[2])

    train, bare = tmp_path / "train.svm", tmp_path / "bare.svm"
    write_file(train)
    bare.write_text(stripped(train))
    assert told("ingest", train, tmp_path / "train", "--scale", "unit-column")[0] == 0
    assert told("ingest", bare, tmp_path / "bare", "--like", tmp_path / "train", "--no-labels")[0] == 0
    assert told("fit", "fgm", "--data", tmp_path / "train", "--run", tmp_path / "run", "--set", "B=2", "--set", "max_rounds=2")[0] == 0
    outs = [tmp_path / f"{name}.npz" for name in ("train", "bare")]
    for out in outs:
        assert told("predict", tmp_path / "run", out.with_suffix(""), out)[0] == 0
    labelled, unlabelled = (np.load(out) for out in outs)
    assert np.array_equal(labelled["decision"], unlabelled["decision"])
    code, found = told("score", tmp_path / "run", tmp_path / "bare")
    assert code == 3 and "bare: there is no target" in found["error"]
    code, found = told("fit", "fgm", "--data", tmp_path / "bare", "--run", tmp_path / "other")
    assert code == 3 and "bare: there is no target" in found["error"]
    assert BlockStore.open(tmp_path / "bare").verify().ok

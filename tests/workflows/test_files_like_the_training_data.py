"""A file that a run is used on is read as its training data were, with the store at hand or not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from gramplane.pipeline import predict_store, run_method, score_store
from gramplane.storage import BlockStore, RunStore, SchemaError
from gramplane.storage.ingest import ingest
from gramplane.storage.source import Source

N = 60
rng = np.random.default_rng(0)
BITS = (rng.random((N, 6)) < 0.5) * 1
Y = np.where(BITS[:, 3] > 0, 1, -1)


def svmlight(path: Path, X: np.ndarray, first: int, query: bool = False) -> Path:
    lines = (f"{Y[i]} {f'qid:{i // 10} ' if query else ''}{' '.join(f'{j + first}:1' for j in np.flatnonzero(X[i]))}" for i in range(N))
    path.write_text("\n".join(lines) + "\n")
    return path


def frame() -> pd.DataFrame:
    made = pd.DataFrame(BITS, columns=list("abcdef")).assign(
        town=np.where(Y > 0, "Nord", "Süd"), outcome=np.where(Y > 0, "case", "control")
    )
    made.loc[::9, "a"] = np.nan
    return made


def csv(path: Path) -> Path:
    frame().to_csv(path, index=False)
    return path


def parquet(path: Path) -> Path:
    frame().to_parquet(path)
    return path


TABLE = {"target": "outcome", "missing": "mean", "scale": "standard", "columns": ["a", "b", "town"]}
EMPTY = BITS * (np.arange(6) > 0)  # its first column is empty, so that nothing shows where counting begins
CASES = {
    "zero-based": ("x.svm", lambda path: svmlight(path, BITS, 0), {"zero_based": "yes"}, lambda path: svmlight(path, EMPTY, 0)),
    "zero-based found": ("x.svm", lambda path: svmlight(path, BITS, 0), {"zero_based": "auto"}, lambda path: svmlight(path, EMPTY, 0)),
    "query ids": ("x.svm", lambda path: svmlight(path, BITS, 1, True), {"qid": "ignore"}, lambda path: svmlight(path, EMPTY, 1, True)),
    "format": ("x.dat", csv, {"format": "csv", **TABLE}, csv),
    "another format": ("x.csv", csv, TABLE, lambda path: parquet(path.with_suffix(".parquet"))),
    "budget": ("x.csv", csv, {**TABLE, "budget": 8 << 20}, csv),
}


@pytest.mark.parametrize("case", CASES)
def test_a_file_is_read_as_the_training_data_were(tmp_path, case):
    name, write, options, write_new = CASES[case]
    (tmp_path / "new").mkdir()
    store = ingest(write(tmp_path / name), tmp_path / "s", **options)
    run_method("fgm", {"B": 1, "max_rounds": 2}, data=store.url, run=str(tmp_path / "run"))
    new = write_new(tmp_path / "new" / name)
    like = ingest(new, tmp_path / "like", like=store.url)
    assert score_store(str(tmp_path / "run"), like.url)["accuracy"] == 1.0
    Path(store.url).rename(tmp_path / "elsewhere")
    assert score_store(str(tmp_path / "run"), str(new))["accuracy"] == 1.0
    predict_store(str(tmp_path / "run"), str(new), str(tmp_path / "p.csv"))
    predict_store(str(tmp_path / "run"), like.url, str(tmp_path / "q.csv"))
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()
    read = RunStore.open(tmp_path / "run").read_source()
    assert read.options["budget"] == options.get("budget", 256 << 20) == like.source.options["budget"]
    assert (read.format, read.first_index) == (like.source.format if case != "another format" else "csv", like.first_feature)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"zero_based": "yes"}, r"zero_based is 'yes', but .*s \(like\) was made with 'no'"),
        ({"qid": "refuse"}, r"qid is 'refuse', but .*s \(like\) was made with 'ignore'"),
        ({"n_features": 9}, r"n_features is 9, but .*s \(like\) was made with 6"),
        ({"task": "regression"}, r"task is 'regression', but .*s \(like\) was made with 'classification'"),
    ],
)
def test_an_option_that_says_otherwise_is_refused(tmp_path, given, told):
    store = ingest(svmlight(tmp_path / "x.svm", BITS, 1), tmp_path / "s", qid="ignore")
    with pytest.raises(SchemaError, match=told):
        ingest(tmp_path / "x.svm", tmp_path / "t", like=store.url, **given)


def test_messages_about_a_file_name_the_command_that_has_the_option(tmp_path):
    store = ingest((BITS, Y), tmp_path / "s")
    run_method("fgm", {"B": 1, "max_rounds": 1}, data=store.url, run=str(tmp_path / "run"))
    (tmp_path / "x.zip").write_text("")
    with pytest.raises(SchemaError, match=r"--format .*to set these options, make a store of the file with `gramplane ingest`"):
        score_store(str(tmp_path / "run"), str(tmp_path / "x.zip"))


def test_a_run_of_very_many_columns_names_the_store_that_has_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr("gramplane.storage.runs.store.MAX_KEPT_BYTES", 10)
    store = ingest(csv(tmp_path / "x.csv"), tmp_path / "s", **TABLE)
    run_method("fgm", {"B": 1, "max_rounds": 1}, data=store.url, run=str(tmp_path / "run"))
    assert not RunStore.open(tmp_path / "run").read_source().is_whole
    assert score_store(str(tmp_path / "run"), str(tmp_path / "x.csv"))["accuracy"] == 1.0
    Path(store.url).rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="which is gone or replaced"):
        score_store(str(tmp_path / "run"), str(tmp_path / "x.csv"))


def test_the_record_of_a_store_is_read_back(tmp_path):
    store = ingest(
        sp.csr_array(BITS.astype(float)), tmp_path / "s", target=Y, scale="max-abs", names=list("abcdef"), groups=[0, 0, 1, 1, 2, 2]
    )
    whole = store.whole_source()
    assert whole.names == list("abcdef") and whole.groups.tolist() == [0, 0, 1, 1, 2, 2] and np.array_equal(whole.scale.factor, np.ones(6))
    assert Source.from_json(whole.to_json(), "here").is_whole is False and BlockStore.open(store.url).source.are_named

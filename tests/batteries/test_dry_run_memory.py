"""`--dry-run` of ingest and predict tells what they then take, refuses what they refuse, and writes nothing."""

import json
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.cluster import MemoryBoundExceeded
from gramplane.pipeline import predict_store, run_method
from gramplane.storage import DataError, SchemaError
from gramplane.storage.ingest import ingest
from gramplane.workflows.cli import main
from tests.support.budget_sources import OPTIONS, SOURCES, memory_of

BUDGET, SLACK = 32 << 20, 64 << 20
QUICK = ("mat sparse",)
TALL = ("parquet, tall", "parquet of row tables, tall", "csv, tall", "csv, packed, tall", "svmlight, packed, tall")
MEASURED = (*QUICK, "bed", "npz dense by columns", "parquet of one row group", "csv", "npz by columns", *TALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MEASURED])
def test_an_ingest_takes_no_more_than_its_plan(tmp_path, name):
    # Of tall tables the least of three runs, for what the allocator keeps differs from run to run.
    taken, size, ended = min(memory_of(name, tmp_path, BUDGET) for _ in range(3 if name in TALL else 1))
    before = sorted(path.name for path in tmp_path.iterdir())
    large = tmp_path / f"large.{SOURCES[name][0]}"
    options = OPTIONS.get(name, {"target": "y"})
    plan = ingest(str(large), str(tmp_path / "planned.zarr"), dry_run=True, budget=BUDGET, **options)
    print(f"{name}: {taken / 2**20:.0f} MiB taken, {plan['process_bytes'] / 2**20:.0f} MiB planned")
    assert ended == "done"
    assert taken <= 1.05 * plan["process_bytes"] + SLACK
    assert taken <= 4 * plan["process_bytes"]
    # A plan that says too much says nothing: only what goes with the rows is outside the budget.
    outside = sum(row["bytes"] for row in plan["process_holds"] if "outside" in row["what"])
    assert plan["process_bytes"] <= BUDGET + outside
    assert plan["source_bytes"] in (size, None)  # of packed CSV only its end tells the bytes
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_is_known_of_every_row_is_planned(tmp_path):
    sparse = ingest(sp.eye_array(3000, format="csr"), tmp_path / "s", layout="both", dry_run=True)
    dense = ingest(np.ones((3000, 2)), tmp_path / "d", missing="mean", dry_run=True)
    for plan, what in ((sparse, "entries of rows, and where rows are cut"), (dense, "column whose missing values are filled in")):
        held = {row["what"]: row["bytes"] for row in plan["process_holds"]}
        assert held[f"{what}; outside the budget"] >= 8 * 3000  # at least a number for each


def rows(n=300, d=12):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] + X[:, 1] > 0, 1, -1)


FORMS = {"npz": ("sparse", 300), "npy": ("dense", 300), "csv": ("dense", None), "parquet": ("dense", 300), "svm": ("sparse", None)}


def written(folder, form):
    """Write the rows in a form; return the file and the options that it needs."""
    X, y = rows()
    path, options = folder / f"a.{form}", {"target": "y"}
    if form == "npz":
        import scipy.sparse as sp

        S = sp.csr_array(X)
        np.savez(path, data=S.data, indices=S.indices, indptr=S.indptr, shape=S.shape, y=y)
    elif form == "npy":
        np.save(path, X)
        options = {"target": y}
    elif form == "svm":
        path.write_text(
            "".join(f"{t} " + " ".join(f"{j}:{v!r}" for j, v in enumerate(row.tolist(), 1)) + "\n" for t, row in zip(y, X, strict=True))
        )
        options = {}
    else:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet

        table = pa.table({f"f{j}": X[:, j] for j in range(X.shape[1])} | {"y": y})
        (pa.csv.write_csv if form == "csv" else pa.parquet.write_table)(table, path)
    return path, options


def bytes_below(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("form", FORMS)
def test_the_plan_of_an_ingest_tells_what_the_ingest_then_writes(tmp_path, form):
    path, options = written(tmp_path, form)
    kind, n = FORMS[form]
    plan = ingest(str(path), str(tmp_path / "s"), dry_run=True, **options)
    assert not (tmp_path / "s").exists() and not (tmp_path / "s.ingest").exists()
    assert (plan["kind"], plan["rows"], plan["columns"]) == (kind, n, None if form == "svm" else 12)
    assert plan["nothing_to_do"] is False
    assert all(set(row) == {"what", "bytes"} for row in plan["process_holds"])
    store = ingest(str(path), str(tmp_path / "s"), **options)
    assert store.meta.kind == kind
    # Nobody knows how many rows a .csv has, or columns an SVMlight text.
    assert (plan["store_bytes_at_most"] is None) is (form in ("csv", "svm"))
    assert form in ("csv", "svm") or plan["store_bytes_at_most"] >= bytes_below(tmp_path / "s")
    assert ingest(str(path), str(tmp_path / "s"), dry_run=True, **options)["nothing_to_do"] is True


def test_arrays_and_frames_are_planned_too(tmp_path):
    import pandas as pd
    import scipy.sparse as sp

    X, y = rows()
    for source in ((X, y), (sp.csr_array(X), y), pd.DataFrame(X, columns=[f"f{j}" for j in range(12)])):
        plan = ingest(source, str(tmp_path / "s"), dry_run=True)
        assert (plan["rows"], plan["columns"]) == (300, 12) and plan["process_bytes"] > 0
    assert not list(tmp_path.iterdir())


def test_the_plan_of_a_folder_is_that_of_all_its_files(tmp_path):
    path, options = written(tmp_path, "parquet")
    (tmp_path / "parts").mkdir()
    for k in range(3):
        (tmp_path / "parts" / f"{k}.parquet").write_bytes(path.read_bytes())
    one, three = (ingest(str(source), str(tmp_path / "s"), dry_run=True, **options) for source in (path, tmp_path / "parts"))
    for name in ("rows", "source_bytes", "scratch_bytes_at_most"):
        assert three[name] == 3 * one[name], name


def by_columns(counts):
    """Sparse rows whose columns have so many entries."""
    import scipy.sparse as sp

    indptr = np.cumsum([0, *counts])
    rows = np.concatenate([np.arange(count) for count in counts])
    return sp.csc_array((np.full(indptr[-1], 0.1), rows, indptr), (max(counts), len(counts))).tocsr()


CHUNK = (8 << 20) // 64 // 8
"""Entries of a chunk where the budget is 8 MiB."""
SHAPES = {
    "dense, a column more than a chunk": (lambda: np.random.default_rng(0).normal(size=(20_000, 17)), 1.2),
    "dense, single precision": (lambda: np.ones((33_000, 17)), 2.2),
    "dense, one chunk": (lambda: np.ones((400, 12)), 4.5),
    "sparse, even": (lambda: by_columns([CHUNK // 10] * 100), 5.0),
    "sparse, columns of more than half a chunk": (lambda: by_columns([CHUNK // 2 + 1] * 12), 3.0),
    "sparse, a heavy column and a light one": (lambda: by_columns([1, CHUNK + 1] * 6), 2.0),
    "sparse, one chunk": (lambda: by_columns([700] * 20), 1.6),
}


@pytest.mark.parametrize("layout", ["columns", "both"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_store_takes_no_more_than_its_plan_tells(tmp_path, shape, layout):
    make, too_much = SHAPES[shape]
    X = make()
    source, options = (X, np.arange(X.shape[0]) % 2), {"budget": 8 << 20, "layout": layout}
    plan = ingest(source, str(tmp_path / "s"), dry_run=True, **options)
    store = ingest(source, str(tmp_path / "s"), **options)
    taken = bytes_below(tmp_path / "s")
    print(f"{plan['store_bytes_at_most'] / taken:.2f} of {taken}")
    assert taken <= plan["store_bytes_at_most"] <= too_much * taken
    if shape in ("sparse, even", "sparse, one chunk"):
        assert 0.8 * taken <= plan["store_bytes_about"] <= 1.6 * taken
    if store.meta.dtype == "float64" and store.meta.kind == "dense":
        assert plan["blocks"] == len(list((tmp_path / "s").glob("v1/*/dense/c/*/*")))


@pytest.mark.parametrize(
    ("name", "text", "layout"), [("a.svm", "1\n2\n", "columns"), ("a.txt", "a\n", "columns"), ("b.txt", "1\ta\n2\tb\n", "columns")]
)
def test_lines_of_text_that_hold_next_to_nothing_are_planned_for_too(tmp_path, name, text, layout):
    (tmp_path / name).write_text(text * 60_000)
    options = {"layout": layout, **({"n_features": 3} if name == "a.svm" else {"format": "strings"})}
    plan = ingest(str(tmp_path / name), str(tmp_path / "s"), dry_run=True, **options)
    ingest(str(tmp_path / name), str(tmp_path / "s"), **options)
    assert bytes_below(tmp_path / "s") <= plan["store_bytes_at_most"]


def test_one_row_of_a_wide_frame_is_planned_and_sparse_rows_take_no_more_for_their_width(tmp_path):
    import pandas as pd
    import scipy.sparse as sp

    d, small = 50_000, 8 << 20
    X = sp.csr_array(([1.0], ([0], [d - 1])), (2, d))

    def hand(source):
        plan = ingest(source, str(tmp_path / "s"), dry_run=True, budget=small)
        return next(row["bytes"] for row in plan["process_holds"] if "rows at hand" in row["what"])

    assert hand(pd.DataFrame(X.toarray(), columns=[f"f{j}" for j in range(d)])) == 48 * d > 4 * small // 16
    assert hand((X, np.array([1, -1]))) == 4 * small // 16


def test_what_an_ingest_refuses_its_plan_refuses(tmp_path, capsys):
    d = 400_000
    path = tmp_path / "a.csv"
    path.write_text("\n".join([",".join(f"c{k}" for k in range(d)), ",".join(["1"] * d)]))
    for dry_run in (True, False):
        with pytest.raises(SchemaError, match=r"more than the budget of 8388608; raise the budget \(--budget\), or give sparse input"):
            ingest(str(path), str(tmp_path / "s"), budget=8 << 20, dry_run=dry_run)
    assert main(["ingest", str(path), str(tmp_path / "s"), "--budget", "8MiB", "--dry-run", "--json"]) == 3
    assert "--budget" in json.loads(capsys.readouterr().out)["error"]


def test_a_matrix_by_columns_of_too_many_rows_is_refused_before_it_is_unpacked(tmp_path):
    n = 1 << 20
    parts = {"data": np.ones(n), "indices": np.arange(n, dtype="i4"), "indptr": np.array([0, n], "i4"), "shape": np.array([n, 1])}
    np.savez(tmp_path / "a.npz", **parts, format="csc", y=np.arange(n) % 2)
    for dry_run in (True, False):
        with pytest.raises(DataError, match="is stored by columns, and transposing its 1048576 rows"):
            ingest(str(tmp_path / "a.npz"), str(tmp_path / "s"), budget=32 << 20, dry_run=dry_run)
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_the_plan_of_a_fit_has_a_line_for_everything_held_and_says_what_nothing_is(tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(40, 5))
    ingest((rows, np.where(rows[:, 0] > 0, 1, -1)), tmp_path / "rows")
    (tmp_path / "tags").write_text("red\nblue\n" * 20)
    words = ["fit", "semantic-ranker", "--data", str(tmp_path / "rows"), "--tags", str(tmp_path / "tags"), "--run", str(tmp_path / "run")]
    assert main([*words, "--dry-run"]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["distributed", "nothing"] in lines
    assert ["50", "KiB  matrices over the images"] in lines


def test_the_plan_of_a_fit_says_which_workers_are_large_enough(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 5))
    ingest((rows, np.where(rows[:, 0] > 0, 1, -1)), tmp_path / "rows")
    place = {"data": str(tmp_path / "rows"), "run": str(tmp_path / "run"), "cluster": "local:2", "dry_run": True}
    plan = run_method("mkl", {}, worker_memory="400MiB", **place).plan
    (note,) = plan["notes"]
    assert "gives it about 0 B" in note and plan["process_bytes_at_most"] > 400 << 20
    enough = note.split("--worker-memory ")[1].split()[0].rstrip(",")
    plan = run_method("mkl", {}, worker_memory=enough, **place).plan
    assert "notes" not in plan and plan["process_bytes_at_most"] <= int(enough.removesuffix("MiB")) << 20


def test_the_command_tells_the_plan_in_a_table_and_in_json(tmp_path, capsys):
    path, _ = written(tmp_path, "parquet")
    words = ["ingest", str(path), str(tmp_path / "s"), "--target", "y", "--dry-run"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("fits: this process needs ") and "\nnothing was run\n" in text and "rows at hand" in text
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "planned" and found["plan"]["rows"] == 300 and "truncated" not in found
    assert not (tmp_path / "s").exists()


# -- predict ---------------------------------------------------------------------------------------------------------------------

METHODS = {
    "fgm": {"B": 2, "max_rounds": 2},
    "mkl": {"kernels": ["linear", "rbf(gamma=0.1)"]},
    "group-lasso": {},
    "rule-ensemble": {"n_thresholds": 1, "max_rounds": 3},
}


def fitted(folder, method, d=12):
    ingest(rows(d=d), str(folder / "train"))
    extra = {"groups": [[0, 1], [2, 3], [4, 5, 6], [7, 8, 9, 10, 11]]} if method == "group-lasso" else None
    run_method(method, METHODS[method], data=str(folder / "train"), run=str(folder / "run"), extra=extra)


@pytest.mark.parametrize("method", METHODS)
def test_the_plan_of_predict_tells_the_passes_that_predict_then_makes(tmp_path, method):
    fitted(tmp_path, method)
    place = [str(tmp_path / name) for name in ("run", "train", "out.csv")]
    plan, events = predict_store(*place, dry_run=True), []
    assert not (tmp_path / "out.csv").exists()
    predict_store(*place, on_event=events.append)
    begun = [event for event in events if event.get("event") == "plan"]
    assert plan["rows"] == 300 and plan["driver_bytes"] == sum(row["bytes"] for row in plan["driver_holds"])
    assert [event["n_tasks"] for event in begun] == [plan["tasks_per_pass"]] * plan["passes"]
    assert max(event["memory_bound"] for event in begun) == plan["task_bytes"]


def test_predict_beyond_the_memory_of_the_driver_is_refused_and_names_what_helps(tmp_path, capsys):
    fitted(tmp_path, "fgm")
    place = [str(tmp_path / name) for name in ("run", "train", "out.csv")]
    for dry_run in (True, False):
        with pytest.raises(MemoryBoundExceeded, match=r"predict: this process would hold .*driver_memory=.*fewer rows.*--driver-memory"):
            predict_store(*place, dry_run=dry_run, driver_memory="10KiB")
    assert not (tmp_path / "out.csv").exists()
    assert main(["predict", *place, "--dry-run", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"] == "planned" and found["plan"]["rows"] == 300
    assert main(["predict", *place, "--dry-run"]) == 0
    assert "decision values" in capsys.readouterr().out


@pytest.mark.parametrize("feature_map", ["additive_gaussian", "hik", "additive_chi2"])
def test_predict_with_expansions_holds_all_the_columns_they_are_made_of(tmp_path, feature_map):
    X, y = rows()
    ingest((np.abs(X), y), str(tmp_path / "train"))
    config = {"B": 2, "max_rounds": 2, "feature_map": feature_map, "n_bins": 30}
    run_method("fgm", config, data=str(tmp_path / "train"), run=str(tmp_path / "run"))
    ingest(np.abs(rows(20_000)[0]), str(tmp_path / "large"), like=str(tmp_path / "train"))
    place = [str(tmp_path / name) for name in ("run", "large", "out.csv")]
    plan = predict_store(*place, dry_run=True)
    predict_store(*place)
    tracemalloc.start()
    predict_store(*place[:2], str(tmp_path / "again.csv"))
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken <= plan["process_bytes"] and plan["driver_bytes"] <= 2 * taken

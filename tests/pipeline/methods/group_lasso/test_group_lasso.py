"""The group lasso on streams: estimators, stores, texts; every cut, order and resume to the same bits."""

import io
import json
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from gramplane.cluster import MemoryBoundExceeded, open_executor
from gramplane.pipeline import (
    GroupLassoClassifier,
    GroupLassoRegressor,
    load_model,
    predict_store,
    resume_run,
    run_method,
    score_store,
    tune,
)
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext
from gramplane.pipeline.core.search import FoldRuns
from gramplane.pipeline.inputs.folds import fold_masks
from gramplane.pipeline.methods.group_lasso import rows as online_rows
from gramplane.pipeline.methods.group_lasso.config import GroupLassoConfig
from gramplane.pipeline.methods.group_lasso.method import GroupLasso
from gramplane.storage import DataError, MemoryBlocks, RunStore
from gramplane.storage.ingest import ingest
from gramplane.storage.ingest.text import svmlight
from gramplane.workflows.cli import main
from tests.support.fgm_problems import classes, planted
from tests.support.places import ROOT

GROUPS = np.arange(30) // 5
WORKFLOWS = ROOT / "workflows"


def problem(n=400, seed=0, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 30)) * (rng.random((n, 30)) < 0.5)
    value = X[:, :5].sum(axis=1) - X[:, 5:10].sum(axis=1) + noise * rng.normal(size=n)
    return X, value


def bits(model):
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    return coef.tobytes(), model.intercept_.tobytes()


# --- estimators -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
def test_partial_fit_is_fit_in_any_pieces(algorithm):
    X, value = problem()
    y = np.where(value > 0, "up", "down")
    whole = GroupLassoClassifier(groups=GROUPS, lam=0.05, batch_size=7, shuffle=False, algorithm=algorithm).fit(X, y)
    for cuts in ([400], [1, 2, 9, 200, 400], [399, 400]):
        pieces, lo = GroupLassoClassifier(groups=GROUPS, lam=0.05, batch_size=7, algorithm=algorithm), 0
        for hi in cuts:
            pieces.partial_fit(sp.csr_array(X[lo:hi]) if hi % 2 else X[lo:hi], y[lo:hi], classes=["up", "down"] if lo == 0 else None)
            lo = hi
        pieces = pickle.loads(pickle.dumps(pieces)).finish()
        assert bits(pieces) == bits(whole)
        assert pieces.n_iter_ == whole.n_iter_ == -(-400 // 7)
    assert set(whole.active_groups_) >= {0, 1} and (algorithm == "fobos" or len(whole.active_groups_) == 2)
    assert whole.score(X, y) > 0.9


def test_forms_of_data_give_the_same_bits():
    X, value = problem()
    made = GroupLassoRegressor(groups=GROUPS, penalty="sgl", gamma=3.0, epochs=2, random_state=4)
    first = clone(made).fit(X, value)
    assert first.score(X, value) > 0.9
    for form in (sp.csr_matrix(X), sp.csc_array(X), pd.DataFrame(X, columns=[f"c{j}" for j in range(30)]), np.asfortranarray(X)):
        assert bits(clone(made).fit(form, value)) == bits(first)
    assert bits(clone(made).set_params(random_state=5).fit(X, value)) != bits(first)
    blocks = first.coef_.reshape(6, 5)
    penalty = 0.01 * (np.sqrt(5) * np.linalg.norm(blocks, axis=1).sum() + np.abs(blocks).sum())
    assert first.objective_ == pytest.approx(0.5 * np.mean((first.predict(X) - value) ** 2) + penalty)
    assert np.isnan(first.dual_gap_) and not first.converged_ and first.n_iter_ == 800
    assert len({len(v) for v in first.history_.values()}) == 1 and first.history_["rows"].tolist() == [400, 800]


def test_several_classes_share_the_stream_one_against_the_rest():
    X, codes = classes(n=300, d=30)
    names = np.array(["a", "b", "c"])
    model = GroupLassoClassifier(groups=np.arange(30) // 3, lam=0.02, epochs=3).fit(X, names[codes])
    assert model.coef_.shape == (3, 30) and model.score(X, names[codes]) > 0.8
    for k in range(3):
        alone = GroupLassoClassifier(groups=np.arange(30) // 3, lam=0.02, epochs=3).fit(X, codes == k)
        np.testing.assert_array_equal(model.coef_[k], alone.coef_[0])


def test_fit_goes_on_with_partial_fit_and_class_weights_are_factors():
    X, value = problem()
    y = np.where(value > 0, 1, 0)
    two = GroupLassoClassifier(groups=GROUPS, shuffle=False, epochs=2).fit(X, y)
    one = GroupLassoClassifier(groups=GROUPS, shuffle=False).fit(X, y).partial_fit(X, y)
    assert bits(one) == bits(two)
    factors = np.where(y == 1, 3.0, 1.0)
    given = GroupLassoClassifier(shuffle=False).fit(X, y, sample_weight=factors)
    assert bits(GroupLassoClassifier(shuffle=False, class_weight={1: 3.0}).fit(X, y)) == bits(given)
    assert bits(GroupLassoClassifier(class_weight={1: 3.0}).partial_fit(X, y, classes=[0, 1])) == bits(given)


def test_bad_input_is_named_and_nothing_of_the_call_is_learned():
    X, value = problem()
    y = np.where(value > 0, 1, -1)
    model = GroupLassoClassifier(groups=GROUPS).partial_fit(X[:50], y[:50], classes=[-1, 1])
    before = bits(model)
    wrong = X[50:60].copy()
    wrong[7, 3] = np.nan
    with pytest.raises(ValueError, match=r"row 7, column \d: Input X contains NaN"):
        model.partial_fit(wrong, y[50:60])
    with pytest.raises(ValueError, match="row 7"):
        model.partial_fit(sp.csr_array(wrong), y[50:60])
    with pytest.raises(ValueError, match=r"y\[3\] is .*2.*not one of the classes \[-1, 1\]"):
        model.partial_fit(X[50:60], [1, 1, -1, 2, 1, 1, 1, 1, 1, 1])
    for words in (["up", "up"], np.array(["up", "up"], dtype=object)):
        with pytest.raises(ValueError, match=r"y\[0\] is .*up.*not one of the classes"):
            model.partial_fit(X[50:52], words)
    with pytest.raises(ValueError, match="31 features, but GroupLassoClassifier is expecting 30"):
        model.partial_fit(np.ones((2, 31)), [1, -1])
    with pytest.raises(ValueError, match="not the same as on the first call"):
        model.partial_fit(X, y, classes=[0, 1])
    assert bits(model) == before
    with pytest.raises(ValueError, match="classes must be passed"):
        GroupLassoClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match="feature 4 is in no group"):
        GroupLassoClassifier(groups=np.where(np.arange(30) == 4, -1, 0)).fit(X, y)
    with pytest.raises(ValueError, match="feature 30; features are 0 to 29"):
        GroupLassoClassifier(groups=[[0, 30]]).fit(X, y)
    with pytest.raises(ValueError, match="groups overlap, but algorithm='fobos' needs a partition"):
        GroupLassoClassifier(groups=[range(20), range(10, 30)], algorithm="fobos").fit(X, y)
    with pytest.raises(ValueError, match=r"r has 2 entries; .* 6 groups"):
        GroupLassoClassifier(groups=GROUPS, penalty="sgl", r=[1.0, 2.0]).fit(X, y)
    with pytest.raises(ValueError, match=r"rho=0\.1 needs penalty='egl'"):
        GroupLassoClassifier(rho=0.1).fit(X, y)
    with pytest.raises(ValueError, match="average=True needs algorithm='da'"):
        GroupLassoClassifier(average=True, algorithm="fobos").fit(X, y)
    with pytest.raises(ValueError, match="gamma=0"):
        GroupLassoClassifier(gamma=0).fit(X, y)
    with pytest.raises(ValueError, match="loss='hinge'"):
        GroupLassoRegressor(loss="hinge").fit(X, value)
    with pytest.raises(ValueError, match="iterates diverge; raise gamma"):
        GroupLassoRegressor(gamma=1e-6).fit(1e5 * X, value)
    with pytest.raises(AttributeError, match="partial_fit"):
        GroupLassoClassifier(algorithm="fista").partial_fit(X, y, classes=[-1, 1])


@pytest.mark.parametrize("penalty", ["gl", "sgl", "l1"])
def test_rows_that_need_no_conversion_skip_the_checks_of_others_to_the_same_bits(penalty, monkeypatch):
    X, value = problem()
    y = np.where(value > 0, 1, -1)
    X = X.astype(np.float32).astype(np.float64)

    def learned(form, labels=lambda part: part):
        model = GroupLassoClassifier(groups=GROUPS, penalty=penalty, lam=0.01, batch_size=30)
        for lo in range(0, 400, 50):
            model.partial_fit(form(X[lo : lo + 50]), labels(y[lo : lo + 50]), classes=[-1, 1])
        return bits(model)

    def wide(part):
        csr = sp.csr_array(part)
        csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
        return csr

    plain = learned(sp.csr_array)
    assert plain == learned(lambda part: part) == learned(wide) == learned(sp.csc_matrix) == learned(sp.csr_array, list)
    assert plain == learned(lambda part: sp.csr_array(part.astype(np.float32))) == learned(sp.csr_array, lambda part: part.astype(float))
    monkeypatch.setattr("sklearn.utils.validation.check_array", None)
    assert plain == learned(sp.csr_array) == learned(lambda part: part)


def test_entries_at_no_feature_are_refused_by_row_and_nothing_is_learned():
    X, value = problem()
    y = np.where(value > 0, 1, -1)
    model = GroupLassoClassifier(groups=GROUPS).partial_fit(sp.csr_array(X[:50]), y[:50], classes=[-1, 1])
    before = bits(model)
    for index, form in ((30, np.int32), (-1, np.int32), (2**40, np.int64)):
        wrong = sp.csr_array(X[50:60])
        wrong.indices = wrong.indices.astype(form)
        wrong.indices[wrong.indptr[7]] = index
        for call in (model.partial_fit, GroupLassoClassifier(groups=GROUPS).fit):
            with pytest.raises(ValueError, match=rf"X: indices\[\d+\] is {index}, in row 7; it must be in 0 … 29"):
                call(wrong, y[50:60])
    wrong = sp.csr_array(X[50:60])
    wrong.indptr[4] = wrong.indptr[5] + 1
    with pytest.raises(ValueError, match=r"X: indptr\[5\] is \d+ after \d+; pointers never fall"):
        model.partial_fit(wrong, y[50:60])
    assert bits(model) == before


# --- stores -----------------------------------------------------------------------------------------------------------------------


def test_rows_come_in_the_same_blocks_from_rows_columns_and_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(online_rows, "STEP_BYTES", 1)
    X, y = planted(3, n=3500, d=160)
    made = GroupLassoClassifier(groups=np.arange(160) // 8, lam=0.01, epochs=2, batch_size=11, random_state=2)
    arrays = clone(made).fit(X, y)
    steps = len(MemoryBlocks(X).row_blocks())
    assert steps >= 2 and arrays.history_["epoch"].tolist() == [0] * (steps - 1) + [1] + [1] * (steps - 1) + [2]
    for layout in ("columns", "both"):
        store = ingest((X, y), tmp_path / layout, layout=layout)
        assert bits(clone(made).fit(store)) == bits(arrays)
    store = ingest((sp.csr_array(X), y), tmp_path / "sparse", layout="both")
    sparse = clone(made).fit(store)
    assert bits(sparse) == bits(clone(made).fit(sp.csr_array(X), y))
    np.testing.assert_allclose(sparse.decision_function(store), sparse.decision_function(X), rtol=1e-12, atol=1e-13)
    with pytest.raises(MemoryBoundExceeded, match=r"--layout both, or raise the limit \(--driver-memory\)"):
        online_rows.RowBlocks(ingest((X, y), tmp_path / "wide"), 1 << 20)


@pytest.mark.parametrize("scale", ["max-abs", "unit-row"])
def test_sparse_arrays_are_scaled_as_the_rows_of_their_store(tmp_path, scale):
    X = sp.random_array((1200, 4000), density=0.16, rng=np.random.default_rng(0), format="csr")
    store = ingest((X, np.arange(1200.0)), tmp_path / "data", scale=scale, layout="both")
    loaded = []
    for data in (MemoryBlocks(X, scale=store.scale), store):
        blocks = online_rows.RowBlocks(data, 1 << 30)
        loaded.append([blocks.load(ref) for ref in blocks.refs()])
    assert len(loaded[0]) == len(loaded[1]) >= 2
    for here, there in zip(*loaded):
        assert all(np.array_equal(a, b) for a, b in zip(here, there))


@pytest.mark.parametrize("scale", ["standard", "unit-row"])
def test_scaled_stores_predict_as_they_learned(tmp_path, scale):
    X, value = problem()
    X = 3.0 * X + (1.0 if scale == "standard" else 0.0)
    store = ingest((X, value > 0), tmp_path / "data", scale=scale)
    model = GroupLassoClassifier(groups=GROUPS, lam=0.005, epochs=3).fit(store)
    scaled = (X - X.mean(axis=0)) / X.std(axis=0) if scale == "standard" else X / np.linalg.norm(X, axis=1, keepdims=True)
    plain = GroupLassoClassifier(groups=GROUPS, lam=0.005, epochs=3).fit(scaled, value > 0)
    np.testing.assert_allclose(model.decision_function(X), plain.decision_function(scaled), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(model.decision_function(store), model.decision_function(X), rtol=1e-9, atol=1e-10)
    with pytest.raises(ValueError, match="fitted on scaled rows"):
        model.partial_fit(X, value > 0)


def test_runs_report_the_stream_predict_score_and_load(tmp_path):
    X, value = problem()
    ingest((sp.csr_array(X), np.where(value > 0, "up", "down")), tmp_path / "data", groups=GROUPS, layout="both")
    data, run = str(tmp_path / "data"), str(tmp_path / "run")
    done = run_method("group-lasso", {"lam": 0.05, "epochs": 2}, data=data, run=run, extra={"test_share": 0.25})
    assert done.summary["n_groups"] == 2 and done.summary["test_accuracy"] > 0.8 and done.summary["rounds"] == 600
    tables = RunStore.open(run).read_json("tables")
    assert [row["rows"] for row in tables["stream"]] == [300, 600]
    groups = tables["groups"]
    assert [(row["group"], row["size"]) for row in groups] == [(0, 5), (1, 5)] and all(row["norm"] > 0 for row in groups)
    assert {row["feature"] for row in tables["selected"]} <= {f"x{j}" for j in range(10)}
    model = load_model(run)
    # The regret by its definition, Omega at the ends of the steps.
    weight, along = np.array([300, 600]), tables["stream"]
    paid = np.cumsum([300 * (row["loss"] + row["penalty"]) for row in along]) / weight
    assert [row["regret"] for row in along] == pytest.approx(list(paid - done.summary["objective"]), abs=1e-12)
    assert model.objective_ == pytest.approx(done.summary["objective"]) and not model.converged_
    predict_store(run, data, str(tmp_path / "out.npz"))
    assert np.array_equal(np.load(tmp_path / "out.npz", allow_pickle=True)["prediction"], model.predict(X))
    assert score_store(run, data)["accuracy"] == pytest.approx(done.summary["test_accuracy"])
    with pytest.raises(ValueError, match="the estimator was loaded"):
        model.partial_fit(X, np.where(value > 0, "up", "down"))


# --- texts ------------------------------------------------------------------------------------------------------------------------


def write(path, X, y):
    lines = [f"{label:g} " + " ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist()) if v) for label, row in zip(y, X)]
    path.write_text("\n".join(lines) + "\n")
    return lines


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.setattr(svmlight, "PIECE", 16384)
    X, value = problem(n=300)
    lines = write(tmp_path / "rows.svm", X, np.where(value > 0, 1.0, -1.0))
    return X, value, lines


STREAM = {"stream": {"n_features": 30}, "groups": GROUPS}
PARAMS = {"lam": 0.02, "batch_size": 7}


def test_a_text_is_learned_as_its_rows_are(text, tmp_path, monkeypatch):
    X, value, lines = text
    run = run_method("group-lasso", PARAMS, data=str(tmp_path / "rows.svm"), run=str(tmp_path / "run"), extra=STREAM)
    model = load_model(tmp_path / "run")
    rows = GroupLassoClassifier(groups=GROUPS, shuffle=False, **PARAMS).fit(X, np.where(value > 0, 1, -1))
    assert bits(model) == bits(rows) and model.classes_.tolist() == [-1, 1]
    history = RunStore.open(tmp_path / "run").history()
    assert len(history) >= 3 and history[-1]["rows"] == 300 and run.summary["stop"] == "end"
    assert RunStore.open(tmp_path / "run").read_json("tables")["stream"][-1]["regret"] is None
    monkeypatch.setattr("sys.stdin", type("", (), {"buffer": io.BytesIO("\n".join(lines).encode())}))
    run_method("group-lasso", PARAMS, data="-", run=str(tmp_path / "piped"), extra=STREAM)
    assert bits(load_model(tmp_path / "piped")) == bits(model)
    write(tmp_path / "numbers.svm", X, value)
    given = {"stream": {"n_features": 30, "task": "regression"}}
    run_method("group-lasso", {"gamma": 3.0}, data=str(tmp_path / "numbers.svm"), run=str(tmp_path / "numbers"), extra=given)
    assert load_model(tmp_path / "numbers").score(X, value) > 0.8


class Stopped(Exception):
    pass


@pytest.mark.parametrize("source", ["file", "-"])
def test_a_text_resumes_after_the_rows_already_read(text, tmp_path, monkeypatch, source):
    _, _, lines = text
    data = str(tmp_path / "rows.svm") if source == "file" else "-"

    def piped():
        monkeypatch.setattr("sys.stdin", type("", (), {"buffer": io.BytesIO(("\n".join(lines) + "\n").encode())}))

    def stop(event):
        if event["event"] == "iteration":
            raise Stopped

    piped()
    run_method("group-lasso", PARAMS, data=data, run=str(tmp_path / "straight"), extra=STREAM)
    for _ in RunStore.open(tmp_path / "straight").history():
        piped()
        with pytest.raises(Stopped):
            run_method("group-lasso", PARAMS, data=data, run=str(tmp_path / "run"), extra=STREAM, on_event=stop)
    piped()
    assert resume_run(str(tmp_path / "run")).status == "done"
    assert bits(load_model(tmp_path / "run")) == bits(load_model(tmp_path / "straight"))
    kept = [[row["loss"] for row in RunStore.open(tmp_path / name).history()] for name in ("run", "straight")]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ("1 3:1 31:2", r"rows.svm:208:7: index 31 exceeds the 30 features .* \(row 208; the 207 rows before it are learned"),
        ("2 3:1", r"rows.svm:208:1: label 2 is not one of the declared labels -1, 1 .*row 208"),
        ("1 3:nan", r"rows.svm:208:5: value 'nan' is not finite.*row 208"),
    ],
)
def test_a_bad_line_in_mid_stream_loses_nothing_before_it(text, tmp_path, bad, message):
    _, _, lines = text
    path, run = tmp_path / "rows.svm", str(tmp_path / "run")
    straight = run_method("group-lasso", PARAMS, data=str(path), run=str(tmp_path / "straight"), extra=STREAM)
    path.write_text("\n".join([*lines[:207], bad, *lines[208:]]) + "\n")
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            run_method("group-lasso", PARAMS, data=str(path), run=run, extra=STREAM)
    assert RunStore.open(run).history()[-1]["rows"] == 207
    path.write_text("\n".join(lines) + "\n")
    assert resume_run(run).summary["mean_loss"] == pytest.approx(straight.summary["mean_loss"], rel=1e-14)
    assert bits(load_model(run)) == bits(load_model(tmp_path / "straight"))


def test_what_a_text_cannot_do_is_said_before_there_is_a_run(text, tmp_path):
    path, run = str(tmp_path / "rows.svm"), tmp_path / "run"
    cases = [
        ({"epochs": 2}, STREAM, {}, "epochs=2 needs rows that can be read again"),
        ({"algorithm": "fista"}, STREAM, {}, "algorithm='fista' needs rows that can be read again"),
        ({"class_weight": "balanced"}, STREAM, {}, "class_weight='balanced' needs rows"),
        ({}, {**STREAM, "test_share": 0.2}, {}, "a test share needs rows"),
        ({}, STREAM, {"cluster": "local:2"}, "cluster='local:2': a stream is read by one process"),
        ({}, {"stream": {"n_features": 30, "labels": [1.0]}}, {}, "labels=.1.: a classification needs at least two"),
        ({}, {"stream": {}}, {}, "n_features is None"),
    ]
    for params, extra, place, message in cases:
        with pytest.raises(ValueError, match=message):
            run_method("group-lasso", {**PARAMS, **params}, data=path, run=str(run), extra=extra, **place)
    with pytest.raises(ValueError, match="'fgm' needs a store"):
        run_method("fgm", {}, data=path, run=str(run), extra=STREAM)
    with pytest.raises(DataError, match="does not exist or cannot be read"):
        run_method("group-lasso", {}, data=path + "x", run=str(run), extra=STREAM)
    assert not run.exists()


def test_compressed_text_resumes_too(text, tmp_path, monkeypatch):
    import gzip

    _, _, lines = text
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    run_method("group-lasso", PARAMS, data=str(tmp_path / "rows.svm"), run=str(tmp_path / "straight"), extra=STREAM)

    def stop(event):
        if event["event"] == "iteration":
            raise Stopped

    for _ in range(2):
        with pytest.raises(Stopped):
            run_method("group-lasso", PARAMS, data=str(path), run=str(tmp_path / "run"), extra=STREAM, on_event=stop)
    resume_run(str(tmp_path / "run"))
    assert bits(load_model(tmp_path / "run")) == bits(load_model(tmp_path / "straight"))


# --- the command line -------------------------------------------------------------------------------------------------------------


def test_commands_as_typed(text, tmp_path, capsys, monkeypatch):
    _, _, lines = text

    def typed(*words):
        code = main([str(word) for word in words])
        return code, capsys.readouterr()

    (tmp_path / "groups.txt").write_text("\n".join(map(str, GROUPS)) + "\n")
    words = ("--n-features", 30, "--groups", tmp_path / "groups.txt", "--set", "lam=0.05", "--json")
    code, said = typed("fit", "group-lasso", "--stream", tmp_path / "rows.svm", "--run", tmp_path / "run", *words)
    assert code == 0 and json.loads(said.out.splitlines()[-1])["summary"]["n_groups"] == 2
    monkeypatch.setattr("sys.stdin", type("", (), {"buffer": io.BytesIO(("\n".join(lines) + "\n").encode())}))
    assert typed("fit", "group-lasso", "--stream", "-", "--run", tmp_path / "piped", *words)[0] == 0
    assert bits(load_model(tmp_path / "piped")) == bits(load_model(tmp_path / "run"))
    code, said = typed("fit", "group-lasso", "--stream", tmp_path / "rows.svm", "--run", tmp_path / "dry", *words, "--dry-run")
    assert code == 0 and json.loads(said.out.splitlines()[-1])["plan"]["rows_from"] == "text" and not (tmp_path / "dry").exists()
    bad = {
        ("--data", tmp_path / "rows.svm", "--n-features", 3): "--n-features describes text",
        (): "give --data STORE, or --stream FILE",
        ("--stream", tmp_path / "rows.svm"): "give --n-features N",
        ("--stream", "-", "--data", "x", "--n-features", 3): "exclude each other",
        ("--stream", "-", "--labels", "a,b", "--n-features", 3): "--labels a,b",
        ("--stream", tmp_path / "none.svm", "--n-features", 3): "does not exist",
    }
    for given, message in bad.items():
        code, said = typed("fit", "group-lasso", "--run", tmp_path / "bad", *given)
        assert code == 2 and message in said.err
    (tmp_path / "broken.svm").write_text("1 2:1\n-1 40:1\n")
    code, said = typed("fit", "group-lasso", "--stream", tmp_path / "broken.svm", "--run", tmp_path / "broken", *words)
    assert code == 3 and "broken.svm:2:4: index 40 exceeds the 30 features" in said.err


def test_grids_of_penalty_and_gamma_read_the_rows_once(tmp_path, monkeypatch):
    X, value = problem(n=200)
    store = ingest((sp.csr_array(X), np.where(value > 0, 1, -1)), tmp_path / "data", groups=GROUPS, layout="both")
    loads, load = [], online_rows.RowBlocks.load
    monkeypatch.setattr(online_rows.RowBlocks, "load", lambda self, ref: loads.append(ref) or load(self, ref))
    grid = {"lam": [0.05, 5.0], "gamma": [0.5, 2.0]}
    with monkeypatch.context() as patch:
        patch.setattr("gramplane.pipeline.runs.tune.run_method", lambda *args, **options: type("", (), {"summary": {}}))
        done = tune("group-lasso", grid, data=store.url, run=str(tmp_path / "run"), params={"epochs": 2}, folds=3)
    # Two epochs, and the scores of twelve fits.
    assert len(loads) == 2 + 12
    rows = RunStore.open(tmp_path / "run").read_json("tune")
    assert [(row["lam"], row["gamma"]) for row in rows] == [(0.05, 0.5), (0.05, 2.0), (5.0, 0.5), (5.0, 2.0)]
    assert done.summary["best"]["lam"] == 0.05 and done.summary["accuracy"] > 0.8
    # A fit of the grid is the fit alone with these rows held out.
    mask = fold_masks(store.target().astype(int), (-1, 1), 3, 0)[1]
    method, config = GroupLasso(), GroupLassoConfig(epochs=2, lam=0.05, gamma=2.0)
    with open_executor(None) as executor:
        ctx = RunContext(executor, data=store)
        problem_of_fold = method.problem(config, method.read_inputs(config, ctx, {})[1].without(mask), ctx)
        values = method.decision_values(problem_of_fold, iterate(method, problem_of_fold, ctx).state, ctx)
    assert rows[1]["folds"][1] == np.mean((values[0] > 0)[mask] == (value > 0)[mask])
    # Little memory means more passes, of the same bits.
    points, masks = [GroupLassoConfig(lam=x, epochs=2) for x in (1, 2, 3)], dict(enumerate(fold_masks(store.target(), (-1, 1), 3, 0)))
    with open_executor(None) as executor:
        for memory, passes in ((1 << 30, [3]), (1 << 13, [1, 1, 1])):
            ctx = RunContext(executor, data=store, driver_memory=memory)
            _, inputs = GroupLasso().read_inputs(points[0], ctx, {})
            runs = FoldRuns(GroupLasso(), points, inputs, masks, ctx).of(range(3))
            assert [len({point for point, _ in fits}) for fits, _ in runs] == passes


def test_batch_fits_and_real_targets_are_tuned_too(tmp_path):
    X, value = problem(n=120)
    store = ingest((X, value), tmp_path / "data", task="regression", groups=GROUPS)
    place = {"data": store.url, "folds": 2, "params": {"gamma": 5.0}}
    streams = tune("group-lasso", {"lam": [0.01, 9.0]}, run=str(tmp_path / "da"), **place)
    batch = tune("group-lasso", {"lam": [0.01, 9.0], "algorithm": ["fista"]}, run=str(tmp_path / "batch"), **place)
    assert streams.summary["best"]["lam"] == batch.summary["best"]["lam"] == 0.01
    assert batch.summary["r2"] > streams.summary["r2"] > 0.3
    row = RunStore.open(tmp_path / "da").read_json("tune")[0]
    assert row["mse"] == pytest.approx((1 - row["r2"]) * value.var(), rel=0.2)


@pytest.mark.slow
def test_the_example_workflow_runs_and_its_report_shows_the_stream(tmp_path, capsys):
    X, value = problem(n=200)
    shutil.copy(WORKFLOWS / "group_lasso.yaml", tmp_path / "w.yaml")
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "clicks.svm", X, np.where(value > 0, 1.0, -1.0))
    (tmp_path / "data" / "groups.txt").write_text("\n".join(map(str, GROUPS)) + "\n")
    assert main(["run", str(tmp_path / "w.yaml"), "--run-id", "one"]) == 0, capsys.readouterr().err
    best = next((tmp_path / "runs").rglob("best"))
    assert load_model(best).score(X, np.where(value > 0, 1, -1)) > 0.8
    page = next((tmp_path / "runs").rglob("report.html")).read_text()
    for title in ("Loss along the stream", "Sparsity along the stream"):
        assert title in page
    assert next((tmp_path / "runs").rglob("stream.csv")).read_text().count("\n") == 4


def test_a_workflow_may_learn_from_a_text(text, tmp_path, capsys):
    (tmp_path / "groups.txt").write_text("\n".join(map(str, GROUPS)) + "\n")
    step = "stream: {source: rows.svm, n_features: 30}, groups: groups.txt, lam: 0.02, batch_size: 7"

    def workflow(kind, more=""):
        head = "schema: gramplane.workflow/1\nname: s\nruns: runs\nsteps:\n"
        (tmp_path / "w.yaml").write_text(f"{head}  - {{id: fit, do: {kind}, with: {{method: group-lasso, {step}{more}}}}}\n")
        code = main(["run", str(tmp_path / "w.yaml"), "--run-id", "one"])
        return code, capsys.readouterr()

    code, said = workflow("fit")
    assert code == 0, said.err
    run_method("group-lasso", PARAMS, data=str(tmp_path / "rows.svm"), run=str(tmp_path / "alone"), extra=STREAM)
    (made,) = [path.parent for path in (tmp_path / "runs").rglob("model")]
    assert bits(load_model(made)) == bits(load_model(tmp_path / "alone"))
    code, said = workflow("tune", ", grid: {gamma: [1, 2]}")
    assert code == 2 and "stream is read only once" in said.err


def test_a_stream_after_a_batch_fit_begins_anew_and_says_so():
    X, y = problem()
    labels = (y > 0).astype(int)
    machine = GroupLassoClassifier(lam=0.01, scale=None).fit(X, labels)
    with pytest.warns(UserWarning, match="partial_fit begins anew"):
        machine.partial_fit(X, labels)
    expected = GroupLassoClassifier(lam=0.01, scale=None).partial_fit(X, labels, classes=[0, 1])
    np.testing.assert_array_equal(machine.coef_, expected.coef_)
    assert np.isnan(machine.dual_gap_) and not machine.converged_

"""Data that are replaced under a run: it finishes on what it opened, or ends by name; never a model of two data sets."""

import gc
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from gramplane.cluster import TaskFailed
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.kernels.jit import one_thread
from gramplane.pipeline import predict_store, resume_run, run_method, tune
from gramplane.pipeline.methods.fgm.model import FGMModel
from gramplane.pipeline.runs import run as pipeline_running
from gramplane.pipeline.runs.gram_stores import build_grams
from gramplane.storage import BlockStore, DigestMismatch, GramStore, block_cache
from gramplane.storage.ingest import ingest, ingest_grams
from gramplane.storage.ingest.text import svmlight
from gramplane.workflows.cli import main
from gramplane.workflows.exits import Exit, exit_code
from gramplane.workflows.runner import run_workflow
from gramplane.workflows.schema import read_workflow
from gramplane.workflows.steps import ACTIONS
from tests.support.commands import tree_bytes

FGM = {"B": 2, "max_rounds": 6, "outer_tol": 1e-12}


@pytest.fixture(autouse=True)
def _one_thread():
    limit = block_cache().limit
    block_cache().clear()
    block_cache().set_limit(0)  # every pass reads the store
    with one_thread():
        yield
    block_cache().set_limit(limit)


def rows(seed, n=60, d=40):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, :5].sum(axis=1) + rng.normal(size=n) > 0, 1, -1)


@pytest.fixture
def place(tmp_path):
    ingest(rows(0), tmp_path / "data")
    straight = run_method("fgm", FGM, data=str(tmp_path / "data"), run=str(tmp_path / "straight"))
    assert straight.summary["rounds"] == 6
    return tmp_path


class Stopped(Exception):
    """What the event sink raises to end a run."""


def at_round(number, act):
    """An event sink that acts once, after a step was checkpointed."""

    def sink(event):
        if event["event"] == "iteration" and event["iteration"] == number:
            act()

    return sink


def stop():
    raise Stopped


def replace(place, seed=1):
    return lambda: ingest(rows(seed), place / "data", overwrite=True)


def remake(place):
    def act():
        shutil.rmtree(place / "data")
        ingest(rows(1), place / "data")

    return act


def fit(place, run, **options):
    return run_method("fgm", FGM, data=str(place / "data"), run=str(place / run), **options)


@pytest.mark.parametrize("number", [1, 3, 6])
def test_a_fit_finishes_on_the_version_it_opened(place, number):
    assert fit(place, "run", on_event=at_round(number, replace(place))).status == "done"
    assert tree_bytes(place / "run" / "model") == tree_bytes(place / "straight" / "model")
    assert BlockStore.open(place / "data").digest != json.loads((place / "run" / "config.json").read_text())["config"]["data_digest"]


@pytest.mark.slow
@pytest.mark.cluster
def test_workers_read_the_version_of_the_driver(place):
    """The store is replaced before the workers open it: between the driver's look at it and the checks before the run."""
    opened = pipeline_running.open_data

    def late(*words):
        found = opened(*words)
        ingest(rows(1), place / "data", overwrite=True)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline_running, "open_data", late)
        assert fit(place, "run", cluster="local:1").status == "done"
    assert tree_bytes(place / "run" / "model") == tree_bytes(place / "straight" / "model")


def test_a_store_removed_by_hand_and_made_again_ends_the_run_by_name(place):
    with pytest.raises((DigestMismatch, TaskFailed), match=r"the store was replaced|was replaced while it was read") as ended:
        fit(place, "run", on_event=at_round(2, remake(place)))
    assert exit_code(ended.value) == Exit.DAMAGED
    assert not (place / "run" / "model").exists() and not (place / "run" / "summary.json").exists()
    assert len(list((place / "run" / "checkpoints").glob("*.json"))) == 2, "nothing was kept of the step that read other rows"
    with pytest.raises(DigestMismatch, match="the store was replaced"):
        resume_run(str(place / "run"))


def test_a_store_removed_after_the_last_step_makes_no_model(place):
    with pytest.raises(DigestMismatch, match="was replaced"):
        fit(place, "run", on_event=at_round(6, remake(place)))
    assert not (place / "run" / "model").exists()


def test_a_resume_takes_the_version_of_the_run_or_ends_by_name(place):
    reader = BlockStore.open(place / "data")
    for run in ("kept", "gone"):
        with pytest.raises(Stopped):
            fit(place, run, on_event=at_round(2, stop))
    replace(place)()
    assert resume_run(str(place / "kept")).status == "done"
    assert tree_bytes(place / "kept" / "model") == tree_bytes(place / "straight" / "model")
    del reader
    gc.collect()
    replace(place, 2)()
    with pytest.raises(DigestMismatch, match="the store was replaced"):
        resume_run(str(place / "gone"))


def test_the_last_fit_of_a_grid_sees_the_rows_that_its_folds_saw(place):
    grid = {"C": [0.5, 2.0]}
    given = {"data": str(place / "data"), "params": FGM, "folds": 2}
    tune("fgm", grid, run=str(place / "grid"), **given)
    done = []

    def once(event):
        if event["event"] in ("iteration", "fold") and not done:
            done.append(replace(place)())

    tune("fgm", grid, run=str(place / "other"), on_event=once, **given)
    assert done and tree_bytes(place / "other" / "best" / "model") == tree_bytes(place / "grid" / "best" / "model")


def test_those_who_look_are_told(place, capsys):
    words = ["predict", place / "straight", place / "data", place / "out.npz"]

    def said(*command):
        capsys.readouterr()
        assert main([*map(str, command), "--json"]) == 0
        captured = capsys.readouterr()
        return json.loads(captured.out.rstrip("\n").rpartition("\n")[2]), captured.err

    assert "data_replaced" not in said("status", place / "straight")[0] and "was replaced" not in said(*words)[1]
    replace(place)()
    assert "was replaced since this run was made" in said("status", place / "straight")[0]["data_replaced"]
    assert "was replaced since this run was made" in said(*words)[1]
    said("report", place / "straight")
    assert "was replaced since this run was made" in (place / "straight" / "report.html").read_text()


def test_a_run_fitted_again_while_it_predicts_ends_by_name(place, monkeypatch):
    decide = FGMModel.decision_values

    def late(self, data, resources, **rows):
        shutil.rmtree(place / "straight")
        run_method("fgm", {**FGM, "C": 3.0}, data=str(place / "data"), run=str(place / "straight"))
        return decide(self, data, resources, **rows)

    monkeypatch.setattr(FGMModel, "decision_values", late)
    with pytest.raises(DigestMismatch, match="the run was fitted again"):
        predict_store(str(place / "straight"), str(place / "data"), str(place / "out.npz"))
    assert not (place / "out.npz").exists()


# -- Gram stores -------------------------------------------------------------------------------------------------------------


KERNELS = ["rbf(gamma=0.1)", "linear[0:5]", "linear[5:9]"]


def test_a_fit_finishes_on_the_gram_store_it_opened(place):
    grams, data = str(place / "grams"), str(place / "data")
    build_grams(data, KERNELS, grams)
    given = {"grams": "store", "gram_store": grams, "tol": 1e-6}
    run_method("mkl", given, data=data, run=str(place / "one"))
    ingest(rows(1), place / "other")

    def other():
        assert build_grams(str(place / "other"), KERNELS, grams, overwrite=True).status == "done"

    run_method("mkl", given, data=data, run=str(place / "two"), on_event=at_round(1, other))
    assert tree_bytes(place / "two" / "model") == tree_bytes(place / "one" / "model")
    now = GramStore.open(grams)
    assert now.meta.data == f"{BlockStore.open(place / 'other').digest}:standard" and now.verify().ok and now.url.endswith("/v1")
    assert build_grams(str(place / "other"), [*KERNELS, "linear[9]"], grams, overwrite=True).figures["blocks_reused"] == 1
    assert GramStore.open(grams).url == now.url, "kernels of the same rows are added, not built anew"


def test_a_replacement_that_is_killed_leaves_the_old_gram_store_and_goes_on(place, monkeypatch):
    grams = str(place / "grams")
    build_grams(str(place / "data"), KERNELS, grams)
    old = GramStore.open(grams).meta.data
    ingest(rows(1), place / "other")

    def killed(self, *words):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(GramStore, "write", killed)
        with pytest.raises(TaskFailed, match="Stopped"):
            build_grams(str(place / "other"), KERNELS, grams, overwrite=True)
    assert GramStore.open(grams).meta.data == old and GramStore.open(grams).verify().ok
    assert build_grams(str(place / "other"), KERNELS, grams, overwrite=True).status == "done"
    assert GramStore.open(grams).meta.data != old


def test_given_matrices_are_replaced_by_those_of_other_samples(tmp_path):
    ingest_grams(np.eye(4), tmp_path / "g")
    for overwrite in (False, True):
        if not overwrite:
            with pytest.raises(DigestMismatch, match="choose another place"):
                ingest_grams(np.eye(5), tmp_path / "g")
            continue
        ingest_grams(np.eye(5), tmp_path / "g", overwrite=True)
    assert GramStore.open(tmp_path / "g").n == 5


# -- Gram stores that are removed by hand between kill and resume ---------------------------------------------------------------

N_GIVEN = 260
GIVEN = {
    "mkl": {"tol": 1e-7},
    "two-layer-mkl": {"max_iter": 3},
    "shared-subspace-mkl": {"tol": 1e-7},
}
"""Methods that read matrices which were computed elsewhere, with parameters that let them take more than one step."""


def matrices(seed, n=N_GIVEN):
    factors = np.random.default_rng(seed).normal(size=(3, n, 4))
    return np.einsum("kip,kjp->kij", factors, factors).astype(np.float32)


@pytest.fixture
def given(tmp_path):
    X, y = rows(3, N_GIVEN, 9)
    ingest((X, y), tmp_path / "data", task_column=np.arange(N_GIVEN) % 3)
    return tmp_path


def given_grams(place, seed=0, **options):
    shutil.rmtree(place / "grams", ignore_errors=True)
    found = matrices(seed)
    ingest_grams((found + found.transpose(0, 2, 1)) / 2, place / "grams", **options)


def fit_given(place, method, run, **options):
    params = {"kernels": "precomputed", "gram_store": str(place / "grams"), **GIVEN[method]}
    return run_method(method, params, data=str(place / "data"), run=str(place / run), **options)


@pytest.mark.parametrize("method", GIVEN)
def test_given_matrices_that_were_made_again_are_told_at_resume(given, method):
    given_grams(given, block=256)
    fit_given(given, method, "straight")
    with pytest.raises(Stopped):
        fit_given(given, method, "run", on_event=at_round(1, stop))
    for options, told in (
        ({"seed": 1, "block": 256}, "kernels are no longer the same: of 3 3 are gone, 3 were added"),
        ({"block": 128}, "rows of a block"),
    ):
        given_grams(given, **options)
        with pytest.raises(DigestMismatch, match=rf"grams is not the Gram store that the run .*run began with: {told}") as ended:
            resume_run(str(given / "run"))
        assert exit_code(ended.value) == Exit.DAMAGED and not (given / "run" / "model").exists()
    given_grams(given, block=256)
    assert resume_run(str(given / "run")).status == "done"
    assert tree_bytes(given / "run" / "model") == tree_bytes(given / "straight" / "model")


def test_fits_of_a_grid_see_the_same_matrices(given):
    """Folds that are done are not done again: those to come, and the last fit on all rows, must read what they read."""
    params = {"kernels": "precomputed", "gram_store": str(given / "grams"), "tol": 1e-2}
    place = {"data": str(given / "data"), "params": params, "folds": 2}
    grid = {"C": [0.5, 2.0], "solver": ["auto"]}
    given_grams(given)
    tune("mkl", grid, run=str(given / "straight"), **place)
    with pytest.raises(Stopped):
        tune("mkl", grid, run=str(given / "grid"), on_event=at_round(1, stop), **place)
    given_grams(given, 1)
    with pytest.raises(DigestMismatch, match=r"is not the Gram store that the run .*grid began with: kernels are no longer the same"):
        tune("mkl", grid, run=str(given / "grid"), **place)
    given_grams(given)

    def other(event):
        if event["event"] == "resume":
            given_grams(given, 1)

    # (removed while they are read, matrices are missed before they are compared)
    with pytest.raises((DigestMismatch, TaskFailed), match=r"began with|blocks/c/0/0/0 is absent"):
        tune("mkl", grid, run=str(given / "grid"), on_event=other, **place)
    assert not (given / "grid" / "best").exists()
    given_grams(given)
    assert tune("mkl", grid, run=str(given / "grid"), **place).status == "done"
    assert tree_bytes(given / "grid" / "best" / "model") == tree_bytes(given / "straight" / "best" / "model")


def computed_grams(place, block, kernels=KERNELS):
    shutil.rmtree(place / "grams", ignore_errors=True)
    specs = [KernelSpec.parse(text) for text in kernels]
    data = BlockStore.open(place / "data").with_scale("standard", centred=True)
    GramStore.create(
        place / "grams", data_digest=data.digest, n=data.n_rows, kernels=[(s.digest(), s.raw_json()) for s in specs], block=block
    )
    build_grams(str(place / "data"), kernels, str(place / "grams"))


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["precomputed", KERNELS], ids=["all", "named"])
def test_a_computed_gram_store_that_was_made_again_otherwise_is_told_at_resume(given, kernels):
    params = {"kernels": kernels, "grams": "store", "gram_store": str(given / "grams"), "tol": 1e-9}
    place = {"data": str(given / "data")}
    computed_grams(given, 256)
    run_method("mkl", params, run=str(given / "straight"), **place)
    with pytest.raises(Stopped):
        run_method("mkl", params, run=str(given / "run"), on_event=at_round(1, stop), **place)
    computed_grams(given, 128)
    with pytest.raises(DigestMismatch, match=r"rows of a block was 256 and is 128\. Build the same store again"):
        resume_run(str(given / "run"))
    computed_grams(given, 256, [*KERNELS, "linear[8]"])
    assert resume_run(str(given / "run")).status == "done", "kernels that the run did not begin with may come"
    assert tree_bytes(given / "run" / "model") == tree_bytes(given / "straight" / "model")


@pytest.mark.slow
def test_a_gram_store_that_the_run_made_is_made_again_when_it_is_gone(given):
    params = {"kernels": KERNELS, "grams": "store", "gram_store": str(given / "grams"), "tol": 1e-9}
    run_method("mkl", params, run=str(given / "straight"), data=str(given / "data"))
    shutil.rmtree(given / "grams")
    with pytest.raises(Stopped):
        run_method("mkl", params, run=str(given / "run"), data=str(given / "data"), on_event=at_round(1, stop))
    shutil.rmtree(given / "grams")
    assert resume_run(str(given / "run")).status == "done"
    assert tree_bytes(given / "run" / "model") == tree_bytes(given / "straight" / "model")


# -- text that is read once -----------------------------------------------------------------------------------------------------


LASSO = {"lam": 0.001}
STREAM = {"stream": {"n_features": 30}}


@pytest.fixture(params=["plain", "packed"])
def text(request, tmp_path, monkeypatch):
    """A text in four pieces, and a function that changes a digit at a place without changing lengths."""
    import gzip

    monkeypatch.setattr(svmlight, "PIECE", 2000)
    rng = np.random.default_rng(0)
    lines = [f"{'+1' if rng.random() < 0.5 else '-1'} {rng.integers(1, 30)}:0.{rng.integers(1000, 9999)}\n" for _ in range(500)]
    content = "".join(lines).encode()
    place = tmp_path / ("rows.svm" if request.param == "plain" else "rows.svm.gz")

    def write(data):
        place.write_bytes(data if request.param == "plain" else gzip.compress(data, mtime=0))

    def change(at):
        where = content.index(b":0.", at) + 3
        digit = b"1" if content[where : where + 1] != b"1" else b"2"
        write(content[:where] + digit + content[where + 1 :])

    write(content)
    return place, change, lambda: write(content + b"+1 3:0.5\n")


def learn(text, run, **options):
    return run_method("group-lasso", LASSO, data=str(text), run=str(run), extra=STREAM, **options)


def test_a_text_changed_between_kill_and_resume_is_refused(text, tmp_path):
    place, change, _ = text
    with pytest.raises(Stopped):
        learn(place, tmp_path / "run", on_event=at_round(2, stop))
    change(0)
    with pytest.raises(DigestMismatch, match=r"the first \d+ bytes, which the run has learned from.*the text was changed"):
        resume_run(str(tmp_path / "run"))
    assert not (tmp_path / "run" / "model").exists()


def test_a_text_that_is_the_same_or_changed_behind_is_resumed(text, tmp_path):
    place, _, grow = text
    learn(place, tmp_path / "straight")
    with pytest.raises(Stopped):
        learn(place, tmp_path / "run", on_event=at_round(2, stop))
    os.utime(place, (1, 1))
    shutil.copytree(tmp_path / "run", tmp_path / "longer")
    events = []
    resume_run(str(tmp_path / "run"), on_event=events.append)
    assert any("are read again" in event.get("phase", "") for event in events), "what the comparison costs is told"
    assert tree_bytes(tmp_path / "run" / "model") == tree_bytes(tmp_path / "straight" / "model")
    grow()
    assert resume_run(str(tmp_path / "longer")).summary["rows"] == 501


def test_a_text_changed_while_it_is_read_makes_no_model(text, tmp_path):
    place, change, _ = text
    with pytest.raises(DigestMismatch, match="the text was changed"):
        learn(place, tmp_path / "run", on_event=at_round(2, lambda: change(0)))
    assert not (tmp_path / "run" / "model").exists()


# -- workflows ----------------------------------------------------------------------------------------------------------------


def test_a_step_whose_input_is_replaced_while_it_works_fails(place, monkeypatch):
    (place / "flow.yaml").write_text(
        "schema: gramplane.workflow/1\nname: flow\nruns: runs\nstore: data\nsteps:\n"
        "  - {id: one, do: fit, with: {method: fgm, B: 2, max_rounds: 2}}\n"
    )
    read, action = read_workflow(str(place / "flow.yaml")), ACTIONS["fit"]

    def late(*words):
        done = action.work(*words)
        replace(place)()
        return done

    with monkeypatch.context() as patch:
        patch.setitem(ACTIONS, "fit", action._replace(work=late))
        with pytest.raises(DigestMismatch, match="data was replaced while step 'one' read it"):
            run_workflow(read, run_id="r")
    record = json.loads((Path(place) / "runs" / "r" / ".steps" / "one.json").read_text())
    assert record["status"] == "failed"

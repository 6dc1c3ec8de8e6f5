"""One fit, whatever holds the data: arrays in any form, stores of any layout, scaling factors; predictions, scores, tuning on stores."""

import csv
import tracemalloc

import dask.array as da
import numpy as np
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import zarr

from gramplane.cluster import MemorySink
from gramplane.pipeline import FGMClassifier, cross_validate, load_model, predict_store, run_method, score_store, tune
from gramplane.pipeline.core.engine import iterate
from gramplane.pipeline.core.resources import RunContext, resolve
from gramplane.pipeline.inputs.labels import Inputs
from gramplane.pipeline.inputs.scores import stratified_folds, stratified_split
from gramplane.pipeline.methods.fgm import score_pass as feature_scores
from gramplane.pipeline.methods.fgm.config import FGMConfig
from gramplane.pipeline.methods.fgm.method import FGM
from gramplane.storage import BlockStore, MemoryBlocks, block_cache
from gramplane.storage.ingest import ingest
from tests.support.fgm_problems import bits, classes, forms, planted

PARAMS = {"B": 4, "C": 1.0, "max_rounds": 3}
AS_GIVEN = {**PARAMS, "scale": None}  # rows held out have a part in scalings
ATOMS = {
    "linear": {},
    "groups": {"groups": np.arange(60) // 7},
    "overlap": {"groups": [np.arange(j, min(j + 9, 60)) for j in range(0, 60, 6)]},
    "tree": {"groups": [np.arange(60), np.arange(20), np.arange(5, 9), np.arange(20, 60), np.arange(30, 50), np.arange(33, 37)]},
    "poly2": {"feature_map": "poly2", "gamma": 0.5},
    "hik": {"feature_map": "hik", "n_bins": 8},
    "hik of powers": {"feature_map": "hik", "n_bins": 8, "exponent": 0.7},
    "additive_gaussian": {"feature_map": "additive_gaussian", "gamma": 0.3},
    "additive_chi2": {"feature_map": "additive_chi2"},
}


def data(name, density=0.4):
    X, y = planted(1, density=density)
    return (np.abs(X) if name in ("hik", "additive_chi2") else X), y


def stored(path, X, y, monkeypatch=None, stripe=None, **options):
    """A store of many small stripes."""
    if stripe is not None:
        monkeypatch.setattr("gramplane.storage.ingest.options.STRIPE_BYTES", stripe)
    return ingest((X, y), path, **options)


def fitted(X, y=None, **params):
    return FGMClassifier(**{**PARAMS, **params}).fit(X, y)


# --- the same bits ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csc_array", "dense"])
@pytest.mark.parametrize("atoms", ATOMS)
def test_memory_and_stores_of_any_stripes_give_the_same_bits(tmp_path, monkeypatch, atoms, form):
    X, y = data(atoms)
    expected = bits(fitted(forms(X)[form], y, **ATOMS[atoms]))
    for stripe in (64, 1 << 22):
        store = stored(tmp_path / f"{stripe}.zarr", forms(X)[form], y, monkeypatch, stripe)
        assert len(store.column_blocks()) > 1 or stripe == 1 << 22
        assert bits(fitted(store, **ATOMS[atoms])) == expected, stripe
    assert bits(fitted(str(tmp_path / "64.zarr"), **ATOMS[atoms])) == expected


@pytest.mark.parametrize("limit", [1, 3000])
@pytest.mark.parametrize("atoms", ["linear", "groups", "poly2"])
def test_sizes_of_tasks_do_not_matter(tmp_path, monkeypatch, atoms, limit):
    from gramplane.pipeline.passes import blocks

    X, y = data(atoms)
    expected = bits(fitted(sp.csc_array(X), y, **ATOMS[atoms]))
    store = stored(tmp_path / "a.zarr", sp.csc_array(X), y, monkeypatch, 256)
    real = blocks.byte_groups
    monkeypatch.setattr(blocks, "byte_groups", lambda refs: real(refs, limit))
    assert len(blocks.column_tasks(store)) > 2
    assert bits(fitted(store, **ATOMS[atoms])) == expected


@pytest.mark.parametrize("atoms", ["linear", "overlap", "poly2"])
def test_stripes_in_memory_do_not_matter(atoms):
    X, y = data(atoms)
    config = FGMConfig(**PARAMS, **{k: v for k, v in ATOMS[atoms].items() if k != "groups"})
    found = []
    for stripe in (64, 5000):
        inputs = Inputs(MemoryBlocks(sp.csc_array(X), stripe_bytes=stripe), (y > 0).astype(int), (-1, 1), None, ATOMS[atoms].get("groups"))
        with _executor() as executor:
            ctx = RunContext(executor, data=inputs.data)
            state = iterate(FGM(), FGM().problem(config, inputs, ctx), ctx).state
        found.append([record.omega.tobytes() for record in state.machines[0].rounds])
    assert found[0] == found[1]


def _executor():
    from gramplane.cluster import open_executor

    return open_executor()


@pytest.mark.parametrize("chunks", [(80, 60), (17, 13), (80, 7)])
def test_dask_arrays_are_the_arrays_they_hold(chunks):
    X, y = data("linear")
    machine = fitted(da.from_array(X, chunks=chunks), y)
    assert bits(machine) == bits(fitted(X, y))
    np.testing.assert_array_equal(machine.predict(da.from_array(X, chunks=chunks)), machine.predict(X))


def test_dask_arrays_of_sparse_blocks():
    X, y = data("linear")
    blocks = da.from_array(X, chunks=(17, 60)).map_blocks(sp.csr_matrix)
    assert bits(fitted(blocks, y)) == bits(fitted(sp.csr_array(X), y))


@pytest.mark.parametrize("form", ["csr_array", "dense"])
def test_classes_on_a_store(tmp_path, monkeypatch, form):
    X, codes = classes(density=0.5)
    names = np.array(["no", "perhaps", "yes"])[codes]
    store = stored(tmp_path / "a.zarr", forms(X)[form], names, monkeypatch, 512)
    machine = fitted(store)
    assert bits(machine) == bits(fitted(forms(X)[form], names))
    assert machine.classes_.tolist() == ["no", "perhaps", "yes"]
    assert machine.predict(store).tolist() == machine.predict(forms(X)[form]).tolist()
    run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    loaded = load_model(tmp_path / "run")
    assert bits(loaded) == bits(machine)
    assert loaded.classes_.tolist() == ["no", "perhaps", "yes"]


def test_weights_and_groups_of_a_store_are_used(tmp_path):
    X, y = data("groups")
    weight = np.random.default_rng(0).uniform(0.1, 2.0, len(y))
    labels = ATOMS["groups"]["groups"]
    stored(tmp_path / "a.zarr", sp.csr_array(X), y, weight_column=weight, groups=labels)
    expected = FGMClassifier(**PARAMS, groups=labels).fit(sp.csr_array(X), y, weight)
    run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    assert bits(load_model(tmp_path / "run")) == bits(expected)
    assert bits(fitted(tmp_path / "a.zarr")) == bits(expected)


# --- scaling ----------------------------------------------------------------------------------------------------------------------


def explicitly(X, scale):
    """The scaled array the factors stand for."""
    if scale == "none":
        return X
    if scale == "unit-row":
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        return X / np.where(norms > 0, norms, 1.0)
    if scale == "unit-column":
        norms = np.linalg.norm(X, axis=0)
        return X / np.where(norms > 0, norms, 1.0)
    deviation = X.std(axis=0)
    return X / np.where(deviation > 0, deviation, 1.0)


SCALINGS = ["unit-column", "standard", "unit-row"]
SCALED = [(atoms, scale) for atoms in ("linear", "groups", "poly2") for scale in SCALINGS]


@pytest.mark.parametrize(
    ("atoms", "scale"), [*SCALED, ("linear", "none"), ("additive_gaussian", "standard"), ("additive_gaussian", "unit-column")]
)
@pytest.mark.parametrize("form", ["csc_array", "dense"])
def test_scaling_factors_equal_scaled_arrays(tmp_path, monkeypatch, atoms, form, scale):
    X, y = data(atoms)
    X[:, 7] = 0.0
    X *= np.random.default_rng(0).uniform(0.5, 3.0, 60)
    store = stored(tmp_path / "a.zarr", forms(X)[form], y, monkeypatch, 512, scale=scale)
    scaled = explicitly(X, scale)
    if scale == "standard" and form == "dense":
        scaled = scaled - scaled.mean(axis=0)
    params = {**ATOMS[atoms], "fit_intercept": True, "inner_tol": 1e-9, "scale": None}
    a, b = fitted(store, **params), fitted(scaled, y, **params)
    np.testing.assert_array_equal(a.selected_, b.selected_)
    assert a.objective_ == pytest.approx(b.objective_, rel=1e-7)
    decisions = a.decision_function(store)
    np.testing.assert_allclose(decisions, b.decision_function(scaled), atol=1e-5)
    np.testing.assert_allclose(a.decision_function(forms(X)[form]), decisions, atol=1e-12)
    if atoms in ("linear", "groups") and scale != "unit-row":
        np.testing.assert_allclose(X @ a.coef_[0] + a.intercept_[0], decisions, atol=1e-9)
        point = a.path_[-1]
        np.testing.assert_allclose(X[:, point.support] @ point.weights + point.intercept, decisions, atol=1e-9)


@pytest.mark.parametrize("scale", ["unit-column", "standard", "unit-row"])
@pytest.mark.parametrize("form", ["csr_array", "dense"])
def test_test_data_follow_the_scaling_of_the_training_store(tmp_path, form, scale):
    X, y = data("linear")
    test, truth = planted(2, density=0.4)
    stored(tmp_path / "train.zarr", forms(X)[form], y, scale=scale)
    stored(tmp_path / "test.zarr", forms(test)[form], truth, like=tmp_path / "train.zarr")
    run_method("fgm", PARAMS, data=str(tmp_path / "train.zarr"), run=str(tmp_path / "run"))
    predict_store(str(tmp_path / "run"), str(tmp_path / "test.zarr"), str(tmp_path / "out.npz"))
    model = load_model(tmp_path / "run")
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["decision"][:, 0], model.decision_function(forms(test)[form]), atol=1e-12)
    np.testing.assert_array_equal(model.decision_function(tmp_path / "test.zarr"), np.load(tmp_path / "out.npz")["decision"][:, 0])


# --- predictions and scores -------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path):
    """Training and test store of three classes with a finished run."""
    X, codes = classes()
    test, truth = classes(5)
    names = np.array(["a,b", 'q"', "c"])
    stored(tmp_path / "train.zarr", X, names[codes])
    stored(tmp_path / "test.zarr", test, names[truth], like=tmp_path / "train.zarr")
    run_method("fgm", PARAMS, data=str(tmp_path / "train.zarr"), run=str(tmp_path / "run"))
    return tmp_path, load_model(tmp_path / "run"), test, names[truth]


def test_predictions_in_every_form(three):
    folder, model, test, _ = three
    labels, decisions = model.predict(test), model.decision_function(test)
    for ending in ("npz", "csv", "parquet", "zarr"):
        told = predict_store(str(folder / "run"), str(folder / "test.zarr"), str(folder / f"out.{ending}"))
        assert told["rows"] == 120
        assert told["predicted"] == {str(name): int((labels == name).sum()) for name in np.unique(labels)}
    found = np.load(folder / "out.npz")
    np.testing.assert_array_equal(found["prediction"], labels)
    np.testing.assert_allclose(found["decision"], decisions, atol=1e-12)
    with open(folder / "out.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["prediction"] for row in rows] == labels.tolist()
    np.testing.assert_array_equal([float(row["decision_2"]) for row in rows], found["decision"][:, 2])
    table = pq.read_table(folder / "out.parquet")
    assert table["prediction"].to_pylist() == labels.tolist()
    np.testing.assert_array_equal(table["decision_0"].to_numpy(), found["decision"][:, 0])
    group = zarr.open_group(folder / "out.zarr", mode="r")
    names = group.attrs["gramplane"]["record"]["labels"]
    assert [names[code] for code in group["prediction"][:]] == labels.tolist()
    np.testing.assert_array_equal(group["decision"][:], found["decision"])


def test_scores_are_those_of_scikit_learn(three):
    from sklearn.metrics import accuracy_score, precision_recall_fscore_support

    folder, model, test, truth = three
    found = score_store(str(folder / "run"), str(folder / "test.zarr"))
    assert found["rows"] == 120
    assert found["accuracy"] == accuracy_score(truth, model.predict(test))
    wanted = precision_recall_fscore_support(truth, model.predict(test), labels=model.classes_)
    for row, label, values in zip(found["classes"], model.classes_, zip(*wanted, strict=True), strict=True):
        assert row["label"] == label
        assert (row["precision"], row["recall"], row["f1"], row["support"]) == pytest.approx(values)


def test_area_under_the_curve_for_two_classes(tmp_path):
    from sklearn.metrics import roc_auc_score

    X, y = data("linear")
    store = stored(tmp_path / "a.zarr", X, y)
    run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    model = load_model(tmp_path / "run")
    found = score_store(str(tmp_path / "run"), str(tmp_path / "a.zarr"))
    assert found["auc"] == pytest.approx(roc_auc_score(y, model.decision_function(store)))


@pytest.mark.parametrize("form", ["csr_array", "dense"])
def test_rows_held_out_by_a_share_take_no_part(tmp_path, form):
    X, y = planted(3, n=200)
    stored(tmp_path / "a.zarr", forms(X)[form], y)
    done = run_method("fgm", AS_GIVEN, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"), seed=7, extra={"test_share": 0.3})
    held = stratified_split((y > 0).astype(int), 0.3, 7)
    assert [held[y == label].mean() for label in (-1, 1)] == pytest.approx([0.3, 0.3], abs=0.01)
    expected = FGMClassifier(**AS_GIVEN).fit(forms(X)[form], y, (~held).astype(float))
    model = load_model(tmp_path / "run")
    assert bits(model) == bits(expected)
    right = expected.predict(forms(X)[form]) == y
    assert done.summary["train_accuracy"] == right[~held].mean()
    assert done.summary["test_accuracy"] == right[held].mean()
    assert model.history_["test_accuracy"][-1] == right[held].mean()
    table = score_store(str(tmp_path / "run"), str(tmp_path / "a.zarr"))
    assert table["rows"] == held.sum()
    assert table["accuracy"] == right[held].mean()


# --- folds ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["two", "three"])
def test_cross_validation_equals_fits_without_the_fold(tmp_path, kind):
    X, y = planted(4, n=90, density=0.5) if kind == "two" else classes(n=90, density=0.5)
    store = stored(tmp_path / "a.zarr", sp.csr_array(X), y)
    table = cross_validate("fgm", AS_GIVEN, data=str(tmp_path / "a.zarr"), folds=3, seed=5)
    masks = stratified_folds(store.target().astype(int), 5, [1 / 3] * 3)
    assert np.array_equal(np.sum(masks, axis=0), np.ones(90))
    assert [row["rounds"] for row in table] == [1, 2, 3]
    for row in table:
        accuracies, selected = [], []
        for mask in masks:
            machine = FGMClassifier(**{**AS_GIVEN, "max_rounds": row["rounds"]}).fit(sp.csr_array(X), y, (~mask).astype(float))
            accuracies.append(machine.score(sp.csr_array(X)[mask], y[mask]))
            cuts = [machine.cuts_] if kind == "two" else machine.cuts_
            selected.append(max(len(np.unique(np.concatenate(c))) for c in cuts))
        assert row["folds"] == accuracies
        assert row["accuracy"] == pytest.approx(np.mean(accuracies))
        assert row["deviation"] == pytest.approx(np.std(accuracies, ddof=1))
        assert row["selected"] == pytest.approx(np.mean(selected))


def test_tuning_takes_the_best_point_and_fits_it_on_all_rows(tmp_path):
    X, y = planted(6, n=90, density=0.5)
    stored(tmp_path / "a.zarr", sp.csr_array(X), y)
    grid = {"C": [0.1, 1.0], "B": [2, 6], "feature_map": [None, "poly2"]}
    done = tune("fgm", grid, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"), params={"max_rounds": 2}, folds=3, seed=1)
    points = [(C, B, map_) for C in (0.1, 1.0) for B in (2, 6) for map_ in (None, "poly2")]
    rows = []
    for C, B, map_ in points:
        alone = cross_validate(
            "fgm", {"C": C, "B": B, "feature_map": map_, "max_rounds": 2}, data=str(tmp_path / "a.zarr"), folds=3, seed=1
        )
        rows += [(row["accuracy"], -row["selected"], {"C": C, "B": B, "feature_map": map_, "max_rounds": row["rounds"]}) for row in alone]
    best = max(rows, key=lambda row: row[:2])
    assert done.summary["accuracy"] == best[0]
    assert done.summary["best"] in [row[2] for row in rows if row[:2] == best[:2]]
    expected = FGMClassifier(**done.summary["best"]).fit(sp.csr_array(X), y)
    assert bits(load_model(tmp_path / "run")) == bits(expected)
    again = tune("fgm", grid, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"), params={"max_rounds": 2}, folds=3, seed=1)
    assert again.status == "already-done"
    assert again.summary == done.summary


def test_names_of_features_reach_the_tables(tmp_path):
    X, y = data("linear")
    names = [f"gene {j}" for j in range(60)]
    store = stored(tmp_path / "a.zarr", X, y, names=names)
    assert isinstance(store, BlockStore)
    run_method("fgm", PARAMS, data=str(tmp_path / "a.zarr"), run=str(tmp_path / "run"))
    model = load_model(tmp_path / "run")
    assert list(model.model_.names) == [names[j] for j in model.selected_]


@pytest.mark.parametrize("sparse", [False, True])
def test_scoring_takes_no_more_than_its_plan(monkeypatch, tmp_path, sparse):
    """On few columns of many rows the dual vectors of the machines are most of it."""
    rng, shape = np.random.default_rng(0), (100_000, 12)
    X = sp.random_array(shape, density=0.01, rng=rng) if sparse else rng.normal(size=shape).astype(np.float32)
    store, taken, plain = ingest((X, np.arange(shape[0]) % 4), tmp_path / "store"), [], feature_scores.score_chunk

    def measured(task, atoms, duals, queries):
        block_cache().clear()
        tracemalloc.start()
        found = plain(task, atoms, duals, queries)
        taken.append(tracemalloc.get_traced_memory()[1] + resolve(duals).nbytes)
        tracemalloc.stop()
        return found

    events = MemorySink()
    for chunk in (plain, measured):  # the first compiles, and the second's first task imports
        monkeypatch.setattr(feature_scores, "score_chunk", chunk)
        run_method("fgm", {"B": 2, "max_rounds": 1}, data=store.url, run=str(tmp_path / chunk.__name__), on_event=events)
    planned = next(event["memory_bound"] for event in events.named("plan") if event["program"] == "feature-scores")
    assert taken[-1] - (1 << 16) <= planned <= 3 * taken[-1]

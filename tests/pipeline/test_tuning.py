"""Grids of every method of the registry: what `tune` promises whatever the method, and that a fold held out is as if it were not there."""

import json
from pathlib import Path

import numpy as np
import pytest

from gramplane.pipeline import METHODS, cross_validate, load_model, run_method, score_store, tune
from gramplane.pipeline.inputs.folds import fold_masks, task_folds
from gramplane.pipeline.inputs.tasks import TaskInputs
from gramplane.storage import DataError
from gramplane.storage.ingest import ingest
from tests.support.methods import CASES

SHARING = ("fgm", "mkl", "multitask-mkl", "group-lasso", "tri-class-svm")
ALONE = [name for name, info in METHODS.items() if info.config.has_scores and name not in SHARING]
"""Methods whose folds are fitted one after another; those that share passes have tests of their own."""
KERNELS = {"kernels", "dag"}
"""Parameters that name kernels."""

FIRST = {case.method: case for case in reversed(CASES.values())}


class Stopped(Exception):
    """What the event sink raises to end a run."""


def until_first_fold(event):
    if event["event"] == "fold":
        raise Stopped


def own_grid(case):
    """Two values of the parameter in which the case's other parameters differ."""
    other, name = case.other
    first = case.params.get(name, METHODS[case.method].config.model_fields[name].default)
    return {name: [first, other[name]]}


def written(case, folder):
    """A case's rows without scaling, in a store of their own; features, target, tasks."""
    raw = case.data(folder / "raw.zarr")
    X = np.asarray(getattr(raw.columns(np.arange(raw.n_cols)), "toarray", lambda: raw.columns(np.arange(raw.n_cols)))())
    labels, task = raw.meta.labels, raw.row_table("task") if raw.has_table("task") else None
    y = raw.target() if labels is None else np.array(labels)[raw.target().astype(int)]
    return X, y, task


def stored(X, y, task, path, **options):
    kind = {"task": "regression"} if y.dtype.kind == "f" else {}
    return ingest((X, y), path, task_column=task, **kind, **options)


def summary(run):
    return json.loads((Path(run) / "summary.json").read_text())


@pytest.mark.parametrize("name", ALONE)
def test_a_grid_of_any_method(tmp_path, name):
    case = FIRST[name]
    store = case.data(tmp_path / "data.zarr")
    place = {"data": store.url, "run": str(tmp_path / "run"), "params": case.params, "folds": 2, "seed": 1}
    grid, events = own_grid(case), []
    (parameter,) = grid

    with pytest.raises(Stopped):
        tune(name, grid, **place, on_event=until_first_fold)
    first = tmp_path / "run" / "cv-0-0"
    before = times(first)
    done = tune(name, grid, **place, on_event=events.append)
    assert len(before) > 3 and times(first) == before, "a fit that is done rests"
    table = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    measure = "r2" if store.meta.labels is None else "accuracy"
    assert {row["point"] for row in table} == {0, 1} and list({row[parameter]: 0 for row in table}) == grid[parameter]
    for row in table:
        assert len(row["folds"]) == 2 and np.isfinite(row["folds"]).all()
        assert row[measure] == pytest.approx(np.mean(row["folds"])) and row["deviation"] == pytest.approx(np.std(row["folds"], ddof=1))
        assert row["standard_error"] == pytest.approx(row["deviation"] / 2**0.5)
    assert done.summary[measure] == max(row[measure] for row in table)
    assert load_model(tmp_path / "run").get_params()[parameter] == done.summary["best"][parameter]
    assert tune(name, grid, **place).status == "already-done"
    told = [(event["point"], event["fold"]) for event in events if event["event"] == "fold"]
    assert sorted(told) == [(1, 1), (1, 2), (2, 1), (2, 2)] and told[0] == (1, 1)
    began = [event for event in events if event["event"] == "iteration" and event["iteration"] == 1]
    assert len(began) == 4, "three fits that were left, and the best on all rows"


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != "lock"}


def masks_of(name, X, y, task, folds, seed):
    labels, codes = np.unique(y, return_inverse=True)
    classes = None if y.dtype.kind == "f" else tuple(labels.tolist())
    if task is None or not METHODS[name].config.has_tasks:
        return fold_masks(codes if classes else y, classes, folds, seed)
    names, places = np.unique(task, return_inverse=True)
    return task_folds(TaskInputs(None, codes, classes, codes=places, names=tuple(names.tolist())), folds, seed)


@pytest.mark.parametrize("name", ALONE)
def test_a_fold_is_the_fit_of_the_other_rows_alone(tmp_path, name):
    case = FIRST[name]
    X, y, task = written(case, tmp_path)
    # Normalisation and scaling are over all rows, and so is the order in which a stream is drawn.
    fixed = {"normalize": "none", "shuffle": False, "scale": None}
    params = {**case.params, **{key: value for key, value in fixed.items() if key in METHODS[name].config.model_fields}}
    if name == "two-layer-mkl":
        params |= {"infinite": True, "max_new_kernels": 1}
    if name == "tri-class-svm":
        params |= {"inner_tol": 1e-7}  # assignments follow from decision values, which its own tolerance leaves open
    mask = masks_of(name, X, y, task, 2, 4)[0]
    # What is held out must not be looked at: far away, and on another scale.
    far = np.where(mask[:, None], 3.0 * X + 1.0, X)
    full = stored(far, y, task, tmp_path / "full.zarr")
    part = stored(X[~mask], y[~mask], None if task is None else task[~mask], tmp_path / "part.zarr")
    rest = stored(far[mask], y[mask], None if task is None else task[mask], tmp_path / "rest.zarr", like=part.url)
    ((parameter, (value, _)),) = own_grid(case).items()
    params.pop(parameter, None)
    params |= {} if name != "kta-path" else {"p": 1.5}  # else every point of the path is scored
    tune(name, {parameter: [value]}, data=full.url, run=str(tmp_path / "tuned"), params=params, folds=2, seed=4)
    (found,) = json.loads((tmp_path / "tuned" / "cv-0-0" / "scores.json").read_text())["rows"]
    settings = METHODS[name].config(**{**params, parameter: value}).for_folds().model_dump()  # the tolerances of folds
    alone = run_method(name, settings, data=part.url, run=str(tmp_path / "alone"), seed=4).summary
    assert found[5] == alone["n_selected" if "n_selected" in alone else "n_kernels"]
    peer = score_store(str(tmp_path / "alone"), rest.url)
    measure = "r2" if "r2" in peer else "accuracy"
    assert found[3][measure] == pytest.approx(peer[measure], abs=1.01 / mask.sum())


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in ALONE
        if METHODS[name].regressor and "loss" in (fields := METHODS[name].config.model_fields) and KERNELS & set(fields)
    ],
)
def test_regressions_are_compared_by_r2(tmp_path, name):
    rng = np.random.default_rng(3)
    X, task = rng.normal(size=(60, 4)), np.arange(60) % 3
    store = ingest((X, X[:, 0] + 0.1 * task), tmp_path / "data", task="regression", task_column=task)
    params = {key: value for key, value in FIRST[name].params.items() if key not in ("kernels", "dag")} | {"loss": "squared", "tol": 0.05}
    params |= {"dag": "subsets(gaussian[0:2])"} if name == "hierarchical-kernels" else {"kernels": ["linear", "rbf(gamma=0.5)[1]"]}
    low, high = cross_validate_all(name, [{**params, "C": 1e-3}, {**params, "C": 10.0}], store.url)
    assert high["r2"] > low["r2"] and high["mse"] < low["mse"] and high["r2"] > 0.2
    masks = task_folds(TaskInputs(None, store.target(), None, codes=task, names=(0, 1, 2)), 2, 0)
    assert high["mse"] == pytest.approx(np.mean([(1 - r2) * store.target()[m].var() for r2, m in zip(high["folds"], masks, strict=True)]))


def cross_validate_all(name, settings, data):
    return [row for params in settings for row in cross_validate(name, params, data=data, folds=2)]


def test_bad_grids_are_refused_before_there_is_a_folder(tmp_path):
    X, y, task = written(FIRST["latent-task-mkl"], tmp_path)
    data, run = stored(X, y, task, tmp_path / "data").url, str(tmp_path / "run")

    def refused(method, grid, words, error=ValueError, **options):
        with pytest.raises(error, match=words):
            tune(method, grid, data=data, run=run, **options)
        assert not Path(run).exists()

    refused("latent-task-mkl", {"CC": [1.0]}, "CC")
    refused("latent-task-mkl", {"C": [1.0]}, "edges", extra={"edges": [[0, 1]]})
    refused("latent-task-mkl", {"C": []}, r"grid\['C'\]=\[\]: must be a list of at least one value")
    refused("latent-task-mkl", {"C": [1.0, -1.0]}, "greater than 0")
    refused("latent-task-mkl", {"grams": ["memory", "recompute"]}, "grams only sets where matrices are stored, which changes no result")
    refused("unsupervised-mkl", {"n_bases": [3, 4]}, "'unsupervised-mkl' has no score on rows held out")
    refused("latent-task-mkl", {"C": [1.0]}, "has 12 rows, too few for 13 folds", DataError, folds=13)
    with pytest.raises(DataError, match=r"folds=300: n_samples=48 with positive weight are too few for 300 folds"):
        cross_validate("fgm", {}, data=data, folds=300)
    refused("latent-task-mkl", {"C": [1.0]}, "folds=1: a number of folds must be at least 2", folds=1)
    refused("latent-task-mkl", {"kernels": [["linear"], ["linear[9]"]]}, "9")
    # A task whose rows of weight are too few for the folds.
    stored(X, y, task, tmp_path / "light", weight_column=np.where((task == 20) & (np.cumsum(task == 20) > 2), 0.0, 1.0))
    data = str(tmp_path / "light")
    refused("latent-task-mkl", {"C": [1.0]}, "task 20 has 2 rows, too few for 3 folds", DataError, folds=3)
    refused("no-mkl", {"C": [1.0]}, "method 'no-mkl' does not exist")
    with pytest.raises(ValueError, match="has no score on rows held out"):
        cross_validate("unsupervised-mkl", {}, data=data)


def test_a_point_without_a_score_is_not_chosen(tmp_path):
    store = CASES["kta-path-two"].data(tmp_path / "data.zarr")
    place = {"data": store.url, "params": {"dp": 0.25, "n_machines": 1}, "folds": 2}
    tune("kta-path", {"lam2": [1e9, 1e-3]}, run=str(tmp_path / "run"), **place)
    table = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    assert table[0]["accuracy"] is None and table[0]["standard_error"] is None and table[1]["accuracy"] > 0.5
    assert load_model(tmp_path / "run").lam2 == 1e-3
    with pytest.raises(DataError, match="no point of the grid has a score"):
        tune("kta-path", {"lam2": [1e9]}, run=str(tmp_path / "none"), **place)


@pytest.mark.parametrize(
    "method, params", [("fgm", {"B": 5}), ("mkl", {"kernels": ["linear"]}), ("group-lasso", {}), ("two-layer-mkl", {})]
)
def test_rows_of_a_group_are_held_out_together(tmp_path, method, params):
    """Every row is there three times, and labels follow nothing: only a fit that saw a row before can tell it."""
    rng = np.random.default_rng(0)
    X, y = np.repeat(rng.normal(size=(24, 60)), 3, axis=0), np.repeat(rng.permutation(24) % 2, 3)
    store = ingest((X, y), tmp_path / "data", id_column=np.repeat([f"patient {k}" for k in range(24)], 3)).url
    seen, apart = (
        max(row["accuracy"] for row in cross_validate(method, params, data=store, folds=3, group_column=column)) for column in (None, "id")
    )
    assert seen > 0.85 and apart < 0.75
    with pytest.raises(DataError, match=r"group column 'who' is neither the id column nor a feature of the store"):
        tune(method, {"C": [1.0]} if "lasso" not in method else {"lam": [0.1]}, data=store, run=tmp_path / "r", group_column="who")
    with pytest.raises(ValueError, match=r"groups: 24 distinct groups are too few for 25 folds"):
        tune(method, {"C": [1.0]} if "lasso" not in method else {"lam": [0.1]}, data=store, run=tmp_path / "r", folds=25, group_column="id")
    assert not (tmp_path / "r").exists()

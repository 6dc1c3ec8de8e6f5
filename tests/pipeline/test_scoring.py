"""Scores other than accuracy and R2 that settings are compared by: for every method that `tune` takes, as scikit-learn computes them."""

import json

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, get_scorer, log_loss

from gramplane.pipeline import METHODS, cross_validate, load_model, tune
from gramplane.pipeline.models.held_out_scores import (
    OF_CLUSTERS,
    HeldOutClassifier,
    HeldOutRows,
    Scoring,
    read_scoring,
    score_columns,
    scorer_names,
)
from gramplane.storage import DataError
from gramplane.storage.ingest import ingest
from tests.pipeline.test_tuning import FIRST, Stopped, own_grid, until_first_fold
from tests.support.methods import CASES

SCORED = [name for name, info in METHODS.items() if info.config.has_scores]
"""Methods that `tune` takes."""
TASKS = ("multitask-mkl", "shared-subspace-mkl", "latent-task-mkl", "multitask-selector")


def fits_of(name, folder):
    """The store of a case, its parameters, and the names of scores for its target."""
    case = FIRST[name]
    store = case.data(folder / "data.zarr")
    labels = store.meta.labels
    if labels is None:
        return store, case, ["neg_mean_absolute_error", "r2"]
    two = len(labels) == 2 or name == "tri-class-svm"
    return store, case, ["roc_auc" if two else "roc_auc_ovr", "neg_log_loss", "balanced_accuracy", "accuracy"]


@pytest.mark.parametrize("name", SCORED)
def test_every_method_is_compared_by_scores(tmp_path, name):
    store, case, names = fits_of(name, tmp_path)
    ((parameter, values),) = own_grid(case).items()
    place = {"data": store.url, "params": case.params, "folds": 2, "seed": 1}
    events = []
    done = tune(name, {parameter: values}, **place, run=str(tmp_path / "run"), scoring=names, refit=names[1], on_event=events.append)
    rows = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    tune(name, {parameter: values}, **place, run=str(tmp_path / "plain"))
    plain = json.loads((tmp_path / "plain" / "tune.json").read_text())["rows"]
    for row, other in zip(rows, plain, strict=True):
        # What a loop measures by itself is what the scorer of that name says of its decision values.
        measure = "r2" if store.meta.labels is None else "accuracy"
        np.testing.assert_allclose(row[f"{measure}_folds" if measure != names[1] else "folds"], other["folds"], atol=1e-9)
        assert row["measure"] == names[1] and row[names[1]] == pytest.approx(np.mean(row["folds"]))
        assert row["deviation"] == pytest.approx(np.std(row["folds"], ddof=1)) and row["selected"] == other["selected"]
        for further in (names[0], *names[2:]):
            assert row[further] == pytest.approx(np.mean(row[f"{further}_folds"]))
            assert row[f"{further}_deviation"] == pytest.approx(np.std(row[f"{further}_folds"], ddof=1))
    assert done.summary["measure"] == names[1] and done.summary[names[1]] == max(row[names[1]] for row in rows)
    assert set(names) < set(done.summary)
    assert load_model(tmp_path / "run").get_params()[parameter] == done.summary["best"][parameter]


@pytest.mark.parametrize("name", ["fgm", "mkl", "group-lasso", "multitask-mkl", "rule-ensemble"])
def test_an_interrupted_search_goes_on_to_the_same_bits(tmp_path, name):
    store, case, names = fits_of(name, tmp_path)
    place = {"data": store.url, "params": case.params, "folds": 2, "scoring": names}
    tune(name, own_grid(case), **place, run=str(tmp_path / "straight"))

    def stop(event):
        if event["event"] in ("fold", "iteration"):
            raise Stopped

    with pytest.raises(Stopped):
        tune(name, own_grid(case), **place, run=str(tmp_path / "run"), on_event=until_first_fold if name == "rule-ensemble" else stop)
    tune(name, own_grid(case), **place, run=str(tmp_path / "run"))
    assert (tmp_path / "run" / "tune.json").read_bytes() == (tmp_path / "straight" / "tune.json").read_bytes()
    with pytest.raises(ValueError, match="scoring"):
        tune(name, own_grid(case), **{**place, "scoring": names[::-1]}, run=str(tmp_path / "run"))


@pytest.mark.parametrize("name", ["fgm", "mkl", "group-lasso", *TASKS, "hierarchical-kernels"])
def test_numbers_are_compared_by_errors(tmp_path, name):
    rng = np.random.default_rng(3)
    X, task = rng.normal(size=(60, 4)), np.arange(60) % 3
    ingest((X, X[:, 0] + 0.1 * task), tmp_path / "data", task="regression", task_column=task)
    fields = METHODS[name].config.model_fields
    params = {"kernels": ["linear"]} if "kernels" in fields else {}
    params |= {"dag": "subsets(gaussian[0:2])"} if name == "hierarchical-kernels" else {}
    params |= {"max_rounds": 2, "B": 1} if name == "fgm" else {}
    names = ["neg_mean_absolute_error", "neg_mean_squared_error"]
    *_, row = cross_validate(name, params, data=str(tmp_path / "data"), folds=2, scoring=names)
    *_, plain = cross_validate(name, params, data=str(tmp_path / "data"), folds=2)
    # The mean of folds: the squared error that a table of R2 has, too.
    assert -row["neg_mean_squared_error"] == pytest.approx(plain["mse"])
    assert 0 < -row["neg_mean_absolute_error"] <= plain["mse"] ** 0.5 * 1.1 and "r2" not in row
    with pytest.raises(ValueError, match="'roc_auc': the target holds real numbers"):
        cross_validate(name, params, data=str(tmp_path / "data"), folds=2, scoring="roc_auc")


def test_the_score_decides(tmp_path):
    """A machine that says the commonest class has the better accuracy, and no balance."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [180, 20])
    X = rng.normal(size=(200, 3)) + 0.9 * y[:, None]
    ingest((X, np.array(["well", "ill"])[y]), tmp_path / "data")
    grid = {"class_weight": [None, "balanced"]}
    place = {"data": str(tmp_path / "data"), "params": {"kernels": ["linear"]}, "folds": 3}
    by = {name: tune("mkl", grid, run=str(tmp_path / name), scoring=name, **place).summary for name in ("accuracy", "balanced_accuracy")}
    assert by["accuracy"]["best"]["class_weight"] is None and by["balanced_accuracy"]["best"]["class_weight"] == "balanced"
    assert by["accuracy"]["accuracy"] == tune("mkl", grid, run=str(tmp_path / "plain"), **place).summary["accuracy"]
    assert "measure" not in json.loads((tmp_path / "plain" / "tune.json").read_text())["rows"][0], "what nobody asked for stays as it was"


def test_scores_are_those_of_scikit_learn():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 60)
    values, mask = (rng.normal(size=60) + y)[None], np.arange(60) % 3 == 0
    rows = HeldOutRows(y, 2, mask, "logistic")
    probability = 1 / (1 + np.exp(-values[0, mask]))
    found = rows.scores(Scoring(("roc_auc", "neg_log_loss", "f1", "balanced_accuracy")), values)
    assert found["neg_log_loss"] == pytest.approx(-log_loss(y[mask], probability))
    assert found["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(y[mask], values[0, mask] > 0))
    # Rows of neither class are in no score.
    assert HeldOutRows(np.where(np.arange(60) < 9, -1, y), 2, mask).rows.tolist() == np.flatnonzero(mask & (np.arange(60) >= 9)).tolist()
    # A class that is missing: no score, where there is none.
    assert np.isnan(HeldOutRows(np.ones(60, int), 2, mask).scores(Scoring(("roc_auc",)), values)["roc_auc"])
    assert np.isnan(rows.scores(Scoring(("f1",)), np.full((1, 60), np.nan))["f1"])


def test_probabilities_have_not_seen_their_class():
    """Noise that is calibrated to its own classes has a log-loss below that of the shares; to other rows it has not."""
    rng = np.random.default_rng(2)
    loss = [
        -HeldOutRows(y, 2, np.ones(40, bool)).scores(Scoring(("neg_log_loss",)), rng.normal(size=(1, 40)))["neg_log_loss"]
        for y in (rng.permutation(np.arange(40) % 2) for _ in range(20))
    ]
    assert np.mean(loss) > np.log(2)
    y = rng.integers(0, 3, 300)
    values = 3.0 * np.eye(3)[y].T + rng.normal(size=(3, 300))
    for kind in ("sigmoid", "isotonic"):
        assert -0.6 < HeldOutRows(y, 3, np.ones(300, bool), kind).scores(Scoring(("neg_log_loss",)), values)["neg_log_loss"] < 0


def test_every_scorer_of_scikit_learn_is_taken_or_refused_by_name():
    y, numbers = np.arange(30) % 2, np.linspace(1.0, 2.0, 30)
    assert not OF_CLUSTERS & set(scorer_names())
    for name in scorer_names():
        taken = []
        for classes, target in (((0, 1), y), ((0, 1, 2), np.arange(30) % 3), (None, numbers)):
            try:
                Scoring((name,)).check(classes, target)
            except ValueError as error:
                assert repr(name) in str(error)
            else:
                taken.append(classes)
        assert taken or name.endswith("_samples"), name
        assert not (None in taken and len(taken) > 1), name
        get_scorer(name)


def test_what_is_no_score_is_refused(tmp_path):
    refusals = [
        (("roc_auk",), "scoring='roc_auk' does not exist; did you mean 'roc_auc'?"),
        (("f1", "r2"), None),
        ((["f1", "f1"],), "each once"),
        (([],), "must be names of scores"),
        ((None, "f1"), "refit='f1' chooses one of several scores"),
        ((["f1"], "accuracy"), "refit='accuracy': must be one of the scores, f1"),
        (("rand_score",), "does not exist"),
    ]
    for arguments, words in refusals:
        with pytest.raises(ValueError, match=None if words is None else words.replace("?", r"\?")):
            read_scoring(*arguments)
    assert read_scoring(["f1", "accuracy", "roc_auc"], "accuracy") == Scoring(("accuracy", "f1", "roc_auc"))
    with pytest.raises(ValueError, match=r"'f1' does not suit a target of 3 classes: .*take f1_macro or f1_micro or f1_weighted"):
        Scoring(("f1",)).check((0, 1, 2), np.arange(3))
    with pytest.raises(ValueError, match="'neg_mean_squared_log_error' does not suit a target of real numbers: ") as caught:
        Scoring(("neg_mean_squared_log_error",)).check(None, np.array([-2.0, 1.0]))
    assert "; take" not in str(caught.value)
    data = CASES["kta-path-two"].data(tmp_path / "data.zarr").url
    with pytest.raises(ValueError, match="'r2': the target holds 2 classes"):
        tune("kta-path", {"lam2": [1.0]}, data=data, run=str(tmp_path / "run"), scoring="r2")
    assert not (tmp_path / "run").exists()
    with pytest.raises(DataError, match="no point of the grid has a score"):
        tune("kta-path", {"lam2": [1e9]}, data=data, run=str(tmp_path / "none"), scoring="f1", params={"dp": 0.25}, folds=2)


def test_repeated_folds_are_folds_of_one_table(tmp_path):
    for name in ("fgm", "rule-ensemble"):
        store, case, _ = fits_of(name, tmp_path / name)
        given = {"data": store.url, "folds": 2, "scoring": ["f1_macro", "accuracy"]}
        *_, row = cross_validate(name, case.params, **given, repeats=2)
        *_, first = cross_validate(name, case.params, **given)
        assert row["folds"][:2] == first["folds"] and len(row["folds"]) == len(row["accuracy_folds"]) == 4
        assert row["f1_macro"] == pytest.approx(np.mean(row["folds"])) and row["standard_error"] == pytest.approx(row["deviation"] / 2)


def test_columns_of_a_table_without_every_fold():
    columns = score_columns(Scoring(("f1", "r2")), {"f1": [0.5, None], "r2": [1.0, 0.0]}, 3.0)
    assert columns["f1"] is None and columns["folds"] == [0.5, None] and columns["r2"] == 0.5
    assert HeldOutClassifier(np.zeros((2, 3)), 3, dict).decision_function(np.array([[1]])).shape == (1, 3)

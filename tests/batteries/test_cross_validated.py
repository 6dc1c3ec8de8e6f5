"""Estimators that choose parameters by cross-validation: their scores are those of fits alone, whatever is shared."""

import inspect
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, get_scorer, r2_score
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gramplane import pipeline
from gramplane.pipeline import METHODS, tune
from gramplane.pipeline.estimators import cv as searching
from gramplane.pipeline.inputs import folds
from gramplane.storage.ingest import ingest
from tests.support.checks import SEVEN_DIGITS, run_checks
from tests.support.searches import LABELS, NAMES, SEARCHES, TASKS, N, X, decided

pytestmark = [pytest.mark.filterwarnings("ignore:B=10 exceeds"), pytest.mark.filterwarnings("ignore:.*ended the fit before")]

FIRST = {search.name: search for search in reversed(SEARCHES)}
IN_GATE = ("FGMClassifierCV", "GroupLassoRegressorCV", "MKLClassifierCV", "MultiTaskMKLClassifierCV")


def each(searches):
    """Parametrise with searches; those of other classes than a few are slow."""
    slow = pytest.mark.slow
    params = [pytest.param(search, marks=() if search.name in IN_GATE else slow, id=str(search)) for search in searches]
    return pytest.mark.parametrize("search", params)


PAIRS = [(np.delete(np.arange(N), part), part) for part in np.array_split(np.random.default_rng(1).permutation(N), 2)]
"""The first case of each, and folds of which every row lies in one."""


def scores_of(model):
    return np.column_stack([model.cv_results_[f"split{k}_test_score"] for k in range(model.n_splits_)])


def test_every_search_is_registered_and_has_a_case():
    assert {search.name for search in SEARCHES} == NAMES
    assert set(pipeline.__all__) >= NAMES
    for info in METHODS.values():
        assert all(name.removesuffix("CV") in info.estimators for name in info.cross_validated)


# -- the same as fits alone --------------------------------------------------------------------------------------------------------


@each(SEARCHES)
def test_scores_are_those_of_fits_alone(search):
    """Rows held out of a fit alone have weight zero: kernels are normalised over all rows."""
    model = search.fitted(cv=PAIRS)
    y, scores, seen = search.y, scores_of(model), 0
    for params, row in zip(model.cv_results_["params"], scores, strict=True):
        for (train, test), score in zip(PAIRS, row, strict=True):
            values = search.alone(params, np.isin(np.arange(N), train).astype(float))[test]
            if not search.is_classifier:
                assert score == pytest.approx(r2_score(y[test], values), abs=1e3 * search.atol)
                continue
            classes = np.unique(y)
            labels = classes[(values > 0).astype(int)] if values.ndim == 1 else classes[values.argmax(axis=1)]
            sorted_values = np.sort(values, axis=1) if values.ndim > 1 else None
            margin = np.abs(values) if sorted_values is None else sorted_values[:, -1] - sorted_values[:, -2]
            doubtful = np.count_nonzero(margin < search.atol)
            assert abs(score - accuracy_score(y[test], labels)) <= doubtful / len(test) + 1e-12
            seen += len(test) - doubtful
    assert not search.is_classifier or seen > 0.8 * N * len(scores)


@each(SEARCHES)
def test_the_refit_is_the_fit_alone_at_the_point_that_was_chosen(search):
    model = search.fitted(cv=2)
    means = model.cv_results_["mean_test_score"]
    assert model.best_score_ == means[model.best_index_] == pytest.approx(means.max(), rel=1e-12)
    assert model.cv_results_["params"][model.best_index_] == model.best_params_
    for name, value in model.best_params_.items():
        assert getattr(model, f"{name}_") == value
    np.testing.assert_array_equal(decided(model, search.fit), search.alone(model.best_params_, np.ones(N)))


@each(FIRST.values())
def test_the_same_bits_again_and_for_any_number_of_processes(search):
    models = [search.fitted(cv=3, random_state=4), search.fitted(cv=3, random_state=4), search.fitted(cv=3, random_state=4, n_jobs=2)]
    for other in models[1:]:
        np.testing.assert_array_equal(scores_of(models[0]), scores_of(other))
        np.testing.assert_array_equal(decided(models[0], search.fit), decided(other, search.fit))


@each(FIRST.values())
def test_tune_has_the_scores_of_the_estimator(tmp_path, search):
    """One engine: a grid on a store, in whatever order it is given, has the scores of the estimator that searches the same values."""
    model = search.fitted(cv=3)
    grids = {grid.name: getattr(model, f"{grid.plural}_", None) for grid in type(model)._grids}
    grid = {name: np.asarray(values)[::-1].tolist() for name, values in grids.items() if values is not None}
    names = {name: values[::-1] if name != next(iter(grids)) else values for name, values in grid.items()}
    (method,) = (info.name for info in METHODS.values() if search.name in info.cross_validated)
    kind, more = {"task": "regression"} if not search.is_classifier else {}, {}
    kind |= {"task_column": search.fit["task"]} if "task" in search.fit else {}
    more |= {"extra": {"covariates": search.fit["covariates"]}} if "covariates" in search.fit else {}
    groups = {"groups": np.array(search.params["groups"])} if "groups" in search.params else {}
    data = ingest((X, search.y), tmp_path / "data", **kind, **groups).url
    params = {name: value for name, value in search.make()._config().model_dump().items() if name not in grid}
    tune(method, names, data=data, run=str(tmp_path / "run"), params=params, folds=3, **more)
    rows = json.loads((tmp_path / "run" / "tune.json").read_text())["rows"]
    along = {"max_rounds": "rounds", "p": "p"}
    found = {tuple(row[along.get(name, name)] for name in model.cv_results_["params"][0]): row["folds"] for row in rows}
    assert len(found) == len(rows) == len(model.cv_results_["params"])
    for point, scores in zip(model.cv_results_["params"], scores_of(model), strict=True):
        np.testing.assert_allclose(found[tuple(point.values())], scores, rtol=1e-9)


# -- what chooses ------------------------------------------------------------------------------------------------------------------


@each(FIRST.values())
def test_scorers_by_name_and_callables(search):
    name = "roc_auc" if search.is_classifier else "neg_mean_absolute_error"
    named = search.fitted(cv=PAIRS, scoring=name)
    called = search.fitted(cv=PAIRS, scoring=lambda machine, rows, y: get_scorer(name)(machine, rows, y))
    np.testing.assert_array_equal(scores_of(named), scores_of(called))
    point, (train, test) = named.cv_results_["params"][0], PAIRS[0]
    values = search.alone(point, np.isin(np.arange(N), train).astype(float))[test]
    expected = get_scorer(name)._score_func(search.y[test] == "yes" if search.is_classifier else search.y[test], values)
    assert scores_of(named)[0, 0] == pytest.approx(expected if search.is_classifier else -expected, abs=1e3 * search.atol)


@each(FIRST.values())
def test_one_standard_error_chooses_a_simpler_point_that_is_as_good(search):
    best, simple = search.fitted(cv=4), search.fitted(cv=4, one_standard_error=True)
    scores = scores_of(best)
    error = scores[best.best_index_].std(ddof=1) / 2
    assert best.best_score_ - error <= simple.best_score_ <= best.best_score_
    full = [{**simple.get_params(), **params} for params in simple.cv_results_["params"]]
    key = {k: ([np.prod([params[name] for name in names]) for names in simple._simplest_by], k) for k, params in enumerate(full)}
    allowed = [k for k, mean in enumerate(scores.mean(axis=1)) if mean >= best.best_score_ - error]
    assert simple.best_index_ == min(allowed, key=key.__getitem__)


@each(search for search in FIRST.values() if search.is_classifier)
def test_of_points_with_one_score_the_one_of_the_least_margin_loss_is_chosen(search):
    """Few rows leave many ties, and the first or simplest of equals is at the end of its path."""
    model = search.fitted(cv=PAIRS, scoring=lambda machine, rows, y: 1.0)
    losses, y = model.cv_results_["mean_margin_loss"], search.y
    assert model.best_index_ == losses.argmin() and model.best_score_ == 1.0
    params, expected = model.best_params_, []
    for train, test in PAIRS:
        values = search.alone(params, np.isin(np.arange(N), train).astype(float))[test]
        sign = np.where(y[test] == np.unique(y)[1], 1.0, -1.0)
        expected.append(np.maximum(1.0 - sign * values, 0.0).mean())
    assert losses.min() == pytest.approx(np.mean(expected), abs=max(search.atol, 1e-9) * 10)


def test_margins_of_several_classes_are_above_the_best_other_one():
    search = next(search for search in SEARCHES if search.three)
    model = search.fitted(cv=PAIRS, scoring=lambda machine, rows, y: 1.0)
    expected = []
    for train, test in PAIRS:
        values = search.alone(model.best_params_, np.isin(np.arange(N), train).astype(float))[test]
        own = values[np.arange(len(test)), search.y[test]]
        others = [max(np.delete(row, code)) for row, code in zip(values, search.y[test], strict=True)]
        expected.append(np.maximum(1.0 - own + others, 0.0).mean())
    assert model.cv_results_["mean_margin_loss"].min() == pytest.approx(np.mean(expected))


@each(FIRST.values())
def test_splitters_iterables_and_masks(search):
    for cv, count in ((KFold(3, shuffle=True, random_state=0), 3), (ShuffleSplit(2, test_size=0.3, random_state=0), 2), (PAIRS, 2), (4, 4)):
        assert search.fitted(cv=cv, refit=False).n_splits_ == count
    masks = [tuple(np.isin(np.arange(N), part) for part in pair) for pair in PAIRS]
    np.testing.assert_array_equal(scores_of(search.fitted(cv=PAIRS, refit=False)), scores_of(search.fitted(cv=masks, refit=False)))


@each(search for search in FIRST.values() if "task" in search.fit)
def test_tasks_are_in_all_folds_and_groups_of_splitters(search):
    model = search.fitted(cv=4, refit=False)
    assert model.n_splits_ == 4
    assert search.fitted(cv=KFold(2, shuffle=True, random_state=0), refit=False).n_splits_ == 2
    with pytest.raises(ValueError, match=r"^cv: split 0 has no training row of task \d; every task needs at least one"):
        search.fitted(cv=GroupKFold(len(np.unique(TASKS))), refit=False)


@each(FIRST.values())
@pytest.mark.parametrize("cv", [3, GroupKFold(3)], ids=["number", "splitter"])
def test_rows_of_a_group_are_held_out_together(search, cv, monkeypatch):
    groups, splits = np.arange(N) // 4, []
    draw = folds.row_splits
    monkeypatch.setattr(searching, "row_splits", lambda *args: splits.extend(draw(*args)) or splits)
    model = search.make(cv=cv, refit=False).fit(X, search.y, groups=groups, **search.fit)
    assert model.n_splits_ == len(splits) == 3 and model._row_groups is None
    for split in splits:
        assert not {*groups[split.test]} & {*groups[~split.left_out]}
    np.testing.assert_array_equal(np.sum([split.test for split in splits], axis=0), 1)
    with pytest.raises(ValueError, match=r"groups: 2 distinct groups are too few for 3 folds" if cv == 3 else r"number of splits"):
        search.make(cv=cv).fit(X, search.y, groups=np.arange(N) * 2 // N, **search.fit)
    with pytest.raises(ValueError, match=rf"^groups has {N - 1} entries, but the data has {N} rows"):
        search.make(cv=cv).fit(X, search.y, groups=groups[1:], **search.fit)


@each(FIRST.values())
def test_groups_come_by_metadata_routing(search):
    assert "groups" in inspect.signature(search.make().set_fit_request).parameters


@each(FIRST.values())
def test_without_a_refit_there_are_scores_and_no_model(search):
    model = search.fitted(cv=2, refit=False)
    assert model.best_params_ == search.fitted(cv=2).best_params_
    with pytest.raises(NotFittedError, match=r"refit=False|not fitted yet"):
        model.predict(X, **{name: value for name, value in search.fit.items() if name == "task"})
    assert search.fitted(cv=2).set_params(refit=False).fit(X, search.y, **search.fit).best_params_ == model.best_params_


@pytest.mark.parametrize("name", ["FGMClassifierCV", "GroupLassoRegressorCV", "MKLClassifierCV"])
def test_columns_are_scaled_over_all_rows_where_values_are_left_to_the_data(name):
    search, spread = FIRST[name], X * 10.0 ** np.arange(X.shape[1])
    count = {"lams" if "Lasso" in name else "Cs": 2, "cv": PAIRS}
    count |= {} if "MKL" not in name else {"kernels": None}
    scaled = search.make(**count).fit(StandardScaler().fit_transform(spread), search.y)
    model = search.make(**count, scale="auto").fit(spread, search.y)
    np.testing.assert_allclose(scores_of(model), scores_of(scaled), atol=1e-6)
    np.testing.assert_allclose(decided_on(model, spread), decided_on(scaled, StandardScaler().fit_transform(spread)), atol=1e-4)


def decided_on(model, rows):
    return model.decision_function(rows) if hasattr(model, "decision_function") else model.predict(rows)


# -- as an estimator ---------------------------------------------------------------------------------------------------------------


@each(search for search in FIRST.values() if not search.is_classifier)
def test_the_unit_of_a_target_changes_no_choice(search):
    """Numbers of values stand for the same values in every unit, and machines see the same targets."""
    counted = {grid.plural: 3 for grid in getattr(pipeline, search.name)._grids[:1]}
    plain, other = (search.make(**counted).fit(X, unit * search.y, **search.fit) for unit in (1.0, 1024.0))
    assert plain.best_index_ == other.best_index_
    np.testing.assert_allclose(plain.cv_results_["mean_test_score"], other.cv_results_["mean_test_score"], atol=1e-6)


@each(FIRST.values())
def test_clones_copies_and_frames(search):
    model = search.fitted(cv=2)
    again = clone(model)
    assert again.get_params().keys() == model.get_params().keys() and not hasattr(again, "best_params_")
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(decided(copy, search.fit), decided(model, search.fit))
    assert copy.best_params_ == model.best_params_
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(X.shape[1])])
    framed = search.make(cv=2).fit(frame, search.y, **search.fit)
    assert framed.feature_names_in_.tolist() == list(frame.columns)
    np.testing.assert_allclose(scores_of(framed), scores_of(model), atol=1e-9)  # (frames lie in another order)
    if not search.fit:
        piped = make_pipeline(StandardScaler(), search.make(cv=2)).fit(frame, search.y)
        assert piped.score(frame, search.y) > 0.5 if search.is_classifier else piped.score(frame, search.y) > 0


@each(FIRST.values())
def test_rows_without_weight_are_in_no_fold(search):
    weight = np.where(np.arange(N) % 5 == 0, 0.0, 1.0)
    events = []
    model = search.make(cv=2, callbacks=[events.append], refit=False).fit(X, search.y, sample_weight=weight, **search.fit)
    spoiled = np.where(weight > 0, search.y, search.y[::-1])
    other = search.make(cv=2, refit=False).fit(X, spoiled, sample_weight=weight, **search.fit)
    np.testing.assert_array_equal(scores_of(model), scores_of(other))
    folds = [event for event in events if event["event"] == "fold"]
    assert len(folds) == 2 * len(model.cv_results_["params"]) and {event["folds"] for event in folds} == {2}


MACHINES = {"kernels": ["rbf(gamma=0.5)", "linear"], "Cs": [0.1, 1.0]}
CHECKS = {
    "FGMClassifierCV": {"Cs": 2, "B": 2, "max_rounds": 2},
    "FGMRegressorCV": {"Cs": 2, "B": 2, "max_rounds": 2},
    "MKLClassifierCV": MACHINES,
    "MKLRegressorCV": MACHINES,
    "MultiTaskMKLClassifierCV": MACHINES,
    "MultiTaskMKLRegressorCV": MACHINES,
    "GroupLassoClassifierCV": {"lams": 2},
    "RuleEnsembleClassifierCV": {"Cs": [0.3, 3.0], "n_thresholds": 3},
    "KTASelectionPathCV": {"Cs": [1.0], "n_machines": 2, "dp": 0.1},
    "GroupLassoRegressorCV": {"lams": 2, "tol": 1e-10},
}
"""Settings for scikit-learn's own checks."""
EXPECTED = {name: SEVEN_DIGITS for name in CHECKS if "MKL" in name or name in ("KTASelectionPathCV", "RuleEnsembleClassifierCV")}


QUICK = ("FGMClassifierCV", "FGMRegressorCV")
"""What a search adds is the same for all."""


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in sorted(CHECKS)])
def test_checks_of_scikit_learn(name):
    names = run_checks(getattr(pipeline, name)(**CHECKS[name], cv=2), EXPECTED.get(name, {}))
    assert names["failed"] == []
    assert names["xfail"] == sorted(EXPECTED.get(name, {}))
    assert len(names["passed"]) >= 50


# -- what is refused ---------------------------------------------------------------------------------------------------------------

BAD = [
    ({"cv": 1}, r"^cv=1: a number of folds must be at least 2"),
    ({"cv": True}, r"^cv=True: "),
    ({"cv": "five"}, r"^cv='five': "),
    ({"cv": [(np.arange(5), [])]}, r"^cv: split 0 has 5 training rows and 0 test rows"),
    ({"cv": [(np.zeros(9, int), np.arange(5))]}, r"^cv: split 0 repeats training rows"),
    ({"cv": 61}, "too few"),
    ({"scoring": "acuracy"}, r"^scoring='acuracy' does not exist; did you mean 'accuracy'\?$"),
    ({"scoring": 3}, r"^scoring=3: must be the name of a scorer"),
    ({"scoring": "r2"}, r"^scoring='r2': the target holds 2 classes"),
]


@pytest.mark.parametrize(("params", "message"), BAD, ids=[str(list(params)) + message[:9] for params, message in BAD])
@pytest.mark.parametrize("name", ["FGMClassifierCV"])
def test_bad_arguments_are_named_with_their_value(name, params, message):
    with pytest.raises(ValueError, match=message):
        FIRST[name].fitted(**params)


@each(FIRST.values())
def test_bad_values_of_a_grid_are_named(search):
    for grid in search.make()._grids:
        for value, message in ((0, "at least 1"), ([], "at least one value"), ([-1.0], r"\[-1.0\]"), ("auto", "must be a number")):
            with pytest.raises(ValueError, match=rf"^{grid.plural}=.*{message}"):
                search.fitted(**{grid.plural: value})


def test_probabilities_are_scored_exact_or_calibrated():
    params = {"cv": 2, "B": 2, "max_rounds": 2, "Cs": [1.0], "scoring": "neg_log_loss"}
    exact = pipeline.FGMClassifierCV(loss="logistic", **params).fit(X, LABELS).best_score_
    calibrated = pipeline.FGMClassifierCV(**params).fit(X, LABELS).best_score_
    assert -np.log(2) < exact < 0 and -np.log(2) < calibrated < 0 and exact != calibrated


@pytest.mark.parametrize("name", ["FGMClassifierCV", "GroupLassoRegressorCV"])
def test_several_scores_of_which_one_decides(name):
    search = FIRST[name]
    names = ["accuracy", "roc_auc", "f1"] if search.is_classifier else ["r2", "neg_mean_absolute_error"]
    many = search.fitted(cv=PAIRS, scoring=names, refit=names[1])
    for scorer in names:
        one, columns = search.fitted(cv=PAIRS, scoring=scorer), many.cv_results_
        for kind in ("split0_test", "split1_test", "mean_test", "std_test", "rank_test"):
            np.testing.assert_array_equal(columns[f"{kind}_{scorer}"], one.cv_results_[f"{kind}_score"])
    assert many.best_params_ == search.fitted(cv=PAIRS, scoring=names[1]).best_params_ and set(many.scorer_) == set(names)
    assert many.best_score_ == many.cv_results_[f"mean_test_{names[1]}"][many.best_index_]
    own = {"own": lambda machine, rows, y: float(np.mean(machine.predict(rows) == y)), "second": names[0]}
    mixed = search.fitted(cv=PAIRS, scoring=own, refit=False)
    np.testing.assert_array_equal(mixed.cv_results_["mean_test_second"], many.cv_results_[f"mean_test_{names[0]}"])
    if search.is_classifier:
        np.testing.assert_array_equal(mixed.cv_results_["mean_test_own"], many.cv_results_["mean_test_accuracy"])
    assert mixed.best_params_ == search.fitted(cv=PAIRS, scoring=own["own"]).best_params_
    with pytest.raises(ValueError, match=r"^refit='f2': must be one of the scores"):
        search.fitted(scoring=names, refit="f2")


def test_folds_among_processes_are_not_for_clusters():
    with pytest.raises(ValueError, match=r"^n_jobs=2: cluster='local:1' runs the passes in parallel already"):
        pipeline.FGMClassifierCV(Cs=[1.0], B=2, max_rounds=1, cv=2, n_jobs=2, cluster="local:1").fit(X, LABELS)

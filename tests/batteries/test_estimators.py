"""Estimators as scikit-learn expects them, and what users do with them there."""

import inspect
import pickle
import re
from ast import literal_eval

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectorMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gramplane import pipeline
from gramplane.kernels.grams.spec import KernelSpec
from gramplane.pipeline import METHODS, FGMClassifier, FGMRegressor
from tests.support.checks import CALIBRATED, run_checks
from tests.support.fgm_problems import bits, classes, dense, forms, planted

LEAST_CHECKS = 58

pytestmark = pytest.mark.filterwarnings("ignore:B=10 exceeds")


# --- scikit-learn's own checks ----------------------------------------------------------------------------------------------------


def without_intercept(estimator):
    """Checks that cannot hold, each with its reason: of calibrated probabilities, and without an intercept."""
    # (On columns of one scale the greatest of these probabilities is that of the class that is predicted.)
    holding = {"check_classifiers_train"}
    calibrated = {} if estimator.loss == "logistic" or isinstance(estimator, FGMRegressor) else {**CALIBRATED}
    calibrated = {name: reason for name, reason in calibrated.items() if name not in holding}
    return {**calibrated, **origin(estimator)}


def origin(estimator):
    """The check that cannot hold without an intercept, with its reason."""
    if estimator.fit_intercept or isinstance(estimator, FGMRegressor):
        return {}
    reason = "without an intercept the decision at the origin is 0: no weight of a class makes a constant prediction possible"
    return {"check_class_weight_classifiers": reason}


ESTIMATORS = [
    FGMClassifier(),
    FGMRegressor(),
    FGMClassifier(fit_intercept=True),
    FGMClassifier(loss="logistic", fit_intercept=True, max_rounds=3),
    FGMRegressor(loss="huber", fit_intercept=False, max_rounds=3),
]


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=without_intercept)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=str)
def test_number_of_checks_that_really_ran(estimator):
    names = run_checks(estimator, origin(estimator))
    assert len(names["passed"]) >= LEAST_CHECKS
    assert names["failed"] == []
    assert names["xfail"] == sorted(origin(estimator))
    assert len(names["skipped"]) <= 2


# --- parameters -------------------------------------------------------------------------------------------------------------------


SEARCH = {"cv", "scoring", "refit", "one_standard_error", "n_jobs"}
OF_ESTIMATORS = {"cluster", "run_on", "random_state", "verbose", "callbacks", "groups", "edges"}
NOT_IN_ESTIMATOR = {
    "Classifier": {"epsilon", "delta"},
    "Regressor": {"class_weight", "probability"},
    "RuleEnsembleClassifier": {"loss"},
    "KTASelectionPath": {"epsilon"},
    "KTASelectionPathCV": {"p"},
    "RuleEnsembleClassifierCV": {"refit"},
}
"""Fields of the parameter models that do not concern an estimator, by the end of its name."""
DECIDED = {
    ("FGMClassifier", "loss"): "squared_hinge",
    ("FGMRegressor", "loss"): "squared",
    ("MKLClassifier", "loss"): "hinge",
    ("MKLRegressor", "loss"): "epsilon_insensitive",
}
"""Defaults that the parameter model leaves to the target."""


@pytest.mark.parametrize(
    ("name", "info"),
    [(name, info) for info in METHODS.values() for name in (*info.estimators, *info.cross_validated)],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_a_constructor_is_that_of_the_parameter_model(name, info):
    """Its parameters are stored under their names, have the defaults of the model or those that a target decides, and are explained
    with their defaults."""
    estimator, plain, fields = getattr(pipeline, name), name.removesuffix("CV"), info.config.model_fields
    found = {key: value.default for key, value in inspect.signature(estimator).parameters.items()}
    searched = {grid.name: grid.plural for grid in getattr(estimator, "_grids", ())}
    own = {*searched.values(), *SEARCH} if name != plain else set()
    for key in found.keys() - own - OF_ESTIMATORS:
        assert found[key] == DECIDED.get((plain, key), fields[key].default), key
        assert (plain, key) not in DECIDED or fields[key].default == "auto"
    left_out = [names for end, names in NOT_IN_ESTIMATOR.items() if plain.endswith(end) or name == end]
    assert fields.keys() - (found.keys() - own) == fields.keys() & set(list(searched)[:1]).union(*left_out) and own <= found.keys()
    given = {key: object() for key in found}
    assert vars(estimator(**given)) == given and estimator().get_params() == found
    assert estimator.__module__ == f"gramplane.pipeline.methods.{info.system}.estimator"
    explained = found.keys() if name == plain else own
    parameters = re.split(r"\n\w+\n-{3,}\n", f"\n{inspect.getdoc(estimator)}")[1]
    told = {key: literal_eval(text) for key, text in re.findall(r"^(\w+) : .*default=(.+)$", parameters, re.MULTILINE)}
    assert list(told.items()) == [(key, default) for key, default in found.items() if key in explained]
    assert name == plain or f":class:`{plain}`" in estimator.__doc__
    assert all(len(field.description or "") in range(1, 61) for field in fields.values())


def test_few_classes_lie_between_an_estimator_and_scikit_learn():
    ours = [base for base in FGMClassifier.__mro__ if base.__module__.startswith("gramplane")]
    assert len(ours) <= 5 and len(FGMClassifier.__mro__) <= 14


def test_numbers_of_numpy_and_arrays_are_parameters_too():
    X, y = planted(0, d=12)
    a = FGMClassifier(B=np.int64(2), C=np.float32(1.0), max_rounds=np.int32(2), fit_intercept=np.bool_(True), scale=None).fit(X, y)
    b = FGMClassifier(B=2, C=1.0, max_rounds=2, fit_intercept=True, scale=None).fit(X, y)
    assert bits(a) == bits(b)
    labels = np.arange(12) // 4
    weighted = [
        FGMClassifier(B=1, max_rounds=2, groups=labels, group_weight=w).fit(X, y) for w in (np.array([1.0, 2.0, 3.0]), [1.0, 2.0, 3.0])
    ]
    assert bits(weighted[0]) == bits(weighted[1])


GROUPED = (FGMClassifier(B=1, max_rounds=2), pipeline.GroupLassoClassifier(lam=0.02))
NAMED = pd.Series([2, 2, 1, 1, 0, 0], index=list("fedcba"))


@pytest.mark.parametrize("estimator", GROUPED, ids=lambda estimator: type(estimator).__name__)
@pytest.mark.parametrize(
    "groups",
    [2, NAMED, NAMED.reset_index(drop=True)[::-1], np.array([0, 0, 1, 1, 2, 2]), [np.isin(range(6), (j, j + 1)) for j in (0, 2, 4)]],
    ids=["size", "names", "positions", "labels", "masks"],
)
def test_groups_in_any_form(estimator, groups):
    X, y = planted(0, d=6, relevant=3)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    expected = clone(estimator).set_params(groups=[[0, 1], [2, 3], [4, 5]]).fit(frame, y)
    found = clone(estimator).set_params(groups=groups).fit(frame, y)
    np.testing.assert_array_equal(found.decision_function(frame), expected.decision_function(frame))
    coded, of_columns = frame.assign(kind=np.where(X[:, 0] > 0, "u", "v")), pd.concat([NAMED, pd.Series([3], ["kind"])])
    by_column, by_feature = (
        clone(estimator).set_params(groups=given).fit(coded, y).decision_function(coded) for given in (of_columns, [0, 0, 1, 1, 2, 2, 3, 3])
    )
    np.testing.assert_array_equal(by_column, by_feature)
    for wrong, message in (
        ({"a": [0, 1]}, "must be a label"),
        (True, "must be a label"),
        (4, "must divide 6, the number of features"),
        (NAMED[1:], "no label for feature 'f'"),
        ([[True, False]], r"groups\[0\]"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(estimator).set_params(groups=wrong).fit(frame, y)


@pytest.mark.parametrize("as_frame", [False, True])
def test_a_mask_is_the_columns_where_it_is_true(as_frame):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 5, (120, 4)).astype(float)
    y, mask = np.isin(X[:, 2], [1, 3]), np.array([False, False, True, False])
    X = pd.DataFrame(X, columns=list("abcd")) if as_frame else X
    expected, *found = (
        pipeline.RuleEnsembleClassifier(C=10, categorical=columns).fit(X, y).rules_
        for columns in ([2], mask, mask.tolist(), pd.Series(mask), *([["c"]] if as_frame else []))
    )
    assert {sign["sign"] for rule in expected for sign in rule["conditions"]} <= {"=", "!="}
    assert all(rules == expected for rules in found)
    with pytest.raises(ValueError, match="categorical is a mask of 3 entries; it needs 4"):
        pipeline.RuleEnsembleClassifier(categorical=mask[1:]).fit(X, y)
    assert KernelSpec("linear", columns=mask) == KernelSpec("linear", columns=[2])


def test_weights_of_features_have_names():
    X, y = planted(0, d=3, relevant=2)
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=np.where(y > 0, "m", "f"))
    for data, names in ((X, ["x0", "x1", "x2"]), (frame, ["a", "b", "c", "sex=f", "sex=m"])):
        model = pipeline.GroupLassoClassifier(lam=0.02).fit(data, y)
        assert model.get_feature_names_out().tolist() == names and model.coef_.shape[1] == len(names)


@pytest.mark.parametrize("name", ["VisualRank", "MKLClassifier", "TriClassSVC", "SocialStrengthRanker", "KTASelectionPath", "ColoredMVU"])
def test_matrices_whose_rows_and_columns_are_named_in_another_order(name):
    X, y = planted(0, n=12, d=3, relevant=2)
    K = pd.DataFrame(X @ X.T, index=list("abcdefghijkl"), columns=list("abcdefghijkl")).iloc[:, ::-1]
    given = {"MKLClassifier": {"kernels": "precomputed"}, "ColoredMVU": {"label_kernel": K}}.get(name, {"kernel": "precomputed"})
    given = {} if name in ("VisualRank", "SocialStrengthRanker") else given
    more = {"VisualRank": (), "SocialStrengthRanker": ([[0, 1], [2, 3]], [1, 0]), "ColoredMVU": ()}.get(name, (y,))
    with pytest.raises(ValueError, match="rows and columns have the same names in another order"):
        getattr(pipeline, name)(**given).fit(X if name == "ColoredMVU" else K, *more)


@pytest.mark.parametrize("weights", [{0: 1.0, 1: 3.0}, {0.0: 1.0, 1.0: 3.0}, {"0": 1.0, "1": 3.0}])
def test_class_weights_by_any_spelling_of_a_label(weights):
    X, y = planted(1)
    y = (y > 0).astype(int)
    # (The scale of columns counts rows by sample_weight, not by the weight of their class.)
    a = FGMClassifier(B=3, max_rounds=2, scale=None, class_weight=weights).fit(X, y)
    b = FGMClassifier(B=3, max_rounds=2, scale=None).fit(X, y, np.where(y == 1, 3.0, 1.0))
    assert bits(a) == bits(b)


# --- in scikit-learn's tools ------------------------------------------------------------------------------------------------------


def test_in_a_pipeline_as_selector_and_as_classifier():
    X, y = planted(2)
    selector = make_pipeline(StandardScaler(), FGMClassifier(B=3, max_rounds=2), FGMClassifier(B=2, max_rounds=2)).fit(X, y)
    chosen = selector[1].get_support(indices=True)
    assert selector[2].n_features_in_ == len(chosen)
    np.testing.assert_array_equal(selector[1].get_feature_names_out(), [f"x{j}" for j in chosen])
    assert 0.5 < selector.score(X, y) <= 1.0


def test_grid_search_in_two_processes():
    X, y = planted(3)
    grid = {"C": [0.1, 1.0], "B": [2, 4]}
    found = GridSearchCV(FGMClassifier(max_rounds=2), grid, cv=3, n_jobs=2).fit(X, y)
    alone = GridSearchCV(FGMClassifier(max_rounds=2), grid, cv=3).fit(X, y)
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    assert bits(found.best_estimator_) == bits(FGMClassifier(max_rounds=2, **found.best_params_).fit(X, y))
    assert cross_val_score(found.best_estimator_, sp.csr_array(X), y, cv=3).mean() > 0.5


def test_data_frames_give_names_and_take_them():
    X, y = planted(4, d=9)
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(9)])
    machine = FGMClassifier(B=2, max_rounds=2).set_output(transform="pandas").fit(frame, y)
    chosen = machine.transform(frame)
    assert isinstance(chosen, pd.DataFrame)
    assert chosen.columns.tolist() == [f"gene {j}" for j in machine.selected_]
    np.testing.assert_array_equal(chosen.to_numpy(), X[:, machine.selected_])
    with pytest.raises(ValueError, match="feature names"):
        machine.predict(frame[frame.columns[::-1]])


@pytest.mark.parametrize("form", ["dense", "csr_matrix"])
def test_support_is_what_transform_returns(form):
    X, y = planted(5)
    machine = FGMClassifier(B=3, max_rounds=3).fit(forms(X)[form], y)
    assert isinstance(machine, SelectorMixin)
    assert machine.get_support().sum() == len(machine.selected_)
    np.testing.assert_array_equal(machine.get_support(indices=True), machine.selected_)
    found = machine.transform(forms(X)[form])
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, X[:, machine.selected_])
    back = machine.inverse_transform(X[:, machine.selected_])
    np.testing.assert_array_equal(back[:, machine.selected_], X[:, machine.selected_])


def test_support_of_groups_is_every_member():
    X, y = planted(6, d=12)
    labels = np.arange(12) // 3
    machine = FGMClassifier(B=1, max_rounds=2, groups=labels).fit(X, y)
    np.testing.assert_array_equal(machine.get_support(), np.isin(labels, machine.selected_))


def test_names_of_products():
    X, y = planted(7, d=6, relevant=3)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    machine = FGMClassifier(B=3, max_rounds=2, feature_map="poly2", scale=None).fit(frame, y)
    names = machine.get_feature_names_out()
    expected = ["abcdef"[i] if j < 0 else f"{'abcdef'[i]}*{'abcdef'[j]}" for i, j in machine.selected_]
    assert names.tolist() == expected
    given = machine.get_feature_names_out(list("abcdef"))
    assert given.tolist() == expected
    chosen = machine.set_output(transform="pandas").transform(frame)
    assert chosen.columns.tolist() == expected


def test_wide_weights_are_a_sparse_row():
    rng = np.random.default_rng(0)
    X = sp.random_array((30, 50_000), density=1e-3, rng=rng, format="csr")
    y = np.arange(30) % 2
    machine = FGMClassifier(B=5, max_rounds=2).fit(X, y)
    assert sp.issparse(machine.coef_)
    assert machine.coef_.shape == (1, 50_000)
    assert machine.coef_.nnz <= 10
    np.testing.assert_allclose((X @ machine.coef_.T).toarray().ravel() + machine.intercept_, machine.decision_function(X), atol=1e-12)
    narrow = FGMClassifier(B=5, max_rounds=2).fit(X[:, :49_999], y)
    assert isinstance(narrow.coef_, np.ndarray)


# --- stability, events, copies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("map_", [None, "poly2", "groups"])
def test_stability_is_the_frequency_over_bootstrap_resamples(map_):
    X, y = planted(8, d=12)
    more = {"groups": np.arange(12) // 2} if map_ == "groups" else {"feature_map": map_}
    machine = FGMClassifier(B=3, max_rounds=2, random_state=5, scale=None, **more).fit(X, y)
    found = machine.selection_stability(6)
    seed = np.random.RandomState(5).randint(2**31 - 1)
    counts = np.zeros(len(found))
    for child in np.random.SeedSequence(seed).spawn(6):
        weight = np.random.default_rng(child).multinomial(80, np.full(80, 1 / 80)).astype(float)
        chosen = clone(machine).fit(X, y, weight).selected_
        if map_ == "poly2":
            chosen = [k for k, pair in enumerate(machine.selected_.tolist()) if pair in chosen.tolist()]
        counts[chosen] += 1
    np.testing.assert_allclose(found, counts / 6)
    assert len(found) == {None: 12, "groups": 6, "poly2": len(machine.selected_)}[map_]
    np.testing.assert_array_equal(found, machine.selection_stability(6))


def test_copies_carry_no_data():
    X, y = planted(9, n=2000, d=50)
    machine = FGMClassifier(B=2, max_rounds=2).fit(X, y)
    text = pickle.dumps(machine)
    assert len(text) < X.nbytes / 10
    copy = pickle.loads(text)
    assert bits(copy) == bits(machine)
    np.testing.assert_array_equal(copy.predict(X), machine.predict(X))
    with pytest.raises(ValueError, match="needs X and y"):
        copy.selection_stability(2)
    np.testing.assert_array_equal(copy.selection_stability(3, X, y), machine.selection_stability(3))


def test_events_reach_every_callback():
    X, y = planted(10)
    first, second = [], []
    machine = FGMClassifier(B=2, max_rounds=3, callbacks=[first.append, second.append]).fit(X, y)
    rounds = [event for event in first if event["event"] == "iteration"]
    assert [event["iteration"] for event in rounds] == [1, 2, 3]
    assert [event["objective"] for event in rounds] == machine.history_["objective"].tolist()
    assert first == second
    one = []
    machine.set_params(callbacks=one.append).fit(X, y)
    assert [event["event"] for event in one] == [event["event"] for event in first], "a callable need not stand in a list"
    assert {len(values) for values in machine.history_.values()} == {3}


def test_verbose_logs_and_quiet_does_not(caplog):
    X, y = planted(11)
    with caplog.at_level("DEBUG", logger="gramplane"):
        FGMClassifier(B=2, max_rounds=2).fit(X, y)
        assert caplog.records == []
        FGMClassifier(B=2, max_rounds=2, verbose=2).fit(X, y)
    assert sum("iteration" in record.getMessage() for record in caplog.records) == 2


def test_fits_do_not_depend_on_what_was_fitted_before():
    X, y = planted(12)
    machine = FGMClassifier(B=3, max_rounds=3)
    expected = bits(machine.fit(X, y))
    machine.fit(*classes())
    assert len(machine.classes_) == 3
    assert bits(machine.fit(X, y)) == expected


def test_input_is_never_written():
    X, y = planted(13, density=0.5)
    for form in forms(X).values():
        copy = form.copy()
        for array in (copy,) if isinstance(copy, np.ndarray) else (copy.data, copy.indices, copy.indptr):
            array.flags.writeable = False
        machine = FGMClassifier(B=2, max_rounds=2, feature_map="poly2", scale=None).fit(copy, y)
        machine.transform(copy)
        machine.decision_function(copy)
        FGMClassifier(B=2, max_rounds=2).fit(copy, y)
        np.testing.assert_array_equal(dense(copy), dense(form))


def test_repeated_and_unsorted_entries_are_summed():
    X, y = planted(14, density=0.4)
    parts = sp.coo_array(X)
    rng = np.random.default_rng(0)
    order = rng.permutation(2 * parts.nnz)
    row, col, data = (np.concatenate([values, values])[order] for values in (*parts.coords, 0.5 * parts.data))
    messy = sp.csr_matrix((80, 60))
    messy.data, messy.indices = data[np.argsort(row, kind="stable")], col[np.argsort(row, kind="stable")].astype(np.int32)
    messy.indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=80))]).astype(np.int32)
    assert not messy.has_canonical_format
    np.testing.assert_allclose(messy.toarray(), X)
    for map_ in (None, "poly2"):
        machines = [FGMClassifier(B=3, max_rounds=3, feature_map=map_, scale=None).fit(A, y) for A in (messy, sp.csr_matrix(X))]
        assert bits(machines[0]) == bits(machines[1])


def test_before_fitting_nothing_is_told():
    for ask in ("predict", "transform", "decision_function"):
        with pytest.raises(NotFittedError):
            getattr(FGMClassifier(), ask)(np.zeros((2, 3)))
    with pytest.raises(NotFittedError):
        FGMClassifier().selection_stability()
    with pytest.raises(NotFittedError):
        FGMClassifier().get_support()

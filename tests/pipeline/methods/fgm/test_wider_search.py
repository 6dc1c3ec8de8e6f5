"""Searches of FGM that go on to a wider B: where the best model has most of its rounds, and only there."""

import numpy as np
import pytest

from gramplane.pipeline import FGMClassifier, FGMClassifierCV, FGMRegressorCV

ROUNDS = {"B": 2, "max_rounds": 4, "Cs": 2, "random_state": 0}


def drawn(n_relevant, d=200, n=240, seed=0):
    """Rows with as many equally relevant features, of d."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, :n_relevant].sum(axis=1) / n_relevant**0.5 + 0.05 * rng.normal(size=n)


def searched(y, X, **params):
    machine = FGMRegressorCV if params.pop("of", "classes") == "numbers" else FGMClassifierCV
    return machine(**{**ROUNDS, **params}).fit(X, y if machine is FGMRegressorCV else y > 0)


@pytest.mark.parametrize("of", ["classes", "numbers"])
def test_a_search_goes_on_where_most_rounds_are_best(of):
    X, y = drawn(24)
    model = searched(y, X, of=of)
    results = model.cv_results_
    assert set(results["param_B"].tolist()) == {2, 8} and model.B_ == 8 and model.best_params_["B"] == 8
    assert all(set(point) == {"C", "B", "max_rounds"} for point in results["params"])
    both = searched(y, X, of=of, Bs=[2, 8])
    assert both.best_params_ == model.best_params_ and both.best_score_ == pytest.approx(model.best_score_, abs=1e-12)
    assert model.best_score_ > max(results["mean_test_score"][results["param_B"] == 2])


@pytest.mark.parametrize(
    ("n_relevant", "params"),
    [
        (1, {}),  # few rounds are best
        (24, {"Bs": [2]}),  # values of B are given
        (24, {"n_features_to_select": 6}),
        (24, {"max_rounds": 30}),  # too few columns for rounds of eight
        (24, {"debias": True}),
    ],
)
def test_a_search_ends_where_nothing_asks_for_more(n_relevant, params):
    X, y = drawn(n_relevant)
    model = searched(y, X, **params)
    assert model.B_ == 2 and set(model.cv_results_.get("param_B", np.array([2])).tolist()) == {2}


def test_all_rows_are_fitted_as_without_a_search_and_folds_are_dealt_alike():
    X, y = drawn(24)
    model, dealt = (searched(y, X, scale="standard", n_jobs=jobs) for jobs in (1, 2))
    np.testing.assert_array_equal(dealt.cv_results_["mean_test_score"], model.cv_results_["mean_test_score"])
    plain = FGMClassifier(**model.best_params_, scale="standard", random_state=0).fit(X, y > 0)
    np.testing.assert_array_equal(plain.coef_, model.coef_)

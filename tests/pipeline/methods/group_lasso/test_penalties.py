"""Weights of groups: in the penalty of a batch and of a stream, in the least lam that selects nothing, and from the command line."""

import numpy as np
import pytest

from gramplane.pipeline import GroupLassoClassifier, GroupLassoRegressor, load_model
from gramplane.storage.ingest import ingest
from tests.support.commands import result
from tests.support.oracles import dual_averaging as stream_oracle
from tests.support.oracles import group_lasso as oracle

GROUPS = [[0, 1], [2, 3], [4, 5], [6, 7]]
LABELS = np.arange(8) // 2
WEIGHTS = [0.5, 3.0, 1.0, 2.0]


def problem(n=40):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 8))
    return X, X[:, 0] + X[:, 3] - 0.5 * X[:, 4] + 0.3 * rng.normal(size=n)


@pytest.mark.parametrize("groups", [LABELS, GROUPS, [[0, 1, 2], [2, 3], [4, 5], [6, 7]]])
def test_the_optimum_with_given_weights_is_that_of_a_general_solver(groups):
    X, y = problem()
    model = GroupLassoRegressor(groups=groups, group_weight=WEIGHTS, lam=0.1, tol=1e-8, scale=None).fit(X, y)
    listed = groups if isinstance(groups, list) else GROUPS
    tasks = [(X, y, np.full(len(y), 1 / len(y)))]
    best = oracle.dual_optimum(tasks, listed, WEIGHTS, np.zeros(4), 0.1, "squared", True)
    assert -1e-7 <= model.objective_ - best <= model.dual_gap_ + 1e-6 * best
    assert 0 in model.active_groups_ and len(model.active_groups_) < 4
    least = max(np.linalg.norm(X[:, g].T @ (y - y.mean())) / len(y) / k for g, k in zip(listed, WEIGHTS, strict=True))
    assert model.lam_max_ == pytest.approx(least)


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
@pytest.mark.parametrize(("weights", "r"), [(WEIGHTS, 0.0), (None, [0.1, 0.5, 2.0, 0.2])])
def test_every_group_of_a_stream_has_its_own_weights(algorithm, weights, r):
    X, y = problem(120)
    signs = np.where(y > 0, 1, -1)
    params = {"groups": LABELS, "group_weight": weights, "penalty": "sgl", "r": r, "lam": 0.05, "gamma": 2.0, "shuffle": False}
    model = GroupLassoClassifier(algorithm=algorithm, **params).fit(X, signs)
    cost, inner = 0.05 * np.array(weights or [np.sqrt(2)] * 4), np.broadcast_to(0.05 * np.array(r), 4)
    if algorithm == "fobos":
        w, b = stream_oracle.fobos(X, signs, cost, inner, GROUPS, 2.0)
    else:
        w, b = stream_oracle.dual_averaging(X, signs, cost, inner, GROUPS, 2.0)[0][-1]
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-13)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-12)


def test_weights_of_features_are_scales_of_the_columns():
    X, y = problem()
    weights = np.arange(1.0, 9.0)
    params = {"penalty": "l1", "lam": 0.05, "tol": 1e-10, "scale": None}
    model = GroupLassoRegressor(group_weight=weights, **params).fit(X, y)
    np.testing.assert_allclose(model.coef_ * weights, GroupLassoRegressor(**params).fit(X / weights, y).coef_, atol=1e-5)
    roots = {"groups": [[0, 1, 2], [3], [4, 5, 6, 7]], "lam": 0.05}
    given = GroupLassoRegressor(group_weight=np.sqrt([3, 1, 4]), **roots).fit(X, y)
    np.testing.assert_array_equal(given.coef_, GroupLassoRegressor(**roots).fit(X, y).coef_)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0, 2.0], "group_weight has 2 entries; it must be one number for each of the 4 groups"),
        ([1.0, 1.0, 0.0, 1.0], "group_weight.*greater than 0"),
        ([1.0, 1.0, np.inf, 1.0], "group_weight.*finite"),
    ],
)
def test_weights_that_do_not_suit_the_groups_are_refused(weights, words):
    X, y = problem()
    with pytest.raises(ValueError, match=words):
        GroupLassoRegressor(groups=LABELS, group_weight=weights).fit(X, y)


def test_a_command_takes_weights_of_groups(tmp_path, capsys):
    X, y = problem()
    store = ingest((X, y), tmp_path / "data", task="regression", groups=LABELS)
    typed = ["fit", "group-lasso", "--data", store.url, "--run", tmp_path / "run", "--lam", "0.1", "--group-weight"]
    assert result([*typed, str(WEIGHTS)], capsys)["summary"]["n_groups"] > 0
    expected = GroupLassoRegressor(groups=LABELS, group_weight=WEIGHTS, lam=0.1).fit(X, y)
    np.testing.assert_array_equal(load_model(tmp_path / "run").coef_, expected.coef_)
    bad = ["fit", "group-lasso", "--data", store.url, "--run", tmp_path / "bad", "--group-weight", "[1, 2]"]
    assert "group_weight has 2 entries" in result(bad, capsys, 2)["error"]

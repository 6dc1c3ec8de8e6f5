"""Weights of groups and the L_{1,inf} penalty: batches and streams against general solvers, the least lam, and from the command line."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize

from gramplane.pipeline import GroupLassoClassifier, GroupLassoRegressor, load_model
from gramplane.storage.ingest import ingest
from tests.support.commands import result
from tests.support.oracles import dual_averaging as stream_oracle
from tests.support.oracles import group_lasso as oracle
from tests.support.oracles import lp_norms

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


OVERLAPPING = [[0, 1, 2], [2, 3], [4, 5], [6, 7, 0]]


def ceilings(X, y, groups, cost, loss, bias=True):
    """Least mean loss plus ``sum_g cost_g max |v_g|``, w the sum of all v_g, by SLSQP on positive and negative parts under ceilings."""
    members = np.concatenate(groups)
    owner, m = np.repeat(np.arange(len(groups)), [len(g) for g in groups]), len(members)

    def value(x):
        f = X[:, members] @ (x[:m] - x[m : 2 * m]) + bias * x[-1]
        slope = (f - y if loss == "squared" else -y / (1 + np.exp(y * f))) / len(y)
        told = np.mean(oracle.losses(loss, y, f)) + cost @ x[2 * m : -1]
        down = X[:, members].T @ slope
        return told, np.concatenate([down, -down, cost, [bias * slope.sum()]])

    room = np.zeros((m, 2 * m + len(groups) + 1))
    room[np.arange(m), np.arange(m)] = room[np.arange(m), m + np.arange(m)] = -1
    room[np.arange(m), 2 * m + owner] = 1
    limits = {"type": "ineq", "fun": lambda x: room @ x, "jac": lambda x: room}
    bounds = [(0, None)] * (room.shape[1] - 1) + [(None, None)]
    start = np.append(np.full(room.shape[1] - 1, 0.1), 0.0)
    return minimize(value, start, jac=True, bounds=bounds, constraints=limits, method="SLSQP", options={"ftol": 1e-14, "maxiter": 2000}).fun


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("groups", [GROUPS, OVERLAPPING])
def test_the_largest_weights_are_penalised_to_the_optimum(groups, loss):
    X, y = problem()
    signs = np.where(y > 0, 1, -1)
    model, target = (GroupLassoRegressor(), y) if loss == "squared" else (GroupLassoClassifier(), signs)
    model.set_params(groups=groups, penalty="linf", lam=0.08, tol=1e-8, scale=None).fit(X, target)
    best = ceilings(X, target, groups, 0.08 * np.array([len(g) for g in groups]), loss)
    assert -1e-7 <= model.objective_ - best <= model.dual_gap_ + 1e-6 * best
    assert model.converged_ and len(model.active_groups_)
    # The dual norm of the largest entry is the sum.
    slopes = y - y.mean() if loss == "squared" else (signs == 1) - (signs == 1).mean()
    assert model.lam_max_ == pytest.approx(max(np.abs(X[:, g].T @ slopes).mean() / len(y) for g in groups))
    assert not model.set_params(lam=1.001 * model.lam_max_).fit(X, target).coef_.any()
    assert model.set_params(lam=0.99 * model.lam_max_).fit(X, target).coef_.any()


def test_every_engine_of_the_largest_weights_ends_at_one_optimum():
    X, y = problem(60)
    params = {"groups": GROUPS, "penalty": "linf", "lam": 0.05, "tol": 1e-9, "scale": None}
    one = GroupLassoRegressor(**params).fit(X, y)
    wide = np.hstack([X, np.random.default_rng(1).normal(size=(60, 600))])
    groups = np.append(LABELS, 4 + np.arange(600) // 4)
    many = GroupLassoRegressor(**{**params, "groups": groups, "lam": 0.2}).fit(wide, y)
    assert (one.history_["engine"][-1], many.history_["engine"][-1]) == ("gram", "working_set")
    assert many.dual_gap_ <= 1e-9 * many.objective_ and many.active_groups_[0] == 0
    sparse = GroupLassoRegressor(**{**params, "groups": groups, "lam": 0.2}).fit(sp.csr_array(wide), y)
    np.testing.assert_allclose(sparse.coef_, many.coef_, atol=1e-5)


def largest_shrunk(values, cost, inner, groups):
    """The proximal point of the largest entries by bisection of the ceiling, one copy a group, added up."""
    out = np.zeros(values.size)
    for k, g in zip(cost, groups, strict=True):
        v, low, high = np.abs(values[g]), 0.0, np.abs(values[g]).max()
        for _ in range(200):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if np.maximum(v - middle, 0).sum() > k else (low, middle)
        out[g] += np.sign(values[g]) * np.minimum(v, low if v.sum() > k else 0.0)
    return out


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
@pytest.mark.parametrize("groups", [GROUPS, [[0, 1, 2], [7, 3], [4], [5, 6]], OVERLAPPING])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_stream_of_the_largest_weights_is_that_of_its_definition(algorithm, groups, sparse, monkeypatch):
    if algorithm == "fobos" and groups is OVERLAPPING:
        pytest.skip("needs a partition")
    X, y = problem(90)
    X, signs = X * (np.random.default_rng(2).random(X.shape) < 0.5), np.where(y > 0, 1, -1)
    monkeypatch.setattr(stream_oracle, "shrunk_groups", largest_shrunk)
    params = {"groups": groups, "penalty": "linf", "lam": 0.04, "gamma": 2.0, "batch_size": 2, "algorithm": algorithm}
    rows = sp.csr_array(X) if sparse else X
    model = GroupLassoClassifier(shuffle=False, **params).fit(rows, signs)
    cost, none = 0.04 * np.array([len(g) for g in groups]), np.zeros(len(groups))
    run = stream_oracle.fobos if algorithm == "fobos" else stream_oracle.dual_averaging
    ended = run(X, signs, cost, none, groups, 2.0, batch=2)
    w, b = ended if algorithm == "fobos" else ended[0][-1]
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, b, rtol=1e-12)
    parts = GroupLassoClassifier(**params)
    for lo, hi in ((0, 1), (1, 60), (60, 90)):
        parts.partial_fit(rows[lo:hi], signs[lo:hi], classes=[-1, 1])
    np.testing.assert_array_equal(parts.coef_, model.coef_)
    if groups is not OVERLAPPING:
        penalty = sum(k * lp_norms.norm(w[g], np.inf) for k, g in zip(cost, groups, strict=True))
        assert model.objective_ == pytest.approx(np.mean(oracle.losses("logistic", signs, X @ w + b)) + penalty)


def test_a_path_of_the_hinge_refuses_the_largest_weights():
    X, y = problem()
    signs = np.where(y > 0, 1, -1)
    with pytest.raises(ValueError, match=r"loss='hinge' .* p=inf has no batch solver; use loss='logistic', or algorithm='da'"):
        GroupLassoClassifier(groups=GROUPS, penalty="linf", loss="hinge").fit(X, signs)
    assert GroupLassoClassifier(groups=GROUPS, penalty="linf", loss="hinge", algorithm="da").fit(X, signs).score(X, signs) > 0.7

"""Dual averaging and forward-backward splitting over rows: closed forms, lazy against dense, cuts of the stream, regret."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.features.groups import build_groups
from gramplane.kernels.group_lasso.dual_averaging import ActiveGroups, Rows, Rule, activate_groups
from gramplane.kernels.group_lasso.penalty import GroupPenalty, add_shrunken, group_penalty, single_features, stream_groups
from gramplane.kernels.group_lasso.streams import StreamLearner
from tests.support.oracles import dual_averaging as oracle

D = 24
GROUPS = {
    "equal": np.arange(D) // 4,
    "uneven": np.repeat(np.arange(4), [10, 1, 5, 8]),
    "scattered": np.arange(D) * 7 % 5,
    "overlap": [list(range(j, min(j + 7, D))) for j in range(0, D, 5)],
    "alone": None,
}


def penalty_of(groups, r=0.0, d=D) -> GroupPenalty:
    if groups is None:
        return single_features(d, 1.0, r)
    index = build_groups(groups, d, "none")
    return group_penalty(index, np.sqrt(index.sizes), r)


def dual_average(mean, beta, groups, rho=0.0):
    """Minimise ``<mean, w> + Omega(w) + beta (1/2 ||w||^2 + rho ||w||_1)`` in closed form; return w and Omega(w)."""
    out = np.zeros(mean.size)
    return out, add_shrunken(np.ascontiguousarray(mean), groups, 1.0, beta * rho, -1.0 / beta, out)


def parts(penalty, lam):
    groups = [penalty.members[a:b] for a, b in zip(penalty.indptr[:-1], penalty.indptr[1:])]
    return lam * penalty.kappa, lam * penalty.inner, groups


def rows_of(X):
    csr = sp.csr_array(X)
    return Rows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(float), np.arange(csr.shape[0]))


def stream(seed=0, n=60, d=D, density=0.4, loss="logistic"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    X[n // 2] = 0.0
    y = X[:, :4].sum(axis=1) + 0.3 * rng.normal(size=n)
    return X, y if loss == "squared" else np.where(y > 0, 1.0, -1.0)


def learned(X, y, penalty, lam, cuts=(), weight=None, **options):
    learner = StreamLearner(penalty, lam, **{"loss": "logistic", "gamma": 2.0, **options})
    edges = [0, *cuts, len(y)]
    for lo, hi in itertools.pairwise(edges):
        learner.take(rows_of(X[lo:hi]), y[None, lo:hi], np.ones(hi - lo) if weight is None else weight[lo:hi])
        learner = StreamLearner(penalty, lam, **{"loss": "logistic", "gamma": 2.0, **options}).restore(learner.point())
    learner.finish()
    return learner


# --- closed forms -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(("r", "rho"), [(0.0, 0.0), (0.7, 0.0), (0.7, 0.3)], ids=["gl", "sgl", "egl"])
def test_closed_form_meets_the_optimality_conditions_and_no_solver_goes_lower(seed, r, rho):
    rng = np.random.default_rng(seed)
    mean, beta = rng.normal(size=10), 0.4
    penalty = penalty_of(np.repeat(np.arange(4), [3, 1, 4, 2]), r, 10)
    cost, inner, groups = parts(penalty, 0.4)
    w, omega = dual_average(mean, beta, stream_groups(penalty, 0.4), rho)
    assert oracle.kkt_residual(w, mean, beta, cost, inner, groups, rho) <= 1e-12
    value = oracle.upsilon(w, mean, beta, cost, inner, groups, rho)
    assert value <= oracle.generic_minimum(mean, beta, cost, inner, groups, rho, rng) + 1e-9
    c = np.sign(mean) * np.maximum(np.abs(mean) - np.repeat(inner, [3, 1, 4, 2]) - beta * rho, 0.0)
    norms = np.array([np.linalg.norm(c[g]) for g in groups])
    assert value == pytest.approx(-np.sum(np.maximum(norms - cost, 0.0) ** 2) / (2 * beta), abs=1e-13)
    assert omega == pytest.approx(0.4 * penalty.value(w[None]), abs=1e-13)


def test_special_cases_of_the_closed_form():
    rng = np.random.default_rng(5)
    mean, labels = rng.normal(size=D), GROUPS["uneven"]

    def step(penalty, lam, rho=0.0, beta=0.5, u=mean):
        return dual_average(u, beta, stream_groups(penalty, lam), rho)[0]

    np.testing.assert_allclose(step(penalty_of(labels, 0.6), 0.0), -mean / 0.5, rtol=1e-15)
    np.testing.assert_array_equal(step(penalty_of(labels, 0.0), 0.2), step(penalty_of(labels), 0.2))
    np.testing.assert_allclose(step(penalty_of(np.arange(D), 0.5), 0.2), step(penalty_of(None), 0.3), atol=1e-16)
    np.testing.assert_array_equal(step(penalty_of(None, 0.5), 0.2), step(penalty_of(None), 0.2 * 1.5))
    supports = [step(penalty_of(labels, r), 0.2, rho) != 0 for r, rho in ((0.0, 0.0), (0.8, 0.0), (0.8, 0.4))]
    assert np.all(supports[2] <= supports[1]) and np.all(supports[1] <= supports[0]) and supports[2].sum() < supports[0].sum()
    np.testing.assert_allclose(step(penalty_of(labels, 0.6), 0.2, beta=1.0), 0.5 * step(penalty_of(labels, 0.6), 0.2), rtol=1e-14)
    np.testing.assert_allclose(step(penalty_of(labels, 0.6), 0.6, u=3 * mean), 3 * step(penalty_of(labels, 0.6), 0.2), rtol=1e-13)
    order = rng.permutation(D)
    np.testing.assert_allclose(
        step(penalty_of(labels[order], 0.6), 0.2, u=mean[order]), step(penalty_of(labels, 0.6), 0.2)[order], rtol=1e-14
    )
    assert np.all(dual_average(np.zeros(D), 0.5, stream_groups(penalty_of(labels), 0.2))[0] == 0.0)


# --- the stream -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(
    ("r", "rho", "batch", "loss"),
    [(0.0, 0.0, 1, "logistic"), (0.6, 0.0, 7, "logistic"), (0.6, 0.1, 4, "hinge"), (0.0, 0.0, 9, "squared"), (0.0, 0.2, 1, "hinge")],
)
def test_lazy_updates_equal_dense_ones(groups, r, rho, batch, loss):
    X, y = stream(1, loss=loss)
    penalty, options = penalty_of(GROUPS[groups], r), {"rho": rho, "batch": batch, "loss": loss, "gamma": 4.0}
    path, losses = oracle.dual_averaging(X, y, *parts(penalty, 0.03), **options)
    learner = learned(X, y, penalty, 0.03, **options)
    (weights,), (bias,), (omega,) = learner.weights()
    np.testing.assert_allclose(weights, path[-1][0], rtol=1e-11, atol=1e-14)
    assert np.array_equal(weights != 0, path[-1][0] != 0) and weights.any()
    assert bias == pytest.approx(path[-1][1], rel=1e-12)
    assert learner.losses[0] == pytest.approx(losses.sum(), rel=1e-12)
    assert learner.rounds == len(path) - 1
    if groups != "overlap":
        assert omega == pytest.approx(0.03 * penalty.value(weights[None, penalty.members]), rel=1e-12)
        np.testing.assert_array_equal(learner.active(), penalty.norms(weights[None, penalty.members]) > 0)


@pytest.mark.parametrize("groups", ["equal", "scattered", "overlap", "alone"])
def test_no_cut_of_the_stream_changes_a_bit(groups):
    X, y = stream(2)
    weight = np.where(np.arange(60) % 7 == 3, 0.0, 1.0 + np.arange(60) % 3)
    for batch in (1, 8):
        whole = learned(X, y, penalty_of(GROUPS[groups], 0.4), 0.02, weight=weight, batch=batch, average=True).point()
        for cuts in ((1,), (3, 4, 5, 40), tuple(range(1, 60))):
            pieces = learned(X, y, penalty_of(GROUPS[groups], 0.4), 0.02, cuts, weight, batch=batch, average=True).point()
            for name, value in vars(whole).items():
                np.testing.assert_array_equal(value, getattr(pieces, name), err_msg=name)


def test_rows_of_weight_zero_are_not_there():
    X, y = stream(3)
    weight = np.where(np.arange(60) % 4 == 0, 0.0, 1.0)
    penalty = penalty_of(GROUPS["equal"])
    some, rest = learned(X, y, penalty, 0.02, weight=weight, batch=5), learned(X[weight > 0], y[weight > 0], penalty, 0.02, batch=5)
    np.testing.assert_array_equal(some.point().sums, rest.point().sums)
    np.testing.assert_array_equal(some.point().totals, rest.point().totals)


def test_order_of_rows_is_followed_and_dense_rows_are_rows():
    X, y = stream(4)
    order = np.random.default_rng(0).permutation(60)
    learner = StreamLearner(penalty_of(GROUPS["equal"], 0.3), 0.02, loss="logistic", gamma=2.0)
    learner.take(rows_of(X)._replace(order=order), y[None], np.ones(60))
    straight = StreamLearner(penalty_of(GROUPS["equal"], 0.3), 0.02, loss="logistic", gamma=2.0)
    full = Rows(np.arange(61) * D, np.tile(np.arange(D, dtype=np.int32), 60), X[order].ravel(), np.arange(60))
    straight.take(full, y[None, order], np.ones(60))
    np.testing.assert_array_equal(learner.point().sums, straight.point().sums)


def test_overlapping_groups_are_replicated_columns():
    X, y = stream(5)
    lists = GROUPS["overlap"]
    columns = np.concatenate(lists)
    copies = penalty_of(np.repeat(np.arange(len(lists)), [len(g) for g in lists]), 0.3, len(columns))
    one = learned(X, y, penalty_of(lists, 0.3), 0.02, batch=3).weights()
    two = learned(X[:, columns], y, copies, 0.02, batch=3).weights()
    np.testing.assert_allclose(one[0][0], np.bincount(columns, two[0][0], D), atol=1e-15)
    assert one[2] == pytest.approx(two[2])


def test_machines_share_a_stream_without_touching_each_other():
    X, y = stream(6)
    targets = np.stack([y, -y, np.where(X[:, 0] > 0, 1.0, -1.0)])
    together = StreamLearner(penalty_of(GROUPS["uneven"]), 0.02, 3, loss="logistic", gamma=2.0, batch=4)
    together.take(rows_of(X), targets, np.ones(60))
    for k, target in enumerate(targets):
        alone = StreamLearner(penalty_of(GROUPS["uneven"]), 0.02, loss="logistic", gamma=2.0, batch=4)
        alone.take(rows_of(X), target[None], np.ones(60))
        np.testing.assert_array_equal(together.weights()[0][k], alone.weights()[0][0])


def test_a_huge_penalty_leaves_the_intercept_alone():
    X, y = stream(7)
    weights, bias, omega = learned(X, y, penalty_of(GROUPS["equal"]), 1e6).weights()
    path, _ = oracle.dual_averaging(np.zeros_like(X), y, np.ones(1), np.zeros(1), [np.arange(D)], 2.0)
    assert not weights.any() and omega[0] == 0.0 and bias[0] == pytest.approx(path[-1][1], rel=1e-12)
    without = learned(X, y, penalty_of(GROUPS["equal"]), 0.02, intercept=False)
    path, _ = oracle.dual_averaging(X, y, *parts(penalty_of(GROUPS["equal"]), 0.02), 2.0, intercept=False)
    np.testing.assert_allclose(without.weights()[0][0], path[-1][0], atol=1e-14)
    assert without.weights()[1][0] == 0.0


def test_average_is_the_mean_of_the_iterates_that_suffered():
    X, y = stream(8)
    penalty = penalty_of(GROUPS["scattered"], 0.2)
    path, _ = oracle.dual_averaging(X, y, *parts(penalty, 0.02), 2.0, batch=3)
    weights, bias, omega = learned(X, y, penalty, 0.02, batch=3, average=True).weights(average=True)
    mean = np.mean([w for w, _ in path[:-1]], axis=0)
    np.testing.assert_allclose(weights[0], mean, atol=1e-14)
    assert bias[0] == pytest.approx(np.mean([b for _, b in path[:-1]]))
    assert omega[0] == pytest.approx(0.02 * penalty.value(mean[None, penalty.members]))


@pytest.mark.parametrize("rounds", [1, 2, 5, 20, 100, 400])
def test_regret_and_distance_bounds(rounds):
    X, y = stream(9, n=rounds)
    X = np.hstack([X, np.ones((rounds, 1))])
    penalty, lam = penalty_of(np.append(GROUPS["equal"], 9), 0.3, D + 1), 0.02
    rng, bound = np.random.default_rng(rounds), np.linalg.norm(X, axis=1).max()
    for scale in (0.0, 0.3, 2.0):
        w = scale * rng.normal(size=D + 1)
        size = max(0.5 * w @ w, 1e-3)
        gamma = bound / np.sqrt(size)
        path, losses = oracle.dual_averaging(X, y, *parts(penalty, lam), gamma, intercept=False)
        learner = learned(X, y, penalty, lam, gamma=gamma, intercept=False)
        paid = losses.sum() + sum(lam * penalty.value(v[None, penalty.members]) for v, _ in path[:-1])
        fixed = np.logaddexp(0.0, -y * (X @ w)).sum() + rounds * lam * penalty.value(w[None, penalty.members])
        regret = (paid - fixed) / rounds
        assert learner.losses[0] == pytest.approx(losses.sum(), rel=1e-12)
        assert regret <= (gamma * size + bound**2 / gamma) / np.sqrt(rounds) + 1e-12
        distance = 0.5 * np.square(learner.weights()[0][0] - w).sum()
        assert distance <= size + (bound / gamma) ** 2 - np.sqrt(rounds) / gamma * regret + 1e-9


@pytest.mark.parametrize("groups", GROUPS)
def test_groups_that_sleep_have_no_weights_and_a_restart_knows_which_they_are(groups):
    X, y = stream(10)
    penalty = penalty_of(GROUPS[groups], 0.2)
    straight = StreamLearner(penalty, 0.05, loss="logistic", gamma=2.0, rho=0.01, batch=3)
    slept = 0
    for k in range(20):
        straight.take(rows_of(X[3 * k : 3 * k + 3]), y[None, 3 * k : 3 * k + 3], np.ones(3))
        again = StreamLearner(penalty, 0.05, loss="logistic", gamma=2.0, rho=0.01, batch=3).restore(straight.point())
        for learner in (straight, again):
            awake = np.unpackbits(learner._flags[0], bitorder="little")[:D].astype(bool)
            assert not learner.weights()[0][0, ~awake].any()
            slept += int((~awake).sum())
        for learner in (straight, again):
            learner.take(rows_of(np.ones((1, D))), np.ones((1, 1)), np.zeros(1))
        assert straight.losses[0] == again.losses[0]
    assert slept > 0


def test_rows_of_a_wide_stream_are_learned_as_those_of_a_narrow_one():
    X, y = stream(13)
    d = (1 << 16) + 100
    places = np.sort(np.random.default_rng(1).choice(d // 4, 6, replace=False))[:, None] * 4 + np.arange(4)
    wide = sp.lil_array((60, d))
    wide[:, places.ravel()] = X
    order = np.random.default_rng(2).permutation(60)
    near, far = (
        StreamLearner(penalty_of(np.arange(width) // 4, 0.3, width), 0.02, loss="logistic", gamma=2.0, batch=b)
        for width, b in ((D, 5), (d, 5))
    )
    for learner, rows in ((near, X), (far, wide)):
        learner.take(rows_of(rows)._replace(order=order), y[None], np.ones(60))
    np.testing.assert_array_equal(far.weights()[0][0, places.ravel()], near.weights()[0][0])
    assert np.count_nonzero(far.weights()[0]) == np.count_nonzero(near.weights()[0]) > 0


def test_a_feature_activates_each_of_its_groups_though_one_of_them_is_active():
    groups = stream_groups(penalty_of([[0, 1], [1, 2]], d=3), 1.0)
    active, rule = ActiveGroups(np.zeros(1, np.uint8), np.zeros((2, 2))), Rule(0, 1, 1.0, 0.0, False, 1.0)
    activate_groups(np.array([9.0, 0.0, 0.0]), groups, rule, 1.0, active)
    assert active.flags[0] == 0b011 and (active.scales[:, 1] != 0.0).tolist() == [True, False]
    activate_groups(np.array([9.0, 9.0, 0.0]), groups, rule, 2.0, active)
    assert active.flags[0] == 0b111 and (active.scales[:, 1] != 0.0).all()


# --- forward-backward splitting ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "batch"), [("equal", 1), ("scattered", 6), ("alone", 4)])
def test_forward_backward_splitting_follows_its_definition(groups, batch):
    X, y = stream(11)
    penalty = penalty_of(GROUPS[groups], 0.3)
    w, b = oracle.fobos(X, y, *parts(penalty, 0.02), 2.0, batch=batch)
    for cuts in ((), (7, 8, 31)):
        learner = learned(X, y, penalty, 0.02, cuts, batch=batch, algorithm="fobos")
        np.testing.assert_allclose(learner.weights()[0][0], w, atol=1e-13)
        assert learner.weights()[1][0] == pytest.approx(b)
    averaged = learned(X, y, penalty, 0.02, batch=batch)
    assert np.count_nonzero(averaged.weights()[0]) <= np.count_nonzero(w)


def test_what_cannot_be_learned_is_said():
    X, y = stream(12, loss="squared")
    with pytest.raises(ValueError, match=r"not finite after \d+ rounds: the iterates diverge; raise gamma=1e-06"):
        learned(1e4 * X, y, penalty_of(GROUPS["equal"]), 0.02, gamma=1e-6, loss="squared", batch=2)
    with pytest.raises(ValueError, match="groups overlap, but algorithm='fobos' needs a partition"):
        StreamLearner(penalty_of(GROUPS["overlap"]), 0.1, loss="hinge", gamma=1.0, algorithm="fobos")

"""Intercepts of streams: steps of their own, sound for rounds of any number of rows, features of any scale, and targets far from 0."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.features.groups import build_groups
from gramplane.kernels.group_lasso.dual_averaging import Rows
from gramplane.kernels.group_lasso.penalty import group_penalty
from gramplane.kernels.group_lasso.step_lengths import intercept_after
from gramplane.kernels.group_lasso.streams import StreamLearner
from gramplane.kernels.group_lasso.task_selection import OpenRound, Rounds, TaskRows, TaskStream, run_rounds, task_penalty
from gramplane.kernels.losses import LOSSES

BATCHES = (1, 10, 100, 1000)
STEEPNESS = {name: loss.steepness for name, loss in LOSSES.items() if hasattr(loss, "steepness")}
GAMMAS = dict(zip(BATCHES, (0.01, 0.01, 0.02, 0.02), strict=True))
N, WIDTH, PER_ROW = 40_000, 20_000, 30


def rows_of(X):
    csr = sp.csr_array(X)
    return Rows(csr.indptr.astype(np.int64), csr.indices.astype(np.int32), csr.data.astype(float), np.arange(csr.shape[0]))


@pytest.fixture(scope="module")
def stream():
    """Rows of unit length with columns by popularity, and a linear score that a sixth of the frequent groups of five makes up."""
    rng = np.random.default_rng(0)
    columns = np.sort((float(WIDTH) ** rng.random((N, PER_ROW))).astype(np.int64) - 1, axis=1)
    kept = np.diff(columns, axis=1, prepend=-1) > 0
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    X = sp.csr_array((rng.normal(size=indptr[-1]) / np.sqrt(PER_ROW), columns[kept], indptr), shape=(N, WIDTH))
    w = np.zeros((WIDTH // 5, 5))
    w[:300:6] = 8.0 * rng.normal(size=(50, 5))
    return X, X @ w.ravel() + 0.3 * rng.normal(size=N)


def labelled(stream, share=0.5):
    """The rows with labels, of which about ``share`` are positive."""
    X, score = stream
    rng = np.random.default_rng(1)
    keep = np.flatnonzero((score > 0) | (rng.random(N) < (1 - share) / share))
    return X[keep], np.where(score[keep] > 0, 1.0, -1.0)


def learner_of(batch, loss="logistic", intercept=True, algorithm="da", gamma=None, d=WIDTH, **options):
    index = build_groups(np.arange(d) // 5, d, "none")
    penalty = group_penalty(index, np.sqrt(index.sizes), 0.0)
    rule = {"loss": loss, "gamma": GAMMAS[batch] if gamma is None else gamma, "batch": batch, "intercept": intercept, **options}
    return StreamLearner(penalty, 5e-5, algorithm=algorithm, **rule)


def learned(X, y, batch, weight=None, **options):
    learner = learner_of(batch, d=X.shape[1], **options)
    learner.take(rows_of(X), y[None], np.ones(len(y)) if weight is None else weight)
    learner.finish()
    weights, biases, _ = learner.weights()
    return weights[0], biases[0]


def accuracy(X, y, batch, **options):
    """Accuracy on the last quarter of a model of the rest, and its intercept."""
    n = 3 * len(y) // 4
    weights, bias = learned(X[:n], y[:n], batch, **options)
    return np.mean((X[n:] @ weights + bias > 0) == (y[n:] > 0)), bias


# -- streams -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_an_intercept_does_not_hurt_where_classes_are_even(stream, loss):
    """The mean over numbers of rows in a round within 0.002, and every one within three deviations of what 10,000 rows tell."""
    X, y = labelled(stream)
    lost = []
    for batch in BATCHES:
        with_one, bias = accuracy(X, y, batch, loss=loss)
        without, none = accuracy(X, y, batch, loss=loss, intercept=False)
        assert none == 0.0 and without > 0.65 and abs(bias) < 0.25
        lost.append(without - with_one)
    assert np.mean(lost) <= 0.002 and max(lost) <= 0.006


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared"])
@pytest.mark.parametrize("batch", BATCHES)
def test_an_intercept_helps_where_they_are_not(stream, loss, batch):
    X, y = labelled(stream, 0.9)
    gamma = 0.5 if loss == "squared" else None
    with_one, bias = accuracy(X, y, batch, loss=loss, gamma=gamma)
    without, _ = accuracy(X, y, batch, loss=loss, gamma=gamma, intercept=False)
    assert with_one > without + 0.03 and with_one >= np.mean(y > 0) - 0.005
    assert 0.3 < bias < 6.0


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
@pytest.mark.parametrize("batch", BATCHES)
def test_targets_far_from_zero_are_learned_as_those_about_it(stream, batch, algorithm):
    X, y = stream[0][:6_000, :500], stream[1][:6_000]
    options = {"loss": "squared", "gamma": 0.5, "algorithm": algorithm}
    near, far = learned(X, y, batch, **options), learned(X, y + 1e6, batch, **options)
    assert near[0].any()
    np.testing.assert_allclose(far[0], near[0], atol=1e-6)
    assert far[1] - 1e6 == pytest.approx(near[1], abs=1e-6)
    assert abs(near[1] - np.mean(y - X @ near[0])) < np.std(y)


@pytest.mark.parametrize(("loss", "wanted"), [("logistic", np.log(4.0)), ("squared", 0.6), ("hinge", 1.0)])
@pytest.mark.parametrize("algorithm", ["da", "fobos"])
def test_without_features_it_comes_to_the_best_constant(loss, wanted, algorithm):
    """Four rows of five positive; the same for any number of rows in a round, gamma, and common weight."""
    y = np.where(np.random.default_rng(2).random(40_000) < 0.8, 1.0, -1.0)
    X = sp.csr_array((40_000, 5))
    for batch, gamma, weight in itertools.product(BATCHES, (1e-4, 100.0), (1.0, 1e-3)):
        _, bias = learned(X, y, batch, gamma=gamma, loss=loss, algorithm=algorithm, weight=np.full(40_000, weight))
        assert bias == pytest.approx(wanted, abs=0.25)


@pytest.mark.parametrize("batch", [1, 10, 100])
def test_weights_of_classes_move_it_to_their_balance(batch):
    y = np.where(np.random.default_rng(3).random(40_000) < 0.9, 1.0, -1.0)
    _, bias = learned(sp.csr_array((40_000, 5)), y, batch, gamma=1.0, weight=np.where(y > 0, 1.0, 9.0))
    assert bias == pytest.approx(0.0, abs=0.35)


@pytest.mark.parametrize("loss", STEEPNESS)
def test_one_round_of_all_rows_and_one_row_agree_on_what_is_lost_before(loss):
    """What is noted on the first row is the loss of a model of zeros, whatever learning begins with."""
    y = np.array([3.0, 4.0]) if loss == "squared" else np.array([1.0, -1.0])
    for algorithm in ("da", "fobos"):
        learner = learner_of(1, loss, algorithm=algorithm, d=5)
        learner.take(rows_of(np.zeros((1, 5))), y[None, :1], np.ones(1))
        first = {"squared": 4.5, "logistic": np.log(2.0), "hinge": 1.0}[loss]
        assert learner.losses[0] == pytest.approx(first)
        assert learner.weights()[1][0] == pytest.approx({"squared": 3.0, "logistic": np.sinh(0.5), "hinge": np.sinh(0.5)}[loss])


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
@pytest.mark.parametrize("loss", STEEPNESS)
@pytest.mark.parametrize("batch", BATCHES)
def test_any_cut_and_a_restart_at_it_give_the_same_bits(stream, loss, batch, algorithm):
    X, y = stream[0][:2_500, :500], stream[1][:2_500]
    y, weight = (y + 7.0 if loss == "squared" else np.where(y > 0, 1.0, -1.0)), 1.0 + np.arange(2_500) % 3
    weight[::5] = 0.0
    options = {"d": 500, "loss": loss, "algorithm": algorithm, "gamma": 2.0}
    whole = learner_of(batch, **options)
    whole.take(rows_of(X), y[None], weight)
    for cuts in ((1, 2, 3, 977), (1_000, 1_001)):
        pieces = learner_of(batch, **options)
        for lo, hi in itertools.pairwise([0, *cuts, 2_500]):
            pieces.take(rows_of(X[lo:hi]), y[None, lo:hi], weight[lo:hi])
            pieces = learner_of(batch, **options).restore(pieces.point())
        for name, value in vars(whole.point()).items():
            np.testing.assert_array_equal(value, getattr(pieces.point(), name), err_msg=name)


def test_before_a_round_is_closed_there_is_no_intercept():
    for algorithm in ("da", "fobos"):
        learner = learner_of(10, "squared", algorithm=algorithm, d=5)
        learner.take(rows_of(np.ones((3, 5))), np.full((1, 3), 4.0), np.ones(3))
        assert learner.rounds == 0 and learner.weights()[1][0] == 0.0


# -- the case of mean zero ---------------------------------------------------------------------------------------------------------


def steps(loss, slope, rounds, start):
    b, path = start, []
    for t in range(1, rounds + 1):
        b = intercept_after(b, slope(b, t), STEEPNESS[loss], float(t), loss != "squared")
        path.append(b)
    return np.array(path)


@pytest.mark.parametrize("start", [1e-3, 1.0, 30.0, 1e4])
def test_without_noise_it_goes_to_zero_and_never_past_it(start):
    """Even classes that nothing tells apart: the slope of the mean loss is tanh(b / 2) / 2 (logistic) or b (squared)."""
    for loss, slope in (("logistic", lambda b, t: 0.5 * np.tanh(b / 2)), ("squared", lambda b, t: b)):
        path = np.append(start, steps(loss, slope, 5_000, start))
        assert (np.diff(path) < 0).all() and path[-1] > 0 and path[-1] < 0.01 * min(start, 1.0) + 1e-6


@pytest.mark.parametrize("batch", BATCHES)
def test_noise_leaves_no_more_than_its_share(batch):
    """The mean of a^2 stays under the bound of the docstring, summed up as the recursion it is."""
    rng, rounds, h = np.random.default_rng(batch), 400, 0.2
    squares = np.zeros(rounds)
    for _ in range(200):
        noise = rng.normal(size=rounds) * 0.5 / np.sqrt(batch)
        path = steps("logistic", lambda b, t, noise=noise: h * np.arcsinh(b) + noise[t - 1], rounds, 0.0)
        squares += np.square(np.arcsinh(path)) / 200
    bound, level = 0.0, []
    for t in range(1, rounds + 1):
        bound = (1 - h / np.sqrt(t)) * bound + 0.25 / (batch * t)
        level.append(bound)
    assert (squares <= 1.5 * np.array(level)).all()
    assert squares[-1] <= 0.5**2 / (4 * 0.25 * h * batch * np.sqrt(rounds)) * 1.5


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_regret_of_the_intercept_is_within_its_bound(loss):
    """Slopes as bad as can be: against every constant within R, for rounds of any weights."""
    rng = np.random.default_rng(5)
    for worst in ("random", "against", "blocks"):
        weight, b, paid, path, slopes = rng.uniform(0.2, 3.0, 2_000), 0.0, 0.0, [], []
        for t in range(2_000):
            sign = {"random": rng.choice([-1.0, 1.0]), "against": 1.0 if b >= 0 else -1.0, "blocks": 1.0 if t // 50 % 2 else -1.0}[worst]
            path.append(b)
            slopes.append(weight[t] * sign)
            paid += weight[t] ** 2
            b = intercept_after(b, slopes[-1], STEEPNESS[loss], paid, True)
        L, reach = STEEPNESS[loss] / 4, max(2.0, np.abs(path).max())
        for rival in (-reach, -1.0, 0.0, 1.0, reach):
            regret = np.sum(np.array(slopes) * (np.array(path) - rival))
            assert regret <= (8 * L * reach * np.arcsinh(reach) + np.sqrt(1 + reach**2) / (4 * L)) * np.sqrt(paid)


# -- many tasks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", STEEPNESS)
def test_intercepts_of_tasks_come_to_their_own_constants_however_gamma_is(loss):
    rng = np.random.default_rng(6)
    codes = np.where(np.arange(30_000) % 10 == 9, 1, 0)
    y = np.where(rng.random(30_000) < np.array([0.8, 0.3])[codes], 1.0, -1.0)
    y = 1e4 * (codes + 1) + 0.1 * y if loss == "squared" else y
    rows = TaskRows(np.zeros(30_001, np.int64), np.zeros(0, np.int32), np.zeros(0), codes.astype(np.int64), y, np.ones(30_000))
    wanted = {"logistic": np.log([4.0, 3 / 7]), "hinge": [1.0, -1.0], "squared": [1e4 + 0.06, 2e4 - 0.04]}[loss]
    for gamma in (1e-3, 1e3):
        rounds, stream = Rounds(task_penalty("amtfs", 3, 0.0), 0.1, gamma, loss, True), TaskStream.empty(3, 2)
        run_rounds(stream, rows, rng.permutation(30_000), rounds, OpenRound.none())
        np.testing.assert_allclose(rounds.intercepts(stream), wanted, atol=0.02 if loss == "squared" else 0.3)


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_tasks_with_targets_far_from_zero(shift):
    rng = np.random.default_rng(7)
    X, codes = rng.normal(size=(3_000, 4)), rng.integers(0, 3, 3_000)
    y = X[:, 0] * (1 + codes) + 0.1 * rng.normal(size=3_000)
    indptr, indices = np.arange(3_001) * 4, np.tile(np.arange(4, dtype=np.int32), 3_000)
    found = []
    for target in (y, y + shift):
        stream, rounds = TaskStream.empty(4, 3), Rounds(task_penalty("mtfts", 4, 0.1), 0.05, 10.0, "squared", True)
        rows = TaskRows(indptr, indices, X.ravel(), codes, target, np.ones(3_000))
        run_rounds(stream, rows, np.arange(3_000), rounds, OpenRound.none())
        found.append((rounds.weights(stream), rounds.intercepts(stream)))
    np.testing.assert_allclose(found[1][0], found[0][0], atol=1e-6)
    np.testing.assert_allclose(found[1][1] - shift, found[0][1], atol=1e-6)
    assert np.abs(found[0][1]).max() < 0.2

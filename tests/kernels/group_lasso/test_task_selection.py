"""Dual averaging over rounds of tasks: closed steps against general solvers, the lazy loop against dense rounds, regret, bits."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.group_lasso.task_selection import (
    CLOSE,
    Diverged,
    OpenRound,
    Rounds,
    TaskRows,
    TaskStream,
    run_rounds,
    task_penalty,
)
from gramplane.kernels.loss_types import RowLoss
from gramplane.kernels.losses import LOSSES
from tests.support.oracles.dual_averaging import dual_averaging
from tests.support.oracles.task_selection import dense_rounds, kkt_residual, step_row, step_value

PENALTIES = ("imtfs", "amtfs", "mtfts")


def rounds_of(name, d, lam=0.1, r=0.3, gamma=2.0, loss="squared", **more):
    return Rounds(task_penalty(name, d, r), lam, gamma, loss, **more)


def weights_of(name, lam, r):
    """(row, entry) of a penalty."""
    return {"imtfs": (0.0, lam), "amtfs": (lam, 0.0), "mtfts": (lam, lam * r)}[name]


def stream_at(mean, t):
    return TaskStream(t, t * mean, np.zeros(mean.shape[1]), np.zeros(mean.shape[1]), np.square(t * mean).sum(axis=1))


def rows_of(X, codes, y, weight=None):
    found = sp.csr_array(X)
    parts = found.indptr.astype(np.int64), found.indices.astype(np.int32), found.data.astype(np.float64)
    return TaskRows(*parts, codes.astype(np.int64), y.astype(np.float64), np.ones(len(y)) if weight is None else weight)


def problem(seed, n=240, d=9, n_tasks=4, density=0.6):
    rng = np.random.default_rng(seed)
    X, codes = rng.normal(size=(n, d)) * (rng.random((n, d)) < density), rng.integers(0, n_tasks, n)
    W = rng.normal(size=(d, n_tasks)) * (np.arange(d) < 3)[:, None]
    values = (X * W[:, codes].T).sum(axis=1) + 0.3 * rng.normal(size=n)
    return X, codes, values, np.where(values > 0, 1.0, -1.0), rng


# -- one step ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("seed", range(4))
def test_closed_steps_are_the_least_of_all_sign_patterns(name, seed):
    rng = np.random.default_rng(seed)
    mean, t, lam, r, gamma = rng.normal(size=(5, 3)), int(rng.integers(1, 50)), 0.8, 0.4, 1.7
    rounds, (row, entry), beta = rounds_of(name, 5, lam, r, gamma), weights_of(name, lam, r), gamma / np.sqrt(t)
    W = rounds.weights(stream_at(mean, t)).T
    best = sum(step_row(g, row, entry, beta) for g in mean)
    assert step_value(W, mean, row, entry, beta) <= best + 1e-9
    assert kkt_residual(W, mean, row, entry, beta) <= 1e-12
    shrunk = np.sign(mean) * np.maximum(np.abs(mean) - entry, 0.0)
    least = -np.square(np.maximum(np.linalg.norm(shrunk, axis=1) - row, 0.0)).sum() / (2 * beta)
    if name != "imtfs":
        assert step_value(W, mean, row, entry, beta) == pytest.approx(least, abs=1e-12)


def test_steps_reduce_to_one_another():
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(30, 4))
    mean[3] = 0.0

    def step(name, lam=0.9, r=0.3, gamma=2.0, at=mean):
        return rounds_of(name, len(at), lam, r, gamma).weights(stream_at(at, 16))

    np.testing.assert_array_equal(step("mtfts", r=0.0), step("amtfs"))
    for name in PENALTIES:
        np.testing.assert_allclose(step(name, lam=0.0), -mean.T * 4 / 2.0)
        np.testing.assert_allclose(step(name, gamma=1.0), 2 * step(name), rtol=1e-14)
        assert (step(name, lam=1.2) != 0).sum() <= (step(name) != 0).sum()
        assert not step(name)[:, 3].any() and np.isfinite(step(name)).all()
        np.testing.assert_allclose(step(name, at=mean[:, ::-1]), step(name)[::-1], rtol=1e-14)
        np.testing.assert_allclose(step(name, lam=9.0, at=10 * mean), 10 * step(name), rtol=1e-12)
    # One task: rows are entries. And at the same mean the support of mtfts lies in that of amtfs.
    np.testing.assert_allclose(step("amtfs", at=mean[:, :1]), step("imtfs", at=mean[:, :1]), atol=1e-15)
    assert not ((step("mtfts") != 0) & (step("amtfs") == 0)).any()
    assert not rounds_of("mtfts", 30).weights(TaskStream.empty(30, 4)).any()


# -- rounds ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if isinstance(loss, RowLoss)])
@pytest.mark.parametrize("name", PENALTIES)
def test_lazy_rounds_are_dense_rounds(name, loss):
    X, codes, values, signs, rng = problem(1)
    y, order = values if loss == "squared" else signs, np.concatenate([rng.permutation(240), [CLOSE], rng.permutation(240)])
    rounds, stream = rounds_of(name, 9, loss=loss, fit_intercept=True), TaskStream.empty(9, 4)
    progress = run_rounds(stream, rows_of(X, codes, y), order, rounds, OpenRound.none())
    t, W, B, told, *_ = dense_rounds(X, y, codes, order, 4, *weights_of(name, 0.1, 0.3), 2.0, loss, bias=True)
    assert stream.t == t
    np.testing.assert_allclose(rounds.weights(stream).T, W, atol=1e-13)
    np.testing.assert_allclose(rounds.intercepts(stream), B, atol=1e-13)
    assert progress.loss == pytest.approx(told.sum(), rel=1e-12)
    assert progress.weight == 480
    np.testing.assert_allclose(stream.norms, np.square(stream.sums).sum(axis=1), rtol=1e-10)


@pytest.mark.parametrize("algorithm", ["da", "fobos"])
@pytest.mark.parametrize(("name", "p"), [("mtfts", 2.0), ("imtfs", 2.0), ("lp1", 1.5), ("lp1", 3.0), ("lp1", np.inf)])
def test_rounds_of_any_norm_and_algorithm_are_dense_rounds_in_any_cut(name, p, algorithm):
    X, codes, values, _, rng = problem(4, n=100)
    order, rows, kept = np.concatenate([rng.permutation(100), [CLOSE], rng.permutation(100)]), rows_of(X, codes, values), np.arange(9) != 1
    lam = 0.6 if p == np.inf else 0.15
    rounds = Rounds(task_penalty(name, 9, 0.3, p), lam, 9.0, "squared", True, kept, algorithm)
    stream, pieces, opened = TaskStream.empty(9, 4), TaskStream.empty(9, 4), OpenRound.none()
    run_rounds(stream, rows, order, rounds, opened)
    row, entry = weights_of(name if name != "lp1" else "amtfs", lam, 0.3)
    masked = X * kept
    _, W, B, *_ = dense_rounds(masked, values, codes, order, 4, row, entry, 9.0, "squared", True, p, algorithm == "fobos")
    found = rounds.weights(stream)
    np.testing.assert_allclose(found.T, W, atol=1e-11)
    np.testing.assert_allclose(rounds.intercepts(stream), B, atol=1e-11)
    assert found.any() and (algorithm == "fobos" or not found.all(axis=0)[kept].all())
    for lo in range(0, len(order), 13):
        opened = run_rounds(pieces, rows, order[lo : lo + 13], rounds, opened).open
    np.testing.assert_array_equal(rounds.weights(pieces), found)
    np.testing.assert_array_equal(pieces.norms, stream.norms)


@pytest.mark.parametrize("cut", [1, 7, 100])
def test_any_cut_of_an_order_gives_the_same_bits(cut):
    X, codes, values, _, rng = problem(2)
    order, rows, rounds = rng.permutation(240), rows_of(X, codes, values), rounds_of("mtfts", 9, fit_intercept=True)
    whole, pieces, opened = TaskStream.empty(9, 4), TaskStream.empty(9, 4), OpenRound.none()
    last = run_rounds(whole, rows, order, rounds, opened).open
    for lo in range(0, 240, cut):
        opened = run_rounds(pieces, rows, order[lo : lo + cut], rounds, opened).open
    assert whole.t == pieces.t
    for name in ("sums", "bias", "paid", "norms"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(pieces, name))
    np.testing.assert_array_equal(last.rows, opened.rows)
    np.testing.assert_array_equal(last.slopes, opened.slopes)


def test_rounds_hold_a_row_of_each_task_at_most():
    X, y, rounds = np.eye(2), np.ones(2), rounds_of("amtfs", 2, lam=0.0, gamma=1.0)
    stream = TaskStream.empty(2, 3)
    left = run_rounds(stream, rows_of(X, np.array([0, 2]), y), np.array([0, 1]), rounds, OpenRound.none()).open
    assert (stream.t, left.rows.tolist(), left.slopes.tolist()) == (0, [0, 1], [-1.0, -1.0])
    assert not stream.sums.any()
    # Task 0 comes again: the round closes without task 1, whose column stays zero.
    left = run_rounds(stream, rows_of(X, np.array([0, 2]), y), np.array([0]), rounds, left).open
    assert (stream.t, left.rows.tolist()) == (1, [0])
    np.testing.assert_array_equal(stream.sums, [[-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
    np.testing.assert_array_equal(rounds.weights(stream), -stream.sums.T)
    run_rounds(stream, rows_of(X, np.array([0, 2]), y), np.array([CLOSE, CLOSE]), rounds, left)
    assert stream.t == 2


def test_features_that_are_not_kept_have_no_weight():
    X, codes, values, _, rng = problem(3)
    kept, order = np.arange(9) % 2 == 0, rng.permutation(240)
    for name in PENALTIES:
        rounds, stream = rounds_of(name, 9, kept=kept), TaskStream.empty(9, 4)
        alone, other = rounds_of(name, 5), TaskStream.empty(5, 4)
        one = run_rounds(stream, rows_of(X, codes, values), order, rounds, OpenRound.none())
        two = run_rounds(other, rows_of(X[:, kept], codes, values), order, alone, OpenRound.none())
        assert one.loss == two.loss
        np.testing.assert_array_equal(rounds.weights(stream)[:, kept], alone.weights(other))
        assert not rounds.weights(stream)[:, ~kept].any()


@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if isinstance(loss, RowLoss)])
def test_large_lam_leaves_intercepts_alone_and_they_are_those_of_streams(loss):
    X, codes, values, signs, rng = problem(4)
    y, rounds, stream = (
        signs if loss != "squared" else values,
        rounds_of("mtfts", 9, 1e9, loss=loss, fit_intercept=True),
        TaskStream.empty(9, 4),
    )
    order, weight = rng.permutation(240), rng.uniform(0.5, 2.0, 240)
    run_rounds(stream, rows_of(X, codes, y, weight), np.append(order, CLOSE), rounds, OpenRound.none())
    assert not rounds.weights(stream).any()
    for q, found in enumerate(rounds.intercepts(stream)):
        rows = order[codes[order] == q]
        path, _ = dual_averaging(
            np.zeros((len(rows), 1)), y[rows], np.ones(1), np.zeros(1), [np.arange(1)], 1.0, loss=loss, weight=weight[rows]
        )
        assert found == pytest.approx(path[-1][1], rel=1e-12) and found != 0


def test_weights_of_rows_are_factors_of_their_losses():
    X, codes, values, _, rng = problem(5)
    order, rounds, twice = rng.permutation(240), rounds_of("amtfs", 9, gamma=2.0), rounds_of("amtfs", 9, lam=0.2, gamma=4.0)
    one, two = TaskStream.empty(9, 4), TaskStream.empty(9, 4)
    a = run_rounds(one, rows_of(X, codes, values), order, rounds, OpenRound.none())
    b = run_rounds(two, rows_of(X, codes, values, np.full(240, 2.0)), order, twice, OpenRound.none())
    np.testing.assert_allclose(rounds.weights(one), twice.weights(two), rtol=1e-12)
    assert (b.loss, b.weight) == (pytest.approx(2 * a.loss), 480.0)


def test_divergence_is_told():
    X, codes, values, _, _ = problem(6)
    with pytest.raises(Diverged, match="without bound") as caught:
        order = np.tile(np.arange(240), 4)
        run_rounds(TaskStream.empty(9, 4), rows_of(1e3 * X, codes, values), order, rounds_of("amtfs", 9), OpenRound.none())
    assert 0 <= caught.value.row < 240


# -- regret ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("seed", range(2))
def test_average_regret_is_within_its_bound(name, seed):
    """Against any W with ||W||^2 / 2 <= D^2 the average regret is at most (gamma D^2 + L^2 / gamma) / sqrt(T), L the largest ||G_t||."""
    rng = np.random.default_rng(seed)
    d, n_tasks, T = 5, 3, 150
    X, codes = rng.normal(size=(T * n_tasks, d)), np.tile(np.arange(n_tasks), T)
    truth = rng.normal(size=(d, n_tasks)) * (np.arange(d) < 2)[:, None]
    y = np.where((X * truth[:, codes].T).sum(axis=1) + 0.3 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    (row, entry), gamma = weights_of(name, 0.05, 0.3), 1.5
    rounds, stream, rows = rounds_of(name, d, 0.05, 0.3, gamma, "hinge"), TaskStream.empty(d, n_tasks), rows_of(X, codes, y)
    path, slopes = [], []
    for t in range(T):
        path.append(rounds.weights(stream).T.copy())
        before, order = stream.sums.copy(), np.append(np.arange(t * n_tasks, (t + 1) * n_tasks), CLOSE)
        run_rounds(stream, rows, order, rounds, OpenRound.none())
        slopes.append(stream.sums - before)

    def joint(W, t):
        part = slice(t * n_tasks, (t + 1) * n_tasks)
        margins = y[part] * (X[part] * W.T).sum(axis=1)
        return np.maximum(1 - margins, 0.0).sum() + step_value(W, 0.0 * W, row, entry, 0.0)

    told = np.array([joint(W, t) for t, W in enumerate(path)])
    for rival in (0.5 * truth, truth, np.zeros_like(truth)):
        fixed = np.array([joint(rival, t) for t in range(T)])
        for t in (1, 2, 5, 20, 150):
            reach, largest = 0.5 * np.square(rival).sum(), max(np.square(G).sum() for G in slopes[:t])
            assert (told[:t] - fixed[:t]).mean() <= (gamma * reach + largest / gamma) / np.sqrt(t)

"""Unsupervised MKL: terms against the definition, the small program against a generic solver, greedy search against enumeration."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from gramplane.kernels.weights.umkl import basis_costs, coded_bases, greedy_bases, solve_simplex_qp, weight_terms
from tests.support.oracles.umkl import best_set, objective, simplex_minimum


def problem(seed=0, n=8, d=3, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    M = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    grams = np.stack([np.exp(-M * 2.0 ** (t - 2)) for t in range(k - 1)] + [X @ X.T])
    return X, X @ X.T, grams / np.trace(grams, axis1=1, axis2=2)[:, None, None] * n


def gathered(grams, bases):
    return grams[:, np.arange(len(bases))[:, None], np.maximum(bases, 0)]


@pytest.mark.parametrize("stop", ["size", "gain"])
@pytest.mark.parametrize("gammas", [(0.0, 0.0), (0.3, 0.05)])
def test_the_quadratic_of_the_weights_is_the_objective(gammas, stop):
    X, P, grams = problem(1, n=9)
    rng = np.random.default_rng(2)
    bases, _ = greedy_bases(grams.mean(axis=0), P, 4, *gammas, stop=stop)
    terms = weight_terms(gathered(grams, bases), bases, P, *gammas)
    for mu in rng.dirichlet(np.ones(3), 5):
        gram = np.tensordot(mu, grams, 1)
        expected = objective(X, gram, bases, *gammas)
        assert terms.value(mu) == pytest.approx(expected, rel=1e-10)
        assert basis_costs(gram, P, bases, *gammas).sum() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_the_program_on_the_simplex_against_a_generic_solver(seed):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 9))
    A = rng.normal(size=(int(rng.integers(1, k + 2)), k))
    W, u = A.T @ A, rng.normal(size=k)
    found = solve_simplex_qp(W, u, rng.dirichlet(np.ones(k)) if seed % 2 else None)
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.gap <= 1e-8
    assert found.value == pytest.approx(simplex_minimum(W, u), abs=1e-7)


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_of_a_program_ended_early_is_that_of_its_weights(seed):
    """The greatest descent towards a vertex, which bounds what is left: never 0 where the weights are not the best."""
    rng = np.random.default_rng(seed)
    A, u = rng.normal(size=(5, 6)), rng.normal(size=6)
    W = A.T @ A
    found = solve_simplex_qp(W, u, tol=1e3)
    slopes = W @ found.weights + u
    assert found.gap == pytest.approx(max(slopes @ found.weights - slope for slope in slopes), rel=1e-12)
    assert found.gap >= found.value - simplex_minimum(W, u) - 1e-9
    assert found.gap > 1e-3


def test_the_program_bears_copies_zeros_and_many_kernels():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(5, 6))
    W, u = A.T @ A, rng.normal(size=6)
    twice = np.ix_([*range(6), *range(6)], [*range(6), *range(6)])
    assert solve_simplex_qp(W[twice], np.tile(u, 2)).value == pytest.approx(solve_simplex_qp(W, u).value, abs=1e-9)
    flat = solve_simplex_qp(np.zeros((4, 4)), np.array([3.0, 1.0, 2.0, 1.5]))
    assert flat.weights.tolist() == [0.0, 1.0, 0.0, 0.0]
    big = rng.normal(size=(30, 120))
    found = solve_simplex_qp(big.T @ big, rng.normal(size=120), np.full(120, 1 / 120))
    assert found.gap <= 1e-8 * 30


@pytest.mark.parametrize("bad", [(np.eye(2), np.ones(3)), (np.eye(2), np.array([1.0, np.nan])), (np.zeros((0, 0)), np.zeros(0))])
def test_the_program_refuses(bad):
    with pytest.raises(ValueError, match="W"):
        solve_simplex_qp(*bad)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_greedy_takes_the_best_single_basis_and_is_near_the_best_set(dtype):
    X, P, grams = problem(4, n=8)
    gram = grams.mean(axis=0).astype(dtype)
    for size in (1, 3):
        bases, values = greedy_bases(gram, P, size, 0.1, 0.0)
        best = np.array([best_set(X, gram.astype(float), i, size, 0.1, 0.0) for i in range(8)])
        assert (values >= best - 1e-9).all()
        if size == 1:
            np.testing.assert_allclose(values, best, rtol=1e-9)
        np.testing.assert_allclose(basis_costs(gram, P, bases, 0.1, 0.0), values, rtol=1e-9)
        assert all(len(set(row)) == size and i not in row for i, row in enumerate(bases.tolist()))


def test_greedy_keeps_its_guarantee_where_gains_are_monotone():
    """Non-negative points and kernels: the reduction of J is submodular; where it is monotone, greedy reaches 1 - 1/e of it."""
    seen = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        X = rng.random((7, 3))
        gram = 0.15 * np.exp(-((X[:, None] - X[None]) ** 2).sum(axis=2))
        whole, by_gain = (greedy_bases(gram, X @ X.T, 6, 0.02, 0.0, stop=stop)[0] for stop in ("size", "gain"))
        monotone = (by_gain >= 0).all(axis=1)
        _, values = greedy_bases(gram, X @ X.T, 3, 0.02, 0.0)
        for i in np.flatnonzero(monotone):
            start = 0.5 * X[i] @ X[i]
            assert start - values[i] >= (1 - 1 / np.e) * (start - best_set(X, gram, i, 3, 0.02, 0.0)) - 1e-12
            seen += 1
        assert sorted(whole[0].tolist()) == list(range(1, 7))
    assert seen >= 20


def test_a_stop_by_gain_leaves_no_basis_that_helps():
    _, P, grams = problem(5, n=10)
    bases, values = greedy_bases(grams[0], P, 9, 0.2, 0.3, stop="gain")
    assert (bases < 0).any()
    assert (values <= 0.5 * np.diag(P) + 1e-12).all()
    for i, row in enumerate(bases):
        for j in set(range(10)) - {i, *row.tolist()}:
            more = row.copy()
            more[int(np.argmax(row < 0))] = j
            trial = bases.copy()
            trial[i] = more
            assert basis_costs(grams[0], P, trial, 0.2, 0.3)[i] >= values[i] - 1e-12


def test_points_may_be_permuted_and_rotated():
    _, P, grams = problem(6, n=9)
    order = np.random.default_rng(0).permutation(9)
    bases, values = greedy_bases(grams[0], P, 3, 0.1, 0.0)
    moved, other = greedy_bases(
        np.ascontiguousarray(grams[0][np.ix_(order, order)]), np.ascontiguousarray(P[np.ix_(order, order)]), 3, 0.1, 0.0
    )
    np.testing.assert_allclose(other, values[order], rtol=1e-10)
    assert (np.sort(order[moved], axis=1) == np.sort(bases[order], axis=1)).all()


def test_strong_locality_chooses_the_nearest_by_weight():
    X, P, grams = problem(7, n=10)
    M = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    bases, _ = greedy_bases(grams[0], P, 1, 1e9, 0.0)
    cost = grams[0] * M + np.where(np.eye(10, dtype=bool), np.inf, 0.0)
    assert (bases[:, 0] == cost.argmin(axis=1)).all()


@pytest.mark.parametrize("size", [0, 8])
def test_the_number_of_bases_is_checked(size):
    _, P, grams = problem()
    with pytest.raises(ValueError, match="between 1 and n - 1 = 7"):
        greedy_bases(grams[0], P, size, 0.1, 0.0)


@pytest.mark.parametrize("penalty", [0.5, 0.05])
def test_sparse_codes_are_those_of_a_lasso(penalty):
    X, P, _ = problem(8, n=12, d=20)
    found = coded_bases(P, 11, penalty, stop="gain")
    for i, row in enumerate(found.tolist()):
        others = [j for j in range(12) if j != i]
        peer = Lasso(alpha=penalty / 20, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(X[others].T, X[i]).coef_
        chosen = [j for j in row if j >= 0]
        assert set(chosen) == {j for j, d in zip(others, peer, strict=True) if abs(d) > 1e-9}
        sizes = dict(zip(others, np.abs(peer), strict=True))
        assert [sizes[j] for j in chosen] == sorted((sizes[j] for j in chosen), reverse=True)
    assert (found >= 0).sum() > 0


def test_sparse_codes_are_filled_up_and_have_a_penalty_of_their_own():
    _, P, _ = problem(9, n=10, d=30)
    whole = coded_bases(P, 9, 1e9)
    assert all(sorted(row) == [j for j in range(10) if j != i] for i, row in enumerate(whole.tolist()))
    assert (coded_bases(P, 9, 1e9, stop="gain") == -1).all()
    strongest = np.abs(P - np.diag(np.diag(P))).argmax(axis=1)
    assert (coded_bases(P, 1, 1e9)[:, 0] == strongest).all()
    assert (coded_bases(P, 9, 0.0, stop="gain") >= 0).any(axis=1).all()
    with pytest.raises(ValueError, match="between 1 and n - 1 = 9"):
        coded_bases(P, 10)

"""Strips of points against whole matrices: greedy bases, shares of the objective, terms of the weights, sparse codes."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.weights.umkl import basis_costs, coded_bases, greedy_bases, weight_terms
from gramplane.kernels.weights.umkl_strips import (
    BaseProducts,
    bases_of_codes,
    greedy_strip,
    largest_residuals,
    merge_largest,
    point_costs,
    point_terms,
    solve_code,
)


class Blocks:
    """Rows in blocks of a few."""

    def __init__(self, X, size):
        self.X, self.size = X, size

    def blocks(self):
        for lo in range(0, self.X.shape[0], self.size):
            yield lo, self.X[lo : lo + self.size]

    def take(self, ids):
        return self.X[ids]


def problem(seed=0, n=60, d=5, k=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7)
    M = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return X, np.stack([*(np.exp(-M * 2.0 ** (t - 2)) for t in range(k - 1)), X @ X.T]).astype(np.float32)


FORMS = {"dense": np.asarray, "sparse": sp.csr_array}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop", ["size", "gain"])
@pytest.mark.parametrize("gammas", [(0.0, 0.0), (0.3, 0.2)])
def test_strips_choose_what_whole_matrices_choose(form, stop, gammas):
    X, grams = problem(1)
    gram, rows, inner = grams.mean(axis=0), Blocks(FORMS[form](X), 17), X @ X.T
    whole, costs = greedy_bases(gram, inner, 6, *gammas, stop=stop)
    spans = [(0, 25), (25, 26), (26, 60)]
    bases = np.concatenate([greedy_strip(gram[lo:hi], lo, rows, 6, *gammas, stop=stop) for lo, hi in spans])
    np.testing.assert_array_equal(bases, whole)
    assert (bases < 0).any() == (stop == "gain")
    at = np.maximum(bases, 0)
    products = BaseProducts.of(rows.X, rows.take(at.ravel()), 7)
    found = point_costs(np.take_along_axis(gram, at, axis=1).astype(float), bases, products, *gammas)
    np.testing.assert_allclose(found, costs, atol=1e-9)
    np.testing.assert_allclose(found, basis_costs(gram, inner, bases, *gammas), atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_terms_of_points_add_up_to_those_of_all(form):
    X, grams = problem(2)
    rng = np.random.default_rng(3)
    bases = np.stack([rng.permutation(np.delete(np.arange(60), i))[:5] for i in range(60)]).astype(np.int32)
    bases[::3, 3:] = -1
    at = np.maximum(bases, 0)
    entries = grams[:, np.arange(60)[:, None], at].astype(float)
    whole = weight_terms(entries, bases, X @ X.T, 0.3, 0.2)
    rows, total = FORMS[form](X), None
    for lo, hi in ((0, 10), (10, 37), (37, 60)):
        part = point_terms(entries[:, lo:hi], bases[lo:hi], BaseProducts.of(rows[lo:hi], rows[at[lo:hi].ravel()], 4), 0.3, 0.2)
        total = part if total is None else total + part
    np.testing.assert_allclose(total.W, whole.W, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(total.u, whole.u, rtol=1e-10, atol=1e-9)
    assert total.constant == pytest.approx(whole.constant, rel=1e-12)


def codes_of(Q, penalty):
    """Codes of all points over all others."""
    n = len(Q)
    codes = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        at = np.concatenate([[i], others])
        codes[i, others] = solve_code(Q[np.ix_(at, at)], penalty)
    return codes


def test_a_code_meets_its_optimality_conditions():
    """|q_j - (Q d)_j| is the penalty where d_j is not 0, with its sign, and no larger elsewhere."""
    X, _ = problem(4, n=20, d=30)
    Q = X @ X.T
    codes = codes_of(Q, 0.8)
    for i, d in enumerate(codes):
        left = np.delete(Q[i] - Q @ d, i)
        own = np.delete(d, i)
        np.testing.assert_allclose(left[own != 0], 0.8 * np.sign(own[own != 0]), atol=1e-4)
        assert np.abs(left).max() <= 0.8 + 1e-4
    assert 0.1 < np.mean(codes != 0) < 0.9


@pytest.mark.parametrize("parts", [[(0, 20)], [(0, 3), (3, 14), (14, 20)]])
def test_largest_residuals_of_strips_merge_to_those_of_all(parts):
    X, _ = problem(5, n=20, d=30)
    Q = X @ X.T
    codes = codes_of(Q, 2.0)
    found = merge_largest([largest_residuals(Q[lo:hi], lo, sp.csr_array(codes), 4) for lo, hi in parts], 4)
    left = np.abs(Q - codes @ Q)
    left[codes != 0] = -np.inf
    np.fill_diagonal(left, -np.inf)
    np.testing.assert_array_equal(found.ids, np.argsort(-left, axis=1)[:, :4])
    np.testing.assert_allclose(found.values, -np.sort(-left, axis=1)[:, :4], rtol=1e-9)


@pytest.mark.parametrize("stop", ["size", "gain"])
def test_bases_of_codes_are_those_of_the_search_on_the_whole_matrix(stop):
    X, _ = problem(6, n=40, d=60)
    Q = X @ X.T
    codes = sp.csr_array(codes_of(Q, 8.0))
    left = largest_residuals(Q, 0, codes, 39)
    expected = coded_bases(Q, 9, 8.0, stop=stop)
    np.testing.assert_array_equal(bases_of_codes(codes, left, 9, stop=stop), expected)
    assert (expected < 0).any() == (stop == "gain")


def test_points_without_enough_others_have_none():
    found = largest_residuals(np.ones((2, 3)), 0, sp.csr_array((3, 3)), 4)
    np.testing.assert_array_equal(found.ids, [[1, -1], [0, -1], [0, 1]])
    assert np.isneginf(found.values[:2, 1]).all() and found.values[2].tolist() == [1.0, 1.0]

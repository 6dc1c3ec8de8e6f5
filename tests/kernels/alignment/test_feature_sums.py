"""Sums of one kernel per feature against their matrices, applied to vectors, and mixed from cells of like kernels."""

import numpy as np
import pytest

from gramplane.kernels.alignment.path import AlignmentProblem, cut_into_cells, kernel_path
from gramplane.kernels.grams.feature_sums import (
    MATRIX_ERROR,
    MAX_TERMS,
    PRODUCT_COLUMNS,
    PRODUCT_ERROR,
    feature_values,
    weighted_feature_sum,
)


def gram(x, z, width):
    return np.exp(-np.square((x[:, None] - z[None, :]) / width) / 2)


def columns(seed=0, n=90):
    """Normal, far-reaching, lattice, two-valued, constant and mostly-zero columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 12))
    X[:, 1] *= 1e6
    X[:, 2] = np.exp(4 * X[:, 2])
    X[:, 3] = np.round(X[:, 3])
    X[:, 4] = X[:, 4] > 0.3
    X[:, 5] = 7.0
    X[:, 6] *= rng.random(n) < 0.1
    widths = np.array([0.9, 1e6, 0.5, 1.0, 1.0, 1.0, 0.7, 1e-9, 1e9, 2.0, 0.3, 0.05])
    return X, widths, rng.random(12)


def test_matrices_of_all_kinds_of_columns():
    X, widths, weights = columns()
    found = weighted_feature_sum(X, weights, widths)
    exact = sum(w * gram(x, x, s) for x, w, s in zip(X.T, weights, widths, strict=True))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, exact, rtol=0, atol=2 * MATRIX_ERROR * weights.sum())


@pytest.mark.parametrize("which", range(12))
def test_one_column_at_a_time(which):
    X, widths, _ = columns(1)
    found = weighted_feature_sum(X[:, [which]], np.ones(1), widths[[which]])
    np.testing.assert_allclose(found, gram(X[:, which], X[:, which], widths[which]), rtol=0, atol=2 * MATRIX_ERROR)


def test_products_of_many_columns_are_cut():
    rng = np.random.default_rng(2)
    X, weights = rng.normal(size=(20, 3 * PRODUCT_COLUMNS)), rng.random(3 * PRODUCT_COLUMNS)
    found = weighted_feature_sum(X, weights)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, (X * weights) @ X.T, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("machines", [1, 3])
def test_values_at_new_points_near_and_far(machines):
    Z, widths, weights = columns(3)
    rng = np.random.default_rng(4)
    X = np.concatenate([Z[:9], Z[:9] + rng.normal(size=(9, 12)), 1e3 * rng.normal(size=(4, 12)), np.full((1, 12), 1e100)])
    beta = rng.normal(size=(machines, len(Z)))
    found = feature_values(X, Z, weights, widths, beta)
    exact = sum(w * beta @ gram(x, z, s).T for x, z, w, s in zip(X.T, Z.T, weights, widths, strict=True))
    np.testing.assert_allclose(found, exact, rtol=0, atol=PRODUCT_ERROR * weights.sum() * np.abs(beta).sum(axis=1).max())
    np.testing.assert_allclose(feature_values(X[:20], Z, weights, None, beta), beta @ (Z * weights) @ X[:20].T, rtol=1e-9, atol=1e-6)


def test_a_long_series_gives_way_to_exponentials():
    """Above LONGEST terms, or where a term at every point costs more than a pair."""
    rng = np.random.default_rng(5)
    x = np.cumsum(rng.exponential(size=(600, 1)), axis=0)
    for width in (0.2, 5.0, 200.0):
        assert (x.max() / width > 3 * MAX_TERMS) == (width < 5)
        exact = gram(x[:, 0], x[:, 0], width)
        np.testing.assert_allclose(weighted_feature_sum(x, np.ones(1), np.array([width])), exact, rtol=0, atol=2 * MATRIX_ERROR)
        np.testing.assert_allclose(feature_values(x, x, np.ones(1), np.array([width]), np.ones((1, 600)))[0], exact.sum(axis=1), atol=1e-6)


# --- cells ------------------------------------------------------------------------------------------------------------------------


def path(n=3000, **options):
    a = np.random.default_rng(6).gamma(0.5, 4.0, n)
    found = kernel_path(AlignmentProblem(0.5 * a.max(), 1.2 * a.max()), a, dp=0.1, **options)
    return a, found.weights.toarray()


@pytest.mark.parametrize("tol", [1e-2, 3e-4])
def test_cells_keep_the_weights_within_the_tolerance(tol):
    a, weights = path()
    cells = cut_into_cells(a, weights, tol=tol, max_cells=2000)
    assert cells is not None and 5 < cells.count < 400
    for k, eta in enumerate(weights):
        active, w = cells.weights(k)
        np.testing.assert_array_equal(active, np.flatnonzero(eta))
        assert np.abs(w - eta[active]).sum() == pytest.approx(cells.error[k] * eta.sum(), rel=1e-6, abs=1e-12)
        assert w.min(initial=1.0) > 0
    assert cells.error.max() <= tol
    assert cells.error[0] < 1e-12, "at p = 2 weights are proportional to alignments"


def test_the_mixture_of_the_cells_matrices_has_the_cells_weights():
    a, weights = path(40)
    cells = cut_into_cells(a, weights, tol=1e-2, max_cells=100)
    K = np.random.default_rng(7).random((40, 3, 3))
    for k in (0, 5, 10):
        mixed = np.zeros((3, 3))
        for cell, members, shares in cells.members_of(range(cells.count)):
            mixed += cells.low[k, cell] * np.tensordot(1 - shares, K[members], 1) + cells.high[k, cell] * np.tensordot(
                shares, K[members], 1
            )
        active, w = cells.weights(k)
        np.testing.assert_allclose(mixed, np.tensordot(w, K[active], 1), rtol=1e-12)


def test_cells_are_exact_where_kernels_are_few_and_refused_where_room_is():
    a, weights = path(8)
    cells = cut_into_cells(a, weights, tol=1e-9, max_cells=50)
    np.testing.assert_allclose(cells.error, 0.0, atol=1e-9)
    assert cut_into_cells(*path(), tol=1e-6, max_cells=20) is None
    equal = cut_into_cells(np.ones(5), np.ones((2, 5)), tol=1e-9, max_cells=5)
    assert equal.count == 1 and equal.weights(0)[1].tolist() == [1.0] * 5
    none = cut_into_cells(np.ones(5), np.zeros((2, 5)), tol=1e-9, max_cells=5)
    assert none.count == 0 and not len(none.weights(1)[0])

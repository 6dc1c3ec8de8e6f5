"""Generators with known truth: what they promise of rows, labels and planted coordinates is there."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.pipeline.synthetic.linear import dense_groups, dense_linear, sparse_linear, zipf_rows


def test_dense_rows_are_labelled_by_the_planted_features_alone():
    made = dense_linear(300, 40, 5, n_test=200, seed=3)
    assert made.X.shape == (300, 40) and made.X_test.shape == (200, 40) and made.relevant.size == 5
    assert abs(made.X.mean()) < 0.05 and abs(made.X.std() - 1) < 0.05
    assert set(made.y) == {-1, 1}
    _labels_are_linear(made, made.relevant)
    # Positive weights: every planted feature goes with the label, no other does as much on average.
    together = made.X.T @ made.y / 300
    assert together[made.relevant].mean() > 0.2 > 5 * abs(np.delete(together, made.relevant).mean())


def test_a_shift_makes_negative_labels_more():
    assert dense_linear(2000, 20, 10, shift=2.0, seed=1).y.mean() < -0.3 < abs(dense_linear(2000, 20, 10, seed=1).y.mean()) + 0.3


def test_groups_are_planted_whole():
    made = dense_groups(400, 30, 4, 3, n_test=100, seed=5)
    assert made.X.shape == (400, 120) and made.relevant.size == 3 and made.groups is not None
    np.testing.assert_array_equal(np.bincount(made.groups), np.full(30, 4))
    _labels_are_linear(made, np.flatnonzero(np.isin(made.groups, made.relevant)))


def _labels_are_linear(made, columns):
    """Both parts are separated by one vector on the planted columns, and by none on as many others."""
    X, y = np.vstack([made.X, made.X_test]), np.concatenate([made.y, made.y_test])
    assert _separation(X[:, columns], y) > 0.97
    others = np.setdiff1d(np.arange(X.shape[1]), columns)[: columns.size]
    assert _separation(X[:, others], y) < 0.8


def _separation(X, y):
    w = np.linalg.lstsq(np.c_[X, np.ones(len(y))], y, rcond=None)[0]
    return np.mean(np.sign(np.c_[X, np.ones(len(y))] @ w) == y)


@pytest.mark.parametrize("offset", [2.0, 10.0])
def test_popularity_of_columns_follows_the_shifted_law(offset):
    d, n, nnz = 200, 20_000, 3
    X = zipf_rows(n, d, nnz, np.random.default_rng(0), offset=offset, permute=False)
    assert X.shape == (n, d) and sp.issparse(X)
    np.testing.assert_allclose(np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel()), 1.0, rtol=1e-6)
    law = 1.0 / (np.arange(d) + offset)
    law /= law.sum()
    seen = np.bincount(X.indices, minlength=d) / n
    np.testing.assert_allclose(seen[:40], 1 - (1 - law[:40]) ** nnz, atol=5 * np.sqrt(law[0] * nnz / n))
    np.testing.assert_allclose(seen[100:].sum(), (1 - (1 - law[100:]) ** nnz).sum(), rtol=0.05)


def test_a_row_keeps_its_distinct_columns_and_their_order_is_shuffled():
    X = zipf_rows(500, 10, 30, np.random.default_rng(0))
    assert np.diff(X.indptr).max() <= 10 and np.diff(X.indptr).min() >= 1
    assert all(np.unique(X.indices[a:b]).size == b - a for a, b in zip(X.indptr[:-1], X.indptr[1:], strict=True))
    plain = zipf_rows(5000, 50, 5, np.random.default_rng(1), permute=False)
    mixed = zipf_rows(5000, 50, 5, np.random.default_rng(1))
    assert np.argmax(np.bincount(plain.indices)) == 0
    assert np.argsort(-np.bincount(mixed.indices, minlength=50))[:10].max() > 9


def test_sparse_labels_come_from_popular_columns():
    made = sparse_linear(4000, 2000, 20, 10, n_test=500, seed=2)
    assert made.X.shape == (4000, 2000) and made.X_test.shape == (500, 2000) and made.relevant.size == 10
    assert abs(made.y.mean()) < 0.05, "the median of the decision values is the threshold"
    popularity = np.bincount(sp.vstack([made.X, made.X_test]).tocsr().indices, minlength=2000)
    assert popularity[made.relevant].min() >= np.sort(popularity)[-200]
    assert _separation(made.X[:, made.relevant].toarray(), made.y) > 0.75
    others = np.setdiff1d(np.argsort(-popularity)[:30], made.relevant)[:10]
    assert _separation(made.X[:, others].toarray(), made.y) < _separation(made.X[:, made.relevant].toarray(), made.y) - 0.1

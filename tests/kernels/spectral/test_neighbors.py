"""Nearest neighbours: against a pair-by-pair twin, ties, forms of data, chunks, graphs, bad input."""

from itertools import accumulate

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.spectral import neighbors
from gramplane.kernels.spectral.neighbors import Nearest, count_components, merge_nearest, nearest_between, nearest_rows, neighbour_graph
from tests.support.oracles.npkl import neighbours


def data_sets():
    rng = np.random.default_rng(0)
    return {
        "normal": rng.normal(size=(60, 5)),
        "far from the origin": rng.normal(size=(40, 4)) + 1e6,
        "single": (rng.normal(size=(40, 4)) + 3).astype(np.float32),
        "bits": rng.integers(0, 2, (60, 9)).astype(float),
        "many bits": (rng.random((50, 200)) < 0.1).astype(float),
        "integers": rng.integers(0, 3, (60, 3)).astype(float),
        "equal rows": np.repeat(rng.normal(size=(4, 3)), 8, axis=0),
        "zero rows": np.vstack([np.zeros((5, 6)), rng.integers(0, 2, (20, 6))]),
        "one column": rng.normal(size=(20, 1)),
    }


@pytest.mark.parametrize("name", data_sets())
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_matrix])
def test_neighbours_are_those_of_the_definition(name, form):
    X = data_sets()[name]
    found = nearest_rows(form(X), 6)
    np.testing.assert_array_equal(found.ids, neighbours(X, 6))
    rows = X.astype(float).tolist()
    # One addition after the other: the sum() of newer Pythons compensates.
    squares = [[[(a - b) * (a - b) for a, b in zip(rows[i], rows[j], strict=True)] for j in ids] for i, ids in enumerate(found.ids)]
    expected = [[list(accumulate(terms, initial=0.0))[-1] for terms in line] for line in squares]
    np.testing.assert_array_equal(found.squares, expected)
    np.testing.assert_array_equal(found.distances, np.sqrt(expected))


@pytest.mark.parametrize("values", ["normal", "ones"])
def test_wide_sparse_rows(values):
    X = sp.random(40, 5000, density=0.005, random_state=1, format="csr")
    if values == "ones":
        X.data[:] = 1.0
    np.testing.assert_array_equal(nearest_rows(X, 4).ids, neighbours(X.toarray()[:, np.unique(X.indices)], 4))


def test_a_huge_row_does_not_touch_the_sparse_row_before_it():
    X = sp.random(40, 5000, density=0.005, random_state=1, format="csr")
    X.data[X.indptr[[8, 20, 33]]] = 1e12
    np.testing.assert_array_equal(nearest_rows(X, 4).ids, neighbours(X.toarray()[:, np.unique(X.indices)], 4))


def test_ties_go_to_the_lower_id():
    X = np.array([[0.0], [1.0], [-1.0], [1.0], [-1.0]])
    assert nearest_rows(X, 2).ids.tolist() == [[1, 2], [3, 0], [4, 0], [1, 0], [2, 0]]


@pytest.mark.parametrize("name", ["normal", "bits", "integers", "equal rows"])
@pytest.mark.parametrize(("rows", "columns", "tile"), [(7, 60, 8), (60, 11, 13), (13, 17, 5)])
def test_chunks_and_tiles_change_no_bit(name, rows, columns, tile, monkeypatch):
    X = data_sets()[name]
    whole, n = nearest_rows(X, 5), len(X)
    monkeypatch.setattr(neighbors, "TILE_ROWS", tile)
    monkeypatch.setattr(neighbors, "TILE_COLUMNS", tile)
    for lo in range(0, n, rows):
        left = X[lo : lo + rows]
        parts = [nearest_between(left, X[a : a + columns], 5, left_start=lo, right_start=a) for a in range(0, n, columns)]
        for order in (parts, parts[::-1]):
            merged = merge_nearest(order, 5)
            np.testing.assert_array_equal(merged.ids, whole.ids[lo : lo + rows])
            np.testing.assert_array_equal(merged.squares, whole.squares[lo : lo + rows])


def test_fewer_candidates_than_asked_for():
    found = nearest_rows(np.arange(3.0)[:, None], 4)
    assert found.ids.tolist() == [[1, 2, -1, -1], [0, 2, -1, -1], [1, 0, -1, -1]]
    assert np.isinf(found.squares[:, 2:]).all()
    twice = merge_nearest([found, Nearest(np.full((3, 1), -1), np.full((3, 1), np.inf))], 4)
    np.testing.assert_array_equal(twice.ids, found.ids)
    assert neighbour_graph(found.ids).nnz == 6


def test_permuted_rows_without_ties_have_permuted_neighbours():
    X = data_sets()["normal"]
    order = np.random.default_rng(1).permutation(len(X))
    a, b = nearest_rows(X, 5), nearest_rows(X[order], 5)
    np.testing.assert_array_equal(order[b.ids], a.ids[order])
    np.testing.assert_array_equal(b.squares, a.squares[order])


def test_graphs_are_what_they_are_called():
    ids = np.array([[1, 2], [0, 3], [3, 0], [2, 1], [0, 1]])
    links = np.zeros((5, 5), dtype=bool)
    links[np.repeat(np.arange(5), 2), ids.ravel()] = True
    mutual, union = neighbour_graph(ids), neighbour_graph(ids, "union")
    np.testing.assert_array_equal(mutual.toarray(), links & links.T)
    np.testing.assert_array_equal(union.toarray(), links | links.T)
    assert count_components(mutual) == 2  # the last row is no one's neighbour
    assert count_components(union) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nearest_rows(np.eye(3), 0), "k=0: must be at least 1"),
        (lambda: nearest_rows(np.array([[0.0], [np.nan]]), 1), "row 1 holds NaN, infinity"),
        (lambda: nearest_rows(np.array([[0.0], [1e200]]), 1), "too large to be squared"),
        (lambda: nearest_rows(["a", "b"], 1), "X"),
        (lambda: neighbour_graph(np.zeros((2, 1), np.int64), "both"), "graph='both': must be 'mutual' or 'union'"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()

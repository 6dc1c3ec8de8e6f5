"""Degree-2 coordinates: the map, and every route to the best of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.features import pairs_sparse
from gramplane.kernels.features.pairs import (
    PairMap,
    by_frequency,
    coordinate_top,
    decode,
    encode,
    merge_top_pairs,
    most_frequent,
    pair_bounds,
    pair_columns,
    row_max_abs,
    row_weight,
    survivors,
)
from gramplane.kernels.features.pairs_dense import dense_bounds, dense_pairs, dense_tiles
from gramplane.kernels.features.pairs_sparse import expected_products, fallback_pairs, head_pairs
from gramplane.kernels.features.scores import correlations
from tests.support.oracles.selection import Ranked, best
from tests.support.pairs import MAP, as_list, everything, problem

FEW = settings(max_examples=25, deadline=None)


def products_only(candidates: Ranked) -> Ranked:
    return [candidate for candidate in candidates if 0 <= candidate[0][0] < candidate[0][1]]


def ranked_ids(X: np.ndarray) -> np.ndarray:
    return most_frequent((X != 0).sum(axis=0), X.shape[1])


# --- the map ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_all_coordinates_together_give_the_kernel(sparse: bool) -> None:
    X, _ = problem(0, whole=False)
    d = X.shape[1]
    ids = np.array([(j, k) for j in range(d) for k in (-1, *range(j, d))])
    Z = pair_columns(sp.csc_array(X) if sparse else X, np.arange(d), ids, MAP)
    dense = Z if isinstance(Z, np.ndarray) else Z.toarray()
    assert isinstance(Z, sp.csc_array) == sparse
    assert np.allclose(dense @ dense.T + MAP.coef0**2, (MAP.gamma * X @ X.T + MAP.coef0) ** 2)


def test_columns_need_their_features() -> None:
    X, _ = problem(1, whole=False)
    with pytest.raises(ValueError, match="coordinate 0 needs feature 99"):
        pair_columns(X, np.arange(13), np.array([[3, 99]]), MAP)
    assert pair_columns(sp.csc_array(X), np.arange(13), np.zeros((0, 2), int), MAP).shape == (24, 0)


@FEW
@given(st.lists(st.tuples(st.integers(0, 2**31 - 3), st.integers(-1, 2**31 - 3)), min_size=2, max_size=9))
def test_codes_keep_pairs_and_their_order(ids: list[tuple[int, int]]) -> None:
    codes = encode(np.array(ids))
    assert decode(codes).tolist() == [list(pair) for pair in ids]
    assert [ids[k] for k in np.argsort(codes, kind="stable")] == sorted(ids)


# --- every route to the best ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("width", [4, 5, 64])
def test_dense_tiles_in_any_share_and_precision_propose_the_same(dtype: type, width: int) -> None:
    X, u = problem(7, whole=True, n=40, d=17)
    tiles = dense_tiles(17, width)
    # Whole numbers tie at every rank; very uneven weights leave the small products to rounding.
    for dual in (u, np.concatenate(([1e-3, -2.5, 1e3], u[3:]))):
        expected = products_only(best(everything(X, dual), 10**6))
        for B in (*range(1, 30), 200):
            shares = [dense_pairs(X, dual, np.arange(17), MAP, B, tiles=share, dtype=dtype) for share in (tiles[::2], tiles[1::2]) if share]
            assert as_list(merge_top_pairs(shares, B)) == expected[:B]
        bar = abs(expected[9][1])
        reached = [candidate for candidate in expected if abs(candidate[1]) >= bar]
        assert as_list(dense_pairs(X, dual, np.arange(17), MAP, 200, threshold=bar, dtype=dtype)) == reached


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_head_and_fallback_agree_in_any_ranges_with_and_without_bounds(whole: bool, dtype: type) -> None:
    X, u = problem(11, whole, n=60, d=20)
    X = X.astype(dtype)
    block, ids = sp.csc_array(X), ranked_ids(X)
    expected = products_only(best(everything(X, u), 10**6))
    bound = pair_bounds(block, u, row_weight(u, row_max_abs(block))).bound[ids]
    gathered = sp.csc_array(block[:, ids])
    for B in (1, 6, 500):
        assert as_list(head_pairs(gathered, u, ids, MAP, B)) == expected[:B]
        assert as_list(head_pairs(block, u, ids, MAP, B, columns=ids)) == expected[:B]
        for limits in (None, bound):
            edges = [0, 1, 7, 8, len(ids)]
            parts = [fallback_pairs(block, u, ids, MAP, B, span, columns=ids, bound=limits) for span in pairwise(edges)]
            assert as_list(merge_top_pairs(parts[::-1], B)) == expected[:B]
        early = head_pairs(block, u, ids[:6], MAP, B, columns=ids[:6])
        late = head_pairs(block, u, ids, MAP, B, columns=ids, done=6)
        assert as_list(merge_top_pairs([late, early], B)) == expected[:B]
    bar = abs(expected[5][1])
    reached = [candidate for candidate in expected if abs(candidate[1]) >= bar]
    assert as_list(head_pairs(gathered, u, ids, MAP, 500, threshold=bar)) == reached
    assert as_list(fallback_pairs(gathered, u, ids, MAP, 500, (0, len(ids)), bound=bound, threshold=bar)) == reached


def test_a_column_whose_bound_stays_below_the_bar_is_left_out() -> None:
    X, u = problem(11, whole=False, n=60, d=20)
    block, ids = sp.csc_array(X), ranked_ids(X)
    (pair, value), place = products_only(best(everything(X, u), 10**6))[0], np.argsort(ids)
    late = max(place[list(pair)])
    for share, found in ((0.6, []), (1.0, [(pair, value)])):
        bound = np.full(20, np.inf)
        bound[late] = share * abs(value) / MAP.product
        parts = fallback_pairs(block, u, ids, MAP, 500, (late, late + 1), columns=ids, bound=bound, threshold=abs(value))
        assert as_list(parts) == found


@pytest.mark.parametrize("height", [1, 7, 64, 1000])
def test_row_blocks_of_the_head_do_not_change_a_bit(height: int) -> None:
    X, u = problem(3, whole=False, n=300, d=9)
    part = pairs_sparse._slices(sp.csc_array(X), ranked_ids(X))
    triangles = [np.zeros(36), np.zeros(36)]
    for triangle, rows in zip(triangles, (300, height), strict=True):
        pairs_sparse._head(*part, u, rows, 0, triangle)
    assert np.array_equal(*triangles) and np.any(triangles[0])


def test_fallback_leaves_its_sums_at_zero() -> None:
    # Three frequent columns and many with two entries: both ways of emitting a column's sums are used.
    rng = np.random.default_rng(5)
    X = np.zeros((200, 90))
    X[:, :3] = rng.normal(size=(200, 3))
    X[rng.integers(0, 200, 174), np.repeat(np.arange(3, 90), 2)] = rng.normal(size=174)
    u, ids = rng.normal(size=200), ranked_ids(X)
    part, rows = pairs_sparse._slices(sp.csc_array(X), ids), sp.csr_array(X[:, ids])
    by_row = rows.indptr.astype(np.int64), rows.indices.astype(np.uint32), rows.data
    sums = np.zeros(len(ids))
    expected = products_only(best(everything(X, u, PairMap(2.0**-0.5, 0.0)), 10**6))
    for _ in range(2):
        heap = pairs_sparse.Heap.empty(1000)
        size = pairs_sparse._by_column(tuple(part), u, by_row, (0, len(ids)), np.zeros(0), ids, 1.0, 0.0, sums, *heap)
        assert not sums.any()
        assert [tuple(pair) for pair in decode(heap.top(size).ids).tolist()] == [pair for pair, _ in expected]


@FEW
@given(st.integers(0, 10**6), st.lists(st.integers(0, 13), max_size=4), st.booleans(), st.randoms())
def test_stripes_find_linear_and_square_coordinates_in_any_order(seed: int, cuts: list[int], sparse: bool, random) -> None:
    X, u = problem(seed, whole=True)
    edges = sorted({0, 13, *cuts})
    weight = row_weight(u, np.maximum.reduce([row_max_abs(X[:, a:b]) for a, b in pairwise(edges)]))
    tops = []
    for a, b in pairwise(edges):
        bounds = pair_bounds(sp.csc_array(X[:, a:b]), u, weight) if sparse else dense_bounds(X[:, a:b], u)
        tops.append(coordinate_top(bounds, a, MAP, 9))
    random.shuffle(tops)
    singles = [candidate for candidate in everything(X, u) if candidate not in products_only([candidate])]
    assert as_list(merge_top_pairs(tops, 9)) == best(singles, 9)


# --- bounds and screening ---------------------------------------------------------------------------------------------------------


@FEW
@given(st.integers(0, 10**6), st.booleans())
def test_bounds_hold_and_survivors_keep_ties(seed: int, whole: bool) -> None:
    X, u = problem(seed, whole)
    block = sp.csc_array(X)
    bounds = pair_bounds(block, u, row_weight(u, row_max_abs(block)))
    assert np.array_equal(bounds.linear, correlations(X, u))
    assert np.array_equal(bounds.square, dense_bounds(X, u).square)
    largest = np.zeros(13)
    for (i, j), value in products_only(everything(X, u)):
        largest[[i, j]] = np.maximum(largest[[i, j]], abs(value))
    assert np.all(bounds.bound * MAP.product * (1 + 1e-12) >= largest)
    for bar in np.unique(largest[largest > 0]):
        assert set(np.flatnonzero(largest >= bar)) <= set(survivors(bounds.bound, MAP, float(bar)))


def test_bounds_allow_for_their_own_rounding() -> None:
    # The first column is the largest of every row and all signs agree: without rounding each bound would be reached.
    rng = np.random.default_rng(0)
    X = np.outer(rng.random(500), np.concatenate(([1.0], rng.random(30))))
    u = rng.random(500)
    bounds = pair_bounds(sp.csc_array(X), u, row_weight(u, row_max_abs(X)))
    exact = [abs(value) for (i, j), value in everything(X, u, PairMap(1.0, 0.0)) if i == 0 and j > 0]
    assert np.all(bounds.bound[1:] * PairMap(1.0, 0.0).product >= exact)
    assert np.allclose(bounds.bound[1:] * PairMap(1.0, 0.0).product, exact, rtol=1e-12)


def test_a_bound_that_is_reached_exactly_survives() -> None:
    X = np.ones((5, 4))
    block, u = sp.csc_array(X), np.full(5, 0.1)
    bounds = pair_bounds(block, u, row_weight(u, row_max_abs(block)))
    top = fallback_pairs(block, u, np.arange(4), PairMap(1.0, 0.0), 3, (0, 4), bound=bounds.bound)
    assert survivors(bounds.bound, PairMap(), float(top.keys[0])).size == 4
    assert top.ids.tolist() == [[0, 1], [0, 2], [0, 3]] and np.unique(top.keys).size == 1


def test_products_are_counted() -> None:
    X, u = problem(2, whole=True, n=50, d=12)
    ids = ranked_ids(X)
    filled = (X[u != 0][:, ids] != 0).astype(int)
    expected = [int((row[: k + 1].sum() - 1) * row[k]) for row in filled for k in range(12) if row[k]]
    assert expected_products(sp.csc_array(X), u, columns=ids) == sum(expected)
    first = [int((row[: k + 1].sum() - 1) * row[k]) for row in filled for k in range(5) if row[k]]
    assert expected_products(sp.csc_array(X), u, columns=ids, done=5) == sum(expected) - sum(first)


# --- edges ------------------------------------------------------------------------------------------------------------------------


def test_frequency_rank_breaks_ties_by_id() -> None:
    counts = np.array([3, 0, 5, 3, 5, 1, 3], np.uint32)
    assert most_frequent(counts, 10).tolist() == [2, 4, 0, 3, 6, 5]
    for K in range(7):
        assert most_frequent(counts, K).tolist() == [2, 4, 0, 3, 6, 5][:K]
    assert by_frequency(np.array([6, 5, 2]), counts[[6, 5, 2]]).tolist() == [2, 6, 5]
    assert most_frequent(np.zeros(3, np.uint32), 2).tolist() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X, u: PairMap(gamma=0.0), "gamma is 0.0"),
        (lambda X, u: PairMap(coef0=-1.0), "coef0 is -1.0"),
        (lambda X, u: encode(np.array([[0, 2**31 - 1]])), "feature 2147483647 is out of range"),
        (lambda X, u: head_pairs(X, u, np.arange(13), MAP, 0), "B = 0"),
        (lambda X, u: head_pairs(X, u[:-1], np.arange(13), MAP, 1), "the 24 rows of X"),
        (lambda X, u: dense_pairs(X.toarray(), np.full(24, np.nan), np.arange(13), MAP, 1), "not finite"),
        (lambda X, u: head_pairs(X, u, np.arange(4), MAP, 1), "ids has 4 entries; it must name each of the 13 columns"),
        (lambda X, u: pair_bounds(X, u, np.full(24, np.inf)), r"weight\[0\] is not finite"),
        (lambda X, u: pair_bounds(X.toarray(), u, u), "dense"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    X, u = problem(0, whole=True)
    with pytest.raises(ValueError, match=message):
        call(sp.csc_array(X), u)

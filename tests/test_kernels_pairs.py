"""Degree-2 coordinates: the map, and every route to the best of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels import pairs_sparse
from gramplane.kernels.pair_search import PairLimits, pair_stats, select_pairs
from gramplane.kernels.pairs import (
    PairMap,
    TooManyProducts,
    TopPairs,
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
from gramplane.kernels.pairs_dense import dense_bounds, dense_pairs, dense_tiles
from gramplane.kernels.pairs_sparse import expected_products, fallback_pairs, head_pairs
from gramplane.kernels.scores import correlations
from tests.support.oracles.selection import Ranked, best, ordered_pairs

FEW = settings(max_examples=25, deadline=None)
MAP = PairMap(gamma=0.5, coef0=2.0)
LIMITS = [PairLimits(), PairLimits(4, 8), PairLimits(2, 5), PairLimits(1, 2), PairLimits(9, 3)]


def problem(seed: int, whole: bool, n: int = 24, d: int = 13) -> tuple[np.ndarray, np.ndarray]:
    """Columns of very uneven frequency; whole numbers tie often."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, d)) * (rng.random((n, d)) < 0.9 / (1 + np.arange(d) / 3))
    X = X[:, rng.permutation(d)].astype(np.float64)
    u = rng.integers(-2, 3, n).astype(np.float64)
    return (X, u) if whole else (X * rng.normal(size=(n, d)), u * rng.normal(size=n))


def everything(X: np.ndarray, u: np.ndarray, pair_map: PairMap = MAP) -> Ranked:
    return ordered_pairs(X, u, pair_map.linear, pair_map.square, pair_map.product)


def as_list(top: TopPairs) -> Ranked:
    assert np.array_equal(top.keys, np.abs(top.values))
    return [((int(a), int(b)), float(v)) for (a, b), v in zip(top.ids, top.values, strict=True)]


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


def test_columns_of_chosen_coordinates_have_their_scores_as_correlations() -> None:
    X, u = problem(1, whole=False)
    top, _ = select_pairs(sp.csc_array(X), u, MAP, 40)
    features = np.unique(top.ids[top.ids >= 0])
    for block in (X[:, features], sp.csc_array(X[:, features]), sp.csc_array(X[:, features].astype(np.float32))):
        Z = pair_columns(block, features, top.ids, MAP)
        assert np.allclose(correlations(Z, u), top.values, rtol=1e-12 if block.dtype == np.float64 else 1e-5)
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


@FEW
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 60), st.sampled_from(LIMITS))
def test_sparse_search_equals_full_enumeration_to_the_bit(seed: int, whole: bool, B: int, limits: PairLimits) -> None:
    X, u = problem(seed, whole)
    top, report = select_pairs(sp.csc_array(X), u, MAP, B, limits=limits)
    assert as_list(top) == best(everything(X, u), B)
    assert report.n_survivors <= 13 and report.n_fallback <= report.n_survivors


@FEW
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 60))
def test_dense_search_equals_full_enumeration_to_the_bit(seed: int, whole: bool, B: int) -> None:
    X, u = problem(seed, whole)
    expected = best(everything(X, u), B)
    assert as_list(select_pairs(X, u, MAP, B)[0]) == expected
    assert as_list(select_pairs(np.asfortranarray(X), u, MAP, B)[0]) == expected


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
        size = pairs_sparse._by_column(*part, u, *by_row, 0, len(ids), np.zeros(0), ids, 1.0, 0.0, sums, *heap)
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
    top, _ = select_pairs(block, u, PairMap(1.0, 0.0), 3, limits=PairLimits(2, 2))
    assert survivors(bounds.bound, PairMap(), float(top.keys[0])).size == 4
    assert top.ids.tolist() == [[0, 1], [0, 2], [0, 3]] and np.unique(top.keys).size == 1


def test_screening_leaves_rare_features_out() -> None:
    rng = np.random.default_rng(0)
    popularity = 1.0 / (np.arange(3000) + 5.0)
    columns = np.searchsorted(np.cumsum(popularity) / popularity.sum(), rng.random(60_000))
    X = sp.csc_array((np.ones(60_000), (rng.integers(0, 2000, 60_000), columns)), shape=(2000, 3001))
    X.sum_duplicates()
    u = np.where(rng.random(2000) < 0.5, 1.0, -1.0)
    top, report = select_pairs(X, u, MAP, 20, limits=PairLimits(head_start=64))
    assert report.n_survivors < 1500 and report.n_fallback == 0 and report.threshold > 0
    hinted, _ = select_pairs(X, u, MAP, 20, limits=PairLimits(head_start=report.head))
    forced, other = select_pairs(X, u, MAP, 20, limits=PairLimits(head_start=16, max_head=64))
    assert other.n_fallback > 0
    assert as_list(top) == as_list(hinted) == as_list(forced)


def test_products_are_counted_and_the_budget_refuses_by_name() -> None:
    X, u = problem(2, whole=True, n=50, d=12)
    ids = ranked_ids(X)
    filled = (X[u != 0][:, ids] != 0).astype(int)
    expected = [int((row[: k + 1].sum() - 1) * row[k]) for row in filled for k in range(12) if row[k]]
    assert expected_products(sp.csc_array(X), u, columns=ids) == sum(expected)
    first = [int((row[: k + 1].sum() - 1) * row[k]) for row in filled for k in range(5) if row[k]]
    assert expected_products(sp.csc_array(X), u, columns=ids, done=5) == sum(expected) - sum(first)
    with pytest.raises(TooManyProducts, match=r"features survive the screening and form .* products; the budget is 3"):
        select_pairs(sp.csc_array(X), u, MAP, 50, limits=PairLimits(2, 4, budget=3))
    with pytest.raises(TooManyProducts, match=r"12 dense features form 3\.3e"):
        select_pairs(X, u, MAP, 50, limits=PairLimits(budget=3))


# --- edges ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("coef0", [0.0, 1.0])
def test_fewer_coordinates_than_asked_for(coef0: float) -> None:
    for d in (1, 2, 3):
        X = np.zeros((4, d))
        X[:, 0] = [1.0, 2.0, 0.0, -1.0]
        u = np.array([1.0, 1.0, 1.0, 0.5])
        expected = best(everything(X, u, PairMap(1.0, coef0)), 10)
        for block in (X, sp.csc_array(X)):
            assert as_list(select_pairs(block, u, PairMap(1.0, coef0), 10)[0]) == expected
            assert select_pairs(block, np.zeros(4), PairMap(), 3)[0].ids.shape == (0, 2)
    assert len(select_pairs(sp.csc_array((4, 3)), np.ones(4), MAP, 2)[0].keys) == 0


def test_duplicate_columns_tie_and_the_lower_pair_wins() -> None:
    # All columns full and equally frequent: nothing but the ids tells a column from its copy.
    X = np.random.default_rng(8).normal(size=(30, 9))
    u = np.random.default_rng(9).normal(size=30)
    X = np.hstack([X, X[:, [0, 4]]])
    for block in (X, sp.csc_array(X)):
        top, _ = select_pairs(block, u, MAP, 500)
        found = {(int(a), int(b)): (place, key) for place, ((a, b), key) in enumerate(zip(top.ids, top.keys, strict=True))}
        for original, copy in ((0, 9), (4, 10)):
            for j in set(range(9)) - {original}:
                first, second = found[min(original, j), max(original, j)], found[j, copy]
                assert first[1] == second[1] and first[0] < second[0]


def test_tiny_values_are_found_by_the_dense_search_too() -> None:
    X = np.array([[1e-170, 1.0, 3e-170], [0.0, 2.0, 1e-170]])
    expected = best(everything(X, np.ones(2)), 9)
    for block in (X, sp.csc_array(X)):
        assert as_list(select_pairs(block, np.ones(2), MAP, 9)[0]) == expected
    assert ((0, 1), MAP.product * 1e-170) in expected


def test_stored_zeros_and_stats_given_change_nothing() -> None:
    X, u = problem(4, whole=True)
    block = sp.csc_array(X)
    padded = sp.csc_array(X + 100.0 * (X == 0))
    padded.data[padded.data == 100.0] = 0.0
    stats = pair_stats(block)
    expected = as_list(select_pairs(block, u, MAP, 30)[0])
    assert as_list(select_pairs(padded, u, MAP, 30)[0]) == expected
    assert as_list(select_pairs(block, u, MAP, 30, stats)[0]) == expected
    assert np.array_equal(row_max_abs(X), row_max_abs(padded)) and np.array_equal(stats.counts, pair_stats(padded).counts)


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
        (lambda X, u: select_pairs(X, u, MAP, 0), "B = 0"),
        (lambda X, u: select_pairs(X, u[:-1], MAP, 1), "the 24 rows of X"),
        (lambda X, u: select_pairs(X, np.full(24, np.nan), MAP, 1), "not finite"),
        (lambda X, u: select_pairs(X, np.full(24, 1e308), MAP, 1), "not finite"),
        (lambda X, u: select_pairs(X.toarray() * 1e200, u, MAP, 1), "overflow|not finite"),
        (lambda X, u: head_pairs(X, u, np.arange(4), MAP, 1), "ids has 4 entries; it must name each of the 13 columns"),
        (lambda X, u: pair_bounds(X, u, np.full(24, np.inf)), r"weight\[0\] is not finite"),
        (lambda X, u: pair_bounds(X.toarray(), u, u), "dense"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    X, u = problem(0, whole=True)
    with pytest.raises(ValueError, match=message):
        call(sp.csc_array(X), u)

"""Correlations, selection of the B largest, and column statistics."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.features import rows_at_hand, scores
from gramplane.kernels.features.scores import (
    TopB,
    accumulate,
    apply_scaling,
    correlations,
    correlations_many,
    merge_top,
    select_sparse,
    top_b,
)
from gramplane.kernels.features.views import column_counts, column_norm1, dense_view, flat
from tests.support.oracles.selection import best, ordered_correlations

FEW = settings(max_examples=40, deadline=None)


def integers(seed: int, n: int = 12, d: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """Small integers with many zeros: exact sums, many ties."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, (n, d)) * (rng.random((n, d)) < 0.4)
    return X.astype(np.float64), rng.integers(-2, 3, n).astype(np.float64)


def reals(n: int, d: int, dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n * 1000 + d)
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    return X, rng.normal(size=n) * (rng.random(n) < 0.7)


def forms(X: np.ndarray) -> dict[str, np.ndarray | sp.csc_array]:
    """The same columns in every form a block may have."""
    wide = np.zeros((X.shape[0], X.shape[1] + 5), X.dtype)
    wide[:, 2 : 2 + X.shape[1]] = X
    tall = np.asfortranarray(np.vstack([X, X]))
    fixed = X.copy()
    fixed.flags.writeable = False
    wide_index = sp.csc_array(X)
    wide_index.indices, wide_index.indptr = wide_index.indices.astype(np.int64), wide_index.indptr.astype(np.int64)
    return {
        "rows": np.ascontiguousarray(X),
        "columns": np.asfortranarray(X),
        "strip": wide[:, 2 : 2 + X.shape[1]],
        "rows of a column-major array": tall[: X.shape[0]],
        "every second": np.repeat(X, 2, axis=1)[:, ::2],
        "read-only": fixed,
        "csc": sp.csc_array(X),
        "csc, 64-bit indices": wide_index,
    }


def as_list(top: TopB) -> list[tuple[tuple[int, ...], float]]:
    assert np.array_equal(top.keys, np.abs(top.values))
    return [((int(j),), float(v)) for j, v in zip(top.ids, top.values, strict=True)]


def named(c: np.ndarray) -> list[tuple[tuple[int, ...], float]]:
    return [((j,), float(v)) for j, v in enumerate(c)]


def same(a: TopB, b: TopB) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


# --- correlations -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 9), (37, 1), (37, 22), (9, scores.TILE + 2)])
def test_correlations_are_the_ordered_sum_to_the_bit_in_every_form(n: int, d: int, dtype: type) -> None:
    X, u = reals(n, d, dtype)
    expected = ordered_correlations(X, u)
    for name, block in forms(X).items():
        assert np.array_equal(correlations(block, u), expected), name


def test_other_number_types_are_read_as_float64() -> None:
    X, u = integers(0)
    for dtype in (np.int8, np.int64, np.float16, ">f4", ">f8", bool):
        expected = ordered_correlations(X.astype(dtype).astype(np.float64), u)
        assert np.array_equal(correlations(X.astype(dtype), u), expected), dtype
        if dtype not in (np.float16, ">f4", ">f8"):
            assert np.array_equal(correlations(sp.csc_array(X.astype(dtype)), u), expected), dtype


@pytest.mark.parametrize("m", [1, 2, 4, 7])
def test_several_duals_give_the_bits_of_one(m: int) -> None:
    X, _ = reals(61, 33)
    U = np.random.default_rng(m).normal(size=(m, 61))
    U[0, 5:20] = 0.0
    for name, block in forms(X).items():
        many = correlations_many(block, U)
        assert all(np.array_equal(many[a], correlations(block, U[a])) for a in range(m)), name


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_at_hand_give_the_bits_of_the_whole_array(monkeypatch, m: int, dtype: type) -> None:
    X, _ = reals(83, 35, dtype)
    rng = np.random.default_rng(2)
    copied: list[int] = []
    copy = rows_at_hand.RowsAtHand._copy
    monkeypatch.setattr(rows_at_hand.RowsAtHand, "_copy", lambda self, new: (copied.append(len(new)), copy(self, new))[1])
    for name, block in forms(X).items():
        if isinstance(block, np.ndarray):
            at_hand, copied[:] = rows_at_hand.RowsAtHand(block, 35), []
            # All rows, few, the same with some more, none, as many others as there is no room for, and the first again.
            for rows in (range(83), range(0, 83, 9), range(0, 83, 6), range(0), range(1, 40, 2), range(0, 83, 9)):
                U = np.zeros((m, 83))
                U[:, rows] = rng.normal(size=(m, len(rows)))
                U[0, :30] = 0.0
                assert np.array_equal(at_hand.correlations(U), correlations_many(block, U)), name
            assert bool(copied) == (block.strides[0] == block.itemsize), name


@FEW
@given(st.lists(st.integers(0, 50), max_size=6), st.booleans(), st.integers(1, 3))
def test_row_chunks_carry_the_sums_on(cuts: list[int], sparse: bool, m: int) -> None:
    X, _ = reals(50, 9)
    U = np.random.default_rng(m).normal(size=(m, 50))
    edges = sorted({0, 50, *cuts})
    c = np.zeros((m, 9))
    for lo, hi in pairwise(edges):
        accumulate(c, sp.csc_array(X[lo:hi]) if sparse else X[lo:hi], U[:, lo:hi])
    assert np.array_equal(c, correlations_many(X, U))


def test_known_active_rows_change_nothing() -> None:
    X, u = reals(40, 12)
    for block in forms(X).values():
        assert np.array_equal(correlations(block, u, np.flatnonzero(u)), correlations(block, u))


def test_removing_a_row_without_weight_changes_nothing() -> None:
    X, u = reals(40, 12)
    u[7] = 0.0
    kept = np.arange(40) != 7
    for name in forms(X):
        assert np.array_equal(correlations(forms(X)[name], u), correlations(forms(X[kept])[name], u[kept])), name


def test_blocks_are_read_where_they_lie() -> None:
    X, _ = reals(40, 12)
    for name in ("rows", "columns", "strip", "rows of a column-major array", "read-only"):
        block = forms(X)[name]
        assert isinstance(block, np.ndarray)
        assert np.shares_memory(dense_view(block).flat, block), name
        assert dense_view(block).flat.flags.writeable, name
    data = np.arange(5.0)
    data.flags.writeable = False
    assert np.shares_memory(flat(data), data)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)])
def test_empty_blocks(shape: tuple[int, int]) -> None:
    for block in (np.zeros(shape), sp.csc_array(shape)):
        assert np.array_equal(correlations(block, np.zeros(shape[0])), np.zeros(shape[1]))


# --- the B largest ----------------------------------------------------------------------------------------------------------------


@FEW
@given(st.lists(st.integers(-3, 3), max_size=40), st.integers(1, 12), st.integers(0, 3), st.integers(0, 10**12))
def test_top_b_is_the_full_sort(numbers: list[int], B: int, threshold: int, offset: int) -> None:
    c = np.array(numbers, dtype=np.float64)
    expected = [((j + offset,), v) for (j,), v in best(named(c), B, threshold)]
    assert as_list(top_b(np.abs(c), c, B, offset, threshold=threshold)) == expected
    ids = np.random.default_rng(len(numbers)).permutation(len(numbers))
    listed = best([((int(j),), float(v)) for j, v in zip(ids, c, strict=True)], B, threshold)
    assert as_list(top_b(np.abs(c), c, B, ids, threshold=threshold)) == listed


def full_pass(X, u, B, offset=0, scale=None, shift=None, threshold=0.0) -> TopB:
    """The B largest of all columns of a dense stripe."""
    c = apply_scaling(correlations(X, u), u, scale, shift)
    return top_b(np.abs(c), c, B, offset, threshold=threshold)


@FEW
@given(st.integers(0, 99), st.lists(st.integers(0, 30), max_size=5), st.integers(1, 9), st.randoms())
def test_any_stripes_and_any_merge_tree_give_the_same_list(seed: int, cuts: list[int], B: int, random) -> None:
    X, u = integers(seed)
    edges = sorted({0, 30, *cuts})
    tops = [full_pass(X[:, a:b], u, B, offset=a) for a, b in pairwise(edges)]
    while len(tops) > 1:
        random.shuffle(tops)
        tops = [*tops[2:], merge_top(tops[:2], B)]
    assert as_list(tops[0]) == best(named(X.T @ u), B)


def test_a_duplicate_column_loses_to_the_lower_index() -> None:
    X, u = reals(30, 4)
    X = X[:, [0, 1, 2, 3, 2, 1]]
    for name, block in forms(X).items():
        c = correlations(block, u)
        assert c[1] == c[5] and c[2] == c[4], name
        ids = top_b(np.abs(c), c, 6).ids.tolist()
        assert ids.index(1) + 1 == ids.index(5) and ids.index(2) + 1 == ids.index(4), name


def test_merging_nothing_gives_an_empty_list() -> None:
    assert [len(part) for part in merge_top([], 3)] == [0, 0, 0]
    assert len(top_b(np.zeros(4), np.zeros(4), 3).ids) == 0


# --- the pruned scan --------------------------------------------------------------------------------------------------------------


@FEW
@given(st.integers(0, 10**6), st.integers(1, 40), st.lists(st.integers(-5, 60), max_size=8), st.booleans(), st.booleans(), st.booleans())
def test_pruned_scan_equals_the_full_pass(seed: int, B: int, first: list[int], scaled: bool, shifted: bool, whole: bool) -> None:
    X, u = integers(seed) if whole else reals(15, 30)
    rng = np.random.default_rng(seed)
    s = rng.choice([-2.0, 0.0, 0.5, 1.0], 30) if scaled else None
    mu = rng.choice([-1.0, 0.0, 2.0], 30) if shifted else None
    block = sp.csc_array(X)
    full = full_pass(X, u, B, offset=7, scale=s, shift=mu)
    c = (X.T @ u - (0.0 if mu is None else mu) * u.sum()) * (1.0 if s is None else s)
    if whole:
        assert as_list(full) == [((j + 7,), v) for (j,), v in best(named(c), B)]
    for threshold in {0.0, float(full.keys[-1]) if full.keys.size else 0.0}:
        pruned = select_sparse(
            block, u, column_norm1(block), B, offset=7, scale=s, shift=mu, first=np.array(first, int), threshold=threshold
        )
        assert same(pruned, full)


def test_a_threshold_keeps_exactly_the_keys_that_reach_it() -> None:
    X, u = integers(3)
    norm1 = column_norm1(sp.csc_array(X))
    for threshold in (1.0, 2.0, 3.0, 100.0):
        expected = best(named(X.T @ u), 30, threshold)
        assert as_list(select_sparse(sp.csc_array(X), u, norm1, 30, threshold=threshold)) == expected
        assert as_list(full_pass(X, u, 30, threshold=threshold)) == expected


def test_columns_below_the_bound_are_not_read_and_ties_are() -> None:
    # Every column reaches its bound exactly: all tie, so the scan may skip none, although it starts at the far end.
    X = np.ones((6, 8))
    norm1 = column_norm1(sp.csc_array(X))
    u = np.full(6, 3.0)
    assert select_sparse(sp.csc_array(X), u, norm1, 2, first=np.array([6, 7])).ids.tolist() == [0, 1]
    # A column that would spoil the result if it were read lies strictly below the bar.
    block = sp.csc_array(np.array([[5.0, 1.0, 4.0], [5.0, 1.0, 4.0]]))
    bounds = column_norm1(block)
    block.data[2] = np.nan
    assert select_sparse(block, np.ones(2), bounds, 1).ids.tolist() == [0]
    with pytest.raises(ValueError, match="candidate 1 is not finite"):
        select_sparse(block, np.ones(2), bounds, 1, first=np.array([1]))


def test_scaled_bounds_survive_float32_underflow() -> None:
    block = sp.csc_array(np.array([[1e-30, 0.0], [0.0, 1e-30]]))
    s = np.array([1e-30, 1e-20])
    assert select_sparse(block, np.ones(2), column_norm1(block), 2, scale=s).ids.tolist() == [1, 0]


def test_no_weight_at_all_selects_nothing() -> None:
    X, _ = integers(1)
    assert select_sparse(sp.csc_array(X), np.zeros(12), column_norm1(sp.csc_array(X)), 3).ids.size == 0


# --- column statistics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_column_statistics(dtype: type) -> None:
    X, _ = reals(23, 40, dtype)
    X[:, 3], X[:, 4], X[:, 5] = 0, 2, -1
    wide = X.astype(np.float64)
    for name, block in forms(X).items():
        assert np.array_equal(column_counts(block), (X != 0).sum(axis=0)), name
    norm1 = column_norm1(sp.csc_array(X))
    assert norm1.dtype == np.float32
    assert np.allclose(norm1, np.abs(wide).sum(axis=0), rtol=1e-6)
    for j in range(40):
        assert Fraction(float(norm1[j])) >= sum((Fraction(abs(float(v))) for v in X[:, j]), Fraction(0))


def test_stored_zeros_are_not_counted() -> None:
    block = sp.csc_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(2, 1))
    assert column_counts(block).tolist() == [1]


# --- bad input --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: correlations(X, np.zeros(3)), r"u has shape \(3,\); its last dimension must match the 12 rows"),
        (lambda X: correlations(X, np.full(12, np.nan)), r"u\[0\] is not finite"),
        (lambda X: correlations_many(X, np.where(np.eye(2, 12) > 0, np.inf, 0.0)), r"u\[0\] is not finite"),
        (lambda X: accumulate(np.zeros(30, np.float32), X, np.zeros(12)), "must be contiguous float64"),
        (lambda X: accumulate(np.zeros(29), X, np.zeros(12)), r"of shape \(1, 30\)"),
        (lambda X: top_b(np.ones(3), np.ones(3), 0), "B = 0"),
        (lambda X: top_b(np.array([1.0, np.nan]), np.ones(2), 1, 5), "candidate 6 is not finite"),
        (lambda X: top_b(np.array([1.0, np.inf]), np.ones(2), 1, np.array([3, 9])), "candidate 9 is not finite"),
        (lambda X: select_sparse(sp.csc_array(X), np.ones(12), np.ones(5), 1), "norm1 has 5 entries"),
        (lambda X: full_pass(X, np.ones(12), 1, scale=np.ones(5)), "scale has 5 entries"),
        (lambda X: full_pass(np.full((2, 1), 1e200), np.full(2, 1e200), 1), "candidate 0 is not finite"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(integers(0)[0])


@pytest.mark.parametrize("block", [sp.csr_array(np.eye(3)), np.zeros(3), [[1.0]], "text"])
def test_other_containers_are_refused(block: object) -> None:
    with pytest.raises(TypeError, match="X "):
        correlations(block, np.zeros(3))  # type: ignore[arg-type]

"""Matrices that were handed over: one look packs them as a bank does, and sees what is wrong with them."""

import numpy as np
import pytest

from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.bank.given_matrices import inspect_matrix
from gramplane.kernels.bank.loops import count_packed


def symmetric(n, dtype, seed=0):
    A = np.random.default_rng(seed).normal(size=(n, n))
    return (A + A.T).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("n", [1, 5, 64, 127, 128, 130, 300])
def test_it_packs_as_a_bank_does_and_tells_magnitude_and_asymmetry(n, dtype):
    A = symmetric(n, dtype)
    A[0, -1] += 1
    for given in (A, np.asfortranarray(A), A[::-1, ::-1], np.repeat(A, 2, axis=1)[:, ::2]):
        out = np.full(count_packed(n), np.nan, np.float32)
        seen = inspect_matrix(given, out)
        np.testing.assert_array_equal(out, PackedBank.from_dense(np.ascontiguousarray(given)[None]).values[0])
        exact = given.astype(np.float64)
        assert seen.greatest == np.abs(exact).max()
        assert seen.asymmetry == pytest.approx(np.abs(exact - exact.T).max(), rel=1e-5, abs=1e-6)
        assert inspect_matrix(given) == seen


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [(0, 0), (3, 150), (150, 3), (199, 199), (64, 63)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_entry_that_is_not_finite_is_seen_wherever_it_stands(place, wrong, dtype):
    A = symmetric(200, dtype)
    A[place] = wrong
    assert np.isnan(inspect_matrix(A).greatest)
    A[place[::-1]] = wrong
    assert np.isnan(inspect_matrix(A, np.empty(count_packed(200), np.float32)).greatest)


@pytest.mark.parametrize("place", [(0, 199), (199, 0), (130, 127), (65, 64)])
def test_an_entry_that_has_no_mirror_image_is_seen(place):
    A = symmetric(200, np.float32)
    A[place] += 50.0
    assert inspect_matrix(A).asymmetry == pytest.approx(50.0, rel=1e-5)


def test_room_of_another_size_is_refused():
    with pytest.raises(ValueError, match="must be"):
        inspect_matrix(symmetric(5, np.float32), np.empty(7, np.float32))


@pytest.mark.parametrize("n", [2, 127, 129, 258, 300])
def test_one_entry_that_differs_in_its_last_bit_is_always_seen(n):
    A, rng = symmetric(n, np.float32), np.random.default_rng(n)
    assert inspect_matrix(A) == (np.abs(A).max(), 0.0)
    for i, j in [(0, n - 1), (n - 1, 0), (n - 1, n - 2), *rng.integers(0, n, (40, 2))]:
        if i != j:
            B = A.copy()
            B[i, j] = np.nextafter(B[i, j], np.float32(np.inf))
            assert inspect_matrix(B).asymmetry == abs(np.float64(B[i, j]) - B[j, i]) > 0, (i, j)


@pytest.mark.parametrize("move", [np.roll, lambda row, _: row[::-1]])
def test_rows_of_the_same_entries_in_another_order_are_told_apart(move):
    A = symmetric(300, np.float32)
    A[3, 140:] = move(A[3, 140:], 1)
    assert inspect_matrix(A).asymmetry == pytest.approx(np.abs(A - A.T).max(), rel=1e-6)


def test_differences_that_would_cancel_without_weights_are_seen():
    A = np.zeros((300, 300), np.float32)
    A[5, 200:204], A[200:204, 5] = (1, 2, 2, 1), (2, 1, 1, 2)
    assert inspect_matrix(A) == (2.0, 1.0)

"""Kernels written straight into a packed bank, and summed into decision values: the bits of blocks, and obvious sums."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.bank.loops import count_packed
from gramplane.kernels.grams import strips as gram_bands
from gramplane.kernels.grams.blocks import gram_block
from gramplane.kernels.grams.feature_sums import start_waves
from gramplane.kernels.grams.normalization import KernelSums, Normalization, needs_diagonal_only
from gramplane.kernels.grams.products import ProductSpec
from gramplane.kernels.grams.spec import NORMALIZATIONS, KernelSpec, as_specs, kernel_grid
from gramplane.kernels.grams.strips import has_number_kernels_only, kernel_decisions, packed_grams
from tests.support.oracles.gram import gram

MIXED = as_specs(
    [
        "rbf(gamma=0.5)[0]",
        "linear",
        "poly(degree=3)[0]",
        "rbf(gamma=0.01)",
        "laplacian(gamma=0.4)[1,2]",
        "rbf(gamma=2.0)[0]",
        "additive_gaussian(gamma=0.5)[0:2]",
        "poly(degree=2,gamma=0.2,coef0=0.0)",
        "hik[1,2]",
        "rbf(gamma=0.7)[0]",
        "chi2(gamma=0.3)",
    ],
    3,
)
"""Kernels of the same features do not stand together."""


def rows(n, d=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, d)) * 3 * (rng.random((n, d)) < 0.8)


def packed(specs, X, dtype=np.float32):
    out = np.full((len(specs), count_packed(X.shape[0])), np.nan, dtype)
    packed_grams(specs, X, out)
    return out


def wide(n, d):
    """Rows wide enough for BLAS."""
    return np.random.default_rng(1).standard_normal((n, d))


def test_waves_begin_with_cosines_and_sines_to_the_last_bits():
    """The recursions go on from them for hundreds of terms."""
    t = np.linspace(-np.pi, np.pi, 1001)
    twice, c_old, s_old, c, s = np.full((5, len(t)), np.nan)
    start_waves(t / 0.5 + 3.0, 3.0, 0.5, twice, c_old, s_old, c, s)
    for found, exact in ((twice / 2, np.cos(t)), (c_old, np.cos(t)), (s_old, -np.sin(t)), (c, 1.0), (s, 0.0)):
        np.testing.assert_allclose(found, exact, rtol=0, atol=3e-15)


# -- banks -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 127, 128, 129, 300])
def test_a_bank_holds_the_bits_of_blocks(n, dtype):
    X = rows(n)
    np.testing.assert_array_equal(packed(MIXED, X, dtype), PackedBank.from_dense(gram_block(MIXED, X, dtype=dtype), dtype).values)


@pytest.mark.parametrize("n", [1024, 1100])
def test_a_bank_of_several_tiles_holds_the_bits_of_blocks(n):
    X, specs = wide(n, 20), as_specs(["rbf(gamma=0.05)", "linear", "rbf(gamma=0.4)[3]"], 20)
    np.testing.assert_array_equal(packed(specs, X), PackedBank.from_dense(gram_block(specs, X, dtype=np.float32)).values)


@pytest.mark.parametrize("d", [20, 1100])
def test_a_bank_of_sparse_rows_holds_the_bits_of_blocks(d):
    X = sp.random_array((150, d), density=0.05, format="csr", rng=np.random.default_rng(3))
    specs = as_specs(["rbf(gamma=0.5)", "linear[0:5]", "laplacian(gamma=0.2)", "poly(degree=2)"], d)
    np.testing.assert_array_equal(packed(specs, X), PackedBank.from_dense(gram_block(specs, X, dtype=np.float32)).values)


@pytest.mark.parametrize("cached", [1, 1 << 12, 1 << 30])
def test_the_height_of_strips_changes_no_bit(cached, monkeypatch):
    X, Z, beta = rows(150), rows(140, seed=1), np.random.default_rng(0).standard_normal((1, 140))
    weights = np.ones((1, len(MIXED)))
    bank, values = packed(MIXED, X), kernel_decisions(MIXED, weights, X, Z, beta)
    monkeypatch.setattr(gram_bands, "STRIP_BYTES", cached)
    assert packed(MIXED, X).tobytes() == bank.tobytes()
    assert kernel_decisions(MIXED, weights, X, Z, beta).tobytes() == values.tobytes()


def test_a_kernel_does_not_depend_on_the_others():
    X = rows(140)
    every = packed(MIXED, X)
    for q in (0, 3, 5, 8):
        np.testing.assert_array_equal(packed([MIXED[q]], X)[0], every[q])


def test_an_overflow_is_told_with_its_rows():
    X = np.ones((200, 1))
    X[150] = X[170] = 1e25
    with pytest.raises(ValueError, match=r"kernel linear gives inf for row 150 of X and row 150 of Z; .* float32"):
        packed(as_specs(["linear"], 1), X)
    X[170] = 1e-5
    with pytest.raises(ValueError, match=r"kernel poly\(degree=9\) gives inf for row 0 of X and row 150 of Z"):
        packed(as_specs(["rbf(gamma=1.0)", "poly(degree=9)"], 1), X)


@pytest.mark.parametrize("out", [np.empty((1, 9), np.float32), np.empty((2, 6), np.float32), np.empty((4, 9), np.float32)[::2]])
def test_an_unfit_bank_is_refused(out):
    specs = as_specs(["linear", "rbf(gamma=1.0)"], 1)
    with pytest.raises(ValueError, match=r"out: shape .*, must be a C-ordered \(2, 9\)"):
        packed_grams(specs, np.ones((3, 1)), out)


def test_only_kernels_of_numbers_are_written_so():
    assert has_number_kernels_only(MIXED)
    assert not has_number_kernels_only([*MIXED, KernelSpec("spectrum", (("k", 2),))])
    assert not has_number_kernels_only([KernelSpec("callable", (("function", "operator:matmul"),))])
    assert not has_number_kernels_only([ProductSpec.of(MIXED[:2])])


@pytest.mark.parametrize("spec", [KernelSpec("linear", normalize=how, centre=centre) for how in NORMALIZATIONS for centre in (False, True)])
def test_the_diagonal_tells_a_normalisation_or_is_said_not_to(spec):
    K = gram_block([spec], wide(20, 3))[0]
    known, partly = KernelSums.of(K), KernelSums.of_diagonals(K.diagonal()[None].copy())[0]
    if not needs_diagonal_only(spec):
        # What is not known shows.
        with pytest.raises((ValueError, AssertionError)):
            np.testing.assert_equal(Normalization.of(spec, partly), Normalization.of(spec, known))
        return
    one, other = Normalization.of(spec, partly), Normalization.of(spec, known)
    assert one.scale == other.scale and one.row_mean is None and other.row_mean is None
    np.testing.assert_equal(one.diag_root, other.diag_root)


# -- decision values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machines", [1, 3])
def test_decision_values_are_the_obvious_sums(machines):
    rng = np.random.default_rng(2)
    X, Z = rows(30), rows(17, seed=4)
    weights, beta = rng.random((machines, len(MIXED))), rng.standard_normal((machines, len(Z)))
    weights[:, 2] = weights[0, 5] = 0.0
    expected = np.zeros((len(X), machines))
    for q, spec in enumerate(MIXED):
        expected += weights[:, q] * (gram(spec, X, Z) @ beta.T)
    np.testing.assert_allclose(kernel_decisions(MIXED, weights, X, Z, beta), expected, rtol=1e-11, atol=1e-11)


def test_decision_values_of_many_rows_and_columns():
    rng = np.random.default_rng(5)
    X, Z, specs = wide(300, 20), wide(1200, 20), as_specs(["rbf(gamma=0.05)", "linear", "rbf(gamma=0.1)"], 20)
    weights, beta = rng.random((2, 3)), rng.standard_normal((2, 1200))
    blocks = gram_block(specs, X, Z)
    expected = np.stack([np.tensordot(weights[m], blocks, 1) @ beta[m] for m in range(2)], axis=1)
    np.testing.assert_allclose(kernel_decisions(specs, weights, X, Z, beta), expected, rtol=1e-11, atol=1e-10)


def test_a_row_has_the_same_value_in_any_company():
    X, Z, beta = rows(200), rows(60, seed=6), np.random.default_rng(7).standard_normal((2, 60))
    weights = np.random.default_rng(8).random((2, len(MIXED)))
    whole = kernel_decisions(MIXED, weights, X, Z, beta)
    parts = [kernel_decisions(MIXED, weights, X[lo:hi], Z, beta) for lo, hi in ((0, 1), (1, 100), (100, 200))]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert kernel_decisions(MIXED, weights, X[::-1], Z, beta)[::-1].tobytes() == whole.tobytes()


def test_rows_against_themselves():
    X = rows(140)
    beta, weights = np.ones((1, 140)), np.ones((1, len(MIXED)))
    np.testing.assert_array_equal(kernel_decisions(MIXED, weights, X, X, beta), kernel_decisions(MIXED, weights, X, X.copy(), beta))


def test_no_rows_and_a_column_outside():
    specs = kernel_grid(2)
    weights = np.ones((1, len(specs)))
    assert kernel_decisions(specs, weights, np.zeros((0, 2)), np.ones((3, 2)), np.ones((1, 3))).shape == (0, 1)
    with pytest.raises(ValueError, match="column 1 is outside the data"):
        kernel_decisions(specs, weights, np.ones((2, 1)), np.ones((3, 1)), np.ones((1, 3)))

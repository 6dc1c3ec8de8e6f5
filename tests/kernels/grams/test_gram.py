"""Blocks of Gram matrices: oracles, positive semi-definiteness, symmetry, cuts into blocks, strings, callables, normalisation."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import pairwise

from gramplane.kernels.grams.blocks import gram_block, gram_diagonal
from gramplane.kernels.grams.distances import MAX_SINGLE_GAMMA, MIN_ENTRY, OCTAVE, base_kernel, plan_chain, split_gamma
from gramplane.kernels.grams.functions import kmer_counts
from gramplane.kernels.grams.normalization import KernelSums, Normalization, block_sums, kernel_sums, make_normalizations
from gramplane.kernels.grams.products import ProductSpec
from gramplane.kernels.grams.rows import DENSE_COLUMNS
from gramplane.kernels.grams.spec import NORMALIZATIONS, KernelSpec, kernel_grid
from gramplane.kernels.grams.tiles import MAX_DIRECT_COLUMNS, single_decays
from tests.support.oracles.gram import gram, normalized

ALL = [
    KernelSpec.parse(text)
    for text in (
        "linear",
        "linear[1,3]",
        "poly(degree=1)",
        "poly(degree=2)",
        "poly(degree=3)",
        "poly(degree=3,gamma=0.2,coef0=0.0)[0:3]",
        "rbf(gamma=0.01)",
        "rbf(gamma=0.02)",
        "rbf(gamma=0.03)",
        "rbf(gamma=5.0)[2]",
        "laplacian(gamma=0.1)",
        "laplacian(gamma=0.4)",
        "chi2(gamma=0.3)",
        "chi2(gamma=0.6)[0,1]",
        "hik",
        "additive_chi2",
        "additive_gaussian(gamma=0.5)",
        "additive_gaussian(gamma=2.0)[0:2]",
    )
]
WORDS = ["abab", "banana", "", "a", "nanab", "xyzzy", "abab", "äöäö€🎈"]


def positive(n, d, seed=0, density=1.0):
    rng = np.random.default_rng(seed)
    return rng.random((n, d)) * 3 * (rng.random((n, d)) < density)


def similarity(X, Z, power=1.0):
    """A callable kernel for the tests."""
    return np.asarray((X @ Z.T) ** power)


def lopsided(X, Z):
    """Not a kernel."""
    return X[:, :1] - Z[:, :1].T


def scarred(X, Z):
    """A kernel with a NaN."""
    found = X @ Z.T
    found[1, 0] = np.nan
    return found


def short(X, Z):
    """A kernel that forgets a row."""
    return (X @ Z.T)[:, :3]


# -- oracle ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [5, MAX_DIRECT_COLUMNS + 4])
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_every_kernel_equals_the_obvious_loop(d, density):
    X, Z = positive(13, d, 1, density), positive(9, d, 2, density)
    found, own = gram_block(ALL, X, Z), gram_block(ALL, X)
    for spec, block, square in zip(ALL, found, own):
        np.testing.assert_allclose(block, gram(spec, X, Z), rtol=1e-12, atol=1e-13, err_msg=str(spec))
        np.testing.assert_allclose(square, gram(spec, X), rtol=1e-12, atol=1e-13, err_msg=str(spec))


@pytest.mark.parametrize("n", [150, 1100])
def test_kernels_equal_those_of_scikit_learn(n):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, 30)), rng.standard_normal((140, 30))
    texts = ["linear", "poly(degree=3,gamma=0.1)", "rbf(gamma=0.02)", "laplacian(gamma=0.05)"]
    peers = [
        lambda A, B: pairwise.linear_kernel(A, B),
        lambda A, B: pairwise.polynomial_kernel(A, B, degree=3, gamma=0.1, coef0=1),
        lambda A, B: pairwise.rbf_kernel(A, B, gamma=0.02),
        lambda A, B: pairwise.laplacian_kernel(A, B, gamma=0.05),
    ]
    specs = [KernelSpec.parse(text) for text in texts]
    for ours, peer in zip(gram_block(specs, X, Z), peers):
        np.testing.assert_allclose(ours, peer(X, Z), rtol=1e-10, atol=1e-10)
    for ours, peer in zip(gram_block(specs, X), peers):
        np.testing.assert_allclose(ours, peer(X, X), rtol=1e-10, atol=1e-10)
    X, Z = np.abs(X), np.abs(Z)
    found = gram_block([KernelSpec.parse("chi2(gamma=0.1)")], X[:150], Z)[0]
    np.testing.assert_allclose(found, pairwise.chi2_kernel(X[:150], Z, gamma=0.1), rtol=1e-10)


@pytest.mark.parametrize(("dtype", "error"), [("float64", 1e-13), ("float32", 1e-7)])
@pytest.mark.parametrize("factor", [2.0, 4.0, 3.0])
def test_a_bank_of_widths_keeps_its_accuracy(dtype, error, factor):
    X = np.random.default_rng(3).standard_normal((130, 20)) + 5
    gammas = [0.02 * factor ** (k - 5) for k in range(10)]
    bank = gram_block([KernelSpec("rbf", (("gamma", gamma),)) for gamma in gammas], X, dtype=dtype)
    squares = np.array([[((a - b) ** 2).sum() for b in X] for a in X])
    assert bank.dtype == dtype
    for gamma, kernel in zip(gammas, bank):
        assert np.abs(kernel - np.exp(-gamma * squares)).max() <= error


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-12, 1e6), st.floats(0, 1e4))
def test_one_exponential_and_squarings_stay_near_the_exponential(gamma, distance):
    X = np.array([[0.0], [np.sqrt(distance)]])
    spec = KernelSpec("rbf", (("gamma", gamma),))
    exact = np.exp(-gamma * (X[1, 0] ** 2))
    assert gram_block([spec], X)[0, 0, 1] == pytest.approx(exact, rel=1e-13, abs=1e-30)
    # In float32 what is rounded in the argument x becomes x times that in the exponential.
    single = 6e-8 * (1.0 + 3.1 * gamma * X[1, 0] ** 2)
    assert gram_block([spec], X, dtype=np.float32)[0, 0, 1] == pytest.approx(exact, rel=1e-7 + single, abs=1e-30)


def test_exponential_is_exact_to_rounding_and_plans_are_exact():
    t = np.linspace(0, 82, 4096).reshape(4, -1)
    out = np.empty_like(t)
    base_kernel(t, 1.0, out)
    np.testing.assert_allclose(out, np.exp(-t), rtol=1e-15)
    for gamma in (1e-12, 0.3, 0.5, 1.0, 7e11):
        base, k = split_gamma(gamma)
        assert base * 2.0**k == gamma
        assert 0 <= k < OCTAVE
        assert split_gamma(2 * gamma) in ((base, k + 1), (2 * gamma, 0))


def singles(distances, gamma):
    sums, plan, n = np.atleast_2d(distances), plan_chain([gamma], [0]), np.size(distances)
    out = np.full((1, 1, n + 2), -1.0, np.float32)
    single_decays(sums, 1, n, plan.gammas, plan.rates, plan.slots, out, 0, 1, np.empty(n, np.float32))
    assert out[0, 0, 0] == out[0, 0, -1] == -1.0
    return out[0, 0, 1:-1]


@pytest.mark.parametrize("gamma", [1.0, 0.37, 1e-9, 3e7, 1.0 / MAX_SINGLE_GAMMA, MAX_SINGLE_GAMMA, 1e-200, 1e200])
def test_single_exponentials_are_right_near_one_and_near_zero(gamma):
    x = np.r_[0.0, np.geomspace(1e-12, 80.0, 5000), np.linspace(0, 3, 5000)]
    found, exact = singles(x / gamma, gamma), np.exp(-x)
    assert np.abs(found - exact).max() <= 1e-7
    np.testing.assert_allclose(found, exact, rtol=2e-5)
    assert found[0] == 1.0
    assert found.max() == 1.0


@pytest.mark.parametrize("gamma", [1e-300, 1e-60, 1e-20, 1.0, 1e20, 1e60, 1e300])
def test_single_exponentials_of_any_distance_end_in_zero(gamma):
    with np.errstate(over="ignore"):
        far = np.array([83.0, 87.0, 88.0, 100.0, 127.0, 128.0, 1e3, 1e9, 1e30, 1e60, 1e300]) / gamma
    assert (singles(far, gamma) == 0.0).all()
    assert (singles(np.array([-np.log(MIN_ENTRY) * 0.99 / gamma]), gamma) > 0.0).all()
    assert (singles(np.array([np.inf, np.nan]), gamma) == 0.0).all()
    assert (singles(np.array([0.0, 5e-324, 1e-9 / gamma]), gamma) == 1.0).all()


def test_single_exponentials_have_the_same_bits_alone_and_among_others():
    x = np.random.default_rng(4).random(301) * 90
    whole = singles(x, 0.7)
    for width in (1, 3, 7, 8, 15, 31, 33):
        assert (np.concatenate([singles(x[i : i + width], 0.7) for i in range(0, len(x), width)]) == whole).all()


# -- bits ------------------------------------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 99), st.sampled_from(["float32", "float64"]))
def test_symmetric_to_the_bit_and_positive_semidefinite(n, d, seed, dtype):
    X = positive(n, max(d, 4), seed)
    K = gram_block(ALL, X, dtype=dtype)
    assert (K.transpose(0, 2, 1) == K).all()
    eps = float(np.finfo(dtype).eps)
    for spec, kernel in zip(ALL, K.astype(np.float64)):
        assert np.linalg.eigvalsh(kernel).min() >= -50 * eps * np.trace(kernel), spec
        if spec.name in ("rbf", "laplacian", "chi2"):
            assert (np.diag(kernel) == 1.0).all()
            assert kernel.min() >= 0.0
            assert kernel.max() <= 1.0


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_cuts_into_blocks_change_no_bit_where_no_blas_is_used(data):
    d = data.draw(st.integers(4, MAX_DIRECT_COLUMNS))
    X = positive(200, d, data.draw(st.integers(0, 9)))
    _check_cuts(ALL, X, data, exact=True)


@settings(max_examples=8, deadline=None)
@given(st.data())
def test_cuts_into_blocks_agree_to_rounding_elsewhere(data):
    X = positive(300, data.draw(st.sampled_from([MAX_DIRECT_COLUMNS + 1, 50, 130])), 5)
    _check_cuts(ALL, X, data, exact=False)


def _check_cuts(specs, X, data, exact):
    a, b, c, e = (data.draw(st.integers(0, len(X) - 1)) for _ in range(4))
    a, b, c, e = min(a, b), max(a, b) + 1, min(c, e), max(c, e) + 1
    dtype = data.draw(st.sampled_from(["float32", "float64"]))
    whole = gram_block(specs, X, dtype=dtype)
    part, turned = gram_block(specs, X[a:b], X[c:e], dtype=dtype), gram_block(specs, X[c:e], X[a:b], dtype=dtype)
    rough = 1e-12 if dtype == "float64" else 3e-7
    for q, spec in enumerate(specs):
        by_blas = not exact and (spec.columns is None and spec.name in ("linear", "poly", "rbf"))
        same = np.testing.assert_array_equal if not by_blas else lambda *pair: np.testing.assert_allclose(*pair, rtol=rough, atol=rough)
        same(part[q], whole[q, a:b, c:e])
        same(turned[q], part[q].T)


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(len(ALL))), st.integers(1, len(ALL)), st.sampled_from(["float32", "float64"]))
def test_a_kernel_does_not_depend_on_which_others_are_asked_for(order, count, dtype):
    X = positive(40, 20, 7)
    whole = gram_block(ALL, X, dtype=dtype)
    chosen = order[:count]
    assert (gram_block([ALL[q] for q in chosen], X, dtype=dtype) == whole[chosen]).all()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 19), min_size=1, max_size=12), st.sampled_from(["float32", "float64"]))
def test_a_width_does_not_depend_on_the_others_of_its_chain(chosen, dtype):
    X = positive(20, 5, 3)
    bank = [KernelSpec("rbf", (("gamma", 0.003 * 2.0 ** (k - 10)),)) for k in range(20)]
    whole = np.stack([gram_block([spec], X, dtype=dtype)[0] for spec in bank])
    assert (gram_block([bank[k] for k in chosen], X, dtype=dtype) == whole[chosen]).all()


def test_permuted_rows_permute_the_kernel():
    X, order = positive(60, 7, 8), np.random.default_rng(0).permutation(60)
    assert (gram_block(ALL, X[order]) == gram_block(ALL, X)[:, order][:, :, order]).all()


def test_tiles_larger_than_one_are_written_whole():
    X = np.random.default_rng(1).standard_normal((1300, 3))
    specs = [KernelSpec.parse("rbf(gamma=0.3)"), KernelSpec.parse("poly(degree=2)")]
    K = gram_block(specs, X, dtype="float32", out=np.full((2, 1300, 1300), np.nan, np.float32))
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    assert np.abs(K[0] - np.exp(-0.3 * squares)).max() < 1e-7
    np.testing.assert_allclose(K[1], (X @ X.T + 1) ** 2, rtol=1e-5, atol=1e-5)
    assert (K.transpose(0, 2, 1) == K).all()
    assert (gram_block(specs, X[:1], X[1:], dtype="float32") == K[:, :1, 1:]).all()


def test_equal_rows_are_at_distance_zero_wherever_they_lie():
    X = np.random.default_rng(2).standard_normal((40, 70)) * 1e3 + 1e4
    K = gram_block([KernelSpec.parse("rbf(gamma=1000.0)")], X, X[::-1].copy())[0]
    assert (np.eye(40)[::-1] == K).all()


# -- forms of input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [7, DENSE_COLUMNS + 200])
def test_sparse_rows_give_the_kernels_of_dense_ones(d):
    X, Z = positive(50, d, 3, 0.05), positive(30, d, 4, 0.05)
    X[3] = Z[5] = 0.0
    specs = [*ALL, KernelSpec("rbf", (("gamma", 0.01),), tuple(range(0, d, 2)))]
    for left, right in ((X, Z), (X, None)):
        dense = gram_block(specs, left, right)
        sparse = gram_block(specs, sp.csr_array(left), None if right is None else sp.csr_array(right))
        np.testing.assert_allclose(sparse, dense, rtol=1e-12, atol=1e-12)
        if d <= DENSE_COLUMNS:
            assert (sparse == dense).all()
    wide = gram_block(specs, sp.csr_array(X))
    assert (wide == wide.transpose(0, 2, 1)).all()
    assert (gram_block(specs, sp.csr_array(X[10:25]), sp.csr_array(X)) == wide[:, 10:25]).all()


def test_other_layouts_of_the_same_rows_change_nothing():
    X = np.round(positive(40, 6, 3, 0.5), 1)
    expected = gram_block(ALL, X)
    twice = sp.csr_array((np.r_[X[0, ::-1] / 2, X[0] / 2], np.r_[5:-1:-1, 0:6], [0, 12] + [12] * 39), shape=X.shape)
    before = twice.indices.copy()
    assert (gram_block(ALL, sp.csc_matrix(X)) == expected).all()
    assert (gram_block(ALL, np.asfortranarray(X)) == expected).all()
    assert (gram_block(ALL, X.tolist(), X) == expected).all()
    assert (gram_block(ALL, twice, twice)[:, 0, 0] == expected[:, 0, 0]).all()
    assert (twice.indices == before).all()
    whole = (X * 10).astype(np.int32)
    assert (gram_block(ALL, whole) == gram_block(ALL, whole.astype(float))).all()
    assert (gram_block(ALL, X.astype(np.float32)) == gram_block(ALL, X.astype(np.float32).astype(float))).all()


@pytest.mark.parametrize("k", [1, 2, 3, 40])
def test_spectrum_kernel_counts_common_words(k):
    spec = KernelSpec("spectrum", (("k", k),))
    words = [*WORDS, "ab" * 25]
    np.testing.assert_array_equal(gram_block([spec], words)[0], gram(spec, words))
    np.testing.assert_array_equal(gram_block([spec], np.array(words), words[:3])[0], gram(spec, words, words[:3]))
    np.testing.assert_array_equal(gram_diagonal([spec], words)[0], np.diag(gram(spec, words)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("acgt"), max_size=80), min_size=1, max_size=6), st.integers(1, 70))
def test_spectrum_kernel_of_any_strings_and_lengths(words, k):
    spec = KernelSpec("spectrum", (("k", k),))
    np.testing.assert_array_equal(gram_block([spec], words)[0], gram(spec, words))
    counts = kmer_counts([np.array(words, dtype=object)], k)[0]
    np.testing.assert_array_equal(counts.sum(axis=1), [max(len(word) - k + 1, 0) for word in words])


def test_callables_are_imported_by_name():
    X, Z = positive(9, 4, 1), positive(5, 4, 2)
    name = "tests.kernels.grams.test_gram:similarity"
    specs = [KernelSpec.parse(f"callable('{name}', power=2)[0,2]"), KernelSpec("callable", (("function", name),))]
    found = gram_block(specs, X, Z)
    np.testing.assert_allclose(found[0], (X[:, [0, 2]] @ Z[:, [0, 2]].T) ** 2)
    np.testing.assert_allclose(found[1], X @ Z.T)
    own = gram_block(specs, X)
    assert (own == own.transpose(0, 2, 1)).all()
    np.testing.assert_allclose(gram_diagonal(specs, X), np.diagonal(own, axis1=1, axis2=2), rtol=1e-12)


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (0, 40), (130, 40)])
def test_empty_and_single_blocks(shape):
    specs = [KernelSpec.parse("rbf(gamma=1.0)"), KernelSpec.parse("linear[0]"), KernelSpec.parse("hik")]
    X = np.ones(shape)
    assert gram_block(specs, X).shape == (3, len(X), len(X))
    assert gram_block(specs, X, np.ones((2, shape[1]))).shape == (3, len(X), 2)
    assert gram_block([], X).shape == (0, len(X), len(X))
    assert gram_diagonal(specs, X).shape == (3, len(X))


@pytest.mark.parametrize("sparse", [False, True])
def test_diagonals_are_those_of_the_block(sparse):
    for d in (6, 30, DENSE_COLUMNS + 5):
        X = positive(25, d, 5, 0.4)
        X = sp.csr_array(X) if sparse else X
        block = np.diagonal(gram_block(ALL, X), axis1=1, axis2=2)
        np.testing.assert_allclose(gram_diagonal(ALL, X), block, rtol=1e-12)


# -- normalisation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", NORMALIZATIONS)
@pytest.mark.parametrize("centre", [False, True])
def test_normalised_blocks_equal_the_normalised_matrix(normalize, centre):
    X, Z = positive(30, 5, 1), positive(11, 5, 2)
    raw = [KernelSpec.parse(text) for text in ("linear", "rbf(gamma=0.1)", "hik[2]")]
    specs = [KernelSpec(spec.name, spec.params, spec.columns, normalize, centre) for spec in raw]
    blocks, own = gram_block(specs, X), gram_diagonal(specs, Z)
    test = gram_block(specs, Z, X)
    for q, spec in enumerate(specs):
        how = Normalization.of(spec, KernelSums.of(blocks[q]))
        expected = normalized(spec, blocks[q])
        np.testing.assert_allclose(how.apply_block(blocks[q], slice(None), slice(None)), expected, rtol=1e-10, atol=1e-11)
        part = how.apply_block(blocks[q][3:9, 12:], slice(3, 9), np.arange(12, 30))
        np.testing.assert_allclose(part, expected[3:9, 12:], rtol=1e-10, atol=1e-11)
        whole = how.apply_test(test[q], diagonal=own[q])
        np.testing.assert_allclose(whole, normalized(spec, blocks[q], test[q], own[q]), rtol=1e-10, atol=1e-11)
        piece = how.apply_test(test[q][:, 5:8], diagonal=own[q], row_mean=test[q].mean(axis=1), columns=slice(5, 8))
        np.testing.assert_allclose(piece, whole[:, 5:8], rtol=1e-12, atol=1e-13)
        # Training rows as test rows.
        again = how.apply_test(blocks[q], diagonal=np.diag(blocks[q]))
        np.testing.assert_allclose(again, expected, rtol=1e-10, atol=1e-11)
        if how.only_scales:
            np.testing.assert_array_equal(how.apply_block(blocks[q], slice(None), slice(None)), how.scale * blocks[q])


def test_each_normalisation_does_what_its_name_says():
    K = gram_block([KernelSpec.parse("poly(degree=2)")], positive(40, 6, 3))[0]

    def applied(text):
        spec = KernelSpec.parse(f"poly(degree=2) {text}")
        return Normalization.of(spec, KernelSums.of(K)).apply_block(K, slice(None), slice(None))

    assert (applied("none") == K).all()
    for text, trace in (
        ("trace", 40),
        ("unit_trace", 1),
        ("trace centre", 40),
        ("unit_trace centre", 1),
        ("cosine", 40),
        ("cosine centre", 40),
    ):
        assert np.trace(applied(text)) == pytest.approx(trace)
    for text in ("multiplicative", "multiplicative centre"):
        assert np.diag(applied(text)).mean() - applied(text).mean() == pytest.approx(1)
    for text in ("centre", "trace centre", "multiplicative centre"):
        centred = applied(text)
        assert np.abs(centred.sum(axis=0)).max() < 1e-9 * np.abs(centred).sum()
        assert (centred == centred.T).all()
    assert np.diag(applied("cosine centre")) == pytest.approx(np.ones(40))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_blocks_are_sums_of_the_matrix(dtype):
    X, edges = positive(50, 5, 4), [0, 20, 40, 50]
    specs = ALL[:3]
    blocks = gram_block(specs, X, dtype=dtype)
    ranges = list(itertools.pairwise(edges))
    parts = [block_sums(blocks[:, a:b, c:d], (a, b), (c, d)) for i, (a, b) in enumerate(ranges) for c, d in ranges[i:]]
    for found, kernel in zip(kernel_sums(50, parts), blocks.astype(np.float64)):
        np.testing.assert_allclose(found.row_sums, kernel.sum(axis=1), rtol=1e-12)
        np.testing.assert_array_equal(found.diagonal, np.diag(kernel))
        assert found.trace == pytest.approx(np.trace(kernel), rel=1e-12)
        assert found.total == pytest.approx(kernel.sum(), rel=1e-12)
    assert [how.scale for how in make_normalizations(specs, kernel_sums(50, parts))] == [1.0] * 3
    with pytest.raises(ValueError, match="none of the 5 blocks has the diagonal entry of row 20"):
        kernel_sums(50, [part for part in parts if part.rows != (20, 40) or part.diagonal is None])


@pytest.mark.parametrize("text", ["trace", "unit_trace", "multiplicative", "cosine"])
@pytest.mark.parametrize("centre", ["", " centre"])
@pytest.mark.parametrize("level", [0.0, 0.1])
def test_constant_features_give_zero_kernels_not_nan(text, centre, level):
    spec = KernelSpec.parse(f"linear {text}{centre}")
    for dtype in ("float32", "float64"):
        K = gram_block([spec], np.full((7, 3), level), dtype=dtype)[0]
        how = Normalization.of(spec, KernelSums.of(K))
        found = how.apply_block(K, slice(None), slice(None))
        if level and not centre and text != "multiplicative":
            assert np.allclose(found, found[0, 0])
            assert found[0, 0] == pytest.approx(1 / 7 if text == "unit_trace" else 1)
        else:
            assert np.abs(found).max() < 1e-8


def test_a_row_without_length_has_cosine_zero():
    X = np.array([[0.0, 0.0], [1.0, 2.0], [3.0, 0.0]])
    spec = KernelSpec.parse("linear cosine")
    K = gram_block([spec], X)[0]
    found = Normalization.of(spec, KernelSums.of(K)).apply_block(K, slice(None), slice(None))
    np.testing.assert_allclose(found, pairwise.cosine_similarity(X), atol=1e-15)


# -- bad input -------------------------------------------------------------------------------------------------------------

NUMBERS = np.ones((3, 4))
NAN, LARGE, MINUS = (np.array([[1.0, 1.0], [1.0, value]]) for value in (np.nan, 1e200, -0.25))
HERE = "tests.kernels.grams.test_gram"


@pytest.mark.parametrize(
    ("text", "X", "Z", "said"),
    [
        ("rbf(gamma=1.0)", NAN, None, "kernel rbf(gamma=1.0): X has nan in row 1, column 1; numbers must be finite"),
        ("linear[1]", NUMBERS[:, :2], NAN, "kernel linear[1]: Z has nan in row 1, column 1"),
        ("linear", sp.csr_array(np.pad(NAN, ((0, 0), (2000, 0)))), None, "X has nan in row 1, column 2001"),
        ("laplacian(gamma=1.0)", -LARGE, None, "X has -1e+200 in row 1, column 1"),
        ("chi2", MINUS, None, "kernel chi2: X has -0.25 in row 1, column 1; this kernel needs values >= 0"),
        ("hik", NUMBERS[:, :2], MINUS, "kernel hik: Z has -0.25"),
        ("additive_chi2", sp.csr_array(np.pad(MINUS, ((0, 0), (2000, 0)))), None, "X has -0.25 in row 1, column 2001"),
        ("linear[4]", NUMBERS, None, "column 4 is outside the data, which have columns 0 to 3"),
        ("linear", NUMBERS, NUMBERS[:, :2], "X has 4 columns, Z has 2 columns"),
        ("linear", NUMBERS, ["a"], "X has 4 columns, Z has strings"),
        ("linear", WORDS, None, "kernel linear reads numbers; X holds strings"),
        ("linear[1]", WORDS, None, "the rows are strings"),
        ("spectrum(k=2)", NUMBERS, None, "kernel spectrum(k=2) reads strings; X is a matrix of numbers"),
        ("linear", np.ones(3), None, "X has shape (3,)"),
        ("linear", np.ones((3, 2), complex), None, "type complex128"),
        ("linear", ["a", 1], None, "it must be a matrix of numbers or a list of strings"),
        ("poly(degree=400)", 10 * NUMBERS, None, "kernel poly(degree=400) gives inf for row 0 of X and row 0 of Z"),
        (f"callable('{HERE}:scarred')", NUMBERS, None, "gives nan for row 1 of X and row 0 of Z"),
        (f"callable('{HERE}:lopsided')", np.diag([1.0, 2.0]), None, "is not symmetric"),
        (f"callable('{HERE}:missing')", NUMBERS, None, "cannot be imported"),
        ("callable('no_such_module:f')", NUMBERS, None, "cannot be imported: No module named 'no_such_module'"),
        (f"callable('{HERE}:short')", NUMBERS[:2], np.ones((5, 4)), "returned shape (2, 3) for 2 rows of X and 5 of Z"),
    ],
)
def test_bad_data_are_refused_by_kernel_and_row(text, X, Z, said):
    with pytest.raises(ValueError) as caught:
        gram_block([KernelSpec.parse(text)], X, Z)
    assert said in str(caught.value)


def test_only_what_a_kernel_looks_at_must_be_good():
    found = gram_block([KernelSpec.parse("linear[0]")], NAN)
    assert (found == 1).all()


def test_overflow_is_of_the_type_of_the_result():
    spec = [KernelSpec.parse("poly(degree=20)")]
    assert np.isfinite(gram_block(spec, 10 * NUMBERS)).all()
    with pytest.raises(ValueError, match="must be finite in float32"):
        gram_block(spec, 10 * NUMBERS, dtype=np.float32)


@pytest.mark.parametrize(
    "out", [np.empty((1, 3, 2)), np.empty((1, 3, 3), np.float32), np.empty((3, 3, 1)).T[:, :, ::-1], np.broadcast_to(0.0, (1, 3, 3))]
)
def test_an_unfit_output_is_refused(out):
    with pytest.raises(ValueError, match="out has shape"):
        gram_block([KernelSpec("linear")], NUMBERS, out=out)
    with pytest.raises(ValueError, match="dtype is int64"):
        gram_block([KernelSpec("linear")], NUMBERS, dtype=np.int64)


def test_normalisation_says_what_is_missing():
    spec = KernelSpec.parse("linear cosine centre")
    K = gram_block([spec], positive(6, 3))[0]
    how = Normalization.of(spec, KernelSums.of(K))
    with pytest.raises(ValueError, match="diagonal is missing"):
        how.apply_test(K)
    with pytest.raises(ValueError, match="row_mean is missing"):
        how.apply_test(K[:, 2:], diagonal=np.diag(K), columns=slice(2, None))
    with pytest.raises(ValueError, match=r"kernel linear trace is not positive semi-definite: .* trace -6 "):
        Normalization.of(KernelSpec.parse("linear trace"), KernelSums.of(-np.eye(6)))


def test_the_grid_in_one_call():
    X = np.random.default_rng(0).standard_normal((60, 4))
    grid = kernel_grid(4)
    found = gram_block(grid, X)
    for spec, kernel in zip(grid, found):
        columns = list(spec.columns or range(4))
        own = X[:, columns]
        if spec.name == "rbf":
            np.testing.assert_allclose(kernel, pairwise.rbf_kernel(own, gamma=spec.arguments["gamma"]), atol=1e-12)
        else:
            np.testing.assert_allclose(kernel, (own @ own.T + 1) ** spec.arguments["degree"], rtol=1e-10, atol=1e-10)


def test_columns_of_sparse_rows_made_dense_once_give_the_bits_of_one_kernel_at_a_time():
    rng = np.random.default_rng(5)
    rows = sp.random_array((70, 2000), density=0.2, rng=rng, format="csr")
    other = sp.random_array((50, 2000), density=0.2, rng=rng, format="csr")
    specs = [*(KernelSpec("rbf", (("gamma", 1.0),), (j,)) for j in (1999, 3, 700)), KernelSpec("linear", (), (3, 1999))]
    for Z in (None, other):
        together = gram_block(specs, rows, Z)
        for spec, block in zip(specs, together, strict=True):
            assert block.tobytes() == gram_block([spec], rows, Z)[0].tobytes()
    assert np.ptp(together[0]) > 0.0


def test_what_one_of_several_kernels_refuses_of_sparse_rows_names_row_and_column():
    rows = sp.random_array((20, 2000), density=0.02, rng=np.random.default_rng(0), format="lil")
    rows[7, 1500] = -1.0
    specs = [KernelSpec("rbf", (("gamma", 1.0),), (3,)), KernelSpec("chi2", (("gamma", 1.0),), (1500,))]
    with pytest.raises(ValueError, match=r"(?s)row 7.*1500"):
        gram_block(specs, rows.tocsr())


def many_columns(d=80):
    """Gaussians of one feature each, several of some, two that single precision does not hold, and others among them."""
    gammas = [{"gamma": 0.5}] * d + [{"gamma": 3.0}, {"gamma": 1e-30}, {"gamma": 1e30}]
    single = [KernelSpec("rbf", one, (j % d,)) for j, one in enumerate(gammas)]
    return [
        KernelSpec("rbf", {"gamma": 0.1}, (3, 4)),
        *single[::-1],
        KernelSpec("linear", (), (5,)),
        KernelSpec("laplacian", {"gamma": 1.0}, (6,)),
    ]


@pytest.mark.parametrize("density", [1.0, 0.1])
def test_many_features_at_once_have_the_bits_of_one_at_a_time(density):
    X, Z = (np.sqrt(positive(n, 90, n, density)) for n in (70, 150))
    specs = many_columns()
    for left, right in ((X, None), (X, Z), (np.asfortranarray(Z), X)):
        for form in (np.asarray, sp.csr_array):
            together = gram_block(specs, form(left), None if right is None else form(right), dtype=np.float32)
            for spec, block in zip(specs, together, strict=True):
                assert block.tobytes() == gram_block([spec], left, right, dtype=np.float32)[0].tobytes(), spec


def test_a_number_among_many_features_is_refused_by_its_kernel_and_place():
    for bad, said in ((np.nan, "finite"), (1e200, "at most")):
        X = positive(20, 90)
        X[7, 41] = bad
        with pytest.raises(ValueError, match=rf"(?s)row 7.*column 41.*{said}|rbf\(gamma=0.5\)\[41\].*row 7.*{said}"):
            gram_block(many_columns(), X, dtype=np.float32)


def test_a_product_of_one_kernel_is_that_kernel():
    X = positive(40, 5)
    rbf, linear = KernelSpec("rbf", {"gamma": 0.5}, (1,)), KernelSpec("linear", (), (0, 2))
    products = [
        ProductSpec.of([rbf]),
        ProductSpec.of([rbf, linear]),
        ProductSpec.of([linear], 2.0),
        ProductSpec((((2.0, rbf),),)),
        ProductSpec(),
    ]
    assert [product.single for product in products] == [rbf, None, None, None, None]
    K, L = gram_block([rbf, linear], X, dtype=np.float32)
    for product, expected in zip(products, (K, K * L, 2 * L, 2 * K, np.ones_like(K)), strict=True):
        np.testing.assert_array_equal(gram_block([product], X, dtype=np.float32)[0], expected)


def test_a_product_beyond_its_type_is_refused_whatever_its_factors():
    rbf, laplacian = KernelSpec("rbf", {"gamma": 0.5}, (1,)), KernelSpec("laplacian", {"gamma": 1.0}, (2,))
    with pytest.raises(ValueError, match="gives inf for row 0"):
        gram_block([ProductSpec.of([rbf, laplacian], 1e300)], positive(5, 4), dtype=np.float32)

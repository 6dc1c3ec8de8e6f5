"""Packed Gram matrices against whole ones."""

import numpy as np
import pytest

from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.bank.loops import BAND
from gramplane.kernels.bank.products import product_sums, product_units, total_products
from gramplane.pipeline.passes.blocks import add_spans

SIZES = (1, 2, 7, BAND - 1, BAND, BAND + 1, 2 * BAND, 300)
TYPES = pytest.mark.parametrize(("dtype", "tol"), [(np.float64, 1e-13), (np.float32, 3e-7)])


def whole(n, k=7, seed=0, scaled=True):
    """k matrices, exactly symmetric, with values float32 holds exactly; and their scale factors."""
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(k, n, 4))
    raw = np.float32(F @ F.transpose(0, 2, 1)).astype(np.float64)
    raw = np.triu(raw) + np.triu(raw, 1).transpose(0, 2, 1)
    return raw, rng.uniform(0.5, 2.0, size=k) if scaled else np.ones(k)


def bank_of(raw, scale, dtype=np.float64):
    bank = PackedBank.from_dense(raw, dtype)
    bank.scale[:] = scale
    return bank


def sparse_vector(n, share, seed=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * (rng.uniform(size=n) < share)


# -- layout ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
def test_every_entry_survives_packing(n):
    raw, _ = whole(n)
    bank = PackedBank.from_dense(raw)
    assert bank.nbytes == PackedBank.bytes_for(7, n) == 4 * bank.values.size
    for q in range(7):
        np.testing.assert_array_equal(bank.combine(np.eye(7)[q]), raw[q])


def test_half_the_bytes():
    assert PackedBank.bytes_for(1, 100 * BAND) < 0.51 * 4 * (100 * BAND) ** 2


@pytest.mark.parametrize("edge", [16, 100, 128, 150, 300])
def test_blocks_of_any_edge_make_the_same_bank(edge):
    n = 300
    raw, _ = whole(n)
    bank = PackedBank.empty(7, n, np.float64)
    edges = [*range(0, n, edge), n]
    places = [(a, b) for a in range(len(edges) - 1) for b in range(a, len(edges) - 1)]
    for a, b in np.random.default_rng(0).permutation(places):
        rows, cols = slice(edges[a], edges[a + 1]), slice(edges[b], edges[b + 1])
        bank.put(0, edges[a], edges[b], raw[:3, rows, cols])
        for q in range(3, 7):
            bank.put(q, edges[a], edges[b], raw[q, rows, cols])
    np.testing.assert_array_equal(bank.values, PackedBank.from_dense(raw, np.float64).values)
    assert bank.forms(np.ones(n)).shape == (7,)


def test_below_the_diagonal_nothing_is_read():
    raw, _ = whole(200)
    spoiled = raw.copy()
    spoiled[:, np.tri(200, k=-1, dtype=bool)] = np.nan
    np.testing.assert_array_equal(PackedBank.from_dense(spoiled).values, PackedBank.from_dense(raw).values)


def test_an_unfinished_bank_refuses_to_compute():
    raw, _ = whole(200)
    bank = PackedBank.empty(7, 200)
    bank.put(0, 0, 0, raw[:, :100, :100])
    bank.put(0, 0, 0, raw[:, :100, :100])
    with pytest.raises(ValueError, match="kernel 0: 5050 of 20100 entries have been stored"):
        bank.forms(np.ones(200))
    bank.put(2, 0, 100, raw[2, :100, 100:])
    bank.put(2, 100, 100, raw[2, 100:, 100:])
    assert bank.forms(np.ones(200), [2])[0] == pytest.approx(raw[2].sum())
    np.testing.assert_array_equal(bank.combine(np.eye(7)[2]), raw[2])
    with pytest.raises(ValueError, match="kernel 3"):
        bank.combine(np.ones(7) - np.eye(7)[0] - np.eye(7)[1])


def test_a_bank_grows_in_place_and_asks_for_what_is_new():
    raw, _ = whole(300)
    bank = PackedBank.empty(4, 300, np.float32)
    bank.put(0, 0, 0, raw[:4])
    grown = bank.grown(7)
    assert not hasattr(bank, "values")
    with pytest.raises(ValueError, match="kernel 4: 0 of 45150 entries have been stored"):
        grown.combine(np.ones(7))
    grown.put(4, 0, 0, raw[4:])
    np.testing.assert_array_equal(grown.values, PackedBank.from_dense(raw, np.float32).values)
    np.testing.assert_array_equal(grown.frozen, grown.values)
    assert PackedBank.from_dense(raw, np.float32).packed().grown(9).k == 9


def test_a_function_of_a_sum_is_mirrored_as_the_sum_is():
    raw, scale = whole(300)
    bank, out = bank_of(raw, scale, np.float32), np.empty((300, 300))
    found = bank.combine(np.full(7, 0.01), out, lambda part: np.exp(part, out=part))
    assert found is out
    np.testing.assert_array_equal(found, np.exp(bank.combine(np.full(7, 0.01), np.empty((300, 300)))))
    np.testing.assert_array_equal(found, found.T)


# -- arithmetic ------------------------------------------------------------------------------------------------------------


@TYPES
@pytest.mark.parametrize("n", SIZES)
def test_combination(n, dtype, tol):
    raw, scale = whole(n)
    theta = np.random.default_rng(2).uniform(size=7) * [1, 0, 1, 1, 0, 1, 1]
    wanted = np.tensordot(theta * scale, raw, 1)
    bank = bank_of(raw, scale, dtype)
    found = bank.combine(theta)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, wanted, rtol=tol, atol=tol * np.abs(wanted).max())
    np.testing.assert_array_equal(found, found.T)
    out = np.full((n, n), np.nan)
    assert bank.combine(theta, out) is out
    np.testing.assert_allclose(out, wanted, atol=1e-13 * np.abs(wanted).max())
    np.testing.assert_array_equal(bank.combine(np.zeros(7)), 0)


@TYPES
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 1.0])
def test_forms_and_products(n, share, dtype, tol):
    raw, scale = whole(n)
    bank, beta = bank_of(raw, scale, dtype), sparse_vector(n, share)
    K = raw * scale[:, None, None]
    size = np.abs(K).max() * max(1.0, np.abs(beta).sum() ** 2)
    np.testing.assert_allclose(bank.forms(beta), np.einsum("i,qij,j->q", beta, K, beta), rtol=1e-12, atol=1e-14 * size)
    np.testing.assert_allclose(bank.products(beta), K @ beta, rtol=1e-12, atol=1e-14 * size)
    np.testing.assert_allclose(bank.products(beta) @ beta, bank.forms(beta), rtol=1e-11, atol=1e-13 * size)


@TYPES
@pytest.mark.parametrize("n", [5, 300])
def test_products_at_wanted_rows_are_the_same_bits_from_blocks(n, dtype, tol):
    raw, _ = whole(n)
    bank, rng = bank_of(raw, np.ones(7), dtype), np.random.default_rng(1)
    betas = np.stack([sparse_vector(n, share, seed) for seed, share in enumerate((0.1, 0.6, 1.0))], axis=1)
    wanted = (rng.random(betas.shape) < 0.5) | (betas != 0)
    found = bank.products(betas, wanted=wanted)
    whole_rows = np.where(wanted.T, bank.products(betas), 0.0)
    np.testing.assert_allclose(found, whole_rows, atol=1e-13 * np.abs(raw).max() * np.abs(betas).sum(axis=0).max())
    units, vectors = product_units(bank.diagonals().max(axis=1), betas.T), np.ascontiguousarray(betas.T)
    for block in (128, 256):
        spans = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
        pairs = [(rows, cols) for i, rows in enumerate(spans) for cols in spans[i:]]
        parts = [
            product_sums(raw[:, slice(*rows), slice(*cols)].astype(dtype), rows, cols, vectors, wanted.T, units) for rows, cols in pairs
        ]
        np.testing.assert_array_equal(total_products(add_spans(parts[::-1]), wanted.T), found)


@TYPES
def test_bits_do_not_depend_on_what_else_is_asked(dtype, tol):
    raw, scale = whole(300)
    bank = bank_of(raw, scale, dtype)
    betas = np.stack([sparse_vector(300, share, seed) for seed, share in enumerate((0.1, 0.4, 1.0))], axis=1)
    every, U = bank.forms(betas), bank.products(betas[:, 1])
    for q in range(7):
        np.testing.assert_array_equal(bank.forms(betas[:, 1], [q]), every[q, 1:2])
        np.testing.assert_array_equal(bank.products(betas[:, 1], [q])[0], U[q])
        alone = bank_of(raw[q : q + 1], scale[q : q + 1], dtype)
        np.testing.assert_array_equal(alone.forms(betas)[0], every[q])
    np.testing.assert_array_equal(bank.forms(betas, [5, 0, 5]), every[[5, 0, 5]])
    theta = np.array([0.3, 0.0, 0.2, 0.1, 0.0, 0.4, 0.7])
    fewer = bank_of(raw[theta > 0], scale[theta > 0], dtype)
    np.testing.assert_array_equal(fewer.combine(theta[theta > 0]), bank.combine(theta))


def test_forms_of_positive_semi_definite_matrices_are_not_negative():
    raw, scale = whole(300)
    bank = bank_of(raw, scale)
    assert (bank.forms(np.random.default_rng(3).normal(size=(300, 20))) >= 0).all()


def test_scale_multiplies_lazily():
    raw, scale = whole(150)
    plain, bank = bank_of(raw, np.ones(7)), bank_of(raw, scale)
    np.testing.assert_array_equal(plain.values, bank.values)
    beta = sparse_vector(150, 1.0)
    np.testing.assert_allclose(bank.forms(beta), scale * plain.forms(beta), rtol=1e-15)
    np.testing.assert_allclose(bank.inner_products(), np.outer(scale, scale) * plain.inner_products(), rtol=1e-15)
    np.testing.assert_allclose(bank.diagonals(), scale[:, None] * np.diagonal(raw, axis1=1, axis2=2), rtol=1e-15)
    trace = bank_of(raw, 150 / plain.diagonals().sum(axis=1))
    np.testing.assert_allclose(trace.diagonals().sum(axis=1), 150, rtol=1e-14)


# -- alignments ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("centred", [False, True])
def test_alignments_and_inner_products(n, centred):
    raw, scale = whole(n)
    bank = bank_of(raw, scale, np.float32)
    H = np.eye(n) - 1 / n if centred else np.eye(n)
    K = H @ (raw * scale[:, None, None]) @ H
    Y = np.random.default_rng(4).normal(size=(n, 2))
    flat = K.reshape(7, -1)
    size = max(1.0, float(np.square(raw * scale[:, None, None]).sum()))
    np.testing.assert_allclose(bank.alignments(Y, centred=centred), np.einsum("im,qij,jm->qm", Y, K, Y), rtol=1e-11, atol=1e-13 * size)
    found = bank.inner_products(centred=centred)
    np.testing.assert_allclose(found, flat @ flat.T, rtol=1e-11, atol=1e-14 * size)
    np.testing.assert_array_equal(found, found.T)
    for chosen in ([6, 2, 3], [2, 3, 4], [6, 5, 4, 3, 2, 1, 0]):
        np.testing.assert_allclose(bank.inner_products(chosen, centred=centred), found[np.ix_(chosen, chosen)], rtol=1e-12)
    np.testing.assert_array_equal(bank.inner_products(centred=centred), found)


def test_inner_products_in_many_strips(monkeypatch):
    raw, scale = whole(300)
    bank = bank_of(raw, scale)
    whole_strips = bank.inner_products()
    monkeypatch.setattr("gramplane.kernels.bank.bank.GEMM_BYTES", 1)
    np.testing.assert_allclose(bank.inner_products(), whole_strips, rtol=1e-13)


# -- bad input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda bank: PackedBank(np.zeros((2, 5)), 3), r"values: shape \(2, 5\), must be \(k, 9\)"),
        (lambda bank: PackedBank(np.zeros((2, 9), dtype=int), 3), "float32 or float64"),
        (lambda bank: PackedBank.empty(2, 0), "n=0"),
        (lambda bank: PackedBank.from_dense(np.ones((2, 3, 4))), r"grams: shape \(2, 3, 4\)"),
        (lambda bank: bank.put(1, 0, 0, np.ones((2, 200, 200))), "does not fit into 2 matrices of 200 rows"),
        (lambda bank: bank.put(0, 150, 190, np.ones((20, 20))), "does not fit into 2 matrices"),
        (lambda bank: bank.put(0, 100, 50, np.ones((20, 20))), "must be a square on the diagonal or lie above the diagonal"),
        (lambda bank: bank.put(0, 50, 60, np.ones((20, 20))), "above the diagonal"),
        (lambda bank: bank.put(0, 0, 0, np.ones(5)), r"block: shape \(5,\)"),
        (lambda bank: bank.put(1, 0, 20, np.full((10, 10), np.nan)), "kernel 1: the block at row 0, column 20 holds NaN"),
        (lambda bank: bank.put(0, 0, 20, np.full((2, 10, 10), 1e39)), "kernel 0: .* beyond float32"),
        (lambda bank: bank.combine(np.ones(3)), r"theta: shape \(3,\), must be \(2,\)"),
        (lambda bank: bank.combine(np.array([1.0, np.inf])), "theta: must be finite"),
        (lambda bank: bank.combine(np.ones(2), np.empty((200, 199))), r"out: shape \(200, 199\)"),
        (lambda bank: bank.forms(np.ones(199)), r"beta: shape \(199,\), must be \(200,\) or \(200, m\)"),
        (lambda bank: bank.products(np.full(200, np.nan)), "beta: must be finite"),
        (lambda bank: bank.forms(np.ones(200), [2]), "kernels: must be a list of numbers from 0 to 1"),
        (lambda bank: bank.forms(np.ones(200), [-1]), "kernels"),
        (lambda bank: bank.alignments(np.ones(3)), r"y: shape \(3,\)"),
    ],
)
def test_bad_input_is_refused(call, message):
    bank = PackedBank.from_dense(np.ones((2, 200, 200)))
    with pytest.raises(ValueError, match=message):
        call(bank)


def test_an_overflow_in_float32_is_fine_in_float64():
    raw = np.full((1, 5, 5), 1e39)
    assert PackedBank.from_dense(raw, np.float64).forms(np.ones(5))[0] == pytest.approx(25e39)

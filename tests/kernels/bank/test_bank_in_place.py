"""A bank over whole matrices where they lie: the bits of the packed one in everything it is asked, and nothing is written."""

import numpy as np
import pytest

from gramplane.kernels.bank import loops as bank_loops
from gramplane.kernels.bank import products as bank_products
from gramplane.kernels.bank.bank import PackedBank
from gramplane.kernels.bank.loops import BAND
from gramplane.kernels.bank.two_layer import BankLayer

N_TASKS = 3
ASKED = {
    "combine": lambda bank, beta, codes: bank.combine(np.abs(beta[: bank.k]) + 0.1),
    "a few of them": lambda bank, beta, codes: bank.combine(np.arange(bank.k) % 2.0),
    "forms": lambda bank, beta, codes: bank.forms(beta),
    "several forms": lambda bank, beta, codes: bank.forms(np.stack([beta, beta[::-1], np.ones(bank.n)], axis=1), [1, 3]),
    "products": lambda bank, beta, codes: bank.products(beta),
    "products in part": lambda bank, beta, codes: bank.products(beta, [0, 2], wanted=beta != 0),
    "diagonals": lambda bank, beta, codes: bank.diagonals(),
    "entries": lambda bank, beta, codes: bank.entries(np.arange(bank.n), np.arange(bank.n)[::-1]),
    "alignments": lambda bank, beta, codes: bank.alignments(beta, centred=True),
    "inner products": lambda bank, beta, codes: bank.inner_products(centred=True),
    "combine by tasks": lambda bank, beta, codes: bank.combine_tasks(_task_weights(bank.k), codes),
    "forms of tasks": lambda bank, beta, codes: bank.task_forms(beta, codes, N_TASKS),
    "second layer": lambda bank, beta, codes: BankLayer(bank).weigh(np.ones(bank.k), bank.combine(np.ones(bank.k)).astype(float), beta),
}


def _task_weights(k):
    W = np.random.default_rng(3).uniform(0.1, 1.0, (k, N_TASKS, N_TASKS))
    return W + W.transpose(0, 2, 1)


def whole(n, dtype, k=6):
    A = np.random.default_rng(n).normal(size=(k, n, 3))
    K = (A @ A.transpose(0, 2, 1)).astype(dtype)
    return np.triu(K) + np.triu(K, 1).transpose(0, 2, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [7, BAND - 1, BAND, BAND + 1, 2 * BAND, 300])
def test_the_bits_of_the_packed_bank_in_every_answer(n, dtype):
    K, rng = whole(n, dtype), np.random.default_rng(1)
    kept = K.copy()
    K.flags.writeable = False
    beta, codes = rng.normal(size=n) * (rng.random(n) < 0.7), rng.integers(0, N_TASKS, n)
    lent, packed = PackedBank.over(K), PackedBank.from_dense(K, dtype)
    scale = rng.uniform(0.5, 2.0, len(K))
    lent.scale[:], packed.scale[:] = scale, scale
    assert lent.lent and not packed.lent and np.shares_memory(lent.values, K)
    for name, ask in ASKED.items():
        assert ask(lent, beta, codes).tobytes() == ask(packed, beta, codes).tobytes(), name
    np.testing.assert_array_equal(K, kept)


def test_it_packs_into_a_bank_of_its_own():
    K = whole(300, np.float32)
    lent = PackedBank.over(K)
    lent.scale[2] = 3.0
    own = lent.packed()
    np.testing.assert_array_equal(own.values, PackedBank.from_dense(K).values)
    np.testing.assert_array_equal(own.scale, lent.scale)
    kept = K.copy()
    own.transform([lambda part, rows, columns: 2 * part] * len(K))
    np.testing.assert_array_equal(K, kept)
    np.testing.assert_array_equal(own.combine(np.eye(6)[0]), 2 * K[0])


def test_both_layouts_run_through_one_compiled_loop():
    K, beta, loops = whole(150, np.float32), np.ones(150), (bank_loops.combine_bands, bank_loops.sum_forms, bank_products.bank_products)
    versions = []
    for bank in (PackedBank.from_dense(K), PackedBank.over(K)):
        bank.combine(np.ones(6))
        bank.forms(beta)
        bank.products(beta)
        versions.append([len(loop.nopython_signatures) for loop in loops])
    assert versions[0] == versions[1]


@pytest.mark.parametrize(
    "given",
    [
        np.zeros((2, 5, 5), np.int32),
        np.zeros((2, 5, 4), np.float32),
        np.zeros((0, 5, 5), np.float32),
        np.zeros((5, 5), np.float32),
        np.asfortranarray(np.zeros((2, 5, 5), np.float32)),
        np.zeros((2, 5, 5), ">f4"),
        np.frombuffer(bytes(201), np.uint8)[1:].view(np.float32).reshape(2, 5, 5),
    ],
)
def test_matrices_that_cannot_serve_where_they_lie_are_refused(given):
    with pytest.raises(ValueError, match=r"grams: shape .* must be a C-ordered array \(k, n, n\) of float32 or float64"):
        PackedBank.over(given)

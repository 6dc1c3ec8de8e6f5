"""Kernel learning on matrices that were given: looked at once, read where they lie or packed on the way, to the bits of any other way."""

import tracemalloc

import numpy as np
import pytest

from gramplane.cluster import default_driver_memory, machine_memory, open_executor
from gramplane.kernels.bank.bank import PackedBank
from gramplane.pipeline.core.memory import total_bytes
from gramplane.pipeline.core.resources import Resources
from gramplane.pipeline.grams import given as given_grams
from gramplane.pipeline.grams.given import GivenGrams, GivenKernel, GivenPair
from gramplane.pipeline.grams.settings import GramSettings, machines_items
from gramplane.pipeline.methods.mkl.estimator import MKLClassifier


def matrices(n=150, k=4, dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.stack([np.exp(-gamma * near) for gamma in np.geomspace(0.1, 3.0, k)]).astype(dtype), np.where(X[:, 0] > 0.2, "a", "b")


def counted(monkeypatch):
    looks, loads = [], []
    look, load = given_grams.inspect_matrix, GivenPair.load
    monkeypatch.setattr(given_grams, "inspect_matrix", lambda *args: looks.append(args[0].dtype) or look(*args))
    monkeypatch.setattr(GivenPair, "load", lambda self: loads.append(self.which) or load(self))
    return looks, loads


def same(one, other):
    assert one.dual_coef_.tobytes() == other.dual_coef_.tobytes() and one.kernel_weights_.tobytes() == other.kernel_weights_.tobytes()


@pytest.mark.parametrize("normalize", ["trace", "none", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matrices_are_read_once_in_their_own_type(dtype, normalize, monkeypatch):
    K, y = matrices(dtype=dtype)
    before = K.copy()
    looks, loads = counted(monkeypatch)
    fast = MKLClassifier("precomputed", normalize=normalize).fit(K, y)
    assert looks == [np.dtype(dtype)] * len(K) and not loads
    np.testing.assert_array_equal(K, before)
    monkeypatch.setattr(given_grams, "_checked", lambda *args: None)
    plain = MKLClassifier("precomputed", normalize=normalize).fit(K, y)
    assert loads
    same(plain, fast)


def frozen(K):
    K = K.copy()
    K.flags.writeable = False
    return K


def mapped(K, folder):
    np.save(folder / "K.npy", K)
    return np.load(folder / "K.npy", mmap_mode="r")


IN_PLACE = {"as they are": lambda K, _: K, "read-only": lambda K, _: frozen(K), "mapped": mapped, "a list": lambda K, _: list(K)}
COPIED = {
    "Fortran-ordered": lambda K, _: np.asfortranarray(K),
    "each turned": lambda K, _: np.ascontiguousarray(K.transpose(0, 2, 1)).transpose(0, 2, 1),
    "every other": lambda K, _: np.repeat(K, 2, axis=0)[::2],
    "a corner": lambda K, _: np.pad(K, ((0, 0), (0, 9), (0, 9)))[:, : K.shape[1], : K.shape[1]],
    "double": lambda K, _: K.astype(np.float64),
    "big-endian": lambda K, _: K.astype(">f4"),
}


@pytest.mark.parametrize("form", [*IN_PLACE, *COPIED])
def test_every_form_gives_the_same_model_and_stays_what_it_was(form, tmp_path):
    K, y = matrices(n=200)
    given = {**IN_PLACE, **COPIED}[form](K, tmp_path)
    assert GivenGrams(given_grams.as_stack(given)).bank.lent == (form in IN_PLACE)
    same(MKLClassifier("precomputed").fit(given, y), MKLClassifier("precomputed").fit(K.astype(np.float64), y))
    np.testing.assert_array_equal(np.asarray(given), matrices(n=200)[0])


def test_what_was_handed_over_is_not_copied_and_cannot_be_written_to():
    K, _ = matrices(n=300, k=10)
    GivenGrams(K)
    tracemalloc.start()
    bank = GivenGrams(K).bank
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.shares_memory(bank.values, K) and K.flags.writeable
    # One matrix in double precision while it is tried for definiteness, with the copy that LAPACK factors, and nothing of size k.
    assert peak < 3 * 8 * 300**2 < PackedBank.bytes_for(10, 300)
    for change in (lambda: bank.put(0, 0, 0, K[0]), lambda: bank.transform([np.asarray] * 10)):
        with pytest.raises(ValueError, match="this bank reads the caller's matrices and cannot change them"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        bank.values[0, 0] = 2.0


def test_a_fit_takes_less_than_one_copy_of_its_matrices():
    K, y = matrices(n=400, k=40)
    MKLClassifier("precomputed").fit(K[:3], y)
    tracemalloc.start()
    MKLClassifier("precomputed").fit(K, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.6 * PackedBank.bytes_for(40, 400)


@pytest.mark.parametrize("late", [0, 3])
def test_matrices_that_round_otherwise_below_the_diagonal_are_packed(late):
    K, y = matrices(n=200)
    rough = K.copy()
    rough[late, 150, 3] *= 1 + 1e-6
    assert not GivenGrams(rough).bank.lent
    same(MKLClassifier("precomputed").fit(rough, y), MKLClassifier("precomputed").fit(K, y))
    assert GivenGrams(rough, room=0).bank is None


def test_the_plan_counts_nothing_for_what_lies_there_already(monkeypatch):
    K, y = matrices(n=200)
    kernels, memory = [GivenKernel(q, normalize="trace") for q in range(4)], 1 << 16
    with open_executor(None) as executor:
        resources = Resources(executor, driver_memory=memory)
        settings = GramSettings.of(GivenGrams(K, room=0), resources, kernels)
        copied = GramSettings.of(GivenGrams(K.astype(np.float64)), resources, kernels)
    assert settings.policy == "memory" and settings.items(200, 4, memory)[0][1] == 0 and "where they lie" in settings.reason
    assert copied.policy == "recompute"
    assert total_bytes(machines_items(settings, 200, 4, 1, memory)) < PackedBank.bytes_for(4, 200)
    # Beyond any share of the driver the fit goes on in memory.
    monkeypatch.setattr(given_grams, "default_driver_memory", lambda: memory)
    _, loads = counted(monkeypatch)
    MKLClassifier("precomputed").fit(K, y)
    assert not loads


def test_the_same_matrix_twice_is_told_and_others_are_not(recwarn):
    K, y = matrices()
    MKLClassifier("precomputed").fit(K, y)
    assert not [one for one in recwarn if "the same" in str(one.message)]
    with pytest.warns(UserWarning, match="precomputed 1 and precomputed 3"):
        MKLClassifier("precomputed").fit(K[[0, 1, 2, 1]], y)


def test_centred_matrices_take_the_way_that_sums_rows(monkeypatch):
    K, y = matrices()
    _, loads = counted(monkeypatch)
    MKLClassifier("precomputed", normalize="multiplicative").fit(K, y)
    assert loads


def test_numbers_beyond_float32_are_refused_by_name():
    K, _ = matrices(dtype=np.float64)
    K[2] *= 1e300
    with pytest.raises(ValueError, match=r"precomputed kernel 2 holds values up to .*, which overflow float32"):
        GivenGrams(K)


@pytest.mark.parametrize("least", [-1e-7, 0.0])
def test_a_factor_decides_as_eigenvalues_do(least, monkeypatch):
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    values = np.r_[least, rng.uniform(0.5, 1.0, 39)]
    GivenGrams(((Q * values) @ Q.T)[None])
    monkeypatch.setattr(given_grams, "_surely_definite", lambda gram: False)
    GivenGrams(((Q * values) @ Q.T)[None])
    monkeypatch.undo()
    values[0] = -1e-3
    with pytest.raises(ValueError, match=r"not positive semi-definite: its least eigenvalue is -0.001"):
        GivenGrams(((Q * values) @ Q.T)[None])


def test_a_driver_may_hold_half_of_the_machine_unless_told():
    assert default_driver_memory() == machine_memory() // 2
    assert Resources(None).driver_memory == default_driver_memory()

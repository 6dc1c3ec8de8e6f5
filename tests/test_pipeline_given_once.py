"""Kernel learning on matrices that were given: they are read once, packed as they are looked at, and give the bits of any other way."""

import numpy as np
import pytest

from gramplane.cluster import default_driver_memory, machine_memory
from gramplane.kernels.jit import one_thread
from gramplane.pipeline.estimators.mkl import MKLClassifier
from gramplane.pipeline.passes import given_grams
from gramplane.pipeline.passes.given_grams import GivenGrams, GivenPair
from gramplane.pipeline.records.context import RunContext


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread():
        yield


def matrices(n=150, k=4, dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    near = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.stack([np.exp(-gamma * near) for gamma in np.geomspace(0.1, 3.0, k)]).astype(dtype), np.where(X[:, 0] > 0.2, "a", "b")


def counted(monkeypatch):
    looks, loads = [], []
    look, load = given_grams.looked_at, GivenPair.load
    monkeypatch.setattr(given_grams, "looked_at", lambda *args: looks.append(args[0].dtype) or look(*args))
    monkeypatch.setattr(GivenPair, "load", lambda self: loads.append(self.which) or load(self))
    return looks, loads


@pytest.mark.parametrize("normalize", ["trace", "none", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matrices_are_read_once_in_their_own_type(dtype, normalize, monkeypatch):
    K, y = matrices(dtype=dtype)
    before = K.copy()
    looks, loads = counted(monkeypatch)
    fast = MKLClassifier("precomputed", normalize=normalize).fit(K, y)
    assert looks == [np.dtype(dtype)] * len(K) and not loads
    np.testing.assert_array_equal(K, before)
    monkeypatch.setattr(given_grams, "BANK_SHARE", 0.0)
    plain = MKLClassifier("precomputed", normalize=normalize).fit(K, y)
    assert loads
    assert plain.dual_coef_.tobytes() == fast.dual_coef_.tobytes() and plain.kernel_weights_.tobytes() == fast.kernel_weights_.tobytes()


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
    with pytest.raises(ValueError, match=r"precomputed kernel 2 holds numbers up to .*, beyond those of float32"):
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
    K, _ = matrices()
    assert RunContext(None, GivenGrams(K)).driver_memory == default_driver_memory()

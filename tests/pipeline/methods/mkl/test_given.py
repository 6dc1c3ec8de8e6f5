"""Gram matrices from the user: arrays, lists, Dask arrays, Zarr arrays and Gram stores give the same fit and the same predictions."""

import dask.array as da
import numpy as np
import pytest
import zarr

from gramplane.pipeline import MKLClassifier
from gramplane.storage.ingest import ingest_grams

N, K, TESTS = 60, 3, 20


@pytest.fixture(scope="module")
def given():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N + TESTS, 3))
    y = np.where(X[:, 0] + X[:, 1] ** 2 > 0.5, "yes", "no")
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    grams = np.stack([np.exp(-gamma * distance) for gamma in (0.1, 0.5, 2.0)]).astype(np.float32)
    return grams[:, :N, :N].copy(), grams[:, N:, :N].copy(), y[:N]


def forms(array, folder):
    """The same numbers in every form."""
    folder.mkdir()
    return {
        "array": array,
        "float64": array.astype(np.float64),
        "dask": da.from_array(array, chunks=(*(1,) * (array.ndim - 2), 25, 25)),
        "zarr": zarr.create_array(folder / "k.zarr", data=array, chunks=(*(1,) * (array.ndim - 2), 32, 32)),
    }


def test_several_matrices_in_every_form(given, tmp_path):
    inside, across, y = given
    expected = MKLClassifier("precomputed").fit(inside, y)
    values = expected.decision_function(across)
    train = {**forms(inside, tmp_path / "train"), "list": list(inside), "store": ingest_grams(inside, tmp_path / "grams")}
    train["path"] = str(tmp_path / "grams")
    for name, form in train.items():
        found = MKLClassifier("precomputed").fit(form, y)
        assert found.kernel_weights_.tobytes() == expected.kernel_weights_.tobytes(), name
        assert found.dual_coef_.tobytes() == expected.dual_coef_.tobytes(), name
    for name, form in forms(across, tmp_path / "test").items():
        np.testing.assert_allclose(expected.decision_function(form), values, rtol=1e-6, err_msg=name)


def test_one_matrix_in_every_form(given, tmp_path):
    inside, across, y = given
    expected = MKLClassifier("precomputed").fit(inside[1], y)
    for name, form in forms(inside[1], tmp_path / "train").items():
        assert MKLClassifier("precomputed").fit(form, y).dual_coef_.tobytes() == expected.dual_coef_.tobytes(), name
    for name, form in forms(across[1], tmp_path / "test").items():
        np.testing.assert_array_equal(expected.predict(form), expected.predict(across[1]), err_msg=name)


def test_every_form_makes_the_same_store(given, tmp_path):
    inside, _, _ = given
    found = [ingest_grams(form, tmp_path / name).digest for name, form in forms(inside, tmp_path / "forms").items()]
    assert len(set(found)) == 1

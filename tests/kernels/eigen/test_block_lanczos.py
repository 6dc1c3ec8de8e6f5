"""Leading eigenpairs from products alone: against a decomposition, with equal eigenvalues, restarts, low rank, and an early end."""

import numpy as np
import pytest

from gramplane.kernels.eigen import block_lanczos
from gramplane.kernels.eigen.block_lanczos import block_columns, leading_pairs


def matrix(values, seed=0):
    rng = np.random.default_rng(seed)
    vectors = np.linalg.qr(rng.normal(size=(len(values), len(values))))[0]
    return (vectors * values) @ vectors.T


SPECTRA = {
    "slow": 1.0 / np.arange(1, 201),
    "equal": np.concatenate([[3.0, 3.0, 3.0, 2.0, 2.0], np.linspace(1.0, 0.0, 115)]),
    "low rank": np.concatenate([[5.0, 4.0], np.zeros(118)]),
    "signs": np.concatenate([[2.0, 1.5, 1.4], np.linspace(-3.0, 1.0, 97)]),
    "few rows": np.array([4.0, 3.0, 1.0]),
}


@pytest.mark.parametrize("most", [96, 20])
@pytest.mark.parametrize("name", SPECTRA)
def test_pairs_are_those_of_a_decomposition(monkeypatch, name, most):
    monkeypatch.setattr(block_lanczos, "MAX_COLUMNS", most)
    A = matrix(SPECTRA[name])
    widths = []

    def product(V):
        widths.append(V.shape[1])
        return A @ V

    found = leading_pairs(product, len(A), 3)
    np.testing.assert_allclose(found.values, np.sort(SPECTRA[name])[::-1][:3], atol=1e-9)
    np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(3), atol=1e-9)
    assert np.linalg.norm(A @ found.vectors - found.vectors * found.values, axis=0).max() <= 1.1e-8 * np.abs(SPECTRA[name]).max()
    assert found.residual <= 1e-8
    assert found.products == len(widths) and max(widths) <= block_columns(3)[0]


def test_what_is_left_is_told_where_products_run_out(monkeypatch):
    monkeypatch.setattr(block_lanczos, "MAX_PRODUCTS", 2)
    A = matrix(SPECTRA["slow"])
    found = leading_pairs(lambda V: A @ V, len(A), 3)
    exact = np.linalg.norm(A @ found.vectors - found.vectors * found.values, axis=0).max() / found.values[0]
    assert found.products == 2 and found.residual > 1e-4
    assert found.residual == pytest.approx(exact, rel=1e-2)


def test_a_matrix_of_zeros_and_repeated_calls():
    found = leading_pairs(lambda V: np.zeros_like(V), 30, 2)
    assert (found.values == 0).all() and found.products == 1
    A = matrix(SPECTRA["slow"])
    first, again = (leading_pairs(lambda V: A @ V, len(A), 2) for _ in range(2))
    assert first.vectors.tobytes() == again.vectors.tobytes()

"""The map of unseen rows: its formula, its leave-one-out residuals, and its limit without a ridge."""

from __future__ import annotations

import numpy as np
import pytest

from gramplane.kernels.spectral.row_map import RIDGES, fit_row_map


def problem(seed: int, n: int = 18, k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    kernel = np.exp(-0.3 * ((X[:, None] - X) ** 2).sum(axis=2))
    return kernel, np.tanh(X[:, :k]) + 0.1 * rng.normal(size=(n, k))


def left_out_error(kernel: np.ndarray, points: np.ndarray, ridge: float) -> float:
    """Squared errors of fits without one row each, made one by one."""
    total = 0.0
    for i in range(len(kernel)):
        kept = np.delete(np.arange(len(kernel)), i)
        coef = np.linalg.solve(kernel[np.ix_(kept, kept)] + ridge * np.eye(len(kept)), points[kept])
        total += float(((points[i] - kernel[i, kept] @ coef) ** 2).sum())
    return total


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("unit", [1.0, 40.0])
def test_the_ridge_is_the_best_of_fits_without_one_row_each(seed: int, unit: float) -> None:
    kernel, points = problem(seed)
    kernel *= unit
    errors = [left_out_error(kernel, points, unit * ridge) for ridge in RIDGES]
    found = fit_row_map(kernel.copy(), points)
    assert found.ridge == pytest.approx(unit * RIDGES[int(np.argmin(errors))])
    assert found.error == pytest.approx(min(errors) / (points**2).sum(), rel=1e-6)
    assert np.allclose(found.coef, np.linalg.solve(kernel + found.ridge * np.eye(len(kernel)), points), rtol=1e-7)


def test_coordinates_the_kernel_reproduces_need_no_ridge_and_noise_needs_the_largest() -> None:
    kernel, _ = problem(5)
    smooth = kernel @ np.random.default_rng(0).normal(size=(18, 2))
    found = fit_row_map(kernel.copy(), smooth)
    assert np.allclose(kernel @ found.coef, smooth, atol=0.02 * np.abs(smooth).max()) and found.ridge < 0.1
    noise = np.random.default_rng(1).normal(size=(18, 2))
    assert fit_row_map(kernel.copy(), 0 * noise).error == 0.0
    assert fit_row_map(kernel.copy(), noise).ridge == RIDGES[-1] and fit_row_map(kernel.copy(), noise).error > 0.9

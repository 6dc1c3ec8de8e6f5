"""Additive maps: their kernels, scores without expansion, and columns."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.kernel_approximation import AdditiveChi2Sampler

from gramplane.kernels.features.expansions import GAUSSIAN_REACH, Expansion, expand, expanded_scores, gaussian_error_bound, gaussian_period
from gramplane.kernels.features.scores import correlations
from gramplane.kernels.features.views import Columns

FEW = settings(max_examples=30, deadline=None)
HIK = Expansion("hik")
POWER = Expansion("hik", exponent=0.6)
CHI2 = Expansion("additive_chi2")
GAUSS = Expansion("additive_gaussian", gamma=2.0)


def data(n: int = 40, k: int = 9, bins: int = 100) -> tuple[np.ndarray, np.ndarray]:
    """Multiples of 1 / bins with zeros; every column reaches 1."""
    rng = np.random.default_rng(n + k)
    X = np.round(rng.random((n, k)) * bins) / bins * (rng.random((n, k)) < 0.6)
    X[rng.integers(n), :] = 1.0
    return X, rng.normal(size=n) * (rng.random(n) < 0.8)


def ranges(X: Columns) -> tuple[np.ndarray, np.ndarray]:
    return dense(X).min(axis=0).astype(np.float64), dense(X).max(axis=0).astype(np.float64)


def gaussian(x: np.ndarray, z: np.ndarray, gamma: float) -> np.ndarray:
    return np.exp(-gamma * np.subtract.outer(x, z) ** 2)


def dense(X: Columns) -> np.ndarray:
    return X if isinstance(X, np.ndarray) else X.toarray()


# --- histogram intersection -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 0.3, 7.0, 255.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_unary_code_reproduces_min_on_multiples_of_a_bin(scale: float, dtype: type) -> None:
    grid = (np.arange(101) / 100 * scale).astype(dtype)
    for block in (grid[:, None], sp.csc_array(grid[:, None])):
        columns = dense(expand(block, HIK, *ranges(block)))
        exact = np.minimum.outer(grid, grid).astype(np.float64)
        assert np.allclose(columns @ columns.T, exact, rtol=2e-7 if dtype is np.float32 else 1e-14, atol=0)


@FEW
@given(st.integers(1, 30), st.lists(st.floats(0, 5, allow_subnormal=False), min_size=2, max_size=12))
def test_unary_code_is_within_a_bin_anywhere(n_bins: int, numbers: list[float]) -> None:
    x = np.array(numbers)
    columns = expand(x[:, None], Expansion("hik", n_bins=n_bins), np.zeros(1), x.max(keepdims=True))
    gap = np.minimum.outer(x, x) - dense(columns) @ dense(columns).T
    assert np.all(gap >= -1e-5) and np.all(gap <= x.max() / n_bins * 1.00001)


def test_histogram_scores_are_the_kernels_quadratic_forms() -> None:
    X, u = data()
    expected = [u @ np.minimum.outer(x, x) @ u for x in X.T]
    assert np.allclose(expanded_scores(X, u, HIK, *ranges(X)), expected, rtol=1e-11)


@pytest.mark.parametrize("a", [0.4, 1.0, 2.5])
def test_powers_of_either_sign_reproduce_the_generalised_kernel(a: float) -> None:
    levels = np.arange(101) / 100 * 7.0**a
    x = (levels ** (1 / a) * np.where(np.arange(101) % 3 == 1, -1.0, 1.0))[:, None]
    exact = np.minimum.outer(levels, levels)
    u = np.random.default_rng(0).normal(size=101)
    for block in (x, sp.csc_array(x)):
        columns = dense(expand(block, Expansion("hik", exponent=a), *ranges(x)))
        assert np.allclose(columns @ columns.T, exact, rtol=1e-12, atol=0)
        assert np.allclose(expanded_scores(block, u, Expansion("hik", exponent=a), *ranges(x)), u @ exact @ u, rtol=1e-11)
        assert np.array_equal(dense(expand(-1e9 * block, Expansion("hik", exponent=a), *ranges(x)))[1:], np.full((100, 100), columns.max()))


def test_values_beyond_the_training_range_are_taken_at_its_ends() -> None:
    x = np.array([[-1.0], [0.0], [0.5], [2.0], [9.0]])
    for expansion in (HIK, GAUSS):
        inside = dense(expand(np.clip(x, 0, 2), expansion, np.zeros(1), np.full(1, 2.0)))
        assert np.array_equal(dense(expand(x, expansion, np.zeros(1), np.full(1, 2.0))), inside)


# --- additive Gaussian ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.01, 1.0, 4.0, 16.0, 60.0])
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, -2.5), (0.0, 40.0)])
def test_gaussian_map_is_within_its_error_bound(gamma: float, low: float, high: float) -> None:
    x = np.linspace(low, high, 160)
    gamma = gamma / (high - low) ** 2
    columns = dense(expand(x[:, None], Expansion("additive_gaussian", gamma=gamma), np.array([low]), np.array([high])))
    worst = np.abs(columns @ columns.T - gaussian(x, x, gamma)).max()
    bound = float(gaussian_error_bound(gamma, np.array([high - low]))[0])
    assert columns.shape == (160, 11)
    assert bound / 50 < worst <= bound


def test_gaussian_bound_is_small_for_moderate_widths() -> None:
    assert gaussian_error_bound(1.0, np.array([1.0, 4.0])).tolist() == pytest.approx([8.5e-7, 1.1e-3], rel=0.05)
    reach = np.sqrt(GAUSSIAN_REACH)
    assert gaussian_error_bound(1.0, np.array(reach)) <= 1e-3 < gaussian_error_bound(1.0, np.array(1.005 * reach))
    assert gaussian_period(1.0, np.array([0.0]))[0] == pytest.approx(np.sqrt(6 * np.pi))


def test_gaussian_scores_are_the_kernels_quadratic_forms() -> None:
    X, u = data()
    expected = np.array([u @ gaussian(x, x, 2.0) @ u for x in X.T])
    slack = gaussian_error_bound(2.0, np.ones(X.shape[1])) * np.abs(u).sum() ** 2
    assert np.all(np.abs(expanded_scores(X, u, GAUSS, *ranges(X)) - expected) <= slack + 1e-10)


# --- additive chi-squared ---------------------------------------------------------------------------------------------------------


def test_chi_squared_columns_are_those_of_the_sampler_and_near_the_kernel() -> None:
    X, _ = data()
    X *= np.logspace(-3, 3, X.shape[1])
    columns = dense(expand(X, CHI2, *ranges(X)))
    sampled = AdditiveChi2Sampler(sample_steps=2).fit_transform(X)
    k = X.shape[1]
    order = np.arange(3 * k).reshape(3, k).T.ravel()  # the sampler has all first columns, then all second and third ones
    assert np.allclose(columns, sampled[:, order], rtol=1e-9, atol=1e-12)
    ratios = np.logspace(-3, 3, 601)
    maps = dense(expand(np.append(ratios, 1.0)[:, None], CHI2, np.zeros(1), np.full(1, 1e3)))
    assert np.all(np.abs(maps[:-1] @ maps[-1] - 2 * ratios / (1 + ratios)) <= 0.104 * np.sqrt(ratios))
    assert np.array_equal(dense(expand(np.array([[-1.0], [0.0]]), CHI2, np.zeros(1), np.ones(1))), np.zeros((2, 3)))


# --- both -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expansion", [HIK, POWER, GAUSS, CHI2, Expansion("hik", n_bins=3), Expansion()])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scores_are_the_norms_of_the_expanded_columns_in_every_form(expansion: Expansion, dtype: type) -> None:
    X, u = data(60, 300)
    X = X.astype(dtype)
    bounds = ranges(X)
    scores = expanded_scores(X, u, expansion, *bounds)
    columns = dense(expand(X, expansion, *bounds))
    assert columns.shape == (60, 300 * expansion.width)
    assert np.allclose(scores, ((columns.T @ u).reshape(300, -1) ** 2).sum(axis=1), rtol=1e-9)
    for block in (np.asfortranarray(X), sp.csc_array(X)):
        assert np.array_equal(expanded_scores(block, u, expansion, *bounds), scores)
        assert np.array_equal(dense(expand(block, expansion, *bounds)), columns)


@pytest.mark.parametrize("expansion", [HIK, POWER, GAUSS, CHI2])
def test_stripes_give_the_same_bits(expansion: Expansion) -> None:
    X, u = data(30, 20)
    low, high = ranges(X)
    whole = expanded_scores(X, u, expansion, low, high)
    parts = [expanded_scores(X[:, a:b], u, expansion, low[a:b], high[a:b]) for a, b in ((0, 3), (3, 4), (4, 20))]
    assert np.array_equal(np.concatenate(parts), whole)


def test_sparse_code_is_well_formed() -> None:
    X, _ = data()
    columns = expand(sp.csc_array(X), HIK, *ranges(X))
    assert isinstance(columns, sp.csc_array) and columns.indices.dtype == np.int32
    assert columns.has_sorted_indices and columns.has_canonical_format


def test_empty_and_constant_columns() -> None:
    X = np.array([[0.0, 2.0], [0.0, 2.0], [0.0, 2.0]])
    u = np.array([1.0, -3.0, 0.5])
    for block in (X, sp.csc_array(X)):
        assert np.allclose(expanded_scores(block, u, HIK, *ranges(X)), [0.0, 2.0 * 1.5**2])
        assert np.allclose(expanded_scores(block, u, GAUSS, *ranges(X)), 1.5**2)
        assert dense(expand(block, HIK, *ranges(X)))[:, :100].max() == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Expansion("spline"), "feature map is 'spline'"),  # type: ignore[arg-type]
        (lambda: Expansion("additive_gaussian", gamma=0.0), "gamma is 0.0"),
        (lambda: Expansion("hik", n_bins=0), "n_bins is 0"),
        (lambda: Expansion("hik", exponent=0.0), "exponent is 0.0"),
        (lambda: expanded_scores(np.eye(2), np.ones(2), HIK, np.array([0.0, -1.0]), np.ones(2)), "column 1 of the block holds -1"),
        (lambda: expand(np.eye(2), CHI2, np.array([0.0, -1.0]), np.ones(2)), "feature map 'additive_chi2' needs values >= 0"),
        (lambda: expanded_scores(np.eye(2), np.ones(2), HIK, np.zeros(3), np.ones(2)), r"minimum has shape \(3,\)"),
        (lambda: expanded_scores(np.eye(2), np.ones(2), GAUSS, np.zeros(2), np.array([1, np.inf])), r"maximum\[1\] is not finite"),
        (lambda: expanded_scores(np.eye(2), np.ones(3), GAUSS, np.zeros(2), np.ones(2)), "the 2 rows of X"),
        (lambda: expand(np.eye(2), GAUSS, np.zeros(2), np.ones(1)), r"maximum has shape \(1,\)"),
    ],
)
def test_bad_values_are_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_identity_is_the_square_of_the_correlation() -> None:
    X, u = data()
    assert np.array_equal(expanded_scores(X, u, Expansion(), *ranges(X)), correlations(X, u) ** 2)
    assert expand(X, Expansion(), *ranges(X)) is X

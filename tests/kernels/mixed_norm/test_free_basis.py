"""Bases of columns without a penalty: what they span, coefficients there and back, and what is refused."""

import numpy as np
import pytest

from gramplane.kernels.mixed_norm.elimination import (
    DependentColumns,
    bias_basis,
    constant_columns,
    dependent_columns,
    free_basis,
    separates_alone,
    separating_direction,
)

UNITS = np.array([2.0**-80, 1.0, 2.0**90])
"""Powers of two, which change no bit but the exponents."""


def given(q=3, n=40, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, q)) @ rng.normal(size=(q, q)) + rng.normal(size=q)


@pytest.mark.parametrize("has_bias", [False, True])
def test_columns_are_orthogonal_and_span_what_was_given(has_bias):
    Z = given()
    basis = free_basis(Z, has_bias)
    np.testing.assert_allclose(basis.columns.T @ basis.columns / len(Z), np.eye(3 + has_bias), atol=1e-12)
    g = np.arange(1.0, basis.q + 1)
    constant, coef = basis.given(g)
    np.testing.assert_allclose(basis.columns @ g, constant + Z @ coef, rtol=1e-10)
    np.testing.assert_allclose(basis.own(constant, coef), g, rtol=1e-10)
    assert basis.spans_constant == has_bias


def test_a_bias_alone_and_nothing():
    for has_bias in (False, True):
        basis = bias_basis(5, has_bias)
        assert basis.columns.shape == (5, int(has_bias))
        assert basis.given(np.full(basis.q, 2.0))[0] == 2.0 * has_bias
        assert basis.spans_constant == has_bias


def test_columns_of_indicators_span_the_constant():
    levels = np.arange(40) % 3
    assert free_basis(np.eye(3)[levels], False).spans_constant
    assert not free_basis(np.eye(3)[levels][:, :2], False).spans_constant
    with pytest.raises(DependentColumns):
        free_basis(np.eye(3)[levels], True)


@pytest.mark.parametrize("has_bias", [False, True])
def test_units_of_columns_do_not_matter(has_bias):
    Z = given()
    one, other = free_basis(Z, has_bias), free_basis(Z * UNITS, has_bias)
    np.testing.assert_allclose(one.columns, other.columns, rtol=1e-9, atol=1e-12)
    g = np.ones(one.q)
    np.testing.assert_allclose(one.given(g)[1], other.given(g)[1] * UNITS, rtol=1e-9)


def test_dependent_columns_are_found_in_any_unit():
    Z = given(5)
    Z[:, 3] = Z[:, 0] - 2 * Z[:, 1]
    for units in (np.ones(5), 2.0 ** np.array([60, -60, 0, 30, -5])):
        found = dependent_columns(Z * units, False)
        assert len(found) == 1
        assert found[0] in (0, 1, 3)
        with pytest.raises(DependentColumns) as caught:
            free_basis(Z * units, False)
        assert caught.value.columns == found
    assert dependent_columns(np.ones((4, 1)), True) == [0]
    assert dependent_columns(np.ones((4, 1)), False) == []
    assert len(dependent_columns(given(5, n=3), False)) == 2
    assert constant_columns(np.c_[given(1), np.full(40, 7.0)]) == [1]


def test_rows_far_from_zero_are_not_taken_for_constant():
    years = 2000.0 + np.arange(40) % 12
    assert dependent_columns(years[:, None], True) == []
    basis = free_basis(years[:, None], True)
    constant, coef = basis.given(np.array([3.0, 1.0]))
    np.testing.assert_allclose(basis.columns @ [3.0, 1.0], constant + years * coef[0], atol=1e-11)


@pytest.mark.parametrize("has_bias", [False, True])
def test_separation(has_bias):
    rng = np.random.default_rng(2)
    Z, cost = rng.normal(size=(60, 3)), np.ones(60)
    columns = np.c_[np.ones(60), Z] if has_bias else Z
    plane = np.where(Z @ [1.0, -2.0, 0.5] + 0.3 * has_bias > 0, 1.0, -1.0)
    direction = separating_direction(columns, plane, cost)
    assert direction is not None
    margins = plane * (columns @ direction)
    assert margins.min() >= -1e-9
    assert margins.max() > 0
    noisy = plane * np.where(np.arange(60) % 3 == 0, -1.0, 1.0)
    assert separating_direction(columns, noisy, cost) is None
    # Rows without a cost do not count.
    assert separating_direction(columns, noisy, (noisy == plane).astype(float)) is not None


def test_one_column_separates_by_a_threshold():
    y = np.array([-1.0, -1.0, 1.0, 1.0])
    for column in ([1.0, 2.0, 2.0, 5.0], [7.0, 6.0, 6.0, 2.0], [0.0, 0.0, 0.0, 1.0]):
        assert separates_alone(np.array(column), y, True)
        assert separating_direction(np.c_[np.ones(4), column], y, np.ones(4)) is not None
    assert not separates_alone(np.array([1.0, 3.0, 2.0, 5.0]), y, True)
    assert not separates_alone(np.array([1.0, 2.0, 3.0, 5.0]), y, False)
    assert separates_alone(np.array([-1.0, 0.0, 0.0, 5.0]), y, False)

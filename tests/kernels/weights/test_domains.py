"""Feasible sets of weights against a general-purpose solver."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from gramplane.kernels.weights.domains import BoxSet, ElasticNetSet, L1LpSet, LpBall, NonNegative, Simplex

NUMBERS = st.lists(st.floats(-50, 50), min_size=1, max_size=7).map(np.array)


def by_slsqp(value, n):
    total = {"type": "eq", "fun": lambda v: v.sum() - 1}
    start = np.full(n, 1 / n)
    return minimize(value, start, bounds=[(1e-12, 1)] * n, constraints=[total], method="SLSQP", options={"ftol": 1e-14, "maxiter": 500}).x


@pytest.mark.parametrize(
    "domain", [Simplex(), ElasticNetSet(1.0), ElasticNetSet(), LpBall(), LpBall(1.5), L1LpSet(0.3, 1.5), BoxSet(2), NonNegative()], ids=str
)
def test_results_lie_in_the_set(domain):
    rng = np.random.default_rng(0)
    for n in (1, 2, 9):
        w = domain.start(n)
        for point in (
            w,
            domain.project(3 * rng.normal(size=n)),
            domain.mirror(w, rng.normal(size=n), 2.0),
            domain.support(rng.normal(size=n))[1],
        ):
            assert (point >= 0).all()
            assert domain.violation(point) <= 1e-12
            if domain == Simplex():
                assert point.sum() == pytest.approx(1.0)


@settings(max_examples=60, deadline=None)
@given(NUMBERS)
def test_projection_is_the_nearest_point(w):
    found = Simplex().project(w)
    # The optimality condition of the projection: w - found is largest, and equal, where weight was put.
    rest = w - found
    assert np.all(rest[found > 0] >= rest.max() - 1e-9)
    np.testing.assert_allclose(Simplex().project(found), found, atol=1e-12)


def test_projection_agrees_with_slsqp():
    w = np.array([0.9, 0.5, -0.2, 0.3])
    np.testing.assert_allclose(Simplex().project(w), by_slsqp(lambda v: np.sum((v - w) ** 2), 4), atol=1e-6)


def test_mirror_step_agrees_with_slsqp():
    w, grad = np.array([0.5, 0.3, 0.2]), np.array([1.0, -2.0, 0.5])
    wanted = by_slsqp(lambda v: 0.7 * grad @ v + np.sum(v * np.log(v / w)), 3)
    np.testing.assert_allclose(Simplex().mirror(w, grad, 0.7), wanted, atol=1e-6)


def test_mirror_survives_huge_gradients_and_keeps_zeros():
    np.testing.assert_array_equal(Simplex().mirror(np.array([0.5, 0.5, 0.0]), np.array([1e6, 0.0, -1e6]), 1.0), [0, 1, 0])


def test_support_is_the_best_vertex_and_the_first_of_equals():
    best, vertex = Simplex().support(np.array([1.0, 4.0, 4.0]))
    assert best == 4.0
    np.testing.assert_array_equal(vertex, [0, 1, 0])

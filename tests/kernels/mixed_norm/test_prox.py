"""The squared mixed norm's proximal operator."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gramplane.kernels.mixed_norm.apg import group_norms, prox_squared_mixed_norm
from tests.support.oracles.fgm_subproblem import prox_by_bisection

GROUPS = st.lists(st.lists(st.floats(-100, 100).map(lambda v: round(v, 3)), min_size=1, max_size=4), min_size=1, max_size=6)
TAU = st.floats(1e-3, 1e3)


def flat(groups):
    return np.concatenate([np.array(g) for g in groups]), np.cumsum([0, *(len(g) for g in groups)])


def value(w, u, starts, tau):
    return tau / 2 * np.sum((w - u) ** 2) + 0.5 * group_norms(w, starts).sum() ** 2


@settings(max_examples=60, deadline=None)
@given(GROUPS, TAU)
def test_agrees_with_bisection(groups, tau):
    u, starts = flat(groups)
    w, threshold = prox_squared_mixed_norm(u, starts, tau)
    np.testing.assert_allclose(w, prox_by_bisection(u, starts, tau), atol=1e-9)
    assert threshold == pytest.approx(group_norms(w, starts).sum() / tau, abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(GROUPS, TAU, st.integers(0, 1000))
def test_no_perturbation_is_lower(groups, tau, seed):
    u, starts = flat(groups)
    w, _ = prox_squared_mixed_norm(u, starts, tau)
    rng = np.random.default_rng(seed)
    for size in (1e-3, 1e-1, 10.0):
        other = w + size * rng.normal(size=len(w))
        assert value(w, u, starts, tau) <= value(other, u, starts, tau) * (1 + 1e-12) + 1e-9


@settings(max_examples=30, deadline=None)
@given(GROUPS, TAU, st.integers(0, 1000))
def test_never_moves_two_points_apart(groups, tau, seed):
    u, starts = flat(groups)
    v = u + np.random.default_rng(seed).normal(size=len(u))
    moved = prox_squared_mixed_norm(u, starts, tau)[0] - prox_squared_mixed_norm(v, starts, tau)[0]
    assert np.linalg.norm(moved) <= np.linalg.norm(u - v) * (1 + 1e-12)


def test_follows_rotations_inside_groups_and_permutations_of_groups():
    rng = np.random.default_rng(0)
    u, starts = rng.normal(size=9), np.array([0, 3, 6, 9])
    w, _ = prox_squared_mixed_norm(u, starts, 0.7)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    turned, _ = prox_squared_mixed_norm(np.concatenate([rotation @ u[:3], u[6:], u[3:6]]), starts, 0.7)
    np.testing.assert_allclose(turned, np.concatenate([rotation @ w[:3], w[6:], w[3:6]]), atol=1e-12)


def test_zero_groups_stay_exactly_zero():
    w, threshold = prox_squared_mixed_norm(np.array([0.0, 0.0, 3.0, 4.0]), np.array([0, 2, 4]), 1.0)
    np.testing.assert_allclose(w, [0, 0, 1.5, 2.0])
    assert threshold == pytest.approx(2.5)
    nothing, none = prox_squared_mixed_norm(np.zeros(4), np.array([0, 2, 4]), 1.0)
    assert not nothing.any()
    assert none == 0.0


@pytest.mark.parametrize("tau", [0.0, -1.0, np.nan])
def test_bad_weight_is_refused(tau):
    with pytest.raises(ValueError, match=r"tau=.*must be positive"):
        prox_squared_mixed_norm(np.ones(2), np.array([0, 2]), tau)

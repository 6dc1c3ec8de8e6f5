"""The proximal step of L_p norms: against a general solver, and by the certificate that proves it optimal."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gramplane.kernels.group_lasso.lp_norms import lp_norm, prox_entry, prox_size
from tests.support.oracles import lp_norms as oracle

NONE = np.zeros(0, np.int64)
POWERS = [1.01, 1.5, 2.0, 3.0, 20.0, np.inf]


def prox(v, bar, p):
    size = prox_size(v, NONE, 0, len(v), bar, p)
    return np.array([prox_entry(x, size, bar, p) for x in v]), size


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("share", [0.2, 0.9])
def test_it_is_the_point_of_a_general_solver(p, share):
    v = np.random.default_rng(3).normal(size=4)
    bar = share * oracle.norm(v, oracle.dual_power(p))
    w, size = prox(v, bar, p)
    np.testing.assert_allclose(w, oracle.prox(v, bar, p), atol=2e-6)
    assert size == pytest.approx(oracle.norm(w, p), rel=1e-12)
    members = np.array([9, 3, 0, 2, 1, 9])
    assert prox_size(v, members, 1, 5, bar, p) == pytest.approx(size, rel=1e-14)


@given(
    st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=1, max_size=8),
    st.floats(0, 1.2),
    st.one_of(st.sampled_from(POWERS), st.floats(1.005, 200)),
)
@example([0.0, 0.0], 0.5, 3.0)
@example([1.0, 1.0, 1.0], 1.0, np.inf)
@example([1.0, 1e-3, -1e-6], 0.0, 1.5)
@settings(deadline=None)
def test_residual_and_norm_certify_the_point(entries, share, p):
    v, q = np.array(entries), oracle.dual_power(p)
    largest = oracle.norm(v, q)
    bar = share * largest
    w, _ = prox(v, bar, p)
    # w is optimal if and only if v - w is in the dual ball and touches w there.
    scale = max(np.abs(v).max(), 1e-300)
    assert oracle.norm(v - w, q) <= bar * (1 + 1e-9) + 1e-11 * scale
    assert abs(w @ (v - w) - bar * oracle.norm(w, p)) <= 1e-9 * scale * scale * len(v)
    assert (w * v >= 0).all()
    if abs(largest - bar) > 1e-12 * largest:  # else rounding decides
        assert w.any() == (largest > bar)
    assert lp_norm(v, NONE, 0, len(v), p) == pytest.approx(oracle.norm(v, p), rel=1e-12)

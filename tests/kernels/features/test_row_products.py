"""Products of rows: the same bits for any number of BLAS threads, whoever multiplies."""

import numpy as np
import pytest
import threadpoolctl

from gramplane.kernels.features.rows_at_hand import BLOCK_VALUES, row_edges, row_product
from gramplane.kernels.jit import blas_threads, one_thread

pytestmark = pytest.mark.threads


def limited(threads, X, W):
    with threadpoolctl.threadpool_limits(threads, user_api="blas"):
        return row_product(X, W)


FORMS = {
    "rows": lambda X: X,
    "columns": np.asfortranarray,
    "single": lambda X: X.astype(np.float32),
    "every-other": lambda X: np.repeat(X, 2, axis=0)[::2],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("n", "d", "m"), [(1, 20_000, 1), (2003, 700, 1), (2003, 2000, 3), (9001, 700, 8), (0, 5, 2), (5, 0, 2)])
def test_the_number_of_threads_changes_no_bit(n, d, m, form):
    rng = np.random.default_rng(n + d)
    X, W = FORMS[form](rng.normal(size=(n, d))), rng.normal(size=(m, d))
    found = [limited(threads, X, W) for threads in (1, 2, 3)]
    assert all(other.tobytes() == found[0].tobytes() for other in found[1:])
    with one_thread():
        assert row_product(X, W).tobytes() == found[0].tobytes()
    assert found[0].dtype == np.float64 and found[0].shape == (n, m)
    np.testing.assert_allclose(found[0], np.asarray(X, np.float64) @ W.T, rtol=1e-10, atol=1e-10)


def test_blocks_follow_from_the_shape_alone_and_cover_all_rows():
    for n, d in ((0, 3), (1, 1), (10**6, 1), (5000, 700), (300, 10**7)):
        edges = row_edges(n, d)
        assert edges[-1] == n and edges == sorted(set(edges))
        sizes = np.diff(edges)
        assert all(size * d <= max(BLOCK_VALUES, 64 * d) for size in sizes) and all(size % 64 == 0 for size in sizes[:-1])


def test_threads_are_those_outside_of_a_hold():
    for threads in (1, 2):
        with threadpoolctl.threadpool_limits(threads, user_api="blas"):
            outside = max(pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas")
            assert blas_threads() == outside
            with one_thread(), one_thread():
                assert blas_threads() == outside
            assert blas_threads() == outside

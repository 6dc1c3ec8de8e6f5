"""Factors of rows and columns against NumPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.pipeline.passes.scaling import inverse_row_norms


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_rows_times_their_factor_have_length_one_and_empty_ones_stay_empty(form, dtype):
    X = np.random.default_rng(0).normal(size=(20, 5)).astype(dtype)
    X[3] = 0
    X[4] *= 1e30 if dtype == "f4" else 1e100
    factors = inverse_row_norms(form(X))
    assert factors.dtype == np.float64 and factors[3] == 0
    lengths = np.linalg.norm(X.astype(np.float64) * factors[:, None], axis=1)
    np.testing.assert_allclose(np.delete(lengths, 3), 1.0, rtol=1e-12)

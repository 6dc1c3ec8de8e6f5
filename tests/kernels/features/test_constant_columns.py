"""Columns whose entries are all equal, in every form of block."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gramplane.kernels.features.views import constant_columns


@settings(max_examples=80, deadline=None)
@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.sampled_from([0.0, 1.0, -2.0])))
def test_constant_columns_are_those_with_one_value_that_is_not_zero(X):
    wanted = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) == 1 and X[0, j] != 0]
    for block in (X, np.asfortranarray(X), sp.csc_array(X)):
        found = constant_columns(block)
        assert found.dtype == np.int64
        assert found.tolist() == wanted


@pytest.mark.parametrize("place", [0, 1, 1500, 2999])
def test_one_other_entry_anywhere_is_found(place):
    X = np.full((3000, 3), 7.0)
    X[place, 1] = 6.0
    assert constant_columns(X).tolist() == constant_columns(sp.csc_array(X)).tolist() == [0, 2]


def test_stored_zeros_are_no_constant():
    block = sp.csc_array((np.zeros(4), (np.arange(4), np.zeros(4, int))), shape=(4, 2))
    assert block.nnz == 4
    assert constant_columns(block).size == 0
    assert constant_columns(np.zeros((0, 3))).size == 0

"""Sparse columns collected by rows: the same matrix as SciPy's, whatever the pieces."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from gramplane.kernels.features.rows_at_hand import RowForm


def columns(n: int, k: int, density: float, dtype: type, seed: int) -> sp.csc_array:
    """Return random sparse columns."""
    return sp.csc_array(sp.random_array((n, k), density=density, rng=np.random.default_rng(seed), dtype=np.float64)).astype(dtype)


@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.float64, np.float64), (np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("widths", [(1,), (3, 1, 4), (2, 0, 5)])
def test_appended_columns_are_those_of_a_stacked_matrix(dtypes: tuple[type, type], widths: tuple[int, ...]) -> None:
    parts = [columns(23, k, 0.3, dtypes[i % 2], i) for i, k in enumerate(widths)]
    form = RowForm.empty(23)
    for part in parts:
        form = form.with_columns(part)
    found, wanted = form.matrix(), sp.csr_array(sp.hstack(parts, format="csr"))
    wanted.sort_indices()
    assert found.shape == wanted.shape
    assert found.dtype == np.result_type(np.float32, *(part.dtype for part in parts))
    for name in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name)), name


def test_rows_are_sorted_although_rows_of_a_column_are_not() -> None:
    part = sp.csc_array((np.array([1.0, 2.0, 3.0]), np.array([4, 0, 4]), np.array([0, 2, 3])), shape=(5, 2))
    found = RowForm.empty(5).with_columns(part).with_columns(part).matrix()
    assert found.indices.tolist() == [0, 2, 0, 1, 2, 3]
    assert np.array_equal(found.toarray(), np.hstack([part.toarray()] * 2))
    fresh = sp.csr_array((found.data, found.indices, found.indptr), shape=found.shape)
    assert found.has_sorted_indices and fresh.has_sorted_indices


def test_the_form_before_is_left_as_it_was() -> None:
    first = RowForm.empty(9).with_columns(columns(9, 3, 0.5, np.float64, 1))
    before = first.matrix().toarray()
    first.with_columns(columns(9, 2, 0.5, np.float64, 2))
    assert np.array_equal(first.matrix().toarray(), before)

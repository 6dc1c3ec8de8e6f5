"""Column scaling by factors, ``x~_ij = r_i (x_ij - mu_j) s_j``, applied when columns are read."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...storage.errors import Matrix, SparseMatrix
from ..core.resources import Resources
from ..records.scale import FeatureScale
from .blocks import Blocks, scale_as_given, scale_of
from .columns import Columns, fetch_columns


def scaled_values(values: np.ndarray, scale: FeatureScale) -> np.ndarray:
    """Scale one value per column. Factors are positive, so a column's minimum remains its minimum, and its maximum the maximum."""
    out = values.astype(np.float64)
    if scale.shift is not None:
        out -= scale.shift
    return out if scale.factor is None else out * scale.factor


def scaled(raw: Columns, scale: FeatureScale, row_factor: np.ndarray | None = None) -> Columns:
    """Return columns ``(n, k)`` scaled by each column's ``s`` and ``mu`` and by row factors ``(n,)``. If there are no factors, return the
    input itself.
    """
    if scale.factor is None and scale.shift is None and row_factor is None:
        return raw
    return _scaled_sparse(raw, scale, row_factor) if sp.issparse(raw) else _scaled_dense(raw, scale, row_factor)


def inverse_row_norms(X: Matrix) -> np.ndarray:
    """Return ``1 / ||x_i||`` of every row; 0 for a zero row."""
    squares = X.astype(np.float64).power(2) if sp.issparse(X) else np.square(X, dtype=np.float64)
    norms = np.sqrt(np.asarray(squares.sum(axis=1)).ravel())
    return np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)


def fetch_scaled(data: Blocks, resources: Resources, features: np.ndarray) -> Columns:
    """Fetch the columns of sorted distinct ``features`` and apply the stored scaling."""
    return scaled(fetch_columns(data, resources, features), scale_as_given(data, features), data.scale.row_factor)


def scaled_columns(data: Blocks, resources: Resources, features: np.ndarray, *, centred: bool) -> Columns:
    """Fetch the columns of sorted distinct ``features`` in one column pass and scale them."""
    columns = fetch_columns(data, resources, features, order="F")
    return scaled(columns, scale_of(data, features, centred=centred), data.scale.row_factor)


def _scaled_sparse(raw: SparseMatrix, scale: FeatureScale, row_factor: np.ndarray | None) -> sp.csc_array:
    data = raw.data.astype(np.float64)
    if scale.factor is not None:
        data *= np.repeat(scale.factor, np.diff(raw.indptr))
    if row_factor is not None:
        data *= row_factor[raw.indices]
    return sp.csc_array((data, raw.indices, raw.indptr), shape=raw.shape)


def _scaled_dense(raw: Matrix, scale: FeatureScale, row_factor: np.ndarray | None) -> np.ndarray:
    out = raw.astype(np.float64)
    if scale.shift is not None:
        out -= scale.shift
    if scale.factor is not None:
        out *= scale.factor
    if row_factor is not None:
        out *= row_factor[:, None]
    return out

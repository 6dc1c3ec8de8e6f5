"""Column blocks as flat vectors: what compiled loops read.

Compiled functions see one-dimensional writeable arrays only. So a read-only memory map, a strip of a wider array and either memory
order all run the same machine code, without a copy and without a second compilation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array

Columns = np.ndarray | sp.csc_array
"""``(n_samples, k)`` block of columns: dense, or CSC with rows ascending inside a column and no duplicates."""


class SparseView(NamedTuple):
    """CSC columns: ``values`` float32/float64, ``rows`` uint32, and ``starts`` uint32 ``(k + 1,)`` where each column begins."""

    values: Array
    rows: Array
    starts: Array


class DenseView(NamedTuple):
    """Dense columns: entry ``(i, j)`` is ``flat[i * row_step + j * column_step]``; one of the two steps is 1."""

    flat: Array
    row_step: int
    column_step: int


class _Alias:
    """Memory of an array under a flat, writeable description (nobody writes through it)."""

    def __init__(self, array: Array, size: int) -> None:
        self._owner = array
        self.__array_interface__ = {"shape": (size,), "typestr": array.dtype.str, "data": (array.ctypes.data, False), "version": 3}


def alias(array: Array, size: int) -> Array:
    """Return ``size`` numbers from the first one of an array on as a flat, writeable vector; nobody writes through it. Read-only arrays,
    which is what a cluster or a memory map hands over, are another type to numba: they would be compiled for anew.
    """
    return np.asarray(_Alias(array, size))


def flat(array: Array) -> Array:
    """Return a contiguous array as a one-dimensional writeable alias of the same memory."""
    if array.ndim == 1 and array.flags.writeable and array.flags.c_contiguous and array.flags.aligned:
        return array
    return alias(np.ascontiguousarray(array), array.size)


def shape(X: Columns | sp.csr_array) -> tuple[int, int]:
    """Return ``(n_samples, k)``; TypeError if ``X`` is not two-dimensional."""
    dimensions = getattr(X, "shape", None)
    if dimensions is None or len(dimensions) != 2:
        raise TypeError(f"X has shape {dimensions}; a block of columns has two dimensions")
    return int(dimensions[0]), int(dimensions[1])


def view(X: Columns) -> SparseView | DenseView:
    """Return the flat vectors of a block; TypeError if it is a sparse matrix in another form than CSC."""
    if isinstance(X, np.ndarray):
        return dense_view(X)
    if not sp.issparse(X) or X.format != "csc":
        raise TypeError(f"X is {getattr(X, 'format', type(X).__name__)}; a block of columns is an ndarray or CSC")
    return sparse_view(X)


def _native(array: Array) -> Array:
    """Return values as float32 or float64 in native byte order; everything but these two becomes float64."""
    if array.dtype in (np.float32, np.float64) and array.dtype.isnative:
        return array
    return array.astype(np.float32 if array.dtype == np.float32 else np.float64)


def _unsigned(index: Array, name: str) -> Array:
    """Return indices as uint32: no sign test in the inner loop."""
    if index.dtype == np.int32:
        return flat(index).view(np.uint32)
    if index.size and int(index[-1] if name == "indptr" else index.max()) > np.iinfo(np.uint32).max:
        raise ValueError(f"X.{name} exceeds 32 bits; cut the matrix into narrower blocks of columns")
    return index.astype(np.uint32)


def sparse_view(X: sp.csc_array) -> SparseView:
    """Return the flat vectors of a CSC block; ValueError if an index does not fit 32 bits."""
    return SparseView(flat(_native(X.data)), _unsigned(X.indices, "indices"), _unsigned(X.indptr, "indptr"))


def dense_view(X: Array) -> DenseView:
    """Return a dense block as a flat vector with two steps; only a block contiguous in neither direction is copied."""
    X = _native(X)
    (n, k), item = shape(X), X.itemsize
    if X.size == 0:
        return DenseView(np.zeros(0, X.dtype), max(k, 1), 1)
    down, across = X.strides[0], X.strides[1]
    if n == 1:
        down = item * k if across == item else item
    if k == 1:
        across = item * n if down == item else item
    usable = X.flags.aligned and min(down, across) == item and max(down, across) % item == 0
    if not usable or max(down, across) < item * (k if across == item else n):
        X = np.ascontiguousarray(X)
        down, across = item * k, item
    return DenseView(alias(X, ((n - 1) * down + (k - 1) * across) // item + 1), down // item, across // item)


def checked_dual(u: Array, n_samples: int, name: str = "u") -> Array:
    """Return a dual vector (or a stack of them, one per row) as contiguous float64; ValueError if length or an entry are wrong."""
    out = np.ascontiguousarray(u, dtype=np.float64)
    if out.shape[-1:] != (n_samples,):
        raise ValueError(f"{name} has shape {out.shape}; its last dimension must be the {n_samples} rows of X")
    if not np.isfinite(out).all():
        row = int(np.argmin(np.isfinite(out).reshape(-1, n_samples).all(axis=0)))
        raise ValueError(f"{name}[{row}] is not finite; a dual vector must be finite")
    return out if out.flags.writeable else out.copy()

"""A block of rows of Z, dense or sparse, with the four products that solvers need; sums are in float64 for every input type."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs

from ..arrays import Array, FloatArray, IntArray
from ..features.views import alias, flat, shape
from ..jit import compiled, one_thread

Matrix = Array | sp.csc_array | sp.csr_array  # Z, ``(n, p)``, float32 or float64.

PACK_ROWS = 512
"""Rows copied together before one symmetric product; a slice of some hundred columns then fits in the second-level cache."""

FEW_ROWS = 0.25
"""Share of rows with non-zero dual variable below which products with a column-major matrix read only these rows."""

_STRIP = 1024

_syrk: Any = get_blas_funcs("syrk", dtype=np.float64)


class RowBlock(Protocol):
    """Products with one block of rows Z of shape (n, p)."""

    n: int
    p: int

    def product(self, omega: FloatArray) -> FloatArray: ...

    def transposed(self, u: FloatArray) -> FloatArray: ...

    def add_gram(self, rows: IntArray, weights: FloatArray, gram: FloatArray, columns: FloatArray, cross: FloatArray) -> None:
        """Add sum_i w_i z_i z_i' to the lower triangle of ``gram`` (Fortran order); w may be negative.

        If there are further columns of the rows, ``(n, q)`` in C order, also add sum_i w_i z_i x_i' to ``cross`` ``(p, q)``.
        """
        ...

    def dense(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return some rows of some columns as a new array; both index arrays must be ascending."""
        ...


def row_block(matrix: Matrix | RememberingBlock) -> RowBlock:
    """Wrap a dense or sparse matrix. Dense matrices in C or F order, and slices of their rows, are not copied. A wrapped block is returned
    unchanged.
    """
    if isinstance(matrix, _DenseBlock | _SparseBlock | RememberingBlock):
        return matrix
    if matrix.dtype not in (np.float32, np.float64):
        raise TypeError(f"Z has dtype {matrix.dtype}: must be float32 or float64")
    return _DenseBlock(matrix) if isinstance(matrix, np.ndarray) else _SparseBlock(matrix)


class RememberingBlock:
    """A block that caches its last two products, for the current point and for the direction, because every pass needs them again. Results
    are bit-identical to those of the block itself.
    """

    def __init__(self, matrix: Matrix) -> None:
        self._block = row_block(matrix)
        self.n, self.p = self._block.n, self._block.p
        self._products: tuple[tuple[bytes, FloatArray], ...] = ()

    def product(self, omega: FloatArray) -> FloatArray:
        """Return Z omega, shape (n,); the result must not be modified."""
        key = omega.tobytes()
        product = next((product for past, product in self._products if past == key), None)
        if product is None:
            product = self._block.product(omega)
            self._products = (*self._products[-1:], (key, product))
        return product

    def transposed(self, u: FloatArray) -> FloatArray:
        return self._block.transposed(u)

    def add_gram(self, rows: IntArray, weights: FloatArray, gram: FloatArray, columns: FloatArray, cross: FloatArray) -> None:
        """Add sum_i w_i z_i z_i' to the lower triangle of `gram` and sum_i w_i z_i x_i' to `cross`."""
        self._block.add_gram(rows, weights, gram, columns, cross)

    def dense(self, rows: IntArray, columns: IntArray) -> FloatArray:
        """Return some rows of some columns as a new array; both index arrays must be ascending."""
        return self._block.dense(rows, columns)


class _DenseBlock:
    """Dense rows, addressed through one flat vector so that a slice of a larger array needs no copy."""

    def __init__(self, matrix: Array) -> None:
        self.n, self.p = matrix.shape
        size = matrix.itemsize
        if size not in matrix.strides or min(matrix.strides) < 0:
            matrix = np.asfortranarray(matrix)
        self._matrix, self._by_columns = matrix, matrix.strides[0] == size
        self._lead = matrix.strides[1 if self._by_columns else 0] // size
        lines, length = (self.p, self.n) if self._by_columns else (self.n, self.p)
        self._flat = alias(matrix, self._lead * (lines - 1) + length)

    def product(self, omega: FloatArray) -> FloatArray:
        out = np.zeros(self.n)
        (_product_by_columns if self._by_columns else _product_by_rows)(self._flat, self._lead, omega, out)
        return out

    def transposed(self, u: FloatArray) -> FloatArray:
        out = np.zeros(self.p)
        if not self._by_columns:
            _transposed_by_rows(self._flat, self._lead, u, out)
            return out
        rows = np.flatnonzero(u)
        if len(rows) < FEW_ROWS * self.n:
            _rows_by_columns(self._flat, self._lead, rows.view(np.uint64), u[rows], out)
        else:
            _transposed_by_columns(self._flat, self._lead, u, out)
        return out

    def add_gram(self, rows: IntArray, weights: FloatArray, gram: FloatArray, columns: FloatArray, cross: FloatArray) -> None:
        for sign in (1.0, -1.0):
            chosen, roots = _roots(rows, weights, sign)
            for start in range(0, len(chosen), PACK_ROWS):
                part, scale = chosen[start : start + PACK_ROWS], roots[start : start + PACK_ROWS]
                packed = np.empty((self.p, len(part)))
                _pack(self._flat, self._lead, self._by_columns, part, scale, packed)
                with one_thread():
                    _syrk(sign, packed.T, beta=1.0, c=gram, trans=1, lower=1, overwrite_c=1)
                    if cross.size:
                        cross += packed @ (columns[part] * (sign * scale)[:, None])

    def dense(self, rows: IntArray, columns: IntArray) -> FloatArray:
        return self._matrix[np.ix_(rows, columns)].astype(np.float64)


@compiled(deferred=True)
def _roots(rows: IntArray, weights: FloatArray, sign: float) -> tuple[IntArray, FloatArray]:
    """Return the rows whose weight has this sign, and the square roots of the absolute weights."""
    size = 0
    for i in range(rows.size):
        size += weights[i] * sign > 0.0
    chosen, roots = np.empty(size, np.intp), np.empty(size)
    at = 0
    for i in range(rows.size):
        if weights[i] * sign > 0.0:
            chosen[at] = rows[i]
            roots[at] = math.sqrt(abs(weights[i]))
            at += 1
    return chosen, roots


class _SparseBlock:
    """Sparse rows in CSR form with sorted column indices."""

    def __init__(self, matrix: sp.csc_array | sp.csr_array) -> None:
        self.n, self.p = shape(matrix)
        rows = matrix if matrix.format == "csr" else sp.csr_array(matrix)
        if not rows.has_sorted_indices:
            rows = rows.sorted_indices()
        # Unsigned indices, and positions, spare the compiled loops a test for negative ones: a quarter to a third of their time.
        self._indptr = rows.indptr.astype(np.int64)
        self._indices = flat(rows.indices.astype(np.int32, copy=False)).view(np.uint32)
        self._values = flat(rows.data)

    def product(self, omega: FloatArray) -> FloatArray:
        out = np.empty(self.n)
        _sparse_product(self._indptr, self._indices, self._values, omega, out)
        return out

    def transposed(self, u: FloatArray) -> FloatArray:
        out = np.zeros(self.p)
        _sparse_transposed(self._indptr, self._indices, self._values, u, out)
        return out

    def add_gram(self, rows: IntArray, weights: FloatArray, gram: FloatArray, columns: FloatArray, cross: FloatArray) -> None:
        _sparse_gram(self._indptr, self._indices, self._values, rows, weights, gram.T, columns, cross)

    def dense(self, rows: IntArray, columns: IntArray) -> FloatArray:
        place, out = np.full(self.p, -1), np.zeros((len(rows), len(columns)))
        place[columns] = np.arange(len(columns))
        _sparse_entries(self._indptr, self._indices, self._values, rows, place, out)
        return out


@compiled
def _sparse_entries(indptr: IntArray, indices: Array, values: Array, rows: IntArray, place: IntArray, out: FloatArray) -> None:
    for i in range(rows.size):
        for at in range(indptr[rows[i]], indptr[rows[i] + 1]):
            if place[indices[at]] >= 0:
                out[i, place[indices[at]]] = values[at]


@compiled(reassociate=True)
def _product_by_columns(flat: Array, lead: int, omega: FloatArray, out: FloatArray) -> None:
    # Four columns at a time over a strip of rows that stays in the first-level cache.
    p = omega.size
    for low in range(0, out.size, _STRIP):
        high = min(low + _STRIP, out.size)
        target = out[low:high]
        j = 0
        while j + 4 <= p:
            a = flat[j * lead + low : j * lead + high]
            b = flat[(j + 1) * lead + low : (j + 1) * lead + high]
            c = flat[(j + 2) * lead + low : (j + 2) * lead + high]
            d = flat[(j + 3) * lead + low : (j + 3) * lead + high]
            for i in range(high - low):
                target[i] += a[i] * omega[j] + b[i] * omega[j + 1] + c[i] * omega[j + 2] + d[i] * omega[j + 3]
            j += 4
        while j < p:
            a = flat[j * lead + low : j * lead + high]
            for i in range(high - low):
                target[i] += a[i] * omega[j]
            j += 1


@compiled(reassociate=True)
def _transposed_by_columns(flat: Array, lead: int, u: FloatArray, out: FloatArray) -> None:
    p = out.size
    for low in range(0, u.size, 4 * _STRIP):
        high = min(low + 4 * _STRIP, u.size)
        part = u[low:high]
        j = 0
        while j + 4 <= p:
            a = flat[j * lead + low : j * lead + high]
            b = flat[(j + 1) * lead + low : (j + 1) * lead + high]
            c = flat[(j + 2) * lead + low : (j + 2) * lead + high]
            d = flat[(j + 3) * lead + low : (j + 3) * lead + high]
            sum_a, sum_b, sum_c, sum_d = 0.0, 0.0, 0.0, 0.0
            for i in range(high - low):
                sum_a += a[i] * part[i]
                sum_b += b[i] * part[i]
                sum_c += c[i] * part[i]
                sum_d += d[i] * part[i]
            out[j] += sum_a
            out[j + 1] += sum_b
            out[j + 2] += sum_c
            out[j + 3] += sum_d
            j += 4
        while j < p:
            a = flat[j * lead + low : j * lead + high]
            sum_a = 0.0
            for i in range(high - low):
                sum_a += a[i] * part[i]
            out[j] += sum_a
            j += 1


@compiled
def _rows_by_columns(flat: Array, lead: int, rows: Array, u: FloatArray, out: FloatArray) -> None:
    # As _transposed_by_columns, of some rows: four sums at a time, which wait for each other less than one for itself.
    last = out.size - 1
    for j in range(0, out.size, 4):
        others = min(j + 1, last), min(j + 2, last), min(j + 3, last)
        first, second, third, fourth = j * lead, others[0] * lead, others[1] * lead, others[2] * lead
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for t in range(rows.size):
            i, x = rows[t], u[t]
            a += flat[np.uint64(first) + i] * x
            b += flat[np.uint64(second) + i] * x
            c += flat[np.uint64(third) + i] * x
            d += flat[np.uint64(fourth) + i] * x
        out[j] = a
        out[others[0]], out[others[1]], out[others[2]] = b, c, d


@compiled(reassociate=True)
def _product_by_rows(flat: Array, lead: int, omega: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        row = flat[i * lead : i * lead + omega.size]
        total = 0.0
        for j in range(omega.size):
            total += row[j] * omega[j]
        out[i] = total


@compiled(reassociate=True)
def _transposed_by_rows(flat: Array, lead: int, u: FloatArray, out: FloatArray) -> None:
    for i in range(u.size):
        if u[i] != 0.0:
            row = flat[i * lead : i * lead + out.size]
            for j in range(out.size):
                out[j] += u[i] * row[j]


@compiled
def _pack(flat: Array, lead: int, by_columns: bool, rows: IntArray, scale: FloatArray, packed: FloatArray) -> None:
    step_row = np.uint64(1 if by_columns else lead)
    step_column = np.uint64(lead if by_columns else 1)
    for j in range(packed.shape[0]):
        origin = np.uint64(j) * step_column
        for k in range(packed.shape[1]):
            packed[j, k] = flat[np.uint64(rows[k]) * step_row + origin] * scale[k]


@compiled
def _sparse_product(indptr: IntArray, indices: Array, values: Array, omega: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += values[k] * omega[indices[k]]
        out[i] = total


@compiled
def _sparse_transposed(indptr: IntArray, indices: Array, values: Array, u: FloatArray, out: FloatArray) -> None:
    for i in range(u.size):
        if u[i] != 0.0:
            for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
                out[indices[k]] += values[k] * u[i]


@compiled
def _sparse_gram(
    indptr: IntArray, indices: Array, values: Array, rows: IntArray, weights: Array, upper: Array, columns: Array, cross: Array
) -> None:
    # `upper` is the transposed view of the lower triangle: rows of it are contiguous and columns of a sparse row ascend.
    for r in range(rows.size):
        start, end = np.uint64(indptr[rows[r]]), np.uint64(indptr[rows[r] + 1])
        further = columns[rows[r]]
        for k in range(start, end):
            scaled = values[k] * weights[r]
            target = upper[indices[k]]
            for other in range(k, end):
                target[indices[other]] += scaled * values[other]
            across = cross[indices[k]]
            for other in range(further.size):
                across[other] += scaled * further[other]

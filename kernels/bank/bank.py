"""Many Gram matrices in memory, stored as packed upper triangles or read from the caller's whole matrices.

Rows are divided into bands of 128. In a band that starts at row f, the loops read the columns from f on: the square on the diagonal, and
the part to the right of this square. Packed triangles hold only these entries; whole matrices are read without a copy. The two layouts
differ only in the start of a band and the stride of its rows. The same loops therefore read both in the same order, with bit-identical
results. Entry (i, j) of all kernels is in the same column of one (k, entries) array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..arrays import Array, FloatArray, IntArray
from ..jit import one_thread
from .loops import BAND, combine_bands, count_packed, mirror_band, packed_bands, square_bands, sum_forms
from .products import bank_products, product_units
from .task_sums import bank_task_sums, check_codes, check_weights, combine_task_bands, task_units

GEMM_BYTES = 8 << 20  # Size of the float64 strip of entries that one matrix product of :meth:`PackedBank.inner_products` takes.


class PackedBank:
    """k symmetric n x n matrices ``K_q = scale_q R_q`` in memory, with R_q in float32 or float64; sums are accumulated in float64.

    The result for one kernel is bit-identical whichever other kernels are computed with it, except in :meth:`inner_products`.

    * ``values``: packed triangles ``(k, n_packed)``, used without a copy, or whole matrices ``(k, n * n)`` (:meth:`over`).
    * ``bands``, ``(n_bands, 2)``: for each band, the position of its first entry in a matrix, and the stride of its rows.
    * ``frozen``: a read-only view of the values. Packed and whole matrices thus have one array type, for which the loops are compiled once.
    * ``scale``, ``(k,)`` [default: ones]: factors of the kernels, which can be assigned to normalise without changing the values.
    """

    def __init__(self, values: Array, n: int) -> None:
        if values.dtype not in (np.float32, np.float64) or values.ndim != 2 or not values.flags.c_contiguous:
            raise ValueError(f"values: {values.ndim}-d {values.dtype}, must be a C-ordered array (k, n_packed) of float32 or float64")
        if n < 1 or values.shape[1] != count_packed(n) or not len(values):
            raise ValueError(f"values: shape {values.shape}, must be (k, {count_packed(max(n, 0))}) with k >= 1 for n={n}")
        self._set_layout(values, n, packed_bands(n))

    def _set_layout(self, values: Array, n: int, bands: IntArray) -> None:
        self.values, self.bands = values, bands
        self.frozen = values.view()
        self.frozen.flags.writeable = False
        self.n, self.k = n, len(values)
        self.scale: FloatArray = np.ones(self.k)
        self._areas: dict[tuple[int, int], IntArray] | None = None

    @classmethod
    def empty(cls, k: int, n: int, dtype: DTypeLike = np.float32) -> PackedBank:
        """Return a bank to be filled by :meth:`put`; computations fail until every entry has been stored."""
        bank = cls(np.empty((k, count_packed(n)), dtype=dtype), n)
        bank._areas = {}
        return bank

    def grown(self, k: int) -> PackedBank:
        """Return a bank of k kernels that starts with the kernels of this bank; :meth:`put` fills the rest. The memory grows in place, and
        this bank becomes unusable.
        """
        values, areas = self.values, self._areas
        del self.values, self.frozen
        values.resize((k, values.shape[1]), refcheck=False)
        bank = type(self)(values, self.n)
        bank._areas = None if areas is None else {span: np.append(area, np.zeros(k - self.k, np.int64)) for span, area in areas.items()}
        return bank

    @classmethod
    def from_dense(cls, grams: ArrayLike, dtype: DTypeLike = np.float32) -> PackedBank:
        """Return a bank made from whole matrices, shape (k, n, n); entries below the diagonals are not read."""
        matrices = np.asarray(grams)
        if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2]:
            raise ValueError(f"grams: shape {matrices.shape}, must be (k, n, n)")
        bank = cls.empty(matrices.shape[0], matrices.shape[1], dtype)
        for q in range(bank.k):
            bank.put(q, 0, 0, matrices[q])
        return bank

    @classmethod
    def over(cls, grams: Array) -> PackedBank:
        """Return a bank that reads whole matrices without a copy and never writes to them.

        ``grams``, ``(k, n, n)``, are float32 or float64 in C order and exactly symmetric, because both triangles of the squares on the
        diagonal are read.
        """
        if not is_readable_in_place(grams):
            raise ValueError(f"grams: shape {grams.shape} of {grams.dtype}, must be a C-ordered array (k, n, n) of float32 or float64")
        bank = cls.__new__(cls)
        values = grams.view(np.ndarray).reshape(len(grams), -1)
        values.flags.writeable = False
        bank._set_layout(values, grams.shape[1], square_bands(grams.shape[1]))
        return bank

    def packed(self) -> PackedBank:
        """Return a writable copy of the matrices as packed triangles."""
        self._check_kernels(None)
        bank = type(self)(np.empty((self.k, count_packed(self.n)), self.values.dtype), self.n)
        for first in range(0, self.n, BAND):
            bank._band(first)[...] = self._band(first)
        bank.scale[:] = self.scale
        return bank

    @staticmethod
    def bytes_for(k: int, n: int, dtype: DTypeLike = np.float32) -> int:
        """Return the memory in bytes that the packed triangles of k matrices of n rows take."""
        return k * count_packed(n) * np.dtype(dtype).itemsize

    # -- filling -----------------------------------------------------------------------------------------------------------

    def put(self, q: int, lo: int, hi: int, block: ArrayLike) -> None:
        """Store raw entries K[lo : lo + r, hi : hi + c] of one kernel, or of m consecutive kernels from q on. Raises ValueError if an entry
        is not finite after conversion to the bank's type.

        ``block``, ``(r, c)`` or ``(m, r, c)``, has one of two positions:

        * a square on the diagonal (lo = hi, r = c), of which only the upper triangle is read;
        * a rectangle to the right of this square (hi >= lo + r).

        The edges of the block need not be edges of the bands.
        """
        self._check_writable()
        entries = np.asarray(block)
        entries = entries[None] if entries.ndim == 2 else entries
        self._check_position(q, lo, hi, entries)
        with np.errstate(over="ignore"):
            stored = entries.astype(self.values.dtype, copy=False)
        read = np.triu(stored) if lo == hi else stored
        if not np.isfinite(read).all():
            bad = int(np.flatnonzero(~np.isfinite(read).all(axis=(1, 2)))[0]) + q
            raise ValueError(f"kernel {bad}: the block at row {lo}, column {hi} holds NaN, infinity or numbers beyond {self.values.dtype}")
        self._write(slice(q, q + len(stored)), lo, hi, stored)
        if self._areas is not None:
            rows = stored.shape[1]
            area = rows * (rows + 1) // 2 if lo == hi else rows * stored.shape[2]
            self._areas.setdefault((lo, hi), np.zeros(self.k, dtype=np.int64))[q : q + len(stored)] = area

    @property
    def lent(self) -> bool:
        """Whether the matrices belong to the caller and are read-only."""
        return not self.values.flags.writeable

    def _check_writable(self) -> None:
        if self.lent:
            raise ValueError("this bank reads the caller's matrices and cannot change them; call packed() for a writable copy")

    def _check_position(self, q: int, lo: int, hi: int, block: Array) -> None:
        if block.ndim != 3 or not block.size:
            raise ValueError(f"block: shape {block.shape}, must be (r, c) or (m, r, c), not empty")
        m, rows, cols = block.shape
        if q < 0 or lo < 0 or q + m > self.k or lo + rows > self.n or hi + cols > self.n:
            raise ValueError(
                f"block of shape {block.shape} at kernel {q}, row {lo}, column {hi}: does not fit into {self.k} matrices of {self.n} rows"
            )
        if not (hi >= lo + rows or (hi == lo and rows == cols)):
            raise ValueError(
                f"block of shape {block.shape} at row {lo}, column {hi}: must be a square on the diagonal or lie above the diagonal"
            )

    def _write(self, kernels: slice, lo: int, hi: int, block: Array) -> None:
        rows, cols = block.shape[1:]
        for first in range(lo // BAND * BAND, lo + rows, BAND):
            band = self._band(first)[kernels]
            top, bottom = max(lo, first), min(lo + rows, first + BAND)
            left = max(hi, top) if lo == hi else hi
            part = block[:, top - lo : bottom - lo, left - hi :]
            at = slice(top - first, bottom - first)
            band[:, at, left - first : hi + cols - first] = part
            # Entries in the square on the band's diagonal have their mirror images in the same square.
            inside = min(hi + cols, first + band.shape[1]) - left
            if inside > 0:
                image = part[:, :, :inside].transpose(0, 2, 1)
                below = np.tri(inside, bottom - top, -1, dtype=bool) if lo == hi else np.ones((inside, bottom - top), dtype=bool)
                np.copyto(band[:, left - first : left - first + inside, at], image, where=below)

    def _band(self, first: int) -> Array:
        """Return a view of the band that starts at row ``first``, for all kernels, shape (k, rows, n - first)."""
        start, stride = self.bands[first // BAND]
        shape, size = (self.k, min(BAND, self.n - first), self.n - first), self.values.itemsize
        steps = (self.values.strides[0], int(stride) * size, size)
        return np.lib.stride_tricks.as_strided(self.values[:, start:], shape, steps, writeable=not self.lent)

    def _check_kernels(self, kernels: ArrayLike | None) -> IntArray:
        """Return the indices of the kernels (default: all). Raises ValueError if a kernel does not exist or lacks entries."""
        chosen = np.arange(self.k) if kernels is None else np.asarray(kernels, dtype=np.int64)
        if chosen.ndim != 1 or (chosen.size and not (chosen.min() >= 0 and chosen.max() < self.k)):
            raise ValueError(f"kernels: must be a list of numbers from 0 to {self.k - 1}")
        if self._areas is not None:
            stored = sum(self._areas.values(), np.zeros(self.k, dtype=np.int64))
            lacking = chosen[stored[chosen] != self.n * (self.n + 1) // 2]
            if lacking.size:
                count = f"{stored[lacking[0]]} of {self.n * (self.n + 1) // 2}"
                raise ValueError(f"kernel {lacking[0]}: {count} entries have been stored; put the others first")
        return chosen

    def transform(self, functions: Sequence[Callable[[Array, slice, slice], Array]]) -> None:
        """Replace the entries K[rows, columns] of each kernel by ``function(K[rows, columns], rows, columns)``, with one function per
        kernel.

        The functions must work entry by entry and preserve symmetry; they receive one band of rows at a time.
        """
        self._check_writable()
        for first in range(0, self.n, BAND):
            band = self._band(first)
            rows, columns = slice(first, first + band.shape[1]), slice(first, self.n)
            for q, function in enumerate(functions):
                band[q] = function(band[q], rows, columns)

    # -- computing ---------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        return self.values.nbytes

    def combine(self, theta: ArrayLike, out: Array | None = None, change: Callable[[Array], object] | None = None) -> Array:
        """Return sum_q theta_q K_q; kernels with weight zero are not read.

        ``out``, ``(n, n)`` float32 or float64 in C order, is overwritten and returned [default: a new array of the bank's type]. The sum is
        exactly symmetric: kernels with non-zero weight are added in ascending order in float64, four at a time, and the sum is rounded
        once. ``change`` works in place on parts of the upper triangle, entry by entry, before they are mirrored.
        """
        weights = _check_numbers("theta", theta, (self.k,)) * self.scale
        used = self._check_kernels(np.flatnonzero(weights))
        out = self._check_output(out)
        combine_bands(self.frozen, self.n, self.bands, used, weights[used], out, change is None)
        if change is not None:
            for first in range(0, self.n, BAND):
                rows = min(BAND, self.n - first)
                change(out[first : first + rows, first:])
                mirror_band(out, first, rows)
        return out

    def _check_output(self, out: Array | None) -> Array:
        out = np.empty((self.n, self.n), dtype=self.values.dtype) if out is None else out
        if out.shape != (self.n, self.n) or out.dtype not in (np.float32, np.float64) or not out.flags.c_contiguous:
            raise ValueError(f"out: shape {out.shape} of {out.dtype}, must be a C-ordered array ({self.n}, {self.n}) of float32 or float64")
        return out

    def combine_tasks(self, weights: ArrayLike, codes: ArrayLike, out: Array | None = None) -> Array:
        """Return K with K[i, l] = sum_q W_q[c_i, c_l] K_q[i, l], where c_i is the task of row i; kernels without weight are not read.

        ``weights``, ``(k, T, T)``, are symmetric in the tasks; ``codes``, ``(n,)``, are the tasks of the rows, 0 to T - 1. The sum is
        faster if the rows of each task are contiguous. ``out`` is as in :meth:`combine`.
        """
        task_weights = check_weights(weights, self.k)
        tasks = check_codes(codes, self.n, task_weights.shape[1])
        self._check_kernels(np.flatnonzero((task_weights != 0).any(axis=(1, 2))))
        out = self._check_output(out)
        combine_task_bands(self.frozen, self.bands, task_weights * self.scale[:, None, None], tasks, out)
        return out

    def task_forms(self, beta: ArrayLike, codes: ArrayLike, n_tasks: int, units: FloatArray | None = None) -> FloatArray:
        """Return A_q[s, t] = beta_s' K_q[s, t] beta_t for all pairs of tasks, (k, T, T), exactly symmetric.

        Rows where ``beta``, ``(n,)``, is zero are not read; ``codes``, ``(n,)``, are the tasks of the rows, 0 to T - 1. Sums are rounded to
        ``units``, ``(k, T, T)`` [default: :func:`gramplane.kernels.bank.task_sums.task_units` of the diagonals].
        """
        vector, tasks = _check_numbers("beta", beta, (self.n,)), check_codes(codes, self.n, n_tasks)
        chosen = self._check_kernels(None)
        if units is None:
            units = task_units(self._raw_diagonals(chosen).max(axis=1, initial=0.0), vector, tasks, n_tasks)
        return bank_task_sums(self.frozen, self.bands, vector, tasks, units).total() * self.scale[:, None, None]

    def forms(self, beta: ArrayLike, kernels: ArrayLike | None = None) -> FloatArray:
        """Return the quadratic forms s_q = beta' K_q beta, ``(len(kernels),)`` or ``(len(kernels), m)``, in one pass.

        Rows where ``beta``, ``(n,)`` or ``(n, m)``, is zero are not read. ``kernels`` lists the kernels [default: all]. The result for one
        column of ``beta`` is bit-identical whatever the other columns are.
        """
        chosen = self._check_kernels(kernels)
        vectors = _check_numbers("beta", beta, (self.n,), (self.n, None))
        columns = np.ascontiguousarray(vectors.reshape(self.n, -1).T)
        sums = np.zeros((len(chosen), len(columns)))
        sum_forms(self.frozen, self.n, self.bands, chosen, columns, sums)
        sums *= self.scale[chosen, None]
        return sums[:, 0] if vectors.ndim == 1 else sums

    def products(
        self, beta: ArrayLike, kernels: ArrayLike | None = None, *, wanted: NDArray[np.bool_] | None = None, units: FloatArray | None = None
    ) -> FloatArray:
        """Return U_q = K_q beta, ``(len(kernels), n)`` or ``(len(kernels), m, n)``, in one pass over the matrices for all vectors.

        The quadratic forms are then beta' U_q, and K_theta beta is U' theta for every theta. ``beta`` is ``(n,)`` or ``(n, m)``. Rows that
        are not ``wanted`` are zero in the result; such a row is not read if its beta is zero. Sums are rounded to ``units``,
        ``(len(kernels), m)`` [default: :func:`gramplane.kernels.bank.products.product_units` of the diagonals]. The products of one vector
        are bit-identical whatever the other vectors are.
        """
        chosen = self._check_kernels(kernels)
        vectors = _check_numbers("beta", beta, (self.n,), (self.n, None))
        columns = np.ascontiguousarray(vectors.reshape(self.n, -1).T)
        rows = np.ones(columns.shape, bool) if wanted is None else np.ascontiguousarray(wanted.reshape(self.n, -1).T)
        products = self._raw_products(columns, rows, chosen, units) * self.scale[chosen, None, None]
        return products[:, 0] if vectors.ndim == 1 else products

    def _raw_products(self, columns: FloatArray, rows: NDArray[np.bool_], chosen: IntArray, units: FloatArray | None) -> FloatArray:
        if units is None:
            units = product_units(self._raw_diagonals(chosen).max(axis=1, initial=0.0), columns)
        products = np.zeros((len(chosen), *columns.shape))
        bank_products(self.frozen, self.n, self.bands, chosen, columns, rows, units, products)
        products[:, ~rows] = 0.0
        return products

    def diagonals(self, kernels: ArrayLike | None = None) -> FloatArray:
        """Return the diagonals of the K_q in float64, shape (len(kernels), n)."""
        chosen = self._check_kernels(kernels)
        return self._raw_diagonals(chosen) * self.scale[chosen, None]

    def _raw_diagonals(self, chosen: IntArray) -> FloatArray:
        parts = [np.diagonal(self._band(first), axis1=1, axis2=2)[chosen] for first in range(0, self.n, BAND)]
        return np.concatenate(parts, axis=1).astype(np.float64)

    def entries(self, rows: ArrayLike, columns: ArrayLike) -> FloatArray:
        """Return K_q[rows[i], columns[i]] of each kernel, shape (k, m)."""
        self._check_kernels(None)
        i, j = (np.asarray(ids, dtype=np.int64) for ids in (rows, columns))
        if i.ndim != 1 or i.shape != j.shape or (i.size and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < self.n)):
            raise ValueError(f"rows, columns: must be lists of the same length, with numbers from 0 to {self.n - 1}")
        upper, right = np.minimum(i, j), np.maximum(i, j)
        first = upper // BAND * BAND
        starts, strides = self.bands[upper // BAND].T
        return self.values[:, starts + (upper - first) * strides + right - first] * self.scale[:, None]

    def alignments(self, y: ArrayLike, kernels: ArrayLike | None = None, *, centred: bool = False) -> FloatArray:
        """Return <K_q, y y'>_F = y' K_q y, for y of shape (n,) or (n, m). With ``centred`` the matrices are H K_q H, H = I - 11'/n (source:
        Cortes, Mohri, Rostamizadeh, "Algorithms for Learning Kernels Based on Centered Alignment", JMLR 13 (2012)).
        """
        target = _check_numbers("y", y, (self.n,), (self.n, None))
        return self.forms(target - target.mean(axis=0) if centred else target, kernels)

    def inner_products(self, kernels: ArrayLike | None = None, *, centred: bool = False) -> FloatArray:
        """Return <K_a, K_b>_F of all pairs, ``(len(kernels), len(kernels))``, exactly symmetric, by one blocked matrix product over the
        entries.

        Entries to the right of the squares on the diagonal count twice. With ``centred`` the matrices are H K_q H, H = I - 11'/n, using
        <HAH, HBH> = <A, B> - 2/n (A1)'(B1) + (1'A1)(1'B1)/n^2. The same call gives the same bits, but BLAS may round an entry differently
        if other kernels are computed with it.
        """
        chosen = self._check_kernels(kernels)
        products = np.zeros((len(chosen), len(chosen)))
        with one_thread():
            for first in range(0, self.n, BAND):
                band = self._band(first)
                rows = band.shape[1]
                _add_inner_products(products, band[:, :, :rows], chosen, 1.0)
                _add_inner_products(products, band[:, :, rows:], chosen, 2.0)
            if centred:
                sums = self._raw_products(np.ones((1, self.n)), np.ones((1, self.n), bool), chosen, None)[:, 0]
                totals = sums.sum(axis=1) / self.n
                products += np.outer(totals, totals) - (2.0 / self.n) * (sums @ sums.T)
        return products * np.outer(self.scale[chosen], self.scale[chosen])


def is_readable_in_place(grams: Array) -> bool:
    """Return whether :meth:`PackedBank.over` can read the matrices without a copy."""
    square = grams.ndim == 3 and grams.shape[1] == grams.shape[2] and grams.size > 0
    return square and grams.dtype in (np.float32, np.float64) and grams.flags.c_contiguous and grams.flags.aligned


def _add_inner_products(out: FloatArray, part: Array, chosen: IntArray, weight: float) -> None:
    """Add weight times the inner products of part (k, rows, columns), one strip of rows at a time."""
    rows, cols = part.shape[1:]
    step = max(1, GEMM_BYTES // (8 * max(1, len(chosen) * cols)))
    for start in range(0, rows if cols else 0, step):
        strip = part[:, start : start + step]
        # With all kernels, indices would copy the strip once more.
        strip = strip if len(chosen) == len(part) and (np.diff(chosen) == 1).all() else strip[chosen]
        entries = strip.astype(np.float64).reshape(len(chosen), -1)
        out += weight * (entries @ entries.T)


def _check_numbers(name: str, numbers: ArrayLike, *shapes: tuple[int | None, ...]) -> FloatArray:
    """Return the numbers in float64. Raises ValueError if a number is not finite or the shape is none of ``shapes`` (None: any length)."""
    values = np.ascontiguousarray(numbers, dtype=np.float64)
    if not any(values.ndim == len(shape) and all(b in (None, a) for a, b in zip(values.shape, shape)) for shape in shapes):
        allowed = " or ".join(str(shape).replace("None", "m") for shape in shapes)
        raise ValueError(f"{name}: shape {values.shape}, must be {allowed}")
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: must be finite")
    return values

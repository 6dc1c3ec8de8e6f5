"""Many Gram matrices in memory, as packed upper triangles or as whole matrices that were handed over.

Rows are cut into bands of 128. What is read of a band are the columns from its own first row on: the square on the diagonal, and what is
right of it. Packed triangles keep nothing else, which takes about half the bytes of n x n; whole matrices are read where they lie, and what
is left of the bands is passed over. Where a band begins and how far its rows are apart (:func:`gramplane.kernels.bank.loops.packed_bands`,
:func:`gramplane.kernels.bank.loops.square_bands`) is all that differs: the same loops read both, in the same order, to the same bits. All
kernels share the layout; entry (i, j) of every kernel stands in the same column of one (k, entries) array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..jit import one_thread
from .loops import BAND, combine_bands, count_packed, packed_bands, square_bands, sum_forms
from .products import bank_products, product_units
from .task_sums import bank_task_sums, checked_codes, checked_weights, combine_task_bands, task_units

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

GEMM_BYTES = 8 << 20
"""Size of the float64 strip of entries that one matrix product of :meth:`PackedBank.inner_products` takes."""


class PackedBank:
    """k symmetric n x n matrices K_q = scale_q R_q in memory, R_q in float32 or float64.

    Sums are accumulated in float64. Every result of one kernel has the same bits whichever other kernels are asked for, with the one
    exception of :meth:`inner_products`.

    Parameters
    ----------
    values : ndarray of shape (k, n_packed), float32 or float64
        Packed entries, used where they lie; :meth:`over` takes whole matrices.
    n : int
        Order of the matrices.

    Attributes
    ----------
    values : ndarray of shape (k, n_packed), or (k, n * n) of whole matrices
    bands : ndarray of shape (n_bands, 2)
        Where each band begins among the entries of a matrix, and how far its rows are apart.
    frozen : ndarray
        The values as compiled loops read them: a view that nobody can write to, so one version of the loops serves both layouts.
    n, k : int
    scale : ndarray of shape (k,), float64
        Factors of the raw matrices, one by default; assign entries to normalise without touching the bank.

    Raises
    ------
    ValueError
        If shape, type or memory order do not fit.
    """

    def __init__(self, values: NDArray[Any], n: int) -> None:
        if values.dtype not in (np.float32, np.float64) or values.ndim != 2 or not values.flags.c_contiguous:
            raise ValueError(f"values: {values.ndim} dimensions of {values.dtype}, must be a C-ordered (k, n_packed) of float32 or float64")
        if n < 1 or values.shape[1] != count_packed(n) or not len(values):
            raise ValueError(f"values: shape {values.shape}, must be (k, {count_packed(max(n, 0))}) with k >= 1 for n={n}")
        self._lay(values, n, packed_bands(n))

    def _lay(self, values: NDArray[Any], n: int, bands: IndexArray) -> None:
        self.values, self.bands = values, bands
        self.frozen = values.view()
        self.frozen.flags.writeable = False
        self.n, self.k = n, len(values)
        self.scale: FloatArray = np.ones(self.k)
        self._areas: dict[tuple[int, int], IndexArray] | None = None

    @classmethod
    def empty(cls, k: int, n: int, dtype: DTypeLike = np.float32) -> PackedBank:
        """Return a bank to be filled by :meth:`put`; it refuses to compute before every entry is there."""
        bank = cls(np.empty((k, count_packed(n)), dtype=dtype), n)
        bank._areas = {}
        return bank

    @classmethod
    def from_dense(cls, grams: ArrayLike, dtype: DTypeLike = np.float32) -> PackedBank:
        """Return a bank of whole matrices, shape (k, n, n); what is below the diagonals is not looked at."""
        found = np.asarray(grams)
        if found.ndim != 3 or found.shape[1] != found.shape[2]:
            raise ValueError(f"grams: shape {found.shape}, must be (k, n, n)")
        bank = cls.empty(found.shape[0], found.shape[1], dtype)
        for q in range(bank.k):
            bank.put(q, 0, 0, found[q])
        return bank

    @classmethod
    def over(cls, grams: NDArray[Any]) -> PackedBank:
        """Return a bank of whole matrices where they lie, which are never written to.

        Parameters
        ----------
        grams : ndarray of shape (k, n, n), float32 or float64
            In C order, and exactly symmetric: of the squares on the diagonal both triangles are read.

        Raises
        ------
        ValueError
            If shape, type or memory order do not fit.
        """
        if not lies_whole(grams):
            raise ValueError(f"grams: shape {grams.shape} of {grams.dtype}, must be C-ordered (k, n, n) of float32 or float64")
        bank = cls.__new__(cls)
        values = grams.view(np.ndarray).reshape(len(grams), -1)
        values.flags.writeable = False
        bank._lay(values, grams.shape[1], square_bands(grams.shape[1]))
        return bank

    def packed(self) -> PackedBank:
        """Return the same matrices as packed triangles of their own, which may be changed."""
        self._chosen(None)
        bank = type(self)(np.empty((self.k, count_packed(self.n)), self.values.dtype), self.n)
        for first in range(0, self.n, BAND):
            bank._band(first)[...] = self._band(first)
        bank.scale[:] = self.scale
        return bank

    @staticmethod
    def bytes_for(k: int, n: int, dtype: DTypeLike = np.float32) -> int:
        """Return the bytes that packed triangles of k matrices of order n take."""
        return k * count_packed(n) * np.dtype(dtype).itemsize

    # -- filling -----------------------------------------------------------------------------------------------------------

    def put(self, q: int, lo: int, hi: int, block: ArrayLike) -> None:
        """Store raw entries K[lo : lo + r, hi : hi + c] of one kernel or of consecutive ones.

        Parameters
        ----------
        q : int
            First kernel.
        lo, hi : int
            First row and first column of the block: a square on the diagonal (lo = hi, r = c), of which only the upper triangle is
            read, or a rectangle right of it (hi >= lo + r). Edges need not be those of the bands.
        block : array_like of shape (r, c) or (m, r, c)

        Raises
        ------
        ValueError
            If the block leaves the matrix or crosses the diagonal, or holds numbers that are not finite in the bank's type; or if the
            matrices are those of somebody else.
        """
        self._check_own()
        given = np.asarray(block)
        given = given[None] if given.ndim == 2 else given
        self._check_place(q, lo, hi, given)
        with np.errstate(over="ignore"):
            stored = given.astype(self.values.dtype, copy=False)
        read = np.triu(stored) if lo == hi else stored
        if not np.isfinite(read).all():
            bad = int(np.flatnonzero(~np.isfinite(read).all(axis=(1, 2)))[0]) + q
            raise ValueError(f"kernel {bad}: rows {lo}.., columns {hi}.. hold NaN, infinity or numbers beyond {self.values.dtype}")
        self._write(slice(q, q + len(stored)), lo, hi, stored)
        if self._areas is not None:
            rows = stored.shape[1]
            area = rows * (rows + 1) // 2 if lo == hi else rows * stored.shape[2]
            self._areas.setdefault((lo, hi), np.zeros(self.k, dtype=np.int64))[q : q + len(stored)] = area

    @property
    def lent(self) -> bool:
        """Whether the matrices are somebody else's, which are read only."""
        return not self.values.flags.writeable

    def _check_own(self) -> None:
        if self.lent:
            raise ValueError("a bank over matrices of somebody else changes none of them; packed() is a copy that may be changed")

    def _check_place(self, q: int, lo: int, hi: int, block: NDArray[Any]) -> None:
        if block.ndim != 3 or not block.size:
            raise ValueError(f"block: shape {block.shape}, must be (r, c) or (m, r, c), not empty")
        m, rows, cols = block.shape
        if q < 0 or lo < 0 or q + m > self.k or lo + rows > self.n or hi + cols > self.n:
            raise ValueError(
                f"block of shape {block.shape} at kernel {q}, row {lo}, column {hi}: outside {self.k} matrices of order {self.n}"
            )
        if not (hi >= lo + rows or (hi == lo and rows == cols)):
            raise ValueError(
                f"block of shape {block.shape} at row {lo}, column {hi}: must be a square on the diagonal or lie right of the diagonal"
            )

    def _write(self, kernels: slice, lo: int, hi: int, block: NDArray[Any]) -> None:
        rows, cols = block.shape[1:]
        for first in range(lo // BAND * BAND, lo + rows, BAND):
            band = self._band(first)[kernels]
            top, bottom = max(lo, first), min(lo + rows, first + BAND)
            left = max(hi, top) if lo == hi else hi
            part = block[:, top - lo : bottom - lo, left - hi :]
            at = slice(top - first, bottom - first)
            band[:, at, left - first : hi + cols - first] = part
            # What lies in the square on the band's diagonal has its mirror image in the same square.
            inside = min(hi + cols, first + band.shape[1]) - left
            if inside > 0:
                image = part[:, :, :inside].transpose(0, 2, 1)
                below = np.tri(inside, bottom - top, -1, dtype=bool) if lo == hi else np.ones((inside, bottom - top), dtype=bool)
                square = band[:, left - first : left - first + inside, at]
                np.copyto(square, image, where=below)

    def _band(self, first: int) -> NDArray[Any]:
        """Return the band that starts at row `first` of all kernels, shape (k, rows, n - first): a view."""
        start, stride = self.bands[first // BAND]
        shape, size = (self.k, min(BAND, self.n - first), self.n - first), self.values.itemsize
        steps = (self.values.strides[0], int(stride) * size, size)
        return np.lib.stride_tricks.as_strided(self.values[:, start:], shape, steps, writeable=not self.lent)

    def _chosen(self, kernels: ArrayLike | None) -> IndexArray:
        """Return the asked kernels, all by default, after a look whether they are there."""
        chosen = np.arange(self.k) if kernels is None else np.asarray(kernels, dtype=np.int64)
        if chosen.ndim != 1 or (chosen.size and not (chosen.min() >= 0 and chosen.max() < self.k)):
            raise ValueError(f"kernels: must be a list of numbers from 0 to {self.k - 1}")
        if self._areas is not None:
            stored = sum(self._areas.values(), np.zeros(self.k, dtype=np.int64))
            lacking = chosen[stored[chosen] != self.n * (self.n + 1) // 2]
            if lacking.size:
                raise ValueError(f"kernel {lacking[0]}: {stored[lacking[0]]} of {self.n * (self.n + 1) // 2} entries have been stored")
        return chosen

    def transform(self, functions: Sequence[Callable[[NDArray[Any], slice, slice], NDArray[Any]]]) -> None:
        """Replace every kernel's entries K[rows, columns] by ``function(K[rows, columns], rows, columns)``, kernel by kernel.

        The functions work entry by entry and keep symmetry; they get one band of rows at a time.
        """
        self._check_own()
        for first in range(0, self.n, BAND):
            band = self._band(first)
            rows, columns = slice(first, first + band.shape[1]), slice(first, self.n)
            for q, function in enumerate(functions):
                band[q] = function(band[q], rows, columns)

    # -- computing ---------------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of the entries, wherever they lie."""
        return self.values.nbytes

    def combine(self, theta: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return sum_q theta_q K_q; kernels with weight zero are not read.

        Parameters
        ----------
        theta : array_like of shape (k,)
        out : ndarray of shape (n, n), optional
            Overwritten and returned; float32 or float64 in C order. By default new, of the bank's type.

        Returns
        -------
        ndarray of shape (n, n)
            Exactly symmetric; summed in float64, four used kernels at a time in ascending order, rounded once.
        """
        weights = _finite("theta", theta, (self.k,)) * self.scale
        used = self._chosen(np.flatnonzero(weights))
        out = self._room(out)
        combine_bands(self.frozen, self.n, self.bands, used, weights[used], out)
        return out

    def _room(self, out: NDArray[Any] | None) -> NDArray[Any]:
        out = np.empty((self.n, self.n), dtype=self.values.dtype) if out is None else out
        if out.shape != (self.n, self.n) or out.dtype not in (np.float32, np.float64) or not out.flags.c_contiguous:
            raise ValueError(f"out: shape {out.shape} of {out.dtype}, must be C-ordered ({self.n}, {self.n}) of float32 or float64")
        return out

    def combine_tasks(self, weights: ArrayLike, codes: ArrayLike, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return K with K[i, l] = sum_q W_q[c_i, c_l] K_q[i, l], c_i the task of row i; kernels without weight are not read.

        Parameters
        ----------
        weights : array_like of shape (k, T, T)
            Symmetric in the tasks.
        codes : array_like of shape (n,)
            Tasks of the rows, from 0 to T - 1; rows of a task need not lie together, but are combined faster when they do.
        out : ndarray of shape (n, n), optional
            As in :meth:`combine`.
        """
        given = checked_weights(weights, self.k)
        tasks = checked_codes(codes, self.n, given.shape[1])
        self._chosen(np.flatnonzero((given != 0).any(axis=(1, 2))))
        out = self._room(out)
        combine_task_bands(self.frozen, self.bands, given * self.scale[:, None, None], tasks, out)
        return out

    def task_forms(self, beta: ArrayLike, codes: ArrayLike, n_tasks: int, units: FloatArray | None = None) -> FloatArray:
        """Return A_q[s, t] = beta_s' K_q[s, t] beta_t of all pairs of tasks, (k, T, T), exactly symmetric.

        Parameters
        ----------
        beta : array_like of shape (n,)
            Rows where it is zero are not read.
        codes : array_like of shape (n,)
            Tasks of the rows, from 0 to T - 1.
        n_tasks : int
            T.
        units : ndarray of shape (k, T, T), optional
            What sums are rounded to (:func:`gramplane.kernels.bank.task_sums.task_units` of the raw matrices); found from the diagonals by
            default.
        """
        vector, tasks = _finite("beta", beta, (self.n,)), checked_codes(codes, self.n, n_tasks)
        chosen = self._chosen(None)
        if units is None:
            units = task_units(self._raw_diagonals(chosen).max(axis=1, initial=0.0), vector, tasks, n_tasks)
        return bank_task_sums(self.frozen, self.bands, vector, tasks, units).total() * self.scale[:, None, None]

    def forms(self, beta: ArrayLike, kernels: ArrayLike | None = None) -> FloatArray:
        """Return the quadratic forms s_q = beta' K_q beta, one pass for all the vectors given.

        Parameters
        ----------
        beta : array_like of shape (n,) or (n, m)
            Rows where it is zero are not read.
        kernels : array_like of int, optional
            Which kernels, all by default.

        Returns
        -------
        ndarray of shape (len(kernels),) or (len(kernels), m)
            The bits of a column do not depend on the other ones.
        """
        chosen = self._chosen(kernels)
        vectors = _finite("beta", beta, (self.n,), (self.n, None))
        columns = np.ascontiguousarray(vectors.reshape(self.n, -1).T)
        found = np.zeros((len(chosen), len(columns)))
        sum_forms(self.frozen, self.n, self.bands, chosen, columns, found)
        found *= self.scale[chosen, None]
        return found[:, 0] if vectors.ndim == 1 else found

    def products(
        self,
        beta: ArrayLike,
        kernels: ArrayLike | None = None,
        *,
        wanted: NDArray[np.bool_] | None = None,
        units: FloatArray | None = None,
    ) -> FloatArray:
        """Return U_q = K_q beta, one pass for all the vectors given.

        With them beta' U_q are the forms and U' theta = K_theta beta for every theta.

        Parameters
        ----------
        beta : array_like of shape (n,) or (n, m)
        kernels : array_like of int, optional
            Which kernels, all by default.
        wanted : ndarray of bool, of the shape of beta, optional
            Rows that are wanted, all by default; the others are zero in the result, and not read where beta is zero too.
        units : ndarray of shape (len(kernels), m), optional
            What sums are rounded to (:func:`gramplane.kernels.bank.products.product_units` of the raw matrices); found from the diagonals
            by default.

        Returns
        -------
        ndarray of shape (len(kernels), n) or (len(kernels), m, n)
            The bits of a vector's products do not depend on the other ones.
        """
        chosen = self._chosen(kernels)
        vectors = _finite("beta", beta, (self.n,), (self.n, None))
        columns = np.ascontiguousarray(vectors.reshape(self.n, -1).T)
        rows = np.ones(columns.shape, bool) if wanted is None else np.ascontiguousarray(wanted.reshape(self.n, -1).T)
        found = self._raw_products(columns, rows, chosen, units) * self.scale[chosen, None, None]
        return found[:, 0] if vectors.ndim == 1 else found

    def _raw_products(self, columns: FloatArray, rows: NDArray[np.bool_], chosen: IndexArray, units: FloatArray | None) -> FloatArray:
        if units is None:
            units = product_units(self._raw_diagonals(chosen).max(axis=1, initial=0.0), columns)
        found = np.zeros((len(chosen), *columns.shape))
        bank_products(self.frozen, self.n, self.bands, chosen, columns, rows, units, found)
        found[:, ~rows] = 0.0
        return found

    def diagonals(self, kernels: ArrayLike | None = None) -> FloatArray:
        """Return the diagonals of the K_q in float64, shape (len(kernels), n)."""
        chosen = self._chosen(kernels)
        return self._raw_diagonals(chosen) * self.scale[chosen, None]

    def _raw_diagonals(self, chosen: IndexArray) -> FloatArray:
        found = [np.diagonal(self._band(first), axis1=1, axis2=2)[chosen] for first in range(0, self.n, BAND)]
        return np.concatenate(found, axis=1).astype(np.float64)

    def entries(self, rows: ArrayLike, columns: ArrayLike) -> FloatArray:
        """Return K_q[rows[i], columns[i]] of every kernel, shape (k, m).

        Raises
        ------
        ValueError
            If the lists differ in length or leave the matrices.
        """
        self._chosen(None)
        i, j = (np.asarray(ids, dtype=np.int64) for ids in (rows, columns))
        if i.ndim != 1 or i.shape != j.shape or (i.size and not (min(i.min(), j.min()) >= 0 and max(i.max(), j.max()) < self.n)):
            raise ValueError(f"rows, columns: must be two lists of equal length of numbers from 0 to {self.n - 1}")
        upper, right = np.minimum(i, j), np.maximum(i, j)
        first = upper // BAND * BAND
        starts, strides = self.bands[upper // BAND].T
        place = starts + (upper - first) * strides + right - first
        return self.values[:, place] * self.scale[:, None]

    def alignments(self, y: ArrayLike, kernels: ArrayLike | None = None, *, centred: bool = False) -> FloatArray:
        """Return <K_q, y y'>_F = y' K_q y, for y of shape (n,) or (n, m).

        With ``centred`` the matrices are H K_q H, H = I - 11'/n (source: Cortes, Mohri, Rostamizadeh, "Algorithms for Learning Kernels
        Based on Centered Alignment", JMLR 13 (2012)).
        """
        target = _finite("y", y, (self.n,), (self.n, None))
        return self.forms(target - target.mean(axis=0) if centred else target, kernels)

    def inner_products(self, kernels: ArrayLike | None = None, *, centred: bool = False) -> FloatArray:
        """Return <K_a, K_b>_F of all pairs, as one blocked matrix product over the entries.

        Entries right of the squares on the diagonal count twice. With ``centred`` the matrices are H K_q H, H = I - 11'/n, by
        <HAH, HBH> = <A, B> - 2/n (A1)'(B1) + (1'A1)(1'B1)/n^2.

        Returns
        -------
        ndarray of shape (len(kernels), len(kernels))
            Exactly symmetric. The same call gives the same bits, but BLAS may round an entry differently when it is asked for other
            kernels beside it.
        """
        chosen = self._chosen(kernels)
        found = np.zeros((len(chosen), len(chosen)))
        with one_thread():
            for first in range(0, self.n, BAND):
                band = self._band(first)
                rows = band.shape[1]
                _add_inner(found, band[:, :, :rows], chosen, 1.0)
                _add_inner(found, band[:, :, rows:], chosen, 2.0)
            if centred:
                found += self._centring(chosen)
        return found * np.outer(self.scale[chosen], self.scale[chosen])

    def _centring(self, chosen: IndexArray) -> FloatArray:
        sums = self._raw_products(np.ones((1, self.n)), np.ones((1, self.n), bool), chosen, None)[:, 0]
        totals = sums.sum(axis=1) / self.n
        return np.outer(totals, totals) - (2.0 / self.n) * (sums @ sums.T)


def lies_whole(grams: NDArray[Any]) -> bool:
    """Return whether matrices are in a form that :meth:`PackedBank.over` takes."""
    square = grams.ndim == 3 and grams.shape[1] == grams.shape[2] and grams.size > 0
    return square and grams.dtype in (np.float32, np.float64) and grams.flags.c_contiguous and grams.flags.aligned


def _add_inner(found: FloatArray, part: NDArray[Any], chosen: IndexArray, weight: float) -> None:
    """Add weight times the inner products of part (k, rows, columns), a strip of rows at a time."""
    rows, cols = part.shape[1:]
    step = max(1, GEMM_BYTES // (8 * max(1, len(chosen) * cols)))
    for start in range(0, rows if cols else 0, step):
        strip = part[:, start : start + step]
        # Fancy indexing would copy once more when all kernels are asked for.
        strip = strip if len(chosen) == len(part) and (np.diff(chosen) == 1).all() else strip[chosen]
        entries = strip.astype(np.float64).reshape(len(chosen), -1)
        found += weight * (entries @ entries.T)


def _finite(name: str, given: ArrayLike, *shapes: tuple[int | None, ...]) -> FloatArray:
    """Return the numbers in float64.

    Raises
    ------
    ValueError
        If they are not finite or have none of the shapes (None: any length).
    """
    found = np.ascontiguousarray(given, dtype=np.float64)
    if not any(found.ndim == len(shape) and all(b in (None, a) for a, b in zip(found.shape, shape)) for shape in shapes):
        wanted = " or ".join(str(shape).replace("None", "m") for shape in shapes)
        raise ValueError(f"{name}: shape {found.shape}, must be {wanted}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name}: must be finite")
    return found

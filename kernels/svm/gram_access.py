"""Access to Gram matrices for dual solvers: the protocol, matrices in memory, and matrices with repeated rows."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled


class Gram(Protocol):
    """A symmetric positive semi-definite matrix, accessed by rows and products."""

    @property
    def n(self) -> int:
        """Number of rows of the matrix."""
        ...

    def diag(self) -> FloatArray:
        """Return the diagonal, shape (n,)."""
        ...

    def rows(self, idx: IntArray) -> Array:
        """Return rows ``idx``, shape (len(idx), n), in float32 or float64."""
        ...

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v, shape (n,), accumulated in float64."""
        ...


class Scratch:
    """A buffer that successive solves share, so that its memory is allocated only once."""

    def __init__(self) -> None:
        self._buffer: Array = np.empty(0, dtype=np.float32)

    def take(self, size: int, dtype: np.dtype[Any]) -> Array:
        """Return at least ``size`` uninitialised entries, in the same memory as before if this memory is large enough."""
        if self._buffer.dtype != dtype or self._buffer.size < size:
            self._buffer = np.empty(size, dtype=dtype)
        return self._buffer


class DenseGram:
    """A Gram matrix in memory.

    ``array``, ``(n, n)``, is symmetric; float32 and float64 in C order are used without a copy. ``scratch`` is the buffer of the shrunk
    problem, up to 0.57 n^2 entries; pass the same buffer to all solves of a loop. Raises ValueError if the matrix is not square or is
    empty, or its diagonal is negative or not finite.
    """

    def __init__(self, array: ArrayLike, scratch: Scratch | None = None) -> None:
        entries = np.asarray(array)
        dtype = entries.dtype if entries.dtype in (np.float32, np.float64) else np.dtype(np.float64)
        self.array: Array = np.ascontiguousarray(entries, dtype=dtype)
        if self.array.ndim != 2 or self.array.shape[0] != self.array.shape[1] or not self.array.size:
            raise ValueError(f"Gram matrix: shape {entries.shape}, must be square and not empty")
        self.n = len(self.array)
        self._diag = check_diagonal(np.diagonal(self.array))
        self.scratch = Scratch() if scratch is None else scratch

    def diag(self) -> FloatArray:
        return self._diag

    def rows(self, idx: IntArray) -> Array:
        return self.array[idx]

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v; rows where v is zero are not read."""
        out = np.zeros(self.n)
        add_rows(out, self.array, np.flatnonzero(v), v)
        return out


class RepeatedGram:
    """A Gram matrix with repeated rows: row i is row ``places[i]`` of ``gram``, which holds each row once."""

    def __init__(self, gram: Gram, places: IntArray) -> None:
        self.gram, self.places, self.n = gram, places, len(places)

    def diag(self) -> FloatArray:
        return self.gram.diag()[self.places]

    def rows(self, idx: IntArray) -> Array:
        return np.ascontiguousarray(self.gram.rows(self.places[idx])[:, self.places])

    def matvec(self, v: FloatArray) -> FloatArray:
        return self.gram.matvec(np.asarray(np.bincount(self.places, v, self.gram.n), np.float64))[self.places]


def check_diagonal(diagonal: Array) -> FloatArray:
    """Return the diagonal of a Gram matrix in float64. Raises ValueError if an entry is negative, infinite or NaN."""
    entries = np.array(diagonal, dtype=np.float64)
    wrong = ~((entries >= 0) & np.isfinite(entries))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ValueError(f"Gram matrix: diagonal entry {at} is {entries[at]}, must be finite and not negative")
    return entries


@compiled
def add_rows(out: FloatArray, matrix: Array, idx: IntArray, weights: FloatArray) -> None:
    """Add sum over r in idx of weights[r] matrix[r] to ``out`` in float64, four rows per pass."""
    n = out.size
    whole = idx.size - idx.size % 4
    for at in range(0, whole, 4):
        a, b, c, d = matrix[idx[at]], matrix[idx[at + 1]], matrix[idx[at + 2]], matrix[idx[at + 3]]
        p, q, r, s = weights[idx[at]], weights[idx[at + 1]], weights[idx[at + 2]], weights[idx[at + 3]]
        for k in range(n):
            out[k] += (p * np.float64(a[k]) + q * np.float64(b[k])) + (r * np.float64(c[k]) + s * np.float64(d[k]))
    for at in range(whole, idx.size):
        row, weight = matrix[idx[at]], weights[idx[at]]
        for k in range(n):
            out[k] += weight * np.float64(row[k])

"""Matrices made of one that hands out parts: with repeated rows, and with the mean of some points as one more point."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..arrays import Array, FloatArray, IntArray
from .decomposition import PartGram
from .gram_access import Gram, RepeatedGram

Parts = Iterator[tuple[IntArray, IntArray, Array]]


class RepeatedParts(RepeatedGram):
    """A :class:`RepeatedGram` of a matrix that hands out parts; it hands out parts, too."""

    gram: PartGram

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of the entries that it hands out."""
        return self.gram.dtype

    @property
    def room(self) -> int:
        """Entries of this type that the caller may hold."""
        return self.gram.room

    def between(self, new: IntArray, old: IntArray) -> Parts:
        """Yield entries as (places of rows, places of columns, values); variables on the same row have the same entries."""
        yield from self.gram.between(self.places[new], self.places[old])


def repeated_gram(gram: Gram, places: IntArray) -> RepeatedGram:
    """Return the matrix with rows ``places`` of ``gram``, which hands out parts where that does."""
    return (RepeatedParts if isinstance(gram, PartGram) else RepeatedGram)(gram, places)


class MeanParts:
    """A matrix that hands out parts with the mean of the points ``chosen``, ``(n,)``, as one more point, the last. The entries of that
    point are rounded to the type of the parts, as those of the others are: ``(n,)`` numbers found by one product.
    """

    def __init__(self, gram: PartGram, chosen: NDArray[np.bool_]) -> None:
        weights = chosen / np.count_nonzero(chosen)
        row = gram.matvec(weights)
        self._gram, self.n, self.dtype = gram, gram.n + 1, gram.dtype
        self._row: Array = np.append(row, row @ weights).astype(gram.dtype)

    @property
    def room(self) -> int:
        """Entries of its type that the caller may hold."""
        return self._gram.room

    def diag(self) -> FloatArray:
        """Return the diagonal, shape (n + 1,)."""
        return np.append(self._gram.diag(), np.float64(self._row[-1]))

    def rows(self, idx: IntArray) -> Array:
        """Return rows idx, shape (len(idx), n + 1): products with unit vectors, for the few that a check asks for."""
        return np.reshape([self.matvec(np.eye(1, self.n, int(i))[0]) for i in idx], (len(idx), self.n))

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v, shape (n + 1,)."""
        row = self._row.astype(np.float64)
        return np.append(self._gram.matvec(v[:-1]) + v[-1] * row[:-1], row @ v)

    def between(self, new: IntArray, old: IntArray) -> Parts:
        """Yield entries as (places of rows, places of columns, values); those of the mean last."""
        ids, last = np.concatenate([new, old]), self.n - 1
        (mean,), places = (ids == last).nonzero(), np.flatnonzero(ids != last)
        if np.any(new != last):
            for rows, columns, values in self._gram.between(new[new != last], old[old != last]):
                yield places[rows], places[columns], values
        if len(mean):
            # As an old variable it has new ones for partners; the others it knows already.
            columns = np.arange(len(ids) if mean[0] < len(new) else len(new))
            yield mean, columns, self._row[ids[columns]][None]

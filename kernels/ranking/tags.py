r"""Tags of images as tf-idf vectors of unit length.

.. math::

    t_{ij} = \frac{c_{ij} \log(n / r_j)}{\sqrt{\sum_j (c_{ij} \log(n / r_j))^2}}

where image i has tag j :math:`c_{ij}` times, and :math:`r_j` of n images have tag j. Source: Zhuang, PhD thesis on kernel learning, Nanyang
Technological University, 2011, section 6.5; the thesis prints the idf as :math:`\log r_j`, which favours tags that most images have.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled

MAX_NAMED_ROWS = 5  # Rows that a message lists.


def count_tags(rows: Iterable[Iterable[str]]) -> tuple[sp.csr_array, tuple[str, ...]]:
    """Return how often each row has each tag, ``(n, V)``, and the tags in ascending order. ``rows`` yields the tags of each row."""
    lists = [list(row) for row in rows]
    names = sorted({tag for row in lists for tag in row})
    column = {tag: j for j, tag in enumerate(names)}
    ends = np.cumsum([0, *map(len, lists)])
    columns = np.array([column[tag] for row in lists for tag in row], dtype=np.int64)
    counts = sp.csr_array((np.ones(len(columns)), columns, ends), shape=(len(lists), len(names)))
    counts.sum_duplicates()
    return counts, tuple(names)


def count_tags_of_rows(tags: Any) -> tuple[sp.csr_array, tuple[str, ...] | None]:
    """Return the matrix of tag counts made from ``tags``, and the names of the tags, or ``None`` if they have no names.

    ``tags`` is a matrix ``(n, V)`` of counts, sparse or dense; one string per row with tags separated by blanks; one list of tags per row;
    or any other value per row, which is its single tag. Raises ValueError if ``tags`` has another form, or if a count is negative or not
    finite (the message names the row).
    """
    if sp.issparse(tags):
        return check_counts("tags", tags), None
    if isinstance(tags, str) or not hasattr(tags, "__len__"):
        raise ValueError(f"tags: {type(tags).__name__} given; it must be a matrix of counts, or one string or list of tags per row")
    rows = list(tags.to_numpy() if hasattr(tags, "to_numpy") else tags)
    if rows and all(map(_is_count_row, rows)) and len(set(map(len, rows))) == 1:
        return check_counts("tags", np.asarray(rows, dtype=np.float64)), None
    return count_tags(_split_tags(row) for row in rows)


def _is_count_row(row: object) -> bool:
    if isinstance(row, (str, bytes)) or not isinstance(row, (Sequence, np.ndarray)) or not len(row):
        return False
    return np.asarray(row).dtype.kind in "biuf"


def _split_tags(row: object) -> list[str]:
    if isinstance(row, str):
        return row.split()
    if isinstance(row, (Sequence, set, frozenset, np.ndarray)):
        return [str(tag) for tag in row]
    return [] if row is None or row != row else [str(row)]


def check_counts(name: str, values: object) -> sp.csr_array:
    """Return a canonical copy of a matrix of counts. Raises ValueError that names the row of a count that is negative or not finite."""
    counts = sp.csr_array(values, dtype=np.float64, copy=True)
    wrong = ~np.isfinite(counts.data) | (counts.data < 0)
    if wrong.any():
        entry = int(np.argmax(wrong))
        row = int(np.searchsorted(counts.indptr, entry, side="right")) - 1
        raise ValueError(f"{name}: row {row} holds the count {counts.data[entry]:g}; counts must be finite and not negative")
    counts.sum_duplicates()
    counts.eliminate_zeros()
    return counts


def untagged_rows(counts: sp.csr_array) -> np.ndarray:
    """Return the rows without a tag."""
    return np.flatnonzero(np.diff(counts.indptr) == 0)


def name_rows(rows: np.ndarray) -> str:
    """Return the first row numbers, and how many more there are, as text."""
    shown = ", ".join(str(int(row)) for row in rows[:MAX_NAMED_ROWS])
    return shown if len(rows) <= MAX_NAMED_ROWS else f"{shown} and {len(rows) - MAX_NAMED_ROWS} more"


def tag_vectors(counts: sp.csr_array, min_images: int = 1) -> sp.csr_array:
    """Return tf-idf vectors of unit length, ``(n, V)``. Tags of fewer than ``min_images`` rows, and tags of all rows, have weight zero."""
    n, width = counts.shape or (0, 0)
    images = np.bincount(counts.indices, minlength=width)
    idf = np.where((images >= max(1, min_images)) & (images < n), np.log(n / np.maximum(images, 1)), 0.0)
    vectors = sp.csr_array(counts.multiply(idf[None, :]))
    vectors.eliminate_zeros()
    # By the largest entry first: squares of large counts overflow.
    for length in (lambda rows: rows.max(axis=1).toarray().ravel(), lambda rows: np.sqrt(np.asarray((rows * rows).sum(axis=1)).ravel())):
        lengths = length(vectors)
        factor = np.divide(1.0, lengths, out=np.zeros(n), where=lengths > 0)
        vectors.data = vectors.data * np.repeat(factor, np.diff(vectors.indptr))
    return vectors


# The candidates of largest score of every row, kept while the scores of blocks of candidates come by.
#
# Candidates are ordered by ``(-score, id)``, a total order: scores of users with nothing in common tie massively. Blocks come in ascending
# ids, so that a list is that of the whole row for any cut into blocks.


class TopLists(NamedTuple):
    """The best candidates of n rows, ``(n, k)``: ids and scores; missing candidates have id -1 and score -inf."""

    ids: IntArray
    scores: FloatArray

    @classmethod
    def empty(cls, n: int, k: int) -> TopLists:
        return cls(np.full((n, k), -1, np.int64), np.full((n, k), -np.inf))

    def part(self, lo: int, hi: int) -> TopLists:
        """Return a view of the lists of rows ``lo:hi``."""
        return TopLists(self.ids[lo:hi], self.scores[lo:hi])

    def offer(self, scores: FloatArray, first: int, itself: IntArray) -> None:
        """Update the lists of all rows with the candidates ``first``, ``first + 1``, ..., whose scores are ``(n, m)``, in place.

        ``itself`` ``(n,)`` are the ids of the rows themselves, which are excluded from their own lists. Raises ValueError if a score is NaN
        or infinite.
        """
        if not np.isfinite(scores).all():
            raise ValueError("a score is not finite: the weighted sum of the views overflows")
        _offer_blocks(np.ascontiguousarray(scores, np.float64), first, np.ascontiguousarray(itself, np.int64), self.ids, self.scores)


@compiled
def _offer_blocks(scores: Array, first: int, itself: Array, ids: Array, best: Array) -> None:
    k = ids.shape[1]
    for i in range(scores.shape[0]):
        bar, skip = best[i, k - 1], itself[i] - first
        for j in range(scores.shape[1]):
            score = scores[i, j]
            # One that is equal to the last has a greater id, unless the list is not full.
            if not (score > bar or (ids[i, k - 1] < 0)) or j == skip:
                continue
            at = k - 1
            while at > 0 and (ids[i, at - 1] < 0 or best[i, at - 1] < score):
                best[i, at], ids[i, at] = best[i, at - 1], ids[i, at - 1]
                at -= 1
            best[i, at], ids[i, at] = score, first + j
            bar = best[i, k - 1]

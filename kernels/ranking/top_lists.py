"""The candidates of largest score of every row, kept while the scores of blocks of candidates come by.

Candidates are ordered by ``(-score, id)``, a total order: scores of users with nothing in common tie massively. Blocks come in ascending
ids, so that a list is that of the whole row for any cut into blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled


class TopLists(NamedTuple):
    """The best candidates of n rows, ``(n, k)``: ids, -1 where there are fewer, and scores, -inf there."""

    ids: IntArray
    scores: FloatArray

    @classmethod
    def empty(cls, n: int, k: int) -> TopLists:
        """Return lists without a candidate."""
        return cls(np.full((n, k), -1, np.int64), np.full((n, k), -np.inf))

    def part(self, lo: int, hi: int) -> TopLists:
        """Return the lists of rows ``lo:hi``, which share their entries."""
        return TopLists(self.ids[lo:hi], self.scores[lo:hi])

    def offer(self, scores: FloatArray, first: int, itself: IntArray) -> None:
        """Offer the candidates ``first``, ``first + 1``, ... with scores ``(n, m)`` to all rows, in place; ``itself`` ``(n,)`` are the ids
        of the rows among the candidates, which are none of their own. Raises ValueError: a score is NaN or infinite.
        """
        if not np.isfinite(scores).all():
            raise ValueError("a score is not finite: the weighted views overflow")
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

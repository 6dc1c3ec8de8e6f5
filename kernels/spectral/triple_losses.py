r"""Triples of rows (i, j, k) on an unknown kernel matrix, with the constraint that j is at least as close to i as k is (structure
preserving embedding).

The loss of a triple depends on :math:`u = d_{ij} - d_{ik}`, with d the squared distances under K. All triples share one slack, so the dual
variables satisfy :math:`\alpha \ge 0, \sum \alpha \le C`, with the sum over *all* triples, and the loss is :math:`C \max(0, \max_t -u_t)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp

from ..jit import compiled
from ..weights.norm_sets import project_elastic
from .pair_losses import NO_CONJUGATE, DistanceTerms, PairLoss
from .problem import SpectralProblem

NORM_STEPS = 20  # Power iterations of the norm of the terms.


@dataclass(frozen=True)
class TripleTerms:
    """Differences of squared distances, ``u_t = d_ij - d_ik``, of n rows; ``triples``, ``(m, 3)``, are distinct rows i, j, k."""

    n: int
    triples: np.ndarray

    multiplicity = 1.0

    @property
    def size(self) -> int:
        return len(self.triples)

    @property
    def norm2(self) -> float:
        """Lower bound of the squared norm of ``alpha -> matrix(alpha)``, by power iterations; this bound sets the length of the first
        step.
        """
        return self._norm2

    @cached_property
    def _norm2(self) -> float:
        i, j, k = self.triples.T
        x, norm = 1.5 + np.cos(1.7 * np.arange(self.size) + 0.3), 1.0
        for _ in range(NORM_STEPS if self.size else 0):
            matrix = self.matrix(x / np.linalg.norm(x))
            diagonal, dense = matrix.diagonal(), matrix.toarray()
            x = (diagonal[j] - 2.0 * dense[i, j]) - (diagonal[k] - 2.0 * dense[i, k])
            norm = float(np.linalg.norm(x))
            if norm == 0.0:
                return 1.0
        return norm

    def matrix(self, alpha: np.ndarray) -> sp.csr_array:
        """Return the sum of the terms, ``(n, n)``: the Laplacian of the graph with weight alpha at ij and -alpha at ik."""
        i, j, k = self.triples.T
        return DistanceTerms(self.n, np.concatenate([i, i]), np.concatenate([j, k])).matrix(np.concatenate([alpha, -alpha]))

    def forms(self, vectors: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return u of ``K = vectors diag(values) vectors'``."""
        return triple_forms(vectors, values, self.triples)


@compiled
def triple_forms(vectors: np.ndarray, values: np.ndarray, triples: np.ndarray) -> np.ndarray:
    """Return the differences of squared distances under ``vectors diag(values) vectors'``, float64."""
    out = np.empty(len(triples))
    for t in range(len(triples)):
        i, j, k = triples[t, 0], triples[t, 1], triples[t, 2]
        total = 0.0
        for q in range(len(values)):
            to_j, to_k = vectors[i, q] - vectors[j, q], vectors[i, q] - vectors[k, q]
            total += values[q] * (to_j * to_j - to_k * to_k)
        out[t] = total
    return out


@compiled
def worst_triples(
    factor: np.ndarray, starts: np.ndarray, neighbours: np.ndarray, first: int = 0, last: int = -1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the most violated triple of each row ``first:last`` (-1: to the end), ``(m, 3)``, and its violation ``d_ik - d_ij``.

    The violation is ``-inf`` if none or all of the other rows are neighbours of the row. d are squared distances of rows of
    ``factor`` ``(n, r)``; the sorted neighbours are in CSR form.
    """
    n, r = factor.shape
    last = n if last < 0 else last
    triples, violation = np.zeros((last - first, 3), np.int64), np.empty(last - first)
    for i in range(first, last):
        at, last = starts[i], starts[i + 1]
        farthest, nearest, j_best, k_best = -np.inf, np.inf, -1, -1
        for j in range(n):
            if j == i:
                continue
            d = 0.0
            for q in range(r):
                difference = factor[i, q] - factor[j, q]
                d += difference * difference
            if at < last and neighbours[at] == j:
                at += 1
                if d > farthest:
                    farthest, k_best = d, j
            elif d < nearest:
                nearest, j_best = d, j
        row = i - first
        triples[row, 0], triples[row, 1], triples[row, 2] = i, j_best, k_best
        violation[row] = farthest - nearest
    return triples, violation


def project_shared(alpha: np.ndarray, C: float) -> np.ndarray:
    """Return the nearest point with non-negative entries and a sum of at most C."""
    return C * project_elastic(np.asarray(alpha, dtype=np.float64) / C, 1.0) if len(alpha) else alpha


SHARED_SLACK = PairLoss(lambda u, d, C: C * max(0.0, float(np.max(d - u, initial=0.0))), *NO_CONJUGATE, project_shared, False)
"""The largest violation, times C."""


@dataclass(frozen=True)
class TripleProblem(SpectralProblem):
    """A spectral problem whose loss is the largest violation of its triples; its ``loss`` is ignored."""

    @property
    def rule(self) -> PairLoss:
        return SHARED_SLACK


def new_triples(known: np.ndarray, triples: np.ndarray) -> np.ndarray:
    """Return the ``triples`` ``(m, 3)`` that are not yet known."""
    if not len(known) or not len(triples):
        return triples
    known_rows = {tuple(triple) for triple in known.tolist()}
    return triples[[tuple(triple) not in known_rows for triple in triples.tolist()]]

r"""Losses of pairs of rows on an unknown kernel matrix, and the linear terms :math:`\langle K, T_e\rangle` that they depend on.

The loss of a pair e = (i, j) depends on :math:`u_e`, its signed kernel entry or its signed squared distance in feature space. With one dual
variable :math:`\alpha_e` per unordered pair, the dual of every problem here has the matrix :math:`A = M + \sum_e \alpha_e T_e`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from ..eigen.column_block import Vectors
from ..eigen.positive_part import column_pieces
from ..jit import compiled


class Terms(Protocol):
    """Symmetric sparse matrices :math:`T_e`, one per dual variable."""

    @property
    def size(self) -> int: ...

    @property
    def multiplicity(self) -> float:
        """How often each term counts: twice if a variable represents two ordered pairs."""
        ...

    @property
    def norm2(self) -> float:
        r"""Lipschitz bound: as functions of :math:`\alpha`, the forms have the Lipschitz constant ``norm2`` times that of the map from A to
        K.
        """
        ...

    def matrix(self, alpha: np.ndarray) -> sp.csr_array:
        """Return :math:`\\sum_e \\alpha_e T_e`, ``(n, n)``."""
        ...

    def forms(self, vectors: Vectors, values: np.ndarray) -> np.ndarray:
        """Return u of ``K = vectors diag(values) vectors'``, ``(size,)``: the trace of K times each term, divided by ``multiplicity``."""
        ...


@dataclass(frozen=True)
class EntryTerms:
    """Signed entries :math:`u_e = t_e K_{ij}` of pairs of n rows, ``rows < cols``; t is +1 for pairs of rows that belong together, -1
    for other pairs.
    """

    n: int
    rows: np.ndarray
    cols: np.ndarray
    signs: np.ndarray

    multiplicity = 2.0
    norm2 = 1.0

    @property
    def size(self) -> int:
        return len(self.rows)

    def matrix(self, alpha: np.ndarray) -> sp.csr_array:
        """Return the symmetric matrix with ``alpha * signs`` at the pairs."""
        values = alpha * self.signs
        both = np.concatenate([self.rows, self.cols]), np.concatenate([self.cols, self.rows])
        return sp.csr_array((np.concatenate([values, values]), both), shape=(self.n, self.n))

    def forms(self, vectors: Vectors, values: np.ndarray) -> np.ndarray:
        """Return ``signs * K[rows, cols]``."""
        return self.signs * _add_up(add_pair_entries, vectors, values, self.rows, self.cols)


@dataclass(frozen=True)
class DistanceTerms:
    """Signed squared distances :math:`u_e = t (K_{ii} + K_{jj} - 2 K_{ij})` of pairs of n rows, ``rows < cols``; t is ``sign``."""

    n: int
    rows: np.ndarray
    cols: np.ndarray
    sign: float = 1.0

    multiplicity = 1.0

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def norm2(self) -> float:
        """Twice the largest degree of the graph of the pairs, plus 2."""
        return 2.0 * float(np.bincount(np.concatenate([self.rows, self.cols]), minlength=self.n).max(initial=0)) + 2.0

    def matrix(self, alpha: np.ndarray) -> sp.csr_array:
        """Return the signed Laplacian of the graph with edge weights ``sign * alpha``."""
        values = self.sign * alpha
        i, j = self.rows, self.cols
        places = np.concatenate([i, j, i, j]), np.concatenate([j, i, i, j])
        return sp.csr_array((np.concatenate([-values, -values, values, values]), places), shape=(self.n, self.n))

    def forms(self, vectors: Vectors, values: np.ndarray) -> np.ndarray:
        """Return ``sign`` times the squared distances under K."""
        return self.sign * _add_up(add_pair_distances, vectors, values, self.rows, self.cols)


def _add_up(add: Callable[..., None], vectors: Vectors, values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
    """Return, for each pair, the sum that ``add`` accumulates over the columns of ``vectors``, in order."""
    out = np.zeros(len(rows))
    for place, columns in column_pieces(vectors):
        add(out, columns, values[place], rows, cols)
    return out


@compiled
def add_pair_entries(out: np.ndarray, vectors: np.ndarray, values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> None:
    """Add ``K[rows, cols]`` of ``K = vectors diag(values) vectors'``, in float64."""
    for e in range(len(rows)):
        i, j = rows[e], cols[e]
        total = out[e]
        for q in range(len(values)):
            total += values[q] * vectors[i, q] * vectors[j, q]
        out[e] = total


@compiled
def add_pair_distances(out: np.ndarray, vectors: np.ndarray, values: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> None:
    """Add squared distances between pairs of rows of ``vectors diag(values)^(1/2)``, in float64."""
    for e in range(len(rows)):
        i, j = rows[e], cols[e]
        total = out[e]
        for q in range(len(values)):
            difference = vectors[i, q] - vectors[j, q]
            total += values[q] * difference * difference
        out[e] = total


@dataclass(frozen=True)
class PairLoss:
    r"""A loss of ``u`` against its target ``d``, with weight C.

    * ``value(u, d, C)``: the sum over pairs.
    * ``conjugate(alpha, C)``: subtracted from :math:`d'\alpha` in the dual; ``slope`` is its derivative.
    * ``project``: returns the nearest feasible ``alpha``.
    * ``smooth``: whether the dual has the term :math:`\alpha^2 / 2C`.
    """

    value: Callable[[np.ndarray, np.ndarray, float], float]
    conjugate: Callable[[np.ndarray, float], float]
    slope: Callable[[np.ndarray, float], np.ndarray]
    project: Callable[[np.ndarray, float], np.ndarray]
    smooth: bool


_SQUARE = (lambda alpha, C: float(alpha @ alpha) / (2.0 * C), lambda alpha, C: alpha / C)
NO_CONJUGATE = (lambda alpha, C: 0.0, lambda alpha, C: np.zeros_like(alpha))  # A conjugate that is 0 on its domain, and its slope.
PAIR_LOSSES: dict[str, PairLoss] = {
    "linear": PairLoss(lambda u, d, C: C * float(np.sum(d - u)), *NO_CONJUGATE, lambda alpha, C: np.full_like(alpha, C), False),
    "squared_hinge": PairLoss(
        lambda u, d, C: 0.5 * C * float(np.sum(np.maximum(d - u, 0.0) ** 2)), *_SQUARE, lambda alpha, C: np.maximum(alpha, 0.0), True
    ),
    "square": PairLoss(lambda u, d, C: 0.5 * C * float(np.sum((d - u) ** 2)), *_SQUARE, lambda alpha, C: alpha, True),
    "hinge": PairLoss(
        lambda u, d, C: C * float(np.sum(np.maximum(d - u, 0.0))), *NO_CONJUGATE, lambda alpha, C: np.clip(alpha, 0.0, C), False
    ),
}
"""Losses by name. For the linear loss alpha is C, so no iteration is needed. The value of the linear loss is 0 at the target."""

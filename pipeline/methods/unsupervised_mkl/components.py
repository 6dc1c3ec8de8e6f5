"""Kernel principal components of the learnt kernel as machines, from its matrix or from products with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ....kernels.eigen.block_lanczos import column_signs, leading_pairs
from ....kernels.jit import one_thread
from ...grams.grams import Grams
from ...grams.weighted_sum import CombinedGram

RANK_TOL = 1e-6  # eigenvalues below this share of the largest are rounding of single-precision entries: such a component is 0


class Components(NamedTuple):
    """Coefficients ``(count, n)``, intercepts and eigenvalues ``(count,)``.

    With H the centring matrix and ``H K H = V diag(lam) V'``, component r of a point x is ``(k(x) - K 1/n)' V_r / sqrt(lam_r)``; signs
    are such that the largest coefficient is positive (Schölkopf, Smola, Müller, Neural Computation 10, 1998).
    """

    beta: np.ndarray
    intercepts: np.ndarray
    eigenvalues: np.ndarray
    residual: float = 0.0  # of the eigenvectors, in units of the largest eigenvalue; 0 where they come from the matrix


def principal_components(grams: Grams, weights: np.ndarray, count: int) -> Components:
    """Return the components of a weighted sum that fits this process."""
    gram = np.asarray(grams.combine(weights).rows(np.arange(grams.n)), np.float64)
    means = gram.mean(axis=0)
    centred = gram - means[:, None] - means[None, :] + means.mean()
    lowest = grams.n - min(count, grams.n)
    with one_thread():
        values, vectors = eigh(centred, subset_by_index=[lowest, grams.n - 1])
    return _as_machines(values[::-1], vectors[:, ::-1], means, count)


def components_by_passes(total: CombinedGram, count: int) -> Components:
    """Return the components of a weighted sum of which only products are known, each of a few vectors and one pass."""
    means = total.matvec(np.ones(total.n)) / total.n

    def centred(V: np.ndarray) -> np.ndarray:
        W = total.matmat(V - V.mean(axis=0))
        return W - W.mean(axis=0)

    found = leading_pairs(centred, total.n, min(count, total.n))
    return _as_machines(found.values, found.vectors, means, count)._replace(residual=found.residual)


def _as_machines(values: np.ndarray, vectors: np.ndarray, means: np.ndarray, count: int) -> Components:
    beta, lam = np.zeros((count, len(means))), np.zeros(count)
    for r, (value, vector) in enumerate(zip(values, vectors.T, strict=True)):
        if value > RANK_TOL * max(values[0], 0.0) and value > 0.0:
            sign = float(column_signs(vector[:, None])[0])
            beta[r], lam[r] = sign * (vector - vector.mean()) / np.sqrt(value), value
    return Components(beta, -(beta @ means), lam)

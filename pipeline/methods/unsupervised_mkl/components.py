"""Kernel principal components of the learnt kernel, and the memory of the driver with whole matrices and with passes."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import eigh

from ....kernels.eigen.block_lanczos import block_columns, column_signs, leading_pairs
from ....kernels.jit import one_thread
from ....storage import BlockStore, MemoryBlocks
from ...core.memory import Item, total_bytes
from ...grams.grams import Grams
from ...grams.settings import PLACES, GramSettings
from ...grams.weighted_sum import CombinedGram
from ...passes.columns import entry_count
from .codes_pass import MAX_CANDIDATES
from .config import UMKLConfig

RANK_TOL = 1e-6  # eigenvalues below this share of the largest are rounding of single-precision entries: such a component is 0


class Components(NamedTuple):
    """Kernel principal components.

    * ``beta`` ``(count, n)``: coefficients.
    * ``intercepts``, ``eigenvalues`` ``(count,)``.

    With H the centring matrix and ``H K H = V diag(lam) V'``, component r of a point x is ``(k(x) - K 1/n)' V_r / sqrt(lam_r)``; signs are
    such that the largest coefficient is positive (Schölkopf, Smola, Müller, Neural Computation 10, 1998).
    """

    beta: np.ndarray
    intercepts: np.ndarray
    eigenvalues: np.ndarray
    residual: float = 0.0  # of the eigenvectors, in units of the largest eigenvalue; 0 where they come from the matrix


def principal_components(grams: Grams, weights: np.ndarray, count: int) -> Components:
    """Return the components of a weighted sum of kernels that fits in this process."""
    gram = np.asarray(grams.combine(weights).rows(np.arange(grams.n)), np.float64)
    means = gram.mean(axis=0)
    centred = gram - means[:, None] - means[None, :] + means.mean()
    lowest = grams.n - min(count, grams.n)
    with one_thread():
        values, vectors = eigh(centred, subset_by_index=[lowest, grams.n - 1])
    return _as_machines(values[::-1], vectors[:, ::-1], means, count)


def components_by_passes(total: CombinedGram, count: int) -> Components:
    """Return the components of a weighted sum of kernels that is accessed only through products. A product with a few vectors takes one
    pass.
    """
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


class Way(NamedTuple):
    """How a fit processes its points, decided by sizes alone."""

    by_passes: bool
    settings: GramSettings
    items: tuple[Item, ...]  # that this process holds


def choose_way(
    config: UMKLConfig, settings: GramSettings, data: BlockStore | MemoryBlocks, k: int, n_bases: int, driver_memory: int
) -> Way:
    """Return the plan with whole matrices if they fit in the driver's memory, else with passes that keep no kernels in memory."""
    n, d = data.n_rows, data.n_cols
    whole = (
        ("inner products of all rows", 8 * n * n),
        ("sum of the kernels in both precisions, with the eigensolver's copies", 28 * n * n),
        ("rows, as read and in float64", 16 * n * d),
        settings.items(n, k, driver_memory)[0],
        ("entries of the kernels at the bases", 16 * k * n * n_bases),
    )
    if total_bytes(whole) <= driver_memory:
        return Way(False, settings, whole)
    if settings.policy == "memory":
        settings = replace(settings, policy="recompute", reason=f"{PLACES['recompute']}: whole matrices are beyond the driver's memory")
    return Way(True, settings, _pass_items(config, data, k, n_bases))


def _pass_items(config: UMKLConfig, data: BlockStore | MemoryBlocks, k: int, n_bases: int) -> tuple[Item, ...]:
    n, columns = data.n_rows, block_columns(config.n_components)[1]
    largest = "largest entries of the rows of the kernels", 40 * k * n * n_bases
    codes = "candidates of the sparse codes and their coefficients", 40 * MAX_CANDIDATES * n
    return (
        ("bases of the last sweep and of this one, on their way", 24 * n * n_bases),
        ("diagonals of the kernels, sums of their rows, and parts of both", 96 * k * n),
        ("vectors of the eigensolver with their images, and coefficients", 24 * n * columns),
        ("rows of the model, as read and joined", 24 * entry_count(data)),
        *((largest,) if config.normalize == "column_sum" else ()),
        *((codes,) if config.start != "greedy" else ()),
    )

r"""Labels of a few nodes of a weighted graph extended to the others by the harmonic function.

With symmetric weights W >= 0, degrees D, and known values :math:`f_L` the unknown ones minimise :math:`\sum_{ij} W_{ij} (f_i - f_j)^2`:

.. math:: (D_{UU} - W_{UU}) f_U = W_{UL} f_L

(Zhu, Ghahramani, Lafferty, ICML 2003; Zhuang: Kernel learning, thesis, 2011, section 7.4.4). Every value is a mean of its neighbours', so
none leaves the range of the known ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from ..arrays import FloatArray, IntArray
from ..jit import one_thread


def strength_graph(strengths: ArrayLike) -> FloatArray:
    """Return the mean of a matrix of strengths >= 0 with its transpose, with a zero diagonal: the W of a harmonic function."""
    directed = np.asarray(strengths, dtype=np.float64)
    W = 0.5 * (directed + directed.T)
    np.fill_diagonal(W, 0.0)
    return W


def harmonic_values(W: object, labels: ArrayLike) -> FloatArray:
    """Return the harmonic function of known values ``(n,)``, which stay, NaN where unknown; ``(n, m)``: several functions, same nodes.
    ``W``: ``(n, n)`` symmetric weights >= 0, dense or sparse; the diagonal does not matter. Raises ValueError: weights of another form, no
    known value, or an unknown node that no path leads from to a known one.
    """
    values = np.array(labels, dtype=np.float64)
    weights = _check_weights(W, values)
    known = ~np.isnan(values.reshape(len(values), -1)).any(axis=1)
    _check_linked(weights, np.asarray(known))
    if known.all():
        return values
    free, fixed = np.flatnonzero(~known), np.flatnonzero(known)
    with one_thread():
        values[free] = _solve_unknown(weights, free, fixed, values[fixed])
    return values


@dataclass(frozen=True)
class HarmonicValues:
    """Values ``(n, m)`` of harmonic functions, how far one is from the exact ones at most, and how the steps ended."""

    values: FloatArray
    error: float
    iterations: int
    converged: bool


def harmonic_by_products(
    product: Callable[[FloatArray], FloatArray], labels: FloatArray, *, tol: float = 1e-6, max_iter: int = 1000
) -> HarmonicValues:
    """Return the harmonic functions of known values ``(n, m)``, rows of NaN where unknown, from ``product(V)``, which is ``V W`` of ``(c,
    n)``: conjugate gradients, preconditioned by the degrees, to an error of ``tol`` in every value, or ``max_iter`` products.

    The error is certified: with residuals r, ``||f - f*||_inf <= max |r_i / D_i| / min_i p_i``, where ``p_i`` is the share of a node's
    degree that leads to known nodes. Raises ValueError: no known value, or a node without a link to a known one.
    """
    known: NDArray[np.bool_] = np.asarray(~np.isnan(labels).any(axis=1))
    if not known.any():
        raise ValueError("labels hold no known value; at least one node must be labelled")
    values = np.where(known[:, None], labels, 0.0)
    if known.all():
        return HarmonicValues(values, 0.0, 0, converged=True)
    degrees, mass, *right = product(np.vstack([np.ones(len(values)), known.astype(np.float64), values.T]))
    free = ~known
    if not (mass[free] > 0).all():
        raise ValueError(
            f"node {int(np.flatnonzero(free)[np.argmin(mass[free])])} is not linked to any labelled one; label one of each part"
        )

    def system(x: FloatArray) -> FloatArray:
        padded = np.zeros((x.shape[0], len(values)))
        padded[:, free] = x
        return degrees[free] * x - product(padded)[:, free]

    share = float((mass / np.maximum(degrees, mass))[free].min())
    start, inverse = np.array(right)[:, free], 1.0 / degrees[free]
    x, error, iterations = _conjugate_gradients(system, start, start / mass[free], inverse, tol * share, max_iter)
    values[free] = x.T
    return HarmonicValues(values, error / share, iterations, error <= tol * share)


def _conjugate_gradients(
    system: Callable[[FloatArray], FloatArray], right: FloatArray, x: FloatArray, inverse: FloatArray, tol: float, max_iter: int
) -> tuple[FloatArray, float, int]:
    """Return solutions ``(c, m)`` from a start x, the largest residual in units of the diagonal, whose ``inverse`` preconditions, and the
    products taken.
    """
    residual = right - system(x)
    scaled = residual * inverse
    direction, rho, iterations = scaled, np.einsum("ij,ij->i", residual, scaled), 1
    while (error := float(np.abs(scaled).max())) > tol and iterations < max_iter:
        image = system(direction)
        curvature = np.einsum("ij,ij->i", direction, image)
        step = np.divide(rho, curvature, out=np.zeros_like(rho), where=curvature > 0)[:, None]
        x, residual = x + step * direction, residual - step * image
        scaled = residual * inverse
        before, rho = rho, np.einsum("ij,ij->i", residual, scaled)
        direction = scaled + np.divide(rho, before, out=np.zeros_like(rho), where=before > 0)[:, None] * direction
        iterations += 1
    return x, error, iterations


def _check_weights(W: object, values: FloatArray) -> Any:
    weights: Any = sp.csr_array(W, dtype=np.float64) if sp.issparse(W) else np.asarray(W, dtype=np.float64)
    n = len(values)
    if weights.shape != (n, n) or values.ndim not in (1, 2):
        raise ValueError(f"W has shape {weights.shape} and labels {values.shape}; they must be (n, n) and (n,)")
    entries = weights.data if sp.issparse(weights) else weights
    if not np.isfinite(entries).all() or (entries.size and entries.min() < 0):
        raise ValueError("W holds a weight that is negative or not finite; strengths must be at least 0")
    if np.isinf(values).any():
        raise ValueError("labels hold infinity; they must be numbers, NaN where unknown")
    if abs(weights - weights.T).max() > 1e-10 * max(float(entries.max(initial=0.0)), 1e-300):
        raise ValueError("W is not symmetric; strength_graph takes the mean of both directions")
    return weights


def _check_linked(weights: Any, known: NDArray[np.bool_]) -> None:
    # Loaded on demand, as every worker would pay for it.
    from scipy.sparse.csgraph import connected_components

    if not known.any():
        raise ValueError("labels hold no known value; at least one node must be labelled")
    count, part = connected_components(sp.csr_array(weights), directed=False)
    labelled = np.zeros(count, dtype=bool)
    labelled[part[known]] = True
    lost = ~labelled[part]
    if lost.any():
        raise ValueError(
            f"node {int(np.argmax(lost))} is not linked to any labelled one ({int(lost.sum())} such nodes); label one of each part"
        )


def _solve_unknown(weights: Any, free: IntArray, fixed: IntArray, known: FloatArray) -> FloatArray:
    right = weights[free][:, fixed] @ known
    inner = weights[free][:, free]
    degrees = np.asarray(weights[free].sum(axis=1)).ravel() - np.asarray(weights.diagonal())[free]
    if sp.issparse(weights):
        from scipy.sparse.linalg import splu

        system = sp.diags_array(degrees + inner.diagonal()) - inner
        return splu(sp.csc_matrix(system)).solve(np.ascontiguousarray(right))
    system = -inner
    system.flat[:: len(free) + 1] = degrees
    return cho_solve(cho_factor(system, lower=True, overwrite_a=True), right)

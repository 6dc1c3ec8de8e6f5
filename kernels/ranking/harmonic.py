r"""Labels of a few nodes of a weighted graph extended to the others by the harmonic function.

With symmetric weights W >= 0, degrees D, and known values :math:`f_L` the unknown ones minimise :math:`\sum_{ij} W_{ij} (f_i - f_j)^2`:

.. math:: (D_{UU} - W_{UU}) f_U = W_{UL} f_L

(Zhu, Ghahramani, Lafferty, ICML 2003; Zhuang: Kernel learning, thesis, 2011, section 7.4.4). Every value is a mean of its neighbours', so
none leaves the range of the known ones.
"""

from __future__ import annotations

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

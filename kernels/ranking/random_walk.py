r"""Scores of the nodes of a graph by a random walk with restarts (VisualRank, PageRank), and quality measures of rankings.

.. math::

    r = \lambda S r + (1 - \lambda) \pi, \qquad S_{ij} = W_{ij} / \textstyle\sum_i W_{ij},

with non-negative similarities W and a prior :math:`\pi` that sums to one. Source: Zhuang, PhD thesis on kernel learning, Nanyang
Technological University, 2011, section 6.2; Jing and Baluja, IEEE TPAMI 30, 2008.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from ..arrays import FloatArray, IntArray
from ..jit import one_thread

ROWS_PER_BLOCK = 512  # Rows of the similarity matrix that are worked on at a time; products rest on it, bit for bit.
MIN_TOL = 1e-14  # Changes below this are rounding.


@dataclass(frozen=True)
class Walk:
    """A column-stochastic matrix S: the columns of W >= 0 divided by their sums; a column of zeros becomes uniform."""

    n: int
    rows: Callable[[int, int], Any]  # rows(lo, hi) of W, dense or sparse
    inverse: np.ndarray  # (n,) one over the sum of every column of W, 0 where there is none

    def product(self, r: np.ndarray) -> np.ndarray:
        weighted, out = self.inverse * r, np.empty(self.n)
        with one_thread():
            for lo, hi in _row_spans(self.n):
                out[lo:hi] = self.rows(lo, hi) @ weighted
        return out + r[self.inverse == 0].sum() / self.n

    def dense(self) -> np.ndarray:
        parts = [self.rows(lo, hi) for lo, hi in _row_spans(self.n)]
        weights = np.concatenate([part.toarray() if sp.issparse(part) else part for part in parts])
        return weights * self.inverse + np.where(self.inverse == 0, 1.0 / self.n, 0.0)


def _row_spans(n: int) -> list[tuple[int, int]]:
    return [(lo, min(lo + ROWS_PER_BLOCK, n)) for lo in range(0, n, ROWS_PER_BLOCK)]


def _walk_over(n: int, rows: Callable[[int, int], Any]) -> Walk:
    sums = np.zeros(n)
    for lo, hi in _row_spans(n):
        sums += np.asarray(rows(lo, hi).sum(axis=0)).ravel()
    with np.errstate(over="ignore"):
        inverse = np.divide(1.0, sums, out=np.zeros(n), where=sums > 0)
    # The sum of a column of denormal numbers has no inverse.
    inverse[~np.isfinite(inverse)] = 0.0
    return Walk(n, rows, inverse)


def is_stochastic(matrix: Any) -> bool:
    """Return whether a matrix is column stochastic already, to single precision: no negative entry, and columns that sum to one."""
    minimum = matrix.min() if matrix.shape[0] else 0.0
    return bool(minimum >= 0 and np.all(np.abs(np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel() - 1.0) <= 1e-6))


def walk_on(similarity: Any, diagonal: str = "zero") -> Walk:
    """Return the walk on a similarity or kernel matrix ``(n, n)``, dense or sparse; column j holds the transitions from node j.

    Negative entries become 0. With ``diagonal="zero"`` the diagonal becomes 0 as well; ``"keep"`` keeps it.
    """
    n = similarity.shape[0]
    if sp.issparse(similarity):
        weights = sp.csr_array(similarity, dtype=np.float64).maximum(0)
        if diagonal == "zero":
            weights = weights - sp.diags_array(weights.diagonal())
        weights = sp.csr_array(weights)
        return _walk_over(n, lambda lo, hi: weights[lo:hi])

    return _walk_in_memory(n, lambda lo, hi: _clip_rows(np.array(similarity[lo:hi], dtype=np.float64), lo, diagonal))


def walk_on_factor(factor: np.ndarray, diagonal: str = "zero", *, in_memory: bool = True) -> Walk:
    """Return the walk on the kernel ``F F'`` of a factor ``(n, r)``, with ``diagonal`` as in :func:`walk_on`.

    With ``in_memory`` the matrix is stored (``8 n^2`` bytes). Otherwise its rows are recomputed for every product, with bit-identical
    results.
    """

    def rows(lo: int, hi: int) -> np.ndarray:
        with one_thread():
            return _clip_rows(factor[lo:hi] @ factor.T, lo, diagonal)

    return (_walk_in_memory if in_memory else _walk_over)(len(factor), rows)


def _walk_in_memory(n: int, rows: Callable[[int, int], np.ndarray]) -> Walk:
    parts = {lo: rows(lo, hi) for lo, hi in _row_spans(n)}
    return _walk_over(n, lambda lo, hi: parts[lo])


def _clip_rows(block: np.ndarray, first: int, diagonal: str) -> np.ndarray:
    """Clip rows of a matrix at 0, in place; ``first`` is the index of the first row."""
    np.maximum(block, 0.0, out=block)
    if diagonal == "zero":
        at = np.arange(len(block))
        block[at, first + at] = 0.0
    return block


def normalise_prior(prior: ArrayLike | None, n: int) -> np.ndarray:
    """Return a prior with sum one, uniform for ``None``. Raises ValueError if the length is wrong, an entry is negative or infinite, or all
    entries are zero.
    """
    if prior is None:
        return np.full(n, 1.0 / n)
    values = np.asarray(prior, dtype=np.float64)
    if values.shape != (n,):
        raise ValueError(f"prior: shape {values.shape}; it must be ({n},), one number per row")
    wrong = np.flatnonzero(~np.isfinite(values) | (values < 0))
    if len(wrong):
        raise ValueError(f"prior: row {wrong[0]} has {values[wrong[0]]:g}; entries must be finite and not negative")
    if not values.any():
        raise ValueError("prior: all entries are 0; at least one must be positive")
    # By the largest first: a sum of large numbers may overflow.
    values = values / values.max()
    return values / values.sum()


@dataclass(frozen=True)
class Scores:
    """The stationary scores of a walk with restarts.

    * ``values``: the n scores, with sum one.
    * ``steps``: the number of products with S.
    * ``error``: a bound of the l1 distance from the exact scores, apart from rounding; 0 for the exact solution.
    """

    values: np.ndarray
    steps: int
    error: float


def walk_scores(walk: Walk, prior: np.ndarray, damping: float = 0.85, tol: float = 1e-10) -> Scores:
    """Return the fixed point of ``r = damping * S r + (1 - damping) * prior`` by power iteration from the prior.

    The iteration contracts by ``damping`` < 1 in the l1 norm, so it always ends. It stops when the l1 change of a step is below
    ``max(tol, MIN_TOL)``.
    """
    r, change, steps, most = prior, np.inf, 0, max_walk_steps(damping, tol)
    while change >= max(tol, MIN_TOL) and steps < most:
        (r, change), steps = step_walk(walk.product, r, prior, damping), steps + 1
    return Scores(r, steps, walk_error(change, damping))


def step_walk(product: Callable[[np.ndarray], np.ndarray], r: np.ndarray, prior: np.ndarray, damping: float) -> tuple[np.ndarray, float]:
    """Return the vector ``damping S r + (1 - damping) prior`` and the l1 distance of this vector from r; ``product(r)`` is S r."""
    new = damping * product(r) + (1.0 - damping) * prior
    return new, float(np.abs(new - r).sum())


def max_walk_steps(damping: float, tol: float) -> int:
    """Return the largest number of steps until a change is below ``tol``, apart from rounding. The first change is at most 2, and each
    step multiplies it by at most ``damping``.
    """
    return 2 + (0 if damping == 0 else math.ceil(math.log(max(tol, MIN_TOL) / 2.0) / math.log(damping)))


def walk_error(change: float, damping: float) -> float:
    """Return the bound of the l1 distance from the exact scores after a step with l1 change ``change``."""
    return change * damping / (1.0 - damping)


def exact_scores(walk: Walk, prior: np.ndarray, damping: float = 0.85) -> Scores:
    """Return ``(1 - damping) (I - damping S)^-1 prior`` by one factorisation of the dense matrix."""
    with one_thread():
        values = scipy.linalg.solve(np.eye(walk.n) - damping * walk.dense(), (1.0 - damping) * prior)
    return Scores(values, 0, 0.0)


def rank_rows(scores: np.ndarray) -> np.ndarray:
    """Return the rows by descending score, ``(n,)``; rows with equal scores keep their order."""
    return np.argsort(-np.asarray(scores), kind="stable")


def top_precision(scores: np.ndarray, relevant: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return the share of relevant rows among the first N of a ranking, for each N in ``sizes``. If there are fewer than N rows, all rows
    are used.
    """
    hits = np.cumsum(np.asarray(relevant, dtype=bool)[rank_rows(scores)])
    taken = [min(size, len(hits)) for size in sizes]
    return np.array([hits[size - 1] / size for size in taken])


def average_precision(scores: np.ndarray, relevant: np.ndarray) -> float:
    """Return the precision at the rank of a relevant row, averaged over the relevant rows; NaN if no row is relevant."""
    positions = np.flatnonzero(np.asarray(relevant, dtype=bool)[rank_rows(scores)])
    return float(np.mean(np.arange(1, len(positions) + 1) / (positions + 1))) if len(positions) else float("nan")


# Labels of a few nodes of a weighted graph extended to the others by the harmonic function.
#
# With symmetric weights W >= 0, degrees D, and known values :math:`f_L` the unknown ones minimise :math:`\sum_{ij} W_{ij} (f_i - f_j)^2`:
#
# .. math:: (D_{UU} - W_{UU}) f_U = W_{UL} f_L
#
# (Zhu, Ghahramani, Lafferty, ICML 2003; Zhuang: Kernel learning, thesis, 2011, section 7.4.4). Every value is a mean of its neighbours', so
# none leaves the range of the known ones.


def strength_graph(strengths: ArrayLike) -> FloatArray:
    """Return W for a harmonic function: the mean of a matrix of strengths >= 0 and its transpose, with a zero diagonal."""
    directed = np.asarray(strengths, dtype=np.float64)
    W = 0.5 * (directed + directed.T)
    np.fill_diagonal(W, 0.0)
    return W


def harmonic_values(W: object, labels: ArrayLike) -> FloatArray:
    """Return the harmonic function that takes the known values in ``labels`` ``(n,)``, where unknown values are NaN. ``labels`` ``(n, m)``
    gives m functions on the same nodes.

    ``W``, ``(n, n)``, holds symmetric weights >= 0, dense or sparse; the diagonal is ignored. Raises ValueError if the weights have another
    form, no value is known, or an unknown node has no path to a known one.
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
    """Values ``(n, m)`` of harmonic functions, a bound of the largest error, and why the iteration ended."""

    values: FloatArray
    error: float
    iterations: int
    converged: bool


def harmonic_by_products(
    product: Callable[[FloatArray], FloatArray], labels: FloatArray, *, tol: float = 1e-6, max_iter: int = 1000
) -> HarmonicValues:
    """Return the harmonic functions that take the known values in ``labels`` ``(n, m)``, using only products with W. Rows of ``labels``
    without known values are NaN.

    ``product(V)`` is ``V W`` for V ``(c, n)``. Conjugate gradients, preconditioned by the degrees, run until every value has an error of at
    most ``tol``, or for ``max_iter`` products. The error is certified: with residuals r, ``||f - f*||_inf <= max |r_i / D_i| / min_i p_i``,
    where ``p_i`` is the share of a node's degree that leads to known nodes. Raises ValueError if no value is known or a node has no link to
    a known one.
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
            f"node {int(np.flatnonzero(free)[np.argmin(mass[free])])} has no link to a labelled node; label it or one of its neighbours"
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
    """Return solutions ``(c, m)`` from a start x, the largest residual relative to the diagonal, and the number of products.

    ``inverse`` is the inverse of the diagonal, used as the preconditioner.
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
        raise ValueError("W holds a weight that is negative or not finite; weights must be finite and at least 0")
    if np.isinf(values).any():
        raise ValueError("labels hold infinity; known labels must be finite, unknown labels NaN")
    if abs(weights - weights.T).max() > 1e-10 * max(float(entries.max(initial=0.0)), 1e-300):
        raise ValueError("W is not symmetric; use strength_graph, which averages both directions")
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
            f"node {int(np.argmax(lost))} is not connected to any labelled node ({int(lost.sum())} such nodes); "
            "label a node of every connected component"
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

"""A second-order model of J in the kernel weights, and its minimiser over an elastic-net set.

J(theta) = max over beta of c'beta - sum_i kink_i |beta_i| - 1/2 beta'(K_theta + diag(ridge)) beta has the gradient -1/2 s, where
s_q = beta'K_q beta.
Where the free variables F (strictly inside their interval) stay the free ones, its Hessian is

    H = U_F' P U_F,   U_F = ((K_q beta)_F)_q,   P = A - A 1 1'A / (1'A 1),   A = (K_theta + diag(ridge))_FF^-1,

P = A without an equality (source: Chapelle and Rakotomamonjy, "Second Order Optimization of Kernel Parameters", NIPS workshop on kernel
learning, 2008). With the Cholesky factor L of the matrix it is R'R, R = (I - z z'/z'z) L^-1 U_F, z = L^-1 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs, solve_triangular

from ..jit import compiled, one_thread
from ..weights.norm_sets import elastic_response, greatest, project_elastic
from ..weights.projected_ascent import blend, image, inner
from .dual import DualProblem

FloatArray = NDArray[np.float64]

(_potrf,) = get_lapack_funcs(("potrf",), dtype=np.float64)

JITTERS = (1e-6, 1e-4, 1e-2)
"""Shares of the mean diagonal added in turn until a factor exists: entries may be of single precision."""

STEPS = 2_000
LOOK = 5
"""Most steps of the minimisation, and steps between two looks at its gap."""

DENSER, BESIDE = 4.0, 64
"""A model is worth its arithmetic up to this many operations per entry that a pass reads, a machine being worth BESIDE kernels."""


def free_rows(problem: DualProblem, beta: FloatArray) -> NDArray[np.int64]:
    """Return the variables strictly inside their interval, and off the kink."""
    inside = (beta > problem.lo) & (beta < problem.hi)
    return np.flatnonzero(inside & ((beta != 0.0) | (problem.kinks() == 0.0)) if problem.kinked else inside)


def worth_a_model(n: int, free: int, kernels: int) -> bool:
    """Return whether factor and products of a model take less than the passes it saves."""
    return free**3 / 3 + free**2 * kernels + 2.0 * free * kernels**2 <= DENSER * (kernels + BESIDE) * float(n) ** 2


def curvature_root(gram: FloatArray, products: FloatArray, paired: bool) -> FloatArray:
    """Return R with R'R the Hessian of J, at most as many rows as kernels.

    Parameters
    ----------
    gram : ndarray of shape (f, f)
        (K_theta + diag(ridge))_FF, overwritten.
    products : ndarray of shape (w, f)
        (K_q beta)_F of w kernels.
    paired : bool
        Whether the sum of beta is fixed.
    """
    kernels, free = products.shape
    if not free:
        return np.zeros((0, kernels))
    with one_thread():
        factor = _factor(gram)
        root = solve_triangular(factor, products.T, lower=True)
        if paired:
            z = solve_triangular(factor, np.ones(free), lower=True)
            root -= np.outer(z, (z @ root) / (z @ z))
        return np.ascontiguousarray(root if free <= kernels else np.linalg.qr(root, mode="r"))


def _factor(gram: FloatArray) -> FloatArray:
    """Return the lower factor in the place of the matrix; what is above it is of no use."""
    view = np.einsum("ii->i", gram)
    diagonal, before = view.copy(), 0.0
    mean = float(diagonal.mean()) or 1.0
    for share in JITTERS:
        diagonal += (share - before) * mean
        view[:] = diagonal
        before = share
        # The transpose, the same numbers, is in LAPACK's order; one triangle is overwritten, the other one keeps the matrix.
        factor, failed = _potrf(gram.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return factor
        kept = np.tril(gram, -1)
        np.add(kept, kept.T, out=gram)
    return np.diag(np.sqrt(np.maximum(diagonal, 1e-300)))


def free_part(gram: NDArray[Any], free: NDArray[np.int64], ridges: FloatArray) -> FloatArray:
    """Return (K + diag(ridge))_FF in float64, from K (n, n) in any precision and the ridges of all rows."""
    found = np.empty((len(free), len(free)))
    _gather(gram, free, ridges, found)
    return found


@compiled
def _gather(gram: NDArray[Any], free: NDArray[np.int64], ridges: FloatArray, out: FloatArray) -> None:
    for i in range(free.size):
        row, into = gram[free[i]], out[i]
        for j in range(free.size):
            into[j] = row[free[j]]
        into[i] += ridges[free[i]]


def model_minimiser(theta: FloatArray, s: FloatArray, root: FloatArray, v: float, tol: float) -> FloatArray:
    """Return argmin over the elastic-net set of -1/2 <s, x - theta> + 1/2 ||R (x - theta)||^2, to a gap of tol.

    Parameters
    ----------
    theta, s : ndarray of shape (w,)
    root : ndarray of shape (r, w)
    v : float
        Shape of the set.
    tol : float
        In units of J.
    """
    if not len(root):
        return elastic_response(s, v)
    with one_thread():
        return _minimised(theta, s, root, np.ascontiguousarray(root.T), v, tol, STEPS)


@compiled
def _minimised(theta: FloatArray, s: FloatArray, root: FloatArray, turned: FloatArray, v: float, tol: float, most: int) -> FloatArray:
    """Accelerated projected gradients with backtracking, started anew when momentum points uphill."""
    start = blend(theta, 0.0, theta)
    x, ahead, momentum = start, start, 1.0
    # Where the curvature is rounding, steps of a million diameters of the set reach its edge too, and can still be projected.
    least = max(1e-6 * max(greatest(s), greatest(blend(np.zeros(s.size), -1.0, s))), 1e-300)
    flat = root.reshape(root.size)
    bend = max(inner(flat, flat) / max(1, min(root.shape[0], root.shape[1])), least)
    for step in range(most):
        slope = blend(image(turned, image(root, blend(ahead, -1.0, theta))), -0.5, s)
        if step % LOOK == 0:
            # The least of the linearised model over the set bounds the model from below.
            here = blend(image(turned, image(root, blend(x, -1.0, theta))), -0.5, s)
            if inner(here, blend(x, -1.0, elastic_response(blend(np.zeros(s.size), -1.0, here), v))) <= tol:
                break
        bend = max(0.8 * bend, least)
        while True:
            trial = project_elastic(blend(ahead, -1.0 / bend, slope), v)
            move = blend(trial, -1.0, ahead)
            stretched = image(root, move)
            if inner(stretched, stretched) <= bend * inner(move, move) * (1.0 + 1e-12) or bend > 1e300:
                break
            bend *= 2.0
        last = blend(trial, -1.0, x)
        if inner(slope, last) > 0.0:
            ahead, momentum = trial, 1.0
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            ahead = blend(trial, (momentum - 1.0) / following, last)
            momentum = following
        x = trial
    return x

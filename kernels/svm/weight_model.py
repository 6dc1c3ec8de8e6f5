"""A second-order model of J in the kernel weights, and its minimiser over an elastic-net set.

J(theta) = max over beta of c'beta - sum_i e_i |beta_i| - 1/2 beta'(K_theta + diag(ridge)) beta has the gradient -1/2 s, where s_q =
beta'K_q beta. As long as the set F of free variables (strictly inside their interval) does not change, the Hessian of J is

    H = U_F' P U_F,   U_F = ((K_q beta)_F)_q,   P = A - A 1 1'A / (1'A 1),   A = (K_theta + diag(ridge))_FF^-1,

and P = A without an equality (source: Chapelle and Rakotomamonjy, "Second Order Optimization of Kernel Parameters", NIPS workshop on kernel
learning, 2008). With the Cholesky factor L of (K_theta + diag(ridge))_FF the Hessian is R'R, R = (I - z z'/z'z) L^-1 U_F, z = L^-1 1.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import get_lapack_funcs, solve_triangular

from ..arrays import Array, FloatArray, IntArray
from ..jit import compiled, one_thread
from ..weights.norm_sets import elastic_response, greatest_entry, project_elastic
from ..weights.reduced_gradient import add_scaled, inner_product, multiply
from .dual import DualProblem

(_potrf,) = get_lapack_funcs(("potrf",), dtype=np.float64)

JITTERS = (1e-6, 1e-4, 1e-2)  # Shares of the mean diagonal added in turn until a factor exists: entries may be of single precision.
MAX_STEPS = 2_000
STEPS_PER_CHECK = 5  # Greatest number of steps of the minimisation, and steps between two checks of its gap.

OPERATIONS_PER_ENTRY, MACHINE_COST = 4.0, 64
"""Cost model: a second-order model may take this many operations per entry that a pass reads; fitting one SVM costs as much as a pass
over MACHINE_COST kernels.
"""


def free_rows(problem: DualProblem, beta: FloatArray) -> IntArray:
    """Return the variables strictly inside their interval and not at the kink."""
    inside = (beta > problem.lo) & (beta < problem.hi)
    return np.flatnonzero(inside & ((beta != 0.0) | (problem.l1_weights() == 0.0)) if problem.has_l1_term else inside)


def is_model_cheaper(n: int, free: int, kernels: int) -> bool:
    """Return whether building the second-order model costs less than the passes that the model saves."""
    return free**3 / 3 + free**2 * kernels + 2.0 * free * kernels**2 <= OPERATIONS_PER_ENTRY * (kernels + MACHINE_COST) * float(n) ** 2


def curvature_root(gram: FloatArray, products: FloatArray, paired: bool) -> FloatArray:
    """Return R, with R'R the Hessian of J; R has at most as many rows as there are kernels.

    ``gram``, ``(f, f)``, is (K_theta + diag(ridge))_FF and is overwritten. ``products``, ``(w, f)``, are (K_q beta)_F of w kernels.
    ``paired`` says whether the sum of beta is fixed.
    """
    kernels, free = products.shape
    if not free:
        return np.zeros((0, kernels))
    with one_thread():
        factor = _factorise(gram)
        root = solve_triangular(factor, products.T, lower=True)
        if paired:
            z = solve_triangular(factor, np.ones(free), lower=True)
            root -= np.outer(z, (z @ root) / (z @ z))
        return np.ascontiguousarray(root if free <= kernels else np.linalg.qr(root, mode="r"))


def _factorise(gram: FloatArray) -> FloatArray:
    """Return the lower factor, written over the matrix; the entries above the diagonal are undefined."""
    view = np.einsum("ii->i", gram)
    diagonal, before = view.copy(), 0.0
    mean = float(diagonal.mean()) or 1.0
    for share in JITTERS:
        diagonal += (share - before) * mean
        view[:] = diagonal
        before = share
        # The transpose of a symmetric matrix has LAPACK's order. One triangle is overwritten, the other one still holds the matrix.
        factor, failed = _potrf(gram.T, lower=1, clean=0, overwrite_a=1)
        if not failed:
            return factor
        triangle = np.tril(gram, -1)
        np.add(triangle, triangle.T, out=gram)
    return np.diag(np.sqrt(np.maximum(diagonal, 1e-300)))


def free_part(gram: Array, free: IntArray, ridges: FloatArray) -> FloatArray:
    """Return (K + diag(ridge))_FF in float64, from K (n, n) in any precision and the ridges of all rows."""
    part = np.empty((len(free), len(free)))
    _gather_part(gram, free, ridges, part)
    return part


@compiled
def _gather_part(gram: Array, free: IntArray, ridges: FloatArray, out: FloatArray) -> None:
    for i in range(free.size):
        row, into = gram[free[i]], out[i]
        for j in range(free.size):
            into[j] = row[free[j]]
        into[i] += ridges[free[i]]


def minimise_model(theta: FloatArray, s: FloatArray, root: FloatArray, v: float, tol: float) -> FloatArray:
    """Return argmin over the elastic-net set of shape ``v`` of -1/2 <s, x - theta> + 1/2 ||R (x - theta)||^2, to a gap of ``tol``."""
    if not len(root):
        return elastic_response(s, v)
    with one_thread():
        return _minimise(theta, s, root, np.ascontiguousarray(root.T), v, tol, MAX_STEPS)


@compiled(deferred=True)
def _minimise(theta: FloatArray, s: FloatArray, root: FloatArray, root_t: FloatArray, v: float, tol: float, max_steps: int) -> FloatArray:
    """Minimise by accelerated projected gradients with backtracking, restarted when the momentum points uphill; ``root_t`` is R'."""
    start = add_scaled(theta, 0.0, theta)
    x, ahead, momentum = start, start, 1.0
    # Where the curvature is rounding, steps of a million diameters of the set reach its edge too, and can still be projected.
    min_bend = max(1e-6 * max(greatest_entry(s), greatest_entry(add_scaled(np.zeros(s.size), -1.0, s))), 1e-300)
    flat = root.reshape(root.size)
    bend = max(inner_product(flat, flat) / max(1, min(root.shape[0], root.shape[1])), min_bend)
    for step in range(max_steps):
        slope = add_scaled(multiply(root_t, multiply(root, add_scaled(ahead, -1.0, theta))), -0.5, s)
        if step % STEPS_PER_CHECK == 0:
            # The minimum of the linearised model over the set bounds the model from below.
            here = add_scaled(multiply(root_t, multiply(root, add_scaled(x, -1.0, theta))), -0.5, s)
            if inner_product(here, add_scaled(x, -1.0, elastic_response(add_scaled(np.zeros(s.size), -1.0, here), v))) <= tol:
                break
        bend = max(0.8 * bend, min_bend)
        while True:
            trial = project_elastic(add_scaled(ahead, -1.0 / bend, slope), v)
            move = add_scaled(trial, -1.0, ahead)
            stretched = multiply(root, move)
            if inner_product(stretched, stretched) <= bend * inner_product(move, move) * (1.0 + 1e-12) or bend > 1e300:
                break
            bend *= 2.0
        last = add_scaled(trial, -1.0, x)
        if inner_product(slope, last) > 0.0:
            ahead, momentum = trial, 1.0
        else:
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum * momentum))
            ahead = add_scaled(trial, (momentum - 1.0) / following, last)
            momentum = following
        x = trial
    return x

r"""Tasks that share a subspace of each kernel's feature space: weights, norms and bounds from quadratic forms between pairs of tasks
(MK-MTSFL).

The problem, with ``W_j`` the T columns of all tasks in the space of kernel j and ``n_j = ||W_j||_*`` its nuclear norm, is

.. math::

    \min_{W, b} \; \tfrac12 \Big( \sum_j \|W_j\|_*^q \Big)^{2/q} + \sum_{t, i} C_{ti} V(F_t(x_{ti}), y_{ti}),
    \qquad F_t = \sum_j \langle w_{jt}, \phi^j \rangle + b_t, \quad 1 \le q \le 2.

Its value equals the smallest objective of a single model with kernel ``sum_j D_j[s, t] K^j`` between rows of the tasks s and t. The
minimum is over ``D_j >= 0`` (T x T) with ``sum_j trace(D_j)^(q / (2 - q)) <= 1``. With ``A_j[s, t] = beta_s' K^j beta_t`` the parts of
this model satisfy ``W_j'W_j = D_j A_j D_j``. The best D for fixed parts is

.. math::

    D_j = (D_j A_j D_j)^{1/2} \, n_j^{1-q} \, \Omega^{q-2}, \qquad n_j = \mathrm{trace} (D_j A_j D_j)^{1/2}, \quad
    \Omega^q = \sum_j n_j^q.

Any feasible beta bounds the optimum from below by ``c'beta - kink ||beta||_1 - 1/2 beta' R beta - 1/2 ||lambda_max(A)||_{q/(2(q-1))}``
(Jawanpuria, "Learning Kernels for Multiple Predictive Tasks", PhD thesis, IIT Bombay, 2014, chapter 4; Argyriou, Evgeniou and Pontil,
"Convex multi-task feature learning", Machine Learning 73, 2008; docs/theory/shared_subspace_mkl.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..svm.dual import DualProblem
from ..svm.smo_shrink import group_biases
from ..weights.domains import TraceBall
from .multitask import best_multiple, dual_norm, power_norm, total_loss

LEAST_SHARE = 1e-14  # Least eigenvalue of a step in units of the greatest.

LENGTH_GROWTH, MAX_LENGTH = 1.5, 200.0  # Growth of the lengths of long steps, and their end.


def even_coupling(k: int, n_tasks: int, q: float) -> FloatArray:
    """Return D ``(k, T, T)`` without coupling between tasks and with equal kernel weights."""
    weight = 1.0 if q == 2 else k ** -((2.0 - q) / q)
    return np.repeat((weight / n_tasks * np.eye(n_tasks))[None], k, axis=0)


def coupling_size(coupling: FloatArray, q: float) -> float:
    """Return the q / (2 - q)-norm of the traces of D; it is 1 on the boundary of the feasible set."""
    return float(power_norm(np.trace(coupling, axis1=1, axis2=2), np.inf if q == 2 else q / (2.0 - q)))


def coupling_roots(coupling: FloatArray, forms: FloatArray, smoothing: float = 0.0) -> FloatArray:
    """Return ``(D_j A_j D_j + smoothing^2 lambda_max I)^(1/2)``, ``(k, T, T)``, with lambda_max the largest eigenvalue of ``D_j A_j D_j``.

    Smoothing keeps directions that a model does not use.
    """

    def lengths(values: FloatArray) -> FloatArray:
        values = np.maximum(values, 0.0)
        return np.sqrt(values + smoothing**2 * values[:, -1:])

    return _matrix_function(coupling @ forms @ coupling, lengths)


def nuclear_norms(coupling: FloatArray, forms: FloatArray) -> FloatArray:
    """Return ``n_j = ||W_j||_*`` of the parts of a model, ``(k,)``."""
    # The singular values of A^(1/2) D are those of W; of D A D they would be squared, and small ones lost.
    values, vectors = np.linalg.eigh(forms)
    half = np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.transpose(0, 2, 1)
    return np.linalg.svd(half @ coupling, compute_uv=False).sum(axis=1)


def best_coupling(root: FloatArray, q: float) -> FloatArray:
    """Return the best D for ``root_j = (W_j'W_j)^(1/2)``, ``(k, T, T)``, with ``sum_j trace(D_j)^(q/(2-q)) = 1``. If the roots are zero,
    return D without coupling.
    """
    norms = np.trace(root, axis1=1, axis2=2)
    total = float(power_norm(norms, q))
    if not total > 0:
        return even_coupling(len(root), root.shape[1], q)
    # trace(D_j) = n_j^(2-q) Omega^(q-2), written so that no power leaves the range.
    traces = np.ones_like(norms) if q == 2 else (norms / total) ** (2.0 - q)
    return root * np.divide(traces, norms, out=np.zeros_like(norms), where=norms > 0)[:, None, None]


def coupling_slack(coupling: FloatArray, forms: FloatArray) -> FloatArray:
    """Return ``1 - <D_j, A_j> / (trace(D_j) lambda_max(A_j))`` of each kernel, ``(k,)``; it is 0 if D_j is best for A_j."""
    aligned = np.einsum("kst,kst->k", coupling, forms)
    greatest = np.trace(coupling, axis1=1, axis2=2) * np.linalg.eigvalsh(forms)[:, -1]
    return 1.0 - np.divide(aligned, greatest, out=np.ones_like(aligned), where=greatest > 0)


def next_lengths(pace: FloatArray, slack: FloatArray, before: FloatArray) -> FloatArray:
    """Return the lengths of the next long steps: longer for kernels whose slack fell, half as long for the others, at least 1."""
    return np.where(slack < before, np.minimum(LENGTH_GROWTH * pace, MAX_LENGTH), np.maximum(0.5 * pace, 1.0))


def long_step(coupling: FloatArray, forms: FloatArray, pace: FloatArray, q: float, smoothing: float) -> FloatArray:
    """Return D after a step of lengths ``pace`` ``(k,)``, at least 1, beyond the best D for fixed parts.

    If D and A commute, the best eigenvalue for fixed parts is ``d * a^(1/2)``. The step goes to ``d * a``, twice as far in logarithms, and
    further by the factor ``exp((pace - 1) * a / lambda_max)``, a step of mirror descent. Directions with little effect on the model need
    such long steps until their forms agree.
    """

    def smooth_logarithms(values: FloatArray) -> FloatArray:
        smooth = np.sqrt(np.maximum(values / np.maximum(values[:, -1:], np.finfo(float).tiny), 0.0) ** 2 + smoothing**2)
        return np.log(np.maximum(smooth, LEAST_SHARE))

    half = _matrix_function(coupling, lambda values: np.sqrt(np.maximum(values, 0.0)))
    whole = _matrix_function(half @ forms @ half, smooth_logarithms)
    greatest = np.linalg.eigvalsh(forms)[:, -1]
    factor = np.divide(pace - 1.0, greatest, out=np.zeros_like(greatest), where=greatest > 0)
    shape = _matrix_function(whole + factor[:, None, None] * forms, lambda values: np.maximum(np.exp(values - values[:, -1:]), smoothing))
    norms = np.trace(coupling_roots(coupling, forms, smoothing), axis1=1, axis2=2)
    return best_coupling(shape * (norms / np.trace(shape, axis1=1, axis2=2))[:, None, None], q)


def _matrix_function(matrices: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return U f(values) U' of symmetric matrices ``(k, T, T)``, exactly symmetric; f receives ascending values ``(k, T)``."""
    values, vectors = np.linalg.eigh(0.5 * (matrices + matrices.transpose(0, 2, 1)))
    out = (vectors * function(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return 0.5 * (out + out.transpose(0, 2, 1))


class SubspaceBounds(NamedTuple):
    """Primal value of a model, dual value of its optimally scaled coefficients, and the best bias of each task."""

    primal: float
    dual: float
    biases: FloatArray


def machine_value(problem: DualProblem, decision: FloatArray, norm: float) -> tuple[float, FloatArray]:
    """Return ``1/2 norm^2`` plus the losses at ``decision`` with the best biases, and these biases ``(T,)``."""
    assert problem.groups is not None
    biases = group_biases(problem, decision)
    return 0.5 * norm**2 + total_loss(problem, problem.c - decision - biases[problem.groups]), biases


def dual_value(problem: DualProblem, beta: FloatArray, forms: FloatArray, q: float) -> float:
    """Return the largest dual value among multiples of beta."""
    return best_multiple(problem, beta, coupling_norm(forms, q))


def coupling_norm(forms: FloatArray, q: float) -> float:
    """Return max over D of ``sum_j <D_j, A_j>``, which is the q / (2 (q - 1))-norm of the largest eigenvalues of the A_j."""
    return dual_norm(np.maximum(np.linalg.eigvalsh(forms)[:, -1], 0.0), q)


def subspace_bounds(
    problem: DualProblem, beta: FloatArray, decision: FloatArray, forms: FloatArray, coupling: FloatArray, q: float
) -> SubspaceBounds:
    """Return primal and dual value of the model at a coupling, from its decision values ``(n,)`` without biases. The groups of the
    problem are the tasks.
    """
    primal, biases = machine_value(problem, decision, float(power_norm(nuclear_norms(coupling, forms), q)))
    return SubspaceBounds(primal, dual_value(problem, beta, forms, q), biases)


# Tasks that share a subspace, in coordinates of the pooled feature space: the thesis' formulation (MK-MTSFL, MTSFL).
#
# With the factor ``F_j F_j' = K^j`` of a pooled Gram matrix, ``F_j`` (n x r_j), the problem of
# :mod:`gramplane.kernels.tasks.shared_subspace` is the minimum over ``Q_j >= 0`` (r_j x r_j), ``sum_j trace(Q_j)^(q / (2 - q)) <= 1``, of T
# machines that know nothing of one another, with the kernel ``sum_j F_tj Q_j F_tj'`` for task t. Their coefficients give ``G_j`` (r_j x T),
# column t ``F_tj' beta_t``, the gradient ``-1/2 G_j G_j'``, and ``W_j = Q_j G_j``.
#
# Mirror descent adds ``step / 2 G_j G_j'`` to ``log Q_j``, so ``log Q_j = const + 1/2 F_j' S F_j`` with ``S`` the sum of
# ``step beta_t beta_t'`` of all steps, a square per task: that is all an iteration has to remember.

NEGLIGIBLE_SHARE = 1e-10  # Eigenvalues of a pooled Gram matrix below this share of the greatest are left out.


def pooled_factor(gram: NDArray[np.floating]) -> FloatArray:
    """Return F ``(n, r)`` such that ``F F'`` equals the matrix up to negligible eigenvalues."""
    values, vectors = np.linalg.eigh(np.asarray(gram, np.float64))
    used = values > NEGLIGIBLE_SHARE * max(float(values[-1]), np.finfo(float).tiny)
    if not used.any():
        return np.zeros((len(values), 1))
    return np.ascontiguousarray(vectors[:, used] * np.sqrt(values[used]))


def scatter_by_task(beta: FloatArray, codes: IntArray, n_tasks: int) -> FloatArray:
    """Return an ``(n, T)`` array with each beta in the column of its task."""
    out = np.zeros((len(beta), n_tasks))
    out[np.arange(len(beta)), codes] = beta
    return out


@dataclass(frozen=True)
class Half:
    """``Q = H H' + base I`` of one kernel, with ``H`` ``(r, s)``."""

    factor: FloatArray
    base: float = 0.0

    def part(self, G: FloatArray) -> FloatArray:
        return self.factor @ (self.factor.T @ G) + self.base * G


class Squares:
    """One square matrix per task, with an entry for each pair of its rows. The matrices are stored one after the other, as the state of
    mirror descent.
    """

    def __init__(self, codes: IntArray) -> None:
        self.rows = [np.flatnonzero(codes == t) for t in range(int(codes.max()) + 1)]

    @property
    def size(self) -> int:
        """Number of entries of all square matrices."""
        return sum(len(rows) ** 2 for rows in self.rows)

    def outer(self, beta: FloatArray) -> FloatArray:
        """Return ``beta_t beta_t'`` of each task, flattened."""
        return np.concatenate([np.outer(beta[rows], beta[rows]).ravel() for rows in self.rows])

    def around(self, F: FloatArray, squares: FloatArray) -> FloatArray:
        """Return ``F' S F``, ``(r, r)``, where S is block diagonal with the square matrices as blocks."""
        product, at = np.empty_like(F), 0
        for rows in self.rows:
            m = len(rows)
            product[rows] = squares[at : at + m * m].reshape(m, m) @ F[rows]
            at += m * m
        square = F.T @ product
        return 0.5 * (square + square.T)


@dataclass(frozen=True)
class MirrorPoint:
    """The matrices of a mirror descent iteration: halves of ``Q_j``, and the constants of their logarithms."""

    halves: list[Half]
    constants: FloatArray


def mirror_point(factors: Sequence[FloatArray], squares: Squares, sums: FloatArray, constants: FloatArray, q: float) -> MirrorPoint:
    """Return the point after a mirror step, from factors F, the ``sums`` of all steps so far, and the previous constants ``(k,)``."""
    ball = TraceBall(np.inf if q == 2 else q / (2.0 - q))
    pairs = [np.linalg.eigh(0.5 * squares.around(F, sums)) for F in factors]
    logs = [values + constant for (values, _), constant in zip(pairs, constants, strict=True)]
    moved = ball.mirror(logs)
    shifts = np.array([float(new[-1] - old[-1]) for new, old in zip(moved, logs, strict=True)])
    # Eigenvectors become halves where they lie: beside the factors there is one matrix of every kernel.
    halves = [Half(np.multiply(vectors, np.exp(0.5 * values), out=vectors)) for (_, vectors), values in zip(pairs, moved, strict=True)]
    return MirrorPoint(halves, constants + shifts)


def start_constants(factors: Sequence[FloatArray], q: float) -> FloatArray:
    """Return the constants for multiples of the identity with equal traces."""
    ball = TraceBall(np.inf if q == 2 else q / (2.0 - q))
    return np.array([values[0] for values in ball.start([F.shape[1] for F in factors])])


def mirror_length(parts: Sequence[FloatArray], ranks: int, move: int) -> float:
    """Return the length of mirror step number ``move`` (from 1): ``sqrt(log(sum r_j) / move) / max_j ||1/2 G_j G_j'||_2``."""
    steepest = max(0.5 * float(np.linalg.norm(G, 2)) ** 2 for G in parts)
    return float(np.sqrt(np.log(max(ranks, 2)) / move)) / steepest if steepest > 0 else 0.0


def alternating_half(W: FloatArray, rank: int, smoothing: float) -> Half:
    """Return the half of ``Q = (W W' + eps I)^(1/2)``, scaled to trace one, for W ``(r, T)``. If W is zero or empty, return the half of the
    identity.

    ``smoothing`` is eps relative to the largest singular value: ``eps = smoothing^2 * sigma_max^2``.
    """
    if not W.any():
        return Half(np.zeros((rank, 0)), 1.0 / rank)
    vectors, values, _ = np.linalg.svd(W, full_matrices=False)
    floor = smoothing * float(values[0])
    lengths = np.sqrt(values**2 + floor**2)
    total = float(lengths.sum()) + floor * (rank - len(values))
    return Half(vectors * np.sqrt((lengths - floor) / total), floor / total)


def independent_kernel(factors: Sequence[FloatArray], halves: Sequence[Half], codes: IntArray) -> FloatArray:
    """Return ``sum_j F_j Q_j F_j'`` within tasks and zero between tasks, ``(n, n)``."""
    out = np.zeros((len(codes), len(codes)))
    tasks = [np.flatnonzero(codes == t) for t in range(int(codes.max()) + 1)]
    for F, half in zip(factors, halves, strict=True):
        image = F @ half.factor
        for rows in tasks:
            out[np.ix_(rows, rows)] += image[rows] @ image[rows].T
            if half.base:
                own = F[rows]
                out[np.ix_(rows, rows)] += half.base * (own @ own.T)
    return out


def part_norms(parts: Sequence[FloatArray], q: float) -> float:
    """Return Omega, the q-norm of the nuclear norms of ``W_j``."""
    return float(power_norm(np.array([np.linalg.svd(W, compute_uv=False).sum() for W in parts]), q))


def part_roots(parts: Sequence[FloatArray]) -> FloatArray:
    """Return ``(W_j' W_j)^(1/2)``, ``(k, T, T)``."""
    out = []
    for W in parts:
        _, values, vectors = np.linalg.svd(W, full_matrices=False)
        root = (vectors.T * values) @ vectors
        out.append(0.5 * (root + root.T))
    return np.stack(out)


def factor_products(factors: Sequence[FloatArray], coefficients: FloatArray) -> list[FloatArray]:
    """Return ``G_j = F_j' B`` for coefficients B ``(n, T)`` arranged by task."""
    return [F.T @ coefficients for F in factors]


def pair_forms(parts: Sequence[FloatArray]) -> FloatArray:
    """Return ``A_j = G_j' G_j``, ``(k, T, T)``."""
    return np.stack([G.T @ G for G in parts])

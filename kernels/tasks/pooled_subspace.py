r"""Tasks that share a subspace, in coordinates of the pooled feature space: the thesis' formulation (MK-MTSFL, MTSFL).

With the factor ``F_j F_j' = K^j`` of a pooled Gram matrix, ``F_j`` (n x r_j), the problem of :mod:`gramplane.kernels.tasks.shared_subspace`
is the minimum over ``Q_j >= 0`` (r_j x r_j), ``sum_j trace(Q_j)^(q / (2 - q)) <= 1``, of T machines that know nothing of one another, with
the kernel ``sum_j F_tj Q_j F_tj'`` for task t. Their coefficients give ``G_j`` (r_j x T), column t ``F_tj' beta_t``, the gradient ``-1/2
G_j G_j'``, and ``W_j = Q_j G_j``.

Mirror descent adds ``step / 2 G_j G_j'`` to ``log Q_j``, so ``log Q_j = const + 1/2 F_j' S F_j`` with ``S`` the sum of
``step beta_t beta_t'`` of all steps, a square per task: that is all an iteration has to remember.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..weights.psd_sets import TraceBall
from .multitask import power_norm

NEGLIGIBLE_SHARE = 1e-10  # Eigenvalues of a pooled Gram matrix below this share of the greatest are left out.


def pooled_factor(gram: NDArray[np.floating]) -> FloatArray:
    """Return F ``(n, r)`` with ``F F'`` the matrix but for its negligible eigenvalues."""
    values, vectors = np.linalg.eigh(np.asarray(gram, np.float64))
    used = values > NEGLIGIBLE_SHARE * max(float(values[-1]), np.finfo(float).tiny)
    if not used.any():
        return np.zeros((len(values), 1))
    return np.ascontiguousarray(vectors[:, used] * np.sqrt(values[used]))


def scatter_by_task(beta: FloatArray, codes: IntArray, n_tasks: int) -> FloatArray:
    """Return ``(n, T)``: beta in the column of its task."""
    out = np.zeros((len(beta), n_tasks))
    out[np.arange(len(beta)), codes] = beta
    return out


@dataclass(frozen=True)
class Half:
    """``Q = H H' + base I`` of one kernel, ``H`` (r, s)."""

    factor: FloatArray
    base: float = 0.0

    def part(self, G: FloatArray) -> FloatArray:
        """Return ``W = Q G``."""
        return self.factor @ (self.factor.T @ G) + self.base * G


class Squares:
    """A square per task of numbers over its pairs of rows, one after the other: what mirror descent remembers."""

    def __init__(self, codes: IntArray) -> None:
        self.rows = [np.flatnonzero(codes == t) for t in range(int(codes.max()) + 1)]

    @property
    def size(self) -> int:
        """Numbers of all squares."""
        return sum(len(rows) ** 2 for rows in self.rows)

    def outer(self, beta: FloatArray) -> FloatArray:
        """Return ``beta_t beta_t'`` of every task, flat."""
        return np.concatenate([np.outer(beta[rows], beta[rows]).ravel() for rows in self.rows])

    def around(self, F: FloatArray, squares: FloatArray) -> FloatArray:
        """Return ``F' S F`` with S the squares on its diagonal, ``(r, r)``."""
        product, at = np.empty_like(F), 0
        for rows in self.rows:
            m = len(rows)
            product[rows] = squares[at : at + m * m].reshape(m, m) @ F[rows]
            at += m * m
        square = F.T @ product
        return 0.5 * (square + square.T)


@dataclass(frozen=True)
class MirrorPoint:
    """Matrices of an iteration of mirror descent: halves of ``Q_j``, and the constants of their logarithms."""

    halves: list[Half]
    constants: FloatArray


def mirror_point(factors: Sequence[FloatArray], squares: Squares, sums: FloatArray, constants: FloatArray, q: float) -> MirrorPoint:
    """Return the point a mirror step leads to, from factors F, the ``sums`` of all steps so far, and the ``(k,)`` constants before."""
    ball = TraceBall(np.inf if q == 2 else q / (2.0 - q))
    pairs = [np.linalg.eigh(0.5 * squares.around(F, sums)) for F in factors]
    logs = [values + constant for (values, _), constant in zip(pairs, constants, strict=True)]
    moved = ball.mirror(logs)
    shifts = np.array([float(new[-1] - old[-1]) for new, old in zip(moved, logs, strict=True)])
    halves = [Half(vectors * np.exp(0.5 * values)) for (_, vectors), values in zip(pairs, moved, strict=True)]
    return MirrorPoint(halves, constants + shifts)


def start_constants(factors: Sequence[FloatArray], q: float) -> FloatArray:
    """Return the constants of multiples of the identity with equal traces."""
    ball = TraceBall(np.inf if q == 2 else q / (2.0 - q))
    return np.array([values[0] for values in ball.start([F.shape[1] for F in factors])])


def mirror_length(parts: Sequence[FloatArray], ranks: int, move: int) -> float:
    """Return the length of mirror step number ``move`` (from 1): ``sqrt(log(sum r_j) / move) / max_j ||1/2 G_j G_j'||_2``."""
    steepest = max(0.5 * float(np.linalg.norm(G, 2)) ** 2 for G in parts)
    return float(np.sqrt(np.log(max(ranks, 2)) / move)) / steepest if steepest > 0 else 0.0


def alternating_half(W: FloatArray, rank: int, smoothing: float) -> Half:
    """Return the half of ``Q = (W W' + eps I)^(1/2)``, scaled to trace one, for W ``(r, T)``; of the identity where W is zero or empty.
    ``smoothing`` is eps in units of the greatest singular value: ``eps = smoothing^2 sigma_max^2``.
    """
    if not W.any():
        return Half(np.zeros((rank, 0)), 1.0 / rank)
    vectors, values, _ = np.linalg.svd(W, full_matrices=False)
    floor = smoothing * float(values[0])
    lengths = np.sqrt(values**2 + floor**2)
    total = float(lengths.sum()) + floor * (rank - len(values))
    return Half(vectors * np.sqrt((lengths - floor) / total), floor / total)


def independent_kernel(factors: Sequence[FloatArray], halves: Sequence[Half], codes: IntArray) -> FloatArray:
    """Return ``sum_j F_j Q_j F_j'`` within tasks, zero between them, ``(n, n)``."""
    out = np.zeros((len(codes), len(codes)))
    images = [F @ half.factor for F, half in zip(factors, halves, strict=True)]
    for t in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == t)
        task_rows = (F[rows] for F in factors)
        plain = (half.base * (F @ F.T) for half, F in zip(halves, task_rows, strict=True) if half.base)
        out[np.ix_(rows, rows)] = sum(image[rows] @ image[rows].T for image in images) + sum(plain)
    return out


def part_norms(parts: Sequence[FloatArray], q: float) -> float:
    """Return Omega, the norm q of the nuclear norms of ``W_j``."""
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
    """Return ``G_j = F_j' B`` of coefficients spread over tasks, ``(n, T)``."""
    return [F.T @ coefficients for F in factors]


def pair_forms(parts: Sequence[FloatArray]) -> FloatArray:
    """Return ``A_j = G_j' G_j``, ``(k, T, T)``."""
    return np.stack([G.T @ G for G in parts])

r"""Learning to rank pairs: the kernel logistic problem over pairs, and a sparse model for it with few import vectors.

With labels :math:`y_i = 2 z_i - 1` of N pairs and their Gram matrix :math:`K_p`

.. math:: \min_a \tfrac1N \sum_i \ln(1 + e^{-y_i f_i}) + \tfrac C2 a' K_p a, \qquad f = K_p a

(Zhuang: Kernel learning, thesis, 2011, equation 7.3; the printed labels ``1 - z`` would give every linked pair the constant loss ln 2).
Divided by C, this is the logistic problem of :mod:`gramplane.kernels.svm.logistic` with costs 1/(C N) and without a bias. That module
solves it by damped Newton steps, and the dual value bounds the objective from below. At the optimum
:math:`a_i = y_i \sigma(-y_i f_i) / (C N)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ..arrays import FloatArray, IntArray
from ..jit import one_thread
from ..losses import Logistic
from ..svm.dual import Gram
from ..svm.logistic import logistic_problem, solve_logistic
from .user_kernels import FactorGram

DEPENDENT_SHARE = 1e-10
"""Smallest squared distance of a pair from the span of the import vectors, relative to the pair's own squared length. A pair closer
than this is no new direction.
"""

_LOSS = Logistic()


@dataclass(frozen=True)
class RankedPairs:
    """A solution over all pairs."""

    coef: FloatArray  # a, (N,)
    decision: FloatArray  # f, (N,)
    objective: float  # value of (7.3)
    gap: float  # how far it is above the least, at most
    steps: int  # Newton steps
    converged: bool


def signed_labels(z: IntArray) -> FloatArray:
    return 2.0 * np.asarray(z, np.float64) - 1.0


def rank_pairs(
    gram: Gram, z: IntArray, C: float, *, warm: FloatArray | None = None, tol: float = 1e-6, max_iter: int | None = None
) -> RankedPairs:
    """Minimise (7.3) to a gap of ``tol`` times the objective, starting from coefficients ``warm``. The labels z, ``(N,)``, are 1 for a link
    and 0 for none.

    ``gram`` is K_p, used through products; if it is in memory, it is factorised where the systems are ill conditioned.
    """
    problem = logistic_problem(signed_labels(z), 1.0 / (C * len(z)), bias=False)
    solution = solve_logistic(gram, problem, warm=warm, tol=tol, max_iter=max_iter)
    return RankedPairs(solution.beta, solution.decision, C * solution.upper, C * solution.gap, solution.iterations, solution.converged)


def pair_objective(decision: FloatArray, z: IntArray, penalty: float) -> float:
    """Return the objective ``1/N * sum ln(1 + exp(-y f)) + penalty``."""
    return _LOSS.value(signed_labels(z), decision, np.full(len(z), 1.0 / len(z))) + penalty


@dataclass(frozen=True)
class ImportMachine:
    """A model with q import vectors: ``min over a_S of 1/N sum ln(1 + exp(-y K_p[:, S] a_S)) + C/2 a_S' K_p[S, S] a_S``."""

    chosen: IntArray  # (q,) pairs S in the order of choice
    dual: FloatArray  # (N,) coefficients of the problem over all pairs at its decision values; the next warm start
    objective: float
    factor: FloatArray  # (N, q) with K_p[:, S] = factor factor[S]'; a function of chosen alone
    inner: FloatArray  # (q,) weights of the factor's columns

    @property
    def decision(self) -> FloatArray:
        """Decision values f of all pairs, ``(N,)``."""
        return self.factor @ self.inner

    def coefficients(self) -> FloatArray:
        """Return a, ``(N,)``, which is zero except at the import vectors."""
        out = np.zeros(len(self.dual))
        if len(self.chosen):
            out[self.chosen] = solve_triangular(self.factor[self.chosen], self.inner, lower=True, trans=1)
        return out


def empty_machine(z: IntArray) -> ImportMachine:
    """Return the model without import vectors: f = 0."""
    n = len(z)
    return ImportMachine(np.zeros(0, np.int64), np.zeros(n), float(np.log(2.0)), np.zeros((n, 0)), np.zeros(0))


def import_factor(gram: Gram, chosen: IntArray) -> FloatArray:
    """Return the factor of the chosen import vectors, built column by column in the order of choice. It is bit-identical to the factor
    that was built during the choice.
    """
    factor = np.zeros((gram.n, 0))
    for q in range(len(chosen)):
        factor = _grow_factor(gram, factor, chosen[: q + 1])
    return factor


def _grow_factor(gram: Gram, factor: FloatArray, chosen: IntArray) -> FloatArray:
    """Return the factor extended by the column of the last chosen pair."""
    grown = np.column_stack([factor, _candidate_columns(gram, factor, chosen[-1:])[0]])
    # What is zero but for rounding: a column has no share in the pairs chosen before it.
    grown[chosen[:-1], -1] = 0.0
    return grown


def _candidate_columns(gram: Gram, factor: FloatArray, candidates: IntArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the columns ``(N, m)`` that candidates would add to the factor, and which of them are new directions."""
    with one_thread():
        left = np.asarray(gram.rows(candidates), np.float64).T - factor @ factor[candidates].T
    squares = left[candidates, np.arange(len(candidates))]
    new = squares > DEPENDENT_SHARE * np.maximum(gram.diag()[candidates], np.finfo(float).tiny)
    return left / np.sqrt(np.where(new, squares, 1.0)), new


def import_step(gram: Gram, z: IntArray, C: float, machine: ImportMachine, candidates: IntArray, tol: float = 1e-8) -> ImportMachine:
    """Return the model with one more import vector, solved to a gap of ``tol`` times the objective.

    The candidate with the largest decrease predicted by a Newton step is chosen. If no candidate is a new direction, the same object is
    returned.
    """
    columns, new = _candidate_columns(gram, machine.factor, candidates)
    if not new.any():
        return machine
    best = int(np.argmin(np.where(new, _predict_objectives(z, C, machine, columns), np.inf)))
    chosen = np.append(machine.chosen, candidates[best])
    # Computed by itself, as a resumed run does: among other candidates a product may round otherwise.
    factor = _grow_factor(gram, machine.factor, chosen)
    solution = rank_pairs(FactorGram(factor), z, C, warm=machine.dual, tol=tol)
    inner = factor.T @ solution.coef
    return ImportMachine(chosen, solution.coef, pair_objective(factor @ inner, z, 0.5 * C * float(inner @ inner)), factor, inner)


def _predict_objectives(z: IntArray, C: float, machine: ImportMachine, columns: FloatArray) -> FloatArray:
    """Return the objective after one Newton step from the current model with each column added, ``(m,)``."""
    y, n = signed_labels(z), len(z)
    slope = -_LOSS.dual(y, machine.decision, np.full(n, 1.0 / n)) * y
    share = np.abs(slope) * n
    curved = share * (1.0 - share) / n
    factor = machine.factor
    with one_thread():
        weighted = curved[:, None] * columns
        bends = np.einsum("ij,ij->j", columns, weighted) + C
        pull = columns.T @ slope
        if not factor.shape[1]:
            inner, move = np.zeros((0, len(pull))), -pull / bends
        else:
            hessian = factor.T @ (curved[:, None] * factor)
            hessian.flat[:: len(hessian) + 1] += C
            root = cho_factor(hessian, lower=True)
            cross = factor.T @ weighted
            solved, still = cho_solve(root, cross), cho_solve(root, factor.T @ slope + C * machine.inner)
            move = -(pull - cross.T @ still) / (bends - np.einsum("ij,ij->j", cross, solved))
            inner = -(still[:, None] + solved * move)
        decisions = machine.decision[:, None] + factor @ inner + columns * move
    penalty = 0.5 * C * (((machine.inner[:, None] + inner) ** 2).sum(axis=0) + move**2)
    return np.array([pair_objective(f, z, float(p)) for f, p in zip(decisions.T, penalty, strict=True)])


def full_gap(gram: Gram, z: IntArray, C: float, machine: ImportMachine) -> float:
    """Return an upper bound of the distance between the model's objective and the minimum of (7.3) over all pairs. This takes one product
    with the Gram matrix.
    """
    y, cost = signed_labels(z), np.full(len(z), 1.0 / (C * len(z)))
    alpha = _LOSS.dual(y, machine.decision, cost)
    beta = alpha * y
    return machine.objective - C * (_LOSS.utility(alpha, cost) - 0.5 * float(beta @ gram.matvec(beta)))


# A kernel learnt on some points, extended to others: an input kernel warped by the learnt one.
#
# .. math::
#
#     \tilde k(x, z) = k_x(x, z) - \kappa_x' (I + L K_x)^{-1} L \kappa_z, \qquad \kappa_x = (k_x(x, x_1), \ldots, k_x(x, x_n))
#
# On the points themselves this is :math:`(K_x^{-1} + L)^{-1}`, symmetric and positive semidefinite where L is. Source: Zhuang, PhD thesis
# on kernel learning, Nanyang Technological University, 2011, section 6.4, after Sindhwani, Niyogi and Belkin, ICML 2005.


@dataclass(frozen=True)
class Warp:
    """The symmetric matrix ``M = (I + L K_x)^-1 L``, ``(n, n)``, that corrects an input kernel k. K_x is the matrix of k at n points,
    and L comes from a learnt kernel (:func:`build_warp`). The warped kernel is ``k(x, z) - k_x' M k_z``, where ``k_x`` holds the
    values of k between x and the n points.
    """

    correction: np.ndarray

    def block(self, kernel: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the warped kernel between a and b points. ``kernel``, ``(a, b)``, is the input kernel between them; ``left``, ``(a,
        n)``, and ``right``, ``(b, n)``, are the input kernel with the n points of the warp.
        """
        with one_thread():
            return kernel - left @ self.correction @ right.T


def graph_laplacian(kernel: np.ndarray) -> np.ndarray:
    """Return ``diag(W 1) - W`` of ``W = max(K, 0)`` without its diagonal, ``(n, n)``: positive semidefinite for every symmetric K.

    The thesis prints ``diag(K 1) - K``. A learnt kernel has K 1 = 0, so this formula gives -K, and the warped kernel would not be positive
    semidefinite.
    """
    weights = np.maximum(kernel, 0.0)
    np.fill_diagonal(weights, 0.0)
    out = -weights
    np.fill_diagonal(out, weights.sum(axis=1))
    return out


def build_warp(gram: np.ndarray, factor: np.ndarray, mode: str = "corrected") -> Warp:
    """Return the warp of the positive semidefinite input kernel ``gram`` K_x by a learnt kernel ``K = F F'``, F ``(n, r)``.

    In mode ``"corrected"`` L is the Laplacian of :func:`graph_laplacian`; in mode ``"seed"`` it is -K, as printed. The latter raises
    ValueError unless the largest eigenvalue of ``K_x^(1/2) K K_x^(1/2)`` is below 1, because otherwise the warped kernel is not positive
    semidefinite.
    """
    with one_thread():
        if mode == "seed":
            # The nonzero eigenvalues are those of F' K_x F.
            top = float(np.linalg.eigvalsh(factor.T @ gram @ factor)[-1]) if factor.shape[1] else 0.0
            if top >= 1.0:
                raise ValueError(
                    f"warp='seed': the largest eigenvalue of K_x^(1/2) K K_x^(1/2) is {top:.4g} and must be below 1 (K_x: input kernel, "
                    "K: learnt kernel); give a smaller B or a larger gamma, or set warp='corrected'"
                )
            bend = -(factor @ factor.T)
        else:
            bend = graph_laplacian(factor @ factor.T)
        system = bend @ gram
        system[np.diag_indices_from(system)] += 1.0
        correction = scipy.linalg.solve(system, bend, overwrite_a=True)
    return Warp(0.5 * (correction + correction.T))

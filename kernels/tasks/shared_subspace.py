r"""Tasks that share a subspace of every kernel's feature space: weights, norms and bounds from forms of pairs of tasks (MK-MTSFL).

With ``W_j`` the T columns of all tasks in the space of kernel j and ``n_j = ||W_j||_*`` its nuclear norm,

.. math::

    \min_{W, b} \; \tfrac12 \Big( \sum_j \|W_j\|_*^q \Big)^{2/q} + \sum_{t, i} C_{ti} V(F_t(x_{ti}), y_{ti}),
    \qquad F_t = \sum_j \langle w_{jt}, \phi^j \rangle + b_t, \quad 1 \le q \le 2,

is the minimum over ``D_j >= 0`` (T x T) with ``sum_j trace(D_j)^(q / (2 - q)) <= 1`` of one machine with the kernel
``sum_j D_j[s, t] K^j`` between rows of the tasks s and t. With ``A_j[s, t] = beta_s' K^j beta_t`` its parts have ``W_j'W_j = D_j A_j D_j``,
the best D for fixed parts is

.. math::

    D_j = (D_j A_j D_j)^{1/2} \, n_j^{1-q} \, \Omega^{q-2}, \qquad n_j = \mathrm{trace} (D_j A_j D_j)^{1/2}, \quad
    \Omega^q = \sum_j n_j^q,

and any feasible beta bounds the optimum from below by
``c'beta - kink ||beta||_1 - 1/2 beta' R beta - 1/2 ||lambda_max(A)||_{q/(2(q-1))}``
(Jawanpuria, "Learning Kernels for Multiple Predictive Tasks", PhD thesis, IIT Bombay, 2014, chapter 4; Argyriou, Evgeniou and Pontil,
"Convex multi-task feature learning", Machine Learning 73, 2008; docs/theory/shared_subspace_mkl.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..svm.dual import DualProblem
from ..svm.grouped import group_biases
from .multitask import best_multiple, dual_norm, power_norm, total_loss

NEGLIGIBLE_SHARE = 1e-14  # Least eigenvalue of a step in units of the greatest.

LENGTH_GROWTH, MAX_LENGTH = 1.5, 200.0  # Growth of the lengths of long steps, and their end.


def even_coupling(k: int, n_tasks: int, q: float) -> FloatArray:
    """Return D ``(k, T, T)`` that couples no tasks and prefers no kernel."""
    weight = 1.0 if q == 2 else k ** -((2.0 - q) / q)
    return np.repeat((weight / n_tasks * np.eye(n_tasks))[None], k, axis=0)


def coupling_size(coupling: FloatArray, q: float) -> float:
    """Return the norm q / (2 - q) of the traces of D, 1 for a point of the set."""
    return float(power_norm(np.trace(coupling, axis1=1, axis2=2), np.inf if q == 2 else q / (2.0 - q)))


def coupling_roots(coupling: FloatArray, forms: FloatArray, smoothing: float = 0.0) -> FloatArray:
    """Return ``(D_j A_j D_j + smoothing^2 lambda_max I)^(1/2)``, ``(k, T, T)``, lambda_max that of ``D_j A_j D_j``. The smoothing keeps
    directions that a machine does not use.
    """

    def lengths(values: FloatArray) -> FloatArray:
        values = np.maximum(values, 0.0)
        return np.sqrt(values + smoothing**2 * values[:, -1:])

    return _matrix_function(coupling @ forms @ coupling, lengths)


def nuclear_norms(coupling: FloatArray, forms: FloatArray) -> FloatArray:
    """Return ``n_j = ||W_j||_*`` of the parts of a machine, ``(k,)``."""
    # The singular values of A^(1/2) D are those of W; of D A D they would be squared, and small ones lost.
    values, vectors = np.linalg.eigh(forms)
    half = np.sqrt(np.maximum(values, 0.0))[:, :, None] * vectors.transpose(0, 2, 1)
    return np.linalg.svd(half @ coupling, compute_uv=False).sum(axis=1)


def best_coupling(root: FloatArray, q: float) -> FloatArray:
    """Return D, ``sum_j trace(D_j)^(q/(2-q)) = 1``, best for ``root_j = (W_j'W_j)^(1/2)``, ``(k, T, T)``; that of no tasks for zeros."""
    norms = np.trace(root, axis1=1, axis2=2)
    total = float(power_norm(norms, q))
    if not total > 0:
        return even_coupling(len(root), root.shape[1], q)
    # trace(D_j) = n_j^(2-q) Omega^(q-2), written so that no power leaves the range.
    traces = np.ones_like(norms) if q == 2 else (norms / total) ** (2.0 - q)
    return root * np.divide(traces, norms, out=np.zeros_like(norms), where=norms > 0)[:, None, None]


def coupling_slack(coupling: FloatArray, forms: FloatArray) -> FloatArray:
    """Return ``1 - <D_j, A_j> / (trace(D_j) lambda_max(A_j))`` of every kernel, ``(k,)``: 0 where D_j is best for A_j."""
    aligned = np.einsum("kst,kst->k", coupling, forms)
    greatest = np.trace(coupling, axis1=1, axis2=2) * np.linalg.eigvalsh(forms)[:, -1]
    return 1.0 - np.divide(aligned, greatest, out=np.ones_like(aligned), where=greatest > 0)


def next_lengths(pace: FloatArray, slack: FloatArray, before: FloatArray) -> FloatArray:
    """Return the lengths of the next long steps: longer for kernels whose slack fell, half as long for the others, at least 1."""
    return np.where(slack < before, np.minimum(LENGTH_GROWTH * pace, MAX_LENGTH), np.maximum(0.5 * pace, 1.0))


def long_step(coupling: FloatArray, forms: FloatArray, pace: FloatArray, q: float, smoothing: float) -> FloatArray:
    """Return D after a step of lengths ``pace`` ``(k,)``, at least 1, past the best one for fixed parts. Where D and A commute the best
    eigenvalue for fixed parts is ``d a^(1/2)``. The step goes to ``d a``, twice as far in logarithms, and on from there by the factor
    ``exp((pace - 1) a / lambda_max)``, a step of mirror descent: directions that the machine hardly feels need long steps until their forms
    agree.
    """

    def smooth_logarithms(values: FloatArray) -> FloatArray:
        smooth = np.sqrt(np.maximum(values / np.maximum(values[:, -1:], np.finfo(float).tiny), 0.0) ** 2 + smoothing**2)
        return np.log(np.maximum(smooth, NEGLIGIBLE_SHARE))

    half = _matrix_function(coupling, lambda values: np.sqrt(np.maximum(values, 0.0)))
    whole = _matrix_function(half @ forms @ half, smooth_logarithms)
    greatest = np.linalg.eigvalsh(forms)[:, -1]
    factor = np.divide(pace - 1.0, greatest, out=np.zeros_like(greatest), where=greatest > 0)
    shape = _matrix_function(whole + factor[:, None, None] * forms, lambda values: np.maximum(np.exp(values - values[:, -1:]), smoothing))
    norms = np.trace(coupling_roots(coupling, forms, smoothing), axis1=1, axis2=2)
    return best_coupling(shape * (norms / np.trace(shape, axis1=1, axis2=2))[:, None, None], q)


def _matrix_function(matrices: FloatArray, function: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Return U f(values) U' of symmetric matrices ``(k, T, T)``, exactly symmetric; f gets ascending values ``(k, T)``."""
    values, vectors = np.linalg.eigh(0.5 * (matrices + matrices.transpose(0, 2, 1)))
    out = (vectors * function(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return 0.5 * (out + out.transpose(0, 2, 1))


class SubspaceBounds(NamedTuple):
    """Primal value of a machine, dual value of its coefficients (scaled at will), and the best bias of every task."""

    primal: float
    dual: float
    biases: FloatArray


def machine_value(problem: DualProblem, decision: FloatArray, norm: float) -> tuple[float, FloatArray]:
    """Return ``1/2 norm^2`` plus the losses at ``decision`` with the best biases, and these ``(T,)``."""
    assert problem.groups is not None
    biases = group_biases(problem, decision)
    return 0.5 * norm**2 + total_loss(problem, problem.c - decision - biases[problem.groups]), biases


def dual_value(problem: DualProblem, beta: FloatArray, forms: FloatArray, q: float) -> float:
    """Return the greatest dual value of a multiple of beta."""
    return best_multiple(problem, beta, coupling_norm(forms, q))


def coupling_norm(forms: FloatArray, q: float) -> float:
    """Return max over D of ``sum_j <D_j, A_j>``, the norm q / (2 (q - 1)) of the greatest eigenvalues of A."""
    return dual_norm(np.maximum(np.linalg.eigvalsh(forms)[:, -1], 0.0), q)


def subspace_bounds(
    problem: DualProblem, beta: FloatArray, decision: FloatArray, forms: FloatArray, coupling: FloatArray, q: float
) -> SubspaceBounds:
    """Return primal and dual value of the machine at a coupling, from its values ``(n,)`` without biases; its groups are the tasks."""
    primal, biases = machine_value(problem, decision, float(power_norm(nuclear_norms(coupling, forms), q)))
    return SubspaceBounds(primal, dual_value(problem, beta, forms, q), biases)

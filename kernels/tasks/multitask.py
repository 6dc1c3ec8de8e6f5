r"""Models for many tasks on few kernels: weights in closed form, primal and dual value from quadratic forms (MK-MTFL).

With ``f_t^j`` the part of task t in the space of kernel j, ``q`` in [1, 2] and ``p >= 2``,

.. math::

    \min_{f, b} \; \tfrac12 \Big( \sum_j \big( \sum_t \|f_t^j\|^p \big)^{q/p} \Big)^{2/q} + \sum_{t, i} C_{ti} V(F_t(x_{ti}), y_{ti}),
    \qquad F_t = \sum_j \langle f_t^j, \phi^j \rangle + b_t,

is a min-max problem over models with the kernels ``sum_j (gamma_j / lambda_jt) K_t^j``, one model per task. Its value is the minimum over
gamma in the unit ball of the ``qhat``-norm of the maximum over lambda_j in the unit ball of the ``phat``-norm, with ``qhat = q / (2 - q)``
and ``phat = p / (p - 2)``. With ``M_jt = beta_t' K_t^j beta_t`` the best lambda and gamma for given coefficients are powers of M, and the
dual value of any feasible beta is

.. math::

    c'\beta - \text{kink} \|\beta\|_1 - \tfrac12 \beta' R \beta - \tfrac12 \| c(M) \|_{q/(2(q-1))}, \qquad
    c_j(M) = \big( \sum_t M_{jt}^{p/(2(p-1))} \big)^{2(p-1)/p}

(Jawanpuria, "Learning Kernels for Multiple Predictive Tasks", PhD thesis, IIT Bombay, 2014, chapter 3; docs/theory/multitask_mkl.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, IntArray
from ..svm.dual import DualProblem, best_response

EXPONENT_RANGE = (0.25, 8.0)  # Range of the exponents of a closed-form step.
MIN_STRENGTH_SHARE = 1e-3  # A strength counts at least this share of the mean: a kernel without weight may come back.
GOLDEN, MAX_SECTIONS = 0.5 * (5**0.5 - 1.0), 9  # Times the way between two dual points is cut to this share, to a hundredth in all.
LEVEL_SLOPE_SHARE = 1e-12
"""Slope of the loss in the bias, relative to the sum of costs, below which the slope counts as zero. The bias is then the midpoint of
the interval with slope zero.
"""


def power_norm(values: FloatArray, r: float, axis: int = -1) -> FloatArray:
    """Return ``(sum a^r)^(1/r)`` of numbers >= 0, for r in (0, inf], computed relative to the largest so that no power overflows."""
    top = values.max(axis=axis, keepdims=True, initial=0.0)
    if np.isinf(r):
        return np.squeeze(top, axis)
    part = np.divide(values, top, out=np.zeros_like(values), where=top > 0)
    return np.squeeze(top, axis) * np.sum(part**r, axis=axis) ** (1.0 / r)


def kernel_strengths(forms: FloatArray, p: float) -> FloatArray:
    """Return ``c_j = (sum_t M_jt^pbar)^(1/pbar)``, pbar = p / (2 (p - 1)), ``(k,)`` from forms ``(k, T)``."""
    return power_norm(forms, p / (2.0 * (p - 1.0)), axis=1)


def dual_norm(strengths: FloatArray, q: float) -> float:
    """Return ``||c||_qbar``, where qbar = q / (2 (q - 1)); for q = 1 this is the maximum."""
    return float(power_norm(strengths, np.inf if q == 1 else q / (2.0 * (q - 1.0))))


def squared_norm(forms: FloatArray, weights: FloatArray, p: float, q: float) -> float:
    """Return Omega^2 of ``f_t^j = weights_jt Phi beta_t``: the square of the q-norm over kernels of the p-norms over tasks."""
    return float(power_norm(power_norm(weights * np.sqrt(forms), p, axis=1), q)) ** 2


def task_shares(forms: FloatArray, p: float, slack: float = 0.0) -> FloatArray:
    """Return the best lambda ``(k, T)`` for the forms, with ``sum_t lambda_jt^phat = 1``; ones for p = 2 (equation 3.10 of the thesis).

    A kernel that no task uses has equal shares. For other kernels each share has a floor, relative to the largest share. The floor is such
    that all T floors together add ``slack`` to the sum, and thus at most ``slack`` to the squared norm. The floor keeps the weights
    ``1 / lambda`` small and lets a task use the kernel again later.
    """
    if p == 2:
        return np.ones_like(forms)
    hat = p / (p - 2.0)
    top = forms.max(axis=1, keepdims=True)
    part = np.where(top > 0, np.divide(forms, top, out=np.ones_like(forms), where=top > 0), 1.0)
    share = np.maximum(part ** (1.0 / (hat + 1.0)), (slack / forms.shape[1]) ** (1.0 / hat))
    return share / power_norm(share, hat, axis=1)[:, None]


def even_shares(k: int, n_tasks: int, p: float) -> FloatArray:
    return task_shares(np.ones((k, n_tasks)), p)


def even_weights(k: int, q: float) -> FloatArray:
    """Return equal kernel weights on the boundary of their set, ``(k,)``."""
    return np.ones(k) if q == 2 else np.full(k, k ** -((2.0 - q) / q))


def next_weights(weights: FloatArray, strengths: FloatArray, q: float) -> FloatArray:
    """Return the best gamma for fixed parts of the model, ``sum_j gamma_j^qhat = 1``; q > 1 (closed form A.1.1).

    ``weights`` is the previous gamma, ``strengths`` c of the coefficients at these weights, both ``(k,)``.
    """
    if q == 2:
        return np.ones_like(weights)
    hat = q / (2.0 - q)
    gamma = (weights**2 * strengths) ** (1.0 / (hat + 1.0))
    total = float(power_norm(gamma, hat))
    return gamma / total if total > 0 else even_weights(len(weights), q)


class DampedStep(NamedTuple):
    """A step of the weights on the simplex.

    * ``weights``: the weights after the step.
    * ``paces``: the exponent of each kernel's last step.
    * ``sides``: the side of the mean on which each kernel was.
    """

    weights: FloatArray
    paces: FloatArray
    sides: FloatArray


def damped_weights(weights: FloatArray, strengths: FloatArray, paces: FloatArray, sides: FloatArray) -> DampedStep:
    """Return gamma on the simplex (q = 1) after the step ``gamma_j <- gamma_j (c_j / mean c)^pace_j``, renormalised.

    At the optimum c is equal where gamma > 0, and smaller elsewhere. The exponent 1/2 gives the minimiser for fixed parts of the model. The
    exponent of a kernel grows while c_j stays on one side of the mean and shrinks when c_j changes sides, so that useless kernels reach
    zero in few steps.
    """
    mean = float(weights @ strengths)
    if not mean > 0.0:
        return DampedStep(weights, paces, sides)
    side = np.sign(strengths - mean)
    crossed, stayed = side == -sides, side == sides
    paces = np.clip(paces * np.where(stayed, 1.5, np.where(crossed, 0.5, 1.0)), *EXPONENT_RANGE)
    gamma = weights * np.maximum(strengths / mean, MIN_STRENGTH_SHARE) ** paces
    return DampedStep(gamma / gamma.sum(), paces, side)


def task_kernel_weights(weights: FloatArray, shares: FloatArray) -> FloatArray:
    """Return ``gamma_j / lambda_jt``, the weight of kernel j in the model of task t, ``(k, T)``."""
    return weights[:, None] / shares


class Certificate(NamedTuple):
    """Primal value of a model at given weights, dual value of its optimally scaled coefficients, and the biases."""

    primal: float
    dual: float
    biases: FloatArray


def certify_machine(
    problem: DualProblem, edges: IntArray, beta: FloatArray, decision: FloatArray, forms: FloatArray, weights: FloatArray,
    p: float, q: float,
) -> Certificate:  # fmt: skip
    """Return primal and dual value with the best bias of each task. Rows are ordered by task, and tasks begin at ``edges``.

    * ``decision``: the values ``sum_j weights_jt K_t^j beta_t`` without bias.
    * ``forms`` ``(k, T)``: M.
    * ``weights``: the kernel weights of each task.
    """
    biases = task_biases(problem, edges, decision)
    loss = total_loss(problem, problem.c - decision - np.repeat(biases, np.diff(edges)))
    return Certificate(0.5 * squared_norm(forms, weights, p, q) + loss, dual_value(problem, beta, forms, p, q), biases)


def total_loss(problem: DualProblem, slope: FloatArray) -> float:
    """Return the sum of the losses at ``slope = c - f - b``, each computed from its best dual variable."""
    answer = best_response(slope, problem)
    return float(np.sum((slope - 0.5 * problem.ridges() * answer) * answer - problem.l1_weight * np.abs(answer)))


def dual_value(problem: DualProblem, beta: FloatArray, forms: FloatArray, p: float, q: float) -> float:
    """Return the largest dual value among multiples of beta."""
    return best_multiple(problem, beta, dual_norm(kernel_strengths(forms, p), q))


def best_multiple(problem: DualProblem, beta: FloatArray, norm: float) -> float:
    """Return the largest dual value among multiples of beta with the given dual norm. A multiple is feasible if it is in the box."""
    linear = problem.linear(beta)
    curve = norm + float((problem.ridges() * beta) @ beta)
    scale = min(greatest_scale(problem, beta), max(linear, 0.0) / curve) if curve > 0 else 0.0
    return scale * linear - 0.5 * scale**2 * curve


class MixedDual(NamedTuple):
    """A feasible point on the segment between two others: coefficients, forms and dual value."""

    beta: FloatArray
    forms: FloatArray
    value: float


def mixed_dual(problem: DualProblem, one: FloatArray, other: FloatArray, forms: Sequence[FloatArray], p: float, q: float) -> MixedDual:
    """Return the point with the largest dual value between two feasible coefficient vectors; the dual value is concave along the segment.

    ``forms`` are three arrays ``(k, T)``: the forms of ``one``, of ``other`` and of their sum.
    """
    first, second, both = forms
    cross = 0.5 * (both - first - second)

    def at(share: float) -> MixedDual:
        beta = (1.0 - share) * one + share * other
        mixture = (1.0 - share) ** 2 * first + share**2 * second + 2.0 * share * (1.0 - share) * cross
        mixture = np.maximum(mixture, 0.0)
        return MixedDual(beta, mixture, dual_value(problem, beta, mixture, p, q))

    # Golden sections: of two points inside one is inside of the next interval, too.
    low, high, shares = 0.0, 1.0, [1.0 - GOLDEN, GOLDEN]
    points = [at(0.0), at(1.0), *map(at, shares)]
    left, right = points[2:]
    for _ in range(MAX_SECTIONS):
        if left.value < right.value:
            low, shares = shares[0], [shares[1], shares[0] + GOLDEN * (high - shares[0])]
            left, right = right, at(shares[1])
            points.append(right)
        else:
            high, shares = shares[1], [shares[1] - GOLDEN * (shares[1] - low), shares[0]]
            left, right = at(shares[0]), left
            points.append(left)
    return max(points, key=lambda point: point.value)


def greatest_scale(problem: DualProblem, beta: FloatArray) -> float:
    """Return the largest s for which ``s beta`` is in the box."""
    up, down = beta > 0, beta < 0
    ends = [problem.hi[up] / beta[up], problem.lo[down] / beta[down]]
    return float(min((part.min() for part in ends if part.size), default=np.inf))


def task_biases(problem: DualProblem, edges: IntArray, decision: FloatArray) -> FloatArray:
    """Return the bias of each task that minimises the loss of its rows exactly, ``(T,)``. If several biases do, return their midpoint."""
    slope, codes = problem.c - decision, np.repeat(np.arange(len(edges) - 1), np.diff(edges))
    if problem.ridge is not None:
        mass = np.divide(1.0, problem.ridge, out=np.zeros(problem.n), where=(problem.hi > problem.lo) & (problem.ridge > 0))
        weighted, total = (np.bincount(codes, values, minlength=len(edges) - 1) for values in (mass * slope, mass))
        return np.divide(weighted, total, out=np.zeros_like(weighted), where=total > 0)
    # Where b crosses an end the slope of the loss in b jumps: by hi at c - f - kink, by -lo at c - f + kink.
    ends = np.concatenate([slope - problem.l1_weight, slope + problem.l1_weight])
    jumps, owner = np.concatenate([problem.hi, -problem.lo]), np.concatenate([codes, codes])
    order = np.lexsort((ends, owner))
    order = order[jumps[order] > 0]
    below = np.bincount(codes, problem.hi, minlength=len(edges) - 1).astype(np.float64)
    return _zero_crossings(ends[order], jumps[order], owner[order], below)


def _zero_crossings(ends: FloatArray, jumps: FloatArray, owner: IntArray, below: FloatArray) -> FloatArray:
    """Return for each task the midpoint of the interval where its slope is zero; at minus infinity the slope is ``-below``."""
    tasks = len(below)
    total = np.bincount(owner, jumps, minlength=tasks)
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=tasks))])
    running = np.concatenate([[0.0], np.cumsum(jumps)])
    slope = running[1:] - running[starts[owner]] - below[owner]
    level = LEVEL_SLOPE_SHARE * total[owner]
    places = np.arange(len(ends))
    first, last = np.full(tasks, len(ends)), np.full(tasks, len(ends))
    np.minimum.at(first, owner[slope >= -level], places[slope >= -level])
    np.minimum.at(last, owner[slope > level], places[slope > level])
    some = starts[1:] > starts[:-1]
    first, last = (np.minimum(part, starts[1:] - 1)[some] for part in (first, last))
    biases = np.zeros(tasks)
    biases[some] = 0.5 * (ends[first] + ends[last])
    return biases

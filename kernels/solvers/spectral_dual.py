r"""Learning a kernel matrix by its spectrum: accelerated ascent on the dual of a loss on pairs (Zhuang, thesis, 2011, chapter 3).

.. math::

    \min_{K \succeq 0} -\mathrm{tr}(MK) + \sum_e \ell(u_e(K)) \quad\text{with}\quad \mathrm{tr} K^p \le B
    \quad\text{or}\quad {} + \frac{G}{p} \mathrm{tr} K^p,

where :math:`u_e` is linear in K. The dual is :math:`\max_\alpha \mu (d'\alpha - \ell^*(\alpha)) - R(A_+)`,
:math:`A = M + \sum_e \alpha_e T_e`; K is a closed form of the positive part of A, so an evaluation is one eigendecomposition and gives
K, both objectives and the gradient. Everything that reduces to this form is solved here: non-parametric kernels, embeddings, and
the kernel of image ranking.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..pair_terms import PAIR_LOSSES, PairLoss, Terms
from ..spectral import PositivePart, kernel_spectrum, positive_part
from ..spectral_operator import SymmetricOperator

STALLED = 5
"""Steps without a higher dual before a plain step from the best point."""
COARSE = 1e-4
"""Accuracy of the eigenpairs while the gap is far from closed."""


@dataclass(frozen=True)
class SpectralProblem:
    """A loss on pairs beside a linear objective.

    Attributes
    ----------
    target
        M, ``(n, n)``.
    terms
        What the loss looks at.
    goal
        ``(size,)`` d, the targets of u; zeros with the linear loss.
    loss
        Name in ``PAIR_LOSSES``.
    C
        Weight of the loss.
    p
        Power of the regulariser, at least 1.
    B, G
        Cap of tr K^p, or weight of the penalty; one of both.
    basis
        ``(n, r)`` orthonormal columns in which K lies, or ``None``.
    seed
        Of the eigensolver's first block.
    """

    target: SymmetricOperator
    terms: Terms
    goal: np.ndarray
    loss: str = "squared_hinge"
    C: float = 1.0
    p: float = 2.0
    B: float | None = 1.0
    G: float | None = None
    basis: np.ndarray | None = None
    seed: int = 0

    @property
    def rule(self) -> PairLoss:
        """The loss."""
        return PAIR_LOSSES[self.loss]

    def operator(self, alpha: np.ndarray) -> SymmetricOperator:
        """Return A at ``alpha``."""
        return replace(self.target, sparse=(self.target.sparse + self.terms.matrix(alpha)).tocsr())

    def project(self, alpha: np.ndarray) -> np.ndarray:
        """Return the nearest feasible point."""
        return self.rule.project(alpha, self.C)


@dataclass(frozen=True)
class Evaluation:
    """K, both objectives and the gradient at a point of the dual."""

    part: PositivePart
    spectrum: np.ndarray
    forms: np.ndarray
    dual: float
    primal: float
    gradient: np.ndarray
    curvature: float


def evaluate(
    problem: SpectralProblem, alpha: np.ndarray, *, tol: float = 1e-8, start: np.ndarray | None = None, penalty: float | None = None
) -> Evaluation:
    """Return what one eigendecomposition at ``alpha`` tells.

    Parameters
    ----------
    problem, alpha
        Problem and dual point.
    tol
        Accuracy of the eigenpairs.
    start
        Block of a former evaluation nearby.
    penalty
        Take K as if the problem had this penalty in place of its cap: for a cap that is not active. Objectives stay those of the problem.
    """
    p, B, G = problem.p, problem.B, problem.G
    part = positive_part(problem.operator(alpha), tol=tol, start=start, seed=problem.seed, basis=problem.basis)
    spectrum, regulariser = kernel_spectrum(part.values, p, B=B, G=G)
    if penalty is not None and B is not None:
        spectrum = kernel_spectrum(part.values, p, G=penalty)[0]
        spectrum = spectrum * min(1.0, (B / max(float(np.sum(spectrum**p)), np.finfo(float).tiny)) ** (1.0 / p))
    forms, mu, rule = problem.terms.forms(part.vectors, spectrum), problem.terms.multiplicity, problem.rule
    dual = mu * (float(problem.goal @ alpha) - rule.conjugate(alpha, problem.C)) - regulariser
    # <M, K> without a product: A = M + sum alpha T, and K shares the eigenvectors of A.
    aligned = float(part.values @ spectrum) - mu * float(alpha @ forms)
    primal = -aligned + mu * rule.value(forms, problem.goal, problem.C) + (0.0 if G is None else G / p * float(np.sum(spectrum**p)))
    gradient = problem.goal - forms - rule.slope(alpha, problem.C)
    return Evaluation(part, spectrum, forms, dual, primal, gradient, _curvature(problem, part.values, penalty))


def _curvature(problem: SpectralProblem, values: np.ndarray, penalty: float | None) -> float:
    """Return the local Lipschitz constant of the gradient for p = 2; of other p a first guess."""
    length = float(np.linalg.norm(values))
    if penalty is None and problem.B is not None:
        own = np.sqrt(problem.B) / max(length, 1e-300)
    else:
        own = 1.0 / (penalty or problem.G or 1.0)
    return problem.terms.norm2 * own + (1.0 / problem.C if problem.rule.smooth else 0.0)


@dataclass(frozen=True)
class SpectralState:
    """State of the ascent.

    Attributes
    ----------
    iteration
        Evaluations done.
    alpha
        Feasible point of the last step.
    ahead
        Point of the next evaluation.
    momentum
        Nesterov's sequence.
    best_alpha, best_dual
        Highest dual so far; best_dual is -inf before the first evaluation.
    primal_alpha, best_primal
        The point whose K has the lowest primal objective.
    block
        Warm start of the eigensolver; no column: none.
    penalty
        Of an inactive cap, else NaN.
    since
        Steps since the dual last rose.
    stop
        ``"gap"``, ``"max_iter"``, ``"closed form"`` or ``None``.
    """

    iteration: int
    alpha: np.ndarray
    ahead: np.ndarray
    momentum: float
    best_alpha: np.ndarray
    best_dual: float
    primal_alpha: np.ndarray
    best_primal: float
    block: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    penalty: float = np.nan
    since: int = 0
    stop: str | None = None

    @property
    def gap(self) -> float:
        """Distance of both objectives."""
        return self.best_primal - self.best_dual


def begin(problem: SpectralProblem, alpha: np.ndarray) -> SpectralState:
    """Return the state before the first evaluation, at ``alpha``."""
    alpha = problem.project(np.asarray(alpha, dtype=np.float64))
    return SpectralState(0, alpha, alpha, 1.0, alpha, -np.inf, alpha, np.inf)


def advance(problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, max_iter: int = 200) -> SpectralState:
    """Return the state after one more evaluation; final when the relative gap is at most ``tol``."""
    penalty = None if np.isnan(state.penalty) else state.penalty
    start = state.block if state.block.size else None
    found = evaluate(problem, state.ahead, tol=COARSE if tol > COARSE else 1e-8, start=start, penalty=penalty)
    state = _noted(state, found)
    if problem.loss == "linear":
        return replace(state, stop="closed form")
    if state.gap <= tol * max(abs(state.best_primal), 1e-300):
        return replace(state, stop="gap")
    if state.iteration >= max_iter:
        return replace(state, stop="max_iter")
    return _moved(problem, state, found)


def _noted(state: SpectralState, found: Evaluation) -> SpectralState:
    block = found.part.block
    state = replace(
        state, iteration=state.iteration + 1, since=state.since + 1, block=np.zeros((0, 0), np.float32) if block is None else block
    )
    if found.dual > state.best_dual:
        state = replace(state, best_dual=found.dual, best_alpha=state.ahead, since=0)
    if found.primal < state.best_primal:
        state = replace(state, best_primal=found.primal, primal_alpha=state.ahead)
    return state


def _moved(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> SpectralState:
    """One accelerated step with restart."""
    alpha = problem.project(state.ahead + found.gradient / found.curvature)
    momentum = 1.0 if float((state.ahead - alpha) @ (alpha - state.alpha)) > 0 else state.momentum
    following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
    ahead = problem.project(alpha + (momentum - 1.0) / following * (alpha - state.alpha))
    return replace(state, alpha=alpha, ahead=ahead, momentum=following)


def solve(problem: SpectralProblem, alpha: np.ndarray, *, tol: float = 1e-4, max_iter: int = 200) -> SpectralState:
    """Return the last state of an ascent from ``alpha``."""
    state = begin(problem, alpha)
    while state.stop is None:
        state = advance(problem, state, tol=tol, max_iter=max_iter)
    return state

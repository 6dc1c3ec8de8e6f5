r"""Learning a kernel matrix by its spectrum: projected gradient ascent on the dual of a loss on pairs (Zhuang, thesis, 2011, chapter 3).

.. math::

    \min_{K \succeq 0} -\mathrm{tr}(MK) + \sum_e \ell(u_e(K)) \quad\text{with}\quad \mathrm{tr} K^p \le B
    \quad\text{or}\quad {} + \frac{G}{p} \mathrm{tr} K^p,

where :math:`u_e` is linear in K. The dual is :math:`\max_\alpha \mu (d'\alpha - \ell^*(\alpha)) - R(A_+)`,
:math:`A = M + \sum_e \alpha_e T_e`; K is a closed form of the positive part of A, so an evaluation is one eigendecomposition and gives
K, both objectives and the gradient. Everything that reduces to this form is solved here: non-parametric kernels, embeddings, and
the kernel of image ranking.

Steps are spectral projected gradients (Birgin, Martinez, Raydan, SIAM J. Optimization 10, 2000): Barzilai-Borwein lengths, accepted by
a search that lets the dual fall below its last few values. Against accelerated steps with the constant :math:`\sqrt B / \|A_+\|_F + 1/C`
they took 0.5 to 0.7 of the evaluations on all sets looked at, and they need no Lipschitz constant, which there is only for p = 2.

A cap that is not active leaves the optimum at a kink of the dual, :math:`A_+ = 0`, where the closed form is 0/0. The ascent then goes up
the dual with :math:`R_G(A_+)` in place of R, :math:`R_G(A) = \max_K \langle A, K \rangle - \frac{G}{p} \mathrm{tr} K^p` under the same
cap: smooth for every G > 0 and at most R. G falls tenfold whenever it keeps the gap open. Both objectives stay those of the problem.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from ..pair_terms import PAIR_LOSSES, PairLoss, Terms
from ..spectral import PositivePart, kernel_spectrum, positive_part
from ..spectral_operator import SymmetricOperator

STALLED = 8
"""Evaluations without a higher dual after which a cap is suspected of not being active."""
GIVEN_UP = 100
"""Evaluations in which the gap did not fall by a thousandth after which it will not."""
SHRUNK = 0.02
"""So does a positive part that has shrunk to this share of its largest size."""
FALL = 0.1
"""Factor of the penalty in place of an inactive cap."""
RECENT = 5
"""Values of the dual below the least of which no step may fall."""
ARMIJO = 1e-4
COARSE = 1e-3
"""Accuracy of the eigenpairs while the gap is far from closed."""
TIGHT = 1e-2
"""Their final accuracy, in units of the tolerance of the gap."""
FLOOR = 1e-3
"""The gap is measured against the primal objective, or this share of that of K = 0 where it is more."""


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
        Power of the regulariser, at least 1; above 1 but for the linear loss with a cap.
    B, G
        Cap of tr K^p, or weight of the penalty; one of both.
    basis
        ``(n, r)`` orthonormal columns in which K lies, or ``None``.
    seed
        Of the eigensolver's first block.

    Raises
    ------
    ValueError
        A parameter out of range, or of the wrong length.
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

    def __post_init__(self) -> None:
        if self.loss not in PAIR_LOSSES:
            raise ValueError(f"loss={self.loss!r}: must be one of {', '.join(PAIR_LOSSES)}")
        if not (np.isfinite(self.C) and self.C > 0):
            raise ValueError(f"C={self.C!r}: must be a finite number above 0")
        if len(self.goal) != self.terms.size:
            raise ValueError(f"goal: has {len(self.goal)} entries, there are {self.terms.size} pairs")
        kernel_spectrum(np.zeros(0), self.p, B=self.B, G=self.G)  # refuses p, B and G out of range
        if self.p == 1 and self.loss != "linear":
            raise ValueError(
                f"p={self.p:g}: with loss={self.loss!r} must be above 1: the dual has a kink wherever the largest eigenvalue is not "
                "simple, and no closed form of K fits the pairs; loss='linear' takes p=1"
            )

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

    def loss_of(self, forms: np.ndarray) -> float:
        """Return the loss of all pairs, as the primal objective counts it."""
        return self.terms.multiplicity * self.rule.value(forms, self.goal, self.C)


@dataclass(frozen=True)
class Evaluation:
    """K, both objectives and the gradient at a point of the dual.

    Attributes
    ----------
    part
        Positive part of A.
    spectrum
        ``(r,)`` eigenvalues of K, whose eigenvectors are ``part.vectors``.
    forms
        ``(size,)`` u of K.
    dual, primal
        Both objectives. The primal one is that of the K at hand whatever the accuracy of the eigenpairs (their values are Rayleigh
        quotients); the dual one is a bound as far as all of A_+ was found.
    gradient
        ``(size,)`` of the function that is ascended, over the multiplicity.
    curvature
        First guess of the gradient's Lipschitz constant; for p = 2 it is the local one.
    ascended
        Value of the function that is ascended: the dual, or with a penalty in place of the cap what bounds it from above.
    blur
        How much of ``primal - dual`` is due to that penalty.
    """

    part: PositivePart
    spectrum: np.ndarray
    forms: np.ndarray
    dual: float
    primal: float
    gradient: np.ndarray
    curvature: float
    ascended: float
    blur: float


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
        Take K as if the problem had this penalty beside its cap: for a cap that is not active. Objectives stay those of the problem.
    """
    part = positive_part(problem.operator(alpha), tol=tol, start=start, seed=problem.seed, basis=problem.basis)
    return read_off(problem, alpha, part, penalty)


def read_off(problem: SpectralProblem, alpha: np.ndarray, part: PositivePart, penalty: float | None = None) -> Evaluation:
    """Return K, objectives and gradient at ``alpha`` from the positive part of A."""
    p, mu, rule = problem.p, problem.terms.multiplicity, problem.rule
    spectrum, regulariser = kernel_spectrum(part.values, p, B=problem.B, G=problem.G)
    blur = slack = 0.0
    if penalty is not None and problem.B is not None:
        spectrum = _within_cap(kernel_spectrum(part.values, p, G=penalty)[0], p, problem.B)
        blur = regulariser - float(part.values @ spectrum)
        slack = penalty / p * float(np.sum(spectrum**p))
    forms = problem.terms.forms(part.vectors, spectrum)
    dual = mu * (float(problem.goal @ alpha) - rule.conjugate(alpha, problem.C)) - regulariser
    # <M, K> without a product: A = M + sum alpha T, and the values are Rayleigh quotients of the eigenvectors of K.
    aligned = float(part.values @ spectrum) - mu * float(alpha @ forms)
    primal = -aligned + problem.loss_of(forms) + (0.0 if problem.G is None else problem.G / p * float(np.sum(spectrum**p)))
    gradient = problem.goal - forms - rule.slope(alpha, problem.C)
    return Evaluation(part, spectrum, forms, dual, primal, gradient, _curvature(problem, part, spectrum), dual + blur + slack, blur)


def _within_cap(spectrum: np.ndarray, p: float, B: float) -> np.ndarray:
    """Return the eigenvalues of K under the penalty, shrunk where they exceed the cap: the optimum under both."""
    used = float(np.sum(spectrum**p))
    return spectrum if used <= B else spectrum * (B / used) ** (1.0 / p)


def _curvature(problem: SpectralProblem, part: PositivePart, spectrum: np.ndarray) -> float:
    own = problem.terms.norm2 * float(spectrum[0] / part.values[0]) if len(spectrum) else 0.0
    return max(own + (1.0 / problem.C if problem.rule.smooth else 0.0), 1e-12)


def equal_penalty(problem: SpectralProblem, part: PositivePart) -> float:
    """Return the penalty whose K is that of the cap: ``(sum s^q / B)^((p-1)/p)``, 0 where A has no positive eigenvalue."""
    if problem.B is None or not len(part.values) or problem.p == 1:
        return 0.0
    top, q = float(part.values[0]), problem.p / (problem.p - 1.0)
    return top * float(np.sum((part.values / top) ** q) / problem.B) ** (1.0 / q)


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
    step
        Length of the step that leads from ``alpha`` to ``ahead``.
    gradient
        ``(size,)`` at ``alpha``; empty: whatever ``ahead`` gives is accepted.
    recent
        Last values of what is ascended, at points that were accepted.
    best_alpha, best_dual
        Highest dual so far; best_dual is -inf before the first evaluation.
    primal_alpha, best_primal
        The point whose K has the lowest primal objective.
    block
        Warm start of the eigensolver; no column: none.
    penalty
        Penalty beside a cap that seems not to be active, else NaN.
    primal_penalty
        The one at ``primal_alpha``.
    level
        Largest penalty that equals the cap so far.
    since
        Evaluations since the dual last rose.
    least_gap, idle
        Smallest gap so far, and evaluations since it fell noticeably.
    tight, exact
        Whether eigenpairs have their final accuracy by tolerance, or by a dense decomposition.
    rank
        Positive eigenvalues at the last evaluation.
    dual, primal
        Objectives at the last evaluation.
    stop
        ``"gap"``, ``"max_iter"``, ``"stalled"`` (numerical accuracy ends the ascent), ``"closed form"`` or ``None``.
    """

    iteration: int
    alpha: np.ndarray
    ahead: np.ndarray
    step: float
    gradient: np.ndarray
    recent: np.ndarray
    best_alpha: np.ndarray
    best_dual: float
    primal_alpha: np.ndarray
    best_primal: float
    block: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    penalty: float = np.nan
    primal_penalty: float = np.nan
    level: float = 0.0
    since: int = 0
    least_gap: float = np.inf
    idle: int = 0
    tight: bool = False
    exact: bool = False
    rank: int = 0
    dual: float = -np.inf
    primal: float = np.inf
    stop: str | None = None

    @property
    def gap(self) -> float:
        """Distance of both objectives; a certificate once eigenpairs are tight."""
        return self.best_primal - self.best_dual

    @property
    def converged(self) -> bool:
        """Whether the ascent ended by itself."""
        return self.stop in ("gap", "closed form")


_NOTHING = np.zeros(0)


def begin(problem: SpectralProblem, alpha: np.ndarray) -> SpectralState:
    """Return the state before the first evaluation, at ``alpha``."""
    alpha = problem.project(np.asarray(alpha, dtype=np.float64))
    return SpectralState(0, alpha, alpha, 0.0, _NOTHING, _NOTHING, alpha, -np.inf, alpha, np.inf)


def relative_gap(problem: SpectralProblem, state: SpectralState) -> float:
    """Return the gap over the primal objective, or over ``FLOOR`` of that of K = 0 where this is more."""
    scale = max(abs(state.best_primal), FLOOR * abs(problem.loss_of(np.zeros(problem.terms.size))), np.finfo(float).tiny)
    return state.gap / scale if np.isfinite(state.gap) else np.inf


def advance(problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, max_iter: int = 200) -> SpectralState:
    """Return the state after one more evaluation; final when the relative gap is at most ``tol``, certified by tight eigenpairs.

    Parameters
    ----------
    problem, state
        Problem and where the ascent stands.
    tol
        Relative gap at which it ends.
    max_iter
        Evaluations at most.
    """
    if problem.loss == "linear" or (state.iteration >= max_iter - 1 and not state.exact):
        state = _tightened(state)
    penalty = None if np.isnan(state.penalty) else state.penalty
    start = state.block if state.block.size else None
    found = evaluate(problem, state.ahead, tol=_accuracy(problem, state, tol), start=start, penalty=penalty)
    state = _noted(state, found, problem)
    if problem.loss == "linear":
        return replace(state, stop="closed form")
    closed = relative_gap(problem, state) <= tol
    if closed and not (state.tight or state.exact):
        return _tightened(state)
    if closed or state.iteration >= max_iter or state.idle > GIVEN_UP:
        return replace(state, stop="gap" if closed else "max_iter" if state.iteration >= max_iter else "stalled")
    return _moved(problem, state, found)


def _accuracy(problem: SpectralProblem, state: SpectralState, tol: float) -> float:
    final = float(np.clip(TIGHT * tol, 1e-10, 1e-6))
    return final if state.tight else float(np.clip(0.1 * relative_gap(problem, state), final, COARSE))


def _tightened(state: SpectralState) -> SpectralState:
    """Return the state that goes on from the best point with tight eigenpairs; a coarse dual value is no bound and is forgotten."""
    if state.tight:
        return state
    fresh = replace(state, tight=True, alpha=state.best_alpha, ahead=state.best_alpha, gradient=_NOTHING, recent=_NOTHING)
    return replace(fresh, best_dual=-np.inf, since=0, least_gap=np.inf, idle=0)


def _noted(state: SpectralState, found: Evaluation, problem: SpectralProblem) -> SpectralState:
    """Return the state with what an evaluation told of the objectives."""
    block = found.part.block
    keep = block is not None and problem.loss != "linear"
    state = replace(
        state,
        iteration=state.iteration + 1,
        since=state.since + 1,
        block=block if keep else np.zeros((0, 0), np.float32),
        level=max(state.level, equal_penalty(problem, found.part)),
        rank=len(found.spectrum),
        exact=found.part.method == "dense",
        dual=found.dual,
        primal=found.primal,
    )
    if found.dual > state.best_dual:
        state = replace(state, best_dual=found.dual, best_alpha=state.ahead, since=0)
    if found.primal < state.best_primal:
        state = replace(state, best_primal=found.primal, primal_alpha=state.ahead, primal_penalty=state.penalty)
    if state.gap < (1.0 - 1e-3) * state.least_gap:
        return replace(state, least_gap=state.gap, idle=0)
    return replace(state, idle=state.idle + 1)


def _moved(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> SpectralState:
    """Return the state with the point of the next evaluation."""
    penalty = _penalty(problem, state, found)
    if penalty != state.penalty and not np.isnan(penalty):
        # The same eigenpairs give K under the new penalty; what is ascended is another function now.
        state = replace(state, penalty=penalty, gradient=_NOTHING, recent=_NOTHING, since=0)
        found = read_off(problem, state.ahead, found.part, penalty)
        if found.primal < state.best_primal:
            state = replace(state, best_primal=found.primal, primal_alpha=state.ahead, primal_penalty=penalty)
    if len(state.gradient) and not _accepted(problem, state, found):
        return _shortened(problem, state, found)
    step = _length(state, found)
    recent = np.append(state.recent, found.ascended)[-RECENT:]
    state = replace(state, alpha=state.ahead, gradient=found.gradient, recent=recent, step=step)
    return replace(state, ahead=problem.project(state.alpha + step * state.gradient))


def _penalty(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> float:
    """Return the penalty beside the cap: the one there is, less where it keeps the gap open, a first one where the cap seems idle."""
    if problem.B is None:
        return np.nan
    if not np.isnan(state.penalty):
        return FALL * state.penalty if found.blur > 0.5 * (found.primal - found.dual) else state.penalty
    shrunk = equal_penalty(problem, found.part) < SHRUNK * state.level
    if not (shrunk or state.since >= STALLED or not len(found.spectrum)):
        return np.nan
    largest = problem.C * float(np.abs(problem.goal).max(initial=1.0)) / problem.B ** (1.0 / problem.p)
    return FALL * (state.level or largest)


def _slope(problem: SpectralProblem, state: SpectralState) -> float:
    return problem.terms.multiplicity * float(state.gradient @ (state.ahead - state.alpha))


def _accepted(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> bool:
    """Return whether the step does not fall below the last few values, up to the accuracy of the eigenpairs."""
    noise = 0.0 if state.exact else 0.1 * max(state.gap, 0.0)
    rounding = 1e-13 * (abs(found.dual) + abs(found.primal))
    return found.ascended >= state.recent.min() + ARMIJO * _slope(problem, state) - noise - rounding


def _shortened(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> SpectralState:
    """Return the state with a shorter step: to the top of the parabola through both values and the slope."""
    slope = _slope(problem, state)
    lost = slope - (found.ascended - state.recent[-1])
    step = state.step * float(np.clip(0.5 * slope / lost, 0.1, 0.5))
    return replace(state, step=step, ahead=problem.project(state.alpha + step * state.gradient))


def _length(state: SpectralState, found: Evaluation) -> float:
    """Return the Barzilai-Borwein length, kept within some powers of ten of the inverse curvature."""
    first = 1.0 / found.curvature
    if not len(state.gradient):
        return first
    moved = state.ahead - state.alpha
    bent = -float(moved @ (found.gradient - state.gradient))
    square = float(moved @ moved)
    if square == 0.0:
        return first
    return float(np.clip(square / bent if bent > 1e-16 * square else 10.0 * state.step, 1e-4 * first, 1e6 * first))


def solve(problem: SpectralProblem, alpha: np.ndarray, *, tol: float = 1e-4, max_iter: int = 200) -> SpectralState:
    """Return the last state of an ascent from ``alpha``."""
    state = begin(problem, alpha)
    while state.stop is None:
        state = advance(problem, state, tol=tol, max_iter=max_iter)
    return state


def kernel_at(problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4) -> Evaluation:
    """Return K with the lowest primal objective; from the same state the same bits."""
    penalty = None if np.isnan(state.primal_penalty) else state.primal_penalty
    start = state.block if state.block.size else None
    return evaluate(problem, state.primal_alpha, tol=float(np.clip(TIGHT * tol, 1e-10, 1e-6)), start=start, penalty=penalty)


def cap_used(problem: SpectralProblem, found: Evaluation) -> float:
    """Return tr K^p over the cap: 1 where it is active, NaN where there is none."""
    return float(np.sum(found.spectrum**problem.p)) / problem.B if problem.B is not None else np.nan

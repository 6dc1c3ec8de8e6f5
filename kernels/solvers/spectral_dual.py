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

A cap that is not active leaves the optimum at a kink of the dual, :math:`A_+ = 0`, where the closed form is 0/0. Then the problem is
solved by proximal steps, :math:`K_{t+1} = \arg\min_K P(K) + \frac{G}{2} \|K - K_t\|_F^2` under the same cap, whose duals are smooth:
K is a closed form of the positive part of :math:`A + G K_t`. At a fixed point it solves the problem itself, for any G. Since
:math:`A \preceq W = (A + G K_t)_+ - G K_t`, a matrix of low rank, ``R(W_+)`` bounds :math:`R(A_+)`, and both objectives stay certificates.
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
FALL = 0.5
"""Factor of the weight of proximal steps, from one to the next."""
FIRST = 1.0
"""Its first value, in units of the penalty that had equalled the cap."""
CLOSE = 0.5
"""Share of the gap that a proximal step may be the reason of before the next one begins."""
LEAST = 1e-3
"""Its least value, in units of the first."""
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
        Value of the function that is ascended: the dual, or the dual of a proximal step.
    blur
        How much of ``primal - dual`` is due to the proximal step.
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


@dataclass(frozen=True)
class Anchor:
    """Centre of a proximal step: ``K_t = vectors diag(values) vectors'``, and its weight G."""

    weight: float
    vectors: np.ndarray
    values: np.ndarray

    def added_to(self, operator: SymmetricOperator) -> SymmetricOperator:
        """Return ``A + G K_t``."""
        if not len(self.values):
            return operator
        own = operator.dense_factor()
        weights = np.zeros(0) if operator.weights is None else operator.weights
        return SymmetricOperator(operator.sparse, np.hstack([own, self.vectors]), np.concatenate([weights, self.weight * self.values]))

    def product(self, vectors: np.ndarray, values: np.ndarray) -> float:
        """Return ``<K_t, K>``."""
        return float(values @ ((vectors.T @ self.vectors) ** 2 @ self.values))

    def excess(self, part: PositivePart) -> np.ndarray:
        """Return the positive eigenvalues of ``W = (A + G K_t)_+ - G K_t``, descending: none of A is greater than its counterpart."""
        if not len(self.values):
            return part.values
        triangle: np.ndarray = np.linalg.qr(np.hstack([part.vectors, self.vectors]), mode="r")  # pyright: ignore[reportAssignmentType] (of this mode)
        small = (triangle * np.concatenate([part.values, -self.weight * self.values])) @ triangle.T
        values = np.linalg.eigvalsh(0.5 * (small + small.T))[::-1]
        return values[values > 0]


def evaluate(
    problem: SpectralProblem, alpha: np.ndarray, *, tol: float = 1e-8, start: np.ndarray | None = None, anchor: Anchor | None = None
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
    anchor
        Of a proximal step: ascend its dual. Objectives stay those of the problem.
    """
    operator = problem.operator(alpha)
    if anchor is not None:
        operator = anchor.added_to(operator)
    part = positive_part(operator, tol=tol, start=start, seed=problem.seed, basis=problem.basis)
    p, mu, rule = problem.p, problem.terms.multiplicity, problem.rule
    # With an anchor the values are those of A + G K_t.
    if anchor is None:
        spectrum, regulariser = kernel_spectrum(part.values, p, B=problem.B, G=problem.G)
        aligned, smooth = float(part.values @ spectrum), regulariser
    else:
        assert problem.B is not None
        spectrum = proximal_spectrum(part.values, p, problem.B, anchor.weight)
        shared = anchor.product(part.vectors, spectrum)
        aligned = float(part.values @ spectrum) - anchor.weight * shared
        smooth = aligned - 0.5 * anchor.weight * (float(spectrum @ spectrum) + float(anchor.values @ anchor.values) - 2.0 * shared)
        regulariser = kernel_spectrum(anchor.excess(part), p, B=problem.B)[1]
    forms = problem.terms.forms(part.vectors, spectrum)
    gained = mu * (float(problem.goal @ alpha) - rule.conjugate(alpha, problem.C))
    # <M, K> without a product: A = M + sum alpha T, and the values are Rayleigh quotients of the eigenvectors of K.
    primal = mu * float(alpha @ forms) - aligned + problem.loss_of(forms)
    primal += 0.0 if problem.G is None else problem.G / p * float(np.sum(spectrum**p))
    gradient = problem.goal - forms - rule.slope(alpha, problem.C)
    blur = 0.0 if anchor is None else regulariser - aligned
    curvature = _curvature(problem, part, spectrum)
    return Evaluation(part, spectrum, forms, gained - regulariser, primal, gradient, curvature, gained - smooth, blur)


def proximal_spectrum(values: np.ndarray, p: float, B: float, weight: float) -> np.ndarray:
    """Return the eigenvalues of the K that maximises ``<A, K> - weight / 2 ||K||_F^2`` under ``tr K^p <= B``.

    With s the positive eigenvalues of A they solve ``weight lam + nu lam^(p-1) = s``, where nu >= 0 is 0 or uses up the cap.
    """
    free = values / weight
    if float(np.sum(free**p)) <= B:
        return free
    if p == 2.0:
        return free * np.sqrt(B / float(np.sum(free**2)))
    low, high = 0.0, 1.0
    while float(np.sum(_balanced(values, p, weight, high) ** p)) > B:
        low, high = high, 4.0 * high
    for _ in range(100):
        nu = 0.5 * (low + high)
        low, high = (nu, high) if float(np.sum(_balanced(values, p, weight, nu) ** p)) > B else (low, nu)
    return _balanced(values, p, weight, high)


def _balanced(values: np.ndarray, p: float, weight: float, nu: float) -> np.ndarray:
    """Return the roots of ``weight lam + nu lam^(p-1) = s`` by bisection."""
    low, high = np.zeros_like(values), values / weight
    for _ in range(60):
        middle = 0.5 * (low + high)
        below = weight * middle + nu * middle ** (p - 1.0) < values
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high


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
    anchor
        Of proximal steps, once the cap seems not to be active.
    primal_anchor
        The one at ``primal_alpha``.
    steps
        Proximal steps done.
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
    anchor: Anchor | None = None
    primal_anchor: Anchor | None = None
    steps: int = 0
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
    start = state.block if state.block.size else None
    found = evaluate(problem, state.ahead, tol=_accuracy(problem, state, tol), start=start, anchor=state.anchor)
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
        state = replace(state, best_primal=found.primal, primal_alpha=state.ahead, primal_anchor=state.anchor)
    if state.gap < (1.0 - 1e-3) * state.least_gap:
        return replace(state, least_gap=state.gap, idle=0)
    return replace(state, idle=state.idle + 1)


def _moved(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> SpectralState:
    """Return the state with the point of the next evaluation."""
    anchor = _anchored(problem, state, found)
    if anchor is not state.anchor:
        # What is ascended is another function now; its value and gradient at the same point take one more decomposition.
        return replace(state, anchor=anchor, steps=state.steps + 1, gradient=_NOTHING, recent=_NOTHING, since=0)
    if len(state.gradient) and not _accepted(problem, state, found):
        return _shortened(problem, state, found)
    step = _length(state, found)
    recent = np.append(state.recent, found.ascended)[-RECENT:]
    state = replace(state, alpha=state.ahead, gradient=found.gradient, recent=recent, step=step)
    return replace(state, ahead=problem.project(state.alpha + step * state.gradient))


def _anchored(problem: SpectralProblem, state: SpectralState, found: Evaluation) -> Anchor | None:
    """Return the anchor of the next evaluation: a first one where the cap seems idle, a new one where the old keeps the gap open."""
    if problem.B is None:
        return None
    if state.anchor is None:
        shrunk = equal_penalty(problem, found.part) < SHRUNK * state.level
        if not (shrunk or state.since >= STALLED or not len(found.spectrum)):
            return None
        largest = problem.C * float(np.abs(problem.goal).max(initial=1.0)) / problem.B ** (1.0 / problem.p)
        return Anchor(FIRST * (state.level or largest), np.zeros((problem.target.n, 0)), np.zeros(0))
    if found.blur <= CLOSE * (found.primal - found.dual):
        return state.anchor
    weight = state.anchor.weight * (FALL if state.steps <= np.log(LEAST) / np.log(FALL) else 1.0)
    return Anchor(weight, found.part.vectors, found.spectrum)


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
    start = state.block if state.block.size else None
    return evaluate(problem, state.primal_alpha, tol=float(np.clip(TIGHT * tol, 1e-10, 1e-6)), start=start, anchor=state.primal_anchor)


def cap_used(problem: SpectralProblem, found: Evaluation) -> float:
    """Return tr K^p over the cap: 1 where it is active, NaN where there is none."""
    return float(np.sum(found.spectrum**problem.p)) / problem.B if problem.B is not None else np.nan

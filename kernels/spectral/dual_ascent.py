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

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from .problem import Anchor, Evaluation, SpectralProblem, equal_penalty, evaluate

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

    record_name: ClassVar[str] = "SpectralState"
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
    with np.errstate(over="ignore"):  # against K = 0, whose objective is 0, no gap is finite
        return state.gap / scale if np.isfinite(state.gap) else np.inf


class Evaluator:
    """Evaluates, and keeps what it found where the kernel has a closed form: the model asks for the same decomposition again."""

    def __init__(self) -> None:
        self._asked: tuple[SpectralProblem, np.ndarray, float] | None = None
        self._found: Evaluation | None = None

    def __call__(
        self, problem: SpectralProblem, alpha: np.ndarray, *, tol: float, start: np.ndarray | None, anchor: Anchor | None
    ) -> Evaluation:
        """Return :func:`gramplane.kernels.spectral.problem.evaluate` of the arguments."""
        if problem.loss != "linear" or start is not None or anchor is not None:
            return evaluate(problem, alpha, tol=tol, start=start, anchor=anchor)
        asked = self._asked
        if self._found is None or asked is None or asked[0] is not problem or asked[2] != tol or not np.array_equal(asked[1], alpha):
            self._asked, self._found = (problem, alpha, tol), evaluate(problem, alpha, tol=tol)
        return self._found


def advance(
    problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, max_iter: int = 200, evaluator: Evaluator | None = None
) -> SpectralState:
    """Return the state after one more evaluation; final when the relative gap is at most ``tol``, certified by tight eigenpairs.

    Parameters
    ----------
    problem, state
        Problem and where the ascent stands.
    tol
        Relative gap at which it ends.
    max_iter
        Evaluations at most.
    evaluator
        Of a whole ascent, so that nothing is decomposed twice.
    """
    if problem.loss == "linear" or (state.iteration >= max_iter - 1 and not state.exact):
        state = _tightened(state)
    start = state.block if state.block.size else None
    evaluator = Evaluator() if evaluator is None else evaluator
    found = evaluator(problem, state.ahead, tol=_accuracy(problem, state, tol), start=start, anchor=state.anchor)
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
    final = final_accuracy(tol)
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


def kernel_at(problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, evaluator: Evaluator | None = None) -> Evaluation:
    """Return K with the lowest primal objective; from the same state the same bits, and at once from the evaluator that found it."""
    start = state.block if state.block.size else None
    evaluator = Evaluator() if evaluator is None else evaluator
    return evaluator(problem, state.primal_alpha, tol=final_accuracy(tol), start=start, anchor=state.primal_anchor)


def final_accuracy(tol: float) -> float:
    """Return the accuracy of eigenpairs that a gap of ``tol`` is certified with."""
    return float(np.clip(TIGHT * tol, 1e-10, 1e-6))


def progress_figures(problem: SpectralProblem, state: SpectralState) -> Mapping[str, Any]:
    """Return the figures of a step: the least primal and the largest dual objective so far, their distance, and the rank of K."""
    known = np.isfinite(state.best_dual)
    gap = state.gap if known else float("nan")
    return {
        "objective": state.best_primal,
        "dual": state.best_dual if known else float("nan"),
        "primal": state.primal,
        "gap": gap,
        "relative_gap": relative_gap(problem, state) if known else float("nan"),
        "rank": state.rank,
    }

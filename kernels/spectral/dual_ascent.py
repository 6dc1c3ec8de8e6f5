r"""Learning a kernel matrix by its spectrum: projected gradient ascent on the dual of a loss on pairs (Zhuang, thesis, 2011, chapter 3).

.. math::

    \min_{K \succeq 0} -\mathrm{tr}(MK) + \sum_e \ell(u_e(K)) \quad\text{with}\quad \mathrm{tr} K^p \le B
    \quad\text{or}\quad {} + \frac{G}{p} \mathrm{tr} K^p,

where :math:`u_e` is linear in K. The dual is :math:`\max_\alpha \mu (d'\alpha - \ell^*(\alpha)) - R(A_+)`, :math:`A = M + \sum_e \alpha_e
T_e`. K follows in closed form from the positive part of A, so one eigendecomposition gives K, both objectives and the gradient. All
problems that reduce to this form are solved here: non-parametric kernels, embeddings, and the kernel of image ranking.

Steps are spectral projected gradients (Birgin, Martinez, Raydan, SIAM J. Optimization 10, 2000) with Barzilai-Borwein lengths. The line
search is non-monotone: the dual may decrease, but not below its lowest recent value. On all data sets tried, these steps took 0.5 to 0.7
times as many evaluations as accelerated steps with the constant :math:`\sqrt B / \|A_+\|_F + 1/C`. They also need no Lipschitz constant,
which exists only for p = 2.

If the cap is not active, the optimum is at a kink of the dual, :math:`A_+ = 0`, where the closed form is 0/0. The problem is then solved by
proximal steps, :math:`K_{t+1} = \arg\min_K P(K) + \frac{G}{2} \|K - K_t\|_F^2` under the same cap. Their duals are smooth: K follows in
closed form from the positive part of :math:`A + G K_t`. A fixed point solves the original problem, for any G. Since :math:`A \preceq W = (A
+ G K_t)_+ - G K_t`, a matrix of low rank, ``R(W_+)`` bounds :math:`R(A_+)`, and both objectives remain certificates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ..arrays import refuse_array
from ..bounds import sound_gap
from ..eigen.column_block import WarmBlock
from ..eigen.positive_part import as_array
from .problem import Anchor, Evaluation, SpectralProblem, equal_penalty, evaluate

MAX_EVALUATIONS_WITHOUT_RISE = 8  # Evaluations without a higher dual after which a cap is suspected of not being active.
MAX_EVALUATIONS_WITHOUT_GAIN = 100  # Evaluations in which the gap did not fall by a thousandth after which it will not.
IDLE_CAP_SHARE = 0.02  # A cap is suspected, too, when the positive part has shrunk to this share of its largest size.
WEIGHT_FACTOR = 0.5  # Factor of the weight of proximal steps, from one to the next.
FIRST_WEIGHT = 1.0  # First weight of a proximal step, in units of the penalty that had equalled the cap.
MAX_BLUR_SHARE = 0.5  # Share of the gap that may be due to a proximal step before the next one begins.
MIN_WEIGHT = 1e-3  # Least weight of a proximal step, in units of the first.
RECENT_VALUES = 5  # A step may not fall below the least of so many last values of the dual.
ARMIJO = 1e-4
COARSE_ACCURACY = 1e-3  # Accuracy of the eigenpairs while the gap is far from closed.
TIGHT_ACCURACY_SHARE = 1e-2  # Final accuracy of the eigenpairs, in units of the tolerance of the gap.
MIN_OBJECTIVE_SHARE = 1e-3  # The gap is measured against the primal objective, or this share of that of K = 0 where it is more.


@dataclass(frozen=True)
class SpectralState:
    """State of the ascent."""

    record_name: ClassVar[str] = "SpectralState"
    iteration: int  # evaluations done
    alpha: np.ndarray  # feasible point of the last step
    ahead: np.ndarray  # point of the next evaluation
    step: float  # length of the step from alpha to ahead
    gradient: np.ndarray  # (size,) at alpha; empty: whatever ahead gives is accepted
    recent: np.ndarray  # last values of what is ascended, at points that were accepted
    best_alpha: np.ndarray
    best_dual: float  # highest dual so far; -inf before the first evaluation
    primal_alpha: np.ndarray  # the point whose K has the lowest primal objective
    best_primal: float
    block: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.float32))  # warm start of the eigensolver; no column: none
    anchor: Anchor | None = None  # of proximal steps, once the cap seems not to be active
    primal_anchor: Anchor | None = None  # the one at primal_alpha
    steps: int = 0  # proximal steps done
    level: float = 0.0  # largest penalty that equals the cap so far
    since: int = 0  # evaluations since the dual last rose
    least_gap: float = np.inf
    idle: int = 0  # evaluations since the least gap fell noticeably
    tight: bool = False  # whether eigenpairs have their final accuracy by tolerance
    exact: bool = False  # or by a dense decomposition
    rank: int = 0  # positive eigenvalues at the last evaluation
    dual: float = -np.inf  # objectives at the last evaluation
    primal: float = np.inf
    stop: str | None = None  # "gap", "max_iter", "stalled" (numerical accuracy ends the ascent) or "closed form"
    kept_block: str = ""  # name of the warm start where the problem's engine keeps it

    @property
    def gap(self) -> float:
        """Difference of the primal and the dual objective; a certificate if the eigenpairs are accurate."""
        return sound_gap(self.best_primal - self.best_dual, self.best_primal)

    @property
    def converged(self) -> bool:
        """Whether the ascent met its stopping rule."""
        return self.stop in ("gap", "closed form")


_EMPTY = np.zeros(0)


def begin_ascent(problem: SpectralProblem, alpha: np.ndarray) -> SpectralState:
    """Return the state before the first evaluation, at ``alpha``."""
    alpha = problem.project(np.asarray(alpha, dtype=np.float64))
    return SpectralState(0, alpha, alpha, 0.0, _EMPTY, _EMPTY, alpha, -np.inf, alpha, np.inf)


def _warm_start(problem: SpectralProblem, state: SpectralState) -> WarmBlock:
    """Return the initial block for the eigensolver, or None for a random one."""
    if state.kept_block:
        assert problem.engine is not None
        return problem.engine.stored(state.kept_block)
    return state.block if state.block.size else None


def relative_gap(problem: SpectralProblem, state: SpectralState) -> float:
    """Return the gap divided by the primal objective. If ``MIN_OBJECTIVE_SHARE`` times the objective of K = 0 is larger, divide by that
    instead.
    """
    scale = max(abs(state.best_primal), MIN_OBJECTIVE_SHARE * abs(problem.loss_of(np.zeros(problem.terms.size))), np.finfo(float).tiny)
    with np.errstate(over="ignore"):  # against K = 0, whose objective is 0, no gap is finite
        return state.gap / scale if np.isfinite(state.gap) else np.inf


class Evaluator:
    """Evaluates the dual and, if the kernel has a closed form, caches the result, because the model needs the same decomposition again."""

    def __init__(self) -> None:
        self._arguments: tuple[SpectralProblem, np.ndarray, float] | None = None
        self._evaluation: Evaluation | None = None

    def __call__(
        self, problem: SpectralProblem, alpha: np.ndarray, *, tol: float, start: np.ndarray | None, anchor: Anchor | None
    ) -> Evaluation:
        """Return :func:`gramplane.kernels.spectral.problem.evaluate` for these arguments."""
        if problem.loss != "linear" or start is not None or anchor is not None:
            return evaluate(problem, alpha, tol=tol, start=start, anchor=anchor)
        last = self._arguments
        if self._evaluation is None or last is None or last[0] is not problem or last[2] != tol or not np.array_equal(last[1], alpha):
            self._arguments, self._evaluation = (problem, alpha, tol), evaluate(problem, alpha, tol=tol)
        return self._evaluation


def advance_ascent(
    problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, max_iter: int = 200, evaluator: Evaluator | None = None
) -> SpectralState:
    """Return the state after one more evaluation; the state is final if the relative gap is at most ``tol``, certified by accurate
    eigenpairs.

    At most ``max_iter`` evaluations are done in total. Use one ``evaluator`` for a whole ascent, so that no decomposition is repeated.
    """
    if problem.loss == "linear" or (state.iteration >= max_iter - 1 and not state.exact):
        state = _tighten(state)
    start = _warm_start(problem, state)
    evaluator = Evaluator() if evaluator is None else evaluator
    final = final_accuracy(tol)
    accuracy = final if state.tight else float(np.clip(0.1 * relative_gap(problem, state), final, COARSE_ACCURACY))
    evaluation = evaluator(problem, state.ahead, tol=accuracy, start=start, anchor=state.anchor)
    state = _record_evaluation(state, evaluation, problem)
    if problem.loss == "linear":
        return replace(state, stop="closed form")
    closed = relative_gap(problem, state) <= tol
    if closed and not (state.tight or state.exact):
        return _tighten(state)
    if closed or state.iteration >= max_iter or state.idle > MAX_EVALUATIONS_WITHOUT_GAIN:
        return replace(state, stop="gap" if closed else "max_iter" if state.iteration >= max_iter else "stalled")
    return _choose_next_point(problem, state, evaluation)


def _tighten(state: SpectralState) -> SpectralState:
    """Return the state that continues from the best point with accurate eigenpairs. An inaccurate dual value is no bound and is
    discarded.
    """
    if state.tight:
        return state
    restart = replace(state, tight=True, alpha=state.best_alpha, ahead=state.best_alpha, gradient=_EMPTY, recent=_EMPTY)
    return replace(restart, best_dual=-np.inf, since=0, least_gap=np.inf, idle=0)


def _record_evaluation(state: SpectralState, evaluation: Evaluation, problem: SpectralProblem) -> SpectralState:
    block = evaluation.part.block if problem.loss != "linear" else None
    held = block if isinstance(block, np.ndarray) else np.zeros((0, 0), np.float32)
    level, rank = max(state.level, equal_penalty(problem, evaluation.part)), len(evaluation.spectrum)
    state = replace(state, iteration=state.iteration + 1, since=state.since + 1, level=level, rank=rank)
    name = "" if block is None or isinstance(block, np.ndarray) else block.name
    state = replace(state, block=held, kept_block=name, exact=evaluation.part.method == "dense")
    state = replace(state, dual=evaluation.dual, primal=evaluation.primal)
    if evaluation.dual > state.best_dual:
        state = replace(state, best_dual=evaluation.dual, best_alpha=state.ahead, since=0)
    if evaluation.primal < state.best_primal:
        state = replace(state, best_primal=evaluation.primal, primal_alpha=state.ahead, primal_anchor=state.anchor)
    if state.gap < (1.0 - 1e-3) * state.least_gap:
        return replace(state, least_gap=state.gap, idle=0)
    return replace(state, idle=state.idle + 1)


def _choose_next_point(problem: SpectralProblem, state: SpectralState, evaluation: Evaluation) -> SpectralState:
    anchor = _choose_anchor(problem, state, evaluation)
    if anchor is not state.anchor:
        # What is ascended is another function now; its value and gradient at the same point take one more decomposition.
        return replace(state, anchor=anchor, steps=state.steps + 1, gradient=_EMPTY, recent=_EMPTY, since=0)
    if len(state.gradient):
        slope = problem.terms.multiplicity * float(state.gradient @ (state.ahead - state.alpha))
        # The step may not fall below the last few values, up to the accuracy of the eigenpairs.
        noise = 0.0 if state.exact else 0.1 * max(state.gap, 0.0)
        rounding = 1e-13 * (abs(evaluation.dual) + abs(evaluation.primal))
        if not evaluation.ascended >= state.recent.min() + ARMIJO * slope - noise - rounding:
            # To the top of the parabola through both values and the slope.
            lost = slope - (evaluation.ascended - state.recent[-1])
            step = state.step * float(np.clip(0.5 * slope / lost, 0.1, 0.5))
            return replace(state, step=step, ahead=problem.project(state.alpha + step * state.gradient))
    step = _step_length(state, evaluation)
    recent = np.append(state.recent, evaluation.ascended)[-RECENT_VALUES:]
    state = replace(state, alpha=state.ahead, gradient=evaluation.gradient, recent=recent, step=step)
    return replace(state, ahead=problem.project(state.alpha + step * state.gradient))


def _choose_anchor(problem: SpectralProblem, state: SpectralState, evaluation: Evaluation) -> Anchor | None:
    """Return the anchor (centre and weight of the proximal step) of the next evaluation: the first anchor if the cap seems inactive, a
    new one if the old anchor keeps the gap open, otherwise the old one, or ``None`` if there is none.
    """
    if problem.B is None:
        return None
    if state.anchor is None:
        shrunk = equal_penalty(problem, evaluation.part) < IDLE_CAP_SHARE * state.level
        if not (shrunk or state.since >= MAX_EVALUATIONS_WITHOUT_RISE or not len(evaluation.spectrum)):
            return None
        largest = problem.C * float(np.abs(problem.goal).max(initial=1.0)) / problem.B ** (1.0 / problem.p)
        return Anchor(FIRST_WEIGHT * (state.level or largest), np.zeros((problem.target.n, 0)), np.zeros(0))
    if evaluation.blur <= MAX_BLUR_SHARE * (evaluation.primal - evaluation.dual):
        return state.anchor
    weight = state.anchor.weight * (WEIGHT_FACTOR if state.steps <= np.log(MIN_WEIGHT) / np.log(WEIGHT_FACTOR) else 1.0)
    vectors = evaluation.part.vectors
    if not isinstance(vectors, np.ndarray):
        n, rank = vectors.shape
        refuse_array(f"the kernel of a proximal step, {rank} columns of {n} rows", vectors.nbytes, problem.memory)
    return Anchor(weight, as_array(vectors), evaluation.spectrum)


def _step_length(state: SpectralState, evaluation: Evaluation) -> float:
    """Return the Barzilai-Borwein length, limited to a few powers of ten around the inverse curvature."""
    first = 1.0 / evaluation.curvature
    if not len(state.gradient):
        return first
    moved = state.ahead - state.alpha
    bent = -float(moved @ (evaluation.gradient - state.gradient))
    square = float(moved @ moved)
    if square == 0.0:
        return first
    return float(np.clip(square / bent if bent > 1e-16 * square else 10.0 * state.step, 1e-4 * first, 1e6 * first))


def solve_dual(problem: SpectralProblem, alpha: np.ndarray, *, tol: float = 1e-4, max_iter: int = 200) -> SpectralState:
    """Return the last state of an ascent from ``alpha``."""
    state = begin_ascent(problem, alpha)
    while state.stop is None:
        state = advance_ascent(problem, state, tol=tol, max_iter=max_iter)
    return state


def kernel_at(problem: SpectralProblem, state: SpectralState, *, tol: float = 1e-4, evaluator: Evaluator | None = None) -> Evaluation:
    """Return K with the lowest primal objective. The same state gives a bit-identical result; if the evaluator computed K, the cached
    result is used.
    """
    start = _warm_start(problem, state)
    evaluator = Evaluator() if evaluator is None else evaluator
    return evaluator(problem, state.primal_alpha, tol=final_accuracy(tol), start=start, anchor=state.primal_anchor)


def final_accuracy(tol: float) -> float:
    """Return the accuracy of eigenpairs needed to certify a gap of ``tol``."""
    return float(np.clip(TIGHT_ACCURACY_SHARE * tol, 1e-10, 1e-6))


def progress_figures(problem: SpectralProblem, state: SpectralState) -> Mapping[str, Any]:
    """Return the progress after a step: the smallest primal and the largest dual objective so far, their difference, and the rank of K."""
    bounds = (state.best_dual, state.gap, relative_gap(problem, state)) if np.isfinite(state.best_dual) else (float("nan"),) * 3
    figures = {"objective": state.best_primal, "dual": bounds[0], "primal": state.primal, "gap": bounds[1], "relative_gap": bounds[2]}
    return {**figures, "rank": state.rank}

"""The loop over kernel weights. Each solve at given weights yields a cut and bounds; the weights become the best ones so far if they lower
the upper bound.

With J(theta) = max over beta of ``c'beta - kink ||beta||_1 - 1/2 sum_q theta_q s_q(beta)``, every feasible beta^i gives the cut
``J(theta) >= c_i - 1/2 <s^i, theta>``, where ``c_i = c'beta^i - kink ||beta^i||_1`` and ``s^i`` are the quadratic forms ``s_q(beta^i)``.
Every primal value is an upper bound. Both bounds also hold for inexact solutions (Yang, Xu, Ye, King, Lyu, IEEE Trans. Neural Networks
22, 2011). Other losses than the hinge and the tube have another concave function of beta in place of ``c'beta - kink ||beta||_1``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...kernels.bounds import sound_gap
from ...kernels.svm.dual import DualProblem, DualSolution, Gram, Warm
from ...kernels.svm.logistic import LogisticProblem, solve_logistic
from ...kernels.svm.ridge import solve_ridge
from ...kernels.svm.smo import GAP_PER_TOL, MAX_TIGHTENING, MAX_TIGHTENINGS, solve_smo, solve_to_gap
from ...kernels.weights.domains import Domain
from ...kernels.weights.level_programs import Cuts

FIRST_TOL = 0.1  # tolerance of the first machine, and the largest one
INNER_TOL = 1e-3  # smallest tolerance of a machine while that of the fit is not below it
INNER_SHARE = 0.3  # tolerance of a machine in units of the relative gap
GAP_SHARE = 0.25  # a machine is solved on until its own gap is below this share of the gap between the bounds
MIN_KERNELS_TO_SHRINK = 32  # the forms of fewer kernels than this are all computed in every step

# A kernel without weight stays in the working set if its form reaches this share of the smallest one that earns weight.
NEAR_FORM_SHARE = 0.6

STEPS_BEFORE_LEVEL = 3  # slow steps in a row, after which the level method takes one, without a second-order model

MAX_SHRUNK_SHARE = 0.9  # the working set is chosen anew when it would shrink to this share of itself

ModelProblem = DualProblem | LogisticProblem


@dataclass(frozen=True)
class Trial:
    """A model solved at given kernel weights."""

    theta: np.ndarray  # `(k,)` weights
    # beta, bias, decision: its solution: `(n,)` coefficients, bias, and `(n,)` values K(theta) beta
    beta: np.ndarray
    bias: float
    decision: np.ndarray
    linear: float  # the dual value without the part of the kernels, such as `c'beta - kink ||beta||_1`: the constant of its cut
    # value, upper: dual and primal value
    value: float
    upper: float
    s: np.ndarray  # `(k,)` quadratic forms, zero for kernels out of the working set
    root: np.ndarray | None = None  # R with R'R the Hessian of J over the working set, or None

    @property
    def weights(self) -> np.ndarray:
        return self.theta

    @property
    def slopes(self) -> np.ndarray:
        """Gradient of J."""
        return -0.5 * self.s


@dataclass(frozen=True)
class WeightState:
    """The search for the kernel weights of one model: cuts, bounds, and the best point so far."""

    record_name: ClassVar[str] = "WeightState"
    theta: np.ndarray  # `(k,)` weights to be tried next
    beta: np.ndarray  # `(n,)` newest coefficients, the next warm start
    # cut_values, cut_forms, cut_betas, path: `(t,)`, `(t, k)` the cuts (NaN: a form that was not computed), `(t, n)` their machines,
    # and `(t, k)` the weights where these were solved
    cut_values: np.ndarray
    cut_forms: np.ndarray
    cut_betas: np.ndarray
    path: np.ndarray
    active: np.ndarray  # `(k,)` mask of the working set: kernels that may have weight, whose forms every step computes
    # lower, upper: bounds of the optimum
    lower: float
    upper: float
    floor: float  # lower bound of the optimum over the working set; `lower` where that is all kernels
    # best_theta, best_beta, best_bias, best_decision: the point whose primal value is `upper`
    best_theta: np.ndarray
    best_beta: np.ndarray
    best_bias: float
    best_decision: np.ndarray
    # mix, multipliers: warm starts of the two small programs
    mix: np.ndarray
    multipliers: np.ndarray
    slow: int = 0  # steps in a row that closed less than a third of the gap
    # whether kernels out of the working set turned out to matter: from then on it only grows, so that the search ends
    widened: bool = False
    stop: str | None = None  # why it ended, or None

    @property
    def gap(self) -> float:
        """Absolute gap between the bounds over the working set."""
        return sound_gap(self.upper - self.floor, self.upper)

    @property
    def relative_gap(self) -> float:
        """The gap divided by the upper bound, or by 1 if that is larger."""
        return self.gap / max(abs(self.upper), 1.0) if np.isfinite(self.gap) else np.inf

    @property
    def whole(self) -> bool:
        """Whether the working set contains all kernels."""
        return bool(self.active.all())

    @property
    def cuts(self) -> Cuts:
        return Cuts(self.cut_values, self.cut_forms[:, self.active])

    def scatter(self, weights: np.ndarray) -> np.ndarray:
        """Extend weights of the working set to all kernels."""
        scattered = np.zeros(len(self.active))
        scattered[self.active] = weights
        return scattered


def initial_state(domain: Domain, k: int, n: int) -> WeightState:
    """Return the state before the first solve, with equal weights."""
    theta, none = domain.start(k), np.zeros(0)
    return WeightState(
        theta=theta,
        beta=np.zeros(n),
        cut_values=none,
        cut_forms=np.zeros((0, k)),
        cut_betas=np.zeros((0, n)),
        path=np.zeros((0, k)),
        active=np.ones(k, dtype=bool),
        lower=-np.inf,
        upper=np.inf,
        floor=-np.inf,
        best_theta=theta,
        best_beta=np.zeros(n),
        best_bias=0.0,
        best_decision=np.zeros(n),
        mix=none,
        multipliers=none,
    )


def best_multiple(problem: DualProblem, beta: np.ndarray, decision: np.ndarray, largest: float) -> np.ndarray:
    """Return the multiple of ``beta`` with the greatest dual value, with a factor of at most ``largest``.

    ``decision``: decision values of ``beta``.
    """
    square = float(beta @ decision + (problem.ridges() * beta) @ beta)
    return max(min(largest, problem.linear(beta) / square) if square > 0 else largest, 0.0) * beta


def continue_search(fresh: WeightState, last: WeightState, problem: ModelProblem, scale: float) -> WeightState:
    """Return a warm start from ``last``, the final state for another C. ``scale``: the new C divided by the old one.

    The coefficients are the feasible multiple of the old ones with the greatest dual value. If C grows, old solutions remain feasible and
    the dual does not fall, so their cuts remain valid: the working set, and the cuts that bounded the optimum, are kept.
    """
    beta = last.best_beta
    if isinstance(problem, DualProblem):
        beta = best_multiple(problem, beta, last.best_decision, scale)
    point = {"theta": last.best_theta, "beta": beta}
    bounding = np.flatnonzero(last.mix > 0)
    if scale < 1 or not len(bounding):
        return replace(fresh, **point)
    arrays = {name: getattr(last, name)[bounding] for name in ("cut_values", "cut_forms", "cut_betas", "path", "mix")}
    # Near the optimum the first machine may be the last one: no model is made for its weights.
    return replace(fresh, **point, **arrays, active=last.active, slow=STEPS_BEFORE_LEVEL)


def next_inner_tol(state: WeightState, tol: float) -> float:
    """Return the tolerance of the next solve: loose at first, then a share of the gap."""
    if not np.isfinite(state.gap):
        return FIRST_TOL
    return min(FIRST_TOL, max(min(INNER_TOL, tol), INNER_SHARE * state.relative_gap))


def solve_model(gram: Gram, problem: ModelProblem, tol: float, warm: Warm = None) -> DualSolution:
    """Solve a model: one linear system for a squared loss, Newton steps for the logistic loss, else sequential minimal optimisation."""
    if isinstance(problem, LogisticProblem):
        return solve_logistic(gram, problem, warm=warm, tol=tol)
    return (solve_ridge if problem.is_squared else solve_smo)(gram, problem, warm=warm, tol=tol)


def solve_machine(gram: Gram, problem: ModelProblem, state: WeightState, tol: float, share: float = GAP_SHARE) -> DualSolution:
    """Solve a model at the scheduled tolerance, then continue until the solver's own gap is at most ``share`` times the gap between the
    bounds.
    """

    def aim(solution: DualSolution) -> float:
        return share * max(min(state.upper, solution.upper) - state.floor, tol * max(1.0, abs(solution.upper)))

    inner_tol = next_inner_tol(state, tol)
    if isinstance(problem, DualProblem) and not problem.is_squared:
        return solve_to_gap(gram, problem, warm=state.beta, tol=inner_tol, aim=aim)
    solution = solve_model(gram, problem, inner_tol, state.beta)
    for _ in range(MAX_TIGHTENINGS):
        wanted = aim(solution)
        if solution.gap <= wanted or not solution.converged:
            break
        inner_tol *= max(GAP_PER_TOL * wanted / solution.gap, MAX_TIGHTENING)
        solution = solve_model(gram, problem, inner_tol, solution)
    return solution


def solve_fixed(gram: Gram, problem: ModelProblem, tol: float) -> DualSolution:
    """Solve a model with fixed weights, at the final tolerance."""
    return solve_model(gram, problem, min(INNER_TOL, tol))


def make_trial(problem: ModelProblem, theta: np.ndarray, solution: DualSolution, s: np.ndarray, root: np.ndarray | None = None) -> Trial:
    """Return a solved model with its quadratic forms, and the root of J's Hessian if known."""
    figures = problem.utility(solution.beta), float(solution.objective), float(solution.upper)
    return Trial(theta, solution.beta, float(solution.bias), solution.decision, *figures, s, root)


def add_cut(state: WeightState, trial: Trial, domain: Domain) -> WeightState:
    """Return the state with one more cut, and updated bounds and best point.

    A single solution bounds the optimum from below by ``c_i - 1/2 sigma(s^i)``, where sigma is the support function of the domain.
    """
    state = with_lower_bound(state, trial.linear - 0.5 * domain.support(trial.s)[0])
    state = replace(
        state,
        beta=trial.beta,
        cut_values=np.append(state.cut_values, trial.linear),
        cut_forms=np.vstack([state.cut_forms, np.where(state.active, trial.s, np.nan)]),
        cut_betas=np.vstack([state.cut_betas, trial.beta]),
        path=np.vstack([state.path, trial.theta]),
    )
    return with_best(state, trial)


def with_lower_bound(state: WeightState, bound: float) -> WeightState:
    """Return the state with ``bound``, a lower bound of the optimum over the working set, if it is larger than the current lower bound."""
    floor = max(state.floor, bound)
    return replace(state, floor=floor, lower=max(state.lower, floor) if state.whole else state.lower)


def shrink_working_set(state: WeightState, s: np.ndarray, domain: Domain) -> WeightState:
    """Return the state without those kernels of the working set that have weight zero and are far from getting weight.

    ``s`` ``(k,)`` are the latest quadratic forms.
    """
    if len(s) < MIN_KERNELS_TO_SHRINK or state.widened or state.stop is not None or len(state.cut_values) < 2:
        return state
    earning = domain.support(s)[1] > 0
    edge = NEAR_FORM_SHARE * float(s[earning].min())
    keep = state.active & ((state.theta > 0) | (state.best_theta > 0) | earning | (s >= edge))
    if keep.sum() > MAX_SHRUNK_SHARE * state.active.sum():
        return state
    return replace(state, active=keep)


def average_dual(state: WeightState) -> np.ndarray:
    """Return the average ``sum_i p_i beta^i``, where p are the weights of the cuts.

    The quadratic forms of the average give a bound at least as good as the average of the solutions' quadratic forms.
    """
    return state.mix @ state.cut_betas[: len(state.mix)]


def certify_all_kernels(state: WeightState, problem: ModelProblem, mean: np.ndarray, s: np.ndarray, domain: Domain) -> WeightState:
    """Return the state with the lower bound over all kernels, from the averaged solution. Violating kernels join the working set.

    ``mean`` is the result of :func:`average_dual`, and ``s`` its quadratic forms. If no kernel outside the working set violates the bound,
    the bound holds for all kernels and ``stop`` is kept. Otherwise ``stop`` is cleared, and the caller must compute the new columns of
    ``cut_forms``.
    """
    value, best = domain.support(s)
    lower = max(state.lower, problem.utility(mean) - 0.5 * value)
    missing = (best > 0) & ~state.active
    if not missing.any():
        return replace(state, lower=max(lower, state.floor))
    if (state.upper - lower) <= state.gap:
        return replace(state, lower=lower)
    may_earn = s >= NEAR_FORM_SHARE * float(s[best > 0].min())
    return replace(state, lower=lower, floor=lower, active=state.active | missing | may_earn, widened=True, stop=None)


def with_best(state: WeightState, trial: Trial) -> WeightState:
    """Return the state with a trial as its best point if that lowers the upper bound."""
    if trial.upper >= state.upper:
        return state
    return replace(
        state,
        upper=trial.upper,
        best_theta=trial.theta,
        best_beta=trial.beta,
        best_bias=trial.bias,
        best_decision=trial.decision + trial.bias,
    )


def has_converged(state: WeightState, tol: float) -> bool:
    """Return whether the relative gap is at most ``tol``."""
    return state.relative_gap <= tol

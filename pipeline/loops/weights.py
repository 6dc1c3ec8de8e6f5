"""The loop over kernel weights: machines solved at given weights become cuts, bounds and the best weights so far.

With J(theta) = max over beta of ``c'beta - kink ||beta||_1 - 1/2 sum_q theta_q s_q(beta)`` every feasible beta gives the cut
``J(theta) >= c_i - 1/2 <s^i, theta>``, and every primal value an upper bound; both hold however inexactly a machine was solved (Yang, Xu,
Ye, King, Lyu, IEEE Trans. Neural Networks 22, 2011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...kernels.domains import Domain
from ...kernels.solvers.dual import DualProblem, DualSolution, Gram
from ...kernels.solvers.small_qp import Cuts
from ...kernels.solvers.smo import solve_smo

FIRST_TOL = 0.1
INNER_TOL = 1e-3
INNER_SHARE = 0.3
"""Inner tolerances: the first, the least that is asked for at ``tol >= INNER_TOL``, and the share of the relative gap."""

GAP_SHARE = 0.25
"""A machine is solved on until its own gap is below this share of the gap between the bounds."""

LINE_SHARE = 0.02
"""The same for methods that compare the values of machines along a line."""

TIGHTENINGS = 8


@dataclass(frozen=True)
class Trial:
    """A machine solved at given weights.

    Attributes
    ----------
    theta
        ``(k,)`` weights.
    beta, bias, decision
        Its solution: ``(n,)`` coefficients, bias, and ``(n,)`` values K(theta) beta.
    linear
        ``c'beta - kink ||beta||_1``, the constant of its cut.
    value, upper
        Dual and primal value.
    s
        ``(k,)`` quadratic forms.
    """

    theta: np.ndarray
    beta: np.ndarray
    bias: float
    decision: np.ndarray
    linear: float
    value: float
    upper: float
    s: np.ndarray

    @property
    def weights(self) -> np.ndarray:
        """The weights."""
        return self.theta

    @property
    def slopes(self) -> np.ndarray:
        """Gradient of J."""
        return -0.5 * self.s


@dataclass(frozen=True)
class WeightState:
    """What one machine's search for weights has found.

    Attributes
    ----------
    theta
        ``(k,)`` weights to be tried next.
    beta
        ``(n,)`` newest coefficients, the next warm start.
    cut_values, cut_forms, path
        ``(t,)``, ``(t, k)`` the cuts, and ``(t, k)`` the weights where they were found.
    lower, upper
        Bounds of the optimum.
    best_theta, best_beta, best_bias, best_decision
        The point whose primal value is ``upper``.
    mix, multipliers
        Warm starts of the two small programs.
    stop
        Why it ended, or ``None``.
    """

    theta: np.ndarray
    beta: np.ndarray
    cut_values: np.ndarray
    cut_forms: np.ndarray
    path: np.ndarray
    lower: float
    upper: float
    best_theta: np.ndarray
    best_beta: np.ndarray
    best_bias: float
    best_decision: np.ndarray
    mix: np.ndarray
    multipliers: np.ndarray
    stop: str | None = None

    @property
    def gap(self) -> float:
        """Absolute gap between the bounds."""
        return self.upper - self.lower

    @property
    def relative_gap(self) -> float:
        """Gap in units of the upper bound, or of one if that is smaller."""
        return self.gap / max(abs(self.upper), 1.0) if np.isfinite(self.gap) else np.inf

    @property
    def cuts(self) -> Cuts:
        """The cuts so far."""
        return Cuts(self.cut_values, self.cut_forms)


def fresh(domain: Domain, k: int, n: int) -> WeightState:
    """Return the state before the first machine: equal weights."""
    theta, none = domain.start(k), np.zeros(0)
    return WeightState(
        theta, np.zeros(n), none, np.zeros((0, k)), np.zeros((0, k)), -np.inf, np.inf, theta, np.zeros(n), 0.0, np.zeros(n), none, none
    )


def inner_tol(state: WeightState, tol: float) -> float:
    """Return the tolerance of the next machine: loose first, then following the gap."""
    if not np.isfinite(state.gap):
        return FIRST_TOL
    return min(FIRST_TOL, max(min(INNER_TOL, tol), INNER_SHARE * state.relative_gap))


def solve_machine(gram: Gram, problem: DualProblem, state: WeightState, tol: float, share: float = GAP_SHARE) -> DualSolution:
    """Solve a machine by the tolerance schedule, and on until its own gap is at most a share of that between the bounds."""
    inner = inner_tol(state, tol)
    solution = solve_smo(gram, problem, warm=state.beta, tol=inner)
    for _ in range(TIGHTENINGS):
        aim = share * max(min(state.upper, solution.upper) - state.lower, tol * max(1.0, abs(solution.upper)))
        if not np.isfinite(aim) or solution.gap <= aim or not solution.converged:
            break
        inner *= 0.25
        gradient = solution.decision + problem.ridges() * solution.beta - problem.c
        solution = solve_smo(gram, problem, warm=solution.beta, tol=inner, gradient=gradient)
    return solution


def trial(problem: DualProblem, theta: np.ndarray, solution: DualSolution, s: np.ndarray) -> Trial:
    """Return a solved machine with its quadratic forms."""
    linear = float(problem.c @ solution.beta - problem.kink * np.abs(solution.beta).sum())
    return Trial(theta, solution.beta, float(solution.bias), solution.decision, linear, float(solution.objective), float(solution.upper), s)


def absorbed(state: WeightState, found: Trial, domain: Domain) -> WeightState:
    """Return the state with one more cut, and bounds and best point brought up to date.

    A single machine bounds the optimum from below by ``c_i - 1/2 sigma(s^i)``.
    """
    single = found.linear - 0.5 * domain.support(found.s)[0]
    state = replace(
        state,
        beta=found.beta,
        cut_values=np.append(state.cut_values, found.linear),
        cut_forms=np.vstack([state.cut_forms, found.s]),
        path=np.vstack([state.path, found.theta]),
        lower=max(state.lower, single),
    )
    return with_best(state, found)


def with_best(state: WeightState, found: Trial) -> WeightState:
    """Return the state with a trial as its best point if that lowers the upper bound."""
    if found.upper >= state.upper:
        return state
    return replace(
        state,
        upper=found.upper,
        best_theta=found.theta,
        best_beta=found.beta,
        best_bias=found.bias,
        best_decision=found.decision + found.bias,
    )


def closed(state: WeightState, tol: float) -> bool:
    """Whether the bounds have met within the relative tolerance."""
    return state.relative_gap <= tol


Evaluate = Callable[[np.ndarray, np.ndarray], Trial]
"""``evaluate(theta, warm beta)`` solves the machine at other weights."""

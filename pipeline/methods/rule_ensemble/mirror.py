"""Mirror descent over the shares of a hull's nodes, as the thesis has it, with the Newton steps of joint re-weighting inside.

At shares eta the machine has weights zeta_w^(1/rhobar) theta_w with theta in the unit ball of exponent rhohat, solved with it in closed
steps; then one entropic step along the gradient (Jawanpuria 2014, Algorithm 2).
"""

from __future__ import annotations

import numpy as np

from ....kernels.graphs.norms import dual_exponent, log_psi, log_zeta, psi_gradient
from ....kernels.jit import one_thread
from ....kernels.rules.machine import RulePoint, RuleProblem, RuleSearch
from ....kernels.weights.domains import Simplex
from ...loops.weight_steps import mirror_step

MAX_INNER_STEPS = 30  # closed steps of theta at given shares, at most
INNER_TOL_SHARE = 0.3  # share of the tolerance to which a machine is solved at given shares
MIN_SHARE = 1e-12  # least share of a node


def solve_mirror(problem: RuleProblem, *, tol: float = 1e-3, max_iter: int = 200) -> RulePoint:
    """Minimise on the hull until the duality gap is at most tol times the objective, by at most ``max_iter`` mirror steps."""
    with one_thread():
        search, eta = RuleSearch(problem), np.full(problem.hull.size, 1.0 / problem.hull.size)
        for move in range(1, max_iter + 1):
            if _solve_machine(search, eta, tol):
                break
            _, slopes = psi_gradient(problem.hull, eta, search.forms, problem.rho)
            eta = np.maximum(mirror_step(Simplex(), eta, -0.5 * slopes, move), MIN_SHARE)
            eta /= eta.sum()
        return search.best


def _solve_machine(search: RuleSearch, eta: np.ndarray, tol: float) -> bool:
    """Solve the machine at given shares; returns whether the whole gap is closed."""
    problem, power = search.problem, dual_exponent(search.problem.rho)
    scale = np.exp(log_zeta(problem.hull, eta, problem.rho) / power)
    for inner in range(MAX_INNER_STEPS):
        delta = scale * _shares(search.norms, scale, problem.rho, inner)
        point = search.update_bounds(search.move(delta), tol, eta)
        if point.converged:
            return True
        value = np.exp(log_psi(problem.hull, eta, search.forms, problem.rho) / power)
        # At the machine's optimum sum Q^2 / delta is psi^(1/rhobar) of its multipliers.
        attained = float(np.sum(search.norms[delta > 0] ** 2 / delta[delta > 0]))
        if abs(attained - value) <= INNER_TOL_SHARE * tol * point.objective:
            break
    return False


def _shares(norms: np.ndarray, scale: np.ndarray, rho: float, inner: int) -> np.ndarray:
    """Return theta: the minimiser of sum_w Q_w^2 / (scale_w theta_w) over the ball of exponent rhohat = rho / (2 - rho)."""
    if rho >= 2.0:
        return np.ones(len(norms))
    power, largest = rho / (2.0 - rho), float(norms.max(initial=0.0))
    if largest == 0.0:
        return np.full(len(norms), len(norms) ** (-1.0 / power))
    smooth = norms**2 + (0.1 * 0.5**inner * largest) ** 2
    theta = (smooth / scale / (smooth / scale).max()) ** (1.0 / (power + 1.0))
    return theta / np.sum(theta**power) ** (1.0 / power)

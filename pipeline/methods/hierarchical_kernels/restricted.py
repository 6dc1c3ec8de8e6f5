"""The restricted problem of hierarchical kernel learning: SVMs on a weighted sum of the hull's kernels, and the update of the weights.

``auto`` alternates a solve at fixed weights delta with the closed form of the weights
(:func:`~gramplane.kernels.graphs.norms.joint_weights`): both minimise ``1/2 sum_w Q_w^2 / delta_w + loss``, which is jointly convex.
``mirror`` is Algorithm 2 of Jawanpuria's thesis (2014, chapter 5): mirror descent over eta on the simplex, with an l_p kernel learning
problem inside.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.graphs.norms import (
    BOUND_TOLERANCE,
    DualBound,
    DualPoint,
    Hull,
    NodeSet,
    dual_bound,
    dual_exponent,
    dual_shares,
    effective_weights,
    gauge,
    joint_weights,
    log_zeta,
    psi_gradient,
    start_weights,
)
from ....kernels.svm.dual import DualSolution
from ....kernels.weights.domains import LpBall, Simplex
from ...grams.grams import Grams
from ...loops.active_set import Restricted
from ...loops.weight_steps import mirror_step
from .machines import SharedMachines, total_loss

FIRST_SMOOTH = 0.1  # smoothing of the norms, as a share of the greatest, at first and after nodes joined: a norm of 0 would never grow
RESTART_SMOOTH = 0.03  # smoothing where the gap does not fall any more
MIN_SMOOTH = 1e-6  # least smoothing
SMOOTH_DECAY = 0.3  # factor of the smoothing per solve
# Weights go on beyond their closed form by this power of their change, within a factor, while the primal value falls: on 18 hulls it took
# two thirds of the solves.
OVERSHOOT_POWER = 0.5
MAX_OVERSHOOT = 100.0
ETA_SMOOTH = 1e-3  # smoothing of the norms that a dual bound starts from
MAX_BOUND_PASSES = 400  # improvements of a dual bound at most: each takes some ten microseconds, a solve a thousand times that
MACHINE_SHARE = 0.1  # gap of the machines, as a share of the gap that is aimed at or left, whichever is more
SOLVES_PER_STEP = 8  # solves of one step of the loop, which ends with a checkpoint
IMPROVED_GAP_SHARE = 0.99  # a gap has fallen when it is at most this share of the one before
MAX_STALE_SOLVES = 60  # solves without that after which a hull is given up
SOLVES_PER_RESTART = 15  # before, so many of them begin anew with more smoothing
MIN_ETA = 1e-12  # mirror descent: least entry of eta
MAX_INNER_SOLVES = 40  # mirror descent: solves of the problem inside


@dataclass(frozen=True)
class HKLMaster:
    """State of the restricted problem over the hull."""

    record_name: ClassVar[str] = "HKLMaster"
    weights: np.ndarray  # (W,) to be tried next
    norms: np.ndarray  # (W,) of the newest functions
    betas: np.ndarray  # (m, n) newest dual variables, the next warm start
    smooth: float  # next smoothing, as a share
    solves: int  # so far
    since: int  # solves since nodes joined
    stale: int  # solves since the gap fell
    upper: float  # least primal value, and its point:
    best_weights: np.ndarray
    best_betas: np.ndarray
    best_biases: np.ndarray
    best_decisions: np.ndarray
    best_norms: np.ndarray
    dual_betas: np.ndarray  # the dual point of the greatest lower bound over the hull:
    linear: float
    square: float
    reach: float
    bound: float
    lower: float
    eta: np.ndarray  # (W,) shares of the nodes where the newest dual bound was found; the variable of mirror descent

    @property
    def restricted(self) -> Restricted:
        """Bounds of the restricted problem, for the active-set loop."""
        return Restricted(self.upper, DualPoint(self.linear, self.square, self.reach), self.bound)


# Before a dual point is known over a hull.
NO_BOUND: dict[str, Any] = {"linear": 0.0, "square": 0.0, "reach": 1.0, "bound": 0.0, "lower": -np.inf}


def first_master(hull: Hull, machines: SharedMachines) -> HKLMaster:
    """Return the initial state: weights that depend on the hull alone, and zero dual variables."""
    none, zeros = np.zeros(hull.size), np.zeros((len(machines.problems), machines.n))
    start: dict[str, Any] = {"weights": start_weights(hull), "smooth": FIRST_SMOOTH, "solves": 0, "since": 0, "stale": 0, "upper": np.inf}
    start |= dict.fromkeys(("betas", "best_betas", "best_decisions", "dual_betas"), zeros) | {"best_biases": machines.no_biases}
    start |= dict.fromkeys(("norms", "best_weights", "best_norms"), none) | {"eta": np.full(hull.size, 1.0 / hull.size)}
    return HKLMaster(**start, **NO_BOUND)


def enlarge_master(master: HKLMaster, after: NodeSet, rho: float) -> HKLMaster:
    """Return the state with entries for added nodes: zero functions, and the weights that functions of a small norm would have."""
    hull, more = after.hull, after.size - len(master.norms)
    longer = {name: np.concatenate([getattr(master, name), np.zeros(more)]) for name in ("norms", "best_weights", "best_norms")}
    weights = joint_weights(hull, smooth_norms(longer["norms"], FIRST_SMOOTH), rho)
    eta = np.concatenate([master.eta, np.full(more, 1.0 / hull.size)])
    fresh = {"weights": weights, "smooth": SMOOTH_DECAY * FIRST_SMOOTH, "since": 0, "stale": 0, "eta": eta / eta.sum()}
    return replace(master, **longer, **fresh, **NO_BOUND)


def smooth_norms(norms: np.ndarray, share: float) -> np.ndarray:
    """Return ``sqrt(norms^2 + (share max norms)^2)``."""
    return np.hypot(norms, share * float(norms.max(initial=0.0)))


@dataclass(frozen=True)
class RestrictedProblem:
    """The restricted problem over one hull."""

    hull: Hull
    grams: Grams
    constant: np.ndarray  # (W,) which nodes have the constant kernel, which the biases take up: it is left out of every sum
    machines: SharedMachines
    rho: float
    solver: str = "auto"  # or "mirror"
    max_solves: int = 500  # over one hull at most

    def run(self, master: HKLMaster, tol: float, max_solves: int = SOLVES_PER_STEP) -> tuple[HKLMaster, Restricted]:
        """Iterate until the gap relative to the primal value is at most ``tol``, or for ``max_solves`` solves."""
        until = master.solves + max_solves
        while True:
            master = self._reweight(master, tol) if self.solver == "auto" else self._mirror(master, tol)
            result = master.restricted
            done = result.gap <= tol * abs(result.upper) or master.stale >= MAX_STALE_SOLVES or master.since >= self.max_solves
            if done or master.solves >= until:
                return master, result if done else replace(result, done=False)

    def _gap_aim(self, master: HKLMaster, tol: float) -> float:
        if not np.isfinite(master.upper):
            return np.inf
        gap = master.upper - master.lower if np.isfinite(master.lower) else abs(master.upper)
        return MACHINE_SHARE * max(tol * abs(master.upper), 0.3 * gap)

    # -- joint re-weighting --------------------------------------------------------------------------------------------------------

    def _reweight(self, master: HKLMaster, tol: float) -> HKLMaster:
        before, tried = master.upper, master.weights
        master = self._solve(master, self._gap_aim(master, tol))[0]
        smooth = RESTART_SMOOTH if master.stale and master.stale % SOLVES_PER_RESTART == 0 else max(master.smooth, MIN_SMOOTH)
        weights = joint_weights(self.hull, smooth_norms(master.norms, smooth), self.rho)
        if master.since > 1 and master.upper < before:
            weights = weights * np.clip(weights / np.maximum(tried, 1e-300), 1.0 / MAX_OVERSHOOT, MAX_OVERSHOOT) ** OVERSHOOT_POWER
        return replace(master, weights=weights, smooth=SMOOTH_DECAY * smooth)

    def _solve(self, master: HKLMaster, aim: float) -> tuple[HKLMaster, np.ndarray, list[DualSolution]]:
        """Solve the SVMs at the current weights and update both bounds. Return the new state, the forms and the solutions."""
        used = np.where(self.constant, 0.0, master.weights)
        solutions = self.machines.solve(self.machines.combine(self.grams, used), master.betas, aim)
        betas = np.stack([solution.beta for solution in solutions])
        forms = np.where(self.constant, 0.0, self.machines.forms(self.grams, betas))
        norms, point = used * np.sqrt(forms), self.machines.point(solutions)
        upper = 0.5 * gauge(self.hull, norms, self.rho) ** 2 + total_loss(solutions)
        bound = self._bound(forms, norms, master.eta, aim)
        before = master.upper - master.lower
        master = replace(master, betas=betas, norms=norms, solves=master.solves + 1, since=master.since + 1)
        if upper < master.upper:
            best = {"best_biases": self.machines.biases(solutions), "best_decisions": self.machines.decisions(solutions)}
            master = replace(master, upper=upper, best_weights=used, best_betas=betas, best_norms=norms, **best)
        lower = point.value(bound.value)
        if lower > master.lower:
            dual = {"linear": point.linear, "square": point.square, "reach": point.step_bound, "bound": bound.value}
            master = replace(master, dual_betas=betas, lower=lower, **dual)
        if self.solver == "auto":
            master = replace(master, eta=bound.eta)
        fell = not master.upper - master.lower > IMPROVED_GAP_SHARE * before
        return replace(master, stale=0 if fell else master.stale + 1), forms, solutions

    def _bound(self, forms: np.ndarray, norms: np.ndarray, eta: np.ndarray, aim: float) -> DualBound:
        """Bound the squared dual gauge, to about ``aim``. The search for eta starts from the mean of the previous eta and the eta that
        follows from ``norms``.
        """
        start = dual_shares(self.hull, smooth_norms(norms, ETA_SMOOTH), self.rho)
        size = max(gauge(self.hull, norms, self.rho) ** 2, 1e-300)
        return dual_bound(self.hull, forms, self.rho, 0.5 * (start + eta), MAX_BOUND_PASSES, max(min(aim / size, 1e-2), BOUND_TOLERANCE))

    # -- mirror descent ------------------------------------------------------------------------------------------------------------

    def _mirror(self, master: HKLMaster, tol: float) -> HKLMaster:
        """Take one step over eta: solve the inner problem by closed forms of its weights, then move eta against the gradient."""
        moves, eta = master.since, np.maximum(master.eta, MIN_ETA)
        master, forms = self._inside(replace(master, eta=eta), tol)
        _, slopes = psi_gradient(self.hull, eta, forms, self.rho)
        moved = np.maximum(mirror_step(Simplex(), eta, -0.5 * slopes, moves + 1), MIN_ETA)
        moved = moved / moved.sum()
        # The next problem inside starts from the weights that the newest forms give at the new eta.
        weights = effective_weights(self.hull, moved, np.maximum(forms, 1e-12 * forms.max()), self.rho)
        return replace(master, eta=moved, weights=weights, since=moves + 1)

    def _inside(self, master: HKLMaster, tol: float) -> tuple[HKLMaster, np.ndarray]:
        """Solve ``max_alpha linear - 1/2 || zeta^(1/rhobar) M ||_rhobar`` at fixed eta."""
        power = dual_exponent(self.rho)
        roots = np.exp(log_zeta(self.hull, master.eta, self.rho) / power)
        if power == 1.0:
            return self._solve(replace(master, weights=roots), self._gap_aim(master, tol))[:2]
        ball, forms = LpBall(power / (power - 1.0)), np.zeros(self.hull.size)
        for _ in range(MAX_INNER_SOLVES):
            master, forms, solutions = self._solve(master, self._gap_aim(master, tol))
            shares, scaled = master.weights / roots, roots * forms
            norms = shares * np.sqrt(scaled)
            point = self.machines.point(solutions)
            inner = point.linear - 0.5 * point.square - 0.5 * _norm(scaled, power)
            best = ball.weights_from_norms(norms)
            outer = total_loss(solutions) + 0.5 * float(np.sum(np.divide(norms**2, best, out=np.zeros_like(norms), where=best > 0)))
            if outer - inner <= MACHINE_SHARE * max(tol * abs(master.upper), 0.3 * (master.upper - master.lower)):
                break
            master = replace(master, weights=roots * np.maximum(best, 1e-12))
        return master, forms


def _norm(values: np.ndarray, power: float) -> float:
    largest = float(values.max(initial=0.0))
    return largest * float(np.sum((values / largest) ** power)) ** (1.0 / power) if largest > 0 else 0.0

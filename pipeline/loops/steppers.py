"""How the next kernel weights follow from the machines solved so far: level method, cutting planes, SimpleMKL, alternation, none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...kernels.domains import NormDomain
from ...kernels.solvers.simplemkl import reduced_step
from ...kernels.solvers.small_qp import LowerBound, lower_bound, project_on_level
from .weights import Evaluate, Trial, WeightState, closed, with_best

MASTER_SHARE = 0.01
"""The small lower-bound program is solved to this share of the tolerance of the fit."""

ROUND_OFF = 1e-12

Stepper = Callable[[WeightState, Trial, NormDomain, float, float, Evaluate], WeightState]
"""``step(state, newest trial, domain, tau, tol, evaluate)`` returns the state with its next weights, or with a reason to stop."""


def _bounded(state: WeightState, domain: NormDomain, tol: float) -> tuple[WeightState, LowerBound]:
    bound = lower_bound(state.cuts, domain, state.mix if len(state.mix) else None, tol=MASTER_SHARE * tol)
    return replace(state, lower=max(state.lower, bound.value), mix=bound.p), bound


def _polished(state: WeightState, bound: LowerBound, evaluate: Evaluate) -> WeightState:
    """Try the weights that answer the averaged machine, which have exact zeros, and keep them if the gap does not grow."""
    return replace(with_best(state, evaluate(bound.theta, state.best_beta)), stop="tol")


def level_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Project the weights onto the level set of the cuts (level method)."""
    state, bound = _bounded(state, domain, tol)
    if closed(state, tol):
        return _polished(state, bound, evaluate)
    lowest = state.cuts.height(bound.theta)
    level = max(state.lower + tau * state.gap, lowest + 1e-9 * abs(lowest))
    warm = state.multipliers if len(state.multipliers) else None
    point = project_on_level(found.theta, state.cuts, level, domain, warm, inside=bound.theta)
    return replace(state, theta=point.theta, multipliers=point.rho)


def silp_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Take the minimiser of the cuts (cutting planes; Sonnenburg, Rätsch, Schäfer, Schölkopf, JMLR 7, 2006)."""
    state, bound = _bounded(state, domain, tol)
    return _polished(state, bound, evaluate) if closed(state, tol) else replace(state, theta=bound.theta)


def alternate_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Take the best weights for the norms ``theta_q sqrt(s_q)`` of the machine's parts."""
    if closed(state, tol):
        return replace(state, stop="tol")
    return replace(state, theta=domain.weights_from_norms(found.theta * np.sqrt(np.maximum(found.s, 0.0))))


def simplemkl_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Take a reduced-gradient step with line search on the simplex (SimpleMKL)."""
    if closed(state, tol):
        return replace(state, stop="tol")

    def at(weights: np.ndarray, near: Trial) -> Trial:
        weights = np.where(weights > ROUND_OFF, weights, 0.0)
        return evaluate(weights / weights.sum(), near.beta)

    best = reduced_step(found, at)
    if best is found:
        # Nothing descends within the machine's tolerance.
        return replace(state, stop="flat")
    return replace(state, theta=best.theta, beta=best.beta)


def uniform_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Keep the equal weights; the bounds tell how far they are from the best ones."""
    return replace(state, stop="uniform")


STEPPERS: dict[str, Stepper] = {
    "auto": level_step,
    "level": level_step,
    "silp": silp_step,
    "simplemkl": simplemkl_step,
    "alternate": alternate_step,
    "uniform": uniform_step,
}

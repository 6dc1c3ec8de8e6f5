"""How the next kernel weights follow from the machines solved so far: level method, cutting planes, SimpleMKL, alternation, none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...kernels.svm.weight_model import model_minimiser
from ...kernels.weights.domains import Domain, ElasticNetSet, LpBall, NormDomain
from ...kernels.weights.level_programs import LowerBound, lower_bound, project_on_level
from ...kernels.weights.reduced_gradient import reduced_step
from .kernel_weights import Evaluate, Trial, WeightState, closed, raised

MASTER_SHARE = 0.01
"""The small lower-bound program is solved to this share of the tolerance of the fit."""

MODEL_SHARE = 0.02
"""A second-order model is minimised to this share of the gap."""

UPHILL = 0.1
"""A model's point may lie above the least J so far by this share of the gap: bounds profit all the same."""

SHARES = 20
"""Points tried on the way to its minimiser."""

POLISHED = ("auto", "level", "silp")
"""Methods whose last weights are still to be tried when the bounds have met."""

ROUND_OFF = 1e-12

Stepper = Callable[[WeightState, Trial, NormDomain, float, float, Evaluate], WeightState]
"""``step(state, newest trial, domain, tau, tol, evaluate)`` returns the state with its next weights, or with a reason to stop."""


def _bounded(state: WeightState, domain: NormDomain, tol: float) -> tuple[WeightState, LowerBound]:
    bound = lower_bound(state.cuts, domain, state.mix if len(state.mix) else None, tol=MASTER_SHARE * tol)
    return replace(raised(state, bound.value), mix=bound.p), bound


def _closed(state: WeightState, bound: LowerBound) -> WeightState:
    """Stop at the weights that answer the averaged machine, which have exact zeros: they are still to be tried."""
    return replace(state, theta=state.spread(bound.theta), stop="tol")


def _projected(state: WeightState, bound: LowerBound, found: Trial, domain: NormDomain, tau: float) -> WeightState:
    cuts = state.cuts
    lowest = cuts.height(bound.theta)
    level = max(state.floor + tau * state.gap, lowest + 1e-9 * abs(lowest))
    warm = state.multipliers if len(state.multipliers) else None
    point = project_on_level(found.theta[state.active], cuts, level, domain, warm, inside=bound.theta)
    return replace(state, theta=state.spread(point.theta), multipliers=point.rho)


def level_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Project the weights onto the level set of the cuts (level method)."""
    state, bound = _bounded(state, domain, tol)
    return _closed(state, bound) if closed(state, tol) else _projected(state, bound, found, domain, tau)


def newton_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Take the minimiser of a second-order model where there is one and no cut says that it fails, else the level method's step."""
    state, bound = _bounded(state, domain, tol)
    if closed(state, tol):
        return _closed(state, bound)
    return (None if found.root is None else _modelled(state, found, found.root, domain)) or _projected(state, bound, found, domain, tau)


def _modelled(state: WeightState, found: Trial, root: np.ndarray, domain: NormDomain) -> WeightState | None:
    """Take the point of least ``max(model, cuts)`` between the weights and the model's minimiser, if that promises a decrease."""
    at, s = found.theta[state.active], found.s[state.active]
    v = domain.v if isinstance(domain, ElasticNetSet) else 2.0 - domain.p  # pyright: ignore[reportAttributeAccessIssue]
    aim = model_minimiser(at, s, root, v, MODEL_SHARE * state.gap)
    image = root @ (aim - at)
    slope, bend = -0.5 * float(s @ (aim - at)), float(image @ image)
    start, change = state.cuts.values(at), -0.5 * (state.cuts.S @ (aim - at))
    shares = np.linspace(0.0, 1.0, SHARES + 1)[1:]
    heights = [max(found.value + t * slope + 0.5 * t * t * bend, float((start + t * change).max())) for t in shares]
    best = int(np.argmin(heights))
    if heights[best] >= state.upper + UPHILL * state.gap:
        return None
    return replace(state, theta=state.spread(at + shares[best] * (aim - at)))


def silp_step(state: WeightState, found: Trial, domain: NormDomain, tau: float, tol: float, evaluate: Evaluate) -> WeightState:
    """Take the minimiser of the cuts (cutting planes; Sonnenburg, Rätsch, Schäfer, Schölkopf, JMLR 7, 2006)."""
    state, bound = _bounded(state, domain, tol)
    return _closed(state, bound) if closed(state, tol) else replace(state, theta=state.spread(bound.theta))


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


def mirror_move(domain: Domain, weights: np.ndarray, slopes: np.ndarray, move: int) -> np.ndarray:
    """Return the weights after mirror step number ``move`` (from 1) of length ``sqrt(log k / move) / max |slope|``.

    Steps of a divergent series, as in chapter 5 of Jawanpuria's thesis (2014); mirror descent is not monotone.
    """
    steepest = float(np.abs(slopes).max())
    if not steepest > 0.0:
        return weights
    return domain.mirror(weights, slopes, float(np.sqrt(np.log(len(weights)) / move)) / steepest)


STEPPERS: dict[str, Stepper] = {
    "auto": newton_step,
    "level": level_step,
    "silp": silp_step,
    "simplemkl": simplemkl_step,
    "alternate": alternate_step,
    "uniform": uniform_step,
}


def modellable(solver: str, domain: NormDomain) -> bool:
    """Return whether steps of a solver use a second-order model over this set."""
    return solver == "auto" and (isinstance(domain, ElasticNetSet) or (isinstance(domain, LpBall) and domain.p in (1.0, 2.0)))

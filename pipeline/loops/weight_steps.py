"""Update rules for kernel weights: level method, cutting planes, SimpleMKL, alternation, none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...kernels.svm.weight_model import minimise_model
from ...kernels.weights.domains import BoxSet, Domain, ElasticNetSet, LpBall, NormDomain
from ...kernels.weights.level_programs import LowerBound, lower_bound, project_on_level
from ...kernels.weights.reduced_gradient import reduced_step
from .kernel_weights import Trial, WeightState, has_converged, with_lower_bound

MASTER_SHARE = 0.01  # the small lower-bound program is solved to this share of the tolerance of the fit
MODEL_SHARE = 0.02  # a second-order model is minimised to this share of the gap
MAX_RISE_SHARE = 0.1  # a model's point may lie above the smallest J so far by this share of the gap: bounds profit all the same
N_LINE_POINTS = 20  # points tried on the way to a model's minimiser
MAX_SETS = 30  # sets of kernels generated to minimise one second-order model in a box
TRIES_LAST_WEIGHTS = ("auto", "level", "silp", "fgm")  # methods whose last weights are still to be tried when the bounds have met
ROUND_OFF = 1e-12  # weights at or below this are zero


@dataclass(frozen=True)
class WeightSearch:
    """Settings of a step: the domain of the weights, the level, the tolerance of the fit.

    ``evaluate(theta, warm beta)`` solves the model at other weights.
    """

    domain: NormDomain
    tau: float
    tol: float
    evaluate: Callable[[np.ndarray, np.ndarray], Trial]


# `step(state, newest trial, search)` returns the state with its next weights, or with a reason to stop.
Stepper = Callable[[WeightState, Trial, WeightSearch], WeightState]


def _with_bound(state: WeightState, search: WeightSearch) -> tuple[WeightState, LowerBound]:
    bound = lower_bound(state.cuts, search.domain, state.mix, tol=MASTER_SHARE * search.tol)
    return replace(with_lower_bound(state, bound.value), mix=bound.p), bound


def _stop_at_minimiser(state: WeightState, bound: LowerBound) -> WeightState:
    """Stop, and set the weights to the minimiser of the lower bound, which has exact zeros. These weights remain to be evaluated."""
    return replace(state, theta=state.scatter(bound.theta), stop="tol")


def _project_on_level(state: WeightState, bound: LowerBound, trial: Trial, domain: NormDomain, tau: float) -> WeightState:
    cuts = state.cuts
    lowest = cuts.height(bound.theta)
    level = max(state.floor + tau * state.gap, lowest + 1e-9 * abs(lowest))
    point = project_on_level(trial.theta[state.active], cuts, level, domain, state.multipliers, inside=bound.theta)
    return replace(state, theta=state.scatter(point.theta), multipliers=point.rho)


def level_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Project the weights onto the level set of the cuts (level method)."""
    state, bound = _with_bound(state, search)
    if has_converged(state, search.tol):
        return _stop_at_minimiser(state, bound)
    return _project_on_level(state, bound, trial, search.domain, search.tau)


def newton_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Move to the minimiser of a second-order model. Without a model, or if a cut contradicts it, take a step of the level method."""
    state, bound = _with_bound(state, search)
    if has_converged(state, search.tol):
        return _stop_at_minimiser(state, bound)
    new = None if trial.root is None else _model_step(state, trial, trial.root, search.domain)
    return new or _project_on_level(state, bound, trial, search.domain, search.tau)


def _model_step(state: WeightState, trial: Trial, root: np.ndarray, domain: NormDomain) -> WeightState | None:
    """Minimise ``max(model, cuts)`` between the weights and the model's minimiser. Returns ``None`` if no decrease is predicted."""
    start, s = trial.theta[state.active], trial.s[state.active]
    if isinstance(domain, BoxSet):
        direction = minimise_in_box(start, s, root, domain, MODEL_SHARE * state.gap) - start
    else:
        v = domain.v if isinstance(domain, ElasticNetSet) else 2.0 - domain.p  # pyright: ignore[reportAttributeAccessIssue]
        direction = minimise_model(start, s, root, v, MODEL_SHARE * state.gap) - start
    image = root @ direction
    slope, curvature = -0.5 * float(s @ direction), float(image @ image)
    heights, change = state.cuts.values(start), -0.5 * (state.cuts.S @ direction)
    shares = np.linspace(0.0, 1.0, N_LINE_POINTS + 1)[1:]
    values = [max(trial.value + t * slope + 0.5 * t * t * curvature, float((heights + t * change).max())) for t in shares]
    best = int(np.argmin(values))
    if values[best] >= state.upper + MAX_RISE_SHARE * state.gap:
        return None
    return replace(state, theta=state.scatter(start + shares[best] * direction))


def minimise_in_box(theta: np.ndarray, s: np.ndarray, root: np.ndarray, domain: BoxSet, tol: float) -> np.ndarray:
    """Return argmin over the box of -1/2 <s, x - theta> + 1/2 ||R (x - theta)||^2, to a gap of ``tol``, by generating sets of kernels.

    Each set holds the B kernels whose weights reduce the model fastest, the first one those with the largest forms. The master problem is
    over the mixtures of all sets and of ``theta`` (Feature Generating Machine: Tan, Tsang, Wang, JMLR 15, 2014, algorithm 1).
    """
    sets, x = theta[None], theta
    for _ in range(MAX_SETS):
        slope = root.T @ (root @ (x - theta)) - 0.5 * s
        best = domain.support(-slope)[1]
        if slope @ (x - best) <= tol:
            break
        sets = np.vstack([sets, best])
        shares = minimise_model(np.eye(1, len(sets))[0], sets @ s, np.ascontiguousarray(root @ sets.T), 1.0, 0.3 * tol)
        x = shares @ sets
    return x


def silp_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Move to the minimiser of the cutting-plane model (Sonnenburg, Rätsch, Schäfer, Schölkopf, JMLR 7, 2006)."""
    state, bound = _with_bound(state, search)
    return _stop_at_minimiser(state, bound) if has_converged(state, search.tol) else replace(state, theta=state.scatter(bound.theta))


def alternate_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Move to the weights that are optimal if the norms ``theta_q sqrt(s_q)`` of the solution's parts are fixed."""
    if has_converged(state, search.tol):
        return replace(state, stop="tol")
    return replace(state, theta=search.domain.weights_from_norms(trial.theta * np.sqrt(np.maximum(trial.s, 0.0))))


def simplemkl_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Take a reduced-gradient step with line search on the simplex (SimpleMKL)."""
    if has_converged(state, search.tol):
        return replace(state, stop="tol")

    def evaluate(weights: np.ndarray, start: Trial) -> Trial:
        weights = np.where(weights > ROUND_OFF, weights, 0.0)
        return search.evaluate(weights / weights.sum(), start.beta)

    best = reduced_step(trial, evaluate)
    if best is trial:
        # Nothing descends within the machine's tolerance.
        return replace(state, stop="flat")
    return replace(state, theta=best.theta, beta=best.beta)


def uniform_step(state: WeightState, trial: Trial, search: WeightSearch) -> WeightState:
    """Keep equal weights. The bounds show how far these weights are from optimal."""
    return replace(state, stop="uniform")


def mirror_step(domain: Domain, weights: np.ndarray, slopes: np.ndarray, number: int) -> np.ndarray:
    """Return the weights after mirror step ``number`` (from 1), with step length ``sqrt(log k / number) / max |slope|``.

    The step lengths form a divergent series, as in chapter 5 of Jawanpuria's thesis (2014). Mirror descent is not monotone.
    """
    steepest = float(np.abs(slopes).max())
    if not steepest > 0.0:
        return weights
    return domain.mirror(weights, slopes, float(np.sqrt(np.log(len(weights)) / number)) / steepest)


STEPPERS: dict[str, Stepper] = {
    "auto": newton_step,
    "level": level_step,
    "silp": silp_step,
    "fgm": newton_step,
    "simplemkl": simplemkl_step,
    "alternate": alternate_step,
    "uniform": uniform_step,
}


def uses_model(solver: str, domain: NormDomain) -> bool:
    """Return whether a solver uses a second-order model on this domain."""
    is_modelled = isinstance(domain, ElasticNetSet | BoxSet) or (isinstance(domain, LpBall) and domain.p in (1.0, 2.0))
    return solver in ("auto", "fgm") and is_modelled

"""The two small convex programs of the level method, solved without a conic solver.

A cut (c_i, s^i) states J(theta) >= c_i - 1/2 <s^i, theta> for all kernel weights theta, so J >= h, the maximum of the cuts. Over a set
Theta

* the lower bound min over Theta of h equals max over p in the simplex of c'p - 1/2 sigma(S'p), sigma the support function of Theta;
* the projection onto {theta in Theta: h(theta) <= level} is P(theta0 + 1/2 S'rho), with P the projection onto Theta and rho >= 0 the
  maximiser of the dual of the projection.

Every p gives a valid lower bound, so an inexact solution gives a weaker bound, never a wrong one (Yang, Xu, Ye, King, Lyu, IEEE Trans.
Neural Networks 22 (2011); Lemaréchal, Nemirovskii, Nesterov, "New variants of bundle methods", Math. Programming 69 (1995)).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..jit import one_thread
from .domains import BoxSet, Domain, ElasticNetSet, L1LpSet, LpBall, Simplex
from .reduced_gradient import ascend_cut_weights

MASTER_TOL = 1e-9  # Gap of the lower bound, relative to the size of the cuts, at which the search ends.
MAX_MASTER_STEPS = 3_000
MAX_LEVEL_STEPS = 500

LINEAR_PROGRAM_METHODS = (
    ("highs", {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}),
    ("highs", {}),
    ("highs-ipm", {}),
)
"""Linear programming methods with their options, tried in turn; the first may fail if all cuts meet in one point."""


@dataclass(frozen=True)
class Cuts:
    """Lower bounds ``c_i - 1/2 <s^i, theta>`` of a convex function of the weights.

    * ``c``, ``(t,)``: 1'alpha^i, or in general c'beta^i - kink ||beta^i||_1.
    * ``S``, ``(t, Q)``: row i holds the quadratic forms s_q(alpha^i).
    """

    c: FloatArray
    S: FloatArray

    def __post_init__(self) -> None:
        c, S = (np.ascontiguousarray(part, dtype=np.float64) for part in (self.c, self.S))
        if c.ndim != 1 or S.ndim != 2 or len(c) != len(S) or not S.size:
            raise ValueError(f"cuts: c of shape {c.shape} and S of shape {S.shape}, must be (t,) and (t, Q), not empty")
        if not (np.isfinite(c).all() and np.isfinite(S).all()):
            raise ValueError("cuts: must be finite")
        object.__setattr__(self, "c", c)
        object.__setattr__(self, "S", S)

    def values(self, theta: FloatArray) -> FloatArray:
        """Return the value of each cut at theta, shape (t,)."""
        return self.c - 0.5 * (self.S @ theta)

    def height(self, theta: FloatArray) -> float:
        """Return h(theta), the maximum of the cuts."""
        return float(self.values(theta).max())


@dataclass(frozen=True)
class LowerBound:
    """A lower bound c'p - 1/2 sigma(S'p) of min over Theta of h, with its certificate; valid for any cut weights p ``(t,)`` on the simplex.

    ``theta``, ``(Q,)``, is a point of Theta where h is at most value + gap: the next point of the cutting-plane method.
    """

    value: float
    p: FloatArray
    theta: FloatArray
    gap: float
    iterations: int


def lower_bound(cuts: Cuts, domain: Domain, warm: FloatArray | None = None, *, tol: float = MASTER_TOL) -> LowerBound:
    """Maximise c'p - 1/2 sigma(S'p) over the simplex of cut weights, until the gap is at most tol max_i |c_i|.

    Over a simplex or box of kernel weights this is a linear program. Over a set with a curved boundary, compiled accelerated projected
    gradients solve it with the maximiser of sigma. They start at the cut weights ``warm``, padded with zeros for later cuts.
    """
    t = len(cuts.c)
    start = np.full(t, 1.0 / t) if warm is None else Simplex().project(_with_later_cuts(warm, t, signed=True))
    with one_thread():
        if (limits := _linear_limits(domain)) is not None:
            return _solve_linear_program(cuts, domain, limits, start)
        elastic = isinstance(domain, ElasticNetSet)
        v = 0.0 if isinstance(domain, LpBall) else domain.v  # type: ignore[union-attr]
        p_norm = 2.0 if elastic else domain.p  # type: ignore[union-attr]
        S_t, max_gap = np.ascontiguousarray(cuts.S.T), tol * float(np.abs(cuts.c).max())
        p, theta, steps = ascend_cut_weights(cuts.c, cuts.S, S_t, start, elastic, v, p_norm, max_gap, MAX_MASTER_STEPS)
        return _certify(cuts, domain, p, theta, steps)


@dataclass(frozen=True)
class _Limits:
    """A polytope of weights w >= 0: their sum, or the largest sum, and the largest weight where the sum does not bound it."""

    total: float = 1.0
    is_whole: bool = False
    most: float | None = None


def _linear_limits(domain: Domain) -> _Limits | None:
    """Return the limits of the weights of a set, None if its boundary is curved."""
    if isinstance(domain, Simplex):
        return _Limits(is_whole=True)
    if isinstance(domain, BoxSet):
        return _Limits(domain.B, most=1.0)
    if isinstance(domain, ElasticNetSet):
        return _Limits() if domain.v == 1 else None
    if isinstance(domain, LpBall):
        return _Limits() if domain.p == 1 else None
    if isinstance(domain, L1LpSet):
        return None
    raise ValueError(f"domain={domain!r}: must be a Simplex, a BoxSet, an ElasticNetSet, an LpBall or an L1LpSet")


def _with_later_cuts(warm: FloatArray, t: int, *, signed: bool) -> FloatArray:
    """Return the values of a warm start, ``(t,)``, padded with zeros for the cuts added since."""
    start, values = np.zeros(t), np.asarray(warm, dtype=np.float64)
    if values.ndim != 1 or len(values) > t or not (np.isfinite(values).all() and (signed or (values >= 0).all())):
        sign = "" if signed else ", not negative"
        raise ValueError(f"warm: shape {values.shape}, must be a vector of at most {t} finite entries{sign}")
    start[: len(values)] = values
    return start


def _certify(cuts: Cuts, domain: Domain, p: FloatArray, theta: FloatArray, steps: int) -> LowerBound:
    value = float(cuts.c @ p) - 0.5 * domain.support(p @ cuts.S)[0]
    return LowerBound(value, p, theta, max(0.0, cuts.height(theta) - value), steps)


def _solve_linear_program(cuts: Cuts, domain: Domain, limits: _Limits, start: FloatArray) -> LowerBound:
    """Minimise the height z of the cuts over (theta, z); the cut weights are the multipliers.

    If HiGHS fails, the best single cut or ``start`` gives the bound, which is then lower, but valid.
    """
    # Loaded on demand: it takes a third of a second, which every worker would pay.
    from scipy.optimize import linprog

    t, n = cuts.S.shape
    unit = max(float(np.abs(cuts.S).max()), float(np.ptp(cuts.c)), 1e-300)
    middle = float(cuts.c.max())
    rows = np.hstack([-0.5 / unit * cuts.S, -np.ones((t, 1))])
    ones = np.append(np.ones(n), 0.0)[None]
    equality: dict[str, Any] = {"A_eq": ones, "b_eq": [limits.total]} if limits.is_whole else {}
    heights = (middle - cuts.c) / unit
    if not limits.is_whole:
        rows, heights = np.vstack([rows, ones]), np.append(heights, limits.total)
    height = {"c": np.append(np.zeros(n), 1.0), "b_ub": heights, **equality}
    for method, options in LINEAR_PROGRAM_METHODS:
        result = linprog(A_ub=rows, bounds=[(0, limits.most)] * n + [(None, None)], method=method, options=options, **height)
        if result.status == 0:
            break
    else:
        theta = domain.start(n)
        return max((_certify(cuts, domain, p, theta, 0) for p in (start, *np.eye(t))), key=lambda bound: bound.value)
    # Both are projected onto their sets, and bound and gap computed from them: the program is exact to its tolerances only.
    p = Simplex().project(-np.asarray(result.ineqlin.marginals)[:t])
    return _certify(cuts, domain, p, domain.project(np.ascontiguousarray(result.x[:n])), int(result.nit))


@dataclass(frozen=True)
class LevelPoint:
    """The projection onto a level set.

    * ``theta``, ``(Q,)``: the projection; it is always in Theta and below the level.
    * ``rho``, ``(t,)``: the multipliers of the cuts for the next warm start.
    * ``distance``: 1/2 ||theta - theta0||^2.
    * ``gap``: an upper bound of how far ``distance`` is above its minimum, from the dual value at rho.
    """

    theta: FloatArray
    rho: FloatArray
    distance: float
    gap: float
    iterations: int


def project_on_level(
    theta0: FloatArray, cuts: Cuts, level: float, domain: Domain, warm: FloatArray | None = None, *, inside: FloatArray | None = None
) -> LevelPoint:
    """Minimise 1/2 ||theta - theta0||^2 over the theta in Theta where every cut is at most ``level``.

    L-BFGS-B maximises the dual over the cut multipliers, with rows scaled to unit length. It starts at ``warm``, padded with zeros for new
    cuts. If its tolerance leaves cuts above the level, a step towards a point below the level (``inside``, or the point of
    :func:`lower_bound`) brings the result into both sets. Raises ValueError if no point of Theta is below the level.
    """
    t = len(cuts.c)
    start = np.zeros(t) if warm is None else _with_later_cuts(warm, t, signed=False)
    theta0 = np.ascontiguousarray(theta0, dtype=np.float64)
    if theta0.shape != (cuts.S.shape[1],) or not np.isfinite(theta0).all():
        raise ValueError(f"theta0: shape {theta0.shape}, must be ({cuts.S.shape[1]},) with finite entries")
    dual = _LevelDual(theta0, cuts, level, domain)
    with one_thread():
        rho, steps = dual.maximise(start)
        theta = _lower_to_level(dual.theta(rho), cuts, level, domain, inside)
    distance = 0.5 * float(np.sum((theta - theta0) ** 2))
    return LevelPoint(theta, rho, distance, max(0.0, distance + dual.loss(rho / dual.unit)[0]), steps)


class _LevelDual:
    """max over rho >= 0 of min over Theta of 1/2 ||theta - theta0||^2 + sum_i rho_i (cut_i(theta) - level)."""

    def __init__(self, theta0: FloatArray, cuts: Cuts, level: float, domain: Domain) -> None:
        lengths = 0.5 * np.linalg.norm(cuts.S, axis=1)
        # rho = unit x with rows of length one; a row of zeros stays as it is.
        self.unit = 1.0 / np.where(lengths > 0, lengths, 1.0)
        self._rows = 0.5 * self.unit[:, None] * cuts.S
        self._above = self.unit * (cuts.c - level)
        self._theta0, self._domain = theta0, domain

    def theta(self, rho: FloatArray) -> FloatArray:
        """Return the minimiser over Theta for given multipliers."""
        return self._domain.project(self._theta0 + (rho / self.unit) @ self._rows)

    def loss(self, x: FloatArray) -> tuple[float, FloatArray]:
        """Return minus the dual value and its gradient, in scaled multipliers."""
        theta = self._domain.project(self._theta0 + x @ self._rows)
        excess = self._above - self._rows @ theta
        away = theta - self._theta0
        return -(0.5 * float(away @ away) + float(x @ excess)), -excess

    def maximise(self, start: FloatArray) -> tuple[FloatArray, int]:
        # Loaded on demand: it takes a third of a second, which every worker would pay.
        from scipy.optimize import minimize

        options: dict[str, Any] = {"maxiter": MAX_LEVEL_STEPS, "ftol": 1e-15, "gtol": 1e-11, "maxcor": 20}
        bounds = [(0.0, None)] * len(start)
        result = minimize(self.loss, start / self.unit, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
        return np.maximum(result.x, 0.0) * self.unit, int(result.nit)


def _lower_to_level(theta: FloatArray, cuts: Cuts, level: float, domain: Domain, inside: FloatArray | None) -> FloatArray:
    """Return theta if it is below the level. Otherwise move towards a point below the level until the highest cut is at the level."""
    height = cuts.height(theta)
    if height <= level:
        return theta
    low = lower_bound(cuts, domain).theta if inside is None else np.asarray(inside, dtype=np.float64)
    bottom = cuts.height(low)
    if bottom > level:
        raise ValueError(f"level={level!r}: must be at least {bottom!r}, the value of the highest cut at the lowest known point")
    return theta + (height - level) / (height - bottom) * (low - theta)

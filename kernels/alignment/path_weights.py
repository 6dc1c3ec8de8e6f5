"""Kernel weights of generalised l_p-norm kernel target alignment at one p.

For alignments a_i >= 0 (Jawanpuria, PhD thesis 2014, equation 7.1)

    min over eta >= 0 of   lam1 sum_i B_F(eta_i, eta0_i) + lam2 sum_i eta_i^p - sum_i eta_i a_i,

B_F the Bregman divergence of F. The kernels do not interact. With the *load* ``b_i = a_i + lam1 F'(eta0_i)`` a positive weight solves

    G(eta) = lam1 F'(eta) + lam2 p eta^(p-1) - b = 0,   D = G' = lam1 F''(eta) + lam2 p (p-1) eta^(p-2) > 0.

So a weight depends on the load alone and rises with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import wrightomega

from ..arrays import FloatArray

Function = Callable[[FloatArray], FloatArray]

NEWTON_ACCURACY = 1e-12
"""Newton stops at ``|G| <= NEWTON_ACCURACY * min(1 + |b|, |b| + lam2 p eta^(p-1))``, so that small weights are accurate whatever the unit
of a.
"""

MAX_NEWTON_STEPS = 40  # Newton steps before a bracket takes over.
MAX_WEIGHT = 1e300  # Weights beyond it, or below its inverse, are not searched.
EPSILON = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Divergence:
    """Generator F of a Bregman divergence, strictly convex on (0, inf), given by F', F'' and F''' for positive numbers.

    F'(0) may be -inf.
    """

    name: str
    first: Function
    second: Function
    third: Function


EUCLIDEAN = Divergence("euclidean", lambda x: 2.0 * x, lambda x: np.full_like(x, 2.0), lambda x: np.zeros_like(x))
"""F = x^2: squared distance to the centre."""

KL = Divergence("kl", np.log, lambda x: 1.0 / x, lambda x: -1.0 / (x * x))
"""F = x log x - x: generalised Kullback-Leibler divergence; its centre must be positive."""

DIVERGENCES: dict[str, Divergence] = {"euclidean": EUCLIDEAN, "kl": KL}


@dataclass(frozen=True, eq=False)
class AlignmentProblem:
    """The regularisation of the weights.

    * ``lam1``, ``lam2``: both >= 0, and not both 0.
    * ``centre``: eta0, a number or one per kernel; positive for KL.
    """

    lam1: float
    lam2: float
    divergence: Divergence = EUCLIDEAN
    centre: float | FloatArray = 0.0

    def __post_init__(self) -> None:
        for name, value in (("lam1", self.lam1), ("lam2", self.lam2)):
            if not (np.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} is {value}; it must be finite and >= 0")
        if self.lam1 == 0.0 and self.lam2 == 0.0:
            raise ValueError("lam1 and lam2 are both 0; one of them must be above 0, or the weights are unbounded")
        centre = np.asarray(self.centre, dtype=np.float64)
        if not (np.isfinite(centre) & (centre >= 0.0)).all():
            raise ValueError(f"centre is {self.centre}; it must be finite and >= 0")
        if self.lam1 > 0.0 and not np.isfinite(self._pull()).all():
            raise ValueError(f"centre is {self.centre}; the {self.divergence.name} divergence needs a centre above 0")

    def _pull(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return self.lam1 * self.divergence.first(np.asarray(self.centre, dtype=np.float64))

    def loads(self, a: FloatArray) -> FloatArray:
        """Return ``b = a + lam1 F'(eta0)`` for alignments ``(n,)``.

        Raises ValueError if an alignment is negative or the centre has another length.
        """
        a = np.asarray(a, dtype=np.float64)
        wrong = ~(np.isfinite(a) & (a >= 0.0))
        if a.ndim != 1 or wrong.any():
            problem = f"a[{int(np.argmax(wrong))}] = {a[np.argmax(wrong)]}" if a.ndim == 1 else f"shape {a.shape}"
            raise ValueError(f"alignments have {problem}; they must be a vector of finite numbers >= 0")
        if np.ndim(self.centre) and np.shape(self.centre) != a.shape:
            raise ValueError(f"centre has shape {np.shape(self.centre)}; it must be one number, or one for each of the {a.size} kernels")
        return a + self._pull() if self.lam1 > 0.0 else a.copy()

    def check_p(self, p: float) -> None:
        """Raise ValueError for a p without a unique solution: p < 1, or p = 1 without a divergence."""
        if not (np.isfinite(p) and p >= 1.0):
            raise ValueError(f"p is {p}; it must be finite and >= 1")
        if p == 1.0 and self.lam1 == 0.0:
            raise ValueError("p = 1 with lam1 = 0 has no unique solution; take lam1 > 0 or stop at p > 1")


def stationarity(problem: AlignmentProblem, eta: FloatArray, loads: FloatArray, p: float) -> FloatArray:
    """Return G at positive weights, shape (n,)."""
    out = problem.lam2 * p * eta ** (p - 1.0) - loads
    return out + problem.lam1 * problem.divergence.first(eta) if problem.lam1 > 0.0 else out


def _newton_terms(problem: AlignmentProblem, eta: FloatArray, loads: FloatArray, p: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return G and D, and the value of |G| at which Newton stops."""
    slope = problem.lam2 * p * eta ** (p - 1.0)
    G, D, size = slope - loads, (p - 1.0) * slope / eta, np.abs(loads)
    if problem.lam1 > 0.0:
        G += problem.lam1 * problem.divergence.first(eta)
        D += problem.lam1 * problem.divergence.second(eta)
    return G, D, NEWTON_ACCURACY * np.minimum(1.0 + size, size + slope)


def weight_derivatives(problem: AlignmentProblem, eta: FloatArray, p: float, order: int = 2) -> tuple[FloatArray, FloatArray]:
    """Return d eta / dp and d^2 eta / dp^2 at the solution for p, shapes (n,); with ``order`` 1 the second derivative is zero.

    Both follow from differentiating G = 0 once and twice (Jawanpuria 2014, appendix A.3.4; the printed formula lacks the bracket around
    F''' + p (p-1) (p-2) eta^(p-3)). ``eta`` holds positive weights with G = 0.
    """
    lam1, lam2, F = problem.lam1, problem.lam2, problem.divergence
    log, power = np.log(eta), lam2 * eta ** (p - 1.0)
    D = p * (p - 1.0) * power / eta
    if lam1 > 0.0:
        D += lam1 * F.second(eta)
    first = -power * (1.0 + p * log) / D
    if order < 2:
        return first, np.zeros_like(first)
    bend = p * (p - 1.0) * (p - 2.0) * power / (eta * eta)
    if lam1 > 0.0:
        bend += lam1 * F.third(eta)
    mixed = 2.0 * power / eta * (2.0 * p - 1.0 + p * (p - 1.0) * log)
    return first, -(bend * first * first + mixed * first + power * log * (2.0 + p * log)) / D


def closed_form(problem: AlignmentProblem, loads: FloatArray, p: float) -> FloatArray | None:
    """Return the weights if there is a closed form, else None.

    Closed forms exist in these cases:

    * lam1 = 0.
    * lam2 = 0 or p = 1 (both divergences).
    * The squared distance at p = 2 and p = 1.5.
    * KL at every p, through the Lambert function: with c = lam2 p (p-1) / lam1, ``w = c eta^(p-1)`` solves
      ``w + log w = log c + (p-1) b / lam1``.

    The loads come from :meth:`AlignmentProblem.loads`. Raises ValueError if a weight is too large for float64.
    """
    lam1, lam2 = problem.lam1, problem.lam2
    with np.errstate(over="ignore", divide="ignore"):
        if lam1 == 0.0:
            eta = (loads / (lam2 * p)) ** (1.0 / (p - 1.0))
        elif problem.divergence is EUCLIDEAN:
            eta = _euclidean_form(lam1, lam2, loads, p)
        elif problem.divergence is KL:
            eta = _kl_form(lam1, lam2, loads, p)
        else:
            eta = None
    if eta is not None:
        _refuse_large(eta <= MAX_WEIGHT, p)
    return eta


def _refuse_large(fine: NDArray[np.bool_], p: float) -> None:
    if not fine.all():
        raise ValueError(f"{int((~fine).sum())} weights at p = {p} are too large for float64; take a larger lam1 or lam2")


def _euclidean_form(lam1: float, lam2: float, loads: FloatArray, p: float) -> FloatArray | None:
    if lam2 == 0.0 or p == 1.0:
        return np.maximum(loads - lam2, 0.0) / (2.0 * lam1)
    if p == 2.0:
        return loads / (2.0 * (lam1 + lam2))
    if p == 1.5:
        # The usual root multiplied out: no cancellation when lam1 is small.
        return (2.0 * loads / (1.5 * lam2 + np.sqrt(2.25 * lam2 * lam2 + 8.0 * lam1 * loads))) ** 2
    return None


def _kl_form(lam1: float, lam2: float, loads: FloatArray, p: float) -> FloatArray:
    if lam2 == 0.0 or p == 1.0:
        return np.exp((loads - lam2) / lam1)
    q = p - 1.0
    log_c = np.log(lam2) + np.log(p) + np.log(q) - np.log(lam1)
    exponent = log_c + q * loads / lam1
    w = wrightomega(exponent)
    # log eta = (log w - log c) / q; where w is small, log w = exponent - w without loss of digits, as p -> 1 needs.
    large = np.log(np.maximum(w, 1.0)) - log_c
    return np.exp(np.where(w > 1.0, large / q, loads / lam1 - w / q))


def correct_weights(problem: AlignmentProblem, eta: FloatArray, loads: FloatArray, p: float) -> tuple[FloatArray, int]:
    """Return the weights at p, computed by Newton's method from a guess, and the number of Newton steps, summed over all weights.

    The guess ``eta`` ``(n,)`` must be positive, and so must the solution for the loads.
    """
    eta, steps = eta.copy(), 0
    todo: NDArray[np.intp] = np.arange(eta.size)
    x, b = eta, loads
    for _ in range(MAX_NEWTON_STEPS):
        with np.errstate(over="ignore"):
            G, D, small = _newton_terms(problem, x, b, p)
            moved = np.clip(x - G / D, 0.5 * x, MAX_WEIGHT)
        far = np.abs(G) > small
        steps += int(far.sum())
        # A step that rounding swallows is the last one too.
        far &= np.abs(moved - x) > 4.0 * EPSILON * x
        if not far.all():
            todo, b, moved = todo[far], b[far], moved[far]
        if not todo.size:
            break
        x = eta[todo] = moved
    else:
        eta[todo] = bracket_weights(problem, b, p)
    _refuse_large(eta < MAX_WEIGHT, p)
    return eta, steps


def bracket_weights(problem: AlignmentProblem, loads: FloatArray, p: float) -> FloatArray:
    """Return the solution at p by Newton's method inside a bracket of log eta, for loads with a positive solution."""
    low, high = np.ones_like(loads), np.ones_like(loads)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        for _ in range(12):
            low = np.where(stationarity(problem, low, loads, p) > 0.0, low * low * 0.25, low)
            high = np.where(stationarity(problem, high, loads, p) < 0.0, high * high * 4.0, high)
        low, high = np.maximum(low, 1.0 / MAX_WEIGHT), np.minimum(high, MAX_WEIGHT)
        _refuse_large(stationarity(problem, high, loads, p) >= 0.0, p)
        eta = np.sqrt(low) * np.sqrt(high)
        for _ in range(200):
            G, D, small = _newton_terms(problem, eta, loads, p)
            low, high = np.where(G <= 0.0, eta, low), np.where(G >= 0.0, eta, high)
            solved = (np.abs(G) <= small) | (high <= low * (1.0 + 4.0 * EPSILON))
            if solved.all():
                break
            moved = eta - G / D
            moved = np.where((moved > low) & (moved < high), moved, np.sqrt(low) * np.sqrt(high))
            eta = np.where(solved, eta, moved)
    return eta


def weights_at(problem: AlignmentProblem, a: FloatArray, p: float) -> FloatArray:
    """Return the weights, ``(n,)``, that solve the problem for alignments a >= 0 at one p >= 1; p = 1 needs lam1 > 0."""
    problem.check_p(p)
    loads = problem.loads(a)
    eta = closed_form(problem, loads, p)
    if eta is not None:
        return eta
    with np.errstate(divide="ignore"):
        floor = problem.lam1 * float(problem.divergence.first(np.zeros(1))[0]) + (problem.lam2 if p == 1.0 else 0.0)
    eta, positive = np.zeros_like(loads), loads > floor
    eta[positive] = bracket_weights(problem, loads[positive], p)
    return eta

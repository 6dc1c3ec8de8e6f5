"""Norms on a directed acyclic graph of kernels: gauge, closed-form weights, dual bound, and the terms of certificates.

For a hull W of nodes (all ancestors of a node are in W; A(w) ancestors, D(v) descendants, both including the node itself), penalties d_v >
0 and 1 < rho <= 2, the gauge of the norms Q_w >= 0 of the nodes' functions is

Omega(Q) = sum_v d_v n_v,   n_v = ( sum_{w in D(v)} Q_w^rho )^(1/rho).

The square of the gauge is concave in the squares of the norms, so that

1/2 Omega(Q)^2 = min over delta > 0 of 1/2 sum_w Q_w^2 / delta_w,
attained at delta_w = Q_w^(2 - rho) / (Omega sum_{v in A(w)} d_v n_v^(1 - rho)),

where 1/delta_w is the derivative of 1/2 Omega^2 by Q_w, divided by Q_w. The square of the dual gauge of sqrt(M_w), M_w >= 0, is the maximum
of psi(eta)^(1/rhobar) over the simplex, with rhobar = rho / (2 (rho - 1)) and

psi(eta) = sum_w zeta_w M_w^rhobar,   zeta_w = ( sum_{v in A(w)} d_v^rho eta_v^(1 - rho) )^(1 / (1 - rho)).

psi is concave and homogeneous of degree one, so its maximum is at most max_i d psi / d eta_i for every eta > 0. This bound needs no
maximisation. Source: Jawanpuria, "Learning Kernels for Multiple Predictive Tasks", PhD thesis, IIT Bombay, 2014, chapter 5, (5.10)-(5.12)
and A.1; the closed-form weights are derived in docs/theory/hierarchical_kernels.md. Powers with 1 / (1 - rho) are computed in logarithms,
because rho may be close to 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..arrays import FloatArray, IntArray
from ..jit import compiled
from .hulls import Hull
from .hulls import NodeSet as NodeSet

MIN_LOG_ETA = -575.0  # Logarithm of the least eta that counts as more than zero.
MAX_PASSES = 30  # Improvements of eta tried for a dual bound.

STRIDE_GROWTH, MAX_STRIDE = 1.5, 8.0  # Growth of the power by which eta moves, from pass to pass, and its limit, in units of 1/rho.

BOUND_TOLERANCE = 1e-6  # A dual bound this close to what eta attains, relatively, is not improved.


def dual_exponent(rho: float) -> float:
    return rho / (2.0 * (rho - 1.0))


def descendant_norms(hull: Hull, norms: FloatArray, rho: float) -> FloatArray:
    """Return n_v = (sum over w in D(v) of norms_w^rho)^(1/rho), shape (W,)."""
    top = float(norms.max(initial=0.0))
    return top * hull.descendant_sums((norms / top) ** rho) ** (1.0 / rho) if top > 0 else np.zeros(hull.size)


def gauge(hull: Hull, norms: FloatArray, rho: float) -> float:
    """Return Omega = sum_v d_v n_v of norms (W,)."""
    return float(hull.d @ descendant_norms(hull, norms, rho))


def start_weights(hull: Hull) -> FloatArray:
    """Return initial weights 1 / (W d_w^2), which need no norms. They give the nodes equal shares, as if no node had ancestors."""
    return 1.0 / (hull.size * hull.d * hull.d)


def joint_weights(hull: Hull, norms: FloatArray, rho: float) -> FloatArray:
    """Return argmin over delta of 1/2 sum_w norms_w^2 / delta_w, ``(W,)``; the minimum is 1/2 Omega^2. For zero norms return the start
    weights.

    A zero norm gives a weight of zero, and no later step changes this weight. (With rho = 2 the weight is not zero if a descendant has a
    non-zero norm.) Callers therefore smooth the norms: sqrt(norms^2 + eps^2).
    """
    top = float(norms.max(initial=0.0))
    if top == 0:
        return start_weights(hull)
    shares = norms / top
    sizes = hull.descendant_sums(shares**rho) ** (1.0 / rho)
    # Where no descendant has a norm, the sum of the ancestors is infinite, the weight zero.
    slopes = np.where(sizes > 0, hull.d * np.where(sizes > 0, sizes, 1.0) ** (1.0 - rho), np.inf)
    return shares ** (2.0 - rho) / (float(hull.d @ sizes) * hull.ancestor_sums(slopes))


def dual_shares(hull: Hull, norms: FloatArray, rho: float) -> FloatArray:
    """Return eta_v = d_v n_v / Omega, the maximiser of psi for the dual point of these norms; equal shares for zero norms."""
    lengths = hull.d * descendant_norms(hull, norms, rho)
    total = float(lengths.sum())
    return lengths / total if total > 0 else np.full(hull.size, 1.0 / max(hull.size, 1))


def log_zeta(hull: Hull, eta: FloatArray, rho: float) -> FloatArray:
    """Return log zeta_w = log(sum over v in A(w) of d_v^rho eta_v^(1 - rho)) / (1 - rho), shape (W,)."""
    return _log_terms(hull, _log_above(eta), np.zeros(hull.size), rho)[0]


def log_psi(hull: Hull, eta: FloatArray, forms: FloatArray, rho: float) -> float:
    """Return log psi(eta) = log sum_w zeta_w M_w^rhobar for ``forms`` M (W,); minus infinity if all of them are zero."""
    return log_total(log_zeta(hull, eta, rho) + dual_exponent(rho) * _log_above(forms, floor=-np.inf))


def log_slopes(hull: Hull, eta: FloatArray, forms: FloatArray, rho: float) -> FloatArray:
    """Return the logarithms of d psi / d eta_i = d_i^rho eta_i^(-rho) sum over w in D(i) of zeta_w^rho M_w^rhobar, shape (W,).

    The bounded quotients zeta_w / eta_i are computed together to avoid overflow.
    """
    return _log_terms(hull, _log_above(eta), dual_exponent(rho) * _log_above(forms, floor=-np.inf), rho)[1]


def _log_terms(hull: Hull, log_eta: FloatArray, powers: FloatArray, rho: float) -> tuple[FloatArray, FloatArray]:
    zeta, slopes = np.empty(hull.size), np.empty(hull.size)
    descendants = hull.transposed
    log_sums(hull.indptr, hull.indices, descendants.indptr, descendants.rows, hull.log_d, log_eta, powers, float(rho), zeta, slopes)
    return zeta, slopes


class DualBound(NamedTuple):
    """Lower and upper bounds of max over the simplex of psi(eta)^(1/rhobar), the squared dual gauge of sqrt(M)."""

    value: float  # upper bound: (max_i d psi / d eta_i)^(1/rhobar) at the best eta seen
    attained: float  # lower bound: the greatest psi(eta)^(1/rhobar) seen
    eta: FloatArray  # (W,) of the upper bound


def dual_bound(
    hull: Hull, forms: FloatArray, rho: float, eta: FloatArray, passes: int = MAX_PASSES, tight: float = BOUND_TOLERANCE
) -> DualBound:
    """Bound the squared dual gauge of sqrt(forms), ``(W,)``, without further data. If each node has an inner norm of its own, ``forms``
    holds the squares of the dual of that norm.

    The start is eta >= 0 with any sum: :func:`dual_shares`, or the eta of an earlier bound. Every pass multiplies eta by a power of (d psi
    / d eta) / psi, which leaves a maximiser unchanged. The power starts at 1/rho, which raises psi, and grows from pass to pass as long as
    psi rises. The search ends after ``passes``, or when the two bounds agree to within the relative tolerance ``tight``.
    """
    if not np.any(forms > 0):
        return DualBound(0.0, 0.0, eta)
    power, powers, descendants = dual_exponent(rho), dual_exponent(rho) * _log_above(forms, floor=-np.inf), hull.transposed
    graph = hull.indptr, hull.indices, descendants.indptr, descendants.rows, hull.log_d
    best, attained, log_eta = improve_eta(*graph, _log_above(eta), powers, float(rho), power, int(passes), float(tight))
    return DualBound(math.exp(best), math.exp(min(attained, best)), np.exp(log_eta))


def psi_gradient(hull: Hull, eta: FloatArray, forms: FloatArray, rho: float) -> tuple[float, FloatArray]:
    """Return psi(eta)^(1/rhobar) and its derivative with respect to eta (W,). The derivative of the objective of an SVM is minus half of
    this derivative.

    Zero forms give a zero derivative, because nothing is known yet about the weights.
    """
    power, value = dual_exponent(rho), log_psi(hull, eta, forms, rho)
    if not np.isfinite(value):
        return 0.0, np.zeros(hull.size)
    return math.exp(value / power), np.exp(log_slopes(hull, eta, forms, rho) + (1.0 / power - 1.0) * value) / power


def effective_weights(hull: Hull, eta: FloatArray, forms: FloatArray, rho: float) -> FloatArray:
    """Return the kernel weights mu_w = zeta_w M_w^(rhobar - 1) psi^(1/rhobar - 1) at given eta, for forms M of the optimal dual point.

    ``sum_w mu_w M_w = psi(eta)^(1/rhobar)``; for rho = 2 the weights are zeta.
    """
    power, zeta = dual_exponent(rho), log_zeta(hull, eta, rho)
    if power == 1.0:
        return np.exp(zeta)
    value = log_psi(hull, eta, forms, rho)
    if not np.isfinite(value):
        return np.exp(zeta)
    return np.exp(zeta + (power - 1.0) * _log_above(forms, floor=-np.inf) + (1.0 / power - 1.0) * value)


class DualPoint(NamedTuple):
    """A dual point beta. Its value is ``max over 0 <= t <= step_bound of t * linear - t^2 * (square + bound) / 2``, where ``bound`` is an
    upper bound of the squared dual gauge at beta.
    """

    linear: float  # c'beta - kink ||beta||_1
    square: float  # sum_i ridge_i beta_i^2
    step_bound: float  # greatest t for which t beta is feasible, possibly infinite; at least 1

    def scale(self, bound: float) -> float:
        """Return the maximiser t, given a bound of the squared dual gauge at beta."""
        curved = self.square + bound
        if self.linear <= 0:
            return 0.0
        return min(self.linear / curved, self.step_bound) if curved > 0 else self.step_bound

    def value(self, bound: float) -> float:
        """Return the lower bound of the optimum that follows from a bound of the squared dual gauge of the whole graph at beta."""
        t = self.scale(bound)
        # A point that is zero bounds by zero, although no finite bound of the gauge was searched for.
        return t * self.linear - 0.5 * t * t * (self.square + bound) if t > 0 else 0.0


def _log_above(values: FloatArray, floor: float = MIN_LOG_ETA) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.maximum(np.log(values), floor)


@compiled(deferred=True)
def log_total(terms: FloatArray) -> float:
    """Return log(sum(exp(terms)))."""
    top = -np.inf
    for term in terms:
        top = max(top, term)
    if not np.isfinite(top):
        return -np.inf
    total = 0.0
    for term in terms:
        total += math.exp(term - top)
    return top + math.log(total)


@compiled(deferred=True)
def log_sums(
    indptr: IntArray, indices: IntArray, below_indptr: IntArray, below: IntArray, log_d: FloatArray, log_eta: FloatArray,
    powers: FloatArray, rho: float, zeta: FloatArray, slopes: FloatArray,
) -> None:  # fmt: skip
    """Write log zeta_w to ``zeta``, and log d psi / d eta_i to ``slopes``, for powers_w = log M_w^rhobar. Each log zeta_w is a log-sum-exp
    over ancestors, each slope one over descendants.
    """
    n = log_d.size
    for w in range(n):
        top = -np.inf
        for at in range(indptr[w], indptr[w + 1]):
            v = indices[at]
            top = max(top, rho * log_d[v] + (1.0 - rho) * log_eta[v])
        total = 0.0
        for at in range(indptr[w], indptr[w + 1]):
            v = indices[at]
            total += math.exp(rho * log_d[v] + (1.0 - rho) * log_eta[v] - top)
        zeta[w] = (top + math.log(total)) / (1.0 - rho)
    for i in range(n):
        top = -np.inf
        for at in range(below_indptr[i], below_indptr[i + 1]):
            w = below[at]
            top = max(top, rho * (zeta[w] - log_eta[i]) + powers[w])
        slopes[i] = top
        if top > -np.inf:
            total = 0.0
            for at in range(below_indptr[i], below_indptr[i + 1]):
                w = below[at]
                total += math.exp(rho * (zeta[w] - log_eta[i]) + powers[w] - top)
            slopes[i] = rho * log_d[i] + top + math.log(total)


def improve_eta(
    indptr: IntArray, indices: IntArray, below_indptr: IntArray, below: IntArray, log_d: FloatArray, log_eta: FloatArray,
    powers: FloatArray, rho: float, power: float, passes: int, tight: float,
) -> tuple[float, float, FloatArray]:  # fmt: skip
    """Return three logarithms: of the smallest upper bound found, of the largest value attained, and of the eta that gives this bound."""
    zeta, slopes = np.empty(log_d.size), np.empty(log_d.size)
    log_eta = np.maximum(log_eta - log_total(log_eta), MIN_LOG_ETA)
    best, attained, before, stride, best_eta = np.inf, -np.inf, -np.inf, 1.0, log_eta
    for _ in range(passes + 1):
        log_sums(indptr, indices, below_indptr, below, log_d, log_eta, powers, rho, zeta, slopes)
        value, steepest = log_total(zeta + powers), slopes.max() / power
        attained = max(attained, value / power)
        if steepest < best:
            best, best_eta = steepest, log_eta
        if best - attained <= tight:
            break
        stride = min(STRIDE_GROWTH * stride, MAX_STRIDE) if value >= before else 1.0
        before = value
        moved = log_eta + stride / rho * (slopes - value)
        log_eta = np.maximum(moved - log_total(moved), MIN_LOG_ETA)
    return best, attained, best_eta

"""Lower bounds of the Feature Generating Machine's exact optimum from any dual vector (docs/methods.md, "Outer bounds")."""

from __future__ import annotations

import numpy as np


def dual_utility(alpha: np.ndarray, cost: np.ndarray, loss: str) -> float:
    """Return ``U(alpha)``, everything of the dual objective but its quadratic in X.

    Squared hinge: ``sum alpha - sum alpha^2 / (2 C_i)``. Logistic: ``sum [C log C - alpha log alpha - (C - alpha) log(C - alpha)]``.
    Rows with ``C_i = 0`` do not exist.
    """
    if loss == "squared_hinge":
        total, square = _sums(alpha, cost)
        return total - 0.5 * square
    used = cost > 0
    a, c = alpha[used], cost[used]
    return float(np.sum(_xlogx(c) - _xlogx(a) - _xlogx(np.maximum(c - a, 0.0))))


def _xlogx(x: np.ndarray) -> np.ndarray:
    return x * np.log(np.where(x > 0, x, 1.0))


def best_bound(alpha: np.ndarray, cost: np.ndarray, norm2: float, loss: str) -> float:
    """Return the better of ``U(alpha) - norm2 / 2`` and :func:`best_scaled_dual`."""
    if loss != "squared_hinge":
        return max(dual_utility(alpha, cost, loss) - 0.5 * norm2, best_scaled_dual(alpha, cost, norm2, loss))
    # Both follow from the same two sums.
    total, square = _sums(alpha, cost)
    plain = total - 0.5 * square - 0.5 * norm2
    return max(plain, _scaled_squared_hinge(total, square, norm2))


def _sums(alpha: np.ndarray, cost: np.ndarray) -> tuple[float, float]:
    """Return ``sum alpha`` and ``sum alpha^2 / C_i``."""
    used = cost > 0
    a, c = (alpha, cost) if used.all() else (alpha[used], cost[used])
    return float(a.sum()), float(np.sum(a * a / c))


def _scaled_squared_hinge(total: float, square: float, norm2: float) -> float:
    return total**2 / (2.0 * (square + norm2)) if total > 0 else 0.0


def best_scaled_dual(alpha: np.ndarray, cost: np.ndarray, norm2: float, loss: str) -> float:
    """Return ``max_s U(s alpha) - s^2 norm2 / 2`` over the feasible ``s >= 0``: a lower bound of the exact optimum.

    Parameters
    ----------
    alpha
        ``(n_samples,)`` dual vector, feasible for ``s = 1``.
    cost
        ``(n_samples,)`` loss weights ``C_i``.
    norm2
        ``||c(alpha)||_(B)^2``, the sum of the B largest scores.
    loss
        ``"squared_hinge"`` (closed form) or ``"logistic"`` (concave search).
    """
    if loss == "squared_hinge":
        return _scaled_squared_hinge(*_sums(alpha, cost), norm2)
    used = cost > 0
    a, c = alpha[used], cost[used]
    return _best_scaled_logistic(a, c, norm2) if np.any(a > 0) else 0.0


def _best_scaled_logistic(a: np.ndarray, c: np.ndarray, norm2: float) -> float:
    a, c = a[a > 0], c[a > 0]
    lo, hi = 0.0, float(np.min(c / a))
    s = min(1.0, 0.5 * hi)
    for _ in range(60):
        slope = float(np.sum(a * np.log((c - s * a) / (s * a))) - s * norm2)
        lo, hi = (s, hi) if slope > 0 else (lo, s)
        if hi - lo <= 1e-9 * hi:
            break
        curvature = -float(np.sum(a * c / (s * (c - s * a)))) - norm2
        newton = s - slope / curvature
        s = newton if lo < newton < hi else 0.5 * (lo + hi)
    return dual_utility(s * a, c, "logistic") - 0.5 * s * s * norm2

"""Slow, obvious references of the oracle arithmetic: loops in the documented order, full sorts, full enumeration."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np

Ranked = list[tuple[tuple[int, ...], float]]
"""Candidates as ``(id, value)``, the best first."""


def ordered_correlations(X: np.ndarray, u: np.ndarray) -> np.ndarray:
    """``X'u`` as ``((0 + x_1 u_1) + x_2 u_2) + ...``, each operation rounded to float64."""
    c = np.zeros(X.shape[1])
    for i in range(X.shape[0]):
        c = c + X[i].astype(np.float64) * u[i]
    return c


def best(candidates: Sequence[tuple[tuple[int, ...], float]], B: int, threshold: float = 0.0) -> Ranked:
    """Sort everything by ``(-|value|, id)``; zeros are no candidates."""
    alive = [(name, value) for name, value in candidates if value != 0.0 and abs(value) >= threshold]
    return sorted(alive, key=lambda candidate: (-abs(candidate[1]), candidate[0]))[:B]


def exact_group_score(c: np.ndarray, members: Sequence[int], weight: float) -> float:
    """``eta ||c_G||^2`` in rational arithmetic over the rounded squares, rounded once."""
    total = sum((Fraction(float(c[j] * c[j])) for j in members), Fraction(0))
    return float(Fraction(weight) * total)


def is_laminar(groups: Sequence[Sequence[int]]) -> bool:
    """Every two groups are nested or disjoint."""
    sets = [set(group) for group in groups]
    return all(a <= b or b <= a or not a & b for a, b in combinations(sets, 2))


def ordered_pairs(X: np.ndarray, u: np.ndarray, linear: float, square: float, product: float) -> Ranked:
    """Every coordinate of the degree-2 map by the sums ``u_i (x_ij x_ik)`` over ascending rows."""
    n, d = X.shape
    out: Ranked = [((j, -1), linear * float(c)) for j, c in enumerate(ordered_correlations(X, u))]
    for i in range(d):
        for j in range(i, d):
            total = 0.0
            for row in range(n):
                total += float(u[row]) * (float(X[row, i]) * float(X[row, j]))
            out.append(((i, j), (square if i == j else product) * total))
    return out

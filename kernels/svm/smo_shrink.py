"""Physical shrinking: steps on the variables that can still move, with their rows copied side by side when first used.

Active are the variables that can move against the other end of the violation: g + u <= M or g + l >= m. Steps on them leave g of the others
behind; it is brought up with the changed rows, and nothing is called solved before all variables were looked at.

The driver is plain Python: compiled into one function with the steps, their loops lost half their speed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..jit import compiled
from .dual import DualProblem, add_rows
from .smo_steps import BROKEN, CAPPED, OVERFLOW, SOLVED, STUCK, extremes, pair_steps, set_offsets, single_steps

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

WORTH = 0.6
"""Greatest share of active variables for which the copy pays."""

PATIENCE = 4
"""Steps per active variable before all variables are looked at again."""

APART = 136
"""Entries between two vectors: the vectorised loops test for overlap with ranges rounded up to four times LANES, and take their slow form
when neighbours are closer (1.5 times slower at n = 500)."""

LEAST = 200
"""Least number of steps between two looks at all variables."""

IDLE = 3
"""Looks at all variables in a row without a step, after which no step is left."""


class Ends(NamedTuple):
    """m, M and what is compared with the tolerance: M - m, or max(-m, M) when sums are free; 0 if nothing can move."""

    m: float
    top: float
    violation: float


def ends_of(m: float, top: float, paired: bool) -> Ends:
    """Return the ends with their violation."""
    if not paired:
        return Ends(m, top, max(-m, top, 0.0))
    return Ends(m, top, top - m if m < OVERFLOW and top > -OVERFLOW else 0.0)


@compiled
def _active(g: FloatArray, u: FloatArray, low: FloatArray, up: float, down: float) -> IndexArray:
    found = np.empty(g.size, dtype=np.int64)
    count = 0
    for k in range(g.size):
        found[count] = k
        count += 1 if g[k] + u[k] <= up or g[k] + low[k] >= down else 0
    return found[:count]


def _spaced(n: int) -> list[FloatArray]:
    """Return diagonal, ridge, lo, hi, kink, beta, g, u and l, undefined and apart from one another."""
    return [row[:n] for row in np.empty((9, n + APART))]


class ShrinkingSteps:
    """Steps of :mod:`gramplane.kernels.svm.smo_steps` on one problem with its matrix in memory.

    Parameters
    ----------
    problem : DualProblem
    matrix : ndarray of shape (n, n)
    buffer : ndarray
        Room for the rows of the active variables; when smaller than their square, no copy is made.
    diag : ndarray of shape (n,)
        Diagonal of K + diag(ridge).
    floor : float
        Least curvature of a step.
    places : ndarray of shape (n,), optional
        Row of the matrix of every variable, where some share theirs; `buffer` must hold n^2 entries then.

    Attributes
    ----------
    worst : float
        Most negative curvature met, relative to its pair's diagonal.
    """

    def __init__(
        self,
        problem: DualProblem,
        matrix: NDArray[Any],
        buffer: NDArray[Any],
        diag: FloatArray,
        floor: float,
        places: IndexArray | None = None,
    ) -> None:
        self._matrix, self._buffer, self._floor, self._places = matrix, buffer, floor, places
        self._paired = problem.total is not None
        self._steps = pair_steps if self._paired else single_steps
        self._state = _spaced(problem.n)
        for row, given in zip(self._state, (diag, problem.ridges(), problem.lo, problem.hi, problem.kink)):
            row[:] = given
        self._everything, self._there = np.arange(problem.n), np.ones(problem.n, dtype=np.bool_)
        self._worst = np.zeros(1)

    @property
    def worst(self) -> float:
        """Most negative relative curvature met so far."""
        return float(self._worst[0])

    def run(self, beta: FloatArray, g: FloatArray, tol: float, cap: int) -> tuple[int, int, Ends]:
        """Move beta and g = (K + diag(ridge)) beta - c in place; return steps, why they ended, and the ends over all variables."""
        _, _, lo, hi, kink, own, slope, u, low = self._state
        own[:], slope[:] = beta, g
        set_offsets(self._everything, own, lo, hi, kink, u, low)
        found = self._run(tol, cap)
        beta[:], g[:] = own, slope
        return found

    def _run(self, tol: float, cap: int) -> tuple[int, int, Ends]:
        g, u, low = self._state[6:]
        n, steps, idle = len(g), 0, 0
        while True:
            _, m, top = extremes(g, u, low)
            ends = ends_of(m, top, self._paired)
            if ends.violation < tol or not ends.violation < OVERFLOW:
                return steps, SOLVED if ends.violation < tol else BROKEN, ends
            if steps >= cap or idle == IDLE:
                return steps, CAPPED if steps >= cap else STUCK, ends
            up, down = (top, m) if self._paired else (ends.violation, -ends.violation)
            active = _active(g, u, low, up, down)
            if len(active) > WORTH * n or len(active) ** 2 > len(self._buffer):
                done = self._whole(tol, min(max(n // 2, LEAST), cap - steps))
            else:
                inner = max(0.9 * tol, 0.1 * ends.violation)
                done = self._part(active, inner, min(max(PATIENCE * len(active), LEAST), cap - steps))
            steps, idle = steps + done, 0 if done else idle + 1

    def _whole(self, tol: float, cap: int) -> int:
        if self._places is not None:
            return self._part(self._everything, tol, cap)
        return self._call(self._everything, self._there, self._matrix, self._state, tol, cap)

    def _part(self, active: IndexArray, tol: float, cap: int) -> int:
        a, n = len(active), len(self._everything)
        part = _spaced(a)
        for row, whole in zip(part, self._state):
            np.take(whole, active, out=row)
        index = active if self._places is None else self._places[active]
        done = self._call(index, np.zeros(a, dtype=np.bool_), self._buffer[: a * a].reshape(a, a), part, tol, cap)
        _, ridge, lo, hi, kink, beta, g, u, low = self._state
        change = np.zeros(n)
        change[active] = part[5] - beta[active]
        beta[active] = part[5]
        moved = np.flatnonzero(change)
        self._add(g, moved, change)
        g[moved] += change[moved] * ridge[moved]
        set_offsets(moved, beta, lo, hi, kink, u, low)
        return done

    def _add(self, g: FloatArray, moved: IndexArray, change: FloatArray) -> None:
        if self._places is None:
            add_rows(g, self._matrix, moved, change)
            return
        order = len(self._matrix)
        total, weights = np.zeros(order), np.asarray(np.bincount(self._places[moved], change[moved], order), np.float64)
        add_rows(total, self._matrix, np.flatnonzero(weights), weights)
        g += total[self._places]

    def _call(self, index: IndexArray, have: NDArray[np.bool_], matrix: NDArray[Any], state: list[FloatArray], tol: float, cap: int) -> int:
        diag, ridge, lo, hi, kink, beta, g, u, low = state
        done, _ = self._steps(
            self._matrix, index, have, matrix, diag, ridge, lo, hi, kink, self._floor, beta, g, u, low, tol, cap, self._worst
        )
        return done

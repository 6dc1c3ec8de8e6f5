"""Columns without a penalty, eliminated exactly: a bias, which is a column of ones, and covariates.

For decision values z the best coefficients g minimise the convex function P(z + X g), so that X'u = 0 there. One column has a root to be
found inside a bracket; more take Newton steps with S = X'DX, where the losses are straight those of a majorant, with a search along the
step. For losses made of parabolas the search ends after finitely many steps, of the squared loss after one.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from ..arrays import FloatArray
from .bias import BALANCE_TOL, solve_bias
from .line_search import Trial, descend, is_acceptable

MAX_STEPS = 200
MAX_IDLE_STEPS = 3  # Steps in a row that do not halve the imbalance after which it is called round-off.
STEADY_SHARE = 0.1  # While a step with the last S leaves at most this share of the imbalance, S is not computed anew.
FLAT = 1e-12  # Eigenvalues of S below this share of the largest one count as zero.
LEAST_FALL = 1e-12  # Relative decrease of P that counts.
MAX_DOUBLINGS = 60


class FreeSums(NamedTuple):
    """P at some coefficients, X'u, minus its gradient in them, and a norm of the terms of these sums, ``(q,)``."""

    loss: float
    pulls: FloatArray
    masses: FloatArray


class FreeRows(Protocol):
    """Rows at decision values z, with ``q`` columns X without a penalty."""

    @property
    def q(self) -> int:
        """Number of columns."""
        ...

    def balance(self, g: float) -> tuple[float, float, float]:
        """Of a single column x: return x'u at z + g x, minus its derivative in g, and sum_i |x_i u_i|."""
        ...

    def free_sums(self, g: FloatArray) -> FreeSums:
        """Return the sums at z + X g."""
        ...

    def free_bends(self, g: FloatArray) -> FloatArray:
        """Return X'DX at z + X g, ``(q, q)``."""
        ...

    def free_majorant(self) -> FloatArray:
        """Return X'KX, K the largest second derivatives there can be, ``(q, q)``."""
        ...


def eliminate(rows: FreeRows, start: FloatArray, first_step: float) -> FloatArray:
    """Return the coefficients g of least P, from a start; the first step of a single one is at most ``first_step`` long."""
    if rows.q == 0:
        return start
    if rows.q == 1:
        # The balance rises with b = -g.
        return np.array([-solve_bias(lambda b: rows.balance(-b), -float(start[0]), first_step)])
    return _Search(rows, start).run()


def free_roots(bends: FloatArray) -> FloatArray:
    """Return K, ``(q, r)``, with K K' the pseudo-inverse of S = X'DX."""
    if not bends.size:
        return bends
    values, vectors = np.linalg.eigh(bends) if len(bends) > 1 else (bends.reshape(-1), np.ones(bends.shape))
    steep = values > FLAT * values.max(initial=0.0)
    return vectors[:, steep] / np.sqrt(values[steep])


class _Search:
    """Newton steps of several coefficients."""

    def __init__(self, rows: FreeRows, start: FloatArray) -> None:
        self._rows, self._g, self._at = rows, np.array(start, np.float64), rows.free_sums(start)
        self._inverse: FloatArray | None = None
        self._falls = True

    def run(self) -> FloatArray:
        best, least, idle_steps = self._g, math.inf, 0
        for _ in range(MAX_STEPS):
            if np.all(np.abs(self._at.pulls) <= BALANCE_TOL * self._at.masses):
                return self._g
            imbalance = _largest(self._at.pulls)
            idle_steps = 0 if imbalance <= 0.5 * least else idle_steps + 1
            if imbalance < least:
                best, least = self._g, imbalance
            if idle_steps > MAX_IDLE_STEPS and not self._falls:
                break
            self._step()
        return best

    def _step(self) -> None:
        """Take a step with the last S, or with a new one where that is not good enough."""
        before, is_fresh = self._at, self._inverse is None
        inverse = self._invert() if self._inverse is None else self._inverse
        line = _FreeLine(self._rows, self._g, inverse @ before.pulls)
        origin = Trial(0.0, before.loss, -float(before.pulls @ line.step), math.inf)
        full = line.at([1.0])[0]
        if is_acceptable(full, origin):
            trial = _extended(line, full, origin)
        else:
            trial = descend(line, origin) if is_fresh else origin
        if trial.step > 0.0:
            self._g, self._at = self._g + trial.step * line.step, line.sums[trial.step]
        is_steady = trial.step == 1.0 and _largest(self._at.pulls) <= STEADY_SHARE * _largest(before.pulls)
        self._inverse = inverse if is_steady else None
        self._falls = not is_fresh or self._at.loss < before.loss * (1.0 - LEAST_FALL)

    def _invert(self) -> FloatArray:
        """Return the inverse of S; of the majorant in the directions in which S is flat. Where it is steep in others, for those alone, or
        for the flat ones alone, whichever pull more: a step along both would be as short as the steep ones ask for, again and again.
        """
        values, vectors = np.linalg.eigh(self._rows.free_bends(self._g))
        majorant = self._rows.free_majorant()
        # Where all rows lie far out nothing bends: what is next to nothing beside the majorant is no model of P either.
        is_steep = values > FLAT * max(float(values[-1]), FLAT * float(np.trace(majorant)))
        steep, flat = vectors[:, is_steep], vectors[:, ~is_steep]
        pulls = self._at.pulls
        if np.linalg.norm(flat.T @ pulls) <= np.linalg.norm(steep.T @ pulls):
            return (steep / values[is_steep]) @ steep.T
        return np.asarray(flat @ np.linalg.pinv(flat.T @ majorant @ flat, hermitian=True) @ flat.T, np.float64)


def _largest(pulls: FloatArray) -> float:
    return float(np.max(np.abs(pulls)))


class _FreeLine:
    """P along a step of the coefficients; ``sums`` keeps what was found at each step."""

    def __init__(self, rows: FreeRows, g: FloatArray, step: FloatArray) -> None:
        self._rows, self._g, self.step = rows, g, step
        self.sums: dict[float, FreeSums] = {}

    def at(self, steps: list[float]) -> list[Trial]:
        """Return value and slope at every step; the curvature is not asked for."""
        trials = []
        for step in steps:
            found = self.sums[step] = self._rows.free_sums(self._g + step * self.step)
            trials.append(Trial(step, found.loss, -float(found.pulls @ self.step), math.inf))
        return trials


def _extended(line: _FreeLine, trial: Trial, origin: Trial) -> Trial:
    """Return an acceptable step, doubled while P still falls half as steeply as it did at first: on a straight piece."""
    for _ in range(MAX_DOUBLINGS):
        if trial.slope > 0.5 * origin.slope:
            break
        further = line.at([2.0 * trial.step])[0]
        if not further.value < trial.value:
            break
        trial = further
    return trial

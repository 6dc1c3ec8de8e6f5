"""Ends and density of the spectrum of a large symmetric matrix, from products alone, before any eigenvalue is computed.

Source: Di Napoli, Polizzi and Saad, "Efficient estimation of eigenvalue counts in an interval", Numer. Linear Algebra Appl. 23 (2016).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..jit import compiled, one_thread
from .operator import PANEL_WIDTH, Panels, SymmetricOperator

Block = NDArray[Any]

MAX_MOMENT = 120
LANCZOS_STEPS = 40


@dataclass(frozen=True)
class Spectrum:
    """Ends of a spectrum, and an estimate of how many eigenvalues lie above a value. ``lo``, ``top``: no eigenvalue lies outside;
    ``moments``: ``trace T_k(A~)``, ``(MOMENTS + 1,)``, estimated, with A~ the matrix mapped to [-1, 1].
    """

    lo: float
    top: float
    moments: FloatArray

    def count(self, level: float) -> float:
        """Return an estimate of the number of eigenvalues above a value. ``sum_k g_k c_k m_k`` with ``c_0 = arccos(t)/pi``, ``c_k = 2 sin(k
        arccos t) / (k pi)`` and Jackson factors g.
        """
        centre, half = 0.5 * (self.top + self.lo), 0.5 * (self.top - self.lo)
        angle = math.acos(min(1.0, max(-1.0, (level - centre) / half)))
        length = len(self.moments)
        k, w = np.arange(1, length), np.pi / (length + 1)
        jackson = ((length - k + 1) * np.cos(k * w) + np.sin(k * w) / np.tan(w)) / (length + 1)
        return float(angle / np.pi * self.moments[0] + (jackson * (2 * np.sin(k * angle) / (k * np.pi))) @ self.moments[1:])

    def level(self, count: float) -> float:
        """Return a value above which an estimated ``count`` of eigenvalues lies, by bisection."""
        lo, hi = self.lo, self.top
        for _ in range(50):
            middle = 0.5 * (lo + hi)
            lo, hi = (middle, hi) if self.count(middle) > count else (lo, middle)
        return 0.5 * (lo + hi)

    def positive_density(self) -> tuple[FloatArray, FloatArray]:
        """Return values from 0 to the top, and about how many eigenvalues lie around each; both ``(200,)``."""
        edges = np.linspace(0.0, max(self.top, 0.0), 201)
        counts = np.array([self.count(float(edge)) for edge in edges])
        return 0.5 * (edges[1:] + edges[:-1]), np.maximum(0.0, counts[:-1] - counts[1:])


def estimate_spectrum(operator: SymmetricOperator, seed: int) -> Spectrum:
    """Return the ends and the density of the spectrum of an operator, from 40 Lanczos steps and 60 products with 64 sign vectors."""
    with one_thread():
        lo, top = _bound_spectrum(operator, seed)
        return Spectrum(lo, top, _estimate_moments(operator, lo, top, seed))


def _bound_spectrum(operator: SymmetricOperator, seed: int) -> tuple[float, float]:
    """Return bounds of the spectrum: the extreme Ritz values of a Lanczos run, moved out by twice their residuals."""
    n = operator.n
    basis = np.zeros((LANCZOS_STEPS + 1, n))
    basis[0] = np.random.default_rng((seed, 1)).standard_normal(n)
    basis[0] /= np.linalg.norm(basis[0])
    diagonal, off = [], []
    for k in range(min(LANCZOS_STEPS, n)):
        vector = operator.product(basis[k])
        diagonal.append(float(vector @ basis[k]))
        for _ in range(2):
            vector = vector - basis[: k + 1].T @ (basis[: k + 1] @ vector)
        off.append(float(np.linalg.norm(vector)))
        if off[-1] <= 1e-12 * max(abs(diagonal[0]), max(off)):
            break
        basis[k + 1] = vector / off[-1]
    values, vectors = scipy.linalg.eigh_tridiagonal(diagonal, off[:-1])
    # An end that is missed by little does no harm: what lies beyond it grows a little, too.
    spare = 2 * off[-1] * np.abs(vectors[-1]) + 1e-3 * float(values[-1] - values[0])
    return float(values[0] - spare[0]), float(values[-1] + spare[-1])


@compiled
def _inner_product(x: Block, y: Block) -> float:
    total = 0.0
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            total += np.float64(x[i, k]) * np.float64(y[i, k])
    return total


def _estimate_moments(operator: SymmetricOperator, lo: float, top: float, seed: int) -> FloatArray:
    """Return ``trace T_k(A~)`` for k up to ``MAX_MOMENT``; one product gives two of them, ``T_j T_k = (T_{j+k} + T_{|j-k|}) / 2``."""
    panels, n = Panels.of(operator, np.float32), operator.n
    centre, half = 0.5 * (top + lo), 0.5 * (top - lo)
    old = (2 * np.random.default_rng((seed, 2)).integers(0, 2, size=(n, PANEL_WIDTH)) - 1).astype(np.float32)
    new = np.zeros_like(old)
    panels.step(old, new, 1 / half, centre, 0.0)
    out = np.empty(MAX_MOMENT + 1)
    out[0], out[1] = _inner_product(old, old), _inner_product(old, new)
    for k in range(1, MAX_MOMENT // 2 + 1):
        out[2 * k] = 2 * _inner_product(new, new) - out[0]
        panels.step(new, old, 2 / half, centre, -1.0)
        old, new = new, old
        if 2 * k + 1 <= MAX_MOMENT:
            out[2 * k + 1] = 2 * _inner_product(old, new) - out[1]
    return out / PANEL_WIDTH

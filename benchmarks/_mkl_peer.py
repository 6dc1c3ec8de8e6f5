"""The strong loop around scikit-learn's SVC that multiple kernel learning is compared with.

One vector-matrix product sums the kernels, ``SVC(kernel="precomputed")`` at its default tolerance solves the machine, one matrix-vector
product per kernel gives the quadratic forms, and our own lower-bound program and projection choose the next weights (level method).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.svm import SVC

from gramplane.kernels.weights.domains import ElasticNetSet
from gramplane.kernels.weights.level_programs import Cuts, lower_bound, project_on_level

MAX_ITER = 200


@dataclass(frozen=True)
class Machine:
    """Best weights and machine of a loop: rows with a coefficient, their signed coefficients, the bias; bounds of the optimum, and how many
    weight vectors were tried.
    """

    theta: np.ndarray
    support: np.ndarray
    beta: np.ndarray
    bias: float
    upper: float
    lower: float
    iterations: int

    def decide(self, blocks: np.ndarray, used: np.ndarray) -> np.ndarray:
        """Return decision values from blocks ``(n_used, n_test, n_support)`` of the kernels ``used``."""
        return np.tensordot(self.theta[used].astype(blocks.dtype), blocks, 1) @ self.beta + self.bias


def one_machine(K: np.ndarray, y: np.ndarray, C: float) -> tuple[Any, np.ndarray]:
    """Return the fitted SVC and its ``(n,)`` signed coefficients in the type of K."""
    machine = SVC(kernel="precomputed", C=C, cache_size=2000).fit(K, y)
    beta = np.zeros(len(y), K.dtype)
    beta[machine.support_] = machine.dual_coef_[0]
    return machine, beta


def strong_loop(grams: np.ndarray, y: np.ndarray, C: float, v: float, tol: float, tau: float = 0.3, uniform: bool = False) -> Machine:
    """Run the loop on ``(k, n, n)`` matrices and labels -1, +1 to a relative gap of ``tol``; ``uniform`` solves one machine only."""
    k, n, _ = grams.shape
    domain, flat = ElasticNetSet(v), grams.reshape(k, -1)
    theta, upper, lower, best = domain.start(k), np.inf, -np.inf, None
    values, forms, mix, multipliers = [], [], None, None
    for _ in range(MAX_ITER):
        K = (theta.astype(grams.dtype) @ flat).reshape(n, n)
        machine, beta = one_machine(K, y, C)
        f = K @ beta
        primal = float(0.5 * beta @ f + C * np.maximum(0.0, 1.0 - y * (f + machine.intercept_[0])).sum())
        if primal < upper:
            upper, best = primal, (theta, machine)
        if uniform:
            break
        values.append(float(np.abs(beta).sum()))
        forms.append(np.array([float(beta @ (gram @ beta)) for gram in grams]))
        cuts = Cuts(np.array(values), np.array(forms))
        bound = lower_bound(cuts, domain, mix, tol=0.01 * tol)
        lower, mix = max(lower, bound.value), bound.p
        if upper - lower <= tol * max(1.0, upper):
            break
        level = max(lower + tau * (upper - lower), cuts.height(bound.theta) * (1 + 1e-9))
        point = project_on_level(theta, cuts, level, domain, multipliers, inside=bound.theta)
        theta, multipliers = point.theta, point.rho
    assert best is not None
    chosen, machine = best
    return Machine(chosen, machine.support_, machine.dual_coef_[0], float(machine.intercept_[0]), upper, lower, len(values))

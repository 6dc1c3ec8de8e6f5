"""Gradient steps with a certificate: the objective is strongly convex, so its gradient bounds the gap."""

from dataclasses import dataclass

import numpy as np

from gramplane.pipeline.core.result import Step


@dataclass(frozen=True)
class RidgeState:
    """Coefficients so far, and how far they are from the optimum at most."""

    record_name = "RidgeState"
    iteration: int
    coef: np.ndarray
    objective: float
    gap: float
    stop: str | None = None


class RidgeLoop:
    """Minimise ``1/2 ||X w - y||^2 + lam/2 ||w||^2``: ``gap <= ||gradient||^2 / (2 lam)``."""

    state_type = RidgeState

    def __init__(self, config, X, y):
        self.config, self.X, self.y = config, X, y
        self.length = 1.0 / (np.linalg.norm(X, 2) ** 2 + config.lam)

    def init(self, ctx):
        return self._state(0, np.zeros(self.X.shape[1]))

    def step(self, state, ctx):
        new = self._state(state.iteration + 1, state.coef - self.length * self._gradient(state.coef))
        return Step(new, {"objective": new.objective, "gap": new.gap})

    def _gradient(self, w):
        return self.X.T @ (self.X @ w - self.y) + self.config.lam * w

    def _state(self, iteration, w):
        objective = 0.5 * float(np.sum((self.X @ w - self.y) ** 2) + self.config.lam * (w @ w))
        gap = float(np.sum(self._gradient(w) ** 2)) / (2 * self.config.lam)
        stop = "tol" if gap <= self.config.tol else "max_iter" if iteration == self.config.max_iter else None
        return RidgeState(iteration, w, objective, gap, stop)

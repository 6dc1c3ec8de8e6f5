"""What ridge regression starts from, and what a fit has reached."""

from dataclasses import dataclass

import numpy as np

from gramplane.pipeline.core.memory import driver_plan, refuse
from gramplane.pipeline.grams.sources import all_rows


@dataclass(frozen=True)
class RidgeState:
    """Coefficients so far, and how far they are from the optimum at most."""

    record_name = "RidgeState"
    iteration: int
    coef: np.ndarray
    objective: float
    gap: float
    stop: str | None = None


class RidgeProblem:
    """Minimise ``1/2 sum_i c_i (x_i w - y_i)^2 + lam/2 ||w||^2`` with row weights c. Strongly convex: the gradient bounds the gap."""

    distributed = ()

    def __init__(self, config, inputs, resources):
        self.config, self.inputs = config, inputs
        self.items = (("rows", 16 * inputs.data.n_rows * inputs.data.n_cols),)
        refuse("ridge", self.items, resources.driver_memory, "fewer rows")
        X = all_rows(inputs.data)
        self.X, self.y = X.toarray() if hasattr(X, "toarray") else X, np.asarray(inputs.target, np.float64)
        self.weight = np.ones(len(self.y)) if inputs.sample_weight is None else inputs.sample_weight
        self.length = 1.0 / (np.linalg.norm(self.X * np.sqrt(self.weight)[:, None], 2) ** 2 + config.lam)

    @property
    def plan(self):
        return {**driver_plan(self.items), "iterations_at_most": self.config.max_iter, "task_bytes": 0}

    def gradient(self, w):
        return self.X.T @ (self.weight * (self.X @ w - self.y)) + self.config.lam * w

    def state(self, iteration, w):
        objective = 0.5 * float(self.weight @ (self.X @ w - self.y) ** 2 + self.config.lam * (w @ w))
        gap = float(np.sum(self.gradient(w) ** 2)) / (2 * self.config.lam)
        stop = "tol" if gap <= self.config.tol else "max_iter" if iteration == self.config.max_iter else None
        return RidgeState(iteration, w, objective, gap, stop)

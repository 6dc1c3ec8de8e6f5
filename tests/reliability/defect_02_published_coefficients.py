"""A selector publishes what it learned: with a constant column, in memory and through the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from gramplane.pipeline import MultiTaskSelector, load_model, run_method
from gramplane.storage.ingest import ingest
from tests.reliability.walks import walk

LAM = 0.01


def reported() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the report's rows, targets and tasks: a target about 5, and a column of ones."""
    g, n = np.random.default_rng(0), 400
    X = np.c_[np.ones(n), g.choice([-1.0, 1.0], (n, 3))]
    return X, 5 + X[:, 1] + 0.1 * g.standard_normal(n), np.arange(n) % 2


def figures(model: Any, X: np.ndarray, y: np.ndarray, task: np.ndarray) -> tuple[float, float]:
    """Return objective and root mean squared error, from coefficients and intercepts alone."""
    rest = y - (X * np.asarray(model.coef_)[task]).sum(axis=1) - model.intercept_[task]
    losses = sum(0.5 * np.square(rest[task == q]).mean() for q in (0, 1))
    return float(losses + LAM * np.linalg.norm(model.coef_, axis=0).sum()), float(np.sqrt(np.mean(np.square(rest))))


@walk(2, "a selector's objective is that of the coefficients it publishes, constant columns among them")
def published(folder: Path) -> None:
    X, y, task = reported()
    ingest((X, y), folder / "s", task="regression", task_column=task)
    for algorithm in ("fista", "da"):
        for bias in (False, True):
            params = {
                "penalty": "amtfs",
                "lam": LAM,
                "algorithm": algorithm,
                "fit_intercept": bias,
                "gamma": 4.0,
                "epochs": 20,
                "scale": None,
            }
            run = folder / f"{algorithm}-{bias}"
            run_method("multitask-selector", params, data=str(folder / "s"), run=str(run), seed=0)
            for model in (MultiTaskSelector(**params).fit(X, y, task), load_model(run)):
                objective, error = figures(model, X, y, task)
                assert abs(model.objective_ - objective) <= 1e-9 * objective, (algorithm, bias, model.objective_, objective)
                assert error < 0.3, (algorithm, bias, error)
                assert bool(model.coef_[:, 0].any()) != bias

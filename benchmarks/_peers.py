"""The peers inside scikit-learn, and the steps every comparison repeats: search for a feature count, refit, accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import StratifiedShuffleSplit, cross_val_score
from sklearn.svm import LinearSVC, l1_min_c

REFIT_COSTS = (0.1, 1.0, 10.0)
"""Costs a refit chooses from, the same for every method."""
REFIT_PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""Penalties a refit of real targets chooses from."""


def l1_svm(C: float, fit_intercept: bool = False) -> LinearSVC:
    """Return LIBLINEAR's l1-penalised squared-hinge machine."""
    return LinearSVC(penalty="l1", dual=False, C=C, fit_intercept=fit_intercept, random_state=0)


def l1_lr(C: float, fit_intercept: bool = False) -> LogisticRegression:
    """Return LIBLINEAR's l1-penalised logistic regression."""
    return LogisticRegression(l1_ratio=1.0, solver="liblinear", C=C, fit_intercept=fit_intercept, random_state=0)


def support(model: Any) -> np.ndarray:
    return np.flatnonzero(np.asarray(model.coef_).ravel())


@dataclass(frozen=True)
class Found:
    """What a search for a feature count found, and how many fits it took."""

    cost: float
    model: Any
    fits: int


def search_cost(
    make: Callable[[float], Any], X: Any, y: np.ndarray, wanted: int, *, low: float | None = None, slack: float = 0.05, most: int = 16
) -> Found:
    """Find the C whose model has ``wanted`` features within ``slack``: from the smallest C with any, four times more until there are
    enough, then bisection of log C. Strong penalties are cheap, so this costs little more than bisecting a bracket known beforehand.
    """
    loss = "log" if isinstance(make(1.0), LogisticRegression) else "squared_hinge"
    low = l1_min_c(X, y, loss=loss, fit_intercept=False) if low is None else low
    high, cost, found = np.inf, 4.0 * low, []
    for _ in range(most):
        model = make(cost).fit(X, y)
        count = len(support(model))
        found.append((abs(count - wanted), cost, model))
        if abs(count - wanted) <= slack * wanted:
            break
        low, high = (cost, high) if count < wanted else (low, cost)
        cost = 4.0 * low if high == np.inf else float(np.sqrt(low * high))
    _, cost, model = min(found, key=lambda item: item[0])
    return Found(cost, model, len(found))


def refit(X: Any, y: np.ndarray, features: np.ndarray, costs: Sequence[float] = REFIT_COSTS) -> LinearSVC:
    """Fit a ridge-penalised machine on chosen columns, with C from 5-fold cross-validation on the training rows."""
    Z = X[:, features]
    scores = [cross_val_score(ridge_svm(C), Z, y, cv=5).mean() for C in costs]
    return ridge_svm(costs[int(np.argmax(scores))]).fit(Z, y)


def ridge_svm(C: float, fit_intercept: bool = False) -> LinearSVC:
    """Return LIBLINEAR's l2-penalised squared-hinge machine."""
    return LinearSVC(C=C, dual="auto", fit_intercept=fit_intercept, random_state=0)


def best_on_a_fifth(make: Callable[[float], Any], costs: Sequence[float], X: Any, y: np.ndarray, seed: int) -> Any:
    """Return the model whose parameter was best on a fifth of the rows, fitted on all of them."""
    part, rest = next(StratifiedShuffleSplit(1, test_size=0.2, random_state=seed).split(y, y))
    scores = [make(C).fit(X[part], y[part]).score(X[rest], y[rest]) for C in costs]
    return make(costs[int(np.argmax(scores))]).fit(X, y)


def refit_accuracy(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray, features: np.ndarray) -> float:
    return float(refit(X, y, features).score(X_test[:, features], y_test))


def refit_r2(X: Any, y: np.ndarray, X_test: Any, y_test: np.ndarray, features: np.ndarray) -> float:
    """Return the test R2 of ridge regression on chosen columns, its penalty by leave-one-out; without any, of the mean."""
    if not len(features):
        return float(r2_score(y_test, np.full(len(y_test), y.mean())))
    return float(RidgeCV(alphas=REFIT_PENALTIES).fit(X[:, features], y).score(X_test[:, features], y_test))

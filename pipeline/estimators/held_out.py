"""Rows held out of fits, and scores of what the fits decide on them: what scikit-learn calls splitters and scorers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer, get_scorer_names
from sklearn.model_selection import check_cv
from sklearn.utils.metaestimators import available_if

from ...storage.value_types import UserData
from ..inputs.folds import fold_masks, task_folds
from ..inputs.labels import Inputs
from ..inputs.tasks import TaskInputs
from ..models.calibration import Calibration, class_probabilities
from ..records.names import nearest
from .inputs import Classifying, Predicting
from .supervised import predicted_labels

FOLDS = 5


@dataclass(frozen=True)
class Split:
    """Rows of one fold, as masks ``(n,)``."""

    left_out: np.ndarray  # not learnt from
    test: np.ndarray  # scored; usually the same


def row_splits(cv: UserData, rows: Inputs, seed: int) -> list[Split]:
    """Return the folds that ``cv`` says: those that tuning draws from the seed for a number (``None``: 5, or as many as there are rows of a
    class or task), else those of a splitter or an iterable, to which tasks are groups.

    Raises ValueError: no way to split, or a split without rows to learn from, of every task, or to score; DataError: too few rows of a
    class or task.
    """
    if cv is None or (isinstance(cv, int | np.integer) and not isinstance(cv, bool)):
        return [Split(mask, mask) for mask in _drawn(None if cv is None else int(cv), rows, seed)]
    target = rows.target if rows.classes is None else np.asarray(rows.classes)[rows.target]
    try:
        splitter: UserData = check_cv(cv, target, classifier=rows.classes is not None)
        pairs = list(splitter.split(np.zeros((len(target), 1)), target, getattr(rows, "codes", None)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"cv={cv!r}: {error}") from error
    splits = [_split(k, train, test, len(target)) for k, (train, test) in enumerate(pairs)]
    if isinstance(rows, TaskInputs):
        for k, split in enumerate(splits):
            learnt = np.bincount(rows.codes[~split.left_out], minlength=rows.n_tasks)
            if not learnt.all():
                name = rows.names[int(learnt.argmin())]
                raise ValueError(f"cv: split {k} leaves no row of task {name!r} to learn from; every task needs some")
    return splits


def _drawn(cv: int | None, rows: Inputs, seed: int) -> list[np.ndarray]:
    """Return the masks of folds over the rows with a weight: every class, or of many tasks every task, is in all of them."""
    n = len(rows.target)
    used = np.arange(n) if rows.sample_weight is None else np.flatnonzero(rows.sample_weight > 0)
    target, kinds = rows.target[used], None
    if isinstance(rows, TaskInputs):
        kinds = rows.codes[used]
    elif rows.classes is not None:
        kinds = target
    least = len(used) if kinds is None else int(np.bincount(kinds).min())
    folds = min(FOLDS, max(least, 2)) if cv is None else int(cv)
    if folds < 2:
        raise ValueError(f"cv={cv!r}: a number of folds must be at least 2")
    if len(used) < folds:
        raise ValueError(f"cv={cv!r}: n_samples={len(used)} with a weight are too few for {folds} folds")
    if isinstance(rows, TaskInputs):
        parts = task_folds(TaskInputs(rows.data, target, rows.classes, codes=rows.codes[used], names=rows.names), folds, seed)
    else:
        parts = fold_masks(target, rows.classes, folds, seed)
    return [np.isin(np.arange(n), used[part]) for part in parts]


def _split(k: int, train: ArrayLike, test: ArrayLike, n: int) -> Split:
    learnt, scored = np.zeros(n, bool), np.zeros(n, bool)
    learnt[np.asarray(train, None if np.size(train) else np.int64)], scored[np.asarray(test, None if np.size(test) else np.int64)] = (
        True,
        True,
    )
    if not learnt.any() or not scored.any():
        raise ValueError(f"cv: split {k} has {learnt.sum()} rows to learn from and {scored.sum()} to score; it needs some of both")
    rows = np.asarray(train)
    if rows.dtype != bool and len(rows) != learnt.sum():
        raise ValueError(f"cv: split {k} repeats rows to learn from; give them weights (sample_weight)")
    return Split(~learnt, scored)


class HeldOutClassifier(Classifying, BaseEstimator):
    """A classifier as scorers see it that has decided already: its rows are numbers ``(n, 1)`` of decision values."""

    def __init__(self, values: UserData = None, classes: UserData = None, calibration: Calibration | None = None) -> None:
        self.values, self.classes, self.calibration = values, classes, calibration

    @property
    def classes_(self) -> np.ndarray:
        """Labels in order."""
        return self.classes

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return ``f(x)``: ``(n,)`` for two classes, else ``(n, n_classes)``."""
        values = self.values[np.asarray(X)[:, 0]]
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the predicted labels, ``(n,)``."""
        return predicted_labels(self.decision_function(X), self.classes)

    @available_if(lambda self: self.calibration is not None)
    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probabilities of the classes, ``(n, n_classes)``."""
        assert self.calibration is not None
        return class_probabilities(self.calibration, self.values[np.asarray(X)[:, 0]])


class HeldOutRegressor(Predicting, BaseEstimator):
    """A regressor as scorers see it that has decided already: its rows are numbers ``(n, 1)`` of decision values."""

    def __init__(self, values: UserData = None) -> None:
        self.values = values

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the predicted values, ``(n,)``."""
        return self.values[np.asarray(X)[:, 0], 0]


@dataclass(frozen=True)
class FoldScores:
    """Scores decision values of rows: by the name of a scorer of scikit-learn, by a callable, or by the share of right labels (R2)."""

    scoring: str | Callable[..., float] | None
    rows: Inputs
    calibration: Calibration | None  # how decision values are probabilities, where that is exact

    def scorer(self) -> Callable[..., float]:
        """Return what scores a fit. Raises ValueError: no such scorer."""
        if self.scoring is None:
            return get_scorer("r2" if self.rows.classes is None else "accuracy")
        if callable(self.scoring):
            return self.scoring
        if not isinstance(self.scoring, str):
            raise ValueError(f"scoring={self.scoring!r}: must be the name of a scorer, or a callable (estimator, X, y)")
        if self.scoring not in get_scorer_names():
            raise ValueError(f"scoring={self.scoring!r} is no scorer of scikit-learn{nearest(self.scoring, get_scorer_names())}")
        return get_scorer(self.scoring)

    def of(self, values: np.ndarray, test: np.ndarray) -> float:
        """Return the score of decision values ``(n_machines, n)`` on the rows of a mask, which count by their weights.

        Raises ValueError: the scorer needs what the fit does not give.
        """
        rows, scorer, options = self.rows, self.scorer(), dict[str, Any]()
        used = np.flatnonzero(test if rows.sample_weight is None else test & (rows.sample_weight > 0))
        measure = getattr(scorer, "_score_func", None)
        if rows.sample_weight is not None and measure is not None and "sample_weight" in inspect.signature(measure).parameters:
            options["sample_weight"] = rows.sample_weight[used]
        decided, classes, target = values[:, used].T, rows.classes, rows.target[used]
        if classes is None:
            return float(scorer(HeldOutRegressor(decided), np.arange(len(used))[:, None], target, **options))
        labels = np.asarray(classes)
        fit = HeldOutClassifier(decided, labels, self.calibration)
        try:
            return float(scorer(fit, np.arange(len(used))[:, None], labels[target], **options))
        except AttributeError as error:
            if "predict_proba" not in str(error):
                raise
            exact = "which decision values of a logistic loss have at once; others are calibrated after the search"
            raise ValueError(
                f"scoring={self.scoring!r} needs probabilities, {exact}; take a scorer of labels or decision values"
            ) from error

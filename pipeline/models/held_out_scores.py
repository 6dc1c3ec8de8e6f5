"""Scores of what fits decide on rows held out, by the names that scikit-learn gives its scorers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, get_scorer_names

from ..inputs.scores import NAN, AccuracyTracker, R2Tracker, predicted_codes
from ..records.names import nearest
from .calibration import Calibration, brier_score, class_probabilities, fit_calibration, log_loss

OF_NUMBERS = frozenset(
    (
        "explained_variance",
        "r2",
        "neg_max_error",
        "neg_median_absolute_error",
        "neg_mean_absolute_error",
        "neg_mean_absolute_percentage_error",
        "neg_mean_squared_error",
        "neg_mean_squared_log_error",
        "neg_root_mean_squared_error",
        "neg_root_mean_squared_log_error",
        "neg_mean_poisson_deviance",
        "neg_mean_gamma_deviance",
        "d2_absolute_error_score",
    )
)
OF_CLUSTERS = frozenset(
    (
        "adjusted_mutual_info_score",
        "adjusted_rand_score",
        "completeness_score",
        "fowlkes_mallows_score",
        "homogeneity_score",
        "mutual_info_score",
        "normalized_mutual_info_score",
        "rand_score",
        "v_measure_score",
    )
)
"""Scorers that compare partitions; they do not ask which class is which."""

OF_PROBABILITIES = {"neg_log_loss": log_loss, "neg_brier_score": brier_score}
"""What is measured of probabilities without asking whether every class is among the rows."""

PARTS = 5  # of the rows held out of a fit: the sigmoid of each is fitted to the others


@dataclass(frozen=True)
class Scoring:
    """What fits are compared by."""

    names: tuple[str, ...]  # of scorers, the one that decides first

    def check(self, classes: Sequence[object] | None, target: np.ndarray) -> None:
        """Refuse scorers that do not suit a target: ``classes`` are its labels, without them it holds the numbers ``target``.

        Raises ValueError: the scorer, what it needs, and what to take instead.
        """
        known = [name for name in scorer_names() if (name in OF_NUMBERS) == (classes is None)]
        content = "real numbers" if classes is None else f"{len(classes)} classes"
        for name in self.names:
            if name not in known:
                suiting = [other for other in known if _suits(other, classes, target)]
                raise ValueError(f"scoring={name!r}: the target holds {content}, which it is not for; take one of {', '.join(suiting)}")
            try:
                _try_scorer(name, classes, target)
            except ValueError as error:
                others = [other for other in known if other.startswith(f"{name}_") and _suits(other, classes, target)]
                hint = f"; take {' or '.join(others)}" if others else ""
                raise ValueError(f"scoring={name!r} does not suit a target of {content}: {error}{hint}") from error


def scorer_names() -> list[str]:
    """Return the names of scores that classes or numbers are compared by."""
    return [name for name in get_scorer_names() if name not in OF_CLUSTERS]


def read_scoring(scoring: str | Sequence[str] | None, refit: str | None = None) -> Scoring | None:
    """Return what a user names as scores: one or several, of which ``refit`` decides, or the first; ``None`` for accuracy, or R2.

    Raises ValueError: an unknown name, with the nearest known one; a name that comes twice; a ``refit`` that is not among them.
    """
    if scoring is None:
        if refit is not None:
            raise ValueError(f"refit={refit!r} names the one of several scores that decides; scoring names none")
        return None
    names = [scoring] if isinstance(scoring, str) else list(scoring)
    known = scorer_names()
    for name in names:
        if name not in known:
            raise ValueError(f"scoring={name!r} does not exist{nearest(str(name), known)}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"scoring={names!r}: must be names of scores, each once")
    if refit is not None and refit not in names:
        raise ValueError(f"refit={refit!r}: must be one of the scores, {', '.join(names)}")
    return Scoring(tuple(sorted(names, key=lambda name: name != refit)))


class HeldOutClassifier(ClassifierMixin, BaseEstimator):
    """A classifier as scorers see it that has decided already: its rows are numbers ``(n, 1)`` of decision values ``(n, n_machines)``.

    Classes are their indices, so that of two the second is the positive one whatever the labels.
    """

    def __init__(self, values: np.ndarray, n_classes: int, probabilities: Callable[[], np.ndarray]) -> None:
        self.values, self.n_classes, self.probabilities = values, n_classes, probabilities

    @property
    def classes_(self) -> np.ndarray:
        """Indices of the classes."""
        return np.arange(self.n_classes)

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return ``f(x)``: ``(n,)`` for two classes, else ``(n, n_classes)``."""
        values = self.values[X[:, 0]]
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the index of the predicted class, ``(n,)``."""
        return predicted_codes(self.values[X[:, 0]].T)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return the probabilities of the classes, ``(n, n_classes)``."""
        return self.probabilities()[X[:, 0]]


class HeldOutRegressor(RegressorMixin, BaseEstimator):
    """A regressor as scorers see it that has decided already: its rows are numbers ``(n, 1)`` of decision values."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the predicted values, ``(n,)``."""
        return self.values[X[:, 0], 0]


@dataclass(frozen=True)
class HeldOutRows:
    """The rows held out of a fit, and how its decision values become probabilities.

    Those of a logistic loss are log odds. Others go through a sigmoid (or isotonic steps) that is fitted to the decision values of rows
    held out themselves, for each fifth of them to the other four: no row's probability has seen its class.
    """

    truth: np.ndarray  # `(n_samples,)` index of the class of every row, -1 without one; or real numbers
    n_classes: int | None  # None of a regression
    mask: np.ndarray  # `(n_samples,)` rows that are held out
    kind: str = "sigmoid"  # logistic, sigmoid or isotonic
    rows: np.ndarray = field(init=False)

    @classmethod
    def of(cls, tracker: AccuracyTracker | R2Tracker, kind: str) -> HeldOutRows:
        """Return those of a fit among the machines of a loop."""
        assert tracker.held_out is not None
        if isinstance(tracker, R2Tracker):
            return cls(tracker.target, None, tracker.held_out)
        return cls(tracker.codes, max(tracker.count, 2), tracker.held_out, kind)

    def __post_init__(self) -> None:
        used = self.mask if self.n_classes is None else self.mask & (self.truth >= 0)
        object.__setattr__(self, "rows", np.flatnonzero(used))

    def scores(self, scoring: Scoring, values: np.ndarray) -> dict[str, float]:
        """Return every score of decision values ``(n_machines, n_samples)``; NaN where the rows do not say."""
        decided, truth = values[:, self.rows].T, self.truth[self.rows]
        if not np.isfinite(decided).all():
            return dict.fromkeys(scoring.names, NAN)
        if self.n_classes is None:
            return {name: _score(name, HeldOutRegressor(decided), truth) for name in scoring.names}
        known: list[np.ndarray] = []

        def probabilities() -> np.ndarray:
            if not known:
                known.append(self._probabilities(decided, truth))
            return known[0]

        fit = HeldOutClassifier(decided, self.n_classes, probabilities)
        return {name: _score(name, fit, truth) for name in scoring.names}

    def _probabilities(self, decided: np.ndarray, truth: np.ndarray) -> np.ndarray:
        assert self.n_classes is not None
        if self.kind == "logistic":
            return class_probabilities(Calibration("logistic"), decided)
        part, result = np.empty(len(truth), np.int64), np.empty((len(truth), self.n_classes))
        for code in range(self.n_classes):
            part[truth == code] = np.arange(np.count_nonzero(truth == code)) % PARTS
        for k in np.unique(part):
            others = part != k
            fitted = fit_calibration(self.kind, PARTS, decided[others].T, truth[others], np.ones(np.count_nonzero(others)))
            result[~others] = class_probabilities(fitted, decided[~others])
        return result


def score_columns(scoring: Scoring, scores: Mapping[str, Sequence[float | None]], selected: float) -> dict[str, object]:
    """Return what a row of a table says of the scores over folds: of the one that decides under the names that every table has, of others
    with their own name before. Without a score in every fold a mean is ``None``.
    """
    first, *others = scoring.names
    mean, deviation, folds = _over_folds(scores[first])
    columns: dict[str, object] = {first: mean, "deviation": deviation, "selected": selected, "folds": folds}
    for name in others:
        mean, deviation, folds = _over_folds(scores[name])
        columns |= {name: mean, f"{name}_deviation": deviation, f"{name}_folds": folds}
    return {**columns, "measure": first}


def _over_folds(scores: Sequence[float | None]) -> tuple[float | None, float | None, list[float | None]]:
    values = np.array([NAN if value is None else value for value in scores], dtype=float)
    deviation = values.std(ddof=1) if len(values) > 1 else 0.0
    mean, spread, *folds = [float(value) if np.isfinite(value) else None for value in (values.mean(), deviation, *values)]
    return mean, spread, folds


def _score(name: str, fit: HeldOutClassifier | HeldOutRegressor, truth: np.ndarray) -> float:
    """Return the score of a fit that has decided; NaN where the rows have no such score: a class is missing, nothing was decided."""
    try:
        return _scored(name, fit, truth)
    except ValueError:
        return NAN


def _scored(name: str, fit: HeldOutClassifier | HeldOutRegressor, truth: np.ndarray) -> float:
    rows = np.arange(len(truth))[:, None]
    if name in OF_PROBABILITIES and isinstance(fit, HeldOutClassifier):
        return -OF_PROBABILITIES[name](fit.predict_proba(rows), truth)
    with warnings.catch_warnings():
        # A fold without a row of some class says so once per fold and grid point.
        warnings.simplefilter("ignore")
        return float(get_scorer(name)(fit, rows, truth))


def _try_scorer(name: str, classes: Sequence[object] | None, target: np.ndarray) -> None:
    """Score something of the same kind. Raises ValueError: it has no such score."""
    if classes is None:
        _scored(name, HeldOutRegressor(np.full((len(target), 1), target.mean())), target)
        return
    count = len(classes)
    truth = np.arange(2 * count) % count
    values = np.eye(count)[truth] if count > 2 else 2.0 * truth[:, None] - 1.0
    chances = np.full((len(truth), count), 1.0 / count)
    _scored(name, HeldOutClassifier(values, count, lambda: chances), truth)


def _suits(name: str, classes: Sequence[object] | None, target: np.ndarray) -> bool:
    try:
        _try_scorer(name, classes, target)
    except ValueError:
        return False
    return True

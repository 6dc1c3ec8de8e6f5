"""Scores of held-out decision values, by scikit-learn's scorer names or by callables."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, get_scorer_names

from ...storage.errors import UserData
from ..inputs.labels import Inputs
from ..inputs.scores import NAN, predicted_codes
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
"""Scorers that compare partitions, regardless of the names of classes."""

OF_PROBABILITIES = {"neg_log_loss": log_loss, "neg_brier_score": brier_score}
"""Scores of probabilities that do not require every class to be among the rows."""

Scorer = Callable[..., float]  # `(estimator, X, y)`, as scikit-learn calls it

PARTS = 5  # of the rows held out of a fit: the sigmoid of each is fitted to the others


@dataclass(frozen=True)
class Scoring:
    """The scorers of a search; the first one decides."""

    names: tuple[str, ...]  # of scorers, the one that decides first
    callables: Mapping[str, Scorer] = field(default_factory=dict)  # those of the names that are none of scikit-learn's

    def scorer(self, name: str) -> Scorer:
        return self.callables[name] if name in self.callables else get_scorer(name)

    def check(self, classes: Sequence[object] | None, target: np.ndarray) -> None:
        """Check that the scorers suit a target: labels ``classes``, or numbers ``target`` if there are no classes.

        Raises ValueError with the scorer, its requirement, and an alternative.
        """
        known = [name for name in scorer_names() if (name in OF_NUMBERS) == (classes is None)]
        content = "real numbers" if classes is None else f"{len(classes)} classes"
        for name in self.names:
            if name in self.callables:
                continue
            if name not in known:
                suiting = [other for other in known if _suits(other, classes, target)]
                raise ValueError(
                    f"scoring={name!r}: the target holds {content}, which this score does not suit; take one of {', '.join(suiting)}"
                )
            try:
                _try_scorer(name, classes, target)
            except ValueError as error:
                others = [other for other in known if other.startswith(f"{name}_") and _suits(other, classes, target)]
                hint = f"; take {' or '.join(others)}" if others else ""
                raise ValueError(f"scoring={name!r} does not suit a target of {content}: {error}{hint}") from error


def scorer_names() -> list[str]:
    """Return the scorer names for classification or regression."""
    return [name for name in get_scorer_names() if name not in OF_CLUSTERS]


def read_scoring(scoring: UserData, refit: str | None = None) -> Scoring | None:
    """Return the scorers that a user requests. The scorer ``refit``, or else the first one, decides. Return ``None`` if no scorer is
    requested; accuracy or R2 is then used.

    ``scoring``: a name, a callable, a list of names, or a dict from names to names or callables.

    Raises ValueError for an unknown name (with the closest known one), a repeated name, or a ``refit`` that is not among the names.
    """
    if scoring is None:
        if refit is not None:
            raise ValueError(f"refit={refit!r} chooses one of several scores, but scoring is not given; set scoring to their names")
        return None
    given = _given_scores(scoring)
    known, callables = scorer_names(), dict[str, Scorer]()
    for name, scorer in given:
        if callable(scorer):
            callables[name] = cast(Scorer, scorer)
        elif not isinstance(scorer, str):
            raise ValueError(f"scoring={scorer!r}: must be the name of a scorer, or a callable (estimator, X, y)")
        elif scorer not in known:
            raise ValueError(f"scoring={scorer!r} does not exist{nearest(scorer, known)}")
        elif scorer != name:
            callables[name] = get_scorer(scorer)
    names = [name for name, _ in given]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"scoring={names!r}: must be names of scores, each once")
    if refit is not None and refit not in names:
        raise ValueError(f"refit={refit!r}: must be one of the scores, {', '.join(names)}")
    return Scoring(tuple(sorted(names, key=lambda name: name != refit)), callables)


def _given_scores(scoring: UserData) -> list[tuple[str, UserData]]:
    if isinstance(scoring, Mapping):
        return [(str(name), scorer) for name, scorer in scoring.items()]
    if isinstance(scoring, Sequence) and not isinstance(scoring, str):
        return [(str(name), name) for name in scoring]
    return [(scoring if isinstance(scoring, str) else "score", scoring)]


def default_scoring(classes: Sequence[object] | None) -> Scoring:
    """Return the default scoring: accuracy for classes, R2 for numbers."""
    return Scoring(("r2" if classes is None else "accuracy",))


class HeldOutClassifier(ClassifierMixin, BaseEstimator):
    """A classifier for scorers, with precomputed decision values ``(n, n_machines)``. Its X ``(n, 1)`` holds row numbers.

    Classes are indices, so that the second of two classes is always the positive one. For callables, classes are ``labels``.
    """

    def __init__(
        self, values: np.ndarray, n_classes: int, probabilities: Callable[[], np.ndarray], labels: np.ndarray | None = None
    ) -> None:
        self.values, self.n_classes, self.probabilities, self.labels = values, n_classes, probabilities, labels

    @property
    def classes_(self) -> np.ndarray:
        return np.arange(self.n_classes) if self.labels is None else self.labels

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Return ``f(x)``: ``(n,)`` for two classes, otherwise ``(n, n_classes)``."""
        values = self.values[X[:, 0]]
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[predicted_codes(self.values[X[:, 0]].T)]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.probabilities()[X[:, 0]]


class HeldOutRegressor(RegressorMixin, BaseEstimator):
    """A regressor for scorers, with precomputed decision values. Its X ``(n, 1)`` holds row numbers."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.values[X[:, 0], 0]


@dataclass(frozen=True)
class HeldOutRows:
    """The held-out rows of a fit, and the kind of the fit's probabilities.

    Decision values of the logistic loss are log odds. Other decision values are calibrated by a sigmoid or isotonic regression on the
    held-out rows themselves, in five folds: the calibration of a row never uses its own class.
    """

    truth: np.ndarray  # `(n_samples,)` index of the class of every row, -1 without one; or real numbers
    n_classes: int | None  # None of a regression
    mask: np.ndarray  # `(n_samples,)` rows that are held out
    kind: str = "sigmoid"  # logistic, sigmoid or isotonic
    weight: np.ndarray | None = None  # `(n_samples,)` by which rows count in scores that take weights
    labels: np.ndarray | None = None  # of the classes, for callables
    rows: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        used = self.mask if self.n_classes is None else self.mask & (self.truth >= 0)
        object.__setattr__(self, "rows", np.flatnonzero(used))

    def scores(self, scoring: Scoring, values: np.ndarray) -> dict[str, float]:
        """Return every score of decision values ``(n_machines, n_samples)``; NaN for a score that is undefined on these rows."""
        decided, truth = values[:, self.rows].T, self.truth[self.rows]
        if not np.isfinite(decided).all():
            return dict.fromkeys(scoring.names, NAN)
        weight, known = None if self.weight is None else self.weight[self.rows], list[np.ndarray]()

        def probabilities() -> np.ndarray:
            if not known:
                known.append(self._probabilities(decided, truth))
            return known[0]

        def fit(labels: np.ndarray | None = None) -> HeldOutClassifier | HeldOutRegressor:
            return (
                HeldOutRegressor(decided) if self.n_classes is None else HeldOutClassifier(decided, self.n_classes, probabilities, labels)
            )

        scores = {name: _score(name, fit(), truth, weight) for name in scoring.names if name not in scoring.callables}
        target = truth if self.labels is None else self.labels[truth]
        scores |= {name: _called(scorer, fit(self.labels), target, weight) for name, scorer in scoring.callables.items()}
        return {name: scores[name] for name in scoring.names}

    def margin_loss(self, values: np.ndarray) -> float:
        """Return the mean of ``max(0, 1 - m)`` over rows, where m is the margin of a row's true class over the others.

        ``values``: decision values ``(n_machines, n_samples)``. NaN for regression, or if the mean is undefined on these rows. The loss
        breaks ties between fits of equal accuracy, which are frequent when there are few rows.
        """
        decided, truth = values[:, self.rows], self.truth[self.rows]
        if self.n_classes is None or not truth.size or not np.isfinite(decided).all():
            return NAN
        if len(decided) == 1:
            margins = np.where(truth > 0, decided[0], -decided[0])
        else:
            others, at = decided.copy(), np.arange(truth.size)
            others[truth, at] = -np.inf
            margins = decided[truth, at] - others.max(axis=0)
        weight = None if self.weight is None else self.weight[self.rows]
        return float(np.average(np.maximum(1.0 - margins, 0.0), weights=weight))

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


class FoldRows(NamedTuple):
    """The rows that folds are scored on."""

    truth: np.ndarray  # `(n,)` as `Method.truth`
    inputs: Inputs

    def of(self, test: np.ndarray, kind: str) -> HeldOutRows:
        """Return the held-out rows of a fold with non-zero weight. ``kind``: kind of the fit's probabilities."""
        weight, classes = self.inputs.sample_weight, self.inputs.classes
        mask = test if weight is None else test & (weight > 0)
        count, labels = (None, None) if classes is None else (max(len(classes), 2), np.asarray(classes))
        return HeldOutRows(self.truth, count, mask, kind, weight, labels)


def score_columns(scoring: Scoring, scores: Mapping[str, Sequence[float | None]], selected: float) -> dict[str, object]:
    """Return the columns of a table for the scores over folds.

    The deciding score has the same column names in all tables, except that the column of its mean is named after the score. All columns of
    another score begin with the name of that score. A mean is ``None`` if the score is undefined in a fold.
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


def _score(name: str, fit: HeldOutClassifier | HeldOutRegressor, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    """Return one score; NaN if it is undefined, for example because a class is missing among the rows."""
    try:
        return _scored(name, fit, truth, weight)
    except ValueError:
        return NAN


def _scored(name: str, fit: HeldOutClassifier | HeldOutRegressor, truth: np.ndarray, weight: np.ndarray | None = None) -> float:
    if name in OF_PROBABILITIES and isinstance(fit, HeldOutClassifier):
        return -OF_PROBABILITIES[name](fit.predict_proba(np.arange(len(truth))[:, None]), truth, weight)
    if name == "accuracy" and isinstance(fit, HeldOutClassifier):
        # As scikit-learn computes it, without its checks, which take longer than many a fit.
        return float(np.average(fit.predict(np.arange(len(truth))[:, None]) == truth, weights=weight))
    with warnings.catch_warnings():
        # A fold without a row of some class says so once per fold and grid point.
        warnings.simplefilter("ignore")
        return _called(get_scorer(name), fit, truth, weight)


def _called(scorer: Scorer, fit: HeldOutClassifier | HeldOutRegressor, truth: np.ndarray, weight: np.ndarray | None) -> float:
    """Call a scorer; the weights of rows are passed if the scorer accepts them."""
    measure = getattr(scorer, "_score_func", None)
    takes_weight = weight is not None and measure is not None and "sample_weight" in inspect.signature(measure).parameters
    options = {"sample_weight": weight} if takes_weight else {}
    return float(scorer(fit, np.arange(len(truth))[:, None], truth, **options))


def _try_scorer(name: str, classes: Sequence[object] | None, target: np.ndarray) -> None:
    """Test a scorer on artificial predictions. Raises ValueError if it does not suit this kind of target."""
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

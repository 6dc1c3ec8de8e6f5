"""Accuracy or R2: along the path on training and held-out rows, and per task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...storage import DataError
from .labels import Inputs

NAN = float("nan")

InputsT = TypeVar("InputsT", bound=Inputs)


@dataclass(frozen=True)
class AccuracyTracker:
    """Tracks the accuracy of one classifier, which may consist of several binary models."""

    # first, count: its machines: `machines[first : first + count]`; one for two classes, else one per class
    first: int
    count: int
    codes: np.ndarray  # `(n_samples,)` class of each row
    held_out: np.ndarray | None = None  # `(n_samples,)` mask of test rows, or None

    @property
    def machines(self) -> range:
        """Indices of the classifier's binary models."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class R2Tracker:
    """Tracks the R2 of one regression model."""

    first: int  # its number
    target: np.ndarray  # `(n_samples,)` real target
    held_out: np.ndarray | None = None  # `(n_samples,)` mask of test rows, or None

    @property
    def machines(self) -> range:
        """Index of the regression model, as a range."""
        return range(self.first, self.first + 1)


def predicted_codes(decisions: np.ndarray) -> np.ndarray:
    """Return the index of the predicted class of each row from ``(n_machines, n_samples)`` decision values."""
    return (decisions[0] > 0).astype(np.int64) if len(decisions) == 1 else decisions.argmax(axis=0)


def accuracies(fit: AccuracyTracker, decisions: Mapping[int, np.ndarray]) -> tuple[float, float]:
    """Return the training and the test accuracy of a fit; NaN for a part without rows."""
    values = np.stack([decisions[k] for k in fit.machines])
    right = predicted_codes(values) == fit.codes
    parts = (right, right[:0]) if fit.held_out is None else (right[~fit.held_out], right[fit.held_out])
    train, test = (float(part.mean()) if part.size else NAN for part in parts)
    return train, test


def r_squared(target: np.ndarray, values: np.ndarray) -> float:
    """Return R2 of predictions, 1 at best; NaN if the target is constant."""
    spread = float(np.square(target - target.mean()).sum()) if target.size else 0.0
    return 1.0 - float(np.square(target - values).sum()) / spread if spread > 0.0 else NAN


def r2_scores(fit: R2Tracker, decisions: Mapping[int, np.ndarray]) -> tuple[float, float]:
    """Return R2 of a regression on training and on test rows; NaN for a part without rows."""
    values, mask = decisions[fit.first], np.zeros(len(fit.target), dtype=bool) if fit.held_out is None else fit.held_out
    return r_squared(fit.target[~mask], values[~mask]), r_squared(fit.target[mask], values[mask])


def accuracy_metrics(fits: Sequence[AccuracyTracker | R2Tracker], decisions: Mapping[int, np.ndarray]) -> dict[str, object]:
    """Return the accuracies or R2 for one row of the history: a training and a test score, or two lists of them for several fits."""
    if not fits:
        return {}
    name = "r2" if isinstance(fits[0], R2Tracker) else "accuracy"
    scores = [r2_scores(fit, decisions) if isinstance(fit, R2Tracker) else accuracies(fit, decisions) for fit in fits]
    train, test = zip(*scores, strict=True)
    if len(fits) == 1:
        return {f"train_{name}": train[0], f"test_{name}": test[0], "n_answers": count_answers(fits[0], decisions)}
    return {f"train_{name}": list(train), f"test_{name}": list(test)}


def count_answers(fit: AccuracyTracker | R2Tracker, decisions: Mapping[int, np.ndarray]) -> int:
    """Return the number of distinct classes predicted for training rows. For regression: 1 if all predictions are equal, otherwise 2."""
    values = np.stack([decisions[k] for k in fit.machines])
    seen = values if fit.held_out is None else values[:, ~fit.held_out]
    if isinstance(fit, AccuracyTracker):
        return len(np.unique(predicted_codes(seen)))
    return 1 if not seen.size or np.ptp(seen) <= 0 else 2


def fit_tracker(inputs: Inputs, held_out: np.ndarray | None, first: int = 0) -> AccuracyTracker | R2Tracker:
    """Return the tracker of a fit whose models start at index ``first``."""
    if inputs.classes is None:
        return R2Tracker(first, inputs.target, held_out)
    return AccuracyTracker(first, inputs.n_machines, inputs.target, held_out)


def held_out_rows(extra: Mapping[str, Any], codes: np.ndarray, seed: int, classes: Sequence[Any] | None) -> np.ndarray | None:
    """Return the mask of the rows held out by ``test_share`` in ``extra``, stratified if there are ``classes``; ``None`` for a share of 0.

    Raises ValueError for an invalid share, and DataError if a class has too few rows to be in both the training and the test part.
    """
    share = extra.get("test_share", 0.0)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
        raise ValueError(f"test_share={share!r}: must be a number of at least 0 and below 1")
    if share == 0:
        return None
    return plain_folds(len(codes), seed, [float(share)])[0] if classes is None else stratified_split(codes, float(share), seed, classes)


def model_values(inputs: Any, model: Any, resources: Any) -> np.ndarray:
    """Return the decision values of a model on all labelled rows, ``(n_machines, n_labelled)``."""
    return model.decision_values(inputs.data, resources, covariates=getattr(inputs, "covariates", None)).T


def scores_of(rows: Inputs, values: np.ndarray) -> dict[str, Any]:
    """Return the accuracy or R2 of ``(n_machines, n)`` decision values, and the number of distinct predictions."""
    return accuracy_metrics([fit_tracker(rows, rows.held_out)], dict(enumerate(values)))


def stratified_split(codes: np.ndarray, share: float, seed: int, classes: Sequence[Any] = ()) -> np.ndarray:
    """Return a mask with ``share`` of the rows of every class, drawn with ``seed``.

    Raises DataError if a class has too few rows to be both inside and outside the mask.
    """
    return stratified_folds(codes, seed, [share], classes)[0]


def plain_folds(n: int, seed: int, shares: Sequence[float]) -> list[np.ndarray]:
    """Return disjoint masks with the given shares of n rows. Raises DataError if a part would be empty."""
    order = np.random.default_rng(np.random.SeedSequence((seed, 0xF01D))).permutation(n)
    masks = [np.zeros(n, dtype=bool) for _ in shares]
    _mark_parts(masks, order, shares, f"{n} rows are")
    return masks


def stratified_folds(codes: np.ndarray, seed: int, shares: Sequence[float], classes: Sequence[Any] = ()) -> list[np.ndarray]:
    """Return disjoint masks with the given shares of the rows of every class. ``classes``: class names for error messages."""
    rng = np.random.default_rng(np.random.SeedSequence((seed, 0xF01D)))
    masks = [np.zeros(len(codes), dtype=bool) for _ in shares]
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        _mark_parts(masks, rows, shares, f"class {repr(classes[int(code)]) if len(classes) else code} has {len(rows)} rows,")
    return masks


def _mark_parts(masks: Sequence[np.ndarray], rows: np.ndarray, shares: Sequence[float], subject: str) -> None:
    edges = np.round(np.concatenate(([0.0], np.cumsum(shares))) * len(rows)).astype(int)
    if np.any(np.diff(edges) == 0) or (edges[-1] == len(rows) and len(shares) == 1):
        split = f"{len(shares)} folds" if len(shares) > 1 else f"a share of {shares[0]:g} and the rest"
        raise DataError(f"{subject} too few to appear in every part of a split into {split}")
    for mask, lo, hi in zip(masks, edges[:-1], edges[1:], strict=True):
        mask[rows[lo:hi]] = True


def task_accuracies(codes: np.ndarray, names: Sequence[Any], truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return the mean accuracy over tasks, the mean AUC over tasks with both classes, and a row per task.

    ``codes``, ``names``: ``(n,)`` task of each row as an index into the names. ``truth``: ``(n,)`` index of the true class. ``values``:
    ``(n, n_machines)`` decision values. AUC is defined for two classes only.
    """
    from sklearn.metrics import roc_auc_score

    rows, right = [], predicted_codes(values.T) == truth
    for t in np.unique(codes):
        of_task = codes == t
        row = {"task": names[t], "rows": int(of_task.sum()), "accuracy": float(right[of_task].mean())}
        if values.shape[1] == 1 and len(np.unique(truth[of_task])) == 2:
            row["auc"] = float(roc_auc_score(truth[of_task], values[of_task, 0]))
        rows.append(row)
    areas = [row["auc"] for row in rows if "auc" in row]
    mean = {"mean_accuracy": float(np.mean([row["accuracy"] for row in rows]))}
    return {**mean, **({"mean_auc": float(np.mean(areas))} if areas else {}), "tasks": rows}


def task_variances(codes: np.ndarray, names: Sequence[Any], truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return R2 per task: mean and median over tasks, and a row per task.

    Tasks with little variance dominate the mean, so the median is given too. Tasks without variance are excluded from both.
    """
    rows = []
    for t in np.unique(codes):
        of_task = codes == t
        error, spread = float(np.square(truth[of_task] - values[of_task]).mean()), float(np.var(truth[of_task]))
        rows.append({"task": names[t], "rows": int(of_task.sum()), "r2": 1.0 - error / spread if spread > 0 else None, "rmse": error**0.5})
    shares = [row["r2"] for row in rows if row["r2"] is not None]
    means = {"mean_r2": float(np.mean(shares)), "median_r2": float(np.median(shares))} if shares else {}
    return {**means, "tasks": rows}

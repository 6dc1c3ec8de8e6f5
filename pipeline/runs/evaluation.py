"""Tables that the report of a score shows: confusion matrix, curves with intervals, calibration, predictions.

The size of the tables does not grow with the number of rows. The run directory stores them under the names in `DRAWN`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..inputs.curves import GRID, Curve, calibration_bins, precision_curve, r2_interval, roc_curve, threshold_counts, wilson_interval
from ..inputs.scores import predicted_codes

DRAWN = ("confusion", "roc", "precision_recall", "calibration", "predictions", "decision")
"""Tables of a score that are only used in reports."""

MAX_CURVES = 8  # classes with curves of their own; of more the commonest
MAX_PAIRS = 2500  # cells of the confusion of classes; of more the fullest
MAX_POINTS = 500  # rows of a regression that are kept with their predictions

Rows = list[dict[str, Any]]


def told_figures(score: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics of a score for users, without the tables of reports and the digest of the data."""
    return {name: value for name, value in score.items() if name not in (*DRAWN, "data_digest")}


def evaluate_classes(truth: np.ndarray, values: np.ndarray, classes: Sequence[Any], chances: np.ndarray | None = None) -> dict[str, Any]:
    """Return metrics and tables of a classification.

    ``truth``: ``(n,)`` class indices, -1 for labels unknown to the fit. ``values``: ``(n, m)`` decision values; one column for two classes.
    ``chances``: ``(n, n_classes)`` class probabilities, or ``None``.
    """
    from sklearn.metrics import average_precision_score

    codes = predicted_codes(values.T)
    recalls = [np.mean(codes[truth == k] == k) for k in np.unique(truth[truth >= 0])]
    counts = np.bincount(truth[truth >= 0], minlength=len(classes))
    figures: dict[str, Any] = {"accuracy_interval": wilson_interval(int(np.sum(codes == truth)), len(truth))}
    figures |= {"majority": float(counts.max() / len(truth)), "majority_class": classes[int(counts.argmax())]}
    figures["balanced_accuracy"] = float(np.mean(recalls)) if recalls else None
    commonest = sorted(np.argsort(-counts, kind="stable")[:MAX_CURVES].tolist())
    machines = {1: values[:, 0]} if values.shape[1] == 1 else {k: values[:, k] for k in commonest}
    tables: dict[str, Rows] = {"confusion": _confusion(truth, codes, classes), "roc": [], "precision_recall": [], "calibration": []}
    for k, of_class in machines.items():
        thresholds = threshold_counts(truth == k, of_class)
        if thresholds.sum(axis=1).all():
            roc, precision = roc_curve(thresholds, k), precision_curve(thresholds, k)
            tables["roc"] += _curve_rows(classes[k], roc, "false_positive_rate", "true_positive_rate")
            tables["precision_recall"] += _curve_rows(classes[k], precision, "recall", "precision")
            if values.shape[1] == 1:
                figures |= {"auc_interval": roc.area_interval, "average_precision": float(average_precision_score(truth == k, of_class))}
                tables["calibration"] = calibration_rows(truth == k, of_class, None if chances is None else chances[:, k], classes[k])
    return {**figures, **{name: rows for name, rows in tables.items() if rows}}


def evaluate_numbers(truth: np.ndarray, predicted: np.ndarray) -> dict[str, Any]:
    """Return metrics and tables of a regression. ``rmse_of_mean`` is the error of predicting the mean target of these rows."""
    order = np.argsort(truth, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), MAX_POINTS)).astype(int))]
    points = [{"truth": float(a), "prediction": float(b)} for a, b in zip(truth[shown], predicted[shown], strict=True)]
    return {"r2_interval": r2_interval(truth, predicted), "rmse_of_mean": float(truth.std()), "predictions": points}


def _confusion(truth: np.ndarray, codes: np.ndarray, classes: Sequence[Any]) -> Rows:
    pairs, counts = np.unique(np.stack([truth, codes]), axis=1, return_counts=True)
    fullest = np.sort(np.argsort(-counts, kind="stable")[:MAX_PAIRS])
    names = [*classes, "another label"]  # -1 is the last
    return [
        {"true": names[a], "predicted": names[b], "rows": n}
        for a, b, n in zip(*pairs[:, fullest].tolist(), counts[fullest].tolist(), strict=True)
    ]


def _curve_rows(label: object, curve: Curve, x: str, y: str) -> Rows:
    columns = (GRID, curve.y, curve.lower, curve.upper)
    return [
        {"class": label, x: round(a, 4), y: round(b, 5), "lower": round(c, 5), "upper": round(d, 5)}
        for a, b, c, d in zip(*(column.tolist() for column in columns), strict=True)
    ]


def calibration_rows(is_positive: np.ndarray, values: np.ndarray, chance: np.ndarray | None, label: object) -> Rows:
    """Return the fraction of positive rows per bin of probability; without probabilities, per bin of decision value."""
    name = "decision" if chance is None else "probability"
    bins = calibration_bins(is_positive, values if chance is None else chance)
    return [{"class": label, name: one.mean, "share": one.share, "lower": one.lower, "upper": one.upper, "rows": one.rows} for one in bins]

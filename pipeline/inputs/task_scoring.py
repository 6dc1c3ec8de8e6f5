"""What predictions of many tasks are worth, task by task: the mean over tasks beside the figure of all rows together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .scores import predicted_codes


def task_accuracies(codes: np.ndarray, names: Sequence[Any], truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return the mean accuracy over tasks (and area under the curve, over tasks with both labels), and a row per task.

    ``codes``, ``names``: ``(n,)`` task of each row as its position in the names; ``truth``: ``(n,)`` class of each row as its index;
    ``values``: ``(n,)`` decision values.
    """
    from sklearn.metrics import roc_auc_score

    rows, right = [], predicted_codes(values[None]) == truth
    for t in np.unique(codes):
        own = codes == t
        row = {"task": names[t], "rows": int(own.sum()), "accuracy": float(right[own].mean())}
        if len(np.unique(truth[own])) == 2:
            row["auc"] = float(roc_auc_score(truth[own], values[own]))
        rows.append(row)
    areas = [row["auc"] for row in rows if "auc" in row]
    mean = {"mean_accuracy": float(np.mean([row["accuracy"] for row in rows]))}
    return {**mean, **({"mean_auc": float(np.mean(areas))} if areas else {}), "tasks": rows}


def task_variances(codes: np.ndarray, names: Sequence[Any], truth: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """Return the share of each task's variance that predictions explain: mean and median over tasks, and a row per task.

    A mean of ratios is ruled by tasks of little variance, hence the median beside it; tasks without variance are left out of both.
    """
    rows = []
    for t in np.unique(codes):
        own = codes == t
        error, spread = float(np.square(truth[own] - values[own]).mean()), float(np.var(truth[own]))
        rows.append({"task": names[t], "rows": int(own.sum()), "r2": 1.0 - error / spread if spread > 0 else None, "rmse": error**0.5})
    found = [row["r2"] for row in rows if row["r2"] is not None]
    means = {"mean_r2": float(np.mean(found)), "median_r2": float(np.median(found))} if found else {}
    return {**means, "tasks": rows}

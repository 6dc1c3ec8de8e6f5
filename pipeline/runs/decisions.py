"""Explanation of a single decision: the contribution of every part of a model to the decision value of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ...storage import BlockStore
from ..estimators.base import Estimator
from ..inputs.scores import predicted_codes
from ..records.data_set import source_names

MOST_PARTS = 10  # parts that are named; the sum of the others is a line of its own


def decision_rows(estimator: Estimator, data: BlockStore, values: np.ndarray, truth: np.ndarray, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return ``{"part", "value", "contribution"}`` for every part of the decision on one row; the last entry is the decision value, with
    the row, its class and prediction.

    The chosen row is the correctly classified one with the largest margin; for regression, the first row. Empty if the model's decisions
    have no parts. No other row is read.

    ``values``: ``(n, m)`` decision values of all rows. ``truth``: ``(n,)`` class indices or targets. ``rows``: mask of the scored rows.
    """
    model, classes = estimator.model_, getattr(estimator, "classes_", None)
    if not rows.any():
        return []
    row, of = _clearest(values, truth, np.flatnonzero(rows), classes is not None)
    if row is None:
        return []

    def read(ids: np.ndarray) -> np.ndarray:
        part: Any = data.columns(ids, (row, row + 1))
        return np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)

    parts = [part for part in model.contributions(read, source_names(data), of) if part[2] != 0]
    total = float(values[row, of])
    if not parts or not np.isclose(sum(added for *_, added in parts) + model.intercepts[of], total, rtol=1e-3, atol=1e-6):
        return []  # no parts, or one that is not in the columns, as covariates
    parts.sort(key=lambda part: -abs(part[2]))
    shown = [{"part": name, "value": value, "contribution": added} for name, value, added in parts[:MOST_PARTS]]
    rest = parts[MOST_PARTS:]
    shown += [{"part": f"{len(rest)} further parts", "contribution": sum(added for _, _, added in rest)}] if rest else []
    shown.append({"part": "intercept", "contribution": float(model.intercepts[of])})
    known = data.ids(row, row + 1) if data.has_ids else None
    name = str(known[0]) if known is not None else str(row)
    if classes is None:
        return [*shown, {"part": "prediction", "contribution": total, "row": name, "true": float(truth[row])}]
    label = str(classes[int(truth[row])])
    towards = str(classes[1] if values.shape[1] == 1 else classes[of])
    return [*shown, {"part": "decision value", "contribution": total, "row": name, "true": label, "towards": towards}]


def _clearest(values: np.ndarray, truth: np.ndarray, scored: np.ndarray, has_classes: bool) -> tuple[int | None, int]:
    """Return the row that was classified correctly with the largest margin, and the index of the binary model that decided it; for
    regression, the first row.
    """
    if not has_classes:
        return int(scored[0]), 0
    codes = predicted_codes(values.T)
    right = scored[codes[scored] == truth[scored]]
    if not len(right):
        return None, 0
    ordered = np.sort(values[right], axis=1)
    margins = np.abs(ordered[:, 0]) if values.shape[1] == 1 else ordered[:, -1] - ordered[:, -2]
    row = int(right[int(np.argmax(margins))])
    return row, 0 if values.shape[1] == 1 else int(codes[row])

"""Warnings after a fit: about the selection, the predictions, the balance of classes, and columns of very different scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...storage import BlockStore, MemoryBlocks
from ..passes.blocks import table_of
from ..records.config import MethodConfig
from ..records.data_set import feature_namer
from .labels import Inputs

RARE_SHARE = 0.05  # share of the rows below which a class is rare
RARE_OF_EVEN = 0.5  # and of the share that it would have among classes of one size: of many classes every one is small
MAX_NUMERIC_CLASSES = 20  # classes up to which whole numbers are taken for labels without a word
SELECTORS = ("fgm", "group-lasso", "multitask-selector")  # methods that choose among features
FAR = 1e3  # ratio of the widths of two columns from which on the wide one rules
MAX_COLUMNS = 100_000  # of more columns the widths are not looked at
NEGLIGIBLE_R2 = 1e-9  # R2 of training rows up to which a model is no better than the mean
# How a method says by itself that all rows get one answer, or why answers are wrong.
SAID = ("nothing is selected", "no kernel has a weight", "steps are too long")


def fit_warnings(
    method: str, config: MethodConfig, rows: Inputs, summary: Mapping[str, Any], last: Mapping[str, Any], own: Sequence[str] = ()
) -> list[str]:
    """Return the warnings of a finished fit on ``rows``, each with a value and a remedy.

    ``summary``: figures of the run. ``last``: last row of its history. ``own``: warnings of the method.
    """
    params = dict(config)
    params |= {name: summary[name] for name in ("lam", "C") if name in params and name in summary}
    weaker, answers = _weaker(params), []
    if not any(text.startswith(SAID) for text in own):
        if summary.get("n_selected") == 0 and summary.get("stop") is not None:
            answers = [f"nothing is selected, so every row gets the same prediction: {weaker}, or other columns or kernels"]
        else:
            answers = _answers(rows, params, weaker, last)
    return [*(answers or _everything(method, summary, params)), *_rare_classes(rows, params)]


def _weaker(params: Mapping[str, Any]) -> str:
    """Return the advice to weaken the method's penalty, with the current value of the parameter."""
    for name, way in (("lam", "smaller"), ("C", "larger")):
        if name in params:
            return f"try a {way} {name} (it is {_spell(params[name])})"
    return "try other parameters"


def _spell(value: object) -> str:
    """Return a parameter's value as text, or its first three values if there is one per binary model."""
    values = value if isinstance(value, (list, tuple)) else [value]
    return ", ".join(f"{item:.3g}" if isinstance(item, (int, float)) else repr(item) for item in values[:3])


def _everything(method: str, summary: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    selected, choices = summary.get("n_selected"), summary.get("n_features")
    if method not in SELECTORS or selected is None or choices is None or not 1 < choices <= selected:
        return []
    if method == "fgm":
        # One cut has them all: that B was clipped was said.
        remedy = "set n_features_to_select or a smaller max_rounds"
        return [] if choices <= params["B"] else [f"all {choices} features are selected: {remedy}"]
    return [f"all {choices} features are selected: try a larger lam (it is {_spell(params['lam'])})"]


def _answers(rows: Inputs, params: Mapping[str, Any], weaker: str, last: Mapping[str, Any]) -> list[str]:
    """Return a warning if all training rows get the same prediction, or if always predicting the mean or the most frequent class is as
    good.
    """
    accuracy, r2 = last.get("train_accuracy"), last.get("train_r2")
    if last.get("n_answers") == 1:
        other = "other columns" if rows.classes is None else "other columns, or class_weight='balanced'"
        return [f"every training row gets the same prediction: {weaker}, {other}"]
    if rows.classes is None:
        if not isinstance(r2, float) or not r2 <= NEGLIGIBLE_R2:
            return []
        return [f"training R2 is {r2:.3g}, no better than predicting the mean: {weaker}"]
    # Rows that count otherwise than one each are told otherwise than most of them would have it.
    if not isinstance(accuracy, float) or not np.isfinite(accuracy) or _has_weights(rows, params):
        return []
    counts = _class_counts(rows)
    if not counts.any():
        return []  # a stream keeps no rows
    share, label = float(counts.max() / counts.sum()), rows.classes[int(counts.argmax())]
    if accuracy > share:
        return []
    remedy = f"{weaker}, other columns or kernels"
    return [f"training accuracy is {accuracy:.3f}, no better than always predicting {label!r} ({share:.3f}): {remedy}"]


def _rare_classes(rows: Inputs, params: Mapping[str, Any]) -> list[str]:
    if rows.classes is None or "class_weight" not in params or _has_weights(rows, params):
        return []
    counts = _class_counts(rows)
    if not counts.any():
        return []
    shares = counts / counts.sum()
    least = int(shares.argmin())
    if shares[least] >= min(RARE_SHARE, RARE_OF_EVEN / len(counts)):
        return []
    count, total = int(counts[least]), int(counts.sum())
    text = f"class {rows.classes[least]!r} has {count:,} of {total:,} rows ({shares[least]:.1%})"
    return [f"{text}, so it hardly influences the fit: set class_weight='balanced'"]


def _has_weights(rows: Inputs, params: Mapping[str, Any]) -> bool:
    weight = rows.sample_weight
    kept = weight if weight is None or rows.held_out is None else weight[~rows.held_out]
    return params.get("class_weight") is not None or (kept is not None and bool(np.ptp(kept) > 0))


def _class_counts(rows: Inputs) -> np.ndarray:
    seen = rows.target if rows.held_out is None else rows.target[~rows.held_out]
    return np.bincount(seen, minlength=len(rows.labels))


def numbers_as_classes(classes: Sequence[Any] | np.ndarray) -> str:
    """Return a warning if a numeric target was read as many classes, otherwise an empty text."""
    if len(classes) <= MAX_NUMERIC_CLASSES or np.asarray(classes).dtype.kind not in "iuf":
        return ""
    return f"y holds {len(classes)} different numbers, which are read as classes: use a regressor to read them as numbers"


def column_widths(data: BlockStore | MemoryBlocks) -> list[dict[str, Any]]:
    """Return ``feature`` and ``width`` (range) of the column with the smallest and of the column with the largest range, for unscaled data.

    Ranges are extended to include zero; constant columns are ignored. Empty if there are fewer than two columns, or too many to check.
    """
    if data.scale.kind != "none" or data.n_cols > MAX_COLUMNS or getattr(data.meta, "n_coded", 0):
        return []
    if isinstance(data, BlockStore) and not data.has_table("minimum", "columns"):
        return []
    widths = np.asarray(table_of(data, "maximum"), np.float64) - np.asarray(table_of(data, "minimum"), np.float64)
    known = np.flatnonzero((widths > 0) & np.isfinite(widths))
    if len(known) < 2:
        return []
    name, ends = feature_namer(data), known[[int(widths[known].argmin()), int(widths[known].argmax())]]
    return [{"feature": name(j), "width": float(widths[j])} for j in ends.tolist()]


def width_warning(config: MethodConfig, data: object) -> str:
    """Return a warning if columns differ greatly in scale and ``scale="auto"`` leaves them unscaled (streams); otherwise an empty
    string.
    """
    if getattr(config, "scale", None) != "auto" or not isinstance(data, BlockStore | MemoryBlocks) or not data.n_cols:
        return ""
    ends = column_widths(data)
    if len(ends) < 2 or not ends[1]["width"] > FAR * ends[0]["width"]:
        return ""
    narrow, wide = (f"{item['feature']} spans {float(format(item['width'], '.3g')):,g}" for item in ends)
    remedy = f"set scale={'standard' if data.meta.kind == 'dense' else 'max-abs'!r}, or scale=None to fit them as they are"
    return f"columns differ in scale ({wide}; {narrow}), so the large ones dominate the fit; {remedy}"

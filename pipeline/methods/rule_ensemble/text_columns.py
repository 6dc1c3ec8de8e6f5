"""Columns of text as numbers: names of categories in order, NaN for what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

UNSEEN = -1.0  # number of a category that training did not have


def has_text(X: Any) -> bool:
    """Return whether data are a frame or an array with columns that may hold text."""
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        return any(getattr(dtype, "kind", "O") not in "fiub" for dtype in X.dtypes)
    return isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUS"


def encode_text(X: Any, known: Mapping[int, Sequence[str]] | None) -> tuple[Any, dict[int, list[str]]]:
    """Return a frame or 2-D array with numbers instead of text, and the names of the categories of each column of text.

    ``known`` are the names of the categories at fit, ``None`` at fit itself; other names become ``UNSEEN``. Raises TypeError: an entry is
    neither text nor a number nor missing.
    """
    is_frame = hasattr(X, "columns") and hasattr(X, "iloc")
    columns, categories = [], {}
    for j in range(X.shape[1]):
        values = np.asarray(X.iloc[:, j] if is_frame else X[:, j], dtype=object)
        numbers = None if known is not None and j in known else _numbers(values)
        if numbers is None:
            texts = [None if _missing(value) else str(value) for value in values]
            names = {text for text in texts if text is not None}
            categories[j] = list(known[j]) if known is not None and j in known else sorted(names)
            code_of = {name: float(code) for code, name in enumerate(categories[j])}
            numbers = np.array([np.nan if text is None else code_of.get(text, UNSEEN) for text in texts])
        columns.append(numbers)
    table = np.column_stack(columns) if columns else np.zeros((X.shape[0], 0))
    return (type(X)(table, columns=X.columns, index=X.index) if is_frame else table), categories


def _numbers(values: np.ndarray) -> np.ndarray | None:
    """Return a column as float64, ``None`` if it holds text."""
    out = np.empty(len(values))
    for i, value in enumerate(values):
        if isinstance(value, str):
            return None
        if not _missing(value) and not isinstance(value, (Real, np.generic)):
            raise TypeError(f"argument must be a string or a real number, not {type(value).__name__}")
        out[i] = np.nan if _missing(value) else float(value)
    return out


def _missing(value: object) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)

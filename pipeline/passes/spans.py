"""Results of passes by range of rows: those of the same rows become one, so that what is joined never exceeds the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

Spans = dict[tuple[int, int], np.ndarray]  # by range of rows, an array whose last axis is over these


def merge_spans(parts: Sequence[Spans], join: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Spans:
    """Return the ranges of all parts, those of the same rows joined in the order of the parts."""
    merged: Spans = {}
    for part in parts:
        for span, values in part.items():
            merged[span] = join(merged[span], values) if span in merged else values
    return dict(sorted(merged.items()))


def add_spans(parts: Sequence[Spans]) -> Spans:
    """Combine step of sums by range."""
    return merge_spans(parts, np.add)

"""Columns in units far apart: which are the narrowest and the widest, and what to say of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...storage import BlockStore, MemoryBlocks
from ..passes.blocks import table_of
from ..records.config import MethodConfig
from ..records.data_set import feature_namer

FAR = 1e3  # ratio of the widths of two columns from which on the wide one rules
MAX_COLUMNS = 100_000  # of more columns the widths are not looked at


def column_widths(data: BlockStore | MemoryBlocks) -> list[dict[str, Any]]:
    """Return ``feature`` and ``width`` of the narrowest and the widest column of data that are not scaled, constant ones left out; nothing
    where there are not two, or too many to look at. The width is the range of the values, zeros included.
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
    """Return that columns which ``scale="auto"`` leaves alone, those of streams, are of widths far apart; nothing where they are not."""
    if getattr(config, "scale", None) != "auto" or not isinstance(data, BlockStore | MemoryBlocks) or not data.n_cols:
        return ""
    ends = column_widths(data)
    if len(ends) < 2 or not ends[1]["width"] > FAR * ends[0]["width"]:
        return ""
    narrow, wide = (f"{item['feature']} ({item['width']:.3g})" for item in ends)
    remedy = f"scale={'standard' if data.meta.kind == 'dense' else 'max-abs'!r} makes them alike, scale=None leaves them without this word"
    return f"columns have very different widths, {wide} beside {narrow}, and penalties and distances look at the wide ones first: {remedy}"

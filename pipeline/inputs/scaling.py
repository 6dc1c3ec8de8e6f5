"""Parameter ``scale``: scales the columns of a fit in the same way as a store that was ingested with that scaling."""

from __future__ import annotations

import contextlib
from typing import TypeVar, cast

import numpy as np

from ...storage import BlockStore, DataError, GramStore, MemoryBlocks
from ...storage.meta import ScaleKind
from ..records.config import MethodConfig
from ..records.joined import JoinedStores

Rows = BlockStore | MemoryBlocks | JoinedStores
RowsT = TypeVar("RowsT")


def as_scaled(config: MethodConfig, data: RowsT, weight: np.ndarray | None = None) -> RowsT:
    """Return a data set with its columns scaled as the parameters request.

    ``weight``: multiplicities of rows in memory; a store is scaled with its own weights. Raises ValueError if the store already has another
    scaling, or if rows are a stream. Raises DataError if a column cannot be scaled.
    """
    scale = getattr(config, "scale", None)
    if isinstance(data, BlockStore) and getattr(config, "kernels", None) == "precomputed":
        grams: str | None = getattr(config, "gram_store", None)
        return data if grams is None else cast(RowsT, as_its_grams(data, grams))
    auto = config.auto_scale if scale == "auto" else None
    if scale is None or getattr(data, "holds", "") not in ("columns", "stream") or (scale == "auto" and auto is None):
        return data
    if not isinstance(data, BlockStore | MemoryBlocks | JoinedStores):
        if scale == "auto":
            return data
        raise ValueError(f"scale={scale!r}: a stream cannot be scaled, because its columns are not known beforehand; set scale=None")
    if data.meta.scale != "none":
        if scale not in ("auto", data.meta.scale):
            raise ValueError(f"scale={scale!r}: {data.url} has the scaling {data.meta.scale!r} already; leave scale to 'auto'")
        return data
    kind = auto if scale == "auto" else scale
    if scale == "auto" and kind == "standard":
        if data.meta.kind == "dense":
            with contextlib.suppress(DataError):  # squares that overflow have no deviation
                return cast(RowsT, _shown(data, "standard", True, weight))
        kind = "max-abs"
    has_intercept = bool(getattr(config, "fit_intercept", True))
    return cast(RowsT, _shown(data, cast(ScaleKind, kind), kind != "standard" or has_intercept, weight))


def _shown(data: Rows, kind: ScaleKind, centred: bool, weight: np.ndarray | None) -> Rows:
    return data.with_scale(kind, centred=centred, **({"weight": weight} if isinstance(data, MemoryBlocks) else {}))


def as_its_grams(data: BlockStore, grams: str) -> BlockStore:
    """Return the rows of a store with the scaling used by the kernels of a Gram store."""
    version, *shown = GramStore.open(grams).meta.data.split(":")
    return data.with_scale(cast(ScaleKind, shown[0]), centred=len(shown) == 1) if shown and version == data.digest else data

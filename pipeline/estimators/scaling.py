"""The parameter ``scale`` of estimators: rows in memory are seen by a fit as a store ingested with that scaling shows them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ...storage import BlockStore, DataError, MemoryBlocks
from ..inputs.column_widths import width_warning
from .inputs import warn_user
from .parameters import Parameter

KINDS = ("standard", "max-abs", "unit-column")
SCALE = Parameter(
    "scale",
    "auto",
    '{"auto", "standard", "max-abs", "unit-column"} or None',
    Literal["auto", "standard", "max-abs", "unit-column"] | None,
    "Scaling of the columns of arrays, part of the model: standard (dense columns: mean 0 and deviation 1; sparse ones are not centred), "
    "max-abs, unit-column, None. auto: standard of dense and max-abs of sparse rows where what depends on the scale is left to the data as "
    "well (C or lam auto, default kernels), else None. No value is copied; coefficients are those of the columns as given. A store has the "
    "scaling that it was ingested with.",
)


def scaled_rows(config: Any, scale: str | None, data: Any, is_free: bool, weight: np.ndarray | None = None) -> Any:
    """Return the data of a fit under a scaling of their columns; what may need one and has none is told.

    ``is_free``: whether ``auto`` may choose one; ``weight``: how often rows count.

    Raises ValueError: a scaling that does not exist, or that a store does not have.
    """
    if scale not in ("auto", None, *KINDS):
        raise ValueError(f"scale={scale!r}: must be 'auto', {', '.join(map(repr, KINDS))} or None")
    if not isinstance(data, MemoryBlocks):
        if scale in KINDS and isinstance(data, BlockStore) and data.scale.kind != scale:
            raise ValueError(f"scale={scale!r}: {data.url} has the scaling {data.scale.kind!r}; ingest it with --scale {scale}")
        if scale == "auto":
            _tell(config, data, "ingest it with --scale standard (sparse: max-abs)")
        return data
    has_intercept = bool(getattr(config, "fit_intercept", True))
    if scale == "auto":
        if not is_free:
            _tell(config, data, "scale='standard' (sparse: 'max-abs') makes them alike; scale=None leaves them without this word")
            return data
        # Without an intercept nothing takes the centres up.
        return _automatic(data, "standard" if data.meta.kind == "dense" and has_intercept else "max-abs", weight)
    return data if scale is None else data.with_scale(scale, centred=has_intercept, weight=weight)  # pyright: ignore[reportArgumentType]


def _automatic(data: MemoryBlocks, kind: Literal["standard", "max-abs"], weight: np.ndarray | None) -> MemoryBlocks:
    try:
        return data.with_scale(kind, weight=weight)
    except DataError:  # squares that overflow have no deviation
        return data.with_scale("max-abs", weight=weight)


def _tell(config: Any, data: Any, remedy: str) -> None:
    message = width_warning(config, data)
    if message:
        warn_user(f"{message}: {remedy}")

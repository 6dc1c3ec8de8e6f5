"""The parameter ``scale`` of estimators: rows in memory are seen by a fit as a store ingested with that scaling shows them."""

from __future__ import annotations

import contextlib
from typing import Literal, TypeVar, cast

import numpy as np
from sklearn.base import BaseEstimator

from ...storage import BlockStore, DataError, MemoryBlocks
from ...storage.column_scale import COLUMN_SCALES
from ..inputs.column_widths import width_warning
from ..records.config import MethodConfig
from .inputs import warn_user
from .parameters import Parameter

RowsT = TypeVar("RowsT")

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


def scaled_rows(config: MethodConfig, estimator: BaseEstimator, data: RowsT, weight: np.ndarray | None = None) -> RowsT:
    """Return the data of a fit under the scaling of columns that an estimator asks for; what may need one and has none is told.

    ``weight``: how often rows count. Raises ValueError: a scaling that does not exist, or that a store does not have.
    """
    if not config.scale_matters:
        return data
    scale = estimator.get_params(deep=False)["scale"]
    if scale not in ("auto", None, *COLUMN_SCALES):
        raise ValueError(f"scale={scale!r}: must be 'auto', {', '.join(map(repr, COLUMN_SCALES))} or None")
    if not isinstance(data, MemoryBlocks):
        if scale in COLUMN_SCALES and isinstance(data, BlockStore) and data.scale.kind != scale:
            raise ValueError(f"scale={scale!r}: {data.url} has the scaling {data.scale.kind!r}; ingest it with --scale {scale}")
        if scale == "auto":
            _tell(config, data, "ingest it with --scale standard (sparse: max-abs)")
        return data
    has_intercept = bool(getattr(config, "fit_intercept", True))
    if scale == "auto":
        if not config.leaves_scale:
            _tell(config, data, "scale='standard' (sparse: 'max-abs') makes them alike; scale=None leaves them without this word")
            return data
        # Without an intercept nothing takes the centres up.
        with contextlib.suppress(DataError):  # squares that overflow have no deviation
            if data.meta.kind == "dense" and has_intercept:
                return cast(RowsT, data.with_scale("standard", weight=weight))
        return cast(RowsT, data.with_scale("max-abs", weight=weight))
    if scale is None:
        return data
    kind = cast(Literal["standard", "max-abs", "unit-column"], scale)
    return cast(RowsT, data.with_scale(kind, centred=has_intercept, weight=weight))


def _tell(config: MethodConfig, data: object, remedy: str) -> None:
    message = width_warning(config, data)
    if message:
        warn_user(f"{message}: {remedy}")

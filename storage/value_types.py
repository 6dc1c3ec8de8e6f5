"""Names of values whose type only a look at them tells: what users hand over, what JSON holds, SciPy's many sparse classes."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

UserData: TypeAlias = Any
"""Whatever a user hands over: array, sparse matrix, frame, list of texts, path; who takes it looks at it first."""

Json: TypeAlias = Any
"""A value that JSON can hold, or may hold: who reads one checks its form."""

SparseMatrix: TypeAlias = Any
"""A SciPy sparse matrix or array; its classes share no base with all that they have in common."""

Matrix: TypeAlias = Any
"""Rows of data: an ndarray, or a SciPy sparse matrix."""

Foreign: TypeAlias = Any
"""An object of a library that need not be installed (Arrow, pandas, Dask, obstore), or has no types."""


def plain_json(value: Json) -> Json:
    """Return ``value`` as strict JSON: NaN and infinities as ``null``, NumPy numbers and arrays as numbers and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain_json(value.tolist())
    if isinstance(value, (list, tuple, set)):
        return [plain_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)

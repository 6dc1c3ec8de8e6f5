"""Many small arrays as few: one file (or two Zarr objects) each would cost more than their content."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SchemaError

MAX_PLAIN_ARRAYS = 64
"""Up to this many small arrays are left as they are: a record of ordinary size stays readable by name."""

MAX_SMALL_BYTES = 1 << 16
"""Bytes up to which an array is small."""

Arrays = dict[str, npt.NDArray[Any]]
Index = dict[str, list[Any]]


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Arrays, Index]:
    """Lay small arrays of one type end to end, in ``packed-TYPE``; the others keep their names.

    Returns the arrays to write, and ``{name: [type, shape, offset]}`` of the packed ones; empty when there are few.
    """
    small = {name: array for name, array in arrays.items() if array.nbytes <= MAX_SMALL_BYTES}
    if len(small) <= MAX_PLAIN_ARRAYS:
        return dict(arrays), {}
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    filled: dict[str, int] = {}
    index: Index = {}
    for name, array in small.items():
        kind = array.dtype.name
        index[name] = [kind, list(array.shape), filled.get(kind, 0)]
        parts.setdefault(kind, []).append(np.ravel(array))
        filled[kind] = filled.get(kind, 0) + array.size
    packed = {f"packed-{kind}": np.concatenate(chunks) for kind, chunks in parts.items()}
    return {**{name: array for name, array in arrays.items() if name not in small}, **packed}, index


def unpack(arrays: Mapping[str, npt.NDArray[Any]], index: Mapping[str, Any]) -> Arrays:
    """Undo `pack`. Raises SchemaError if an entry of the index does not fit the arrays."""
    out = {name: array for name, array in arrays.items() if not (index and name.startswith("packed-"))}
    for name, entry in index.items():
        try:
            kind, shape, offset = entry
            size = int(np.prod(shape, dtype=np.int64))
            out[name] = arrays[f"packed-{kind}"][offset : offset + size].reshape(shape).copy()
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"packed array {name!r}: its entry {entry!r} does not fit what is stored") from error
    return out

"""Checks of the arrays that go into a Gram store and come out of it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError, SchemaError, UnalignedWrite
from .bundle import GramTask

_STRIP = 64


def whole_block(task: GramTask, values: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return the values as they are stored; refuse what is not the whole block of every kernel, or would be rounded."""
    if np.shape(values) != task.shape:
        whole = f"the whole block of {task.shape[0]} kernels is {task.shape}"
        raise UnalignedWrite(f"block ({task.i}, {task.j}): the array has the shape {np.shape(values)}; {whole}")
    if values.dtype.kind != "f" or values.dtype.itemsize > np.dtype(dtype).itemsize:
        raise SchemaError(f"values have the type {values.dtype}; the store holds {dtype} and does not round")
    return np.ascontiguousarray(values, dtype=np.dtype(dtype).newbyteorder("<"))


def refuse_values(task: GramTask, values: npt.NDArray[Any], sums: npt.NDArray[np.float64]) -> None:
    """Refuse values that are not finite, and diagonal blocks that are not symmetric to the bit."""
    if not np.isfinite(sums[:, 0, : values.shape[1]]).all() and not np.isfinite(values).all():
        q, row, col = (int(axis[0]) for axis in np.nonzero(~np.isfinite(values)))
        rows = f"rows {task.rows[0] + row} and {task.cols[0] + col}"
        raise DataError(f"kernel {task.digests[q]} is {values[q, row, col]} between {rows}; kernel values must be finite")
    if task.i == task.j and not all(map(_is_symmetric, values)):
        q, row, col = (int(axis[0]) for axis in np.nonzero(values != values.transpose(0, 2, 1)))
        pair = f"{values[q, row, col]} and {values[q, col, row]}"
        raise SchemaError(f"block ({task.i}, {task.i}) of kernel {task.digests[q]} is not symmetric: {pair} at local ({row}, {col})")


def _is_symmetric(square: npt.NDArray[Any]) -> bool:
    # In strips: reading a large matrix across its rows all at once takes twice the time.
    strips = range(0, len(square), _STRIP)
    return all(np.array_equal(square[r : r + _STRIP, r:], square[r:, r : r + _STRIP].T) for r in strips)


def pad_planes(planes: npt.NDArray[Any], block: int) -> npt.NDArray[Any]:
    """Planes filled up with NaN to the size every object has."""
    if planes.shape[1:] == (block, block):
        return planes
    out = np.full((len(planes), block, block), np.nan, dtype=planes.dtype)
    out[:, : planes.shape[1], : planes.shape[2]] = planes
    return out


def output_array(out: npt.NDArray[Any] | None, shape: tuple[int, ...], dtype: np.dtype) -> npt.NDArray[Any]:
    """Return ``out`` if it can be read into, a new array if it is None."""
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
        raise SchemaError(f"out has the shape {out.shape} and the type {out.dtype}; it must be a C-contiguous {dtype} array {shape}")
    return out

"""Row tables of any source that is not text, checked: targets, task numbers, weights; and the identity of arrays."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DataError
from ..labels import Target
from ..text.spool import Block

_TEXTS = "OUST"
"""Kinds of arrays that hold texts."""


def array_digest(arrays: Mapping[str, Any]) -> str:
    """sha256 over name, type, shape and bytes of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        found = np.ascontiguousarray(array)
        digest.update(f"{name} {found.dtype.str}{found.shape}".encode())
        digest.update(repr(found.tolist()).encode() if found.dtype.hasobject else found.reshape(-1).view(np.uint8).data)
    return f"array:{digest.hexdigest()[:32]}"


def at_row(name: str, reason: str, row: int, column: int | str | None) -> DataError:
    """Build the error for data without lines: rows count from one, columns go by name or count from one."""
    where = f"row {row + 1}" + ("" if column is None else f", column {column!r}")
    return DataError(f"{where}: {reason}", name)


def row_tables(parts: Mapping[str, Any], target: Target, fault: Callable[[str, int], DataError]) -> Block:
    """Check some rows of the row tables: "y" float64 (or codes of texts), "task" int64 (or codes of names), "weight" float64.

    Raises
    ------
    DataError
        If a target, weight or task number is not a finite number (or, a task, no integer), or a name is missing.
    """
    block: Block = {}
    for name, values in parts.items():
        found = np.asarray(values)
        if name == "y":
            block["y"] = _target(found, target, fault)
        elif name == "task" and found.dtype.kind in _TEXTS:
            block["task"] = target.tasks.add(_texts(found, "the task is missing", fault), fault)
        else:
            block[name] = _numbers(found, name, fault)
    if "task" in block and block["task"].dtype.kind == "f":
        whole = np.rint(block["task"])
        _refuse(np.flatnonzero(whole != block["task"]), lambda row: f"task {block['task'][row]} is not an integer", fault)
        block["task"] = whole.astype(np.int64)
    if "weight" in block:
        _refuse(np.flatnonzero(block["weight"] < 0), lambda row: f"weight {block['weight'][row]} is negative", fault)
    return block


def _target(values: npt.NDArray[Any], target: Target, fault: Callable[[str, int], DataError]) -> npt.NDArray[np.float64]:
    if values.dtype.kind in _TEXTS and target.task == "classification":
        return target.add_texts(_texts(values, "the label is missing", fault), fault)
    numbers = _numbers(values, "label" if target.task == "classification" else "target", fault)
    target.add_numbers(numbers, fault)
    return numbers


def _texts(values: npt.NDArray[Any], gone: str, fault: Callable[[str, int], DataError]) -> list[str]:
    found = values.tolist()
    _refuse(np.array([row for row, value in enumerate(found) if _is_missing(value)]), lambda row: gone, fault)
    return [value.decode() if isinstance(value, bytes) else str(value) for value in found]


def _is_missing(value: Any) -> bool:
    # pandas.NA is equal to nothing and has no truth value either.
    return value is None or type(value).__name__ == "NAType" or value != value


def _numbers(values: npt.NDArray[Any], what: str, fault: Callable[[str, int], DataError]) -> npt.NDArray[np.float64]:
    if values.dtype.kind not in "biuf":
        raise fault(f"{what} has the type {values.dtype}; numbers are expected", 0)
    numbers = values.astype(np.float64)
    _refuse(np.flatnonzero(~np.isfinite(numbers)), lambda row: f"{what} {numbers[row]} is not finite", fault)
    return numbers


def _refuse(rows: npt.NDArray[Any], why: Callable[[int], str], fault: Callable[[str, int], DataError]) -> None:
    if rows.size:
        raise fault(why(int(rows[0])), int(rows[0]))

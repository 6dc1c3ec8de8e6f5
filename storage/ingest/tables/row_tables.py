"""Row tables of any source that is not text, checked: targets, task numbers, weights; and the identity of arrays."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import is_missing, name_of_number
from ...encoding.record import COVARIATE_RULE
from ...errors import DataError
from ..labels import Target
from ..options import COVARIATE
from ..text.spool import Block

_TEXTS = "OUST"  # kinds of arrays that hold texts


def array_digest(arrays: Mapping[str, Any]) -> str:
    """sha256 over name, type, shape and bytes of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        contiguous = np.ascontiguousarray(array)
        digest.update(f"{name} {contiguous.dtype.str}{contiguous.shape}".encode())
        digest.update(repr(contiguous.tolist()).encode() if contiguous.dtype.hasobject else contiguous.reshape(-1).view(np.uint8).data)
    return f"array:{digest.hexdigest()[:32]}"


def at_row(name: str, reason: str, row: int, column: int | str | None) -> DataError:
    """Build the error for data without lines: rows count from one, columns go by name or count from one."""
    position = f"row {row + 1}" + ("" if column is None else f", column {column!r}")
    return DataError(f"{position}: {reason}", name)


def row_tables(parts: Mapping[str, Any], target: Target, fault: Callable[[str, int], DataError]) -> Block:
    """Check some rows of the row tables: "y" float64 (or codes of texts), "task" int64 (or codes of names), "weight" and "covariate:NAME"
    float64. Raises DataError if a target, weight, covariate or task number is not a finite number (or, a task, no integer), or a name is
    missing. "id" becomes texts, as "id_lengths" and "id_bytes"."""
    block: Block = {}
    for name, values in parts.items():
        array = np.asarray(values)
        if name == "y":
            block["y"] = _check_target(array, target, fault)
        elif name == "id":
            block |= _check_ids(array, fault)
        elif name == "task" and array.dtype.kind in _TEXTS:
            block["task"] = target.tasks.add(_check_texts(array, "the task is missing", fault), fault)
        else:
            block[name] = _check_numbers(array, name.replace(":", " "), fault, f"; {COVARIATE_RULE}" if name.startswith(COVARIATE) else "")
    if "task" in block and block["task"].dtype.kind == "f":
        whole = np.rint(block["task"])
        _refuse_rows(np.flatnonzero(whole != block["task"]), lambda row: f"task {block['task'][row]} is not an integer", fault)
        block["task"] = whole.astype(np.int64)
    if "weight" in block:
        _refuse_rows(np.flatnonzero(block["weight"] < 0), lambda row: f"weight {block['weight'][row]} is negative", fault)
    return block


def _check_target(values: npt.NDArray[Any], target: Target, fault: Callable[[str, int], DataError]) -> npt.NDArray[np.float64]:
    if values.dtype.kind in _TEXTS and target.task != "regression":
        return target.add_texts(_check_texts(values, "the label is missing", fault), fault)
    target.note_kind(values.dtype.kind == "b")
    numbers = _check_numbers(values, "label" if target.task != "regression" else "target", fault)
    target.add_numbers(numbers, fault)
    return numbers


def _check_ids(values: npt.NDArray[Any], fault: Callable[[str, int], DataError]) -> Block:
    texts = [None if is_missing(value) else value for value in values.tolist()]
    _refuse_rows(np.array([row for row, value in enumerate(texts) if value is None]), lambda row: "the id is missing", fault)
    coded = [(value if isinstance(value, str) else name_of_number(value)).encode() for value in texts]
    lengths = np.array([len(text) for text in coded], dtype=np.int32)
    return {"id_lengths": lengths, "id_bytes": np.frombuffer(b"".join(coded), np.uint8)}


def _check_texts(values: npt.NDArray[Any], gone: str, fault: Callable[[str, int], DataError]) -> list[str]:
    texts = values.tolist()
    _refuse_rows(np.array([row for row, value in enumerate(texts) if is_missing(value)]), lambda row: gone, fault)
    return [value.decode() if isinstance(value, bytes) else str(value) for value in texts]


def _check_numbers(
    values: npt.NDArray[Any], what: str, fault: Callable[[str, int], DataError], advice: str = ""
) -> npt.NDArray[np.float64]:
    if values.dtype.kind not in "biuf":
        raise fault(f"{what} has the type {values.dtype}; numbers are expected{advice}", 0)
    numbers = values.astype(np.float64)
    _refuse_rows(np.flatnonzero(~np.isfinite(numbers)), lambda row: f"{what} {numbers[row]} is not finite{advice}", fault)
    return numbers


def _refuse_rows(rows: npt.NDArray[Any], why: Callable[[int], str], fault: Callable[[str, int], DataError]) -> None:
    if rows.size:
        raise fault(why(int(rows[0])), int(rows[0]))

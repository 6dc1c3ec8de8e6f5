"""Row tables of any source that is not text, checked: targets, task numbers, weights; and the identity of arrays."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import Words, fill_masked, is_missing, name_of_number, words_of_numbers, words_of_texts
from ...encoding.numbers import BEYOND, as_number, is_large_integer, is_missing_word
from ...encoding.record import COVARIATE_RULE
from ...errors import DataError
from ..labels import DROP_ADVICE, Fault, Target
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


def row_tables(parts: Mapping[str, Any], target: Target, fault: Fault) -> Block:
    """Check some rows of the row tables: "y" float64 (or codes of texts), "task" int64 (or codes of names), "weight" and "covariate:NAME"
    float64. Raises DataError if a target, weight, covariate or task number is not a finite number (or, a task, no integer), or a name is
    missing. "id" becomes texts, as "id_lengths" and "id_bytes"."""
    block: Block = {}
    for name, values in parts.items():
        array = np.asanyarray(values)
        if target.missing_words and array.dtype.kind in _TEXTS:
            array = np.array([None if value in target.missing_words else value for value in array.tolist()], dtype=object)
        if name == "y":
            block["y"] = _check_target(array, target, fault)
        elif name == "id":
            block |= _check_ids(array, fault)
        elif name == "task":
            block["task"] = target.tasks.add(_check_tasks(array, fault), fault).astype(np.int64)
        else:
            block[name] = _check_numbers(array, name.replace(":", " "), fault, f"; {COVARIATE_RULE}" if name.startswith(COVARIATE) else "")
    if "weight" in block:
        _refuse_rows(np.flatnonzero(block["weight"] < 0), lambda row: f"weight {block['weight'][row]} is negative", fault)
    return block


def _check_target(values: npt.NDArray[Any], target: Target, fault: Fault) -> npt.NDArray[np.float64]:
    if target.task == "regression":
        return _check_numbers(values, "target", fault, DROP_ADVICE, is_dropped=target.drops_missing)
    words = _as_words(values, "label", fault, is_dropped=target.drops_missing)
    return target.met.add(words, fault, values.dtype.kind == "b")


def _check_tasks(values: npt.NDArray[Any], fault: Fault) -> Words:
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    if values.dtype.kind == "f":
        numbers = _check_numbers(values, "task", fault)
        _refuse_rows(np.flatnonzero(np.rint(numbers) != numbers), lambda row: f"task {numbers[row]} is not an integer", fault)
    return _as_words(values, "task", fault)


def _as_words(values: npt.NDArray[Any], what: str, fault: Fault, is_dropped: bool = False) -> Words:
    """Values that are compared for equality as texts; integers are not made floats of on the way."""
    if values.dtype.kind in _TEXTS:
        texts = [None if is_missing(value) else value for value in values.tolist()]
        return words_of_texts(value.decode() if isinstance(value, bytes) else value if value is None else str(value) for value in texts)
    numbers = _check_numbers(values, what, fault, is_dropped=is_dropped)
    return words_of_numbers(numbers if values.dtype.kind == "f" else values, True)


def _check_ids(values: npt.NDArray[Any], fault: Fault) -> Block:
    texts = [None if is_missing(value) else value for value in values.tolist()]
    _refuse_rows(np.array([row for row, value in enumerate(texts) if value is None]), lambda row: "the id is missing", fault)
    coded = [(value if isinstance(value, str) else name_of_number(value)).encode() for value in texts]
    lengths = np.array([len(text) for text in coded], dtype=np.int32)
    return {"id_lengths": lengths, "id_bytes": np.frombuffer(b"".join(coded), np.uint8)}


def _check_numbers(
    values: npt.NDArray[Any], what: str, fault: Fault, advice: str = "", *, is_dropped: bool = False
) -> npt.NDArray[np.float64]:
    if values.dtype.kind in _TEXTS:
        return _read_numbers(values, what, fault, advice, is_dropped)
    if values.dtype.kind not in "biuf":
        raise fault(f"{what} has the type {values.dtype}; numbers are expected{advice}", 0)
    numbers = fill_masked(values).astype(np.float64)
    if what == "target":
        _refuse_rows(np.flatnonzero(np.isnan(numbers) & (not is_dropped)), lambda row: f"the target is missing{advice}", fault)
        advice = ""
    odd = ~np.isfinite(numbers) & ~(np.isnan(numbers) & is_dropped)
    _refuse_rows(np.flatnonzero(odd), lambda row: f"{what} {numbers[row]} is not finite{advice}", fault)
    return numbers


def _read_numbers(values: npt.NDArray[Any], what: str, fault: Fault, advice: str, is_dropped: bool) -> npt.NDArray[np.float64]:
    """Numbers that texts, or other objects, are."""
    numbers = np.empty(len(values))
    for row, value in enumerate(values.tolist()):
        word = "" if is_missing(value) else value.decode() if isinstance(value, bytes) else str(value)
        number = np.nan if is_dropped and is_missing_word(word) else as_number(word)
        if number is None:
            reason = f"{what} {word!r} {BEYOND if is_large_integer(word) else 'is not a finite number'}"
            raise fault((f"the {what} {f'{word!r} ' if word else ''}is missing" if is_missing_word(word) else reason) + advice, row)
        numbers[row] = number
    return numbers


def _refuse_rows(rows: npt.NDArray[Any], why: Callable[[int], str], fault: Fault) -> None:
    if rows.size:
        raise fault(why(int(rows[0])), int(rows[0]))

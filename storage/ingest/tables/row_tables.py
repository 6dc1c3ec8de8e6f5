"""Checks the row tables (targets, task numbers, weights) of all sources except text, and identifies arrays by their content."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ...encoding.chunks import (
    Words,
    fill_masked,
    first_rows,
    in_order,
    is_missing,
    name_of_number,
    objects_of_words,
    words_of_numbers,
    words_of_texts,
)
from ...encoding.record import BEYOND, COVARIATE_RULE, as_number, is_large_integer, is_missing_word
from ...errors import DataError
from ..files import release_pages
from ..labels import DROP_ADVICE, Fault, Target
from ..options import COVARIATE
from ..text.spool import Block

_PIECE = 1 << 22  # bytes whose digest is taken at once
_TEXTS = "OUST"  # kinds of arrays that hold texts


def array_digest(arrays: Iterable[tuple[str, Any]]) -> str:
    """Return the sha256 of name, type, shape and bytes of arrays."""
    digest = hashlib.sha256()
    for name, array in arrays:
        values = np.atleast_1d(np.asarray(array))
        digest.update(f"{name} {values.dtype.str}{values.shape}".encode())
        if values.dtype.hasobject:
            digest.update(repr(values.tolist()).encode())
            continue
        step = max(1, _PIECE * len(values) // max(1, values.nbytes))
        for lo in range(0, len(values), step):
            digest.update(np.ascontiguousarray(values[lo : lo + step]).reshape(-1).view(np.uint8).data)
            release_pages(values)
    return f"array:{digest.hexdigest()[:32]}"


def at_row(name: str, reason: str, row: int, column: int | str | None) -> DataError:
    """Return the error for a source that is not text. Rows count from one; a column is given by name, or by number counted from one."""
    position = f"row {row + 1}" + ("" if column is None else f", column {column!r}")
    return DataError(f"{position}: {reason}", name)


def row_tables(parts: Mapping[str, Any], target: Target, fault: Fault) -> Block:
    """Check some rows of the row tables and return them in stored form.

    "y" becomes float64 (or codes of texts), "task" int64 (or codes of names), "weight" and "covariate:NAME" float64, and "id" texts, as
    "id_lengths" and "id_bytes". Raises DataError if a target, weight, covariate or task number is not a finite number (or a task is not an
    integer), or a name is missing.
    """
    block: Block = {}
    for name, values in parts.items():
        array = values if isinstance(values, Words) else np.asanyarray(values)
        if name != "id" and not isinstance(array, Words) and array.dtype.kind in _TEXTS:
            array = _words_of_objects(array)
        if target.missing_words and isinstance(array, Words):
            array = array._replace(words=["" if word in target.missing_words else word for word in array.words])
        if name == "y":
            block["y"] = _check_target(array, target, fault)
        elif name == "id":
            block |= _check_ids(array, fault)
        elif name == "task":
            block["task"] = target.tasks.add(_check_tasks(array, fault), fault).astype(np.int64)
        else:
            advice = f"; {COVARIATE_RULE}" if name.startswith(COVARIATE) else ""
            block[name] = _check_numbers(array, name.replace(":", " ", 1), fault, advice)
    if "weight" in block:
        _refuse_rows(np.flatnonzero(block["weight"] < 0), lambda row: f"weight {block['weight'][row]} is negative", fault)
    return block


def _words_of_objects(values: npt.NDArray[Any]) -> Words:
    texts = [None if is_missing(value) else value for value in values.tolist()]
    return words_of_texts(value.decode() if isinstance(value, bytes) else value if value is None else str(value) for value in texts)


def _check_target(values: Words | npt.NDArray[Any], target: Target, fault: Fault) -> npt.NDArray[np.float64]:
    if target.task == "regression":
        return _check_numbers(values, "target", fault, DROP_ADVICE, is_dropped=target.drops_missing)
    words = _as_words(values, "label", fault, is_dropped=target.drops_missing)
    return target.met.add(words, fault, not isinstance(values, Words) and values.dtype.kind == "b")


def _check_tasks(values: Words | npt.NDArray[Any], fault: Fault) -> Words:
    if not isinstance(values, Words) and values.dtype.kind == "b":
        values = values.astype(np.int64)
    if not isinstance(values, Words) and values.dtype.kind == "f":
        numbers = _check_numbers(values, "task", fault)
        _refuse_rows(np.flatnonzero(np.rint(numbers) != numbers), lambda row: f"task {numbers[row]} is not an integer", fault)
    return _as_words(values, "task", fault)


def _as_words(values: Words | npt.NDArray[Any], what: str, fault: Fault, is_dropped: bool = False) -> Words:
    """Return values as texts, so that equal values can be found by comparing texts. Integers are not converted to floats on the way."""
    if isinstance(values, Words):
        return values
    numbers = _check_numbers(values, what, fault, is_dropped=is_dropped)
    return words_of_numbers(numbers if values.dtype.kind == "f" else values, True)


def _check_ids(values: Words | npt.NDArray[Any], fault: Fault) -> Block:
    texts = (objects_of_words(values) if isinstance(values, Words) else values).tolist()
    gone = np.array([is_missing(value) for value in texts], dtype=bool)
    _refuse_rows(np.flatnonzero(gone), lambda row: "the id is missing", fault)
    coded = [(value if isinstance(value, str) else name_of_number(value)).encode() for value in texts]
    lengths = np.array([len(text) for text in coded], dtype=np.int32)
    return {"id_lengths": lengths, "id_bytes": np.frombuffer(b"".join(coded), np.uint8)}


def _check_numbers(
    values: Words | npt.NDArray[Any], what: str, fault: Fault, advice: str = "", *, is_dropped: bool = False
) -> npt.NDArray[np.float64]:
    if isinstance(values, Words):
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


def _read_numbers(values: Words, what: str, fault: Fault, advice: str, is_dropped: bool) -> npt.NDArray[np.float64]:
    """Return the numbers represented by texts or other objects."""
    words = [*values.words, ""]
    codes, table = np.where(values.codes < 0, len(values.words), values.codes), np.empty(len(words))
    first = first_rows(codes, len(words))
    for k in in_order(first, len(codes)):
        word = words[k]
        number = np.nan if is_dropped and is_missing_word(word) else as_number(word)
        if number is None:
            reason = f"{what} {word!r} {BEYOND if is_large_integer(word) else 'is not a finite number'}"
            told = f"the {what} {f'{word!r} ' if word else ''}is missing" if is_missing_word(word) else reason
            raise fault(told + advice, int(first[k]))
        table[k] = number
    return table[codes]


def _refuse_rows(rows: npt.NDArray[Any], why: Callable[[int], str], fault: Fault) -> None:
    if rows.size:
        raise fault(why(int(rows[0])), int(rows[0]))

"""Small text files about the rows of a store: pairs of rows with a value, or one text per row."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from ..errors import DataError, DigestMismatch
from ..objects import file_digest
from ..text.open_text import read_lines

_APART = re.compile(r"[,;\s]+")


def read_pairs(path: str, n_rows: int, allowed: tuple[int, ...], *, ordered: bool = False) -> np.ndarray:
    """Return pairs of rows with their values, int64 (m, 3), in the order of a text file; repeated pairs are returned once.

    A line has two rows, counted from 0, and a value, separated by commas or blanks (``3,17,-1``). A header line, empty lines and text after
    ``#`` are ignored. ``allowed`` lists the values a pair may have. With ``ordered``, (i, j) and (j, i) are different pairs. Raises
    DataError, with file and line, for an invalid pair, or a pair with two different values.
    """
    seen: dict[tuple[int, int], tuple[int, int]] = {}
    for line, words in _split_rows(path):
        i, j, value = _read_pair(words, path, line, n_rows, allowed)
        key = (i, j) if ordered or i < j else (j, i)
        before = seen.setdefault(key, (value, line))
        if before[0] != value:
            raise DataError(f"rows {i} and {j} have the value {value} here and {before[0]} in line {before[1]}", path, line)
    if not seen:
        raise DataError("holds no pairs; write one per line: row,row,value", path)
    return np.array([(i, j, value) for (i, j), (value, _) in seen.items()], dtype=np.int64)


def read_edges(path: str, n: int | None = None, what: str = "feature") -> np.ndarray:
    """Return the edges of a graph, int64 (m, 2), in the order of a text file; each edge has the smaller node first.

    A line has two nodes, counted from 0, separated by a comma or blanks (``3,17``); header, empty lines and comments are ignored as in
    `read_pairs`. ``n`` is the number of nodes, if known; messages call a node ``what``. Raises DataError, with file and line, for an
    invalid edge, or an edge that is repeated in either order.
    """
    seen: dict[tuple[int, int], int] = {}
    for line, words in _split_rows(path):
        try:
            i, j = (int(word) for word in words)
        except ValueError:
            raise DataError(f"{' '.join(words)!r} must be two integers: {what}, {what}", path, line) from None
        for node in (i, j):
            if node < 0 or (n is not None and node >= n):
                raise DataError(f"{what} {node} does not exist{'' if n is None else f', {what}s are 0 to {n - 1}'}", path, line)
        if i == j:
            raise DataError(f"{what} {i} has an edge to itself", path, line)
        before = seen.setdefault((min(i, j), max(i, j)), line)
        if before != line:
            raise DataError(f"the edge of {what}s {i} and {j} is both here and in line {before}", path, line)
    if not seen:
        raise DataError(f"holds no edges; write one per line: {what},{what}", path)
    return np.array(list(seen), dtype=np.int64)


def read_named_rows(path: str, n_rows: int, *, numbers: bool = False, least: int = 1) -> list[list[str | int | float]]:
    """Return the lines of a text file that assign names to rows, in order: ``[name, row]``, or ``[name, row, number]`` in every line.

    A name (of a query or group) has no commas or blanks; rows count from 0. With ``numbers``, a line may have a finite, non-negative
    number; at least one number of each name must be positive. Each name must have at least ``least`` rows. A first line without digits,
    empty lines and text after ``#`` are ignored.

    Raises DataError, with file and line, for an invalid or repeated line, or for the first line of a name
    with too few rows.
    """
    rows: list[list[str | int | float]] = []
    seen: dict[tuple[str, int], int] = {}
    for line, words in _split_rows(path):
        rows.append(_read_named_row(words, path, line, n_rows, numbers))
        name, row = str(rows[-1][0]), int(rows[-1][1])
        if (name, row) in seen:
            raise DataError(f"{name} has row {row} both here and in line {seen[name, row]}", path, line)
        if len(rows[-1]) != len(rows[0]):
            raise DataError(f"the line has {len(words)} words, but the first line has {len(rows[0])}", path, line)
        seen[name, row] = line
    if not rows:
        raise DataError("holds no rows; write one per line: name,row", path)
    _check_names(rows, list(seen.values()), path, least)
    return rows


def _check_names(rows: list[list[str | int | float]], lines: list[int], path: str, least: int) -> None:
    """Raise DataError for a name that has too few rows or only zeros as numbers. The error names the first line of the name."""
    firsts, counts = dict[str, int](), Counter[str]()
    weighty = {str(name) for name, _, *more in rows if not more or float(more[0])}
    for (name, *_), line in zip(rows, lines, strict=True):
        firsts.setdefault(str(name), line)
        counts[str(name)] += 1
    for name, line in firsts.items():
        if counts[name] < least:
            raise DataError(f"{name} has {counts[name]} row; at least {least} are needed", path, line)
        if name not in weighty:
            raise DataError(f"all numbers of {name} are 0; at least one must be positive", path, line)


def _read_named_row(words: list[str], path: str, line: int, n_rows: int, numbers: bool) -> list[str | int | float]:
    try:
        name, row, more = words[0], int(words[1]), [float(word) for word in words[2:]]
        if len(more) > numbers or not all(0 <= value < float("inf") for value in more):
            raise ValueError
    except (IndexError, ValueError):
        form = "a name, a row, and perhaps a number that is not negative" if numbers else "a name and a row"
        raise DataError(f"{' '.join(words)!r} must be {form}", path, line) from None
    if not 0 <= row < n_rows:
        raise DataError(f"row {row} is not in the store, whose rows are 0 to {n_rows - 1}", path, line)
    return [name, row, *more]


def matrix_file(path: str, n_rows: int) -> dict[str, str]:
    """Return path and sha256 of a ``.npy`` file with a matrix of all rows; `load_matrix` reads it. Raises DataError if the file does
    not hold such a matrix.
    """
    try:
        matrix = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError, EOFError) as error:
        # What numpy says of other files is no advice here: to load them as pickles.
        reason = f": {error.strerror}" if isinstance(error, OSError) and error.strerror else ""
        raise DataError(f"is not a .npy file of numbers{reason}", path) from None
    if matrix.dtype.kind not in "biuf":
        raise DataError(f"is not a .npy file of numbers: its entries are {matrix.dtype}", path)
    shape = matrix.shape
    if shape != (n_rows, n_rows):
        raise DataError(
            f"holds an array of shape {shape}; it must be ({n_rows}, {n_rows}): one row and one column per row of the store", path
        )
    return {"file": os.path.abspath(path), "sha256": file_digest(path)}


def load_matrix(record: Mapping[str, str]) -> np.ndarray:
    """Return the matrix of a file as float64. Raises DigestMismatch if the file has changed since its sha256 was recorded."""
    if file_digest(record["file"]) != record["sha256"]:
        raise DigestMismatch(f"{record['file']} is not the file that the run began with: its sha256 differs")
    return np.asarray(np.load(record["file"], allow_pickle=False), dtype=np.float64)


def _split_rows(path: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and words of each non-empty line, except a header line without any number."""
    plain = [text.partition("#")[0].strip() for text in read_row_texts(path)]
    lines = [(line, _APART.split(text)) for line, text in enumerate(plain, start=1) if text]
    named = bool(lines) and not any(character.isdigit() for word in lines[0][1] for character in word)
    yield from lines[named:]


def _read_pair(words: list[str], path: str, line: int, n_rows: int, allowed: tuple[int, ...]) -> tuple[int, int, int]:
    try:
        i, j, value = (int(word) for word in words)
    except ValueError:
        raise DataError(f"{' '.join(words)!r} must be three integers: row, row, value", path, line) from None
    for row in (i, j):
        if not 0 <= row < n_rows:
            raise DataError(f"row {row} is not in the store, whose rows are 0 to {n_rows - 1}", path, line)
    if i == j:
        raise DataError(f"row {i} is paired with itself", path, line)
    if value not in allowed:
        raise DataError(f"the value of a pair is {value}; it must be one of {', '.join(map(str, allowed))}", path, line)
    return i, j, value


def read_row_texts(path: str, n_rows: int | None = None) -> list[str]:
    """Return the lines of a UTF-8 text file, one per row of a store. Raises DataError if the file cannot be read or does not have
    ``n_rows`` lines.
    """
    lines = read_lines(path)
    if n_rows is not None and len(lines) != n_rows:
        reason = f"the file has {len(lines)} lines; there must be one for each of the {n_rows} rows of the store"
        raise DataError(reason, path, min(len(lines), n_rows) + 1)
    return lines

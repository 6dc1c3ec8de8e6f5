"""Compiled conversion of SVMlight lines to arrays; it returns a status code and a byte offset and never raises an exception."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._jit import compile_kernel
from .cells import to_double

OK, MORE, BAD_LABEL, UNKNOWN_LABEL, MISSING_COLON, BAD_INDEX, INDEX_LOW, INDEX_HIGH, NOT_ASCENDING, BAD_VALUE, TOO_LARGE = range(11)
"""Status of a call. After MORE, the caller reads the deferred numbers and calls again."""

AT, ROWS, NNZ, LINES, DEFERRED, LOWEST, HIGHEST, EXACT32, N_STATE = range(9)
"""Positions in ``state``:

* the next (or invalid) byte;
* rows, entries, line ends and deferred numbers of this call;
* the smallest and the largest index so far;
* 1 while float32 represents every value.
"""

_SPACE, _TAB, _CR, _LF, _HASH, _PLUS, _MINUS, _DOT, _COLON = 32, 9, 13, 10, 35, 43, 45, 46, 58
_GOOD, _BAD, _DEFER = 0, 1, 2
_TEN, _48, _ONE = np.uint64(10), np.uint64(48), np.uint64(1)
_FAR = 1 << 40

Pair = tuple[Any, int]


class Rules(NamedTuple):
    """Rules for lines.

    * ``low``, ``high``: smallest and largest index.
    * ``single``: whether values are first rounded to float32.
    * ``skip_qid``: whether ``qid:`` is ignored.
    * ``declared``: the labels allowed; empty for any label.
    * ``labelled``: whether there are labels. Without labels, a first word without a colon is ignored.
    """

    low: int
    high: int
    single: bool
    skip_qid: bool
    declared: npt.NDArray[np.float64]
    labelled: bool = True


class Lines(NamedTuple):
    """Output arrays.

    * ``lengths``, ``labels``: number of entries and label of each row.
    * ``cols``, ``vals``: index and value of each non-zero entry.
    * ``deferred``: for each number left to the exact parser, first byte, end, and position in ``vals`` (or -1 - row for a label).
    """

    lengths: npt.NDArray[np.int32]
    labels: npt.NDArray[np.float64]
    cols: npt.NDArray[np.int32]
    vals: npt.NDArray[np.float64]
    deferred: npt.NDArray[np.int64]


@compile_kernel
def _is_digit(c: int) -> bool:
    return 48 <= c <= 57


@compile_kernel
def _is_space(c: int) -> bool:
    return c == _SPACE or (_TAB <= c <= _CR and c != _LF)


@compile_kernel
def _ends_token(c: int) -> bool:
    return c in (_SPACE, _HASH) or _TAB <= c <= _CR


@compile_kernel
def _read_exponent(buf: npt.NDArray[np.uint8], p: int) -> Pair:
    """Return the value of the digits after "e" and the position after them; position -1 if there are none."""
    negative = buf[p] == _MINUS
    if negative or buf[p] == _PLUS:
        p += 1
    if not _is_digit(buf[p]):
        return 0, -1
    e = 0
    while _is_digit(buf[p]):
        e = min(e * 10 + (np.int64(buf[p]) - 48), _FAR)
        p += 1
    return (-e if negative else e), p


@compile_kernel
def _many_digits(buf: npt.NDArray[np.uint8], p: int) -> tuple[np.uint64, int, bool]:
    """Return the first 19 significant digits, the corresponding exponent, and whether a digit was omitted."""
    w, q, n_digits, fraction, cut = np.uint64(0), 0, 0, False, False
    while True:
        c = buf[p]
        if c == _DOT:
            fraction = True
        elif not _is_digit(c):
            return w, q, cut
        else:
            if n_digits < 19:
                w = w * _TEN + (np.uint64(c) - _48)
                n_digits += 1 if w > 0 else 0
                q -= 1 if fraction else 0
            else:
                cut = True
                q += 0 if fraction else 1
        p += 1


@compile_kernel
def _read_number(buf: npt.NDArray[np.uint8], p: int) -> tuple[float, int, int]:
    """Return the value of the number at p, the position after it, and whether it is valid, invalid, or needs the exact parser."""
    negative = buf[p] == _MINUS
    if negative or buf[p] == _PLUS:
        p += 1
    first = p
    w, q, cut = np.uint64(0), 0, False
    while _is_digit(buf[p]):
        w = w * _TEN + (np.uint64(buf[p]) - _48)
        p += 1
    digits = p - first
    if buf[p] == _DOT:
        p += 1
        point = p
        while _is_digit(buf[p]):
            w = w * _TEN + (np.uint64(buf[p]) - _48)
            p += 1
        q = point - p
        digits -= q
    if digits == 0:
        return 0.0, p, _BAD
    if digits > 19:
        w, q, cut = _many_digits(buf, first)
    if buf[p] == 101 or buf[p] == 69:
        e, p = _read_exponent(buf, p + 1)
        if p < 0:
            return 0.0, first, _BAD
        q += e
    value = to_double(w, q)
    if cut and to_double(w + _ONE, q) != value:
        return 0.0, p, _DEFER
    return (-value if negative else value), p, _GOOD


@compile_kernel
def _read_index(buf: npt.NDArray[np.uint8], p: int) -> Pair:
    """Return the unsigned integer at p, limited to values below 2^41, and the position after it."""
    value = 0
    while _is_digit(buf[p]):
        value = min(value * 10 + (np.int64(buf[p]) - 48), _FAR)
        p += 1
    return value, p


@compile_kernel
def _is_declared(declared: npt.NDArray[np.float64], value: float) -> bool:
    for label in declared:
        if label == value:
            return True
    return declared.size == 0


@compile_kernel
def _pass_qid(buf: npt.NDArray[np.uint8], p: int) -> int:
    """Return the position after ``qid:integer`` at p, or -1."""
    if not (buf[p] == 113 and buf[p + 1] == 105 and buf[p + 2] == 100 and buf[p + 3] == _COLON):
        return -1
    _, q = _read_index(buf, p + 4)
    return q if q > p + 4 and _ends_token(buf[q]) else -1


@compile_kernel
def _check_index(index: Any, previous: Any, rules: Rules) -> int:
    if index < rules.low:
        return INDEX_LOW
    if index > rules.high:
        return INDEX_HIGH
    return OK if index > previous else NOT_ASCENDING


@compile_kernel
def _defer_number(lines: Lines, state: npt.NDArray[np.int64], p: int, q: int, place: int) -> int:
    k = state[DEFERRED]
    if k == lines.deferred.shape[0]:
        return MORE
    lines.deferred[k, 0], lines.deferred[k, 1], lines.deferred[k, 2] = p, q, place
    state[DEFERRED] = k + 1
    return OK


@compile_kernel
def _read_label(buf: npt.NDArray[np.uint8], p: int, rules: Rules, lines: Lines, state: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Read the label at p. Return the status, and the position after the label or of the error."""
    value, q, kind = _read_number(buf, p)
    if kind == _BAD or not _ends_token(buf[q]):
        return BAD_LABEL, p
    lines.labels[state[ROWS]] = value
    if kind == _DEFER:
        return _defer_number(lines, state, p, q, -1 - state[ROWS]), q
    if not np.isfinite(value):
        return TOO_LARGE, p
    return (OK, q) if _is_declared(rules.declared, value) else (UNKNOWN_LABEL, p)


@compile_kernel
def _pass_label(buf: npt.NDArray[np.uint8], p: int) -> int:
    """Return the position after the word at p, or p itself if the word has a colon and is therefore an entry."""
    q = p
    while not _ends_token(buf[q]):
        if buf[q] == _COLON:
            return p
        q += 1
    return q


@compile_kernel
def _read_entries(buf: npt.NDArray[np.uint8], p: int, rules: Rules, lines: Lines, state: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Read index:value pairs up to a line end or comment. Return the status, and the position of this end or of the error."""
    previous, nnz, exact32 = np.int64(-1), state[NNZ], True
    while True:
        while _is_space(buf[p]):
            p += 1
        if buf[p] == _LF or buf[p] == _HASH:
            break
        index, q = _read_index(buf, p)
        if q == p or buf[q] != _COLON:
            behind = _pass_qid(buf, p) if rules.skip_qid and previous == -1 else -1
            if behind < 0:
                return (MISSING_COLON if q > p and _ends_token(buf[q]) else BAD_INDEX), p
            p = behind
            continue
        status = _check_index(index, previous, rules)
        if status != OK:
            return status, p
        if previous < 0:
            state[LOWEST] = min(state[LOWEST], index)
        p = q + 1
        value, q, kind = _read_number(buf, p)
        if kind == _BAD or not _ends_token(buf[q]):
            return BAD_VALUE, p
        rounded = np.float64(np.float32(value))
        if rules.single:
            value = rounded
        if not np.isfinite(value):
            return TOO_LARGE, p
        if kind == _DEFER and _defer_number(lines, state, p, q, nnz) == MORE:
            return MORE, p
        if value != 0.0 or kind == _DEFER:
            lines.cols[nnz], lines.vals[nnz] = index, value
            nnz += 1
            exact32 = exact32 and rounded == value
        previous, p = index, q
    state[NNZ], state[HIGHEST] = nnz, max(state[HIGHEST], previous)
    state[EXACT32] &= exact32
    return OK, p


@compile_kernel
def _read_row(buf: npt.NDArray[np.uint8], p: int, rules: Rules, lines: Lines, state: npt.NDArray[np.int64]) -> tuple[int, int]:
    """Read one row. If any part of the row is invalid, nothing of it is counted."""
    first, waiting = state[NNZ], state[DEFERRED]
    status, q = OK, p
    if rules.labelled:
        status, q = _read_label(buf, p, rules, lines, state)
    else:
        q = _pass_label(buf, p)
    if status == OK:
        status, q = _read_entries(buf, q, rules, lines, state)
    if status != OK:
        state[NNZ], state[DEFERRED] = first, waiting
        return status, q
    lines.lengths[state[ROWS]] = state[NNZ] - first
    state[ROWS] += 1
    return OK, q


@compile_kernel
def parse_lines(buf: npt.NDArray[np.uint8], stop: int, rules: Rules, lines: Lines, state: npt.NDArray[np.int64]) -> int:
    """Parse the lines that start in ``buf[state[AT]:stop]``; they must all end in ``buf``, at least 4 bytes before its end.

    ``lines`` is output, with space for half as many rows and a quarter as many entries as there are bytes; ``state`` (N_STATE,) is input
    and output. Returns the status. Unless it is OK, ``state[AT]`` is the invalid byte (for MORE: the start of the line).
    """
    p = state[AT]
    for counter in (ROWS, NNZ, LINES, DEFERRED):
        state[counter] = 0
    while p < stop:
        begin = p
        while _is_space(buf[p]):
            p += 1
        if buf[p] != _LF and buf[p] != _HASH:
            status, p = _read_row(buf, p, rules, lines, state)
            if status != OK:
                state[AT] = begin if status == MORE else p
                return status
        while buf[p] != _LF:
            p += 1
        p += 1
        state[LINES] += 1
    state[AT] = p
    return OK

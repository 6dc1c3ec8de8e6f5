"""A slow, strict reading of SVMlight text, line by line with the standard library: what the compiled parser must agree with."""

import re

import numpy as np
import scipy.sparse as sp

NUMBER = rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"


class Refused(Exception):
    """The first bad line, counted from one."""

    def __init__(self, line, why):
        super().__init__(f"{line}: {why}")
        self.line = line


def _number(token, line, single=False):
    if not re.fullmatch(NUMBER, token):
        raise Refused(line, f"{token!r} is no number")
    value = float(token)
    if single:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    if not np.isfinite(value):
        raise Refused(line, f"{token!r} is too large")
    return value


def _entry(token, line, low, high, previous, single):
    index, colon, value = token.partition(b":")
    if not colon or not re.fullmatch(rb"[0-9]+", index):
        raise Refused(line, f"{token!r} is no entry")
    # int() refuses thousands of digits, leading zeros included
    index = int(index.lstrip(b"0") or b"0") if len(index.lstrip(b"0")) < 20 else 10**20
    if not low <= index <= high or index <= previous:
        raise Refused(line, f"index {index}")
    return index, _number(value, line, single)


def read(text, *, low=1, high=2**31 - 2, single=False, skip_qid=False, declared=None):
    """Rows as [(index, value), …] without zeros, and labels; or `Refused`."""
    rows, labels = [], []
    for line, content in enumerate(text.split(b"\n"), 1):
        tokens = content.partition(b"#")[0].split()
        if not tokens:
            continue
        labels.append(_number(tokens[0], line))
        if declared is not None and labels[-1] not in declared:
            raise Refused(line, f"label {labels[-1]}")
        row, previous = [], -1
        for token in tokens[1:]:
            if skip_qid and previous == -1 and re.fullmatch(rb"qid:[0-9]+", token):
                continue
            previous, value = _entry(token, line, low, high, previous, single)
            row.append((previous, value))
        rows.append([(index, value) for index, value in row if value != 0])
    return rows, np.array(labels)


def matrix(rows, n_cols, first=1):
    """Rows as a CSC array."""
    cells = [(i, index - first, value) for i, row in enumerate(rows) for index, value in row]
    i, j, v = (np.array(part) for part in zip(*cells, strict=True)) if cells else (np.zeros(0, int), np.zeros(0, int), np.zeros(0))
    return sp.csc_array((v, (i, j)), shape=(len(rows), n_cols))

"""SVMlight / LIBSVM text to blocks of rows: whole lines in a reused buffer, a compiled parser, faults by file, line and column.

A line is ``label index:value index:value … # comment``; indices ascend and count from one (see ``zero_based``). Entries that are zero are
dropped, blank lines and comments are skipped, ``qid:`` is refused or passed over on request. Without labels (``no_labels``) a line starts
with its first entry, or with a word without a colon that is passed over. Numbers are plain decimals, read to the nearest float64 (as
`float` does), with the rare undecided case left to `float` itself; "nan", "inf", "1_000" and anything too large are refused.
"""

import re
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from ...encoding.numbers import is_decimal
from ...errors import DataError
from ...text.open_text import Readable
from ..labels import describe_labels, tidy_label
from . import lines as codes
from .lines import Lines, Rules, parse_lines
from .spool import Block

_SPARE = 16
_NEWLINE = 10
_UNSET = 1 << 40
_NAMED = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class LineParser:
    """Parses streams of text; its arrays are reused from buffer to buffer, so a block must be copied before the next one is asked for.
    ``high_rule``: why an index may be too large, for the message; ``buffer``, ``max_line``: bytes read at once, and of a line at most."""

    def __init__(self, name: str, rules: Rules, high_rule: str, buffer: int, max_line: int) -> None:
        self.name, self.rules, self.high_rule, self.max_line = name, rules, high_rule, max_line
        self._state = np.zeros(codes.N_STATE, np.int64)
        self._state[codes.LOWEST], self._state[codes.HIGHEST] = _UNSET, -1
        self._deferred = np.empty((1024, 3), np.int64)
        self._lines_before: Callable[[], int] = int
        self._passed = 0
        self._resize(buffer)

    def _resize(self, capacity: int) -> None:
        self.buffer = np.zeros(capacity + _SPARE, np.uint8)
        rows, entries = capacity // 2 + 2, capacity // 4 + 2
        row_arrays = np.empty(rows, np.int32), np.empty(rows, np.float64)
        self._lines = Lines(*row_arrays, np.empty(entries, np.int32), np.empty(entries, np.float64), self._deferred)

    @property
    def lowest(self) -> int:
        """Least index so far; huge when there was none."""
        return int(self._state[codes.LOWEST])

    @property
    def highest(self) -> int:
        """Greatest index so far, entries that are zero included; -1 when there was none."""
        return int(self._state[codes.HIGHEST])

    def blocks(self, stream: Readable, lines_before: Callable[[], int]) -> Iterator[tuple[Block, int, int]]:
        """Parse a stream that starts with a line; ``lines_before``: number of lines before it, asked for only when an error is reported.
        Yields rows (``lengths``, ``cols``, ``vals``, and ``y`` if there are labels), and the bytes and lines of the stream parsed so far.
        Raises DataError at the first line that breaks a rule."""
        self._lines_before, self._passed = lines_before, 0
        carried = seen = lines = 0
        while True:
            have, end = self._fill(stream, carried)
            if end == 0:
                return
            at, status = 0, codes.MORE
            while status == codes.MORE:
                status, block = self._parse(at, end)
                at = int(self._state[codes.AT])
                lines += int(self._state[codes.LINES])
                yield block, seen + at, lines
            self._passed = lines
            seen += end
            carried = have - end
            self.buffer[:carried] = self.buffer[end:have]

    def _fill(self, stream: Readable, have: int) -> tuple[int, int]:
        """Read behind the ``have`` bytes kept; bytes now in the buffer, and the end of the last whole line among them."""
        while True:
            capacity = self.buffer.size - _SPARE
            while have < capacity and (got := stream.readinto(self.buffer[have:capacity].data)):
                have += got
            if have < capacity:
                if have and self.buffer[have - 1] != _NEWLINE:
                    self.buffer[have] = _NEWLINE
                    have += 1
                return have, have
            end = _last_line_end(self.buffer, have)
            if end:
                return have, end
            if capacity >= self.max_line:
                number = self._lines_before() + self._passed + 1
                raise DataError(f"the line is longer than {self.max_line} bytes; raise the budget (--budget)", self.name, number)
            old = self.buffer
            self._resize(min(2 * capacity, self.max_line))
            self.buffer[:have] = old[:have]

    def _parse(self, start: int, end: int) -> tuple[int, Block]:
        """Parse ``buffer[start:end]``."""
        self._state[codes.AT], self._state[codes.EXACT32] = start, 1
        status = parse_lines(self.buffer, end, self.rules, self._lines, self._state)
        if status not in (codes.OK, codes.MORE):
            self._refuse(status, int(self._state[codes.AT]))
        rows, nnz, waiting = (int(self._state[counter]) for counter in (codes.ROWS, codes.NNZ, codes.DEFERRED))
        if status == codes.MORE and int(self._state[codes.AT]) == start:
            self._deferred = np.empty((2 * len(self._deferred), 3), np.int64)
            self._lines = self._lines._replace(deferred=self._deferred)
        block = {"lengths": self._lines.lengths[:rows], "cols": self._lines.cols[:nnz], "vals": self._lines.vals[:nnz]}
        if self.rules.labelled:
            block["y"] = self._lines.labels[:rows]
        if waiting:
            self._settle(block, waiting)
        if self._state[codes.EXACT32]:
            block["vals"] = block["vals"].astype(np.float32)
        return status, block

    def _settle(self, block: Block, waiting: int) -> None:
        """Read with `float` the numbers of which 19 digits did not decide the last bit."""
        for begin, end, slot in self._deferred[:waiting].tolist():
            value = float(self.buffer[begin:end].tobytes())
            if slot < 0:
                if not np.isfinite(value):
                    self._refuse(codes.TOO_LARGE, begin)
                if self.rules.declared.size and value not in self.rules.declared:
                    self._refuse(codes.UNKNOWN_LABEL, begin)
                block["y"][-1 - slot] = value
                continue
            with np.errstate(over="ignore"):
                rounded = float(np.float32(value))
            value = rounded if self.rules.single else value
            if not np.isfinite(value):
                self._refuse(codes.TOO_LARGE, begin)
            block["vals"][slot] = value
            self._state[codes.EXACT32] &= rounded == value
        _drop_zeros(block)

    def _refuse(self, status: int, at: int) -> NoReturn:
        begin = _last_line_end(self.buffer, at)
        number = self._lines_before() + self._passed + int(np.count_nonzero(self.buffer[:at] == _NEWLINE)) + 1
        token = re.match(rb"[^\s#]*", self.buffer[at : at + 40].tobytes())
        shown = (token.group() if token else b"").decode("ascii", errors="backslashreplace")
        before = self.buffer[begin:at].tobytes()
        raise DataError(self._reason(status, shown, before), self.name, number, at - begin + 1)

    def _reason(self, status: int, token: str, before: bytes) -> str:
        index = token.partition(":")[0]
        if status == codes.BAD_LABEL and "," in token:
            return f"label {token!r} is a list; one number per row is expected, data with several labels a row are not supported"
        if status == codes.BAD_LABEL and ":" in token:
            return f"label {token!r} is not a decimal number; for text without labels set --no-labels"
        if status == codes.UNKNOWN_LABEL:
            return f"label {token} is not one of the declared labels {describe_labels([tidy_label(v) for v in self.rules.declared])}"
        if status == codes.MISSING_COLON:
            return f"{token!r} has no colon; entries are index:value"
        if status == codes.BAD_INDEX and token.startswith("qid:"):
            return f"{token!r}: query ids are not used; set --qid ignore to pass over them"
        if status == codes.BAD_INDEX:
            return f"{token!r} does not start with an index; entries are index:value with a non-negative integer index"
        if status == codes.INDEX_LOW:
            return "index 0: indices count from one; for a file that counts from zero set --zero-based yes (or auto)"
        if status == codes.INDEX_HIGH:
            return f"index {index} {self.high_rule}"
        if status == codes.NOT_ASCENDING:
            previous = re.findall(rb"(\d+):", before)[-1].decode()
            is_twice = previous.lstrip("0") == index.lstrip("0")
            return f"index {index} occurs twice in the row" if is_twice else f"index {index} comes after {previous}; indices must ascend"
        if status == codes.TOO_LARGE:
            kind = "float32" if self.rules.single and is_decimal(token) and np.isfinite(float(token)) else "float64"
            return f"{token!r} is beyond the range of {kind}"
        what = "label" if status == codes.BAD_LABEL else "value"
        if _NAMED.fullmatch(token):
            return f"{what} {token!r} is not finite; missing and infinite values are refused"
        return f"{what} {token!r} is not a decimal number"


def _last_line_end(buffer: npt.NDArray[np.uint8], end: int) -> int:
    """Position behind the last line end in ``buffer[:end]``; 0 if there is none."""
    step = 1 << 12
    while end > 0:
        start = max(0, end - step)
        position = buffer[start:end].tobytes().rfind(b"\n")
        if position >= 0:
            return start + position + 1
        end, step = start, 2 * step
    return 0


def _drop_zeros(block: Block) -> None:
    """Remove entries that turned out to be zero, in place of the block's arrays."""
    zero = np.flatnonzero(block["vals"] == 0.0)
    if zero.size:
        rows = np.searchsorted(np.cumsum(block["lengths"]), zero, side="right")
        block["lengths"] = block["lengths"] - np.bincount(rows, minlength=len(block["lengths"])).astype(np.int32)
        block["cols"], block["vals"] = np.delete(block["cols"], zero), np.delete(block["vals"], zero)

"""SVMlight / LIBSVM text to blocks of rows: whole lines in a reused buffer, a compiled parser, errors with file, line and column.

A line is ``label index:value index:value … # comment``; indices ascend and count from one (see ``zero_based``). Zero entries are dropped,
blank lines and comments are skipped, and ``qid:`` is rejected or, on request, ignored. Without labels (``no_labels``) a line starts with
its first entry, or with a word without a colon, which is ignored. Numbers are plain decimals, read to the nearest float64 (as by `float`);
the rare undecided cases are left to `float` itself. "nan", "inf", "1_000" and numbers that are too large are rejected.
"""

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, NoReturn

import google_crc32c
import numpy as np
import numpy.typing as npt

from ...encoding.record import is_decimal
from ...errors import DataError, DigestMismatch, SchemaError
from ...meta import Label
from ...text.open_text import Readable, open_text
from ..labels import check_declared, describe_labels, tidy_label
from ..options import MAX_COLUMNS, check_integer
from . import lines as codes
from .lines import Lines, Rules, parse_lines
from .spool import Block

_SPARE = 16
_NEWLINE = 10
_UNSET = 1 << 40
_NAMED = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)


class LineParser:
    """Parses streams of text. Its arrays are reused, so a block must be copied before the next one is requested.

    ``high_rule`` explains in messages why an index is too large. ``buffer`` is the number of bytes read at a time, and ``max_line`` the
    largest length of a line in bytes.
    """

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
        """Smallest index so far; a huge number if there was none."""
        return int(self._state[codes.LOWEST])

    @property
    def highest(self) -> int:
        """Largest index so far, including zero entries; -1 if there was none."""
        return int(self._state[codes.HIGHEST])

    def blocks(self, stream: Readable, lines_before: Callable[[], int]) -> Iterator[tuple[Block, int, int]]:
        """Parse a stream that starts at the beginning of a line. ``lines_before`` returns the number of lines before the stream, and is
        called only for errors.

        Yields rows (``lengths``, ``cols``, ``vals``, and ``y`` if there are labels), and the numbers of bytes and lines of the stream
        parsed so far. Raises DataError for the first line that breaks a rule.
        """
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
        """Append bytes of the stream to the ``have`` bytes in the buffer. Return the number of bytes now in the buffer, and the end of the
        last whole line.
        """
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
        """Read with `float` the numbers for which 19 digits did not determine the last bit."""
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
            return f"{what} {token!r} is not finite; missing and infinite values are rejected"
        return f"{what} {token!r} is not a decimal number"


def _last_line_end(buffer: npt.NDArray[np.uint8], end: int) -> int:
    """Return the position after the last line end in ``buffer[:end]``; 0 if there is none."""
    step = 1 << 12
    while end > 0:
        start = max(0, end - step)
        position = buffer[start:end].tobytes().rfind(b"\n")
        if position >= 0:
            return start + position + 1
        end, step = start, 2 * step
    return 0


def _drop_zeros(block: Block) -> None:
    """Remove entries that turned out to be zero, in place."""
    zero = np.flatnonzero(block["vals"] == 0.0)
    if zero.size:
        rows = np.searchsorted(np.cumsum(block["lengths"]), zero, side="right")
        block["lengths"] = block["lengths"] - np.bincount(rows, minlength=len(block["lengths"])).astype(np.int32)
        block["cols"], block["vals"] = np.delete(block["cols"], zero), np.delete(block["vals"], zero)


# SVMlight text as a stream of rows that is read once, piece by piece, and can be taken up at any line.

PIECE = 8 << 20  # bytes of text of one piece
MAX_LINE = 64 << 20

_LINE_END = b"\n"


class TextPiece(NamedTuple):
    """Some rows of a text in CSR form (indices from zero).

    * ``y``: the labels as written.
    * ``end``, ``lines``: bytes and lines of the text up to the end of the piece.
    * ``last``: whether the text ends there.
    """

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    end: int
    lines: int
    last: bool


class Consumed(NamedTuple):
    """The beginning of a text that was processed: its length and its crc32c."""

    nbytes: int
    crc: int

    def extended(self, text: bytes) -> "Consumed":
        """Return the record extended by more text."""
        return Consumed(self.nbytes + len(text), google_crc32c.extend(self.crc, text))


class RowText:
    """Reads SVMlight text from a file (plain or compressed) or standard input ("-").

    Each row has ``n_features`` columns and a label, which is one of ``labels`` (numbers; None: any number). Indices count from one or zero.
    ``consumed`` is the text processed so far. A text opened at a later position is still read from its beginning, at some GB/s, so that
    ``consumed`` is known and can be compared (see `expect`). ``ended`` says whether the last piece was taken. Raises SchemaError if the
    number of features is not a positive integer, or labels are not numbers.
    """

    def __init__(self, source: str, n_features: int, labels: Iterable[Label] | None = None, zero_based: bool = False) -> None:
        self.source, self.name = source, "standard input" if source == "-" else source
        self.n_features = check_integer("n_features", n_features, 1, MAX_COLUMNS)
        self.labels: tuple[Label, ...] | None = check_declared(labels)
        if self.labels is not None and isinstance(self.labels[0], str):
            raise SchemaError(f"labels {list(self.labels)!r} are texts; the rows of a text have numbers as labels")
        declared = np.zeros(0) if self.labels is None else np.array(self.labels, dtype=np.float64)
        self._low = 0 if zero_based else 1
        rules = Rules(self._low, n_features - 1 + self._low, False, False, declared)
        self._parser = LineParser(self.name, rules, f"exceeds the {n_features} features (--n-features)", PIECE, MAX_LINE)
        self._stream: io.RawIOBase | None = None
        self._at, self._rest = 0, b""
        self._stamp: tuple[int, ...] = ()
        self._known: Consumed | None = None
        self.consumed = Consumed(0, 0)
        self.ended = False

    def piece(self, offset: int, lines: int) -> TextPiece:
        """Return the rows that begin at a byte of the text; ``lines`` is the number of lines before it, for messages.

        If a line breaks a rule, the piece ends before this line, so that no earlier row is lost. Raises DataError, with line and column, if
        the first line of the piece breaks a rule, or if the source cannot be read.
        """
        text, last = self._text(offset)
        try:
            return self._take(text, offset, lines, last)
        except DataError as error:
            good = (error.line or 0) - lines - 1
            if good < 1:
                raise
        cut = 0
        for _ in range(good):
            cut = text.index(_LINE_END, cut) + 1
        self._at, self._rest = offset + cut, text[cut:] + self._rest
        return self._take(text[:cut], offset, lines, False)

    def _take(self, text: bytes, offset: int, lines: int, last: bool) -> TextPiece:
        piece = self._parse(text, offset, lines, last)
        self.consumed = self.consumed.extended(text)
        self.ended = last
        return piece

    def _parse(self, text: bytes, offset: int, lines: int, last: bool) -> TextPiece:
        lengths, cols, vals, y = [np.zeros(0, np.int32)], [np.zeros(0, np.int32)], [np.zeros(0)], [np.zeros(0)]
        for block, _, _ in self._parser.blocks(io.BytesIO(text), lambda: lines):
            # The parser's arrays are used again for the next block.
            lengths.append(block["lengths"].copy())
            cols.append(block["cols"] - np.int32(self._low))
            vals.append(block["vals"].astype(np.float64))
            y.append(block["y"].copy())
        indptr = np.concatenate(([0], np.cumsum(np.concatenate(lengths)))).astype(np.int64)
        ended = lines + text.count(_LINE_END)
        return TextPiece(indptr, np.concatenate(cols), np.concatenate(vals), np.concatenate(y), offset + len(text), ended, last)

    def _text(self, offset: int) -> tuple[bytes, bool]:
        """Return whole lines from ``offset`` on, and whether the text ends with them."""
        if self._stream is None or self._at != offset:
            self._open(offset)
        parts, size = [self._rest], len(self._rest)
        while True:
            more = self._read(max(1, PIECE - size))
            parts.append(more)
            size += len(more)
            if not more:
                text, self._rest, self._at = b"".join(parts), b"", offset + size
                return text, True
            if size >= PIECE:
                text = b"".join(parts)
                cut = text.rfind(_LINE_END) + 1
                if cut:
                    self._rest, self._at = text[cut:], offset + cut
                    return text[:cut], False
                if size > MAX_LINE:
                    raise DataError(f"a line is longer than {MAX_LINE} bytes", self.name)
                parts = [text]

    def _open(self, offset: int) -> None:
        if self._stream is not None and self.source == "-":
            raise DataError("standard input cannot be read twice", self.name)
        self.close()
        self._stamp = self._file_stamp()
        self._stream, self._rest, self._at = open_text(self.source, self.name).stream, b"", offset
        self.consumed = Consumed(0, 0)
        while (left := offset - self.consumed.nbytes) > 0:
            text = self._read(min(left, PIECE))
            if not text:
                raise DataError(f"ends {left} bytes before the position that the run had reached: it is another text", self.name)
            self.consumed = self.consumed.extended(text)
        known = self._known
        if known is not None and known.nbytes == offset and self.consumed != known:
            begin = f"the first {known.nbytes} bytes, which the run has learned from, have the crc32c {self.consumed.crc:08x}"
            raise DigestMismatch(f"{self.name}: {begin} instead of {known.crc:08x}: the text was changed; start a new run with it")

    def expect(self, known: "Consumed") -> None:
        """Require that the text still begins with ``known``, the text consumed before. Otherwise, opening the text raises an error."""
        self._known = known

    def confirm(self) -> None:
        """Check that the consumed text is unchanged. It is read again if the file was written to since it was opened.

        Raises DigestMismatch if the text has changed; DataError if the file is shorter now.
        """
        if self._file_stamp() == self._stamp:
            return
        known = self.consumed
        self.expect(known)
        self._open(known.nbytes)

    def _file_stamp(self) -> tuple[int, ...]:
        """Return values that change when a file is written to; empty for standard input."""
        if self.source == "-":
            return ()
        try:
            status = os.stat(self.source)
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", self.name) from error
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def _read(self, nbytes: int) -> bytes:
        assert self._stream is not None
        buffer = bytearray(nbytes)
        got = self._stream.readinto(buffer)
        return bytes(memoryview(buffer)[: got or 0])

    def close(self) -> None:
        """Close the source; standard input stays open."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None

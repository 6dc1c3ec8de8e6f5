"""SVMlight text as a stream of rows that is read once, piece by piece, and can be taken up at any line."""

import io
import os
from collections.abc import Iterable
from typing import NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from ...errors import DataError, DigestMismatch, SchemaError
from ...meta import Label
from ...text.open_text import open_text
from ..labels import check_declared
from ..options import MAX_COLUMNS, check_integer
from .lines import Rules
from .svmlight import LineParser

PIECE = 8 << 20  # bytes of text of one piece
MAX_LINE = 64 << 20

_NEWLINE = b"\n"


class TextPiece(NamedTuple):
    """Some rows of a text in CSR form (indices from zero), their labels as they are written, the bytes and lines of the text up to the end
    of the piece, and whether the text ends there."""

    indptr: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int32]
    values: npt.NDArray[np.float64]
    y: npt.NDArray[np.float64]
    end: int
    lines: int
    last: bool


class Consumed(NamedTuple):
    """The beginning of a text that was taken: its length and its crc32c."""

    nbytes: int
    crc: int

    def extended(self, text: bytes) -> "Consumed":
        """Return it with more text behind."""
        return Consumed(self.nbytes + len(text), google_crc32c.extend(self.crc, text))


class RowText:
    """Reads SVMlight text from a file (plain or compressed) or standard input ("-"): rows of ``n_features`` columns, with one of
    ``labels`` (numbers; None: any number), indices from one or zero. ``consumed``: what was taken so far; a text that is opened behind its
    beginning is read from there all the same, at some GB/s, so that this is known and can be compared (see `expect`). ``ended``: whether
    the last piece was taken. Raises SchemaError if the width is no positive integer, or labels are not numbers."""

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
        """Return the rows that begin at a byte of the text; ``lines`` tells messages how many lines lie before. A line that breaks a rule
        ends the piece before it, so that nothing is lost; a piece that would begin with it is refused. Raises DataError: the first line
        breaks a rule; line and column are named. Or the source cannot be read."""
        text, last = self._text(offset)
        try:
            return self._take(text, offset, lines, last)
        except DataError as error:
            good = (error.line or 0) - lines - 1
            if good < 1:
                raise
        cut = 0
        for _ in range(good):
            cut = text.index(_NEWLINE, cut) + 1
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
        ended = lines + text.count(_NEWLINE)
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
                cut = text.rfind(_NEWLINE) + 1
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
                raise DataError(f"it ends {left} bytes before the place the run had read to: it is another text", self.name)
            self.consumed = self.consumed.extended(text)
        known = self._known
        if known is not None and known.nbytes == offset and self.consumed != known:
            begin = f"the first {known.nbytes} bytes, which the run has learned from, have the crc32c {self.consumed.crc:08x}"
            raise DigestMismatch(f"{self.name}: {begin} instead of {known.crc:08x}: the text was changed; start a new run with it")

    def expect(self, known: "Consumed") -> None:
        """Refuse the text when it is opened at the end of what was consumed, unless it still begins with that."""
        self._known = known

    def confirm(self) -> None:
        """Check that what was consumed still stands there; it is read again if the file was written to since it was opened. Raises
        DigestMismatch if it was changed; DataError if it is shorter now."""
        if self._file_stamp() == self._stamp:
            return
        known = self.consumed
        self.expect(known)
        self._open(known.nbytes)

    def _file_stamp(self) -> tuple[int, ...]:
        """What changes when a file is written to; of standard input nothing."""
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

"""Opening of text files: decompressed by content, converted to UTF-8 without a byte order mark, with line feeds as line ends."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

from ..errors import DataError, Foreign, SchemaError

Buffer = bytearray | memoryview  # what is read into
MAX_RATIO = 1000  # text bytes allowed per compressed byte
_RATIO_GRACE = 16 << 20
_PIECE = 1 << 20
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def _unpack_zstd(raw: Any) -> Any:
    import pyarrow as pa

    return pa.CompressedInputStream(raw, "zstd")


_OPENERS: tuple[tuple[bytes, str, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", "zstd", _unpack_zstd),
)
_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError)


def detect_compression(path: Path) -> str | None:
    """Return the compression of a file, judged by its first bytes and not by its name."""
    with path.open("rb") as file:
        head = file.read(8)
    return next((name for magic, name, _ in _OPENERS if head.startswith(magic)), None)


class Expanded(io.RawIOBase):
    """A decompressed stream of ``kind`` "gzip", "bzip2", "xz" or "zstd". Damage and extreme compression ratios raise DataError. ``offset``
    is the number of bytes of text so far.
    """

    def __init__(self, raw: IO[bytes], kind: str, name: str) -> None:
        self._raw, self._name, self._kind = raw, name, kind
        self._inner = next(make for _, known, make in _OPENERS if known == kind)(raw)
        self.offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, out: Buffer) -> int:
        """Read once into a buffer. Raises DataError if the stream is damaged, truncated, or expands more than a thousandfold."""
        view = memoryview(out)
        try:
            # Large reads pay: BufferedReader-sized ones spend their time in Python.
            got = self._inner.readinto(view[: 1 << 20])
        except _FAULTS as error:
            raise DataError(f"{self._kind} data damaged or cut short after {self.offset} bytes of text ({error})", self._name) from error
        self.offset += got
        if self.offset > MAX_RATIO * self._raw.tell() + _RATIO_GRACE:
            reason = f"{self._kind} data expand to {self.offset} bytes from {self._raw.tell()}; more than {MAX_RATIO} to 1 is rejected"
            raise DataError(reason, self._name)
        return got

    def close(self) -> None:
        """Close this stream and the compressed one."""
        if not self.closed:
            self._inner.close()
            self._raw.close()
        super().close()


class Readable(Protocol):
    """A stream of bytes that fills buffers."""

    def readinto(self, buffer: Buffer, /) -> int | None:
        """Read once into a buffer; returns 0 at the end."""
        ...


class ByteSource(NamedTuple):
    """An opened input: the stream of its text, and a function that returns the number of bytes read from the file so far."""

    stream: io.RawIOBase
    done: Callable[[], int]


def check_encoding(encoding: str | None) -> str | None:
    """Return Python's name of an encoding. Raises SchemaError if it is unknown."""
    try:
        return None if encoding is None else codecs.lookup(encoding).name
    except LookupError:
        raise SchemaError(f"encoding is {encoding!r}; it must be the name of an encoding, such as utf-8, latin-1 or cp1252") from None


def is_plain(path: Path, encoding: str | None = None) -> bool:
    """Return whether a file can be read without conversion, judging by its beginning: not compressed, no byte order mark, UTF-8, line
    feeds.
    """
    with path.open("rb") as file:
        head = file.read(_PIECE)
    plain = encoding in (None, "utf-8", "ascii") and detect_compression(path) is None
    return plain and not any(head.startswith(mark) for mark, _ in _MARKS) and b"\r" not in head.replace(b"\r\n", b"")


def open_text(source: str | Path, name: str, encoding: str | None = None) -> ByteSource:
    """Open a file, plain or compressed, or standard input ("-") as UTF-8 bytes without a byte order mark, with line feeds as line ends.

    ``name`` is used in messages; ``encoding`` applies to bytes without a mark (default UTF-8). Raises DataError if the file cannot be
    opened and, while reading, for zero bytes and invalid text, with line and column.
    """
    if source == "-" and sys.stdin is None:
        raise DataError("the standard input is closed; give a file, or a pipe that is open", name)
    raw: Foreign = getattr(sys.stdin, "buffer", sys.stdin) if source == "-" else open_file(Path(source))
    if source == "-" or not Path(source).is_file():
        counted = _Counted(raw, keep=source == "-")
        return ByteSource(_Text(counted, name, encoding), lambda: counted.offset)
    kind = detect_compression(Path(source))
    return ByteSource(_Text(raw if kind is None else Expanded(raw, kind, name), name, encoding), raw.tell)


def read_lines(path: str | Path, what: str = "") -> list[str]:
    """Return the lines of a small text file, without line ends. Raises DataError if it cannot be read or is not text; ``what`` names it in
    the message.
    """
    try:
        with open_text(path, str(path)).stream as stream:
            text = stream.read().decode()
    except DataError as error:
        why = error.reason if error.line is None else f"{error.reason.partition(';')[0].partition(':')[0]}; write the file in UTF-8"
        raise DataError(f"{what}{': ' if what else ''}{why}", str(path), error.line, error.column) from error
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


class _Text(io.RawIOBase):
    """The text of a stream of bytes, in the form that `open_text` returns."""

    def __init__(self, raw: io.RawIOBase, name: str, encoding: str | None) -> None:
        self._raw, self._name, self._encoding = raw, name, encoding or "utf-8"
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ready, self._held = memoryview(b""), b""
        self._lines = self._at = 0  # lines and, of the last one, characters so far
        self._began = self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, out: Buffer) -> int:
        while not self._ready and not self._ended:
            self._ready = memoryview(self._next())
        view = memoryview(out)
        got = min(len(view), len(self._ready))
        view[:got] = self._ready[:got]
        self._ready = self._ready[got:]
        return got

    def _next(self) -> bytes:
        """Return the next piece of the text, possibly empty."""
        piece = self._raw.read(_PIECE) or b""
        if not self._began and len(piece) < 3:  # a pipe gives what it has
            while len(piece) < 3 and (more := self._raw.read(_PIECE)):
                piece += more
        self._ended = not piece
        if not self._began:
            self._began = True
            piece = self._without_mark(piece)
        piece = self._held + self._decoded(piece)
        self._held = b""
        if b"\r" in piece:
            if not self._ended and piece.endswith(b"\r"):
                piece, self._held = piece[:-1], b"\r"
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        at = piece.find(b"\0")
        if at >= 0:
            raise self._fault(
                "a zero byte, which text does not contain; the file may have another format or another encoding (--encoding utf-16)",
                piece[:at],
            )
        ends = piece.count(b"\n")
        self._at = len(piece[piece.rfind(b"\n") + 1 :].decode("utf-8", "replace")) + (0 if ends else self._at)
        self._lines += ends
        return piece

    def _without_mark(self, piece: bytes) -> bytes:
        for mark, encoding in _MARKS:
            if piece.startswith(mark):
                self._encoding = encoding
                return piece[len(mark) :]
        return piece

    def _decoded(self, piece: bytes) -> bytes:
        """Return a piece in UTF-8, without an incomplete character at the end."""
        if self._decoder is None:
            if self._encoding in ("utf-8", "ascii") and piece.isascii():
                return piece
            self._decoder = codecs.getincrementaldecoder(self._encoding)()
        state = self._decoder.getstate()[0]
        try:
            return self._decoder.decode(piece, self._ended).encode()
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            before, bad = (state + piece)[:start], (state + piece)[start : start + 1]
            why = f"the byte 0x{bad.hex()} is no text in {self._encoding}; name the encoding of the file (--encoding latin-1, say)"
            raise self._fault(why, before.decode(self._encoding, "replace").encode()) from error

    def _fault(self, reason: str, before: bytes) -> DataError:
        """Return the error for the position after the bytes ``before``, which follow the last line counted."""
        line, ends = before.rpartition(b"\n")[2], before.count(b"\n")
        column = len(line.decode("utf-8", "replace")) + (0 if ends else self._at) + 1
        return DataError(reason, self._name, self._lines + ends + 1, column)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def open_file(path: Path) -> io.FileIO:
    """Open a file for reading, unbuffered. Raises DataError if it does not exist, is a folder or may not be read."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", str(path)) from error


class _Counted(io.RawIOBase):
    """A pipe that counts the bytes it delivered; standard input is not closed."""

    def __init__(self, inner: Foreign, keep: bool) -> None:
        self._inner, self._keep = inner, keep
        self.offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, out: Buffer) -> int:
        got = self._inner.readinto(out)
        self.offset += got or 0
        return got or 0

    def close(self) -> None:
        if not self._keep:
            self._inner.close()
        super().close()

"""Bytes of files, compressed files and standard input, with faults named by file and offset."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import google_crc32c
import numpy as np

from ...encoding.arrow import import_pyarrow
from ...errors import DataError
from ...value_types import Foreign

Buffer = bytearray | memoryview  # what is read into
PIECE = 64 << 20  # bytes of a file that one checksum (and one range of text) covers
MAX_RATIO = 1000  # text bytes allowed per compressed byte
_RATIO_GRACE = 16 << 20
_BUFFER = 1 << 20


_OPENERS: tuple[tuple[bytes, str, Callable[[Any], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
    (b"\x28\xb5\x2f\xfd", "zstd", lambda raw: import_pyarrow("pyarrow", "zstd data are unpacked").CompressedInputStream(raw, "zstd")),
)
_FAULTS = (EOFError, OSError, zlib.error, lzma.LZMAError)


def detect_compression(path: Path) -> str | None:
    """Name of the compression a file has, judged by its first bytes, not its name."""
    with path.open("rb") as file:
        head = file.read(8)
    return next((name for magic, name, _ in _OPENERS if head.startswith(magic)), None)


class Expanded(io.RawIOBase):
    """A stream of ``kind`` "gzip", "bzip2", "xz" or "zstd" that refuses damage and explosive ratios by DataError; ``offset``: text bytes so
    far."""

    def __init__(self, raw: IO[bytes], kind: str, name: str) -> None:
        self._raw, self._name, self._kind = raw, name, kind
        self._inner = next(make for _, known, make in _OPENERS if known == kind)(raw)
        self.offset = 0

    def readable(self) -> bool:
        """Whether the stream can be read: yes."""
        return True

    def readinto(self, out: Buffer) -> int:
        """Fill a buffer as far as one read goes. Raises DataError if the stream is damaged, cut short, or expands more than a
        thousandfold."""
        view = memoryview(out)
        try:
            # Large reads pay: BufferedReader-sized ones spend their time in Python.
            got = self._inner.readinto(view[: 1 << 20])
        except _FAULTS as error:
            raise DataError(f"{self._kind} data damaged or cut short after {self.offset} bytes of text ({error})", self._name) from error
        self.offset += got
        if self.offset > MAX_RATIO * self._raw.tell() + _RATIO_GRACE:
            reason = f"{self._kind} data expand to {self.offset} bytes from {self._raw.tell()}; more than {MAX_RATIO} to 1 is refused"
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
        """Fill a buffer as far as one read goes; 0 at the end."""
        ...


class ByteSource(NamedTuple):
    """An opened input: the stream of its text and how many bytes of the file have been read for it."""

    stream: io.RawIOBase
    done: Callable[[], int]


def open_source(source: str | Path, name: str) -> ByteSource:
    """Open a file, plain or compressed, or standard input ("-"). Raises DataError if the file cannot be opened."""
    if source == "-" and sys.stdin is None:
        raise DataError("the standard input is closed; give a file, or a pipe that is open", name)
    raw: Foreign = getattr(sys.stdin, "buffer", sys.stdin) if source == "-" else open_file(Path(source))
    if source == "-" or not Path(source).is_file():
        counted = _Counted(raw, keep=source == "-")
        return ByteSource(counted, lambda: counted.offset)
    kind = detect_compression(Path(source))
    return ByteSource(raw if kind is None else Expanded(raw, kind, name), raw.tell)


def open_file(path: Path) -> io.FileIO:
    """Open a file for reading, unbuffered. Raises DataError if it does not exist, is a folder or may not be read."""
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", str(path)) from error


class _Counted(io.RawIOBase):
    """A pipe that counts what it gave; standard input is kept open."""

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


class Window:
    """Bytes ``lo:hi`` of a file as a stream; threads may hold windows on one file."""

    def __init__(self, file: IO[bytes], lo: int, hi: int) -> None:
        self._fd, self._at, self._end = file.fileno(), lo, hi

    def readinto(self, out: Buffer) -> int:
        """Fill a buffer as far as one read goes; 0 at the end."""
        view = memoryview(out)[: self._end - self._at]
        got = os.preadv(self._fd, [view], self._at) if view.nbytes else 0
        self._at += got
        return got


def line_start(file: IO[bytes], at: int, size: int) -> int:
    """First byte at or after ``at`` that begins a line; ``size`` if there is none. The owner of a line is the range that holds its first
    byte, so ranges cut anywhere share the lines without overlap."""
    if at <= 0:
        return 0
    at -= 1
    while at < size and (chunk := os.pread(file.fileno(), 1 << 16, at)):
        position = chunk.find(b"\n")
        if position >= 0:
            return at + position + 1
        at += len(chunk)
    return size


def count_lines(path: Path, end: int) -> int:
    """Line ends in the first ``end`` bytes of a file."""
    total, buffer = 0, np.empty(_BUFFER, np.uint8)
    with path.open("rb", buffering=0) as file:
        window = Window(file, 0, end)
        while got := window.readinto(buffer.data):
            total += int(np.count_nonzero(buffer[:got] == 10))
    return total


class FileDigest:
    """Identity of a file by content: its length and the crc32c of every 64 MiB piece. Pieces are read on demand, so that a range of text
    can be checked while the system still has it in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._pieces: dict[int, int] = {}

    @property
    def n_pieces(self) -> int:
        """Number of pieces."""
        return max(1, -(-self.size // PIECE))

    def piece(self, index: int) -> int:
        """crc32c of a piece."""
        if index not in self._pieces:
            buffer, value = np.empty(_BUFFER, np.uint8), 0
            with open_file(self.path) as file:
                window = Window(file, index * PIECE, min(self.size, (index + 1) * PIECE))
                while got := window.readinto(buffer.data):
                    value = google_crc32c.extend(value, buffer[:got])  # pyright: ignore[reportArgumentType]
            self._pieces[index] = value
        return self._pieces[index]

    def value(self) -> str:
        """The identity; reads the pieces not known yet."""
        crcs = np.array([self.piece(k) for k in range(self.n_pieces)], dtype="<u4")
        return f"file:{self.size}:{hashlib.sha256(crcs.tobytes()).hexdigest()[:32]}"

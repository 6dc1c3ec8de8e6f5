"""Byte ranges of files, and their identity."""

import hashlib
import os
from pathlib import Path
from typing import IO

import google_crc32c
import numpy as np

from ...text.open_text import Buffer, open_file

PIECE = 64 << 20  # bytes of a file that one checksum (and one range of text) covers
_BUFFER = 1 << 20


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

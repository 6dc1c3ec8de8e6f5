"""Blocks of rows between reading and writing, in memory or appended to files in the scratch folder.

A block is a mapping of arrays. Sparse: ``lengths`` int32 (rows,), ``cols`` int32, ``vals`` float32 or float64 (CSR without pointers).
Dense: ``dense`` (n_cols, rows), which is transposed so that a range of columns is contiguous. Both have row tables ``y`` float64, ``task``
int64, ``weight`` float64, ``covariate:NAME`` float64. The values of a block are float32 if that represents all of them exactly, else
float64. The type of the store follows from all blocks together.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from ...errors import space_for
from ...text.open_text import Buffer, open_file
from ..files import FileArray

Block = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class Handle:
    """A block whose arrays are in memory or in the file ``path`` of the scratch folder."""

    arrays: Mapping[str, npt.NDArray[Any] | FileArray]
    path: Path | None = None

    def get(self, name: str, lo: int = 0, hi: int | None = None) -> npt.NDArray[Any]:
        """Return entries ``lo:hi`` of an array along its first axis."""
        return self.arrays[name][lo:hi]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.arrays[name].shape

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def to_json(self) -> dict[str, Any]:
        """Return the journal's record of a block in a file: type, shape and first byte of each array."""
        assert self.path is not None
        pieces = {name: (piece.dtype.str, piece.shape, piece.offset) for name, piece in self.arrays.items() if isinstance(piece, FileArray)}
        return {"path": self.path.name, "pieces": pieces}

    @classmethod
    def from_json(cls, folder: Path, fields: dict[str, Any]) -> "Handle":
        """Return the block that a record made by `to_json` describes."""
        path = folder / fields["path"]
        pieces = fields["pieces"].items()
        return cls({name: FileArray(path, offset, np.dtype(kind), tuple(shape)) for name, (kind, shape, offset) in pieces}, path)


PutBlock = Callable[[Block], Handle]


def hold_block(block: Block) -> Handle:
    """Copy a block into memory, because readers reuse their arrays."""
    return Handle({name: np.array(array) for name, array in block.items()})


class Part:
    """A file of blocks, written from the start; a context manager. Calling it appends a block."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = path.open("wb", buffering=0)
        self._at = 0

    def __call__(self, block: Block) -> Handle:
        """Append a block and return its handle."""
        return Handle({name: self._append(array) for name, array in block.items()}, self.path)

    def _append(self, array: npt.NDArray[Any]) -> FileArray:
        view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        piece = FileArray(self.path, self._at, array.dtype, array.shape)
        with space_for(self.path, view.nbytes):
            while view.nbytes:
                written = self._file.write(view)
                view = view[written:]
                self._at += written
        return piece

    def __enter__(self) -> "Part":
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()


class Spool:
    """All blocks of the input, in row order; ``starts``, int64 (n_blocks + 1,), is the first row of each block, then the number of rows."""

    def __init__(self, handles: Sequence[Handle]) -> None:
        self.handles = list(handles)
        rows = [handle.shape("lengths")[0] if "lengths" in handle else handle.shape("dense")[1] for handle in self.handles]
        self.starts = np.concatenate([[0], np.cumsum(rows)]).astype(np.int64)

    @property
    def n_rows(self) -> int:
        return int(self.starts[-1])

    def has(self, name: str) -> bool:
        """Return whether every block has an array."""
        return bool(self.handles) and all(name in handle for handle in self.handles)

    def names(self, prefix: str) -> list[str]:
        """Return the names, in order, of arrays in every block that begin with a prefix."""
        return [name for handle in self.handles[:1] for name in handle.arrays if name.startswith(prefix) and self.has(name)]

    def single(self, name: str) -> bool:
        """Return whether an array is float32 in every block."""
        return all(handle.arrays[name].dtype == np.float32 for handle in self.handles)

    def between(self, lo: int, hi: int) -> Iterator[tuple[Handle, int, int, int]]:
        """Yield the blocks that hold rows ``lo:hi``. Each comes with the start and the end of its wanted rows, counted within the block,
        and with the number of its first wanted row among all rows.
        """
        first = int(np.searchsorted(self.starts, lo, side="right")) - 1
        for handle, start, end in zip(self.handles[first:], self.starts[first:].tolist(), self.starts[first + 1 :].tolist(), strict=False):
            if start >= hi:
                return
            if end > lo:
                yield handle, max(lo, start) - start, min(hi, end) - start, max(lo, start)

    def blocks(self) -> Iterator[tuple[Handle, int]]:
        """Yield each block with its first row."""
        return zip(self.handles, self.starts[:-1].tolist(), strict=True)


# Byte ranges of files, and their identity.

PIECE = 64 << 20  # bytes of a file that one checksum (and one range of text) covers
_BUFFER = 1 << 20


class Window:
    """Bytes ``lo:hi`` of a file as a stream; several threads may use streams on one file."""

    def __init__(self, file: IO[bytes], lo: int, hi: int) -> None:
        self._fd, self._at, self._end = file.fileno(), lo, hi

    def readinto(self, out: Buffer) -> int:
        """Read once into a buffer; returns 0 at the end."""
        view = memoryview(out)[: self._end - self._at]
        got = os.preadv(self._fd, [view], self._at) if view.nbytes else 0
        self._at += got
        return got


def line_start(file: IO[bytes], at: int, size: int) -> int:
    """Return the first byte at or after ``at`` that begins a line, or ``size`` if there is none.

    A line belongs to the range that holds its first byte, so ranges cut anywhere divide the lines without overlap.
    """
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
    """Return the number of line ends in the first ``end`` bytes of a file."""
    total, buffer = 0, np.empty(_BUFFER, np.uint8)
    with path.open("rb", buffering=0) as file:
        window = Window(file, 0, end)
        while got := window.readinto(buffer.data):
            total += int(np.count_nonzero(buffer[:got] == 10))
    return total


class FileDigest:
    """Identity of a file by content: its length and the crc32c of each 64 MiB piece.

    Pieces are read on demand, so that a range of text can be checked while the system still has it in memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self._pieces: dict[int, int] = {}

    @property
    def n_pieces(self) -> int:
        return max(1, -(-self.size // PIECE))

    def piece(self, index: int) -> int:
        """Return the crc32c of a piece."""
        if index not in self._pieces:
            buffer, value = np.empty(_BUFFER, np.uint8), 0
            with open_file(self.path) as file:
                window = Window(file, index * PIECE, min(self.size, (index + 1) * PIECE))
                while got := window.readinto(buffer.data):
                    value = google_crc32c.extend(value, buffer[:got])  # pyright: ignore[reportArgumentType]
            self._pieces[index] = value
        return self._pieces[index]

    def value(self) -> str:
        """Return the identity; reads the pieces that are not known yet."""
        crcs = np.array([self.piece(k) for k in range(self.n_pieces)], dtype="<u4")
        return f"file:{self.size}:{hashlib.sha256(crcs.tobytes()).hexdigest()[:32]}"

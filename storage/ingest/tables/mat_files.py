"""Variables of MATLAB files of version 5 (saved with -v6 or -v7), unpacked to scratch piece by piece.

A file is a sequence of elements, each with a type, a length and bytes; a compressed element contains one other element. A matrix element
has flags, lengths, a name and then the numbers, which may be stored in a smaller type than that of the matrix. Declared lengths are never
trusted: if they disagree with the bytes, the file is rejected.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ...errors import DataError, space_for
from ...text.open_text import MAX_RATIO
from ..files import FileArray

_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8", 16: "u1", 17: "u2", 18: "u4"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_CELL, _CHAR, _SPARSE, _MATRIX, _PACKED = 1, 4, 5, 14, 15
_UTF8, _TEXT = 16, 1 << 16  # type of letters, and most bytes of the text of a cell
_COMPLEX = 0x0800
_PIECE = 1 << 20
_GRACE = 16 << 20


class _Bytes:
    """Bytes of the file, or of a compressed element in it, in order; reading beyond the end is an error."""

    def __init__(self, file: BinaryIO, length: int, name: str, packed: bool) -> None:
        self._file, self._left, self._name, self._held = file, length, name, b""
        self._inflate = zlib.decompressobj() if packed else None
        self._taken, self._limit = 0, MAX_RATIO * length + _GRACE

    def read(self, count: int) -> bytes:
        """Return exactly ``count`` bytes; for small counts only."""
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        while count:
            piece = self._next(min(count, _PIECE))
            if not piece:
                raise DataError("cannot be read as .mat: the data end inside an element", self._name)
            self._taken += len(piece)
            if self._inflate is not None and self._taken > self._limit:
                raise DataError(f"cannot be read as .mat: a compressed variable expands more than {MAX_RATIO} to 1", self._name)
            count -= len(piece)
            yield piece

    def _next(self, most: int) -> bytes:
        if self._inflate is None:
            piece = self._file.read(min(most, self._left))
            self._left -= len(piece)
            return piece
        while True:
            inflated = self._inflate.decompress(self._held, most)
            self._held = self._inflate.unconsumed_tail
            if inflated or (not self._held and not self._left):
                return inflated
            if not self._held:
                self._held = self._file.read(min(_PIECE, self._left))
                self._left -= len(self._held)
                if not self._held:
                    return b""

    def element(self, order: str) -> tuple[int, int, bytes]:
        """Read the tag of the next element. Return the type and the length of the element, and its bytes if the tag contains them."""
        tag = self.read(8)
        kind, length = struct.unpack(f"{order}II", tag)
        return (kind & 0xFFFF, kind >> 16, tag[4 : 4 + min(4, kind >> 16)]) if kind >> 16 else (kind, length, b"")

    def small(self, order: str, most: int) -> tuple[int, bytes]:
        """Return the type and the bytes of an element. Raises DataError if it has more than ``most`` bytes."""
        kind, length, inside = self.element(order)
        if inside or not length:
            return kind, inside
        if length > most:
            raise DataError(f"cannot be read as .mat: a name or list of lengths has {length} bytes, more than {most}", self._name)
        data = self.read(length)
        self.read(-length % 8)
        return kind, data


def is_version_5(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(128)
    return len(head) == 128 and head[126:128] in (b"IM", b"MI") and head[124:126] in (b"\x00\x01", b"\x01\x00")


def read_variables(path: Path, folder: Path | None) -> dict[str, Any]:
    """Unpack the numbers of a file, or only check and list them (``folder=None``).

    Cells are read if they hold texts; structures and functions are skipped. Returns arrays by name; a sparse matrix as ``NAME_data``,
    ``NAME_indices``, ``NAME_indptr``, ``NAME_shape`` and ``NAME_format`` ("csc"). Raises DataError if the type or length that an element
    declares does not match its bytes.
    """
    arrays: dict[str, Any] = {}
    size = path.stat().st_size
    with path.open("rb") as file:
        order = "<" if file.read(128)[126:128] == b"IM" else ">"
        while file.tell() + 8 <= size:
            kind, length = struct.unpack(f"{order}II", file.read(8))
            begin = file.tell()
            if kind not in (_MATRIX, _PACKED) or length > size - begin:
                raise DataError(f"cannot be read as .mat: an element at byte {begin - 8} has type {kind} and {length} bytes", str(path))
            source = _Bytes(file, length, str(path), kind == _PACKED)
            try:
                if kind == _PACKED:
                    source.element(order)
                arrays |= _read_variable(source, order, _Target(folder, len(arrays), str(path)))
            except (zlib.error, struct.error, UnicodeDecodeError) as error:
                raise DataError(f"cannot be read as .mat: damaged at byte {begin}: {error}", str(path)) from error
            file.seek(begin + length)
    return arrays


class _Target(NamedTuple):
    """Destination of numbers, with the name of the file for messages."""

    folder: Path | None
    number: int
    name: str

    def take(self, source: _Bytes, order: str, part: str, as_type: str | None) -> FileArray:
        """Write the numbers of the next element to a file."""
        kind, length, inside = source.element(order)
        if kind not in _TYPES:
            raise DataError(f"cannot be read as .mat: numbers have the type {kind}", self.name)
        path, dtype = (self.folder or Path()) / f"variable-{self.number:03d}-{part}.bin", np.dtype(order + _TYPES[kind])
        pieces = iter([inside]) if inside else source.pieces(length)
        if self.folder is None:
            for _ in pieces:
                pass
        else:
            with space_for(path, length), path.open("wb") as file:
                file.writelines(pieces)
        if not inside:
            source.read(-length % 8)
        return FileArray(path, 0, dtype, (length // dtype.itemsize,), as_type=None if as_type is None else np.dtype(as_type))


def _read_variable(source: _Bytes, order: str, place: _Target) -> dict[str, Any]:
    flags = np.frombuffer(source.small(order, 64)[1], order + "u4")
    if len(flags) != 2:
        raise DataError("cannot be read as .mat: a variable has no flags", place.name)
    kind = int(flags[0]) & 0xFF
    if kind not in _CLASSES and kind not in (_CELL, _CHAR, _SPARSE):
        return {}
    shape = tuple(np.frombuffer(source.small(order, 512)[1], order + "i4").tolist())
    name = source.small(order, 4096)[1].decode("latin-1")
    if name.startswith("__") or not name or any(length < 0 for length in shape):
        return {}
    if kind == _CELL:
        texts = _read_cells(source, order, shape)
        return {} if texts is None else {name: np.array(texts)}
    if kind == _SPARSE:
        return _read_sparse(source, order, place, name, shape, bool(flags[0] & _COMPLEX))
    values = place.take(source, order, "real", None if kind == _CHAR else _CLASSES[kind])
    total = FileArray(values.path, 0, values.dtype, shape, len(shape) > 1, values.as_type)
    if total.size != len(values):
        raise DataError(f"cannot be read as .mat: {name} has the shape {shape} and {len(values)} values", place.name)
    if kind == _CHAR and (total.size > _PIECE or len(shape) != 2):
        return {}
    if kind == _CHAR and place.folder is None:
        return {name: total.first(shape[0])}  # a text for each row
    if kind == _CHAR:
        return {name: np.array(["".join(map(chr, row.tolist())).rstrip() for row in total.whole()])}
    if flags[0] & _COMPLEX:
        raise DataError(f"{name} holds complex numbers; real numbers are expected", place.name)
    return {name: total}


def _read_cells(source: _Bytes, order: str, shape: tuple[int, ...]) -> list[str] | None:
    """Return the texts of a row or column of cells; None if a cell holds anything but a text."""
    count = int(np.prod(shape, dtype=np.float64))
    if len(shape) != 2 or 1 not in shape or count > _PIECE:
        return None
    texts = list[str]()
    for _ in range(count):
        source.element(order)
        flags = np.frombuffer(source.small(order, 64)[1], order + "u4")
        if len(flags) != 2 or int(flags[0]) & 0xFF != _CHAR:
            return None
        source.small(order, 512)
        source.small(order, 4096)
        kind, data = source.small(order, _TEXT)
        texts.append(data.decode() if kind == _UTF8 else "".join(map(chr, np.frombuffer(data, order + _TYPES[kind]).tolist())))
    return texts


def _read_sparse(source: _Bytes, order: str, place: _Target, name: str, shape: tuple[int, ...], imaginary: bool) -> dict[str, Any]:
    indices, indptr, data = (place.take(source, order, part, "f8" if part == "pr" else None) for part in ("ir", "jc", "pr"))
    if imaginary:
        raise DataError(f"{name} holds complex numbers; real numbers are expected", place.name)
    if indptr.shape[0] and place.folder is not None:
        # MATLAB keeps room for more entries than there are.
        end = int(indptr[len(indptr) - 1 : len(indptr)][0])
        lengths = {key: max(0, min(len(part), end)) for key, part in (("i", indices), ("d", data))}
        indices, data = indices.first(lengths["i"]), data.first(lengths["d"])
    parts = {"data": data, "indices": indices, "indptr": indptr, "shape": np.array(shape), "format": np.array("csc")}
    return {f"{name}_{part}": array for part, array in parts.items()}

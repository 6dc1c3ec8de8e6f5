"""Arrays in files, read in pieces, and archives (.npz) unpacked to scratch; only the current piece is in memory.

Files are read, not mapped, because mapped pages count as memory of the process until the system reclaims them.
"""

import mmap
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import DataError, NothingThere, SchemaError, StorageError, UrlError, space_for
from ..objects import check_key, require_space
from ..places import is_local, parse_place
from ..remote import RemoteObjects
from ..temporary import temporary_folder
from ..text.open_text import MAX_RATIO
from ..urls import open_object, open_objects

_COPY = 1 << 20
_SMALL, _NAMED = 4096, ("shape.npy", "format.npy")
_GRACE = 16 << 20
_RUN = 512  # rows of a piece from which on columns of a file are read run by run; below, a file by columns is turned into panels first


@dataclass(frozen=True)
class FileArray:
    """An array that stays in a file.

    ``offset`` is the first byte of the entries. ``by_columns`` says whether the first index varies fastest. ``as_type`` is the type to
    which entries are converted [default: the type in the file].
    """

    path: Path
    offset: int
    dtype: np.dtype
    shape: tuple[int, ...]
    by_columns: bool = False
    as_type: np.dtype | None = None

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Memory in bytes that the entries take."""
        return self.size * max(self.dtype.itemsize, np.dtype(self.as_type or self.dtype).itemsize)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def flat(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return entries ``lo:hi`` in file order."""
        entries = np.fromfile(self.path, self.dtype, hi - lo, offset=self.offset + lo * self.dtype.itemsize)
        if entries.size != hi - lo:
            raise StorageError(
                f"{self.path} was cut short while it was in use; start again (if it is in a scratch folder, remove that folder first)"
            )
        kind = self.as_type or self.dtype
        return entries.astype(kind.newbyteorder("="), copy=False)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        lo, hi, _ = part.indices(self.shape[0])
        hi = max(lo, hi)
        if self.ndim == 1:
            return self.flat(lo, hi)
        n, d = self.shape
        if not self.by_columns:
            return self.flat(lo * d, hi * d).reshape(hi - lo, d)
        out = np.empty((hi - lo, d), np.dtype(self.as_type or self.dtype).newbyteorder("="))
        for j in range(d):
            out[:, j] = self.flat(j * n + lo, j * n + hi)
        return out

    def first(self, count: int) -> "FileArray":
        """Return the first ``count`` entries of a vector."""
        return replace(self, shape=(count,))

    def vector(self) -> "FileArray":
        """Return a matrix of one row or column as a vector."""
        return replace(self, shape=(self.size,))

    def whole(self) -> npt.NDArray[Any]:
        """Return the array in memory."""
        return self.flat(0, self.size).reshape(self.shape, order="F" if self.by_columns else "C")


def release_pages(array: npt.NDArray[Any]) -> None:
    """Release the memory pages of a mapped file, because they count as memory of the process; modified pages are kept."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and isinstance(base.base, mmap.mmap) and base.mode != "c":
            base.base.madvise(mmap.MADV_DONTNEED)
        base = base.base


class Panels:
    """A matrix in a file, divided into panels of columns. Each panel is stored row by row, so that rows of a wide matrix need few reads."""

    def __init__(self, path: Path, n_rows: int) -> None:
        self.path, self.n_rows, self._at = path, n_rows, 0
        self._panels: list[FileArray] = []
        path.unlink(missing_ok=True)

    def add(self, parts: Iterator[npt.NDArray[Any]], width: int, dtype: np.dtype) -> None:
        """Write a panel of ``width`` columns, given as pieces of rows."""
        first, rows = self._at, 0
        for part in parts:
            with space_for(self.path, part.nbytes), self.path.open("ab") as file:
                np.ascontiguousarray(part, dtype).tofile(file)
            self._at += part.size * dtype.itemsize
            rows += len(part)
        if rows != self.n_rows:
            raise DataError(f"a column has {rows} values; the file says {self.n_rows}")
        self._panels.append(FileArray(self.path, first, dtype, (self.n_rows, width)))

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        return np.concatenate([panel[part] for panel in self._panels], axis=1)


def by_rows(array: FileArray, step: int, path: Path, budget: int) -> FileArray | Panels:
    """Return a matrix from which ``step`` rows at a time can be read quickly: unchanged, or converted to panels if every number would need
    a read of its own.
    """
    n, d = array.shape
    if not array.by_columns or min(step, n) >= _RUN or d == 1:
        return array
    wide, made = max(1, budget // (64 * max(1, n) * array.dtype.itemsize)), Panels(path, n)
    kind = np.dtype(array.as_type or array.dtype).newbyteorder("=")
    for lo in range(0, d, wide):
        hi = min(d, lo + wide)
        made.add(iter([array.flat(lo * n, hi * n).reshape(hi - lo, n).T]), hi - lo, kind)
    return made


class Header(NamedTuple):
    """The content of a .npy header, and its length in bytes."""

    dtype: np.dtype
    shape: tuple[int, ...]
    by_columns: bool
    length: int

    @property
    def nbytes(self) -> int:
        """Bytes that must follow the header."""
        return self.dtype.itemsize * prod(self.shape)


def npy_header(stream: IO[bytes]) -> Header:
    """Read the header of a .npy file. Raises ValueError if it is not one, or holds pickled objects."""
    version = np.lib.format.read_magic(stream)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version} of .npy is not known")
    shape, by_columns, dtype = read(stream)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: they are pickled")
    if any(length < 0 for length in shape):
        raise ValueError(f"the shape is {shape}")
    return Header(dtype, tuple(shape), by_columns and len(shape) > 1, stream.tell())


def npy_file(path: Path, name: str) -> FileArray:
    """Return a .npy file as an array that stays in the file. Raises DataError if the file has fewer bytes than its header declares."""
    with path.open("rb") as file:
        header = npy_header(file)
        there = os.fstat(file.fileno()).st_size - header.length
    if there < header.nbytes:
        raise DataError(f"cannot be read as .npy: its header declares {header.nbytes} bytes of values, but the file has {there}", name)
    return FileArray(path, header.length, header.dtype, header.shape, header.by_columns)


def unpack_arrays(path: Path, folder: Path) -> dict[str, FileArray]:
    """Unpack the arrays of a .npz file, piece by piece.

    Raises DataError if a member is damaged, expands more than a thousandfold, or differs in size from its declaration; OutOfSpace if the
    scratch disk is full.
    """
    arrays: dict[str, FileArray] = {}
    with zipfile.ZipFile(path) as archive:
        for number, item in enumerate(_list_members(archive, path)):
            target = folder / f"member-{number:03d}.npy"
            _unpack_member(archive, item, target, str(path))
            arrays[item.filename.removesuffix(".npy")] = npy_file(target, f"{path}, {item.filename}")
    return arrays


def read_declared(path: Path) -> dict[str, Any]:
    """Return the declared type and shape of each array in a .npz file, checked against the sizes in the archive. Shapes and formats of
    sparse matrices are returned as values.

    Raises DataError if a header declares more bytes than its member has.
    """
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for item in _list_members(archive, path):
            with archive.open(item) as stream:
                head = npy_header(stream)
                if head.length + head.nbytes > item.file_size:
                    message = f"its header declares {head.nbytes} bytes of values, but the file has {item.file_size - head.length}"
                    raise DataError(f"{item.filename} cannot be read: {message}", str(path))
                array = FileArray(path, 0, head.dtype, head.shape, head.by_columns)
                if item.filename.endswith(_NAMED) and head.nbytes <= _SMALL:
                    array = np.frombuffer(stream.read(head.nbytes), head.dtype).reshape(head.shape, order="F" if head.by_columns else "C")
            arrays[item.filename.removesuffix(".npy")] = array
    return arrays


def _list_members(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    listed = [item for item in archive.infolist() if item.filename.endswith(".npy")]
    total = sum(item.file_size for item in listed)
    if total > MAX_RATIO * path.stat().st_size + _GRACE:
        raise DataError(f"declares {total} bytes of arrays, more than {MAX_RATIO} times the size of the file", str(path))
    return listed


def _unpack_member(archive: zipfile.ZipFile, item: zipfile.ZipInfo, place: Path, name: str) -> None:
    done = 0
    with space_for(place, item.file_size), archive.open(item) as packed, place.open("wb") as file:
        while piece := packed.read(_COPY):
            done += file.write(piece)
            if done > item.file_size:
                raise DataError(f"{item.filename} declares {item.file_size} bytes and has more", name)
    if done != item.file_size:
        raise DataError(f"{item.filename} declares {item.file_size} bytes and has {done}", name)


# Sources that lie in an object store or on a web server: copied to scratch, since readers go through a source more than once.


@contextmanager
def make_local(source: object, parent: str | os.PathLike[str] | None = None, folders: bool = False) -> Iterator[object]:
    """Yield a source that can be read locally: the source itself or, for a URL, the path of a copy that is removed after the block.

    ``parent`` is the folder for the copy [default: the system's temporary folder]. ``folders``: if no object has exactly this URL, copy all
    objects below the URL as a folder, which holds a Zarr array. Raises NothingThere if nothing is at the URL; OutOfSpace if the disk has no
    room for the copy.
    """
    if not isinstance(source, str | os.PathLike):
        yield source
    elif is_local(source):
        local = parse_place(source, "source", "source").text
        yield local if isinstance(source, str) else Path(local)
    else:
        # A name nobody can guess, mode 0700.
        with temporary_folder(parent) as folder:
            path = _copy_source(os.fspath(source), folder, folders)
            with _naming_url(path, os.fspath(source)):
                yield str(path)


def _copy_source(url: str, folder: Path, folders: bool) -> Path:
    objects, key = open_object(url)
    # The ending says what is in it; a name such as ".." or "a/b", that only a URL can have, must not lead out of the folder.
    if "/" in key or "\0" in key or key in (".", "..") or len(os.fsencode(key)) > 255:
        raise UrlError(f"source {url!r} does not end with a file name")
    path, about = folder / key, objects.about(key)
    if about is not None:
        require_space(folder, int(about["size"]))
        objects.fetch(key, path)
        return path
    below = open_objects(url)
    assert isinstance(below, RemoteObjects)
    keys = list(below.listing()) if folders and parse_place(url).kind == "objects" else []
    if not keys:
        raise NothingThere(f"source {url} does not exist")
    for name in keys:
        target = path / check_key(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        require_space(folder, below.size(name) or 0)
        below.fetch(name, target)
    return path


@contextmanager
def _naming_url(path: Path, url: str) -> Iterator[None]:
    """In error messages, replace the path of the local copy by the URL of the source."""
    try:
        yield
    except DataError as error:
        if error.file != str(path):
            raise
        raise DataError(error.reason, url, error.line, error.column) from error
    except SchemaError as error:
        if str(path) not in str(error):
            raise
        raise SchemaError(str(error).replace(str(path), url)) from error

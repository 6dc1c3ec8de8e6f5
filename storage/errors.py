"""Exceptions of the storage layer (subclasses of StorageError) for stored data, input files, runs and disks."""

import errno
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

FORMAT = 6
"""Version number of all on-disk formats. Files with another number are rejected."""


class StorageError(Exception):
    """Base class of all errors of the storage layer."""


class SchemaError(StorageError, ValueError):
    """A store, record or argument does not have the declared form: unknown version, wrong dtype, name or shape."""


def format_name(what: str) -> str:
    """Return the format name that files of this kind contain."""
    return f"gramplane.{what}/{FORMAT}"


def check_format(found: object, what: str, where: object, remedy: str) -> None:
    """Raise SchemaError if a file has another format version than this release writes."""
    if found != format_name(what):
        raise SchemaError(f"{where} has the format {found!r}; this version reads {format_name(what)!r}: {remedy}")


class UrlError(SchemaError):
    """A path or URL is malformed, contains credentials, or cannot be used for this purpose."""


class NothingThere(StorageError):
    """A bucket or an object in it does not exist."""


class AccessRefused(StorageError, PermissionError):
    """An object store denied the request: credentials are missing or lack permission."""


class Unreachable(StorageError, ConnectionError):
    """An object store does not answer, or is temporarily unavailable."""


class UnalignedWrite(SchemaError):
    """A write would not cover whole chunks. It is rejected because two writers could silently overwrite each other's data."""


class DigestMismatch(StorageError):
    """Stored bytes differ from the bytes written; the message names the array, the chunk and the byte range."""


class MissingBlock(StorageError):
    """An object listed in the manifest is missing."""


class OtherRun(SchemaError):
    """A folder holds a run with another configuration; the message lists the keys that differ."""


class RunLocked(StorageError):
    """Another process holds the lock of this run; the message names its pid, host and start time."""


class OutOfSpace(StorageError, OSError):
    """The disk is full: ``needed`` bytes could not be written to ``path``, a file or folder."""

    def __init__(self, path: str, needed: int) -> None:
        OSError.__init__(self, errno.ENOSPC, f"no space left to write {needed} bytes to {path}; free space there and start again", path)
        self.path = path
        self.needed = needed

    def __reduce__(self) -> tuple[type["OutOfSpace"], tuple[str, int]]:
        return OutOfSpace, (self.path, self.needed)

    def __str__(self) -> str:
        return str(self.strerror)


class DataError(StorageError, ValueError):
    """Input data are invalid: ``reason`` names the value found and the rule it breaks; ``line`` and ``column`` count from one."""

    def __init__(self, reason: str, file: str = "", line: int | None = None, column: int | None = None) -> None:
        position = ":".join(str(part) for part in (file or None, line, column) if part is not None)
        super().__init__(f"{position}: {reason}" if position else reason)
        self.reason, self.file, self.line, self.column = reason, file, line, column

    def __reduce__(self) -> tuple[type["DataError"], tuple[str, str, int | None, int | None]]:
        return DataError, (self.reason, self.file, self.line, self.column)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def space_for(path: str | os.PathLike[str], needed: int) -> Iterator[None]:
    """Convert "no space left", "quota exceeded" and "file too large" inside the block into `OutOfSpace`, with the bytes needed.

    Other operating-system errors without a path, such as those of an open file, get this path.
    """
    try:
        yield
    except OutOfSpace:
        raise
    except OSError as error:
        if error.errno in _FULL:
            raise OutOfSpace(os.fspath(path), needed) from error
        # One that has no number (damaged gzip, a lost connection) says by itself what is wrong, and would say "[Errno None] None" instead.
        if error.filename is None and error.errno is not None:
            error.filename = os.fspath(path)
        raise


# Names of values whose type only a look at them tells: what users hand over, what JSON holds, SciPy's many sparse classes.

UserData: TypeAlias = Any
"""Data as passed by a user: array, sparse matrix, frame, list of texts, path. Check the type before use."""

Json: TypeAlias = Any
"""A JSON value, or a value parsed from JSON whose form is not yet checked."""

SparseMatrix: TypeAlias = Any
"""A SciPy sparse matrix or array; these classes have no common base class with all shared methods."""

Matrix: TypeAlias = Any
"""Rows of data: an ndarray, or a SciPy sparse matrix."""

Foreign: TypeAlias = Any
"""An object of an optional library (Arrow, pandas, Dask, obstore), or one without type annotations."""


def plain_json(value: Json) -> Json:
    """Return ``value`` as strict JSON: NaN and infinities as ``null``, NumPy numbers and arrays as numbers and lists."""
    if isinstance(value, Mapping):
        return {str(key): plain_json(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain_json(value.tolist())
    if isinstance(value, (list, tuple, set)):
        return [plain_json(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def canonical_json(value: Json) -> bytes:
    """Return JSON text in canonical form (sorted keys, no spaces), the input of digests. Raises SchemaError if JSON cannot represent the
    value.
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise SchemaError(f"value cannot be written as JSON: {error}") from error


def load_json(data: bytes | str, where: str) -> Json:
    """Parse JSON of any depth and encoding from an untrusted file. Raises SchemaError with the position of an error."""
    try:
        return json.loads(data)
    except RecursionError as error:
        raise SchemaError(f"{where} is not valid JSON: it is nested too deep") from error
    except ValueError as error:
        raise SchemaError(f"{where} is not valid JSON: {error}") from error


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Parse a JSON object. Raises SchemaError, with the position of the error, if the text is not one."""
    fields = load_json(data, where)
    if not isinstance(fields, dict):
        raise SchemaError(f"{where} holds a JSON {type(fields).__name__}; it must be an object")
    return fields

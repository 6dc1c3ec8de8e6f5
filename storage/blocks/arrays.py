"""Zarr v3 arrays with the plain ``bytes`` codec: their metadata, and whole-chunk reads checked by crc32c."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Protocol

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..errors import DigestMismatch, Json, MissingBlock, SchemaError, parse_json
from ..layout import table_chunk
from ..objects import Bytes, Objects, as_bytes, describe_key, total_bytes

MAX_CHUNK_BYTES = 512 << 20
"""Largest chunk that a store may declare. Larger chunks are rejected before memory is allocated."""

Record = dict[str, tuple[int, int]]
"""Objects that were written: key -> (size in bytes, crc32c)."""

_NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_DTYPES = {name: np.dtype(name).newbyteorder("<") for name in _NUMBERS}


def crc32c(*parts: npt.NDArray | bytes) -> int:
    """Return the crc32c of the concatenated parts."""
    value = 0
    for part in parts:
        value = google_crc32c.extend(value, as_bytes(part))  # pyright: ignore[reportArgumentType] (any contiguous buffer)
    return value


@dataclass(frozen=True)
class ArraySpec:
    """Shape, chunk shape and element type of a stored array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: str

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """NumPy type of the stored elements, little-endian."""
        return _DTYPES[self.dtype]

    @cached_property
    def chunk_bytes(self) -> int:
        return prod(self.chunk) * self.numpy_dtype.itemsize

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of chunks along each axis."""
        return tuple(-(-s // c) for s, c in zip(self.shape, self.chunk, strict=True))

    @property
    def fill(self) -> float | int | bool:
        """Value used for padding: NaN for floats, so that padding cannot be mistaken for data; zero otherwise."""
        return float("nan") if self.numpy_dtype.kind == "f" else self.numpy_dtype.type(0).item()

    def keys(self, prefix: str) -> list[str]:
        """Return the keys of all chunk objects of the array stored at ``prefix``."""
        return [f"{prefix}/c/{'/'.join(map(str, index))}" for index in np.ndindex(*self.grid)]

    def to_json(self) -> bytes:
        """Return the ``zarr.json`` of the array."""
        codec: dict[str, Any] = {"name": "bytes"}
        if self.numpy_dtype.itemsize > 1:
            codec["configuration"] = {"endian": "little"}
        grid = {"name": "regular", "configuration": {"chunk_shape": list(self.chunk)}}
        keys = {"name": "default", "configuration": {"separator": "/"}}
        fields = {"zarr_format": 3, "node_type": "array", "shape": list(self.shape), "data_type": self.dtype, "chunk_grid": grid}
        values = {"fill_value": "NaN" if self.numpy_dtype.kind == "f" else self.fill, "codecs": [codec]}
        return json.dumps({**fields, "chunk_key_encoding": keys, **values, "attributes": {}, "storage_transformers": []}, indent=1).encode()

    @classmethod
    def from_json(cls, data: bytes, where: str) -> "ArraySpec":
        """Read the ``zarr.json`` of an array. Raises SchemaError unless the array has plain little-endian chunks of limited size."""
        fields = parse_json(data, where)
        shape = _read_lengths(fields, "shape", where)
        spec = cls(shape, _read_lengths(_inner_config(fields.get("chunk_grid")), "chunk_shape", where), str(fields.get("data_type")))
        keys, codecs = _as_dict(fields.get("chunk_key_encoding")), fields.get("codecs")
        codec = _as_dict(codecs[0] if isinstance(codecs, list) and len(codecs) == 1 else None)
        is_of_bytes = spec.dtype in ("bool", "int8", "uint8")
        rules = {
            "zarr_format": fields.get("zarr_format") == 3,
            "node_type": fields.get("node_type") == "array",
            "data_type": spec.dtype in _DTYPES,
            "chunk_grid": len(spec.chunk) == len(spec.shape) and all(c >= 1 for c in spec.chunk),
            "chunk_key_encoding": keys.get("name") == "default" and _inner_config(keys).get("separator", "/") == "/",
            "codecs": codec.get("name") == "bytes" and (is_of_bytes or _inner_config(codec).get("endian") == "little"),
            "storage_transformers": not fields.get("storage_transformers"),
        }
        for field, holds in rules.items():
            if not holds:
                value = fields.get(field)
                raise SchemaError(f"{where}: {field} is {value!r}; this version reads plain little-endian chunks (codec 'bytes') only")
        if spec.chunk_bytes > MAX_CHUNK_BYTES:
            raise SchemaError(f"{where}: one chunk would have {spec.chunk_bytes} bytes; the limit is {MAX_CHUNK_BYTES}")
        return spec


def _as_dict(value: Json) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _inner_config(value: Json) -> Mapping[str, Any]:
    return _as_dict(_as_dict(value).get("configuration"))


def _read_lengths(fields: Mapping[str, Any], name: str, where: str) -> tuple[int, ...]:
    value = fields.get(name)
    if not isinstance(value, list) or not value or not all(type(v) is int and 0 <= v < 2**62 for v in value):
        raise SchemaError(f"{where}: {name} is {value!r}; it must be a list of non-negative integers below 2^62")
    return tuple(value)


def group_json(attributes: Mapping[str, Any] | None = None) -> bytes:
    """Return the ``zarr.json`` of a group."""
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes or {})}, indent=1).encode()


def write_object(objects: Objects, key: str, *parts: npt.NDArray | bytes, fsync: bool) -> Record:
    """Write one object; return its record."""
    objects.write(key, *parts, fsync=fsync)
    return {key: (total_bytes(*parts), crc32c(*parts))}


class Pieces(Protocol):
    """An array that is read in pieces."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        ...

    @property
    def ndim(self) -> int: ...

    @property
    def size(self) -> int: ...

    dtype: np.dtype[Any]

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return rows ``lo:hi``, C-ordered."""
        ...


def write_array(objects: Objects, prefix: str, values: npt.NDArray | Pieces, *, fsync: bool) -> Record:
    """Write a whole array of numbers or booleans, chunked along its first axis; return the records of its objects.

    A `Pieces` array is read chunk by chunk.
    """
    if values.dtype.name not in _DTYPES:
        raise SchemaError(f"array {prefix!r} has the type {values.dtype}; storable are {', '.join(_NUMBERS)}")
    spec = ArraySpec(values.shape, table_chunk(values.shape), values.dtype.name)
    written = write_object(objects, f"{prefix}/zarr.json", spec.to_json(), fsync=fsync)
    whole = np.ascontiguousarray(values, dtype=spec.numpy_dtype) if isinstance(values, np.ndarray) else np.zeros(0)
    suffix = "/0" * (values.ndim - 1)
    for c in range(spec.grid[0] if values.size else 0):
        lo, hi = c * spec.chunk[0], min((c + 1) * spec.chunk[0], spec.shape[0])
        piece = whole[lo:hi] if isinstance(values, np.ndarray) else values.read(lo, hi)
        pad = fill_values(spec.numpy_dtype, spec.chunk_bytes // spec.numpy_dtype.itemsize - piece.size)
        written |= write_object(objects, f"{prefix}/c/{c}{suffix}", piece, pad, fsync=fsync)
    return written


def fill_values(dtype: np.dtype, count: int) -> npt.NDArray:
    """Return ``count`` fill values of a type."""
    return np.full(count, np.nan if dtype.kind == "f" else 0, dtype=dtype)


class ChunkedArray:
    """One array of a committed store. The first read of a chunk checks its crc32c, and every read checks its length.

    ``listed`` is the manifest of the store. ``verified`` holds the keys already checked in this process; the arrays of a store share this
    set.
    """

    def __init__(self, objects: Objects, prefix: str, spec: ArraySpec, listed: Mapping[str, tuple[int, int]], verified: set[str]) -> None:
        self.objects, self.prefix, self.spec = objects, prefix, spec
        self.listed, self.verified = listed, verified

    def _key(self, *index: int) -> str:
        key = f"{self.prefix}/c/{'/'.join(map(str, index))}"
        if key not in self.listed:
            raise MissingBlock(f"{self.objects.url}: {describe_key(key)} is not listed in the manifest")
        return key

    def _read_whole(self, key: str, out: Bytes) -> None:
        self.objects.read_into(key, out, 0, self.spec.chunk_bytes)
        if key not in self.verified:
            check_crc(self.objects.url, key, out, self.listed[key])
            self.verified.add(key)

    def _read_part(self, key: str, out: Bytes, offset: int) -> None:
        if key not in self.verified:
            self._read_whole(key, np.empty(self.spec.chunk_bytes, np.uint8))
        self.objects.read_into(key, out, offset, self.spec.chunk_bytes)

    def read(self, lo: int, hi: int) -> npt.NDArray:
        """Return rows ``lo:hi`` of an array chunked along its first axis only. Other elements of the chunks are read only if the chunks
        must be checked.
        """
        width, step, dtype = self.spec.shape[1:], self.spec.chunk[0], self.spec.numpy_dtype
        span = range(lo // step, -(-hi // step)) if hi > lo and 0 not in width else range(0)
        keys = [self._key(c, *[0] * len(width)) for c in span]
        if not keys:
            return np.empty((hi - lo, *width), dtype)
        if all(key in self.verified for key in keys):
            return self._read_known(keys, span, lo, hi)
        out = np.empty((len(span) * step, *width), dtype)
        for position, key in enumerate(keys):
            self._read_whole(key, as_bytes(out[position * step : (position + 1) * step]))
        return out[lo - span[0] * step : hi - span[0] * step]

    def _read_known(self, keys: list[str], span: range, lo: int, hi: int) -> npt.NDArray:
        out = np.empty((hi - lo, *self.spec.shape[1:]), self.spec.numpy_dtype)
        step, stride = self.spec.chunk[0], self.spec.chunk_bytes // self.spec.chunk[0]
        for key, c in zip(keys, span, strict=True):
            first, last = max(lo, c * step), min(hi, (c + 1) * step)
            self._read_part(key, as_bytes(out[first - lo : last - lo]), (first - c * step) * stride)
        return out

    def gather(self, base: int, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], gap: int = 1 << 14) -> npt.NDArray:
        """Concatenate the ranges ``base + starts[k] : base + starts[k] + lengths[k]`` of a 1-D array. Ranges must ascend; nearby ranges are
        read together.
        """
        if len(starts) == 1:
            return self.read(base + int(starts[0]), base + int(starts[0] + lengths[0]))
        ends = starts + lengths
        new = np.append(True, starts[1:] > ends[:-1] + gap)
        first, last = starts[new], ends[np.append(np.flatnonzero(new)[1:] - 1, len(ends) - 1)]
        spans = [self.read(base + int(a), base + int(b)) for a, b in zip(first, last, strict=True)]
        joined = spans[0] if len(spans) == 1 else np.concatenate(spans)
        origin = np.concatenate([[0], np.cumsum(last - first)[:-1]]) - first
        if len(spans) == 1 and int(lengths.sum()) == joined.size:
            return joined
        return joined[concatenate_ranges(starts + origin[np.cumsum(new) - 1], lengths)]

    def read_cell(self, i: int, j: int, rows: int) -> npt.NDArray:
        """Return the first ``rows`` rows of chunk (i, j) of a 2-D array, including padding columns."""
        key = self._key(i, j)
        if key in self.verified:
            out = np.empty((rows, self.spec.chunk[1]), self.spec.numpy_dtype)
            self._read_part(key, as_bytes(out), 0)
            return out
        whole = np.empty(self.spec.chunk, self.spec.numpy_dtype)
        self._read_whole(key, as_bytes(whole))
        return whole[:rows]


def concatenate_ranges(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions ``starts[0], …, starts[0] + lengths[0] - 1, starts[1], …`` as one vector."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=np.int64)


def check_crc(url: str, key: str, data: Bytes, listed: tuple[int, int]) -> None:
    """Compare length and crc32c of an object with the manifest. Raises DigestMismatch with array, chunk and byte range."""
    nbytes, expected = listed
    checksum = crc32c(data)
    if data.nbytes != nbytes or checksum != expected:
        sums = f"{data.nbytes} bytes with crc32c {checksum:08x} instead of {expected:08x}"
        raise DigestMismatch(f"{url}: {describe_key(key)}, bytes 0:{nbytes}: {sums}; the stored data changed after they were written")


def read_listed(objects: Objects, listed: Mapping[str, tuple[int, int]], key: str) -> bytes:
    """Read and check a small object that the manifest lists."""
    if key not in listed:
        raise MissingBlock(f"{objects.url}: {key} is not listed in the manifest")
    data = objects.read(key)
    check_crc(objects.url, key, data, listed[key])
    return data.tobytes()

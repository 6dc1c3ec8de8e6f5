"""Exact conversion of frozen dataclasses to arrays and JSON and back, restoring the declared types, without pickle."""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar, Union, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .errors import Json, SchemaError, check_format, format_name, plain_json
from .runs.tiles import TiledMatrix

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Arrays = dict[str, npt.NDArray[Any]]
Index = dict[str, list[Any]]
_Hint: TypeAlias = Any  # an annotation, of which Python has no type
_Hints: TypeAlias = tuple[_Hint, ...] | None
_SPARSE: dict[str, type] = {"csc": sp.csc_array, "csr": sp.csr_array}
_ADVICE = "start again in a new folder, or install the gramplane version that wrote it"

MAX_PLAIN_ARRAYS = 64
"""Up to this many small arrays are stored separately, so that the arrays of a record of ordinary size can be read by name."""
MAX_SMALL_BYTES = 1 << 16
"""Size in bytes up to which an array counts as small: too small for a file of its own (in Zarr, for two objects of its own)."""


def to_arrays(obj: object) -> tuple[Arrays, dict[str, Any]]:
    """Split a record into arrays, with names in [A-Za-z0-9._-]{1,128}, and a value for ``json.dumps(..., allow_nan=False)``.

    Fields may be numeric ndarrays, SciPy csc/csr arrays, int, float (also inf and nan), str, bool, None, tuples, lists, dicts with str
    keys, and nested dataclasses. A class may declare ``record_version: ClassVar[int]`` (default 1) and ``record_name: ClassVar[str]``, the
    name under which it is stored (default: the class name). Raises SchemaError, naming the field whose value cannot be stored.
    """
    if not _is_record(obj):
        raise SchemaError(f"a record must be a dataclass instance, not {type(obj).__name__}")
    arrays: Arrays = {}
    return arrays, {"format": format_name("record"), "record": _encode_value(obj, "", arrays)}


def from_arrays(cls: type[T], arrays: Mapping[str, npt.NDArray[Any]], value: Mapping[str, Any]) -> T:
    """Rebuild a record from `to_arrays`. Raises SchemaError if format, class, version or a field differs from the declaration
    of the class.
    """
    check_format(value.get("format") if isinstance(value, Mapping) else value, "record", "record", _ADVICE)
    return _decode_record(cls, value.get("record"), arrays, record_name(cls))


def record_class(value: Mapping[str, Any]) -> str | None:
    """Return the class name of a stored record, or None."""
    record = value.get("record")
    return record.get("$class") if isinstance(record, Mapping) else None


def _is_record(obj: object) -> "TypeGuard[DataclassInstance]":
    return dataclasses.is_dataclass(obj) and not isinstance(obj, type)


def record_name(cls: type) -> str:
    """Return the name under which a class is stored; an inherited ``record_name`` does not count."""
    return str(cls.__dict__.get("record_name", cls.__name__))


def _record_version(cls: type) -> int:
    return int(getattr(cls, "record_version", 1))


def _encode_value(value: object, path: str, arrays: Arrays) -> Json:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        number = float(value)
        return number if math.isfinite(number) else {"$float": repr(number)}
    if isinstance(value, np.ndarray):
        return _encode_array(value, path, arrays)
    if isinstance(value, TiledMatrix):
        # It is read as it is written, and comes back as an array.
        arrays[path] = cast("npt.NDArray[Any]", value)
        return {"$array": path}
    if isinstance(value, sp.csc_array | sp.csr_array):
        parts = {part: _encode_array(getattr(value, part), _join_path(path, part), arrays) for part in ("data", "indices", "indptr")}
        return {"$sparse": value.format, "shape": [int(s) for s in value.shape or ()], **parts}
    return _encode_container(value, path, arrays)


def _encode_container(value: object, path: str, arrays: Arrays) -> Json:
    if _is_record(value):
        values = {f.name: _encode_value(getattr(value, f.name), _join_path(path, f.name), arrays) for f in dataclasses.fields(value)}
        return {"$class": record_name(type(value)), "$version": _record_version(type(value)), **values}
    if isinstance(value, tuple | list):
        return [_encode_value(item, _join_path(path, str(i)), arrays) for i, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str) or key.startswith("$"):
                raise SchemaError(f"field {path}: the dict key {key!r} must be a str that does not begin with '$'")
        return {key: _encode_value(item, _join_path(path, str(i)), arrays) for i, (key, item) in enumerate(value.items())}
    raise SchemaError(f"field {path} holds a {type(value).__name__}, which a record cannot store")


def _encode_array(value: npt.NDArray[Any], path: str, arrays: Arrays) -> dict[str, Any]:
    if value.dtype.kind not in "biuf":
        raise SchemaError(f"field {path} is an array of {value.dtype}; a record stores numbers and booleans only")
    name = path if len(path) <= 128 else f"a{len(arrays)}"
    arrays[name] = np.atleast_1d(np.asarray(value, dtype=value.dtype.newbyteorder("=")))
    tag: dict[str, Any] = {"$array": name}
    if value.ndim == 0:
        tag["scalar"] = True
    if value.ndim > 1 and value.flags.f_contiguous and not value.flags.c_contiguous:
        tag["order"] = "F"
    return tag


def _join_path(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _decode_value(kind: _Hint, node: Json, arrays: Mapping[str, Any], path: str) -> object:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, typing.NewType):
        return _decode_value(kind.__supertype__, node, arrays, path)
    if (meant := getattr(origin or kind, "__value__", None)) is not None:
        # What ``type X = ...`` makes from Python 3.12 on; NDArray is an alias of this kind there.
        return _decode_value(meant[args] if args else meant, node, arrays, path)
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return _decode_untyped(node, arrays, path)
    if origin is typing.Annotated:
        return _decode_value(args[0], node, arrays, path)
    if origin in (Union, types.UnionType):
        return _decode_union(args, node, arrays, path)
    if origin is Literal:
        _check_node(any(type(node) is type(arg) and node == arg for arg in args), node, kind, path)
        return node
    target = origin or kind
    if dataclasses.is_dataclass(target) and isinstance(target, type):
        return _decode_record(target, node, arrays, path)
    for known, decode in _DECODERS:
        if isinstance(target, type) and target in known:
            return decode(target, args if origin else None, node, arrays, path)
    raise SchemaError(f"field {path} is declared as {kind}, which a record cannot restore")


def _check_node(holds: bool, node: Json, kind: _Hint, path: str) -> None:
    if not holds:
        raise SchemaError(f"field {path} holds {repr(node)[:80]}; it must be {getattr(kind, '__name__', kind)}: {_ADVICE}")


def _decode_record(cls: type[T], node: Json, arrays: Mapping[str, Any], path: str) -> T:
    if not isinstance(node, Mapping) or node.get("$class") != record_name(cls):
        stored = node.get("$class") if isinstance(node, Mapping) else node
        raise SchemaError(f"{path} holds a record of class {stored!r}; expected {record_name(cls)!r}: {_ADVICE}")
    if node.get("$version") != _record_version(cls):
        written = node.get("$version")
        raise SchemaError(f"{path} was written as version {written} of {record_name(cls)}; this is {_record_version(cls)}: {_ADVICE}")
    declared = [f.name for f in dataclasses.fields(cls) if f.init]  # pyright: ignore[reportArgumentType] (a dataclass)
    names = {name for name in node if not name.startswith("$")}
    differing = sorted(names ^ set(declared))
    if differing:
        raise SchemaError(f"{path}: the stored record and {record_name(cls)} differ in the fields {differing}: {_ADVICE}")
    hints = typing.get_type_hints(cls, include_extras=True)
    return cls(**{name: _decode_value(hints[name], node[name], arrays, f"{path}.{name}") for name in declared})


def _decode_union(args: Sequence[_Hint], node: Json, arrays: Mapping[str, Any], path: str) -> object:
    if node is None and type(None) in args:
        return None
    # an exact scalar type first, so that `int | float` keeps 1 and 1.0 apart
    for arg in sorted(args, key=lambda arg: type(node) is not arg):
        if arg is not type(None):
            with suppress(SchemaError):
                return _decode_value(arg, node, arrays, path)
    raise SchemaError(f"field {path} fits none of {', '.join(str(arg) for arg in args)}: {_ADVICE}")


def _decode_untyped(node: Json, arrays: Mapping[str, Any], path: str) -> object:
    if isinstance(node, list):
        return [_decode_untyped(item, arrays, path) for item in node]
    if not isinstance(node, Mapping):
        return node
    if "$array" in node:
        return _decode_array(np.ndarray, (), node, arrays, path)
    if "$sparse" in node:
        return _decode_sparse(_SPARSE.get(str(node["$sparse"]), sp.csc_array), (), node, arrays, path)
    if "$float" in node:
        return _decode_float(float, (), node, arrays, path)
    _check_node("$class" not in node, node, Any, path)
    return {key: _decode_untyped(item, arrays, path) for key, item in node.items()}


def _decode_scalar(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> object:
    _check_node(type(node) is kind, node, kind, path)
    return node


def _decode_float(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> float:
    if isinstance(node, Mapping) and node.get("$float") in ("nan", "inf", "-inf"):
        return float(str(node["$float"]))
    number: Json = node
    _check_node(type(number) in (int, float), node, kind, path)
    return float(number)


def _decode_array(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> npt.NDArray[Any]:
    _check_node(isinstance(node, Mapping) and node.get("$array") in arrays, node, kind, path)
    array = np.asarray(arrays[node["$array"]])
    if node.get("scalar"):
        return array.reshape(())
    return np.asfortranarray(array) if node.get("order") == "F" else np.ascontiguousarray(array)


def _decode_sparse(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> object:
    _check_node(isinstance(node, Mapping) and _SPARSE.get(str(node.get("$sparse"))) is kind, node, kind, path)
    parts = tuple(_decode_array(np.ndarray, (), node.get(part), arrays, f"{path}.{part}") for part in ("data", "indices", "indptr"))
    return kind(parts, shape=tuple(node["shape"]))


def _decode_tuple(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> tuple[Any, ...]:
    _check_node(isinstance(node, list), node, kind, path)
    if args is None or (len(args) == 2 and args[1] is Ellipsis):
        item = args[0] if args else Any
        return tuple(_decode_value(item, part, arrays, f"{path}[{i}]") for i, part in enumerate(node))
    _check_node(len(node) == len(args), node, kind, path)
    return tuple(_decode_value(arg, part, arrays, f"{path}[{i}]") for i, (arg, part) in enumerate(zip(args, node, strict=True)))


def _decode_list(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> object:
    items = _decode_tuple(kind, args and (args[0], Ellipsis), node, arrays, path)
    return list(items) if kind is list else items


def _decode_dict(kind: type, args: _Hints, node: Json, arrays: Mapping[str, Any], path: str) -> dict[str, Any]:
    _check_node(isinstance(node, Mapping) and not any(key.startswith("$") for key in node), node, kind, path)
    item = args[1] if args and len(args) == 2 else Any
    return {key: _decode_value(item, part, arrays, f"{path}[{key!r}]") for key, part in node.items()}


_DECODERS: tuple[tuple[tuple[Any, ...], Callable[..., Any]], ...] = (
    ((int, str, bool, type(None)), _decode_scalar),
    ((float,), _decode_float),
    ((np.ndarray,), _decode_array),
    ((sp.csc_array, sp.csr_array), _decode_sparse),
    ((tuple,), _decode_tuple),
    ((list, Sequence), _decode_list),
    ((dict, Mapping), _decode_dict),
)


def dump_json(value: object) -> bytes:
    """Return a value as JSON text for logs: NumPy scalars as numbers, arrays as lists, and non-finite numbers as null, because strict JSON
    cannot represent them.
    """
    return json.dumps(plain_json(value), allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode()


def pack(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[Arrays, Index]:
    """Concatenate small arrays of one type into ``packed-TYPE``; the others keep their names.

    Returns the arrays to write, and the index of the packed arrays, ``{name: [type, shape, offset]}``. If there are few small arrays,
    nothing is packed and the index is empty.
    """
    small = {name: array for name, array in arrays.items() if array.nbytes <= MAX_SMALL_BYTES and isinstance(array, np.ndarray)}
    if len(small) <= MAX_PLAIN_ARRAYS:
        return dict(arrays), {}
    parts: dict[str, list[npt.NDArray[Any]]] = {}
    filled: dict[str, int] = {}
    index: Index = {}
    for name, array in small.items():
        kind = array.dtype.name
        index[name] = [kind, list(array.shape), filled.get(kind, 0)]
        parts.setdefault(kind, []).append(np.ravel(array))
        filled[kind] = filled.get(kind, 0) + array.size
    packed = {f"packed-{kind}": np.concatenate(chunks) for kind, chunks in parts.items()}
    return {**{name: array for name, array in arrays.items() if name not in small}, **packed}, index


def unpack(arrays: Mapping[str, npt.NDArray[Any]], index: Mapping[str, Any]) -> Arrays:
    """Invert `pack`. Raises SchemaError if an entry of the index does not fit the arrays."""
    out = {name: array for name, array in arrays.items() if not (index and name.startswith("packed-"))}
    for name, entry in index.items():
        try:
            kind, shape, offset = entry
            size = int(np.prod(shape, dtype=np.int64))
            out[name] = arrays[f"packed-{kind}"][offset : offset + size].reshape(shape).copy()
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"packed array {name!r}: its entry {entry!r} does not fit what is stored") from error
    return out

"""Saved models: one record in a Zarr group, with its arrays as Zarr arrays and the rest as JSON attributes, sealed by a manifest."""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

from ..blocks.arrays import ArraySpec, ChunkedArray, group_json, read_listed, write_array, write_object
from ..errors import SchemaError, StorageError, check_format, format_name, parse_json
from ..manifest import MANIFEST, read_seal, write_seal
from ..objects import Objects
from ..records import from_arrays, pack, record_class, record_name, to_arrays, unpack
from ..urls import open_objects

ROOT = "zarr.json"
T = TypeVar("T")


def write_model(url: str | os.PathLike[str], record: object) -> str:
    """Write a record as a model and return its digest. An existing model is replaced; other contents are never replaced."""
    named, value = to_arrays(record)
    arrays, index = pack(named)
    objects = open_objects(url)
    _clear_place(objects)
    about = {"schema": format_name("model"), **value, **({"packed": index} if index else {})}
    listed = write_object(objects, ROOT, group_json({"gramplane": about}), fsync=True)
    for name, array in arrays.items():
        listed |= write_array(objects, name, array, fsync=True)
    return write_seal(objects, listed)


def _clear_place(objects: Objects) -> None:
    """Remove an existing model, or the remains of an unfinished one. Raises an error if the folder holds other files; the message names one
    of them.
    """
    keys = set(objects.listing())
    inside = keys or objects.folders()  # (empty folders, and links to folders, hold no keys)
    if inside and model_class(objects.url) is None:
        raise SchemaError(f"{objects.url} holds files that are not a model ({min(inside)}, …); choose another place")
    if foreign := _foreign_files(objects):
        raise SchemaError(f"{objects.url} holds files that are no part of the model, such as {min(foreign)}; choose another place")
    objects.delete(MANIFEST)
    # What says that this is a model goes last, so that a kill in between leaves a folder that can be used again.
    for key in keys - {ROOT}:
        objects.delete(key)
    objects.clear()


def _foreign_files(objects: Objects) -> set[str]:
    """Return the files in the folder that the manifest of the model does not list. An unfinished model has no manifest; the result is then
    empty.
    """
    try:
        listed, _ = read_seal(objects)
    except StorageError:
        return set()
    return {key for key in objects.listing() if key not in listed and key != MANIFEST}


def model_class(url: str | os.PathLike[str]) -> str | None:
    """Return the class of the model at this location, or None if there is none; only the root of the model is read."""
    try:
        return record_class(_model_fields(open_objects(url).read(ROOT).tobytes(), os.fspath(url))) or ""
    except (OSError, StorageError):
        return None


def _model_fields(root: bytes, where: str) -> dict[str, Any]:
    attributes = parse_json(root, where).get("attributes")
    value = attributes.get("gramplane") if isinstance(attributes, dict) else None
    fields = value if isinstance(value, dict) else {}
    check_format(fields.get("schema"), "model", where, "fit it again, or install the version that wrote it")
    return fields


def read_model(url: str | os.PathLike[str], cls: type[T] | Sequence[type[T]]) -> T:
    """Read a model of one of these classes.

    Raises MissingBlock or DigestMismatch if it is unfinished or damaged; SchemaError if it is not a model, or has another class or version.
    """
    objects = open_objects(url)
    listed, _ = read_seal(objects)
    value = _model_fields(read_listed(objects, listed, ROOT), f"{objects.url}/{ROOT}")
    classes = [cls] if isinstance(cls, type) else list(cls)
    fitting = [c for c in classes if record_name(c) == record_class(value)] or classes[:1]
    arrays = {}
    for prefix in [key.removesuffix("/zarr.json") for key in listed if key.endswith("/zarr.json")]:
        spec = ArraySpec.from_json(read_listed(objects, listed, f"{prefix}/zarr.json"), f"{objects.url}/{prefix}/zarr.json")
        arrays[prefix] = ChunkedArray(objects, prefix, spec, listed, set()).read(0, spec.shape[0])
    return from_arrays(fitting[0], unpack(arrays, value.pop("packed", {})), value)

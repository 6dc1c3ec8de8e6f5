"""What may be replaced: files that have the form of what is about to be written, nothing else."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from ...storage.objects import require_writable
from ...storage.runs.models import model_class
from ...storage.urls import local_path

_COLUMN = re.compile(r"id|row|prediction|decision(_\d+)?|probability(\[.*\])?|classes|component_\d+|user|rank|candidate|group|strength")
_HEADER_BYTES = 1 << 20


def refuse_foreign(out: str, record: str | None) -> None:
    """Refuse, before work, to replace a file or folder that does not have the form of predictions; an empty one is nobody's.

    The form follows the ending of ``out``; an object store's URL is not looked at. ``record`` is the class of the records that a ``.zarr``
    folder of predictions holds; ``None``: whatever is there may go. Raises ValueError, which names the place; OSError if nothing may be
    written there.
    """
    path = local_path(out)
    if path is None:
        return
    require_writable(path)
    if record is None or not path.exists():
        return
    if path.is_dir():
        ours = path.suffix.lower() != ".zarr" or not any(path.iterdir()) or model_class(path) == record
    else:
        ours = not path.is_file() or path.stat().st_size == 0 or _is_table(path)
    if not ours:
        raise ValueError(f"out={out!r}: what is there does not hold predictions and is not replaced; name another place, or remove it")


def _is_table(path: Path) -> bool:
    names = _NAMES.get(path.suffix.lower())
    columns = list(names(path)) if names else []
    return bool(columns) and all(_COLUMN.fullmatch(name) for name in columns)


def _csv_names(path: Path) -> Iterable[str]:
    with path.open("rb") as file:
        header = file.readline(_HEADER_BYTES).decode("utf-8", "replace").rstrip("\r\n")
    return next(csv.reader([header]), [])


def _npz_names(path: Path) -> Iterable[str]:
    try:
        with zipfile.ZipFile(path) as file:
            return [name.removesuffix(".npy") for name in file.namelist()]
    except zipfile.BadZipFile:
        return ()


def _parquet_names(path: Path) -> Iterable[str]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_schema(path).names
    except pyarrow.ArrowInvalid:
        return ()


_NAMES: dict[str, Callable[[Path], Iterable[str]]] = {".csv": _csv_names, ".npz": _npz_names, ".parquet": _parquet_names}

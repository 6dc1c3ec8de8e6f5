"""Files of predictions: row, predicted label, decision values and probabilities, as arrays, a table or a Zarr group."""

from __future__ import annotations

import csv
import itertools
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...storage import write_model
from ...storage.objects import require_writable
from ...storage.places import check_place
from ...storage.runs.models import model_class
from ...storage.urls import holds_store, local_path, require_place, whole_file
from ..models.calibration import probability_names
from ..records.csv_texts import CsvTexts


@dataclass(frozen=True)
class Predicted:
    """Predictions of rows.

    ``ids``: names of the rows (default: numbers from 0). ``labels``: predicted classes, or ``None`` for regression. ``values``: ``(n, m)``
    decision values or predicted numbers. ``probabilities``: ``(n, k)`` probabilities of the k ``classes``, if known.
    """

    ids: np.ndarray | None
    labels: np.ndarray | None
    values: np.ndarray
    classes: np.ndarray | None = None
    probabilities: np.ndarray | None = None

    def rows(self) -> dict[str, np.ndarray]:
        """Return the column that identifies the rows, by its name."""
        return {"row": np.arange(len(self.values))} if self.ids is None else {"id": self.ids}

    def columns(self) -> dict[str, np.ndarray]:
        values = self.values
        if self.labels is None:
            return {**self.rows(), **({"prediction": values[:, 0]} if values.shape[1] == 1 else _columns("component", values))}
        decisions = {"decision": values[:, 0]} if values.shape[1] == 1 else _columns("decision", values)
        if self.classes is None or self.probabilities is None:
            return {**self.rows(), "prediction": self.labels, **decisions}
        probabilities = dict(zip(probability_names(self.classes.tolist()), self.probabilities.T, strict=True))
        return {**self.rows(), "prediction": self.labels, **decisions, **probabilities}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of a .npz file. Rows are in order; ids are included if there are any."""
        if self.labels is None:
            return {name: column for name, column in self.columns().items() if name != "row"}
        ids = {} if self.ids is None else {"id": self.ids}
        known = {} if self.classes is None or self.probabilities is None else {"classes": self.classes, "probability": self.probabilities}
        return {**ids, "prediction": np.asarray(self.labels), "decision": self.values, **known}


def _columns(name: str, values: np.ndarray) -> dict[str, np.ndarray]:
    return {f"{name}_{k}": values[:, k] for k in range(values.shape[1])}


def _save_npz(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    plain = {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}
    with path.open("wb") as file:
        np.savez(file, **plain)  # pyright: ignore[reportArgumentType] (no name of ours is one of its options)


def _save_csv(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in itertools.chain([columns], zip(*(column.tolist() for column in columns.values()), strict=True)):
            texts = [repr(value) if isinstance(value, float) else str(value) for value in row]
            cells = ('"' + text.replace('"', '""') + '"' if any(mark in text for mark in ',"\n\r') else text for text in texts)
            file.write(",".join(cells) + "\n")


def _save_parquet(path: Path, columns: Mapping[str, np.ndarray]) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(column.tolist()) for name, column in columns.items()}), path)


@dataclass(frozen=True)
class Predictions:
    """Predicted labels (codes into ``labels``; numbers for regression) and decision values, saved as a Zarr group.

    ``row``: row numbers, or numeric ids. ``id_letters``, ``id_ends``: ids that are texts, concatenated, and where each text ends.
    ``probability``: probabilities of ``classes``, if known.
    """

    labels: tuple[str, ...]
    prediction: np.ndarray
    decision: np.ndarray
    row: np.ndarray | None = None
    id_letters: np.ndarray | None = None
    id_ends: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    probability: np.ndarray | None = None


def _write_zarr(url: str, predicted: Predicted) -> None:
    (rows,) = predicted.rows().values()
    about: dict[str, Any] = {"row": rows}
    if predicted.classes is not None:
        about |= {"classes": tuple(str(label) for label in predicted.classes.tolist()), "probability": predicted.probabilities}
    if rows.dtype == object:
        coded = [str(text).encode() for text in rows]
        ends = np.cumsum([0, *map(len, coded)])
        about |= {"row": None, "id_letters": np.frombuffer(b"".join(coded), np.uint8), "id_ends": ends}
    if predicted.labels is None:
        write_model(url, Predictions((), predicted.values[:, 0], predicted.values, **about))
        return
    names, codes = np.unique(predicted.labels, return_inverse=True)
    write_model(url, Predictions(tuple(str(name) for name in names), codes, predicted.values, **about))


_FILES: dict[str, Callable[[Path, Mapping[str, np.ndarray]], None]] = {".npz": _save_npz, ".csv": _save_csv, ".parquet": _save_parquet}
_ENDINGS = (*_FILES, ".zarr")


def _place_of(out: str, endings: Iterable[str]) -> tuple[str, str]:
    url = check_place(out, "predictions", "out")
    suffix = Path(url).suffix.lower()
    if suffix not in endings:
        raise ValueError(f"out={out!r}: the file extension must be one of {', '.join(endings)}")
    return url, suffix


def table_writer(out: str, texts: CsvTexts) -> Callable[[Mapping[str, np.ndarray]], int]:
    """Return a function that writes a table to a path or URL and returns its number of lines. Write access is checked immediately."""
    url, suffix = _place_of(out, _FILES)
    require_place(url)

    def write(columns: Mapping[str, np.ndarray]) -> int:
        with whole_file(url, sum(column.nbytes for column in columns.values())) as path:
            _FILES[suffix](path, texts.columns(columns) if suffix == ".csv" else columns)
        texts.tell(out)
        return len(next(iter(columns.values())))

    return write


def predictions_writer(out: str, texts: CsvTexts) -> Callable[[Predicted], None]:
    """Return a function that writes predictions to a path or URL. Write access is checked immediately."""
    url, suffix = _place_of(out, _ENDINGS)
    if suffix == ".zarr":
        holds_store(url)
        return partial(_write_zarr, url)
    require_place(url)

    def write(predicted: Predicted) -> None:
        with whole_file(url, predicted.values.nbytes) as path:
            columns = predicted.arrays() if suffix == ".npz" else predicted.columns()
            _FILES[suffix](path, texts.columns(columns) if suffix == ".csv" else columns)
        texts.tell(out)

    return write


_COLUMN = re.compile(r"id|row|prediction|decision(_\d+)?|probability(\[.*\])?|classes|component_\d+|user|rank|candidate|group|strength")
_HEADER_BYTES = 1 << 20


def refuse_foreign(out: str, record: str | None) -> None:
    """Check, before any work, that ``out`` does not exist, is empty, or is an earlier output that may be replaced.

    The file extension determines the expected format; URLs of object stores are not checked. ``record``: class of the records in a
    ``.zarr`` folder of predictions; ``None`` accepts any content. Raises ValueError with the path, or OSError if it is not writable.
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
        raise ValueError(f"out={out!r}: the path exists, does not hold predictions and is not replaced; choose another path, or remove it")


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

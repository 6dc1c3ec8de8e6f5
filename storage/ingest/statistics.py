"""Column tables and scale factors, collected bucket by bucket outside memory."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocks.tables import column_tables
from ..blocks.writer import BlockWriter
from ..column_scale import COLUMN_SCALES, column_factors
from ..errors import DataError, space_for
from ..meta import BlockMeta, ColumnScale
from ..value_types import Matrix

Floats = npt.NDArray[np.float64]
_IN_MEMORY = 1 << 24


class Column:
    """A vector with one entry per column (or row), written piece by piece: in memory, or a file when a path is given. ``length``: entries;
    ``dtype``: type; ``path``: the file; an existing one of the right size is kept, so that a resumed ingest finds what it wrote."""

    def __init__(self, length: int, dtype: npt.DTypeLike, path: Path | None) -> None:
        self.dtype, self.length, self.path = np.dtype(dtype), length, path
        self._held = np.zeros(length if path is None else 0, dtype=self.dtype)
        if path is not None:
            nbytes = length * self.dtype.itemsize
            with space_for(path, nbytes), path.open("ab") as file:
                if file.tell() != nbytes:
                    os.ftruncate(file.fileno(), nbytes)

    def put(self, lo: int, values: npt.NDArray[Any]) -> None:
        """Write entries from ``lo`` on."""
        if self.path is None:
            self._held[lo : lo + len(values)] = values
            return
        data = values.astype(self.dtype).tobytes()
        with space_for(self.path, len(data)), self.path.open("r+b") as file:
            file.seek(lo * self.dtype.itemsize)
            file.write(data)

    def array(self) -> npt.NDArray[Any]:
        """The vector; a read-only memory map of the file."""
        if self.path is None or self.length == 0:
            return self._held if self.path is None else np.zeros(0, self.dtype)
        return np.memmap(self.path, self.dtype, mode="r", shape=(self.length,))


class ColumnSummary:
    """The column tables and the column factors of the scaling ``scale``, collected for some columns at a time. ``folder``: where long
    tables wait, and if ``resumable`` short ones, too; ``missing``: count the missing values of dense columns; ``weight``: how often each
    row counts in factors.

    A store without a scaling has the factors of those that fits may show it under (`BlockStore.with_scale`) as column tables, where they do
    not follow from the others; NaN where a column's squares overflow."""

    def __init__(
        self, meta: BlockMeta, scale: str, folder: Path, *, resumable: bool, missing: bool = False, weight: Floats | None = None
    ) -> None:
        self.scale, self._weight = scale, None if weight is None or not meta.n_rows or np.ptp(weight) == 0 else weight
        is_plain = self._weight is None or self._weight.all()
        shown = () if scale != "none" or missing or not meta.n_rows else ("standard",) if is_plain else COLUMN_SCALES
        self._kinds = (scale,) if scale in COLUMN_SCALES else shown
        kinds: dict[str, Any] = {"norm1": np.float32, "sumsq": np.float64, "minimum": meta.dtype, "maximum": meta.dtype}
        if meta.kind == "dense":
            kinds["counts"] = np.uint32
        if missing:
            kinds["missing"] = np.uint32
        kinds |= dict.fromkeys(self._kinds, np.float64)
        if "standard" in self._kinds and meta.kind == "dense":
            kinds["centre"] = np.float64
        on_disk = resumable or meta.n_cols * 48 > _IN_MEMORY
        self._columns = {name: Column(meta.n_cols, kind, folder / f"table-{name}.bin" if on_disk else None) for name, kind in kinds.items()}

    def put(self, lo: int, block: Matrix) -> None:
        """Summarise the columns from ``lo`` on, given with all their rows (ndarray or csc_array)."""
        with np.errstate(over="ignore", invalid="ignore"):
            moments = "standard" in self._kinds
            tables = column_tables(block, moments=moments and self._weight is None)
            seen = tables if self._weight is None or not self._kinds else column_tables(block, self._weight, moments=moments)
            if "missing" in self._columns:
                tables["missing"] = np.isnan(block).sum(axis=0)
            for kind in self._kinds:
                factor, shift, beyond = column_factors(block, kind, seen)
                if beyond.size and kind == self.scale:
                    at, why = lo + int(beyond[0]), f"so scale={self.scale!r} has no factor for it"
                    raise DataError(f"column {at}: the sum of its squares overflows, {why}")
                factor[beyond] = np.nan
                tables |= {kind: factor} if shift is None else {kind: factor, "centre": shift}
        for name, column in self._columns.items():
            column.put(lo, tables[name])

    def write(self, writer: BlockWriter) -> None:
        """Write the tables."""
        for name, column in self._columns.items():
            if name == "missing":
                writer.write_missing(column.array())
            elif self.scale == "none" or name not in (self.scale, "centre"):
                writer.write_table(name, column.array(), of="columns")

    def scaling(self, row_factor: Floats | None) -> ColumnScale:
        """The scaling with the given row factors."""
        factor, shift = (self._columns[name].array() if name in self._columns else None for name in (self.scale, "centre"))
        return ColumnScale(self.scale, factor, shift, row_factor)  # pyright: ignore[reportArgumentType]

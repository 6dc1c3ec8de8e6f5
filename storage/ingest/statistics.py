"""Column tables and scale factors, collected bucket by bucket outside memory."""

import os
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..blocks.tables import DenseSums, SparsePart, sparse_tables
from ..blocks.writer import BlockWriter
from ..column_scale import COLUMN_SCALES, column_factors
from ..errors import DataError, space_for
from ..meta import BlockMeta, ColumnScale
from .files import FileArray

_IN_MEMORY = 1 << 24
_PIECE = 1 << 16


class Column:
    """A table with an entry (or a row of ``width`` of them) per column (or row), written and read piece by piece: in memory, or a file when
    a path is given; an existing one of the right size is kept, so that a resumed ingest finds what it wrote."""

    def __init__(self, length: int, dtype: npt.DTypeLike, path: Path | None, width: int | None = None) -> None:
        self.dtype, self.path = np.dtype(dtype), path
        self.shape = (length,) if width is None else (length, width)
        self._held = np.zeros(self.shape if path is None else 0, dtype=self.dtype)
        if path is not None:
            nbytes = self.size * self.dtype.itemsize
            with space_for(path, nbytes), path.open("ab") as file:
                if file.tell() != nbytes:
                    os.ftruncate(file.fileno(), nbytes)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return prod(self.shape)

    def put(self, lo: int, values: npt.NDArray[Any]) -> None:
        """Write entries (or rows) from ``lo`` on."""
        if self.path is None:
            self._held[lo : lo + len(values)] = values
            return
        data = values.astype(self.dtype).tobytes()
        with space_for(self.path, len(data)), self.path.open("r+b") as file:
            file.seek(lo * prod(self.shape[1:]) * self.dtype.itemsize)
            file.write(data)

    def read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Entries (or rows) ``lo:hi``."""
        return self._held[lo:hi] if self.path is None else FileArray(self.path, 0, self.dtype, self.shape)[lo:hi]

    def pieces(self) -> Iterable[npt.NDArray[Any]]:
        """All entries, some at a time."""
        return (self.read(lo, min(len(self), lo + _PIECE)) for lo in range(0, len(self), _PIECE))

    def sum(self, lo: int = 0, hi: int | None = None) -> float:
        """The sum of entries with the bits of NumPy's, which adds halves whose lengths are multiples of eight."""
        hi = len(self) if hi is None else hi
        half = (hi - lo) // 16 * 8
        return float(self.read(lo, hi).sum()) if hi - lo <= _PIECE else self.sum(lo, lo + half) + self.sum(lo + half, hi)


class ColumnSummary:
    """The column tables and the column factors of the scaling ``scale``, collected for some columns at a time. ``folder``: where long
    tables wait, and if ``resumable`` short ones, too; ``missing``: count the missing values of dense columns; ``weight``: how often each
    row counts in factors.

    A store without a scaling has the factors of those that fits may show it under (`BlockStore.with_scale`) as column tables, where they do
    not follow from the others; NaN where a column's squares overflow."""

    def __init__(
        self, meta: BlockMeta, scale: str, folder: Path, *, resumable: bool, missing: bool = False, weight: Column | None = None
    ) -> None:
        self.scale, self.meta = scale, meta
        self._weight, is_plain = _uneven(weight) if weight is not None and meta.n_rows else (None, True)
        shown = () if scale != "none" or missing or not meta.n_rows else ("standard",) if is_plain else COLUMN_SCALES
        self._kinds = (scale,) if scale in COLUMN_SCALES else shown
        self._moments = "standard" in self._kinds
        kinds: dict[str, Any] = {"norm1": np.float32, "sumsq": np.float64, "minimum": meta.dtype, "maximum": meta.dtype}
        if meta.kind == "dense":
            kinds["counts"] = np.uint32
        if missing:
            kinds["missing"] = np.uint32
        kinds |= dict.fromkeys(self._kinds, np.float64)
        if self._moments and meta.kind == "dense":
            kinds["centre"] = np.float64
        on_disk = resumable or meta.n_cols * 48 > _IN_MEMORY
        self._columns = {name: Column(meta.n_cols, kind, folder / f"table-{name}.bin" if on_disk else None) for name, kind in kinds.items()}
        self._total, self._row_weight = float(meta.n_rows), None
        if self._weight is not None and self._kinds:
            # Sparse columns look the weights of their rows up; dense ones go through them.
            self._total = _sum_used(self._weight) if meta.kind == "dense" else self._total
            self._row_weight = self._weight.read(0, meta.n_rows) if meta.kind == "sparse" else None

    def put_sparse(self, lo: int, parts: Callable[[], Iterable[SparsePart]]) -> None:
        """Summarise the sparse columns from ``lo`` on, whose entries come as for `sparse_tables`."""
        n, weight = self.meta.n_rows, self._row_weight
        with np.errstate(over="ignore", invalid="ignore"):
            tables = sparse_tables(parts, n, moments=self._moments and self._weight is None)
            self._put(lo, tables, tables if weight is None else sparse_tables(parts, n, weight, moments=self._moments))

    def put_dense(self, lo: int, hi: int, blocks: Iterable[npt.NDArray[Any]]) -> None:
        """Summarise the dense columns ``lo:hi``, whose rows come in blocks, in order."""
        sums, counted, weight = DenseSums(hi - lo), DenseSums(hi - lo), self._weight if self._kinds else None
        row, missing = 0, np.zeros(hi - lo, np.uint32)
        with np.errstate(over="ignore", invalid="ignore"):
            for block in blocks:
                sums.add(block)
                if weight is not None:
                    counted.add(block, weight.read(row, row + len(block)))
                if "missing" in self._columns:
                    missing += np.isnan(block).sum(axis=0, dtype=np.uint32)
                row += len(block)
            dtype, moments = np.dtype(self.meta.dtype), self._moments
            tables = sums.tables(dtype, row, moments=moments and weight is None) | {"missing": missing}
            self._put(lo, tables, tables if weight is None else counted.tables(dtype, self._total, moments=moments))

    def _put(self, lo: int, tables: dict[str, npt.NDArray[Any]], seen: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write tables, with factors from those that are ``seen`` under the weights of rows."""
        for kind in self._kinds:
            factor, shift, beyond = column_factors(kind, seen, is_dense=self.meta.kind == "dense")
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
                writer.write_missing(column.read(0, len(column)))
            elif self.scale == "none" or name not in (self.scale, "centre"):
                writer.write_table(name, column, of="columns")

    def scaling(self, row_factor: Column | None) -> ColumnScale:
        """The scaling with the given row factors, as it is written."""
        factor, shift = (self._columns.get(name) for name in (self.scale, "centre"))
        return ColumnScale(self.scale, factor, shift, row_factor)  # pyright: ignore[reportArgumentType]


def _uneven(weight: Column) -> tuple[Column | None, bool]:
    """Return weights of rows unless all are equal, and whether none is 0 where they are not."""
    ends = [(part.min(), part.max()) for part in weight.pieces()]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    return (None, True) if low == high else (weight, bool(low > 0))


def _sum_used(weight: Column) -> float:
    """Return the sum of the weights that are not 0, as NumPy has it of all at once."""
    count = sum(int(np.count_nonzero(part)) for part in weight.pieces())
    used, at = Column(count, np.float64, weight.path and weight.path.with_suffix(".used")), 0
    for part in weight.pieces():
        used.put(at, part[part != 0])
        at += int(np.count_nonzero(part))
    return used.sum()

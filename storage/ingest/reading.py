"""The first phase: from a source to blocks of rows, and the information collected while reading."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..encoding.chunks import is_inexact
from ..encoding.record import BEYOND, FILLS, REFUSAL
from ..encoding.table import TableReader
from ..errors import DataError, Matrix, SchemaError
from ..meta import ColumnScale
from .labels import Target
from .options import Options, Progress
from .scratch import Scratch
from .tables.columns import count_columns
from .tables.row_tables import at_row, row_tables
from .text.spool import Block, FileDigest, Handle, Part, Spool, hold_block

ROW_BYTES = 48  # bytes per column that a dense row takes on its way into a block
HELD_SHARE = 4  # blocks stay in memory if they take at most this part of the budget


class ColumnCounts:
    """Number of entries of each column, in a table that grows with the largest index found; the table may be longer than the number of
    columns.
    """

    def __init__(self) -> None:
        self.table: npt.NDArray[np.uint32] = np.zeros(1 << 12, np.uint32)

    def add(self, cols: npt.NDArray[np.int32], highest: int) -> None:
        """Count the entries of columns up to ``highest``."""
        self._reach(highest + 1)
        count_columns(cols, self.table)

    def merge(self, other: "ColumnCounts") -> None:
        """Add the counts of another table."""
        self._reach(other.table.size)
        self.table[: other.table.size] += other.table

    def _reach(self, size: int) -> None:
        if size > self.table.size:
            # Untouched pages of a fresh zero table take no memory, so doubling costs little.
            grown = np.zeros(max(size, 2 * self.table.size), np.uint32)
            grown[: self.table.size] = self.table
            self.table = grown

    def width(self, lo: int, hi: int) -> npt.NDArray[np.uint32]:
        """Return the counts of columns ``lo:hi``; the counts of columns beyond the table are zero."""
        self._reach(hi)
        return self.table[lo:hi]


@dataclass
class Reading:
    """Result of the first phase.

    * ``handles``: the blocks in row order.
    * ``target``: the labels found.
    * ``counts``, ``lowest``, ``highest``: for sparse sources, the entries per index as written in the source, and the smallest and
      largest index.
    * ``n_cols``: the number of columns if the source knows it.
    * ``coder``: for tables, the reader of the columns.
    """

    handles: list[Handle] = field(default_factory=list)
    target: Target = field(default_factory=Target)
    counts: ColumnCounts | None = None
    lowest: int = 1 << 40
    highest: int = -1
    n_cols: int | None = None
    coder: TableReader | None = None

    @property
    def spool(self) -> Spool:
        """The blocks as one sequence of rows."""
        return Spool(self.handles)

    def meet(self, lowest: int, highest: int) -> None:
        """Extend the range of indices found so far by the indices ``lowest`` to ``highest``."""
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)


class Source(ABC):
    """An input that can be read.

    * ``name``: used in messages and stored.
    * ``format``: the format of the input; ``sparse``: whether its features are stored as sparse.
    * ``names``: its feature names.
    * ``digest``: for a file, the digest of its content.
    * ``coder``: for a table, the reader of its columns.
    * ``messages``: messages to the user about the source.
    """

    name: str
    format: str
    sparse: bool = False
    names: list[str] | None = None
    tables: Sequence[str] = ()  # names of its row tables, where that is known before it is read
    digest: FileDigest | None = None
    coder: TableReader | None = None
    messages: Sequence[str] = ()

    def hint(self) -> str | None:
        """Return an identifier that is cheap to compute, used for resuming; None if the source cannot be read twice."""
        return self.identity()

    def identity(self) -> str | None:
        """Return an identifier derived from the content, used to recognise finished work; None if the source cannot be read twice."""
        return None if self.digest is None else self.digest.value()

    @abstractmethod
    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        """Read everything. Raises DataError for the first error, with file, line and column (or row and column)."""

    def column_facts(self) -> list[str] | None:
        """Return what the source says about each column beside its name, after it was read (see `GenotypeSource`)."""
        return None

    def factors(self) -> ColumnScale | None:
        """Return the column factors that the source determines itself, after it was read; None if they follow from the stored values."""
        return None

    def close(self) -> None:  # noqa: B027 (most have nothing to close)
        """Close the source without reading it."""


class RowSource(Source):
    """A source that yields rows (all formats except text). ``n_cols``: number of columns; ``nbytes``: approximate size of the blocks, if
    known in advance.
    """

    n_cols: int | None
    nbytes: int | None = None
    scratch: Scratch | None = None
    phase: str = "read"  # of the journal

    @abstractmethod
    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield (X, row tables), about a sixteenth of the budget at a time; X is an ndarray (rows, n_cols) or a CSR matrix."""

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Return the error for a row and column, counted from zero."""
        return at_row(self.name, reason, row, None if column is None else column + 1)

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        self.scratch = scratch
        # The columns of a table are as many as the source has, until they are encoded.
        width = self.n_cols if self.coder is None else None
        reading = Reading(target=target, counts=ColumnCounts() if self.sparse else None, n_cols=width, coder=self.coder)
        small = self.nbytes is not None and HELD_SHARE * self.nbytes <= options.budget
        return read_blocks(reading, _check_blocks(self, options, reading, progress), scratch, small, self.phase)

    def check_table(self, table: str, shape: tuple[int, ...], n: int) -> None:
        """Raise an error for a row table that is not a vector of ``n`` entries."""
        if shape != (n,):
            raise SchemaError(f"{self.name}: {table} has the shape {shape}; it must be ({n},), one entry per row")

    def with_tables(self, x: Matrix, tables: dict[str, Any], row: int, target: Target) -> tuple[Matrix, Block]:
        """Return rows ``x`` together with the checked entries of the row tables for these rows; ``row`` is the number of the first of
        them.
        """
        part = {name: values[row : row + x.shape[0]] for name, values in tables.items()}
        return x, row_tables(part, target, lambda reason, k: self.fault(reason, row + k))


def read_blocks(reading: Reading, blocks: Iterable[Block], scratch: Scratch, small: bool, phase: str = "read") -> Reading:
    """Keep blocks in memory if they are small, else in the scratch folder. Blocks that a killed ingest left in the scratch folder are not
    read from the source again.
    """
    done = scratch.notes(phase)
    if done:
        reading.handles = [Handle.from_json(scratch.folder, fields) for fields in done[-1]["blocks"]]
        reading.target.restore(done[-1]["target"])
        reading.n_cols = done[-1].get("n_cols", reading.n_cols)
        if reading.coder is not None:
            reading.coder.restore(done[-1]["coder"])
        if reading.counts is not None:
            recount_columns(reading)
    elif small:
        reading.handles.extend(map(hold_block, blocks))
        reading.target.check_end()
    else:
        with Part(scratch.path("part-000000.bin" if phase == "read" else f"{phase}-000000.bin")) as part:
            reading.handles.extend(map(part, blocks))
        reading.target.check_end()
        stored = [handle.to_json() for handle in reading.handles if handle.path is not None]
        learnt = {} if reading.coder is None else {"coder": reading.coder.to_json()}
        scratch.note(phase, blocks=stored, target=reading.target.to_json(), n_cols=reading.n_cols, **learnt)
    return reading


def recount_columns(reading: Reading) -> None:
    """Count the columns of blocks that were read earlier."""
    assert reading.counts is not None
    for handle in reading.handles:
        cols = handle.get("cols")
        if cols.size:
            reading.meet(int(cols.min()), int(cols.max()))
            reading.counts.add(cols, int(cols.max()))


CellFault = Callable[[str, int, int | None], DataError]


def _check_blocks(source: RowSource, options: Options, reading: Reading, progress: Progress) -> Iterable[Block]:
    row, done = 0, 0
    for x, tables in source.rows(options, reading.target):

        def fault(reason: str, k: int, column: int | None = None, first: int = row) -> DataError:
            return source.fault(reason, first + k, column)

        if source.sparse:
            block = _with_target({**sparse_block(x, options.dtype, fault), **tables}, reading.target)
            assert reading.counts is not None
            if block["cols"].size:
                reading.counts.add(block["cols"], int(block["cols"].max()))
            # The width of a matrix counts, whether its last columns have entries or not.
            reading.meet(0, x.shape[1] - 1)
        else:
            block = _with_target({"dense": dense_block(x, options, fault), **tables}, reading.target)
        if reading.n_cols not in (None, x.shape[1]):
            raise fault(f"the block has {x.shape[1]} columns; the first one had {reading.n_cols}", 0, None)
        reading.n_cols = int(x.shape[1])
        yield block
        row += x.shape[0]
        done += sum(array.nbytes for array in block.values())
        progress(done, max(done, source.nbytes or 0), "read")


def _with_target(block: Block, target: Target) -> Block:
    """Return a block; if rows with a missing target are to be dropped, without these rows."""
    if not target.drops_missing or "y" not in block or not np.isnan(block["y"]).any():
        return block
    keep = ~np.isnan(block["y"])
    target.n_dropped += int(np.count_nonzero(~keep))
    of_entries = {"cols": "lengths", "vals": "lengths", "id_bytes": "id_lengths"}
    rows = {name: np.repeat(keep, block[of_entries[name]]) if name in of_entries else keep for name in block}
    return {name: np.ascontiguousarray(array[..., rows[name]]) for name, array in block.items()}


def as_floats(
    values: npt.NDArray[Any], dtype: str, place: Callable[[int], tuple[int, int | None]], fault: CellFault, missing: str | None = None
) -> npt.NDArray[Any]:
    """Return finite float32 or float64 values equal to the given ones (for ``dtype="float32"``: the nearest ones).

    ``place`` maps a position in the flattened values to row and column. ``missing="keep"`` accepts NaN. "refuse" rejects NaN, with advice
    on how to keep missing values; None rejects NaN without advice.
    """
    if values.dtype.kind not in "biuf" or values.dtype.itemsize > 8:
        raise fault(f"values have the type {values.dtype}; numbers of at most 64 bits are expected", 0, None)
    wide = values.astype(np.float64, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype(np.float32)
    bad = ~np.isfinite(narrow if dtype == "float32" else wide)
    bad |= is_inexact(values)
    gone = np.isnan(wide) if missing == "keep" else np.zeros(0, dtype=bool)
    if gone.any():
        bad &= ~gone
        # One NaN for all: the bytes of a store shall not depend on which one the source had.
        wide, narrow = np.where(gone, np.nan, wide), np.where(gone, np.float32(np.nan), narrow)
    if bad.any():
        first = int(np.flatnonzero(bad.reshape(-1))[0])
        raise fault(_refusal_reason(values.reshape(-1)[first], missing), *place(first))
    return narrow if dtype == "float32" or np.array_equal(narrow, wide, equal_nan=bool(gone.any())) else wide


def _refusal_reason(value: np.generic, missing: str | None) -> str:
    if np.isnan(value) and missing == "refuse":
        return f"value {value} is not finite; {REFUSAL}"
    if not np.isfinite(value):
        return f"value {value} is not finite; {'' if missing == 'keep' else 'missing and '}infinite values are rejected"
    if isinstance(value, np.integer):
        return f"value {value} {BEYOND}"
    return f"value {value} is beyond the range of float32"


def dense_block(x: npt.NDArray[Any], options: Options, fault: CellFault) -> npt.NDArray[Any]:
    """Return dense rows (rows, n_cols) as a checked block (n_cols, rows)."""
    width = max(1, x.shape[1])
    missing = "keep" if options.reads_missing else "refuse"
    return np.ascontiguousarray(as_floats(x, options.dtype, lambda k: (k // width, k % width), fault, missing).T)


def sparse_block(x: sp.csr_array, dtype: str, fault: CellFault) -> Block:
    """Return CSR rows as a checked block: sorted, without duplicates and zeros."""
    if not x.has_canonical_format:
        x = x.copy()
        x.sum_duplicates()
    lengths = np.diff(x.indptr).astype(np.int32)
    ends = np.cumsum(lengths)
    vals = as_floats(x.data, dtype, lambda k: (int(np.searchsorted(ends, k, side="right")), int(x.indices[k])), fault)
    cols = np.array(x.indices, dtype=np.int32)
    nonzero = vals != 0
    if not nonzero.all():
        rows = np.repeat(np.arange(len(lengths)), lengths)[nonzero]
        lengths = np.bincount(rows, minlength=len(lengths)).astype(np.int32)
        cols, vals = cols[nonzero], vals[nonzero]
    return {"lengths": lengths, "cols": cols, "vals": vals}


def check_width(found: int, options: Options, name: str, sparse: bool = False) -> None:
    """Raise SchemaError, with both numbers, if a source does not have the declared number of columns; a sparse source may have fewer."""
    if options.table_encoding is not None and options.missing in FILLS and found == len(options.table_encoding.sources):
        return  # features that say what is missing are added
    if options.n_features not in (None, found) and (not sparse or options.n_features < found):
        more = found > options.n_features and options.target is None
        extra = "; name those that are no features (--target, --task-column, --weight-column)" if more else ""
        raise SchemaError(f"{name} has {found} columns; n_features or the 'like' store (--like) requires {options.n_features}{extra}")


def check_row_fits(columns: int, options: Options, name: str) -> None:
    """Raise SchemaError, with both sizes, if a single dense row exceeds the budget, together with the data computed from the row."""
    need = ROW_BYTES * columns
    if need > options.budget:
        row = f"reading one row takes {need} bytes, more than the budget of {options.budget}"
        raise SchemaError(f"{name} has {columns} columns, and {row}; raise the budget (--budget), or give sparse input")

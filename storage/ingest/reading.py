"""The first phase: source to blocks of rows, and what was learnt on the way."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError, SchemaError
from .counts import ColumnCounts
from .labels import Target
from .options import Options, Progress
from .scratch import Scratch
from .text.spool import Block, Handle, Part, Spool, Stored, hold_block

EXACT_INTEGERS = 2**53

ROW_BYTES = 48  # bytes per column that a dense row takes on its way into a block
HELD_SHARE = 4  # blocks stay in memory if they take at most this part of the budget


@dataclass
class Reading:
    """What the first phase hands on. ``handles``: the blocks, in row order; ``target``: labels met; ``counts``: entries per index as
    written in the source (sparse only); ``lowest``, ``highest``: least and greatest index met (sparse only); ``n_cols``: width, where the
    source knows it."""

    handles: list[Handle] = field(default_factory=list)
    target: Target = field(default_factory=Target)
    counts: ColumnCounts | None = None
    lowest: int = 1 << 40
    highest: int = -1
    n_cols: int | None = None

    @property
    def spool(self) -> Spool:
        """The blocks as one sequence of rows."""
        return Spool(self.handles)

    def meet(self, lowest: int, highest: int) -> None:
        """Note a range of indices."""
        self.lowest, self.highest = min(self.lowest, lowest), max(self.highest, highest)


class Source(Protocol):
    """An input that can be read."""

    @property
    def name(self) -> str:
        """Shown in messages and noted in the store."""
        ...

    @property
    def format(self) -> str:
        """Its format."""
        ...

    @property
    def sparse(self) -> bool:
        """Whether it goes to the sparse layout."""
        ...

    @property
    def names(self) -> list[str] | None:
        """Feature names it carries."""
        ...

    def hint(self) -> str | None:
        """Cheap identity for resuming; None if the source cannot be read twice."""
        ...

    def identity(self) -> str | None:
        """Identity by content, to recognise finished work."""
        ...

    def read(self, scratch: Scratch, options: Options, target: Target, jobs: int, progress: Progress) -> Reading:
        """Read everything."""
        ...


class RowSource(Protocol):
    """A source that simply yields rows (everything except SVMlight text)."""

    @property
    def sparse(self) -> bool:
        """Whether the rows are sparse."""
        ...

    @property
    def n_cols(self) -> int | None:
        """Width."""
        ...

    @property
    def nbytes(self) -> int | None:
        """Bytes of its blocks, about; None if that is not known before."""
        ...

    def rows(self, options: Options, target: Target) -> Iterator[tuple[Any, Block]]:
        """Yield (X, row tables): X an ndarray (rows, n_cols) or a CSR matrix."""
        ...

    def fault(self, reason: str, row: int, column: int | None = None) -> DataError:
        """Build the error for a row and column, counted from zero."""
        ...


def read_rows(source: RowSource, scratch: Scratch, options: Options, target: Target, progress: Progress) -> Reading:
    """Read a `RowSource` into checked blocks: in memory if they fit a quarter of the budget, else in the scratch folder. Raises DataError
    at the first value that is not a finite number (nor a missing one to be kept), naming row and column."""
    reading = Reading(target=target, counts=ColumnCounts() if source.sparse else None, n_cols=source.n_cols)
    done = scratch.notes("read")
    if done:
        _take_up(reading, scratch, done[-1])
        return reading
    small = source.nbytes is not None and HELD_SHARE * source.nbytes <= options.budget
    if small:
        reading.handles.extend(map(hold_block, _check_blocks(source, options, reading, progress)))
        return reading
    with Part(scratch.path("part-000000.bin")) as part:
        reading.handles.extend(map(part, _check_blocks(source, options, reading, progress)))
    blocks = [handle.to_json() for handle in reading.handles if isinstance(handle, Stored)]
    scratch.note("read", blocks=blocks, target=target.to_json(), n_cols=reading.n_cols)
    return reading


def _take_up(reading: Reading, scratch: Scratch, note: dict[str, Any]) -> None:
    reading.handles = [Stored.from_json(scratch.folder, fields) for fields in note["blocks"]]
    reading.target.restore(note["target"])
    reading.n_cols = note["n_cols"]
    if reading.counts is not None:
        recount_columns(reading)


def recount_columns(reading: Reading) -> None:
    """Count the columns of blocks that were read before."""
    assert reading.counts is not None
    for handle in reading.handles:
        cols = handle.get("cols")
        if cols.size:
            reading.meet(int(cols.min()), int(cols.max()))
            reading.counts.add(cols, int(cols.max()))


def _check_blocks(source: RowSource, options: Options, reading: Reading, progress: Progress) -> Iterable[Block]:
    row, done = 0, 0
    for x, tables in source.rows(options, reading.target):
        fault = _from_row(source, row)
        if source.sparse:
            block = sparse_block(x, options.dtype, fault)
            assert reading.counts is not None
            if block["cols"].size:
                reading.counts.add(block["cols"], int(block["cols"].max()))
            # The width of a matrix counts, whether its last columns have entries or not.
            reading.meet(0, x.shape[1] - 1)
        else:
            block = {"dense": dense_block(x, options, fault)}
        if reading.n_cols not in (None, x.shape[1]):
            raise fault(f"the block has {x.shape[1]} columns; the first one had {reading.n_cols}", 0, None)
        reading.n_cols = int(x.shape[1])
        yield {**block, **tables}
        row += x.shape[0]
        done += sum(array.nbytes for array in block.values())
        progress(done, max(done, source.nbytes or 0), "read")


CellFault = Callable[[str, int, int | None], DataError]


def _from_row(source: RowSource, first: int) -> CellFault:
    return lambda reason, row, column=None: source.fault(reason, first + row, column)


def as_floats(
    values: npt.NDArray[Any], dtype: str, place: Callable[[int], tuple[int, int | None]], fault: CellFault, missing: str | None = None
) -> npt.NDArray[Any]:
    """Finite float32 or float64 values that equal the given ones (for ``dtype="float32"``: the nearest). ``values``: numbers of any real
    type; ``dtype``: "auto", "float32" or "float64"; ``place``: row and column of a position in the flattened values; ``fault``: builds the
    error; ``missing``: "keep" lets NaN through; "refuse" names the way to keep it; None: there is none."""
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


def fill_masked(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Numbers with NaN in the place of masked ones."""
    return np.ma.filled(values.astype(np.float64), np.nan) if isinstance(values, np.ma.MaskedArray) else values


def is_inexact(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where integers are beyond 2^53, so that float64 may not hold them."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return np.zeros(values.shape, dtype=bool)
    return (values > EXACT_INTEGERS) | (values < -EXACT_INTEGERS)


def _refusal_reason(value: np.generic, missing: str | None) -> str:
    if np.isnan(value) and missing == "refuse":
        advice = "missing and infinite values are refused (missing='keep', --missing keep, stores missing ones, for rule-ensemble alone)"
        return f"value {value} is not finite; {advice}"
    if not np.isfinite(value):
        return f"value {value} is not finite; {'' if missing == 'keep' else 'missing and '}infinite values are refused"
    if isinstance(value, np.integer):
        return f"value {value} is beyond 2^53 and cannot be stored exactly"
    return f"value {value} is beyond the range of float32"


def dense_block(x: npt.NDArray[Any], options: Options, fault: CellFault) -> npt.NDArray[Any]:
    """Dense rows (rows, n_cols) as a checked block (n_cols, rows)."""
    width = max(1, x.shape[1])
    return np.ascontiguousarray(as_floats(x, options.dtype, lambda k: (k // width, k % width), fault, options.missing).T)


def sparse_block(x: sp.csr_array, dtype: str, fault: CellFault) -> Block:
    """CSR rows as a checked block: sorted, no duplicates, no zeros."""
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


def check_width(found: int, options: Options, name: str) -> None:
    """Refuse a source whose fixed width is not the declared one. Raises SchemaError, naming both."""
    if options.n_features not in (None, found):
        more = found > options.n_features and options.target is None
        extra = "; name those that are no features (--target, --task-column, --weight-column)" if more else ""
        raise SchemaError(f"{name} has {found} columns; n_features (or the store given as like) says {options.n_features}{extra}")


def check_row_fits(columns: int, options: Options, name: str) -> None:
    """Refuse dense rows so wide that one of them, with what becomes of it, is more than the budget. Raises SchemaError, naming the bytes
    and the budget."""
    need = ROW_BYTES * columns
    if need > options.budget:
        raise SchemaError(
            f"{name} has {columns} columns, and to read one row takes {need} bytes, more than the budget of {options.budget}; raise the "
            "budget (--budget), or give sparse input"
        )

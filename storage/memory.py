"""Block store interface for arrays in memory, without disk, copies or checksums."""

import hashlib
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NoReturn, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .blocks.store import Block, BlockMeta, BlockSource, ColumnScale, VerifyReport
from .blocks.tables import COLUMN_TABLES, Look, check_ids, check_rows, column_tables, flat_vector, look, mark_canonical, pick_columns
from .errors import DataError, Matrix, SchemaError, SparseMatrix, UserData
from .layout import STRIPE_BYTES, STRIPE_ENTRIES, DenseLayout, StripeLayout, place_blocks, plan_dense, plan_dense_rows, plan_stripes
from .meta import Label, ScaleKind, factors_of
from .sparse_door import admit


@dataclass(frozen=True)
class MemoryRef:
    """A block of a `MemoryBlocks`, with the same fields as `BlockRef`. It cannot be pickled, because it is valid only in its process."""

    url: str
    layout: str
    index: int
    rows: tuple[int, int]
    cols: tuple[int, int]
    nnz: int
    nbytes: int
    source: "MemoryBlocks" = field(repr=False, compare=False)

    def load(self) -> Block:
        """Return the block as a view of the arrays in memory."""
        return self.source.load(self)

    @property
    def digest(self) -> str:
        """Digest of the data, computed on first use."""
        return self.source.digest

    def __reduce__(self) -> NoReturn:
        raise SchemaError("blocks in memory cannot be sent to another process; write them to a (temporary) store first")


class MemoryBlocks(BlockSource):
    """The interface of `BlockStore` for arrays in memory.

    * ``X`` (n_rows, n_cols): float32 and float64 are used unchanged, other numbers become float64. Sparse matrices in other formats than
      CSC are converted once, when columns are first needed.
    * ``labels``: the original labels of class codes 0, 1, ….
    * ``groups`` (n_cols,): stripes do not divide runs of equal labels.
    * ``tables``: further row tables ("task", "group", "weight").
    * ``stripe_bytes``: as in `plan_stripes`. The default gives the same blocks as a store of the same data; `MEMORY_STRIPE_BYTES` gives
      fewer and larger blocks.
    """

    url = "memory"

    def __init__(
        self,
        X: UserData,
        y: npt.ArrayLike | None = None,
        *,
        labels: tuple[Label, ...] | None = None,
        names: Iterable[str] | None = None,
        groups: npt.ArrayLike | None = None,
        scale: ColumnScale | None = None,
        tables: Mapping[str, npt.ArrayLike] | None = None,
        stripe_bytes: int = STRIPE_BYTES,
    ) -> None:
        self.X = _check_numbers(X)
        n, d = (int(length) for length in self.X.shape)
        self.scale = scale or ColumnScale()
        kind = "sparse" if sp.issparse(self.X) else "dense"
        self.meta = BlockMeta(n, d, kind, self.X.dtype.name, labels, self.scale.kind, ("columns", "rows"))
        row_tables = {**(tables or {}), **({} if y is None else {"y": y})}
        self._tables = {name: _check_length(name, table, n) for name, table in row_tables.items()}
        self._names = None if names is None else [str(name) for name in _check_length("names", list(names), d)]
        self._groups = None if groups is None else np.asarray(_check_length("groups", groups, d), dtype=np.int64)
        self._stripe_bytes = stripe_bytes
        self._entries = max(STRIPE_ENTRIES, stripe_bytes // self.meta.itemsize) if stripe_bytes > STRIPE_BYTES else STRIPE_ENTRIES

    def with_scale(self, kind: ScaleKind, *, centred: bool = True, weight: npt.ArrayLike | None = None) -> "MemoryBlocks":
        """Return the same arrays with a column scaling, as if a store had been ingested with this scaling; no value is copied.

        ``centred=False`` omits the shift of dense columns, if this kind of scaling has one. ``weight`` (n_rows,) is the number of times
        that each row counts.
        """
        scaled = copy(self)
        scaled.scale = self._column_scale(kind, centred, None if weight is None else np.asarray(weight, np.float64))
        scaled.meta = replace(self.meta, scale=kind)
        return scaled

    def _column_scale(self, kind: ScaleKind, centred: bool, weight: npt.NDArray[np.float64] | None) -> ColumnScale:
        weight = None if weight is None or np.ptp(weight) == 0 else weight
        factor, shift, beyond = factors_of(self.by_columns, kind, weight)
        if beyond.size:
            raise DataError(f"column {int(beyond[0])}: the sum of its squares overflows, so scale={kind!r} cannot be used")
        return ColumnScale(kind, factor, shift if centred else None)

    @cached_property
    def look(self) -> Look:
        """Whether all values are finite, and a fingerprint of the values; both come from one pass over the arrays."""
        return look(self.X)

    @cached_property
    def digest(self) -> str:
        """The sha256 (hex) of shape, type and entries in column form, and of the row tables, such as the target."""
        block = self.by_columns
        parts = [block] if isinstance(block, np.ndarray) else [block.indptr, block.indices, block.data]
        digest = hashlib.sha256(f"{self.shape} {self.meta.kind} {self.meta.dtype}".encode())
        for name in sorted(self._tables):
            digest.update(name.encode())
            parts.append(self._tables[name])
        for part in parts:
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @cached_property
    def by_columns(self) -> npt.NDArray[Any] | sp.csc_array:
        """Return the whole matrix by columns: an array, or CSC with ascending int32 rows; copied only if it was given in another form."""
        return _canonical_csc(self.X) if sp.issparse(self.X) else self.X

    @cached_property
    def _by_rows(self) -> npt.NDArray[Any] | sp.csr_array:
        if isinstance(self.X, np.ndarray):
            return self.X
        given_rows = self.X.format == "csr" and _ascends(self.X)
        csr = self.X if given_rows else sp.csr_array(self.by_columns)
        return mark_canonical(sp.csr_array((csr.data, _as_int32(csr.indices), _as_int32(csr.indptr)), shape=self.shape))

    @cached_property
    def _column_layout(self) -> StripeLayout | DenseLayout:
        if isinstance(self.by_columns, np.ndarray):
            return plan_dense(*self.shape, self.meta.itemsize, stripe_bytes=self._stripe_bytes)
        counts = np.diff(self.by_columns.indptr)
        return plan_stripes(counts, self.meta.itemsize, stripe_bytes=self._stripe_bytes, groups=self._groups, entries=self._entries)

    @cached_property
    def _row_layout(self) -> StripeLayout | DenseLayout:
        if isinstance(self._by_rows, np.ndarray):
            return plan_dense_rows(*self.shape, self.meta.itemsize, stripe_bytes=self._stripe_bytes)
        counts = np.diff(self._by_rows.indptr)
        return plan_stripes(counts, self.meta.itemsize, stripe_bytes=self._stripe_bytes, entries=self._entries)

    def column_blocks(self) -> list[MemoryRef]:
        """Return references to the column stripes, in feature order."""
        return self._blocks("columns", self._column_layout)

    def row_blocks(self) -> list[MemoryRef]:
        """Return references to row blocks, in row order; sparse data are converted to CSR once."""
        return self._blocks("rows", self._row_layout)

    def _blocks(self, name: str, layout: StripeLayout | DenseLayout) -> list[MemoryRef]:
        places = place_blocks(name, layout, self.shape, self.meta.itemsize)
        return [MemoryRef(self.url, name, i, *span, self) for i, span in enumerate(places)]

    def load(self, ref: MemoryRef) -> Block:
        """Return one block as a view (see `MemoryRef.load`)."""
        by_columns = ref.layout == "columns"
        data = self.by_columns if by_columns else self._by_rows
        lo, hi = ref.cols if by_columns else ref.rows
        if isinstance(data, np.ndarray):
            return data[:, lo:hi] if by_columns else data[lo:hi]
        return _line_range(data, lo, hi)

    def columns(
        self, ids: npt.ArrayLike, rows: tuple[int, int] | None = None, *, order: Literal["C", "F"] = "C"
    ) -> npt.NDArray[Any] | sp.csc_array:
        """Return raw values of chosen columns, (n_rows, len(ids)) in the order of ``ids``, optionally for a range of rows.

        Dense values are in C or Fortran order, as ``order`` says.
        """
        columns, span = check_ids(ids, self.n_cols), slice(*check_rows(rows, self.n_rows))
        if isinstance(self.X, np.ndarray):
            part = self.X[span]
            if order == "F":
                return _column_by_column(part, columns)
            # `take` would first copy a column-major array as a whole.
            return np.take(part, columns, axis=1) if part.flags.c_contiguous else np.ascontiguousarray(part[:, columns])
        if rows is not None and self.X.format == "csr" and len(columns) == self.n_cols and np.array_equal(columns, np.arange(self.n_cols)):
            # Whole rows: those that lie together are cut without a look at the others.
            return mark_canonical(sp.csc_array(_line_range(self._by_rows, span.start, span.stop)))
        chosen = pick_columns(cast(sp.csc_array, self.by_columns), columns)
        return chosen if rows is None else mark_canonical(sp.csc_array(chosen[span]))

    def row_table(self, name: str) -> npt.NDArray[Any]:
        """Return a table with one entry per row: "y", "task", "group", "weight", …."""
        if name not in self._tables:
            raise SchemaError(f"these blocks have no row table {name!r}; they have {', '.join(sorted(self._tables)) or 'none'}")
        return self._tables[name]

    @cached_property
    def _column_tables(self) -> dict[str, npt.NDArray[Any]]:
        return column_tables(self.by_columns)

    @cached_property
    def _extremes(self) -> dict[str, npt.NDArray[Any]]:
        return column_tables(self.by_columns, sizes=False)

    def column_table(self, name: str, lo: int = 0, hi: int | None = None) -> npt.NDArray[Any]:
        """Return a table with one entry per column ("counts", "norm1", "sumsq", "minimum", "maximum") for columns ``lo:hi``."""
        if name not in COLUMN_TABLES:
            raise SchemaError(f"these blocks have no column table {name!r}; they have {', '.join(COLUMN_TABLES)}")
        tables = self._extremes if name in ("minimum", "maximum") else self._column_tables
        return tables[name][lo:hi]

    def has_table(self, name: str, of: str = "rows") -> bool:
        """Return whether a row table (``of="rows"``) or column table (``of="columns"``) exists."""
        return name in (self._tables if of == "rows" else COLUMN_TABLES)

    def feature_names(self) -> list[str] | None:
        """Names of the columns, if given."""
        return self._names

    def groups(self) -> npt.NDArray[np.int64] | None:
        """Group label of every column, int64 (n_cols,), if given."""
        return self._groups

    def verify(self, progress: object = None) -> VerifyReport:
        """Return an empty report, because arrays in memory have no checksums."""
        return VerifyReport(0, 0, ())


def _column_by_column(X: npt.NDArray[Any], columns: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    if not X.flags.c_contiguous:
        return X.T[columns].T
    from .ingest.tables.columns import gather_columns  # compiled code, which those who only open a store do without

    lines = np.empty((len(columns), len(X)), X.dtype)
    gather_columns(flat_vector(X, X.size), X.shape[1], columns.astype(np.uint64), lines)
    return lines.T


def _check_numbers(X: UserData) -> Matrix:
    data: Matrix = admit(X)
    data = data if sp.issparse(data) else np.asarray(data)
    if data.ndim != 2 or data.dtype.kind not in "fiub":
        raise SchemaError(f"X has the type {data.dtype} and {data.ndim} dimensions; it must be a 2-D array of numbers")
    if data.dtype in (np.float32, np.float64):
        return data
    return data.astype(np.float32 if data.dtype == np.float16 else np.float64)


def _check_length(name: str, table: UserData, length: int) -> UserData:
    values = table if isinstance(table, list) else np.asarray(table)
    if len(values) != length:
        raise SchemaError(f"{name} has {len(values)} entries; X has {length}")
    return values


def _as_int32(index: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    if index.size and int(index.max()) >= 2**31:
        raise SchemaError(f"X holds {int(index.max())} entries or columns; arrays in memory are limited to 2^31 - 1: use a store")
    return np.asarray(index, dtype=np.int32)


def _line_range(lines: SparseMatrix, lo: int, hi: int) -> SparseMatrix:
    """Return a view of rows ``lo:hi`` of a canonical CSR matrix, or of columns ``lo:hi`` of a CSC matrix."""
    if hi - lo == len(lines.indptr) - 1:
        return lines
    a, b = int(lines.indptr[lo]), int(lines.indptr[hi])
    starts = lines.indptr[lo : hi + 1]
    parts = (lines.data[a:b], lines.indices[a:b], starts - starts[0] if a else starts)
    is_csc = lines.format == "csc"
    shape = (lines.shape[0], hi - lo) if is_csc else (hi - lo, lines.shape[1])
    return mark_canonical((sp.csc_array if is_csc else sp.csr_array)(parts, shape=shape))


def _ascends(lines: SparseMatrix) -> bool:
    """Return whether the indices in every row or column ascend. All are checked in one vectorised step, which is faster than
    SciPy's loop.
    """
    rises = np.empty(len(lines.indices) + 1, bool)
    np.greater(lines.indices[1:], lines.indices[:-1], out=rises[1:-1])
    rises[lines.indptr] = True
    return bool(rises.all())


def _canonical_csc(given: SparseMatrix) -> sp.csc_array:
    """Return CSC with int32 indices, sorted, without duplicates; the caller's arrays are never changed."""
    canonical = given.format in ("csr", "csc") and _ascends(given)
    csc = given if given.format == "csc" else given.tocsc()
    if not canonical:
        csc = csc.copy() if csc is given else csc
        csc.sum_duplicates()
    return mark_canonical(sp.csc_array((csc.data, _as_int32(csc.indices), _as_int32(csc.indptr)), shape=given.shape))

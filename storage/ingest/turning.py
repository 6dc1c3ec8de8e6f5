"""Reads sparse matrices in files row by row, in pieces. Matrices stored by columns are transposed through buckets of rows on scratch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from ..errors import DataError, Foreign
from ..layout import plan_stripes, running_sums
from ..sparse_door import check_compressed, check_part_pointers
from .buckets import Records, as_words, fill_buckets, plan_buckets, sort_bucket
from .files import FileArray
from .options import Options
from .reading import CellFault, as_floats
from .scratch import Scratch
from .tables.columns import count_columns
from .text.spool import Spool

PIECE_SHARE = 256  # entries of a piece, as a part of the budget's bytes
TURNED_ROW_BYTES = 24  # bytes of tables for every row of a matrix that lies by columns


@dataclass(frozen=True)
class Compressed:
    """A matrix in a file. ``form`` is "csr" or "csc"; ``prefix`` precedes the names of the three arrays in the file. They may be arrays of
    HDF5 or Zarr, too.
    """

    data: FileArray | Foreign
    indices: FileArray | Foreign
    indptr: FileArray | Foreign
    shape: tuple[int, int]
    form: str
    name: str
    prefix: str

    def check(self) -> None:
        """Raise DataError if the lengths of the arrays disagree."""
        major = self.shape[0] if self.form == "csr" else self.shape[1]
        if self.indptr.shape != (major + 1,):
            raise DataError(f"{self.prefix}indptr has the shape {self.indptr.shape}; {major + 1} entries are expected", self.name)
        if self.data.ndim != 1 or self.indices.shape != self.data.shape:
            shapes = f"{self.prefix}data has the shape {self.data.shape} and {self.prefix}indices {self.indices.shape}"
            raise DataError(f"{shapes}; they must be vectors of one length", self.name)

    def pieces(self, most: int) -> Iterator["CompressedPiece"]:
        """Yield pieces of consecutive rows (for CSC: columns), with checked pointers. A piece has at most ``most`` entries, or is a single
        row.
        """
        major, before = self.indptr.shape[0] - 1, 0
        for lo in range(0, major, most):
            hi = min(major, lo + most)
            pointers = self.indptr[lo : hi + 1]
            check_part_pointers(pointers, before, self.indices.shape[0], lo, f"{self.prefix}indptr", self.name)
            before, starts = int(pointers[-1]), pointers.astype(np.int64)
            at = 0
            while at < hi - lo:
                end = max(at + 1, int(np.searchsorted(starts, starts[at] + most, side="right")) - 1)
                yield CompressedPiece(self, lo + at, starts[at : end + 1])
                at = end
        if not major:
            yield CompressedPiece(self, 0, np.zeros(1, np.int64))


@dataclass(frozen=True)
class CompressedPiece:
    """Consecutive rows of a CSR matrix, or columns of a CSC matrix, from number ``first`` on; ``pointers`` is their part of ``indptr``."""

    source: Compressed
    first: int
    pointers: npt.NDArray[np.int64]

    @property
    def length(self) -> int:
        """Number of rows or columns."""
        return len(self.pointers) - 1

    @property
    def nnz(self) -> int:
        return int(self.pointers[-1] - self.pointers[0])

    def parts(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
        """Return ``(data, indices, indptr)``, read and checked."""
        lo, hi = int(self.pointers[0]), int(self.pointers[-1])
        by_rows = self.source.form == "csr"
        shape = (self.length, self.source.shape[1]) if by_rows else (self.source.shape[0], self.length)
        raw = self.source.data[lo:hi], self.source.indices[lo:hi], self.pointers - lo
        return check_compressed(raw, shape, self.source.form, self.source.name, self.source.prefix, first=lo)


class _Handle:
    """A piece of columns, in the form of a block of rows of the transpose. Such blocks are the input of the sort into buckets."""

    def __init__(self, piece: CompressedPiece, fault: CellFault) -> None:
        self._piece, self._fault = piece, fault

    def shape(self, name: str) -> tuple[int, ...]:
        return (self._piece.length if name == "lengths" else self._piece.nnz,)

    def __contains__(self, name: str) -> bool:
        return name in ("lengths", "cols", "vals")

    def get(self, name: str) -> npt.NDArray[Any]:
        if name == "lengths":
            return np.diff(self._piece.pointers).astype(np.int32)
        data, indices, indptr = self._piece.parts()
        if name == "cols":
            return indices.astype(np.int32)
        first = self._piece.first
        locate = lambda k: (int(indices[k]), first + int(np.searchsorted(indptr, k, side="right")) - 1)  # noqa: E731
        return as_floats(data, "auto", locate, self._fault)


def check_turning(source: Compressed, options: Options) -> None:
    """Raise DataError, with both sizes, if the tables for transposing a matrix stored by columns exceed half of the budget. This happens if
    the matrix has many rows.
    """
    need = 0 if source.form == "csr" else TURNED_ROW_BYTES * source.shape[0]
    if need > options.budget // 2:
        tables = f"transposing its {source.shape[0]} rows takes {need} bytes of tables, more than half of the budget of {options.budget}"
        raise DataError(f"is stored by columns, and {tables}; raise the budget (--budget), or save it by rows", source.name)


def csr_pieces(source: Compressed, scratch: Scratch, options: Options, fault: CellFault) -> Iterator[Any]:
    """Yield a matrix in files as CSR pieces of consecutive rows. Raises DataError, with array and position, for the first index that breaks
    a rule.
    """
    max_nnz = max(1, options.budget // PIECE_SHARE)
    if source.form == "csr":
        for piece in source.pieces(max_nnz):
            yield sp.csr_array(piece.parts(), shape=(piece.length, source.shape[1]))
        return
    yield from _turn_rows(source, scratch, options, fault, max_nnz)


def _turn_rows(source: Compressed, scratch: Scratch, options: Options, fault: CellFault, most: int) -> Iterator[Any]:
    n, d = source.shape
    handles, counts = [], np.zeros(n, np.uint32)
    for piece in source.pieces(most):
        handles.append(_Handle(piece, fault))
        count_columns(handles[-1].get("cols"), counts)
    plan = plan_buckets(counts, plan_stripes(counts, 8, stripe_bytes=options.stripe_bytes))
    records = Records(plan, 2, scratch.path("turned.bin"))
    fill_buckets(Spool(handles), records, np.dtype(np.float64), 0, most, lambda done: None)
    for bucket, (lo, hi) in enumerate(zip(plan.edges[:-1].tolist(), plan.edges[1:].tolist(), strict=True)):
        ends = np.concatenate([[0], running_sums(counts[lo:hi])]).astype(np.int64)
        cols, values = np.empty(int(ends[-1]), np.int32), np.empty(int(ends[-1]))
        sort_bucket(records, bucket, ends, cols, as_words(values))
        yield sp.csr_array((values, cols, ends), shape=(hi - lo, d))

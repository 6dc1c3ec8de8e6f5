"""Passes on the eigensolver's block in tiles: task functions, references, and memory estimates.

Each step calls the same function, with arrays of the same shapes, as the eigensolver in memory. Results are therefore bit-identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.eigen.block_lanczos import column_signs
from ...kernels.eigen.chebyshev import RESIDUAL_SAMPLES
from ...kernels.eigen.column_block import RANDOM_ROWS, TILE_COLUMNS, TILE_ROWS, filter_block, rotate_columns, rotate_in_place, solve_columns
from ...kernels.eigen.operator import Panels, SymmetricOperator
from ...storage import TiledMatrix
from ...storage.runs.tiles import PANEL_COLUMNS
from ..core.resources import Resources, Shared, resolve
from .sources import FREED_BYTES

TILE_BYTES = 32 << 20  # rows of a tile, all columns together in float64, about
ROW_TASKS = 16  # tasks over rows at least, where rows suffice
RESULT_BYTES = 1024  # what a task returns at most, where it writes what it does
ROW_STEP = max(TILE_ROWS, RANDOM_ROWS)  # rows of a tile are a multiple of it: it decides the order of sums


@dataclass(frozen=True)
class Span:
    """Range of rows or columns that a task processes."""

    lo: int
    hi: int
    nbytes: int  # that it reads


@dataclass(frozen=True)
class SharedOperator:
    """A symmetric matrix in the form that is sent to tasks."""

    sparse: tuple[Shared, Shared, Shared]  # data, indices, indptr
    factor: tuple[Shared, ...]  # of the low rank part: nothing, an array, or data, indices and indptr
    columns: int  # of the factor
    weights: np.ndarray | None
    centre: bool

    @classmethod
    def of(cls, resources: Resources, operator: SymmetricOperator) -> SharedOperator:
        matrix, factor = operator.sparse, operator.factor
        parts = () if factor is None else (factor.data, factor.indices, factor.indptr) if sp.issparse(factor) else (factor,)
        names = ("data", "indices", "indptr")
        data, indices, indptr = (resources.share(f"eigen-{name}", getattr(matrix, name), ROW_TASKS) for name in names)
        shared = tuple(resources.share(f"eigen-factor-{k}", part, ROW_TASKS) for k, part in enumerate(parts))
        return cls((data, indices, indptr), shared, 0 if factor is None else factor.shape[1], operator.weights, operator.centre)

    def load(self) -> SymmetricOperator:
        data, indices, indptr = (resolve(part) for part in self.sparse)
        n = len(indptr) - 1
        parts: list[Any] = [resolve(part) for part in self.factor]
        factor = None if not parts else parts[0] if len(parts) == 1 else sp.csr_array(tuple(parts), shape=(n, self.columns))
        return SymmetricOperator(sp.csr_array((data, indices, indptr), shape=(n, n)), factor, self.weights, self.centre)


@dataclass(frozen=True)
class Piece:
    """Columns of one submatrix.

    * ``rows``: rows of the submatrix in the whole matrix.
    * ``matrix``: the columns, in tiles.
    * ``first``: position of the first column among all columns.
    """

    rows: Shared
    matrix: TiledMatrix
    first: int


# -- steps of tasks ----------------------------------------------------------------------------------------------------------------


def filter_chunk(
    ref: Span, matrix: SharedOperator, source: TiledMatrix, target: TiledMatrix, degree: int, damped: tuple[float, float], top: float
) -> list[Any]:
    """Write some columns of the filtered block."""
    columns = source.read(0, source.shape[0], ref.lo, ref.hi)
    filter_block(Panels.of(matrix.load(), np.float32), columns, degree, damped, top, 1)
    target.write(0, ref.lo, columns)
    return []


def product_chunk(ref: Span, matrix: SharedOperator, source: TiledMatrix, target: TiledMatrix) -> list[Any]:
    """Write some columns of the product of matrix and block, in double precision."""
    target.write(0, ref.lo, Panels.of(matrix.load(), np.float64).product(source.read(0, source.shape[0], ref.lo, ref.hi)))
    return []


def inner_chunk(ref: Span, left: TiledMatrix, right: TiledMatrix | None, dtype: str) -> list[np.ndarray]:
    """Return the columns ``ref.lo:ref.hi`` of the first ``ref.hi`` rows of ``V'W``. Without ``right``, W is V."""
    out = np.zeros((ref.hi, ref.hi - ref.lo))
    for lo, hi in left.row_spans():
        block = left.read(lo, hi, 0, ref.hi)
        other = block[:, ref.lo :] if right is None else right.read(lo, hi, ref.lo, ref.hi)
        for row in range(0, hi - lo, TILE_ROWS):
            rows = slice(row, min(hi - lo, row + TILE_ROWS))
            out += np.asarray(block[rows], dtype=dtype).T @ np.asarray(other[rows], dtype=dtype)
    return [out]


def solve_chunk(ref: Span, source: TiledMatrix, target: TiledMatrix, scale: np.ndarray, lower: Shared) -> list[Any]:
    """Write some rows of ``V diag(scale) L'^{-1}``."""
    rows = source.read(ref.lo, ref.hi)
    solve_columns(rows, scale, resolve(lower), 1)
    target.write(ref.lo, 0, rows)
    return []


def sample_chunk(ref: Span, source: TiledMatrix, target: TiledMatrix, weights: Shared) -> list[Any]:
    """Write some rows of ``V weights``."""
    target.write(ref.lo, 0, rotate_columns(source.read(ref.lo, ref.hi), resolve(weights), 1))
    return []


def residual_chunk(ref: Span, matrix: SharedOperator, vectors: TiledMatrix, values: np.ndarray) -> list[np.ndarray]:
    """Return the squared norms of ``A u - value u``, for columns u of ``vectors`` and their ``values``."""
    columns = vectors.read(ref.lo, ref.hi)
    return [np.square(matrix.load().product(columns) - columns * values).sum(axis=0)]


def rotate_chunk(ref: Span, source: TiledMatrix, block: TiledMatrix, vectors: TiledMatrix | None, weights: Shared) -> list[Any]:
    """Write some rows of the rotated block. If ``vectors`` is given, also write the first columns of these rows to it, in double
    precision.
    """
    rows = source.read(ref.lo, ref.hi)
    exact = rotate_in_place(rows, resolve(weights), 0 if vectors is None else vectors.shape[1], 1)
    block.write(ref.lo, 0, rows)
    if vectors is not None:
        vectors.write(ref.lo, 0, exact)
    return []


def peak_chunk(ref: Span, source: TiledMatrix, rows: Shared | None) -> list[np.ndarray]:
    """Return the largest absolute value of each of some columns. With ``rows``, only these rows count."""
    columns = source.read(0, source.shape[0], ref.lo, ref.hi)
    return [np.abs(columns if rows is None else columns[resolve(rows)]).max(axis=0, initial=0.0)]


def take_chunk(ref: Span, source: TiledMatrix, rows: Shared | None, ids: np.ndarray, target: TiledMatrix) -> list[Any]:
    """Copy columns ``ids`` of another block. Columns of the target beyond the number of ids become zero."""
    chosen = source.take(ids[ref.lo : ref.hi])
    out = np.zeros((target.shape[0], ref.hi - ref.lo), target.dtype)
    out[:, : chosen.shape[1]] = chosen if rows is None else chosen[resolve(rows)]
    target.write(0, ref.lo, out)
    return []


def place_chunk(
    ref: Span, pieces: tuple[Piece, ...], rest: tuple[Shared, ...], order: np.ndarray, target: TiledMatrix, signed: bool
) -> list[Any]:
    """Write some columns of the whole matrix. Each is a column of a submatrix, selected by ``order``, and is written to the rows of this
    submatrix.

    ``signed`` normalises the signs, as for eigenvectors. ``rest`` holds the columns of all small submatrices: data, rows, offsets of the
    columns, and the position of the first of these columns among all columns.
    """
    out, ids = np.zeros((target.shape[0], ref.hi - ref.lo), target.dtype), order[ref.lo : ref.hi]
    for piece in pieces:
        inside = np.flatnonzero((ids >= piece.first) & (ids < piece.first + piece.matrix.shape[1]))
        rows, columns = resolve(piece.rows), piece.matrix.take(ids[inside] - piece.first)
        for k, column in enumerate(inside):
            out[rows, column] = columns[:, k]
    if rest:
        data, rows, starts, first = (resolve(part) for part in rest)
        for k in np.flatnonzero((ids >= first[0]) & (ids < first[0] + len(starts) - 1)):
            part = slice(*starts[ids[k] - first[0] : ids[k] - first[0] + 2])
            out[rows[part], k] = data[part]
    target.write(0, ref.lo, out * column_signs(out) if signed else out)
    return []


# -- sizes --------------------------------------------------------------------------------------------------------------------------


def tiles_bytes(n: int, columns: int) -> int:
    """Return the driver's memory in bytes for a block in tiles: small matrices, and the columns that are being read."""
    return 40 * columns**2 + 1024 * n


def matrix_bytes(n: int, entries: int, factor: int) -> int:
    """Return the memory in bytes of the matrix in a task: the sparse part twice (as shared, and in a second precision), and the low-rank
    part.
    """
    return 24 * entries + 8 * n + 16 * n * factor


def task_columns(columns: int, here: bool) -> int:
    """Return the largest number of columns that a task multiplies by the matrix: one panel if tasks run in this process.

    The number does not change results.
    """
    return min(PANEL_COLUMNS if here else TILE_COLUMNS, columns)


def pass_bytes(step: int, result: int, tasks: int) -> int:
    """Return the memory in bytes of a pass on a block: that of one task or of concatenating all results, whichever is larger."""
    return max(step + FREED_BYTES, joined_bytes(result, tasks))


def joined_bytes(result: int, tasks: int) -> int:
    """Return the memory in bytes of concatenating the results of all tasks."""
    return 3 * result * tasks


@dataclass(frozen=True)
class Shape:
    """Memory of the steps of all passes on a block of ``columns`` columns and n rows. All methods return bytes."""

    n: int
    columns: int

    def taken(self, rows: int) -> int:
        """Return the memory of copying columns from a block with ``rows`` rows: the columns as read, and as selected."""
        return 16 * rows * PANEL_COLUMNS

    def multiplied(self, matrix: int, wide: int) -> int:
        """Return the memory of multiplying ``wide`` columns by the matrix: input, output, the matrix itself, and panels in double
        precision.
        """
        return matrix + (24 * wide + 32 * PANEL_COLUMNS) * self.n

    @property
    def product(self) -> int:
        """Memory of the result ``V'W`` for a tile of columns W of another block."""
        return 8 * self.columns * TILE_COLUMNS

    def multiplying(self, rows: int) -> int:
        """Return the memory of computing ``V'W`` (see :attr:`product`) over tiles of ``rows`` rows."""
        return 2 * self.product + 24 * rows * self.columns + 8 * rows * TILE_COLUMNS

    def turned(self, rows: int) -> int:
        """Return the memory of a rotation: ``rows`` rows as read, in double precision, and rotated. In addition, two small matrices are
        cached, one of them also in V's precision.
        """
        return 24 * self.columns**2 + 32 * rows * self.columns

    def compared(self, matrix: int) -> int:
        """Return the memory of computing residuals: the matrix, the columns, and their products with the matrix."""
        return matrix + 32 * self.n * min(RESIDUAL_SAMPLES, self.columns)

    def placed(self, itemsize: int, rest: int) -> int:
        """Return the memory of writing columns of the whole matrix. ``rest``: bytes of the columns of small submatrices."""
        return 4 * itemsize * self.n * PANEL_COLUMNS + 8 * self.n + 3 * rest

    def most(self, matrix: int, wide: int, rest: int = 0) -> int:
        """Return the memory of the largest pass that creates or transforms the block."""
        rows, n, b = tile_rows(self.n, self.columns), self.n, self.columns
        panels, tiles = -(-b // PANEL_COLUMNS), -(-b // TILE_COLUMNS)
        over_columns = max(self.taken(n), self.multiplied(matrix, wide), self.placed(8, rest))
        over_rows = pass_bytes(self.turned(rows), RESULT_BYTES, -(-n // rows))
        whole = pass_bytes(self.compared(matrix), RESULT_BYTES, 1)
        return max(
            pass_bytes(over_columns, RESULT_BYTES, panels), over_rows, whole, pass_bytes(self.multiplying(rows), self.product, tiles)
        )


def tile_rows(n: int, columns: int) -> int:
    """Return the rows of a tile, a multiple of ``ROW_STEP`` that depends on the sizes alone."""
    fits = TILE_BYTES // (8 * max(1, columns)) // ROW_STEP * ROW_STEP
    even = -(-n // (ROW_TASKS * ROW_STEP)) * ROW_STEP
    return max(ROW_STEP, min(fits, even))

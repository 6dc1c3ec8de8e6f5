"""Steps of the passes on an eigensolver's block of columns in tiles, their references, and what they take.

Each calls the function that works in memory on the same shapes, so that the result has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.eigen.column_block import RANDOM_ROWS, filter_block
from ...kernels.eigen.operator import Panels, SymmetricOperator
from ...kernels.eigen.signs import column_signs
from ...kernels.eigen.tall_blocks import TILE_COLUMNS, TILE_ROWS, rotate_columns, rotate_in_place, solve_columns
from ...storage import TiledMatrix
from ...storage.tiles import PANEL_COLUMNS
from ..records.context import RunContext, Shared, resolve
from .sources import FREED_BYTES

TILE_BYTES = 32 << 20  # rows of a tile, all columns together in float64, about
ROW_TASKS = 16  # tasks over rows at least, where rows suffice
ROW_STEP = max(TILE_ROWS, RANDOM_ROWS)  # rows of a tile are a multiple of it: it decides the order of sums


@dataclass(frozen=True)
class Span:
    """Rows or columns of a task."""

    lo: int
    hi: int
    nbytes: int  # that it reads


@dataclass(frozen=True)
class SharedOperator:
    """A symmetric matrix as tasks get it."""

    sparse: tuple[Shared, Shared, Shared]  # data, indices, indptr
    factor: tuple[Shared, ...]  # of the low rank part: nothing, an array, or data, indices and indptr
    columns: int  # of the factor
    weights: np.ndarray | None
    centre: bool

    @classmethod
    def of(cls, ctx: RunContext, operator: SymmetricOperator) -> SharedOperator:
        """Return a matrix for tasks."""
        matrix, factor = operator.sparse, operator.factor
        parts = () if factor is None else (factor.data, factor.indices, factor.indptr) if sp.issparse(factor) else (factor,)
        names = ("data", "indices", "indptr")
        data, indices, indptr = (ctx.broadcast(f"eigen-{name}", getattr(matrix, name), ROW_TASKS) for name in names)
        shared = tuple(ctx.broadcast(f"eigen-factor-{k}", part, ROW_TASKS) for k, part in enumerate(parts))
        return cls((data, indices, indptr), shared, 0 if factor is None else factor.shape[1], operator.weights, operator.centre)

    def load(self) -> SymmetricOperator:
        """Return the matrix."""
        data, indices, indptr = (resolve(part) for part in self.sparse)
        n = len(indptr) - 1
        parts: list[Any] = [resolve(part) for part in self.factor]
        factor = None if not parts else parts[0] if len(parts) == 1 else sp.csr_array(tuple(parts), shape=(n, self.columns))
        return SymmetricOperator(sp.csr_array((data, indices, indptr), shape=(n, n)), factor, self.weights, self.centre)


@dataclass(frozen=True)
class Piece:
    """Columns of a part of the matrix: its rows in the whole, and its columns among those of all parts."""

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
    """Return columns of ``V'W`` from the first row to the diagonal tile; without W it is V."""
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
    """Return the squared lengths of ``A u - values u``."""
    columns = vectors.read(ref.lo, ref.hi)
    return [np.square(matrix.load().product(columns) - columns * values).sum(axis=0)]


def rotate_chunk(ref: Span, source: TiledMatrix, block: TiledMatrix, vectors: TiledMatrix | None, weights: Shared) -> list[Any]:
    """Write some rows of the block, rotated, and those of its first columns in double precision."""
    rows = source.read(ref.lo, ref.hi)
    exact = rotate_in_place(rows, resolve(weights), 0 if vectors is None else vectors.shape[1], 1)
    block.write(ref.lo, 0, rows)
    if vectors is not None:
        vectors.write(ref.lo, 0, exact)
    return []


def peak_chunk(ref: Span, source: TiledMatrix, rows: Shared | None) -> list[np.ndarray]:
    """Return the largest magnitude of some columns, on some rows."""
    columns = source.read(0, source.shape[0], ref.lo, ref.hi)
    return [np.abs(columns if rows is None else columns[resolve(rows)]).max(axis=0, initial=0.0)]


def take_chunk(ref: Span, source: TiledMatrix, rows: Shared | None, ids: np.ndarray, target: TiledMatrix) -> list[Any]:
    """Write columns of a block that are columns ``ids`` of another; those beyond are zero."""
    chosen = source.take(ids[ref.lo : ref.hi])
    out = np.zeros((target.shape[0], ref.hi - ref.lo), target.dtype)
    out[:, : chosen.shape[1]] = chosen if rows is None else chosen[resolve(rows)]
    target.write(0, ref.lo, out)
    return []


def place_chunk(
    ref: Span, pieces: tuple[Piece, ...], rest: tuple[Shared, ...], order: np.ndarray, target: TiledMatrix, signed: bool
) -> list[Any]:
    """Write some columns of the whole: those of the parts, each in its rows, in an order; ``signed`` as eigenvectors are.

    ``rest`` are the columns of all small parts: data, rows, where columns begin, and the place of the first among those of all parts.
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
    """Return the bytes that the driver holds of a block in tiles: small matrices, and some columns as it reads them."""
    return 40 * columns**2 + 1024 * n


def matrix_bytes(n: int, entries: int) -> int:
    """Return the bytes of a sparse matrix in a task: as it is shared, and in another precision."""
    return 24 * entries + 8 * n


def step_bytes(n: int, columns: int, entries: int) -> int:
    """Return the bytes of the largest step of a pass on a block; the matrix has no low rank part."""
    rows, panel = tile_rows(n, columns), min(PANEL_COLUMNS, columns)
    over_columns = matrix_bytes(n, entries) + (24 * panel + 32 * PANEL_COLUMNS) * n
    over_rows = 24 * columns**2 + 32 * rows * columns
    products = (16 * columns + 8 * rows) * TILE_COLUMNS + 24 * rows * columns
    return max(over_columns, over_rows, products) + FREED_BYTES


def tile_rows(n: int, columns: int) -> int:
    """Return the rows of a tile: from the sizes alone, a multiple of ``ROW_STEP``."""
    fits = TILE_BYTES // (8 * max(1, columns)) // ROW_STEP * ROW_STEP
    even = -(-n // (ROW_TASKS * ROW_STEP)) * ROW_STEP
    return max(ROW_STEP, min(fits, even))

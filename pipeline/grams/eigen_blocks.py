"""The eigensolver's block of columns, stored in tiles in the run directory. Every operation on the block is a pass over workers.

Filtering works column by column: a task applies all products of a filter to a few columns. Products between columns are split by tiles of
the result; rotations are split by ranges of rows. Results are bit-identical for any storage and any number of workers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import DTypeLike

from ...cluster import BlockProgram, plan
from ...kernels.eigen import positive_part
from ...kernels.eigen.column_block import RANDOM_ROWS, TILE_COLUMNS, Vectors, WarmBlock, block_bytes, filter_block, random_rows
from ...kernels.eigen.operator import Panels, SymmetricOperator
from ...kernels.eigen.positive_part import PositivePart
from ...storage import RunStore, TiledMatrix
from ...storage.runs.tiles import PANEL_COLUMNS
from ..core.resources import Resources, Shared
from ..passes.blocks import join_lists
from . import neighbours
from .eigen_steps import (
    RESULT_BYTES,
    ROW_TASKS,
    Piece,
    Shape,
    SharedOperator,
    Span,
    filter_chunk,
    inner_chunk,
    joined_bytes,
    matrix_bytes,
    peak_chunk,
    place_chunk,
    product_chunk,
    residual_chunk,
    rotate_chunk,
    sample_chunk,
    solve_chunk,
    take_chunk,
    task_columns,
    tile_rows,
    tiles_bytes,
)
from .sources import FREED_BYTES

Solved = tuple[np.ndarray, PositivePart]  # rows of a part in the whole, and its eigenpairs

WORKER_ROWS = 8192  # rows of a part of the matrix from which its block goes to workers, where there are some
TASK_PRODUCTS = 1e9  # multiplications with entries of the matrix that a task does at least
KEPT_BLOCKS = 4  # blocks that later evaluations may start from: as many as a resumed run may ask for, and one
WIDENING = 1.5  # a block that fits the memory must fit it when it is widened


# -- the block ---------------------------------------------------------------------------------------------------------------------


class TiledBlock:
    """A block of columns V, stored in tiles. The matrix A is the submatrix of the given ``rows``."""

    def __init__(self, engine: WorkerEngine, operator: SymmetricOperator, rows: np.ndarray) -> None:
        self._engine, self._rows, self._n, self._entries = engine, rows, operator.n, operator.sparse.nnz
        factor = 0 if operator.factor is None else operator.factor.shape[1]
        self._matrix_bytes = matrix_bytes(operator.n, self._entries, factor)
        self._matrix = SharedOperator.of(engine.resources, operator)
        self.tiles = engine.new(operator.n, 0)

    @property
    def columns(self) -> int:
        return self.tiles.shape[1]

    def driver_bytes(self, columns: int, rank: float) -> int:
        """Return the memory in bytes that the driver needs for a block, including one step of a pass if passes run in this process."""
        return self._engine.driver_bytes(self._n, columns, self._matrix_bytes)

    @property
    def _shape(self) -> Shape:
        return Shape(self._n, self.columns)

    def begin(self, columns: int, start: WarmBlock, seed: int) -> bool:
        """Fill V with the non-zero columns of ``start`` and with random columns. Return whether most columns come from ``start``."""
        if isinstance(start, np.ndarray):
            start = KeptBlock("", self._engine.written(start))
        rows = self._engine.resources.share("eigen-rows", self._rows, ROW_TASKS)
        return self._fill(columns, None if start is None else start.tiles, rows, seed)

    def widen(self, columns: int, seed: int) -> None:
        self._fill(columns, self.tiles, None, seed)

    def _fill(self, columns: int, source: TiledMatrix | None, rows: Shared | None, seed: int) -> bool:
        target, ids = self._engine.new(self._n, columns), np.zeros(0, np.int64)
        taken = 0
        if source is not None:
            taken = self._shape.taken(source.shape[0])
            peaks = self._run("block-peaks", peak_chunk, _panels(source.shape[1], source.shape[0]), source, rows, step=taken)
            ids = np.flatnonzero(np.concatenate(peaks) > 0)[:columns]
        if len(ids) and source is not None:
            refs = [ref for ref in _panels(columns, self._n) if ref.lo < len(ids)]
            self._run("block-columns", take_chunk, refs, source, rows, ids, target, step=taken)
        self._draw(target, len(ids), seed)
        self._replace(target)
        return 2 * len(ids) > columns

    def _draw(self, target: TiledMatrix, known: int, seed: int) -> None:
        """Write random columns after the known ones, tile by tile."""
        n, columns = target.shape
        edge = known // PANEL_COLUMNS * PANEL_COLUMNS
        drawn = random_rows(n, columns - known, seed)
        for lo, hi in target.row_spans() if known < columns else ():
            out = np.empty((hi - lo, columns - edge), np.float32)
            if known > edge:
                out[:, : known - edge] = target.read(lo, hi, edge, known)
            for _ in range(lo, hi, RANDOM_ROWS):
                rows, values = next(drawn)
                out[rows.start - lo : rows.stop - lo, known - edge :] = values
            target.write(lo, edge, out)

    def filter(self, degree: int, damped: tuple[float, float], top: float) -> None:
        """Filter V in place, as :func:`gramplane.kernels.eigen.column_block.filter_block` does."""
        target = self._engine.new(*self.tiles.shape)
        refs = _panels(self.columns, self._n, self._group(degree))
        step = self._multiplied(refs)
        self._run("block-filter", filter_chunk, refs, self._matrix, self.tiles, target, degree, damped, top, step=step)
        self._replace(target)

    def _group(self, degree: int) -> int:
        """Return the number of columns per task: enough to outweigh the task's overhead, but at most the result of ``task_columns``."""
        panels = int(TASK_PRODUCTS // max(1, degree * (self._entries + self._n) * PANEL_COLUMNS)) + 1
        return max(1, min(task_columns(self.columns, self._engine.is_here), panels * PANEL_COLUMNS))

    def _multiplied(self, refs: Sequence[Span]) -> int:
        return self._shape.multiplied(self._matrix_bytes, max(ref.hi - ref.lo for ref in refs))

    def gram(self) -> np.ndarray:
        """Return ``V'V``, computed in V's precision."""
        return self._inner(None, "float32")

    def exact_gram(self) -> np.ndarray:
        """Return ``V'V``, computed in double precision."""
        return self._inner(None, "float64")

    def form(self) -> np.ndarray:
        """Return ``V'AV`` in double precision."""
        image = self._engine.new(*self.tiles.shape, np.float64)
        refs = _panels(self.columns, self._n, self._group(1))
        self._run("block-product", product_chunk, refs, self._matrix, self.tiles, image, step=self._multiplied(refs))
        out = self._inner(image, "float64")
        image.remove()
        return out

    def _inner(self, right: TiledMatrix | None, dtype: str) -> np.ndarray:
        b, rows = self.columns, self.tiles.tile_rows
        # The largest first, so that workers end together.
        refs = [Span(lo, min(b, lo + TILE_COLUMNS), 4 * self._n * b) for lo in range(0, b, TILE_COLUMNS)][::-1]
        step, result = self._shape.multiplying(rows), self._shape.product
        results = self._run("block-inner", inner_chunk, refs, self.tiles, right, dtype, step=step, result=result)
        out = np.zeros((b, b))
        for ref, part in zip(refs, results, strict=True):
            lo, hi = ref.lo, ref.hi
            out[:hi, lo:hi] = part
            corner = out[lo:hi, lo:hi]
            out[lo:hi, lo:hi] = 0.5 * (corner + corner.T)
            out[lo:hi, :lo] = out[:lo, lo:hi].T
        return out

    def solve(self, scale: np.ndarray, lower: np.ndarray) -> None:
        """Replace V by ``V diag(scale) L'^{-1}``, where L is the triangular matrix ``lower``."""
        target = self._engine.new(*self.tiles.shape)
        shared = self._engine.resources.share("eigen-lower", lower, ROW_TASKS)
        self._run("block-solve", solve_chunk, self._row_refs(), self.tiles, target, scale, shared, step=self._turned())
        self._replace(target)

    def squared_residuals(self, weights: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return ``||A u_i - values_i u_i||^2``, where ``u_i`` are the columns of ``V weights``."""
        sample = self._engine.new(self._n, weights.shape[1], np.float64, self.tiles.tile_rows)
        shared = self._engine.resources.share("eigen-sample", weights, ROW_TASKS)
        self._run("block-sample", sample_chunk, self._row_refs(), self.tiles, sample, shared, step=self._turned())
        step = self._shape.compared(self._matrix_bytes)
        whole = [Span(0, self._n, 8 * self._n * weights.shape[1])]
        (out,) = self._run("block-residuals", residual_chunk, whole, self._matrix, sample, values, step=step)
        sample.remove()
        return out

    def rotate(self, weights: np.ndarray, count: int) -> Vectors:
        """Replace V by ``V @ weights``. Return the first ``count`` columns of the product in double precision, in tiles."""
        target, rows = self._engine.new(*self.tiles.shape), self.tiles.tile_rows
        vectors = self._engine.new(self._n, count, np.float64, rows) if count else None
        shared = self._engine.resources.share("eigen-weights", weights, ROW_TASKS)
        self._run("block-rotate", rotate_chunk, self._row_refs(), self.tiles, target, vectors, shared, step=self._turned())
        self._replace(target)
        return np.zeros((self._n, 0)) if vectors is None else vectors

    def result(self) -> TiledBlock:
        return self

    def _row_refs(self) -> list[Span]:
        return [Span(lo, hi, 4 * (hi - lo) * self.columns) for lo, hi in self.tiles.row_spans()]

    def _turned(self) -> int:
        return self._shape.turned(self.tiles.tile_rows)

    def _replace(self, tiles: TiledMatrix) -> None:
        self.tiles.remove()
        self.tiles = tiles

    def _run(
        self, name: str, chunk: Callable[..., list[Any]], refs: Sequence[Span], *shared: object, step: int, result: int = RESULT_BYTES
    ) -> list[Any]:
        return self._engine.run(name, chunk, refs, *shared, step=step, result=result)


@dataclass(frozen=True)
class KeptBlock:
    """The block of an earlier result, in tiles."""

    name: str
    tiles: TiledMatrix

    def rows(self, rows: np.ndarray) -> np.ndarray:
        return self.tiles.read(0, self.tiles.shape[0])[rows]


class WorkerEngine:
    """Keeps blocks in tiles, for workers or if they exceed this process's memory.

    * ``n``: rows of the whole matrix.
    * ``memory``: bytes that this process may use.
    * ``keeps_blocks``: whether later evaluations start from earlier blocks.
    """

    def __init__(self, resources: Resources, run: RunStore, n: int, memory: int, *, keeps_blocks: bool) -> None:
        self.resources, self._folder, self._n, self._memory = resources, run.scratch / "eigen", n, memory
        self._keeps_blocks, self._made = keeps_blocks, 0

    def takes(self, n: int, columns: int, rank: float) -> bool:
        """Return whether a block is stored in tiles: if it exceeds this process's memory, or if there are workers and the block has many
        rows.

        The choice does not change results.
        """
        here = block_bytes(n, int(WIDENING * columns), WIDENING * rank)
        on_workers = not self.is_here and n >= WORKER_ROWS
        return on_workers or here > max(self._memory, self.driver_bytes(n, columns, 0))

    @property
    def is_here(self) -> bool:
        """Whether passes on blocks run in this process."""
        return self.resources.executor.kind == "sync"

    def driver_bytes(self, n: int, columns: int, matrix: int) -> int:
        """Return the memory in bytes that a block in tiles takes in this process, including one step of a pass if passes run here.
        ``matrix`` is the memory of the matrix in bytes.
        """
        step = Shape(n, columns).most(matrix, task_columns(columns, here=True)) if self.is_here else 0
        return tiles_bytes(n, columns) + step

    def open(self, operator: SymmetricOperator, rows: np.ndarray) -> TiledBlock:
        """Return a block for the submatrix of the given ``rows``."""
        return TiledBlock(self, operator, rows)

    def stored(self, name: str) -> KeptBlock:
        """Return the block that an earlier result stored under ``name``."""
        columns = int(name.rpartition("-")[2])
        return KeptBlock(name, TiledMatrix(str(self._folder / name), (self._n, columns), tile_rows(self._n, columns), np.dtype(np.float32)))

    def new(self, n: int, columns: int, dtype: DTypeLike = np.float32, rows: int | None = None) -> TiledMatrix:
        """Return an empty matrix in tiles."""
        self._made += 1
        path = str(self._folder / f"block{self._made}")
        return TiledMatrix(path, (n, columns), tile_rows(n, columns) if rows is None else rows, np.dtype(dtype))

    def written(self, array: np.ndarray) -> TiledMatrix:
        """Write an array to tiles."""
        n, columns = array.shape
        tiles = self.new(n, columns, array.dtype)
        tiles.write(0, 0, array)
        return tiles

    def run(
        self, name: str, chunk: Callable[..., list[Any]], refs: Sequence[Span], *shared: object, step: int, result: int = RESULT_BYTES
    ) -> list[Any]:
        """Run a pass that writes tiles, and return the results of its tasks in order."""
        joined = joined_bytes(result, len(refs))
        program = BlockProgram(name, chunk, join_lists, lambda ref: step + FREED_BYTES, result, combine_bytes=joined)
        return self.resources.run_pass(plan(program, refs, *shared))

    def assemble(self, n: int, solved: list[Solved], order: np.ndarray) -> tuple[Vectors, WarmBlock]:
        """Combine the results of submatrices. Return the eigenvectors of the whole matrix in the given order, and the block of the whole
        matrix, both in tiles.

        Eigenvectors of earlier results are deleted.
        """
        for old in self._folder.glob("vectors-*"):
            TiledMatrix(str(old), (0, 0), 1, np.dtype(np.float64)).remove()
        large = [part for part in solved if not _is_small(part)]
        rows = [self.resources.share(f"eigen-part-{k}", ids, ROW_TASKS) for k, (ids, _) in enumerate(large)]
        vectors = self._place_vectors(n, solved, large, rows, order) if len(order) else np.zeros((n, 0))
        block = self._place_block(n, large, rows) if self._keeps_blocks else None
        for part in (*(result.vectors for _, result in large), *(result.block for _, result in large)):
            tiles = part.tiles if isinstance(part, TiledBlock) else part
            if isinstance(tiles, TiledMatrix):
                tiles.remove()
        return vectors, block

    def _place_vectors(
        self, n: int, solved: Sequence[Solved], large: Sequence[Solved], rows: Sequence[Shared], order: np.ndarray
    ) -> Vectors:
        # The pairs of all parts in the order that pieces have: large parts, then small ones.
        small = [part for part in solved if _is_small(part)]
        of_small = np.repeat([_is_small(part) for part in solved], [len(part.values) for _, part in solved])
        places = np.argsort(of_small, kind="stable")
        back = np.empty(len(places), np.int64)
        back[places] = np.arange(len(places))
        pieces, first = [], 0
        for ids, (_, part) in zip(rows, large, strict=True):
            if len(part.values):
                pieces.append(Piece(ids, part.vectors if isinstance(part.vectors, TiledMatrix) else self.written(part.vectors), first))
            first += len(part.values)
        rest = self._rest(small, first)
        name = hashlib.sha256(np.ascontiguousarray(order).tobytes()).hexdigest()[:16]
        target = TiledMatrix(str(self._folder / f"vectors-{name}"), (n, len(order)), tile_rows(n, len(order)), np.dtype(np.float64))
        self._place(tuple(pieces), rest, back[order], target, signed=True)
        return target

    def _rest(self, small: Sequence[Solved], first: int) -> tuple[Shared, ...]:
        """Return the eigenvectors of small submatrices, and the rows of these submatrices, in the form sent to tasks."""
        if not small:
            return ()
        data = np.concatenate([part.vectors.T.ravel() for _, part in small])
        rows = np.concatenate([np.tile(ids, len(part.values)) for ids, part in small])
        lengths = np.concatenate([np.full(len(part.values), len(ids)) for ids, part in small])
        parts = data, rows, np.concatenate([[0], np.cumsum(lengths)]), np.array([first])
        return tuple(self.resources.share(f"eigen-rest-{k}", part, ROW_TASKS) for k, part in enumerate(parts))

    def _place_block(self, n: int, large: Sequence[Solved], rows: Sequence[Shared]) -> KeptBlock:
        kept_parts = [(ids, part) for ids, (_, part) in zip(rows, large, strict=True) if part.block is not None]
        blocks = [part.block.tiles if isinstance(part.block, TiledBlock) else self.written(part.block) for _, part in kept_parts]
        columns = max(block.shape[1] for block in blocks)
        values = np.concatenate([part.values for _, part in kept_parts])
        kept = self.stored(f"kept-{hashlib.sha256(values.tobytes()).hexdigest()[:16]}-{columns}")
        refs = _panels(columns, n)
        pieces = tuple(Piece(ids, block, 0) for (ids, _), block in zip(kept_parts, blocks, strict=True))
        self._place(pieces, (), np.arange(columns), kept.tiles, signed=False, refs=refs)
        others = [path for path in self._folder.glob("kept-*") if path != Path(kept.tiles.path)]
        for old in sorted(others, key=lambda path: path.stat().st_mtime_ns, reverse=True)[KEPT_BLOCKS - 1 :]:
            self.stored(old.name).tiles.remove()
        return kept

    def _place(
        self,
        pieces: tuple[Piece, ...],
        rest: tuple[Shared, ...],
        order: np.ndarray,
        target: TiledMatrix,
        *,
        signed: bool,
        refs: Sequence[Span] | None = None,
    ) -> None:
        n, columns = target.shape
        step = Shape(n, columns).placed(target.dtype.itemsize, sum(part.nbytes for part in rest))
        self.run("block-place", place_chunk, refs or _panels(columns, n), pieces, rest, order, target, signed, step=step)
        for piece in pieces:
            piece.matrix.remove()


def _is_small(solved: Solved) -> bool:
    """Return whether a submatrix has so few rows that every task gets its eigenvectors."""
    rows, part = solved
    return part.block is None and len(rows) <= positive_part.MAX_DENSE_ROWS


def _panels(columns: int, n: int, group: int = PANEL_COLUMNS) -> list[Span]:
    """Return tasks that each process ``group`` consecutive columns; the last task may process fewer."""
    return [Span(lo, min(columns, lo + group), 4 * n * (min(columns, lo + group) - lo)) for lo in range(0, columns, group)]


def worker_engine(resources: Resources, n: int, memory: int, *, keeps_blocks: bool) -> WorkerEngine | None:
    """Return the engine that keeps blocks outside this process, or ``None`` for a fit without a directory."""
    return None if resources.scratch is None else WorkerEngine(resources, resources.scratch, n, memory, keeps_blocks=keeps_blocks)


def load_programs() -> None:
    """Compile or load the code of a task, so that the measured memory of a worker includes it."""
    neighbours.load_programs()
    matrix = SymmetricOperator(sp.csr_array(np.eye(3)))
    for dtype in (np.float32, np.float64):
        filter_block(Panels.of(matrix, dtype), np.ones((3, 1), dtype), 1, (-1.0, 0.5), 1.0, 1)

"""Passes over rows for embeddings: size and leading eigenvectors of their centred Gram matrix, and the triples that a kernel violates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, plan
from ....kernels.eigen.tall_blocks import TILE_ROWS
from ....kernels.spectral.embeddings import leading_directions, normalise_columns
from ....kernels.spectral.triple_losses import worst_triples
from ....storage import BlockStore, MemoryBlocks, open_shared
from ...grams.sources import FREED_BYTES, rows_of
from ...passes.blocks import add_parts, join_lists
from ...records.context import RunContext, Shared, resolve

Rows: TypeAlias = Any  # `(n, d)` in double precision: an array or CSR
Step = Callable[..., np.ndarray | list[Any]]

WHOLE_ROWS = 4096  # rows up to which one task takes all of them
MAX_SCATTER_COLUMNS = 2048  # columns of dense rows up to which their scatter matrix is made
SPARE_DIRECTIONS = 8  # columns of the iteration beyond the directions wanted
MAX_ITERATIONS = 60
DIRECTIONS_TOL = 1e-12  # change of the sum of eigenvalues, relative, that ends the iteration
TRIPLE_WORK = 2e8  # differences of coordinates that a task on triples looks at, about


@dataclass(frozen=True)
class RowBlock:
    """A block of rows, or two whose products are wanted."""

    url: str
    digest: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    nbytes: int
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)

    def load(self) -> Rows:
        """Return the rows in double precision, an array or CSR."""
        return _load(self.source or open_shared(self.url, self.digest), self.rows)

    def load_other(self) -> Rows:
        """Return the other rows."""
        return _load(self.source or open_shared(self.url, self.digest), self.cols)


def _load(data: BlockStore | MemoryBlocks, rows: tuple[int, int]) -> Rows:
    part = rows_of(data, *rows).astype(np.float64)
    return sp.csr_array(part) if sp.issparse(part) else part


def row_blocks(data: BlockStore | MemoryBlocks) -> list[RowBlock]:
    """Return blocks of rows: from the data alone."""
    spans = [(lo, min(lo + WHOLE_ROWS, data.n_rows)) for lo in range(0, data.n_rows, WHOLE_ROWS)]
    return [_block(data, span, span) for span in spans]


def _block(data: BlockStore | MemoryBlocks, rows: tuple[int, int], cols: tuple[int, int]) -> RowBlock:
    far = isinstance(data, BlockStore)
    both = rows[1] - rows[0] + (0 if rows == cols else cols[1] - cols[0])
    return RowBlock(data.url, data.digest if far else "", rows, cols, 8 * data.n_cols * both, None if far else data)


def row_geometry(ctx: RunContext, count: int) -> tuple[float, np.ndarray]:
    """Return what :func:`gramplane.kernels.spectral.embeddings.leading_directions` does, of ``ctx.data`` by passes over blocks of rows.
    ``count`` 0: only the squared Frobenius norm of the centred Gram matrix.
    """
    data = ctx.data
    blocks = row_blocks(data)
    if len(blocks) == 1:
        (found,) = _run(ctx, "row-directions", whole_chunk, blocks, count, extra=24 * data.n_rows * data.n_rows, result=8 * data.n_rows)
        return found
    mean = _run(ctx, "row-means", sum_chunk, blocks, sums=True, result=8 * data.n_cols) / data.n_rows
    if data.meta.kind != "sparse" and data.n_cols <= MAX_SCATTER_COLUMNS:
        return _by_scatter(ctx, blocks, mean, count)
    pairs = [_block(data, a.rows, b.rows) for k, a in enumerate(blocks) for b in blocks[k:]]
    shared = ctx.broadcast("row-mean", mean, len(pairs))
    norm2 = float(_run(ctx, "row-norm", norm_chunk, pairs, shared, sums=True, extra=16 * WHOLE_ROWS**2, result=8)[0])
    return norm2, _by_iteration(ctx, blocks, mean, count) if count else np.zeros((data.n_rows, 0))


def _by_scatter(ctx: RunContext, blocks: Sequence[RowBlock], mean: np.ndarray, count: int) -> tuple[float, np.ndarray]:
    d = len(mean)
    values, turned = np.linalg.eigh(_run(ctx, "row-scatter", scatter_chunk, blocks, mean, sums=True, extra=8 * d * d, result=8 * d * d))
    weights = np.ascontiguousarray(turned[:, ::-1][:, :count])
    if not count:
        return float(values @ values), np.zeros((ctx.data.n_rows, 0))
    vectors = np.concatenate(_run(ctx, "row-products", project_chunk, blocks, mean, weights, result=8 * WHOLE_ROWS * count))
    return float(values @ values), normalise_columns(vectors, values[::-1])


def _by_iteration(ctx: RunContext, blocks: Sequence[RowBlock], mean: np.ndarray, count: int) -> np.ndarray:
    """Return leading eigenvectors by orthogonal iteration: two passes a step, until the sum of their eigenvalues stands still."""
    n, width, total = ctx.data.n_rows, count + SPARE_DIRECTIONS, 0.0
    block = np.random.default_rng((ctx.seed, 5)).standard_normal((n, width))
    values = np.zeros(width)
    for _ in range(MAX_ITERATIONS):
        block = np.linalg.qr(block - block.mean(axis=0))[0]
        shared = ctx.broadcast("row-block", block, len(blocks))
        inner = _run(ctx, "row-inner", inner_chunk, blocks, shared, sums=True, result=8 * len(mean) * width)
        weights = ctx.broadcast("row-weights", inner, len(blocks))
        image = np.concatenate(_run(ctx, "row-products", project_chunk, blocks, mean, weights, result=8 * WHOLE_ROWS * width))
        image = image - image.mean(axis=0)
        values, turned = np.linalg.eigh(block.T @ image)
        block = image @ turned[:, ::-1]
        leading = float(values[::-1][:count].sum())
        if abs(leading - total) <= DIRECTIONS_TOL * abs(leading):
            break
        total = leading
    return normalise_columns(block[:, :count], values[::-1])


def _run(
    ctx: RunContext,
    name: str,
    chunk: Step,
    blocks: Sequence[RowBlock],
    *shared: object,
    sums: bool = False,
    extra: int = 0,
    result: int = 8,
) -> Any:
    program = BlockProgram(
        name,
        chunk,
        cast("Callable[..., Any]", add_parts if sums else join_lists),
        lambda ref: 3 * ref.nbytes + extra + 2 * result + FREED_BYTES,
        result,
        combine_bytes=None if sums else 3 * result * len(blocks),
    )
    return ctx.run_pass(plan(program, blocks, *shared))


def geometry_bytes(data: BlockStore | MemoryBlocks) -> int:
    """Return the bytes of a task of the passes over rows."""
    rows = min(WHOLE_ROWS, data.n_rows)
    return 6 * 8 * rows * data.n_cols + 24 * rows * rows + FREED_BYTES


def whole_chunk(ref: RowBlock, count: int) -> list[tuple[float, np.ndarray]]:
    """Return squared norm and leading directions of all rows."""
    norm2, directions = leading_directions(ref.load(), max(1, count))
    return [(norm2, directions[:, :count])]


def sum_chunk(ref: RowBlock) -> np.ndarray:
    """Return the sum of some rows."""
    return np.asarray(ref.load().sum(axis=0), dtype=np.float64).ravel()


def scatter_chunk(ref: RowBlock, mean: np.ndarray) -> np.ndarray:
    """Return ``(X - mean)'(X - mean)`` of some rows."""
    centred = ref.load() - mean
    return centred.T @ centred


def project_chunk(ref: RowBlock, mean: np.ndarray, weights: Shared) -> list[np.ndarray]:
    """Return ``(X - mean) W`` of some rows."""
    columns = resolve(weights)
    return [ref.load() @ columns - mean @ columns]


def inner_chunk(ref: RowBlock, block: Shared) -> np.ndarray:
    """Return ``X'V`` of some rows."""
    return np.asarray(ref.load().T @ resolve(block)[slice(*ref.rows)])


def norm_chunk(ref: RowBlock, mean: Shared) -> np.ndarray:
    """Return what two blocks of rows add to the squared Frobenius norm of the centred Gram matrix."""
    centre, left = resolve(mean), ref.load()
    right = left if ref.rows == ref.cols else ref.load_other()
    total, offsets = 0.0, right @ centre
    for lo in range(0, left.shape[0], TILE_ROWS):
        rows = left[lo : lo + TILE_ROWS]
        products = rows @ right.T
        gram = products.toarray() if sp.issparse(products) else products
        gram = gram - (rows @ centre)[:, None] - offsets + centre @ centre
        total += float(np.sum(gram * gram))
    return np.array([total if ref.rows == ref.cols else 2.0 * total])


# -- triples -----------------------------------------------------------------------------------------------------------------------


def triple_spans(n: int, rank: int) -> list[tuple[int, int]]:
    """Return the rows of every task on triples: from the sizes alone."""
    step = max(64, int(TRIPLE_WORK // max(1, n * rank)))
    return [(lo, min(lo + step, n)) for lo in range(0, n, step)]


def triples_chunk(ref: TripleRows, factor: Shared, starts: Shared, neighbours: Shared) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the most violated triples of some rows, and their violations."""
    return [worst_triples(resolve(factor), resolve(starts), resolve(neighbours), *ref.rows)]


@dataclass(frozen=True)
class TripleRows:
    """Rows whose triples are looked at."""

    rows: tuple[int, int]
    nbytes: int


@dataclass(frozen=True)
class TriplesPass:
    """The search for violated triples, row by row, on workers; in the bits of the search in one piece."""

    ctx: RunContext

    def __call__(self, factor: np.ndarray, starts: np.ndarray, neighbours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what :func:`gramplane.kernels.spectral.triple_losses.worst_triples` does."""
        n, rank = factor.shape
        refs = [TripleRows(span, factor.nbytes) for span in triple_spans(n, rank)]
        arrays = {"factor": factor, "starts": starts, "neighbours": neighbours}
        shared = [self.ctx.broadcast(f"triples-{name}", array, len(refs)) for name, array in arrays.items()]
        step = 2 * sum(array.nbytes for array in arrays.values()) + 64 * n + FREED_BYTES
        program = BlockProgram("worst-triples", triples_chunk, join_lists, lambda ref: step, 32 * n, combine_bytes=96 * n)
        found = self.ctx.run_pass(plan(program, refs, *shared))
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

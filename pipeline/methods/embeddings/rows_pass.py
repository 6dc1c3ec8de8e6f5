"""Passes over rows for embeddings: norm and leading eigenvectors of the centred Gram matrix, and triples that a kernel violates.

Up to 4,096 rows are processed by a single task, because for so few rows several tasks would take 1.2 to 1.3 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.eigen.column_block import TILE_ROWS
from ....kernels.spectral.embeddings import leading_directions, normalise_columns
from ....kernels.spectral.triple_losses import worst_triples
from ....storage import BlockStore, MemoryBlocks, open_shared
from ...core.resources import Resources, Shared, resolve
from ...grams.sources import FREED_BYTES, rows_of
from ...passes.blocks import Blocks, add_parts, join_lists

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
    """A block of rows, or two blocks whose products are computed."""

    url: str
    digest: str
    rows: tuple[int, int]
    cols: tuple[int, int]
    nbytes: int
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)

    def load(self) -> Rows:
        """Return the rows in double precision, an array or CSR matrix."""
        return _load(self.source or open_shared(self.url, self.digest), self.rows)

    def load_other(self) -> Rows:
        """Return the rows of the second block."""
        return _load(self.source or open_shared(self.url, self.digest), self.cols)


def _load(data: BlockStore | MemoryBlocks, rows: tuple[int, int]) -> Rows:
    part = rows_of(data, *rows).astype(np.float64)
    return sp.csr_array(part) if sp.issparse(part) else part


def row_blocks(data: BlockStore | MemoryBlocks) -> list[RowBlock]:
    """Return the blocks of rows. The division depends on the number of rows alone."""
    spans = [(lo, min(lo + WHOLE_ROWS, data.n_rows)) for lo in range(0, data.n_rows, WHOLE_ROWS)]
    return [_block(data, span, span) for span in spans]


def _block(data: BlockStore | MemoryBlocks, rows: tuple[int, int], cols: tuple[int, int]) -> RowBlock:
    far = isinstance(data, BlockStore)
    both = rows[1] - rows[0] + (0 if rows == cols else cols[1] - cols[0])
    return RowBlock(data.url, data.digest if far else "", rows, cols, 8 * data.n_cols * both, None if far else data)


def row_geometry(data: Blocks, resources: Resources, count: int) -> tuple[float, np.ndarray]:
    """Return the result of :func:`gramplane.kernels.spectral.embeddings.leading_directions`, computed by passes over blocks of rows. With
    ``count`` 0: only the squared Frobenius norm of the centred Gram matrix.
    """
    passes = GeometryPasses(data, count)
    if passes.in_one:
        (found,) = resources.run_pass(passes.directions(count))
        return found
    mean = resources.run_pass(passes.means()) / data.n_rows
    if passes.by_scatter:
        return _by_scatter(data.n_rows, resources, passes, mean)
    shared = resources.share("row-mean", mean, len(passes.pairs))
    norm2 = float(resources.run_pass(passes.norm(shared))[0])
    return norm2, _by_iteration(data.n_rows, resources, passes, mean) if count else np.zeros((data.n_rows, 0))


def geometry_bytes(data: BlockStore | MemoryBlocks, count: int) -> int:
    """Return the memory of a task of the passes over rows, in bytes."""
    return max(work.memory_bound for work in GeometryPasses(data, count).all())


def _by_scatter(n: int, resources: Resources, passes: GeometryPasses, mean: np.ndarray) -> tuple[float, np.ndarray]:
    values, turned = np.linalg.eigh(resources.run_pass(passes.scatter(mean)))
    weights = np.ascontiguousarray(turned[:, ::-1][:, : passes.count])
    if not passes.count:
        return float(values @ values), np.zeros((n, 0))
    vectors = np.concatenate(resources.run_pass(passes.products(mean, weights)))
    return float(values @ values), normalise_columns(vectors, values[::-1])


def _by_iteration(n: int, resources: Resources, passes: GeometryPasses, mean: np.ndarray) -> np.ndarray:
    """Return leading eigenvectors by orthogonal iteration, two passes per step, until the sum of their eigenvalues no longer changes."""
    count, tasks, total = passes.count, len(passes.blocks), 0.0
    block = np.random.default_rng((resources.seed, 5)).standard_normal((n, passes.width))
    values = np.zeros(passes.width)
    for _ in range(MAX_ITERATIONS):
        block = np.linalg.qr(block - block.mean(axis=0))[0]
        inner = resources.run_pass(passes.inner(resources.share("row-block", block, tasks)))
        weights = resources.share("row-weights", inner, tasks)
        image = np.concatenate(resources.run_pass(passes.products(mean, weights)))
        image = image - image.mean(axis=0)
        values, turned = np.linalg.eigh(block.T @ image)
        block = image @ turned[:, ::-1]
        leading = float(values[::-1][:count].sum())
        if abs(leading - total) <= DIRECTIONS_TOL * abs(leading):
            break
        total = leading
    return normalise_columns(block[:, :count], values[::-1])


@dataclass(frozen=True)
class GeometryPasses:
    """Passes that compute the norm and ``count`` leading directions of the rows. Plans omit the data sent to tasks."""

    data: BlockStore | MemoryBlocks
    count: int

    @cached_property
    def blocks(self) -> list[RowBlock]:
        return row_blocks(self.data)

    @cached_property
    def pairs(self) -> list[RowBlock]:
        return [_block(self.data, a.rows, b.rows) for k, a in enumerate(self.blocks) for b in self.blocks[k:]]

    @property
    def in_one(self) -> bool:
        """True if one task processes all rows."""
        return len(self.blocks) == 1

    @property
    def by_scatter(self) -> bool:
        """True if the scatter matrix of the columns is formed: for dense data with few columns."""
        return self.data.meta.kind != "sparse" and self.data.n_cols <= MAX_SCATTER_COLUMNS

    @property
    def width(self) -> int:
        """Number of columns by which the rows are multiplied."""
        return self.count if self.by_scatter else self.count + SPARE_DIRECTIONS

    def all(self) -> Iterator[Plan[Any]]:
        if self.in_one:
            yield self.directions()
            return
        yield self.means()
        yield self.scatter() if self.by_scatter else self.norm()
        if self.count:
            yield self.products()
            if not self.by_scatter:
                yield self.inner()

    def directions(self, *sent: object) -> Plan[Any]:
        """Return the pass of a single task that computes norm and directions: from the scatter matrix of dense rows with few columns,
        otherwise from the Gram matrix.
        """
        n, d = self.data.n_rows, self.data.n_cols
        square = n if self.data.meta.kind == "sparse" else min(n, d)
        return self._pass("row-directions", whole_chunk, *sent, extra=40 * square**2, result=8 * n * self.count + 8)

    def means(self) -> Plan[Any]:
        """Return the pass that sums the rows."""
        return self._pass("row-means", sum_chunk, sums=True, result=8 * self.data.n_cols)

    def scatter(self, *sent: object) -> Plan[Any]:
        """Return the pass that computes the scatter matrix of the rows."""
        size = 8 * self.data.n_cols**2
        return self._pass("row-scatter", scatter_chunk, *sent, sums=True, extra=size, result=size)

    def products(self, *sent: object) -> Plan[Any]:
        """Return the pass that multiplies the rows by a few columns."""
        return self._pass("row-products", project_chunk, *sent, result=8 * min(WHOLE_ROWS, self.data.n_rows) * self.width)

    def inner(self, *sent: object) -> Plan[Any]:
        """Return the pass that multiplies the transposed rows by a few columns."""
        return self._pass("row-inner", inner_chunk, *sent, sums=True, result=8 * self.data.n_cols * self.width)

    def norm(self, *sent: object) -> Plan[Any]:
        """Return the pass that computes the squared norm of the Gram matrix by pairs of blocks."""
        products = 32 * min(TILE_ROWS, WHOLE_ROWS) * WHOLE_ROWS
        return self._pass("row-norm", norm_chunk, *sent, blocks=self.pairs, sums=True, extra=products, result=8)

    def _pass(
        self,
        name: str,
        chunk: Step,
        *sent: object,
        blocks: Sequence[RowBlock] | None = None,
        sums: bool = False,
        extra: int = 0,
        result: int = 8,
    ) -> Plan[Any]:
        refs = self.blocks if blocks is None else blocks

        def task_bytes(ref: RowBlock) -> int:
            return 3 * ref.nbytes + extra + 2 * result + FREED_BYTES

        combine = cast("Callable[..., Any]", add_parts if sums else join_lists)
        joined = None if sums else 3 * result * len(refs)
        return plan(BlockProgram(name, chunk, combine, task_bytes, result, combine_bytes=joined), refs, *sent)


def whole_chunk(ref: RowBlock, count: int) -> list[tuple[float, np.ndarray]]:
    """Return squared norm and leading directions of all rows."""
    norm2, directions = leading_directions(ref.load(), max(1, count))
    return [(norm2, directions[:, :count])]


def sum_chunk(ref: RowBlock) -> np.ndarray:
    """Return the sum of a block of rows."""
    return np.asarray(ref.load().sum(axis=0), dtype=np.float64).ravel()


def scatter_chunk(ref: RowBlock, mean: np.ndarray) -> np.ndarray:
    """Return ``(X - mean)'(X - mean)`` of a block of rows."""
    centred = ref.load() - mean
    return centred.T @ centred


def project_chunk(ref: RowBlock, mean: np.ndarray, weights: Shared) -> list[np.ndarray]:
    """Return ``(X - mean) W`` of a block of rows."""
    columns = resolve(weights)
    return [ref.load() @ columns - mean @ columns]


def inner_chunk(ref: RowBlock, block: Shared) -> np.ndarray:
    """Return ``X'V`` of a block of rows."""
    return np.asarray(ref.load().T @ resolve(block)[slice(*ref.rows)])


def norm_chunk(ref: RowBlock, mean: Shared) -> np.ndarray:
    """Return the contribution of two blocks of rows to the squared Frobenius norm of the centred Gram matrix."""
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
    """Return the range of rows of every task on triples. The ranges depend on ``n`` and ``rank`` alone."""
    step = max(64, int(TRIPLE_WORK // max(1, n * rank)))
    return [(lo, min(lo + step, n)) for lo in range(0, n, step)]


def triples_chunk(ref: TripleRows, factor: Shared, starts: Shared, neighbours: Shared) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the most violated triples of some rows, and their violations."""
    return [worst_triples(resolve(factor), resolve(starts), resolve(neighbours), *ref.rows)]


@dataclass(frozen=True)
class TripleRows:
    """Rows whose triples are checked."""

    rows: tuple[int, int]
    nbytes: int


@dataclass(frozen=True)
class TriplesPass:
    """Row-wise search for violated triples on workers, bit-identical to a search over all rows at once."""

    resources: Resources

    def __call__(self, factor: np.ndarray, starts: np.ndarray, neighbours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of :func:`gramplane.kernels.spectral.triple_losses.worst_triples`."""
        arrays = {"factor": factor, "starts": starts, "neighbours": neighbours}
        tasks = len(triple_spans(*factor.shape))
        shared = [self.resources.share(f"triples-{name}", array, tasks) for name, array in arrays.items()]
        found = self.resources.run_pass(triples_pass(*factor.shape, len(neighbours), *shared))
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])


def triples_pass(n: int, rank: int, entries: int, *sent: object) -> Plan[list[tuple[np.ndarray, np.ndarray]]]:
    """Return the pass of the search among n rows, for a factor of ``rank`` columns and neighbour lists of ``entries`` entries."""
    refs = [TripleRows(span, 8 * n * rank) for span in triple_spans(n, rank)]
    # Factor and neighbours as they are read, and what is found.
    step = 16 * (n * rank + n + 1 + entries) + 64 * n + FREED_BYTES
    program = BlockProgram("worst-triples", triples_chunk, join_lists, lambda ref: step, 32 * n, combine_bytes=96 * n)
    return plan(program, refs, *sent)

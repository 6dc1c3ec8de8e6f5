"""A weighted sum of Gram matrices, or the exponential of such a sum, that exceeds the driver's memory. Passes compute its entries for a
dual solver.

Every kernel has one weight, or one weight per pair of tasks.

If a run has a directory, the sum is written to this directory once, block pair by block pair. The solver's passes then read one matrix
instead of all kernels. The next sum replaces the file.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ...cluster import BlockProgram, Plan, plan
from ...kernels.bank.products import add_product, combine_kernels
from ...kernels.bank.task_sums import combine_entry_tasks, used_weights
from ...kernels.bank.two_layer import block_layer
from ...kernels.grams.normalization import Normalization
from ...kernels.svm.decomposition import MIN_WORKING_SET
from ...storage import GramStore, GramTask, RunStore, open_gram
from ..core.memory import Item
from ..core.resources import Resources, Shared, resolve
from ..passes.blocks import TASK_BYTES, add_parts, join_lists
from ..records.data_set import DataSet
from .given import GivenPair, StoredPair
from .sources import PairRef, group_pairs, load_normalised, loaded_bytes, normalised_part, pair_bytes

Norms = tuple[Normalization, ...] | None

MATRIX_SHARE = 0.25  # share of the driver's memory that one weighted sum, or what a solver holds of it, may take
PART_BYTES = 4 << 20  # entries one task brings to the driver, about
BATCH_BYTES = 32 << 20  # entries brought to the driver at a time

Group = tuple[PairRef, ...]


def fits_driver(n: int, driver_memory: int) -> bool:
    """Return whether one weighted sum of n rows, as a matrix, fits in its share of the driver's memory. If not, passes compute the sum."""
    return 4 * n * n <= MATRIX_SHARE * driver_memory


def sum_item(n: int, driver_memory: int) -> Item:
    """Return the memory item of a weighted sum and the solver's copy of active rows. If the sum is too large for the driver, the item is a
    fixed share of the driver's memory.
    """
    if fits_driver(n, driver_memory):
        return "weighted sum of the kernels, and the solver's copy of it", 8 * n * n
    return working_set_item(driver_memory)


def working_set_item(driver_memory: int) -> Item:
    """Return the memory item of the entries that a solver holds, for a weighted sum that is too large to be a matrix on the driver."""
    return "a solver's working set of the weighted sum", int(MATRIX_SHARE * driver_memory)


class Rectangle(NamedTuple):
    """Entries of one block pair.

    * ``rows``, ``columns``: positions among the requested variables.
    * ``values``: the entries.
    """

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class SumBuild:
    """A block pair whose weighted sum is to be written."""

    task: GramTask | None  # none where it is only planned
    pair: PairRef

    @property
    def written_bytes(self) -> int:
        (top, bottom), (left, right) = self.pair.rows, self.pair.cols
        return 4 * (bottom - top) * (right - left)

    @property
    def nbytes(self) -> int:
        """Bytes that are read and written."""
        return self.pair.nbytes + self.written_bytes


Places = slice | np.ndarray  # rows or columns of the whole matrix


@dataclass(frozen=True)
class BlockTotal:
    """Combines the kernels of a block pair into one matrix. ``norms``: normalisations to apply when a block is loaded, or ``None``."""

    norms: Norms

    def whole(self, ref: PairRef) -> np.ndarray:
        """Return the sum over a block pair, in the kernels' dtype."""
        return self.total(load_normalised(ref, self.norms), slice(*ref.rows), slice(*ref.cols))

    def part(self, ref: PairRef, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return entries of the sum at some rows and columns, by their indices in the whole matrix."""
        return self.total(normalised_part(ref, self.norms, rows, columns), rows, columns)

    def total(self, block: np.ndarray, rows: Places, columns: Places) -> np.ndarray:
        """Return the sum of loaded entries ``(k, rows, columns)``."""
        raise NotImplementedError

    @property
    def used(self) -> list[int]:
        """Indices of the kernels with non-zero weight."""
        raise NotImplementedError

    def of(self, kernels: Sequence[int]) -> Self:
        """Return the same combination for a subset of the kernels."""
        raise NotImplementedError

    def parts(self) -> Iterator[bytes]:
        """Yield the bytes that identify the sum, without its normalisation."""
        raise NotImplementedError

    def for_workers(self, resources: Resources, tasks: int) -> Self:
        """Return the sum in the form that is sent to the tasks of a pass."""
        return self

    def _norms_of(self, kernels: Sequence[int]) -> Norms:
        return None if self.norms is None else tuple(self.norms[q] for q in kernels)


@dataclass(frozen=True)
class BlockSum(BlockTotal):
    """A sum of kernels, each with one weight."""

    theta: np.ndarray  # `(k,)` weights of the kernels as loaded
    exponential: bool = False  # take `exp` of every entry of the sum: the second layer of a two-layer machine

    def total(self, block: np.ndarray, rows: Places, columns: Places) -> np.ndarray:
        if self.exponential:
            return block_layer(block, self.theta).astype(block.dtype)
        return block[0] if len(self.theta) == 1 and self.theta[0] == 1.0 else combine_kernels(block, self.theta)

    @property
    def used(self) -> list[int]:
        return np.flatnonzero(self.theta).tolist()

    def of(self, kernels: Sequence[int]) -> BlockSum:
        return replace(self, theta=self.theta[kernels], norms=self._norms_of(kernels))

    def parts(self) -> Iterator[bytes]:
        yield self.theta.tobytes() + (b"exp" if self.exponential else b"")


@dataclass(frozen=True)
class BlockTaskSum(BlockTotal):
    """A sum of kernels whose weight depends on the tasks of row and column: ``sum_q W_q[c_i, c_l] K_q[i, l]``."""

    weights: Shared  # `(k, T, T)` W of the kernels as loaded, symmetric in the tasks
    codes: Shared  # `(n,)` tasks of the rows

    def total(self, block: np.ndarray, rows: Places, columns: Places) -> np.ndarray:
        codes = resolve(self.codes)
        return combine_entry_tasks(block, resolve(self.weights), codes[rows], codes[columns])

    @property
    def used(self) -> list[int]:
        """Indices of the kernels with a non-zero weight for some pair of tasks."""
        return used_weights(resolve(self.weights))[0].tolist()

    def of(self, kernels: Sequence[int]) -> BlockTaskSum:
        return replace(self, weights=resolve(self.weights)[kernels], norms=self._norms_of(kernels))

    def parts(self) -> Iterator[bytes]:
        yield b"tasks"
        yield from (resolve(array).tobytes() for array in (self.weights, self.codes))

    def for_workers(self, resources: Resources, tasks: int) -> BlockTaskSum:
        """Return the sum with weights and tasks as objects in the run directory, if sending them with every task would be too much."""
        weights = resources.share("task-weights", resolve(self.weights), tasks)
        return replace(self, weights=weights, codes=resources.share("tasks", resolve(self.codes), tasks))


def product_chunk(group: Group, total: BlockTotal, vector: Shared) -> np.ndarray:
    """Return the contribution of some block pairs to ``K(theta) v``, ``(n,)``."""
    v = resolve(vector)
    out = np.zeros(len(v))
    for ref in group:
        add_product(total.whole(ref), ref.rows, ref.cols, v, out)
    return out


def products_chunk(group: Group, total: BlockTotal, vectors: Shared) -> np.ndarray:
    """Return the contribution of some block pairs to ``K(theta) V``, ``(n, b)``."""
    V = resolve(vectors)
    out = np.zeros(V.shape)
    for ref in group:
        block, rows, cols = total.whole(ref).astype(np.float64), slice(*ref.rows), slice(*ref.cols)
        out[rows] += block @ V[cols]
        if ref.rows != ref.cols:
            out[cols] += block.T @ V[rows]
    return out


def between_chunk(group: Group, total: BlockTotal, wanted: np.ndarray, fresh: int) -> list[Rectangle]:
    """Return the entries of some block pairs whose row and column are both in ``wanted``, at least one of them among its first ``fresh``
    variables.
    """
    return [part for ref in group for part in _rectangles(ref, total, wanted, fresh)]


def _rectangles(ref: PairRef, total: BlockTotal, wanted: np.ndarray, fresh: int) -> Iterator[Rectangle]:
    rows, columns = (np.flatnonzero((wanted >= lo) & (wanted < hi)) for lo, hi in (ref.rows, ref.cols))
    kinds = [(rows[rows < fresh], columns)]
    if ref.rows != ref.cols:
        kinds.append((rows[rows >= fresh], columns[columns < fresh]))
    for left, right in kinds:
        if len(left) and len(right):
            yield Rectangle(left.astype(np.int32), right.astype(np.int32), total.part(ref, wanted[left], wanted[right]))


def sum_chunk(builds: tuple[SumBuild, ...], total: BlockTotal) -> list[Any]:
    """Write the weighted sums of some block pairs. Returns the list of stored objects."""
    tasks = [(build.task, build.pair) for build in builds if build.task is not None]
    return [open_gram(task.url, [task.bundle]).write(task, total.whole(pair)[None]) for task, pair in tasks]


class CombinedGram:
    """``K(theta)`` by passes over the block pairs of its upper triangle. Solvers request products, and entries between selected
    variables.
    """

    def __init__(self, resources: Resources, refs: Sequence[PairRef], total: BlockTotal, diagonal: np.ndarray) -> None:
        self._resources, self._refs = resources, list(refs)
        self._groups = group_pairs(self._refs)
        self._total = total.for_workers(resources, len(self._groups))
        self._diagonal = diagonal

    @property
    def n(self) -> int:
        return len(self._diagonal)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return np.dtype(np.float32)

    @property
    def parts(self) -> tuple[list[PairRef], BlockTotal]:
        """The block pairs of the upper triangle, and the object that combines the kernels of a block pair."""
        return self._refs, self._total

    @property
    def room(self) -> int:
        """Number of entries that a solver may hold."""
        return int(MATRIX_SHARE * self._resources.driver_memory) // 4

    def diag(self) -> np.ndarray:
        """Return the diagonal, float64 ``(n,)``."""
        return self._diagonal

    def rows(self, idx: np.ndarray) -> np.ndarray:
        """Return whole rows, ``(len(idx), n)``, by products with unit vectors. Intended for the few rows of a check."""
        return np.reshape([self.matvec(np.eye(1, self.n, int(i))[0]) for i in idx], (len(idx), self.n))

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return ``K v`` in one pass. Block pairs are added in fixed order."""

        return self._product_pass("gram-product", product_chunk, "vector", v)

    def matmat(self, V: np.ndarray) -> np.ndarray:
        """Return ``K V`` for a few vectors, ``(n, b)``, in one pass. Block pairs are added in fixed order."""
        return self._product_pass("gram-products", products_chunk, "vectors", np.ascontiguousarray(V))

    def _product_pass(self, name: str, chunk: Callable[..., np.ndarray], what: str, vectors: np.ndarray) -> np.ndarray:
        shared = self._resources.share(what, vectors, len(self._groups))
        return self._resources.run_pass(product_pass(name, chunk, self._groups, vectors.nbytes, self._total, shared))

    def between(self, new: np.ndarray, old: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``(row positions, column positions, values)`` for all pairs of variables of which at least one is in ``new``.

        Positions refer to the list of the variables ``new`` followed by ``old``. Passes read only the block pairs that contain such
        entries; each pass returns a bounded number of entries.
        """
        ids = np.concatenate([np.asarray(new, np.int64), np.asarray(old, np.int64)])
        for batch, limit, whole in self._batches(ids, len(new)):
            yield from self._resources.run_pass(entries_pass(batch, limit, whole, self._total, ids, len(new)))

    def _batches(self, wanted: np.ndarray, fresh: int) -> Iterator[tuple[list[Group], int, int]]:
        """Yield for each pass: its tasks, the largest size of a task's result in bytes, and the size of all results in bytes."""
        tasks: list[Group] = []
        task: list[PairRef] = []
        sizes, size = [], 0
        for ref, nbytes in zip(self._refs, _result_bytes(self._refs, wanted, fresh), strict=True):
            if not nbytes:
                continue
            if task and (size + nbytes > PART_BYTES or loaded_bytes([*task, ref]) > TASK_BYTES):
                tasks, task, sizes, size = [*tasks, tuple(task)], [], [*sizes, size], 0
                if sum(sizes) >= BATCH_BYTES:
                    yield tasks, max(sizes), sum(sizes)
                    tasks, sizes = [], []
            task.append(ref)
            size += nbytes
        if task:
            yield [*tasks, tuple(task)], max([*sizes, size]), sum(sizes) + size


def product_pass(name: str, chunk: Callable[..., np.ndarray], groups: Sequence[Group], nbytes: int, *broadcast: Any) -> Plan[np.ndarray]:
    """Return the pass of products; ``nbytes`` is the size of the vectors."""

    def task_bytes(group: Group) -> int:
        return max(map(pair_bytes, group)) + 3 * nbytes

    return plan(BlockProgram(name, chunk, add_parts, task_bytes, nbytes), groups, *broadcast)


def entries_pass(groups: Sequence[Group], limit: int, whole: int, *broadcast: Any) -> Plan[list[Rectangle]]:
    """Return the pass that returns selected entries: at most ``limit`` bytes per task, ``whole`` bytes in total."""

    def task_bytes(group: Group) -> int:
        # What other tasks of the pass found may lie on the same worker.
        return max(map(pair_bytes, group)) + 2 * limit + whole

    return plan(BlockProgram("gram-entries", between_chunk, join_lists, task_bytes, limit, combine_bytes=3 * whole), groups, *broadcast)


def sum_pass(builds: Sequence[tuple[SumBuild, ...]], *broadcast: Any) -> Plan[list[Any]]:
    def task_bytes(group: tuple[SumBuild, ...]) -> int:
        return max(pair_bytes(build.pair) + 4 * build.written_bytes for build in group)

    return plan(BlockProgram("gram-sum", sum_chunk, join_lists, task_bytes, 512 * max(map(len, builds))), builds, *broadcast)


def entries_at_most(n: int, block: int, driver_memory: int, repeats: int = 1) -> tuple[int, int]:
    """Return upper bounds on the bytes of entries that a task and a pass return to a solver, for a driver with ``driver_memory`` bytes.

    The solver may request each of the n rows ``repeats`` times.
    """
    blocks, side = -(-n // block), repeats * min(block, n)
    room = max(int(MATRIX_SHARE * driver_memory), 4 * MIN_WORKING_SET**2)
    every = room + 8 * repeats * n * (blocks + 1) + 256 * blocks * (blocks + 1)
    limit = min(max(PART_BYTES, 4 * side**2 + 16 * side + 512), every)
    return limit, min(BATCH_BYTES + limit, every)


def written_pairs(refs: Sequence[PairRef]) -> list[PairRef]:
    """Return placeholders for the block pairs of a sum before it is written: sizes without entries, for planning only."""
    return [GivenPair(ref.rows, ref.cols, (0,), np.zeros((1, 0, 0))) for ref in refs]


def written_bytes(refs: Sequence[PairRef], vectors: int) -> int:
    """Return the memory in bytes of the largest step that writes a sum, or multiplies it by vectors that take ``vectors`` bytes."""
    writing = sum_pass(group_pairs([SumBuild(None, ref) for ref in refs]))
    return max(writing.memory_bound, product_pass("planned", product_chunk, group_pairs(written_pairs(refs)), vectors).memory_bound)


def solver_bytes(refs: Sequence[PairRef], n: int, block: int, driver_memory: int, repeats: int = 1) -> int:
    """Return the memory in bytes of the largest step that writes a sum, or computes products and entries for a solver."""
    entries = entries_pass(group_pairs(written_pairs(refs)), *entries_at_most(n, block, driver_memory, repeats))
    return max(written_bytes(refs, 8 * n), entries.memory_bound)


def _result_bytes(refs: Sequence[PairRef], wanted: np.ndarray, fresh: int) -> list[int]:
    """Return, for every block pair, the size in bytes of the entries that a task returns from it."""
    new, every = np.sort(wanted[:fresh]), np.sort(wanted)

    def inside(ids: np.ndarray, span: tuple[int, int]) -> int:
        lo, hi = np.searchsorted(ids, span)
        return int(hi - lo)

    sizes = []
    for ref in refs:
        rows, columns, new_rows, new_columns = (inside(ids, span) for ids in (every, new) for span in (ref.rows, ref.cols))
        entries = new_rows * columns + (0 if ref.rows == ref.cols else (rows - new_rows) * new_columns)
        sizes.append(4 * entries + (8 * (rows + columns) + 512 if entries else 0))
    return sizes


def gram_by_passes(
    data: DataSet, resources: Resources, refs: Sequence[PairRef], total: BlockTotal, diagonal: np.ndarray, block: int
) -> CombinedGram:
    """Return the combination ``total`` of the kernels of block pairs, computed by passes.

    If there is a run directory, the combination is first written to it, unless the combination is a multiple of one stored kernel.
    ``diagonal``, ``(n,)``, is the diagonal of the combination.
    """
    # Weights that are all zero still need a block's shape.
    kernels = total.used or [0]
    refs, total = [ref.select(kernels) for ref in refs], total.of(kernels)
    if resources.scratch is None or _is_stored(refs, total):
        return CombinedGram(resources, refs, total, diagonal)
    return CombinedGram(resources, _write_sum(data, resources, resources.scratch, refs, total, block), BlockSum(None, np.ones(1)), diagonal)


def _is_stored(refs: Sequence[PairRef], total: BlockTotal) -> bool:
    """Return whether the sum is a multiple of one kernel of a Gram store."""
    plain = isinstance(total, BlockSum) and total.norms is None and not total.exponential and len(total.theta) == 1
    return plain and all(isinstance(ref, StoredPair) for ref in refs)


def _write_sum(
    data: DataSet, resources: Resources, run: RunStore, refs: Sequence[PairRef], total: BlockTotal, block: int
) -> list[StoredPair]:
    key = _key(refs[0], total)
    path = run.scratch / f"sum-{key[:32]}"
    for other in path.parent.glob("sum-*"):
        if other != path:
            shutil.rmtree(other)
    store = GramStore.create(path, data_digest=data.digest, n=data.n_rows, kernels=[(key, {"name": "sum"})], block=block)
    missing = store.missing([key])
    if missing:
        pairs = {(ref.rows, ref.cols): ref for ref in refs}
        builds = group_pairs([SumBuild(task, pairs[task.rows, task.cols]) for task in missing])
        with store.lock():
            store.commit(resources.run_pass(sum_pass(builds, total.for_workers(resources, len(builds)))))
    resources.emit({"event": "phase", "phase": "weighted sum of Gram matrices", "blocks_computed": len(missing)})
    return [StoredPair(ref, (0,)) for ref in store.refs([key])]


def _key(first: PairRef, total: BlockTotal) -> str:
    """Return a key that identifies the sum."""
    state = hashlib.sha256(repr(first).encode())
    for part in total.parts():
        state.update(part)
    for norm in total.norms or ():
        state.update(repr((norm.scale, norm.mean)).encode())
        for table in (norm.row_mean, norm.diag_root):
            state.update(b"-" if table is None else table.tobytes())
    return state.hexdigest()

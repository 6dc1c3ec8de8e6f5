"""The pass over strips of points: rows of the kernel, bases, and what the points add to the terms of the weights.

A task takes consecutive points. It assembles their rows of the weighted sum from the block pairs that hold them, chooses bases with
the rows of the data that it reads from the store, and returns the bases and its share of the terms: ``4 c B + 8 (k^2 + k)`` bytes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.blocks import gram_block
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ....kernels.weights.umkl import BasisArray, WeightTerms
from ....kernels.weights.umkl_strips import BaseProducts, base_places, greedy_strip, point_costs, point_terms
from ....storage import BlockStore, MemoryBlocks, open_shared
from ...grams.grams import load_programs as load_gram_programs
from ...grams.sources import FREED_BYTES, READ, TILE, PairRef, apply_norms, pair_bytes, rows_of
from ...grams.weighted_sum import BlockSum
from ...passes.blocks import constant_features, scale_as_given, scale_of
from ...passes.columns import entry_count
from ...records.context import RunContext, Shared, resolve

STRIP_BYTES = 48 << 20  # rows of the kernel and costs of the points of a task
BASE_BYTES = 8 << 20  # rows of their bases
ENTRY_BYTES = 12  # of an entry of the kernel and its cost
HELD_BYTES = 64 << 20  # rows of the data that a task holds; of more it reads each block whenever it needs it


@dataclass(frozen=True)
class Points:
    """Consecutive points of a data set, by name."""

    url: str
    digest: str
    rows: tuple[int, int]
    size: tuple[int, int]  # rows and columns of the data
    entries: int  # values of the data
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that are read, in float64 with the places of sparse ones, at most."""
        return 12 * self.entries

    @property
    def ids(self) -> np.ndarray:
        """Numbers of the points."""
        return np.arange(*self.rows)

    @property
    def data(self) -> BlockStore | MemoryBlocks:
        """The data set."""
        return self.source or open_shared(self.url, self.digest)


@dataclass(frozen=True)
class Strip(Points):
    """Consecutive points with the block pairs that hold their rows of the kernels, by column."""

    pairs: tuple[PairRef, ...] = field(default=(), repr=False)

    def gram(self, total: BlockSum) -> np.ndarray:
        """Return their rows of a weighted sum, ``(c, n)``."""
        out, ids, first = np.empty((len(self.ids), self.size[0]), np.float32), self.ids, self.rows[0]
        for pair in self.pairs:
            if pair.rows[0] <= first < pair.rows[1]:
                out[:, slice(*pair.cols)] = total.part(pair, ids, np.arange(*pair.cols))
            else:
                out[:, slice(*pair.rows)] = total.part(pair, np.arange(*pair.rows), ids).T
        return out


class PassRows:
    """The rows of a data set as a task reads them, float64: held while they are few, else read block by block every time."""

    def __init__(self, points: Points, scale: Any) -> None:
        self._data, self._scale, self._n = points.data, scale, points.size[0]
        self._held = list(self._read()) if points.nbytes <= HELD_BYTES else None

    def blocks(self) -> Iterator[tuple[int, Any]]:
        """Yield consecutive blocks of rows with the number of their first row."""
        return iter(self._held) if self._held is not None else self._read()

    def take(self, ids: np.ndarray) -> Any:
        """Return rows by their numbers, in that order."""
        order = np.argsort(ids, kind="stable")
        ends, parts = np.searchsorted(ids[order], np.arange(0, self._n + READ, READ)), []
        for number, (lo, block) in enumerate(self.blocks()):
            chosen = ids[order[ends[number] : ends[number + 1]]] - lo
            if len(chosen):
                parts.append(block[chosen])
        back = np.argsort(order, kind="stable")
        return (sp.csr_array(sp.vstack(parts)) if sp.issparse(parts[0]) else np.concatenate(parts))[back]

    def _read(self) -> Iterator[tuple[int, Any]]:
        for lo in range(0, self._n, READ):
            yield lo, rows_of(self._data, lo, min(lo + READ, self._n), self._scale).astype(np.float64)


@dataclass(frozen=True)
class BaseKernels:
    """The kernels of a fit between points and their bases, computed from the rows."""

    specs: tuple[AnyKernel, ...]
    norms: tuple[Normalization, ...] | None
    scale: np.ndarray  # `(k,)` multipliers of the loaded kernels

    def entries(self, points: Any, bases: Any, ids: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
        """Return the entries of every kernel, float64 ``(k, c, B)``, ``step`` points at a time; ``points`` and ``bases`` are the rows of
        ``ids`` ``(c,)`` and ``at`` ``(c, B)``.
        """
        size, parts = at.shape[1], []
        for lo in range(0, len(ids), step):
            some = slice(lo, lo + step)
            left, right = points[some], bases[lo * size : (lo + step) * size]
            block = apply_norms(gram_block(self.specs, left, right, dtype=np.float32), self.norms, ids[some], at[some].ravel())
            places = base_places(left.shape[0], right.shape[0])
            parts.append(block[:, np.arange(len(places))[:, None], places])
        return np.concatenate(parts, axis=1) * self.scale[:, None, None]


@dataclass(frozen=True)
class Rebuilding:
    """What a task is asked for beside its points."""

    kernels: BaseKernels
    n_bases: int
    gamma1: float
    gamma2: float
    stop: Literal["size", "gain"]

    @property
    def step(self) -> int:
        """Points whose bases are rows of one tile of kernels."""
        return max(1, TILE // self.n_bases)


class Chosen(NamedTuple):
    """The bases of consecutive points by their first one, how many kept the old ones, and what they add to the terms of the weights."""

    bases: list[tuple[int, BasisArray]]
    n_kept: int
    terms: WeightTerms


def choose_chunk(strip: Strip, total: BlockSum, asked: Rebuilding, before: Shared | None) -> Chosen:
    """Return the bases of some points under a weighted sum; with the bases ``before`` those of a point that are at least as good stay."""
    rows, gram, n_kept = PassRows(strip, scale_as_given), strip.gram(total), 0
    bases = greedy_strip(gram, strip.rows[0], rows, asked.n_bases, asked.gamma1, asked.gamma2, stop=asked.stop)
    if before is not None:
        old = resolve(before)[slice(*strip.rows)]
        costs, old_costs = (_costs(strip, gram, rows, some, asked) for some in (bases, old))
        better = old_costs <= costs
        bases, n_kept = np.where(better[:, None], old, bases), int(better.sum())
    return Chosen([(strip.rows[0], bases)], n_kept, _terms(strip, rows, bases, asked))


def terms_chunk(points: Points, asked: Rebuilding, bases: Shared) -> Chosen:
    """Return what some points with given bases add to the terms of the weights."""
    rows, own = PassRows(points, scale_as_given), resolve(bases)[slice(*points.rows)]
    return Chosen([(points.rows[0], own)], 0, _terms(points, rows, own, asked))


def _costs(strip: Strip, gram: np.ndarray, rows: PassRows, bases: BasisArray, asked: Rebuilding) -> np.ndarray:
    at = np.maximum(bases, 0)
    products = BaseProducts.of(rows.take(strip.ids), rows.take(at.ravel()), asked.step)
    entries = np.take_along_axis(gram, at, axis=1).astype(np.float64)
    return point_costs(entries, bases, products, asked.gamma1, asked.gamma2)


def _terms(points: Points, rows: PassRows, bases: BasisArray, asked: Rebuilding) -> WeightTerms:
    at = np.maximum(bases, 0)
    own, others = rows.take(points.ids), rows.take(at.ravel())
    products = BaseProducts.of(own, others, asked.step)
    if len(constant_features(points.data)):
        # Kernels read constant columns as zeros; what is rebuilt has them.
        as_kernels = PassRows(points, scale_of)
        own, others = as_kernels.take(points.ids), as_kernels.take(at.ravel())
    entries = asked.kernels.entries(own, others, points.ids, at, asked.step)
    return point_terms(entries, bases, products, asked.gamma1, asked.gamma2)


def join_chosen(parts: Sequence[Chosen]) -> Chosen:
    """Combine step: bases side by side, terms added in order."""
    bases = [item for part in parts for item in part.bases]
    return Chosen(bases, sum(part.n_kept for part in parts), reduce(operator.add, (part.terms for part in parts)))


def points_of(data: BlockStore | MemoryBlocks, n_bases: int, block: int) -> list[Points]:
    """Return all points in spans that end where blocks of Gram matrices do, from sizes alone; the rows of their bases fit a task, too."""
    n, d, is_stored = data.n_rows, data.n_cols, isinstance(data, BlockStore)
    count = max(1, min(block, STRIP_BYTES // (ENTRY_BYTES * n), BASE_BYTES // (8 * d * (n_bases + 1))))
    digest, source = (data.digest, None) if is_stored else ("", data)
    blocks = [(lo, min(lo + block, n)) for lo in range(0, n, block)]
    spans = [(lo, min(lo + count, end)) for first, end in blocks for lo in range(first, end, count)]
    return [Points(data.url, digest, span, (n, d), entry_count(data), source) for span in spans]


def strips_of(points: Sequence[Points], pairs: Sequence[PairRef]) -> list[Strip]:
    """Return points with the block pairs that hold them, among those of the upper triangle."""
    first = {pair.rows[0]: None for pair in pairs}
    starts = np.array(sorted(first))
    at = {(pair.rows[0], pair.cols[0]): pair for pair in pairs}
    columns = {int(own): tuple(at[min(own, other), max(own, other)] for other in starts.tolist()) for own in starts.tolist()}
    blocks = [int(starts[np.searchsorted(starts, one.rows[0], side="right") - 1]) for one in points]
    fields = [(one.url, one.digest, one.rows, one.size, one.entries, one.source) for one in points]
    return [Strip(*values, columns[block]) for values, block in zip(fields, blocks, strict=True)]


def choose_pass(strips: Sequence[Strip], total: BlockSum | None, asked: Rebuilding, before: Shared | None = None) -> Plan[Chosen]:
    """Return the pass that chooses the bases of all points under a weighted sum; without one it can be planned, not run."""
    return plan(_program("bases", choose_chunk, strips, asked), strips, total, asked, before)


def terms_pass(points: Sequence[Points], asked: Rebuilding, bases: Shared) -> Plan[Chosen]:
    """Return the pass over all points with given bases."""
    return plan(_program("base-terms", terms_chunk, points, asked), points, asked, bases)


def _program(name: str, chunk: Callable[..., Chosen], points: Sequence[Points], asked: Rebuilding) -> BlockProgram[Chosen]:
    k, n = len(asked.kernels.specs), points[0].size[0]
    terms, most = 8 * (k * k + k + 1) + 512, max(len(one.ids) for one in points)
    whole = 4 * n * asked.n_bases + 512 * len(points)
    result = 4 * most * asked.n_bases + terms
    return BlockProgram(name, chunk, join_chosen, StripMemory(asked), result, combine_bytes=2 * whole + 10 * terms)


@dataclass(frozen=True)
class StripMemory:
    """Bound of the memory of a task: rows of the kernel and costs of its points, rows of the data and products with a block of them, rows
    and kernels of the bases, and the largest block pair on its way.
    """

    asked: Rebuilding

    def __call__(self, points: Points) -> int:
        """Return the bytes."""
        n, d = points.size
        c, size, k = len(points.ids), self.asked.n_bases, len(self.asked.kernels.specs)
        read = 12 * points.entries * min(1.0, READ / n)
        held = points.nbytes if points.nbytes <= HELD_BYTES else read
        tile = (self.asked.step * (size + 1)) ** 2
        local = 8 * c * (4 * d * (size + 1) + 2 * size**2 + 4 * k * size) + (8 * k + 24) * tile
        pair = max(map(pair_bytes, points.pairs)) if isinstance(points, Strip) else FREED_BYTES
        return int(ENTRY_BYTES * c * n + 24 * c * min(READ, n) + 2 * held + 3 * read + local + pair)


def run_bases(ctx: RunContext, work: Plan[Chosen]) -> Chosen:
    """Run one of these passes; returns the bases of all points as one array."""
    result = ctx.run_pass(work)
    bases = np.concatenate([part for _, part in sorted(result.bases, key=operator.itemgetter(0))])
    return result._replace(bases=[(0, bases)])


def load_programs() -> None:
    """Load the compiled loops of the passes into this process, by running each on next to nothing."""
    load_gram_programs()
    greedy_strip(np.ones((2, 4), np.float32), 0, _Few(), 2, 0.0, 0.0)


class _Few:
    def blocks(self) -> Iterator[tuple[int, Any]]:
        yield 0, np.eye(4)

    def take(self, ids: np.ndarray) -> Any:
        return np.eye(4)[ids]

"""The pass over strips of points: it chooses their bases and computes the quadratic program for the kernel weights.

A task processes c consecutive points. It computes their rows of the weighted sum of kernels, or reads these rows if kernels are stored. It
then chooses bases, for which it reads the rows of the data from the store. It returns the bases and the contribution of its
points to the terms W and u of the program ``1/2 mu'W mu + u'mu``, which takes ``4 c B + 8 (k^2 + k)`` bytes in all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal, NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.bank.products import combine_kernels
from ....kernels.grams.blocks import gram_block
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ....kernels.weights.umkl import BasisArray, WeightTerms
from ....kernels.weights.umkl_strips import BaseProducts, RowBlock, base_places, greedy_strip, point_costs, point_terms
from ...core.resources import Resources, Shared, resolve
from ...grams.pair_passes import load_programs as load_gram_programs
from ...grams.sources import FREED_BYTES, READ, TILE, apply_norms, pair_bytes
from ...grams.weighted_sum import BlockTotal
from ...passes.blocks import constant_features, scale_as_given, scale_of
from .rows_pass import COLUMNS, ENTRY_BYTES, HELD_BYTES, PassRows, Points, Strip, rows_of_sets


@dataclass(frozen=True)
class BaseKernels:
    """The kernels of a fit between points and their bases, computed from the rows."""

    specs: tuple[AnyKernel, ...]
    norms: tuple[Normalization, ...] | None
    scale: np.ndarray  # `(k,)` multipliers of the loaded kernels

    def entries(self, points: RowBlock, bases: RowBlock, ids: np.ndarray, at: np.ndarray, step: int) -> np.ndarray:
        """Return the entries of every kernel between points and their bases, float64 ``(k, c, B)``, computed for ``step`` points at a time.

        ``ids`` ``(c,)`` and ``at`` ``(c, B)`` are the numbers of the points and of their bases; ``points`` and ``bases`` are their rows.
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
class KernelSum:
    """A weighted sum of kernels, evaluated in strips (some points with all points) and within sets of points."""

    kernels: BaseKernels
    theta: np.ndarray  # `(k,)` weights of the kernels
    stored: BlockTotal | None = None  # what is made of the block pairs of strips; without it entries are computed from the rows

    def strip(self, points: Points) -> np.ndarray:
        """Return the entries of the given points with all points, float32 ``(c, n)``."""
        if self.stored is not None:
            assert isinstance(points, Strip)
            return points.gram(self.stored)
        rows, out = PassRows(points, scale_of), np.empty((len(points.ids), points.size[0]), np.float32)
        own = rows.take(points.ids)
        for lo, part in rows.blocks():
            ids = np.arange(lo, lo + part.shape[0])
            out[:, lo : lo + len(ids)] = self._combined(gram_block(self.kernels.specs, own, part, dtype=np.float32), points.ids, ids)
        return out

    def squares(self, points: Points, sets: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the entries within each set of points, float64."""
        blocks = (gram_block(self.kernels.specs, part, dtype=np.float32) for part in rows_of_sets(PassRows(points, scale_of), sets))
        return [self._combined(block, ids, ids).astype(np.float64) for block, ids in zip(blocks, sets, strict=True)]

    def _combined(self, block: np.ndarray, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        return combine_kernels(apply_norms(block, self.kernels.norms, rows, cols), self.theta * self.kernels.scale)


@dataclass(frozen=True)
class Rebuilding:
    """Parameters of the reconstruction that a task receives apart from its points."""

    kernels: BaseKernels
    n_bases: int
    gamma1: float
    gamma2: float
    stop: Literal["size", "gain"]

    @property
    def step(self) -> int:
        """Number of points that are processed at a time: their bases fill one tile of a kernel."""
        return max(1, TILE // self.n_bases)


class Chosen(NamedTuple):
    """Result for consecutive points.

    * ``bases``: the bases, each array with the number of its first point.
    * ``n_kept``: the number of points that kept their bases.
    * ``terms``: the contributions of the points to W and u.
    """

    bases: list[tuple[int, BasisArray]]
    n_kept: int
    terms: WeightTerms


def choose_chunk(points: Points, total: KernelSum, asked: Rebuilding, before: Shared | None) -> Chosen:
    """Return the bases of some points under a weighted sum. If ``before`` is given, it contains earlier bases; a point keeps them unless
    the new bases are better.
    """
    rows, gram, n_kept = PassRows(points, scale_as_given), total.strip(points), 0
    bases = greedy_strip(gram, points.rows[0], rows, asked.n_bases, asked.gamma1, asked.gamma2, stop=asked.stop)
    if before is not None:
        old = resolve(before)[slice(*points.rows)]
        costs, old_costs = (_costs(points, gram, rows, some, asked) for some in (bases, old))
        better = old_costs <= costs
        bases, n_kept = np.where(better[:, None], old, bases), int(better.sum())
    return Chosen([(points.rows[0], bases)], n_kept, _terms(points, rows, bases, asked))


def terms_chunk(points: Points, asked: Rebuilding, bases: Shared) -> Chosen:
    """Return the contributions of points with given bases to W and u."""
    rows, own = PassRows(points, scale_as_given), resolve(bases)[slice(*points.rows)]
    return Chosen([(points.rows[0], own)], 0, _terms(points, rows, own, asked))


def _costs(points: Points, gram: np.ndarray, rows: PassRows, bases: BasisArray, asked: Rebuilding) -> np.ndarray:
    at = np.maximum(bases, 0)
    products = BaseProducts.of(rows.take(points.ids), rows.take(at.ravel()), asked.step)
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
    """Combine results: bases are concatenated, and terms added in order."""
    bases = [item for part in parts for item in part.bases]
    return Chosen(bases, sum(part.n_kept for part in parts), reduce(operator.add, (part.terms for part in parts)))


def choose_pass(points: Sequence[Points], total: KernelSum, asked: Rebuilding, before: Shared | None = None) -> Plan[Chosen]:
    """Return the pass that chooses the bases of all points under a weighted sum."""
    return plan(_program("bases", choose_chunk, points, asked), points, total, asked, before)


def terms_pass(points: Sequence[Points], asked: Rebuilding, bases: Shared) -> Plan[Chosen]:
    """Return the pass that computes W and u for given bases of all points."""
    return plan(_program("base-terms", terms_chunk, points, asked), points, asked, bases)


def _program(name: str, chunk: Callable[..., Chosen], points: Sequence[Points], asked: Rebuilding) -> BlockProgram[Chosen]:
    k, n = len(asked.kernels.specs), points[0].size[0]
    terms, most = 8 * (k * k + k + 1) + 512, max(len(one.ids) for one in points)
    whole = 4 * n * asked.n_bases + 512 * len(points)
    result = 4 * most * asked.n_bases + terms
    return BlockProgram(name, chunk, join_chosen, StripMemory(asked), result, combine_bytes=2 * whole + 10 * terms)


@dataclass(frozen=True)
class StripMemory:
    """Memory bound of a task in bytes:

    * rows of the kernel, and costs, of the task's points;
    * rows of the data, and products with a block of these rows;
    * rows and kernels of the bases;
    * the largest block pair in transit.
    """

    asked: Rebuilding

    def __call__(self, points: Points) -> int:
        n, d = points.size
        c, size, k = len(points.ids), self.asked.n_bases, len(self.asked.kernels.specs)
        read = 12 * points.entries * min(1.0, READ / n)
        held = points.nbytes if points.nbytes <= HELD_BYTES else read
        tile = (self.asked.step * (size + 1)) ** 2
        local = 8 * c * (4 * d * (size + 1) + 2 * size**2 + 4 * k * size) + (8 * k + 24) * tile
        pair = max(map(pair_bytes, points.pairs)) if isinstance(points, Strip) else FREED_BYTES + 16 * k * c * min(COLUMNS, n)
        return int(ENTRY_BYTES * c * n + 24 * c * min(COLUMNS, n) + 2 * held + 3 * read + local + pair)


def run_bases(resources: Resources, work: Plan[Chosen]) -> Chosen:
    """Run a pass of this module and return the bases of all points as one array."""
    result = resources.run_pass(work)
    bases = np.concatenate([part for _, part in sorted(result.bases, key=operator.itemgetter(0))])
    return result._replace(bases=[(0, bases)])


def load_programs() -> None:
    """Load the compiled loops of the passes into this process, by running each on tiny data."""
    load_gram_programs()
    greedy_strip(np.ones((2, 4), np.float32), 0, _Few(), 2, 0.0, 0.0)


class _Few:
    def blocks(self) -> Iterator[tuple[int, RowBlock]]:
        yield 0, np.eye(4)

    def take(self, ids: np.ndarray) -> RowBlock:
        return np.eye(4)[ids]

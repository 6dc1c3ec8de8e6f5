"""Sparse codes of all points by passes: residuals over strips of points, and codes over a few candidates of each point.

The inner products are those of the rows, or of a weighted sum of kernels. This process holds the candidates and coefficients, at most
MAX_CANDIDATES per point. Beyond this limit, a code uses the candidates found first; only the largest coefficients of a code are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.weights.umkl import PENALTY_SHARE, BasisArray
from ....kernels.weights.umkl_strips import Largest, bases_of_codes, largest_residuals, merge_largest, row_products, solve_code
from ...core.resources import Resources, Shared, resolve
from ...grams.sources import FREED_BYTES, READ, TILE, pair_bytes
from ...passes.blocks import join_lists, scale_as_given
from .rows_pass import COLUMNS, HELD_BYTES, PassRows, Points, Strip, rows_of_sets
from .strips_pass import KernelSum

MAX_CANDIDATES = TILE - 1  # with the point itself one tile of kernels
MIN_FRESH = 16  # candidates that may join at a time, or as many as there are bases
CODE_TOL = 1e-4  # residuals may exceed the penalty by this share of it
GROUP = 8  # points whose candidates are read together


@dataclass(frozen=True)
class RowInner:
    """Inner products of the rows, with constant columns treated like any other."""

    def strip(self, points: Points) -> np.ndarray:
        """Return the inner products of the given points with all points, ``(c, n)``."""
        rows = PassRows(points, scale_as_given)
        own, out = rows.take(points.ids), np.empty((len(points.ids), points.size[0]))
        for lo, block in rows.blocks():
            out[:, lo : lo + block.shape[0]] = row_products(own, block)
        return out

    def squares(self, points: Points, sets: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the inner products within each set of points."""
        return [row_products(part, part) for part in rows_of_sets(PassRows(points, scale_as_given), sets)]


Products = RowInner | KernelSum  # inner products of some points with all, and within sets of points


@dataclass(frozen=True)
class Codes:
    """Candidates of every point and their coefficients, as the arrays of a CSR matrix with explicit zeros."""

    indptr: np.ndarray
    ids: np.ndarray
    values: np.ndarray

    @classmethod
    def none(cls, n: int) -> Codes:
        """Return codes without candidates."""
        return cls(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))

    @property
    def matrix(self) -> sp.csr_array:
        """The codes, ``(n, n)``."""
        n = len(self.indptr) - 1
        return sp.csr_array((self.values, self.ids, self.indptr), shape=(n, n))

    def joined(self, rows: np.ndarray, fresh: np.ndarray) -> Codes:
        """Return the codes with the candidates ``fresh`` added to the points ``rows``; the added candidates have coefficient zero."""
        n = len(self.indptr) - 1
        counts = np.diff(self.indptr)
        own = np.concatenate([np.repeat(np.arange(n), counts), rows])
        ids, values = np.concatenate([self.ids, fresh.astype(np.int32)]), np.concatenate([self.values, np.zeros(len(fresh))])
        order = np.lexsort((ids, own))
        return Codes(np.concatenate([[0], np.cumsum(np.bincount(own, minlength=n))]), ids[order], values[order])


def residuals_chunk(strip: Points, inner: Products, count: int, *codes: Shared) -> Largest:
    """Return, for every point, the points of a strip that are most correlated with its residual."""
    return largest_residuals(inner.strip(strip), strip.rows[0], Codes(*map(resolve, codes)).matrix, count)


def codes_chunk(points: Points, inner: Products, penalties: Shared, indptr: Shared, ids: Shared) -> list[tuple[int, np.ndarray]]:
    """Return the codes of some points over their candidates, point by point."""
    bounds, candidates, weights, parts = resolve(indptr), resolve(ids), resolve(penalties), []
    for lo in range(points.rows[0], points.rows[1], GROUP):
        some = range(lo, min(lo + GROUP, points.rows[1]))
        sets = [np.concatenate([[i], candidates[bounds[i] : bounds[i + 1]]]).astype(np.int64) for i in some]
        parts += [solve_code(square, weights[i]) for i, square in zip(some, inner.squares(points, sets), strict=True)]
    return [(points.rows[0], np.concatenate(parts))]


@dataclass(frozen=True)
class MergeLargest:
    """Combines the results of tasks: keeps, for every point, the points that are most correlated with its residual."""

    count: int

    def __call__(self, parts: Sequence[Largest]) -> Largest:
        """Return, for every point, the points of all parts that are most correlated with its residual."""
        return merge_largest(parts, self.count)


def fresh_candidates(n_bases: int) -> int:
    """Return the number of candidates that one round may add to a point."""
    return max(MIN_FRESH, n_bases)


@dataclass(frozen=True)
class CodesMemory:
    """Memory bound of a task in bytes: two float64 copies of the inner products of its points with all points, residuals, candidates, and
    the kernels of the candidates.
    """

    k: int
    n_bases: int

    def __call__(self, points: Points) -> int:
        (n, d), c = points.size, len(points.ids)
        held = points.nbytes if points.nbytes <= HELD_BYTES else 12 * points.entries * min(1.0, READ / n)
        local = GROUP * TILE * 24 * d + GROUP * TILE**2 * (4 * self.k + 16)
        largest = 16 * n * fresh_candidates(self.n_bases)
        pair = max(map(pair_bytes, points.pairs)) if isinstance(points, Strip) else FREED_BYTES + 16 * self.k * c * min(COLUMNS, n)
        return int(20 * c * n + 40 * c * min(COLUMNS, n) + 4 * held + local + 4 * largest + 12 * MAX_CANDIDATES * n + pair)


def coded_by_passes(
    resources: Resources, strips: Sequence[Points], inner: Products, k: int, n_bases: int, penalty: float, stop: str
) -> BasisArray:
    """Return the bases of all points by sparse codes, ``(n, B)``, as :func:`umkl.coded_bases` does.

    ``k`` is the number of kernels in the inner products. If ``penalty`` is 0, the penalty of a point is PENALTY_SHARE times the largest
    inner product of the point with another point.
    """
    n, count, memory = strips[0].size[0], min(fresh_candidates(n_bases), strips[0].size[0] - 1), CodesMemory(k, n_bases)
    codes = Codes.none(n)
    left = _residuals(resources, strips, inner, codes, count, memory)
    penalties = np.full(n, penalty) if penalty > 0.0 else PENALTY_SHARE * left.values[:, 0]
    while True:
        rows, fresh = _violators(codes, left, penalties)
        if not len(rows):
            return bases_of_codes(codes.matrix, left, n_bases, stop=stop)
        codes = solve_codes(resources, strips, inner, codes.joined(rows, fresh), penalties, memory)
        left = _residuals(resources, strips, inner, codes, count, memory)


def _violators(codes: Codes, left: Largest, penalties: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of a point and a new candidate for it, as two arrays, up to MAX_CANDIDATES candidates per point."""
    n, counts = len(penalties), np.diff(codes.indptr)
    rows, places = np.nonzero((left.ids >= 0) & (left.values > (1.0 + CODE_TOL) * penalties[:, None]))
    fresh = left.ids[rows, places].astype(np.int64)
    known = np.repeat(np.arange(n), counts) * n + codes.ids
    chosen = ~np.isin(rows * n + fresh, known) & (counts[rows] + places < MAX_CANDIDATES)
    return rows[chosen], fresh[chosen]


def residuals_pass(strips: Sequence[Points], memory: CodesMemory, count: int, *broadcast: object) -> Plan[Largest]:
    """Return the pass that computes the largest residuals of all points."""
    result = 12 * strips[0].size[0] * fresh_candidates(memory.n_bases) + 512
    program = BlockProgram("code-residuals", residuals_chunk, MergeLargest(count), memory, result, combine_bytes=40 * result)
    return plan(program, strips, *broadcast)


def codes_pass(strips: Sequence[Points], memory: CodesMemory, *broadcast: object) -> Plan[list[tuple[int, np.ndarray]]]:
    """Return the pass that computes the codes of all points."""
    result = 8 * MAX_CANDIDATES * max(len(strip.ids) for strip in strips) + 512
    program = BlockProgram("sparse-codes", codes_chunk, join_lists, memory, result, combine_bytes=2 * result * len(strips))
    return plan(program, strips, *broadcast)


def _residuals(resources: Resources, strips: Sequence[Points], inner: Products, codes: Codes, count: int, memory: CodesMemory) -> Largest:
    arrays = (("ends", codes.indptr), ("candidates", codes.ids), ("codes", codes.values))
    shared = (resources.share(name, array, len(strips)) for name, array in arrays)
    return resources.run_pass(residuals_pass(strips, memory, count, inner, count, *shared))


def solve_codes(
    resources: Resources, strips: Sequence[Points], inner: Products, codes: Codes, penalties: np.ndarray, memory: CodesMemory
) -> Codes:
    """Return the codes of all points over their candidates."""
    arrays = (("penalties", penalties), ("ends", codes.indptr), ("candidates", codes.ids))
    shared = (resources.share(name, array, len(strips)) for name, array in arrays)
    parts = resources.run_pass(codes_pass(strips, memory, inner, *shared))
    return Codes(codes.indptr, codes.ids, np.concatenate([values for _, values in sorted(parts, key=lambda part: part[0])]))

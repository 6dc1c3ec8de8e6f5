"""Gram matrices of a fit that exceeds the memory of this process: sums of the kernels in use, and the largest entries of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.normalization import KernelSums, Normalization, block_sums, needs_diagonal_only
from ....kernels.grams.products import AnyKernel
from ...core.resources import Resources
from ...grams.given import StoredPair
from ...grams.grams import Grams
from ...grams.sources import PairRef, RowPair, group_pairs, load_normalised, loaded, pair_bytes, row_pairs
from ...grams.weighted_sum import BlockSum, CombinedGram
from ...passes.blocks import Blocks, add_parts
from .rows_pass import Points, strips_of
from .strips_pass import BaseKernels, KernelSum


def sums_chunk(group: tuple[PairRef, ...], n: int) -> np.ndarray:
    """Return the contributions of block pairs to row sums and diagonals of the raw kernels, ``(2, k, n)``."""
    parts = [block_sums(loaded(ref), ref.rows, ref.cols) for ref in group]
    out = np.zeros((2, len(parts[0].row_sums), n))
    for part in parts:
        out[0, :, slice(*part.rows)] += part.row_sums
        if part.column_sums is not None:
            out[0, :, slice(*part.columns)] += part.column_sums
        if part.diagonal is not None:
            out[1, :, slice(*part.rows)] = part.diagonal
    return out


def sums_pass(refs: Sequence[PairRef], k: int, n: int) -> Plan[np.ndarray]:
    """Return the pass that computes row sums and diagonals of k kernels of n rows."""
    result = 16 * k * n

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 2 * result

    return plan(BlockProgram("kernel-sums", sums_chunk, add_parts, task_bytes, result), group_pairs(refs), n)


class PassGrams(Grams):
    """The kernel matrices of a fit that accesses them only by passes and never holds them in memory."""

    def total(self, theta: np.ndarray) -> CombinedGram:
        """Return ``sum_q theta_q K_q`` over the kernels with non-zero weight, centred if their specs require it."""
        used = np.flatnonzero(theta)
        used = used if len(used) else np.zeros(1, np.int64)
        refs = [_select(ref, used.tolist()) for ref in self._refs]
        norms = None if self._norms is None else tuple(self._norms[q] for q in used)
        weights = np.asarray(theta, np.float64) * self.scale
        return self._by_passes(BlockSum(norms, weights[used]), np.asarray(theta) @ self.diagonals(), refs)

    def strips(self, theta: np.ndarray, points: Sequence[Points]) -> tuple[Sequence[Points], KernelSum]:
        """Return the points, and the weighted sum from which tasks get their strips. If kernels are stored, tasks read the strips from a
        file of the sum; otherwise tasks compute the strips.
        """
        used = np.flatnonzero(theta)
        used = used if len(used) else np.zeros(1, np.int64)
        norms = None if self._norms is None else tuple(self._norms[q] for q in used)
        kernels = BaseKernels(tuple(self.specs[q] for q in used), norms, self.scale[used])
        if self.settings.policy != "store":
            return points, KernelSum(kernels, np.asarray(theta)[used])
        pairs, stored = self.total(theta).parts
        return strips_of(points, pairs), KernelSum(kernels, np.asarray(theta)[used], stored)

    def of_bases(self, factors: np.ndarray) -> BaseKernels:
        """Return the kernels, each times a factor, in the form in which tasks compute them between points and their bases."""
        return BaseKernels(self.specs, self._norms, self.scale * factors)

    def _load_sums(self) -> list[KernelSums]:
        if self.settings.policy != "recompute":
            return super()._load_sums()
        is_scaled = all(map(needs_diagonal_only, self.specs))
        refs = [ref for ref in self._refs if not is_scaled or ref.rows == ref.cols]
        rows, diagonals = self.resources.run_pass(sums_pass(refs, self.k, self.n))
        if is_scaled:
            return KernelSums.of_diagonals(diagonals)
        return [KernelSums(float(one.sum()), one, row, float(row.sum())) for one, row in zip(diagonals, rows, strict=True)]


def _select(ref: PairRef, used: Sequence[int]) -> PairRef:
    if isinstance(ref, StoredPair):
        return ref.select(used)
    assert isinstance(ref, RowPair)
    return replace(ref, specs=tuple(ref.specs[q] for q in used))


class Largest(NamedTuple):
    """The largest entries of some rows within one block."""

    rows: tuple[int, int]
    values: np.ndarray  # (k, rows, size), -inf where there are fewer


def largest_chunk(ref: PairRef, norms: tuple[Normalization, ...], size: int) -> list[Largest]:
    """Return the largest off-diagonal entries of every row of a block pair, and of every column."""
    block = load_normalised(ref, norms).astype(np.float64)
    if ref.rows == ref.cols:
        diagonal = np.arange(block.shape[1])
        block[:, diagonal, diagonal] = -np.inf
        return [Largest(ref.rows, _largest(block, size))]
    return [Largest(ref.rows, _largest(block, size)), Largest(ref.cols, _largest(block.transpose(0, 2, 1), size))]


def _largest(block: np.ndarray, size: int) -> np.ndarray:
    if block.shape[2] <= size:
        return block
    return -np.partition(-block, size - 1, axis=2)[:, :, :size]


@dataclass(frozen=True)
class MergeLargest:
    """Combines results: the largest entries of the same rows are merged, entries of different rows are kept apart."""

    size: int

    def __call__(self, parts: Sequence[list[Largest]]) -> list[Largest]:
        """Return the largest entries of all parts, by rows."""
        items = sorted((item for part in parts for item in part), key=lambda item: item.rows)
        groups = [(rows, [item.values for item in group]) for rows, group in groupby(items, key=lambda item: item.rows)]
        return [Largest(rows, _largest(np.concatenate(values, axis=2), self.size)) for rows, values in groups]


def largest_pass(
    refs: Sequence[PairRef], k: int, n: int, block: int, size: int, norms: tuple[Normalization, ...] = ()
) -> Plan[list[Largest]]:
    """Return the pass that finds the ``size`` largest entries of all n rows of k kernels."""
    result, whole = 16 * k * block * size + 256, 8 * k * n * size
    merging = 4 * whole + 512 * len(refs)
    return plan(
        BlockProgram("largest-entries", largest_chunk, MergeLargest(size), pair_bytes, result, combine_bytes=merging), refs, norms, size
    )


def mean_largest_sums(
    data: Blocks, resources: Resources, specs: Sequence[AnyKernel], norms: Sequence[Normalization], block: int, size: int
) -> np.ndarray:
    """Return, for every kernel, the mean over rows of the sum of the row's ``size`` (< n) largest off-diagonal entries: ``(k,)``.

    The pass processes pairs of blocks of ``block`` rows.
    """
    refs = row_pairs(data, list(specs), block)
    best = np.full((len(specs), data.n_rows, size), -np.inf)
    for part in resources.run_pass(largest_pass(refs, len(specs), data.n_rows, block, size, tuple(norms))):
        rows = slice(*part.rows)
        best[:, rows] = _largest(np.concatenate([best[:, rows], part.values], axis=2), size)
    return np.sort(best, axis=2).sum(axis=2).mean(axis=1)

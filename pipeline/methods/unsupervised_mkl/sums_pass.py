"""Gram matrices of a fit that is too large for this process: sums of the kernels in use, and no block of them comes here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.normalization import KernelSums, block_sums, needs_diagonal_only
from ...grams.given import StoredPair
from ...grams.grams import Grams
from ...grams.sources import PairRef, RowPair, group_pairs, pair_bytes
from ...grams.weighted_sum import BlockSum, CombinedGram
from ...passes.blocks import add_parts
from .rows_pass import Points, strips_of
from .strips_pass import BaseKernels, KernelSum


def sums_chunk(group: tuple[PairRef, ...], n: int) -> np.ndarray:
    """Return what some block pairs add to row sums and diagonals of the raw kernels, ``(2, k, n)``."""
    parts = [block_sums(ref.load(), ref.rows, ref.cols) for ref in group]
    out = np.zeros((2, len(parts[0].row_sums), n))
    for part in parts:
        out[0, :, slice(*part.rows)] += part.row_sums
        if part.column_sums is not None:
            out[0, :, slice(*part.columns)] += part.column_sums
        if part.diagonal is not None:
            out[1, :, slice(*part.rows)] = part.diagonal
    return out


def sums_pass(refs: Sequence[PairRef], k: int, n: int) -> Plan[np.ndarray]:
    """Return the pass over row sums and diagonals of k kernels of n rows."""
    result = 16 * k * n

    def task_bytes(group: tuple[PairRef, ...]) -> int:
        return max(map(pair_bytes, group)) + 2 * result

    return plan(BlockProgram("kernel-sums", sums_chunk, add_parts, task_bytes, result), group_pairs(refs), n)


class PassGrams(Grams):
    """The matrices of a fit by passes alone."""

    def total(self, theta: np.ndarray) -> CombinedGram:
        """Return ``sum_q theta_q K_q`` over the kernels with a weight, centred where their specs say so."""
        used = np.flatnonzero(theta)
        used = used if len(used) else np.zeros(1, np.int64)
        refs = [_select(ref, used.tolist()) for ref in self._refs]
        norms = None if self._norms is None else tuple(self._norms[q] for q in used)
        weights = np.asarray(theta, np.float64) * self.scale
        return self._by_passes(BlockSum(norms, weights[used]), np.asarray(theta) @ self.diagonals(), refs)

    def strips(self, theta: np.ndarray, points: Sequence[Points]) -> tuple[Sequence[Points], KernelSum]:
        """Return points, and the weighted sum as tasks get its strips: from a file of it where kernels are stored, else computed."""
        used = np.flatnonzero(theta)
        used = used if len(used) else np.zeros(1, np.int64)
        norms = None if self._norms is None else tuple(self._norms[q] for q in used)
        kernels = BaseKernels(tuple(self.specs[q] for q in used), norms, self.scale[used])
        if self.settings.policy != "store":
            return points, KernelSum(kernels, np.asarray(theta)[used])
        pairs, stored = self.total(theta).parts
        return strips_of(points, pairs), KernelSum(kernels, np.asarray(theta)[used], stored)

    def of_bases(self, factors: np.ndarray) -> BaseKernels:
        """Return the kernels, times a factor each, as tasks compute them between points and their bases."""
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

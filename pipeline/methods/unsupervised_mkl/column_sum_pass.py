"""The largest entries of every row of many Gram matrices: how much of a point its bases can make up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ...core.resources import Resources
from ...grams.sources import PairRef, load_normalised, pair_bytes, row_pairs
from ...passes.blocks import Blocks


class Largest(NamedTuple):
    """The largest entries of some rows within one block."""

    rows: tuple[int, int]
    values: np.ndarray  # (k, rows, size), -inf where there are fewer


def largest_chunk(ref: PairRef, norms: tuple[Normalization, ...], size: int) -> list[Largest]:
    """Return the largest entries off the diagonal of every row of a block pair, and of every column."""
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
    """Combine step: the largest entries of the same rows become one, those of other rows stay apart."""

    size: int

    def __call__(self, parts: Sequence[list[Largest]]) -> list[Largest]:
        """Return the largest entries of all parts, by rows."""
        items = sorted((item for part in parts for item in part), key=lambda item: item.rows)
        groups = [(rows, [item.values for item in group]) for rows, group in groupby(items, key=lambda item: item.rows)]
        return [Largest(rows, _largest(np.concatenate(values, axis=2), self.size)) for rows, values in groups]


def largest_pass(
    refs: Sequence[PairRef], k: int, n: int, block: int, size: int, norms: tuple[Normalization, ...] = ()
) -> Plan[list[Largest]]:
    """Return the pass over the ``size`` largest entries of all n rows of k kernels."""
    result, whole = 16 * k * block * size + 256, 8 * k * n * size
    merging = 4 * whole + 512 * len(refs)
    return plan(
        BlockProgram("largest-entries", largest_chunk, MergeLargest(size), pair_bytes, result, combine_bytes=merging), refs, norms, size
    )


def mean_largest_sums(
    data: Blocks, resources: Resources, specs: Sequence[AnyKernel], norms: Sequence[Normalization], block: int, size: int
) -> np.ndarray:
    """Return the sum of the ``size`` (< n) largest entries of a row off the diagonal, averaged over rows, of every kernel: ``(k,)``.

    The pass goes over pairs of blocks of ``block`` rows.
    """
    refs = row_pairs(data, list(specs), block)
    best = np.full((len(specs), data.n_rows, size), -np.inf)
    for part in resources.run_pass(largest_pass(refs, len(specs), data.n_rows, block, size, tuple(norms))):
        rows = slice(*part.rows)
        best[:, rows] = _largest(np.concatenate([best[:, rows], part.values], axis=2), size)
    return np.sort(best, axis=2).sum(axis=2).mean(axis=1)

"""The largest entries of every row of many Gram matrices: how much of a point its bases can make up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.grams.normalization import Normalization
from ....kernels.grams.products import AnyKernel
from ...grams.sources import PairRef, load_normalised, pair_bytes, row_pairs
from ...passes.blocks import join_lists
from ...records.context import RunContext


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


def mean_largest_sums(ctx: RunContext, specs: Sequence[AnyKernel], norms: Sequence[Normalization], block: int, size: int) -> np.ndarray:
    """Return the sum of the ``size`` (< n) largest entries of a row off the diagonal, averaged over rows, of every kernel: ``(k,)``.

    The pass goes over pairs of blocks of ``block`` rows.
    """
    refs = list(row_pairs(ctx.data, list(specs), block))
    result = 16 * len(specs) * block * size + 256
    program = BlockProgram("largest-entries", largest_chunk, join_lists, pair_bytes, result, combine_bytes=2 * result * len(refs))
    best = np.full((len(specs), ctx.data.n_rows, size), -np.inf)
    for part in ctx.run_pass(plan(program, refs, tuple(norms), size)):
        rows = slice(*part.rows)
        best[:, rows] = _largest(np.concatenate([best[:, rows], part.values], axis=2), size)
    return np.sort(best, axis=2).sum(axis=2).mean(axis=1)

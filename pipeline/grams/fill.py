"""Fills a bank of Gram matrices in place, in this process, without copying blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeGuard

import numpy as np

from ...cluster import BlockProgram, plan
from ...kernels.bank.bank import PackedBank
from ...kernels.bank.loops import count_packed
from ...kernels.grams.normalization import needs_diagonal_only
from ...kernels.grams.spec import KernelSpec
from ...kernels.grams.strips import has_number_kernels_only, packed_bytes, packed_grams
from ...storage import BlockStore, MemoryBlocks
from ..core.resources import Resources
from ..passes.blocks import join_lists
from ..records.data_set import DataSet
from ..records.joined import JoinedStores
from .given import GivenGrams
from .sources import FREED_BYTES, all_rows

ROW_BYTES = 256 << 20  # rows that are held whole while a bank is filled
TASK_BYTES = 64 << 20  # entries of one task, at least where there are as many


@dataclass(frozen=True)
class _Part:
    """Consecutive kernels and their part of a bank."""

    specs: tuple[KernelSpec, ...]
    values: np.ndarray = field(repr=False)
    rows: Any = field(repr=False)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes


def fills_here(data: object, resources: Resources, specs: Sequence[Any]) -> bool:
    """Return whether a bank can be filled in place: the executor is this process, data are small enough, and scaling needs
    diagonals only.
    """
    if resources.executor.kind != "sync" or not isinstance(data, (BlockStore, MemoryBlocks, JoinedStores)) or not data.n_cols:
        return False
    return 8 * data.n_rows * data.n_cols <= ROW_BYTES and has_number_kernels_only(specs) and all(map(needs_diagonal_only, specs))


def given_bank(data: object, specs: Sequence[Any]) -> PackedBank | None:
    """Return the bank of precomputed matrices, if all kernels are such matrices and scaling needs diagonals only.

    The bank is copied if a normalisation changes entries.
    """
    if not is_given_bank(data, specs):
        return None
    return data.bank.packed() if _changed(specs) else data.bank


def bank_bytes(data: DataSet, specs: Sequence[Any]) -> int:
    """Return the memory in bytes of a bank of these kernels: 0 if precomputed matrices are used in place."""
    if is_given_bank(data, specs) and data.bank.lent and not _changed(specs):
        return 0
    return PackedBank.bytes_for(len(specs), data.n_rows, np.float32)


def is_given_bank(data: object, specs: Sequence[Any]) -> TypeGuard[Any]:
    """Return whether the bank of precomputed matrices holds exactly these kernels, before normalisation."""
    if not isinstance(data, GivenGrams) or data.bank is None:
        return False
    return [spec.position for spec in specs] == list(range(data.bank.k)) and all(map(needs_diagonal_only, specs))


def _changed(specs: Sequence[Any]) -> bool:
    return any(spec.normalize == "cosine" for spec in specs)


def filled_bank(data: BlockStore | MemoryBlocks | JoinedStores, resources: Resources, specs: Sequence[KernelSpec]) -> PackedBank:
    """Return the bank of raw kernels over the rows of a data set, bit-identical to kernels computed block by block."""
    n, rows = data.n_rows, all_rows(data)
    bank = PackedBank(np.empty((len(specs), count_packed(n)), np.float32), n)
    parts = [_Part(tuple(specs[lo:hi]), bank.values[lo:hi], rows) for lo, hi in _spans(specs, bank.nbytes // bank.k)]
    bound = fill_bytes(data, specs)
    resources.run_pass(plan(BlockProgram("gram-bank", fill_chunk, join_lists, lambda part: bound, 256), parts))
    return bank


def fill_bytes(data: DataSet, specs: Sequence[KernelSpec]) -> int:
    """Return the memory in bytes of a step that fills a bank: all rows, and the workspace of kernels over subsets of features."""
    n, d = data.n_rows, data.n_cols
    return 8 * n * d + packed_bytes(specs, n, d) + FREED_BYTES


def fill_chunk(part: _Part) -> list[Any]:
    packed_grams(part.specs, part.rows, part.values)
    return []


def _spans(specs: Sequence[KernelSpec], nbytes: int) -> list[tuple[int, int]]:
    """Split kernels into tasks, but only between kernels over different features: kernels over the same features share computations.

    ``nbytes``: bytes of one matrix.
    """
    starts, filled = [0], 0
    for q, spec in enumerate(specs):
        if filled >= TASK_BYTES and spec.columns != specs[q - 1].columns:
            starts.append(q)
            filled = 0
        filled += nbytes
    return list(zip(starts, [*starts[1:], len(specs)], strict=True))

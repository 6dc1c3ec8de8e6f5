"""Quadratic forms in kernels whose matrices are not stored: computed block by block, summed, dropped."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.bank.block_sums import total_forms
from ....kernels.grams.products import AnyKernel, distinct_kernels
from ...grams.grams import forms_chunk
from ...grams.sources import PairRef, block_rows, pair_bytes, row_pairs
from ...passes.blocks import join_lists
from ...records.context import RunContext

KERNELS_PER_PASS = 64  # kernels of a pass: with more of them blocks would be smaller, and what kernels share is computed once per block


def node_forms(ctx: RunContext, specs: Sequence[AnyKernel], vectors: np.ndarray, batch: int = KERNELS_PER_PASS) -> np.ndarray:
    """Return ``v' K v`` of kernels or products and vectors ``(n, m)``, ``(k, m)``; a pass over the rows for every ``batch`` kernels."""
    columns = np.ascontiguousarray(np.asarray(vectors, np.float64).T)
    forms = [np.zeros((0, len(columns)))]
    for lo in range(0, len(specs), batch):
        part = tuple(specs[lo : lo + batch])
        # The kernels that products are made of are computed with them.
        n_kernels = len(part) + len(distinct_kernels(part))
        block = block_rows(ctx.data.n_rows, n_kernels)
        refs = row_pairs(ctx.data, part, block)
        result = 8 * len(part) * len(columns) * (block // 128 + 1) ** 2
        memory = partial(_task_bytes, n_kernels / len(part))
        program = BlockProgram("node-forms", forms_chunk, join_lists, memory, result, combine_bytes=2 * result * len(refs))
        shared = ctx.broadcast("vectors", columns, len(refs))
        forms.append(total_forms(ctx.run_pass(plan(program, refs, shared, None, None))))
    return np.concatenate(forms)


def _task_bytes(share: float, ref: PairRef) -> int:
    return pair_bytes(ref) + int(share * ref.nbytes)

"""Quadratic forms in kernels whose matrices are not stored: computed block by block, summed, dropped."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np

from ....cluster import BlockProgram, plan
from ....kernels.bank.block_sums import total_forms
from ....kernels.bank.task_sums import task_units
from ....kernels.grams.products import AnyKernel, distinct_kernels
from ...grams.grams import diagonals_chunk, forms_chunk, group_chunk, pass_groups, task_sums_pass
from ...grams.sources import FREED_BYTES, PairRef, block_rows, pair_bytes, row_pairs
from ...passes.blocks import join_lists
from ...records.context import RunContext

KERNELS_PER_PASS = 64  # kernels of a pass: with more of them blocks would be smaller, and what kernels share is computed once per block


class NodeForms(Protocol):
    """Quadratic forms of one dual point in kernels of nodes."""

    def totals(self, specs: Sequence[AnyKernel]) -> np.ndarray:
        """Return M_w, summed over the vectors of the point, ``(k,)``; rounding may make them negative."""
        ...

    def split_totals(self, specs: Sequence[AnyKernel]) -> tuple[np.ndarray, np.ndarray]:
        """Return the same, and with them the sums of the forms of the positive and of the negative parts of the vectors."""
        ...


@dataclass(frozen=True)
class VectorForms:
    """Forms of vectors ``(n, m)``, tile by tile: their shares come to the driver."""

    ctx: RunContext
    vectors: np.ndarray

    def totals(self, specs: Sequence[AnyKernel]) -> np.ndarray:
        """Return M_w."""
        return node_forms(self.ctx, specs, self.vectors).sum(axis=1)

    def split_totals(self, specs: Sequence[AnyKernel]) -> tuple[np.ndarray, np.ndarray]:
        """Return M_w, and those of the parts."""
        vectors, m = self.vectors, self.vectors.shape[1]
        forms = node_forms(self.ctx, specs, np.hstack([vectors, np.maximum(vectors, 0.0), np.minimum(vectors, 0.0)]))
        return forms[:, :m].sum(axis=1), forms[:, m:].sum(axis=1)


@dataclass(frozen=True)
class SignedForms:
    """The same by sums over pairs of tasks and signs, which workers add up: whatever the number of rows, little comes to the driver.

    ``betas``: ``(m, n)`` dual variables of machines; ``codes``: ``(n,)`` tasks of the rows; ``roots``: ``(T, r)`` the columns b_r of which
    the vectors ``b_r[task] beta`` are made.
    """

    ctx: RunContext
    betas: np.ndarray
    codes: np.ndarray
    roots: np.ndarray

    @cached_property
    def _signed_codes(self) -> np.ndarray:
        """Tasks and signs of the rows, ``(m, n)``."""
        return 2 * self.codes + (self.betas < 0)

    @cached_property
    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        """How the forms of pairs of tasks and signs add up: to M_w, and to those of the parts, ``(2 T, 2 T)``."""
        columns = np.repeat(self.roots, 2, axis=0)
        signs = np.tile([1.0, -1.0], len(self.roots))[:, None]
        parts = [np.where(side * columns * signs > 0, columns, 0.0) for side in (1.0, -1.0)]
        return columns @ columns.T, sum((part @ part.T for part in parts), np.zeros((len(columns), len(columns))))

    def totals(self, specs: Sequence[AnyKernel]) -> np.ndarray:
        """Return M_w."""
        return self.split_totals(specs)[0]

    def split_totals(self, specs: Sequence[AnyKernel]) -> tuple[np.ndarray, np.ndarray]:
        """Return M_w, and those of the parts."""
        found = [np.zeros((2, 0))]
        for batch in _batches(specs, KERNELS_PER_PASS):
            forms = self._pair_forms(batch).sum(axis=0)
            found.append(np.array([np.einsum("st,kst->k", shares, forms) for shares in self._shares]))
        totals, parts = np.concatenate(found, axis=1)
        return totals, parts

    def _pair_forms(self, specs: tuple[AnyKernel, ...]) -> np.ndarray:
        """Return the forms of pairs of tasks and signs, ``(m, k, 2 T, 2 T)``: a pass over the diagonals, and one over all entries."""
        refs, n_codes = _node_pairs(self.ctx, specs), 2 * len(self.roots)
        tops = greatest_diagonals(self.ctx, refs, len(specs))
        units = np.stack([task_units(tops, beta, codes, n_codes) for beta, codes in zip(self.betas, self._signed_codes, strict=True)])
        return task_sums_pass(self.ctx, refs, None, np.ascontiguousarray(self.betas), self._signed_codes, units)


def greatest_diagonals(ctx: RunContext, refs: Sequence[PairRef], k: int) -> np.ndarray:
    """Return the greatest diagonal entry of each of the k kernels of all block pairs, ``(k,)``."""
    blocks = [ref for ref in refs if ref.rows == ref.cols]
    program = BlockProgram("node-diagonals", tops_chunk, greatest, pair_bytes, 8 * k + 256)
    return ctx.run_pass(plan(program, blocks))


def tops_chunk(ref: PairRef) -> np.ndarray:
    """Return the greatest diagonal entries of one block on the diagonal."""
    return diagonals_chunk(ref)[0].values.max(axis=1)


def greatest(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine step: greatest entries."""
    return functools.reduce(np.maximum, parts)


def node_forms(ctx: RunContext, specs: Sequence[AnyKernel], vectors: np.ndarray, batch: int = KERNELS_PER_PASS) -> np.ndarray:
    """Return ``v' K v`` of kernels or products and vectors ``(n, m)``, ``(k, m)``; a pass over the rows for every ``batch`` kernels."""
    columns = np.ascontiguousarray(np.asarray(vectors, np.float64).T)
    forms = [np.zeros((0, len(columns)))]
    for part in _batches(specs, batch):
        refs = _node_pairs(ctx, part)
        groups = pass_groups(refs)
        block = refs[0].rows[1] - refs[0].rows[0]
        result = 8 * len(part) * len(columns) * (block // 128 + 1) ** 2
        largest, memory = result * max(map(len, groups)), partial(_task_bytes, _parts_share(part))
        program = BlockProgram("node-forms", group_chunk, join_lists, memory, largest, combine_bytes=2 * result * len(refs))
        shared = ctx.broadcast("vectors", columns, len(groups))
        forms.append(total_forms(ctx.run_pass(plan(program, groups, forms_chunk, shared, None, None))))
    return np.concatenate(forms)


def _batches(specs: Sequence[AnyKernel], size: int) -> Iterator[tuple[AnyKernel, ...]]:
    return (tuple(specs[lo : lo + size]) for lo in range(0, len(specs), size))


def _parts_share(specs: Sequence[AnyKernel]) -> float:
    """Return how many kernels are computed for one: those that products are made of are computed with them."""
    return 1.0 + len(distinct_kernels(specs)) / len(specs)


def _node_pairs(ctx: RunContext, specs: tuple[AnyKernel, ...]) -> Sequence[PairRef]:
    """Return the block pairs of some nodes."""
    return row_pairs(ctx.data, specs, block_rows(ctx.data.n_rows, round(_parts_share(specs) * len(specs))))


def _task_bytes(share: float, group: tuple[PairRef, ...]) -> int:
    return max(pair_bytes(ref) + int(share * ref.nbytes) for ref in group)


def node_task_bytes(n: int, width: int, graph_size: int, machines: int) -> int:
    """Bound a task of these passes from n rows, columns of the data, nodes of the graph, and machines."""
    kernels = min(KERNELS_PER_PASS, graph_size)
    block = min(n, block_rows(n, kernels))
    return 6 * 4 * kernels * block**2 + 16 * width * block + FREED_BYTES + 16 * n * machines

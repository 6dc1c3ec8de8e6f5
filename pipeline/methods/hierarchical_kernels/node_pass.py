"""Quadratic forms in kernels whose matrices are not stored: blocks are computed, summed into the forms, and discarded."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ....cluster import BlockProgram, Plan, plan
from ....kernels.bank.products import TileSums, total_forms
from ....kernels.bank.task_sums import task_units
from ....kernels.grams.products import AnyKernel, distinct_kernels
from ....kernels.graphs.kernel_graphs import KernelDag
from ...core.resources import Resources
from ...grams.pair_passes import (
    diagonals_chunk,
    forms_bytes,
    forms_chunk,
    group_chunk,
    on_diagonal,
    pass_groups,
    task_forms_pass,
    task_sums_pass,
)
from ...grams.sources import PairRef, RowData, block_rows, pair_bytes, row_pairs
from ...passes.blocks import join_lists

KERNELS_PER_PASS = 64  # kernels of a pass: with more of them blocks would be smaller, and what kernels share is computed once per block


@dataclass(frozen=True)
class VectorForms:
    """Quadratic forms of vectors ``(n, m)``, computed tile by tile; the driver adds up the contributions of the tiles. With
    :class:`SignedForms` instead, a fit takes 1.3 times as long on 300 rows, and 1.0 times as long on 1,000 rows.
    """

    data: RowData
    resources: Resources
    vectors: np.ndarray

    def totals(self, specs: Sequence[AnyKernel]) -> np.ndarray:
        """Return the quadratic forms M_w, summed over the vectors, ``(k,)``; rounding may make entries negative."""
        return node_forms(self.data, self.resources, specs, self.vectors).sum(axis=1)

    def split_totals(self, specs: Sequence[AnyKernel]) -> tuple[np.ndarray, np.ndarray]:
        """Return the quadratic forms M_w ``(k,)``, and the forms of the positive parts plus those of the negative parts of the vectors."""
        vectors, m = self.vectors, self.vectors.shape[1]
        forms = node_forms(self.data, self.resources, specs, np.hstack([vectors, np.maximum(vectors, 0.0), np.minimum(vectors, 0.0)]))
        return forms[:, :m].sum(axis=1), forms[:, m:].sum(axis=1)


@dataclass(frozen=True)
class SignedForms:
    """The same forms as :class:`VectorForms`, computed from sums over pairs of groups of rows. The rows of a group have the same task and
    the same sign of beta. Workers add up these sums, so that the driver receives little data even for many rows.

    * ``betas``: dual variables of the SVMs, ``(m, n)``.
    * ``codes``: tasks of the rows, ``(n,)``.
    * ``roots``: the columns b_r, ``(T, r)``, from which the vectors ``b_r[task] * beta`` are computed.
    """

    data: RowData
    resources: Resources
    betas: np.ndarray
    codes: np.ndarray
    roots: np.ndarray

    @cached_property
    def _signed_codes(self) -> np.ndarray:
        """Tasks and signs of the rows, ``(m, n)``."""
        return 2 * self.codes + (self.betas < 0)

    @cached_property
    def _shares(self) -> tuple[np.ndarray, np.ndarray]:
        """Two matrices ``(2 T, 2 T)`` of coefficients, with an entry per pair of groups (task and sign). The sums over pairs of groups,
        weighted with these coefficients, are M_w, or the quadratic forms of the positive and negative parts.
        """
        columns = np.repeat(self.roots, 2, axis=0)
        signs = np.tile([1.0, -1.0], len(self.roots))[:, None]
        parts = [np.where(side * columns * signs > 0, columns, 0.0) for side in (1.0, -1.0)]
        return columns @ columns.T, sum((part @ part.T for part in parts), np.zeros((len(columns), len(columns))))

    def totals(self, specs: Sequence[AnyKernel]) -> np.ndarray:
        return self.split_totals(specs)[0]

    def split_totals(self, specs: Sequence[AnyKernel]) -> tuple[np.ndarray, np.ndarray]:
        """Return the quadratic forms M_w ``(k,)``, and the forms of the positive parts plus those of the negative parts of the vectors."""
        found = [np.zeros((2, 0))]
        for batch in _batches(specs, KERNELS_PER_PASS):
            forms = self._pair_forms(batch).sum(axis=0)
            found.append(np.array([np.einsum("st,kst->k", shares, forms) for shares in self._shares]))
        totals, parts = np.concatenate(found, axis=1)
        return totals, parts

    def _pair_forms(self, specs: tuple[AnyKernel, ...]) -> np.ndarray:
        """Return the sums over pairs of groups of rows, ``(m, k, 2 T, 2 T)``, by a pass over the diagonals and one over all entries."""
        refs, n_codes = _node_pairs(self.data, specs), 2 * len(self.roots)
        tops = greatest_diagonals(self.resources, refs, len(specs))
        units = np.stack([task_units(tops, beta, codes, n_codes) for beta, codes in zip(self.betas, self._signed_codes, strict=True)])
        return task_sums_pass(self.resources, refs, None, np.ascontiguousarray(self.betas), self._signed_codes, units)


NodeForms = VectorForms | SignedForms  # of one dual point in kernels of nodes


def greatest_diagonals(resources: Resources, refs: Sequence[PairRef], k: int) -> np.ndarray:
    """Return the largest diagonal entry of each of the k kernels over all block pairs, ``(k,)``."""
    return resources.run_pass(_diagonals_pass(refs, k))


def _diagonals_pass(refs: Sequence[PairRef], k: int) -> Plan[np.ndarray]:
    return plan(BlockProgram("node-diagonals", tops_chunk, greatest, pair_bytes, 8 * k + 256), on_diagonal(refs))


def tops_chunk(ref: PairRef) -> np.ndarray:
    """Return the largest diagonal entries of one diagonal block."""
    return diagonals_chunk(ref)[0].values.max(axis=1)


def greatest(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Combine results by the entry-wise maximum."""
    return functools.reduce(np.maximum, parts)


def node_forms(data: RowData, resources: Resources, specs: Sequence[AnyKernel], vectors: np.ndarray) -> np.ndarray:
    """Return ``v' K v`` for every kernel or product K and every vector v of ``vectors`` ``(n, m)``, as ``(k, m)``. Every KERNELS_PER_PASS
    kernels take one pass over the rows.
    """
    columns = np.ascontiguousarray(np.asarray(vectors, np.float64).T)
    forms = [np.zeros((0, len(columns)))]
    for part in _batches(specs, KERNELS_PER_PASS):
        work = _forms_pass(_node_pairs(data, part), len(part), len(columns), _parts_share(part))
        shared = resources.share("vectors", columns, work.n_tasks)
        forms.append(total_forms(resources.run_pass(replace(work, broadcast=(forms_chunk, shared, None, None)))))
    return np.concatenate(forms)


def _forms_pass(refs: Sequence[PairRef], k: int, m: int, share: float) -> Plan[list[TileSums]]:
    """Return the pass that computes the forms of m vectors in k kernels."""
    groups, result = pass_groups(refs), forms_bytes(k, m, refs[0].rows[1] - refs[0].rows[0])
    largest = result * max(map(len, groups))

    def memory(group: tuple[PairRef, ...]) -> int:
        return max(pair_bytes(ref) + int(share * ref.nbytes) for ref in group) + largest

    return plan(BlockProgram("node-forms", group_chunk, join_lists, memory, largest, combine_bytes=2 * result * len(refs)), groups)


def _batches(specs: Sequence[AnyKernel], size: int) -> Iterator[tuple[AnyKernel, ...]]:
    return (tuple(specs[lo : lo + size]) for lo in range(0, len(specs), size))


def _parts_share(specs: Sequence[AnyKernel]) -> float:
    """Return the number of kernels computed per node, including the factors of products."""
    return 1.0 + len(distinct_kernels(specs)) / len(specs)


def _node_pairs(data: RowData, specs: tuple[AnyKernel, ...]) -> Sequence[PairRef]:
    """Return the block pairs of some nodes."""
    return row_pairs(data, specs, block_rows(data.n_rows, round(_parts_share(specs) * len(specs))))


def node_task_bytes(data: RowData, dag: KernelDag, n_base: int, vectors: int, tasks: tuple[int, int] | None) -> int:
    """Return the memory in bytes of the largest step of a pass for quadratic forms, whether it has the largest number of nodes or fewer
    nodes in larger blocks. At most ``n_base`` kernels are computed in addition to those of the nodes. ``vectors`` is the number of vectors
    of :class:`VectorForms`; for :class:`SignedForms`, ``tasks`` has the numbers of SVMs and tasks.
    """
    most, root, steps = min(KERNELS_PER_PASS, dag.size), dag.kernel(dag.roots()[0]), [0]
    # Kernels computed for a pass, by the rows of its blocks: of as many rows those of most kernels take most.
    computed = {block_rows(data.n_rows, count): count for count in range(1, most + n_base + 1)}
    for block, count in computed.items():
        k = min(most, count)
        refs = row_pairs(data, [root] * k, block)
        if tasks is None:
            steps.append(_forms_pass(refs, k, 3 * vectors, count / k).memory_bound)
        else:
            machines, n_tasks = tasks
            forms = 8 * machines * k * (2 * n_tasks) ** 2
            pairs = task_forms_pass(refs, forms, 16 * machines * data.n_rows)
            steps += [pairs.memory_bound, _diagonals_pass(refs, k).memory_bound]
    return max(steps)

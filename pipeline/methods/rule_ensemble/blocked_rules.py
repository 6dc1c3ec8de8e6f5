"""Selected rules over rows in blocks. Passes over the columns of the rules give decision values, supports and moved thresholds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ....kernels.rules.bits import Words, count_ones, pack_conjunctions, unpack_bits
from ....kernels.rules.propositions import CutMachine, Propositions, cut_changes, move_cuts
from ....kernels.rules.row_losses import RowLoss
from ...core.resources import Shared, resolve
from ...passes.blocks import Ref, add_parts, serial
from ...passes.columns import fetch_columns
from .blocked_lattice import BlockedLattice
from .data import renumber
from .proposition_pass import dense_column, packed_flags
from .row_pass import BitsPart, TaskTables, block_columns, numbers_step, rows_at_once, supports_step, truth_bytes


@dataclass(frozen=True)
class ValuesPart:
    """Reference to the raw values of some columns in a range of the data's rows."""

    ref: Ref  # any block of the data
    token: str  # digest of data and columns
    rows: tuple[int, int]  # half-open range of the data's rows
    nbytes: int
    columns: np.ndarray = field(compare=False, repr=False)  # ascending

    def truth(self, propositions: Propositions, mask: np.ndarray | None = None) -> Words:
        """Return which propositions hold on the rows, or only on the rows of a mask, as bits ``(p, words)``."""
        n = self.rows[1] - self.rows[0] if mask is None else int(mask.sum())
        out = np.zeros((propositions.size, max(-(-n // 64), 1)), np.uint64)
        for column, values in block_columns(self.ref, self.rows, self.columns):
            members = np.flatnonzero(propositions.column == column)
            out[members] = packed_flags(propositions, members, column, values if mask is None else values[mask])
        return out


def value_parts(ref: Ref, serial: int, propositions: Propositions, itemsize: int, ranges: Sequence[tuple[int, int]]) -> list[ValuesPart]:
    """Return references to the values that the propositions read, one per range of rows."""
    columns = np.unique(propositions.column)
    token = hashlib.sha256(f"{serial}".encode() + columns.tobytes()).hexdigest()
    return [ValuesPart(ref, token, (lo, hi), itemsize * (hi - lo) * len(columns), columns) for lo, hi in ranges]


@dataclass(frozen=True)
class Rules:
    """Conjunctions of propositions with their weights, in the form that tasks receive."""

    propositions: Propositions
    items: tuple[tuple[int, ...], ...]
    weights: np.ndarray  # (r, T)


def _rules_hold(words: Words, n: int, rules: Rules) -> Words:
    """Return which of n rows satisfy each rule, as packed bits ``(r, n_words)``; ``words`` holds the packed bits of the propositions."""
    return pack_conjunctions([list(item) for item in rules.items], words, n)


def values_chunk(part: ValuesPart, rules: Rules) -> np.ndarray:
    """Return the decision values of rules on all rows of a block, without the intercept, ``(rows, T)`` (on a worker)."""
    n, step = part.rows[1] - part.rows[0], rows_at_once(len(rules.items))
    flags = unpack_bits(_rules_hold(part.truth(rules.propositions), n, rules), n)
    return np.concatenate([flags[:, lo : lo + step].T.astype(np.float64) @ rules.weights for lo in range(0, n, step)])


def support_chunk(task: tuple[BitsPart, ValuesPart], rules: Rules) -> np.ndarray:
    """For each rule, return how many of the block's used rows satisfy it, ``(r,)`` (on a worker)."""
    bits, part = task
    return count_ones(_rules_hold(part.truth(rules.propositions, bits.in_use()), bits.n, rules))


def changes_chunk(
    task: tuple[BitsPart, ValuesPart], rules: Rules, bias: np.ndarray, e: int, tables: TaskTables, labels: Shared, cost: Shared,
    loss: RowLoss,
) -> np.ndarray:  # fmt: skip
    """Return, for each row in use of a block, the change of its loss if proposition e becomes true for the row (on a worker)."""
    bits, part = task
    truth, task_rows = part.truth(rules.propositions, bits.in_use()), bits.task_rows(tables)
    y, costs = ([resolve(values)[lo:hi] for lo, hi in bits.spans] for values in (labels, cost))
    step, parts = -(-rows_at_once(2 * len(rules.items)) // 64) * 64, []
    for lo in range(0, bits.n, step):
        hi = min(lo + step, bits.n)
        spans = [slice(*np.searchsorted(rows, (lo, hi))) for rows in task_rows]
        rows, *rest = ([values[span] for values, span in zip(each, spans, strict=True)] for each in (task_rows, y, costs))
        machine = CutMachine(rules.items, rules.weights, bias, [some - lo for some in rows], *rest, row_loss=loss)
        flags = unpack_bits(truth[:, lo // 64 : -(-hi // 64)], hi - lo)
        parts.append(cut_changes(machine, flags, machine.decisions(flags), e))
    return np.concatenate(parts)


def with_cuts(rules: Rules, cuts: np.ndarray) -> Rules:
    """Return the rules with other thresholds."""
    return replace(rules, propositions=replace(rules.propositions, cut=cuts))


def _join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts)


@dataclass(frozen=True)
class BlockedRules:
    """Rules in terms of the propositions that occur in them, over the rows of a lattice."""

    lattice: BlockedLattice
    rules: Rules

    @classmethod
    def of(cls, lattice: BlockedLattice, propositions: Propositions, items: Sequence[Sequence[int]], weights: np.ndarray) -> BlockedRules:
        """Return rules given as lists of propositions with weights ``(r, T)``."""
        used, few = renumber(items)
        return cls(lattice, Rules(propositions.take(used), tuple(tuple(item) for item in few), weights))

    def _parts(self, ranges: Sequence[tuple[int, int]]) -> list[ValuesPart]:
        data = self.lattice.blocks.data
        return value_parts(data.column_blocks()[0], serial(data), self.rules.propositions, data.meta.itemsize, ranges)

    def _truth(self, part: ValuesPart) -> int:
        """Bound the memory in bytes of the truth values of the rules on the rows of a part."""
        return truth_bytes(part.rows[1] - part.rows[0], self.rules.propositions.size, *self.rules.weights.shape)

    @cached_property
    def _in_use(self) -> list[tuple[BitsPart, ValuesPart]]:
        parts = self.lattice.parts
        return list(zip(parts, self._parts([part.rows for part in parts]), strict=True))

    def decision_values(self) -> np.ndarray:
        """Return the decision values on all rows of the data, without the intercept, ``(n_samples, T)``, in one pass."""
        blocks = self.lattice.blocks
        n, size = len(blocks.used), blocks.size
        parts = self._parts([(lo, min(lo + size, n)) for lo in range(0, n, size)])
        step = numbers_step(self._truth(parts[0]), n * self.rules.weights.shape[1])
        return blocks.run("values", values_chunk, parts, step, _join_rows, self.rules)

    def supports(self) -> np.ndarray:
        """Return the number of rows in use that satisfy each rule, ``(r,)``, in one pass."""
        step = supports_step(self._truth(self._in_use[0][1]), len(self.rules.items))
        return self.lattice.blocks.run("supports", support_chunk, self._in_use, step, add_parts, self.rules)

    def moved_cuts(self, bias: np.ndarray) -> np.ndarray:
        """Return the thresholds moved to the training values with the smallest loss, ``(p,)``. Each takes a pass over its column."""
        propositions = self.rules.propositions
        return move_cuts(_BlockedCutRows(self, bias), self.rules.items, self.rules.weights, propositions.kind, propositions.cut)

    def changes(self, e: int, cuts: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return, for every row in use, the change of its loss if proposition e becomes true for the row, ``(n,)``, in one pass."""
        blocks = self.lattice.blocks
        labels, costs = blocks.share("signs", np.concatenate(blocks.y)), blocks.share("costs", np.concatenate(blocks.cost))
        shared = with_cuts(self.rules, cuts), bias, e, blocks.tables, labels, costs, blocks.loss
        step = numbers_step(self._truth(self._in_use[0][1]), self.lattice.n, 24 * sum(map(len, blocks.rows)))
        return blocks.run("changes", changes_chunk, self._in_use, step, _join_rows, *shared)


@dataclass(frozen=True)
class _BlockedCutRows:
    """Rows in blocks on which thresholds are moved."""

    rules: BlockedRules
    bias: np.ndarray

    def changes(self, e: int, cuts: np.ndarray) -> np.ndarray:
        return self.rules.changes(e, cuts, self.bias)

    def column(self, e: int) -> np.ndarray:
        blocks, column = self.rules.lattice.blocks, self.rules.rules.propositions.column[e]
        return dense_column(fetch_columns(blocks.data, blocks.resources, np.array([column])), 0)[blocks.used]

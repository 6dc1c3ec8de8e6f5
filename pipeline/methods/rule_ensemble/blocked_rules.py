"""Selected rules over rows in blocks: decisions, supports and moved cuts by passes over the values of the columns that rules read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ....kernels.rules.propositions import Propositions, move_cuts
from ...passes.blocks import add_parts, serial
from ...passes.columns import fetch_columns
from .blocked_lattice import BlockedLattice
from .data import renumber
from .proposition_pass import dense_column
from .row_pass import BitsPart, numbers_step, supports_step, truth_bytes
from .value_pass import Rules, ValuesPart, changes_chunk, support_chunk, value_parts, values_chunk, with_cuts


def _join_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts)


@dataclass(frozen=True)
class BlockedRules:
    """Rules on the propositions that occur in them, over the rows of a lattice."""

    lattice: BlockedLattice
    rules: Rules

    @classmethod
    def of(cls, lattice: BlockedLattice, propositions: Propositions, items: Sequence[Sequence[int]], weights: np.ndarray) -> BlockedRules:
        """Return rules as lists of propositions with weights ``(r, T)``."""
        used, few = renumber(items)
        return cls(lattice, Rules(propositions.take(used), tuple(tuple(item) for item in few), weights))

    def _parts(self, ranges: Sequence[tuple[int, int]]) -> list[ValuesPart]:
        data = self.lattice.blocks.data
        return value_parts(data.column_blocks()[0], serial(data), self.rules.propositions, data.meta.itemsize, ranges)

    def _truth(self, part: ValuesPart) -> int:
        """Bound the bytes of the truth of the rules on the rows of a part."""
        return truth_bytes(part.rows[1] - part.rows[0], self.rules.propositions.size, *self.rules.weights.shape)

    @cached_property
    def _in_use(self) -> list[tuple[BitsPart, ValuesPart]]:
        parts = self.lattice.parts
        return list(zip(parts, self._parts([part.rows for part in parts]), strict=True))

    def decision_values(self) -> np.ndarray:
        """Return the decisions on all rows of the data, before the bias, ``(n_samples, T)``: one pass."""
        blocks = self.lattice.blocks
        n, size = len(blocks.used), blocks.size
        parts = self._parts([(lo, min(lo + size, n)) for lo in range(0, n, size)])
        step = numbers_step(self._truth(parts[0]), n * self.rules.weights.shape[1])
        return blocks.run("values", values_chunk, parts, step, _join_rows, self.rules)

    def supports(self) -> np.ndarray:
        """Return on how many rows in use each rule holds, ``(r,)``: one pass."""
        step = supports_step(self._truth(self._in_use[0][1]), len(self.rules.items))
        return self.lattice.blocks.run("supports", support_chunk, self._in_use, step, add_parts, self.rules)

    def moved_cuts(self, bias: np.ndarray) -> np.ndarray:
        """Return the cuts moved to the training values with the least loss, ``(p,)``: a pass for every cut, and its column."""
        propositions = self.rules.propositions
        return move_cuts(_BlockedCutRows(self, bias), self.rules.items, self.rules.weights, propositions.kind, propositions.cut)

    def changes(self, e: int, cuts: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """Return what the loss of every row in use gains where proposition e becomes true of it, ``(n,)``: one pass."""
        blocks = self.lattice.blocks
        labels, costs = blocks.share("signs", np.concatenate(blocks.y)), blocks.share("costs", np.concatenate(blocks.cost))
        shared = with_cuts(self.rules, cuts), bias, e, blocks.tables, labels, costs
        step = numbers_step(self._truth(self._in_use[0][1]), self.lattice.n, 24 * sum(map(len, blocks.rows)))
        return blocks.run("changes", changes_chunk, self._in_use, step, _join_rows, *shared)


@dataclass(frozen=True)
class _BlockedCutRows:
    """Rows in blocks on which cuts are moved."""

    rules: BlockedRules
    bias: np.ndarray

    def changes(self, e: int, cuts: np.ndarray) -> np.ndarray:
        return self.rules.changes(e, cuts, self.bias)

    def column(self, e: int) -> np.ndarray:
        blocks, column = self.rules.lattice.blocks, self.rules.rules.propositions.column[e]
        return dense_column(fetch_columns(blocks.data, blocks.resources, np.array([column])), 0)[blocks.used]

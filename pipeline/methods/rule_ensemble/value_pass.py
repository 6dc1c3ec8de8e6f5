"""Passes over the values of the columns that rules read, in blocks of rows: decisions, supports, and what moving a cut would change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ....kernels.rules.cuts import CutMachine, cut_changes
from ....kernels.rules.propositions import Propositions
from ...passes.blocks import Columns, Ref, source_of
from ...records.context import Shared, resolve
from .proposition_pass import dense_column
from .row_pass import BitsPart, TaskTables


@dataclass(frozen=True)
class ValuesPart:
    """Raw values of some columns in a range of the data's rows, by name."""

    ref: Ref  # any block of the data
    token: str  # digest of data and columns
    rows: tuple[int, int]  # half-open range of the data's rows
    nbytes: int
    columns: np.ndarray = field(compare=False, repr=False)  # ascending

    def load(self) -> Columns:
        """Return the values, ``(rows, columns)``."""
        return source_of(self.ref).columns(self.columns, self.rows)

    def truth(self, propositions: Propositions) -> np.ndarray:
        """Return which propositions hold on the rows, ``(p, rows)`` bool."""
        raw, out = self.load(), np.zeros((propositions.size, self.rows[1] - self.rows[0]), bool)
        for k, column in enumerate(self.columns.tolist()):
            members = np.flatnonzero(propositions.column == column)
            if len(members):
                out[members] = propositions.flags(members, column, dense_column(raw, k))
        return out


def value_parts(ref: Ref, serial: int, propositions: Propositions, itemsize: int, ranges: Sequence[tuple[int, int]]) -> list[ValuesPart]:
    """Return the values that propositions read, by ranges of rows."""
    columns = np.unique(propositions.column)
    token = hashlib.sha256(f"{serial}".encode() + columns.tobytes()).hexdigest()
    return [ValuesPart(ref, token, (lo, hi), (itemsize + 4) * (hi - lo) * len(columns), columns) for lo, hi in ranges]


@dataclass(frozen=True)
class Rules:
    """Conjunctions of propositions with their weights, as tasks receive them."""

    propositions: Propositions
    items: tuple[tuple[int, ...], ...]
    weights: np.ndarray  # (r, T)


def _rule_truth(truth: np.ndarray, items: Sequence[Sequence[int]]) -> np.ndarray:
    """Return which rows satisfy which rule, ``(rows, r)`` bool."""
    flags = np.ones((truth.shape[1], len(items)), bool)
    for r, item in enumerate(items):
        for j in item:
            flags[:, r] &= truth[j]
    return flags


def values_chunk(part: ValuesPart, rules: Rules) -> np.ndarray:
    """Return the decisions of rules on all rows of a block, before the bias, ``(rows, T)`` (on a worker)."""
    return _rule_truth(part.truth(rules.propositions), rules.items).astype(np.float64) @ rules.weights


def support_chunk(task: tuple[BitsPart, ValuesPart], rules: Rules) -> np.ndarray:
    """Return on how many of a block's rows in use each rule holds, ``(r,)`` (on a worker)."""
    bits, part = task
    mask = resolve(bits.mask)[slice(*bits.rows)].astype(bool)
    return _rule_truth(part.truth(rules.propositions), rules.items)[mask].sum(axis=0).astype(np.int64)


def changes_chunk(
    task: tuple[BitsPart, ValuesPart], rules: Rules, bias: np.ndarray, e: int, tables: TaskTables, signs: Shared, cost: Shared
) -> np.ndarray:
    """Return what the loss of a block's rows in use gains where proposition e becomes true of them (on a worker)."""
    bits, part = task
    mask = resolve(bits.mask)[slice(*bits.rows)].astype(bool)
    flags = part.truth(rules.propositions)[:, mask].astype(np.uint8)
    y, costs = ([resolve(values)[lo:hi] for lo, hi in bits.spans] for values in (signs, cost))
    machine = CutMachine(rules.items, rules.weights, bias, bits.task_rows(tables), y, costs)
    return cut_changes(machine, flags, machine.decisions(flags), e)


def with_cuts(rules: Rules, cuts: np.ndarray) -> Rules:
    """Return rules with other cuts."""
    return replace(rules, propositions=replace(rules.propositions, cut=cuts))

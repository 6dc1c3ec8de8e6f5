"""What follows from the data of a rule ensemble: its propositions, the lattice of their conjunctions, and the truth of rules on rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.propositions import Propositions
from ...passes.columns import Columns, fetch_columns
from ...records.context import RunContext
from ...records.holdings import refuse_beyond
from .config import RuleConfig
from .memory import REMEDY, driver_held
from .proposition_pass import dense_column, packed_propositions


@dataclass(frozen=True)
class RuleTask:
    """Rows of one machine: their numbers among all samples, labels and costs."""

    rows: np.ndarray
    y: np.ndarray
    cost: np.ndarray


@dataclass(frozen=True)
class RuleData:
    """Propositions, their lattice, and the rows in use."""

    propositions: Propositions
    lattice: RuleLattice
    rows: np.ndarray


def read_rule_data(
    ctx: RunContext, config: RuleConfig, tasks: Sequence[RuleTask], similarity: np.ndarray, categorical: Sequence[int], n_samples: int
) -> RuleData:
    """Return propositions and lattice of the rows that tasks use; one pass over the columns.

    Raises MemoryBoundExceeded: there are more propositions than the driver may hold.
    """
    used = np.zeros(n_samples, bool)
    for task in tasks:
        used[task.rows] = True
    n = int(used.sum())
    packed = packed_propositions(ctx, used, config.n_thresholds, categorical)
    # What was planned is the most there may be; what there is decides, before anything of its size is made of it.
    holdings = driver_held(config, packed.propositions.size, n, ctx.data.n_cols, len(tasks))
    refuse_beyond(holdings, ctx.driver_memory, "rule-ensemble", REMEDY)
    position = np.cumsum(used) - 1
    lattice = RuleLattice(
        packed.columns,
        n,
        tuple(position[task.rows] for task in tasks),
        tuple(task.y for task in tasks),
        tuple(task.cost for task in tasks),
        similarity,
        config.a,
        config.skip_implied,
    )
    return RuleData(packed.propositions, lattice, np.flatnonzero(used))


def raw_columns(ctx: RunContext, columns: np.ndarray) -> Columns:
    """Return some columns of the data as they are stored, ``(n_samples, len(columns))``; no pass where there are none."""
    return fetch_columns(ctx, columns) if len(columns) else np.zeros((ctx.data.n_rows, 0))


def rule_flags(propositions: Propositions, items: Sequence[Sequence[int]], columns: np.ndarray, raw: Columns, n: int) -> np.ndarray:
    """Return which of n rows satisfy which rule, ``(n, n_rules)`` booleans.

    ``items`` are rules as lists of propositions; ``raw`` are the values ``(n, len(columns))`` of features in ascending order.
    """
    truth: dict[int, np.ndarray] = {}
    used = np.array(sorted({j for item in items for j in item}), np.int64)
    for k, column in enumerate(columns):
        members = used[propositions.column[used] == column]
        if len(members):
            truth.update(zip(members.tolist(), propositions.flags(members, int(column), dense_column(raw, k)), strict=True))
    flags = np.ones((n, len(items)), bool)
    for r, item in enumerate(items):
        for j in item:
            flags[:, r] &= truth[int(j)]
    return flags

"""Data of a rule ensemble: its propositions, the lattice of their conjunctions, and the truth of rules on rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....kernels.rules.bits import MAX_UNPACKED_BYTES
from ....kernels.rules.lattice import RuleLattice
from ....kernels.rules.propositions import Propositions
from ....kernels.rules.row_losses import HINGE, RowLoss
from ....kernels.rules.search import MAX_LENGTH
from ....storage.encoding.record import TableColumns
from ...core.memory import Item, refuse, total_bytes
from ...core.resources import Resources
from ...inputs.labels import AboutRows, Inputs
from ...passes.blocks import Blocks
from ...passes.columns import Columns, fetch_columns
from .blocked_lattice import GATHERED_BYTES, ROW_BLOCK, BlockedLattice, RowBlocks, block_rows, fits_a_task
from .config import RuleConfig
from .proposition_pass import dense_column, packed_propositions

REMEDY = "choose fewer columns, n_thresholds or max_rules"  # what helps where propositions are too many

Lattice = RuleLattice | BlockedLattice


@dataclass(frozen=True)
class RuleTask:
    """Rows of one one-vs-rest or task model.

    * ``rows``: numbers of the rows among all samples.
    * ``y``, ``cost``: labels, or real targets in the solver's unit, and costs.
    * ``counts``: number of times that each row counts for thresholds; None means 1.
    """

    rows: np.ndarray
    y: np.ndarray
    cost: np.ndarray
    counts: np.ndarray | None = None


@dataclass(frozen=True)
class RuleInputs(AboutRows):
    """Rows with their classes (and tasks: :class:`TaskInputs`), and the origin of their columns."""

    names: Sequence[str] | None = None
    categories: Mapping[int, Sequence[str]] = field(default_factory=dict)  # names of level 0, 1, ... by column of numbers of levels
    origins: Mapping[int, tuple[str, str | None]] = field(
        default_factory=dict
    )  # column and level (None: missing) by column of zeros and ones
    nominal: Collection[str] = ()  # nominal columns of the source

    @classmethod
    def of(cls, rows: Inputs, names: Sequence[str] | None, encoding: TableColumns | None) -> RuleInputs:
        """Return inputs whose columns were encoded from a table as ``encoding`` says."""
        if encoding is None:
            return cls(rows, names)
        origins = {column: (origin.column, origin.level) for column, origin in encoding.origins.items()}
        nominal = {column.name for column in encoding.sources if column.kind == "nominal"}
        return cls(rows, names, encoding.coded_levels, origins, nominal)

    @property
    def data(self) -> Blocks:
        """Training data."""
        return self.rows.data


@dataclass(frozen=True)
class RuleData:
    """Propositions, their lattice, and the rows in use."""

    propositions: Propositions
    lattice: Lattice
    rows: np.ndarray


def most_propositions(config: RuleConfig, d: int, n: int) -> int:
    """Return the largest number of propositions of d numeric columns with n rows: two per threshold, and one for missing values."""
    return d * (2 * min(config.n_thresholds, max(n - 1, 1)) + 1)


def driver_items(config: RuleConfig, p: int, n: int, d: int, machines: int, is_blocked: bool) -> tuple[Item, ...]:
    """Return the memory of the driver for p propositions over n rows of d columns, with a hull of ``max_rules`` conjunctions."""
    word, hull = 8 * -(-n // 64), config.max_rules
    if is_blocked:
        visits = 0 if fits_a_task(most_propositions(config, d, n), n) else config.max_visits
        return (
            ("propositions, not their rows", 200 * p),
            ("names of the hull, and which propositions stand beside its own, a bit each", 3 * p * hull // 8),
            ("Newton matrices of the hull, and the counts they are made of", 104 * hull * hull),
            ("labels, costs, decisions and multipliers of the models, step by step", 240 * n * machines),
            ("a column of the rules with its order", 80 * n),
            ("candidates of a search with their sums, and answers about pairs", 24 * visits + (48 << 20)),
            ("the hull's conjunctions on the rows, twice while they arrive", min(n * hull * machines // 4, 2 * GATHERED_BYTES)),
        )
    return (
        ("propositions as bits, while equal ones are dropped, and in the order of a search", 6 * p * word),
        ("propositions that may extend the sets of a search, length by length", 9 * (MAX_LENGTH + 1) * p),
        ("names of the hull, one bit or byte for each proposition", 9 * p * hull // 8),
        ("the hull's conjunctions on the rows, and copies of them", 3 * n * hull),
        ("Newton matrices of the hull", 24 * hull * hull),
        ("labels, costs and multipliers of the models", 64 * n * machines),
        ("columns of the rules, as fetched and side by side", 16 * n * min(d, hull)),
        ("propositions unpacked, some at a time", min(9 * p * n, 2 * MAX_UNPACKED_BYTES)),
    )


def lies_in_blocks(config: RuleConfig, n: int, d: int, machines: int, limit: int) -> bool:
    """Return whether the bits of the propositions are kept in blocks, which passes read. This is so if there are more rows than one block
    has, or if all possible propositions exceed the driver's memory. The answer depends on sizes alone.
    """
    return n > ROW_BLOCK or total_bytes(driver_items(config, most_propositions(config, d, n), n, d, machines, False)) > limit


def read_rule_data(
    data: Blocks, resources: Resources, config: RuleConfig, tasks: Sequence[RuleTask], similarity: np.ndarray,
    categorical: Sequence[int], loss: RowLoss = HINGE,
) -> RuleData:  # fmt: skip
    """Return propositions and lattice of the rows that tasks use, in one pass over the columns.

    Raises MemoryBoundExceeded if the propositions exceed the driver's memory.
    """
    n_samples = data.n_rows
    counts = np.zeros(n_samples, np.uint8 if tasks[0].counts is None else np.float64)
    for task in tasks:
        counts[task.rows] = 1 if task.counts is None else task.counts
    used = counts > 0
    n, d, position = int(used.sum()), data.n_cols, np.cumsum(used) - 1
    rows, y, cost = zip(*((position[task.rows], task.y, task.cost) for task in tasks), strict=True)
    if lies_in_blocks(config, n_samples, d, len(tasks), resources.driver_memory):
        most = most_propositions(config, d, n_samples)
        blocks = RowBlocks(data, resources, used, rows, y, cost, block_rows(most, n_samples), loss)
        propositions = packed_propositions(data, resources, counts, config.n_thresholds, categorical, keeps_bits=False).propositions
        # Categories may be more than what was planned for.
        items = driver_items(config, max(propositions.size, 1), n_samples, d, len(tasks), True)
        refuse("rule-ensemble", items, resources.fit_limit, REMEDY)
        has_subtrees = fits_a_task(most, n_samples)
        blocked = BlockedLattice(blocks, propositions, similarity, config.a, config.skip_implied, has_subtrees)
        return RuleData(propositions, blocked, np.flatnonzero(used))
    packed = packed_propositions(data, resources, counts, config.n_thresholds, categorical)
    # What was planned is the most there may be; what there is decides, before anything of its size is made of it.
    items = driver_items(config, packed.propositions.size, n, d, len(tasks), False)
    refuse("rule-ensemble", items, resources.fit_limit, REMEDY)
    lattice = RuleLattice(packed.columns, n, rows, y, cost, similarity, config.a, config.skip_implied, loss)
    return RuleData(packed.propositions, lattice, np.flatnonzero(used))


def raw_columns(data: Blocks, resources: Resources, columns: np.ndarray) -> Columns:
    """Return the given columns of the data as stored, ``(n_samples, len(columns))``; without columns, no pass runs."""
    return fetch_columns(data, resources, columns) if len(columns) else np.zeros((data.n_rows, 0))


def renumber(items: Sequence[Sequence[int]]) -> tuple[np.ndarray, list[list[int]]]:
    """Return the propositions that occur in the conjunctions, ascending, and the conjunctions as positions among these."""
    used = np.array(sorted({j for item in items for j in item}), np.int64)
    number = {int(j): k for k, j in enumerate(used)}
    return used, [[number[j] for j in item] for item in items]


def rule_flags(propositions: Propositions, items: Sequence[Sequence[int]], columns: np.ndarray, raw: Columns, n: int) -> np.ndarray:
    """Return which of n rows satisfy each rule, ``(n, n_rules)`` booleans.

    ``items`` are rules as lists of propositions. ``columns`` are features in ascending order; ``raw``, ``(n, len(columns))``, has their
    values.
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

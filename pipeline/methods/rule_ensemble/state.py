"""Records of the loop of a rule ensemble: the restricted problem's solution, the selected rules, and the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....kernels.graphs.hulls import NodeSet
from ....kernels.rules.bits import unpack_bits
from ....kernels.rules.propositions import Propositions
from ...loops.active_set import ActiveState
from .data import RuleData


@dataclass(frozen=True)
class RuleMaster:
    """The restricted problem's solution.

    ``weights``: ``(W, r)`` G of :class:`.RulePoint`; ``bias``: ``(T,)``; ``alpha``: multipliers of all tasks, one task after the other;
    ``steps``: Newton steps so far.
    """

    record_name: ClassVar[str] = "RuleMaster"
    weights: np.ndarray
    bias: np.ndarray
    alpha: np.ndarray
    steps: int = 0


@dataclass(frozen=True)
class SelectedRules:
    """Rules after selection.

    ``propositions``: with their moved cuts; ``nodes``: hull of the selected rules on these propositions; ``weights``, ``bias``: ``(W, T)``
    and ``(T,)`` of the machine; ``objective``: its primal value; ``sweep``: times the cuts were moved.
    """

    record_name: ClassVar[str] = "Kept"
    propositions: Propositions
    nodes: NodeSet
    weights: np.ndarray
    bias: np.ndarray
    objective: float
    sweep: int

    def items(self) -> list[list[int]]:
        """Return the propositions of every node of the hull."""
        width = 64 * self.nodes.keys.shape[1]
        return [np.flatnonzero(row).tolist() for row in unpack_bits(self.nodes.keys, width)] if self.nodes.size else []

    def above(self, share: float) -> tuple[list[int], np.ndarray]:
        """Return the rules whose weight is above a share of the largest, by position in the hull, and their weights.

        The empty conjunction is none of them.
        """
        sizes = np.abs(self.weights).max(axis=1, initial=0.0)
        lengths = np.bitwise_count(self.nodes.keys).sum(axis=1)
        sizes = np.where(lengths > 0, sizes, 0.0)
        positions = np.flatnonzero(sizes > share * sizes.max(initial=0.0))
        return positions.tolist(), self.weights[positions]

    def columns_above(self, share: float) -> np.ndarray:
        """Return the features that occur in these rules, ascending."""
        items = self.items()
        return np.unique(self.propositions.column[sorted({j for r in self.above(share)[0] for j in items[r]})])


@dataclass(frozen=True)
class RuleState:
    """State of the loop: the active set, then the rules selected from it."""

    record_name: ClassVar[str] = "RuleState"
    iteration: int
    active: ActiveState
    master: RuleMaster
    kept: SelectedRules | None = None
    stop: str | None = None

    def hull_rules(self, data: RuleData) -> SelectedRules:
        """Return all conjunctions of the active set as rules."""
        weights = self.master.weights @ data.lattice.root.T
        return SelectedRules(data.propositions, self.active.nodes, weights, self.master.bias, self.active.upper, 0)

"""Records of the loop of a rule ensemble: the restricted problem's solution, the selected rules, and the state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ....kernels.graphs.hulls import NodeSet
from ....kernels.rules.bits import set_bits
from ....kernels.rules.propositions import Propositions
from ...loops.active_set import ActiveState
from .data import RuleData


@dataclass(frozen=True)
class RuleMaster:
    """The restricted problem's solution."""

    record_name: ClassVar[str] = "RuleMaster"
    weights: np.ndarray  # (W, r) G of :class:`.RulePoint`
    bias: np.ndarray  # (T,)
    alpha: np.ndarray  # multipliers of all tasks, one task after the other
    steps: int = 0  # Newton steps so far


@dataclass(frozen=True)
class SelectedRules:
    """Rules after selection."""

    record_name: ClassVar[str] = "Kept"
    propositions: Propositions  # with their moved cuts
    nodes: NodeSet  # hull of the selected rules on these propositions
    weights: np.ndarray  # (W, T)
    bias: np.ndarray  # (T,)
    objective: float  # primal value
    sweep: int  # times the cuts were moved

    def items(self) -> list[list[int]]:
        """Return the propositions of every node of the hull."""
        return set_bits(self.nodes.keys)

    def above(self, share: float) -> tuple[list[int], np.ndarray]:
        """Return the rules of a weight above a share of the largest, by position in the hull, and their weights; never the empty one."""
        sizes = np.where(self.nodes.keys.any(axis=1), np.abs(self.weights).max(axis=1, initial=0.0), 0.0)
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

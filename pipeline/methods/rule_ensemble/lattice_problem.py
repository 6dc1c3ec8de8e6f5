"""The lattice of conjunctions as a problem of the active-set loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ....kernels.graphs.hulls import NodeSet
from ....kernels.rules.machine import solve_rules
from ....kernels.rules.search import MAX_LENGTH, ViolatorSearch, is_full, joined_searches
from ...core.resources import Resources
from ...loops.active_set import EVERYWHERE, Restricted, Violations
from .config import RuleConfig
from .data import Lattice
from .problem import RuleMaster, solve_mirror

MAX_REWEIGHTINGS = 100  # re-weightings of one solve
LEAST_VISITS = 1 << 20  # conjunctions next to the hull that may be looked at, however few a certificate may take
FIRST_DEPTH = 2  # length of conjunctions at which a search over all of them begins


def conditions_looked_at(config: RuleConfig, hull: int) -> int:
    """Return the number of propositions that may extend the conjunctions of a hull in a frontier search, so that the search visits about
    ``max_visits`` conjunctions.
    """
    return max(max(config.max_visits, LEAST_VISITS) // max(hull, 1), config.add)


class LatticeProblem:
    """Restricted problems on hulls of the lattice, and searches outside a hull for conjunctions that violate its certificate."""

    def __init__(self, lattice: Lattice, config: RuleConfig) -> None:
        self._lattice, self._config = lattice, config
        self.parents, self.penalties = lattice.parents, lattice.penalties

    def solve(self, nodes: NodeSet, master: RuleMaster, tol: float, resources: Resources) -> tuple[RuleMaster, Restricted]:
        """Solve the restricted problem."""
        problem = self._lattice.problem(nodes, self._config.rho)
        if self._config.solver == "mirror":
            point = solve_mirror(problem, tol=tol)
        else:
            point = solve_rules(problem, warm=(master.weights, master.bias), tol=tol, max_iter=MAX_REWEIGHTINGS)
        solution = RuleMaster(point.G, point.bias, np.concatenate(point.alpha), master.steps + point.steps)
        return solution, Restricted(point.objective, point.dual_point, point.bound)

    def frontier(self, nodes: NodeSet, master: RuleMaster, threshold: float, resources: Resources) -> Violations:
        """Visit the children of the hull that may be among the worst violators; only these can be added."""
        rows = self._lattice.signed(split_alpha(self._lattice, master))

        def look(edge: float, depth: int) -> ViolatorSearch:
            return self._look(nodes, edge, rows=rows, frontier=True, depth=depth, most=conditions_looked_at(self._config, nodes.size))

        # The worst of the single propositions rule out most of the longer ones, by their bound.
        singles = look(threshold, 1)
        enough = len(singles.values) >= self._config.add
        search = self._worst(singles, lambda edge: look(edge, MAX_LENGTH)) if enough else look(threshold, MAX_LENGTH)
        if is_full(search):
            search = self._worst(search, lambda edge: look(edge, MAX_LENGTH))
        return self._violations(search, threshold, None, search.visits)

    def _worst(self, search: ViolatorSearch, look: Callable[[float], ViolatorSearch]) -> ViolatorSearch:
        """Return the conjunctions with the largest values, at least as many as may be added. If ``search`` was cut short or skipped nodes,
        ``look`` repeats the search until it is complete; its threshold is the value of the last conjunction to add.

        In a tie, conjunctions that were found first come first.
        """
        visits = search.visits
        while True:
            edge = float(np.sort(search.values)[-min(self._config.add, len(search.values))])
            above = look(edge)
            visits += above.visits
            if not is_full(above):
                return joined_searches(above, search, search.values == edge)._replace(visits=visits)
            search = above

    def everywhere(self, nodes: NodeSet, master: RuleMaster, threshold: float, resources: Resources) -> Violations:
        """Visit all conjunctions, by increasing length, within the limit of visits."""
        budget, depth_reached, visits = self._config.max_visits, None, 0
        rows = self._lattice.signed(split_alpha(self._lattice, master))
        for depth in range(FIRST_DEPTH, MAX_LENGTH + 1):
            look = partial(self._look, nodes, rows=rows, frontier=False, depth=depth, visits=budget - visits)
            search = look(threshold)
            search = self._worst(search, look) if is_full(search) else search
            visits += search.visits
            if not search.finished:
                if len(search.values) and depth_reached is None:
                    return self._violations(search, threshold, None, visits)
                break
            depth_reached = EVERYWHERE if search.whole else depth
            if len(search.values) or search.whole:
                return self._violations(search, threshold, depth_reached, visits)
        return Violations(self._lattice.named([]), np.zeros(0), threshold, depth_reached, visits)

    def _look(self, nodes: NodeSet, threshold: float, *, rows: Any, **limits: Any) -> ViolatorSearch:
        # (rows are those of the lattice, of whichever kind it is)
        return self._lattice.outside(nodes, (), threshold, rows=rows, **limits)

    def _violations(self, search: ViolatorSearch, threshold: float, depth: int | None, visits: int) -> Violations:
        items = [row[row >= 0].tolist() for row in search.items]
        worst = max(float(search.values.max(initial=0.0)), threshold)
        return Violations(self._lattice.named(items), search.values, worst, depth, visits)

    def enlarged(self, master: RuleMaster, before: NodeSet, after: NodeSet) -> RuleMaster:
        """Return the state with zero weights for the added nodes."""
        zeros = np.zeros((after.size - before.size, master.weights.shape[1]))
        return replace(master, weights=np.concatenate([master.weights, zeros]))


def split_alpha(lattice: Lattice, master: RuleMaster) -> list[np.ndarray]:
    """Return the multipliers task by task."""
    return np.split(master.alpha, np.cumsum([len(rows) for rows in lattice.rows])[:-1])

"""Nodes outside the hull: those next to it, and all of them, for the certificate of hierarchical kernel learning.

A node's value is ``M_w / d_w^2`` at the dual point of the greatest lower bound. The search goes down depth by depth from the nodes whose
parents are all in the hull, and leaves out what lies below a node where a bound of all values there stays under the threshold:

* Where entries of kernels lie in [0, 1] and shrink along edges, ``v'K_w v <= v+'K_u v+ + v-'K_u v-`` for every w below u, with v+ and v-
  the positive and the negative part of v.
* Where the sum over descendants has a closed form, it bounds them all at once (Theorem 5.3.2 of Jawanpuria's thesis, 2014).

With neither all nodes are looked at, as far as ``max_visits`` goes: then the certificate holds down to a depth.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from ....kernels.graphs.kernel_graphs import KernelDag
from ....kernels.graphs.norms import NodeSet
from ...loops.active_set import EVERYWHERE, Violations
from .node_pass import NodeForms

MAX_SUM_WIDTH = 32  # dimensions up to which the closed form of the sum over descendants is worth its products
MAX_VISITS_WITH_VIOLATORS = 1000  # nodes visited after which a search that has found violators goes no deeper


@dataclass(frozen=True)
class FrontierSearch:
    """Searches for nodes outside the hull that break the certificate."""

    dag: KernelDag
    max_visits: int  # nodes visited for a certificate at most

    def frontier_nodes(self, nodes: NodeSet) -> np.ndarray:
        """Return the nodes outside all of whose parents are inside, in the order of the hull: ``(m, width)``."""
        n_parents: Counter[bytes] = Counter()
        children: dict[bytes, np.ndarray] = {key.tobytes(): key for key in self.dag.roots()}
        for key in nodes.keys:
            for child in self.dag.children(key):
                name = child.tobytes()
                n_parents[name] += 1
                children.setdefault(name, child)
        keys = [key for name, key in children.items() if name not in nodes.places and n_parents[name] == len(self.dag.parents(key))]
        return np.array(keys, np.int64).reshape(len(keys), self.dag.width)

    def frontier(self, nodes: NodeSet, forms: NodeForms, threshold: float) -> Violations:
        """Visit the frontier alone; without one, everything has been visited."""
        keys = self.frontier_nodes(nodes)
        if not len(keys):
            return Violations(keys, np.zeros(0), 0.0, EVERYWHERE, 0)
        totals = forms.totals([self.dag.kernel(key) for key in keys])
        values = np.maximum(totals, 0.0) / self.dag.penalties(keys) ** 2
        above = values > threshold
        return Violations(keys[above], values[above], float(values.max(initial=0.0)), None, len(keys))

    def exhaustive(self, nodes: NodeSet, forms: NodeForms, threshold: float) -> Violations:
        """Visit all nodes outside, depth by depth."""
        queue = {key.tobytes(): key for key in self.frontier_nodes(nodes)}
        seen, violators, values = set(queue), [], []
        worst, visits, depth_reached = 0.0, 0, EVERYWHERE
        while queue:
            depths = self.dag.depth(np.stack(list(queue.values())))
            level = int(depths.min())
            names = [name for name, depth in zip(queue, depths, strict=True) if depth == level]
            if visits + len(names) > self.max_visits or (violators and visits > MAX_VISITS_WITH_VIOLATORS):
                depth_reached = level - 1
                break
            keys = np.stack([queue.pop(name) for name in names])
            level_values, below = self._values_and_bounds(keys, forms, threshold)
            visits += len(keys)
            above = level_values > threshold
            violators, values = violators + list(keys[above]), values + level_values[above].tolist()
            deeper = below > threshold
            worst = max(worst, float(level_values.max()), float(below[~deeper].max(initial=0.0)))
            for key in keys[deeper]:
                for child in self.dag.children(key):
                    name = child.tobytes()
                    if name not in seen and name not in nodes.places:
                        seen.add(name)
                        queue[name] = child
        keys = np.array(violators, np.int64).reshape(len(violators), self.dag.width)
        is_certified = depth_reached == EVERYWHERE or depth_reached >= 0
        return Violations(keys, np.array(values), worst, depth_reached if is_certified else None, visits)

    def _values_and_bounds(self, keys: np.ndarray, forms: NodeForms, threshold: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of nodes, and bounds of those of all their strict descendants."""
        penalties, specs = self.dag.penalties(keys), [self.dag.kernel(key) for key in keys]
        is_leaf = np.array([len(self.dag.children(key)) == 0 for key in keys])
        if self.dag.shrinks > 0:
            values, parts = forms.split_totals(specs)
            below = parts / (self.dag.shrinks * penalties) ** 2
        else:
            values, below = forms.totals(specs), np.full(len(keys), np.inf)
        below[is_leaf] = 0.0
        self._tighten(below, keys, forms, threshold)
        return np.maximum(values, 0.0) / penalties**2, below

    def _tighten(self, below: np.ndarray, keys: np.ndarray, forms: NodeForms, threshold: float) -> None:
        """Put the closed sums over descendants where another bound is above the threshold."""
        if self.dag.width > MAX_SUM_WIDTH:
            return
        sums = [(i, spec) for i in np.flatnonzero(below > threshold).tolist() if (spec := self.dag.below(keys[i])) is not None]
        if sums:
            rows = [i for i, _ in sums]
            totals = forms.totals([spec for _, spec in sums])
            below[rows] = np.minimum(below[rows], np.maximum(totals, 0.0))

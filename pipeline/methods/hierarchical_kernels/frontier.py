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
from ...records.context import RunContext
from .node_pass import node_forms

SUM_WIDTH = 32
"""Dimensions up to which the closed form of the sum over descendants is worth its products."""

ENOUGH = 1000
"""Nodes looked at after which a search that has found violators goes no deeper."""


@dataclass(frozen=True)
class Looks:
    """How nodes are looked at.

    Attributes
    ----------
    dag
        The graph.
    max_visits
        Nodes looked at for a certificate, at most.
    """

    dag: KernelDag
    max_visits: int

    def frontier(self, nodes: NodeSet) -> np.ndarray:
        """Return the nodes outside all of whose parents are inside, in the order of the hull: ``(m, width)``."""
        counts: Counter[bytes] = Counter()
        found: dict[bytes, np.ndarray] = {key.tobytes(): key for key in self.dag.roots()}
        for key in nodes.keys:
            for child in self.dag.children(key):
                name = child.tobytes()
                counts[name] += 1
                found.setdefault(name, child)
        kept = [key for name, key in found.items() if name not in nodes.places and counts[name] == len(self.dag.parents(key))]
        return np.stack(kept) if kept else np.zeros((0, self.dag.width), np.int64)

    def near(self, nodes: NodeSet, vectors: np.ndarray, threshold: float, ctx: RunContext) -> Violations:
        """Look at the frontier alone; without one, everything has been looked at."""
        keys = self.frontier(nodes)
        values = self._values(keys, vectors, ctx)
        above = values > threshold
        return Violations(keys[above], values[above], float(values.max(initial=0.0)), None if len(keys) else EVERYWHERE, len(keys))

    def _values(self, keys: np.ndarray, vectors: np.ndarray, ctx: RunContext) -> np.ndarray:
        if not len(keys):
            return np.zeros(0)
        forms = node_forms(ctx, [self.dag.kernel(key) for key in keys], vectors).sum(axis=1)
        return np.maximum(forms, 0.0) / self.dag.penalties(keys) ** 2

    def all(self, nodes: NodeSet, vectors: np.ndarray, threshold: float, ctx: RunContext) -> Violations:
        """Look at all nodes outside, depth by depth."""
        left = {key.tobytes(): key for key in self.frontier(nodes)}
        seen, found, values = set(left), [], []
        worst, looked_at, reached = 0.0, 0, EVERYWHERE
        while left:
            depths = self.dag.depth(np.stack(list(left.values())))
            level = int(depths.min())
            names = [name for name, depth in zip(left, depths, strict=True) if depth == level]
            if looked_at + len(names) > self.max_visits or (found and looked_at > ENOUGH):
                reached = level - 1
                break
            keys = np.stack([left.pop(name) for name in names])
            own, below = self._looked(keys, vectors, threshold, ctx)
            looked_at += len(keys)
            above = own > threshold
            found, values = found + list(keys[above]), values + own[above].tolist()
            deeper = below > threshold
            worst = max(worst, float(own.max()), float(below[~deeper].max(initial=0.0)))
            for key in keys[deeper]:
                for child in self.dag.children(key):
                    name = child.tobytes()
                    if name not in seen and name not in nodes.places:
                        seen.add(name)
                        left[name] = child
        keys = np.stack(found) if found else np.zeros((0, self.dag.width), np.int64)
        return Violations(keys, np.array(values), worst, reached if reached == EVERYWHERE or reached >= 0 else None, looked_at)

    def _looked(self, keys: np.ndarray, vectors: np.ndarray, threshold: float, ctx: RunContext) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of nodes, and bounds of those of all their strict descendants."""
        penalties, specs = self.dag.penalties(keys), [self.dag.kernel(key) for key in keys]
        ends = np.array([len(self.dag.children(key)) == 0 for key in keys])
        if self.dag.shrinks > 0:
            m = vectors.shape[1]
            forms = node_forms(ctx, specs, np.hstack([vectors, np.maximum(vectors, 0.0), np.minimum(vectors, 0.0)]))
            own, below = forms[:, :m].sum(axis=1), forms[:, m:].sum(axis=1) / (self.dag.shrinks * penalties) ** 2
        else:
            own, below = node_forms(ctx, specs, vectors).sum(axis=1), np.full(len(keys), np.inf)
        below[ends] = 0.0
        self._tighten(below, keys, vectors, threshold, ctx)
        return np.maximum(own, 0.0) / penalties**2, below

    def _tighten(self, below: np.ndarray, keys: np.ndarray, vectors: np.ndarray, threshold: float, ctx: RunContext) -> None:
        """Put the closed sums over descendants where another bound is above the threshold."""
        places = np.flatnonzero(below > threshold).tolist()
        if self.dag.width > SUM_WIDTH or not places:
            return
        sums = [self.dag.below(keys[place]) for place in places]
        given = [place for place, spec in zip(places, sums, strict=True) if spec is not None]
        if given:
            found = node_forms(ctx, [spec for spec in sums if spec is not None], vectors).sum(axis=1)
            below[given] = np.minimum(below[given], np.maximum(found, 0.0))

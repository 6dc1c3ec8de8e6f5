"""Hulls: sets of nodes of a directed acyclic graph; they contain all ancestors of their nodes. Active sets over a graph are hulls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import FloatArray, IntArray

Keys = NDArray[Any]  # Names of nodes, integers of one type.


@dataclass(frozen=True)
class Hull:
    """A set of W nodes that contains all ancestors of its nodes, and the penalties d > 0 of the nodes. A node is identified by its position
    in the order in which the nodes joined.

    The ancestors of node w, including itself, are ``indices[indptr[w]:indptr[w + 1]]``, ascending, so w is the last index.
    """

    record_name: ClassVar[str] = "Hull"
    d: FloatArray = field(default_factory=lambda: np.zeros(0))
    indptr: IntArray = field(default_factory=lambda: np.zeros(1, np.int64))
    indices: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def size(self) -> int:
        return len(self.d)

    def ancestors(self, w: int) -> IntArray:
        """Return the ancestors of a node, including itself, ascending."""
        return self.indices[self.indptr[w] : self.indptr[w + 1]]

    def descendants(self, v: int) -> IntArray:
        """Return the descendants of a node within the hull, including itself, ascending."""
        return self.transposed.rows[self.transposed.indptr[v] : self.transposed.indptr[v + 1]]

    def joined(self, d: ArrayLike, parents: Sequence[Sequence[int]]) -> Hull:
        """Return the hull extended by nodes with penalties d. The ancestors of a new node are the ancestors of its parents and the node
        itself, so the result is a hull.

        ``parents`` holds, for each new node, the positions of all its parents, which are nodes of the hull or earlier new nodes. Raises
        ValueError if a penalty is not positive and finite, or a parent is missing.
        """
        weights = np.asarray(d, dtype=np.float64).reshape(-1)
        if len(weights) != len(parents):
            raise ValueError(f"parents has {len(parents)} lists; it needs one for each of the {len(weights)} nodes")
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError(f"d={float(weights[~(weights > 0) | ~np.isfinite(weights)][0])!r}: must be positive and finite")
        lists = [self.ancestors(w) for w in range(self.size)]
        for positions in parents:
            at = len(lists)
            if any(not 0 <= p < at for p in positions):
                raise ValueError(f"node {at}: parents {list(positions)} must be positions below {at}; add ancestors first")
            lists.append(np.unique(np.concatenate([*(lists[p] for p in positions), np.array([at], np.int64)])))
        indptr = np.cumsum(np.array([0, *map(len, lists)], np.int64))
        return Hull(np.concatenate([self.d, weights]), indptr, np.concatenate(lists) if lists else np.zeros(0, np.int64))

    @cached_property
    def transposed(self) -> Transposed:
        """The same pairs of node and ancestor, ordered by ancestor: the descendants of each node."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.size)
        owners = np.repeat(np.arange(self.size), np.diff(self.indptr))
        return Transposed(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), owners[order])

    @cached_property
    def log_d(self) -> FloatArray:
        return np.log(self.d)

    def ancestor_sums(self, values: FloatArray) -> FloatArray:
        """Return, for each node w, the sum of values_v over its ancestors v, shape (W,)."""
        return np.add.reduceat(values[self.indices], self.indptr[:-1]) if self.size else np.zeros(0)

    def descendant_sums(self, values: FloatArray) -> FloatArray:
        """Return, for each node v, the sum of values_w over its descendants w, shape (W,)."""
        return np.add.reduceat(values[self.transposed.rows], self.transposed.indptr[:-1]) if self.size else np.zeros(0)


class Transposed(NamedTuple):
    """Descendants of node v, including itself, ascending: ``rows[indptr[v]:indptr[v + 1]]``."""

    indptr: IntArray
    rows: IntArray


@dataclass(frozen=True)
class NodeSet:
    """A hull together with the names of its nodes."""

    record_name: ClassVar[str] = "NodeSet"
    keys: Keys  # (W, width) int64 or uint64: whatever numbers the caller's graph uses (levels of a grid, packed bits, a number)
    hull: Hull

    @classmethod
    def empty(cls, width: int, dtype: type = np.int64) -> NodeSet:
        """Return an empty set whose names have ``width`` numbers."""
        return cls(np.zeros((0, width), dtype), Hull())

    @property
    def size(self) -> int:
        return len(self.keys)

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Position of each node by the bytes of its name."""
        return {key.tobytes(): w for w, key in enumerate(np.ascontiguousarray(self.keys))}

    def place(self, key: Keys) -> int:
        """Return the position of a node, or -1 if it is not in the set."""
        return self.places.get(np.ascontiguousarray(key, self.keys.dtype).tobytes(), -1)

    def holds(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of the nodes ``(m, width)`` are in the set, shape (m,)."""
        return np.array([self.place(key) >= 0 for key in keys], dtype=bool)

    def with_hulls(
        self, nodes: Keys, parents: Callable[[Keys], Keys], penalties: Callable[[Keys], FloatArray], limit: int | None = None
    ) -> NodeSet:
        """Return the set extended by nodes ``(m, width)``, in their order, each preceded by its missing ancestors.

        ``parents(key)`` returns all parents of a node, ``penalties(keys)`` the penalties d. A node is left out if the set would exceed
        ``limit`` nodes after adding this node and its missing ancestors.
        """
        places, new, links = dict(self.places), [], []
        for key in np.ascontiguousarray(nodes, self.keys.dtype):
            missing = _missing_ancestors(key, parents, places)
            if limit is not None and len(places) + len(missing) > limit:
                continue
            for name, node, above in missing:
                places[name] = len(places)
                new.append(node)
                links.append([places[one] for one in above])
        if not new:
            return self
        added = np.stack(new)
        return NodeSet(np.concatenate([self.keys, added]), self.hull.joined(penalties(added), links))


def _missing_ancestors(key: Keys, parents: Callable[[Keys], Keys], places: dict[bytes, int]) -> list[tuple[bytes, Keys, list[bytes]]]:
    """Return a node and its ancestors, as far as they are not in the set, ancestors first, each as (name, key, names of the parents)."""
    missing: dict[bytes, tuple[bytes, Keys, list[bytes]]] = {}
    stack = [key]
    while stack:
        node = stack.pop()
        name = node.tobytes()
        if name in places or name in missing:
            continue
        above = np.ascontiguousarray(parents(node), key.dtype)
        names = [one.tobytes() for one in above]
        if all(one in places or one in missing for one in names):
            missing[name] = (name, node, names)
        else:
            stack += [node, *above]
    return list(missing.values())

"""Sets of nodes of a directed acyclic graph that hold all ancestors of their nodes: what active sets over a graph are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Keys = NDArray[Any]
"""Names of nodes, integers of one type."""


def _no_floats() -> FloatArray:
    return np.zeros(0)


def _no_indices() -> IndexArray:
    return np.zeros(0, np.int64)


def _first_pointer() -> IndexArray:
    return np.zeros(1, np.int64)


@dataclass(frozen=True)
class Hull:
    """A set of nodes with all their ancestors, as positions 0 .. W - 1 in the order in which they joined.

    Attributes
    ----------
    d : ndarray of shape (W,)
        Penalties, positive.
    indptr, indices : ndarray of shape (W + 1,), (nnz,)
        Ancestors of node w, itself included: ``indices[indptr[w]:indptr[w + 1]]``, ascending; w is the last one.
    """

    record_name: ClassVar[str] = "Hull"
    d: FloatArray = field(default_factory=_no_floats)
    indptr: IndexArray = field(default_factory=_first_pointer)
    indices: IndexArray = field(default_factory=_no_indices)

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.d)

    def ancestors(self, w: int) -> IndexArray:
        """Return the ancestors of a node, itself included, ascending."""
        return self.indices[self.indptr[w] : self.indptr[w + 1]]

    def descendants(self, v: int) -> IndexArray:
        """Return the descendants of a node within the hull, itself included, ascending."""
        return self.turned.rows[self.turned.indptr[v] : self.turned.indptr[v + 1]]

    def joined(self, d: ArrayLike, parents: Sequence[Sequence[int]]) -> Hull:
        """Return the hull with further nodes.

        Parameters
        ----------
        d : array_like of shape (m,)
            Their penalties.
        parents : sequence of m sequences of int
            Positions of all parents of each: nodes of the hull, or those that come before it in this list. The ancestors are the parents'
            ancestors, so that the result is a hull whatever is given.

        Raises
        ------
        ValueError
            If a penalty is not positive and finite, or a parent is not there yet.
        """
        weights = np.asarray(d, dtype=np.float64).reshape(-1)
        if len(weights) != len(parents):
            raise ValueError(f"parents: {len(parents)} lists for {len(weights)} nodes")
        if not (np.isfinite(weights).all() and (weights > 0).all()):
            raise ValueError(f"d={float(weights[~(weights > 0) | ~np.isfinite(weights)][0])!r}: must be positive and finite")
        lists = [self.ancestors(w) for w in range(self.size)]
        for own in parents:
            at = len(lists)
            if any(not 0 <= p < at for p in own):
                raise ValueError(f"node {at}: parents {list(own)} must be positions below its own; ancestors join first")
            lists.append(np.unique(np.concatenate([*(lists[p] for p in own), np.array([at], np.int64)])))
        counts = [len(found) for found in lists]
        return Hull(
            np.concatenate([self.d, weights]),
            np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(counts, np.int64))]),
            np.concatenate(lists) if lists else _no_indices(),
        )

    @cached_property
    def turned(self) -> Turned:
        """The same pairs ordered by ancestor: descendants of every node."""
        order = np.argsort(self.indices, kind="stable")
        counts = np.bincount(self.indices, minlength=self.size)
        owners = np.repeat(np.arange(self.size), np.diff(self.indptr))
        return Turned(np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]), owners[order])

    @cached_property
    def log_d(self) -> FloatArray:
        """Logarithms of the penalties."""
        return np.log(self.d)

    def ancestor_sums(self, values: FloatArray) -> FloatArray:
        """Return sum over v in A(w) of values_v, shape (W,)."""
        return np.add.reduceat(values[self.indices], self.indptr[:-1]) if self.size else np.zeros(0)

    def descendant_sums(self, values: FloatArray) -> FloatArray:
        """Return sum over w in D(v) of values_w, shape (W,)."""
        return np.add.reduceat(values[self.turned.rows], self.turned.indptr[:-1]) if self.size else np.zeros(0)


class Turned(NamedTuple):
    """Descendants of node v, itself included, ascending: ``rows[indptr[v]:indptr[v + 1]]``."""

    indptr: IndexArray
    rows: IndexArray


@dataclass(frozen=True)
class NodeSet:
    """Nodes by their names, with their hull.

    Attributes
    ----------
    keys : ndarray of shape (W, width), int64 or uint64
        Name of every node: whatever numbers the caller's graph uses (levels of a grid, packed bits, a number), one row each.
    hull : Hull
    """

    record_name: ClassVar[str] = "NodeSet"
    keys: Keys
    hull: Hull

    @classmethod
    def empty(cls, width: int, dtype: type = np.int64) -> NodeSet:
        """Return no nodes, names of ``width`` numbers."""
        return cls(np.zeros((0, width), dtype), Hull())

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.keys)

    @cached_property
    def places(self) -> dict[bytes, int]:
        """Position of every node by the bytes of its name."""
        return {key.tobytes(): w for w, key in enumerate(np.ascontiguousarray(self.keys))}

    def place(self, key: Keys) -> int:
        """Return the position of a node, -1 if it is not in the set."""
        return self.places.get(np.ascontiguousarray(key, self.keys.dtype).tobytes(), -1)

    def holds(self, keys: Keys) -> NDArray[np.bool_]:
        """Return which of some nodes (m, width) are in the set, shape (m,)."""
        return np.array([self.place(key) >= 0 for key in keys], dtype=bool)

    def with_hulls(
        self,
        wanted: Keys,
        parents: Callable[[Keys], Keys],
        penalties: Callable[[Keys], FloatArray],
        limit: int | None = None,
    ) -> NodeSet:
        """Return the set with the wanted nodes, in their order, each preceded by its ancestors that are lacking.

        Parameters
        ----------
        wanted : ndarray of shape (m, width)
        parents : callable
            ``parents(key)`` gives all parents of a node, (r, width).
        penalties : callable
            ``penalties(keys)`` gives d of nodes (m, width).
        limit : int, optional
            Greatest size: nodes whose hull does not fit any more are left out.
        """
        places, new, links = dict(self.places), [], []
        for key in np.ascontiguousarray(wanted, self.keys.dtype):
            missing = _lacking(key, parents, places)
            if limit is not None and len(places) + len(missing) > limit:
                continue
            for name, own, above in missing:
                places[name] = len(places)
                new.append(own)
                links.append([places[one] for one in above])
        if not new:
            return self
        added = np.stack(new)
        return NodeSet(np.concatenate([self.keys, added]), self.hull.joined(penalties(added), links))


def _lacking(key: Keys, parents: Callable[[Keys], Keys], places: dict[bytes, int]) -> list[tuple[bytes, Keys, list[bytes]]]:
    """Return the nodes of a hull that are not there yet, ancestors first: name, key, names of its parents."""
    found: dict[bytes, tuple[bytes, Keys, list[bytes]]] = {}
    stack = [(key, False)]
    while stack:
        node, ready = stack.pop()
        name = node.tobytes()
        if name in places or name in found:
            continue
        above = np.ascontiguousarray(parents(node), key.dtype)
        names = [one.tobytes() for one in above]
        if ready or all(one in places or one in found for one in names):
            found[name] = (name, node, names)
            continue
        stack.append((node, True))
        stack.extend((one, False) for one in above)
    return list(found.values())

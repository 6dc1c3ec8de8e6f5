"""The B best of many candidates by a total order: bounded heap, threshold scan, merge of partial lists.

Candidates are ordered by ``(-key, id)``. The order is total, so local lists merged in any tree give the list of the whole (near the
optimum ties are structural, so the rule matters: docs/theory/fgm.md, "Scores and the column skip rule").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array
from ..jit import compiled
from .views import flat


class TopB(NamedTuple):
    """The B best candidates, sorted by ``(-key, id)``. ``ids``: int64 ``(b,)`` global ids, ``b <= B``; ``keys``: float64 ``(b,)`` order
    keys, all positive: ``|c_j|`` for features, the score itself for groups and expanded features; ``values``: float64 ``(b,)`` signed
    ``c_j`` for features; equal to the keys otherwise.
    """

    ids: Array
    keys: Array
    values: Array


@compiled
def offer(keys: Array, ids: Array, values: Array, size: int, key: float, identity: int, value: float) -> int:
    """Offer a candidate to a bounded heap whose root is the worst by (-key, id); return the new size."""
    if size < keys.size:
        at = size
        while at > 0:
            up = (at - 1) >> 1
            if keys[up] < key or (keys[up] == key and ids[up] > identity):
                break
            keys[at], ids[at], values[at] = keys[up], ids[up], values[up]
            at = up
        keys[at], ids[at], values[at] = key, identity, value
        return size + 1
    if key < keys[0] or (key == keys[0] and identity > ids[0]):
        return size
    at = 0
    while 2 * at + 1 < size:
        down = 2 * at + 1
        if down + 1 < size and (keys[down + 1] < keys[down] or (keys[down + 1] == keys[down] and ids[down + 1] > ids[down])):
            down += 1
        if key < keys[down] or (key == keys[down] and identity > ids[down]):
            break
        keys[at], ids[at], values[at] = keys[down], ids[down], values[down]
        at = down
    keys[at], ids[at], values[at] = key, identity, value
    return size


class Heap(NamedTuple):
    """Storage of a bounded heap (see :func:`offer`)."""

    keys: Array
    ids: Array
    values: Array

    @classmethod
    def empty(cls, size: int) -> Heap:
        """Return room for ``size`` candidates, at least one."""
        if size < 1:
            raise ValueError(f"B = {size}; at least one candidate must be asked for")
        return cls(np.zeros(size), np.zeros(size, np.int64), np.zeros(size))

    def top(self, size: int) -> TopB:
        """Return the first ``size`` entries in their total order."""
        order = np.lexsort((self.ids[:size], -self.keys[:size]))
        return TopB(self.ids[:size][order], self.keys[:size][order], self.values[:size][order])


@compiled
def _scan(keys: Array, values: Array, ids: Array, offset: int, threshold: float, hk: Array, hi: Array, hv: Array) -> tuple[int, int]:
    """Return (heap size, position of a key that is not finite or -1)."""
    size = int(np.int64(0))
    bar = max(threshold, 5e-324)
    for j in range(keys.size):
        key = keys[j]
        if key < bar:
            continue
        if not key < np.inf:
            return size, j
        size = offer(hk, hi, hv, size, key, ids[j] if ids.size else offset + j, values[j])
        if size == hk.size:
            bar = max(bar, hk[0])
    return size, -1


def refuse(identity: int) -> None:
    """Raise for a candidate whose score is not finite."""
    raise ValueError(f"the score of candidate {identity} is not finite: the values of its column times the dual vector overflow float64")


def top_b(keys: Array, values: Array, B: int, ids_or_offset: Array | int = 0, *, threshold: float = 0.0) -> TopB:
    """Return the B largest keys in the total order ``(-key, id)``; keys of zero, and keys below the threshold, never enter. ``keys``,
    ``values``: ``(k,)`` order keys (>= 0) and what to report beside them. ``ids_or_offset``: int64 ``(k,)`` ids, or the id of the first
    candidate. Raises ValueError if B < 1 or a key is NaN or infinite.
    """
    heap, listed = Heap.empty(B), isinstance(ids_or_offset, np.ndarray)
    ids = np.ascontiguousarray(ids_or_offset, dtype=np.int64) if listed else np.zeros(0, np.int64)
    offset = 0 if listed else int(ids_or_offset)
    key_vector, value_vector = (flat(np.ascontiguousarray(a, dtype=np.float64)) for a in (keys, values))
    size, bad = _scan(key_vector, value_vector, flat(ids), offset, float(threshold), *heap)
    if bad >= 0:
        refuse(int(ids[bad]) if listed else offset + bad)
    return heap.top(size)


def merge_top(tops: Sequence[TopB], B: int) -> TopB:
    """Merge partial results over disjoint candidates: associative and commutative, because the order is total."""
    if not tops:
        return TopB(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))
    ids, keys, values = (np.concatenate(parts) for parts in zip(*tops, strict=True))
    order = np.lexsort((ids, -keys))[:B]
    return TopB(ids[order], keys[order], values[order])

"""The lattice of conjunctions of basic propositions over training rows: nodes, restricted problems, and searches outside a hull.

For rows in this process, the blocked lattice (``pipeline/methods/rule_ensemble/blocked_lattice.py``) with one block would take 1.4 to 2.6
times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray, IntArray
from ..graphs.hulls import NodeSet
from .bits import MAX_UNPACKED_BYTES, Words, pack_conjunctions, pack_rows, set_bits, unpack_bits
from .machine import MergedRows, RuleProblem
from .row_losses import HINGE, RowLoss
from .search import MAX_LENGTH, SignedRows, ViolatorSearch, find_violators, known_keys, node_keys, order_signed_rows

NODES_PER_BATCH = 512  # Conjunctions whose sums over descendants are computed at once.


class Conjunctions:
    """The part of the lattice of conjunctions that needs no rows: the names, parents, penalties and hulls of nodes."""

    n: int
    rows: tuple[IntArray, ...]  # of every task, ascending; tasks may share rows (one class against the rest each)
    y: tuple[FloatArray, ...]  # -1 and +1, or real targets
    cost: tuple[FloatArray, ...]  # positive
    similarity: FloatArray  # B, (T, T), positive semidefinite
    a: float  # d = a^length
    loss: RowLoss

    @property
    def p(self) -> int:
        raise NotImplementedError

    @cached_property
    def root(self) -> FloatArray:
        """L with ``B = L L'``, where B is the similarity of the tasks; L is diagonal if B is diagonal."""
        B = self.similarity
        if not np.any(B - np.diag(np.diag(B))):
            return np.diag(np.sqrt(np.diag(B)))
        values, vectors = np.linalg.eigh(B)
        positive = values > 1e-12 * max(float(values.max(initial=0.0)), 0.0)
        return np.ascontiguousarray(vectors[:, positive] * np.sqrt(values[positive]))

    @property
    def width(self) -> int:
        """Number of words in a node's name, which has one bit per proposition."""
        return max(-(-self.p // 64), 1)

    def named(self, items: Sequence[Sequence[int]]) -> Words:
        """Return the names of conjunctions, (m, width)."""
        out = np.zeros((len(items), self.width), np.uint64)
        for row, item in zip(out, items, strict=True):
            for e in item:
                row[int(e) >> 6] |= np.uint64(1) << np.uint64(int(e) & 63)
        return out

    def items(self, keys: Words) -> list[list[int]]:
        """Return the propositions of each node, ascending."""
        return set_bits(keys)

    def parents(self, key: Words) -> Words:
        """Return the node's parents: the conjunctions that lack one of its propositions."""
        bits = list[tuple[int, int]]()
        for word in np.flatnonzero(key).tolist():
            value = int(key[word])
            while value:
                lowest = value & -value
                bits.append((word, lowest))
                value ^= lowest
        out = np.repeat(key[None, :], len(bits), axis=0)
        for row, (word, bit) in zip(out, bits, strict=True):
            row[word] ^= np.uint64(bit)
        return out

    def penalties(self, keys: Words) -> FloatArray:
        """Return the penalties d of nodes."""
        return float(self.a) ** np.bitwise_count(keys).sum(axis=1).astype(np.float64)

    def hull(self, keys: Words, before: NodeSet | None = None) -> NodeSet:
        """Return nodes with all their ancestors."""
        return (before or NodeSet.empty(self.width, np.uint64)).with_hulls(keys, self.parents, self.penalties)

    def start(self, most: int) -> NodeSet:
        """Return the empty conjunction and the single propositions, at most ``most``, that separate the labels best."""
        forms = self.single_forms()
        best = [int(e) for e in np.argsort(-forms, kind="stable")[:most] if forms[e] > 0]
        return self.hull(self.named([[], *([e] for e in sorted(best))]))

    def single_forms(self) -> FloatArray:
        """Return M of the single propositions for multipliers of a model without rules."""
        sums = np.zeros((self.p, len(self.rows)))
        for t, (rows, y, cost) in enumerate(zip(self.rows, self.y, self.cost, strict=True)):
            balanced = self.loss.null_multipliers(y, cost)
            if balanced is None:
                continue
            weight = np.zeros(self.n)
            weight[rows] = balanced
            sums[:, t] = self.products(weight)
        return np.sum((sums @ self.root) ** 2, axis=1)

    def products(self, weight: FloatArray) -> FloatArray:
        """Return for each proposition the sum of a weight (n,) over the rows where the proposition holds."""
        raise NotImplementedError

    @cached_property
    def unit(self) -> float:
        """The most frequent cost of a row. Multipliers equal to this cost, their upper bound, are counted as bits instead of being
        added. Multipliers without a bound are never counted.
        """
        if not self.loss.is_bounded:
            return float(np.finfo(float).max)
        values, amounts = np.unique(np.concatenate(self.cost), return_counts=True)
        return float(values[np.argmax(amounts)])


def weighted_counts(columns: Words, n: int, weight: FloatArray) -> FloatArray:
    """Return for each packed column the sum of a weight (n,) over its rows."""
    # As bytes, and as the numbers that a product makes of them.
    step = max(MAX_UNPACKED_BYTES // (9 * max(n, 1)), 1)
    return np.concatenate([np.zeros(0), *(unpack_bits(columns[lo : lo + step], n) @ weight for lo in range(0, len(columns), step))])


def rule_decisions(
    columns: Words, n: int, rows: Sequence[IntArray], items: Sequence[Sequence[int]], weights: FloatArray, step: int | None = None
) -> list[FloatArray]:
    """Return sum_r w_rt phi_r on the rows of each task, for conjunctions of packed columns with weights ``(r, T)``.

    ``step`` rows are unpacked at a time; ``None`` means all.
    """
    if not len(items):
        return [np.zeros(len(ids)) for ids in rows]
    flags = unpack_bits(pack_conjunctions([list(item) for item in items], columns, n), n)
    parts = ([ids[lo : lo + (step or len(ids))] for lo in range(0, len(ids), step or len(ids) or 1)] or [ids] for ids in rows)
    numbers = ([flags.T[some].astype(np.float64) @ np.ascontiguousarray(weights[:, t]) for some in ids] for t, ids in enumerate(parts))
    return [np.concatenate(values) if len(values) > 1 else values[0] for values in numbers]


@dataclass(frozen=True)
class RuleLattice(Conjunctions):
    """Propositions as packed columns, with the rows, labels and costs of each task."""

    columns: Words  # (p, words) over the n rows
    n: int
    rows: tuple[IntArray, ...]
    y: tuple[FloatArray, ...]
    cost: tuple[FloatArray, ...]
    similarity: FloatArray
    a: float
    skip: bool = True  # leave out conjunctions with two propositions of which one implies or contradicts the other on the rows
    loss: RowLoss = HINGE

    @property
    def p(self) -> int:
        return len(self.columns)

    @cached_property
    def keys(self) -> NDArray[np.uint64]:
        """Random bits of the propositions, by which a search identifies a conjunction."""
        return node_keys(self.p)

    def products(self, weight: FloatArray) -> FloatArray:
        """Return for each proposition the sum of a weight (n,) over the rows where the proposition holds."""
        return weighted_counts(self.columns, self.n, weight)

    def decisions(self, items: Sequence[Sequence[int]], weights: FloatArray) -> list[FloatArray]:
        """Return sum_r w_rt phi_r on the rows of each task, for conjunctions with weights ``(r, T)``."""
        return rule_decisions(self.columns, self.n, self.rows, items, weights)

    def flags(self, nodes: NodeSet) -> NDArray[np.uint8]:
        """Return the columns of a hull, (W, n) zeros and ones."""
        return unpack_bits(pack_conjunctions(self.items(nodes.keys), self.columns, self.n), self.n)

    def problem(self, nodes: NodeSet, rho: float) -> RuleProblem:
        """Return the problem on a hull."""
        packed = pack_rows(self.flags(nodes))
        tasks = [MergedRows.of(packed[rows], y, cost, self.loss) for rows, y, cost in zip(self.rows, self.y, self.cost, strict=True)]
        return RuleProblem(nodes.hull, tasks, self.root, rho, loss=self.loss)

    def signed(self, alpha: Sequence[FloatArray]) -> SignedRows:
        """Return the rows in the order in which a search counts them."""
        signs = [self.loss.signs(y) for y in self.y]
        return order_signed_rows(self.columns, self.n, self.rows, signs, alpha, self.similarity, self.unit)

    def outside(
        self, nodes: NodeSet, alpha: Sequence[FloatArray], threshold: float, *,
        frontier: bool, depth: int = MAX_LENGTH, visits: int = 1 << 40, most: int = 1 << 40, rows: SignedRows | None = None,
    ) -> ViolatorSearch:  # fmt: skip
        """Search for nodes outside the hull with M / d^2 above the threshold, either everywhere or, with ``frontier``, only among the
        children of the hull.

        With ``frontier``, only the ``most`` propositions with the largest bounds, and those in the hull, are combined.
        """
        known = known_keys(self.items(nodes.keys), self.keys)
        signed = self.signed(alpha) if rows is None else rows
        truth = self.columns if self.skip else None
        limits: dict[str, Any] = {"frontier": frontier, "depth": depth, "visits": visits, "most": most}
        return find_violators(signed, known, self.keys, truth, self.a, threshold, **limits)

    def descendant_bound(self, nodes: NodeSet, alpha: Sequence[FloatArray]) -> float:
        """Return the thesis' bound of the squared dual gauge outside a hull, over the whole lattice, from one matrix.

        The bound is the maximum of z_u' K_u z_u over the conjunctions u whose parents are all in the hull. K_u is the sum over all
        descendants, entry by entry (A.1.11): K_u = (a^-2 / (1 + b))^|u| (phi_u phi_u') * (1 + b)^(X X'), with b = (1 + a)^-2. All pairs of
        rows are used. The computation stores n^2 numbers, and the bound grows with (1 + b)^p, so it is meant for few rows and propositions.
        """
        X, items = unpack_bits(self.columns, self.n).T.astype(np.float64), self.items(nodes.keys)
        known = {tuple(item) for item in items}
        new = {tuple(sorted((*item, e))) for item in items for e in range(self.p) if e not in item} - known
        frontier = [u for u in sorted(new) if all(u[:k] + u[k + 1 :] in known for k in range(len(u)))]
        b = (1.0 + self.a) ** -2
        R, Z = (1.0 + b) ** (X @ X.T), np.zeros((len(self.rows), self.n))
        for t, (rows, y, value) in enumerate(zip(self.rows, self.y, alpha, strict=True)):
            Z[t, rows] = self.loss.signs(y) * value
        best = 0.0
        for lo in range(0, len(frontier), NODES_PER_BATCH):
            some = frontier[lo : lo + NODES_PER_BATCH]
            phi = np.stack([X[:, list(u)].all(axis=1) for u in some], axis=1).astype(np.float64)
            # sum over s and t of B_st z_s' R z_t, z_s = phi * Z_s, by the root of B.
            forms = sum((part * (R @ part)).sum(axis=0) for part in (phi * row[:, None] for row in self.root.T @ Z))
            best = max(best, float(np.max((self.a**-2 / (1.0 + b)) ** np.array([len(u) for u in some]) * forms)))
        return best

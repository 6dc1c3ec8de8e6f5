"""Directed acyclic graphs of kernels: grids of products of one kernel per feature, and explicitly listed graphs.

A node has a name (a row of integers), parents, a depth, a penalty d > 0 and a kernel. The graph is never listed as a whole. Source: Bach,
"Exploring Large Feature Spaces with Hierarchical Multiple Kernel Learning", NIPS 2008 (grids); Jawanpuria, PhD thesis, IIT Bombay, 2014,
chapter 5 (any graph).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np

from ..grams.functions import KERNELS
from ..grams.products import Factor, ProductSpec
from ..grams.spec import KernelSpec

Keys = np.ndarray


@runtime_checkable
class KernelDag(Protocol):
    """Interface of a graph of kernels; nodes are named by rows of int64."""

    @property
    def width(self) -> int:
        """Number of integers in a name."""
        ...

    @property
    def size(self) -> int: ...

    def roots(self) -> Keys:
        """Return the nodes without parents, ``(r, width)``."""
        ...

    def children(self, key: Keys) -> Keys:
        """Return the children of a node, ``(c, width)``."""
        ...

    def parents(self, key: Keys) -> Keys:
        """Return all parents of a node, ``(r, width)``."""
        ...

    def depth(self, keys: Keys) -> np.ndarray:
        """Return the depth of nodes ``(m, width)``, shape ``(m,)``: 0 for roots; a child is deeper than its parents."""
        ...

    def penalties(self, keys: Keys) -> np.ndarray:
        """Return the penalties d > 0 of nodes ``(m, width)``, shape ``(m,)``."""
        ...

    def kernel(self, key: Keys) -> ProductSpec:
        """Return the kernel of a node."""
        ...

    def below(self, key: Keys) -> ProductSpec | None:
        """Return ``sum over w in D(u) of K_w / (sum over v in A(w) and D(u) of d_v)^2`` in closed form, or ``None`` if there is no closed
        form.
        """
        ...

    @property
    def shrinks(self) -> float:
        """Smallest factor by which the penalty d grows from a node to any of its descendants. The value is 0 unless all kernel entries are
        in [0, 1] and never increase from a node to a descendant.
        """
        ...


@dataclass(frozen=True)
class KernelGrid:
    """Products of at most one kernel per feature, taken from a chain of kernels for that feature: ``K_u = prod_j k_j^(u_j)``, ``k_j^(0) =
    1``.

    With chains of one kernel the nodes are the subsets of the features (ANOVA). A child is one step further along one chain. Penalties are
    ``a^(u_1 + ... + u_p)``, and the largest depth ``u_1 + ... + u_p`` is ``limit``. ``scales`` are multipliers of the kernels. Raises
    ValueError if there is no dimension, a chain is empty, ``a`` is not positive, or the limit is below 1.
    """

    chains: tuple[tuple[KernelSpec, ...], ...]
    a: float = 2.0
    limit: int | None = None
    scales: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not self.chains or not all(self.chains):
            raise ValueError("a grid of kernels needs at least one dimension, and a kernel in each")
        _check_base(self.a)
        if self.limit is not None and (self.limit != int(self.limit) or self.limit < 1):
            raise ValueError(f"depth={self.limit!r}: must be a whole number of at least 1")

    @property
    def width(self) -> int:
        """Number of dimensions; a node's name has one integer per dimension."""
        return len(self.chains)

    @cached_property
    def lengths(self) -> np.ndarray:
        """Highest level of each dimension."""
        return np.array([len(chain) for chain in self.chains], np.int64)

    @property
    def size(self) -> int:
        if self.limit is None:
            return math.prod((self.lengths + 1).tolist())
        counts = [1]
        for length in self.lengths.tolist():
            grown = [0] * (len(counts) + length)
            for at, count in enumerate(counts):
                for level in range(length + 1):
                    grown[at + level] += count
            counts = grown[: self.limit + 1]
        return sum(counts)

    def roots(self) -> Keys:
        return np.zeros((1, self.width), np.int64)

    def children(self, key: Keys) -> Keys:
        """Return the nodes one step further along one chain."""
        if self.limit is not None and key.sum() >= self.limit:
            return np.zeros((0, self.width), np.int64)
        return self._steps(key, np.flatnonzero(key < self.lengths), 1)

    def parents(self, key: Keys) -> Keys:
        """Return the nodes one step back along one chain."""
        return self._steps(key, np.flatnonzero(key), -1)

    def _steps(self, key: Keys, chains: Keys, by: int) -> Keys:
        """Return, for each given chain, the node ``by`` steps along it, without building an array of ``width x width`` entries."""
        nodes = np.repeat(key[None], len(chains), axis=0)
        nodes[np.arange(len(chains)), chains] += by
        return nodes

    def depth(self, keys: Keys) -> np.ndarray:
        """Return the sums of the levels."""
        return keys.sum(axis=1)

    def penalties(self, keys: Keys) -> np.ndarray:
        return float(self.a) ** keys.sum(axis=1)

    def _scale(self, j: int, level: int) -> float:
        return 1.0 if self.scales is None or level == 0 else self.scales[j][level - 1]

    def kernel(self, key: Keys) -> ProductSpec:
        """Return the product of the kernels at a node's levels."""
        used = [(int(j), int(key[j])) for j in np.flatnonzero(key)]
        return ProductSpec.of([self.chains[j][level - 1] for j, level in used], math.prod(self._scale(j, level) for j, level in used))

    def below(self, key: Keys) -> ProductSpec:
        """Return the sum over the descendants as a product over the dimensions. A depth limit is ignored, so the result is an
        upper bound.
        """
        return ProductSpec(tuple(self._tail(j, int(level)) for j, level in enumerate(key)))

    def _tail(self, j: int, level: int) -> Factor:
        terms, total = [], 0.0
        for at in range(level, len(self.chains[j]) + 1):
            total += self.a**at
            terms.append((self._scale(j, at) / total**2, None if at == 0 else self.chains[j][at - 1]))
        return tuple(terms)

    @property
    def shrinks(self) -> float:
        """If no kernel is scaled, and the kernels of every chain decay from 1, wider ones first: ``a``, or, for ``a`` below 1, its smallest
        power in the grid. Otherwise 0.
        """
        if not all(_is_decaying(chain) for chain in self.chains) or any(scale != 1.0 for scales in self.scales or () for scale in scales):
            return 0.0
        return self.a if self.a >= 1 else self.a ** (int(self.lengths.sum()) if self.limit is None else self.limit)

    def scaled(self, scales: Sequence[Sequence[float]]) -> KernelGrid:
        """Return the grid with other multipliers of its kernels."""
        return KernelGrid(self.chains, self.a, self.limit, tuple(tuple(float(one) for one in chain) for chain in scales))


def _is_decaying(chain: tuple[KernelSpec, ...]) -> bool:
    first = chain[0]
    if not KERNELS[first.name].decays or any(spec.name != first.name or spec.columns != first.columns for spec in chain):
        return False
    gammas = [float(spec.arguments["gamma"]) for spec in chain]
    return gammas == sorted(gammas)


def _check_base(a: float) -> None:
    if not (np.isfinite(a) and a > 0):
        raise ValueError(f"a={a!r}: must be positive and finite")


class KernelList:
    """An explicitly listed graph: distinct nodes, with the kernel of each and the names of its parents.

    Kernels may be short texts such as ``rbf(gamma=1.0)[0] * linear[3]``. Penalties not given by name are ``a^depth``, where the depth is
    the longest path from a root. Raises ValueError if there is no node, a name occurs twice, a parent is unknown, there is a cycle (the
    message names it), or a penalty is not positive.
    """

    width = 1
    shrinks = 0.0

    def __init__(
        self,
        names: Sequence[str],
        kernels: Sequence[ProductSpec | KernelSpec | str],
        parents: Sequence[Iterable[str]],
        a: float = 2.0,
        penalties: Mapping[str, float] | None = None,
    ) -> None:
        self.names, self.a = tuple(str(name) for name in names), float(a)
        _check_base(self.a)
        if not self.names:
            raise ValueError("a graph of kernels needs at least one node")
        if len(set(self.names)) < len(self.names):
            twice = next(name for name in self.names if self.names.count(name) > 1)
            raise ValueError(f"node {twice!r} occurs twice; names must be distinct")
        self.kernels = tuple(_parse_product(name, kernel) for name, kernel in zip(self.names, kernels, strict=True))
        self._up = self._linked(parents)
        self._depth = self._depths()
        by_name = dict(penalties or {})
        for name, value in by_name.items():
            if name not in self.names:
                raise ValueError(f"d: there is no node {name!r}")
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"node {name!r}: d={value!r} must be positive and finite")
        self._d = np.array([float(by_name.get(name, self.a ** int(depth))) for name, depth in zip(self.names, self._depth, strict=True)])
        self._down: list[list[int]] = [[] for _ in self.names]
        for node, above in enumerate(self._up):
            for one in above:
                self._down[one].append(node)

    def _linked(self, parents: Sequence[Iterable[str]]) -> list[list[int]]:
        position, links = {name: at for at, name in enumerate(self.names)}, []
        for name, above in zip(self.names, parents, strict=True):
            unknown = [one for one in above if one not in position]
            if unknown:
                raise ValueError(f"node {name!r}: there is no parent {unknown[0]!r}; the nodes are {', '.join(self.names[:10])}")
            links.append(sorted({position[one] for one in above}))
        return links

    def _depths(self) -> np.ndarray:
        depth, left = np.zeros(len(self.names), np.int64), set(range(len(self.names)))
        while left:
            ready = [node for node in left if not left.intersection(self._up[node])]
            if not ready:
                raise ValueError(f"the graph has a cycle: {' -> '.join(self.names[node] for node in self._cycle(left))}")
            for node in ready:
                depth[node] = max((depth[one] + 1 for one in self._up[node]), default=0)
            left.difference_update(ready)
        return depth

    def _cycle(self, left: set[int]) -> list[int]:
        """Return a cycle, parents first, among nodes that all have a parent in the set."""
        walk = [min(left)]
        while walk[-1] not in walk[:-1]:
            walk.append(min(left.intersection(self._up[walk[-1]])))
        return walk[walk.index(walk[-1]) :][::-1]

    @property
    def size(self) -> int:
        return len(self.names)

    def roots(self) -> Keys:
        """Return the nodes without parents."""
        return _as_keys([node for node, above in enumerate(self._up) if not above])

    def children(self, key: Keys) -> Keys:
        """Return the nodes that have this node as a parent."""
        return _as_keys(self._down[int(key[0])])

    def parents(self, key: Keys) -> Keys:
        """Return the parents of a node."""
        return _as_keys(self._up[int(key[0])])

    def depth(self, keys: Keys) -> np.ndarray:
        return self._depth[keys[:, 0]]

    def penalties(self, keys: Keys) -> np.ndarray:
        return self._d[keys[:, 0]]

    def kernel(self, key: Keys) -> ProductSpec:
        return self.kernels[int(key[0])]

    def below(self, key: Keys) -> None:
        """Return None: such a graph has no closed form and is searched node by node."""
        return

    def scaled(self, scales: Sequence[float]) -> KernelList:
        """Return the graph with other multipliers of its kernels, one per node."""
        kernels = [ProductSpec(spec.factors, spec.scale * float(scale)) for spec, scale in zip(self.kernels, scales, strict=True)]
        up = [[self.names[one] for one in above] for above in self._up]
        return KernelList(self.names, kernels, up, self.a, dict(zip(self.names, self._d.tolist(), strict=True)))


def _parse_product(name: str, kernel: ProductSpec | KernelSpec | str) -> ProductSpec:
    if isinstance(kernel, ProductSpec):
        return kernel
    try:
        return ProductSpec.of([kernel]) if isinstance(kernel, KernelSpec) else ProductSpec.parse(kernel)
    except (ValueError, TypeError) as error:
        raise ValueError(f"node {name!r}: {error}") from None


def _as_keys(nodes: Sequence[int]) -> Keys:
    return np.array(nodes, np.int64).reshape(-1, 1)

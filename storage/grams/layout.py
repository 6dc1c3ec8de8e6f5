"""How Gram matrices are cut into blocks: from their order, their number, the element type and a byte budget alone."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import isqrt

from ..blocks.arrays import MAX_CHUNK_BYTES
from ..errors import SchemaError

OBJECT_BYTES = 32 << 20
"""Default bytes of one object: the blocks of all kernels of a bundle at one block pair."""

MAX_BLOCKS = 4096
"""Most row blocks: the pairs are listed one by one."""

_STEP = 16
_LEAST = 256
"""Blocks are not cut smaller than this: kernels are divided into several bundles instead."""


def plan_block(n: int, n_kernels: int, itemsize: int, budget: int = OBJECT_BYTES) -> int:
    """Rows of one block: as many as ``budget`` bytes allow for all kernels at once, then evened out, so that little is padding."""
    fits = isqrt(max(0, budget) // (itemsize * max(1, n_kernels)))
    fewest = -(-n // (MAX_BLOCKS * _STEP)) * _STEP
    max_rows = max(_LEAST, fewest, fits // _STEP * _STEP)
    if n <= max_rows:
        return n
    pieces = -(-n // max_rows)
    return -(-n // (pieces * _STEP)) * _STEP


@dataclass(frozen=True)
class GramLayout:
    """Symmetric n x n matrices in square blocks, of which the upper triangle is kept.

    With groups (their sizes), only the squares of the groups on the diagonal are kept, each cut from its own beginning: no block holds rows
    of two groups, and no block pair joins two. The last block of a group may have fewer rows.
    """

    n: int
    block: int
    groups: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not (type(self.n) is type(self.block) is int and 1 <= self.block <= self.n < 2**31):
            raise SchemaError(f"n is {self.n!r} and block {self.block!r}; both must be integers with 1 <= block <= n < 2^31")
        if self.groups and (any(type(size) is not int or size < 1 for size in self.groups) or sum(self.groups) != self.n):
            total = sum(self.groups)
            raise SchemaError(f"groups are {len(self.groups)} sizes that add up to {total}; they must be positive and add up to {self.n}")
        if self.n_pairs > MAX_BLOCKS * (MAX_BLOCKS + 1) // 2:
            raise SchemaError(f"n is {self.n} and block {self.block}: {self.n_blocks} row blocks; the limit is {MAX_BLOCKS}")

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """First rows of the groups, and n."""
        return (0, *accumulate(self.groups or (self.n,)))

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        """First blocks of the groups, and their number."""
        return (0, *accumulate(-(-(hi - lo) // self.block) for lo, hi in pairwise(self._starts)))

    @cached_property
    def _spans(self) -> tuple[tuple[int, int], ...]:
        cuts = ((start, min(hi, start + self.block)) for lo, hi in pairwise(self._starts) for start in range(lo, hi, self.block))
        return tuple(cuts)

    @property
    def n_blocks(self) -> int:
        """Number of row blocks."""
        return self._firsts[-1]

    @property
    def n_pairs(self) -> int:
        """Number of block pairs: m (m + 1) / 2 for m blocks of a group, added up."""
        return sum((hi - lo) * (hi - lo + 1) // 2 for lo, hi in pairwise(self._firsts))

    @property
    def side(self) -> int:
        """Order of the stored array: with groups every block has the full size, what its rows leave is padding."""
        return self.n_blocks * self.block if self.groups else self.n

    @property
    def edges(self) -> tuple[int, ...]:
        """Cut positions, from 0 to n."""
        return (*(lo for lo, _ in self._spans), self.n)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the block pairs (i, j) with i <= j, row by row."""
        return ((i, j) for lo, hi in pairwise(self._firsts) for i in range(lo, hi) for j in range(i, hi))

    def span(self, i: int) -> tuple[int, int]:
        """Half-open range of the rows of block i."""
        return self._spans[i]

    def shape(self, i: int, j: int) -> tuple[int, int]:
        """Rows and columns of block pair (i, j), without padding."""
        (a, b), (c, d) = self.span(i), self.span(j)
        return b - a, d - c

    def check(self, i: int, j: int) -> None:
        """Raise SchemaError at block numbers outside the matrix, naming the limit."""
        if not (0 <= i < self.n_blocks and 0 <= j < self.n_blocks):
            raise SchemaError(f"block pair ({i}, {j}) does not exist: the Gram matrix has {self.n_blocks} row blocks of {self.block}")
        if self.groups and bisect_right(self._firsts, i) != bisect_right(self._firsts, j):
            raise SchemaError(f"block pair ({i}, {j}) joins two groups of rows, of which only the squares on the diagonal are kept")

    def bundle_sizes(self, n_kernels: int, itemsize: int, budget: int) -> list[int]:
        """Divide kernels into bundles of about equal size whose objects keep to the budget, at least one kernel each."""
        plane = self.block * self.block * itemsize
        if plane > MAX_CHUNK_BYTES:
            raise SchemaError(f"block {self.block} makes objects of {plane} bytes; the limit is {MAX_CHUNK_BYTES}")
        max_kernels = max(1, min(budget, MAX_CHUNK_BYTES) // plane)
        count = -(-n_kernels // max_kernels)
        return [n_kernels // count + (k < n_kernels % count) for k in range(count)]

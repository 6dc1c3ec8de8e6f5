"""How Gram matrices are cut into blocks: from their order, their number, the element type and a byte budget alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

from .arrays import MAX_CHUNK_BYTES
from .errors import SchemaError

OBJECT_BYTES = 32 << 20
"""Default bytes of one object: the blocks of all kernels of a bundle at one block pair."""

MAX_BLOCKS = 4096
"""Most row blocks: the pairs are listed one by one."""

_STEP = 16
_LEAST = 256
"""Blocks are not cut smaller than this: kernels are divided into several bundles instead."""


def plan_block(n: int, n_kernels: int, itemsize: int, budget: int = OBJECT_BYTES) -> int:
    """Rows of one block: as many as the budget allows for all kernels at once, then evened out, so that little is padding.

    Parameters
    ----------
    n : int
        Order of the matrices.
    n_kernels : int
        Kernels computed together.
    itemsize : int
        Bytes of one element.
    budget : int
        Bytes of one object, about.
    """
    fits = isqrt(max(0, budget) // (itemsize * max(1, n_kernels)))
    fewest = -(-n // (MAX_BLOCKS * _STEP)) * _STEP
    most = max(_LEAST, fewest, fits // _STEP * _STEP)
    if n <= most:
        return n
    pieces = -(-n // most)
    return -(-n // (pieces * _STEP)) * _STEP


@dataclass(frozen=True)
class GramLayout:
    """Symmetric n x n matrices in square blocks, of which the upper triangle is kept.

    Attributes
    ----------
    n : int
        Order.
    block : int
        Rows of a block; the last one may have fewer.
    """

    n: int
    block: int

    def __post_init__(self) -> None:
        if not (type(self.n) is type(self.block) is int and 1 <= self.block <= self.n < 2**31):
            raise SchemaError(f"n is {self.n!r} and block {self.block!r}; both must be integers with 1 <= block <= n < 2^31")
        if self.n_blocks > MAX_BLOCKS:
            raise SchemaError(f"n is {self.n} and block {self.block}: {self.n_blocks} row blocks; the limit is {MAX_BLOCKS}")

    @property
    def n_blocks(self) -> int:
        """Number of row blocks, m."""
        return -(-self.n // self.block)

    @property
    def n_pairs(self) -> int:
        """Number of block pairs, m (m + 1) / 2."""
        return self.n_blocks * (self.n_blocks + 1) // 2

    @property
    def edges(self) -> tuple[int, ...]:
        """Cut positions, from 0 to n."""
        return (*range(0, self.n, self.block), self.n)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the block pairs (i, j) with i <= j, row by row."""
        return ((i, j) for i in range(self.n_blocks) for j in range(i, self.n_blocks))

    def span(self, i: int) -> tuple[int, int]:
        """Half-open range of the rows of block i."""
        return i * self.block, min(self.n, (i + 1) * self.block)

    def shape(self, i: int, j: int) -> tuple[int, int]:
        """Rows and columns of block pair (i, j), without padding."""
        (a, b), (c, d) = self.span(i), self.span(j)
        return b - a, d - c

    def check(self, i: int, j: int) -> None:
        """Refuse block numbers outside the matrix.

        Raises
        ------
        SchemaError
            Naming the numbers and the limit.
        """
        if not (0 <= i < self.n_blocks and 0 <= j < self.n_blocks):
            raise SchemaError(f"block pair ({i}, {j}) does not exist: the Gram matrix has {self.n_blocks} row blocks of {self.block}")

    def bundle_sizes(self, n_kernels: int, itemsize: int, budget: int) -> list[int]:
        """Divide kernels into bundles of about equal size whose objects keep to the budget, at least one kernel each.

        Raises
        ------
        SchemaError
            If the block of a single kernel is larger than any object may be.
        """
        plane = self.block * self.block * itemsize
        if plane > MAX_CHUNK_BYTES:
            raise SchemaError(f"block {self.block} makes objects of {plane} bytes; the limit is {MAX_CHUNK_BYTES}")
        most = max(1, min(budget, MAX_CHUNK_BYTES) // plane)
        count = -(-n_kernels // most)
        return [n_kernels // count + (k < n_kernels % count) for k in range(count)]

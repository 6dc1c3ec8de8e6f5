"""Division of Gram matrices into blocks. It depends only on the number of rows, the number of matrices, the element type and a budget
in bytes.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from math import isqrt
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..blocks.arrays import MAX_CHUNK_BYTES, crc32c
from ..errors import DigestMismatch, SchemaError
from ..objects import Bytes, as_bytes

OBJECT_BYTES = 32 << 20
"""Default size of one object in bytes: the blocks of all kernels of a bundle at one block pair."""

MAX_BLOCKS = 4096
"""Largest number of row blocks; the number is limited because block pairs are listed one by one."""

_STEP = 16
_LEAST = 256
"""Smallest block size; instead of smaller blocks, kernels are divided into several bundles."""


def plan_block(n: int, n_kernels: int, itemsize: int, budget: int = OBJECT_BYTES) -> int:
    """Return the number of rows of a block: as many as ``budget`` bytes allow for all kernels, then reduced so that blocks of equal size
    need little padding.
    """
    fits = isqrt(max(0, budget) // (itemsize * max(1, n_kernels)))
    fewest = -(-n // (MAX_BLOCKS * _STEP)) * _STEP
    max_rows = max(_LEAST, fewest, fits // _STEP * _STEP)
    if n <= max_rows:
        return n
    pieces = -(-n // max_rows)
    return -(-n // (pieces * _STEP)) * _STEP


@dataclass(frozen=True)
class GramLayout:
    """Symmetric n x n matrices in square blocks, of which the upper triangle is stored.

    With groups (given by size), only the square of each group on the diagonal is stored. The squares are divided into blocks separately: no
    block contains rows of two groups, and no block pair joins two groups. The last block of a group may have fewer rows.
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
        """First rows of the groups, followed by n."""
        return (0, *accumulate(self.groups or (self.n,)))

    @cached_property
    def _firsts(self) -> tuple[int, ...]:
        """First blocks of the groups, followed by the number of blocks."""
        return (0, *accumulate(-(-(hi - lo) // self.block) for lo, hi in pairwise(self._starts)))

    @cached_property
    def _spans(self) -> tuple[tuple[int, int], ...]:
        cuts = ((start, min(hi, start + self.block)) for lo, hi in pairwise(self._starts) for start in range(lo, hi, self.block))
        return tuple(cuts)

    @property
    def n_blocks(self) -> int:
        return self._firsts[-1]

    @property
    def n_pairs(self) -> int:
        """Number of block pairs: the sum over groups of m (m + 1) / 2, where m is the number of blocks of the group."""
        return sum((hi - lo) * (hi - lo + 1) // 2 for lo, hi in pairwise(self._firsts))

    @property
    def side(self) -> int:
        """Number of rows of the stored square array; with groups, each block counts with its full size."""
        return self.n_blocks * self.block if self.groups else self.n

    @property
    def edges(self) -> tuple[int, ...]:
        """Cut positions, from 0 to n."""
        return (*(lo for lo, _ in self._spans), self.n)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the block pairs (i, j) with i <= j, row by row."""
        return ((i, j) for lo, hi in pairwise(self._firsts) for i in range(lo, hi) for j in range(i, hi))

    def span(self, i: int) -> tuple[int, int]:
        """Return the half-open range of rows of block i."""
        return self._spans[i]

    def shape(self, i: int, j: int) -> tuple[int, int]:
        """Return the rows and columns of block pair (i, j), without padding."""
        (a, b), (c, d) = self.span(i), self.span(j)
        return b - a, d - c

    def check(self, i: int, j: int) -> None:
        """Raise SchemaError for block numbers outside the matrix, naming the limit."""
        if not (0 <= i < self.n_blocks and 0 <= j < self.n_blocks):
            raise SchemaError(f"block pair ({i}, {j}) does not exist: the Gram matrix has {self.n_blocks} row blocks of {self.block}")
        if self.groups and bisect_right(self._firsts, i) != bisect_right(self._firsts, j):
            raise SchemaError(f"block pair ({i}, {j}) joins two groups of rows, but only pairs within a group are stored")

    def bundle_sizes(self, n_kernels: int, itemsize: int, budget: int) -> list[int]:
        """Divide kernels into bundles of about equal size whose objects stay within the budget, with at least one kernel each."""
        plane = self.block * self.block * itemsize
        if plane > MAX_CHUNK_BYTES:
            raise SchemaError(f"block {self.block} makes objects of {plane} bytes; the limit is {MAX_CHUNK_BYTES}")
        max_kernels = max(1, min(budget, MAX_CHUNK_BYTES) // plane)
        count = -(-n_kernels // max_kernels)
        return [n_kernels // count + (k < n_kernels % count) for k in range(count)]


# What the task that wrote a Gram block notes beside it: checksums after every kernel, and its share of the matrix' sums.

Vector = npt.NDArray[np.float64]


class GramSums(NamedTuple):
    """Sums over one raw Gram matrix K, sufficient for every centring and normalisation.

    * ``trace``: sum_i K_ii.
    * ``diagonal`` (n,): K_ii.
    * ``row_sums`` (n,): sum_j K_ij.
    * ``total``: sum_ij K_ij.
    """

    trace: float
    diagonal: Vector
    row_sums: Vector
    total: float


@dataclass(frozen=True, eq=False)
class BlockRecord:
    """Record of one written object, stored as a chunk of a float64 Zarr array.

    * ``running``, uint32 (k,): the crc32c of the object up to the end of each kernel. To check a single kernel, the checksum of the kernel
      before it is extended by the kernel's bytes; the result must be the checksum of the kernel.
    * ``sums``, (k, 2, b): ``[:, 0]`` holds the sums over the columns of the block; ``[:, 1]`` holds the sums over its rows or, for a
      diagonal block, the diagonal. Entries beyond the edges are NaN.
    """

    running: npt.NDArray[np.uint32]
    sums: Vector

    def encode(self, identity: str) -> Vector:
        """Return the stored form: [checksum of identity and rest, running, sums]."""
        payload = np.concatenate([self.running.astype(np.float64), self.sums.reshape(-1)]).astype("<f8")
        return np.concatenate([[float(crc32c(identity.encode(), payload))], payload]).astype("<f8")

    @classmethod
    def decode(cls, data: Bytes, identity: str, k: int, block: int, where: str) -> "BlockRecord":
        """Read the stored form. Raises DigestMismatch if its length or checksum is wrong, or if the record belongs to another block."""
        length = record_length(k, block)
        if data.nbytes != 8 * length:
            raise DigestMismatch(f"{where}, bytes 0:{8 * length}: the object has {data.nbytes} bytes instead of {8 * length}")
        stored = data.view("<f8").astype(np.float64, copy=False)
        if stored[0] != crc32c(identity.encode(), data[8:]):
            raise DigestMismatch(f"{where}, bytes 0:{data.nbytes}: the record does not have the crc32c it states")
        return cls(stored[1 : 1 + k].astype(np.uint32), stored[1 + k :].reshape(k, 2, block))


def record_length(k: int, block: int) -> int:
    """Return the number of float64 values in the record of a bundle of k kernels."""
    return 1 + k + 2 * k * block


def running_crcs(planes: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """Return running checksums of concatenated planes (k, …): the crc32c of all bytes up to the end of each plane."""
    checksums, value = np.empty(len(planes), np.uint32), 0
    for q, plane in enumerate(planes):
        checksums[q] = value = google_crc32c.extend(value, as_bytes(plane))  # pyright: ignore[reportArgumentType] (any contiguous buffer)
    return checksums


def block_sums(values: npt.NDArray[Any], block: int, diagonal: bool) -> Vector:
    """Return the contribution of one block pair to the sums, accumulated in float64; see `BlockRecord`."""
    k, rows, cols = values.shape
    sums = np.full((k, 2, block), np.nan)
    # Infinities and NaN are looked for in the result, and named by the caller.
    with np.errstate(invalid="ignore", over="ignore"):
        np.add.reduce(values, axis=2, dtype=np.float64, out=sums[:, 0, :rows])
        if diagonal:
            sums[:, 1, :rows] = np.diagonal(values, axis1=1, axis2=2)
        else:
            np.add.reduce(values, axis=1, dtype=np.float64, out=sums[:, 1, :cols])
    return sums


def add_up(layout: GramLayout, k: int, sums_of: Callable[[int, int], Vector]) -> tuple[Vector, Vector]:
    """Return the diagonals and the row sums of k matrices, each (k, n). The contributions of all block pairs are added in a fixed order."""
    diagonal, row_sums = np.empty((k, layout.n)), np.zeros((k, layout.n))
    for i, j in layout.pairs():
        share, (a, b), (c, d) = sums_of(i, j), layout.span(i), layout.span(j)
        row_sums[:, a:b] += share[:, 0, : b - a]
        if i == j:
            diagonal[:, a:b] = share[:, 1, : b - a]
        else:
            row_sums[:, c:d] += share[:, 1, : d - c]
    return diagonal, row_sums

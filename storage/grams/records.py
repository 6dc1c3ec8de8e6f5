"""What the task that wrote a Gram block notes beside it: checksums after every kernel, and its share of the matrix' sums."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from ..blocks.arrays import crc32c
from ..errors import DigestMismatch
from ..objects import Bytes, as_bytes
from .layout import GramLayout

Vector = npt.NDArray[np.float64]


class GramSums(NamedTuple):
    """Sums over one raw Gram matrix K, from which every centring and normalization follows.

    ``trace`` sum_i K_ii; ``diagonal`` (n,) K_ii; ``row_sums`` (n,) sum_j K_ij; ``total`` sum_ij K_ij.
    """

    trace: float
    diagonal: Vector
    row_sums: Vector
    total: float


@dataclass(frozen=True, eq=False)
class BlockRecord:
    """Record of one written object, itself a chunk of a Zarr array of float64.

    ``running`` uint32 (k,): crc32c of the object up to the end of every kernel. A kernel in the middle is checked alone: extending the
    checksum before it by its bytes must give the one after it. ``sums`` (k, 2, b): ``[:, 0]`` over the columns of the block, ``[:, 1]``
    over its rows or, for a diagonal block, the diagonal; NaN beyond the edges.
    """

    running: npt.NDArray[np.uint32]
    sums: Vector

    def encode(self, identity: str) -> Vector:
        """The stored form: [checksum of identity and rest, running, sums]."""
        payload = np.concatenate([self.running.astype(np.float64), self.sums.reshape(-1)]).astype("<f8")
        return np.concatenate([[float(crc32c(identity.encode(), payload))], payload]).astype("<f8")

    @classmethod
    def decode(cls, data: Bytes, identity: str, k: int, block: int, where: str) -> "BlockRecord":
        """Read the stored form; DigestMismatch if its length or checksum is wrong, or it belongs to another block."""
        length = record_length(k, block)
        if data.nbytes != 8 * length:
            raise DigestMismatch(f"{where}, bytes 0:{8 * length}: the object has {data.nbytes} bytes instead of {8 * length}")
        stored = data.view("<f8").astype(np.float64, copy=False)
        if stored[0] != crc32c(identity.encode(), data[8:]):
            raise DigestMismatch(f"{where}, bytes 0:{data.nbytes}: the record does not have the crc32c it states")
        return cls(stored[1 : 1 + k].astype(np.uint32), stored[1 + k :].reshape(k, 2, block))


def record_length(k: int, block: int) -> int:
    """Float64 numbers in the record of a bundle of k kernels."""
    return 1 + k + 2 * k * block


def running_crcs(planes: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """crc32c of (k, …) planes laid end to end, after each of them."""
    checksums, value = np.empty(len(planes), np.uint32), 0
    for q, plane in enumerate(planes):
        checksums[q] = value = google_crc32c.extend(value, as_bytes(plane))  # pyright: ignore[reportArgumentType] (any contiguous buffer)
    return checksums


def block_sums(values: npt.NDArray[Any], block: int, diagonal: bool) -> Vector:
    """Share of one block pair in the sums: see `BlockRecord`; float64 accumulation."""
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
    """Diagonals and row sums of k matrices, each (k, n), from the shares of all block pairs, in one fixed order."""
    diagonal, row_sums = np.empty((k, layout.n)), np.zeros((k, layout.n))
    for i, j in layout.pairs():
        share, (a, b), (c, d) = sums_of(i, j), layout.span(i), layout.span(j)
        row_sums[:, a:b] += share[:, 0, : b - a]
        if i == j:
            diagonal[:, a:b] = share[:, 1, : b - a]
        else:
            row_sums[:, c:d] += share[:, 1, : d - c]
    return diagonal, row_sums

"""Block pairs of kernels that are known by their matrices: given in memory, or in a Gram store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...storage import GramRef, block_cache


@dataclass(frozen=True)
class GivenPair:
    """A block pair of matrices in memory; such a reference stays in its process."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    which: tuple[int, ...]
    source: np.ndarray = field(repr=False, compare=False)

    row_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded block."""
        return 4 * len(self.which) * (self.rows[1] - self.rows[0]) * (self.cols[1] - self.cols[0])

    def select(self, which: Sequence[int]) -> GivenPair:
        """Return the same block pair of some kernels."""
        return replace(self, which=tuple(self.which[q] for q in which))

    def load(self) -> np.ndarray:
        """Return the raw kernels, float32 ``(k, rows, columns)``; of a pair on the diagonal the upper triangle, mirrored."""
        block = np.array(self.source[list(self.which), slice(*self.rows), slice(*self.cols)], dtype=np.float32, order="C")
        if self.rows == self.cols:
            upper = np.triu(block)
            block = upper + np.triu(block, 1).transpose(0, 2, 1)
        return np.ascontiguousarray(block)

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return chosen rows and columns, by their place in the block."""
        return np.ascontiguousarray(self.load()[:, rows][:, :, cols])


@dataclass(frozen=True)
class StoredPair:
    """A block pair that is read from a Gram store."""

    ref: GramRef  # its distinct raw kernels
    which: tuple[int, ...]  # position in `ref` of every kernel; two that differ in normalisation only share their entries

    @property
    def rows(self) -> tuple[int, int]:
        """Range of rows."""
        return self.ref.rows

    @property
    def cols(self) -> tuple[int, int]:
        """Range of columns."""
        return self.ref.cols

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded block."""
        return self.ref.nbytes * len(self.which) // sum(stop - start for _, start, stop in self.ref.parts)

    row_bytes = 0

    def select(self, which: Sequence[int]) -> StoredPair:
        """Return the same block pair of some kernels, of which nothing else is read."""
        return StoredPair(self.ref.select([self.which[q] for q in which]), tuple(range(len(which))))

    def load(self) -> np.ndarray:
        """Read the raw kernels ``(k, rows, columns)``."""
        block = block_cache().load(self.ref)
        return block if self.which == tuple(range(len(block))) else block[list(self.which)]

    def part(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return chosen rows and columns, by their place in the block."""
        return np.ascontiguousarray(self.load()[:, rows][:, :, cols])

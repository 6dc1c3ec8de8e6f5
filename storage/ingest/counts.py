"""Entries per column of input whose width is not known yet."""

import numpy as np
import numpy.typing as npt

from .tables.columns import count_columns


class ColumnCounts:
    """A table that grows with the greatest index met. ``table``: entries per column; it may be longer than the width."""

    def __init__(self) -> None:
        self.table: npt.NDArray[np.uint32] = np.zeros(1 << 12, np.uint32)

    def add(self, cols: npt.NDArray[np.int32], highest: int) -> None:
        """Count entries of columns up to ``highest``."""
        self._reach(highest + 1)
        count_columns(cols, self.table)

    def merge(self, other: "ColumnCounts") -> None:
        """Add another table."""
        self._reach(other.table.size)
        self.table[: other.table.size] += other.table

    def _reach(self, size: int) -> None:
        if size > self.table.size:
            # Untouched pages of a fresh zero table take no memory, so doubling costs little.
            grown = np.zeros(max(size, 2 * self.table.size), np.uint32)
            grown[: self.table.size] = self.table
            self.table = grown

    def width(self, lo: int, hi: int) -> npt.NDArray[np.uint32]:
        """Counts of columns ``lo:hi``, zero beyond the table."""
        self._reach(hi)
        return self.table[lo:hi]

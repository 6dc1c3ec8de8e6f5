"""Sparse columns collected in row form: columns are only ever added on the right, so every row stays sorted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ..arrays import Array
from ..jit import compiled
from .views import sparse_view


class RowForm(NamedTuple):
    """A sparse matrix by rows: row i has ``columns``, ascending, and ``values`` from ``starts[i]`` to ``starts[i + 1]``."""

    starts: Array
    columns: Array
    values: Array
    width: int

    @classmethod
    def empty(cls, n_rows: int) -> RowForm:
        """Return the form of no columns."""
        return cls(np.zeros(n_rows + 1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 0)

    def with_columns(self, X: sp.csc_array) -> RowForm:
        """Return the form with the columns of ``X``, ``(n, k)``, added on the right; values get the wider type of both."""
        block = sparse_view(X)
        dtype = np.result_type(self.values, block.values)
        size = len(self.values) + int(block.starts[-1])
        made = RowForm(np.empty_like(self.starts), np.empty(size, np.int32), np.empty(size, dtype), self.width + len(block.starts) - 1)
        old, new = (values.astype(dtype, copy=False) for values in (self.values, block.values))
        _append((self.starts, self.columns, old), (new, block.rows, block.starts), self.width, tuple(made[:3]))
        return made

    def matrix(self) -> sp.csr_array:
        """Return it as SciPy's matrix, without a copy of columns and values."""
        matrix = sp.csr_array((self.values, self.columns, self.starts), shape=(len(self.starts) - 1, self.width))
        # Spares SciPy a pass over the indices.
        matrix.has_sorted_indices = True
        return matrix


@compiled
def _append(old: tuple[Array, ...], new: tuple[Array, ...], width: int, out: tuple[Array, ...]) -> None:
    starts, columns, values = old
    new_values, new_rows, new_starts = new
    out_starts, out_columns, out_values = out
    n = starts.size - 1
    # How many entries each row gets, then where its next one goes.
    ahead = np.zeros(n, np.int64)
    for p in range(new_starts[0], new_starts[new_starts.size - 1]):
        ahead[new_rows[p]] += 1
    at = np.int64(0)
    for i in range(n):
        out_starts[i] = at
        for k in range(starts[i], starts[i + 1]):
            out_columns[at] = columns[k]
            out_values[at] = values[k]
            at += 1
        added = ahead[i]
        ahead[i] = at
        at += added
    out_starts[n] = at
    for j in range(new_starts.size - 1):
        for p in range(new_starts[j], new_starts[j + 1]):
            i = new_rows[p]
            out_columns[ahead[i]] = width + j
            out_values[ahead[i]] = new_values[p]
            ahead[i] += 1

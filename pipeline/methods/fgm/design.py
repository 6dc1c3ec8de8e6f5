"""The columns of a machine's cuts, side by side: what the sub-problem solver works on."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....kernels.features.growing_rows import RowForm
from ....kernels.features.views import shape
from ....kernels.mixed_norm import Rows, rows_for
from ...passes.blocks import Columns


class Design:
    """Columns of the cuts found so far, appended and never rebuilt; sparse ones in the row form that solvers need, dense stay dense.

    Parameters
    ----------
    n_rows
        Number of samples.
    capacity
        Columns expected at most; a dense design is allocated once for them (pages are touched when they are filled).
    """

    def __init__(self, n_rows: int, capacity: int) -> None:
        self._n_rows = n_rows
        self._capacity = capacity
        self._dense: np.ndarray | None = None
        self._sparse = RowForm.empty(n_rows)
        self.widths: list[int] = []

    def append(self, columns: Columns) -> None:
        """Append the columns of one more cut."""
        if isinstance(columns, np.ndarray):
            self._append_dense(columns)
        else:
            self._sparse = self._sparse.with_columns(columns)
        self.widths.append(shape(columns)[1])

    def _append_dense(self, columns: np.ndarray) -> None:
        used = sum(self.widths)
        need = used + shape(columns)[1]
        if self._dense is None or need > self._dense.shape[1]:
            larger = np.empty((self._n_rows, max(need, self._capacity)), dtype=columns.dtype, order="F")
            if self._dense is not None:
                larger[:, :used] = self._dense[:, :used]
            self._dense = larger
        self._dense[:, used:need] = columns

    @property
    def matrix(self) -> np.ndarray | sp.csr_array:
        """All columns, ``(n_samples, p)``: a view of the dense buffer, or a CSR matrix."""
        if self._dense is not None:
            return self._dense[:, : sum(self.widths)]
        return self._sparse.matrix()

    def decide(self, omega: np.ndarray, bias: float) -> np.ndarray:
        """Return the decision values ``Z omega - bias``, ``(n_samples,)``."""
        return (self.matrix @ omega if self.widths else np.zeros(self._n_rows)) - bias

    def rows(self, y: np.ndarray, cost: np.ndarray, loss: str) -> Rows:
        """Return row access for the solver."""
        return rows_for(self.matrix, y, cost, loss)

"""A kernel matrix over the rows of one store, known by its spectrum. A plain record, saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np


@dataclass(frozen=True)
class SpectralModel:
    """``K = U diag(lam) U'`` over the rows that a transductive method was fitted on, and over no others."""

    record_name: ClassVar[str] = "SpectralModel"
    config_json: str  # the method's parameters
    data_digest: str  # digest of the store with these rows; empty for rows that were given as an array
    n_rows: int  # number of rows n
    # U, `(n, r)`, orthonormal columns; r may be 0. A run that is about to save it may have it in tiles
    eigenvectors: np.ndarray
    eigenvalues: np.ndarray  # lam, `(r,)`, descending, positive
    figures: dict[str, float] = field(default_factory=dict)  # objective, bounds and the like, by name
    # further results of a method, by name; `"scores"`, `(n,)` or `(n, k)`, where predictions are scores of rows
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def factor(self) -> np.ndarray:
        """Rows of ``U diag(lam)^(1/2)``, ``(n, r)``: coordinates under which inner products are K."""
        return self.eigenvectors * np.sqrt(self.eigenvalues)

    def kernel_block(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return ``K[rows][:, cols]``."""
        return (self.eigenvectors[rows] * self.eigenvalues) @ self.eigenvectors[cols].T

    def predictions(self) -> np.ndarray:
        """Return what the method says of each row, ``(n, k)``: its scores, or else its coordinates."""
        found = self.arrays.get("scores", self.factor)
        return found[:, None] if found.ndim == 1 else found

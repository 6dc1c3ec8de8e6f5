"""A kernel matrix over the rows of one store, as an eigendecomposition. A plain record, saved without pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ...storage import DataError
from ..core.resources import Resources
from ..records.data_set import DataSet
from .model import Model


class Transductive(Model):
    """A model with scores or coordinates of its training rows only. It cannot predict other rows."""

    by_passes = False
    data_digest: str

    def decision_values(self, data: DataSet, resources: Resources, **rows: Any) -> np.ndarray:
        """Return the model's values for each row. Raises DataError if the data are not the training rows."""
        if not self.is_fitted_on(data):
            raise DataError(
                "this method predicts only the rows of its fit, and this is another store; fit it on old and new rows together", data.url
            )
        return self.predictions()

    def is_fitted_on(self, data: DataSet) -> bool:
        """Return whether a store has the training rows of the model."""
        return bool(self.data_digest) and data.digest == self.data_digest

    def predictions(self) -> np.ndarray:
        """Return the scores or coordinates of each row, ``(n, k)``."""
        raise NotImplementedError

    @property
    def n_values(self) -> int:
        """Number of scores or coordinates per row."""
        return self.predictions().shape[1]


@dataclass(frozen=True)
class SpectralModel(Transductive):
    """``K = U diag(lam) U'`` over the training rows of a transductive method."""

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
        """Rows of ``U diag(lam)^(1/2)``, ``(n, r)``: coordinates whose inner products are K."""
        return self.eigenvectors * np.sqrt(self.eigenvalues)

    def kernel_block(self, rows: np.ndarray, cols: np.ndarray) -> np.ndarray:
        """Return ``K[rows][:, cols]``."""
        return (self.eigenvectors[rows] * self.eigenvalues) @ self.eigenvectors[cols].T

    def predictions(self) -> np.ndarray:
        """Return the scores of each row, ``(n, k)``; without scores, its coordinates."""
        found = self.arrays.get("scores", self.factor)
        return found[:, None] if found.ndim == 1 else found

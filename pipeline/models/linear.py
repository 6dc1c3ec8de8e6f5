"""A fitted linear machine, or several: one per class, one per task. A plain record, saved without pickle."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from ...storage.errors import Matrix
from .calibration import Calibration

WIDE = 50_000  # from this many features coefficients are kept sparse: dense ones would be mostly zeros


@dataclass(frozen=True)
class LinearModel:
    """``f_m(x) = <coef_m, x> + intercept_m`` for every machine m; of rows scaled to unit norm ``<coef_m, x / ||x||> + intercept_m``."""

    record_name: ClassVar[str] = "LinearModel"
    params_json: str  # the method's parameters
    classes_json: str  # the class labels in order, as JSON; `null` for regression. Two classes have one machine, more have one each
    tasks_json: str  # the names of the tasks in order, as JSON, machines being tasks; `null` where there are none
    n_features: int  # width of the training data
    coef: np.ndarray | sp.csr_array  # `(n_machines, n_features)` for columns as they were given: the factors of column scaling are inside
    intercepts: np.ndarray  # `(n_machines,)`
    row_scaled: bool = False  # whether rows are divided by their norm before use
    figures: dict[str, float] = field(default_factory=dict)  # objective, gap and the like, by name
    arrays: dict[str, np.ndarray] = field(default_factory=dict)  # further results of a method, by name
    calibration: Calibration | None = None  # how decision values become probabilities, where that was fitted

    @property
    def features(self) -> np.ndarray:
        """Sorted features with a weight in some machine."""
        coef: Matrix = self.coef
        if not sp.issparse(coef):
            return np.flatnonzero(coef.any(axis=0))
        has_weight = np.zeros(coef.shape[1], bool)
        has_weight[coef.indices[coef.data != 0]] = True
        return np.flatnonzero(has_weight).astype(coef.indices.dtype)

    def scaled_weights(self) -> np.ndarray:
        """Return the weights of these features as the fit saw them, ``(n_machines, n_with_a_weight)``: of columns of its scale, which can
        be compared, where coefficients go by the unit of each column.
        """
        chosen: Matrix = self.coef[:, self.features]
        weights = chosen.toarray() if sp.issparse(chosen) else chosen
        return weights / self.arrays["factor"] if "factor" in self.arrays else weights

    def scaled_by(self, factor: np.ndarray | None) -> Self:
        """Return the model with the factors that columns were scaled by in the fit, ``(n_features,)``."""
        return self if factor is None else replace(self, arrays={**self.arrays, "factor": factor[self.features]})

    @property
    def tasks(self) -> tuple[Any, ...] | None:
        """Names of the tasks, or ``None``."""
        names = json.loads(self.tasks_json)
        return None if names is None else tuple(names)

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The class labels, or ``None`` for regression."""
        labels = json.loads(self.classes_json)
        return None if labels is None else tuple(labels)


def raw_coefficients(
    weights: np.ndarray, intercepts: np.ndarray, factor: np.ndarray | None, shift: np.ndarray | None
) -> tuple[np.ndarray | sp.csr_array, np.ndarray]:
    """Return ``(coef, intercepts)`` for columns as given, from weights ``(n_machines, d)`` of columns ``(x - shift) factor``.

    Wide coefficients come back sparse.
    """
    coef = weights if factor is None else weights * factor
    moved = intercepts if shift is None else intercepts - coef @ shift
    return (sp.csr_array(coef) if coef.shape[1] >= WIDE else coef), moved

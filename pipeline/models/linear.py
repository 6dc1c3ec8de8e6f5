"""A fitted linear model, or several, one per class or task: a plain record, saved without pickle, and its decision values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from ...kernels.features.rows_at_hand import row_product
from ...storage import BlockStore
from ...storage.errors import Matrix
from ..core.memory import Item
from ..core.resources import Resources
from ..inputs.tasks import store_codes
from ..passes.columns import column_sizes, fetch_columns
from ..passes.scaling import inverse_row_norms
from .calibration import Calibration
from .model import Model, Part, check_width, column_batches
from .tables import name_features

PIECE_COLUMNS = 4096  # columns that are held at once for predictions
WIDE = 50_000  # from this many features coefficients are kept sparse: dense ones would be mostly zeros


@dataclass(frozen=True)
class LinearModel(Model):
    """``f_m(x) = <coef_m, x> + intercept_m`` for every binary model or task m; for rows of unit norm ``<coef_m, x / ||x||> +
    intercept_m``.
    """

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
        """Sorted indices of the features with non-zero weight in some model."""
        coef: Matrix = self.coef
        if not sp.issparse(coef):
            return np.flatnonzero(coef.any(axis=0))
        has_weight = np.zeros(coef.shape[1], bool)
        has_weight[coef.indices[coef.data != 0]] = True
        return np.flatnonzero(has_weight).astype(coef.indices.dtype)

    def scaled_weights(self) -> np.ndarray:
        """Return the weights that apply to scaled columns, for the features in use, ``(n_machines, n_with_a_weight)``.

        These weights are comparable between features, whereas ``coef`` depends on the units of the columns.
        """
        chosen: Matrix = self.coef[:, self.features]
        weights = chosen.toarray() if sp.issparse(chosen) else chosen
        return weights / self.arrays["factor"] if "factor" in self.arrays else weights

    def scaled_by(self, factor: np.ndarray | None) -> Self:
        """Return the model with the column factors of the fit added to its record; ``factor`` is ``(n_features,)``, or None."""
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

    def decision_values(self, data: Any, resources: Resources, task: object = None, **rows: Any) -> np.ndarray:
        """Return the decision values, fetching columns in pieces. For a model with tasks, return the value of each row's own task,
        ``(n_samples, 1)``.

        ``task`` overrides the tasks of a store.
        """
        check_width(self.n_features, self.row_scaled, data)
        values = np.zeros((data.n_rows, len(self.intercepts)))
        for features in _pieces(self.features):
            coef: Matrix = self.coef[:, features]
            values += multiply_rows(fetch_columns(data, resources, features), coef.toarray() if sp.issparse(coef) else coef)
        if self.row_scaled:
            values *= data.scale.row_factor[:, None]
        values += self.intercepts
        return values if self.tasks is None else np.take_along_axis(values, store_codes(self, data, task)[:, None], axis=1)

    def contributions(self, read: Callable[[np.ndarray], np.ndarray], names: Sequence[str] | None, of: int) -> list[Part]:
        """Return the contribution of every feature with non-zero weight: value times coefficient. Empty for models with tasks, for
        models trained on rows of unit norm, and for more than PIECE_COLUMNS features.
        """
        if self.row_scaled or self.tasks is not None or len(self.features) > PIECE_COLUMNS:
            return []
        values = read(self.features)[0]
        coef: Matrix = self.coef[[of]][:, self.features]
        added = (coef.toarray() if sp.issparse(coef) else coef)[0] * values
        return list(zip(name_features(self.features, names), values.tolist(), added.tolist(), strict=True))

    def memory(self, data: BlockStore) -> list[Item]:
        """Return the memory items of one piece of columns and their weights."""
        largest = max((int(column_sizes(data, part).sum()) for part in _pieces(self.features)), default=0)
        weights = 8 * len(self.intercepts) * min(PIECE_COLUMNS, len(self.features))
        return [("columns at a time, side by side", 3 * largest), ("their weights", weights)]

    def fetched_bytes(self, data: BlockStore) -> list[int]:
        """Return the number of bytes that each pass over columns fetches."""
        return column_batches(data, self.features, PIECE_COLUMNS)


def raw_coefficients(
    weights: np.ndarray, intercepts: np.ndarray, factor: np.ndarray | None, shift: np.ndarray | None
) -> tuple[np.ndarray | sp.csr_array, np.ndarray]:
    """Return ``(coef, intercepts)`` for unscaled columns, from weights ``(n_machines, d)`` of columns ``(x - shift) factor``.

    Wide coefficients are returned as a sparse array.
    """
    coef = weights if factor is None else weights * factor
    moved = intercepts if shift is None else intercepts - coef @ shift
    return (sp.csr_array(coef) if coef.shape[1] >= WIDE else coef), moved


def _pieces(features: np.ndarray) -> list[np.ndarray]:
    return [features[lo : lo + PIECE_COLUMNS] for lo in range(0, len(features), PIECE_COLUMNS)]


def multiply_rows(rows: Matrix, weights: Matrix) -> np.ndarray:
    """Return ``rows @ weights.T``, ``(n, m)``, for dense or sparse inputs. The bits do not depend on the number of BLAS threads."""
    if not sp.issparse(rows) and not sp.issparse(weights):
        return row_product(rows, weights)
    values: Matrix = rows @ weights.T
    return np.asarray(values.toarray() if sp.issparse(values) else values)


def row_decision_values(model: LinearModel, X: Matrix) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of rows ``(n, n_features)`` in memory."""
    values = multiply_rows(X, model.coef)
    return (values * inverse_row_norms(X)[:, None] if model.row_scaled else values) + model.intercepts

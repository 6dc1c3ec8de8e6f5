"""Decision values of linear machines, from the columns that have a weight."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...kernels.features.rows_at_hand import row_product
from ...storage import BlockStore
from ...storage.errors import Matrix
from ..core.memory import Item
from ..inputs.tasks import store_codes
from ..passes.columns import column_sizes, fetch_columns
from ..passes.scaling import inverse_row_norms
from ..records.context import RunContext
from .linear import LinearModel
from .predictor import Predictor, check_width, column_batches

PIECE_COLUMNS = 4096  # columns of a linear model that are held at once


class LinearPredictor(Predictor):
    """Linear machines; of tasks each row's own, ``(n_samples, 1)``."""

    def decision_values(self, model: LinearModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of the machines, columns fetched in pieces."""
        check_width(model.n_features, model.row_scaled, ctx.data)
        values = np.zeros((ctx.data.n_rows, len(model.intercepts)))
        for features in _pieces(model.features):
            coef: Matrix = model.coef[:, features]
            values += multiply_rows(fetch_columns(ctx.data, ctx, features), coef.toarray() if sp.issparse(coef) else coef)
        if model.row_scaled:
            values *= ctx.data.scale.row_factor[:, None]  # pyright: ignore[reportOptionalSubscript] (checked)
        values += model.intercepts
        if model.tasks is None:
            return values
        return np.take_along_axis(values, store_codes(model, ctx.data)[:, None], axis=1)

    def items(self, model: LinearModel, data: BlockStore) -> list[Item]:
        """Return the columns of a piece and their weights."""
        largest = max((int(column_sizes(data, part).sum()) for part in _pieces(model.features)), default=0)
        weights = 8 * len(model.intercepts) * min(PIECE_COLUMNS, len(model.features))
        return [("columns at a time, side by side", 3 * largest), ("their weights", weights)]

    def fetched_bytes(self, model: LinearModel, data: BlockStore) -> list[int]:
        """Return the bytes of each pass over columns."""
        return column_batches(data, model.features, PIECE_COLUMNS)


def _pieces(features: np.ndarray) -> list[np.ndarray]:
    return [features[lo : lo + PIECE_COLUMNS] for lo in range(0, len(features), PIECE_COLUMNS)]


def multiply_rows(rows: Matrix, weights: Matrix) -> np.ndarray:
    """Return ``rows @ weights.T``, ``(n, m)``, of dense or sparse ones; its bits do not depend on the number of BLAS threads."""
    if not sp.issparse(rows) and not sp.issparse(weights):
        return row_product(rows, weights)
    values: Matrix = rows @ weights.T
    return np.asarray(values.toarray() if sp.issparse(values) else values)


def row_decision_values(model: LinearModel, X: Matrix) -> np.ndarray:
    """Return ``(n, n_machines)`` decision values of rows ``(n, n_features)`` in memory."""
    values = multiply_rows(X, model.coef)
    return (values * inverse_row_norms(X)[:, None] if model.row_scaled else values) + model.intercepts

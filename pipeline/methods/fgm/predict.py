"""Decision values of a Feature Generating Machine, from the columns it selected."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from ....kernels.features import expansions
from ....kernels.features.pairs import PairMap, pair_columns
from ....storage import BlockStore
from ....storage.errors import Matrix
from ...core.memory import Item
from ...inputs.covariates import covariates_to_decide
from ...models.linear_predict import multiply_rows
from ...models.predictor import Predictor, check_width, column_batches
from ...passes.blocks import table_of
from ...passes.columns import Columns, fetch_columns
from ...passes.scaling import inverse_row_norms, scaled
from ...records.context import RunContext
from .config import FGMConfig
from .designs import take_columns
from .model import FGMModel, positions, selected_atoms


class FGMPredictor(Predictor):
    """Machines on selected features, pairs or maps; their path is known."""

    def decision_values(self, model: FGMModel, ctx: RunContext) -> np.ndarray:
        """Return the decision values of the last round (of the refit where there was one)."""
        check_width(model.n_features, model.row_scaled, ctx.data)
        further = covariates_to_decide(model.covariate_names, ctx.covariates, ctx.data.n_rows, ctx.data)
        if not len(model.features):
            return model.intercepts + (np.zeros((ctx.data.n_rows, 1)) if further is None else further @ model.covariate_coef.T)
        return decision_values(model, _store_columns(model, ctx), further)

    def staged_decision_values(self, model: FGMModel, ctx: RunContext) -> Iterator[tuple[int, np.ndarray]]:
        """Return ``(n_selected, decision values)`` of the model after every round."""
        columns = _store_columns(model, ctx) if len(model.features) else np.zeros((ctx.data.n_rows, 0))
        return staged_decision_values(
            model, columns, covariates_to_decide(model.covariate_names, ctx.covariates, ctx.data.n_rows, ctx.data)
        )

    def items(self, model: FGMModel, data: BlockStore) -> list[Item]:
        """Return the columns, and the coordinates made of them."""
        raw, count = sum(self.fetched_bytes(model, data)), len(model.coordinates)
        copies = 1 if count == len(model.features) else 2
        if model.kind in ("hik", "additive_gaussian"):
            # Whole bases are made, of which the model has some coordinates.
            count = len(model.features) * _expansion(model).width
        # A column made of some has float64 entries, with row numbers where the data are sparse.
        is_dense, counts = data.meta.kind == "dense" or not len(model.features), (column_count(data, j) for j in model.features)
        made = copies * count * (8 * data.n_rows if is_dense else 12 * max(counts))
        items = [("columns of the model, as fetched and side by side", 2 * raw), ("coordinates made of them", made)]
        covariates = "covariates, as read and as numbers", 16 * data.n_rows * len(model.covariate_names)
        return [covariates, *items] if model.covariate_names else items

    def fetched_bytes(self, model: FGMModel, data: BlockStore) -> list[int]:
        """Return the bytes of each pass over columns."""
        return column_batches(data, model.features)


def column_count(data: BlockStore, feature: int) -> int:
    """Return the non-zeros of a column."""
    return int(table_of(data, "counts", int(feature), int(feature) + 1)[0])


def _store_columns(model: FGMModel, ctx: RunContext) -> Columns:
    """Return the model's coordinates of every row of a store (one column pass)."""
    row_factor = ctx.data.scale.row_factor if model.row_scaled else None
    return mapped_columns(model, fetch_columns(ctx.data, ctx, model.features), row_factor)


def model_columns(model: FGMModel, X: Matrix) -> Columns:
    """Return the model's coordinates of an array ``X`` ``(n, n_features)``."""
    # An index of columns makes them lie one after another, and products take rows; of other orders `take` copies all.
    raw = X.take(model.features, axis=1) if isinstance(X, np.ndarray) and X.flags.c_contiguous else X[:, model.features]
    row_factor = inverse_row_norms(X) if model.row_scaled else None
    return mapped_columns(model, sp.csc_array(raw) if sp.issparse(raw) else raw, row_factor)


def mapped_columns(model: FGMModel, raw: Columns, row_factor: np.ndarray | None = None) -> Columns:
    """Return the model's coordinates as columns, ``(n, k)``, from the raw columns of ``model.features``."""
    columns = scaled(raw, model.scale, row_factor)
    if model.kind == "poly2":
        config = FGMConfig.model_validate_json(model.params_json)
        return pair_columns(columns, model.features, model.coordinates, PairMap(config.gamma, config.coef0))
    if model.kind in ("hik", "additive_gaussian"):
        expansion = _expansion(model)
        full = expansions.expand(columns, expansion, model.ranges[0], model.ranges[1])
        every = (model.features[:, None] * expansion.width + np.arange(expansion.width)).ravel()
        return full if len(every) == len(model.coordinates) else full[:, positions(every, model.coordinates)]
    is_whole = len(model.coordinates) == len(model.features)
    return columns if is_whole else take_columns(columns, model.features, model.coordinates)


def _expansion(model: FGMModel) -> expansions.Expansion:
    config = FGMConfig.model_validate_json(model.params_json)
    return expansions.Expansion(model.kind, gamma=config.gamma, n_bins=config.n_bins)  # pyright: ignore[reportArgumentType]


def decision_values(model: FGMModel, columns: Columns, covariates: np.ndarray | None = None) -> np.ndarray:
    """Return ``(n_samples, n_machines)`` decision values from the model's coordinates, and its covariates."""
    values = multiply_rows(columns, model.weights) + model.intercepts
    return values if covariates is None else values + covariates @ model.covariate_coef.T


def staged_decision_values(model: FGMModel, columns: Columns, covariates: np.ndarray | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """Yield ``(n_selected, decision values)`` of the model after every round."""
    rounds = max((len(machine.rounds) for machine in model.machines), default=0)
    return (_after_round(model, columns, covariates, t) for t in range(1, rounds + 1))


def _after_round(model: FGMModel, columns: Columns, covariates: np.ndarray | None, t: int) -> tuple[int, np.ndarray]:
    weights = np.zeros((len(model.coordinates), len(model.machines)))
    intercepts, coef = model.intercepts.copy(), model.covariate_coef.copy()
    for k, machine in enumerate(model.machines):
        if machine.rounds:
            after = machine.weights(min(t, len(machine.rounds)))
            weights[positions(model.coordinates, after.coordinates), k] = after.values
            intercepts[k] = -after.bias
            if covariates is not None:
                coef[k] = after.covariate_coef
    values = multiply_rows(columns, weights.T) + intercepts
    count = len(selected_atoms(model.machines, t))
    return count, values if covariates is None else values + covariates @ coef.T

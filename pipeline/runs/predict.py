"""Decision values of a saved model, in memory or block by block from a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...kernels.features import expansions
from ...kernels.features.pairs import PairMap, pair_columns
from ...kernels.features.row_products import row_product
from ...storage import DataError
from ..methods.fgm.atoms import take
from ..methods.fgm.config import FGMConfig
from ..methods.fgm.model import FGMModel, positions
from ..methods.rule_ensemble.model import RuleModel
from ..methods.rule_ensemble.predict import decide_rules
from ..methods.semantic_ranker.method import decide_images, knows_images
from ..methods.social_strength.model import SocialModel
from ..methods.social_strength.scores import decide_users
from ..models.kernel import KernelModel
from ..models.kernel_predict import decide_store
from ..models.linear import LinearModel
from ..models.spectral import SpectralModel
from ..models.task import TaskModel
from ..models.task_predict import decide_task_store, store_codes
from ..passes.columns import Columns, fetch_columns
from ..passes.scaling import inverse_row_norms, scaled
from ..records.context import RunContext


def product(rows: Any, weights: Any) -> np.ndarray:
    """Return ``rows @ weights.T``, ``(n, m)``, of dense or sparse ones; its bits do not depend on the number of BLAS threads."""
    if not sp.issparse(rows) and not sp.issparse(weights):
        return row_product(rows, weights)
    found: Any = rows @ weights.T
    return np.asarray(found.toarray() if sp.issparse(found) else found)


def mapped_columns(model: FGMModel, raw: Columns, row_factor: np.ndarray | None = None) -> Columns:
    """Return the model's coordinates as columns, ``(n, k)``, from the raw columns of ``model.features``."""
    columns = scaled(raw, model.scale, row_factor)
    if model.kind == "poly2":
        config = FGMConfig.model_validate_json(model.params_json)
        return pair_columns(columns, model.features, model.coordinates, PairMap(config.gamma, config.coef0))
    if model.kind in ("hik", "additive_gaussian"):
        return _expanded(model, columns)
    if len(model.coordinates) == len(model.features):
        return columns
    return take(columns, model.features, model.coordinates)


def _expanded(model: FGMModel, columns: Columns) -> Columns:
    config = FGMConfig.model_validate_json(model.params_json)
    expansion = expansions.Expansion(model.kind, gamma=config.gamma, n_bins=config.n_bins)  # pyright: ignore[reportArgumentType]
    full = expansions.expand(columns, expansion, model.ranges[0], model.ranges[1])
    every = (model.features[:, None] * expansion.width + np.arange(expansion.width)).ravel()
    return full if len(every) == len(model.coordinates) else full[:, positions(every, model.coordinates)]


def model_columns(model: FGMModel, X: Any) -> Columns:
    """Return the model's coordinates of an array ``X`` ``(n, n_features)``."""
    raw = X[:, model.features]
    row_factor = inverse_row_norms(X) if model.row_scaled else None
    return mapped_columns(model, sp.csc_array(raw) if sp.issparse(raw) else raw, row_factor)


@singledispatch
def decision_values(model: Any, ctx: RunContext) -> np.ndarray:
    """Return ``(n_samples, n_machines)`` decision values of a saved model for every row of ``ctx.data``; each kind of model has its own."""
    raise TypeError(f"{type(model).__name__} has no decision values")


@singledispatch
def decision_path(model: Any, ctx: RunContext) -> Iterable[tuple[int, np.ndarray]]:
    """Return ``(size, decision values)`` of the model after every step, one at a time, where a model keeps its path; else nothing."""
    return ()


@decision_values.register
def _(model: KernelModel, ctx: RunContext) -> np.ndarray:
    return decide_store(model, ctx)


@decision_values.register
def _(model: RuleModel, ctx: RunContext) -> np.ndarray:
    return decide_rules(model, ctx)


@decision_values.register
def _(model: TaskModel, ctx: RunContext) -> np.ndarray:
    return decide_task_store(model, ctx)


@decision_values.register
def _(model: SpectralModel, ctx: RunContext) -> np.ndarray:
    """Return what a transductive method says of the rows that it was fitted on.

    Raises
    ------
    gramplane.storage.DataError
        The data are not those rows.
    """
    if knows_images(model):
        return decide_images(model, ctx)
    if not model.data_digest or ctx.data.digest != model.data_digest:
        raise DataError(
            "this method knows only the rows that it was fitted on, and this is another store; fit it on all rows together", ctx.data.url
        )
    return model.predictions()


PIECE_COLUMNS = 4096
"""Columns of a linear model that are held at once."""


@decision_values.register
def _(model: LinearModel, ctx: RunContext) -> np.ndarray:
    """Return the decision values of linear machines; of tasks each row's own, ``(n_samples, 1)``."""
    _check_width(model.n_features, model.row_scaled, ctx.data)
    values = np.zeros((ctx.data.n_rows, len(model.intercepts)))
    for features in np.split(model.features, np.arange(PIECE_COLUMNS, len(model.features), PIECE_COLUMNS)):
        if len(features):
            coef: Any = model.coef[:, features]
            values += product(fetch_columns(ctx, features), coef.toarray() if sp.issparse(coef) else coef)
    if model.row_scaled:
        values *= ctx.data.scale.row_factor[:, None]  # pyright: ignore[reportOptionalSubscript] (checked)
    values += model.intercepts
    if model.tasks is None:
        return values
    return np.take_along_axis(values, store_codes(model, ctx.data)[:, None], axis=1)


@decision_values.register
def _(model: FGMModel, ctx: RunContext) -> np.ndarray:
    """Return the decision values of a Feature Generating Machine.

    Raises
    ------
    ValueError
        The data has another width than the training data, or no row factors where the model needs them.
    """
    _check_width(model.n_features, model.row_scaled, ctx.data)
    if not len(model.features):
        return np.tile(model.intercepts, (ctx.data.n_rows, 1))
    return decided(model, store_columns(model, ctx))


def _check_width(n_features: int, row_scaled: bool, data: Any) -> None:
    if data.n_cols != n_features:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {n_features}; ingest the file with --like TRAINING_STORE"
        )
    if row_scaled and data.scale.row_factor is None:
        raise ValueError(
            f"{data.url} has no row factors (scale {data.scale.kind!r}), the model was trained on rows of unit norm; ingest the file with "
            "--like TRAINING_STORE"
        )


def store_columns(model: FGMModel, ctx: RunContext) -> Columns:
    """Return the model's coordinates of every row of a store (one column pass)."""
    row_factor = ctx.data.scale.row_factor if model.row_scaled else None
    return mapped_columns(model, fetch_columns(ctx, model.features), row_factor)


@decision_values.register
def _(model: SocialModel, ctx: RunContext) -> np.ndarray:
    """Return the scores of a store's users, as new ones, against all of the model's, ``(n_rows, n_users)``."""
    return decide_users(model, ctx)


def decided(model: FGMModel, columns: Columns) -> np.ndarray:
    """Return ``(n_samples, n_machines)`` decision values from the model's coordinates."""
    return product(columns, model.weights) + model.intercepts


@decision_path.register
def _(model: FGMModel, ctx: RunContext) -> Iterable[tuple[int, np.ndarray]]:
    columns = store_columns(model, ctx) if len(model.features) else np.zeros((ctx.data.n_rows, 0))
    return decided_along(model, columns)


def decided_along(model: FGMModel, columns: Columns) -> Iterator[tuple[int, np.ndarray]]:
    """Yield ``(n_selected, decision values)`` of the model after every round."""
    rounds = max((len(machine.rounds) for machine in model.machines), default=0)
    return (_decided_after(model, columns, t) for t in range(1, rounds + 1))


def _decided_after(model: FGMModel, columns: Columns, t: int) -> tuple[int, np.ndarray]:
    weights = np.zeros((len(model.coordinates), len(model.machines)))
    intercepts = model.intercepts.copy()
    selected = []
    for k, machine in enumerate(model.machines):
        if machine.rounds:
            ids, values, bias = machine.weights(min(t, len(machine.rounds)))
            weights[positions(model.coordinates, ids), k] = values
            intercepts[k] = -bias
            selected.append(machine.selected(t))
    count = len(np.unique(np.concatenate(selected), axis=0)) if selected else 0
    return count, product(columns, weights.T) + intercepts

"""Predictor: what a kind of model needs to decide on the rows of a store, and what that takes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from ...storage import BlockStore
from ..core.memory import Item
from ..passes.columns import FETCH_BYTES, column_sizes
from ..records.context import RunContext

M = TypeVar("M")


class Predictor(Generic[M]):
    """Decision values of a kind of model for every row of a store.

    The base is that of models whose rows are read and decided on by the tasks of one pass: the driver holds nothing but the values.
    """

    by_passes: ClassVar[bool] = True  # whether passes read the rows; else the driver does all by itself

    def decision_values(self, model: M, ctx: RunContext) -> np.ndarray:
        """Return ``(n_samples, n_machines)`` decision values for every row of ``ctx.data``."""
        raise TypeError(f"{type(model).__name__} has no decision values")

    def staged_decision_values(self, model: M, ctx: RunContext) -> Iterable[tuple[int, np.ndarray]]:
        """Return ``(size, decision values)`` of the model after every step, one at a time, where it keeps its path; else nothing."""
        return ()

    def n_values(self, model: M) -> int:
        """Return the number of decision values of a row."""
        return len(model.intercepts)  # pyright: ignore[reportAttributeAccessIssue] (of all records but those that say otherwise)

    def items(self, model: M, data: BlockStore) -> list[Item]:
        """Return what the driver holds of the rows while it decides."""
        return []

    def fetched_bytes(self, model: M, data: BlockStore) -> list[int]:
        """Return the bytes that each pass brings to the driver; a model that reads rows has one pass, which brings none."""
        return [0]

    def follows_path(self) -> bool:
        """Whether :meth:`staged_decision_values` has something to say."""
        return type(self).staged_decision_values is not Predictor.staged_decision_values


def column_batches(data: BlockStore, features: np.ndarray, step: int = 0) -> list[int]:
    """Return the bytes of each pass that fetches columns, ``step`` of them at a time (0: all)."""
    step = step or max(1, len(features))
    batches: list[int] = []
    for lo in range(0, len(features), step):
        sizes = column_sizes(data, features[lo : lo + step])
        places = np.cumsum(sizes) // FETCH_BYTES
        batches += [int(sizes[places == k].sum()) for k in np.unique(places)]
    return batches or [0]


def check_width(n_features: int, row_scaled: bool, data: Any) -> None:
    """Refuse data of another width than the training data, and without row factors where the model needs them.

    Raises ValueError: the store and both widths are named.
    """
    if data.n_cols != n_features:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {n_features}; ingest the file with --like TRAINING_STORE"
        )
    if row_scaled and data.scale.row_factor is None:
        raise ValueError(
            f"{data.url} has no row factors (scale {data.scale.kind!r}), the model was trained on rows of unit norm; ingest the file with "
            "--like TRAINING_STORE"
        )

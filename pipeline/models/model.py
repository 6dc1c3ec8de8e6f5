"""Model: a record of arrays that predicts, and that plans the memory of predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ...storage import BlockStore
from ..core.memory import Item
from ..core.resources import Resources
from ..passes.blocks import Blocks
from ..passes.columns import FETCH_BYTES, column_sizes

Tables: TypeAlias = dict[str, list[dict[str, Any]]]
"""Tables of a report: name to rows, each a mapping of columns."""

Part: TypeAlias = tuple[str, float | None, float]
"""Part of a decision: its name, its value (or ``None``), and its contribution to the decision value."""


class Model:
    """A record of arrays that predicts.

    The base class is for models that predict rows in the tasks of a single pass. The driver holds only the decision values.
    """

    by_passes: ClassVar[bool] = True  # whether passes read the rows; else the driver does all by itself
    keeps_path: ClassVar[bool] = False  # whether :meth:`staged_decision_values` has something to say
    intercepts: np.ndarray  # of all records but those that have another number of values

    @property
    def n_values(self) -> int:
        """Number of decision values per row."""
        return len(self.intercepts)

    def decision_values(self, data: Blocks, resources: Resources, **rows: Any) -> np.ndarray:
        """Return ``(n_samples, n_values)`` decision values of every row of a store.

        ``rows``: further inputs per row that the model reads, such as ``covariates`` or ``task``.
        """
        raise NotImplementedError

    def staged_decision_values(self, data: Blocks, resources: Resources, **rows: Any) -> Iterable[tuple[int, np.ndarray]]:
        """Yield ``(size, decision values)`` after every step of the path; empty if the model does not keep its path."""
        return ()

    def contributions(self, read: Callable[[np.ndarray], np.ndarray], names: Sequence[str] | None, of: int) -> list[Part]:
        """Return the contribution of every part of the model to decision value ``of`` of one row; empty if the model has no such parts.

        ``read`` returns some columns of the row, ``(1, k)``. ``names``: names of all features.
        """
        return []

    def memory(self, data: BlockStore) -> list[Item]:
        """Return the driver's memory items for the rows being predicted."""
        return []

    def fetched_bytes(self, data: BlockStore) -> list[int]:
        """Return the bytes that each pass sends to the driver. A model that reads rows has one pass, which sends no bytes."""
        return [0]


def column_batches(data: BlockStore, features: np.ndarray, step: int = 0) -> list[int]:
    """Return the number of bytes of each pass that fetches columns, ``step`` columns at a time (0: all at once)."""
    step = step or max(1, len(features))
    batches: list[int] = []
    for lo in range(0, len(features), step):
        sizes = column_sizes(data, features[lo : lo + step])
        places = np.cumsum(sizes) // FETCH_BYTES
        batches += [int(sizes[places == k].sum()) for k in np.unique(places)]
    return batches or [0]


def check_width(n_features: int, row_scaled: bool, data: Any) -> None:
    """Check that data have as many features as the training data, and row factors if the model needs them.

    Raises ValueError, which names the store and both numbers of features.
    """
    if data.n_cols != n_features:
        raise ValueError(
            f"{data.url} has {data.n_cols} features, the model was trained on {n_features}; ingest the file with --like TRAINING_STORE"
        )
    if row_scaled and data.scale.row_factor is None:
        raise ValueError(
            f"{data.url} has the scale {data.scale.kind!r}, but the model was trained on rows scaled to unit norm; ingest the file with "
            "--like TRAINING_STORE"
        )

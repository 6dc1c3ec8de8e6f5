"""Missing values: which store has some, and who takes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...storage import BlockStore, DataError


def refuse_missing(data: Any, reader: str) -> None:
    """Refuse a store with missing values on behalf of a reader that takes none; nothing but the store's description is read before.

    ``data``: block store; of data in memory readers look at the values themselves; ``reader``: name of the method, estimator or command.
    Raises DataError: the store, a column with its missing values, and the rule are named.
    """
    if not isinstance(data, BlockStore) or not data.meta.n_missing:
        return
    counts, names = data.column_table("missing"), data.feature_names()
    worst = int(np.argmax(counts))
    named = "" if names is None else f" ({names[worst]!r})"
    raise DataError(
        f"column {worst}{named} has {counts[worst]} missing values, {data.meta.n_missing} are missing in all; {reader} takes none, only "
        "rule-ensemble takes missing values",
        data.url,
    )

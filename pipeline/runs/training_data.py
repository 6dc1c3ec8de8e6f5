"""What is known of the data of a run, as far as its store is still at hand: for reports, which need it for baselines and advice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...storage import BlockStore, RunStore, StorageError
from ...storage.urls import local_path

MAX_COLUMNS = 100_000  # of more columns the widths are not looked at


def training_facts(run: RunStore) -> dict[str, Any]:
    """Return ``rows``, ``columns``, ``classes`` (rows by label) and ``widths`` (of the narrowest and the widest column, with their names).

    Nothing where the store is gone or elsewhere.
    """
    url, digest = (run.read_json("where") or {}).get("data"), run.config.get("data_digest")
    if url is None or "stream" in run.config.get("extra", {}) or local_path(str(url)) is None:
        return {}
    try:
        store = BlockStore.open(str(url), digest)
        labels, facts = store.meta.labels, {"rows": store.n_rows, "columns": store.n_cols, **_widths(store)}
        if labels is None or not store.has_table("y"):
            return facts
        counts = np.bincount(store.target().astype(np.int64), minlength=len(labels)).tolist()
        return {**facts, "classes": dict(zip(map(str, labels), counts, strict=True))}
    except (StorageError, OSError):
        return {}


def _widths(store: BlockStore) -> dict[str, Any]:
    """Return the narrowest and the widest column of dense data that are not scaled; constant ones are left out."""
    if store.meta.kind != "dense" or store.meta.scale != "none" or store.n_cols > MAX_COLUMNS or not store.has_table("minimum", "columns"):
        return {}
    widths = store.column_table("maximum").astype(np.float64) - store.column_table("minimum")
    known = np.flatnonzero(widths > 0)
    if len(known) < 2:
        return {}
    names, ends = store.feature_names(), known[[int(widths[known].argmin()), int(widths[known].argmax())]]
    return {"widths": [{"feature": f"x{j}" if names is None else names[j], "width": float(widths[j])} for j in ends.tolist()]}

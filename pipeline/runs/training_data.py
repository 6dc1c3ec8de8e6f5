"""What is known of the data of a run, as far as its store is still at hand: for reports, which need it for baselines and advice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...storage import BlockStore, RunStore, StorageError
from ...storage.urls import local_path
from ..inputs.column_widths import column_widths


def training_facts(run: RunStore) -> dict[str, Any]:
    """Return ``rows``, ``columns``, ``classes`` (rows by label) and ``widths`` (of the narrowest and the widest column, with their names).

    Nothing where the store is gone or elsewhere.
    """
    url, digest = (run.read_json("where") or {}).get("data"), run.config.get("data_digest")
    if url is None or "stream" in run.config.get("extra", {}) or local_path(str(url)) is None:
        return {}
    try:
        store = BlockStore.open(str(url), digest)
        ends = column_widths(store) if store.meta.kind == "dense" else []
        labels, facts = store.meta.labels, {"rows": store.n_rows, "columns": store.n_cols, **({"widths": ends} if ends else {})}
        if labels is None or not store.has_table("y"):
            return facts
        counts = np.bincount(store.target().astype(np.int64), minlength=len(labels)).tolist()
        return {**facts, "classes": dict(zip(map(str, labels), counts, strict=True))}
    except (StorageError, OSError):
        return {}

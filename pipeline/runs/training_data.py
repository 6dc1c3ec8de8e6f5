"""The data of a run, and what is known of them as far as their store is still at hand: reports need it for baselines and advice."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...storage import BlockStore, RunStore, StorageError
from ...storage.urls import local_path
from ..inputs.fit_warnings import column_widths
from ..registry import MethodInfo
from .run import open_data


def training_store(run: RunStore, info: MethodInfo) -> Any:
    """Return the data that a run was fitted on. Raises StorageError: the run does not say where they are, or they are gone or replaced."""
    url = (run.read_json("where") or {}).get("data")
    if url is None:
        raise StorageError(f"{run.path}: where.json, which names the data of the run, is missing; copy the whole folder of the run")
    return open_data(str(url), info, run.config["extra"], run.config["data_digest"])


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

"""Clusters of the training rows of a finished run, under the kernel that it learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import rand_score

from ...storage import BlockStore, DataError, RunStore
from ..core.memory import Item, refuse
from ..records.csv_texts import CsvTexts
from .load import load_model
from .predictions import Predicted, Predictions, predictions_writer, refuse_foreign


def cluster_run(
    run: str, out: str, n_clusters: int, *, normalize: bool = True, seed: int = 0, store: str | None = None, memory: int | None = None
) -> dict[str, Any]:
    """Write the cluster of every training row of a run. The file ending of ``out`` selects the format (npz, csv, parquet, zarr).

    The clusters are those of k-means with ten starts on the coordinates of the learnt kernel, with random numbers from ``seed``.
    ``normalize``: scale coordinates to unit norm. If ``store``, the store of the run, is given, the result includes the Rand accuracy: the
    fraction of pairs of rows on which clusters and labels agree.

    Returns ``rows``, ``out`` and the number of rows per cluster. Raises ValueError if the run has no kernel over its rows, or the number of
    clusters is impossible; MemoryBoundExceeded if coordinates exceed ``memory`` bytes; DataError if the store has no labels, or has other
    rows than the run.
    """
    write = predictions_writer(out, CsvTexts(False, str))  # all of it is numbers
    refuse_foreign(out, Predictions.__name__)
    labels = None if store is None else _labels(store, RunStore.open(run).config["data_digest"])
    estimator = load_model(run)
    # Elsewhere ``cluster`` is the parameter that says where passes run.
    if not callable(getattr(estimator, "cluster", None)):
        method = RunStore.open(run).config.get("method", "tune")
        raise ValueError(f"run={run!r}: a fit of {method} has no clusters; cluster needs a fit of npkl")
    n, rank = estimator.eigenvectors_.shape
    if memory is not None:
        refuse("cluster", [factor_item(n, rank)], memory, "fewer rows, or a smaller base")
    found = estimator.set_params(random_state=seed).cluster(n_clusters, normalize=normalize)
    write(Predicted(None, found, np.zeros((n, 0))))
    names, counts = np.unique(found, return_counts=True)
    sizes = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
    return {"rows": n, "out": out, "clusters": sizes, **({} if labels is None else {"rand_accuracy": float(rand_score(labels, found))})}


def factor_item(n: int, rank: int) -> Item:
    """Return the memory item of clustering n rows with ``rank`` eigenpairs."""
    return "coordinates of the rows, and k-means' copies of them", 32 * n * rank


def _labels(store: str, digest: str) -> np.ndarray:
    data = BlockStore.open(store)
    if data.digest != digest:
        raise DataError("is not the store that the run was fitted on; only the rows of that store have clusters", data.url)
    if data.meta.labels is None or not data.has_table("y"):
        raise DataError("has no labels to compare the clusters with", data.url)
    return data.target()

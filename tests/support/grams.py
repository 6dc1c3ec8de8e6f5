"""Small Gram stores for tests."""

from pathlib import Path
from typing import Any

import numpy as np

from gramplane.storage import GramStore, GramTask

DATA = "d" * 64


def random_grams(k: int, n: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    """Symmetric positive semidefinite matrices (k, n, n), symmetric to the bit."""
    rng = np.random.default_rng(seed)
    factors = rng.standard_normal((k, n, 5))
    grams = factors @ factors.transpose(0, 2, 1)
    return ((grams + grams.transpose(0, 2, 1)) / 2).astype(dtype)


def names(k: int, first: int = 0) -> list[tuple[str, Any]]:
    """Digests and descriptions of k kernels."""
    return [(f"k{q:03d}", {"name": "rbf", "params": [["gamma", 2.0**-q]]}) for q in range(first, first + k)]


def cut(task: GramTask, grams: np.ndarray, first: int = 0) -> np.ndarray:
    """The block of a task, from whole matrices of the kernels ``names(…)``."""
    chosen = [int(digest[1:]) - first for digest in task.digests]
    return grams[chosen, slice(*task.rows)][:, :, slice(*task.cols)]


def make(url: Path | str, grams: np.ndarray, **options: Any) -> GramStore:
    """A store of such kernels, finished and committed."""
    given = {"data_digest": DATA, "n": grams.shape[1], "kernels": names(len(grams)), "dtype": grams.dtype.name, **options}
    store = GramStore.create(url, **given)
    for task in store.missing():
        store.write(task, cut(task, grams))
    store.commit()
    return store


def whole(store: GramStore, digests: Any = None) -> np.ndarray:
    """Whole matrices (k, n, n) read block by block, on both sides of the diagonal."""
    chosen = store.kernels if digests is None else digests
    out = np.full((len(chosen), store.n, store.n), np.nan, store.meta.dtype)
    for i, (a, b) in enumerate(zip(store.edges, store.edges[1:], strict=False)):
        for j, (c, d) in enumerate(zip(store.edges, store.edges[1:], strict=False)):
            out[:, a:b, c:d] = store.block(chosen, i, j)
    return out

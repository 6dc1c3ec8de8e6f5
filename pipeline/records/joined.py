"""JoinedStores: the concatenated rows of several block stores as one data set. Rows are read only when needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ...storage import BlockStore, ColumnScale, DataError, open_shared
from ...storage.meta import ScaleKind, inverse_root
from .data_set import Kind

Key = tuple[tuple[str, str], ...]


class JoinedStores:
    """Concatenated rows of block stores with the same width and scaling. Only the stores' names are sent to workers."""

    def __init__(self, stores: Sequence[BlockStore]) -> None:
        self.stores = tuple(stores)
        self.edges = (0, *accumulate(store.n_rows for store in self.stores))  # first row of every store, and of what would come next
        self.n_rows, self.n_cols = self.edges[-1], self.stores[0].n_cols
        self.url = " and ".join(store.url for store in self.stores)
        self.digest = hashlib.sha256(" ".join(store.digest for store in self.stores).encode()).hexdigest()
        self.meta = self.stores[0].meta
        self.scale: ColumnScale = self.stores[0].scale if self.stores[0].shown is None else _scale_of_all(self.stores)

    def with_scale(self, kind: ScaleKind, *, centred: bool = True) -> JoinedStores:
        """Return the same rows with another scaling, whose factors are computed over all stores."""
        return JoinedStores([store.with_scale(kind, centred=centred) for store in self.stores])

    def __reduce__(self) -> tuple[Callable[[Key], JoinedStores], tuple[Key]]:
        return open_joined, (tuple((store.url, store.digest) for store in self.stores),)

    @property
    def holds(self) -> Kind:
        """The kind of the rows."""
        return self.stores[0].holds

    def has_table(self, name: str) -> bool:
        """Always ``False``: tables of joined stores are not read."""
        return False

    def row_table(self, name: str) -> np.ndarray:
        """Raise KeyError; see :meth:`has_table`."""
        raise KeyError(name)

    def parts(self, lo: int, hi: int) -> Iterator[tuple[BlockStore, tuple[int, int]]]:
        """Yield the stores that contain some of the rows ``lo:hi``, each with its own range of rows."""
        for store, first in zip(self.stores, self.edges[:-1], strict=True):
            span = max(lo - first, 0), min(hi - first, store.n_rows)
            if span[0] < span[1]:
                yield store, span


def _scale_of_all(stores: Sequence[BlockStore]) -> ColumnScale:
    """Return the scaling over all stores, combined from the scaling of each."""
    first = stores[0].scale
    if first.kind == "standard" and stores[0].meta.kind == "sparse":
        raise DataError("scale='standard' needs all sparse rows in one store; set scale='max-abs'", stores[1].url)
    factors = np.array([store.scale.factor for store in stores], np.float64)
    squares = np.divide(1.0, np.square(factors), out=np.zeros_like(factors), where=factors > 0)
    if first.kind != "standard":
        return ColumnScale(first.kind, inverse_root(squares.max(axis=0) if first.kind == "max-abs" else squares.sum(axis=0)))
    counts = np.array([store.row_table("weight").sum() if store.has_table("weight") else store.n_rows for store in stores])
    shares, centres = (counts / counts.sum())[:, None], np.array([store.column_table("centre") for store in stores])
    centre = (shares * centres).sum(axis=0)
    variance = (shares * (squares + np.square(centres - centre))).sum(axis=0)
    return ColumnScale("standard", inverse_root(variance), None if first.shift is None else centre)


@lru_cache(maxsize=8)
def open_joined(places: Key) -> JoinedStores:
    """Return the joined rows of stores, which are given by URLs and digests. The rows are opened once per process."""
    return JoinedStores([open_shared(url, digest) for url, digest in places])

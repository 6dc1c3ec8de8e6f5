"""JoinedStores: the rows of several block stores one after the other as one data set, none of which is read before it is asked for."""

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
    """Rows of block stores of one width and one scaling, side by side. It travels as the stores' names, as references do."""

    def __init__(self, stores: Sequence[BlockStore]) -> None:
        self.stores = tuple(stores)
        self.edges = (0, *accumulate(store.n_rows for store in self.stores))  # first row of every store, and of what would come next
        self.n_rows, self.n_cols = self.edges[-1], self.stores[0].n_cols
        self.url = " and ".join(store.url for store in self.stores)
        self.digest = hashlib.sha256(" ".join(store.digest for store in self.stores).encode()).hexdigest()
        self.meta = self.stores[0].meta
        self.scale: ColumnScale = self.stores[0].scale if self.stores[0].shown is None else _scale_of_all(self.stores)

    def with_scale(self, kind: ScaleKind, *, centred: bool = True) -> JoinedStores:
        """Return the same rows under a scaling whose factors are those of all of them."""
        return JoinedStores([store.with_scale(kind, centred=centred) for store in self.stores])

    def __reduce__(self) -> tuple[Callable[[Key], JoinedStores], tuple[Key]]:
        return open_joined, (tuple((store.url, store.digest) for store in self.stores),)

    @property
    def holds(self) -> Kind:
        """What its rows are."""
        return self.stores[0].holds

    def has_table(self, name: str) -> bool:
        """Whether rows have a table: of rows from several stores none is read."""
        return False

    def row_table(self, name: str) -> np.ndarray:
        """Raise KeyError, see :meth:`has_table`."""
        raise KeyError(name)

    def parts(self, lo: int, hi: int) -> Iterator[tuple[BlockStore, tuple[int, int]]]:
        """Yield the stores that have some of rows ``lo:hi``, each with its own range of them."""
        for store, first in zip(self.stores, self.edges[:-1], strict=True):
            span = max(lo - first, 0), min(hi - first, store.n_rows)
            if span[0] < span[1]:
                yield store, span


def _scale_of_all(stores: Sequence[BlockStore]) -> ColumnScale:
    """Return the scaling of the rows of all stores, from that of the rows of each."""
    first = stores[0].scale
    if first.kind == "standard" and stores[0].meta.kind == "sparse":
        raise DataError("scale='standard' of sparse rows needs all of them in one store; scale='max-abs' does not", stores[1].url)
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
    """Return the rows of stores by their names and digests, opened once in a process."""
    return JoinedStores([open_shared(url, digest) for url, digest in places])

"""JoinedStores: the rows of several block stores one after the other as one data set, none of which is read before it is asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ...storage import BlockStore, ColumnScale, open_shared
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
        self.scale: ColumnScale = self.stores[0].scale

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


@lru_cache(maxsize=8)
def open_joined(places: Key) -> JoinedStores:
    """Return the rows of stores by their names and digests, opened once in a process."""
    return JoinedStores([open_shared(url, digest) for url, digest in places])

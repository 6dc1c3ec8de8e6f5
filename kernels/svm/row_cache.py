"""Rows of a Gram matrix computed on demand and kept, least recently used first out, within a budget of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .dual import add_rows, checked_diagonal

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]

BATCH_BYTES = 32 << 20
"""Most bytes of float64 rows computed at once in a product."""


class RowCacheGram:
    """A Gram matrix whose rows are fetched when needed.

    Parameters
    ----------
    fetch_rows : callable
        idx of shape (m,) -> rows of shape (m, n), float32 or float64; it is called with the missing rows of a request together.
    diag : array-like of shape (n,)
    n : int
    budget_bytes : int
        Most bytes of rows kept; the rows of one request come on top.

    Attributes
    ----------
    hits, misses : int
        Rows found and rows fetched so far.

    Raises
    ------
    ValueError
        If the diagonal does not fit or the budget is negative.
    """

    def __init__(self, fetch_rows: Callable[[IndexArray], NDArray[Any]], diag: ArrayLike, n: int, budget_bytes: int) -> None:
        self._diag = checked_diagonal(np.asarray(diag))
        if self._diag.shape != (n,):
            raise ValueError(f"diag: shape {self._diag.shape}, must be ({n},)")
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes={budget_bytes!r}: must not be negative")
        self.n = n
        self._fetch, self._budget = fetch_rows, budget_bytes
        self._kept: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self.nbytes = self.hits = self.misses = 0

    def diag(self) -> FloatArray:
        """Return the diagonal, shape (n,)."""
        return self._diag

    def rows(self, idx: IndexArray) -> NDArray[Any]:
        """Return rows idx, shape (len(idx), n), fetching those that are not kept.

        Raises
        ------
        ValueError
            If the fetched rows have another shape.
        """
        wanted = [int(i) for i in idx]
        missing = np.array(sorted({i for i in wanted if i not in self._kept}), dtype=np.int64)
        fetched = self._fetched(missing)
        new = dict(zip(missing.tolist(), fetched, strict=True))
        self.hits += len(wanted) - len(missing)
        self.misses += len(missing)
        out = np.empty((len(wanted), self.n), dtype=self._dtype(fetched))
        for at, i in enumerate(wanted):
            out[at] = new[i] if i in new else self._kept[i]
        self._touch(wanted, new)
        return out

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v; rows of zero entries are not touched, kept rows are used, others fetched in batches and not kept."""
        out, used = np.zeros(self.n), np.flatnonzero(v)
        batch = max(1, BATCH_BYTES // (8 * self.n))
        for at in range(0, len(used), batch):
            part = used[at : at + batch]
            missing = np.array([i for i in part if i not in self._kept], dtype=np.int64)
            new = dict(zip(missing.tolist(), self._fetched(missing), strict=True))
            rows = np.stack([new[i] if i in new else self._kept[i] for i in part.tolist()])
            self.hits += len(part) - len(missing)
            self.misses += len(missing)
            add_rows(out, rows, np.arange(len(part)), v[part])
        return out

    def counts(self) -> dict[str, float]:
        """Return hits, misses and their rate since the start."""
        asked = self.hits + self.misses
        return {"hits": self.hits, "misses": self.misses, "hit_rate": self.hits / asked if asked else 0.0}

    def _fetched(self, missing: IndexArray) -> NDArray[Any]:
        if not len(missing):
            return np.empty((0, self.n), dtype=np.float32)
        found = np.asarray(self._fetch(missing))
        if found.shape != (len(missing), self.n):
            raise ValueError(f"fetch_rows: returned shape {found.shape}, must be ({len(missing)}, {self.n})")
        return np.ascontiguousarray(found, dtype=found.dtype if found.dtype == np.float32 else np.float64)

    def _dtype(self, fetched: NDArray[Any]) -> np.dtype[Any]:
        if len(fetched):
            return fetched.dtype
        return next(iter(self._kept.values())).dtype if self._kept else np.dtype(np.float64)

    def _touch(self, wanted: list[int], new: dict[int, NDArray[Any]]) -> None:
        for i in wanted:
            if i in self._kept:
                self._kept.move_to_end(i)
            elif new[i].nbytes <= self._budget:
                # A copy: a view would keep the whole batch alive.
                self._kept[i] = new[i].copy()
                self.nbytes += new[i].nbytes
        while self.nbytes > self._budget:
            _, row = self._kept.popitem(last=False)
            self.nbytes -= row.nbytes

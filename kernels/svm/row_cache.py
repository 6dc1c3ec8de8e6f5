"""Rows of a Gram matrix, computed on demand and cached within a budget of bytes; the least recently used leave first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Array, FloatArray, IntArray
from .dual import add_rows, check_diagonal

BATCH_BYTES = 32 << 20  # Greatest number of bytes of float64 rows computed at once in a product.


class RowCacheGram:
    """A Gram matrix whose rows are fetched when needed. ``fetch_rows`` takes all missing rows of a request at once: indices ``(m,)`` ->
    rows ``(m, n)``, float32 or float64. ``budget_bytes`` bounds the cached rows; the rows of one request come on top. ``hits`` and
    ``misses`` count cached and fetched rows.
    """

    def __init__(self, fetch_rows: Callable[[IntArray], Array], diag: ArrayLike, n: int, budget_bytes: int) -> None:
        self._diag = check_diagonal(np.asarray(diag))
        if self._diag.shape != (n,):
            raise ValueError(f"diag: shape {self._diag.shape}, must be ({n},)")
        if budget_bytes < 0:
            raise ValueError(f"budget_bytes={budget_bytes!r}: must not be negative")
        self.n = n
        self._fetch, self._budget = fetch_rows, budget_bytes
        self._cached: OrderedDict[int, Array] = OrderedDict()
        self.nbytes = self.hits = self.misses = 0

    def diag(self) -> FloatArray:
        """Return the diagonal, shape (n,)."""
        return self._diag

    def rows(self, idx: IntArray) -> Array:
        """Return rows idx, shape (len(idx), n), fetching those that are not cached."""
        requested = [int(i) for i in idx]
        missing = np.array(sorted({i for i in requested if i not in self._cached}), dtype=np.int64)
        fetched = self._fetched(missing)
        new = dict(zip(missing.tolist(), fetched, strict=True))
        self.hits += len(requested) - len(missing)
        self.misses += len(missing)
        dtype = fetched.dtype if len(fetched) else next((row.dtype for row in self._cached.values()), np.dtype(np.float64))
        out = np.empty((len(requested), self.n), dtype=dtype)
        for at, i in enumerate(requested):
            out[at] = new[i] if i in new else self._cached[i]
        self._touch(requested, new)
        return out

    def matvec(self, v: FloatArray) -> FloatArray:
        """Return K v; rows of zero entries are not read, cached ones are used, others are fetched in batches and not cached."""
        out, used = np.zeros(self.n), np.flatnonzero(v)
        batch = max(1, BATCH_BYTES // (8 * self.n))
        for at in range(0, len(used), batch):
            part = used[at : at + batch]
            missing = np.array([i for i in part if i not in self._cached], dtype=np.int64)
            new = dict(zip(missing.tolist(), self._fetched(missing), strict=True))
            rows = np.stack([new[i] if i in new else self._cached[i] for i in part.tolist()])
            self.hits += len(part) - len(missing)
            self.misses += len(missing)
            add_rows(out, rows, np.arange(len(part)), v[part])
        return out

    def counts(self) -> dict[str, float]:
        """Return hits, misses and their rate since the start."""
        total = self.hits + self.misses
        return {"hits": self.hits, "misses": self.misses, "hit_rate": self.hits / total if total else 0.0}

    def _fetched(self, missing: IntArray) -> Array:
        if not len(missing):
            return np.empty((0, self.n), dtype=np.float32)
        rows = np.asarray(self._fetch(missing))
        if rows.shape != (len(missing), self.n):
            raise ValueError(f"fetch_rows: returned shape {rows.shape}, must be ({len(missing)}, {self.n})")
        return np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64)

    def _touch(self, requested: list[int], new: dict[int, Array]) -> None:
        for i in requested:
            if i in self._cached:
                self._cached.move_to_end(i)
            elif new[i].nbytes <= self._budget:
                # A view would hold the memory of the whole batch.
                self._cached[i] = new[i].copy()
                self.nbytes += new[i].nbytes
        while self.nbytes > self._budget:
            _, row = self._cached.popitem(last=False)
            self.nbytes -= row.nbytes

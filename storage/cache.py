"""Cache of loaded blocks, limited in bytes per process; the blocks that are reused soonest stay in the cache."""

import threading
from collections import OrderedDict
from typing import Any, Protocol

from .errors import Matrix

DEFAULT_LIMIT = 256 << 20

REMEMBERED = 100_000
"""Number of evicted blocks whose last use is remembered."""


class _Loadable(Protocol):
    @property
    def nbytes(self) -> int: ...

    def load(self) -> Matrix: ...


class BlockCache:
    """Cache of blocks, limited to ``limit`` bytes. Blocks are shared and must not be modified.

    Passes read all blocks in turn. If the least recently used block were always evicted, a cache slightly smaller than the data would never
    hit. A block therefore replaces older blocks only if its previous use is more recent than theirs. If the blocks of a cycle do not all
    fit, as many as fit stay in the cache; blocks that are no longer read are evicted.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.hits = self.misses = self.nbytes = 0
        self._blocks: OrderedDict[Any, Any] = OrderedDict()
        # When a block was last asked for, counted in loads: of those held and of as many others as are remembered.
        self._asked: OrderedDict[Any, int] = OrderedDict()
        self._clock = 0
        self._lock = threading.Lock()

    def load(self, ref: _Loadable) -> Matrix:
        """Return the block, from the cache if it is there. A reference to a block that is in memory anyway, or whose rows are, is not
        cached.
        """
        if getattr(ref, "source", None) is not None:
            return ref.load()
        with self._lock:
            interval = self._ask(ref)
            if ref in self._blocks:
                self.hits += 1
                self._blocks.move_to_end(ref)
                return self._blocks[ref]
            self.misses += 1
        block = ref.load()
        with self._lock:
            self._keep(ref, block, interval)
        return block

    def held(self, ref: _Loadable) -> Matrix:
        """Return the block if it is in the cache, else None; nothing is read."""
        with self._lock:
            return self._blocks.get(ref)

    def _ask(self, ref: _Loadable) -> float:
        """Record a request for a block; return the number of loads since the previous request."""
        self._clock += 1
        before = self._asked.pop(ref, None)
        self._asked[ref] = self._clock
        if len(self._asked) > REMEMBERED + len(self._blocks):
            self._asked.popitem(last=False)
        return float("inf") if before is None else self._clock - before

    def _keep(self, ref: _Loadable, block: Matrix, interval: float) -> None:
        if ref.nbytes > self.limit or ref in self._blocks or not self._room(ref.nbytes, interval):
            return
        self._blocks[ref] = block
        self.nbytes += ref.nbytes
        self._shrink()

    def _room(self, nbytes: int, interval: float) -> bool:
        needed = self.nbytes + nbytes - self.limit
        for old in self._blocks:
            if needed <= 0:
                return True
            if self._clock - self._asked.get(old, 0) <= interval:
                return False
            needed -= old.nbytes
        return needed <= 0

    def _shrink(self) -> None:
        while self.nbytes > self.limit:
            old, _ = self._blocks.popitem(last=False)
            self.nbytes -= old.nbytes

    def set_limit(self, nbytes: int) -> None:
        """Change the limit and evict the least recently used blocks beyond it."""
        with self._lock:
            self.limit = max(0, int(nbytes))
            self._shrink()

    def clear(self) -> None:
        """Remove all blocks and reset the counters."""
        with self._lock:
            self._blocks.clear()
            self._asked.clear()
            self.hits = self.misses = self.nbytes = self._clock = 0


_cache = BlockCache()


def block_cache() -> BlockCache:
    return _cache


def cached_bytes() -> int:
    """Return the memory in bytes that the cached blocks of this process take."""
    return _cache.nbytes


def set_cache_limit(nbytes: int) -> None:
    """Set the memory in bytes that cached blocks of this process may take (0: no cache)."""
    _cache.set_limit(nbytes)

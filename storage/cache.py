"""Loaded blocks kept in memory within a number of bytes per process: those that are used again soonest."""

import threading
from collections import OrderedDict
from typing import Any, Protocol

from .errors import Matrix

DEFAULT_LIMIT = 256 << 20

REMEMBERED = 100_000
"""Blocks not held whose last use is remembered."""


class _Loadable(Protocol):
    @property
    def nbytes(self) -> int: ...

    def load(self) -> Matrix: ...


class BlockCache:
    """Cache of blocks, bounded to ``limit`` bytes. Blocks are shared: nobody may change them.

    Passes read all blocks in turn. Were the least recently used block always the one to go, a cache a little smaller than the data would
    never hit. So a block takes the place of older ones only if it comes back sooner than they have been lying unused: of a cycle that does
    not fit, what fits stays; blocks nobody reads any more go.
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
        """Return the block, from memory if it is held; references to blocks in memory are passed through."""
        if hasattr(ref, "source"):
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
        """Return the block if it is in memory, else None; nothing is read."""
        with self._lock:
            return self._blocks.get(ref)

    def _ask(self, ref: _Loadable) -> float:
        """Note that a block is asked for; return the loads since the last time."""
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
        """Change the limit, dropping the least recently used blocks beyond it."""
        with self._lock:
            self.limit = max(0, int(nbytes))
            self._shrink()

    def clear(self) -> None:
        """Forget every block and the counters."""
        with self._lock:
            self._blocks.clear()
            self._asked.clear()
            self.hits = self.misses = self.nbytes = self._clock = 0


_cache = BlockCache()


def block_cache() -> BlockCache:
    """Return the cache of this process."""
    return _cache


def cached_bytes() -> int:
    """Return the bytes this process keeps in loaded blocks."""
    return _cache.nbytes


def set_cache_limit(nbytes: int) -> None:
    """Set the bytes this process may keep in loaded blocks (0: none)."""
    _cache.set_limit(nbytes)

"""Loaded blocks kept in memory, least recently used first out, within a number of bytes per process."""

import threading
from collections import OrderedDict
from typing import Any, Protocol

DEFAULT_LIMIT = 256 << 20


class Loadable(Protocol):
    """A reference to a block."""

    @property
    def nbytes(self) -> int:
        """Bytes of the loaded block."""
        ...

    def load(self) -> Any:
        """Read the block."""
        ...


class BlockCache:
    """Least-recently-used cache of blocks, bounded in bytes. Blocks are shared: nobody may change them.

    Parameters
    ----------
    limit : int
        Bytes; a block larger than this is never kept.

    Attributes
    ----------
    hits, misses : int
        Loads answered from memory, and others.
    nbytes : int
        Bytes held.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.hits = self.misses = self.nbytes = 0
        self._blocks: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def load(self, ref: Loadable) -> Any:
        """Return the block, from memory if it is held; references to blocks in memory are passed through."""
        if hasattr(ref, "source"):
            return ref.load()
        with self._lock:
            if ref in self._blocks:
                self.hits += 1
                self._blocks.move_to_end(ref)
                return self._blocks[ref]
            self.misses += 1
        block = ref.load()
        with self._lock:
            self._keep(ref, block)
        return block

    def held(self, ref: Loadable) -> Any:
        """Return the block if it is in memory, else None; nothing is read."""
        with self._lock:
            return self._blocks.get(ref)

    def _keep(self, ref: Loadable, block: Any) -> None:
        if ref.nbytes > self.limit or ref in self._blocks:
            return
        self._blocks[ref] = block
        self.nbytes += ref.nbytes
        self._shrink()

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
            self.hits = self.misses = self.nbytes = 0


_cache = BlockCache()


def block_cache() -> BlockCache:
    """Return the cache of this process."""
    return _cache


def set_cache_limit(nbytes: int) -> None:
    """Set the bytes this process may keep in loaded blocks (0: none)."""
    _cache.set_limit(nbytes)

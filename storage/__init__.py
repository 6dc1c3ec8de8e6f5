"""Disk: block stores, run stores and records, in plain Zarr v3 and JSON. No Dask, no mathematics.

Names are imported on first use, so that ``import gramplane.storage.errors`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import BlockMeta, BlockRef, BlockStore, ColumnScale, VerifyReport
    from .cache import BlockCache, block_cache, set_cache_limit
    from .errors import DataError, DigestMismatch, MissingBlock, OutOfSpace, RunLocked, SchemaError, StorageError, UnalignedWrite
    from .layout import DenseLayout, StripeLayout, plan_dense, plan_dense_rows, plan_stripes
    from .memory import MemoryBlocks, MemoryRef
    from .tables import COLUMN_TABLES, column_tables
    from .writer import BlockWriter

_MODULES = ("errors", "blocks", "cache", "layout", "memory", "tables", "writer")

__all__ = [
    "BlockCache",
    "BlockMeta",
    "BlockRef",
    "BlockStore",
    "BlockWriter",
    "COLUMN_TABLES",
    "ColumnScale",
    "DataError",
    "DenseLayout",
    "DigestMismatch",
    "MemoryBlocks",
    "MemoryRef",
    "MissingBlock",
    "OutOfSpace",
    "RunLocked",
    "SchemaError",
    "StorageError",
    "StripeLayout",
    "UnalignedWrite",
    "VerifyReport",
    "block_cache",
    "column_tables",
    "plan_dense",
    "plan_dense_rows",
    "plan_stripes",
    "set_cache_limit",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _MODULES:
            module = import_module(f".{home}", __name__)
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Disk: block stores, run stores and records, in plain Zarr v3 and JSON. No Dask, no mathematics.

Names are imported on first use, so that ``import gramplane.storage.errors`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks.row_files import read_pairs, read_row_texts
    from .blocks.store import BlockMeta, BlockRef, BlockStore, ColumnScale, VerifyReport, open_shared
    from .blocks.tables import COLUMN_TABLES, column_tables
    from .blocks.writer import BlockWriter
    from .cache import BlockCache, block_cache, cached_bytes, set_cache_limit
    from .errors import DataError, DigestMismatch, MissingBlock, OtherRun, OutOfSpace, RunLocked, SchemaError, StorageError, UnalignedWrite
    from .grams.layout import plan_block
    from .grams.store import GramRef, GramStore, GramSums, GramTask, open_gram
    from .layout import MEMORY_STRIPE_BYTES, DenseLayout, StripeLayout, plan_dense, plan_dense_rows, plan_stripes
    from .locks import Lease
    from .memory import MemoryBlocks, MemoryRef
    from .records import from_arrays, to_arrays
    from .runs.models import read_model, write_model
    from .runs.step_record import StepManifest, digest_of
    from .runs.store import ArrayRef, RunStore
    from .sparse_door import admitted, gathered

_MODULES = (
    "errors",
    "blocks.store",
    "cache",
    "grams.store",
    "grams.layout",
    "layout",
    "locks",
    "runs.step_record",
    "memory",
    "runs.models",
    "records",
    "blocks.row_files",
    "runs.store",
    "sparse_door",
    "blocks.tables",
    "blocks.writer",
)

__all__ = [
    "COLUMN_TABLES",
    "MEMORY_STRIPE_BYTES",
    "ArrayRef",
    "BlockCache",
    "BlockMeta",
    "BlockRef",
    "BlockStore",
    "BlockWriter",
    "ColumnScale",
    "DataError",
    "DenseLayout",
    "DigestMismatch",
    "GramRef",
    "GramStore",
    "GramSums",
    "GramTask",
    "Lease",
    "MemoryBlocks",
    "MemoryRef",
    "MissingBlock",
    "OtherRun",
    "OutOfSpace",
    "RunLocked",
    "RunStore",
    "SchemaError",
    "StepManifest",
    "StorageError",
    "StripeLayout",
    "UnalignedWrite",
    "VerifyReport",
    "admitted",
    "block_cache",
    "cached_bytes",
    "column_tables",
    "digest_of",
    "from_arrays",
    "gathered",
    "open_gram",
    "open_shared",
    "plan_block",
    "plan_dense",
    "plan_dense_rows",
    "plan_stripes",
    "read_model",
    "read_pairs",
    "read_row_texts",
    "set_cache_limit",
    "to_arrays",
    "write_model",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _MODULES:
            module = import_module(f".{home}", __name__)
            if name in vars(module):
                return vars(module)[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""Disk: block stores, run stores and records, in plain Zarr v3 and JSON. No Dask, no mathematics.

Names are imported on first use, so that ``import gramplane.storage.errors`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import BlockMeta, BlockRef, BlockStore, ColumnScale, VerifyReport, open_shared
    from .cache import BlockCache, block_cache, cached_bytes, set_cache_limit
    from .errors import DataError, DigestMismatch, MissingBlock, OtherRun, OutOfSpace, RunLocked, SchemaError, StorageError, UnalignedWrite
    from .gram import GramRef, GramStore, GramSums, GramTask, open_gram
    from .gram_layout import plan_block
    from .layout import MEMORY_STRIPE_BYTES, DenseLayout, StripeLayout, plan_dense, plan_dense_rows, plan_stripes
    from .locks import Lease
    from .manifest import StepManifest, digest_of
    from .memory import MemoryBlocks, MemoryRef
    from .models import read_model, write_model
    from .records import from_arrays, to_arrays
    from .row_files import read_pairs, read_row_texts
    from .runs import ArrayRef, RunStore
    from .sparse_door import admitted, gathered
    from .tables import COLUMN_TABLES, column_tables
    from .writer import BlockWriter

_MODULES = (
    "errors",
    "blocks",
    "cache",
    "gram",
    "gram_layout",
    "layout",
    "locks",
    "manifest",
    "memory",
    "models",
    "records",
    "row_files",
    "runs",
    "sparse_door",
    "tables",
    "writer",
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

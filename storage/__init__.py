"""Storage on disk: block stores, run directories and records, in plain Zarr v3 and JSON. It uses neither Dask nor numerical code.

Names are imported on first use, so that ``import gramplane.storage.errors`` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .blocks.row_files import load_matrix as load_matrix
    from .blocks.row_files import matrix_file as matrix_file
    from .blocks.row_files import read_edges as read_edges
    from .blocks.row_files import read_named_rows as read_named_rows
    from .blocks.row_files import read_pairs as read_pairs
    from .blocks.row_files import read_row_texts as read_row_texts
    from .blocks.store import BlockMeta as BlockMeta
    from .blocks.store import BlockRef as BlockRef
    from .blocks.store import BlockStore as BlockStore
    from .blocks.store import ColumnScale as ColumnScale
    from .blocks.store import open_shared as open_shared
    from .blocks.tables import pick_columns as pick_columns
    from .blocks.writer import BlockWriter as BlockWriter
    from .cache import block_cache as block_cache
    from .cache import cached_bytes as cached_bytes
    from .cache import set_cache_limit as set_cache_limit
    from .errors import DataError as DataError
    from .errors import DigestMismatch as DigestMismatch
    from .errors import MissingBlock as MissingBlock
    from .errors import OtherRun as OtherRun
    from .errors import OutOfSpace as OutOfSpace
    from .errors import RunLocked as RunLocked
    from .errors import SchemaError as SchemaError
    from .errors import StorageError as StorageError
    from .errors import UnalignedWrite as UnalignedWrite
    from .grams.store import GramRef as GramRef
    from .grams.store import GramStore as GramStore
    from .grams.store import GramTask as GramTask
    from .grams.store import open_gram as open_gram
    from .ingest.api import columns_file as columns_file
    from .ingest.api import load_columns as load_columns
    from .layout import MEMORY_STRIPE_BYTES as MEMORY_STRIPE_BYTES
    from .layout import StripeLayout as StripeLayout
    from .layout import plan_stripes as plan_stripes
    from .memory import MemoryBlocks as MemoryBlocks
    from .memory import MemoryRef as MemoryRef
    from .records import to_arrays as to_arrays
    from .runs.files import StepManifest as StepManifest
    from .runs.files import digest_of as digest_of
    from .runs.models import read_model as read_model
    from .runs.models import write_model as write_model
    from .runs.store import ArrayRef as ArrayRef
    from .runs.store import RunStore as RunStore
    from .runs.tiles import TiledMatrix as TiledMatrix

_NAMES = {
    "blocks.row_files": "load_matrix matrix_file read_edges read_named_rows read_pairs read_row_texts",
    "blocks.store": "BlockMeta BlockRef BlockStore ColumnScale open_shared",
    "blocks.tables": "pick_columns",
    "blocks.writer": "BlockWriter",
    "cache": "block_cache cached_bytes set_cache_limit",
    "ingest.api": "columns_file load_columns",
    "errors": "DataError DigestMismatch MissingBlock OtherRun OutOfSpace RunLocked SchemaError StorageError UnalignedWrite",
    "grams.store": "GramRef GramStore GramTask open_gram",
    "layout": "MEMORY_STRIPE_BYTES StripeLayout plan_stripes",
    "memory": "MemoryBlocks MemoryRef",
    "records": "to_arrays",
    "runs.models": "read_model write_model",
    "runs.files": "StepManifest digest_of",
    "runs.store": "ArrayRef RunStore",
    "runs.tiles": "TiledMatrix",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] (names as above)


if not TYPE_CHECKING:  # (a name that there is not is an error to type checkers, too)

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
        return value


def __dir__() -> list[str]:
    return __all__

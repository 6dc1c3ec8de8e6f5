"""Disk: block stores, run stores and records, in plain Zarr v3 and JSON. No Dask, no mathematics.

Names are imported on first use, so that ``import gramplane.storage.errors`` costs nothing.
"""

from importlib import import_module

_NAMES = {
    "blocks.row_files": "load_matrix matrix_file read_edges read_named_rows read_pairs read_row_texts",
    "blocks.store": "BlockMeta BlockRef BlockStore ColumnScale VerifyReport open_shared",
    "blocks.tables": "COLUMN_TABLES column_tables pick_columns",
    "blocks.writer": "BlockWriter",
    "cache": "BlockCache block_cache cached_bytes set_cache_limit",
    "ingest.columns_file": "columns_file load_columns",
    "errors": "DataError DigestMismatch MissingBlock OtherRun OutOfSpace RunLocked SchemaError StorageError UnalignedWrite",
    "grams.layout": "plan_block",
    "grams.store": "GramRef GramStore GramSums GramTask open_gram",
    "layout": "MEMORY_STRIPE_BYTES DenseLayout StripeLayout plan_dense plan_dense_rows plan_stripes",
    "locks": "Lease",
    "memory": "MemoryBlocks MemoryRef",
    "records": "from_arrays to_arrays",
    "runs.models": "read_model write_model",
    "runs.step_record": "StepManifest digest_of",
    "runs.store": "ArrayRef RunStore",
    "runs.tiles": "TiledMatrix",
    "sparse_door": "admit",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll] (names of the stub)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)  # once
    return value


def __dir__() -> list[str]:
    return __all__

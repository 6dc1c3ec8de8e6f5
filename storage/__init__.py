"""Disk: block stores, run stores and records, in plain Zarr v3 and JSON. No Dask, no mathematics.

Public names are imported on first use, so that ``import gramplane.storage`` stays cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .blocks import BlockMeta, BlockRef, BlockStore, ColumnScale, VerifyReport
    from .errors import (
        DataError,
        DigestMismatch,
        MissingBlock,
        OutOfSpace,
        RunLocked,
        SchemaError,
        StorageError,
        UnalignedWrite,
    )
    from .layout import DenseLayout, StripeLayout, plan_dense, plan_dense_rows, plan_stripes
    from .writer import BlockWriter

_HOMES = {
    "errors": ("DataError", "DigestMismatch", "MissingBlock", "OutOfSpace", "RunLocked", "SchemaError", "StorageError", "UnalignedWrite"),
    "layout": ("DenseLayout", "StripeLayout", "plan_dense", "plan_dense_rows", "plan_stripes"),
    "blocks": ("BlockMeta", "BlockRef", "BlockStore", "ColumnScale", "VerifyReport"),
    "writer": ("BlockWriter",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "BlockMeta",
    "BlockRef",
    "BlockStore",
    "BlockWriter",
    "ColumnScale",
    "DataError",
    "DenseLayout",
    "DigestMismatch",
    "MissingBlock",
    "OutOfSpace",
    "RunLocked",
    "SchemaError",
    "StorageError",
    "StripeLayout",
    "UnalignedWrite",
    "VerifyReport",
    "plan_dense",
    "plan_dense_rows",
    "plan_stripes",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)

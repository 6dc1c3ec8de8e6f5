"""What commands and workflow steps do with Gram stores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...storage.places import is_local
from ..checking import ConfigError
from ..kernel_files import kernel_entries, kernel_specs
from ..progress import Emit
from .actions import require_path
from .options import ComputeOptions

if TYPE_CHECKING:
    from ...storage import BlockStore, GramStore


def is_gram_store(path: str) -> bool:
    """Tell a Gram store from a block store by the schema in its root; by its folders where the root cannot be read."""
    from ...storage import GramStore, SchemaError, StorageError
    from ...storage.urls import open_objects
    from ...storage.versions import open_version

    if not is_local(path):
        try:
            GramStore.open(path)
        except SchemaError:
            return False
        return True
    try:
        version = Path(open_version(open_objects(path)).objects.url)
    except StorageError:
        version = Path(path)
    try:
        attributes = json.loads((version / "zarr.json").read_bytes())["attributes"]
        return str(attributes["gramplane"]["schema"]).startswith("gramplane.grams/")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return (version / "grams").is_dir() and (version / "manifest.json").exists()


def open_store(path: str) -> BlockStore | GramStore:
    """Open a block store or a Gram store, whichever it is."""
    from ...storage import BlockStore, GramStore

    return GramStore.open(path) if is_gram_store(path) else BlockStore.open(path)


def specs_for(store: str, kernels: str | list[Any]) -> list[Any]:
    """Return the kernels of a text, a file or a list of entries, for the rows of a store."""
    from ...storage import BlockStore

    entries, location = kernel_entries(kernels) if isinstance(kernels, str) else (kernels, "kernels")
    return kernel_specs(entries, BlockStore.open(require_path(store, "store")).meta.n_cols, location)


def build_store(
    store: str, kernels: str | list[Any], out: str, compute: ComputeOptions, emit: Emit, dry_run: bool = False, overwrite: bool = False
) -> tuple[str, dict[str, Any]]:
    """Build (or plan, or replace) a Gram store; return status and figures."""
    from ...pipeline.runs.gram_stores import build_grams

    specs = specs_for(store, kernels)
    result = build_grams(store, specs, out, on_event=emit, dry_run=dry_run, overwrite=overwrite, **compute.arguments())
    return result.status, result.figures


def repair_store(grams: str, store: str, compute: ComputeOptions, emit: Emit) -> tuple[str, dict[str, Any]]:
    """Repair a Gram store; return status and figures. Raises ConfigError if it is a block store."""
    from ...pipeline.runs.gram_stores import repair_grams

    if not is_gram_store(grams):
        raise ConfigError(f"{grams} is not a Gram store; a damaged block store is made again with `gramplane ingest --overwrite`")
    result = repair_grams(grams, store, on_event=emit, **compute.arguments())
    return result.status, result.figures


def ingest_precomputed(source: str, store: str | None, out: str, emit: Emit, overwrite: bool = False) -> dict[str, Any]:
    """Put matrices computed elsewhere into a Gram store; return its figures. Raises SchemaError if the matrices have another number of rows
    than the block store."""
    from ...storage import BlockStore, SchemaError
    from ...storage.ingest import ingest_grams
    from ...storage.ingest.fetching import make_local
    from ...storage.ingest.orders import read_order

    rows = None if store is None else BlockStore.open(require_path(store, "store"))
    with make_local(require_path(source, "precomputed: file"), folders=True) as local_source:
        order = read_order(str(local_source))
        if rows is not None and order not in (None, rows.meta.n_rows):
            raise SchemaError(f"{source} has matrices of {order} rows; {store} has {rows.meta.n_rows}")

        def progress(done: int, total: int, phase: str) -> None:
            emit({"event": "phase", "phase": f"{phase}: {done} of {total}"})

        digest = None if rows is None else rows.digest
        written = ingest_grams(local_source, out, data_digest=digest, overwrite=overwrite, progress=progress)
    return {"source": source, **gram_figures(written)}


def gram_figures(store: GramStore) -> dict[str, Any]:
    """Return the figures of an open Gram store."""
    meta, missing = store.meta, store.missing()
    blocks = meta.layout.n_pairs * len(store.bundles)
    sizes = {"rows": meta.n, "kernels": len(store.kernels), "block_rows": meta.block, "dtype": meta.dtype}
    counts = {"blocks": blocks - len(missing), "blocks_missing": len(missing), "bytes": sum(size for size, _ in store.listed.values())}
    return {"store": store.url, **sizes, **counts, "data": meta.data, "digest": store.digest}


def kernel_name(record: Mapping[str, Any]) -> str:
    """Return the short text of a stored kernel; of one computed elsewhere its label."""
    from ...pipeline.runs.gram_stores import KernelSpec

    if record.get("name") == "precomputed":
        return f"precomputed {record.get('label')}"
    return str(KernelSpec.from_json(record))


def gram_left_overs(store: GramStore, keep: str | None) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return the kernels not among those to keep, and the orphans, each with bytes. Without ``keep`` every kernel is kept."""
    if keep is None:
        return [], store.orphans()
    entries, location = kernel_entries(keep)
    digests = {spec.digest() for spec in kernel_specs(entries, None, location)}
    return store.unused(digests), store.orphans()

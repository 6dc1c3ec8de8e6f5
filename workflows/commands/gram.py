"""Commands on Gram stores (gram, repair), and functions on Gram stores for other commands and workflow steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...storage.places import is_local
from ..checking import ConfigError
from ..console import Emit, Result, align_rows, plan_text
from ..kernel_files import kernel_entries, kernel_specs
from .actions import require_path
from .options import ComputeOptions, Frame, Url, cluster_options, command, dry_run_option

if TYPE_CHECKING:
    from ...storage import BlockStore, GramStore

_SCALES = ("auto", "none", "standard", "max-abs", "unit-column")


def is_gram_store(path: str) -> bool:
    """Return whether a path is a Gram store, judged by the schema in its root, or by its folders if the root cannot be read."""
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
    """Open a block store or a Gram store."""
    from ...storage import BlockStore, GramStore

    return GramStore.open(path) if is_gram_store(path) else BlockStore.open(path)


def build_store(
    store: str,
    kernels: str | list[Any],
    out: str,
    compute: ComputeOptions,
    emit: Emit,
    dry_run: bool = False,
    overwrite: bool = False,
    scale: str | None = "auto",
) -> tuple[str, dict[str, Any]]:
    """Build, plan or replace a Gram store. Returns the status and a summary."""
    from ...pipeline.runs.gram_stores import build_grams
    from ...storage import BlockStore

    entries, location = kernel_entries(kernels) if isinstance(kernels, str) else (kernels, "kernels")
    specs = kernel_specs(entries, BlockStore.open(require_path(store, "store")).meta.n_cols, location)
    result = build_grams(store, specs, out, on_event=emit, dry_run=dry_run, overwrite=overwrite, scale=scale, **compute.arguments())
    return result.status, result.figures


def ingest_precomputed(source: str, store: str | None, out: str, emit: Emit, overwrite: bool = False) -> dict[str, Any]:
    """Write precomputed matrices to a Gram store and return a summary. Raises SchemaError if the matrices and the block store have
    different numbers of rows.
    """
    from ...storage import BlockStore, SchemaError
    from ...storage.ingest.files import make_local
    from ...storage.ingest.grams import ingest_grams, read_order

    rows = None if store is None else BlockStore.open(require_path(store, "store"))
    with make_local(require_path(source, "precomputed: file"), folders=True) as local_source:
        order = read_order(str(local_source))
        if rows is not None and order not in (None, rows.meta.n_rows):
            raise SchemaError(f"{source} has matrices of {order} rows, but {store} has {rows.meta.n_rows} rows")

        def progress(done: int, total: int, phase: str) -> None:
            emit({"event": "phase", "phase": f"{phase}: {done} of {total}"})

        digest = None if rows is None else rows.digest
        written = ingest_grams(local_source, out, data_digest=digest, overwrite=overwrite, progress=progress)
    return {"source": source, **gram_figures(written)}


def gram_figures(store: GramStore) -> dict[str, Any]:
    meta, missing = store.meta, store.missing()
    blocks = meta.layout.n_pairs * len(store.bundles)
    sizes = {"rows": meta.n, "kernels": len(store.kernels), "block_rows": meta.block, "dtype": meta.dtype}
    counts = {"blocks": blocks - len(missing), "blocks_missing": len(missing), "bytes": sum(size for size, _ in store.listed.values())}
    return {"store": store.url, **sizes, **counts, "data": meta.data, "digest": store.digest}


def kernel_name(record: Mapping[str, Any]) -> str:
    """Return the text of a stored kernel: its expression or, for a precomputed kernel, its label."""
    from ...pipeline.runs.gram_stores import KernelSpec

    if record.get("name") == "precomputed":
        return f"precomputed {record.get('label')}"
    return str(KernelSpec.from_json(record))


def gram_left_overs(store: GramStore, keep: str | None) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Return two lists, each entry with its size in bytes: the kernels that ``keep`` does not name (none without ``keep``), and the
    unlisted blocks.
    """
    if keep is None:
        return [], store.orphans()
    entries, location = kernel_entries(keep)
    specs = kernel_specs(entries, None, location)
    for spec in specs:
        if spec.is_open:
            raise ConfigError(f"{location}: kernel {spec} lacks a width or gives columns by name; write the width and column numbers")
    digests = {spec.digest() for spec in specs}
    return store.unused(digests), store.orphans()


_OUT = "The Gram store; kernels are added to one that is there."


@command("gram", short_help="Compute kernel matrices and keep them on disk.")
@click.argument("store", required=False, type=Url("store"))
@click.option("--kernels", metavar="FILE|TEXT", help='A YAML list of kernels, or texts such as "rbf(gamma=0.5)[0:4]; linear".')
@click.option("--precomputed", type=Url("source"), metavar="FILE", help="Take matrices computed elsewhere: .npy, .npz, or a Zarr array.")
@click.option("--out", type=Url("new-store"), required=True, metavar="GRAMS", help=_OUT)
@click.option("--overwrite", is_flag=True, help="Replace a Gram store of other data.")
@click.option("--scale", type=click.Choice(_SCALES), help="Scaling of the columns; default: auto, by kind and kernels.")
@cluster_options
@dry_run_option
def gram(
    frame: Frame,
    store: str | None,
    kernels: str | None,
    precomputed: str | None,
    out: str,
    overwrite: bool,
    scale: str | None,
    compute: ComputeOptions,
    dry_run: bool,
) -> Result:
    """Compute the kernel matrices of the rows of STORE into a Gram store. Existing blocks are not computed again.

    With --precomputed the matrices come from a file; STORE, if given, is the store of the rows that the matrices are about.
    """
    if (kernels is None) == (precomputed is None):
        hint = "a kernel file with the line '- grid: {}' gives the default kernels of a fit"
        raise click.UsageError(f"kernels come from one source; give either --kernels or --precomputed ({hint})")
    if precomputed is not None and dry_run:
        raise click.UsageError("--dry-run plans a computation of kernels, and --precomputed computes none; leave out one of them")
    if precomputed is not None and scale is not None:
        raise click.UsageError("--scale scales columns, and --precomputed reads no columns; leave out --scale")
    if precomputed is None and store is None:
        raise click.UsageError("Missing argument 'STORE'; give the block store whose rows are compared")
    with frame.progress() as emit:
        if precomputed is not None:
            return _store_result("done", ingest_precomputed(precomputed, store, out, emit, overwrite))
        status, figures = build_store(str(store), str(kernels), out, compute, emit, dry_run, overwrite, scale or "auto")
    return _store_result(status, figures)


@command("repair", short_help="Compute damaged kernel matrices again.")
@click.argument("grams", type=Url("new-store"))
@click.argument("store", type=Url("store"))
@cluster_options
def repair(frame: Frame, grams: str, store: str, compute: ComputeOptions) -> Result:
    """Re-read the Gram store GRAMS, and compute damaged blocks again from STORE, the block store from which GRAMS was built."""
    from ...pipeline.runs.gram_stores import repair_grams

    with frame.progress() as emit:
        if not is_gram_store(require_path(grams, "Gram store")):
            raise ConfigError(f"{grams} is not a Gram store; ingest a damaged block store again with `gramplane ingest --overwrite`")
        result = repair_grams(grams, require_path(store, "store"), on_event=emit, **compute.arguments())
    return _store_result(result.status, result.figures)


def _store_result(status: str, figures: dict[str, Any]) -> Result:
    return Result(status, figures, plan_text(figures) if status == "planned" else align_rows(list(figures.items())))


COMMANDS = (gram, repair)

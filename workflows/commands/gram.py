"""Commands on Gram stores: gram, repair."""

from typing import Any

import click

from ..console import Result, align_rows
from .actions import require_path
from .gram_actions import build_store, ingest_precomputed, repair_store
from .options import ComputeOptions, Frame, Url, cluster_options, command, dry_run_option


@command("gram", short_help="Write a Gram store: kernel matrices kept on disk.")
@click.argument("store", required=False, type=Url("store"))
@click.option("--kernels", metavar="FILE|TEXT", help='A YAML list of kernels, or texts such as "rbf(gamma=0.5)[0:4]; linear".')
@click.option("--precomputed", type=Url("source"), metavar="FILE", help="Take matrices computed elsewhere: .npy, .npz, or a Zarr array.")
@click.option(
    "--out", type=Url("new-store"), required=True, metavar="GRAMS", help="The Gram store; kernels are added to one that is there."
)
@click.option("--overwrite", is_flag=True, help="Replace a Gram store of other data.")
@cluster_options
@dry_run_option
def gram(
    frame: Frame,
    store: str | None,
    kernels: str | None,
    precomputed: str | None,
    out: str,
    overwrite: bool,
    compute: ComputeOptions,
    dry_run: bool,
) -> Result:
    """Compute the kernel matrices of the rows of STORE into a Gram store; blocks that are there are not computed again.

    With --precomputed the matrices come from a file; STORE, if given, says whose rows they belong to.
    """
    if (kernels is None) == (precomputed is None):
        raise click.UsageError(
            "give either --kernels or --precomputed; a file with the line '- grid: {}' holds the kernels that a fit has by default"
        )
    if precomputed is not None and dry_run:
        raise click.UsageError("--dry-run plans the computing of kernels; --precomputed computes none")
    if precomputed is None and store is None:
        raise click.UsageError("Missing argument 'STORE': the block store whose rows are compared")
    with frame.progress() as emit:
        if precomputed is not None:
            return _store_result("done", ingest_precomputed(precomputed, store, out, emit, overwrite))
        status, figures = build_store(str(store), str(kernels), out, compute, emit, dry_run, overwrite)
    return _store_result(status, figures)


@command("repair", short_help="Compute damaged blocks of a Gram store again.")
@click.argument("grams", type=Url("new-store"))
@click.argument("store", type=Url("store"))
@cluster_options
def repair(frame: Frame, grams: str, store: str, compute: ComputeOptions) -> Result:
    """Re-read the Gram store GRAMS, and compute its damaged blocks again from STORE, the block store it was built from."""
    with frame.progress() as emit:
        status, figures = repair_store(require_path(grams, "Gram store"), require_path(store, "store"), compute, emit)
    return _store_result(status, figures)


def _store_result(status: str, figures: dict[str, Any]) -> Result:
    return Result(status, figures, align_rows(list(figures.items())))


COMMANDS = (gram, repair)

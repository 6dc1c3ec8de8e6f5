"""Commands on block stores: ingest, inspect, verify, clean."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from ..checking import by_option, validate_values
from ..console import Result, align_rows, plan_result, size_text
from ..exits import Exit
from .actions import ingest_source, plan_source, require_path, require_run, store_figures
from .gram import gram_figures, gram_left_overs, is_gram_store, kernel_name, open_store
from .options import ColumnNames, Frame, Url, command, dry_run_option

_FORMATS = "svmlight, csv, tsv, parquet, feather, npz, npy, mat, bed, h5ad, zarr, fasta, strings; auto: by name."
_LIKE = "Take features, labels, scaling, the columns' roles and what became of their values from this store: for test data."
_MISSING = "refuse; mean, median: fill in; indicator: mean, and features that say what is missing; keep, for rule-ensemble."
_CATEGORICAL = "Columns of a table whose values are names, although they look like numbers."


@command("ingest", short_help="Read a file into a store.")
@click.argument("source", type=Url("source"))
@click.argument("store", type=Url("new-store"))
@click.option("--format", default="auto", show_default=True, metavar="FORM", help=_FORMATS)
@click.option("--n-features", type=int, metavar="N", help="Number of columns, where the source does not say.")
@click.option("--encoding", metavar="NAME", help="Encoding of text without a byte order mark, such as latin-1; default UTF-8.")
@click.option("--like", type=Url("store"), metavar="STORE", help=_LIKE)
@click.option("--zero-based", metavar="no|yes|auto", help="Whether SVMlight indices start at 0; default as --like has it, else no.")
@click.option("--qid", metavar="refuse|ignore", help="What to do with qid: in SVMlight lines; default as --like has it, else refuse.")
@click.option("--no-labels", is_flag=True, help="SVMlight lines start with an entry, or with a label to be passed over; no target.")
@click.option("--dtype", default="auto", show_default=True, metavar="TYPE", help="float32, float64; auto: float32 when lossless.")
@click.option("--scale", default="none", show_default=True, metavar="KIND", help="none, unit-column, standard, max-abs, unit-row.")
@click.option("--task", metavar="KIND", help="classification (default; more than 20 different numbers ask for it by name) or regression.")
@click.option("--labels", metavar="A,B,...", help="The only class labels there may be; others are rejected.")
@click.option("--target", metavar="NAME", help="Column or array of the target.")
@click.option("--task-column", metavar="NAME", help="Column or array with the task of each row: whole numbers, or names.")
@click.option("--weight-column", metavar="NAME", help="Column or array of row weights.")
@click.option("--id-column", metavar="NAME", help="Column or array that names the rows; predictions show it.")
@click.option("--covariates", type=ColumnNames(), metavar="COLS", help="Columns or arrays that are no features but covariates, for fgm.")
@click.option("--categorical", type=ColumnNames(), metavar="COLS", help=_CATEGORICAL)
@click.option("--drop", type=ColumnNames(), metavar="COLS", help="Columns of a table to leave out.")
@click.option("--columns", type=ColumnNames(), metavar="COLS", help="The only columns of a table that are features.")
@click.option("--join", type=ColumnNames(), metavar="FILES", help="Tables with FID and IID for a .bed file: targets, covariates.")
@click.option("--keep", type=Url("file"), metavar="FILE", help="The only people of a .bed file: lines of FID and IID.")
@click.option("--extract", type=Url("file"), metavar="FILE", help="The only variants of a .bed file, one a line.")
@click.option("--layer", metavar="NAME", help="The layer of AnnData to read, or raw; default X. Columns of its obs: --target obs:NAME.")
@click.option("--groups", type=Url("file"), metavar="FILE", help="One group label per feature, one a line.")
@click.option("--names", type=Url("file"), metavar="FILE", help="One name per feature, one a line; var:NAME: a column of AnnData's var.")
@click.option("--layout", default="columns", show_default=True, metavar="columns|both", help="Write row blocks as well.")
@click.option("--missing", default="refuse", show_default=True, metavar="HOW", help=_MISSING)
@click.option("--missing-words", type=ColumnNames(), metavar="A,B,...", help="Texts that stand for a missing value in any column.")
@click.option("--decimal", metavar=".|,", help="Decimal sign of CSV and TSV text; default as --like has it, else a point.")
@click.option("--drop-missing-targets", is_flag=True, help="Leave out the rows whose target is missing.")
@click.option("--budget", metavar="SIZE", help="Memory the ingest may take; default as --like has it, else 256MiB.")
@click.option("--jobs", type=int, metavar="N", help="Parser threads; default: two for a large file, else one.")
@click.option("--overwrite", is_flag=True, help="Replace a store made from another source or with other options.")
@dry_run_option
def ingest(frame: Frame, store: str, labels: str | None, dry_run: bool, **options: Any) -> Result:
    """Write the block store STORE from the file SOURCE ("-": standard input; a folder: its Parquet files).

    COLS are names of columns with commas between them, as in a line of CSV: "a,b" in quotes is one name.
    """
    from ...storage.encoding.record import labels_of_words
    from ..schema import IngestArgs

    named = None if labels is None else labels_of_words(labels.split(","))
    args = validate_values(IngestArgs, {**options, "labels": named}, by_option)
    if dry_run:
        return plan_result(plan_source(args, store))
    with frame.progress() as emit:
        figures = ingest_source(args, store, emit)
    return Result(fields=figures, text=_store_text(figures))


def _store_text(figures: dict[str, Any], **more: Any) -> str:
    rows = [(key, figures[key]) for key in ("store", "rows", "columns", "kind", "dtype", "scale", "labels", "tasks", "blocks", "digest")]
    if not figures["target"]:
        rows.insert(7, ("target", "none (--target NAME names it in a table or arrays)"))
    rows.insert(6, ("stored values", f"{figures['stored']:,} in {size_text(figures['bytes'])}"))
    if figures["covariates"]:
        rows.insert(8, ("covariates", figures["covariates"]))
    if figures["missing"]:
        rows.insert(7, ("missing values", f"{figures['missing']:,}"))
    if "encoding" in figures:
        kinds = Counter(row["kind"] for row in figures["encoding"])
        rows.insert(4, ("source columns", ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())))
    return align_rows([*rows, *more.items()])


_SHOWN_COLUMNS = 40


def _encoding_text(encoding: list[dict[str, Any]]) -> str:
    """Return one line for each of the first columns of a source: kind, categories, and the treatment of missing values."""
    lines = []
    for row in encoding[:_SHOWN_COLUMNS]:
        words = [row["kind"], *([", ".join(row["levels"])] if row["levels"] else [])]
        lines.append((row["column"], "; ".join([*words, *([f"missing: {row['missing']}"] if row["n_features"] else [])])))
    more = [("", f"and {len(encoding) - _SHOWN_COLUMNS} more columns")] if len(encoding) > _SHOWN_COLUMNS else []
    return align_rows([*lines, *more])


@command("inspect", short_help="Show what a store or run holds.")
@click.argument("path", type=Url("anything"))
def inspect(frame: Frame, path: str) -> Result:
    """Show the schema, sizes and tables of a store, or configuration and state of a run."""
    from ...storage import GramStore
    from ..report.collect import is_run, run_figures
    from ..texts import run_text

    require_path(path, "store or run")
    if is_run(path):
        require_run(path)
        figures = run_figures(path)
        return Result(fields={"kind": "run", **figures}, text="" if frame.as_json else run_text(path))
    store = open_store(path)
    if isinstance(store, GramStore):
        figures, names = gram_figures(store), [kernel_name(store.describe(digest)) for digest in store.kernels]
        text = align_rows([*figures.items(), *((f"kernel {q}", name) for q, name in enumerate(names))])
        return Result(fields={"kind": "grams", **figures, "names": names}, text=text)
    tables = [name for name in ("y", "task", "group", "weight", "covariates") if store.has_table(name)] + ["id"] * store.has_ids
    figures = {**store_figures(store), "tables": tables, "layouts": list(store.meta.layouts)}
    parts = [_store_text(figures, tables=tables, layouts=figures["layouts"])]
    if "encoding" in figures:
        parts.append(_encoding_text(figures["encoding"]))
    return Result(fields=figures, text="\n\n".join(parts))


@command("verify", short_help="Check a store against its checksums.")
@click.argument("store", type=Url("store"))
def verify(frame: Frame, store: str) -> Result:
    """Re-read every object of STORE (a block store or a Gram store) and compare checksums; exit 6 if any differs or is missing."""
    with frame.progress() as emit:
        opened = open_store(require_path(store, "store"))
        report = opened.verify(lambda n, total: emit({"event": "phase", "phase": f"{size_text(n)} of {size_text(total)}"}))
    damaged = [{"object": item.key, "reason": item.reason} for item in report.damaged]
    fields = {"store": store, "objects": report.n_objects, "bytes": report.nbytes, "n_damaged": len(damaged), "damaged": damaged}
    if report.ok:
        return Result("ok", fields, f"{store}: {report.n_objects} objects, {size_text(report.nbytes)}, all sound")
    lines = [f"{item['object']}: {item['reason']}" for item in damaged]
    return Result("damaged", fields, "\n".join([f"{store}: {len(damaged)} of {report.n_objects} objects damaged", *lines]), Exit.DAMAGED)


@command("clean", short_help="List and remove left-over files.")
@click.argument("path", type=Url("left-overs"))
@click.option("--yes", is_flag=True, help="Remove what is listed; without it nothing is removed.")
@click.option("--keep", metavar="FILE|TEXT", help="Of a Gram store: the kernels in use, as for gram --kernels; the others are unused.")
def clean(frame: Frame, path: str, yes: bool, keep: str | None) -> Result:
    """List the files that PATH (a store, a run, or a folder of them) no longer needs: left-over partial files, unlisted objects, old
    arrays, and replaced versions of a store. For a store at a URL, only replaced versions are listed; no process may read the store
    meanwhile.

    For a Gram store, list unlisted blocks and, with --keep, the kernels that --keep does not name.
    """
    from ...storage.places import is_local
    from ..cleaning import left_overs, old_versions, remove_old_versions

    if is_gram_store(require_path(path, "store, run or folder")):
        return _clean_grams(path, keep, yes)
    if keep is not None:
        raise click.UsageError(f"--keep is for Gram stores; {path} is not a Gram store")
    items = left_overs(Path(path)) if is_local(path) else []
    old = old_versions(path)
    free = [item for item in old if not item.is_read]
    nbytes = sum(item.nbytes for item in [*items, *free])
    lines = [f"{size_text(item.nbytes):>10}  {item.path}  {item.why}" for item in items]
    descriptions = {False: "version that was replaced", True: "version that was replaced; it is still read and stays"}
    lines += [f"{size_text(item.nbytes):>10}  {item.store}/{item.name}  {descriptions[item.is_read]}" for item in old]
    if yes:
        for item in items:
            item.path.unlink(missing_ok=True)
        remove_old_versions(free)
    verb = "removed" if yes else "could be removed (--yes removes them)"
    fields = {"path": path, "n_files": len(items), "bytes": nbytes, "removed": yes, "files": [str(item.path) for item in items]}
    fields["versions"] = [f"{item.store}/{item.name}" for item in free]
    told_all = f"{len(items)} files, {len(free)} versions, {size_text(nbytes)} {verb}"
    return Result("done" if yes else "planned", fields, "\n".join([*lines, told_all]))


def _clean_grams(path: str, keep: str | None, yes: bool) -> Result:
    from ...storage import GramStore

    store = GramStore.open(path)
    unused, orphans = gram_left_overs(store, keep)
    lines = [f"{size_text(size):>10}  {kernel_name(store.describe(digest))}  kernel not in use" for digest, size in unused]
    lines += [f"{size_text(size):>10}  {key}  belongs to nothing" for key, size in orphans]
    names = [kernel_name(store.describe(digest)) for digest, _ in unused]
    if yes and unused:
        store.drop([digest for digest, _ in unused])
    if yes:
        orphans = store.remove_orphans() or orphans
    nbytes = sum(size for _, size in [*unused, *orphans])
    verb = "removed" if yes else "could be removed (--yes removes them)"
    counts = {"n_kernels": len(unused), "n_files": len(orphans), "bytes": nbytes, "removed": yes}
    fields = {"kind": "grams", "path": path, **counts, "kernels": names, "files": [key for key, _ in orphans]}
    message = f"{len(unused)} kernels, {len(orphans)} files, {size_text(nbytes)} {verb}"
    return Result("done" if yes else "planned", fields, "\n".join([*lines, message]))


COMMANDS = (ingest, inspect, verify, clean)

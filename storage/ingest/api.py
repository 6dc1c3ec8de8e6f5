"""`ingest`: any source to a block store."""

import contextlib
import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np

from ..blocks.store import BlockStore
from ..blocks.writer import drop_journal
from ..encoding.record import COVARIATE_RULE
from ..errors import DataError, DigestMismatch, SchemaError, UserData, canonical_json
from ..meta import ColumnScale, Label
from ..objects import file_digest
from ..places import is_local, parse_place
from ..remote import RemoteObjects
from ..source import Source as Origin
from ..temporary import temporary_folder
from ..urls import describe_source, local_path, open_objects
from ..versions import is_finished
from .build import Extras, Job, build_dense, build_sparse
from .encode import encode_rows
from .files import make_local
from .labels import Target, Tasks
from .opening import collect_extras, comparison_key, follow_guide, open_input
from .options import VAR, Options, Progress, check_integer, no_progress
from .planning import plan_ingest, plan_remote
from .reading import Source
from .scratch import Scratch, private_folder, sweep_scratch
from .text.sequences import build_sequences
from .text.text import default_jobs

_MAX_ROWS = 2**31 - 1


@overload
def ingest(source: UserData, store_url: str | os.PathLike[str], *, dry_run: Literal[True], **options: Any) -> dict[str, Any]: ...


@overload
def ingest(source: UserData, store_url: str | os.PathLike[str], *, dry_run: Literal[False] = False, **options: Any) -> BlockStore: ...


def ingest(  # pyright: ignore[reportInconsistentOverload] (the options of the overloads are those named here)
    source: UserData,
    store_url: str | os.PathLike[str],
    *,
    format: str = "auto",
    encoding: str | None = None,
    n_features: int | None = None,
    like: str | os.PathLike[str] | Origin | None = None,
    zero_based: str | None = None,
    dtype: str = "auto",
    task: str = "classification",
    labels: Iterable[Label] | None = None,
    qid: str | None = None,
    no_labels: bool = False,
    scale: str | ColumnScale = "none",
    target: UserData = None,
    task_column: UserData = None,
    weight_column: UserData = None,
    id_column: UserData = None,
    covariates: UserData = None,
    groups: UserData = None,
    names: UserData = None,
    categorical: Iterable[str] | None = None,
    drop: Iterable[str] | None = None,
    columns: Iterable[str] | None = None,
    join: Iterable[str] | None = None,
    keep: str | None = None,
    extract: str | None = None,
    layer: str | None = None,
    layout: str = "columns",
    missing: str = "refuse",
    missing_words: Iterable[str] | None = None,
    decimal: str | None = None,
    drop_missing_targets: bool = False,
    budget: int | None = None,
    jobs: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
    warn: Callable[[str], None] | None = None,
    dry_run: bool = False,
) -> BlockStore | dict[str, Any]:
    """Convert any input to a block store, in bounded memory.

    SVMlight text is parsed once into binary rows on scratch, then sorted into column stripes by a two-phase external sort; dense
    input stays dense. The bytes of the store depend only on the input and the options, not on ``jobs`` or on interruptions.

    Parameters
    ----------
    source : path, URL, "-", array, frame, or (X, y)
        SVMlight text, CSV or TSV (plain, .gz, .bz2, .xz, .zst, or standard input); Parquet (also a folder of files), Feather and Arrow;
        .npz, .npy or .mat files. Files may be in an object store or on a web server, from where they are copied to scratch. Genotypes in a
        local .bed file of PLINK with .bim and .fam beside it (docs/guides/genotypes.md). Cells in a .h5ad file, in AnnData Zarr, or in
        an AnnData object (docs/guides/cells.md). Sequences for string kernels in FASTA (label: the
        word ``label=VALUE`` of the header) or one per line (``LABEL<tab>STRING``, or the string alone).
        An ndarray, SciPy sparse matrix or list of texts; a data frame of pandas, polars, Arrow or Dask (one partition at a time); a stream
        of record batches (``__arrow_c_stream__``); xarray data; or a ``dask.array`` (one row block at a time). Or a pair of features and
        target. How the columns of a table are treated: docs/tables.md.
    store_url : path or URL
        The store; see `BlockStore`.
    format : str
        "svmlight", "csv", "tsv", "parquet", "feather", "npz", "npy", "mat", "bed", "h5ad", "zarr", "fasta" or "strings"; "auto" uses the
        file extension, and SVMlight for names without an extension.
    encoding : str, optional
        Encoding of text without a byte order mark, such as "latin-1" [default: as in ``like``, else UTF-8].
    n_features : int, optional
        Number of features; larger SVMlight indices are rejected [default: the largest index].
    like : path, URL or Source, optional
        A store whose options test data must share (or its description in a run). It determines features, labels and column scaling; whether
        SVMlight indices count from zero, query ids and the budget; the columns with the target, tasks, weights, ids and covariates, if the
        source has them; and the encoding of table columns, found by name: levels, missing values and their replacements. Unknown levels
        become zeros, with a warning. Options that contradict this store are rejected.
    zero_based : str, optional
        Whether SVMlight indices count from zero: "no" (index 0 is an error), "yes", or "auto" (yes if index 0 occurs)
        [default: as in ``like``, else "no"].
    dtype : str
        "float32" or "float64"; "auto" is float32 if every value survives the round trip and float64 otherwise.
    task : str
        "classification": the target is stored as codes 0, 1, … of the sorted labels. "regression": the target is stored unchanged. "auto":
        classification, but more than 20 different numbers are rejected.
    labels : iterable, optional
        The only labels allowed.
    qid : str, optional
        "refuse" or "ignore" ``qid:`` in SVMlight text [default: as in ``like``, else "refuse"].
    no_labels : bool
        The SVMlight text has no labels: a line starts with its first entry, or with a word without a colon (such as 0 or ?), which is
        ignored. The store has no target. Blank lines are not rows: a row without entries needs such a word.
    scale : str
        "unit-column" (s_j = 1/|x_j|), "standard" (s_j = 1/deviation; dense data are also centred, sparse data are not), "max-abs" (s_j =
        1/max |x_ij|), "unit-row" (r_i = 1/|x_i|), "none", or factors. The factors are stored beside the raw values. The factor of an empty
        column is 0; with "standard", the factor of a constant column is 0, too.
    target, task_column, weight_column : str or array, optional
        Target, task and weight of the rows: a column name (CSV, Parquet, frames; ``obs:NAME`` of AnnData), a variable name (.npz, .mat;
        default "y"), or an array.
        Tasks are whole numbers or names (``BlockMeta.task_names``).
    id_column : str or array, optional
        Names of the rows, as a column name, a variable name or an array; whole numbers or texts (`BlockStore.ids`).
    covariates : list of str or array, optional
        Columns that are covariates instead of features, stored as the row table "covariates" with their names (``BlockMeta.covariates``):
        names of columns of a table or of variables (.npz, .mat), or an array or frame (n_rows, n_covariates). They must be numbers without
        missing values.
    categorical, drop, columns : list of str, optional
        For tables: columns whose values are names although they look like numbers; columns to leave out; the only columns to use as
        features.
    join : list of paths, optional
        For genotypes: tables about the people, joined by their columns FID and IID. Target, tasks, weights and covariates are named columns
        of these tables; -9 is missing.
    keep, extract : path, optional
        For genotypes: files that list the only people (FID and IID) or the only variants to read, one in a line.
    layer : str, optional
        For AnnData: the layer to read; "X", or "raw" if it has the same genes [default: as in ``like``, else "X"].
    groups : array or path, optional
        One label per feature, integers or texts; a file has one per line. Consecutive features with equal labels are never divided between
        stripes.
    names : list or path, optional
        Feature names; a file has one per line. ``var:NAME``: a column of var of AnnData [default: as in ``like``, else those of the
        source].
    layout : str
        "columns", or "both" to store row blocks as well.
    missing : str
        Treatment of missing values in dense input (NaN, empty cells of CSV, NULL of Parquet, masked values). "refuse" rejects them. "mean"
        or "median" replaces them by the mean or median of the column. "indicator" replaces them by the mean and adds features that mark
        missing values. "keep", for rules only, stores NaN: ``BlockMeta.n_missing`` counts them, the column table "missing" counts them by
        column, and nominal columns become level numbers (``n_coded``). Infinity is always rejected; sparse input and scaling are rejected
        with "keep". A missing genotype is never rejected: it becomes the mean 2p of its column, or NaN with "keep".
    missing_words : list of str, optional
        Texts that mean a missing value in any column. Among numbers, NA, NaN, NULL, None, ? and . (any case) always do.
    decimal : str, optional
        Decimal sign of CSV and TSV text: "." or ",".
    drop_missing_targets : bool
        Leave out the rows of a table or arrays whose target is missing, and report their number; otherwise they are rejected.
    budget : int, optional
        Bytes of working memory, in addition to the interpreter and its libraries [default: as in ``like``, else 256 MiB]. A line of
        SVMlight text may take at most an eighth of the budget; without ``n_features``, no index may exceed a quarter of the budget's number
        of bytes. Row tables take additional memory, which the plan lists. Files that cannot be read within the budget are rejected before
        memory is allocated (docs/storage-formats.md).
    jobs : int, optional
        Threads parsing a plain SVMlight file [default: two if it has more than 64 MiB and there are two processors, else one].
    scratch : path, optional
        Parent of the scratch folder, which has a random name and mode 0700 [default: next to a local store (``STORE.ingest``), else the
        system's].
    resume : bool
        Resume from what a killed ingest of the same source and options left in the scratch folder.
    overwrite : bool
        Replace an existing store.
    progress : callable, optional
        Called with (bytes done, total bytes, phase), in the calling thread.
    warn : callable, optional
        Called with messages about the data, such as new levels [default: a Python warning].
    dry_run : bool
        Return the plan without writing a store: sizes as far as the source declares them, the memory of the process (``process_holds``:
        item, bytes; ``process_bytes``: total), scratch and layout. Invalid input or options are rejected as in the ingest itself.

    Returns
    -------
    BlockStore or dict
        The plan with ``dry_run``, else the finished store. If the store exists already and was made from the same bytes with the same
        options, nothing is done.

    Raises
    ------
    DataError
        For invalid input, with file, line and column (or row and column); nothing half-written is left.
    SchemaError
        For invalid options, or if another store exists.
    RunLocked
        If another process is writing this store.
    OutOfSpace
        If the disk is full; finished work is kept for the next attempt.

    Notes
    -----
    Zero entries are dropped from sparse data. Time: text is parsed at 150 to 400 MB/s and sorted at 10 to 20 million entries per second on
    one core. Scratch: about 12 + 12 bytes per entry for float32 values, 16 + 16 for float64.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gramplane import ingest
    >>> store = ingest(load_iris(return_X_y=True), "stores/iris")
    >>> store.n_rows, store.n_cols
    (150, 4)
    """
    parse_place(store_url, "new-store", "store_url")
    if no_labels and labels is not None:
        raise SchemaError("no_labels and labels exclude each other; leave out one of them")
    guide = like if like is None or isinstance(like, Origin) else _guide(BlockStore.open(like))
    text: dict[str, Any] = {"n_features": n_features, "zero_based": zero_based, "qid": qid, "no_labels": bool(no_labels)}
    tables = {"target": target, "task_column": task_column, "weight_column": weight_column, "id_column": id_column}
    chosen = {"categorical": categorical, "drop": drop, "columns": columns, "missing": missing, "task": task, "labels": labels}
    words = None if missing_words is None else tuple(missing_words)
    chosen |= {"join": () if join is None else join, "keep": keep, "extract": extract}
    column = names if isinstance(names, str) and names.startswith(VAR) else None
    chosen |= {"layer": layer, "names": column}
    chosen |= {"missing_words": words, "decimal": decimal, "drop_missing_targets": bool(drop_missing_targets)}
    known = scale if isinstance(scale, ColumnScale) else None
    kind = scale if known is None else known.kind
    form: dict[str, Any] = {"format": format, "encoding": encoding, "dtype": dtype, "scale": kind, "layout": layout, "budget": budget}
    options = Options(**follow_guide(guide, {**text, **tables, **form, **chosen, "covariates": covariates}))
    threads = None if jobs is None else check_integer("jobs", jobs, 1, 256)
    url = os.fspath(store_url)
    if dry_run and isinstance(source, str | os.PathLike) and not is_local(source):
        location, nbytes = os.fspath(source), int(describe_source(os.fspath(source))["size"])
        return plan_remote(location, nbytes, options, url, _scratch_folder(url, scratch, make=False))
    with make_local(source, scratch) as local_source:
        opened = open_input(local_source, options)
        extras = collect_extras(opened, guide, options, None if column else names, groups)
        extras.scale = extras.scale if known is None else known
        threads = threads or default_jobs(Path(opened.name))
        there = is_finished(open_objects(url))
        done = _open_finished(url, extras.info, opened) if there and not overwrite else None
        if dry_run:
            plan = plan_ingest(opened, options, url, _scratch_folder(url, scratch, make=False), threads)
            return {**plan, "store_is_there": there, "nothing_to_do": done is not None}
        if done is not None:
            drop_journal(url)
            sweep_scratch(_scratch_folder(url, scratch, make=False))
            return done
        words, tasks = frozenset(options.missing_words), Tasks("task", options.numeric_tasks)
        target = Target(options.task, options.labels, tasks=tasks, missing_words=words, drops_missing=options.drop_missing_targets)
        with _writing_alone(url):
            if not overwrite and is_finished(open_objects(url)):  # another process wrote it meanwhile
                return _open_finished(url, extras.info, opened)
            folder = _scratch_folder(url, scratch, make=True)
            store = _write_store(opened, target, options, extras, folder, (url, progress or no_progress, overwrite, threads), resume)
        dropped = [f"{target.n_dropped:,} rows without a target are left out"] if target.n_dropped else []
        for message in [*opened.messages, *dropped, *([] if opened.coder is None else opened.coder.messages())]:
            (warn or partial(warnings.warn, stacklevel=2))(f"{extras.info['source']['name']}: {message}")
        return store


def _guide(store: BlockStore) -> Origin:
    return replace(store.whole_source(), place=f"{store.url} (like)")


def _writing_alone(url: str) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that keeps other processes from writing a store. In an object store it holds the store's lease; a local
    store is protected by the scratch lock.
    """
    objects = open_objects(url)
    return objects.held() if isinstance(objects, RemoteObjects) else contextlib.nullcontext()


def _write_store(
    source: Source, target: Target, options: Options, extras: Extras, folder: Path, place: tuple[str, Progress, bool, int], resume: bool
) -> BlockStore:
    """Read a source, convert table columns to features, and write the store."""
    (url, progress, overwrite, threads), hint = place, source.hint()
    with Scratch(folder, {**comparison_key(extras.info), "hint": hint}, resume=resume and hint is not None) as space:
        reading = source.read(space, options, target, threads, progress)
        extras.scale, extras.facts = extras.scale or source.factors(), source.column_facts()
        reading, extras.encoding = encode_rows(reading, source, options, space, progress)
        if extras.encoding is not None and not extras.are_named:
            extras.names = extras.encoding.feature_names
        extras.info["identity"] = source.identity()
        return _build_store(Job(url, reading, options, extras, space, progress, overwrite, source.name, threads))


def _build_store(job: Job) -> BlockStore:
    if not 0 < job.spool.n_rows <= _MAX_ROWS:
        raise DataError(f"the source has {job.spool.n_rows} rows; a store has 1 … 2^31 - 1", job.source_name)
    try:
        if job.spool.has("letters"):
            return build_sequences(job)
        return build_dense(job) if job.reading.counts is None else build_sparse(job)
    except ValueError:  # invalid input found late, such as a factor that overflows: it would be found again
        if job.begun is not None:
            job.begun.discard()
        raise


def _open_finished(url: str, wanted: dict[str, Any], source: Source) -> BlockStore:
    store = BlockStore.open(url)
    info = dict(store.meta.info)
    identity = info.get("identity")
    same = comparison_key({name: info.get(name) for name in wanted}) == comparison_key(json.loads(canonical_json(wanted)))
    if identity is None or not same or identity != source.identity():
        other = "made from another source or with other options"
        raise SchemaError(f"{url} holds a different store, {other}; choose another path, or set overwrite to replace it (--overwrite)")
    return store


def _scratch_folder(url: str, parent: str | os.PathLike[str] | None, *, make: bool) -> Path:
    """Return a scratch folder that another attempt at the same store finds again: next to a local store, else a private folder. It is
    created if ``make`` is true.
    """
    local = local_path(url)
    if local is not None and parent is None:
        return local.with_name(local.name + ".ingest")
    mark = hashlib.sha256(str(local or url).encode()).hexdigest()[:16]
    return private_folder(Path(parent or tempfile.gettempdir()), f"gramplane-{mark}-", make=make)


# Tables of numbers beside a store: a few columns with a row for each of its rows, in any form that ingest reads.

_TABLE_FORMS = (".csv", ".tsv", ".parquet", ".pq", ".npz", ".npy", ".mat")


def columns_file(path: str, n_rows: int) -> dict[str, str]:
    """Return path and sha256 of a file with a table of numbers, one row per row of a store; `load_columns` reads it.

    Raises DataError, with line or row and column, if the file has another form or number of rows, or contains a value that is not a finite
    number.
    """
    record = {"file": os.path.abspath(path), "sha256": file_digest(path)}
    values, _ = load_columns(record)
    if len(values) != n_rows:
        raise DataError(f"the file has {len(values)} rows; there must be one for each of the {n_rows} rows of the store", path)
    return record


def load_columns(record: Mapping[str, str]) -> tuple[np.ndarray, list[str] | None]:
    """Return the table of a file, float64 ``(n_rows, n_columns)``, and the names of its columns, if any.

    Raises DigestMismatch if the file has changed since its sha256 was recorded.
    """
    path = record["file"]
    if not path.lower().endswith(_TABLE_FORMS):
        raise DataError(f"the file name must end with one of {', '.join(_TABLE_FORMS)}", path)
    if file_digest(path) != record["sha256"]:
        raise DigestMismatch(f"{path} is not the file that the run began with: its sha256 differs")
    with temporary_folder() as folder:
        try:
            table = ingest(path, folder / "table.zarr", task="regression")
        except DataError as error:  # what it advises is for features
            raise DataError(f"{error.reason.partition(';')[0]}; {COVARIATE_RULE}", path, error.line, error.column) from error
        nominal = [] if table.encoding is None else [column.name for column in table.encoding.sources if column.kind == "nominal"]
        if nominal:
            raise DataError(f"column {nominal[0]!r} holds texts; {COVARIATE_RULE}", path)
        values = table.columns(np.arange(table.n_cols))
        dense = values if isinstance(values, np.ndarray) else values.toarray()
        return np.ascontiguousarray(dense, np.float64), table.feature_names()

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
from .options import Options, Progress, check_integer, no_progress
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
    """Turn any input into a block store, in bounded memory.

    SVMlight text is parsed once into binary rows on scratch, then sorted into column stripes by a two-phase external sort; dense
    input keeps its dense form. The bytes of the store depend on the input and the options alone, not on ``jobs`` or on interruptions.

    Parameters
    ----------
    source : path, URL, "-", array, frame, or (X, y)
        SVMlight text, CSV or TSV (plain, .gz, .bz2, .xz, .zst, or standard input), Parquet (also a folder of files), Feather and Arrow,
        .npz, .npy or .mat files, also in an object store or on a web server, from where they are copied to scratch; sequences for string
        kernels in FASTA (label: the word ``label=VALUE`` of the header) or one a line (``LABEL<tab>STRING``, or the string alone); an
        ndarray, SciPy sparse matrix or list of texts; a data frame of pandas, polars, Arrow or Dask (one partition at a time), a stream of
        record batches (``__arrow_c_stream__``), data of xarray, or a ``dask.array`` (one row block at a time); or a pair of features and
        target. What becomes of the columns of a table: docs/tables.md.
    store_url : path or URL
        The store; see `BlockStore`.
    format : str
        "svmlight", "csv", "tsv", "parquet", "feather", "npz", "npy", "mat", "fasta" or "strings"; "auto" goes by the ending of the name,
        with SVMlight for names without one.
    encoding : str, optional
        Encoding of text that has no byte order mark, such as "latin-1". Default: as ``like`` says, else UTF-8.
    n_features : int, optional
        Width; SVMlight indices beyond it are refused. Default: the greatest index.
    like : path, URL or Source, optional
        A store that test data follow (or what a run keeps of one): its features, labels and column scaling; how SVMlight indices count,
        query ids, the budget; the columns with the target, tasks, weights, ids and covariates, where the source has them; and what became
        of the columns of its table, which are found by name: levels, missing values and what stands for them. Levels that it does not know
        are zeros, and warned of. Options that say otherwise are refused.
    zero_based : str, optional
        Whether SVMlight indices count from zero: "no" (index 0 is an error), "yes", or "auto" (they do if index 0 occurs). Default: as
        ``like`` says, else "no".
    dtype : str
        "float32" or "float64"; "auto" is float32 when every value survives the round trip and float64 otherwise.
    task : str
        "classification": the target is stored as codes 0, 1, … of the sorted labels; "regression": as it is; "auto": as classes, and more
        than 20 different numbers are refused.
    labels : iterable, optional
        The only labels allowed.
    qid : str, optional
        "refuse" or "ignore" ``qid:`` in SVMlight text. Default: as ``like`` says, else "refuse".
    no_labels : bool
        The SVMlight text has no labels: a line starts with its first entry, or with a word without a colon (such as 0 or ?) that is passed
        over. The store has no target. Blank lines are no rows here either: a row without entries needs such a word.
    scale : str
        "unit-column" (s_j = 1/|x_j|), "standard" (s_j = 1/deviation; dense data are centred too, sparse data are not), "max-abs"
        (s_j = 1/max |x_ij|), "unit-row" (r_i = 1/|x_i|), "none", or factors. They are stored beside the raw values; the factor of an empty
        or constant column is 0 ("max-abs": of an empty one).
    target, task_column, weight_column : str or array, optional
        Target, task and weight of the rows: a column name (CSV, Parquet, frames), a variable name (.npz, .mat; default "y"), or an array.
        Tasks are whole numbers or names (``BlockMeta.task_names``).
    id_column : str or array, optional
        What names the rows, likewise; whole numbers or texts (`BlockStore.ids`).
    covariates : list of str or array, optional
        Columns that are no features but covariates, kept apart as the row table "covariates" with their names (``BlockMeta.covariates``):
        names of columns of a table or of variables (.npz, .mat), or an array or frame (n_rows, n_covariates). Numbers, none missing.
    categorical, drop, columns : list of str, optional
        Of a table: columns whose values are names, although they look like numbers; those to leave out; the only ones that are features.
    groups : array or path, optional
        One label per feature, integers or texts; a file has one a line. Stripes do not cut runs of equal labels.
    names : list or path, optional
        Feature names; a file has one a line. Default: those the source has.
    layout : str
        "columns", or "both" for row blocks too.
    missing : str
        What is done with missing values of dense input (NaN, empty cells of CSV, NULL of Parquet, masked ones): "refuse"; "mean" or
        "median" stands for them, of the column; "indicator", the mean, and features that say what is missing; or "keep", for rules alone:
        they become NaN, ``BlockMeta.n_missing`` counts them, and the column table "missing" does so by column; nominal columns become
        numbers of levels (``n_coded``). Infinity is refused always, sparse input and scaling with "keep".
    missing_words : list of str, optional
        Texts that stand for a missing value in any column, beside NA, NaN, NULL, None, ? and . (any case) among numbers.
    decimal : str, optional
        Decimal sign of CSV and TSV text: "." or ",".
    drop_missing_targets : bool
        Leave out the rows of a table or arrays whose target is missing, which are refused otherwise; how many is said.
    budget : int, optional
        Bytes of memory to work in, beyond the interpreter and its libraries. Default: as ``like`` says, else 256 MiB. SVMlight lines may
        be an eighth of it, and without ``n_features`` indices a quarter. What goes with the rows beyond it is in the
        plan. Files that no way within it leads through are refused before they take memory (docs/storage-formats.md).
    jobs : int, optional
        Threads parsing a plain SVMlight file. Default: two if it has more than 64 MiB and there are two processors, else one.
    scratch : path, optional
        Folder in which to make the scratch folder, of a random name and mode 0700; default beside a local store (``STORE.ingest``), else
        the system's.
    resume : bool
        Continue what a killed ingest of the same source and options left in the scratch folder.
    overwrite : bool
        Replace a store that is there.
    progress : callable, optional
        Called with (bytes done, bytes in all, phase), in the calling thread.
    warn : callable, optional
        Called with what is to be said of the data, such as levels that are new; default: a Python warning.
    dry_run : bool
        Return the plan, and write no store: sizes as far as the source declares them, what the process will hold (``process_holds``:
        what, bytes; ``process_bytes`` in all), scratch and layout. What the ingest would refuse is refused.

    Returns
    -------
    BlockStore or dict
        The plan with ``dry_run``. Else the finished store; if it was there already, made from the same bytes with the same
        options, nothing is done.

    Raises
    ------
    DataError
        For invalid input, by file, line and column (or row and column): nothing half-written is left.
    SchemaError
        For invalid options, or if another store is there.
    RunLocked
        If another process is writing this store.
    OutOfSpace
        If the disk is full; what was done is kept for the next attempt.

    Notes
    -----
    Entries that are zero are dropped from sparse data. Time: text is parsed at 150 to 400 MB/s and sorted at 10 to 20 million entries
    per second on one core. Scratch: about 12 + 12 bytes per entry for float32 values, 16 + 16 for float64.

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
        raise SchemaError("no_labels is set, so there is nothing that labels could name; leave out one of them")
    guide = like if like is None or isinstance(like, Origin) else _guide(BlockStore.open(like))
    text: dict[str, Any] = {"n_features": n_features, "zero_based": zero_based, "qid": qid, "no_labels": bool(no_labels)}
    tables = {"target": target, "task_column": task_column, "weight_column": weight_column, "id_column": id_column}
    chosen = {"categorical": categorical, "drop": drop, "columns": columns, "missing": missing, "task": task, "labels": labels}
    words = None if missing_words is None else tuple(missing_words)
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
        extras = collect_extras(opened, guide, options, names, groups)
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
    """Return what keeps other processes from writing a store: its lease in an object store; beside a local one the scratch has a lock."""
    objects = open_objects(url)
    return objects.held() if isinstance(objects, RemoteObjects) else contextlib.nullcontext()


def _write_store(
    source: Source, target: Target, options: Options, extras: Extras, folder: Path, place: tuple[str, Progress, bool, int], resume: bool
) -> BlockStore:
    """Read a source, make features of the columns of a table, and write the store."""
    (url, progress, overwrite, threads), hint = place, source.hint()
    with Scratch(folder, {**comparison_key(extras.info), "hint": hint}, resume=resume and hint is not None) as space:
        reading = source.read(space, options, target, threads, progress)
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
        raise SchemaError(f"{url} already holds a store {other}; set overwrite to replace it (--overwrite)")
    return store


def _scratch_folder(url: str, parent: str | os.PathLike[str] | None, *, make: bool) -> Path:
    """A folder that another attempt at the same store finds again: beside a local store, else a private one, made if need be."""
    local = local_path(url)
    if local is not None and parent is None:
        return local.with_name(local.name + ".ingest")
    mark = hashlib.sha256(str(local or url).encode()).hexdigest()[:16]
    return private_folder(Path(parent or tempfile.gettempdir()), f"gramplane-{mark}-", make=make)


# Tables of numbers beside a store: a few columns with a row for each of its rows, in any form that ingest reads.

_TABLE_FORMS = (".csv", ".tsv", ".parquet", ".pq", ".npz", ".npy", ".mat")


def columns_file(path: str, n_rows: int) -> dict[str, str]:
    """Return path and sha256 of a file with a table of numbers, whose rows are those of a store; `load_columns` reads it.

    DataError: it has another form or number of rows, or a value that is no finite number, by line or row and column.
    """
    record = {"file": os.path.abspath(path), "sha256": file_digest(path)}
    values, _ = load_columns(record)
    if len(values) != n_rows:
        raise DataError(f"the file has {len(values)} rows; there must be one for each of the {n_rows} rows of the store", path)
    return record


def load_columns(record: Mapping[str, str]) -> tuple[np.ndarray, list[str] | None]:
    """Return the table of a file, float64 ``(n_rows, n_columns)``, and the names of its columns, where it has some.

    DigestMismatch: it was changed since.
    """
    path = record["file"]
    if not path.lower().endswith(_TABLE_FORMS):
        raise DataError(f"is no table of numbers by its ending: must be one of {', '.join(_TABLE_FORMS)}", path)
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

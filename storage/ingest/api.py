"""`ingest`: any source to a block store."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, overload

from ..blocks.arrays import canonical_json
from ..blocks.store import BlockStore
from ..blocks.writer import drop_journal
from ..errors import DataError, SchemaError
from ..meta import ColumnScale, Label
from ..places import is_local, parse_place
from ..urls import describe_source, local_path, open_objects
from ..value_types import UserData
from ..versions import is_finished
from .build import Extras, Job, build_dense, build_sparse
from .fetching import make_local
from .labels import Target
from .options import ROW_OPTIONS, Options, Progress, check_integer, no_progress, read_groups, read_names
from .planning import plan_ingest, plan_remote
from .reading import Source
from .scratch import Scratch, private_folder, sweep_scratch
from .tables.array_files import file_arrays
from .tables.arrays import object_source
from .tables.parquet import ParquetSource
from .tables.tabular import CsvSource
from .text.sequences import SequenceSource, build_sequences, text_source
from .text.text import SvmlightSource, default_jobs

_MAX_ROWS = 2**31 - 1
_SUFFIXES = {f".{kind}": kind for kind in ("csv", "parquet", "npz", "npy", "mat", "fasta")}
_SUFFIXES |= {".pq": "parquet", ".fa": "fasta", ".fna": "fasta", ".faa": "fasta"}
_PACKED = (".gz", ".bz2", ".xz")


@overload
def ingest(source: UserData, store_url: str | os.PathLike[str], *, dry_run: Literal[True], **options: Any) -> dict[str, Any]: ...


@overload
def ingest(source: UserData, store_url: str | os.PathLike[str], *, dry_run: Literal[False] = False, **options: Any) -> BlockStore: ...


def ingest(  # pyright: ignore[reportInconsistentOverload] (the options of the overloads are those named here)
    source: UserData,
    store_url: str | os.PathLike[str],
    *,
    format: str = "auto",
    n_features: int | None = None,
    like: str | os.PathLike[str] | None = None,
    zero_based: str = "no",
    dtype: str = "auto",
    task: str = "classification",
    labels: Iterable[Label] | None = None,
    qid: str = "refuse",
    no_labels: bool = False,
    scale: str = "none",
    target: UserData = None,
    task_column: UserData = None,
    weight_column: UserData = None,
    covariates: UserData = None,
    groups: UserData = None,
    names: UserData = None,
    layout: str = "columns",
    missing: str = "refuse",
    budget: int = 256 << 20,
    jobs: int | None = None,
    scratch: str | os.PathLike[str] | None = None,
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
    dry_run: bool = False,
) -> BlockStore | dict[str, Any]:
    """Turn any input into a block store, in bounded memory.

    SVMlight text is parsed once into binary rows on scratch, then sorted into column stripes by a two-phase external sort; dense
    input keeps its dense form. The bytes of the store depend on the input and the options alone, not on ``jobs`` or on interruptions.

    Parameters
    ----------
    source : path, URL, "-", array, frame, or (X, y)
        SVMlight text (plain, .gz, .bz2, .xz, or standard input), CSV, Parquet, .npz, .npy or .mat files, also in an object store or on a
        web server, from where they are copied to scratch; sequences for string kernels in FASTA (label: the word ``label=VALUE`` of the
        header) or one a line (``LABEL<tab>STRING``, or the string alone); an ndarray, SciPy sparse matrix, list of texts, ``dask.array``
        (one row block at a time) or data frame; or a pair of features and target.
    store_url : path or URL
        The store; see `BlockStore`.
    format : str
        "svmlight", "csv", "parquet", "npz", "npy", "mat", "fasta" or "strings"; "auto" goes by the name, with SVMlight for unknown ones.
    n_features : int, optional
        Width; SVMlight indices beyond it are refused. Default: the greatest index.
    like : path or URL, optional
        A store whose width, labels and column scaling are taken over, as test data need them; and the names of its target, task and weight
        columns and covariates, where the source has such columns.
    zero_based : str
        Whether SVMlight indices count from zero: "no" (index 0 is an error), "yes", or "auto" (they do if index 0 occurs).
    dtype : str
        "float32" or "float64"; "auto" is float32 when every value survives the round trip and float64 otherwise.
    task : str
        "classification": the target is stored as codes 0, 1, … of the sorted labels; "regression": as it is.
    labels : iterable, optional
        The only labels allowed.
    qid : str
        "refuse" or "ignore" ``qid:`` in SVMlight text.
    no_labels : bool
        The SVMlight text has no labels: a line starts with its first entry, or with a word without a colon (such as 0 or ?) that is passed
        over. The store has no target. Blank lines are no rows here either: a row without entries needs such a word.
    scale : str
        "unit-column" (s_j = 1/|x_j|), "standard" (s_j = 1/deviation; dense data are centred too, sparse data are not), "unit-row"
        (r_i = 1/|x_i|) or "none". Stored as factors beside the raw values; the factor of an empty or constant column is 0.
    target, task_column, weight_column : str or array, optional
        Target, task and weight of the rows: a column name (CSV, Parquet, frames), a variable name (.npz, .mat; default "y"), or an array.
        Tasks are whole numbers or names (``BlockMeta.task_names``).
    covariates : list of str or array, optional
        Columns that are no features but covariates, kept apart as the row table "covariates" with their names (``BlockMeta.covariates``):
        names of columns (CSV, Parquet, frames) or variables (.npz, .mat), or an array or frame (n_rows, n_covariates) of numbers.
    groups : array or path, optional
        One label per feature, integers or texts; a file has one a line. Stripes do not cut runs of equal labels.
    names : list or path, optional
        Feature names; a file has one a line. Default: those the source has.
    layout : str
        "columns", or "both" for row blocks too.
    missing : str
        "refuse", or "keep" missing values of dense input: NaN, empty cells of CSV, NULL of Parquet, and what a data frame or a masked
        array has none for, become NaN, ``BlockMeta.n_missing`` counts them, and the column table "missing" does so by column. Column
        tables speak of the values that are there. Infinity is refused always, sparse input and scaling with "keep".
    budget : int
        Bytes of memory to work in, beyond the interpreter and its libraries. SVMlight lines may be an eighth of it, and without
        ``n_features`` indices a quarter. Outside are 12 bytes per entry of the heaviest column. Files that no way within it leads through
        are refused before they take memory (docs/storage-formats.md).
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
    dry_run : bool
        Return the plan, and write no store: sizes as far as the source declares them, what the process will hold (``process_holds``:
        what, formula, bytes; ``process_bytes`` in all), scratch and layout. What the ingest would refuse is refused.

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
    """
    parse_place(store_url, "new-store", "store_url")
    if no_labels and labels is not None:
        raise SchemaError("no_labels is set, so there is nothing that labels could name; leave out one of them")
    guide = None if like is None else BlockStore.open(like)
    made = {} if guide is None else dict(dict(guide.meta.info).get("options") or {})
    text: dict[str, Any] = {"n_features": _resolve_width(guide, n_features), "zero_based": zero_based, "qid": qid}
    tables = {"target": target, "task_column": task_column, "weight_column": weight_column, "covariates": covariates}
    form: dict[str, Any] = {"format": format, "dtype": dtype, "scale": scale, "layout": layout, "missing": missing, "budget": budget}
    if guide is not None:
        task = "regression" if guide.meta.labels is None and guide.has_table("y") else task
        labels = guide.meta.labels if labels is None else labels
    follow: dict[str, Any] = {name: made[option] for name, option in ROW_OPTIONS.items() if isinstance(made.get(option), str)}
    follow |= {"covariates": made["covariates"]} if isinstance(made.get("covariates"), list) else {}
    options = Options(task=task, labels=labels, no_labels=bool(no_labels), follow=follow, **text, **tables, **form)  # pyright: ignore[reportArgumentType]
    threads = None if jobs is None else check_integer("jobs", jobs, 1, 256)
    url = os.fspath(store_url)
    if dry_run and isinstance(source, str | os.PathLike) and not is_local(source):
        location, nbytes = os.fspath(source), int(describe_source(os.fspath(source))["size"])
        return plan_remote(location, nbytes, options, url, _scratch_folder(url, scratch, make=False))
    with make_local(source, scratch) as local_source:
        opened = open_input(local_source, options)
        extras = _collect_extras(opened, guide, options, names, groups)
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
        hint, folder = opened.hint(), _scratch_folder(url, scratch, make=True)
        with Scratch(folder, {**_comparison_key(extras.info), "hint": hint}, resume=resume and hint is not None) as space:
            progress = progress or no_progress
            reading = opened.read(space, options, Target(options.task, options.labels), threads, progress)
            extras.info["identity"] = opened.identity()
            return build_store(Job(url, reading, reading.spool, options, extras, space, progress, overwrite, threads))


def open_input(source: UserData, options: Options) -> Source:
    """Choose and open the reader for a path, "-" or an object in memory. Raises SchemaError if the format does not fit the source, or
    options do not fit the format; DataError if a file cannot be read."""
    opened = _open_reader(source, options)
    if options.missing == "keep" and opened.sparse:
        rule = "only dense input (arrays, CSV, Parquet, data frames) keeps missing values"
        raise SchemaError(f"missing is 'keep' (--missing keep), but {opened.name} is sparse; {rule}")
    return opened


def _open_reader(source: UserData, options: Options) -> Source:
    kind = "array" if not isinstance(source, str | Path) else _guess_format(str(source)) if options.format == "auto" else options.format
    if options.no_labels and kind != "svmlight":
        raise SchemaError(f"no_labels is for SVMlight text, and the format is {kind!r}: leave its target out instead")
    if not isinstance(source, str | Path):
        if options.format not in ("auto", "array"):
            raise SchemaError(f"format is {options.format!r}, but source is a {type(source).__name__}, not a file")
        return text_source(source, options) or object_source(source, options)
    if options.format == "array":
        raise SchemaError("format is 'array', but source is a path")
    if source == "-" and kind not in ("svmlight", "csv", "fasta", "strings"):
        raise SchemaError(f"format {kind!r} cannot be read from standard input; write it to a file first")
    if kind in ("fasta", "strings"):
        if options.covariates is not None:
            raise SchemaError(f"covariates are columns of a table, and the format is {kind!r}")
        return SequenceSource(source, kind, options)
    if kind in ("npz", "npy", "mat"):
        return file_arrays(Path(source), kind, options)
    if kind in ("csv", "parquet"):
        return (CsvSource if "csv" in (kind, _guess_format(str(source))) else ParquetSource)(source, options)
    named = [name for name in (*ROW_OPTIONS.values(), "covariates") if getattr(options, name) is not None]
    if named:
        raise SchemaError(f"{named[0]} names a column of a table; SVMlight text has its target in front and no other row columns")
    return SvmlightSource(source)


def _guess_format(name: str) -> str:
    path = Path(name)
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower(), "svmlight")


def build_store(job: Job) -> BlockStore:
    """Write the store of what was read: strings, sparse or dense columns. Raises DataError if there are no rows or no columns, or names,
    groups or widths disagree; OutOfSpace if the disk is full; what was done is kept for the next attempt."""
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
    same = _comparison_key({name: info.get(name) for name in wanted}) == _comparison_key(json.loads(canonical_json(wanted)))
    if identity is None or not same or identity != source.identity():
        other = "made from another source or with other options"
        raise SchemaError(f"{url} already holds a store {other}; set overwrite to replace it (--overwrite)")
    return store


def _comparison_key(info: dict[str, Any]) -> dict[str, Any]:
    """Without the name of the source, which may be moved."""
    return {**info, "source": dict(info["source"] or {}).get("format")}


def _scratch_folder(url: str, parent: str | os.PathLike[str] | None, *, make: bool) -> Path:
    """A folder that another attempt at the same store finds again: beside a local store, else a private one, made if need be."""
    local = local_path(url)
    if local is not None and parent is None:
        return local.with_name(local.name + ".ingest")
    mark = hashlib.sha256(str(local or url).encode()).hexdigest()[:16]
    return private_folder(Path(parent or tempfile.gettempdir()), f"gramplane-{mark}-", make=make)


def _resolve_width(guide: BlockStore | None, n_features: int | None) -> int | None:
    if guide is None or _holds_sequences(guide):
        return n_features
    if n_features not in (None, guide.meta.n_cols):
        raise SchemaError(f"n_features is {n_features}, but {guide.url} (like) has {guide.meta.n_cols} columns")
    return guide.meta.n_cols


def _holds_sequences(guide: BlockStore) -> bool:
    return bool(dict(guide.meta.info).get("sequences"))


def _collect_extras(source: Source, guide: BlockStore | None, options: Options, names: UserData, groups: UserData) -> Extras:
    feature_names = read_names(names) or source.names
    labels = read_groups(groups)
    info: dict[str, Any] = {"source": {"name": os.path.basename(source.name) or source.name, "format": source.format}}
    info |= {"names": _digest_texts(feature_names), "groups": _digest_texts(None if labels is None else labels.tolist())}
    scale = None
    if guide is not None:
        if _holds_sequences(guide) != isinstance(source, SequenceSource):
            contents = ("sequences", "numbers")
            there, here = contents if _holds_sequences(guide) else contents[::-1]
            raise SchemaError(f"{guide.url} (like) holds {there}; {source.name} holds {here}")
        scale = _resolve_scale(guide, options, source)
        known = guide.feature_names()
        _check_names(known, feature_names, guide.url)
        feature_names = feature_names or known
        labels = guide.groups() if labels is None else labels
        info["like"] = guide.digest
    info["options"] = options.describe()
    return Extras(feature_names, labels, scale, info)


def _digest_texts(values: list[Any] | None) -> str | None:
    return None if values is None else hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:32]


def _resolve_scale(guide: BlockStore, options: Options, source: Source) -> ColumnScale | None:
    scale = guide.scale
    if options.scale not in ("none", scale.kind):
        raise SchemaError(f"scale is {options.scale!r}, but {guide.url} (like) has {scale.kind!r}; its factors are taken over")
    if options.missing == "keep" and scale.kind != "none":
        like = f"{guide.url} (like) has the scale {scale.kind!r}"
        raise SchemaError(f"missing is 'keep' (--missing keep), but {like}; values are scaled only where none is missing")
    if scale.shift is not None and source.sparse:
        raise SchemaError(f"{guide.url} (like) is dense with centred columns; this source is sparse and cannot be centred")
    return scale


def _check_names(known: list[str] | None, found: list[str] | None, url: str) -> None:
    if known is None or found is None or known == found:
        return
    column = next((k for k, (a, b) in enumerate(zip(known, found, strict=False)) if a != b), min(len(known), len(found)))
    here, there = (names[column] if column < len(names) else None for names in (found, known))
    raise SchemaError(f"column {column} is named {here!r}, but {there!r} in {url} (like); bring the columns into the same order")

"""Actions shared by commands and workflow steps. Each checks its inputs before work starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checking import ConfigError, Locator, dotted_path
from ..console import Emit, size_text
from ..signals import find_signal

if TYPE_CHECKING:
    from ...pipeline.records.declared import ExtraInput
    from ...storage import BlockStore
    from ...storage.errors import UserData
    from ..schema import IngestArgs, MethodArgs


def require_path(path: str, what: str) -> str:
    """Return ``path`` if it exists. Raises ConfigError if the path does not exist; StorageError if an object store has no such object or
    does not answer.
    """
    from ...storage.places import is_local

    if is_local(path):
        if not Path(path).exists():
            raise ConfigError(f"{what} {path} does not exist")
    else:
        from ...storage.urls import require_something

        require_something(path, what)
    return path


def require_run(path: str) -> str:
    """Return the path of a run that has begun, after comparing the records of the run with their checksums.

    Raises ConfigError if nothing is there, or the run was stopped before it wrote anything; DigestMismatch with a remedy if a record is
    damaged.
    """
    from ...storage import RunStore

    require_path(path, "run")
    if (Path(path) / "lock").is_file() and not _is_begun(path):
        raise ConfigError(_not_begun(path))
    for folder in (Path(path), Path(path) / "best"):
        if (folder / "config.json").exists():
            RunStore.open(folder).check()
    return path


@contextmanager
def explain_unbegun(path: str) -> Iterator[None]:
    """If a signal inside the block stops a run that has not begun, add the message of `require_run` for such a run to the message of the
    signal.
    """
    try:
        yield
    except BaseException as error:
        stop = find_signal(error)
        if stop is not None and not _is_begun(path):
            stop.kept = _not_begun(path)
        raise


def _is_begun(path: str) -> bool:
    return (Path(path) / "config.json").exists()


def _not_begun(path: str) -> str:
    return f"run {path} was stopped before it saved anything; run the same command again"


def parse_size(text: str | int | None, what: str) -> int | None:
    """Return the bytes of a text such as ``256MiB``. Raises ConfigError, starting with ``what``, if it is no size."""
    from ...cluster import parse_bytes

    try:
        return None if text is None else parse_bytes(text)
    except ValueError as error:
        raise ConfigError(f"{what}: {error}") from None


def plan_source(args: IngestArgs, store: str) -> dict[str, Any]:
    """Return the plan of an ingest without writing anything."""
    from ...storage.ingest import ingest

    return ingest(args.source, store, dry_run=True, **_ingest_options(args))


def _ingest_options(args: IngestArgs) -> dict[str, Any]:
    """Return the options of an ingest, after checking that its inputs exist."""
    from ...storage.ingest.tables.parquet import has_parquet
    from ...storage.urls import has_cells

    folder = Path(args.source)
    if args.source != "-" and Path(require_path(args.source, "source")).is_dir() and not has_cells(folder) and not has_parquet(folder):
        raise ConfigError(f"source {args.source} is a folder; give a file, a folder of Parquet files, or AnnData Zarr")
    if args.like is not None:
        require_path(args.like, "like: store")
    task = args.task or ("auto" if args.like is None else "classification")
    return {**args.model_dump(exclude={"source", "store"}), "budget": parse_size(args.budget, "budget"), "task": task}


def ingest_source(args: IngestArgs, store: str, emit: Emit) -> dict[str, Any]:
    """Write a block store from a source, without changing any path, and return a description of the store (sizes, labels, digest, …)."""
    from ...storage.encoding.record import as_number
    from ...storage.ingest import ingest

    def progress(done: int, total: int, phase: str) -> None:
        emit({"event": "phase", "phase": f"{phase}: {size_text(done)} of {size_text(total)}"})

    def warn(message: str) -> None:
        emit({"event": "warning", "message": message})

    written = ingest(args.source, store, progress=progress, warn=warn, **_ingest_options(args))
    if (
        args.labels is None
        and args.like is None
        and any(not (as_number(str(label)) or 0.0).is_integer() for label in written.meta.labels or ())
    ):
        first = ", ".join(map(str, (written.meta.labels or ())[:3]))
        warn(f"targets such as {first} are read as classes; add --task regression to read them as numbers")
    return store_figures(written)


def store_figures(store: BlockStore) -> dict[str, Any]:
    from ...storage.encoding.record import describe_encoding

    meta = store.meta
    blocks = store.column_blocks()
    shape = {"rows": meta.n_rows, "columns": meta.n_cols, "kind": meta.kind, "dtype": str(meta.dtype), "missing": meta.n_missing}
    sizes = {"stored": sum(block.nnz for block in blocks), "bytes": sum(block.nbytes for block in blocks), "blocks": len(blocks)}
    labels, tasks = (None if names is None else list(names) for names in (meta.labels, meta.task_names))
    beside = {"covariates": list(meta.covariates or ()), "ids": store.has_ids}
    target = {"labels": labels, "target": store.has_table("y"), "tasks": tasks, **beside}
    if store.encoding is not None:
        target["encoding"] = describe_encoding(store.encoding)
    return {"store": store.url, **shape, **sizes, **target, "scale": meta.scale, "digest": store.digest}


def collect_extras(
    args: MethodArgs, store: str, path: Callable[[str], str] = str, width: int | None = None, spell: Locator = dotted_path
) -> dict[str, Any]:
    """Return the inputs of a fit that the user gave in addition to the data.

    ``width``: number of features of a text that is read instead of a store. ``spell``: function that returns the name of an input as the
    user typed it.
    """
    width = width if args.stream is None else args.stream.n_features
    if args.task is not None and width is None:
        _check_task(args.task, store, spell)
    extras: dict[str, Any] = further_inputs(args, store, path, width, spell)
    if args.test_share:
        extras["test_share"] = args.test_share
    if args.stream is not None:
        extras["stream"] = args.stream.model_dump(exclude={"source"}, exclude_none=True)
    return extras


def _check_task(task: str, store: str, spell: Locator) -> None:
    """Check that a store's target is of the stated kind. Raises ConfigError with both kinds and a remedy."""
    from ...storage import BlockStore

    opened = BlockStore.open(store)
    if opened.has_table("y") and (opened.meta.labels is None) != (task == "regression"):
        content = "real numbers" if opened.meta.labels is None else "classes"
        raise ConfigError(f"{spell(('task',))} {task}: the target of {store} holds {content}; ingest the data again with --task {task}")


def tune_plan(
    method: str, params: dict[str, Any], grid: dict[str, list[Any]], split: dict[str, Any], training: dict[str, Any]
) -> dict[str, Any]:
    """Return the size of a grid, its tasks on workers, and the plan of its first fit.

    ``split``: folds, repetitions, groups. ``training``: common arguments of ``run_method`` for all fits.
    """
    from ...pipeline import run_method
    from ...pipeline.runs.tune import plan_search

    first = {**params, **{key: values[0] for key, values in grid.items()}}
    plan = run_method(method, first, dry_run=True, **training).plan
    given = {key: value for key, value in training.items() if key not in ("run", "on_event")}
    return {**plan_search(method, grid, params=params, **split, **given), "first_fit": plan}


def further_inputs(args: MethodArgs, store: str, path: Callable[[str], str], width: int | None, spell: Locator) -> dict[str, Any]:
    """Return the additional inputs that the user gave: stores as paths, and the contents of files about rows or features."""
    from ...pipeline.registry import METHODS, check_inputs, extra_inputs

    known, given = extra_inputs(), args.inputs()
    if args.method in METHODS:
        check_inputs(METHODS[args.method], given, lambda name: spell((name,)))
    return {name: _further_input(known[name][0], path(file), store, width, spell((name,))) for name, file in given.items()}


def _further_input(item: ExtraInput, file: str, store: str, width: int | None, called: str) -> UserData:
    from ...storage import BlockStore, columns_file, matrix_file, read_edges, read_named_rows, read_pairs, read_row_texts

    try:
        require_path(file, f"{called}: {'store' if item.reads == 'store' else 'file'}")
    except ConfigError as error:
        words = f", and is none of the words {', '.join(item.words)}" if item.words else ""
        raise ConfigError(f"{error}{words}") from None
    if item.reads == "store":
        return file
    if item.reads == "groups":
        return read_groups(file)
    if item.reads == "feature-edges":
        return read_edges(file, BlockStore.open(store).n_cols if width is None else width, "feature").tolist()
    n = BlockStore.open(store).n_rows
    if item.reads == "pairs":
        return read_pairs(file, n, item.values, ordered=item.ordered).tolist()
    if item.reads == "edges":
        return read_edges(file, n, "row").tolist()
    if item.reads == "columns":
        return columns_file(file, n)
    if item.reads == "named-rows":
        return read_named_rows(file, n, numbers=True, least=item.least)
    return matrix_file(file, n) if item.reads == "matrix" else read_row_texts(file, n)


def user_questions(
    recommend: int | None, members: str | None, labels: str | None, store: str, *, three_way: bool = False, proba: bool = False
) -> dict[str, Any]:
    """Return the arguments of a request about users: recommendations, or labels of all users from the labels of some. Files named by the
    options are read.

    Raises ConfigError for options that exclude each other, or missing files; DataError with file and line for invalid contents.
    """
    from ...storage import BlockStore, DataError, read_named_rows, read_row_texts

    if labels is not None and recommend is not None:
        raise ConfigError("recommend and user-labels exclude each other: candidates and labels are two tables; ask for one of them")
    if members is not None and recommend is None:
        raise ConfigError("members: needs the number of candidates; set recommend, too")
    if three_way or proba:
        raise ConfigError(f"{'three-way' if three_way else 'proba'} is for predicted classes; leave it out with recommend or user-labels")
    n = BlockStore.open(require_path(store, "store")).n_rows
    if labels is not None:
        texts = read_row_texts(require_path(labels, "user-labels: file"), n)
        if (known := len({text.strip() for text in texts} - {""})) < 2:
            raise DataError(f"number of different labels: {known}; at least two are needed", labels)
        return {"labels": texts}
    return {"recommend": recommend, "members": None if members is None else read_named_rows(require_path(members, "members: file"), n)}


def answer_users(run: str, store: str, out: str, asked: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Write the recommended candidates or the labels of users to a file. Return a summary, or the plan with ``dry_run``."""
    from ...pipeline.runs.recommend import use_store

    return use_store(str(run), store, out, **asked, **settings)


def read_groups(file: str) -> UserData:
    """Return the groups of the features from a file.

    A ``.json`` file holds a list of lists of feature ids (groups may overlap or be nested), or a list of labels. A text file holds one
    label per line. Raises ConfigError for other contents.
    """
    import json

    from ...storage.ingest.options import read_groups as read_labels
    from ...storage.text.open_text import read_lines

    if not file.endswith(".json"):
        return read_labels(file)
    try:
        groups = json.loads("\n".join(read_lines(file)))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"groups: {file}: {error}") from None
    if not isinstance(groups, list) or not all(_is_ids(item) or isinstance(item, (int, str)) for item in groups):
        raise ConfigError(f"groups: {file} must hold a list of labels, one per feature, or a list of lists of feature ids")
    return groups if all(_is_ids(item) for item in groups) else read_labels(groups)


def _is_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)

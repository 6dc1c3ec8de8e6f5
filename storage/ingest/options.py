"""Options of an ingest, checked before any work."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..data import in_memory, unmasked
from ..encoding.frames import frame_columns, is_frame
from ..encoding.record import FILLS, Missing, TableColumns
from ..errors import DataError, SchemaError, UserData
from ..layout import STRIPE_BYTES
from ..meta import Label
from ..source import Source
from ..text.open_text import check_encoding, read_lines
from .labels import check_declared

Progress = Callable[[int, int, str], None]


def no_progress(done: int, total: int, phase: str) -> None:
    """A progress callback that does nothing."""


_INTEGER = re.compile(r"-?[0-9]{1,18}")
FORMATS = ("auto", "svmlight", "csv", "tsv", "parquet", "feather", "npz", "npy", "mat", "bed", "h5ad", "zarr", "fasta", "strings", "array")
SCALES = ("none", "unit-column", "standard", "max-abs", "unit-row")
MIN_BUDGET = 8 << 20
MAX_COLUMNS = 2**31 - 2

ROW_OPTIONS = {
    "y": "target",
    "task": "task_column",
    "weight": "weight_column",
    "id": "id_column",
}  # options that say where the row tables come from
COVARIATE = "covariate:"  # before the name of a covariate in the name of its table
OBS, VAR = "obs:", "var:"  # before the name of a column about the cells or the genes of an AnnData

_CHOICES: dict[str, tuple[str, ...]] = {
    "format": FORMATS,
    "zero_based": ("no", "yes", "auto"),
    "dtype": ("auto", "float32", "float64"),
    "task": ("auto", "classification", "regression"),
    "qid": ("refuse", "ignore"),
    "scale": SCALES,
    "layout": ("columns", "both"),
    "missing": ("refuse", "keep", *FILLS),
    "decimal": (".", ","),
}


@dataclass(frozen=True)
class Options:
    """Checked options, as `gramplane.storage.ingest.ingest` explains them, as far as they can change the stored bytes (the number of jobs
    cannot).

    Three properties come from the ``like`` store:

    * ``follow``: the roles of columns.
    * ``encoding``: the encoding.
    * ``guided``: the source columns from which the features of that store were made.
    """

    format: str = "auto"
    encoding: str | None = None
    n_features: int | None = None
    zero_based: str = "no"
    dtype: str = "auto"
    task: str = "classification"
    labels: tuple[Label, ...] | None = None
    qid: str = "refuse"
    no_labels: bool = False
    scale: str = "none"
    target: UserData = None
    task_column: UserData = None
    weight_column: UserData = None
    id_column: UserData = None
    covariates: UserData = None
    layout: str = "columns"
    missing: Missing = "refuse"
    missing_words: tuple[str, ...] = ()
    decimal: str = "."
    drop_missing_targets: bool = False
    categorical: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    join: tuple[str, ...] = ()
    keep: str | None = None
    extract: str | None = None
    layer: str | None = None
    names: str | None = None
    budget: int = 256 << 20
    guide: Source | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                found = repr(value) if isinstance(value, str) else f"a {type(value).__name__}"
                tip = "; task_column takes the tasks of the rows" if name == "task" else ""
                raise SchemaError(f"{name} is {found}; it must be one of {', '.join(allowed)}{tip}")
        if self.n_features is not None:
            object.__setattr__(self, "n_features", check_integer("n_features", self.n_features, 1, MAX_COLUMNS))
        if self.missing == "keep" and self.scale != "none":
            raise SchemaError(f"scale is {self.scale!r} with missing='keep' (--missing keep); data with missing values cannot be scaled")
        object.__setattr__(self, "budget", check_integer("budget", self.budget, MIN_BUDGET, 1 << 50))
        object.__setattr__(self, "encoding", check_encoding(self.encoding))
        object.__setattr__(self, "labels", check_declared(self.labels))
        for name in ("categorical", "drop", "columns", "missing_words", "join"):
            chosen = getattr(self, name)
            if chosen is not None or name != "columns":
                object.__setattr__(self, name, _check_columns(name, chosen or ()))
        for name in ROW_OPTIONS.values():
            column = getattr(self, name)
            if isinstance(column, int | np.integer) and not isinstance(column, bool):  # columns of a frame may be called by numbers
                object.__setattr__(self, name, str(column))
        object.__setattr__(self, "covariates", _check_covariates(self.covariates))
        if isinstance(self.covariates, list) and isinstance(self.target, str) and self.target in self.covariates:
            raise SchemaError(f"covariates is {self.covariates!r}; the target {self.target!r} must not be among them")

    @property
    def table_encoding(self) -> TableColumns | None:
        """The encoding of table columns in the ``like`` store."""
        return None if self.guide is None else self.guide.encoding

    @cached_property
    def guided(self) -> list[str] | None:
        """Names of the source columns from which the features of the ``like`` store were made; None if these names are not known."""
        if self.guide is None or self.table_encoding is not None:
            return None if self.table_encoding is None else [column.name for column in self.table_encoding.sources]
        # Names that were given aside do not tell which columns of the source they are of.
        return None if self.guide.are_named else self.guide.names

    @property
    def follow(self) -> dict[str, Any]:
        """Source columns of the target, tasks, weights, ids and covariates of the ``like`` store."""
        made = {} if self.guide is None else self.guide.options
        found: dict[str, Any] = {name: made[option] for name, option in ROW_OPTIONS.items() if isinstance(made.get(option), str)}
        return found | ({"covariates": made["covariates"]} if isinstance(made.get("covariates"), list) else {})

    def of_cells(self, name: str) -> str | None:
        """Return the layer, or the column with the names of genes: as given, else as the ``like`` store has it."""
        return getattr(self, name) or (None if self.guide is None else self.guide.options.get(name))

    @property
    def reads_missing(self) -> bool:
        """Whether missing values are accepted (stored or filled in)."""
        return self.missing != "refuse"

    @property
    def numeric_tasks(self) -> bool | None:
        """Whether the tasks of the ``like`` store are numbers; None if there is no such store, or if it has no tasks."""
        return None if self.guide is None or self.guide.named_tasks is None else not self.guide.named_tasks

    @property
    def stripe_bytes(self) -> int:
        """Size in bytes of the values of one stripe; of all options, it depends only on the budget."""
        return min(STRIPE_BYTES, self.budget // 64)

    def row_columns(self, there: Iterable[str] = ()) -> dict[str, Any]:
        """Return the sources of the row tables that the options name: "y", "task", "weight", "covariate:NAME" -> column name or array.

        The columns that the ``like`` store used (``follow``) are added if they are among the names ``there``.
        """
        given = {name: getattr(self, option) for name, option in ROW_OPTIONS.items()}
        columns = {name: unmasked(value, name) if isinstance(value, np.ma.MaskedArray) else value for name, value in given.items()}
        known, covariates = set(there), self.covariates
        followed = {name: column for name, column in self.follow.items() if isinstance(column, str) and column in known}
        if covariates is None and known.issuperset(self.follow.get("covariates", ())):
            covariates = self.follow.get("covariates")
        columns |= covariate_tables(covariates)
        return {**followed, **{name: value for name, value in columns.items() if value is not None}}

    def describe(self) -> dict[str, Any]:
        """Return the options as JSON values. For tables given as arrays only their presence is stored, because the digest of the source
        covers them.
        """
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "guide"}
        for name in ROW_OPTIONS.values():
            if values[name] is not None and not isinstance(values[name], str):
                values[name] = "array"
        for name in ("join", "keep", "extract"):  # of these, too, the digest of the source covers what was taken from them
            del values[name]
        for name in _OF_CELLS:
            if values[name] is None:
                del values[name]
        values["covariates"] = "array" if isinstance(self.covariates, dict) else self.covariates
        values["task"] = "classification" if self.task == "auto" else self.task
        return {**values, "labels": None if self.labels is None else list(self.labels)}

    def learnt(self) -> dict[str, Any]:
        """Return, as JSON values, the options that apply to all later files rather than to one file."""
        made = self.describe()
        known = {**(self.guide.options if self.guide is not None else {}), **{name: made[name] for name in _LEARNT}}
        named = {name: made[name] for name in (*ROW_OPTIONS.values(), "covariates", *_OF_CELLS) if made.get(name) not in (None, "array")}
        return {**known, **named}


_LEARNT = ("task", "missing", "missing_words", "decimal", "qid", "encoding", "budget")
_OF_CELLS = ("layer", "names")


def _check_covariates(covariates: UserData) -> list[str] | dict[str, np.ndarray] | None:
    """Return names of columns as a list, or the columns of an array or frame by name. Raises SchemaError for anything else."""
    if covariates is None or isinstance(covariates, dict):  # by name already: these options were copied
        return covariates
    if isinstance(covariates, str):
        covariates = [covariates]
    if isinstance(covariates, list | tuple) and all(isinstance(name, str) for name in covariates):
        if not covariates or len(set(covariates)) < len(covariates) or "" in covariates:
            raise SchemaError(f"covariates is {list(covariates)!r}; it must be names of columns, each once")
        return list(covariates)
    covariates = in_memory(covariates, "covariates")
    if is_frame(covariates):
        return frame_columns(covariates)
    values = np.asarray(covariates)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or not values.shape[1]:
        raise SchemaError(f"covariates has the shape {np.shape(covariates)}; it must be (n_rows, n_covariates), or names of columns")
    return {f"z{k}": column for k, column in enumerate(values.T)}


def covariate_tables(covariates: UserData) -> dict[str, Any]:
    """Return the row tables of covariates: by name, the column of each covariate (a column name or an array)."""
    columns = covariates.items() if isinstance(covariates, dict) else ((name, name) for name in covariates or ())
    return {COVARIATE + name: column for name, column in columns}


def check_integer(name: str, value: object, low: int, high: int) -> int:
    """Return an integer argument in ``low … high``. For any other value, raises SchemaError, which names the argument."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= int(value) <= high:
        raise SchemaError(f"{name} is {value!r}; it must be an integer in {low} … {high}")
    return int(value)


def _check_columns(name: str, columns: Iterable[str] | str) -> tuple[str, ...]:
    """Return names of columns: a list, or one name. Raises SchemaError if a name is not text or is repeated."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for k, column in enumerate(names):
        if not isinstance(column, str):
            what = {"missing_words": "a text", "join": "a path"}.get(name, "the name of a column")
            raise SchemaError(f"{name}[{k}] is {column!r}; it must be {what}")
        if column in names[:k]:
            raise SchemaError(f"{name} names {column!r} twice")
    return names


def read_names(names: Sequence[str] | str | Path | None) -> list[str] | None:
    """Return feature names from a list, or from a file with one name per line.

    Raises SchemaError if a name is not text or is repeated; DataError if the file cannot be read.
    """
    if names is None:
        return None
    texts = read_lines(names, "names file") if isinstance(names, str | Path) else list(names)
    for position, name in enumerate(texts):
        if not isinstance(name, str):
            raise SchemaError(f"names[{position}] is {name!r}; it must be text")
    if len(set(texts)) < len(texts):
        twice = next(name for position, name in enumerate(texts) if name in texts[:position])
        raise SchemaError(f"names has {twice!r} twice; every feature needs a name of its own, such as {twice!r} and {f'{twice}.2'!r}")
    return texts


def read_groups(groups: UserData) -> np.ndarray | None:
    """Return the group label of each feature as int64: integers unchanged, texts numbered in order of appearance; a file has one label per
    line.

    Raises SchemaError if the labels are neither integers nor texts, or lines of a file are pairs; DataError if the file cannot be read.
    """
    if groups is None:
        return None
    labels = read_lines(groups, "groups file") if isinstance(groups, str | Path) else list(np.asarray(groups).tolist())
    if isinstance(groups, str | Path):
        _refuse_pairs(labels, groups)
    if isinstance(groups, str | Path) and all(_INTEGER.fullmatch(text) for text in labels):
        labels = [int(text) for text in labels]
    if all(type(label) is int for label in labels):
        return np.array(labels, dtype=np.int64)
    if all(isinstance(label, str) for label in labels):
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(str(label), len(codes)) for label in labels], dtype=np.int64)
    raise SchemaError("groups must hold integers or texts, one per feature")


def _refuse_pairs(labels: Sequence[str], path: str | Path) -> None:
    """Reject a file whose lines each contain a feature and its group, because each line would be read as the label of a separate group."""
    for mark in ",;\t":
        if labels and len(set(labels)) == len(labels) and all(label.count(mark) == 1 for label in labels):
            rule = "a line has two cells; write the group's label alone, one line for each feature, in the order of the features"
            raise DataError(f"{labels[0]!r}: {rule}", str(path), 1)

"""Choice of the reader for a source (by its type in memory, the given format, or its file extension), and the options inherited from the
``like`` store.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..encoding.record import FILLS
from ..errors import SchemaError, UserData
from ..meta import ColumnScale
from ..source import GenotypeSource
from ..source import Source as Followed
from ..urls import has_cells
from .build import Extras
from .options import FORMATS, ROW_OPTIONS, Options, read_groups, read_names
from .reading import Source
from .tables.arrays import FileSource, object_source
from .tables.cells import CellSource, cells_in_memory, open_cells
from .tables.csv_text import CsvSource
from .tables.genotypes import BedSource
from .tables.groups import FeatherSource
from .tables.parquet import ParquetFolder, ParquetSource
from .tables.tabular import Table
from .text.sequences import SequenceSource, text_source
from .text.text import SvmlightSource

ENDINGS = {
    "svmlight": (
        ".svm",
        ".svmlight",
        ".libsvm",
        ".txt",
        ".dat",
        ".t",
        ".tr",
        ".train",
        ".test",
        ".val",
        ".scale",
        ".binary",
        ".multiclass",
    ),
    "csv": (".csv",),
    "tsv": (".tsv", ".tab"),
    "parquet": (".parquet", ".pq"),
    "feather": (".feather", ".arrow", ".arrows", ".ipc"),
    "npz": (".npz",),
    "npy": (".npy",),
    "mat": (".mat",),
    "bed": (".bed",),
    "h5ad": (".h5ad",),
    "zarr": (".zarr",),
    "fasta": (".fasta", ".fa", ".fna", ".faa"),
}
"""Formats by file extension; the extension of a compression may follow. A file name without an extension counts as SVMlight text."""

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_TEXTS = ("svmlight", "csv", "tsv", "fasta", "strings")
_TELLING = {ending for kind, endings in ENDINGS.items() for ending in (endings if kind != "svmlight" else endings[:3])}
_SUFFIXES = {ending: kind for kind, endings in ENDINGS.items() for ending in endings}


def open_input(source: UserData, options: Options) -> Source:
    """Choose and open the reader for a path, "-" or an object in memory.

    Raises SchemaError if the format does not fit the source, or options do not fit the format; DataError if a file cannot be read.
    """
    opened = _open_reader(source, options)
    if options.drop_missing_targets and opened.format in ("svmlight", "fasta", "strings"):
        raise SchemaError(f"drop_missing_targets is for tables and arrays; {opened.name} is {opened.format} text")
    if options.reads_missing and opened.sparse and not isinstance(opened, Table):
        rule = "only dense input (tables, dense arrays) has missing values"
        raise SchemaError(f"missing is {options.missing!r} (--missing {options.missing}), but {opened.name} is sparse; {rule}")
    if isinstance(opened, BedSource) != isinstance(options.guide, GenotypeSource) and options.guide is not None:
        words = ("genotypes", "no genotypes")
        there, here = words if isinstance(options.guide, GenotypeSource) else words[::-1]
        raise SchemaError(f"{options.guide.place} holds {there}; {opened.name} holds {here}")
    for name in ("join", "keep", "extract"):
        if getattr(options, name) and not isinstance(opened, BedSource):
            raise SchemaError(f"{name} is for genotypes (.bed); {opened.name} is {opened.format}")
    for name in ("layer", "names"):
        if getattr(options, name) and not isinstance(opened, CellSource):
            raise SchemaError(f"{name} is {getattr(options, name)!r}, which is for AnnData; {opened.name} is {opened.format}")
    if not isinstance(opened, Table):
        _check_filling(opened, options)
        for name in ("categorical", "drop", "columns"):
            if getattr(options, name):
                raise SchemaError(f"{name} names columns of a table; {opened.name} ({opened.format}) has none")
    return opened


def _check_filling(source: Source, options: Options) -> None:
    """If the ``like`` store was made from a table with nominal columns, or with another number of columns, reject an array without column
    names whose missing values are to be filled in.
    """
    encoding = options.table_encoding
    if encoding is None or options.missing not in FILLS:
        return
    is_plain = all(column.kind != "nominal" for column in encoding.sources)
    if not is_plain or getattr(source, "n_cols", None) != len(encoding.sources):
        what = f"{len(encoding.sources)} columns{'' if is_plain else ', some nominal'}"
        raise SchemaError(f"{source.name} is no table, but the training store has {what}; give a table with the same columns")


def _open_reader(source: UserData, options: Options) -> Source:
    kind = _kind(source, options)
    if options.no_labels and kind != "svmlight":
        raise SchemaError(f"no_labels is for SVMlight text, and the format is {kind!r}: leave its target out instead")
    if not isinstance(source, str | Path):
        if options.format not in ("auto", "array"):
            raise SchemaError(f"format is {options.format!r}, but source is a {type(source).__name__}, not a file")
        return cells_in_memory(source, options) or text_source(source, options) or object_source(source, options)
    if options.format == "array":
        raise SchemaError("format is 'array', but source is a path")
    if source == "-" and kind not in _TEXTS:
        raise SchemaError(f"format {kind!r} cannot be read from standard input; write it to a file first")
    if source != "-" and Path(source).is_dir():
        if options.format == "zarr" or (options.format == "auto" and has_cells(Path(source))):
            return open_cells(Path(source), "zarr", options)
        if options.format not in ("auto", "parquet"):
            raise SchemaError(f"{source} is a folder; only Parquet and AnnData Zarr are read from folders, and the format is {kind!r}")
        return ParquetFolder(source, options)
    return _open_file(source, kind, options)


def _open_file(source: str | Path, kind: str, options: Options) -> Source:
    if kind in ("fasta", "strings"):
        if options.covariates is not None:
            raise SchemaError(f"covariates are columns of a table, and the format is {kind!r}")
        return SequenceSource(source, kind, options)
    if kind in ("npz", "npy", "mat"):
        return FileSource(Path(source), kind, options)
    if kind == "bed":
        return BedSource(Path(source), options)
    if kind in ("h5ad", "zarr"):
        return open_cells(Path(source), kind, options)
    if kind in ("csv", "tsv"):
        return CsvSource(source, options, "\t" if kind == "tsv" else None)
    if kind in ("parquet", "feather"):
        return (ParquetSource if kind == "parquet" else FeatherSource)(source, options)
    named = [name for name in (*ROW_OPTIONS.values(), "covariates") if getattr(options, name) is not None]
    if named:
        raise SchemaError(f"{named[0]} names a column of a table; SVMlight text has none, only the target at the start of each line")
    return SvmlightSource(source, options.encoding)


def _kind(source: UserData, options: Options) -> str:
    if not isinstance(source, str | Path):
        return "array"
    if options.format != "auto":
        return options.format
    known = None if options.guide is None or options.guide.format not in _TEXTS else options.guide.format
    if source == "-" or Path(source).is_dir():
        return known or "svmlight"
    # A name that says little, such as test.dat, is read as the text was that is followed.
    return known if known and _ending(str(source)) not in _TELLING else guess_format(str(source))


def guess_format(name: str) -> str:
    """Return the format for the extension of a file name; the extension of a compression may follow. Raises SchemaError for an unknown
    extension.
    """
    ending = _ending(name)
    if not ending or ending in _SUFFIXES:
        return _SUFFIXES.get(ending, "svmlight")
    known = "; ".join(f"{kind} ({' '.join(endings)})" for kind, endings in ENDINGS.items())
    more = [kind for kind in FORMATS if kind not in (*ENDINGS, "auto", "array")]
    advice = f"name the format (--format {'|'.join([*ENDINGS, *more])})"
    raise SchemaError(
        f"{name} has the unknown file extension {ending!r}; known are {known}, also compressed ({' '.join(PACKED)}): {advice}"
    )


def _ending(name: str) -> str:
    path = Path(name)
    return (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()


# What an ingest takes over from another store, as test data need it; and what goes into a store beside the data.


def follow_guide(guide: Followed | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options ``asked``; options that are not set are taken from the ``like`` source: number of features, first index, query
    ids, task, labels, missing values, budget.

    Options that neither the caller nor this source sets get their defaults. Raises SchemaError if an option of the caller contradicts the
    source.
    """
    if guide is None:
        return {**asked, **{name: value for name, value in _DEFAULTS.items() if asked[name] is None}}
    like, made = guide.place, guide.options
    for name in ("categorical", "drop", "columns", "extract"):
        if asked[name]:
            raise SchemaError(f"{name} is given, but {like} defines the columns; leave {name} out")
    known: dict[str, Any] = {name: made.get(name, default) for name, default in _KNOWN.items()}
    known["missing_words"] = tuple(known["missing_words"])
    if guide.kind != "sequences":
        known["n_features"] = guide.n_features
    if guide.format == "svmlight":
        known["zero_based"] = "no" if guide.first_index else "yes"
    if guide.has_target:
        known["task"] = "regression" if guide.labels is None else "classification"
    free = {"missing": ("refuse",), "task": ("classification",), "zero_based": ("auto",)}  # values that ask for nothing
    if (known["missing"], asked["missing"]) == ("refuse", "keep"):
        known["missing"] = "keep"  # rules read what is missing, whether they were learnt where something was or not
    for name, value in known.items():
        if asked[name] not in (None, value, *free.get(name, ())):
            raise SchemaError(f"{name} is {asked[name]!r}, but {like} was made with {value!r}; leave {name} out")
    labels = guide.labels if asked["labels"] is None else asked["labels"]
    rest = {"budget": made.get("budget"), "encoding": made.get("encoding"), "labels": labels}
    followed = {name: value for name, value in {**rest, **known}.items() if name in known or asked[name] is None}
    return {**follow_guide(None, {**asked, **followed}), "guide": guide}


_KNOWN: dict[str, Any] = {"qid": "refuse", "missing_words": (), "decimal": ".", "missing": "refuse"}
_DEFAULTS: dict[str, Any] = {**_KNOWN, "zero_based": "no", "budget": 256 << 20}


def collect_extras(source: Source, guide: Followed | None, options: Options, names: UserData, groups: UserData) -> Extras:
    """Return the contents of the store other than the data, as far as they are known before the data are read.

    Raises SchemaError if names, scaling or content do not match those of the ``like`` store.
    """
    own_names = read_names(names)
    if own_names is not None and isinstance(source, BedSource):
        raise SchemaError(f"names is given, but the columns of {source.name} are named by their variants; leave names out")
    feature_names = own_names or source.names
    labels = read_groups(groups)
    info: dict[str, Any] = {"source": {"name": os.path.basename(source.name) or source.name, "format": source.format}}
    info |= {"names": _digest_texts(feature_names), "groups": _digest_texts(None if labels is None else labels.tolist())}
    scale = None
    if guide is not None:
        if (guide.kind == "sequences") != isinstance(source, SequenceSource):
            contents = ("sequences", "numbers")
            there, here = contents if guide.kind == "sequences" else contents[::-1]
            raise SchemaError(f"{guide.place} holds {there}; {source.name} holds {here}")
        scale = _resolve_scale(guide, options, source)
        known = guide.names
        if known is not None and own_names is None and options.guided is not None and isinstance(source, Table):
            feature_names = known  # its columns are found by their names
        _check_names(known, feature_names, guide.place)
        feature_names = feature_names or known
        labels = guide.groups if labels is None else labels
        info["like"] = guide.digest
    info["options"] = options.describe()
    are_named = own_names is not None or (guide is not None and guide.are_named)
    return Extras(feature_names, labels, scale, info, are_named)


def _digest_texts(values: list[Any] | None) -> str | None:
    return None if values is None else hashlib.sha256("\n".join(map(str, values)).encode()).hexdigest()[:32]


def _resolve_scale(guide: Followed, options: Options, source: Source) -> ColumnScale | None:
    scale = guide.scale
    if options.scale not in ("none", scale.kind):
        raise SchemaError(f"scale is {options.scale!r}, but the 'like' store {guide.place} has the scale {scale.kind!r}; leave scale out")
    if options.missing == "keep" and scale.kind != "none":
        like = f"{guide.place} has the scale {scale.kind!r}"
        raise SchemaError(f"missing is 'keep' (--missing keep), but {like}; data with missing values cannot be scaled")
    if scale.shift is not None and source.sparse:
        raise SchemaError(f"{guide.place} is dense with centred columns; this source is sparse and cannot be centred")
    return scale


def _check_names(known: list[str] | None, found: list[str] | None, place: str) -> None:
    if known is None or found is None or known == found:
        return
    column = next((k for k, (a, b) in enumerate(zip(known, found, strict=False)) if a != b), min(len(known), len(found)))
    here, there = (names[column] if column < len(names) else None for names in (found, known))
    raise SchemaError(f"column {column} is named {here!r}, but {there!r} in {place}; bring the columns into the same order")


def comparison_key(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return the information that identifies how a store was made. It omits the name of the source, which may have been moved."""
    return {**info, "source": dict(info["source"] or {}).get("format")}

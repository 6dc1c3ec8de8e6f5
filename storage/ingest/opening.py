"""Which reader a source has: by its kind in memory, by the format that is named, else by the ending of its name."""

from pathlib import Path

from ..encoding.record import FILLS
from ..errors import SchemaError, UserData
from .options import FORMATS, ROW_OPTIONS, Options
from .reading import Source
from .tables.arrays import FileSource, object_source
from .tables.csv_text import CsvSource
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
    "fasta": (".fasta", ".fa", ".fna", ".faa"),
}
"""Formats by the ending of a name, which may be packed; a name without an ending is SVMlight text."""

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zstd")
_TEXTS = ("svmlight", "csv", "tsv", "fasta", "strings")
_TELLING = {ending for kind, endings in ENDINGS.items() for ending in (endings if kind != "svmlight" else endings[:3])}
_SUFFIXES = {ending: kind for kind, endings in ENDINGS.items() for ending in endings}


def open_input(source: UserData, options: Options) -> Source:
    """Choose and open the reader for a path, "-" or an object in memory. Raises SchemaError if the format does not fit the source, or
    options do not fit the format; DataError if a file cannot be read."""
    opened = _open_reader(source, options)
    if options.drop_missing_targets and opened.format in ("svmlight", "fasta", "strings"):
        raise SchemaError(f"drop_missing_targets is for tables and arrays; {opened.name} is {opened.format} text")
    if options.reads_missing and opened.sparse and not isinstance(opened, Table):
        rule = "only dense input (tables, dense arrays) has missing values"
        raise SchemaError(f"missing is {options.missing!r} (--missing {options.missing}), but {opened.name} is sparse; {rule}")
    if not isinstance(opened, Table):
        _check_filling(opened, options)
        for name in ("categorical", "drop", "columns"):
            if getattr(options, name):
                raise SchemaError(f"{name} names columns of a table; {opened.name} ({opened.format}) has none")
    return opened


def _check_filling(source: Source, options: Options) -> None:
    """Refuse an array without names where the store to follow was made of a table of names, or of other columns, and fills in."""
    encoding = options.table_encoding
    if encoding is None or options.missing not in FILLS:
        return
    is_plain = all(column.kind != "nominal" for column in encoding.sources)
    if not is_plain or getattr(source, "n_cols", None) != len(encoding.sources):
        what = f"{len(encoding.sources)} columns{'' if is_plain else ', some of names'}"
        raise SchemaError(f"{source.name} is no table; the store given as like was made of one with {what}: give one with the same columns")


def _open_reader(source: UserData, options: Options) -> Source:
    kind = _kind(source, options)
    if options.no_labels and kind != "svmlight":
        raise SchemaError(f"no_labels is for SVMlight text, and the format is {kind!r}: leave its target out instead")
    if not isinstance(source, str | Path):
        if options.format not in ("auto", "array"):
            raise SchemaError(f"format is {options.format!r}, but source is a {type(source).__name__}, not a file")
        return text_source(source, options) or object_source(source, options)
    if options.format == "array":
        raise SchemaError("format is 'array', but source is a path")
    if source == "-" and kind not in _TEXTS:
        raise SchemaError(f"format {kind!r} cannot be read from standard input; write it to a file first")
    if source != "-" and Path(source).is_dir():
        if options.format not in ("auto", "parquet"):
            raise SchemaError(f"{source} is a folder; only Parquet is read from folders of files, and the format is {kind!r}")
        return ParquetFolder(source, options)
    return _open_file(source, kind, options)


def _open_file(source: str | Path, kind: str, options: Options) -> Source:
    if kind in ("fasta", "strings"):
        if options.covariates is not None:
            raise SchemaError(f"covariates are columns of a table, and the format is {kind!r}")
        return SequenceSource(source, kind, options)
    if kind in ("npz", "npy", "mat"):
        return FileSource(Path(source), kind, options)
    if kind in ("csv", "tsv"):
        return CsvSource(source, options, "\t" if kind == "tsv" else None)
    if kind in ("parquet", "feather"):
        return (ParquetSource if kind == "parquet" else FeatherSource)(source, options)
    named = [name for name in (*ROW_OPTIONS.values(), "covariates") if getattr(options, name) is not None]
    if named:
        raise SchemaError(f"{named[0]} names a column of a table; SVMlight text has its target in front and no other row columns")
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
    """Return the format that a name speaks of, which may end with that of a packer. Raises SchemaError: nothing is known of its ending."""
    ending = _ending(name)
    if not ending or ending in _SUFFIXES:
        return _SUFFIXES.get(ending, "svmlight")
    known = "; ".join(f"{kind} ({' '.join(endings)})" for kind, endings in ENDINGS.items())
    more = [kind for kind in FORMATS if kind not in (*ENDINGS, "auto", "array")]
    advice = f"name the format (--format {'|'.join([*ENDINGS, *more])})"
    raise SchemaError(f"{name} has the unknown ending {ending!r}; known are {known}, also packed ({' '.join(PACKED)}): {advice}")


def _ending(name: str) -> str:
    path = Path(name)
    return (path.with_suffix("") if path.suffix.lower() in PACKED else path).suffix.lower()

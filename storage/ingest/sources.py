"""Which reader an input gets."""

from pathlib import Path

from ..errors import SchemaError
from ..value_types import UserData
from .options import Options
from .reading import Source
from .tables.array_files import file_arrays
from .tables.arrays import object_source
from .tables.parquet import ParquetSource
from .tables.tabular import CsvSource
from .text.sequences import SequenceSource, text_source
from .text.text import SvmlightSource

_SUFFIXES = {f".{kind}": kind for kind in ("csv", "parquet", "npz", "npy", "mat", "fasta")}
_SUFFIXES |= {".pq": "parquet", ".fa": "fasta", ".fna": "fasta", ".faa": "fasta"}
_PACKED = (".gz", ".bz2", ".xz")


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
        return SequenceSource(source, kind, options)
    if kind in ("npz", "npy", "mat"):
        return file_arrays(Path(source), kind, options)
    if kind in ("csv", "parquet"):
        return (CsvSource if "csv" in (kind, _guess_format(str(source))) else ParquetSource)(source, options)
    named = [name for name in ("target", "task_column", "weight_column") if getattr(options, name) is not None]
    if named:
        raise SchemaError(f"{named[0]} names a column of a table; SVMlight text has its target in front and no other row columns")
    return SvmlightSource(source)


def _guess_format(name: str) -> str:
    path = Path(name)
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return _SUFFIXES.get(path.suffix.lower(), "svmlight")

"""The plan of an ingest: the memory and disk space that it needs. It follows from the sizes that the source declares, the options and the
budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from math import prod
from pathlib import Path
from typing import Any

from ..encoding.record import FILLS
from ..layout import TABLE_CHUNK, plan_dense, plan_dense_rows
from ..objects import free_bytes
from .files import FileArray
from .options import COVARIATE, Options
from .reading import HELD_SHARE, ROW_BYTES, Source
from .tables.arrays import COLUMN_BYTES, ArraySource, DaskSource, FileSource
from .tables.cells import CHUNK_SHARE, CellSource, StoredMatrix
from .tables.csv_text import COLUMN_BYTES as CSV_COLUMN_BYTES
from .tables.csv_text import NAME_BYTES, CsvSource
from .tables.frames import DaskFrame, DataSet, Stream, WholeFrame
from .tables.genotypes import PANEL_SHARE, BedSource
from .tables.groups import GROUP_SHARE, FeatherSource
from .tables.parquet import FOOTER_BYTES, ParquetFolder, ParquetSource
from .tables.tabular import Table
from .text.sequences import SequenceSource
from .text.text import SvmlightSource
from .turning import PIECE_SHARE, TURNED_ROW_BYTES, Compressed

_ROW_COPIES = 4  # of rows at hand there are, side by side: numbers as read, as float64, as float32, and the block
_ENTRY_BYTES = 48  # bytes that an entry of a sparse piece takes from the file to its block
_PANEL_COPIES = 4  # of a panel of genotypes: itself, and the masks by which they are counted
_FILLED_BYTES = 24  # bytes per row of a column whose mean or median is found
_STORED, _SCRATCHED = 12, 32  # bytes at most per entry of a sparse matrix: in the store, and on scratch (blocks, then buckets)


@dataclass
class Sizes:
    """Sizes declared by a source; None if they are known only after reading.

    * ``rows``, ``columns``, ``entries``: numbers of rows, columns and entries of the features; for sparse features, ``entries`` is an upper
      bound.
    * ``nbytes``: size of the source in bytes.
    * ``scratch``: an upper bound of the bytes on scratch, 0 if all data stay in memory.
    * ``holds``: memory items of the process during reading.
    * ``covariates``: number of covariates.
    """

    rows: int | None = None
    columns: int | None = None
    entries: int | None = None
    nbytes: int | None = None
    scratch: int | None = None
    holds: list[dict[str, Any]] = field(default_factory=list)
    covariates: int = 0


def holding_row(what: str, nbytes: int) -> dict[str, Any]:
    """Return one entry of the list of items that the process holds in memory."""
    return {"what": what, "bytes": int(nbytes)}


def plan_ingest(source: Source, options: Options, url: str, scratch: Path, jobs: int) -> dict[str, Any]:
    """Return the plan of an ingest of a source that has been opened but not read. When a source is opened, its declared sizes are checked
    against the budget and the size of the file.

    ``url`` is the store, ``scratch`` the scratch folder, which need not exist, and ``jobs`` the number of parser threads.
    """
    sizes = sizes_of(source, options)
    sizes.covariates = sum(name.startswith(COVARIATE) for name in source.tables)
    source.close()
    kind = "sequences" if isinstance(source, SequenceSource) else "sparse" if is_sparse(source, options) else "dense"
    holds = [*sizes.holds, *([] if sizes.scratch == 0 else _held_while_writing(kind, sizes, options, jobs))]
    declared = {"source": source.name, "format": source.format, "source_bytes": sizes.nbytes}
    declared |= {"rows": sizes.rows, "columns": sizes.columns, "entries_at_most": sizes.entries}
    outside = [] if sizes.rows is None or sizes.scratch == 0 else _held_outside(kind, source.tables, sizes.rows, options)
    memory = {"budget": options.budget, **_total_bytes(holds, options, outside)}
    disk = {"scratch": str(scratch), "scratch_bytes_at_most": sizes.scratch, "scratch_bytes_free": free_bytes(scratch)}
    return {**declared, "store": url, "kind": kind, **_plan_layout(kind, sizes, options), **memory, **disk}


def is_sparse(source: Source, options: Options) -> bool:
    """Return whether the store will be sparse, as far as that is known before reading."""
    return source.sparse or (isinstance(source, Table) and options.table_encoding is not None and options.table_encoding.is_sparse)


def plan_remote(source: str, nbytes: int | None, options: Options, url: str, scratch: Path) -> dict[str, Any]:
    """Return the plan of an ingest from a URL; before the source is copied, only its size is known."""
    holds = [holding_row("a copy is made on scratch; what it declares is planned within the budget then", options.budget)]
    memory = {"budget": options.budget, **_total_bytes(holds, options)}
    disk = {"scratch": str(scratch), "copy_bytes": nbytes, "scratch_bytes_free": free_bytes(scratch)}
    return {"source": source, "source_bytes": nbytes, "store": url, **memory, **disk}


def _held_outside(kind: str, tables: Sequence[str], rows: int, options: Options) -> list[dict[str, Any]]:
    """Return the memory items of tables about rows; the budget does not limit these items."""
    if kind == "sparse":
        weights = [holding_row("weights of rows; outside the budget", 16 * rows)] if "weight" in tables else []
        cuts = [holding_row("entries of rows, and where rows are cut; outside the budget", 24 * rows)]
        return [*weights, *(cuts if options.layout == "both" else [])]
    if options.missing not in FILLS:
        return []
    return [holding_row("column whose missing values are filled in; outside the budget", _FILLED_BYTES * rows)]


def _total_bytes(holds: list[dict[str, Any]], options: Options, outside: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Return the totals of memory limited by the budget, and of memory outside it."""
    inside = sum(row["bytes"] for row in holds)
    total = min(inside, options.budget) + sum(row["bytes"] for row in outside)
    return {"process_bytes": total, "process_holds": [*holds, *outside]}


def _plan_layout(kind: str, sizes: Sizes, options: Options) -> dict[str, Any]:
    """Return what is known of the store's layout. Stripes of dense data follow from the shape of the data, stripes of sparse data from
    their bytes.
    """
    layout: dict[str, Any] = {"layout": options.layout, "stripe_bytes": options.stripe_bytes, "store_bytes_at_most": None}
    if kind == "dense" and sizes.rows and sizes.columns:
        items = {"auto": (8, 4), "float64": (8,), "float32": (4,)}[options.dtype]
        makers = (plan_dense, plan_dense_rows) if options.layout == "both" else (plan_dense,)
        plans = {item: [make(sizes.rows, sizes.columns, item, stripe_bytes=options.stripe_bytes) for make in makers] for item in items}
        cuts = plans[items[0]]
        layout |= {"block_rows": cuts[0].chunk[0], "block_columns": cuts[0].chunk[1], "blocks": sum(prod(cut.grid) for cut in cuts)}
        # All chunks, which are filled up at the far edges, and their lines in the manifest.
        chunks = max(sum(prod(cut.grid) * (item * prod(cut.chunk) + _LISTED) for cut in cuts) for item, cuts in plans.items())
        layout["store_bytes_at_most"] = chunks + _table_bytes(sizes)
    elif kind != "dense" and sizes.entries is not None:
        axes = (sizes.columns, sizes.rows) if options.layout == "both" else (sizes.columns,)
        # Two figures: only heavy columns need more than the first, but nothing is known of their weights.
        layout["store_bytes_about"] = len(axes) * _STORED * sizes.entries + _table_bytes(sizes)
        if sizes.columns is not None:
            nbytes = sum(_stripes_at_most(sizes.entries, axis, options.stripe_bytes) for axis in axes)
            if sizes.rows is None:
                nbytes = max(nbytes, _LINE_TABLES * _in_chunks((sizes.nbytes or 0) // 2))
            layout["store_bytes_at_most"] = nbytes + _table_bytes(sizes)
    return layout


def _stripes_at_most(entries: int, lines: int | None, stripe_bytes: int) -> int:
    """Return an upper bound on the size in bytes of the stripes of sparse data; each stripe is padded to whole chunks.

    A chunk has at most 2 ``stripe_bytes`` (float32 and its index), and each stripe has less than one chunk of padding. There are no more
    stripes than lines (columns, or rows). Two neighbouring stripes together fill more than half a chunk, or one of them fills a chunk by
    itself; pairs with the last stripe are an exception. Hence there are at most 4 entries / chunk + 1 chunks (`plan_stripes`).
    """
    if 8 * entries <= stripe_bytes:
        return _STORED * entries
    spare = 3 * _STORED * entries + 2 * stripe_bytes
    return _STORED * entries + (spare if lines is None else min(spare, 2 * stripe_bytes * lines))


def _table_bytes(sizes: Sizes) -> int:
    row_bytes = _ROW_TABLES + 8 * sizes.covariates
    return _DESCRIPTIONS + _COLUMN_TABLES * _in_chunks(sizes.columns or 0) + row_bytes * _in_chunks(sizes.rows or 0)


def _in_chunks(length: int) -> int:
    """Return the number of entries that a table of ``length`` entries has on disk; long tables are padded to whole chunks."""
    return length if length <= TABLE_CHUNK else -(-length // TABLE_CHUNK) * TABLE_CHUNK


_COLUMN_TABLES, _ROW_TABLES, _DESCRIPTIONS, _LISTED = 128, 32, 1 << 16, 128
"""Bytes in a store in addition to the data. For each column: its tables and name. For each row: its tables. Once: all ``zarr.json`` files
with a short manifest. For each further object: its line in the manifest.
"""

_LINE_TABLES = 20
"""Bytes in tables for the shortest line of text, which has two bytes: a few row tables, or one letter of a sequence. Lines with entries
take more.
"""


def _held_while_writing(kind: str, sizes: Sizes, options: Options, jobs: int) -> list[dict[str, Any]]:
    stripe, budget = options.stripe_bytes, options.budget
    if kind == "sequences":
        return []
    if kind == "dense":
        block = holding_row("a block of the store, as it is put together, turned and packed", 3 * stripe)
        sums = holding_row("rows at hand again for the tables of columns, and their sums", 3 * budget // 32)
        length = min(TABLE_CHUNK, (sizes.nbytes or 2 * TABLE_CHUNK) // 2 if sizes.rows is None else sizes.rows)
        return [block, sums, holding_row("chunk of a table of rows", 8 * length)]
    tables = [] if sizes.columns is None else [holding_row("tables of the columns", COLUMN_BYTES * sizes.columns)]
    piece = holding_row("piece of the rows that is sorted into buckets", 36 * max(1, budget // 96))
    sorting = holding_row("stripes that are sorted while one is written", 3 * stripe * (jobs + 2))
    return [*tables, piece, sorting]


def _rows_at_hand(share: int, columns: int | None, options: Options) -> dict[str, Any]:
    """Return the memory of the rows of dense data that are read at a time: rows for a part of the budget (1 / ``share``), but at least one
    row.
    """
    nbytes = max(_ROW_COPIES * (options.budget // share), ROW_BYTES * (columns or 0))
    return holding_row("rows at hand, checked and turned to a block", nbytes)


@singledispatch
def sizes_of(source: Source, options: Options) -> Sizes:
    """Return the sizes declared by a source, and the memory needed while it is read."""
    raise TypeError(f"{type(source).__name__} is not a source")


@sizes_of.register
def _(source: SvmlightSource | SequenceSource, options: Options) -> Sizes:
    # Of text nothing is declared but its length; how it is worked on goes by the budget.
    memory, columns = source.memory, 0 if isinstance(source, SequenceSource) else options.n_features
    small = memory is not None and memory <= options.budget
    row = holding_row("text as blocks, buckets and stripes", memory or 0)
    if not small:
        row = holding_row("lines, blocks, buckets and tables of columns, at most", options.budget)
    # An entry takes four bytes of text: a blank, index, colon, value.
    nbytes = None if source.digest is None else source.digest.size
    entries = None if memory is None or nbytes is None else nbytes // 4 if columns != 0 else nbytes
    return Sizes(None, columns, entries, nbytes, 0 if small else memory, [row])


@sizes_of.register
def _(source: CsvSource, options: Options) -> Sizes:
    columns, nbytes = len(source.columns), source.text_bytes
    column_bytes = NAME_BYTES if source.is_wide else CSV_COLUMN_BYTES
    holds = [
        holding_row("what the reader keeps of columns and their names", column_bytes * columns),
        holding_row("text at hand, as read and as cells", 4 * max(1 << 20, options.budget // 64)),
        _rows_at_hand(16, columns, options),
    ]
    # A cell takes two bytes of text, and becomes eight.
    sizes = Sizes(None, source.n_cols, None, nbytes, None if nbytes is None else 4 * nbytes, holds)
    return _with_features(sizes, source, nbytes and nbytes // 2, options)


@sizes_of.register
def _(source: ParquetSource | ParquetFolder, options: Options) -> Sizes:
    footer = holding_row("what the reader makes of the footer", FOOTER_BYTES * source.footer_bytes)
    return _of_groups(source, source.n_rows, [footer], options)


@sizes_of.register
def _(source: FeatherSource, options: Options) -> Sizes:
    return _of_groups(source, source.n_rows, [], options)


def _of_groups(source: Table, rows: int, holds: list[dict[str, Any]], options: Options) -> Sizes:
    columns, place = len(source.columns), Path(source.name)
    nbytes = sum(path.stat().st_size for path in place.iterdir()) if place.is_dir() else place.stat().st_size
    share = holding_row("columns of a group of rows that are read side by side", options.budget // GROUP_SHARE)
    # Blocks, and panels of columns before them where row groups are large.
    sizes = Sizes(rows, source.n_cols, None, nbytes, 16 * rows * columns, [*holds, share, _rows_at_hand(16, columns, options)])
    return _with_features(sizes, source, rows * columns, options)


def _with_features(sizes: Sizes, source: Table, cells: int | None, options: Options) -> Sizes:
    """Add the features of a table whose columns are not all numbers. Their blocks exist in addition to the blocks of the rows read."""
    if source.n_cols is None or options.table_encoding is not None:
        known = source.n_cols is not None and source.n_cols <= len(source.columns)
        sizes.scratch = sizes.scratch + 8 * cells if known and sizes.scratch is not None and cells is not None else None
        sizes.holds.append(_rows_at_hand(16, source.n_cols or len(source.columns), options))
    return sizes


@sizes_of.register
def _(source: WholeFrame | DataSet, options: Options) -> Sizes:
    cells = source.n_rows * len(source.columns)
    sizes = _of_pieces(Sizes(source.n_rows, source.n_cols, None, source.nbytes), 8 * cells, options)
    return _with_features(sizes, source, cells, options)


@sizes_of.register
def _(source: DaskFrame | Stream, options: Options) -> Sizes:
    part = "partition" if isinstance(source, DaskFrame) else "record batch"
    sizes = Sizes(None, source.n_cols, None, None, None, [_rows_at_hand(16, len(source.columns), options)])
    sizes.holds.append(holding_row(f"a {part}, of which nothing is declared; outside the budget", 0))
    return sizes


@sizes_of.register
def _(source: ArraySource, options: Options) -> Sizes:
    sizes = Sizes(source.n_rows, source.n_cols, source.entries, source.all_bytes)
    return _of_pieces(sizes, _SCRATCHED * source.entries if source.sparse else 8 * source.entries, options, source.sparse)


def _blocks_held(nbytes: int, options: Options) -> list[dict[str, Any]]:
    return [holding_row("blocks in memory", nbytes)] if HELD_SHARE * nbytes <= options.budget else []


def _of_pieces(sizes: Sizes, scratch: int, options: Options, sparse: bool = False) -> Sizes:
    """Return the sizes for a source in memory. The source itself is not counted; its blocks are counted if they are small enough to stay in
    memory.
    """
    sizes.holds += _blocks_held(sizes.nbytes or 0, options)
    sizes.scratch = scratch
    sizes.holds.append(_rows_at_hand(16, 0 if sparse else sizes.columns, options))
    return sizes


@sizes_of.register
def _(source: DaskSource, options: Options) -> Sizes:
    nbytes = _ROW_COPIES * source.held_bytes
    return Sizes(None, source.n_cols, None, None, None, [holding_row("row of blocks, checked and turned", nbytes)])


@sizes_of.register
def _(source: BedSource, options: Options) -> Sizes:
    n, d, budget = source.n_rows, source.n_cols, options.budget
    texts = holding_row("what .bim and .fam say", source.text_bytes)
    panel = holding_row("panel of variants, decoded and counted", _PANEL_COPIES * (budget // PANEL_SHARE))
    holds = [*_blocks_held(4 * n * d, options), texts, panel, _rows_at_hand(16, d, options)]
    return Sizes(n, d, n * d, Path(source.name).stat().st_size, 5 * n * d, holds)


@sizes_of.register
def _(source: CellSource, options: Options) -> Sizes:
    sizes = sizes_of(source.matrix, options)
    sizes.columns = source.n_cols
    sizes.holds.append(holding_row("names of cells and genes, columns of obs", source.text_bytes))
    return sizes


@sizes_of.register
def _(source: StoredMatrix, options: Options) -> Sizes:
    n, d, entries, budget = source.n_rows, source.n_cols, source.entries, options.budget
    held, chunk = _blocks_held(source.nbytes or 0, options), holding_row("chunks of the file, unpacked", 2 * (budget // CHUNK_SHARE))
    if not source.sparse:
        return Sizes(n, d, entries, None, 8 * entries, [*held, chunk, _rows_at_hand(32, d, options)])
    holds = [*held, chunk, *_pieces_held(source.matrix, options)]
    return Sizes(n, d, entries, None, 2 * _SCRATCHED * entries, holds)


def _pieces_held(matrix: Compressed, options: Options) -> list[dict[str, Any]]:
    piece = holding_row("piece of the matrix, checked and turned", _ENTRY_BYTES * max(1, options.budget // PIECE_SHARE))
    turning = holding_row("tables that turn columns to rows", TURNED_ROW_BYTES * matrix.shape[0])
    return [piece, turning] if matrix.form == "csc" else [piece]


@sizes_of.register
def _(source: FileSource, options: Options) -> Sizes:
    nbytes, declared, budget = Path(source.name).stat().st_size, source.nbytes or 0, options.budget
    n, d = source.matrix.shape
    if isinstance(source.matrix, FileArray):
        panel = holding_row("panel of columns, for matrices that lie by columns", 2 * (budget // 64))
        holds = [*_blocks_held(declared, options), _rows_at_hand(32, d, options), panel]
        return Sizes(n, d, n * d, nbytes, declared + 16 * n * d, holds)
    entries, holds = source.matrix.data.size, [*_blocks_held(declared, options), *_pieces_held(source.matrix, options)]
    return Sizes(n, d, entries, nbytes, declared + 2 * _SCRATCHED * entries, holds)

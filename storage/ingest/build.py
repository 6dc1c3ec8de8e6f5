"""From blocks of rows to a finished store: layout, column stripes, row blocks, tables, manifest."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from ..blocks.store import BlockStore
from ..blocks.tables import SparsePart, split_texts, whole_numbers
from ..blocks.writer import BlockWriter
from ..encoding.record import TableColumns
from ..errors import DataError, SchemaError, StorageError
from ..layout import DenseLayout, StripeLayout, plan_dense, plan_dense_rows, plan_stripes, running_sums
from ..meta import BlockMeta, ColumnScale, inverse_root
from ..source import GenotypeSource, Source
from .buckets import Column, ColumnSummary, Ints, Records, as_words, fill_buckets, plan_buckets, sort_bucket
from .options import COVARIATE, Options, Progress
from .reading import Reading
from .scratch import Scratch
from .tables.columns import row_squares
from .text.spool import Spool

T = TypeVar("T")
Counts = npt.NDArray[np.uint32]

_PIECE_SHARE = 96
_START_AGAIN = "remove the folder and start again"
_SUMS_SHARE = 4096  # columns whose tables are made together, as a part of the budget's bytes


@dataclass
class Extras:
    """Contents of the store beyond the data.

    * ``names``: feature names; ``are_named``: whether they were given separately instead of read from the source.
    * ``groups``: a group label per feature.
    * ``scale``: column factors of another store; None if they are computed from these data.
    * ``info``: the content of ``BlockMeta.info``.
    * ``encoding``: the encoding of a table; ``facts``: of genotypes, what is known of each variant.
    """

    names: list[str] | None
    groups: npt.NDArray[np.int64] | None
    scale: ColumnScale | None
    info: dict[str, Any]
    are_named: bool = False
    encoding: TableColumns | None = None
    facts: list[str] | None = None


@dataclass
class Job:
    """Everything that an ingest needs to write the store after the source has been read."""

    url: str
    reading: Reading
    options: Options
    extras: Extras
    scratch: Scratch
    progress: Progress
    overwrite: bool
    source_name: str  # for messages
    jobs: int = 1
    begun: BlockWriter | None = None

    @cached_property
    def spool(self) -> Spool:
        return self.reading.spool

    @property
    def on_disk(self) -> bool:
        """Whether the blocks are in the scratch folder; other large data are then stored there, too."""
        return any(handle.path is not None for handle in self.spool.handles)

    def column(self, name: str, length: int, dtype: npt.DTypeLike, width: int | None = None) -> Column:
        """Return a table that is filled in pieces. If the blocks are on disk, it is the scratch file ``NAME.bin``."""
        return Column(length, dtype, self.scratch.path(f"{name}.bin") if self.on_disk else None, width)

    def ends(self, name: str, lengths: str) -> Column:
        """Return the offsets of texts: zero, then the end of each text. ``lengths`` names the array of a block that contains the length in
        bytes of each text.
        """
        column, row, at = self.column(name, self.spool.n_rows + 1, np.int64), 1, 0
        for handle in self.spool.handles:
            ends = at + np.cumsum(handle.get(lengths), dtype=np.int64)
            column.put(row, ends)
            row, at = row + len(ends), int(ends[-1]) if len(ends) else at
        return column

    def dtype(self, name: str) -> str:
        """Return the type of the stored values: float32 if it represents all of them exactly."""
        if self.options.dtype != "auto":
            return self.options.dtype
        return "float32" if self.spool.single(name) else "float64"

    def meta(self, kind: Literal["sparse", "dense"], n_cols: int, dtype: str) -> BlockMeta:
        target = self.reading.target
        labels, tasks = (target.labels() if self.spool.has("y") else None), (target.tasks.names() if self.spool.has("task") else None)
        # The kind of scaling is noted here, before the plan is sealed in the journal, and its factors follow.
        scale: Any = self.options.scale if self.extras.scale is None else self.extras.scale.kind
        coded = 0 if self.extras.encoding is None else self.extras.encoding.n_coded
        covariates = tuple(name.removeprefix(COVARIATE) for name in self.spool.names(COVARIATE)) or None
        named = {"info": self.extras.info, "task_names": tasks, "n_coded": coded, "covariates": covariates}
        return BlockMeta(self.spool.n_rows, n_cols, kind, dtype, labels, scale, **named)

    def writer(self, meta: BlockMeta, columns: StripeLayout | DenseLayout, rows: StripeLayout | DenseLayout | None) -> BlockWriter:
        """Begin or resume writing the store."""
        # Tables kept in memory die with the process, and stripes without their share of them are worth nothing.
        resume = self.scratch.resumed and self.on_disk
        self.begun = BlockWriter.create(self.url, meta, columns, rows, resume=resume, overwrite=self.overwrite)
        return self.begun

    def tables(self, meta: BlockMeta) -> ColumnSummary:
        """Return empty column tables."""
        # Factors that are taken from elsewhere are none of the columns', as those of rows.
        scale = meta.scale if self.extras.scale is None or meta.scale == "none" else "unit-row"
        weight = _row_table(self, "weight", np.float64) if self.spool.has("weight") else None
        missing = self.options.missing == "keep"
        return ColumnSummary(meta, scale, self.scratch.folder, resumable=self.on_disk, missing=missing, weight=weight)


def build_sparse(job: Job) -> BlockStore:
    shift = _first_index(job)
    counts = _column_counts(job, shift)
    meta = job.meta("sparse", counts.size, job.dtype("vals"))
    stripes = plan_stripes(counts, meta.itemsize, stripe_bytes=job.options.stripe_bytes, groups=job.extras.groups)
    rows = row_counts = None
    if job.options.layout == "both":
        row_counts = np.empty(job.spool.n_rows, np.uint32)
        for handle, start in job.spool.blocks():
            row_counts[start : start + handle.shape("lengths")[0]] = handle.get("lengths")
        rows = plan_stripes(row_counts, meta.itemsize, stripe_bytes=job.options.stripe_bytes)
    writer = job.writer(meta, stripes, rows)
    writer.write_table("counts", counts, of="columns")
    tables = job.tables(meta)
    _write_columns(job, writer, stripes, counts, tables, shift)
    if rows is not None and row_counts is not None:
        writer.write_table("counts", row_counts, of="row-layout")
        _write_rows(job, writer, rows, row_counts, shift)
    return finish_store(job, writer, tables)


def _first_index(job: Job) -> int:
    if job.extras.info["source"]["format"] != "svmlight":
        return 0
    first = {"no": 1, "yes": 0}.get(job.options.zero_based, 1 if job.reading.lowest > 0 else 0)
    highest, width = job.reading.highest, job.options.n_features
    if width is not None and highest - first >= width:
        message = f"index {highest} of a file that counts from {first} exceeds the {width} features (--n-features)"
        raise DataError(message, job.source_name)
    return first


def _column_counts(job: Job, shift: int) -> Counts:
    assert job.reading.counts is not None
    width = max(job.options.n_features or 0, job.reading.highest + 1 - shift)
    if job.options.n_features is None:
        width = max(width, len(job.extras.names or ()), 0 if job.extras.groups is None else len(job.extras.groups))
    _check_extras(job, width)
    return job.reading.counts.width(shift, shift + width)


def _check_extras(job: Job, width: int) -> None:
    if width <= 0:
        raise DataError("no row has an entry, so the number of features is unknown; set n_features (--n-features)", job.source_name)
    for what, values in (("names", job.extras.names), ("groups", job.extras.groups)):
        if values is not None and len(values) != width:
            raise SchemaError(f"{what} has {len(values)} entries; {job.source_name} has {width} columns")


def _write_columns(job: Job, writer: BlockWriter, stripes: StripeLayout, counts: Counts, tables: ColumnSummary, shift: int) -> None:
    plan, dtype = plan_buckets(counts, stripes), np.dtype(writer.meta.dtype)
    width = dtype.itemsize // 4
    records = Records(plan, width, job.scratch.path("buckets.bin") if job.on_disk else None)
    nbytes = int(plan.starts[-1]) * (8 + dtype.itemsize)
    if plan.digest not in [note["plan"] for note in job.scratch.notes("partition")]:
        max_nnz = max(1, job.options.budget // _PIECE_SHARE)
        fill_buckets(job.spool, records, dtype, shift, max_nnz, lambda n: job.progress(n * (8 + dtype.itemsize), nbytes, "partition"))
        if job.on_disk:
            job.scratch.note("partition", plan=plan.digest)
    missing = [s for s in range(stripes.n_stripes) if not writer.stripe_done(s)]

    def sort(s: int) -> tuple[int, list[npt.NDArray[Any]]]:
        return s, [] if _is_heavy(stripes, s, counts) else _sort_stripe(writer.meta, records, s, counts, tables)

    # Sorting holds no interpreter lock: stripes are sorted while the one before is written.
    with ThreadPoolExecutor(job.jobs) as pool:
        for s, parts in _run_ahead(pool, job.jobs, sort, missing):
            # After its statistics, because a stripe in the store's journal vouches for them too.
            if parts:
                writer.write_stripe(s, counts[int(stripes.edges[s]) : int(stripes.edges[s + 1])], *parts)
            else:
                _write_heavy(writer, records, stripes, s, counts, tables)
            job.progress(int(plan.starts[plan.stripe[s + 1]]) * (8 + dtype.itemsize), nbytes, "sort")


def _run_ahead(pool: ThreadPoolExecutor, width: int, make: Callable[[int], T], items: Iterable[int]) -> Iterator[T]:
    """Yield the result of ``make`` for each item, in order. Up to ``width`` results are computed at the same time."""
    waiting: deque[Future[T]] = deque()
    for item in items:
        waiting.append(pool.submit(make, item))
        if len(waiting) > width:
            yield waiting.popleft().result()
    yield from (future.result() for future in waiting)


def _is_heavy(stripes: StripeLayout, s: int, counts: Counts) -> bool:
    """Return whether a stripe has several chunks but only one column with entries; its entries are then already in order."""
    columns = counts[int(stripes.edges[s]) : int(stripes.edges[s + 1])]
    return bool(stripes.nnz[s] > stripes.chunk and np.count_nonzero(columns) == 1)


def _write_heavy(writer: BlockWriter, records: Records, stripes: StripeLayout, s: int, counts: Counts, tables: ColumnSummary) -> None:
    """Compute the column tables of a stripe with one large column, then write the stripe chunk by chunk."""
    first, last = (int(edge) for edge in stripes.edges[s : s + 2])
    place, lo = int(counts[first:last].argmax()), int(records.plan.starts[records.plan.stripe[s]])

    def parts() -> Iterator[SparsePart]:
        for at in range(0, int(stripes.nnz[s]), stripes.chunk):
            part = records.read(lo + at, lo + min(int(stripes.nnz[s]), at + stripes.chunk))
            if (part[:, 0] != first + place).any():
                raise StorageError(f"the buckets in the scratch folder hold other columns than were counted; {_START_AGAIN}")
            ends = np.where(np.arange(last - first + 1) > place, len(part), 0).astype(np.int32)
            yield ends, part[:, 1].copy(), np.ascontiguousarray(part[:, 2:]).view(writer.meta.dtype).reshape(-1)

    tables.put_sparse(first, parts)
    for c, (_, rows, values) in enumerate(parts()):
        writer.write_chunk(s, c, rows, values)


def _sort_stripe(meta: BlockMeta, records: Records, s: int, counts: Counts, tables: ColumnSummary) -> list[npt.NDArray[Any]]:
    """Return the entries of a stripe, column by column, and put the tables of its columns into ``tables``."""
    plan = records.plan
    first, last = int(plan.stripe[s]), int(plan.stripe[s + 1])
    origin, nnz = int(plan.starts[first]), int(plan.starts[last] - plan.starts[first])
    rows, values = np.empty(nnz, np.int32), np.empty(nnz, meta.dtype)
    for b in range(first, last):
        part = slice(int(plan.starts[b]) - origin, int(plan.starts[b + 1]) - origin)
        cols = slice(int(plan.edges[b]), int(plan.edges[b + 1]))
        ends = np.concatenate([[0], running_sums(counts[cols])])
        sort_bucket(records, b, ends, rows[part], as_words(values[part]))
        sorted_part = ends.astype(np.int32), rows[part], values[part]
        tables.put_sparse(cols.start, lambda part=sorted_part: [part])
    return [rows, values]


def _write_rows(job: Job, writer: BlockWriter, rows: StripeLayout, row_counts: Counts, shift: int) -> None:
    total, done = int(rows.nnz.sum()), 0
    for s in range(rows.n_stripes):
        lo, hi = int(rows.edges[s]), int(rows.edges[s + 1])
        if not writer.stripe_done(s, layout="rows"):
            cols, values = _gather_rows(job.spool, lo, hi, int(rows.nnz[s]), writer.meta.dtype, shift)
            writer.write_stripe(s, row_counts[lo:hi], cols, values, layout="rows")
        done += int(rows.nnz[s])
        job.progress(done * (4 + writer.meta.itemsize), total * (4 + writer.meta.itemsize), "rows")


def _gather_rows(spool: Spool, lo: int, hi: int, nnz: int, dtype: str, shift: int) -> tuple[Ints, npt.NDArray[Any]]:
    cols, values, at = np.empty(nnz, np.int32), np.empty(nnz, dtype), 0
    for handle, first, last, _ in spool.between(lo, hi):
        ends = np.cumsum(handle.get("lengths", 0, last), dtype=np.int64)
        begin, end = int(ends[first - 1]) if first else 0, int(ends[-1])
        cols[at : at + end - begin] = handle.get("cols", begin, end)
        values[at : at + end - begin] = handle.get("vals", begin, end)
        at += end - begin
    cols -= np.int32(shift)
    return cols, values


def build_dense(job: Job) -> BlockStore:
    width = int(job.reading.n_cols or 0)
    _check_extras(job, width)
    meta = job.meta("dense", width, job.dtype("dense"))
    shape, stripe_bytes = (meta.n_rows, meta.n_cols, meta.itemsize), job.options.stripe_bytes
    columns = plan_dense(*shape, stripe_bytes=stripe_bytes)
    rows = plan_dense_rows(*shape, stripe_bytes=stripe_bytes) if job.options.layout == "both" else None
    writer = job.writer(meta, columns, rows)
    tables = job.tables(meta)
    _write_cells(job, writer, columns, "columns")
    if rows is not None:
        _write_cells(job, writer, rows, "rows")
    _summarise_columns(job, meta, tables)
    return finish_store(job, writer, tables)


def _write_cells(job: Job, writer: BlockWriter, layout: DenseLayout, name: str) -> None:
    total, done = layout.shape[0] * layout.shape[1] * writer.meta.itemsize, 0
    for j, i in np.ndindex(layout.grid[1], layout.grid[0]):
        rows, cols = layout.cell(i, j)
        if f"{name}/dense/c/{i}/{j}" not in writer.done:
            cell = dense_cell(job.spool, rows, cols, writer.meta.dtype)
            writer.write_dense(i, j, np.ascontiguousarray(cell.T), layout=name)
        done += (rows.stop - rows.start) * (cols.stop - cols.start) * writer.meta.itemsize
        job.progress(done, total, name)


def _summarise_columns(job: Job, meta: BlockMeta, tables: ColumnSummary) -> None:
    """Compute the column tables of dense data block by block; at a time, as many columns as fit in memory together with their sums."""
    step = job.options.budget // _SUMS_SHARE
    for lo in range(0, meta.n_cols, step):
        hi = min(meta.n_cols, lo + step)
        tables.put_dense(lo, hi, (handle.get("dense", lo, hi).T for handle in job.spool.handles))
        job.progress(hi * meta.n_rows * meta.itemsize, meta.n_cols * meta.n_rows * meta.itemsize, "tables")


def dense_cell(spool: Spool, rows: slice, cols: slice, dtype: str) -> npt.NDArray[Any]:
    """Return rows and columns of dense data as an array (n_cols, n_rows)."""
    out = np.empty((cols.stop - cols.start, rows.stop - rows.start), dtype)
    for handle, first, last, row in spool.between(rows.start, rows.stop):
        out[:, row - rows.start : row - rows.start + last - first] = handle.get("dense", cols.start, cols.stop)[:, first:last]
    return out


def finish_store(job: Job, writer: BlockWriter, tables: ColumnSummary) -> BlockStore:
    """Write everything except the data (tables, names, groups, source record, scaling), and commit the store."""
    tables.write(writer)
    for name, dtype in (("y", np.float64), ("task", np.int64), ("weight", np.float64)):
        if job.spool.has(name):
            writer.write_table(name, _row_table(job, name, dtype))
    if job.spool.has("id_lengths"):
        _write_ids(job, writer)
    if writer.meta.covariates:
        writer.write_table("covariates", _covariate_table(job))
    if job.extras.names is not None:
        writer.write_names(job.extras.names)
    if job.extras.facts is not None:
        writer.write_names(job.extras.facts, "facts")
    writer.write_source(source_record(job, writer.meta))
    if job.extras.groups is not None:
        writer.write_groups(job.extras.groups)
    if writer.meta.scale != "none":
        factors, taken = _row_factors(job) if writer.meta.scale == "unit-row" else None, job.extras.scale
        writer.write_scale(
            tables.scaling(factors) if taken is None else replace(taken, row_factor=factors)  # pyright: ignore[reportArgumentType]
        )
    return writer.commit()


def source_record(job: Job, meta: BlockMeta) -> Source:
    kind = "sequences" if job.spool.has("letters") else meta.kind
    first = _first_index(job) if meta.kind == "sparse" and kind != "sequences" else 0
    tasks = meta.task_names is not None if job.spool.has("task") else None
    learnt = {"are_named": job.extras.are_named, "named_tasks": tasks, "encoding": job.extras.encoding}
    record = Source if job.extras.facts is None else GenotypeSource
    return record(job.extras.info["source"]["format"], kind, meta.n_cols, first, job.options.learnt(), **learnt)


def _write_ids(job: Job, writer: BlockWriter) -> None:
    """Write the names of the rows: as integers if every name is written as an integer, else as texts."""
    letters = job.column("rows-id-bytes", sum(handle.shape("id_bytes")[0] for handle in job.spool.handles), np.uint8)
    numbers = job.column("rows-id", job.spool.n_rows, np.int64)
    are_numbers, at = True, 0
    for handle, row in job.spool.blocks():
        part, text = handle.get("id_lengths"), handle.get("id_bytes")
        letters.put(at, text)
        at += len(text)
        whole = whole_numbers(split_texts(text, part)) if are_numbers else None
        are_numbers = whole is not None
        if whole is not None:
            numbers.put(row, whole)
    if are_numbers:
        writer.write_table("id", numbers)
    else:
        writer.write_ids(letters, job.ends("rows-id-ends", "id_lengths"))


def _row_table(job: Job, name: str, dtype: npt.DTypeLike) -> Column:
    column, target = job.column(f"rows-{name}", job.spool.n_rows, dtype), job.reading.target
    encoders = {"y": target.encoder, "task": target.tasks.encoder}
    encode = encoders[name]() if name in encoders else np.asarray
    for handle, start in job.spool.blocks():
        column.put(start, encode(handle.get(name)))
    return column


def _covariate_table(job: Job) -> Column:
    """Return the covariates as columns of one table, (n_rows, n_covariates)."""
    names = job.spool.names(COVARIATE)
    column = job.column("rows-covariates", job.spool.n_rows, np.float64, len(names))
    for handle, start in job.spool.blocks():
        column.put(start, np.column_stack([handle.get(name) for name in names]))
    return column


def _row_factors(job: Job) -> Column:
    column = job.column("rows-factor", job.spool.n_rows, np.float64)
    for start, squares in _row_squares(job.spool):
        beyond = np.flatnonzero(~np.isfinite(squares))
        if beyond.size:
            raise DataError(f"row {start + int(beyond[0]) + 1}: the sum of its squares overflows, so scale='unit-row' cannot be used")
        column.put(start, inverse_root(squares))
    return column


def _row_squares(spool: Spool) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    for handle, start in spool.blocks():
        if "dense" in handle:
            wide = handle.get("dense").astype(np.float64)
            squares = np.zeros(wide.shape[1])
            with np.errstate(over="ignore"):
                for column in wide:
                    squares += column * column
        else:
            squares = np.empty(handle.shape("lengths")[0])
            row_squares(handle.get("lengths"), handle.get("vals").astype(np.float64), squares)
        yield start, squares

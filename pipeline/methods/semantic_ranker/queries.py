"""Many queries on the images of one store: independent problems, several per task.

A task reads the images of its queries, ranks them one after another, and returns scores and certificates, but no kernel. The result of a
query is bit-identical to a fit of that query alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.features.views import constant_columns
from ....kernels.ranking.random_walk import normalise_prior
from ....storage import BlockStore, DataError, MemoryBlocks, open_shared
from ....storage.errors import Matrix, UserData
from ...grams.neighbours import load_programs as load_programs
from ...grams.sources import COLUMN_BYTES, FREED_BYTES, READ, SPARSE_BYTES, TASKS, rows_at
from ...passes.blocks import join_lists
from ...passes.columns import entry_count
from .config import RankerConfig
from .ranking import RankedQuery, compare_images, rank_query, read_tags

N_MATRICES = 4  # matrices of all images of a query that a dense eigendecomposition holds
TASK_ENTRIES = 1 << 20  # squared images of the queries of a task: some 1000 images, ranked in about a second
BATCH_TASKS = 32  # tasks of a pass at most; a pass ends with a checkpoint
MIN_BATCHES = 4  # passes, where each has two tasks


@dataclass(frozen=True)
class QueryTable:
    """Images of many queries, query by query."""

    names: tuple[str, ...]  # in order of first appearance
    starts: np.ndarray  # (Q + 1,)
    rows: np.ndarray  # (m,) rows of the store
    lines: np.ndarray  # (m,) the line that an entry stands in
    prior: np.ndarray  # (m,) sum one in every query

    @property
    def sizes(self) -> np.ndarray:
        """Number of images of every query, ``(Q,)``."""
        return np.diff(self.starts)

    def span(self, query: int) -> slice:
        """Return the positions of the entries of a query."""
        return slice(int(self.starts[query]), int(self.starts[query + 1]))


def read_queries(table: UserData, n: int, prior: np.ndarray | None = None) -> QueryTable:
    """Return the queries of a table with rows ``(query, row)`` or ``(query, row, prior)``; all rows have the same form. If the
    table has no priors, ``prior`` ``(n,)`` gives the prior of every row.

    Raises DataError for an invalid line (the message has its number), a row that occurs twice in a query, a query with one image, and an
    invalid prior.
    """
    lines = [tuple(line) for line in (table.to_numpy() if hasattr(table, "to_numpy") else table)]
    widths = {len(line) for line in lines}
    if len(widths) != 1 or not widths <= {2, 3}:
        raise DataError("queries: give at least one line (query, row), or (query, row, prior); all lines need the same form")
    names = [str(line[0]) for line in lines]
    rows = _row_numbers([line[1] for line in lines], n)
    numbers = {name: q for q, name in enumerate(dict.fromkeys(names))}
    codes = np.array([numbers[name] for name in names])
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(numbers) + 1))
    given = _given_prior(lines) if widths == {3} else None if prior is None else np.asarray(prior, np.float64)[rows]
    read = QueryTable(tuple(numbers), starts, rows[order], order, np.empty(len(lines)))
    for q, name in enumerate(read.names):
        _check_query(read, q, name)
        try:
            read.prior[read.span(q)] = normalise_prior(None if given is None else given[order][read.span(q)], int(read.sizes[q]))
        except ValueError as error:
            raise DataError(f"queries: query {name}: {error}") from None
    return read


def _given_prior(lines: Sequence[tuple[Any, ...]]) -> np.ndarray:
    try:
        return np.array([float(line[2]) for line in lines])
    except (TypeError, ValueError):
        raise DataError("queries: the prior of every line must be a number") from None


def _row_numbers(values: Sequence[Any], n: int) -> np.ndarray:
    rows = np.asarray(values)
    try:
        whole = rows.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"queries: rows must be numbers from 0 to {n - 1}") from None
    wrong = np.flatnonzero(~((whole >= 0) & (whole < n) & (whole % 1 == 0)))
    if len(wrong):
        raise DataError(f"queries: line {wrong[0]} has row {values[int(wrong[0])]}; must be a row number from 0 to {n - 1}")
    return whole.astype(np.int64)


def _check_query(table: QueryTable, query: int, name: str) -> None:
    rows = table.rows[table.span(query)]
    if len(rows) < 2:
        raise DataError(f"queries: query {name} has one image; a ranking needs at least 2")
    values, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        raise DataError(f"queries: query {name} has row {values[counts > 1][0]} twice")


def tag_source(tags: UserData, n: int) -> UserData:
    """Return the tags of every row in the form that :func:`tags_of` reads. Raises ValueError if there is not one entry for each of n
    rows.
    """
    rows: UserData = sp.csr_array(tags) if sp.issparse(tags) else tags.to_numpy() if hasattr(tags, "to_numpy") else tags
    count = rows.shape[0] if hasattr(rows, "shape") else len(rows) if hasattr(rows, "__len__") and not isinstance(rows, str) else None
    if count is not None and count != n:
        raise ValueError(f"tags: {count} rows, the data has {n}; there must be one for each image")
    return rows


def tags_of(tags: UserData, rows: np.ndarray) -> UserData:
    """Return the tags of the given rows, in their original form."""
    return tags[rows] if hasattr(tags, "shape") else [tags[row] for row in rows.tolist()]


@dataclass(frozen=True)
class Query:
    """Data of the images of one query that are sent to a task."""

    name: str
    rows: np.ndarray  # (n,) rows of the store
    prior: np.ndarray  # (n,)
    vectors: sp.csr_array  # (n, V) of tags
    untagged: int

    @property
    def nbytes(self) -> int:
        """Number of bytes sent to the task."""
        return carried_bytes(self.vectors)


@dataclass(frozen=True)
class QueryTask:
    """Queries that one task ranks."""

    # url, digest: the block store, or `"memory"` and empty
    url: str
    digest: str
    span: tuple[int, int]  # which queries of the table: tells one task from another where they are placed on workers
    queries: tuple[Query, ...] = field(repr=False, compare=False)
    width: int  # columns of the data
    source: MemoryBlocks | None = field(default=None, repr=False, compare=False)  # arrays in memory; such a task stays in its process

    @property
    def nbytes(self) -> int:
        """Memory in bytes of the images that the task reads, in float64."""
        return 8 * self.width * sum(len(query.rows) for query in self.queries)


def query_vectors(config: RankerConfig, table: QueryTable, tags: UserData, query: int) -> tuple[sp.csr_array, int]:
    """Return the tag vectors of a query's images, and the number of images without a tag. Raises ValueError for invalid tags; the message
    names the query.
    """
    rows = table.rows[table.span(query)]
    try:
        return read_tags(config, tags_of(tags, rows), len(rows), rows)
    except ValueError as error:
        raise ValueError(f"query {table.names[query]}: {error}") from None


def task_groups(sizes: np.ndarray) -> list[tuple[int, int]]:
    """Return ranges of queries, one per task, chosen from the sizes of the queries alone: tasks of similar work, at least about 16 if there
    are as many queries.
    """
    entries = np.maximum(np.asarray(sizes, np.int64), 1) ** 2
    limit, groups, start, size = max(1, min(TASK_ENTRIES, -(-int(entries.sum()) // TASKS))), [], 0, 0
    for q, count in enumerate(entries.tolist()):
        if q > start and size + count > limit:
            groups, start, size = [*groups, (start, q)], q, 0
        size += count
    return [*groups, (start, len(entries))]


def batch_groups(groups: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Return the tasks of every pass. An interruption loses at most one pass."""
    size = max(min(BATCH_TASKS, -(-len(groups) // MIN_BATCHES)), min(2, len(groups)))
    return [list(groups[lo : lo + size]) for lo in range(0, len(groups), size)]


def read_bytes(data: BlockStore | MemoryBlocks) -> int:
    """Return an upper bound of the memory in bytes for reading rows, however many there are."""
    return SPARSE_BYTES * entry_count(data) + COLUMN_BYTES * data.n_cols


def query_bytes(rows: np.ndarray, width: int, most: int) -> int:
    """Return an upper bound of the memory in bytes for ranking a query of the given rows: these rows in float64; all rows from the first to
    the last, which are read with them and take ``most`` bytes at most; ``(n, n)`` matrices; and freed blocks that the allocator keeps.
    """
    n, read = len(rows), min(16 * width * min(READ, int(np.ptp(rows)) + 1), most)
    return 24 * n * width + 8 * (N_MATRICES + 1) * n * n + read + FREED_BYTES


def rank_chunk(task: QueryTask, config: RankerConfig, seed: int) -> list[RankedQuery]:
    """Return the ranked queries of a task."""
    data = task.source or open_shared(task.url, task.digest)
    return [_rank(data, query, config, seed) for query in task.queries]


def _rank(data: BlockStore | MemoryBlocks, query: Query, config: RankerConfig, seed: int) -> RankedQuery:
    rows = _without_constants(rows_at(data, query.rows)) if data.scale.row_factor is None else rows_at(data, query.rows)
    try:
        images = compare_images(config, rows, query.vectors, query.untagged)
    except ValueError as error:
        raise ValueError(f"query {query.name}: {error}") from None
    return rank_query(config, images, query.prior, seed)


def _without_constants(rows: Matrix) -> Matrix:
    """Return the rows with constant columns set to zero, as they would be in a data set of these rows alone. The result of a query then has
    exactly the same bits as a fit of that query alone.
    """
    columns = constant_columns(sp.csc_array(rows) if sp.issparse(rows) else rows)
    if not len(columns):
        return rows
    factor = np.ones(rows.shape[1])
    factor[columns] = 0.0
    if not sp.issparse(rows):
        return rows * factor
    return sp.csr_array((rows.data * factor[rows.indices], rows.indices, rows.indptr), shape=rows.shape)


def ranking_plan(
    data: BlockStore | MemoryBlocks, config: RankerConfig, table: QueryTable, tags: UserData, groups: Sequence[tuple[int, int]], seed: int
) -> Plan[list[RankedQuery]]:
    """Return the pass that ranks the queries of the given tasks."""
    digest, source = (data.digest, None) if isinstance(data, BlockStore) else ("", data)
    tasks = []
    for lo, hi in groups:
        queries = []
        for q in range(lo, hi):
            vectors, untagged = query_vectors(config, table, tags, q)
            queries.append(Query(table.names[q], table.rows[table.span(q)], table.prior[table.span(q)], vectors, untagged))
        tasks.append(QueryTask(data.url, digest, (lo, hi), tuple(queries), data.n_cols, source))
    results, most = [result_bytes(table.sizes[lo:hi], config) for lo, hi in groups], read_bytes(data)

    def task_bytes(task: QueryTask) -> int:
        rows, carried = [query.rows for query in task.queries], sum(query.nbytes for query in task.queries)
        return work_bytes(rows, carried, task.width, most, config)

    joined = joined_bytes(results)
    program = BlockProgram("rank-queries", rank_chunk, join_lists, task_bytes, max(results), combine_bytes=joined, patient=True)
    return plan(program, tasks, config, seed)


def work_bytes(queries: Sequence[np.ndarray], carried: int, width: int, most: int, config: RankerConfig) -> int:
    """Bound the memory of a task in bytes, given the rows of its queries: its largest query, the data sent for all its queries, and their
    results.
    """
    sizes = np.array([len(rows) for rows in queries])
    return max(query_bytes(rows, width, most) for rows in queries) + carried + result_bytes(sizes, config)


def carried_bytes(vectors: sp.csr_array) -> int:
    """Return the bytes sent for a query with tag vectors ``(n, V)``."""
    n = len(vectors.indptr) - 1
    return 16 * n + vectors.data.nbytes + vectors.indices.nbytes + vectors.indptr.nbytes


def batch_bytes(
    config: RankerConfig, table: QueryTable, carried: np.ndarray, groups: Sequence[tuple[int, int]], width: int, most: int
) -> int:
    """Return the memory bound in bytes of a pass over some tasks; ``carried`` ``(Q,)`` are the bytes sent for every query, and ``most`` are
    those for reading rows at most.
    """
    tasks = [
        work_bytes([table.rows[table.span(q)] for q in range(lo, hi)], int(carried[lo:hi].sum()), width, most, config) for lo, hi in groups
    ]
    results = [result_bytes(table.sizes[lo:hi], config) for lo, hi in groups]
    return max([*tasks, *([joined_bytes(results)] if len(groups) > 1 else [])])


def joined_bytes(results: Sequence[int]) -> int:
    """Return the bytes of the concatenated results of all tasks."""
    return 2 * sum(results)


def result_bytes(sizes: np.ndarray, config: RankerConfig) -> int:
    """Bound the bytes of the results of some queries: scores, pairs of neighbours with their dual variables, and quantities."""
    return int((8 + 16 * config.n_neighbors) * np.sum(sizes) + 1024 * len(sizes))

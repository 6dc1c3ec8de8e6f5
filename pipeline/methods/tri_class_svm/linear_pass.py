"""A linear kernel that exceeds the driver's memory: its matrix X X' is never formed, and a product with it is two passes over column
stripes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.grams.normalization import KernelSums, Normalization, make_normalizations
from ....kernels.grams.spec import KernelSpec
from ....kernels.svm.decomposition import COPY_SHARE, MIN_WORKING_SET
from ....storage import block_cache
from ...core.resources import Resources, Shared, resolve
from ...grams.pair_passes import PASS_BYTES
from ...grams.sources import FREED_BYTES, group_pairs, stacked
from ...grams.weighted_sum import MATRIX_SHARE
from ...passes.blocks import Columns, Ref, Rows, add_parts, join_lists, scale_of, source_of
from ...passes.scaling import scaled
from ...records.joined import JoinedStores

ENTRY_BYTES = 12  # of a stored value of a sparse row, with its column
ROW_COPIES = 3  # of the rows of the working set: kept, in the order asked for, and on their way
CHUNK_BYTES = 8 << 20  # entries of the matrix made at a time


@dataclass(frozen=True)
class Stripe:
    """A column stripe of a range of rows of a data set."""

    first: int  # row of the data set that its first row is
    ref: Ref

    @property
    def nbytes(self) -> int:
        return self.ref.nbytes

    @property
    def rows(self) -> slice:
        """Range of the rows in the data set."""
        return slice(self.first, self.first + self.ref.rows[1] - self.ref.rows[0])

    def load(self, data: Rows) -> Columns:
        """Return the values of the stripe with the scaling of the whole data set, ``(rows, columns)``, dense or CSC."""
        scale = scale_of(data, slice(*self.ref.cols))
        return scaled(block_cache().load(self.ref), scale, source_of(self.ref).scale.row_factor)


Group = tuple[Stripe, ...]
Step = Callable[..., Any]  # chunk or combine


def stripe_tasks(data: Rows) -> list[Group]:
    """Return the tasks of a pass over all stripes."""
    stores = zip(data.edges[:-1], data.stores, strict=True) if isinstance(data, JoinedStores) else [(0, data)]
    return group_pairs([Stripe(first, ref) for first, store in stores for ref in store.column_blocks()], PASS_BYTES)


def rows_pass(name: str, chunk: Step, combine: Step, tasks: Sequence[Group], data: Rows, result: int, *broadcast: Shared) -> Plan[Any]:
    """Return a pass over all stripes whose result has at most ``result`` bytes."""
    # A stripe as it is stored, scaled and in float64 by rows, and vectors.
    bound = 5 * max(stripe.nbytes for group in tasks for stripe in group) + 32 * data.n_rows + 24 * data.n_cols + FREED_BYTES
    program = BlockProgram(name, chunk, combine, lambda group: bound + result, result, combine_bytes=3 * result)
    return plan(program, tasks, data, *broadcast)


def rows_task_bytes(data: Rows, driver_memory: int) -> int:
    """Return the memory in bytes of the largest step of the passes in this module. The largest result is the rows of a working set; three
    copies of these rows fit in their share of the driver's memory.
    """
    tasks, share, value = stripe_tasks(data), int(MATRIX_SHARE * driver_memory), ENTRY_BYTES if _is_sparse(data) else 8
    size = min(data.n_rows, max(MIN_WORKING_SET, int((share / (8.0 * (1.0 + COPY_SHARE))) ** 0.5)))
    rows = min(max(share // ROW_COPIES, value * MIN_WORKING_SET * data.n_cols), value * size * data.n_cols)
    results = (16 * max(data.n_rows, data.n_cols), _pieces_bytes(rows, size, len(tasks)))
    return max(rows_pass("planned", list, list, tasks, data, result).memory_bound for result in results)


def _pieces_bytes(values: int, rows: int, tasks: int) -> int:
    """Return the size in bytes of ``rows`` rows when they are split into one piece per task."""
    return values + 16 * rows * tasks


def _is_sparse(data: Rows) -> bool:
    return (data.stores if isinstance(data, JoinedStores) else (data,))[0].meta.kind == "sparse"


class Weights(NamedTuple):
    """Weights of the features of one stripe."""

    first: int
    values: np.ndarray


class Piece(NamedTuple):
    """Part of the requested rows within one stripe."""

    places: np.ndarray  # among the rows that were asked for
    columns: tuple[int, int]
    values: np.ndarray | sp.csr_array


def norms_chunk(group: Group, data: Rows) -> np.ndarray:
    """Return the contributions of some stripes to two sums for each row, ``(2, n)``: the squared norm, and the number of stored values."""
    out = np.zeros((2, data.n_rows))
    for stripe in group:
        X = stripe.load(data)
        if isinstance(X, np.ndarray):
            out[0, stripe.rows] += np.square(X, dtype=np.float64).sum(axis=1)
            out[1, stripe.rows] += X.shape[1]
        else:
            size = stripe.rows.stop - stripe.rows.start
            out[0, stripe.rows] += np.bincount(X.indices, np.square(X.data, dtype=np.float64), size)
            out[1, stripe.rows] += np.bincount(X.indices, minlength=size)
    return out


def weights_chunk(group: Group, data: Rows, vector: Shared) -> list[Weights]:
    """Return ``X'v`` for the features of some stripes."""
    v = resolve(vector)
    return [Weights(stripe.ref.cols[0], stripe.load(data).T @ v[stripe.rows]) for stripe in group]


def values_chunk(group: Group, data: Rows, weights: Shared) -> np.ndarray:
    """Return the contribution of some stripes to ``X w``, ``(n,)``."""
    w, out = resolve(weights), np.zeros(data.n_rows)
    for stripe in group:
        out[stripe.rows] += stripe.load(data) @ w[slice(*stripe.ref.cols)]
    return out


def rows_chunk(group: Group, data: Rows, ids: Shared) -> list[Piece]:
    """Return the parts of the requested rows within some stripes."""
    wanted, pieces = resolve(ids), []
    for stripe in group:
        places = np.flatnonzero((wanted >= stripe.rows.start) & (wanted < stripe.rows.stop))
        if len(places):
            X = stripe.load(data)
            rows = (X if isinstance(X, np.ndarray) else sp.csr_array(X))[wanted[places] - stripe.first]
            pieces.append(Piece(places, stripe.ref.cols, rows.astype(np.float64)))
    return pieces


class LinearGram:
    """``X X'`` by passes, for solvers that use products and the entries between chosen variables. The driver holds the rows of these
    variables.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, data: Rows, resources: Resources, spec: KernelSpec) -> None:
        self._data, self.resources, self.specs = data, resources, (spec,)
        self._groups = stripe_tasks(self._data)
        self._ids, self._rows = np.zeros(0, np.int64), None

    @property
    def n(self) -> int:
        return self._data.n_rows

    @cached_property
    def _norms(self) -> np.ndarray:
        return self._pass("row-norms", norms_chunk, add_parts, 16 * self.n)

    @property
    def normalizations(self) -> list[Normalization]:
        """List of one identity: the kernel is not normalised."""
        return make_normalizations(self.specs, KernelSums.of_diagonals(self.diag()[None]))

    def diag(self) -> np.ndarray:
        """Return the diagonal, float64 ``(n,)``."""
        return self._norms[0]

    @cached_property
    def room(self) -> int:
        """Number of matrix entries that a solver may hold, such that these entries and the rows of the solver's working set fit in their
        share of the driver's memory.
        """
        heaviest = np.cumsum(np.sort(self._norms[1])[::-1])
        value = ENTRY_BYTES if self._is_sparse else self.dtype.itemsize
        sizes = np.arange(1, self.n + 1, dtype=np.float64)
        taken = self.dtype.itemsize * (1.0 + COPY_SHARE) * sizes**2 + ROW_COPIES * value * heaviest
        size = np.searchsorted(taken, MATRIX_SHARE * self.resources.driver_memory, side="right")
        return int((1.0 + COPY_SHARE) * size**2) + 1

    @property
    def _is_sparse(self) -> bool:
        return _is_sparse(self._data)

    def rows(self, idx: np.ndarray) -> np.ndarray:
        """Return whole rows, ``(len(idx), n)``, as products with unit vectors; checks request only a few."""
        return np.reshape([self.matvec(np.eye(1, self.n, int(i))[0]) for i in idx], (len(idx), self.n))

    def matvec(self, v: np.ndarray) -> np.ndarray:
        """Return ``X (X'v)`` by two passes; parts are added in the order of the stripes."""
        w, tasks = np.zeros(self._data.n_cols), len(self._groups)
        for part in self._pass("feature-weights", weights_chunk, join_lists, 16 * len(w), self.resources.share("vector", v, tasks)):
            w[part.first : part.first + len(part.values)] += part.values
        return self._pass("row-values", values_chunk, add_parts, 8 * self.n, self.resources.share("weights", w, tasks))

    def between(self, new: np.ndarray, old: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``(positions of rows, positions of columns, values)`` of blocks of the matrix over the variables ``new`` followed by
        ``old``. The blocks cover every pair that includes a new variable.
        """
        ids = np.concatenate([np.asarray(new, np.int64), np.asarray(old, np.int64)])
        rows, every = self._rows_of(ids), np.arange(len(ids))
        for places in np.array_split(np.arange(len(new)), max(1, 8 * len(new) * len(ids) // CHUNK_BYTES)):
            values = rows[places] @ rows.T
            yield places, every, values if isinstance(values, np.ndarray) else values.toarray()

    def _rows_of(self, ids: np.ndarray) -> np.ndarray | sp.csr_array:
        """Return the given rows, dense or CSR. Rows of the last request are cached; others are fetched in one pass."""
        wanted = np.unique(ids)
        missing = np.setdiff1d(wanted, self._ids)
        kept = np.flatnonzero(np.isin(self._ids, wanted))
        parts = [] if self._rows is None or not len(kept) else [self._rows[kept]]
        if len(missing):
            parts.append(self._fetched(missing))
        rows, order = stacked(parts), np.concatenate([self._ids[kept], missing])
        by_id = np.argsort(order)
        self._ids, self._rows = order[by_id], rows[by_id]
        return self._rows[np.searchsorted(self._ids, ids)]

    def _fetched(self, ids: np.ndarray) -> np.ndarray | sp.csr_array:
        size = ENTRY_BYTES if self._is_sparse else self.dtype.itemsize
        most = _pieces_bytes(int(size * self._norms[1][ids].sum()), len(ids), len(self._groups))
        shared = self.resources.share("rows", ids, len(self._groups))
        pieces = self._pass("working-rows", rows_chunk, join_lists, most, shared)
        if not self._is_sparse:
            dense = np.zeros((len(ids), self._data.n_cols))
            for piece in pieces:
                dense[piece.places, slice(*piece.columns)] = piece.values
            return dense
        found = [sp.coo_array(piece.values) for piece in pieces]
        entries = np.concatenate([part.data for part in found])
        at = np.concatenate([piece.places[part.coords[0]] for piece, part in zip(pieces, found, strict=True)])
        columns = np.concatenate([piece.columns[0] + part.coords[1] for piece, part in zip(pieces, found, strict=True)])
        return sp.csr_array((entries, (at, columns)), shape=(len(ids), self._data.n_cols))

    def _pass(self, name: str, chunk: Step, combine: Step, result: int, *broadcast: Shared) -> Any:
        return self.resources.run_pass(rows_pass(name, chunk, combine, self._groups, self._data, result, *broadcast))


def suits(spec: KernelSpec, data: object) -> bool:
    """Return whether a kernel is the inner product of all features of numeric rows, and the rows take less than half the memory of its
    matrix.
    """
    plain = isinstance(spec, KernelSpec) and spec.name == "linear" and spec.columns is None and spec.normalize == "none" and not spec.centre
    if not plain or not isinstance(data, Rows) or not data.n_cols:
        return False
    stored = sum(stripe.nbytes for group in stripe_tasks(data) for stripe in group)
    return stored <= data.n_rows**2

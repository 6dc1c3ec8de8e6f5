"""Columns of the cuts of every problem. They are in the driver or, if they exceed its memory, on the workers by blocks of rows."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import numpy as np
import scipy.sparse as sp

from ....cluster import BlockProgram, Plan, plan
from ....kernels.features.rows_at_hand import RowForm
from ....kernels.features.views import shape
from ....kernels.loss_types import SumLoss
from ....kernels.losses import sum_loss
from ....kernels.mixed_norm import ROW_BLOCK, ROW_OPERATIONS, BlockedRows, RowData, RowQuery, Rows, add_sums, rows_for
from ....kernels.mixed_norm.elimination import FreeBasis
from ....kernels.mixed_norm.row_block import RememberingBlock
from ....kernels.mixed_norm.rows_blocked import FAN_IN
from ....storage import block_cache
from ...core.memory import Item, refuse
from ...core.resources import Resources, Shared, resolve
from ...passes.blocks import Blocks, Columns, Ref, scale_of, serial, source_of
from ...passes.columns import heaviest_entries, stack
from ...passes.scaling import scaled, scaled_columns
from .model import MachineState, take_columns
from .score_pass import Query

DRIVER_SHARE = 0.5  # share of the driver's memory that the cuts' columns may take; sparse ones are held twice while a cut is added


def solve_at(data: Blocks, columns: int, driver_memory: int) -> str:
    """Return where sub-problems with ``columns`` columns in total are solved: on the ``"driver"`` or on ``"workers"``.

    The decision is made once per run, from sizes alone. A single block of rows cannot be split, so it always stays in the driver.
    """
    if data.n_rows <= ROW_BLOCK or design_bytes(data, columns) <= DRIVER_SHARE * driver_memory:
        return "driver"
    return "workers"


def rows_step(data: Blocks, columns: int, atoms: ColumnMaker, q: int) -> int:
    """Return the memory in bytes of the largest step on a block of rows, if sub-problems are solved on workers. The problem has ``columns``
    columns and q unpenalised ones.
    """
    parts = row_parts(data, "", columns, atoms, (), q)
    return max(rows_pass("planned", parts, size).memory_bound for size in (sums_bytes(columns, q), None))


def driver_items(data: Blocks, columns: int, first: int, machines: int, driver_memory: int, q: int = 0) -> tuple[Item, ...]:
    """Return the memory items of the driver for problems with ``columns`` columns in total: scores, vectors, q covariates, and the columns,
    if they are in the driver.

    If the columns of all rounds of a single block of rows exceed the driver's share, only the columns of the ``first`` round are counted,
    and every round checks the memory again.
    """
    n, d = data.n_rows, data.n_cols
    items = (
        ("scores of the features, and their order", 24 * d * machines),
        ("labels, costs, duals and decision values of the models", 64 * n * machines),
        *((("covariates, as they are given and as solvers see them", 32 * n * q),) if q else ()),
    )
    if solve_at(data, columns, driver_memory) == "workers":
        return items
    beyond = design_bytes(data, columns) > DRIVER_SHARE * driver_memory
    fetched = "columns of one cut, as they are fetched", design_bytes(data, first)
    return (*items, cut_columns(data, first if beyond else columns), fetched)


def cut_columns(data: Blocks, columns: int) -> Item:
    """Return the memory of the columns of cuts in the driver."""
    size = design_bytes(data, columns)
    return ("columns of the cuts", size) if data.meta.kind == "dense" else ("columns of the cuts, twice while one is added", 2 * size)


def refuse_columns(items: Sequence[Item], driver_memory: int) -> None:
    """Raise MemoryBoundExceeded, with need and limit, if the driver would exceed its memory."""
    refuse("fgm", items, driver_memory, "a smaller B or max_rounds, fewer rows")


class ColumnMaker(Protocol):
    """Interface of atoms that workers use."""

    @property
    def centred(self) -> bool:
        """True if the columns are centred because there is an intercept, see :func:`~gramplane.pipeline.passes.blocks.scale_of`."""
        ...

    @property
    def signature(self) -> str:
        """Text that distinguishes the atoms' columns from those of other kinds of atoms with the same coordinates and factors."""
        ...

    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate and the factor of each column of the atoms."""
        ...

    def features(self, ids: np.ndarray) -> np.ndarray:
        """Return the features from which atoms are computed."""
        ...

    def build(self, data: Blocks, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns:
        """Return the columns of atoms."""
        ...


class Atoms(ColumnMaker, Protocol):
    """Interface of a collection of candidate atoms in the outer loop; implementations are in ``atoms`` and ``pairs``."""

    @property
    def kind(self) -> str: ...

    @property
    def width(self) -> int:
        """Number of columns of the widest atom."""
        ...

    @property
    def n_read(self) -> int:
        """Largest number of features from which the columns of an atom are computed."""
        ...

    def search_bytes(self, data: Blocks, sizes: Sequence[int], driver_memory: int) -> int:
        """Return the memory in bytes of the largest step of the search passes. ``sizes``: number of atoms that each problem requests."""
        ...

    def count(self, n_features: int) -> int:
        """Return the number of candidate atoms for ``n_features`` features."""
        ...

    def select(self, data: Blocks, resources: Resources, duals: np.ndarray, queries: Sequence[Query]) -> Sequence[Any]:
        """Return the best atoms for every dual vector."""
        ...

    def squares(self, top: Any) -> np.ndarray:
        """Return the scores of ranked atoms."""
        ...

    def with_weight(self, ids: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
        """Return the atoms of a cut with non-zero weight. ``coordinates`` are those coordinates of the cut whose weight is not zero."""
        ...

    def for_workers(self, resources: Resources) -> ColumnMaker:
        """Return the atoms in the form that is sent with tasks."""
        ...


class Design:
    """Columns of the cuts so far. New columns are appended; existing ones are not rebuilt. Sparse columns are stored by rows, as solvers
    need them.

    A dense design is allocated once for ``capacity`` columns; memory pages take up memory only when they are filled.
    """

    def __init__(self, n_rows: int, capacity: int) -> None:
        self._n_rows, self._capacity = n_rows, capacity
        self._dense: np.ndarray | None = None
        self._sparse = RowForm.empty(n_rows)
        self.widths: list[int] = []

    def append(self, columns: Columns) -> None:
        """Append the columns of one more cut."""
        if isinstance(columns, np.ndarray):
            self._append_dense(columns)
        else:
            self._sparse = self._sparse.with_columns(columns)
        self.widths.append(shape(columns)[1])

    def _append_dense(self, columns: np.ndarray) -> None:
        used, need = sum(self.widths), sum(self.widths) + shape(columns)[1]
        if self._dense is None or need > self._dense.shape[1]:
            larger = np.empty((self._n_rows, max(need, self._capacity)), dtype=columns.dtype, order="F")
            if self._dense is not None:
                larger[:, :used] = self._dense[:, :used]
            self._dense = larger
        self._dense[:, used:need] = columns

    def joined(self, parts: Sequence[Columns]) -> Design:
        """Return a design with the columns ``parts`` appended. It becomes invalid when columns are appended to this design, because both
        share a buffer.
        """
        whole = copy.copy(self)
        whole.widths = [*self.widths]
        for columns in parts:
            whole.append(columns)
        return whole

    @property
    def matrix(self) -> np.ndarray | sp.csr_array:
        """All columns, ``(n_samples, p)``: a view of the dense buffer, or a CSR matrix."""
        return self._sparse.matrix() if self._dense is None else self._dense[:, : sum(self.widths)]

    def decision_values(self, omega: np.ndarray, bias: float) -> np.ndarray:
        """Return the decision values ``Z omega - bias``, ``(n_samples,)``."""
        return (self.matrix @ omega if self.widths else np.zeros(self._n_rows)) - bias

    def rows(self, y: np.ndarray, cost: np.ndarray, loss: SumLoss, basis: FreeBasis) -> Rows:
        """Return the object through which a solver accesses the rows."""
        return rows_for(self.matrix, y, cost, loss, basis.columns)


class Designs:
    """Columns per problem. They follow from state and data and are rebuilt after a resume, so the state does not contain them.

    ``capacities`` are the largest numbers of columns of the problems.
    """

    def __init__(self, data: Blocks, atoms: Atoms, capacities: list[int]) -> None:
        self._data, self._atoms, self._capacities = data, atoms, capacities
        self._designs: dict[int, Design | RemoteDesign] = {}
        self._fetched: tuple[np.ndarray, Columns] = np.zeros(0, np.int64), np.zeros((0, 0))  # features, and their columns, of the last pass

    def __contains__(self, k: int) -> bool:
        return k in self._designs

    def __getitem__(self, k: int) -> Design | RemoteDesign:
        return self._designs[k]

    def restrict(self, running: set[int]) -> None:
        """Discard the columns of problems that are not in ``running``."""
        self._designs = {k: design for k, design in self._designs.items() if k in running}

    def extend(self, resources: Resources, machines: Sequence[MachineState], cuts: Mapping[int, np.ndarray | None]) -> None:
        """Append the new cut of each problem (``None``: only rebuild missing columns). One column pass serves all problems."""
        missing = {k: [*(() if k in self._designs else machines[k].cuts), *(() if cut is None else (cut,))] for k, cut in cuts.items()}
        if solve_at(self._data, sum(self._capacities), resources.driver_memory) == "driver":
            return self._append_local(resources, missing)
        for k, cuts_of_machine in missing.items():
            remote = cast(
                "RemoteDesign", self._designs.setdefault(k, RemoteDesign(self._data, resources, self._atoms.for_workers(resources)))
            )
            for ids in cuts_of_machine:
                remote.append(ids)

    def beside(
        self, resources: Resources, machines: Sequence[MachineState], candidates: Mapping[int, np.ndarray]
    ) -> dict[int, Design | RemoteDesign]:
        """Return, for each given problem, the columns so far followed by the columns of the problem's candidates, each candidate as a
        separate cut. One column pass serves all problems.
        """
        after: dict[int, Design | RemoteDesign] = {}
        features = np.unique(np.concatenate([self._atoms.features(ids) for ids in candidates.values()]))
        for k, ids in candidates.items():
            design, one_by_one = self._designs[k], [ids[i : i + 1] for i in range(len(ids))]
            if isinstance(design, RemoteDesign):
                after[k] = RemoteDesign(self._data, resources, self._atoms.for_workers(resources))
                for cut in (*machines[k].cuts, *one_by_one):
                    after[k].append(cut)
            else:
                parts = [self._atoms.build(self._data, self._columns(resources, features), features, cut) for cut in one_by_one]
                after[k] = design.joined(parts)
        return after

    def _append_local(self, resources: Resources, missing: Mapping[int, list[np.ndarray]]) -> None:
        if design_bytes(self._data, sum(self._capacities)) > DRIVER_SHARE * resources.driver_memory:
            count = sum(len(ids) for cuts in missing.values() for ids in cuts)
            count += sum(sum(design.widths) for design in self._designs.values())
            refuse_columns([cut_columns(self._data, count)], resources.fit_limit)
        parts = [self._atoms.features(ids) for cuts in missing.values() for ids in cuts]
        features = parts[0] if len(parts) == 1 else np.unique(np.concatenate([np.zeros(0, np.int64), *parts]))
        raw = self._columns(resources, features) if len(features) else np.zeros((self._data.n_rows, 0))
        for k, cuts in missing.items():
            design = self._designs.setdefault(k, Design(self._data.n_rows, self._capacities[k]))
            assert isinstance(design, Design)
            for ids in cuts:
                design.append(self._atoms.build(self._data, raw, features, ids))

    def _columns(self, resources: Resources, features: np.ndarray) -> Columns:
        """Return (scaled) columns. Columns of the last fetch are reused."""
        known, columns = self._fetched
        if not set(features.tolist()) <= set(known.tolist()):
            del columns
            self._fetched = np.zeros(0, np.int64), np.zeros((0, 0))  # those of the last cut make room
            columns = scaled_columns(self._data, resources, features, centred=self._atoms.centred)
            if isinstance(columns, np.ndarray):
                columns = np.asfortranarray(columns)  # they are picked and appended one by one
            known, columns = self._fetched = features, columns
        return columns if len(known) == len(features) else take_columns(columns, known, features)


Sums = tuple[np.ndarray, ...]

# Bytes of a step on a block of rows, per byte of its columns: as read, as built cut by cut and side by side, and the row form a sparse part
# is turned into.
PART_COPIES = 4
FREE_COPIES = 3  # of columns without a penalty: as read, and times weights


@dataclass(frozen=True)
class DesignPart:
    """Reference to rows ``lo:hi`` of the columns of some cuts."""

    ref: Ref  # any block of the store
    token: str  # digest of all that decides the columns: the cuts, the atoms, and for arrays in memory which arrays
    rows: tuple[int, int]  # half-open range
    nbytes: int  # of the loaded part at most
    # How to build it:
    atoms: ColumnMaker = field(compare=False, repr=False)
    cuts: tuple[np.ndarray, ...] = field(compare=False, repr=False)
    # Beside it, their number and the columns without a penalty, where these are not of ones:
    q: int = field(default=0, compare=False)
    free: Shared | None = field(default=None, compare=False, repr=False)

    def load(self) -> RememberingBlock:
        """Build the columns from the store, in the same memory order as in the driver, because the order affects the last bits."""
        data = source_of(self.ref)
        features = np.unique(np.concatenate([self.atoms.features(ids) for ids in self.cuts]))
        row_factor = None if data.scale.row_factor is None else data.scale.row_factor[slice(*self.rows)]
        raw = scaled(data.columns(features, self.rows), scale_of(data, features, centred=self.atoms.centred), row_factor)
        columns = stack([self.atoms.build(data, raw, features, ids) for ids in self.cuts])
        return RememberingBlock(np.asfortranarray(columns) if isinstance(columns, np.ndarray) else columns)


def rows_chunk(part: DesignPart, y: Shared, cost: Shared, name: str, query: RowQuery) -> Sums:
    """Run the operation ``name`` on a block of rows (on a worker). The operation ``"decision"`` returns decision values."""
    block, span = block_cache().load(part), slice(*part.rows)
    if name == "decision":
        return (block.product(query.omega),)
    free = np.ones((block.n, part.q)) if part.free is None else resolve(part.free)
    return ROW_OPERATIONS[name](block, RowData(resolve(y)[span], resolve(cost)[span], free), query)


def _concatenate(parts: Sequence[Sums]) -> Sums:
    return (np.concatenate([part[0] for part in parts]),)


class RemoteDesign:
    """Columns of the cuts, kept on the workers with the rows; counterpart of :class:`gramplane.pipeline.methods.fgm.designs.Design`."""

    def __init__(self, data: Blocks, resources: Resources, atoms: ColumnMaker) -> None:
        self._data, self._resources, self._atoms = data, resources, atoms
        self._cuts: list[np.ndarray] = []
        self._free: tuple[FreeBasis, list[Shared]] | None = None
        self._digest = hashlib.sha256(f"{serial(data)} {type(atoms).__name__} {atoms.signature} {atoms.centred}".encode())
        self.widths: list[int] = []

    def append(self, ids: np.ndarray) -> None:
        """Append the atoms of one more cut."""
        coordinates, factors = self._atoms.coordinates(ids)
        for part in (np.array(coordinates.shape), coordinates, factors):
            self._digest.update(np.ascontiguousarray(part).tobytes())
        self._cuts.append(ids)
        self.widths.append(len(factors))

    def rows(self, y: np.ndarray, cost: np.ndarray, loss: SumLoss, basis: FreeBasis) -> BlockedRows:
        """Return the object through which a solver accesses the rows. Every operation is one pass over the blocks of rows."""
        labels, costs = self._resources.share("labels", y), self._resources.share("costs", cost)

        def add(name: str, query: RowQuery) -> Sums:
            return self._run(name, query, (labels, costs), basis, sums_bytes(sum(self.widths), basis.q))

        def join(name: str, query: RowQuery) -> list[np.ndarray]:
            return list(self._run(name, query, (labels, costs), basis))

        return BlockedRows(len(y), sum(self.widths), loss, add, join, basis.q)

    def decision_values(self, omega: np.ndarray, bias: float) -> np.ndarray:
        """Return the decision values ``Z omega - bias``, ``(n_samples,)``."""
        n = self._data.n_rows
        if not self.widths:
            return np.full(n, -bias)
        return self._run("decision", RowQuery(sum_loss("squared"), omega), (np.zeros(n), np.zeros(n)), None)[0] - bias

    def _run(self, name: str, query: RowQuery, targets: tuple[Shared, Shared], basis: FreeBasis | None, sums: int | None = None) -> Sums:
        free = () if basis is None else self._shared(basis)
        columns, token, cuts = sum(self.widths), self._digest.hexdigest(), tuple(self._cuts)
        parts = row_parts(self._data, token, columns, self._atoms, cuts, 0 if basis is None else basis.q, free)
        return self._resources.run_pass(rows_pass(name, parts, sums, *targets, name, query))

    def _shared(self, basis: FreeBasis) -> Sequence[Shared]:
        """Return the unpenalised columns block by block, in the form sent to tasks; an intercept alone needs none."""
        if not len(basis.means):
            return ()
        if self._free is None or self._free[0] is not basis:
            edges = row_edges(self._data.n_rows)
            self._free = basis, [self._resources.share(f"covariates-{lo}", basis.columns[lo:hi]) for lo, hi in edges]
        return self._free[1]


def row_edges(n: int) -> list[tuple[int, int]]:
    """Return the ranges of the blocks of rows."""
    return [(lo, min(lo + ROW_BLOCK, n)) for lo in range(0, n, ROW_BLOCK)]


def row_parts(
    data: Blocks,
    token: str,
    columns: int,
    atoms: ColumnMaker,
    cuts: tuple[np.ndarray, ...],
    q: int,
    free: Sequence[Shared] = (),
) -> list[DesignPart]:
    """Return one reference per block of rows, to the columns of some cuts (``columns`` in total) and the block's q unpenalised columns."""
    ref, nbytes, edges = data.column_blocks()[0], part_bytes(data, columns), row_edges(data.n_rows)
    beside = free or [None] * len(edges)
    return [DesignPart(ref, token, rows, nbytes, atoms, cuts, q, own) for rows, own in zip(edges, beside, strict=True)]


def rows_pass(name: str, parts: Sequence[DesignPart], sums: int | None, *broadcast: object) -> Plan[Sums]:
    """Return the pass of one operation over blocks of rows. The pass adds results of ``sums`` bytes; if ``sums`` is None, it returns one
    number per row.
    """
    joined = 8 * parts[-1].rows[1]
    result, combine = (joined, _concatenate) if sums is None else (sums, add_sums)
    merging = 2 * joined if sums is None else None
    program = BlockProgram(f"rows-{name}", rows_chunk, combine, part_step, result, combine_bytes=merging)
    return plan(program, parts, *broadcast, split_every=FAN_IN)


def part_step(part: DesignPart) -> int:
    """Return an upper bound on the memory in bytes of a step on a block of rows."""
    lo, hi = part.rows
    return PART_COPIES * part.nbytes + FREE_COPIES * 8 * (hi - lo) * part.q


def sums_bytes(p: int, q: int) -> int:
    """Return the size in bytes of three sums over blocks of rows: a Hessian and two vectors, for p penalised and q unpenalised columns."""
    return 8 * ((p + q) * (p + q) + p + q + 3)


def part_bytes(data: Blocks, columns: int) -> int:
    """Return an upper bound on the memory in bytes of ``columns`` columns in one block of rows. If the columns are sparse, all their
    entries may be in this block.
    """
    dense = 8 * min(ROW_BLOCK, data.n_rows) * columns
    return dense if data.meta.kind == "dense" else min(dense, design_bytes(data, columns))


def design_bytes(data: Blocks, columns: int) -> int:
    """Return an upper bound on the memory in bytes of any ``columns`` columns of the data in the driver. For sparse data, it is the memory
    of the columns with the most entries.
    """
    if data.meta.kind == "dense":
        return 8 * data.n_rows * columns
    return 12 * heaviest_entries(data, columns) * max(1, columns // max(data.n_cols, 1))

"""The columns of every machine's cuts: on the driver, or left with the rows on the workers when they exceed its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....kernels.mixed_norm import ROW_BLOCK
from ...passes.scaling import scaled_columns
from ...records.context import RunContext
from ...records.holdings import Held, Holding, refuse_beyond
from .design import Design
from .model import MachineState
from .remote_design import PART_COPIES, RemoteDesign, design_bytes

DRIVER_SHARE = 0.5
"""Share of the driver's memory that the cuts' columns may take; sparse ones are held twice while a cut is added."""


SCORES = Held("scores of the features, and their order", "24 d T")
VECTORS = Held("labels, costs, duals and decision values of the machines", "64 n T")
COLUMNS = Held(
    "columns of the cuts", "8 n c", f"dense, within {DRIVER_SHARE:g} L or few rows; c the columns of all cuts. Else on the workers"
)
SPARSE_COLUMNS = Held("columns of the cuts, twice while one is added", "24 entries", "sparse; the entries of these columns")

FETCHED = Held("columns of one cut, as they are fetched", "8 n b", "b of a cut, of all machines; sparse as above")

HELD = (SCORES, VECTORS, COLUMNS, SPARSE_COLUMNS, FETCHED)
"""What the driver may hold."""


def solve_at(data: Any, columns: int, driver_memory: int) -> str:
    """Return ``"driver"`` or ``"workers"``: where sub-problems with ``columns`` columns in all are solved.

    Decided once per run, from sizes alone. A single block of rows cannot be split, so it always stays on the driver.
    """
    if data.n_rows <= ROW_BLOCK or design_bytes(data, columns) <= DRIVER_SHARE * driver_memory:
        return "driver"
    return "workers"


def rows_step(data: Any, columns: int, driver_memory: int) -> int:
    """Return the bytes of a step on the columns of one block of rows, where sub-problems are solved with the rows."""
    if solve_at(data, columns, driver_memory) == "driver":
        return 0
    return PART_COPIES * design_bytes(data, columns) * min(ROW_BLOCK, data.n_rows) // data.n_rows


def driver_held(data: Any, columns: int, first: int, machines: int, driver_memory: int) -> tuple[Holding, ...]:
    """Return what the driver holds of T machines with c columns in all: scores, vectors, and the columns where they lie here.

    A single block of rows whose columns of all rounds are beyond the driver's share is planned with those of the ``first`` round; each
    round looks again.
    """
    n, d = data.n_rows, data.n_cols
    held = (
        SCORES.of(d=d, T=machines),
        VECTORS.of(n=n, T=machines),
    )
    if solve_at(data, columns, driver_memory) == "workers":
        return held
    beyond = design_bytes(data, columns) > DRIVER_SHARE * driver_memory
    return (*held, columns_held(data, first if beyond else columns), FETCHED.taking(design_bytes(data, first)))


def columns_held(data: Any, columns: int) -> Holding:
    """Return what columns of cuts take on the driver."""
    size = design_bytes(data, columns)
    if data.meta.kind == "dense":
        return COLUMNS.taking(size)
    return SPARSE_COLUMNS.taking(2 * size)


def refuse_columns(held: Sequence[Holding], driver_memory: int) -> None:
    """Refuse a fit whose driver would hold more than it may.

    Raises
    ------
    gramplane.cluster.MemoryBoundExceeded
        Need and limit are named.
    """
    refuse_beyond(held, driver_memory, "fgm", "a smaller B or max_rounds, fewer rows")


def union(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sorted distinct ids of sorted distinct parts."""
    if len(parts) == 1:
        return parts[0]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)


class Designs:
    """Columns per machine: a function of state and data, rebuilt after a resume, so no part of the state.

    Parameters
    ----------
    atoms
        Candidates.
    capacities
        Columns each machine may have at most.
    """

    def __init__(self, atoms: Any, capacities: list[int]) -> None:
        self._atoms = atoms
        self._capacities = capacities
        self._held: dict[int, Design | RemoteDesign] = {}
        self._place: str | None = None
        self._fits = False

    def __contains__(self, k: int) -> bool:
        return k in self._held

    def __getitem__(self, k: int) -> Design | RemoteDesign:
        return self._held[k]

    def keep(self, running: set[int]) -> None:
        """Forget the machines that are not among ``running``."""
        self._held = {k: design for k, design in self._held.items() if k in running}

    def extend(self, ctx: RunContext, machines: Mapping[int, MachineState], cuts: Mapping[int, np.ndarray | None]) -> None:
        """Append each machine's new cut (``None``: only rebuild what is missing); one column pass serves all machines."""
        if self._place is None:
            columns = sum(self._capacities)
            self._place = solve_at(ctx.data, columns, ctx.driver_memory)
            self._fits = design_bytes(ctx.data, columns) <= DRIVER_SHARE * ctx.driver_memory
        missing = {k: self._missing(k, machines[k], cut) for k, cut in cuts.items()}
        append = self._append_local if self._place == "driver" else self._append_remote
        append(ctx, missing)

    def _missing(self, k: int, machine: MachineState, cut: np.ndarray | None) -> list[np.ndarray]:
        new = [] if cut is None else [cut]
        return new if k in self._held else [*machine.cuts, *new]

    def _append_local(self, ctx: RunContext, missing: Mapping[int, list[np.ndarray]]) -> None:
        if not self._fits:
            self._refuse_columns(ctx, missing)
        wanted = [self._atoms.features(ids) for cuts in missing.values() for ids in cuts]
        features = union(wanted)
        raw = scaled_columns(ctx, features, centred=self._atoms.centred) if len(features) else None
        for k, cuts in missing.items():
            design = self._held.setdefault(k, Design(ctx.data.n_rows, self._capacities[k]))
            for ids in cuts:
                design.append(self._atoms.build(ctx.data, raw, features, ids))  # pyright: ignore[reportCallIssue]

    def _refuse_columns(self, ctx: RunContext, missing: Mapping[int, list[np.ndarray]]) -> None:
        count = sum(len(ids) for cuts in missing.values() for ids in cuts) + sum(sum(held.widths) for held in self._held.values())
        refuse_columns([columns_held(ctx.data, count)], ctx.driver_memory)

    def _append_remote(self, ctx: RunContext, missing: Mapping[int, list[np.ndarray]]) -> None:
        for k, cuts in missing.items():
            design = self._held.setdefault(k, RemoteDesign(ctx, self._atoms.shipped(ctx)))
            for ids in cuts:
                design.append(ids)

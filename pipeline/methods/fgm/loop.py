"""Feature Generating Machine (Tan, Tsang, Wang, JMLR 15, 2014): the outer cutting-plane loop.

Problem (docs/methods.md): ``min_{w,b} 1/2 ||w||_B^2 + P(Xw, b)`` with ``||w||_B^2 = min_d sum w_j^2 / d_j`` over
``0 <= d <= 1, sum d <= B``; one round adds the set of B atoms that violates the dual most (15) and refits the mixed-norm problem (31).

=============  ==================================================
symbol         name
=============  ==================================================
u = alpha*y    residual, ``duals`` in a pass
C_t, S_t       ``MachineState.cuts``
omega, b       ``RoundRecord.omega``, ``.bias``
mu_h           ``RoundRecord.cut_weights``
F_t            ``RoundRecord.objective``
Delta_t        ``RoundRecord.outer_gap`` (or its scaled, tighter form)
=============  ==================================================
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem, GroupSolution
from ...inputs.scores import AccuracyTracker, accuracy_metrics
from ...loops.protocol import Step
from ...passes.columns import Columns
from ...records.context import RunContext
from .config import FGMConfig
from .designs import Designs
from .machine import Machine, Top, close_round, fresh, next_cut
from .model import MachineState, RoundRecord
from .remote_design import ColumnMaker
from .score_pass import Query

THRESHOLD_SLACK = 1.0 - 1e-9
"""Scores known from the cuts' columns are summed in another order than those of a pass: a bound must allow for it."""


class CutAtoms(Protocol):
    """What the loop needs of a collection of atoms.

    See :mod:`gramplane.pipeline.methods.fgm.atoms` and :mod:`gramplane.pipeline.methods.fgm.pairs`.
    """

    @property
    def kind(self) -> str: ...
    @property
    def width(self) -> int: ...
    @property
    def centred(self) -> bool: ...
    def select(self, ctx: RunContext, duals: np.ndarray, queries: Sequence[Query]) -> Sequence[Top]: ...
    def squares(self, top: Any) -> np.ndarray: ...
    def features(self, ids: np.ndarray) -> np.ndarray: ...
    def coordinates(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
    def shipped(self, ctx: RunContext) -> ColumnMaker: ...
    def build(self, data: Any, raw: Columns, features: np.ndarray, ids: np.ndarray) -> Columns: ...


@dataclass(frozen=True)
class FGMState:
    """State of the loop: one entry per machine."""

    record_name: ClassVar[str] = "FGMState"
    iteration: int
    machines: tuple[MachineState, ...]

    @property
    def stop(self) -> str | None:
        """Reason why every machine has stopped, or ``None``."""
        reasons = [machine.stop for machine in self.machines]
        return None if None in reasons else str(reasons[-1])


@dataclass
class _Clock:
    """Seconds by phase of one step."""

    seconds: dict[str, float] = field(default_factory=dict)
    mark: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[f"seconds_{phase}"] = self.seconds.get(f"seconds_{phase}", 0.0) + now - self.mark
        self.mark = now


class FGMLoop:
    """The outer loop over one or several machines that share its passes.

    Parameters
    ----------
    atoms
        Candidates: features, groups, expanded features or pairs.
    machines
        Binary problems.
    fits
        Classifiers whose accuracy is followed along the rounds.
    notes
        What the user should know before the first round.
    """

    state_type = FGMState

    def __init__(
        self, atoms: CutAtoms, machines: Sequence[Machine], fits: Sequence[AccuracyTracker] = (), notes: Sequence[str] = ()
    ) -> None:
        self.atoms = atoms
        self.machines = tuple(machines)
        self.fits = tuple(fits)
        self.notes = tuple(notes)
        self._designs = Designs(atoms, [_capacity(atoms, machine.config) for machine in self.machines])

    @property
    def columns(self) -> tuple[int, int]:
        """Columns that all machines together have at most, and after their first round."""
        most = [_capacity(self.atoms, machine.config) for machine in self.machines]
        return sum(most), sum(size // machine.config.max_rounds for size, machine in zip(most, self.machines, strict=True))

    def init(self, ctx: RunContext) -> FGMState:
        """Return the state before the first round: the candidates of the start dual."""
        for note in self.notes:
            ctx.emit({"event": "warning", "message": note})
        queries = [Query(machine.config.B) for machine in self.machines]
        duals = np.stack([machine.start() for machine in self.machines])
        tops = self.atoms.select(ctx, duals, queries)
        return FGMState(0, tuple(fresh(machine, top) for machine, top in zip(self.machines, tops, strict=True)))

    def step(self, state: FGMState, ctx: RunContext) -> Step[FGMState]:
        """Add one cut to every running machine, refit, and score the new dual vectors."""
        clock = _Clock()
        running = [k for k, machine in enumerate(state.machines) if machine.stop is None]
        cuts = {k: next_cut(self.machines[k], state.machines[k]) for k in running}
        self._designs.extend(ctx, state_by_index(state), cuts)
        clock.lap("columns")
        solved = {k: self._solve(k, state.machines[k], cuts[k]) for k in running}
        clock.lap("solve")
        machines = self._score(state, solved, ctx)
        clock.lap("score")
        new = FGMState(state.iteration + 1, tuple(machines))
        accuracy = self._accuracy(new, ctx)
        clock.lap("accuracy")
        self._forget(new)
        return Step(new, {**_metrics(new, running), **accuracy, **clock.seconds})

    def _accuracy(self, state: FGMState, ctx: RunContext) -> dict[str, Any]:
        if not self.fits:
            return {}
        found = accuracy_metrics(self.fits, self._decisions(state, ctx))
        counts = [max(len(state.machines[k].selected()) for k in fit.machines) for fit in self.fits]
        return {**found, "selected": counts} if len(counts) > 1 else found

    def _forget(self, state: FGMState) -> None:
        if not self.fits:
            self._designs.keep({k for k, machine in enumerate(state.machines) if machine.stop is None})

    def _decisions(self, state: FGMState, ctx: RunContext) -> dict[int, np.ndarray]:
        self._designs.extend(ctx, state_by_index(state), {k: None for k in range(len(self.machines)) if k not in self._designs})
        biases = [
            machine.bias if machine.rounds else spec.at_zero()[1] for spec, machine in zip(self.machines, state.machines, strict=True)
        ]
        return {
            k: self._designs[k].decide(machine.omega, bias) for k, (machine, bias) in enumerate(zip(state.machines, biases, strict=True))
        }

    def _solve(self, k: int, machine: MachineState, cut: np.ndarray) -> tuple[MachineState, GroupSolution]:
        spec, config = self.machines[k], self.machines[k].config
        coordinates, factors = self.atoms.coordinates(cut)
        state = replace(
            machine,
            cuts=(*machine.cuts, cut),
            coordinates=(*machine.coordinates, coordinates),
            factors=(*machine.factors, factors),
        )
        starts = np.array([0, *itertools.accumulate(state.widths)], np.int64)
        problem = GroupProblem(self._designs[k].rows(spec.y, spec.cost, config.loss), starts, config.loss, config.fit_intercept)
        warm = (np.concatenate((machine.omega, np.zeros(len(factors)))), machine.bias)
        solver = SOLVERS["newton" if config.solver == "auto" else config.solver]
        # Overflow ends in a clear error of the solver, which looks at every objective.
        with np.errstate(over="ignore", invalid="ignore"):
            solution = solver(problem, warm=warm, tol=config.inner_tol, max_iter=config.max_inner)
        return replace(state, rounds=(*machine.rounds, _record(state, solution))), solution

    def _score(self, state: FGMState, solved: Mapping[int, tuple[MachineState, GroupSolution]], ctx: RunContext) -> list[MachineState]:
        keys = list(solved)
        prunes = ctx.data.meta.kind == "sparse"
        queries = [self._query(k, *solved[k], prunes) for k in keys]
        duals = np.stack([solved[k][1].residual for k in keys])
        machines = list(state.machines)
        for k, top in zip(keys, self.atoms.select(ctx, duals, queries), strict=True):
            machine, solution = solved[k]
            machines[k] = close_round(self.machines[k], machine, top, self.atoms.squares(top), solution.residual)
        return machines

    def _query(self, k: int, machine: MachineState, solution: GroupSolution, prunes: bool) -> Query:
        config = self.machines[k].config
        if not config.allow_repeat:
            # The best B new atoms are among the best B + (number used) of all.
            return Query(config.B + len(machine.selected()))
        if self.atoms.kind != "linear" or not prunes:
            return Query(config.B)
        known = self._known_scores(machine, solution)
        bound = np.sort(known)[-config.B] if known.size >= config.B else 0.0
        return Query(config.B, threshold=float(bound) * THRESHOLD_SLACK)

    def _known_scores(self, machine: MachineState, solution: GroupSolution) -> np.ndarray:
        """Return ``|c_j|`` of the distinct selected features, known from the sub-problem."""
        _, first = np.unique(np.concatenate(machine.cuts), return_index=True)
        return np.abs(solution.correlations[first])


def state_by_index(state: FGMState) -> dict[int, MachineState]:
    """Return the machines by index."""
    return dict(enumerate(state.machines))


def _capacity(atoms: CutAtoms, config: FGMConfig) -> int:
    """Return how many columns a machine's cuts have at most (the widest atom of each kind is known)."""
    return config.B * config.max_rounds * atoms.width


def _record(state: MachineState, solution: GroupSolution) -> RoundRecord:
    return RoundRecord(
        omega=solution.omega,
        bias=float(solution.bias),
        objective=float(solution.objective),
        gap=float(solution.gap),
        outer_gap=float("inf"),
        cut_weights=solution.weights,
        n_selected=len(state.selected()),
        inner_steps=int(solution.iterations),
        inner_stop=solution.stop,
    )


def _metrics(state: FGMState, running: Sequence[int]) -> dict[str, Any]:
    return {
        "objective": float(sum(machine.objective for machine in state.machines)),
        "gap": float(sum(machine.gap for machine in state.machines)),
        "outer_gap": float(sum(machine.outer_gap for machine in state.machines)),
        "n_selected": int(max((machine.rounds[-1].n_selected for machine in state.machines if machine.rounds), default=0)),
        "inner_steps": int(sum(state.machines[k].rounds[-1].inner_steps for k in running)),
        "machines": len(running),
    }


__all__ = ["FGMLoop", "FGMState"]

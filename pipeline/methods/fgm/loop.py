"""Feature Generating Machine (Tan, Tsang, Wang, JMLR 15, 2014): the outer cutting-plane loop.

Problem (docs/theory/fgm.md): ``min_{w,g} 1/2 ||w||_B^2 + P(Xw + Ag)``, A columns without a penalty, with ``||w||_B^2 = min_d sum w_j^2 /
d_j`` over ``0 <= d <= 1, sum d <= B``; one round adds the set of B atoms that violates the dual most (15) and refits the mixed-norm problem
(31).

=============  ==================================================
symbol         name
=============  ==================================================
u              residual, ``duals`` in a pass
C_t, S_t       ``MachineState.cuts``
omega, g       ``RoundRecord.omega``, ``.bias``, ``.covariate_coef``
mu_h           ``RoundRecord.cut_weights``
F_t            ``RoundRecord.objective``
Delta_t        ``RoundRecord.outer_gap`` (or its scaled, tighter form)
=============  ==================================================
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem, GroupSolution
from ...inputs.labels import Inputs
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics, fit_tracker
from ...loops.protocol import Step
from ...records.context import RunContext
from .designs import Atoms, Designs
from .model import MachineState, selected_atoms, union_of_atoms
from .problem import MachineProblem, candidates, chances, close_round, initial_state, next_cut, stand_out
from .score_pass import Query

THRESHOLD_SLACK = 1.0 - 1e-9  # scores known from the cuts' columns are summed in another order than a pass does: a bound must allow for it


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
    """The outer loop over one or several machines, each with its problem, that share its passes.

    ``warnings`` are what the user should know before the first round.
    """

    state_type = FGMState

    def __init__(self, atoms: Atoms, problems: Sequence[MachineProblem], warnings: Sequence[str] = ()) -> None:
        self.atoms, self.problems, self.warnings = atoms, tuple(problems), tuple(warnings)
        self.trackers: tuple[AccuracyTracker | R2Tracker, ...] = ()
        self.goes_all_rounds = False  # on a path, whose every number of rounds is looked at, also where parameters let chance end it
        self.keeps_columns = False  # also of machines that have stopped, for decisions along the path
        # what is measured of the decision values of all machines after every round, beside the accuracy of trackers
        self.further: Callable[[Mapping[int, np.ndarray]], dict[str, Any]] | None = None
        self._designs = Designs(atoms, self.capacities)
        self._priced: dict[int, MachineProblem] = {}

    def follow(self, inputs: Inputs, masks: Sequence[np.ndarray | None]) -> None:
        """Follow the accuracy, or R2, of every fit: its machines are consecutive, its rows held out are those of a mask."""
        self.trackers = tuple(fit_tracker(inputs, mask, k * inputs.n_machines) for k, mask in enumerate(masks))

    @property
    def capacities(self) -> list[int]:
        """Columns that the cuts of each machine have at most (the widest atom of each kind is known)."""
        return [problem.config.B * problem.config.most_rounds * self.atoms.width for problem in self.problems]

    @property
    def columns(self) -> tuple[int, int]:
        """Columns that all machines together have at most, and after their first round."""
        return sum(self.capacities), sum(problem.config.B * self.atoms.width for problem in self.problems)

    @property
    def asked_at_most(self) -> list[int]:
        """How many atoms each machine asks of a search at most: with those that may not be chosen again."""
        return [config.B * (1 if config.allow_repeat else 1 + config.most_rounds) for config in (one.config for one in self.problems)]

    def init(self, ctx: RunContext) -> FGMState:
        """Return the state before the first round: the candidates of the start dual."""
        for message in self.warnings:
            ctx.emit({"event": "warning", "message": message})
        queries = [Query(problem.config.B) for problem in self.problems]
        duals = np.stack([problem.null.residual for problem in self.problems])
        tops = self.atoms.select(ctx, duals, queries)
        starts, n_atoms = zip(self.problems, tops, strict=True), self.atoms.count(ctx.data.n_cols)
        return FGMState(0, tuple(initial_state(problem, top, self.atoms.squares(top), n_atoms) for problem, top in starts))

    def priced(self, k: int, machine: MachineState) -> MachineProblem:
        """Return the problem of a machine with the weight of its losses, which the first search may have found."""
        if k not in self._priced:
            self._priced[k] = self.problems[k].priced(machine.C)
        return self._priced[k]

    def step(self, state: FGMState, ctx: RunContext) -> Step[FGMState]:
        """Add one cut to every running machine, refit, and score the new dual vectors."""
        clock = _Clock()
        running = [k for k, machine in enumerate(state.machines) if machine.stop is None]
        cuts = {k: next_cut(self.priced(k, state.machines[k]), state.machines[k]) for k in running}
        self._designs.extend(ctx, state.machines, cuts)
        clock.lap("columns")
        solved = {k: self._solve(k, state.machines[k], cuts[k]) for k in running}
        clock.lap("solve")
        new = FGMState(state.iteration + 1, tuple(self._score(state, solved, ctx)))
        clock.lap("score")
        accuracy = self._accuracy(new, ctx)
        clock.lap("accuracy")
        running = [k for k, machine in enumerate(new.machines) if machine.stop is None]
        # After the last round what is left decides on the training rows.
        if running and not (self.trackers or self.keeps_columns):
            self._designs.restrict({*running})
        return Step(new, {**_metrics(new, [*solved]), **accuracy, **clock.seconds})

    def _accuracy(self, state: FGMState, ctx: RunContext) -> dict[str, Any]:
        if not self.trackers:
            return {}
        values = dict(enumerate(self.decision_values(state, ctx)))
        metrics = accuracy_metrics(self.trackers, values) | ({} if self.further is None else self.further(values))
        counts = [max(len(selected_atoms([state.machines[k]])) for k in tracker.machines) for tracker in self.trackers]
        return {**metrics, "selected": counts} if len(counts) > 1 else metrics

    def decision_values(self, state: FGMState, ctx: RunContext) -> np.ndarray:
        """Return what all machines decide on all rows, ``(n_machines, n)``; after the rounds that a state has, which may have more cuts."""
        self._designs.extend(ctx, state.machines, {k: None for k in range(len(self.problems)) if k not in self._designs})
        values = np.empty((len(self.problems), len(self.problems[0].y)))
        for k, (problem, machine) in enumerate(zip(self.problems, state.machines, strict=True)):
            bias, coef = (machine.bias, machine.covariate_coef) if machine.rounds else (problem.null.bias, problem.null.covariate_coef)
            omega = np.zeros(sum(self._designs[k].widths))
            omega[: len(machine.omega)] = machine.omega
            values[k] = self._designs[k].decision_values(omega, bias) + problem.covariate_values(coef)
        return values

    def _solve(self, k: int, machine: MachineState, cut: np.ndarray) -> tuple[MachineState, GroupSolution]:
        problem = self.priced(k, machine)
        config = problem.config
        coordinates, factors = self.atoms.coordinates(cut)
        cuts, columns, all_factors = (*machine.cuts, cut), (*machine.coordinates, coordinates), (*machine.factors, factors)
        starts = np.array([0, *itertools.accumulate(map(len, all_factors))], np.int64)
        rows = self._designs[k].rows(problem.y, problem.cost, problem.loss, problem.basis)
        warm = problem.warm_start(machine, len(factors))
        name = config.solver if config.solver != "auto" else "apg" if config.inner_stop == "decrease" else "newton"
        options = {"until": config.inner_stop} if name == "apg" else {}
        # Overflow ends in a clear error of the solver, which looks at every objective.
        with np.errstate(over="ignore", invalid="ignore"):
            solution = SOLVERS[name](GroupProblem(rows, starts), warm=warm, tol=config.inner_tol, max_iter=config.max_inner, **options)
        weights = (solution.omega[low:high] for low, high in itertools.pairwise(starts.tolist()))
        parts = zip(cuts, columns, weights, strict=True)
        selected = union_of_atoms([self.atoms.with_weight(ids, own[omega != 0]) for ids, own, omega in parts])
        record = problem.record(solution, selected)
        new = {"cuts": cuts, "coordinates": columns, "factors": all_factors, "rounds": (*machine.rounds, record)}
        return replace(machine, **new), solution

    def _score(self, state: FGMState, solved: Mapping[int, tuple[MachineState, GroupSolution]], ctx: RunContext) -> list[MachineState]:
        machines, prunes = list(state.machines), ctx.data.meta.kind == "sparse"
        queries = [self._query(k, *solution, prunes) for k, solution in solved.items()]
        duals, searched = np.stack([solution.residual for _, solution in solved.values()]), dict[int, tuple[Any, np.ndarray]]()
        for k, top in zip(solved, self.atoms.select(ctx, duals, queries), strict=True):
            (machine, solution), squares = solved[k], self.atoms.squares(top)
            machines[k] = close_round(self.priced(k, machine), machine, top, squares, solution.residual)
            searched[k] = top, squares
        may_stop = not self.goes_all_rounds and ctx.data.meta.kind == "dense"
        going = [k for k in solved if may_stop and machines[k].stop is None and self.problems[k].config.stops_at_chance]
        asks = {k: candidates(machines[k]) for k in going}
        new = {k: ids for k, ids in asks.items() if len(ids)}
        for k, design in (self._designs.beside(ctx, machines, new) if new else {}).items():
            problem, (top, squares) = self.priced(k, machines[k]), searched[k]
            rows = design.rows(problem.y, problem.cost, problem.loss, problem.basis)
            widths = design.widths[-len(new[k]) :]
            own = squares[np.isin(np.asarray(top.ids), new[k])]
            by_chance = chances(problem, machines[k], rows, widths, own, solved[k][1].residual)
            if not stand_out(by_chance, self.atoms.count(ctx.data.n_cols)):
                machines[k] = replace(machines[k], stop="chance")
        return machines

    def _query(self, k: int, machine: MachineState, solution: GroupSolution, prunes: bool) -> Query:
        config = self.problems[k].config
        if not config.allow_repeat:
            # The best B new atoms are among the best B + (number used) of all.
            return Query(config.B + len(machine.drawn))
        if self.atoms.kind != "linear" or not prunes:
            return Query(config.B)
        # The scores |c_j| of the selected features are known from the sub-problem.
        _, first = np.unique(np.concatenate(machine.cuts), return_index=True)
        known = np.abs(solution.correlations[first])
        bound = np.sort(known)[-config.B] if known.size >= config.B else 0.0
        return Query(config.B, threshold=float(bound) * THRESHOLD_SLACK)


def certificates(machines: Sequence[MachineState]) -> dict[str, float]:
    """Return objective, gap of the sub-problem and gap to the exact optimum, summed over the machines."""
    return {name: float(sum(getattr(machine, name) for machine in machines)) for name in ("objective", "gap", "outer_gap")}


def _metrics(state: FGMState, running: Sequence[int]) -> dict[str, Any]:
    n_selected = int(max((machine.rounds[-1].n_selected for machine in state.machines if machine.rounds), default=0))
    steps = {"inner_steps": int(sum(state.machines[k].rounds[-1].inner_steps for k in running)), "machines": len(running)}
    return {**certificates(state.machines), "n_selected": n_selected, **steps}

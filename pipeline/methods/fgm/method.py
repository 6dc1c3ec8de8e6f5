"""The Feature Generating Machine (Tan, Tsang, Wang, JMLR 15, 2014): the outer cutting planes.

Problem (docs/theory/fgm.md): ``min_{w,g} 1/2 ||w||_B^2 + P(Xw + Ag)`` with unpenalised columns A, where ``||w||_B^2 = min_d sum w_j^2 /
d_j`` over ``0 <= d <= 1, sum d <= B``. One round adds the set of B atoms with the largest violation of the dual (15) and refits the
mixed-norm problem (31).

=============  ==================================================
symbol         name
=============  ==================================================
u              residual, ``duals`` in a pass
c = X'u        scores of the columns (kernels/features/scores.py)
C_t, S_t       ``MachineState.cuts``
omega, g       ``RoundRecord.omega``, ``.bias``, ``.covariate_coef``
mu_h           ``RoundRecord.cut_weights``
F_t            ``RoundRecord.objective``
Delta_t        ``RoundRecord.outer_gap`` (or its scaled, tighter form)
=============  ==================================================
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, get_args

import numpy as np

from ....kernels.mixed_norm import SOLVERS, GroupProblem, GroupSolution
from ...core.memory import driver_plan
from ...core.method import Method, PathValues
from ...core.resources import Resources, RunContext
from ...core.result import Result, Step
from ...inputs.covariates import covariates_to_fit
from ...inputs.labels import Inputs, resolve_loss, store_inputs
from ...inputs.scores import AccuracyTracker, R2Tracker, accuracy_metrics, fit_tracker, held_out_rows, model_values, scores_of
from ...models.model import Tables
from ...passes.blocks import Blocks, column_tasks
from ...passes.columns import columns_bytes
from .atoms import build_atoms, map_warnings
from .build import build_model, covariate_tables, group_tables, last_weights, path_rows, refit_weights, selected_rows
from .config import ClassLoss, FGMConfig, NumberLoss
from .designs import Atoms, Designs, design_bytes, driver_items, refuse_columns, rows_step, solve_at
from .model import FGMModel, MachineState, selected_atoms, union_of_atoms
from .problem import MachineProblem, candidates, chances, close_round, initial_state, machine_problems, next_cut, stand_out
from .score_pass import Query

THRESHOLD_SLACK = 1.0 - 1e-9  # scores known from the cuts' columns are summed in another order than a pass does: a bound must allow for it


@dataclass(frozen=True)
class FGMState:
    """State of the fit between two rounds, with one entry per problem."""

    record_name: ClassVar[str] = "FGMState"
    iteration: int
    machines: tuple[MachineState, ...]

    @property
    def stop(self) -> str | None:
        """The reason to stop once all one-vs-rest models have stopped, otherwise None."""
        reasons = [machine.stop for machine in self.machines]
        return None if None in reasons else str(reasons[-1])


@dataclass
class _Clock:
    """Seconds of each phase of one step."""

    seconds: dict[str, float] = field(default_factory=dict)
    mark: float = field(default_factory=time.perf_counter)

    def lap(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[f"seconds_{phase}"] = self.seconds.get(f"seconds_{phase}", 0.0) + now - self.mark
        self.mark = now


@dataclass(eq=False)
class FGMProblem:
    """Binary or regression problems that share the passes of a fit, and the columns of these problems. There is one problem per class,
    fold, resample and grid point.
    """

    config: FGMConfig
    inputs: Inputs
    atoms: Atoms
    problems: tuple[MachineProblem, ...]
    driver_memory: int  # by which columns are placed
    warnings: tuple[str, ...] = ()  # what the user should know before the first round
    trackers: tuple[AccuracyTracker | R2Tracker, ...] = ()  # of the fit whose accuracy, or R2, is followed
    # Whether every number of rounds is looked at: all are gone, also where parameters let chance end them, and columns are kept of machines
    # that have stopped.
    is_path: bool = False

    def __post_init__(self) -> None:
        self.designs = Designs(self.data, self.atoms, self.capacities)
        self._priced: dict[int, MachineProblem] = {}

    @property
    def data(self) -> Blocks:
        return self.inputs.data

    def follow(self) -> None:
        """Record the accuracy, or R2, in every round."""
        self.trackers = (fit_tracker(self.inputs, self.inputs.held_out),)

    @property
    def capacities(self) -> list[int]:
        """Largest number of columns in the cuts of each problem, from the known width of the widest atom."""
        return [problem.config.B * problem.config.most_rounds * self.atoms.width for problem in self.problems]

    @property
    def columns(self) -> tuple[int, int]:
        """Largest number of columns of all problems together, in all rounds and in the first round."""
        return sum(self.capacities), sum(problem.config.B * self.atoms.width for problem in self.problems)

    @property
    def asked_at_most(self) -> list[int]:
        """Largest number of atoms that each problem requests from a search, including atoms that may not be chosen again."""
        return [config.B * (1 if config.allow_repeat else 1 + config.most_rounds) for config in (one.config for one in self.problems)]

    @property
    def n_atoms(self) -> int:
        """Number of candidate atoms."""
        return self.atoms.count(int(self.data.n_cols))

    @property
    def q(self) -> int:
        """Number of covariates."""
        return 0 if self.inputs.covariates is None else self.inputs.covariates.q

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Tasks and bytes per round, memory of a task and of the driver in bytes."""
        data, memory = self.data, self.driver_memory
        tasks, (columns, first), machines = column_tasks(data), self.columns, len(self.problems)
        plan = {"atoms": self.atoms.kind, "solve_at": solve_at(data, columns, memory)}
        plan |= {"design_bytes_at_most": design_bytes(data, columns), "n_atoms": self.n_atoms, "machines": machines}
        plan |= {"rounds_at_most": self.config.most_rounds, "passes_at_most": self.config.most_rounds + 1, "tasks_per_pass": len(tasks)}
        plan |= {"bytes_read_per_pass": int(sum(ref.nbytes for task in tasks for ref in task))}
        plan |= {"task_bytes": max(self._steps()), **({"covariates": self.q} if self.q else {})}
        return plan | driver_plan(driver_items(data, columns, first, machines, memory, self.q))

    def _steps(self) -> Iterator[int]:
        """Yield the memory in bytes of the largest steps: a search, an operation on a block of rows, and a fetch of all columns after a
        resume.
        """
        data, memory = self.data, self.driver_memory
        yield self.atoms.search_bytes(data, self.asked_at_most, memory)
        if solve_at(data, self.columns[0], memory) == "workers":
            yield rows_step(data, max(self.capacities), self.atoms, max(problem.basis.q for problem in self.problems))
        if self.config.debias or solve_at(data, self.columns[0], memory) == "driver":
            yield columns_bytes(data, self.columns[0] // self.atoms.width * self.atoms.n_read, memory)

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return ("feature scores", *(("sub-problems, by rows",) if self.plan["solve_at"] != "driver" else ()))

    def priced(self, k: int, machine: MachineState) -> MachineProblem:
        """Return problem k with its value of C. With ``C="auto"``, the first search determined this value."""
        if k not in self._priced:
            self._priced[k] = self.problems[k].priced(machine.C)
        return self._priced[k]

    def decision_values(self, state: FGMState, resources: Resources) -> np.ndarray:
        """Return the decision values of all problems on all rows, ``(n_machines, n)``, after the rounds of the state. The problem's columns
        may include later cuts.
        """
        self.designs.extend(resources, state.machines, {k: None for k in range(len(self.problems)) if k not in self.designs})
        values = np.empty((len(self.problems), len(self.problems[0].y)))
        for k, (problem, machine) in enumerate(zip(self.problems, state.machines, strict=True)):
            bias, coef = (machine.bias, machine.covariate_coef) if machine.rounds else (problem.null.bias, problem.null.covariate_coef)
            omega = np.zeros(sum(self.designs[k].widths))
            omega[: len(machine.omega)] = machine.omega
            values[k] = self.designs[k].decision_values(omega, bias) + problem.covariate_values(coef)
        return values


class FGM(Method[FGMConfig, FGMProblem, FGMState, FGMModel]):
    """Linear models on a few features, selected by cutting planes."""

    name = "fgm"
    config = FGMConfig
    state = FGMState
    models = (FGMModel,)
    programs = "methods.fgm.score_pass"

    def read_inputs(self, config: FGMConfig, resources: RunContext, extra: Mapping[str, Any]) -> tuple[FGMConfig, Inputs]:
        """Return the parameters, and the target, weights, groups and covariates of a store. ``extra`` may contain ``groups``,
        ``covariates`` and ``test_share``. Raises DataError for a store without a target or with a single class, for invalid covariates, and
        for covariates both in ``extra`` and in the store.
        """
        data, inputs = resources.data, store_inputs(resources, self.name)
        groups = data.groups() if extra.get("groups") is None else extra["groups"]
        held_out = held_out_rows(extra, inputs.target, resources.seed, inputs.classes)
        covariates = None
        if extra.get("covariates") is not None or data.has_table("covariates"):
            covariates = covariates_to_fit(extra.get("covariates"), data)
        return config, replace(inputs, groups=groups, covariates=covariates).without(held_out)

    def decided(self, config: FGMConfig, inputs: Inputs, resources: Resources) -> FGMConfig:
        """Return the parameters with a loss that suits the target. If ``B`` is not set, its default is reduced to at most the number of
        atoms.
        """
        config = resolve_config(config, inputs)
        if "B" in config.model_fields_set:
            return config
        available = build_atoms(config, inputs).count(int(inputs.data.n_cols))
        if available >= config.B:
            return config
        resources.warn(f"B: the default of {config.B} {_few_atoms(available)}, so B={available} is used")
        return config.model_copy(update={"B": available})

    def problem(self, config: FGMConfig, inputs: Inputs, resources: Resources) -> FGMProblem:
        """Return the problem of a fit: one problem for two classes or a real target, else one per class.

        Raises ValueError if loss, groups, map or covariates are unsuitable, DataError if a class has no weight, and MemoryBoundExceeded if
        scores and columns exceed the memory.
        """
        problem = shared_problem([self.decided(config, inputs, resources)], inputs, [inputs.held_out], resources)
        if problem.n_atoms < problem.config.B:
            resources.doubt(f"B={problem.config.B} {_few_atoms(problem.n_atoms)}; at most B={problem.n_atoms} can be used")
        return problem

    def init(self, problem: FGMProblem, resources: Resources) -> FGMState:
        """Return the initial state, with the candidates of the initial dual vectors."""
        for message in problem.warnings:
            resources.emit({"event": "warning", "message": message})
        queries = [Query(one.config.B) for one in problem.problems]
        duals = np.stack([one.null.residual for one in problem.problems])
        tops = problem.atoms.select(problem.data, resources, duals, queries)
        starts = zip(problem.problems, tops, strict=True)
        return FGMState(0, tuple(initial_state(one, top, problem.atoms.squares(top), problem.n_atoms) for one, top in starts))

    def step(self, problem: FGMProblem, state: FGMState, resources: Resources) -> Step[FGMState]:
        """Add one cut to every running problem, refit it, and score the new dual vectors."""
        clock = _Clock()
        running = [k for k, machine in enumerate(state.machines) if machine.stop is None]
        cuts = {k: next_cut(problem.priced(k, state.machines[k]), state.machines[k]) for k in running}
        problem.designs.extend(resources, state.machines, cuts)
        clock.lap("columns")
        solved = {k: _solve(problem, k, state.machines[k], cuts[k]) for k in running}
        clock.lap("solve")
        new = FGMState(state.iteration + 1, tuple(_score(problem, state, solved, resources)))
        clock.lap("score")
        accuracy = _accuracy(problem, new, resources)
        clock.lap("accuracy")
        running = [k for k, machine in enumerate(new.machines) if machine.stop is None]
        # After the last round what is left decides on the training rows.
        if running and not (problem.trackers or problem.is_path):
            problem.designs.restrict({*running})
        return Step(new, {**_metrics(new, [*solved]), **accuracy, **clock.seconds})

    def result(self, problem: FGMProblem, state: FGMState, resources: Resources) -> Result[FGMModel]:
        """Return the model of the last round, or with ``debias`` the model of the refit, with its certificates."""
        config, atoms, machines = problem.config, problem.atoms, state.machines
        pairs = [(problem.priced(k, machine), machine) for k, machine in enumerate(machines)]
        if config.debias:
            weights = [refit_weights(problem.data, atoms, *pair, resources) for pair in pairs]
        else:
            weights = [last_weights(*pair) for pair in pairs]
        model, prices = build_model(config, problem.inputs, atoms, machines, weights), [machine.C for machine in machines]
        known = certificates(machines)
        figures = {
            "outer_gap": known["outer_gap"],
            "rounds": max((len(machine.rounds) for machine in machines), default=0),
            "n_selected": len(selected_atoms(machines)),
            "n_features": model.n_features,
            **({"covariates": problem.q} if problem.q else {}),
            "C": prices[0] if len(prices) == 1 else prices,
            "classes": json.loads(model.classes_json),
        }
        return Result(
            model,
            state.stop,
            objective=known["objective"],
            gap=known["gap"],
            certified_over="what was chosen so far; outer_gap is over all features",
            figures=figures,
            warnings=problem.warnings,
            unfinished=_unfinished(config) if any(machine.stop == "max_rounds" for machine in machines) else "",
            scores=partial(self._scores, problem, state, model, resources),
        )

    def _scores(self, problem: FGMProblem, state: FGMState, model: FGMModel, resources: Resources) -> dict[str, Any]:
        """Return the training accuracy, or R2. Without a refit it is computed from the columns of the cuts, which are already in memory."""
        is_refit = problem.config.debias
        values = model_values(problem.inputs, model, resources) if is_refit else problem.decision_values(state, resources)
        return scores_of(problem.inputs, values)

    def tables(self, model: FGMModel, names: Sequence[str] | None = None, fit: tuple[FGMProblem, FGMState] | None = None) -> Tables:
        """Return the selected coordinates with names and weights in descending order, their weights along the path, and the coefficients of
        the covariates. If the fit is given, also return the selected groups.

        ``names`` are the names of all features; they are used if the model stores none.
        """
        known = model if model.names is not None or names is None else replace(model, names=tuple(names[j] for j in model.features))
        groups = {} if fit is None else group_tables(model, fit[0].atoms)
        return {"selected": selected_rows(known), "path_weights": path_rows(known), **covariate_tables(known), **groups}

    # -- fits that leave rows out ------------------------------------------------------------------------------------------------------

    def shared_fits(
        self, configs: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray], resources: Resources
    ) -> FGMProblem | None:
        """Return one problem for all fits, each of which leaves out the rows of one mask. The fits share candidates and passes."""
        return shared_problem([resolve_config(config, inputs) for config in configs], inputs, masks, resources)

    def follow_path(self, problem: FGMProblem, before: FGMProblem | None) -> None:
        """Run all rounds, and keep the columns of problems that stop."""
        problem.is_path = True

    def selected(self, problem: FGMProblem, state: FGMState, resources: Resources) -> list[int]:
        """Return the number of selected atoms of every fit. With several classes, it is the largest number over the classes."""
        counts = [len(selected_atoms([machine])) for machine in state.machines]
        return [max(counts[k : k + problem.inputs.n_machines]) for k in range(0, len(counts), problem.inputs.n_machines)]

    def path_values(self, problem: FGMProblem, state: FGMState, resources: Resources) -> Iterator[PathValues]:
        """Yield the decision values after 1, 2, ... rounds; with ``debias``, only those of the final refit."""
        if problem.config.debias:
            yield from super().path_values(problem, state, resources)
            return
        done, values, part = max(len(machine.rounds) for machine in state.machines), np.zeros((0, 0)), state
        for rounds in range(1, problem.config.most_rounds + 1):
            if rounds <= done:
                part = replace(state, machines=tuple(replace(machine, rounds=machine.rounds[:rounds]) for machine in state.machines))
                values = problem.decision_values(part, resources)
            yield PathValues({"max_rounds": rounds}, values, partial(self.selected, problem, part, resources))


def resolve_config(config: FGMConfig, inputs: Inputs) -> FGMConfig:
    """Return the parameters with all choices resolved that depend on the target.

    Raises ValueError for a loss or class weights that do not suit the target.
    """
    is_real = inputs.classes is None
    if is_real and config.class_weight is not None:
        raise ValueError(f"class_weight={config.class_weight!r}: the target holds real numbers, there are no classes")
    loss = resolve_loss(config.loss, inputs.classes, get_args(NumberLoss), get_args(ClassLoss))
    return config.model_copy(update={"loss": loss})


def _few_atoms(available: int) -> str:
    return f"exceeds the {available} available features (groups, products)"


def shared_problem(configs: Sequence[FGMConfig], inputs: Inputs, masks: Sequence[np.ndarray | None], resources: Resources) -> FGMProblem:
    """Return one problem for the fits of every set of parameters, with the loss resolved, on every mask of held-out rows."""
    atoms = build_atoms(configs[0], inputs)
    available = atoms.count(int(inputs.data.n_cols))
    clipped = [config.model_copy(update={"B": min(config.B, available)}) for config in configs]
    problems = [one for config in clipped for mask in masks for one in machine_problems(config, inputs.without(mask))]
    return checked_problem(configs[0], inputs, atoms, problems, resources, map_warnings(configs[0], inputs.data, atoms.centred))


def checked_problem(
    config: FGMConfig,
    inputs: Inputs,
    atoms: Atoms,
    problems: Sequence[MachineProblem],
    resources: Resources,
    warnings: Sequence[str] = (),
) -> FGMProblem:
    """Return a problem whose scores, vectors and columns fit in the driver's memory. Raises MemoryBoundExceeded if they do not."""
    problem = FGMProblem(config, inputs, atoms, tuple(problems), resources.driver_memory, tuple(warnings))
    held = driver_items(problem.data, *problem.columns, len(problem.problems), problem.driver_memory, problem.q)
    refuse_columns(held, resources.fit_limit)
    return problem


def _accuracy(problem: FGMProblem, state: FGMState, resources: Resources) -> dict[str, Any]:
    if not problem.trackers:
        return {}
    return accuracy_metrics(problem.trackers, dict(enumerate(problem.decision_values(state, resources))))


def _solve(problem: FGMProblem, k: int, machine: MachineState, cut: np.ndarray) -> tuple[MachineState, GroupSolution]:
    one, atoms = problem.priced(k, machine), problem.atoms
    config = one.config
    coordinates, factors = atoms.coordinates(cut)
    cuts, columns, all_factors = (*machine.cuts, cut), (*machine.coordinates, coordinates), (*machine.factors, factors)
    starts = np.array([0, *itertools.accumulate(map(len, all_factors))], np.int64)
    rows = problem.designs[k].rows(one.y, one.cost, one.loss, one.basis)
    warm = one.warm_start(machine, len(factors))
    name = config.solver if config.solver != "auto" else "apg" if config.inner_stop == "decrease" else "newton"
    options = {"until": config.inner_stop} if name == "apg" else {}
    # Overflow ends in a clear error of the solver, which looks at every objective.
    with np.errstate(over="ignore", invalid="ignore"):
        solution = SOLVERS[name](GroupProblem(rows, starts), warm=warm, tol=config.inner_tol, max_iter=config.max_inner, **options)
    weights = (solution.omega[low:high] for low, high in itertools.pairwise(starts.tolist()))
    parts = zip(cuts, columns, weights, strict=True)
    selected = union_of_atoms([atoms.with_weight(ids, own[omega != 0]) for ids, own, omega in parts])
    record = one.record(solution, selected)
    new = {"cuts": cuts, "coordinates": columns, "factors": all_factors, "rounds": (*machine.rounds, record)}
    return replace(machine, **new), solution


def _score(
    problem: FGMProblem, state: FGMState, solved: Mapping[int, tuple[MachineState, GroupSolution]], resources: Resources
) -> list[MachineState]:
    machines, prunes = list(state.machines), problem.data.meta.kind == "sparse"
    queries = [_query(problem, k, *solution, prunes) for k, solution in solved.items()]
    duals, searched = np.stack([solution.residual for _, solution in solved.values()]), dict[int, tuple[Any, np.ndarray]]()
    for k, top in zip(solved, problem.atoms.select(problem.data, resources, duals, queries), strict=True):
        (machine, solution), squares = solved[k], problem.atoms.squares(top)
        machines[k] = close_round(problem.priced(k, machine), machine, top, squares, solution.residual)
        searched[k] = top, squares
    may_stop = not problem.is_path and problem.data.meta.kind == "dense"
    going = [k for k in solved if may_stop and machines[k].stop is None and problem.problems[k].config.stops_at_chance]
    asks = {k: candidates(machines[k]) for k in going}
    new = {k: ids for k, ids in asks.items() if len(ids)}
    for k, design in (problem.designs.beside(resources, machines, new) if new else {}).items():
        one, (top, squares) = problem.priced(k, machines[k]), searched[k]
        rows = design.rows(one.y, one.cost, one.loss, one.basis)
        widths = design.widths[-len(new[k]) :]
        own = squares[np.isin(np.asarray(top.ids), new[k])]
        by_chance = chances(one, machines[k], rows, widths, own, solved[k][1].residual)
        if not stand_out(by_chance, problem.n_atoms):
            machines[k] = replace(machines[k], stop="chance")
    return machines


def _query(problem: FGMProblem, k: int, machine: MachineState, solution: GroupSolution, prunes: bool) -> Query:
    config = problem.problems[k].config
    if not config.allow_repeat:
        # The best B new atoms are among the best B + (number used) of all.
        return Query(config.B + len(machine.drawn))
    if problem.atoms.kind != "linear" or not prunes:
        return Query(config.B)
    # The scores |c_j| of the selected features are known from the sub-problem.
    _, first = np.unique(np.concatenate(machine.cuts), return_index=True)
    known = np.abs(solution.correlations[first])
    bound = np.sort(known)[-config.B] if known.size >= config.B else 0.0
    return Query(config.B, threshold=float(bound) * THRESHOLD_SLACK)


def certificates(machines: Sequence[MachineState]) -> dict[str, float]:
    """Return the objective, the gap of the sub-problem and the gap to the exact optimum, each summed over the problems."""
    return {name: float(sum(getattr(machine, name) for machine in machines)) for name in ("objective", "gap", "outer_gap")}


def _metrics(state: FGMState, running: Sequence[int]) -> dict[str, Any]:
    n_selected = int(max((machine.rounds[-1].n_selected for machine in state.machines if machine.rounds), default=0))
    steps = {"inner_steps": int(sum(state.machines[k].rounds[-1].inner_steps for k in running)), "machines": len(running)}
    return {**certificates(state.machines), "n_selected": n_selected, **steps}


def _unfinished(config: FGMConfig) -> str:
    """Return a text about the goal that was missed when the rounds ran out; empty if there was no goal."""
    ended, count = f"max_rounds={config.most_rounds} ended the fit before", config.n_features_to_select
    if count is not None:
        return f"{ended} n_features_to_select={count} features were selected; raise max_rounds or B, or set allow_repeat=False"
    return "" if config.outer_tol is None else f"{ended} outer_tol={config.outer_tol} was reached"

"""The tri-class support vector machine: a step solves the next convex problem of every running start.

Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5. All starts, and
the folds of a validation, share one Gram matrix. The first step fits two SVMs: one on the labelled rows, and one with every unlabelled row
irrelevant. Starts begin from these two SVMs, and the validation compares the model with them. More than two classes are one binary model
per class against the rest; each of these models keeps its best start.

Compared with the matrix in memory, fits by passes take 3 to 5 times as long for a linear kernel (passes over rows), and 11 to 22 times
as long for a Gaussian kernel (passes over blocks).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.svm import triclass_search as solver
from ....kernels.svm.dual import Gram
from ....kernels.svm.triclass import Points
from ....kernels.svm.triclass_search import SearchSettings, SearchState
from ....storage import BlockStore
from ...core.memory import Item, driver_plan, total_bytes
from ...core.resources import Resources
from ...grams.grams import Grams, LazyGrams
from ...grams.plans import GramPasses
from ...grams.settings import PLACES, GramSettings
from ...grams.sources import group_pairs
from ...grams.weighted_sum import MATRIX_SHARE, working_set_item
from ...inputs.scores import predicted_codes
from ...loops.protocol import joint_stop
from ...passes.blocks import Rows
from ...records.joined import JoinedStores
from .config import TriClassConfig
from .inputs import TriClassInputs, rows_bytes, rows_here
from .linear_pass import LinearGram, rows_task_bytes, stripe_tasks, suits

NAN = float("nan")
BASELINES = ("SVM", "U-SVM")  # machines that the fit is compared with: on the labelled rows, and with every unlabelled row irrelevant
PATH_COLUMNS = ("iteration", "start", "objective", "minus", "zero", "plus", "flips")  # columns of the path
UNFINISHED = (None, "max_iter", "stalled")  # reasons of a stop before the tolerance was reached

ROWS_SHARE = 0.25  # share of the driver's memory that the rows of two stores may take where they are read into this process

DISTRIBUTED = {
    "matrix": ("Gram blocks",),
    "blocks": ("Gram blocks", "products with the Gram matrix", "its entries between rows of a working set"),
    "rows": ("products of the rows with vectors", "rows of a working set"),
}


@dataclass(frozen=True)
class TriClassState:
    """State of the searches from all starts."""

    record_name: ClassVar[str] = "TriClassState"
    iteration: int
    machines: tuple[SearchState, ...]  # one per binary model and start, of the fit and then of every fold of the validation
    rivals: tuple[SearchState, ...]  # of each of these models the baselines: on the labelled rows, all unlabelled ones irrelevant
    path: np.ndarray  # (k, 7) after every step of every machine of the fit, the figures of PATH_COLUMNS; starts count over all classes
    stop: str | None = None  # "assignment", "tol", "max_iter" of the best starts, once all have ended


def start_names(config: TriClassConfig) -> list[str]:
    """Return the names of the starts of a fit."""
    randoms = [f"random-{k}" for k in range(config.n_random)]
    return ["usvm", "svm3", "s3vm", *randoms] if config.start == "best" else randoms if config.start == "random" else [config.start]


@dataclass(frozen=True)
class Layout:
    """Decisions that a fit makes once, from the sizes of its data: where entries are kept, and what the solver reads."""

    settings: GramSettings  # where the entries of the Gram matrix lie
    solver_reads: Literal["matrix", "blocks", "rows"] = "matrix"  # in this process; or by passes over its blocks, or over linear rows
    rows_here: bool = False  # whether the rows of two stores are read into this process, where there are no workers


@dataclass(eq=False)
class TriClassProblem:
    """The problem of a fit: several searches on the rows of the fit, each from another start. An automatic validation (``"auto"``) runs
    after the fit, from the best start alone.
    """

    config: TriClassConfig
    inputs: TriClassInputs
    spec: KernelSpec
    layout: Layout
    points: tuple[Points, ...]  # of every binary model of the fit, or of fits side by side, and of every fold of a validation
    masks: tuple[np.ndarray | None, ...]  # labelled rows held out of these fits and folds
    n_fits: int
    planned: Resources  # where it was made: what decides the passes

    def __post_init__(self) -> None:
        self.names, self.n_machines = start_names(self.config), self.inputs.n_machines
        self.of_fits = self.n_fits * self.n_machines  # how many of the points are of fits, not of folds
        self.is_brief = self.config.validation == "auto" and len(self.masks) > self.n_fits
        self._lazy_grams: LazyGrams[Grams] | LazyGrams[LinearGram] | None = None
        self._gram: Gram | None = None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Numbers of rows and tasks, memory of a task in bytes, and where the Gram matrix is kept and the problems are solved."""
        inputs, layout, n_folds = self.inputs, self.layout, len(self.masks) - self.n_fits
        machines = count_machines(self.config, inputs, self.n_fits, n_folds)
        return {
            **layout.settings.describe(inputs.data.n_rows, 1),
            **driver_plan(driver_items(self.config, layout, inputs, self.planned.driver_memory, machines)),
            "kernel": str(self.spec),
            "labelled": len(inputs.truth),
            "unlabelled": inputs.n_unlabelled,
            "unlabelled_digest": None if inputs.unlabelled_store is None else inputs.unlabelled_store.digest,
            "starts": list(self.names),
            "validation_folds": n_folds,
            "iterations_at_most": (1 + self.config.max_iter) * (2 if self.is_brief else 1),
            "solver_reads": layout.solver_reads,
            **self._tasks(),
        }

    def _tasks(self) -> dict[str, int]:
        data, layout = self.inputs.data, self.layout
        if layout.solver_reads == "rows":
            rows = cast("Rows", data)
            return {"tasks_per_pass": len(stripe_tasks(rows)), "task_bytes": rows_task_bytes(rows, self.planned.driver_memory)}
        passes = GramPasses(data, [self.spec], layout.settings, self.planned)
        if layout.solver_reads == "blocks":
            step = passes.solver(repeats=2 if is_twofold(self.config) else 1)
            return {"tasks_per_pass": len(group_pairs(passes.refs)), "task_bytes": max(passes.load(), step)}
        return {"tasks_per_pass": passes.tasks, "task_bytes": max(passes.load(), passes.sum())}

    @property
    def beside(self) -> tuple[BlockStore, ...]:
        """The unlabelled store."""
        return () if self.inputs.unlabelled_store is None else (self.inputs.unlabelled_store,)

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        return DISTRIBUTED[self.layout.solver_reads]

    def grams(self, resources: Resources) -> Grams | LinearGram:
        """Return the Gram matrix, whose passes run in ``resources``."""
        if self._lazy_grams is None:
            data: Any = self.inputs.data
            if isinstance(data, JoinedStores) and self.layout.rows_here and resources.executor.kind == "sync":
                data = rows_here(data)
            if self.layout.solver_reads == "rows":
                self._lazy_grams = LazyGrams(lambda resources: LinearGram(data, resources, self.spec))
            else:
                self._lazy_grams = LazyGrams(lambda resources: Grams(data, [self.spec], self.layout.settings, resources))
        return self._lazy_grams(resources)

    def gram(self, resources: Resources) -> Gram:
        """Return the matrix for the solver. If ``balance`` is set, the matrix is extended by the mean of the unlabelled points."""
        if self._gram is None:
            grams = self.grams(resources)
            if isinstance(grams, LinearGram):
                gram: Gram = grams
            else:
                gram = grams.combine(np.ones(1)) if self.layout.solver_reads == "matrix" else grams.sum_by_passes(np.ones(1))
            self._gram = gram if self.config.balance is None else solver.with_mean(gram, self.inputs.unlabelled)
        return self._gram

    @property
    def search(self) -> SearchSettings:
        c = self.config
        return SearchSettings(c.algorithm, c.tol, c.inner_tol, c.max_iter, 1.0 / c.C, c.D)

    def advance(self, state: TriClassState, gram: Gram, seed: int) -> TriClassState:
        """Return the state with the first SVMs, or after one more convex problem of every start that has not ended."""
        if not state.iteration:
            new = self._start(state, gram, seed, range(self.of_fits if self.is_brief else len(self.points)), [self.names])
        elif self._waits(state) and all(machine.stop for machine in state.machines):
            new = self._start(state, gram, seed, range(self.of_fits, len(self.points)), [[name] for name in self.best_starts(state)])
        else:
            new = self._improve_all(state, gram)
        running = any(machine.stop is None for machine in new.machines) or self._waits(new)
        return replace(new, path=np.concatenate([state.path, self._path_rows(state, new)]), stop=None if running else self._stop(new))

    def _stop(self, state: TriClassState) -> str | None:
        """Return why the best starts ended; a start that did not finish comes first."""
        return joint_stop([machine.stop for machine in self.best_of(state)], [reason for reason in UNFINISHED if reason is not None])

    def _waits(self, state: TriClassState) -> bool:
        """Return True if the folds of an automatic validation have not begun."""
        return self.is_brief and len(state.machines) == self.of_fits * len(self.names)

    def _start(self, state: TriClassState, gram: Gram, seed: int, parts: Iterable[int], names: Sequence[Sequence[str]]) -> TriClassState:
        """Return the state with the first SVMs of the given points. ``names``: the starts of all binary models, or of each of them."""
        machines, baselines = list(state.machines), list(state.rivals)
        for part in parts:
            points = self.points[part]
            labelled = solver.labelled_machine(gram, points, self.config.inner_tol)
            universum = solver.universum_machine(gram, points, self.config.inner_tol, labelled)
            baselines += [labelled, universum]
            machines += [_starting_point(name, points, labelled, universum, seed) for name in names[part % len(names)]]
        return TriClassState(state.iteration + 1, tuple(machines), tuple(baselines), state.path)

    def _improve_all(self, state: TriClassState, gram: Gram) -> TriClassState:
        machines = [
            machine if machine.stop else solver.improve_machine(gram, self.points[self._part_of(k)], machine, self.search)
            for k, machine in enumerate(state.machines)
        ]
        return TriClassState(state.iteration + 1, tuple(machines), state.rivals, state.path)

    def _part_of(self, k: int) -> int:
        """Return the index of the points to which SVM k belongs."""
        of_fits = self.of_fits * len(self.names)
        return k // len(self.names) if k < of_fits or not self.is_brief else self.of_fits + k - of_fits

    def best_of(self, state: TriClassState, fit: int = 0) -> list[SearchState]:
        """Return, for every binary model of a fit or fold, the search with the smallest objective; on ties, the first."""
        first = fit * self.n_machines
        searches: list[list[SearchState]] = [[] for _ in range(self.n_machines)]
        for k, machine in enumerate(state.machines):
            if 0 <= self._part_of(k) - first < self.n_machines:
                searches[self._part_of(k) - first].append(machine)
        return [min(machines, key=lambda machine: machine.objective) for machines in searches]

    def objectives(self, state: TriClassState) -> np.ndarray:
        """Return the objective J of every start of the fit, ``(n_machines, n_starts)``."""
        machines = state.machines[: self.n_machines * len(self.names)]
        return np.array([machine.objective / self.config.C for machine in machines]).reshape(self.n_machines, -1)

    def best_starts(self, state: TriClassState) -> list[str]:
        """Return the name of the start that every binary model of the fit keeps."""
        return [self.names[k] for k in self.objectives(state).argmin(axis=1)]

    def _path_rows(self, before: TriClassState, new: TriClassState) -> np.ndarray:
        running = [k for k in range(self.n_machines * len(self.names)) if not before.machines or before.machines[k].stop is None]
        machines = ((k, new.machines[k]) for k in running)
        rows = [[new.iteration, k, one.objective / self.config.C, *self.counts(one).values(), one.flips] for k, one in machines]
        return np.array(rows, dtype=np.float64).reshape(-1, len(PATH_COLUMNS))

    def counts(self, machine: SearchState) -> dict[str, int]:
        """Return the numbers of unlabelled rows assigned to -1, 0 and +1."""
        assigned = machine.labels[self.inputs.unlabelled]
        return {name: int(np.sum(assigned == side)) for name, side in (("minus", -1), ("zero", 0), ("plus", 1))}

    def assigned(self, machines: Sequence[SearchState]) -> np.ndarray:
        """Return the assignment of every unlabelled row: -1, 0 or +1 for two classes, else the index of its class, or -1 for none."""
        if len(machines) == 1:
            return machines[0].labels[self.inputs.unlabelled].astype(np.int64)
        labels, values = (np.stack(rows)[:, self.inputs.unlabelled] for rows in zip(*((one.labels, one.decision) for one in machines)))
        return np.where(np.any(labels != 0, axis=0), values.argmax(axis=0), -1)

    def assigned_counts(self, machines: Sequence[SearchState]) -> dict[str, int]:
        """Return the numbers of unlabelled rows: per assignment for two classes, else those of no class and those of a class."""
        if len(machines) == 1:
            return self.counts(machines[0])
        is_relevant = self.assigned(machines) >= 0
        return {"zero": int(np.sum(~is_relevant)), "any_class": int(np.sum(is_relevant))}

    def right(self, machines: Sequence[SearchState], rows: np.ndarray) -> np.ndarray:
        """Return, for the labelled rows of the classes in ``rows``, whether the binary models of a fit classify them correctly."""
        truth = self.inputs.truth
        right = predicted_codes(np.stack([machine.decision[: len(truth)] for machine in machines])) == truth
        return right[rows & self.inputs.relevant]

    def accuracy(self, machines: Sequence[SearchState], rows: np.ndarray) -> float:
        """Return the accuracy of a fit on the labelled rows of the classes in ``rows``; NaN if there are none."""
        right = self.right(machines, rows)
        return float(right.mean()) if right.size else NAN

    def metrics(self, before: TriClassState, new: TriClassState) -> dict[str, Any]:
        """Return the quantities that a step records."""
        best, unit, mask = self.best_of(new), 1.0 / self.config.C, self.masks[0]
        held_out = np.zeros(len(self.inputs.truth), dtype=bool) if mask is None else mask
        steps = sum(machine.steps for machine in new.machines) - sum(machine.steps for machine in before.machines)
        return {
            "objective": sum(unit * machine.objective for machine in best),
            "gap": sum(unit * machine.gap for machine in best),
            **self.assigned_counts(best),
            "flips": sum(machine.flips for machine in best),
            "running": sum(machine.stop is None for machine in new.machines),
            "solver_steps": steps,
            "train_accuracy": self.accuracy(best, ~held_out),
            "test_accuracy": self.accuracy(best, held_out),
        }

    def validation(self, state: TriClassState) -> list[dict[str, Any]]:
        """Return the accuracy of the model and of its two baselines on held-out rows: the rows held out from the fit, or else the rows of
        the folds.
        """
        rows = []
        for name, parts in self._validated(state).items():
            scores = [float(right.mean()) if right.size else NAN for right in parts]
            if scores:
                deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
                rows.append({"machine": name, "accuracy": float(np.mean(scores)), "deviation": deviation, "folds": len(scores)})
        return rows

    def _validated(self, state: TriClassState) -> dict[str, list[np.ndarray]]:
        """Return, by name of the model, one array per fold: which of the held-out rows the model classifies correctly."""
        n_folds, test, count = len(self.masks) - self.n_fits, self.masks[0], self.n_machines
        parts = range(self.n_fits, len(self.masks)) if n_folds else range(1 if test is not None else 0)
        seen: dict[str, list[np.ndarray]] = {}
        for number, name in enumerate((*BASELINES, "3C-SVM")):
            seen[name] = []
            for part in parts:
                rivals = state.rivals[2 * part * count : 2 * (part + 1) * count]
                machines, mask = rivals[number::2] if number < len(BASELINES) else self.best_of(state, part), self.masks[part]
                assert mask is not None
                # Of a fold without those held out of the fit.
                seen[name].append(self.right(machines, mask if part < self.n_fits or test is None else mask & ~test))
        return seen

    def better_baseline(self, state: TriClassState) -> tuple[str, int, int] | None:
        """Return the baseline that classifies more held-out rows correctly than the model, by more than the standard error of the
        difference.

        Also return the number b of rows on which only the baseline is correct, and the number c on which only the model is. The
        difference b - c has standard error ``sqrt(b + c)``. Of two such baselines, the one with the larger difference is returned.
        """
        seen = {name: np.concatenate([np.zeros(0, bool), *parts]) for name, parts in self._validated(state).items()}
        better = []
        for name in BASELINES:
            lost, won = int(np.sum(seen[name] & ~seen["3C-SVM"])), int(np.sum(~seen[name] & seen["3C-SVM"]))
            if lost - won > (lost + won) ** 0.5:
                better.append((name, lost, won))
        return max(better, key=lambda item: item[1] - item[2], default=None)


def decide(config: TriClassConfig, spec: KernelSpec, inputs: TriClassInputs, resources: Resources, machines: int) -> Layout:
    """Return a layout with the Gram matrix in this process if it fits in the driver's memory with the matrices derived from it. Otherwise,
    the layout uses passes over the blocks of the matrix.
    """
    data, limit = inputs.data, resources.driver_memory
    near = replace(GramSettings.of(data, resources, [spec], config.grams), counts=inputs.counts)
    here = Layout(near, rows_here=rows_bytes(data) <= ROWS_SHARE * limit)
    if 4 * data.n_rows**2 <= MATRIX_SHARE * limit and total_bytes(driver_items(config, here, inputs, limit, machines)) <= limit:
        return here
    if suits(spec, data):
        return Layout(replace(near, policy="recompute", reason="never made: a linear kernel is known by its rows"), "rows")
    if config.grams != "auto" or near.in_place:
        return Layout(near, "blocks")
    # The passes of a solver would not look at a bank in memory.
    reason = f"{PLACES['recompute']}, or once into the run directory: {near.reason.partition(': ')[2]}"
    return Layout(replace(near, policy="recompute", reason=reason), "blocks")


def is_twofold(config: TriClassConfig) -> bool:
    """Return whether each unlabelled row has two variables in a convex problem."""
    return config.algorithm != "mm" and not config.all_relevant


def count_machines(config: TriClassConfig, inputs: TriClassInputs, fits: int, folds: int) -> int:
    """Return the number of SVMs in some fits and in the folds of a validation: for every binary model one per start, and the two SVMs from
    which starts begin.
    """
    starts = len(start_names(config))
    of_one = fits * (starts + len(BASELINES)) + folds * ((1 if config.validation == "auto" else starts) + len(BASELINES))
    return inputs.n_machines * of_one


def driver_items(config: TriClassConfig, layout: Layout, inputs: TriClassInputs, limit: int, machines: int) -> tuple[Item, ...]:
    """Return the memory of the driver: rows, kernel, the matrix of a convex problem, vectors, model."""
    data, n, u = inputs.data, inputs.data.n_rows, inputs.n_unlabelled
    twofold, nbytes = is_twofold(config), rows_bytes(data)
    vectors = (
        ("variables of a convex problem, and vectors over them", 256 * (n + (u if twofold else 0))),
        ("labels, costs, coefficients and decision values of every model", 64 * n * machines),
        ("rows of the model", nbytes),
    )
    if layout.solver_reads == "rows":
        return (working_set_item(limit), ("weights of the features", 40 * data.n_cols), *vectors)
    matrices = layout.settings.items(n, 1, limit)
    if layout.solver_reads == "blocks":
        return (matrices[0], working_set_item(limit), *vectors)
    if layout.rows_here and isinstance(data, JoinedStores):
        matrices = (("rows of both stores, side by side", nbytes), *matrices)
    if config.balance is not None:
        matrices = (*matrices, ("matrix with the mean of the unlabelled rows", 4 * n * n))
    if twofold:
        # Rows with two variables are copied as often into the matrix of those that move.
        matrices = (*matrices, ("matrix of the variables that move", 4 * (n + u) ** 2))
    return (*matrices, *vectors)


def _starting_point(name: str, points: Points, labelled: SearchState, universum: SearchState, seed: int) -> SearchState:
    if name in ("usvm", "svm3"):
        return replace(universum if name == "usvm" else labelled, steps=0)
    if name == "s3vm":
        return replace(solver.sided_start(points, labelled), steps=0)
    number = np.random.SeedSequence((seed, int(name.removeprefix("random-")))).generate_state(1)[0]
    return replace(solver.permuted_start(points, labelled, int(number)), steps=0)

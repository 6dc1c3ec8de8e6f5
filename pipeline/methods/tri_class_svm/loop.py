"""The tri-class support vector machine as a loop: a step solves the next convex problem of every start that still runs.

Yang, "Sparse Learning Under Regularization Framework", PhD thesis, The Chinese University of Hong Kong, 2011, chapter 5. All starts, and
the folds of a validation, share one Gram matrix; the first step fits the machine on the labelled rows and the one with every unlabelled
row irrelevant, which starts begin from and which the validation compares with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from ....kernels.grams.spec import KernelSpec
from ....kernels.jit import one_thread
from ....kernels.svm import triclass_search as solver
from ....kernels.svm.dual import Gram
from ....kernels.svm.triclass import Points
from ....kernels.svm.triclass_search import SearchSettings, SearchState
from ...core.result import Step
from ...grams.grams import Grams
from ...grams.lazy import LazyGrams
from ...grams.settings import GramSettings
from ...records.context import RunContext
from ...records.joined import JoinedStores
from .config import TriClassConfig
from .inputs import TriClassInputs, TriClassRows, rows_here
from .linear_pass import LinearGram

NAN = float("nan")
BASELINES = ("SVM", "U-SVM")  # machines that the fit is compared with: on the labelled rows, and with every unlabelled row irrelevant
PATH_COLUMNS = ("iteration", "start", "objective", "minus", "zero", "plus", "flips")  # columns of the path


@dataclass(frozen=True)
class TriClassState:
    """State of the searches."""

    record_name: ClassVar[str] = "TriClassState"
    iteration: int
    machines: tuple[SearchState, ...]  # one per start, of the fit and then of every fold of the validation
    rivals: tuple[SearchState, ...]  # of the fit and of every fold the baselines: on the labelled rows, all unlabelled ones irrelevant
    path: np.ndarray  # (k, 7) after every step of every start of the fit, the figures of PATH_COLUMNS
    stop: str | None = None  # "assignment", "tol", "max_iter" of the best start, once all have ended


def start_names(config: TriClassConfig) -> list[str]:
    """Return the starts of a fit."""
    randoms = [f"random-{k}" for k in range(config.n_random)]
    return ["usvm", "svm3", "s3vm", *randoms] if config.start == "best" else randoms if config.start == "random" else [config.start]


@dataclass(frozen=True)
class Layout:
    """What a fit decides from sizes, once."""

    settings: GramSettings  # where the entries of the Gram matrix lie
    solver_reads: Literal["matrix", "blocks", "rows"] = "matrix"  # in this process; or by passes over its blocks, or over linear rows
    rows_here: bool = False  # whether the rows of two stores are read into this process, where there are no workers


class TriClassLoop:
    """Searches from several starts on the rows of a fit.

    ``points``: of the fit (or of ``n_fits`` fits side by side), and of every fold of a validation; ``masks``: labelled rows held out of
    these, or ``None``; ``data``: rows where they are not the data set of the run. A validation that nobody asked for (``"auto"``) follows
    the fit, and takes its best start alone.
    """

    state_type = TriClassState

    def __init__(
        self,
        config: TriClassConfig,
        spec: KernelSpec,
        layout: Layout,
        inputs: TriClassInputs,
        points: Sequence[Points],
        masks: Sequence[np.ndarray | None],
        data: TriClassRows | None = None,
        n_fits: int = 1,
    ) -> None:
        self.n_fits, self.is_brief = n_fits, config.validation == "auto" and len(points) > n_fits
        self.config, self.spec, self.layout, self.inputs = config, spec, layout, inputs
        self.points, self.masks, self.data = tuple(points), tuple(masks), data
        self.names = start_names(config)
        self._lazy_grams: LazyGrams[Grams] | LazyGrams[LinearGram] | None = None
        self._gram: Gram | None = None

    def grams(self, ctx: RunContext) -> Grams | LinearGram:
        """Return the Gram matrix, its passes to run where ``ctx`` says."""
        if self._lazy_grams is None:
            data, is_alone = self.data, ctx.executor.kind == "sync"
            if isinstance(data, JoinedStores) and self.layout.rows_here and is_alone:
                data = rows_here(data)
            if self.layout.solver_reads == "rows":
                self._lazy_grams = LazyGrams(lambda its_ctx: LinearGram(its_ctx, self.spec), data)
            else:
                self._lazy_grams = LazyGrams(lambda its_ctx: Grams(its_ctx, [self.spec], self.layout.settings), data)
        return self._lazy_grams(ctx)

    def gram(self, ctx: RunContext) -> Gram:
        """Return the matrix for the solver, with the mean of the unlabelled points where their balance is fixed."""
        if self._gram is None:
            grams = self.grams(ctx)
            if isinstance(grams, LinearGram):
                gram: Gram = grams
            else:
                gram = grams.combine(np.ones(1)) if self.layout.solver_reads == "matrix" else grams.sum_by_passes(np.ones(1))
            self._gram = gram if self.config.balance is None else solver.with_mean(gram, self.inputs.unlabelled)
        return self._gram

    @property
    def search(self) -> SearchSettings:
        """How machines are improved."""
        c = self.config
        return SearchSettings(c.algorithm, c.tol, c.inner_tol, c.max_iter, 1.0 / c.C, c.D)

    def init(self, ctx: RunContext) -> TriClassState:
        """Return the state before the first machine."""
        return TriClassState(0, (), (), np.zeros((0, len(PATH_COLUMNS))))

    def step(self, state: TriClassState, ctx: RunContext) -> Step[TriClassState]:
        """Fit the first machines, or solve the next convex problem of every start that runs."""
        with one_thread():
            new = self._advance(state, self.gram(ctx), ctx.seed)
        running = any(machine.stop is None for machine in new.machines) or self._waits(new)
        new = replace(new, path=np.concatenate([state.path, self._path_rows(state, new)]), stop=None if running else self.best(new).stop)
        return Step(new, self._metrics(state, new))

    def _advance(self, state: TriClassState, gram: Gram, seed: int) -> TriClassState:
        if not state.iteration:
            return self._start(state, gram, seed, range(self.n_fits if self.is_brief else len(self.points)), self.names)
        if self._waits(state) and all(machine.stop for machine in state.machines):
            best = min(range(len(self.names)), key=lambda k: state.machines[k].objective)
            return self._start(state, gram, seed, range(self.n_fits, len(self.points)), [self.names[best]])
        return self._improve_all(state, gram)

    def _waits(self, state: TriClassState) -> bool:
        """Return whether the folds of a validation have not begun."""
        return self.is_brief and len(state.machines) == self.n_fits * len(self.names)

    def _start(self, state: TriClassState, gram: Gram, seed: int, parts: Iterable[int], names: Sequence[str]) -> TriClassState:
        """Return the state with the first machines of some parts."""
        machines, baselines = list(state.machines), list(state.rivals)
        for part in parts:
            points = self.points[part]
            labelled = solver.labelled_machine(gram, points, self.config.inner_tol)
            universum = solver.universum_machine(gram, points, self.config.inner_tol, labelled)
            baselines += [labelled, universum]
            machines += [_starting_point(name, points, labelled, universum, seed) for name in names]
        return TriClassState(state.iteration + 1, tuple(machines), tuple(baselines), state.path)

    def _improve_all(self, state: TriClassState, gram: Gram) -> TriClassState:
        machines = [
            machine if machine.stop else solver.improve_machine(gram, self.points[self._part_of(k)], machine, self.search)
            for k, machine in enumerate(state.machines)
        ]
        return TriClassState(state.iteration + 1, tuple(machines), state.rivals, state.path)

    def _part_of(self, k: int) -> int:
        """Return the fit or fold of a machine."""
        of_fits = self.n_fits * len(self.names)
        return k // len(self.names) if k < of_fits or not self.is_brief else self.n_fits + k - of_fits

    def best(self, state: TriClassState, part: int = 0) -> SearchState:
        """Return the machine of least objective, of a fit or of a fold; the first among equals."""
        machines = [machine for k, machine in enumerate(state.machines) if self._part_of(k) == part]
        return min(machines, key=lambda machine: machine.objective)

    def _path_rows(self, before: TriClassState, new: TriClassState) -> np.ndarray:
        running = [k for k in range(len(self.names)) if not before.machines or before.machines[k].stop is None]
        machines = ((k, new.machines[k]) for k in running)
        rows = [[new.iteration, k, one.objective / self.config.C, *self.counts(one).values(), one.flips] for k, one in machines]
        return np.array(rows, dtype=np.float64).reshape(-1, len(PATH_COLUMNS))

    def counts(self, machine: SearchState) -> dict[str, int]:
        """Return the unlabelled rows assigned to -1, 0 and +1."""
        assigned = machine.labels[self.inputs.unlabelled]
        return {name: int(np.sum(assigned == side)) for name, side in (("minus", -1), ("zero", 0), ("plus", 1))}

    def right(self, machine: SearchState, rows: np.ndarray) -> np.ndarray:
        """Return whether a machine is right, of the labelled rows of two classes among some."""
        labels = self.inputs.labels
        right = np.where(machine.decision[: len(labels)] > 0, 1.0, -1.0) == labels
        return right[rows & self.inputs.relevant]

    def accuracy(self, machine: SearchState, rows: np.ndarray) -> float:
        """Return the share of labelled rows of two classes, among some, that a machine gets right; NaN where there are none."""
        right = self.right(machine, rows)
        return float(right.mean()) if right.size else NAN

    def _metrics(self, before: TriClassState, new: TriClassState) -> dict[str, Any]:
        best, unit, mask = self.best(new), 1.0 / self.config.C, self.masks[0]
        held_out = np.zeros(len(self.inputs.labels), dtype=bool) if mask is None else mask
        steps = sum(machine.steps for machine in new.machines) - sum(machine.steps for machine in before.machines)
        return {
            "objective": unit * best.objective,
            "gap": unit * best.gap,
            **self.counts(best),
            "flips": best.flips,
            "running": sum(machine.stop is None for machine in new.machines),
            "solver_steps": steps,
            "train_accuracy": self.accuracy(best, ~held_out),
            "test_accuracy": self.accuracy(best, held_out),
        }

    def validation(self, state: TriClassState) -> list[dict[str, Any]]:
        """Return the accuracy of the machine and of its two baselines on rows held out: of the fit, else of the folds' fits."""
        rows = []
        for name, parts in self._validated(state).items():
            scores = [float(right.mean()) if right.size else NAN for right in parts]
            if scores:
                deviation = float(np.std(scores, ddof=1)) if len(scores) > 1 else None
                rows.append({"machine": name, "accuracy": float(np.mean(scores)), "deviation": deviation, "folds": len(scores)})
        return rows

    def _validated(self, state: TriClassState) -> dict[str, list[np.ndarray]]:
        """Return of every machine by name whether it is right on the rows held out, fold by fold."""
        n_folds, test = len(self.points) - self.n_fits, self.masks[0]
        parts = range(self.n_fits, len(self.points)) if n_folds else range(1 if test is not None else 0)
        seen: dict[str, list[np.ndarray]] = {}
        for number, name in enumerate((*BASELINES, "3C-SVM")):
            seen[name] = []
            for part in parts:
                machine, mask = state.rivals[2 * part + number] if number < len(BASELINES) else self.best(state, part), self.masks[part]
                assert mask is not None
                # Of a fold without those held out of the fit.
                seen[name].append(self.right(machine, mask if part < self.n_fits or test is None else mask & ~test))
        return seen

    def better_baseline(self, state: TriClassState) -> tuple[str, int, int] | None:
        """Return the baseline that is right on more rows held out than the machine, by more than the standard error of the difference.

        With it on how many rows it is right where the machine is wrong, and the other way round; of two the one with the greater
        difference. The difference of b and c such rows has the standard error ``sqrt(b + c)``.
        """
        seen = {name: np.concatenate([np.zeros(0, bool), *parts]) for name, parts in self._validated(state).items()}
        better = []
        for name in BASELINES:
            lost, won = int(np.sum(seen[name] & ~seen["3C-SVM"])), int(np.sum(~seen[name] & seen["3C-SVM"]))
            if lost - won > (lost + won) ** 0.5:
                better.append((name, lost, won))
        return max(better, key=lambda item: item[1] - item[2], default=None)


def _starting_point(name: str, points: Points, labelled: SearchState, universum: SearchState, seed: int) -> SearchState:
    if name in ("usvm", "svm3"):
        return replace(universum if name == "usvm" else labelled, steps=0)
    if name == "s3vm":
        return replace(solver.sided_start(points, labelled), steps=0)
    number = np.random.SeedSequence((seed, int(name.removeprefix("random-")))).generate_state(1)[0]
    return replace(solver.permuted_start(points, labelled, int(number)), steps=0)

"""Kernel selection along a path of norms. Every step computes a batch: first of alignments, then of points of the path,
then of SVMs.

Problem (docs/theory/kta_path.md):
``min over eta >= 0 of lam1 sum B_F(eta_i, eta0) + lam2 sum eta_i^p - sum eta_i a_i`` for p from p_start down to
p_end (Jawanpuria, PhD thesis 2014, equation 7.1 and algorithm 5). a_i is the alignment of kernel i with the classes; the kernel is
centred and has unit trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ....cluster import Plan
from ....kernels.alignment.alignment import Alignments
from ....kernels.alignment.path import DIVERGENCES, AlignmentProblem, juncture_points, kernel_path, p_grid, threshold, weights_at
from ....kernels.target_unit import in_machine_unit
from ...core.memory import Item, driver_plan, refuse
from ...core.resources import Resources
from ...grams.given import GivenGrams
from ...grams.settings import vectors_item
from ...inputs.labels import Inputs, labels_of
from ...inputs.scores import R2Tracker, accuracies, fit_tracker, r2_scores
from ...passes.blocks import Task, column_tasks
from .alignment_pass import align_features, alignments_pass
from .config import KTAPathConfig
from .kernel_sum_pass import MATRIX_COPIES, CellSums, matrix_fits, sum_passes
from .machines import (
    CELL_SHARE,
    MAX_SINGLE_POINTS,
    TABLE_COPIES,
    Kernels,
    PathPoint,
    PathTrainer,
    SharedSums,
    given_grams,
    machine_points,
)

BATCH_TASKS = 16  # tasks of the alignment pass in one step
BATCH_POINTS = 25  # points of the path in one step
BATCH_MACHINES = 26  # machines in one step
N_DEFAULT_KERNELS = 10  # kernels that the default lam2 leaves at p_end, or a fifth of all where that is less, but at least three
CELLS = "matrices of cells, which share the kernels of many points"
MIN_TRACE_SHARE = 1e-12  # a centred trace below this share of the plain one is rounding


@dataclass(frozen=True)
class KTAState:
    """State of the fit between two steps."""

    record_name: ClassVar[str] = "KTAState"
    iteration: int
    stop: str | None  # "end" when the last point stands
    tasks: int  # of the alignment pass that are done
    table: np.ndarray  # (4, k) values, traces, widths and error bounds of the kernels so far
    lam1: float  # both are known once all alignments are
    lam2: float
    p: np.ndarray  # (points,) so far
    counts: np.ndarray  # active kernels at every point; indices and values are their ids and weights, point after point
    indices: np.ndarray
    values: np.ndarray
    newton_steps: np.ndarray  # (points,)
    scored: np.ndarray  # (machines, 3) point, accuracy or R2 on training rows and on rows held out (NaN without any) of the machines so far
    beta: np.ndarray  # (n_machines, n_samples) coefficients of the last of them; no rows before the first

    @property
    def weights(self) -> sp.csr_array:
        """Kernel weights ``(points, k)``."""
        indptr = np.concatenate([[0], np.cumsum(self.counts)])
        return sp.csr_array((self.values, self.indices, indptr), shape=(len(self.p), self.table.shape[1]))


def class_targets(inputs: Inputs) -> np.ndarray:
    """Return the labels -1 and +1 of two classes, or of every class against the rest, ``(n_machines, n_samples)``; real targets centred, in
    units of their standard deviation.
    """
    if inputs.classes is None:
        return in_machine_unit(inputs.target, row_counts(inputs), centred=True)[0][None]
    return np.stack([labels_of(inputs, machine) for machine in range(inputs.n_machines)])


def path_problem(config: KTAPathConfig, lam1: float, lam2: float) -> AlignmentProblem:
    """Return the problem that determines the weights."""
    return AlignmentProblem(lam1, lam2, DIVERGENCES[config.divergence], config.eta0)


def resolve_regularisation(config: KTAPathConfig, a: np.ndarray) -> tuple[float, float]:
    """Return lam1 and lam2 as given, or derived from the alignments. ``lam1 = max a / 2``, so that no weight exceeds 1 at p = 1 if ``eta0``
    is 0. lam2 is such that at p_end the threshold lies between the smallest alignment of the kernels to keep (at most
    ``N_DEFAULT_KERNELS``) and the next smaller alignment. Raises ValueError if all alignments are zero.
    """
    if not np.any(a > 0):
        reason = "every feature (or kernel) is constant on the training rows, or uncorrelated with the target"
        raise ValueError(f"all alignments with y are zero: {reason}")
    lam1 = 0.5 * float(a.max()) if config.lam1 is None else config.lam1
    if config.lam2 is not None:
        return lam1, config.lam2
    base = path_problem(config, lam1, 1.0)
    rate = config.p_end * config.eps ** (config.p_end - 1.0)
    shift = threshold(base, config.p_end, config.eps) - rate if rate > 0 else 0.0
    lam2 = (_load_below_selected(base.loads(a), int((a > 0).sum())) - shift) / max(rate, 1e-300)
    return lam1, max(lam2, 1e-6 * float(a.max()))


def _load_below_selected(loads: np.ndarray, useful: int) -> float:
    """Return a value between the smallest load of the kernels to select and the next smaller load; ``useful`` alignments are positive."""
    count = max(min(useful, 3), min(N_DEFAULT_KERNELS, useful // 5))
    values, counts = np.unique(-loads, return_counts=True)
    values = -values
    last = max(int(np.searchsorted(np.cumsum(counts), count, side="right")) - 1, 0)
    return 0.5 * float(values[last] + (values[last + 1] if last + 1 < len(values) else 0.0))


@dataclass(eq=False)
class KTAProblem:
    """The path of one data set; held-out rows have weight 0."""

    config: KTAPathConfig
    inputs: Inputs
    planned: Resources  # where it was made: what decides the passes

    def __post_init__(self) -> None:
        config, inputs, data = self.config, self.inputs, self.inputs.data
        self.fit = fit_tracker(inputs, inputs.held_out)
        self.grid = p_grid(config.p_start, config.p_end, config.dp)
        self._at_once = min(config.n_machines, BATCH_MACHINES, len(self.grid))  # machines along the path
        self._entry_bytes = 4 if config.kernel == "rbf" else 8
        self._fits = matrix_fits(data.n_rows, data.n_cols, self.planned.driver_memory)
        self.trains = True  # whether machines along the path are a part of it
        self.sums: SharedSums | None = None  # matrices that machines along the path share, for those with another C
        self._machine: tuple[KTAState, PathPoint] | None = None  # the machine that predicts, of the state that was last asked for it

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Number of points of the path, number of tasks per pass, and whether SVMs are solved on a matrix or by passes."""
        points, data = len(self.grid), self.inputs.data
        tasks, fits = column_tasks(data), self._fits
        sizes = {"kernels": int(data.n_cols), "points": points}
        machines = {"machines": self.inputs.n_machines, "machine_points": self.config.n_machines}
        passes = {"tasks_per_pass": len(tasks), "task_bytes": max(work.memory_bound for work in self._passes(tasks))}
        solves = {"solve_on": "matrix" if fits else "passes", "matrix_bytes": MATRIX_COPIES * data.n_rows**2 if fits else 0}
        return {**driver_plan(self.driver_items(points)), **sizes, **machines, **passes, **solves}

    def _passes(self, tasks: Sequence[Task]) -> Iterator[Plan[Any]]:
        """Yield the passes of the fit, without running them."""
        data = self.inputs.data
        targets = 8 * data.n_rows * self.inputs.n_machines
        yield from (alignments_pass(tasks[lo : lo + BATCH_TASKS], targets) for lo in range(0, len(tasks), BATCH_TASKS))
        yield from sum_passes(data, self._entry_bytes, self._most_cells, self.planned.driver_memory)

    @property
    def distributed(self) -> tuple[str, ...]:
        """Names of the computations that run on workers."""
        machines = "Gram blocks of models" if self._fits else "products and entries of the models' kernels"
        return ("alignments of features", machines)

    def driver_items(self, points: int) -> tuple[Item, ...]:
        """Return the memory of the driver: values of every feature, weights of all features at ``points`` points, vectors over rows, and
        matrices of an SVM. If the matrix of a point does not fit, no matrix is counted, because SVMs are then solved by passes.
        """
        n, d, machines = self.inputs.data.n_rows, self.inputs.data.n_cols, self._at_once
        features = "alignments, traces, widths and weights of the features", 80 * d
        vectors = features, weights_item(points * d), vectors_item(n, self.inputs.n_machines)
        if not self._fits:
            return vectors
        matrix = "sums of kernels, the matrix, and the solver's copy of it", MATRIX_COPIES * n * n
        if machines <= MAX_SINGLE_POINTS:
            single = "the matrix that one task sums, and the copy a solver shrinks", 13 * n * n
            return (*vectors, single if len(column_tasks(self.inputs.data)) == 1 else matrix)
        most = int(CELL_SHARE * self.planned.driver_memory)
        table = "weights of kernels at the models, while cells are cut", min(TABLE_COPIES * d * machines, most)
        summed = CELLS, 2 * self._entry_bytes * self._most_cells * n * n
        # The table is gone once the cells are cut.
        return (*vectors, matrix, max(summed, table, key=lambda item: item[1]))

    @property
    def _most_cells(self) -> int:
        """Largest number of cells, whose matrices many points share; 0 if only few points are summed at a time."""
        if self._at_once <= MAX_SINGLE_POINTS:
            return 0
        data = self.inputs.data
        return min(data.n_cols, CellSums.max_count(data, self.planned, CELL_SHARE, self._entry_bytes))

    def trainer(self, state: KTAState, resources: Resources) -> PathTrainer:
        """Return the trainer of SVMs at points of the path."""
        return PathTrainer(self.config, self.inputs, resources, Kernels(*state.table[:3]))

    def machine(self, state: KTAState, resources: Resources) -> PathPoint:
        """Return the SVM at the point that the parameters name, or at the last point before it with an active kernel. It is solved once,
        for the model and for the summary.
        """
        if self._machine is None or self._machine[0] is not state:
            config, p = self.config, machine_p(self.config, state)
            chosen = path_weights(config, (state.lam1, state.lam2), state.table[0], path_junctures(config, state), p)
            # Started from nothing, the machine is the same whatever points came before.
            self._machine = state, self.trainer(state, resources).at(p, *chosen)
        return self._machine[1]

    def align(self, state: KTAState, resources: Resources) -> KTAState:
        """Return the state with the alignments of another batch of kernels."""
        data = self.inputs.data
        if isinstance(data, GivenGrams):
            batch, done, n_tasks = given_alignments(resources, self.inputs), 1, 1
        else:
            tasks = column_tasks(data)
            n_tasks, done = len(tasks), min(state.tasks + BATCH_TASKS, len(tasks))
            batch = align_features(
                resources, tasks[state.tasks : done], class_targets(self.inputs), row_counts(self.inputs), self.config.kernel
            )
        table = np.concatenate([state.table, np.stack(batch)], axis=1)
        lam1, lam2 = resolve_regularisation(self.config, table[0]) if done == n_tasks else (np.nan, np.nan)
        new = replace(state, tasks=done, table=table, lam1=lam1, lam2=lam2)
        if done == n_tasks:
            # How many weights there will be follows from the alignments; the plan only had an upper bound.
            items = [weights_item(path_size(self.config, new))]
            refuse("kta-path", items, resources.fit_limit, "fewer points (dp), a smaller p_start or a larger lam2")
        return new

    def advance(self, state: KTAState) -> KTAState:
        """Return the state with another batch of points."""
        config, first = self.config, len(state.p)
        last = min(first + BATCH_POINTS, len(self.grid))
        problem, points = path_problem(config, state.lam1, state.lam2), self.grid[first:last]
        ends = {"p_start": float(points[0]), "p_end": float(points[-1])}
        path = kernel_path(problem, state.table[0], **ends, dp=config.dp, eps=config.eps, order=config.order)
        weights = {"indices": path.weights.indices.astype(np.int64), "values": path.weights.data}
        more = {"p": path.p_grid, "counts": path.n_active, **weights, "newton_steps": path.newton_steps}
        new = replace(state, **{name: np.concatenate([getattr(state, name), values]) for name, values in more.items()})
        # The model's own machine comes at the end; here one is needed for points on the way, or for a score on rows held out.
        needs_no_machine = not self.trains or (config.n_machines == 1 and self.fit.held_out is None) or not new.counts.any()
        return replace(new, stop="end" if needs_no_machine and last == len(self.grid) else None)

    def train(self, state: KTAState, resources: Resources) -> KTAState:
        """Return the state with another batch of SVMs."""
        points = machine_points(state.counts, self.config.n_machines, machine_point(self.config, state))
        first, last = len(state.scored), min(len(state.scored) + BATCH_MACHINES, len(points))
        chosen, scored, beta = points[first:last], [state.scored], state.beta
        along = self.trainer(state, resources).along(state.p[chosen], state.weights[chosen], beta if first else None)
        for k, point in zip(chosen, along, strict=True):
            decisions = dict(enumerate(point.values))
            scores = r2_scores(self.fit, decisions) if isinstance(self.fit, R2Tracker) else accuracies(self.fit, decisions)
            scored.append(np.array([[k, *scores]]))
            beta = point.beta
        return replace(state, scored=np.concatenate(scored), beta=beta, stop="end" if last == len(points) else None)


def row_counts(inputs: Inputs) -> np.ndarray:
    """Return the count (weight) of every row, ``(n_samples,)``."""
    return np.ones(len(inputs.target)) if inputs.sample_weight is None else inputs.sample_weight


def given_alignments(resources: Resources, inputs: Inputs) -> Alignments:
    """Return the alignments of precomputed matrices."""
    grams, counts, targets = given_grams(inputs, resources), row_counts(inputs), class_targets(inputs)
    labels = counts * (targets - np.average(targets, axis=1, weights=counts)[:, None])
    forms = grams.forms(np.concatenate([labels, counts[None, :]]).T)
    plain = grams.diagonals() @ counts
    traces = plain - forms[:, -1] / counts.sum()
    traces = np.where(traces > MIN_TRACE_SHARE * np.abs(plain), traces, 0.0)
    products = np.maximum(forms[:, :-1].sum(axis=1), 0.0)
    values = np.divide(products, traces, out=np.zeros_like(traces), where=traces > 0)
    return Alignments(values, traces, np.zeros_like(traces), np.zeros_like(traces))


def machine_p(config: KTAPathConfig, state: KTAState) -> float:
    """Return the p of the SVM that predicts: the p that the parameters name, or the last p before it with an active kernel."""
    active = np.flatnonzero(state.counts)
    last = float(state.p[active[-1]]) if len(active) else config.p_start
    return max(config.machine_p, last)


def machine_point(config: KTAPathConfig, state: KTAState) -> int:
    """Return the index of the grid point nearest to ``machine_p``."""
    return int(np.argmin(np.abs(state.p - machine_p(config, state))))


def path_junctures(config: KTAPathConfig, state: KTAState) -> np.ndarray:
    """Return, for every kernel, the p at and below which it is inactive, ``(k,)``."""
    problem = path_problem(config, state.lam1, state.lam2)
    return juncture_points(problem, state.table[0], eps=config.eps, p_start=config.p_start, p_end=config.p_end)


def weights_item(count: int) -> Item:
    """Return the memory of ``count`` weights of a path."""
    return "weights of active kernels at the points of the path", 48 * count


def path_size(config: KTAPathConfig, state: KTAState) -> int:
    """Return the number of weights of the whole path: the sum of the numbers of active kernels over all points."""
    ascending = np.sort(p_grid(config.p_start, config.p_end, config.dp))
    return int(np.sum(len(ascending) - np.searchsorted(ascending, path_junctures(config, state), side="right")))


def path_weights(
    config: KTAPathConfig, lam: tuple[float, float], a: np.ndarray, junctures: np.ndarray, p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the active kernels at p, ascending, and their weights."""
    active = np.flatnonzero(junctures < p)
    return active, weights_at(path_problem(config, *lam), a[active], p)

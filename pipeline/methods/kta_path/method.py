"""The kernel selection path as a method: from a store to a loop, from its state to the last machine, summary and tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ....cluster import Plan
from ....storage import DataError
from ...core.memory import Item, check_memory, driver_plan, refuse
from ...grams.given import GivenGrams
from ...inputs.labels import Inputs, dual_problems, store_inputs
from ...inputs.memory import vectors_item
from ...inputs.scores import held_out_rows
from ...method import Method
from ...models.kernel import KernelModel
from ...models.kernel_predict import KernelPredictor
from ...passes.blocks import Task, column_tasks
from ...records.context import RunContext
from ...records.data_set import source_names
from .alignment_pass import alignments_pass
from .config import KTAPathConfig
from .kernel_sum_pass import MATRIX_COPIES, CellSums, matrix_fits, sum_passes
from .loop import BATCH_MACHINES, BATCH_TASKS, KTALoop, KTAState, machine_p, machine_point, path_junctures, path_weights, weights_item
from .machines import CELL_SHARE, MAX_SINGLE_POINTS, TABLE_COPIES, PathPoint, PathTrainer, spread_points
from .path_model import machine_model, weights_along

N_SHOWN = 1000  # kernels in the report's table
N_FOLLOWED = 20  # kernels whose weights a report follows along p

CELLS = "matrices of cells, which share the kernels of many points"


class KTAPath(Method):
    """Kernels that leave one after the other as the norm of their weights falls, and machines at points of this path."""

    name = "kta-path"
    config_type = KTAPathConfig
    models = {KernelModel: KernelPredictor()}

    config: KTAPathConfig
    inputs: Inputs
    loop: KTALoop

    @classmethod
    def read_inputs(cls, config: KTAPathConfig, ctx: RunContext, extra: Mapping[str, Any]) -> tuple[KTAPathConfig, Inputs]:
        """Return parameters, and classes and weights of a store; ``extra`` may hold ``test_share``. Raises DataError: no classes;
        ValueError: matrices, which a block store does not hold.
        """
        if config.kernel == "precomputed":
            raise ValueError("kernel='precomputed' needs matrices; a run on a block store takes 'rbf' or 'linear'")
        inputs = store_inputs(ctx, cls.name)
        if inputs.classes is None:
            raise DataError(f"the target is real-valued; {cls.name} needs classes", ctx.data.url)
        return config, inputs.without(held_out_rows(extra, inputs.target, ctx.seed, inputs.classes))

    @classmethod
    def build_loop(cls, config: KTAPathConfig, inputs: Inputs, ctx: RunContext) -> KTALoop:
        """Return the loop of a fit. Raises DataError: a class without rows of positive weight; MemoryBoundExceeded: more rows or features
        than the memory allows.
        """
        dual_problems(config, inputs)
        loop = KTALoop(config, inputs)
        if not isinstance(inputs.data, GivenGrams):
            # At least one point's weights; how many more there are shows with the alignments.
            items, remedy = _driver_items(loop, ctx, 1), "fewer rows or features"
            refuse(cls.name, items, ctx.fit_limit, remedy)
            # Cells are rarely more than some tens; that they might be as many as their share of the memory allows is nothing to tell.
            check_memory(cls.name, [item for item in items if item[0] != CELLS], ctx, remedy)
        return loop

    @cached_property
    def plan(self) -> dict[str, Any]:
        """Points of the path, tasks of a pass, where machines are solved."""
        points, data = len(self.loop.grid), self.ctx.data
        tasks, fits = column_tasks(data), matrix_fits(data.n_rows, data.n_cols, self.ctx.driver_memory)
        sizes = {"kernels": int(data.n_cols), "points": points}
        machines = {"machines": self.inputs.n_machines, "machine_points": self.config.n_machines}
        passes = {"tasks_per_pass": len(tasks), "task_bytes": max(work.memory_bound for work in self._passes(tasks))}
        solves = {"solve_on": "matrix" if fits else "passes", "matrix_bytes": MATRIX_COPIES * data.n_rows**2 if fits else 0}
        return {**driver_plan(_driver_items(self.loop, self.ctx, points)), **sizes, **machines, **passes, **solves}

    def _passes(self, tasks: Sequence[Task]) -> Iterator[Plan[Any]]:
        """Yield the passes of the fit, nothing of which runs."""
        data, targets = self.ctx.data, 8 * self.ctx.data.n_rows * self.inputs.n_machines
        yield from (alignments_pass(tasks[lo : lo + BATCH_TASKS], targets) for lo in range(0, len(tasks), BATCH_TASKS))
        yield from sum_passes(data, 4 if self.config.kernel == "rbf" else 8, _most_cells(self.loop, self.ctx), self.ctx.driver_memory)

    @property
    def distributed(self) -> tuple[str, ...]:
        """What workers do."""
        fits = matrix_fits(self.ctx.data.n_rows, self.ctx.data.n_cols, self.ctx.driver_memory)
        return ("alignments of features", "Gram blocks of machines" if fits else "products and entries of the machines' kernels")

    def model(self, state: KTAState, ctx: RunContext) -> KernelModel:
        """Return the path, with the machine at one of its points."""
        config = self.config
        arrays = dict(zip(("alignments", "traces", "widths"), state.table[:3], strict=True))
        arrays |= {"junctures": path_junctures(config, state), "p_grid": state.p, "n_active": state.counts}
        arrays |= {"path_indices": state.indices, "path_values": state.values, "newton_steps": state.newton_steps, "scored": state.scored}
        figures = {"lam1": state.lam1, "lam2": state.lam2, "C": float(config.C)}
        return machine_model(config, self.inputs, arrays, figures, self.machine(state, ctx))

    def machine(self, state: KTAState, ctx: RunContext, p: float | None = None) -> PathPoint:
        """Return the machine at a point of the path; by default the one that the parameters name, or the last one before it that has a
        kernel. That one is solved once, for the model and for what is said of it.
        """
        if p is None:
            known = self.loop.machine
            if known is None or known[0] is not state:
                known = self.loop.machine = state, self.machine(state, ctx, machine_p(self.config, state))
            return known[1]
        lam, junctures = (state.lam1, state.lam2), path_junctures(self.config, state)
        active, eta = path_weights(self.config, lam, state.alignments.values, junctures, p)
        # Started from nothing, the machine is the same whatever points came before.
        return PathTrainer(self.config, self.inputs, ctx, state.kernels).at(p, active, eta)

    def follow_path(self, before: KTAPath | None) -> None:
        """Leave the machines along the path to its end; they share matrices with those of another C."""
        self.loop.trains, self.loop.sums = False, None if before is None else before.loop.sums

    def warm_start(self, fresh: KTAState, before: KTAPath, last: KTAState) -> KTAState:
        """Return the whole path: C is of machines alone."""
        return last

    def path_values(self, state: KTAState, ctx: RunContext) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """Yield what machines decide at ``n_machines`` points, evenly from the first to the last, or at the last one with a kernel."""
        points, active = spread_points(len(state.p), self.config.n_machines), np.flatnonzero(state.counts)
        if not len(active):
            yield from (({"p": float(state.p[k])}, np.zeros((self.inputs.n_machines, ctx.data.n_rows))) for k in points)
            return
        trainer, chosen = PathTrainer(self.config, self.inputs, ctx, state.kernels), np.unique(np.minimum(points, active[-1]))
        trainer.sums = self.loop.sums
        values = {int(k): point.values for k, point in zip(chosen, trainer.along(state.p[chosen], state.weights[chosen]), strict=True)}
        self.loop.sums = trainer.sums
        yield from (({"p": float(state.p[k])}, values[min(int(k), int(active[-1]))]) for k in points)

    @classmethod
    def without(cls, inputs: Inputs, held_out: np.ndarray) -> Inputs:
        """Return inputs with the weights of some rows zero; nothing is measured on them along the path."""
        return replace(inputs.without(held_out), held_out=None)

    def decision_values(self, state: KTAState, ctx: RunContext) -> np.ndarray:
        """Return what the last machine of the path decides on all rows, ``(n_machines, n_samples)``."""
        return self.machine(state, ctx).values

    def summary(self, state: KTAState, model: KernelModel) -> dict[str, Any]:
        """Return the path's size, and certificate and scores of the machine that predicts."""
        sizes = {"n_kernels": int(state.table.shape[1]), "n_points": len(state.p)}
        n_selected = len(model.used) if model.features is None else len(model.features.columns)
        counts = {"n_selected": n_selected, "n_active_at_start": int(state.counts[0]), "n_active_at_end": int(state.counts[-1])}
        point, figures = {"lam1": state.lam1, "lam2": state.lam2, "p": model.figures["p"]}, model.figures
        certificate = {"gap": figures["gap"], "certified_over": "the machine at this p", "objective": figures["objective"]}
        machine = {"n_support": len(model.support_ids), "stop": state.stop, "classes": json.loads(model.classes_json)}
        at = state.scored[state.scored[:, 0] == machine_point(self.config, state)]
        scores = _finite_scores(*at[0, 1:]) if len(at) else {}
        return {**sizes, **counts, **point, **certificate, **machine, **scores}

    def tables(self, state: KTAState, model: KernelModel) -> dict[str, list[dict[str, Any]]]:
        """Return kernels in the order they leave the path, last ones first; the points; and weights of the last kernels."""
        return self.model_tables(model, source_names(self.ctx.data))

    @classmethod
    def model_tables(cls, model: KernelModel, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return what :meth:`tables` does."""
        a, grid, counts = (model.arrays[name] for name in ("alignments", "p_grid", "n_active"))
        order = np.lexsort((np.arange(len(a)), -a))[:N_SHOWN]
        labels = [str(j) if names is None else names[j] for j in order.tolist()]
        used = model.used if model.features is None else model.features.columns
        weights = dict(zip(used.tolist(), model.theta[0, model.used if model.precomputed else slice(None)].tolist(), strict=True))
        ends = [p if np.isfinite(p) else None for p in model.arrays["junctures"][order].tolist()]
        kernels = [
            {"kernel": label, "weight": weights.get(j), "alignment": float(a[j]), "leaves_at_p": end}
            for j, label, end in zip(order.tolist(), labels, ends, strict=True)
        ]
        followed = weights_along(model)[:, order[:N_FOLLOWED]].toarray().tolist()
        paths = [{"p": p, **dict(zip(labels, row, strict=False))} for p, row in zip(grid.tolist(), followed, strict=True)]
        scored = {int(k): _finite_scores(train, test) for k, train, test in model.arrays["scored"]}
        points = enumerate(zip(grid.tolist(), counts.tolist(), strict=True))
        path = [{"p": p, "n_active": n, **scored.get(k, {})} for k, (p, n) in points]
        return {"kernels": kernels, "path": path, "path_weights": paths}


def _driver_items(loop: KTALoop, ctx: RunContext, points: int) -> tuple[Item, ...]:
    """Return what the driver holds: figures of every feature, weights at all of them at some points, vectors, matrices of a machine. Where
    a point's matrix does not fit there are passes instead.
    """
    n, d, memory = ctx.data.n_rows, ctx.data.n_cols, ctx.driver_memory
    features = "alignments, traces, widths and weights of the features", 80 * d
    vectors = features, weights_item(points * d), vectors_item(n, loop.inputs.n_machines)
    if not matrix_fits(n, d, memory):
        return vectors
    machines, cells = _machines_at_once(loop), _most_cells(loop, ctx)
    matrix = "sums of kernels, the matrix, and the solver's copy of it", MATRIX_COPIES * n * n
    if machines <= MAX_SINGLE_POINTS:
        single = "the matrix that one task sums, and the copy a solver shrinks", 13 * n * n
        return (*vectors, single if len(column_tasks(ctx.data)) == 1 else matrix)
    table = "weights of kernels at the machines, while cells are cut", min(TABLE_COPIES * d * machines, int(CELL_SHARE * memory))
    summed = CELLS, (8 if loop.config.kernel == "rbf" else 16) * cells * n * n
    # The table is gone once the cells are cut.
    return (*vectors, matrix, max(summed, table, key=lambda item: item[1]))


def _machines_at_once(loop: KTALoop) -> int:
    return min(loop.config.n_machines, BATCH_MACHINES, len(loop.grid))


def _most_cells(loop: KTALoop, ctx: RunContext) -> int:
    """Return how many cells there are at most, whose matrices many points share; none where there are few."""
    if _machines_at_once(loop) <= MAX_SINGLE_POINTS:
        return 0
    return min(ctx.data.n_cols, CellSums.max_count(ctx, CELL_SHARE, 4 if loop.config.kernel == "rbf" else 8))


def _finite_scores(train: float, test: float) -> dict[str, float]:
    scores = {"train_accuracy": float(train), "test_accuracy": float(test)}
    return {name: value for name, value in scores.items() if np.isfinite(value)}
